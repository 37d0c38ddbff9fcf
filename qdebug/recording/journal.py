r"""The journal: the contents of a recording so far, readable while it is written and after its writer has died.

It is stored next to the recording as NAME.journal and removed when the recording is finished. The payloads are in
NAME.part at the offsets that the journal lists. NAME.part is an HDF5 file whose own metadata must not be trusted before
it is finished. Only its attribute `format` is in the first 4096 bytes from the start, to identify the file. A frame is
written after its payload and in one piece. So if a frame is complete, the operating system has received its payload,
and neither is lost if the process is killed. A journal may also contain its payloads itself. Then it does not need
another file, and a program without HDF5 can write it from front to back.

All numbers are little-endian. The file begins with the 8 bytes b"QDJ1\r\n\x1a\n"; frames follow without gaps:

    magic       u32   0x4D464451, the text "QDFM"
    kind        u8    kind of the frame, see `FrameKind`; a reader skips unknown kinds
    reserved    u8 u16    0
    length      u32   bytes of the body
    inline      u64   bytes of the payload after the body, 0 without one
    crc         u32   CRC-32 (zlib) of the preceding 20 bytes and of the body
    body, payload

Bodies
    RUN     the first: JSON {"journal": 1, "created_by": text, "info": facts of the run as in /run of the recording}
    GRAPH   the graph, if it was known beforehand: a u32 length, a JSON object {"tables": {name: bytes}} of that length,
            then all tables of the recording's layout except /index, one after another in that order
    NOTE    JSON, facts stated about the run or a tensor; only the recorder interprets it
    EVENT   a tensor's values: a row of /index (its fields, without padding; `tensor` and `quant` are ignored),
            offset of the payload in NAME.part u64, then four u8: where the payload is (0 nowhere, 1 in NAME.part,
            2 after the body), what `hash` is (0 nothing, 1 xxh3-128, 2 CRC-32 in its first four bytes), 1 for a
            constant, 0; if its flag SAMPLED is set, the offsets of elements and positions in NAME.part u64 u64, then
            `count`, `hash` and `check` of /samples; if its flag HISTOGRAM is set, `counts` of /exponents; if SKETCH is
            set, `projections` of /sketches; the shape as u64 each if there are more than 8 dimensions; the name in
            UTF-8
    END     JSON {"complete": bool, "events": number}: nothing follows, and the recording has been finished

The first incomplete frame ends the journal. The call that wrote it did not return successfully.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.kept import EXPONENT_BINS, SKETCH_SIZE
from qdebug.recording.format.payload import PartialArray
from qdebug.recording.format.specification import INDEX_DIMS, MAX_NDIM, TABLES, Flag, physical_dtype

__all__ = [
    "MAGIC",
    "MAX_BODY",
    "MAX_NAME",
    "Frame",
    "FrameKind",
    "HashKind",
    "Journal",
    "JournalEvent",
    "PayloadLocation",
    "SampledElements",
    "decode_event",
    "decode_json",
    "decode_tables",
    "encode_event",
    "encode_json",
    "encode_tables_body",
    "read_frames",
]

_LENGTH = struct.Struct("<I")
_EVENT_TAIL = struct.Struct("<QBBBB")
_SAMPLED_FIELDS = struct.Struct("<QQQ16s16s")
_EMPTY_BINS = np.zeros((2, EXPONENT_BINS), "<u8")
_ROW_BYTES = TABLES["index"].itemsize
MAX_NAME = 1 << 20
"""Maximum bytes of a tensor's name that a reader accepts."""


class PayloadLocation(IntEnum):
    """Where the payload of an event is stored."""

    NOWHERE = 0
    PART = 1
    INLINE = 2


class HashKind(IntEnum):
    """The kind of hash that an event has."""

    NONE = 0
    XXH3 = 1
    CRC32 = 2


