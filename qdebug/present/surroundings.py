"""The part of a graph around a tensor: its inputs, its readers, and the error on each edge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qdebug.compare.result.result import NodeResult
from qdebug.model import Graph, Node

__all__ = ["Neighbour", "NeighbourEdge", "Surroundings", "surroundings"]

_HOPS = 2
_MOST = 3
"""Maximum number of nodes added per hop: those with the largest error."""


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
    around = _Around(graph, results)
    middle = graph.producer(tensor) or tensor
    before, left_before = _places_within_hops(middle, around.sources, around.error)
    after, left_after = _places_within_hops(middle, around.readers, around.error)
    levels = {_key(middle): 0}
    levels.update(_levels(middle, before, around, sign=-1))
    levels.update(_levels(middle, after, around, sign=1))
    places = sorted([middle, *before, *after], key=lambda place: levels[_key(place)])
    at = {_key(place): position for position, place in enumerate(places)}
    edges = [
        NeighbourEdge(source=at[_key(source)], target=at[_key(place)], tensor=name, error=around.error_of(name))
        for place in places
        for name, source in around.reads(place)
        if _key(source) in at
    ]
    return Surroundings(
        nodes=tuple(around.neighbour(place, levels[_key(place)]) for place in places),
        edges=tuple(edges),
        left_out=(left_before, left_after),
    )


_Place = Node | str
"""A node, or the name of a tensor that no node computes."""


def _key(place: _Place) -> tuple[bool, str]:
    return (True, place) if isinstance(place, str) else (False, place.name)


class _Around:
    """The edges of a graph, without its constants."""

    def __init__(self, graph: Graph, results: Mapping[str, NodeResult]) -> None:
        self._graph, self._results = graph, results

    def reads(self, place: _Place) -> list[tuple[str, _Place]]:
        """Return the tensors that a node reads, each once, with their producers."""
        if isinstance(place, str):
            return []
        names = [name for name in dict.fromkeys(place.inputs) if name and not self._graph.is_constant(name)]
        return [(name, self._graph.producer(name) or name) for name in names]

    def sources(self, place: _Place) -> list[_Place]:
        """Return the producers of the tensors that a node reads."""
        return [source for _, source in self.reads(place)]

    def readers(self, place: _Place) -> list[_Place]:
        """Return the nodes that read a node's tensors."""
        return [reader for tensor in self._tensors(place) for reader in self._graph.consumers(tensor)]

    def error_of(self, tensor: str) -> float | None:
        """Return the error of a tensor relative to its signal, or None if it was not compared."""
        result = self._results.get(tensor)
        return None if result is None or result.metrics is None else result.metrics.rel_l2

    def _size(self, tensor: str) -> float:
        """Return the error of a tensor, with NaN as the largest, or a negative number if it was not compared."""
        error = self.error_of(tensor)
        return -1.0 if error is None else math.inf if math.isnan(error) else error

    def error(self, place: _Place) -> float:
        """Return the largest error of a node's tensors, with NaN as the largest, or a negative number if unknown."""
        return max(map(self._size, self._tensors(place)), default=-1.0)

    def neighbour(self, place: _Place, level: int) -> Neighbour:
        """Describe a place."""
        compared = [tensor for tensor in self._tensors(place) if tensor in self._results]
        worst = max(compared, key=self._size, default=None)
        result = None if worst is None else self._results[worst]
        if isinstance(place, str):
            return Neighbour(name=place, op="Input", level=level, result=result)
        return Neighbour(name=place.name, op=place.op, level=level, result=result)

    @staticmethod
    def _tensors(place: _Place) -> Sequence[str]:
        return (place,) if isinstance(place, str) else [name for name in place.outputs if name]


def _places_within_hops(
    middle: _Place, step: Callable[[_Place], Iterable[_Place]], error: Callable[[_Place], float]
) -> tuple[list[_Place], int]:
    """Go a number of steps from a place. Return the places that are kept, and how many are not."""
    visited, neighbours, left_out = {_key(middle)}, [], 0
    edge: list[_Place] = [middle]
    for _ in range(_HOPS):
        reached = {_key(neighbour): neighbour for place in edge for neighbour in step(place)}
        new = [place for key, place in reached.items() if key not in visited]
        visited.update(map(_key, new))
        worst = sorted(new, key=error, reverse=True)[:_MOST]
        edge = [place for place in new if any(place is worst_place for worst_place in worst)]
        left_out += len(new) - len(edge)
        neighbours += edge
    return neighbours, left_out


def _levels(middle: _Place, places: Sequence[_Place], around: _Around, *, sign: int) -> dict[tuple[bool, str], int]:
    """Return the row of each place: its longest distance from the middle, so that no edge stays within a row."""
    within = {_key(place) for place in places}
    towards: dict[tuple[bool, str], set[tuple[bool, str]]] = {key: set() for key in within}
    for place in [middle, *places]:
        for source in around.sources(place):
            near, far = (_key(place), _key(source)) if sign < 0 else (_key(source), _key(place))
            if far in within:
                towards[far].add(near)
    levels: dict[tuple[bool, str], int] = {}

    def level(key: tuple[bool, str]) -> int:
        if key not in levels:
            levels[key] = 1 + max((level(near) for near in towards[key] if near in within), default=0)
        return levels[key]

    return {key: sign * level(key) for key in within}
