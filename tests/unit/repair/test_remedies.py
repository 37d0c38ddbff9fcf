"""Remedies: edits are offered with what a replay of them gains, and a broken kernel with what a right one gives."""

import math
from importlib.resources import files

import pytest

from qdebug import data
from qdebug.compare.result.limits import Limits
from qdebug.model.thresholds.verdict import REMEDY_MIN_GAIN
from qdebug.repair.edit_bench import EditBench
from qdebug.repair.remedies import _order_greedily, with_remedies
from qdebug.running.demo import run_demo
from qdebug.session import DiffSession, open_recording


@pytest.fixture(scope="module")
def session():
    """Return the digits nets, with a limit of outputs that int8 misses."""
    runs = (open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8"))
    return DiffSession(*runs, limits=Limits(min_output_sqnr=60.0))


@pytest.fixture(scope="module")
def result(session):
    return with_remedies(session, session.result(), pair="a.h5 'b c.h5'")


def test_what_is_promised_is_what_a_replay_of_all_samples_gives(session, result):
    found = [remedy for fault in result.diagnosis for remedy in fault.remedies]
    assert found
    bench, places = EditBench(session), list(session.backend.places())
    for remedy in found:
        if remedy.edit.endswith("*"):
            continue
        *_, effect = bench.effects(remedy.edit.split(", "), places)
        (output,) = effect.outputs
        gained = output.trial.sqnr_db - output.now.sqnr_db
        assert remedy.gain_db == pytest.approx({output.output: gained})
        assert remedy.samples == len(places)
        assert gained > 0.5


def test_the_first_nodes_are_those_that_gain_most_in_float_one_after_the_other(session, result):
    bench, places, before = EditBench(session), list(session.backend.places()), session.result().diagnosis
    (few,) = (each for fault in result.diagnosis for each in fault.remedies if (each.nodes or 0) > 1)
    chosen = few.edit.split(", ")
    units = [bench.unit_of(fault.tensor) for fault in result.diagnosis]
    assert [f"float {unit.node.name}" for unit in units[: few.nodes]] == chosen
    assert few.command.endswith(f"--kinds float --max-edits {len(chosen)}")
    assert {fault.tensor for fault in result.diagnosis} == {fault.tensor for fault in before}
    assert result.diagnosis[0].tensor == before[0].tensor, "the largest share"

    def gain(names):
        *_, effect = bench.effects(names, places)
        return effect.outputs[0].trial.sqnr_db

    others = {f"float {unit.node.name}" for unit in units} - {chosen[0]}
    for at in range(1, len(chosen)):
        tried = {name: gain([*chosen[:at], name]) for name in others}
        assert max(tried, key=tried.__getitem__) == chosen[at]
        others.remove(chosen[at])
        if at > 1:
            assert tried[chosen[at]] >= gain(chosen[:at]) + REMEDY_MIN_GAIN, "the last one is worth it"


def test_trying_few_nodes_in_float_replays_no_node_ahead_of_the_one_that_is_added(session):
    bench, places = EditBench(session), list(session.backend.places())
    names = [edit.name for edit in bench.edits_everywhere("float")]
    positions = {node.name: at for at, node in enumerate(session.backend.graph.nodes)}
    first, *others = sorted(names, key=lambda name: positions[name.removeprefix("float ")])
    done = list[int]()
    bench = EditBench(session, on_progress=lambda at, _: done.append(at))
    *_, _ = bench.effects([first], places, next_edits=names)
    for other in others:
        done.clear()
        *_, _ = bench.effects([first, other], places, next_edits=names)
        assert min(done) >= positions[other.removeprefix("float ")] - 2, "at most its quantized inputs"


def test_thorough_tries_edits_on_every_node_beside_the_few_in_float(session, result):
    tried = with_remedies(session, session.result(), thorough=True).diagnosis
    singles = [{fault.node for fault in each for remedy in fault.remedies if remedy.nodes == 1} for each in (
        result.diagnosis, tried
    )]  # fmt: skip
    assert singles[0] < singles[1]
    assert any((remedy.nodes or 0) > 1 for fault in tried for remedy in fault.remedies)


def test_commands_name_the_files_and_the_json_says_all(result):
    (first, *_) = (remedy for fault in result.diagnosis for remedy in fault.remedies)
    assert first.command.startswith("qdebug repair a.h5 'b c.h5' --kinds ")
    plain = [fault["try"] for fault in result.to_dict()["diagnosis"] if fault["try"]]
    assert {"edit", "gain_db", "cost", "command"} <= plain[0][0].keys()


@pytest.mark.slow
def test_a_broken_kernel_is_shown_with_what_right_kernels_give(tmp_path):
    demo = run_demo(tmp_path / "demo")
    session = DiffSession(*map(open_recording, (demo.reference, demo.backend)))
    before = session.result()
    (fault,) = with_remedies(session, before).diagnosis
    (remedy,) = fault.remedies
    (gain,) = remedy.gain_db.values()
    right = DiffSession(*(open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")))
    (output,) = right.result().network_outputs
    results = (before, right.result())
    sqnr = [next(node.metrics.sqnr_db for node in each.nodes if node.tensor == output) for each in results]
    assert math.isclose(gain, sqnr[1] - sqnr[0], abs_tol=3.0), "the arithmetic of the replay is not quite the backend's"
    assert fault.node in remedy.command


def test_nothing_is_tried_where_all_is_well():
    runs = [open_recording(files(data).joinpath("digits.float.h5")) for _ in range(2)]
    session = DiffSession(*runs)
    result = session.result()
    assert with_remedies(session, result) is result


@pytest.mark.parametrize(
    ("gains", "order", "count"),
    [
        ({"a": 2.0, "ab": 3.0, "ac": 9.0, "ad": 5.0, "acd": 9.2, "acb": 9.1}, "acd", 2),
        ({"a": 2.0, "ab": 3.0, "ac": 9.0, "ad": 5.0, "acd": 11.0, "acb": 9.1}, "acd", 3),
        ({"a": 8.8, "ab": 3.0, "ac": 9.0, "ad": 5.0, "acd": 9.2, "acb": 9.1}, "acd", 1),
        ({"a": 8.5, "ab": 8.4, "ac": 9.0, "ad": 6.0, "acb": 9.1, "acd": 14.2}, "acd", 3),
        ({"a": 2.0, "ab": 3.0, "ac": 12.0, "ad": 5.0, "acd": 11.8, "acb": 5.0}, "acd", 2),
    ],
    ids=["two", "three", "one", "two that gain only together", "a third one that harms least"],
)
def test_nodes_are_ordered_by_what_they_add_and_those_that_add_little_are_not_chosen(gains, order, count):
    assert _order_greedily("abcd", lambda names: gains["".join(names)], 3) == (list(order), count)
