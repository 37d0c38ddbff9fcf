"""Every output of every node gets a status, and what is said of it is true."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording, find_outputs, outputs_with_same_operators
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.errors import UsageError
from qdebug.model import Fidelity, Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.numerics.fixedpoint import quantize_multiplier
from qdebug.present.explained import headline
from qdebug.present.reports.schema import load_schema
from qdebug.recording.recorder import Recorder
from qdebug.replay.evaluate import compute
from qdebug.replay.node_units import unit_of_call
from qdebug.replay.registry import Call
from qdebug.replay.variant import Arithmetic

Q8 = QuantParams(dtype="int8", scale=0.1, zero_point=2)


def only(recording, **options):
    (node,) = explain_recording(recording, **options).nodes
    return node


def one_node(node, arrays, quants=(), **tensor):
    known = {name: TensorInfo(name=name, dtype="int8", quant=quant) for name, quant in dict(quants).items()}
    graph = Graph([node], tensors=known.values(), inputs=["x"], outputs=["y"])
    return MemoryRecording.single(graph, arrays)


def test_an_explained_node_says_by_what(quantized):
    node = only(quantized.conv(""))
    assert node.status is ExplainStatus.EXPLAINED
    assert (node.kind, node.dtypes, node.match) == ("conv", "int8 x int8 -> int8", 1.0)
    assert node.words == "float32 multiplier, ties to even, zero point after rounding"
    assert node.alone > len(node.variants)  # several names of one function
    assert "ort-mlas" in [preset.name for preset in node.presets]
    assert all(preset.provenance in ("measured", "source", "memory") for preset in node.presets)
    assert node.residual is None
    assert node.runner_up.match < 1


def test_an_unexplained_node_gives_its_best_match_and_what_is_left(quantized):
    def fault(sample, codes):
        codes[:, 4:8, :, -1] += 9
        return codes

    node = only(quantized.conv("", fault=fault))
    assert node.status is ExplainStatus.UNEXPLAINED
    assert 0.9 < node.match < 1
    assert len(node.variants) == 1
    assert node.presets == ()
    assert node.residual.pattern in ("tail", "channels")
    assert "last column of 12" in node.residual.detail
    assert "channels 4 to 7" in node.residual.detail
    assert node.residual.against


def test_values_that_were_not_recorded_are_said(quantized):
    full = quantized.conv("", samples=1)
    names = [name for name in full.names if name != "x"]
    bare = MemoryRecording(full.graph, {(name, 0, 0): full.load(name) for name in names})
    node = only(bare)
    assert node.status is ExplainStatus.NO_INPUT
    assert node.reason == "its input 'x' was not recorded"


def test_an_unknown_operator_is_said():
    node = only(
        one_node(Node(name="n", op="Frobnicate", inputs=("x",), outputs=("y",)), {"x": np.ones(3), "y": np.ones(3)})
    )
    assert node.status is ExplainStatus.NO_KERNEL
    assert "Frobnicate" in node.reason


def test_float_nodes_are_in_band_or_not():
    node = Node(name="act", op="Tanh", inputs=("x",), outputs=("y",))
    x = np.linspace(-1, 1, 50, dtype=np.float32)
    right = only(one_node(node, {"x": x, "y": np.tanh(x)}))
    assert right.status is ExplainStatus.IN_BAND
    wrong = only(one_node(node, {"x": x, "y": np.tanh(x) + np.float32(0.1)}))
    assert wrong.status is ExplainStatus.UNEXPLAINED
    assert "times the rounding bound" in wrong.reason
    assert wrong.kind is None


def test_codes_that_are_only_moved_must_be_equal():
    move = Node(name="flat", op="Flatten", inputs=("x",), outputs=("y",))
    x = np.arange(-8, 8, dtype=np.int8).reshape(2, 2, 4)
    quants = {"x": Q8, "y": Q8}
    right = only(one_node(move, {"x": x, "y": x.reshape(2, 8)}, quants))
    assert right.status is ExplainStatus.EXPLAINED
    assert right.words == "codes copied unchanged"
    wrong = only(one_node(move, {"x": x, "y": x.reshape(2, 8)[::-1]}, quants))
    assert wrong.status is ExplainStatus.UNEXPLAINED
    assert "16 of 16 elements" in wrong.reason


@pytest.mark.parametrize(("wrong", "status"), [(0, "explained"), (1, "unexplained")])
def test_a_quantization_of_codes_that_are_quantized_so_does_nothing(wrong, status):
    quant = QuantParams(dtype="uint8", scale=np.float32(0.03), zero_point=119)
    codes = np.arange(200, dtype=np.uint8).reshape(2, 100)
    made = codes.copy()
    made[0, :wrong] += 1
    infos = [TensorInfo(name=name, dtype="uint8", quant=quant) for name in "xy"]
    node = Node(name="n", op="QuantizeLinear", inputs=("x",), outputs=("y",))
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"])
    (node,) = explain_recording(MemoryRecording.single(graph, {"x": codes, "y": made})).nodes
    assert node.status == status
    assert node.match == pytest.approx(1 - wrong / 200)


def test_a_plain_operator_on_codes_is_a_unit():
    """What an accelerator's recorder gives: an Add whose operands and result are codes."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (4, 40), dtype=np.int8) for _ in range(2))
    out = QuantParams(dtype="int8", scale=0.17, zero_point=-3)
    real = (a.astype(np.float32) - 2) * np.float32(0.1) + (b.astype(np.float32) - 2) * np.float32(0.1)
    y = np.clip(np.rint(real / np.float32(0.17)) - 3, -128, 127).astype(np.int8)
    node = Node(name="sum", op="Add", inputs=("x", "b"), outputs=("y",))
    graph = Graph(
        [node],
        tensors=[TensorInfo(name=n, dtype="int8", quant=q) for n, q in (("x", Q8), ("b", Q8), ("y", out))],
        inputs=["x", "b"],
        outputs=["y"],
    )
    found = only(MemoryRecording.single(graph, {"x": a, "b": b, "y": y}))
    assert found.status is ExplainStatus.EXPLAINED
    assert found.kind == "add"


