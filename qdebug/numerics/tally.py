"""The mergeable state of a comparison: counts, extremes and sums, and the metrics computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import numpy as np

from qdebug.numerics.lsb import LsbSizes
from qdebug.numerics.stats import ErrorStats

__all__ = ["Block", "Extremes", "ScaledSum", "Tally", "Worst"]


@dataclass(slots=True)
class ScaledSum:
    """A sum mantissa * 2**exponent of non-negative or signed terms.

    Nearly every tensor is summed at exponent 0, where adding takes a single float addition. Terms whose squares exceed
    the float64 range come with an exponent.
    """

    mantissa: float = 0.0
    exponent: int = 0

    def add(self, mantissa: float, exponent: int = 0) -> None:
        """Add mantissa * 2**exponent."""
        if exponent == self.exponent:
            self.mantissa += mantissa
        elif mantissa != 0.0:
            if self.mantissa == 0.0:
                self.mantissa, self.exponent = mantissa, exponent
            elif exponent > self.exponent:
                self.mantissa = math.ldexp(self.mantissa, self.exponent - exponent) + mantissa
                self.exponent = exponent
            else:
                self.mantissa += math.ldexp(mantissa, exponent - self.exponent)

    def merge(self, other: ScaledSum) -> None:
        """Add another sum."""
        self.add(other.mantissa, other.exponent)

    def mean(self, count: int) -> float:
        """Return the sum divided by a count; infinite if the quotient exceeds float64."""
        return _ldexp(self.mantissa / count, self.exponent)

    def root_mean(self, count: int) -> float:
        """Return the square root of the mean of `count` non-negative terms."""
        mantissa, exponent = self.normalized()
        parity = exponent & 1
        return _ldexp(math.sqrt(math.ldexp(mantissa, parity) / count), (exponent - parity) // 2)

    def normalized(self) -> tuple[float, int]:
        """Return the sum as a mantissa in [0.5, 1) and an exponent; (0.0, 0) if it is 0."""
        mantissa, exponent = math.frexp(self.mantissa)
        return (mantissa, exponent + self.exponent) if mantissa else (0.0, 0)

    def log10_ratio(self, other: ScaledSum) -> float:
        """Return log10(self / other) for two positive sums."""
        (above, above_exponent), (below, below_exponent) = self.normalized(), other.normalized()
        return math.log10(above / below) + (above_exponent - below_exponent) * math.log10(2.0)

    def root_ratio(self, other: ScaledSum) -> float:
        """Return sqrt(self / other) for a non-negative and a positive sum."""
        (above, above_exponent), (below, below_exponent) = self.normalized(), other.normalized()
        shift = above_exponent - below_exponent
        parity = shift & 1
        return _ldexp(math.sqrt(math.ldexp(above / below, parity)), (shift - parity) // 2)

    def at_exponent(self, exponent: int) -> float:
        """Return self / 2**exponent as a float."""
        return _ldexp(self.mantissa, self.exponent - exponent)


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(slots=True, kw_only=True)
class Block:
    """A range of two tensors as real values.

    Args:
        reference: Reference values, 1-D contiguous float32 or float64; read-only.
        backend: Backend values of the same length and dtype; read-only.
        start: Flat index of the first element.
        lsb: Size of an LSB.
        reference_rest: For 64-bit integers and wide codes: remainders to add to the values (see
            `RealBlocks.read_wide`).
        backend_rest: The same remainders for the backend.
    """

    reference: np.ndarray
    backend: np.ndarray
    start: int
    lsb: LsbSizes
    reference_rest: np.ndarray | None = None
    backend_rest: np.ndarray | None = None


@dataclass(slots=True, frozen=True)
class Worst:
    """The element with the largest difference. A disagreement about a non-finite value is worse than any number."""

    nonfinite: bool
    difference: float
    flat: int
    sample: int
    shape: tuple[int, ...]

    @property
    def index(self) -> tuple[int, ...]:
        """Its index in the tensor."""
        rest, index = self.flat, []
        for extent in reversed(self.shape):
            rest, coordinate = divmod(rest, extent)
            index.append(coordinate)
        return tuple(reversed(index))

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key. The first element seen wins among equal ranks."""
        return self.nonfinite, self.difference


