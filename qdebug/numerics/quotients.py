"""The largest error of a float32 block relative to its own reference.

Quotients are compared in float32 where rounding cannot change the answer, and decided in float64 among the few
elements that could have the largest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qdebug.numerics.blocks import Scratch
from qdebug.numerics.tally import Block, Tally

__all__ = ["QUOTIENT_HIGH", "QUOTIENT_LOW", "QUOTIENT_SLACK", "add_quotients", "double_error", "lowest"]

QUOTIENT_LOW, QUOTIENT_HIGH = 2.0**-60, 2.0**100
QUOTIENT_SLACK = 2.0**-21
"""More than twice the relative error of a float32 difference divided in float32."""
_FEW = 256
"""Elements that are rather looked at one by one than told apart by a pass over all."""
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
    error, sizes = magnitudes
    nonzero = None
    place = int(sizes.argmin())
    if sizes.item(place) == 0.0:
        nonzero = np.not_equal(sizes, _ZERO, out=buffers.masks[1][: sizes.size])
        zeros = sizes.size - int(np.count_nonzero(nonzero))
        tally.zero_refs += zeros
        if zeros == sizes.size:
            return
    search = _Search(tally, block, error, sizes, nonzero, buffers)
    # Among codes the least above 0 is one step, and its quotient hardly ever so large that it ends the search.
    if (nonzero is not None and block.steps.known and tally.max_rel) or not search.near_zero(place, largest):
        search.everywhere()


def lowest(values: np.ndarray) -> float:
    """Give the smallest element; NaN if there is one."""
    return float(values.item(values.argmin()))  # faster than a reduction


@dataclass(slots=True)
class _Search:
    """The search of a block; `nonzero` marks references that are not 0, None if none is."""

    tally: Tally
    block: Block
    error: np.ndarray
    sizes: np.ndarray
    nonzero: np.ndarray | None
    buffers: Scratch

    def near_zero(self, place: int, largest: float) -> bool:
        """Look at the smallest references, and tell whether no other can have the largest quotient.

        Args:
            place: Where the smallest is.
            largest: The largest difference.
        """
        tally, sizes = self.tally, self.sizes
        if self.nonzero is not None:
            # Bits of positive floats are in the order of the floats; those of 0 wrap around to the largest word.
            words = self.buffers.singles[4][: sizes.size].view(np.uint32)
            place = int(np.subtract(sizes.view(np.uint32), _ONE, out=words).argmin())
        self._offer(place)
        least = sizes.item(place)
        # With a larger reference even the largest difference has no larger quotient.
        bound = largest * (1.0 + QUOTIENT_SLACK) / tally.max_rel if tally.max_rel else math.inf
        if bound < least:
            return True
        if bound > 4 * _FEW * least:  # more than a few, most likely
            return False
        mask = np.less_equal(sizes, bound, out=self.buffers.masks[0][: sizes.size])
        return self._offer_few(mask)

    def everywhere(self) -> None:
        """Look at all elements."""
        error, sizes, nonzero, best = self.error, self.sizes, self.nonzero, self.tally.max_rel
        quotient, mask = self.buffers.singles[4][: error.size], self.buffers.masks[0][: error.size]
        if best is not None and QUOTIENT_LOW < best < QUOTIENT_HIGH:
            # Only an element with error >= best * abs(a) can be larger. A product below the normal range is rounded to
            # a multiple of the smallest denormal, as every error is one, so ">=" misses nothing there either.
            np.multiply(sizes, best * (1.0 - QUOTIENT_SLACK), out=quotient)
            if self._offer_few(np.greater_equal(error, quotient, out=mask)):
                return
        np.divide(error, sizes, out=quotient)
        if nonzero is not None:  # x/0 and 0/0, times 0, are NaN, which fmax leaves out; a masked division is slower
            np.multiply(quotient, nonzero, out=quotient)
        largest = float(np.fmax.reduce(quotient))
        if QUOTIENT_LOW < largest < QUOTIENT_HIGH:
            np.greater_equal(quotient, largest * (1.0 - QUOTIENT_SLACK), out=mask)
        else:  # quotients that leave float32 are not ordered by it
            np.not_equal(sizes, _ZERO, out=mask)
        self._offer_marked(mask)

    def _offer_few(self, mask: np.ndarray) -> bool:
        """Offer the quotients of marked elements whose reference is not 0, unless there are many."""
        if self.nonzero is not None:
            np.logical_and(mask, self.nonzero, out=mask)
        count = np.count_nonzero(mask)
        if count > _FEW:
            return False
        if count == 1:  # as is usual; plain numbers are faster than arrays of one
            self._offer(int(mask.argmax()))
        elif count:
            self._offer_marked(mask)
        return True

    def _offer_marked(self, mask: np.ndarray) -> None:
        places = mask.nonzero()[0]
        quotients = double_error(self.block, places) / np.absolute(self.block.reference[places].astype(np.float64))
        self.tally.offer_rel(float(np.maximum.reduce(quotients)))

    def _offer(self, place: int) -> None:
        reference = self.block.reference.item(place)
        self.tally.offer_rel(abs(self.block.backend.item(place) - reference) / abs(reference))


def double_error(block: Block, places: np.ndarray) -> np.ndarray:
    """Give the absolute differences of some elements in float64."""
    a, b = block.reference[places], block.backend[places]
    return np.asarray(np.absolute(b.astype(np.float64) - a))
