"""Recorded and expected codes of a tensor that no arithmetic reproduces, and a type for traits of wrong elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["CodesOfTensor", "Trait", "by_channel", "stretches", "unclipped_elements"]

_STRETCH = 1 << 18
"""Number of elements processed at once, so few that a widened copy fits into a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodesOfTensor:
    """The codes of one tensor in all samples, recorded and expected.

    Args:
        expected: Codes of the best replay. Axis 0 counts samples (and steps).
        recorded: Codes of the recording, in the same shape.
        layout: Roles of the other axes.
        zero_point: The code of real 0.
        span: Lowest and highest code.
        distance: Each element's distance from the nearest tie before rounding, in LSB, or None if unknown.
        magnitude: Sum of the magnitudes of each element's products, or None if unknown.
        sums: Magnitude of each element's sum, or None if unknown.
        kind: Kind of the unit, such as "conv".
    """

    expected: np.ndarray
    recorded: np.ndarray
    layout: Layout
    zero_point: int = 0
    span: tuple[int, int] = (-128, 127)
    distance: np.ndarray | None = None
    magnitude: np.ndarray | None = None
    sums: np.ndarray | None = None
    kind: str = "conv"

    @property
    def error(self) -> np.ndarray:
        """Recorded minus expected codes, as int64, or as int32 for codes of at most 16 bits."""
        narrow = max(self.recorded.dtype.itemsize, self.expected.dtype.itemsize) <= 2
        return np.asarray(np.subtract(self.recorded, self.expected, dtype=np.int32 if narrow else np.int64))

    @property
    def wrong(self) -> np.ndarray:
        """Boolean mask of the wrong elements."""
        return np.asarray(self.recorded != self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A property that the wrong elements share.

    Args:
        pattern: A key of `qdebug.arithmetic.patterns.residual.PATTERNS`, such as "constant_per_channel".
        detail: A clause for readers.
    """

    pattern: str
    detail: str


def unclipped_elements(evidence: CodesOfTensor) -> np.ndarray:
    """Return a mask of the elements whose recorded and expected codes both lie inside the code range, not at an end."""
    low, high = evidence.span
    codes = evidence.expected, evidence.recorded
    return np.asarray(np.logical_and.reduce([(code > low) & (code < high) for code in codes]))


def stretches(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield flat slices of arrays of equal shape, in C order, with a checkpoint before each slice."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _STRETCH):
        checkpoint()
        yield tuple(array[start : start + _STRETCH] for array in flat)


def by_channel(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the elements of each channel as a row, or a single row if there are no channels."""
    if layout.channel is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, layout.channel + 1, 0).reshape(array.shape[layout.channel + 1], -1)
