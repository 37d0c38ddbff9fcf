"""Locate and read a recording's payloads: a table lists them in format 2, and they are numbered datasets in format 1.

Values are read by this package, never by the HDF5 library. Refusals are ValueErrors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import xxhash

from qdebug.errors import RecordingError
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.numerics.large_arrays import SPILL_FROM, ArrayBuilder
from qdebug.recording.format.payload import RangeReader, array_hash, chunks_of, decompress, read_bytes
from qdebug.recording.format.specification import INDEX_DIMS, NOWHERE, hdf5_type, payload_key, physical_dtype
from qdebug.recording.reading.hdf5_checks import (
    MAX_CHUNK_BYTES,
    MAX_RATIO,
    Extent,
    chunk_table,
    open_dataset,
    refused_filters,
)

__all__ = [
    "ExpectedPayload",
    "Location",
    "NumberedPayloads",
    "Payloads",
    "PlacedPayloads",
    "check_declared_size",
    "check_extent",
    "find_chunk",
    "load_payload",
    "payload_digest",
    "read_payload",
]


class ExpectedPayload(NamedTuple):
    """Expected facts of a payload, from the index.

    Args:
        number: Its number.
        dtype: Logical dtype of its elements.
        nbytes: Its size.
        ndim: Number of its dimensions.
        shape: Its first extents, as many as the index can hold.
    """

    number: int
    dtype: str
    nbytes: int
    ndim: int
    shape: tuple[int, ...]

    @classmethod
    def of_event(cls, row: Any) -> Self:
        """Return the facts of a row of the index."""
        ndim = int(row["ndim"])
        shape = tuple(row["shape"][:ndim].tolist())
        return cls(int(row["payload"]), LOGICAL_DTYPES[row["dtype"]], int(row["nbytes"]), ndim, shape)

    @classmethod
    def of_elements(cls, number: int, dtype: str, count: int) -> Self:
        """Return the expected facts of recorded elements of a tensor, from their number."""
        return cls(number, dtype, count * physical_dtype(dtype).itemsize, 1, (count,))


class Location(NamedTuple):
    """The checked location of a payload.

    Args:
        shape: Its shape.
        itemsize: Bytes of an element.
        offset: Offset of its bytes if contiguous; None if it has no bytes or is chunked.
        chunk: Shape of a chunk; None without chunks.
        filters: Numbers of the filters of a chunk, in the order of application.
        find_chunk: Returns the chunk that begins at a position: its offset in the file, its size, and the filters that
            it lacks.
        leading_chunk: Leading extents of a chunk that holds values of several payloads.
        index_in_chunk: The payload's coordinates within the leading extents.
    """

    shape: tuple[int, ...]
    itemsize: int
    offset: int | None = None
    chunk: tuple[int, ...] | None = None
    filters: tuple[int, ...] = ()
    find_chunk: Callable[[tuple[int, ...]], tuple[int, int, int]] | None = None
    leading_chunk: tuple[int, ...] = ()
    index_in_chunk: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.itemsize


class Payloads(Protocol):
    """The payloads of an open file."""

    fd: int | RangeReader
    """Descriptor of the file."""
    size: int
    """Size of the file."""
    disk_bytes: int
    """Bytes that the file takes on the disk."""

    def __len__(self) -> int:
        """Return the number of payloads."""

    def locate(self, expected: ExpectedPayload) -> Location:
        """Find a payload.

        Raises:
            ValueError: It is missing, contradicts the index, or is not stored as in a recording.
        """


class NumberedPayloads:
    """The payloads of a file of format 1.

    Args:
        group: Its group of payloads (h5py GroupID).
        fd: The file.
        size: Its size.
        disk_bytes: Bytes that it takes on the disk.
    """

    def __init__(self, group: Any, fd: int | RangeReader, *, size: int, disk_bytes: int) -> None:
        self._group, self.fd, self.size, self.disk_bytes = group, fd, size, disk_bytes
        self._count = int(group.get_num_objs())

    def __len__(self) -> int:
        return self._count

    def locate(self, expected: ExpectedPayload) -> Location:
        """Find a payload. Errors as for `Payloads.locate`."""
        dataset, extent = open_dataset(self._group, payload_key(expected.number), file_size=self.size)
        check_declared_size(extent.nbytes, self.disk_bytes)
        check_extent(extent, extent.shape, expected)
        itemsize = extent.itemsize
        if extent.chunk is None:
            return Location(extent.shape, itemsize, extent.offset)
        chunks = chunk_table(dataset)
        if len(chunks) != math.prod(
            -(-size // chunk_size) for size, chunk_size in zip(extent.shape, extent.chunk, strict=True)
        ):
            raise ValueError("chunks are missing")
        return Location(extent.shape, itemsize, None, extent.chunk, extent.filters, partial(find_chunk, chunks))


def check_extent(extent: Extent, shape: tuple[int, ...], expected: ExpectedPayload) -> None:
    """Refuse a dataset whose values contradict the index.

    Args:
        extent: The dataset.
        shape: Shape of the payload, which may share the dataset with others.
        expected: Expected facts, from the index.

    Raises:
        ValueError: It has a different shape or type.
    """
    is_same_shape = len(shape) == expected.ndim and shape[:INDEX_DIMS] == expected.shape
    itemsize = physical_dtype(expected.dtype).itemsize
    if not (is_same_shape and extent.itemsize == itemsize and math.prod(shape) * itemsize == expected.nbytes):
        raise ValueError(f"its shape {extent.shape} differs from the index")
    if not extent.kind.equal(hdf5_type(expected.dtype)):
        raise ValueError(f"it does not have the type of {expected.dtype} elements")


def find_chunk(
    chunks: Mapping[tuple[int, ...], tuple[int, int, int]], position: tuple[int, ...]
) -> tuple[int, int, int]:
    """Return the entry of the chunk that begins at a position.

    Raises:
        ValueError: It is missing.
    """
    if position not in chunks:
        raise ValueError("chunks are missing")
    return chunks[position]


def check_declared_size(nbytes: int, disk_bytes: int) -> None:
    """Refuse a payload whose declared size is implausible for the file's disk space.

    Raises:
        ValueError: The payload is too large.
    """
    if nbytes > MAX_RATIO * disk_bytes:
        raise ValueError(f"it declares {nbytes} bytes, but the file has {disk_bytes} bytes")


class PlacedPayloads:
    """The payloads of a file of format 2.

    Args:
        tables: Its tables of payload locations.
        fd: The file.
        size: Its size.
        disk_bytes: Bytes that it takes on the disk.

    Raises:
        ValueError: The tables contradict each other.
    """

    def __init__(self, tables: Mapping[str, np.ndarray], fd: int | RangeReader, *, size: int, disk_bytes: int) -> None:
        self.fd, self.size, self.disk_bytes = fd, size, disk_bytes
        self._offsets = tables["payloads"]
        self._chunks = tables.get("chunks")
        self._packed, self._shapes = (_rows_by_payload(tables.get(name)) for name in ("packed", "shapes"))

    def __len__(self) -> int:
        return len(self._offsets)

    def locate(self, expected: ExpectedPayload) -> Location:
        """Find a payload. Errors as for `Payloads.locate`."""
        number, itemsize = expected.number, physical_dtype(expected.dtype).itemsize
        if number >= len(self._offsets):
            raise ValueError("it is missing")
        shape = expected.shape if expected.ndim <= INDEX_DIMS else self._read_high_rank_shape(expected)
        nbytes = math.prod(shape) * itemsize
        if nbytes != expected.nbytes:
            raise ValueError(f"its shape {shape} differs from the index")
        check_declared_size(nbytes, self.disk_bytes)
        if nbytes == 0:
            return Location(shape, itemsize)
        offset = int(self._offsets[number])
        if offset == NOWHERE:
            return self._locate_chunks(number, shape, itemsize)
        if offset + nbytes > self.size:
            raise ValueError(f"it declares {nbytes} bytes, more than the file has")
        return Location(shape, itemsize, offset)

    def _read_high_rank_shape(self, expected: ExpectedPayload) -> tuple[int, ...]:
        row = self._shapes.get(expected.number)
        if row is None:
            raise ValueError("its shape is missing")
        shape: tuple[int, ...] = tuple(row["shape"][: expected.ndim].tolist())
        if shape[:INDEX_DIMS] != expected.shape:
            raise ValueError(f"its shape {shape} differs from the index")
        return shape

    def _locate_chunks(self, number: int, shape: tuple[int, ...], itemsize: int) -> Location:
        row = self._packed.get(number)
        if row is None or self._chunks is None or len(shape) > INDEX_DIMS:
            raise ValueError("it has no location")
        chunk = tuple(row["chunk"][: len(shape)].tolist())
        filters = tuple(filter(None, row["filters"].tolist()))
        if refused_numbers := refused_filters(filters):
            raise ValueError(f"it needs the HDF5 filters {refused_numbers}")
        nbytes = math.prod(shape) * itemsize
        if min(chunk, default=1) < 1 or math.prod(chunk) * itemsize > MAX_CHUNK_BYTES:
            raise ValueError(f"it has chunks of shape {chunk}")
        counts = tuple(-(-extent // size) for extent, size in zip(shape, chunk, strict=True))
        first_row, count = int(row["first"]), int(row["count"])
        if count != math.prod(counts) or first_row + count > len(self._chunks):
            raise ValueError("chunks are missing")
        rows = self._chunks[first_row : first_row + count]
        stored_bytes = int(rows["size"].sum(dtype=np.uint64))
        # A small file must not unpack to far more bytes than it stores (a decompression bomb).
        if nbytes > MAX_RATIO * min(stored_bytes, self.size):
            raise ValueError(f"it declares {nbytes} bytes, but stores {stored_bytes} bytes")
        if not bool((rows["offset"] <= self.size - rows["size"].astype(np.int64)).all()):
            raise ValueError("its chunks lie outside the file")

        def find(position: tuple[int, ...]) -> tuple[int, int, int]:
            row_index = np.ravel_multi_index(
                tuple(coordinate // size for coordinate, size in zip(position, chunk, strict=True)), counts
            )
            entry: tuple[int, int, int] = rows[row_index].item()
            return entry

        return Location(shape, itemsize, None, chunk, filters, find)


def _rows_by_payload(rows: np.ndarray | None) -> dict[int, Any]:
    """Return the rows of a table by the number of their payload."""
    by_payload = {} if rows is None else dict(zip(rows["payload"].tolist(), rows, strict=True))
    if rows is not None and len(by_payload) < len(rows):
        raise ValueError("two rows give the location of one payload")
    return by_payload


def read_payload(payloads: Payloads, expected: ExpectedPayload) -> np.ndarray:
    """Return a payload's elements as stored. A very large payload is backed by a temporary file.

    Raises:
        ValueError, OSError: It contradicts the index, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    location = payloads.locate(expected)
    physical = physical_dtype(expected.dtype)
    if location.nbytes == 0:
        return np.empty(location.shape, dtype=physical)
    if location.offset is not None:
        return _read_contiguous(payloads.fd, location, location.offset, physical)
    spilled_result = ArrayBuilder(location.shape, physical)
    for position, chunk in _read_chunks(payloads.fd, location):
        extents = tuple(
            min(size, end - start) for start, size, end in zip(position, chunk.shape, location.shape, strict=True)
        )
        region = tuple(slice(start, start + size) for start, size in zip(position, extents, strict=True))
        spilled_result.put(region, chunk.view(physical)[tuple(slice(size) for size in extents)])
    return spilled_result.finish()


