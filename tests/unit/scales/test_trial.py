"""A scale that is tried: the tensor's error is exact, and the outputs are what the net really gives with that scale."""

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.errors import UsageError
from qdebug.scales.trial import TrialBench, try_scale

SAMPLES = Path("samples/digits")


def recording(name):
    from importlib.resources import files

    return qdebug.open_recording(files(data).joinpath(name))


@pytest.fixture(scope="module")
def digits():
    return recording("digits.float.h5"), recording("digits.int8.h5")


def test_the_recorded_scale_changes_nothing(digits):
    now = digits[1].graph.tensors["conv2_quantized"].quant
    found = try_scale(*digits, node="conv2_quant", scale=float(now.scale[0]), zero_point=0)
    assert found.replay.same is True
    assert found.now_error == found.trial_error
    assert [(each.now, each.output) for each in found.replay.outputs] == [
        (each.trial, each.output) for each in found.replay.outputs
    ]
    assert found.replay.outputs[0].against == "reference"


def test_by_any_name_of_the_node(digits):
    every = [try_scale(*digits, node=name, scale=0.02) for name in ("conv2_quant", "relu2", "conv2_quantized")]
    assert every[0] == every[1] == every[2]
    assert every[0].trial_error.clipped_high > 0
    assert every[0].replay.outputs[0].trial.sqnr_db < every[0].replay.outputs[0].now.sqnr_db - 10


@pytest.mark.parametrize(("form", "scale"), [("qoperator", 0.02), ("qoperator", 0.07), ("qdq", 0.02)])
def test_the_outputs_are_those_of_a_model_that_has_the_scale(form, scale, tmp_path):
    """The model is edited by hand and run anew; the bias of a node behind the tensor is requantized."""
    onnx = pytest.importorskip("onnx")
    from qdebug.running.record import record_run

    source = SAMPLES / f"digits.{form}.per_tensor.onnx"
    inputs = {"x": np.load(SAMPLES / "digits_test.npz")["x"][:4, np.newaxis]}

    def run(model, name):
        out = tmp_path / f"{name}.h5"
        record_run(model, backend="interpreter", inputs=inputs, samples=4, out=out)
        return qdebug.open_recording(out)

    reference, backend = run(SAMPLES / "digits.onnx", "float"), run(source, "int8")
    tensor = "pool1_quantized" if form == "qoperator" else "relu2_QuantizeLinear_Output"
    found = try_scale(reference, backend, node=tensor, scale=scale)
    assert (found.replay.same, found.replay.samples, found.replay.notes) == (True, 4, ())
    model = onnx.load(source)
    held = {each.name: each for each in model.graph.initializer}
    changed = {name for node in model.graph.node for name in _scales(node, tensor, model)}
    before = {name: onnx.numpy_helper.to_array(held[name]) for name in changed}
    assert changed
    for node in model.graph.node:
        if node.op_type == "QLinearConv" and node.input[1] in changed:
            bias = onnx.numpy_helper.to_array(held[node.input[8]])
            codes = np.rint(bias * (np.float64(before[node.input[1]]) / np.float32(scale))).astype(np.int32)
            held[node.input[8]].CopyFrom(onnx.numpy_helper.from_array(codes, node.input[8]))
    for name in changed:
        held[name].CopyFrom(onnx.numpy_helper.from_array(np.array(scale, np.float32).reshape(before[name].shape), name))
    onnx.save(model, tmp_path / "edited.onnx")
    edited = run(tmp_path / "edited.onnx", "edited")
    got, target = (
        np.stack([each.load("logits", s) for s in range(4)]).astype(np.float64) for each in (edited, reference)
    )
    expected = np.linalg.norm(got - target) / np.linalg.norm(target)
    assert found.replay.outputs[0].trial.rel_l2 == pytest.approx(expected, rel=1e-6)
    assert found.replay.outputs[0].trial.rel_l2 != found.replay.outputs[0].now.rel_l2


