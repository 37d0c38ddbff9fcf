"""OpenVINO as a backend: what really ran, in codes where it runs in codes, and nothing that taps changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend, load_reader
from qdebug.backends.protocol import split_into_harmless_taps
from qdebug.errors import BackendError, InputError, UsageError
from qdebug.model import Node
from qdebug.replay.registry import run_node
from qdebug.running.record import record_run

openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
ops = pytest.importorskip("openvino.opset13", reason="needs the extra openvino")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
SAMPLES = 4


def digits():
    with np.load(DIGITS / "digits_test.npz") as file:
        return {"x": file["x"][:SAMPLES, None]}


def record(tmp_path, model, inputs, *, samples=SAMPLES, taps="faithful", **options):
    out = tmp_path / f"{model.name}.{taps}.{len(list(tmp_path.iterdir()))}.h5"
    options = {"precision": "f32", **options}
    made = record_run(model, backend="openvino", options=options, inputs=inputs, out=out, samples=samples, taps=taps)
    return made, qdebug.open_recording(out)


def saved(tmp_path, results, parameters, name="net"):
    path = tmp_path / f"{name}.xml"
    openvino.save_model(openvino.Model(results, parameters, name), path, compress_to_fp16=False)
    return path


def reference(tmp_path, model, inputs, **options):
    out = tmp_path / "ref.h5"
    record_run(model, backend="onnxruntime", options=options, inputs=inputs, out=out, samples=SAMPLES)
    return out


def test_a_float_net_is_recorded_in_the_layers_that_ran(tmp_path):
    summary, recording = record(tmp_path, DIGITS / "digits.onnx", digits())
    assert summary.fidelity == "bit_equal"
    assert summary.skipped == {}
    first = recording.graph.producer("relu1")
    assert first.op == "Convolution"
    assert first.inputs == ("x", "w0.weight", "w0.bias")
    assert first.origin == ("conv1/WithoutBiases", "conv1", "relu1")
    assert first.attrs["activation"] == "Relu"
    assert first.placement.startswith("CPU: Convolution ")
    assert "f32" in first.placement
    assert {"conv1", "conv2"}.isdisjoint(recording.graph.tensors)  # they are fused, and so were never made
    assert np.array_equal(recording.load("w0.bias"), load_reader(DIGITS / "digits.onnx").constant("w0.bias"))
    result = qdebug.diff(reference(tmp_path, DIGITS / "digits.onnx", digits(), opt="none"), recording)
    assert result.status == "within"
    assert all(node.arithmetic is not None for node in result.nodes if node.op != "Input")  # each is replayed
    assert not [each for each in result.coverage.unmatched if each.kind == "lost"]


def test_the_options_say_what_was_used(tmp_path):
    _, recording = record(tmp_path, DIGITS / "digits.onnx", digits(), threads="1")
    options = recording.info.options
    assert (options["precision"], options["effective_precision"]) == ("f32", "f32")
    assert (options["threads"], options["execution_devices"]) == (1, "CPU")
    assert "Reorder" in options["inserted"]
    assert recording.info.versions["openvino"]


@pytest.mark.parametrize("model", ["digits.qdq.per_channel.onnx", "digits.qdq.per_tensor.onnx"])
def test_a_quantized_net_is_recorded_in_codes_and_explained(tmp_path, model):
    summary, recording = record(tmp_path, DIGITS / model, digits())
    assert summary.fidelity == "bit_equal"
    made = {name: recording.graph.tensors[name] for node in recording.graph.nodes for name in node.outputs if name}
    first = made["relu1_QuantizeLinear_Output"]
    source = qdebug.open_recording(reference(tmp_path, DIGITS / model, digits(), opt="none")).graph.tensors
    assert first.quant == source["relu1_QuantizeLinear_Output"].quant
    assert recording.load("relu1_QuantizeLinear_Output").dtype == np.uint8
    assert made["pool1"].quant == source["relu2_QuantizeLinear_Output"].quant  # codes that are handed out as reals
    weight = recording.graph.tensors["w0.weight_quantized"]
    assert weight.quant == source["w0.weight_quantized"].quant
    assert {node.op for node in recording.graph.nodes} >= {"Convolution", "GroupConvolution", "MatMul"}
    explained = {node.node: node.status for node in qdebug.explain(recording).nodes}
    assert explained["relu1_QuantizeLinear"] == "explained"
    assert explained["relu5_QuantizeLinear"] == "explained"


def test_what_is_recorded_is_what_the_plain_model_gives_at_that_place(tmp_path):
    """A net that ends at a layer gives what was recorded of the layer in the whole net."""
    x = ops.parameter([1, 4, 6, 6], np.float32, name="x")
    weight = np.random.default_rng(1).standard_normal((4, 4, 3, 3)).astype(np.float32)
    ends = [x]
    for number in range(3):
        conv = ops.convolution(ends[-1], weight, [1, 1], [1, 1], [1, 1], [1, 1])
        made = ops.relu(ops.add(conv, np.full((1, 4, 1, 1), number, np.float32)))
        made.set_friendly_name(f"layer{number}")
        ends.append(made)
    joined = ops.add(ends[2], ends[3])
    joined.set_friendly_name("joined")
    feed = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)
    whole = saved(tmp_path, [joined], [x])
    summary, recording = record(tmp_path, whole, {"x": feed}, samples=None)
    assert summary.fidelity == "bit_equal"
    for number in range(3):
        if recording.has(f"layer{number}"):
            part = saved(tmp_path, [ends[number + 1]], [x], name=f"part{number}")
            plain = openvino.Core().compile_model(part, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})({"x": feed})
            assert np.allclose(recording.load(f"layer{number}"), plain[0], rtol=1e-6)
    assert recording.has("layer0")
    assert recording.has("layer1")


def test_all_taps_are_the_source_graph_and_say_that_they_change_the_outputs(tmp_path):
    summary, recording = record(tmp_path, DIGITS / "digits.onnx", digits(), taps="all")
    assert {"conv1", "relu1", "conv1/WithoutBiases"} <= set(recording.names)
    assert summary.fidelity in {"bit_equal", "differs"}  # it is measured
    assert recording.graph.producer("conv1").op == "Add"


def test_outputs_alone(tmp_path):
    summary, recording = record(tmp_path, DIGITS / "digits.onnx", digits(), taps="outputs")
    assert summary.fidelity == "bit_equal"
    assert {name for name in recording.names if not recording.graph.is_constant(name)} == {"x", "logits"}


def test_numbers_without_axes_are_recorded(tmp_path):
    x = ops.parameter([2, 3], np.float32, name="x")
    total = ops.reduce_sum(ops.exp(x), np.array([0, 1], np.int64))
    total.set_friendly_name("total")
    _, recording = record(
        tmp_path, saved(tmp_path, [ops.sqrt(total)], [x]), {"x": np.ones((2, 3), np.float32)}, samples=None
    )
    assert recording.load("total" if recording.has("total") else recording.graph.outputs[0]).shape == ()


def test_states_are_forgotten_between_samples(tmp_path):
    from openvino.op.util import Variable, VariableInfo

    facts = VariableInfo()
    facts.data_shape, facts.data_type, facts.variable_id = openvino.PartialShape([1]), openvino.Type.f32, "v"
    variable = Variable(facts)
    x = ops.parameter([1], np.float32, name="x")
    before = openvino.opset6.read_value(ops.constant(np.zeros(1, np.float32)), variable)
    summed = ops.add(before, x)
    summed.set_friendly_name("summed")
    keep = openvino.opset6.assign(summed, variable)
    model = openvino.Model([ops.result(ops.multiply(summed, np.float32([2])))], [keep], [x], "state")
    path = tmp_path / "state.xml"
    openvino.save_model(model, path, compress_to_fp16=False)
    out = tmp_path / "state.h5"
    inputs = {"x": np.ones((2, 3, 1), np.float32)}
    made = record_run(path, backend="openvino", inputs=inputs, out=out, samples=2, steps=3)
    recording = qdebug.open_recording(out)
    assert made.fidelity == "bit_equal"
    (end,) = recording.graph.outputs
    assert [[float(recording.load(end, sample, step)[0]) for step in range(3)] for sample in range(2)] == [
        [2, 4, 6]
    ] * 2


def test_dynamic_extents_are_those_of_the_inputs(tmp_path):
    x = ops.parameter([-1, 4], np.float32, name="x")
    path = saved(tmp_path, [ops.softmax(ops.relu(x), 1)], [x])
    _, recording = record(tmp_path, path, {"x": np.ones((5, 4), np.float32)}, samples=None)
    assert recording.load(recording.graph.outputs[0]).shape == (5, 4)


def test_bodies_of_control_flow_are_said_not_to_be_recorded(tmp_path):
    x, flag = ops.parameter([2], np.float32, name="x"), ops.parameter([], bool, name="flag")
    inner, other = ops.parameter([2], np.float32), ops.parameter([2], np.float32)
    choice = openvino.opset8.if_op(flag)
    then, otherwise = openvino.Model([ops.exp(inner)], [inner]), openvino.Model([ops.negative(other)], [other])
    choice.set_then_body(then)
    choice.set_else_body(otherwise)
    choice.set_input(x.output(0), inner, other)
    result = choice.set_output(then.results[0], otherwise.results[0])
    choice.set_friendly_name("choice")
    path = saved(tmp_path, [ops.abs(result)], [x, flag])
    feed = {"x": np.ones(2, np.float32), "flag": np.array(True)}
    summary, recording = record(tmp_path, path, feed, samples=None)
    assert summary.fidelity == "bit_equal"
    assert "not recorded: choice" in recording.info.options["note"]


def test_nan_inputs_are_recorded_as_they_are(tmp_path):
    inputs = {"x": np.full((1, 1, 8, 8), np.nan, np.float32)}
    summary, recording = record(tmp_path, DIGITS / "digits.qdq.per_channel.onnx", inputs, samples=None)
    assert np.isnan(recording.load("x")).all()
    assert summary.fidelity == "bit_equal"


def test_a_precision_that_the_processor_lacks_is_said(tmp_path):
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has bfloat16")
    _, recording = record(tmp_path, DIGITS / "digits.onnx", digits(), precision="bf16")
    assert recording.info.options["note"] == "precision bf16 was requested, but f32 is used"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "fp32"}, "expected one of: f32"),
        ({"threads": "-1"}, "expected an integer"),
        ({"device": "TPU"}, "no device 'TPU' here; it has:"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        load_backend("openvino").open(DIGITS / "digits.onnx", options=options)


def test_what_openvino_cannot_run_is_one_sentence(tmp_path):
    with pytest.raises(BackendError, match=r"refused the model .*QGemm") as caught:
        load_backend("openvino").open(DIGITS / "digits.qoperator.per_channel.onnx", options={})
    assert "\n" not in str(caught.value)
    assert "src/" not in str(caught.value)
    broken = tmp_path / "broken.xml"
    broken.write_text("<net", encoding="utf-8")
    with pytest.raises(BackendError, match=r"refused the model 'broken\.xml'"):
        load_reader(broken)
    (tmp_path / "net.pt2").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"cannot read 'net\.pt2'"):
        load_backend("openvino").open(tmp_path / "net.pt2", options={})


def test_inputs_must_fit(tmp_path):
    with pytest.raises(InputError):
        record(tmp_path, DIGITS / "digits.onnx", {"y": np.zeros((1, 1, 8, 8), np.float32)}, samples=None)


def test_taps_that_change_the_outputs_are_found_and_left_out():
    refused, tried = [], []

    def attempt(taps):
        tried.append(tuple(taps))
        return None if "bad" in taps else "model"

    parts = list(split_into_harmless_taps(["a", "b", "bad", "c"], attempt, refused.append))
    assert [tuple(part) for part, _ in parts] == [("a", "b"), ("c",)]
    assert refused == ["bad"]


def test_a_tap_without_which_nothing_is_the_same_is_listed(tmp_path, monkeypatch):
    from qdebug.backends.openvino import adapter

    compile_model = adapter.OpenVINORun.compile

    def spoiled(self, taps):
        made = compile_model(self, taps)
        if "pool1" in taps:
            run = made.run
            made.run = lambda feed: {name: array + (name == "logits") for name, array in run(feed).items()}
        return made

    monkeypatch.setattr(adapter.OpenVINORun, "compile", spoiled)
    summary, recording = record(tmp_path, DIGITS / "digits.onnx", digits())
    assert set(summary.skipped) == {"pool1"}
    assert "changes it or the outputs" in summary.skipped["pool1"]
    assert summary.fidelity == "bit_equal"
    assert recording.has("relu2")
    assert recording.has("relu3")


@pytest.mark.parametrize("fails_at", ["compile", "run"])
def test_a_tap_with_which_openvino_fails_is_listed_with_its_message(tmp_path, monkeypatch, fails_at):
    from qdebug.backends.openvino import adapter

    compile_model = adapter.OpenVINORun.compile

    def fail(*_):
        raise BackendError("OpenVINO failed: expects static shapes.")

    def broken(self, taps):
        if "pool1" in taps and fails_at == "compile":
            fail()
        made = compile_model(self, taps)
        if "pool1" in taps:
            made.run = fail
        return made

    monkeypatch.setattr(adapter.OpenVINORun, "compile", broken)
    summary, recording = record(tmp_path, DIGITS / "digits.onnx", digits())
    assert summary.skipped == {"pool1": "with a tap on it, OpenVINO failed: expects static shapes"}
    assert summary.fidelity == "bit_equal"
    assert recording.has("relu2")


def residual_blocks(tmp_path, blocks):
    """Save a net of residual blocks: OpenVINO adds what a block reads inside its convolution, unless that is tapped."""
    x = ops.parameter([1, 8, 12, 12], np.float32, name="x")
    rng, values = np.random.default_rng(5), [x]
    for number in range(blocks):
        weight = (0.1 * rng.standard_normal((8, 8, 3, 3))).astype(np.float32)
        conv = ops.convolution(values[-1], weight, [1, 1], [1, 1], [1, 1], [1, 1])
        made = ops.relu(ops.add(conv, values[-1]))
        made.set_friendly_name(f"block{number}")
        values.append(made)
    made = ops.reduce_mean(values[-1], np.array([2, 3]), keep_dims=False)
    made.set_friendly_name("mean")
    return saved(tmp_path, [made], [x]), values


@pytest.fixture
def compiled(monkeypatch):
    """Taps of the models that are compiled."""
    from qdebug.backends.openvino import adapter

    seen, plain = [], adapter.OpenVINORun.compile
    monkeypatch.setattr(
        adapter.OpenVINORun, "compile", lambda self, taps: (seen.append(tuple(taps)), plain(self, taps))[1]
    )
    return seen


def test_taps_that_keep_each_other_from_being_fused_take_few_runs(tmp_path, compiled):
    path, values = residual_blocks(tmp_path, 12)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 1, 8, 12, 12)).astype(np.float32)}
    summary, recording = record(tmp_path, path, feed, samples=2)
    assert summary.fidelity == "bit_equal"
    assert len(compiled) <= 8  # tapped block by block it would be 24
    for number in (0, 5, 11):
        part = saved(tmp_path, [values[number + 1]], [values[0]], name=f"part{number}")
        plain = openvino.Core().compile_model(part, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        for sample in range(2):
            assert np.array_equal(recording.load(f"block{number}", sample), plain({"x": feed["x"][sample]})[0])


def test_what_a_budget_leaves_no_time_for_is_listed(tmp_path, compiled):
    path, _ = residual_blocks(tmp_path, 6)
    feed = {"x": np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)}
    summary, recording = record(tmp_path, path, feed, samples=None, tap_runs="1")
    given_up = {name for name, why in summary.skipped.items() if why.startswith("given up: ")}
    assert given_up
    assert "tap_runs=" in summary.skipped[min(given_up)]
    assert f"{len(given_up)} given up" in summary.fidelity_detail
    assert len([name for name in recording.names if not recording.graph.is_constant(name)]) >= 3
    assert len(compiled) <= 4
    result = qdebug.diff(recording, recording)
    assert result.exit_code == 0
    assert summary.fidelity == "bit_equal"


def test_free_dimensions_are_fixed_before_the_model_is_compiled(tmp_path):
    x = ops.parameter([-1, 3, -1, -1], np.float32, name="x")
    weight = np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype(np.float32)
    path = saved(tmp_path, [ops.relu(ops.convolution(x, weight, [1, 1], [1, 1], [1, 1], [1, 1]))], [x])
    feed, out = {"x": np.ones((1, 3, 48, 192), np.float32)}, tmp_path / "fixed.h5"
    shapes = {"x": (1, 3, 48, 192)}
    record_run(path, backend="openvino", inputs=feed, out=out, shapes=shapes)
    recording = qdebug.open_recording(out)
    assert recording.graph.tensors["x"].shape == (1, 3, 48, 192)
    assert recording.graph.tensors[recording.graph.outputs[0]].shape == (1, 8, 48, 192)
    assert recording.info.options["shapes"] == "x=1x3x48x192"
    with pytest.raises(InputError, match=r"has shape \?x3x\?x\?, but --shape says 1x4x48x192"):
        load_backend("openvino").open(path, options={}, shapes={"x": (1, 4, 48, 192)})
    with pytest.raises(InputError):
        record_run(path, backend="openvino", inputs={"x": np.ones((1, 3, 32, 32))}, out=out, force=True, shapes=shapes)


def test_where_each_layer_ran_is_compared(tmp_path):
    _, recording = record(tmp_path, DIGITS / "digits.onnx", digits())
    result = qdebug.diff(recording, recording)
    assert {node.placement.partition(": ")[0] for node in result.nodes if node.op != "Input"} == {"CPU"}
    assert not [each for node in result.nodes for each in node.findings if each.kind == "placement"]


@pytest.mark.parametrize("ends", [(-6.15, 6.6, -6.15, 6.6), (-1, 2, 0, 255), (0, 3, 1, -1), (-1.27, 1.27, -127, 127)])
def test_a_fake_quantize_is_replayed(ends):
    x = np.random.default_rng(3).normal(0, 3, (2, 3, 4, 50)).astype(np.float32)
    levels = 255 if ends[-1] == 127 else 256
    given = ops.parameter(x.shape, np.float32)
    made = ops.fake_quantize(given, *map(ops.constant, np.float32(ends)), levels)
    model, options = openvino.Model([made], [given]), {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(model, "CPU", options)
    values = dict(zip(("x", "il", "ih", "ol", "oh"), (x, *np.float32(ends)), strict=True))
    node = Node(name="n", op="FakeQuantize", inputs=tuple(values), outputs=("y",), attrs={"levels": levels})
    assert run_node(node, values)["y"] == pytest.approx(compiled(x)[0], rel=1e-6, abs=1e-6)


def in_codes(tmp_path, x, values, nodes):
    """Write an ONNX model of constants and nodes, from `x` to `o`, and record what OpenVINO makes of it."""
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    ends = [onnx.helper.make_tensor_value_info(*each) for each in (("x", 1, x.shape), ("o", 1, None))]
    made = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    made_nodes = [onnx.helper.make_node(op, *rest, **attrs) for op, *rest, attrs in nodes]
    graph = onnx.helper.make_graph(made_nodes, "net", ends[:1], ends[1:], made)
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return record(tmp_path, path, {"x": x.astype(np.float32)}, samples=1)[1]


def around(op, inputs, attrs):
    """Return nodes that make codes of x, compute with them, and make codes of the result."""
    return [
        ("QuantizeLinear", ["x", "sx", "zx"], ["q"], {}),
        ("DequantizeLinear", ["q", "sx", "zx"], ["d"], {}),
        (op, ["d", *inputs], ["a"], attrs),
        ("QuantizeLinear", ["a", "sy", "zy"], ["y"], {}),
        ("DequantizeLinear", ["y", "sy", "zy"], ["o"], {}),
    ]


@pytest.mark.parametrize("channels", [3, 4])
def test_a_convolution_with_an_odd_number_of_channels_pairs_them_tap_by_tap(tmp_path, channels):
    rng = np.random.default_rng(2)
    values = {"sx": np.float32(0.02), "zx": np.uint8(119), "sy": np.float32(0.3), "zy": np.uint8(128)}
    weight = rng.choice([-127, 127, 90, -3], (16, channels, 3, 3)).astype(np.int8)  # pairs go beyond 16 bits
    values |= {"w": weight, "sw": np.float32(0.004), "zw": np.int8(0)}
    nodes = [("DequantizeLinear", ["w", "sw", "zw"], ["v"], {}), *around("Conv", ["v"], {"pads": [1, 1, 1, 1]})]
    x = (rng.integers(0, 256, (1, channels, 20, 20)) - 119) * values["sx"]
    recording = in_codes(tmp_path, x, values, nodes)
    (node,) = (each for each in qdebug.explain(recording).nodes if each.op == "Convolution")
    assert node.status == "explained"


def test_a_net_of_litert_is_explained_where_a_layer_of_real_numbers_makes_codes(tmp_path):
    """OpenVINO computes the depthwise convolution on real numbers; it hands codes on through a change of type."""
    with np.load(DIGITS / "digits_test.npz") as file:
        images = file["x"][:SAMPLES].reshape(SAMPLES, 1, 8, 8, 1)
    codes = np.clip(np.rint(images * 255) - 128, -128, 127)
    model = DIGITS / "digits_int8.tflite"
    name = load_backend("openvino").open(model, options={}).inputs[0].name
    _, recording = record(tmp_path, model, {name: codes.astype(np.int8)})
    found = {node.op: node.status for node in qdebug.explain(recording).nodes if node.on_codes}
    assert set(found) >= {"Convolution", "GroupConvolution", "AvgPool", "MatMul", "MaxPool"}
    assert set(found.values()) == {"explained"}
    depthwise = next(node for node in recording.graph.nodes if node.op == "GroupConvolution")
    assert recording.graph.tensors[depthwise.inputs[1]].quant.per_channel
    assert recording.load(depthwise.outputs[0]).dtype == np.uint8


@pytest.mark.parametrize(("zero", "out_scale", "out_zero"), [(-11, 0.035, -37), (72, 0.06, 127), (-128, 0.05, -128)])
def test_an_average_of_codes_counts_steps_of_the_output_range(tmp_path, zero, out_scale, out_zero):
    values = {"sx": np.float32(0.05), "sy": np.float32(out_scale), "zx": np.int8(zero), "zy": np.int8(out_zero)}
    x = (np.random.default_rng(7).integers(-128, 128, (1, 32, 30, 30)) - zero) * values["sx"]
    nodes = around("AveragePool", [], {"kernel_shape": [2, 2], "strides": [1, 1]})
    (node,) = (each for each in qdebug.explain(in_codes(tmp_path, x, values, nodes)).nodes if each.op == "AvgPool")
    assert node.status == "explained"
    assert "form=levels-raw steps=even,zp,sat" in node.variants


def test_a_constant_that_float16_cannot_hold_is_named(tmp_path):
    x = np.abs(np.random.default_rng(0).standard_normal((1, 8, 16, 16))).astype(np.float32)
    x[0, :, :4] = 0
    given = ops.parameter(x.shape, np.float32, name="x")
    weight = (0.2 * np.random.default_rng(1).standard_normal((8, 8, 3, 3))).astype(np.float32)
    conv = ops.convolution(ops.log(ops.add(ops.relu(given), np.float32(1e-10))), weight, [1, 1], [1, 1], [1, 1], [1, 1])
    path = saved(tmp_path, [conv], [given])
    _, reference = record(tmp_path, path, {"x": x}, samples=None)
    _, backend = record(tmp_path, path, {"x": x}, samples=None, precision="f16")
    if backend.info.options["effective_precision"] != "f16":
        pytest.skip("this processor does not compute in float16")
    result = qdebug.diff(reference, backend)
    found = [each for node in result.nodes for each in node.findings if each.kind == "precision" and each.evidence]
    assert any("is 1e-10, below 5.96e-08, the smallest float16, and becomes 0" in each.sentence for each in found)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_honest_rounding_to_a_short_format_is_no_divergence(tmp_path, precision):
    model, inputs = DIGITS / "digits.onnx", digits()
    _, backend = record(tmp_path, model, inputs, precision=precision)
    result = qdebug.diff(reference(tmp_path, model, inputs, opt="none"), backend)
    assert result.status == "within"
    assert result.exit_code == 0


def test_what_all_taps_change_is_disturbed_and_nobody_is_accused(tmp_path):
    _, backend = record(tmp_path, DIGITS / "digits.onnx", digits(), precision="bf16", taps="all")
    result = qdebug.diff(reference(tmp_path, DIGITS / "digits.onnx", digits(), opt="none"), backend)
    assert result.first_divergence is None
    if backend.info.options["effective_precision"] == "bf16":
        assert backend.info.disturbed


def test_a_cast_to_integers_makes_no_codes_of_them(tmp_path):
    x = (np.random.default_rng(0).standard_normal((1, 4, 16, 16)) * 300).astype(np.float32)
    given = ops.parameter(x.shape, np.float32, name="x")
    whole = ops.convert(ops.multiply(given, np.float32(1.5)), "i32")
    path = saved(tmp_path, [ops.multiply(ops.convert(whole, "f32"), np.float32(0.25))], [given])
    _, recording = record(tmp_path, path, {"x": x}, samples=None)
    assert not any(info.quant for info in recording.graph.tensors.values())
    assert "DequantizeLinear" not in {node.op for node in recording.graph.nodes}


def test_a_short_result_is_recorded_as_the_run_without_taps_computes_it(tmp_path):
    """Returned in float32, a biased convolution would not round its bias; with a tap before it, an activation is
    no longer part of the layer before it."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        return ops.constant(rng.standard_normal(shape).astype(np.float32))

    def convolution(value, inputs, outputs):
        sums = ops.convolution(value, draw(outputs, inputs, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1])
        return ops.add(sums, draw(1, outputs, 1, 1))

    x = ops.parameter([1, 3, 16, 16], np.float32, name="x")
    first = convolution(x, 3, 16)
    gate = ops.minimum(ops.maximum(ops.add(first, np.float32(3)), np.float32(0)), np.float32(6))
    hard_swish = ops.divide(ops.multiply(first, gate), np.float32(6))  # OpenVINO's own operation takes its place
    second = ops.relu(convolution(hard_swish, 16, 16))
    rows = ops.reshape(second, np.array([1, 4096]), special_zero=False)
    y = ops.matmul(rows, draw(4096, 8), transpose_a=False, transpose_b=False)
    for name, value in {"first": first, "second": second, "rows": rows}.items():
        value.set_friendly_name(name)
    model = saved(tmp_path, [ops.result(y)], [x], name="short")
    sample = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    _, recording = record(tmp_path, model, {"x": sample}, samples=1, precision="bf16")
    if recording.info.options["effective_precision"] != "bf16":
        pytest.skip("this processor does not compute in bfloat16")
    assert "first" not in recording.names  # the run without taps has only its hard swish
    second, rows = recording.load("second"), recording.load("rows")
    assert np.array_equal(rows, second.reshape(rows.shape))
    run = load_backend("openvino").open(model, options={"precision": "bf16"})
    alone = run.compile({"second": run.tap_ports()["second"]}).run({"x": sample})["second"]
    assert np.array_equal(second, alone)
    assert {node.status for node in qdebug.explain(recording).nodes}.isdisjoint({"unexplained"})
