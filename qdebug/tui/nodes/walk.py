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
from qdebug.compare.result.origin import ErrorsByInput, original_of, way_upwards
from qdebug.compare.result.result_table import ResultTable
from qdebug.tui.nodes.rows import NodeTable

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import Graph, TensorInfo
    from qdebug.numerics.stats import ErrorStats

__all__ = [
    "Edge",
    "Walk",
    "carried",
    "edge_of",
    "inputs_of",
    "outputs_of",
    "own_share",
    "tensor_of",
    "walk_to_origin",
    "worst_input",
]

_LONGEST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A tensor that leads to a row or away from it.

    Args:
        tensor: Its name.
        node: Node at the other end; "" for a constant or an input of the network.
        op: Its operator.
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
        ended: Why it ends there, as a clause.
        failing: Whether it ends at a node that exceeds its limit.
    """

    rows: tuple[int, ...]
    ended: str
    failing: bool = True


def inputs_of(graph: Graph, table: NodeTable, tensor: str, *, theirs: bool = False) -> list[Edge]:
    """Return the inputs of a tensor: by descending error, then constants by descending size.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        tensor: The tensor.
        theirs: Whether the graph is the reference's.
    """
    producer = graph.producer(tensor)
    names = [] if producer is None else [name for name in dict.fromkeys(producer.inputs) if name]
    edges = [edge_of(graph, table, name, theirs=theirs) for name in names]
    return sorted(
        edges, key=lambda edge: (edge.constant, -math.inf if edge.error is None else -edge.error, _size(edge))
    )


def _size(edge: Edge) -> int:
    """Return the sort key for an input's size: a weight before its scale, computed inputs in their order."""
    shape = None if edge.info is None else edge.info.shape
    return -math.prod(extent or 1 for extent in shape) if edge.constant and shape is not None else 0


def outputs_of(graph: Graph, table: NodeTable, tensor: str, *, theirs: bool = False) -> list[Edge]:
    """Return the readers of a tensor in topological order, with one edge per output of a reader.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        tensor: The tensor.
        theirs: Whether the graph is the reference's.
    """
    readers = graph.consumers(tensor)
    return [edge_of(graph, table, name, theirs=theirs) for node in readers for name in node.outputs if name]


def tensor_of(table: NodeTable, row: int, *, theirs: bool = False) -> str:
    """Return the backend's or the reference's tensor of a row."""
    planned = table.rows[row]
    return planned.reference_tensor if theirs else planned.tensor


def worst_input(graph: Graph, table: NodeTable, row: int) -> Edge | None:
    """Return the compared input with the largest error relative to its signal; None if no input has an error."""
    carrying = [edge for edge in inputs_of(graph, table, tensor_of(table, row)) if edge.row is not None and edge.error]
    return carrying[0] if carrying and not carrying[0].constant else None


