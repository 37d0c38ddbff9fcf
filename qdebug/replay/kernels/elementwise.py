"""Element-wise operators with numpy's broadcasting: arithmetic, comparisons, bits, selection by condition."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from qdebug.replay import extents
from qdebug.replay.blockwise import elementwise
from qdebug.replay.kernels.activation import apply_fused_activation
from qdebug.replay.precision import common_dtype, is_real, narrow, widen
from qdebug.replay.registry import Call, kernel

_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),  # as TensorFlow Lite and PyTorch define it
    "Tan": np.tan,
}


@kernel(*_UNARY, kinds=("iufc",))
def _unary(call: Call) -> np.ndarray:
    """Apply the operator's function to each element."""
    x = call.array(0)
    return elementwise(lambda part: narrow(_UNARY[call.op](widen(part)), x.dtype), x)


kernel("Ceil", "Floor", kinds=("iuf",))(_unary)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide. Integer quotients are truncated towards zero, as in C."""
    if is_real(a.dtype):
        return np.asarray(np.divide(a, b))
    quotient = np.floor_divide(a, b)
    inexact_negative = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact_negative.astype(a.dtype))


_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
}


def _broadcast_cost(call: Call) -> extents.Cost:
    """Estimate the cost of combining all inputs element by element."""
    return extents.elementwise_cost(*call.shapes())


def _aligned_cost(call: Call) -> extents.Cost:
    a, b = call.array(0), call.array(1)
    return extents.elementwise_cost(a.shape, (_old_broadcast(call, a, b) if call.opset < 7 else b).shape)


@kernel(*_BINARY, cost=_aligned_cost)
def _binary(call: Call) -> np.ndarray:
    """Combine two arrays of equal dtype element by element, then apply a fused activation.

    A sum or difference may multiply its second operand by `alpha` first, as in PyTorch.
    """
    a, b = call.array(0), call.array(1)
    if call.opset < 7:
        b = _old_broadcast(call, a, b)
    factor = call.real("alpha", 1.0)
    if factor != 1:
        b = elementwise(lambda part: narrow(widen(part) * widen(part).dtype.type(factor), part.dtype), b)
    out = elementwise(lambda left, right: narrow(_BINARY[call.op](widen(left), widen(right)), a.dtype), a, b)
    return apply_fused_activation(call, out)


kernel("Sub", cost=_aligned_cost, kinds=("iufcV",))(_binary)
kernel("Div", cost=_aligned_cost, kinds=("biuf", "biuf"))(_binary)


def _old_broadcast(call: Call, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Align b with a from the attribute `axis` on, as operator sets before 7 do."""
    axis = call.integer("axis", a.ndim - b.ndim)
    return b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim)) if "axis" in call.attrs else b


@kernel("SquaredDifference", cost=_broadcast_cost, kinds=("iuf", "iuf"))
def _squared_difference(call: Call) -> np.ndarray:
    """Compute (a - b) ** 2, as TensorFlow Lite and OpenVINO define it."""
    a, b = call.array(0), call.array(1)
    return elementwise(lambda left, right: narrow(np.square(widen(left) - widen(right)), a.dtype), a, b)


@kernel("Pow", cost=_broadcast_cost, kinds=("biufc", "biufc"))
def _power(call: Call) -> np.ndarray:
    """Raise x to the power y; the result has the dtype of x."""
    x, y = call.array(0), call.array(1)
    if is_real(x.dtype):
        return elementwise(lambda base, by: _real_power(widen(base), by, x.dtype), x, y)
    if is_real(y.dtype) or np.any(y < 0):
        return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)
    return narrow(np.power(x, y.astype(x.dtype)), x.dtype)


