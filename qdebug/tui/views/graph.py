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
from qdebug.tui.nodes.neighbourhood import Neighbourhood, neighbourhood
from qdebug.tui.nodes.rows import State
from qdebug.tui.nodes.walk import Edge, carried, inputs_of, own_share, tensor_of, worst_input
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import Constant, DrawnView, Line, Scene, Target, sign_of, state_style, window

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.model import Graph

__all__ = ["GraphView", "to_worst_input"]

_ATTRS = 8
_ABOVE = 2
"""Lines above the drawing."""
_BOX = 3
"""Lines of a box: its name in the border, and one fact; one more line for its operator if there is room."""
_TALL = 24
_LEAST, _USUAL, _WIDEST, _LEAST_CENTRE = 12, 16, 34, 18
"""Cells of a column: the minimum, the width for three levels in each direction, the maximum; minimum for the node's
own."""
_LEAST_FACT = 8
"""Minimum cells for a fact about a constant next to its name."""
_LEAST_GAP, _MOST_LANES = 3, 4
"""Minimum cells between two columns, and the maximum number of parallel vertical lines in them."""
_APART = 16
"""Maximum number of boxes whose names are kept distinct across columns. For more, there is not enough room."""
_HEAVY = 0.5
"""Share of the largest error shown, from which on an edge is drawn thick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """The rectangle of a box or of a passing line.

    Args:
        left, top, right, low: Its first and last column and line.
        edge: The tensor of the box; None for a line that passes through.
    """

    left: int
    top: int
    right: int
    low: int
    edge: Edge | None = None

    @property
    def middle(self) -> int:
        """The line that edges lead to."""
        return (self.top + self.low) // 2


class GraphView(DrawnView):
    """Moves along edges: j k select a neighbour, enter opens it, h and l go to the selected input or output."""

    view = ScreenId.GRAPH
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "open", tooltip="open what is chosen: its tensor, or the constant"),
        Binding("w", "worst_input", "worst input", tooltip="worst input: walk to the one that carries most error"),
    ]

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._chosen = 0
        self._of: tuple[int, int] = (-1, -1)
        self._around: Neighbourhood | None = None
        self._key: tuple[int, int, int] = (0, -1, -1)
        self._spots: Mapping[str, _Placed] = {}

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the neighbourhood."""
        around, picks = self._look(scene)
        chosen = picks[self._chosen]
        facts = _box_facts(scene)
        above = [_path(scene, width), _heads(around, scene, width)]
        most = max(min(height // 4, height - len(above) - len(facts) - 2), 1)
        for lines in (most, 1):  # all lines of each part if they fit, else one of each
            below = [*_chosen_words(scene, chosen, width, lines), *_below(scene, width, lines)]
            if len(below) <= most:
                break
        if len(below) > most:  # what is cut says so
            below = [*below[: most - 1], _cut(below[most - 1], scene, width)]
        canvas = Canvas(width, max(height - len(above) - len(below), 1), scene.glyphs)
        picture = _Picture(scene, around, canvas, (width, max(height - len(above) - len(below), 1)), chosen.tensor)
        self._spots = picture.draw(facts)
        return [*above, *canvas.lines(), *below]

    def move(self, scene: Scene, lines: int) -> str:
        """Select another tensor: the node's own, its inputs, its readers, then tensors further away."""
        _, picks = self._look(scene)
        if len(picks) == 1:
            return "this node has neither inputs nor readers"
        target = min(max(self._chosen + lines, 0), len(picks) - 1)
        if target == self._chosen:
            return "the node itself is chosen; j goes on to its inputs" if lines < 0 else "this is the last one"
        self._chosen = target
        return ""

    def side(self, scene: Scene, direction: int) -> str:
        """Go to the selected input or output, or to the first one on that side."""
        around, picks = self._look(scene)
        edges = around.inputs if direction < 0 else around.outputs
        if not edges:
            return "this node reads nothing" if direction < 0 else "no node reads this tensor"
        chosen = picks[self._chosen]
        return self._walk(scene, chosen if chosen in edges else edges[0])

    def enter(self, scene: Scene) -> Target | str:
        """Open the selected tensor."""
        _, picks = self._look(scene)
        chosen = picks[self._chosen]
        if not self._chosen:
            return ScreenId.TENSOR
        if chosen.constant and not _theirs(scene):
            return Constant(chosen.tensor)
        if chosen.row is None:
            return self._walk(scene, chosen)
        scene.navigator.jump(chosen.row)
        return ScreenId.TENSOR

    def click(self, scene: Scene, column: int, line: int) -> Target | str | None:
        """Select the clicked box, or open it if it is already selected."""
        _, picks = self._look(scene)
        line -= _ABOVE
        spots = self._spots.items()
        hit = (name for name, at in spots if at.left <= column <= at.right and at.top <= line <= at.low)
        name = next(hit, None)
        at = next((at for at, edge in enumerate(picks) if edge.tensor == name), None)
        if at is None:
            return None
        if at == self._chosen:
            return self.enter(scene)
        self._chosen = at
        return ""

    def rows(self, scene: Scene) -> Sequence[int]:
        """Return the node with its neighbourhood."""
        return [edge.row for edge in self._look(scene)[1] if edge.row is not None]

    def action_worst_input(self) -> None:
        """Go to the input with the largest error."""
        self.stage.with_scene(to_worst_input)

    def _walk(self, scene: Scene, edge: Edge) -> str:
        if edge.row is None:
            partner_side = "backend" if _theirs(scene) else "reference"
            kind = (
                "a constant; enter opens it" if edge.constant else f"not in the list: no partner in the {partner_side}"
            )
            return f"{safe_text(edge.tensor, limit=50)} is {kind}"
        return f"at {safe_text(scene.table.names[edge.row], limit=60)}{scene.navigator.jump(edge.row)}"

    def _look(self, scene: Scene) -> tuple[Neighbourhood, list[Edge]]:
        """Return the neighbourhood of the node, and its selectable tensors in order."""
        if self._of != (scene.backend, scene.row):
            self._of, self._chosen = (scene.backend, scene.row), 0
        key = id(scene.table), scene.table.version, scene.row
        if self._around is None or self._key != key:
            self._key = key
            self._around = neighbourhood(_graph(scene), scene.table, scene.row, theirs=_theirs(scene))
        around = self._around
        near = [around.centre, *around.inputs, *around.outputs]
        names = {edge.tensor for edge in near}
        far = sorted((abs(level), -level) for level in around.levels if level)
        rest = [edge for level in far for edge in around.levels[-level[1]] if edge.tensor not in names]
        picks = [*near, *rest]
        self._chosen = min(self._chosen, len(picks) - 1)
        return around, picks


class _Picture:
    """Boxes in columns, and the edges between them.

    Args:
        scene: The state of the screen.
        around: The neighbourhood of the node.
        canvas: The canvas.
        size: Its columns and lines.
        chosen: The selected tensor.
    """

    def __init__(self, scene: Scene, around: Neighbourhood, canvas: Canvas, size: tuple[int, int], chosen: str) -> None:
        self._scene, self._around, self._canvas, self._chosen = scene, around, canvas, chosen
        self._width, self._height = size
        self._middle = self._height // 2
        self._box = _BOX + (self._height >= _TALL)
        errors = [edge.error for edges in around.levels.values() for edge in edges if edge.error]
        self._top = max((error for error in errors if np.isfinite(error)), default=0.0)

    def draw(self, facts: Sequence[tuple[str, str]]) -> Mapping[str, _Placed]:
        """Draw everything. Return the places of the selectable tensors."""
        high = min(len(facts) + 2, self._height)
        self._middle = min(max(self._height // 2 - 1 - (high - 1) // 2, 0), self._height - high) + (high - 1) // 2
        levels = self._levels()
        columns = self._columns(levels, facts)
        placed: dict[str, _Placed] = {}
        passing: dict[tuple[str, int], _Placed] = {}
        for level, span in columns.items():
            items = [edge for edge in self._around.levels[level] if level]
            lanes = self._passing(level, levels)
            spots = self._stack(level, items, lanes, span=span, facts=len(facts), passing=passing)
            placed |= {spot.edge.tensor: spot for spot in spots if spot.edge is not None}
        self._edges(levels, columns, placed, passing)
        shown = {level: [edge for edge in self._around.levels[level] if edge.tensor in placed] for level in columns}
        for level, (left, right) in columns.items():
            others = [edge for at, edges in shown.items() if at != level for edge in edges]
            names = self._names(shown[level] if level else [], others, right - left - 1)
            for edge in shown[level] if level else []:
                self._neighbour(placed[edge.tensor], names[edge.tensor])
        self._centre(placed[self._around.centre.tensor], facts)
        return placed

    def _names(self, shown: Sequence[Edge], others: Sequence[Edge], width: int) -> dict[str, str]:
        """Return names for the boxes of a column, by tensor: distinct in the column and, if possible, everywhere."""
        glyphs = self._scene.glyphs
        names = [edge.tensor if edge.constant else glyphs.brief(_name(edge), edge.op, width) for edge in shown]
        texts = glyphs.apart(names, width)
        if shown and len(shown) + len(others) <= _APART:
            rest = [edge.tensor if edge.constant else glyphs.brief(_name(edge), edge.op, width) for edge in others]
            apart = glyphs.apart([*names, *rest], width)
            texts = apart[: len(names)] if len({*apart}) == len({*names, *rest}) else texts
        return {edge.tensor: text for edge, text in zip(shown, texts, strict=True)}

    def _levels(self) -> list[int]:
        """Return the levels for which there is room, including the node's own, symmetric around it."""
        have = self._around.levels
        for depth, least in ((3, _USUAL), (2, _LEAST), (1, 1)):
            levels = [level for level in have if abs(level) <= depth]
            if _LEAST_CENTRE + (len(levels) - 1) * (least + _LEAST_GAP) <= self._width:
                return levels
        return [level for level in have if not level]

    def _columns(self, levels: Sequence[int], facts: Sequence[tuple[str, str]]) -> dict[int, tuple[int, int]]:
        """Return the first and last cell of each level's column."""
        gaps = {level: self._lanes(level) + 2 for level in levels[1:]}
        widths: dict[int, int] = {}
        for level in levels:
            texts = [text for edge in self._around.levels[level] for text in (_name(edge), self._facts(edge, _WIDEST))]
            texts = texts if level else [text for text, _ in facts]
            widths[level] = min(max(map(cell_len, texts)), _WIDEST) + 3
        least = {level: _LEAST if level else _LEAST_CENTRE for level in levels}
        room = self._width - sum(gaps.values())
        while sum(widths.values()) > room:
            widest = max(widths, key=lambda level: widths[level] - least[level])
            if widths[widest] <= min(least[widest], 8):
                break
            widths[widest] -= 1
        left = max((room - sum(widths.values())) // 2, 0)
        columns = {}
        for level in levels:
            left += gaps.get(level, 0)
            columns[level] = left, left + widths[level] - 1
            left += widths[level]
        return columns

    def _lanes(self, level: int) -> int:
        """Return the number of vertical lines before a level: one for each tensor that edges lead to."""
        targets = {self._around.centre.tensor} if not level else {edge.tensor for edge in self._around.levels[level]}
        many = len({to for _, to in self._around.links if to in targets})
        return min(max(many, 1), _MOST_LANES)

    def _passing(self, level: int, levels: Sequence[int]) -> list[str]:
        """Return the tensors whose edges pass through a level."""
        at = {edge.tensor: of for of in levels for edge in self._around.levels[of]}
        ends = [(source, target) for source, target in self._around.links if source in at and target in at]
        return list(dict.fromkeys(source for source, target in ends if at[source] < level < at[target]))

    def _stack(
        self,
        level: int,
        items: Sequence[Edge],
        lanes: Sequence[str],
        *,
        span: tuple[int, int],
        facts: int,
        passing: dict[tuple[str, int], _Placed],
    ) -> list[_Placed]:
        """Stack the boxes of a column, with the first one beside the node if possible."""
        (left, right), room = span, self._height
        sizes: Sequence[int]
        if not level:
            items, sizes = [self._around.centre], [min(facts + 2, room)]
        else:
            sizes = [1 if edge.constant else self._box for edge in items]
            items, sizes, left_out = self._shown(items, sizes, room - len(lanes), (left, right))
            room -= left_out  # of what is left out a line says how much that is
        many = sum(sizes) + len(lanes)
        loose = 1 if level and many + sum(size > 1 for size in sizes) <= room else 0
        tops, at = [], 0
        for size in sizes:
            tops.append(at)
            at += size + (loose if size > 1 else 0)
        high = at + len(lanes)
        anchor = (sizes[0] - 1) // 2 if sizes else 0
        start = min(max(self._middle - anchor, 0), max(room - high, 0))
        if lanes:  # what passes by does so above the boxes
            start = min(max(start, len(lanes)), max(room - at, 0))
            for number, name in enumerate(lanes):
                line = max(start - len(lanes) + number, 0)
                passing[name, level] = _Placed(left=left, right=right, top=line, low=line)
        return [
            _Placed(left=left, right=right, top=start + top, low=start + top + size - 1, edge=edge)
            for top, size, edge in zip(tops, sizes, items, strict=True)
        ]

    def _shown(
        self, items: Sequence[Edge], sizes: Sequence[int], room: int, span: tuple[int, int]
    ) -> tuple[Sequence[Edge], Sequence[int], bool]:
        """Return the boxes of a column that fit, including the selected one, and how many are hidden."""
        if sum(sizes) <= room or not items:
            return items, sizes, False
        at = next((at for at, edge in enumerate(items) if edge.tensor == self._chosen), 0)
        fits = max((room - 1) // max(sizes), 1)
        start = window(at, len(items), fits).start if at >= fits else 0
        stop = start
        while stop < len(items) and sum(sizes[start : stop + 1]) <= room - 1:
            stop += 1
        stop = max(stop, start + 1)
        note = f"{len(items) - (stop - start)} more: j k"
        self._canvas.text(span[0], self._height - 1, self._scene.glyphs.fit_end(note, span[1] - span[0]), "accent")
        return items[start:stop], sizes[start:stop], True

    def _edges(
        self,
        levels: Sequence[int],
        columns: Mapping[int, tuple[int, int]],
        placed: Mapping[str, _Placed],
        passing: Mapping[tuple[str, int], _Placed],
    ) -> None:
        """Draw the edges, thin ones first, each in the lane of the tensor that it leads to."""
        at = {edge.tensor: level for level in levels for edge in self._around.levels[level]}
        edges = {edge.tensor: edge for level in levels for edge in self._around.levels[level]}
        lanes: dict[tuple[int, str], int] = {}
        links = [(source, target) for source, target in self._around.links if source in placed and target in placed]
        for source, target in sorted(links, key=lambda link: self._weight(edges[link[0]])):
            weight, style = self._weight(edges[source]), self._line_style(edges[source])
            stops = [placed[source]]
            stops += [passing[source, level] for level in levels if at[source] < level < at[target]]
            stops.append(placed[target])
            for number, (before, after) in enumerate(pairwise(stops)):
                level = levels[levels.index(at[source]) + number + 1]
                left, right = before.right + 1, columns[level][0] - 1
                name = target if after.edge is not None else f"{source} passes"
                used = {key for key in lanes if key[0] == level}
                lane = lanes.setdefault((level, name), len(used))
                x = max(right - 1 - lane % max(right - left, 1), left)
                start = (before.left if before.edge is None else before.right + 1, before.middle)
                self._canvas.line([start, (x, before.middle), (x, after.middle), (right, after.middle)], weight, style)
                if after.edge is not None:
                    self._canvas.text(right, after.middle, ">", style)

    def _weight(self, edge: Edge) -> Weight:
        if edge.constant or not edge.error:
            return Weight.NONE
        return Weight.HEAVY if edge.error >= _HEAVY * self._top else Weight.LIGHT

    def _line_style(self, edge: Edge) -> str:
        if self._weight(edge) is Weight.NONE:
            return "muted"
        return _edge_style(self._scene, edge)

    def _neighbour(self, spot: _Placed, name: str) -> None:
        """Draw a box with its name in the border, or a constant as a single line."""
        edge, width = spot.edge, spot.right - spot.left + 1
        if edge is None:
            return
        here = edge.tensor == self._chosen
        style = "cursor" if here else _edge_style(self._scene, edge)
        if edge.constant:
            mark = self._scene.glyphs.cursor if here else " "
            rest = width - 2 - cell_len(name)
            facts = self._scene.glyphs.fit_end(self._facts(edge, rest), rest) if rest > _LEAST_FACT else ""
            self._canvas.text(spot.left, spot.top, " " * width, "plain")
            self._canvas.text(spot.left, spot.top, mark, "cursor")
            self._canvas.text(spot.left + 1, spot.top, name, style)
            self._canvas.text(spot.left + 2 + cell_len(name), spot.top, facts, "muted")
            return
        weight = Weight.HEAVY if here else Weight.LIGHT
        self._canvas.box((spot.left, spot.top), (width, spot.low - spot.top + 1), weight, "cursor" if here else "muted")
        self._canvas.text(spot.left + 1, spot.top, self._scene.glyphs.apart([name], width - 2)[0], style)
        if here:
            self._canvas.text(spot.left, spot.top, self._scene.glyphs.cursor, "cursor")
        texts = [edge.op, self._facts(edge, width - 2)] if self._box > _BOX else [self._facts(edge, width - 2)]
        for line, text in enumerate(texts, start=spot.top + 1):
            cut = self._scene.glyphs.fit_end(self._scene.glyphs.plain(safe_text(text)), width - 2)
            self._canvas.text(spot.left + 1, line, cut, "plain")

    def _facts(self, edge: Edge, room: int) -> str:
        return self._scene.glyphs.plain(_edge_facts(self._scene, edge, room))

    def _centre(self, spot: _Placed, facts: Sequence[tuple[str, str]]) -> None:
        """Draw the node itself with double lines and all its facts."""
        width, here = spot.right - spot.left + 1, self._chosen == self._around.centre.tensor
        rim = "cursor" if here else "title"
        self._canvas.box((spot.left, spot.top), (width, spot.low - spot.top + 1), Weight.DOUBLE, rim)
        for line, (text, style) in enumerate(facts[: spot.low - spot.top - 1]):
            fact = self._scene.glyphs.plain(safe_text(text))
            name = fact if line else self._scene.glyphs.brief(fact, self._scene.planned.op, width - 3)
            cut = fact if line else self._scene.glyphs.apart([name], width - 3)[0]
            self._canvas.text(spot.left + 2, spot.top + 1 + line, self._scene.glyphs.fit_end(cut, width - 3), style)
        if here:
            self._canvas.text(spot.left, spot.top + 1, self._scene.glyphs.cursor, "cursor")
        if (hidden := len(facts) - (spot.low - spot.top - 1)) > 0:
            fact = self._scene.glyphs.fit_end(f" {hidden} more, see 4 ", width - 3)
            self._canvas.text(spot.left + 2, spot.low, fact, "accent")


def _name(edge: Edge) -> str:
    return edge.node or edge.tensor


def _chosen_words(scene: Scene, edge: Edge, width: int, most: int) -> list[Line]:
    """Return the full name and the error of the selected tensor, which its narrow box cannot show."""
    node = f", of {safe_text(edge.node, limit=80)}" if edge.node and edge.node != edge.tensor else ""
    carries = "" if edge.row == scene.row else f": {_edge_facts(scene, edge, 80)}"
    sentence = scene.glyphs.plain(f"{scene.glyphs.cursor} {safe_text(edge.tensor, limit=120)}{node}{carries}")
    return [[(f" {line}", "plain")] for line in wrap(sentence, max(width - 2, 10), most=most)]


def _cut(line: Line, scene: Scene, width: int) -> Line:
    """Mark a line to show that more follows, which a taller terminal would show."""
    (text, style), more = line[0], " .. more in a taller terminal"
    return [(scene.glyphs.fit_end(text.removesuffix(" .."), width - len(more)), style), (more, "accent")]


def _theirs(scene: Scene) -> bool:
    """Return whether the row is a tensor that only the reference has."""
    return not scene.planned.tensor and bool(scene.planned.reference_tensor)


def _graph(scene: Scene) -> Graph:
    """Return the graph that contains the row's node."""
    return scene.opened.reference_graph if _theirs(scene) else scene.opened.backend_graph


def _path(scene: Scene, width: int) -> Line:
    """Draw the last nodes of the history, which led to this node."""
    way = list(scene.navigator.trail.rows)
    if way and way[-1] == scene.row:  # the end of the way, unless one has moved on without a jump
        del way[-1]
    here = f"[{scene.glyphs.fit(scene.table.names[scene.row], 40).rstrip()}]"
    shown = [scene.glyphs.fit(scene.table.names[row], 20).rstrip() for row in way[-6:]]
    while shown and len(" history .. > ") + cell_len(" > ".join([*shown, here])) > width:
        shown.pop(0)
    more = ".. > " if len(shown) < len(way) else ""
    before = f" history {more}" + "".join(f"{name} > " for name in shown)
    return [(before, "muted"), (scene.glyphs.fit_end(here, max(width - cell_len(before), 1)), "title")]


def _heads(around: Neighbourhood, scene: Scene, width: int) -> Line:
    """Return the number of edges, and the legend of their thickness."""
    many, readers = len(around.inputs), len(around.outputs)
    counts = " no inputs" if not many else " 1 input" if many == 1 else f" {many} inputs, worst first"
    counts += f", read by {readers}" if readers else ", read by none"
    lines = (
        ("━ most error", "─ less", "┄ none, unknown, const.")
        if scene.glyphs.braille
        else ("= most error", "- less", ". none, unknown, const.")
    )
    key = "  ".join(lines)
    key = key if cell_len(counts) + cell_len(key) + 2 < width else " ".join(lines)
    gap = width - cell_len(counts) - cell_len(key) - 1
    return [(counts, "accent"), (" " * gap + key, "muted")] if gap > 1 else [(counts, "accent")]


def _edge_style(scene: Scene, edge: Edge) -> str:
    return "muted" if edge.row is None else state_style(State(int(scene.table.state[edge.row])))


def _edge_facts(scene: Scene, edge: Edge, room: int) -> str:
    """Return the error on an edge, with gain and type if they fit."""
    info = edge.info
    dtype = numbers.MISSING if info is None else (info.quant.dtype if info.quant and not info.dtype else info.dtype)
    if edge.constant:
        extents = "" if info is None or not info.shape else f" {numbers.shape(info.shape)}"
        per = "" if info is None or info.quant is None else f" {quant_text(info.quant)}"
        return _as_fits(f"constant {dtype or ''}", (extents, per), room)
    if edge.row is None:
        return f"not compared {dtype or ''}"
    result = scene.table.results[edge.row]
    if scene.table.rows[edge.row].missing is not None:
        return f"not compared {dtype or ''}"
    if result is None:
        return f"pending {dtype or ''}"
    unlike = result.status is Status.INCOMPARABLE
    error = "incomparable" if unlike or result.metrics is None else f"rel {numbers.number(result.metrics.rel_l2)}"
    gain = "" if result.relative_gain is None else f" gain x{numbers.number(result.relative_gain)}"
    facts = f"{sign_of(scene.table, edge.row)}{error}"
    if cell_len(facts) > room:  # a number that lost a digit would be another one
        facts = facts.replace("rel ", "", 1)
    return _as_fits(facts, (gain, f" {dtype}" if dtype else ""), room)


def _as_fits(text: str, more: Sequence[str], room: int) -> str:
    """Append as many of the texts as fit."""
    for words in more:
        text += words if cell_len(text) + cell_len(words) <= room else ""
    return text


def _box_facts(scene: Scene) -> list[tuple[str, str]]:
    """Return the node's name, operator, error, introduced share and clipping, each with its style."""
    result, state = scene.outcome, State(int(scene.table.state[scene.row]))
    facts = [(scene.table.title(scene.row), "title"), (scene.planned.op, "plain")]
    facts.append((f"{sign_of(scene.table, scene.row)}{state.word}", state_style(state)))
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
    values = None if scene.ready is None else scene.ready.values  # whose extents are all known
    shape = scene.planned.shape if values is None else values.shape
    facts.append((f"{scene.planned.dtype or ''} {numbers.shape(shape)}", "muted"))
    return facts


def _below(scene: Scene, width: int, most: int) -> list[Line]:
    """Return the node's origin, attributes and median gain, each limited to a number of lines."""
    node = _graph(scene).producer(tensor_of(scene.table, scene.row, theirs=_theirs(scene)))
    facts = ["the graph of the reference, which alone has this node"] if _theirs(scene) else []
    if scene.navigator.sample is not None:
        facts.append(f"errors of all {scene.navigator.samples} samples; 2 has those of sample {scene.navigator.sample}")
    if scene.planned.missing is not None:
        facts.append(f"not compared: {safe_text(scene.planned.missing)}")
    if node is not None and node.attrs:
        attrs = [f"{safe_text(key, limit=24)}={safe_text(value, limit=24)}" for key, value in node.attrs.items()]
        facts.append("attributes: " + " ".join(attrs[:_ATTRS]) + (" .." if len(attrs) > _ATTRS else ""))
    gain = _median_gain(scene)
    if gain:
        facts.append(gain)
    if scene.planned.match:
        facts.append(f"node paired with {safe_text(scene.planned.reference_tensor, limit=60)} ({scene.planned.match})")
    info = _graph(scene).tensors.get(tensor_of(scene.table, scene.row, theirs=_theirs(scene)))
    if info is not None and info.quant is not None:
        facts.append(f"scale / zero point {quant_summary(info.quant)}")
    if node is not None and node.origin not in ((), (node.name,)):
        names = ", ".join(safe_text(name, limit=40) for name in node.origin[:6])
        origin = "the model's" if len(node.origin) == 1 else f"fused of {len(node.origin)}:"
        facts.append(f"{origin} {names}{' ..' if len(node.origin) > 6 else ''}")
    lines: list[Line] = []
    for text in facts:
        lines += [[(f" {line}", "muted")] for line in wrap(scene.glyphs.plain(text), max(width - 2, 10), most=most)]
    return lines


def _median_gain(scene: Scene) -> str:
    """Return a comparison of the node's gain with other nodes of the same operator."""
    result = scene.outcome
    if result is None or result.relative_gain is None:
        return ""
    same = scene.table.matching("op", lambda op: op == scene.planned.op)
    gains = scene.table.values("gain")[same]
    gains = gains[np.isfinite(gains)]
    if len(gains) < 3:
        return ""
    usual = numbers.number(float(np.median(gains)))
    op = safe_text(scene.planned.op, limit=24)
    return f"gain x{numbers.number(result.relative_gain)} here, median of {len(gains)} {op} x{usual}"


def to_worst_input(scene: Scene) -> str:
    """Go to the input with the largest error. Return a message, also if there is none."""
    edge = worst_input(scene.opened.backend_graph, scene.table, scene.row)
    if edge is None or edge.row is None:
        return _without_worst(scene)
    hidden = scene.navigator.jump(edge.row)
    result = scene.table.results[edge.row]
    if result is None or result.metrics is None:
        return f"at an input that could not be compared{hidden}; H goes back"
    return f"at the worst input, rel {numbers.number(result.metrics.rel_l2)}{hidden}; H goes back"


def _without_worst(scene: Scene) -> str:
    """Return why the worst input is unknown: no input has an error, or their errors are unknown."""
    graph, table = scene.opened.backend_graph, scene.table
    if not scene.planned.tensor:
        return "not known: the reference alone has this node, so nothing of it is compared"
    inputs = [edge for edge in inputs_of(graph, table, scene.planned.tensor) if not edge.constant and edge.node]
    unknown = [edge.tensor for edge in inputs if edge.row is None or table.rows[edge.row].missing is not None]
    if unknown:
        return f"not known: its input {safe_text(unknown[0], limit=60)} is not compared; in the graph (3) h goes there"
    adds = ": what there is, this node adds itself"
    if scene.outcome is not None and not carried(scene.outcome):
        adds = ", and this node adds none"
    if table.pending:
        return Provisional(f"no input carries any error so far{adds}", Until.RESULTS)
    return f"no input carries any error{adds}"
