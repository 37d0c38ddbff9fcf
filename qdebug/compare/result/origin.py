"""Finds the node that causes the error at the network's output, and by how much each node amplifies error."""

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
    "path_to_origin",
    "sole_contributor",
    "way_upwards",
    "with_gain",
    "worst_output",
]

ErrorsByInput = Callable[[str, Sequence[str], int], Mapping[str, float] | None]
"""Returns the error that each of the given inputs causes on its own in a tensor in one sample, or None if unknown."""


def with_gain(node: NodeResult, graph: Graph, error_of: Callable[[str], ErrorStats | None]) -> NodeResult:
    """Return a result with its gains: the error of its output divided by the largest error of an input.

    `gain` is based on the total error. `relative_gain` is based on the part of the output error caused by the inputs,
    so that a node that adds much error is not mistaken for one that amplifies it. If that part is unknown, it is based
    on the total error too. Both are None if no input was compared or no input has an error.

    Args:
        node: The node's result.
        graph: The backend's graph.
        error_of: Returns the error of a backend tensor, or None if unknown.
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
    """Return an error divided by the largest of others, or None if that is 0 or any of them is not finite."""
    largest = max((0.0 if error is None else error for error in into), default=0.0)
    if out is None or not largest or not math.isfinite(out) or not all(map(math.isfinite, filter(None, into))):
        return None
    return out / largest


def path_to_origin(
    of: ResultTable, graph: Graph, *, errors: ErrorsByInput | None = None, born: Nonfinite | None = None
) -> tuple[NodeResult, ...]:
    """Find the node whose own error feeds the worst output error, and the path to it.

    The path starts at the output with the largest relative error that such a node leads to. It goes to the input that
    contributes most error, whether data, index, condition or shape, until a node introduces at least as much as it
    passes on. Only nodes beyond a limit qualify. If the path passes all of them, the one that introduces most is
    chosen. A NaN or an infinity takes precedence over any error: its origin is where it first appears, or the node
    whose finite error selects it there.

    Args:
        of: The table of results.
        graph: The backend's graph.
        errors: Returns what each of several inputs contributes, or None if no values are available.
        born: Where the non-finite values originate, or None if unknown.

    Returns:
        The tensors from the worst output to the origin, the origin last. Only the origin if no path was searched, empty
            if there is no origin.
    """
    rows_beyond = np.flatnonzero(of.beyond)
    if not rows_beyond.size:
        return ()
    nonfinite = np.flatnonzero(of.beyond & of.having(Status.NONFINITE))
    if nonfinite.size:
        selecting = None if born is None else _selecting_row(of, graph, born, errors)
        if selecting is not None:
            return (of[selecting],)
        return (_with_cause(of, int(nonfinite[0]) if born is None else born.row, graph),)
    if rows_beyond.size == 1 or all(of[row].introduced is None for row in rows_beyond):
        return (of[rows_beyond[0]],)
    candidates = of.beyond & of.introducing
    downstream_tensors = downstream(graph, (of[row].tensor for row in np.flatnonzero(candidates)))
    fed_outputs = of.rows_of(name for name in graph.outputs if name in downstream_tensors)
    start = max(fed_outputs, key=of.carried.__getitem__) if fed_outputs else worst_output(of, graph)
    path = way_upwards(of, graph, errors, start, candidates)
    if not path:
        path = [int(rows_beyond[of.relative("introduced")[rows_beyond].argmax()])]
    original = original_of(graph, graph.producer(of[path[-1]].tensor))
    row = None if original is None else of.rows.get(original)
    if row is not None and of.beyond[row]:
        path[-1] = row
    return tuple(of[at] for at in path)


def costliest(
    of: ResultTable, costs: Sequence[NodeResult], contributing: Contributions | None, floor: float | None
) -> NodeResult | None:
    """Find the tensor that costs an output most if no node is wrong, or None if all codes fit.

    Args:
        of: The table of results.
        costs: The tensors whose codes lose too much, in order. The first is chosen if no contribution is known.
        contributing: Contributions of nodes to the output below its limit, or None if they were not measured.
        floor: That limit. A node on codes whose error alone brings the output below it counts, however little its codes
            lose.
    """
    by_tensor = {node.tensor: node for node in costs}
    exact_contributors = [
        contributor
        for contributor in (() if contributing is None else contributing.nodes)
        if contributor.how == "exact"
    ]
    first_node = of[of.rows[exact_contributors[0].tensor]] if exact_contributors else None
    if (
        first_node is not None
        and first_node.quant is not None
        and floor is not None
        and exact_contributors[0].sqnr_db < floor
    ):
        return first_node  # a better scale helps only quantized nodes
    costly_contributor = next(
        (by_tensor[contributor.tensor] for contributor in exact_contributors if contributor.tensor in by_tensor), None
    )
    return costly_contributor or next(iter(costs), None)


def sole_contributor(
    of: ResultTable, output: NodeResult, contributing: Contributions | None, floor: float | None
) -> NodeResult | None:
    """Find the node on codes whose error alone causes nearly all of an output's loss, or return None.

    Args:
        of: The table of results.
        output: The output below its limit.
        contributing: Contributions of nodes to it, or None if they were not measured.
        floor: That limit, in dB.
    """
    exact_contributors = [
        contributor
        for contributor in (() if contributing is None else contributing.nodes)
        if contributor.how == "exact"
    ]
    if contributing is None or not exact_contributors or floor is None or not exact_contributors[0].sqnr_db < floor:
        return None
    level = _sqnr(output.metrics)
    powers = [10.0 ** (-contributor.sqnr_db / 10.0) for contributor in exact_contributors]
    min_power = SOLE_CONTRIBUTOR_MIN_SHARE * sum(powers)
    if powers[0] < min_power or not abs(exact_contributors[0].sqnr_db - level) <= SOLE_CONTRIBUTOR_MAX_DISTANCE:
        return None
    node = of[of.rows[exact_contributors[0].tensor]]
    return None if node.quant is None else node


def original_of(graph: Graph, node: Node | None) -> str | None:
    """Return the output of the model's node that a node is a copy of, or None if there is no such node.

    A runtime may duplicate a node for each reader of its output. All copies read and compute the same.

    Args:
        graph: The backend's graph.
        node: One of its nodes, or None for a network input.
    """
    if node is None or len(node.origin) != 1 or not node.inputs:
        return None
    for sibling in graph.consumers(node.inputs[0]):
        if sibling.name == node.origin[0] != node.name and (sibling.op, sibling.inputs) == (node.op, node.inputs):
            return sibling.outputs[0] if len(sibling.outputs) == len(node.outputs) == 1 else None
    return None


def way_upwards(
    of: ResultTable, graph: Graph, errors: ErrorsByInput | None, start: int, candidates: np.ndarray
) -> list[int]:
    """Return the rows from a start up to a candidate, always following the input that contributes most error; or none.

    Only inputs that a candidate leads to qualify. If there are several, replays show which contributes most. If there
    are no replays, it is the one with the largest error relative to its signal.

    Args:
        of: The table of results.
        graph: The backend's graph.
        errors: Returns what each of several inputs contributes, or None if no values are available.
        start: The first row.
        candidates: Whether each row may be the end of the path.
    """
    # The path may have thousands of nodes, and indexing a list is much faster than indexing an array.
    is_candidate, carried, rows = candidates.tolist(), of.carried.tolist(), of.rows
    downstream_tensors = downstream(graph, (of[row].tensor for row in np.flatnonzero(candidates)))
    at, path = start, [start]
    stats = of[start].metrics
    sample = 0 if stats is None else stats.worst_sample or 0
    while not is_candidate[at]:
        _, names = between(graph, of[at].tensor, rows)
        inputs = [name for name in names if name in downstream_tensors and carried[rows[name]] > 0.0]
        contributed_errors = errors(of[at].tensor, inputs, sample) if len(inputs) > 1 and errors is not None else None
        largest_input = max(
            inputs,
            key=lambda name: (0.0 if contributed_errors is None else contributed_errors[name], carried[rows[name]]),
            default=None,
        )
        if largest_input is None:
            return []
        at = rows[largest_input]
        path.append(at)
    return path


def _selecting_row(of: ResultTable, graph: Graph, born: Nonfinite, errors: ErrorsByInput | None) -> int | None:
    """Return the node whose finite error causes a NaN or an infinity where it first appears, or None."""
    differing = of.test_rows(lambda node: input_finding(node) is not None)
    candidates = (of.beyond & of.introducing & of.having(Status.DIVERGED)) | differing
    for operand in born.born.selected:
        row = of.rows.get(operand.tensor)
        path = [] if row is None else way_upwards(of, graph, errors, row, candidates)
        if path:
            return path[-1]
    return None


def _with_cause(of: ResultTable, row: int, graph: Graph) -> NodeResult:
    """Add to a node's reason the nearest upstream finding that does no harm at its own node."""
    node, declared = of[row], of.declared
    waiting, visited = deque([node.tensor] if declared.any() else []), {node.tensor}
    while waiting:
        tensor = waiting.popleft()
        at = of.rows.get(tensor)
        if at is not None and declared[at]:
            declaring_node = of[at]
            is_same_node = at == row
            return (
                node
                if is_same_node
                else replace(node, reason=f"{node.reason}, after {declaring_node.node!r}: {declaring_node.declared}")
            )
        producer = graph.producer(tensor)
        input_names = [name for name in (producer.inputs if producer else ()) if name and name not in visited]
        waiting.extend(input_names)
        visited.update(input_names)
    return node


