"""Write a recording: events are appended one by one, the tables come last, and only a finished file gets its name.

While it is written the file is called NAME.part. HDF5 allocates each payload, but the bytes are
written by us at the address it gave, so that a payload is in the page cache when `append` returns
and h5py's process-wide lock is held only for the bookkeeping.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5f, h5g, h5p, h5s

import qdebug
from qdebug.errors import OutputExistsError, QdebugError, RecordingError
from qdebug.model import Graph, Role, RunInfo, TensorInfo
from qdebug.model.dtypes import logical_dtype
from qdebug.store.census import Census, take_census
from qdebug.store.encode import encode_tables
from qdebug.store.layout import (
    DTYPE_CODES,
    FORMAT_NAME,
    FORMAT_VERSION,
    INDEX_DIMS,
    PAYLOADS,
    TABLES,
    Flag,
    hdf5_type,
    payload_key,
    physical_dtype,
)
from qdebug.store.lock import WriterLock
from qdebug.store.payload import from_physical, payload_hash, storable_dtype, to_bytes
from qdebug.store.reader import FileRecording
from qdebug.store.safety import read_bytes

__all__ = ["RecordingWriter", "Stored"]

_ROW = struct.Struct("<5IiHBBf8QQ16s6Q7d")  # one row of TABLES["index"]
_MAX_NUMBER = 2**32 - 1
_ALIGN_FROM = 1 << 16
"""Payloads from this size on begin at a multiple of 64 bytes, so that a mapped array is aligned."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an appended array: enough to compare others with it and to read it back.

    Args:
        payload: Number of its dataset.
        offset: Where its bytes lie in the file; None if it has none.
        digest: Hash of its bytes.
        dtype: Its logical dtype.
        shape: Its shape.
    """

    payload: int
    offset: int | None
    digest: bytes
    dtype: str
    shape: tuple[int, ...]


class RecordingWriter:
    """Write one recording file. Not for use by several threads at once.

    Args:
        path: The file to make.
        force: Replace the file if it exists; it stays untouched until the new one is complete.

    Raises:
        OutputExistsError: The file exists and `force` is not set.
        RecordingError: The folder is missing or not writable, or somebody writes this file already.
    """

    def __init__(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        self._pid = os.getpid()
        self._open = False  # until there is something to let go of
        try:
            self.path = Path(os.path.realpath(path))
            _check_target(self.path, force=force)
        except (OSError, ValueError) as exc:
            if isinstance(exc, QdebugError):
                raise
            raise _cannot_write(Path(path), exc) from None
        self._force = force
        self._rows = bytearray()
        self._tensors: dict[str, tuple[int, str]] = {}
        self._constants: set[str] = set()
        self._numbers = 0
        self._known: dict[tuple[bytes, str, tuple[int, ...]], Stored] = {}
        self._last: Stored | None = None
        self._extent = [0, 0]
        self._failure: str | None = None
        try:
            self._lock = WriterLock(self.path)
        except OSError as exc:
            raise _cannot_write(self.path, exc) from None
        self._part = self.path.with_name(self.path.name + ".part")
        try:
            self._start()
        except OSError as exc:
            self._lock.release()
            raise _cannot_write(self.path, exc) from None
        self._open = True
        _WRITERS.add(self)

    def _start(self) -> None:
        self._part.unlink(missing_ok=True)  # left over by a process that died; the lock says nobody owns it
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_sec2()
        access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        access.set_alignment(_ALIGN_FROM, 64)
        self._file = h5f.create(os.fsencode(self._part), h5f.ACC_EXCL, fapl=access)
        self._fd = int(self._file.get_vfd_handle())
        self._group = h5g.create(self._file, PAYLOADS.encode())
        self._plist = h5p.create(h5p.DATASET_CREATE)
        self._plist.set_layout(h5d.CONTIGUOUS)
        self._plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        self._plist.set_fill_time(h5d.FILL_TIME_NEVER)
        self._plist.set_obj_track_times(False)

    @property
    def events(self) -> int:
        """Number of events appended so far."""
        return len(self._rows) // _ROW.size

    def append(self, name: str, array: np.ndarray, *, sample: int = 0, step: int = 0, constant: bool = False) -> Stored:
        """Store a tensor's values; they are in the file when this returns.

        Args:
            name: The tensor.
            array: Its values, of any dtype that has a logical name.
            sample: The sample they belong to.
            step: The step of a stateful net.
            constant: Whether the tensor is a constant, whose values hold for every sample and step.

        Raises:
            RecordingError: The dtype cannot be stored, a number is out of range, the writer is closed or
                belongs to another process, or the disk is full.
        """
        self._check_usable()
        logical = storable_dtype(name, array)
        if not (0 <= sample < _MAX_NUMBER and 0 <= step < _MAX_NUMBER):
            raise RecordingError(f"Tensor {name!r} is put at sample {sample}, step {step}, which no file can hold.")
        stored, census, flags = self._store(name, array, logical)
        tensor, _ = self._tensors.setdefault(name, (len(self._tensors), logical))
        if constant:
            self._constants.add(name)
            sample = step = 0
        else:
            self._extent = [max(self._extent[0], sample), max(self._extent[1], step)]
        self._rows += _pack_row((self.events, tensor, sample, step), stored, census, flags)
        self._last = stored
        return stored

    def _store(self, name: str, array: np.ndarray, logical: str) -> tuple[Stored, Census, Flag]:
        data = to_bytes(array, logical)
        key = (payload_hash(data), logical, array.shape)
        if key in self._known:
            return self._known[key], take_census(array), Flag.DEDUP
        number, self._numbers = self._numbers, self._numbers + 1  # never again, however this ends
        try:
            offset = self._allocate(number, logical, array.shape)
            if offset is not None:
                _write_all(self._fd, data, offset)
        except (OSError, RuntimeError) as exc:
            self._failure = f"Tensor {name!r} could not be written to {str(self._part)!r}: {_cause(exc)}."
            self._forget(number)
            raise RecordingError(self._failure, hint="Free some space, or record to another disk.") from None
        except BaseException:
            self._forget(number)
            raise
        stored = Stored(number, offset, key[0], logical, array.shape)
        self._known[key] = stored
        return stored, take_census(array), Flag(0)

    def _forget(self, number: int) -> None:
        """Remove a dataset whose values were not written."""
        with contextlib.suppress(Exception):
            self._group.unlink(payload_key(number))

    def _allocate(self, number: int, logical: str, shape: tuple[int, ...]) -> int | None:
        """Make a payload's dataset; give the address of its bytes, None if it has none."""
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        dataset = h5d.create(self._group, payload_key(number), hdf5_type(logical), space, self._plist)
        offset = dataset.get_offset()
        return None if offset is None else int(offset)

    def read_back(self, stored: Stored) -> np.ndarray:
        """Give the values of an appended array.

        Raises:
            RecordingError: The writer is closed or belongs to another process, or the file cannot be read.
        """
        self._check_usable()
        out = np.empty(stored.shape, dtype=physical_dtype(stored.dtype))
        if stored.offset is not None:
            try:
                read_bytes(self._fd, stored.offset, out.reshape(-1).view(np.uint8))
            except (OSError, ValueError) as exc:
                raise RecordingError(f"{str(self._part)!r} cannot be read back: {_cause(exc)}.") from None
        return from_physical(out, stored.dtype).view(logical_dtype(stored.dtype))

    def close(self, graph: Graph, info: RunInfo) -> Path:
        """Write the tables, verify the file, and give it its name.

        Args:
            graph: The graph that ran.
            info: Facts of the run; a writer that failed or `info.complete` False marks the file as incomplete.

        Returns:
            The finished file.

        Raises:
            OutputExistsError: Somebody else made the file meanwhile; the recording stays in NAME.part.
            RecordingError: The file cannot be finished; nothing is left behind.
        """
        self._check_usable(failed=True)
        try:
            self._write_tables(graph, info)
            self._file.close()
            self._verify()
        except (OSError, RuntimeError) as exc:
            self.discard()
            raise _cannot_write(self.path, exc) from None
        except BaseException:
            self.discard()
            raise
        self._open = False
        try:
            self._give_name()
        finally:
            self._lock.release()
        return self.path

    def _give_name(self) -> None:
        if self.path.exists() and not self._force:
            raise _exists(self.path, f"The recording is in {str(self._part)!r}: give it another name.")
        try:
            self._part.replace(self.path)
        except OSError as exc:
            raise RecordingError(
                f"{str(self.path)!r} cannot be replaced: {_cause(exc)}.",
                hint=f"The recording is in {str(self._part)!r}: give it another name.",
            ) from None

    def _write_tables(self, graph: Graph, info: RunInfo) -> None:
        recorded = [
            TensorInfo(name=name, dtype=dtype, role=Role.CONSTANT if name in self._constants else Role.ACTIVATION)
            for name, (_, dtype) in self._tensors.items()
        ]
        samples, steps = self._extent[0] + 1, self._extent[1] + 1
        tables, rows = encode_tables(graph, info, recorded, samples=samples, steps=steps)
        index = np.frombuffer(self._rows, dtype=TABLES["index"])
        index["tensor"] = np.array([rows[name] for name in self._tensors], dtype=np.uint32)[index["tensor"]]
        tables["index"] = index
        self._check_room(sum(table.nbytes for table in tables.values()))
        for name, table in tables.items():
            self._write_table(name, table)
        complete = info.complete and self._failure is None
        _write_attribute(self._file, b"format", np.bytes_(FORMAT_NAME))
        _write_attribute(self._file, b"format_version", np.int32(FORMAT_VERSION))
        _write_attribute(self._file, b"complete", np.uint8(complete))
        _write_attribute(self._file, b"created_by", np.bytes_(f"qdebug {qdebug.__version__}"))

    def _check_room(self, table_bytes: int) -> None:
        """Refuse to finish on a disk that is too full: HDF5 can crash when it cannot write its metadata."""
        need = table_bytes + 1024 * len(self._known) + (1 << 16)
        stats = os.fstatvfs(self._fd)
        if stats.f_bavail * stats.f_frsize < need:
            raise RecordingError(
                f"No space is left to finish {str(self.path)!r}: {need} bytes are needed.",
                hint="Free some space, or record to another disk.",
            )

    def _write_table(self, name: str, table: np.ndarray) -> None:
        kind = h5py.h5t.py_create(TABLES[name], logical=True)
        dataset = h5d.create(self._file, name.encode(), kind, h5s.create_simple(table.shape), self._plist)
        offset = dataset.get_offset()
        if offset is not None:
            _write_all(self._fd, np.ascontiguousarray(table).view(np.uint8).reshape(-1).data, int(offset))

    def _verify(self) -> None:
        """Read the finished file as everybody will, down to the bytes of the last payload."""
        with FileRecording(self._part) as recording:
            if recording.event_count != self.events:
                raise RecordingError(f"{str(self._part)!r} holds {recording.event_count} of {self.events} events.")
            if self._last is not None:
                recording.check_payload(self.events - 1)

    def discard(self) -> None:
        """Close and remove everything. Again, or after `close`, does nothing.

        In a forked child nothing happens but that the child lets go.
        """
        if not self._open or self._pid != os.getpid():
            return
        self._open = False
        if self._file.valid:
            self._divert()
            with contextlib.suppress(OSError, RuntimeError):
                self._file.close()
        self._part.unlink(missing_ok=True)
        self._lock.release()

    def _divert(self) -> None:
        """Let all that HDF5 still wants to write go to a nameless file.

        HDF5 writes its cached metadata when a file is closed, which a forked child does at its
        exit: over the parent's file. It can also crash when the disk is full.
        """
        try:
            scratch = tempfile.TemporaryFile()  # noqa: SIM115  closed below
        except OSError:
            scratch = Path(os.devnull).open("w+b")  # noqa: SIM115  no place for temporary files is left
        with scratch:
            os.dup2(scratch.fileno(), self._fd, inheritable=False)

    def __del__(self) -> None:
        # Nobody can finish it any more: the path becomes free.
        if getattr(self, "_open", False):
            with contextlib.suppress(Exception):
                self.discard()

    def abandon(self) -> None:
        """Let go of the file in a forked child, without a trace in it."""
        if self._open:
            self._lock.abandon()
            if self._file.valid:
                self._divert()

    def _check_usable(self, *, failed: bool = False) -> None:
        if self._pid != os.getpid():
            raise RecordingError(
                f"{str(self.path)!r} is being written by process {self._pid}; this is a child that it forked.",
                hint="Open a recorder of its own, on another file, in each process.",
            )
        if not self._open:
            raise RecordingError(f"The recording {str(self.path)!r} is closed.", hint="Open a new one.")
        if self._failure and not failed:
            raise RecordingError(self._failure, hint="Free some space, or record to another disk.")