def test_a_group_without_its_inside_is_one_unit():
    """DequantizeLinear, Relu, QuantizeLinear of a backend that computed them as one and recorded codes alone."""
    scale, zero = np.float32(0.1), np.asarray(2, np.int8)
    nodes = [
        Node(name="dq", op="DequantizeLinear", inputs=("x", "s", "z"), outputs=("real",)),
        Node(name="relu", op="Relu", inputs=("real",), outputs=("positive",)),
        Node(name="q", op="QuantizeLinear", inputs=("positive", "s", "z"), outputs=("y",)),
    ]
    quant = QuantParams(dtype="int8", scale=scale, zero_point=2)
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z")]
    tensors += [TensorInfo(name=name, dtype="int8", quant=quant) for name in ("x", "y")]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    x = np.arange(-128, 128, dtype=np.int8)
    arrays = {"x": x, "s": np.asarray(scale), "z": zero, "y": np.maximum(x, 2)}
    found = {node.tensor: node for node in explain_recording(MemoryRecording.single(graph, arrays)).nodes}
    assert found["y"].status is ExplainStatus.EXPLAINED
    assert found["real"].status is found["positive"].status is ExplainStatus.NO_INPUT
    assert "computed inside 'relu'" in found["positive"].reason


def test_the_document_validates_and_the_summary_counts(quantized):
    found = explain_recording(quantized.conv(""))
    plain = found.to_dict()
    jsonschema.Draft202012Validator(load_schema("explain")).validate(plain)
    assert plain["summary"]["explained"] == 1
    assert plain["summary"]["by_op"] == {"QLinearConv": {"explained": 1}}
    assert plain["arithmetic"] == {"conv:int8,int8,int8": found.nodes[0].variants[0]}
    assert found.exit_code == 0
    broken = dict(plain, nodes=[{**plain["nodes"][0], "status": "maybe"}])
    assert list(jsonschema.Draft202012Validator(load_schema("explain")).iter_errors(broken))


