"""Chosen scales: the recorded one beside others on the reference's values, and what is odd about recorded scales."""

import math
import re

import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.quant_error import QuantErrorCounter
from qdebug.numerics.range_histogram import RangeCounter
from qdebug.numerics.scheme import QuantScheme
from qdebug.scales.choose import TensorValues, choose_scales
from qdebug.scales.flags import joined_branches, node_flags, quant_flags
from qdebug.scales.make_profile import profile_recording
from qdebug.scales.weights import Granularity


def recording(name):
    from importlib.resources import files

    return qdebug.open_recording(files(data).joinpath(name))


@pytest.fixture(scope="module")
def digits():
    return recording("digits.float.h5"), recording("digits.int8.h5")


def test_the_recorded_scale_is_held_against_the_references_values(digits):
    found = choose_scales(*digits)
    rows = {row.backend_tensor: row for row in found.rows}
    row = rows["conv2_quantized"]
    assert (row.tensor, row.node, row.dtype) == ("relu2", "conv2_quant", "uint8")
    values = digits[0].load("relu2")
    back = dequantize(quantize(values, row.recorded.quant), row.recorded.quant)
    assert row.recorded.error.mse == pytest.approx(np.square(back - values.astype(np.float64)).mean(), rel=1e-9)
    minmax = next(choice for choice in row.choices if choice.calibrator == "minmax")
    assert float(minmax.quant.scale[0]) == np.float32(values.max() / 255)
    assert minmax.error.sqnr_db > row.recorded.error.sqnr_db
    assert row.best == max(row.choices, key=lambda choice: choice.error.sqnr_db).calibrator
    assert found.exit_code == 0


def test_an_activation_that_codes_have_folded_in_bounds_the_values(digits):
    row = next(row for row in choose_scales(*digits).rows if row.backend_tensor == "logits_quantized")
    assert row.low < 0
    assert all(row.low >= 0 for row in choose_scales(*digits).rows if row.tensor.startswith("relu"))


def test_bounds_are_applied_to_codes_and_to_floats():
    values = np.array([-3, -1, 0, 4, 9], np.float32)
    for stored, quant in ((values, None), (values.astype(np.int8), int8(1.0))):
        recording = made({"x": stored}, [], quants={"x": quant}, inputs=["x"])
        bounded = TensorValues("x", recording, clamp=(0.0, 6.0))
        assert (bounded.histogram.low, bounded.histogram.high, bounded.histogram.zeros) == (0, 6, 3)
        (error,) = bounded.errors([int8(6 / 127)])
        assert (error.clipped_low, error.clipped_high) == (0, 0)


def test_of_a_profile_errors_are_estimated(digits):
    exact = {row.tensor: row for row in choose_scales(*digits, calibrators=["minmax"]).rows}
    near = choose_scales(profile_recording(digits[0]), calibrators=["minmax"], scheme=QuantScheme(signed=False))
    for row in near.rows:
        if row.tensor in exact:
            error = row.choices[0].error
            assert not error.exact
            assert error.sqnr_db == pytest.approx(exact[row.tensor].choices[0].error.sqnr_db, abs=3)
    assert "estimated" in near.notes[0]


def test_one_node_by_any_of_its_names(digits):
    for name in ("conv2_quant", "relu2", "conv2_quantized"):
        assert [row.tensor for row in choose_scales(*digits, node=name).rows] == ["relu2"]
    with pytest.raises(UsageError, match=r"is called 'conv9'\. Near names: 'conv2'"):
        choose_scales(*digits, node="conv9")
    with pytest.raises(UsageError, match="Unknown calibrator"):
        choose_scales(*digits, calibrators=["best"])


def test_nan_has_no_scale_and_it_is_said():
    found = choose_scales(made({"x": np.array([1, math.nan], np.float32)}, [], inputs=["x"]))
    assert {choice.quant for choice in found.rows[0].choices} == {None}
    assert "1 NaN" in found.rows[0].choices[0].reason
    assert found.rows[0].best is None


# -- flags -------------------------------------------------------------------------------------------------------------


def made(arrays, nodes, *, quants=None, constants=(), inputs=()):
    quants = quants or {}
    outputs = [name for node in nodes for name in node.outputs]
    infos = [
        TensorInfo(
            name=name,
            shape=array.shape,
            dtype=array.dtype.name,
            role=Role.CONSTANT if name in constants else Role.INPUT if name in inputs else Role.ACTIVATION,
            quant=quants.get(name),
        )
        for name, array in arrays.items()
    ]
    graph = Graph(nodes, tensors=infos, inputs=inputs, outputs=outputs[-1:])
    return MemoryRecording(graph, {(name, 0, 0): array for name, array in arrays.items()}, RunInfo(backend="npu"))


