"""The keys that find: search, filter, marks, an element by its index."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from qdebug.present.text import safe_text
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.page import Scene
from qdebug.tui.screen.prompt import Question
from qdebug.tui.screens import ScreenId

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Finder"]

_SO_FAR = "not yet: "
"""Begins what is said of a filter that cannot be read to its end while someone types it."""


class Finder:
    """Finds nodes and elements by what the user says of them.

    Args:
        screen: Shows what is found.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._wanted_element: tuple[tuple[object, ...], str | None] | None = None
        """Where, and the element to go to once it is read: its index as text, None for the next clipped one."""
        self._refused = ("", "")  # a filter that cannot be read to its end, to be mended, and the one in force with it

    def _anchor(self, navigator: Navigator, at: int | None = None) -> Callable[[], int]:
        """Remember a row, that of the cursor, by its tensor: more of a recording may come in while someone types."""
        here = navigator.cursor if at is None else at
        planned = navigator.table.rows[here] if navigator.table.size else None

        def row() -> int:
            now = self._screen.navigator
            found = None if now is None or planned is None else now.table.row_like(planned)
            return found if found is not None else 0 if now is None else now.cursor

        return row

    def search(self) -> None:
        """Open the search."""
        navigator = self._screen.navigator
        if navigator is None or self._screen.now.opened is None:  # the names alone know no nodes, and no operators
            return self._screen.refuse()
        if not self._screen.arrangement.usable:
            return self._screen.say("the terminal is too small to type a text in")
        begun = self._anchor(navigator)
        self._screen.untouched = False

        def typed(text: str) -> str:
            now = self._screen.navigator
            return "" if now is None else now.search(text, start=begun())

        def given(text: str) -> str:
            now = self._screen.navigator
            said = typed(text)  # again: enter may come before the last letters were looked for
            if now is None or not now.pattern:
                return "search cleared"
            self._screen.views.did("search")
            return f"{said}; n N walk them, esc clears" if now.finds else said

        def cancelled() -> str:
            typed("")
            return "search cancelled"

        return self._screen.prompt.ask(
            Question(
                label="/",
                placeholder="part of a name, 'whole name', #number or ~regex",
                typed=typed,
                given=given,
                cancelled=cancelled,
            )
        )

    def filter(self) -> None:
        """Ask for a filter."""
        navigator = self._screen.navigator
        if navigator is None or self._screen.now.opened is None:  # the names alone know no nodes, and no operators
            return self._screen.refuse()
        if not self._screen.arrangement.usable:
            return self._screen.say("the terminal is too small to type a text in")
        before, begun = navigator.filter, self._anchor(navigator)
        origin = self._anchor(navigator, navigator.before_filter())
        self._screen.untouched = False

        said: list[str] = []

        def choose(text: str) -> str:
            """Show what fits as much of the text as can be read, whichever way it was typed."""
            now = self._screen.navigator
            if now is None:
                return ""
            now.go(begun())
            fitting, problem = now.choose_filter_so_far(text)
            now.came_from(origin())
            problem = problem and f"{_SO_FAR}{problem}"
            said[:] = [problem or fitting]
            return said[0]

        def given(text: str) -> str:
            """Say what the filter is now: of a text that cannot be read to its end only its beginning."""
            answer, now = said[0] if said else choose(text), self._screen.navigator
            self._screen.views.did("filter")
            self._refused = ("", "")
            if now is None or now.filter == text.strip():
                return answer
            wrong, self._refused = answer.removeprefix(_SO_FAR), (text.strip(), now.filter)
            return f"filter is {now.filter!r} alone: {wrong}" if now.filter else f"no filter: {wrong}"

        def cancelled() -> str:
            self._refused = ("", "")
            choose(before)
            if self._screen.navigator is not None:
                self._screen.navigator.go(begun())
                self._screen.navigator.came_from(origin())
            return "the filter is as before"

        if self._screen.view is not ScreenId.NODES:
            self._screen.views.show(ScreenId.NODES)
        return self._screen.prompt.ask(
            Question(
                label="filter",
                placeholder="rel>1e-2 & op~conv   or:  is=failing   or:  clipped>1% | name~'layer[34]'",
                text=self._refused[0] if self._refused[0] and self._refused[1] == before else before,
                typed=choose,
                given=given,
                cancelled=cancelled,
            )
        )

    def clear_filter(self) -> None:
        """Show all nodes."""
        self._refused = ("", "")

        def clear(navigator: Navigator) -> str:
            return navigator.take_filter_back() if navigator.filter else "there is no filter; f sets one"

        self._screen.with_navigator(clear)

    def mark(self) -> None:
        """Mark the node."""
        self._screen.with_navigator(Navigator.mark)

    def next_mark(self) -> None:
        """Go to the next mark."""
        self._screen.with_navigator(Navigator.next_mark)

    def element(self) -> None:
        """Ask for an element to jump to."""
        if self._screen.scene is None:
            return self._screen.without_scene("there is no tensor")
        if self._screen.view not in {ScreenId.VALUES, ScreenId.MAP}:
            self._screen.views.show(ScreenId.VALUES)

        self._wanted_element = None
        return self._screen.prompt.ask(
            Question(label="@", placeholder="an index such as 0,12,3,7", given=self.to_element)
        )

    def to_element(self, text: str) -> str:
        """Go to an element now, or once the elements are read."""
        scene = self._screen.scene
        if scene is None:
            return "there is no tensor"
        there = self._screen.elements.shape(scene) is not None
        never = any(known is not None and known.problem for known in (scene.ready, scene.glimpse))
        waits = not there and not never
        self._wanted_element = (self._shown_tensor(scene), text) if waits else None
        said = self._screen.elements.jump(scene, text)
        return f"{said.rstrip(' .')}; then it goes to {safe_text(text, limit=40)}" if waits else said

    def clipped(self) -> None:
        """Go to the next clipped element now, or once the elements are read."""
        if self._screen.scene is None:
            return self._screen.without_scene("there is no tensor")
        if self._screen.view not in {ScreenId.VALUES, ScreenId.MAP}:
            self._screen.views.show(ScreenId.VALUES)
        self._wanted_element = None

        def go(scene: Scene) -> str:
            said, ready = self._screen.elements.clipped(scene), scene.ready
            if scene.planned.missing is None and (ready is None or (ready.whole is None and not ready.problem)):
                self._wanted_element = self._shown_tensor(scene), None
                return f"{said.rstrip(' .')}; then it goes to a clipped one"
            return said

        return self._screen.with_scene(go)

    def _shown_tensor(self, scene: Scene) -> tuple[object, ...]:
        navigator = scene.navigator
        return self._screen.backend, scene.planned.tensor, navigator.sample, navigator.step, self._screen.view

    def take(self) -> None:
        """Go to the element that is waited for, once it is there."""
        scene, wanted = self._screen.scene, self._wanted_element
        if wanted is None or scene is None:
            return
        if wanted[0] != self._shown_tensor(scene):
            self._wanted_element = None
        elif wanted[1] is None:
            if scene.ready is not None and (scene.ready.whole is not None or scene.ready.problem):
                self.clipped()
        elif self._screen.elements.shape(scene) is not None or (scene.ready is not None and scene.ready.problem):
            self._screen.say(self.to_element(wanted[1]))
