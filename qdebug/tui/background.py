"""Whether the terminal's background is light: asked of the terminal itself before the interface takes it over.

OSC 11 asks for the background's colour (xterm, "Operating System Commands"); a device attributes query after it
makes every terminal answer something, so that one that knows no OSC 11 costs no waiting. A terminal that answers
nothing in time is taken to be dark.
"""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty

__all__ = ["is_light", "parse_colour"]

_SECONDS = 0.1
_ASK = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


def is_light() -> bool:
    """Tell whether the terminal has a light background."""
    answer = _asked()
    bright = None if answer is None else parse_colour(answer)
    return bright is not None and bright > 0.5


def parse_colour(answer: bytes) -> float | None:
    """Give the brightness, 0 to 1, out of the answer to OSC 11 (weights of Rec. 709); None if there is none in it."""
    found = _COLOUR.search(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / float(16 ** len(part) - 1) for part in found.groups())
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _asked() -> bytes | None:
    """Ask, and give what came back in time; None where it cannot be asked."""
    out = sys.__stderr__
    if sys.__stdin__ is None or out is None:
        return None
    try:
        keys, screen = sys.__stdin__.fileno(), out.fileno()
        before = termios.tcgetattr(keys)
    except (OSError, ValueError, termios.error):
        return None
    answer = b""
    try:
        tty.setcbreak(keys, termios.TCSANOW)
        os.write(screen, _ASK)
        end = time.monotonic() + _SECONDS
        while (left := end - time.monotonic()) > 0 and not _ATTRIBUTES.search(answer):
            if select.select([keys], [], [], left)[0]:
                answer += os.read(keys, 256)
    except (OSError, termios.error):
        return answer
    finally:
        termios.tcsetattr(keys, termios.TCSANOW, before)
    return answer
