"""A recording that remembers the small tensors it gave last."""

import numpy as np
import pytest

from qdebug.compare.measure import recordings
from qdebug.compare.measure.recordings import RecentTensors
from qdebug.errors import RecordingError
from qdebug.model import Graph, MemoryRecording, Recording, Role, TensorInfo


class Counting(MemoryRecording):
    """Counts what is really loaded."""

    def __init__(self, arrays):
        super().__init__(Graph(), arrays)
        self.loads = []

    def load(self, tensor, sample=0, step=0):
        self.loads.append((tensor, sample, step))
        return super().load(tensor, sample, step)


@pytest.fixture
def counting():
    arrays = {(name, sample, 0): np.full(100, sample, np.float32) for name in "ab" for sample in range(3)}
    return Counting(arrays | {("big", 0, 0): np.zeros(recordings._MAX_TENSOR_BYTES + 1, np.int8)})


def test_a_small_tensor_is_loaded_once(counting):
    kept = RecentTensors(counting)
    assert isinstance(kept, Recording)
    first = kept.load("a", 1)
    assert kept.load("a", 1) is first
    assert kept.load("a", 2) is not first
    assert counting.loads == [("a", 1, 0), ("a", 2, 0)]
    kept.load("big")
    kept.load("big")
    assert counting.loads[2:] == [("big", 0, 0)] * 2


def test_a_constant_is_loaded_once_for_all_samples():
    counting = Counting({("w", 0, 0): np.ones(3, np.float32), ("a", 0, 0): np.zeros(3), ("a", 1, 0): np.zeros(3)})
    graph = Graph(tensors=[TensorInfo(name="w", role=Role.CONSTANT)])
    counting.graph = graph
    kept = RecentTensors(counting)
    for sample in range(2):
        kept.load("w", sample)
        kept.load("a", sample)
    assert [name for name, *_ in counting.loads] == ["w", "a", "a"]


def test_what_was_not_asked_for_lately_is_dropped_first(counting):
    kept = RecentTensors(counting, max_bytes=2 * (400 + 512))
    for name, sample in (("a", 0), ("a", 1), ("a", 0), ("b", 0)):
        kept.load(name, sample)
    counting.loads.clear()
    kept.load("a", 0)
    kept.load("b", 0)
    kept.load("a", 1)
    assert counting.loads == [("a", 1, 0)]


def test_everything_else_is_the_recordings_own(counting):
    kept = RecentTensors(counting)
    kept.load("a")
    for name in ("info", "graph", "samples", "steps", "names"):
        assert getattr(kept, name) == getattr(counting, name)
    assert [kept.has("a"), kept.has("b", 2), kept.has("b", 3), kept.has("c")] == [True, True, False, False]
    with pytest.raises(RecordingError, match="no tensor 'c'"):
        kept.load("c")
