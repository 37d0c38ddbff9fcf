"""Encode HDF5 types, so that no private encoding of the library is needed.

Source: HDF5 File Format Specification Version 3.0 (The HDF Group), "The Datatype Message". The numbers equal the
library's predefined types H5T_STD_I8LE ... H5T_IEEE_F64LE. Integers, floats and text have version 1 of the message,
enums, compounds and arrays version 3, which HDF5 1.8 and later read.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import h5py
import numpy as np

from qdebug.recording.format.specification import physical_dtype

__all__ = ["encode_dtype", "encode_logical", "encode_text"]

_HEADER = struct.Struct("<B3sI")
_INTEGER_BITS, _FLOAT_BITS = struct.Struct("<HH"), struct.Struct("<HHBBBBI")
_FIXED_POINT, _FLOATING_POINT, _STRING, _COMPOUND, _ENUM, _ARRAY = 0x10, 0x11, 0x13, 0x36, 0x38, 0x3A
"""Version (upper half) and class of a type."""
_SIGNED, _IMPLIED_ONE, _PADDED_UTF8 = 0x08, 0x20, 0x11
"""Type bits: a signed integer; a mantissa with an implied leading 1; UTF-8 text padded with zeros."""

_FLOATS: dict[str, tuple[int, int, int, int]] = {
    "bfloat16": (2, 8, 7, 127),
    "float16": (2, 5, 10, 15),
    "float32": (4, 8, 23, 127),
    "float64": (8, 11, 52, 1023),
}
"""Bytes, exponent bits, mantissa bits and exponent bias of each float that HDF5 can describe."""
_NUMPY_BOOL = {"FALSE": 0, "TRUE": 1}
"""Members of h5py's enum of booleans."""


def encode_text(size: int) -> bytes:
    """Return the encoded type of a UTF-8 text with a given number of bytes, at least one."""
    return _HEADER.pack(_STRING, bytes((_PADDED_UTF8, 0, 0)), size)


@cache
def encode_logical(logical: str) -> bytes:
    """Return the encoded type that elements of a logical dtype have in the file.

    Raises:
        ValueError: The name is not in `LOGICAL_DTYPES`.
    """
    return _encode_float(logical) if logical == "bfloat16" else encode_dtype(physical_dtype(logical))


def encode_dtype(dtype: np.dtype[Any]) -> bytes:
    """Return the encoded type of a numpy dtype: integers, floats, bool, enums, complex numbers, arrays, compounds.

    Not cached, because numpy considers an enum equal to its integer type.

    Args:
        dtype: The dtype, in any byte order: the file is little-endian.

    Raises:
        ValueError: It contains an unsupported type.
    """
    if (members := h5py.check_enum_dtype(dtype)) is not None:
        return _encode_enum(members, np.dtype(dtype.str))
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        dims = struct.pack(f"<B{len(shape)}I", len(shape), *shape)
        return _HEADER.pack(_ARRAY, bytes(3), dtype.itemsize) + dims + encode_dtype(base)
    if dtype.names is not None:
        fields = [(name, dtype.fields[name][1], dtype.fields[name][0]) for name in dtype.names] if dtype.fields else []
        return _encode_compound(fields, dtype.itemsize)
    if dtype.kind == "c":
        part = np.dtype(f"<f{dtype.itemsize // 2}")
        return _encode_compound([("r", 0, part), ("i", part.itemsize, part)], dtype.itemsize)
    if dtype.kind == "b":
        return _encode_enum(_NUMPY_BOOL, np.dtype("i1"))
    if dtype.kind == "f":
        return _encode_float(dtype.name)
    if dtype.kind in "iu":
        bits = bytes((_SIGNED if dtype.kind == "i" else 0, 0, 0))
        return _HEADER.pack(_FIXED_POINT, bits, dtype.itemsize) + _INTEGER_BITS.pack(0, 8 * dtype.itemsize)
    raise ValueError(f"a recording does not support elements of type {dtype}")


def _encode_float(name: str) -> bytes:
    size, exponent, mantissa, bias = _FLOATS[name]
    sign = 8 * size - 1
    header = _HEADER.pack(_FLOATING_POINT, bytes((_IMPLIED_ONE, sign, 0)), size)
    return header + _FLOAT_BITS.pack(0, 8 * size, mantissa, exponent, 0, mantissa, bias)


def _encode_enum(members: dict[str, int], base: np.dtype[Any]) -> bytes:
    names = b"".join(name.encode() + b"\0" for name in members)
    values = np.array(list(members.values()), base).tobytes()
    header = _HEADER.pack(_ENUM, len(members).to_bytes(3, "little"), base.itemsize)
    return header + encode_dtype(base) + names + values


def _encode_compound(fields: list[tuple[str, int, np.dtype[Any]]], size: int) -> bytes:
    width = max(1, (size.bit_length() + 7) // 8)
    parts = [_HEADER.pack(_COMPOUND, len(fields).to_bytes(3, "little"), size)]
    for name, offset, kind in fields:
        parts += [name.encode() + b"\0", offset.to_bytes(width, "little"), encode_dtype(kind)]
    return b"".join(parts)
