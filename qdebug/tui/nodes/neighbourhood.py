"""The neighbourhood of a row in the graph: several levels of producers and readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qdebug.tui.nodes.walk import Edge, edge_of, inputs_of, outputs_of, tensor_of

if TYPE_CHECKING:
    from qdebug.model import Graph
    from qdebug.tui.nodes.rows import NodeTable

__all__ = ["Neighbourhood", "find_neighbourhood"]

_MAX_PER_LEVEL = 8
"""Maximum number of tensors per level beyond the first. Terminals cannot show more."""

FindEdges = Callable[[str], Sequence[Edge]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """A row with its producers and readers.

    Args:
        centre: The row itself.
        inputs: Tensors that its node reads, including constants; the largest error first.
        outputs: Tensors computed from it, in topological order.
        levels: The tensors of each level: 0 is the row itself, -1 its producers, 1 its readers. If one of these also
            leads to another, it is one level further out.
        links: Pairs of tensors: the second is computed from the first.
    """

    centre: Edge
    inputs: Sequence[Edge]
    outputs: Sequence[Edge]
    levels: Mapping[int, Sequence[Edge]]
    links: Sequence[tuple[str, str]]


def find_neighbourhood(
    graph: Graph, table: NodeTable, row: int, *, is_reference: bool = False, depth: int = 3
) -> Neighbourhood:
    """Find the producers and readers of a row.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        row: The row.
        is_reference: Whether the graph and the row's tensor are the reference's.
        depth: Number of levels in each direction.
    """
    tensor = tensor_of(table, row, is_reference=is_reference)
    centre = edge_of(graph, table, tensor, is_reference=is_reference)

    def producers_of(name: str) -> Sequence[Edge]:
        return inputs_of(graph, table, name, is_reference=is_reference)

    def readers_of(name: str) -> Sequence[Edge]:
        return outputs_of(graph, table, name, is_reference=is_reference)

    outputs = readers_of(tensor)
    edges_before, edges_after = (
        _edges_within(tensor, producers_of, depth),
        _edges_within(tensor, readers_of, depth, first_edges=outputs),
    )
    edges_after = {name: edge for name, edge in edges_after.items() if name not in edges_before}
    inputs_by_name = {
        name: [edge.tensor for edge in producers_of(name)] for name in (*edges_before, tensor, *edges_after)
    }
    level_of = {tensor: 0}
    for name in sorted(edges_before, key=lambda name: -_position(graph, name)):
        adjacent_levels = [at for reader, at in level_of.items() if name in inputs_by_name[reader]]
        level_of[name] = -1 if edges_before[name].constant else min(adjacent_levels, default=0) - 1
    for name in sorted(edges_after, key=lambda name: _position(graph, name)):
        adjacent_levels = [level_of[source] for source in inputs_by_name[name] if level_of.get(source, -1) >= 0]
        level_of[name] = max(adjacent_levels, default=0) + 1
    edges = {
        name: edge
        for name, edge in {**edges_before, tensor: centre, **edges_after}.items()
        if abs(level_of[name]) <= depth
    }
    levels: dict[int, list[Edge]] = {}
    for name, edge in edges.items():
        levels.setdefault(level_of[name], []).append(edge)
    links = [
        (source, name)
        for name in edges
        for source in inputs_by_name[name]
        if source in edges and level_of[source] < level_of[name] and (name == tensor or not edges[source].constant)
    ]
    return Neighbourhood(
        centre=centre, inputs=producers_of(tensor), outputs=outputs, levels=dict(sorted(levels.items())), links=links
    )


def _edges_within(
    start: str, find_edges: FindEdges, depth: int, *, first_edges: Sequence[Edge] | None = None
) -> dict[str, Edge]:
    """Return the edges that are reached in up to `depth` steps, by tensor.

    Constants are included only in the first step.

    Args:
        start: The tensor to start from.
        find_edges: Returns the edges one step away from a tensor.
        depth: Maximum number of steps.
        first_edges: The edges of the first step, if already known.
    """
    edges: dict[str, Edge] = {}
    frontier = [start]
    for distance in range(depth):
        edges_reached = (
            first_edges
            if first_edges is not None and not distance
            else [edge for name in frontier for edge in find_edges(name)]
        )
        new_edges = [edge for edge in edges_reached if not distance or not edge.constant]
        new_edges = [edge for edge in new_edges if edge.tensor != start and edge.tensor not in edges]
        nearest = {edge.tensor: edge for edge in (new_edges if not distance else new_edges[:_MAX_PER_LEVEL])}
        edges |= nearest
        frontier = [name for name, edge in nearest.items() if not edge.constant][:_MAX_PER_LEVEL]
    return edges


def _position(graph: Graph, tensor: str) -> int:
    position = graph.position(tensor)
    return -1 if position is None else position
