"""The precision in which kernels compute: float64 for float64, float32 for anything narrower."""

from __future__ import annotations

import numpy as np

from qdebug.model.dtypes import code_limits, is_float, logical_dtype, logical_name

__all__ = [
    "ONNX_DTYPES",
    "common_dtype",
    "compute_dtype",
    "fused_multiply_add",
    "integer_limits",
    "is_real",
    "narrow",
    "onnx_dtype",
    "plain_dtype",
    "widen",
]

_IN_ORDER = (
    "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 complex64 complex128"
    " bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn float8_e8m0fnu"
    " uint2 int2"
)

ONNX_DTYPES: dict[int, str] = dict(enumerate(_IN_ORDER.split(), start=1))
"""Logical dtype by ONNX's number of an element type (TensorProto.DataType)."""


def onnx_dtype(number: int) -> np.dtype:
    """Return the numpy dtype of an ONNX element type.

    Raises:
        ValueError: The type is unknown, or text.
    """
    name = ONNX_DTYPES.get(number, f"number {number}")
    if name not in ONNX_DTYPES.values() or name == "string":
        raise ValueError(f"the element type {name} is not supported")
    return logical_dtype(name)


def plain_dtype(dtype: np.dtype) -> np.dtype:
    """Return a native numpy dtype that holds all values of a dtype: int8 for int4, float32 for bfloat16."""
    name = dtype.name
    if hasattr(np, name):
        return np.dtype(name)
    return np.dtype(np.int8 if name.startswith("int") else np.uint8 if name.startswith("uint") else np.float32)


def is_real(dtype: np.dtype) -> bool:
    """Return whether a dtype is floating-point, including the types of ml_dtypes."""
    return is_float(logical_name(dtype))


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype that values of a dtype are computed in: float64 for float64, else float32."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def widen(array: np.ndarray) -> np.ndarray:
    """Return a float array in its compute precision; the same array if it already has it.

    Integers, bool and complex numbers are returned unchanged.
    """
    if array.dtype == np.float32 or not is_real(array.dtype):
        return array
    return array.astype(compute_dtype(array.dtype), copy=False)


def narrow(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert a result to the dtype of its tensor.

    Raises:
        ValueError: The elements cannot be converted.
    """
    if array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "unsafe"):
        raise ValueError(f"{array.dtype} cannot be converted to {dtype}")
    return array.astype(dtype)


def common_dtype(*arrays: np.ndarray) -> np.dtype:
    """Return the common dtype in which numpy combines arrays.

    Raises:
        ValueError: There is no common dtype.
    """
    try:
        return np.result_type(*(array.dtype for array in arrays))
    except np.exceptions.DTypePromotionError:
        raise ValueError(f"{', '.join(str(array.dtype) for array in arrays)} have no common dtype") from None


def integer_limits(dtype: np.dtype) -> tuple[int, int]:
    """Return the lowest and highest value of an integer dtype.

    Raises:
        ValueError: The dtype is not an integer.
    """
    low, high = code_limits(logical_name(dtype))
    if low is None or high is None:
        raise ValueError(f"{dtype} is not an integer type")
    return low, high


def fused_multiply_add(factor: np.ndarray, multiplicand: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """Compute factor * multiplicand + addend in float32 with a single rounding, like a fused multiply-add.

    The product of two float32 is exact in float64. An inexact sum is rounded to odd there, so that a second rounding to
    float32 is correct (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    product = np.asarray(factor.astype(np.float64) * multiplicand.astype(np.float64))
    total = np.asarray(product + addend)
    back = total - product
    residue = np.asarray((product - (total - back)) + (addend - back))
    inexact = (residue != 0) & np.isfinite(total)
    if np.any(inexact):
        even = inexact & (total.view(np.int64) & 1 == 0)
        total = np.where(even, np.nextafter(total, np.copysign(np.inf, residue)), total)
    return np.asarray(total.astype(np.float32))
