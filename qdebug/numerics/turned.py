"""Consecutive elements of an array whose dimensions were turned, without a copy of all of it."""

from __future__ import annotations

from math import prod

import numpy as np

from qdebug.numerics.mapped import touched_pages

__all__ = ["TurnedFlat"]

_KEPT = 1 << 16
"""Bytes of a part that is kept, in case it is asked for again: codes are, as they are and as real values."""


class TurnedFlat:
    """The elements of an array in C order, wherever they are in memory; `flat[start:stop]` copies some of them.

    As numpy's own flat iterator, but by slices: that one finds its place anew for each element.

    Args:
        array: Elements of any shape and strides.
    """

    __slots__ = ("_array", "_last", "_pages", "_span")

    def __init__(self, array: np.ndarray) -> None:
        self._array, self._pages = array, touched_pages(array)
        self._span, self._last = (0, 0), _part(array, 0, 0)

    def __getitem__(self, span: slice) -> np.ndarray:
        """Give some elements, 1-D; never to be written to.

        Args:
            span: From the first one, not negative, up to the last one plus one; without a step.
        """
        asked = int(span.start), min(int(span.stop), self._array.size)
        if asked == self._span:
            return self._last
        if self._pages is not None:
            self._pages.read(asked[1] - asked[0])
        part = _part(self._array, *asked)
        if part.nbytes <= _KEPT:
            self._span, self._last = asked, part
        return part


def _part(array: np.ndarray, start: int, stop: int) -> np.ndarray:
    if stop <= start:
        return np.empty(0, array.dtype)
    if array.ndim < 2:
        return np.ascontiguousarray(array.reshape(-1)[start:stop])
    inner = prod(array.shape[1:])
    row, last = start // inner, (stop - 1) // inner
    if row == last:
        return _part(array[row], start - row * inner, stop - row * inner)
    parts = []
    if start > row * inner:
        parts.append(_part(array[row], start - row * inner, inner))
        row += 1
    whole = stop // inner
    if whole > row:
        parts.append(np.ascontiguousarray(array[row:whole]).reshape(-1))
    if stop > whole * inner:
        parts.append(_part(array[whole], 0, stop - whole * inner))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
