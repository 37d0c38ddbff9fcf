"""Patterns of wrong elements, planted into random codes."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.patterns.residual import PATTERNS, residual
from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor
from qdebug.arithmetic.patterns.wrong_places import Layout, places
from qdebug.arithmetic.patterns.wrong_values import _CenteredCodes, _count_spared, _is_shift
from qdebug.model.thresholds.patterns import JUMP_MIN_CODES
from qdebug.numerics.checkpoint import calling_at_checkpoints

NCHW = Layout(channel=0, spatial=(1, 2))


def codes(shape=(2, 24, 12, 16), seed=0, low=-90, high=90):
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(np.int8)


def found(expected, recorded, **facts):
    told = residual(CodesOfTensor(expected=expected, recorded=recorded, layout=facts.pop("layout", NCHW), **facts))
    assert told is not None
    assert told.pattern in PATTERNS
    return told


def spoil(expected, where, seed=1):
    recorded = expected.copy()
    rng = np.random.default_rng(seed)
    recorded[where] = rng.integers(-128, 128, recorded[where].shape).astype(np.int8)
    return recorded


def test_equal_codes_leave_nothing():
    assert residual(CodesOfTensor(expected=codes(), recorded=codes(), layout=NCHW)) is None


def test_what_is_wrong_is_counted():
    recorded = codes()
    recorded[1, 2, 3, 4] += 5
    recorded[0, 0, 0, 1] -= 2
    told = found(codes(), recorded)
    assert (told.wrong, told.total, told.max_lsb) == (2, codes().size, 5)
    assert told.elements == ((0, 0, 0, 1), (1, 2, 3, 4))
    assert told.to_dict()["likely"].startswith("likely: ")


def test_few_wrong_elements_have_no_pattern():
    recorded = codes()
    recorded[0, 3, 4, 5] += 7
    recorded[1, 9, 2, 11] -= 9
    told = found(codes(), recorded)
    assert (told.pattern, told.detail) == ("scattered", "2 elements in no particular place")
    recorded[0, 3, 4, 5] -= 7
    told = found(codes(), recorded)
    assert (told.pattern, told.detail) == ("altered", "only at sample 1, channel 9, row 2, column 11")
    recorded[1, 9, 2, 11] += 8
    assert found(codes(), recorded).pattern == "off_by_one"  # which may be a rounding


def test_scattered_errors_are_scattered():
    where = np.random.default_rng(5).random(codes().shape) < 0.01
    assert found(codes(), spoil(codes(), where)).pattern == "scattered"


def test_the_tail_of_every_tile_is_found_with_its_channels():
    flat = np.zeros((2, 24, 12 * 16), bool)
    flat[:, 16:, 31::32] = True
    told = found(codes(), spoil(codes(), flat.reshape(codes().shape)))
    assert told.pattern == "block_tail"
    assert "last of every 32" in told.detail
    assert "last 8 channels of 24" in told.detail


@pytest.mark.parametrize(
    ("where", "pattern", "words"),
    [
        (np.s_[:, :, -1, :], "tail", "last row of 12"),
        (np.s_[:, :, :, -3:], "tail", "last 3 columns of 16"),
        (np.s_[:, :, :2, :], "rows", "first 2 rows of 12"),
        (np.s_[:, :, 4:6, :], "rows", "rows 4 to 5 of 12"),
        (np.s_[:, 8:16], "channels", "channels 8 to 15 of 24"),
        (np.s_[:, 5], "channels", "channel 5 of 24"),
        (np.s_[1], "one_sample", "sample 1"),
    ],
)
def test_a_part_of_the_tensor_is_named(where, pattern, words):
    expected = codes((6, 24, 12, 16))
    told = found(expected, spoil(expected, where))
    assert told.pattern == pattern
    assert words in told.detail


def test_left_over_channels_that_are_never_written_are_said_to_be():
    expected = codes()
    recorded = expected.copy()
    recorded[:, 16:] = 0
    told = found(expected, recorded)
    assert told.likely == (
        "the filters that are left over from the kernel's blocks of channels; elements that are never written"
    )


def test_left_over_channels_with_values_of_others_are_said_to_have_them():
    expected = codes()
    recorded = expected.copy()
    recorded[:, -4:] = expected[:, -8:-4]
    told = found(expected, recorded)
    assert told.pattern == "tail"
    assert told.likely.endswith("; values of other elements, from a wrong address")


def test_values_of_far_elements_are_described_without_those_off_by_one():
    expected = codes()
    recorded = expected.copy()
    recorded[:, ::3, 0, 0] += np.where(expected[:, ::3, 0, 0] < 100, 1, -1).astype(recorded.dtype)
    recorded[:, 16:] = 0
    told = found(expected, recorded)
    assert told.likely.endswith("; elements that are never written")
    assert "others are off by one code" in told.detail


def test_borders_on_all_sides_and_on_two():
    expected = codes()
    frame = np.ones(expected.shape, bool)
    frame[:, :, 1:-1, 1:-1] = False
    assert found(expected, spoil(expected, frame)).pattern == "borders"
    corner = np.zeros(expected.shape, bool)
    corner[:, :, -1, :] = corner[:, :, :, -1] = True
    told = found(expected, spoil(expected, corner))
    assert told.pattern == "borders"
    assert "the last row" in told.detail
    assert "the last column" in told.detail
    assert "first" not in told.detail


def test_channels_last_is_understood():
    expected = np.moveaxis(codes(), 1, -1)
    layout = Layout(channel=2, spatial=(0, 1))
    told = found(expected, spoil(expected, np.s_[..., 20:]), layout=layout)
    assert told.pattern == "tail"
    assert "channels" in told.detail


def test_a_constant_and_a_constant_per_channel():
    expected = codes()
    assert found(expected, (expected + 3).astype(np.int8)).pattern == "constant"
    shift = np.arange(1, 25, dtype=np.int8)[:, None, None]
    told = found(expected, (expected + shift).astype(np.int8))
    assert told.pattern == "constant_per_channel"
    assert "1 to 24" in told.detail


def test_a_shift_of_part_of_a_step_is_a_constant():
    exact = np.random.default_rng(3).uniform(-90, 90, (2, 24, 12, 16))
    shift = np.linspace(0.2, 0.7, 24)[:, None, None]
    told = found(np.rint(exact).astype(np.int8), np.rint(exact + shift).astype(np.int8))
    assert told.pattern == "constant_per_channel"


def test_a_factor_and_a_factor_per_channel():
    expected = codes(low=-40, high=40)
    half = np.rint(expected * 0.5).astype(np.int8)
    assert found(expected, half).pattern == "factor"
    many = np.rint(expected * np.linspace(0.5, 2.0, 24)[:, None, None]).astype(np.int8)
    assert found(expected, many).pattern == "factor_per_channel"


@pytest.mark.parametrize("factor", [1.01, 0.997, 1.0, 0.5])
def test_a_factor_close_to_1_is_told_from_part_of_a_step(factor):
    """Both make errors of one code and one sign: those of a factor grow with the codes."""
    exact = np.random.default_rng(3).uniform(0, 100, (2, 24, 12, 16))
    other = exact * factor if factor != 1 else exact + 0.2
    told = found(np.rint(exact).astype(np.int8), np.rint(other).astype(np.int8))
    assert told.pattern == ("factor" if factor != 1 else "constant")


def test_a_few_wrong_elements_are_no_constant():
    """Of a channel with four elements one is a quarter: that is not a shift by a quarter of a code."""
    expected = codes((4, 104, 1, 1))
    recorded = expected.copy()
    recorded[2, 50] += 1
    told = found(expected, recorded)
    assert told.pattern == "off_by_one"
    assert told.detail == "off by one code"


def test_a_few_elements_make_no_block():
    """Six elements lie in six channels at most, and six channels in some part of every 128."""
    rng = np.random.default_rng(4)
    for seed in range(20):
        expected = codes((4, 416, 1, 1), seed=seed)
        recorded = expected.reshape(-1).copy()
        recorded[rng.choice(recorded.size, 6, replace=False)] += 1
        assert found(expected, recorded.reshape(expected.shape)).pattern == "off_by_one"


def test_a_constant_in_one_place_is_that_place():
    recorded = codes()
    recorded[:, :, 3] += 1
    told = found(codes(), recorded)
    assert told.pattern == "rows"
    assert told.detail == "only in row 3 of 12"


def test_an_element_far_from_a_tie_was_not_rounded_otherwise():
    rng = np.random.default_rng(8)
    exact = rng.uniform(-90, 90, (2, 24, 12, 16))
    expected = np.rint(exact).astype(np.int8)
    distance = np.abs(exact - np.floor(exact) - 0.5)
    recorded = expected.copy()
    recorded[np.unravel_index(distance.argmax(), distance.shape)] += 1
    told = found(expected, recorded, distance=distance)
    assert told.pattern == "altered"
    assert "lie closer to a tie" in told.detail


@pytest.mark.parametrize("code", [127, -128, 9, 3])
def test_an_output_of_one_code_is_no_clamp(code):
    told = found(codes(), np.full_like(codes(), code), zero_point=3)
    assert told.pattern == "one_code"
    assert f"every element is {code}" in told.detail
    assert ("the zero point" in told.detail) == (code == 3)
    few = codes((1, 8), low=-9)
    assert found(few, np.full_like(few, code), layout=Layout(channel=0)).pattern == "one_code"


def test_a_clamp_too_narrow_and_one_not_applied():
    expected = codes()
    told = found(expected, np.clip(expected, -50, 70))
    assert told.pattern == "clamp"
    assert "below -50" in told.detail
    assert "above 70" in told.detail
    assert "not applied" in found(np.clip(expected, 0, 127), expected).detail


def test_unwritten_elements_and_a_neighbours_filter():
    expected = codes()
    recorded = expected.copy()
    recorded[:, :, 3::7, 2] = -5
    told = found(expected, recorded, zero_point=-5)
    assert "are all -5 (the zero point)" in told.detail
    recorded = expected.copy()
    recorded[:, 16:] = expected[:, 8:16]
    told = found(expected, recorded)
    assert told.pattern == "tail"
    assert "the values of 8 channels before" in told.detail


def test_rows_that_go_round_hold_their_neighbours_values():
    expected = codes((4, 8, 5, 6))
    told = found(expected, np.roll(expected, 1, axis=2))
    assert told.pattern == "stale"
    assert "the values of 1 row before" in told.detail


def test_ties_only_needs_ties():
    rng = np.random.default_rng(8)
    exact = rng.uniform(-90, 90, (2, 24, 12, 16))
    exact = np.where(rng.random(exact.shape) < 0.03, np.floor(exact) + 0.5, exact)
    expected = np.rint(exact).astype(np.int8)
    recorded = np.floor(exact + 0.5).astype(np.int8)
    distance = np.abs(exact - np.floor(exact) - 0.5)
    assert found(expected, recorded, distance=distance).pattern == "ties_only"
    assert found(expected, recorded).pattern == "off_by_one"


def test_saturating_sums_grow_with_the_products():
    rng = np.random.default_rng(9)
    magnitude = rng.uniform(0, 100, (2, 24, 12, 16))
    expected = codes()
    loss = np.maximum(magnitude - 80, 0).astype(np.int64)
    recorded = np.clip(expected - np.sign(expected) * loss, -128, 127).astype(np.int8)
    told = found(expected, recorded, magnitude=magnitude)
    assert told.pattern == "growing"
    assert "16 bits" in told.likely


def test_places_need_evidence():
    wrong = np.zeros((1, 4, 6, 6), bool)
    wrong[0, 3, 5, 5] = True
    assert places(wrong, NCHW) == ()


def test_codes_that_wrap_around_are_known_by_where_they_land():
    """Not only where the replay is exact: other elements may be off by one besides."""
    real = np.random.default_rng(0).normal(0, 90, (2, 8, 12, 16))
    expected = np.clip(np.rint(real), -128, 127).astype(np.int8)
    recorded = np.rint(real + 0.01).astype(np.int64).astype(np.int8)
    told = found(expected, recorded)
    assert told.pattern == "wrapped"
    assert "have codes of the opposite end" in told.detail
    saturated = np.where(np.random.default_rng(1).random(real.shape) < 0.5, recorded, expected).astype(np.int8)
    assert found(expected, saturated).pattern != "wrapped"


def grown(shape=(2, 24, 40, 40)):
    size = np.random.default_rng(4).random(shape) * 1000
    expected = codes(shape)
    recorded = np.where((size > 800) & (expected % 3 != 0), -expected, expected).astype(np.int8)
    return expected, recorded, size


@pytest.mark.parametrize(
    "planted",
    [
        lambda e: np.rint(e * 0.7).astype(np.int8),
        lambda e: np.rint(e * (1 - np.arange(24) / 60).reshape(1, -1, 1, 1)).astype(np.int8),
        lambda e: np.clip(e, -40, 30),
        lambda e: spoil(e, np.random.default_rng(5).random(e.shape) < 0.01),
    ],
)
def test_a_huge_tensor_is_looked_at_in_pieces_that_make_no_difference(planted, monkeypatch):
    def told():
        asked = []
        with calling_at_checkpoints(lambda: asked.append(1)):
            return found(codes(), planted(codes())), len(asked)

    whole, times = told()
    monkeypatch.setattr("qdebug.arithmetic.patterns.wrong_evidence._STRETCH", 100)
    parts, more = told()
    assert parts == whole
    assert more > times + 50, "whoever waits is asked in between"


def test_that_a_part_of_the_elements_was_ranked_is_said(monkeypatch):
    expected, recorded, size = grown()
    every = found(expected, recorded, magnitude=size)
    assert every.pattern == "growing"
    assert "of either kind" not in every.detail
    monkeypatch.setattr("qdebug.arithmetic.patterns.wrong_values.RANKED_MAX_ELEMENTS", 1000)
    some = found(expected, recorded, magnitude=size)
    assert some.pattern == "growing"
    assert ", of at most 1000 of either kind)" in some.detail


def test_wide_codes_have_factors_too():
    wide = np.random.default_rng(7).integers(-(10**6), 10**6, (2, 24, 12, 16)).astype(np.int32)
    told = found(wide, np.rint(wide * 0.75).astype(np.int32), span=(-(2**31), 2**31 - 1))
    assert (told.pattern, told.detail) == ("factor", "the elements are 0.75 times what they should be")


def wrong_in(shape, where):
    wrong = np.zeros(shape, bool)
    wrong[where] = True
    return wrong


@pytest.mark.parametrize(
    ("wrong", "details"),
    [
        (wrong_in((7, 40), np.s_[2]), ["only in sample 2 of 7"]),
        (wrong_in((7, 40), np.s_[[2, 5]]), []),  # two of seven are not few
        (wrong_in((8, 40), np.s_[[2, 5]]), ["only in 2 of 8 samples"]),
        (wrong_in((1, 40), np.s_[0]), []),
        (wrong_in((3, 40), np.s_[1, :3]), []),  # three elements may lie in one of three samples by chance
    ],
)
def test_few_samples_are_a_place_if_hardly_by_chance(wrong, details):
    assert [place.detail for place in places(wrong, Layout())] == details


@pytest.mark.parametrize(
    ("hit", "total", "detail"),
    [
        ([0, 1, 3, 6], 8, "only in 4 of 8 channels: 0, 1, 3, 6"),
        ([0, 1, 3, 5, 6], 9, None),  # more than half is no few
        ([0, 1, 3, 6, 7, 9, 12, 17], 23, "only in 8 of 23 channels: 0, 1, 3, 6, 7, 9, ..."),
        ([0, 1, 3, 6, 7, 9], 23, "only in 6 of 23 channels: 0, 1, 3, 6, 7, 9"),
        ([3, 7, 11, 15, 19], 20, "only in the last of every 4 of the channels"),
        ([6, 7, 14, 15, 22, 23], 24, "only in the last 2 of every 8 of the channels"),
        ([1, 5, 9, 13, 17], 20, "only in number 1 of every 4 of the channels"),
        ([4], 9, "only in channel 4 of 9"),
        ([8], 9, "only in the last channel of 9"),
        ([0], 9, "only in the first channel of 9"),
    ],
)
def test_indices_along_an_axis_are_listed_or_told_by_their_order(hit, total, detail):
    found = places(wrong_in((2, total, 50), np.s_[:, hit]), Layout(channel=0))
    assert [place.detail for place in found] == ([] if detail is None else [detail])
    assert all(place.share == len(hit) / total for place in found)


@pytest.mark.parametrize("width", [1, 2])
def test_a_frame_is_as_wide_as_it_has_to_be_and_names_its_sides(width):
    """The first rows and the last columns; nothing else."""
    wrong = wrong_in((2, 3, 9, 11), np.s_[:, :, :width]) | wrong_in((2, 3, 9, 11), np.s_[..., 11 - width :])
    (place,) = places(wrong, NCHW)
    said = "first row and the last column" if width == 1 else "first 2 rows and the last 2 columns"
    assert (place.pattern, place.detail) == ("borders", f"only in the {said}")
    assert place.share == pytest.approx(1 - (1 - width / 9) * (1 - width / 11))


def test_a_constant_away_from_the_borders_leaves_one_element_on_each_side():
    """What padding reaches is anything; next to it every element is off by three."""
    expected = codes()
    recorded = (expected + 3).astype(np.int8)
    frame = np.ones(expected.shape, bool)
    frame[:, :, 1:-1, 1:-1] = False
    told = found(expected, np.where(frame, spoil(expected, frame), recorded))
    assert told.pattern == "constant"
    assert "every element away from the borders is off by 3 codes" in told.detail
    recorded[0, 0, 1, 1] = expected[0, 0, 1, 1] - 9
    assert found(expected, np.where(frame, spoil(expected, frame), recorded)).pattern != "constant"


@pytest.mark.parametrize("by", [JUMP_MIN_CODES, JUMP_MIN_CODES + 1])
def test_wrapped_sums_jump_to_the_other_sign_by_many_codes(by):
    """The wrong ones are those of large sums; to the other sign by no more than a few codes is no jump."""
    size = np.random.default_rng(4).permutation(2000).reshape(2, 1000)
    wrong = size > 1700
    expected = np.where(wrong, np.int8(5), codes((2, 1000)))
    recorded = np.where(wrong, expected - by, expected).astype(np.int8)
    facts = {"magnitude": size.astype(np.float64), "layout": Layout()}
    told = found(expected, recorded, **facts)
    assert told.pattern == "growing"
    assert ("and often of the other sign" in told.detail) == (by > JUMP_MIN_CODES)


def test_right_elements_count_as_spared_only_inside_the_codes():
    """Half of the right elements lie as near to a tie as the wrong ones, but at the end of the codes."""
    expected = np.full((1, 400), 100, np.int8)
    expected[0, 100:200] = 127
    recorded = expected.copy()
    recorded[0, :100] += 1
    distance = np.where(np.arange(400) < 200, 0.1, 0.4)[None]
    evidence = CodesOfTensor(expected=expected, recorded=recorded, layout=Layout(), distance=distance)
    assert _count_spared(evidence) == 0
    expected[0, 100:130] = 110
    recorded[0, 100:130] = 110
    assert _count_spared(CodesOfTensor(expected=expected, recorded=recorded, layout=Layout(), distance=distance)) == 30


def test_a_constant_in_some_channels_is_told_from_one_in_each():
    expected = codes()
    recorded = expected.copy()
    recorded[:, [1, 2, 5, 7, 8, 11, 13, 17, 18, 22]] += 2
    told = found(expected, recorded)
    assert "a constant in 10 of 24 channels, of 2 codes" in told.detail
    recorded = (expected + np.arange(1, 25, dtype=np.int8)[:, None, None]).astype(np.int8)
    assert "a constant in each channel, of 1 to 24 codes" in found(expected, recorded).detail


def test_a_frame_of_a_small_tensor_leaves_one_element_inside():
    wrong = wrong_in((40, 4, 5, 3), np.s_[:, :, -1]) | wrong_in((40, 4, 5, 3), np.s_[..., -1])
    (place,) = places(wrong, NCHW)
    assert place.detail == "only in the last row and the last column"
    whole = wrong_in((40, 4, 5, 2), np.s_[:, :, -1]) | wrong_in((40, 4, 5, 2), np.s_[..., -1])
    assert places(whole, NCHW) == ()


@pytest.mark.parametrize(
    ("size", "by", "grows"),
    [
        (np.arange(1, 101), np.arange(1, 101) // 4, True),
        (np.arange(1, 101), np.full(100, 3), False),  # as much in small codes as in large ones
        (np.arange(1, 101), -(np.arange(1, 101) // 4), False),  # the other way
        (np.full(100, 40), np.full(100, 3), False),  # one size tells nothing
        (np.arange(1, 101), np.where(np.arange(100) > 93, 9, 0), False),  # six may go one way by chance
        (np.arange(1, 101), np.zeros(100, int), False),
        (np.arange(1, 101), np.arange(2, 102) // 2 * np.where(np.arange(100) % 10 == 5, -1, 1), True),
        (np.arange(1, 101), np.arange(2, 102) // 2 * np.where(np.arange(100) % 9 == 5, -1, 1), False),
    ],
)
def test_errors_of_a_factor_go_its_way_and_grow_with_the_codes(size, by, grows):
    sign = np.where(np.arange(100) % 2, 1, -1)
    arrays = (size * sign).astype(np.int16), ((size + by) * sign).astype(np.int16), np.ones(100, bool)
    assert _CenteredCodes(arrays, 0).errors_grow_with(1.2) == grows


@pytest.mark.parametrize(("wrong", "shift"), [(7, False), (8, True)])
def test_a_shift_of_one_channel_is_told_if_its_elements_hardly_lie_there_by_chance(wrong, shift):
    """Seven wrong elements lie in some one of four channels by chance: 4 * (1/4)**7 is more than 1e-4."""
    expected = codes((1, 4, wrong, 1))
    recorded = expected.copy()
    recorded[:, 2] += 1
    evidence = CodesOfTensor(expected=expected, recorded=recorded, layout=NCHW)
    assert _is_shift(evidence, slice(None), np.array([1.0]), 0.25) == shift


def test_single_codes_of_another_rounding_do_not_hide_where_the_fault_is():
    expected = codes()
    recorded = spoil(expected, np.s_[..., -1])
    stray = np.random.default_rng(2).integers(0, recorded.size, 40)
    recorded.reshape(-1)[stray] = expected.reshape(-1)[stray] + 1
    told = found(expected, recorded)
    assert told.pattern == "tail"
    assert told.detail.startswith("only in the last column of 16")
    assert "off by one code" in told.detail
