"""The prompt that asks for text: search, filter, element, reason, file. Searches and filters apply while typing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.events import Key
from textual.geometry import Region
from textual.widgets import Input
from textual.widgets.input import Selection

from qdebug.tui.drawing.look import Look
from qdebug.tui.widgets.lines import FixedLines

__all__ = ["Prompt", "Question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request for text from the user.

    Args:
        label: Shown before the text.
        placeholder: Example texts, shown while the line is empty.
        text: The initial text.
        on_change: Called with the text at each change, returns a message; None if only the whole text matters.
        on_submit: Called with the text at enter, returns a message.
        on_cancel: Undoes the effects of `on_change`, returns a message.
    """

    label: str
    placeholder: str
    text: str = ""
    on_change: Callable[[str], str] | None = None
    on_submit: Callable[[str], str]
    on_cancel: Callable[[], str] = lambda: "cancelled"


class _Line(Input):
    """An input that handles enter at once, since Textual's message would arrive after the next key of a burst."""

    def __init__(self, on_submitted: Callable[[], None]) -> None:
        super().__init__(compact=True, select_on_focus=False, id="input")
        self._on_submitted = on_submitted

    async def action_submit(self) -> None:
        """Submit the text."""
        self._on_submitted()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Repaint. The text never changes the size of the line, so its surroundings need no new layout."""
        return super().refresh(*regions, repaint=repaint or layout, recompose=recompose)


class Prompt(Horizontal):
    """Asks one question at a time, in place of the footer.

    Args:
        look: Shared look.
        say: Shows the messages of the questions.
        on_closed: Called when the question is closed.
    """

    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt #label { width: auto; height: 1; }
    Prompt #input { height: 1; width: 1fr; background: $background; }
    """

    def __init__(self, look: Look, *, say: Callable[[str], object], on_closed: Callable[[], object]) -> None:
        super().__init__(id="prompt")
        self._say, self._on_closed = say, on_closed
        self._question: Question | None = None
        self._handled_text = self._title = ""
        self._label = FixedLines(look, lambda *_: [[(self._title, "title")]], id="label")
        self.line: Input = _Line(self._submit)

    def compose(self) -> ComposeResult:
        """Yield the label and the input line."""
        yield self._label
        yield self.line

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self._question is not None

    def ask(self, question: Question) -> None:
        """Open a question. Its initial text is selected, so that typing replaces it."""
        self._question, self._handled_text = question, question.text
        self._title = f" {question.label} "
        fits_placeholder = cell_len(self._title) + cell_len(question.placeholder) <= self.screen.size.width
        self._label.styles.width = cell_len(self._title)
        self._label.redraw()
        line = self.line
        line.placeholder, line.value = question.placeholder if fits_placeholder else "", question.text
        line.selection = Selection(0, len(question.text))
        self.display = True
        self.screen.set_focus(line)
        replace_hint = "typing replaces the text, right keeps it; " if question.text else ""
        self._say(f"{replace_hint}{question.placeholder}" if question.text or not fits_placeholder else "")

    def insert_key(self, event: Key) -> bool:
        """Insert the character of a key. Return False if it has none, or if no question is open."""
        if self._question is None or not event.is_printable or event.character is None:
            return False
        self.insert(event.character)
        return True

    def insert(self, text: str) -> None:
        """Replace the selection with text. If the text has several lines, only the first is inserted."""
        self.line.replace(next(iter(text.splitlines()), ""), *sorted(self.line.selection))

    def respond(self) -> None:
        """Show the effect of the text so far, unless it is already shown."""
        text = self.line.value
        if self._question is not None and self._question.on_change is not None and text != self._handled_text:
            self._handled_text = text
            self._say(self._question.on_change(text))

    def cancel(self) -> bool:
        """Close the question and undo its effects. Return whether one was open."""
        question = self._close()
        if question is not None:
            self._say(question.on_cancel())
        return question is not None

    def _submit(self) -> None:
        self.respond()
        question = self._close()
        if question is not None:
            self._say(question.on_submit(self.line.value))

    def _close(self) -> Question | None:
        question, self._question = self._question, None
        if question is not None:
            self.display = False
            self._on_closed()
        return question
