"""Read a journal and its payloads, either while it is written or after its writer died.

The HDF5 metadata of an unfinished file is never read: payloads are read at the offsets that the journal gives, and
checked against the file's size and their hash.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import GraphError
from qdebug.model import Fidelity, Graph, QuantParams, Role, RunInfo
from qdebug.model.kept import Kept
from qdebug.model.recording import SkipCause
from qdebug.numerics.large_arrays import ArrayBuilder
from qdebug.recording.arguments import find_doubt
from qdebug.recording.format.facts import decode_info, json_facts
from qdebug.recording.format.payload import array_hash, blocks_of, from_physical, read_bytes
from qdebug.recording.format.specification import Flag, physical_dtype
from qdebug.recording.graph_builder import GraphBuilder, NodeFacts, apply_put_note
from qdebug.recording.journal import (
    MAGIC,
    Frame,
    FrameKind,
    HashKind,
    JournalEvent,
    PayloadLocation,
    decode_event,
    decode_json,
    decode_tables,
    read_frames,
)
from qdebug.recording.reading.bad_file import BAD_FILE_ERRORS, damaged_file_error
from qdebug.recording.reading.container import MAX_ROWS
from qdebug.recording.reading.tables import check_graph, check_positions, decode_graph, decode_run, statistics_of
from qdebug.recording.target import journal_of, open_regular, part_of, target_of

__all__ = ["Entry", "JournalReader", "JournaledRun", "journal_at"]

Entry = JournalEvent | Mapping[str, Any]
"""An entry of a journal: values, or a note of stated facts."""

_MAX_NOTES_BYTES = 1 << 30
_BLOCK_ELEMENTS = 1 << 18
"""Elements read at a time."""


def journal_at(path: Path) -> Path | None:
    """Find the journal for a path: the path itself, or the journal next to it; None without a journal.

    Args:
        path: NAME, NAME.part, NAME.journal, or a journal of any name.
    """
    if not path.name:
        return None  # "." or the root, which have no name
    journal = journal_of(target_of(path))
    if journal.is_file():
        return journal
    if not path.is_file():
        return None
    fd = open_regular(path)
    try:
        return path if os.pread(fd, 4, 0) == MAGIC[:4] else None
    except OSError:
        return None
    finally:
        os.close(fd)


class JournalReader:
    """A journal, open for reading.

    Args:
        journal: The journal.

    Raises:
        NotARecordingError: It is missing or is not a journal.
        RecordingError: It is damaged, or contains something that a journal never contains.
    """

    def __init__(self, journal: Path) -> None:
        self.path = journal
        self._fd = open_regular(journal)
        self._part_fd = -1
        self._frames_end = self._payloads_end = 0
        self._event_count = self._note_bytes = 0
        self.head: Mapping[str, Any] = {}
        """The first frame: facts of the run as JSON."""
        self.graph: Graph | None = None
        """The graph, if it was known beforehand."""
        self.end: Mapping[str, Any] | None = None
        """The frame that ends the journal; None while the recording is unfinished."""
        if journal.name.endswith(".journal"):
            self._part_fd = _open_part(part_of(target_of(journal)))

    def refresh(self) -> list[Entry]:
        """Return the entries added since the last call, in order.

        Raises:
            RecordingError: It contains something that a journal never contains.
        """
        entries: list[Entry] = []
        try:
            for frame in read_frames(self._fd, self._frames_end):
                self._add_frame(frame, entries)
                self._frames_end = frame.end
        except BAD_FILE_ERRORS as exc:
            if not entries:  # otherwise return the intact entries first; the next call raises
                raise damaged_file_error(self.path, exc) from None
        return entries

    def _add_frame(self, frame: Frame, entries: list[Entry]) -> None:
        if frame.kind == FrameKind.EVENT:
            event = decode_event(frame.body)
            self._event_count += 1
            if self._event_count > MAX_ROWS:
                raise ValueError("it has too many events for a recording")
            if event.location is PayloadLocation.INLINE:
                if frame.inline != int(event.row["nbytes"]):
                    raise ValueError(f"the number of values of {event.name!r} differs from its header")
                event = replace(event, offset=frame.payload)
            elif event.location is PayloadLocation.PART:
                self._payloads_end = max(self._payloads_end, event.offset + int(event.row["nbytes"]))
            entries.append(event)
            return
        self._note_bytes += len(frame.body)
        if self._note_bytes > _MAX_NOTES_BYTES:
            raise ValueError(f"its notes are longer than {_MAX_NOTES_BYTES} bytes")
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
    def has_payload_file(self) -> bool:
        """Whether the file with the payloads exists."""
        return self._part_fd >= 0

    def has_ended(self) -> bool:
        """Return whether the journal has been finished, even in entries that `refresh` has not returned yet."""
        try:
            return any(frame.kind == FrameKind.END for frame in read_frames(self._fd, self._frames_end))
        except BAD_FILE_ERRORS:
            return False

    def is_replaced(self) -> bool:
        """Return whether the journal was removed, or its path now belongs to a different journal."""
        try:
            return not os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return True

    def is_truncated(self) -> bool:
        """Return whether the files were truncated below the entries that `refresh` returned."""
        payload_bytes = self._payloads_end if self._part_fd < 0 else os.fstat(self._part_fd).st_size
        return os.fstat(self._fd).st_size < self._frames_end or payload_bytes < self._payloads_end

    def is_payload_file(self, path: Path) -> bool:
        """Return whether a path is the file with the payloads, as the recording's path is once it is finished."""
        try:
            return self._part_fd >= 0 and os.path.samestat(os.fstat(self._part_fd), path.stat())
        except OSError:
            return False

    def read(self, event: JournalEvent) -> np.ndarray | Kept:
        """Return the values of an event, read-only and in their logical dtype, or their partial record.

        Raises:
            RecordingError: They are missing, or differ from the values that were written.
        """
        try:
            return self._read_partial(event) if event.is_partial else self._read_values(event)
        except BAD_FILE_ERRORS as exc:
            raise damaged_file_error(self.path, exc) from None

    def _read_values(self, event: JournalEvent) -> np.ndarray:
        raw = self._read_elements(event, event.offset, event.shape, event.dtype)
        if not _matches_hash(event, raw):
            raise ValueError(f"the values of {event.name!r} differ from the recorded hash")
        array = from_physical(raw, event.dtype)
        array.flags.writeable = False
        return array

    def _read_partial(self, event: JournalEvent) -> Kept:
        positions = values = None
        if (element_place := event.sampled) is not None:
            positions = self._read_elements(event, element_place.positions, (element_place.size,), "int64")
            values = self._read_elements(event, element_place.values, (element_place.size,), event.dtype)
            check_positions(positions, int(event.row["count"]))
            if array_hash(positions) != element_place.check or array_hash(values) != element_place.digest:
                raise ValueError(f"the kept elements of {event.name!r} differ from the recorded hash")
            values = from_physical(values, event.dtype)
        return Kept(
            dtype=event.dtype,
            shape=event.shape,
            digest=event.row["hash"].tobytes(),
            statistics=statistics_of(event.row, event.bins),
            positions=positions,
            values=values,
            sketch=event.sketch,
            truncated=Flag.TRUNCATED in event.flags,
        )

    def _read_elements(self, event: JournalEvent, offset: int, shape: tuple[int, ...], logical: str) -> np.ndarray:
        fd = self._fd if event.location is PayloadLocation.INLINE and event.sampled is None else self._part_fd
        dtype, count = physical_dtype(logical), math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes and event.location is PayloadLocation.NOWHERE and event.sampled is None:
            raise ValueError(f"the values of {event.name!r} were not kept")
        if nbytes and (fd < 0 or offset + nbytes > os.fstat(fd).st_size):
            raise ValueError(f"the values of {event.name!r} are not in the file")
        result, block = ArrayBuilder(shape, dtype), np.empty(min(count, _BLOCK_ELEMENTS), dtype)
        for start in range(0, count, _BLOCK_ELEMENTS):
            piece = block[: count - start]
            read_bytes(fd, offset + start * dtype.itemsize, piece.view(np.uint8))
            result.put_flat(start, piece)
        return result.finish()

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        for name in ("_fd", "_part_fd"):
            if getattr(self, name, -1) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    def __del__(self) -> None:
        self.close()


