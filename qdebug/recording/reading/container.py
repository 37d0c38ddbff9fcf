"""The HDF5 file of a recording: opens and checks it, and provides tables and payloads without interpreting them.

The HDF5 library locates data, and every object is checked. Contiguous data is read by this package, never by the
library. Refusals are ValueErrors; the caller adds the name of the file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.errors import FormatVersionError, NotARecordingError, RecordingError
from qdebug.recording.format.payload import read_bytes
from qdebug.recording.format.specification import (
    FORMAT_NAME,
    FORMAT_VERSION,
    GRAPH,
    HDF5_MAGIC,
    LOCATION_TABLES,
    NUMBERED,
    OPTIONAL_TABLES,
    STATISTICS,
    TABLES,
    TIMES,
    columns_of_index,
    hash_of_tables,
    row_type,
)
from qdebug.recording.journal import MAGIC as JOURNAL_MAGIC
from qdebug.recording.reading.bad_file import BAD_FILE_ERRORS, damaged_file_error
from qdebug.recording.reading.hdf5_checks import (
    open_dataset,
    open_group,
    open_hdf5,
    read_integer_attribute,
    read_text_attribute,
)
from qdebug.recording.reading.payloads import NumberedPayloads, Payloads, PlacedPayloads
from qdebug.recording.remote_url import format_path, url_of
from qdebug.recording.target import (
    HOW_TO_RECORD,
    has_unfinished_run,
    journal_of,
    lock_holder,
    open_regular,
    part_of,
    recover_command,
    recover_hint,
    target_of,
)

if TYPE_CHECKING:
    from qdebug.recording.reading.remote import RemoteFile

__all__ = ["MAX_ROWS", "Container"]

MAX_ROWS = 10_000_000
"""Maximum number of rows of a table."""
_MAX_POOL_ITEMS = 64 * MAX_ROWS
"""Maximum number of items of a table without fields."""
MAX_TABLE_RATIO = 32
"""Maximum ratio of a table's bytes to the file's disk space, since a file system may compress the file."""
_MIN_DISK_BYTES = 1 << 20
"""Minimum disk space that is assumed for any file."""
_SUPERBLOCK, _SUPERBLOCK_VERSION = struct.Struct("<8xB19xQ"), 3
"""Fields of an HDF5 superblock: its version, and the end of the file."""
_BLOCK = 512
"""Bytes per block in `st_blocks` (POSIX)."""


class Container:
    """An open recording file whose format, links, storage, types and sizes match the layout.

    Args:
        path: The file.
        graphs: Tables of known graphs, by their hash. If a file's graph has a known hash, its tables are not read.

    Raises:
        NotARecordingError: The file is missing or is not a recording.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or contains something that a recording never contains.
    """

    def __init__(self, path: Path, *, graphs: Mapping[str, Mapping[str, np.ndarray]] | None = None) -> None:
        self.path = path
        self.fd = _open_recording(path)
        self._file: Any = None
        self._opened_group: Any = None
        self.version = FORMAT_VERSION
        try:
            self.size, disk_bytes = _measure_file(self.fd)
            self._opened_as = _file_identity(self.fd)
            self.disk_bytes = max(disk_bytes, _MIN_DISK_BYTES)
            self.complete = self._check_format()
            self.graph_hash = read_text_attribute(self.library, b"graph_hash")
            known_tables = (graphs or {}).get(self.graph_hash or "", {})
            self.tables = self.read_tables(known_tables)
            self.optional = self._read_optional_tables(OPTIONAL_TABLES)
            self.location_tables = self._read_location_tables()
            self.payloads = self._open_payloads()
            self.rewritten = self.version > 1 and self._is_rewritten()
            """Whether another program has rewritten the file, so that payloads must be found through their datasets."""
        except BAD_FILE_ERRORS as exc:
            self.close()
            _refuse_unfinished_run(path)
            if path.name.endswith(".part") and not journal_of(path.with_suffix("")).exists():
                raise RecordingError(
                    f"{format_path(path)!r} belongs to an unfinished run, and its journal is missing.",
                    hint="Put the journal back into the same folder, or record the run again.",
                ) from None
            raise damaged_file_error(path, exc) from None
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self.fd != -1

    @property
    def library(self) -> Any:
        """The file as opened by the HDF5 library (h5py FileID), opened when first needed."""
        if self._file is None:
            self._file = open_hdf5(self.path, self.fd)
        return self._file

    @property
    def _tables_group(self) -> Any:
        """The group that contains the tables (h5py GroupID, or FileID)."""
        if self._opened_group is None:
            self._opened_group = self.library if self.version == 1 else open_group(self.library, GRAPH.encode())
        return self._opened_group

    def _read_optional_tables(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Read the named tables. Tables that the file lacks are skipped."""
        return {name: self._read_table(name) for name in names if self._tables_group.links.exists(name.encode())}

    def _read_location_tables(self) -> dict[str, np.ndarray]:
        """Read the tables of payload locations, which format 1 does not have."""
        if self.version == 1:
            return {}
        first, *other_names = LOCATION_TABLES
        return {first: self._read_table(first)} | self._read_optional_tables(other_names)

    def _open_payloads(self) -> Payloads:
        if self.version == 1:
            group = open_group(self.library, NUMBERED.encode())
            return NumberedPayloads(group, self.fd, size=self.size, disk_bytes=self.disk_bytes)
        return PlacedPayloads(self.location_tables, self.fd, size=self.size, disk_bytes=self.disk_bytes)

    def _is_rewritten(self) -> bool:
        """Return whether the superblock states a different end of the file than the finished file had."""
        version, end = _SUPERBLOCK.unpack_from(_read_start(self.fd, _SUPERBLOCK.size))
        return bool(version != _SUPERBLOCK_VERSION or end != read_integer_attribute(self.library, b"file_end"))

    def read_tables(self, known_tables: Mapping[str, np.ndarray] = MappingProxyType({})) -> dict[str, np.ndarray]:
        """Read the tables that every recording has.

        Args:
            known_tables: Tables that are already known and need not be read.

        Raises:
            ValueError, OSError: A table is missing, or is not stored as in a recording.
        """
        return {name: known_tables[name] if name in known_tables else self._read_table(name) for name in TABLES}

    def take_tables(self) -> dict[str, np.ndarray]:
        """Return the tables and drop our own reference, since they are large and needed only to open the file."""
        tables, self.tables = self.tables, {}
        return tables

    def _check_format(self) -> bool:
        """Check format and version before anything else. Return whether the run finished."""
        if read_text_attribute(self.library, b"format") != FORMAT_NAME:
            raise NotARecordingError(
                f"{format_path(self.path)!r} is an HDF5 file but not a qdebug recording.", hint=HOW_TO_RECORD
            )
        version = read_integer_attribute(self.library, b"format_version")
        if version > FORMAT_VERSION:
            writer = read_text_attribute(self.library, b"created_by")
            raise FormatVersionError(
                f"{format_path(self.path)!r} has recording format {version}"
                f"{f', written by {writer}' if writer else ''}; this qdebug reads up to {FORMAT_VERSION}.",
                hint="Upgrade qdebug: pip install --upgrade qdebug.",
            )
        if version < 1:
            raise ValueError(f"its format version is {version}")
        self.version = version
        return bool(read_integer_attribute(self.library, b"complete"))

    def _read_table(self, name: str) -> np.ndarray:
        """Read a whole table. Fields unknown to this version are dropped."""
        dtype = row_type(name)
        raw, stored_dtype = self._read_raw(name)
        table: np.ndarray = raw.view(stored_dtype)
        if dtype.names is None and stored_dtype != dtype:
            raise ValueError(f"/{name} has elements of type {stored_dtype}")
        return table if dtype.names is None else _select_known_fields(name, table, dtype)

    def _read_raw(self, name: str) -> tuple[np.ndarray, np.dtype[Any]]:
        """Read the bytes of a table, and the type of its rows in the file."""
        _, extent = open_dataset(self._tables_group, name.encode(), file_size=self.size)
        if len(extent.shape) != 1 or extent.shape[0] > (MAX_ROWS if row_type(name).names else _MAX_POOL_ITEMS):
            raise ValueError(f"/{name} has shape {extent.shape}")
        if extent.nbytes and extent.offset is None:
            raise ValueError(f"/{name} is not contiguous")
        if extent.nbytes > MAX_TABLE_RATIO * self.disk_bytes:
            raise ValueError(f"/{name} declares {extent.nbytes} bytes; the file has only {self.disk_bytes} on disk")
        if extent.dtype.itemsize != extent.itemsize:
            raise ValueError(f"/{name} has elements of an unexpected type")
        raw = np.empty(extent.nbytes, np.uint8)
        if extent.nbytes:
            read_bytes(self.fd, int(extent.offset or 0), raw)
        return raw, extent.dtype

    @property
    def tables_hash(self) -> str | None:
        """The recorded hash of the tables in hexadecimal; None if the file has none."""
        return read_text_attribute(self.library, b"tables_hash")

    def hash_tables(self, names: Iterable[str] = ()) -> str:
        """Return the hash of the named tables as stored in the file, in hexadecimal; by default of all tables."""
        return hash_of_tables(
            (name, self._read_raw(name)[0]) for name in names or (*TABLES, *self.optional, *self.location_tables)
        )

    def reopen(self) -> None:
        """Reopen a closed file to read payloads. An open file stays open.

        Raises:
            NotARecordingError: The file no longer exists.
            RecordingError: It was changed, or cannot be opened.
        """
        if self.is_open:
            return
        self.fd = _open_recording(self.path)
        try:
            self.check_unchanged()
            self.payloads = self._open_payloads()
        except BAD_FILE_ERRORS as exc:
            self.close()
            raise damaged_file_error(self.path, exc) from None
        except BaseException:
            self.close()
            raise

    def check_unchanged(self) -> None:
        """Check that the open file has not changed since it was first opened.

        Raises:
            RecordingError: It was written to.
        """
        if _file_identity(self.fd) != self._opened_as:
            raise _changed_error(self.path)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        # HDF5 closes a file once its last object is released. FileID.close would search all open objects.
        self._opened_group = self._file = None
        if self.version == 1 and hasattr(self, "payloads"):
            del self.payloads
        if self.is_open:
            _close(self.fd)
            self.fd = -1


