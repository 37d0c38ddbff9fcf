"""The HDF5 file under a recording: opened, checked, its tables read. Nothing here knows what they mean."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5f, h5p

from qdebug.errors import FormatVersionError, NotARecordingError, RecordingError
from qdebug.store.journal import MAGIC as JOURNAL_MAGIC
from qdebug.store.layout import (
    FORMAT_NAME,
    FORMAT_VERSION,
    OPTIONAL_TABLES,
    PAYLOADS,
    TABLES,
    TablesHash,
    payload_key,
)
from qdebug.store.safety import (
    MAX_ROWS,
    Extent,
    open_checked,
    open_group,
    read_bytes,
    read_text_attribute,
)
from qdebug.store.target import journal_of, lock_holder, part_of, recover_command, recover_hint, unfinished

__all__ = ["BAD_FILE", "Container", "damaged"]

BAD_FILE = (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, MemoryError)
"""What h5py and numpy raise on a file that is not what it seems."""

_MAGIC = b"\x89HDF\r\n\x1a\n"
_POOL_ITEMS = 64 * MAX_ROWS
_RECORD = "Record a run first: qdebug record MODEL --backend NAME --inputs FILE.npz -o OUT.h5."


class Container:
    """An open recording file whose format, links, storage, types and sizes are those of the layout.

    Args:
        path: The file.

    Raises:
        NotARecordingError: The file is missing or is something else.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is damaged, or holds what a recording never does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = _open_regular(path)
        self._file: Any = None
        try:
            self.size = os.fstat(self.fd).st_size
            self._file = _open_hdf5(path, self.fd)
            self.complete = self._check_format()
            self.tables = {name: self._table(name) for name in TABLES}
            self.optional = {name: self._table(name) for name in OPTIONAL_TABLES if self._has(name)}
            self.tables_hash = read_text_attribute(self._file, b"tables_hash")
            self._payloads = open_group(self._file, PAYLOADS.encode())
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

    def take_tables(self) -> dict[str, np.ndarray]:
        """Give the tables away, to be kept only as long as they are needed; `tables` is empty from then on."""
        tables, self.tables = self.tables, {}
        return tables

    def _check_format(self) -> bool:
        """Check format and version before anything else is looked at; tell whether the run finished."""
        if read_text_attribute(self._file, b"format") != FORMAT_NAME:
            raise NotARecordingError(f"{str(self.path)!r} is an HDF5 file but no qdebug recording.", hint=_RECORD)
        version = self._integer_attribute(b"format_version")
        if version > FORMAT_VERSION:
            writer = read_text_attribute(self._file, b"created_by")
            raise FormatVersionError(
                f"{str(self.path)!r} has recording format {version}{f', written by {writer}' if writer else ''}; "
                f"this qdebug reads up to {FORMAT_VERSION}.",
                hint="Upgrade qdebug: pip install --upgrade qdebug.",
            )
        if version < 1:
            raise ValueError(f"its format version is {version}")
        return bool(self._integer_attribute(b"complete"))

    def _integer_attribute(self, name: bytes) -> int:
        if not h5py.h5a.exists(self._file, name):
            raise ValueError(f"it lacks the attribute {name.decode()}")
        attribute = h5py.h5a.open(self._file, name)
        if attribute.get_type().get_class() != h5py.h5t.INTEGER or attribute.shape != ():
            raise ValueError(f"its attribute {name.decode()} is no integer")
        value = np.zeros((), dtype=np.int64)
        attribute.read(value)
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
        dataset, extent = open_checked(self._file, name.encode(), file_size=self.size)
        if len(extent.shape) != 1 or extent.shape[0] > (MAX_ROWS if _row_type(name).names else _POOL_ITEMS):
            raise ValueError(f"/{name} has shape {extent.shape}")
        if extent.nbytes and extent.offset is None:
            raise ValueError(f"/{name} is not contiguous")
        stored: np.dtype[Any] = dataset.dtype
        if stored.itemsize != extent.itemsize:
            raise ValueError(f"/{name} has elements of a foreign type")
        raw = np.empty(extent.nbytes, np.uint8)
        if extent.nbytes:
            read_bytes(self.fd, int(extent.offset or 0), raw)
        return raw, stored

    def hash_tables(self) -> str:
        """Give the hash of the tables as they lie in the file, in hexadecimal."""
        digest = TablesHash()
        for name in (*TABLES, *self.optional):
            digest.add(name, self._raw(name)[0])
        return digest.hexdigest()

    def open_payload(self, number: int) -> tuple[Any, Extent]:
        """Open a payload's dataset (h5py DatasetID), checked.

        Raises:
            ValueError: It is missing or is something that a recording never contains.
        """
        return open_checked(self._payloads, payload_key(number), file_size=self.size)

    def close(self) -> None:
        """Close the file. Again does nothing."""
        self._payloads = None  # an open group would keep the file open
        if self._file is not None and self._file.valid:
            self._file.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def damaged(path: Path, what: Exception | str) -> RecordingError:
    """Make the error for a file that is not what it should be."""
    lines = str(what).splitlines()
    return RecordingError(
        f"{str(path)!r} is damaged: {lines[0].rstrip('.') if lines else type(what).__name__}.",
        hint="Record the run again, or restore the file.",
    )


def _open_regular(path: Path) -> int:
    """Open a file for reading if it can be a recording at all."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        _check_finished(path)
        raise NotARecordingError(
            f"There is no file {str(path)!r}.", hint="Check the path, or record a run first."
        ) from None
    except (OSError, ValueError) as exc:
        reason = os.strerror(exc.errno).lower() if isinstance(exc, OSError) and exc.errno else str(exc)
        raise NotARecordingError(f"{str(path)!r} cannot be opened: {reason}.", hint=_RECORD) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotARecordingError(f"{str(path)!r} is no regular file.", hint=_RECORD)
    start = os.pread(fd, 64, 0)
    if not start.startswith(_MAGIC):
        os.close(fd)
        _check_finished(path)
        if start.lstrip()[:1] == b"{":
            raise NotARecordingError(
                f"{str(path)!r} is JSON, such as a manifest, and no recording file.",
                hint="Give the recordings that it names.",
            )
        if start.startswith(JOURNAL_MAGIC):
            raise _lone_journal(path)
        raise NotARecordingError(f"{str(path)!r} is no qdebug recording.", hint=_RECORD)
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
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fapl_sec2()
    try:
        file = h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=access)
    except OSError:
        access.set_file_locking(False, True)  # noqa: FBT003  h5py takes them by position
        file = h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=access)
    if not os.path.samestat(os.fstat(fd), os.fstat(int(file.get_vfd_handle()))):
        file.close()
        raise ValueError("it was replaced while it was opened")
    return file


def _row_type(name: str) -> np.dtype[Any]:
    return TABLES[name] if name in TABLES else OPTIONAL_TABLES[name]


def _known_fields(name: str, table: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Give a table with this version's fields, whatever the order and further fields of the file."""
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
