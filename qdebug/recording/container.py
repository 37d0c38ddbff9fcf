"""The HDF5 file under a recording: opened, checked, its tables and payloads read. What they mean is not known here.

HDF5 follows external storage, external links and virtual datasets to other files without asking, and its own
documentation puts hostile files out of scope. So every path component must be a hard link, a dataset must lie in the
file itself, its types must be of fixed size, and what it declares must fit into the file, all of which is checked
before it is opened or read. Contiguous data is read by us, never by the library. What is refused is a ValueError; who
opens the file says which file it is.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import h5py
import numpy as np
import xxhash
from h5py import h5a, h5d, h5f, h5g, h5p, h5t, h5z

from qdebug.errors import FormatVersionError, NotARecordingError, RecordingError
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.numerics.large_arrays import Making
from qdebug.recording.bad_file import BAD_FILE, damaged
from qdebug.recording.format import (
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
)
from qdebug.recording.journal import MAGIC as JOURNAL_MAGIC
from qdebug.recording.payload import ZSTD, array_hash, chunks_of, decompress, read_bytes
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

__all__ = ["MAX_ROWS", "Container", "Expected", "payload_digest", "read_payload"]

_MAP_FROM = 1 << 20
"""Payloads from this size on are mapped; copying a smaller one is as fast and holds no descriptor."""
MAX_ROWS = 10_000_000
"""Most rows that a table may have."""
_POOL_ITEMS = 64 * MAX_ROWS
MAX_CHUNK_BYTES = 64 << 20
"""Largest chunk of a compressed payload, uncompressed."""
MAX_RATIO = 1100
"""Largest ratio of declared to stored bytes: deflate cannot exceed 1032."""

MAX_TABLE_RATIO = 32
"""Largest ratio of a table's bytes to the room that the file takes on the disk: a file system may compress it."""
_LEAST_ROOM = 1 << 20
_BLOCK = 512
"""Bytes of a block, as `st_blocks` counts them (POSIX)."""

_FILTERS = {h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32, ZSTD}
_PLAIN = {h5t.INTEGER, h5t.FLOAT}
_MAX_MEMBERS = 256
_MAX_DEPTH = 4


