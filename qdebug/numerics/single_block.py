"""The error of one block in float32.

Sums are of products by BLAS in rows of 256 elements (in longer rows the rounding errors of a constant
tensor pile up), the rows in float64. Whatever is not a sum is found in float32 where rounding cannot change the
answer, else decided in float64 among the few elements that could be it.
"""

from __future__ import annotations

import numpy as np

from qdebug.numerics.blocks import Scratch
from qdebug.numerics.lsb import difference_in_steps
from qdebug.numerics.tally import Block, Tally

__all__ = ["add_single"]

_ROW = 256
_LOW, _HIGH = 2.0**-40, 2.0**55
"""Block maxima whose float32 squares are safe: their sum stays finite, and what underflows does not count."""
_QUOTIENT_LOW, _QUOTIENT_HIGH = 2.0**-60, 2.0**100
_QUOTIENT_SLACK = 2.0**-21
"""More than twice the relative error of a float32 difference divided in float32."""
_STEP_SLACK = 2.0**-22
"""More than twice the error of a float32 difference and of two real values, relative to the values."""


def add_single(tally: Tally, block: Block, buffers: Scratch) -> bool:
    """Add a block of float32 values to a tally, unless float32 is not enough for it.

    Args:
        tally: What to add to.
        block: Values of at most `affine.BLOCK` elements.
        buffers: Scratch; its third and fourth float32 buffers and its mask are used.

    Returns:
        False, with the tally untouched, if the block has a non-finite value or magnitudes that need float64.
    """
    a, b = block.reference, block.backend
    n = a.size
    error, quotient, mask = buffers.singles[2][:n], buffers.singles[3][:n], buffers.mask[:n]
    np.subtract(b, a, out=error)
    np.absolute(error, out=error)
    largest = float(error.max())
    if not largest < _HIGH:  # true for NaN too
        return False
    a_low, a_high, b_low, b_high = float(a.min()), float(a.max()), float(b.min()), float(b.max())
    a_size, b_size = max(-a_low, a_high), max(-b_low, b_high)
    if not (_safe(largest) and _safe(a_size) and _safe(b_size)):
        return False
    tally.finite += n
    tally.reference.add(a_low, a_high)
    tally.backend.add(b_low, b_high)
    nonzero = n
    if a_low <= 0.0 <= a_high:
        nonzero = int(np.count_nonzero(np.not_equal(a, 0.0, out=mask)))
        tally.zero_refs += n - nonzero
    squares = row_dot(a, a)
    tally.reference_squares.add(squares)
    if largest == 0.0:
        tally.backend_squares.add(squares)
        tally.products.add(squares)
        _add_equal(tally, block, nonzero)
        return True
    if nonzero:
        _divide(a, error, quotient, mask if nonzero < n else None)
        _add_quotients(tally, block, quotient)
    tally.mismatches += int(np.count_nonzero(np.not_equal(a, b, out=mask)))
    tally.backend_squares.add(row_dot(b, b))
    tally.products.add(row_dot(a, b))
    tally.error_squares.add(row_dot(error, error))
    tally.sum_abs.add(row_dot(error, buffers.ones[:n]))
    # float32 rounding keeps order, so the largest difference is among those that round to the largest.
    if tally.max_abs is None or largest >= np.float32(tally.max_abs):
        places = np.flatnonzero(np.equal(error, np.float32(largest), out=mask))
        exact = _double_error(block, places)
        first = int(exact.argmax())
        tally.offer_abs(float(exact[first]), block.start + int(places[first]))
    if block.steps.known:
        _add_steps(tally, block, error, _STEP_SLACK * (a_size + b_size))
    return True


def row_dot(a: np.ndarray, b: np.ndarray) -> float:
    """Sum products of two contiguous float32 arrays in rows of 256, the rows in float64."""
    whole = a.size // _ROW * _ROW
    total = 0.0
    if whole:
        total = float(np.vecdot(a[:whole].reshape(-1, _ROW), b[:whole].reshape(-1, _ROW)).sum(dtype=np.float64))
    if whole < a.size:
        total += float(np.dot(a[whole:], b[whole:]))
    return total


def _safe(size: float) -> bool:
    return size == 0.0 or _LOW <= size < _HIGH


def _add_equal(tally: Tally, block: Block, nonzero: int) -> None:
    tally.offer_abs(0.0, block.start)
    if nonzero:
        tally.offer_rel(0.0)
    if block.steps.known and not np.isnan(block.steps.of(block.start, block.start + block.reference.size)).all():
        tally.offer_lsb(0.0)


def _double_error(block: Block, places: np.ndarray) -> np.ndarray:
    a, b = block.reference[places], block.backend[places]
    return np.asarray(np.absolute(b.astype(np.float64) - a))


def _divide(a: np.ndarray, error: np.ndarray, quotient: np.ndarray, nonzero: np.ndarray | None) -> None:
    np.absolute(a, out=quotient)
    if nonzero is None:
        np.divide(error, quotient, out=quotient)
    else:  # where the reference is 0, quotient stays 0 and cannot be the largest
        np.divide(error, quotient, out=quotient, where=nonzero)


def _add_quotients(tally: Tally, block: Block, quotient: np.ndarray) -> None:
    largest = float(quotient.max())
    if _QUOTIENT_LOW < largest < _QUOTIENT_HIGH:
        if tally.max_rel is not None and largest * (1.0 + _QUOTIENT_SLACK) <= tally.max_rel:
            return
        places = np.flatnonzero(quotient >= np.float32(largest * (1.0 - _QUOTIENT_SLACK)))
    else:  # quotients that leave float32 are not ordered by it
        places = np.flatnonzero(block.reference)
    quotients = _double_error(block, places) / np.absolute(block.reference[places].astype(np.float64))
    tally.offer_rel(float(quotients.max()))


def _add_steps(tally: Tally, block: Block, error: np.ndarray, slack: float) -> None:
    a, b, steps = block.reference, block.backend, block.steps
    step = steps.of(block.start, block.start + a.size)
    if steps.uniform is not None:
        largest = float(error.max())
        if tally.max_lsb is not None and (largest + slack) / steps.uniform <= tally.max_lsb:
            return
        places = np.flatnonzero(error >= np.float32(largest - 4.0 * slack))
        a, b = a[places], b[places]
    difference = difference_in_steps(a.astype(np.float64), b.astype(np.float64), step)
    most = float(np.fmax.reduce(np.absolute(difference)))
    if not np.isnan(most):
        tally.offer_lsb(most)
