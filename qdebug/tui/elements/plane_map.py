"""A map of one plane of a tensor, of whatever size: read block by block, pooled to what a terminal can show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.elements.slab import differences, plane_size

if TYPE_CHECKING:
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.numerics.channels import Stretch

__all__ = ["POOLED", "UNREAD", "PlaneMap", "PlaneSums", "PooledMap"]

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
        """Return what is known so far, in at most `POOLED` rows and columns."""
        return self._map.copy()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaneMap:
    """The size of the difference on the last two dimensions.

    Args:
        place: Which plane: all but the last two numbers of the index of any of its elements.
        size: Its rows and columns; a tensor with fewer dimensions has one row.
        pooled: The largest difference of each tile; `UNREAD` where none is known yet.
        largest: Largest finite difference that is known; 0 if there is none.
        missing: Elements that are not read yet.
    """

    place: tuple[int, ...]
    size: tuple[int, int]
    pooled: np.ndarray = field(repr=False)
    largest: float
    missing: int = 0

    @property
    def so_far(self) -> str:
        """How much of the plane is read; "" if all of it."""
        elements = prod(self.size)
        return f"{100 * (elements - self.missing) // elements}%" if self.missing else ""


class PlaneSums:
    """A plane on its way into a map.

    Args:
        pair: Both sides.
        place: Which plane.
    """

    def __init__(self, pair: OpenPair, place: tuple[int, ...]) -> None:
        from qdebug.numerics.channels import stretches

        self._pair: OpenPair | None = pair  # until all is read
        self._place = place
        self._size = plane_size(pair.shape)
        at = int(np.ravel_multi_index(place, pair.shape[: len(place)])) if place else 0
        self._first = at * prod(self._size)
        self._left: Iterator[Stretch] = stretches(self._size, 0)
        self._pooled, self._largest, self._read = PooledMap(self._size, 0), 0.0, 0

    def more(self, cancelled: Callable[[], bool] = lambda: False, *, seconds: float | None = None) -> bool:
        """Read on, where it was left the last time, until it is cancelled or the time is up; tell whether all is read.

        Args:
            cancelled: Asked after every block.
            seconds: For how long; None for all there is.
        """
        end = None if seconds is None else time.monotonic() + seconds
        size = prod(self._size)
        while self._pair is not None and self._read < size and not cancelled():
            stretch = next(self._left)
            part = self._pair.read(self._first + stretch.start, self._first + stretch.stop)
            error = np.abs(differences(part.reference, part.backend))
            top = float(error.max())
            if not np.isfinite(top):
                top = float(np.max(error, initial=0.0, where=np.isfinite(error)))
            self._largest = max(self._largest, top)
            self._pooled.add(stretch, error.reshape(stretch.rows, stretch.channels, stretch.inner))
            self._read = stretch.stop
            if end is not None and time.monotonic() > end:
                break
        if self._read == size:
            self._pair = None
        return self._read == size

    def map(self) -> PlaneMap:
        """Return what is known so far."""
        return PlaneMap(
            place=self._place,
            size=self._size,
            pooled=self._pooled.map(),
            largest=self._largest,
            missing=prod(self._size) - self._read,
        )
