"""What can be said of tensors that were not kept in full, and what cannot."""

import math
from dataclasses import asdict

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.measure import partial
from qdebug.compare.measure.compare import compare_pair
from qdebug.compare.measure.partial import compare_partly
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.recording.recorder import Recorder

RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal((1, 8, 40, 40)).astype(np.float32)


def record(array, keep=None, **facts):
    with Recorder(None, backend="b", keep=keep) as rec:
        rec.put("x", np.zeros(1, np.float32))
        for sample, each in enumerate(array if isinstance(array, list) else [array]):
            rec.at(sample)
            rec.put("y", each, node="n", op="Custom", inputs=("x",), **facts)
    return rec.recording


def pair(**views):
    return Pair(reference="y", backend="y", match=Match.EXACT, reason="same name", **views)


@pytest.mark.parametrize("keeps", [("elements:500", "elements:500"), (None, "elements:500"), ("elements:500", None)])
def test_elements_give_the_error_of_those_elements(keeps):
    wrong = VALUES + np.float32(0.25)
    reference, backend = record(VALUES, keeps[0]), record(wrong, keeps[1])
    found = compare_pair(reference, backend, pair())
    assert found.basis == "elements"
    assert found.stats.max_abs == pytest.approx(0.25, abs=1e-6)
    assert 500 <= found.stats.count <= 600
    assert found.stats.mismatches == found.stats.count
    assert f"{found.stats.count} of 12800 elements" in found.note
    place = found.stats.worst_index
    assert abs(float(wrong[place] - VALUES[place])) == pytest.approx(found.stats.max_abs)


def test_a_wrong_element_is_found_if_it_is_the_largest():
    wrong = VALUES.copy()
    wrong[0, 3, 2, 1] = 1e6
    reference, backend = record(VALUES, None), record(wrong, "elements:64")
    found = compare_pair(reference, backend, pair())
    assert found.stats.worst_index == (0, 3, 2, 1)


def test_several_samples_with_the_worst_one_named():
    arrays = [VALUES, VALUES * 2, VALUES * 3]
    wrong = [VALUES, VALUES * 2 + np.float32(1), VALUES * 3]
    found = compare_pair(record(arrays, "elements:99"), record(wrong, "elements:99"), pair())
    assert [sample.sample for sample in found.samples] == [0, 1, 2]
    assert found.stats.worst_sample == 1
    assert len(found.stats.worst_index) == 4
    assert found.samples[2].stats.mismatches == 0


@pytest.mark.parametrize("axis", [None, 1])
def test_codes_are_compared_as_real_values(axis):
    scale = np.float32(0.05) if axis is None else np.linspace(0.04, 0.06, 8).astype(np.float32)
    shaped = scale if axis is None else scale.reshape(1, 8, 1, 1)
    codes = np.clip(np.round(VALUES / shaped), -128, 127).astype(np.int8)
    reference, backend = record(VALUES, "elements:400"), record(codes, "elements:400", scale=scale, axis=axis)
    found = compare_pair(reference, backend, pair())
    assert found.stats.max_abs <= 0.031
    assert found.stats.sqnr_db > 30
    assert found.stats.max_lsb <= 0.501


def test_another_order_of_dimensions():
    backend = record(np.ascontiguousarray(VALUES.transpose(0, 2, 3, 1)), "elements:3000")
    view = Transform(transpose=(0, 3, 1, 2))
    found = compare_pair(record(VALUES, None), backend, pair(backend_view=view))
    assert (found.basis, found.stats.mismatches) == ("elements", 0)
    both = compare_pair(record(VALUES, "elements:3000"), backend, pair(backend_view=view))
    assert both.stats is None or both.stats.mismatches == 0


def test_another_number_of_elements():
    found = compare_pair(record(VALUES, "elements:50"), record(VALUES[:, :4], "elements:50"), pair())
    assert found.stats is None


