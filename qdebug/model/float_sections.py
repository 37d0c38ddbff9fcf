"""Where a quantized graph computes in float: between dequantized and quantized codes, and with float weights."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.model import operators
from qdebug.model.dtypes import is_float, is_integer
from qdebug.model.graph import Graph, Node

__all__ = ["find_float_nodes", "find_float_weights"]


def find_float_nodes(graph: Graph) -> Sequence[Node]:
    """Return the nodes that compute in float between dequantized codes of data and codes quantized again."""
    real_tensors, real_nodes = set[str](), list[Node]()
    for node in graph.nodes:
        row = operators.of(node.op)
        if row.quantizes or _is_coded(graph, node.outputs):
            continue
        if not row.dequantizes:
            if real_tensors.isdisjoint(node.inputs):
                continue
            real_nodes.append(node)
        elif not node.inputs or graph.is_constant(node.inputs[0]):
            continue
        real_tensors.update(filter(None, node.outputs))
    # A quantize node passes only its data on.
    quantized_tensors = {node.inputs[0] for node in graph.nodes if node.inputs and operators.of(node.op).quantizes}
    float_nodes = []
    for node in reversed(real_nodes):
        if not quantized_tensors.isdisjoint(node.outputs):
            quantized_tensors.update(filter(None, node.inputs))
            float_nodes.append(node)
    return float_nodes[::-1]


def find_float_weights(graph: Graph) -> Sequence[Node]:
    """Return the products of quantized data, as codes or dequantized, and weights that are constants in float."""
    products = []
    for node in graph.nodes:
        if not operators.plain(node).product or operators.of(node.op).real is not None:
            continue
        data, weight = (operators.titled_input(node, title) for title in (0, 1))
        info = graph.tensors.get(weight)
        if info is None or not graph.is_constant(weight) or info.quant is not None or not is_float(info.dtype or ""):
            continue
        if _is_dequantized(graph, weight):  # stored as codes, although some runtimes dequantize them when they load
            continue
        if _is_dequantized(graph, data) or _is_coded(graph, [data]):
            products.append(node)
    return products


def _is_dequantized(graph: Graph, tensor: str) -> bool:
    producer = graph.producer(tensor)
    return producer is not None and operators.of(producer.op).dequantizes


def _is_coded(graph: Graph, names: Sequence[str]) -> bool:
    quants = [info.quant for name in names if (info := graph.tensors.get(name)) is not None]
    return any(quant is not None and is_integer(quant.dtype) for quant in quants)
