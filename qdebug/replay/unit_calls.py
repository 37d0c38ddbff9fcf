"""Units of quantized operators: the standard's, and those of ONNX Runtime's domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qdebug.replay.registry import Call
from qdebug.replay.unit import Operand, Target, Unit

__all__ = ["unit_of_call"]


def unit_of_call(call: Call) -> Unit | None:
    """Give the unit that a call of a quantized operator computes; None if its operator is not one.

    Raises:
        KernelError: A required operand or a scale is missing, or an attribute has a wrong type.
    """
    reader = _READERS.get(call.op)
    return None if reader is None else reader(call)


def _filterwise(values: np.ndarray, axes: int) -> np.ndarray:
    """Shape one value, or one per filter, to broadcast along axis 0 of `axes` axes."""
    return values.reshape(()) if values.size == 1 else values.reshape(-1, *(1,) * (axes - 1))


def _by_row(values: np.ndarray) -> np.ndarray:
    """Shape one value, or one per row, to broadcast to (..., rows, columns)."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape(-1, 1) if values.ndim == 1 else values


def _by_column(values: np.ndarray) -> np.ndarray:
    """Shape one value, or one per column, to broadcast to (..., rows, columns)."""
    return values.reshape(()) if values.size == 1 else values


def _target(scale: np.ndarray, zero_point: np.ndarray) -> Target:
    return Target(dtype=zero_point.dtype, scale=scale, zero_point=zero_point)


def _conv(call: Call) -> Unit:
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = (call.array(i) for i in range(8))
    last = bool(call.integer("channels_last"))
    return Unit(
        kind="conv",
        operands=(
            Operand(
                codes=np.moveaxis(x, -1, 1) if last else x, scale=x_scale.reshape(()), zero_point=x_zero.reshape(())
            ),
            Operand(
                codes=weight,
                scale=_filterwise(w_scale, weight.ndim),
                zero_point=_filterwise(w_zero, weight.ndim),
            ),
        ),
        out=_target(y_scale.reshape(()), y_zero.reshape(())),
        bias=call.optional(8),
        attrs=call.attrs,
        channels_last=last,
        opset=call.opset,
        op=call.op,
    )


def _matmul(call: Call) -> Unit:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.array(i) for i in range(8))
    return Unit(
        kind="linear",
        operands=(
            Operand(codes=a, scale=_by_row(a_scale), zero_point=_by_row(a_zero)),
            Operand(codes=b, scale=_by_column(b_scale), zero_point=_by_column(b_zero)),
        ),
        out=_target(_by_row(y_scale), _by_row(y_zero)),
        op=call.op,
    )


def _gemm(call: Call) -> Unit | None:
    """Read QGemm; None without an output scale, since it gives real numbers then."""
    a, a_scale, a_zero, b, b_scale, b_zero = (call.array(i) for i in range(6))
    y_scale, y_zero = call.optional(7), call.optional(8)
    if y_scale is None or y_zero is None:
        return None
    alpha = np.float32(call.real("alpha", 1.0))
    return Unit(
        kind="linear",
        operands=(
            Operand(
                codes=a.T if call.integer("transA") else a,
                scale=np.asarray(alpha * a_scale.reshape(()), dtype=np.float32),
                zero_point=a_zero.reshape(()),
            ),
            Operand(
                codes=b.T if call.integer("transB") else b,
                scale=_by_column(b_scale.reshape(-1)),
                zero_point=_by_column(b_zero.reshape(-1)),
            ),
        ),
        out=_target(y_scale.reshape(()), y_zero.reshape(())),
        bias=call.optional(6),
        op=call.op,
    )


_READERS: Mapping[str, Callable[[Call], Unit | None]] = MappingProxyType(
    {
        "QLinearConv": _conv,
        "QLinearMatMul": _matmul,
        "QGemm": _gemm,
    }
)
