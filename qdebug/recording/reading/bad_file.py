"""Errors of a file that is not what it should be, or that this process lacks the means to read."""

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
"""Exceptions raised by corrupt files. KeyError, TypeError and AttributeError are bugs of this package: they stay so."""

_CUT = re.compile(r"truncated file: eof = (\d+).*stored_eof = (\d+)")
"""What HDF5 says of a file that is shorter than its head says."""


def damaged(path: Path, what: Exception | str, *, at: str = "") -> RecordingError:
    """Make the error for a file that is not what it should be, or that this process lacks the means to read.

    Args:
        path: The file.
        what: What was found or raised.
        at: What goes before it.
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
    """What a process may run out of while it reads a file that is all right."""

    what: str
    hint: str
    numbers: tuple[int, ...]
    kind: type[Exception] | None = None

    def causes(self, error: Exception) -> bool:
        """Tell whether it is what an error is of."""
        known = self.kind is not None and isinstance(error, self.kind)
        return known or (isinstance(error, OSError) and error.errno in self.numbers)


_SHORTAGES = (
    _Shortage(
        "there is not enough memory",
        "Close other programs, or look at one sample: --sample N.",
        (errno.ENOMEM,),
        MemoryError,
    ),
    _Shortage("too many files are open", "Raise the limit: ulimit -n 65536.", (errno.EMFILE, errno.ENFILE)),
)
