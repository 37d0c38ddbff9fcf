"""The keys that move: in a list, in a tensor, along the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qdebug.tui.screens import ScreenId

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Moving"]


class Moving:
    """Moves the cursor of the list, or the one of the page.

    Args:
        screen: Has the cursors.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen

    def move(self, lines: int) -> None:
        """Move the cursor, or scroll."""
        page = self._screen.page
        if page is not None:
            self._screen.with_scene(lambda scene: page.move(scene, lines))
        elif self._screen.view is ScreenId.TENSOR:
            self._scroll(lines)
        else:
            self._screen.with_navigator(lambda navigator: navigator.move(lines))

    def _scroll(self, lines: int) -> None:
        if self._screen.detail.step(lines):
            self._screen.say("")
        else:
            self._screen.say("the facts end here" if lines > 0 else "the facts begin here")

    def page(self, direction: int) -> None:
        """Move by a page."""
        self.move(direction * max(self._rows() - 1, 1))

    def half_page(self, direction: int) -> None:
        """Move by half a page."""
        self.move(direction * max(self._rows() // 2, 1))

    def _rows(self) -> int:
        if self._screen.page is not None:
            return max(self._screen.page_panel.size.height - 3, 1)
        return (
            self._screen.detail.size.height if self._screen.view is ScreenId.TENSOR else self._screen.listing.rows_shown
        )

    def edge(self, direction: int) -> None:
        """Move to the top or the bottom."""
        if self._screen.page is None and self._screen.view is not ScreenId.TENSOR:
            self._screen.with_navigator(lambda navigator: navigator.edge(direction))
        else:
            self.move(direction * 1_000_000_000)

    def side(self, direction: int) -> None:
        """Move left or right: columns, edges of the graph, elements of a tensor, backends."""
        page = self._screen.page
        if self._screen.view is ScreenId.BACKENDS:
            self._screen.views.backend(direction)
        elif page is not None:
            self._screen.with_scene(lambda scene: page.side(scene, direction))
        elif self._screen.view is ScreenId.NODES:
            self._columns(direction)
        else:
            self._screen.say("nothing to the side of the facts; enter goes to the values")

    def _columns(self, direction: int) -> None:
        layout = self._screen.listing.layout_shown
        if layout is None:
            return self._screen.refuse()
        if direction > 0 and not layout.after:
            return self._screen.say("all columns are shown" if not layout.before else "these are the last columns")
        if direction < 0 and not layout.before:
            return self._screen.say("these are the first columns")
        self._screen.listing.offset_columns += direction
        return self._screen.say("")

    def block(self, direction: int) -> None:
        """Go to the next or previous block."""
        self._screen.with_navigator(lambda navigator: navigator.block(direction))

    def history(self, direction: int) -> None:
        """Go back or forward in the history."""
        self._screen.with_navigator(lambda navigator: navigator.back(direction))

    def channel(self, direction: int) -> None:
        """Go to the next or previous channel."""
        page = self._screen.page
        if page is None or not self._screen.view.of_tensor:
            return self._screen.say("channels are on the screens values (5), channels (6) and map (7)")
        return self._screen.with_scene(lambda scene: page.channel(scene, direction))
