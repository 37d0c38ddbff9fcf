"""The tabs: all screens in one line, by key and name.

Textual's `Tabs` has a widget for each tab in a scrolling container, which is styled and arranged again for each screen.
That adds 15 ms to a key press that takes 35 ms without it, and 50 ms to the first paint (Textual 8.2.8, 140 x 40).
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.look import Look
from qdebug.tui.screens import TABS, ScreenId
from qdebug.tui.widgets.lines import Lines

__all__ = ["TabLine"]


class TabLine(Lines, can_focus=False):
    """Lists the screens. If not all names fit, the last screens are listed only by their keys.

    Args:
        look: Shared look.
    """

    DEFAULT_CSS = """
    TabLine { height: 1; }
    """

    active: reactive[ScreenId] = reactive(ScreenId.ANSWER, init=False, repaint=False)
    hidden: reactive[frozenset[ScreenId]] = reactive(frozenset[ScreenId], init=False, repaint=False)
    """Screens that cannot show anything."""

    class Picked(Message):
        """A tab was clicked.

        Args:
            view: Its screen.
        """

        def __init__(self, view: ScreenId) -> None:
            super().__init__()
            self.view = view

    class Turned(Message):
        """The wheel was turned.

        Args:
            direction: 1 or -1.
        """

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="tabs")

    def watch_active(self) -> None:
        """Highlight the current screen."""
        self.redraw()

    def watch_hidden(self) -> None:
        """Show which screens are available."""
        self.redraw()

    def texts(self, width: int) -> Sequence[tuple[ScreenId, str]]:
        """Return each screen with its title for a given width."""
        screens = [screen for screen in TABS if screen not in self.hidden or screen is self.active]
        texts = [f"{screen.key} {screen}" for screen in screens]
        for at in reversed(range(len(texts))):
            if sum(map(cell_len, texts)) + len(texts) + 1 <= width:
                break
            if screens[at] is not self.active:
                texts[at] = screens[at].key
        return list(zip(screens, texts, strict=True))

    def lines_for(self, width: int, height: int) -> Sequence[Sequence[Piece]]:  # noqa: ARG002  one line
        """Return the line."""
        line: list[Piece] = []
        for view, text in self.texts(width):
            line += [(" ", "muted"), (text, "title" if view is self.active else "muted")]
        return [line]

    def on_click(self, event: Click) -> None:
        """Report which screen was clicked."""
        end = 0
        for view, text in self.texts(self.size.width):
            end += 1 + cell_len(text)
            if end - cell_len(text) <= event.x < end:
                self.post_message(self.Picked(view))
                return

    def on_mouse_scroll_down(self) -> None:
        """Go to the next screen."""
        self.post_message(self.Turned(1))

    def on_mouse_scroll_up(self) -> None:
        """Go to the previous screen."""
        self.post_message(self.Turned(-1))
