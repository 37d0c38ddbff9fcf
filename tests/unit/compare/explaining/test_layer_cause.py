"""Causes inside a layer whose end alone was recorded: nodes in the other order, tables that are misread together."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo

RNG = np.random.default_rng(3)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def recorded(nodes, values, **made):
    """Return a run that recorded its inputs, its constants and some results."""
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT, dtype=np.asarray(array).dtype.name)
        for name, array in values.items()
        if name != "x"
    ]
    outputs = nodes[-1].outputs
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=outputs, opset={"": 21})
    return MemoryRecording(
        graph, {(name, 0, 0): each for name, each in {**values, **made}.items()}, RunInfo(backend="chip")
    )


def node(name, op, inputs, **attrs):
    return Node(name=name, op=op, inputs=tuple(inputs.split()), outputs=(f"{name}_out",), attrs=attrs)


def why(nodes, values, right, wrong):
    """Return the cause that the diagnosis states, if the chip shows the last result alone."""
    last = nodes[-1].outputs[0]
    result = qdebug.diff(recorded(nodes, values, **right), recorded(nodes, values, **{last: wrong}))
    assert result[last].status == "diverged"
    return result.diagnosis[0].why


def normalized(x, values):
    shape = (1, -1, 1)
    scale = values["g"] / np.sqrt(values["v"] + np.float32(1e-5))
    return (x - values["m"].reshape(shape)) * scale.reshape(shape) + values["b"].reshape(shape)


def test_a_normalization_that_is_folded_across_a_relu():
    values = {"x": real(1, 6, 30), "g": real(6) + 2, "b": real(6), "m": real(6), "v": np.abs(real(6)) + 1}
    nodes = [node("relu", "Relu", "x"), node("bn", "BatchNormalization", "relu_out g b m v")]
    relu = np.maximum(values["x"], 0)
    right = {"relu_out": relu, "bn_out": normalized(relu, values).astype(np.float32)}
    wrong = np.maximum(normalized(values["x"], values), 0).astype(np.float32)
    assert "BatchNormalization 'bn' is applied before Relu 'relu'" in why(nodes, values, right, wrong)


def test_a_hidden_cast_that_truncates():
    values = {"x": real(6, 50)}
    nodes = [node("narrow", "Cast", "x", to=16), node("widen", "Cast", "narrow_out", to=1)]
    narrow = values["x"].astype(ml_dtypes.bfloat16)
    right = {"narrow_out": narrow, "widen_out": narrow.astype(np.float32)}
    truncated = (values["x"].view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert "results are truncated to bfloat16 in 'narrow'" in why(nodes, values, right, truncated)


def test_a_bias_that_is_added_after_the_scale():
    values = {"x": real(5, 8), "w": real(8, 6), "b": real(6), "f": np.float32(0.1)}
    nodes = [node("fc", "MatMul", "x w"), node("add", "Add", "fc_out b"), node("scale", "Mul", "add_out f")]
    product = values["x"] @ values["w"]
    right = {"fc_out": product, "add_out": product + values["b"], "scale_out": (product + values["b"]) * values["f"]}
    cause = why(nodes, values, right, product * values["f"] + values["b"])
    assert "Mul 'scale' is applied before Add 'add'" in cause


@pytest.mark.parametrize(
    ("misread", "text"),
    [
        (lambda table: np.concatenate([table[:, :4]] * 2, axis=1), "only the first 4 elements of 'cos' and 'sin'"),
        (lambda table: np.roll(table, 1, 0), "'cos' and 'sin' is read one position before the right one along axis 0"),
    ],
)
def test_two_tables_that_are_misread_in_the_same_way(misread, text):
    values = {"x": real(1, 6, 8), "cos": real(6, 8), "sin": real(6, 8)}
    nodes = [
        node("neg", "Neg", "x"),
        node("c", "Mul", "x cos"),
        node("s", "Mul", "neg_out sin"),
        node("r", "Add", "c_out s_out"),
    ]

    def results(cos, sin):
        x = values["x"]
        return {"neg_out": -x, "c_out": x * cos, "s_out": -x * sin, "r_out": x * cos - x * sin}

    wrong = results(misread(values["cos"]), misread(values["sin"]))["r_out"]
    assert text in why(nodes, values, results(values["cos"], values["sin"]), wrong)


def test_a_constant_that_is_folded_wrongly_and_not_recorded():
    values = {"x": real(4, 10), "p": (10 * real(10)).astype(np.float32), "q": np.float32(3)}
    nodes = [node("mod", "Mod", "p q", fmod=1), node("mul", "Mul", "x mod_out")]
    right = {"mod_out": np.fmod(values["p"], 3), "mul_out": values["x"] * np.fmod(values["p"], 3)}
    assert "fmod is ignored in 'mod'" in why(nodes, values, right, values["x"] * np.mod(values["p"], 3))


def test_unknown_numbers_have_no_such_cause():
    values = {"x": real(5, 8), "w": real(8, 6), "b": real(6), "f": np.float32(0.1)}
    nodes = [node("fc", "MatMul", "x w"), node("add", "Add", "fc_out b"), node("scale", "Mul", "add_out f")]
    product = values["x"] @ values["w"]
    right = {"fc_out": product, "add_out": product + values["b"], "scale_out": (product + values["b"]) * values["f"]}
    assert "reproduces" not in why(nodes, values, right, right["scale_out"] + real(5, 6))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda x: np.tanh(x.T.copy().reshape(x.shape)), None),
        (np.abs, "Tanh 'tanh' is left out"),
        (lambda x: np.abs(np.tanh(np.tanh(x))), "Tanh 'tanh' is applied twice"),
        (np.tanh, "Abs 'abs' is left out"),
    ],
)
def test_a_node_that_is_left_out_or_applied_twice(wrong, text):
    values = {"x": real(6, 8)}
    nodes = [node("tanh", "Tanh", "x"), node("abs", "Abs", "tanh_out")]
    right = {"tanh_out": np.tanh(values["x"]), "abs_out": np.abs(np.tanh(values["x"]))}
    cause = why(nodes, values, right, wrong(values["x"]))
    assert text in cause if text else "left out" not in cause


def quantized(name, scale, zero_point):
    params = QuantParams(scale=np.float32(scale), zero_point=zero_point, dtype="int8")
    return TensorInfo(name=name, dtype="int8", quant=params)


def test_codes_that_are_joined_without_being_rescaled():
    """The zero point of a Relu's codes is the lowest code, beside which there is no other."""
    constants = {"sa": np.float32(0.02), "za": np.int8(-128), "sb": np.float32(0.03), "zb": np.int8(5)}
    constants |= {"sy": np.float32(0.035), "zy": np.int8(-20)}
    nodes = [
        node("da", "DequantizeLinear", "a sa za"),
        node("db", "DequantizeLinear", "b sb zb"),
        node("cat", "Concat", "da_out db_out", axis=1),
        node("q", "QuantizeLinear", "cat_out sy zy"),
    ]
    codes = {name: RNG.integers(-128, 128, (2, 4, 5, 5)).astype(np.int8) for name in ("a", "b")}
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    infos += [quantized("a", 0.02, -128), quantized("b", 0.03, 5), quantized("q_out", 0.035, -20)]
    graph = Graph(nodes, tensors=infos, inputs=["a", "b"], outputs=["q_out"], opset={"": 21})
    parts = [(codes["a"] + np.float32(128)) * np.float32(0.02), (codes["b"] - np.float32(5)) * np.float32(0.03)]
    right = np.clip(np.rint(np.concatenate(parts, 1) / np.float32(0.035)) - 20, -128, 127).astype(np.int8)
    wrong = right.copy()
    wrong[:, 4:] = codes["b"]
    pair = [
        MemoryRecording(
            graph,
            {(name, 0, 0): each for name, each in {**constants, **codes, "q_out": made}.items()},
            RunInfo(backend="chip"),
        )
        for made in (right, wrong)
    ]
    text = (
        "the codes of 'b' are passed on unchanged, not rescaled to the output's scale and zero point in 'db' "
        "(DequantizeLinear)"
    )
    assert text in qdebug.diff(*pair).diagnosis[0].why