def test_equal_hashes_prove_identity():
    found = compare_pair(record(VALUES, "stats"), record(VALUES, "stats"), pair())
    assert (found.basis, found.known_equal, found.note, found.reason) == ("stats", True, None, None)
    assert (found.stats.mismatches, found.stats.sqnr_db, found.stats.count) == (0, math.inf, VALUES.size)


def test_equal_codes_of_another_scale_are_not_identical():
    codes = np.arange(100, dtype=np.int8)
    found = compare_pair(record(codes, "stats", scale=0.5), record(codes, "stats", scale=0.25), pair())
    assert found.stats is None
    assert found.sqnr_at_most < 10


def test_equal_elements_of_tensors_that_differ_elsewhere_are_no_identity():
    wrong = VALUES.copy()
    kept = record(VALUES, "elements:20").kept("y").positions
    at = next(number for number in range(VALUES.size) if number not in kept)
    wrong.reshape(-1)[at] += np.float32(0.001)
    found = compare_pair(record(VALUES, "elements:20"), record(wrong, "elements:20"), pair())
    assert found.stats.mismatches == 0
    assert not found.known_equal


@pytest.mark.parametrize("change", [lambda a: a + np.float32(3), lambda a: a * np.float32(5), lambda a: a * 0])
def test_statistics_bound_the_sqnr_from_above(change):
    wrong = change(VALUES)
    exact = 10 * math.log10(float((VALUES.astype(float) ** 2).sum() / ((VALUES.astype(float) - wrong) ** 2).sum()))
    found = compare_pair(record(VALUES, "stats"), record(wrong, "stats"), pair())
    assert found.stats is None
    assert exact <= found.sqnr_at_most + 1e-6
    assert found.sqnr_at_most < 20
    assert "at most" in found.reason


def test_a_bound_holds_for_any_two_tensors():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        one = rng.standard_normal(200) * rng.uniform(0.1, 9)
        other = one * rng.uniform(0.5, 1.5) + rng.standard_normal(200) * rng.uniform(0, 3) + rng.uniform(-1, 1)
        exact = 10 * math.log10(float((one**2).sum() / ((one - other) ** 2).sum()))
        found = compare_pair(record(one, "stats"), record(other, "stats"), pair())
        assert found.sqnr_at_most is None or exact <= found.sqnr_at_most + 1e-6


def test_statistics_that_agree_prove_nothing():
    found = compare_pair(record(VALUES, "stats"), record(VALUES[..., ::-1].copy(), "stats"), pair())
    assert (found.stats, found.sqnr_at_most) == (None, None)
    assert "cannot prove" in found.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_give_no_bound(bad):
    wrong = VALUES.copy()
    wrong[0, 0, 0, 0] = bad
    found = compare_pair(record(VALUES, "stats"), record(wrong, "stats"), pair())
    assert (found.stats, found.sqnr_at_most) == (None, None)


def test_a_clamp_takes_the_bound_away():
    found = compare_pair(
        record(VALUES, "stats"), record(np.maximum(VALUES, 0), "stats"), pair(reference_view=Transform(clamp_low=0.0))
    )
    assert (found.stats, found.sqnr_at_most) == (None, None)


def test_full_against_statistics():
    found = compare_pair(record(VALUES), record(VALUES + np.float32(9), "stats"), pair())
    assert found.sqnr_at_most < 0
    assert compare_pair(record(VALUES), record(VALUES, "stats"), pair()).stats is None


def test_nothing_on_one_side():
    assert compare_partly(record(VALUES, "y=none"), record(VALUES, "stats"), pair()) is None


