"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: per tensor, per axis and per block."""

from __future__ import annotations

import numpy as np

from qdebug.model.dtypes import is_integer, logical_name
from qdebug.numerics.rounding import round_values
from qdebug.replay.blockwise import elementwise
from qdebug.replay.evaluate import compute
from qdebug.replay.integers import saturate
from qdebug.replay.kernels.cast import cast_float
from qdebug.replay.precision import narrow, onnx_dtype, widen
from qdebug.replay.registry import Call, kernel
from qdebug.replay.spreading import spread
from qdebug.replay.unit_calls import unit_of_call

__all__ = ["dynamic_quantize"]


@kernel("QuantizeLinear")
@kernel("QuantizeLinear", domain="com.microsoft")
def _quantize(call: Call) -> np.ndarray:
    """Compute saturate(round(x / scale) + zero_point); float codes are rounded by their own format."""
    unit = unit_of_call(call)
    if unit is not None:
        return compute(unit, call.arithmetic.variant(unit))
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    if zero_point is None:
        asked = call.integer("output_dtype")
        zero_point = np.zeros((), dtype=onnx_dtype(asked) if asked else np.uint8)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    steps = widen(spread(scale, x.shape, axis, block))
    precision, fits = call.integer("precision"), bool(call.integer("saturate", 1))
    dtype = zero_point.dtype

    def codes(values: np.ndarray, size: np.ndarray, offset: np.ndarray) -> np.ndarray:
        wide = values.astype(np.float32) if values.dtype == np.int32 else widen(values)
        scaled = np.asarray(wide / size.astype(wide.dtype, copy=False))
        if precision:
            scaled = scaled.astype(onnx_dtype(precision)).astype(np.float32)
        if not is_integer(logical_name(dtype)):
            return cast_float(scaled, dtype, saturate=fits)
        return saturate(round_values(scaled, "even"), offset)

    return elementwise(codes, x, steps, spread(zero_point, x.shape, axis, block))


@kernel("DequantizeLinear")
@kernel("DequantizeLinear", domain="com.microsoft")
def _dequantize(call: Call) -> np.ndarray:
    """Compute (x - zero_point) * scale."""
    unit = unit_of_call(call)
    if unit is not None:
        return compute(unit, call.arithmetic.variant(unit))
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    asked = call.integer("output_dtype")
    steps = spread(scale, x.shape, axis, block)
    if is_integer(logical_name(x.dtype)):
        codes = x.astype(np.int64 if x.dtype.itemsize > 2 else np.int32)
        if zero_point is not None:
            codes = codes - spread(zero_point, x.shape, axis, block).astype(codes.dtype)
        wide = codes.astype(widen(steps).dtype)
    else:
        wide = x.astype(np.float32)
    return narrow(np.asarray(wide * widen(steps)), onnx_dtype(asked) if asked else scale.dtype)


def dynamic_quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize to uint8 by the range of the data, widened to hold 0.

    Returns:
        Codes, scale and zero point.
    """
    low, high = (np.float32(extreme(x, initial=0)) for extreme in (np.min, np.max))
    scale = np.asarray((high - low) / np.float32(255), dtype=np.float32)
    if scale == 0:
        return np.zeros(x.shape, np.uint8), scale, np.zeros((), np.uint8)
    zero_point = saturate(round_values(np.asarray(-low / scale), "even"), np.zeros((), np.uint8))
    return saturate(round_values(np.asarray(x / scale), "even"), zero_point), scale, zero_point


@kernel("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> tuple[np.ndarray, ...]:
    """Quantize to uint8 by the range of the data; also give scale and zero point."""
    return dynamic_quantize(call.array(0))
