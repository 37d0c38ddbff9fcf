"""Write a recording: events are appended one by one, tables come last, and only a finished file gets its final name.

An unfinished file is called NAME.part, and NAME.journal lists its contents (`qdebug.recording.journal`). When `append`
returns, the operating system has received payload and frame, and they survive even if the process is killed. The HDF5
library is not used: for a small tensor, it takes longer than everything else, and a file that it flushes after each
tensor may be unreadable if the process dies.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import QdebugError, RecordingError
from qdebug.model import Graph, QuantParams, RunInfo
from qdebug.model.kept import Kept
from qdebug.recording.format.facts import json_facts
from qdebug.recording.format.payload import PartialArray, StoredArray, storable_dtype
from qdebug.recording.journal import FrameKind, Journal, encode_event, encode_json, encode_tables_body
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.remote_url import check_local
from qdebug.recording.target import (
    WriterLock,
    cannot_write_error,
    check_recorder_file,
    check_target,
    describe_cause,
    exists_error,
    has_unfinished_run,
    journal_of,
    mode_of,
    part_of,
    recover_hint,
    remove_if_same,
    rename_durably,
    rename_new,
    sync_file,
    sync_finished,
    sync_folder,
)
from qdebug.recording.writing.payload_store import PayloadStore
from qdebug.recording.writing.tables import IndexRows, encode_tables, pack_kept_row, pack_row
from qdebug.recording.writing.ticker import Ticker
from qdebug.version import __version__

__all__ = ["Place", "RecordingWriter", "Values", "check_finished", "create_files", "rename_finished"]


def create_files(
    part: Path,
    journal_path: Path,
    info: RunInfo,
    graph: Mapping[str, np.ndarray] | None,
    *,
    mode: int | None,
    is_durable: bool,
) -> tuple[PayloadStore, Journal]:
    """Create both files of an unfinished recording, or none if that fails.

    Args:
        part: The file for the payloads, which must not exist.
        journal_path: The journal, which must not exist.
        info: Facts of the run.
        graph: The tables of the graph, if known beforehand.
        mode: Permissions of both files; None for the default ones.
        is_durable: Return only when both files would survive a power cut and be recognized as a recorder's.

    Raises:
        OSError: They cannot be created.
    """
    payloads = PayloadStore(part, mode=mode)
    fd = -1
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(journal_path, flags, 0o666)
        if mode is not None:
            os.fchmod(fd, mode)
        journal = Journal(fd)
        header = {"journal": 1, "created_by": f"qdebug {__version__}", "info": json_facts(info)}
        journal.add(FrameKind.RUN, encode_json(header))
        if graph is not None:
            journal.add(FrameKind.GRAPH, encode_tables_body(graph))
        journal.commit()
        if is_durable:
            sync_file(payloads.file.fd)
            sync_file(fd)
            sync_folder(part.parent)
    except BaseException:
        payloads.file.abandon()
        remove_if_same(part, payloads.file.status_when_made)
        if fd >= 0:
            remove_if_same(journal_path, os.fstat(fd))
            os.close(fd)
        raise
    return payloads, journal


def check_finished(path: Path, events: int) -> None:
    """Check that a finished file can be read, has the given number of events, and that its last payload is intact."""
    with FileRecording(path) as recording:
        if recording.event_count != events:
            raise RecordingError(f"{str(path)!r} has only {recording.event_count} of {events} events.")
        if events:
            recording.check_payload(events - 1)


def rename_finished(part: Path, path: Path, *, force: bool, is_durable: bool) -> None:
    """Rename a finished file to its target.

    Args:
        part: The finished file.
        path: Its new name.
        force: Replace an existing file.
        is_durable: Return only when the new name would survive a power cut.

    Raises:
        OutputExistsError: Another process created a file with that name, and `force` is not set.
        OSError: The file cannot be renamed, or cannot be forced to the disk.
    """
    try:
        if is_durable:
            rename_durably(part, path, force=force)
        elif not force:
            rename_new(part, path)
        else:
            if path.exists():
                sync_finished(part, path)  # otherwise a power cut could lose both the old file and the new one
            part.replace(path)
    except FileExistsError:
        raise exists_error(path, f"The recording is in {str(part)!r}; rename this file.") from None


_MAX_NUMBER = 2**32 - 1

Place = tuple[int, int]
"""Sample and step; (0, 0) for a constant."""
Values = np.ndarray | Kept
"""All values of a tensor, or their partial record."""


class RecordingWriter:
    """Writes one recording file. Not thread-safe.

    Args:
        path: The file to make.
        force: Replace the file if it exists; it stays untouched until the new one is complete.
        info: Facts of the run known beforehand, for readers that have only the journal.
        graph: The graph, if known beforehand, for the same readers.
        sync_every: Seconds after which a thread forces written data to the disk, so that it survives a power cut;
            infinity syncs only the finished file; None leaves it to the operating system, which is enough to survive
            the death of the process.
        source: The unfinished file that the recording is rebuilt from; None for a new run. The recording gets its
            permissions, unless it replaces a file. NAME.part is then called NAME.recovered.part.

    Raises:
        OutputExistsError: The file exists and `force` is not set.
        RecordingError: The folder is missing or not writable, another process is writing this file, an unfinished run
            left values there and `force` is not set, a name next to it belongs to an unrelated file, or the graph
            cannot be stored.
        UsageError: The path is a URL.
    """

    counts = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        info: RunInfo | None = None,
        graph: Graph | None = None,
        sync_every: float | None = None,
        source: Path | None = None,
    ) -> None:
        self._pid = os.getpid()
        self._is_open = False  # nothing to release yet
        try:
            check_local(Path(path), "A recorder", writes=True)
            self.path = Path(os.path.realpath(path))
            check_target(self.path, force=force)
        except (OSError, ValueError) as exc:
            if isinstance(exc, QdebugError):
                raise
            raise cannot_write_error(Path(path), exc) from None
        self._force, self._source = force, source
        self._index = IndexRows()
        self._stored_arrays: dict[tuple[str, int, int], tuple[Any, ...]] = {}
        """Fields of `StoredArray` by tensor, sample and step, in tuples that the garbage collector need not visit."""
        self._is_durable = sync_every is not None
        self._ticker: Ticker | None = None
        self.failure: str | None = None
        """Why nothing is written any more; None if writing has not failed."""
        stem = self.path if source is None else self.path.with_name(self.path.name + ".recovered")
        self._lock = WriterLock(stem)
        self._part, self._journal_path = part_of(stem), journal_of(stem)
        try:
            self._create_unfinished_files(info or RunInfo(backend=""), graph)
        except BaseException as exc:
            self._lock.release()
            if isinstance(exc, OSError) and not isinstance(exc, QdebugError):
                raise cannot_write_error(self.path, exc) from None
            raise
        self._is_open = True
        _WRITERS.add(self)
        if sync_every is not None and sync_every < math.inf:
            self._ticker = Ticker(self, sync_every)

    def _create_unfinished_files(self, info: RunInfo, graph: Graph | None) -> None:
        if not self._force and self._source is None and has_unfinished_run(self.path):
            raise RecordingError(
                f"A run that recorded to {str(self.path)!r} did not finish; its partial recording still exists.",
                hint=f"{recover_hint(self.path)[:-1]}, or overwrite it: --force (in Python: force=True).",
            )
        old_files = self._part, self._journal_path  # left by a dead process, since this writer has the lock
        for name in old_files:
            check_recorder_file(name)
        # Encode the graph before files are deleted, since this raises if it cannot be stored.
        tables = None if graph is None else encode_tables(graph, info, (), samples=1, steps=1)[0]
        for name in old_files:
            name.unlink(missing_ok=True)
        mode = mode_of(self.path)
        if mode is None and self._source is not None:
            mode = mode_of(self._source)
        mode = None if mode is None else mode | stat.S_IRUSR | stat.S_IWUSR
        self._payloads, self._journal = create_files(*old_files, info, tables, mode=mode, is_durable=self._is_durable)
        self._journal_status = os.fstat(self._journal.fd)

    @property
    def events(self) -> int:
        """Number of events appended so far."""
        return self._index.count

    def note(self, note: Mapping[str, Any], *, at_once: bool = True) -> None:
        """Write stated facts of the run or of a tensor into the journal.

        Args:
            note: A JSON object.
            at_once: Write it at once rather than together with the next event.

        Raises:
            RecordingError: As for `append`.
        """
        self._check_usable()
        self._journal.add(FrameKind.NOTE, encode_json(note))
        if at_once:
            try:
                self._journal.commit()
            except BaseException as exc:
                self.fail("The description of the run", exc)
                raise

    def append(
        self,
        name: str,
        array: Values,
        place: Place = (0, 0),
        *,
        constant: bool = False,
        quant: QuantParams | None = None,
    ) -> None:
        """Store a tensor's values or their partial record. Once this returns, they survive if the process is killed.

        Args:
            name: The tensor.
            array: Its values, of any dtype that has a logical name.
            place: Their sample and step.
            constant: Whether the tensor is a constant, whose values hold for every sample and step.
            quant: The quantization of these values, if it differs from their tensor's.

        Raises:
            RecordingError: The dtype cannot be stored, a number is out of range, the writer is closed or belongs to
                another process, or the disk is full.
        """
        self._check_usable()
        sample, step = place
        if not (0 <= sample < _MAX_NUMBER and 0 <= step < _MAX_NUMBER):
            raise RecordingError(
                f"Tensor {name!r} was put at sample {sample}, step {step}, which a recording does not support."
            )
        dtype = array.dtype if isinstance(array, Kept) else storable_dtype(name, array)
        event_place = self._index.place(name, sample, step, constant=constant)
        partial_array = offset = None
        try:
            if isinstance(array, Kept):
                partial_array = self._store_partial(array)
                row = pack_kept_row(self.events, event_place, partial_array)
            else:
                stored, flags = self._payloads.store(array, dtype)
                offset, row = stored.offset, pack_row(self.events, event_place, stored, flags)
            event = encode_event(
                row, array.shape, name, offset=offset, is_constant=constant, partial_array=partial_array
            )
            self._journal.add(FrameKind.EVENT, event)
            self._journal.commit()
        except BaseException as exc:
            self.fail(f"Tensor {name!r}", exc)
            raise
        if partial_array is None:
            self._stored_arrays[name, *event_place[1:]] = tuple(stored)
        self._index.add(row, name, event_place, dtype, constant=constant, quant=quant, partial_array=partial_array)

    def _store_partial(self, partial_values: Kept) -> PartialArray:
        if partial_values.values is None or partial_values.positions is None:
            return PartialArray(partial_values)
        values, _ = self._payloads.store(partial_values.values, partial_values.dtype)
        return PartialArray(partial_values, values, self._payloads.store(partial_values.positions, "int64")[0])

    def fail(self, title: str, exc: BaseException) -> None:
        """Undo an interrupted write. If the disk is full or failed, set `failure` and raise.

        Args:
            title: What could not be written, for the message.
            exc: The exception that interrupted the write.

        Raises:
            RecordingError: The disk is full or failed.
        """
        self._journal.forget()
        if isinstance(exc, OSError | RuntimeError):
            self.failure = f"{title} could not be written to {str(self._part)!r}: {describe_cause(exc)}."
            raise RecordingError(self.failure, hint="Free some space, or record to another disk.") from None

    def sync(self) -> None:
        """Force appended data to the disk, so that it survives a power cut. May be called from any thread.

        Raises:
            RecordingError: It cannot be written. Writing then stops, since the system may have dropped data.
        """
        try:
            sync_file(self._payloads.file.fd)
            sync_file(self._journal.fd)
        except OSError as exc:
            self.failure = f"The recording so far could not be written to {str(self._part)!r}: {describe_cause(exc)}."
            raise RecordingError(self.failure, hint="Free some space, or record to another disk.") from None

    def _sync_last(self) -> None:
        """Stop the thread that syncs, and sync once more."""
        ticker, self._ticker = self._ticker, None
        if ticker is None:
            return
        ticker.stop()
        if self.failure is None:
            with contextlib.suppress(RecordingError):  # `failure` has the reason
                self.sync()

    def read_back(self, name: str, place: Place = (0, 0)) -> np.ndarray | None:
        """Return appended values; None if there are none, or if they were not recorded in full.

        Raises:
            RecordingError: The writer is closed or belongs to another process, or the file cannot be read.
        """
        self._check_usable(allow_failure=True)
        stored = self._stored_arrays.get((name, *place))
        try:
            return None if stored is None else self._payloads.read_back(StoredArray(*stored))
        except (OSError, ValueError) as exc:
            raise RecordingError(f"{str(self._part)!r} cannot be read back: {describe_cause(exc)}.") from None

    def close(self, graph: Graph, info: RunInfo) -> Path:
        """Write the tables, verify the file, and give it its final name.

        Args:
            graph: The graph that ran.
            info: Facts of the run. The file is marked as incomplete if the writer failed or `info.complete` is False.

        Returns:
            The finished file.

        Raises:
            OutputExistsError: Another process created the file meanwhile. The recording stays in NAME.part.
            RecordingError: The file cannot be finished. The tensors can be recovered.
        """
        self._check_usable(allow_failure=True)
        self._sync_last()  # the following steps may fail
        is_complete = info.complete and self.failure is None
        try:
            tables = self._index.tables(graph, info)
            if not self._part.exists():
                raise self._cannot_finish_error(self._missing_file_text())
            self._payloads.finish(tables, is_complete=is_complete)
            self._payloads.file.close()
            check_finished(self._part, self.events)
            self._write_end(is_complete=is_complete)
        except (OSError, RuntimeError) as exc:
            self.leave()
            raise self._cannot_finish_error(describe_cause(exc)) from None
        except BaseException:
            self.leave()
            raise
        self._is_open = False
        try:
            rename_finished(self._part, self.path, force=self._force, is_durable=self._is_durable)
            remove_if_same(self._journal_path, self._journal_status)
        except OSError as exc:
            if isinstance(exc, QdebugError):
                raise
            error = (
                self._cannot_finish_error(describe_cause(exc)) if self._part.exists() else self._not_durable_error(exc)
            )
            if self._source is not None:
                self._remove_files()
            raise error from None
        finally:
            self._journal.close()
            self._lock.release()
        return self.path

    def _cannot_finish_error(self, reason: str) -> RecordingError:
        is_recoverable = self.events > 0 and self._part.exists()
        kept_note = " The partial recording is kept in the same folder." if is_recoverable else ""
        error = RecordingError(
            f"{str(self.path)!r} cannot be finished: {reason}.{kept_note}",
            hint=recover_hint(self.path) if is_recoverable or self._source is not None else self._alternative_hint(),
        )
        self.failure = self.failure or error.message
        return error

    def _not_durable_error(self, exc: OSError) -> RecordingError:
        self.failure = f"{str(self.path)!r} is finished, but may not survive a power failure: {describe_cause(exc)}."
        return RecordingError(self.failure, hint="Copy it to another disk.")

    def _missing_file_text(self) -> str:
        if self._journal_path.exists():
            return f"{str(self._part)!r} was removed by another program"
        return f"{str(self._part)!r} and the journal are missing, or their folder was renamed"

    def _alternative_hint(self) -> str:
        if self.events and not self._journal_path.exists():
            return "If the folder was renamed, rebuild the recording in it: qdebug file recover FILE."
        return "Record the run again to a disk with enough space."

    def _write_end(self, *, is_complete: bool) -> None:
        """Write the last frame of the journal, which tells followers that the recording is finished."""
        self._journal.add(FrameKind.END, encode_json({"complete": is_complete, "events": self.events}))
        with contextlib.suppress(OSError):  # the file itself is complete, so the journal is no longer needed
            self._journal.commit()

    def leave(self) -> None:
        """Stop, and keep the file and journal for recovery. A second call does nothing.

        A forked child only drops its references.
        """
        has_nothing_to_recover = not self.events or self._source is not None
        self._stop(remove_files=has_nothing_to_recover)

    def discard(self) -> None:
        """Close and remove everything. A second call, or a call after `close`, does nothing.

        A forked child only drops its references.
        """
        self._stop(remove_files=True)

    def _stop(self, *, remove_files: bool) -> None:
        if not self._is_open or self._pid != os.getpid():
            return
        self._is_open = False
        if not remove_files:
            self._sync_last()
        elif self._ticker is not None:
            self._ticker.stop()
        self._payloads.file.abandon()
        self._journal.close()
        if remove_files:
            self._remove_files()
        self._lock.release()

    def _remove_files(self) -> None:
        remove_if_same(self._part, self._payloads.file.status_when_made)
        remove_if_same(self._journal_path, self._journal_status)

    def __del__(self) -> None:
        # A writer that is dropped without being closed can no longer be finished, but it can be recovered.
        if getattr(self, "_is_open", False):
            with contextlib.suppress(Exception):
                self.leave()

    def abandon(self) -> None:
        """Close the file in a forked child without changing it."""
        if self._is_open:
            self._lock.abandon()
            self._journal.close()
            self._payloads.file.abandon()

    def _check_usable(self, *, allow_failure: bool = False) -> None:
        if self._pid != os.getpid():
            raise RecordingError(
                f"{str(self.path)!r} is being written by process {self._pid}, the parent of this process.",
                hint="Open a separate recorder, with another file, in each process.",
            )
        if not self._is_open:
            raise RecordingError(f"The recording {str(self.path)!r} is closed.", hint="Open a new one.")
        if self.failure and not allow_failure:
            raise RecordingError(self.failure, hint="Free some space, or record to another disk.")


_WRITERS: weakref.WeakSet[RecordingWriter] = weakref.WeakSet()


def _abandon_all() -> None:
    for writer in list(_WRITERS):
        writer.abandon()


os.register_at_fork(after_in_child=_abandon_all)
