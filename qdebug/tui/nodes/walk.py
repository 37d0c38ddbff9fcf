"""Paths along the edges of the backend's graph: to inputs, to readers, and to the origin of an error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.result.finding import Status
from qdebug.compare.result.origin import ErrorsByInput, find_original, trace_largest_error
from qdebug.compare.result.result_table import ResultTable
from qdebug.tui.nodes.rows import NodeTable

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import Graph, TensorInfo
    from qdebug.numerics.stats import ErrorStats

__all__ = [
    "Edge",
    "Walk",
    "edge_of",
    "inputs_of",
    "outputs_of",
    "own_share",
    "relative_error",
    "tensor_of",
    "walk_to_origin",
    "worst_input",
]

_MAX_PATH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A tensor that leads to a row or away from it.

    Args:
        tensor: Its name.
        node: Node at the other end; "" for a constant or an input of the network.
        op: Operator of that node.
        row: Row at the other end; None if it is not in the list.
        info: Type, shape and quantization of the tensor in the graph.
        constant: Whether it is a constant.
        error: Its error relative to its signal; None if it is not compared.
    """

    tensor: str
    node: str
    op: str
    row: int | None
    info: TensorInfo | None
    constant: bool
    error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The path from a row to the origin of its error.

    Args:
        rows: The rows on the path, origin last.
        end_reason: Why it ends there, as a clause.
        is_failing: Whether it ends at a node that exceeds its limit.
    """

    rows: tuple[int, ...]
    end_reason: str
    is_failing: bool = True


def inputs_of(graph: Graph, table: NodeTable, tensor: str, *, is_reference: bool = False) -> list[Edge]:
    """Return the inputs of a tensor: by descending error, then constants by descending size.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        tensor: The tensor.
        is_reference: Whether the graph is the reference's.
    """
    producer = graph.producer(tensor)
    names = [] if producer is None else [name for name in dict.fromkeys(producer.inputs) if name]
    edges = [edge_of(graph, table, name, is_reference=is_reference) for name in names]
    return sorted(
        edges, key=lambda edge: (edge.constant, -math.inf if edge.error is None else -edge.error, _size(edge))
    )


def _size(edge: Edge) -> int:
    """Return the sort key for an input's size: a weight before its scale, computed inputs in their order."""
    shape = None if edge.info is None else edge.info.shape
    return -math.prod(extent or 1 for extent in shape) if edge.constant and shape is not None else 0


def outputs_of(graph: Graph, table: NodeTable, tensor: str, *, is_reference: bool = False) -> list[Edge]:
    """Return the readers of a tensor in topological order, with one edge per output of a reader.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        tensor: The tensor.
        is_reference: Whether the graph is the reference's.
    """
    readers = graph.consumers(tensor)
    return [edge_of(graph, table, name, is_reference=is_reference) for node in readers for name in node.outputs if name]


def tensor_of(table: NodeTable, row: int, *, is_reference: bool = False) -> str:
    """Return the backend's or the reference's tensor of a row."""
    plan_row = table.rows[row]
    return plan_row.reference_tensor if is_reference else plan_row.tensor


def worst_input(graph: Graph, table: NodeTable, row: int) -> Edge | None:
    """Return the compared input with the largest error relative to its signal; None if no input has an error."""
    edges_with_error = [
        edge for edge in inputs_of(graph, table, tensor_of(table, row)) if edge.row is not None and edge.error
    ]
    return edges_with_error[0] if edges_with_error and not edges_with_error[0].constant else None


def walk_to_origin(
    graph: Graph, table: NodeTable, row: int, verdict_path: Sequence[str] = (), costs: Sequence[int] = ()
) -> Walk:
    """Find the path from a row to the origin of its error, as the verdict does from the worst output.

    The path ends only at a node that exceeds its limit and adds at least as much error as reaches it, or that computes
    something other than the reference, which a replay of the declared operation does not reproduce. Only inputs that
    such a node leads to are considered. If there are several, the verdict replays the node; without a replay, only
    their errors are compared. If there is no such node upstream, the path leads to the upstream node that costs an
    output most, if known. Otherwise it follows the worst inputs and ends at the node that introduces the most error.

    Args:
        graph: The backend's graph.
        table: The rows.
        row: The first row.
        verdict_path: The tensors on the verdict's path from the worst output to the origin; empty while unknown.
        costs: Rows of the nodes that cost an output most, the most expensive first; empty if unknown.
    """
    result_table = ResultTable([result for result in table.results if result is not None])
    start = result_table.rows.get(table.rows[row].tensor)
    if start is not None:
        for candidates in _candidates(result_table, start, verdict_path):
            path = trace_largest_error(result_table, graph, _errors_along_path(verdict_path), start, candidates)
            rows = [table.row_of(result_table[at].tensor) for at in path]
            if rows:
                end_reason = (
                    "the verdict names it"
                    if verdict_path and result_table[path[-1]].tensor == verdict_path[-1]
                    else _origin_reason(result_table[path[-1]])
                )
                walk = Walk(rows=tuple(at for at in rows if at is not None), end_reason=end_reason)
                return _end_at_model_node(graph, table, walk)
        tensors_above = upstream(graph, [table.rows[row].tensor])
        costly_row = next((at for at in costs if table.rows[at].tensor in tensors_above), None)
        if costly_row is not None:
            is_end = np.zeros(len(result_table), bool)
            is_end[result_table.rows[table.rows[costly_row].tensor]] = True
            path = trace_largest_error(result_table, graph, None, start, is_end)
            rows_passed = tuple(
                at for at in (table.row_of(result_table[name].tensor) for name in path) if at is not None
            )
            scope_text = "" if costly_row == costs[0] else "of the nodes above the start, "
            end_reason = f"no node is beyond its limit; {scope_text}this one's error costs the output most"
            return Walk(rows=rows_passed or (row, costly_row), end_reason=end_reason, is_failing=False)
    return _follow_worst_inputs(graph, table, row)


