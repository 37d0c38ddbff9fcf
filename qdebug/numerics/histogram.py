"""Mergeable histograms: by equal bins, and by binary exponent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from qdebug.errors import UsageError
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks, Scratch, scratch
from qdebug.numerics.checkpoint import checkpoint

__all__ = [
    "ENTRIES",
    "BinCounter",
    "ExponentCounter",
    "ExponentHistogram",
    "PairBinCounter",
    "ValueHistogram",
    "count_rows",
    "value_histogram",
]

ENTRIES = 2048
"""Number of biased exponents that a float64 can have."""

_LOWEST = -1074
"""Exponent of the smallest denormal float64."""
_BIAS = 1023


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExponentHistogram:
    """Counts of magnitudes by power of two.

    Args:
        lowest: Exponent of the first entry: entry k counts magnitudes from 2**(lowest + k) up to below 2**(lowest + k +
            1).
        counts: Elements in each entry, int64, read-only; the first and the last are not 0. Empty if all elements are
            zero.
        zeros: Elements that are 0.
        nonfinite: Elements left out because a side is NaN or infinite.
    """

    lowest: int
    counts: npt.NDArray[np.int64]
    zeros: int
    nonfinite: int

    @property
    def total(self) -> int:
        """Total number of elements."""
        return int(self.counts.sum()) + self.zeros + self.nonfinite


def count_rows(rows: np.ndarray) -> np.ndarray:
    """Count the magnitudes of each row by biased exponent, all rows in one call, since calls dominate the cost.

    Args:
        rows: Up to 4 short rows of float64, C-contiguous and not negative; may be infinite or NaN.

    Returns:
        int64, a row of `ENTRIES` counts for each.
    """
    exponents = np.right_shift(rows.view(np.int64), 52)
    exponents += _ROW_OFFSETS[: rows.shape[0]]
    return np.bincount(exponents.reshape(-1), minlength=rows.shape[0] * ENTRIES).reshape(-1, ENTRIES)


_ROW_OFFSETS = np.arange(4)[:, np.newaxis] * ENTRIES


class ExponentCounter:
    """Counts magnitudes range by range."""

    def __init__(self) -> None:
        self._biased = np.zeros(ENTRIES, np.int64)
        self._denormals = np.zeros(-1022 - _LOWEST, np.int64)
        self._denormal_count = self._left_out = 0

    def add(self, values: np.ndarray, left_out: int = 0, *, index: np.ndarray | None = None) -> int:
        """Count a range of magnitudes.

        Args:
            values: 1-D contiguous float64, not negative, without NaN. An infinite value is the difference of two finite
                values and counts as 2**1024.
            left_out: Number of further elements without a magnitude.
            index: An int64 buffer at least as long, which is overwritten; None allocates one.

        Returns:
            Number of elements that are 0.
        """
        self._left_out += left_out
        return self._count_zeros(values, self.count(values, index=index))

    def add_few(self, counts: np.ndarray, values: np.ndarray) -> int:
        """Count a range like `add`, given the number of magnitudes with each biased exponent."""
        return self._count_zeros(values, self.add_counts(counts))

    def _count_zeros(self, values: np.ndarray, small: int) -> int:
        zeros = int(np.count_nonzero(np.equal(values, 0.0))) if small else 0
        self.split_small(values, small, zeros)
        return zeros

    def count(self, values: np.ndarray, *, index: np.ndarray | None = None) -> int:
        """Count a range like `add`, but without `split_small`.

        Returns:
            Number of zeros and denormals, which have the same upper bits.
        """
        bits = values.view(np.int64)
        exponents = np.right_shift(bits, 52, out=None if index is None else index[: values.size])
        before = int(self._biased[0])
        np.add.at(self._biased, exponents, 1)  # faster than bincount, which first searches for the maximum
        return int(self._biased[0]) - before

    def add_counts(self, counts: np.ndarray) -> int:
        """Count a range like `count`, given counts by biased exponent. Return the number of zeros and denormals."""
        self._biased += counts
        return int(counts.item(0))

    def split_small(self, values: np.ndarray, small: int, zeros: int) -> None:
        """Count the denormals of a range by power of two; `small` counts denormals and zeros together."""
        if small > zeros:
            tiny = values[values < 2.0**-1022]
            tiny = tiny[tiny > 0.0]
            self._denormal_count += tiny.size
            self._denormals += np.bincount(np.frexp(tiny)[1] - 1 - _LOWEST, minlength=self._denormals.size)

    @property
    def infinite(self) -> int:
        """Number of infinite or NaN magnitudes, minus those subtracted by `subtract_infinite`."""
        return int(self._biased[-1])

    def subtract_infinite(self, count: int) -> None:
        """Subtract elements that were added as infinite or NaN."""
        self._biased[-1] -= count

    def histogram(self) -> ExponentHistogram:
        """Return the counts so far."""
        # Biased exponents 1 to 2047 are the powers -1022 to 1024.
        all_counts, lowest = self._biased[1:], -_BIAS + 1
        if self._denormal_count:
            all_counts, lowest = np.concatenate((self._denormals, all_counts)), _LOWEST
        filled = all_counts.astype(np.bool_).tobytes()  # searching bytes first is faster than collecting all positions
        first, last = filled.find(1), filled.rfind(1)
        if first < 0:
            first, last = -lowest, -lowest - 1
        counts = all_counts[first : last + 1].copy()
        counts.flags.writeable = False
        return ExponentHistogram(
            lowest=lowest + first,
            counts=counts,
            zeros=int(self._biased[0]) - self._denormal_count,
            nonfinite=self._left_out,
        )


_MAX_TABLED = 256
"""Maximum number of bins for which two tensors share one counting table."""
_LARGEST_SINGLE = 2.0**100
_MAX_SLACK = 2.0**-6
"""Maximum float32 rounding error as a share of a bin; beyond it, too many values must be binned twice."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ValueHistogram:
    """Counts of values in equal bins, and of values outside them.

    Args:
        low: Lower end of the first bin, inclusive.
        high: Upper end of the last bin, inclusive; the upper ends of all other bins are exclusive.
        counts: Elements in each bin, int64, read-only.
        below: Finite elements below `low`, and -inf.
        above: Finite elements above `high`, and +inf.
        nan: NaN elements.
    """

    low: float
    high: float
    counts: npt.NDArray[np.int64]
    below: int = 0
    above: int = 0
    nan: int = 0

    @property
    def total(self) -> int:
        """Total number of elements."""
        return int(self.counts.sum()) + self.below + self.above + self.nan

    @property
    def edges(self) -> np.ndarray:
        """Edges of the bins, one more than the number of bins."""
        return np.linspace(self.low, self.high, self.counts.size + 1)

    def merge(self, other: ValueHistogram) -> ValueHistogram:
        """Add the counts of another histogram over the same bins.

        Raises:
            UsageError: The bins differ.
        """
        own_bins, other_bins = (self.low, self.high, self.counts.size), (other.low, other.high, other.counts.size)
        if own_bins != other_bins:
            raise UsageError(
                f"Histograms over the bins (low, high, count) {own_bins} and {other_bins} cannot be added."
            )
        return _make_histogram(
            (self.low, self.high),
            self.counts + other.counts,
            (self.below + other.below, self.above + other.above, self.nan + other.nan),
        )