class SampledElements(NamedTuple):
    """Where the elements of a sampled event are stored.

    Args:
        values: Offset of the elements in NAME.part.
        positions: Offset of their positions.
        size: Number of elements.
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
    """A tensor's values at one sample and step, as in the journal.

    Args:
        name: The tensor.
        row: A row of the table /index; its `tensor` and `quant` are meaningless.
        shape: The tensor's shape.
        offset: Offset of the payload; meaningless without a payload.
        sampled: Location of the recorded elements of a sampled tensor; None for other tensors.
        bins: Its histogram, as in /exponents; None without one.
        sketch: Its projections, as in /sketches; None without a sketch.
        location: The file that `offset` refers to.
        hash_kind: Kind of the row's `hash`.
        constant: Whether the tensor is a constant.
    """

    name: str
    row: np.void
    shape: tuple[int, ...]
    offset: int = 0
    sampled: SampledElements | None = None
    bins: np.ndarray | None = None
    sketch: np.ndarray | None = None
    location: PayloadLocation = PayloadLocation.PART
    hash_kind: HashKind = HashKind.XXH3
    constant: bool = False

    @property
    def dtype(self) -> str:
        """Logical dtype of the elements."""
        return LOGICAL_DTYPES[int(self.row["dtype"])]

    @property
    def flags(self) -> Flag:
        """Flags of the row."""
        return Flag(int(self.row["flags"]))

    @property
    def is_partial(self) -> bool:
        """Whether not all values were recorded."""
        return bool(self.flags & (Flag.SAMPLED | Flag.STATS_ONLY))


def encode_event(
    row: bytes,
    shape: Sequence[int],
    name: str,
    *,
    offset: int | None,
    is_constant: bool,
    partial_array: PartialArray | None = None,
) -> bytes:
    """Return the body of an event.

    Args:
        row: The row of /index.
        shape: The tensor's shape.
        name: The tensor.
        offset: Offset of the payload in NAME.part; None if it has no bytes, or if not all values were recorded.
        is_constant: Whether the tensor is a constant.
        partial_array: The partial record, if not all values were recorded.
    """
    location = PayloadLocation.NOWHERE if offset is None else PayloadLocation.PART
    parts = [row, _EVENT_TAIL.pack(offset or 0, location, HashKind.XXH3, is_constant, 0)]
    if partial_array is not None:
        record, values, positions = partial_array
        if values is not None and positions is not None:
            element_fields = (values.offset or 0, positions.offset or 0, values.shape[0])
            parts.append(_SAMPLED_FIELDS.pack(*element_fields, values.digest, positions.digest))
        bins = (record.statistics.negative, record.statistics.positive)
        parts += [side.astype("<u8").tobytes() for side in bins] if record.sketch is None else []
        parts += [] if record.sketch is None else [record.sketch.astype("<f4").tobytes()]
    if len(shape) > INDEX_DIMS:
        parts.append(struct.pack(f"<{len(shape)}Q", *shape))
    return b"".join((*parts, name.encode("utf-8", "surrogatepass")))


def decode_event(body: bytes) -> JournalEvent:
    """Decode the body of an event.

    Raises:
        ValueError: The bytes are not an event.
    """
    stream = BytesIO(body)

    def take(size: int) -> bytes:
        if len(part := stream.read(size)) < size:
            raise ValueError("an event is too short")
        return part

    row = np.frombuffer(take(_ROW_BYTES), dtype=TABLES["index"])[0]
    offset, location, hash_kind, constant, _ = _EVENT_TAIL.unpack(take(_EVENT_TAIL.size))
    flags, ndim = Flag(int(row["flags"])), int(row["ndim"])
    if int(row["dtype"]) >= len(LOGICAL_DTYPES) or ndim > MAX_NDIM:
        raise ValueError("an event has an impossible dtype or shape")
    sampled = SampledElements(*_SAMPLED_FIELDS.unpack(take(_SAMPLED_FIELDS.size))) if Flag.SAMPLED in flags else None
    bins = (
        np.frombuffer(take(_EMPTY_BINS.nbytes), "<u8").reshape(_EMPTY_BINS.shape) if Flag.HISTOGRAM in flags else None
    )
    sketch = np.frombuffer(take(4 * SKETCH_SIZE), "<f4") if Flag.SKETCH in flags else None
    shape = tuple(int(extent) for extent in row["shape"][: min(ndim, INDEX_DIMS)])
    if ndim > INDEX_DIMS:
        shape = struct.unpack(f"<{ndim}Q", take(8 * ndim))
    name = stream.read()
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError("an event has no name, or its name is too long")
    event = JournalEvent(
        name=name.decode("utf-8", "surrogatepass"),
        row=row,
        shape=shape,
        offset=offset,
        sampled=sampled,
        bins=bins,
        sketch=sketch,
        location=PayloadLocation(location),
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
    if nbytes != count * itemsize or (event.sampled is not None and event.sampled.size > count):
        raise ValueError("size and shape of an event contradict each other")


def encode_tables_body(tables: Mapping[str, np.ndarray]) -> bytes:
    """Return the tables of a graph, without the index, as the body of a frame."""
    parts = {name: tables[name].tobytes() for name in TABLES if name in tables and name != "index"}
    header = encode_json({"tables": {name: len(part) for name, part in parts.items()}})
    return b"".join((_LENGTH.pack(len(header)), header, *parts.values()))


def decode_tables(body: bytes) -> dict[str, np.ndarray]:
    """Decode the tables of a graph, without checking them.

    Raises:
        ValueError: The bytes are not tables.
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
        raise ValueError("the graph is incomplete")
    return tables


