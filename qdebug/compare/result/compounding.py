"""Nodes that enlarge the error that reaches them far more than others of their kind do."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from qdebug.compare.result.result import Compounding, NodeResult
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, operators
from qdebug.model.thresholds.verdict import (
    COMPOUNDING_MIN_ERROR_SHARE,
    COMPOUNDING_MIN_GAIN,
    COMPOUNDING_MIN_NODES,
    COMPOUNDING_SPREADS,
    MEDIAN_DISTANCE_TO_SPREAD,
)

__all__ = ["compounding_nodes"]


def compounding_nodes(of: ResultTable, graph: Graph) -> tuple[Compounding, ...]:
    """List the nodes whose gain is well above the median of their operator, the largest excess first.

    Gains are compared as logarithms. A node counts if its error is mostly handed on, not its own; if it is larger than
    that of its inputs relative to the signal too, as a mere change of units is not; if it reaches an output of the
    network; and if it is, relative to its signal, at least a hundredth of the error of the worst output, since a later
    node may enlarge it again.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
    """
    worst = float(of.carried[of.rows_of(graph.outputs)].max(initial=0.0))
    if not COMPOUNDING_MIN_ERROR_SHARE * worst > 0.0:
        return ()
    gains = of.gains
    gaining = (gains > 0.0) & (gains < math.inf)
    might = (
        gaining & (gains > COMPOUNDING_MIN_GAIN) & (of.carried >= COMPOUNDING_MIN_ERROR_SHARE * worst) & of.handing_on
    )
    if not might.any():
        return ()
    reaching = _upstream(graph)
    found: list[tuple[float, Compounding]] = []
    for op, rows in _by_op(of, np.flatnonzero(gaining), graph).items():
        if len(rows) < COMPOUNDING_MIN_NODES or not might[rows].any():
            continue
        logarithms = np.array(list(map(math.log2, gains[rows].tolist())))
        usual = float(np.median(logarithms))
        spread = MEDIAN_DISTANCE_TO_SPREAD * float(np.median(np.abs(logarithms - usual)))
        least = max(
            usual + max(COMPOUNDING_SPREADS * spread, math.log2(COMPOUNDING_MIN_GAIN)), math.log2(COMPOUNDING_MIN_GAIN)
        )
        for at in np.flatnonzero(might[rows] & (logarithms > least)).tolist():
            row = rows[at]
            if of[row].tensor in reaching and _grows(of, row, graph):
                node = of[row]
                found.append((float(logarithms[at]) - usual, _entry(node, op, usual, len(rows))))
    found.sort(key=lambda item: -item[0])
    return tuple(entry for _, entry in found)


def _by_op(of: ResultTable, rows: np.ndarray, graph: Graph) -> Mapping[str, list[int]]:
    """Group rows by the plain operators of their nodes."""
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        producer = graph.producer(of[row].tensor)
        if producer is not None:
            groups.setdefault(operators.plain(producer).name, []).append(row)
    return groups


def _entry(node: NodeResult, op: str, usual: float, members: int) -> Compounding:
    gain = node.gain or 0.0
    return Compounding(node=node.node, op=op, tensor=node.tensor, gain=gain, usual=2.0**usual, nodes=members)


def _grows(of: ResultTable, row: int, graph: Graph) -> bool:
    """Tell whether the error is larger, relative to the signal, than in each input that was compared."""
    producer = graph.producer(of[row].tensor)
    into = of.rows_of(() if producer is None else producer.inputs)
    return bool(of.carried[row] > of.carried[into].max(initial=0.0))


def _upstream(graph: Graph) -> set[str]:
    """Give the tensors that an output of the network depends on, the outputs themselves included."""
    waiting, seen = list(graph.outputs), set(graph.outputs)
    while waiting:
        producer = graph.producer(waiting.pop())
        fresh = [name for name in (producer.inputs if producer else ()) if name and name not in seen]
        waiting.extend(fresh)
        seen.update(fresh)
    return seen
