"""The HDF5 file of a recording: payloads are written as they come, the metadata at the end.

This writer exists because the HDF5 library kills the process when it cannot write its buffers: with a file size limit
or a full disk, closing a file is a segmentation fault (h5py 3.16 with HDF5 2.0). This writer warns once, and keeps
everything that was put before. It is also as fast as the disk. With the library, creating the dataset of a small tensor
takes longer than everything else together.

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
    MAX_ATTRIBUTE,
    MAX_FILTERS,
    MAX_NDIM,
    NOWHERE,
    OPTIONAL_TABLES,
    PLACE_TABLES,
    TABLES,
    columns_of_index,
    hash_of_tables,
    row_type,
)
from qdebug.recording.writing.datasets import Datasets, Placed
from qdebug.recording.writing.hdf5_objects import (
    UNDEFINED,
    Message,
    array_attribute,
    contiguous_layout,
    continuation,
    described,
    group_bytes,
    header,
    no_group,
    node_sizes_message,
    superblock_checksum,
    text_attribute,
)
from qdebug.version import __version__

__all__ = ["PayloadFile", "write_all"]

_HEAD_BYTES = 1024
"""Space at the start for the superblock, and for the root header with the attributes that readers check first."""
_ALIGNMENT = 16
"""Alignment of payloads in bytes, sufficient to map an array of any dtype."""
_STRETCH = 1 << 18
_MOST_AT_ONCE = 1 << 30
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
        self.made = os.fstat(self.fd)
        """Identity of the file, independent of its name."""
        self._end = _HEAD_BYTES
        self._waiting = bytearray()
        try:
            if mode is not None:
                os.fchmod(self.fd, mode)
            write_all(self.fd, memoryview(_head([_FORMAT], _HEAD_BYTES)), 0)
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
            OSError: They could not be written. The next values then take their place.
        """
        offset = self._end
        if digest is None:
            write_all(self.fd, data, offset)
        else:
            for start in range(0, len(data), _STRETCH):
                part = data[start : start + _STRETCH]
                digest.update(part)
                write_all(self.fd, part, offset + start)
        self._end = offset + -(-len(data) // _ALIGNMENT) * _ALIGNMENT
        return offset

    def finish(
        self,
        payloads: Iterable[Placed],
        tables: Mapping[str, np.ndarray],
        *,
        complete: bool,
    ) -> None:
        """Write the datasets, all tables and the attributes of the root, which completes the file.

        Args:
            payloads: The written payloads.
            tables: The tables by name, without the payload tables.
            complete: Whether the run finished.

        Raises:
            OSError: The disk is full or failed; the payloads are unchanged.
        """
        payloads = list(payloads)  # iterated twice
        tables = {**tables, **_place_tables(payloads)}
        written, members, pools = self._write_tables(tables)
        datasets = Datasets(self._add, payloads, tables, pools)
        groups = datasets.write()
        groups[GRAPH] = self._add_group(members)
        more = _facts(tables["run"].tobytes())
        symbols, further = self._group(groups), b"".join(more)
        extension = self._add(header(node_sizes_message(datasets.chunks_in_node), 1))
        messages = [
            symbols,
            _FORMAT,
            array_attribute("format_version", np.int32(FORMAT_VERSION)),
            array_attribute("complete", np.uint8(complete)),
            text_attribute("created_by", f"qdebug {__version__}".encode()),
            text_attribute("tables_hash", hash_of_tables(written.items()).encode()),
            text_attribute("graph_hash", hash_of_tables((name, written[name]) for name in GRAPH_TABLES).encode()),
        ]
        if more:
            messages.append(continuation(self._add(further), len(further)))
        self._flush()
        self._end += datasets.spare
        messages.append(array_attribute("file_end", np.int64(self._end)))
        if datasets.spare:
            os.ftruncate(self.fd, self._end)
        write_all(self.fd, memoryview(_head(messages, self._end, extension, further=len(more))), 0)

    def _write_tables(
        self, tables: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, int], dict[str, int]]:
        """Write all tables. Return each table's bytes, header offset and value offset."""
        written, members, pools = {}, {}, {}
        tables = {**tables, "index": _narrow_index(tables["index"])}
        for name in (*TABLES, *OPTIONAL_TABLES, *PLACE_TABLES):
            if name in tables:
                raw = written[name] = np.ascontiguousarray(tables[name]).view(np.uint8).reshape(-1)
                pools[name] = self._add(raw.data) if raw.size else UNDEFINED
                what = described(_table_type(name, tables[name].dtype.names), tables[name].shape)
                members[name] = self._add(header(what + contiguous_layout(pools[name], raw.size), 4))
        return written, members, pools

    def _group(self, members: Mapping[str, int]) -> Message:
        """Write a group's names. Return its symbol table message."""
        data, symbols = group_bytes(sorted((name.encode(), place) for name, place in members.items()), self._end)
        self._add(data)
        return symbols

    def _add_group(self, members: Mapping[str, int]) -> int:
        """Write a group. Return the offset of its header."""
        return self._add(header(self._group(members), 1))

    def _add(self, data: bytes | bytearray | memoryview) -> int:
        """Queue a block of metadata at a multiple of 8 bytes. Return its offset in the file."""
        offset = self._end
        self._waiting += data
        self._waiting += bytes(-len(data) % 8)
        self._end += len(data) + -len(data) % 8
        if len(self._waiting) > _STRETCH:
            self._flush()
        return offset

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        write_all(self.fd, memoryview(waiting), self._end - len(waiting))

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
            with contextlib.suppress(OSError):  # the host program may have closed all that was open
                self.close()


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all bytes at an offset, repeating short writes, which a nearly full disk causes."""
    size = len(data)
    written = os.pwrite(fd, data[:_MOST_AT_ONCE], offset)
    while written < size:
        written += os.pwrite(fd, data[written : written + _MOST_AT_ONCE], offset + written)


def _facts(run: bytes) -> list[Message]:
    """Return root attributes with the run facts that users need most."""
    plain = json.loads(run) if run else {}
    info = plain.get("info", {})
    texts = ((name, str(info.get(name, "")).encode("utf-8", "surrogatepass")) for name in _FACTS)
    messages = [text_attribute(name, text) for name, text in texts if 0 < len(text) <= MAX_ATTRIBUTE]
    return messages + [array_attribute(name, np.uint64(plain[name])) for name in ("samples", "steps") if name in plain]


_FACTS = ("backend", "model", "fidelity", "taps", "created")


def _place_tables(payloads: Sequence[Placed]) -> dict[str, np.ndarray]:
    """Return the tables of payload offsets."""
    numbers = [placed.number for placed in payloads]
    offsets = np.full(max(numbers, default=-1) + 1, NOWHERE, PLACE_TABLES["payloads"])
    offsets[numbers] = [NOWHERE if placed.offset is None else placed.offset for placed in payloads]
    packed: list[Any] = []
    chunks: list[Any] = []
    for number, cut in [(placed.number, placed.chunks) for placed in payloads if placed.chunks is not None]:
        filters = [filter_number for filter_number, _ in cut.filters]
        where = number, len(chunks), len(cut.stored)
        packed.append((*where, _padded(cut.shape, INDEX_DIMS), _padded(filters, MAX_FILTERS)))
        chunks += cut.stored
    long = [placed for placed in payloads if len(placed.shape) > INDEX_DIMS]
    shapes = [(placed.number, _padded(placed.shape, MAX_NDIM)) for placed in long]
    optional_rows = {"packed": sorted(packed), "chunks": chunks, "shapes": sorted(shapes)}
    return {"payloads": offsets} | {
        name: np.array(rows, PLACE_TABLES[name]) for name, rows in optional_rows.items() if rows
    }


def _padded(values: Iterable[int], count: int) -> tuple[int, ...]:
    values = tuple(values)
    return values + (0,) * (count - len(values))


_FORMAT = text_attribute("format", FORMAT_NAME.encode())


def _head(messages: list[Message], end: int, extension: int = UNDEFINED, *, further: int = 0) -> bytes:
    """Return the first bytes of a file: the superblock and the root's header.

    Args:
        messages: Messages of the root; its symbol table is only included once the file is complete.
        end: Size of the file.
        extension: Offset of the superblock's extension.
        further: Number of root messages stored elsewhere.
    """
    writing = extension == UNDEFINED
    front = _SUPERBLOCK.pack(HDF5_MAGIC, 3, 8, 8, writing, 0, extension, end, _SUPERBLOCK.size + 4)
    root = header(b"".join([no_group(), *messages] if writing else messages), len(messages) + writing + further)
    return (front + struct.pack("<I", superblock_checksum(front)) + root).ljust(_HEAD_BYTES, b"\0")


def _narrow_index(index: np.ndarray) -> np.ndarray:
    """Return the index without uninformative columns, which halves its size if all values are kept."""
    columns = columns_of_index(index)
    return index[list(columns)].astype(_fields(row_type("index"), columns))


@cache
def _table_type(name: str, columns: tuple[str, ...] | None) -> bytes:
    return encode_dtype(_fields(row_type(name), columns) if columns else row_type(name))


def _fields(dtype: np.dtype[Any], names: tuple[str, ...]) -> np.dtype[Any]:
    return np.dtype([(name, dtype[name]) for name in names])
