"""A cache on disk of columns computed from two recordings. It is valid as long as neither they nor the code change.

Cache files are in the folder `BACKEND.qdebug-cache` next to the backend's file or, if that cannot be written, in the
user's cache folder (`~/.cache/qdebug`, on macOS `~/Library/Caches/qdebug`). There is one file for each key, and the
oldest files are dropped when there are too many. The cache can be deleted at any time.

A file is `_MAGIC`, the xxh3-128 of everything after it, the key, the length of a JSON header as a little-endian uint32,
the header ([[name, dtype, elements], ...]) and the columns' bytes in the same order. A reader trusts nothing: a file of
another user, with another key, a wrong checksum or an invalid header is ignored. Reading and writing never raise: an
unusable cache only costs time.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import xxhash

from qdebug import version
from qdebug.model import Recording
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.remote_url import url_of

__all__ = ["ColumnCache", "user_folder"]

_MAGIC = b"qdebug columns 1\n"
_LENGTH = struct.Struct("<I")
_DTYPES = {"<f8", "<i8", "|u1"}
_MOST_BYTES = 1 << 29
_OVERHEAD_BYTES = 64
_SUBJECT_BYTES = 8
"""Leading bytes of a key, which depend on the recordings and facts. The other bytes depend on the code as well."""
_NAME = re.compile(r"[0-9a-f]{32}(\.\w+)?")
_MAX_FILES_BESIDE, _MAX_FILES_IN_HOME = 8, 64


class ColumnCache:
    """The cached columns of one pair of recordings.

    Args:
        backend: The backend's file.
        key: Identifies everything that the columns depend on.
    """

    _is_disabled = False

    def __init__(self, backend: Path, key: bytes) -> None:
        self._key = key
        self._neighbour_folder = backend.with_name(f"{backend.name}.qdebug-cache")

    @classmethod
    def disable(cls) -> None:
        """Disable the cache in this process from now on."""
        cls._is_disabled = True

    @classmethod
    def of(
        cls, reference: Recording, backend: Recording, *, facts: Iterable[str], versions: Sequence[str] = ()
    ) -> Self | None:
        """Return the cache of two recordings; None if either is not a local file, or if this process has no cache.

        Args:
            reference: The reference run.
            backend: The backend run.
            facts: Further dependencies of the columns, besides the recordings and the code.
            versions: Dependencies that change only with the code.
        """
        if cls._is_disabled or not (isinstance(reference, FileRecording) and isinstance(backend, FileRecording)):
            return None
        if url_of(reference.path) or url_of(backend.path):
            return None
        try:
            sides = [_file_identity(side) for side in (reference, backend)]
        except OSError:  # the file was deleted while it was open
            return None
        subject = _digest_texts(chain(sides, facts))
        return cls(
            backend.path,
            subject[:_SUBJECT_BYTES] + _digest_texts([subject.hex(), *_code_stamps(), *versions])[_SUBJECT_BYTES:],
        )

    def read(self) -> dict[str, np.ndarray] | None:
        """Return the columns that were written for this key; None if no usable ones exist."""
        for folder, _ in self._folders():
            try:
                return _parse(_read_own(folder / self._key.hex()), self._key)
            except (OSError, ValueError):
                continue
        return None

    def has_outdated_columns(self) -> bool:
        """Return whether a different version of the code cached columns for the same recordings and facts."""
        subject = self._key[:_SUBJECT_BYTES].hex()
        for folder, _ in self._folders():
            with contextlib.suppress(OSError):
                names = {path.name for path in folder.iterdir() if _NAME.fullmatch(path.name)}
                if any(name.startswith(subject) and "." not in name and name != self._key.hex() for name in names):
                    return True
        return False

    def write(self, columns: Mapping[str, np.ndarray]) -> None:
        """Store columns, if a cache folder is usable.

        Args:
            columns: One-dimensional arrays of float64, int64 or uint8.
        """
        header = json.dumps([[name, column.dtype.str, column.size] for name, column in columns.items()]).encode()
        if len(header) + sum(column.nbytes for column in columns.values()) >= _MOST_BYTES - _OVERHEAD_BYTES:
            return
        content = [self._key, _LENGTH.pack(len(header)), header, *(column.tobytes() for column in columns.values())]
        for folder, max_files in self._folders():
            try:
                _write_atomically(folder, self._key.hex(), content)
            except OSError:
                continue
            _drop_oldest(folder, max_files)
            return

    def _folders(self) -> Sequence[tuple[Path, int]]:
        """Return the candidate folders, and the maximum number of files in each."""
        user_cache = user_folder()
        return [
            (self._neighbour_folder, _MAX_FILES_BESIDE),
            *([(user_cache, _MAX_FILES_IN_HOME)] if user_cache else []),
        ]


def user_folder() -> Path | None:
    """Return the folder for caches that cannot be next to a recording; None if the user has no home folder."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / "Library" / "Caches" / "qdebug" if sys.platform == "darwin" else home / ".cache" / "qdebug"


