"""The error of one block in float32.

Sums are of products by BLAS in rows of 256 elements, the rows in float64. Whatever is not a sum is found in
float32 where rounding cannot change the answer, else decided in float64 among the few elements that could be it. What
cannot change what earlier blocks gave, by a bound that is known already, is not looked for.
"""

from __future__ import annotations

import math

import numpy as np

from qdebug.numerics.blocks import Scratch
from qdebug.numerics.lsb import difference_in_steps, steps_between, sum_in_steps
from qdebug.numerics.quotients import QUOTIENT_SLACK, add_quotients, double_error, lowest
from qdebug.numerics.row_sums import row_dots
from qdebug.numerics.tally import Block, Tally

__all__ = ["VALUE_SLACK", "add_single", "add_steps", "is_safe"]

_LOW, _HIGH = 2.0**-40, 2.0**55
"""Block maxima whose float32 squares are safe: their sum stays finite, and what underflows does not count."""
VALUE_SLACK = 2.0**-22
"""More than the error of a float32 difference and of two real values, relative to the values."""


def add_single(tally: Tally, block: Block, buffers: Scratch) -> bool:
    """Add a block of float32 values to a tally, unless float32 is not enough for it.

    Args:
        tally: What to add to.
        block: Values of at most `affine.BLOCK` elements.
        buffers: Scratch; its last three float32 buffers, its masks and its rows are used.

    Returns:
        False, with the tally untouched, if the block has a non-finite value or magnitudes that need float64.
    """
    a, b = block.reference, block.backend
    n = a.size
    signed = block.steps.uniform is not None  # then the signs are needed to the end
    difference = np.subtract(b, a, out=buffers.singles[4 if signed else 2][:n])
    error = np.absolute(difference, out=buffers.singles[2][:n])
    largest = _highest(error)
    if not largest < _HIGH:  # true for NaN too
        return False
    # Magnitudes cost a pass more than they save in the first block, and save several in most others.
    low = lowest(a) if tally.reference.low >= 0.0 else None
    sizes = a if low is not None and low >= 0.0 else np.absolute(a, out=buffers.singles[3][:n])
    most = _highest(sizes)
    if not (is_safe(largest) and is_safe(most) and _is_safe_beside(b, most, largest)):
        return False
    tally.finite += n
    _add_extremes(tally, block, low, most, largest)
    if largest == 0.0:
        _add_equal(tally, block, buffers)
        return True
    unequal = int(np.count_nonzero(np.not_equal(error, 0.0, out=buffers.masks[0][:n])))
    tally.mismatches += unequal
    _add_sums(tally, block, (error, difference), unequal, buffers)
    add_quotients(tally, block, (error, sizes), largest, buffers)
    # float32 rounding keeps order, so the largest difference is among those that round to the largest.
    if tally.max_abs is None or largest * (1.0 + QUOTIENT_SLACK) > tally.max_abs:
        exact, place = _largest_difference(block, np.equal(error, largest, out=buffers.masks[0][:n]))
        tally.offer_abs(exact, block.start + place)
    slack = VALUE_SLACK * (2.0 * most + largest)
    if block.steps.known:
        add_steps(tally, block, error, largest, slack)
    if tally.tolerance is not None:
        _add_beyond(tally, block, (error, largest), slack, buffers)
    return True


def _highest(values: np.ndarray) -> float:
    """Give the largest element; NaN if there is one."""
    return float(values.item(values.argmax()))  # faster than a reduction


def is_safe(size: float) -> bool:
    """Tell whether the float32 squares of values with this largest magnitude can be summed; not of NaN."""
    return size == 0.0 or _LOW <= size < _HIGH


def _is_safe_beside(values: np.ndarray, most: float, largest: float) -> bool:
    """Tell what `is_safe` does of values that are at most `largest` from others whose magnitudes go up to `most`."""
    if most - largest > 2.0 * _LOW and most + largest < 0.5 * _HIGH:
        return True
    return is_safe(max(_highest(values), -lowest(values)))


def _add_extremes(tally: Tally, block: Block, low: float | None, most: float, largest: float) -> None:
    """Take in the extremes of a block that can lie outside what is known.

    Args:
        tally: What to add to.
        block: Finite values.
        low: The smallest reference; None if it is not known, but not positive.
        most: The largest absolute reference.
        largest: The largest absolute difference.
    """
    a, b, ours, theirs = block.reference, block.backend, tally.reference, tally.backend
    if low is None and -most < ours.low:
        low = lowest(a)
    if most > ours.high:
        ours.high = max(ours.high, most if low is not None and -low < most else _highest(a))
    if low is None:
        low = -most  # a bound that is not below what is known
    else:
        ours.low = min(ours.low, low)
    slack = VALUE_SLACK * (most + largest)
    if most + largest + slack > theirs.high:
        theirs.high = max(theirs.high, _highest(b))
    if low - largest - slack < theirs.low:
        theirs.low = min(theirs.low, lowest(b))


