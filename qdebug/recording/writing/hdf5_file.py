"""The HDF5 file of a recording: payloads are written as they come, the metadata at the end.

This writer exists because the HDF5 library kills the process when it cannot write its buffers: with a file size limit
or a full disk, closing a file is a segmentation fault (h5py 3.16 with HDF5 2.0). This writer raises an error, and all
values written before can be recovered. It is also as fast as the disk, whereas creating the dataset of a small tensor
with the library takes longer than everything else together.

A recording needs only a small part of HDF5: datasets that are created once, in a few groups. Their values are in the
file before any metadata, at offsets listed in the journal. The metadata is encoded here and in `hdf5_objects.py`. The
superblock has version 3, with a flag for a file that is being written.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.recording.format.hdf5_types import encode_dtype
from qdebug.recording.format.specification import (
    FORMAT_NAME,
    FORMAT_VERSION,
    GRAPH,
    GRAPH_TABLES,
    HDF5_MAGIC,
    INDEX_DIMS,
    LOCATION_TABLES,
    MAX_ATTRIBUTE,
    MAX_FILTERS,
    MAX_NDIM,
    NOWHERE,
    OPTIONAL_TABLES,
    TABLES,
    columns_of_index,
    hash_of_tables,
    row_type,
)
from qdebug.recording.writing.datasets import Datasets, PlacedPayload
from qdebug.recording.writing.hdf5_objects import (
    UNDEFINED,
    Message,
    array_attribute,
    contiguous_layout,
    continuation,
    dataset_description,
    empty_symbol_table,
    group_bytes,
    header,
    node_sizes_message,
    superblock_checksum,
    text_attribute,
)
from qdebug.version import __version__

__all__ = ["PayloadFile", "write_all"]

_HEADER_BYTES = 1024
"""Space at the start for the superblock, and for the root header with the attributes that readers check first."""
_ALIGNMENT = 16
"""Alignment of payloads in bytes, sufficient to map an array of any dtype."""
_BLOCK_BYTES = 1 << 18
_MAX_WRITE = 1 << 30
_SUPERBLOCK = struct.Struct("<8s4B4Q")


class PayloadFile:
    """An HDF5 file under construction.

    From the start, its first bytes mark it as a recorder's unfinished file.

    Args:
        path: The file to create, which must not exist.
        mode: Its permissions; None for the default ones.

    Raises:
        OSError: It cannot be created. In that case no file is left.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(path, flags, 0o666)
        self.status_when_made = os.fstat(self.fd)
        """Identifies the file, independent of its name."""
        self._file_end = _HEADER_BYTES
        self._queued_bytes = bytearray()
        try:
            if mode is not None:
                os.fchmod(self.fd, mode)
            write_all(self.fd, memoryview(_file_start([_FORMAT], _HEADER_BYTES)), 0)
        except BaseException:
            self.abandon()
            path.unlink(missing_ok=True)
            raise

    def write(self, data: memoryview, digest: Any = None) -> int:
        """Append values, and optionally hash them at the same time.

        Args:
            data: The bytes.
            digest: Hash object, updated with each range while the range is in the processor's cache.

        Returns:
            Their offset.

        Raises:
            OSError: They could not be written. The next values then overwrite them.
        """
        offset = self._file_end
        if digest is None:
            write_all(self.fd, data, offset)
        else:
            for start in range(0, len(data), _BLOCK_BYTES):
                block = data[start : start + _BLOCK_BYTES]
                digest.update(block)
                write_all(self.fd, block, offset + start)
        self._file_end = offset + -(-len(data) // _ALIGNMENT) * _ALIGNMENT
        return offset

    def finish(
        self,
        payloads: Iterable[PlacedPayload],
        tables: Mapping[str, np.ndarray],
        *,
        is_complete: bool,
    ) -> None:
        """Write the datasets, all tables and the attributes of the root, which completes the file.

        Args:
            payloads: The written payloads.
            tables: The tables by name, without the payload tables.
            is_complete: Whether the run finished.

        Raises:
            OSError: The disk is full or failed; the payloads are unchanged.
        """
        payloads = list(payloads)  # because it is iterated twice
        tables = {**tables, **_location_tables(payloads)}
        table_bytes, members, pools = self._write_tables(tables)
        datasets = Datasets(self._queue_block, payloads, tables, pools)
        groups = datasets.write()
        groups[GRAPH] = self._add_group(members)
        fact_attributes = _fact_attributes(tables["run"].tobytes())
        symbols, continuation_bytes = self._write_group(groups), b"".join(fact_attributes)
        extension = self._queue_block(header(node_sizes_message(datasets.chunks_in_node), 1))
        messages = [
            symbols,
            _FORMAT,
            array_attribute("format_version", np.int32(FORMAT_VERSION)),
            array_attribute("complete", np.uint8(is_complete)),
            text_attribute("created_by", f"qdebug {__version__}".encode()),
            text_attribute("tables_hash", hash_of_tables(table_bytes.items()).encode()),
            text_attribute("graph_hash", hash_of_tables((name, table_bytes[name]) for name in GRAPH_TABLES).encode()),
        ]
        if fact_attributes:
            messages.append(continuation(self._queue_block(continuation_bytes), len(continuation_bytes)))
        self._flush()
        self._file_end += datasets.spare_bytes
        messages.append(array_attribute("file_end", np.int64(self._file_end)))
        if datasets.spare_bytes:
            os.ftruncate(self.fd, self._file_end)
        write_all(
            self.fd,
            memoryview(_file_start(messages, self._file_end, extension, continued_count=len(fact_attributes))),
            0,
        )

    def _write_tables(
        self, tables: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, int], dict[str, int]]:
        """Write all tables. Return each table's bytes, header offset and value offset."""
        table_bytes, members, pools = {}, {}, {}
        tables = {**tables, "index": _narrow_index(tables["index"])}
        for name in (*TABLES, *OPTIONAL_TABLES, *LOCATION_TABLES):
            if name in tables:
                raw = table_bytes[name] = np.ascontiguousarray(tables[name]).view(np.uint8).reshape(-1)
                pools[name] = self._queue_block(raw.data) if raw.size else UNDEFINED
                description = dataset_description(_table_type(name, tables[name].dtype.names), tables[name].shape)
                members[name] = self._queue_block(header(description + contiguous_layout(pools[name], raw.size), 4))
        return table_bytes, members, pools

    def _write_group(self, members: Mapping[str, int]) -> Message:
        """Write the names and B-tree of a group, without a header. Return its symbol table message."""
        data, symbols = group_bytes(sorted((name.encode(), place) for name, place in members.items()), self._file_end)
        self._queue_block(data)
        return symbols

    def _add_group(self, members: Mapping[str, int]) -> int:
        """Write a group with a header. Return the offset of the header."""
        return self._queue_block(header(self._write_group(members), 1))

    def _queue_block(self, data: bytes | bytearray | memoryview) -> int:
        """Queue a block of metadata at a multiple of 8 bytes. Return its offset in the file."""
        offset = self._file_end
        self._queued_bytes += data
        self._queued_bytes += bytes(-len(data) % 8)
        self._file_end += len(data) + -len(data) % 8
        if len(self._queued_bytes) > _BLOCK_BYTES:
            self._flush()
        return offset

    def _flush(self) -> None:
        block, self._queued_bytes = self._queued_bytes, bytearray()
        write_all(self.fd, memoryview(block), self._file_end - len(block))

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: The disk failed.
        """
        fd, self.fd = self.fd, -1
        os.close(fd)

    def abandon(self) -> None:
        """Close the file and ignore errors. A second call does nothing."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):  # the host program may have closed all its descriptors
                self.close()


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all bytes at an offset, repeating short writes, which a nearly full disk causes."""
    size = len(data)
    written_count = os.pwrite(fd, data[:_MAX_WRITE], offset)
    while written_count < size:
        written_count += os.pwrite(fd, data[written_count : written_count + _MAX_WRITE], offset + written_count)


def _fact_attributes(run: bytes) -> list[Message]:
    """Return root attributes with the run facts that users need most."""
    run_json = json.loads(run) if run else {}
    info = run_json.get("info", {})
    texts = ((name, str(info.get(name, "")).encode("utf-8", "surrogatepass")) for name in _FACT_NAMES)
    messages = [text_attribute(name, text) for name, text in texts if 0 < len(text) <= MAX_ATTRIBUTE]
    return messages + [
        array_attribute(name, np.uint64(run_json[name])) for name in ("samples", "steps") if name in run_json
    ]


_FACT_NAMES = ("backend", "model", "fidelity", "taps", "created")


def _location_tables(payloads: Sequence[PlacedPayload]) -> dict[str, np.ndarray]:
    """Return the tables of payload locations."""
    numbers = [payload.number for payload in payloads]
    offsets = np.full(max(numbers, default=-1) + 1, NOWHERE, LOCATION_TABLES["payloads"])
    offsets[numbers] = [NOWHERE if payload.offset is None else payload.offset for payload in payloads]
    packed_rows: list[Any] = []
    chunk_rows: list[Any] = []
    for number, chunk_list in [(payload.number, payload.chunks) for payload in payloads if payload.chunks is not None]:
        filters = [filter_number for filter_number, _ in chunk_list.filters]
        chunk_range = number, len(chunk_rows), len(chunk_list.stored)
        packed_rows.append(
            (*chunk_range, _pad_with_zeros(chunk_list.shape, INDEX_DIMS), _pad_with_zeros(filters, MAX_FILTERS))
        )
        chunk_rows += chunk_list.stored
    payloads_of_high_rank = [payload for payload in payloads if len(payload.shape) > INDEX_DIMS]
    shapes = [(payload.number, _pad_with_zeros(payload.shape, MAX_NDIM)) for payload in payloads_of_high_rank]
    optional_rows = {"packed": sorted(packed_rows), "chunks": chunk_rows, "shapes": sorted(shapes)}
    return {"payloads": offsets} | {
        name: np.array(rows, LOCATION_TABLES[name]) for name, rows in optional_rows.items() if rows
    }


def _pad_with_zeros(values: Iterable[int], count: int) -> tuple[int, ...]:
    values = tuple(values)
    return values + (0,) * (count - len(values))


_FORMAT = text_attribute("format", FORMAT_NAME.encode())


def _file_start(messages: list[Message], end: int, extension: int = UNDEFINED, *, continued_count: int = 0) -> bytes:
    """Return the first bytes of a file: the superblock and the root's header.

    Args:
        messages: Messages of the root; its symbol table is only included once the file is complete.
        end: Size of the file.
        extension: Offset of the superblock's extension.
        continued_count: Number of root messages stored elsewhere.
    """
    is_unfinished = extension == UNDEFINED
    superblock = _SUPERBLOCK.pack(HDF5_MAGIC, 3, 8, 8, is_unfinished, 0, extension, end, _SUPERBLOCK.size + 4)
    root = header(
        b"".join([empty_symbol_table(), *messages] if is_unfinished else messages),
        len(messages) + is_unfinished + continued_count,
    )
    return (superblock + struct.pack("<I", superblock_checksum(superblock)) + root).ljust(_HEADER_BYTES, b"\0")


def _narrow_index(index: np.ndarray) -> np.ndarray:
    """Return the index without columns that no row uses, which halves its size if all values are kept."""
    columns = columns_of_index(index)
    return index[list(columns)].astype(_select_fields(row_type("index"), columns))


@cache
def _table_type(name: str, columns: tuple[str, ...] | None) -> bytes:
    return encode_dtype(_select_fields(row_type(name), columns) if columns else row_type(name))


def _select_fields(dtype: np.dtype[Any], names: tuple[str, ...]) -> np.dtype[Any]:
    return np.dtype([(name, dtype[name]) for name in names])
