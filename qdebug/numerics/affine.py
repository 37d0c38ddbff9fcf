"""Affine quantization: real = scale * (code - zero_point), per tensor, per channel or per block.

The real value of a code is a float32: the product of the exact code - zero_point and the float32 scale, rounded once to
float32 (computed in float64 if float32 cannot hold the scale or the difference). This equals ONNX DequantizeLinear for
codes of up to 16 bits. Codes stored as float64 give float64. A scale that was recorded as float64 is rounded to float32
first, so that a float32 scale printed in decimal is restored.

float32 cannot distinguish neighbouring codes beyond 2**24. When 32- and 64-bit codes are compared
(`blocks.make_comparable`), their real value is the product rounded once to float64, `dequantize(double=True)`, and
differences are computed before that rounding (`RealBlocks.wide_codes`).

float64, in turn, cannot distinguish neighbouring codes beyond 2**53. So for 32- and 64-bit codes, scale * (code -
zero_point) is represented as an unevaluated sum of two float64, exact for scales that float32 can hold. Different codes
therefore never become equal numbers, and two codes with the same scale differ by exactly their difference in steps.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from qdebug.errors import UsageError
from qdebug.model.dtypes import is_float, is_integer, logical_dtype, logical_name
from qdebug.model.quant import QuantParams
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.fixedpoint import round_values

__all__ = [
    "BLOCK",
    "Affine",
    "ScaleMap",
    "dequantize",
    "fake_quantize",
    "is_wide_code",
    "quantize",
    "subtract_zero_point",
    "to_single",
    "wide_parts",
]

BLOCK = 32768
"""Elements per block. The last bits of all sums depend on it, so changing it changes results."""

_EXACT_IN_SINGLE = 2**23


class ScaleMap:
    """Maps each element of a tensor to its entry of `QuantParams.scale`.

    Args:
        quant: The parameters.
        shape: Shape of the tensor.

    Raises:
        UsageError: The parameters do not match the shape.
    """

    __slots__ = ("_axis", "_block", "_counts", "_shape", "inner", "scalar")

    def __init__(self, quant: QuantParams, shape: tuple[int, ...]) -> None:
        self.scalar = quant.scale.size == 1
        self._shape = shape
        self._counts = quant.scale.shape
        self._block = quant.block_size
        self.inner = 1
        self._axis = 0
        if self.scalar:
            return
        axis = quant.axis
        if axis is None or not -len(shape) <= axis < len(shape):
            raise UsageError(f"The scales are along axis {axis}, which a tensor of shape {shape} does not have.")
        self._axis = axis % len(shape)
        self.inner = prod(shape[self._axis + 1 :])
        extent = shape[self._axis]
        expected = extent if self._block is None else -(-extent // self._block)
        full = tuple(expected if d == self._axis else size for d, size in enumerate(shape))
        if self._counts not in ((expected,), full) or (self._block is None and quant.scale.ndim != 1):
            raise UsageError(
                f"Scales of shape {self._counts} do not fit axis {self._axis} of a tensor of shape {shape}; "
                f"expected {expected} along it."
            )

    def expand(self, values: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Return the entries of a parameter for the elements start to stop in C order.

        Args:
            values: One of the parameter arrays, in its own shape.
            start: First flat element.
            stop: One past the last.

        Returns:
            A 0-d array if there is one entry for all, else one entry per element.
        """
        if self.scalar:
            return values.reshape(())
        if self._block is not None:
            return self.at(values, np.arange(start, stop))
        extent = self._shape[self._axis]
        first, last = start // self.inner, -(-stop // self.inner)
        entries = values[np.arange(first, last) % extent]
        if self.inner == 1 or not entries.size:
            return np.asarray(entries)
        repeats = np.full(last - first, self.inner)
        repeats[0] -= start - first * self.inner
        repeats[-1] -= last * self.inner - stop
        return np.repeat(entries, repeats)

    def at(self, values: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the entries of a parameter for elements at flat indices in C order; 0-d if all elements share one."""
        if self.scalar:
            return values.reshape(())
        if self._block is None:
            return np.asarray(values[positions // self.inner % self._shape[self._axis]])
        position = list(np.unravel_index(positions, self._shape))
        position[self._axis] = position[self._axis] // self._block
        if len(self._counts) == 1 and len(self._shape) > 1:
            return np.asarray(values.reshape(-1)[position[self._axis]])
        return np.asarray(values.reshape(-1)[np.ravel_multi_index(tuple(position), self._counts)])


def _as_single(quant: QuantParams) -> tuple[np.ndarray, bool]:
    """Return the scale as float32, and whether float32 holds it exactly."""
    if quant.scale.dtype == np.float32:
        return quant.scale, True
    real = quant.real_scale
    with np.errstate(all="ignore"):
        single = real.astype(np.float32)
    return single, np.array_equal(single, real, equal_nan=True)


class Affine:
    """Dequantizes any range of consecutive elements of a tensor.

    Args:
        quant: The parameters.
        shape: Shape of the tensor.
        dtype: Dtype of the stored codes.

    Raises:
        UsageError: The parameters do not match the shape.
    """

    __slots__ = ("_exact_parts", "_scale", "_scale_single", "_single", "_zero_point", "_zero_point_single", "scales")

    def __init__(self, quant: QuantParams, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self.scales = ScaleMap(quant, shape)
        self._scale = quant.real_scale
        self._scale_single, is_scale_exact = _as_single(quant)
        self._zero_point = quant.zero_point
        self._zero_point_single: np.ndarray | None = None
        max_zero_point = max(int(quant.zero_point.max(initial=0)), -int(quant.zero_point.min(initial=0)))
        if max_zero_point:
            self._zero_point_single = quant.zero_point.astype(np.float32)
        narrow = dtype.itemsize <= 2 or dtype == np.float32
        # (narrow code) - (zero point below 2**23) is exact in float32, so the product is rounded once.
        self._single = narrow and is_scale_exact and max_zero_point < _EXACT_IN_SINGLE
        self._exact_parts = (
            is_wide_code(dtype)
            and dtype.itemsize == 4
            and is_scale_exact
            and max_zero_point < 2**48
            and bool(np.isfinite(self._scale).all())
        )

    def apply(self, codes: np.ndarray, start: int, out: np.ndarray) -> None:
        """Write the real values of consecutive codes to `out`.

        Args:
            codes: 1-D stored codes, beginning at flat element `start`.
            start: Flat index of the first code.
            out: 1-D float32 or float64 of the same length.
        """
        stop = start + codes.size
        if self._single and out.dtype == np.float32:
            to_single(codes, out)
            if self._zero_point_single is not None:
                np.subtract(out, self.scales.expand(self._zero_point_single, start, stop), out=out)
            np.multiply(out, self.scales.expand(self._scale_single, start, stop), out=out)
            return
        if out.dtype == np.float64 and is_wide_code(codes.dtype):
            rest = np.empty(codes.size)
            self.apply_wide(codes, start, out, rest)
            np.add(out, rest, out=out)
            return
        real = subtract_zero_point(codes, self.scales.expand(self._zero_point, start, stop))
        np.multiply(real, self.scales.expand(self._scale, start, stop), out=real)
        np.copyto(out, real, casting="same_kind")

    def apply_wide(self, codes: np.ndarray, start: int, high: np.ndarray, low: np.ndarray) -> None:
        """Dequantize consecutive codes to sums of two float64.

        Args:
            codes: 1-D stored codes, beginning at flat element `start`.
            start: Flat index of the first code.
            high: 1-D float64 of the same length, for the values.
            low: 1-D float64 for the remainders, to be added to `high`.
        """
        span = start, start + codes.size
        zero_point, scale = (self.scales.expand(parameter, *span) for parameter in (self._zero_point, self._scale))
        wide_parts(codes, zero_point, scale, (high, low), exact=self._exact_parts)


def subtract_zero_point(codes: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Return code - zero_point in float64, with a single rounding even for 64-bit codes."""
    if codes.dtype.kind not in "iu" or codes.dtype.itemsize < 8:
        return np.asarray(codes.astype(np.float64) - zero_point)
    # Subtract the 32-bit halves separately, so that neither difference can overflow and only their sum is rounded.
    high = (codes >> 32).astype(np.int64) - (zero_point >> 32)
    low = (codes & 0xFFFFFFFF).astype(np.int64) - (zero_point & 0xFFFFFFFF)
    return np.asarray(high.astype(np.float64) * 2.0**32 + low)


@cache
def _byte_table(dtype: np.dtype) -> np.ndarray | None:
    """Return the real value of each byte of an 8-bit float; None for one-byte types that numpy casts quickly."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32) if is_float(dtype.name) else None


def to_single(values: np.ndarray, out: np.ndarray) -> None:
    """Cast a 1-D array to float32, with a table for types that numpy casts slowly (the 8-bit floats)."""
    table = None if values.dtype.kind in "iub" or values.dtype.itemsize > 1 else _byte_table(values.dtype)
    if table is not None:
        np.take(table, values.view(np.uint8), out=out, mode="clip")
    else:
        np.copyto(out, values, casting="unsafe")


def dequantize(codes: np.ndarray, quant: QuantParams | None, *, double: bool = False) -> np.ndarray:
    """Return the real values of stored elements: scale * (code - zero_point).

    Args:
        codes: Stored elements of any shape and dtype.
        quant: Their quantization; None for real numbers.
        double: Whether to round the product to float64 instead of float32, which cannot distinguish all 32-bit codes.

    Returns:
        Quantized: float32 (float64 if requested, and for codes stored as float64). Not quantized: float16, bfloat16 and
        8-bit floats widened to float32; all other types unchanged.

    Raises:
        UsageError: The parameters do not match the shape.
    """
    codes = np.asarray(codes)
    if quant is None:
        if not is_float(logical_name(codes.dtype)) or codes.dtype.itemsize >= 4:
            return codes
        return codes.astype(np.float32)
    affine = Affine(quant, codes.shape, codes.dtype)
    real = np.empty(codes.shape, np.float64 if double or codes.dtype == np.float64 else np.float32)
    source, target = codes.reshape(-1), real.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, source.size, BLOCK):
            checkpoint()
            affine.apply(source[start : start + BLOCK], start, target[start : start + BLOCK])
    return real


def quantize(values: np.ndarray, quant: QuantParams, rounding: str = "even") -> np.ndarray:
    """Return the codes of real values: clip(round(value / scale) + zero_point, qmin, qmax).

    Float32 values with scales that float32 holds and codes of up to 16 bits are divided in float32, as ONNX
    QuantizeLinear does; all others in float64. Scales are rounded to float32 first. Infinities become qmin and qmax.
    NaN has no code and becomes qmin, as in ONNX Runtime's x86 kernels. With a scale of 0, every value becomes qmin or
    qmax.

    Args:
        values: Real values of any shape.
        quant: The parameters; `quant.dtype` is the dtype of the result.
        rounding: A name in `rounding.ROUNDINGS`; ignored for float codes, which round to nearest, ties to even.

    Returns:
        Codes in the logical dtype, of the same shape. Float codes saturate at their largest finite value and keep NaN.

    Raises:
        UsageError: The parameters do not match the shape, or the rounding does not exist.
    """
    values = np.asarray(values)
    dtype = logical_dtype(quant.dtype)
    scales = ScaleMap(quant, values.shape)
    single = values.dtype.itemsize <= 4 and values.dtype.kind not in "iu" and dtype.itemsize <= 2
    short, is_scale_exact = _as_single(quant)
    single = single and is_scale_exact and values.dtype != np.float64
    work = np.float32 if single else np.float64
    scale = short if single else quant.real_scale
    ends = [abs(end) for end in (quant.qmin, quant.qmax) if end is not None]
    narrow = single and max([*ends, int(np.max(np.abs(quant.zero_point), initial=0))]) <= _NARROW
    codes = np.empty(values.shape, dtype)
    source, target = values.reshape(-1), codes.reshape(-1)
    with np.errstate(all="ignore"):
        # run the loop once even if empty, to reject an unknown rounding
        for start in range(0, max(source.size, 1), BLOCK):
            checkpoint()
            stop = min(start + BLOCK, source.size)
            quotient = source[start:stop].astype(work) / scales.expand(scale, start, stop)
            if quant.qmin is None or quant.qmax is None:
                target[start:stop] = _float_codes(quotient, dtype)
                continue
            rounded = round_values(quotient, rounding)
            zero_point = scales.expand(quant.zero_point, start, stop)
            codes_of = _narrow_codes if narrow else _integer_codes
            target[start:stop] = codes_of(rounded, zero_point, quant.qmin, quant.qmax).astype(dtype)
    return codes


def fake_quantize(values: np.ndarray, quant: QuantParams | None) -> np.ndarray:
    """Round real values to a tensor's codes and return the dequantized values. Non-finite values are unchanged.

    Args:
        values: Real values of any shape.
        quant: The quantization of the codes; None leaves the values unchanged.

    Raises:
        UsageError: The parameters do not match the shape.
    """
    if quant is None:
        return values
    rounded = dequantize(quantize(values, quant), quant)
    return rounded if np.isfinite(values).all() else np.where(np.isfinite(values), rounded, values)


_NARROW = 1 << 16
"""Maximum magnitude of codes and zero points for `_narrow_codes`. A sum that float32 rounds is then out of range."""


def _narrow_codes(rounded: np.ndarray, zero_point: np.ndarray, qmin: int, qmax: int) -> np.ndarray:
    """Like `_integer_codes`, but in float32, which holds these codes and zero points exactly."""
    codes = np.add(rounded, zero_point.astype(np.float32))
    np.fmax(codes, np.float32(qmin), out=codes)  # fmax turns NaN into qmin
    return np.asarray(np.minimum(codes, np.float32(qmax), out=codes))


def _integer_codes(rounded: np.ndarray, zero_point: np.ndarray, qmin: int, qmax: int) -> np.ndarray:
    """Add the zero point and clamp, without intermediate overflow of int64 or uint64."""
    info = np.iinfo(np.uint64 if qmax > np.iinfo(np.int64).max else np.int64)
    # Compare before the cast, since casting a float beyond the integer range is undefined.
    real = rounded.astype(np.float64) + zero_point
    low, high = real <= float(qmin), real >= float(qmax)
    inside = ~(low | high | np.isnan(real))
    codes = np.full(rounded.shape, qmin, info.dtype)
    codes[high] = qmax
    codes[inside] = real[inside].astype(info.dtype)
    return codes


def _float_codes(quotient: np.ndarray, dtype: np.dtype) -> np.ndarray:
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # untyped upstream
    return np.asarray(np.clip(quotient, float(info.min), float(info.max)).astype(dtype))


_LOW_BITS = 28
"""Low bits of a code that are multiplied separately.

Their product with a float32 scale, and the sum, fit in float64.
"""
_SPLIT = 2.0**27 + 1.0


@cache
def is_wide_code(dtype: np.dtype) -> bool:
    """Return whether a dtype has integers that float32 cannot represent exactly."""
    return dtype.kind in "iu" and dtype.itemsize >= 4


def wide_parts(
    codes: np.ndarray,
    zero_point: np.ndarray,
    scale: np.ndarray,
    out: tuple[np.ndarray, np.ndarray],
    *,
    exact: bool = False,
) -> None:
    """Dequantize codes into two float64 arrays with an exact sum.

    The error of a floating-point product is computed by Dekker's method (A floating-point technique for extending the
    available precision, Numerische Mathematik 18, 1971).

    Args:
        codes: Codes of any dtype, since narrow codes are also read this way when compared with wide codes.
        zero_point: int64, one for all codes or one for each.
        scale: float64, one for all codes or one for each.
        out: Two float64 arrays: the high parts of the values, and the remainders.
        exact: Whether codes have at most 32 bits, zero points below 2**48 and finite float32 scales, so that float64
            holds the products of both parts of a code exactly.
    """
    high, low = out
    if exact:
        np.subtract(codes, zero_point, out=low, dtype=np.float64)
        _split_low_bits(low, high)
        np.multiply(high, scale, out=high)
        np.multiply(low, scale, out=low)
        return
    upper, lower = _centred_parts(codes, zero_point)
    np.multiply(upper, scale, out=high)
    np.copyto(high, 0.0, where=upper == 0.0)  # 0 times an infinite scale is 0 here, not NaN
    np.multiply(lower, scale, out=low)
    x, x_rest = _split_significand(upper)
    y, y_rest = _split_significand(np.asarray(scale))
    rest = ((x * y - high) + x * y_rest + x_rest * y) + x_rest * y_rest
    np.add(low, np.where(np.isfinite(rest), rest, 0.0), out=low)
    np.copyto(low, 0.0, where=~np.isfinite(high))


def _centred_parts(codes: np.ndarray, zero_point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return code - zero_point as two float64 with an exact sum, for codes of any type."""
    if not (is_integer(codes.dtype.name) or codes.dtype == np.bool_):
        lower = np.asarray(codes.astype(np.float64) - zero_point)
        upper = np.empty_like(lower)
        _split_low_bits(lower, upper)
        return upper, lower
    if codes.dtype != np.uint64:
        codes = codes.astype(np.int64)
    mask = (1 << _LOW_BITS) - 1
    # Neither difference can overflow, and float64 holds both.
    high_difference = (codes >> _LOW_BITS).astype(np.int64) - (zero_point >> _LOW_BITS)
    lower = ((codes & mask).astype(np.int64) - (zero_point & mask)).astype(np.float64)
    upper = np.empty_like(lower)
    _split_low_bits(lower, upper)
    upper += high_difference.astype(np.float64) * 2.0**_LOW_BITS
    return upper, lower


def _split_low_bits(values: np.ndarray, upper: np.ndarray) -> None:
    """Subtract the nearest multiples of 2**28 from values in place. The multiples are 0 for values below 2**27.

    Args:
        values: float64.
        upper: Receives the multiples.
    """
    np.multiply(values, 2.0**-_LOW_BITS, out=upper)
    np.add(upper, 0.5, out=upper)
    np.floor(upper, out=upper)
    np.multiply(upper, 2.0**_LOW_BITS, out=upper)
    np.subtract(values, upper, out=values)


def _split_significand(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split float64 values into two halves of the significand with an exact sum."""
    shifted = values * _SPLIT
    head = np.asarray(shifted - (shifted - values))
    return head, np.asarray(values - head)
