"""Constants of a node opened like tensors: its weights, biases, scales, on the screens of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qdebug.present.text import safe_text
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.reading.messages import ConstantsReady, ConstantsRequest
from qdebug.tui.screens import ScreenId

if TYPE_CHECKING:
    from qdebug.tui.screen.main_screen import MainScreen

__all__ = ["Constants"]

_VIEWS = frozenset({ScreenId.TENSOR, ScreenId.VALUES, ScreenId.CHANNELS, ScreenId.MAP})
"""Screens that show constants; any other one shows the node again."""
_KEPT = frozenset(
    {"constants.next", "journey.match", "finding.element", "finding.clipped", "writing.copy", "writing.export"}
)
"""Actions on the constant that is open, beside moving and looking; any other one shows the node again."""


class Constants:
    """Opens the constants of the node under the cursor.

    Args:
        screen: Shows them.
    """

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._wanted: tuple[ConstantsRequest, str] | None = None
        self._depth = 0

    @property
    def depth(self) -> int:
        """How many steps of the way back belong to the node: those that led to its constants; 0 if none are open."""
        return 0 if self._screen.now.constants is None else self._depth + 1

    def next(self) -> None:
        """Open the first constant of the node, or the one after the constant that is open."""
        screen, shown = self._screen, self._screen.now.constants
        if shown is None:
            return self.open("")
        shown.go((shown.cursor + 1) % shown.table.size)
        return screen.say("this is its only constant" if shown.table.size == 1 else _said(shown))

    def open(self, name: str) -> None:
        """Ask for the constants of the node, to open one of them.

        Args:
            name: Which one; "" for the first.
        """
        screen, scene = self._screen, self._screen.scene
        if scene is None:
            return screen.without_scene("there is no node")
        side, tensor = scene.planned.side, scene.planned.tensor or scene.planned.reference_tensor
        graph = scene.opened.reference_graph if side == "reference" else scene.opened.backend_graph
        if graph.producer(tensor) is None:
            return screen.say("no node computes this tensor, so it has no constants")
        self._wanted = ConstantsRequest(backend=screen.backend, tensor=tensor, side=side), name
        screen.ask(self._wanted[0])
        return screen.say(f"reading the constants of {safe_text(scene.planned.node, limit=50)} ..")

    def take(self, event: ConstantsReady) -> None:
        """Show the constants that are waited for."""
        screen, wanted = self._screen, self._wanted
        if wanted is None or wanted[0] is not event.request:
            return None
        self._wanted = None
        if not event.table.size:
            return screen.say("its node reads no constants that were recorded")
        shown = screen.now.constants = Navigator(event.table)
        shown.go(event.table.row_of(wanted[1]) or 0)
        self._depth = screen.views.depth
        screen.views.deepen(ScreenId.TENSOR)
        screen.listing.show(shown)
        return screen.say(_said(shown))

    def heed(self, action: str, view: ScreenId | None = None) -> None:
        """Take the wish back, and show the node again where something is done that is of the node.

        Args:
            action: What is done: an action of the key table.
            view: The screen that is gone to; None if none is.
        """
        self._wanted = None
        controller, _, method = action.partition(".")
        free = controller == "views" and method not in {"backend", "metric", "sample", "step", "sort", "reverse"}
        free = free or (controller == "moving" and method not in {"block", "history"}) or action in _KEPT
        if not free or (view is not None and view not in _VIEWS):
            self.leave()

    def settle(self) -> None:
        """Show the node again where the way back has led out of the constants."""
        if self._screen.view not in _VIEWS or self._screen.views.depth < self.depth:
            self.leave()

    def leave(self) -> None:
        """Show the node again."""
        now = self._screen.now
        if now.constants is not None:
            now.constants = None
            if now.navigator is not None:
                self._screen.listing.show(now.navigator)


def _said(shown: Navigator) -> str:
    planned, many = shown.table.rows[shown.cursor], shown.table.size
    rest = f", o the next of {many}" if many > 1 else ""
    deeper = ", 5 7 its values" if planned.side else ", 5 6 7 its elements"
    return f"constant {safe_text(planned.tensor, limit=40)}{rest}{deeper}, esc back"