MAGIC = b"QDJ1\r\n\x1a\n"
MAX_BODY = 1 << 28
"""Maximum body size that a reader accepts. The largest bodies are the graphs of large networks."""

_FRAME = struct.Struct("<IBBHIQ")
_CRC = struct.Struct("<I")
_HEADER_SIZE = _FRAME.size + _CRC.size
_MAGIC_NUMBER = 0x4D464451
_JSON = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))
"""The check for circular references is off: the objects never contain any, and it would take half the time."""


class FrameKind(IntEnum):
    """Kinds of journal frame."""

    RUN = 1
    GRAPH = 2
    NOTE = 3
    EVENT = 4
    END = 5


class Frame(NamedTuple):
    """One complete frame.

    Args:
        kind: Its kind; unknown ones come from a later version.
        body: Its body.
        payload: Offset in the journal of the payload after the body.
        inline: Bytes of that payload.
        end: Offset of the next frame.
    """

    kind: int
    body: bytes
    payload: int
    inline: int
    end: int


class Journal:
    """A journal that is being written. Frames are appended completely or not at all.

    Args:
        fd: Descriptor of an empty file, open for writing; closed together with the journal.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._file_end = 0
        self._queued_frames = bytearray()
        self._write(MAGIC)

    def add(self, kind: FrameKind, body: bytes) -> None:
        """Queue a frame for the next `commit`."""
        self._queued_frames += _make_frame(kind, body)

    def commit(self) -> None:
        """Write the queued frames. Once this returns, they survive the death of the process.

        Raises:
            OSError: They cannot be written. In that case none of them is in the journal.
        """
        frames, self._queued_frames = self._queued_frames, bytearray()
        if frames:
            self._write(frames)

    def forget(self) -> None:
        """Drop the queued frames."""
        self._queued_frames.clear()

    def _write(self, data: bytes | bytearray) -> None:
        written_count, size = 0, len(data)
        try:
            while written_count < size:  # on a nearly full disk, only a part may be written
                written_count += os.pwrite(
                    self.fd, memoryview(data)[written_count:] if written_count else data, self._file_end + written_count
                )
        except BaseException:
            self._remove_incomplete_frames()
            raise
        self._file_end += size

    def _remove_incomplete_frames(self) -> None:
        try:
            os.ftruncate(self.fd, self._file_end)
        except OSError:
            return  # harmless: readers stop at an incomplete frame, and the next frame overwrites it

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            with contextlib.suppress(OSError):  # the host program may have closed all its descriptors
                os.close(fd)


def _make_frame(kind: FrameKind, body: bytes) -> bytes:
    head = _FRAME.pack(_MAGIC_NUMBER, kind, 0, 0, len(body), 0)
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head))) + body


def encode_json(json_object: Mapping[str, Any]) -> bytes:
    """Return a JSON object as the body of a frame."""
    return _JSON.encode(json_object).encode("ascii")


def decode_json(body: bytes) -> dict[str, Any]:
    """Decode a JSON object.

    Raises:
        ValueError: The bytes are not a JSON object.
    """
    try:
        json_object = json.loads(body)
    except RecursionError:
        raise ValueError("a note is nested too deeply") from None
    if not isinstance(json_object, dict):
        raise ValueError("a note is not a JSON object")
    return json_object


def read_frames(fd: int, offset: int = 0) -> Iterator[Frame]:
    """Yield the complete frames of a journal, starting at an offset. An incomplete frame ends the journal.

    Args:
        fd: The journal, open for reading.
        offset: 0, or the `end` of an earlier frame.

    Raises:
        ValueError: The file is not a journal.
        OSError: It cannot be read.
    """
    if offset == 0:
        start = os.pread(fd, len(MAGIC), 0)
        if start != MAGIC:
            if MAGIC.startswith(start):
                return
            raise ValueError("it is not a journal of a recording")
        offset = len(MAGIC)
    size = os.fstat(fd).st_size
    while len(header := os.pread(fd, _HEADER_SIZE, offset)) == _HEADER_SIZE:
        magic, kind, _, _, length, payload_size = _FRAME.unpack_from(header)
        end = offset + _HEADER_SIZE + length + payload_size
        if magic != _MAGIC_NUMBER or length > MAX_BODY or end > size:
            return
        body = os.pread(fd, length, offset + _HEADER_SIZE)
        if len(body) < length or _CRC.unpack_from(header, _FRAME.size)[0] != zlib.crc32(
            body, zlib.crc32(header[: _FRAME.size])
        ):
            return
        yield Frame(kind, body, offset + _HEADER_SIZE + length, payload_size, end)
        offset = end
