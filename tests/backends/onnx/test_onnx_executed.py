"""The graph that runs says which of the model's nodes and tensors it is made of."""

from __future__ import annotations

import pytest

from qdebug.backends.onnxruntime.executed import channel_block, describe
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo

NCHWC = "com.microsoft.nchwc"


def node(op: str, inputs: str, outputs: str, name: str = "", domain: str = "") -> Node:
    return Node(name=name or f"{op}:{outputs}", op=op, inputs=tuple(inputs.split()), outputs=(outputs,), domain=domain)


def graph(*nodes: Node, constants: str = "", known: tuple[TensorInfo, ...] = ()) -> Graph:
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants.split()]
    return Graph(nodes, tensors=[*tensors, *known], inputs=["x"], outputs=["y"], name="net")


def origins(described: Graph) -> dict[str, tuple[str, ...]]:
    return {n.name: n.origin for n in described.nodes}


SOURCE = graph(
    node("Conv", "x w b", "c", name="conv"),
    node("BatchNormalization", "c s o m v", "n", name="bn"),
    node("Relu", "n", "r", name="relu"),
    node("Add", "r x", "y", name="add"),
    constants="w b s o m v",
)


def test_folded_nodes_are_the_origin_of_what_they_were_folded_into():
    executed = graph(
        node("FusedConv", "x w2 b2", "r", name="conv"), node("Add", "r x", "y", name="add"), constants="w2 b2"
    )
    assert origins(describe(SOURCE, executed)) == {"conv": ("conv", "bn", "relu"), "add": ()}


def test_an_unchanged_graph_has_no_origins():
    assert set(origins(describe(SOURCE, SOURCE)).values()) == {()}


def test_one_node_turned_into_another_operator_has_itself_as_origin():
    source = graph(node("Relu", "x", "y", name="relu"))
    executed = graph(node("Clip", "x", "y", name="relu"))
    assert origins(describe(source, executed)) == {"relu": ("relu",)}


def test_nodes_beside_the_path_are_no_origin():
    source = graph(
        node("Neg", "x", "side", name="side"),
        node("Abs", "x", "h", name="abs"),
        node("Mul", "h side", "p", name="mul"),
        node("Relu", "p", "y", name="relu"),
    )
    executed = graph(
        node("Neg", "x", "side", name="side"), node("Abs", "x", "h", name="abs"), node("FusedMul", "h side", "y")
    )
    assert origins(describe(source, executed))["FusedMul:y"] == ("mul", "relu")


def test_weights_dequantized_on_the_way_in_belong_to_the_node():
    source = graph(
        node("DequantizeLinear", "wq ws wz", "w", name="w_dq"),
        node("DequantizeLinear", "xq xs xz", "xd", name="x_dq"),
        node("Conv", "xd w", "c", name="conv"),
        node("QuantizeLinear", "c ys yz", "cq", name="c_q"),
        node("DequantizeLinear", "cq ys yz", "y", name="y_dq"),
        node("QuantizeLinear", "x xs xz", "xq", name="x_q"),
        constants="wq ws wz xs xz ys yz",
    )
    executed = graph(
        node("QuantizeLinear", "x xs xz", "xq", name="x_q"),
        node("QLinearConv", "xq xs xz wq ws wz ys yz", "cq", name="conv"),
        node("DequantizeLinear", "cq ys yz", "y", name="y_dq"),
        constants="wq ws wz xs xz ys yz",
    )
    found = origins(describe(source, executed))
    assert set(found["conv"]) == {"w_dq", "x_dq", "conv", "c_q"}
    assert found["x_q"] == found["y_dq"] == ()


def copies(*more: Node, constants: str = "w s z") -> Graph:
    """A DequantizeLinear with two readers, each of which got one of its own."""
    return graph(
        node("DequantizeLinear", "w s z", "d1", name="dq/duplicated"),
        node("Abs", "d1", "a", name="abs"),
        *more,
        constants=constants,
    )


SHARED = graph(
    node("DequantizeLinear", "w s z", "d", name="dq"),
    node("Abs", "d", "a", name="abs"),
    node("Mul", "d a", "y", name="mul"),
    constants="w s z",
)


def test_a_copy_has_the_node_that_it_is_a_copy_of_as_origin_and_comes_after_it():
    own = node("DequantizeLinear", "w s z", "d", name="dq")
    described = describe(SHARED, copies(own, node("Mul", "d a", "y", name="mul")))
    assert origins(described) == {"dq": (), "dq/duplicated": ("dq",), "abs": (), "mul": ()}
    assert [n.name for n in described.nodes][:2] == ["dq", "dq/duplicated"]


def test_a_copy_has_it_as_origin_although_that_was_folded_away():
    described = describe(SHARED, copies(node("QLinearMul", "w a", "y", name="mul")))
    assert origins(described)["dq/duplicated"] == ("dq",)


def test_a_copy_has_it_as_origin_although_constants_that_are_equal_were_made_one():
    own = node("DequantizeLinear", "w s2 z", "d", name="dq")
    copy = node("DequantizeLinear", "w s2 z", "d1", name="dq/duplicated")
    executed = graph(
        copy, node("Abs", "d1", "a", name="abs"), own, node("Mul", "d a", "y", name="mul"), constants="w s2 z"
    )
    assert origins(describe(SHARED, executed))["dq/duplicated"] == ("dq",)


