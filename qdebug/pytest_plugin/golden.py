"""Golden recordings next to the tests: written with --qdebug-regen, and compared with in all other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qdebug.compare.result.result import RunComparison
from qdebug.errors import AlignmentError, QdebugError, RecordingError, UsageError
from qdebug.model import Recording
from qdebug.pytest_plugin.comparing import compare_and_note, entry, limits_of, not_compared, with_bounds
from qdebug.pytest_plugin.gather import ComparisonLedger
from qdebug.pytest_plugin.options import Settings, file_name
from qdebug.recording.recorder import Recorder
from qdebug.running.save import save_recording
from qdebug.session import opened_recording

__all__ = ["Regression"]

_WRITTEN = "golden recording written"


class Regression:
    """Checks recordings against golden ones: `TEST_FILE/TEST.h5` next to the test file.

    Args:
        item: The test.
        settings: The settings.
        ledger: The ledger of this run.
    """

    def __init__(self, item: pytest.Item, settings: Settings, ledger: ComparisonLedger) -> None:
        self._item, self._settings, self._ledger = item, settings, ledger
        self._checked: set[str] = set()

    def golden(self, name: str = "") -> Path:
        """Return the path of a golden recording.

        Args:
            name: Name of the check, if the test has several; "" for a single one.
        """
        test = self._item.path
        owners = [node.name for node in self._item.listchain() if isinstance(node, pytest.Class)]
        stem = file_name(".".join([*owners, self._item.name, *([name] if name else [])]), digest=False)
        return test.parent / test.stem / f"{stem}.h5"

    def check(
        self, recording: str | Path | Recording | Recorder, *, name: str = "", **bounds: float | None
    ) -> RunComparison | None:
        """Compare a recording with the golden one. With --qdebug-regen, make it the golden one.

        Args:
            recording: A recorder (which is then closed), a path, or an open recording.
            name: Name of the check, if the test has several.
            **bounds: Limits by name, which override the project's: min_sqnr, max_lsb, atol, rtol, max_saturation,
                min_output_sqnr.

        Returns:
            The comparison; None if the golden recording was written.

        Raises:
            AssertionError: The recordings differ too much, or there is no golden recording.
            UsageError: A limit has an unknown name or invalid value, a check is made twice, or `recording` is not a
                recording.
            RecordingError: A recording cannot be read, or the golden one cannot be written.
            AlignmentError: The golden recording is of another network.
        """
        __tracebackhide__ = True
        try:
            return self._check(recording, name, bounds)
        except AlignmentError as error:
            hint = "If the network was changed on purpose, write the golden recording again: pytest --qdebug-regen."
            raise AlignmentError(error.message, hint=hint) from None
        except QdebugError as error:
            raise error.with_traceback(None) from None  # a traceback through the plugin would not help

    def _check(
        self, recording: str | Path | Recording | Recorder, name: str, bounds: dict[str, Any]
    ) -> RunComparison | None:
        __tracebackhide__ = True
        path = self.golden(name)
        if str(path) in self._checked:
            raise UsageError(f"{path.name!r} is checked twice in one test.", hint="Give each check a name: name='...'.")
        self._checked.add(str(path))
        limits = with_bounds(limits_of(self._item, self._settings), bounds)
        side = _closed_recording(recording)
        if self._settings.regen:
            _write_golden(side, path)
            self._ledger.note(entry(self._item, _WRITTEN, files=(path, None), kind="golden"))
            return None
        if not path.is_file():
            message = f"there is no golden recording {str(path)!r}; write it: pytest --qdebug-regen"
            self._ledger.note(not_compared(self._item, message, files=(path, side), kind="golden"))
            raise AssertionError(message)
        result, failure = compare_and_note(self._item, self._ledger, (path, side), limits, kind="golden")
        if failure is not None:
            raise failure
        return result


def _write_golden(side: str | Path | Recording, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(
            f"The folder {str(path.parent)!r} of golden recordings cannot be created: {error.strerror}.",
            hint="Move the file of that name, or make the test's folder writable.",
        ) from None
    with opened_recording(side) as recording:
        save_recording(recording, path, force=True)


def _closed_recording(recording: str | Path | Recording | Recorder) -> str | Path | Recording:
    if not isinstance(recording, str | Path | Recording | Recorder):
        raise UsageError(
            f"A {type(recording).__name__} is not a recording.",
            hint="Give a recorder, a path or an open recording; compare arrays with qdebug.testing.assert_close.",
        )
    if not isinstance(recording, Recorder):
        return recording
    with recording:
        pass
    return recording.recording if recording.path is None else recording.path