def _digest_texts(facts: Iterable[str]) -> bytes:
    encoded_facts = [fact.encode("utf-8", "surrogatepass") for fact in facts]
    return _digest_pieces(_LENGTH.pack(len(fact)) + fact for fact in encoded_facts)


def _digest_pieces(pieces: Iterable[bytes]) -> bytes:
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def _file_identity(recording: FileRecording) -> str:
    # The content hash covers the recorded hashes of the values, so it misses values that a tool edited in place. The
    # file's size and times reveal such an edit: a tool can set back the modification time, but not the change time.
    status = recording.path.stat()
    return f"{recording.content_hash} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _code_stamps() -> list[str]:
    """Return texts that change with the code. In a working copy, code changes without a change of the version."""
    stamps = [f"qdebug {version.__version__}", f"numpy {np.__version__}", platform.machine()]
    with contextlib.suppress(metadata.PackageNotFoundError):  # onnx is optional; its evaluator replays some operators
        stamps.append(f"onnx {metadata.version('onnx')}")
    with contextlib.suppress(OSError):  # code in an archive has no files: only its version identifies it
        for path in sorted(Path(version.__file__).parent.glob("**/*.py")):
            status = path.stat()
            stamps.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    return stamps


def _parse(content: bytes, key: bytes) -> dict[str, np.ndarray]:
    """Parse a cache file.

    Raises:
        ValueError: It is damaged, or has a different key.
    """
    start = len(_MAGIC) + 16
    view = memoryview(content)
    if content[:start] != _MAGIC + xxhash.xxh3_128_digest(view[start:]):
        raise ValueError("it is damaged")
    if content[start : start + 16] != key:
        raise ValueError("it is stored under another key")
    start += 16
    if len(content) < start + _LENGTH.size:
        raise ValueError("it has no header")
    (length,) = _LENGTH.unpack_from(content, start)
    start += _LENGTH.size
    header, start = content[start : start + length], start + length
    columns: dict[str, np.ndarray] = {}
    try:
        for name, dtype, size in json.loads(header):
            if (
                not isinstance(name, str)
                or name in columns
                or dtype not in _DTYPES
                or type(size) is not int
                or size < 0
            ):
                raise ValueError("its header describes no column, or a column twice")
            end = start + size * np.dtype(dtype).itemsize
            if end > len(content):
                raise ValueError(f"column {name!r} is truncated")
            columns[name] = np.frombuffer(view[start:end], dtype)
            start = end
    except (TypeError, RecursionError) as error:
        raise ValueError("its header is not a list of columns") from error
    if start != len(content):
        raise ValueError("data follows the last column")
    return columns


def _read_own(path: Path) -> bytes:
    """Read a file that belongs to the current user.

    Raises:
        OSError: The file does not exist.
        ValueError: It belongs to a different user, is too large, or is not a regular file.
    """
    # Opening a pipe must not block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor has no path
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_size > _MOST_BYTES:
            raise ValueError("it belongs to another user")
        return file.read(_MOST_BYTES)


def _write_atomically(folder: Path, name: str, content: Sequence[bytes]) -> None:
    """Write a digest and its content to a temporary file, then rename the complete file.

    Raises:
        OSError: The folder cannot be created or written, or is a link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise NotADirectoryError(str(folder))
    descriptor, temporary = tempfile.mkstemp(prefix=f"{name}.", dir=folder)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor has no path
            file.write(_MAGIC + _digest_pieces(content))
            file.writelines(content)
        Path(temporary).replace(folder / name)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _drop_oldest(folder: Path, max_files: int) -> None:
    """Delete all but the newest cache files of a folder, including incomplete files left by a crash."""
    with contextlib.suppress(OSError):
        cache_files = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        for path in sorted(cache_files, key=lambda path: path.lstat().st_mtime_ns)[:-max_files]:
            path.unlink(missing_ok=True)
