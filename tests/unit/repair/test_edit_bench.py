"""Edits that a person chooses: whose they are, and that they give what a repair with the same edits measures."""

import math
from dataclasses import replace
from importlib.resources import files

import pytest

from qdebug import data
from qdebug.errors import UsageError
from qdebug.repair.edit_bench import EditBench
from qdebug.repair.find import RepairOptions, find_repair
from qdebug.session import DiffSession, open_recording


@pytest.fixture(scope="module")
def session():
    return DiffSession(*(open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")))


@pytest.fixture(scope="module")
def bench(session):
    return EditBench(session)


def test_a_tensor_has_the_edits_of_the_node_that_computes_it(session, bench):
    units = bench._search.catalog.nodes.units
    for name, unit in units.items():
        for tensor in (unit.node.outputs[0], unit.tensor):
            assert bench.unit_of(tensor).tensor == unit.tensor, name
    graph = session.backend.graph
    assert bench.unit_of(graph.outputs[0]).tensor == graph.producer(graph.outputs[0]).inputs[0], "what is dequantized"
    assert bench.unit_of(graph.inputs[0]) is None
    edits = bench.edits_of(next(iter(units.values())))
    assert edits
    assert all(edit.unit.node.name == next(iter(units)) for edit in edits)


def test_edits_of_several_nodes_give_what_a_repair_measures_with_them(session, bench):
    first, last = (bench.edits_of(unit)[-1].name for unit in list(bench._search.catalog.nodes.units.values())[:2])
    places = session.backend.places()
    *_, effect = bench.effects([first, last], places)
    found = find_repair(session, RepairOptions(minutes=0.0, within=300.0, start=[first, last]))
    assert {edit.name for edit in found.edits} == {first, last}
    *_, searched = bench.effects([first, last], places[::2])
    assert searched.outputs[0].trial.sqnr_db == pytest.approx(found.search.after)
    assert searched.outputs[0].now.sqnr_db == pytest.approx(found.search.before)
    assert (effect.samples, len(effect.outputs)) == (len(places), 1)
    assert effect.outputs[0].output == session.backend.graph.outputs[0]
    assert bench.fidelity_db() == found.faithful


def test_a_replay_tells_how_far_it_is_and_can_be_given_up(session):
    told = []

    def hear(done, total):
        told.append((done, total))
        if len(told) == 3:
            raise KeyboardInterrupt

    bench = EditBench(session, hear)
    edit = bench.edits_of(next(iter(bench._search.catalog.nodes.units.values())))[0].name
    with pytest.raises(KeyboardInterrupt):
        next(bench.effects([edit], [(0, 0)]))
    many = len(session.backend.graph.nodes)
    assert told == [(0, many), (1, many), (2, many)]
    with pytest.raises(UsageError, match="has no edit"):
        next(bench.effects(["bias nothing"], [(0, 0)]))


def test_a_gain_is_what_an_edit_adds_to_those_chosen(session, bench):
    first, other = (bench.edits_of(unit) for unit in list(bench._search.catalog.nodes.units.values())[:2])
    chosen, places = [other[-1].name], session.backend.places()

    def sqnr(edits):
        *_, effect = bench.effects(edits, places)
        return effect.outputs[0]

    gains = dict(bench.gains(chosen, first, places))
    assert list(gains) == [edit.name for edit in first]
    before = sqnr(chosen).trial.sqnr_db
    for name, gain in gains.items():
        assert gain == pytest.approx(sqnr([*chosen, name]).trial.sqnr_db - before)
    alone = sqnr([first[-1].name])
    assert dict(bench.gains([], first[-1:], places)) == {
        first[-1].name: pytest.approx(alone.trial.sqnr_db - alone.now.sqnr_db)
    }


def test_the_gain_of_a_chosen_edit_is_what_it_adds_to_the_others(session, bench):
    first, other = (bench.edits_of(unit)[-1] for unit in list(bench._search.catalog.nodes.units.values())[:2])
    places = session.backend.places()
    ((_, alone),) = bench.gains([], [first], places)
    ((_, added),) = bench.gains([first.name], [other], places)
    assert list(bench.gains([first.name], [first], places)) == [(first.name, pytest.approx(alone))]
    assert list(bench.gains([first.name, other.name], [other], places)) == [(other.name, pytest.approx(added))]


def test_gains_are_of_the_output_that_is_named(session, bench, monkeypatch):
    edit, places = bench.edits_of(next(iter(bench._search.catalog.nodes.units.values())))[-1], session.backend.places()
    ((_, expected),) = bench.gains([], [edit], places)
    effects = bench.effects

    def with_worse_output(*args, **options):
        for effect in effects(*args, **options):
            (output,) = effect.outputs
            worse = replace(output.trial, sqnr_db=-9.0)
            bad = replace(output, output="bad", now=worse, trial=worse)
            yield replace(effect, outputs=(output, bad))

    monkeypatch.setattr(bench, "effects", with_worse_output)
    assert list(bench.gains([], [edit], places)) == [(edit.name, 0.0)], "of the worst output"
    (output,) = session.backend.graph.outputs
    assert list(bench.gains([], [edit], places, output)) == [(edit.name, pytest.approx(expected))]
    assert math.isnan(dict(bench.gains([], [edit], places, "none"))[edit.name])


def test_what_a_replay_gains_without_edits_is_no_gain_of_an_edit(session, louder):
    run = session.backend
    places, bench = run.places(), EditBench(DiffSession(session.reference, louder(run)))
    edit = bench.edits_of(next(iter(bench._search.catalog.nodes.units.values())))[-1]
    plain, edited = (
        [*bench.effects(edits, places, whole_run=True)][-1].outputs[0].trial.sqnr_db for edits in ([], [edit.name])
    )
    ((_, gain),) = bench.gains([], [edit], places)
    assert gain == pytest.approx(edited - plain)
    assert abs(gain) < 10 < edited - 7, "the recorded output has 6 dB"


def test_gains_of_a_net_that_cannot_be_replayed_whole_are_against_the_recorded_outputs(session):
    bench, places = EditBench(session), session.backend.places()
    edit = bench.edits_of(next(iter(bench._search.catalog.nodes.units.values())))[-1]
    (expected,) = bench.gains([], [edit], places)
    bench._fidelity_db = math.nan
    whole, replays = [], bench._replays

    def noted(tasks):
        whole.extend(each.everything for each in tasks)
        return replays(tasks)

    bench._replays = noted
    assert list(bench.gains([], [edit], places)) == [expected]
    assert whole == [False]
