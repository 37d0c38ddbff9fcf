"""The codes of a tensor that nothing reproduces, beside those that it should hold, and what they may have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["CodesOfTensor", "Trait", "by_channel", "free_elements", "stretches"]

_STRETCH = 1 << 18
"""Elements that are looked at together: wider copies of them stay in a core's cache, and take milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodesOfTensor:
    """The codes of one tensor in all samples, as they were recorded and as the best replay has them.

    Args:
        expected: Codes of the replay; axis 0 counts samples (and steps).
        recorded: Codes of the recording, of the same shape.
        layout: What the other axes mean.
        zero_point: The code of real 0.
        span: Lowest and highest code.
        distance: Each element's distance from the nearest tie before rounding, in steps; None if unknown.
        magnitude: What each element's sum is made of: the sum of the products' magnitudes; None if unknown.
        sums: Magnitude of each element's sum itself; None if unknown.
    """

    expected: np.ndarray
    recorded: np.ndarray
    layout: Layout
    zero_point: int = 0
    span: tuple[int, int] = (-128, 127)
    distance: np.ndarray | None = None
    magnitude: np.ndarray | None = None
    sums: np.ndarray | None = None

    @property
    def error(self) -> np.ndarray:
        """Recorded less expected codes, in int64; in int32 if they have at most 16 bits."""
        narrow = max(self.recorded.dtype.itemsize, self.expected.dtype.itemsize) <= 2
        return np.asarray(np.subtract(self.recorded, self.expected, dtype=np.int32 if narrow else np.int64))

    @property
    def wrong(self) -> np.ndarray:
        """Which elements are wrong."""
        return np.asarray(self.recorded != self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """What wrong elements have in common.

    Args:
        pattern: Its kind, such as "constant_per_channel".
        detail: In words.
    """

    pattern: str
    detail: str


def free_elements(evidence: CodesOfTensor) -> np.ndarray:
    """Return the elements whose error is not cut off by the ends of the code range on either side."""
    low, high = evidence.span
    codes = evidence.expected, evidence.recorded
    return np.asarray(np.logical_and.reduce([(code > low) & (code < high) for code in codes]))


def stretches(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield arrays of one shape piece by piece, in C order; whoever waits is asked before each."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, _STRETCH):
        checkpoint()
        yield tuple(array[start : start + _STRETCH] for array in flat)


def by_channel(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the elements of each channel as a row; all in one row where there are no channels."""
    if layout.channel is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, layout.channel + 1, 0).reshape(array.shape[layout.channel + 1], -1)
