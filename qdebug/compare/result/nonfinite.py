"""Finds the NaN or infinity that reaches the outputs: where it originates, and the nodes that pass it on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from qdebug.compare.attribute.birth import Birth
from qdebug.compare.attribute.graph_walk import between, downstream
from qdebug.compare.result.finding import Status
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph
from qdebug.model.json_object import JsonObject
from qdebug.model.thresholds.verdict import NONFINITE_PATH_ENDS

__all__ = ["Nonfinite", "nonfinite_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonfinite(JsonObject):
    """The origin of a NaN or an infinity, and its path through the network.

    Args:
        row: The compared tensor in which it first appears.
        born: Where it originates.
        path: The nodes with non-finite outputs from there on, in order. Only the two ends of a long path.
        left_out: Number of nodes left out in the middle.
        output: The network output that it reaches, or None.
        spoilt: If it reaches no output, the worst finite output that depends on it, or None.
    """

    json_keys = "born path left_out output spoilt"

    row: int
    born: Birth
    path: tuple[str, ...]
    left_out: int = 0
    output: str | None = None
    spoilt: str | None = None


def nonfinite_of(of: ResultTable, graph: Graph) -> Nonfinite | None:
    """Return the origin of the non-finite values at the worst output, and the shortest path from there.

    If several origins reach the output, the first in order is returned. If none reaches an output, the first of all is
    returned, and its path ends at the last non-finite tensor.

    Args:
        of: The table of results.
        graph: The backend's graph.

    Returns:
        The origin and path, or None if no origin is known.
    """
    births = {row: node.born for row, node in enumerate(of.nodes) if node.born is not None and of.beyond[row]}
    if not births:
        return None
    spoilt = set(of.having(Status.NONFINITE).nonzero()[0].tolist())
    inputs_of_row = {
        row: [of.rows[name] for name in between(graph, of[row].tensor, of.rows)[1] if of.rows[name] in spoilt]
        for row in spoilt
    }
    ends = [row for row in of.rows_of(graph.outputs) if row in spoilt]
    for end in sorted(ends, key=lambda row: -_count(of, row)):
        reachable = _walk(end, inputs_of_row)
        reached = [row for row in births if row in reachable]
        if reached:
            return _trace_path(of, births, min(reached), reachable, output=of[end].tensor)
    first = min(births)
    following: dict[int, list[int]] = {}
    for row, inputs in inputs_of_row.items():
        for name in inputs:
            following.setdefault(name, []).append(row)
    last = max(_walk(first, following))
    traced = _trace_path(of, births, first, _walk(last, inputs_of_row), output=None)
    return replace(traced, spoilt=_worst_output(of, graph, of[first].tensor))


def _worst_output(of: ResultTable, graph: Graph, tensor: str) -> str | None:
    """Return the worst network output that depends on a tensor, or None if none differs."""
    downstream_tensors = downstream(graph, (tensor,))
    levels = {
        of[row].tensor: stats.sqnr_db
        for row in of.rows_of(graph.outputs)
        if of[row].tensor in downstream_tensors and (stats := of[row].metrics) is not None and stats.sqnr_db is not None
    }
    worst = min(levels, key=lambda name: levels[name], default=None)
    return None if worst is None or not math.isfinite(levels[worst]) else worst


def _count(of: ResultTable, row: int) -> int:
    stats = of[row].metrics
    return 0 if stats is None else stats.nonfinite


def _walk(start: int, edges: Mapping[int, list[int]]) -> dict[int, int | None]:
    """Return the rows reachable from a row, each with its predecessor, nearest first."""
    reached: dict[int, int | None] = {start: None}
    waiting = deque([start])
    while waiting:
        row = waiting.popleft()
        for neighbour in sorted(edges.get(row, ())):
            if neighbour not in reached:
                reached[neighbour] = row
                waiting.append(neighbour)
    return reached


def _trace_path(
    of: ResultTable,
    births: Mapping[int, Birth],
    row: int,
    predecessors: Mapping[int, int | None],
    *,
    output: str | None,
) -> Nonfinite:
    """Return the path from an origin, following the predecessor of each row."""
    nodes: list[str] = []
    at: int | None = row
    while at is not None:
        nodes.append(of[at].node)
        at = predecessors[at]
    left_out = max(0, len(nodes) - 2 * NONFINITE_PATH_ENDS)
    path = nodes if not left_out else [*nodes[:NONFINITE_PATH_ENDS], *nodes[-NONFINITE_PATH_ENDS:]]
    return Nonfinite(row=row, born=births[row], path=tuple(path), left_out=left_out, output=output)
