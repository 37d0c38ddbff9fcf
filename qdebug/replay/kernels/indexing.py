"""Operators that gather elements from an array or scatter elements into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from qdebug.replay.extents import Cost
from qdebug.replay.kernels.linear import unpack_weight
from qdebug.replay.precision import narrow, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.within import normalize_axis, normalize_indices

__all__ = ["look_up", "table_lookup_cost"]


def _to_integers(array: np.ndarray | None) -> tuple[int, ...] | None:
    return None if array is None else tuple(int(value) for value in array.reshape(-1))


@kernel("Slice")
def _slice(call: Call) -> np.ndarray:
    """Slice along axes from starts to ends (which may exceed the array) with steps."""
    x = call.array(0)
    if call.opset < 10 or call.optional(1) is None:  # other frameworks may also state the limits as attributes
        starts, ends, axes, steps = (*(call.integers(name) for name in ("starts", "ends", "axes")), None)
    else:
        starts, ends, axes, steps = (_to_integers(call.optional(slot)) for slot in range(1, 5))
    starts, ends = starts or (), ends or ()
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(axes) if steps is None else steps
    slices = [slice(None)] * x.ndim
    for stated_axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = normalize_axis(stated_axis, x.ndim)
        slices[axis] = _slice_bounds(start, end, step, x.shape[axis])
    return x[tuple(slices)]


def _slice_bounds(start: int, end: int, step: int, size: int) -> slice:
    start, end = (value + size if value < 0 else value for value in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end == -1 else end, step) if size else slice(0, 0)


def _gather_cost(call: Call, count: int) -> Cost:
    """Estimate the cost of gathering slices along the attribute's axis."""
    x = call.array(0)
    rest = list(x.shape)
    rest.pop(call.axis(x.ndim, -1 if call.op == "TopK" else 0))
    return Cost(prod(rest) * count, count)


@kernel("Gather", cost=lambda call: _gather_cost(call, call.array(1).size))
def _gather(call: Call) -> np.ndarray:
    """Gather slices along an axis."""
    x = call.array(0)
    axis = call.axis(x.ndim)
    return np.take(x, normalize_indices(call.array(1), x.shape[axis]), axis=axis)


