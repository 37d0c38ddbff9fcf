"""One tensor beyond 4 GB: written, followed, verified, read and recovered."""

import numpy as np
import pytest

from qdebug.model import Graph, RunInfo
from qdebug.recording.reading.journal_reader import JournalReader
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.reading.verify import verify
from qdebug.recording.target import journal_of
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.write import RecordingWriter

SIZE = (4 << 30) + 5


@pytest.mark.slow
def test_a_tensor_beyond_four_gigabytes(tmp_path):
    array = np.zeros(SIZE, np.uint8)
    array[:: 1 << 20] = np.arange(-(-SIZE >> 20), dtype=np.uint32).astype(np.uint8)
    array[-1] = 77
    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("before", np.arange(3))
    writer.append("large", array)
    writer.append("after", np.arange(4))
    reader = JournalReader(journal_of(tmp_path / "run.h5"))
    assert [event.name for event in reader.refresh()] == ["before", "large", "after"]
    reader.close()
    writer.close(Graph(), RunInfo(backend="b"))
    assert verify(tmp_path / "run.h5", memory=3 << 30).bytes == SIZE + 56
    with FileRecording(tmp_path / "run.h5") as recording:
        found = recording.load("large")
        assert found.shape == (SIZE,)
        assert int(found[-1]) == 77
        assert np.array_equal(found[:: 1 << 20][:-1], array[:: 1 << 20][:-1])
        assert recording.load("after").tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_it_is_recovered(tmp_path):
    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("large", np.ones(SIZE, np.uint8))
    writer.leave()
    assert recover(tmp_path / "run.h5").tensors == 1
    with FileRecording(tmp_path / "run.h5") as recording:
        assert int(recording.load("large")[-1]) == 1