def load_payload(
    payloads: Payloads,
    expected: ExpectedPayload,
    digest: bytes,
    *,
    on_verified: Callable[[], object],
    make_error: Callable[[], RecordingError],
) -> np.ndarray:
    """Return a payload's elements as stored, after checking their hash.

    Args:
        payloads: The payloads of the file.
        expected: Expected facts, from the index.
        digest: Its recorded hash.
        on_verified: Called once the payload was read and its hash verified.
        make_error: Creates the error for a hash mismatch.

    Raises:
        PayloadMismatchError: The hash differs.
        ValueError, OSError: It contradicts the index, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    elements = read_payload(payloads, expected)
    if array_hash(elements) != digest:
        raise make_error()
    on_verified()
    return elements


_PIECE_BYTES = 1 << 20
"""Bytes of a payload read at a time."""


def payload_digest(payloads: Payloads, expected: ExpectedPayload) -> bytes:
    """Return the xxh3-128 digest of a payload of any size, using little memory.

    Raises:
        ValueError, OSError: It contradicts the index, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    location = payloads.locate(expected)
    if location.offset is None or not location.nbytes:
        return array_hash(read_payload(payloads, expected))
    digest, block = xxhash.xxh3_128(), np.empty(min(_PIECE_BYTES, location.nbytes), np.uint8)
    for start in range(0, location.nbytes, _PIECE_BYTES):  # the payload may be larger than the memory
        piece = block[: min(_PIECE_BYTES, location.nbytes - start)]
        read_bytes(payloads.fd, location.offset + start, piece)
        digest.update(piece.data)
    return digest.digest()


