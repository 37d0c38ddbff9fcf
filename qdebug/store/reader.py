"""Read a recording: opening it reads the tables only, payloads come on demand, straight from the file."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
import xxhash
from h5py import h5f, h5p

from qdebug.errors import FormatVersionError, GraphError, NotARecordingError, RecordingError
from qdebug.model import Graph, Role, RunInfo
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.recording import no_values
from qdebug.store.decode import (
    check_graph,
    check_rows,
    decode_graph,
    decode_info,
    decode_run,
    decode_texts,
)
from qdebug.store.layout import (
    FORMAT_NAME,
    FORMAT_VERSION,
    INDEX_DIMS,
    MAX_NDIM,
    NO_PAYLOAD,
    PAYLOADS,
    ROLES,
    TABLES,
    hdf5_type,
    payload_key,
    physical_dtype,
)
from qdebug.store.payload import from_physical, payload_hash
from qdebug.store.safety import (
    MAX_ROWS,
    Extent,
    open_checked,
    open_group,
    read_bytes,
    read_text_attribute,
)

__all__ = ["Event", "FileRecording", "open_file"]

_MAP_FROM = 1 << 20
"""Payloads from this size on are mapped; copying a smaller one is as fast and holds no descriptor."""
_MAGIC = b"\x89HDF\r\n\x1a\n"
_CONSTANT = ROLES.index(Role.CONSTANT)
_BAD_FILE = (OSError, RuntimeError, KeyError, ValueError, TypeError, NotImplementedError, OverflowError, MemoryError)


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

    Args:
        path: The file.

    Raises:
        NotARecordingError: The file is missing or is something else.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or holds what a recording never does.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._fd = _open_regular(self.path)
        self._map: mmap.mmap | None = None
        self._extents: dict[int, Extent] = {}
        try:
            self._size = os.fstat(self._fd).st_size
            self._file = _open_hdf5(self.path)
            complete = self._check_format()
            self._tables = {name: self._table(name) for name in TABLES}
            self._payloads = open_group(self._file, PAYLOADS.encode())
            self._check_index()
            run = decode_run(self._tables)
            self.info: RunInfo = decode_info(run, complete=complete)
            check_graph(self._tables)
        except (ValueError, GraphError) as exc:
            self.close()
            raise self._damaged(str(exc)) from None
        except _BAD_FILE as exc:
            self.close()
            raise self._damaged(str(exc).splitlines()[0] if str(exc) else type(exc).__name__) from None
        except BaseException:
            self.close()
            raise
        self._run = run
        self.samples: int = run["samples"]
        self.steps: int = run["steps"]

    # -- opening

    def _check_format(self) -> bool:
        """Check format and version before anything else is looked at; tell whether the run finished."""
        if read_text_attribute(self._file, b"format") != FORMAT_NAME:
            raise NotARecordingError(
                f"{str(self.path)!r} is an HDF5 file but no qdebug recording.",
                hint="Record a run first: qdebug record MODEL --backend NAME --inputs FILE.npz -o OUT.h5.",
            )
        version = self._integer_attribute(b"format_version")
        if version > FORMAT_VERSION:
            raise FormatVersionError(
                f"{str(self.path)!r} has recording format {version}; this qdebug reads up to {FORMAT_VERSION}.",
                hint="Upgrade qdebug: pip install --upgrade qdebug.",
            )
        return bool(self._integer_attribute(b"complete"))

    def _integer_attribute(self, name: bytes) -> int:
        attribute = h5py.h5a.open(self._file, name)
        if attribute.get_type().get_class() != h5py.h5t.INTEGER or attribute.shape != ():
            raise ValueError(f"attribute {name.decode()} is no integer")
        value = np.zeros((), dtype=np.int64)
        attribute.read(value)
        return int(value)

    def _table(self, name: str) -> np.ndarray:
        """Read a whole table; fields that this version does not know are dropped."""
        dataset, extent = open_checked(self._file, name.encode(), file_size=self._size)
        if len(extent.shape) != 1 or extent.shape[0] > MAX_ROWS * (1 if TABLES[name].names else 64):
            raise ValueError(f"/{name} has shape {extent.shape}")
        if extent.nbytes and extent.offset is None:
            raise ValueError(f"/{name} is not contiguous")
        dtype = TABLES[name]
        stored = dataset.dtype
        raw = np.empty(extent.nbytes, dtype=np.uint8)
        if extent.nbytes:
            read_bytes(self._fd, int(extent.offset or 0), raw)
        table: np.ndarray = raw.view(stored)
        if dtype.names is None:
            if stored != dtype:
                raise ValueError(f"/{name} has elements of type {stored}")
            return table
        return _known_fields(name, table, dtype)

    def _check_index(self) -> None:
        index, tensors = self._tables["index"], self._tables["tensors"]
        check_rows("tensors of the index", index["tensor"], len(tensors))
        check_rows("dtypes of the index", index["dtype"], len(LOGICAL_DTYPES))
        check_rows("dimensions of the index", index["ndim"], MAX_NDIM + 1)
        stored = index["payload"][index["payload"] != NO_PAYLOAD]
        check_rows("payloads of the index", stored, int(self._payloads.get_num_objs()))
        check_rows("names of tensors", tensors["name"], len(self._tables["strings"]))

    def _damaged(self, what: str) -> RecordingError:
        return RecordingError(
            f"{str(self.path)!r} is damaged: {what.rstrip('.')}.", hint="Record the run again, or restore the file."
        )

    # -- what it holds

    @cached_property
    def _texts(self) -> list[str]:
        return decode_texts(self._tables)

    @cached_property
    def graph(self) -> Graph:
        """The graph that ran.

        Raises:
            RecordingError: The tables make no graph.
        """
        try:
            return decode_graph(self._tables, self._texts, self._run)
        except (ValueError, TypeError, GraphError) as exc:
            raise self._damaged(str(exc)) from None

    @cached_property
    def _tensor_names(self) -> list[str]:
        try:
            return [self._texts[row] for row in self._tables["tensors"]["name"].tolist()]
        except ValueError as exc:
            raise self._damaged(str(exc)) from None

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the tensors that have values, in the order they were first recorded."""
        rows, first = np.unique(self._tables["index"]["tensor"], return_index=True)
        return tuple(self._tensor_names[row] for row in rows[np.argsort(first)].tolist())

    @cached_property
    def _constants(self) -> frozenset[str]:
        rows = np.flatnonzero(self._tables["tensors"]["role"] == _CONSTANT).tolist()
        return frozenset(self._tensor_names[row] for row in rows)

    @cached_property
    def _events(self) -> dict[tuple[str, int, int], int]:
        """Row of the index by tensor, sample and step; of two rows for one place the last counts."""
        index = self._tables["index"]
        columns = (index[name].tolist() for name in ("tensor", "sample", "step"))
        names = self._tensor_names
        return {(names[t], sample, step): row for row, (t, sample, step) in enumerate(zip(*columns, strict=True))}

    @property
    def event_count(self) -> int:
        """Number of rows of the index."""
        return len(self._tables["index"])

    @cached_property
    def tensor_bytes(self) -> int:
        """Bytes of all values as recorded, shared payloads counted for each tensor that has them."""
        return int(self._tables["index"]["nbytes"].sum(dtype=np.uint64))

    @property
    def content_hash(self) -> str:
        """Hash of what was recorded, in hexadecimal: equal for files with equal values, graph and facts."""
        digest = xxhash.xxh3_128()
        index = self._tables["index"]
        for column in ("tensor", "sample", "step", "hash"):
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

        A large payload is a view of the file that is read as it is touched.

        Raises:
            RecordingError: No values are kept under this name, sample and step, or the file is damaged.
        """
        row = self._row(tensor, sample, step)
        if row is None or self._tables["index"]["payload"][row] == NO_PAYLOAD:
            raise no_values(tensor, sample, step, self.names)
        return self._payload(row)

    def check_payload(self, event: int) -> None:
        """Compare the values of one row of the index with the hash they were recorded with.

        Raises:
            RecordingError: They differ.
        """
        row = self._tables["index"][event]
        stored = np.ascontiguousarray(self._stored(event)).reshape(-1).view(np.uint8)
        if payload_hash(stored.data) != row["hash"].tobytes():
            raise self._damaged(f"the values of {self._tensor_names[row['tensor']]!r} are not those recorded")

    def _row(self, tensor: str, sample: int, step: int) -> int | None:
        key = (tensor, 0, 0) if tensor in self._constants else (tensor, sample, step)
        return self._events.get(key)

    def _payload(self, event: int) -> np.ndarray:
        logical = LOGICAL_DTYPES[self._tables["index"]["dtype"][event]]
        array = from_physical(self._stored(event), logical)
        array.flags.writeable = False
        return array

    def _stored(self, event: int) -> np.ndarray:
        """Give a payload's elements as they lie in the file."""
        row = self._tables["index"][event]
        number, logical = int(row["payload"]), LOGICAL_DTYPES[row["dtype"]]
        physical = physical_dtype(logical)
        try:
            dataset, extent = open_checked(self._payloads, payload_key(number), file_size=self._size)
            self._check_extent(row, extent, dataset.get_type() == hdf5_type(logical), physical.itemsize)
            if extent.nbytes == 0:
                return np.empty(extent.shape, dtype=physical)
            if extent.offset is not None:
                return self._read_contiguous(extent, physical)
            out = np.empty(extent.shape, dtype=physical)
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, out, mtype=hdf5_type(logical))
        except _BAD_FILE as exc:
            raise self._damaged(f"payload {number}: {exc}") from None
        return out

    def _check_extent(self, row: Any, extent: Extent, same_type: bool, itemsize: int) -> None:  # noqa: FBT001  private
        """Check a dataset against the row that names it."""
        shape = tuple(int(size) for size in row["shape"][: min(int(row["ndim"]), INDEX_DIMS)])
        fits = len(extent.shape) == int(row["ndim"]) and extent.shape[:INDEX_DIMS] == shape
        if not (fits and same_type and extent.itemsize == itemsize and extent.nbytes == int(row["nbytes"])):
            raise ValueError(f"it has shape {extent.shape}, which is not what the index says")

    def _read_contiguous(self, extent: Extent, physical: np.dtype[Any]) -> np.ndarray:
        offset = int(extent.offset or 0)
        if extent.nbytes < _MAP_FROM:
            out = np.empty(extent.shape, dtype=physical)
            read_bytes(self._fd, offset, out.reshape(-1).view(np.uint8))
            return out
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        length = offset - start + extent.nbytes
        mapped = mmap.mmap(self._fd, length, access=mmap.ACCESS_READ, offset=start)
        count = extent.nbytes // physical.itemsize
        return np.frombuffer(mapped, dtype=physical, count=count, offset=offset - start).reshape(extent.shape)

    # -- life

    def close(self) -> None:
        """Close the file; arrays that were loaded stay valid. Again does nothing."""
        file = getattr(self, "_file", None)
        if file is not None and file.valid:
            file.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def _open_regular(path: Path) -> int:
    """Open a file for reading if it can be a recording at all."""
    hint = "Record a run first: qdebug record MODEL --backend NAME --inputs FILE.npz -o OUT.h5."
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotARecordingError(
            f"There is no file {str(path)!r}.", hint="Check the path, or record a run first."
        ) from None
    except (OSError, ValueError) as exc:
        reason = os.strerror(exc.errno).lower() if isinstance(exc, OSError) and exc.errno else str(exc)
        raise NotARecordingError(f"{str(path)!r} cannot be opened: {reason}.", hint=hint) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotARecordingError(f"{str(path)!r} is no regular file.", hint=hint)
    if os.pread(fd, len(_MAGIC), 0) != _MAGIC:
        os.close(fd)
        raise NotARecordingError(f"{str(path)!r} is no qdebug recording.", hint=hint)
    return fd


def _open_hdf5(path: Path) -> Any:
    """Open the container without a lock, which would keep other readers from it on read-only media."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fclose_degree(h5f.CLOSE_STRONG)
    access.set_file_locking(False, True)  # noqa: FBT003  a finished file is never written to
    return h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=access)


def _known_fields(name: str, table: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Give a table with this version's fields; a reader ignores fields that it does not know."""
    if table.dtype == dtype:
        return table
    known = np.zeros(len(table), dtype=dtype)
    for field in dtype.names or ():
        if field not in (table.dtype.names or ()) or table.dtype[field].shape != dtype[field].shape:
            raise ValueError(f"/{name} lacks the field {field}")
        if table.dtype[field].base.kind != dtype[field].base.kind:
            raise ValueError(f"/{name} has a field {field} of type {table.dtype[field]}")
        known[field] = table[field]
    return known
