"""A recurrent step net runs from step to step on ONNX Runtime and on the interpreter as its whole sequence does."""

import numpy as np
import pytest

import qdebug
from qdebug.running.record import record_run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

RNG = np.random.default_rng(2)
SIZE, HIDDEN, STEPS = 3, 4, 6


def net(path, op, steps):
    """Write a net of one LSTM or GRU that takes so many time steps at once, its states as inputs and outputs."""
    gates = {"LSTM": 4, "GRU": 3}[op]
    states = ["h", "c"] if op == "LSTM" else ["h"]
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.normal(size=(1, gates * HIDDEN, SIZE)),
        "r": rng.normal(size=(1, gates * HIDDEN, HIDDEN)),
        "b": rng.normal(size=(1, 2 * gates * HIDDEN)),
    }
    real = onnx.TensorProto.FLOAT
    node = helper.make_node(
        op, ["x", "w", "r", "b", "", *states], ["y", *(f"{name}n" for name in states)], "cell", hidden_size=HIDDEN
    )
    graph = helper.make_graph(
        [node],
        "step",
        [helper.make_tensor_value_info("x", real, [steps, 1, SIZE])]
        + [helper.make_tensor_value_info(name, real, [1, 1, HIDDEN]) for name in states],
        [helper.make_tensor_value_info("y", real, [steps, 1, 1, HIDDEN])]
        + [helper.make_tensor_value_info(f"{name}n", real, [1, 1, HIDDEN]) for name in states],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize("backend", ["onnxruntime", "interpreter"])
def test_steps_give_what_the_whole_sequence_gives(tmp_path, op, backend):
    x = RNG.normal(size=(STEPS, 1, 1, SIZE)).astype(np.float32)
    summary = record_run(
        net(tmp_path / "step.onnx", op, 1), backend=backend, inputs={"x": x}, out=tmp_path / "steps.h5", steps=STEPS
    )
    assert summary.fidelity == "bit_equal"
    states = ("h", "c") if op == "LSTM" else ("h",)
    assert summary.states == tuple(f"{name}n -> {name} (from zeros)" for name in states)
    whole = net(tmp_path / "whole.onnx", op, STEPS)
    zeros = {name: np.zeros((1, 1, HIDDEN), np.float32) for name in states}
    inputs = {"x": x.reshape(STEPS, 1, SIZE), **zeros}
    record_run(whole, backend="onnxruntime", inputs=inputs, out=tmp_path / "whole.h5")
    one, other = (qdebug.open_recording(tmp_path / f"{name}.h5") for name in ("steps", "whole"))
    made = np.stack([one.load("y", 0, step)[0] for step in range(STEPS)])
    np.testing.assert_allclose(made, other.load("y"), atol=1e-5)
    for step in range(1, STEPS):
        for name in states:
            np.testing.assert_array_equal(one.load(name, 0, step), one.load(f"{name}n", 0, step - 1))


def test_two_runtimes_with_states_of_their_own_are_compared_step_by_step(tmp_path):
    x = RNG.normal(size=(STEPS, 1, 1, SIZE)).astype(np.float32)
    model = net(tmp_path / "step.onnx", "LSTM", 1)
    for backend in ("onnxruntime", "interpreter"):
        record_run(model, backend=backend, inputs={"x": x}, out=tmp_path / f"{backend}.h5", steps=STEPS)
    result = qdebug.diff(tmp_path / "onnxruntime.h5", tmp_path / "interpreter.h5")
    assert result.exit_code == 0
