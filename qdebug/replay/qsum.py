"""The heavy part of convolutions and matrix products: exact integer sums, and sums of pairs held to 16 bits."""

from __future__ import annotations

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.columns import Columns
from qdebug.replay.conv import add_bias
from qdebug.replay.convolve import convolve
from qdebug.replay.integers import as_int32, exact_dtype, sum_bound
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Sums
from qdebug.replay.windows import Window, window_of

__all__ = ["convolved", "multiplied"]

_INT32_END = 2.0**31


def _window(unit: Unit) -> Window:
    x, weight = unit.operands[0].codes, unit.operands[1].codes
    call = Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op)
    return window_of(call, x.shape[2:], call.integers("kernel_shape") or weight.shape[2:])


def _bias(unit: Unit, sums: Sums) -> np.ndarray | None:
    """Give the integer bias that goes into the sums, if any does."""
    if unit.bias is None or sums.bias != "int32":
        return None
    if unit.bias.dtype.kind not in "iu" or unit.bias_scale is not None:
        raise KernelError("The bias is not an integer at the scale of the sums.")
    return unit.bias


def convolved(unit: Unit, sums: Sums) -> Columns:
    """Convolve the centred codes of operand 0 (N, C, *extent) with those of operand 1."""
    x, weight = unit.operands[0].centred, unit.operands[1].centred
    bias = _bias(unit, sums)
    bound = sum_bound(x, weight, tuple(range(1, weight.ndim)), bias)
    dtype = exact_dtype(bound)
    groups = unit.attrs.get("group", 1)
    total = convolve(x.astype(dtype), weight.astype(dtype), _window(unit), int(groups))  # type: ignore[arg-type]
    return _columns(sums, add_bias(total, bias), bound)


def multiplied(unit: Unit, sums: Sums) -> Columns:
    """Multiply the centred codes of operand 0 (..., M, K) by those of operand 1 (..., K, N)."""
    a, b = unit.operands[0].centred, unit.operands[1].centred
    bias = _bias(unit, sums)
    bound = sum_bound(a, b, (max(b.ndim - 2, 0),), bias)
    dtype = exact_dtype(bound)
    total = np.asarray(np.matmul(a.astype(dtype), b.astype(dtype)))
    return _columns(sums, total if bias is None else total + bias.astype(dtype), bound)


def _columns(sums: Sums, total: np.ndarray, bound: float) -> Columns:
    if sums.accumulate == "wrap32" and bound >= _INT32_END:
        total, bound = as_int32(total), _INT32_END
    return Columns(sums=sums, values=(total,), shape=total.shape, bound=bound)
