"""The section that a failed test gets in pytest's report."""

from __future__ import annotations

import sys
from typing import Any

from qdebug.pytest_plugin.options import Settings

__all__ = ["failure_section"]


def failure_section(error: BaseException, recorder: Any, settings: Settings, *, shown: str) -> str:
    """Return what a failed test's report says of its comparison and its recording; "" if there was neither.

    Args:
        error: Why the test failed.
        recorder: The test's recorder; None if it has none.
        settings: What was asked for.
        shown: What the report shows already.
    """
    comparison = _comparison(error)
    if comparison is None and recorder is None:
        return ""
    from qdebug.present.failure import failure_lines, open_command
    from qdebug.present.text import safe_text

    lines: list[str] = []
    if comparison is not None:
        details = failure_lines(comparison.result)
        if details[-1] not in shown:  # the message of a marker has the first line alone, that of an assertion all
            lines = details[2:] if details[0] in shown and len(details) > 2 and not details[1] else details
        if comparison.files is not None:
            lines.append(f"open it: {open_command(comparison.result, comparison.files)}")
    if recorder is not None and recorder.holds_anything and settings.keep != "never":
        lines.append(f"recording: {safe_text(recorder.path)}")
    return "\n".join(lines)


def _comparison(error: BaseException) -> Any:
    """Return the failed comparison behind an error; None if it is about something else."""
    if "qdebug.testing" not in sys.modules:
        return None  # nobody compared, so a failure of a test about something else need not wait for numpy
    from qdebug.testing import ComparisonError

    seen: BaseException | None = getattr(error, "comparison", error)
    while seen is not None and not isinstance(seen, ComparisonError):
        seen = seen.__cause__
    return seen
