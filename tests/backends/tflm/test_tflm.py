"""TensorFlow Lite Micro: every tensor of its own run, in a reused arena or not, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend, load_reader
from qdebug.errors import BackendError, InputError, UsageError
from qdebug.running.record import record_run

pytest.importorskip("tflite_micro", reason="needs the extra tflm")
pytest.importorskip("ai_edge_litert", reason="needs the extra tflm")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
ROW = np.array([[1, -2, 3, -4]], np.float32)


def record(tmp_path, inputs, *, form="int8", backend="tflm", **more):
    out = tmp_path / f"{form}.{backend}.h5"
    model = DIGITS / f"digits_{form}.tflite"
    summary = record_run(model, backend=backend, inputs=inputs[form], out=out, samples=4, force=True, **more)
    return summary, qdebug.open_recording(out)


def record_net(net, tmp_path, inputs, **more):
    path, out = net.save(tmp_path / "net.tflite"), tmp_path / "net.h5"
    summary = record_run(path, backend="tflm", inputs=inputs, out=out, force=True, **more)
    return summary, qdebug.open_recording(out)


def altered(monkeypatch, name, change):
    """Put in an interpreter with another method of this name, made by a function of the own one."""
    from tflite_micro import runtime

    own = getattr(runtime.Interpreter, name)
    monkeypatch.setattr(runtime.Interpreter, name, change(own))


def summed(net):
    """Make a net that adds its input to a sum that it keeps."""
    x, handle = net.input("x", (1, 4)), net.tensor("handle", (1,), "RESOURCE")
    before, after = net.tensor("before", (1, 4)), net.tensor("after", (1, 4))
    net.node("VAR_HANDLE", [], [handle], "VarHandleOptions", container=b"", sharedName=b"sum")
    net.node("READ_VARIABLE", [handle], [before], "ReadVariableOptions")
    net.node("ADD", [x, before], [after], "AddOptions")
    net.node("ASSIGN_VARIABLE", [handle, after], [], "AssignVariableOptions")
    net.output(after)
    return net


@pytest.mark.parametrize("form", ["float", "int8"])
def test_every_tensor_is_recorded_and_the_outputs_are_those_of_a_reused_arena(tmp_path, digits_inputs, form):
    summary, recording = record(tmp_path, digits_inputs, form=form)
    assert summary.fidelity == "bit_equal"
    assert summary.skipped == {}
    assert set(recording.graph.tensors) == set(recording.names)
    assert all(recording.has(name, 3) for name in recording.names if not recording.graph.is_constant(name))


@pytest.mark.parametrize("form", ["float", "int8"])
def test_the_kernels_are_litert_s_reference_kernels(tmp_path, digits_inputs, form):
    _, reference = record(tmp_path, digits_inputs, form=form, backend="litert", options={"kernels": "reference"})
    _, backend = record(tmp_path, digits_inputs, form=form)
    result = qdebug.diff(reference, backend)
    assert result.status == "identical"
    assert result.coverage.compared == 14


def test_the_arithmetic_of_every_quantized_node_is_named(tmp_path, digits_inputs):
    explanation = qdebug.explain(record(tmp_path, digits_inputs)[1])
    assert explanation.summary["unexplained"] == 0
    assert explanation.summary["explained"] == 10
    convolutions = [node for node in explanation.nodes if node.op == "CONV_2D"]
    assert len(convolutions) == 3
    assert all("tflite-reference" in {match.name for match in node.presets} for node in convolutions)


def test_an_arena_that_gives_wrong_outputs_when_it_is_reused_is_told(tmp_path, digits_inputs, monkeypatch):
    altered(monkeypatch, "get_output", lambda own: lambda self, index: own(self, index) + np.int8(1))
    summary, _ = record(tmp_path, digits_inputs)
    assert summary.fidelity == "differs"
    assert "by up to 1" in summary.fidelity_detail


def test_outputs_alone(tmp_path, digits_inputs):
    summary, recording = record(tmp_path, digits_inputs, taps="outputs", weights=False)
    assert summary.fidelity == "bit_equal"
    assert set(recording.names) == {*recording.graph.inputs, *recording.graph.outputs}


def test_what_ran_is_recorded(tmp_path, digits_inputs):
    info = record(tmp_path, digits_inputs)[1].info
    assert info.versions["tflite-micro"]
    assert int(info.options["arena_bytes"]) >= 10 * (DIGITS / "digits_int8.tflite").stat().st_size
    assert len(info.model_sha256) == 64


def test_state_is_kept_over_steps_and_forgotten_between_samples(tmp_path, net):
    inputs = {"x": np.stack([np.stack([ROW, 2 * ROW, 3 * ROW])] * 2)}
    summary, recording = record_net(summed(net), tmp_path, inputs, samples=2, steps=3)
    assert summary.fidelity == "bit_equal"
    assert list(summary.skipped) == ["handle"]
    for sample in range(2):
        for step, factor in enumerate((1, 3, 6)):
            assert np.array_equal(recording.load("after", sample, step), factor * ROW)
            assert np.array_equal(recording.load("before", sample, step), (factor - step - 1) * ROW)


def test_a_variable_is_recorded_as_a_run_reads_it(tmp_path, net):
    x, state = net.input("x", (1, 2)), net.tensor("state", (1, 2), isVariable=True)
    features = net.constant("features", np.array([[2, 3]], np.float32))
    memory = net.constant("memory", np.array([[10, 1]], np.float32))
    bias = net.constant("bias", np.zeros(1, np.float32))
    y = net.tensor("y", (1, 1))
    net.node("SVDF", [x, features, memory, bias, state], [y], "SVDFOptions", rank=1)
    net.output(y)
    inputs = {"x": np.array([[[1, 1]], [[1, 2]]], np.float32)}
    summary, recording = record_net(net, tmp_path, inputs, steps=2)
    assert summary.fidelity == "bit_equal"
    assert np.array_equal(recording.load("state", 0, 0), [[0, 0]])
    assert np.array_equal(recording.load("y", 0, 0), [[5]])
    assert np.array_equal(recording.load("state", 0, 1), [[0, 5]])
    assert np.array_equal(recording.load("y", 0, 1), [[58]])


def test_an_arena_grows_until_the_model_fits(tmp_path, net):
    made = net.input("x", (1, 64, 64, 8))
    for number in range(3):
        before, made = made, net.tensor(f"t{number}", (1, 64, 64, 8))
        net.node("NEG", [before], [made])
    net.output(made)
    summary, recording = record_net(net, tmp_path, {"x": np.ones((1, 64, 64, 8), np.float32)})
    assert summary.fidelity == "bit_equal"
    assert int(recording.info.options["arena_bytes"]) >= 2 * 64 * 64 * 8 * 4


def test_an_arena_that_is_too_small_is_said_with_what_is_missing():
    with pytest.raises(
        BackendError, match=r"arena of 4000 bytes is too small for 'digits_int8.tflite'.*needs at least"
    ):
        load_backend("tflm").open(DIGITS / "digits_int8.tflite", options={"arena": "4000"})


@pytest.mark.parametrize("arena", ["0", "100", "4k", "-1", str(1 << 40)])
def test_an_arena_is_a_number_of_bytes(arena):
    with pytest.raises(UsageError, match="auto or a number of bytes"):
        load_backend("tflm").open(DIGITS / "digits_int8.tflite", options={"arena": arena})


def test_an_operator_that_tflm_does_not_have_is_named(tmp_path, net):
    x, y = net.input("x", (1, 4)), net.tensor("y", (1, 4))
    net.node("CUSTOM", [x], [y], custom="Swirl")
    net.output(y)
    with pytest.raises(BackendError, match="Swirl") as caught:
        record_net(net, tmp_path, {"x": ROW})
    assert "litert:kernels=reference" in caught.value.hint
    assert not (tmp_path / "net.h5").exists()


def test_what_a_kernel_prints_when_it_fails_is_said(tmp_path, net, capfd):
    x, y = net.input("x", (1, 4), "INT64"), net.tensor("y", (1, 4), "INT64")
    net.node("LOGISTIC", [x], [y])
    net.output(y)
    with pytest.raises(BackendError, match="Input INT64, output INT64 not supported"):
        record_net(net, tmp_path, {"x": np.ones((1, 4), np.int64)})
    assert capfd.readouterr() == ("", "")


def test_what_is_printed_beside_a_run_goes_to_stderr(tmp_path, net, monkeypatch, capfd):
    x, y = net.input("x", (1, 4)), net.tensor("y", (1, 4))
    net.node("ABS", [x], [y])
    net.output(y)

    def loud(own):
        return lambda self: os.write(1, b"noise\n") and own(self)

    altered(monkeypatch, "invoke", loud)
    record_net(net, tmp_path, {"x": ROW})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == "noise\n" * 2  # the recorded run and the plain one


def test_shapes_are_fixed_and_the_model_s_are_asked_for(tmp_path, net):
    x = net.input("x", (1, 4), shapeSignature=[-1, 4])
    y = net.tensor("y", (1, 4), shapeSignature=[-1, 4])
    net.node("ABS", [x], [y])
    net.output(y)
    _, recording = record_net(net, tmp_path, {"x": ROW})
    assert recording.graph.tensors["y"].shape == (1, 4)
    with pytest.raises(InputError, match=r"\[2, 4\]; expected \[1, 4\]"):
        record_net(net, tmp_path, {"x": np.ones((2, 4), np.float32)})


def test_an_output_may_be_an_input_or_a_constant_and_names_may_repeat(tmp_path, net):
    x, y = net.input("x", (1, 4)), net.tensor("x", (1, 4))
    c = net.constant("c", np.arange(4, dtype=np.float32))
    net.node("ABS", [x], [y])
    net.output(y, x, c)
    summary, recording = record_net(net, tmp_path, {"x": np.array([[np.nan, -np.inf, -0.0, -1]], np.float32)})
    assert summary.fidelity == "bit_equal"
    assert set(recording.names) == {"x", "x:1", "c"}
    assert np.array_equal(recording.load("x:1"), [[np.nan, np.inf, 0, 1]], equal_nan=True)
    assert np.array_equal(recording.load("c"), np.arange(4))


def test_a_recording_is_no_model(tmp_path, digits_inputs):
    with pytest.raises(UsageError, match="not recordings"):
        load_backend("tflm").open(record(tmp_path, digits_inputs)[1], options={})


def test_a_damaged_model_is_refused_wherever_it_is_cut(tmp_path):
    whole = (DIGITS / "digits_int8.tflite").read_bytes()
    path = tmp_path / "net.tflite"
    for size in range(0, len(whole), len(whole) // 40):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"not a LiteRT model|is damaged"):
            load_backend("tflm").open(path, options={})


def test_a_command_prints_nothing_of_tflm_on_stdout(tmp_path, digits_inputs):
    inputs = tmp_path / "x.npz"
    np.savez(inputs, **{name: array[:1] for name, array in digits_inputs["int8"].items()})
    arguments = ["record", str(DIGITS / "digits_int8.tflite"), "--backend", "tflm", "--inputs", str(inputs)]
    done = subprocess.run(
        [sys.executable, "-m", "qdebug", *arguments, "-o", str(tmp_path / "x.h5")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith("fidelity bit_equal")
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pitch", "wake-word"])
def test_real_nets_give_what_litert_s_reference_kernels_give(tmp_path, nets, name):
    path, made = nets.net(name), {}
    source = load_reader(path)
    rng = np.random.default_rng(0)
    steps = 3 if source.stateful else None
    inputs = {}
    for each in source.graph.inputs:
        shape = (*((steps,) if steps else ()), *(extent or 1 for extent in source.graph.tensors[each].shape))
        drawn = rng.standard_normal(shape) if name == "pitch" else rng.integers(-128, 127, shape)
        inputs[each] = drawn.astype(source.graph.tensors[each].dtype)
    for backend, options in (("litert", {"kernels": "reference"}), ("tflm", {})):
        out = made[backend] = tmp_path / f"{backend}.h5"
        summary = record_run(path, backend=backend, options=options, inputs=inputs, out=out, steps=steps)
        recording = qdebug.open_recording(out)
        assert summary.fidelity == "bit_equal"
        assert {recording.graph.tensors[each].dtype for each in summary.skipped} <= {None}  # resources
        assert set(recording.names) | set(summary.skipped) == set(recording.graph.tensors)
    assert qdebug.diff(made["litert"], made["tflm"]).status == "identical"
    if name == "wake-word":
        assert qdebug.explain(made["tflm"]).summary["unexplained"] == 0
