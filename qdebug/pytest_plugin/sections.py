"""The section of a failed test in pytest's report."""

from __future__ import annotations

import sys
from typing import Any

from qdebug.pytest_plugin.options import Settings

__all__ = ["failure_section"]


def failure_section(error: BaseException, recorder: Any, settings: Settings, *, shown: str) -> str:
    """Return the report's section about a failed test's comparison and recording; "" if there is neither.

    Args:
        error: Why the test failed.
        recorder: The test's recorder; None without one.
        settings: The settings.
        shown: The report so far, whose lines are not repeated.
    """
    comparison = _find_comparison(error)
    if comparison is None and recorder is None:
        return ""
    from qdebug.present.failure import failure_lines, open_command
    from qdebug.present.text import safe_text

    lines: list[str] = []
    if comparison is not None:
        details = failure_lines(comparison.result)
        if details[-1] not in shown:  # an assertion's message has all lines, but a marker's has only the first
            lines = details[2:] if details[0] in shown and len(details) > 2 and not details[1] else details
        if comparison.files is not None:
            lines.append(f"open it: {open_command(comparison.result, comparison.files)}")
    if recorder is not None and recorder.holds_anything and settings.keep != "never":
        lines.append(f"recording: {safe_text(recorder.path)}")
    return "\n".join(lines)


def _find_comparison(error: BaseException) -> Any:
    """Return the failed comparison behind an error; None if there is none."""
    if "qdebug.testing" not in sys.modules:
        return None  # nothing was compared, so do not import numpy
    from qdebug.testing import ComparisonError

    cause: BaseException | None = getattr(error, "comparison", error)
    while cause is not None and not isinstance(cause, ComparisonError):
        cause = cause.__cause__
    return cause