def _scales(node, tensor, model):
    """Return the names of the constants that are the scale of a tensor that MaxPool may hand on."""
    same = {tensor}
    for _ in range(4):
        for other in model.graph.node:
            if other.op_type in ("MaxPool", "Flatten", "Reshape") and same & {*other.input[:1], *other.output}:
                same |= {other.input[0], other.output[0]}
    for at, name in enumerate(node.input):
        if name in same and node.op_type.startswith(("QLinear", "QGemm", "DequantizeLinear")):
            yield node.input[at + 1]
    if same & set(node.output) and node.op_type in ("QLinearConv", "QLinearMatMul"):
        yield node.input[6]
    if same & set(node.output) and node.op_type == "QuantizeLinear":
        yield node.input[1]


def test_of_a_float_net_the_one_tensor_is_held_to_codes(digits):
    found = try_scale(digits[0], node="relu2", scale=0.02, dtype="uint8")
    assert found.now is None
    assert found.now_error is None
    assert found.trial_error.clipped_high > 0
    assert found.replay.outputs[0].against == "recorded"
    assert found.replay.outputs[0].now.sqnr_db > 100
    assert 5 < found.replay.outputs[0].trial.sqnr_db < 25
    inputs = try_scale(digits[0], node="x", scale=0.5, dtype="uint8")
    assert inputs.replay.outputs[0].trial.sqnr_db < 30


def test_an_arithmetic_that_is_not_the_recorded_one_is_said(digits):
    found = try_scale(*digits, node="conv2_quant", scale=0.05, arithmetic="tvm-qnn-tonearest")
    assert found.replay.arithmetic == "tvm-qnn-tonearest"
    assert found.replay.same is False or found.replay.notes == ()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scale": 0.0}, "cannot represent values"),
        ({"scale": float("nan")}, "cannot represent values"),
        ({"scale": 1e-60}, "cannot represent values"),
        ({"scale": 1e60}, "cannot represent values"),
        ({"scale": 1.0, "zero_point": 300}, "outside 0..255"),
        ({"scale": 1.0, "dtype": "int8"}, "do not accept int8"),
        ({"scale": 1.0, "dtype": "float32"}, "no scale to try"),
        ({"scale": 1.0, "node": "conv9"}, "No node or tensor with reference values is called 'conv9'"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_a_hint(digits, wrong, said):
    with pytest.raises(UsageError, match=said):
        try_scale(*digits, **{"node": "conv2_quant", **wrong})


def test_without_recorded_inputs_the_tensor_alone_is_told(tmp_path):
    path = tmp_path / "one.h5"
    with qdebug.Recorder(path, backend="npu") as rec:
        rec.put("y", np.linspace(-1, 1, 50, dtype=np.float32), node="n", op="Relu", inputs=("x",))
    found = try_scale(qdebug.open_recording(path), node="y", scale=0.01)
    assert found.replay.samples == 0
    assert "no replay" in found.replay.notes[0]
    assert found.trial_error.total == 50


def test_an_output_of_another_layout_is_held_against_its_partner_and_the_recorded_scales_are_replayed_once():
    x = np.random.default_rng(0).uniform(-1, 1, size=(1, 3, 4, 2)).astype(np.float32)
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.put("x", x)
        rec.put("y", np.maximum(x, 0), node="relu", op="Relu", inputs=("x",))
        rec.outputs("y")
    with qdebug.Recorder(None, backend="float") as ref:
        ref.put("y", np.maximum(x, 0).transpose(0, 3, 1, 2))
    turned = Transform(transpose=(0, 3, 1, 2))
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="", backend_view=turned)
    bench, told = TrialBench(rec.recording, "x", reference=ref.recording, pairs=[pair]), []
    for scale in (0.01, 0.02):
        (output,) = bench.replay(bench.parameters(scale), lambda *at: told.append(at)).outputs
        assert output.now.max_abs == 0
        assert scale / 4 < output.trial.max_abs <= scale / 2 * 1.001
    assert told == [(0, 2, "sample 0"), (1, 2, "sample 0"), (0, 1, "sample 0")]
