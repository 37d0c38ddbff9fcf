"""The destinations of a recorder's arrays: a file, memory, or a file written by a thread."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import numpy as np

from qdebug.errors import QdebugError, RecordingError
from qdebug.model import Graph, MemoryRecording, QuantParams, RunInfo
from qdebug.model.kept import Kept
from qdebug.recording.format.payload import storable_dtype
from qdebug.recording.writing.write import Place, Values

__all__ = [
    "MAX_QUEUED_BYTES",
    "BackgroundSink",
    "MemorySink",
    "RecordingStopped",
    "Sink",
    "warn_stopped",
]


class RecordingStopped(UserWarning):
    """Recording stopped because the disk is full or failed. The recorded program continues."""


def warn_stopped(error: QdebugError) -> None:
    """Warn that recording stopped, and why."""
    try:
        warnings.warn(f"Recording stopped: {error}", RecordingStopped, stacklevel=_host_stack_level())
    except RecordingStopped:
        return  # the program may turn warnings into errors, which must not stop it


def _host_stack_level() -> int:
    """Return the stack level of the recorded program, as seen from `warn_stopped`."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("qdebug", "contextlib"):
            break
        frame, level = frame.f_back, level + 1
    return level


class Sink(Protocol):
    """The destination of a recorder's arrays, such as a `RecordingWriter`."""

    @property
    def counts(self) -> bool:
        """Whether the sink only counts values. If so, it receives complete arrays with their full quantization."""

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None if writing has not failed."""

    @property
    def events(self) -> int:
        """Number of arrays that are safely stored."""

    def note(self, note: Mapping[str, Any], *, at_once: bool = True) -> None:
        """Store stated facts for readers of the unfinished recording."""

    def append(
        self,
        name: str,
        array: Values,
        place: Place = (0, 0),
        *,
        constant: bool = False,
        quant: QuantParams | None = None,
    ) -> None:
        """Store the values of a tensor, or their partial record. The caller may change the array afterwards."""

    def read_back(self, name: str, place: Place = (0, 0)) -> np.ndarray | None:
        """Return values that were stored in full; None for others."""

    def close(self, graph: Graph, info: RunInfo) -> object:
        """Finish."""

    def leave(self) -> None:
        """Stop without finishing, and preserve everything that can be recovered."""

    def discard(self) -> None:
        """Leave nothing behind."""


class MemorySink:
    """Keeps copies of arrays in memory."""

    counts = False

    def __init__(self) -> None:
        self.failure: str | None = None
        self._arrays: dict[tuple[str, int, int], np.ndarray] = {}
        self._quants: dict[tuple[str, int, int], QuantParams] = {}
        self._partial_records: dict[tuple[str, int, int], Kept] = {}
        self._open = True
        self.recording: MemoryRecording | None = None

    @property
    def events(self) -> int:
        """Number of stored arrays."""
        return len(self._arrays) + len(self._partial_records)

    def note(self, note: Mapping[str, Any], *, at_once: bool = True) -> None:
        """Do nothing, since there is no reader before the end."""

    def append(
        self,
        name: str,
        array: Values,
        place: Place = (0, 0),
        *,
        constant: bool = False,
        quant: QuantParams | None = None,
    ) -> None:
        """Copy the values of a tensor, or store their partial record."""
        del constant  # the graph already states the role
        self._check_open()
        if isinstance(array, Kept):
            self._partial_records[name, *place] = array
        else:
            storable_dtype(name, array)
            copy = np.array(array, order="C")
            copy.flags.writeable = False
            self._arrays[name, *place] = copy
        if quant is not None:
            self._quants[name, *place] = quant

    def read_back(self, name: str, place: Place = (0, 0)) -> np.ndarray | None:
        """Return values that were stored in full; None for others."""
        return self._arrays.get((name, *place))

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Make the recording from the stored arrays."""
        self._check_open()
        self._open = False
        self.recording = MemoryRecording(graph, self._arrays, info, quants=self._quants, partly=self._partial_records)

    def leave(self) -> None:
        """Drop everything, since memory cannot be recovered."""
        self.discard()

    def discard(self) -> None:
        """Drop everything."""
        self._open = False
        self._arrays = {}

    def _check_open(self) -> None:
        if not self._open:
            raise RecordingError("The recording is closed.", hint="Open a new recorder.")


