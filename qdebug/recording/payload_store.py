"""Payloads of a recording that is being written: equal ones are stored once, each is hashed and counted on the way.

The HDF5 file of a recording while it is written: HDF5 says where each payload goes, the bytes are written by us. A
payload's dataset is allocated at once and contiguous, and its values are written to that address, so that they are with
the operating system when `write` returns and h5py's process-wide lock is held only for the bookkeeping. Nothing is
flushed before the end: until then the journal knows what is where.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import xxhash
from h5py import h5d, h5f, h5g, h5p, h5s

from qdebug.model.dtypes import logical_dtype
from qdebug.recording.format import (
    FORMAT_NAME,
    FORMAT_VERSION,
    GRAPH_TABLES,
    OPTIONAL_TABLES,
    PAYLOADS,
    TABLES,
    Flag,
    hash_of_tables,
    hdf5_type,
    payload_key,
    physical_dtype,
)
from qdebug.recording.payload import from_physical, payload_hash, read_bytes, to_bytes
from qdebug.version import __version__

__all__ = ["PayloadFile", "PayloadStore", "Stored", "write_all"]

_STRETCH = 1 << 18
_MOST_SPACES = 1 << 10
_ALIGN_FROM, _ALIGNMENT = 1 << 16, 16
"""Payloads from this size on begin at a multiple of so many bytes, so that a mapped array is aligned, of any dtype."""
_META_BLOCK = 2688
"""Bytes that HDF5 reserves for metadata at a time: ten of a dataset's headers, with hardly a byte left over."""
_MOST_AT_ONCE = 1 << 30


class PayloadFile:
    """An HDF5 file under construction.

    Its first bytes say from the beginning that a recorder made it.

    Args:
        path: The file to make; nothing may be there.
        mode: Its permissions; those of a new file if None.

    Raises:
        OSError: It cannot be made; then nothing is there.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fapl_sec2()
        access.set_libver_bounds(h5f.LIBVER_V110, h5f.LIBVER_V110)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        access.set_alignment(_ALIGN_FROM, _ALIGNMENT)
        access.set_meta_block_size(_META_BLOCK)
        existed = os.path.lexists(path)
        try:
            self._file = h5f.create(os.fsencode(path), h5f.ACC_EXCL, fapl=access)
        except BaseException:
            if not existed:  # HDF5 leaves what it could not write
                path.unlink(missing_ok=True)
            raise
        self.fd = int(self._file.get_vfd_handle())
        self.made = os.fstat(self.fd)
        """What the file is, whatever name it gets."""
        try:
            if mode is not None:
                os.fchmod(self.fd, mode)
            self.group = h5g.create(self._file, PAYLOADS.encode())
            _write_attribute(self._file, b"format", np.bytes_(FORMAT_NAME))
            h5f.flush(self._file)
        except BaseException as exc:
            self.abandon()
            path.unlink(missing_ok=True)
            if isinstance(exc, RuntimeError):  # so HDF5 says that the disk is full
                raise OSError(str(exc)) from None
            raise
        self._spaces: dict[tuple[int, ...], Any] = {}
        self._plist = h5p.create(h5p.DATASET_CREATE)
        self._plist.set_layout(h5d.CONTIGUOUS)
        self._plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
        self._plist.set_fill_time(h5d.FILL_TIME_NEVER)
        self._plist.set_obj_track_times(False)

    def allocate(self, number: int, logical: str, shape: tuple[int, ...]) -> int | None:
        """Make a payload's dataset; give the address of its bytes, None if it has none.

        Raises:
            OSError, RuntimeError: The disk is full, or it broke.
        """
        if (space := self._spaces.get(shape)) is None:
            space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
            if len(self._spaces) < _MOST_SPACES:
                self._spaces[shape] = space
        dataset = h5d.create(self.group, payload_key(number), hdf5_type(logical), space, self._plist)
        offset = dataset.get_offset()
        return None if offset is None else int(offset)

    def forget(self, number: int) -> None:
        """Remove a dataset whose values were not written."""
        with contextlib.suppress(Exception):
            self.group.unlink(payload_key(number))

    def write(self, data: memoryview, offset: int) -> bytes:
        """Write values and hash them on the way, each stretch while it is in the processor's cache.

        Args:
            data: The bytes.
            offset: Where they go.

        Returns:
            Their xxh3-128 digest.

        Raises:
            OSError: They could not be written.
        """
        digest = xxhash.xxh3_128()
        for start in range(0, len(data), _STRETCH):
            part = data[start : start + _STRETCH]
            digest.update(part)
            write_all(self.fd, part, offset + start)
        return digest.digest()

    def write_tables(self, tables: Mapping[str, np.ndarray], *, complete: bool) -> None:
        """Write the tables and the attributes of the root.

        Raises:
            OSError, RuntimeError: The disk is full, or it broke.
        """
        names = [name for name in (*TABLES, *OPTIONAL_TABLES) if name in tables]
        written = {name: self._write_table(name, tables[name]) for name in names}
        _write_attribute(self._file, b"format_version", np.int32(FORMAT_VERSION))
        _write_attribute(self._file, b"complete", np.uint8(complete))
        _write_attribute(self._file, b"created_by", np.bytes_(f"qdebug {__version__}"))
        _write_attribute(self._file, b"tables_hash", np.bytes_(hash_of_tables(written.items())))
        graph = hash_of_tables((name, written[name]) for name in GRAPH_TABLES)
        _write_attribute(self._file, b"graph_hash", np.bytes_(graph))

    def _write_table(self, name: str, table: np.ndarray) -> np.ndarray:
        """Write a table, and give its bytes."""
        kind = h5py.h5t.py_create(TABLES.get(name, OPTIONAL_TABLES.get(name)), logical=True)
        dataset = h5d.create(self._file, name.encode(), kind, h5s.create_simple(table.shape), self._plist)
        offset = dataset.get_offset()
        raw = np.ascontiguousarray(table).view(np.uint8).reshape(-1)
        if offset is not None:
            write_all(self.fd, raw.data, int(offset))
        return raw

    def close(self) -> None:
        """Let HDF5 write what it still holds, and close the file.

        Raises:
            OSError, RuntimeError: The disk is full, or it broke.
        """
        self._file.close()

    def abandon(self) -> None:
        """Close the file without a trace of what HDF5 still wants to write. Again does nothing."""
        if self._file.valid:
            self.divert()
            with contextlib.suppress(OSError, RuntimeError):
                self._file.close()

    def divert(self) -> None:
        """Let all that HDF5 still wants to write go to a nameless file.

        HDF5 writes its cached metadata when a file is closed, which a forked child does at its
        exit: over the parent's file. It can also crash when the disk is full.
        """
        try:
            # HDF5 may have closed the descriptor, and its number may be another file's by now.
            if not self._file.valid or not os.path.samestat(os.fstat(self.fd), self.made):
                return
        except OSError:
            return
        try:
            scratch = tempfile.TemporaryFile()  # noqa: SIM115  closed below
        except OSError:
            scratch = Path(os.devnull).open("w+b")  # noqa: SIM115  no place for temporary files is left
        with scratch:
            os.dup2(scratch.fileno(), self.fd, inheritable=False)


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all bytes at an offset: a short write is real on a disk that is about to be full."""
    size = len(data)
    done = os.pwrite(fd, data if size <= _MOST_AT_ONCE else data[:_MOST_AT_ONCE], offset)
    while done < size:
        done += os.pwrite(fd, data[done : done + _MOST_AT_ONCE], offset + done)


