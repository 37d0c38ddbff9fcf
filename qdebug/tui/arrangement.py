"""Which panels are on the screen, for a terminal's size, the level the user is at, and the zoom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LEAST_HEIGHT", "LEAST_WIDTH", "Arrangement", "Level", "arrange"]

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
_ONE_PANEL_WIDTH, _ONE_PANEL_HEIGHT = 60, 18
_WIDE = 120


class Level(StrEnum):
    """What the moving keys move in."""

    LIST = "list"
    DETAIL = "detail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What is shown.

    Args:
        usable: Whether the terminal is large enough for anything.
        profile: Lines of the error profile; 0 if it is hidden.
        nodes: Whether the node list is shown.
        detail: Whether the node detail is shown.
        list_width: Width of the node list; 0 for all there is.
        verdict: Lines for the verdict.
        zoom_refusal: Why the zoom changes nothing here; "" if it does.
    """

    usable: bool = True
    profile: int = 0
    nodes: bool = False
    detail: bool = False
    list_width: int = 0
    verdict: int = 1
    zoom_refusal: str = ""


def arrange(width: int, height: int, *, level: Level, zoomed: bool) -> Arrangement:
    """Choose the panels.

    Args:
        width: Cells of the terminal.
        height: Its lines.
        level: Where the user is.
        zoomed: Whether one panel is wanted alone.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Arrangement(usable=False, zoom_refusal="the terminal is too small")
    on_list = level is Level.LIST
    if width < _ONE_PANEL_WIDTH or height < _ONE_PANEL_HEIGHT:
        why = f"one panel at a time below {_ONE_PANEL_WIDTH}x{_ONE_PANEL_HEIGHT}"
        return Arrangement(nodes=on_list, detail=not on_list, zoom_refusal=why)
    profile = min(max(height // 4, 5), 12)
    verdict = 1 if height < 22 else 2
    if width >= _WIDE:
        if zoomed:
            return Arrangement(nodes=on_list, detail=not on_list, verdict=verdict)
        return Arrangement(profile=profile, nodes=True, detail=True, list_width=width * 12 // 25, verdict=verdict)
    if on_list:
        return Arrangement(profile=0 if zoomed else profile, nodes=True, verdict=verdict)
    return Arrangement(detail=True, verdict=1, zoom_refusal="the detail has the screen to itself already")
