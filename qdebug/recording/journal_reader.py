"""Read a journal and the payloads it tells of, while it is written or after its writer has died.

The HDF5 metadata of an unfinished file is never looked at: payloads are read from the addresses that the journal gives,
checked against the file's size and against the hash they were written with.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.model import Graph
from qdebug.model.kept import Kept
from qdebug.numerics.large_arrays import Making
from qdebug.recording.container import BAD_FILE, MAX_ROWS, damaged
from qdebug.recording.format import Flag, physical_dtype
from qdebug.recording.journal import (
    Frame,
    FrameKind,
    HashKind,
    JournalEvent,
    Where,
    decode_event,
    decode_json,
    decode_tables,
    read_frames,
)
from qdebug.recording.payload import array_hash, from_physical, read_bytes, stretches
from qdebug.recording.table_reading import check_graph, check_positions, decode_graph, decode_run, statistics_of
from qdebug.recording.target import journal_of, open_regular, part_of

__all__ = ["Entry", "JournalReader", "journal_at"]

Entry = JournalEvent | Mapping[str, Any]
"""What a journal tells, in order: values, and notes of what was said of them."""

_MAX_NOTES_BYTES = 1 << 30
_STRETCH = 1 << 18
"""Elements that are read at once."""


def journal_at(path: Path) -> Path | None:
    """Find the journal that a path stands for: its own, that of the recording, or of its unfinished file.

    Args:
        path: NAME, NAME.part, NAME.journal, or a journal of any name.
    """
    if not path.name:
        return None  # a folder, or the root
    target = path.with_name(path.name.removesuffix(".part")) if path.name.endswith(".part") else path
    if journal_of(target).is_file():
        return journal_of(target)
    if not path.is_file():
        return None
    fd = open_regular(path)
    try:
        return path if os.pread(fd, 4, 0) == b"QDJ1" else None
    except OSError:
        return None
    finally:
        os.close(fd)


class JournalReader:
    """A journal, open for reading.

    Args:
        journal: The journal.

    Raises:
        NotARecordingError: It is missing, or is something else.
        RecordingError: It is damaged, or holds what a journal never does.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal
        self._fd = open_regular(journal)
        self._part = -1
        self._end = self._payloads = 0
        self._rows = self._noted = 0
        self.head: Mapping[str, Any] = {}
        """The frame that begins the journal: facts of the run as JSON has them."""
        self.graph: Graph | None = None
        """The graph, if it was known beforehand."""
        self.end: Mapping[str, Any] | None = None
        """The frame that ends the journal; None while nobody has finished the recording."""
        if journal.name.endswith(".journal"):
            self._part = _open_part(part_of(journal.with_name(journal.name.removesuffix(".journal"))))

    def refresh(self) -> list[Entry]:
        """Return what was added since the last time, in order.

        Raises:
            RecordingError: It holds what a journal never does.
        """
        entries: list[Entry] = []
        try:
            for frame in read_frames(self._fd, self._end):
                self._take(frame, entries)
                self._end = frame.end
        except BAD_FILE as exc:
            if not entries:  # else what came before is given first
                raise damaged(self.path, exc) from None
        return entries

    def _take(self, frame: Frame, entries: list[Entry]) -> None:
        if frame.kind == FrameKind.EVENT:
            event = decode_event(frame.body)
            self._rows += 1
            if self._rows > MAX_ROWS:
                raise ValueError("it has more events than a recording can have")
            if event.where is Where.INLINE:
                if frame.inline != int(event.row["nbytes"]):
                    raise ValueError(f"the values of {event.name!r} are not as many as it says")
                event = replace(event, offset=frame.payload)
            elif event.where is Where.PART:
                self._payloads = max(self._payloads, event.offset + int(event.row["nbytes"]))
            entries.append(event)
            return
        self._noted += len(frame.body)
        if self._noted > _MAX_NOTES_BYTES:
            raise ValueError("what it says of tensors is too much")
        if frame.kind == FrameKind.RUN:
            self.head = decode_json(frame.body)
        elif frame.kind == FrameKind.GRAPH:
            tables = decode_tables(frame.body)
            check_graph(tables)
            self.graph = decode_graph(tables, decode_run(tables))
        elif frame.kind == FrameKind.NOTE:
            entries.append(decode_json(frame.body))
        elif frame.kind == FrameKind.END:
            self.end = decode_json(frame.body)

    @property
    def has_part(self) -> bool:
        """Whether the file with the payloads is there."""
        return self._part >= 0

    def ends(self) -> bool:
        """Tell whether the journal has been finished, be it in a part that `refresh` has not given yet."""
        try:
            return any(frame.kind == FrameKind.END for frame in read_frames(self._fd, self._end))
        except BAD_FILE:
            return False

    def replaced(self) -> bool:
        """Tell whether the journal's name is gone or belongs to another journal."""
        try:
            return not os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return True

    def shortened(self) -> bool:
        """Tell whether the files no longer hold all that `refresh` has told of."""
        part = self._payloads if self._part < 0 else os.fstat(self._part).st_size
        return os.fstat(self._fd).st_size < self._end or part < self._payloads

    def is_named(self, path: Path) -> bool:
        """Tell whether the file with the payloads has this name by now, as it has when the recording is finished."""
        try:
            return self._part >= 0 and os.path.samestat(os.fstat(self._part), path.stat())
        except OSError:
            return False

    def read(self, event: JournalEvent) -> np.ndarray | Kept:
        """Return the values of an event in their logical dtype, read-only; what was kept of them if it was not all.

        Raises:
            RecordingError: They are not there, or not those that were written.
        """
        try:
            return self._kept(event) if event.partly else self._values(event)
        except BAD_FILE as exc:
            raise damaged(self.path, exc) from None

    def _values(self, event: JournalEvent) -> np.ndarray:
        raw = self._read(event, event.offset, event.shape, event.dtype)
        if not _is_whole(event, raw):
            raise ValueError(f"the values of {event.name!r} are not those recorded")
        array = from_physical(raw, event.dtype)
        array.flags.writeable = False
        return array

    def _kept(self, event: JournalEvent) -> Kept:
        positions = values = None
        if (where := event.sampled) is not None:
            positions = self._read(event, where.positions, (where.size,), "int64")
            values = self._read(event, where.values, (where.size,), event.dtype)
            check_positions(positions, int(event.row["count"]))
            if array_hash(positions) != where.check or array_hash(values) != where.digest:
                raise ValueError(f"the kept elements of {event.name!r} are not those recorded")
            values = from_physical(values, event.dtype)
        return Kept(
            dtype=event.dtype,
            shape=event.shape,
            digest=event.row["hash"].tobytes(),
            statistics=statistics_of(event.row, event.bins),
            positions=positions,
            values=values,
            truncated=Flag.TRUNCATED in event.flags,
        )

    def _read(self, event: JournalEvent, offset: int, shape: tuple[int, ...], logical: str) -> np.ndarray:
        fd = self._fd if event.where is Where.INLINE and event.sampled is None else self._part
        dtype, count = physical_dtype(logical), math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes and event.where is Where.NOWHERE and event.sampled is None:
            raise ValueError(f"the values of {event.name!r} were not kept")
        if nbytes and (fd < 0 or offset + nbytes > os.fstat(fd).st_size):
            raise ValueError(f"the values of {event.name!r} are not in the file")
        making, block = Making(shape, dtype), np.empty(min(count, _STRETCH), dtype)
        for start in range(0, count, _STRETCH):
            part = block[: count - start]
            read_bytes(fd, offset + start * dtype.itemsize, part.view(np.uint8))
            making.put_flat(start, part)
        return making.done()

    def close(self) -> None:
        """Close the files. Again does nothing."""
        for name in ("_fd", "_part"):
            if getattr(self, name, -1) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def __del__(self) -> None:
        self.close()


def _is_whole(event: JournalEvent, raw: np.ndarray) -> bool:
    recorded = bytes(event.row["hash"].tobytes())
    if event.hash_kind is HashKind.XXH3:
        return array_hash(raw) == recorded
    if event.hash_kind is HashKind.CRC32:
        crc = 0
        for part in stretches(raw):
            crc = zlib.crc32(part.view(np.uint8).data, crc)
        return crc == int.from_bytes(recorded[:4], "little")
    return True


def _open_part(path: Path) -> int:
    """Open the file with the payloads; -1 if there is none, which is so for a journal that has them itself."""
    return -1 if path.is_symlink() or not path.is_file() else open_regular(path, flags=os.O_NOFOLLOW)
