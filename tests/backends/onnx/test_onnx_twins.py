"""Tensors whose names the layout optimizer lost are found again by walking beside a graph that has them."""

from __future__ import annotations

import pytest

from qdebug.backends.onnxruntime.executed import source_tensors
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo


def node(op: str, inputs: str, outputs: str, name: str = "", domain: str = "") -> Node:
    given = tuple(inputs.split())
    return Node(name=name or f"{op}:{outputs}", op=op, inputs=given, outputs=tuple(outputs.split()), domain=domain)


def graph(*nodes: Node, constants: str = "", codes: str = "") -> Graph:
    quant = QuantParams(dtype="uint8", scale=0.5)
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants.split()]
    tensors += [TensorInfo(name=name, quant=quant) for name in codes.split()]
    return Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"])


def test_equal_names_are_the_same_tensor():
    source = graph(node("Conv", "x w", "h"), node("Relu", "h", "y"), constants="w")
    executed = graph(node("FusedConv", "x w", "y"), constants="w")
    assert source_tensors(source, executed) == {"x": "x", "w": "w", "y": "y"}


def test_a_name_given_anew_to_codes_is_another_tensor():
    source = graph(node("Conv", "x w", "conv1"), node("Relu", "conv1", "y"), constants="w")
    executed = graph(node("QLinearConv", "x w", "conv1"), node("DequantizeLinear", "conv1", "y"), codes="conv1")
    assert "conv1" not in source_tensors(source, executed)


def test_renamed_tensors_are_found_through_inserted_transposes():
    named = graph(
        node("QLinearConv", "x w1", "a_q", name="c1"),
        node("QLinearConv", "a_q w2", "b_q", name="c2"),
        node("Flatten", "b_q", "y", name="flat"),
        constants="w1 w2",
        codes="x a_q b_q",
    )
    executed = graph(
        node("Transpose", "x", "t0"),
        node("QLinearConv", "t0 w1", "c1", name="c1_token_1"),
        node("QLinearConv", "c1 w2", "c2", name="c2_token_4"),
        node("Transpose", "c2", "t1"),
        node("Flatten", "t1", "y", name="flat"),
        constants="w1 w2",
        codes="x c1 c2",
    )
    found = source_tensors(named, executed, named)
    assert found["t0"] == "x"
    assert found["c1"] == "a_q"
    assert found["c2"] == "b_q"
    assert found["t1"] == "b_q"
    assert found["y"] == "y"


@pytest.mark.parametrize("order", ["x a", "a x"])
def test_a_sum_that_was_fused_is_found_whichever_operand_came_first(order):
    named = graph(
        node("Conv", "x w1", "a", name="c1"),
        node("Add", order, "s", name="sum"),
        node("Conv", "s w2", "y", name="c2"),
        constants="w1 w2 b1",
    )
    executed = graph(
        node("ReorderInput", "x", "t0"),
        node("Conv", "t0 w1 b1 t0", "t1", name="c1_nchwc", domain="com.microsoft.nchwc"),
        node("Conv", "t1 w2", "t2", name="c2_nchwc", domain="com.microsoft.nchwc"),
        node("ReorderOutput", "t2", "y"),
        constants="w1 w2 b1",
    )
    assert source_tensors(named, executed, named)["t1"] == "s"


def test_two_readers_of_one_tensor_are_told_apart_by_their_names():
    named = graph(
        node("Conv", "x w1", "a", name="left"),
        node("Conv", "x w2", "b", name="right"),
        node("Add", "a b", "y"),
        constants="w1 w2",
    )
    executed = graph(
        node("Conv", "x r2", "t2", name="b_nchwc", domain="com.microsoft.nchwc"),
        node("Conv", "x r1", "t1", name="left_token_7", domain="com.microsoft.nchwc"),
        node("Add", "t1 t2", "y"),
        constants="r1 r2",
    )
    found = source_tensors(named, executed, named)
    assert (found["t1"], found["t2"]) == ("a", "b")


def test_readers_that_nothing_tells_apart_are_left_alone():
    named = graph(node("Conv", "x w1", "a"), node("Conv", "x w2", "b"), node("Add", "a b", "y"), constants="w1 w2")
    executed = graph(
        node("Conv", "x r1", "t1"), node("Conv", "x r2", "t2"), node("Add", "t1 t2", "y"), constants="r1 r2"
    )
    found = source_tensors(named, executed, named)
    assert "t1" not in found
    assert "t2" not in found


