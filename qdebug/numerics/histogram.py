"""Histograms of real values over equal bins, that merge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks, scratch

__all__ = ["BinCounter", "ValueHistogram", "value_histogram"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueHistogram:
    """Counts of values in equal bins, and of those that are in none.

    Args:
        low: Lower end of the first bin, which holds it.
        high: Upper end of the last bin, which holds it; every other bin leaves its upper end to the next.
        counts: Elements in each bin, int64, read-only.
        below: Finite elements below `low`, and -inf.
        above: Finite elements above `high`, and +inf.
        nan: Elements that are NaN.
    """

    low: float
    high: float
    counts: np.ndarray
    below: int = 0
    above: int = 0
    nan: int = 0

    @property
    def total(self) -> int:
        """Elements in all."""
        return int(self.counts.sum()) + self.below + self.above + self.nan

    @property
    def edges(self) -> np.ndarray:
        """Ends of the bins, one more than there are bins."""
        return np.linspace(self.low, self.high, self.counts.size + 1)

    def merge(self, other: ValueHistogram) -> ValueHistogram:
        """Add the counts of another histogram over the same bins.

        Raises:
            UsageError: The bins differ.
        """
        ours, theirs = (self.low, self.high, self.counts.size), (other.low, other.high, other.counts.size)
        if ours != theirs:
            raise UsageError(f"Histograms over the bins (low, high, count) {ours} and {theirs} cannot be added.")
        return _histogram(
            (self.low, self.high),
            self.counts + other.counts,
            (self.below + other.below, self.above + other.above, self.nan + other.nan),
        )


def _histogram(limits: tuple[float, float], counts: np.ndarray, outside: tuple[int, int, int]) -> ValueHistogram:
    counts = counts.astype(np.int64)
    counts.flags.writeable = False
    below, above, nan = outside
    return ValueHistogram(low=limits[0], high=limits[1], counts=counts, below=below, above=above, nan=nan)


def value_histogram(
    values: np.ndarray, bins: int, limits: tuple[float, float], *, quant: QuantParams | None = None
) -> ValueHistogram:
    """Count the real values of a tensor in equal bins.

    Args:
        values: Stored elements of any shape.
        bins: Number of bins, at least 1.
        limits: Lower end of the first and upper end of the last bin, finite and in this order.
        quant: How the elements stand for real numbers; None if they are the numbers.

    Returns:
        The same counts as `numpy.histogram` of the real values in float64, with a place for every element.

    Raises:
        UsageError: The bins are none, or the elements are no real numbers.
    """
    low, high = float(limits[0]), float(limits[1])
    blocks = RealBlocks(values, quant)
    buffers = scratch()
    counter = BinCounter(bins, (low, high))
    with np.errstate(all="ignore"):
        for start in range(0, blocks.size, BLOCK):
            stop = min(start + BLOCK, blocks.size)
            counter.add(blocks.read_double(start, stop, buffers.doubles[0], buffers.singles[0]))
    return counter.histogram()


class BinCounter:
    """Counts values in equal bins, stretch by stretch.

    Args:
        bins: Number of bins, at least 1.
        limits: Lower end of the first and upper end of the last bin, finite and in this order.

    Raises:
        UsageError: The bins are none.
    """

    def __init__(self, bins: int, limits: tuple[float, float]) -> None:
        low, high = limits
        with np.errstate(all="ignore"):
            width = np.float64(high) - low
            self._per_unit = float(bins / width)
        if bins < 1 or not (np.isfinite(width) and width > 0):
            raise UsageError(
                f"{bins} bins from {low} to {high} hold nothing; expected at least 1, low < high, both finite."
            )
        self._limits = limits
        self._edges = np.linspace(low, high, bins + 1)
        self._counts = np.zeros(bins, np.int64)
        self._below = self._above = self._nan = 0
        # A few roundings of the quotient and of the edges, in bins.
        self._slack = (bins + max(abs(low), abs(high)) * self._per_unit) * 2.0**-49

    def add(self, x: np.ndarray) -> None:
        """Count a stretch of values, 1-D float64 of any kind, not empty."""
        low, high = self._limits
        if not (x.min() >= low and x.max() <= high):  # true for NaN too
            under, over, lost = x < low, x > high, np.isnan(x)
            self._below += int(np.count_nonzero(under))
            self._above += int(np.count_nonzero(over))
            self._nan += int(np.count_nonzero(lost))
            x = x[~(under | over | lost)]
        if not self._slack < 0.125:
            self._counts += np.bincount(self._exact(x), minlength=self._counts.size)
            return
        place = x - low
        place *= self._per_unit
        index = place.astype(np.intp)
        place -= np.rint(place)
        near = np.absolute(place, out=place) <= self._slack
        if near.any():  # rounding may have moved these over an edge
            index[near] = self._exact(x[near])
        self._counts += np.bincount(index, minlength=self._counts.size)

    def _exact(self, x: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(self._edges, x, side="right") - 1, self._counts.size - 1)

    def histogram(self) -> ValueHistogram:
        """Give the counts so far."""
        return _histogram(self._limits, self._counts, (self._below, self._above, self._nan))
