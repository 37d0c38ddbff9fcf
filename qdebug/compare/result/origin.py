"""Finds the node that the error at the network's output comes from, and by how much each node enlarges error."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from qdebug.compare.result.status import Status

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult
    from qdebug.compare.result.result_table import ResultTable
    from qdebug.model import Graph, Node
    from qdebug.numerics.stats import ErrorStats

__all__ = ["gain_of", "origin_of", "original_of", "worst_output"]


def gain_of(node: NodeResult, graph: Graph, rms_of: Callable[[str], float | None]) -> float | None:
    """Give rms(error out) / rms(largest error in); None where no input was compared or no error comes in.

    Args:
        node: The node's result.
        graph: The backend's graph.
        rms_of: Gives the rms error of a backend tensor; None if none is known.
    """
    producer = graph.producer(node.tensor)
    out = _rms(node.metrics)
    if producer is None or out is None:
        return None
    into = [rms for name in producer.inputs if (rms := rms_of(name)) is not None]
    largest = max(into, default=0.0)
    return out / largest if largest else None


def origin_of(of: ResultTable, graph: Graph) -> NodeResult | None:
    """Find the node whose own error feeds the worst output error.

    From the output with the largest relative error, go to the input that carries most error, until a node introduces
    at least as much as it passes on. Only nodes beyond a limit come into question; if the way leads past all of them,
    it is the one among them that introduces most.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
    """
    beyond = np.flatnonzero(of.beyond)
    if not beyond.size:
        return None
    nonfinite = np.flatnonzero(of.beyond & of.having(Status.NONFINITE))
    if nonfinite.size:
        return _with_cause(of, int(nonfinite[0]), graph)
    if beyond.size == 1 or all(of[row].introduced is None for row in beyond):
        return of[beyond[0]]
    found = _upwards(of, graph)
    if found is None:
        found = int(beyond[of.relative("introduced")[beyond].argmax()])
    original = original_of(graph, graph.producer(of[found].tensor))
    row = None if original is None else of.rows.get(original)
    return of[found if row is None or not of.beyond[row] else row]


def original_of(graph: Graph, node: Node | None) -> str | None:
    """Give the result of the model's node that a node is a copy of; None if it is none, or that does not run.

    A runtime may give each reader of a tensor a node of its own. All of them read the same and do the same.

    Args:
        graph: The backend's graph.
        node: One of its nodes; None for an input of the network.
    """
    if node is None or len(node.origin) != 1 or not node.inputs:
        return None
    for other in graph.consumers(node.inputs[0]):
        if other.name == node.origin[0] != node.name and (other.op, other.inputs) == (node.op, node.inputs):
            return other.outputs[0] if len(other.outputs) == len(node.outputs) == 1 else None
    return None


def _upwards(of: ResultTable, graph: Graph) -> int | None:
    """Go from the worst output to the input that carries most error, and so on, to a candidate; None if none comes."""
    # In a large net the way is long, and entries of lists are read several times faster than those of arrays.
    chosen, carried, rows = (of.beyond & of.introducing).tolist(), of.carried.tolist(), of.rows
    at: int | None = worst_output(of, graph)
    while at is not None and not chosen[at]:
        producer = graph.producer(of[at].tensor)
        into = () if producer is None else [rows[name] for name in producer.inputs if name in rows]
        at = max((row for row in into if carried[row] > 0.0), key=carried.__getitem__, default=None)
    return at


def _with_cause(of: ResultTable, row: int, graph: Graph) -> NodeResult:
    """Add to the reason of a node the nearest finding above it that does no harm where it is made."""
    node, declared = of[row], of.declared
    waiting, seen = deque([node.tensor] if declared.any() else []), {node.tensor}
    while waiting:
        tensor = waiting.popleft()
        at = of.rows.get(tensor)
        if at is not None and declared[at]:
            found = of[at]
            known = at == row
            return node if known else replace(node, reason=f"{node.reason}, after {found.node!r}: {found.declared}")
        producer = graph.producer(tensor)
        above = [name for name in (producer.inputs if producer else ()) if name and name not in seen]
        waiting.extend(above)
        seen.update(above)
    return node


def worst_output(of: ResultTable, graph: Graph) -> int:
    """Give the row of the network output that carries most error; of the last tensor where no output was compared.

    Args:
        of: How compared tensors stand, at least one.
        graph: The backend's graph.
    """
    outputs = of.rows_of(graph.outputs) or [len(of) - 1]
    return outputs[int(of.carried[outputs].argmax())]


def _rms(stats: ErrorStats | None) -> float | None:
    return None if stats is None else stats.rmse
