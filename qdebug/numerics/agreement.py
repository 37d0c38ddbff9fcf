"""Agreement of several backends: if all differ from the reference, do they have the same value?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.numerics.accumulate import has_same_elements
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.block_error import exact_difference, read_block
from qdebug.numerics.blocks import RealBlocks, Scratch, make_comparable, scratch
from qdebug.numerics.lsb import LsbSizes

__all__ = ["Agreement", "count_agreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of several backends on one tensor.

    Args:
        elements: Elements compared.
        differ: Elements in which every backend differs from the reference.
        same: Elements of `differ` in which all backends have the same value.
    """

    elements: int = 0
    differ: int = 0
    same: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        """Add the counts of another array for the same tensor."""
        return Agreement(
            elements=self.elements + other.elements, differ=self.differ + other.differ, same=self.same + other.same
        )


def count_agreement(pairs: Sequence[tuple[RealBlocks, RealBlocks]]) -> Agreement:
    """Count the elements in which all backends differ from the reference, and those of them in which they are equal.

    Real values are compared as in error metrics. NaN equals NaN.

    Args:
        pairs: For each backend, the reference's tensor and the backend's, of equal shapes except for extents of 1.

    Raises:
        UsageError: A shape differs.
    """
    shape = pairs[0][0].shape
    for pair in pairs:
        for side in pair:
            if not has_same_elements(shape, side.shape):
                raise UsageError(f"The reference has shape {shape}, but a backend has {side.shape}.")
    size, buffers, differ, same = pairs[0][0].size, scratch(), 0, 0
    against = [make_comparable(*pair) for pair in pairs]
    together = [make_comparable(pairs[0][1], backend) for _, backend in pairs[1:]]
    with np.errstate(all="ignore"):
        for start in range(0, size, BLOCK):
            span = start, min(start + BLOCK, size)
            everywhere = _mark_differences(against[0], span, buffers)
            for pair in against[1:]:
                everywhere &= _mark_differences(pair, span, buffers)
            differ += int(np.count_nonzero(everywhere))
            for pair in together:
                everywhere &= ~_mark_differences(pair, span, buffers)
            same += int(np.count_nonzero(everywhere))
    return Agreement(elements=size, differ=differ, same=same)


def _mark_differences(sides: tuple[RealBlocks, RealBlocks], span: tuple[int, int], buffers: Scratch) -> np.ndarray:
    """Return a mask of the elements that differ."""
    if sides[0].wide or sides[1].wide:
        block = read_block(sides, span, LsbSizes(None, ()), buffers)
        reference, backend = block.reference, block.backend
        difference = exact_difference(block)
        unequal = np.where(np.isfinite(difference), difference != 0.0, reference != backend)
    else:
        reference = sides[0].read_double(*span, buffers.doubles[0], buffers.singles[0])
        backend = sides[1].read_double(*span, buffers.doubles[1], buffers.singles[0])
        unequal = reference != backend
    if unequal.any():
        unequal &= ~(np.isnan(reference) & np.isnan(backend))
    return np.asarray(unequal)
