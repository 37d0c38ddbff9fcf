"""Detection of resize events that are outdated when they arrive."""

from typing import Any

from textual.events import Resize
from textual.screen import Screen

__all__ = ["has_terminal_size"]


def has_terminal_size(event: Resize, screen: Screen[Any]) -> bool:
    """Return whether a resize event has the current size of the terminal. If not, prevent the layout for it.

    Each layout reports its size to the screen. If two sizes follow each other quickly, as at the start, each layout
    would bring back the other size, in an endless loop at full load (Textual 8.2.8).
    """
    if event.size == screen.app.size:
        return True
    event.prevent_default()
    return False
