"""RunInfo and the recording in memory."""

import pickle

import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.model import Fidelity, Graph, MemoryRecording, Node, Recording, Role, RunInfo, TensorInfo
from qdebug.model.recording import no_values_error, quant_of, shape_of


def graph():
    return Graph(
        [Node(name="n", op="Add", inputs=("x", "w"), outputs=("y",))],
        tensors=[TensorInfo(name="w", role=Role.CONSTANT)],
        inputs=["x"],
        outputs=["y"],
    )


def recording():
    arrays = {("w", 0, 0): np.ones(2)}
    for sample in range(3):
        for step in range(2):
            arrays["x", sample, step] = np.full(2, 10.0 * sample + step)
    return MemoryRecording(graph(), arrays, RunInfo(backend="here"))


def test_it_is_a_recording():
    assert isinstance(recording(), Recording)
    assert recording().info.backend == "here"
    assert recording().names == ("w", "x")


def test_samples_and_steps_are_counted_from_what_varies():
    assert (recording().samples, recording().steps) == (3, 2)
    alone = MemoryRecording.single(graph(), {"w": np.ones(2)})
    assert (alone.samples, alone.steps) == (1, 1)


def test_values_come_back_by_sample_and_step():
    assert recording().load("x", 2, 1).tolist() == [21.0, 21.0]
    assert recording().has("x", 2, 1)
    assert not recording().has("x", 3, 0)
    assert not recording().has("y")


def test_a_constant_is_there_for_every_sample_and_step():
    assert recording().has("w", 2, 1)
    assert recording().load("w", 2, 1).tolist() == [1.0, 1.0]


def test_values_are_copied_and_read_only():
    given = np.zeros(2)
    kept = MemoryRecording.single(graph(), {"x": given})
    given[0] = 5.0
    assert kept.load("x").tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        kept.load("x")[0] = 1.0


def test_missing_values_are_told_from_a_missing_tensor():
    with pytest.raises(RecordingError, match="'x' has no values for sample 7, step 0"):
        recording().load("x", 7)
    with pytest.raises(RecordingError, match="no tensor 'nope'") as caught:
        recording().load("nope")
    assert "qdebug info" in caught.value.hint
    assert no_values_error("x", 1, 2, ["x"]).hint == ""


def test_a_pickled_recording_is_still_read_only():
    copy = pickle.loads(pickle.dumps(recording()))  # noqa: S301  our own bytes
    assert copy.load("x", 1, 1).tolist() == [11.0, 11.0]
    assert not copy.load("x", 1, 1).flags.writeable
    assert copy.info == recording().info


def test_run_facts_are_frozen_in_depth_and_survive_pickling():
    versions = {"numpy": "2"}
    info = RunInfo(backend="b", versions=versions, options={"threads": 1}, skipped={"t": "reused"})
    versions["more"] = "1"
    assert dict(info.versions) == {"numpy": "2"}
    assert pickle.loads(pickle.dumps(info)) == info  # noqa: S301  our own bytes
    with pytest.raises(AttributeError):
        info.backend = "other"


def test_run_facts_as_plain_values():
    plain = RunInfo(backend="b", fidelity=Fidelity.BIT_EQUAL, cpu_flags=("avx2",), options={"opt": "all"}).to_dict()
    assert plain["fidelity"] == "bit_equal"
    assert type(plain["fidelity"]) is str
    assert plain["cpu_flags"] == ["avx2"]
    assert plain["options"] == {"opt": "all"}
    assert set(plain) == set(RunInfo.__dataclass_fields__)


class Minimal(Recording):
    """A recording that says no more than it must."""

    info, graph, samples, steps, names = RunInfo(backend="mine"), graph(), 2, 3, ("w", "x")

    def has(self, tensor, sample=0, step=0):
        return tensor in self.names

    def load(self, tensor, sample=0, step=0):
        return np.zeros(4)


def test_what_a_recording_does_not_say_has_a_default():
    mine = Minimal()
    assert mine.places() == mine.places("x") == ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2))
    assert mine.places("w") == ((0, 0),)
    assert mine.kept("x") is mine.outline("x") is quant_of(mine, "x") is None
    assert mine.event_quants == {}
    assert shape_of(mine, "x") == (4,)


def test_what_a_recording_must_say_is_asked_for():
    with pytest.raises(TypeError, match="abstract"):
        type("Less", (Minimal,), {"load": Recording.load})()
