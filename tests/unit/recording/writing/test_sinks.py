"""A file and memory keep the same things."""

import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.model import Graph, RunInfo
from qdebug.recording.writing.sinks import MemorySink
from qdebug.recording.writing.write import RecordingWriter


@pytest.fixture(params=["file", "memory"])
def sink(request, tmp_path):
    made = MemorySink() if request.param == "memory" else RecordingWriter(tmp_path / "run.h5")
    yield made
    made.discard()
    assert list(tmp_path.iterdir()) == []


def test_values_come_back_while_it_is_open(sink):
    values = np.array([[1.5, np.nan]], np.float32)
    sink.append("a", values, (1, 2))
    sink.append("w", np.array(7, np.int8), constant=True)
    sink.append("empty", np.zeros((0, 3)))
    values[:] = 0
    back = sink.read_back("a", (1, 2))
    assert (back.dtype, back.shape) == (np.float32, (1, 2))
    assert back[0, 0] == 1.5
    assert np.isnan(back[0, 1])
    assert int(sink.read_back("w")) == 7
    assert sink.read_back("empty").shape == (0, 3)
    assert sink.read_back("a") is None
    assert sink.read_back("b") is None


def test_a_discarded_one_takes_nothing(sink):
    sink.append("a", np.zeros(1))
    sink.discard()
    with pytest.raises(RecordingError, match="closed"):
        sink.append("b", np.zeros(1))
    with pytest.raises(RecordingError, match="closed"):
        sink.close(Graph(), RunInfo(backend="t"))


def test_what_a_file_cannot_hold_memory_does_not_either(sink):
    with pytest.raises(RecordingError, match="'odd one'"):
        sink.append("odd one", np.array(["a"]))
