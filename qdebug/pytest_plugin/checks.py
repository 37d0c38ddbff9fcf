"""The fixture `qdebug_recorder` and the marker: open a recorder, compare it, keep or delete its file."""

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
from qdebug.pytest_plugin.comparing import compare_and_note, limits_of, noting_errors, path_beside_test
from qdebug.pytest_plugin.gather import ComparisonLedger
from qdebug.pytest_plugin.options import Settings, file_name
from qdebug.recording.recorder import Recorder
from qdebug.testing import ComparisonError

__all__ = ["check_marker", "open_recorder"]

_SUFFIXES = (".h5", ".journal", ".part", ".lock")
"""Suffixes of a recording, and of the files that are left if the recording process dies."""


def open_recorder(item: pytest.Item, settings: Settings, ledger: ComparisonLedger) -> tuple[Recorder, Any]:
    """Open the recorder of a test.

    Args:
        item: The test.
        settings: The settings.
        ledger: The ledger of this run, for the name of the worker and the start time.

    Returns:
        The recorder, and a function to call after the test, `keep(failed=...)`, which closes the recorder and keeps or
            deletes its file.

    Raises:
        UsageError: The folder for recordings cannot be created.
    """
    __tracebackhide__ = True
    _make_folder(settings.folder)
    stem = file_name(item.nodeid)
    for earlier in settings.folder.glob(f"{escape(stem)}.*h5*"):
        if earlier.suffix not in _SUFFIXES:
            continue
        with suppress(OSError):  # another worker may be using it
            if earlier.stat().st_mtime < ledger.start_time:
                earlier.unlink()
    path = settings.folder / f"{stem}.{ledger.worker}{'.' if ledger.worker else ''}h5"
    recorder = Recorder(path, backend=safe_text(item.name, limit=200), force=True)
    return recorder, partial(_close_recorder, recorder, path, settings)


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
            hint="Name another folder: --qdebug-dir FOLDER.",
        ) from None


def _close_recorder(recorder: Recorder, path: Path, settings: Settings, *, failed: bool) -> None:
    """Close the recorder of a test, and delete its file unless it is kept.

    Raises:
        RecordingError: The test passed and its recording is to be kept, but the recording cannot be finished.
    """
    if settings.keep == "never" or (settings.keep == "failed" and not failed):
        recorder.discard()
        path.unlink(missing_ok=True)
        return
    # Keep the partial recording of a failed test, to find the cause.
    error = RuntimeError("the test failed") if failed else None
    recorder.__exit__(None if error is None else type(error), error, None)


def check_marker(item: pytest.Item, settings: Settings, ledger: ComparisonLedger, recorder: Recorder | None) -> None:
    """Compare the recording of a test with the marker's reference.

    Raises:
        pytest.fail.Exception: The recordings differ too much, the marker is invalid, or its test lacks a recorder.
    """
    __tracebackhide__ = True
    marker = item.get_closest_marker("qdebug")
    if marker is None:
        return
    try:
        reference = _reference_of_marker(item, marker, settings)
        if reference is None:
            return  # the marker only sets limits
        failure = _marker_failure(item, ledger, (reference, recorder), settings)
    except QdebugError as error:  # the marker or a file is invalid; a traceback through the plugin would not help
        raise pytest.fail.Exception(safe_text(error), pytrace=False) from None
    if failure is not None:
        short = pytest.fail.Exception(str(failure).splitlines()[0], pytrace=False)
        short.comparison = failure  # type: ignore[attr-defined]  # `__cause__` would be printed in full
        raise short


def _reference_of_marker(item: pytest.Item, marker: pytest.Mark, settings: Settings) -> Path | None:
    """Return the reference of a marker; None if the marker only sets limits for golden recordings."""
    if marker.args or (unknown := set(marker.kwargs) - {"reference", "limits", *ALL_BOUNDS}):
        problem = f"no argument {min(unknown)!r}" if not marker.args else "only keyword arguments"
        raise UsageError(f"The marker qdebug takes {problem}.", hint="List its arguments: pytest --markers.")
    reference = path_beside_test(item, marker.kwargs.get("reference"), "reference") or settings.reference
    if reference is None and "qdebug_regression" not in getattr(item, "fixturenames", ()):
        raise UsageError(
            f"The marker qdebug of {item.name!r} does not name a reference.",
            hint="Write reference='ref.h5', or give one for all tests: --qdebug-reference FILE.",
        )
    return reference


def _marker_failure(
    item: pytest.Item, ledger: ComparisonLedger, sides: tuple[Path, Recorder | None], settings: Settings
) -> ComparisonError | None:
    """Close the recorder of a marked test and compare its recording. Return the failure, if any."""
    reference, recorder = sides
    if recorder is None:
        raise UsageError(
            f"The test {item.name!r} is marked with qdebug, but records nothing.",
            hint="Use the fixture qdebug_recorder in the test.",
        )
    files = (reference, recorder.path)
    with noting_errors(item, ledger, files, kind="reference"):
        limits = limits_of(item, settings)
        with recorder:
            pass  # closes the recorder, unless the test did
    return compare_and_note(item, ledger, files, limits, kind="reference")[1]