def test_a_recording_that_cannot_be_relied_on_is_code_3(quantized):
    made = quantized.conv("")
    made.info = RunInfo(backend="x", fidelity=Fidelity.DIFFERS)
    assert explain_recording(made).exit_code == 3


def test_names_are_found_and_siblings_with_them(quantized):
    made = quantized.conv("")
    assert find_outputs(made, "conv") == find_outputs(made, "y") == ("y",)
    assert outputs_with_same_operators(made, {"y"}) == {"y"}
    with pytest.raises(UsageError, match="Near names: 'conv'"):
        find_outputs(made, "conb")


def test_progress_names_the_nodes(quantized):
    seen = []
    explain_recording(quantized.conv(""), progress=lambda *known: seen.append(known))
    assert seen == [(0, 1, "conv"), (1, 1, "")]


def test_a_net_in_which_nothing_fits_does_not_take_forever(quantized, monkeypatch):
    """Unknown programs are tried for some nodes of an operator; the others say that they were spared."""
    monkeypatch.setattr("qdebug.compare.explaining.explain.UNKNOWN_SEARCH_MAX_FAILURES", 2)
    made = quantized.conv("")
    node = made.graph.nodes[0]
    many = [
        Node(name=f"conv{i}", op=node.op, inputs=node.inputs, outputs=(f"y{i}",), attrs=node.attrs) for i in range(4)
    ]
    quant = made.graph.tensors["y"].quant
    tensors = [info for name, info in made.graph.tensors.items() if made.graph.is_constant(name)]
    tensors += [TensorInfo(name=f"y{i}", dtype="int8", quant=quant) for i in range(4)]
    graph = Graph(many, tensors=tensors, inputs=["x"], outputs=["y0"], opset={"": 13})
    arrays = {(name, 0, 0): made.load(name) for name in made.names if name != "y"}
    wrong = np.clip(made.load("y").astype(int) + 1, -128, 127).astype(np.int8)
    arrays |= {(f"y{i}", 0, 0): wrong for i in range(4)}
    found = explain_recording(MemoryRecording(graph, arrays)).nodes
    assert {str(answer.status) for answer in found} == {"unexplained"}
    assert found[0].reason is None
    assert "were not tried" in found[-1].reason
    assert found[-1].tried < found[0].tried


@pytest.mark.parametrize("wrong", [False, True])
def test_a_bias_in_32_bits_is_dequantized_as_defined(wrong):
    node = Node(name="dq", op="DequantizeLinear", inputs=("x", "s", "z"), outputs=("y",))
    codes = np.array([-70000, 0, 12, 999999], np.int32)
    arrays = {"x": codes, "s": np.asarray(np.float32(0.03)), "z": np.zeros((), np.int32)}
    arrays["y"] = codes.astype(np.float32) * np.float32(0.03) + np.float32(0.01 if wrong else 0)
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z")]
    graph = Graph([node], tensors=constants, inputs=["x"], outputs=["y"], opset={"": 13})
    found = only(MemoryRecording.single(graph, arrays))
    assert found.status is (ExplainStatus.UNEXPLAINED if wrong else ExplainStatus.EXPLAINED)
    assert found.words == "as the operator is defined"


@pytest.mark.parametrize("scale", [np.nan, np.inf, 0.0, -0.5])
def test_a_scale_with_which_nothing_can_be_computed_is_a_finding(quantized, scale):
    constants, feeds = quantized.conv_parts()
    made = quantized.recording_of(quantized.node, constants, feeds[:1], "")
    arrays = {(name, 0, 0): made.load(name) for name in made.names} | {("y_scale", 0, 0): np.asarray(np.float32(scale))}
    answer = only(MemoryRecording(made.graph, arrays))
    assert answer.status is ExplainStatus.UNEXPLAINED
    assert answer.reason == f"the scale of its output is {scale:g}, so nothing can be computed"
    assert answer.residual is None


