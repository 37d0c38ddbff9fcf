"""Recording that stops before the run does: the host program is told, and never disturbed."""

from __future__ import annotations

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
        warnings.warn(f"Recording stopped: {error}", RecordingStopped, stacklevel=4)
    except RecordingStopped:
        return  # warnings are errors here, and still no concern of a run that is only looked at
