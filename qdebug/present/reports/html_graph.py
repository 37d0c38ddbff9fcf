"""The graph around a node as inline SVG, from top to bottom. The larger an edge's error, the wider it is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qdebug.present import numbers
from qdebug.present.reports.html_plots import Element, element
from qdebug.present.surroundings import Neighbour, NeighbourEdge, Surroundings
from qdebug.present.text import safe_text, shorten

__all__ = ["graph_plot"]

_WIDTH = 480
_BOX, _PITCH, _GAP = 40, 84, 8
"""Height of a box, distance between rows, and gap between two boxes of a row."""
_MAX_BOX_WIDTH = 300
_CHARACTER_WIDTH = 7.3
"""Width of a character in names."""
_THIN_EDGE_ERROR = 1e-4
"""Relative error up to which an edge has the minimum width."""
_THIN, _THICK = 1.0, 9.0


def graph_plot(around: Surroundings, *, prefix: str, shown: frozenset[int]) -> Element:
    """Draw a node with its neighbours.

    Args:
        around: The nodes and their edges.
        prefix: Prefix of the ids of node rows, for links.
        shown: Numbers of the nodes that have a row.
    """
    levels = sorted({node.level for node in around.nodes})
    rows = {level: row for row, level in enumerate(levels)}
    middles = _box_centres(around)
    hidden_before, hidden_after = around.left_out
    top = 24 if hidden_before else 6
    height = top + (len(levels) - 1) * _PITCH + _BOX + (24 if hidden_after else 6)
    tops = [top + rows[node.level] * _PITCH for node in around.nodes]
    root = element(
        "svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        class_="narrow",
        role="group",
        aria_label="the graph around this node, from its inputs at the top to its readers at the bottom",
    )
    # Thick edges are drawn first, so that they do not hide thin ones.
    for edge in sorted(around.edges, key=_edge_width, reverse=True):
        root.append(_draw_edge(edge, middles, tops))
    for node, middle, y in zip(around.nodes, middles, tops, strict=True):
        nodes_in_row = sum(neighbour.level == node.level for neighbour in around.nodes)
        root.append(_draw_box(node, middle, y, _box_width(nodes_in_row), prefix=prefix, shown=shown))
    if hidden_before:
        root.append(
            element("text", _hidden_nodes_text(hidden_before, "before"), x=_WIDTH / 2, y=14, text_anchor="middle")
        )
    if hidden_after:
        root.append(
            element("text", _hidden_nodes_text(hidden_after, "after"), x=_WIDTH / 2, y=height - 5, text_anchor="middle")
        )
    return root


def _hidden_nodes_text(count: int, direction: str) -> str:
    return f"{count} more {'node' if count == 1 else 'nodes'} {direction} these, with less error"


def _box_width(boxes_in_row: int) -> float:
    return min(_MAX_BOX_WIDTH, (_WIDTH - _GAP * (boxes_in_row + 1)) / boxes_in_row)


def _box_centres(around: Surroundings) -> list[float]:
    """Return the centre of each box. Boxes of a row are side by side, ordered by their neighbours."""
    middles = [_WIDTH / 2] * len(around.nodes)
    for level in sorted({node.level for node in around.nodes}, key=abs):
        inside = [index for index, node in enumerate(around.nodes) if node.level == level]

        def mean_neighbour_centre(index: int) -> float:
            neighbour_middles = [
                middles[far_end]
                for edge in around.edges
                for end, far_end in ((edge.source, edge.target), (edge.target, edge.source))
                if end == index and abs(around.nodes[far_end].level) < abs(around.nodes[index].level)
            ]
            return sum(neighbour_middles) / len(neighbour_middles) if neighbour_middles else _WIDTH / 2

        pitch = _box_width(len(inside)) + _GAP
        first_middle = (_WIDTH - pitch * (len(inside) - 1)) / 2
        for rank, index in enumerate(sorted(inside, key=mean_neighbour_centre)):
            middles[index] = first_middle + rank * pitch
    return middles


def _edge_width(edge: NeighbourEdge) -> float:
    """Return the width of an edge, by the logarithm of its error."""
    if edge.error is None:
        return _THIN
    if not math.isfinite(edge.error):
        return _THICK
    share = 1 - math.log10(max(edge.error, _THIN_EDGE_ERROR)) / math.log10(_THIN_EDGE_ERROR)
    return _THIN + min(1.0, max(0.0, share)) * (_THICK - _THIN)


def _draw_edge(edge: NeighbourEdge, middles: Sequence[float], tops: Sequence[float]) -> Element:
    source, target = middles[edge.source], middles[edge.target]
    start, end = tops[edge.source] + _BOX, tops[edge.target]
    rows = (end - start + _BOX) / _PITCH
    # An edge that passes a row goes around its boxes, on the side that its ends are nearer to.
    aside = 0.0 if rows < 1.5 else (1 if source + target >= _WIDTH else -1) * _WIDTH * 0.42
    bend = (end - start) / 2
    drawn = (
        f"M{source:.1f} {start:.1f}C{source + aside:.1f} {start + bend:.1f} {target + aside:.1f} {end - bend:.1f} "
        f"{target:.1f} {end:.1f}"
    )
    error_text = "not compared" if edge.error is None else f"rel L2 {numbers.number(edge.error)}"
    unknown = " unknown" if edge.error is None else ""
    return element(
        "path",
        element("title", f"{edge.tensor}: {error_text}"),
        class_=f"edge{unknown}",
        d=drawn,
        stroke_width=f"{_edge_width(edge):.1f}",
    )


def _draw_box(node: Neighbour, middle: float, y: float, width: float, *, prefix: str, shown: frozenset[int]) -> Element:
    result = node.result
    status = "unknown" if result is None else str(result.status)
    error = "not compared"
    if result is not None:
        error = str(result.status) if result.metrics is None else f"rel {numbers.number(result.metrics.rel_l2)}"
    max_characters = max(int((width - 10) / _CHARACTER_WIDTH), 4)
    centre = " centre" if node.level == 0 else ""
    rect = element(
        "rect",
        class_=f"box {status}{centre}",
        x=f"{middle - width / 2:.1f}",
        y=y,
        width=f"{width:.1f}",
        height=_BOX,
        rx=5,
    )
    name = element(
        "text", shorten(safe_text(node.name), max_characters), class_="code name", x=f"{middle:.1f}", y=y + 17
    )
    number = "" if result is None else f"#{result.index} "
    caption = f"{number}{safe_text(node.op)} {error}"
    if len(caption) > max_characters:
        caption = f"{number}{error}"
    caption_element = element(
        "text", shorten(caption, max_characters), class_=f"code {status}", x=f"{middle:.1f}", y=y + 33
    )
    for text in (name, caption_element):
        text.set("text-anchor", "middle")
    title = element("title", f"{node.name} ({node.op}): {status if result else 'not compared'}, {error}")
    if result is not None and result.index in shown:
        return element("a", title, rect, name, caption_element, href=f"#{prefix}{result.index}")
    return element("g", title, rect, name, caption_element)