_WRITERS: weakref.WeakSet[RecordingWriter] = weakref.WeakSet()


def _abandon_all() -> None:
    for writer in list(_WRITERS):
        writer.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _pack_row(numbers: tuple[int, int, int, int], stored: Stored, census: Census, flags: Flag) -> bytes:
    """Make a row of the index; `numbers` are event, tensor, sample and step."""
    shape = stored.shape[:INDEX_DIMS]
    count = math.prod(stored.shape)
    return _ROW.pack(
        *(*numbers, stored.payload, -1),
        *(int(flags) | int(census.flags), DTYPE_CODES[stored.dtype], len(stored.shape), np.nan),
        *(*shape, *(0,) * (INDEX_DIMS - len(shape))),
        *(count * physical_dtype(stored.dtype).itemsize, stored.digest),
        *(count, census.nan, census.inf, census.zero, 0, 0),
        *(census.low, census.high, np.nan, np.nan, np.nan, np.nan, np.nan),
    )


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all bytes at an offset: a short write is real on a disk that is about to be full."""
    while data:
        count = os.pwrite(fd, data[: 1 << 30], offset)
        data = data[count:]
        offset += count


def _write_attribute(holder: Any, name: bytes, value: np.generic) -> None:
    array = np.asarray(value)
    kind = h5py.h5t.py_create(array.dtype.newbyteorder("<"), logical=True)
    h5py.h5a.create(holder, name, kind, h5s.create(h5s.SCALAR)).write(array)


def _check_target(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise RecordingError(f"{str(path)!r} is a folder.", hint="Name a file in it, such as run.h5.")
    if path.exists() and not path.is_file():
        raise RecordingError(f"{str(path)!r} is no regular file.", hint="Name a file that may be replaced.")
    if path.exists() and not force:
        raise _exists(path, "Give another name, or overwrite it: --force (in Python: force=True).")
    if not path.parent.is_dir():
        raise RecordingError(
            f"The folder {str(path.parent)!r} does not exist.", hint=f"Make it: mkdir -p {str(path.parent)!r}."
        )


def _exists(path: Path, hint: str) -> QdebugError:
    return OutputExistsError(f"{str(path)!r} exists.", hint=hint)


def _cannot_write(path: Path, exc: Exception) -> RecordingError:
    return RecordingError(
        f"{str(path)!r} cannot be written: {_cause(exc)}.", hint="Name a file in a folder that you may write to."
    )


def _cause(exc: Exception) -> str:
    """Give the reason of a failure in a few words, without a library's internals."""
    number = getattr(exc, "errno", None)
    return os.strerror(number).lower() if number else str(exc).splitlines()[0].rstrip(".")
