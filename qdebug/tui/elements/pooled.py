"""A map of a tensor that is never held as a whole: the largest difference of each tile, out of blocks as they come."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.numerics.channels import Stretch

__all__ = ["POOLED", "UNREAD", "PooledMap"]

POOLED = (512, 1024)
"""Most rows and columns that a map is kept with: more than any terminal has cells."""

UNREAD = -1.0
"""Stands where no difference is known yet; no difference is negative."""


class PooledMap:
    """The largest difference by row, which one dimension counts, and by position in it; NaN wins.

    Args:
        shape: Extents, one at least.
        axis: The dimension that counts the rows.
    """

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self._extent, self._inner = shape[axis], prod(shape[axis + 1 :])
        sizes = self._extent, prod(shape[:axis]) * self._inner
        rows, columns = (min(size, most) for size, most in zip(sizes, POOLED, strict=True))
        self._starts = tuple(
            np.arange(many) * size // max(many, 1) for many, size in zip((rows, columns), sizes, strict=True)
        )
        self._map = np.full((rows, columns) if prod(sizes) else (0, 0), UNREAD)

    def add(self, stretch: Stretch, error: np.ndarray) -> None:
        """Add a block.

        Args:
            stretch: Where it is, by rows as by channels.
            error: Sizes of its differences, of the stretch's rows, channels and inner elements.
        """
        outer, within = divmod(stretch.start, self._extent * self._inner)
        first = outer * self._inner + within % self._inner
        tile = error.transpose(1, 0, 2).reshape(stretch.channels, -1)
        spans = []
        for axis, begin in ((0, stretch.first), (1, first)):
            starts, count = self._starts[axis], tile.shape[axis]
            low, high = (int(np.searchsorted(starts, at, "right")) - 1 for at in (begin, begin + count - 1))
            if high - low + 1 < count:
                edges = starts[low : high + 1] - begin
                edges[0] = 0
                tile = np.maximum.reduceat(tile, edges, axis=axis)
            spans.append(slice(low, high + 1))
        known = self._map[spans[0], spans[1]]
        np.maximum(known, tile, out=known)

    def map(self) -> np.ndarray:
        """Give what is known so far, in at most `POOLED` rows and columns."""
        return self._map.copy()
