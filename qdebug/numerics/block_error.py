"""Add the error of one block to a tally, in float32 if that suffices, else in float64.

Products are summed by BLAS in rows of 256 elements, and the rows are summed in float64. The largest difference or
quotient is searched in float32, which leaves only a few candidates. The result is decided among them in float64. A
block that cannot exceed the maximum of earlier blocks is not searched. Blocks of wide types, of extreme magnitudes and
with non-finite values are added in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qdebug.numerics.blocks import RealBlocks, Scratch
from qdebug.numerics.histogram import ExponentCounter, ExponentHistogram
from qdebug.numerics.lsb import LsbSizes, difference_in_lsb, lsb_between, sum_in_lsb, whole_lsb
from qdebug.numerics.row_sums import ROW, row_dots
from qdebug.numerics.tally import Block, Tally

__all__ = [
    "RelativeCounter",
    "RelativeErrors",
    "absolute_differences",
    "add_double",
    "add_quotients",
    "add_single",
    "exact_difference",
    "read_block",
    "real_differences",
    "real_values",
    "smallest_element",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RelativeErrors:
    """abs(difference)/abs(reference) of the elements that are finite on both sides.

    Args:
        quotients: Histogram by binary exponent, for nonzero references; `zeros` counts equal elements, and a quotient
            beyond float64 counts as 2**1024.
        zero_refs: Elements with a reference of 0, which have no quotient.
        zero_refs_hit: Elements of `zero_refs` whose backend is also 0.
    """

    quotients: ExponentHistogram
    zero_refs: int
    zero_refs_hit: int


class RelativeCounter:
    """Counts relative errors range by range."""

    def __init__(self) -> None:
        self._quotients = ExponentCounter()
        self._zero_refs = self._hit = 0

    def add(
        self,
        magnitudes: np.ndarray,
        reference: np.ndarray,
        *,
        out: np.ndarray | None = None,
        index: np.ndarray | None = None,
        equal: int | None = None,
    ) -> None:
        """Count a range of elements that are finite on both sides.

        Args:
            magnitudes: Absolute differences, 1-D float64.
            reference: Reference values, 1-D float64; neither array is modified.
            out: A float64 buffer at least as long, which is overwritten; None allocates one.
            index: An int64 buffer at least as long, which is overwritten; None allocates one.
            equal: Number of zero differences; None to count them.
        """
        quotients = np.divide(magnitudes, reference, out=None if out is None else out[: magnitudes.size])
        np.absolute(quotients, out=quotients)
        infinite = self._quotients.infinite
        small = self._quotients.count(quotients, index=index)
        if equal is None:
            equal = int(np.count_nonzero(np.equal(magnitudes, 0.0)))
        self._correct_range(quotients, reference, small, equal, undefined=self._quotients.infinite != infinite)

    def add_counts(self, counts: np.ndarray, quotients: np.ndarray, reference: np.ndarray, equal: int) -> None:
        """Count a range like `add`, given the number of quotients with each biased exponent.

        Args:
            counts: The number of quotients with each biased exponent.
            quotients: Absolute differences over absolute references, float64.
            reference: The references.
            equal: Number of differences that are 0.
        """
        small = self._quotients.add_counts(counts)
        self._correct_range(quotients, reference, small, equal, undefined=counts.item(-1) > 0)

    def _correct_range(
        self, quotients: np.ndarray, reference: np.ndarray, small: int, equal: int, *, undefined: bool
    ) -> None:
        """Remove undefined quotients from a range that was counted, and split its `small` quotients by exponent."""
        undefined_count = 0
        if undefined:
            # Several times faster than counting nonzero elements directly.
            zeros = int(np.count_nonzero(np.equal(reference, 0.0)))
            undefined_count = int(np.count_nonzero(np.isnan(quotients)))  # 0/0
            self._zero_refs += zeros
            self._hit += undefined_count
            self._quotients.subtract_infinite(zeros)  # x/0 and 0/0 both have the exponent of infinity
        self._quotients.split_small(quotients, small, equal - undefined_count)

    def errors(self) -> RelativeErrors:
        """Return the counts so far."""
        return RelativeErrors(quotients=self._quotients.histogram(), zero_refs=self._zero_refs, zero_refs_hit=self._hit)


_QUOTIENT_LOW, _QUOTIENT_HIGH = 2.0**-60, 2.0**100
_QUOTIENT_SLACK = 2.0**-21
"""More than twice the relative error of the quotient of a float32 difference, computed in float32."""
_FEW = 256
"""Number of elements that are cheaper to check one by one than in a pass over all."""
_ZERO, _ONE = np.float32(0.0), np.uint32(1)


def add_quotients(
    tally: Tally, block: Block, magnitudes: tuple[np.ndarray, np.ndarray], largest: float, buffers: Scratch
) -> None:
    """Count references of 0, and submit the largest quotient of the other elements.

    Args:
        tally: The tally.
        block: Values of which at least one pair differs.
        magnitudes: Absolute differences in float32, and absolute references (-0.0 counts as 0); not modified.
        largest: The largest of these differences.
        buffers: Scratch buffers; the last float32 buffer and the masks are used.
    """
    error, sizes = magnitudes
    nonzero = None
    position = int(sizes.argmin())
    if sizes.item(position) == 0.0:
        nonzero = np.not_equal(sizes, _ZERO, out=buffers.masks[1][: sizes.size])
        zeros = sizes.size - int(np.count_nonzero(nonzero))
        tally.zero_refs += zeros
        if zeros == sizes.size:
            return
    search = _QuotientSearch(tally, block, error, sizes, nonzero, buffers)
    # Among codes, the smallest reference that is not 0 is usually one step. Its quotient is hardly ever large enough to
    # end the search, so do not begin there.
    if (nonzero is not None and block.lsb.is_known and tally.max_rel) or not search.submit_smallest_references(
        position, largest
    ):
        search.submit_largest()


def smallest_element(values: np.ndarray) -> float:
    """Return the smallest element; NaN if any element is NaN."""
    return float(values.item(values.argmin()))  # faster than a reduction


@dataclass(slots=True)
class _QuotientSearch:
    """The search for the largest quotient of a block. `nonzero` marks nonzero references; None if no reference is 0."""

    tally: Tally
    block: Block
    error: np.ndarray
    sizes: np.ndarray
    nonzero: np.ndarray | None
    buffers: Scratch

    def submit_smallest_references(self, position: int, largest: float) -> bool:
        """Submit the quotients of the smallest references. Return whether no other quotient can be larger.

        Args:
            position: Position of the smallest reference.
            largest: The largest difference.
        """
        tally, sizes = self.tally, self.sizes
        if self.nonzero is not None:
            # The bits of positive floats sort like the floats. Subtracting 1 wraps the bits of 0 around to the largest
            # word, so that argmin skips zeros.
            words = self.buffers.singles[4][: sizes.size].view(np.uint32)
            position = int(np.subtract(sizes.view(np.uint32), _ONE, out=words).argmin())
        self._submit(position)
        smallest = sizes.item(position)
        # Beyond this reference, even the largest difference cannot raise the maximum of the quotients.
        bound = largest * (1.0 + _QUOTIENT_SLACK) / tally.max_rel if tally.max_rel else math.inf
        if bound < smallest:
            return True
        if bound > 4 * _FEW * smallest:  # probably too many elements to examine one by one
            return False
        mask = np.less_equal(sizes, bound, out=self.buffers.masks[0][: sizes.size])
        return self._submit_if_few(mask)

    def submit_largest(self) -> None:
        """Submit the largest quotient of all elements."""
        error, sizes, nonzero, best = self.error, self.sizes, self.nonzero, self.tally.max_rel
        quotient, mask = self.buffers.singles[4][: error.size], self.buffers.masks[0][: error.size]
        if best is not None and _QUOTIENT_LOW < best < _QUOTIENT_HIGH:
            # Only elements with error >= best * abs(a) can raise the maximum. This also holds below the normal range:
            # products are rounded to multiples of the smallest denormal there, and every error is such a multiple.
            np.multiply(sizes, best * (1.0 - _QUOTIENT_SLACK), out=quotient)
            if self._submit_if_few(np.greater_equal(error, quotient, out=mask)):
                return
        np.divide(error, sizes, out=quotient)
        if nonzero is not None:  # x/0 and 0/0 times 0 give NaN, which fmax ignores; a masked division is slower
            np.multiply(quotient, nonzero, out=quotient)
        largest = float(np.fmax.reduce(quotient))
        if _QUOTIENT_LOW < largest < _QUOTIENT_HIGH:
            np.greater_equal(quotient, largest * (1.0 - _QUOTIENT_SLACK), out=mask)
        else:  # float32 does not order quotients outside its range
            np.not_equal(sizes, _ZERO, out=mask)
        self._submit_marked(mask)

    def _submit_if_few(self, mask: np.ndarray) -> bool:
        """Submit the quotients of marked elements with nonzero references. Return False instead if there are many."""
        if self.nonzero is not None:
            np.logical_and(mask, self.nonzero, out=mask)
        count = np.count_nonzero(mask)
        if count > _FEW:
            return False
        if count == 1:  # the usual case; scalars are faster than arrays of one element
            self._submit(int(mask.argmax()))
        elif count:
            self._submit_marked(mask)
        return True

    def _submit_marked(self, mask: np.ndarray) -> None:
        positions = mask.nonzero()[0]
        quotients = absolute_differences(self.block, positions) / np.absolute(
            self.block.reference[positions].astype(np.float64)
        )
        self.tally.update_max_rel(float(np.maximum.reduce(quotients)))

    def _submit(self, position: int) -> None:
        reference = self.block.reference.item(position)
        self.tally.update_max_rel(abs(self.block.backend.item(position) - reference) / abs(reference))


def absolute_differences(block: Block, positions: np.ndarray) -> np.ndarray:
    """Return the absolute differences at given positions in float64."""
    a, b = block.reference[positions], block.backend[positions]
    return np.asarray(np.absolute(b.astype(np.float64) - a))


_LOW, _HIGH = 2.0**-40, 2.0**55
"""Range of a block's largest magnitude in which float32 squares are safe: no overflow, and underflow is negligible."""
_VALUE_SLACK = 2.0**-22
"""Upper bound for the relative error of a float32 difference plus the rounding errors of both real values."""


