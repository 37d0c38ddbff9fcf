"""Read a recording: opening reads only the tables, and payloads are read on demand, directly from the file."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self
from weakref import WeakValueDictionary

import numpy as np
import xxhash

from qdebug.errors import GraphError, PayloadMismatchError, RecordingError
from qdebug.model import Graph, QuantParams, Recording, RunInfo
from qdebug.model.kept import Kept
from qdebug.model.recording import Outline, no_values_error, not_in_full_error
from qdebug.numerics.large_arrays import mapping_of
from qdebug.recording.format.facts import decode_info
from qdebug.recording.format.payload import from_physical
from qdebug.recording.format.specification import GRAPH_TABLES, NO_PAYLOAD, TABLES
from qdebug.recording.reading.bad_file import BAD_FILE_ERRORS, damaged_file_error
from qdebug.recording.reading.container import Container
from qdebug.recording.reading.datasets import DatasetPayloads
from qdebug.recording.reading.event_index import ElementsMismatchError, EventIndex
from qdebug.recording.reading.payloads import ExpectedPayload, Payloads, load_payload, payload_digest, read_payload
from qdebug.recording.reading.tables import (
    Tables,
    check_graph,
    check_index,
    constant_tensors,
    decode_graph,
    decode_quants,
    decode_run,
    decode_texts,
)
from qdebug.recording.remote_url import absolute_path, format_path

__all__ = ["Closable", "Event", "FileRecording", "mismatch_error"]


class Closable:
    """Base of objects that are closed at the end of their `with` block."""

    def close(self) -> None:
        """Release all resources. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception_facts: object) -> None:
        self.close()


_ROWS_PER_BATCH = 8192
"""Rows of the index hashed at a time."""


class Event(NamedTuple):
    """One row of the index: a tensor's values at one sample and step.

    Args:
        tensor: Its name.
        sample: The sample; 0 for a constant.
        step: The step; 0 for a constant.
        dtype: Logical dtype of the elements.
        nbytes: Size of the values.
        digest: xxh3-128 of the values' bytes, in hexadecimal.
        payload: Number of the payload; events with equal values share one.
    """

    tensor: str
    sample: int
    step: int
    dtype: str
    nbytes: int
    digest: str
    payload: int


class RecordedGraph:
    """The graph from the tables, decoded on first use.

    Args:
        tables: The tables; dropped once they are decoded.
        run: Facts of the run, from `decode_run`.

    Attributes:
        names: The name of each row of /tensors.
        rows: The row of each name.
        constant: For each row of /tensors, whether it is a constant, as bytes.

    Raises:
        ValueError: A reference between the tables is dangling, or two tensors have the same name.
    """

    def __init__(self, tables: Tables, run: Mapping[str, Any]) -> None:
        check_graph(tables)
        self.names = decode_texts(tables, tables["tensors"]["name"])
        self.rows = {name: row for row, name in enumerate(self.names)}
        if len(self.rows) < len(self.names):
            raise ValueError("two tensors have the same name")
        self.constant = constant_tensors(tables).tobytes()
        self._undecoded: tuple[Tables, Mapping[str, Any]] | None = (tables, run)
        self._decoding = Lock()

    def decode(self) -> tuple[Graph, Sequence[QuantParams]]:
        """Return the graph, and the quantizations by their row.

        Raises:
            ValueError: A text, quantization, shape or attribute is invalid.
            GraphError: The nodes do not form a valid graph.
        """
        if self._undecoded is not None:  # called for every tensor, so take the lock only the first time
            with self._decoding:
                if self._undecoded is not None:
                    self._graph = decode_graph(*self._undecoded)
                    self._quants = decode_quants(self._undecoded[0])
                    self._undecoded = None
        return self._graph, self._quants