def test_a_transpose_of_the_model_itself_is_no_inserted_one():
    named = graph(node("Transpose", "x", "turned"), node("Relu", "turned", "y"))
    executed = graph(node("Transpose", "x", "t0"), node("Relu", "t0", "y"))
    assert source_tensors(named, executed, named)["t0"] == "turned"


def test_twins_that_the_source_does_not_have_are_left_out():
    source = graph(node("Gelu", "x", "y"))
    named = graph(node("Mul", "x x", "added"), node("Relu", "added", "y"))
    executed = graph(node("Mul", "x x", "other"), node("Relu", "other", "y"))
    assert source_tensors(source, executed, named) == {"x": "x", "y": "y"}


def test_a_float_copy_of_a_half_precision_tensor_is_that_tensor():
    source = graph(node("Conv", "x w", "h"), node("Relu", "h", "y"), constants="w")
    executed = graph(
        node("Conv", "x w", "InsertedPrecisionFreeCast_h"),
        node("Relu", "InsertedPrecisionFreeCast_h", "InsertedPrecisionFreeCast_z"),
        node("Cast", "InsertedPrecisionFreeCast_z", "y"),
        constants="w",
    )
    found = source_tensors(source, executed)
    assert found == {"x": "x", "w": "w", "y": "y", "InsertedPrecisionFreeCast_h": "h"}


def test_reshapes_around_a_gemm_are_seen_through():
    source = graph(node("MatMul", "x w", "h"), node("Add", "h b", "hb"), node("Relu", "hb", "y"), constants="w b")
    executed = graph(
        node("Reshape", "x s1", "x2"),
        node("Gemm", "x2 w b", "hb2"),
        node("Reshape", "hb2 s2", "hb"),
        node("Relu", "hb", "y"),
        constants="w b s1 s2",
    )
    found = source_tensors(source, executed)
    assert (found["x2"], found["hb2"], found["hb"]) == ("x", "hb", "hb")


def test_a_reshape_of_the_source_itself_is_none_of_those():
    source = graph(node("Reshape", "x s1", "a"), node("Relu", "a", "y"), constants="s1")
    executed = graph(node("Reshape", "x s1", "renamed"), node("Relu", "renamed", "y"), constants="s1")
    assert "renamed" not in source_tensors(source, executed)


def test_a_reshape_of_the_source_that_is_moved_past_its_codes_is_none_of_those():
    source = graph(
        node("Relu", "x", "h"),
        node("Reshape", "h s1", "r"),
        node("QuantizeLinear", "r", "r_q"),
        constants="s1",
        codes="r_q",
    )
    executed = graph(
        node("Relu", "x", "h"),
        node("QuantizeLinear", "h", "h_q"),
        node("Reshape", "h_q s1", "r_q"),
        constants="s1",
        codes="h_q r_q",
    )
    found = source_tensors(source, executed)
    assert found["r_q"] == "r_q"
    assert "h_q" not in found


def test_a_resize_is_found_again_that_the_layout_optimizer_calls_an_upsample():
    named = graph(node("Resize", "x r s", "big"), node("Sigmoid", "big", "h"), node("Relu", "h", "y"), constants="r s")
    executed = graph(
        node("Upsample", "x", "t0", name="big_nchwc", domain="com.microsoft.nchwc"),
        node("Sigmoid", "t0", "t1"),
        node("Relu", "t1", "y"),
    )
    found = source_tensors(named, executed, named)
    assert (found["t0"], found["t1"]) == ("big", "h")


def test_pools_of_one_input_are_told_apart_by_their_windows():
    def pool(size: int, outputs: str, name: str = "") -> Node:
        attrs = {"kernel_shape": (size, size)}
        return Node(name=name or outputs, op="MaxPool", inputs=("x",), outputs=(outputs,), attrs=attrs)

    named = graph(pool(5, "a"), pool(9, "b"), node("Add", "a b", "y"))
    executed = graph(pool(9, "t1", "p1"), pool(5, "t2", "p2"), node("Add", "t2 t1", "y"))
    found = source_tensors(named, executed, named)
    assert (found["t1"], found["t2"]) == ("b", "a")


