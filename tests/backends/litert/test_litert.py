"""Real nets on LiteRT's three sets of kernels: recorded as they run, compared, and explained."""

from __future__ import annotations

import platform
import warnings
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend
from qdebug.errors import BackendError, InputError, UsageError
from qdebug.running.record import record_run

pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
X86 = platform.machine() in {"x86_64", "AMD64"}
KERNELS = ("xnnpack", "builtin", "reference")


def record(tmp_path, inputs, *, kernels="xnnpack", form="int8", taps="faithful", **more):
    out = tmp_path / f"{form}.{kernels}.{taps}.h5"
    summary = record_run(
        DIGITS / f"digits_{form}.tflite",
        backend="litert",
        options={"kernels": kernels},
        inputs=inputs[form],
        out=out,
        samples=4,
        taps=taps,
        **more,
    )
    return summary, qdebug.open_recording(out)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("form", ["float", "int8"])
def test_every_tensor_is_recorded_and_the_outputs_are_those_of_a_plain_run(tmp_path, digits_inputs, form, kernels):
    summary, recording = record(tmp_path, digits_inputs, form=form, kernels=kernels)
    assert summary.fidelity == "bit_equal"
    assert summary.skipped == {}
    ways = "without fusion and without memory reuse" if kernels == "xnnpack" else "without memory reuse"
    assert summary.fidelity_detail.endswith(f"the same {ways}")
    assert set(recording.graph.tensors) == set(recording.names)
    assert all(recording.has(name, 3) for name in recording.names if not recording.graph.is_constant(name))


def test_each_node_says_whose_kernel_ran_it(tmp_path, digits_inputs):
    ran = {}
    for kernels in KERNELS:
        _, recording = record(tmp_path, digits_inputs, kernels=kernels)
        ran[kernels] = {node.op: node.placement for node in recording.graph.nodes}
    assert ran["xnnpack"]["CONV_2D"] == ran["xnnpack"]["FULLY_CONNECTED"] == "XNNPACK"
    assert ran["xnnpack"]["PACK"] == "builtin kernels"  # XNNPACK has none
    assert set(ran["builtin"].values()) == {"builtin kernels"}
    assert set(ran["reference"].values()) == {"reference kernels"}


@pytest.mark.parametrize("kernels", KERNELS)
def test_each_tensor_is_what_an_interpreter_holds(tmp_path, digits_inputs, kernels):
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = {"xnnpack": "BUILTIN", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}
    path = str(DIGITS / "digits_int8.tflite")
    kind = getattr(OpResolverType, resolver[kernels])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that keeping tensors takes memory
        held = Interpreter(path, experimental_op_resolver_type=kind, experimental_preserve_all_tensors=True)
    held.allocate_tensors()
    _, recording = record(tmp_path, digits_inputs, kernels=kernels)
    ((name, images),) = digits_inputs["int8"].items()
    for sample, image in enumerate(images):
        held.set_tensor(0, image[None])
        held.invoke()
        assert np.array_equal(recording.load(name, sample), image[None])
        for details in held.get_tensor_details():
            if details["name"] in recording.names:
                found = held.get_tensor(details["index"])
                assert np.array_equal(recording.load(details["name"], sample), found), details["name"]


@pytest.mark.parametrize(
    ("kernels", "preset"),
    [("xnnpack", "xnnpack-fp32" if X86 else None), ("builtin", None), ("reference", "tflite-reference")],
)
def test_the_arithmetic_of_every_quantized_node_is_named(tmp_path, digits_inputs, kernels, preset):
    _, recording = record(tmp_path, digits_inputs, kernels=kernels)
    explanation = qdebug.explain(recording)
    assert explanation.summary["unexplained"] == 0
    assert explanation.summary["explained"] == 10
    if preset is not None:  # what the other kernels compute depends on the processor
        convolutions = [node for node in explanation.nodes if node.op == "CONV_2D"]
        assert convolutions
        assert all(preset in {match.name for match in node.presets} for node in convolutions)