MAX_QUEUED_BYTES = 256 << 20
"""Maximum total size of queued arrays in bytes. A larger array is queued alone."""


class BackgroundSink:
    """Forwards everything to another sink, in order, in a thread.

    The recorded program waits only if too much is queued. Queued data is lost if the process is killed; written data
    survives. If a program ends or drops its recorder without closing it, nothing is lost, because the recorder calls
    `leave`.

    Args:
        sink: The other sink, which must not be used elsewhere.
        max_bytes: Maximum total size of queued arrays in bytes.
    """

    def __init__(self, sink: Sink, *, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self.inner = sink
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._queue: deque[tuple[int, Callable[[], object]]] = deque()
        self._queued_bytes = self._running_count = 0
        self._is_stopping = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._forward_queued, name="qdebug recorder", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> bool:
        """Whether the other sink only counts values."""
        return self.inner.counts

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None if writing has not failed."""
        return self.inner.failure

    @property
    def events(self) -> int:
        """Number of arrays written so far."""
        return self.inner.events

    def note(self, note: Mapping[str, Any], *, at_once: bool = True) -> None:
        """Write stated facts, after all earlier values."""
        self._enqueue(0, partial(self.inner.note, dict(note), at_once=at_once))

    def append(
        self,
        name: str,
        array: Values,
        place: Place = (0, 0),
        *,
        constant: bool = False,
        quant: QuantParams | None = None,
    ) -> None:
        """Copy the values of a tensor, or queue their partial record."""
        if isinstance(array, Kept):
            size = 0 if array.values is None else array.values.nbytes
        else:
            array, size = np.array(array, order="C"), array.nbytes
        self._enqueue(size, partial(self.inner.append, name, array, place, constant=constant, quant=quant))

    def read_back(self, name: str, place: Place = (0, 0)) -> np.ndarray | None:
        """Return values that were stored in full, or None. Waits until everything is written."""
        self._drain()
        return self.inner.read_back(name, place)

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Write everything queued, and finish."""
        self._stop()
        self.inner.close(graph, info)
        with self._changed:
            self._raise_error()

    def leave(self) -> None:
        """Write everything queued, and stop without finishing."""
        self._stop()
        self.inner.leave()

    def discard(self) -> None:
        """Leave nothing behind."""
        with self._changed:
            self._queue.clear()
        self._stop()
        self.inner.discard()

    def _enqueue(self, size: int, work: Callable[[], object]) -> None:
        if os.getpid() != self._pid:
            work()  # a forked child does not have the thread; the inner sink refuses to write
            return
        with self._changed:
            self._raise_error()
            while self._queue and self._queued_bytes + size > self._max_bytes:
                self._changed.wait()
                self._raise_error()
            self._queue.append((size, work))
            self._queued_bytes += size
            self._changed.notify_all()

    def _raise_error(self) -> None:
        """Raise the thread's error, if any, only once. The caller must hold the lock."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _forward_queued(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_stopping:
                    self._changed.wait()
                if not self._queue:
                    return
                size, work = self._queue.popleft()
                self._running_count = 1
            work_error: BaseException | None = None
            try:
                work()
            except BaseException as error:  # noqa: BLE001  raised again when the next array is put
                work_error = error
            with self._changed:
                if work_error is not None and (self._error is None or not isinstance(work_error, RecordingError)):
                    self._error = work_error
                self._running_count = 0
                self._queued_bytes -= size
                self._changed.notify_all()

    def _drain(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            while (self._queue or self._running_count) and self._thread.is_alive():
                self._changed.wait(0.1)
            self._raise_error()

    def _stop(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._thread.join()