def _add_equal(tally: Tally, block: Block, buffers: Scratch) -> None:
    a = block.reference
    nonzero = int(np.count_nonzero(np.not_equal(a, 0.0, out=buffers.masks[1][: a.size])))
    tally.zero_refs += a.size - nonzero
    squares = row_dots(((a, a),), buffers.row_singles)[0]
    tally.reference_squares.add(squares)
    tally.backend_squares.add(squares)
    tally.products.add(squares)
    tally.offer_abs(0.0, block.start)
    if nonzero:
        tally.offer_rel(0.0)
    if block.steps.known and not np.isnan(block.steps.of(block.start, block.start + a.size)).all():
        tally.offer_lsb(0.0)


def _add_sums(
    tally: Tally, block: Block, errors: tuple[np.ndarray, np.ndarray], unequal: int, buffers: Scratch
) -> None:
    """Add sums of absolute differences, and of signed ones where steps are alike."""
    a, b, step = block.reference, block.backend, block.steps.uniform
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
    # ab from 2ab = a^2 + b^2 - d^2 while d^2 is the smallest of the three: this keeps the small angle between nearly
    # equal tensors, which the rounding of a sum of products would hide, and spares a pass.
    if error_squares <= min(a_squares, b_squares):
        tally.products.add((a_squares + b_squares - error_squares) / 2.0)
    else:
        tally.products.add(row_dots(((a, b),), buffers.row_singles)[0])


def _largest_difference(block: Block, mask: np.ndarray) -> tuple[float, int]:
    """Give the largest difference among marked elements in float64, and its first place."""
    if np.count_nonzero(mask) == 1:  # as is usual; plain numbers are faster than arrays of one
        place = int(mask.argmax())
        return abs(float(block.backend[place]) - float(block.reference[place])), place
    places = mask.nonzero()[0]
    exact = double_error(block, places)
    first = int(exact.argmax())
    return float(exact[first]), int(places[first])


def add_steps(tally: Tally, block: Block, error: np.ndarray, largest: float, slack: float) -> None:
    """Add the largest difference of a block in steps, and where steps differ their bias.

    Args:
        tally: What to add to.
        block: Values of which some differ.
        error: Their absolute differences in float32.
        largest: The largest of these, not 0.
        slack: More than the error of a float32 difference and of two real values.
    """
    a, b, steps = block.reference, block.backend, block.steps
    step = steps.of(block.start, block.start + a.size)
    if steps.uniform is not None:
        if steps.whole and slack < 0.25 * steps.uniform:
            tally.offer_lsb(float(np.rint(largest / steps.uniform)))
            return
        if tally.max_lsb is not None and (largest + slack) / steps.uniform <= tally.max_lsb:
            return
        mask = np.greater_equal(error, np.float32(largest - 4.0 * slack))
        if np.count_nonzero(mask) == 1:
            place = int(mask.argmax())
            tally.offer_lsb(abs(steps_between(float(a[place]), float(b[place]), steps.uniform)))
            return
        places = mask.nonzero()[0]
        a, b = a[places], b[places]
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    if isinstance(step, np.ndarray):
        tally.add_bias(*sum_in_steps(*np.frexp(b64 - a64), step))
    most = float(np.fmax.reduce(np.absolute(difference_in_steps(a64, b64, step))))
    if not np.isnan(most):
        tally.offer_lsb(most)


def _add_beyond(tally: Tally, block: Block, errors: tuple[np.ndarray, float], slack: float, buffers: Scratch) -> None:
    """Count elements beyond the tolerance; `errors` are absolute differences and the largest of them."""
    (error, largest), (atol, rtol) = errors, tally.tolerance or (0.0, 0.0)
    if rtol >= 0.0 and largest + slack <= atol:
        return
    a = block.reference
    bound, mask = buffers.singles[3][: a.size], buffers.masks[0][: a.size]
    np.absolute(a, out=bound)
    np.multiply(bound, rtol * (1.0 - QUOTIENT_SLACK), out=bound)
    np.add(bound, atol - slack - atol * QUOTIENT_SLACK, out=bound)
    places = np.greater_equal(error, bound, out=mask).nonzero()[0]
    if places.size:
        exact = double_error(block, places)
        tally.beyond += int(np.count_nonzero(exact > atol + rtol * np.absolute(a[places].astype(np.float64))))