def test_kernels_are_compared_node_by_node(tmp_path, digits_inputs):
    _, reference = record(tmp_path, digits_inputs, kernels="reference")
    _, backend = record(tmp_path, digits_inputs, kernels="xnnpack")
    result = qdebug.diff(reference, backend)
    assert result.status == "within"
    assert result.coverage.compared == 14
    assert all(node.status in {"identical", "within"} for node in result.nodes)


def test_the_float_net_is_the_reference_of_the_int8_net(tmp_path, digits_inputs):
    _, reference = record(tmp_path, digits_inputs, form="float", kernels="reference")
    _, backend = record(tmp_path, digits_inputs)
    result = qdebug.diff(reference, backend)
    assert result.status == "within"
    assert result.coverage.compared == 14


def test_the_interpreter_replays_a_recording_to_the_same_codes(tmp_path, digits_inputs):
    _, recording = record(tmp_path, digits_inputs, kernels="reference")
    twin = tmp_path / "twin.h5"
    summary = record_run(
        tmp_path / "int8.reference.faithful.h5",
        backend="interpreter",
        options={"arithmetic": "tflite-reference"},
        inputs=digits_inputs["int8"],
        out=twin,
        samples=4,
    )
    assert summary.fidelity == "bit_equal"
    result = qdebug.diff(twin, recording)
    assert result.status == "identical"
    assert result.coverage.compared == 11


def test_an_onnx_net_and_its_form_for_litert_are_compared_node_by_node(tmp_path, digits_inputs):
    pytest.importorskip("onnxruntime")
    reference = tmp_path / "onnx.h5"
    with np.load(DIGITS / "digits_test.npz") as archive:
        images = archive["x"][:4]
    inputs, options = {"x": images}, {"opt": "none"}
    net = DIGITS / "digits.onnx"
    record_run(net, backend="onnxruntime", options=options, inputs=inputs, out=reference, samples=4)
    for form in ("float", "int8"):
        _, backend = record(tmp_path, digits_inputs, form=form)
        result = qdebug.diff(reference, backend)
        assert result.status == "within"
        assert result.coverage.compared == 11
        assert not [each for each in result.coverage.unmatched if each.kind == "lost"]


@pytest.mark.parametrize("taps", ["all", "outputs"])
def test_other_taps(tmp_path, digits_inputs, taps):
    summary, recording = record(tmp_path, digits_inputs, taps=taps)
    assert summary.fidelity == "bit_equal"
    varying = [name for name in recording.names if not recording.graph.is_constant(name)]
    assert len(varying) == (14 if taps == "all" else 2)


def test_no_weights(tmp_path, digits_inputs):
    _, recording = record(tmp_path, digits_inputs, weights=False)
    assert not any(recording.graph.is_constant(name) for name in recording.names)


def test_what_ran_is_recorded(tmp_path, digits_inputs):
    _, recording = record(tmp_path, digits_inputs, kernels="builtin")
    info = recording.info
    assert info.options["kernels"] == "builtin"
    assert info.options["resolver"] == "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    assert info.versions["ai-edge-litert"]
    assert len(info.model_sha256) == 64


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kernels": "gpu"}, "xnnpack, builtin, reference"),
        ({"threads": "0"}, "an integer of at least 1"),
        ({"delegate": "gpu"}, "no option 'delegate'"),
    ],
)
def test_wrong_options_are_named(options, named):
    with pytest.raises(UsageError, match=named):
        load_backend("litert").open(DIGITS / "digits_int8.tflite", options=options)


def test_a_recording_is_no_model(tmp_path, digits_inputs):
    _, recording = record(tmp_path, digits_inputs)
    with pytest.raises(UsageError, match="not recordings"):
        load_backend("litert").open(recording, options={})


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"\x1c\0\0\0TFL3" + b"\xff" * 64])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"not a LiteRT model|is damaged"):
        load_backend("litert").open(path, options={})