def _candidates(result_table: ResultTable, start: int, verdict_path: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield masks of the rows at which a path may end, in the order in which they should be tried.

    If the start is not finite, or the verdict's path has only one node, the path should end where the verdict's does.
    Otherwise it may end at any failing node that introduces its error or is declared to differ from the reference, but
    on the verdict's path only at its end.
    """
    candidates: np.ndarray = result_table.beyond & (result_table.introducing | result_table.declared)
    last_row = result_table.rows.get(verdict_path[-1]) if verdict_path else None
    if last_row is not None:
        is_end = np.zeros(len(result_table), bool)
        is_end[last_row] = True
        if len(verdict_path) == 1 or result_table[start].status is Status.NONFINITE:
            yield is_end
        candidates[result_table.rows_of(verdict_path)] = False
        candidates[last_row] = True
    yield candidates


def _errors_along_path(verdict_path: Sequence[str]) -> ErrorsByInput:
    """Return a function that attributes a tensor's whole error to its input on the verdict's path."""
    next_tensor = dict(pairwise(verdict_path))

    def errors(tensor: str, names: Sequence[str], _sample: int) -> dict[str, float] | None:
        blamed_input = next_tensor.get(tensor)
        return {name: float(name == blamed_input) for name in names} if blamed_input in names else None

    return errors


def _follow_worst_inputs(graph: Graph, table: NodeTable, row: int) -> Walk:
    """Follow the worst inputs of a row. End at the node on the path that introduces the most error."""
    path, visited = [row], {row}
    while len(path) < _MAX_PATH:
        edge = worst_input(graph, table, path[-1])
        if edge is None or edge.row is None or edge.row in visited:
            break
        path.append(edge.row)
        visited.add(edge.row)
    results_passed = [(at, result) for at, result in ((at, table.results[at]) for at in path) if result]
    failing_results = [(at, result) for at, result in results_passed if _is_beyond(result)]
    if not any(_finite_relative_error(result.introduced) for _, result in failing_results or results_passed):
        end_reason = "no node on the way is failing, or known to introduce any error"
        return Walk(rows=tuple(path), end_reason=end_reason, is_failing=False)
    origin_row = max(failing_results or results_passed, key=lambda pair: _finite_relative_error(pair[1].introduced))[0]
    end_reason = "of the failing nodes on the way it introduces most"
    if not failing_results:
        end_reason = "no node on the way is beyond its limit, this one introduces most"
    return Walk(rows=tuple(path[: path.index(origin_row) + 1]), end_reason=end_reason, is_failing=bool(failing_results))


def _end_at_model_node(graph: Graph, table: NodeTable, walk: Walk) -> Walk:
    """If the path ends at a copy of a node, end it at the node that is in the model, as the verdict does."""
    original = find_original(graph, graph.producer(table.rows[walk.rows[-1]].tensor))
    row = None if original is None else table.row_of(original)
    result = None if row is None else table.results[row]
    if row is None or result is None or not _is_beyond(result):
        return walk
    return replace(walk, rows=(*walk.rows[:-1], row))


def own_share(result: NodeResult) -> float | None:
    """Return the share of a node's error that it adds itself, based on the squares of both parts; None if unknown."""
    own_error = None if result.introduced is None else result.introduced.rmse
    propagated_error = None if result.propagated is None else result.propagated.rmse
    if (
        own_error is None
        or propagated_error is None
        or not math.isfinite(own_error + propagated_error)
        or not own_error + propagated_error
    ):
        return None
    return own_error * own_error / (own_error * own_error + propagated_error * propagated_error)


def relative_error(result: NodeResult) -> float:
    """Return the error of a tensor relative to its signal, with the maximum for a tensor of a different shape."""
    return math.inf if result.status is Status.INCOMPARABLE else _finite_relative_error(result.metrics)


def edge_of(graph: Graph, table: NodeTable, tensor: str, *, is_reference: bool = False) -> Edge:
    """Return the edge that belongs to a tensor.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        tensor: The tensor.
        is_reference: Whether the graph is the reference's.
    """
    row = table.row_of_any_reference(tensor) if is_reference else table.row_of(tensor)
    result = None if row is None else table.results[row]
    producer = graph.producer(tensor)
    return Edge(
        tensor=tensor,
        node="" if producer is None else producer.name,
        op="" if producer is None else producer.op,
        row=row,
        info=graph.tensors.get(tensor),
        constant=graph.is_constant(tensor),
        error=None if result is None else relative_error(result),
    )


def _is_beyond(result: NodeResult) -> bool:
    return result.status in {Status.DIVERGED, Status.NONFINITE}


def _origin_reason(result: NodeResult) -> str:
    """Return why a failing node is the origin of the error."""
    if result.declared:
        return "it does not compute what the reference computes (8 shows how)"
    if result.introduced is None:
        return "what it adds itself is not known"
    return "it adds at least as much error as reaches it"


def _finite_relative_error(stats: ErrorStats | None) -> float:
    if stats is None or stats.rel_l2 is None:
        return 0.0
    return math.inf if math.isnan(stats.rel_l2) else stats.rel_l2