def table_lookup_cost(call: Call) -> Cost:
    """Estimate the cost of a lookup in a table of packed codes, with up to four codes per byte."""
    data = call.array(0)
    axis = normalize_axis(call.integer("gather_axis"), data.ndim)
    count = call.array(1).size
    per_byte = 8 // max(abs(call.integer("bits", 4)), 1) if data.dtype == np.uint8 else 1
    return Cost(data.size // max(data.shape[axis], 1) * count * max(per_byte, 1), data.size)


def look_up(call: Call, rounded: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
    """Gather slices of a table of packed codes along `gather_axis` as real numbers. Invalid indices give 0.

    Args:
        call: A GatherBlockQuantized.
        rounded: Called with the centered codes; returns the codes to compute with.
    """
    data, indices, scales, points = call.array(0), call.array(1).astype(np.int64), call.array(2), call.optional(3)
    axis = normalize_axis(call.integer("gather_axis"), data.ndim)
    count = data.shape[axis]
    for parameter in (scales, points):
        if parameter is not None and (parameter.ndim != data.ndim or not data.size):
            raise ValueError(f"a table of shape {list(data.shape)} cannot have scales of shape {list(parameter.shape)}")
    inside = (indices >= -count) & (indices < count)
    used, inverse = np.unique(np.where(inside, indices % max(count, 1), 0), return_inverse=True)
    if axis == normalize_axis(call.integer("quantize_axis", 1), data.ndim):
        used, inverse = np.arange(count), used[inverse]  # blocks extend over several slices, so all are needed
    else:  # a table may have 100,000 rows, of which few are looked up
        if any(parameter is not None and parameter.shape[axis] != count for parameter in (scales, points)):
            raise ValueError(f"{count} rows of codes do not match scales of shape {list(scales.shape)}")
        data, scales = (np.take(array, used, axis=axis) for array in (data, scales))
        points = None if points is None else np.take(points, used, axis=axis)
    codes, steps = unpack_weight(replace(call, inputs=(data, indices, scales, points)))
    table = np.asarray(rounded(codes) * steps)
    out = np.take(table, inverse.reshape(indices.shape), axis=axis)
    is_valid = inside.reshape(*indices.shape, *(1,) * (data.ndim - axis - 1))
    return narrow(np.where(is_valid, out, np.float32(0)), call.array(2).dtype)


@kernel("GatherBlockQuantized", domain="com.microsoft", cost=table_lookup_cost, ranks=(1,))
def _gather_blocks(call: Call) -> np.ndarray:
    """Gather slices of a table of codes with one scale per block."""
    return look_up(call)


def _element_indices(call: Call) -> tuple[np.ndarray, ...]:
    """Return the index arrays of the elements selected along an axis, one array per axis.

    Raises:
        ValueError: The indices exceed the first input.
    """
    shape, index = call.shape(0), call.array(1)
    axis = call.axis(len(shape))
    extents = zip(index.shape, shape, strict=True)
    if any(size > extent for at, (size, extent) in enumerate(extents) if at != axis):
        raise ValueError(f"indices of {list(index.shape)} reach beyond {list(shape)}")
    all_indices: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
    all_indices[axis] = normalize_indices(index, shape[axis])
    return tuple(all_indices)


def _slice_indices(index: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return the components of index tuples, which lie along the last axis.

    Raises:
        ValueError: The tuples are longer than the shape, or exceed it.
    """
    if index.shape[-1] > len(shape):
        raise ValueError(f"{index.shape[-1]} indices are too many for {list(shape)}")
    return [normalize_indices(part, size) for part, size in zip(np.moveaxis(index, -1, 0), shape, strict=False)]


@kernel("GatherElements", cost=lambda call: Cost(call.array(1).size))
def _gather_elements(call: Call) -> np.ndarray:
    """Gather one element for each index, along an axis."""
    return np.asarray(call.array(0)[_element_indices(call)])


def _slice_gather_cost(call: Call) -> Cost:
    """Estimate the cost of gathering slices at index tuples."""
    index = call.shape(1)
    return Cost(prod(index[:-1]) * prod(call.shape(0)[call.integer("batch_dims", 0) + index[-1] :]))


@kernel("GatherND", cost=_slice_gather_cost, ranks=(0, 1))
def _gather_nd(call: Call) -> np.ndarray:
    """Gather slices at index tuples, within each batch."""
    x, index, batch = call.array(0), call.array(1).astype(np.int64), call.integer("batch_dims", 0)
    shape = index.shape[:-1]
    if not 0 <= batch <= len(shape) or x.shape[:batch] != shape[:batch]:
        raise ValueError(f"the first {batch} axes of {list(x.shape)} and {list(index.shape)} must be equal")
    indices_by_axis: list[np.ndarray] = []
    for axis in range(batch):
        line = [1] * len(shape)
        line[axis] = shape[axis]
        indices_by_axis.append(np.arange(shape[axis]).reshape(line))
    return np.asarray(x[(*indices_by_axis, *_slice_indices(index, x.shape[batch:]))])


_REDUCTIONS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scatter(call: Call, index_arrays: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
    out = np.array(widen(call.array(0)))
    reduction, added = call.choice("reduction", ("none", *_REDUCTIONS), "none"), narrow(widen(updates), out.dtype)
    index_shape = np.broadcast_shapes(*(index_array.shape for index_array in index_arrays))
    added = np.broadcast_to(added, (*index_shape, *out.shape[len(index_arrays) :]))
    if reduction == "none":
        out[index_arrays] = added
    else:
        _REDUCTIONS[reduction](out, index_arrays, added)
    return narrow(out, call.array(0).dtype)


@kernel("ScatterElements", "Scatter")
def _scatter_elements(call: Call) -> np.ndarray:
    """Write one element for each index, along an axis."""
    return _scatter(call, _element_indices(call), call.array(2))


@kernel("ScatterND", ranks=(1, 1))
def _scatter_nd(call: Call) -> np.ndarray:
    """Write slices at index tuples."""
    return _scatter(call, tuple(_slice_indices(call.array(1), call.shape(0))), call.array(2))


@kernel("OneHot", cost=lambda call: Cost(call.array(0).size * abs(call.whole(1))))
def _one_hot(call: Call) -> np.ndarray:
    """Return the on-value where the index equals the position along the new axis, and the off-value elsewhere."""
    index, depth, values = call.array(0), call.whole(1), call.array(2)
    off, on = values.reshape(2)
    axis = call.integer("axis", -1)
    codes = np.expand_dims(np.mod(index.astype(np.int64), depth), axis)
    valid = np.expand_dims((index >= -depth) & (index < depth), axis)
    line = [1] * codes.ndim
    line[axis] = depth
    chosen = (codes == np.arange(depth).reshape(line)) & valid
    return np.asarray(np.where(chosen, on, off)).astype(values.dtype)


@kernel("NonZero")
def _non_zero(call: Call) -> np.ndarray:
    """Return the indices of the elements that are not 0, one column each."""
    return np.array(np.nonzero(call.array(0)), dtype=np.int64)


@kernel("Compress")
def _compress(call: Call) -> np.ndarray:
    """Keep the slices along an axis, or the elements, selected by a condition."""
    x = call.array(0)
    axis = call.axis(x.ndim) if "axis" in call.attrs else None
    normalize_indices(np.flatnonzero(call.array(1)), x.size if axis is None else x.shape[axis])
    return np.asarray(np.compress(call.array(1), x, axis=axis))


def _requested_count(call: Call) -> int:
    return call.integer("k") if call.opset < 10 else call.whole(1)


@kernel("TopK", cost=lambda call: _gather_cost(call, _requested_count(call)))
def _top_k(call: Call) -> tuple[np.ndarray, ...]:
    """Return the k largest or smallest elements along an axis and their indices. Ties keep their order."""
    x, count = call.array(0), _requested_count(call)
    axis = call.axis(x.ndim, -1)
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"{count} of {x.shape[axis]} elements are requested")
    order = widen(x)
    if call.integer("largest", 1):
        order = np.flip(order, axis)
        sorted_indices = x.shape[axis] - 1 - np.flip(np.argsort(order, axis=axis, kind="stable"), axis)
    else:
        sorted_indices = np.argsort(order, axis=axis, kind="stable")
    index = np.take(sorted_indices, np.arange(count), axis=axis).astype(np.int64)
    return np.take_along_axis(x, index, axis=axis), index
