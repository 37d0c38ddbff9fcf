"""Activation functions, applied element by element, and the softmax family."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import AttrValue, Node, operators
from qdebug.replay.blockwise import by_rows, elementwise
from qdebug.replay.precision import is_real, narrow, widen
from qdebug.replay.registry import Call, find_kernel, kernel, known_kernels

__all__ = ["activate", "apply_fused_activation", "erf", "sigmoid", "softmax"]

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875
_erf = np.frompyfunc(math.erf, 1, 1)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Compute 1 / (1 + exp(-x)) without overflow for large positive or negative inputs."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def erf(x: np.ndarray) -> np.ndarray:
    """Compute the error function, internally in double precision."""
    return np.asarray(_erf(x.astype(np.float64))).astype(x.dtype)


def softmax(x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """Compute exp(x) / sum(exp(x)) along an axis, shifted by the maximum."""
    if x.size == 0:
        return x.copy()
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return np.asarray(powers / np.sum(powers, axis=axis, keepdims=True))


def _log_softmax(x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    if x.size == 0:
        return x.copy()
    shifted = x - np.max(x, axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def _gelu(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + erf(x * math.sqrt(0.5))))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "HardSwish": lambda x: x * np.clip(x * x.dtype.type(1 / 6) + x.dtype.type(0.5), 0, 1),
    "Erf": erf,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
}


@kernel(*_FUNCTIONS, kinds=("iuf",))
def _apply_function(call: Call) -> np.ndarray:
    """Apply the operator's function to each element."""
    x = call.array(0)
    return elementwise(lambda part: narrow(_FUNCTIONS[call.op](widen(part)), x.dtype), x)


def _shrink(x: np.ndarray, call: Call) -> np.ndarray:
    bound, bias = call.real("lambd", 0.5), call.real("bias", 0.0)
    return np.where(x < -bound, x + bias, np.where(x > bound, x - bias, 0))


def _celu(x: np.ndarray, call: Call) -> np.ndarray:
    alpha = call.real("alpha", 1.0)
    return np.asarray(np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0))


def _selu(x: np.ndarray, call: Call) -> np.ndarray:
    alpha, gamma = call.real("alpha", _SELU_ALPHA), call.real("gamma", _SELU_GAMMA)
    return np.asarray(gamma * np.where(x > 0, x, alpha * np.expm1(x)))


_PARAMETRIC_FUNCTIONS: dict[str, Callable[[np.ndarray, Call], np.ndarray]] = {
    "LeakyRelu": lambda x, c: np.where(x < 0, x * x.dtype.type(c.real("alpha", 0.01)), x),
    "ThresholdedRelu": lambda x, c: np.where(x > c.real("alpha", 1.0), x, 0),
    "HardSigmoid": lambda x, c: np.clip(x * x.dtype.type(c.real("alpha", 0.2)) + c.real("beta", 0.5), 0, 1),
    "Gelu": lambda x, c: _gelu(x, c.text("approximate", "none")),
    "Elu": lambda x, c: np.where(x < 0, c.real("alpha", 1.0) * np.expm1(x), x),
    "Celu": _celu,
    "Selu": _selu,
    "Swish": lambda x, c: x * sigmoid(x.dtype.type(c.real("alpha", 1.0)) * x),
    "Shrink": _shrink,
}


@kernel(*_PARAMETRIC_FUNCTIONS, kinds=("iuf",))
def _apply_parametric_function(call: Call) -> np.ndarray:
    """Apply the operator's function to each element, with parameters from the node's attributes."""
    x = call.array(0)
    return elementwise(lambda part: narrow(_PARAMETRIC_FUNCTIONS[call.op](widen(part), call), x.dtype), x)


kernel("Gelu", domain="com.microsoft", kinds=("iuf",))(_apply_parametric_function)


@kernel("QuickGelu", domain="com.microsoft", kinds=("iuf",))
def _quick_gelu(call: Call) -> np.ndarray:
    """Compute x sigmoid(alpha x)."""
    alpha, dtype = call.real("alpha", 1.702), call.array(0).dtype

    def gelu(part: np.ndarray) -> np.ndarray:
        x = widen(part)
        return narrow(x * sigmoid(x.dtype.type(alpha) * x), dtype)

    return elementwise(gelu, call.array(0))


@kernel("BiasGelu", domain="com.microsoft")
def _bias_gelu(call: Call) -> np.ndarray:
    """Add a bias along the last axis, then apply Gelu."""
    x, bias = call.array(0), call.array(1)
    return elementwise(lambda part, b: narrow(_gelu(widen(part) + widen(b), "none"), x.dtype), x, bias)


