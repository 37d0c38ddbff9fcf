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
_LARGE = 1e300
_SQUARED = 1e140
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
    exponents = _exponents(pair)
    sides = tuple(_Moments(exponent) for exponent in exponents)
    for part in _blocks(pair):
        for side, values in zip(sides, part, strict=True):
            side.add(values)
    low = min((side.low for side in sides if side.count), default=0.0)
    high = max((side.high for side in sides if side.count), default=0.0)
    bins = tuple(_Bins(low, high) for _ in sides)
    for part in _blocks(pair) if any(side.count for side in sides) else ():
        for counter, values in zip(bins, part, strict=True):
            counter.add(values)
    reference, backend = (side.facts(counter.counts) for side, counter in zip(sides, bins, strict=True))
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


def _exponents(pair: OpenPair) -> tuple[int, int]:
    """Return the exponents of values so large that their squares are too large for a number; else 0."""
    none = pair.read(0, 0)
    sides = [none.reference, none.backend]
    largest = [0.0, 0.0]
    for part in _blocks(pair) if any(side.dtype == np.float64 for side in sides) else ():
        for at, values in enumerate(map(np.abs, part)):
            largest[at] = max(largest[at], float(np.max(values, initial=0.0, where=np.isfinite(values))))
    first, second = (int(np.frexp(most)[1]) if most > _SQUARED else 0 for most in largest)
    return first, second


class _Moments:
    """Extremes, mean and spread of the finite values of a side; means are merged as Chan et al. (1983) do.

    Args:
        exponent: Values are divided by two to this power before they are squared.
    """

    def __init__(self, exponent: int) -> None:
        self._exponent = exponent
        self._low, self._high = np.inf, -np.inf
        self.count, self._mean, self._squares = 0, 0.0, 0.0
        self._nan = self._infinite = 0

    def add(self, block: np.ndarray) -> None:
        if self._exponent:
            block = np.ldexp(block, -self._exponent)
        known = np.isfinite(block)
        finite = block if known.all() else block[known]
        if len(finite) < len(block):
            self._nan += int(np.isnan(block).sum())
            self._infinite += int(np.isinf(block).sum())
        if not len(finite):
            return
        self._low, self._high = min(self._low, float(finite.min())), max(self._high, float(finite.max()))
        mean = float(finite.mean())
        total = self.count + len(finite)
        shift = mean - self._mean
        self._squares += float(np.square(finite - mean).sum()) + shift * shift * self.count * len(finite) / total
        self._mean += shift * len(finite) / total
        self.count = total

    @property
    def low(self) -> float:
        return float(np.ldexp(self._low, self._exponent))

    @property
    def high(self) -> float:
        return float(np.ldexp(self._high, self._exponent))

    def facts(self, counts: np.ndarray) -> SideValues:
        numbers: tuple[float | None, ...] = (None, None, None, None)
        if self.count:
            std = float(np.sqrt(self._squares / self.count))
            mean, std = (float(np.ldexp(each, self._exponent)) for each in (self._mean, std))
            numbers = self.low, self.high, mean, std
        low, high, mean_of, std_of = numbers
        return SideValues(
            low=low, high=high, mean=mean_of, std=std_of, nan=self._nan, infinite=self._infinite, counts=counts
        )


class _Bins:
    """Counts values in bins, at another scale where a bin would be as wide as no number, or wider than all are.

    Args:
        low, high: Range of the finite values.
    """

    def __init__(self, low: float, high: float) -> None:
        self._exponent = 0
        largest = max(abs(low), abs(high))
        if largest > _LARGE or 0 < high - low < 1 / _LARGE:
            self._exponent = int(np.frexp(largest)[1])
            low, high = (float(np.ldexp(end, -self._exponent)) for end in (low, high))
        if low == high:
            margin = max(0.5, abs(low) * _AROUND)
            low, high = low - margin, high + margin
        self._counter = BinCounter(BINS, (low, high))

    def add(self, values: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            self._counter.add(np.ldexp(values, -self._exponent) if self._exponent else values)

    @property
    def counts(self) -> np.ndarray:
        return self._counter.histogram().counts
