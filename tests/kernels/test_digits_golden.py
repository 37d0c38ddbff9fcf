"""The int8 digits net, replayed with core packages alone, against golden hashes from ONNX Runtime."""

import hashlib
import json
from pathlib import Path

import numpy as np

from qdebug import data
from qdebug.replay import run_graph
from qdebug.session import open_recording

HERE = Path(__file__).resolve().parent
GOLDEN = json.loads((HERE / "digits_golden.json").read_text(encoding="utf-8"))  # made by make_digits_golden.py


def replay():
    """Return shape, dtype and hash of every tensor, on all test digits in one batch."""
    recording = open_recording(data.INT8_NET)
    constants = {name: recording.load(name) for name in recording.graph.tensors if recording.graph.is_constant(name)}
    found = {}

    def keep(name, array):
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        found[name] = {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": digest}

    x = np.load(HERE.parents[1] / "samples" / "digits" / "digits_test.npz")["x"]
    run_graph(recording.graph, {"x": x}, constants, on_tensor=keep)
    return found


def test_every_tensor_is_bit_for_bit_the_runtime_s():
    assert replay() == GOLDEN
    assert len(GOLDEN) == 11


def test_the_hashes_notice_a_changed_multiplier(monkeypatch):
    from qdebug.replay import steps

    exact = steps.real_multiplier
    monkeypatch.setattr(steps, "real_multiplier", lambda *scales: exact(*scales) * np.float32(1.001))
    found = replay()
    assert found["x_quantized"] == GOLDEN["x_quantized"]
    assert found["conv2_quantized"] != GOLDEN["conv2_quantized"]