def add_single(tally: Tally, block: Block, buffers: Scratch) -> bool:
    """Add a block of float32 values to a tally, unless it needs float64.

    Args:
        tally: The tally to add to.
        block: Values of at most `affine.BLOCK` elements.
        buffers: Scratch buffers; the last three float32 buffers, the masks and the rows are used.

    Returns:
        False, with the tally unchanged, if the block has a non-finite value or magnitudes that need float64.
    """
    a, b = block.reference, block.backend
    n = a.size
    signed = block.lsb.uniform is not None  # the bias in LSB needs signed differences, in a buffer of their own
    difference = np.subtract(b, a, out=buffers.singles[4 if signed else 2][:n])
    error = np.absolute(difference, out=buffers.singles[2][:n])
    largest = _largest_element(error)
    if not largest < _HIGH:  # true for NaN too
        return False
    # As long as all references are at least 0, as after a Relu, they are their own magnitudes, which saves a pass.
    low = smallest_element(a) if tally.reference.low >= 0.0 else None
    sizes = a if low is not None and low >= 0.0 else np.absolute(a, out=buffers.singles[3][:n])
    max_abs = _largest_element(sizes)
    if not (_is_safe(largest) and _is_safe(max_abs) and _is_safe_with_error(b, max_abs, largest)):
        return False
    tally.finite += n
    _add_extremes(tally, block, low, max_abs, largest)
    if largest == 0.0:
        _add_equal(tally, block, buffers)
        return True
    unequal = int(np.count_nonzero(np.not_equal(error, 0.0, out=buffers.masks[0][:n])))
    tally.mismatches += unequal
    _add_sums(tally, block, (error, difference), unequal, buffers)
    add_quotients(tally, block, (error, sizes), largest, buffers)
    # Rounding to float32 preserves order, so the largest difference is among those that equal the largest in float32.
    if tally.max_abs is None or largest * (1.0 + _QUOTIENT_SLACK) > tally.max_abs:
        exact, position = _largest_difference(block, np.equal(error, largest, out=buffers.masks[0][:n]))
        tally.update_max_abs(exact, block.start + position)
    slack = _VALUE_SLACK * (2.0 * max_abs + largest)
    if block.lsb.is_known:
        _add_lsb(tally, block, error, largest, slack)
    if tally.tolerance is not None:
        _count_beyond_tolerance(tally, block, (error, largest), slack, buffers)
    return True