@pytest.mark.parametrize("inputs", ["w other z", "other s z"])
def test_what_reads_something_else_is_no_copy(inputs):
    other = node("DequantizeLinear", inputs, "d2", name="more")
    own = node("DequantizeLinear", "w s z", "d", name="dq")
    executed = copies(own, other, node("Mul", "d a", "y", name="mul"), constants="w s z other")
    assert origins(describe(SHARED, executed))["more"] == ()


def test_layout_changes_have_no_origin_and_blocked_tensors_a_layout():
    source = graph(node("Conv", "x w", "c", name="conv"), node("Relu", "c", "y", name="relu"), constants="w")
    weight = TensorInfo(name="r", shape=(32, 3, 3, 3), role=Role.CONSTANT)
    executed = graph(
        node("Conv", "x r", "t", name="c_nchwc", domain=NCHWC),
        node("ReorderOutput", "t", "c", domain=NCHWC),
        node("Relu", "c", "y", name="relu"),
        known=(weight,),
    )
    described = describe(source, executed, named_graph=source)
    assert origins(described) == {"c_nchwc": ("conv",), "ReorderOutput:c": (), "relu": ()}
    assert described.tensors["t"].stands_for == "c"
    assert described.tensors["t"].layout == "NCHW16c"
    assert described.tensors["c"].layout is None
    assert described.tensors["c"].stands_for is None


@pytest.mark.parametrize(
    ("channels", "block", "layout"), [(32, 16, "NCHW16c"), (32, 8, "NCHW8c"), (24, 16, "NCHW8c"), (24, 8, "NCHW8c")]
)
def test_the_block_size_is_the_processors_unless_padded_weights_refute_it(channels, block, layout):
    weight = TensorInfo(name="r", shape=(channels, 3, 3, 3), role=Role.CONSTANT)
    executed = graph(
        node("Conv", "x r", "t", domain=NCHWC), node("ReorderOutput", "t", "y", domain=NCHWC), known=(weight,)
    )
    assert describe(executed, executed, block=block).tensors["t"].layout == layout


@pytest.mark.parametrize(
    ("flags", "block"), [(("avx2", "avx512f"), 16), (("avx2", "fma"), 8), (("asimd",), 16), ((), 8)]
)
def test_processors_differ_in_the_size_of_a_block(flags, block):
    assert channel_block(flags) == block


def test_channels_last_operators_have_their_layout_said():
    turned = Node(
        name="conv", op="QLinearConv", inputs=("t",), outputs=("c",), attrs={"channels_last": 1}, domain="com.microsoft"
    )
    executed = graph(
        node("Transpose", "x", "t"),
        turned,
        node("NhwcMaxPool", "c", "p", domain="com.microsoft"),
        node("Transpose", "p", "y"),
    )
    tensors = describe(executed, executed).tensors
    assert {name: tensors[name].layout for name in "tcpy"} == {"t": None, "c": "NHWC", "p": "NHWC", "y": None}


def test_what_hangs_on_constants_alone_is_a_constant():
    executed = graph(
        node("DequantizeLinear", "wq ws", "w", name="dq"),
        node("RandomNormalLike", "w", "noise", name="noise"),
        node("Conv", "x w", "c", name="conv"),
        node("Add", "c noise", "y", name="add"),
        constants="wq ws",
    )
    described = describe(executed, executed)
    assert [name for name in described.tensors if described.is_constant(name)] == ["wq", "ws", "w"]


def test_what_a_tensor_stands_for_is_read_from_the_source():
    quant = QuantParams(dtype="uint8", scale=0.5)
    source = graph(
        node("QuantizeLinear", "x s", "xq", name="q"),
        node("DequantizeLinear", "xq s", "y", name="dq"),
        constants="s",
        known=(TensorInfo(name="xq", quant=quant, stands_for="x"), TensorInfo(name="y", stands_for="x")),
    )
    executed = graph(
        node("QuantizeLinear", "x s", "xq", name="q"),
        node("DequantizeLinear", "xq s", "extra", name="dq/duplicated"),
        node("DequantizeLinear", "xq s", "y", name="dq"),
        constants="s",
        known=(TensorInfo(name="xq", quant=quant, stands_for="odd"), TensorInfo(name="extra", stands_for="x")),
    )
    described = describe(source, executed, dtypes={"xq": "uint8", "extra": "float32"})
    assert described.tensors["xq"].stands_for == "x"
    assert described.tensors["extra"].stands_for == "x"
    assert described.tensors["y"].stands_for == "x"
    assert described.tensors["x"].stands_for is None
    assert described.tensors["extra"].dtype == "float32"


@pytest.mark.parametrize("writer", ["QuantizeLinear", "Reshape"])
def test_codes_have_the_scale_that_what_runs_writes_them_with(writer):
    """The optimizer makes one quantization of two, with a scale that the model gives neither tensor by that name."""
    scales = {"model": QuantParams(dtype="uint8", scale=0.5), "runs": QuantParams(dtype="uint8", scale=0.25)}
    ends = node("DequantizeLinear", "q s z", "y")
    source = graph(
        node("QuantizeLinear", "x s z", "q"),
        ends,
        constants="s z",
        known=(TensorInfo(name="q", quant=scales["model"]),),
    )
    executed = graph(
        node(writer, "x s z", "q"), ends, constants="s z", known=(TensorInfo(name="q", quant=scales["runs"]),)
    )
    found = describe(source, executed).tensors["q"].quant
    assert found == scales["runs" if writer == "QuantizeLinear" else "model"]
