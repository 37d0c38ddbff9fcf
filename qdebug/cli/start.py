"""The first lines of the program: from here on Ctrl-C ends it without a traceback.

What is pressed before, while Python itself and what a script of pip imports are being loaded, is Python's to answer;
no line of this project runs by then.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # each import is a moment in which Ctrl-C is not taken care of yet
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

_CANCELLED = 130
_COULD_NOT_RUN = 2
_STDERR = 2


def main() -> int:
    """Load the command line, run it and give its exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else decides
            from qdebug.cli.main import main as run

            return run()
        signal.signal(signal.SIGINT, _leave)
        from qdebug.cli.main import main as run

        return run(begin=_hand_over)
    except ImportError as error:
        return _tell_missing(error)


def _tell_missing(error: ImportError) -> int:
    """Say which package is missing, without any module that may need it; give the exit code.

    Raises:
        ImportError: It is no package of somebody else, or the traceback was asked for.
    """
    from qdebug.requirements import missing_package

    missing = missing_package(error)
    if missing is None or "--debug" in sys.argv:
        raise error
    os.write(_STDERR, f"qdebug: {missing.message}\n  hint: {missing.hint}\n".encode(errors="backslashreplace"))
    return _COULD_NOT_RUN


def _leave(number: int, frame: FrameType | None) -> None:
    """End: modules are being loaded, and there is nothing yet to be given back or kept."""
    del number, frame
    try:
        os.write(_STDERR, b"qdebug: interrupted; nothing was kept.\n")
    finally:  # it may be that nobody reads it any more
        raise SystemExit(_CANCELLED)


def _hand_over() -> None:
    """Let Ctrl-C be an exception again: what runs from here on catches it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
