"""Open a file that must be an ordinary one: a pipe would block, a device never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_binary", "open_descriptor", "read_regular"]


def open_descriptor(path: str | os.PathLike[str], *, flags: int = 0) -> int:
    """Open a file for reading; return its descriptor.

    What is looked at is what was opened, so that nobody can put something else in its place in between.

    Args:
        path: The file. A link to one will do.
        flags: Further flags of `os.open`.

    Raises:
        OSError: It is missing, cannot be read, or is no regular file. Nothing waits for the other end of a pipe.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        what = "it is a directory" if stat.S_ISDIR(kind) else "it is no regular file"
        raise OSError(errno.EINVAL, what, os.fspath(path))
    return descriptor


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading, as `open(path, "rb")` does.

    Raises:
        OSError: It is missing, cannot be read, or is no regular file.
    """
    return os.fdopen(open_descriptor(path), "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a small file.

    Args:
        path: The file.
        most: Bytes that it may have.

    Raises:
        OSError: It is missing, cannot be read, or is no regular file.
        ValueError: It has more bytes.
    """
    with open_binary(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content
