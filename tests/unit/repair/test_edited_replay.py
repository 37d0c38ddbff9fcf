"""Samples that are replayed together give what each gives alone, bit for bit."""

from importlib.resources import files

import numpy as np
import pytest

from qdebug import data
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.repair import edited_replay, replay_states
from qdebug.repair.edited_replay import Change, EditedReplay
from qdebug.repair.edits import EditCatalog
from qdebug.replay import Arithmetic
from qdebug.replay.run import run_graph
from qdebug.session import DiffSession, open_recording

CONSTANTS = {
    "w": np.random.default_rng(9).standard_normal((4, 4)).astype(np.float32),
    "v": np.random.default_rng(8).standard_normal((2, 4, 3)).astype(np.float32),
    "flat": np.int64([-1]),
    "split": np.int64([4, -1]),
    "first": np.int64([0]),
}
MIXING = {
    "softmax over samples": [("Softmax", ("h",), {"axis": 0})],
    "mean of all": [("ReduceMean", ("h",), {"keepdims": 1})],
    "a reshape that joins samples": [("Reshape", ("h", "flat"), {}), ("Softmax", ("t0",), {"axis": 0})],
    "a transpose of samples": [("Transpose", ("h",), {"perm": [2, 1, 0]}), ("Softmax", ("t0",), {"axis": 2})],
    "rows picked by index": [("Gather", ("h", "first"), {"axis": 0})],
    "a product of two results": [("MatMul", ("h", "v"), {}), ("Sigmoid", ("t0",), {})],
    "a matrix product of rows": [("Reshape", ("h", "split"), {}), ("Softmax", ("t0",), {"axis": -1})],
}


def recorded(tail, heights):
    """Record a net of float32 over samples [2, height, 4]: MatMul, Relu, and what follows."""
    nodes = [
        Node(name="fc", op="MatMul", inputs=("x", "w"), outputs=("m",)),
        Node(name="relu", op="Relu", inputs=("m",), outputs=("h",)),
    ]
    for at, (op, inputs, attrs) in enumerate(tail):
        out = "y" if at == len(tail) - 1 else f"t{at}"
        nodes.append(Node(name=f"n{at}", op=op, inputs=inputs, outputs=(out,), attrs=attrs))
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in CONSTANTS]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    values = {(name, 0, 0): array for name, array in CONSTANTS.items()}
    for sample, height in enumerate(heights):
        feed = {"x": np.random.default_rng(sample).standard_normal((2, height, 4)).astype(np.float32)}
        made = dict(feed)
        run_graph(graph, feed, CONSTANTS, on_tensor=made.__setitem__)
        values |= {(name, sample, 0): array for name, array in made.items()}
    return MemoryRecording(graph, values)


