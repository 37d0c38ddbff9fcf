"""Files in object stores, read by ranges through fsspec (extra `remote`).

Data is fetched in blocks of 64 kB, adjacent blocks in a single request, and cached in a sparse temporary file. A
comparison reads a tensor several times, and HDF5 reads many small pieces of the tables, but each block is fetched only
once. Read-ahead is disabled, since fsspec would fetch megabytes around each table.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from qdebug.errors import MissingExtraError, NotARecordingError, RecordingError
from qdebug.recording.remote_url import format_path
from qdebug.recording.target import describe_cause

__all__ = ["RemoteFile"]

_BLOCK = 1 << 16
"""Bytes per block, the minimum that is fetched. Larger blocks would fetch unneeded data around small tensors."""
_MOST_BLOCKS = 512
"""Maximum number of blocks per request, which are in memory at the same time: 32 MB."""
_IDENTITY_KEYS = (
    *("size", "ETag", "etag", "generation", "blob_id", "xet_hash"),
    *("mtime", "created", "LastModified", "Last-Modified"),
)
"""Metadata that changes when a file is rewritten, under the names that the stores use."""
_NOT_FOUND = 404
_LOGGERS = ("fsspec", "gcsfs", "s3fs")
"""Loggers of packages that print tracebacks of errors, although this module already reports them."""
_PACKAGE_OF_SCHEME = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
}


class RemoteFile(io.RawIOBase):
    """A file in an object store, open for reading.

    Args:
        path: Its URL, as a path.

    Raises:
        MissingExtraError: fsspec, or its package for this kind of store, is not installed.
        NotARecordingError: The file is missing, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._url = format_path(path)
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise MissingExtraError("fsspec", extra="remote", purpose=f"Reading {self._url!r}") from None
        for logger in map(logging.getLogger, _LOGGERS):
            if not logger.hasHandlers():  # with handlers, the user has decided where its messages go
                logger.addHandler(logging.NullHandler())
        try:
            self._store, self._name = url_to_fs(self._url)
            self._store.invalidate_cache()  # the file may have changed since this process listed its folder
            facts = self._store.info(self._name)
        except ImportError as error:
            package = _PACKAGE_OF_SCHEME.get(self._url.partition("://")[0], "fsspec")
            raise NotARecordingError(
                f"{self._url!r} cannot be opened: {error}.", hint=f"Install the package: pip install {package}."
            ) from None
        except FileNotFoundError as error:
            raise _not_found_error(self._url, self._name, error) from None
        except Exception as error:  # noqa: BLE001  each store raises errors of its own types
            raise _unreadable_error(self._url, error) from None
        if facts.get("type") != "file" or not isinstance(facts.get("size"), int):
            raise NotARecordingError(f"{self._url!r} is not a file of known size.", hint="Give the URL of a recording.")
        self.size: int = facts["size"]
        self.identity = tuple(str(facts.get(key)) for key in _IDENTITY_KEYS)
        self._position = 0
        self._lock = RLock()
        self._local_file = tempfile.TemporaryFile(prefix="qdebug-")  # noqa: SIM115  closed with this object
        try:
            self._local_file.truncate(self.size)
        except OSError as error:
            raise _unreadable_error(self._url, error) from None
        self._is_fetched = np.zeros(-(-self.size // _BLOCK), bool)

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill a buffer with the bytes at an offset.

        Raises:
            ValueError: The file is too short.
            RecordingError: The store does not answer, or the disk is full.
        """
        if offset < 0 or offset + len(out) > self.size:
            raise ValueError("it ends too early")
        if not len(out):
            return
        with self._lock:
            first, last = offset // _BLOCK, (offset + len(out) - 1) // _BLOCK
            missing = np.flatnonzero(~self._is_fetched[first : last + 1]) + first
            for run in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1) if missing.size else ():
                for start in range(int(run[0]), int(run[-1]) + 1, _MOST_BLOCKS):
                    self._fetch_blocks(start, min(start + _MOST_BLOCKS, int(run[-1]) + 1))
        while out:
            count = os.preadv(self._local_file.fileno(), [out], offset)
            out, offset = out[count:], offset + count

    def _fetch_blocks(self, first: int, end: int) -> None:
        """Fetch adjacent blocks, from `first` up to but excluding `end`, into the local file."""
        start = first * _BLOCK
        content = self._fetch(start, min(end * _BLOCK, self.size) - start)
        try:
            self._local_file.seek(start)
            self._local_file.write(content)
            self._local_file.flush()
        except OSError as error:
            folder = tempfile.gettempdir()
            raise RecordingError(
                f"Parts of {self._url!r} cannot be cached in {folder!r}: {describe_cause(error)}.",
                hint="Make room there, or set TMPDIR to a folder with room.",
            ) from None
        self._is_fetched[first:end] = True

    def _fetch(self, offset: int, count: int) -> bytes:
        # A store without async support opens the file for each range, and would read 5 MB ahead by default.
        options = {} if self._store.async_impl else {"cache_type": "none"}
        try:
            content: bytes = self._store.cat_file(self._name, start=offset, end=offset + count, **options)
        except Exception as error:  # noqa: BLE001  each store raises errors of its own types
            raise _unreadable_error(self._url, error) from None
        if len(content) > count:
            raise NotARecordingError(
                f"The server of {self._url!r} cannot send parts of a file.",
                hint="Download the file, and give its path.",
            )
        if len(content) != count:
            raise RecordingError(f"{self._url!r} was changed while it was in use.", hint="Run the command again.")
        return content

    def close(self) -> None:
        """Delete the cached data. A second call does nothing."""
        if hasattr(self, "_local_file"):
            self._local_file.close()
        super().close()

    # -- file methods that the HDF5 library calls

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the current position; return the number of bytes."""
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(self.size - self._position, 0))
        self.read_into(self._position, view[:count])
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, and return it."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True


def _not_found_error(url: str, name: str, error: FileNotFoundError) -> NotARecordingError:
    """Return the error for a FileNotFoundError, which some stores also raise if they cannot be reached."""
    cause = error.__cause__
    if not isinstance(cause, Exception) or getattr(cause, "status", None) == _NOT_FOUND:
        return NotARecordingError(f"There is no file {url!r}.", hint="Check the URL.")
    # For HTTP, fsspec raises FileNotFoundError for any failure, with only the URL as its text.
    return _unreadable_error(url, cause if str(error) in (url, name) else error)


def _unreadable_error(url: str, error: Exception) -> NotARecordingError:
    reason = (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")
    return NotARecordingError(
        f"{url!r} cannot be read: {reason}.", hint="Check the URL, the network and the credentials of the store."
    )
