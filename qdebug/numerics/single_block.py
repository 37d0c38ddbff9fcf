"""The error of one block in float32.

Sums are of products by BLAS in rows of 256 elements, the rows in float64. Whatever is not a sum is found in
float32 where rounding cannot change the answer, else decided in float64 among the few elements that could be it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qdebug.numerics.blocks import ROW, Scratch
from qdebug.numerics.lsb import difference_in_steps, steps_between, sum_in_steps
from qdebug.numerics.tally import Block, Tally

__all__ = [
    "QUOTIENT_HIGH",
    "QUOTIENT_LOW",
    "QUOTIENT_SLACK",
    "VALUE_SLACK",
    "add_single",
    "add_steps",
    "is_safe",
    "row_dots",
]

_LOW, _HIGH = 2.0**-40, 2.0**55
"""Block maxima whose float32 squares are safe: their sum stays finite, and what underflows does not count."""
QUOTIENT_LOW, QUOTIENT_HIGH = 2.0**-60, 2.0**100
QUOTIENT_SLACK = 2.0**-21
"""More than twice the relative error of a float32 difference divided in float32."""
VALUE_SLACK = 2.0**-22
"""More than the error of a float32 difference and of two real values, relative to the values."""


def add_single(tally: Tally, block: Block, buffers: Scratch) -> bool:
    """Add a block of float32 values to a tally, unless float32 is not enough for it.

    Args:
        tally: What to add to.
        block: Values of at most `affine.BLOCK` elements.
        buffers: Scratch; its last two float32 buffers, its masks and its rows are used.

    Returns:
        False, with the tally untouched, if the block has a non-finite value or magnitudes that need float64.
    """
    a, b = block.reference, block.backend
    n = a.size
    error = buffers.singles[2][:n]
    np.subtract(b, a, out=error)
    np.absolute(error, out=error)
    largest = float(np.maximum.reduce(error))
    if not largest < _HIGH:  # true for NaN too
        return False
    (a_low, a_high), (b_low, b_high) = extremes(a), extremes(b)
    a_size, b_size = max(-a_low, a_high), max(-b_low, b_high)
    if not (is_safe(largest) and is_safe(a_size) and is_safe(b_size)):
        return False
    tally.finite += n
    tally.reference.add(a_low, a_high)
    tally.backend.add(b_low, b_high)
    nonzero: np.ndarray | None = None
    zeros = 0
    if a_low <= 0.0 <= a_high:
        nonzero = np.not_equal(a, 0.0, out=buffers.masks[1][:n])
        zeros = n - int(np.count_nonzero(nonzero))
        tally.zero_refs += zeros
    if largest == 0.0:
        _add_equal(tally, block, buffers, zeros)
        return True
    mask = buffers.masks[0][:n]
    unequal = int(np.count_nonzero(np.not_equal(a, b, out=mask)))
    tally.mismatches += unequal
    _add_sums(tally, block, error, unequal, buffers)
    if zeros < n:
        _add_quotients(tally, block, error, nonzero if zeros else None, buffers)
    # float32 rounding keeps order, so the largest difference is among those that round to the largest.
    if tally.max_abs is None or largest >= np.float32(tally.max_abs):
        exact, place = _largest_difference(block, np.equal(error, largest, out=mask))
        tally.offer_abs(exact, block.start + place)
    slack = VALUE_SLACK * (a_size + b_size)
    if block.steps.known:
        add_steps(tally, block, error, largest, slack)
    if tally.tolerance is not None:
        _add_beyond(tally, block, error, slack, buffers)
    return True


def row_dots(pairs: Sequence[tuple[np.ndarray, np.ndarray]], out: np.ndarray) -> list[float]:
    """Sum products of pairs of arrays in rows of 256 elements, the rows in float64.

    Args:
        pairs: 1-D contiguous arrays of one length and dtype; a second one of length 256 is paired with every row.
        out: Scratch of the same dtype, one line per pair, one entry per row.
    """
    n = pairs[0][0].size
    rows, rest = n // ROW, n % ROW
    totals = [0.0] * len(pairs)
    if rows:
        lines = out[: len(pairs), :rows]
        views: dict[int, np.ndarray] = {}  # most arrays are in several pairs
        for line, pair in zip(lines, pairs, strict=True):
            for array in pair:
                if id(array) not in views:
                    views[id(array)] = array if array.size == ROW else array[: rows * ROW].reshape(rows, ROW)
            np.vecdot(views[id(pair[0])], views[id(pair[1])], out=line)
        totals = np.add.reduce(lines, axis=1, dtype=np.float64).tolist()
    if rest:
        for index, (first, second) in enumerate(pairs):
            totals[index] += float(
                np.dot(first[n - rest :], second[:rest] if second.size == ROW else second[n - rest :])
            )
    return totals


def extremes(values: np.ndarray) -> tuple[float, float]:
    """Give the smallest and the largest element; NaN if there is one."""
    return float(np.minimum.reduce(values)), float(np.maximum.reduce(values))


def is_safe(size: float) -> bool:
    """Tell whether the float32 squares of values with this largest magnitude can be summed; not of NaN."""
    return size == 0.0 or _LOW <= size < _HIGH


def _add_equal(tally: Tally, block: Block, buffers: Scratch, zeros: int) -> None:
    a = block.reference
    squares = row_dots(((a, a),), buffers.row_singles)[0]
    tally.reference_squares.add(squares)
    tally.backend_squares.add(squares)
    tally.products.add(squares)
    tally.offer_abs(0.0, block.start)
    if zeros < a.size:
        tally.offer_rel(0.0)
    if block.steps.known and not np.isnan(block.steps.of(block.start, block.start + a.size)).all():
        tally.offer_lsb(0.0)


def _add_sums(tally: Tally, block: Block, error: np.ndarray, unequal: int, buffers: Scratch) -> None:
    a, b, step = block.reference, block.backend, block.steps.uniform
    pairs = [(a, a), (b, b), (error, error), (error, buffers.ones)]
    if step is not None:
        pairs.append((np.subtract(b, a, out=buffers.singles[3][: a.size]), buffers.ones))
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
    exact = _double_error(block, places)
    first = int(exact.argmax())
    return float(exact[first]), int(places[first])


def _largest_quotient(block: Block, mask: np.ndarray) -> float | None:
    """Give the largest quotient among marked elements in float64; None if none is marked."""
    count = np.count_nonzero(mask)
    if count == 0:
        return None
    if count == 1:
        place = int(mask.argmax())
        reference = float(block.reference[place])
        return abs(float(block.backend[place]) - reference) / abs(reference)
    places = mask.nonzero()[0]
    quotients = _double_error(block, places) / np.absolute(block.reference[places].astype(np.float64))
    return float(np.maximum.reduce(quotients))


def _double_error(block: Block, places: np.ndarray) -> np.ndarray:
    a, b = block.reference[places], block.backend[places]
    return np.asarray(np.absolute(b.astype(np.float64) - a))


def _add_quotients(tally: Tally, block: Block, error: np.ndarray, nonzero: np.ndarray | None, buffers: Scratch) -> None:
    """Offer the largest quotient; `nonzero` marks references that are not 0, None if none is."""
    a = block.reference
    quotient, mask = buffers.singles[3][: a.size], buffers.masks[0][: a.size]
    np.absolute(a, out=quotient)
    best = tally.max_rel
    if best is not None and QUOTIENT_LOW < best < QUOTIENT_HIGH:
        # Only an element with error >= best * abs(a) can be larger. A product below the normal range is rounded to a
        # multiple of the smallest denormal, as every error is one, so ">=" misses nothing there either.
        np.multiply(quotient, best * (1.0 - QUOTIENT_SLACK), out=quotient)
        np.greater_equal(error, quotient, out=mask)
        if nonzero is not None:
            np.logical_and(mask, nonzero, out=mask)
    else:
        np.divide(error, quotient, out=quotient)
        if nonzero is not None:  # x/0 and 0/0, times 0, are NaN, which fmax leaves out; a masked division is slower
            np.multiply(quotient, nonzero, out=quotient)
        largest = float(np.fmax.reduce(quotient))
        if QUOTIENT_LOW < largest < QUOTIENT_HIGH:
            np.greater_equal(quotient, largest * (1.0 - QUOTIENT_SLACK), out=mask)
        else:  # quotients that leave float32 are not ordered by it
            np.not_equal(a, 0.0, out=mask)
    found = _largest_quotient(block, mask)
    if found is not None:
        tally.offer_rel(found)


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


def _add_beyond(tally: Tally, block: Block, error: np.ndarray, slack: float, buffers: Scratch) -> None:
    atol, rtol = tally.tolerance or (0.0, 0.0)
    a = block.reference
    bound, mask = buffers.singles[3][: a.size], buffers.masks[0][: a.size]
    np.absolute(a, out=bound)
    np.multiply(bound, rtol * (1.0 - QUOTIENT_SLACK), out=bound)
    np.add(bound, atol - slack - atol * QUOTIENT_SLACK, out=bound)
    places = np.greater_equal(error, bound, out=mask).nonzero()[0]
    if places.size:
        exact = _double_error(block, places)
        tally.beyond += int(np.count_nonzero(exact > atol + rtol * np.absolute(a[places].astype(np.float64))))