def test_real_values_that_are_wrong_are_counted():
    node = Node(name="dq", op="DequantizeLinear", inputs=("x", "s", "z"), outputs=("y",))
    codes = np.arange(-60, 60, dtype=np.int8)
    arrays = {"x": codes, "s": np.asarray(np.float32(0.03)), "z": np.zeros((), np.int8)}
    arrays["y"] = codes.astype(np.float32) * np.float32(0.03)
    arrays["y"][7] += 1
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z")]
    graph = Graph([node], tensors=constants, inputs=["x"], outputs=["y"], opset={"": 13})
    answer = only(MemoryRecording.single(graph, arrays))
    assert answer.status is ExplainStatus.UNEXPLAINED
    assert answer.reason == "1 of 120 elements differ from a replay of DequantizeLinear"


@pytest.mark.parametrize(
    ("op", "said", "reason"),
    [
        ("Add", ("x", "b"), "the recording does not say how its output 'y' is quantized"),
        ("Add", (), "the recording does not say how its output 'y' is quantized"),
        ("Add", ("b", "y"), "the recording does not say how the input 'x' of Add is quantized"),
        ("conv_2D", ("x", "b", "y"), "no quantized arithmetic is known for the operator conv_2D; ONNX has Conv"),
        ("Frob", ("x", "b", "y"), "no quantized arithmetic is known for the operator Frob"),
        (
            "FULLY_CONNECTED",
            ("x", "b", "y"),
            "no quantized arithmetic is known for the operator FULLY_CONNECTED; ONNX has Gemm",
        ),
        ("RELU6", ("x", "b", "y"), "no quantized arithmetic is known for the operator RELU6; ONNX has Clip"),
        ("Unknown", ("x", "b", "y"), "the recording does not say which operator computes it"),
    ],
)
def test_facts_that_were_left_out_are_no_bug(op, said, reason):
    """A harness that forgets a scale, or names operators in its own way, is told so."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(-128, 128, 200).astype(np.int8) for name in "xby"}
    node = Node(name="n", op=op, inputs=("x", "b"), outputs=("y",))
    found = only(one_node(node, arrays, dict.fromkeys(said, Q8)))
    assert (found.status, found.reason) == (ExplainStatus.NO_KERNEL, reason)


def test_scales_that_are_all_0_are_named():
    arrays = {"x": np.ones((2, 9), np.int8), "w": np.ones((9, 40), np.int8), "y": np.full((2, 40), 7, np.int8)}
    quants = {"x": Q8, "w": QuantParams(dtype="int8", scale=0.0), "y": Q8}
    found = only(one_node(Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",)), arrays, quants))
    assert found.status is ExplainStatus.UNEXPLAINED
    assert found.reason.startswith("every scale of its second operand is 0, so that all its values are 0")


def test_inputs_that_were_left_out_are_no_unknown_operator():
    arrays = {"y": np.arange(9, dtype=np.int8)}
    found = only(one_node(Node(name="n", op="Add", outputs=("y",)), arrays, {"y": Q8}))
    assert (found.status, found.reason) == (ExplainStatus.NO_KERNEL, "the recording does not say what Add reads")


def test_operands_that_do_not_fit_are_said_by_their_shapes():
    arrays = {"x": np.ones((2, 3), np.int8), "w": np.ones((4, 5), np.int8), "y": np.ones((2, 5), np.int8)}
    found = only(
        one_node(Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",)), arrays, dict.fromkeys("xwy", Q8))
    )
    assert found.reason == "MatMul cannot be computed: shapes (2, 3) and (4, 5) do not fit one another"


@pytest.mark.parametrize("mistaken", ["x", "y", ""])
def test_real_numbers_that_were_recorded_with_a_scale_are_named(mistaken):
    """A scale says that values are codes; a simulator's harness that gives both is told so."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(16, 5)).astype(np.float32)
    y = x @ w + np.float32(not mistaken)
    facts = {"scale": np.float32(0.11), "zero_point": 3}
    with Recorder(None, backend="npu") as recorder:
        recorder.constant("w", w)
        recorder.put("x", x, **(facts if mistaken == "x" else {}))
        recorder.put("y", y, node="n", op="MatMul", inputs=("x", "w"), **(facts if mistaken == "y" else {}))
    found = only(recorder.recording)
    assert found.status is ExplainStatus.UNEXPLAINED
    said = f"{mistaken!r} was recorded with a scale, but its values are not integers"
    assert found.reason.endswith(said) == bool(mistaken)


