"""Histograms by binary exponent: how many values lie between one power of two and the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ExponentCounter", "ExponentHistogram"]

_LOWEST, _HIGHEST = -1074, 1024
"""Exponents of the smallest denormal float64, and of a difference of two float64 that exceeds the largest."""
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
        self._counts = np.zeros(_HIGHEST - _LOWEST + 1, np.int64)
        self._zeros = 0
        self._left_out = 0

    def add(self, magnitudes: np.ndarray, left_out: int = 0) -> None:
        """Count a stretch of magnitudes.

        Args:
            magnitudes: 1-D contiguous float64, not negative, no NaN; an infinite one is the difference of two finite
                values and counts as 2**1024.
            left_out: How many more elements have none.
        """
        self._left_out += left_out
        counts = np.bincount(magnitudes.view(np.int64) >> 52, minlength=2 * _BIAS + 2)
        # Biased exponents 1 to 2047 are the powers -1022 to 1024; 0 is shared by zero and the denormal numbers.
        self._counts[-1022 - _LOWEST :] += counts[1:]
        if counts[0]:
            small = magnitudes[magnitudes < 2.0**-1022]
            tiny = small[small > 0.0]
            self._zeros += small.size - tiny.size
            if tiny.size:
                self._counts += np.bincount(np.frexp(tiny)[1] - 1 - _LOWEST, minlength=self._counts.size)

    def histogram(self) -> ExponentHistogram:
        """Give the counts so far."""
        filled = self._counts.nonzero()[0]
        first, last = (int(filled[0]), int(filled[-1])) if filled.size else (-_LOWEST, -_LOWEST - 1)
        counts = self._counts[first : last + 1].copy()
        counts.flags.writeable = False
        return ExponentHistogram(lowest=_LOWEST + first, counts=counts, zeros=self._zeros, nonfinite=self._left_out)