def _largest_element(values: np.ndarray) -> float:
    """Return the largest element; NaN if any element is NaN."""
    return float(values.item(values.argmax()))  # faster than a reduction


def _is_safe(size: float) -> bool:
    """Return whether float32 squares of values up to this magnitude can be summed safely; False for NaN."""
    return size == 0.0 or _LOW <= size < _HIGH


def _is_safe_with_error(values: np.ndarray, max_abs: float, largest: float) -> bool:
    """Like `_is_safe`, for values that differ by at most `largest` from values with magnitudes up to `max_abs`."""
    if max_abs - largest > 2.0 * _LOW and max_abs + largest < 0.5 * _HIGH:
        return True
    return _is_safe(max(_largest_element(values), -smallest_element(values)))


def _add_extremes(tally: Tally, block: Block, low: float | None, max_abs: float, largest: float) -> None:
    """Update a tally's extremes with a block that may exceed them.

    Args:
        tally: The tally.
        block: Finite values.
        low: The smallest reference; None if it was not computed.
        max_abs: The largest absolute reference.
        largest: The largest absolute difference.
    """
    a, b, reference_extremes, backend_extremes = block.reference, block.backend, tally.reference, tally.backend
    if low is None and -max_abs < reference_extremes.low:
        low = smallest_element(a)
    if max_abs > reference_extremes.high:
        reference_extremes.high = max(
            reference_extremes.high, max_abs if low is not None and -low < max_abs else _largest_element(a)
        )
    if low is None:
        low = -max_abs  # a lower bound, already within the known range
    else:
        reference_extremes.low = min(reference_extremes.low, low)
    slack = _VALUE_SLACK * (max_abs + largest)
    if max_abs + largest + slack > backend_extremes.high:
        backend_extremes.high = max(backend_extremes.high, _largest_element(b))
    if low - largest - slack < backend_extremes.low:
        backend_extremes.low = min(backend_extremes.low, smallest_element(b))


