"""Assertions for tests: they fail when they must, and their message says what numpy's and torch's hide."""

import math

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.result.limits import Acknowledgement, Limits
from qdebug.errors import UsageError
from qdebug.recording.recorder import Recorder
from qdebug.testing import ComparisonError, assert_close, assert_explained, random_recording

NAN, INF = math.nan, math.inf


def rng(seed=0):
    return np.random.default_rng(seed)


def message(*sides, **options):
    with pytest.raises(AssertionError) as caught:
        assert_close(*sides, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("reference", "backend"),
    [
        ([1.0, NAN, INF], [1.0, NAN, INF]),
        ([0.0], [-0.0]),
        ([], []),
        (np.int8([1, 2]), [1.0, 2.0]),
        (3.0, 3.0),
        (np.array([1.5], ml_dtypes.bfloat16), np.float32([1.5])),
    ],
)
def test_equal_arrays_pass(reference, backend):
    assert_close(reference, backend)


def test_without_a_limit_arrays_must_be_equal():
    one = np.float32(1)
    assert "the arrays differ, and no limit was given" in message(one, np.nextafter(one, np.float32(2)))


@pytest.mark.parametrize("limit", [{"atol": 0.5}, {"rtol": 0.5}, {"min_sqnr": 3}, {"max_lsb": 5, "scale": 0.1}])
def test_each_limit_lets_pass_what_keeps_it_and_nothing_else(limit):
    codes = "scale" in limit
    reference = np.float32([1.0, 2.0])
    assert_close(reference, np.int8([14, 20]) if codes else np.float32([1.4, 2.0]), **limit)
    assert message(reference, np.int8([20, 20]) if codes else np.float32([9.0, 2.0]), **limit)


def test_a_nan_does_not_hide_how_far_off_the_rest_is():
    reference, backend = np.zeros((4, 5), np.float32), np.zeros((4, 5), np.float32)
    reference[0, 0], backend[0, 1], backend[0, 2], backend[2, 3] = NAN, NAN, INF, 0.5
    reference[3, 3] = backend[3, 3] = NAN
    reference[3, 4], backend[3, 4] = INF, -INF
    text = message(reference, backend, atol=10.0)
    assert "4 of 20 elements are NaN or infinite in one run only" in text
    assert "finite   1 of 20 elements (5.0 %) differ" in text
    assert "NaN      1 in the reference only, 1 in the backend only; 1 agree" in text
    assert "Inf      0 in the reference only, 1 in the backend only, 1 of opposite sign" in text
    assert "largest  at (2, 3): reference 0.0, backend 0.5" in text


def test_the_worst_element_is_told_in_values_steps_and_units_in_the_last_place():
    text = message(np.float32([1.0, 4.0]), np.int8([10, 47]), scale=0.1, zero_point=0, max_lsb=1, name="conv1")
    assert text.startswith("conv1: the largest error, 7 LSB, is above the limit of 1 LSB")
    assert "at (1): reference 4.0, backend 4.7" in text
    assert "7.000 LSB (code 47)" in text
    text = message(np.float32([1.0]), np.float32([1.0 + 2**-22]))
    assert "2 ULP of float32" in text
    assert "ULP of bfloat16" in message(np.array([1.0], ml_dtypes.bfloat16), np.array([1.5], ml_dtypes.bfloat16))


def test_where_only_nan_and_inf_differ_the_first_place_is_told():
    assert "first    at (1): reference 2.0, backend nan" in message([1.0, 2.0], [1.0, NAN])


def test_codes_by_channel():
    scale = np.array([0.1, 1.0])
    assert_close(np.float32([[1.0, 10.0]]), np.int8([[10, 10]]), scale=scale, axis=1, atol=1e-6)
    assert "5.000 LSB" in message(np.float32([[1.0, 10.0]]), np.int8([[10, 15]]), scale=scale, axis=1, max_lsb=1)


def test_other_shapes_are_told():
    assert message(np.zeros(3), np.zeros(4)) == "the reference has shape (3,), but the backend has (4,)"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"max_lbs": 1}, "Unknown limit 'max_lbs'"), ({"max_lsb": 1}, "max_lsb needs a scale")],
)
def test_a_limit_that_would_judge_nothing_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        assert_close([1.0], [2.0], **options)


