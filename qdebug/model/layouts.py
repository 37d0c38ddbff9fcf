"""Normalize recorded graphs: layouts become node attributes, and quantizers of all frameworks become ONNX operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qdebug.model import operators
from qdebug.model.graph import Graph, Node

__all__ = ["is_channels_last", "normalize_layouts"]


def is_channels_last(layout: str | None) -> bool:
    """Return whether a layout has channels last, such as "NHWC".

    Args:
        layout: One letter per dimension; None if unknown.
    """
    return layout in ("NHWC", "NDHWC", "NWC", "NLC", "NTC")


def normalize_layouts(graph: Graph) -> Graph:
    """Return a graph whose nodes state layouts and quantizers as kernels expect; the same graph if they already do.

    A node gets `channels_last=1` if only the layout of its tensors states it; an existing attribute is kept. Operators
    of other frameworks that convert between codes and real numbers become ONNX operators.

    Args:
        graph: The graph of a recording.
    """
    has_layouts = any(is_channels_last(info.layout) for info in graph.tensors.values())
    if not has_layouts and not any(_is_foreign_quantizer(node) for node in operators.kinds_of(graph.nodes)):
        return graph
    nodes = [
        _with_layout(graph, _quantizer_in_onnx(node)) if has_layouts else _quantizer_in_onnx(node)
        for node in graph.nodes
    ]
    if all(new_node is old_node for new_node, old_node in zip(nodes, graph.nodes, strict=True)):
        return graph
    return Graph(
        nodes,
        tensors=graph.tensors.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def _is_foreign_quantizer(node: Node) -> bool:
    return operators.is_foreign(node) and operators.of(operators.with_onnx_op(node).op).converts_codes


def _quantizer_in_onnx(node: Node) -> Node:
    return operators.with_onnx_op(node) if _is_foreign_quantizer(node) else node


def _with_layout(graph: Graph, node: Node) -> Node:
    """Return a node with `channels_last=1` if its first output, or else its first input, has channels last."""
    if "channels_last" in node.attrs or not operators.has_channels_second(operators.with_onnx_op(node).op):
        return node
    layout = next(filter(None, _iterate_layouts(graph, node)), None)
    return replace(node, attrs={**node.attrs, "channels_last": 1}) if is_channels_last(layout) else node


def _iterate_layouts(graph: Graph, node: Node) -> Iterator[str | None]:
    """Yield the layouts of a node's first output and first input."""
    for name in (*node.outputs[:1], *node.inputs[:1]):
        if name:
            yield graph.tensors[name].layout
