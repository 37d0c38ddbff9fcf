"""Find where a quantized graph computes in float: between a dequantizer and a quantizer, and with float weights."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.model import operators
from qdebug.model.dtypes import is_float, is_integer
from qdebug.model.graph import Graph, Node

__all__ = ["find_float_nodes", "find_float_weights"]


def find_float_nodes(graph: Graph) -> Sequence[Node]:
    """Return the float nodes that lie between dequantized data and a node that quantizes it again."""
    real_tensors, real_nodes = set[str](), list[Node]()
    for node in graph.nodes:
        row = operators.of(node.op)
        if row.quantizes or _has_codes(graph, node.outputs):
            continue
        if not row.dequantizes:
            if real_tensors.isdisjoint(node.inputs):
                continue
            real_nodes.append(node)
        elif not node.inputs or graph.is_constant(node.inputs[0]):
            continue
        real_tensors.update(filter(None, node.outputs))
    # Only the first input of a quantizer is data. Its scale and zero point are not traced upstream.
    quantized_tensors = {node.inputs[0] for node in graph.nodes if node.inputs and operators.of(node.op).quantizes}
    float_nodes = []
    for node in reversed(real_nodes):
        if not quantized_tensors.isdisjoint(node.outputs):
            quantized_tensors.update(filter(None, node.inputs))
            float_nodes.append(node)
    return float_nodes[::-1]


def find_float_weights(graph: Graph) -> Sequence[Node]:
    """Return the products of quantized data (as codes or dequantized) and constant float weights."""
    products = []
    for node in graph.nodes:
        if not operators.plain(node).product or operators.of(node.op).real is not None:
            continue
        data, weight = (operators.titled_input(node, title) for title in (0, 1))
        info = graph.tensors.get(weight)
        if info is None or not graph.is_constant(weight) or info.quant is not None or not is_float(info.dtype or ""):
            continue
        if _is_dequantized(graph, weight):  # the weight is stored as codes, which some runtimes dequantize on loading
            continue
        if _is_dequantized(graph, data) or _has_codes(graph, [data]):
            products.append(node)
    return products


def _is_dequantized(graph: Graph, tensor: str) -> bool:
    producer = graph.producer(tensor)
    return producer is not None and operators.of(producer.op).dequantizes


def _has_codes(graph: Graph, names: Sequence[str]) -> bool:
    quants = [info.quant for name in names if (info := graph.tensors.get(name)) is not None]
    return any(quant is not None and is_integer(quant.dtype) for quant in quants)
