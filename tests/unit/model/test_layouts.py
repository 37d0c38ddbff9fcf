"""Nodes state what only the layout of a tensor says, and nothing else changes."""

import pytest

from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.model.layouts import is_channels_last, normalize_layouts


def graph_of(op, *, given=None, read=None, attrs=None):
    node = Node(name="n", op=op, inputs=("x",), outputs=("y",), attrs=attrs or {})
    infos = [TensorInfo(name="x", layout=read, role=Role.INPUT), TensorInfo(name="y", layout=given)]
    return Graph([node], tensors=infos, inputs=("x",), outputs=("y",), opset={"": 18})


@pytest.mark.parametrize("op", ["Conv", "QLinearConv", "conv2d", "MaxPool", "QLinearGlobalAveragePool", "LRN"])
@pytest.mark.parametrize(("given", "read"), [("NHWC", None), (None, "NHWC"), ("NHWC", "NHWC"), ("NLC", None)])
def test_a_node_that_tells_channels_apart_states_its_layout(op, given, read):
    graph = normalize_layouts(graph_of(op, given=given, read=read))
    assert graph.nodes[0].attrs["channels_last"] == 1
    assert (graph.inputs, graph.outputs, dict(graph.opset)) == (("x",), ("y",), {"": 18})


@pytest.mark.parametrize(
    ("op", "given", "read", "attrs"),
    [
        ("Conv", "NCHW", None, {}),
        ("Conv", "NCHW", "NHWC", {}),
        ("Conv", None, None, {}),
        ("Conv", "NHWC", None, {"channels_last": 0}),
        ("Conv", "NHWC", None, {"channels_last": 1}),
        ("Relu", "NHWC", None, {}),
        ("MatMul", "NHWC", None, {}),
        ("Resize", "NHWC", None, {}),
        ("NhwcMaxPool", "NHWC", None, {}),
    ],
)
def test_what_is_stated_already_or_says_nothing_is_left_as_it_is(op, given, read, attrs):
    graph = graph_of(op, given=given, read=read, attrs=attrs)
    assert normalize_layouts(graph) is graph


def test_channels_last_are_those_at_the_end():
    assert is_channels_last("NHWC")
    assert not is_channels_last("NCHW")
    assert not is_channels_last("NCHW8c")
    assert not is_channels_last(None)