@dataclass(slots=True)
class Extremes:
    """Smallest and largest finite value seen; infinities of the opposite sign until there is one."""

    low: float = math.inf
    high: float = -math.inf

    def add(self, low: float, high: float) -> None:
        """Add the extremes of a range."""
        self.low = min(self.low, low)
        self.high = max(self.high, high)


def _max_or_none(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


@dataclass(slots=True)
class Tally:
    """Mergeable state of a comparison. Fields are merged by type: counts and sums are added, maxima are compared.

    `sample` and `shape` belong to the current tensor. `tolerance` is (atol, rtol), for counting elements beyond atol +
    rtol * abs(reference).
    """

    sample: int = 0
    shape: tuple[int, ...] = ()
    tolerance: tuple[float, float] | None = None
    count: int = 0
    finite: int = 0
    nonfinite: int = 0
    matched_nonfinite: int = 0
    mismatches: int = 0
    zero_refs: int = 0
    beyond: int = 0
    biased: int = 0
    max_abs: float | None = None
    max_rel: float | None = None
    max_lsb: float | None = None
    worst: Worst | None = None
    reference: Extremes = field(default_factory=Extremes)
    backend: Extremes = field(default_factory=Extremes)
    sum_abs: ScaledSum = field(default_factory=ScaledSum)
    error_squares: ScaledSum = field(default_factory=ScaledSum)
    reference_squares: ScaledSum = field(default_factory=ScaledSum)
    backend_squares: ScaledSum = field(default_factory=ScaledSum)
    products: ScaledSum = field(default_factory=ScaledSum)
    bias: ScaledSum = field(default_factory=ScaledSum)

    def update_max_abs(self, difference: float, flat: int) -> None:
        """Update the maximum with the largest finite difference of a range, at its first position."""
        if self.max_abs is None or difference > self.max_abs:
            self.max_abs = difference
            if self.worst is None or not self.worst.nonfinite:
                self.worst = self._make_worst(flat, difference, nonfinite=False)

    def _make_worst(self, flat: int, difference: float, *, nonfinite: bool) -> Worst:
        return Worst(nonfinite=nonfinite, difference=difference, flat=flat, sample=self.sample, shape=self.shape)

    def update_first_nonfinite(self, flat: int) -> None:
        """Update the worst element with the first disagreement of a range about a non-finite value."""
        if self.worst is None or not self.worst.nonfinite:
            self.worst = self._make_worst(flat, math.inf, nonfinite=True)

    def update_max_rel(self, quotient: float) -> None:
        """Update the maximum with the largest relative difference of a range."""
        self.max_rel = _max_or_none(self.max_rel, quotient)

    def update_max_lsb(self, lsb: float) -> None:
        """Update the maximum with the largest difference of a range in LSB."""
        self.max_lsb = _max_or_none(self.max_lsb, lsb)

    def add_bias(self, total: float, exponent: int, count: int) -> None:
        """Add the signed differences in LSB of `count` elements that differ. Their sum is total * 2**exponent."""
        self.bias.add(total, exponent)
        self.biased += count

    def merge(self, other: Tally) -> None:
        """Add another tally, as if its elements had been added after this tally's."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _MAXIMA:
            setattr(self, name, _max_or_none(getattr(self, name), getattr(other, name)))
        if other.worst is not None and (self.worst is None or other.worst.rank > self.worst.rank):
            self.worst = other.worst
        self.reference.add(other.reference.low, other.reference.high)
        self.backend.add(other.backend.low, other.backend.high)
        for name in _SUMS:
            getattr(self, name).merge(getattr(other, name))

    @property
    def is_finite(self) -> bool:
        """Whether every element is finite on both sides."""
        return self.finite == self.count

    def unchanged(self, *, lsb: bool) -> Tally:
        """Return the tally of comparing the reference's elements, all finite, with themselves.

        Args:
            lsb: Whether differences are measured in LSB.
        """
        if not self.count:
            return Tally()
        return Tally(
            count=self.count,
            finite=self.finite,
            zero_refs=self.zero_refs,
            max_abs=0.0,
            max_rel=0.0 if self.zero_refs < self.finite else None,
            max_lsb=0.0 if lsb else None,
            worst=Worst(nonfinite=False, difference=0.0, flat=0, sample=self.sample, shape=self.shape),
            reference=replace(self.reference),
            backend=replace(self.reference),
            reference_squares=replace(self.reference_squares),
            backend_squares=replace(self.reference_squares),
            products=replace(self.reference_squares),
        )

    def stats(self) -> ErrorStats:
        """Return the metrics as defined in `metric_table`."""
        n, worst = self.finite, self.worst
        has_nonfinite = self.nonfinite > 0  # do not report good metrics of the finite elements only
        return ErrorStats(
            count=self.count,
            max_abs=math.inf if has_nonfinite else self.max_abs,
            mean_abs=self.sum_abs.mean(n) if n else None,
            rmse=self.error_squares.root_mean(n) if n else None,
            max_rel=self.max_rel,
            zero_refs=self.zero_refs,
            rel_l2=math.nan if has_nonfinite else self._rel_l2() if n else None,
            sqnr_db=math.nan if has_nonfinite else self._sqnr_db() if n else None,
            cosine=math.nan if has_nonfinite else self._cosine() if n else None,
            max_lsb=self.max_lsb,
            lsb_bias=self._lsb_bias(),
            mismatches=self.mismatches,
            nonfinite=self.nonfinite,
            matched_nonfinite=self.matched_nonfinite,
            worst_index=None if worst is None else worst.index,
            worst_sample=None if worst is None else worst.sample,
            reference_min=_finite_or_none(self.reference.low),
            reference_max=_finite_or_none(self.reference.high),
            backend_min=_finite_or_none(self.backend.low),
            backend_max=_finite_or_none(self.backend.high),
            beyond_tolerance=None if self.tolerance is None else self.beyond,
        )

    def _lsb_bias(self) -> float | None:
        if self.max_lsb is None:
            return None
        return self.bias.mean(self.biased) if self.biased else 0.0

    def _rel_l2(self) -> float:
        if not self.error_squares.mantissa:
            return 0.0
        return self.error_squares.root_ratio(self.reference_squares) if self.reference_squares.mantissa else math.inf

    def _sqnr_db(self) -> float:
        if not self.error_squares.mantissa:
            return math.inf
        if not self.reference_squares.mantissa:
            return -math.inf
        return 10.0 * self.reference_squares.log10_ratio(self.error_squares)

    def _cosine(self) -> float:
        reference_sum, backend_sum = self.reference_squares, self.backend_squares
        if not self.error_squares.mantissa:
            return 1.0
        if not reference_sum.mantissa or not backend_sum.mantissa:
            return math.nan
        (a2, a_exponent), (b2, b_exponent) = reference_sum.normalized(), backend_sum.normalized()
        even = (a_exponent + b_exponent) // 2 * 2
        norms = math.sqrt(math.ldexp(a2 * b2, a_exponent + b_exponent - even))  # in units of 2**(even / 2)
        # float32 blocks derive the product from a small squared error, so 1 - cosine keeps all its digits.
        return max(-1.0, min(1.0, self.products.at_exponent(even // 2) / norms))


_COUNTS = tuple(entry.name for entry in fields(Tally) if entry.type == "int" and entry.name != "sample")
_MAXIMA = tuple(entry.name for entry in fields(Tally) if entry.type == "float | None")
_SUMS = tuple(entry.name for entry in fields(Tally) if entry.type == "ScaledSum")


def _finite_or_none(value: float) -> float | None:
    return value + 0.0 if math.isfinite(value) else None  # -0.0 becomes 0.0: which is kept depends on the order