def test_a_mistake_in_a_part_of_a_layer():
    values = {"x": real(40, 16), "w": real(16, 24), "b": real(24)}
    nodes = [node("fc", "MatMul", "x w"), node("add", "Add", "fc_out b"), node("act", "Sigmoid", "add_out")]
    product = values["x"] @ values["w"]
    right = {"fc_out": product, "add_out": product + values["b"]}
    right["act_out"] = 1 / (1 + np.exp(-right["add_out"]))
    wrong = right["act_out"].copy()
    wrong[:, 16:] = 1 / (1 + np.exp(-(product + np.roll(values["b"], 1))[:, 16:]))
    text = "only in the last 8 features of 24: 'b' is read one position before the right one along axis 0 in 'add'"
    assert text in why(nodes, values, right, wrong)


def test_a_normalization_that_is_folded_along_another_axis():
    values = {"x": real(2, 5, 40), "w": real(5, 5, 3), "g": real(5) + 2, "b": real(5), "m": real(5)}
    values["v"] = np.abs(real(5)) + 1
    nodes = [node("conv", "Conv", "x w"), node("bn", "BatchNormalization", "conv_out g b m v")]
    steps = np.lib.stride_tricks.sliding_window_view(values["x"], 3, axis=2)
    right = {"conv_out": np.einsum("ncpk,ock->nop", steps, values["w"]).astype(np.float32)}
    right["bn_out"] = normalized(right["conv_out"], values).astype(np.float32)
    factors = values["g"] / np.sqrt(values["v"] + np.float32(1e-5))
    weight = values["w"] * factors.reshape(1, 5, 1)
    wrong = np.einsum("ncpk,ock->nop", steps, weight) + (values["b"] - values["m"] * factors).reshape(1, -1, 1)
    cause = why(nodes, values, right, wrong.astype(np.float32))
    assert "the scale of BatchNormalization 'bn' is folded along axis 1 of 'w', which are not its channels" in cause


