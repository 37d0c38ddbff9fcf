"""Parts of two graphs between compared tensors, which each of the two may compute in its own way."""

from __future__ import annotations

from collections.abc import Collection

from qdebug.analysis.value_classes import ValueClasses

__all__ = ["MOST_NODES", "between"]

MOST_NODES = 64
"""A part with more tensors than this is not taken for one that is merely computed in another way."""


def between(classes: ValueClasses, tensor: str, ends: Collection[str]) -> tuple[set[str], set[str]] | None:
    """Find what lies between a tensor and the nearest given ones above it.

    Args:
        classes: Classes of the graph.
        tensor: Where the part ends.
        ends: Roots of the classes where it may begin.

    Returns:
        The tensors in between, and the roots where it begins; None if an input of the network that is not among `ends`
        leads there, or if the part is too large.
    """
    inside: set[str] = set()
    reached: set[str] = set()
    own = classes.root(tensor)
    waiting = [tensor]
    while waiting:
        node = classes.graph.producer(waiting.pop())
        if node is None or len(inside) > MOST_NODES:
            return None
        for name in classes.data_inputs(node):
            root = classes.root(name)
            if root in ends and root != own:
                reached.add(root)
            elif name not in inside:
                inside.add(name)
                waiting.append(name)
    return inside, reached
