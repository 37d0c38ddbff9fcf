"""Where an error comes from: one step to the worst input, or the whole way to the origin, and what is said of it."""

from __future__ import annotations

from qdebug.present import numbers
from qdebug.present.text import safe_text
from qdebug.tui.nodes.walk import carried, inputs_of, own_share, walk_to_origin, worst_input
from qdebug.tui.pages.page import Scene, origin_row

__all__ = ["to_origin", "to_worst_input"]

_RETRACED = 20
"""Steps of a run to the origin that going back retraces one by one; of a longer one the last half as many."""


def to_worst_input(scene: Scene) -> str:
    """Go to the input that carries most error; say so, or why there is none."""
    edge = worst_input(scene.opened.backend_graph, scene.table, scene.row)
    if edge is None or edge.row is None:
        return _without_worst(scene)
    hidden = scene.navigator.jump(edge.row)
    result = scene.table.results[edge.row]
    if result is None or result.metrics is None:
        return f"at an input that could not be compared{hidden}; H goes back"
    return f"at the worst input, rel {numbers.number(result.metrics.rel_l2)}{hidden}; H goes back"


def _without_worst(scene: Scene) -> str:
    """Say why there is no worst input: none carries any error, or it is not known what they carry."""
    graph, table = scene.opened.backend_graph, scene.table
    if not scene.planned.tensor:
        return "not known: the reference alone has this node, so nothing of it is compared"
    inputs = [edge for edge in inputs_of(graph, table, scene.row) if not edge.constant and edge.node]
    unknown = [edge.tensor for edge in inputs if edge.row is None or table.rows[edge.row].missing is not None]
    if unknown:
        return f"not known: its input {safe_text(unknown[0], limit=60)} is not compared; in the graph (3) h goes there"
    pending = " so far" if table.pending else ""
    result = scene.outcome
    if result is not None and not carried(result):
        return f"no input carries any error{pending}, and this node adds none"
    return f"no input carries any error{pending}: what there is, this node adds itself"


def to_origin(scene: Scene) -> str:
    """Run up the graph to the origin; from a node without error, to the one that the verdict names."""
    table, begun = scene.table, scene.row
    result = table.results[begun]
    so_far = " so far" if table.pending or table.growing else ""
    if result is None or not carried(result):
        origin = origin_row(scene)
        if origin is not None:
            return f"at the origin that the verdict names{scene.navigator.jump(origin)}"
        failing = table.failing(scene.navigator.sample)
        if not len(failing):
            return f"no node is beyond its limit{so_far}: there is no origin to run to"
        begun = int(failing[-1])
    way = () if scene.result is None else scene.result.verdict.way
    walk = walk_to_origin(scene.opened.backend_graph, table, begun, way)
    retraced = walk.rows if len(walk.rows) <= _RETRACED else (walk.rows[0], *walk.rows[-_RETRACED // 2 :])
    for row in retraced:
        hidden = scene.navigator.jump(row)
    at = table.results[walk.rows[-1]]
    share = None if at is None or at.declared else own_share(at)
    own = "" if share is None else f" ({numbers.percent(share, 1.0)} its own)"
    steps = len(walk.rows) - 1
    if not walk.failing:
        return f"{steps} {'edge' if steps == 1 else 'edges'} back{so_far}: {walk.ended}{own}{hidden}"
    if not steps and begun == scene.row and walk.rows[-1] == scene.row:
        return f"the origin{so_far} is here{own}: {walk.ended}{hidden}"
    return f"{steps} {'edge' if steps == 1 else 'edges'} to the origin{so_far}{own}: {walk.ended}{hidden}"
