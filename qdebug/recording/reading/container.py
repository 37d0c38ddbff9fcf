"""The HDF5 file under a recording: opened, checked, its tables and payloads read. What they mean is not known here.

The library of HDF5 finds where data lies, and every object is checked. Contiguous data is read by us, never by the
library. What is refused is a ValueError; who opens the file says which file it is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import xxhash

from qdebug.errors import FormatVersionError, NotARecordingError, RecordingError
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.numerics.large_arrays import SPILL_FROM, Making
from qdebug.recording.format.payload import array_hash, chunks_of, decompress, read_bytes
from qdebug.recording.format.specification import (
    FORMAT_NAME,
    FORMAT_VERSION,
    HDF5_MAGIC,
    INDEX_DIMS,
    OPTIONAL_TABLES,
    PAYLOADS,
    TABLES,
    hash_of_tables,
    hdf5_type,
    payload_key,
    physical_dtype,
    row_type,
)
from qdebug.recording.journal import MAGIC as JOURNAL_MAGIC
from qdebug.recording.reading.bad_file import BAD_FILE, damaged
from qdebug.recording.reading.hdf5_checks import (
    MAX_RATIO,
    Extent,
    open_dataset,
    open_group,
    open_hdf5,
    read_integer_attribute,
    read_text_attribute,
)
from qdebug.recording.target import (
    HOW_TO_RECORD,
    journal_of,
    lock_holder,
    open_regular,
    part_of,
    recover_command,
    recover_hint,
    unfinished,
)

__all__ = ["MAX_ROWS", "Container", "Expected", "load_payload", "payload_digest", "read_payload"]

MAX_ROWS = 10_000_000
"""Most rows that a table may have."""
_POOL_ITEMS = 64 * MAX_ROWS
MAX_TABLE_RATIO = 32
"""Largest ratio of a table's bytes to the room that the file takes on the disk: a file system may compress it."""
_LEAST_ROOM = 1 << 20
_BLOCK = 512
"""Bytes of a block, as `st_blocks` counts them (POSIX)."""


