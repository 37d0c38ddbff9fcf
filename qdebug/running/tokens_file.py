"""The token of each row of a run, in an .npz file that the user writes.

Each array is the index of a step: "step0", or "sample1.step0" with several samples. Along its last axis, it has the
request and the position of a row, negative for padding. Its leading axes are those of the tensors' rows.
"step0:PATTERN" is the index of the tensors whose names match a pattern, such as a cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.errors import UsageError
from qdebug.running.feeds import read_inputs

if TYPE_CHECKING:
    from qdebug.compare.measure.token_rows import TokenIndex

__all__ = ["load_tokens"]

_KEY = re.compile(r"(?:sample(\d{1,9})\.)?step(\d{1,9})(?::(.+))?", re.DOTALL)
_SIDES = ("reference", "backend")


def load_tokens(files: Mapping[str, str | Path] | str | Path | None) -> tuple[TokenIndex | None, TokenIndex | None]:
    """Return the index of the reference and of the backend; None for a side without a file.

    Args:
        files: A file for both sides, or files by "reference" and "backend".

    Raises:
        UsageError: An array has another name, or a side is unknown.
        InputError: A file cannot be read.
    """
    if files is None:
        return None, None
    by_side = dict(files) if isinstance(files, Mapping) else dict.fromkeys(_SIDES, files)
    unknown = sorted(by_side.keys() - set(_SIDES))
    if unknown:
        raise UsageError(f"Unknown side {unknown[0]!r}.", hint="Give --tokens reference=A.npz or backend=B.npz.")
    reference, backend = (_read_index(by_side[side]) if side in by_side else None for side in _SIDES)
    return reference, backend


def _read_index(path: str | Path) -> TokenIndex:
    index = {}
    for name, array in read_inputs(path).items():
        match = _KEY.fullmatch(name)
        if match is None:
            raise UsageError(
                f"The array {name[:60]!r} of {str(path)!r} is not the index of a step.",
                hint="Name the arrays step0, step1 ..., or step0:PATTERN for a cache.",
            )
        index[match[3] or "", (int(match[1] or 0), int(match[2]))] = array
    if not any(pattern == "" for pattern, _ in index):
        raise UsageError(f"{str(path)!r} has no index for any step.", hint="Add an array step0 of shape [rows, 2].")
    return index
