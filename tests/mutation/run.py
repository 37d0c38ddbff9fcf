"""Change one thing in the code and see whether a test fails: mutants drawn by seed, each against its package's tests.

    python tests/mutation/run.py [TREE] [--each 17] [--seed 1] [--area NAME ...] [--jobs 2] [-o OUT.json]

A mutant turns around a comparison, an operation, a condition or a sign, moves a number by one, or takes a statement
away. It is *killed* if a test fails or takes too long (90 s, and twice what the tests take without a change), and
*survives* if none does. Read the survivors: each is a line that no test of its package holds. TREE is a checkout (this
one if none is given); it is copied and never changed. All areas take an hour or two.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90
AREAS = {
    "metrics": (
        (
            "numerics/*block*.py",
            "numerics/tally.py",
            "numerics/packed.py",
            "numerics/accumulate.py",
            "numerics/worst.py",
        ),
        ("tests/unit/numerics", "tests/properties"),
    ),
    "attribution": (("compare/attribute/*.py",), ("tests/unit/compare",)),
    "alignment": (("compare/align/*.py",), ("tests/unit/compare/align", "tests/unit/compare")),
    "search": (
        ("compare/explaining/search.py", "compare/explaining/selection.py", "arithmetic/search.py"),
        ("tests/unit/compare/explaining", "tests/unit/arithmetic"),
    ),
    "journal": (
        ("store/journal*.py", "record/recovery.py", "recording/journal*.py", "recording/recovery.py"),
        ("tests/unit/store", "tests/unit/record", "tests/unit/recording"),
    ),
    "safety": (
        ("store/safety.py", "store/check_tables.py", "recording/container.py", "recording/table_reading.py"),
        ("tests/unit/store", "tests/unit/recording", "tests/attacks"),
    ),
}
"""Files of each area, and the folders of its tests; what a tree does not have is left out."""

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
OPERATED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
OPERATED |= {ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}


@dataclass(frozen=True)
class Mutant:
    """One change.

    Args:
        area: The area it is drawn from.
        path: The file, relative to the package.
        line: Where it is.
        change: What is changed into what.
        text: The whole file with the change.
    """

    area: str
    path: str
    line: int
    change: str
    text: str


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Change one thing after the other in place; yield where and what, and take it back."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
            before, node.ops[0] = node.ops[0], COMPARED[type(node.ops[0])]()
            yield node, f"{type(before).__name__} -> {type(node.ops[0]).__name__}"
            node.ops[0] = before
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATED:
            was, node.op = node.op, OPERATED[type(node.op)]()
            yield node, f"{type(was).__name__} -> {type(node.op).__name__}"
            node.op = was
        elif isinstance(node, ast.BoolOp):
            word = node.op
            node.op = ast.Or() if isinstance(word, ast.And) else ast.And()
            yield node, f"{type(word).__name__} -> {type(node.op).__name__}"
            node.op = word
        elif isinstance(node, ast.If | ast.IfExp):
            test = node.test
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield test, "condition turned around"
            node.test = test
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            number = node.value
            node.value = number + 1
            yield node, f"{number} -> {node.value}"
            node.value = number
        if isinstance(node, ast.FunctionDef):
            for place, line in enumerate(node.body):
                if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
                    node.body[place] = ast.copy_location(ast.Pass(), line)
                    yield line, f"left out: {ast.unparse(line)[:60]}"
                    node.body[place] = line


def executed(tree: ast.Module) -> set[int]:
    """Return the lines of bodies of functions: what stands outside is names, tables and docstrings."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for part in node.body
        for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)
    }


def drawn(package: Path, area: str, each: int, seed: int) -> list[Mutant]:
    """Draw mutants of one area by seed."""
    found: list[tuple[str, int, str, str]] = []
    for path in sorted({path for pattern in AREAS[area][0] for path in package.glob(pattern)}):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = executed(tree)
        name = path.relative_to(package).as_posix()
        found += [
            (name, node.lineno, change, ast.unparse(tree))
            for node, change in changes(tree)
            if getattr(node, "lineno", 0) in inside
        ]
    chance = random.Random(f"{seed} {area}")  # noqa: S311  a draw, nothing secret
    return [Mutant(area, *row) for row in chance.sample(found, min(each, len(found)))]


def tested(area: str, tree: Path, seconds: float | None) -> bool | None:
    """Run the tests of an area; tell whether all pass, None if they take longer."""
    folders = [folder for folder in AREAS[area][1] if (tree / folder).is_dir()]
    words = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["-o", "addopts=", "--import-mode=importlib", "-m", "not slow", *folders]
    known = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(words, cwd=tree, capture_output=True, timeout=seconds, check=False, env=known)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode == 0


def outcome(mutant: Mutant, tree: Path, seconds: float) -> str:
    """Run the tests of an area on a tree with a change: "killed", "killed (time)" or "survived"."""
    target = tree / "qdebug" / mutant.path
    before = target.read_text(encoding="utf-8")
    target.write_text(mutant.text, encoding="utf-8")
    try:
        passed = tested(mutant.area, tree, seconds)
    finally:
        target.write_text(before, encoding="utf-8")
    return "killed (time)" if passed is None else "survived" if passed else "killed"


def main() -> int:
    """Draw mutants, run them, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--each", type=int, default=17, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", nargs="+", choices=AREAS, default=list(AREAS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    mutants = [each for area in given.area for each in drawn(given.tree / "qdebug", area, given.each, given.seed)]
    trees: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder:
        for job in range(given.jobs):
            copy = Path(folder) / str(job)
            shutil.copytree(given.tree, copy, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "*_cache"))
            trees.put(copy)

        limits: dict[str, float] = {}
        for area in given.area:
            begin = perf_counter()
            if not tested(area, Path(folder) / "0", None):
                parser.error(f"the tests of {area} fail without a change")
            limits[area] = max(SECONDS, 2 * (perf_counter() - begin))
            print(f"{area}: {perf_counter() - begin:.0f} s without a change", flush=True)

        def run(mutant: Mutant) -> str:
            tree = trees.get()
            try:
                said = outcome(mutant, tree, limits[mutant.area])
            finally:
                trees.put(tree)
            print(f"{said:14}{mutant.area:12}{mutant.path}:{mutant.line}  {mutant.change}", flush=True)
            return said

        with ThreadPoolExecutor(given.jobs) as pool:
            outcomes = list(pool.map(run, mutants))
    counts = Counter((each.area, said != "survived") for each, said in zip(mutants, outcomes, strict=True))
    for area in given.area:
        killed, survived = counts[area, True], counts[area, False]
        print(f"{area:12}{killed} of {killed + survived} killed")
    killed = sum(many for (_, dead), many in counts.items() if dead)
    print(f"in all      {killed} of {len(mutants)} killed, {100 * killed / max(len(mutants), 1):.0f} %")
    if given.output:
        rows = [asdict(each) | {"text": "", "outcome": said} for each, said in zip(mutants, outcomes, strict=True)]
        given.output.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
