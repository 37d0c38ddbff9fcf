"""Bodies of the journal's frames: events, and the tables of a graph. `qdebug.store.journal` specifies them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.store.journal import decode_json, encode_json
from qdebug.store.layout import INDEX_DIMS, MAX_NDIM, TABLES, Flag, physical_dtype

__all__ = ["HashKind", "JournalEvent", "Where", "decode_event", "decode_tables", "encode_event", "encode_tables_body"]

_LENGTH = struct.Struct("<I")
_TAIL = struct.Struct("<QQIBBBB")
_ROW_BYTES = TABLES["index"].itemsize
_MAX_NAME = 1 << 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvent:
    """A tensor's values at one sample and step, as the journal has them.

    Args:
        name: The tensor.
        row: A row of the table /index; `tensor` and `quant` are meaningless.
        shape: The tensor's shape.
        offset: Where the payload begins; meaningless if it is nowhere.
        positions: Where the positions of sampled elements begin, and the number of their payload.
        where: What `offset` counts in.
        hash_kind: What the row's `hash` is.
        constant: Whether the tensor is a constant.
    """

    name: str
    row: np.void
    shape: tuple[int, ...]
    offset: int = 0
    positions: tuple[int, int] = (0, 0)
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
    def kept(self) -> int:
        """Number of elements that the payload holds."""
        return int(self.row["nbytes"]) // physical_dtype(self.dtype).itemsize

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the payload: the tensor's, or the number of elements that were kept."""
        return (self.kept,) if Flag.SAMPLED in self.flags else self.shape


def encode_event(
    row: bytes,
    shape: Sequence[int],
    name: str,
    *,
    offset: int | None,
    constant: bool,
    positions: tuple[int, int] = (0, 0),
) -> bytes:
    """Give the body of an event whose payload lies in NAME.part.

    Args:
        row: The row of /index.
        shape: The tensor's shape.
        name: The tensor.
        offset: Where the payload begins; None if it has no bytes or is not kept.
        constant: Whether the tensor is a constant.
        positions: Where the positions of sampled elements begin, and the number of their payload.
    """
    where = Where.NOWHERE if offset is None else Where.PART
    tail = _TAIL.pack(offset or 0, *positions, where, HashKind.XXH3, constant, 0)
    extents = struct.pack(f"<{len(shape)}Q", *shape) if len(shape) > INDEX_DIMS else b""
    return b"".join((row, tail, extents, name.encode("utf-8", "surrogatepass")))


def decode_event(body: bytes) -> JournalEvent:
    """Read the body of an event.

    Raises:
        ValueError: It is none.
    """
    if len(body) < _ROW_BYTES + _TAIL.size:
        raise ValueError("an event is too short")
    row = np.frombuffer(body, dtype=TABLES["index"], count=1)[0]
    offset, at, number, where, hash_kind, constant, _ = _TAIL.unpack_from(body, _ROW_BYTES)
    rest, ndim = _ROW_BYTES + _TAIL.size, int(row["ndim"])
    if int(row["dtype"]) >= len(LOGICAL_DTYPES) or ndim > MAX_NDIM:
        raise ValueError("an event has an impossible dtype or shape")
    shape = tuple(int(extent) for extent in row["shape"][: min(ndim, INDEX_DIMS)])
    if ndim > INDEX_DIMS:
        if len(body) < rest + 8 * ndim:
            raise ValueError("an event lacks its shape")
        shape = struct.unpack_from(f"<{ndim}Q", body, rest)
        rest += 8 * ndim
    name = body[rest:]
    if not 0 < len(name) <= _MAX_NAME:
        raise ValueError("an event has no name, or one that is too long")
    event = JournalEvent(
        name=name.decode("utf-8", "surrogatepass"),
        row=row,
        shape=shape,
        offset=offset,
        positions=(at, number),
        where=Where(where),
        hash_kind=HashKind(hash_kind),
        constant=bool(constant),
    )
    _check_size(event)
    return event


def _check_size(event: JournalEvent) -> None:
    count = 1
    for extent in event.shape:
        count *= extent
    itemsize, nbytes = physical_dtype(event.dtype).itemsize, int(event.row["nbytes"])
    fits = nbytes % itemsize == 0 and nbytes <= count * itemsize
    if not fits or (nbytes != count * itemsize and not event.flags & (Flag.SAMPLED | Flag.STATS_ONLY)):
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
