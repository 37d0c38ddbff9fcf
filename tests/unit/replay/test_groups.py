"""Which parts of a QDQ graph are one unit, and which are not."""

import numpy as np
import pytest

from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.replay.groups import find_groups, fuse

S = QuantParams(dtype="uint8", scale=np.float32(0.5), zero_point=3)
T = QuantParams(dtype="uint8", scale=np.float32(0.25), zero_point=7)
BIAS = QuantParams(dtype="int32", scale=np.float32(0.125))


def dq(codes, out):
    return Node(name=f"dq_{codes}", op="DequantizeLinear", inputs=(codes, "s", "z"), outputs=(out,))


def q(real, out):
    return Node(name=f"q_{real}", op="QuantizeLinear", inputs=(real, "s", "z"), outputs=(out,))


def graph(*nodes, quants=None, outputs=("y",), constants=("w", "b", "low", "high")):
    quants = {"x": S, "y": T, "w": S, "x2": S} | (quants or {})
    tensors = [TensorInfo(name=name, dtype=quant.dtype, quant=quant) for name, quant in quants.items()]
    tensors = [
        TensorInfo(name=info.name, dtype=info.dtype, quant=info.quant, role=Role.CONSTANT)
        if info.name in constants
        else info
        for info in tensors
    ]
    tensors += [TensorInfo(name=name, role=Role.CONSTANT) for name in constants if name not in quants]
    return Graph(nodes, tensors=tensors, inputs=("x", "x2"), outputs=outputs, name="net", opset={"": 13})


def conv(*extra):
    return Node(name="c", op="Conv", inputs=("xf", "wf", *extra), outputs=("cf",), attrs={"pads": (1, 1, 1, 1)})


def test_dequantize_conv_quantize_is_one_node_on_codes():
    whole = graph(dq("x", "xf"), dq("w", "wf"), conv(), q("cf", "y"))
    (group,) = find_groups(whole)
    assert [node.op for node in group.members] == ["DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"]
    assert group.interior == {"cf"}
    fused = fuse(whole)
    (node,) = fused.nodes
    assert (node.name, node.op, node.inputs, node.outputs) == ("c", "Conv", ("x", "w"), ("y",))
    assert node.attrs["pads"] == (1, 1, 1, 1)
    assert node.origin == ("dq_x", "dq_w", "c", "q_cf")
    assert fused.tensors["y"].quant == T
    assert fused.is_constant("w")
    assert (fused.inputs, fused.outputs, fused.opset) == (whole.inputs, whole.outputs, whole.opset)
    assert "cf" not in fused.tensors


@pytest.mark.parametrize("bias", ["b", "bf"])
def test_a_bias_is_codes_of_32_bits_or_a_constant(bias):
    nodes = [dq("x", "xf"), dq("w", "wf"), dq("b", "bf"), conv(bias), q("cf", "y")]
    fused = fuse(graph(*nodes, quants={"b": BIAS}))
    assert [node.op for node in fused.nodes] == (["Conv"])
    assert fused.nodes[0].inputs == ("x", "w", "b")


def test_a_bias_that_is_computed_is_no_bias_of_a_kernel():
    whole = graph(dq("x", "xf"), dq("w", "wf"), conv("x2"), q("cf", "y"))
    assert find_groups(whole) == ()
    assert fuse(whole) is whole


def test_codes_of_32_bits_are_no_operand():
    whole = graph(dq("x", "xf"), dq("w", "wf"), conv(), q("cf", "y"), quants={"w": BIAS})
    assert find_groups(whole) == ()


@pytest.mark.parametrize(
    ("activation", "attrs"),
    [
        (Node(name="a", op="Relu", inputs=("cf",), outputs=("af",)), {"activation": "Relu"}),
        (
            Node(name="a", op="Clip", inputs=("cf", "low", "high"), outputs=("af",)),
            {"activation": "Clip", "activation_params": (0.0, 6.0)},
        ),
        (
            Node(name="a", op="Clip", inputs=("cf",), outputs=("af",), attrs={"min": 0.0}),
            {"activation": "Clip", "activation_params": (0.0, float("inf"))},
        ),
    ],
)
def test_an_activation_is_fused(activation, attrs):
    whole = graph(dq("x", "xf"), dq("w", "wf"), conv(), activation, q("af", "y"))
    (group,) = find_groups(whole, {"low": np.float32(0), "high": np.float32(6)})
    assert {name: group.node.attrs[name] for name in attrs} == attrs
    assert group.interior == {"cf", "af"}


