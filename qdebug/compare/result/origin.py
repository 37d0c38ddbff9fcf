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
    "find_compounding_nodes",
    "find_costliest_tensor",
    "find_largest_fall",
    "find_original",
    "find_sole_contributor",
    "path_to_origin",
    "trace_largest_error",
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
    input_errors = [error for name in producer.inputs if (error := error_of(name)) is not None]
    passed_on = node.metrics if node.propagated is None else node.propagated
    return replace(
        node,
        gain=_ratio(node.metrics.rmse, [error.rmse for error in input_errors]),
        relative_gain=_ratio(passed_on.rel_l2, [error.rel_l2 for error in input_errors]),
    )


def _ratio(output_error: float | None, input_errors: Sequence[float | None]) -> float | None:
    """Return an output error divided by the largest input error, or None if that is 0 or any error is not finite."""
    largest = max((0.0 if error is None else error for error in input_errors), default=0.0)
    if (
        output_error is None
        or not largest
        or not math.isfinite(output_error)
        or not all(map(math.isfinite, filter(None, input_errors)))
    ):
        return None
    return output_error / largest


def path_to_origin(
    table: ResultTable, graph: Graph, *, errors: ErrorsByInput | None = None, born: Nonfinite | None = None
) -> tuple[NodeResult, ...]:
    """Find the node whose own error feeds the worst output error, and the path to it.

    The path starts at the output with the largest relative error that such a node leads to. It goes to the input that
    contributes most error, whether data, index, condition or shape, until a node introduces at least as much as it
    passes on. Only nodes beyond a limit qualify. If the path passes all of them, the one that introduces most is
    chosen. A NaN or an infinity takes precedence over any error: its origin is where it first appears, or the node
    whose finite error selects it there.

    Args:
        table: The table of results.
        graph: The backend's graph.
        errors: Returns what each of several inputs contributes, or None if no values are available.
        born: Where the non-finite values originate, or None if unknown.

    Returns:
        The tensors from the worst output to the origin, the origin last. Only the origin if no path was searched, empty
            if there is no origin.
    """
    rows_beyond = np.flatnonzero(table.beyond)
    if not rows_beyond.size:
        return ()
    nonfinite = np.flatnonzero(table.beyond & table.has_status(Status.NONFINITE))
    if nonfinite.size:
        selecting = None if born is None else _selecting_row(table, graph, born, errors)
        if selecting is not None:
            return (table[selecting],)
        return (_with_cause(table, int(nonfinite[0]) if born is None else born.row, graph),)
    if rows_beyond.size == 1 or all(table[row].introduced is None for row in rows_beyond):
        return (table[rows_beyond[0]],)
    candidates = table.beyond & table.introducing
    downstream_tensors = downstream(graph, (table[row].tensor for row in np.flatnonzero(candidates)))
    fed_outputs = table.rows_of(name for name in graph.outputs if name in downstream_tensors)
    start = max(fed_outputs, key=table.carried.__getitem__) if fed_outputs else worst_output(table, graph)
    path = trace_largest_error(table, graph, errors, start, candidates)
    if not path:
        path = [int(rows_beyond[table.relative("introduced")[rows_beyond].argmax()])]
    original = find_original(graph, graph.producer(table[path[-1]].tensor))
    row = None if original is None else table.rows.get(original)
    if row is not None and table.beyond[row]:
        path[-1] = row
    return tuple(table[at] for at in path)


def find_costliest_tensor(
    table: ResultTable, costs: Sequence[NodeResult], contributing: Contributions | None, floor: float | None
) -> NodeResult | None:
    """Return the tensor that costs an output most if no node is wrong, or None if all codes fit.

    Args:
        table: The table of results.
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
    first_node = table[table.rows[exact_contributors[0].tensor]] if exact_contributors else None
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


def find_sole_contributor(
    table: ResultTable, output: NodeResult, contributing: Contributions | None, floor: float | None
) -> NodeResult | None:
    """Return the node on codes whose error alone causes nearly all of an output's loss, or None.

    Args:
        table: The table of results.
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
    node = table[table.rows[exact_contributors[0].tensor]]
    return None if node.quant is None else node


def find_original(graph: Graph, node: Node | None) -> str | None:
    """Return the output of the model's node that a node duplicates, or None if there is no such node.

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


def trace_largest_error(
    table: ResultTable, graph: Graph, errors: ErrorsByInput | None, start: int, candidates: np.ndarray
) -> list[int]:
    """Return the rows from a start up to a candidate, always following the input that contributes most error.

    Empty if no candidate is reached.

    Only inputs that a candidate leads to qualify. If there are several, replays show which contributes most. If there
    are no replays, it is the one with the largest error relative to its signal.

    Args:
        table: The table of results.
        graph: The backend's graph.
        errors: Returns what each of several inputs contributes, or None if no values are available.
        start: The first row.
        candidates: Whether each row may be the end of the path.
    """
    # The path may have thousands of nodes, and indexing a list is much faster than indexing an array.
    is_candidate, carried, rows = candidates.tolist(), table.carried.tolist(), table.rows
    downstream_tensors = downstream(graph, (table[row].tensor for row in np.flatnonzero(candidates)))
    at, path = start, [start]
    stats = table[start].metrics
    sample = 0 if stats is None else stats.worst_sample or 0
    while not is_candidate[at]:
        _, names = between(graph, table[at].tensor, rows)
        inputs = [name for name in names if name in downstream_tensors and carried[rows[name]] > 0.0]
        contributed_errors = (
            errors(table[at].tensor, inputs, sample) if len(inputs) > 1 and errors is not None else None
        )
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


def _selecting_row(table: ResultTable, graph: Graph, born: Nonfinite, errors: ErrorsByInput | None) -> int | None:
    """Return the node whose finite error causes a NaN or an infinity where it first appears, or None."""
    differing = table.test_rows(lambda node: input_finding(node) is not None)
    candidates = (table.beyond & table.introducing & table.has_status(Status.DIVERGED)) | differing
    for operand in born.born.selected:
        row = table.rows.get(operand.tensor)
        path = [] if row is None else trace_largest_error(table, graph, errors, row, candidates)
        if path:
            return path[-1]
    return None


def _with_cause(table: ResultTable, row: int, graph: Graph) -> NodeResult:
    """Add to a node's reason the nearest upstream finding that does no harm at its own node."""
    node, declared = table[row], table.declared
    waiting, visited = deque([node.tensor] if declared.any() else []), {node.tensor}
    while waiting:
        tensor = waiting.popleft()
        at = table.rows.get(tensor)
        if at is not None and declared[at]:
            declaring_node = table[at]
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


