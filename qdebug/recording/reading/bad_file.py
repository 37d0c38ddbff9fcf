"""Errors for a damaged file, or for a file that this process lacks the resources to read."""

from __future__ import annotations

import errno
import re
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from qdebug.errors import RecordingError

__all__ = ["BAD_FILE", "damaged"]

BAD_FILE = (OSError, RuntimeError, ValueError, EOFError, OverflowError, MemoryError, zlib.error, struct.error)
"""Exceptions raised by corrupt files.

KeyError, TypeError and AttributeError are bugs in this package and not caught.
"""

_CUT = re.compile(r"truncated file: eof = (\d+).*stored_eof = (\d+)")
"""HDF5's message for a file that is shorter than its header states."""


def damaged(path: Path, fault: Exception | str, *, at: str = "") -> RecordingError:
    """Return the error for a damaged file, or for one that this process lacks the resources to read.

    Args:
        path: The file.
        fault: The description of the fault, or the exception.
        at: A prefix of the message.
    """
    shortage = next((said for said in _SHORTAGES if said.causes(fault)), None) if isinstance(fault, Exception) else None
    if shortage is not None:
        return RecordingError(f"{str(path)!r} cannot be read: {shortage.what}.", hint=shortage.hint)
    cut = _CUT.search(str(fault))
    if cut is not None:
        return RecordingError(
            f"{str(path)!r} is truncated: only {int(cut[1]):,} of its {int(cut[2]):,} bytes are there.",
            hint="Copy the file again, or record the run again.",
        )
    lines = str(fault).splitlines()
    return RecordingError(
        f"{str(path)!r} is damaged: {at}{lines[0].rstrip('.') if lines else type(fault).__name__}.",
        hint="Record the run again, or restore the file.",
    )


class _Shortage(NamedTuple):
    """A resource that a process may run out of while it reads an intact file."""

    what: str
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
