"""What a recorded layout such as "NHWC" says of the nodes that tell channels from other dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qdebug.model import operators
from qdebug.model.graph import Graph, Node

__all__ = ["is_channels_last", "with_stated_layouts"]


def is_channels_last(layout: str | None) -> bool:
    """Tell whether a layout has its channels last, as "NHWC" has.

    Args:
        layout: One letter for each dimension; None says nothing.
    """
    return layout in ("NHWC", "NDHWC", "NWC", "NLC", "NTC")


def with_stated_layouts(graph: Graph) -> Graph:
    """Return a graph whose nodes say `channels_last=1` where only the layout of a tensor does; itself if none do.

    Kernels and searches read that attribute. A node that states it, as 0 or 1, keeps it.

    Args:
        graph: The graph of a recording.
    """
    if not any(is_channels_last(info.layout) for info in graph.tensors.values()):
        return graph
    stated = [_stated(graph, node) for node in graph.nodes]
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
