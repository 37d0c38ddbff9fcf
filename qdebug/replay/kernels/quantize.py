"""Element type conversions, and QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: per tensor, axis and block."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np

from qdebug.model.dtypes import is_integer, logical_dtype, logical_name
from qdebug.numerics.fixedpoint import round_values
from qdebug.replay.blockwise import elementwise
from qdebug.replay.evaluate import compute
from qdebug.replay.extents import Cost
from qdebug.replay.node_units import unit_of_call
from qdebug.replay.precision import is_real, narrow, onnx_dtype, widen
from qdebug.replay.qsum import saturate
from qdebug.replay.registry import Call, kernel
from qdebug.replay.scaling import reshape_to_broadcast

__all__ = ["cast", "cast_float", "dequantize_linear", "dynamic_quantize", "quantize_linear", "scaling_cost"]


def cast_float(values: np.ndarray, dtype: np.dtype, *, saturate: bool) -> np.ndarray:
    """Round float values to a float type of at most 8 bits.

    Args:
        values: Values in float32 or float64.
        dtype: The type of the result.
        saturate: Whether values beyond the largest finite number become that number instead of NaN or infinity.
    """
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # untyped upstream
    if not saturate:
        return values.astype(dtype)
    return np.asarray(np.clip(values, -largest, largest)).astype(dtype)


def _cast_exponent(values: np.ndarray, mode: str, *, saturate: bool) -> np.ndarray:
    """Round magnitudes to powers of two: float8_e8m0fnu stores only an exponent, with 255 for non-finite values."""
    bits = np.abs(values.astype(np.float32)).view(np.uint32)
    exponent, mantissa = (bits >> 23).astype(np.int32), bits & 0x7FFFFF
    if mode == "up":
        exponent += (mantissa > 0) & ((exponent > 0) | (mantissa > 0x400000))
    elif mode == "nearest":
        exponent += np.where(exponent > 0, mantissa >= 0x400000, mantissa > 0x600000)
    elif mode != "down":
        raise ValueError(f"round_mode {mode!r} is not supported")
    codes = np.minimum(exponent, 254 if saturate else 255)
    return np.where(np.isfinite(values), codes, 255).astype(np.uint8).view(logical_dtype("float8_e8m0fnu"))


def cast(x: np.ndarray, dtype: np.dtype, *, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """Convert elements. Floats are truncated to integers, and integers keep their low bits."""
    if x.dtype == dtype:
        return x
    name = logical_name(dtype)
    if name.startswith(("float8", "float4", "float6")):
        if name == "float8_e8m0fnu":
            return _cast_exponent(widen(x), round_mode, saturate=saturate)
        wide = widen(x) if is_real(x.dtype) else x.astype(np.float32)
        return cast_float(wide, dtype, saturate=saturate or name.startswith("float4"))
    if name == "bool":
        return np.asarray(widen(x) != 0)
    if is_integer(name) and name.lstrip("uint") in ("2", "4"):
        bits = int(name.lstrip("uint"))
        low = widen(x).astype(np.int64) & (2**bits - 1)
        signed = np.where(low >= 2 ** (bits - 1), low - 2**bits, low) if name.startswith("i") else low
        return np.asarray(signed).astype(dtype)
    return widen(x).astype(dtype)


@kernel("Cast")
def _cast(call: Call) -> np.ndarray:
    """Convert to the type of the attribute `to`."""
    return _cast_elements(call, onnx_dtype(call.integer("to")))


@kernel("CastLike")
def _cast_like(call: Call) -> np.ndarray:
    """Convert to the type of the second input."""
    return _cast_elements(call, call.array(1).dtype)


def _cast_elements(call: Call, dtype: np.dtype) -> np.ndarray:
    saturate = bool(call.integer("saturate", 1))
    mode = call.text("round_mode", "up")
    if call.array(0).dtype == dtype:
        return call.array(0)
    return elementwise(lambda part: cast(part, dtype, saturate=saturate, round_mode=mode), call.array(0))


def scaling_cost(call: Call) -> Cost:
    """Estimate the cost of scaling, with the per-block scales repeated."""
    x, scale = call.shape(0), call.shape(1)
    return Cost(prod(x), prod(scale) * abs(call.integer("block_size")))


@kernel("QuantizeLinear", cost=scaling_cost, kinds=("iuf", "f"))
@kernel("QuantizeLinear", domain="com.microsoft", cost=scaling_cost, kinds=("iuf", "f"))
def quantize_linear(call: Call) -> np.ndarray:
    """Compute saturate(round(x / scale) + zero_point). Float codes are rounded to their own format."""
    unit = unit_of_call(call)
    if unit is not None:
        return compute(unit, call.arithmetic.variant(unit))
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    if zero_point is None:
        output_type = call.integer("output_dtype")
        zero_point = np.zeros((), dtype=onnx_dtype(output_type) if output_type else np.uint8)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    steps = widen(reshape_to_broadcast(scale, x.shape, axis, block))
    precision, saturates = call.integer("precision"), bool(call.integer("saturate", 1))
    dtype = zero_point.dtype

    def codes(values: np.ndarray, size: np.ndarray, offset: np.ndarray) -> np.ndarray:
        wide = values.astype(np.float32) if values.dtype == np.int32 else widen(values)
        scaled = np.asarray(wide / size.astype(wide.dtype, copy=False))
        if precision:
            scaled = scaled.astype(onnx_dtype(precision)).astype(np.float32)
        if not is_integer(logical_name(dtype)):
            return cast_float(scaled, dtype, saturate=saturates)
        return saturate(round_values(scaled, "even"), offset)

    return elementwise(codes, x, steps, reshape_to_broadcast(zero_point, x.shape, axis, block))


@kernel("DequantizeLinear", cost=scaling_cost)
@kernel("DequantizeLinear", domain="com.microsoft", cost=scaling_cost)
def dequantize_linear(call: Call) -> np.ndarray:
    """Compute (x - zero_point) * scale."""
    unit = unit_of_call(call)
    if unit is not None:
        return compute(unit, call.arithmetic.variant(unit))
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    output_type = call.integer("output_dtype")
    steps = reshape_to_broadcast(scale, x.shape, axis, block)
    if is_integer(logical_name(x.dtype)):
        codes = x.astype(np.int64 if x.dtype.itemsize > 2 else np.int32)
        if zero_point is not None:
            codes = codes - reshape_to_broadcast(zero_point, x.shape, axis, block).astype(codes.dtype)
        wide = codes.astype(widen(steps).dtype)
    else:
        wide = x.astype(np.float32)
    return narrow(np.asarray(wide * widen(steps)), onnx_dtype(output_type) if output_type else scale.dtype)


@kernel("FakeQuantize", kinds=("iuf",) * 5)
def _fake_quantize(call: Call) -> np.ndarray:
    """Round to one of `levels` evenly spaced values of the input range, and map them to the output range.

    Compute rint((x - il) / (ih - il) * (levels - 1)) / (levels - 1) * (oh - ol) + ol, and give ol below the range and
    oh above it. Source: OpenVINO's documentation of FakeQuantize-1.
    """
    x, steps = call.array(0), call.integer("levels") - 1

    def rounded(part: np.ndarray, *ends: np.ndarray) -> np.ndarray:
        wide = widen(part)
        low, high, first, last = (end.astype(wide.dtype) for end in ends)
        level = np.rint((wide - low) / (high - low) * wide.dtype.type(steps)) / wide.dtype.type(steps)
        inside = level * (last - first) + first
        below, above = wide <= np.minimum(low, high), wide > np.maximum(low, high)
        return narrow(np.where(below, first, np.where(above, last, inside)), x.dtype)

    return elementwise(rounded, x, *(call.array(position) for position in range(1, 5)))


def dynamic_quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize to uint8 by the range of the data, widened to include 0.

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
    """Quantize to uint8 by the range of the data. Also return the scale and zero point."""
    return dynamic_quantize(call.array(0))
