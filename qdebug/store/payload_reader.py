"""Read the payloads of an open recording file, whole or as a hash; each is checked before a byte of it is read."""

from __future__ import annotations

import errno
import math
import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import xxhash

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.numerics.large_arrays import Making
from qdebug.store.container import Container
from qdebug.store.layout import INDEX_DIMS, hdf5_type, physical_dtype
from qdebug.store.payload import array_hash, chunks_of, decompress
from qdebug.store.safety import Extent, read_bytes

__all__ = ["Expected", "payload_digest", "read_payload"]

_MAP_FROM = 1 << 20
"""Payloads from this size on are mapped; copying a smaller one is as fast and holds no descriptor."""
_STRETCH = 1 << 20


class Expected(NamedTuple):
    """What the index says of a payload.

    Args:
        number: Number of its dataset.
        dtype: Logical dtype of its elements.
        nbytes: Its size.
        ndim: Number of its dimensions.
        shape: Its first extents, as many as the index has room for.
    """

    number: int
    dtype: str
    nbytes: int
    ndim: int
    shape: tuple[int, ...]

    @classmethod
    def of_event(cls, row: Any) -> Self:
        """Return what a row of /index says, or one of some of its columns."""
        found = dict(zip(row.dtype.names, row.item(), strict=True))  # all at once: a field takes as long alone
        ndim = found["ndim"]
        shape = tuple(found["shape"][:ndim].tolist())
        return cls(found["payload"], LOGICAL_DTYPES[found["dtype"]], found["nbytes"], ndim, shape)

    @classmethod
    def of_elements(cls, number: int, dtype: str, count: int) -> Self:
        """Return what holds for so many elements that were kept of a tensor."""
        return cls(number, dtype, count * physical_dtype(dtype).itemsize, 1, (count,))


def read_payload(container: Container, expected: Expected) -> np.ndarray:
    """Give a payload's elements as they lie in the file; a large contiguous one is a view of the file.

    A large compressed one is unpacked into a temporary file, and is a view of that.

    Raises:
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    dataset, extent = _opened(container, expected)
    physical = physical_dtype(expected.dtype)
    if extent.nbytes == 0:
        return np.empty(extent.shape, dtype=physical)
    if extent.offset is not None:
        return _read_contiguous(container.fd, extent, physical)
    _check_chunks(dataset, extent)  # before any room is taken
    making = Making(extent.shape, physical)
    for place, part in _chunks(dataset, extent):
        inside = tuple(min(size, end - start) for start, size, end in zip(place, part.shape, extent.shape, strict=True))
        region = tuple(slice(start, start + size) for start, size in zip(place, inside, strict=True))
        making.put(region, part.view(physical)[tuple(slice(size) for size in inside)])
    return making.done()


def payload_digest(container: Container, expected: Expected) -> bytes:
    """Give the xxh3-128 digest of a payload, with little memory however large it is.

    Raises:
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    _, extent = _opened(container, expected)
    if extent.offset is None or not extent.nbytes:
        return array_hash(read_payload(container, expected))
    digest, block = xxhash.xxh3_128(), np.empty(min(_STRETCH, extent.nbytes), np.uint8)
    for start in range(0, extent.nbytes, _STRETCH):
        part = block[: min(_STRETCH, extent.nbytes - start)]
        read_bytes(container.fd, extent.offset + start, part)
        digest.update(part.data)
    return digest.digest()


def _opened(container: Container, expected: Expected) -> tuple[Any, Extent]:
    dataset, extent = container.open_payload(expected.number)
    fits = len(extent.shape) == expected.ndim and extent.shape[:INDEX_DIMS] == expected.shape
    itemsize = physical_dtype(expected.dtype).itemsize
    if not (fits and extent.itemsize == itemsize and extent.nbytes == expected.nbytes):
        raise ValueError(f"it has shape {extent.shape}, which is not what the index says")
    if not dataset.get_type().equal(hdf5_type(expected.dtype)):
        raise ValueError(f"it does not have the type of {expected.dtype} elements")
    return dataset, extent


def _check_chunks(dataset: Any, extent: Extent) -> None:
    chunk = extent.chunk or ()
    if dataset.get_num_chunks() != math.prod(-(-size // each) for size, each in zip(extent.shape, chunk, strict=True)):
        raise ValueError("chunks are missing")


def _chunks(dataset: Any, extent: Extent) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Give the place and the bytes of each chunk; the last axis counts bytes of elements."""
    chunk = extent.chunk or ()
    nbytes = math.prod(chunk) * extent.itemsize
    raw = np.dtype(f"V{extent.itemsize}")
    for place in chunks_of(extent.shape, chunk):
        mask, stored = dataset.read_direct_chunk(place)
        if mask:
            raise ValueError("a chunk lacks a filter")
        yield (
            place,
            decompress(stored, extent.filters, nbytes=nbytes, itemsize=extent.itemsize).view(raw).reshape(chunk),
        )


def _read_contiguous(fd: int, extent: Extent, physical: np.dtype[Any]) -> np.ndarray:
    offset = int(extent.offset or 0)
    if extent.nbytes >= _MAP_FROM and offset % physical.itemsize == 0:
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(fd, offset - start + extent.nbytes, access=mmap.ACCESS_READ, offset=start)
        except OSError as exc:
            # Each mapping holds a descriptor and address space; out of either, a copy does.
            if exc.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENODEV):
                raise
        else:
            count = extent.nbytes // physical.itemsize
            return np.frombuffer(mapped, dtype=physical, count=count, offset=offset - start).reshape(extent.shape)
    out = np.empty(extent.shape, dtype=physical)
    read_bytes(fd, offset, out.reshape(-1).view(np.uint8))
    return out
