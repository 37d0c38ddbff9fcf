"""Read a recording while another process writes it, without locks and without HDF5."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Graph, QuantParams, Recording, RunInfo
from qdebug.model.kept import Kept
from qdebug.model.recording import Outline, no_values_error, not_in_full_error
from qdebug.recording.journal import HashKind, JournalEvent
from qdebug.recording.reading.journal_reader import JournaledRun, JournalReader, journal_at
from qdebug.recording.reading.read import Closable, FileRecording
from qdebug.recording.target import journal_of, lock_holder, part_of, target_of

__all__ = ["FollowState", "FollowedRecording"]

_REWRITTEN, _TRUNCATED, _REMOVED = "was rewritten", "was truncated", "was removed"


class FollowState(StrEnum):
    """The state of a followed recording."""

    WRITING = "writing"
    """A process has it open, and more values may follow."""
    FINISHED = "finished"
    """The recorder closed it, and nothing more follows."""
    STOPPED = "stopped"
    """Its process ended without closing it. The values recorded so far can be read and recovered."""


class FollowedRecording(Recording, Closable):
    """A recording that may still grow, as it was at the last `refresh`.

    Only `refresh` changes anything. Between two calls, `graph`, `names`, `samples`, `steps` and `info` stay fixed as in
    a finished file, so that a program can poll, check whether anything is new, and draw. Any number of processes may
    follow a recording without affecting the writer. Not thread-safe.

        recording = qdebug.open_recording("npu.h5", follow=True)
        going = True
        while going:
            going = recording.state == "writing"      # read before refresh(), so that the last values are not missed
            for name in recording.refresh():          # tensors with new values
                print(name, recording.samples)
            time.sleep(0.02)

    A finished recording can be opened too; `refresh` then returns nothing new. `describe_change`
    reveals whether another run recorded to the same path, or whether the file was replaced or truncated.

    Args:
        path: The path given to the recorder.

    Raises:
        NotARecordingError: There is no recording at the path, finished or unfinished.
        RecordingError: The file or its journal is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._reader: JournalReader | None = None
        self._file: FileRecording | None = None
        self._target = Path(os.path.realpath(path))
        journal = journal_at(self._target)
        self._reader = None if journal is None else _open_reader(journal)
        if journal is None or self._reader is None:
            self._initial_identity = _file_identity(self._target)
            self._file = FileRecording(self.path)
            return
        self._target = target_of(journal)
        self._run = JournaledRun(self._reader)
        self._model = ""
        self._graph: Graph | None = None
        self.refresh()

    # -- updates

    def refresh(self) -> tuple[str, ...]:
        """Read the values recorded since the last call.

        The cost is proportional to what is new: microseconds if nothing is. Values are not read. Use `graph` only when
        something is new, since it is then rebuilt.

        Returns:
            Tensors with new values, each listed once, in the order of recording.

        Raises:
            RecordingError: The journal is damaged. Earlier results remain valid.
        """
        if self._reader is None:
            return ()
        new_names: dict[str, None] = {}
        entries = self._reader.refresh()
        for entry in entries:
            self._run.add(entry)
            if isinstance(entry, JournalEvent):
                new_names[entry.name] = None
        if entries:
            self._graph = None
            self._model = self._model or self.info.model
        return tuple(new_names)

    @property
    def state(self) -> FollowState:
        """Whether more values may follow. Checks with the operating system whether the writer is still alive."""
        if self._reader is None or self._reader.end is not None:
            return FollowState.FINISHED
        if self._reader.is_replaced() or not lock_holder(self._target):
            # The writer may have finished since the last refresh.
            return FollowState.FINISHED if self._reader.has_ended() else FollowState.STOPPED
        return FollowState.WRITING

    def describe_change(self) -> str:
        """Return how the files were changed by anything other than the followed recorder; "" if they were not.

        This object then still shows the old recording. Open the path again to see the new one.

        Returns:
            "was rewritten", "was truncated", "was removed" or "".
        """
        reader = self._reader
        if reader is None:
            if journal_of(self._target).is_file() and part_of(self._target).is_file():
                return _REWRITTEN
            current_identity = _file_identity(self._target)
            return (
                ""
                if current_identity == self._initial_identity
                else _REMOVED
                if current_identity is None
                else _REWRITTEN
            )
        if not reader.is_replaced():
            return _TRUNCATED if reader.is_truncated() else ""
        if reader.path.exists():
            return _REWRITTEN
        if not self._target.exists():
            return _REMOVED
        if reader.has_payload_file and not reader.is_payload_file(self._target):
            return _REWRITTEN
        return _TRUNCATED if reader.is_truncated() else ""

    # -- contents

    @property
    def info(self) -> RunInfo:
        """Facts of the run so far. It is complete only once the recorder has closed the recording."""
        if self._reader is None:
            return self._finished_file().info
        return self._run.info()

    @property
    def graph(self) -> Graph:
        """The graph so far."""
        if self._reader is None:
            return self._finished_file().graph
        if self._graph is None:
            self._graph = self._run.graph(self._model)
        return self._graph

    @property
    def samples(self) -> int:
        """Number of samples so far."""
        return self._finished_file().samples if self._reader is None else self._run.last_place[0] + 1

    @property
    def steps(self) -> int:
        """Number of steps of a sample so far."""
        return self._finished_file().steps if self._reader is None else self._run.last_place[1] + 1

    @property
    def names(self) -> Sequence[str]:
        """Names of the tensors that have values, in the order they were first recorded."""
        return self._finished_file().names if self._reader is None else tuple(self._run.names)

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step."""
        return self._finished_file().event_quants if self._reader is None else self._run.quants

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order."""
        return self._finished_file().places(tensor) if self._reader is None else self._run.places(tensor)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were recorded for a sample and step.

        A constant's values apply to all of them.
        """
        if self._reader is None:
            return self._finished_file().has(tensor, sample, step)
        event = self._find_event(tensor, sample, step)
        return event is not None and not event.is_partial

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements (codes, if quantized), read-only, in the logical dtype, verified by their hash.

        Raises:
            RecordingError: No values are recorded under this name, sample and step, or they are damaged.
        """
        if self._reader is None:
            return self._finished_file().load(tensor, sample, step)
        event = self._find_event(tensor, sample, step)
        if event is None:
            raise no_values_error(tensor, sample, step, self.names)
        values = self._reader.read(event)
        if isinstance(values, Kept):
            raise not_in_full_error(tensor, sample, step)
        return values

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and hash of recorded values without reading them; None if unknown."""
        if self._reader is None:
            return self._finished_file().outline(tensor, sample, step)
        event = self._find_event(tensor, sample, step)
        if event is None or event.is_partial or event.hash_kind is not HashKind.XXH3:
            return None
        return Outline(event.dtype, event.shape, event.row["hash"].tobytes())

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of values; None if they were recorded in full, or not at all."""
        if self._reader is None:
            return self._finished_file().kept(tensor, sample, step)
        event = self._find_event(tensor, sample, step)
        record = None if event is None or not event.is_partial else self._reader.read(event)
        return record if isinstance(record, Kept) else None

    def _find_event(self, tensor: str, sample: int, step: int) -> JournalEvent | None:
        constant = self._run.builder.is_constant(tensor)
        return self._run.events.get((tensor, 0, 0) if constant else (tensor, sample, step))

    def _finished_file(self) -> FileRecording:
        if self._file is None:
            raise RecordingError(f"The recording {str(self.path)!r} is closed.", hint="Open it again.")
        return self._file

    # -- lifetime

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        if self._reader is not None:
            self._reader.close()
        if self._file is not None:
            self._file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return FollowedRecording, (self.path.absolute(),)


def _file_identity(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes when a file is overwritten; None if there is no file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _open_reader(journal: Path) -> JournalReader | None:
    """Open a journal; None if its recording is finished and only the journal's removal is pending."""
    target = target_of(journal)
    reader = JournalReader(journal)
    if target == journal or reader.has_payload_file or not target.is_file():
        return reader
    reader.close()
    return None