def test_layouts_and_attributes_that_were_left_out_are_named():
    def conv(x, y, attrs):
        w = np.ones((8, 4, 3, 3), np.int8)
        node = Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs=attrs)
        arrays = {"x": np.ones(x, np.int8), "w": w, "y": np.ones(y, np.int8)}
        return only(one_node(node, arrays, dict.fromkeys("xwy", Q8)))

    last = conv((1, 9, 9, 4), (1, 7, 7, 8), {"group": 1})
    assert "if the channels come last, that is the attribute channels_last=1" in last.reason
    padded = conv((1, 4, 9, 9), (1, 8, 9, 9), {})
    assert padded.status is ExplainStatus.NO_KERNEL
    assert padded.reason.endswith("no attributes were recorded, such as pads and strides")


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("stats", "its input 'x' was kept as statistics only"),
        ("elements:10", "its input 'x' was kept with only 11 of 64 elem"),
    ],
)
def test_values_that_were_kept_in_part_are_said(keep, said):
    values = np.arange(64, dtype=np.int8)
    with Recorder(None, backend="npu", keep=keep) as recorder:
        recorder.put("x", values, scale=0.1, zero_point=2)
        recorder.put("y", values, node="n", op="Relu", inputs=("x",), scale=0.1, zero_point=2)
    assert only(recorder.recording).reason.startswith(said)


def test_a_wrong_scale_is_not_explained_by_a_program_made_up_for_it():
    """With one constant operand a shift of part of a code can be had in many ways; the siblings tell better."""
    rng = np.random.default_rng(0)
    right = np.float32(3 / 255)
    wrong = right * np.float32(1.01)
    constants = {"s": np.float32(0.0450948), "z": np.uint8(99), "c": np.uint8(255), "cz": np.uint8(0)}
    constants |= {"cs": right, "ys": np.float32(6 / 255), "yz": np.uint8(0)}
    arrays = {(name, 0, 0): np.asarray(value) for name, value in constants.items()}
    nodes = []
    for number in range(2):
        x, other = (rng.integers(0, 256, 5000).astype(np.uint8) for _ in range(2))
        second = ("b", "s", "z") if number else ("c", "cs", "cz")
        node = Node(
            name=f"add{number}",
            op="QLinearAdd",
            domain="com.microsoft",
            inputs=(f"x{number}", "s", "z", *second, "ys", "yz"),
            outputs=(f"y{number}",),
        )
        values = constants | {f"x{number}": x, "b": other}
        arrays[f"x{number}", 0, 0] = x
        arrays["b", 0, 0] = other
        call = Call(inputs=tuple(np.asarray(values[name]) for name in node.inputs), op=node.op)
        arrays[f"y{number}", 0, 0] = compute(unit_of_call(call), Arithmetic().variant(unit_of_call(call)))
        nodes.append(node)
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    graph = Graph(nodes, tensors=tensors, inputs=["x0", "x1", "b"], outputs=["y0", "y1"])
    assert {str(node.status) for node in explain_recording(MemoryRecording(graph, arrays)).nodes} == {"explained"}
    found = explain_recording(MemoryRecording(graph, arrays | {("cs", 0, 0): np.asarray(wrong)})).nodes
    assert [str(node.status) for node in found] == ["unexplained", "explained"]
    assert "no known runtime" in found[0].reason


