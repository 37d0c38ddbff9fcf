"""A real kernel bug is found, located and handed over: onnxruntime 1.23.1 on processors with AMX (its issue 26324).

Convolutions of uint8 x int8 with 3 input channels, 3 x 3, and 24 outputs give wrong values at the last position of each
block of 32, in the 8 tail channels; versions from 1.25 on are right.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qdebug.api import explain
from qdebug.compare.explaining.explanation import ExplainStatus

onnx = pytest.importorskip("onnx")

CACHE = Path.home() / ".cache" / "qdebug-tests"
BROKEN = "onnxruntime==1.23.1"
ROOT = Path(__file__).resolve().parents[3]


def has_amx():
    try:
        return "amx_int8" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def installed():
    """Return a folder with the broken version alone; it goes before the installed one on a path."""
    folder = CACHE / BROKEN.replace("==", "-")
    if not (folder / "onnxruntime").is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--target", folder, BROKEN], check=True, capture_output=True)
    return folder


def with_broken(*words, cwd):
    """Run a python command with the broken version."""
    path = os.pathsep.join(map(str, (installed(), ROOT)))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def model(path):
    """Make one convolution as the issue has it."""
    helper, kinds, array = onnx.helper, onnx.TensorProto, onnx.numpy_helper.from_array
    rng = np.random.default_rng(0)
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(120),
        "w": rng.integers(-127, 128, (24, 3, 3, 3)).astype(np.int8),
        "w_scale": np.float32(0.01),
        "w_zero": np.int8(0),
        "y_scale": np.float32(0.2),
        "y_zero": np.uint8(128),
    }
    names = ["x", *constants]
    node = helper.make_node("QLinearConv", names, ["y"], name="conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    graph = helper.make_graph(
        [node],
        "conv",
        [helper.make_tensor_value_info("x", kinds.UINT8, [1, 3, 48, 48])],
        [helper.make_tensor_value_info("y", kinds.UINT8, [1, 24, 48, 48])],
        [array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    np.savez(path.with_suffix(".npz"), x=rng.integers(0, 256, (1, 3, 48, 48)).astype(np.uint8))


def recorded(folder):
    """Record the convolution with the broken version."""
    model(folder / "conv.onnx")
    words = ("-m", "qdebug", "record", "conv.onnx", "--backend", "onnxruntime", "--inputs", "conv.npz", "-o", "bad.h5")
    done = with_broken(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "bad.h5"


@pytest.mark.slow
def test_the_recorder_runs_with_that_version(tmp_path):
    """Whatever the processor, the version in the file is the one asked for."""
    found = explain(recorded(tmp_path))
    assert found.run.versions["onnxruntime"] == BROKEN.partition("==")[2]
    conv = next(node for node in found.nodes if node.op == "QLinearConv")
    assert conv.status is (ExplainStatus.UNEXPLAINED if has_amx() else ExplainStatus.EXPLAINED)


@pytest.mark.slow
@pytest.mark.skipif(not has_amx(), reason="this processor has no AMX int8, where the bug is")
def test_the_bug_is_found_located_and_handed_over(tmp_path):
    bad = recorded(tmp_path)
    conv = next(node for node in explain(bad).nodes if node.op == "QLinearConv")
    assert conv.status is ExplainStatus.UNEXPLAINED
    assert conv.residual.pattern == "block_tail"
    assert "of every 32 positions" in conv.residual.detail
    assert "last 8 channels of 24" in conv.residual.detail
    words = ("-m", "qdebug", "export", "repro", bad, bad, "--node", conv.node, "--whole", "-o", "test_conv.py")
    done = subprocess.run([sys.executable, *map(str, words)], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    test = ("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "test_conv.py")
    assert with_broken(*test, cwd=tmp_path).returncode == 1
    fixed = subprocess.run([sys.executable, *map(str, test)], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert fixed.returncode == 0, fixed.stdout