def _make_histogram(limits: tuple[float, float], counts: np.ndarray, outside: tuple[int, int, int]) -> ValueHistogram:
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
        limits: Lower end of the first and upper end of the last bin, finite and in ascending order.
        quant: Quantization of the elements; None for real numbers.

    Returns:
        The same counts as `numpy.histogram` for the real values in float64, plus counts of all other elements.

    Raises:
        UsageError: There are no bins, or the elements are not real numbers.
    """
    low, high = float(limits[0]), float(limits[1])
    blocks = RealBlocks(values, quant)
    buffers = scratch()
    counter = BinCounter(bins, (low, high))
    with np.errstate(all="ignore"):
        for start in range(0, blocks.size, BLOCK):
            checkpoint()
            stop = min(start + BLOCK, blocks.size)
            counter.add(blocks.read_double(start, stop, buffers.doubles[0], buffers.singles[0]))
    return counter.histogram()


@lru_cache(maxsize=4)
def _edges(bins: int, limits: tuple[float, float]) -> np.ndarray:
    edges = np.linspace(*limits, bins + 1)
    edges.flags.writeable = False
    return edges


class BinCounter:
    """Counts values in equal bins, range by range.

    Args:
        bins: Number of bins, at least 1.
        limits: Lower end of the first and upper end of the last bin, finite and in ascending order.

    Raises:
        UsageError: There are no bins.
    """

    def __init__(self, bins: int, limits: tuple[float, float]) -> None:
        low, high = float(limits[0]), float(limits[1])
        width = high - low
        if bins < 1 or not 0.0 < width < math.inf:
            raise UsageError(
                f"Invalid bins: {bins} from {low} to {high}; expected at least 1, with low < high and both finite."
            )
        self._limits = low, high
        self._per_unit = bins / width
        self._edges = _edges(bins, (low, high))
        self._counts = np.zeros(bins, np.int64)
        self._below = self._above = self._nan = 0
        # Upper bound for the rounding errors of the quotient and of the edges, in bins.
        self._slack = (bins + max(abs(low), abs(high)) * self._per_unit) * 2.0**-49

    def add(self, x: np.ndarray) -> None:
        """Count a range of float64 values, 1-D and not empty; any value is allowed."""
        low, high = self._limits
        if not (x.min() >= low and x.max() <= high):  # true for NaN too
            under, over, is_nan = x < low, x > high, np.isnan(x)
            self._below += int(np.count_nonzero(under))
            self._above += int(np.count_nonzero(over))
            self._nan += int(np.count_nonzero(is_nan))
            x = x[~(under | over | is_nan)]
        np.add.at(self._counts, self.indices(x), 1)

    def indices(self, x: np.ndarray) -> np.ndarray:
        """Return the bin of each value. All values must be within the limits."""
        if not self._slack < 0.125:
            return self._search_edges(x)
        offset = x - self._limits[0]
        offset *= self._per_unit
        index = offset.astype(np.intp)
        offset -= np.rint(offset)
        near_edges = (np.absolute(offset, out=offset) <= self._slack).nonzero()[0]
        if near_edges.size:
            index[near_edges] = self.beside_edges(x[near_edges])
        return index

    def beside_edges(self, x: np.ndarray) -> np.ndarray:
        """Return the bins of values so close to an edge that rounding may move them across."""
        if not self._slack < 0.125:
            return self._search_edges(x)
        edge = np.rint((x - self._limits[0]) * self._per_unit).astype(np.intp)
        edge -= x < self._edges[edge]
        return np.minimum(edge, self._counts.size - 1)

    def _search_edges(self, x: np.ndarray) -> np.ndarray:
        return np.minimum(np.searchsorted(self._edges, x, side="right") - 1, self._counts.size - 1)

    def add_counts(self, counts: np.ndarray) -> None:
        """Add counts per bin of elements that were counted elsewhere."""
        self._counts += counts

    def histogram(self) -> ValueHistogram:
        """Return the counts so far."""
        return _make_histogram(self._limits, self._counts, (self._below, self._above, self._nan))


class PairBinCounter:
    """Counts the values of two tensors in the same bins, range by range.

    Values that float32 holds exactly are binned in float32, or in float64 if rounding could matter. Both bins of an
    element are counted at once, as a cell of a table.

    Args:
        bins: Number of bins, at least 1.
        limits: Lower end of the first and upper end of the last bin, finite and in ascending order.

    Raises:
        UsageError: There are no bins.
    """

    def __init__(self, bins: int, limits: tuple[float, float]) -> None:
        self._sides = BinCounter(bins, limits), BinCounter(bins, limits)
        self._bins, self._limits = bins, limits
        self._low, self._per_unit = np.float32(0.0), np.float32(0.0)
        self._slack = math.inf
        largest = max(abs(limits[0]), abs(limits[1]))
        per_unit = bins / (limits[1] - limits[0])
        if bins <= _MAX_TABLED and largest < _LARGEST_SINGLE and 1.0 / _LARGEST_SINGLE < per_unit < _LARGEST_SINGLE:
            self._low, self._per_unit = np.float32(limits[0]), np.float32(per_unit)
            # Twice the rounding errors of low, difference, factor and product, in bins. Each is at most 2**-24 of its
            # size.
            self._slack = (4.0 * bins + 2.0 * largest * per_unit) * 2.0**-23
        self._tabled = self._slack < _MAX_SLACK
        self._table: np.ndarray | None = None

    def add(self, reference: np.ndarray, backend: np.ndarray, buffers: Scratch) -> None:
        """Count a range of both tensors.

        Args:
            reference: Values of the reference, 1-D float32 or float64, not empty; any value is allowed.
            backend: Values of the backend, with the same length and dtype.
            buffers: Scratch buffers; the last three float32 buffers, the first mask, the index and the last float64
                buffer are used.
        """
        single = reference.dtype == np.float32
        if not (self._tabled and single and all(map(self._contains, (reference, backend)))):
            for side, values in zip(self._sides, (reference, backend), strict=True):
                side.add(values.astype(np.float64) if single else values)
            return
        n = reference.size
        reference_index = self._indices(reference, buffers.singles[4][:n].view(np.int32), buffers)
        backend_index = self._indices(backend, buffers.index.view(np.int32)[:n], buffers)
        if n < self._bins * self._bins:  # too few elements for a table to be faster
            for counter, index in zip(self._sides, (reference_index, backend_index), strict=True):
                counter.add_counts(np.bincount(index, minlength=self._bins))
            return
        np.multiply(reference_index, self._bins, out=reference_index)
        np.add(reference_index, backend_index, out=reference_index)
        cells = buffers.doubles[3][:n].view(np.int64)
        np.copyto(cells, reference_index)
        if self._table is None:
            self._table = np.zeros(self._bins * self._bins, np.int64)
        np.add.at(self._table, cells, 1)

    def add_few(self, values: np.ndarray) -> None:
        """Count a few elements, given as two rows of finite float64: reference and backend."""
        flat = values.reshape(-1)
        if not self._contains(flat):
            for side, row in zip(self._sides, values, strict=True):
                side.add(row)
            return
        index = self._sides[0].indices(flat)
        index[values.shape[1] :] += self._bins
        counts = np.bincount(index, minlength=2 * self._bins)
        self._sides[0].add_counts(counts[: self._bins])
        self._sides[1].add_counts(counts[self._bins :])

    def _contains(self, values: np.ndarray) -> bool:
        """Return whether all values are within the limits; False for NaN."""
        low, high = self._limits
        return bool(values.item(values.argmin()) >= low and values.item(values.argmax()) <= high)

    def _indices(self, values: np.ndarray, out: np.ndarray, buffers: Scratch) -> np.ndarray:
        """Return the bin of each value in an int32 array."""
        n = values.size
        offset, rounded, near = buffers.singles[2][:n], buffers.singles[3][:n], buffers.masks[0][:n]
        np.subtract(values, self._low, out=offset)
        np.multiply(offset, self._per_unit, out=offset)
        np.copyto(out, offset, casting="unsafe")
        np.rint(offset, out=rounded)
        np.subtract(offset, rounded, out=offset)
        np.absolute(offset, out=offset)
        near_edges = np.less_equal(offset, self._slack, out=near).nonzero()[0]
        if near_edges.size:
            out[near_edges] = self._sides[0].beside_edges(values[near_edges].astype(np.float64))
        return out

    def histograms(self) -> tuple[ValueHistogram, ValueHistogram]:
        """Return the counts of the reference and the backend so far."""
        if self._table is not None:
            table = self._table.reshape(self._bins, self._bins)
            self._sides[0].add_counts(table.sum(axis=1))
            self._sides[1].add_counts(table.sum(axis=0))
            self._table = None
        return self._sides[0].histogram(), self._sides[1].histogram()
