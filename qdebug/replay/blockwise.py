"""Apply element-wise or row-wise functions to huge arrays block by block.

Intermediate results then stay in a core's cache, and each block is a checkpoint for cancellation. The result equals
that of the function on whole arrays, bit for bit and in memory order, which determines the order of later sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from qdebug.numerics.checkpoint import checkpoint

__all__ = ["by_rows", "elementwise", "parameter_block", "split_shape"]

_BLOCK = 1 << 16
"""Elements per block."""
_LARGE = 1 << 20
"""Largest array that is not split: a few milliseconds of work."""


def split_shape(shape: tuple[int, ...], limit: int) -> Iterator[tuple[slice, ...]]:
    """Yield the blocks that partition a shape, each as one slice per axis.

    A block is a range along one axis. It has a single index along earlier axes and spans the later axes.

    Args:
        shape: The shape.
        limit: Maximum elements of a block.
    """
    if not shape or prod(shape) <= limit:
        yield tuple(slice(0, n) for n in shape)
        return
    inner = 1
    axis = len(shape)
    while inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    axis -= 1
    step = max(1, limit // inner)
    rest = tuple(slice(0, n) for n in shape[axis + 1 :])
    for leading_index in np.ndindex(*shape[:axis]):
        for first in range(0, shape[axis], step):
            yield (*(slice(i, i + 1) for i in leading_index), slice(first, min(first + step, shape[axis])), *rest)


def parameter_block(parameter: np.ndarray, block: tuple[slice, ...]) -> np.ndarray:
    """Return the part of a parameter that broadcasts to a block."""
    if parameter.ndim == 0:
        return parameter
    index = tuple(part if size > 1 else slice(None) for size, part in zip(parameter.shape, block, strict=True))
    return np.asarray(parameter[index])


def elementwise(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """Apply an element-wise function to arrays that broadcast together.

    Args:
        function: Called with one block of each array; returns an array of their broadcast shape. Each element of the
            result must depend only on the elements at the same position.
        arrays: The operands.
    """
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError:
        return function(*arrays)  # let numpy raise the error, which names the shapes
    order = _memory_order(shape, arrays) if prod(shape) > _LARGE else None
    if order is None:
        return function(*arrays)
    permuted = [
        array.reshape((1,) * (len(shape) - array.ndim) + array.shape).transpose(order) if array.ndim else array
        for array in arrays
    ]
    sizes = tuple(shape[axis] for axis in order)
    out: np.ndarray | None = None
    for block in split_shape(sizes, _BLOCK):
        checkpoint()
        part = function(*(parameter_block(array, block) for array in permuted))
        if out is None:
            out = np.empty(sizes, part.dtype)
        out[block] = part
    return function(*arrays) if out is None else out.transpose(np.argsort(order))


def _memory_order(shape: tuple[int, ...], arrays: tuple[np.ndarray, ...]) -> tuple[int, ...] | None:
    """Return the axes of a result from outermost to innermost in memory; None if the operands share no such order."""
    c_order = tuple(range(len(shape)))
    full_shape = [array for array in arrays if array.shape == shape]
    order = c_order if not full_shape else tuple(sorted(c_order, key=lambda axis: -full_shape[0].strides[axis]))
    if all(array.flags.c_contiguous for array in full_shape):
        order = c_order
    elif not all(array.transpose(order).flags.c_contiguous for array in full_shape):
        return None
    for array in arrays:
        is_vector = sum(size > 1 for size in array.shape) <= 1
        if array.shape != shape and not is_vector and not (order == c_order and array.flags.c_contiguous):
            return None
    return order


def by_rows(
    function: Callable[[np.ndarray], tuple[np.ndarray, ...]], array: np.ndarray, axes: int
) -> tuple[np.ndarray, ...]:
    """Apply a function to blocks of an array along its leading axes.

    Args:
        function: Called with a block that keeps all dimensions; returns arrays with the same extents along the leading
            axes. The results at a leading index must depend only on the elements at that index.
        array: The array.
        axes: Number of leading axes.
    """
    leading_shape = array.shape[:axes]
    if array.size <= _LARGE or prod(leading_shape) < 2 or not array.flags.c_contiguous:
        return function(array)
    inner = prod(array.shape[axes:])
    out: list[np.ndarray] = []
    for block in split_shape(leading_shape, max(_BLOCK // inner, 1)):
        checkpoint()
        parts = function(array[block])
        if not out:
            out = [np.empty((*leading_shape, *part.shape[axes:]), part.dtype) for part in parts]
        for result, part in zip(out, parts, strict=True):
            result[block] = part
    return tuple(out)
