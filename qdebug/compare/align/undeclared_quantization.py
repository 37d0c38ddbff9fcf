"""Recognizes runs that do not declare where they compute with codes and keep rounded values as real numbers."""

from __future__ import annotations

from qdebug.compare.align.expand import says_nothing
from qdebug.model import Graph, Node, Recording, Role, operators
from qdebug.model.operators import is_foreign, kinds_of, with_onnx_op

__all__ = ["computes_with_codes", "has_loose", "is_loose"]

_CODES = frozenset({"int8", "uint8", "int4", "uint4"})


def is_loose(node: Node) -> bool:
    """Return whether a recording describes a node in the terms of a different framework, or not at all."""
    return says_nothing(node) or is_foreign(node)


def has_loose(graph: Graph) -> bool:
    """Return whether any node of a graph is loose."""
    return any(map(says_nothing, graph.nodes)) or any(map(is_foreign, kinds_of(graph.nodes)))


def computes_with_codes(recording: Recording) -> bool:
    """Return whether a run holds codes: a tensor with a scale, low-bit integers, or a quantizer.

    Args:
        recording: The run.
    """
    graph = recording.graph
    rows = (operators.plain(with_onnx_op(node)) for node in kinds_of(graph.nodes))
    if any(row.converts_codes or row.fake_quantizes for row in rows):
        return True
    return any(
        info.quant is not None or (info.dtype in _CODES and info.role is not Role.CONSTANT)
        for info in graph.tensors.values()
    )