class Container:
    """An open recording file whose format, links, storage, types and sizes are those of the layout.

    Args:
        path: The file.
        graphs: Tables of graphs that are known, by their hash. Those of a file with such a hash are not read.

    Raises:
        NotARecordingError: The file is missing or is something else.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or holds what a recording never does.
    """

    def __init__(self, path: Path, *, graphs: Mapping[str, Mapping[str, np.ndarray]] | None = None) -> None:
        self.path = path
        self.fd = _open_recording(path)
        self._file: Any = None
        self._payloads: Any = None
        try:
            found = os.fstat(self.fd)
            self.size = found.st_size
            self._known = _identity(found)
            self.room = max(found.st_blocks * _BLOCK, _LEAST_ROOM)
            self.complete = self._check_format()
            self.graph_hash = read_text_attribute(self._library, b"graph_hash")
            known = (graphs or {}).get(self.graph_hash or "", {})
            self.tables = self.read_tables(known)
            self.optional = {
                name: self._table(name) for name in OPTIONAL_TABLES if self._library.links.exists(name.encode())
            }
            self.payloads = int(self._group_of_payloads.get_num_objs())
        except BAD_FILE as exc:
            self.close()
            _check_finished(path)
            if path.name.endswith(".part") and not journal_of(path.with_suffix("")).exists():
                raise RecordingError(
                    f"{str(path)!r} is what a run left that did not finish, and its journal is missing.",
                    hint="Put the journal back beside it, or record the run again.",
                ) from None
            raise damaged(path, exc) from None
        except BaseException:
            self.close()
            raise

    @property
    def _library(self) -> Any:
        """The file as the library of HDF5 has it (h5py FileID), opened when it is first needed."""
        if self._file is None:
            self._file = open_hdf5(self.path, self.fd)
        return self._file

    @property
    def _group_of_payloads(self) -> Any:
        """The group of payloads (h5py GroupID)."""
        if self._payloads is None:
            self._payloads = open_group(self._library, PAYLOADS.encode())
        return self._payloads

    def read_tables(self, known: Mapping[str, np.ndarray] = MappingProxyType({})) -> dict[str, np.ndarray]:
        """Read the tables that every recording has.

        Args:
            known: Tables that are known already, and not read.

        Raises:
            ValueError, OSError: One is missing or is something that a recording never contains.
        """
        return {name: known[name] if name in known else self._table(name) for name in TABLES}

    def take_tables(self) -> dict[str, np.ndarray]:
        """Return the tables away, to be kept only as long as they are needed; `tables` is empty from then on."""
        tables, self.tables = self.tables, {}
        return tables

    def _check_format(self) -> bool:
        """Check format and version before anything else is looked at; tell whether the run finished."""
        if read_text_attribute(self._library, b"format") != FORMAT_NAME:
            raise NotARecordingError(f"{str(self.path)!r} is an HDF5 file but no qdebug recording.", hint=HOW_TO_RECORD)
        version = read_integer_attribute(self._library, b"format_version")
        if version > FORMAT_VERSION:
            writer = read_text_attribute(self._library, b"created_by")
            raise FormatVersionError(
                f"{str(self.path)!r} has recording format {version}{f', written by {writer}' if writer else ''}; "
                f"this qdebug reads up to {FORMAT_VERSION}.",
                hint="Upgrade qdebug: pip install --upgrade qdebug.",
            )
        if version < 1:
            raise ValueError(f"its format version is {version}")
        return bool(read_integer_attribute(self._library, b"complete"))

    def _table(self, name: str) -> np.ndarray:
        """Read a whole table; fields that this version does not know are dropped."""
        dtype = row_type(name)
        raw, stored = self._raw(name)
        table: np.ndarray = raw.view(stored)
        if dtype.names is None and stored != dtype:
            raise ValueError(f"/{name} has elements of type {stored}")
        return table if dtype.names is None else _known_fields(name, table, dtype)

    def _raw(self, name: str) -> tuple[np.ndarray, np.dtype[Any]]:
        """Read the bytes of a table, and give the type of its rows as the file has it."""
        _, extent = open_dataset(self._library, name.encode(), file_size=self.size)
        if len(extent.shape) != 1 or extent.shape[0] > (MAX_ROWS if row_type(name).names else _POOL_ITEMS):
            raise ValueError(f"/{name} has shape {extent.shape}")
        if extent.nbytes and extent.offset is None:
            raise ValueError(f"/{name} is not contiguous")
        if extent.nbytes > MAX_TABLE_RATIO * self.room:
            raise ValueError(f"/{name} declares {extent.nbytes} bytes; the file takes {self.room} on the disk")
        if extent.dtype.itemsize != extent.itemsize:
            raise ValueError(f"/{name} has elements of a foreign type")
        raw = np.empty(extent.nbytes, np.uint8)
        if extent.nbytes:
            read_bytes(self.fd, int(extent.offset or 0), raw)
        return raw, extent.dtype

    @property
    def tables_hash(self) -> str | None:
        """The hash that the tables were written with, in hexadecimal; None if the file has none."""
        return read_text_attribute(self._library, b"tables_hash")

    def hash_tables(self, names: Iterable[str] = ()) -> str:
        """Return the hash of some tables as they lie in the file, in hexadecimal; of all if none is named."""
        return hash_of_tables((name, self._raw(name)[0]) for name in names or (*TABLES, *self.optional))

    def open_payload(self, expected: Expected) -> tuple[Any, Extent]:
        """Open a payload, checked against the index.

        Args:
            expected: What the index says of it.

        Returns:
            Its dataset (h5py DatasetID), and where it lies.

        Raises:
            ValueError: It is missing, is not what the index says, or is something that a recording never contains.
        """
        dataset, extent = open_dataset(self._group_of_payloads, payload_key(expected.number), file_size=self.size)
        _check_expected(extent, expected, self.room)
        if not extent.kind.equal(hdf5_type(expected.dtype)):
            raise ValueError(f"it does not have the type of {expected.dtype} elements")
        return dataset, extent

    def reopen(self) -> None:
        """Open the file again that was closed, to read payloads. An open one stays as it is.

        Raises:
            NotARecordingError: It is gone.
            RecordingError: It is not as it was, or cannot be opened.
        """
        if self.fd >= 0:
            return
        self.fd = _open_recording(self.path)
        try:
            self.check_unchanged()
        except BAD_FILE as exc:
            self.close()
            raise damaged(self.path, exc) from None
        except BaseException:
            self.close()
            raise

    def check_unchanged(self) -> None:
        """Check that the open file is as it was when it was opened first.

        Raises:
            RecordingError: It was written to.
        """
        if _identity(os.fstat(self.fd)) != self._known:
            raise _changed(self.path)

    def close(self) -> None:
        """Close the file. Again does nothing."""
        # HDF5 closes a file when nothing of it is held any more. FileID.close looks through all that is open.
        self._payloads = self._file = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _changed(path: Path) -> RecordingError:
    return RecordingError(
        f"{str(path)!r} was changed while it was in use.",
        hint="Run the command again once nobody writes to the file; to replace a recording, give the new one its name.",
    )


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """Return what tells a file from another one, and from itself once it is written to."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _open_recording(path: Path) -> int:
    """Open a file for reading if it can be a recording at all."""
    try:
        fd = open_regular(path)
    except NotARecordingError:
        _check_finished(path)
        raise
    start = os.pread(fd, 64, 0)
    if not start.startswith(HDF5_MAGIC):
        os.close(fd)
        _check_finished(path)
        if start.lstrip()[:1] == b"{":
            raise NotARecordingError(
                f"{str(path)!r} is JSON, such as a manifest, and no recording file.",
                hint="Give the recordings that it names.",
            )
        if start.startswith(JOURNAL_MAGIC):
            raise _lone_journal(path)
        raise NotARecordingError(f"{str(path)!r} is no qdebug recording.", hint=HOW_TO_RECORD)
    return fd


def _lone_journal(path: Path) -> RecordingError:
    """Make the error for a journal whose run cannot be told from its name, or has no values beside it."""
    named = path.name.endswith(".journal")
    part = part_of(path.with_name(path.name.removesuffix(".journal")))
    if named and not part.exists():
        return RecordingError(
            f"{str(path)!r} is the journal of a run that did not finish; {str(part)!r}, which holds the values, is "
            "missing.",
            hint=f"Put that file back beside it, then: {recover_command(path)}.",
        )
    out = "" if named else " -o OUT.h5"
    return RecordingError(
        f"{str(path)!r} is the journal of a recording, not the recording itself.",
        hint=f"Rebuild the recording: {recover_command(path)}{out}.",
    )


def _check_finished(path: Path) -> None:
    """Refuse the path of a run that has not finished, and say what can be done with it.

    Raises:
        RecordingError: It is one.
    """
    target = path
    for ending in (".part", ".journal"):
        if path.name.endswith(ending) and path.is_file():
            target = path.with_name(path.name.removesuffix(ending))
    if not unfinished(target):
        return
    holder = lock_holder(target)
    if holder == str(os.getpid()) and target is not path:
        return  # the writer itself, which looks at what it has written
    if holder:
        raise RecordingError(
            f"{str(target)!r} is being written by process {holder}.",
            hint="Wait for it, or look at it while it grows: qdebug tui REF BACKEND --follow "
            "(in Python: qdebug.open_recording(path, follow=True)).",
        )
    raise RecordingError(f"The run that recorded to {str(target)!r} did not finish.", hint=recover_hint(target))


def _known_fields(name: str, table: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a table with this version's fields, whatever the order and further fields of the file."""
    if table.dtype == dtype:
        return table
    known = np.zeros(len(table), dtype=dtype)
    for field in dtype.names or ():
        if field not in (table.dtype.names or ()):
            raise ValueError(f"/{name} lacks the field {field}")
        if table.dtype[field] != dtype[field]:
            raise ValueError(f"/{name} has a field {field} of type {table.dtype[field]}")
        known[field] = table[field]
    return known