class Extent(NamedTuple):
    """Where a checked dataset lies.

    Args:
        shape: Its shape.
        dtype: Type of its elements, as numpy has it.
        itemsize: Bytes of an element in the file.
        offset: Byte offset in the file of contiguous data; None if it is chunked or empty.
        chunk: Shape of a chunk; None if it is contiguous.
        filters: Numbers of the filters of a chunk, in the order in which they were applied.
        kind: The type (h5py TypeID).
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    itemsize: int
    offset: int | None
    chunk: tuple[int, ...] | None = None
    filters: tuple[int, ...] = ()
    kind: Any = None

    @property
    def nbytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.itemsize


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
        try:
            found = os.fstat(self.fd)
            self.size = found.st_size
            self._known = _identity(found)
            self.room = max(found.st_blocks * _BLOCK, _LEAST_ROOM)
            self._file = _open_hdf5(path, self.fd)
            self.complete = self._check_format()
            self.graph_hash = _read_text_attribute(self._file, b"graph_hash")
            known = (graphs or {}).get(self.graph_hash or "", {})
            self.tables = self.read_tables(known)
            self.optional = {name: self._table(name) for name in OPTIONAL_TABLES if self._has(name)}
            self._payloads = _open_group(self._file, PAYLOADS.encode())
            self.payloads = int(self._payloads.get_num_objs())
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
        if _read_text_attribute(self._file, b"format") != FORMAT_NAME:
            raise NotARecordingError(f"{str(self.path)!r} is an HDF5 file but no qdebug recording.", hint=HOW_TO_RECORD)
        version = self._integer_attribute(b"format_version")
        if version > FORMAT_VERSION:
            writer = _read_text_attribute(self._file, b"created_by")
            raise FormatVersionError(
                f"{str(self.path)!r} has recording format {version}{f', written by {writer}' if writer else ''}; "
                f"this qdebug reads up to {FORMAT_VERSION}.",
                hint="Upgrade qdebug: pip install --upgrade qdebug.",
            )
        if version < 1:
            raise ValueError(f"its format version is {version}")
        return bool(self._integer_attribute(b"complete"))

    def _integer_attribute(self, name: bytes) -> int:
        try:
            attribute = h5a.open(self._file, name)
        except KeyError:
            raise ValueError(f"it lacks the attribute {name.decode()}") from None
        if attribute.get_type().get_class() != h5t.INTEGER or attribute.shape != ():
            raise ValueError(f"its attribute {name.decode()} is no integer")
        value = np.zeros((), dtype=np.int64)
        attribute.read(value, mtype=h5t.NATIVE_INT64)
        return int(value)

    def _has(self, name: str) -> bool:
        return bool(self._file.links.exists(name.encode()))

    def _table(self, name: str) -> np.ndarray:
        """Read a whole table; fields that this version does not know are dropped."""
        dtype = _row_type(name)
        raw, stored = self._raw(name)
        table: np.ndarray = raw.view(stored)
        if dtype.names is None and stored != dtype:
            raise ValueError(f"/{name} has elements of type {stored}")
        return table if dtype.names is None else _known_fields(name, table, dtype)

    def _raw(self, name: str) -> tuple[np.ndarray, np.dtype[Any]]:
        """Read the bytes of a table, and give the type of its rows as the file has it."""
        _, extent = _open_checked(self._file, name.encode(), file_size=self.size)
        if len(extent.shape) != 1 or extent.shape[0] > (MAX_ROWS if _row_type(name).names else _POOL_ITEMS):
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
        return _read_text_attribute(self._file, b"tables_hash")

    def hash_tables(self, names: Iterable[str] = ()) -> str:
        """Return the hash of some tables as they lie in the file, in hexadecimal; of all if none is named."""
        return hash_of_tables((name, self._raw(name)[0]) for name in names or (*TABLES, *self.optional))

    def open_payload(self, number: int) -> tuple[Any, Extent]:
        """Open a payload's dataset (h5py DatasetID), checked.

        Raises:
            ValueError: It is missing or is something that a recording never contains.
        """
        return _open_checked(self._payloads, payload_key(number), file_size=self.size)

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
            if _identity(os.fstat(self.fd)) != self._known:
                raise RecordingError(f"{str(self.path)!r} was changed while it was in use.", hint="Open it again.")
            self._file = _open_hdf5(self.path, self.fd)
            self._payloads = _open_group(self._file, PAYLOADS.encode())
        except BAD_FILE as exc:
            self.close()
            raise damaged(self.path, exc) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Again does nothing."""
        # HDF5 closes a file when nothing of it is held any more. FileID.close looks through all that is open.
        self._payloads = self._file = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


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


def _open_hdf5(path: Path, fd: int) -> Any:
    """Open the container, as h5py does: one process may open a file twice only if both agree on locks and more.

    Where the lock cannot be had, it is opened without: a finished file is never written to.
    """
    same = f"/proc/self/fd/{fd}"  # by this name it is the file that was opened, whatever lies at its path by now
    name = os.fsencode(same if os.path.exists(same) else path)  # noqa: PTH110  a Path costs as much as the question
    try:
        file = h5f.open(name, h5f.ACC_RDONLY, fapl=_file_access(locking=True))
    except OSError:
        if not path.exists() or not os.path.samestat(os.fstat(fd), path.stat()):
            raise ValueError("it was replaced while it was opened") from None
        file = h5f.open(name, h5f.ACC_RDONLY, fapl=_file_access(locking=False))
    if not os.path.samestat(os.fstat(fd), os.fstat(int(file.get_vfd_handle()))):
        file.close()
        raise ValueError("it was replaced while it was opened")
    return file


