"""The bench of truth itself, on one small net: faults are planted and named, and a wrong answer counts as wrong."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

NAME = "qdebug_tests_faults_rates"
GRAPH = ("wrong_channel", "bias_rolled", "table_rolled", "activation_swapped", "parts_swapped", "product_scaled")
KERNEL = ("row_kept", "depth_cut_off", "not_a_number", "neighbour_picked", "parts_exchanged")


def load():
    """Import the command, which lies in no package, once."""
    if NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name("rates.py"))
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[NAME])
    return sys.modules[NAME]


rates = load()


@pytest.fixture(scope="module")
def ranking(tmp_path_factory):
    """Return the bench of the smallest net, float and int8."""
    folder = tmp_path_factory.mktemp("rates")
    build, inputs = rates.known_nets.NETS["ranking"]
    feeds = inputs(4)
    forms = {
        form: rates.quantizers.made("ranking", build(folder), form, feeds, folder) for form in ("float", "qdq.channel")
    }
    return rates.Bench("ranking", forms, feeds, folder)


@pytest.mark.parametrize("kind", [*GRAPH, *KERNEL])
def test_a_planted_fault_is_named(ranking, kind):
    case = ranking.plant("float", kind, 0)
    assert case.nodes
    assert case.origin_right, case
    assert case.cause_right, case


def test_a_fault_in_an_int8_net_is_named(ranking):
    case = ranking.plant("qdq.channel", "scales_rolled", 1)
    assert case.origin_right, case


def test_a_healthy_int8_net_is_no_fault(ranking):
    """Where a processor adds products in 16 bits, sums of the int8 net saturate, and its output is below 20 dB."""
    pairs = rates.healthy_pairs(ranking, ["float", "qdq.channel"], set())
    assert [pair["level"] for pair in pairs] == ["basic", "extended", "all", "all"]
    assert all(pair["right"] for pair in pairs), pairs
    assert all(pair["good"] for pair in pairs[:3])


def test_a_fault_that_no_node_can_have_is_none(ranking):
    assert ranking.plant("float", "gates_swapped", 0) is None
    assert ranking.plant("float", "sums wrap", 0) is None


def test_all_below_a_faulty_kernel_runs_again(ranking):
    run = ranking.executed("float", "extended")
    node = run.nodes[0]
    wrong = {sample: run.value(node.outputs[0], sample) * np.float32(3) for sample in range(ranking.SAMPLES)}
    spoiled = run.below(node.outputs[0], wrong)
    (end,) = spoiled.graph.outputs
    assert np.any(spoiled.load(end) != run.recording.load(end))
    right = {sample: run.value(node.outputs[0], sample) for sample in range(ranking.SAMPLES)}
    again = run.below(node.outputs[0], right)
    assert np.array_equal(again.load(end), run.recording.load(end))


def test_a_wrong_answer_counts_as_wrong(ranking):
    """The judge can fail: at the expected node, with the expected kind, about the expected constant."""
    case = ranking.plant("float", "wrong_channel", 0)
    result = ranking._graph.seed("float", "wrong_channel", 0).result
    where = ("float", "extended", "wrong_channel", 0, "graph", "")
    right = {"nodes": frozenset(case.nodes), "kinds": frozenset({"weight"}), "names": {"weight": {case.name}}}
    assert ranking._judged(result, where=where, **right).cause_right
    for other in ({"kinds": frozenset({"bias"})}, {"names": {"weight": {"another"}}}):
        judged = ranking._judged(result, where=where, **(right | other))
        assert judged.origin_right
        assert not judged.cause_right
    assert not ranking._judged(result, where=where, **(right | {"nodes": frozenset({"another"})})).origin_right


def test_a_comparison_that_raises_is_a_wrong_answer(ranking, monkeypatch):
    def raises(reference, backend, **limits):
        raise TypeError("no number")

    monkeypatch.setattr(sys.modules["planting"], "diff", raises)
    case = ranking.plant("float", "wrong_channel", 0)
    assert (case.status, case.said, case.origin_right) == ("broke down", "TypeError: no number", False)


def test_goals_that_are_missed_are_said(ranking):
    case = ranking.plant("float", "wrong_channel", 0)
    wrong = replace(case, origin_right=False, cause_right=False)
    alarm = {"net": "n", "form": "float", "level": "all", "sqnr_db": 80.0, "status": "diverged", "sentence": "It is."}
    good, bad = alarm | {"good": True, "right": True}, alarm | {"good": True, "right": False}
    assert not rates.missed([case], [good])
    assert rates.missed([case, wrong], [good])
    assert rates.missed([case], [bad])
    assert "false alarms: 1 of 1 healthy pairs" in "\n".join(rates.report("known", [case], [bad]))
    assert rates.wrong_lines([case], [good]) == []
    lines = rates.wrong_lines([wrong], [bad])
    assert lines[0].startswith("wrong origin: ranking float")
    assert lines[-2] == "false alarm: n float all, 80.0 dB: diverged"


MADE_HERE = [
    (group, name)
    for group, nets in rates.groups().items()
    for name, (build, _) in nets.items()
    if build.__name__ == "<lambda>"  # the others are fetched
]


@pytest.mark.parametrize(("group", "name"), MADE_HERE)
def test_a_net_answers_every_sample_alive(group, name):
    import onnxruntime

    build, inputs = rates.groups()[group][name]
    session = onnxruntime.InferenceSession(build(None).SerializeToString())
    feeds = inputs(rates.SAMPLES)
    found = [session.run(None, {name: array[at] for name, array in feeds.items()}) for at in range(rates.SAMPLES)]
    for output in zip(*found, strict=True):
        assert np.all(np.isfinite(output))
        assert np.std(output, axis=0).max() > 1e-3 * np.abs(output).max()


def test_no_net_is_both_known_and_held_out():
    known, held_out = rates.groups().values()
    assert not set(known) & set(held_out)


def test_a_form_is_calibrated_again_on_other_samples(tmp_path):
    build, inputs = rates.known_nets.NETS["ranking"]
    feeds = inputs(2)
    wider = {name: array * 4 if array.dtype.kind == "f" else array for name, array in feeds.items()}
    make = rates.quantizers.made
    first, other = (make("ranking", build(tmp_path), "qdq.tensor", each, tmp_path) for each in (feeds, wider))
    assert first.read_bytes() != other.read_bytes()
    assert make("ranking", build(tmp_path), "qdq.tensor", feeds, tmp_path) == first
