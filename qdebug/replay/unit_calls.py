"""Units of quantized operators: the standard's, and those of ONNX Runtime's domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qdebug.model import operators
from qdebug.replay.precision import is_real, onnx_dtype, widen
from qdebug.replay.registry import Call
from qdebug.replay.spreading import spread
from qdebug.replay.unit import Operand, Target, Unit

__all__ = ["unit_of_call"]


def unit_of_call(call: Call) -> Unit | None:
    """Give the unit that a call of a quantized operator computes; None if its operator is not one.

    Raises:
        KernelError: A required operand or a scale is missing, or an attribute has a wrong type.
    """
    row = operators.of(call.op)
    if row.quantizes or row.dequantizes:
        return _quantize(call) if row.quantizes else _dequantize(call)
    reader = _READERS.get(_kind(call))
    return None if reader is None else reader(call)


def _kind(call: Call) -> str:
    """Return the kind of what a quantized operator computes; empty for an operator that carries no scales."""
    real = operators.of(call.op).real
    return "" if real is None else operators.of(real.op).unit


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


def _linear(call: Call) -> Unit | None:
    return _matmul(call) if operators.of(call.op).bias is None else _gemm(call)


def _scalar(call: Call, position: int) -> np.ndarray:
    return call.array(position).reshape(())


def _operand(call: Call, position: int, codes: np.ndarray | None = None) -> Operand:
    """Read codes, scale and zero point from three inputs in a row; a zero point left out is 0."""
    array = call.array(position) if codes is None else codes
    return Operand(codes=array, scale=_scalar(call, position + 1), zero_point=_zero_point(call, position + 2, array))


def _zero_point(call: Call, position: int, codes: np.ndarray) -> np.ndarray:
    given = call.optional(position)
    return np.zeros((), codes.dtype) if given is None else given.reshape(())


def _result(call: Call, position: int) -> Target:
    """Read scale and zero point of the output, which has the dtype of the first operand."""
    return _target(_scalar(call, position), _zero_point(call, position + 1, call.array(0)))


def _pair(call: Call) -> Unit:
    return Unit(
        kind=_kind(call),
        operands=(_operand(call, 0), _operand(call, 3)),
        out=_result(call, 6),
        op=call.op,
    )


def _pool(call: Call) -> Unit:
    x = call.array(0)
    last = bool(call.integer("channels_last"))
    return Unit(
        kind=_kind(call),
        operands=(_operand(call, 0, np.moveaxis(x, -1, 1) if last else x),),
        out=_result(call, 3),
        attrs=call.attrs,
        channels_last=last,
        op=call.op,
    )


def _function(call: Call) -> Unit:
    return Unit(
        kind="lookup",
        operands=(_operand(call, 0),),
        out=_result(call, 3),
        attrs=call.attrs,
        function=operators.of(call.op).plain,
        op=call.op,
    )


def _softmax(call: Call) -> Unit:
    return Unit(
        kind="softmax",
        operands=(_operand(call, 0),),
        out=_result(call, 3),
        attrs=call.attrs,
        opset=call.integer("opset", 13),
        op=call.op,
    )


def _concat(call: Call) -> Unit:
    scale, zero_point = _scalar(call, 0), _scalar(call, 1)
    parts = tuple(_operand(call, position) for position in range(2, len(call.inputs), 3))
    return Unit(kind="concat", operands=parts, out=_target(scale, zero_point), attrs=call.attrs, op=call.op)


def _where(call: Call) -> Unit:
    return Unit(
        kind="where",
        operands=(_operand(call, 1), _operand(call, 4)),
        out=_target(_scalar(call, 7), _scalar(call, 8)),
        condition=call.array(0),
        op=call.op,
    )


def _narrow(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" and dtype.itemsize <= 2


def _quantize(call: Call) -> Unit | None:
    """Read QuantizeLinear to codes of at most 16 bits; None for other codes, or where the quotient is rounded twice."""
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    if zero_point is None:
        asked = call.integer("output_dtype")
        zero_point = np.zeros((), onnx_dtype(asked) if asked else np.uint8)
    if not _narrow(zero_point.dtype) or call.integer("precision") or not (is_real(x.dtype) or x.dtype == np.int32):
        return None
    real = x.astype(np.float32) if x.dtype == np.int32 else widen(x)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    return Unit(
        kind="quantize",
        operands=(Operand(codes=real, scale=np.ones((), np.float32), zero_point=np.zeros((), np.int8)),),
        out=Target(
            dtype=zero_point.dtype,
            scale=widen(spread(scale, x.shape, axis, block)),
            zero_point=spread(zero_point, x.shape, axis, block),
        ),
        op=call.op,
    )


def _dequantize(call: Call) -> Unit | None:
    """Read DequantizeLinear from codes of at most 16 bits to float32; None for all others."""
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    if not _narrow(x.dtype) or scale.dtype != np.float32 or call.integer("output_dtype", 1) != 1:
        return None
    axis, block = call.integer("axis", 1), call.integer("block_size")
    zero = np.zeros((), x.dtype) if zero_point is None else spread(zero_point, x.shape, axis, block)
    return Unit(
        kind="dequantize",
        operands=(Operand(codes=x, scale=spread(scale, x.shape, axis, block), zero_point=zero),),
        out=Target(dtype=np.dtype(np.float32), scale=np.ones((), np.float32), zero_point=np.zeros((), np.int8)),
        op=call.op,
    )


_READERS: Mapping[str, Callable[[Call], Unit | None]] = MappingProxyType(
    {
        "conv": _conv,
        "linear": _linear,
        "add": _pair,
        "mul": _pair,
        "average_pool": _pool,
        "global_average_pool": _pool,
        "reduce_mean": _pool,
        "lookup": _function,
        "softmax": _softmax,
        "concat": _concat,
        "where": _where,
    }
)
"""What reads a unit, by the kind of its operator's real form; names of the two domains do not collide."""
