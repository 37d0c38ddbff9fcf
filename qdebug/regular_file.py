"""Open regular files only: a pipe would block, and a device might never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["NotRegularFileError", "open_binary", "open_descriptor", "read_regular"]

_ON_A_SOCKET = (errno.ENXIO, errno.EOPNOTSUPP, errno.ENODEV)
"""What systems answer who opens a socket, or a device that is not there."""


class NotRegularFileError(OSError):
    """There is a folder, a pipe, a socket or a device instead of a file.

    Args:
        path: Its path.
        what: A clause, as "it is a directory".
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        super().__init__(errno.EINVAL, what, os.fspath(path))


def open_descriptor(path: str | os.PathLike[str], *, flags: int = 0) -> int:
    """Open a file for reading; return its descriptor.

    The opened file itself is checked, so that it cannot be exchanged in between.

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
    """Open a file for reading, as `open(path, "rb")` does.

    Raises:
        OSError: It is missing, cannot be read, or is not a regular file.
    """
    return os.fdopen(open_descriptor(path), "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a small file.

    Args:
        path: The file.
        most: Largest size in bytes.

    Raises:
        OSError: It is missing, cannot be read, or is not a regular file.
        ValueError: It is larger.
    """
    with open_binary(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content
