"""A quantization that changes with the sample: each sample's error is measured with its own."""

import pickle

import numpy as np
import pytest

import qdebug
from qdebug.compare.measure.recordings import dequantize_where_scale_varies
from qdebug.recording.recorder import Recorder

VALUES = np.random.default_rng(0).standard_normal((3, 1, 64)).astype(np.float32)
SCALES = [0.05, 0.01, 0.2]


def reference():
    with Recorder(None, backend="float") as rec:
        for sample in range(3):
            rec.at(sample)
            rec.put("x", VALUES[sample])
            rec.put("y", VALUES[sample] * SCALES[sample] * 20, node="n", op="Custom", inputs=("x",))
    return rec.recording


def backend(path=None, *, told=True):
    with Recorder(path, backend="npu") as rec:
        for sample in range(3):
            rec.at(sample)
            rec.put("x", VALUES[sample])
            codes = np.clip(np.round(VALUES[sample] * 20), -128, 127).astype(np.int8)
            scale = SCALES[sample] if told else SCALES[0]
            rec.put("y", codes, node="n", op="Custom", inputs=("x",), scale=scale)
    return rec


def test_each_sample_is_measured_with_its_own(tmp_path):
    recording = backend().recording
    (node,) = [each for each in qdebug.diff(reference(), recording).nodes if each.tensor == "y"]
    assert node.status == "within"
    assert node.metrics.max_abs <= max(SCALES) * 0.51
    assert [sample.max_abs <= scale * 0.51 for sample, scale in zip(node.samples, SCALES, strict=True)] == [True] * 3
    backend(tmp_path / "npu.h5")
    (same,) = [
        each
        for each in qdebug.diff(reference(), qdebug.open_recording(tmp_path / "npu.h5")).nodes
        if each.op == "Custom"
    ]
    assert same.metrics == node.metrics


def test_one_scale_for_all_would_be_wrong():
    (node,) = [each for each in qdebug.diff(reference(), backend(told=False).recording).nodes if each.tensor == "y"]
    assert node.metrics.max_abs > 1


def test_a_recording_without_any_is_left_alone():
    recording = reference()
    assert dequantize_where_scale_varies(recording) is recording


def test_what_is_shown_of_a_tensor_that_varies():
    recording = backend().recording
    shown = dequantize_where_scale_varies(recording)
    assert isinstance(shown, qdebug.Recording)
    assert shown.graph.tensors["y"].quant is None
    assert shown.graph.tensors["x"] == recording.graph.tensors["x"]
    assert shown.load("y", 1).dtype == np.float32
    assert not shown.load("y", 1).flags.writeable
    assert np.allclose(shown.load("y", 1), recording.load("y", 1) * np.float32(0.01))
    assert shown.load("x", 1) is recording.load("x", 1)
    assert (shown.names, shown.samples, shown.steps, shown.info) == (
        *(recording.names, recording.samples, recording.steps, recording.info),
    )
    assert shown.has("y", 2)
    assert not shown.has("y", 3)
    assert not shown.event_quants
    assert shown.kept("y", 1) is None


@pytest.mark.parametrize("told", [True, False])
def test_the_recording_survives_being_handed_on(told):
    recording = pickle.loads(pickle.dumps(backend(told=told).recording))  # noqa: S301  our own
    assert len(recording.event_quants) == (2 if told else 0)