def _add_equal(tally: Tally, block: Block, buffers: Scratch) -> None:
    a = block.reference
    nonzero = int(np.count_nonzero(np.not_equal(a, 0.0, out=buffers.masks[1][: a.size])))
    tally.zero_refs += a.size - nonzero
    squares = row_dots(((a, a),), buffers.row_singles)[0]
    tally.reference_squares.add(squares)
    tally.backend_squares.add(squares)
    tally.products.add(squares)
    tally.update_max_abs(0.0, block.start)
    if nonzero:
        tally.update_max_rel(0.0)
    if block.lsb.is_known and not np.isnan(block.lsb.of(block.start, block.start + a.size)).all():
        tally.update_max_lsb(0.0)


def _add_sums(
    tally: Tally, block: Block, errors: tuple[np.ndarray, np.ndarray], unequal: int, buffers: Scratch
) -> None:
    """Add the sums of absolute differences and, if all steps are equal, of signed differences."""
    a, b, step = block.reference, block.backend, block.lsb.uniform
    error, difference = errors
    pairs = [(a, a), (b, b), (error, error), (error, buffers.ones)]
    if step is not None:
        pairs.append((difference, buffers.ones))
    a_squares, b_squares, error_squares, total, *signed = row_dots(pairs, buffers.row_singles)
    if step is not None:
        mantissa, exponent = math.frexp(step)
        tally.add_bias(signed[0] / mantissa, -exponent, unequal)
    tally.reference_squares.add(a_squares)
    tally.backend_squares.add(b_squares)
    tally.error_squares.add(error_squares)
    tally.sum_abs.add(total)
    # Compute ab from 2ab = a^2 + b^2 - d^2 if d^2 is the smallest term. For nearly equal tensors, this keeps the
    # small angle that rounding would hide in a sum of products, and it saves a pass.
    if error_squares <= min(a_squares, b_squares):
        tally.products.add((a_squares + b_squares - error_squares) / 2.0)
    else:
        tally.products.add(row_dots(((a, b),), buffers.row_singles)[0])


