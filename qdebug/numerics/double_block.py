"""The error of one block in float64: for wide types, extreme magnitudes and non-finite values."""

from __future__ import annotations

import math

import numpy as np

from qdebug.numerics.blocks import RealBlocks, Scratch
from qdebug.numerics.lsb import Steps, difference_in_steps, sum_in_steps, whole_steps
from qdebug.numerics.row_sums import ROW, row_dots
from qdebug.numerics.tally import Block, Tally

__all__ = ["add_double", "exact_difference", "read_block", "real_differences", "real_values"]

_SAFE_EXPONENT = 400
"""A block whose largest magnitude is beyond 2**400 or below 2**-400 is scaled before squaring."""


def add_double(tally: Tally, block: Block) -> None:
    """Add a block of float64 values to a tally, whatever they are."""
    start, steps = block.start, block.steps
    difference = exact_difference(block)
    a = real_values(block.reference, block.reference_rest)
    b = real_values(block.backend, block.backend_rest)
    error = np.absolute(difference)
    step = steps.of(start, start + a.size)
    places: np.ndarray | None = None
    total, nonzero = a.size, int(np.count_nonzero(a != 0.0))
    tally.zero_refs += total - nonzero
    if not np.isfinite(error.max()):
        finite_a, finite_b = np.isfinite(a), np.isfinite(b)
        _add_extremes(tally, a[finite_a], b[finite_b])
        both = finite_a & finite_b
        if not both.all():
            _add_nonfinite(tally, a, b, both, start)
            places = np.flatnonzero(both)
            a, b, error, difference = a[places], b[places], error[places], difference[places]
            step = step[places] if isinstance(step, np.ndarray) else step
    else:
        _add_extremes(tally, a, b)
    if not a.size:
        return
    tally.finite += a.size
    tally.mismatches += int(np.count_nonzero(difference))
    first = int(error.argmax())
    tally.offer_abs(float(error[first]), start + (first if places is None else int(places[first])))
    size = np.absolute(a)
    if nonzero == total:
        tally.offer_rel(float((error / size).max()))
    elif size.any():
        tally.offer_rel(float(np.divide(error, size, out=np.zeros_like(error), where=size > 0.0).max()))
    if tally.tolerance is not None:
        atol, rtol = tally.tolerance
        tally.beyond += int(np.count_nonzero(error > atol + rtol * size))
    if steps.known:
        whole = steps.whole and bool(np.isfinite(error[first]))
        apart = whole_steps(difference, step) if whole else difference_in_steps(a, b, step)
        most = float(np.fmax.reduce(np.absolute(apart)))
        if not np.isnan(most):
            tally.offer_lsb(most)
        _add_bias(tally, a, b, difference, step)
    _add_sums(tally, a, b, error)


def read_block(sides: tuple[RealBlocks, RealBlocks], span: tuple[int, int], steps: Steps, buffers: Scratch) -> Block:
    """Read a stretch of two tensors as float64.

    Args:
        sides: Reference and backend.
        span: First flat element, and one past the last.
        steps: Size of an LSB.
        buffers: Scratch; its float64 buffers and the first float32 buffer are used.
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
        # Beside a 64-bit integer any other is all low part: then only the sum of both parts is rounded.
        low_only = blocks.integer and any(side.wide for side in sides)
        values.append(np.zeros_like(real) if low_only else real)
        rests.append(real if low_only else None)
    return Block(
        reference=values[0],
        backend=values[1],
        start=span[0],
        steps=steps,
        reference_rest=rests[0],
        backend_rest=rests[1],
    )


def real_values(values: np.ndarray, rest: np.ndarray | None) -> np.ndarray:
    """Give values, with what 64-bit integers have below them added."""
    return values if rest is None else values + rest


def exact_difference(block: Block) -> np.ndarray:
    """Give backend - reference, keeping what 64-bit integers have below float64.

    The error-free sum of two floats is Knuth's (The Art of Computer Programming 2, 4.2.2, theorem B).
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
    """Give backend - reference of real numbers in float64, of 64-bit integers before these are rounded.

    Args:
        reference: Real numbers of any type, any shape.
        backend: Real numbers, same shape.
    """
    reference, backend = (
        side if side.dtype.kind in "biuf" else side.astype(np.float64) for side in (reference, backend)
    )
    if not any(side.dtype.kind in "iu" and side.dtype.itemsize == 8 for side in (reference, backend)):
        return np.asarray(np.subtract(backend, reference, dtype=np.float64))
    (a, a_rest), (b, b_rest) = map(_two_parts, (reference, backend))
    steps = Steps(None, ())
    return exact_difference(
        Block(reference=a, backend=b, start=0, steps=steps, reference_rest=a_rest, backend_rest=b_rest)
    )


