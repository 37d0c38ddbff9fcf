"""A recording in TensorFlow Lite's words, with nodes that compute extents, is repaired like others."""

from pathlib import Path

import numpy as np
import pytest

from qdebug.recording.reading.opening import open_recording
from qdebug.repair.find import RepairOptions, find_repair
from qdebug.repair.search import EditCost
from qdebug.running.record import record_run
from qdebug.session import DiffSession

pytest.importorskip("ai_edge_litert")
DIGITS = Path(__file__).parents[3] / "samples" / "digits"


def test_digits_are_repaired(tmp_path):
    with np.load(DIGITS / "digits_test.npz") as held:
        images = held["x"][:4].transpose(0, 2, 3, 1)[:, None].astype(np.float32)
    codes = np.clip(np.rint(images * 255) - 128, -128, 127).astype(np.int8)
    runs = []
    for name, array in (("digits_float", images), ("digits_int8", codes)):
        out = tmp_path / f"{name}.h5"
        inputs = {"serving_default_keras_tensor:0": array}
        record_run(DIGITS / f"{name}.tflite", backend="litert", inputs=inputs, samples=4, out=out)
        runs.append(open_recording(out))
    options = RepairOptions(within=60, cost=EditCost(kinds=["16-bit", "per-channel"]))
    found = find_repair(DiffSession(*runs), options)
    assert found.faithful == np.inf, "the replay is the backend's"
    assert found.edits, "those that gain by themselves, as all at once miss the goal"
    assert found.search.after > found.search.before + 1
