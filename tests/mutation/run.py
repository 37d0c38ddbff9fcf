"""Change one thing in the code and see whether a test fails: mutants by area, each against the tests of that area.

    python tests/mutation/run.py [TREE] [--area NAME ...] [--each 40] [--seed 1] [--by-hand] [--only GLOB]

A mutant turns around a comparison, an operation, a condition or a sign, moves a number by one, or takes a statement
away. Some of each area are drawn by seed; `by_hand.toml` holds others, each the opposite of a promise. A mutant is
*killed* if a test fails or takes too long, and *survives* if none does: no test of the area holds its line. Read the
survivors. One that changes nothing that anybody can see goes into `equivalent.toml` with the reason, and is not drawn.
Only those tests run that call the changed function (see `forking.py`), the near ones first. TREE is a checkout (this
one if none is given); it is copied and never changed. `--only` draws from some files alone, `--tests` takes some tests
alone. The exit code is 1 if an area is below 90 %, or a mutant by hand survives.

The nightly run draws others each night: --each 150 --seed "$(date +%Y%m%d)".
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
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from forking import inner

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENOUGH = 90
"""Percent of the mutants of an area that tests must kill."""
AREAS: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "numerics": ("numerics/*.py", (("tests/unit/numerics",), ("tests/properties",))),
    "recording": ("recording/**/*.py", (("tests/unit/recording",), ("tests/attacks",))),
    "search": (
        "arithmetic/**/*.py",
        (
            ("tests/unit/arithmetic", "tests/kernels/test_plain_operators_on_codes.py"),
            ("tests/unit/compare/explaining", "tests/unit/replay", "tests/kernels/test_runtime_arithmetic.py"),
        ),
    ),
    "attribution": (
        "compare/attribute/*.py",
        (("tests/unit/compare/attribute",), ("tests/properties/test_attribution.py",)),
    ),
    "alignment": ("compare/align/*.py", (("tests/unit/compare/align",), ("tests/unit/compare",))),
}
"""Files of each area, and the folders of its tests: the near ones, and those that see what survives these."""

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
        before: The line as it was.
        change: What is changed into what.
        function: The function, by its qualified name.
        first: Its first line.
        last: Its last line.
        text: The whole file with the change.
    """

    area: str
    path: str
    line: int
    before: str
    change: str
    function: str
    first: int
    last: int
    text: str


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Change one thing after the other in place; yield where and what, and take it back.

    Annotations do nothing, and to `reshape` any negative number means the same.
    """
    held = (getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns"))
    unread = {part for each in held if each is not None for part in ast.walk(each)}
    for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "reshape":
            sizes = [size for each in call.args for size in getattr(each, "elts", [each])]
            unread |= {each.operand for each in sizes if isinstance(each, ast.UnaryOp)}
    for node in (each for each in ast.walk(tree) if each not in unread):
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


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int, range]]:
    """List functions that lie in no other one: qualified name, first and last line, and the lines of the body."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            last = node.end_lineno or node.lineno
            yield prefix + node.name, first, last, range(node.body[0].lineno, last + 1)
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")


def holder(path: Path, line: int) -> tuple[str, int, int] | None:
    """Return the function that holds a line in its body: qualified name, first and last line."""
    listed = functions(ast.parse(path.read_text(encoding="utf-8")))
    return next(((name, first, last) for name, first, last, body in listed if line in body), None)


def can_change(text: str, changed: str, function: str) -> bool:
    """Tell whether the changed code of a function can take the place of the old one: it has the same outer names."""
    old, new = (inner(compile(each, "", "exec"), function) for each in (text, changed))
    return old is not None and new is not None and old.co_freevars == new.co_freevars


