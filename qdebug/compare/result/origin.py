"""Finds the node that the error at the network's output comes from, and by how much each node enlarges error."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from qdebug.compare.attribute.graph_walk import between, downstream, upstream
from qdebug.compare.result.finding import Status
from qdebug.compare.result.inputs import input_finding
from qdebug.compare.result.nonfinite import Nonfinite
from qdebug.compare.result.result import Compounding, Contributions, NodeResult
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, operators
from qdebug.model.thresholds.verdict import (
    COMPOUNDING_MIN_ERROR_SHARE,
    COMPOUNDING_MIN_GAIN,
    COMPOUNDING_MIN_NODES,
    COMPOUNDING_SPREADS,
    EQUAL_INPUTS_MIN_SQNR,
    MEDIAN_DISTANCE_TO_SPREAD,
    OUTPUT_MIN_SQNR,
    SOLE_CONTRIBUTOR_MAX_DISTANCE,
    SOLE_CONTRIBUTOR_MIN_SHARE,
)

if TYPE_CHECKING:
    from qdebug.model import Node
    from qdebug.numerics.stats import ErrorStats

__all__ = [
    "ErrorsByInput",
    "compounding_nodes",
    "costliest",
    "largest_fall",
    "original_of",
    "sole_contributor",
    "way_to_origin",
    "way_upwards",
    "with_gain",
    "worst_output",
]

ErrorsByInput = Callable[[str, Sequence[str], int], Mapping[str, float] | None]
"""Returns the error that each of some inputs alone makes of a compared tensor in one sample; None where that is not
known."""


def with_gain(node: NodeResult, graph: Graph, error_of: Callable[[str], ErrorStats | None]) -> NodeResult:
    """Return a result with its gains: errors of its output over the largest error of an input.

    `gain` is of the whole error. `relative_gain` is of what the inputs' errors make of the output, so that a node
    which adds much is not taken for one that amplifies; where that part is not known, of the whole error too. Both are
    None where no input was compared or no error comes in.

    Args:
        node: The node's result.
        graph: The backend's graph.
        error_of: Returns the error of a backend tensor; None if none is known.
    """
    producer = graph.producer(node.tensor)
    if producer is None or node.metrics is None:
        return node
    into = [error for name in producer.inputs if (error := error_of(name)) is not None]
    handed_on = node.metrics if node.propagated is None else node.propagated
    return replace(
        node,
        gain=_ratio(node.metrics.rmse, [error.rmse for error in into]),
        relative_gain=_ratio(handed_on.rel_l2, [error.rel_l2 for error in into]),
    )


def _ratio(out: float | None, into: Sequence[float | None]) -> float | None:
    """Return an error over the largest of others; None where that is 0, or one of them is not finite."""
    largest = max((0.0 if error is None else error for error in into), default=0.0)
    if out is None or not largest or not math.isfinite(out) or not all(map(math.isfinite, filter(None, into))):
        return None
    return out / largest


def way_to_origin(
    of: ResultTable, graph: Graph, *, errors: ErrorsByInput | None = None, born: Nonfinite | None = None
) -> tuple[NodeResult, ...]:
    """Find the node whose own error feeds the worst output error, and the way to it.

    From the output with the largest relative error that such a node leads to, go to the input that brings most error,
    be it data, an index, a condition or a shape, until a node introduces at least as much as it passes on. Only nodes
    beyond a limit come into question; if the way leads past all of them, it is the one among them that introduces most.

    A NaN or an infinity comes before any error: its origin is where it is born, or the node whose finite error selects
    it there.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
        errors: Tells what each of several inputs brings; None where no values are at hand.
        born: Where what is not finite is born; None if that is not known.

    Returns:
        The tensors from the worst output to the origin, the origin last; the origin alone where no way was looked for,
        and nothing if there is none.
    """
    beyond = np.flatnonzero(of.beyond)
    if not beyond.size:
        return ()
    nonfinite = np.flatnonzero(of.beyond & of.having(Status.NONFINITE))
    if nonfinite.size:
        selecting = None if born is None else _selecting(of, graph, born, errors)
        if selecting is not None:
            return (of[selecting],)
        return (_with_cause(of, int(nonfinite[0]) if born is None else born.row, graph),)
    if beyond.size == 1 or all(of[row].introduced is None for row in beyond):
        return (of[beyond[0]],)
    candidates = of.beyond & of.introducing
    below = downstream(graph, (of[row].tensor for row in np.flatnonzero(candidates)))
    fed = of.rows_of(name for name in graph.outputs if name in below)
    start = max(fed, key=of.carried.__getitem__) if fed else worst_output(of, graph)
    way = way_upwards(of, graph, errors, start, candidates)
    if not way:
        way = [int(beyond[of.relative("introduced")[beyond].argmax()])]
    original = original_of(graph, graph.producer(of[way[-1]].tensor))
    row = None if original is None else of.rows.get(original)
    if row is not None and of.beyond[row]:
        way[-1] = row
    return tuple(of[at] for at in way)


def costliest(
    of: ResultTable, costs: Sequence[NodeResult], contributing: Contributions | None, floor: float | None
) -> NodeResult | None:
    """Find the tensor that costs an output most, where no node does wrong; None if all have codes that fit.

    Args:
        of: How compared tensors stand.
        costs: The tensors whose codes lose too much, in order: the first of them where no contribution is known.
        contributing: What nodes contribute to the output that is below its limit; None if nobody looked.
        floor: That limit: a node on codes whose error alone brings the output below it counts, whatever they lose.
    """
    by_tensor = {node.tensor: node for node in costs}
    known = [each for each in (() if contributing is None else contributing.nodes) if each.how == "exact"]
    first = of[of.rows[known[0].tensor]] if known else None
    if first is not None and first.quant is not None and floor is not None and known[0].sqnr_db < floor:
        return first  # choosing a better scale only helps quantized nodes
    found = next((by_tensor[each.tensor] for each in known if each.tensor in by_tensor), None)
    return found or next(iter(costs), None)


def sole_contributor(
    of: ResultTable, output: NodeResult, contributing: Contributions | None, floor: float | None
) -> NodeResult | None:
    """Find the node on codes whose error alone makes nearly all of an output's loss; None if there is none.

    Args:
        of: How compared tensors stand.
        output: The output that is below its limit.
        contributing: What nodes contribute to it; None if nobody looked.
        floor: That limit, in dB.
    """
    known = [each for each in (() if contributing is None else contributing.nodes) if each.how == "exact"]
    if contributing is None or not known or floor is None or not known[0].sqnr_db < floor:
        return None
    level = _sqnr(output.metrics)
    powers = [10.0 ** (-each.sqnr_db / 10.0) for each in known]
    most = SOLE_CONTRIBUTOR_MIN_SHARE * sum(powers)
    if powers[0] < most or not abs(known[0].sqnr_db - level) <= SOLE_CONTRIBUTOR_MAX_DISTANCE:
        return None
    node = of[of.rows[known[0].tensor]]
    return None if node.quant is None else node


def original_of(graph: Graph, node: Node | None) -> str | None:
    """Return the result of the model's node that a node is a copy of; None if it is none, or that does not run.

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