def test_samples_kept_in_full_and_elements_of_the_others_are_compared():
    arrays = [VALUES, VALUES + 1, VALUES]
    other = [array.copy() for array in arrays]
    other[0][0, 0, 0, 3] += 0.25
    peak = np.unravel_index(np.abs(arrays[1]).argmax(), VALUES.shape)
    other[1][peak] *= 9
    with Recorder(None, backend="b", max_bytes=VALUES.nbytes + 100) as rec:
        for sample, array in enumerate(other):
            rec.at(sample)
            rec.put("y", array)
    backend = rec.recording
    found = compare_pair(record(arrays), backend, pair())
    kept = [backend.kept("y", sample).positions.size for sample in (1, 2)]
    assert (found.basis, found.lacking, found.known_equal) == ("elements", False, False)
    assert [each.stats.count for each in found.samples] == [VALUES.size, *kept]
    assert [each.stats.mismatches for each in found.samples] == [1, 1, 0]
    assert (found.stats.count, found.stats.mismatches) == (VALUES.size + sum(kept), 2)
    assert (found.stats.worst_sample, found.stats.worst_index) == (1, tuple(map(int, peak)))
    said = f"compared 1 of 3 samples and {sum(kept)} of {2 * VALUES.size} elements of 2 more"
    assert found.note == said


class TestDiff:
    def diff(self, one, other):
        return qdebug.diff(one, other)

    def test_statistics_that_prove_a_divergence(self):
        result = self.diff(record(VALUES, "stats"), record(VALUES * 3, "stats"))
        (node,) = [each for each in result.nodes if each.tensor == "y"]
        assert (node.status, node.basis, node.metrics) == ("diverged", "stats", None)
        assert result.status == "diverged"
        assert "SQNR is at most" in node.reason

    def test_statistics_that_prove_nothing(self):
        noise = VALUES + np.float32(1e-3) * RNG.standard_normal(VALUES.shape).astype(np.float32)
        result = self.diff(record(VALUES, "stats"), record(noise, "stats"))
        (node,) = [each for each in result.nodes if each.tensor == "y"]
        assert (node.status, result.status) == ("incomparable", "incomplete")

    def test_elements(self):
        noise = VALUES + np.float32(1e-4) * RNG.standard_normal(VALUES.shape).astype(np.float32)
        result = self.diff(record(VALUES, "elements:300"), record(noise, "elements:300"))
        (node,) = [each for each in result.nodes if each.tensor == "y"]
        assert (node.status, node.basis, node.introduced) == ("within", "elements", None)
        assert "elements kept in both runs" in result.verdict.sentence
        assert '"basis": "elements"' in result.to_json()

    def test_elements_that_are_equal_do_not_make_the_tensor_identical(self):
        wrong = VALUES.copy()
        wrong.reshape(-1)[np.setdiff1d(np.arange(99), record(VALUES, "elements:9").kept("y").positions)[0]] += 1e-4
        result = self.diff(record(VALUES, "elements:9"), record(wrong, "elements:9"))
        (node,) = [each for each in result.nodes if each.tensor == "y"]
        assert node.status == "within"
        same = self.diff(record(VALUES, "elements:9"), record(VALUES, "elements:9"))
        assert same.status == "identical"


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "keeps", [("elements:64", "elements:64"), ("stats", "stats"), (None, "stats"), ("stats", "elements:64")]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_not_finite_is_not_hidden_by_not_being_kept_on_both_sides(value, keeps, swapped):
    wrong = [VALUES, VALUES.copy()]
    wrong[1][0, 0, 0, 1] = value
    recordings = record([VALUES, VALUES], keeps[0]), record(wrong, keeps[1])
    reference, backend = reversed(recordings) if swapped else recordings
    result = qdebug.diff(reference, backend)
    node = next(node for node in result.nodes if node.tensor == "y")
    assert (result.status, node.status) == ("nonfinite", "nonfinite")
    assert "at least 1 element is NaN or infinite in one run only" in node.reason


def test_as_many_nan_on_both_sides_prove_nothing():
    one, other = VALUES.copy(), VALUES.copy() * 2
    one[0, 0, 0, 1] = other[0, 0, 0, 1] = np.nan
    found = compare_pair(record(one, "stats"), record(other, "stats"), pair())
    assert found.nonfinite == 0


