"""Intervals that contain the result of a float32 kernel, whatever its order of summation and its math library.

A step of a kernel may be exact, rounded to float32, or fused with the next one. Its interval contains all of these:
the exact result, and the float32 numbers around it. An exact float32 result has an interval of one number, so that ties
of the next rounding are decided. Begin at `Interval`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF, FUNCTION_MAX_UNITS, INTERVAL_SUM_FACTOR

__all__ = ["Interval", "enclose_result", "sum_interval"]


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Lower and upper bounds of numbers, as float64 arrays of one shape."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def exactly(cls, values: np.ndarray) -> Interval:
        """Return the interval of recorded numbers."""
        wide = np.asarray(values, np.float64)
        return cls(wide, wide)

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Both bounds."""
        return self.low, self.high

    @property
    def is_exact(self) -> bool:
        """Whether the numbers are known exactly, as recorded numbers are."""
        return self.low is self.high

    @property
    def decided(self) -> np.ndarray:
        """A mask of the elements whose interval is a single number."""
        return np.asarray(self.low == self.high)

    def plus(self, other: Interval) -> Interval:
        """Return the interval of the computed sum."""
        low = _exact_sum(self.low, other.low)
        if self.low is self.high and other.low is other.high:
            return enclose_result(*low)
        return enclose_result(low[0], _exact_sum(self.high, other.high)[1])

    def minus(self, other: Interval) -> Interval:
        """Return the interval of the computed difference."""
        return self.plus(other.negative())

    def negative(self) -> Interval:
        """Return the numbers with the opposite sign."""
        low = -self.high
        return Interval(low, low if self.is_exact else -self.low)

    def rearranged(self, *terms: Interval) -> Interval:
        """Return the interval extended by the rounding of terms that a kernel may add in another order."""
        magnitude = sum(np.maximum(np.abs(term.low), np.abs(term.high)) for term in terms)
        return Interval(self.low - FLOAT32_UNIT_ROUNDOFF * magnitude, self.high + FLOAT32_UNIT_ROUNDOFF * magnitude)

    def times(self, other: Interval) -> Interval:
        """Return the interval of the computed product."""
        return self._combined(other, np.multiply)

    def over(self, other: Interval) -> Interval:
        """Return the interval of the computed quotient, which may be a product with the reciprocal."""
        quotient = self._combined(other, np.divide)
        return quotient if self.decided.all() and other.decided.all() else quotient.blurred(1.0)

    def _combined(self, other: Interval, combine: Callable[..., np.ndarray]) -> Interval:
        if self.low is self.high and other.low is other.high:
            result = combine(self.low, other.low)
            return enclose_result(result, result)
        corners = [combine(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        low, high = np.fmin.reduce(corners), np.fmax.reduce(corners)
        return enclose_result(low, high)

    def through(self, function: Callable[[np.ndarray], np.ndarray], *, units: float = FUNCTION_MAX_UNITS) -> Interval:
        """Return the interval of a monotone function of the numbers, as a math library computes it.

        Args:
            function: The function, on float64.
            units: Its possible error, in units in the last place of float32.
        """
        first = function(self.low)
        second = first if self.low is self.high else function(self.high)
        return Interval(np.minimum(first, second), np.maximum(first, second)).blurred(units)

    def blurred(self, units: float) -> Interval:
        """Return the interval extended by some units in the last place of float32 at both ends."""
        relative_width = units * 2 * FLOAT32_UNIT_ROUNDOFF
        return Interval(self.low - relative_width * np.abs(self.low), self.high + relative_width * np.abs(self.high))

    def total(self, axes: tuple[int, ...]) -> Interval:
        """Return the interval of the sum over axes in any order. The axes keep an extent of 1.

        Its error grows with the root of the number of terms (Higham and Mary, A new approach to probabilistic rounding
        error analysis, SIAM J. Sci. Comput. 41, 2019).
        """
        low = self.low.sum(axis=axes, keepdims=True)
        high = low if self.low is self.high else self.high.sum(axis=axes, keepdims=True)
        size = np.maximum(np.abs(self.low), np.abs(self.high)).sum(axis=axes, keepdims=True)
        terms = self.low.size // max(low.size, 1)
        return Interval(sum_interval(low, size, terms).low, sum_interval(high, size, terms).high)

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> Interval:
        """Apply an exact, increasing function to both ends, such as a rounding or a reshape."""
        low = function(self.low)
        return Interval(low, low if self.low is self.high else function(self.high))


def sum_interval(result: np.ndarray, size: np.ndarray, terms: int) -> Interval:
    """Return the interval of float32 sums in any order.

    Args:
        result: The sums in float64.
        size: The sums of the magnitudes of their terms.
        terms: Number of terms of a sum.
    """
    error = INTERVAL_SUM_FACTOR * np.sqrt(terms) * FLOAT32_UNIT_ROUNDOFF * size
    return Interval(result - error, result + error)


def _exact_sum(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the exact sum in float64, which are equal if it is exact (Knuth's two-sum)."""
    total = first + second
    part = total - first
    rest = (first - (total - part)) + (second - part)
    low = np.where(rest < 0, np.nextafter(total, -np.inf), total)
    high = np.where(rest > 0, np.nextafter(total, np.inf), total)
    return low, high


def enclose_result(low: np.ndarray, high: np.ndarray) -> Interval:
    """Return the interval of a result, rounded to float32 or not, from float64 bounds of the exact result."""
    below = _single_below(low)
    above = below if low is high and np.array_equal(below, low, equal_nan=True) else _single_above(high)
    return Interval(below, above)


def _single_below(values: np.ndarray) -> np.ndarray:
    single = values.astype(np.float32)
    lower = np.where(single > values, np.nextafter(single, np.float32(-np.inf)), single)
    return lower.astype(np.float64)


def _single_above(values: np.ndarray) -> np.ndarray:
    single = values.astype(np.float32)
    upper = np.where(single < values, np.nextafter(single, np.float32(np.inf)), single)
    return upper.astype(np.float64)
