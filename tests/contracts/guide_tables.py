"""Write the tables of the guide that follow from the program, such as those of presets and kernels.

    python tests/contracts/guide_tables.py

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->` in a page of `qdebug/guide`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

import kernel_page
import numpy as np

from qdebug.arithmetic.floats.recipes import RECIPES, Along
from qdebug.arithmetic.floats.steps import edges_of, source
from qdebug.arithmetic.presets import known_presets
from qdebug.model import Node
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.steps import STEPS

GUIDE = Path(__file__).parents[2] / "qdebug" / "guide"
BLOCK = re.compile(r"(<!-- begin (\w+) -->\n)(.*?)(<!-- end \2 -->)", re.DOTALL)


def presets() -> str:
    """Return all presets by name, with where they are known from."""
    return "".join(f"- `{each.name}` ({each.provenance}): {each.about}\n" for each in known_presets().values())


def roundings() -> str:
    """Return all roundings, in words and with the steps that may have them."""
    return "".join(
        f"- `{name}` ({', '.join(step for step in STEPS if step in row.steps)}): {row.words}\n"
        for name, row in ROUNDINGS.items()
    )


def placements() -> str:
    """Return the operators whose roundings are known, with the steps inside them that may be rounded."""
    lines = []
    for op, recipe in RECIPES.items():
        image, weight = np.ones((2, 4, 6, 6), np.float32), np.ones((4, 4, 3, 3), np.float32)
        arrays = [image, weight, np.ones(4, np.float32)] if op == "Conv" else [np.ones((4, 4), np.float32)] * 4
        arrays = [image] * 3 if op == "Attention" else arrays
        exponent = [np.ones((4, 4), np.float32), np.float32(2)] if op == "Pow" else None
        count = (
            1 if recipe.along is Along.NOTHING and op not in ("Add", "Sub", "Mul", "Div", "Sum", "Max", "Min") else 2
        )
        for inputs in [exponent] if exponent else [arrays[:each] for each in (4, 3, count)]:
            node = Node(name="n", op=op, inputs=tuple("abcd"[: len(inputs)]), outputs=("y",))
            try:
                made = recipe.steps(node, [source(array) for array in inputs], [array.shape for array in inputs])
            except TypeError:  # fewer inputs
                continue
            steps = [f"`{edge}`" for edge in edges_of(made[0])]
            lines.append(f"- {op}: {', '.join(steps) or 'the result alone'}\n")
            break
    return "".join(lines)


def array_path() -> str:
    """Return the modules that an array passes, found in a process of its own, in which nothing is cached."""
    path = Path(__file__).with_name("array_path.py")
    root = Path(__file__).parents[2]  # where `-c` finds the package, installed or not
    program = f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


TABLES = {
    "presets": presets,
    "roundings": roundings,
    "kernels": kernel_page.page,
    "array_path": array_path,
    "placements": placements,
}


def written(text: str) -> str:
    """Return a page with its tables as they should be."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[4]}", text)


def main() -> None:
    """Write the tables into the pages."""
    for page in sorted(GUIDE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := written(text)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.name}")


if __name__ == "__main__":
    main()
