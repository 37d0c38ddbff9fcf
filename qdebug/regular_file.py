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

_UNOPENABLE_ERRNOS = (errno.ENXIO, errno.EOPNOTSUPP, errno.ENODEV)
"""Error codes of systems for opening a socket, or a device node without a device."""


_MAX_NAMES = 2000
"""Maximum number of names in a folder that are compared with a mistyped name."""


def near_file(path: str | os.PathLike[str]) -> str:
    """Return " Did you mean 'FILE'?" for a missing file, naming the most similar name in its folder; "" if none is."""
    missing = Path(path)
    try:
        with os.scandir(missing.parent) as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES)]
    except (OSError, ValueError):  # the folder is missing or unreadable, or the path contains a null byte
        return ""
    close_matches = get_close_matches(missing.name, sorted(names), n=1)
    return f" Did you mean {str(missing.with_name(close_matches[0]))!r}?" if close_matches else ""


class NotRegularFileError(OSError):
    """The path is a folder, a pipe, a socket or a device rather than a file.

    Args:
        path: The path.
        what: Clause that states the problem, such as "it is a directory".
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        super().__init__(errno.EINVAL, what, os.fspath(path))


def open_descriptor(path: str | os.PathLike[str], *, flags: int = 0) -> int:
    """Open a regular file for reading, and return its descriptor.

    The type is checked on the open descriptor, so the file cannot be replaced between the check and the opening.

    Args:
        path: The file, or a link to one.
        flags: Further flags of `os.open`.

    Raises:
        OSError: The file is missing or cannot be read.
        NotRegularFileError: The path is not a regular file. A pipe without a writer raises this at once too.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except ValueError:  # the name contains a null byte or a lone surrogate
        raise NotRegularFileError(path, "no file can have this name") from None
    except OSError as error:
        if error.errno in _UNOPENABLE_ERRNOS:
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
        OSError: The file is missing, cannot be read, or is not a regular file.
    """
    return os.fdopen(open_descriptor(path), "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a small file.

    Args:
        path: The file.
        most: Maximum size in bytes.

    Raises:
        OSError: The file is missing, cannot be read, or is not a regular file.
        ValueError: The file is larger than `most`.
    """
    with open_binary(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content
