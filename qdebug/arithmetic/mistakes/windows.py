"""Known kernel mistakes in the padding, strides and groups of convolutions and pools. Begin at `window_mistakes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from math import prod

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always, without_inputs
from qdebug.arithmetic.mistakes.window_memory import memory_mistakes
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.replay.extents import size_limits
from qdebug.replay.registry import run_node
from qdebug.replay.windows import same_pads

__all__ = ["window_mistakes", "with_explicit_pads"]


def window_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in the padding, strides and groups of a node.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    yield from _padding_mistakes(node, values)
    yield from _shifted_windows(node, values)
    yield from _windows_by_input_width(node, values)
    yield from _summed_groups(node, values)
    yield from _transposed_mistakes(node, values, opset)
    yield from _indices_of_planes(node, values)
    yield from memory_mistakes(with_explicit_pads(node, values) or node, values)


def with_explicit_pads(node: Node, values: Mapping[str, np.ndarray]) -> Node | None:
    """Return a node with the pads that its `auto_pad` stands for, or None if it has none.

    Args:
        node: The node's real form, with the channels first.
        values: Its inputs.
    """
    mode, data = node.attrs.get("auto_pad"), values.get(node.inputs[0]) if node.inputs else None
    row = operators.plain(node)
    if mode not in ("SAME_UPPER", "SAME_LOWER") or not row.windowed or data is None or node.attrs.get("channels_last"):
        return None
    weight = values.get(operators.titled_input(node, 1))
    extent, ones = data.shape[2:], (1,) * (data.ndim - 2)
    kernel = _listed(node, "kernel_shape", () if weight is None else weight.shape[2:])
    strides, dilations = _listed(node, "strides", ones), _listed(node, "dilations", ones)
    if not len(kernel) == len(strides) == len(dilations) == len(extent):
        return None
    if row.sums is Sums.SCATTER:
        extra = _listed(node, "output_padding", (0,) * len(extent))
        totals = [
            max((taps - 1) * dilation + 1 + more - stride, 0)
            for taps, dilation, more, stride in zip(kernel, dilations, extra, strides, strict=True)
        ]
        begin = [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals]
        end = [total - first for total, first in zip(totals, begin, strict=True)]
    else:
        begin, end = same_pads(str(mode), extent, kernel, strides, dilations)
    attrs = {name: value for name, value in node.attrs.items() if name != "auto_pad"}
    return replace(node, attrs={**attrs, "pads": (*begin, *end)})


def _listed(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return an attribute that lists integers, or its default."""
    listed = node.attrs.get(name)
    return tuple(int(str(each)) for each in listed) if isinstance(listed, tuple) and listed else default


def _padding_mistakes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the padding of windows holds other values."""
    data, pads = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("pads")
    row = operators.of(node.op)
    if data is None or data.dtype.kind not in "fiu" or not row.windowed or node.attrs.get("channels_last"):
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
            for side, one_sided in _fillings_of_one_side(data, widths, mode) if sum(map(bool, sizes)) > 1 else ():
                text = f"the padding at the {side} repeats {likely} instead of being empty"
                yield Mistake(likely=text, node=unpadded, values={name: one_sided})


def _fillings_of_one_side(
    data: np.ndarray, widths: Sequence[tuple[int, int]], mode: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield data padded with its own values at the begin or end of one axis, and with 0 elsewhere, by name of the side.

    Args:
        data: The data.
        widths: The padding of each axis.
        mode: How numpy fills the side.
    """
    for axis, (before, after) in enumerate(widths):
        for side, width in (("begin", (before, 0)), ("end", (0, after))):
            own = [width if at == axis else (0, 0) for at in range(data.ndim)]
            rest = [(pair[0] - done[0], pair[1] - done[1]) for pair, done in zip(widths, own, strict=True)]
            if any(width):
                filled = np.pad(data, own, mode=mode)  # type: ignore[call-overload]  # a literal to numpy's stubs
                yield f"{side} of axis {axis}", np.pad(filled, rest)


