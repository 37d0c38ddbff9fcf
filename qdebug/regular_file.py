"""Open only regular files: a pipe would block, and a device might never end."""

from __future__ import annotations

import errno
import os
import stat
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import BinaryIO

__all__ = ["NotRegularFileError", "near_file", "open_binary", "open_descriptor", "read_regular"]

_ON_A_SOCKET = (errno.ENXIO, errno.EOPNOTSUPP, errno.ENODEV)
"""Errors that systems return for opening a socket, or a device that does not exist."""


_NAMES_READ = 2000
"""Entries of a folder that are compared with a mistyped name."""


def near_file(path: str | os.PathLike[str]) -> str:
    """Return a blank and a question that names the file beside a missing one with the most similar name, or ""."""
    missing = Path(path)
    try:
        with os.scandir(missing.parent) as entries:
            names = [entry.name for entry in islice(entries, _NAMES_READ)]
    except (OSError, ValueError):  # the folder is missing or hidden too, or the path holds a null byte
        return ""
    close_matches = get_close_matches(missing.name, sorted(names), n=1)
    return f" Did you mean {str(missing.with_name(close_matches[0]))!r}?" if close_matches else ""


class NotRegularFileError(OSError):
    """The path is a folder, a pipe, a socket or a device rather than a file.

    Args:
        path: Its path.
        what: A clause, such as "it is a directory".
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        super().__init__(errno.EINVAL, what, os.fspath(path))


def open_descriptor(path: str | os.PathLike[str], *, flags: int = 0) -> int:
    """Open a file for reading. Return its descriptor.

    The check is made on the opened file, so that it cannot be replaced in between.

    Args:
        path: The file, or a link to one.
        flags: Further flags of `os.open`.

    Raises:
        OSError: It is missing or cannot be read.
        NotRegularFileError: It is not a regular file. A pipe does not block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except ValueError:  # a NUL in the name, or half a character
        raise NotRegularFileError(path, "no file can have this name") from None
    except OSError as error:
        if error.errno in _ON_A_SOCKET:
            raise NotRegularFileError(path, "it is not a regular file") from None
        raise
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        raise NotRegularFileError(path, "it is a directory" if stat.S_ISDIR(kind) else "it is not a regular file")
    return descriptor


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading, like `open(path, "rb")`.

    Raises:
        OSError: It is missing, cannot be read, or is not a regular file.
    """
    return os.fdopen(open_descriptor(path), "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a small file.

    Args:
        path: The file.
        most: Maximum size in bytes.

    Raises:
        OSError: It is missing, cannot be read, or is not a regular file.
        ValueError: It is larger than that.
    """
    with open_binary(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content
