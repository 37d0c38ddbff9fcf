"""Every tensor of real nets against ONNX Runtime with graph optimization off (fetches the nets: slow)."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from qdebug.backends import load_backend

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow


def models():
    """Import the script that fetches the nets, which lies beside this folder."""
    spec = importlib.util.spec_from_file_location("nets", Path(__file__).resolve().parents[1] / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def every_tensor(path, feed):
    """Run a model with every node output made an output."""
    model = onnx.load(str(path))
    known = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node if node.op_type != "Constant" for name in node.output if name]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feed), strict=True))


class Kept:
    """A recorder that keeps arrays and nothing else."""

    def __init__(self):
        self.arrays = {}

    def at(self, sample, step=0):
        pass

    def put(self, name, array):
        self.arrays[name] = array.copy()


class Once:
    samples = steps = 1

    def __init__(self, feed):
        self.only = feed

    def feed(self, sample, step=0):
        return self.only


def feed_of(name):
    if name == "swift-f0":
        low, high = np.array(50, np.float32), np.array(2000, np.float32)
        # Noise fills every bin of the spectrum: of an empty one, the net takes the logarithm of a rounding error.
        noise = np.random.default_rng(0).normal(size=(1, 16000)).astype(np.float32) * np.float32(0.1)
        return {"audio": models().sound(1) + noise, "fmin": low, "fmax": high}
    return {"x": models().crops(1, width=320 if name == "rec" else 192)}


@pytest.mark.parametrize("name", ["cls", "rec", "swift-f0", "cls.qoperator", "cls.qdq"])
def test_every_tensor_agrees(name):
    net, _, form = name.partition(".")
    path = models().quantized(net, form) if form else models().net(net)
    feed = feed_of(net)
    theirs = every_tensor(path, feed)
    kept = Kept()
    load_backend("interpreter").open(path, options={}).record(Once(feed), kept)
    assert set(theirs) <= set(kept.arrays)
    for tensor, expected in theirs.items():
        found = kept.arrays[tensor]
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), tensor
        if expected.dtype.kind == "f" and expected.size:
            scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
            tolerance = 1e-4 * scale if form != "qdq" else 0.02 * scale  # a step, where a value lies near a tie
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=tensor)
        elif form == "qdq":
            assert np.abs(found.astype(int) - expected.astype(int)).max(initial=0) <= 1, tensor
        else:
            np.testing.assert_array_equal(found, expected, err_msg=tensor)
