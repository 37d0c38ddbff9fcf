"""Ways through a graph: what depends on some tensors, what they depend on, and what lies in between."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdebug.model import Graph, Node

__all__ = ["between", "downstream", "part_of", "upstream"]


def between(graph: Graph, tensor: str, compared: Container[str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
    """Return the nodes between a tensor and the nearest compared tensors above it, in order, and these tensors.

    Args:
        graph: A graph.
        tensor: One of its tensors.
        compared: The tensors where the search ends; `tensor` itself does not end it.
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
    ordered = sorted(nodes.values(), key=lambda each: graph.position(next(filter(None, each.outputs))) or 0)
    return tuple(ordered), tuple(entries)


def downstream(graph: Graph, tensors: Iterable[str]) -> set[str]:
    """Return the tensors that depend on any of some tensors, these included."""
    found = set(tensors)
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs):
            found.update(filter(None, node.outputs))
    return found


def upstream(graph: Graph, tensors: Sequence[str]) -> set[str]:
    """Return the tensors that some tensors depend on, these included."""
    waiting, seen = list(tensors), set(tensors)
    while waiting:
        producer = graph.producer(waiting.pop())
        fresh = [name for name in (producer.inputs if producer else ()) if name and name not in seen]
        waiting.extend(fresh)
        seen.update(fresh)
    return seen


def part_of(graph: Graph, name: str, compared: Container[str]) -> str | None:
    """Return the compared tensor that judges a node or tensor which is not compared itself; None if there is none.

    It is the first one in topological order that is computed of it through tensors that are not compared.

    Args:
        graph: A graph.
        name: A node or tensor of it.
        compared: The tensors that are compared.
    """
    node = next((each for each in graph.nodes if each.name == name), None) or graph.producer(name)
    inside = set() if node is None else set(filter(None, node.outputs))
    for each in graph.nodes if inside else ():
        if each is node or not inside.isdisjoint(each.inputs):
            found = next((output for output in each.outputs if output in compared), None)
            if found is not None:
                return found
            inside.update(filter(None, each.outputs))
    return None
