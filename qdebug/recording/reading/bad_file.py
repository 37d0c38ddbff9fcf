"""Errors of a damaged file, or of a file that this process lacks the resources to read."""

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
"""Exceptions raised by corrupt files. KeyError, TypeError and AttributeError are bugs of this package: not caught."""

_CUT = re.compile(r"truncated file: eof = (\d+).*stored_eof = (\d+)")
"""HDF5's message for a file that is shorter than its header states."""


def damaged(path: Path, what: Exception | str, *, at: str = "") -> RecordingError:
    """Return the error for a damaged file, or for one that this process lacks the resources to read.

    Args:
        path: The file.
        what: The fault, or the exception.
        at: A prefix of the message.
    """
    short = next((said for said in _SHORTAGES if said.causes(what)), None) if isinstance(what, Exception) else None
    if short is not None:
        return RecordingError(f"{str(path)!r} cannot be read: {short.what}.", hint=short.hint)
    cut = _CUT.search(str(what))
    if cut is not None:
        return RecordingError(
            f"{str(path)!r} is cut off: {int(cut[1]):,} of its {int(cut[2]):,} bytes are there.",
            hint="Copy the file again, or record the run again.",
        )
    lines = str(what).splitlines()
    return RecordingError(
        f"{str(path)!r} is damaged: {at}{lines[0].rstrip('.') if lines else type(what).__name__}.",
        hint="Record the run again, or restore the file.",
    )


class _Shortage(NamedTuple):
    """A resource that a process may lack while it reads a sound file."""

    what: str
    hint: str
    numbers: tuple[int, ...]
    kind: type[Exception] | None = None

    def causes(self, error: Exception) -> bool:
        """Tell whether an error comes from this shortage."""
        is_of_kind = self.kind is not None and isinstance(error, self.kind)
        return is_of_kind or (isinstance(error, OSError) and error.errno in self.numbers)


_SHORTAGES = (
    _Shortage(
        "there is not enough memory",
        "Close other programs, or look at one sample: --sample N.",
        (errno.ENOMEM,),
        MemoryError,
    ),
    _Shortage("too many files are open", "Raise the limit: ulimit -n 65536.", (errno.EMFILE, errno.ENFILE)),
)