def drawn(package: Path, area: str, each: int, seed: int, only: str) -> list[Mutant]:
    """Draw mutants of one area by seed, in the files that a pattern names."""
    places: list[tuple[Path, int]] = []
    for path in sorted(each for each in package.glob(AREAS[area][0]) if each.match(only)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        bodies = {line for *_, body in functions(tree) for line in body}
        found = enumerate(changes(tree))
        places += [(path, at) for at, (node, _) in found if getattr(node, "lineno", 0) in bodies]
    chance = random.Random(f"{seed} {area}")  # noqa: S311  a draw, nothing secret
    chance.shuffle(places)
    result: list[Mutant] = []
    for path, at in places:
        if len(result) == each:
            break
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        node, change = next(found for number, found in enumerate(changes(tree)) if number == at)
        changed = ast.unparse(tree)  # nobody has taken the change back
        line = getattr(node, "lineno", 0)
        where = holder(path, line)
        if where is not None and can_change(text, changed, where[0]):
            name = path.relative_to(package).as_posix()
            result.append(Mutant(area, name, line, text.splitlines()[line - 1].strip(), change, *where, changed))
    return result


def by_hand(package: Path, area: str) -> list[Mutant]:
    """Return the mutants by hand of an area.

    Raises:
        ValueError: The text that one replaces does not stand once in its file, or not in a function.
    """
    result = []
    for row in tomllib.loads((HERE / "by_hand.toml").read_text(encoding="utf-8"))["mutant"]:
        if row["area"] != area:
            continue
        path = package / row["path"]
        text = path.read_text(encoding="utf-8")
        where = holder(path, line := text[: max(text.find(row["old"]), 0)].count("\n") + 1)
        if text.count(row["old"]) != 1 or where is None:
            raise ValueError(f"{row['title']!r} does not apply to {row['path']}")
        changed = text.replace(row["old"], row["new"])
        result.append(
            Mutant(area, row["path"], line, text.splitlines()[line - 1].strip(), row["title"], *where, changed)
        )
    return result


def equivalent() -> set[tuple[str, str, str]]:
    """Return file, line and change of the mutants that change nothing that anybody can see."""
    rows = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8"))["mutant"]
    return {(row["path"], row["line"], row["change"]) for row in rows}


def tried(tests: Sequence[str], mutants: Sequence[Mutant], tree: Path) -> list[str]:
    """Run tests on each mutant in a tree; return what became of each.

    Raises:
        RuntimeError: The tests fail without a change.
    """
    given, told = tree.with_suffix(".json"), tree.with_suffix(".told")
    rows = [asdict(each) | {"file": str(tree / "qdebug" / each.path)} for each in mutants]
    given.write_text(json.dumps({"package": str(tree / "qdebug"), "mutants": rows}), encoding="utf-8")
    words = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "forking"]
    words += ["-o", "addopts=", "--import-mode=importlib", "-m", "not slow", "--mutants", given, "--outcomes", told]
    known = os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{HERE}", "CI": "true"}
    done = subprocess.run([*words, *tests], cwd=tree, capture_output=True, text=True, check=False, env=known)
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    if not lines or lines[0]["failed"]:
        raise RuntimeError(f"without a change: {lines[0]['failed'] if lines else done.stdout + done.stderr}")
    return [line["outcome"] for line in lines[1:]]


def run_all(stages: Sequence[Sequence[str]], mutants: Sequence[Mutant], trees: Sequence[Path]) -> list[str]:
    """Share mutants among trees, each stage of tests for what the one before lets live; print what became of each."""
    outcomes = ["not called"] * len(mutants)
    for tests in stages:
        left = [number for number, said in enumerate(outcomes) if not said.startswith("killed")]
        shares = [left[job :: len(trees)] for job in range(len(trees))]
        with ThreadPoolExecutor(len(trees)) as pool:
            each = [
                pool.submit(tried, tests, [mutants[number] for number in share], tree)
                for share, tree in zip(shares, trees, strict=True)
                if share
            ]
            found = [said for one in each for said in one.result()]
        for number, said in zip((number for share in shares for number in share), found, strict=True):
            outcomes[number] = outcomes[number] if said == "not called" else said
    for each, said in zip(mutants, outcomes, strict=True):
        print(f"{said[:60]:60} {each.path}:{each.line}  {each.change}", flush=True)
    return outcomes


def main() -> int:
    """Draw mutants, run them, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--each", type=int, default=40, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", nargs="+", choices=AREAS, default=list(AREAS))
    parser.add_argument("--by-hand", action="store_true", help="those of by_hand.toml alone")
    parser.add_argument("--only", default="*.py", help="files, by a pattern")
    parser.add_argument("--tests", nargs="+", help="tests, instead of those of the area")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    known, rows, lines = equivalent(), [], []
    with tempfile.TemporaryDirectory() as folder:
        trees = [Path(folder) / str(job) for job in range(given.jobs)]
        for tree in trees:
            shutil.copytree(given.tree, tree, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "*_cache"))
        for area in given.area:
            package = given.tree / "qdebug"
            mutants = by_hand(package, area)
            if not given.by_hand:
                mutants = [
                    each
                    for each in drawn(package, area, given.each, given.seed, given.only)
                    if (each.path, each.before, each.change) not in known
                ]
            if not mutants:
                continue
            print(f"{area}: {len(mutants)} mutants", flush=True)
            stages = [given.tests] if given.tests else AREAS[area][1]
            outcomes = run_all(stages, mutants, trees[: min(given.jobs, len(mutants))])
            killed = sum(said.startswith("killed") for said in outcomes)
            share = 100 * killed / len(mutants)
            lines.append(f"{area:12}{len(mutants):8}{killed:8}{len(mutants) - killed:10}{share:8.0f} %")
            rows += [asdict(each) | {"text": "", "outcome": said} for each, said in zip(mutants, outcomes, strict=True)]
    print(f"{'area':12}{'mutants':>8}{'killed':>8}{'survived':>10}{'killed':>10}", *lines, sep="\n")
    if given.output:
        given.output.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    wanted = 100 if given.by_hand else ENOUGH
    return int(any(float(line.split()[-2]) < wanted for line in lines))


if __name__ == "__main__":
    sys.exit(main())
