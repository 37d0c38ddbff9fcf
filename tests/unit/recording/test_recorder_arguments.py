"""Arguments of the wrong kind: refused when they are given, since at the end they would cost the recording."""

import numpy as np
import pytest

import qdebug
from qdebug.errors import RecordingError, UsageError
from qdebug.model import Fidelity, Graph, Node, TensorInfo
from qdebug.recording.reading.read import FileRecording


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ({"node": 3}, "node 3"),
        ({"op": b"Conv"}, "op b'Conv'"),
        ({"domain": 1}, "domain 1"),
        ({"inputs": [1]}, "inputs 1"),
        ({"origin": [None, 2]}, "origin 2"),
        ({"layout": 4}, "layout 4"),
        ({"stands_for": b"y"}, "stands_for b'y'"),
        ({"attrs": [1]}, "attrs"),
        ({"inputs": 5}, "inputs 5"),
        ({"origin": 7}, "origin 7"),
    ],
    ids=str,
)
def test_facts_that_are_no_text_are_refused_when_they_are_said(record, said, title):
    def body(rec):
        with pytest.raises(RecordingError, match=title):
            rec.put("y", np.zeros(2), **said)
        rec.put("y", np.ones(2))

    assert record(body).load("y").tolist() == [1, 1]


@pytest.mark.parametrize("place", [(1.5, 0), ("1", 0), (0, None), (-1, 0), (0, -1)], ids=str)
def test_places_that_do_not_exist(record, place):
    def body(rec):
        with pytest.raises(UsageError, match="Invalid sample"):
            rec.at(*place)
        rec.put("y", np.zeros(2))

    assert record(body).samples == 1


def test_numpys_integers_are_places_too(record):
    def body(rec):
        for sample in np.arange(2):
            rec.at(sample, np.uint8(1))
            rec.put("y", np.array(sample))

    recording = record(body)
    assert (recording.samples, recording.steps) == (2, 2)
    assert type(recording.samples) is int
    assert int(recording.load("y", 1, 1)) == 1


@pytest.mark.parametrize("names", [(["a"],), (3,), ("",)], ids=repr)
def test_outputs_are_names(record, names):
    def body(rec):
        with pytest.raises(UsageError, match="expected a string"):
            rec.outputs(*names)
        rec.put("y", np.zeros(2))

    assert record(body).graph.outputs == ()


@pytest.mark.parametrize("outputs", [{}, [np.zeros(2)], None], ids=repr)
def test_check_wants_outputs_by_name(record, outputs):
    def body(rec):
        rec.put("y", np.zeros(2))
        with pytest.raises(UsageError, match="needs a dict of outputs"):
            rec.check(outputs)

    assert record(body).info.fidelity is Fidelity.UNKNOWN


@pytest.mark.parametrize(
    "graph",
    [Graph(tensors=[TensorInfo(name="bad", dtype="string")]), Graph([Node(name="bad", op="Op", attrs={"x": None})])],
    ids=["tensor", "attribute"],
)
def test_a_graph_that_cannot_be_stored_is_refused_before_the_run(path, graph):
    with pytest.raises(RecordingError, match="'bad'"):
        qdebug.Recorder(path, backend="test", graph=graph)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("said", [{"zero_point": [1, 2]}, {"multiplier": np.ones(3)}, {"qmin": 0}], ids=str)
def test_facts_of_codes_without_a_scale_are_refused(record, said):
    def body(recorder):
        recorder.put("b", np.ones(1))
        with pytest.raises(RecordingError, match=rf"'a' was put with {next(iter(said))} but without a scale"):
            recorder.put("a", np.ones(3, np.int8), **said)

    assert record(body).names == ("b",)


def test_a_name_that_no_reader_would_accept_is_refused(record):
    def body(recorder):
        recorder.put("x" * (1 << 20), np.ones(1))
        for name in ("x" * ((1 << 20) + 1), "\u00e9" * ((1 << 19) + 1)):
            with pytest.raises(RecordingError, match=r"has \d+ characters"):
                recorder.put(name, np.ones(1))

    assert len(record(body).names) == 1


@pytest.mark.parametrize(
    "said",
    [
        {"keep": 5},
        {"keep": [None]},
        {"every": "2"},
        {"every": 1.5},
        {"every": 0},
        {"max_bytes": -1},
        {"max_bytes": 1.5},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_before_the_run(path, said):
    with pytest.raises(UsageError):
        qdebug.Recorder(path, backend="test", **said)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("background", [False, True])
def test_a_policy_that_leaves_out_every_tensor_is_said_to(path, background):
    recorder = qdebug.Recorder(path, backend="test", keep="none", background=background)
    recorder.put("a", np.ones(3))
    with pytest.raises(RecordingError, match=r"Nothing was kept, .* exclude every tensor"):
        recorder.close()
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ({"backend": None}, "backend None"),
        ({"model": 3}, "model 3"),
        ({"graph": {}}, "graph {}"),
        ({"versions": 5}, "versions 5"),
        ({"options": ["a"]}, "options"),
        ({"durable": "yes"}, "durable 'yes'"),
    ],
    ids=str,
)
def test_facts_of_the_run_of_a_wrong_kind_are_refused_before_it(path, said, title):
    with pytest.raises(UsageError, match=rf"Recorder\(\) got {title}"):
        qdebug.Recorder(path, **{"backend": "test", **said})
    assert not list(path.parent.iterdir())


def test_a_path_may_be_bytes_and_must_be_a_path(tmp_path):
    with qdebug.Recorder(bytes(tmp_path / "run.h5"), backend="test") as recorder:
        recorder.put("a", np.ones(2))
    assert FileRecording(tmp_path / "run.h5").names == ("a",)
    with pytest.raises(UsageError, match="5 is not a path"):
        qdebug.Recorder(5, backend="test")


def test_names_may_come_in_any_order_that_can_be_walked(record):
    def body(recorder):
        recorder.put("a", np.ones(1), op="Add", inputs=np.array(["x", "y"]))
        recorder.put("b", np.ones(1), op="Add", inputs=(name for name in "xy"), origin=None)

    assert [node.inputs for node in record(body).graph.nodes] == [("x", "y"), ("x", "y")]
