"""The footer: the active key bindings in one line.

Textual's `Footer` recreates a widget for each key whenever the focus changes, which happens several times for each new
screen. That adds 60 ms to a key press that takes 20 ms without it (Textual 8.2.8, 140 x 40).
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import ActiveBinding
from textual.events import Click

from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.look import Look
from qdebug.tui.keys import key_label
from qdebug.tui.widgets.lines import Lines

__all__ = ["KeyLine"]


class KeyLine(Lines, can_focus=False):
    """Shows the keys that have a label, the focused widget's keys first. A click presses a key.

    Args:
        look: Shared look.
    """

    DEFAULT_CSS = """
    KeyLine { height: 1; }
    """

    def __init__(self, look: Look) -> None:
        super().__init__(look, id="keys")

    def bindings(self) -> Sequence[ActiveBinding]:
        """Return the bindings to show, one per action."""
        bindings: dict[str, ActiveBinding] = {}
        for active in self.screen.active_bindings.values():
            if active.binding.show and active.binding.description:
                bindings.setdefault(active.binding.action, active)
        return list(bindings.values())

    def lines_for(self, width: int, height: int) -> Sequence[Sequence[Piece]]:  # noqa: ARG002  one line
        """Return as many keys as fit. Keys are never cut."""
        line: list[Piece] = [(" ", "muted")]
        used_width = 1
        for active in self.bindings():
            label, word = key_label(active.binding.key), f" {active.binding.description}  "
            used_width += len(label) + len(word)
            if used_width > width + 2:
                break
            line += [(label, "title"), (word, "muted")]
        return [line]

    def on_click(self, event: Click) -> None:
        """Press the clicked key."""
        end = 1
        for active in self.bindings():
            end += len(key_label(active.binding.key)) + len(active.binding.description) + 3
            if event.x < end:
                self.app.simulate_key(active.binding.key)
                return
