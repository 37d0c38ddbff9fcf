"""The terminal before and after Textual has it: a first frame at once, and nothing left behind.

What is typed before there is an interface is for the interface: from the first frame on the terminal neither shows nor
edits it, and keeps it until it is read. If no interface comes, it is thrown away: a shell would take it for commands.

Whether the terminal's background is light: asked of the terminal itself before the interface takes it over. OSC 11 asks
for the background's colour (xterm, "Operating System Commands"); a device attributes query after it makes every
terminal answer something, so that one that knows no OSC 11 costs no waiting. It is asked before libraries are loaded
and read after, so that a slow line costs none either. A terminal that answers nothing in time is taken to be dark.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import shutil
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from qdebug.errors import UsageError
from qdebug.present.text import safe_text

__all__ = [
    "BackgroundQuestion",
    "keep_typed",
    "mode_before",
    "parse_colour",
    "require_terminal",
    "say_waiting",
    "size_now",
    "skeleton",
    "typed_before",
]

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H"
_MODE: list[list[Any]] = []
"""How the terminal was set up when the program began, until it is so again or Textual takes care of it."""
_TYPED = bytearray()
_LEAVE = "\x1b[?1049l\x1b[?25h\x1b[0m"


def require_terminal() -> None:
    """Check that there is a terminal to draw on.

    Raises:
        UsageError: A standard stream is no terminal, or the terminal cannot move its cursor.
    """
    hint = "For a report without a terminal: qdebug diff REF BACKEND."
    for name, stream in (("input", sys.stdin), ("output", sys.stdout), ("error", sys.stderr)):
        if stream is None or not stream.isatty():
            raise UsageError(f"The terminal interface needs a terminal; standard {name} is none.", hint=hint)
    if os.environ.get("TERM", "") in {"", "dumb", "unknown"}:
        raise UsageError(
            "The terminal interface needs a terminal that can move its cursor; TERM says it cannot.", hint=hint
        )


@contextmanager
def skeleton(reference: Path, backends: Sequence[Path]) -> Iterator[None]:
    """Show a first frame while the interface is being imported; Textual takes the screen over from it.

    If something fails before Textual runs, the terminal is put back as it was.

    Args:
        reference: Named in the frame.
        backends: Named in the frame.
    """
    out = sys.__stderr__  # where Textual draws
    if out is None:
        yield
        return
    others = ", ".join(safe_text(backend.name, limit=60) for backend in backends[:3])
    names = f"{safe_text(reference.name, limit=60)}  vs  {others}"
    try:
        out.write(f"{_ENTER} qdebug  {names}\r\n\r\n opening ..")
        out.flush()
        _keep_keys()
        yield
    except BaseException:
        _restore_mode()
        out.write(_LEAVE)
        out.flush()
        raise


def _keep_keys() -> None:
    """Let the terminal hand over each key as it is typed, as Textual will; Ctrl-C ends the program."""
    with suppress(OSError, ValueError, termios.error):
        mode = termios.tcgetattr(_keyboard())
        _MODE[:] = [mode]
        atexit.register(_restore_mode)
        inputs, control, special = mode[0], mode[3], list(mode[6])
        inputs &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        control &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        special[termios.VMIN], special[termios.VTIME] = 1, 0
        special[termios.VSUSP] = b"\0"  # there is nothing yet to suspend: it will be done when there is
        termios.tcsetattr(_keyboard(), termios.TCSANOW, [inputs, *mode[1:3], control, *mode[4:6], special])


def _restore_mode() -> None:
    """Set the terminal up as it was, and drop what nobody has read."""
    atexit.unregister(_restore_mode)
    with suppress(OSError, ValueError, termios.error):
        mode = mode_before()
        if mode is not None:
            termios.tcflush(_keyboard(), termios.TCIFLUSH)
            termios.tcsetattr(_keyboard(), termios.TCSANOW, mode)


def mode_before() -> list[Any] | None:
    """Return how the terminal was set up before the first frame, once, to who sets it up so at the end."""
    return _MODE.pop() if _MODE else None


def keep_typed(data: bytes) -> None:
    """Keep what was read while something else was looked for: the interface takes it as typed later."""
    _TYPED.extend(data)


def typed_before() -> bytes:
    """Return what was kept, once."""
    data = bytes(_TYPED)
    _TYPED.clear()
    return data


def _keyboard() -> int:
    if sys.__stdin__ is None:
        raise ValueError
    return sys.__stdin__.fileno()


def size_now() -> tuple[int, int] | None:
    """Return the columns and lines that the terminal has now; None if that is not known, or was set by hand."""
    if sys.__stdout__ is None:
        return None
    try:
        columns, lines = os.get_terminal_size(sys.__stdout__.fileno())
    except (OSError, ValueError):
        return None
    by_hand = shutil.get_terminal_size((0, 0)) != (columns, lines)
    return None if by_hand or not (columns > 0 and lines > 0) else (columns, lines)


def say_waiting() -> None:
    """Say why the program has not ended yet."""
    out = sys.__stderr__
    if out is not None:
        out.write("finishing the tensor at hand ..\n")
        out.flush()


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
        """Return what has come, waiting for the answer no longer than it may take."""
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
    """Return the brightness, 0 to 1, out of the answer to OSC 11 (weights of Rec. 709); None if there is none in it."""
    found = _COLOUR.search(answer)
    if found is None:
        return None
    red, green, blue = (int(part, 16) / float(16 ** len(part) - 1) for part in found.groups())
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
