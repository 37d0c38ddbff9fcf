"""Print the modules that handle the elements of one tensor, from the file to the verdict: see `design.md`.

    python tests/contracts/array_path.py [REF BACKEND NODE]

Without files it is a convolution of the digits net of the package. A module counts if one of its functions gets or
returns an array with at least as many elements as the tensor has in one sample; a profiler finds them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import qdebug
from qdebug.compare.node_comparer import NodeComparer
from qdebug.session import DiffSession

PACKAGE = Path(qdebug.__file__).parent
DATA = files("qdebug") / "data"
DIGITS = str(DATA / "digits.float.h5"), str(DATA / "digits.int8.h5"), "conv2"


def has_elements(values: Iterable[object], least: int) -> bool:
    """Tell whether one of some values is an array of so many elements, or a tuple that holds one."""
    return any(
        (isinstance(value, np.ndarray) and value.size >= least)
        or (isinstance(value, tuple) and has_elements(value, least))
        for value in values
    )


def modules_passed(session: DiffSession, node: str) -> list[str]:
    """Return the modules that the output of a node passes while it is compared, the first one first."""
    entry = session.entry(node)
    comparer = NodeComparer(session.reference, session.backend, session.alignment.pairs, session.limits)
    least = session.values(entry.tensor).backend.size
    found: dict[str, None] = {}

    def watch(frame: FrameType, event: str, result: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or PACKAGE not in path.parents:
            return
        if has_elements(frame.f_locals.values() if event == "call" else (result,), least):
            found.setdefault(path.relative_to(PACKAGE).with_suffix("").as_posix())

    sys.setprofile(watch)
    try:
        next(comparer.examine([entry]))
    finally:
        sys.setprofile(None)
    return list(found)


def main() -> None:
    """Print the modules by package, in the order in which they are reached, and their number."""
    reference, backend, node = sys.argv[1:] or DIGITS
    with qdebug.open_recording(reference) as ours, qdebug.open_recording(backend) as theirs:
        modules = modules_passed(DiffSession(ours, theirs), node)
    packages: dict[str, list[str]] = {}
    for module in modules:
        package, _, rest = module.partition("/")
        packages.setdefault(package, []).append(f"`{rest}`")
    print(f"{len(modules)} modules:\n")
    for package, names in packages.items():
        print(f"- `{package}`: {', '.join(names)}")


if __name__ == "__main__":
    main()
