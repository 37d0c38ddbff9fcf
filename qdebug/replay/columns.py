"""Columns: the numbers that a variant's program turns into codes, whole or a selection of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qdebug.replay.blockwise import cut
from qdebug.replay.variant import Sums

__all__ = ["BLOCK", "Columns"]

BLOCK = 1 << 15
"""Elements that are worked on at a time, so that what is between two steps stays in a core's cache."""


_COORDINATES = "coordinates"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The numbers that programs start from.

    Args:
        sums: The heavy part that made them.
        values: One array of numbers per operand of the form: integers in a dtype that holds them exactly, or real
            numbers. In the output's shape with channels first, or flat if `places` is given.
        shape: Shape of the whole output, channels first.
        count: Elements that each average is over, broadcasting to `shape`; None where nothing is averaged.
        places: Flat positions in `shape` of the elements; None if all are there.
        member: Which operand each element comes from, broadcasting to `shape`; None but where tensors are joined.
        bound: Largest magnitude that integers may have; 0 if it is not known.
        memo: What was worked out for the programs of one unit; shared with selections.
        spreads: Parameters as they broadcast to these values.
    """

    sums: Sums
    values: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    count: np.ndarray | None = None
    places: np.ndarray | None = None
    member: np.ndarray | None = None
    bound: float = 0.0
    memo: dict[object, Any] = field(default_factory=dict, repr=False)
    spreads: dict[object, tuple[np.ndarray, ...]] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.values[0].size)

    def take(self, places: np.ndarray) -> Columns:
        """Select elements.

        Args:
            places: Flat positions in C order of the whole output, channels first.

        Raises:
            ValueError: The columns are a selection already.
        """
        if self.places is not None:
            raise ValueError("a selection is taken of whole columns")
        places = np.asarray(places, dtype=np.int64).reshape(-1)
        values = tuple(array.reshape(-1)[places] for array in self.values)
        return replace(self, values=values, places=places, spreads={})

    def spread(self, parameter: np.ndarray) -> np.ndarray:
        """Give a parameter that broadcasts to the whole output so that it broadcasts to the values."""
        if parameter.size == 1:
            return parameter.reshape(())
        if self.places is None:
            return parameter.reshape((1,) * (len(self.shape) - parameter.ndim) + parameter.shape)
        if _COORDINATES not in self.spreads:
            self.spreads[_COORDINATES] = np.unravel_index(self.places, self.shape)
        return np.asarray(np.broadcast_to(parameter, self.shape)[self.spreads[_COORDINATES]])

    def blocks(self, limit: int = BLOCK) -> Iterator[tuple[slice, ...]]:
        """Cut the values into blocks of about `limit` elements at most, as indices into arrays that broadcast."""
        yield from cut(self.values[0].shape, limit)
