"""A real kernel bug is found, named and handed over: average pools of OpenVINO whose padding counts (seen in 2026.4.1).

An average over codes has to take what is padded for the zero point, which stands for 0. OpenVINO takes the code 0.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import qdebug
from qdebug.running.record import record_run

openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
onnx = pytest.importorskip("onnx", reason="needs the extra onnx")

BROKEN = ("2026.4.1",)
"""Versions that were seen to have the bug."""
SCALE, ZERO, SIDE = np.float32(0.05), np.uint8(119), 10


def model(path):
    """Write an average over 3 x 3 codes, with a border of one that counts."""
    make, array = onnx.helper.make_node, onnx.numpy_helper.from_array
    nodes = [
        make("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        make("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
        make("AveragePool", ["d"], ["a"], name="pool", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
        make("QuantizeLinear", ["a", "sy", "zy"], ["y"]),
        make("DequantizeLinear", ["y", "sy", "zy"], ["o"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(*each) for each in (("x", 1, [1, 8, SIDE, SIDE]), ("o", 1, None))]
    held = [array(np.asarray(value), name + side) for side in "xy" for name, value in (("s", SCALE), ("z", ZERO))]
    graph = onnx.helper.make_graph(nodes, "pool", ends[:1], ends[1:], held)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def averages(codes, border):
    """Return the averages of windows with a border of some code, as real numbers in steps."""
    padded = np.pad(codes.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=border)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).mean((-2, -1))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Record the pool; return the recording's path, the codes that it reads and those that it gives."""
    folder = tmp_path_factory.mktemp("pool")
    codes = np.random.default_rng(7).integers(0, 256, (1, 8, SIDE, SIDE)).astype(np.uint8)
    real = (codes.astype(np.float32) - np.float32(ZERO)) * SCALE
    model(folder / "pool.onnx")
    record_run(folder / "pool.onnx", backend="openvino", inputs={"x": real}, out=folder / "pool.h5")
    recording = qdebug.open_recording(folder / "pool.h5")
    made = recording.load(next(node for node in recording.graph.nodes if node.op == "AvgPool").outputs[0])
    if (
        openvino.__version__.partition("-")[0] not in BROKEN
        and np.abs(made - averages(codes, ZERO)).max() <= 0.5 + 1e-6
    ):
        pytest.skip("this version of OpenVINO is right")
    return folder / "pool.h5", codes, made


def test_openvino_takes_the_code_0_for_what_is_padded(recorded):
    """Without qdebug: NumPy alone shows which border gives the recorded codes, to the nearest."""
    _, codes, made = recorded
    assert np.abs(made - averages(codes, 0)).max() <= 0.5 + 1e-6
    assert np.abs(made - averages(codes, ZERO))[..., 0].max() > 30
    assert np.abs(made - averages(codes, ZERO))[..., 1:-1, 1:-1].max() <= 0.5 + 1e-6


def test_explain_names_the_bug_and_hands_it_over(recorded, tmp_path):
    path, _, _ = recorded
    (pool,) = (node for node in qdebug.explain(path).nodes if node.op == "AvgPool")
    assert pool.status == "unexplained"
    assert pool.residual.pattern == "borders"
    assert pool.residual.likely == "the padding is code 0 instead of the zero point (reproduces every element)"
    words = ("-m", "qdebug", "export", "repro", path, path, "--node", pool.node, "-o", "test_pool.py")
    done = subprocess.run([sys.executable, *map(str, words)], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    test = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pool.py")
    assert subprocess.run(test, cwd=tmp_path, check=False, capture_output=True).returncode == 1