class Expected(NamedTuple):
    """What the index says of a payload.

    Args:
        number: Number of its dataset.
        dtype: Logical dtype of its elements.
        nbytes: Its size.
        ndim: Number of its dimensions.
        shape: Its first extents, as many as the index has room for.
    """

    number: int
    dtype: str
    nbytes: int
    ndim: int
    shape: tuple[int, ...]

    @classmethod
    def of_event(cls, row: Any) -> Self:
        """Return what a row of /index says."""
        ndim = int(row["ndim"])
        shape = tuple(row["shape"][:ndim].tolist())
        return cls(int(row["payload"]), LOGICAL_DTYPES[row["dtype"]], int(row["nbytes"]), ndim, shape)

    @classmethod
    def of_elements(cls, number: int, dtype: str, count: int) -> Self:
        """Return what holds for so many elements that were kept of a tensor."""
        return cls(number, dtype, count * physical_dtype(dtype).itemsize, 1, (count,))


def read_payload(container: Container, expected: Expected) -> np.ndarray:
    """Return a payload's elements as they lie in the file. A very large one lies in a temporary file.

    Raises:
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    dataset, extent = container.open_payload(expected)
    physical = physical_dtype(expected.dtype)
    if extent.nbytes == 0:
        return np.empty(extent.shape, dtype=physical)
    if extent.offset is not None:
        return _read_contiguous(container.fd, extent, physical)
    _check_chunks(dataset, extent)  # before any room is taken
    making = Making(extent.shape, physical)
    for place, part in _chunks(dataset, extent):
        inside = tuple(min(size, end - start) for start, size, end in zip(place, part.shape, extent.shape, strict=True))
        region = tuple(slice(start, start + size) for start, size in zip(place, inside, strict=True))
        making.put(region, part.view(physical)[tuple(slice(size) for size in inside)])
    return making.done()


def load_payload(
    container: Container,
    expected: Expected,
    digest: bytes,
    *,
    done: Callable[[], object],
    wrong: Callable[[], RecordingError],
) -> np.ndarray:
    """Return a payload's elements as they lie in the file, compared with their hash.

    Args:
        container: The file.
        expected: What the index says of the payload.
        digest: Its hash, as recorded.
        done: Called once it was read and has that hash.
        wrong: Makes the error for another hash.

    Raises:
        PayloadMismatchError: It is not what the hash says.
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    stored = read_payload(container, expected)
    if array_hash(stored) != digest:
        raise wrong()
    done()
    return stored


