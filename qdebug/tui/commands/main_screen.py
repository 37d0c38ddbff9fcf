"""The main screen: what each key does. Every key changes something, or says in the status line why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.binding import Binding

from qdebug.present.text import safe_text
from qdebug.tui.commands.asking import Question
from qdebug.tui.commands.help_screen import HelpScreen, ReadingScreen
from qdebug.tui.commands.waiting import Waiting
from qdebug.tui.commands.way_back import to_worst_input
from qdebug.tui.drawing.arrangement import ScreenId
from qdebug.tui.keys import KEYS
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.page import Scene
from qdebug.tui.panels.widgets import RowPicked
from qdebug.tui.reading.messages import Event

if TYPE_CHECKING:
    from qdebug.tui.application import QdebugApp

__all__ = ["MainScreen"]

_SO_FAR = "not yet: "
"""Begins what is said of a filter that cannot be read to its end while someone types it."""


class MainScreen(Waiting):
    """Shows one comparison and answers the keys of the table."""

    BINDINGS = [Binding(",".join(row.keys), row.action, row.help, show=False) for row in KEYS]  # noqa: RUF012

    def runner(self, action: str) -> Callable[[], Awaitable[None]]:
        """Return a function that does what a key does, for the command palette."""
        return partial(self.run_action, action)

    _wanted_element: tuple[tuple[object, ...], str] | None = None

    # Find

    def action_worst_input(self) -> None:
        """Go to the input that carries most error."""
        self.with_scene(to_worst_input)

    def _anchor(self, navigator: Navigator) -> Callable[[], int]:
        """Remember where the cursor is, by its tensor: more of a recording may come in while someone types."""
        tensor = navigator.table.rows[navigator.cursor].tensor if navigator.table.size else ""

        def row() -> int:
            now = self.navigator
            found = None if now is None else now.table.row_of(tensor)
            return found if found is not None else 0 if now is None else now.cursor

        return row

    def action_search(self) -> None:
        """Open the search."""
        navigator = self.navigator
        if navigator is None or self.now.opened is None:  # the names alone know no nodes, and no operators
            return self.refuse()
        if not self._arrangement.usable:
            return self.say("the terminal is too small to type a text in")
        begun = self._anchor(navigator)
        self._untouched = False

        def typed(text: str) -> str:
            now = self.navigator
            return "" if now is None else now.search(text, start=begun())

        def given(text: str) -> str:
            now = self.navigator
            said = typed(text)  # again: enter may come before the last letters were looked for
            if now is None or not now.pattern:
                return "search cleared"
            return f"{said}; n N walk them, esc clears" if now.finds else said

        def cancelled() -> str:
            typed("")
            return "search cancelled"

        return self.ask_for(
            Question(
                label="/",
                placeholder="part of a name, 'whole name' or ~regex",
                typed=typed,
                given=given,
                cancelled=cancelled,
            )
        )

    def action_filter(self) -> None:
        """Ask for a filter."""
        navigator = self.navigator
        if navigator is None or self.now.opened is None:  # the names alone know no nodes, and no operators
            return self.refuse()
        if not self._arrangement.usable:
            return self.say("the terminal is too small to type a text in")
        before, begun = navigator.filter, self._anchor(navigator)
        self._untouched = False

        said: list[str] = []

        def choose(text: str) -> str:
            """Show what fits as much of the text as can be read, whichever way it was typed."""
            now = self.navigator
            if now is None:
                return ""
            now.go(begun())
            fitting, problem = now.choose_filter_so_far(text)
            problem = problem and f"{_SO_FAR}{problem}"
            said[:] = [problem or fitting]
            return said[0]

        def given(text: str) -> str:
            """Say what the filter is now: of a text that cannot be read to its end only its beginning."""
            answer, now = said[0] if said else choose(text), self.navigator
            if now is None or now.filter == text.strip():
                return answer
            wrong = answer.removeprefix(_SO_FAR)
            return f"filter is {now.filter!r} alone: {wrong}" if now.filter else f"no filter: {wrong}"

        def cancelled() -> str:
            choose(before)
            if self.navigator is not None:
                self.navigator.go(begun())
            return "the filter is as before"

        if self.view is not ScreenId.NODES:
            self.show_view(ScreenId.NODES)
        return self.ask_for(
            Question(
                label="filter",
                placeholder="rel>1e-2 & op~conv, is=failing, sat>1% | name~'layer[34]'",
                text=before,
                typed=choose,
                given=given,
                cancelled=cancelled,
            )
        )

    def action_clear_filter(self) -> None:
        """Show all nodes."""

        def clear(navigator: Navigator) -> str:
            if not navigator.filter:
                return "there is no filter; f sets one"
            navigator.clear_filter()
            return "all nodes"

        self.with_navigator(clear)

    def action_mark(self) -> None:
        """Mark the node."""
        self.with_navigator(Navigator.mark)

    def action_next_mark(self) -> None:
        """Go to the next mark."""
        self.with_navigator(Navigator.next_mark)

    def action_element(self) -> None:
        """Ask for an element to jump to."""
        if self.scene is None:
            return self.without_scene("there is no tensor")
        if self.view not in {ScreenId.VALUES, ScreenId.MAP}:
            self.show_view(ScreenId.VALUES)

        self._wanted_element = None
        return self.ask_for(Question(label="@", placeholder="an index such as 0,12,3,7", given=self._to_element))

    def _to_element(self, text: str) -> str:
        """Go to an element now, or once the elements are read."""
        scene = self.scene
        if scene is None:
            return "there is no tensor"
        there = self.elements.shape(scene) is not None
        never = scene.planned.missing is not None or (scene.ready is not None and scene.ready.problem)
        waits = not there and not never
        self._wanted_element = (self._shown_tensor(scene), text) if waits else None
        said = self.elements.jump(scene, text)
        return f"{said.rstrip(' .')}; then it goes to {safe_text(text, limit=40)}" if waits else said

    def _shown_tensor(self, scene: Scene) -> tuple[object, ...]:
        navigator = scene.navigator
        return self.backend, scene.planned.tensor, navigator.sample, navigator.step, self.view

    def take(self, event: Event) -> None:
        """Take in an event of the reader thread; go to the element that waited for it."""
        super().take(event)
        scene, wanted = self.scene, self._wanted_element
        if wanted is None or scene is None:
            return
        if wanted[0] != self._shown_tensor(scene):
            self._wanted_element = None
        elif self.elements.shape(scene) is not None or (scene.ready is not None and scene.ready.problem):
            self.say(self._to_element(wanted[1]))

    # Do

    def action_theme(self) -> None:
        """Change the colours."""
        said = cast("QdebugApp", self.app).next_theme()
        for widget in (self._banner, self._tabs, self._footer):
            widget.redraw()
        self.say(said)

    def action_help(self) -> None:
        """Show the help."""
        self.app.push_screen(HelpScreen(self._look))

    def action_verdict(self) -> None:
        """Show all that is said of the comparison as a whole."""
        from qdebug.tui.panels.verdict_text import verdict_text

        self.app.push_screen(ReadingScreen(self._look, lambda width: verdict_text(self.now, width, self._look.glyphs)))

    def action_palette(self) -> None:
        """Open the command palette."""
        self.app.action_command_palette()

    def action_suspend(self) -> None:
        """Suspend the program."""
        self.say("resumed")
        self.app.action_suspend_process()

    def action_leave(self) -> None:
        """Quit."""
        self.app.exit(0)

    def on_row_picked(self, event: RowPicked) -> None:
        """Go to the row that was clicked; open it if the cursor is there already."""
        if self.navigator is None:
            return
        if event.row == self.navigator.cursor and self.view is ScreenId.NODES:
            self.action_open()
        else:
            self._untouched = False
            self.stay()
            self.navigator.go(event.row)
            self.say("")