def _read_chunks(fd: int | RangeReader, location: Location) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """Yield the position of each chunk's first element, and the chunk's elements as raw bytes."""
    chunk, find_stored_chunk = location.chunk, location.find_chunk
    if chunk is None or find_stored_chunk is None:
        raise ValueError("it has no location")
    chunk_shape = (*location.leading_chunk, *chunk)
    nbytes = math.prod(chunk_shape) * location.itemsize
    raw = np.dtype(f"V{location.itemsize}")
    for position in chunks_of(location.shape, chunk):
        offset, size, mask = find_stored_chunk(position)
        chunk_bytes = np.empty(size, np.uint8)
        read_bytes(fd, offset, chunk_bytes)
        filters = tuple(number for bit, number in enumerate(location.filters) if not mask >> bit & 1)
        values = (
            decompress(chunk_bytes.tobytes(), filters, nbytes=nbytes, itemsize=location.itemsize)
            .view(raw)
            .reshape(chunk_shape)
        )
        yield position, values[location.index_in_chunk]


def _read_contiguous(fd: int | RangeReader, location: Location, offset: int, physical: np.dtype[Any]) -> np.ndarray:
    """Copy contiguous elements into memory.

    They are not memory-mapped, because truncating a mapped file would kill the process (SIGBUS).
    """
    if location.nbytes < SPILL_FROM:
        result = np.empty(location.shape, physical)
        read_bytes(fd, offset, result.reshape(-1).view(np.uint8))
        return result
    spilled_result = ArrayBuilder(location.shape, physical)
    count, step = location.nbytes // physical.itemsize, max(1, _PIECE_BYTES // physical.itemsize)
    block = np.empty(min(step, count), physical)
    for start in range(0, count, step):
        piece = block[: count - start]
        read_bytes(fd, offset + start * physical.itemsize, piece.view(np.uint8))
        spilled_result.put_flat(start, piece)
    return spilled_result.finish()
