"""Bodies of the journal's frames: events, and the tables of a graph. `qdebug.store.journal` specifies them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.kept import EXPONENT_BINS
from qdebug.store.index_rows import Partly
from qdebug.store.journal import decode_json, encode_json
from qdebug.store.layout import INDEX_DIMS, MAX_NDIM, TABLES, Flag, physical_dtype

__all__ = [
    "MAX_NAME",
    "HashKind",
    "JournalEvent",
    "Sampled",
    "Where",
    "decode_event",
    "decode_tables",
    "encode_event",
    "encode_kept_event",
    "encode_tables_body",
]

_LENGTH = struct.Struct("<I")
_TAIL = struct.Struct("<QBBBB")
_SAMPLED = struct.Struct("<QQQ16s16s")
_BINS = np.zeros((2, EXPONENT_BINS), "<u8")
_ROW_BYTES = TABLES["index"].itemsize
MAX_NAME = 1 << 20
"""Bytes of a tensor's name that a reader accepts."""


class Where(IntEnum):
    """Where the payload of an event is."""

    NOWHERE = 0
    PART = 1
    INLINE = 2


class HashKind(IntEnum):
    """What the hash of an event is."""

    NONE = 0
    XXH3 = 1
    CRC32 = 2


class Sampled(NamedTuple):
    """Where the elements of a sampled event are.

    Args:
        values: Where they begin in NAME.part.
        positions: Where their positions begin.
        size: How many there are.
        digest: Hash of the elements.
        check: Hash of their positions.
    """

    values: int
    positions: int
    size: int
    digest: bytes
    check: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvent:
    """A tensor's values at one sample and step, as the journal has them.

    Args:
        name: The tensor.
        row: A row of the table /index; `tensor` and `quant` are meaningless.
        shape: The tensor's shape.
        offset: Where the payload begins; meaningless if it is nowhere.
        sampled: Where the elements are that were kept of a sampled one.
        bins: Its histogram, as in /exponents.
        where: What `offset` counts in.
        hash_kind: What the row's `hash` is.
        constant: Whether the tensor is a constant.
    """

    name: str
    row: np.void
    shape: tuple[int, ...]
    offset: int = 0
    sampled: Sampled | None = None
    bins: np.ndarray | None = None
    where: Where = Where.PART
    hash_kind: HashKind = HashKind.XXH3
    constant: bool = False

    @property
    def dtype(self) -> str:
        """Logical dtype of the elements."""
        return LOGICAL_DTYPES[int(self.row["dtype"])]

    @property
    def flags(self) -> Flag:
        """Bits of the row."""
        return Flag(int(self.row["flags"]))

    @property
    def partly(self) -> bool:
        """Whether not all values were kept."""
        return bool(self.flags & (Flag.SAMPLED | Flag.STATS_ONLY))


def encode_event(row: bytes, shape: Sequence[int], name: str, *, offset: int | None, constant: bool) -> bytes:
    """Give the body of an event whose payload lies in NAME.part.

    Args:
        row: The row of /index.
        shape: The tensor's shape.
        name: The tensor.
        offset: Where the payload begins; None if it has no bytes.
        constant: Whether the tensor is a constant.
    """
    return _encode(row, shape, name, offset=offset, constant=constant)


def encode_kept_event(row: bytes, partly: Partly, name: str, *, constant: bool) -> bytes:
    """Give the body of an event whose values are not kept in full; arguments as of `encode_event`."""
    kept, values, positions = partly
    parts = []
    if values is not None and positions is not None:
        count = values.shape[0]
        parts += [_SAMPLED.pack(values.offset or 0, positions.offset or 0, count, values.digest, positions.digest)]
    parts += [bins.astype("<u8").tobytes() for bins in (kept.statistics.negative, kept.statistics.positive)]
    return _encode(row, kept.shape, name, offset=None, constant=constant, extra=b"".join(parts))


