"""What wrong codes hold: each figure that a trait shows, and where it stops being one."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.arithmetic.patterns import wrong_values
from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor
from qdebug.arithmetic.patterns.wrong_places import Layout
from qdebug.arithmetic.patterns.wrong_values import (
    _axes_of_neighbours,
    _CenteredCodes,
    _clamp,
    _errors_near_ties,
    _errors_of_one,
    _growing_errors,
    _index_away_from_borders,
    _index_of_wrapped,
    _is_shift,
    _mean_error_of_channels,
    _mean_errors,
    _probability_above,
    _single_code,
    _stale_codes,
    _thin_out,
    _wrapped_codes,
    constants,
    factors,
)
from qdebug.model.thresholds.patterns import ONE_CODE_MIN_EXPECTED, STALE_DISTANCES, TIE_MAX_DISTANCE
from qdebug.numerics.checkpoint import calling_at_checkpoints

NCHW, FLAT = Layout(channel=0, spatial=(1, 2)), Layout()


def random_codes(shape=(2, 4, 12, 16), low=-90, high=90):
    return np.random.default_rng(0).integers(low, high + 1, shape).astype(np.int8)


def evidence_of(expected, recorded, layout=FLAT, **facts):
    kept = facts.pop("dtype", np.int8)
    arrays = (np.asarray(codes, kept) for codes in (expected, recorded))
    return CodesOfTensor(**dict(zip(("expected", "recorded"), arrays, strict=True)), layout=layout, **facts)


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
    assert _mean_error_of_channels(evidence, slice(None)) == [2, 2, 2]


@pytest.mark.parametrize(("free", "shifts"), [(3, [1.0]), (4, [1.0, 1.0])])
def test_a_channel_tells_a_constant_by_a_few_codes_that_nothing_cuts_off(free, shifts):
    expected = np.full((1, 2, 2, 4), 127)
    expected[0, 0] = 5
    expected[0, 1].flat[:free] = 5
    recorded = np.where(expected == 127, 120, expected + 1)
    assert _mean_error_of_channels(evidence_of(expected, recorded, NCHW), slice(None)) == shifts


@pytest.mark.parametrize(("slightly", "told"), [(1, True), (2, False)])
def test_channels_with_hardly_a_wrong_element_are_no_more_than_those_with_a_constant(slightly, told):
    expected = random_codes((1, 4, 10, 10))
    recorded = expected.copy()
    recorded[0, 0] += 2
    recorded[0, 1 : 1 + slightly, 0, 0] += 1
    assert _mean_error_of_channels(evidence_of(expected, recorded, NCHW), slice(None)) == (
        [2.0, *[0.0] * (3 - slightly)] if told else None
    )


def test_the_inside_is_what_lies_away_from_every_border():
    codes = random_codes((2, 3, 5, 6))
    rows, columns = np.indices(codes.shape)[2:]
    away = (rows > 0) & (rows < 4) & (columns > 0) & (columns < 5)
    np.testing.assert_array_equal(codes[_index_away_from_borders(evidence_of(codes, codes, NCHW))].ravel(), codes[away])
    assert _index_away_from_borders(evidence_of(codes[:, :, :4], codes[:, :, :4], NCHW)) is None
    assert _index_away_from_borders(evidence_of(codes, codes, Layout(channel=0))) is None


def test_errors_are_averaged_near_the_zero_point_and_far_from_it():
    """Codes 1 to 4 steps from it, off by 1, 2, 3 and 6; one more is cut off and does not count."""
    evidence = evidence_of([[11, 8, 13, 6, 127]], [[12, 10, 10, 12, 90]], zero_point=10)
    assert _mean_errors(evidence, slice(None)) == (1.5, 4.5)
    odd = evidence_of([[11, 8, 13]], [[12, 10, 10]], zero_point=10)  # the one in the middle is near
    assert _mean_errors(odd, slice(None)) == (1.5, 3.0)
    assert _mean_errors(evidence_of([[127, 127]], [[12, 10]]), slice(None)) == (1.0, 1.0)
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
        ([50, 50, 50, 50], [1, 1, 1, 1], 0.02),
        ([51, 51, 51, 51], [1, 1, 1, 1], None),  # nothing is left of them
        ([10] * 100, [10] * 99 + [30], 1.02),  # one of a hundred may saturate on the way
        ([10] * 100, [10] * 98 + [30] * 2, None),
        ([10] * 100, [10] * 94 + [11] * 3 + [9] * 3, 1.0),  # a half here and a half there, and float64's roundings
    ],
)
def test_a_factor_accounts_for_all_but_rounding(expected, recorded, factor):
    arrays = np.array(expected) + 7, np.array(recorded) + 7, np.ones(len(expected), bool)
    assert _CenteredCodes(arrays, 7).factor() == factor


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=12), st.integers(-3, 3), st.booleans())
def test_the_median_is_that_of_the_magnitudes(values, zero, wide):
    codes = np.array(values) * (1000 if wide else 1) + zero
    median = _CenteredCodes((codes, codes, np.ones(codes.size, bool)), zero)._median_size()
    assert median == np.median(np.abs(codes - zero))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_a_value_outranks_another_as_often_as_pairs_say(high, low):
    pairs = [(h > l) + (h == l) / 2 for h in high for l in low]  # noqa: E741
    assert _probability_above(np.array([high]), np.array([low])) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(("size", "kept"), [(4, [0, 1, 2, 3]), (5, [0, 1, 2, 4]), (10, [0, 3, 6, 9])])
def test_values_that_are_ranked_reach_from_the_first_to_the_last(monkeypatch, size, kept):
    monkeypatch.setattr(wrong_values, "RANKED_MAX_ELEMENTS", 4)
    assert _thin_out(np.arange(size)).tolist() == kept


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
    recorded[expected > 70] = 60
    recorded[expected == 70] = 70
    assert said(_clamp(evidence_of(expected, recorded))) == []


@pytest.mark.parametrize(
    ("code", "said_of_it"),
    [(127, " (the highest code)"), (-128, " (the lowest code)"), (4, " (the zero point)"), (5, "")],
)
def test_one_code_is_named_by_what_it_stands_for(code, said_of_it):
    evidence = evidence_of(random_codes(), np.full_like(random_codes(), code), zero_point=4)
    assert said(_single_code(evidence)) == [f"every element is {code}{said_of_it}"]


@pytest.mark.parametrize("many", [ONE_CODE_MIN_EXPECTED - 1, ONE_CODE_MIN_EXPECTED])
def test_one_code_counts_where_several_are_expected(many):
    evidence = evidence_of([np.arange(20) % many], [[9] * 20])
    assert bool(said(_single_code(evidence))) == (many == ONE_CODE_MIN_EXPECTED)


@pytest.mark.parametrize(("error", "wraps"), [(127, False), (128, True)])
def test_codes_wrap_around_by_more_than_half_the_range(error, wraps):
    expected = random_codes((1, 400), -60, 60)
    expected[0, :20] = 127
    recorded = expected.copy()
    recorded[0, :20] = 127 - error
    details = said(_wrapped_codes(evidence_of(expected, recorded)))
    assert details == (["20 elements beyond the range have codes of the opposite end"] if wraps else [])
    recorded[0, 30] += 2  # off by more than one elsewhere
    assert said(_wrapped_codes(evidence_of(expected, recorded))) == []


@pytest.mark.parametrize(("right", "wraps"), [(0, True), (1, True), (2, False)])
def test_hardly_a_saturated_code_is_right_where_they_wrap_around(right, wraps):
    expected = random_codes((1, 400), -60, 60)
    expected[0, : 20 + right] = 127
    recorded = expected.copy()
    recorded[0, :20] = -128
    assert bool(said(_wrapped_codes(evidence_of(expected, recorded)))) == wraps


@pytest.mark.parametrize("distance", [-3, -1, 1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_comes_in_at_the_other_end_is_that_part(axis, distance):
    places = np.indices((7, 8))[axis]
    filled = np.abs(np.roll(places, distance, axis) - places) != abs(distance)
    part = np.zeros((7, 8), bool)
    part[_index_of_wrapped(axis, distance, 2)] = True
    np.testing.assert_array_equal(part, filled)


def test_neighbours_lie_along_the_axes_that_there_are():
    assert list(_axes_of_neighbours(NCHW, 4)) == [(2, "row"), (3, "column"), (1, "channel"), (0, "sample")]
    assert list(_axes_of_neighbours(Layout(channel=1, spatial=(0,)), 3)) == [
        (1, "position"),
        (2, "channel"),
        (0, "sample"),
    ]
    assert list(_axes_of_neighbours(FLAT, 0)) == []


@pytest.mark.parametrize("distance", sorted({min(STALE_DISTANCES, key=abs), -1, 2} & set(STALE_DISTANCES)))
def test_stale_values_say_how_far_away_they_belong(distance):
    expected = random_codes((2, 4, 12, 16))
    recorded = expected.copy()
    recorded[:, :, 4:8] = np.roll(expected, distance, axis=2)[:, :, 4:8]
    plural, way = "s" if abs(distance) > 1 else "", "before" if distance > 0 else "after"
    assert said(_stale_codes(evidence_of(expected, recorded, NCHW))) == [
        f"the wrong elements have the values of {abs(distance)} row{plural} {way}"
    ]


def test_elements_that_hold_one_code_where_one_is_expected_are_not_called_unwritten():
    expected = random_codes((1, 600), -60, 60)
    expected[0, :30] = 77
    recorded = expected.copy()
    recorded[0, :30] = -5
    assert said(_stale_codes(evidence_of(expected, recorded))) == []
    expected[0, 0] = 78
    assert said(_stale_codes(evidence_of(expected, recorded))) == ["the wrong elements are all -5"]


def test_a_tie_elsewhere_or_none_near_a_wrong_element_is_no_rounding_of_ties():
    expected = random_codes((1, 1000))
    recorded, distance = expected.copy(), np.full((1, 1000), 0.3)
    recorded[0, :9] += 1
    distance[0, :9] = 0.0
    assert len(said(_errors_near_ties(evidence_of(expected, recorded, distance=distance)))) == 1
    distance[0, 8] = 0.3
    assert said(_errors_near_ties(evidence_of(expected, recorded, distance=distance))) == []
    recorded[0, 8] -= 1
    assert len(said(_errors_near_ties(evidence_of(expected, recorded, distance=distance)))) == 1
    recorded[0, 0] += 1
    assert said(_errors_near_ties(evidence_of(expected, recorded, distance=distance))) == []


@pytest.mark.parametrize(("by", "pattern"), [(1, []), (2, ["growing"])])
def test_errors_grow_only_if_they_are_more_than_slight_and_some_elements_are_right(by, pattern):
    sums = np.arange(1000.0)[None]
    expected = random_codes((1, 1000))
    recorded = np.where(sums >= 900, expected + by, expected)
    assert [trait.pattern for trait in _growing_errors(evidence_of(expected, recorded, sums=sums))] == pattern
    assert list(_growing_errors(evidence_of(expected, expected + by, sums=sums))) == []
    assert list(_growing_errors(evidence_of(expected, recorded))) == []


def test_elements_that_are_right_by_chance_do_not_tell_that_errors_grow_with_the_sums():
    rng = np.random.default_rng(5)
    expected = np.where(rng.random((1, 1000)) < 0.8, 0, rng.integers(-90, 90, (1, 1000)))
    exchanged = rng.permutation(expected[0])[None]
    assert list(_growing_errors(evidence_of(expected, exchanged, sums=np.abs(expected.astype(float))))) == []


def test_right_elements_that_lie_closer_to_a_tie_are_counted():
    expected = np.full((1, 100), 40)
    recorded = expected.copy()
    recorded[0, 0] += 1
    distance = np.where(np.arange(100) < 41, 0.2, 0.4)[None]
    details = said(_errors_of_one(evidence_of(expected, recorded, distance=distance)))
    assert details == ["off by one code, while 40 right elements lie closer to a tie and are as large"]
    evidence = evidence_of(expected, recorded, distance=distance, zero_point=50)
    assert said(_errors_of_one(evidence)) == details
    expected[0, 1:] = recorded[0, 1:] = 39
    evidence = evidence_of(expected, recorded, distance=distance, zero_point=50)
    assert said(_errors_of_one(evidence)) == details  # further from the zero point
    # Smaller ones would not change sooner.
    assert said(_errors_of_one(evidence_of(expected, recorded, distance=distance))) == ["off by one code"]
    recorded[0, 0] += 1
    assert said(_errors_of_one(evidence_of(expected, recorded, distance=distance))) == []


def shifted(wrong, total, by=1):
    """Return a channel of a few codes, and what it holds where some are off."""
    expected = np.arange(total) % 40 - 20
    return expected, expected + by * (np.arange(total) < wrong)


@pytest.mark.parametrize(("wrong", "shifts"), [(2, [5.0, 0.0]), (3, [5.0, 0.03])])
def test_a_channel_is_shifted_by_part_of_a_step_from_three_in_a_hundred_on(wrong, shifts):
    expected, recorded = shifted(wrong, 100)
    codes = np.stack([expected, expected])[None], np.stack([expected + 5, recorded])[None]
    found = _mean_error_of_channels(evidence_of(*codes, Layout(channel=0)), slice(None))
    assert [shift for shift in found if shift] == [shift for shift in shifts if shift]


@pytest.mark.parametrize(
    ("many", "detail"),
    [
        ((20, 20), "every element is off by 0.2 codes on average"),
        ((19, 20), "every element is off by 0.195 codes on average"),
        ((10, 20), "a constant in each channel, of 0.1 to 0.2 codes"),  # a tenth apart
    ],
)
def test_shifts_that_differ_by_less_than_a_tenth_of_a_code_are_one(many, detail):
    pairs = [shifted(wrong, 100) for wrong in many]
    codes = (np.stack([np.roll(pair[at], 7) for pair in pairs])[None] for at in (0, 1))
    evidence = evidence_of(*codes, Layout(channel=0))
    flat = "qdebug.arithmetic.patterns.wrong_values._mean_errors"
    with mock.patch(flat, return_value=(1.0, 1.0)):
        assert said(constants(evidence)) == [detail]


@pytest.mark.parametrize(("elements", "told"), [(7, []), (8, ["a constant in 1 of 4 channels, of 1 code"])])
def test_a_constant_in_one_of_four_channels_takes_eight_elements(elements, told):
    expected = random_codes((1, 4, elements, 1))
    recorded = expected.copy()
    recorded[:, 2] += 1
    assert said(constants(evidence_of(expected, recorded, NCHW))) == told


@pytest.mark.parametrize(
    ("near", "far", "shift"),
    [
        ([1] * 3 + [0], [1] * 4, True),  # errors of small codes are three quarters of those of large ones
        ([1] * 2 + [0] * 2, [1] * 4, False),
        ([1] * 4, [1] * 2 + [0] * 2, False),  # and the other way round
        ([1] * 2 + [0] * 2, [2] + [1] * 3, True),  # more than one code is no rounding, however it grows
        ([1], [1], True),
    ],
)
def test_part_of_a_step_makes_as_many_errors_in_small_codes_as_in_large_ones(near, far, shift):
    expected = np.array([[10, 12] * 20 + [60, 70] * 20])
    error = np.concatenate([np.resize(near, 40), np.resize(far, 40)])
    evidence = evidence_of(expected, expected + error)
    assert _is_shift(evidence, slice(None), np.array([error.mean()]), 1.0) == shift
    assert _is_shift(evidence, slice(None), np.array([2.0]), 1.0)  # a whole number of codes is no rounding either


@pytest.mark.parametrize(("wrong", "told"), [(2, False), (3, True)])
def test_channels_are_scaled_from_three_wrong_elements_of_each_on(wrong, told):
    expected = np.zeros((1, 4, 9), int)
    expected[0, :, :wrong] = np.array([4, 8, 12])[:wrong]
    recorded = expected * np.array([2, 3, 4, 5])[:, None]
    details = said(factors(evidence_of(expected, recorded, Layout(channel=0))))
    assert details == (["each channel is a constant times what it should be, 2 to 5"] if told else [])


@pytest.mark.parametrize(
    ("by", "grows"),
    [
        (np.where(np.arange(100) < 70, 1, 4), True),
        (np.where(np.arange(100) < 70, 3, 4), False),  # three quarters are as much in small codes as in large ones
        (np.where(np.arange(100) < 70, 2.9, 4), True),
        (np.where(np.arange(100) < 81, 0, np.where(np.arange(100) < 83, -9, 9)), False),  # 17 of 19 go its way
        (np.where(np.arange(100) < 80, 0, np.where(np.arange(100) < 82, -9, 9)), True),  # 18 of 20
    ],
)
def test_most_errors_of_a_factor_go_its_way_and_are_larger_beyond_the_median(by, grows):
    size = np.where(np.arange(100) < 70, 100, 200)
    arrays = size, np.rint(size + 10 * by).astype(int), np.ones(100, bool)
    assert _CenteredCodes(arrays, 0).errors_grow_with(1.2) == grows


def test_a_single_wrong_element_has_no_trait_but_its_size():
    for by, patterns in ((1, ["off_by_one"]), (9, [])):
        evidence = evidence_of([[7]], [[7 + by]])
        assert [trait.pattern for trait in wrong_values.traits(evidence)] == patterns


@pytest.mark.parametrize(("wrapped", "beside", "told"), [(3, 0, False), (4, 0, True), (18, 2, True), (17, 3, False)])
def test_nine_of_ten_codes_that_wrap_around_should_be_saturated_and_three_do_so_by_chance(wrapped, beside, told):
    """Some others are as far off, which no saturation explains."""
    expected = random_codes((1, 400), -60, -1).astype(int)
    expected[0, :wrapped] = 127
    recorded = expected.copy()
    recorded[0, :wrapped] = -128
    recorded[0, 100 : 100 + beside] += 128
    details = said(_wrapped_codes(evidence_of(expected, recorded)))
    assert details == ([f"{wrapped + beside} elements beyond the range have codes of the opposite end"] if told else [])


def test_an_output_of_one_code_holds_nobody_elses_values():
    expected = np.arange(200) % 2 * 7
    assert said(_stale_codes(evidence_of(expected[None], np.zeros((1, 200)), Layout(spatial=(0,))))) == []


@pytest.mark.parametrize(("rows", "told"), [(9, False), (10, True)])
def test_what_comes_in_at_one_end_is_at_most_a_tenth(rows, told):
    """All rows hold those before; the first, and one element of another, hold what belongs nowhere."""
    expected = np.arange(rows * 20).reshape(1, 1, rows, 20)
    recorded = np.roll(expected, 1, axis=2)
    recorded[0, 0, 0] = 9000 + np.arange(20)
    recorded[0, 0, 5, 7] = 8000
    facts = {"dtype": np.int16, "span": (-(2**15), 2**15 - 1)}
    details = said(_stale_codes(evidence_of(expected, recorded, NCHW, **facts)))
    assert details == (["the wrong elements have the values of 1 row before"] if told else [])


@pytest.mark.parametrize(("strange", "told"), [(2, True), (3, False)])
def test_nine_of_ten_wrong_elements_hold_a_neighbours_values(strange, told):
    expected = np.arange(200).reshape(1, 1, 10, 20)
    recorded = expected.copy()
    recorded[0, 0, 5] = expected[0, 0, 4]
    recorded[0, 0, 5, :strange] = 9000 + np.arange(strange)
    facts = {"dtype": np.int16, "span": (-(2**15), 2**15 - 1)}
    details = said(_stale_codes(evidence_of(expected, recorded, NCHW, **facts)))
    assert details == (["the wrong elements have the values of 1 row before"] if told else [])


def test_a_value_at_the_largest_distance_is_close_to_no_tie():
    expected = random_codes((1, 1000))
    recorded = expected.copy()
    recorded[0, :9] += 1
    for gap, told in ((TIE_MAX_DISTANCE, False), (TIE_MAX_DISTANCE * 0.99, True)):
        distance = np.where(np.arange(1000) < 9, gap, 0.3)[None]
        assert bool(said(_errors_near_ties(evidence_of(expected, recorded, distance=distance)))) == told


@pytest.mark.parametrize(
    ("wrong", "right", "rank", "grows"),
    [(8, 8, 6, True), (8, 8, 5, False), (7, 8, 8, False), (8, 7, 7, False), (9, 8, 8, True)],
)
def test_eight_sums_of_either_kind_tell_whether_the_wrong_ones_are_large(wrong, right, rank, grows):
    """Each wrong one exceeds as many of the right ones."""
    sums = np.concatenate([np.full(wrong, rank - 0.5), np.arange(right)])[None]
    expected = random_codes((1, wrong + right), -60, 60)
    recorded = expected + 9 * (np.arange(wrong + right) < wrong)
    for facts in ({"sums": sums}, {"magnitude": sums}, {"sums": sums, "magnitude": np.zeros_like(sums)}):
        assert bool(said(_growing_errors(evidence_of(expected, recorded, **facts)))) == grows


@pytest.mark.parametrize(
    ("pairs", "said_so"),
    [
        ([(60, 40)] * 10, True),  # to either side of the zero point 50
        ([(40, 60)] * 10, True),
        ([(60, 50)] * 10 + [(70, 50)] * 10, False),  # the zero point has no sign
        ([(50, 70)] * 10, False),
        ([(60, 40)] * 3 + [(60, 80)] * 7, False),
        ([(60, 40)] * 4 + [(60, 80)] * 6, True),
        ([(58, 42)] * 10, False),  # by 16 codes is not far
        ([(58, 41)] * 10, True),
        ([(90, 110)] * 10, False),
    ],
)
def test_wrong_sums_are_often_of_the_other_sign_if_more_than_three_in_ten_jump(pairs, said_so):
    many = len(pairs)
    expected = np.array([[*(pair[0] for pair in pairs), *range(10)]])
    recorded = np.array([[*(pair[1] for pair in pairs), *range(10)]])
    sums = np.where(np.arange(many + 10) < many, 100.0, 1.0)[None]
    (detail,) = said(_growing_errors(evidence_of(expected, recorded, sums=sums, zero_point=50)))
    assert (", and often of the other sign" in detail) == said_so


@pytest.mark.parametrize(("most", "told"), [(10, True), (11, False)])
def test_whether_only_a_part_was_ranked_is_said(monkeypatch, most, told):
    monkeypatch.setattr(wrong_values, "RANKED_MAX_ELEMENTS", most)
    expected = random_codes((1, 20), -60, 60)
    for wrong in (9, 11):
        recorded = expected + 9 * (np.arange(20) < wrong)
        sums = np.where(np.arange(20) < wrong, 100.0, 1.0)[None]
        asked = mock.Mock()
        with calling_at_checkpoints(asked):
            (detail,) = said(_growing_errors(evidence_of(expected, recorded, sums=sums)))
        assert (f", of at most {most} of either kind" in detail) == told
        assert asked.call_count == 2, "before either kind is sorted"


@pytest.mark.parametrize(("wrong", "spared", "altered"), [(1, 20, False), (1, 21, True), (2, 40, False), (2, 41, True)])
def test_no_rounding_spares_twenty_elements_for_each_that_it_changes(wrong, spared, altered):
    expected = np.full((1, 100), 40)
    recorded = expected + (np.arange(100) < wrong)
    distance = np.where(np.arange(100) < wrong + spared, 0.2, 0.4)[None]
    (trait,) = _errors_of_one(evidence_of(expected, recorded, distance=distance))
    assert trait.pattern == ("altered" if altered else "off_by_one")
