"""The graph walk: what the node reads, the node, who reads its tensor; and the way that led here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from qdebug.compare.result.finding import Status
from qdebug.present import numbers
from qdebug.present.detail import quant_summary
from qdebug.present.rows import on_rails, quant_text
from qdebug.present.text import safe_text
from qdebug.tui.drawing.glyphs import pad, wrap
from qdebug.tui.nodes.rows import State
from qdebug.tui.nodes.walk import Edge, inputs_of, outputs_of, own_share
from qdebug.tui.pages.page import Line, Page, Scene, sign_of, state_style, window
from qdebug.tui.screens import ScreenId

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.model import Graph

__all__ = ["GraphPage"]

_EDGE_LINES = 2
_ATTRS = 8


class GraphPage(Page):
    """Walks along edges: j k choose one, h and l walk to the input or output chosen."""

    view = ScreenId.GRAPH
    hint = "j k choose, h to an input, l to an output, H back"

    def __init__(self) -> None:
        self._chosen = 0
        self._of: tuple[int, int] = (-1, -1)

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the neighbourhood."""
        inputs, outputs = self._edges(scene)
        side = max((width - 24) // 2 - 4, 12)
        box_width = max(width - 2 * (side + 4), 12)
        box = _box(scene, box_width)
        below = [*self._chosen_edge(scene, [*inputs, *outputs], width), *_below(scene, width)]
        below = below[: max(height - 2 - len(box), 2)]  # the node itself is what one came to see
        room = max(height - 2 - len(below), 4)
        left = _column(scene, inputs, self._chosen, side, room, to_node=True)
        right = _column(scene, outputs, self._chosen - len(inputs), side, room, to_node=False)
        rows = max(len(left), len(right), len(box))
        lines = [_path(scene, width), _heads(inputs, outputs, side, box_width)]
        for at in range(min(rows, room)):
            line: Line = [*(left[at] if at < len(left) else [(" " * (side + 4), "plain")])]
            line += box[at] if at < len(box) else [(" " * box_width, "plain")]
            line += right[at] if at < len(right) else []
            lines.append(line)
        lines += [[] for _ in range(height - len(lines) - len(below))]
        return [*lines, *below]

    def move(self, scene: Scene, lines: int) -> str:
        """Choose another edge: inputs first, then outputs."""
        inputs, outputs = self._edges(scene)
        many = len(inputs) + len(outputs)
        if not many:
            return "this node has neither inputs nor readers"
        target = min(max(self._chosen + lines, 0), many - 1)
        if target == self._chosen:
            return "this is the first edge" if lines < 0 else "this is the last edge"
        self._chosen = target
        return ""

    def side(self, scene: Scene, direction: int) -> str:
        """Walk to the chosen edge's other end, or to the first one on that side."""
        inputs, outputs = self._edges(scene)
        if direction < 0:
            edges = inputs[self._chosen :] if self._chosen < len(inputs) else inputs
        else:
            edges = outputs[max(self._chosen - len(inputs), 0) :]
        if not edges:
            return "this node reads nothing" if direction < 0 else "nobody reads this tensor"
        edge = edges[0]
        if edge.row is None:
            other = "backend" if _theirs(scene) else "reference"
            what = "a constant" if edge.constant else f"not in the list: no partner in the {other}"
            return f"{safe_text(edge.tensor, limit=50)} is {what}"
        return f"at {safe_text(scene.table.names[edge.row], limit=60)}{scene.navigator.jump(edge.row)}"

    def _chosen_edge(self, scene: Scene, edges: Sequence[Edge], width: int) -> list[Line]:
        """Name the edge that is chosen in full: its column is narrow."""
        if not self._chosen < len(edges):
            return []
        edge = edges[self._chosen]
        made = f", of {safe_text(edge.node, limit=80)}" if edge.node and edge.node != edge.tensor else ""
        said = scene.glyphs.plain(f"{scene.glyphs.cursor} {safe_text(edge.tensor, limit=120)}{made}")
        return [[(f" {line}", "plain")] for line in wrap(said, max(width - 2, 10), most=2)]

    def _edges(self, scene: Scene) -> tuple[list[Edge], list[Edge]]:
        if self._of != (scene.backend, scene.row):
            self._of, self._chosen = (scene.backend, scene.row), 0
        graph, theirs = _graph(scene), _theirs(scene)
        return (
            inputs_of(graph, scene.table, scene.row, theirs=theirs),
            outputs_of(graph, scene.table, scene.row, theirs=theirs),
        )


def _theirs(scene: Scene) -> bool:
    """Tell whether the row is that of a tensor that the reference alone has."""
    return not scene.planned.tensor and bool(scene.planned.reference_tensor)


def _graph(scene: Scene) -> Graph:
    """Return the graph that the row's node is in."""
    return scene.opened.reference_graph if _theirs(scene) else scene.opened.backend_graph


def _tensor(scene: Scene) -> str:
    return scene.planned.reference_tensor if _theirs(scene) else scene.planned.tensor


def _path(scene: Scene, width: int) -> Line:
    """Show the last steps of the way here."""
    way = list(scene.navigator.trail.rows)
    if way and way[-1] == scene.row:  # the end of the way, unless one has moved on without a jump
        del way[-1]
    names = [scene.table.names[row] for row in way[-6:]]
    here = f"[{scene.glyphs.fit(scene.table.names[scene.row], 40).rstrip()}]"
    shown = [scene.glyphs.fit(name, 20).rstrip() for name in names]
    while shown and len(" path .. > ") + cell_len(" > ".join([*shown, here])) > width:
        shown.pop(0)
    more = ".. > " if len(shown) < len(way) else ""
    before = f" path {more}" + "".join(f"{name} > " for name in shown)
    return [(before, "muted"), (scene.glyphs.fit_end(here, max(width - cell_len(before), 1)), "title")]


def _heads(inputs: Sequence[Edge], outputs: Sequence[Edge], side: int, box: int) -> Line:
    many = len(inputs)
    said = " no inputs" if not many else " 1 input" if many == 1 else f" {many} inputs, worst first"
    readers = f"    read by {len(outputs)}" if outputs else "    read by none"
    return [(said.ljust(side + 4)[: side + 4] + " node".ljust(box) + readers, "accent")]


def _column(scene: Scene, edges: Sequence[Edge], chosen: int, side: int, room: int, *, to_node: bool) -> list[Line]:
    """Draw one side: two lines an edge, with an arrow to or from the node."""
    lines: list[Line] = []
    fits = max(room // _EDGE_LINES, 1)
    start = window(max(chosen, 0), len(edges), fits)
    arrow = "--> "
    for at in range(start, min(start + fits, len(edges))):
        edge, here = edges[at], at == chosen
        mark = (scene.glyphs.cursor if here else " ", "cursor")
        sign = "w" if to_node and at == 0 and edge.error and not edge.constant else " "
        room = side - 3 if to_node else side - 2
        name = scene.glyphs.fit(edge.node if not to_node and edge.node else edge.tensor, room)
        style = "cursor" if here else _edge_style(scene, edge)
        indent = "   "
        room = side + len(arrow) - len(indent)
        said = scene.glyphs.plain(_edge_facts(scene, edge, room))
        facts: Line = [(indent, "plain"), (pad(scene.glyphs.fit_end(said, room), room), "muted")]
        if to_node:
            lines.append([mark, (f"{sign} ", "accent"), (name, style), (arrow, "muted")])
        else:
            lines.append([(arrow, "muted"), mark, (name, style)])
        lines.append(facts)
    hidden = len(edges) - fits
    if hidden > 0 and lines:
        lines[-1] = [(f"  {hidden} more: j k".ljust(side + 4), "accent")]
    return lines


def _edge_style(scene: Scene, edge: Edge) -> str:
    return "muted" if edge.row is None else state_style(State(int(scene.table.state[edge.row])))


def _edge_facts(scene: Scene, edge: Edge, room: int) -> str:
    """Say what an edge carries: its error, and its gain and type where there is room."""
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
    error = "not comparable" if unlike or result.metrics is None else f"rel {numbers.number(result.metrics.rel_l2)}"
    gain = "" if result.relative_gain is None else f" gain x{numbers.number(result.relative_gain)}"
    return _as_fits(f"{sign_of(scene.table, edge.row)}{error}", (gain, f" {dtype}" if dtype else ""), room)


def _as_fits(said: str, more: Sequence[str], room: int) -> str:
    """Say more as far as there is room."""
    for words in more:
        said += words if cell_len(said) + cell_len(words) <= room else ""
    return said


def _box(scene: Scene, width: int) -> list[Line]:
    """Draw the node: operator, error, how much of it is its own, saturation."""
    glyphs, result, inner = scene.glyphs, scene.outcome, width - 4
    state = State(int(scene.table.state[scene.row]))
    facts = [(scene.table.title(scene.row), "title"), (scene.planned.op, "plain")]
    facts.append((f"{sign_of(scene.table, scene.row)}{state.word}", state_style(state)))
    if result is not None and result.metrics is not None:
        facts.append((f"rel {numbers.number(result.metrics.rel_l2)}", "plain"))
        share = own_share(result)
        if share is not None:
            facts.append((f"own share {numbers.percent(share, 1.0)}", "plain"))
        elif result.attribution_note:
            facts.append(("own error unknown", "unknown"))
        if result.relative_gain is not None:
            facts.append((f"gain x{numbers.number(result.relative_gain)}", "plain"))
        if result.saturation is not None:
            railed = numbers.percent(on_rails(result.saturation), max(result.saturation.total, 1))
            facts.append((f"saturated {railed}", "plain"))
    facts.append((f"{scene.planned.dtype or ''} {numbers.shape(scene.planned.shape)}", "muted"))
    rim = f"+{glyphs.rule * (width - 2)}+" if glyphs.braille else "+" + "-" * (width - 2) + "+"
    body: list[Line] = [
        [(glyphs.bar + " ", "muted"), (glyphs.fit(text, inner), style), (" " + glyphs.bar, "muted")]
        for text, style in facts
    ]
    return [[(rim, "muted")], *body, [(rim, "muted")]]


def _below(scene: Scene, width: int) -> list[Line]:
    """Say what the node was made of, its attributes and its median gain."""
    node = _graph(scene).producer(_tensor(scene))
    said = ["the graph of the reference, which alone has this node"] if _theirs(scene) else []
    if scene.navigator.sample is not None:
        said.append(f"errors of all {scene.navigator.samples} samples; 2 has those of sample {scene.navigator.sample}")
    if scene.planned.missing is not None:
        said.append(f"not compared: {safe_text(scene.planned.missing)}")
    if scene.planned.match:
        said.append(f"node paired with {safe_text(scene.planned.reference_tensor, limit=60)} ({scene.planned.match})")
    if node is not None and node.origin not in ((), (node.name,)):
        names = ", ".join(safe_text(name, limit=40) for name in node.origin[:6])
        one = "the model's" if len(node.origin) == 1 else f"fused of {len(node.origin)}:"
        said.append(f"{one} {names}{' ..' if len(node.origin) > 6 else ''}")
    if node is not None and node.attrs:
        attrs = [f"{safe_text(key, limit=24)}={safe_text(value, limit=24)}" for key, value in node.attrs.items()]
        said.append("attributes: " + " ".join(attrs[:_ATTRS]) + (" .." if len(attrs) > _ATTRS else ""))
    gain = _median_gain(scene)
    if gain:
        said.append(gain)
    info = _graph(scene).tensors.get(_tensor(scene))
    if info is not None and info.quant is not None:
        said.append(f"scale / zero point {quant_summary(info.quant)}")
    lines: list[Line] = []
    for text in said:
        lines += [[(f" {line}", "muted")] for line in wrap(scene.glyphs.plain(text), max(width - 2, 10), most=2)]
    return lines


def _median_gain(scene: Scene) -> str:
    """Compare the gain with that of the other nodes of its operator."""
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