@cache
def _file_access(*, locking: bool) -> Any:
    """Return how files are opened (h5py PropFAID), with a lock or without."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_sec2()
    if not locking:
        access.set_file_locking(False, True)  # noqa: FBT003  h5py takes them by position
    return access


_TYPES: dict[bytes, np.dtype[Any]] = {}
"""Types of files that were checked, as numpy has them, by their encoded form. Most files have the same ones."""
_MOST_TYPES = 256


def _row_type(name: str) -> np.dtype[Any]:
    return TABLES[name] if name in TABLES else OPTIONAL_TABLES[name]


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


def _open_group(parent: Any, name: bytes) -> Any:
    """Open a group through a hard link (h5py GroupID).

    Raises:
        ValueError: There is no such group, or it is reached through another kind of link.
    """
    _check_link(parent, name)
    try:
        return h5g.open(parent, name)
    except (OSError, RuntimeError, KeyError, ValueError):
        raise _broken(name, "cannot be opened as a group") from None


def _open_checked(parent: Any, name: bytes, *, file_size: int) -> tuple[Any, Extent]:
    """Open a dataset through a hard link and check all of it.

    Args:
        parent: The group that must hold it.
        name: Its name, one path component.
        file_size: Size of the file in bytes.

    Returns:
        The open dataset (h5py DatasetID) and where it lies.

    Raises:
        ValueError: It is missing or is something that a recording never contains.
    """
    _check_link(parent, name)
    try:
        dataset = h5d.open(parent, name)
        return dataset, _check_dataset(dataset, name, file_size=file_size)
    except (OSError, RuntimeError, KeyError, TypeError, NotImplementedError):
        raise _broken(name, "cannot be opened as a dataset") from None


def _check_link(parent: Any, name: bytes) -> None:
    try:
        kind = parent.links.get_info(name).type
    except (OSError, RuntimeError, KeyError, ValueError):
        raise ValueError(f"it lacks {_title(name)}") from None
    if kind != h5py.h5l.TYPE_HARD:
        raise _broken(name, "is a soft or external link")


def _check_dataset(dataset: Any, name: bytes, *, file_size: int) -> Extent:
    """Check storage, filters, type and size of an open dataset before anything is read of it.

    Raises:
        ValueError: It is something that a recording never contains.
    """
    offset = dataset.get_offset()  # contiguous data in this very file has one, and nothing else has
    chunk, filters = (None, ()) if offset is not None else _check_storage(dataset, name)
    kind = dataset.get_type()
    extent = Extent(
        shape=tuple(map(int, dataset.shape)),
        dtype=_checked_type(kind, name),
        itemsize=int(kind.get_size()),
        offset=None if offset is None else int(offset),
        chunk=chunk,
        filters=filters,
        kind=kind,
    )
    stored = int(dataset.get_storage_size())
    if chunk is None:
        missing = extent.nbytes > 0 and (extent.offset is None or stored != extent.nbytes)
        if missing or (extent.offset or 0) + extent.nbytes > file_size:
            raise _broken(name, f"declares {extent.nbytes} bytes that the file does not have")
    elif math.prod(chunk) * extent.itemsize > MAX_CHUNK_BYTES or extent.nbytes > MAX_RATIO * min(stored, file_size):
        raise _broken(name, f"declares {extent.nbytes} bytes out of {stored} stored ones")
    return extent


def _check_storage(dataset: Any, name: bytes) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Check where the values of a dataset are, and how they are stored; return the shape of a chunk, and its filters.

    Raises:
        ValueError: They are in another file, or stored as no recording does it.
    """
    plist = dataset.get_create_plist()
    layout = plist.get_layout()
    if layout not in (h5d.CONTIGUOUS, h5d.CHUNKED):
        raise _broken(name, "is virtual or compact")
    if plist.get_external_count():
        raise _broken(name, "keeps its data in another file")
    filters = tuple(int(plist.get_filter(number)[0]) for number in range(plist.get_nfilters()))
    if not set(filters) <= _FILTERS or len(set(filters)) < len(filters):
        raise _broken(name, f"needs the HDF5 filters {sorted(set(filters) - _FILTERS) or sorted(filters)}")
    return (tuple(map(int, plist.get_chunk())) if layout == h5d.CHUNKED else None), filters


