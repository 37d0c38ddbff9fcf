"""Quantization facts come from operands, never from names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qdebug.backends import load_reader
from qdebug.backends.onnx.quant import stands_for
from qdebug.model import Node
from qdebug.model.operators.known_scales import Facts, quant_facts

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
SCALARS = {
    "sx": np.float32(0.5),
    "zx": np.uint8(3),
    "sw": np.float32([0.25, 0.125]),
    "zw": np.int8([0, 0]),
    "s1": np.float32(0.25),
    "z1": np.int8(0),
    "zw1": np.int8(0),
    "sy": np.float32(2.0),
    "zy": np.uint8(7),
}


def facts(ranks: dict[str, int] | None = None) -> Facts:
    def constant(name):
        return np.asarray(SCALARS[name]) if name in SCALARS else None

    def dtype(name):
        return str(np.asarray(SCALARS[name]).dtype) if name in SCALARS else None

    return Facts(constant=constant, dtype=dtype, rank=(ranks or {}).get)


def node(op: str, inputs: str, outputs: str, **attrs) -> Node:
    split = (tuple("" if part == "-" else part for part in text.split()) for text in (inputs, outputs))
    ins, outs = split
    return Node(name=f"{op}:{outs[0]}", op=op, inputs=ins, outputs=outs, attrs=attrs)


def test_qlinearconv_states_input_weight_output_and_bias():
    found = quant_facts([node("QLinearConv", "x sx zx w sw zw sy zy b", "y")], facts({"b": 1}))
    assert set(found) == {"x", "w", "y", "b"}
    assert (found["x"].dtype, found["x"].scale.tolist(), found["x"].zero_point.tolist()) == ("uint8", [0.5], [3])
    assert (found["w"].dtype, found["w"].axis, found["w"].scale.tolist()) == ("int8", 0, [0.25, 0.125])
    assert (found["y"].scale.tolist(), found["y"].zero_point.tolist()) == ([2.0], [7])
    assert (found["b"].dtype, found["b"].axis, found["b"].scale.tolist()) == ("int32", 0, [0.125, 0.0625])


@pytest.mark.parametrize(
    ("transposed", "axis"),
    [(0, 1), (1, 0)],
)
def test_qgemm_weights_are_quantized_along_their_columns(transposed, axis):
    found = quant_facts([node("QGemm", "a sx zx b sw zw c sy zy", "y", transB=transposed)], facts({"c": 1}))
    assert found["b"].axis == axis
    assert found["y"].zero_point.tolist() == [7]
    assert found["c"].scale.tolist() == [0.125, 0.0625]


def test_qlinearmatmul_weight_axis_is_the_last():
    found = quant_facts([node("QLinearMatMul", "a sx zx b sw zw sy zy", "y")], facts({"b": 3}))
    assert found["b"].axis == 2
    assert "b" not in quant_facts([node("QLinearMatMul", "a sx zx b sw zw sy zy", "y")], facts())


def test_qlinearconcat_states_each_part():
    found = quant_facts([node("QLinearConcat", "sy zy a sx zx b s1 z1", "y", axis=1)], facts())
    assert {name: params.scale.tolist() for name, params in found.items()} == {"y": [2.0], "a": [0.5], "b": [0.25]}


def test_quantize_and_dequantize_state_their_codes():
    nodes = [node("QuantizeLinear", "x sw zw", "q", axis=2), node("DequantizeLinear", "q sw zw", "d", axis=2)]
    found = quant_facts(nodes, facts({"x": 4}))
    assert set(found) == {"q"}
    assert found["q"].axis == 2
    negative = quant_facts([node("DequantizeLinear", "q sw zw", "d", axis=-1)], facts({"q": 3}))
    assert negative["q"].axis == 2


def test_a_left_out_zero_point_is_zero():
    found = quant_facts([node("QuantizeLinear", "x sx", "q")], facts())
    assert (found["q"].dtype, found["q"].zero_point.tolist()) == ("uint8", [0])


def test_scales_computed_at_run_time_state_nothing():
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "acc"),
        node("DequantizeLinear", "other s z", "d"),
    ]
    assert quant_facts(nodes, facts()) == {}


def dynamic(*, scales: str, product: str = "MatMulInteger", read: str = "q") -> list[Node]:
    return [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("Reshape", "q shape", "flat"),
        node(product, f"{read} w z zw1", "acc"),
        node("Cast", "acc", "real"),
        node("Mul", scales, "factor"),
        node("Mul", "real factor", "y"),
    ]


@pytest.mark.parametrize("scales", ["s s1", "s1 s"])
@pytest.mark.parametrize("read", ["q", "flat"])
def test_weights_beside_codes_of_a_scale_chosen_at_run_time_have_the_constant_scale(scales, read):
    found = quant_facts(dynamic(scales=scales, read=read), facts())
    assert set(found) == {"w"}
    weight = found["w"]
    assert (weight.dtype, weight.scale.tolist(), weight.zero_point.tolist()) == ("int8", [0.25], [0])


@pytest.mark.parametrize(("product", "axis"), [("MatMulInteger", 2), ("ConvInteger", 0)])
def test_such_weights_may_have_a_scale_for_each_channel(product, axis):
    nodes = dynamic(scales="s sw", product=product)
    assert quant_facts(nodes, facts({"w": 3}))["w"].axis == axis
    assert ("w" in quant_facts(nodes, facts())) == (
        axis == 0
    )  # of which rank it is must be known to count from the end


def test_sums_that_are_multiplied_with_something_else_state_nothing():
    assert quant_facts(dynamic(scales="other s1"), facts()) == {}
    assert quant_facts(dynamic(scales="s other"), facts()) == {}


def test_codes_keep_their_scale_through_operators_that_move_them():
    nodes = [
        node("QuantizeLinear", "x sx zx", "q"),
        node("MaxPool", "q", "pooled"),
        node("Reshape", "pooled shape", "flat"),
        node("Resize", "flat", "blurred", mode="linear"),
        node("Softmax", "flat", "soft"),
    ]
    found = quant_facts(nodes, facts())
    assert found["flat"] == found["pooled"] == found["q"]
    assert "blurred" not in found
    assert "soft" not in found
    assert "shape" not in found


def test_codes_know_their_scale_before_the_operator_that_states_it():
    found = quant_facts([node("Transpose", "codes", "turned"), node("DequantizeLinear", "turned sx zx", "d")], facts())
    assert found["codes"] == found["turned"]


def test_concat_passes_a_scale_on_only_if_all_parts_share_it():
    same = [
        node("QuantizeLinear", "x sx zx", "a"),
        node("QuantizeLinear", "y sx zx", "b"),
        node("Concat", "a b", "c"),
    ]
    assert quant_facts(same, facts())["c"].scale.tolist() == [0.5]
    other = [same[0], node("QuantizeLinear", "y sy zy", "b"), same[2]]
    assert "c" not in quant_facts(other, facts())


def test_what_a_producer_says_wins():
    nodes = [node("QuantizeLinear", "x sx zx", "q"), node("DequantizeLinear", "q sy zy", "d")]
    assert quant_facts(nodes, facts())["q"].scale.tolist() == [0.5]


def test_what_a_producer_says_wins_through_operators_that_hand_codes_on():
    read = node("DequantizeLinear", "f sx z1", "d")
    found = quant_facts([node("QuantizeLinear", "x s1 z1", "q"), node("Flatten", "q", "f"), read], facts())
    assert found["f"].scale.tolist() == found["q"].scale.tolist() == [0.25]


def test_codes_and_their_real_forms_stand_for_one_tensor():
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("QLinearConv", "q s z w s z s z", "c"),
        node("DequantizeLinear", "c s z", "real"),
    ]
    assert stands_for(nodes) == {"q": "x", "d": "x", "c": "real"}


def test_an_output_of_the_graph_is_what_the_others_stand_for():
    nodes = [node("Gemm", "h", "h2"), node("QuantizeLinear", "h2 s z", "q"), node("DequantizeLinear", "q s z", "y")]
    assert stands_for(nodes, ("y",)) == {"h2": "y", "q": "y"}


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("scheme", ["per_tensor", "per_channel"])
def test_every_integer_activation_and_weight_of_the_digits_nets_has_its_scale(form, scheme):
    pytest.importorskip("onnx")
    model = load_reader(DIGITS / f"digits.{form}.{scheme}.onnx")
    graph = model.graph
    weights = [n for n in model.constants if n.endswith("weight_quantized")]
    assert len(weights) == 6
    for name in weights:
        quant = graph.tensors[name].quant
        assert quant is not None
        channels = model.constant(name).shape[0] if scheme == "per_channel" else 1
        if quant.axis is not None and form == "qoperator" and quant.axis == 1:
            channels = model.constant(name).shape[1]
        assert quant.scale.size == channels, name
    codes = [name for name, info in graph.tensors.items() if info.dtype == "uint8" and not graph.is_constant(name)]
    assert codes
    assert all(graph.tensors[name].quant is not None for name in codes)


def test_a_cache_has_the_scale_of_what_is_written_into_it():
    nodes = [node("QuantizeLinear", "new s1 z1", "q"), node("ScatterND", "cache at q", "y")]
    found = quant_facts(nodes, facts())
    assert found["cache"] == found["y"] == found["q"]
    assert "at" not in found
