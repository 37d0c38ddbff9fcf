"""The pages of the screens, each loaded when it is first looked at."""

from __future__ import annotations

import gc
from functools import cache
from importlib import import_module

from qdebug.tui.pages.elements import ElementCursor, ElementsPage
from qdebug.tui.pages.page import Page
from qdebug.tui.screens import ScreenId

__all__ = ["Pages", "load_pages", "load_replaying_pages"]


class Pages(dict[ScreenId, Page]):
    """The pages by screen, as the table of the screens names them; a panel that scrolls has none.

    Args:
        elements: The element that the screens of a tensor share.
    """

    def __init__(self, elements: ElementCursor) -> None:
        super().__init__()
        self._elements = elements

    def __missing__(self, view: ScreenId) -> Page:
        """Make the page of a screen."""
        made = _class_of(view)
        self[view] = made(self._elements) if issubclass(made, ElementsPage) else made()
        return self[view]


def _class_of(view: ScreenId) -> type[Page]:
    module, _, name = view.page.partition(":")
    found: type[Page] = getattr(import_module(f"qdebug.tui.pages.{module}"), name)
    return found


def load_pages() -> None:
    """Import what pages, tensor facts and verdicts are made with; for the reader, so that no key waits for it."""
    for view in ScreenId:
        if view.page and "replays" not in view.traits:
            _class_of(view)
    for name in ("tui.pages.detail_lines", "present.explained", "present.reports.comparison"):
        import_module(f"qdebug.{name}")


@cache
def load_replaying_pages() -> None:
    """Import what replays are made with; for the reader, once that delays no verdict that is near."""
    for view in ScreenId:
        if "replays" in view.traits:
            _class_of(view)
    gc.freeze()  # all that is loaded stays: a look for garbage among it holds up a key; the application unfreezes
