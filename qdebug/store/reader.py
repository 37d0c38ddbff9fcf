"""Read a recording: opening it reads the tables only, payloads come on demand, straight from the file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import xxhash

from qdebug.errors import GraphError, RecordingError
from qdebug.model import Graph, QuantParams, RunInfo
from qdebug.model.gc_pause import gc_paused
from qdebug.model.kept import Kept
from qdebug.model.outline import Outline
from qdebug.model.recording import no_values, not_in_full
from qdebug.store.check_tables import check_graph, check_index, constant_tensors
from qdebug.store.container import BAD_FILE, Container, damaged
from qdebug.store.decode import (
    decode_graph,
    decode_info,
    decode_quants,
    decode_run,
)
from qdebug.store.event_index import EventIndex
from qdebug.store.kept_reader import KeptReader
from qdebug.store.kept_rows import PARTLY, check_optional
from qdebug.store.layout import NO_PAYLOAD, TABLES
from qdebug.store.lifetime import Closable
from qdebug.store.payload import from_physical
from qdebug.store.payload_reader import Expected, payload_digest, read_payload
from qdebug.store.texts import TextTable

__all__ = ["Event", "FileRecording", "open_file"]


_AT_ONCE = 8192
"""Rows of the index that are hashed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of the index: a tensor's values at one sample and step.

    Args:
        tensor: Its name.
        sample: The sample; 0 for a constant.
        step: The step; 0 for a constant.
        dtype: Logical dtype of the elements.
        nbytes: Size of the values.
        digest: xxh3-128 of the values' bytes, in hexadecimal.
        payload: Number of the dataset that holds them; events with equal values share one.
    """

    tensor: str
    sample: int
    step: int
    dtype: str
    nbytes: int
    digest: str
    payload: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undecoded:
    """The part of a file that its graph is made of."""

    tables: Mapping[str, np.ndarray]
    texts: TextTable
    run: Mapping[str, Any]


def open_file(path: str | os.PathLike[str]) -> FileRecording:
    """Open a recording file.

    Raises:
        NotARecordingError: The file is missing or is something else.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or holds what a recording never does.
    """
    return FileRecording(path)


class FileRecording(Closable):
    """A recording file, open for reading. Implements `qdebug.model.Recording`.

    It can be handed to another process, which opens the file anew.

    Args:
        path: The file.

    Raises:
        NotARecordingError: The file is missing or is something else.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or holds what a recording never does.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._container = Container(self.path)
        tables = self._container.take_tables()
        try:
            run = decode_run(tables)
            check_index(tables, run, self._container.payloads)
            check_optional(self._container.optional, tables["index"])
            check_graph(tables)
            self.info: RunInfo = decode_info(run, complete=self._container.complete)
            texts = TextTable(tables)
            self._names = texts.at(tables["tensors"]["name"])
            self._rows = _rows_by_name(self._names)
        except BAD_FILE as exc:
            self.close()
            raise damaged(self.path, exc) from None
        self.samples: int = run["samples"]
        self.steps: int = run["steps"]
        self.content_hash: str = _content_hash(tables)
        """Hash of what was recorded, in hexadecimal: equal for files with equal values, graph and facts."""
        self._kept = KeptReader(tables["index"], self._container.optional)
        self._constant = constant_tensors(tables).tobytes()
        self._index = EventIndex(tables.pop("index"), len(self._names))
        self._undecoded: _Undecoded | None = _Undecoded(tables=tables, texts=texts, run=run)
        self._decoding = Lock()

    # -- what it holds

    @property
    def graph(self) -> Graph:
        """The graph that ran.

        Raises:
            RecordingError: The tables make no graph.
        """
        if self._undecoded is not None:
            self._decode()
        return self._graph

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that do not have their tensor's, by tensor, sample and step.

        Raises:
            RecordingError: The tables make no quantization.
        """
        if self._undecoded is not None:
            self._decode()
        return self._event_quants

    def _decode(self) -> None:
        """Make graph and quantizations out of the tables, once; the tables are let go then."""
        with self._decoding:
            given = self._undecoded
            if given is None:
                return
            try:
                with gc_paused():
                    graph = self._decoded_graph(given)
                self._event_quants = self._decode_event_quants(given.tables)
            except (*BAD_FILE, GraphError) as exc:
                raise damaged(self.path, exc) from None
            self._graph, self._undecoded = graph, None

    def _decoded_graph(self, given: _Undecoded) -> Graph:
        tables = given.tables
        return decode_graph(tables, given.texts.shared(tables["tensors"]["name"], self._names), given.run)

    def _decode_event_quants(self, tables: Mapping[str, np.ndarray]) -> Mapping[tuple[str, int, int], QuantParams]:
        index, names = self._index.columns, self._names
        rows = np.flatnonzero(index["quant"] >= 0)
        if not rows.size:
            return {}
        quants = decode_quants(tables)
        found = self._index.tensors, index["sample"], index["step"], index["quant"]
        columns = (column[rows].tolist() for column in found)
        return {
            (names[tensor], sample, step): quants[quant] for tensor, sample, step, quant in zip(*columns, strict=True)
        }

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the tensors of which anything was kept, in the order they were first recorded."""
        tensors = self._index.tensors
        first = np.full(len(self._names), len(tensors))
        first[tensors[::-1]] = np.arange(len(tensors))[::-1]  # of several values the last one given stays
        recorded = np.count_nonzero(first < len(tensors))
        rows = np.argsort(first)[:recorded]
        return tuple([self._names[row] for row in rows.tolist()])

    def digests(self, tensors: Collection[str]) -> dict[tuple[str, int, int], bytes]:
        """Give the hash that the values of some tensors were recorded with, by tensor, sample and step."""
        index, names = self._index.columns, self._names
        wanted = np.array([name in tensors for name in names], dtype=bool)
        tensor = self._index.tensors
        rows = np.flatnonzero(wanted[tensor])
        columns = (column[rows].tolist() for column in (tensor, index["sample"], index["step"]))
        hashes = map(self._index.digest, rows.tolist())
        return {
            (names[tensor], sample, step): digest for tensor, sample, step, digest in zip(*columns, hashes, strict=True)
        }

    @property
    def event_count(self) -> int:
        """Number of rows of the index."""
        return len(self._index)

    @cached_property
    def tensor_bytes(self) -> int:
        """Bytes of all values in the file, shared payloads counted for each tensor that has them."""
        index = self._index.columns
        return int(index["nbytes"][index["payload"] != NO_PAYLOAD].sum(dtype=np.uint64))

    def events(self) -> Iterator[Event]:
        """List the rows of the index in the order of recording."""
        index = self._index
        places = (column.tolist() for column in (index.tensors, index.columns["sample"], index.columns["step"]))
        for row, (tensor, sample, step) in enumerate(zip(*places, strict=True)):
            yield Event(
                tensor=self._names[tensor],
                sample=sample,
                step=step,
                dtype=index.dtype(row),
                nbytes=index.nbytes(row),
                digest=index.digest(row).hex(),
                payload=index.payload(row),
            )

    # -- values

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Tell whether values of a tensor were kept for a sample and step. A constant has them for all."""
        return self._row(tensor, sample, step) is not None

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Give the stored elements (codes, if quantized), read-only, in the logical dtype.

        A large payload is a view of the file that is read as it is touched; it stays valid after `close`.

        Raises:
            RecordingError: No values are kept under this name, sample and step, or the file is damaged or closed.
        """
        row = self._row(tensor, sample, step)
        if row is None and self.kept(tensor, sample, step) is not None:
            raise not_in_full(tensor, sample, step)
        if row is None:
            raise no_values(tensor, sample, step, self.names)
        array = from_physical(self._stored(row), self._index.dtype(row))
        array.flags.writeable = False
        return array

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Give dtype, shape and hash of values as they were recorded, none of which are read.

        None if they were not kept in full, or have more dimensions than the index has room for.
        """
        row = self._row(tensor, sample, step)
        return None if row is None else self._index.outline(row)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Give what was kept of values that were not kept in full; None if they were, or there are none.

        Raises:
            RecordingError: The file is damaged or closed.
        """
        event = self._event(tensor, sample, step)
        if event is None or not self._is_partly(event):
            return None
        try:
            return self._kept.read(self._open_container(), event)
        except BAD_FILE as exc:
            raise damaged(self.path, exc) from None

    def check_payload(self, event: int) -> None:
        """Compare the values of one row of the index with the hash they were recorded with.

        Raises:
            RecordingError: They differ.
        """
        payload = self._index.payload(event)
        try:
            if payload == NO_PAYLOAD:
                self._kept.read(self._open_container(), event)
                return
            right = payload_digest(self._open_container(), self._expected(event)) == self._index.digest(event)
        except BAD_FILE as exc:
            raise damaged(self.path, f"payload {payload}: {exc}") from None
        if not right:
            name = self._names[self._index.tensors[event]]
            raise damaged(self.path, f"the values of {name!r} are not those recorded")

    def check_tables(self) -> bool:
        """Compare the tables with the hash they were written with; False if the file has none.

        Raises:
            RecordingError: They differ.
        """
        recorded = self._open_container().tables_hash
        if recorded is not None and recorded != self._open_container().hash_tables():
            raise damaged(self.path, "its graph and index are not those that were written")
        return recorded is not None

    def _row(self, tensor: str, sample: int, step: int) -> int | None:
        """Give the row of the index where all values were kept; None if they were not."""
        event = self._event(tensor, sample, step)
        return None if event is None or self._is_partly(event) else event

    def _event(self, tensor: str, sample: int, step: int) -> int | None:
        row = self._rows.get(tensor)
        if row is None:
            return None
        return self._index.find(row, 0, 0) if self._constant[row] else self._index.find(row, sample, step)

    def _is_partly(self, event: int) -> bool:
        return bool(self._index.flags(event) & PARTLY)

    def _stored(self, event: int) -> np.ndarray:
        """Give a payload's elements as they lie in the file."""
        container, expected = self._open_container(), self._expected(event)
        try:
            return read_payload(container, expected)
        except BAD_FILE as exc:
            raise damaged(self.path, f"payload {expected.number}: {exc}") from None

    def _open_container(self) -> Container:
        if self._container.fd < 0:
            raise RecordingError(f"The recording {str(self.path)!r} is closed.", hint="Open it again.")
        return self._container

    def _expected(self, event: int) -> Expected:
        index = self._index
        return Expected(
            number=index.payload(event),
            dtype=index.dtype(event),
            nbytes=index.nbytes(event),
            ndim=index.ndim(event),
            shape=index.shape(event),
        )

    # -- life

    def close(self) -> None:
        """Close the file; arrays that were loaded stay valid. Again does nothing."""
        self._container.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRecording, (self.path.absolute(),)

    def __del__(self) -> None:
        if hasattr(self, "_container"):
            self.close()


def _rows_by_name(names: Sequence[str]) -> dict[str, int]:
    """Return the row of each tensor by its name.

    Raises:
        ValueError: Two have one name.
    """
    rows = {name: row for row, name in enumerate(names)}
    if len(rows) < len(names):
        raise ValueError("two tensors have one name")
    return rows


def _content_hash(tables: Mapping[str, np.ndarray]) -> str:
    digest = xxhash.xxh3_128()
    for name in ("tensor", "sample", "step", "quant", "dtype", "shape", "hash"):
        column = tables["index"][name]
        for start in range(0, len(column), _AT_ONCE):
            digest.update(np.ascontiguousarray(column[start : start + _AT_ONCE]).data)
    for name in TABLES:
        if name != "index":
            digest.update(np.ascontiguousarray(tables[name]).view(np.uint8).data)
    return digest.hexdigest()