def _largest_difference(block: Block, mask: np.ndarray) -> tuple[float, int]:
    """Return the largest difference among marked elements in float64, and its first position."""
    if np.count_nonzero(mask) == 1:  # the usual case; scalars are faster than arrays of one element
        position = int(mask.argmax())
        return abs(float(block.backend[position]) - float(block.reference[position])), position
    positions = mask.nonzero()[0]
    exact = absolute_differences(block, positions)
    first = int(exact.argmax())
    return float(exact[first]), int(positions[first])


def _add_lsb(tally: Tally, block: Block, error: np.ndarray, largest: float, slack: float) -> None:
    """Add the largest difference of a block in LSB and, if steps differ, the bias in LSB.

    Args:
        tally: The tally.
        block: Values of which at least one pair differs.
        error: Their absolute differences in float32.
        largest: The largest of these differences, not 0.
        slack: An upper bound for the error of a float32 difference, plus the errors of two real values.
    """
    a, b, lsb = block.reference, block.backend, block.lsb
    step = lsb.of(block.start, block.start + a.size)
    if lsb.uniform is not None:
        if lsb.whole and slack < 0.25 * lsb.uniform:
            tally.update_max_lsb(float(np.rint(largest / lsb.uniform)))
            return
        if tally.max_lsb is not None and (largest + slack) / lsb.uniform <= tally.max_lsb:
            return
        near = 4.0 * slack if lsb.coded else _QUOTIENT_SLACK * largest  # real values of codes have rounding errors
        mask = np.greater_equal(error, np.float32(largest - near))
        if np.count_nonzero(mask) == 1:
            position = int(mask.argmax())
            tally.update_max_lsb(abs(lsb_between(float(a[position]), float(b[position]), lsb.uniform)))
            return
        positions = mask.nonzero()[0]
        a, b = a[positions], b[positions]
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    if isinstance(step, np.ndarray):
        tally.add_bias(*sum_in_lsb(*np.frexp(b64 - a64), step))
    max_steps = float(np.fmax.reduce(np.absolute(difference_in_lsb(a64, b64, step))))
    if not np.isnan(max_steps):
        tally.update_max_lsb(max_steps)


def _count_beyond_tolerance(
    tally: Tally, block: Block, errors: tuple[np.ndarray, float], slack: float, buffers: Scratch
) -> None:
    """Count elements beyond the tolerance; `errors` are the absolute differences and the largest of them."""
    (error, largest), (atol, rtol) = errors, tally.tolerance or (0.0, 0.0)
    if rtol >= 0.0 and largest + slack <= atol:
        return
    a = block.reference
    bound, mask = buffers.singles[3][: a.size], buffers.masks[0][: a.size]
    np.absolute(a, out=bound)
    np.multiply(bound, rtol * (1.0 - _QUOTIENT_SLACK), out=bound)
    np.add(bound, atol - slack - atol * _QUOTIENT_SLACK, out=bound)
    positions = np.greater_equal(error, bound, out=mask).nonzero()[0]
    if positions.size:
        exact = absolute_differences(block, positions)
        tally.beyond += int(np.count_nonzero(exact > atol + rtol * np.absolute(a[positions].astype(np.float64))))


_SAFE_EXPONENT = 400
"""Blocks whose largest magnitude exceeds 2**400 or is below 2**-400 are scaled before squaring."""


