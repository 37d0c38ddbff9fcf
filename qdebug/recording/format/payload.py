"""Arrays in a file, contiguous or in compressed chunks. Every element is preserved bit for bit.

Compressed payloads are split into chunks, shuffled and compressed by this module, in the form of HDF5's own filters.
They are also read by this module, so that no filter plugin is ever loaded for a file, and a chunk's size is known
before it is decompressed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash
from h5py import h5z

from qdebug.errors import MissingExtraError, RecordingError
from qdebug.model.dtypes import logical_dtype, logical_name
from qdebug.model.kept import Kept
from qdebug.numerics.large_arrays import ArrayBuilder, passed_pages
from qdebug.recording.format.specification import MAX_NDIM, physical_dtype

__all__ = [
    "ZSTD",
    "PartialArray",
    "RangeReader",
    "StoredArray",
    "array_hash",
    "blocks_of",
    "chunk_shape",
    "chunks_of",
    "compress",
    "decompress",
    "from_physical",
    "payload_hash",
    "read_bytes",
    "storable_dtype",
    "to_bytes",
    "zstd_module",
]

_BLOCK_BYTES = 1 << 20
"""Maximum bytes per block of an array."""

_SMALL_INTEGERS = ("int4", "uint4", "int2", "uint2")
_SMALL_FLOAT_BITS = {"float6_e2m3fn": 0x3F, "float6_e3m2fn": 0x3F, "float4_e2m1fn": 0x0F}


class StoredArray(NamedTuple):
    """The location and hash of a stored array.

    Args:
        payload: Number of its dataset.
        offset: Offset of its bytes in the file; None if it has no bytes.
        digest: Hash of its bytes.
        dtype: Its logical dtype.
        shape: Its shape.
    """

    payload: int
    offset: int | None
    digest: bytes
    dtype: str
    shape: tuple[int, ...]


class PartialArray(NamedTuple):
    """An array that was not stored in full.

    Args:
        kept: Its partial record.
        values: The location of the stored elements; None if no elements were stored.
        positions: The location of their positions.
    """

    kept: Kept
    values: StoredArray | None = None
    positions: StoredArray | None = None


def storable_dtype(name: str, array: np.ndarray) -> str:
    """Return the logical dtype of an array that a recording can hold.

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
            f"Tensor {name!r} has dtype {array.dtype}, which a recording does not support.",
            hint="Convert it to integers, bool, float16/32/64, bfloat16, fp8 or complex64/128 before recording it.",
        ) from None
    if array.ndim > MAX_NDIM:
        raise RecordingError(
            f"Tensor {name!r} has {array.ndim} dimensions; a recording supports at most {MAX_NDIM}.",
            hint="Reshape it before recording it.",
        )
    return logical


def to_bytes(array: np.ndarray, logical: str) -> memoryview:
    """Return an array's elements in file order (C order, little-endian), as a view if possible."""
    physical = physical_dtype(logical)
    if array.dtype == physical:
        stored = np.ascontiguousarray(array)
    elif logical in _SMALL_INTEGERS:
        # ml_dtypes keeps them in the low bits of a byte with undefined high bits; the file holds the value.
        stored = np.ascontiguousarray(array.astype(physical))
    elif logical in _SMALL_FLOAT_BITS:
        stored = np.ascontiguousarray(array).view(np.uint8) & _SMALL_FLOAT_BITS[logical]
    elif array.dtype.isnative and physical.itemsize == 1:
        stored = np.ascontiguousarray(array)
    elif logical == "bfloat16":
        stored = np.ascontiguousarray(array).view(np.uint16).astype(physical, copy=False)
    else:
        stored = _to_file_byte_order(np.ascontiguousarray(array), physical)
    return stored.reshape(-1).view(np.uint8).data


def _to_file_byte_order(array: np.ndarray, physical: np.dtype[Any]) -> np.ndarray:
    """Convert an array to the file's byte order without passing through a float, so that NaN payloads are preserved."""
    if array.dtype.byteorder == physical.byteorder or array.dtype == physical:
        return array
    return array.byteswap().view(physical)


def from_physical(raw: np.ndarray, logical: str) -> np.ndarray:
    """Return stored elements as an array of their logical dtype.

    The result is a view on little-endian machines, except for elements smaller than a byte. Their high bits are
    cleared, so that each element has only one representation in memory. Copies are made as in
    `qdebug.numerics.large_arrays`.

    Args:
        raw: Elements in C order.
        logical: Their logical dtype.
    """
    dtype = logical_dtype(logical)
    if logical in _SMALL_INTEGERS:
        return _convert_blocks(raw, dtype, lambda part: part.astype(dtype))
    if logical in _SMALL_FLOAT_BITS:
        bits = _SMALL_FLOAT_BITS[logical]
        return _convert_blocks(raw, dtype, lambda part: np.asarray(part & bits).view(dtype))
    if raw.dtype == dtype:
        return raw
    if raw.dtype.itemsize == dtype.itemsize and raw.dtype.isnative:
        return raw.view(dtype)
    return _convert_blocks(raw, dtype, lambda part: part.byteswap().view(dtype))