def walk_to_origin(
    graph: Graph, table: NodeTable, row: int, way: Sequence[str] = (), costs: Sequence[int] = ()
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
        way: The tensors on the verdict's path from the worst output to the origin; empty while unknown.
        costs: Rows of the nodes that cost an output most, the most expensive first; empty if unknown.
    """
    of = ResultTable([result for result in table.results if result is not None])
    start = of.rows.get(table.rows[row].tensor)
    if start is not None:
        for candidates in _candidates(of, start, way):
            path = way_upwards(of, graph, _as_before(way), start, candidates)
            rows = [table.row_of(of[at].tensor) for at in path]
            if rows:
                ended = "the verdict names it" if way and of[path[-1]].tensor == way[-1] else _why(of[path[-1]])
                walk = Walk(rows=tuple(at for at in rows if at is not None), ended=ended)
                return _from_a_copy(graph, table, walk)
        above = upstream(graph, [table.rows[row].tensor])
        costly = next((at for at in costs if table.rows[at].tensor in above), None)
        if costly is not None:
            last = np.zeros(len(of), bool)
            last[of.rows[table.rows[costly].tensor]] = True
            path = way_upwards(of, graph, None, start, last)
            passed = tuple(at for at in (table.row_of(of[name].tensor) for name in path) if at is not None)
            among = "" if costly == costs[0] else "of the nodes above the start, "
            ended = f"no node is beyond its limit; {among}this one's error costs the output most"
            return Walk(rows=passed or (row, costly), ended=ended, failing=False)
    return _along_the_worst(graph, table, row)


def _candidates(of: ResultTable, start: int, way: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield where a path may end: at the verdict's end, if it names all failing nodes; else at any origin."""
    candidates: np.ndarray = of.beyond & (of.introducing | of.declared)
    last = of.rows.get(way[-1]) if way else None
    if last is not None:
        only = np.zeros(len(of), bool)
        only[last] = True
        if len(way) == 1 or of[start].status is Status.NONFINITE:
            yield only
        candidates[of.rows_of(way)] = False
        candidates[last] = True
    yield candidates


def _as_before(way: Sequence[str]) -> ErrorsByInput:
    """Return a function that blames the inputs on the verdict's path, and no other tensors."""
    after = dict(pairwise(way))

    def errors(tensor: str, names: Sequence[str], _sample: int) -> dict[str, float] | None:
        chosen = after.get(tensor)
        return {name: float(name == chosen) for name in names} if chosen in names else None

    return errors


def _along_the_worst(graph: Graph, table: NodeTable, row: int) -> Walk:
    """Follow the worst inputs of a row. End at the node on the path that introduces the most error."""
    path, visited = [row], {row}
    while len(path) < _LONGEST:
        edge = worst_input(graph, table, path[-1])
        if edge is None or edge.row is None or edge.row in visited:
            break
        path.append(edge.row)
        visited.add(edge.row)
    passed = [(at, result) for at, result in ((at, table.results[at]) for at in path) if result]
    failing = [(at, result) for at, result in passed if _beyond(result)]
    if not any(_relative(result.introduced) for _, result in failing or passed):
        ended = "no node on the way is failing, or known to introduce any error"
        return Walk(rows=tuple(path), ended=ended, failing=False)
    most = max(failing or passed, key=lambda pair: _relative(pair[1].introduced))[0]
    ended = "of the failing nodes on the way it introduces most"
    if not failing:
        ended = "no node on the way is beyond its limit, this one introduces most"
    return Walk(rows=tuple(path[: path.index(most) + 1]), ended=ended, failing=bool(failing))


def _from_a_copy(graph: Graph, table: NodeTable, walk: Walk) -> Walk:
    """If the path ends at a copy of a node, end it at the node that is in the model, as the verdict does."""
    original = original_of(graph, graph.producer(table.rows[walk.rows[-1]].tensor))
    row = None if original is None else table.row_of(original)
    result = None if row is None else table.results[row]
    if row is None or result is None or not _beyond(result):
        return walk
    return replace(walk, rows=(*walk.rows[:-1], row))


def own_share(result: NodeResult) -> float | None:
    """Return the share of a node's error that it adds itself, based on the squares of both parts; None if unknown."""
    own = None if result.introduced is None else result.introduced.rmse
    passed = None if result.propagated is None else result.propagated.rmse
    if own is None or passed is None or not math.isfinite(own + passed) or not own + passed:
        return None
    return own * own / (own * own + passed * passed)


def carried(result: NodeResult) -> float:
    """Return the error of a tensor relative to its signal, with the maximum for a tensor of a different shape."""
    return math.inf if result.status is Status.INCOMPARABLE else _relative(result.metrics)


def edge_of(graph: Graph, table: NodeTable, tensor: str, *, theirs: bool = False) -> Edge:
    """Return a tensor's facts as the end of an edge.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        tensor: The tensor.
        theirs: Whether the graph is the reference's.
    """
    row = table.row_of_theirs(tensor) if theirs else table.row_of(tensor)
    result = None if row is None else table.results[row]
    producer = graph.producer(tensor)
    return Edge(
        tensor=tensor,
        node="" if producer is None else producer.name,
        op="" if producer is None else producer.op,
        row=row,
        info=graph.tensors.get(tensor),
        constant=graph.is_constant(tensor),
        error=None if result is None else carried(result),
    )


def _beyond(result: NodeResult) -> bool:
    return result.status in {Status.DIVERGED, Status.NONFINITE}


def _why(result: NodeResult) -> str:
    """Return why a failing node is the origin of the error."""
    if result.declared:
        return "what it computes is not what the reference computes (8 says how)"
    if result.introduced is None:
        return "what it adds itself is not known"
    return "it adds at least as much error as reaches it"


def _relative(stats: ErrorStats | None) -> float:
    if stats is None or stats.rel_l2 is None:
        return 0.0
    return math.inf if math.isnan(stats.rel_l2) else stats.rel_l2
