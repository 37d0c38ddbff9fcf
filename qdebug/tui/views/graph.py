"""The graph: the node between its producers and its readers, with levels from left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from rich.cells import cell_len
from textual.binding import Binding, BindingType

from qdebug.compare.result.finding import Status
from qdebug.present import numbers
from qdebug.present.detail import quant_summary
from qdebug.present.rows import quant_text
from qdebug.present.text import safe_text
from qdebug.tui.drawing.canvas import Canvas, Weight
from qdebug.tui.drawing.glyphs import wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.neighbourhood import Neighbourhood, find_neighbourhood
from qdebug.tui.nodes.rows import State
from qdebug.tui.nodes.walk import Edge, inputs_of, own_share, relative_error, tensor_of, worst_input
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import Constant, DrawnView, Line, Scene, Target, sign_of, state_style, window

if TYPE_CHECKING:  # not imported at run time, so that the first frame is drawn sooner
    from qdebug.model import Graph

__all__ = ["GraphView", "go_to_worst_input"]

_MAX_ATTRIBUTES = 8
_LINES_ABOVE = 2
"""Lines above the drawing."""
_BOX_HEIGHT = 3
"""Lines of a box: its name in the border, and one fact; one more line for its operator if there is room."""
_TALL_HEIGHT = 24
_MIN_WIDTH, _USUAL_WIDTH, _MAX_WIDTH, _MIN_CENTRE_WIDTH = 12, 16, 34, 18
"""Cells of a column: the minimum, the width for three levels in each direction, the maximum; minimum for the node's
own."""
_MIN_FACT_WIDTH = 8
"""Minimum cells for a fact about a constant next to its name."""
_MIN_GAP, _MAX_LANES = 3, 4
"""Minimum cells between two columns, and the maximum number of parallel vertical lines in them."""
_MAX_DISTINCT_BOXES = 16
"""Maximum number of boxes whose names are kept distinct across columns. For more, there is not enough room."""
_HEAVY_SHARE = 0.5
"""Share of the largest error shown, from which on an edge is drawn thick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rectangle:
    """The rectangle of a box or of a passing line.

    Args:
        left, right: The first and the last column.
        top, bottom: The first and the last line.
        edge: The tensor of the box; None for a line that passes through.
    """

    left: int
    top: int
    right: int
    bottom: int
    edge: Edge | None = None

    @property
    def middle(self) -> int:
        """The middle line, where edges begin and end."""
        return (self.top + self.bottom) // 2