def test_a_recording_and_an_array_are_no_pair():
    with pytest.raises(UsageError, match="cannot be compared"):
        assert_close(random_recording(rng()), [1.0])


def test_recordings_that_agree_pass():
    assert_close(random_recording(rng()), random_recording(rng(), quantized=True))


def test_recordings_fail_with_the_node_its_neighbours_and_the_whole_result():
    with pytest.raises(ComparisonError) as caught:
        assert_close(random_recording(rng()), random_recording(rng(), wrong="fc2"))
    lines = str(caught.value).splitlines()
    table = [line.split() for line in lines if " MatMul " in line or " Relu " in line]
    assert ["fc1_relu" in row for row in table].count(True) == 1
    assert [row[2] for row in table if row[0] == ">"] == ["fc2"]
    assert caught.value.result.first_divergence == "fc2"
    assert caught.value.files is None
    assert any(line.startswith("coverage: 7 tensors compared") for line in lines)


def test_limits_judge_recordings_too():
    pair = random_recording(rng()), random_recording(rng(), wrong="fc2")
    assert_close(*pair, min_sqnr=-100)
    assert_close(*pair, limits=Limits(min_sqnr=-100))
    with pytest.raises(ComparisonError):
        assert_close(*pair, limits=Limits(min_sqnr=-100), atol=0)


def record(path, offset=0.0, *, plain=None):
    recorder = Recorder(path, backend="test")
    with recorder as rec:
        rec.put("x", np.ones(3, np.float32))
        rec.put("a b", np.arange(3, dtype=np.float32) + np.float32(offset), node="a b", op="Mystery", inputs=("x",))
        if plain is not None:
            rec.check({"a b": plain})
    return recorder


def test_files_are_named_in_the_command_that_opens_them(tmp_path):
    reference, backend = record(tmp_path / "ref.h5"), record(tmp_path / "be.h5", 5.0)
    with pytest.raises(ComparisonError) as caught:
        assert_close(reference, str(tmp_path / "be.h5"))
    assert f"qdebug tui {tmp_path}/ref.h5 {tmp_path}/be.h5 --node 'a b'" in str(caught.value)
    assert caught.value.files == (tmp_path / "ref.h5", tmp_path / "be.h5")
    assert backend.path == tmp_path / "be.h5"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["be.h5", "ref.h5"]


def test_closed_recorders_in_memory_are_recordings():
    assert_close(record(None), record(None))


def test_a_recording_that_changed_its_result_fails():
    with pytest.raises(ComparisonError, match="recording changed the result of the backend run"):
        assert_close(record(None), record(None, plain=np.zeros(3, np.float32)))


def test_a_clean_quantized_recording_is_explained():
    assert_explained(random_recording(rng(), quantized=True, samples=4, width=16))


def test_a_node_that_nothing_explains_fails_unless_it_is_allowed():
    wrong = random_recording(rng(), quantized=True, samples=4, width=16, wrong="fc2")
    with pytest.raises(AssertionError, match=r"no known arithmetic reproduces 1 of \d+ nodes .*:\n  MatMul fc2"):
        assert_explained(wrong)
    assert_explained(wrong, allow=("fc2",))
    assert_explained(wrong, limits=Limits(acknowledged=(Acknowledgement(node="fc2", reason="known"),)))


def test_where_nothing_can_be_judged_nothing_is_explained(tmp_path):
    recorder = record(tmp_path / "a.h5")
    with pytest.raises(AssertionError, match="no node can be judged"):
        assert_explained(recorder)
    with pytest.raises(AssertionError, match="recording changed the result"):
        assert_explained(record(tmp_path / "b.h5", plain=np.zeros(3, np.float32)))


@pytest.mark.parametrize("codes", [np.float32([0, 9]), np.float32([0, 1.001])])
def test_without_a_limit_arrays_are_unequal_for_no_other_reason_than_that(codes):
    with pytest.raises(AssertionError, match=r"^the arrays differ, and no limit was given\n"):
        assert_close(np.float32([0, 1]), codes)


