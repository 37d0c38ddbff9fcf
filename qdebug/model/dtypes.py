"""Logical dtypes: the names of the element types that a recording can hold.

The names are those of numpy and ml_dtypes ("float32", "bfloat16", "int4", "float8_e4m3fn", "bool").
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

__all__ = [
    "LOGICAL_DTYPES",
    "bit_width",
    "code_limits",
    "is_float",
    "is_integer",
    "is_whole",
    "logical_dtype",
    "logical_name",
]

_NUMPY = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128"
_EXTENSION = (
    "bfloat16 float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn float4_e2m1fn int4 uint4 int2 uint2"
)

LOGICAL_DTYPES: tuple[str, ...] = (*_NUMPY.split(), *_EXTENSION.split())
"""Every logical dtype, in the order of its number in recordings. Append only."""


@cache
def logical_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of a logical dtype.

    Raises:
        ValueError: The name is not in `LOGICAL_DTYPES`.
    """
    if name not in LOGICAL_DTYPES:
        raise ValueError(f"unknown logical dtype {name!r}")
    if name not in _EXTENSION.split():
        return np.dtype(name)
    import ml_dtypes  # imported only here: displaying names does not need this library

    dtype: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


@cache
def logical_name(dtype: np.dtype) -> str:
    """Return the logical name of a numpy dtype of any byte order.

    Raises:
        ValueError: The dtype does not have a logical name (object, text, structured, longdouble).
    """
    if dtype.name not in LOGICAL_DTYPES:
        raise ValueError(f"numpy dtype {dtype} has no logical dtype")
    return dtype.name


def bit_width(name: str) -> int:
    """Return the size of an element of a logical dtype in bits, such as 4 for int4; 8 for bool."""
    digits = re.search(r"\d+", name)
    return int(digits[0]) if digits else 8


def is_integer(name: str) -> bool:
    """Return whether a logical dtype holds integers (bool does not)."""
    return name.startswith(("int", "uint"))


def is_whole(name: str) -> bool:
    """Return whether a logical dtype holds whole numbers: integers or booleans."""
    return name == "bool" or is_integer(name)


def is_float(name: str) -> bool:
    """Return whether a logical dtype holds real floating-point numbers."""
    return name.startswith(("float", "bfloat"))


@cache
def code_limits(name: str) -> tuple[int, int] | tuple[None, None]:
    """Return the lowest and highest value of an integer dtype; None for both if it is another dtype.

    Raises:
        ValueError: The name is not in `LOGICAL_DTYPES`.
    """
    if not is_integer(name):
        logical_dtype(name)
        return None, None
    import ml_dtypes

    info: Any = ml_dtypes.iinfo(logical_dtype(name))  # type: ignore[no-untyped-call]  # untyped upstream
    return int(info.min), int(info.max)