def int8(scale, zero_point=0, dtype="int8", **more):
    return QuantParams(dtype=dtype, scale=np.float32(scale), zero_point=zero_point, **more)


def convolution(*, x_dtype="int8", weight=1, bias=0, bias_scale=0.02, y_scale=0.5, terms=64):
    """A Conv of one filter on codes: its bias has a scale of its own; input scale x weight scale is 0.02."""
    arrays = {
        "x": np.zeros((1, terms, 1, 1), x_dtype),
        "w": np.full((1, terms, 1, 1), weight, np.int8),
        "b": np.array([bias], np.int32),
        "y": np.zeros((1, 1, 1, 1), np.int8),
    }
    quants = {
        "x": int8(0.2, dtype=x_dtype),
        "w": int8(0.1),
        "b": int8(bias_scale, dtype="int32"),
        "y": int8(y_scale),
    }
    node = Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("y",))
    return made(arrays, [node], quants=quants, constants=("w", "b"), inputs=["x"])


def kinds(recording):
    return {flag.kind: flag for flag in node_flags(recording)}


def test_a_healthy_node_has_no_flags():
    assert kinds(convolution()) == {}


def test_a_bias_of_another_scale_is_named():
    flag = kinds(convolution(bias_scale=0.03))["bias_scale"]
    assert flag.node == "conv"
    assert flag.amount == pytest.approx(0.5, rel=1e-5)


def test_a_bias_too_coarse_for_the_output_is_named():
    assert kinds(convolution(y_scale=0.01))["bias_precision"].amount == pytest.approx(2.0)
    assert "bias_precision" not in kinds(convolution(y_scale=0.03))


def test_sums_beyond_int32_are_named_with_their_bias():
    most = 2**31 - 1 - 64 * 127 * 127
    assert "accumulator" not in kinds(convolution(weight=127, bias=most - 64 * 127))
    assert kinds(convolution(weight=127, bias=most + 1))["accumulator"].amount >= 2**31


def test_pairs_of_products_beyond_16_bits_are_named_of_unsigned_codes_alone():
    def pairs(*cpu_flags, **options):
        recording = convolution(**options)
        arrays = {(name, 0, 0): recording.load(name) for name in recording.names}
        return kinds(MemoryRecording(recording.graph, arrays, RunInfo(backend="npu", cpu_flags=cpu_flags))).get(
            "pairs_16"
        )

    assert pairs("avx2", x_dtype="uint8", weight=127).amount == 32
    assert pairs("avx2", x_dtype="uint8", weight=64) is None
    assert pairs("avx2", x_dtype="int8", weight=127) is None
    assert pairs("avx2", "avx512_vnni", x_dtype="uint8", weight=127) is None
    assert pairs(x_dtype="uint8", weight=127) is None


@pytest.mark.parametrize("bias_scale", [0.02, 0.03])
def test_a_bias_that_is_dequantized_with_another_scale_is_named(bias_scale):
    scales = {"x": int8(0.2), "w": int8(0.1), "b": int8(bias_scale, dtype="int32")}
    arrays = {"x": np.zeros((1, 2), np.int8), "w": np.ones((2, 3), np.int8), "b": np.ones(3, np.int32)}
    arrays |= {f"{name} scale": quant.scale.reshape(()) for name, quant in scales.items()}
    nodes = [
        Node(name=f"real {name}", op="DequantizeLinear", inputs=(name, f"{name} scale"), outputs=(f"{name} real",))
        for name in scales
    ]
    nodes.append(Node(name="fc", op="Gemm", inputs=("x real", "w real", "b real"), outputs=("y",)))
    flags = kinds(made(arrays, nodes, quants=scales, constants=[*arrays][1:], inputs=["x"]))
    assert [*flags] == ([] if bias_scale == 0.02 else ["bias_scale"])