def _changed_error(path: Path) -> RecordingError:
    return RecordingError(
        f"{format_path(path)!r} was changed while it was in use.",
        hint="Run the command again when no program writes to the file. Replace a recording by renaming the new file.",
    )


def _measure_file(fd: int | RemoteFile) -> tuple[int, int]:
    """Return the size and the disk space of a file in bytes. For a file in an object store, both are its size."""
    if not isinstance(fd, int):
        return fd.size, fd.size
    status = os.fstat(fd)
    return status.st_size, status.st_blocks * _BLOCK


def _read_start(fd: int | RemoteFile, count: int) -> bytes:
    """Return the first bytes of a file, or fewer if it has fewer."""
    if isinstance(fd, int):
        return os.pread(fd, count, 0)
    start = np.empty(min(count, fd.size), np.uint8)
    read_bytes(fd, 0, start)
    return start.tobytes()


def _close(fd: int | RemoteFile) -> None:
    if isinstance(fd, int):
        os.close(fd)
    else:
        fd.close()


def _file_identity(fd: int | RemoteFile) -> tuple[object, ...]:
    """Return a value that identifies a file and changes when it is written to."""
    if not isinstance(fd, int):
        return fd.identity
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _open_recording(path: Path) -> int | RemoteFile:
    """Open a file for reading, if it can be a recording at all."""
    fd: int | RemoteFile
    try:
        fd = open_regular(path) if url_of(path) is None else _open_remote(path)
    except NotARecordingError:
        _refuse_unfinished_run(path)
        raise
    start = _read_start(fd, 64)
    if not start.startswith(HDF5_MAGIC):
        _close(fd)
        _refuse_unfinished_run(path)
        if start.lstrip()[:1] == b"{":
            raise NotARecordingError(
                f"{format_path(path)!r} is a JSON file, such as a manifest, not a recording.",
                hint="Give the recordings that it names.",
            )
        if start.startswith(JOURNAL_MAGIC):
            raise _journal_error(path)
        raise NotARecordingError(f"{format_path(path)!r} is not a qdebug recording.", hint=HOW_TO_RECORD)
    return fd


