"""Known kernel mistakes in indexing, scattering, slicing and blocked memory. Begin at `index_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS

__all__ = ["index_mistakes"]


def index_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the indices of a node.

    Args:
        node: The node's real form.
        values: Its inputs.
    """
    yield from _wrong_indices(node, values)
    yield from _channels_in_blocks(node, values)
    yield from _wrong_updates(node, values)
    yield from _wrong_slice_starts(node, values)


def _wrong_slice_starts(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a slice of the same length starts at another index, nearest indices first."""
    if node.op != "Slice" or not _SLICE_INPUTS_WITHOUT_STEPS <= len(node.inputs) <= _SLICE_INPUTS_WITH_STEPS:
        return
    data, starts, ends, axes, *steps = (values[name] for name in node.inputs if name)
    if any(limit.size != 1 for limit in (starts, ends, axes, *steps)):
        return
    if steps and steps[0].reshape(-1)[0] != 1:
        yield from _ignored_steps(node, data, starts, int(axes.reshape(-1)[0]))
        return
    extent = data.shape[int(axes.reshape(-1)[0])]
    start, end, _ = slice(int(starts.reshape(-1)[0]), int(ends.reshape(-1)[0])).indices(extent)
    for other in sorted(range(extent - max(end - start, 0) + 1), key=lambda each: abs(each - start))[
        1:_MAX_STARTS_TRIED
    ]:
        limits = {node.inputs[1]: np.full_like(starts, other), node.inputs[2]: np.full_like(ends, other + end - start)}
        yield Mistake(likely=f"its slice begins at {other}, not at {start}", node=node, values=limits)


def _ignored_steps(node: Node, data: np.ndarray, starts: np.ndarray, axis: int) -> Iterator[Mistake]:
    """Yield the mistake of ignoring the step of a slice: as many elements as it should have, but adjacent ones."""
    start = int(starts.reshape(-1)[0])

    def adjacent(result: np.ndarray) -> np.ndarray:
        begin = start % data.shape[axis]
        taken = data.take(range(begin, min(begin + result.shape[axis], data.shape[axis])), axis)
        return taken if taken.shape == result.shape else result

    yield Mistake(likely="the step is ignored", node=node, values={}, after=adjacent)


_MAX_STARTS_TRIED = 257
_SLICE_INPUTS_WITH_STEPS = 5


def _wrong_updates(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes of scatters: updates that are skipped or written elsewhere, and repeated indices."""
    positions = _written_positions(node, values)
    if positions is None:
        return
    data, indices, updates = (values[name] for name in node.inputs[:3])
    name, reduction = node.inputs[2], str(node.attrs.get("reduction", "none"))
    present = data[positions]
    skipped = present if reduction == "none" else np.full_like(updates, _NEUTRAL.get(reduction, 0))
    if node.op != "ScatterND" and np.any(indices < 0):
        kept = np.where(indices < 0, skipped, updates)
        yield Mistake(likely="negative indices are skipped", node=node, values={name: kept.astype(updates.dtype)})
    if reduction == "add":
        last = replace(node, attrs={**node.attrs, "reduction": "none"})
        likely = "of repeated indices, only the last one is added"
        yield Mistake(likely=likely, node=last, values={name: (present + updates).astype(updates.dtype)})
    yield from _unwritten_updates(node, name, updates, skipped)
    yield from _moved_updates(node, data, indices)


def _written_positions(node: Node, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...] | None:
    """Return the index arrays of the elements or slices that a scatter writes, or None for other operators."""
    if node.op not in ("Scatter", "ScatterElements", "ScatterND") or not all(node.inputs[:3]):
        return None
    data, indices = (values[name] for name in node.inputs[:2])
    if node.op == "ScatterND":
        return tuple(np.moveaxis(indices, -1, 0)) if indices.ndim and indices.shape[-1] <= data.ndim else None
    axis = node.attrs.get("axis", 0)
    if not isinstance(axis, int) or data.ndim != indices.ndim:
        return None
    positions = list(np.meshgrid(*map(np.arange, indices.shape), indexing="ij", sparse=True))
    positions[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
    return tuple(positions)


def _unwritten_updates(node: Node, name: str, updates: np.ndarray, skipped: np.ndarray) -> Iterator[Mistake]:
    """Yield scatters that write no update, or only those at one side of an index along an axis of the updates.

    Args:
        node: The scatter.
        name: The updates.
        updates: Their values.
        skipped: Values in place of the updates that leave the data unchanged.
    """
    likely = f"{name!r} is not written: the result is {node.inputs[0]!r}"
    yield Mistake(likely=likely, node=node, values={name: np.broadcast_to(skipped, updates.shape)}, about=name)
    for axis, extent in enumerate(updates.shape):
        for end in (end for end in range(1, extent) if extent <= _MAX_STARTS_TRIED):
            is_first = np.arange(extent).reshape([-1 if at == axis else 1 for at in range(updates.ndim)]) < end
            for keeps_first, words in ((True, f"before index {end}"), (False, f"from index {end} on")):
                kept = np.where(is_first == keeps_first, updates, skipped).astype(updates.dtype)
                likely = f"{name!r} is written only {words} along axis {axis}"
                yield Mistake(likely=likely, node=node, values={name: kept}, about=name)


def _moved_updates(node: Node, data: np.ndarray, indices: np.ndarray) -> Iterator[Mistake]:
    """Yield scatters whose indices are off by one along one axis of the data, or confuse two axes."""
    name, axis = node.inputs[1], int(str(node.attrs.get("axis", 0)))
    moving_axes = range(indices.shape[-1]) if node.op == "ScatterND" else (axis,)
    for part, along in enumerate(moving_axes):
        for step, words in ((1, "one too large"), (-1, "one too small")):
            moved = indices.copy()
            column = moved[..., part] if node.op == "ScatterND" else moved
            column[...] = np.mod(column + step, data.shape[along])
            likely = f"indices along axis {along % data.ndim} of {node.inputs[0]!r} are {words}"
            yield Mistake(likely=likely, node=node, values={name: moved}, about=name)
    for other in range(data.ndim) if node.op != "ScatterND" else ():
        if other != axis % data.ndim and indices.max(initial=0) < data.shape[other]:
            turned = replace(node, attrs={**node.attrs, "axis": other})
            yield Mistake(likely=f"it writes along axis {other}, not {axis}", node=turned, values={})


_NEUTRAL: Mapping[str, float] = MappingProxyType({"add": 0, "mul": 1, "min": np.inf, "max": -np.inf})
"""Neutral element of each reduction."""


_INDEXING_OPS = ("Gather", "GatherElements", "GatherND")


def _wrong_indices(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in the indices of a gather: wrong handling of negative ones, off by one, or along another axis."""
    if node.op not in _INDEXING_OPS or len(node.inputs) < 2:
        return
    data, name = values[node.inputs[0]], node.inputs[1]
    indices, axis = values[name], node.attrs.get("axis", 0)
    negative = indices < 0
    if negative.any() and np.any(~negative):
        zero_negative = partial(_with_zeros, negative=_broadcast_negative(node, data, negative))
        zeroed = np.where(negative, 0, indices)
        yield Mistake(likely="negative indices return 0", node=node, values={name: zeroed}, after=zero_negative)
        yield Mistake(likely="negative indices are treated as 0", node=node, values={name: zeroed})
        if isinstance(axis, int) and node.op != "GatherND":
            last_index = np.where(negative, data.shape[axis] - 1, indices)
            likely = "negative indices are treated as the last index"
            yield Mistake(likely=likely, node=node, values={name: last_index}, about="indices")
            absolute = np.where(negative, -indices, indices)
            if np.all(absolute < data.shape[axis]):
                yield Mistake(likely="the sign of negative indices is dropped", node=node, values={name: absolute})
    if isinstance(axis, int) and negative.any() and node.op == "GatherElements" and data.ndim == indices.ndim:
        own_axis = axis % data.ndim
        positions = list(np.meshgrid(*map(np.arange, indices.shape), indexing="ij", sparse=True))
        positions[own_axis] = indices
        strides = np.cumprod((1, *data.shape[:0:-1]))[::-1]
        offsets = sum(position * stride for position, stride in zip(positions, strides, strict=True))
        result = np.take(data.reshape(-1), offsets, mode="wrap")
        likely = "negative indices are not counted from the end and read the memory before the start"
        yield Mistake(likely=likely, node=node, values={}, after=always(result))
    if isinstance(axis, int) and node.op == "Gather":
        for other_axis in range(data.ndim):
            if other_axis != axis % data.ndim and np.all(
                (indices >= -data.shape[other_axis]) & (indices < data.shape[other_axis])
            ):
                other_axis_node = replace(node, attrs={**node.attrs, "axis": other_axis})
                yield Mistake(likely=f"it picks along axis {other_axis}, not {axis}", node=other_axis_node, values={})
    if isinstance(axis, int) and node.op != "GatherND":
        extent = data.shape[axis]
        for step, likely in ((1, "one too large"), (-1, "one too small")):
            shifted_indices = np.mod(indices + step, extent).astype(indices.dtype)
            yield Mistake(likely=f"indices are {likely}", node=node, values={name: shifted_indices})


def _broadcast_negative(node: Node, data: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return a mask, broadcastable to the result, of the elements that negative indices pick."""
    axis = node.attrs.get("axis", 0)
    if node.op == "GatherElements" or not isinstance(axis, int):
        return negative
    if node.op == "GatherND":
        return np.asarray(negative.any(axis=-1))
    trailing_axes = data.ndim - axis % data.ndim - 1
    return negative.reshape(*negative.shape, *(1,) * trailing_axes)


def _with_zeros(result: np.ndarray, *, negative: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(np.where(negative, result.dtype.type(0), result))
    except ValueError:
        return result


def _channels_in_blocks(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of slicing channels that are stored in blocks by reading past the end of the first block."""
    if node.op != "Slice" or len(node.inputs) != _SLICE_INPUTS_WITHOUT_STEPS:
        return
    data, *limits = (values[name] for name in node.inputs)
    if data.ndim <= _ROWS_AND_CHANNELS or any(limit.size != 1 for limit in limits):
        return
    begin, end, axis = (int(limit.reshape(-1)[0]) for limit in limits)
    if axis % data.ndim != 1 or not 0 <= begin < end <= data.shape[1]:
        return
    for block in KERNEL_BLOCKS:
        if begin % block and begin // block < (end - 1) // block:
            yield Mistake(
                likely=f"its channels are stored in blocks of {block}, and those after its first block are read past "
                "the end of that block",
                node=node,
                values={},
                after=partial(_read_past_block, data=data, begin=begin, block=block),
            )


_SLICE_INPUTS_WITHOUT_STEPS = 4
"""Number of inputs of a Slice with axes but without steps."""


_ROWS_AND_CHANNELS = 2


def _read_past_block(result: np.ndarray, *, data: np.ndarray, begin: int, block: int) -> np.ndarray:
    """Return a slice of channels as a kernel reads it that never leaves the memory layout of the first block.

    Args:
        result: The right slice.
        data: The sliced tensor, (rows, channels, ...).
        begin: The first channel.
        block: Number of channels in a block of memory.
    """
    rows, channels = data.shape[:2]
    padded = np.zeros((rows, -(-channels // block) * block, prod(data.shape[2:])), data.dtype)
    padded[:, :channels] = data.reshape(rows, channels, -1)
    positions_per_channel = padded.shape[2]
    memory = padded.reshape(rows, -1, block, positions_per_channel).swapaxes(2, 3).reshape(rows, -1)
    first = begin // block * block * positions_per_channel + begin % block
    offsets = first + np.arange(result.shape[1])[:, None] + np.arange(positions_per_channel) * block
    return memory[:, np.minimum(offsets, memory.shape[1] - 1)].reshape(result.shape)
