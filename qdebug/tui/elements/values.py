"""Extremes, means and histograms of both sides of a pair, for display."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.histogram import BinCounter

if TYPE_CHECKING:  # not imported at run time, so that the first frame is drawn sooner
    from qdebug.compare.measure.pair_values import OpenPair

__all__ = ["BINS", "SideValues", "ValueFacts", "value_facts"]

BINS = 96
"""Number of histogram bins: more than any panel shows, so that bins can be summed for any width."""

_BLOCK = 1 << 15
_MAX_UNSCALED_EXPONENT = 400
"""Maximum exponent of values that are used unscaled."""
_SCALING_EXPONENT = 1000
"""Exponent of a power of 2 for scaling values; it and its inverse are normal numbers."""
_RELATIVE_HALF_WIDTH = 2.0**-20
"""Relative half-width of a histogram around a single value. An absolute half-width of 0.5 might vanish in rounding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideValues:
    """Statistics of one tensor's values.

    Args:
        low, high, mean, std: Of the finite values; None if there are none.
        nan: Number of NaN values.
        infinite: Number of infinite values.
        counts: Histogram of the finite values over the shared range, with `BINS` bins.
    """

    low: float | None
    high: float | None
    mean: float | None
    std: float | None
    nan: int
    infinite: int
    counts: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFacts:
    """Statistics of both sides, over a shared range of values.

    Args:
        reference: The reference's values.
        backend: The backend's values.
        low, high: Range of both histograms; equal if all values are equal.
        shape: Extents of the backend's array.
    """

    reference: SideValues
    backend: SideValues
    low: float
    high: float
    shape: tuple[int, ...] = ()


def value_facts(pair: OpenPair) -> ValueFacts:
    """Summarise both sides of a pair, block by block.

    Args:
        pair: Both sides; their values are not kept in memory.
    """
    sides = _Side(), _Side()
    for block in _blocks(pair):
        for side, values in zip(sides, block, strict=True):
            side.add_extremes(values)
    low = min((side.low for side in sides if side.count), default=0.0)
    high = max((side.high for side in sides if side.count), default=0.0)
    factor, first, last = _scaling_factor(low, high), low, high
    if low == high:
        margin = max(0.5, abs(low) * _RELATIVE_HALF_WIDTH)
        factor, first, last = _scaling_factor(low - margin, low + margin), low - margin, low + margin
    counters = tuple(BinCounter(BINS, (first * factor, last * factor)) for _ in sides)
    for block in _blocks(pair) if any(side.count for side in sides) else ():
        for side, counter, values in zip(sides, counters, block, strict=True):
            if len(finite := values if side.is_all_finite else _finite_values(values)):
                side.add_sums(finite)
                counter.add(finite if factor == 1.0 else finite * factor)
    reference, backend = (side.facts(counter.histogram().counts) for side, counter in zip(sides, counters, strict=True))
    return ValueFacts(reference=reference, backend=backend, low=low, high=high, shape=pair.shape)


def _blocks(pair: OpenPair) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield both sides as float64, block by block, in the same two arrays."""
    buffer = np.empty((2, min(_BLOCK, pair.size)))
    for start in range(0, pair.size, _BLOCK):
        checkpoint()
        window = pair.read(start, min(start + _BLOCK, pair.size))
        sides = buffer[:, : window.backend.size]
        sides[0], sides[1] = window.reference, window.backend
        yield sides[0], sides[1]


def _finite_values(values: np.ndarray) -> np.ndarray:
    is_finite = np.isfinite(values)
    return values if is_finite.all() else values[is_finite]


def _scaling_factor(low: float, high: float) -> float:
    """Return the power of 2 that scales values close to 1; 1 if their squares neither overflow nor underflow."""
    exponent = int(np.frexp(max(abs(low), abs(high)))[1])
    return (
        1.0
        if abs(exponent) < _MAX_UNSCALED_EXPONENT
        else 2.0 ** -min(max(exponent, -_SCALING_EXPONENT), _SCALING_EXPONENT)
    )


class _Side:
    """Extremes, mean and deviation of a side's finite values: one pass for the extremes, one for the sums.

    Sums are computed over distances from the midpoint of the extremes. The two extremes are far from it, so subtracting
    the square of the mean distance does not cancel the variance.
    """

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.count = self._nan_count = self._infinite_count = 0
        self._sum = self._squares = 0.0

    @property
    def is_all_finite(self) -> bool:
        return not self._nan_count + self._infinite_count

    def add_extremes(self, values: np.ndarray) -> None:
        finite = _finite_values(values)
        if len(finite) < len(values):
            nan_count = int(np.isnan(values).sum())
            self._nan_count, self._infinite_count = (
                self._nan_count + nan_count,
                self._infinite_count + len(values) - len(finite) - nan_count,
            )
        if len(finite):
            self.count += len(finite)
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def add_sums(self, finite: np.ndarray) -> None:
        factor = _scaling_factor(self.low, self.high)
        distances = (finite if factor == 1.0 else finite * factor) - (self.low * factor + self.high * factor) / 2
        self._sum += float(distances.sum())
        self._squares += float(np.square(distances, out=distances).sum())

    def facts(self, counts: np.ndarray) -> SideValues:
        has_values = bool(self.count)
        mean = std = 0.0
        if has_values:
            factor, mean = _scaling_factor(self.low, self.high), self._sum / self.count
            std = float(np.sqrt(max(self._squares / self.count - mean * mean, 0.0))) / factor
            mean = (mean + (self.low * factor + self.high * factor) / 2) / factor
        return SideValues(
            low=float(self.low) if has_values else None,
            high=float(self.high) if has_values else None,
            mean=mean if has_values else None,
            std=std if has_values else None,
            nan=self._nan_count,
            infinite=self._infinite_count,
            counts=counts,
        )