def bounded(arrays):
    """Record samples of which the first alone is kept in full."""
    with Recorder(None, backend="b", max_bytes=VALUES.nbytes + 100) as rec:
        for sample, each in enumerate(arrays):
            rec.at(sample)
            rec.put("y", each, node="n", op="Custom")
    return rec.recording


def test_samples_of_which_not_all_was_kept_are_not_passed_over_in_silence():
    result = qdebug.diff(bounded([VALUES] * 3), bounded([VALUES, VALUES * 5, VALUES]))
    assert result.status == "diverged"
    (node,) = (each for each in result.nodes if each.tensor == "y")
    assert (node.basis, node.metrics.worst_sample, node.introduced) == ("elements", 1, None)
    assert qdebug.diff(bounded([VALUES] * 3), bounded([VALUES] * 3)).status == "identical"
    nearly = VALUES.copy()
    nearly.reshape(-1)[np.setdiff1d(np.arange(VALUES.size), bounded([VALUES] * 2).kept("y", 1).positions)[0]] += 1e-4
    assert qdebug.diff(bounded([VALUES] * 2), bounded([VALUES, nearly])).status == "within"
    wrong = VALUES.copy()
    wrong[0, 0, 0, 0] = np.nan
    assert qdebug.diff(bounded([VALUES] * 2), bounded([VALUES, wrong])).status == "nonfinite"


@pytest.mark.parametrize("keep", ["stats", "elements:64"])
def test_samples_that_one_side_has_nothing_of_are_named(keep):
    """They are where values are kept in full, and no less where they are not."""
    result = qdebug.diff(record([VALUES] * 3, keep), record([VALUES] * 2, keep))
    assert result.status == "incomplete"
    assert "the backend has no values for 1 of 3 samples (tensor 'y')" in result.verdict.sentence
    assert qdebug.diff(record([VALUES] * 2, keep), record([VALUES] * 2, keep)).status == "identical"


def test_a_sample_of_which_some_steps_are_kept_in_full():
    def stepwise(arrays):
        with Recorder(None, backend="b", max_bytes=VALUES.nbytes + 100) as rec:
            for step, array in enumerate(arrays):
                rec.at(0, step)
                rec.put("y", array)
        return rec.recording

    found = compare_pair(stepwise([VALUES, VALUES, VALUES]), stepwise([VALUES, VALUES, VALUES * 2]), pair())
    kept = stepwise([VALUES] * 3).kept("y", 0, 1).positions.size
    (sample,) = found.samples
    assert (found.basis, sample.stats.count) == ("elements", VALUES.size + 2 * kept)
    assert (sample.stats.worst_index, found.stats.worst_sample) == (None, 0)
    assert "and" in found.note
    assert "steps of all samples" in found.note


def test_statistics_beside_full_samples_are_said_to_be_passed_over():
    def mixed(keep):
        with Recorder(None, backend="b", keep=keep) as rec:
            for sample in range(2):
                rec.at(sample)
                rec.put("y", VALUES[..., : 4 + sample])
        return rec.recording

    found = compare_pair(mixed(None), mixed(f">{VALUES[..., :4].nbytes}=stats"), pair())
    assert (found.basis, found.lacking) == ("full", True)
    assert found.note == "compared 1 of 2 samples: only part was kept for 1"


def test_what_is_only_known_to_be_equal_has_the_metrics_of_equal_tensors():
    """Of extremes, zeros and places nothing is known; a new metric is 0 for equal tensors, or joins these."""
    array = np.linspace(1, 2, 16, dtype=np.float32)
    measured = ErrorAccumulator()
    measured.update(array, array, sample=0)
    said, right = asdict(partial._zero_error(16)), asdict(measured.stats())
    unknown = {"cosine", "worst_index", "worst_sample", "reference_min", "reference_max", "backend_min", "backend_max"}
    assert {name: said[name] for name in said if name not in unknown} == {
        name: right[name] for name in right if name not in unknown
    }
    assert {said[name] for name in unknown} == {None}
