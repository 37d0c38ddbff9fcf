"""The table of the screens, and which panels one shows for a terminal's size and the zoom.

The table is the only list of all screens: keys, help, tabs, command line and captures are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

__all__ = ["LEAST_HEIGHT", "LEAST_WIDTH", "VIEWS", "Arrangement", "ScreenId", "arrange"]

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
_ONE_PANEL_WIDTH, _ONE_PANEL_HEIGHT = 60, 18
_WIDE = 120
_TALL = 22
_STRIPS = 2


class ScreenId(StrEnum):
    """A screen: one row of the table is one screen, and the order is that of the key `tab`.

    Args:
        name: What it is called.
        key: The key that goes there, as Textual spells it.
        about: What it shows, in one clause.
        page: Module and class of its page, in `qdebug.tui.pages`; "" for a panel that scrolls by itself.
        traits: Words with spaces: `elements` if it shows the elements of one tensor, `whole` if it is of the whole
            comparison and not of a node, `wide` if it has all the width of a wide terminal, `replays` if it loads what
            replays a network; and the ending of the file that an export suggests, `.svg` if none is given.
    """

    key: str
    about: str
    page: str
    traits: frozenset[str]

    def __new__(cls, name: str, key: str, about: str, page: str = "", traits: str = "") -> Self:
        """Make a member of a row."""
        made = str.__new__(cls, name)
        made._value_ = name
        made.key, made.about, made.page, made.traits = key, about, page, frozenset(traits.split())
        return made

    @property
    def of_tensor(self) -> bool:
        """Whether it shows the elements of one tensor."""
        return "elements" in self.traits

    @property
    def of_all(self) -> bool:
        """Whether it is of the whole comparison, and not of a node."""
        return "whole" in self.traits

    @property
    def ending(self) -> str:
        """The ending of the file that an export of it suggests."""
        return next((each for each in self.traits if each.startswith(".")), ".svg")

    # fmt: off
    OVERVIEW = "overview", "1", "verdict, error profile, culprits", "overview_page:OverviewPage", "whole .csv"
    NODES = "nodes", "2", "all nodes as a table", "", "whole .csv"
    GRAPH = "graph", "3", "the node between its inputs and outputs", "graph_page:GraphPage", "wide"
    TENSOR = "tensor", "4", "facts of both sides: histograms, clipping, worst elements", "", ".txt"
    VALUES = "values", "5", "elements of both sides next to each other", "values_page:ValuesPage", "elements .npz"
    CHANNELS = "channels", "6", "error, range and scale of each channel", "channels_page:ChannelsPage", "elements .csv"
    MAP = "map", "7", "heat map of where in the tensor the error is", "map_page:MapPage", "elements"
    EXPLAIN = "explain", "8", "which arithmetic reproduces the node", "explain_page:ExplainPage", ".txt"
    SAMPLES = "samples", "9", "error of each sample", "samples_page:SamplesPage", ".csv"
    BACKENDS = (
        "backends", "0", "nodes by backends, when several are given", "samples_page:BackendsPage", "whole wide .csv"
    )
    BUDGET = (
        "budget", "B", "which nodes make how much of the outputs' error", "budget_page:BudgetPage",
        "whole wide replays .json",
    )
    WHAT_IF = "what-if", "x", "another scale for the tensor, and what it would do", "what_if_page:WhatIfPage", "replays"
    EDITS = (
        "edits", "X", "edits of the node, and the outputs with those that are chosen", "edits_page:EditsPage",
        "whole replays .json",
    )
    # fmt: on


VIEWS = tuple(ScreenId)
"""All screens, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What is shown.

    Args:
        usable: Whether the terminal is large enough for anything.
        tabs: Whether the screens are listed in a line.
        profile: Lines of the error profile with its strips; 0 if it is hidden.
        strips: How many of these are strips under the profile.
        nodes: Whether the node list is shown.
        page: Whether the screen's own page is shown.
        detail: Whether the facts of the tensor are shown.
        list_width: Width of the node list; 0 for all there is.
        detail_width: Width of the facts; 0 for all there is.
        verdict: Lines that the verdict may take.
        zoom_refusal: Why the zoom changes nothing here; "" if it does.
    """

    usable: bool = True
    tabs: bool = False
    profile: int = 0
    strips: int = 0
    nodes: bool = False
    page: bool = False
    detail: bool = False
    list_width: int = 0
    detail_width: int = 0
    verdict: int = 1
    zoom_refusal: str = ""


def arrange(width: int, height: int, *, view: ScreenId, zoomed: bool) -> Arrangement:
    """Choose the panels.

    Args:
        width: Cells of the terminal.
        height: Its lines.
        view: The screen.
        zoomed: Whether one panel is wanted alone.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Arrangement(usable=False, zoom_refusal="the terminal is too small")
    alone = {"nodes": view is ScreenId.NODES, "detail": view is ScreenId.TENSOR}
    alone["page"] = not any(alone.values())
    if width < _ONE_PANEL_WIDTH or height < _ONE_PANEL_HEIGHT:
        return Arrangement(**alone, zoom_refusal=f"one panel at a time below {_ONE_PANEL_WIDTH}x{_ONE_PANEL_HEIGHT}")
    tabs = height >= _TALL
    verdict = 1 if height < _TALL else {ScreenId.OVERVIEW: 4, ScreenId.NODES: 2}.get(view, 1)
    if zoomed:
        refusal = "" if width >= _WIDE or view in {ScreenId.OVERVIEW, ScreenId.NODES} else _ALONE
        return Arrangement(**alone, tabs=tabs, verdict=verdict, zoom_refusal=refusal)
    profile = min(max(height // 4, 5), 12) if view in {ScreenId.OVERVIEW, ScreenId.NODES} else 0
    strips = _STRIPS if view is ScreenId.OVERVIEW and height >= _ONE_PANEL_HEIGHT + 2 else 0
    frame = Arrangement(tabs=tabs, verdict=verdict, profile=profile + strips, strips=strips)
    if width < _WIDE or "wide" in view.traits:
        return replace(frame, **alone, zoom_refusal="" if profile else _ALONE)
    if view in {ScreenId.NODES, ScreenId.TENSOR}:
        return replace(frame, nodes=True, detail=True, list_width=width * 12 // 25)
    return replace(frame, page=True, detail=True, detail_width=width * 2 // 5)


_ALONE = "this screen has one panel, which has all the room already"