def test_a_scale_that_changes_where_values_are_only_moved_is_named():
    codes = np.zeros((1, 4), np.int8)
    node = Node(name="turn", op="Transpose", inputs=("x",), outputs=("y",), attrs={"perm": (1, 0)})
    for scale, zero_point, found in ((0.1, 0, False), (0.2, 0, True), (0.1, 1, True)):
        quants = {"x": int8(0.1), "y": int8(scale, zero_point)}
        recording = made({"x": codes, "y": codes.T}, [node], quants=quants, inputs=["x"])
        assert ("mismatched" in kinds(recording)) is found


def flagged(quant, values):
    counter, errors = RangeCounter(), QuantErrorCounter(quant)
    counter.add(values)
    errors.add(values)
    return {flag.kind for flag in quant_flags("x", "", quant, counter.histogram(), errors.error())}


def test_scales_that_do_not_fit_the_values_are_named():
    values = np.linspace(-1, 1, 1001, dtype=np.float32)
    assert flagged(int8(1 / 127), values) == set()
    assert flagged(int8(1 / 7), values) == {"too_coarse"}
    assert flagged(int8(1 / 200), values) == {"too_fine"}
    assert flagged(int8(0.1), np.zeros(4, np.float32)) == {"degenerate"}


def test_scales_that_stand_for_nothing_are_named():
    for scale in (0.0, -1.0, math.nan, math.inf):
        assert [flag.kind for flag in quant_flags("x", "", int8(scale))] == ["degenerate"]
    assert [flag.kind for flag in quant_flags("x", "", int8(1, -200))] == ["zero_point"]
    assert [flag.kind for flag in quant_flags("x", "", int8(1, -128, qmin=-127))] == ["zero_point"]


def joined(op, wide, narrow):
    """Record a join or a sum of two branches as floats, and as codes of one scale."""
    result = np.concatenate([wide, narrow], axis=1) if op == "Concat" else wide + narrow
    arrays = {"a": wide, "b": narrow, "y": result}
    node = Node(name="join", op=op, inputs=("a", "b"), outputs=("y",), attrs={"axis": 1} if op == "Concat" else {})
    codes = {name: quantize(array, int8(0.6)) for name, array in arrays.items()}
    backend = made(codes, [node], quants=dict.fromkeys(arrays, int8(0.6)), inputs=["a", "b"])
    return made(arrays, [node], inputs=["a", "b"]), backend


@pytest.mark.parametrize("op", ["Concat", "Add"])
def test_branches_of_unlike_range_in_one_scale_are_named_with_the_effect_of_their_own(op):
    rng = np.random.default_rng(0)
    wide, narrow = (rng.normal(size=(1, 500), scale=scale).astype(np.float32) for scale in (20, 0.5))
    (flag,) = [flag for flag in choose_scales(*joined(op, wide, narrow)).flags if flag.kind == "shared_range"]
    assert (flag.node, flag.limit) == ("join", 8)
    assert flag.amount == pytest.approx(np.abs(wide).max() / np.abs(narrow).max())
    found = [float(text) for text in re.findall(r"([\d.]+) dB", flag.sentence)]
    back = dequantize(quantize(narrow, int8(0.6)), int8(0.6)).astype(np.float64)
    assert found[0] == pytest.approx(10 * np.log10(np.square(narrow).sum() / np.square(back - narrow).sum()), abs=0.06)
    assert found[1] > 35
    assert not [flag for flag in choose_scales(*joined(op, wide, narrow * 20)).flags if flag.kind == "shared_range"]


def test_branches_are_found_behind_their_dequantization():
    codes = np.zeros((1, 4), np.int8)
    real = codes.astype(np.float32)
    arrays = {
        "qa": codes,
        "qb": codes,
        "a": real,
        "b": real,
        "y": np.zeros((1, 8), np.float32),
        "qy": np.zeros((1, 8), np.int8),
    }
    nodes = [
        Node(name="da", op="DequantizeLinear", inputs=("qa",), outputs=("a",)),
        Node(name="db", op="DequantizeLinear", inputs=("qb",), outputs=("b",)),
        Node(name="cat", op="Concat", inputs=("a", "b"), outputs=("y",), attrs={"axis": 1}),
        Node(name="quant", op="QuantizeLinear", inputs=("y",), outputs=("qy",)),
    ]
    graph = made(arrays, nodes, quants=dict.fromkeys(("qa", "qb", "qy"), int8(0.6)), inputs=["qa", "qb"]).graph
    assert [(node.name, tensor, list(of)) for node, tensor, of in joined_branches(graph)] == [
        ("cat", "qy", ["qa", "qb"])
    ]


