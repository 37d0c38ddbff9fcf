"""A map of one plane of a tensor, of whatever size: read block by block, pooled to what a terminal can show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.elements.pooled import PooledMap
from qdebug.tui.elements.slab import differences, plane_size

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.numerics.channels import Stretch
    from qdebug.tui.reading.source import OpenPair

__all__ = ["PlaneMap", "PlaneSums"]


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
        """Give what is known so far."""
        return PlaneMap(
            place=self._place,
            size=self._size,
            pooled=self._pooled.map(),
            largest=self._largest,
            missing=prod(self._size) - self._read,
        )