def worst_output(table: ResultTable, graph: Graph) -> int:
    """Return the row of the network output with most error, or of the last tensor if no output was compared.

    Args:
        table: The table of results, with at least one row.
        graph: The backend's graph.
    """
    outputs = table.rows_of(graph.outputs) or [len(table) - 1]
    return outputs[int(table.carried[outputs].argmax())]


def find_largest_fall(table: ResultTable, graph: Graph, row: int) -> tuple[NodeResult, NodeResult] | None:
    """Find where the SQNR falls most on the path to a tensor: the input and the output of that node.

    The path goes from each tensor to the input with most error. A fall from a negligible error to a harmless one does
    not count: the first quantization in every quantized network causes it.

    Args:
        table: The table of results.
        graph: The backend's graph.
        row: The tensor.

    Returns:
        The two results, or None if the SQNR does not fall between known values on the path.
    """
    best: tuple[float, NodeResult, NodeResult] | None = None
    while True:
        producer = graph.producer(table[row].tensor)
        input_rows = table.rows_of(() if producer is None else producer.inputs)
        if not input_rows:
            return None if best is None else best[1:]
        input_row = max(input_rows, key=table.carried.__getitem__)
        high, low = (_sqnr(table[at].metrics) for at in (input_row, row))
        is_ordinary = high >= EQUAL_INPUTS_MIN_SQNR and low >= OUTPUT_MIN_SQNR
        if math.isfinite(high) and math.isfinite(low) and not is_ordinary and high - low > (best[0] if best else 0.0):
            best = high - low, table[input_row], table[row]
        row = input_row


def _sqnr(stats: ErrorStats | None) -> float:
    return math.nan if stats is None or stats.sqnr_db is None else stats.sqnr_db


def find_compounding_nodes(table: ResultTable, graph: Graph) -> tuple[Compounding, ...]:
    """Return the nodes whose gain is well above the median of their operator, largest excess first.

    Gains are compared as logarithms. A node counts if its error is known to be mostly passed on; if it is larger than
    its inputs' errors relative to the signal too, which excludes a mere change of units; if it reaches a network
    output; and if it is, relative to its signal, at least a hundredth of the worst output's error, because a later node
    may amplify it again.

    Args:
        table: The table of results.
        graph: The backend's graph.
    """
    worst = float(table.carried[table.rows_of(graph.outputs)].max(initial=0.0))
    if not COMPOUNDING_MIN_ERROR_SHARE * worst > 0.0:
        return ()
    gains = table.gains
    gaining = (gains > 0.0) & (gains < math.inf)
    may_compound = (
        gaining
        & (gains > COMPOUNDING_MIN_GAIN)
        & (table.carried >= COMPOUNDING_MIN_ERROR_SHARE * worst)
        & table.passing_on
    )
    if not may_compound.any():
        return ()
    reaching = upstream(graph, graph.outputs)
    compounding: list[tuple[float, Compounding]] = []
    for op, rows in _group_by_operator(table, np.flatnonzero(gaining), graph).items():
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
            node = table[row]
            if node.propagated is not None and node.tensor in reaching and _increases_error(table, row, graph):
                compounding.append((float(logarithms[at]) - median, _make_compounding(node, op, median, len(rows))))
    compounding.sort(key=lambda item: -item[0])
    return tuple(entry for _, entry in compounding)


def _group_by_operator(table: ResultTable, rows: np.ndarray, graph: Graph) -> Mapping[str, list[int]]:
    """Group rows by the plain operators of their nodes."""
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        producer = graph.producer(table[row].tensor)
        if producer is not None:
            groups.setdefault(operators.plain(producer).name, []).append(row)
    return groups


def _make_compounding(node: NodeResult, op: str, usual: float, members: int) -> Compounding:
    gain = node.relative_gain or 0.0
    return Compounding(node=node.node, op=op, tensor=node.tensor, gain=gain, usual=2.0**usual, nodes=members)


def _increases_error(table: ResultTable, row: int, graph: Graph) -> bool:
    """Return whether the error, relative to the signal, is larger than in each input that was compared."""
    producer = graph.producer(table[row].tensor)
    input_rows = table.rows_of(() if producer is None else producer.inputs)
    return bool(table.carried[row] > table.carried[input_rows].max(initial=0.0))