def test_a_node_is_found_again_whose_axis_was_turned_with_its_tensor():
    def split(tensor: str, axis: int, outputs: tuple[str, str]) -> Node:
        return Node(name=outputs[0], op="Split", inputs=(tensor,), outputs=outputs, attrs={"axis": axis})

    named = graph(split("x", 1, ("a", "b")), node("Pow", "a", "p"), node("Mul", "p b", "y"))
    executed = graph(
        node("Transpose", "x", "turned"),
        split("turned", 2, ("t0", "t1")),
        node("Pow", "t0", "t2"),
        node("Mul", "t2 t1", "y"),
    )
    found = source_tensors(named, executed, named)
    assert (found["t0"], found["t1"], found["t2"]) == ("a", "b", "p")


def test_a_depthwise_conv_is_found_again_whose_channels_were_padded():
    def conv(tensor: str, output: str, group: int) -> Node:
        attrs = {"kernel_shape": (3, 3), "strides": (1, 1), "group": group}
        return Node(name=output, op="Conv", inputs=(tensor, "w"), outputs=(output,), attrs=attrs)

    named = graph(conv("x", "d", 24), node("Add", "d x", "y"), constants="w")
    executed = graph(
        node("ReorderInput", "x", "blocked"),
        conv("blocked", "t0", 32),
        node("Reshape", "t0", "t1"),
        node("Add", "t1 x", "y"),
        constants="w",
    )
    found = source_tensors(named, executed, named)
    assert (found["t0"], found["t1"]) == ("d", "d")


def test_of_two_convs_the_one_is_found_that_the_result_of_its_activation_is_called_after():
    def conv(tensor: str, name: str, output: str, **attrs: str) -> Node:
        return Node(name=name, op="Conv", inputs=(tensor, "w"), outputs=(output,), attrs=attrs)

    named = graph(
        conv("x", "Conv_1", "a"), conv("x", "Conv_2", "b", activation="Sigmoid"), node("Add", "a b", "y"), constants="w"
    )
    executed = graph(
        conv("x", "b_nchwc", "t0", activation="Sigmoid"),
        conv("x", "a_nchwc", "t1"),
        node("Add", "t1 t0", "y"),
        constants="w",
    )
    found = source_tensors(named, executed, named)
    assert (found["t0"], found["t1"]) == ("b", "a")


def coded(codes: dict[str, QuantParams], *nodes: Node) -> Graph:
    tensors = [TensorInfo(name=name, quant=quant) for name, quant in codes.items()]
    return Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"])


def test_codes_that_were_moved_from_signed_to_unsigned_are_found_by_the_nodes_that_make_them():
    """ONNX Runtime names them anew; a product, the bias added to it and the clamp behind are one node there."""

    def codes(dtype: str, scale: float, zero_point: int) -> QuantParams:
        return QuantParams(dtype=dtype, scale=scale, zero_point=zero_point)

    source = coded(
        {"x_q": codes("int8", 0.5, -3), "g_q": codes("int8", 0.25, 7), "s_q": codes("int8", 0.25, 7)},
        node("QuantizeLinear", "x", "x_q", name="first"),
        node("DequantizeLinear", "x_q", "x_d"),
        node("MatMul", "x_d", "m", name="fc"),
        node("Add", "m", "g"),
        node("Relu", "g", "r"),
        node("QuantizeLinear", "r", "g_q", name="second"),
        node("DequantizeLinear", "g_q", "g_d"),
        node("Slice", "g_d", "s", name="part"),
        node("QuantizeLinear", "s", "s_q", name="third"),
        node("DequantizeLinear", "s_q", "y"),
    )
    moved = {"u1": codes("uint8", 0.5, 125), "u2": codes("uint8", 0.25, 135), "u3": codes("uint8", 0.25, 135)}
    nodes = (
        node("QuantizeLinear", "x", "u1", name="first"),
        node("QGemm", "u1", "u2", name="fc/MatMulAddFusion_token_4"),
        node("Slice", "u2", "u3", name="part"),
        node("DequantizeLinear", "u3", "y"),
    )
    found = source_tensors(source, coded(moved, *nodes))
    assert {name: found[name] for name in moved} == {"u1": "x_q", "u2": "g_q", "u3": "s_q"}
    others = source_tensors(source, coded({**moved, "u2": codes("uint8", 0.3, 135)}, *nodes))
    assert "u2" not in others