class GraphView(DrawnView):
    """Moves along edges: j k select a neighbour, enter opens it, h and l go to the selected input or output."""

    view = ScreenId.GRAPH
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "open", tooltip="open what is chosen: its tensor, or the constant"),
        Binding("w", "worst_input", "worst input", tooltip="worst input: walk to the one that carries most error"),
    ]

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._selected = 0
        self._node_key: tuple[int, int] = (-1, -1)
        self._neighbourhood: Neighbourhood | None = None
        self._key: tuple[int, int, int] = (0, -1, -1)
        self._rectangles: Mapping[str, _Rectangle] = {}

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the neighbourhood."""
        neighbourhood, picks = self._neighbourhood_and_picks(scene)
        selected_edge = picks[self._selected]
        facts = _box_facts(scene)
        lines_above = [_history_line(scene, width), _header_line(neighbourhood, scene, width)]
        max_lines = max(min(height // 4, height - len(lines_above) - len(facts) - 2), 1)
        for lines in (max_lines, 1):  # the whole texts if they fit, else one line of each
            lines_below = [*_selection_lines(scene, selected_edge, width, lines), *_facts_below(scene, width, lines)]
            if len(lines_below) <= max_lines:
                break
        if len(lines_below) > max_lines:  # mark the cut
            lines_below = [*lines_below[: max_lines - 1], _mark_cut(lines_below[max_lines - 1], scene, width)]
        canvas = Canvas(width, max(height - len(lines_above) - len(lines_below), 1), scene.glyphs)
        picture = _Picture(
            scene,
            neighbourhood,
            canvas,
            (width, max(height - len(lines_above) - len(lines_below), 1)),
            selected_edge.tensor,
        )
        self._rectangles = picture.draw(facts)
        return [*lines_above, *canvas.lines(), *lines_below]

    def move(self, scene: Scene, lines: int) -> str:
        """Select another tensor: the node's own, its inputs, its readers, then tensors further away."""
        _, picks = self._neighbourhood_and_picks(scene)
        if len(picks) == 1:
            return "this node has neither inputs nor readers"
        target = min(max(self._selected + lines, 0), len(picks) - 1)
        if target == self._selected:
            return "the node itself is chosen; j goes on to its inputs" if lines < 0 else "this is the last one"
        self._selected = target
        return ""

    def side(self, scene: Scene, direction: int) -> str:
        """Go to the selected input or output, or to the first one on that side."""
        neighbourhood, picks = self._neighbourhood_and_picks(scene)
        edges = neighbourhood.inputs if direction < 0 else neighbourhood.outputs
        if not edges:
            return "this node reads nothing" if direction < 0 else "no node reads this tensor"
        selected_edge = picks[self._selected]
        return self._walk_to(scene, selected_edge if selected_edge in edges else edges[0])

    def enter(self, scene: Scene) -> Target | str:
        """Open the selected tensor."""
        _, picks = self._neighbourhood_and_picks(scene)
        selected_edge = picks[self._selected]
        if not self._selected:
            return ScreenId.TENSOR
        if selected_edge.constant and not _is_reference_row(scene):
            return Constant(selected_edge.tensor)
        if selected_edge.row is None:
            return self._walk_to(scene, selected_edge)
        scene.navigator.jump(selected_edge.row)
        return ScreenId.TENSOR

    def click(self, scene: Scene, column: int, line: int) -> Target | str | None:
        """Select the clicked box, or open it if it is already selected."""
        _, picks = self._neighbourhood_and_picks(scene)
        line -= _LINES_ABOVE
        rectangles = self._rectangles.items()
        names = (
            name
            for name, rectangle in rectangles
            if rectangle.left <= column <= rectangle.right and rectangle.top <= line <= rectangle.bottom
        )
        name = next(names, None)
        position = next((position for position, edge in enumerate(picks) if edge.tensor == name), None)
        if position is None:
            return None
        if position == self._selected:
            return self.enter(scene)
        self._selected = position
        return ""

    def rows(self, scene: Scene) -> Sequence[int]:
        """Return the node with its neighbourhood."""
        return [edge.row for edge in self._neighbourhood_and_picks(scene)[1] if edge.row is not None]

    def action_worst_input(self) -> None:
        """Go to the input with the largest error."""
        self.stage.with_scene(go_to_worst_input)

    def _walk_to(self, scene: Scene, edge: Edge) -> str:
        if edge.row is None:
            partner_side = "backend" if _is_reference_row(scene) else "reference"
            kind = (
                "a constant; enter opens it" if edge.constant else f"not in the list: no partner in the {partner_side}"
            )
            return f"{safe_text(edge.tensor, limit=50)} is {kind}"
        return f"at {safe_text(scene.table.names[edge.row], limit=60)}{scene.navigator.jump(edge.row)}"

    def _neighbourhood_and_picks(self, scene: Scene) -> tuple[Neighbourhood, list[Edge]]:
        """Return the neighbourhood of the node, and its selectable tensors in order."""
        if self._node_key != (scene.backend, scene.row):
            self._node_key, self._selected = (scene.backend, scene.row), 0
        key = id(scene.table), scene.table.version, scene.row
        if self._neighbourhood is None or self._key != key:
            self._key = key
            self._neighbourhood = find_neighbourhood(
                _graph(scene), scene.table, scene.row, is_reference=_is_reference_row(scene)
            )
        neighbourhood = self._neighbourhood
        adjacent_edges = [neighbourhood.centre, *neighbourhood.inputs, *neighbourhood.outputs]
        adjacent_names = {edge.tensor for edge in adjacent_edges}
        levels = sorted((abs(level), -level) for level in neighbourhood.levels if level)
        distant_edges = [
            edge for level in levels for edge in neighbourhood.levels[-level[1]] if edge.tensor not in adjacent_names
        ]
        picks = [*adjacent_edges, *distant_edges]
        self._selected = min(self._selected, len(picks) - 1)
        return neighbourhood, picks