def test_codes_of_8_bit_floats_that_are_decoded_inside_a_layer():
    """Only the product was recorded. Its constant has few digits, but both runs have the same one."""
    exact = real(40, 32) * np.float32(0.04)
    codes = exact.astype(ml_dtypes.float8_e4m3fn)
    values = {"x": np.abs(real(4, 40)), "q": codes, "s": np.float32(0.5)}
    nodes = [node("dq", "DequantizeLinear", "q s"), node("fc", "MatMul", "x dq_out")]
    decoded, bits = codes.astype(np.float32), codes.view(np.uint8)
    implicit = np.copysign(2.0**-7 * (1 + (bits & 7) / 8), decoded)
    is_subnormal = ((bits & 0x78) == 0) & ((bits & 7) != 0)
    wrong = values["x"] @ (np.where(is_subnormal, implicit, decoded) * 0.5).astype(np.float32)
    right = {"dq_out": decoded * np.float32(0.5), "fc_out": values["x"] @ (decoded * np.float32(0.5))}
    cause = why(nodes, values, right, wrong)
    assert "subnormal numbers of 'q' are read with an implicit leading 1 in 'dq' (DequantizeLinear)" in cause


@pytest.mark.parametrize("wrong_heads", [["k"], ["v"], ["k", "v"]])
def test_hidden_heads_that_are_repeated_in_turn(wrong_heads):
    values = {"x": real(1, 8, 6, 4), "k": real(1, 2, 4, 6), "v": real(1, 2, 6, 5)}
    nodes, heads = [], {"right": {}, "wrong": {}}
    for name in "kv":
        rest = values[name].shape[2:]
        values |= {f"{name} axis": np.array([2]), f"{name} extents": np.array([1, 2, 4, *rest])}
        values[f"{name} heads"] = np.array([1, 8, *rest])
        nodes += [
            Node(name=f"{name}1", op="Unsqueeze", inputs=(name, f"{name} axis"), outputs=(f"{name}1",)),
            Node(name=f"{name}2", op="Expand", inputs=(f"{name}1", f"{name} extents"), outputs=(f"{name}2",)),
            Node(name=f"{name}3", op="Reshape", inputs=(f"{name}2", f"{name} heads"), outputs=(f"{name}3",)),
        ]
        right, in_turn = values[name][:, np.arange(8) // 4], values[name][:, np.arange(8) % 2]
        heads["right"][name], heads["wrong"][name] = right, in_turn if name in wrong_heads else right
    nodes += [
        node("scores", "MatMul", "x k3"),
        node("tanh", "Tanh", "scores_out"),
        node("sums", "MatMul", "tanh_out v3"),
    ]
    scores, wrong_scores = (values["x"] @ each["k"] for each in heads.values())
    tanh = np.tanh(scores)
    right = {"k3": heads["right"]["k"], "v3": heads["right"]["v"], "scores_out": scores, "tanh_out": tanh}
    right["sums_out"] = tanh @ heads["right"]["v"]
    said = why(nodes, values, right, np.tanh(wrong_scores) @ heads["wrong"]["v"])
    for name in "kv":
        clause = f"the 2 entries of '{name}3' along axis 1 are repeated 4 times in turn, not each in a row"
        assert (clause in said) is (name in wrong_heads)


CODES = {"s": np.float32(0.05), "z": np.int8(-40)}


def dequantized(levels):
    codes = np.clip(levels + int(CODES["z"]), -128, 127)
    return ((codes - int(CODES["z"])) * CODES["s"]).astype(np.float32)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda levels: np.clip(levels, -128, 127), "results saturate to int8 before the output's zero point -40"),
        (lambda levels: np.where(levels < 0, 1 << 20, levels), "negative sums are rescaled as unsigned numbers"),
    ],
)
def test_codes_of_a_dequantized_layer_that_are_cast_too_early(wrong, text):
    values = {"x": real(9, 24), "w": real(24, 20), **CODES}
    nodes = [
        node("fc", "MatMul", "x w"),
        node("quantize", "QuantizeLinear", "fc_out s z"),
        node("dequantize", "DequantizeLinear", "quantize_out s z"),
    ]
    product = values["x"] @ values["w"]
    levels = np.rint(product / CODES["s"]).astype(np.int64)
    codes = np.clip(levels + int(CODES["z"]), -128, 127).astype(np.int8)
    quant = QuantParams(dtype="int8", scale=CODES["s"], zero_point=-40, qmin=-128, qmax=127)
    infos = [TensorInfo(name=name, role=Role.CONSTANT, dtype=np.asarray(values[name]).dtype.name) for name in "wsz"]
    infos.append(TensorInfo(name="quantize_out", dtype="int8", quant=quant))
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["dequantize_out"], opset={"": 21})
    right = {**values, "fc_out": product, "quantize_out": codes, "dequantize_out": dequantized(levels)}
    runs = [
        MemoryRecording.single(
            graph, {name: np.asarray(each) for name, each in arrays.items()}, RunInfo(backend=backend)
        )
        for arrays, backend in (
            (right, "reference"),
            ({**values, "dequantize_out": dequantized(wrong(levels))}, "chip"),
        )
    ]
    cause = qdebug.diff(*runs).diagnosis[0].why
    assert text in cause
    assert "in 'fc' (MatMul), inside the layer" in cause


def test_layers_in_bfloat16_that_end_with_a_move_are_held_to_their_rounding():
    def short(array):
        return array.astype(ml_dtypes.bfloat16).astype(np.float32)

    values = {"x": short(real(1, 24, 12) * 3), "v": short(real(1, 12, 8))}
    nodes = [
        node("probs", "Softmax", "x", axis=-1),
        node("sums", "MatMul", "probs_out v"),
        node("moved", "Transpose", "sums_out", perm=(0, 2, 1)),
    ]
    powers = np.exp(values["x"])
    probs = powers / powers.sum(-1, keepdims=True)
    right = (probs @ values["v"]).transpose(0, 2, 1)
    assert "total" not in why(nodes, values, {"moved_out": right}, short(right * np.float32(0.5335)))
