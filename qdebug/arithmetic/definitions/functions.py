"""Definitions of element-wise functions, softmaxes and reductions, as ONNX and ONNX Runtime state them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.arithmetic.definitions.definition import Definition, Value, parse
from qdebug.model import Node

__all__ = ["define_function", "define_reduction", "define_softmax", "number"]


def number(node: Node, name: str, default: float) -> float:
    """Return a real attribute of a node, or its default."""
    value = node.attrs.get(name, default)
    return float(value) if isinstance(value, int | float) else default


_GELU = "y = 0.5 * x * (1 + erf(x / sqrt(2)))"
_GELU_BY_TANH = "y = 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))"
_FLOOR_MOD, _TRUNC_MOD = "y = x - z * floor(x / z)", "y = x - z * trunc(x / z)"
_FUNCTIONS: Mapping[str, tuple[str, str, Mapping[str, float]]] = MappingProxyType(
    {
        "BiasGelu": ("x b", "s = x + b\ny = 0.5 * s * (1 + erf(s / sqrt(2)))", {}),
        "Celu": ("x", "y = max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))", {"alpha": 1.0}),
        "Clip": ("x low high", "y = min(max(x, low), high)", {}),
        "Cos": ("x", "y = cos(x)", {}),
        "Elu": ("x", "y = where(x > 0, x, alpha * (exp(x) - 1))", {"alpha": 1.0}),
        "Exp": ("x", "y = exp(x)", {}),
        "HardSigmoid": ("x", "y = max(0, min(1, alpha * x + beta))", {"alpha": 0.2, "beta": 0.5}),
        "HardSwish": ("x", "y = x * max(0, min(1, x / 6 + 0.5))", {}),
        "LeakyRelu": ("x", "y = where(x >= 0, x, alpha * x)", {"alpha": 0.01}),
        "Log": ("x", "y = log(x)", {}),
        "Mish": ("x", "y = x * tanh(log(1 + exp(x)))", {}),
        "Pow": ("x z", "y = x ** z", {}),
        "PRelu": ("x slope", "y = where(x >= 0, x, slope * x)", {}),
        "QuickGelu": ("x", "y = x * sigmoid(alpha * x)", {"alpha": 1.702}),
        "Reciprocal": ("x", "y = 1 / x", {}),
        "Selu": (
            "x",
            "y = gamma * where(x > 0, x, alpha * (exp(x) - 1))",
            {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        ),
        "Shrink": ("x", "y = where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))", {"lambd": 0.5, "bias": 0.0}),
        "Sigmoid": ("x", "y = 1 / (1 + exp(-x))", {}),
        "Sin": ("x", "y = sin(x)", {}),
        "Softplus": ("x", "y = log(exp(x) + 1)", {}),
        "Softsign": ("x", "y = x / (1 + abs(x))", {}),
        "Sqrt": ("x", "y = sqrt(x)", {}),
        "Swish": ("x", "y = x * sigmoid(alpha * x)", {"alpha": 1.0}),
        "Tanh": ("x", "y = 2 / (1 + exp(-2 * x)) - 1", {}),
        "ThresholdedRelu": ("x", "y = where(x > alpha, x, 0)", {"alpha": 1.0}),
        "Where": ("condition x z", "y = where(condition, x, z)", {}),
    }
)
"""Names of the inputs, lines, and defaults of the attributes, by operator."""


def define_function(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of an element-wise function, or None for other operators.

    Args:
        node: The node.
        inputs: Its inputs in order, None where one is left out.
        opset: Version of its operator set.
    """
    del opset
    names, text, defaults = _FUNCTIONS.get(node.op, ("x", "", {}))
    alternatives = ""
    kinds = {array.dtype.kind for array in inputs if array is not None}
    if node.op == "Gelu":
        text, alternatives = (
            (_GELU_BY_TANH, _GELU) if node.attrs.get("approximate") == "tanh" else (_GELU, _GELU_BY_TANH)
        )
    elif node.op == "Mod":
        names = "x z"
        text, alternatives = (_TRUNC_MOD, _FLOOR_MOD) if node.attrs.get("fmod") else (_FLOOR_MOD, _TRUNC_MOD)
    elif node.op == "Div":
        names, text = "x z", "y = trunc(x / z)" if kinds <= {"i", "u"} else "y = x / z"
    elif node.op == "Cast" and kinds == {"f"} and node.attrs.get("to") in _INTEGERS:
        text = "y = trunc(x)"
    arrays = [*inputs, *[None] * len(names.split())][: len(names.split())]
    if not text or any(array is None for array in arrays):
        return None
    values: dict[str, Value] = {"pi": math.pi}
    for name, array in zip(names.split(), arrays, strict=True):
        if array is not None:
            values[name] = _as_value(array)
    values |= {name: number(node, name, default) for name, default in defaults.items()}
    return Definition(lines=parse(text), values=values, finish=np.asarray, alternatives=parse(alternatives))