def _open_remote(path: Path) -> RemoteFile:
    from qdebug.recording.reading.remote import RemoteFile  # not needed for local files

    return RemoteFile(path)


def _journal_error(path: Path) -> RecordingError:
    """Return the error for the path of a journal."""
    has_suffix = path.name.endswith(".journal")
    part_path = part_of(target_of(path))
    if has_suffix and not part_path.exists():
        return RecordingError(
            f"{format_path(path)!r} is the journal of an unfinished run; {str(part_path)!r}, which contains the "
            "values, is missing.",
            hint=f"Put that file back into the same folder, then run {recover_command(path)}.",
        )
    output_option = "" if has_suffix else " -o OUT.h5"
    return RecordingError(
        f"{format_path(path)!r} is the journal of a recording, not the recording itself.",
        hint=f"Rebuild the recording: {recover_command(path)}{output_option}.",
    )


def _refuse_unfinished_run(path: Path) -> None:
    """Refuse the path of an unfinished run. The hint explains how to follow or recover it.

    Raises:
        RecordingError: The run did not finish.
    """
    target = target_of(path) if path.is_file() else path
    if not has_unfinished_run(target):
        return
    holder = lock_holder(target)
    if holder == str(os.getpid()) and target is not path:
        return  # this process is the writer, which verifies its own file
    if holder:
        raise RecordingError(
            f"{str(target)!r} is being written by process {holder}.",
            hint="Wait for it to finish, or follow it: qdebug tui REF BACKEND --follow "
            "(in Python: qdebug.open_recording(path, follow=True)).",
        )
    raise RecordingError(f"The run that recorded to {str(target)!r} did not finish.", hint=recover_hint(target))


def _select_known_fields(name: str, table: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a table with the fields of this version.

    The file may order them differently and have additional fields.
    """
    if table.dtype == dtype:
        return table
    result = np.zeros(len(table), dtype=dtype)
    for field in dtype.names or ():
        if field not in (table.dtype.names or ()):
            if name == "index" and field in (*STATISTICS, *TIMES):
                result[field] = 0 if dtype[field].kind == "u" else np.nan
                continue
            raise ValueError(f"/{name} lacks the field {field}")
        if table.dtype[field] != dtype[field]:
            raise ValueError(f"/{name} has a field {field} of type {table.dtype[field]}")
        result[field] = table[field]
    if name == "index" and (missing_columns := set(columns_of_index(result)) - set(table.dtype.names or ())):
        raise ValueError(f"/index lacks {', '.join(sorted(missing_columns))} for rows with statistics")
    return result
