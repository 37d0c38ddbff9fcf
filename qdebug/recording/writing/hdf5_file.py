"""The HDF5 file of a recording: payloads written as they come, and at the end all that says what is where.

The library of HDF5 takes longer to make a dataset than all else that a small tensor costs, holds back what it has to
write, and may crash when it cannot. A recording needs little of what it can do: datasets that are made once, in two
groups. So the bytes are put together here, in the oldest forms that every reader knows: object headers of version 1,
and groups that are B-trees of version 1 with a local heap. The superblock is of version 3, whose flag says that a
file is being written. Source: HDF5 File Format Specification Version 3.0 (The HDF Group); names in capitals are
signatures there.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from qdebug.recording.format.specification import (
    FORMAT_NAME,
    FORMAT_VERSION,
    GRAPH_TABLES,
    HDF5_MAGIC,
    OPTIONAL_TABLES,
    PAYLOADS,
    TABLES,
    hash_of_tables,
    hdf5_type,
    payload_key,
    physical_dtype,
    row_type,
)
from qdebug.version import __version__

__all__ = ["Chunks", "PayloadFile", "Placed", "write_all"]

_HEAD_BYTES = 1024
"""Room at the beginning for the superblock, and for the root's header with all its attributes."""
_ALIGNMENT = 16
"""Payloads begin at a multiple of so many bytes, so that a mapped array is aligned, of any dtype."""
_STRETCH = 1 << 18
_MOST_AT_ONCE = 1 << 30

_UNDEFINED = (1 << 64) - 1
_SUPERBLOCK = struct.Struct("<8s4B4Q")
_HEADER, _MESSAGE = struct.Struct("<BxHII4x"), struct.Struct("<HHB3x")
_CONTIGUOUS = struct.Struct("<QQ6x")
_HEAP = struct.Struct("<4sB3xQQQ")
_NODE = struct.Struct("<4sBBHQQ")
_IN_LEAF = 8
"""Names in a SNOD: twice the default of HDF5's leaf K."""
_LEAF = np.dtype([("signature", "S4"), ("version", "<u2"), ("count", "<u2"), ("entries", "<u8", (_IN_LEAF, 5))])
_IN_NODE = {0: 32, 1: 64}
"""Children of a node of a B-tree, by its type (groups, chunks): twice HDF5's defaults."""
_DATASPACE, _DATATYPE, _FILL, _LAYOUT, _FILTERS, _ATTRIBUTE, _SYMBOLS = 1, 3, 5, 8, 11, 12, 17
_NEVER_FILLED = bytes((2, 1, 1, 0))
"""A fill value (version 2) of a dataset that has all its room from the beginning: none, and never written."""


class Chunks(NamedTuple):
    """How a dataset is stored that is cut into compressed chunks.

    Args:
        shape: Shape of a chunk.
        filters: Number and values of each filter, in the order in which they were applied.
        places: First element of each chunk, in C order.
        stored: Where each lies in the file, and its bytes.
    """

    shape: tuple[int, ...]
    filters: tuple[tuple[int, tuple[int, ...]], ...]
    places: Sequence[tuple[int, ...]]
    stored: Sequence[tuple[int, int]]


class Placed(NamedTuple):
    """A payload in the file.

    Args:
        number: Number of its dataset.
        dtype: Its logical dtype.
        shape: Its shape.
        offset: Where its bytes begin; None if it has none, or lies in chunks.
        chunks: How it is cut, if it is.
    """

    number: int
    dtype: str
    shape: tuple[int, ...]
    offset: int | None
    chunks: Chunks | None = None


