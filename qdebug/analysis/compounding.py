"""Nodes that enlarge the error that reaches them far more than others of their kind do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from qdebug.analysis.ops import plain_op
from qdebug.analysis.origin import carried_error
from qdebug.analysis.result import Compounding, NodeResult
from qdebug.model import Graph

__all__ = ["compounding_nodes"]

_LEAST_MEMBERS = 5
"""Nodes of one operator from which their usual gain is known well enough to call one unusual."""

_SPREADS = 3.0
"""Spreads above the median; a spread is 1.4826 times the median distance from the median, which for normally
distributed gains is their standard deviation (Hampel, "The influence curve and its role in robust estimation", 1974).
"""

_LEAST_TIMES = 2.0
"""Times the median that an unusual gain is at least, where all gains are alike and the spread says nothing; and times
the error in that the error out is at least: less is no compounding, however little the others hand on."""

_SHARE = 0.01
"""Part of the worst output's relative error that a node's own must reach for it to matter there."""


def compounding_nodes(nodes: Sequence[NodeResult], graph: Graph) -> tuple[Compounding, ...]:
    """List the nodes whose gain is well above the median of their operator, the largest excess first.

    Gains are compared as logarithms. A node counts if its error is mostly handed on, not its own; if it is larger than
    that of its inputs relative to the signal too, as a mere change of units is not; if it reaches an output of the
    network; and if it is, relative to its signal, at least a hundredth of the error of the worst output, since a later
    node may enlarge it again.

    Args:
        nodes: Compared tensors, in the backend's topological order.
        graph: The backend's graph.
    """
    groups: dict[str, list[tuple[NodeResult, float]]] = {}
    for node in nodes:
        producer = graph.producer(node.tensor)
        if producer is not None and node.gain is not None and 0.0 < node.gain < math.inf:
            groups.setdefault(plain_op(producer), []).append((node, math.log2(node.gain)))
    worst = max((carried_error(node) for node in nodes if node.tensor in graph.outputs), default=0.0)
    reaching = _upstream(graph)
    carried = {node.tensor: carried_error(node) for node in nodes}
    found: list[tuple[float, Compounding]] = []
    for op, members in groups.items():
        if len(members) < _LEAST_MEMBERS:
            continue
        usual = median(gain for _, gain in members)
        spread = 1.4826 * median(abs(gain - usual) for _, gain in members)
        least = max(usual + max(_SPREADS * spread, math.log2(_LEAST_TIMES)), math.log2(_LEAST_TIMES))
        for node, gain in members:
            matters = node.tensor in reaching and carried[node.tensor] >= _SHARE * worst > 0.0
            if gain > least and matters and _handed_on(node) and _grows(node, graph, carried):
                found.append((gain - usual, _entry(node, op, usual, len(members))))
    found.sort(key=lambda item: -item[0])
    return tuple(entry for _, entry in found)


def _entry(node: NodeResult, op: str, usual: float, members: int) -> Compounding:
    gain = node.gain or 0.0
    return Compounding(node=node.node, op=op, tensor=node.tensor, gain=gain, usual=2.0**usual, nodes=members)


def _handed_on(node: NodeResult) -> bool:
    """Tell whether a node hands on more error than it adds; a node that cannot be replayed may."""
    own = None if node.introduced is None else node.introduced.rmse
    passed = None if node.propagated is None else node.propagated.rmse
    return own is None or passed is None or passed > own


def _grows(node: NodeResult, graph: Graph, carried: Mapping[str, float]) -> bool:
    """Tell whether the error is larger, relative to the signal, than in each input that was compared."""
    producer = graph.producer(node.tensor)
    inputs = () if producer is None else producer.inputs
    return carried[node.tensor] > max((carried.get(name, 0.0) for name in inputs), default=0.0)


def _upstream(graph: Graph) -> set[str]:
    """Give the tensors that an output of the network depends on, the outputs themselves included."""
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        producer = graph.producer(waiting.pop())
        fresh = [name for name in (producer.inputs if producer else ()) if name and name not in seen]
        waiting.extend(fresh)
        seen.update(fresh)
    return seen
