"""What the fixture `qdebug_recorder` and the marker do: open a recorder, compare, keep or delete its file."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

import pytest

from qdebug.compare.result.limits import ALL_BOUNDS
from qdebug.errors import QdebugError, UsageError
from qdebug.present.text import safe_text
from qdebug.pytest_plugin.comparing import beside, compared, limits_of, noting
from qdebug.pytest_plugin.gather import ComparisonLedger
from qdebug.pytest_plugin.options import Settings, file_name
from qdebug.recording.recorder import Recorder
from qdebug.testing import ComparisonError

__all__ = ["check_marker", "open_recorder"]

_SUFFIXES = (".h5", ".journal", ".part", ".lock")
"""Of a recording, and of what is left of one when its process died."""


def open_recorder(item: pytest.Item, settings: Settings, ledger: ComparisonLedger) -> tuple[Recorder, Any]:
    """Open the recorder of a test.

    Args:
        item: The test.
        settings: What was asked for.
        ledger: Knows the worker, and when this run began.

    Returns:
        The recorder, and what to call when the test is over: `keep(failed=...)`.

    Raises:
        UsageError: The folder for recordings cannot be made.
    """
    __tracebackhide__ = True
    _make_folder(settings.folder)
    stem = file_name(item.nodeid)
    for old in settings.folder.glob(f"{escape(stem)}.*h5*"):
        if old.suffix not in _SUFFIXES:
            continue
        with suppress(OSError):  # another worker may be at it
            if old.stat().st_mtime < ledger.began:
                old.unlink()
    path = settings.folder / f"{stem}.{ledger.worker}{'.' if ledger.worker else ''}h5"
    recorder = Recorder(path, backend=safe_text(item.name, limit=200), force=True)
    return recorder, partial(_finish, recorder, path, settings)


def _make_folder(folder: Path) -> None:
    __tracebackhide__ = True
    ignore = folder / ".gitignore"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not ignore.exists():
            ignore.write_text("# made by qdebug: recordings of tests\n*\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The folder {str(folder)!r} for recordings of tests cannot be used: {error.strerror}.",
            hint="Name another one: --qdebug-dir FOLDER.",
        ) from None


def _finish(recorder: Recorder, path: Path, settings: Settings, *, failed: bool) -> None:
    """Close the recorder of a test, and delete its file unless it is to be kept.

    Raises:
        RecordingError: The recording of a test that passed is to be kept, and cannot be finished.
    """
    if settings.keep == "never" or (settings.keep == "failed" and not failed):
        recorder.discard()
        path.unlink(missing_ok=True)
        return
    # What a test recorded before it failed is what it is kept for: then the recording is finished as a partial one.
    error = RuntimeError("the test failed") if failed else None
    recorder.__exit__(None if error is None else type(error), error, None)


def check_marker(item: pytest.Item, settings: Settings, ledger: ComparisonLedger, recorder: Recorder | None) -> None:
    """Compare what a test has recorded with the reference of its marker.

    Raises:
        pytest.fail.Exception: They are too far apart.
        UsageError: The marker means nothing, or its test has no recorder.
    """
    __tracebackhide__ = True
    marker = item.get_closest_marker("qdebug")
    if marker is None:
        return
    try:
        reference = _reference(item, marker, settings)
        if reference is None:
            return  # then the marker is there for its limits
        failure = _marker_failure(item, ledger, (reference, recorder), settings)
    except QdebugError as error:  # a wrong marker or file: the way to it through our code helps nobody
        raise pytest.fail.Exception(safe_text(error), pytrace=False) from None
    if failure is not None:
        short = pytest.fail.Exception(str(failure).splitlines()[0], pytrace=False)
        short.comparison = failure  # type: ignore[attr-defined]  # a cause would be printed in full as well
        raise short


def _reference(item: pytest.Item, marker: pytest.Mark, settings: Settings) -> Path | None:
    """Return the reference of a marker; None if it is there for the limits of golden recordings alone."""
    if marker.args or (unknown := set(marker.kwargs) - {"reference", "limits", *ALL_BOUNDS}):
        said = f"no argument {min(unknown)!r}" if not marker.args else "no arguments without a name"
        raise UsageError(f"The marker qdebug takes {said}.", hint="See them: pytest --markers.")
    reference = beside(item, marker.kwargs.get("reference"), "reference") or settings.reference
    if reference is None and "qdebug_regression" not in getattr(item, "fixturenames", ()):
        raise UsageError(
            f"The marker qdebug of {item.name!r} names no reference.",
            hint="Write reference='ref.h5', or give one for all: --qdebug-reference FILE.",
        )
    return reference


def _marker_failure(
    item: pytest.Item, ledger: ComparisonLedger, sides: tuple[Path, Recorder | None], settings: Settings
) -> ComparisonError | None:
    """Close the recorder of a marked test and compare what it recorded; give what is wrong with it."""
    reference, recorder = sides
    if recorder is None:
        raise UsageError(
            f"The test {item.name!r} is marked with qdebug and records nothing.",
            hint="Let it take the fixture qdebug_recorder.",
        )
    files = (reference, recorder.path)
    with noting(item, ledger, files, kind="reference"):
        limits = limits_of(item, settings)
        with recorder:
            pass  # closes it, unless the test did
    return compared(item, ledger, files, limits, kind="reference")[1]
