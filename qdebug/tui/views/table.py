"""The views, each loaded when it is first shown."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from importlib import import_module

from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.drawing.look import Look
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor, ElementsView
from qdebug.tui.views.view import View

__all__ = ["Views", "load_views", "view_class"]


class Views(dict[ScreenId, View]):
    """The views by screen, as listed in the table of screens.

    Args:
        elements: The element that the screens of a tensor share.
        look: Shared look.
    """

    def __init__(self, elements: ElementCursor, look: Look | None = None) -> None:
        super().__init__()
        self._elements, self._look = elements, look or Look(UNICODE)

    def __missing__(self, view: ScreenId) -> View:
        """Create the view of a screen."""
        cls = view_class(view)
        make: Callable[..., View] = cls
        self[view] = make(self._elements, self._look) if issubclass(cls, ElementsView) else make(self._look)
        return self[view]

    def make_side(self) -> View:
        """Create the panel with the facts about the tensor, for display beside another view."""
        from qdebug.tui.views.tensor import TensorView  # imported only if there is room for it

        side = TensorView(self._look, id="side")
        side.can_focus = False
        return side


def view_class(view: ScreenId) -> type[View]:
    """Return the class of a view, after importing its module."""
    module, _, name = view.view.partition(":")
    cls: type[View] = getattr(import_module(f"qdebug.tui.views.{module}"), name)
    return cls


@cache
def load_views() -> None:
    """Import the modules of views, facts and verdicts. Called by the reader, so that no key has to wait for them."""
    for view in ScreenId:
        view_class(view)
    for name in ("present.explained", "present.reports.comparison"):
        import_module(f"qdebug.{name}")
    # Loaded modules stay in use, and garbage collections that scan them would delay keys. The application unfreezes.
    gc.freeze()
