"""What is understood of a graph: a layout such as "NHWC" as the attribute of a node, quantizers in any words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qdebug.model import operators
from qdebug.model.graph import Graph, Node

__all__ = ["as_understood", "is_channels_last"]


def is_channels_last(layout: str | None) -> bool:
    """Tell whether a layout has its channels last, as "NHWC" has.

    Args:
        layout: One letter for each dimension; None says nothing.
    """
    return layout in ("NHWC", "NDHWC", "NWC", "NLC", "NTC")


def as_understood(graph: Graph) -> Graph:
    """Return a graph in which nodes say what kernels and searches ask for; itself if they do.

    A node says `channels_last=1` where only the layout of a tensor does; one that states it, as 0 or 1, keeps it. What
    makes codes of real numbers, or the reverse, does so by the scale of the codes in any framework: it is said in words
    of ONNX.

    Args:
        graph: The graph of a recording.
    """
    laid_out = any(is_channels_last(info.layout) for info in graph.tensors.values())
    if not laid_out and not any(_converts_in_other_words(node) for node in operators.kinds_of(graph.nodes)):
        return graph
    stated = [_stated(graph, _in_onnx(node)) if laid_out else _in_onnx(node) for node in graph.nodes]
    if all(one is other for one, other in zip(stated, graph.nodes, strict=True)):
        return graph
    return Graph(
        stated,
        tensors=graph.tensors.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def _converts_in_other_words(node: Node) -> bool:
    return operators.is_foreign(node) and operators.of(operators.in_words_of_onnx(node).op).converts_codes


def _in_onnx(node: Node) -> Node:
    return operators.in_words_of_onnx(node) if _converts_in_other_words(node) else node


def _stated(graph: Graph, node: Node) -> Node:
    """Return a node with the attribute if what it gives, or else what it reads, is said to have channels last."""
    if "channels_last" in node.attrs or not operators.has_channels_second(operators.in_words_of_onnx(node).op):
        return node
    said = next(filter(None, _layouts(graph, node)), None)
    return replace(node, attrs={**node.attrs, "channels_last": 1}) if is_channels_last(said) else node


def _layouts(graph: Graph, node: Node) -> Iterator[str | None]:
    for name in (*node.outputs[:1], *node.inputs[:1]):
        if name:
            yield graph.tensors[name].layout
