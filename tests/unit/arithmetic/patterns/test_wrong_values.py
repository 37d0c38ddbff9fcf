"""What wrong codes hold: each figure that a trait shows, and where it stops being one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.arithmetic.patterns import wrong_values
from qdebug.arithmetic.patterns.wrong_evidence import Evidence
from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.arithmetic.patterns.wrong_values import (
    _clamp,
    _Codes,
    _growing,
    _inside,
    _mean_errors,
    _neighbours,
    _one_code,
    _outranks,
    _part,
    _shifts,
    _slight,
    _spread,
    _stale,
    _ties,
    _wrapped,
    constants,
    factors,
)
from qdebug.model.thresholds.patterns import ONE_CODE_MIN_EXPECTED, STALE_DISTANCES

NCHW, FLAT = Layout(channel=0, spatial=(1, 2)), Layout()


def random_codes(shape=(2, 4, 12, 16), low=-90, high=90):
    return np.random.default_rng(0).integers(low, high + 1, shape).astype(np.int8)


def evidence_of(expected, recorded, layout=FLAT, **facts):
    kept = facts.pop("dtype", np.int8)
    arrays = (np.asarray(codes, kept) for codes in (expected, recorded))
    return Evidence(**dict(zip(("expected", "recorded"), arrays, strict=True)), layout=layout, **facts)


def said(traits):
    return [trait.detail for trait in traits]


@pytest.mark.parametrize(
    ("by", "detail"),
    [
        (1, "every element is off by 1 code"),
        (-1, "every element is off by 1 code"),
        (3, "every element is off by 3 codes"),
        (np.arange(16) % 2, "every element is off by 0.5 codes on average"),
        (2 + np.arange(16) % 2, "every element is off by 2.5 codes on average"),
        (np.arange(1, 5)[:, None, None], "a constant in each channel, of 1 to 4 codes"),
        (np.array([0, 2, 2, 0])[:, None, None], "a constant in 2 of 4 channels, of 2 codes"),
        (np.array([0, 2, 5, 0])[:, None, None], "a constant in 2 of 4 channels, of 2 to 5 codes"),
        (np.arange(16) % 3, None),  # errors of 0 to 2 codes are no constant
        (np.arange(16) % 3 - 1, None),  # nor are those of both signs
    ],
)
def test_a_constant_is_said_in_codes(by, detail):
    expected = random_codes()
    details = said(constants(evidence_of(expected, expected + by, NCHW)))
    assert details == ([] if detail is None else [detail])


def test_a_channel_that_saturates_throughout_is_no_evidence_against_a_constant():
    expected = random_codes()
    expected[:, 1] = 127
    recorded = np.where(np.arange(4)[:, None, None] == 1, 120, expected + 2)
    evidence = evidence_of(expected, recorded, NCHW)
    assert _shifts(evidence, slice(None)) == [2, 2, 2]


@pytest.mark.parametrize(("free", "shifts"), [(3, [1.0]), (4, [1.0, 1.0])])
def test_a_channel_tells_a_constant_by_a_few_codes_that_nothing_cuts_off(free, shifts):
    expected = np.full((1, 2, 2, 4), 127)
    expected[0, 0] = 5
    expected[0, 1].flat[:free] = 5
    recorded = np.where(expected == 127, 120, expected + 1)
    assert _shifts(evidence_of(expected, recorded, NCHW), slice(None)) == shifts


@pytest.mark.parametrize(("slightly", "told"), [(1, True), (2, False)])
def test_channels_with_hardly_a_wrong_element_are_no_more_than_those_with_a_constant(slightly, told):
    expected = random_codes((1, 4, 10, 10))
    recorded = expected.copy()
    recorded[0, 0] += 2
    recorded[0, 1 : 1 + slightly, 0, 0] += 1
    assert _shifts(evidence_of(expected, recorded, NCHW), slice(None)) == (
        [2.0, *[0.0] * (3 - slightly)] if told else None
    )


def test_the_inside_is_what_lies_away_from_every_border():
    codes = random_codes((2, 3, 5, 6))
    rows, columns = np.indices(codes.shape)[2:]
    away = (rows > 0) & (rows < 4) & (columns > 0) & (columns < 5)
    np.testing.assert_array_equal(codes[_inside(evidence_of(codes, codes, NCHW))].ravel(), codes[away])
    assert _inside(evidence_of(codes[:, :, :4], codes[:, :, :4], NCHW)) is None
    assert _inside(evidence_of(codes, codes, Layout(channel=0))) is None


def test_errors_are_averaged_near_the_zero_point_and_far_from_it():
    """Codes 1 to 4 steps from it, off by 1, 2, 3 and 6; one more is cut off and does not count."""
    evidence = evidence_of([[11, 8, 13, 6, 127]], [[12, 10, 10, 12, 90]], zero_point=10)
    assert _mean_errors(evidence, slice(None)) == (1.5, 4.5)
    assert _mean_errors(evidence_of([[12, 8]], [[13, 8]], zero_point=10), slice(None)) == (1.0, 1.0)


@pytest.mark.parametrize("zero", [0, 9])
@pytest.mark.parametrize(
    ("factor", "shown"), [(0.75, "0.75"), (1.0123456, "1.012"), (1.0004567, "1.000457"), (0.9, "0.9"), (1.5, "1.5")]
)
def test_a_factor_is_shown_with_as_many_digits_as_tell_it_from_1(factor, shown, zero):
    centred = np.random.default_rng(1).integers(-15000, 15000, (2, 2000))
    facts = {"zero_point": zero, "span": (-(2**15), 2**15 - 1), "dtype": np.int16}
    evidence = evidence_of(centred + zero, np.rint(centred * factor) + zero, **facts)
    (trait,) = factors(evidence)
    assert trait.pattern == "factor"
    told = float(trait.detail.removeprefix("the elements are ").split()[0])
    assert told == pytest.approx(float(shown), abs=2e-6)
    assert len(trait.detail.split()[3]) == len(shown)


def test_factors_of_channels_are_shown_from_the_least_to_the_largest():
    expected = random_codes(low=-25, high=25) * 2
    scaled = np.rint(expected * np.array([0.5, 2.0, 1.0, 1.5])[:, None, None])
    assert said(factors(evidence_of(expected, scaled, NCHW))) == [
        "each channel is a constant times what it should be, 0.5 to 2"
    ]
    scaled[0, 3] = random_codes()[0, 0]  # one channel that is no factor
    assert said(factors(evidence_of(expected, scaled, NCHW))) == []


@pytest.mark.parametrize(
    ("expected", "recorded", "factor"),
    [
        ([4, 4, 4, 4], [2, 2, 2, 2], 0.5),
        ([4, 4, 4], [2, 2, 2], None),  # too few
        ([3, 3, 3, 3], [6, 6, 6, 6], None),  # too small
        ([4, -4, 4, 4], [-2, 2, -2, -2], None),  # turned around
        ([10, 10, 10, 10], [10, 10, 10, 12], None),  # 10.5 is one code from 12
        ([10, 10, 10, 10], [10, 10, 10, 11], 1.025),
    ],
)
def test_a_factor_accounts_for_all_but_rounding(expected, recorded, factor):
    arrays = np.array(expected) + 7, np.array(recorded) + 7, np.ones(len(expected), bool)
    assert _Codes(arrays, 7).factor() == factor


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=12), st.integers(-3, 3), st.booleans())
def test_the_median_is_that_of_the_magnitudes(values, zero, wide):
    codes = np.array(values) * (1000 if wide else 1) + zero
    median = _Codes((codes, codes, np.ones(codes.size, bool)), zero)._median_size()
    assert median == np.median(np.abs(codes - zero))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_a_value_outranks_another_as_often_as_pairs_say(high, low):
    pairs = [(h > l) + (h == l) / 2 for h in high for l in low]  # noqa: E741
    assert _outranks(np.array([high]), np.array([low])) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(("size", "kept"), [(4, [0, 1, 2, 3]), (5, [0, 1, 2, 4]), (10, [0, 3, 6, 9])])
def test_values_that_are_ranked_reach_from_the_first_to_the_last(monkeypatch, size, kept):
    monkeypatch.setattr(wrong_values, "RANKED_MAX_ELEMENTS", 4)
    assert _spread(np.arange(size)).tolist() == kept


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [(-50, 70, "below -50 and above 70"), (-90, 70, "above 70"), (-50, 90, "below -50"), (-90, 90, None)],
)
def test_a_clamp_names_the_bounds_that_hold_something(low, high, bounds):
    expected = random_codes()
    clipped = np.clip(expected, low, high)
    for pair, way in (((expected, clipped), "too narrow"), ((clipped, expected), "not applied")):
        held = [] if bounds is None else [f"a clamp of the codes {bounds} is {way}"]
        assert said(_clamp(evidence_of(*pair))) == held


def test_codes_beyond_a_clamp_that_hold_anything_are_not_clamped():
    expected = random_codes()
    recorded = np.clip(expected, -50, 70)
    recorded[expected > 70] = 69
    recorded[expected == 70] = 70
    assert said(_clamp(evidence_of(expected, recorded))) == []


@pytest.mark.parametrize(
    ("code", "said_of_it"),
    [(127, " (the highest code)"), (-128, " (the lowest code)"), (4, " (the zero point)"), (5, "")],
)
def test_one_code_is_named_by_what_it_stands_for(code, said_of_it):
    evidence = evidence_of(random_codes(), np.full_like(random_codes(), code), zero_point=4)
    assert said(_one_code(evidence)) == [f"every element holds {code}{said_of_it}"]


@pytest.mark.parametrize("many", [ONE_CODE_MIN_EXPECTED - 1, ONE_CODE_MIN_EXPECTED])
def test_one_code_counts_where_several_are_expected(many):
    evidence = evidence_of([np.arange(20) % many], [[9] * 20])
    assert bool(said(_one_code(evidence))) == (many == ONE_CODE_MIN_EXPECTED)


@pytest.mark.parametrize(("error", "wraps"), [(127, False), (128, True)])
def test_codes_wrap_around_by_more_than_half_the_range(error, wraps):
    expected = random_codes((1, 400), -60, 60)
    expected[0, :20] = 127
    recorded = expected.copy()
    recorded[0, :20] = 127 - error
    details = said(_wrapped(evidence_of(expected, recorded)))
    assert details == (["20 elements beyond the range hold codes of its other end"] if wraps else [])
    recorded[0, 30] += 2  # off by more than one elsewhere
    assert said(_wrapped(evidence_of(expected, recorded))) == []


@pytest.mark.parametrize(("right", "wraps"), [(0, True), (1, True), (2, False)])
def test_hardly_a_saturated_code_is_right_where_they_wrap_around(right, wraps):
    expected = random_codes((1, 400), -60, 60)
    expected[0, : 20 + right] = 127
    recorded = expected.copy()
    recorded[0, :20] = -128
    assert bool(said(_wrapped(evidence_of(expected, recorded)))) == wraps


@pytest.mark.parametrize("distance", [-3, -1, 1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_comes_in_at_the_other_end_is_that_part(axis, distance):
    places = np.indices((7, 8))[axis]
    filled = np.abs(np.roll(places, distance, axis) - places) != abs(distance)
    part = np.zeros((7, 8), bool)
    part[_part(axis, distance, 2)] = True
    np.testing.assert_array_equal(part, filled)


def test_neighbours_lie_along_the_axes_that_there_are():
    assert list(_neighbours(NCHW, 4)) == [(2, "row"), (3, "column"), (1, "channel"), (0, "sample")]
    assert list(_neighbours(Layout(channel=1, spatial=(0,)), 3)) == [(1, "position"), (2, "channel"), (0, "sample")]
    assert list(_neighbours(FLAT, 0)) == []


@pytest.mark.parametrize("distance", sorted({min(STALE_DISTANCES, key=abs), -1, 2} & set(STALE_DISTANCES)))
def test_stale_values_say_how_far_away_they_belong(distance):
    expected = random_codes((2, 4, 12, 16))
    recorded = expected.copy()
    recorded[:, :, 4:8] = np.roll(expected, distance, axis=2)[:, :, 4:8]
    plural, way = "s" if abs(distance) > 1 else "", "before" if distance > 0 else "after"
    assert said(_stale(evidence_of(expected, recorded, NCHW))) == [
        f"the wrong elements hold the values of {abs(distance)} row{plural} {way}"
    ]


def test_elements_that_hold_one_code_where_one_is_expected_are_not_called_unwritten():
    expected = random_codes((1, 600), -60, 60)
    expected[0, :30] = 77
    recorded = expected.copy()
    recorded[0, :30] = -5
    assert said(_stale(evidence_of(expected, recorded))) == []
    expected[0, 0] = 78
    assert said(_stale(evidence_of(expected, recorded))) == ["the wrong elements all hold -5"]


def test_a_tie_elsewhere_or_none_near_a_wrong_element_is_no_rounding_of_ties():
    expected = random_codes((1, 1000))
    recorded, distance = expected.copy(), np.full((1, 1000), 0.3)
    recorded[0, :9] += 1
    distance[0, :9] = 0.0
    assert len(said(_ties(evidence_of(expected, recorded, distance=distance)))) == 1
    distance[0, 8] = 0.3
    assert said(_ties(evidence_of(expected, recorded, distance=distance))) == []
    recorded[0, 8] -= 1
    assert len(said(_ties(evidence_of(expected, recorded, distance=distance)))) == 1
    recorded[0, 0] += 1
    assert said(_ties(evidence_of(expected, recorded, distance=distance))) == []


@pytest.mark.parametrize(("by", "pattern"), [(1, []), (2, ["growing"])])
def test_errors_grow_only_if_they_are_more_than_slight_and_some_elements_are_right(by, pattern):
    sums = np.arange(1000.0)[None]
    expected = random_codes((1, 1000))
    recorded = np.where(sums >= 900, expected + by, expected)
    assert [trait.pattern for trait in _growing(evidence_of(expected, recorded, sums=sums))] == pattern
    assert list(_growing(evidence_of(expected, expected + by, sums=sums))) == []
    assert list(_growing(evidence_of(expected, recorded))) == []


def test_right_elements_that_lie_closer_to_a_tie_are_counted():
    expected = np.full((1, 100), 40)
    recorded = expected.copy()
    recorded[0, 0] += 1
    distance = np.where(np.arange(100) < 41, 0.2, 0.4)[None]
    details = said(_slight(evidence_of(expected, recorded, distance=distance)))
    assert details == ["off by one code, while 40 right elements lie closer to a tie and are as large"]
    evidence = evidence_of(expected, recorded, distance=distance, zero_point=50)
    assert said(_slight(evidence)) == details
    expected[0, 1:] = recorded[0, 1:] = 39
    evidence = evidence_of(expected, recorded, distance=distance, zero_point=50)
    assert said(_slight(evidence)) == details  # further from the zero point
    # Smaller ones would not change sooner.
    assert said(_slight(evidence_of(expected, recorded, distance=distance))) == ["off by one code"]
    recorded[0, 0] += 1
    assert said(_slight(evidence_of(expected, recorded, distance=distance))) == []