class _Picture:
    """Boxes in columns, and the edges between them.

    Args:
        scene: The state of the screen.
        neighbourhood: The neighbourhood of the node.
        canvas: The canvas.
        size: Its columns and lines.
        selected: The selected tensor.
    """

    def __init__(
        self, scene: Scene, neighbourhood: Neighbourhood, canvas: Canvas, size: tuple[int, int], selected: str
    ) -> None:
        self._scene, self._neighbourhood, self._canvas, self._selected = scene, neighbourhood, canvas, selected
        self._width, self._height = size
        self._middle_line = self._height // 2
        self._box_height = _BOX_HEIGHT + (self._height >= _TALL_HEIGHT)
        errors = [edge.error for edges in neighbourhood.levels.values() for edge in edges if edge.error]
        self._largest_error = max((error for error in errors if np.isfinite(error)), default=0.0)

    def draw(self, facts: Sequence[tuple[str, str]]) -> Mapping[str, _Rectangle]:
        """Draw everything. Return the rectangle of each tensor that can be selected, by name."""
        centre_height = min(len(facts) + 2, self._height)
        self._middle_line = (
            min(max(self._height // 2 - 1 - (centre_height - 1) // 2, 0), self._height - centre_height)
            + (centre_height - 1) // 2
        )
        levels = self._fitting_levels()
        columns = self._columns(levels, facts)
        boxes: dict[str, _Rectangle] = {}
        passing_lines: dict[tuple[str, int], _Rectangle] = {}
        for level, span in columns.items():
            edges = [edge for edge in self._neighbourhood.levels[level] if level]
            passing_names = self._passing_tensors(level, levels)
            rectangles = self._stack_boxes(
                level, edges, passing_names, span=span, facts=len(facts), passing_lines=passing_lines
            )
            boxes |= {rectangle.edge.tensor: rectangle for rectangle in rectangles if rectangle.edge is not None}
        self._draw_edges(levels, columns, boxes, passing_lines)
        edges_shown = {
            level: [edge for edge in self._neighbourhood.levels[level] if edge.tensor in boxes] for level in columns
        }
        for level, (left, right) in columns.items():
            other_edges = [edge for at, edges in edges_shown.items() if at != level for edge in edges]
            names = self._box_names(edges_shown[level] if level else [], other_edges, right - left - 1)
            for edge in edges_shown[level] if level else []:
                self._draw_neighbour(boxes[edge.tensor], names[edge.tensor])
        self._draw_centre(boxes[self._neighbourhood.centre.tensor], facts)
        return boxes

    def _box_names(self, edges: Sequence[Edge], other_edges: Sequence[Edge], width: int) -> dict[str, str]:
        """Return names for the boxes of a column, by tensor: distinct in the column and, if possible, everywhere."""
        glyphs = self._scene.glyphs
        names = [
            edge.tensor if edge.constant else glyphs.shorten_operator(_edge_name(edge), edge.op, width)
            for edge in edges
        ]
        texts = glyphs.fit_distinct(names, width)
        if edges and len(edges) + len(other_edges) <= _MAX_DISTINCT_BOXES:
            other_names = [
                edge.tensor if edge.constant else glyphs.shorten_operator(_edge_name(edge), edge.op, width)
                for edge in other_edges
            ]
            distinct_names = glyphs.fit_distinct([*names, *other_names], width)
            texts = distinct_names[: len(names)] if len({*distinct_names}) == len({*names, *other_names}) else texts
        return {edge.tensor: text for edge, text in zip(edges, texts, strict=True)}

    def _fitting_levels(self) -> list[int]:
        """Return the levels for which there is room, including the node's own, symmetric around it."""
        all_levels = self._neighbourhood.levels
        for depth, min_width in ((3, _USUAL_WIDTH), (2, _MIN_WIDTH), (1, 1)):
            levels = [level for level in all_levels if abs(level) <= depth]
            if _MIN_CENTRE_WIDTH + (len(levels) - 1) * (min_width + _MIN_GAP) <= self._width:
                return levels
        return [level for level in all_levels if not level]

    def _columns(self, levels: Sequence[int], facts: Sequence[tuple[str, str]]) -> dict[int, tuple[int, int]]:
        """Return the first and last cell of each level's column."""
        gaps = {level: self._lane_count(level) + 2 for level in levels[1:]}
        widths: dict[int, int] = {}
        for level in levels:
            texts = [
                text
                for edge in self._neighbourhood.levels[level]
                for text in (_edge_name(edge), self._facts_text(edge, _MAX_WIDTH))
            ]
            texts = texts if level else [text for text, _ in facts]
            widths[level] = min(max(map(cell_len, texts)), _MAX_WIDTH) + 3
        min_widths = {level: _MIN_WIDTH if level else _MIN_CENTRE_WIDTH for level in levels}
        free_width = self._width - sum(gaps.values())
        while sum(widths.values()) > free_width:
            widest_level = max(widths, key=lambda level: widths[level] - min_widths[level])
            if widths[widest_level] <= min(min_widths[widest_level], 8):
                break
            widths[widest_level] -= 1
        left = max((free_width - sum(widths.values())) // 2, 0)
        columns = {}
        for level in levels:
            left += gaps.get(level, 0)
            columns[level] = left, left + widths[level] - 1
            left += widths[level]
        return columns

    def _lane_count(self, level: int) -> int:
        """Return the number of vertical lines before a level: one for each tensor that edges lead to."""
        targets = (
            {self._neighbourhood.centre.tensor}
            if not level
            else {edge.tensor for edge in self._neighbourhood.levels[level]}
        )
        target_count = len({to for _, to in self._neighbourhood.links if to in targets})
        return min(max(target_count, 1), _MAX_LANES)

    def _passing_tensors(self, level: int, levels: Sequence[int]) -> list[str]:
        """Return the tensors whose edges pass through a level."""
        level_of = {
            edge.tensor: level_number for level_number in levels for edge in self._neighbourhood.levels[level_number]
        }
        links = [
            (source, target)
            for source, target in self._neighbourhood.links
            if source in level_of and target in level_of
        ]
        return list(dict.fromkeys(source for source, target in links if level_of[source] < level < level_of[target]))

    def _stack_boxes(
        self,
        level: int,
        edges: Sequence[Edge],
        passing_names: Sequence[str],
        *,
        span: tuple[int, int],
        facts: int,
        passing_lines: dict[tuple[str, int], _Rectangle],
    ) -> list[_Rectangle]:
        """Stack the boxes of a column, with the first one beside the node if possible."""
        (left, right), height = span, self._height
        sizes: Sequence[int]
        if not level:
            edges, sizes = [self._neighbourhood.centre], [min(facts + 2, height)]
        else:
            sizes = [1 if edge.constant else self._box_height for edge in edges]
            edges, sizes, hides_some = self._fitting_boxes(edges, sizes, height - len(passing_names), (left, right))
            height -= hides_some  # a line for the number of hidden boxes
        total_height = sum(sizes) + len(passing_names)
        gap = 1 if level and total_height + sum(size > 1 for size in sizes) <= height else 0
        tops, top = [], 0
        for size in sizes:
            tops.append(top)
            top += size + (gap if size > 1 else 0)
        stack_height = top + len(passing_names)
        anchor = (sizes[0] - 1) // 2 if sizes else 0
        start = min(max(self._middle_line - anchor, 0), max(height - stack_height, 0))
        if passing_names:  # passing lines run above the boxes
            start = min(max(start, len(passing_names)), max(height - top, 0))
            for number, name in enumerate(passing_names):
                line = max(start - len(passing_names) + number, 0)
                passing_lines[name, level] = _Rectangle(left=left, right=right, top=line, bottom=line)
        return [
            _Rectangle(left=left, right=right, top=start + top, bottom=start + top + size - 1, edge=edge)
            for top, size, edge in zip(tops, sizes, edges, strict=True)
        ]

    def _fitting_boxes(
        self, edges: Sequence[Edge], sizes: Sequence[int], height: int, span: tuple[int, int]
    ) -> tuple[Sequence[Edge], Sequence[int], bool]:
        """Return the boxes that fit in a column, including the selected one, their heights, and whether some do not."""
        if sum(sizes) <= height or not edges:
            return edges, sizes, False
        position = next((position for position, edge in enumerate(edges) if edge.tensor == self._selected), 0)
        fitting_count = max((height - 1) // max(sizes), 1)
        start = window(position, len(edges), fitting_count).start if position >= fitting_count else 0
        stop = start
        while stop < len(edges) and sum(sizes[start : stop + 1]) <= height - 1:
            stop += 1
        stop = max(stop, start + 1)
        note = f"{len(edges) - (stop - start)} more: j k"
        self._canvas.text(span[0], self._height - 1, self._scene.glyphs.fit_end(note, span[1] - span[0]), "accent")
        return edges[start:stop], sizes[start:stop], True

    def _draw_edges(
        self,
        levels: Sequence[int],
        columns: Mapping[int, tuple[int, int]],
        boxes: Mapping[str, _Rectangle],
        passing_lines: Mapping[tuple[str, int], _Rectangle],
    ) -> None:
        """Draw the edges, thin ones first, each in the lane of the tensor that it leads to."""
        level_of = {edge.tensor: level for level in levels for edge in self._neighbourhood.levels[level]}
        edges = {edge.tensor: edge for level in levels for edge in self._neighbourhood.levels[level]}
        lanes: dict[tuple[int, str], int] = {}
        links = [
            (source, target) for source, target in self._neighbourhood.links if source in boxes and target in boxes
        ]
        for source, target in sorted(links, key=lambda link: self._weight(edges[link[0]])):
            weight, style = self._weight(edges[source]), self._line_style(edges[source])
            stops = [boxes[source]]
            stops += [passing_lines[source, level] for level in levels if level_of[source] < level < level_of[target]]
            stops.append(boxes[target])
            for number, (start_box, end_box) in enumerate(pairwise(stops)):
                level = levels[levels.index(level_of[source]) + number + 1]
                left, right = start_box.right + 1, columns[level][0] - 1
                name = target if end_box.edge is not None else f"{source} passes"
                used_lanes = {key for key in lanes if key[0] == level}
                lane = lanes.setdefault((level, name), len(used_lanes))
                x = max(right - 1 - lane % max(right - left, 1), left)
                start = (start_box.left if start_box.edge is None else start_box.right + 1, start_box.middle)
                self._canvas.line(
                    [start, (x, start_box.middle), (x, end_box.middle), (right, end_box.middle)], weight, style
                )
                if end_box.edge is not None:
                    self._canvas.text(right, end_box.middle, ">", style)

    def _weight(self, edge: Edge) -> Weight:
        if edge.constant or not edge.error:
            return Weight.NONE
        return Weight.HEAVY if edge.error >= _HEAVY_SHARE * self._largest_error else Weight.LIGHT

    def _line_style(self, edge: Edge) -> str:
        if self._weight(edge) is Weight.NONE:
            return "muted"
        return _edge_style(self._scene, edge)

    def _draw_neighbour(self, rectangle: _Rectangle, name: str) -> None:
        """Draw a box with its name in the border, or a constant as a single line."""
        edge, width = rectangle.edge, rectangle.right - rectangle.left + 1
        if edge is None:
            return
        is_selected = edge.tensor == self._selected
        style = "cursor" if is_selected else _edge_style(self._scene, edge)
        if edge.constant:
            mark = self._scene.glyphs.cursor if is_selected else " "
            facts_width = width - 2 - cell_len(name)
            facts = (
                self._scene.glyphs.fit_end(self._facts_text(edge, facts_width), facts_width)
                if facts_width > _MIN_FACT_WIDTH
                else ""
            )
            self._canvas.text(rectangle.left, rectangle.top, " " * width, "plain")
            self._canvas.text(rectangle.left, rectangle.top, mark, "cursor")
            self._canvas.text(rectangle.left + 1, rectangle.top, name, style)
            self._canvas.text(rectangle.left + 2 + cell_len(name), rectangle.top, facts, "muted")
            return
        weight = Weight.HEAVY if is_selected else Weight.LIGHT
        self._canvas.box(
            (rectangle.left, rectangle.top),
            (width, rectangle.bottom - rectangle.top + 1),
            weight,
            "cursor" if is_selected else "muted",
        )
        self._canvas.text(
            rectangle.left + 1, rectangle.top, self._scene.glyphs.fit_distinct([name], width - 2)[0], style
        )
        if is_selected:
            self._canvas.text(rectangle.left, rectangle.top, self._scene.glyphs.cursor, "cursor")
        texts = (
            [edge.op, self._facts_text(edge, width - 2)]
            if self._box_height > _BOX_HEIGHT
            else [self._facts_text(edge, width - 2)]
        )
        for line, text in enumerate(texts, start=rectangle.top + 1):
            text_shown = self._scene.glyphs.fit_end(self._scene.glyphs.transliterate(safe_text(text)), width - 2)
            self._canvas.text(rectangle.left + 1, line, text_shown, "plain")

    def _facts_text(self, edge: Edge, max_width: int) -> str:
        return self._scene.glyphs.transliterate(_edge_facts(self._scene, edge, max_width))

    def _draw_centre(self, rectangle: _Rectangle, facts: Sequence[tuple[str, str]]) -> None:
        """Draw the node itself with double lines and all its facts."""
        width, is_selected = rectangle.right - rectangle.left + 1, self._selected == self._neighbourhood.centre.tensor
        border_style = "cursor" if is_selected else "title"
        self._canvas.box(
            (rectangle.left, rectangle.top), (width, rectangle.bottom - rectangle.top + 1), Weight.DOUBLE, border_style
        )
        for line, (text, style) in enumerate(facts[: rectangle.bottom - rectangle.top - 1]):
            fact = self._scene.glyphs.transliterate(safe_text(text))
            name = fact if line else self._scene.glyphs.shorten_operator(fact, self._scene.plan_row.op, width - 3)
            text_shown = fact if line else self._scene.glyphs.fit_distinct([name], width - 3)[0]
            self._canvas.text(
                rectangle.left + 2, rectangle.top + 1 + line, self._scene.glyphs.fit_end(text_shown, width - 3), style
            )
        if is_selected:
            self._canvas.text(rectangle.left, rectangle.top + 1, self._scene.glyphs.cursor, "cursor")
        if (hidden := len(facts) - (rectangle.bottom - rectangle.top - 1)) > 0:
            fact = self._scene.glyphs.fit_end(f" {hidden} more, see 4 ", width - 3)
            self._canvas.text(rectangle.left + 2, rectangle.bottom, fact, "accent")


def _edge_name(edge: Edge) -> str:
    return edge.node or edge.tensor


def _selection_lines(scene: Scene, edge: Edge, width: int, max_lines: int) -> list[Line]:
    """Return the full name and the error of the selected tensor, which its narrow box cannot show."""
    node = f", of {safe_text(edge.node, limit=80)}" if edge.node and edge.node != edge.tensor else ""
    error_text = "" if edge.row == scene.row else f": {_edge_facts(scene, edge, 80)}"
    sentence = scene.glyphs.transliterate(
        f"{scene.glyphs.cursor} {safe_text(edge.tensor, limit=120)}{node}{error_text}"
    )
    return [[(f" {line}", "plain")] for line in wrap(sentence, max(width - 2, 10), max_lines=max_lines)]


def _mark_cut(line: Line, scene: Scene, width: int) -> Line:
    """Mark a line to show that more follows, which a taller terminal would show."""
    (text, style), more_text = line[0], " .. more in a taller terminal"
    return [(scene.glyphs.fit_end(text.removesuffix(" .."), width - len(more_text)), style), (more_text, "accent")]


def _is_reference_row(scene: Scene) -> bool:
    """Return whether the row is a tensor that only the reference has."""
    return not scene.plan_row.tensor and bool(scene.plan_row.reference_tensor)


def _graph(scene: Scene) -> Graph:
    """Return the graph that contains the row's node."""
    return scene.opened.reference_graph if _is_reference_row(scene) else scene.opened.backend_graph


def _history_line(scene: Scene, width: int) -> Line:
    """Draw the last nodes of the history, which led to this node."""
    history = list(scene.navigator.trail.rows)
    if history and history[-1] == scene.row:  # true unless the cursor was moved without a jump
        del history[-1]
    current_name = f"[{scene.glyphs.fit(scene.table.names[scene.row], 40).rstrip()}]"
    names = [scene.glyphs.fit(scene.table.names[row], 20).rstrip() for row in history[-6:]]
    while names and len(" history .. > ") + cell_len(" > ".join([*names, current_name])) > width:
        names.pop(0)
    dots = ".. > " if len(names) < len(history) else ""
    history_text = f" history {dots}" + "".join(f"{name} > " for name in names)
    return [
        (history_text, "muted"),
        (scene.glyphs.fit_end(current_name, max(width - cell_len(history_text), 1)), "title"),
    ]


def _header_line(neighbourhood: Neighbourhood, scene: Scene, width: int) -> Line:
    """Return the number of edges, and the legend of their thickness."""
    input_count, readers = len(neighbourhood.inputs), len(neighbourhood.outputs)
    counts = (
        " no inputs" if not input_count else " 1 input" if input_count == 1 else f" {input_count} inputs, worst first"
    )
    counts += f", read by {readers}" if readers else ", read by none"
    lines = (
        ("━ most error", "─ less", "┄ none, unknown, const.")
        if scene.glyphs.braille
        else ("= most error", "- less", ". none, unknown, const.")
    )
    legend = "  ".join(lines)
    legend = legend if cell_len(counts) + cell_len(legend) + 2 < width else " ".join(lines)
    gap = width - cell_len(counts) - cell_len(legend) - 1
    return [(counts, "accent"), (" " * gap + legend, "muted")] if gap > 1 else [(counts, "accent")]


def _edge_style(scene: Scene, edge: Edge) -> str:
    return "muted" if edge.row is None else state_style(State(int(scene.table.state[edge.row])))


def _edge_facts(scene: Scene, edge: Edge, max_width: int) -> str:
    """Return the error on an edge, with gain and type if they fit."""
    info = edge.info
    dtype = numbers.MISSING if info is None else (info.quant.dtype if info.quant and not info.dtype else info.dtype)
    if edge.constant:
        extents = "" if info is None or not info.shape else f" {numbers.shape(info.shape)}"
        quant_suffix = "" if info is None or info.quant is None else f" {quant_text(info.quant)}"
        return _append_fitting(f"constant {dtype or ''}", (extents, quant_suffix), max_width)
    if edge.row is None:
        return f"not compared {dtype or ''}"
    result = scene.table.results[edge.row]
    if scene.table.rows[edge.row].missing is not None:
        return f"not compared {dtype or ''}"
    if result is None:
        return f"pending {dtype or ''}"
    is_incomparable = result.status is Status.INCOMPARABLE
    error = (
        "incomparable" if is_incomparable or result.metrics is None else f"rel {numbers.number(result.metrics.rel_l2)}"
    )
    gain = "" if result.relative_gain is None else f" gain x{numbers.number(result.relative_gain)}"
    facts = f"{sign_of(scene.table, edge.row)}{error}"
    if cell_len(facts) > max_width:  # rather drop the label than a digit
        facts = facts.replace("rel ", "", 1)
    return _append_fitting(facts, (gain, f" {dtype}" if dtype else ""), max_width)


def _append_fitting(text: str, suffixes: Sequence[str], max_width: int) -> str:
    """Append as many of the texts as fit."""
    for words in suffixes:
        text += words if cell_len(text) + cell_len(words) <= max_width else ""
    return text


def _box_facts(scene: Scene) -> list[tuple[str, str]]:
    """Return the node's name, operator, error, introduced share and clipping, each with its style."""
    result, state = scene.outcome, State(int(scene.table.state[scene.row]))
    facts = [(scene.table.title(scene.row), "title"), (scene.plan_row.op, "plain")]
    facts.append(
        (f"{sign_of(scene.table, scene.row)}{scene.table.status_word(scene.row, is_brief=True)}", state_style(state))
    )
    if result is not None and result.metrics is not None:
        facts.append((f"rel {numbers.number(result.metrics.rel_l2)}", "plain"))
        share = own_share(result)
        if share is not None:
            facts.append((f"own {numbers.percent(share, 1.0)}", "plain"))
        elif result.attribution_note:
            facts.append(("own error unknown", "unknown"))
        if result.relative_gain is not None:
            facts.append((f"gain x{numbers.number(result.relative_gain)}", "plain"))
        if result.saturation is not None:
            clipped = numbers.percent(result.saturation.clipped, max(result.saturation.total, 1))
            facts.append((f"clip {clipped}", "plain"))
    values = None if scene.ready is None else scene.ready.values  # their shape has no unknown extents
    shape = scene.plan_row.shape if values is None else values.shape
    facts.append((f"{scene.plan_row.dtype or ''} {numbers.shape(shape)}", "muted"))
    return facts


def _facts_below(scene: Scene, width: int, max_lines: int) -> list[Line]:
    """Return the node's origin, attributes and median gain, each limited to a number of lines."""
    node = _graph(scene).producer(tensor_of(scene.table, scene.row, is_reference=_is_reference_row(scene)))
    facts = ["the graph of the reference; only the reference has this node"] if _is_reference_row(scene) else []
    if scene.navigator.sample is not None:
        facts.append(f"errors of all {scene.navigator.samples} samples; 2 has those of sample {scene.navigator.sample}")
    if scene.plan_row.missing is not None:
        facts.append(f"not compared: {safe_text(scene.plan_row.missing)}")
    if node is not None and node.attrs:
        attrs = [f"{safe_text(key, limit=24)}={safe_text(value, limit=24)}" for key, value in node.attrs.items()]
        facts.append(
            "attributes: " + " ".join(attrs[:_MAX_ATTRIBUTES]) + (" .." if len(attrs) > _MAX_ATTRIBUTES else "")
        )
    gain = _median_gain(scene)
    if gain:
        facts.append(gain)
    if scene.plan_row.match:
        facts.append(
            f"node paired with {safe_text(scene.plan_row.reference_tensor, limit=60)} ({scene.plan_row.match})"
        )
    info = _graph(scene).tensors.get(tensor_of(scene.table, scene.row, is_reference=_is_reference_row(scene)))
    if info is not None and info.quant is not None:
        facts.append(f"scale / zero point {quant_summary(info.quant)}")
    if node is not None and node.origin not in ((), (node.name,)):
        names = ", ".join(safe_text(name, limit=40) for name in node.origin[:6])
        origin = "the model's" if len(node.origin) == 1 else f"fused of {len(node.origin)}:"
        facts.append(f"{origin} {names}{' ..' if len(node.origin) > 6 else ''}")
    lines: list[Line] = []
    for text in facts:
        lines += [
            [(f" {line}", "muted")]
            for line in wrap(scene.glyphs.transliterate(text), max(width - 2, 10), max_lines=max_lines)
        ]
    return lines


def _median_gain(scene: Scene) -> str:
    """Return a comparison of the node's gain with the median of its operator; "" for fewer than three gains."""
    result = scene.outcome
    if result is None or result.relative_gain is None:
        return ""
    has_same_op = scene.table.rows_matching("op", lambda op: op == scene.plan_row.op)
    gains = scene.table.values("gain")[has_same_op]
    gains = gains[np.isfinite(gains)]
    if len(gains) < 3:
        return ""
    median_text = numbers.number(float(np.median(gains)))
    op = safe_text(scene.plan_row.op, limit=24)
    return f"gain x{numbers.number(result.relative_gain)} here, median of {len(gains)} {op} x{median_text}"


def go_to_worst_input(scene: Scene) -> str:
    """Go to the input with the largest error. Return a message, even if no input has an error."""
    edge = worst_input(scene.opened.backend_graph, scene.table, scene.row)
    if edge is None or edge.row is None:
        return _no_worst_input_text(scene)
    filter_note = scene.navigator.jump(edge.row)
    result = scene.table.results[edge.row]
    if result is None or result.metrics is None:
        return f"at an input that could not be compared{filter_note}; H goes back"
    return f"at the worst input, rel {numbers.number(result.metrics.rel_l2)}{filter_note}; H goes back"


def _no_worst_input_text(scene: Scene) -> str:
    """Return why the worst input is unknown: no input has an error, or their errors are unknown."""
    graph, table = scene.opened.backend_graph, scene.table
    if not scene.plan_row.tensor:
        return "not known: only the reference has this node, so it is not compared"
    inputs = [edge for edge in inputs_of(graph, table, scene.plan_row.tensor) if not edge.constant and edge.node]
    unknown = [edge.tensor for edge in inputs if edge.row is None or table.rows[edge.row].missing is not None]
    if unknown:
        return f"not known: its input {safe_text(unknown[0], limit=60)} is not compared; in the graph (3) h goes there"
    own_error_text = ": what there is, this node adds itself"
    if scene.outcome is not None and not relative_error(scene.outcome):
        own_error_text = ", and this node adds none"
    if table.pending:
        return Provisional(f"no input carries any error so far{own_error_text}", Until.RESULTS)
    return f"no input carries any error{own_error_text}"