def _write_attribute(holder: Any, name: bytes, value: np.generic) -> None:
    array = np.asarray(value)
    kind = h5py.h5t.py_create(array.dtype.newbyteorder("<"), logical=True)
    h5py.h5a.create(holder, name, kind, h5s.create(h5s.SCALAR)).write(array)


_NO_FLAGS = Flag(0)
_HEAD_BYTES = 1 << 12
"""Bytes at the beginning of a payload that tell whether an equal one may have been stored before."""


class Stored(NamedTuple):
    """What became of an array: enough to compare others with it and to read it back.

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


class PayloadStore:
    """The payloads of one file.

    Args:
        path: The HDF5 file to make.
        mode: Its permissions; those of a new file if None.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        self.file = PayloadFile(path, mode=mode)
        self._numbers = 0
        self._known: dict[tuple[bytes, str, tuple[int, ...]], tuple[int, int | None]] = {}
        """Number and offset by digest, dtype and shape: plain tuples, which the garbage collector need not visit."""
        self._heads: set[tuple[bytes, str, tuple[int, ...]]] = set()

    @property
    def count(self) -> int:
        """Number of payloads in the file."""
        return len(self._known)

    def store(self, array: np.ndarray, logical: str) -> tuple[Stored, Flag]:
        """Write an array's values, unless equal ones are there.

        Args:
            array: The values.
            logical: Their logical dtype.

        Returns:
            What became of them, and `Flag.DEDUP` if they were there.

        Raises:
            OSError, RuntimeError: The disk is full, or it broke.
        """
        data, shape = to_bytes(array, logical), array.shape
        small = len(data) <= _HEAD_BYTES
        head = (xxhash.xxh3_128_digest(data if small else data[:_HEAD_BYTES]), logical, shape)
        digest = head[0] if small else None
        if not small and head in self._heads:  # else nothing equal is there: it is hashed while it is written
            digest = payload_hash(data)
        if digest is not None and (known := self._known.get((digest, logical, shape))) is not None:
            return Stored(*known, digest, logical, shape), Flag.DEDUP
        number, self._numbers = self._numbers, self._numbers + 1  # never again, however this ends
        try:
            offset = self.file.allocate(number, logical, shape)
            if offset is not None and digest is None:
                digest = self.file.write(data, offset)
            elif offset is not None:
                write_all(self.file.fd, data, offset)
        except BaseException:
            self.file.forget(number)
            raise
        digest = digest or head[0]
        self._known[digest, logical, shape] = number, offset
        if not small:
            self._heads.add(head)
        return Stored(number, offset, digest, logical, shape), _NO_FLAGS

    def read_back(self, stored: Stored) -> np.ndarray:
        """Return the values of an array that was stored.

        Raises:
            OSError, ValueError: They cannot be read.
        """
        out = np.empty(stored.shape, dtype=physical_dtype(stored.dtype))
        if stored.offset is not None:
            read_bytes(self.file.fd, stored.offset, out.reshape(-1).view(np.uint8))
        return from_physical(out, stored.dtype).view(logical_dtype(stored.dtype))
