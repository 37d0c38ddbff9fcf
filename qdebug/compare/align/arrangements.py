"""Orders in which two tensors of equal size may hold the same values, and sampled elements that identify the right one.

Any permutation of dimensions is possible, dimensions of extent 1 may be missing on either side, and neighbouring
dimensions may be merged. Samples are spread evenly and are the same in every run: nothing is random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np

from qdebug.model.thresholds.alignment import ARRANGED_MAX_RANK, SAMPLED_PLACES

__all__ = ["AxisOrder", "arrangements", "can_merge_into", "matched_positions", "sample_positions"]

Shape = tuple[int, ...]
_GOLDEN = (math.sqrt(5) - 1) / 2
_CACHED_SHAPE_PAIRS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisOrder:
    """Permutations that bring two tensors into one order. At most one of the two tensors is permuted.

    Args:
        reference: The reference's dimension for each dimension of the common order, or None for no permutation.
        backend: The backend's dimension for each dimension of the common order, or None for no permutation.
    """

    reference: Shape | None = None
    backend: Shape | None = None


def can_merge_into(shape: Shape, merged: Shape) -> bool:
    """Return whether merging neighbouring dimensions turns one shape into the other, ignoring extents of 1."""
    extents = [extent for extent in shape if extent != 1]
    for extent in (extent for extent in merged if extent != 1):
        product = 1
        while extents and product < extent:
            product *= extents.pop(0)
        if product != extent:
            return False
    return not extents


@lru_cache(maxsize=_CACHED_SHAPE_PAIRS)
def arrangements(reference: Shape, backend: Shape) -> tuple[AxisOrder, ...]:
    """Return all orders in which tensors of two shapes may hold the same values, starting with the unpermuted one.

    A side with merged dimensions is left unchanged, and the other side is permuted. With more than `ARRANGED_MAX_RANK`
    dimensions of more than one element, only the unpermuted order is tried.
    """
    reference_extents, backend_extents = (
        tuple(extent for extent in shape if extent != 1) for shape in (reference, backend)
    )
    orders: dict[AxisOrder, None] = {}
    if can_merge_into(reference_extents, backend_extents) or can_merge_into(backend_extents, reference_extents):
        # Only dimensions of size 1 moved.
        moved = len(reference) == len(backend) and reference != backend and reference_extents == backend_extents
        orders[
            AxisOrder(backend=_insert_unit_axes(range(len(backend_extents)), backend, reference) if moved else None)
        ] = None
    permutes_backend = len(backend_extents) >= len(reference_extents)
    longer, shorter = (backend_extents, reference_extents) if permutes_backend else (reference_extents, backend_extents)
    longer_shape, shorter_shape = (backend, reference) if permutes_backend else (reference, backend)
    for order in permutations(range(len(longer))) if len(longer) <= ARRANGED_MAX_RANK else ():
        if order != tuple(range(len(order))) and can_merge_into(tuple(longer[axis] for axis in order), shorter):
            permutation = _insert_unit_axes(order, longer_shape, shorter_shape)
            orders[AxisOrder(backend=permutation) if permutes_backend else AxisOrder(reference=permutation)] = None
    return tuple(orders)


def _insert_unit_axes(order: Sequence[int], shape: Shape, target: Shape) -> Shape:
    """Insert dimensions of extent 1 into an order wherever the target shape has them."""
    other_axes = iter([axis for axis, extent in enumerate(shape) if extent != 1][axis] for axis in order)
    unit_axes = iter([axis for axis, extent in enumerate(shape) if extent == 1])
    if len(shape) != len(target) or shape.count(1) != target.count(1):
        return (*unit_axes, *other_axes)
    return tuple(next(unit_axes if extent == 1 else other_axes) for extent in target)


@lru_cache(maxsize=_CACHED_SHAPE_PAIRS)
def sample_positions(size: int) -> np.ndarray:
    """Return the flat indices, in C order, at which a tensor of the given size is sampled.

    Returns:
        int64 [n], where n is the number of elements, at most `SAMPLED_PLACES`. Indices are spaced by 1/golden ratio
            (Kronecker).
    """
    if size <= SAMPLED_PLACES:
        return np.arange(size)
    return (size * (np.arange(1, SAMPLED_PLACES + 1) * _GOLDEN % 1)).astype(np.int64)


@lru_cache(maxsize=_CACHED_SHAPE_PAIRS)
def matched_positions(order: AxisOrder, reference: Shape, backend: Shape) -> np.ndarray:
    """Return the flat indices in a reference tensor, in C order, that match the sampled elements of a backend tensor.

    Args:
        order: The permutations of both tensors.
        reference: Extents of the reference tensor.
        backend: Extents of the backend tensor.
    """
    flat_indices = sample_positions(math.prod(backend))
    if order.backend is not None:
        coordinates = np.unravel_index(flat_indices, backend)
        permuted_coordinates = [coordinates[axis] for axis in order.backend]
        return np.ravel_multi_index(permuted_coordinates, [backend[axis] for axis in order.backend]).astype(np.int64)
    if order.reference is None:
        return flat_indices
    coordinates = np.unravel_index(flat_indices, [reference[axis] for axis in order.reference])
    indices = [coordinates[order.reference.index(axis)] for axis in range(len(reference))]
    return np.ravel_multi_index(indices, reference).astype(np.int64)
