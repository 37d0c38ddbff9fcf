"""Reproducers run on ONNX Runtime: they pass where it is right, and fail where only the recording can be checked.

The wrong tail is that of onnxruntime 1.23.1 on processors with AMX (see `test_known_bug.py`): the last position of each
block of 32 and, of 24 filters, the 8 that do not fill a block of 16.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qdebug.backends import load_reader
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.model import MemoryRecording
from qdebug.present.reports.reproducer import float_reproducer_text, reproducer_text
from qdebug.recording.recorder import Recorder
from qdebug.reproduce.reproducer import is_float_node, make_float_reproducer, make_reproducer
from qdebug.running.record import record_run
from qdebug.session import open_recording

pytest.importorskip("onnxruntime")

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "digits"
CHECK = "test_the_backend_gives_the_codes_of_the_reference"


def ran(text):
    names = {"__name__": "test_node"}
    exec(compile(text, "test_node.py", "exec"), names)  # noqa: S102  what is tested is a program
    return names


def record(path, feed, target, **options):
    record_run(path, backend="onnxruntime", options=options, inputs=feed, out=target)
    return open_recording(target)


@pytest.fixture(scope="module", params=["qoperator.per_channel", "qdq.per_tensor"])
def digits(request, tmp_path_factory):
    with np.load(SAMPLES / "digits_test.npz") as arrays:
        feed = {"x": arrays["x"][:1]}
    target = tmp_path_factory.mktemp("digits") / "ort.h5"
    return record(SAMPLES / f"digits.{request.param}.onnx", feed, target, opt="extended")


def quantized(recording):
    return [node for node in recording.graph.nodes if node.op.startswith("QLinear") or node.op == "QGemm"]


def changed(recording, name, places):
    """Return the recording with some codes of one tensor changed."""
    arrays = {(tensor, 0, 0): recording.load(tensor) for tensor in recording.names}
    codes = arrays[name, 0, 0].copy()
    codes[places] ^= 9
    return MemoryRecording(recording.graph, arrays | {(name, 0, 0): codes}, recording.info)


def test_every_quantized_node_runs_alone_on_the_runtime(digits):
    nodes = quantized(digits)
    assert len(nodes) >= 6
    for node in nodes:
        names = ran(reproducer_text(make_reproducer(digits, node.name), Path("test_node.py")))
        output, source = names["backend_output"]()
        assert source == "the backend", node.op
        np.testing.assert_array_equal(output, digits.load(node.outputs[0]), err_msg=node.name)


@pytest.mark.parametrize("large", [False, True])
def test_a_wrong_recording_fails_without_the_runtime_and_passes_with_one_that_is_right(
    digits, large, monkeypatch, mlas
):
    if mlas != "ort-mlas":
        pytest.skip("sums of this processor saturate, so that this runtime is not right either")
    if large:
        monkeypatch.setattr("qdebug.reproduce.reproducer.LARGE_BYTES", 16)
    node = next(node for node in quantized(digits) if node.op == "QLinearConv")
    broken = changed(digits, node.outputs[0], (slice(None), slice(2, 4), 3, slice(2, 6)))
    found = make_reproducer(broken, node.name)
    assert found.wrong == 8
    assert found.whole is not large
    names = ran(reproducer_text(found, Path("test_node.py")))
    names[CHECK]()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(AssertionError, match=r"the recording: 8 of"):
        names[CHECK]()


def conv_model(folder):
    """Make the convolution that the old version computes wrongly, and an input."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, 3, 32, 32)).astype(np.uint8)
    stored = {
        "xs": np.float32(0.02), "xz": np.uint8(128), "w": rng.integers(-128, 128, (24, 3, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.5), "yz": np.uint8(128),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", *stored], ["y"], name="conv", pads=[1, 1, 1, 1])
    graph = helper.make_graph(
        [node],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, (1, 24, 32, 32))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(folder / "conv.onnx"))
    np.savez(folder / "x.npz", x=x)
    return folder / "conv.onnx", x


def check_found(recording, folder):
    """Check that the bug is found and located, and give the path of its reproducer."""
    (node,) = explain_recording(recording).nodes
    assert node.status is ExplainStatus.UNEXPLAINED
    residual = node.residual
    assert residual.wrong < 0.02 * residual.total
    assert residual.max_lsb > 1
    found = make_reproducer(recording, "conv")
    wrong = np.argwhere(found.recorded != found.expected)
    assert found.wrong == residual.wrong == len(wrong)
    assert set(wrong[:, 1].tolist()) <= set(range(16, 24))
    assert set((wrong[:, 2] * 32 + wrong[:, 3]) % 32) == {31}
    target = folder / "test_conv.py"
    target.write_text(reproducer_text(found, target))
    return target


def put(model, x, y, folder, version):
    source = load_reader(model)
    with Recorder(
        folder / "old.h5", backend="onnxruntime", graph=source.graph, versions={"onnxruntime": version}
    ) as recorder:
        for name in source.constants:
            recorder.constant(name, source.constant(name))
        recorder.put("x", x)
        recorder.put("y", y)
    return open_recording(folder / "old.h5")


def test_a_wrong_tail_is_found_and_its_reproducer_passes_on_the_runtime(tmp_path, monkeypatch):
    model, x = conv_model(tmp_path)
    y = record(model, {"x": x}, tmp_path / "right.h5", opt="none").load("y").copy()
    y[:, 16:, :, 31] ^= 37
    target = check_found(put(model, x, y, tmp_path, "broken"), tmp_path)
    names = ran(target.read_text())
    names[CHECK]()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(AssertionError, match="the recording: 256 of 24576 codes are wrong"):
        names[CHECK]()


def test_float_nodes_run_alone_on_the_runtime_within_their_band(tmp_path):
    with np.load(SAMPLES / "digits_test.npz") as arrays:
        feed = {"x": arrays["x"][:1]}
    recording = record(SAMPLES / "digits.onnx", feed, tmp_path / "float.h5")
    nodes = [node for node in recording.graph.nodes if is_float_node(recording, node.name)]
    assert {"Conv", "Relu", "MaxPool", "Gemm"} & {node.op for node in nodes}
    for node in nodes:
        found = make_float_reproducer(recording, node.name)
        names = ran(float_reproducer_text(found, Path("test_node.py")))
        assert names["backend_output"]()[1] == "the backend", node.op
        names["test_the_backend_is_as_near_the_replay_as_rounding_allows"]()
