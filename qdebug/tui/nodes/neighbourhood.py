"""The neighbourhood of a row in the graph: several levels of producers and readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qdebug.tui.nodes.walk import Edge, edge_of, inputs_of, outputs_of, tensor_of

if TYPE_CHECKING:
    from qdebug.model import Graph
    from qdebug.tui.nodes.rows import NodeTable

__all__ = ["Neighbourhood", "neighbourhood"]

_MOST = 8
"""Maximum number of tensors per level beyond the first. Terminals cannot show more."""

Step = Callable[[str], Sequence[Edge]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """A row with its producers and readers.

    Args:
        centre: The row itself.
        inputs: Tensors that its node reads, including constants; the largest error first.
        outputs: Tensors computed from it, in topological order.
        levels: The tensors of each level: 0 is the row itself, -1 its producers, 1 its readers. A tensor that also
            leads to another shown tensor is placed one level further out.
        links: Pairs of tensors, of which the second is computed from the first.
    """

    centre: Edge
    inputs: Sequence[Edge]
    outputs: Sequence[Edge]
    levels: Mapping[int, Sequence[Edge]]
    links: Sequence[tuple[str, str]]


def neighbourhood(graph: Graph, table: NodeTable, row: int, *, theirs: bool = False, depth: int = 3) -> Neighbourhood:
    """Find the producers and readers of a row.

    Args:
        graph: The backend's graph, or the reference's.
        table: The rows.
        row: The row.
        theirs: Whether the graph and the row's tensor are the reference's.
        depth: Number of levels in each direction.
    """
    tensor = tensor_of(table, row, theirs=theirs)
    centre = edge_of(graph, table, tensor, theirs=theirs)

    def above(name: str) -> Sequence[Edge]:
        return inputs_of(graph, table, name, theirs=theirs)

    def below(name: str) -> Sequence[Edge]:
        return outputs_of(graph, table, name, theirs=theirs)

    outputs = below(tensor)
    before, after = _reached(tensor, above, depth), _reached(tensor, below, depth, first=outputs)
    after = {name: edge for name, edge in after.items() if name not in before}
    reads = {name: [edge.tensor for edge in above(name)] for name in (*before, tensor, *after)}
    level = {tensor: 0}
    for name in sorted(before, key=lambda name: -_place(graph, name)):
        near = [at for reader, at in level.items() if name in reads[reader]]
        level[name] = -1 if before[name].constant else min(near, default=0) - 1
    for name in sorted(after, key=lambda name: _place(graph, name)):
        near = [level[source] for source in reads[name] if level.get(source, -1) >= 0]
        level[name] = max(near, default=0) + 1
    edges = {name: edge for name, edge in {**before, tensor: centre, **after}.items() if abs(level[name]) <= depth}
    levels: dict[int, list[Edge]] = {}
    for name, edge in edges.items():
        levels.setdefault(level[name], []).append(edge)
    links = [
        (source, name)
        for name in edges
        for source in reads[name]
        if source in edges and level[source] < level[name] and (name == tensor or not edges[source].constant)
    ]
    return Neighbourhood(
        centre=centre, inputs=above(tensor), outputs=outputs, levels=dict(sorted(levels.items())), links=links
    )


def _reached(start: str, step: Step, depth: int, *, first: Sequence[Edge] | None = None) -> dict[str, Edge]:
    """Return the rows within a number of steps. The first step may be given, and only it may include constants."""
    edges: dict[str, Edge] = {}
    frontier = [start]
    for distance in range(depth):
        reached = first if first is not None and not distance else [edge for name in frontier for edge in step(name)]
        fresh = [edge for edge in reached if not distance or not edge.constant]
        fresh = [edge for edge in fresh if edge.tensor != start and edge.tensor not in edges]
        nearest = {edge.tensor: edge for edge in (fresh if not distance else fresh[:_MOST])}
        edges |= nearest
        frontier = [name for name, edge in nearest.items() if not edge.constant][:_MOST]
    return edges


def _place(graph: Graph, tensor: str) -> int:
    place = graph.position(tensor)
    return -1 if place is None else place
