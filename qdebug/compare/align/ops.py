"""What an optimizer may do with nodes: fold one into another, let one stand for another."""

from __future__ import annotations

from qdebug.model import Graph, Node, operators

__all__ = [
    "alike",
    "clamps_at_zero",
    "goes_into_weights",
    "says_nothing",
]


def goes_into_weights(reader: Node, node: Node) -> bool:
    """Tell whether what reads a node can have been folded into the node's constants, be it with one of its own.

    A product without bias can be scaled by its weights, but nothing can be added to it. A factor takes in factors, and
    a term terms.
    """
    row, neutral = operators.of(reader.op), operators.plain(node).neutral
    if not row.goes_into_weights:
        return False
    if neutral is not None:
        return row.neutral == neutral
    return row.neutral == 1 or _takes_bias(node)


def _takes_bias(node: Node) -> bool:
    """Tell whether a node reads a bias; of a plain product it is assumed, which may be recorded with its data alone."""
    row = operators.of(node.op)
    if row.bias is None:
        return not operators.plain(node).product
    return row.product or any(node.inputs[row.bias : row.bias + 1])


def says_nothing(node: Node) -> bool:
    """Tell whether nobody said what a node reads: a harness may hand over values and know nothing of the graph."""
    return not any(node.inputs) and not operators.of(node.op).reads_nothing


def alike(one: Node, other: Node) -> bool:
    """Tell whether two nodes of either graph can do the same: never where one gives sums of codes and no real numbers.

    Such sums have no scale; what multiplies them with one answers to the other.
    """
    sums = operators.of(one.op).sums_codes, operators.of(other.op).sums_codes
    return sums[0] == sums[1] and operators.same_family(one, other)


def clamps_at_zero(graph: Graph, tensor: str) -> bool:
    """Tell whether a tensor is the output of a Relu, be it fused, seen through nodes that keep or pick values."""
    for _ in range(len(graph.nodes)):
        node = graph.producer(tensor)
        if node is None:
            return False
        row = operators.of(node.op)
        if row.least == 0 or operators.of(operators.fused_activation(node) or "").least == 0:
            return True
        if row.bounded and node.attrs.get("min") == 0.0:
            return True
        if not (row.keeps_values or row.arranges or row.unit == "max_pool") or not node.inputs:
            return False
        tensor = node.inputs[0]
    return False
