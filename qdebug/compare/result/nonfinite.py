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

__all__ = ["Nonfinite", "find_nonfinite_origin"]


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


def find_nonfinite_origin(table: ResultTable, graph: Graph) -> Nonfinite | None:
    """Return the origin of the non-finite values at the worst output, and the shortest path from there.

    If several origins reach the output, the first in order is returned. If none reaches an output, the first of all is
    returned, and its path ends at the last non-finite tensor.

    Args:
        table: The table of results.
        graph: The backend's graph.

    Returns:
        The origin and path, or None if no origin is known.
    """
    births = {row: node.born for row, node in enumerate(table.nodes) if node.born is not None and table.beyond[row]}
    if not births:
        return None
    nonfinite_rows = set(table.has_status(Status.NONFINITE).nonzero()[0].tolist())
    inputs_of_row = {
        row: [
            table.rows[name]
            for name in between(graph, table[row].tensor, table.rows)[1]
            if table.rows[name] in nonfinite_rows
        ]
        for row in nonfinite_rows
    }
    ends = [row for row in table.rows_of(graph.outputs) if row in nonfinite_rows]
    for end in sorted(ends, key=lambda row: -_count_nonfinite(table, row)):
        reachable = _find_reachable(end, inputs_of_row)
        reached = [row for row in births if row in reachable]
        if reached:
            return _trace_path(table, births, min(reached), reachable, output=table[end].tensor)
    first = min(births)
    following: dict[int, list[int]] = {}
    for row, inputs in inputs_of_row.items():
        for name in inputs:
            following.setdefault(name, []).append(row)
    last = max(_find_reachable(first, following))
    traced = _trace_path(table, births, first, _find_reachable(last, inputs_of_row), output=None)
    return replace(traced, spoilt=_worst_output(table, graph, table[first].tensor))


def _worst_output(table: ResultTable, graph: Graph, tensor: str) -> str | None:
    """Return the worst network output that depends on a tensor, or None if none differs."""
    downstream_tensors = downstream(graph, (tensor,))
    levels = {
        table[row].tensor: stats.sqnr_db
        for row in table.rows_of(graph.outputs)
        if table[row].tensor in downstream_tensors
        and (stats := table[row].metrics) is not None
        and stats.sqnr_db is not None
    }
    worst = min(levels, key=lambda name: levels[name], default=None)
    return None if worst is None or not math.isfinite(levels[worst]) else worst


def _count_nonfinite(table: ResultTable, row: int) -> int:
    stats = table[row].metrics
    return 0 if stats is None else stats.nonfinite


def _find_reachable(start: int, edges: Mapping[int, list[int]]) -> dict[int, int | None]:
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
    table: ResultTable,
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
        nodes.append(table[at].node)
        at = predecessors[at]
    left_out = max(0, len(nodes) - 2 * NONFINITE_PATH_ENDS)
    path = nodes if not left_out else [*nodes[:NONFINITE_PATH_ENDS], *nodes[-NONFINITE_PATH_ENDS:]]
    return Nonfinite(row=row, born=births[row], path=tuple(path), left_out=left_out, output=output)