def worst_output(of: ResultTable, graph: Graph) -> int:
    """Return the row of the network output with most error, or of the last tensor if no output was compared.

    Args:
        of: The table of results, with at least one row.
        graph: The backend's graph.
    """
    outputs = of.rows_of(graph.outputs) or [len(of) - 1]
    return outputs[int(of.carried[outputs].argmax())]


def largest_fall(of: ResultTable, graph: Graph, row: int) -> tuple[NodeResult, NodeResult] | None:
    """Find where the SQNR falls most on the path to a tensor: the input and the output of that node.

    The path goes from each tensor to the input with most error. A fall from a negligible error to a harmless one does
    not count: the first quantization in every quantized network causes it.

    Args:
        of: The table of results.
        graph: The backend's graph.
        row: The tensor.

    Returns:
        The two results, or None if the SQNR does not fall between known values on the path.
    """
    best: tuple[float, NodeResult, NodeResult] | None = None
    while True:
        producer = graph.producer(of[row].tensor)
        input_rows = of.rows_of(() if producer is None else producer.inputs)
        if not input_rows:
            return None if best is None else best[1:]
        input_row = max(input_rows, key=of.carried.__getitem__)
        high, low = (_sqnr(of[at].metrics) for at in (input_row, row))
        is_ordinary = high >= EQUAL_INPUTS_MIN_SQNR and low >= OUTPUT_MIN_SQNR
        if math.isfinite(high) and math.isfinite(low) and not is_ordinary and high - low > (best[0] if best else 0.0):
            best = high - low, of[input_row], of[row]
        row = input_row


