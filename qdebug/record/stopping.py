"""Recording that stops before the run does: the host program is told, and never disturbed."""

from __future__ import annotations

import inspect
import warnings

from qdebug.errors import QdebugError

__all__ = ["RecordingStopped", "warn_stopped"]


class RecordingStopped(UserWarning):
    """Recording stopped since the disk is full or broken; the program that is being recorded goes on."""


def warn_stopped(error: QdebugError, *, warned: bool) -> None:
    """Warn that recording stopped, unless that was said already.

    Args:
        error: Why.
        warned: Whether it was said.
    """
    if warned:
        return
    try:
        warnings.warn(f"Recording stopped: {error}", RecordingStopped, stacklevel=_host_level())
    except RecordingStopped:
        return  # warnings are errors here, and still no concern of a run that is only looked at


def _host_level() -> int:
    """Give the stack level of the program that is being recorded, as seen from `warn_stopped`."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("qdebug", "contextlib"):
            break
        frame, level = frame.f_back, level + 1
    return level