def add_double(tally: Tally, block: Block) -> None:
    """Add a block of arbitrary float64 values to a tally."""
    start, lsb = block.start, block.lsb
    difference = exact_difference(block)
    a = real_values(block.reference, block.reference_rest)
    b = real_values(block.backend, block.backend_rest)
    error = np.absolute(difference)
    step = lsb.of(start, start + a.size)
    positions: np.ndarray | None = None
    total, nonzero = a.size, int(np.count_nonzero(a != 0.0))
    tally.zero_refs += total - nonzero
    if not np.isfinite(error.max()):
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        _add_wide_extremes(tally, a[finite_a], b[finite_b])
        is_finite = finite_a & finite_b
        if not is_finite.all():
            _add_nonfinite(tally, a, b, is_finite, start)
            positions = np.flatnonzero(is_finite)
            a, b, error, difference = a[positions], b[positions], error[positions], difference[positions]
            step = step[positions] if isinstance(step, np.ndarray) else step
    else:
        _add_wide_extremes(tally, a, b)
    if not a.size:
        return
    tally.finite += a.size
    tally.mismatches += int(np.count_nonzero(difference))
    first = int(error.argmax())
    tally.update_max_abs(float(error[first]), start + (first if positions is None else int(positions[first])))
    size = np.absolute(a)
    if nonzero == total:
        tally.update_max_rel(float((error / size).max()))
    elif size.any():
        tally.update_max_rel(float(np.divide(error, size, out=np.zeros_like(error), where=size > 0.0).max()))
    if tally.tolerance is not None:
        atol, rtol = tally.tolerance
        tally.beyond += int(np.count_nonzero(error > atol + rtol * size))
    if lsb.is_known:
        whole = lsb.whole and bool(np.isfinite(error[first]))
        lsb_difference = whole_lsb(difference, step) if whole else difference_in_lsb(a, b, step)
        largest_lsb = float(np.fmax.reduce(np.absolute(lsb_difference)))
        if not np.isnan(largest_lsb):
            tally.update_max_lsb(largest_lsb)
        _add_bias(tally, a, b, difference, step)
    _add_wide_sums(tally, a, b, error)


def read_block(sides: tuple[RealBlocks, RealBlocks], span: tuple[int, int], lsb: LsbSizes, buffers: Scratch) -> Block:
    """Read a range of two tensors as float64.

    Args:
        sides: Reference and backend.
        span: First flat element, and one past the last.
        lsb: Size of an LSB.
        buffers: Scratch buffers; the float64 buffers and the first float32 buffer are used.
    """
    values: list[np.ndarray] = []
    rests: list[np.ndarray | None] = []
    for position, blocks in enumerate(sides):
        out, low = buffers.doubles[2 * position : 2 * position + 2]
        if blocks.wide:
            high, rest = blocks.read_wide(*span, out, low)
            values.append(high)
            rests.append(rest)
            continue
        real = blocks.read_double(*span, out, buffers.singles[0])
        # Narrower integers that are compared with 64-bit integers are low parts only, so that only the final sum of
        # both parts is rounded.
        low_only = blocks.integer and any(side.wide for side in sides)
        values.append(np.zeros_like(real) if low_only else real)
        rests.append(real if low_only else None)
    return Block(
        reference=values[0],
        backend=values[1],
        start=span[0],
        lsb=lsb,
        reference_rest=rests[0],
        backend_rest=rests[1],
    )


def real_values(values: np.ndarray, rest: np.ndarray | None) -> np.ndarray:
    """Return values with the remainders of 64-bit integers added."""
    return values if rest is None else values + rest


def exact_difference(block: Block) -> np.ndarray:
    """Return backend - reference, exact for 64-bit integers beyond float64.

    The sum of two floats without error is Knuth's (The Art of Computer Programming 2, 4.2.2, theorem B).
    """
    a, b = block.reference, block.backend
    high: np.ndarray = np.asarray(b - a)
    if block.reference_rest is None and block.backend_rest is None:
        return high
    back = np.asarray(high + a)
    rest = b - back
    back -= high
    back -= a
    rest += back  # (b - back) + ((back - high) - a)
    total = back
    np.copyto(total, 0.0 if block.backend_rest is None else block.backend_rest)
    if block.reference_rest is not None:
        total -= block.reference_rest
    total += high
    total += rest
    np.copyto(total, high, where=~np.isfinite(high))
    return total