def test_a_clip_with_unknown_bounds_is_left_alone():
    clip = Node(name="a", op="Clip", inputs=("cf", "low", "high"), outputs=("af",))
    assert find_groups(graph(dq("x", "xf"), dq("w", "wf"), conv(), clip, q("af", "y"))) == ()


def test_an_activation_of_its_own_is_a_unit():
    relu = Node(name="a", op="Relu", inputs=("xf",), outputs=("af",))
    assert [node.op for node in fuse(graph(dq("x", "xf"), relu, q("af", "y"))).nodes] == ["Relu"]


@pytest.mark.parametrize("seen", ["reader", "output"])
def test_a_result_that_others_see_is_not_interior(seen):
    nodes = [dq("x", "xf"), dq("w", "wf"), conv(), q("cf", "y")]
    if seen == "reader":
        whole = graph(*nodes, Node(name="n", op="Neg", inputs=("cf",), outputs=("n",)), outputs=("y", "n"))
    else:
        whole = graph(*nodes, outputs=("y", "cf"))
    assert fuse(whole) is whole


def test_a_dequantization_that_others_read_stays():
    nodes = [
        dq("x", "xf"),
        dq("w", "wf"),
        conv(),
        q("cf", "y"),
        Node(name="n", op="Neg", inputs=("xf",), outputs=("n",)),
    ]
    fused = fuse(graph(*nodes, outputs=("y", "n")))
    assert sorted(node.op for node in fused.nodes) == ["Conv", "DequantizeLinear", "Neg"]


def test_a_dequantization_may_serve_several_units():
    add = Node(name="add", op="Add", inputs=("xf", "xf"), outputs=("af",))
    mul = Node(name="mul", op="Mul", inputs=("xf", "x2f"), outputs=("mf",))
    whole = graph(
        dq("x", "xf"), dq("x2", "x2f"), add, mul, q("af", "y"), q("mf", "y2"), quants={"y2": T}, outputs=("y", "y2")
    )
    fused = fuse(whole)
    assert [(node.op, node.inputs) for node in fused.nodes] == [("Add", ("x", "x")), ("Mul", ("x", "x2"))]


def test_what_only_moves_codes_needs_the_same_parameters_on_both_sides():
    move = Node(name="m", op="Reshape", inputs=("xf", "b"), outputs=("mf",))
    nodes = [dq("x", "xf"), move, q("mf", "y")]
    assert find_groups(graph(*nodes)) == ()
    (node,) = fuse(graph(*nodes, quants={"y": S})).nodes
    assert node.inputs == ("x", "b")


def test_any_number_of_tensors_is_joined_if_all_are_codes():
    join = Node(name="j", op="Concat", inputs=("xf", "x2f", "xf"), outputs=("jf",), attrs={"axis": 1})
    nodes = [dq("x", "xf"), dq("x2", "x2f"), join, q("jf", "y")]
    assert fuse(graph(*nodes)).nodes[0].inputs == ("x", "x2", "x")
    half = Node(name="j", op="Concat", inputs=("xf", "x2"), outputs=("jf",), attrs={"axis": 1})
    assert find_groups(graph(dq("x", "xf"), half, q("jf", "y"))) == ()


def test_an_operand_without_stated_parameters_is_none():
    whole = graph(dq("x", "xf"), dq("u", "wf"), conv(), q("cf", "y"))
    assert find_groups(whole) == ()


def test_operators_of_other_domains_are_left_alone():
    strange = Node(name="c", op="Conv", inputs=("xf", "wf"), outputs=("cf",), domain="com.example")
    assert find_groups(graph(dq("x", "xf"), dq("w", "wf"), strange, q("cf", "y"))) == ()


def test_blocks_of_scales_are_left_alone():
    blocks = QuantParams(dtype="uint8", scale=np.ones((2, 2), np.float32), axis=0, block_size=2)
    whole = graph(dq("x", "xf"), dq("w", "wf"), conv(), q("cf", "y"), quants={"w": blocks})
    assert find_groups(whole) == ()
