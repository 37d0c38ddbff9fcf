"""Whether the terminal's background is light: asked of the terminal itself before the interface takes it over.

OSC 11 asks for the background's colour (xterm, "Operating System Commands"); a device attributes query after it
makes every terminal answer something, so that one that knows no OSC 11 costs no waiting. It is asked before libraries
are loaded and read after, so that a slow line costs none either. A terminal that answers nothing in time is taken to be
dark.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from contextlib import suppress

from qdebug.tui.console.terminal import keep_typed

__all__ = ["BackgroundQuestion", "parse_colour"]

_SECONDS = 0.1
_ASK = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")
_ANSWERS = re.compile(rb"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)|" + _ATTRIBUTES.pattern)


class BackgroundQuestion:
    """The question, put when it is made; the terminal has to hand over what it is sent as it comes."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _SECONDS
        self._keys = -1
        with suppress(OSError, ValueError):
            if sys.__stdin__ is not None and sys.__stderr__ is not None and sys.__stdin__.isatty():
                os.write(sys.__stderr__.fileno(), _ASK)
                self._keys = sys.__stdin__.fileno()

    def is_light(self) -> bool:
        """Tell whether the background is light; what else came was typed, and is kept for the interface."""
        came = self._came()
        keep_typed(_ANSWERS.sub(b"", came))
        bright = parse_colour(came)
        return bright is not None and bright > 0.5

    def _came(self) -> bytes:
        """Give what has come, waiting for the answer no longer than it may take."""
        came = b""
        with suppress(OSError):
            while self._keys >= 0 and not _ATTRIBUTES.search(came):
                if not select.select([self._keys], [], [], max(self._until - time.monotonic(), 0))[0]:
                    break
                data = os.read(self._keys, 4096)
                if not data:
                    break
                came += data
        return came


def parse_colour(answer: bytes) -> float | None:
    """Give the brightness, 0 to 1, out of the answer to OSC 11 (weights of Rec. 709); None if there is none in it."""
    found = _COLOUR.search(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / float(16 ** len(part) - 1) for part in found.groups())
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
