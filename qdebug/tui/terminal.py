"""The terminal before and after Textual uses it: an immediate first frame, and a clean terminal at the end.

From the first frame on, the terminal does not echo typed keys. If the interface does not start, they are discarded,
because a shell would take them for commands.

The terminal itself is queried for whether its background is light, before the interface takes it over. OSC 11 requests
the background colour (xterm, "Operating System Commands"). A device attributes query follows, which every terminal
answers, so that terminals without OSC 11 cause no wait. The query is sent before libraries are loaded and the answer
read afterwards, so that a slow line causes no wait either. If a terminal does not answer in time, its background is
assumed to be dark.
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
    "current_size",
    "parse_colour",
    "print_waiting",
    "require_terminal",
    "skeleton",
]

_ENTER_SEQUENCE = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H"
_LEAVE_SEQUENCE = "\x1b[?1049l\x1b[?25h\x1b[0m"


def require_terminal() -> None:
    """Check that there is a terminal to draw on.

    Raises:
        UsageError: A standard stream is not a terminal, or the terminal cannot move its cursor.
    """
    hint = "For a report without a terminal: qdebug diff REF BACKEND."
    for name, stream in (("input", sys.stdin), ("output", sys.stdout), ("error", sys.stderr)):
        if stream is None or not stream.isatty():
            raise UsageError(f"The terminal interface needs a terminal; standard {name} is not a terminal.", hint=hint)
    if os.environ.get("TERM", "") in {"", "dumb", "unknown"}:  # noqa: TID251  a fact about the terminal
        raise UsageError(
            "The terminal interface needs a terminal that can move its cursor; TERM rules this out.", hint=hint
        )


@contextmanager
def skeleton(reference: Path, backends: Sequence[Path]) -> Iterator[None]:
    """Show a first frame while the interface is being imported. Textual then takes over the screen.

    If something fails before Textual runs, the terminal is restored.

    Args:
        reference: File named in the frame.
        backends: Files named in the frame.
    """
    out = sys.__stderr__  # where Textual draws
    if out is None:
        yield
        return
    others = ", ".join(safe_text(backend.name, limit=60) for backend in backends[:3])
    names = f"{safe_text(reference.name, limit=60)}  vs  {others}"
    with _keys_without_echo():
        try:
            out.write(f"{_ENTER_SEQUENCE} qdebug  {names}\r\n\r\n opening ..")
            out.flush()
            yield
        except BaseException:
            with suppress(OSError, ValueError, termios.error):
                termios.tcflush(_keyboard_descriptor(), termios.TCIFLUSH)
            out.write(_LEAVE_SEQUENCE)
            out.flush()
            raise


@contextmanager
def _keys_without_echo() -> Iterator[None]:
    """Make the terminal pass on each key as it is typed, without echo, as Textual will. Ctrl-C ends the program."""
    mode: list[Any] | None = None
    with suppress(OSError, ValueError, termios.error):
        mode = termios.tcgetattr(_keyboard_descriptor())
        inputs, control, special = mode[0], mode[3], list(mode[6])
        inputs &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        control &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        special[termios.VMIN], special[termios.VTIME] = 1, 0
        special[termios.VSUSP] = b"\0"  # Ctrl-Z is left to Textual, once it runs
        termios.tcsetattr(_keyboard_descriptor(), termios.TCSANOW, [inputs, *mode[1:3], control, *mode[4:6], special])
    try:
        yield
    finally:
        if mode is not None:
            with suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(_keyboard_descriptor(), termios.TCSANOW, mode)


def _keyboard_descriptor() -> int:
    if sys.__stdin__ is None:
        raise ValueError
    return sys.__stdin__.fileno()


INTERRUPTED = 130
"""Exit code of the program if it is ended by an interrupt."""

_CHECK_SECONDS = 1.0
"""Seconds between checks of whether the terminal still exists."""
_END_SECONDS = 5.0
"""Maximum seconds for the application to end after its terminal has gone, since nobody can see it."""


class TerminalWatch(Thread):
    """Ends the program once its terminal has gone, as when a connection breaks.

    Most programs then receive a signal that ends them. Without that signal, because the terminal is not the program's
    own or the signal is blocked, the program would read the end of its input again and again and keep a core busy
    forever. Textual may also wait forever for space in its output queue, so the wait for it is limited.

    Args:
        leave: Ends the application; called on this thread.
    """

    def __init__(self, leave: Callable[[], object]) -> None:
        super().__init__(name="qdebug-terminal", daemon=True)
        self._leave = leave
        self._stop_requested = Event()

    def run(self) -> None:
        """Check at intervals whether the terminal still exists, until stopped."""
        while not self._stop_requested.wait(_CHECK_SECONDS):
            if _is_terminal_gone():
                self._leave()
                time.sleep(_END_SECONDS)
                os._exit(INTERRUPTED)

    def stop(self) -> None:
        """Stop checking."""
        self._stop_requested.set()


def _is_terminal_gone() -> bool:
    """Return whether the other end of the terminal was closed."""
    stdin = sys.__stdin__
    if stdin is None or stdin.closed or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(stdin.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def current_size() -> tuple[int, int] | None:
    """Return the terminal's current columns and lines; None if unknown, or overridden by COLUMNS or LINES."""
    if sys.__stdout__ is None:
        return None
    try:
        columns, lines = os.get_terminal_size(sys.__stdout__.fileno())
    except (OSError, ValueError):
        return None
    is_overridden = shutil.get_terminal_size((0, 0)) != (columns, lines)
    return None if is_overridden or not (columns > 0 and lines > 0) else (columns, lines)


def print_waiting() -> None:
    """Print why the program has not ended yet."""
    out = sys.__stderr__
    if out is not None:
        out.write("finishing the tensor at hand ..\n")
        out.flush()


_ANSWER_SECONDS = 0.5
"""Maximum seconds to wait for an answer. A later answer would be taken for keys."""
_QUERY = b"\x1b]11;?\x1b\\\x1b[c"
_COLOUR = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
_ATTRIBUTES = re.compile(rb"\x1b\[\?[\d;]*c")


class BackgroundQuestion:
    """Query of the terminal's background colour, sent when the object is created. Requires raw input."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + _ANSWER_SECONDS
        self._input_fd = -1
        with suppress(OSError, ValueError):
            if sys.__stdin__ is not None and sys.__stderr__ is not None and sys.__stdin__.isatty():
                os.write(sys.__stderr__.fileno(), _QUERY)
                self._input_fd = sys.__stdin__.fileno()

    def is_light(self) -> bool:
        """Return whether the background is light. Keys typed meanwhile are lost."""
        brightness = parse_colour(self._read_reply())
        return brightness is not None and brightness > 0.5

    def _read_reply(self) -> bytes:
        """Return the bytes received before the deadline."""
        reply = b""
        with suppress(OSError):
            while self._input_fd >= 0 and not _ATTRIBUTES.search(reply):
                if not select.select([self._input_fd], [], [], max(self._deadline - time.monotonic(), 0))[0]:
                    break
                data = os.read(self._input_fd, 4096)
                if not data:
                    break
                reply += data
        return reply


def parse_colour(answer: bytes) -> float | None:
    """Return the brightness, 0 to 1, from the answer to OSC 11 (weights of Rec. 709); None if it contains no colour."""
    match = _COLOUR.search(answer)
    if match is None:
        return None
    red, green, blue = (int(part, 16) / float(16 ** len(part) - 1) for part in match.groups())
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
