"""Comparisons, boolean and bitwise operators, and selection by condition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qdebug.replay.blockwise import elementwise
from qdebug.replay.precision import widen
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_BINARY: dict[str, Callable[..., np.ndarray]] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}


@kernel(*_BINARY)
def _binary(call: Call) -> np.ndarray:
    """Combine two arrays element by element."""
    combine = _BINARY[call.op]
    return elementwise(lambda a, b: np.asarray(combine(widen(a), widen(b))), call.array(0), call.array(1))


@kernel("Not")
def _not(call: Call) -> np.ndarray:
    """Negate a condition."""
    return np.asarray(np.logical_not(call.array(0)))


@kernel("BitwiseNot")
def _bitwise_not(call: Call) -> np.ndarray:
    """Flip every bit."""
    return np.asarray(np.invert(call.array(0)))


@kernel("BitShift")
def _shift(call: Call) -> np.ndarray:
    """Shift bits, to the LEFT or the RIGHT."""
    shift = np.left_shift if call.text("direction") == "LEFT" else np.right_shift
    return np.asarray(shift(call.array(0), call.array(1)))


@kernel("IsNaN")
def _is_nan(call: Call) -> np.ndarray:
    """Tell which elements are NaN."""
    return np.asarray(np.isnan(widen(call.array(0))))


@kernel("IsInf")
def _is_infinite(call: Call) -> np.ndarray:
    """Tell which elements are infinite, on request of one sign only."""
    x = widen(call.array(0))
    wanted = np.zeros(x.shape, dtype=bool)
    if call.integer("detect_positive", 1):
        wanted |= np.isposinf(x)
    if call.integer("detect_negative", 1):
        wanted |= np.isneginf(x)
    return wanted


@kernel("Where")
def _where(call: Call) -> np.ndarray:
    """Choose between two arrays element by element."""
    return elementwise(np.where, call.array(0), call.array(1), call.array(2))