_PIECE = 1 << 20
"""Bytes of a payload that are read at a time."""


def payload_digest(container: Container, expected: Expected) -> bytes:
    """Return the xxh3-128 digest of a payload, with little memory however large it is.

    Raises:
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    _, extent = container.open_payload(expected)
    if extent.offset is None or not extent.nbytes:
        return array_hash(read_payload(container, expected))
    digest, block = xxhash.xxh3_128(), np.empty(min(_PIECE, extent.nbytes), np.uint8)
    for start in range(0, extent.nbytes, _PIECE):  # it may be larger than the memory there is
        part = block[: min(_PIECE, extent.nbytes - start)]
        read_bytes(container.fd, extent.offset + start, part)
        digest.update(part.data)
    return digest.digest()


def _check_expected(extent: Extent, expected: Expected, room: int) -> None:
    if extent.nbytes > MAX_RATIO * room:
        raise ValueError(f"it declares {extent.nbytes} bytes; the file takes {room} on the disk")
    fits = len(extent.shape) == expected.ndim and extent.shape[:INDEX_DIMS] == expected.shape
    itemsize = physical_dtype(expected.dtype).itemsize
    if not (fits and extent.itemsize == itemsize and extent.nbytes == expected.nbytes):
        raise ValueError(f"it has shape {extent.shape}, which is not what the index says")


def _check_chunks(dataset: Any, extent: Extent) -> None:
    chunk = extent.chunk or ()
    if dataset.get_num_chunks() != math.prod(-(-size // each) for size, each in zip(extent.shape, chunk, strict=True)):
        raise ValueError("chunks are missing")


def _chunks(dataset: Any, extent: Extent) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
    """List the place and the bytes of each chunk; the last axis counts bytes of elements."""
    chunk = extent.chunk or ()
    nbytes = math.prod(chunk) * extent.itemsize
    raw = np.dtype(f"V{extent.itemsize}")
    for place in chunks_of(extent.shape, chunk):
        mask, stored = dataset.read_direct_chunk(place)
        if mask:
            raise ValueError("a chunk lacks a filter")
        yield (
            place,
            decompress(stored, extent.filters, nbytes=nbytes, itemsize=extent.itemsize).view(raw).reshape(chunk),
        )


def _read_contiguous(fd: int, extent: Extent, physical: np.dtype[Any]) -> np.ndarray:
    """Copy elements that lie in one piece.

    They are never mapped where they lie: the mapping of a file that somebody cuts meanwhile ends the process (SIGBUS).
    """
    offset = int(extent.offset or 0)
    if extent.nbytes < SPILL_FROM:
        out = np.empty(extent.shape, physical)
        read_bytes(fd, offset, out.reshape(-1).view(np.uint8))
        return out
    making = Making(extent.shape, physical)
    count, step = extent.nbytes // physical.itemsize, max(1, _PIECE // physical.itemsize)
    block = np.empty(min(step, count), physical)
    for start in range(0, count, step):
        part = block[: count - start]
        read_bytes(fd, offset + start * physical.itemsize, part.view(np.uint8))
        making.put_flat(start, part)
    return making.done()