def _convert_blocks(raw: np.ndarray, dtype: np.dtype[Any], convert: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Convert elements to a different dtype, block by block."""
    result = ArrayBuilder(raw.shape, dtype)
    start = 0
    for block in blocks_of(raw):
        result.put_flat(start, convert(block))
        start += block.size
    return result.finish()


def blocks_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array's elements in consecutive 1-D blocks. Elements backed by a file are in memory only briefly.

    Args:
        array: Elements in C order, of any shape.
    """
    flat = array.reshape(-1)
    pages, step = passed_pages(flat), _BLOCK_BYTES // array.itemsize
    for start in range(0, flat.size, step):
        if pages is not None:
            pages.read_up_to(start)
        yield flat[start : start + step]


class RangeReader(Protocol):
    """A remote file, which is read by ranges of bytes."""

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill a buffer with the bytes at an offset.

        Raises:
            ValueError: The file is too short.
        """


def read_bytes(fd: int | RangeReader, offset: int, out: np.ndarray) -> None:
    """Fill an array with the bytes at an offset of a file.

    Args:
        fd: Open file: a descriptor, or a reader.
        offset: Offset of the first byte.
        out: Contiguous uint8 array to fill.

    Raises:
        ValueError: The file is too short.
    """
    view = out.data
    if not isinstance(fd, int):
        fd.read_into(offset, view)
        return
    while view:
        count = os.preadv(fd, [view[: 1 << 30]], offset)
        if count == 0:
            raise ValueError("it ends too early")
        view = view[count:]
        offset += count


def array_hash(stored: np.ndarray) -> bytes:
    """Return the 16-byte xxh3-128 digest of elements in file order."""
    digest = xxhash.xxh3_128()
    for block in blocks_of(stored):
        digest.update(block.view(np.uint8).data)
    return digest.digest()


def payload_hash(stored: memoryview | bytes) -> bytes:
    """Return the 16-byte xxh3-128 digest of a payload's bytes."""
    return xxhash.xxh3_128_digest(stored)


ZSTD = 32015
"""Filter number registered with the HDF Group."""

_CHUNK_BYTES = 1 << 20
_CHECKSUM_BYTES = 4


def zstd_module() -> ModuleType:
    """Return the Zstandard package."""
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("zstandard", extra="zstd", purpose="A recording packed with zstd") from None
    return zstandard


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the shape of chunks of about a megabyte that consist of consecutive elements if possible."""
    elements_left = max(1, _CHUNK_BYTES // itemsize)
    chunk = []
    for extent in reversed(shape):
        size = max(1, min(extent, elements_left))
        chunk.append(size)
        elements_left = max(1, elements_left // size)
    return tuple(reversed(chunk))


def chunks_of(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the offsets of the chunks of an array."""
    return product(*(range(0, extent, size) for extent, size in zip(shape, chunk, strict=True)))


def compress(array: np.ndarray, *, codec: int, use_shuffle: bool, level: int) -> bytes:
    """Return a chunk as HDF5 stores it.

    Args:
        array: The chunk, contiguous.
        codec: `h5py.h5z.FILTER_DEFLATE` or `ZSTD`.
        use_shuffle: Whether the bytes of the elements are first sorted by their position within the element.
        level: Compression level.
    """
    data = array.reshape(-1).view(np.uint8)
    if use_shuffle:
        data = np.ascontiguousarray(data.reshape(-1, array.itemsize).T)
    if codec == ZSTD:
        compressed: bytes = zstd_module().ZstdCompressor(level=level).compress(data.tobytes())
        return compressed
    return zlib.compress(data.data, level)


def decompress(stored: bytes, filters: tuple[int, ...], *, nbytes: int, itemsize: int) -> np.ndarray:
    """Return the bytes of a chunk, uint8.

    Args:
        stored: The chunk as stored in the file.
        filters: Numbers of the filters, in the order in which they were applied.
        nbytes: Size of the chunk.
        itemsize: Size of an element.

    Raises:
        ValueError: The chunk is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    data: Any = stored
    for number in reversed(filters):
        if number == h5z.FILTER_DEFLATE:
            data = _inflate(data, nbytes)
        elif number == ZSTD:
            data = _decompress_zstd(data, nbytes)
        elif number == h5z.FILTER_FLETCHER32:
            data = data[:-_CHECKSUM_BYTES]  # the checksum is not needed: the recording has a hash of the values
        elif number == h5z.FILTER_SHUFFLE and len(data) == nbytes:
            data = np.frombuffer(data, np.uint8).reshape(itemsize, -1).T.tobytes()
        else:
            raise ValueError("a chunk is damaged")
    if len(data) != nbytes:
        raise ValueError(f"a chunk has {len(data)} bytes instead of {nbytes}")
    return np.frombuffer(data, np.uint8)


def _inflate(data: bytes, nbytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        return decompressor.decompress(data, nbytes + _CHECKSUM_BYTES)
    except zlib.error as exc:
        raise ValueError(f"a chunk is damaged: {exc}") from None


def _decompress_zstd(data: bytes, nbytes: int) -> bytes:
    zstd = zstd_module()
    try:
        if zstd.frame_content_size(data) > nbytes + _CHECKSUM_BYTES:
            raise ValueError("a chunk is too large")
        data_out: bytes = zstd.ZstdDecompressor().decompress(data, max_output_size=nbytes + _CHECKSUM_BYTES)
    except zstd.ZstdError as exc:
        raise ValueError(f"a chunk is damaged: {exc}") from None
    return data_out