# -- weights -----------------------------------------------------------------------------------------------------------


def weighted(weight):
    """Record a MatMul with a float weight, and the same with its weight in codes of one scale."""
    x = np.ones((1, len(weight)), np.float32)
    node = Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",))
    reference = made({"x": x, "w": weight, "y": x @ weight}, [node], constants=("w",), inputs=["x"])
    quant = int8(np.abs(weight).max() / 127, qmin=-127)
    other = Node(name="fc", op="MatMul", inputs=("x", "codes"), outputs=("y",))
    arrays = {"x": quantize(x, int8(0.1)), "codes": quantize(weight, quant), "y": quantize(x @ weight, int8(0.1))}
    quants = {"x": int8(0.1), "codes": quant, "y": int8(0.1)}
    return reference, made(arrays, [other], quants=quants, constants=("codes",), inputs=["x"])


def weight_row(*recordings, **options):
    return next(row for row in choose_scales(*recordings, calibrators=["minmax", "mse"], **options).rows if row.weight)


def test_a_weight_is_found_by_its_values_and_one_scale_for_unlike_channels_is_named():
    weight = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    weight[:, 2] /= 500
    row = weight_row(*weighted(weight))
    assert (row.tensor, row.backend_tensor, row.granularity, row.dtype) == ("w", "codes", "tensor", "int8")
    (flag,) = row.flags
    assert flag.kind == "channel_range"
    assert "1 of 4 are below 10 dB SQNR; channel 2 has" in flag.sentence
    assert not weight_row(*weighted(weight * [[1, 1, 500, 1]])).flags


def test_a_weight_has_a_scale_for_each_channel_or_block():
    weight = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    reference, _ = weighted(weight)
    channel = weight_row(reference).choices[0]
    assert channel.quant.axis == 1
    assert np.array_equal(channel.quant.scale, np.abs(weight).max(axis=0) / np.float32(127))
    block = weight_row(reference, weights=Granularity.parse("block:16")).choices[0]
    assert (block.quant.axis, block.quant.block_size) == (0, 16)
    assert np.array_equal(block.quant.scale, np.abs(weight).reshape(4, 16, 4).max(axis=1) / np.float32(127))
    assert (
        block.error.sqnr_db
        > channel.error.sqnr_db
        > weight_row(reference, weights=Granularity.parse("tensor")).choices[0].error.sqnr_db
    )
    for wrong in ("row", "block", "block:0", "channel:2"):
        with pytest.raises(UsageError, match="Unknown granularity"):
            Granularity.parse(wrong)


def test_some_nodes_get_another_scheme(digits):
    options = {"scheme": QuantScheme(kind="symmetric"), "calibrators": ["minmax"]}
    chosen = choose_scales(*digits, node_schemes={"op:Re*": "asymmetric", "conv2_quant": "power_of_two"}, **options)
    rows = {row.backend_tensor: row for row in chosen.rows if not row.weight}
    assert rows["logits_quantized"].scheme == "symmetric"
    assert rows["fc1_quantized"].scheme == "asymmetric"  # its node quantizes what a Relu of the reference computed
    scale = float(rows["conv2_quantized"].choices[0].quant.scale[0])
    assert math.frexp(scale)[0] == 0.5
    with pytest.raises(UsageError, match="matches 'op:Sigmoid'"):
        choose_scales(*digits, node_schemes={"op:Sigmoid": "asymmetric"})


def test_a_bias_scale_for_all_channels_is_held_against_the_channel_that_it_fits_worst():
    scales = {"x": int8(0.2), "w": QuantParams(dtype="int8", scale=np.float32([0.1, 0.2]), axis=0)}
    scales["b"] = int8(0.02, dtype="int32")
    infos = [TensorInfo(name=name, quant=quant, role=Role.CONSTANT) for name, quant in scales.items() if name != "x"]
    infos += [TensorInfo(name="x", quant=scales["x"]), TensorInfo(name="y", quant=int8(0.5))]
    node = Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("y",))
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"])
    values = {
        "x": np.ones((1, 1, 2, 2), np.int8),
        "w": np.ones((2, 1, 1, 1), np.int8),
        "b": np.ones(2, np.int32),
        "y": np.ones((1, 2, 2, 2), np.int8),
    }
    flag = kinds(MemoryRecording.single(graph, values))["bias_scale"]
    assert "is 0.02 for all channels, but input scale x weight scale is 0.04 in channel 1" in flag.sentence
