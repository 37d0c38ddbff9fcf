"""Follow recordings while they are written: new data, and changes of the files."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING

from qdebug.errors import QdebugError
from qdebug.present.text import safe_text
from qdebug.recording.reading.follow import FollowedRecording, FollowState

if TYPE_CHECKING:
    from qdebug.model import Recording

__all__ = ["Following"]


class Following:
    """Reads data that recorders append, and reopens rewritten files. Used on worker threads.

    Args:
        sides: The open recordings, by side.
        reopen: Reopens a recording and replaces it in `sides`.
    """

    def __init__(self, sides: MutableMapping[str, Recording], reopen: Callable[[str], object]) -> None:
        self._sides, self._reopen = sides, reopen
        self._states: dict[str, FollowState] = {}
        self._reported: dict[str, str] = {}
        self._news: list[str] = []

    def begin(self) -> None:
        """Read all data so far, and note which recordings are still being written. `refresh` finds later changes."""
        self._states = self._current_states()  # before reading: `refresh` then notices a recorder that ends meanwhile
        for recording in self._followed_recordings().values():
            with suppress(QdebugError):  # the next `refresh` reports it
                recording.refresh()

    def refresh(self) -> bool:
        """Read new data. Return whether there was any."""
        states_before, self._states = self._states, self._current_states()
        has_new_data = [self._read_new_data(side, recording) for side, recording in self._followed_recordings().items()]
        return any(has_new_data) or states_before != self._states  # closing a file is a change, too

    def is_writing(self) -> bool:
        """Return whether any recording was still growing at the last check."""
        return FollowState.WRITING in self._states.values()

    def describe_change(self) -> str:
        """Return which file was replaced since it was opened; "" for none. A removed file can still be read."""
        for recording in self._followed_recordings().values():
            change = recording.describe_change()
            if change and recording.path.exists():
                return f"{_file_name(recording)} {change}"
        return ""

    def take_news(self) -> str:
        """Return a message about changed files; "" for none. Each change is reported once."""
        news, self._news = "; ".join(self._news), []
        return news

    def _followed_recordings(self) -> dict[str, FollowedRecording]:
        return {side: recording for side, recording in self._sides.items() if isinstance(recording, FollowedRecording)}

    def _current_states(self) -> dict[str, FollowState]:
        return {side: recording.state for side, recording in self._followed_recordings().items()}

    def _read_new_data(self, side: str, recording: FollowedRecording) -> bool:
        """Read new data of one recording, or of its replacement."""
        change = recording.describe_change()
        try:
            if not change:
                return bool(recording.refresh())
            self._reopen(side)  # threads that still read the old file may finish
        except QdebugError as error:
            problem = f"{_file_name(recording)} {change}" if change else safe_text(error, limit=200)
            self._report(side, f"{problem}; showing what was read before")
            return False
        self._reported.pop(side, None)
        self._news.append(f"{_file_name(recording)} {change}, and is opened again")
        return True

    def _report(self, side: str, problem: str) -> None:
        if self._reported.get(side) != problem:
            self._reported[side] = problem
            self._news.append(problem)


def _file_name(recording: FollowedRecording) -> str:
    return safe_text(recording.path.name, limit=60)
