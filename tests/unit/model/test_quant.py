"""QuantParams: defaults, refusals, equality, immutability."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from qdebug.model import QuantParams


def test_a_block_of_no_elements_is_none():
    assert QuantParams(dtype="int8", scale=np.ones(4), axis=0, block_size=0).block_size is None
    with pytest.raises(ValueError, match="block_size must be at least 0, found -1"):
        QuantParams(dtype="int8", scale=np.ones(4), axis=0, block_size=-1)


def test_one_scale_gets_a_zero_point_of_zero_and_the_limits_of_its_dtype():
    quant = QuantParams(dtype="int8", scale=0.5)
    assert quant.scale.tolist() == [0.5]
    assert quant.zero_point.tolist() == [0]
    assert (quant.qmin, quant.qmax) == (-128, 127)
    assert not quant.per_channel


def test_a_narrow_range_is_kept():
    quant = QuantParams(dtype="int8", scale=0.5, qmin=-127, qmax=127)
    assert (quant.qmin, quant.qmax) == (-127, 127)


def test_float_codes_have_no_limits():
    quant = QuantParams(dtype="float8_e4m3fn", scale=0.5)
    assert (quant.qmin, quant.qmax) == (None, None)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.float32(0.1), np.float32), (0.1, np.float64), (np.float16(0.1), np.float64), (1, np.float64)],
)
def test_a_scale_keeps_single_precision_only_if_given_so(given, kept):
    assert QuantParams(dtype="uint8", scale=given).scale.dtype == kept


def test_one_zero_point_serves_all_channels():
    quant = QuantParams(dtype="uint8", scale=[0.1, 0.2], zero_point=128, axis=0)
    assert quant.zero_point.tolist() == [128, 128]
    assert quant.per_channel


def test_one_scale_serves_all_channels_that_have_zero_points_of_their_own():
    quant = QuantParams(dtype="uint8", scale=np.float32(0.1), zero_point=[3, 4, 5], axis=1)
    assert quant.scale.tolist() == [np.float32(0.1)] * 3
    assert (quant.scale.dtype, quant.zero_point.tolist()) == (np.float32, [3, 4, 5])
    assert quant.per_channel


def test_one_zero_point_serves_a_single_block():
    quant = QuantParams(dtype="int4", scale=[[0.1]], zero_point=[3], axis=1, block_size=32)
    assert quant.zero_point.tolist() == [[3]]


def test_blocks_keep_the_shape_of_the_tensor():
    quant = QuantParams(dtype="int4", scale=np.full((2, 3), 0.1), zero_point=np.zeros((2, 3)), axis=1, block_size=32)
    assert quant.scale.shape == quant.zero_point.shape == (2, 3)


def test_strange_scales_are_facts_and_stay():
    assert np.isnan(QuantParams(dtype="int8", scale=np.nan).scale[0])
    assert QuantParams(dtype="int8", scale=0.0).scale[0] == 0.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scale": [0.1, 0.2]}, "2 scales need an axis"),
        ({"scale": [0.1, 0.2], "zero_point": [1, 2, 3], "axis": 0}, "scale has shape .2,., but zero_point has .3,."),
        ({"scale": 0.1, "zero_point": [1, 2, 3]}, "scale has shape .1,., but zero_point has .3,."),
        ({"scale": 0.1, "zero_point": 2.5}, "zero_point must be integers, found .2.5."),
        ({"scale": 0.1, "zero_point": float("nan")}, "zero_point must be integers"),
        ({"scale": 0.1, "multiplier": 1.5}, "multiplier must be integers"),
        ({"scale": 0.1, "dtype": "int9"}, "unknown logical dtype 'int9'"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        QuantParams(**{"dtype": "int8", **fields})


def test_a_zero_point_written_as_a_float_is_taken():
    assert QuantParams(dtype="int8", scale=0.1, zero_point=np.float32(-3)).zero_point.tolist() == [-3]


def test_equality_and_hash_go_by_value():
    first = QuantParams(dtype="int8", scale=[0.1, np.nan], zero_point=[1, 2], axis=0, multiplier=[7, 8], shift=[1, 1])
    second = QuantParams(dtype="int8", scale=[0.1, np.nan], zero_point=[1, 2], axis=0, multiplier=[7, 8], shift=[1, 1])
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "int16"},
        {"scale": [0.1, 0.3]},
        {"scale": np.nextafter(np.array([0.1, 0.2], np.float32), np.float32(1))},
        {"zero_point": [1, 3]},
        {"axis": 1},
        {"block_size": 4},
        {"qmin": -127},
        {"qmax": 126},
        {"multiplier": [7, 9]},
        {"shift": [1, 2]},
    ],
)
def test_every_field_counts_in_equality(change):
    quant = QuantParams(dtype="int8", scale=[0.1, 0.2], zero_point=[1, 2], axis=0, multiplier=[7, 8], shift=[1, 1])
    assert replace(quant, **change) != quant


@pytest.mark.parametrize("form", [np.float32, float, lambda value: float(f"{np.float32(value):.9g}")])
def test_scales_are_equal_if_they_round_to_one_float32(form):
    quant = QuantParams(dtype="int8", scale=np.float32([0.1, 0.3]), zero_point=[1, 2], axis=0)
    other = QuantParams(dtype="int8", scale=np.array([form(0.1), form(0.3)]), zero_point=[1, 2], axis=0)
    assert (quant == other, hash(quant) == hash(other)) == (True, True)
    assert quant.has_same_scale(other)
    assert quant.has_same_codes(other)
    assert np.array_equal(quant.real_scale, other.real_scale)
    moved = replace(other, zero_point=[1, 3])
    assert (quant.has_same_scale(moved), quant.has_same_codes(moved)) == (True, False)
    assert quant.has_same_codes(replace(other, dtype="int16", qmin=-127, qmax=126))
    assert not quant.has_same_scale(replace(other, axis=1))


def test_of_one_scale_the_axis_does_not_count():
    one = QuantParams(dtype="int8", scale=0.1)
    assert one.has_same_codes(QuantParams(dtype="int8", scale=[0.1], axis=1))
    assert not one.has_same_codes(QuantParams(dtype="int8", scale=[0.1, 0.1], axis=1))


@pytest.mark.parametrize(("one", "other"), [(0.1, 0.10000001), (1e-50, 1e-51), (1e-45, 1.2e-45), (1e60, 1e61)])
def test_scales_that_float32_tells_apart_or_cannot_hold_are_not_equal(one, other):
    assert not QuantParams(dtype="int8", scale=one).has_same_scale(QuantParams(dtype="int8", scale=other))


def test_it_is_unequal_to_anything_else():
    assert QuantParams(dtype="int8", scale=1.0) != "int8"


def test_what_it_was_made_of_can_change_without_it():
    scale = np.array([0.1, 0.2])
    quant = QuantParams(dtype="int8", scale=scale, axis=0)
    scale[0] = 9.0
    assert quant.scale.tolist() == [0.1, 0.2]
    with pytest.raises(ValueError, match="read-only"):
        quant.scale[0] = 1.0
    with pytest.raises(AttributeError):
        quant.axis = 1


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q))])  # noqa: S301  our own bytes
def test_a_copy_is_equal_and_frozen_too(clone):
    quant = QuantParams(dtype="int8", scale=[0.1, 0.2], zero_point=[1, 2], axis=0, qmin=-127)
    twin = clone(quant)
    assert twin == quant
    assert not twin.scale.flags.writeable


def test_to_dict_has_plain_values_under_the_keys_of_the_diff_json():
    quant = QuantParams(dtype="int8", scale=[0.25, 0.5], zero_point=[1, 2], axis=0)
    assert quant.to_dict() == {"dtype": "int8", "scale": [0.25, 0.5], "zero_point": [1, 2], "axis": 0}
