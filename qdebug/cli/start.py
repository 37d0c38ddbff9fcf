"""The first code of the program to run. From here on, Ctrl-C ends it without a traceback.

Earlier, while Python and pip's launcher script are being loaded, none of this project's code runs, and Python itself
handles Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as few imports as possible before Ctrl-C is handled
if TYPE_CHECKING:
    from types import FrameType

__all__ = ["main"]

_CANCELLED = 130
_COULD_NOT_RUN = 2
_STDERR = 2


def main() -> int:
    """Load the command line and run it. Return its exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # another handler is in charge
            from qdebug.cli.main import main as run

            return run()
        signal.signal(signal.SIGINT, _exit_cancelled)
        from qdebug.cli.main import main as run

        return run(begin=_restore_interrupts)
    except ImportError as error:
        return _report_missing(error)


def _report_missing(error: ImportError) -> int:
    """Print which package is missing, without importing anything that may need it. Return the exit code.

    Raises:
        ImportError: The error is not about a missing third-party package, or the traceback was requested.
    """
    from qdebug.requirements import missing_package

    missing_error = missing_package(error)
    if missing_error is None or "--debug" in sys.argv:
        raise error
    os.write(
        _STDERR, f"qdebug: {missing_error.message}\n  hint: {missing_error.hint}\n".encode(errors="backslashreplace")
    )
    return _COULD_NOT_RUN


def _exit_cancelled(number: int, frame: FrameType | None) -> None:
    """Exit immediately. Modules are still being loaded, so there is nothing to release or preserve."""
    del number, frame
    try:
        os.write(_STDERR, b"qdebug: interrupted; nothing was kept.\n")
    finally:  # even if stderr is closed
        raise SystemExit(_CANCELLED)


def _restore_interrupts() -> None:
    """Let Ctrl-C raise an exception again, which the command line handles."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
