"""The layout of a node that has none of its own, by the nodes before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.units import Units, channels_last
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.model.thresholds.explanation import LAYOUT_SEARCH_MAX_NODES

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
    assert source("MaxPool", **pool).only_moves_codes
    assert not source("MaxPool", replace(ROUND, scale=np.float32(0.25)), **pool).only_moves_codes
    assert not source("MaxPool", replace(ROUND, zero_point=4), **pool).only_moves_codes
    assert not source("AveragePool", **pool).only_moves_codes


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
    assert units.missing(graph.nodes[0], "y") == "no sample has both its inputs and its output"
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
    assert (found.bad_scale_text, found.zero_scales_text) == (flaw, void)


def added(scales, out=0.5):
    """Return the unit of a sum of codes with these scales."""
    names = [f"x{at}" for at in range(len(scales))]
    node = Node(
        name="n", op="Concat" if len(scales) > 2 else "Add", inputs=tuple(names), outputs=("y",), attrs={"axis": 0}
    )
    given = [*zip(names, scales, strict=True), ("y", out)]
    infos = [
        TensorInfo(name=name, dtype="int8", quant=replace(ROUND, scale=np.asarray(scale, np.float32)))
        for name, scale in given
    ]
    graph = Graph([node], tensors=infos, inputs=names, outputs=["y"], opset={"": 17})
    made = dict.fromkeys(names, np.arange(4, dtype=np.int8))
    result = np.zeros(4 * len(scales) if len(scales) > 2 else 4, np.int8)
    return Units(MemoryRecording.single(graph, made | {"y": result})).find(node, "y")


@pytest.mark.parametrize(
    ("scales", "out", "flaw"),
    [
        ((0.5, np.nan), 0.5, "a scale of its second operand is nan, so nothing can be computed"),
        ((0.5, 0.5, -np.inf), 0.5, "a scale of its operand 3 is -inf, so nothing can be computed"),
        ((0.5, 0.5), np.nan, "the scale of its output is nan, so nothing can be computed"),
        ((0.5, 0.5), np.inf, "the scale of its output is inf, so nothing can be computed"),
        ((0.5, 0.5), 0.0, "the scale of its output is 0, so nothing can be computed"),
        ((0.5, 0.5), -0.25, "the scale of its output is -0.25, so nothing can be computed"),
        ((np.nan, 0.5), 0.0, "a scale of its first operand is nan, so nothing can be computed"),
        ((0.5, -0.5), 0.5, None),
        ((0.0, 0.5), 0.5, None),
    ],
)
def test_the_first_scale_that_nothing_can_be_computed_with_is_said(scales, out, flaw):
    assert added(scales, out).bad_scale_text == flaw


def test_the_operand_that_stands_for_0_alone_is_said():
    assert added((0.5, 0.0)).zero_scales_text == "every scale of its second operand is 0, so that all its values are 0"
    assert added((0.5, 0.5, 0.0)).zero_scales_text == "every scale of its operand 3 is 0, so that all its values are 0"
    assert added((0.5, 0.5)).zero_scales_text is None


@pytest.mark.parametrize(("between", "last"), [(LAYOUT_SEARCH_MAX_NODES - 1, True), (LAYOUT_SEARCH_MAX_NODES, False)])
def test_the_layout_is_looked_for_among_some_nodes_before(between, last):
    """Sums that follow one another, after a convolution whose channels come last."""
    nodes = [Node(name="conv", op="Conv", inputs=("x",), outputs=("t0",), attrs={"channels_last": 1})]
    sums = range(between)
    nodes += [Node(name=f"add{at}", op="Add", inputs=(f"t{at}", f"t{at}"), outputs=(f"t{at + 1}",)) for at in sums]
    graph = Graph(nodes, inputs=["x"], outputs=[f"t{between}"])
    assert channels_last(graph, nodes[-1]) == last


@pytest.mark.parametrize(
    ("op", "dtype", "quant", "quantized"),
    [
        ("QLinearAdd", None, None, True),
        ("Add", None, None, False),
        ("Add", "int8", ROUND, True),
        ("Add", None, ROUND, True),
        ("Add", "float32", ROUND, False),
        ("Add", "int8", None, False),
    ],
)
def test_a_node_is_quantized_if_it_carries_scales_or_gives_codes(op, dtype, quant, quantized):
    node = Node(name="n", op=op, inputs=("x", "x"), outputs=("y",))
    graph = Graph([node], tensors=[TensorInfo(name="y", dtype=dtype, quant=quant)], inputs=["x"], outputs=["y"])
    assert Units(MemoryRecording(graph, {})).quantized(node, "y") == quantized


def test_a_clamp_or_a_group_hands_on_no_codes_as_they_are():
    assert source("Relu").only_moves_codes is False
    assert source("Identity").only_moves_codes is True
    assert source("Clip", min=-100.0, max=100.0).only_moves_codes is False
