"""Known kernel mistakes with the scales and zero points of codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake, always
from qdebug.model import Node, QuantParams, operators
from qdebug.model.operators import Sums

__all__ = [
    "activations_of_scaled_inputs",
    "codes_passed_on",
    "divisions_of_codes",
    "late_zero_points",
    "saturating_pairs",
    "saturating_results",
    "scales_along_other_axes",
    "scales_by_flat_index",
    "unsigned_shifts",
]


def codes_passed_on(node: Node, values: Mapping[str, np.ndarray], target: QuantParams) -> Iterator[Mistake]:
    """Yield the mistake of passing the codes of a dequantized tensor on as codes of the layer's result.

    Args:
        node: A node inside a fused layer.
        values: Its inputs.
        target: The scale and zero point of the layer's result.
    """
    names = [name for name in node.inputs[1:] if name]
    if not operators.of(node.op).dequantizes or target.scale.size != 1 or len(names) != _SCALE_AND_ZERO_POINT:
        return
    if any(values[name].size != 1 for name in names):
        return
    ends, zero_point = np.iinfo(values[names[1]].dtype), int(target.zero_point.reshape(-1)[0])
    if ends.min <= zero_point <= ends.max:
        numbers = float(target.scale.reshape(-1)[0]), zero_point
        taken = {name: np.full_like(values[name], number) for name, number in zip(names, numbers, strict=True)}
        likely = (
            f"the codes of {node.inputs[0]!r} are passed on unchanged, not rescaled to the output's scale and zero "
            "point"
        )
        yield Mistake(likely=likely, node=node, values=taken, about=node.inputs[0])


_SCALE_AND_ZERO_POINT = 2


def activations_of_scaled_inputs(
    node: Node, values: Mapping[str, np.ndarray], target: QuantParams
) -> Iterator[Mistake]:
    """Yield an activation that is applied after its input was divided by the scale of the layer's output codes.

    Args:
        node: A node inside a layer.
        values: Its inputs.
        target: The scale and zero point of the layer's result.
    """
    row, name = operators.of(node.op), node.inputs[0] if node.inputs else ""
    if not row.activation or row.clamps or target.scale.size != 1 or name not in values:
        return
    scale = target.scale.reshape(-1)[0].astype(np.float32)
    scaled = np.asarray(values[name] / scale, values[name].dtype)
    likely = "the activation is applied to values that were already divided by the output's scale"
    yield Mistake(likely=likely, node=node, values={name: scaled}, after=partial(np.multiply, scale))


def divisions_of_codes(node: Node, values: Mapping[str, np.ndarray], quant: QuantParams) -> Iterator[Mistake]:
    """Yield an average of codes of which each is divided by their number, in integers, before they are summed.

    Args:
        node: An average over windows.
        values: Its inputs.
        quant: The scale and zero point of its first input.
    """
    kernel = node.attrs.get("kernel_shape")
    if operators.plain(node).unit != "average_pool" or not isinstance(kernel, tuple) or quant.scale.size != 1:
        return
    name, count = node.inputs[0], prod(int(str(extent)) for extent in kernel)
    scale, zero_point = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
    codes = np.rint(values[name] / scale)
    for clause, offset in (("", 0), (", including its zero point,", zero_point)):
        quotients = np.trunc((codes + offset) / count) - offset / count
        divided = np.asarray(quotients * count * scale, values[name].dtype)
        likely = f"each code of {name!r}{clause} is divided by {count}, in integers, before the sum"
        yield Mistake(likely=likely, node=node, values={name: divided})
        if not zero_point:
            return


def saturating_pairs(
    node: Node, values: Mapping[str, np.ndarray], quants: Mapping[str, QuantParams]
) -> Iterator[Mistake]:
    """Yield a matrix product of 8-bit codes whose products are added in pairs that saturate in 16 bits.

    So does the instruction vpmaddubsw of x86, which multiplies unsigned by signed codes.

    Args:
        node: The node, on real numbers.
        values: Its inputs.
        quants: Scale and zero point of the inputs that are codes with a single scale.
    """
    names = node.inputs[:2]
    if operators.of(node.op).sums is not Sums.MATRIX or not all(name in quants for name in names) or len(names) < 2:
        return
    if any(node.attrs.get(name) for name in ("transA", "transB")) or len(node.inputs) > 2:
        return
    data, weight = (values[name] for name in names)
    scales = [float(quants[name].scale.reshape(-1)[0]) for name in names]
    zero_points = [int(quants[name].zero_point.reshape(-1)[0]) for name in names]
    data_codes, weight_codes = (
        np.rint(values[name] / scale) + zero_point
        for name, scale, zero_point in zip(names, scales, zero_points, strict=True)
    )
    if weight.ndim != len(("K", "N")) or data.shape[-1] % 2 or zero_points[1]:
        return
    pairs = data_codes[..., None] * weight_codes  # (..., K, N)
    pairs = np.clip(pairs[..., ::2, :] + pairs[..., 1::2, :], -(2**15), 2**15 - 1)
    sums = pairs.sum(-2) - zero_points[0] * weight_codes.sum(0)
    likely = "products of codes are added in pairs that saturate in 16 bits"
    result = np.asarray(sums * (scales[0] * scales[1]), np.result_type(data, weight))
    yield Mistake(likely=likely, node=node, values={}, after=always(result))


def saturating_results(node: Node, result: np.ndarray, target: QuantParams) -> Iterator[Mistake]:
    """Yield a node inside a layer whose result is clipped to the range of the layer's output codes, too early.

    Some kernels convert the result of a product to codes before they add another operand to it. Such codes may or may
    not include the zero point.

    Args:
        node: A node inside a layer.
        result: Its right result.
        target: The scale and zero point of the layer's result.
    """
    if target.scale.size != 1 or target.qmin is None or target.qmax is None or result.dtype.kind != "f":
        return
    scale, zero_point = float(target.scale.reshape(-1)[0]), int(target.zero_point.reshape(-1)[0])
    for offset in dict.fromkeys((0, zero_point)):
        low, high = target.qmin - offset, target.qmax - offset
        if not np.any((result < low * scale) | (result > high * scale)):
            continue
        likely = (
            f"the result is already clipped to the range of the layer's {target.dtype} codes"
            if offset or not zero_point
            else f"results saturate to {target.dtype} before the output's zero point {zero_point} is added"
        )
        codes = np.clip(np.rint(result / scale), low, high)
        clipped = np.clip(result, low * scale, high * scale)
        for early in (np.asarray(codes * scale, result.dtype), np.asarray(clipped, result.dtype)):
            yield Mistake(likely=likely, node=node, values={}, after=always(early))


def unsigned_shifts(node: Node, result: np.ndarray, target: QuantParams) -> Iterator[Mistake]:
    """Yield a node inside a layer whose negative results become the highest code, as by a shift that drops the sign.

    Args:
        node: A node inside a layer.
        result: Its right result.
        target: The scale and zero point of the layer's result.
    """
    if target.scale.size != 1 or target.qmax is None or result.dtype.kind != "f":
        return
    scale, zero_point = float(target.scale.reshape(-1)[0]), int(target.zero_point.reshape(-1)[0])
    highest = (target.qmax - zero_point) * scale
    shifted = np.where(np.rint(result / scale) < 0, result.dtype.type(highest), result)
    likely = "negative sums are rescaled as unsigned numbers, and become the highest code"
    yield Mistake(likely=likely, node=node, values={}, after=always(shifted))


def scales_by_flat_index(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of taking the scale of a block by an element's index in memory, divided by the block's size.

    Args:
        node: A dequantization by blocks, of which the last in a row is shorter.
        values: Its inputs.
    """
    size, axis = node.attrs.get("block_size"), node.attrs.get("axis", 1)
    names = [name for name in node.inputs if name]
    if not operators.of(node.op).dequantizes or not isinstance(size, int) or not isinstance(axis, int) or size < 2:
        return
    data = values[names[0]]
    if data.shape[axis % data.ndim] % size == 0:
        return
    blocks = np.arange(data.size).reshape(data.shape) // size
    flat = {
        name: values[name].reshape(-1)[np.minimum(blocks, values[name].size - 1)]
        for name in names[1:]
        if values[name].ndim == data.ndim
    }
    attrs = {**node.attrs, "block_size": 1}
    likely = (
        "the block of an element is its index in memory divided by block_size, although rows end with a part of one"
    )
    yield Mistake(likely=likely, node=replace(node, attrs=attrs), values=flat)