def real_differences(reference: np.ndarray, backend: np.ndarray) -> np.ndarray:
    """Return backend - reference in float64. 64-bit integers are subtracted before rounding.

    Args:
        reference: Real numbers of any type, any shape.
        backend: Real numbers, same shape.
    """
    reference, backend = (
        side if side.dtype.kind in "biuf" else side.astype(np.float64) for side in (reference, backend)
    )
    if not any(side.dtype.kind in "iu" and side.dtype.itemsize == 8 for side in (reference, backend)):
        return np.asarray(np.subtract(backend, reference, dtype=np.float64))
    (a, a_rest), (b, b_rest) = map(_split_integers, (reference, backend))
    lsb = LsbSizes(None, ())
    return exact_difference(Block(reference=a, backend=b, start=0, lsb=lsb, reference_rest=a_rest, backend_rest=b_rest))


def _split_integers(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values as two float64 with an exact sum."""
    if values.dtype.kind not in "iub":
        return np.asarray(values, np.float64), np.zeros(values.shape)
    if values.dtype.kind == "b" or values.dtype.itemsize < 8:
        return np.zeros(values.shape), np.asarray(values, np.float64)
    return np.asarray((values >> 32) * 2.0**32), np.asarray(values & 0xFFFFFFFF, np.float64)


def _add_wide_extremes(tally: Tally, a: np.ndarray, b: np.ndarray) -> None:
    if a.size:
        tally.reference.add(float(a.min()), float(a.max()))
    if b.size:
        tally.backend.add(float(b.min()), float(b.max()))


def _add_nonfinite(tally: Tally, a: np.ndarray, b: np.ndarray, is_finite: np.ndarray, start: int) -> None:
    agree = ~is_finite & ((a == b) | (np.isnan(a) & np.isnan(b)))
    disagree = ~(is_finite | agree)
    count = int(np.count_nonzero(disagree))
    tally.matched_nonfinite += int(np.count_nonzero(agree))
    tally.nonfinite += count
    tally.mismatches += count
    tally.beyond += count
    if count:
        tally.update_first_nonfinite(start + int(disagree.argmax()))


def _add_bias(tally: Tally, a: np.ndarray, b: np.ndarray, difference: np.ndarray, step: np.ndarray | float) -> None:
    mantissa, exponent = np.frexp(difference)
    beyond = np.isinf(difference)
    if beyond.any():
        half, half_exponent = np.frexp(b * 0.5 - a * 0.5)
        mantissa, exponent = np.where(beyond, half, mantissa), np.where(beyond, half_exponent + 1, exponent)
    tally.add_bias(*sum_in_lsb(mantissa, exponent, step))


def _add_wide_sums(tally: Tally, a: np.ndarray, b: np.ndarray, error: np.ndarray) -> None:
    extra = 0
    if np.isinf(error.max()):  # the difference of two finite values can be infinite; half of it cannot
        error, extra = np.absolute(b * 0.5 - a * 0.5), 1
    error, error_exponent = _scale_exactly(error)
    a, a_exponent = _scale_exactly(a)
    b, b_exponent = _scale_exactly(b)
    tally.sum_abs.add(float(error.sum()), error_exponent + extra)
    pairs = ((a, a), (b, b), (error, error), (a, b))
    a_squares, b_squares, error_squares, products = row_dots(pairs, np.empty((4, a.size // ROW)))
    tally.reference_squares.add(a_squares, 2 * a_exponent)
    tally.backend_squares.add(b_squares, 2 * b_exponent)
    tally.error_squares.add(error_squares, 2 * (error_exponent + extra))
    tally.products.add(products, a_exponent + b_exponent)


def _scale_exactly(values: np.ndarray) -> tuple[np.ndarray, int]:
    largest = max(float(values.max()), -float(values.min()))
    exponent = math.frexp(largest)[1]
    if largest == 0.0 or -_SAFE_EXPONENT < exponent < _SAFE_EXPONENT:
        return values, 0
    return np.ldexp(values, -exponent), exponent
