"""Where ONNX Runtime refuses the graph of its own optimizer, the next lower level is recorded, and that is said."""

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend
from qdebug.backends.onnxruntime import adapter
from qdebug.cli.main import main
from qdebug.errors import BackendError
from qdebug.running.record import record_run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after the check that it is there

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)


@pytest.fixture
def net(tmp_path):
    """A Conv between codes with a real bias: of that the optimizer makes a Round, which operator set 10 has not."""
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(3),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "w": RNG.integers(-99, 99, (4, 3, 3, 3)).astype(np.int8),
        "b": RNG.normal(size=4).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=7)
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("taps", ["faithful", "all", "outputs"])
def test_a_lower_level_is_recorded_and_said(net, tmp_path, capsys, taps):
    out, inputs = str(tmp_path / "out.h5"), str(tmp_path / "x.npz")
    words = ["record", str(net), "--backend", "onnxruntime:opt=all", "--taps", taps, "--inputs", inputs, "-o", out]
    assert main(words) == 0
    options = qdebug.open_recording(out).info.options
    assert (options["opt"], options["graph_optimization_level"]) == ("none", "ORT_DISABLE_ALL")
    said = "opt=none was used, because ONNX Runtime refuses its own graph at opt=all: "
    assert options["note"].startswith(said)
    assert "Round" in options["note"]
    assert f"note: {options['note']}" in capsys.readouterr().err


def test_the_highest_level_that_works_is_taken(tmp_path, net, monkeypatch):
    plain, tried = adapter.OnnxRuntimeRun._prepare, []

    def prepare(run):
        tried.append(run._settings.level)
        if run._settings.level == "all":
            raise BackendError("ONNX Runtime refused the model: it is invalid.")
        return plain(run)

    monkeypatch.setattr(adapter.OnnxRuntimeRun, "_prepare", prepare)
    model = onnx.load(net)
    model.opset_import[0].version = 13
    onnx.save(model, net)
    record_run(net, backend="onnxruntime", inputs={"x": X}, out=tmp_path / "out.h5")
    options = qdebug.open_recording(tmp_path / "out.h5").info.options
    assert tried == ["all", "extended"]
    assert options["opt"] == "extended"
    assert "note" not in _options(net, "basic")


def test_a_model_that_no_level_takes_is_refused_as_before(net):
    model = onnx.load(net)
    model.graph.node[4].op_type = "NoSuchOperator"
    onnx.save(model, net)
    with pytest.raises(BackendError, match="NoSuchOperator"):
        load_backend("onnxruntime").open(net, options={"opt": "all"})


def _options(net, level):
    run = load_backend("onnxruntime").open(net, options={"opt": level})
    run.close()
    return run.facts.options