def _real_power(base: np.ndarray, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return narrow(np.power(base, y.astype(base.dtype)), dtype)


@kernel("Mod", cost=_broadcast_cost, kinds=("biuf", "biuf"))
def _modulo(call: Call) -> np.ndarray:
    """Return the remainder, with the sign of the divisor, or of the dividend if fmod = 1."""
    a, b = call.array(0), call.array(1)
    apply = np.fmod if call.integer("fmod") else np.mod
    return elementwise(lambda left, right: narrow(apply(widen(left), widen(right)), a.dtype), a, b)


@kernel("Min", "Max", "Sum", "Mean", cost=_broadcast_cost)
def _variadic(call: Call) -> np.ndarray:
    """Combine any number of arrays element by element, from first to last."""
    combine, dtype = {"Min": np.minimum, "Max": np.maximum}.get(call.op, np.add), call.array(0).dtype

    def combined(*parts: np.ndarray) -> np.ndarray:
        out = reduce(combine, [widen(part) for part in parts])
        if call.op == "Mean":
            out = out / out.dtype.type(len(parts))
        return narrow(np.asarray(out), dtype)

    return elementwise(combined, *call.all_inputs())


@kernel("CumSum", "CumProd")
def _cumulative(call: Call) -> np.ndarray:
    """Accumulate along an axis, with the options reverse and exclusive."""
    x, axis = widen(call.array(0)), call.whole(1)
    run, neutral = (np.cumsum, 0) if call.op == "CumSum" else (np.cumprod, 1)
    source = np.flip(x, axis) if call.integer("reverse") else x
    out = run(source, axis=axis, dtype=x.dtype)
    if call.integer("exclusive") and out.size:
        first = np.full_like(np.take(out, [0], axis=axis), neutral)
        out = np.concatenate([first, np.delete(out, -1, axis=axis)], axis=axis)
    return narrow(np.flip(out, axis) if call.integer("reverse") else out, call.array(0).dtype)


_LOGICAL: dict[str, Callable[..., np.ndarray]] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}
_BITWISE: dict[str, Callable[..., np.ndarray]] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}


@kernel(*_LOGICAL, cost=_broadcast_cost)
def _logical_binary(call: Call) -> np.ndarray:
    """Combine two arrays element by element."""
    combine = _LOGICAL[call.op]
    return elementwise(lambda a, b: np.asarray(combine(widen(a), widen(b))), call.array(0), call.array(1))


def _bitwise_inputs(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Return both inputs of a bitwise operator. Refuse them if they have no common integer dtype."""
    a, b = call.array(0), call.array(1)
    if common_dtype(a, b).kind not in "biu":
        raise ValueError(f"{a.dtype} and {b.dtype} have no bits in common")
    return a, b


@kernel(*_BITWISE, cost=_broadcast_cost)
def _bitwise_binary(call: Call) -> np.ndarray:
    """Combine the bits of two arrays element by element."""
    return elementwise(_BITWISE[call.op], *_bitwise_inputs(call))


@kernel("Not")
def _not(call: Call) -> np.ndarray:
    """Negate booleans."""
    return np.asarray(np.logical_not(call.array(0)))


@kernel("BitwiseNot", kinds=("biu",))
def _bitwise_not(call: Call) -> np.ndarray:
    """Flip every bit."""
    return np.asarray(np.invert(call.array(0)))


@kernel("BitShift", cost=_broadcast_cost)
def _shift(call: Call) -> np.ndarray:
    """Shift bits, to the LEFT or the RIGHT."""
    shift = np.left_shift if call.text("direction") == "LEFT" else np.right_shift
    return np.asarray(shift(*_bitwise_inputs(call)))


@kernel("IsNaN")
def _is_nan(call: Call) -> np.ndarray:
    """Return a mask of NaN elements."""
    return np.asarray(np.isnan(widen(call.array(0))))


@kernel("IsInf", kinds=("biufV",))
def _is_infinite(call: Call) -> np.ndarray:
    """Return a mask of infinite elements, optionally of one sign only."""
    x = widen(call.array(0))
    mask = np.zeros(x.shape, dtype=bool)
    if call.integer("detect_positive", 1):
        mask |= np.isposinf(x)
    if call.integer("detect_negative", 1):
        mask |= np.isneginf(x)
    return mask


@kernel("Where", cost=_broadcast_cost)
def _where(call: Call) -> np.ndarray:
    """Choose between two arrays element by element."""
    common_dtype(call.array(1), call.array(2))
    return elementwise(np.where, call.array(0), call.array(1), call.array(2))
