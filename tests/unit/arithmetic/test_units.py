"""The layout of a node that has none of its own, by the nodes before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.units import Units, channels_last
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo

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


ROUND = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=3)


def source(op, given=ROUND, **attrs):
    """Return a unit of a node that reads codes and gives codes of a scale of 0.5 and a zero point of 3."""
    node = Node(name="n", op=op, inputs=("x",), outputs=("y",), attrs=attrs)
    infos = [TensorInfo(name="x", quant=given, dtype="int8"), TensorInfo(name="y", quant=ROUND, dtype="int8")]
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17})
    codes = np.arange(16, dtype=np.int8).reshape(1, 1, 4, 4)
    made = {"x": codes, "y": codes[..., 1::2, 1::2] if op == "MaxPool" else codes}
    return Units(MemoryRecording.single(graph, made)).find(node, "y")


def test_a_node_that_picks_codes_moves_them_if_it_keeps_their_scale():
    pool = {"kernel_shape": (2, 2), "strides": (2, 2)}
    assert source("MaxPool", **pool).moves
    assert not source("MaxPool", replace(ROUND, scale=np.float32(0.25)), **pool).moves
    assert not source("MaxPool", replace(ROUND, zero_point=4), **pool).moves
    assert not source("AveragePool", **pool).moves


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({}, "its input 'x' was not recorded"),
        ({"y": np.zeros((1, 1, 4, 4), np.int8)}, "its input 'x' was not recorded"),
        ({"x": np.zeros((1, 1, 4, 4), np.int8)}, "its output 'y' was not recorded"),
    ],
)
def test_what_was_not_recorded_is_named(kept, said):
    graph = source("MaxPool", kernel_shape=(1, 1)).recording.graph
    assert Units(MemoryRecording.single(graph, kept)).missing(graph.nodes[0], "y") == said


def test_values_of_no_sample_together_are_missing():
    graph = source("MaxPool", kernel_shape=(1, 1)).recording.graph
    codes = np.zeros((1, 1, 4, 4), np.int8)
    apart = MemoryRecording(graph, {("x", 0, 0): codes, ("y", 1, 0): codes})
    units = Units(apart)
    assert units.missing(graph.nodes[0], "y") == "inputs and output were recorded for no sample together"
    both = Units(MemoryRecording(graph, {(name, at, 0): codes for name in "xy" for at in (0, 2)}))
    assert both.missing(graph.nodes[0], "y") is None
    assert both.places(graph.nodes[0], "y") == ((0, 0), (2, 0))


@pytest.mark.parametrize(
    ("scale", "flaw", "void"),
    [
        (np.nan, "a scale of its first operand is nan, so nothing can be computed", None),
        (np.inf, "a scale of its first operand is inf, so nothing can be computed", None),
        (0.0, None, "every scale of its first operand is 0, so that all its values are 0"),
        (0.5, None, None),
    ],
)
def test_a_scale_that_nothing_can_be_computed_with_is_said(scale, flaw, void):
    found = source("Relu", replace(ROUND, scale=np.float32(scale)))
    assert (found.flaw, found.void) == (flaw, void)
