"""Operators that pick elements out of an array or put them into one."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from qdebug.replay.extents import Amount
from qdebug.replay.precision import narrow, widen
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []


def _whole(array: np.ndarray | None) -> list[int] | None:
    return None if array is None else [int(value) for value in array.reshape(-1)]


@kernel("Slice")
def _slice(call: Call) -> np.ndarray:
    """Cut along axes from starts to ends (which may lie beyond the array) by steps."""
    x = call.array(0)
    if call.opset < 10 or call.optional(1) is None:  # a node of another framework may state them as well
        starts, ends = list(call.integers("starts") or ()), list(call.integers("ends") or ())
        axes, steps = call.integers("axes"), None
    else:
        starts, ends = _whole(call.array(1)) or [], _whole(call.array(2)) or []
        axes, steps = _whole(call.optional(3)), _whole(call.optional(4))  # type: ignore[assignment]  # both are sequences
    places = [slice(None)] * x.ndim
    for position, axis in enumerate(axes if axes is not None else range(len(starts))):
        step = 1 if steps is None else steps[position]
        places[axis] = _bounds(starts[position], ends[position], step, x.shape[axis])
    return x[tuple(places)]


def _bounds(start: int, end: int, step: int, size: int) -> slice:
    start, end = (value + size if value < 0 else value for value in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end == -1 else end, step) if size else slice(0, 0)


def _wrapped(index: np.ndarray, size: int) -> np.ndarray:
    """Count negative indices from the end."""
    index = index.astype(np.int64, copy=False)
    return np.where(index < 0, index + size, index)


def _taken(call: Call, count: int) -> Amount:
    """Return what taking so many slices along the attribute's axis comes to."""
    x = call.array(0)
    rest = list(x.shape)
    rest.pop(call.integer("axis", -1 if call.op == "TopK" else 0))
    return Amount(prod(rest) * count, count)


@kernel("Gather", extent=lambda call: _taken(call, call.array(1).size))
def _gather(call: Call) -> np.ndarray:
    """Take slices along an axis."""
    x, axis = call.array(0), call.integer("axis", 0)
    return np.take(x, call.array(1).astype(np.int64), axis=axis)


@kernel("GatherElements", extent=lambda call: Amount(call.array(1).size))
def _gather_elements(call: Call) -> np.ndarray:
    """Take one element for each index, along an axis."""
    x, axis = call.array(0), call.integer("axis", 0)
    index = _wrapped(call.array(1), x.shape[axis])
    places: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
    places[axis] = index
    return np.asarray(x[tuple(places)])


def _slices(call: Call) -> Amount:
    """Return what taking slices at index tuples comes to."""
    index = call.shape(1)
    return Amount(prod(index[:-1]) * prod(call.shape(0)[call.integer("batch_dims", 0) + index[-1] :]))


@kernel("GatherND", extent=_slices)
def _gather_nd(call: Call) -> np.ndarray:
    """Take slices at index tuples, within each batch."""
    x, index, batch = call.array(0), call.array(1).astype(np.int64), call.integer("batch_dims", 0)
    shape = index.shape[:-1]
    places: list[np.ndarray] = []
    for axis in range(batch):
        line = [1] * len(shape)
        line[axis] = shape[axis]
        places.append(np.arange(shape[axis]).reshape(line))
    return np.asarray(x[(*places, *np.moveaxis(index, -1, 0))])


_REDUCTIONS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scatter(call: Call, places: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
    out = np.array(widen(call.array(0)))
    how = call.text("reduction", "none") or "none"
    if how == "none":
        out[places] = widen(updates)
    else:
        _REDUCTIONS[how](out, places, widen(updates))
    return narrow(out, call.array(0).dtype)


@kernel("ScatterElements", "Scatter")
def _scatter_elements(call: Call) -> np.ndarray:
    """Put one element for each index, along an axis."""
    axis = call.integer("axis", 0)
    index = _wrapped(call.array(1), call.array(0).shape[axis])
    places: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
    places[axis] = index
    return _scatter(call, tuple(places), call.array(2))


@kernel("ScatterND")
def _scatter_nd(call: Call) -> np.ndarray:
    """Put slices at index tuples."""
    return _scatter(call, tuple(np.moveaxis(call.array(1).astype(np.int64), -1, 0)), call.array(2))


@kernel("OneHot", extent=lambda call: Amount(call.array(0).size * abs(int(call.array(1).reshape(-1)[0]))))
def _one_hot(call: Call) -> np.ndarray:
    """Put the on-value where the new axis equals the index, the off-value elsewhere."""
    index, values = call.array(0), call.array(2)
    depth = int(call.array(1).reshape(-1)[0])
    axis = call.integer("axis", -1)
    codes = np.expand_dims(np.mod(index.astype(np.int64), depth), axis)
    valid = np.expand_dims((index >= -depth) & (index < depth), axis)
    line = [1] * codes.ndim
    line[axis] = depth
    chosen = (codes == np.arange(depth).reshape(line)) & valid
    return np.asarray(np.where(chosen, values[1], values[0])).astype(values.dtype)


@kernel("NonZero")
def _non_zero(call: Call) -> np.ndarray:
    """Return the indices of the elements that are not 0, one column each."""
    return np.array(np.nonzero(call.array(0)), dtype=np.int64)


@kernel("Compress")
def _compress(call: Call) -> np.ndarray:
    """Keep the slices along an axis, or the elements, for which a condition holds."""
    axis = call.integer("axis") if "axis" in call.attrs else None
    return np.asarray(np.compress(call.array(1), call.array(0), axis=axis))


def _asked(call: Call) -> int:
    return call.integer("k") if call.opset < 10 else int(call.array(1).reshape(()))


@kernel("TopK", extent=lambda call: _taken(call, _asked(call)))
def _top_k(call: Call) -> tuple[np.ndarray, ...]:
    """Return the k largest or smallest elements along an axis and their indices, the first of equals first."""
    x, count = call.array(0), _asked(call)
    axis = call.integer("axis", -1)
    order = widen(x)
    if call.integer("largest", 1):
        order = np.flip(order, axis)
        found = x.shape[axis] - 1 - np.flip(np.argsort(order, axis=axis, kind="stable"), axis)
    else:
        found = np.argsort(order, axis=axis, kind="stable")
    index = np.take(found, np.arange(count), axis=axis).astype(np.int64)
    return np.take_along_axis(x, index, axis=axis), index
