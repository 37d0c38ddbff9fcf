"""Recordings that are followed while they are written: new data, and changes of their files."""

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
    """Reads data that recorders append, and reopens rewritten files; called on worker threads.

    Args:
        sides: The open recordings, by side.
        reopen: Opens one again and puts it among them.
    """

    def __init__(self, sides: MutableMapping[str, Recording], reopen: Callable[[str], object]) -> None:
        self._sides, self._reopen = sides, reopen
        self._states: dict[str, FollowState] = {}
        self._told: dict[str, str] = {}
        self._news: list[str] = []

    def begin(self) -> None:
        """Read all data so far, and note which runs go on: `refresh` finds later changes."""
        self._states = self._now()  # asked before the look, so that what comes last is not missed
        for recording in self._followed().values():
            with suppress(QdebugError):  # the next look tells it
                recording.refresh()

    def refresh(self) -> bool:
        """Read new data; return whether there was any."""
        told, self._states = self._states, self._now()
        new = [self._look(side, recording) for side, recording in self._followed().items()]
        return any(new) or told != self._states  # a recorder that closed its file is news too

    def writing(self) -> bool:
        """Tell whether any may still grow, as of the last look."""
        return FollowState.WRITING in self._states.values()

    def changed(self) -> str:
        """Return the name of the file that was replaced since; "" if none was. A removed file can still be read."""
        for recording in self._followed().values():
            what = recording.changed()
            if what and recording.path.exists():
                return f"{_named(recording)} {what}"
        return ""

    def news(self) -> str:
        """Return a message about changed files, once."""
        said, self._news = "; ".join(self._news), []
        return said

    def _followed(self) -> dict[str, FollowedRecording]:
        return {side: each for side, each in self._sides.items() if isinstance(each, FollowedRecording)}

    def _now(self) -> dict[str, FollowState]:
        return {side: each.state for side, each in self._followed().items()}

    def _look(self, side: str, recording: FollowedRecording) -> bool:
        """Read new data of one recording, or of its replacement."""
        what = recording.changed()
        try:
            if not what:
                return bool(recording.refresh())
            self._reopen(side)  # who still reads the one before may do so to the end
        except QdebugError as error:
            said = f"{_named(recording)} {what}" if what else safe_text(error, limit=200)
            self._tell(side, f"{said}; shown is what was read of it before")
            return False
        self._told.pop(side, None)
        self._news.append(f"{_named(recording)} {what}, and is opened again")
        return True

    def _tell(self, side: str, what: str) -> None:
        if self._told.get(side) != what:
            self._told[side] = what
            self._news.append(what)


def _named(recording: FollowedRecording) -> str:
    return safe_text(recording.path.name, limit=60)
