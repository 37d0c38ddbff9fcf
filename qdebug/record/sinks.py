"""Where a recorder's arrays go: a file, or memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Graph, MemoryRecording, QuantParams, RunInfo
from qdebug.model.kept import Kept
from qdebug.store.payload import storable_dtype
from qdebug.store.payload_store import Stored
from qdebug.store.writer import RecordingWriter

__all__ = ["FileSink", "MemorySink", "Place", "Sink"]

Place = tuple[int, int]
"""Sample and step; (0, 0) for a constant."""


class Sink(Protocol):
    """What a recorder writes to."""

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None while all is well."""

    @property
    def events(self) -> int:
        """How many arrays are safe so far."""

    def note(self, plain: Mapping[str, Any], *, now: bool = True) -> None:
        """Keep what was said, for whoever reads the recording before it is finished."""

    def append(
        self, name: str, array: np.ndarray, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Keep the values of a tensor; the caller may change the array afterwards."""

    def append_kept(
        self, name: str, kept: Kept, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Keep what there is of a tensor that is not kept in full."""

    def read_back(self, name: str, place: Place) -> np.ndarray | None:
        """Give values that were kept, or None."""

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Finish."""

    def leave(self) -> None:
        """Stop without finishing, and lose nothing that can be kept."""

    def discard(self) -> None:
        """Leave nothing behind."""


class FileSink:
    """Keeps arrays in a recording file. Arguments as of `RecordingWriter`."""

    def __init__(
        self, path: Path, *, force: bool, info: RunInfo, graph: Graph | None, sync_every: float | None = None
    ) -> None:
        self._writer = RecordingWriter(path, force=force, info=info, graph=graph, sync_every=sync_every)
        self._stored: dict[Place, dict[str, tuple[Any, ...]]] = {}
        """Fields of `Stored` by place and tensor: plain tuples, which the garbage collector need not visit."""

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None while all is well."""
        return self._writer.failure

    @property
    def events(self) -> int:
        """How many arrays are safe so far."""
        return self._writer.events

    def note(self, plain: Mapping[str, Any], *, now: bool = True) -> None:
        """Write into the journal what was said."""
        self._writer.note(plain, now=now)

    def append(
        self, name: str, array: np.ndarray, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Write the values of a tensor."""
        sample, step = place
        stored = self._writer.append(name, array, sample=sample, step=step, constant=constant, quant=quant)
        if place not in self._stored:
            self._stored[place] = {}
        self._stored[place][name] = tuple(stored)

    def append_kept(
        self, name: str, kept: Kept, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Write what there is of a tensor that is not kept in full."""
        sample, step = place
        self._writer.append_kept(name, kept, sample=sample, step=step, constant=constant, quant=quant)

    def read_back(self, name: str, place: Place) -> np.ndarray | None:
        """Give values that were written, or None."""
        stored = self._stored.get(place, {}).get(name)
        return None if stored is None else self._writer.read_back(Stored(*stored))

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Write the tables and give the file its name."""
        self._writer.close(graph, info)

    def leave(self) -> None:
        """Leave file and journal as they are."""
        self._writer.leave()

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._writer.discard()


class MemorySink:
    """Keeps copies of arrays in memory."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._arrays: dict[tuple[str, int, int], np.ndarray] = {}
        self._quants: dict[tuple[str, int, int], QuantParams] = {}
        self._partly: dict[tuple[str, int, int], Kept] = {}
        self._open = True
        self.recording: MemoryRecording | None = None

    @property
    def events(self) -> int:
        """How many arrays are held."""
        return len(self._arrays) + len(self._partly)

    def note(self, plain: Mapping[str, Any], *, now: bool = True) -> None:
        """Do nothing: nobody reads it before it is finished."""

    def append(
        self, name: str, array: np.ndarray, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Copy the values of a tensor."""
        del constant  # the graph knows
        self._check_open()
        storable_dtype(name, array)
        kept = np.array(array, order="C")
        kept.flags.writeable = False
        self._arrays[name, *place] = kept
        if quant is not None:
            self._quants[name, *place] = quant

    def append_kept(
        self, name: str, kept: Kept, place: Place, *, constant: bool = False, quant: QuantParams | None = None
    ) -> None:
        """Keep what there is of a tensor that is not kept in full."""
        del constant
        self._check_open()
        self._partly[name, *place] = kept
        if quant is not None:
            self._quants[name, *place] = quant

    def read_back(self, name: str, place: Place) -> np.ndarray | None:
        """Give values that were kept, or None."""
        return self._arrays.get((name, *place))

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Make the recording."""
        self._check_open()
        self._open = False
        self.recording = MemoryRecording(graph, self._arrays, info, quants=self._quants, partly=self._partly)

    def leave(self) -> None:
        """Forget everything: memory cannot be recovered."""
        self.discard()

    def discard(self) -> None:
        """Forget everything."""
        self._open = False
        self._arrays = {}

    def _check_open(self) -> None:
        if not self._open:
            raise RecordingError("The recording is closed.", hint="Open a new recorder.")
