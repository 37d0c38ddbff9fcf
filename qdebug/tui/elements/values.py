"""Extremes, means and histograms of the two sides of a pair, for display."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.histogram import BinCounter

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.compare.measure.pair_values import OpenPair

__all__ = ["BINS", "SideValues", "ValueFacts", "value_facts"]

BINS = 96
"""Bins of a histogram: more than any panel shows, so that each width can sum them up."""

_BLOCK = 1 << 15
_SAFE = 400
"""Exponents up to which values are taken as they are."""
_EXPONENT = 1000
"""Of a power of 2 by which values are multiplied: itself and its inverse are normal numbers."""
_AROUND = 2.0**-20
"""How much wider than the value that all have a histogram is, in parts of it: 0.5 more or less may be none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideValues:
    """Facts of one tensor's values.

    Args:
        low, high, mean, std: Of the finite values; None if there are none.
        nan: How many are NaN.
        infinite: How many are infinite.
        counts: Histogram of the finite values over the common range, `BINS` bins.
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
    """Facts of both sides, over one range of values.

    Args:
        reference: The reference's values.
        backend: The backend's values.
        low, high: Range of both histograms; equal if all values are.
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
        pair: Both sides; nothing of it stays in memory.
    """
    sides = _Side(), _Side()
    for part in _blocks(pair):
        for side, values in zip(sides, part, strict=True):
            side.see(values)
    low = min((side.low for side in sides if side.count), default=0.0)
    high = max((side.high for side in sides if side.count), default=0.0)
    unit, first, last = _unit(low, high), low, high
    if low == high:
        margin = max(0.5, abs(low) * _AROUND)
        unit, first, last = _unit(low - margin, low + margin), low - margin, low + margin
    counters = tuple(BinCounter(BINS, (first * unit, last * unit)) for _ in sides)
    for part in _blocks(pair) if any(side.count for side in sides) else ():
        for side, counter, values in zip(sides, counters, part, strict=True):
            if len(finite := values if side.all_finite else _finite(values)):
                side.add(finite)
                counter.add(finite if unit == 1.0 else finite * unit)
    reference, backend = (side.facts(counter.histogram().counts) for side, counter in zip(sides, counters, strict=True))
    return ValueFacts(reference=reference, backend=backend, low=low, high=high, shape=pair.shape)


def _blocks(pair: OpenPair) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield both sides as float64, stretch by stretch, each time in the same two arrays."""
    wide = np.empty((2, min(_BLOCK, pair.size)))
    for start in range(0, pair.size, _BLOCK):
        checkpoint()
        part = pair.read(start, min(start + _BLOCK, pair.size))
        sides = wide[:, : part.backend.size]
        sides[0], sides[1] = part.reference, part.backend
        yield sides[0], sides[1]


def _finite(values: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    return values if finite.all() else values[finite]


def _unit(low: float, high: float) -> float:
    """Return the power of 2 that brings values near to 1, where a square or a width would be too large or too small."""
    exponent = int(np.frexp(max(abs(low), abs(high)))[1])
    return 1.0 if abs(exponent) < _SAFE else 2.0 ** -min(max(exponent, -_EXPONENT), _EXPONENT)


class _Side:
    """Extremes, mean and spread of the finite values of a side: first all are seen, then all are added.

    The sums are of distances from the middle between the extremes. The extremes are among them, so that little is lost
    of the spread where the mean of the distances is taken off.
    """

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.count = self._nan = self._infinite = 0
        self._sum = self._squares = 0.0

    @property
    def all_finite(self) -> bool:
        return not self._nan + self._infinite

    def see(self, values: np.ndarray) -> None:
        finite = _finite(values)
        if len(finite) < len(values):
            nan = int(np.isnan(values).sum())
            self._nan, self._infinite = self._nan + nan, self._infinite + len(values) - len(finite) - nan
        if len(finite):
            self.count += len(finite)
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def add(self, finite: np.ndarray) -> None:
        unit = _unit(self.low, self.high)
        apart = (finite if unit == 1.0 else finite * unit) - (self.low * unit + self.high * unit) / 2
        self._sum += float(apart.sum())
        self._squares += float(np.square(apart, out=apart).sum())

    def facts(self, counts: np.ndarray) -> SideValues:
        some = bool(self.count)
        mean = std = 0.0
        if some:
            unit, mean = _unit(self.low, self.high), self._sum / self.count
            std = float(np.sqrt(max(self._squares / self.count - mean * mean, 0.0))) / unit
            mean = (mean + (self.low * unit + self.high * unit) / 2) / unit
        return SideValues(
            low=float(self.low) if some else None,
            high=float(self.high) if some else None,
            mean=mean if some else None,
            std=std if some else None,
            nan=self._nan,
            infinite=self._infinite,
            counts=counts,
        )
