"""The part of a graph around a tensor: its inputs, its readers, and the error on each edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qdebug.compare.result.result import NodeResult
from qdebug.model import Graph, Node

__all__ = ["Neighbour", "NeighbourEdge", "Surroundings", "surroundings"]

_HOPS = 2
_MAX_NEW_PER_HOP = 3
"""Maximum number of nodes added per hop. Nodes with the largest errors are added first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A node near another one.

    Args:
        name: Its name, or the tensor's own name for a network input.
        op: Its operator, or "Input" for a network input.
        level: Row to draw it in: 0 for the node in the middle, negative for upstream nodes, positive for downstream
            nodes.
        result: The comparison of its output, or of the output with the largest error. None if none was compared.
    """

    name: str
    op: str
    level: int
    result: NodeResult | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourEdge:
    """A tensor that one of the nodes passes to another.

    Args:
        source: Position of the node that computes it.
        target: Position of the node that reads it.
        tensor: Its name.
        error: Its error relative to its signal (rel L2), or None if it was not compared.
    """

    source: int
    target: int
    tensor: str
    error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A node with its neighbours.

    Args:
        nodes: The nodes, row by row.
        edges: The tensors between them, without constants.
        left_out: Number of nodes left out before and after the node in the middle.
    """

    nodes: tuple[Neighbour, ...]
    edges: tuple[NeighbourEdge, ...]
    left_out: tuple[int, int]


def surroundings(graph: Graph, results: Mapping[str, NodeResult], tensor: str) -> Surroundings:
    """Return the nodes at most two edges away from the node that computes a tensor.

    Args:
        graph: The backend's graph.
        results: The comparison of each tensor, by name.
        tensor: A tensor of the graph.
    """
    graph_edges = _Edges(graph, results)
    middle = graph.producer(tensor) or tensor
    before, left_before = _neighbours_within_hops(middle, graph_edges.sources, graph_edges.error)
    after, left_after = _neighbours_within_hops(middle, graph_edges.readers, graph_edges.error)
    levels = {_vertex_key(middle): 0}
    levels.update(_levels(middle, before, graph_edges, sign=-1))
    levels.update(_levels(middle, after, graph_edges, sign=1))
    vertices = sorted([middle, *before, *after], key=lambda vertex: levels[_vertex_key(vertex)])
    position_of = {_vertex_key(vertex): position for position, vertex in enumerate(vertices)}
    edges = [
        NeighbourEdge(
            source=position_of[_vertex_key(source)],
            target=position_of[_vertex_key(vertex)],
            tensor=name,
            error=graph_edges.error_of(name),
        )
        for vertex in vertices
        for name, source in graph_edges.read_tensors(vertex)
        if _vertex_key(source) in position_of
    ]
    return Surroundings(
        nodes=tuple(graph_edges.neighbour(vertex, levels[_vertex_key(vertex)]) for vertex in vertices),
        edges=tuple(edges),
        left_out=(left_before, left_after),
    )


_Vertex = Node | str
"""A node, or the name of a tensor that no node computes."""


def _vertex_key(vertex: _Vertex) -> tuple[bool, str]:
    return (True, vertex) if isinstance(vertex, str) else (False, vertex.name)


class _Edges:
    """The edges of a graph, without its constants."""

    def __init__(self, graph: Graph, results: Mapping[str, NodeResult]) -> None:
        self._graph, self._results = graph, results

    def read_tensors(self, vertex: _Vertex) -> list[tuple[str, _Vertex]]:
        """Return the tensors that a node reads, each once, with their producers."""
        if isinstance(vertex, str):
            return []
        names = [name for name in dict.fromkeys(vertex.inputs) if name and not self._graph.is_constant(name)]
        return [(name, self._graph.producer(name) or name) for name in names]

    def sources(self, vertex: _Vertex) -> list[_Vertex]:
        """Return the producers of the tensors that a node reads."""
        return [source for _, source in self.read_tensors(vertex)]

    def readers(self, vertex: _Vertex) -> list[_Vertex]:
        """Return the nodes that read a node's tensors."""
        return [reader for tensor in self._outputs_of(vertex) for reader in self._graph.consumers(tensor)]

    def error_of(self, tensor: str) -> float | None:
        """Return the error of a tensor relative to its signal, or None if it was not compared."""
        result = self._results.get(tensor)
        return None if result is None or result.metrics is None else result.metrics.rel_l2

    def _error_rank(self, tensor: str) -> float:
        """Return the error of a tensor to sort by: infinity for NaN, a negative number if it was not compared."""
        error = self.error_of(tensor)
        return -1.0 if error is None else math.inf if math.isnan(error) else error

    def error(self, vertex: _Vertex) -> float:
        """Return the largest error of a node's outputs: infinity for NaN, a negative number if none was compared."""
        return max(map(self._error_rank, self._outputs_of(vertex)), default=-1.0)

    def neighbour(self, vertex: _Vertex, level: int) -> Neighbour:
        """Return a vertex with its level and the comparison of its worst output."""
        compared = [tensor for tensor in self._outputs_of(vertex) if tensor in self._results]
        worst = max(compared, key=self._error_rank, default=None)
        result = None if worst is None else self._results[worst]
        if isinstance(vertex, str):
            return Neighbour(name=vertex, op="Input", level=level, result=result)
        return Neighbour(name=vertex.name, op=vertex.op, level=level, result=result)

    @staticmethod
    def _outputs_of(vertex: _Vertex) -> Sequence[str]:
        return (vertex,) if isinstance(vertex, str) else [name for name in vertex.outputs if name]


def _neighbours_within_hops(
    middle: _Vertex, next_vertices: Callable[[_Vertex], Iterable[_Vertex]], error: Callable[[_Vertex], float]
) -> tuple[list[_Vertex], int]:
    """Return the vertices up to `_HOPS` edges away with the largest errors, and how many others were left out."""
    visited, neighbours, left_out = {_vertex_key(middle)}, [], 0
    frontier: list[_Vertex] = [middle]
    for _ in range(_HOPS):
        reached = {_vertex_key(neighbour): neighbour for vertex in frontier for neighbour in next_vertices(vertex)}
        new = [vertex for key, vertex in reached.items() if key not in visited]
        visited.update(map(_vertex_key, new))
        worst = sorted(new, key=error, reverse=True)[:_MAX_NEW_PER_HOP]
        frontier = [vertex for vertex in new if any(vertex is worst_vertex for worst_vertex in worst)]
        left_out += len(new) - len(frontier)
        neighbours += frontier
    return neighbours, left_out


def _levels(
    middle: _Vertex, vertices: Sequence[_Vertex], graph_edges: _Edges, *, sign: int
) -> dict[tuple[bool, str], int]:
    """Return the row of each vertex: its longest distance from the middle, so that no edge stays within a row."""
    chosen_keys = {_vertex_key(vertex) for vertex in vertices}
    nearer_keys: dict[tuple[bool, str], set[tuple[bool, str]]] = {key: set() for key in chosen_keys}
    for vertex in [middle, *vertices]:
        for source in graph_edges.sources(vertex):
            near, far = (
                (_vertex_key(vertex), _vertex_key(source)) if sign < 0 else (_vertex_key(source), _vertex_key(vertex))
            )
            if far in chosen_keys:
                nearer_keys[far].add(near)
    levels: dict[tuple[bool, str], int] = {}

    def level(key: tuple[bool, str]) -> int:
        if key not in levels:
            levels[key] = 1 + max((level(near) for near in nearer_keys[key] if near in chosen_keys), default=0)
        return levels[key]

    return {key: sign * level(key) for key in chosen_keys}
