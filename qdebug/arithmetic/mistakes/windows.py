"""Known kernel mistakes in the padding and the groups of convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, without_inputs
from qdebug.model import Node, operators

__all__ = ["window_mistakes"]


def window_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the padding and the groups of a node.

    Args:
        node: The node's real-valued form.
        values: Its inputs.
    """
    yield from _padding_mistakes(node, values)
    yield from _summed_groups(node, values)


def _padding_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield windows with different values in their padding."""
    data, pads = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("pads")
    row = operators.of(node.op)
    if data is None or data.dtype.kind != "f" or not row.windowed or node.attrs.get("channels_last"):
        return
    sizes = [int(pad) for pad in pads if isinstance(pad, int)] if isinstance(pads, tuple) else []
    axes = data.ndim - 2
    if axes < 1 or len(sizes) != 2 * axes or not any(sizes) or min(sizes) < 0:
        return
    widths = [(0, 0), (0, 0), *zip(sizes[:axes], sizes[axes:], strict=True)]
    unpadded = replace(
        node, attrs={name: value for name, value in node.attrs.items() if name not in ("pads", "auto_pad")}
    )
    name = node.inputs[0]
    if row.selects:
        yield Mistake(
            likely="the padding counts as 0 instead of being ignored",
            node=unpadded,
            values={name: np.pad(data, widths)},
        )
    for mode, likely in _FILLINGS:
        if mode == "edge" or all(max(each) < size for each, size in zip(widths, data.shape, strict=True)):
            filled = np.pad(data, widths, mode=mode)  # type: ignore[call-overload]  # a literal to numpy's stubs
            yield Mistake(
                likely=f"the padding repeats {likely} instead of being empty", node=unpadded, values={name: filled}
            )
    for memory, order in _MEMORY_ORDERS.items():
        if data.ndim == _IMAGE_AXES:
            neighbors = _padded_with_neighbors(data.transpose(order), [widths[axis] for axis in order])
            yield Mistake(
                likely=f"the padding within each row is read from the {memory} memory around it instead of being empty",
                node=unpadded,
                values={name: np.ascontiguousarray(neighbors.transpose(np.argsort(order)))},
            )


_IMAGE_AXES = 4
_MEMORY_ORDERS = MappingProxyType({"channels-first": (0, 1, 2, 3), "channels-last": (0, 2, 3, 1)})


def _padded_with_neighbors(array: np.ndarray, widths: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return an array whose rows are padded with their neighbors in memory, and all else with 0.

    Rows are those of the last padded axis, with all that follows it.
    """
    row_axis = max(axis for axis, width in enumerate(widths) if any(width))
    length, (before, after) = prod(array.shape[row_axis:]), widths[row_axis]
    before, after = (count * prod(array.shape[row_axis + 1 :]) for count in (before, after))
    memory = np.pad(array.reshape(-1), (before, after))
    starts = np.arange(0, array.size, length)
    rows = memory[starts[:, None] + np.arange(before + length + after)]
    extents = [*array.shape[:row_axis], array.shape[row_axis] + sum(widths[row_axis]), *array.shape[row_axis + 1 :]]
    rest = [(0, 0) if axis == row_axis else width for axis, width in enumerate(widths)]
    return np.pad(rows.reshape(extents), rest)


_FILLINGS = (("edge", "its outermost values"), ("reflect", "its values mirrored"))


def _summed_groups(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a convolution whose channels sum over all groups: with their own weights, or with those of each group."""
    weight, groups = operators.titled_input(node, 1), node.attrs.get("group")
    if operators.of(node.op).sums is not operators.Sums.FILTER or not isinstance(groups, int) or groups <= 1:
        return
    repeated = np.concatenate([values[weight]] * groups, axis=1)
    ungrouped = replace(node, attrs={**node.attrs, "group": 1})
    likely = "each channel sums over the inputs of all groups with its own weights"
    yield Mistake(likely=likely, node=ungrouped, values={weight: repeated}, about=weight)
    place = operators.plain(node).bias
    bias = node.inputs[place] if place is not None and place < len(node.inputs) else ""
    add_up = partial(_added_up, groups=groups, bias=values.get(bias))
    without_bias = node if place is None else without_inputs(node, place)
    yield Mistake(likely="the results of all groups are added up", node=without_bias, values={}, after=add_up)


def _added_up(result: np.ndarray, *, groups: int, bias: np.ndarray | None) -> np.ndarray:
    """Return in each group of channels the sum of all groups, and the bias of the channel."""
    grouped = result.reshape(len(result), groups, -1, *result.shape[2:])
    total = np.broadcast_to(grouped.sum(axis=1, keepdims=True), grouped.shape).reshape(result.shape)
    return np.asarray(total if bias is None else total + bias.reshape(-1, *[1] * (result.ndim - 2)), result.dtype)
