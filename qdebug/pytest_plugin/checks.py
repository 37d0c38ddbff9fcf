"""What the fixtures and the marker do: open a recorder, compare, keep or write golden recordings."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any

import pytest

from qdebug.analysis.limits import Limits
from qdebug.analysis.result import DiffResult
from qdebug.errors import UsageError
from qdebug.model import Recording
from qdebug.pytest_plugin.gather import Ledger
from qdebug.pytest_plugin.options import Settings, file_name
from qdebug.record.recorder import Recorder
from qdebug.session import open_recording
from qdebug.testing import ComparisonError, check_close
from qdebug.view.text import safe_text
from qdebug.workflow.limits_file import find_limits, load_limits
from qdebug.workflow.save import save_recording

__all__ = ["Regression", "check_marker", "open_recorder"]

_BOUNDS = ("min_sqnr", "max_lsb", "atol", "rtol", "max_saturation")


def open_recorder(item: pytest.Item, settings: Settings, ledger: Ledger) -> tuple[Recorder, Any]:
    """Open the recorder of a test.

    Args:
        item: The test.
        settings: What was asked for.
        ledger: Knows the worker, and when this run began.

    Returns:
        The recorder, and what to call when the test is over: `keep(failed=...)`.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    ignore = settings.folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("# made by qdebug: recordings of tests\n*\n", encoding="utf-8")
    stem = file_name(item.nodeid)
    for old in settings.folder.glob(f"{escape(stem)}.*h5"):
        with suppress(OSError):  # another worker may be at it
            if old.stat().st_mtime < ledger.began:
                old.unlink()
    path = settings.folder / f"{stem}.{ledger.worker}{'.' if ledger.worker else ''}h5"
    recorder = Recorder(path, backend=safe_text(item.name, limit=200), force=True)
    return recorder, partial(_finish, recorder, path, settings)


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


def check_marker(item: pytest.Item, settings: Settings, ledger: Ledger, recorder: Recorder | None) -> None:
    """Compare what a test has recorded with the reference of its marker.

    Raises:
        pytest.fail.Exception: They are too far apart.
        UsageError: The marker means nothing, or its test has no recorder.
    """
    __tracebackhide__ = True
    marker = item.get_closest_marker("qdebug")
    if marker is None:
        return
    if marker.args or (unknown := set(marker.kwargs) - {"reference", "limits", *_BOUNDS}):
        said = f"no argument {min(unknown)!r}" if not marker.args else "no arguments without a name"
        raise UsageError(f"The marker qdebug takes {said}.", hint="See them: pytest --markers.")
    named = marker.kwargs.get("reference")
    reference = settings.reference if named is None else item.path.parent / named
    if reference is None and "qdebug_regression" in getattr(item, "fixturenames", ()):
        return  # then the marker is there for its limits
    if reference is None:
        raise UsageError(
            f"The marker qdebug of {item.name!r} names no reference.",
            hint="Write reference='ref.h5', or give one for all: --qdebug-reference FILE.",
        )
    if recorder is None:
        raise UsageError(
            f"The test {item.name!r} is marked with qdebug and records nothing.",
            hint="Let it take the fixture qdebug_recorder.",
        )
    with recorder:
        pass  # closes it, unless the test did
    failure = _compared(item, ledger, (reference, recorder.path), _limits(item, settings), kind="reference")
    if failure is not None:
        short = pytest.fail.Exception(str(failure).splitlines()[0], pytrace=False)
        short.comparison = failure  # type: ignore[attr-defined]  # a cause would be printed in full as well
        raise short


