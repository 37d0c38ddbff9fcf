"""Read a recording: opening it reads the tables only, payloads come on demand, straight from the file."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
import xxhash

from qdebug.errors import GraphError, RecordingError
from qdebug.model import Graph, QuantParams, RunInfo
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.recording import no_values
from qdebug.store.container import BAD_FILE, Container, damaged
from qdebug.store.decode import (
    check_graph,
    check_index,
    constant_rows,
    decode_graph,
    decode_info,
    decode_quants,
    decode_run,
    decode_texts,
)
from qdebug.store.layout import INDEX_DIMS, NO_PAYLOAD, TABLES, hdf5_type, physical_dtype
from qdebug.store.payload import from_physical, payload_hash
from qdebug.store.safety import Extent, read_bytes

__all__ = ["Event", "FileRecording", "open_file"]

_MAP_FROM = 1 << 20
"""Payloads from this size on are mapped; copying a smaller one is as fast and holds no descriptor."""


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


def open_file(path: str | os.PathLike[str]) -> FileRecording:
    """Open a recording file.

    Raises:
        NotARecordingError: The file is missing or is something else.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or holds what a recording never does.
    """
    return FileRecording(path)


class FileRecording:
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
        self._tables = self._container.tables
        try:
            self._run = decode_run(self._tables)
            check_index(self._tables, self._run, self._container.payloads)
            check_graph(self._tables)
            self.info: RunInfo = decode_info(self._run, complete=self._container.complete)
            self._texts = decode_texts(self._tables)
            self._tensor_names = [self._texts[row] for row in self._tables["tensors"]["name"].tolist()]
            if len(set(self._tensor_names)) != len(self._tensor_names):
                raise ValueError("two tensors have one name")
        except BAD_FILE as exc:
            self.close()
            raise damaged(self.path, exc) from None
        self.samples: int = self._run["samples"]
        self.steps: int = self._run["steps"]

    # -- what it holds

    @cached_property
    def graph(self) -> Graph:
        """The graph that ran.

        Raises:
            RecordingError: The tables make no graph.
        """
        try:
            return decode_graph(self._tables, self._texts, self._run)
        except (*BAD_FILE, GraphError) as exc:
            raise damaged(self.path, exc) from None

    @cached_property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that do not have their tensor's, by tensor, sample and step.

        Raises:
            RecordingError: The tables make no quantization.
        """
        index, names = self._tables["index"], self._tensor_names
        rows = np.flatnonzero(index["quant"] >= 0)
        if not rows.size:
            return {}
        try:
            quants = decode_quants(self._tables)
        except BAD_FILE as exc:
            raise damaged(self.path, exc) from None
        columns = (index[name][rows].tolist() for name in ("tensor", "sample", "step", "quant"))
        return {
            (names[tensor], sample, step): quants[quant] for tensor, sample, step, quant in zip(*columns, strict=True)
        }

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the tensors that have values, in the order they were first recorded."""
        index = self._tables["index"]
        rows, first = np.unique(index["tensor"][index["payload"] != NO_PAYLOAD], return_index=True)
        return tuple(self._tensor_names[row] for row in rows[np.argsort(first)].tolist())

    @cached_property
    def _constants(self) -> frozenset[str]:
        return frozenset(self._tensor_names[row] for row in constant_rows(self._tables))

    @cached_property
    def _events(self) -> dict[tuple[str, int, int], int]:
        """Row of the index by tensor, sample and step, where values were kept."""
        index, names = self._tables["index"], self._tensor_names
        columns = (index[name].tolist() for name in ("tensor", "sample", "step", "payload"))
        return {
            (names[tensor], sample, step): row
            for row, (tensor, sample, step, payload) in enumerate(zip(*columns, strict=True))
            if payload != NO_PAYLOAD
        }

    @property
    def event_count(self) -> int:
        """Number of rows of the index."""
        return len(self._tables["index"])

    @cached_property
    def tensor_bytes(self) -> int:
        """Bytes of all values as recorded, shared payloads counted for each tensor that has them."""
        return int(self._tables["index"]["nbytes"].sum(dtype=np.uint64))

    @cached_property
    def content_hash(self) -> str:
        """Hash of what was recorded, in hexadecimal: equal for files with equal values, graph and facts."""
        digest = xxhash.xxh3_128()
        index = self._tables["index"]
        for column in ("tensor", "sample", "step", "quant", "dtype", "shape", "hash"):
            digest.update(np.ascontiguousarray(index[column]).tobytes())
        for name in TABLES:
            if name != "index":
                digest.update(self._tables[name].tobytes())
        return digest.hexdigest()

    def events(self) -> Iterator[Event]:
        """List the rows of the index in the order of recording."""
        for row in self._tables["index"]:
            yield Event(
                tensor=self._tensor_names[row["tensor"]],
                sample=int(row["sample"]),
                step=int(row["step"]),
                dtype=LOGICAL_DTYPES[row["dtype"]],
                nbytes=int(row["nbytes"]),
                digest=row["hash"].tobytes().hex(),
                payload=int(row["payload"]),
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
        if row is None:
            raise no_values(tensor, sample, step, self.names)
        array = from_physical(self._stored(row), LOGICAL_DTYPES[self._tables["index"]["dtype"][row]])
        array.flags.writeable = False
        return array

    def check_payload(self, event: int) -> None:
        """Compare the values of one row of the index with the hash they were recorded with.

        Raises:
            RecordingError: They differ.
        """
        row = self._tables["index"][event]
        stored = np.ascontiguousarray(self._stored(event)).reshape(-1).view(np.uint8)
        if payload_hash(stored.data) != row["hash"].tobytes():
            name = self._tensor_names[row["tensor"]]
            raise damaged(self.path, f"the values of {name!r} are not those recorded")

    def _row(self, tensor: str, sample: int, step: int) -> int | None:
        return self._events.get((tensor, 0, 0) if tensor in self._constants else (tensor, sample, step))

    def _stored(self, event: int) -> np.ndarray:
        """Give a payload's elements as they lie in the file."""
        if self._container.fd < 0:
            raise RecordingError(f"The recording {str(self.path)!r} is closed.", hint="Open it again.")
        row = self._tables["index"][event]
        number, logical = int(row["payload"]), LOGICAL_DTYPES[row["dtype"]]
        physical = physical_dtype(logical)
        try:
            dataset, extent = self._container.open_payload(number)
            _check_extent(row, extent, physical.itemsize)
            if not dataset.get_type().equal(hdf5_type(logical)):
                raise ValueError(f"it does not have the type of {logical} elements")
            if extent.nbytes == 0:
                return np.empty(extent.shape, dtype=physical)
            if extent.offset is not None:
                return _read_contiguous(self._container.fd, extent, physical)
            out = np.empty(extent.shape, dtype=physical)
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=hdf5_type(logical))
        except BAD_FILE as exc:
            raise damaged(self.path, f"payload {number}: {exc}") from None
        return out

    # -- life

    def close(self) -> None:
        """Close the file; arrays that were loaded stay valid. Again does nothing."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRecording, (self.path.absolute(),)

    def __del__(self) -> None:
        if hasattr(self, "_container"):
            self.close()


def _check_extent(row: Any, extent: Extent, itemsize: int) -> None:
    """Check a dataset against the row that names it."""
    ndim = int(row["ndim"])
    shape = tuple(int(size) for size in row["shape"][: min(ndim, INDEX_DIMS)])
    fits = len(extent.shape) == ndim and extent.shape[:INDEX_DIMS] == shape
    if not (fits and extent.itemsize == itemsize and extent.nbytes == int(row["nbytes"])):
        raise ValueError(f"it has shape {extent.shape}, which is not what the index says")


def _read_contiguous(fd: int, extent: Extent, physical: np.dtype[Any]) -> np.ndarray:
    offset = int(extent.offset or 0)
    if extent.nbytes >= _MAP_FROM and offset % physical.itemsize == 0:
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(fd, offset - start + extent.nbytes, access=mmap.ACCESS_READ, offset=start)
        except OSError as exc:
            # Each mapping holds a descriptor and address space; out of either, a copy does.
            if exc.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENODEV):
                raise
        else:
            count = extent.nbytes // physical.itemsize
            return np.frombuffer(mapped, dtype=physical, count=count, offset=offset - start).reshape(extent.shape)
    out = np.empty(extent.shape, dtype=physical)
    read_bytes(fd, offset, out.reshape(-1).view(np.uint8))
    return out
