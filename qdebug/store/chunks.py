"""Compressed payloads: cut into chunks, shuffled and compressed by us, in the form of HDF5's own filters.

Reading goes the same way back, so that no filter plugin is ever loaded on a file's behalf, and what a chunk may grow to
is known before it is decompressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from h5py import h5z

from qdebug.errors import MissingExtraError

__all__ = ["ZSTD", "chunk_shape", "chunks_of", "compress", "decompress", "zstd_module"]

ZSTD = 32015
"""The number under which the HDF Group has registered the filter."""

_CHUNK_BYTES = 1 << 20
_CHECKSUM_BYTES = 4


def zstd_module() -> ModuleType:
    """Give the package that knows Zstandard.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("zstandard", extra="zstd", purpose="A recording packed with zstd") from None
    return zstandard


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Give the shape of chunks of about a megabyte that are runs of elements where possible."""
    left = max(1, _CHUNK_BYTES // itemsize)
    chunk = []
    for extent in reversed(shape):
        size = max(1, min(extent, left))
        chunk.append(size)
        left = max(1, left // size)
    return tuple(reversed(chunk))


def chunks_of(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """List the offsets of the chunks of an array."""
    return product(*(range(0, extent, size) for extent, size in zip(shape, chunk, strict=True)))


def compress(array: np.ndarray, *, codec: int, shuffle: bool, level: int) -> bytes:
    """Give a whole chunk as HDF5 stores it.

    Args:
        array: The chunk, contiguous.
        codec: `h5py.h5z.FILTER_DEFLATE` or `ZSTD`.
        shuffle: Whether the bytes of the elements are sorted by their place within the element first.
        level: How hard to try.
    """
    data = array.reshape(-1).view(np.uint8)
    if shuffle:
        data = np.ascontiguousarray(data.reshape(-1, array.itemsize).T)
    if codec == ZSTD:
        compressed: bytes = zstd_module().ZstdCompressor(level=level).compress(data.tobytes())
        return compressed
    return zlib.compress(data.data, level)


def decompress(stored: bytes, filters: tuple[int, ...], *, nbytes: int, itemsize: int) -> np.ndarray:
    """Give the bytes of a chunk, uint8.

    Args:
        stored: The chunk as it lies in the file.
        filters: Numbers of the filters in the order in which they were applied.
        nbytes: Size of the chunk.
        itemsize: Size of an element.

    Raises:
        ValueError: The chunk is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    data: Any = stored
    for number in reversed(filters):
        if number == h5z.FILTER_DEFLATE:
            data = _inflated(data, nbytes)
        elif number == ZSTD:
            data = _unzstd(data, nbytes)
        elif number == h5z.FILTER_FLETCHER32:
            data = data[:-_CHECKSUM_BYTES]  # the recording has a hash of its own
        elif number == h5z.FILTER_SHUFFLE and len(data) == nbytes:
            data = np.frombuffer(data, np.uint8).reshape(itemsize, -1).T.tobytes()
        else:
            raise ValueError("a chunk is damaged")
    if len(data) != nbytes:
        raise ValueError(f"a chunk has {len(data)} bytes instead of {nbytes}")
    return np.frombuffer(data, np.uint8)


def _inflated(data: bytes, nbytes: int) -> bytes:
    machine = zlib.decompressobj()
    try:
        return machine.decompress(data, nbytes + _CHECKSUM_BYTES)
    except zlib.error as exc:
        raise ValueError(f"a chunk is damaged: {exc}") from None


def _unzstd(data: bytes, nbytes: int) -> bytes:
    zstd = zstd_module()
    try:
        if zstd.frame_content_size(data) > nbytes + _CHECKSUM_BYTES:
            raise ValueError("a chunk is larger than it may be")
        plain: bytes = zstd.ZstdDecompressor().decompress(data, max_output_size=nbytes + _CHECKSUM_BYTES)
    except zstd.ZstdError as exc:
        raise ValueError(f"a chunk is damaged: {exc}") from None
    return plain
