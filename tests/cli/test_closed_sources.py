"""Whatever opens a recording closes it: nothing is left to the garbage collector, which PyPy or a cycle may delay."""

import shutil

import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.recording.reading.read import FileRecording
from qdebug.running.demo import run_demo
from qdebug.testing import assert_close

VERBS = {
    "info": ["info", "REF"],
    "diff": ["diff", "REF", "INT8", "--json"],
    "explain": ["explain", "INT8", "--node", "conv1_quant"],
    "budget": ["budget", "REF", "INT8"],
    "lint": ["lint", "REF"],
    "accuracy": ["accuracy", "REF", "--labels", "LABELS"],
    "profile": ["scales", "profile", "REF", "-o", "p.json"],
    "record": ["record", "REF", "--backend", "interpreter", "--inputs", "x.npz", "-o", "out.h5"],
    "again": ["record", "REF", "--backend", "interpreter", "--inputs", "x.npz", "-o", "INT8"],
    "import": ["import", "x.npz", "--graph", "REF", "-o", "out.h5"],
    "npz": ["export", "npz", "REF", "-o", "values.npz"],
    "tui": ["tui", "REF", "INT8"],
    "join": ["file", "join", "ref.h5", "-o", "all.json"],
    "verify": ["file", "verify", "REF"],
}


@pytest.fixture
def left(monkeypatch):
    """The paths of recordings that were still open when nobody held them any more."""
    found = []
    real = FileRecording.__del__

    def watched(self):
        if hasattr(self, "_container") and self._container.fd >= 0:
            found.append(self.path)
        real(self)

    monkeypatch.setattr(FileRecording, "__del__", watched)
    return found


@pytest.fixture
def sides(tmp_path):
    return [
        shutil.copy(source, tmp_path / f"{name}.h5")
        for name, source in (("ref", data.FLOAT_NET), ("int8", data.INT8_NET))
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_closes_what_it_opens(run, left, sides, tmp_path, verb):
    with np.load(data.INPUTS) as inputs:
        np.savez(tmp_path / "x.npz", x=inputs["x"][0])
    places = {"REF": str(sides[0]), "INT8": str(sides[1]), "LABELS": str(data.LABELS)}
    run(*(places.get(word, word) for word in VERBS[verb]))
    assert left == []


def test_a_call_closes_what_it_opens_and_leaves_open_what_it_is_given(left, sides, tmp_path):
    reference, backend = sides
    result = qdebug.diff(reference, backend)
    qdebug.budget(reference, backend)
    qdebug.explain(backend, node="conv1_quant")
    assert_close(reference, reference)
    run_demo(tmp_path / "demo")
    assert left == []
    assert len(result.nodes) > 1  # the result needs no file
    with qdebug.open_recording(reference) as given:
        qdebug.diff(given, backend)
        qdebug.budget(given, backend)
        assert given.load("x", 0).size


def test_recording_models_closes_the_recordings(left, tmp_path, run):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")
    ends = [[value(name, onnx.TensorProto.FLOAT, [1, 6])] for name in "xy"]
    graph = onnx.helper.make_graph([node], "net", *ends)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "a.onnx")
    for _ in range(2):  # the second time they are there
        assert run("diff", "a.onnx", "a.onnx", "--backend", "interpreter").code == 0
    assert left == []