def equal_outputs(replay, change, places):
    together = replay.outputs(change, places)
    alone = [replay.outputs(change, [place])[0] for place in places]
    for one, other in zip(together, alone, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    return together


@pytest.mark.parametrize("heights", [(3, 3, 3), (3, 5, 3)], ids=["one shape", "two shapes"])
@pytest.mark.parametrize("tail", MIXING.values(), ids=MIXING)
def test_a_net_that_mixes_what_a_sample_holds_mixes_no_samples(tail, heights):
    run = recorded(tail, heights)
    other = Change(nodes=frozenset(["fc"]), constants={("fc", "w"): 2 * CONSTANTS["w"]})
    made = equal_outputs(EditedReplay(run, Arithmetic()), other, run.places())
    assert any(not np.array_equal(each["y"], run.load("y", at)) for at, each in enumerate(made))


def test_each_edit_of_a_net_on_codes():
    session = DiffSession(*(open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")))
    places = session.backend.places()
    catalog = EditCatalog(
        GraphCheck(session.reference, session.backend, session.alignment.pairs), session.entries(), places
    )
    edits = [edit for name in catalog.units for edit in catalog.edits_of(name)]
    assert len({edit.kind for edit in edits}) > 3
    for edit in edits:
        equal_outputs(EditedReplay(session.backend, Arithmetic()), catalog.change([edit]), places)


def test_a_replay_begins_where_an_earlier_one_with_the_same_changes_was():
    session = DiffSession(*(open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")))
    places = session.backend.places()
    catalog = EditCatalog(
        GraphCheck(session.reference, session.backend, session.alignment.pairs), session.entries(), places
    )
    edits = [edit for name in catalog.units for edit in catalog.edits_of(name)]
    drawn = np.random.default_rng(0)
    sets = [[edits[at] for at in drawn.choice(len(edits), size=drawn.integers(4), replace=False)] for _ in range(30)]
    done: list[int] = []
    fresh: list[int] = []
    kept = EditedReplay(session.backend, Arithmetic(), on_progress=lambda at, _: done.append(at))
    for edited in sets:
        change, everything = catalog.change(edited), bool(drawn.integers(2))
        made = kept.outputs(change, places, everything=everything)
        alone = EditedReplay(session.backend, Arithmetic(), on_progress=lambda at, _: fresh.append(at))
        for one, other in zip(made, alone.outputs(change, places, everything=everything), strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in other)
    assert len(done) < 0.7 * len(fresh)


def test_a_replay_with_one_more_change_that_was_expected_begins_at_it():
    run = recorded([("Relu", ("h",), {}), ("Sigmoid", ("t0",), {})], (3, 3))
    first, last = (Change(nodes=frozenset([name])) for name in ("fc", "n1"))
    both, done = Change(nodes=frozenset(["fc", "n1"]), shifts={"fc": np.float32(1)}), list[int]()
    replay = EditedReplay(run, Arithmetic(), on_progress=lambda at, _: done.append(at))
    replay.expect([first, last])
    replay.outputs(Change(nodes=frozenset(["fc"]), shifts={"fc": np.float32(1)}), run.places())
    done.clear()
    made = replay.outputs(both, run.places())
    assert done == [3]
    for one, other in zip(made, EditedReplay(run, Arithmetic()).outputs(both, run.places()), strict=True):
        np.testing.assert_array_equal(one["y"], other["y"])


def test_states_take_a_bounded_room(monkeypatch):
    run = recorded([("Relu", ("h",), {}), ("Sigmoid", ("t0",), {})], (3, 3))
    monkeypatch.setattr(replay_states, "STATES_BYTES", 10_000)
    replay = EditedReplay(run, Arithmetic())
    for scale in (1.0, 2.0, 3.0):
        shift = Change(nodes=frozenset(["fc", "n1"]), shifts={"fc": np.float32(scale)})
        (made,) = replay.outputs(shift, [(0, 0)])
        (alone,) = EditedReplay(run, Arithmetic()).outputs(shift, [(0, 0)])
        np.testing.assert_array_equal(made["y"], alone["y"])
        assert 0 < replay._states.nbytes <= replay_states.STATES_BYTES


def test_what_a_change_does_not_reach_is_as_recorded():
    run = recorded(MIXING["softmax over samples"], (3, 3))
    made = EditedReplay(run, Arithmetic()).outputs(Change(), run.places())
    for at, each in enumerate(made):
        np.testing.assert_array_equal(each["y"], run.load("y", at))


@pytest.mark.parametrize("count", [11, 12])
def test_the_first_parts_of_a_stack_are_not_taken_for_all_of_it(count):
    stack = np.random.default_rng(0).normal(size=(24, 1))
    parts = [stack[2 * at : 2 * at + 2] for at in range(count)]
    np.testing.assert_array_equal(edited_replay._stacked(parts), stack[: 2 * count])


def test_samples_go_together_as_far_as_they_fit_into_a_cache():
    places = [(at, 0) for at in range(40)]
    small = EditedReplay(recorded(MIXING["mean of all"], (3,)), Arithmetic())
    assert [len(group) for group in small.group_places(places)] == [16, 16, 8]
    large = EditedReplay(recorded(MIXING["mean of all"], (100_000,)), Arithmetic())
    assert {len(group) for group in large.group_places(places)} == {1}
    assert list(small.group_places([])) == []
