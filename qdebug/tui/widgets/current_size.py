"""Resize events that are out of date when they arrive."""

from typing import Any

from textual.events import Resize
from textual.screen import Screen

__all__ = ["is_of_terminal"]


def is_of_terminal(event: Resize, screen: Screen[Any]) -> bool:
    """Return whether a resize event has the current size of the terminal; else prevent the layout for it.

    A layout tells the screen itself the size that it was made for. Of two sizes in a row, as at the start, each layout
    would bring the other size back, for ever and at full load (Textual 8.2.8).
    """
    if event.size == screen.app.size:
        return True
    event.prevent_default()
    return False
