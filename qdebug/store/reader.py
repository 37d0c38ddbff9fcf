"""Read a recording: opening it reads the tables only, payloads come on demand, straight from the file."""

from __future__ import annotations

import os
from bisect import bisect_left
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
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.gc_pause import gc_paused
from qdebug.model.kept import Kept
from qdebug.model.outline import Outline
from qdebug.model.recording import no_values, not_in_full
from qdebug.store.check_tables import check_graph, check_index, constant_tensors
from qdebug.store.container import BAD_FILE, Container, damaged
from qdebug.store.index_rows import PARTLY, check_optional, check_positions, statistics_of
from qdebug.store.layout import INDEX_DIMS, NO_PAYLOAD, TABLES, Flag, physical_dtype
from qdebug.store.lifetime import Closable
from qdebug.store.payload import from_physical
from qdebug.store.payload_reader import Expected, payload_digest, read_payload
from qdebug.store.tables import (
    TextTable,
    decode_graph,
    decode_info,
    decode_quants,
    decode_run,
)

__all__ = ["Event", "EventIndex", "FileRecording", "KeptReader", "open_file"]

_NUMBERS = ("sample", "step", "payload", "quant", "flags", "dtype", "ndim", "nbytes")
_DIGEST = 16


class EventIndex:
    """Events by row, and their rows by place.

    Args:
        index: The table /index, checked. Its statistics are not kept.
        tensors: Number of rows of /tensors.

    Attributes:
        columns: The numbers of all rows by the name of their field; `shape` is not one.
        tensors: The row of /tensors of each event.
    """

    def __init__(self, index: np.ndarray, tensors: int) -> None:
        dims = min(int(index["ndim"].max(initial=0)), INDEX_DIMS)
        self.columns: Mapping[str, np.ndarray] = {name: index[name].copy() for name in _NUMBERS}
        order = np.lexsort((index["step"], index["sample"], index["tensor"]))
        starts = np.searchsorted(index["tensor"][order], np.arange(tensors + 1))
        self._order, self._starts = order.data, starts.data  # one number comes several times as fast as of an array
        self._shape = tuple(index["shape"][:, dim].copy().data for dim in range(dims))
        self.tensors: np.ndarray = index["tensor"].copy()
        self._hashes = index["hash"].tobytes()
        self._samples, self._steps, self._ndim, self._dtype, self._flags, self._payload, self._nbytes = (
            self.columns[name].data for name in ("sample", "step", "ndim", "dtype", "flags", "payload", "nbytes")
        )

    def __len__(self) -> int:
        return len(self._order)

    def find(self, tensor: int, sample: int, step: int) -> int | None:
        """Give the row of the event of a tensor at a sample and step; None if there is none.

        Args:
            tensor: Row of /tensors.
            sample: The sample.
            step: The step.
        """
        begin, end = self._starts[tensor], self._starts[tensor + 1]
        if end - begin > 1:
            begin = bisect_left(self._order, (sample, step), begin, end, key=self._place)
        if begin == end or self._place(row := self._order[begin]) != (sample, step):
            return None
        return int(row)

    def _place(self, row: int) -> tuple[int, int]:
        return self._samples[row], self._steps[row]

    def flags(self, row: int) -> int:
        """Give the flags of an event."""
        return int(self._flags[row])

    def payload(self, row: int) -> int:
        """Give the number of the dataset that holds an event's values."""
        return int(self._payload[row])

    def nbytes(self, row: int) -> int:
        """Give the size of an event's values."""
        return int(self._nbytes[row])

    def ndim(self, row: int) -> int:
        """Give the number of dimensions of an event's values."""
        return int(self._ndim[row])

    def dtype(self, row: int) -> str:
        """Give the logical dtype of an event's values."""
        return LOGICAL_DTYPES[self._dtype[row]]

    def shape(self, row: int) -> tuple[int, ...]:
        """Give the first extents of an event's values, as many as a row has room for."""
        return tuple([extents[row] for extents in self._shape[: self._ndim[row]]])

    def digest(self, row: int) -> bytes:
        """Give the hash of an event's values."""
        return self._hashes[row * _DIGEST : (row + 1) * _DIGEST]

    def outline(self, row: int) -> Outline | None:
        """Give dtype, shape and hash of an event's values; None if the row has no room for the shape."""
        return None if self._ndim[row] > INDEX_DIMS else Outline(self.dtype(row), self.shape(row), self.digest(row))


class KeptReader:
    """The events of a file of which not all values were kept.

    Args:
        index: The table /index, checked; only rows of such events are kept.
        optional: The tables that only files with such events have.
    """

    def __init__(self, index: np.ndarray, optional: Mapping[str, np.ndarray]) -> None:
        self._events = np.flatnonzero(index["flags"] & PARTLY)
        self._rows = index[self._events]
        self._optional = optional
        self._order: dict[str, np.ndarray] = {}

    def read(self, container: Container, event: int) -> Kept:
        """Give what was kept of an event.

        Args:
            container: The file, open.
            event: Row of the index.

        Raises:
            ValueError, OSError: It is not what was recorded.
            MissingExtraError: It is compressed with Zstandard, and the package is not installed.
        """
        row = self._rows[np.searchsorted(self._events, event)]
        flags, bins = Flag(int(row["flags"])), self._row("exponents", event)
        positions, values = self._sampled(container, event, row) or (None, None)
        return Kept(
            dtype=LOGICAL_DTYPES[row["dtype"]],
            shape=tuple(int(size) for size in row["shape"][: min(int(row["ndim"]), INDEX_DIMS)]),
            digest=row["hash"].tobytes(),
            statistics=statistics_of(row, None if bins is None else bins["counts"]),
            positions=positions,
            values=values,
            truncated=Flag.TRUNCATED in flags,
        )

    def _row(self, table: str, event: int) -> Any:
        """Give the row of an event in a table that only some events have a row in; None if it has none."""
        rows = self._optional.get(table)
        if rows is None:
            return None
        if table not in self._order:
            self._order[table] = np.argsort(rows["event"])
        order = self._order[table]
        at = int(np.searchsorted(rows["event"], event, sorter=order))
        return rows[order[at]] if at < len(rows) and rows["event"][order[at]] == event else None

    def _sampled(self, container: Container, event: int, row: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Read the positions and values of the elements that were kept of an event; None if none were."""
        found = self._row("samples", event)
        if found is None:
            return None
        dtype, parts = LOGICAL_DTYPES[row["dtype"]], []
        for name, logical, digest in (("positions", "int64", "check"), ("values", dtype, "hash")):
            count = int(found["count"])
            nbytes = count * physical_dtype(logical).itemsize
            where = Expected(number=int(found[name]), dtype=logical, nbytes=nbytes, ndim=1, shape=(count,))
            if payload_digest(container, where) != found[digest].tobytes():
                raise ValueError("kept elements are not those recorded")
            parts.append(from_physical(read_payload(container, where), logical))
        check_positions(parts[0], int(row["count"]))
        return parts[0], parts[1]


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