def recorded_with(quantized, variant, **facts):
    """Record a convolution with an integer multiplier and shift beside its output."""
    plain = quantized.conv(variant, scales=quantized.generic)
    info = plain.graph.tensors["y"]
    quant = replace(info.quant, **{name: np.asarray(value) for name, value in facts.items()})
    tensors = [replace(info, quant=quant) if name == "y" else known for name, known in plain.graph.tensors.items()]
    graph = Graph(plain.graph.nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    return MemoryRecording(
        graph, {(n, s, 0): plain.load(n, s) for n in plain.names for s in range(2) if plain.has(n, s)}
    )


def test_recorded_integers_are_tried_first_and_it_is_said_that_they_fit(quantized):
    x, w, y = (float(np.float32(scale)) for scale in quantized.generic)
    multiplier, exponent = quantize_multiplier(x * w / y)
    node = only(
        recorded_with(quantized, "m=q31:d:xw/y steps=mul,shr.up,zp,sat", multiplier=multiplier, shift=-exponent)
    )
    assert node.variants[0] == "m=given:xw/y steps=mul,shr.up,zp,sat"
    assert node.words.startswith("recorded multiplier and shift, ties up")
    assert node.recorded.reproduces
    assert node.to_dict()["recorded"] == {"reproduces": True, "ratio": pytest.approx(1)}
    assert "tflite-opt-sse4" in [preset.name for preset in node.presets]


def test_recorded_integers_that_do_not_fit_are_said_not_to(quantized):
    node = only(recorded_with(quantized, "", multiplier=[1 << 30], shift=[36]))
    assert node.status is ExplainStatus.EXPLAINED
    assert node.variants[0] == "m=f32:xw/y"
    assert not node.recorded.reproduces
    assert "no step program with the recorded multiplier and shift reproduces the codes" in node.reason
    assert "times the quotient of the recorded scales" in node.reason


def test_recorded_integers_explain_what_the_scales_do_not(quantized):
    """A backend whose multiplier is another than its scales say computes by it all the same."""
    x, w, y = (float(np.float32(scale)) for scale in quantized.generic)
    multiplier, exponent = quantize_multiplier(1.07 * x * w / y)
    wrong = (quantized.generic[0], quantized.generic[1], quantized.generic[2] / 1.07)
    moved = quantized.conv("m=q31:d:xw/y steps=mul,shr.up,zp,sat", scales=wrong)
    facts = recorded_with(quantized, "", multiplier=multiplier, shift=31 - exponent)
    arrays = {(n, s, 0): facts.load(n, s) for n in facts.names for s in range(2) if facts.has(n, s)}
    arrays |= {("y", sample, 0): moved.load("y", sample) for sample in range(2)}
    node = only(MemoryRecording(facts.graph, arrays))
    assert node.status is ExplainStatus.EXPLAINED
    assert node.recorded.reproduces
    assert node.recorded.ratio == pytest.approx(1.07, rel=1e-6)
    assert node.reason.endswith("their product is 1.07 times the quotient of the recorded scales")
    assert all("given" in text for text in node.variants)


def test_what_an_answer_assumes_beyond_the_recorded_types_is_in_the_summary():
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 64), (64, 8)))
    x *= np.float32(1e-6)  # subnormals of float16, whose bits TF32 keeps
    half = x.astype(np.float16).astype(np.float32) @ w.astype(np.float16).astype(np.float32)

    def explained(y):
        graph = Graph([Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("y",))], inputs=["x"], outputs=["y"])
        return explain_recording(MemoryRecording.single(graph, {"x": x, "w": w, "y": y}))

    assert explained(x @ w).summary["assumed"] == {}
    found = explained(half)
    assert found.summary["assumed"] == {"inputs rounded to float16": 1}
    assert headline(found).endswith("; assumed: inputs rounded to float16 (1 node)")
    assert found.to_dict()["nodes"][0]["assumed"] == "inputs rounded to float16"


def test_a_node_may_leave_its_first_output_out():
    x = np.arange(8, dtype=np.int8).reshape(1, 8)
    node = Node(name="split", op="Split", inputs=("x",), outputs=("", "y"), attrs={"axis": 1, "num_outputs": 2})
    found = only(one_node(node, {"x": x, "y": x[:, 4:]}, {"x": Q8, "y": Q8}))
    assert found.status is ExplainStatus.EXPLAINED
