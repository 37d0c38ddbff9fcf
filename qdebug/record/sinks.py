"""Where a recorder's arrays go: a file, or memory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Graph, MemoryRecording, RunInfo
from qdebug.store.payload import storable_dtype
from qdebug.store.writer import RecordingWriter, Stored

__all__ = ["FileSink", "MemorySink", "Sink"]


class Sink(Protocol):
    """What a recorder writes to."""

    def append(self, name: str, array: np.ndarray, *, sample: int, step: int, constant: bool) -> None:
        """Keep the values of a tensor; the caller may change the array afterwards."""

    def read_back(self, name: str, sample: int, step: int) -> np.ndarray | None:
        """Give values that were kept, or None."""

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Finish."""

    def discard(self) -> None:
        """Leave nothing behind."""


class FileSink:
    """Keeps arrays in a recording file."""

    def __init__(self, path: Path, *, force: bool) -> None:
        self._writer = RecordingWriter(path, force=force)
        self._stored: dict[tuple[str, int, int], Stored] = {}

    def append(self, name: str, array: np.ndarray, *, sample: int, step: int, constant: bool) -> None:
        """Write the values of a tensor."""
        stored = self._writer.append(name, array, sample=sample, step=step, constant=constant)
        self._stored[name, sample, step] = stored

    def read_back(self, name: str, sample: int, step: int) -> np.ndarray | None:
        """Give values that were written, or None."""
        stored = self._stored.get((name, sample, step))
        return None if stored is None else self._writer.read_back(stored)

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Write the tables and give the file its name."""
        self._writer.close(graph, info)

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._writer.discard()


class MemorySink:
    """Keeps copies of arrays in memory."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int, int], np.ndarray] = {}
        self._open = True
        self.recording: MemoryRecording | None = None

    def append(self, name: str, array: np.ndarray, *, sample: int, step: int, constant: bool) -> None:  # noqa: ARG002  one interface
        """Copy the values of a tensor."""
        self._check_open()
        storable_dtype(name, array)
        copy = np.array(array, order="C")
        copy.flags.writeable = False
        self._arrays[name, sample, step] = copy

    def read_back(self, name: str, sample: int, step: int) -> np.ndarray | None:
        """Give values that were kept, or None."""
        return self._arrays.get((name, sample, step))

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Make the recording."""
        self._check_open()
        self._open = False
        self.recording = MemoryRecording(graph, self._arrays, info)

    def discard(self) -> None:
        """Forget everything."""
        self._open = False
        self._arrays = {}

    def _check_open(self) -> None:
        if not self._open:
            raise RecordingError("The recording is closed.", hint="Open a new recorder.")
