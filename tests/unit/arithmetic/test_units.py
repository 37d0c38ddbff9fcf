"""The layout of a node that has none of its own, by the nodes before it."""

from __future__ import annotations

import pytest

from qdebug.arithmetic.units import channels_last
from qdebug.model import Graph, Node, TensorInfo

CHAIN = Graph(
    [
        Node(name="conv", op="Conv", inputs=("x",), outputs=("a",), attrs={"channels_last": 1}),
        Node(name="add", op="Add", inputs=("a", "b"), outputs=("c",)),
        Node(name="turn", op="Transpose", inputs=("c",), outputs=("d",)),
        Node(name="mul", op="Mul", inputs=("d", "d"), outputs=("e",)),
        Node(name="last", op="Conv", inputs=("e",), outputs=("f",)),
    ],
    inputs=["x", "b"],
    outputs=["f"],
)


@pytest.mark.parametrize(("name", "last"), [("conv", True), ("add", True), ("mul", False), ("last", False)])
def test_the_layout_comes_from_the_nodes_before(name, last):
    node = next(node for node in CHAIN.nodes if node.name == name)
    assert channels_last(CHAIN, node) is last


@pytest.mark.parametrize(("layout", "last"), [("NHWC", True), ("NCHW", False)])
def test_a_layout_that_was_said_goes_first(layout, last):
    node = Node(name="add", op="Add", inputs=("x", "x"), outputs=("y",))
    graph = Graph([node], tensors=[TensorInfo(name="y", layout=layout)], inputs=["x"], outputs=["y"])
    assert channels_last(graph, node) is last
