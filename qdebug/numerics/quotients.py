"""The largest error of a float32 block relative to its own reference.

Quotients are compared in float32 where rounding cannot change the answer, and decided in float64 among the few
elements that could have the largest.
"""

from __future__ import annotations

import numpy as np

from qdebug.numerics.blocks import Scratch
from qdebug.numerics.tally import Block, Tally

__all__ = ["QUOTIENT_HIGH", "QUOTIENT_LOW", "QUOTIENT_SLACK", "add_quotients", "double_error", "lowest"]

QUOTIENT_LOW, QUOTIENT_HIGH = 2.0**-60, 2.0**100
QUOTIENT_SLACK = 2.0**-21
"""More than twice the relative error of a float32 difference divided in float32."""
_FEW = 256
"""Elements that are rather looked at one by one than told apart by a division of all."""
_ZERO, _ONE = np.float32(0.0), np.uint32(1)


def add_quotients(
    tally: Tally, block: Block, magnitudes: tuple[np.ndarray, np.ndarray], largest: float, buffers: Scratch
) -> None:
    """Count references that are 0, and offer the largest of the other elements' quotients.

    Args:
        tally: What to add to.
        block: Values of which some differ.
        magnitudes: Absolute differences in float32, and absolute references (-0.0 stands for 0 too); not written to.
        largest: The largest of these differences.
        buffers: Scratch; its last float32 buffer and its masks are used.
    """
    a, sizes = block.reference, magnitudes[1]
    nonzero = None
    place, fruitful = int(sizes.argmin()), True
    if a.item(place) == 0.0:
        nonzero = np.not_equal(sizes, _ZERO, out=buffers.masks[1][: a.size])
        zeros = a.size - int(np.count_nonzero(nonzero))
        tally.zero_refs += zeros
        if zeros == a.size:
            return
        # Among codes the least is one step, and its quotient hardly ever large enough to end the search.
        fruitful = not (block.steps.known and tally.max_rel)
        if fruitful:
            place = _least_above_zero(sizes, buffers)
    if fruitful:
        least = abs(a.item(place))
        tally.offer_rel(abs(block.backend.item(place) - a.item(place)) / least)
        # No quotient exceeds that of the largest difference and the least reference.
        if tally.max_rel is not None and largest * (1.0 + QUOTIENT_SLACK) <= tally.max_rel * least:
            return
    _add_largest(tally, block, magnitudes, nonzero, buffers)


def lowest(values: np.ndarray) -> float:
    """Give the smallest element; NaN if there is one."""
    return float(values.item(values.argmin()))  # faster than a reduction


def _least_above_zero(sizes: np.ndarray, buffers: Scratch) -> int:
    """Give the place of the smallest of float32 magnitudes that is not 0; there is one."""
    # Bits of positive floats are in the order of the floats; those of 0 wrap around to the largest word.
    words = np.subtract(sizes.view(np.uint32), _ONE, out=buffers.singles[4][: sizes.size].view(np.uint32))
    return int(words.argmin())


def _add_largest(
    tally: Tally,
    block: Block,
    magnitudes: tuple[np.ndarray, np.ndarray],
    nonzero: np.ndarray | None,
    buffers: Scratch,
) -> None:
    """Offer the largest quotient; `nonzero` marks references that are not 0, None if none is."""
    error, sizes = magnitudes
    quotient, mask = buffers.singles[4][: error.size], buffers.masks[0][: error.size]
    best = tally.max_rel
    if best is not None and QUOTIENT_LOW < best < QUOTIENT_HIGH:
        # Only an element with error >= best * abs(a) can be larger. A product below the normal range is rounded to a
        # multiple of the smallest denormal, as every error is one, so ">=" misses nothing there either.
        np.multiply(sizes, best * (1.0 - QUOTIENT_SLACK), out=quotient)
        np.greater_equal(error, quotient, out=mask)
        if nonzero is not None:
            np.logical_and(mask, nonzero, out=mask)
        count = int(np.count_nonzero(mask))
        if count <= _FEW:
            _offer_marked(tally, block, mask, count)
            return
    np.divide(error, sizes, out=quotient)
    if nonzero is not None:  # x/0 and 0/0, times 0, are NaN, which fmax leaves out; a masked division is slower
        np.multiply(quotient, nonzero, out=quotient)
    largest = float(np.fmax.reduce(quotient))
    if QUOTIENT_LOW < largest < QUOTIENT_HIGH:
        np.greater_equal(quotient, largest * (1.0 - QUOTIENT_SLACK), out=mask)
    else:  # quotients that leave float32 are not ordered by it
        np.not_equal(sizes, _ZERO, out=mask)
    _offer_marked(tally, block, mask, int(np.count_nonzero(mask)))


def _offer_marked(tally: Tally, block: Block, mask: np.ndarray, count: int) -> None:
    """Offer the largest quotient, in float64, among `count` marked elements."""
    if count == 1:  # as is usual; plain numbers are faster than arrays of one
        place = int(mask.argmax())
        reference = block.reference.item(place)
        tally.offer_rel(abs(block.backend.item(place) - reference) / abs(reference))
    elif count:
        places = mask.nonzero()[0]
        quotients = double_error(block, places) / np.absolute(block.reference[places].astype(np.float64))
        tally.offer_rel(float(np.maximum.reduce(quotients)))


def double_error(block: Block, places: np.ndarray) -> np.ndarray:
    """Give the absolute differences of some elements in float64."""
    a, b = block.reference[places], block.backend[places]
    return np.asarray(np.absolute(b.astype(np.float64) - a))
