"""Operators that move elements without changing them: shapes, order, copies."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from qdebug.model import Node
from qdebug.replay.extents import Cost, elementwise_cost
from qdebug.replay.precision import common_dtype
from qdebug.replay.registry import Call, kernel, run_node
from qdebug.replay.within import normalize_axis

__all__ = ["axes_of", "slice_of_split"]


def axes_of(call: Call, position: int, *, since: int) -> tuple[int, ...] | None:
    """Return the axes of a node: an attribute before operator set `since`, an input from then on.

    Returns:
        The stated axes, negative ones included; None if the node states none.
    """
    axes_input = call.optional(position) if call.opset >= since or "axes" not in call.attrs else None
    return call.integers("axes") if axes_input is None else tuple(int(axis) for axis in axes_input.reshape(-1))


def slice_of_split(
    node: Node, tensor: str, values: Mapping[str, np.ndarray], opset: Mapping[str, int]
) -> tuple[Node, Mapping[str, int], dict[str, np.ndarray]] | None:
    """Return the Slice that computes one output of a Split, with its operator set versions and its inputs.

    Args:
        node: A node.
        tensor: One of its outputs.
        values: Its inputs.
        opset: Version of each operator set of its graph.

    Returns:
        The Slice, or None for another operator.

    Raises:
        KernelError: The Split cannot be computed.
    """
    if node.op != "Split" or node.domain or tensor not in node.outputs:
        return None
    parts, data = run_node(node, values, opset), values[node.inputs[0]]
    axis = Call(inputs=(data,), attrs=node.attrs).axis(data.ndim)
    begin = sum(parts[name].shape[axis] for name in node.outputs[: node.outputs.index(tensor)])
    limits = {"starts": begin, "ends": begin + parts[tensor].shape[axis], "axes": axis}
    names = {title: f"{node.name} {title}" for title in limits}
    inputs = (node.inputs[0], *names.values())
    part = Node(name=node.name, op="Slice", inputs=inputs, outputs=(tensor,))
    newest = {**opset, "": max(opset.get("", _LIMITS_ARE_INPUTS), _LIMITS_ARE_INPUTS)}
    return part, newest, {inputs[0]: data} | {names[title]: np.array([limit]) for title, limit in limits.items()}


_LIMITS_ARE_INPUTS = 10
"""Version of ONNX from which the limits of a Slice are inputs."""


@kernel("Identity")
def _identity(call: Call) -> np.ndarray:
    """Return the input."""
    return call.array(0)


@kernel("Dropout", kinds=("", "biuf"))
def _dropout(call: Call) -> tuple[np.ndarray, ...]:
    """Return the input and a mask that keeps everything, as in inference.

    Raises:
        ValueError: The node is in training mode and drops elements, which cannot be replayed.
    """
    x, ratio, training = call.array(0), call.optional(1), call.optional(2)
    if training is not None and bool(training.reshape(())) and (ratio is None or float(ratio.reshape(())) != 0):
        raise ValueError("the node drops elements at random (training mode)")
    return x, np.ones(x.shape, dtype=bool)


@kernel("Flatten")
def _flatten(call: Call) -> np.ndarray:
    """Reshape to a matrix: the axes before `axis` become rows, the others columns."""
    x = call.array(0)
    axis = call.integer("axis", 1)
    first = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:first], dtype=np.int64)), int(np.prod(x.shape[first:], dtype=np.int64)))


@kernel("Reshape")
def _reshape(call: Call) -> np.ndarray:
    """Reshape. A size of -1 is inferred, and 0 copies the size of the input unless allowzero is set."""
    x = call.array(0)
    shape_attribute = call.integers("shape") if call.opset < 5 or call.optional(1) is None else None
    sizes = list(shape_attribute) if shape_attribute is not None else list(call.extents(1))
    if not call.integer("allowzero"):
        input_sizes = (*x.shape, *(0,) * len(sizes))  # a 0 beyond the axes of x has no size to copy and stays 0
        sizes = [input_sizes[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


@kernel("Transpose")
def _transpose(call: Call) -> np.ndarray:
    """Permute the axes, in reverse order by default."""
    return np.transpose(call.array(0), call.integers("perm"))


@kernel("Squeeze")
def _squeeze(call: Call) -> np.ndarray:
    """Drop axes of size 1; all such axes by default."""
    return np.squeeze(call.array(0), axes_of(call, 1, since=13))


@kernel("Unsqueeze")
def _unsqueeze(call: Call) -> np.ndarray:
    """Insert axes of size 1 at the given positions of the output."""
    return np.expand_dims(call.array(0), axes_of(call, 1, since=13) or ())


@kernel("Concat")
def _concat(call: Call) -> np.ndarray:
    """Join arrays along an axis."""
    common_dtype(*call.all_inputs())
    return np.concatenate(call.all_inputs(), axis=call.integer("axis", 1 if call.opset < 4 else 0))


def _split_cost(call: Call) -> Cost:
    """Estimate the cost of splitting an array. Each part counts as a loop iteration."""
    return Cost(None, 0, max(call.outputs, call.integer("num_outputs"), len(call.integers("split") or ())))


@kernel("Split", cost=_split_cost)
def _split(call: Call) -> tuple[np.ndarray, ...]:
    """Split an array along an axis into parts of given sizes, or into equal parts with a smaller last part."""
    x, sizes = call.array(0), call.optional(1)
    axis = call.axis(x.ndim)
    parts = call.integers("split") if sizes is None else call.extents(1)
    total = x.shape[axis]
    if parts is None:
        count = call.integer("num_outputs", call.outputs)
        largest = -(-total // count)
        parts = tuple(max(min(largest, total - largest * i), 0) for i in range(count))
    if sum(parts) != total:
        raise ValueError(f"parts of sizes {list(parts)} do not make up axis {axis} of size {total}")
    return tuple(np.split(x, np.cumsum(parts)[:-1], axis=axis))


@kernel("Unbind")
def _unbind(call: Call) -> tuple[np.ndarray, ...]:
    """Split an array along an axis into single indices, and drop the axis. Not an ONNX operator."""
    x = call.array(0)
    axis = call.axis(x.ndim)
    return tuple(np.take(x, index, axis=axis) for index in range(x.shape[axis]))


@kernel("Expand", cost=lambda call: elementwise_cost(call.shape(0), call.extents(1)))
def _expand(call: Call) -> np.ndarray:
    """Repeat axes of size 1. Input shape and requested shape broadcast to each other."""
    x = call.array(0)
    shape = np.broadcast_shapes(x.shape, call.extents(1))
    return np.broadcast_to(x, shape)


@kernel("Tile", cost=lambda call: Cost(call.array(0).size * prod(call.extents(1))))
def _tile(call: Call) -> np.ndarray:
    """Repeat the whole array along each axis."""
    return np.tile(call.array(0), call.extents(1))


@kernel("DepthToSpace")
def _depth_to_space(call: Call) -> np.ndarray:
    """Move blocks of channels of (N, C, H, W) to spatial positions, in the order DCR or CRD."""
    x, block = call.array(0), call.integer("blocksize")
    n, c, h, w = x.shape
    if call.text("mode", "DCR") == "DCR":
        parts = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // block**2, h * block, w * block)


@kernel("SpaceToDepth")
def _space_to_depth(call: Call) -> np.ndarray:
    """Move spatial blocks of (N, C, H, W) to channels."""
    x, block = call.array(0), call.integer("blocksize")
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    if call.text("mode", "DCR") == "CRD":
        parts = parts.transpose(0, 3, 1, 2, 4, 5)
    return parts.reshape(n, c * block**2, h // block, w // block)


@kernel("Trilu", ranks=(2,))
def _triangle(call: Call) -> np.ndarray:
    """Keep the upper or the lower triangle of each matrix, from diagonal k on."""
    k = 0 if call.optional(1) is None else call.whole(1)
    return (np.triu if call.integer("upper", 1) else np.tril)(call.array(0), k)


def _pads(call: Call) -> tuple[list[int], list[int]]:
    """Return the padding before and after each axis; negative to crop."""
    x = call.array(0)
    pads_attribute = call.integers("pads") or call.integers("paddings")
    by_input = call.opset >= 11 and pads_attribute is None
    pads = call.extents(1) if by_input else pads_attribute or ()
    axes = range(x.ndim) if call.optional(3) is None else call.extents(3)
    before, after, half = [0] * x.ndim, [0] * x.ndim, len(pads) // 2
    for axis_number, low, high in zip(axes, pads[:half], pads[half:], strict=True):
        axis = normalize_axis(axis_number, x.ndim)
        before[axis], after[axis] = low, high
    return before, after


def _pad_cost(call: Call) -> Cost:
    """Estimate the cost of padding."""
    sizes = zip(call.shape(0), *_pads(call), strict=True)
    return Cost(prod(max(size + before + after, 0) for size, before, after in sizes))


@kernel("Pad", cost=_pad_cost)
def _pad(call: Call) -> np.ndarray:
    """Pad, or crop where the padding is negative. Modes: constant, edge, reflect and wrap."""
    x = call.array(0)
    value_input = call.optional(2)
    value = np.asarray(call.real("value")) if value_input is None or value_input.size == 0 else value_input.reshape(())
    before, after = _pads(call)
    cropped = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, x.shape, strict=True))
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    mode = call.text("mode", "constant") or "constant"
    if mode == "constant":
        out = np.full([n + b + a for n, (b, a) in zip(x[cropped].shape, widths, strict=True)], value.astype(x.dtype))
        out[tuple(slice(b, b + n) for n, (b, _) in zip(x[cropped].shape, widths, strict=True))] = x[cropped]
        return out
    if mode not in ("edge", "reflect", "wrap"):
        raise ValueError(f"the padding mode {mode!r} is not supported")
    index = [np.pad(np.arange(n), width, mode=mode) for n, width in zip(x[cropped].shape, widths, strict=True)]  # type: ignore[call-overload]  # mode is one of three checked texts
    return np.asarray(x[cropped][np.ix_(*index)])
