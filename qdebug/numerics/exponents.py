"""Histograms by binary exponent: how many values lie between one power of two and the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ENTRIES", "ExponentCounter", "ExponentHistogram", "count_rows"]

ENTRIES = 2048
"""Biased exponents that a float64 can have."""

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


def count_rows(rows: np.ndarray) -> np.ndarray:
    """Count the magnitudes of each row by their biased exponent, all rows at once: few elements cost mostly the call.

    Args:
        rows: A few rows of few float64, C-contiguous, not negative, of any other kind.

    Returns:
        int64, a row of `ENTRIES` counts for each.
    """
    exponents = np.right_shift(rows.view(np.int64), 52)
    exponents += _OFFSETS[: rows.shape[0]]
    return np.bincount(exponents.reshape(-1), minlength=rows.shape[0] * ENTRIES).reshape(-1, ENTRIES)


_OFFSETS = np.arange(4)[:, np.newaxis] * ENTRIES


class ExponentCounter:
    """Counts magnitudes stretch by stretch."""

    def __init__(self) -> None:
        self._biased = np.zeros(ENTRIES, np.int64)
        self._tiny = np.zeros(-1022 - _LOWEST, np.int64)
        self._tiny_in_all = self._left_out = 0

    def add(self, values: np.ndarray, left_out: int = 0, *, index: np.ndarray | None = None) -> int:
        """Count a stretch of magnitudes.

        Args:
            values: 1-D contiguous float64, not negative, no NaN; an infinite one is the difference of two finite
                values and counts as 2**1024.
            left_out: How many more elements have none.
            index: An int64 buffer at least as long, to be overwritten; None for a new one.

        Returns:
            How many are 0.
        """
        self._left_out += left_out
        return self._split(values, self.count(values, index=index))

    def add_few(self, counts: np.ndarray, values: np.ndarray) -> int:
        """Count a stretch of magnitudes as `add` does, from how many have each biased exponent."""
        return self._split(values, self.add_counts(counts))

    def _split(self, values: np.ndarray, small: int) -> int:
        zeros = int(np.count_nonzero(np.equal(values, 0.0))) if small else 0
        self.split_small(values, small, zeros)
        return zeros

    def count(self, values: np.ndarray, *, index: np.ndarray | None = None) -> int:
        """Count a stretch as `add` does, but for what `split_small` has to do then.

        Returns:
            How many are 0 or denormal, which have the same upper bits.
        """
        bits = values.view(np.int64)
        exponents = np.right_shift(bits, 52, out=None if index is None else index[: values.size])
        before = int(self._biased[0])
        np.add.at(self._biased, exponents, 1)  # faster than bincount, which looks for the largest first
        return int(self._biased[0]) - before

    def add_counts(self, counts: np.ndarray) -> int:
        """Count a stretch as `count` does, from how many have each biased exponent; give how many are 0 or denormal."""
        self._biased += counts
        return int(counts.item(0))

    def split_small(self, values: np.ndarray, small: int, zeros: int) -> None:
        """Tell the denormal magnitudes of a stretch by their power of two; of `small` such or 0, `zeros` are 0."""
        if small > zeros:
            tiny = values[values < 2.0**-1022]
            tiny = tiny[tiny > 0.0]
            self._tiny_in_all += tiny.size
            self._tiny += np.bincount(np.frexp(tiny)[1] - 1 - _LOWEST, minlength=self._tiny.size)

    @property
    def infinite(self) -> int:
        """How many magnitudes were infinite or NaN, and are not taken back."""
        return int(self._biased[-1])

    def forget_infinite(self, count: int) -> None:
        """Take back so many elements that were added as infinite or NaN."""
        self._biased[-1] -= count

    def histogram(self) -> ExponentHistogram:
        """Give the counts so far."""
        # Biased exponents 1 to 2047 are the powers -1022 to 1024.
        every, lowest = self._biased[1:], -_BIAS + 1
        if self._tiny_in_all:
            every, lowest = np.concatenate((self._tiny, every)), _LOWEST
        filled = every.astype(np.bool_).tobytes()  # a search of bytes is faster than one for all places
        first, last = filled.find(1), filled.rfind(1)
        if first < 0:
            first, last = -lowest, -lowest - 1
        counts = every[first : last + 1].copy()
        counts.flags.writeable = False
        return ExponentHistogram(
            lowest=lowest + first,
            counts=counts,
            zeros=int(self._biased[0]) - self._tiny_in_all,
            nonfinite=self._left_out,
        )