_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
"""Integer types in ONNX's `TensorProto.DataType`."""


def _as_value(array: np.ndarray) -> Value:
    """Return an array in float64 if it holds numbers, and a scalar as a number."""
    if array.dtype == np.bool_:
        return array
    return float(array.reshape(-1)[0]) if array.ndim == 0 else array.astype(np.float64)


def define_softmax(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of a Softmax or LogSoftmax.

    Args:
        node: The node.
        inputs: Its inputs.
        opset: Version of its operator set.
    """
    x = inputs[0]
    if x is None or not x.ndim:
        return None
    axis = int(number(node, "axis", -1 if opset >= _ONE_AXIS_OPSET else 1)) % x.ndim
    axes = (axis,) if opset >= _ONE_AXIS_OPSET else tuple(range(axis, x.ndim))
    last = "y = powers / total(powers, axes)" if node.op == "Softmax" else "y = shifted - log(total(powers, axes))"
    text = f"shifted = x - largest(x, axes)\npowers = exp(shifted)\n{last}"
    return Definition(lines=parse(text), values={"x": x.astype(np.float64), "axes": axes}, finish=np.asarray)


_ONE_AXIS_OPSET = 13

_REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ReduceL1": "y = total(abs(x), axes)",
        "ReduceL2": "y = sqrt(total(x ** 2, axes))",
        "ReduceLogSum": "y = log(total(x, axes))",
        "ReduceLogSumExp": "top = largest(x, axes)\ny = log(total(exp(x - top), axes)) + top",
        "ReduceMax": "y = largest(x, axes)",
        "ReduceMean": "y = total(x, axes) / count",
        "ReduceMin": "y = smallest(x, axes)",
        "ReduceProd": "y = product(x, axes)",
        "ReduceSum": "y = total(x, axes)",
        "ReduceSumSquare": "y = total(x ** 2, axes)",
    }
)


def define_reduction(node: Node, inputs: Sequence[np.ndarray | None], opset: int) -> Definition | None:
    """Return the definition of a reduction.

    Args:
        node: The node.
        inputs: Its inputs.
        opset: Version of its operator set.
    """
    del opset
    x, listed = [*inputs, None][:2]
    if x is None or not x.size:
        return None
    stated = node.attrs.get("axes") if listed is None else listed.reshape(-1).tolist()
    axes = tuple(sorted(int(axis) % x.ndim for axis in stated)) if isinstance(stated, list | tuple) and stated else ()
    if not axes and node.attrs.get("noop_with_empty_axes"):
        return None
    axes = axes or tuple(range(x.ndim))
    text = _REDUCTIONS[node.op]
    count = math.prod(x.shape[axis] for axis in axes)
    kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    if x.dtype.kind in "iu" and node.op == "ReduceMean":
        text = "y = trunc(total(x, axes) / count)"
    values: dict[str, Value] = {"x": x.astype(np.float64), "axes": axes, "count": count}
    if x.dtype.kind in "iu":
        values["x"] = x.astype(np.int64)
    return Definition(
        lines=parse(text), values=values, finish=_with_shape_of(x, kept, keeps=bool(node.attrs.get("keepdims", 1)))
    )


def _with_shape_of(x: np.ndarray, kept: Sequence[int], *, keeps: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that drops the reduced axes of a result, unless the node keeps them."""
    del x

    def finish(result: np.ndarray) -> np.ndarray:
        return result if keeps or result.size != math.prod(kept) else result.reshape(kept)

    return finish
