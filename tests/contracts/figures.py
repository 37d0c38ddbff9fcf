"""Print how large the package is and how it hangs together; run it on two trees to compare them.

    python tests/contracts/figures.py [TREE ...]

Code lines are lines without blanks, comments and docstrings. Operator names are string constants equal to the name of a
known operator, outside the operator table, the kernels, the adapters and the probe models. Numbers are constants at the
top of a module of the comparison. Circles are groups of modules that import each other, imports in functions included.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Container
from pathlib import Path

from qdebug.model.operators.table import ROWS
from qdebug.replay.registry import known_kernels

NAMES = {row.name for row in ROWS} | {op for _, op in known_kernels()}
PLACES = ("model/operators/", "replay/kernels/", "backends/", "probe/", "running/random_net.py")
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(text: str, tree: ast.Module) -> int:
    """Count lines without blanks, comments and docstrings."""
    docs: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for line in body if isinstance(body, list) else ():
            value = line.value if isinstance(line, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs.update(range(line.lineno, (line.end_lineno or line.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docs)


def numbers(tree: ast.Module) -> int:
    """Count numbers at the top of a module, computed ones included."""
    values = (node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value)
    plain = [value for value in values if isinstance(value, ast.Constant | ast.UnaryOp | ast.BinOp)]
    parts = ([part for part in ast.walk(value) if isinstance(part, ast.Constant)] for value in plain)
    return sum(all(isinstance(part.value, int | float) for part in found) for found in parts)


def imported(tree: ast.Module, modules: Container[str]) -> set[str]:
    """Name the modules out of some that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = [(f"{node.module}.{each.name}", node.module) for each in node.names]
            found |= {name if name in modules else package for name, package in inner}
    return {name for name in found if name in modules}


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Find groups of modules that import each other."""
    reach: dict[str, set[str]] = {}
    for start, named in imports.items():
        waiting, seen = list(named), set[str]()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += imports[name]
        reach[start] = seen
    groups = {tuple(sorted(b for b in reach[a] if a in reach[b])) for a in imports if a in reach[a]}
    return [list(group) for group in sorted(groups)]


def show(root: Path) -> None:
    """Print the figures of one tree."""
    size: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    names: Counter[str] = Counter()
    constants: Counter[str] = Counter()
    trees: dict[str, ast.Module] = {}
    files: list[tuple[int, str]] = []
    functions: list[tuple[int, str]] = []
    for path in sorted((root / "qdebug").rglob("*.py")):
        place = path.relative_to(root / "qdebug").as_posix()
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        files.append((len(text.splitlines()), place))
        functions += [
            ((node.end_lineno or node.lineno) - node.lineno + 1, f"{place} {node.name}")
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        package = place.partition("/")[0] if "/" in place else "(top)"
        size[package] += code_lines(text, tree)
        modules[package] += 1
        if not place.startswith(PLACES):
            names[place] += sum(isinstance(node, ast.Constant) and node.value in NAMES for node in ast.walk(tree))
        if package in ("analysis", "arithmetic", "compare"):
            constants[place] += numbers(tree)
        trees[f"qdebug.{place[:-3].replace('/', '.')}".removesuffix(".__init__")] = tree
    known = {name: imported(tree, trees) - {name} for name, tree in trees.items()}
    print(root.resolve().name)
    for package in sorted(size):
        print(f"  {package:16}{modules[package]:6} modules{size[package]:8} lines of code")
    print(f"  {'in all':16}{modules.total():6} modules{size.total():8} lines of code")
    print(f"  operator names outside their places: {names.total()} in {len(+names)} files")
    print(f"  numbers at the top of modules of the comparison: {constants.total()} in {len(+constants)} files")
    for what, sizes in (("modules", files), ("functions", functions)):
        longest = ", ".join(f"{name} {lines}" for lines, name in sorted(sizes, reverse=True)[:3])
        print(f"  longest {what}, in lines: {longest}")
    groups = circles(known)
    print(f"  circles: {len(groups)}; modules in the largest: {max(map(len, groups), default=0)}")


if __name__ == "__main__":
    for tree in sys.argv[1:] or ["."]:
        show(Path(tree))
