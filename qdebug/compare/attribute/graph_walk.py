"""Walks through a graph: upstream, downstream, and between given tensors."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdebug.model import Graph, Node

__all__ = ["between", "downstream", "part_of", "upstream"]


def between(graph: Graph, tensor: str, compared: Container[str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Return the nodes between a tensor and the nearest compared tensors upstream, and these compared tensors.

    The nodes are in topological order.

    Args:
        graph: A graph.
        tensor: One of its tensors.
        compared: The tensors where the search ends. `tensor` itself does not end it.
    """
    nodes: dict[str, Node] = {}
    entries: dict[str, None] = {}
    waiting = [tensor]
    while waiting:
        node = graph.producer(waiting.pop())
        if node is None or node.name in nodes:
            continue
        nodes[node.name] = node
        for name in filter(None, node.inputs):
            if name in compared:
                entries[name] = None
            else:
                waiting.append(name)
    ordered = sorted(nodes.values(), key=lambda node: graph.position(next(filter(None, node.outputs))) or 0)
    return tuple(ordered), tuple(entries)


def downstream(graph: Graph, tensors: Iterable[str]) -> set[str]:
    """Return the tensors that depend on any of the given tensors, including the given ones."""
    reached = set(tensors)
    for node in graph.nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(filter(None, node.outputs))
    return reached


def upstream(graph: Graph, tensors: Sequence[str]) -> set[str]:
    """Return the tensors that the given tensors depend on, including the given ones."""
    waiting, reached = list(tensors), set(tensors)
    while waiting:
        producer = graph.producer(waiting.pop())
        fresh = [name for name in (producer.inputs if producer else ()) if name and name not in reached]
        waiting.extend(fresh)
        reached.update(fresh)
    return reached


def part_of(graph: Graph, name: str, compared: Container[str]) -> str | None:
    """Return the compared tensor that is judged in place of an uncompared node or tensor, or None if there is none.

    It is the first compared tensor, in topological order, that depends on the node or tensor through uncompared
    tensors.

    Args:
        graph: A graph.
        name: A node or tensor of it.
        compared: The compared tensors.
    """
    node = next((graph_node for graph_node in graph.nodes if graph_node.name == name), None) or graph.producer(name)
    inside = set() if node is None else set(filter(None, node.outputs))
    for graph_node in graph.nodes if inside else ():
        if graph_node is node or not inside.isdisjoint(graph_node.inputs):
            compared_output = next((output for output in graph_node.outputs if output in compared), None)
            if compared_output is not None:
                return compared_output
            inside.update(filter(None, graph_node.outputs))
    return None
