"""Probe nets: every sum is what was asked for, ties are in, and no kernel is left a choice it should not have."""

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.units import Units
from qdebug.model import MemoryRecording
from qdebug.probe.models import PROBED, choose_sums, encode_sums, probe_models, tap_weights
from qdebug.replay import accumulate, finish_many, run_graph
from qdebug.replay.unit import KINDS

MODELS = list(probe_models())


@pytest.mark.parametrize(
    ("multiplier", "ties", "near"), [(2.0**-13, 150, 2e-4), (1.2345e-4, 0, 3e-4), (0.01, 100, 0.011)]
)
def test_chosen_sums_lie_next_to_ties(multiplier, ties, near):
    sums = choose_sums(multiplier, 1024)
    product = sums * multiplier
    distance = np.abs(np.abs(product - np.floor(product)) - 0.5)
    assert np.count_nonzero(distance < 1e-9) >= ties
    assert np.sort(distance)[400] < near
    assert distance.max() > 0.3  # and some are far from one
    assert np.abs(product).max() < 111
    assert (sums > 0).any()
    assert (sums < 0).any()
    np.testing.assert_array_equal(sums, choose_sums(multiplier, 1024))


def test_operands_sum_to_what_was_asked_for():
    sums = np.concatenate([choose_sums(1.2e-4, 500), [0, 1, -1, 62, 63, 64, -63, 800100, -800100]])
    operands, weights = encode_sums(sums), tap_weights()
    assert np.abs(operands).max() <= 127
    np.testing.assert_array_equal(operands @ weights[:, 0], sums)
    np.testing.assert_array_equal(operands @ weights[:, 1], -sums)


def test_two_neighbouring_products_fit_16_bits():
    assert 2 * 255 * int(np.abs(tap_weights()).max()) <= 32767


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.title)
def test_every_net_runs_and_has_codes_in_the_middle(model):
    assert model.kind in KINDS
    assert model.kind in PROBED
    outputs = run_graph(model.graph, model.feed, model.constants)
    assert len(outputs) >= 2
    for name, codes in outputs.items():
        info = np.iinfo(codes.dtype)
        inside = (codes > info.min) & (codes < info.max)
        assert inside.mean() > 0.2, name
        assert len(np.unique(codes)) > 40, name


def test_odd_and_even_zero_points_and_powers_of_two_are_in():
    for model in MODELS:
        if model.kind in ("conv", "linear", "add", "mul"):
            scales = [array for array in model.constants.values() if array.dtype == np.float32 and array.size == 1]
            assert any(np.frexp(float(scale.reshape(-1)[0]))[0] == 0.5 for scale in scales), model.title
            assert any(np.frexp(float(scale.reshape(-1)[0]))[0] != 0.5 for scale in scales), model.title
            zeros = [int(a.reshape(-1)[0]) for a in model.constants.values() if a.dtype != np.float32 and a.size == 1]
            assert {zero % 2 for zero in zeros} == {0, 1}, model.title


def test_kinds_may_be_chosen():
    assert {model.kind for model in probe_models(["add", "quantize"])} == {"add", "quantize"}
    assert {model.kind for model in MODELS} == set(PROBED)


def parted(model, positions):
    """Count the classes that the known variants fall into on some nodes of a net."""
    arrays = {(name, 0, 0): array for name, array in (model.constants | model.feed).items()}
    outputs = run_graph(model.graph, model.feed, model.constants)
    recording = MemoryRecording(model.graph, arrays | {(name, 0, 0): array for name, array in outputs.items()})
    units = Units(recording)
    codes: dict[str, list[bytes]] = {}
    for node in (model.graph.nodes[position] for position in positions):
        unit = units.find(node, node.outputs[0]).unit((0, 0))
        known = [variant for variant in candidates(unit) if not variant.accumulate.startswith("pair")]
        for sums in dict.fromkeys(variant.sums for variant in known):
            same = [variant for variant in known if variant.sums == sums]
            for variant, row in zip(same, finish_many(unit, accumulate(unit, sums), same), strict=True):
                codes.setdefault(str(variant), []).append(row.tobytes())
    return len({tuple(rows) for rows in codes.values()}), len(codes)


def test_chosen_sums_part_what_random_ones_do_not():
    model = next(probe_models(["conv"]))
    chosen, known = parted(model, range(6))
    at_random, _ = parted(model, [6])
    assert known > 100
    assert chosen > 80
    assert at_random < chosen / 2