def test_a_damaged_model_is_refused_wherever_it_is_cut(tmp_path):
    whole = (DIGITS / "digits_int8.tflite").read_bytes()
    path = tmp_path / "net.tflite"
    for size in range(8, len(whole), len(whole) // 40):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"not a LiteRT model|is damaged"):
            load_backend("litert").open(path, options={})


def test_missing_inputs_are_named(tmp_path, digits_inputs):
    with pytest.raises(InputError, match="serving_default"):
        record(tmp_path, {"int8": {"x": np.zeros((4, 8, 8, 1), np.int8)}})


def test_an_operator_that_litert_does_not_have_is_named(tmp_path, net):
    x = net.input("x", (1, 4))
    y = net.tensor("y", (1, 4))
    net.node("CUSTOM", [x], [y], custom="Swirl")
    net.output(y)
    with pytest.raises(BackendError, match="Swirl"):
        record_run(
            net.save(tmp_path / "net.tflite"),
            backend="litert",
            inputs={"x": np.zeros((1, 4), np.float32)},
            out=tmp_path / "x.h5",
        )
    assert not (tmp_path / "x.h5").exists()


def test_values_that_are_no_numbers_pass_through(tmp_path, net):
    x = net.input("x", (1, 4))
    y = net.tensor("y", (1, 4))
    net.node("ABS", [x], [y])
    net.output(y)
    out = tmp_path / "x.h5"
    summary = record_run(
        net.save(tmp_path / "net.tflite"),
        backend="litert",
        inputs={"x": np.array([[np.nan, -np.inf, 0, -1]], np.float32)},
        out=out,
    )
    assert summary.fidelity == "bit_equal"
    assert np.isnan(qdebug.open_recording(out).load("y")[0, 0])


@pytest.mark.parametrize("kernels", KERNELS)
def test_branches_are_listed_with_what_runs_them(tmp_path, net, kernels):
    chosen, x = net.input("chosen", (1,), "BOOL"), net.input("x", (1, 4))
    y, z = net.tensor("y", (1, 4)), net.tensor("z", (1, 4))
    net.node("IF", [chosen, x], [y], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    net.node("NEG", [y], [z])
    net.output(z)
    for name, op in ((b"then", "ABS"), (b"else", "NEG")):
        net.subgraph()
        net.graph.name = name
        inner, out = net.input("x", (1, 4)), net.tensor("out", (1, 4))
        net.node(op, [inner], [out])
        net.output(out)
    summary = record_run(
        net.save(tmp_path / "net.tflite"),
        backend="litert",
        options={"kernels": kernels},
        inputs={"chosen": np.array([False]), "x": np.array([[1, -2, 3, -4]], np.float32)},
        out=tmp_path / "x.h5",
    )
    recording = qdebug.open_recording(tmp_path / "x.h5")
    assert summary.fidelity == "bit_equal"
    assert recording.load("y").tolist() == [[-1, 2, -3, 4]]
    assert recording.info.options["note"] == (
        "tensors inside these subgraphs are not recorded: "
        "'then' (2 tensors) of IF 'IF:y', 'else' (2 tensors) of IF 'IF:y'"
    )


def test_extents_that_a_model_leaves_open_are_those_of_the_inputs(tmp_path, net):
    x = net.input("x", (1, 4), shapeSignature=[-1, 4])
    y = net.tensor("y", (1, 4), shapeSignature=[-1, 4])
    net.node("NEG", [x], [y])
    net.output(y)
    path, out = net.save(tmp_path / "net.tflite"), tmp_path / "x.h5"
    record_run(path, backend="litert", inputs={"x": np.ones((3, 4), np.float32)}, out=out)
    assert qdebug.open_recording(out).load("y").shape == (3, 4)
    with pytest.raises(InputError, match=r"has shape \[3, 5\]; expected \[\?, 4\]"):
        record_run(path, backend="litert", inputs={"x": np.ones((3, 5), np.float32)}, out=out, force=True)
