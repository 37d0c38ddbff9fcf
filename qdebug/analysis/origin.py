"""Finds the node that the error at the network's output comes from, and by how much each node enlarges error."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qdebug.analysis.status import Status

if TYPE_CHECKING:
    from qdebug.analysis.result import NodeResult
    from qdebug.model import Graph
    from qdebug.numerics.stats import ErrorStats

__all__ = ["breaks_limit", "carried_error", "gain_of", "is_beyond", "is_excused", "origin_of", "worst_output"]

_BEYOND = (Status.DIVERGED, Status.NONFINITE)


def breaks_limit(node: NodeResult) -> bool:
    """Tell whether a tensor is beyond its limit, or is declared so differently that it has another shape."""
    return node.status in _BEYOND or (node.status is Status.INCOMPARABLE and node.declared is not None)


def is_excused(node: NodeResult) -> bool:
    """Tell whether somebody accepted what is wrong with a tensor, and that has not expired."""
    return node.acknowledged is not None and not node.acknowledged.expired


def is_beyond(node: NodeResult) -> bool:
    """Tell whether a tensor breaks its limit and is not excused: what verdicts and exit codes count."""
    return breaks_limit(node) and not is_excused(node)


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


def origin_of(nodes: Sequence[NodeResult], graph: Graph) -> NodeResult | None:
    """Find the node whose own error feeds the worst output error.

    From the output with the largest relative error, go to the input that carries most error, until a node introduces
    at least as much as it passes on. Only nodes beyond a limit come into question; if the way leads past all of them,
    it is the one among them that introduces most.

    Args:
        nodes: Compared tensors, in the backend's topological order.
        graph: The backend's graph.
    """
    beyond = [node for node in nodes if is_beyond(node)]
    if not beyond:
        return None
    results = {node.tensor: node for node in nodes}
    nonfinite = next((node for node in beyond if node.status is Status.NONFINITE), None)
    if nonfinite is not None:
        return _with_cause(nonfinite, graph, results)
    if len(beyond) == 1 or all(node.introduced is None for node in beyond):
        return beyond[0]
    candidates = {node.tensor for node in beyond}
    at: NodeResult | None = worst_output(nodes, graph)
    while at is not None:
        if at.tensor in candidates and _introduces(at):
            return at
        at = _worst_input(at, graph, results)
    return max(beyond, key=lambda node: _relative(node.introduced))


def _with_cause(node: NodeResult, graph: Graph, results: Mapping[str, NodeResult]) -> NodeResult:
    """Add to the reason of a node the nearest finding above it that does no harm where it is made."""
    waiting, seen = deque([node.tensor]), {node.tensor}
    while waiting:
        tensor = waiting.popleft()
        found = results.get(tensor)
        if found is not None and found.declared is not None:
            known = found is node
            return node if known else replace(node, reason=f"{node.reason}, after {found.node!r}: {found.declared}")
        producer = graph.producer(tensor)
        above = [name for name in (producer.inputs if producer else ()) if name and name not in seen]
        waiting.extend(above)
        seen.update(above)
    return node


def worst_output(nodes: Sequence[NodeResult], graph: Graph) -> NodeResult:
    """Give the network output that carries most error; the last tensor where no output was compared.

    Args:
        nodes: Compared tensors in the backend's topological order, at least one.
        graph: The backend's graph.
    """
    outputs = [node for node in nodes if node.tensor in graph.outputs] or list(nodes[-1:])
    return max(outputs, key=carried_error)


def _worst_input(node: NodeResult, graph: Graph, results: Mapping[str, NodeResult]) -> NodeResult | None:
    """Give the input that carries most error, relative to its signal."""
    producer = graph.producer(node.tensor)
    if producer is None:
        return None
    inputs = [results[name] for name in producer.inputs if name in results]
    erring = [result for result in inputs if carried_error(result) > 0]
    return max(erring, key=carried_error, default=None)


def carried_error(node: NodeResult) -> float:
    """Give the error of a tensor relative to its signal; one of another shape could not be further off."""
    return math.inf if node.status is Status.INCOMPARABLE else _relative(node.metrics)


def _introduces(node: NodeResult) -> bool:
    """Tell whether a node adds at least as much error as reaches it; one that cannot be replayed may."""
    own, passed = _rms(node.introduced), _rms(node.propagated)
    return own is None or passed is None or own >= passed


def _rms(stats: ErrorStats | None) -> float | None:
    return None if stats is None else stats.rmse


def _relative(stats: ErrorStats | None) -> float:
    """Give the error's size relative to the signal, for ranking: unknown is none, undefined is endless."""
    if stats is None or stats.rel_l2 is None:
        return 0.0
    return math.inf if math.isnan(stats.rel_l2) else stats.rel_l2
