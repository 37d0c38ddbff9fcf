"""In which orders two tensors of as many elements may hold the same values, and a few places that tell which it is.

Any order of dimensions is one, dimensions of one element may be missing on either side, and neighbouring dimensions may
be one. Places are spread evenly and are the same in every run: nothing here is random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from qdebug.model.thresholds.alignment import ARRANGED_MAX_RANK, SAMPLED_PLACES

__all__ = ["AxisOrder", "arrangements", "matched_places", "merges", "places"]

Shape = tuple[int, ...]
_GOLDEN = (math.sqrt(5) - 1) / 2
_KEPT_PAIRS_OF_SHAPES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisOrder:
    """How two tensors are brought into one order: at most one of both is turned.

    Args:
        reference: For each dimension of the common order, which of the reference's it is; None if in order.
        backend: The same of the backend's.
    """

    reference: Shape | None = None
    backend: Shape | None = None


def merges(shape: Shape, merged: Shape) -> bool:
    """Tell whether a shape becomes another by making neighbours one, or is it; but for dimensions of one element."""
    left = [extent for extent in shape if extent != 1]
    for extent in (extent for extent in merged if extent != 1):
        product = 1
        while left and product < extent:
            product *= left.pop(0)
        if product != extent:
            return False
    return not left


@lru_cache(maxsize=_KEPT_PAIRS_OF_SHAPES)
def arrangements(reference: Shape, backend: Shape) -> tuple[AxisOrder, ...]:
    """Return all orders in which tensors of two shapes may be alike, the plain one first.

    A side that has its neighbouring dimensions made one is left as it is, and the other is turned. With more than
    `ARRANGED_MAX_RANK` dimensions of several elements, only the plain order is one.
    """
    theirs, ours = (tuple(extent for extent in shape if extent != 1) for shape in (reference, backend))
    found: dict[AxisOrder, None] = {}
    if merges(theirs, ours) or merges(ours, theirs):
        moved = len(reference) == len(backend) and reference != backend and theirs == ours  # dimensions of one element
        found[AxisOrder(backend=_with_ones(range(len(ours)), backend, reference) if moved else None)] = None
    turns_backend = len(ours) >= len(theirs)
    turned, other = (ours, theirs) if turns_backend else (theirs, ours)
    whole, against = (backend, reference) if turns_backend else (reference, backend)
    for order in permutations(range(len(turned))) if len(turned) <= ARRANGED_MAX_RANK else ():
        if order != tuple(range(len(order))) and merges(tuple(turned[axis] for axis in order), other):
            turn = _with_ones(order, whole, against)
            found[AxisOrder(backend=turn) if turns_backend else AxisOrder(reference=turn)] = None
    return tuple(found)


def _with_ones(order: Sequence[int], shape: Shape, wanted: Shape) -> Shape:
    """Return an order of the dimensions of several elements with those of one put in: where another shape has them."""
    several = iter([axis for axis, extent in enumerate(shape) if extent != 1][axis] for axis in order)
    ones = iter([axis for axis, extent in enumerate(shape) if extent == 1])
    if len(shape) != len(wanted) or shape.count(1) != wanted.count(1):
        return (*ones, *several)
    return tuple(next(ones if extent == 1 else several) for extent in wanted)


@lru_cache(maxsize=_KEPT_PAIRS_OF_SHAPES)
def places(size: int) -> np.ndarray:
    """Return where in a tensor of a size, in C order, its sampled elements are.

    Returns:
        int64 [n], n the number of elements, but `SAMPLED_PLACES` at most: places 1/golden ratio apart (Kronecker).
    """
    if size <= SAMPLED_PLACES:
        return np.arange(size)
    return (size * (np.arange(1, SAMPLED_PLACES + 1) * _GOLDEN % 1)).astype(np.int64)


@lru_cache(maxsize=_KEPT_PAIRS_OF_SHAPES)
def matched_places(order: AxisOrder, reference: Shape, backend: Shape) -> np.ndarray:
    """Return where in a reference tensor, in C order, the elements at the sampled places of a backend tensor are.

    Args:
        order: How both are brought into one order.
        reference: Extents of the reference tensor.
        backend: Extents of the backend tensor.
    """
    at = places(math.prod(backend))
    if order.backend is not None:
        there = np.unravel_index(at, backend)
        turned = [there[axis] for axis in order.backend]
        return np.ravel_multi_index(turned, [backend[axis] for axis in order.backend]).astype(np.int64)
    if order.reference is None:
        return at
    there = np.unravel_index(at, [reference[axis] for axis in order.reference])
    own = [there[order.reference.index(axis)] for axis in range(len(reference))]
    return np.ravel_multi_index(own, reference).astype(np.int64)