def _encode(
    row: bytes, shape: Sequence[int], name: str, *, offset: int | None, constant: bool, extra: bytes = b""
) -> bytes:
    where = Where.NOWHERE if offset is None else Where.PART
    tail = _TAIL.pack(offset or 0, where, HashKind.XXH3, constant, 0)
    extents = struct.pack(f"<{len(shape)}Q", *shape) if len(shape) > INDEX_DIMS else b""
    return b"".join((row, tail, extra, extents, name.encode("utf-8", "surrogatepass")))


def decode_event(body: bytes) -> JournalEvent:
    """Read the body of an event.

    Raises:
        ValueError: It is none.
    """
    rest = _Rest(body)
    row = np.frombuffer(rest.take(_ROW_BYTES), dtype=TABLES["index"])[0]
    offset, where, hash_kind, constant, _ = _TAIL.unpack(rest.take(_TAIL.size))
    flags, ndim = Flag(int(row["flags"])), int(row["ndim"])
    if int(row["dtype"]) >= len(LOGICAL_DTYPES) or ndim > MAX_NDIM:
        raise ValueError("an event has an impossible dtype or shape")
    sampled = Sampled(*_SAMPLED.unpack(rest.take(_SAMPLED.size))) if Flag.SAMPLED in flags else None
    bins = np.frombuffer(rest.take(_BINS.nbytes), "<u8").reshape(_BINS.shape) if Flag.HISTOGRAM in flags else None
    shape = tuple(int(extent) for extent in row["shape"][: min(ndim, INDEX_DIMS)])
    if ndim > INDEX_DIMS:
        shape = struct.unpack(f"<{ndim}Q", rest.take(8 * ndim))
    name = rest.take(len(body))
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError("an event has no name, or one that is too long")
    event = JournalEvent(
        name=name.decode("utf-8", "surrogatepass"),
        row=row,
        shape=shape,
        offset=offset,
        sampled=sampled,
        bins=bins,
        where=Where(where),
        hash_kind=HashKind(hash_kind),
        constant=bool(constant),
    )
    _check_size(event)
    return event


class _Rest:
    """Bytes that are taken from the front."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, size: int) -> bytes:
        """Take so many bytes, or all that are left if fewer are, where that is allowed: at the end."""
        part = self._body[self._at : self._at + size]
        if len(part) < size and size != len(self._body):
            raise ValueError("an event is too short")
        self._at += len(part)
        return part


def _check_size(event: JournalEvent) -> None:
    count = 1
    for extent in event.shape:
        count *= extent
    itemsize, nbytes = physical_dtype(event.dtype).itemsize, int(event.row["nbytes"])
    if nbytes != count * itemsize or (event.sampled is not None and event.sampled.size > count):
        raise ValueError("size and shape of an event contradict each other")


def encode_tables_body(tables: Mapping[str, np.ndarray]) -> bytes:
    """Give the tables of a graph, without index, as the body of a frame."""
    parts = {name: tables[name].tobytes() for name in TABLES if name in tables and name != "index"}
    head = encode_json({"tables": {name: len(part) for name, part in parts.items()}})
    return b"".join((_LENGTH.pack(len(head)), head, *parts.values()))


def decode_tables(body: bytes) -> dict[str, np.ndarray]:
    """Read the tables of a graph; nothing in them has been checked.

    Raises:
        ValueError: It is something else.
    """
    try:
        (length,) = _LENGTH.unpack_from(body)
        sizes = decode_json(body[4 : 4 + length])["tables"]
        tables, start = {"index": np.empty(0, dtype=TABLES["index"])}, 4 + length
        for name, size in sizes.items():
            tables[name] = np.frombuffer(body[start : start + size], dtype=TABLES[name])
            start += size
    except (struct.error, KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"the graph cannot be decoded: {exc!r}") from None
    if start != len(body) or set(tables) != set(TABLES):
        raise ValueError("the graph is not whole")
    return tables
