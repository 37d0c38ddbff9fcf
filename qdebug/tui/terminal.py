"""The terminal before and after Textual has it: a first frame at once, and nothing left behind.

From the first frame on the terminal does not show what is typed. If no interface comes, that is thrown away: a shell
would take it for commands.

Whether the terminal's background is light: asked of the terminal itself before the interface takes it over. OSC 11 asks
for the background's colour (xterm, "Operating System Commands"); a device attributes query after it makes every
terminal answer something, so that one that knows no OSC 11 costs no waiting. It is asked before libraries are loaded
and read after, so that a slow line costs none either. A terminal that answers nothing in time is taken to be dark.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from qdebug.errors import UsageError
from qdebug.present.text import safe_text

__all__ = [
    "INTERRUPTED",
    "BackgroundQuestion",
    "TerminalWatch",
    "parse_colour",
    "require_terminal",
    "say_waiting",
    "size_now",
    "skeleton",
]

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H"
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
    if os.environ.get("TERM", "") in {"", "dumb", "unknown"}:  # noqa: TID251  what the terminal is
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
    with _unshown_keys():
        try:
            out.write(f"{_ENTER} qdebug  {names}\r\n\r\n opening ..")
            out.flush()
            yield
        except BaseException:
            with suppress(OSError, ValueError, termios.error):
                termios.tcflush(_keyboard(), termios.TCIFLUSH)
            out.write(_LEAVE)
            out.flush()
            raise


@contextmanager
def _unshown_keys() -> Iterator[None]:
    """Let the terminal hand over each key as it is typed, as Textual will, and not show it; Ctrl-C ends the program."""
    mode: list[Any] | None = None
    with suppress(OSError, ValueError, termios.error):
        mode = termios.tcgetattr(_keyboard())
        inputs, control, special = mode[0], mode[3], list(mode[6])
        inputs &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        control &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        special[termios.VMIN], special[termios.VTIME] = 1, 0
        special[termios.VSUSP] = b"\0"  # there is nothing yet to suspend: it will be done when there is
        termios.tcsetattr(_keyboard(), termios.TCSANOW, [inputs, *mode[1:3], control, *mode[4:6], special])
    try:
        yield
    finally:
        if mode is not None:
            with suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(_keyboard(), termios.TCSANOW, mode)


def _keyboard() -> int:
    if sys.__stdin__ is None:
        raise ValueError
    return sys.__stdin__.fileno()


INTERRUPTED = 130
"""What the program ends with where nobody quits it."""

_LOOK_SECONDS = 1.0
"""How often it is asked whether the terminal is still there."""
_END_SECONDS = 5.0
"""How long the application may take to end once its terminal is gone; then there is nobody to wait for."""


class TerminalWatch(Thread):
    """Ends the program once its terminal is gone, as when a connection breaks.

    Most programs then get a signal that ends them. One that does not, because the terminal is not its own or the signal
    is held off, would read the end of its input again and again, and keep a core busy for good. Textual may then wait
    for ever for room in a queue of which nobody writes to the terminal any more, so that it is not waited for long.

    Args:
        leave: Ends the application; called on this thread.
    """

    def __init__(self, leave: Callable[[], object]) -> None:
        super().__init__(name="qdebug-terminal", daemon=True)
        self._leave = leave
        self._over = Event()

    def run(self) -> None:
        """Look now and then until told to stop."""
        while not self._over.wait(_LOOK_SECONDS):
            if _is_gone():
                self._leave()
                time.sleep(_END_SECONDS)
                os._exit(INTERRUPTED)

    def stop(self) -> None:
        """Look no more."""
        self._over.set()


def _is_gone() -> bool:
    """Tell whether the other end of the terminal was closed."""
    stdin = sys.__stdin__
    if stdin is None or stdin.closed or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(stdin.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


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


_SECONDS = 0.5
"""How long an answer may take; one that comes later would be taken for keys."""
_ASK = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


class BackgroundQuestion:
    """Query of the terminal's background colour, sent when it is made; needs raw input."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _SECONDS
        self._keys = -1
        with suppress(OSError, ValueError):
            if sys.__stdin__ is not None and sys.__stderr__ is not None and sys.__stdin__.isatty():
                os.write(sys.__stderr__.fileno(), _ASK)
                self._keys = sys.__stdin__.fileno()

    def is_light(self) -> bool:
        """Return whether the background is light; keys typed meanwhile are lost."""
        bright = parse_colour(self._reply())
        return bright is not None and bright > 0.5

    def _reply(self) -> bytes:
        """Return the bytes received before the deadline of the answer."""
        reply = b""
        with suppress(OSError):
            while self._keys >= 0 and not _ATTRIBUTES.search(reply):
                if not select.select([self._keys], [], [], max(self._until - time.monotonic(), 0))[0]:
                    break
                data = os.read(self._keys, 4096)
                if not data:
                    break
                reply += data
        return reply


def parse_colour(answer: bytes) -> float | None:
    """Return the brightness, 0 to 1, out of the answer to OSC 11 (weights of Rec. 709); None if there is none in it."""
    match = _COLOUR.search(answer)
    if match is None:
        return None
    red, green, blue = (int(part, 16) / float(16 ** len(part) - 1) for part in match.groups())
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
