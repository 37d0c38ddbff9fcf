"""AMD Quark quantizers: block floating point, MX formats, and QuantizeLinear to more types than ONNX Runtime supports.

Source: amd/Quark, quark/onnx/operators/custom_ops (custom_op_bfp.cc, bfp/cpu/bfp_kernel.cc, custom_op_mx.cc,
mx/cpu/mx_kernel.cc, mx/funcs.cuh, quantize_linear.h). Earlier versions have other names, in com.vai.quantize.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import ml_dtypes
import numpy as np

from qdebug.model.dtypes import is_integer, logical_dtype, logical_name
from qdebug.numerics.fixedpoint import round_values
from qdebug.replay.extents import Cost
from qdebug.replay.kernels.quantize import cast_float, dequantize_linear, quantize_linear, scaling_cost
from qdebug.replay.precision import narrow
from qdebug.replay.registry import Call, kernel
from qdebug.replay.scaling import reshape_to_broadcast
from qdebug.replay.within import normalize_axis

__all__: list[str] = []

_DOMAINS = ("com.amd.quark", "com.vai.quantize")
_ROUNDINGS = ("away", "up", "even")
_BIAS, _FRACTION, _NON_FINITE = 127, 23, 0xFF
"""Exponent bias of float32, its number of fraction bits, and the exponent of non-finite numbers."""
_SIGN_AND_EXPONENT = 9
_MOST_SHIFT = 25
_ONNX_CODE_BYTES = 2
_INT8_END = 128


def _biased_exponents(x: np.ndarray) -> np.ndarray:
    return np.asarray((x.view(np.uint32) >> np.uint32(_FRACTION)) & np.uint32(_NON_FINITE)).astype(np.int64)


def _rounding(call: Call) -> str:
    mode = call.integer("rounding_mode")
    if not 0 <= mode < len(_ROUNDINGS):
        raise ValueError(f"rounding_mode {mode} is not supported")
    return _ROUNDINGS[mode]


def _powers_of_two(exponent: np.ndarray) -> np.ndarray:
    """Return powers of two as float64."""
    return np.asarray(np.ldexp(1.0, exponent.astype(np.int32)))


def _round_with_shared_exponent(call: Call, blocks: np.ndarray) -> np.ndarray:
    """Round each block to multiples of a power of two that is set by its largest exponent."""
    exponents, bits, rounding = (
        _biased_exponents(blocks),
        call.integer("bit_width", 16) - _SIGN_AND_EXPONENT,
        _rounding(call),
    )
    top = np.where(exponents == _NON_FINITE, 0, exponents).max(-1, keepdims=True)
    step = _powers_of_two(top - _BIAS - (bits - 1)).astype(np.float32)
    if call.integer("use_compiler_version_cpu_kernel"):
        codes = round_values(np.asarray(blocks / step), rounding)
        overflows = ((exponents == top) & ((codes >= _INT8_END) | (codes < -_INT8_END))).any(-1, keepdims=True)
        top, step = top + overflows, np.where(overflows, 2 * step, step)
        high = _powers_of_two(top - _BIAS) * (2.0**bits - 1)
        low = -_powers_of_two(top - _BIAS) * 2.0**bits
    else:
        high = _powers_of_two(top - _BIAS + 1) - step
        low = -high
    rounded = round_values(np.asarray(blocks / step), rounding) * step
    rounded = np.clip(rounded, low.astype(np.float32), high.astype(np.float32))
    return np.where(exponents == _NON_FINITE, blocks, rounded)


def _round_sub_blocks(call: Call, blocks: np.ndarray) -> np.ndarray:
    """Round each part of a block to multiples of a power of two that is at most a few times finer than the block's."""
    bits, rounding = call.integer("bit_width", 16) - _SIGN_AND_EXPONENT, _rounding(call)
    size, max_shift = call.integer("sub_block_size", 2), 2 ** call.integer("sub_block_shift_bits", 1) - 1
    if blocks.shape[-1] % size:
        raise ValueError(f"block size {blocks.shape[-1]} is not a multiple of {size}")
    exponents = _biased_exponents(blocks)
    top = exponents.max(-1, keepdims=True)
    parts = exponents.reshape(*exponents.shape[:-1], -1, size).max(-1)
    shift = np.repeat(np.minimum(top - parts, max_shift), size, axis=-1)
    word = blocks.view(np.uint32)
    fraction = (word & np.uint32(2**_FRACTION - 1)).astype(np.int64) | (1 << _FRACTION)
    fraction, negative = np.where(exponents == 0, 0, fraction), (word >> np.uint32(31)) == 1
    tail = top - shift - exponents + _FRACTION - bits + 1
    whole = _round_to_high_bits(fraction, np.minimum(tail, _MOST_SHIFT), negative, rounding, 2 ** (bits + 1) - 1)
    rounded = (
        np.where(negative, -1.0, 1.0)
        * _powers_of_two(top - _BIAS - shift + 1 - bits)
        * np.where(tail > _MOST_SHIFT, 0, whole)
    )
    return np.where(top == _NON_FINITE, np.float32(np.nan), rounded.astype(np.float32))


def _round_to_high_bits(
    x: np.ndarray, bits: np.ndarray, negative: np.ndarray, rounding: str, max_magnitude: int
) -> np.ndarray:
    """Drop low bits of magnitudes, with rounding. The largest magnitude is never rounded up."""
    shifted, half = x >> bits, np.where(bits > 0, 1 << np.maximum(bits - 1, 0), 1)
    rest = x & ((1 << bits) - 1)
    tie = {"away": np.ones_like(negative), "up": ~negative, "even": shifted % 2 == 1}[rounding]
    up = (rest > half) | ((rest == half) & tie)
    return np.asarray(shifted + (up & (shifted != max_magnitude)))


