"""The line that asks for text: search, filter, element, reason, file. It answers as the user types where it can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.events import Key, Paste

from qdebug.tui.screen.widgets import put_in

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Prompt", "Question"]


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


class Prompt:
    """Asks one question at a time in the place of the footer.

    Args:
        screen: Has the line, and says what the questions answer.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._question: Question | None = None
        self._answered = ""
        self.label = ""

    @property
    def asking(self) -> bool:
        """Whether the line is open."""
        return self._question is not None

    def ask(self, question: Question) -> None:
        """Open the line."""
        self._question, self._answered = question, question.text
        self.label = f" {question.label} "
        fits = cell_len(self.label) + cell_len(question.placeholder) <= self._screen.size.width
        self._screen.open_line(self.label, question.text, question.placeholder if fits else "")
        replaced = "typing replaces the text, right keeps it; " if question.text else ""
        self._screen.say(f"{replaced}{question.placeholder}" if question.text or not fits else "")

    async def take(self, event: Key | Paste) -> None:
        """Do what a key does to the text, or put in what is pasted; answer what the text is then."""
        line = self._screen.line
        if isinstance(event, Paste):
            put_in(line, event.text)
        elif event.key == "enter":
            self._given()
        elif not await line.press(event):
            self._answer()
            self._screen.press(event)
        self._answer()  # before anything is painted: the text and what it finds then come at once

    def cancel(self) -> bool:
        """Close the line and undo what the text did; tell whether it was open."""
        question = self._close()
        if question is not None:
            self._screen.say(question.cancelled())
        return question is not None

    def _given(self) -> None:
        self._answer()
        question = self._close()
        if question is not None:
            self._screen.say(question.given(self._screen.line.value))

    def _answer(self) -> None:
        """Answer what is in the line, unless that is done."""
        text = self._screen.line.value
        if self._question is not None and self._question.typed is not None and text != self._answered:
            self._answered = text
            self._screen.say(self._question.typed(text))

    def _close(self) -> Question | None:
        question, self._question = self._question, None
        if question is not None:
            self._screen.close_line()
        return question
