"""The table of the screens, and the panels that a screen shows for a terminal's size.

The table is the only list of all screens. Keys, tabs, command line, guide and captures are generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

__all__ = ["MIN_HEIGHT", "MIN_WIDTH", "TABS", "VIEWS", "Arrangement", "ScreenId", "arrange"]

MIN_WIDTH, MIN_HEIGHT = 40, 10
_ROOMY_WIDTH, _ROOMY_HEIGHT = 60, 18
"""Size from which there is room for more than one panel."""
_MIN_WIDTH_WITH_SIDE, _MIN_SIDE_WIDTH, _MAX_SIDE_WIDTH = 150, 50, 80
"""Terminal width from which a panel of facts is shown beside the view, and the panel's minimum and maximum width."""
_MIN_VIEW_WIDTH = 100
"""Minimum width of the view beside the panel."""
_TALL_HEIGHT = 22
_MIN_HEIGHT_WITH_STRIPS = 30
_STRIP_COUNT = 2


class ScreenId(StrEnum):
    """A screen, or another form of a screen: one row of the table.

    Args:
        name: Its name.
        about: Its contents, in one clause.
        view: Module and class of its widget, in `qdebug.tui.views`.
        traits: Words separated by spaces: `form` if it is another form of the screen before it, `elements` if it shows
            the elements of one tensor, `whole` if it shows the whole comparison rather than a node, `wide` if no panel
            fits beside it, `replays` if it replays the network; and the suffix of the file that an export
            suggests, `.svg` by default.
    """

    about: str
    view: str
    traits: frozenset[str]

    def __new__(cls, name: str, about: str, view: str, traits: str = "") -> Self:
        """Create a member from a row."""
        screen = str.__new__(cls, name)
        screen._value_ = name
        screen.about, screen.view, screen.traits = about, view, frozenset(traits.split())
        return screen

    @property
    def shows_elements(self) -> bool:
        """Whether it shows the elements of one tensor."""
        return "elements" in self.traits

    @property
    def shows_all(self) -> bool:
        """Whether it shows the whole comparison rather than a node."""
        return "whole" in self.traits

    @property
    def export_suffix(self) -> str:
        """The suffix of the file that an export of it suggests."""
        return next((trait for trait in self.traits if trait.startswith(".")), ".svg")

    @property
    def tab(self) -> ScreenId:
        """The screen that it is a form of; itself if it is not a form."""
        return next(screen for screen in TABS if self in screen.forms)

    @property
    def forms(self) -> tuple[ScreenId, ...]:
        """A screen and its other forms, in the order of the key v."""
        later_screens = VIEWS[VIEWS.index(self) + 1 :]
        end = next((at for at, screen in enumerate(later_screens) if "form" not in screen.traits), len(later_screens))
        return (self, *later_screens[:end])

    @property
    def key(self) -> str:
        """The key that opens it; a form has the key of its screen."""
        return str(TABS.index(self.tab) + 1)

    # fmt: off
    ANSWER = "answer", "what is wrong, why, and what to try", "answer:AnswerView", "whole .csv"
    NODES = "nodes", "all nodes as a table", "nodes:NodesView", "whole .csv"
    BACKENDS = (
        "backends", "nodes by backends, when several are given", "samples:BackendsView", "form whole wide .csv"
    )
    GRAPH = "graph", "the node between its inputs and outputs", "graph:GraphView", "wide"
    TENSOR = "tensor", "facts of both sides: histograms, clipping, worst elements", "tensor:TensorView", "wide .txt"
    VALUES = "values", "elements: reference -> backend (difference)", "values:ValuesView", "elements .npz"
    MAP = "map", "heat map of where in the tensor the error is", "heat_map:MapView", "form elements"
    CHANNELS = "channels", "error, range and scale of each channel", "channels:ChannelsView", "elements .csv"
    WHY = "why", "explains why the node differs, by which arithmetic", "why:WhyView", ".txt"
    BUDGET = (
        "budget", "budget: which nodes make how much of the outputs' error", "budget:BudgetView",
        "form whole wide replays .json",
    )
    MEND = "mend", "edits of the node, and the outputs with those that are chosen", "mend:MendView", "replays .json"
    WHAT_IF = (
        "what-if", "another scale for the tensor, and what it would do", "what_if:WhatIfView", "form replays"
    )
    SAMPLES = "samples", "error of each sample", "samples:SamplesView", ".csv"
    # fmt: on


VIEWS = tuple(ScreenId)
"""All screens and their forms, in order."""

TABS = tuple(each for each in VIEWS if "form" not in each.traits)
"""The screens without their other forms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The panels around a view.

    Args:
        is_usable: Whether the terminal is large enough for any panel.
        shows_tabs: Whether the tab line is shown.
        profile: Lines of the error profile including its strips; 0 if it is hidden.
        strips: Number of those lines that are strips below the profile.
        side: Width in cells of the panel of facts beside the view; 0 if it is hidden.
        verdict: Maximum number of lines for the verdict.
    """

    is_usable: bool = True
    shows_tabs: bool = False
    profile: int = 0
    strips: int = 0
    side: int = 0
    verdict: int = 1


def arrange(width: int, height: int, *, view: ScreenId) -> Arrangement:
    """Choose the panels. A panel never takes more than half of the view.

    Args:
        width: Width of the terminal in cells.
        height: Height of the terminal in lines.
        view: The screen.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Arrangement(is_usable=False)
    if width < _ROOMY_WIDTH or height < _ROOMY_HEIGHT:
        return Arrangement()
    is_answer = view is ScreenId.ANSWER
    strips = _STRIP_COUNT if is_answer and height >= _MIN_HEIGHT_WITH_STRIPS else 0
    profile = min(max(height // 4, 5), 12) + strips if is_answer else 0
    side = (
        0
        if width < _MIN_WIDTH_WITH_SIDE or "wide" in view.traits
        else min(max(width - _MIN_VIEW_WIDTH, _MIN_SIDE_WIDTH), _MAX_SIDE_WIDTH)
    )
    verdict = 1 if height < _TALL_HEIGHT or not is_answer else 5
    return Arrangement(shows_tabs=height >= _TALL_HEIGHT, profile=profile, strips=strips, side=side, verdict=verdict)
