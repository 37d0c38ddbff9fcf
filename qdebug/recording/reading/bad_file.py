"""Errors for a damaged file, or for a file that this process lacks the resources to read."""

from __future__ import annotations

import errno
import re
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from qdebug.errors import RecordingError
from qdebug.recording.remote_url import format_path

__all__ = ["BAD_FILE_ERRORS", "damaged_file_error"]

BAD_FILE_ERRORS = (OSError, RuntimeError, ValueError, EOFError, OverflowError, MemoryError, zlib.error, struct.error)
"""Exceptions raised by corrupt files.

KeyError, TypeError and AttributeError indicate bugs in this package, so they are not caught.
"""

_TRUNCATED_PATTERN = re.compile(r"truncated file: eof = (\d+).*stored_eof = (\d+)")
"""Matches HDF5's message for a file that is shorter than its header states."""


def damaged_file_error(path: Path, fault: Exception | str, *, prefix: str = "") -> RecordingError:
    """Return the error for a damaged file, or for one that this process lacks the resources to read.

    Args:
        path: The file.
        fault: The description of the fault, or the exception.
        prefix: A prefix of the message.
    """
    shortage = (
        next((entry for entry in _SHORTAGES if entry.causes(fault)), None) if isinstance(fault, Exception) else None
    )
    if shortage is not None:
        return RecordingError(f"{format_path(path)!r} cannot be read: {shortage.description}.", hint=shortage.hint)
    truncation = _TRUNCATED_PATTERN.search(str(fault))
    if truncation is not None:
        return RecordingError(
            f"{format_path(path)!r} is truncated: only {int(truncation[1]):,} of its {int(truncation[2]):,} bytes "
            "are present.",
            hint="Copy the file again, or record the run again.",
        )
    lines = str(fault).splitlines()
    return RecordingError(
        f"{format_path(path)!r} is damaged: {prefix}{lines[0].rstrip('.') if lines else type(fault).__name__}.",
        hint="Record the run again, or restore the file.",
    )


class _Shortage(NamedTuple):
    """A shortage of a resource that may prevent a process from reading an intact file."""

    description: str
    hint: str
    numbers: tuple[int, ...]
    kind: type[Exception] | None = None

    def causes(self, error: Exception) -> bool:
        """Return whether an error comes from this shortage."""
        is_of_kind = self.kind is not None and isinstance(error, self.kind)
        return is_of_kind or (isinstance(error, OSError) and error.errno in self.numbers)


_SHORTAGES = (
    _Shortage(
        "there is not enough memory",
        "Close other programs, or compare one sample only: --sample N.",
        (errno.ENOMEM,),
        MemoryError,
    ),
    _Shortage("too many files are open", "Raise the limit: ulimit -n 65536.", (errno.EMFILE, errno.ENFILE)),
)