def _checked_type(kind: Any, name: bytes) -> np.dtype[Any]:
    """Return a type as numpy has it, checked unless the same one was before.

    Raises:
        ValueError: It is made of more than integers, floats, enums, arrays and compounds.
    """
    encoded = kind.encode()
    known = _TYPES.get(encoded)
    if known is None:
        _check_members(kind, name)
        known = kind.dtype
        if len(_TYPES) < _MOST_TYPES:
            _TYPES[encoded] = known
    return known


def _check_members(kind: Any, name: bytes, depth: int = 0) -> None:
    """Check that a type is made of integers, floats, enums, arrays and compounds only.

    Raises:
        ValueError: It is not.
    """
    group = kind.get_class()
    if group in _PLAIN:
        return
    if group == h5t.ENUM and kind.get_super().get_class() == h5t.INTEGER:
        return
    if depth < _MAX_DEPTH and group == h5t.COMPOUND and kind.get_nmembers() <= _MAX_MEMBERS:
        for member in range(kind.get_nmembers()):
            _check_members(kind.get_member_type(member), name, depth + 1)
        return
    if depth < _MAX_DEPTH and group == h5t.ARRAY:
        _check_members(kind.get_super(), name, depth + 1)
        return
    raise _broken(name, "has elements of variable length or of a foreign type")


def _read_text_attribute(holder: Any, name: bytes) -> str | None:
    """Read a scalar attribute of fixed-length text; None if there is none, or it is anything else."""
    if not h5a.exists(holder, name):
        return None
    attribute = h5a.open(holder, name)
    kind = attribute.get_type()
    size = kind.get_size()
    if kind.get_class() != h5t.STRING or kind.is_variable_str() or attribute.shape != () or size > 256:
        return None
    out = np.zeros(size, np.uint8)
    attribute.read(out, mtype=kind)
    return out.tobytes().rstrip(b"\0").decode("utf-8", "replace")


def _broken(name: bytes, what: str) -> ValueError:
    return ValueError(f"{_title(name)} {what}, which no recording has")


def _title(name: bytes) -> str:
    return "/" + name.decode("ascii", "replace")


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
    """Return a payload's elements as they lie in the file; a large contiguous one is a view of the file.

    A large compressed one is unpacked into a temporary file, and is a view of that.

    Raises:
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    dataset, extent = _opened(container, expected)
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


_DIGEST_BLOCK = 1 << 20
"""Bytes of a payload that are read at a time for its digest."""


def payload_digest(container: Container, expected: Expected) -> bytes:
    """Return the xxh3-128 digest of a payload, with little memory however large it is.

    Raises:
        ValueError, OSError: It is not what the index says, or is damaged.
        MissingExtraError: It is compressed with Zstandard, and the package is not installed.
    """
    _, extent = _opened(container, expected)
    if extent.offset is None or not extent.nbytes:
        return array_hash(read_payload(container, expected))
    digest, block = xxhash.xxh3_128(), np.empty(min(_DIGEST_BLOCK, extent.nbytes), np.uint8)
    for start in range(0, extent.nbytes, _DIGEST_BLOCK):  # not mapped: it may be larger than the memory there is
        part = block[: min(_DIGEST_BLOCK, extent.nbytes - start)]
        read_bytes(container.fd, extent.offset + start, part)
        digest.update(part.data)
    return digest.digest()


def _opened(container: Container, expected: Expected) -> tuple[Any, Extent]:
    dataset, extent = container.open_payload(expected.number)
    if extent.nbytes > MAX_RATIO * container.room:
        raise ValueError(f"it declares {extent.nbytes} bytes; the file takes {container.room} on the disk")
    fits = len(extent.shape) == expected.ndim and extent.shape[:INDEX_DIMS] == expected.shape
    itemsize = physical_dtype(expected.dtype).itemsize
    if not (fits and extent.itemsize == itemsize and extent.nbytes == expected.nbytes):
        raise ValueError(f"it has shape {extent.shape}, which is not what the index says")
    if not extent.kind.equal(hdf5_type(expected.dtype)):
        raise ValueError(f"it does not have the type of {expected.dtype} elements")
    return dataset, extent


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
