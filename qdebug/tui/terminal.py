"""The terminal before and after Textual has it: a first frame at once, and nothing left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qdebug.errors import UsageError
from qdebug.view.text import safe_text

__all__ = ["require_terminal", "say_waiting", "skeleton"]

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
    out.write(f"{_ENTER} qdebug  {names}\r\n\r\n opening ..")
    out.flush()
    try:
        yield
    except BaseException:
        out.write(_LEAVE)
        out.flush()
        raise


def say_waiting() -> None:
    """Say why the program has not ended yet."""
    out = sys.__stderr__
    if out is not None:
        out.write("finishing the tensor at hand ..\n")
        out.flush()
