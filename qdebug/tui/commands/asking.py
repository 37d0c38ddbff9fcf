"""The line that asks for text: search, filter, element, reason, file. It answers as the user types where it can.

What is said and where the cursor goes depends on the text alone, not on how fast it was typed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len
from textual.events import Key, Paste
from textual.widgets import Input

from qdebug.tui.commands.moving import Moving
from qdebug.tui.keys import ROW_OF, key_label
from qdebug.tui.panels.widgets import put_in

__all__ = ["Asking", "Question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something to ask for.

    Args:
        label: Stands before the text.
        placeholder: What can be given; shown while nothing is.
        text: What is there to begin with.
        typed: Takes the text at each change, and says what it means so far; None where only the whole counts.
        given: Takes the text at enter, and says what came of it.
        cancelled: Undoes what `typed` did; says so.
    """

    label: str
    placeholder: str
    text: str = ""
    typed: Callable[[str], str] | None = None
    given: Callable[[str], str]
    cancelled: Callable[[], str] = lambda: "cancelled"


class Asking(Moving):
    """Asks one question at a time in the place of the footer."""

    _question: Question | None = None
    _answered: str = ""

    def ask_for(self, question: Question) -> None:
        """Open the line."""
        self._question, self._answered = question, question.text
        self._label_text = f" {question.label} "
        self._label.styles.width = cell_len(self._label_text)
        self._label.redraw()
        fits = cell_len(self._label_text) + cell_len(question.placeholder) <= self.size.width
        self._input.placeholder = question.placeholder if fits else ""
        with self._input.prevent(Input.Changed):
            self._input.value = question.text
        self._input.cursor_position = len(question.text)
        self._footer.display, self._asking.display = False, True
        self.set_focus(self._input)
        self.say(question.placeholder if question.text or not fits else "")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Answer as the user types; what is known of an older text, or of the line before, is news no more."""
        if event.value == self._input.value:
            self._answer()

    def _answer(self) -> None:
        """Answer what is in the line, unless that is done."""
        text = self._input.value
        if self._question is not None and self._question.typed is not None and text != self._answered:
            self._answered = text
            self.say(self._question.typed(text))

    async def do(self, event: Key | Paste) -> None:
        """Do what a key does now; put what is pasted where text is asked for, or say where that is."""
        if self.asking:
            if isinstance(event, Key):
                await self._input.press(event)
            else:
                put_in(self._input, event.text)
            self._answer()  # before anything is painted: the text and what it finds then come at once
        elif isinstance(event, Key):
            await self.do_key(event)
        else:  # letters are keys everywhere else
            self.say("nothing asks for text: paste after / f @ i a or e")

    def take_text(self, text: str) -> None:
        """Take the text."""
        self._answer()
        question = self._close()
        if question is not None:
            self.say(question.given(text))

    async def do_key(self, event: Key) -> None:
        """Do what a key of the table does; what was typed before it into the line is answered first."""
        self._answer()
        row = ROW_OF.get(event.key)
        if row is not None:
            await self.run_action(row.action)
        elif not self.asking and (
            event.is_printable or event.key.startswith("ctrl+")
        ):  # others nobody may have pressed
            name = (event.character or "").strip() if event.is_printable else ""
            self.say(f"{name or key_label(event.key)} does nothing here; ? lists the keys")

    def action_back(self) -> None:
        """Close the line, or go back one step."""
        question = self._close()
        if question is not None:
            self.say(question.cancelled())
        else:
            super().action_back()

    @property
    def asking(self) -> bool:
        """Whether the line is open."""
        return self._question is not None

    def _close(self) -> Question | None:
        question, self._question = self._question, None
        if question is not None:
            self._asking.display, self._footer.display = False, self._arrangement.usable
            self.set_focus(None)
        return question