def way_upwards(
    of: ResultTable, graph: Graph, errors: ErrorsByInput | None, start: int, candidates: np.ndarray
) -> list[int]:
    """Return the rows from one to the input that brings most error, and so on, to a candidate; none if none comes.

    Only inputs that a candidate leads to come into question. Where several do, replays tell which one brings most;
    where these are not known, it is the one with the largest error relative to its signal.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
        errors: Tells what each of several inputs brings; None where no values are at hand.
        start: Where to start.
        candidates: Whether each row is one where the way may end.
    """
    # The path may have thousands of nodes, and indexing a list is much faster than indexing an array.
    chosen, carried, rows = candidates.tolist(), of.carried.tolist(), of.rows
    below = downstream(graph, (of[row].tensor for row in np.flatnonzero(candidates)))
    at, way = start, [start]
    stats = of[start].metrics
    sample = 0 if stats is None else stats.worst_sample or 0
    while not chosen[at]:
        _, names = between(graph, of[at].tensor, rows)
        into = [name for name in names if name in below and carried[rows[name]] > 0.0]
        known = errors(of[at].tensor, into, sample) if len(into) > 1 and errors is not None else None
        most = max(into, key=lambda name: (0.0 if known is None else known[name], carried[rows[name]]), default=None)
        if most is None:
            return []
        at = rows[most]
        way.append(at)
    return way