def test_clipped_values_are_judged_beside_the_error_and_codes_at_the_ends_are_not():
    real, codes = np.float32([12.7, 12.7, 0.1, 0.0]), np.int8([127, 127, 1, 0])
    assert_close(real, codes, scale=np.float32(0.1), max_lsb=0.5, max_saturation=0)
    real[:2] = 12.72
    said = r"^net: its code range clips 0\.5 of the reference's values, more than the limit of 0\.25$"
    with pytest.raises(AssertionError, match=said):
        assert_close(real, codes, scale=np.float32(0.1), max_lsb=0.5, max_saturation=0.25, name="net")
    with pytest.raises(UsageError, match="max_saturation needs codes"):
        assert_close(real, real, max_saturation=0.25)


def test_one_step_is_one_step_however_the_reference_was_rounded():
    codes = np.int8([1, 2, 4])
    assert_close([0.1, 0.2, 0.3], codes, scale=0.1, max_lsb=1)
    with pytest.raises(AssertionError, match=r"LSB, is above the limit of 0\.9 LSB"):
        assert_close([0.1, 0.2, 0.3], codes, scale=0.1, max_lsb=0.9)
    with pytest.raises(AssertionError, match="above the limit of 0 LSB"):
        assert_close([0.1, 0.2, 0.400001], codes, scale=0.1, max_lsb=0)


@pytest.mark.parametrize("scale", [0, -1.0, np.nan, np.inf, [0.1, 0.0]])
def test_a_scale_with_which_any_codes_would_do_is_refused(scale):
    with pytest.raises(UsageError, match="must be finite and above 0"):
        assert_close(np.zeros(2), np.int8([5, 7]), scale=scale, axis=0)


@pytest.mark.parametrize(
    ("reference", "options", "said"),
    [
        ([[1], [1, 2]], {}, "The reference is not an array: its rows differ in length"),
        (np.ones((2, 3)), {"scale": [1, 2]}, "The scale does not fit: 2 scales need an axis"),
        (np.ones((2, 3)), {"scale": 1.0, "zero_point": 0.5}, "The scale does not fit: "),
        (np.ones((2, 3)), {"max_lsb": float("nan")}, "The limit max_lsb must be a number"),
        (np.ones((2, 3)), {"atol": -1}, "The limit atol must be at least 0"),
    ],
)
def test_arguments_that_mean_nothing_are_errors_of_use(reference, options, said):
    with pytest.raises(UsageError, match=said):
        assert_close(reference, np.ones((2, 3), np.int8), **options)


def test_values_that_look_alike_in_two_types_are_told_apart():
    with pytest.raises(AssertionError, match=r"reference 1\.10000002384\d+, backend 1\.1\n"):
        assert_close(np.float32([1.1]), np.float64([1.1]))


def test_what_would_be_ignored_is_refused(tmp_path):
    recorder = record(tmp_path / "a.h5")
    with pytest.raises(UsageError, match="scale= applies only to arrays"):
        assert_close(recorder, recorder, scale=0.1)
    with pytest.raises(UsageError, match="needs a scale"):
        assert_close([1.0], [1.0], zero_point=3)
    with pytest.raises(UsageError, match="needs a scale"):
        assert_close([1.0], [1.0], axis=0)
    with pytest.raises(UsageError, match=r"limits must be a qdebug\.Limits, but is a str"):
        assert_close(recorder, recorder, limits="limits.toml")
    with pytest.raises(UsageError, match="A ndarray is not a recording"):
        assert_explained(np.ones(3))


def test_whatever_names_a_path_is_a_recording(tmp_path):
    class Named:
        def __fspath__(self):
            return str(tmp_path / "a.h5")

    record(tmp_path / "a.h5")
    assert_close(Named(), tmp_path / "a.h5")


def test_one_pattern_need_not_be_a_list():
    wrong = random_recording(rng(), quantized=True, samples=4, width=16, wrong="fc2")
    assert_explained(wrong, allow="fc[2]")


def test_codes_that_float32_does_not_tell_apart_are_told_apart():
    codes = np.int32([5, 2**24])
    assert_close(codes * 1.0, codes, scale=np.float32(1.0))
    with pytest.raises(AssertionError, match=r"1 of 2 elements .*differ") as raised:
        assert_close(codes * 1.0, np.int32([5, 2**24 + 1]), scale=np.float32(1.0))
    assert "reference 16777216.0, backend 16777217.0" in str(raised.value)
