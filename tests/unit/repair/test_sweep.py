"""A sweep measures the outputs with the first or last layers in float, with the quantizers that only they read."""

from importlib.resources import files

import numpy as np
import pytest

from qdebug import data
from qdebug.errors import UsageError
from qdebug.model import MemoryRecording
from qdebug.present.reports.repair import sweep_document
from qdebug.repair.find import RepairOptions
from qdebug.repair.sweep import sweep_layers
from qdebug.session import DiffSession, open_recording


@pytest.fixture
def session():
    runs = [open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")]
    return DiffSession(*runs)


def test_with_all_layers_in_float_the_outputs_are_the_references(session):
    sweep = sweep_layers(session, RepairOptions(within=45), end="first", most=99)
    assert [count.layers for count in sweep.counts] == list(range(sweep.layers + 1))
    assert sweep.counts[0].score.after == sweep.counts[0].score.before
    assert sweep.counts[-1].score.after > 100  # also the input's quantizer is left out
    assert sweep.counts[-1].macs == pytest.approx(1, abs=0.01)
    assert sweep.enough == min(count.layers for count in sweep.counts if count.score.after >= 45)


def test_the_last_layers_are_the_first_ones_from_behind(session):
    first, last = (sweep_layers(session, RepairOptions(), end=end, most=99) for end in ("first", "last"))
    assert [count.node for count in last.counts[1:]] == [count.node for count in first.counts[:0:-1]]
    assert last.counts[-1].score.after == first.counts[-1].score.after


def test_each_number_of_layers_is_what_repair_says_of_these_edits(session):
    """The same edits, chosen by hand: the input's quantizer and the first convolution."""
    from qdebug.repair.edit_bench import EditBench

    sweep = sweep_layers(session, RepairOptions(), end="first", most=1)
    bench = EditBench(session)
    quantizers = [edit for edit in bench.edits_everywhere("float") if "Quantize" in edit.unit.node.op]
    edits = [f"float {sweep.counts[1].node}", *(edit.name for edit in quantizers)]
    *_, effect = bench.effects(edits, list(session.backend.places()))
    assert effect.outputs[0].trial.sqnr_db == pytest.approx(sweep.counts[1].score.after)


def test_a_backend_that_the_replay_does_not_reproduce_proves_nothing(session):
    """The recorded output is wrong by itself, so a replay repairs it without any layer in float."""
    run = session.backend
    (output,) = run.graph.outputs
    values = {(name, 0, 0): run.load(name) for name in run.graph.tensors if run.has(name)}
    wrong = np.roll(values[output, 0, 0], 1, axis=-1)
    broken = MemoryRecording(run.graph, values | {(output, 0, 0): wrong})
    sweep = sweep_layers(DiffSession(session.reference, broken), RepairOptions(), end="first", most=1)
    assert (sweep.proved, sweep.exit_code) == (False, 1)
    assert sweep_document(sweep)[0].word == "NOT PROVED"


def test_a_float_network_has_no_layers_to_sweep(session):
    with pytest.raises(UsageError, match="No node of the backend computes on codes"):
        sweep_layers(DiffSession(session.reference, session.reference), RepairOptions(), end="first", most=1)
