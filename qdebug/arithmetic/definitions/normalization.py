"""Definitions of normalizations, as ONNX and ONNX Runtime state them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Value, parse
from qdebug.arithmetic.definitions.functions import number
from qdebug.model import Node

__all__ = ["define_normalization"]

_STANDARDIZED = """
average = mean(x, axes)
centered = x - average
variance = mean(centered ** 2, axes)
normalized = centered / sqrt(variance + epsilon)
"""
_DIVIDED_BY_ROOT = """
power = mean(x ** 2, axes)
normalized = x / sqrt(power + epsilon)
"""
_SCALED, _SHIFTED = "scaled = normalized * scale\n", "y = scaled + bias\n"


def define_normalization(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of a normalization, or None for other operators.

    Args:
        node: The node.
        inputs: Its inputs in order, None where one is left out.
        opset: Version of its operator set.
    """
    arrays = [None if array is None else array.astype(np.float64) for array in [*inputs, *[None] * 5]]
    x = arrays[0]
    if x is None or not x.size or x.ndim < 2:
        return None
    if node.op in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        first = int(number(node, "axis", -1)) % x.ndim
        values: dict[str, Value] = {"axes": tuple(range(first, x.ndim)), "epsilon": number(node, "epsilon", 1e-5)}
        body = _STANDARDIZED if node.op == "LayerNormalization" else _DIVIDED_BY_ROOT
        return _affine(body, x, values, arrays[1:3])
    if node.op in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        return _skipping(node, x, arrays)
    if node.op in ("InstanceNormalization", "GroupNormalization"):
        return _grouped(node, x, arrays, opset)
    if node.op == "BatchNormalization":
        return _stored(node, x, arrays)
    return _plain(node, x)


def _affine(body: str, x: np.ndarray, values: dict[str, Value], parameters: Sequence[np.ndarray | None]) -> Definition:
    """Return a definition that scales and shifts normalized data.

    Args:
        body: Lines that assign `normalized`.
        x: The data.
        values: Other values.
        parameters: Scale and bias, which broadcast to the data, or None.
    """
    scale, bias = parameters
    text = body + (_SCALED if scale is not None else "scaled = normalized\n") + (_SHIFTED if bias is not None else "")
    values["x"] = x
    values |= {name: array for name, array in (("scale", scale), ("bias", bias)) if array is not None}
    return Definition(lines=parse(text), values=values, finish=np.asarray)


def _skipping(node: Node, x: np.ndarray, arrays: Sequence[np.ndarray | None]) -> Definition | None:
    """Return the definition of a normalization of a sum."""
    is_centered = node.op == "SkipLayerNormalization"
    skip, scale, bias, extra = arrays[1], arrays[2], *((arrays[3], arrays[4]) if is_centered else (None, arrays[3]))
    values: dict[str, Value] = {"axes": (x.ndim - 1,), "epsilon": number(node, "epsilon", 1e-12)}
    if skip is None:
        return None
    values |= {"x_without_skip": x, "skip": skip}
    head = "x = x_without_skip + skip\n"
    if extra is not None:
        values["extra"], head = extra, "x = x_without_skip + skip + extra\n"
    body = head + (_STANDARDIZED if is_centered else _DIVIDED_BY_ROOT)
    definition = _affine(body, x, values, (scale, bias))
    return Definition(
        lines=definition.lines,
        values={name: value for name, value in definition.values.items() if name != "x"},
        finish=np.asarray,
    )


def _grouped(node: Node, x: np.ndarray, arrays: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of a normalization of channels or of groups of channels, (N, groups, C / groups, ...)."""
    channels = x.shape[1]
    groups = channels if node.op == "InstanceNormalization" else int(number(node, "num_groups", 0))
    if groups <= 0 or channels % groups:
        return None
    data = x.reshape(len(x), groups, channels // groups, *x.shape[2:])

    def shaped(array: np.ndarray | None) -> np.ndarray | None:
        if array is None:
            return None
        by_channel = (
            np.repeat(array, channels // groups) if opset < _PER_CHANNEL_OPSET and array.size == groups else array
        )
        return by_channel.reshape(groups, channels // groups, *(1,) * (x.ndim - 2))

    values: dict[str, Value] = {"axes": tuple(range(2, data.ndim)), "epsilon": number(node, "epsilon", 1e-5)}
    definition = _affine(_STANDARDIZED, data, values, (shaped(arrays[1]), shaped(arrays[2])))
    return Definition(
        lines=definition.lines,
        values=definition.values,
        finish=lambda result: result.reshape(x.shape) if result.size == x.size else result,
    )


_PER_CHANNEL_OPSET = 21


def _stored(node: Node, x: np.ndarray, arrays: Sequence[np.ndarray | None]) -> Definition | None:
    """Return the definition of a normalization with stored statistics."""
    if node.attrs.get("training_mode") or any(array is None for array in arrays[1:5]):
        return None
    shape = (-1, *(1,) * (x.ndim - 2))
    values: dict[str, Value] = {"x": x, "epsilon": number(node, "epsilon", 1e-5)}
    for name, array in zip(("scale", "bias", "average", "variance"), arrays[1:5], strict=True):
        if array is not None:
            values[name] = array.reshape(shape)
    text = """
factor = scale / sqrt(variance + epsilon)
y = (x - average) * factor + bias
"""
    return Definition(lines=parse(text), values=values, finish=np.asarray)


def _plain(node: Node, x: np.ndarray) -> Definition | None:
    """Return the definition of a normalization without parameters."""
    values: dict[str, Value] = {"x": x}
    if node.op == "LpNormalization":
        values["axes"] = (int(number(node, "axis", -1)) % x.ndim,)
        text = "size = total(abs(x), axes)" if number(node, "p", 2) == 1 else "size = sqrt(total(x ** 2, axes))"
        text += "\ny = x / size"
    elif node.op == "MeanVarianceNormalization":
        axes = node.attrs.get("axes")
        values["axes"] = tuple(
            sorted(int(str(axis)) % x.ndim for axis in (axes if isinstance(axes, tuple) else (0, 2, 3)))
        )
        values["epsilon"] = 1e-9
        text = """
average = mean(x, axes)
centered = x - average
variance = mean(x ** 2, axes) - average ** 2
y = centered / (sqrt(variance) + epsilon)
"""
    elif node.op == "LRN":
        size = int(number(node, "size", 1))
        values |= {"size": size, "before": (size - 1) // 2, "after": size // 2, "bias": number(node, "bias", 1.0)}
        values |= {"alpha": number(node, "alpha", 1e-4), "beta": number(node, "beta", 0.75)}
        text = """
squares = neighbours(x ** 2, before, after)
y = x / (bias + alpha / size * squares) ** beta
"""
    else:
        return None
    return Definition(lines=parse(text), values=values, finish=np.asarray)
