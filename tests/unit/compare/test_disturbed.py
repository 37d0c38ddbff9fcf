"""What recording changed is marked, and no node is blamed for it."""

from __future__ import annotations

import numpy as np

import qdebug
from qdebug.model import Graph, Node
from qdebug.running.save import save_recording

W = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)


def run(path, *, error=0.0, weight=W, disturbed=False):
    nodes = [Node(name="mm", op="MatMul", inputs=("x", "w"), outputs=("y",))]
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    with qdebug.Recorder(path, backend="b", graph=Graph(nodes, inputs=["x"], outputs=["y"])) as rec:
        rec.constant("w", weight)
        rec.put("x", x)
        rec.put("y", x @ weight + np.float32(error))
        if disturbed:
            rec.disturbed("y", "looking at it changed it")
    return rec.recording if path is None else qdebug.open_recording(path)


def test_a_disturbed_tensor_accuses_nobody():
    assert qdebug.diff(run(None), run(None, error=0.1)).status == "diverged"
    for sides in ((False, True), (True, False)):
        pair = (run(None, disturbed=sides[0]), run(None, error=0.1, disturbed=sides[1]))
        result = qdebug.diff(*pair)
        (node,) = (each for each in result.nodes if each.node == "mm")
        assert node.status == "within"
        assert node.reason == "disturbed: looking at it changed it"
        assert [found.kind for found in node.findings if found.role == "excuse"] == ["disturbed"]
        assert result.first_divergence is None


def test_another_weight_is_found_all_the_same():
    result = qdebug.diff(run(None), run(None, weight=W + np.float32(0.5), disturbed=True))
    assert result.first_divergence == "mm"


def test_the_mark_is_kept_in_a_file_and_in_its_copies(tmp_path):
    recording = run(tmp_path / "a.h5", disturbed=True)
    assert recording.info.disturbed == {"y": "looking at it changed it"}
    save_recording(run(None, disturbed=True), tmp_path / "b.h5")
    assert qdebug.open_recording(tmp_path / "b.h5").info.disturbed == {"y": "looking at it changed it"}
