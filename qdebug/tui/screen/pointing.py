"""What the mouse does: a click on a tab, a key of the footer, a row or a box, and the wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qdebug.tui.keys import KEYS, KeyRow
from qdebug.tui.nodes.error_profile import column_to_row
from qdebug.tui.screen import chrome
from qdebug.tui.screens import ScreenId

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Pointing"]

_WHEEL = 3
"""Lines of a turn of the wheel."""
_PROFILE_STEPS = 60
"""Turns of the wheel from one end of the profile to the other, in a long net."""


class Pointing:
    """Answers clicks and the wheel, by what the keys do.

    Args:
        screen: Is pointed at.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen

    def _ready(self) -> None:
        """Close the line that asks for text, and take back what waits, as most keys do."""
        self._screen.prompt.cancel()
        self._screen.journey.stay()

    def _perform(self, row: KeyRow) -> None:
        self._ready()
        self._screen.perform(row)

    def tab(self, column: int, _: int) -> None:
        """Go to the screen whose tab was clicked."""
        screen = self._screen
        view = chrome.tab_at(screen.view, screen.size.width, column, many=len(screen.compared) > 1)
        if view is not None:
            self._perform(next(row for row in KEYS if row.argument is view))

    def footer(self, column: int, _: int) -> None:
        """Do what the key that was clicked does."""
        row = chrome.footer_at(self._screen.size.width, column)
        if row is not None:
            self._perform(row)

    def verdict(self, *_: int) -> None:
        """Show the whole verdict."""
        self._perform(next(row for row in KEYS if row.action == "views.verdict"))

    def profile(self, column: int, _: int) -> None:
        """Go to the row that is drawn at a column."""
        navigator = self._screen.now.navigator
        row = None if navigator is None else column_to_row(column, self._screen.size.width, navigator.table.ordered)
        if row is not None:
            self.row(row)

    def row(self, row: int) -> None:
        """Go to a row; open it if the cursor is there already."""
        screen, navigator = self._screen, self._screen.navigator
        if navigator is None:
            return
        self._ready()
        if row == navigator.cursor and screen.view is ScreenId.NODES:
            screen.views.open()
            return
        screen.untouched = False
        navigator.go(row)
        screen.say("")

    def heading(self, sort: str) -> None:
        """Sort by the column whose heading was clicked."""
        self._ready()
        self._screen.with_navigator(lambda navigator: navigator.sort_by(sort))

    def page(self, column: int, line: int) -> None:
        """Choose what was clicked, or open it if it is chosen already."""
        screen, page, scene = self._screen, self._screen.page, self._screen.scene
        if page is None or scene is None:
            return
        self._ready()
        found = page.click(scene, column, line)
        if found is not None:
            screen.untouched = False
            screen.say(screen.views.go_to(found))

    def element(self, line: int) -> None:
        """Go to the worst element whose line was clicked, counted from the last."""
        screen, ready = self._screen, self._screen.detail_ready
        worst = () if ready is None else ready.worst
        if not 0 <= line < len(worst):
            return
        self._ready()
        screen.views.go_to(ScreenId.VALUES)
        screen.say(screen.finding.to_element(",".join(map(str, worst[len(worst) - 1 - line].index))))

    def wheel(self, direction: int) -> None:
        """Move in the page."""
        self._ready()
        self._screen.moving.move(direction * _WHEEL)

    def wheel_profile(self, direction: int) -> None:
        """Go along the profile."""
        navigator = self._screen.now.navigator
        if navigator is None or not navigator.table.ordered:
            return
        step = max(navigator.table.ordered // _PROFILE_STEPS, 1)
        row = min(max(navigator.cursor + direction * step, 0), navigator.table.ordered - 1)
        if row != navigator.cursor:
            self.row(row)