class Regression:
    """Checks recordings against golden ones, which are kept in a folder beside the test and named after both.

    Args:
        item: The test.
        settings: What was asked for.
        ledger: Where comparisons are noted.
    """

    def __init__(self, item: pytest.Item, settings: Settings, ledger: Ledger) -> None:
        self._item, self._settings, self._ledger = item, settings, ledger
        self._checked: set[str] = set()

    def golden(self, name: str = "") -> Path:
        """Give the path of a golden recording.

        Args:
            name: What tells it from others of the same test; "" for the only one.
        """
        test = self._item.path
        stem = file_name(f"{self._item.name}{'.' if name else ''}{name}", digest=False)
        return test.parent / test.stem / f"{stem}.h5"

    def check(
        self, recording: str | Path | Recording | Recorder, *, name: str = "", **bounds: float | None
    ) -> DiffResult | None:
        """Compare a recording with the golden one; with --qdebug-regen, make it the golden one.

        Args:
            recording: A recorder (it is closed), a path, or an open recording.
            name: What tells this check from others in the same test.
            **bounds: Limits by name, in place of the project's: min_sqnr, max_lsb, atol, rtol, max_saturation.

        Returns:
            The comparison; None if the golden recording was written.

        Raises:
            AssertionError: They are too far apart, or there is no golden recording.
            UsageError: A limit has an unknown name, or the same check is made twice.
        """
        __tracebackhide__ = True
        path = self.golden(name)
        if str(path) in self._checked:
            raise UsageError(f"{path.name!r} is checked twice in one test.", hint="Give each check a name: name='...'.")
        self._checked.add(str(path))
        side = _closed(recording)
        if self._settings.regen:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_recording(open_recording(side) if isinstance(side, str | Path) else side, path, force=True)
            self._ledger.note(_entry(self._item, "golden recording written", files=(path, None)))
            return None
        if not path.is_file():
            raise AssertionError(f"there is no golden recording {str(path)!r}; write it: pytest --qdebug-regen")
        limits = _with_bounds(_limits(self._item, self._settings), bounds)
        found: list[DiffResult] = []
        failure = _compared(self._item, self._ledger, (path, side), limits, kind="golden", found=found)
        if failure is not None:
            raise failure
        return found[0]


def _closed(recording: str | Path | Recording | Recorder) -> str | Path | Recording:
    if not isinstance(recording, Recorder):
        return recording
    with recording:
        pass
    return recording.recording if recording.path is None else recording.path


def _compared(
    item: pytest.Item,
    ledger: Ledger,
    sides: tuple[Path, Any],
    limits: Limits,
    *,
    kind: str,
    found: list[DiffResult] | None = None,
) -> ComparisonError | None:
    """Compare, note the outcome for JUnit and for the end of the run, and give the failure if there is one."""
    failure = None
    try:
        result = check_close(*sides, limits=limits)
    except ComparisonError as error:
        failure, result = error, error.result
    if found is not None:
        found.append(result)
    worst = min((node.metrics.sqnr_db for node in result.nodes if _has_sqnr(node)), default=None)  # type: ignore[type-var,union-attr]
    facts = {"status": str(result.status), "first_divergence": result.first_divergence, "worst_sqnr_db": worst}
    for name, value in (*facts.items(), ("compared", result.coverage.compared)):
        item.user_properties.append((f"qdebug_{name}", "" if value is None else safe_text(value, limit=300)))
    backend = sides[1] if isinstance(sides[1], str | Path) else None
    entry = _entry(item, str(result.status), files=(sides[0], backend), failed=failure is not None)
    entry |= {"kind": kind, "first_divergence": result.first_divergence, "sentence": result.verdict.sentence}
    ledger.note({**entry, "exit_code": result.exit_code, "compared": result.coverage.compared})
    return failure


def _has_sqnr(node: Any) -> bool:
    return node.metrics is not None and node.metrics.sqnr_db is not None


def _entry(
    item: pytest.Item, outcome: str, *, files: tuple[Path, str | Path | None], failed: bool = False
) -> dict[str, Any]:
    return {
        "test": item.nodeid,
        "outcome": outcome,
        "failed": failed,
        "reference": str(files[0]),
        "backend": None if files[1] is None else str(files[1]),
        "first_divergence": None,
    }


def _limits(item: pytest.Item, settings: Settings) -> Limits:
    """Give the limits of a test: its marker's before those of the command line, of the ini file, of the project."""
    marker = item.get_closest_marker("qdebug")
    given = {} if marker is None else marker.kwargs
    named = given.get("limits")
    path = item.path.parent / named if named is not None else settings.limits or find_limits(settings.root)
    limits = Limits() if path is None else load_limits(path)
    return _with_bounds(limits, {name: given[name] for name in _BOUNDS if name in given})


def _with_bounds(limits: Limits, bounds: dict[str, Any]) -> Limits:
    for name in bounds:
        if name not in _BOUNDS:
            raise UsageError(f"There is no limit {name!r}; there are {', '.join(_BOUNDS)}.", hint="Give one of these.")
    return replace(limits, **bounds)