def _selecting(of: ResultTable, graph: Graph, born: Nonfinite, errors: ErrorsByInput | None) -> int | None:
    """Return the node whose finite error makes a NaN or an infinity where it is born; None if there is none."""
    differing = of.which(lambda node: input_finding(node) is not None)
    candidates = (of.beyond & of.introducing & of.having(Status.DIVERGED)) | differing
    for each in born.born.selected:
        row = of.rows.get(each.tensor)
        way = [] if row is None else way_upwards(of, graph, errors, row, candidates)
        if way:
            return way[-1]
    return None


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
    """Return the row of the network output that carries most error; of the last tensor where no output was compared.

    Args:
        of: How compared tensors stand, at least one.
        graph: The backend's graph.
    """
    outputs = of.rows_of(graph.outputs) or [len(of) - 1]
    return outputs[int(of.carried[outputs].argmax())]


def largest_fall(of: ResultTable, graph: Graph, row: int) -> tuple[NodeResult, NodeResult] | None:
    """Find where the SQNR falls most on the way to a tensor: what a node reads, and what it gives.

    The way goes from each tensor to the input that carries most error. A fall from no error to speak of to one that is
    no loss yet is that of the first codes, in every quantized net, and does not count.

    Args:
        of: How compared tensors stand.
        graph: The backend's graph.
        row: The tensor.

    Returns:
        None where no SQNR on the way falls from one number to another.
    """
    best: tuple[float, NodeResult, NodeResult] | None = None
    while True:
        producer = graph.producer(of[row].tensor)
        into = of.rows_of(() if producer is None else producer.inputs)
        if not into:
            return None if best is None else best[1:]
        before = max(into, key=of.carried.__getitem__)
        high, low = (_sqnr(of[at].metrics) for at in (before, row))
        ordinary = high >= EQUAL_INPUTS_MIN_SQNR and low >= OUTPUT_MIN_SQNR
        if math.isfinite(high) and math.isfinite(low) and not ordinary and high - low > (best[0] if best else 0.0):
            best = high - low, of[before], of[row]
        row = before


def _sqnr(stats: ErrorStats | None) -> float:
    return math.nan if stats is None or stats.sqnr_db is None else stats.sqnr_db


def compounding_nodes(of: ResultTable, graph: Graph) -> tuple[Compounding, ...]:
    """List the nodes whose gain is well above the median of their operator, the largest excess first.

    Gains are compared as logarithms. A node counts if its error is known to be mostly handed on; if it is larger than
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
    reaching = upstream(graph, graph.outputs)
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
            node = of[row]
            if node.propagated is not None and node.tensor in reaching and _grows(of, row, graph):
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
    gain = node.relative_gain or 0.0
    return Compounding(node=node.node, op=op, tensor=node.tensor, gain=gain, usual=2.0**usual, nodes=members)


def _grows(of: ResultTable, row: int, graph: Graph) -> bool:
    """Tell whether the error is larger, relative to the signal, than in each input that was compared."""
    producer = graph.producer(of[row].tensor)
    into = of.rows_of(() if producer is None else producer.inputs)
    return bool(of.carried[row] > of.carried[into].max(initial=0.0))