class JournaledRun:
    """What the journal of a run states so far: its events, graph and facts.

    Args:
        reader: The journal.

    Attributes:
        events: Events by tensor, sample and step, in the order of recording.
        quants: Quantization of values that differs from their tensor's.
        last_place: The highest sample and the highest step so far.
        names: Tensors with values, in the order of recording.
        lost_tensors: Tensors with damaged or missing values, with the reason.
    """

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._builder: GraphBuilder | None = None
        self.events: dict[tuple[str, int, int], JournalEvent] = {}
        self.quants: dict[tuple[str, int, int], QuantParams] = {}
        self.names: dict[str, None] = {}
        self._places: dict[str | None, dict[tuple[int, int], None]] = {None: {}}
        self.lost_tensors: dict[str, str] = {}
        self.last_place = (0, 0)
        self._next_quant: QuantParams | None = None
        self._skipped: dict[str, str] = {}
        self._skip_causes: dict[str, SkipCause] = {}
        self._doubts: dict[str, str] = {}
        self._disturbed: dict[str, str] = {}
        self._fidelity: tuple[Fidelity, str] = (Fidelity.UNKNOWN, "the run did not finish")

    @property
    def builder(self) -> GraphBuilder:
        """The builder of the graph.

        It is created on first use, when the reader has already read the graph that was known beforehand, if any.
        """
        if self._builder is None:
            self._builder = GraphBuilder(self._reader.graph)
        return self._builder

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor that varies), in order."""
        tensor_places = self._places.get(tensor, {})
        return tuple(sorted(tensor_places)) if tensor_places or tensor is not None else ((0, 0),)

    def graph(self, model: str) -> Graph:
        """Build the graph."""
        return self.builder.build(self.names, model)

    def add(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            RecordingError: It contradicts earlier entries, or is not a valid entry.
        """
        try:
            if isinstance(entry, JournalEvent):
                self._add_event(entry)
            else:
                self._add_note(entry)
        except (TypeError, ValueError, GraphError) as exc:
            raise damaged_file_error(self._reader.path, exc) from None

    def _add_event(self, event: JournalEvent) -> None:
        role = Role.CONSTANT if event.constant else None
        self.builder.note(event.name, event.shape, NodeFacts(), dtype=event.dtype, role=role)
        self.names.setdefault(event.name)
        self._skipped.pop(event.name, None)  # a later put overrides a skip
        self._skip_causes.pop(event.name, None)
        place = event.name, int(event.row["sample"]), int(event.row["step"])
        self.events.pop(place, None)  # if an interrupted put was repeated, the last event counts, in its own position
        self.events[place] = event
        for tensor in (event.name, *(() if event.constant else (None,))):
            self._places.setdefault(tensor, {})[place[1:]] = None
        self.last_place = max(self.last_place[0], place[1]), max(self.last_place[1], place[2])
        quant, self._next_quant = self._next_quant, None
        if quant is not None:
            self.quants[place] = quant

    def _add_note(self, note: Mapping[str, Any]) -> None:
        if "put" in note:
            note_result = apply_put_note(self.builder, note)
            if doubt := find_doubt(note_result.quant or self.builder.quant(str(note["put"]))):
                self._doubts.setdefault(str(note["put"]), doubt)
            self._next_quant = note_result.quant
        if "outputs" in note:
            self.builder.add_outputs([str(name) for name in note["outputs"]])
        if "skip" in note:
            self._add_skip(str(note["skip"]), str(note.get("reason", "")), note.get("because"))
        if "disturbed" in note:
            self._disturbed[str(note["disturbed"])] = str(note.get("reason", ""))
        if "fidelity" in note:
            self._fidelity = Fidelity(note["fidelity"]), str(note.get("detail", ""))

    def _add_skip(self, name: str, reason: str, cause: Any) -> None:
        self._skipped[name] = reason
        self._skip_causes.pop(name, None)
        if cause is not None:
            self._skip_causes[name] = SkipCause(cause)

    def info(self) -> RunInfo:
        """Return the facts of the run. They are marked complete only if the journal has been finished and says so.

        Raises:
            RecordingError: The facts are invalid.
        """
        try:
            json_info = self._reader.head.get("info", {})
            run_info = decode_info({"info": {**json_facts(RunInfo(backend="")), **json_info}}, is_complete=True)
        except (TypeError, ValueError) as exc:
            raise damaged_file_error(self._reader.path, exc) from None
        fidelity, detail = self._fidelity
        return replace(
            run_info,
            complete=bool(self._reader.end and self._reader.end.get("complete")),
            fidelity=fidelity,
            fidelity_detail=detail,
            skipped={**self._skipped, **self.lost_tensors},
            skip_causes={name: cause for name, cause in self._skip_causes.items() if name not in self.lost_tensors},
            doubts=self._doubts,
            disturbed=self._disturbed,
        )


def _matches_hash(event: JournalEvent, raw: np.ndarray) -> bool:
    """Return whether values match the hash of their event; True if the event has no hash."""
    recorded_hash = bytes(event.row["hash"].tobytes())
    if event.hash_kind is HashKind.XXH3:
        return array_hash(raw) == recorded_hash
    if event.hash_kind is HashKind.CRC32:
        crc = 0
        for block in blocks_of(raw):
            crc = zlib.crc32(block.view(np.uint8).data, crc)
        return crc == int.from_bytes(recorded_hash[:4], "little")
    return True


def _open_part(path: Path) -> int:
    """Open the file with the payloads; -1 if it does not exist, as for a journal with inline payloads."""
    return -1 if path.is_symlink() or not path.is_file() else open_regular(path, flags=os.O_NOFOLLOW)