class KnownGraphs:
    """Graphs shared by files that are read together.

    Attributes:
        tables: The tables of each graph, by their hash.
        graphs: The graphs, by the hash of their tables and the run's facts about them.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Tables] = {}
        self.graphs: dict[tuple[str, str], RecordedGraph] = {}

    def graph(self, tables: Tables, run: Mapping[str, Any], digest: str) -> RecordedGraph:
        """Return the graph of the given tables.

        Args:
            tables: The tables.
            run: Facts of the run, from `decode_run`.
            digest: The hash of the tables, as stated in the file.

        Raises:
            ValueError: The tables do not form a valid graph.
        """
        key = (digest, repr(run["graph"]))
        if key not in self.graphs:
            self.graphs[key] = RecordedGraph(tables, run)
            self.tables.setdefault(digest, {name: tables[name] for name in GRAPH_TABLES})
        return self.graphs[key]


_CACHED_BYTES = 64 << 20
"""Maximum bytes of arrays that a recording caches in memory.

A comparison requests the same few arrays several times in a row.
"""
_CACHED_RECORDS = 1024
"""Maximum number of cached partial records without elements, which a comparison reads many times per tensor."""
_CACHED_SPILLED = 2
"""Maximum number of cached arrays in temporary files."""


class _ArrayCache:
    """Loaded arrays: those that callers still reference, and the most recent ones."""

    def __init__(self) -> None:
        self._referenced: WeakValueDictionary[int, np.ndarray] = WeakValueDictionary()
        self._recent: OrderedDict[int, np.ndarray] = OrderedDict()
        self._bytes = 0  # total size of the arrays in _recent
        self._spilled: deque[np.ndarray] = deque(maxlen=_CACHED_SPILLED)
        self._lock = Lock()

    def get(self, row: int) -> np.ndarray | None:
        """Return the array of an event; None if it must be read."""
        with self._lock:
            array = self._referenced.get(row)
            if row in self._recent:
                self._recent.move_to_end(row)
        return None if array is None else array.view()

    def add(self, row: int, array: np.ndarray) -> np.ndarray:
        """Cache a read-only array. Return a view of it that cannot be made writable."""
        with self._lock:
            self._referenced[row] = array
            if mapping_of(array) is not None:
                self._spilled.append(array)
            elif array.nbytes <= _CACHED_BYTES and row not in self._recent:
                self._recent[row] = array
                self._bytes += array.nbytes
            while self._bytes > _CACHED_BYTES:
                self._bytes -= self._recent.popitem(last=False)[1].nbytes
        return array.view()

    def clear(self) -> None:
        """Drop all arrays."""
        with self._lock:
            self._recent.clear()
            self._bytes = 0
            self._spilled.clear()


class FileRecording(Recording, Closable):
    """A recording file, open for reading.

    It can be sent to another process, which then reopens the file.

    Args:
        path: The file.
        graphs: Graphs of files that are read together. A graph with the same hash is reused; otherwise this file's
            graph is added.

    Raises:
        NotARecordingError: The file is missing or is not a recording.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or contains something that a recording never contains.
    """

    info: RunInfo = RunInfo(backend="")
    samples: int = 1
    steps: int = 1

    def __init__(self, path: str | os.PathLike[str], *, graphs: KnownGraphs | None = None) -> None:
        self.path = Path(path)
        self._container = Container(self.path, graphs=None if graphs is None else graphs.tables)
        tables = self._container.take_tables()
        try:
            run = decode_run(tables)
            check_index(tables, self._container.optional, run, len(self._container.payloads))
            self.info = decode_info(run, is_complete=self._container.complete)
            index = tables.pop("index")
            digest = self._container.graph_hash
            if graphs is None or digest is None:
                self._recorded = RecordedGraph(tables, run)
            else:
                self._recorded = graphs.graph(tables, run, digest)
        except BAD_FILE_ERRORS as exc:
            self.close()
            raise damaged_file_error(self.path, exc) from None
        self.samples = run["samples"]
        self.steps = run["steps"]
        self._names, self._rows, self._constant = self._recorded.names, self._recorded.rows, self._recorded.constant
        self._index = EventIndex(index, len(self._names), self._container.optional)
        self._steps_in_file = run["steps"]
        self._datasets: DatasetPayloads | None = None
        self._arrays = _ArrayCache()
        self._verified_rows: set[int] = set()
        self._partial_records: dict[int, Kept] = {}

    # -- contents

    @property
    def graph(self) -> Graph:
        """The graph that ran.

        Raises:
            RecordingError: The tables do not form a valid graph.
        """
        return self._decoded[0]

    @cached_property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step.

        Raises:
            RecordingError: The quantization tables are invalid.
        """
        rows = self._index.rows[self._index.rows["quant"] >= 0]
        quants = self._decoded[1]
        return {place: quants[row] for place, row in zip(self._places(rows), rows["quant"].tolist(), strict=True)}

    @property
    def _decoded(self) -> tuple[Graph, Sequence[QuantParams]]:
        try:
            return self._recorded.decode()
        except (*BAD_FILE_ERRORS, GraphError) as exc:
            raise damaged_file_error(self.path, exc) from None

    def _places(self, rows: np.ndarray) -> Iterator[tuple[str, int, int]]:
        """Yield the tensor, sample and step of each of the given rows of the index."""
        columns = (rows[name].tolist() for name in ("tensor", "sample", "step"))
        return ((self._names[tensor], sample, step) for tensor, sample, step in zip(*columns, strict=True))

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the tensors with any record, in the order they were first recorded."""
        return tuple([self._names[row] for row in dict.fromkeys(self._index.rows["tensor"].tolist())])

    def index_rows(self) -> tuple[Sequence[str], np.ndarray]:
        """Return the names of all tensors, and the rows of the index, whose `tensor` column indexes the names.

        Files with the same graph that are read together share one object of names.
        """
        return self._names, self._index.rows

    @cached_property
    def content_hash(self) -> str:
        """Hash of the recorded content, in hexadecimal: equal for equal values, graph and facts.

        Raises:
            RecordingError: The file is closed, or was damaged since it was opened.
        """
        container = self._open_container()
        try:
            return _content_hash(container.read_tables())
        except BAD_FILE_ERRORS as exc:
            raise damaged_file_error(self.path, exc) from None

    @property
    def event_count(self) -> int:
        """Number of rows of the index."""
        return len(self._index)

    @cached_property
    def tensor_bytes(self) -> int:
        """Bytes of all values in the file. Shared payloads are counted for each tensor that uses them."""
        rows = self._index.rows
        return int(rows["nbytes"][rows["payload"] != NO_PAYLOAD].sum(dtype=np.uint64))

    def events(self) -> Iterator[Event]:
        """Yield the rows of the index in the order of recording."""
        for row, (tensor, sample, step) in enumerate(self._places(self._index.rows)):
            expected = self._index.expected(row)
            digest = self._index.digest(row).hex()
            yield Event(tensor, sample, step, expected.dtype, expected.nbytes, digest, expected.number)

    # -- values

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order.

        A constant has only sample 0 and step 0.
        """
        if tensor is None:
            return self._all_places
        row = self._rows.get(tensor)
        return () if row is None else self._index.places(row)

    @cached_property
    def _all_places(self) -> Sequence[tuple[int, int]]:
        rows = self._index.rows
        constant = np.frombuffer(self._constant, bool)[rows["tensor"]]
        places = set(zip(rows["sample"][~constant].tolist(), rows["step"][~constant].tolist(), strict=True))
        return tuple(sorted(places)) or ((0, 0),)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were recorded for a sample and step.

        A constant's values apply to all of them.
        """
        return self._find_full_row(tensor, sample, step) is not None

    def has_partial_record(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether a partial record exists for a sample and step."""
        event = self._find_row(tensor, sample, step)
        return event is not None and self._index.is_partial(event)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements (codes, if quantized), read-only, in the logical dtype.

        Values are verified by their hash, and stay valid after `close`. Very large arrays are backed by a temporary
        file. An array that is still referenced is shared with other callers.

        Raises:
            PayloadMismatchError: The values do not match their hash.
            RecordingError: No values are recorded under this name, sample and step, or the file is damaged or closed.
        """
        row = self._find_full_row(tensor, sample, step)
        if row is None and self.kept(tensor, sample, step) is not None:
            raise not_in_full_error(tensor, sample, step)
        if row is None:
            raise no_values_error(tensor, sample, step, self.names)
        container, cached = self._open_container(), self._arrays.get(row)
        if cached is not None:
            return cached
        expected = self._index.expected(row)
        try:
            array = from_physical(self._read_verified(container, expected, row), expected.dtype)
        except BAD_FILE_ERRORS as exc:
            container.check_unchanged()
            raise damaged_file_error(self.path, exc, prefix=f"payload {expected.number}: ") from None
        array.flags.writeable = False
        return self._arrays.add(row, array)

    def _read_verified(self, container: Container, expected: ExpectedPayload, row: int) -> np.ndarray:
        """Read the payload of an event, and verify its hash unless that was done before.

        Raises:
            PayloadMismatchError: The hash differs.
            ValueError, OSError: It contradicts the index, or is damaged.
        """
        if row in self._verified_rows:
            return read_payload(self._payloads(), expected)
        path, name = self.path, self._names[self._index.rows["tensor"][row]]
        digest, on_verified = self._index.digest(row), partial(self._verified_rows.add, row)
        try:
            return load_payload(
                self._payloads(),
                expected,
                digest,
                on_verified=on_verified,
                make_error=lambda: mismatch_error(path, [name]),
            )
        except PayloadMismatchError:
            container.check_unchanged()
            raise

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and hash of recorded values without reading them.

        Returns None if they were not recorded in full, or have more dimensions than the index can hold.
        """
        row = self._find_full_row(tensor, sample, step)
        return None if row is None else self._index.outline(row)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of values; None if they were recorded in full, or not at all.

        Raises:
            RecordingError: The file is damaged or closed.
        """
        event = self._find_row(tensor, sample, step)
        if event is None or not self._index.is_partial(event):
            return None
        return self._read_partial(event)

    def _read_partial(self, event: int) -> Kept:
        """Read the partial record of an event.

        Raises:
            PayloadMismatchError: The hash differs.
            RecordingError: The file is damaged or closed.
        """
        if (cached := self._partial_records.get(event)) is not None:
            return cached
        try:
            record = self._index.kept(self._payloads(), event)
        except ElementsMismatchError:
            raise mismatch_error(self.path, [self._names[self._index.rows["tensor"][event]]]) from None
        except BAD_FILE_ERRORS as exc:
            raise damaged_file_error(self.path, exc) from None
        if record.values is None:
            if len(self._partial_records) >= _CACHED_RECORDS:
                self._partial_records.clear()
            self._partial_records[event] = record
        return record

    def check_payload(self, event: int) -> None:
        """Check the values of one row of the index against their recorded hash.

        Raises:
            PayloadMismatchError: They differ.
            RecordingError: The file is damaged or closed.
        """
        expected = self._index.expected(event)
        if expected.number == NO_PAYLOAD:
            self._read_partial(event)
            return
        try:
            is_equal = payload_digest(self._payloads(), expected) == self._index.digest(event)
        except BAD_FILE_ERRORS as exc:
            raise damaged_file_error(self.path, exc, prefix=f"payload {expected.number}: ") from None
        if not is_equal:
            raise mismatch_error(self.path, [self._names[self._index.rows["tensor"][event]]])

    def check_tables(self) -> bool:
        """Compare the tables with their recorded hash. Return False if the file has none.

        Raises:
            RecordingError: They differ.
        """
        container = self._open_container()
        for recorded_hash, names in ((container.graph_hash, GRAPH_TABLES), (container.tables_hash, ())):
            if recorded_hash is not None and recorded_hash != container.hash_tables(names):
                raise damaged_file_error(self.path, "its graph and index differ from what was written")
        return container.tables_hash is not None

    def check_datasets(self) -> None:
        """Check that the datasets that other programs read agree with the index.

        Raises:
            RecordingError: A dataset is missing or has different values, or the file is damaged or closed.
        """
        container = self._open_container()
        if container.version == 1 or container.rewritten:
            return  # its payloads are read through the datasets anyway
        datasets, events = self._dataset_payloads(container), (self._index.rows["payload"] != NO_PAYLOAD).nonzero()[0]
        full_events = ((event, "", self._index.expected(event)) for event in events.tolist())
        for row, part_name, expected in (*full_events, *self._index.elements()):
            try:
                if datasets.is_same_payload(container.payloads, row, part_name, expected):
                    continue
                raise ValueError("its dataset does not match the index")
            except BAD_FILE_ERRORS as exc:
                raise damaged_file_error(self.path, exc, prefix=f"payload {expected.number}: ") from None

    def _payloads(self) -> Payloads:
        """Return the payloads of the open file."""
        container = self._open_container()
        if not container.rewritten:
            return container.payloads
        if self._datasets is None:
            self._datasets = self._dataset_payloads(container)
        return self._datasets

    def _dataset_payloads(self, container: Container) -> DatasetPayloads:
        return DatasetPayloads(
            container.library,
            container.payloads,
            self._index.rows,
            self._index.optional.get("samples"),
            names=self._names,
            constant=self._constant,
            steps=self._steps_in_file,
        )

    def _find_full_row(self, tensor: str, sample: int, step: int) -> int | None:
        """Return the row of the event with values that were recorded in full; None without such values."""
        event = self._find_row(tensor, sample, step)
        return None if event is None or self._index.is_partial(event) else event

    def _find_row(self, tensor: str, sample: int, step: int) -> int | None:
        """Return the row of the event of a tensor at a sample and step; None if there is none."""
        row = self._rows.get(tensor)
        if row is None:
            return None
        return self._index.find(row, 0, 0) if self._constant[row] else self._index.find(row, sample, step)

    def _open_container(self) -> Container:
        if not self._container.is_open:
            raise RecordingError(f"The recording {format_path(self.path)!r} is closed.", hint="Open it again.")
        return self._container

    # -- opening and closing

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return self._container.size

    def reopen(self) -> None:
        """Reopen a closed file. An open file stays open.

        Raises:
            RecordingError: The file was changed since it was closed.
        """
        self._container.reopen()

    def close(self) -> None:
        """Close the file. Loaded arrays stay valid. A second call does nothing."""
        if hasattr(self, "_arrays"):
            self._arrays.clear()
            self._datasets = None
        self._container.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRecording, (absolute_path(self.path),)

    def __del__(self) -> None:
        if hasattr(self, "_container") and not sys.is_finalizing():  # at exit, modules that `close` needs may be gone
            self.close()


def mismatch_error(path: Path, tensors: Sequence[str]) -> PayloadMismatchError:
    """Return the error for tensors whose values do not match their hashes.

    Args:
        path: The file.
        tensors: Their names, at least one.
    """
    names = ", ".join(map(repr, tensors[:_MAX_NAMES]))
    more_text = f" and {len(tensors) - _MAX_NAMES} more" if len(tensors) > _MAX_NAMES else ""
    return PayloadMismatchError(
        f"The bytes of tensor{'s' if len(tensors) > 1 else ''} {names}{more_text} in {format_path(path)!r} differ from "
        "what was recorded.",
        hint="Copy the file again, or record the run again.",
    )


_MAX_NAMES = 5
"""Maximum number of tensors that an error names."""


def _content_hash(tables: Tables) -> str:
    digest = xxhash.xxh3_128()
    for name in ("tensor", "sample", "step", "quant", "dtype", "shape", "hash"):
        column = tables["index"][name]
        for start in range(0, len(column), _ROWS_PER_BATCH):
            digest.update(np.ascontiguousarray(column[start : start + _ROWS_PER_BATCH]).data)
    for name in TABLES:
        if name != "index":
            digest.update(np.ascontiguousarray(tables[name]).view(np.uint8).data)
    return digest.hexdigest()
