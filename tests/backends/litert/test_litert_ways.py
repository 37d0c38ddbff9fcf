"""Fusion and the reuse of memory are told apart, and a tap that changes the outputs is left out."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import qdebug
from qdebug.running.record import record_run

interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")

INPUT = {"x": np.random.default_rng(0).standard_normal((1, 2, 4)).astype(np.float32)}


def shared(net):
    """Make the net that LiteRT's builtin kernels compute wrongly: a tensor seen through two reshapes.

    SOFTMAX overwrites its input in place, and the first of the reshapes, which is the same memory, is read after it.
    See the public issues 8889 and 8928 of google-ai-edge/LiteRT.
    """
    x = net.input("x", (1, 2, 4))
    tensors = {name: net.tensor(name, shape) for name, shape in SHAPES.items()}
    flat, wide = (net.constant(name, np.array(SHAPES[name[1:]], np.int32)) for name in ("sflat", "swide"))
    net.node("ABS", [x], [tensors["abs"]])
    net.node("RESHAPE", [tensors["abs"], flat], [tensors["flat"]], "ReshapeOptions", newShape=list(SHAPES["flat"]))
    net.node("RESHAPE", [tensors["flat"], wide], [tensors["wide"]], "ReshapeOptions", newShape=list(SHAPES["wide"]))
    net.node("SOFTMAX", [tensors["wide"]], [tensors["soft"]], "SoftmaxOptions", beta=1.0)
    net.node("NEG", [tensors["soft"]], [tensors["one"]])
    net.node("NEG", [tensors["flat"]], [tensors["other"]])
    net.output(tensors["one"], tensors["other"])
    return net


SHAPES = {"abs": (1, 2, 4), "flat": (4, 2), "wide": (2, 4), "soft": (2, 4), "one": (2, 4), "other": (4, 2)}


def record(net, tmp_path, kernels="builtin", inputs=INPUT, **more):
    path = net.save(tmp_path / "net.tflite")
    return record_run(
        path, backend="litert", options={"kernels": kernels}, inputs=inputs, out=tmp_path / "x.h5", force=True, **more
    )


def alters(monkeypatch, name, when):
    """Put in an interpreter whose tensor of this name is off by one where a condition on its arguments holds."""

    class Altered(interpreter.Interpreter):
        def __init__(self, **arguments):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                super().__init__(**arguments)
            self.wrong = when(arguments, {details["index"] for details in self.get_output_details()})
            self.index = next(each["index"] for each in self.get_tensor_details() if each["name"] == name)

        def get_tensor(self, index):
            return super().get_tensor(index) + np.float32(self.wrong and index == self.index)

    monkeypatch.setattr(interpreter, "Interpreter", Altered)


def chain(net, length):
    """Make a net of a row of operators on one tensor: t0, t1, ..."""
    made = net.input("x", (1, 2, 4))
    for number in range(length):
        before, made = made, net.tensor(f"t{number}", (1, 2, 4))
        net.node("NEG", [before], [made])
    net.output(made)
    return net


@pytest.mark.parametrize("taps", ["faithful", "all", "outputs"])
def test_an_output_may_be_an_input_and_stand_twice(net, tmp_path, taps):
    x = net.input("x", (1, 2, 4))
    y = net.tensor("y", (1, 2, 4))
    net.node("NEG", [x], [y])
    net.output(y, x, y)
    assert record(net, tmp_path, "xnnpack", taps=taps).fidelity == "bit_equal"
    assert set(qdebug.open_recording(tmp_path / "x.h5").names) == {"x", "y"}


def test_memory_that_is_overwritten_while_it_is_read_is_found(net, tmp_path):
    summary = record(shared(net), tmp_path)
    plain = interpreter.Interpreter(
        str(tmp_path / "net.tflite"),
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    plain.allocate_tensors()
    plain.set_tensor(0, INPUT["x"])
    plain.invoke()
    right = -np.abs(INPUT["x"]).reshape(4, 2)
    found = next(each["index"] for each in plain.get_output_details() if each["name"] == "other")
    correct = np.array_equal(plain.get_tensor(found), right)  # as a LiteRT without the bug would be
    assert summary.fidelity == ("bit_equal" if correct else "differs")
    assert ("memory reuse changes the outputs: output 'other'" in summary.fidelity_detail) != correct
    assert np.array_equal(qdebug.open_recording(tmp_path / "x.h5").load("other"), right)


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
def test_a_runtime_that_gives_two_tensors_one_place_is_told_from_one_that_fuses(net, tmp_path, monkeypatch, kernels):
    alters(monkeypatch, "t4", lambda arguments, _: not arguments["experimental_preserve_all_tensors"])
    detail = record(chain(net, 5), tmp_path, kernels).fidelity_detail
    assert "memory reuse changes the outputs: output 't4'" in detail
    assert "by up to 1 at" in detail
    assert "fusion" not in detail


def test_fusion_that_changes_the_outputs_is_told(net, tmp_path, monkeypatch):
    kept = ("experimental_preserve_all_tensors", "experimental_disable_delegate_node_fusion")
    alters(monkeypatch, "t4", lambda arguments, _: not any(arguments.get(name) for name in kept))
    summary = record(chain(net, 5), tmp_path, "xnnpack")
    assert summary.fidelity == "bit_equal"  # what was recorded is the fused plan, as in production
    assert "operator fusion changes the outputs: output 't4'" in summary.fidelity_detail
    assert "memory" not in summary.fidelity_detail
    assert record(net, tmp_path, "xnnpack", taps="all").fidelity == "differs"


def test_a_version_that_cannot_turn_off_fusion_is_recorded_all_the_same(net, tmp_path, monkeypatch):
    current = interpreter.Interpreter

    class Old(current):  # before 2.1.6
        def __init__(
            self,
            model_path=None,
            model_content=None,
            num_threads=None,
            experimental_op_resolver_type=None,
            experimental_preserve_all_tensors=False,
        ):
            super().__init__(
                model_path=model_path,
                model_content=model_content,
                num_threads=num_threads,
                experimental_op_resolver_type=experimental_op_resolver_type,
                experimental_preserve_all_tensors=experimental_preserve_all_tensors,
            )

    monkeypatch.setattr(interpreter, "Interpreter", Old)
    summary = record(chain(net, 5), tmp_path, "xnnpack")
    assert summary.fidelity == "bit_equal"
    assert "cannot turn off fusion" in summary.fidelity_detail
    assert len(qdebug.open_recording(tmp_path / "x.h5").names) > 2


def test_a_tensor_that_cannot_be_looked_at_is_left_out_and_the_others_are_not(net, tmp_path, monkeypatch):
    alters(monkeypatch, "t19", lambda arguments, outputs: "model_content" in arguments and 8 in outputs)
    summary = record(chain(net, 20), tmp_path, "xnnpack")
    recording = qdebug.open_recording(tmp_path / "x.h5")
    assert summary.fidelity == "bit_equal"
    assert list(summary.skipped) == ["t7"]
    assert "a tap on it changes the outputs" in summary.skipped["t7"]
    assert set(recording.names) == {"x", *(f"t{number}" for number in range(20) if number != 7)}
    for number in (0, 6, 8, 19):
        assert np.array_equal(recording.load(f"t{number}"), INPUT["x"] * (-1) ** (number + 1))


def test_neighbours_are_never_tapped_at_once(net, tmp_path, monkeypatch):
    seen = []
    alters(monkeypatch, "t0", lambda _, outputs: bool(seen.append(sorted(outputs))))
    record(chain(net, 30), tmp_path, "xnnpack")
    tapped = [[index for index in outputs if index != 30] for outputs in seen]
    assert sorted(index for outputs in tapped for index in outputs) == list(range(1, 30))
    assert max(len(outputs) for outputs in tapped) <= 8
    assert min(min(np.diff(outputs)) for outputs in tapped if len(outputs) > 1) >= 4


def half(net):
    """Make a net whose weight is kept in half precision and unpacked by an operator."""
    x, weight = net.input("x", (1, 2, 4)), np.random.default_rng(1).standard_normal((3, 4)).astype(np.float16)
    packed, w = net.constant("packed", weight), net.tensor("w", (3, 4))
    wide, y, z = net.tensor("wide", (2, 4)), net.tensor("y", (2, 3)), net.tensor("z", (2, 3))
    shape = net.constant("shape", np.array([2, 4], np.int32))
    net.node("DEQUANTIZE", [packed], [w], version=3)
    net.node("RESHAPE", [x, shape], [wide], "ReshapeOptions", newShape=[2, 4])
    net.node("FULLY_CONNECTED", [wide, w, -1], [y], "FullyConnectedOptions")
    net.node("NEG", [y], [z])
    net.output(z)
    return weight


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
def test_a_weight_that_litert_unpacks_is_a_constant_and_its_reader_is_replayed(net, tmp_path, kernels):
    weight = half(net)
    assert record(net, tmp_path, kernels).fidelity == "bit_equal"
    recording = qdebug.open_recording(tmp_path / "x.h5")
    assert recording.graph.is_constant("w")
    assert np.array_equal(recording.load("w"), weight.astype(np.float32))
    result = qdebug.diff(recording, recording)
    node = next(each for each in result.nodes if each.tensor == "y")
    assert node.introduced is not None
    record(net, tmp_path, kernels, weights=False)
    assert not qdebug.open_recording(tmp_path / "x.h5").has("w")


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
def test_a_healthy_net_that_quantizes_its_activations_as_it_runs_is_within_its_limits(net, tmp_path, kernels):
    rng = np.random.default_rng(3)
    weight, x = rng.standard_normal((8, 64)).astype(np.float32), rng.standard_normal((1, 64)).astype(np.float32)
    scale = np.abs(weight).max() / 127
    facts = {"codes": {"scale": scale}, "numbers": {}}
    made = {}
    for name, array in {"codes": np.round(weight / scale).astype(np.int8), "numbers": weight}.items():
        other = type(net)()
        start, end = other.input("x", (1, 64)), other.tensor("y", (1, 8))
        w = other.constant("w", array, **facts[name])
        other.node("FULLY_CONNECTED", [start, w, -1], [end], "FullyConnectedOptions", version=9)
        other.output(end)
        record(other, tmp_path, kernels, inputs={"x": x})
        made[name] = (tmp_path / "x.h5").rename(tmp_path / f"{name}.h5")
    assert qdebug.diff(made["numbers"], made["codes"]).status == "within"


def test_a_tensor_that_no_kernel_writes_is_not_recorded(net, tmp_path, monkeypatch):
    class Elsewhere(interpreter.Interpreter):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            self.kept, self.held = arguments["experimental_preserve_all_tensors"], None

        def invoke(self):
            self.held = self.get_tensor(3) if self.kept and self.held is not None else np.zeros((1, 2, 4), np.float32)
            super().invoke()
            if self.kept:
                self.tensor(3)()[:] = self.held

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        monkeypatch.setattr(interpreter, "Interpreter", Elsewhere)
        summary = record(chain(net, 5), tmp_path, "xnnpack", taps="all")
    assert summary.skipped == {"t2": "LiteRT does not write it: a delegate computes it elsewhere"}
    assert set(qdebug.open_recording(tmp_path / "x.h5").names) == {"x", "t0", "t1", "t3", "t4"}


def variable(net):
    """Make a net that adds its input to a state of its own, and returns the sum."""
    number = net.subgraph()
    net.graph.name = b"begin"
    handle = net.tensor("handle", (), "RESOURCE")
    zeros = net.constant("zeros", np.zeros((1, 4), np.float32))
    net.node("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="s")
    net.node("ASSIGN_VARIABLE", [handle, zeros], [], "AssignVariableOptions")
    net.graph = net.model.subgraphs[0]
    x = net.input("x", (1, 4))
    handle = net.tensor("handle", (), "RESOURCE")
    before, after = net.tensor("before", (1, 4)), net.tensor("after", (1, 4))
    net.node("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=number)
    net.node("VAR_HANDLE", [], [handle], "VarHandleOptions", container="", sharedName="s")
    net.node("READ_VARIABLE", [handle], [before], "ReadVariableOptions")
    net.node("ADD", [before, x], [after], "AddOptions")
    net.node("ASSIGN_VARIABLE", [handle, after], [], "AssignVariableOptions")
    net.output(after)
    return net


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
def test_state_is_kept_over_steps_and_forgotten_between_samples(net, tmp_path, kernels):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 1, 4)
    summary = record(variable(net), tmp_path, kernels, inputs={"x": x}, samples=2, steps=3)
    recording = qdebug.open_recording(tmp_path / "x.h5")
    assert summary.fidelity == "bit_equal"
    for sample in range(2):
        for step in range(3):
            assert np.array_equal(recording.load("after", sample, step), x[sample, : step + 1].sum(axis=0))
            assert np.array_equal(recording.load("before", sample, step), x[sample, :step].sum(axis=0))
    assert summary.skipped == {"handle": "its elements are resource"}
    assert "'begin' (2 tensors)" in recording.info.options["note"]


@pytest.mark.parametrize("kernels", ["xnnpack", "builtin", "reference"])
@pytest.mark.parametrize("taps", ["faithful", "all", "outputs"])
def test_a_state_tensor_is_recorded_as_the_run_reads_it(net, tmp_path, kernels, taps):
    x = net.input("x", (1, 1, 2))
    one, none = np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
    weights = [net.constant(name, array) for name, array in {"w": one, "r": one * 2, "b": none}.items()]
    state = net.tensor("state", (1, 2), isVariable=True)
    y = net.tensor("y", (1, 1, 2))
    net.node("UNIDIRECTIONAL_SEQUENCE_RNN", [x, *weights, state], [y], "SequenceRNNOptions")
    net.output(y)
    values = np.arange(12, dtype=np.float32).reshape(2, 3, 1, 1, 2)
    summary = record(net, tmp_path, kernels, inputs={"x": values}, samples=2, steps=3, taps=taps)
    assert summary.fidelity == "bit_equal"
    recording = qdebug.open_recording(tmp_path / "x.h5")
    for sample in range(2):
        held = np.zeros((1, 2), np.float32)
        for step in range(3):
            assert np.array_equal(recording.load("state", sample, step), held)
            held = values[sample, step, 0] + 2 * held
            assert np.array_equal(recording.load("y", sample, step)[0], held)


def test_the_ways_are_compared_for_the_first_samples_and_that_is_said(net, tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 1, 2, 4)).astype(np.float32)
    few = record(chain(net, 5), tmp_path, "xnnpack", inputs={"x": x}, samples=4)
    assert few.fidelity_detail.endswith("; the same without fusion and without memory reuse")
    many = record(net, tmp_path, "xnnpack", inputs={"x": x}, samples=5)
    assert "checked for 5 of 5 recorded runs" in many.fidelity_detail
    assert many.fidelity_detail.endswith("without memory reuse (the first 4 of 5 samples)")


@pytest.mark.parametrize(("ill", "fidelity"), [(1, "bit_equal"), (99, "differs")])
def test_runs_with_taps_that_go_wrong_later_are_repeated_and_that_is_said(net, tmp_path, monkeypatch, ill, fidelity):
    made = []

    class Drifting(interpreter.Interpreter):
        """The first interpreters with taps give wrong values from their second run on; a new one of them at once."""

        def __init__(self, **arguments):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                super().__init__(**arguments)
            self.runs = int(ill > 1 and len(made) >= 4)
            self.ill = len(self.get_output_details()) > 1 and len(made) < ill
            made.extend([self] * (len(self.get_output_details()) > 1))

        def invoke(self):
            super().invoke()
            self.runs += 1

        def get_tensor(self, index):
            return super().get_tensor(index) + np.float32(self.ill and self.runs > 1)

    x = np.random.default_rng(0).standard_normal((3, 1, 2, 4)).astype(np.float32)
    monkeypatch.setattr(interpreter, "Interpreter", Drifting)
    summary = record(chain(net, 5), tmp_path, "xnnpack", inputs={"x": x}, samples=3)
    assert summary.fidelity == fidelity
    assert "with taps gave different outputs and were repeated with a new interpreter" in summary.fidelity_detail
    recording = qdebug.open_recording(tmp_path / "x.h5")
    if ill == 1:
        assert "; 1 run with taps" in summary.fidelity_detail
        for sample in range(3):
            assert np.array_equal(recording.load("t0", sample), -x[sample])


def test_a_long_net_is_tapped_in_as_few_runs_as_a_short_one(net, tmp_path, monkeypatch):
    made = []

    class Counted(interpreter.Interpreter):
        def __init__(self, **arguments):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                super().__init__(**arguments)
            made.append(len(self.get_output_details()) - 1)

    monkeypatch.setattr(interpreter, "Interpreter", Counted)
    assert record(chain(net, 61), tmp_path, "xnnpack").fidelity == "bit_equal"
    assert [taps for taps in made if taps] == [15, 15, 15, 15]
