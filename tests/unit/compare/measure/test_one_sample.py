"""One sample of a recording, seen as a recording."""

import numpy as np
import pytest

from qdebug.compare.measure.recordings import OneSample, renumber_sample
from qdebug.errors import RecordingError, UsageError
from qdebug.model import Graph, MemoryRecording, Node, Recording, Role, TensorInfo
from qdebug.session import DiffSession


@pytest.fixture
def recording():
    node = Node(name="n", op="Mul", inputs=("x", "w"), outputs=("y",))
    graph = Graph([node], tensors=[TensorInfo(name="w", role=Role.CONSTANT)], inputs=["x"], outputs=["y"])
    arrays = {
        ("y", sample, step): np.full(2, 10 * sample + step, np.float32) for sample in range(3) for step in range(2)
    }
    return MemoryRecording(graph, {**arrays, ("w", 0, 0): np.ones(1, np.float32)})


def test_the_sample_is_number_0_and_constants_and_steps_stay(recording):
    one = OneSample(recording, 2)
    assert isinstance(one, Recording)
    assert (one.samples, one.steps) == (1, 2)
    assert one.load("y", 0, 1).tolist() == [21.0, 21.0]
    assert one.load("w").tolist() == [1.0]
    assert (one.has("y"), one.has("y", 1), one.has("nothing")) == (True, False, False)
    assert list(one.names) == list(recording.names)
    assert (one.graph, one.info) == (recording.graph, recording.info)


def test_a_sample_that_is_not_there_is_an_error(recording):
    with pytest.raises(UsageError, match="no sample 3: the recording of 'memory' has samples 0 to 2"):
        OneSample(recording, 3)
    alone = MemoryRecording.single(Graph(), {"y": np.zeros(1)})
    with pytest.raises(UsageError, match="has only sample 0"):
        OneSample(alone, 1)
    with pytest.raises(RecordingError, match="no tensor 'nothing'"):
        OneSample(recording, 0).load("nothing")


def test_the_next_sample_is_not_given_out_for_it(recording):
    with pytest.raises(RecordingError, match="sample 1"):
        OneSample(recording, 1).load("y", 1)


def test_the_result_names_the_sample_by_its_own_number(recording):
    session = DiffSession(OneSample(recording, 1), OneSample(recording, 1))
    result = renumber_sample(session.result(), 1)
    (node,) = [node for node in result.nodes if node.tensor == "y"]
    assert [sample.sample for sample in node.samples] == [1]
    assert node.metrics.worst_sample == 1
    assert result.outputs == ()
    assert result.status == "identical"


def test_the_ranking_of_an_output_names_the_sample_by_its_own_number():
    graph = Graph([Node(name="fc", op="Gemm", inputs=("x",), outputs=("y",))], inputs=["x"], outputs=["y"])
    scores = MemoryRecording(graph, {("y", sample, 0): np.arange(3.0) for sample in range(2)})
    result = DiffSession(OneSample(scores, 1), OneSample(scores, 1)).result()
    assert [output.worst_sample for output in renumber_sample(result, 1).outputs] == [1]
    dead = MemoryRecording(graph, {("y", sample, 0): np.zeros(3) for sample in range(2)})
    result = DiffSession(OneSample(dead, 1), OneSample(dead, 1)).result()
    assert [output.worst_sample for output in renumber_sample(result, 1).outputs] == [None]
