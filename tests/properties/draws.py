"""What the properties of metrics are tried on, and an element's real value as an exact Python number."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from qdebug.model import QuantParams

FLOATS = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64"]
RARE_FLOATS = ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"]
RARE_FLOATS += ["float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
INTEGERS = ["int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = [*FLOATS, *RARE_FLOATS, *INTEGERS, "bool"]
_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def real(value: object, quant: QuantParams | None = None, channel: int = 0) -> float | int:
    """Return an element's real value as a Python number, by the definition in `affine`."""
    number = int(value) if isinstance(value, np.integer | np.bool_) or is_small_int(value) else float(value)
    if quant is None:
        return number
    entry = channel if quant.scale.size > 1 else 0
    with np.errstate(all="ignore"):
        return float(np.float32(float(quant.real_scale[entry]) * float(number - int(quant.zero_point[entry]))))


def is_small_int(value: object) -> bool:
    return "int" in type(value).__name__


def to_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def finite(x: float) -> bool:
    return isinstance(x, int) or math.isfinite(x)


def equal_nonfinite(x: float, y: float) -> bool:
    return x == y or (x != x and y != y)


def listed(array: np.ndarray) -> list[float | int]:
    return [real(x) for x in array.reshape(-1)]


@st.composite
def arrays_of(draw: st.DrawFn, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Draw any bit patterns, so NaN, infinities, denormals and both zeros come up, mixed with everyday values."""
    size = math.prod(shape)
    raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
    if dtype == np.bool_:
        return (np.frombuffer(raw, np.uint8) & 1).astype(np.bool_).reshape(shape)
    bits = _BITS.get(dtype.name, 8 * dtype.itemsize)
    if "int" in dtype.name and bits < 8:
        low = 0 if dtype.name.startswith("u") else -(2 ** (bits - 1))
        return ((np.frombuffer(raw, np.uint8) & (2**bits - 1)).astype(np.int8) + low).astype(dtype).reshape(shape)
    codes = np.frombuffer(raw, np.uint8)
    values = (codes if bits >= 8 else codes & np.uint8(2**bits - 1)).view(dtype).copy()
    everyday = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    with np.errstate(all="ignore"):
        plain = np.frombuffer(raw, np.uint8)[:: dtype.itemsize].astype(np.float32) / 16 - 4
        if dtype.kind in "iu":
            plain = np.abs(np.rint(plain))
        values[everyday] = plain[everyday].astype(dtype)
    return values.reshape(shape)


@st.composite
def pairs(draw: st.DrawFn, dtypes: list[str], *, same_dtype: bool = False) -> tuple[np.ndarray, np.ndarray]:
    first = dtype_of(draw(st.sampled_from(dtypes)))
    second = first if same_dtype else dtype_of(draw(st.sampled_from(dtypes)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    a = draw(arrays_of(first, shape))
    b = draw(arrays_of(second, shape)).copy()
    if first == second and b.size:  # many elements equal, or all
        keep = np.array(draw(st.lists(st.booleans(), min_size=b.size, max_size=b.size))).reshape(shape)
        b[keep] = a[keep]
    return a, b