@kernel("FastGelu", domain="com.microsoft")
def _fast_gelu(call: Call) -> np.ndarray:
    """Add a bias along the last axis, if given, then apply the tanh approximation of Gelu."""
    x, bias = call.array(0), call.optional(1)
    if bias is None:
        return elementwise(lambda part: narrow(_gelu(widen(part), "tanh"), x.dtype), x)
    return elementwise(lambda part, b: narrow(_gelu(widen(part) + widen(b), "tanh"), x.dtype), x, bias)


@kernel("PRelu")
def _prelu(call: Call) -> np.ndarray:
    """Multiply negative elements by a slope that broadcasts to x."""
    x, slope = call.array(0), call.array(1)

    def applied(part: np.ndarray, factor: np.ndarray) -> np.ndarray:
        wide = widen(part)
        return narrow(np.where(wide < 0, wide * widen(factor), wide), x.dtype)

    return elementwise(applied, x, slope)


@kernel("Clip")
def _clip(call: Call) -> np.ndarray:
    """Clamp to [min, max], given as inputs, or as attributes before operator set 11 and in other frameworks.

    A missing bound does not clamp. If min exceeds max, every element becomes max. NaN stays NaN.
    """
    x = call.array(0)
    if len(call.inputs) == 1:
        bounds = [None if name not in call.attrs else np.asarray(call.real(name), x.dtype) for name in ("min", "max")]
    else:
        bounds = [call.optional(1), call.optional(2)]
    low, high = (None if bound is None else bound.reshape(()) for bound in bounds)
    if low is None and high is None:
        return x

    def clamped(part: np.ndarray) -> np.ndarray:
        part = part if low is None else np.maximum(part, low)
        return part if high is None else np.minimum(part, high)

    return elementwise(clamped, x)


@kernel("Softmax", "LogSoftmax", "Hardmax", kinds=("iuf",))
def _softmax(call: Call) -> np.ndarray:
    """Normalize along an axis; before operator set 13, jointly over `axis` and all later axes."""
    x = call.array(0)
    wide = widen(x)
    axis = call.integer("axis", 1 if call.opset < 13 else -1)
    if call.opset < 13:
        first = axis + x.ndim if axis < 0 else axis
        wide = wide.reshape(int(np.prod(x.shape[:first], dtype=np.int64)), -1)
        axis = 1
    if call.op == "Hardmax":
        out = np.zeros_like(wide)
        np.put_along_axis(out, np.argmax(wide, axis=axis, keepdims=True), 1, axis=axis)
    else:
        apply = softmax if call.op == "Softmax" else _log_softmax
        (out,) = by_rows(lambda part: (apply(part, axis),), wide, axis % max(wide.ndim, 1))
    return narrow(out.reshape(x.shape), x.dtype)


def apply_fused_activation(call: Call, x: np.ndarray) -> np.ndarray:
    """Apply the activation that a call's node has fused (attribute `activation`), if any.

    Raises:
        KernelError: The activation is unknown.
    """
    return activate(x, call.text("activation"), call.attrs.get("activation_params", ()))


def activate(x: np.ndarray, name: str, params: AttrValue = ()) -> np.ndarray:
    """Apply a fused activation by its name in ONNX Runtime, with its parameters in order.

    Raises:
        KernelError: The activation is unknown.
    """
    values = [float(value) for value in np.asarray(params, dtype=np.float64).reshape(-1)]
    if name == "":
        return x
    if not is_real(x.dtype) and x.dtype.kind not in "iu":
        raise KernelError(f"The fused activation {name!r} got {x.dtype}; expected integers or real numbers.")
    if name == "Clip":
        if len(values) < 2:
            raise KernelError(f"The fused activation 'Clip' has {len(values)} parameters; expected 2.")
        return np.asarray(np.clip(x, values[0], values[1]))
    if name in _FUNCTIONS:
        return narrow(_FUNCTIONS[name](x), x.dtype)
    if name in _PARAMETRIC_FUNCTIONS:
        call = Call(inputs=(x,), attrs=dict(zip(("alpha", "beta"), values, strict=False)), op=name)
        return narrow(_PARAMETRIC_FUNCTIONS[name](x, call), x.dtype)
    row = operators.of(name)
    domain = next((domain for domain, op in known_kernels() if op == name and row.activation), None)
    if domain is None:
        raise KernelError(f"No kernel is known for the fused activation {name!r}.")
    call = Call(inputs=(x,), attrs=dict(zip(row.parameters, values, strict=False)), op=name)
    return np.asarray(find_kernel(Node(name=name, op=name, domain=domain))(call))
