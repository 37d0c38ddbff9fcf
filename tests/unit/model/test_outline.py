"""What is known of values without reading them."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.measure.recordings import RecentTensors, dequantize_where_scale_varies
from qdebug.model import Graph, MemoryRecording
from qdebug.model.recording import shape_of
from qdebug.recording.reading.opening import JoinedRecording, Part


@pytest.fixture
def path(tmp_path):
    with qdebug.Recorder(tmp_path / "run.h5", backend="test") as recorder:
        recorder.constant("w", np.arange(6, dtype=np.int8).reshape(2, 3))
        for scale in (0.5, 0.25):
            recorder.put("x", np.arange(12, dtype=np.float32).reshape(4, 3))
            recorder.put("same", np.arange(12, dtype=np.float32).reshape(4, 3))
            recorder.put("turned", np.arange(12, dtype=np.float32).reshape(3, 4))
            recorder.put("varying", np.arange(12, dtype=np.int8), scale=scale, zero_point=0)
            recorder.next_sample()
    return tmp_path / "run.h5"


def test_it_is_that_of_the_values_and_reads_none(path):
    recording = qdebug.open_recording(path)
    values = {name: recording.load(name, 1) for name in recording.names}
    recording.close()  # nothing can be read now
    for name, array in values.items():
        known = recording.outline(name, 1)
        assert (known.dtype, known.shape) == (array.dtype.name, array.shape)
    assert recording.outline("x", 1) == recording.outline("same", 0)
    assert recording.outline("x", 1) != recording.outline("turned", 1)


@pytest.mark.parametrize("name", ["x", "none"])
def test_where_there_are_no_values_there_is_none(path, name):
    assert qdebug.open_recording(path).outline(name, 7) is None


def test_of_several_files_it_is_that_of_the_file_that_has_the_values(path):
    single = qdebug.open_recording(path)
    joined = JoinedRecording([Part(path=path), Part(path=path, first_sample=2, prefix="")], path)
    assert joined.outline("w") == single.outline("w")
    assert joined.outline("x", 3) == single.outline("x", 1)
    assert joined.outline("x", 9) is None


def test_recordings_that_stand_before_others_hand_it_on_where_values_are_the_same(path):
    recording = qdebug.open_recording(path)
    assert RecentTensors(recording).outline("x") == recording.outline("x")
    real = dequantize_where_scale_varies(recording)
    assert real.outline("x") == recording.outline("x")
    assert real.outline("varying") is None  # it is shown as what the codes stand for
    assert shape_of(real, "varying") == (12,)


def test_a_shape_is_known_of_any_recording(path):
    held = MemoryRecording.single(Graph(), {"a": np.zeros((2, 5))})
    assert held.outline("a") is None
    assert shape_of(held, "a") == (2, 5)
    assert shape_of(qdebug.open_recording(path), "turned", 1) == (3, 4)