def _two_parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give values as two float64 whose exact sum they are."""
    if values.dtype.kind not in "iub":
        return np.asarray(values, np.float64), np.zeros(values.shape)
    if values.dtype.kind == "b" or values.dtype.itemsize < 8:
        return np.zeros(values.shape), np.asarray(values, np.float64)
    return np.asarray((values >> 32) * 2.0**32), np.asarray(values & 0xFFFFFFFF, np.float64)


def _add_extremes(tally: Tally, a: np.ndarray, b: np.ndarray) -> None:
    if a.size:
        tally.reference.add(float(a.min()), float(a.max()))
    if b.size:
        tally.backend.add(float(b.min()), float(b.max()))


def _add_nonfinite(tally: Tally, a: np.ndarray, b: np.ndarray, both: np.ndarray, start: int) -> None:
    agree = ~both & ((a == b) | (np.isnan(a) & np.isnan(b)))
    disagree = ~(both | agree)
    count = int(np.count_nonzero(disagree))
    tally.matched_nonfinite += int(np.count_nonzero(agree))
    tally.nonfinite += count
    tally.mismatches += count
    tally.beyond += count
    if count:
        tally.offer_nonfinite(start + int(disagree.argmax()))


def _add_bias(tally: Tally, a: np.ndarray, b: np.ndarray, difference: np.ndarray, step: np.ndarray | float) -> None:
    mantissa, exponent = np.frexp(difference)
    beyond = np.isinf(difference)
    if beyond.any():
        half, half_exponent = np.frexp(b * 0.5 - a * 0.5)
        mantissa, exponent = np.where(beyond, half, mantissa), np.where(beyond, half_exponent + 1, exponent)
    tally.add_bias(*sum_in_steps(mantissa, exponent, step))


def _add_sums(tally: Tally, a: np.ndarray, b: np.ndarray, error: np.ndarray) -> None:
    extra = 0
    if np.isinf(error.max()):  # the difference of two finite values can be infinite; half of it cannot
        error, extra = np.absolute(b * 0.5 - a * 0.5), 1
    error, error_exponent = _scaled(error)
    a, a_exponent = _scaled(a)
    b, b_exponent = _scaled(b)
    tally.sum_abs.add(float(error.sum()), error_exponent + extra)
    pairs = ((a, a), (b, b), (error, error), (a, b))
    a_squares, b_squares, error_squares, products = row_dots(pairs, np.empty((4, a.size // ROW)))
    tally.reference_squares.add(a_squares, 2 * a_exponent)
    tally.backend_squares.add(b_squares, 2 * b_exponent)
    tally.error_squares.add(error_squares, 2 * (error_exponent + extra))
    tally.products.add(products, a_exponent + b_exponent)


def _scaled(values: np.ndarray) -> tuple[np.ndarray, int]:
    largest = max(float(values.max()), -float(values.min()))
    exponent = math.frexp(largest)[1]
    if largest == 0.0 or -_SAFE_EXPONENT < exponent < _SAFE_EXPONENT:
        return values, 0
    return np.ldexp(values, -exponent), exponent
