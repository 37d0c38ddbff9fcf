"""The keys that write: accept an error, note something, copy a name or a command, write a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.errors import QdebugError
from qdebug.present import shell
from qdebug.present.text import safe_text
from qdebug.tui.reading.messages import AcceptRequest, ExportRequest, NoteRequest
from qdebug.tui.screen import exports
from qdebug.tui.screen.prompt import Question

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Writing"]


class Writing:
    """Writes what the user decides, through the reader thread; says what becomes of it.

    Args:
        screen: Shows what it is about.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._refused: tuple[object, str] = (None, "")  # a file that could not be written, to be mended on its screen

    def acknowledge(self) -> None:
        """Ask why the node's error is acceptable."""
        scene = self._screen.scene
        if scene is None:
            return self._screen.without_scene("there is no node")
        if scene.planned.missing is not None or not scene.planned.tensor:
            return self._screen.say("this tensor is not compared: there is nothing to acknowledge")
        node, backend, path = scene.planned.node, self._screen.backend, self._screen.qdebug.limits_file

        def given(text: str) -> str:
            reason, expires, problem = exports.reason_and_day(text)
            if text.strip() == exports.TAKE_BACK:
                reason = ""
            if problem:
                return problem
            self._screen.ask(AcceptRequest(backend=backend, node=node, reason=reason, expires=expires, path=path))
            return self._writing(path)

        return self._screen.prompt.ask(
            Question(
                label=f"acknowledge {safe_text(node, limit=24)} because",
                placeholder=f"reason, optionally: until 2027-01-31; {exports.TAKE_BACK} takes it back; in {path.name}",
                given=given,
            )
        )

    def note(self) -> None:
        """Ask what to remember of the node."""
        scene = self._screen.scene
        if scene is None:
            return self._screen.without_scene("there is no node")
        node, backend = scene.planned.node or scene.planned.tensor, self._screen.backend
        path = self._screen.qdebug.limits_file
        known = scene.navigator.trail.notes.get(scene.row, "")

        def given(text: str) -> str:
            kept = "" if text.strip() == exports.TAKE_BACK else text.strip()
            if not text.strip():
                return f"nothing noted; {exports.TAKE_BACK} takes a note out"
            self._screen.ask(NoteRequest(backend=backend, node=node, text=kept, path=path))
            return self._writing(path)

        return self._screen.prompt.ask(
            Question(
                label=f"note on {safe_text(node, limit=24)}",
                placeholder=f"what to remember; {exports.TAKE_BACK} takes it out; in {path.name}",
                text=known,
                given=given,
            )
        )

    def pair(self) -> None:
        """Ask which tensor of the reference the tensor answers to."""
        scene = self._screen.scene
        if scene is None:
            return self._screen.without_scene("there is no tensor")
        tensor, partner = scene.planned.tensor, scene.planned.reference_tensor
        if not tensor:
            said = f"{safe_text(partner, limit=60)} is a tensor of the reference: pair it at the backend's tensor"
            return self._screen.say(said)
        backend, path = self._screen.backend, self._screen.qdebug.map_file

        def given(text: str) -> str:
            name = "" if text.strip() == exports.TAKE_BACK else text.strip()
            if not text.strip():
                return f"no pair made; {exports.TAKE_BACK} says that it has no partner"
            write = partial(exports.write_pair, tensor=tensor, partner=name)
            self._screen.ask(ExportRequest(backend=backend, path=path, write=write))
            return self._writing(path)

        return self._screen.prompt.ask(
            Question(
                label=f"partner of {safe_text(tensor, limit=24)}",
                placeholder=f"a tensor of the reference; {exports.TAKE_BACK}: it has none; in {path.name}",
                text=partner,
                given=given,
            )
        )

    def copy(self) -> None:
        """Send the node's name to the terminal's clipboard."""
        scene = self._screen.scene
        if scene is None:
            return self._screen.without_scene("there is no node to copy")
        return self._send(safe_text(scene.planned.node or scene.planned.tensor, limit=100_000))

    def copy_command(self) -> None:
        """Send the command that shows this again to the terminal's clipboard."""
        scene = self._screen.scene
        if scene is None:
            return self._screen.without_scene("there is no node")
        page, backend = self._screen.page, self._screen.backend
        own = None if page is None else page.command(scene, self._screen.qdebug.files(backend))
        if own is not None:
            return self._send(shell.command(*own))
        accepted = bool(scene.table.acknowledged.any())
        words = self._screen.qdebug.command_words(accepted=accepted, backend=backend)
        return self._send(exports.command(words, scene, self._screen.view))

    def _send(self, text: str) -> None:
        self._screen.qdebug.copy_to_clipboard(text)
        self._screen.say(f"sent to the terminal: {text}")

    def export(self) -> None:
        """Ask for a file to write."""
        scene = self._screen.scene
        if scene is None:
            return self._screen.without_scene("there is nothing to write")
        refused = self._refused[1] if self._refused[0] == (self._screen.view, scene.place) else ""
        return self._screen.prompt.ask(
            Question(
                label="write",
                placeholder=f"NAME{exports.OVER} overwrites; {' '.join(exports.SUFFIXES)}",
                text=refused or exports.suggested_name(scene, self._screen.view),
                given=self._export,
            )
        )

    def _export(self, text: str) -> str:
        self._screen.call_after_refresh(self._write, text)  # a picture is of the screen without the line that asks
        return ""

    def _write(self, text: str) -> None:
        scene = self._screen.scene
        if scene is None:
            return self._screen.say("there is nothing to write")
        try:
            path, write = exports.prepared(
                text,
                scene,
                screenshot=self._screen.qdebug.export_screenshot,
                words=self._screen.words,
                view=self._screen.view,
                page=self._screen.page,
            )
        except QdebugError as error:
            self._refused = (self._screen.view, scene.place), text.strip()
            return self._screen.say(f"{error.message} {error.hint or ''}")
        self._refused = (None, "")
        self._screen.ask(ExportRequest(backend=self._screen.backend, path=path, write=write))
        return self._screen.say(self._writing(path))

    def _writing(self, path: Path) -> str:
        """Say that a file is on its way, and what it may have to wait for."""
        scene = self._screen.scene
        waits = "" if scene is None or not scene.table.pending else ", once the step at hand of the comparison is done"
        return f"writing {safe_text(path, limit=60)}{waits} .."
