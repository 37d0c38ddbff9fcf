"""Extremes, means and histograms of the two sides of a pair, for display."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.histogram import value_histogram

__all__ = ["BINS", "SideValues", "ValueFacts", "value_facts"]

BINS = 96
"""Bins of a histogram: more than any panel shows, so that each width can sum them up."""

_BLOCK = 1 << 16
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


def value_facts(reference: np.ndarray, backend: np.ndarray) -> ValueFacts:
    """Summarise two arrays of real values, block by block.

    Args:
        reference: Any shape.
        backend: Any shape.
    """
    sides = [np.ravel(reference), np.ravel(backend)]
    moments = [_moments(side) for side in sides]
    lows = [each[0] for each in moments if each[0] is not None]
    highs = [each[1] for each in moments if each[1] is not None]
    low, high = min(lows, default=0.0), max(highs, default=0.0)
    return ValueFacts(
        reference=_side(sides[0], moments[0], low, high),
        backend=_side(sides[1], moments[1], low, high),
        low=low,
        high=high,
        shape=np.shape(backend),
    )


_Moments = tuple[float | None, float | None, float | None, float | None, int, int]


def _moments(values: np.ndarray) -> _Moments:
    """Give low, high, mean, std, NaN and infinite counts; means are merged as Chan et al. (1983) do."""
    exponent = _exponent(values)
    low, high = np.inf, -np.inf
    count, mean, squares = 0, 0.0, 0.0
    nan = infinite = 0
    for start in range(0, len(values), _BLOCK):
        checkpoint()
        block = np.asarray(values[start : start + _BLOCK], dtype=np.float64)
        if exponent:
            block = np.ldexp(block, -exponent)
        finite = block[np.isfinite(block)]
        nan += int(np.isnan(block).sum())
        infinite += int(np.isinf(block).sum())
        if not len(finite):
            continue
        low, high = min(low, float(finite.min())), max(high, float(finite.max()))
        block_mean = float(finite.mean())
        block_squares = float(np.square(finite - block_mean).sum())
        total = count + len(finite)
        shift = block_mean - mean
        squares += block_squares + shift * shift * count * len(finite) / total
        mean += shift * len(finite) / total
        count = total
    if not count:
        return None, None, None, None, nan, infinite
    low, high, mean, std = (float(np.ldexp(each, exponent)) for each in (low, high, mean, np.sqrt(squares / count)))
    return low, high, mean, std, nan, infinite


def _exponent(values: np.ndarray) -> int:
    """Give the exponent of values so large that their squares are too large for a number; else 0."""
    largest = 0.0
    if values.dtype == np.float64:
        for start in range(0, len(values), _BLOCK):
            size = np.abs(values[start : start + _BLOCK])
            largest = max(largest, float(np.max(size, initial=0.0, where=np.isfinite(size))))
    return int(np.frexp(largest)[1]) if largest > _SQUARED else 0


def _side(values: np.ndarray, moments: _Moments, low: float, high: float) -> SideValues:
    first, last, mean, std, nan, infinite = moments
    counts = np.zeros(BINS, dtype=np.int64)
    if first is not None:
        counts = _counts(values, low, high)
    return SideValues(low=first, high=last, mean=mean, std=std, nan=nan, infinite=infinite, counts=counts)


def _counts(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Count values in bins, at another scale where a bin would be as wide as no number, or wider than all are."""
    largest = max(abs(low), abs(high))
    if largest > _LARGE or 0 < high - low < 1 / _LARGE:
        exponent = int(np.frexp(largest)[1])
        values = np.ldexp(np.asarray(values, np.float64), -exponent)
        low, high = (float(np.ldexp(end, -exponent)) for end in (low, high))
    if low == high:
        margin = max(0.5, abs(low) * _AROUND)
        low, high = low - margin, high + margin
    return value_histogram(values, BINS, (low, high)).counts