def _sqnr(stats: ErrorStats | None) -> float:
    return math.nan if stats is None or stats.sqnr_db is None else stats.sqnr_db


def compounding_nodes(of: ResultTable, graph: Graph) -> tuple[Compounding, ...]:
    """List the nodes whose gain is well above the median of their operator, largest excess first.

    Gains are compared as logarithms. A node counts if its error is known to be mostly passed on; if it is larger than
    its inputs' errors relative to the signal too, which excludes a mere change of units; if it reaches a network
    output; and if it is, relative to its signal, at least a hundredth of the worst output's error, because a later node
    may amplify it again.

    Args:
        of: The table of results.
        graph: The backend's graph.
    """
    worst = float(of.carried[of.rows_of(graph.outputs)].max(initial=0.0))
    if not COMPOUNDING_MIN_ERROR_SHARE * worst > 0.0:
        return ()
    gains = of.gains
    gaining = (gains > 0.0) & (gains < math.inf)
    may_compound = (
        gaining & (gains > COMPOUNDING_MIN_GAIN) & (of.carried >= COMPOUNDING_MIN_ERROR_SHARE * worst) & of.handing_on
    )
    if not may_compound.any():
        return ()
    reaching = upstream(graph, graph.outputs)
    compounding: list[tuple[float, Compounding]] = []
    for op, rows in _by_op(of, np.flatnonzero(gaining), graph).items():
        if len(rows) < COMPOUNDING_MIN_NODES or not may_compound[rows].any():
            continue
        logarithms = np.array(list(map(math.log2, gains[rows].tolist())))
        median = float(np.median(logarithms))
        spread = MEDIAN_DISTANCE_TO_SPREAD * float(np.median(np.abs(logarithms - median)))
        min_logarithm = max(
            median + max(COMPOUNDING_SPREADS * spread, math.log2(COMPOUNDING_MIN_GAIN)), math.log2(COMPOUNDING_MIN_GAIN)
        )
        for at in np.flatnonzero(may_compound[rows] & (logarithms > min_logarithm)).tolist():
            row = rows[at]
            node = of[row]
            if node.propagated is not None and node.tensor in reaching and _increases_error(of, row, graph):
                compounding.append((float(logarithms[at]) - median, _entry(node, op, median, len(rows))))
    compounding.sort(key=lambda item: -item[0])
    return tuple(entry for _, entry in compounding)


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


def _increases_error(of: ResultTable, row: int, graph: Graph) -> bool:
    """Return whether the error, relative to the signal, is larger than in each input that was compared."""
    producer = graph.producer(of[row].tensor)
    input_rows = of.rows_of(() if producer is None else producer.inputs)
    return bool(of.carried[row] > of.carried[input_rows].max(initial=0.0))