class PayloadFile:
    """An HDF5 file under construction.

    Its first bytes say from the beginning that a recorder made it, and that it is not finished.

    Args:
        path: The file to make; nothing may be there.
        mode: Its permissions; those of a new file if None.

    Raises:
        OSError: It cannot be made; then nothing is there.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.fd = os.open(path, flags, 0o666)
        self.made = os.fstat(self.fd)
        """What the file is, whatever name it gets."""
        self._end = _HEAD_BYTES
        self._waiting = bytearray()
        try:
            if mode is not None:
                os.fchmod(self.fd, mode)
            write_all(self.fd, memoryview(_head({"format": np.bytes_(FORMAT_NAME)}, _HEAD_BYTES, None)), 0)
        except BaseException:
            self.abandon()
            path.unlink(missing_ok=True)
            raise

    def write(self, data: memoryview, digest: Any = None) -> int:
        """Write values behind those that are there, and hash them on the way if wanted.

        Args:
            data: The bytes.
            digest: Takes each stretch while it is in the processor's cache.

        Returns:
            Where they begin.

        Raises:
            OSError: They could not be written; then the next ones take their place.
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

    def finish(self, payloads: Iterable[Placed], tables: Mapping[str, np.ndarray], *, complete: bool) -> None:
        """Write the datasets of payloads, all tables and the attributes of the root; the file is whole then.

        Args:
            payloads: The payloads that were written.
            tables: The tables by name.
            complete: Whether the run finished.

        Raises:
            OSError: The disk is full, or it broke; the payloads are as they were.
        """
        members = {PAYLOADS.encode(): self._add(_header([(_SYMBOLS, self._group(self._datasets(payloads)))]))}
        written = {}
        for name in (*TABLES, *OPTIONAL_TABLES):
            if name in tables:
                raw = written[name] = np.ascontiguousarray(tables[name]).view(np.uint8).reshape(-1)
                offset = self._add(raw.data) if raw.size else None
                head = _contiguous(_table_type(name), tables[name].shape)
                members[name.encode()] = self._add(head + _CONTIGUOUS.pack(_place(offset), raw.size))
        symbols = self._group(members)
        self._flush()
        attributes = {
            "format": np.bytes_(FORMAT_NAME),
            "format_version": np.int32(FORMAT_VERSION),
            "complete": np.uint8(complete),
            "created_by": np.bytes_(f"qdebug {__version__}"),
            "tables_hash": np.bytes_(hash_of_tables(written.items())),
            "graph_hash": np.bytes_(hash_of_tables((name, written[name]) for name in GRAPH_TABLES)),
        }
        write_all(self.fd, memoryview(_head(attributes, self._end, symbols)), 0)

    def _add(self, data: bytes | bytearray | memoryview) -> int:
        """Write a part of what says what is where, soon, at a multiple of 8 bytes; return where it begins."""
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

    def _datasets(self, payloads: Iterable[Placed]) -> dict[bytes, int]:
        """Write the headers of payloads; return where each is, by its name."""
        alike: dict[tuple[str, tuple[int, ...]], tuple[list[int], list[int]]] = {}
        found = {}
        for number, dtype, shape, offset, chunks in payloads:
            if chunks is not None:
                itemsize = physical_dtype(dtype).itemsize
                found[payload_key(number)] = self._add(self._chunked(_payload_type(dtype), shape, itemsize, chunks))
                continue
            numbers, places = alike.setdefault((dtype, shape), ([], []))
            numbers.append(number)
            places.append(_place(offset))
        for (dtype, shape), (numbers, places) in alike.items():
            head = _contiguous(_payload_type(dtype), shape)
            rows = np.zeros(len(numbers), [("head", "u1", len(head)), ("place", "<u8"), ("nbytes", "<u8"), ("", "V6")])
            rows["head"] = np.frombuffer(head, np.uint8)
            rows["place"] = places
            rows["nbytes"] = math.prod(shape) * physical_dtype(dtype).itemsize
            first = self._add(rows.tobytes())
            found.update(zip(map(payload_key, numbers), range(first, self._end, rows.itemsize), strict=True))
        return found

    def _group(self, members: Mapping[bytes, int]) -> bytes:
        """Write a group's names; return its symbol table message.

        Args:
            members: Where the header of each member is, by its name, which has less than 16 bytes.
        """
        names = sorted(members)
        data, symbols = _group_bytes(
            np.array(names, "S16"), np.array([members[name] for name in names], "<u8"), self._end
        )
        self._add(data)
        return symbols

    def _chunked(self, kind: bytes, shape: tuple[int, ...], itemsize: int, chunks: Chunks) -> bytes:
        """Write where the chunks of a dataset are; return its header."""
        key = struct.Struct(f"<II{len(shape) + 1}Q")
        keys = [key.pack(size, 0, *place, 0) for place, (_, size) in zip(chunks.places, chunks.stored, strict=True)]
        behind = (start + extent for start, extent in zip(chunks.places[-1], chunks.shape, strict=True))
        ends = [*keys, key.pack(0, 0, *behind, itemsize)]
        data, tree = _tree_bytes(1, [offset for offset, _ in chunks.stored], ends, self._end)
        self._add(data)
        extents = (*chunks.shape, itemsize)
        layout = struct.pack(f"<BBBQ{len(extents)}I", 3, 2, len(extents), tree, *extents)
        filters = [struct.pack("<BB6x", 1, len(chunks.filters))]
        for number, values in chunks.filters:
            padded = (*values, *(0,) * (len(values) % 2))
            filters.append(struct.pack(f"<HHHH{len(padded)}I", number, 0, 1, len(values), *padded))
        return _header([*_described(kind, shape), (_LAYOUT, layout), (_FILTERS, b"".join(filters))])

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: The disk broke.
        """
        fd, self.fd = self.fd, -1
        os.close(fd)

    def abandon(self) -> None:
        """Close the file, whatever becomes of it. Again does nothing."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):  # the host program may have closed all that was open
                self.close()


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all bytes at an offset: a short write is real on a disk that is about to be full."""
    size = len(data)
    done = os.pwrite(fd, data[:_MOST_AT_ONCE], offset)
    while done < size:
        done += os.pwrite(fd, data[done : done + _MOST_AT_ONCE], offset + done)


def _head(attributes: Mapping[str, np.generic], end: int, symbols: bytes | None) -> bytes:
    """Return the first bytes of a file: the superblock and the root's header.

    Args:
        attributes: Of the root.
        end: Size of the file.
        symbols: The root's symbol table message; None while the file is written.
    """
    writing = symbols is None
    front = _SUPERBLOCK.pack(HDF5_MAGIC, 3, 8, 8, writing, 0, _UNDEFINED, end, _SUPERBLOCK.size + 4)
    messages = [(_SYMBOLS, struct.pack("<QQ", _UNDEFINED, _UNDEFINED) if symbols is None else symbols)]
    messages += [(_ATTRIBUTE, _attribute(name.encode(), value)) for name, value in attributes.items()]
    return (front + struct.pack("<I", _checksum(front)) + _header(messages)).ljust(_HEAD_BYTES, b"\0")


def _attribute(name: bytes, value: np.generic) -> bytes:
    dtype = np.asarray(value).dtype.newbyteorder("<")
    parts = name + b"\0", _value_type(dtype), _space(())
    head = struct.pack("<BxHHH", 1, *map(len, parts))
    return head + b"".join(part + bytes(-len(part) % 8) for part in parts) + np.asarray(value, dtype).tobytes()


def _header(messages: Iterable[tuple[int, bytes]]) -> bytes:
    """Return an object header, from the kind and the body of each message."""
    bodies = []
    for kind, body in messages:
        padded = body + bytes(-len(body) % 8)
        bodies += [_MESSAGE.pack(kind, len(padded), 0), padded]
    data = b"".join(bodies)
    return _HEADER.pack(1, len(bodies) // 2, 1, len(data)) + data


def _leaves(count: int) -> int:
    """Return how many leaves so many names take."""
    return -(-count // _IN_LEAF)


def _group_bytes(names: np.ndarray, places: np.ndarray, at: int) -> tuple[bytes, bytes]:
    """Return a group as it is written, and its symbol table message.

    Args:
        names: The name of each member (S16), sorted.
        places: Where the header of each is.
        at: Where in the file it will begin.
    """
    starts = 8 + 16 * np.arange(len(names))
    values = bytes(8) + names.tobytes()
    heap = at + len(values)
    leaves = np.zeros(_leaves(len(names)), _LEAF)
    entries = np.zeros((len(leaves) * _IN_LEAF, 5), "<u8")
    entries[: len(names), 0], entries[: len(names), 1] = starts, places
    leaves["signature"], leaves["version"], leaves["count"] = b"SNOD", 1, _IN_LEAF
    leaves["count"][-1:] -= len(entries) - len(names)
    leaves["entries"] = entries.reshape(-1, _IN_LEAF, 5)
    first = heap + _HEAP.size
    last = np.minimum(_IN_LEAF * np.arange(1, len(leaves) + 1), len(names)) - 1
    keys = [start.to_bytes(8, "little") for start in (0, *starts[last].tolist())]
    tree, root = _tree_bytes(0, range(first, first + leaves.nbytes, _LEAF.itemsize), keys, first + leaves.nbytes)
    data = b"".join((values, _HEAP.pack(b"HEAP", 0, len(values), 1, at), leaves.tobytes(), tree))
    return data, struct.pack("<QQ", root, heap)


def _tree_bytes(kind: int, children: Sequence[int], keys: list[bytes], at: int) -> tuple[bytes, int]:
    """Return a B-tree as it is written, and where its root is.

    Args:
        kind: Its type: 0 of groups, 1 of chunks.
        children: Where its leaves lead to.
        keys: What stands before each of them and behind the last one.
        at: Where in the file it will begin.
    """
    most, level = _IN_NODE[kind], 0
    size = _NODE.size + (most + 1) * len(keys[0]) + most * 8
    size += -size % 8
    parts: list[bytes] = []
    while True:
        nodes, first = max(1, -(-len(children) // most)), at + size * len(parts)
        for number in range(nodes):
            inside = children[number * most : (number + 1) * most]
            left = _UNDEFINED if number == 0 else first + (number - 1) * size
            right = _UNDEFINED if number == nodes - 1 else first + (number + 1) * size
            node = [_NODE.pack(b"TREE", kind, level, len(inside), left, right)]
            for place, child in enumerate(inside, start=number * most):
                node += [keys[place], child.to_bytes(8, "little")]
            node.append(keys[min(len(children), (number + 1) * most)])
            parts.append(b"".join(node).ljust(size, b"\0"))
        if nodes == 1:
            return b"".join(parts), first
        children, level = [first + number * size for number in range(nodes)], level + 1
        keys = [*keys[:-1:most], keys[-1]]


def _described(kind: bytes, shape: tuple[int, ...]) -> list[tuple[int, bytes]]:
    return [(_DATASPACE, _space(shape)), (_DATATYPE, kind), (_FILL, _NEVER_FILLED)]


def _space(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f"<BB6x{len(shape)}Q", 1, len(shape), *shape)


def _contiguous(kind: bytes, shape: tuple[int, ...]) -> bytes:
    """Return the header of a contiguous dataset up to where its bytes are, which follows."""
    layout = bytes((3, 1)) + _CONTIGUOUS.pack(0, 0)
    return _header([*_described(kind, shape), (_LAYOUT, layout)])[: -_CONTIGUOUS.size]


def _place(offset: int | None) -> int:
    return _UNDEFINED if offset is None else offset


@cache
def _value_type(dtype: np.dtype[Any]) -> bytes:
    return _encoded(h5py.h5t.py_create(dtype, logical=True))


@cache
def _payload_type(logical: str) -> bytes:
    return _encoded(hdf5_type(logical))


@cache
def _table_type(name: str) -> bytes:
    return _value_type(row_type(name))


def _encoded(kind: Any) -> bytes:
    """Return a type (h5py TypeID) as it stands in a message; the library puts two bytes before it."""
    return bytes(kind.encode())[2:]


def _checksum(data: bytes) -> int:
    """Return the checksum of a superblock: Bob Jenkins' lookup3 (2006), of 44 bytes, as little-endian words."""
    words: tuple[int, ...] = struct.unpack("<11I", data)
    x = y = z = (0xDEADBEEF + len(data)) & 0xFFFFFFFF

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (32 - bits)) & 0xFFFFFFFF

    for start in (0, 3, 6):
        x, y, z = (one + other & 0xFFFFFFFF for one, other in zip((x, y, z), words[start : start + 3], strict=True))
        for bits in (4, 6, 8, 16, 19, 4):
            x, z = (x - z & 0xFFFFFFFF) ^ turned(z, bits), z + y & 0xFFFFFFFF
            x, y, z = y, z, x
    x, y = x + words[9] & 0xFFFFFFFF, y + words[10] & 0xFFFFFFFF
    for bits in (14, 11, 25, 16, 4, 14, 24):
        z = (z ^ y) - turned(y, bits) & 0xFFFFFFFF
        x, y, z = y, z, x
    return y