def _shifted_windows(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which all windows begin up to one stride too late or too early."""
    strides, name = node.attrs.get("strides"), node.inputs[0] if node.inputs else ""
    row, data = operators.plain(node), values.get(name)
    if data is None or not row.windowed or row.sums is Sums.SCATTER or not isinstance(strides, tuple):
        return
    steps = [int(str(step)) for step in strides]
    if data.dtype.kind != "f" or max(steps, default=1) == 1 or len(steps) != data.ndim - 2:
        return
    reach = [min(step, _MAX_SHIFT + 1) for step in steps]
    for shift in product(*(range(1 - each, each) for each in reach)):
        if any(shift):
            widths = [(0, 0), (0, 0), *((max(-each, 0), max(each, 0)) for each in shift)]
            spans = [slice(None)] * 2 + [
                slice(max(each, 0), max(each, 0) + size) for each, size in zip(shift, data.shape[2:], strict=True)
            ]
            moved = np.ascontiguousarray(np.pad(data, widths)[tuple(spans)])
            distance = ", ".join(f"{each:+d}" if each else "0" for each in shift)
            likely = f"all windows are moved by ({distance}) elements along the spatial axes"
            yield Mistake(likely=likely, node=node, values={name: moved})


def _windows_by_input_width(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of counting windows over the width of the padded input, so that some run over its right end."""
    row, name = operators.of(node.op), node.inputs[0] if node.inputs else ""
    weight = values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if row.sums is not Sums.FILTER or weight is None or name not in values or values[name].ndim != _IMAGE_AXES:
        return
    pads, dilations = _listed(node, "pads", (0, 0, 0, 0)), _listed(node, "dilations", (1, 1))
    if _listed(node, "strides", (1, 1)) != (1, 1) or node.attrs.get("channels_last") or min(pads) < 0:
        return
    reach = [(extent - 1) * dilation for extent, dilation in zip(weight.shape[2:], dilations, strict=True)]
    height, width = (
        values[name].shape[2 + at] + pads[at] + pads[2 + at] - reach[at] for at in range(len(("height", "width")))
    )
    if reach[1] and height > 1 and width > 1:
        wide = (pads[0], pads[1], pads[2] + reach[0], pads[3] + reach[1])
        likely = "windows are counted over the width of the input, not of the result, and read 0 beyond its right end"
        yield Mistake(
            likely=likely,
            node=replace(node, attrs={**node.attrs, "pads": wide}),
            values={},
            after=partial(_first_windows, shape=(height, width)),
        )


def _first_windows(result: np.ndarray, *, shape: tuple[int, int]) -> np.ndarray:
    count = shape[0] * shape[1]
    return result.reshape(*result.shape[:2], -1)[:, :, :count].reshape(*result.shape[:2], *shape)


_MAX_SHIFT = 2
"""Largest distance of windows from their place that is tried."""
_IMAGE_AXES = 4


_FILLINGS = (("edge", "its outermost values"), ("reflect", "its values mirrored"))


def _indices_of_planes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the indices of a max pool count within each channel or sample, not over all data."""
    if len(node.outputs) < len(("values", "indices")) or not operators.of(node.op).windowed:
        return
    shape = values[node.inputs[0]].shape
    for size, title in ((prod(shape[2:]), "channel"), (prod(shape[1:]), "sample")):
        likely = f"its indices count within each {title}"
        yield Mistake(likely=likely, node=node, values={}, after=partial(_modulo, size=size))


def _modulo(result: np.ndarray, *, size: int) -> np.ndarray:
    return np.asarray(result % size)


def _transposed_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield mistakes of transposed convolutions.

    Inputs are repeated between strides, overlapping products overwrite each other, or the bias is added repeatedly.
    """
    strides = node.attrs.get("strides")
    if operators.of(node.op).sums is not operators.Sums.SCATTER or len(node.inputs) < 2:
        return
    name, weight = node.inputs[:2]
    steps = [int(step) for step in strides if isinstance(step, int)] if isinstance(strides, tuple) else []
    if any(step > 1 for step in steps):
        repeated = values[name]
        for axis, step in enumerate(steps, 2):
            extent = (repeated.shape[axis] - 1) * step + 1
            repeated = repeated.repeat(step, axis).take(range(extent), axis)
        dense = replace(node, attrs={**node.attrs, "strides": (1,) * len(steps)})
        likely = "its input is repeated between the steps, where there should be zeros"
        yield Mistake(likely=likely, node=dense, values={name: repeated})
    yield from _other_crops(node, values, opset)
    yield from _output_padding_without_products(node, values)
    filters = values[weight]
    if not 1 < prod(filters.shape[2:]) <= _MAX_TAPS:
        return
    unbiased = without_inputs(node, *range(2, len(node.inputs)))
    bias = values.get(node.inputs[2]) if len(node.inputs) > 2 else None
    parts = []
    for tap in np.ndindex(filters.shape[2:]):
        single, mask = np.zeros_like(filters), np.zeros_like(filters)
        index = (slice(None), slice(None), *tap)
        single[index], mask[index] = filters[index], 1
        ones = {name: np.ones_like(values[name]), weight: mask}
        part, count = (run_node(unbiased, each, opset)[node.outputs[0]] for each in ({**values, weight: single}, ones))
        parts.append((part, count != 0))
    if bias is not None and np.any(bias):
        reached = np.sum([is_reached for _, is_reached in parts], axis=0)
        total = sum(part for part, _ in parts) + bias.reshape(-1, *[1] * (filters.ndim - 2)) * reached
        likely = "the bias is added once for each filter element that reaches a position"
        yield Mistake(likely=likely, node=node, values={}, after=always(np.asarray(total, filters.dtype)))
    for ordered, which in ((parts[::-1], "last"), (parts, "first")):
        result = np.zeros_like(parts[0][0])
        for part, is_reached in ordered:  # for the same output element, a smaller tap index has a later input
            result = np.where(is_reached, part, result)
        total = result if bias is None else result + bias.reshape(-1, *[1] * (result.ndim - 2))
        likely = f"where filters overlap, only the {which} input counts, not the sum"
        yield Mistake(likely=likely, node=node, values={}, after=always(total.astype(result.dtype)))


def _other_crops(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield a transposed convolution of the right size that is cropped at a position that no pads of its size reach."""
    explicit = with_explicit_pads(node, values) or node
    taps = values[node.inputs[1]].shape[2:]
    pads = _listed(explicit, "pads", (0,) * (2 * len(taps)))
    if len(pads) != 2 * len(taps) or not any(pads) or min(pads) < 0 or "output_shape" in explicit.attrs:
        return
    begin, end = pads[: len(taps)], pads[len(taps) :]
    uncropped = without_inputs(replace(explicit, attrs={**explicit.attrs, "pads": (0,) * len(pads)}), 2)
    with size_limits(recorded=lambda _: None):  # it is larger than the recorded result
        whole = run_node(uncropped, values, opset)[node.outputs[0]]
    extents = [size - first - last for size, first, last in zip(whole.shape[2:], begin, end, strict=True)]
    extended = np.pad(whole, [(0, 0), (0, 0), *((0, count) for count in taps)])
    bias = values[node.inputs[2]].reshape(-1, *[1] * len(taps)) if len(node.inputs) > 2 and node.inputs[2] else 0.0
    for other in islice(product(*map(range, taps)), _MAX_CROPS):
        if any(first > sum(pair) for first, pair in zip(other, zip(begin, end, strict=True), strict=True)):
            inside = [slice(first, first + size) for first, size in zip(other, extents, strict=True)]
            result = np.asarray(extended[(slice(None), slice(None), *inside)] + bias, whole.dtype)
            position, right_position = (" and ".join(map(str, each)) for each in (other, begin))
            likely = f"its result is cropped at {position}, not at {right_position}"
            yield Mistake(likely=likely, node=node, values={}, after=always(result))


def _output_padding_without_products(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield transposed convolutions whose last rows and columns, as many as the output padding, lack all products."""
    axes = values[node.inputs[0]].ndim - 2
    extra = _listed(node, "output_padding", (0,) * axes)
    bias = values.get(node.inputs[2]) if len(node.inputs) > 2 else None
    for words, fill in (("hold the bias alone", bias), ("hold 0", np.zeros(1))):
        if fill is not None and len(extra) == axes and any(extra):
            after = partial(_with_filled_ends, counts=extra, fill=fill.reshape(-1, *[1] * axes))
            likely = f"the last rows that output_padding {list(extra)} adds {words}, although filters reach them"
            yield Mistake(likely=likely, node=node, values={}, after=after)


def _with_filled_ends(result: np.ndarray, *, counts: Sequence[int], fill: np.ndarray) -> np.ndarray:
    """Return a result with the last indices of each spatial axis filled."""
    changed = result.copy()
    for axis, count in enumerate(counts, 2):
        if count:
            part = (*[slice(None)] * axis, slice(-count, None))
            changed[part] = np.broadcast_to(fill, result.shape)[part] if fill.size > 1 else fill.reshape(-1)[0]
    return changed


_MAX_CROPS = 64
"""Maximum number of positions that are tried."""
_MIN_RANK_OF_GROUPS = 3
_MAX_TAPS = 64
"""Maximum number of elements of a filter, since each is computed alone."""


def _summed_groups(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which each channel sums over all groups, with its own weights or with those of each group."""
    weight, groups = operators.titled_input(node, 1), node.attrs.get("group")
    if operators.of(node.op).sums is not operators.Sums.FILTER or not isinstance(groups, int) or groups <= 1:
        return
    repeated = np.concatenate([values[weight]] * groups, axis=1)
    ungrouped = replace(node, attrs={**node.attrs, "group": 1})
    likely = "each channel sums over the inputs of all groups with its own weights"
    yield Mistake(likely=likely, node=ungrouped, values={weight: repeated}, about=weight)
    slot = operators.plain(node).bias
    bias = node.inputs[slot] if slot is not None and slot < len(node.inputs) else ""
    add_up = partial(_sum_of_groups, groups=groups, bias=values.get(bias))
    without_bias = node if slot is None else without_inputs(node, slot)
    yield Mistake(likely="the results of all groups are added up", node=without_bias, values={}, after=add_up)


def _sum_of_groups(result: np.ndarray, *, groups: int, bias: np.ndarray | None) -> np.ndarray:
    """Replace each group of channels by the sum of all groups, and add the bias of each channel."""
    if result.ndim < _MIN_RANK_OF_GROUPS or result.shape[1] % groups:  # such as a channels-last result
        return result
    grouped = result.reshape(len(result), groups, -1, *result.shape[2:])
    total = np.broadcast_to(grouped.sum(axis=1, keepdims=True), grouped.shape).reshape(result.shape)
    return np.asarray(total if bias is None else total + bias.reshape(-1, *[1] * (result.ndim - 2)), result.dtype)
