"""Arrays as they lie in a file, and back: every element's bits are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xxhash

from qdebug.errors import RecordingError
from qdebug.model.dtypes import logical_dtype, logical_name
from qdebug.numerics.mapped import passed_pages
from qdebug.numerics.spilled import Making
from qdebug.store.layout import MAX_NDIM, physical_dtype

__all__ = ["array_hash", "from_physical", "payload_hash", "storable_dtype", "stretches", "to_bytes"]

_STRETCH = 1 << 20
"""Bytes of a large array that are read at once."""

_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")
_SMALL_FLOAT_BITS = {"float6_e2m3fn": 0x3F, "float6_e3m2fn": 0x3F, "float4_e2m1fn": 0x0F}


def storable_dtype(name: str, array: np.ndarray) -> str:
    """Give the logical dtype of an array that a recording can hold.

    Args:
        name: The tensor, for the error.
        array: Any array.

    Raises:
        RecordingError: Its dtype or its number of dimensions cannot be stored.
    """
    try:
        logical = logical_name(array.dtype)
    except ValueError:
        raise RecordingError(
            f"Tensor {name!r} has dtype {array.dtype}, which a recording cannot hold.",
            hint="Convert it to integers, bool, float16/32/64, bfloat16, fp8 or complex64/128 before recording it.",
        ) from None
    if array.ndim > MAX_NDIM:
        raise RecordingError(
            f"Tensor {name!r} has {array.ndim} dimensions; a recording holds at most {MAX_NDIM}.",
            hint="Reshape it before recording it.",
        )
    return logical


def to_bytes(array: np.ndarray, logical: str) -> memoryview:
    """Give an array's elements as they are stored: C order, little-endian; a view where possible.

    Args:
        array: An array whose logical dtype is `logical`, in any byte and memory order.
        logical: Its logical dtype.
    """
    physical = physical_dtype(logical)
    if logical in _SMALL_INTEGERS:
        # ml_dtypes keeps them in the low bits of a byte, whatever the high bits are; the file holds the value.
        stored = np.ascontiguousarray(array.astype(physical))
    elif logical in _SMALL_FLOAT_BITS:
        stored = np.ascontiguousarray(array).view(np.uint8) & _SMALL_FLOAT_BITS[logical]
    elif array.dtype.isnative and physical.itemsize == 1:
        stored = np.ascontiguousarray(array)
    elif logical == "bfloat16":
        stored = np.ascontiguousarray(array).view(np.uint16).astype(physical, copy=False)
    else:
        stored = _exact_order(np.ascontiguousarray(array), physical)
    return stored.reshape(-1).view(np.uint8).data


def _exact_order(array: np.ndarray, physical: np.dtype[Any]) -> np.ndarray:
    """Bring an array into the file's byte order without passing through a float, so that NaN payloads stay."""
    if array.dtype.byteorder == physical.byteorder or array.dtype == physical:
        return array
    return array.byteswap().view(physical)


def from_physical(raw: np.ndarray, logical: str) -> np.ndarray:
    """Give stored elements as an array of their logical dtype.

    A view on little-endian machines, but for elements of less than a byte: those have their high bits cleared, so
    that an element has one representation in memory. What is no view is made as `qdebug.numerics.spilled` says.

    Args:
        raw: Elements in C order.
        logical: Their logical dtype.
    """
    dtype = logical_dtype(logical)
    if logical in _SMALL_INTEGERS:
        return _made(raw, dtype, lambda part: part.astype(dtype))
    if logical in _SMALL_FLOAT_BITS:
        bits = _SMALL_FLOAT_BITS[logical]
        return _made(raw, dtype, lambda part: np.asarray(part & bits).view(dtype))
    if raw.dtype == dtype:
        return raw
    if raw.dtype.itemsize == dtype.itemsize and raw.dtype.isnative:
        return raw.view(dtype)
    return _made(raw, dtype, lambda part: part.byteswap().view(dtype))


def _made(raw: np.ndarray, dtype: np.dtype[Any], turned: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Turn elements into those of another dtype, a stretch at a time."""
    making = Making(raw.shape, dtype)
    start = 0
    for part in stretches(raw):
        making.put_flat(start, turned(part))
        start += part.size
    return making.done()


def stretches(array: np.ndarray) -> Iterator[np.ndarray]:
    """Give consecutive elements, 1-D, of which those that lie in a file are in memory for a while only.

    Args:
        array: Elements in C order, of any shape.
    """
    flat = array.reshape(-1)
    pages, step = passed_pages(flat), _STRETCH // array.itemsize
    for start in range(0, flat.size, step):
        if pages is not None:
            pages.read_up_to(start)
        yield flat[start : start + step]


def array_hash(stored: np.ndarray) -> bytes:
    """Give the xxh3-128 digest of the bytes of elements as they lie in a file, 16 bytes.

    Args:
        stored: Elements in C order.
    """
    digest = xxhash.xxh3_128()
    for part in stretches(stored):
        digest.update(part.view(np.uint8).data)
    return digest.digest()


def payload_hash(stored: memoryview | bytes) -> bytes:
    """Give the xxh3-128 digest of a payload's bytes, 16 bytes."""
    return xxhash.xxh3_128_digest(stored)
