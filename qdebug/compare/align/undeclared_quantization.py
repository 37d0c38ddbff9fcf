"""Recognizes runs that compute with codes but do not declare where, and store rounded values as real numbers."""

from __future__ import annotations

from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.model import Graph, Node, Recording, Role, operators
from qdebug.model.operators import is_foreign, kinds_of, with_onnx_op

__all__ = ["computes_with_codes", "has_loosely_described_nodes", "is_loosely_described"]

_CODES = frozenset({"int8", "uint8", "int4", "uint4"})


def is_loosely_described(node: Node) -> bool:
    """Return whether a recording describes a node in the terms of a different framework, or not at all."""
    return has_unknown_inputs(node) or is_foreign(node)


def has_loosely_described_nodes(graph: Graph) -> bool:
    """Return whether any node of a graph is described in the terms of a different framework, or not at all."""
    return any(map(has_unknown_inputs, graph.nodes)) or any(map(is_foreign, kinds_of(graph.nodes)))


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