def late_zero_points(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of subtracting the zero point of a dequantization after the scale was applied.

    Args:
        node: The node.
        values: Its inputs.
    """
    names = [name for name in node.inputs if name]
    if not operators.of(node.op).dequantizes or len(names) != 1 + _SCALE_AND_ZERO_POINT or not np.any(values[names[2]]):
        return
    data, zero = values[names[0]], values[names[2]].astype(np.float32)
    axis = node.attrs.get("axis", 1)
    if zero.size > 1 and isinstance(axis, int) and zero.ndim == 1:
        zero = _shaped_along(zero, axis % data.ndim, data.ndim)
    if zero.ndim <= data.ndim and (zero.size == 1 or zero.ndim == data.ndim):
        unshifted = replace(node, inputs=node.inputs[:2])
        likely = "the zero point is subtracted after the scale is applied"
        yield Mistake(likely=likely, node=unshifted, values={}, after=partial(_subtract_zero_point, zero=zero))


def _subtract_zero_point(result: np.ndarray, *, zero: np.ndarray) -> np.ndarray:
    return np.asarray(result - zero, result.dtype)


def scales_along_other_axes(node: Node, result: np.ndarray, scales: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which per-channel scales are indexed along another axis, such as by sample.

    Args:
        node: The node's real form.
        result: Its right result.
        scales: Constants of the node that its real form does not read, which may be scales.
    """
    for name, scale in scales.items():
        own_axes = [axis for axis in range(result.ndim) if result.shape[axis] == scale.size]
        if scale.dtype.kind != "f" or np.unique(scale).size < _MIN_SCALES or len(own_axes) != 1:
            continue
        flat, own_axis = scale.reshape(-1), own_axes[0]
        for axis, extent in enumerate(result.shape):
            if axis != own_axis and _MIN_SCALES <= extent <= flat.size:
                factor = _shaped_along(flat[:extent], axis, result.ndim) / _shaped_along(flat, own_axis, result.ndim)
                likely = f"{name!r} is indexed along axis {axis}, not {own_axis}"
                yield Mistake(likely=likely, node=node, values={}, after=partial(np.multiply, factor), about=name)


_MIN_SCALES = 2


def _shaped_along(values: np.ndarray, axis: int, axes: int) -> np.ndarray:
    """Reshape a vector so that it broadcasts along one axis of an array with several axes."""
    return values.reshape([-1 if at == axis else 1 for at in range(axes)])
