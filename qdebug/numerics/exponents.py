"""Histograms by binary exponent: how many values lie between one power of two and the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ExponentCounter", "ExponentHistogram"]

_LOWEST = -1074
"""Exponent of the smallest denormal float64."""
_BIAS = 1023


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExponentHistogram:
    """Counts of magnitudes by power of two.

    Args:
        lowest: Exponent of the first entry: entry k counts magnitudes from 2**(lowest + k) up to below
            2**(lowest + k + 1).
        counts: Elements in each, int64, read-only; the first and the last are not 0. Empty if all are zero.
        zeros: Elements that are 0.
        nonfinite: Elements left out, for a NaN or infinity on a side.
    """

    lowest: int
    counts: np.ndarray
    zeros: int
    nonfinite: int

    @property
    def total(self) -> int:
        """Elements in all."""
        return int(self.counts.sum()) + self.zeros + self.nonfinite


class ExponentCounter:
    """Counts magnitudes stretch by stretch."""

    def __init__(self) -> None:
        self._biased = np.zeros(2 * _BIAS + 2, np.int64)
        self._tiny = np.zeros(-1022 - _LOWEST, np.int64)
        self._tiny_in_all = 0
        self._left_out = 0

    def add(self, magnitudes: np.ndarray, left_out: int = 0, *, index: np.ndarray | None = None) -> None:
        """Count a stretch of magnitudes.

        Args:
            magnitudes: 1-D contiguous float64, not negative, no NaN; an infinite one is the difference of two finite
                values and counts as 2**1024.
            left_out: How many more elements have none.
            index: An int64 buffer at least as long, to be overwritten; None for a new one.
        """
        self._left_out += left_out
        bits = magnitudes.view(np.int64)
        exponents = np.right_shift(bits, 52, out=None if index is None else index[: magnitudes.size])
        zeros = int(self._biased[0])
        np.add.at(self._biased, exponents, 1)  # faster than bincount, which looks for the largest first
        if self._biased[0] != zeros:  # a biased exponent of 0 is shared by zero and the denormal numbers
            small = magnitudes[magnitudes < 2.0**-1022]
            tiny = small[small > 0.0]
            if tiny.size:
                self._tiny_in_all += tiny.size
                self._tiny += np.bincount(np.frexp(tiny)[1] - 1 - _LOWEST, minlength=self._tiny.size)

    @property
    def infinite(self) -> int:
        """How many magnitudes were infinite or NaN."""
        return int(self._biased[-1])

    def forget_infinite(self, count: int) -> None:
        """Take back so many elements that were added as infinite."""
        self._biased[-1] -= count

    def histogram(self) -> ExponentHistogram:
        """Give the counts so far."""
        # Biased exponents 1 to 2047 are the powers -1022 to 1024.
        every, lowest = self._biased[1:], -_BIAS + 1
        if self._tiny_in_all:
            every, lowest = np.concatenate((self._tiny, every)), _LOWEST
        filled = every.nonzero()[0]
        first, last = (filled.item(0), filled.item(-1)) if filled.size else (-lowest, -lowest - 1)
        counts = every[first : last + 1].copy()
        counts.flags.writeable = False
        return ExponentHistogram(
            lowest=lowest + first,
            counts=counts,
            zeros=int(self._biased[0]) - self._tiny_in_all,
            nonfinite=self._left_out,
        )