_ELEMENTS = {
    "fp8_e5m2": (15, np.dtype(ml_dtypes.float8_e5m2)),
    "fp8_e4m3": (8, np.dtype(ml_dtypes.float8_e4m3fn)),
    "fp6_e3m2": (4, np.dtype(ml_dtypes.float6_e3m2fn)),
    "fp6_e2m3": (2, np.dtype(ml_dtypes.float6_e2m3fn)),
    "fp4_e2m1": (2, np.dtype(ml_dtypes.float4_e2m1fn)),
}
"""Element formats of MX blocks and their largest exponents (Open Compute Project, MX specification 1.0)."""
_INT8_STEP = np.float32(2.0**-6)


def _round_to_mx_format(call: Call, blocks: np.ndarray) -> np.ndarray:
    """Round each element to a short format, scaled by a power of two that is set by the block's largest exponent."""
    kind = call.text("element_dtype", "int8")
    if kind != "int8" and kind not in _ELEMENTS:
        raise ValueError(f"element_dtype {kind!r} is not supported")
    exponents = _biased_exponents(blocks)
    top = np.where(exponents == _NON_FINITE, 0, exponents).max(-1, keepdims=True)
    largest, dtype = _ELEMENTS.get(kind, (0, None))
    scale = _powers_of_two(top - _BIAS - largest).astype(np.float32)
    elements = np.asarray(blocks / scale)
    if dtype is None:
        codes = round_values(np.asarray(elements / _INT8_STEP), _rounding(call))
        rounded = np.clip(codes, -_INT8_END, _INT8_END - 1) * _INT8_STEP
    else:
        rounded = cast_float(elements, dtype, saturate=True).astype(np.float32)
    return np.where(exponents == _NON_FINITE, blocks, np.asarray(rounded * scale, np.float32))


def _blocks_cost(call: Call) -> Cost:
    """Estimate the cost of rounding in blocks, with the last block padded."""
    shape, block = call.shape(0), max(abs(call.integer("block_size", 32)), 1)
    return Cost(prod(shape), prod(shape) + prod(shape[:-1]) * block)


def _round_to_block_floats(call: Call) -> np.ndarray:
    """Round to block floating point: blocks along an axis share an exponent."""
    method = call.choice("bfp_method", ("to_bfp", "to_bfp_prime", "to_bfp_prime_shared"), "to_bfp")
    return _round_by_blocks(call, _round_with_shared_exponent if method == "to_bfp" else _round_sub_blocks, 8)


def _round_to_mx_blocks(call: Call) -> np.ndarray:
    """Round to an MX format: blocks along an axis share a scale."""
    return _round_by_blocks(call, _round_to_mx_format, 32)


def _round_by_blocks(call: Call, rounded: Callable[[Call, np.ndarray], np.ndarray], default_block: int) -> np.ndarray:
    """Round in blocks along an axis, with the last block padded with zeros."""
    x, block = call.array(0), call.integer("block_size", default_block)
    real = x.astype(np.float32)
    if call.integer("convert_to_bfloat_before_bfp"):
        real = real.astype(logical_dtype("bfloat16")).astype(np.float32)
    if x.size == 1:
        return narrow(real, x.dtype)
    axis = normalize_axis(call.integer("axis", 1), x.ndim) if x.ndim > 1 else 0
    if block < 1:
        raise ValueError(f"block_size must be at least 1, found {block}")
    blocks_last = np.swapaxes(real, axis, -1)
    width = blocks_last.shape[-1]
    full = np.pad(blocks_last, [(0, 0)] * (blocks_last.ndim - 1) + [(0, -width % block)])
    result = rounded(call, np.ascontiguousarray(full).reshape(*full.shape[:-1], -1, block)).reshape(full.shape)
    return narrow(np.swapaxes(result[..., :width], axis, -1), x.dtype)


def _quantize(call: Call) -> np.ndarray | tuple[np.ndarray, ...]:
    """Compute QuantizeLinear to integer codes. Refuse float formats, which have no scale."""
    x, scale, zero = (call.array(position) for position in range(3))
    if not is_integer(logical_name(zero.dtype)):
        raise ValueError(f"codes of {zero.dtype} are not supported")
    if zero.dtype.itemsize <= _ONNX_CODE_BYTES:
        return quantize_linear(call)
    axis, info = call.integer("axis", 1), np.iinfo(zero.dtype)
    codes = round_values(
        np.asarray(x.astype(np.float32) / reshape_to_broadcast(scale, x.shape, axis, 0)), "even"
    ).astype(np.float64)
    return np.asarray(np.clip(codes + reshape_to_broadcast(zero, x.shape, axis, 0), info.min, info.max)).astype(
        zero.dtype
    )


for _domain in _DOMAINS:
    kernel("BFPQuantizeDequantize", "BFPFixNeuron", domain=_domain, kinds=("f",), cost=_blocks_cost)(
        _round_to_block_floats
    )
    kernel("MXQuantizeDequantize", "MXFixNeuron", domain=_domain, kinds=("f",), cost=_blocks_cost)(_round_to_mx_blocks)
    for _name in ("Extended", "Vitis"):
        kernel(f"{_name}QuantizeLinear", domain=_domain, cost=scaling_cost, kinds=("f", "f"))(_quantize)
        kernel(f"{_name}DequantizeLinear", domain=_domain, cost=scaling_cost, kinds=("iuV", "f"))(dequantize_linear)
