"""The prompts for writing: a reason to accept a node, a note, a counterpart, a file name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from qdebug.errors import QdebugError
from qdebug.present.text import safe_text
from qdebug.tui.reading.messages import AcceptRequest, ExportRequest, Job, NoteRequest
from qdebug.tui.screen import exports
from qdebug.tui.views.view import Scene, View
from qdebug.tui.widgets.prompt import Question

__all__ = ["Exporting", "ask_acknowledgement", "ask_note", "ask_pair"]

Submit = Callable[[Job], object]
"""Starts a job, which reports when it is done."""


def ask_acknowledgement(scene: Scene, path: Path, submit: Submit) -> Question | str:
    """Return the prompt for why the node's error is acceptable, or a message if there is nothing to accept.

    Args:
        scene: The node.
        path: The limits file.
        submit: Starts the job.
    """
    if scene.plan_row.missing is not None or not scene.plan_row.tensor:
        return "this tensor is not compared: there is nothing to acknowledge"
    node = scene.plan_row.node

    def submit_text(text: str) -> str:
        reason, expires, problem = exports.reason_and_day(text)
        if text.strip() == exports.WITHDRAW_SIGN:
            reason = ""
        if problem:
            return problem
        submit(AcceptRequest(backend=scene.backend, node=node, reason=reason, expires=expires, path=path))
        return _writing_text(scene, path)

    return Question(
        label=f"acknowledge {safe_text(node, limit=24)} because",
        placeholder=f"reason, optionally: until 2027-01-31; {exports.WITHDRAW_SIGN} takes it back; in {path.name}",
        on_submit=submit_text,
    )


def ask_note(scene: Scene, path: Path, submit: Submit) -> Question:
    """Return the prompt for a note on the node."""
    node = scene.plan_row.node or scene.plan_row.tensor

    def submit_text(text: str) -> str:
        content = "" if text.strip() == exports.WITHDRAW_SIGN else text.strip()
        if not text.strip():
            return f"no note written; {exports.WITHDRAW_SIGN} removes a note"
        submit(NoteRequest(backend=scene.backend, node=node, text=content, path=path))
        return f"writing {safe_text(path, limit=60)} .."

    return Question(
        label=f"note on {safe_text(node, limit=24)}",
        placeholder=f"what to remember; {exports.WITHDRAW_SIGN} removes it; in {path.name}",
        text=scene.navigator.trail.notes.get(scene.row, ""),
        on_submit=submit_text,
    )


def ask_pair(scene: Scene, path: Path, submit: Submit) -> Question | str:
    """Return the prompt for the reference tensor that corresponds to the tensor."""
    tensor, partner = scene.plan_row.tensor, scene.plan_row.reference_tensor
    if not tensor:
        return f"{safe_text(partner, limit=60)} is a tensor of the reference: pair it at the backend's tensor"

    def submit_text(text: str) -> str:
        name = "" if text.strip() == exports.WITHDRAW_SIGN else text.strip()
        if not text.strip():
            return f"no pair made; {exports.WITHDRAW_SIGN} marks it as having no partner"
        write = partial(exports.write_pair, tensor=tensor, partner=name)
        submit(ExportRequest(backend=scene.backend, path=path, write=write))
        return _writing_text(scene, path)

    return Question(
        label=f"partner of {safe_text(tensor, limit=24)}",
        placeholder=f"a tensor of the reference; {exports.WITHDRAW_SIGN}: it has none; in {path.name}",
        text=partner,
        on_submit=submit_text,
    )


class Exporting:
    """Writes a screen to a file, and keeps a file name that failed, so that the user can correct it.

    Args:
        submit: Starts the job.
    """

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._rejected_name: tuple[object, str] = (None, "")

    def question(self, scene: Scene, view: View, on_submit: Callable[[str], str]) -> Question:
        """Return the prompt for a file to write."""
        rejected_name = self._rejected_name[1] if self._rejected_name[0] == (view.view, scene.row_key) else ""
        return Question(
            label="write",
            placeholder=f"NAME{exports.OVERWRITE_SIGN} overwrites; {' '.join(exports.SUFFIXES)}",
            text=rejected_name or exports.suggested_name(scene, view.view),
            on_submit=on_submit,
        )

    def write(
        self, text: str, scene: Scene, view: View, *, picture: Callable[[], str], text_lines: Callable[[], list[str]]
    ) -> str:
        """Start writing a file. Return a message, which also reports why it cannot be written.

        Args:
            text: Its name as typed.
            scene: The state of the screen.
            view: The view that shows it.
            picture: Returns the screen as SVG.
            text_lines: Returns the lines of the screen.
        """
        try:
            path, write = exports.prepare_export(text, scene, screenshot=picture, text_lines=text_lines, view=view)
        except QdebugError as error:
            self._rejected_name = (view.view, scene.row_key), text.strip()
            return f"{error.message} {error.hint or ''}"
        self._rejected_name = (None, "")
        self._submit(ExportRequest(backend=scene.backend, path=path, write=write))
        return _writing_text(scene, path)


def _writing_text(scene: Scene, path: Path) -> str:
    """Return a message that a file is being written, with the reason for any wait."""
    wait_text = ", once the step at hand of the comparison is done" if scene.table.pending else ""
    return f"writing {safe_text(path, limit=60)}{wait_text} .."
