"""All screens that draw a page of their own, by their name."""

from __future__ import annotations

from qdebug.tui.arrangement import View
from qdebug.tui.channels_page import ChannelsPage
from qdebug.tui.elements import ElementCursor
from qdebug.tui.explain_page import ExplainPage
from qdebug.tui.graph_page import GraphPage
from qdebug.tui.map_page import MapPage
from qdebug.tui.overview_page import OverviewPage
from qdebug.tui.page import Page
from qdebug.tui.samples_page import BackendsPage, SamplesPage
from qdebug.tui.values_page import ValuesPage

__all__ = ["make_pages"]


def make_pages(elements: ElementCursor) -> dict[View, Page]:
    """Make the pages; nodes and tensor are widgets that scroll and have none.

    Args:
        elements: The element that the screens of a tensor share.
    """
    pages = (
        OverviewPage(),
        GraphPage(),
        ValuesPage(elements),
        ChannelsPage(elements),
        MapPage(elements),
        ExplainPage(),
        SamplesPage(),
        BackendsPage(),
    )
    return {page.view: page for page in pages}
