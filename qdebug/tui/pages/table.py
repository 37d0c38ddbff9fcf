"""All screens that draw a page of their own, by their name; each is loaded when it is first looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from qdebug.tui.drawing.arrangement import ScreenId
from qdebug.tui.pages.elements import ElementCursor
from qdebug.tui.pages.overview_page import OverviewPage
from qdebug.tui.pages.page import Page

__all__ = ["load_pages", "make_pages"]

_VIEWS = tuple(view for view in ScreenId if view not in {ScreenId.NODES, ScreenId.TENSOR})
"""Nodes and tensor are widgets that scroll and have no page."""


def make_pages(elements: ElementCursor) -> Mapping[ScreenId, Page]:
    """Make the pages; nodes and tensor are widgets that scroll and have none.

    Args:
        elements: The element that the screens of a tensor share.
    """
    return _Pages(elements)


def load_pages() -> None:
    """Import what pages, tensor facts and verdicts are made with; for the reader, so that no key waits for it."""
    for view in _VIEWS:
        _make(view, ElementCursor())
    for name in ("pages.detail_lines", "panels.verdict_text"):
        import_module(f"qdebug.tui.{name}")
    for name in ("explained", "sentences"):
        import_module(f"qdebug.present.{name}")


class _Pages(Mapping[ScreenId, Page]):
    def __init__(self, elements: ElementCursor) -> None:
        self._elements = elements
        self._made: dict[ScreenId, Page] = {}

    def __getitem__(self, view: ScreenId) -> Page:
        if view not in self._made:
            self._made[view] = _make(view, self._elements)
        return self._made[view]

    def __iter__(self) -> Iterator[ScreenId]:
        return iter(_VIEWS)

    def __len__(self) -> int:
        return len(_VIEWS)


def _make(view: ScreenId, elements: ElementCursor) -> Page:
    if view is ScreenId.OVERVIEW:
        return OverviewPage()
    if view is ScreenId.GRAPH:
        from qdebug.tui.pages.graph_page import GraphPage

        return GraphPage()
    if view is ScreenId.VALUES:
        from qdebug.tui.pages.values_page import ValuesPage

        return ValuesPage(elements)
    if view is ScreenId.CHANNELS:
        from qdebug.tui.pages.channels_page import ChannelsPage

        return ChannelsPage(elements)
    if view is ScreenId.MAP:
        from qdebug.tui.pages.map_page import MapPage

        return MapPage(elements)
    if view is ScreenId.EXPLAIN:
        from qdebug.tui.pages.explain_page import ExplainPage

        return ExplainPage()
    if view in {ScreenId.SAMPLES, ScreenId.BACKENDS}:
        from qdebug.tui.pages.samples_page import BackendsPage, SamplesPage

        return SamplesPage() if view is ScreenId.SAMPLES else BackendsPage()
    raise KeyError(view)
