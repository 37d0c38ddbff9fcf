"""Comparing one pair over samples and steps, on recordings that are dicts of arrays."""

import math

import ml_dtypes
import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.measure.compare import compare_pair
from qdebug.model import Graph, MemoryRecording, QuantParams, Role, TensorInfo
from qdebug.numerics.stats import Rails

F32 = np.float32
QUANT = QuantParams(dtype="int8", scale=F32(0.5), zero_point=-128)


def recording(name, values, *, quant=None, constant=False):
    """Make a recording of one tensor; values by (sample, step), by sample, or one array for one sample."""
    if not isinstance(values, dict):
        values = {0: values}
    info = TensorInfo(name=name, quant=quant, role=Role.CONSTANT if constant else Role.ACTIVATION)
    places = {key if isinstance(key, tuple) else (key, 0): np.asarray(array) for key, array in values.items()}
    return MemoryRecording(Graph(tensors=[info]), {(name, *place): array for place, array in places.items()})


def pair_of(**views):
    return Pair(reference="r", backend="b", match=Match.EXACT, reason="same name", **views)


def compared(ours, theirs, *, ours_is=None, theirs_is=None, views=None, **options):
    first = recording("r", ours, **(ours_is or {}))
    second = recording("b", theirs, **(theirs_is or {}))
    return compare_pair(first, second, pair_of(**(views or {})), **options)


def test_one_sample():
    comparison = compared(F32([1.0, 2.0]), F32([1.0, 2.5]))
    assert (comparison.stats.count, comparison.stats.max_abs, comparison.basis) == (2, 0.5, "full")
    assert (comparison.reason, comparison.note, comparison.rails) == (None, None, None)
    assert [(s.sample, s.max_abs) for s in comparison.samples] == [(0, 0.5)]
    assert comparison.samples[0].sqnr_db == comparison.stats.sqnr_db


def test_the_worst_sample_is_named_and_not_averaged_away():
    ours = {sample: np.zeros((2, 2), F32) for sample in range(5)}
    theirs = {sample: array.copy() for sample, array in ours.items()}
    theirs[3][1, 0] = 8.0
    comparison = compared(ours, theirs)
    assert (comparison.stats.worst_sample, comparison.stats.worst_index) == (3, (1, 0))
    assert [s.max_abs for s in comparison.samples] == [0.0, 0.0, 0.0, 8.0, 0.0]
    assert [s.sqnr_db for s in comparison.samples] == [math.inf, math.inf, math.inf, -math.inf, math.inf]
    assert comparison.stats.mean_abs == 8.0 / 20


def test_the_whole_equals_one_tensor_of_all_samples():
    generator = np.random.default_rng(0)
    ours = {s: generator.standard_normal((3, 7)).astype(F32) for s in range(4)}
    theirs = {s: (array * F32(1.01)).astype(F32) for s, array in ours.items()}
    parts = compared(ours, theirs).stats
    whole = compared(np.stack(list(ours.values())), np.stack(list(theirs.values()))).stats
    for name in ("count", "max_abs", "max_rel", "mismatches", "reference_min", "backend_max"):
        assert getattr(parts, name) == getattr(whole, name)
    assert parts.rmse == pytest.approx(whole.rmse, rel=1e-6)
    assert parts.worst_index == whole.worst_index[1:]
    assert parts.worst_sample == whole.worst_index[0]


def test_steps_belong_to_their_sample():
    ours = {(sample, step): F32([0.0]) for sample in range(2) for step in range(3)}
    theirs = {place: F32([float(place == (1, 2))]) for place in ours}
    comparison = compared(ours, theirs)
    assert comparison.stats.count == 6
    assert [s.max_abs for s in comparison.samples] == [0.0, 1.0]
    assert comparison.stats.worst_sample == 1


def test_samples_that_one_side_lacks_are_left_out_and_said():
    ours = {sample: F32([1.0]) for sample in range(4)}
    comparison = compared(ours, {0: F32([1.0]), 3: F32([2.0])})
    assert [s.sample for s in comparison.samples] == [0, 3]
    assert comparison.stats.worst_sample == 3
    assert comparison.note == "compared 2 of 4 samples: the backend has no values for 2"
    other = compared({0: F32([1.0])}, {0: F32([1.0]), 1: F32([1.0])})
    assert other.note == "compared 1 of 2 samples: the reference has no values for 1"


def test_steps_that_one_side_lacks_are_counted_as_steps():
    comparison = compared({(0, 0): F32([1.0]), (0, 1): F32([1.0])}, {(0, 0): F32([1.0])})
    assert comparison.note == "compared 1 of 2 steps of all samples: the backend has no values for 1"


def test_no_common_sample_is_incomparable():
    comparison = compared({0: F32([1.0])}, {1: F32([1.0])})
    assert comparison.stats is None
    assert comparison.samples == ()
    assert comparison.reason.startswith("no sample was recorded in both runs")
    nothing = compare_pair(recording("x", F32([1.0])), recording("y", F32([1.0])), pair_of())
    assert nothing.reason == "neither run has values"


def test_constants_are_compared_once():
    values = F32([1.0, 2.0])
    constant = {"constant": True}
    both = compared(values, values, ours_is=constant, theirs_is=constant)
    assert (both.stats.count, len(both.samples)) == (2, 1)
    folded = compared(values, {0: values, 1: values + F32(1)}, ours_is=constant)
    assert (folded.stats.count, folded.stats.worst_sample, folded.note) == (4, 1, None)


def test_shapes_that_differ_are_incomparable_with_both_shapes():
    comparison = compared(np.zeros((2, 3), F32), np.zeros((3, 2), F32))
    assert comparison.stats is None
    assert comparison.reason == "the reference has shape (2, 3) and the backend (3, 2)"
    later = compared({0: np.zeros(2), 1: np.zeros(2)}, {0: np.zeros(2), 1: np.zeros(3)})
    assert later.reason == "the reference has shape (2,) and the backend (3,) (sample 1, step 0)"


def test_extents_of_one_do_not_matter_and_the_index_is_the_backends():
    comparison = compared(np.zeros((1, 4, 1, 1), F32), F32([[0.0, 0.0, 1.0, 0.0]]))
    assert (comparison.reason, comparison.stats.worst_index) == (None, (0, 2))


def test_a_channel_axis_is_counted_in_its_own_shape():
    quant = QuantParams(dtype="int8", scale=F32([1.0, 10.0]), axis=1)
    comparison = compared(np.int8([[1, 1]]), F32([1.0, 10.0]), ours_is={"quant": quant})
    assert comparison.stats.mismatches == 0


@pytest.mark.parametrize("array", [np.zeros(2, np.complex64), np.array(["a", "b"]), np.array([None, None])])
def test_what_is_no_real_number_is_incomparable_with_the_side_and_the_dtype(array):
    assert compared(array, F32([0.0, 0.0])).reason.startswith("the reference's elements of dtype")
    assert compared(F32([0.0, 0.0]), array).reason.startswith("the backend's elements of dtype")


def test_quantization_that_does_not_fit_its_tensor_is_incomparable():
    quant = QuantParams(dtype="int8", scale=F32([1.0, 2.0, 3.0]), axis=0)
    comparison = compared(F32([1.0, 2.0]), np.int8([1, 1]), theirs_is={"quant": quant})
    assert comparison.stats is None
    assert "do not fit axis 0 of a tensor of shape (2,)" in comparison.reason
    assert not comparison.reason.endswith(".")


def test_codes_are_compared_by_their_real_values_and_rails_are_counted():
    ours, theirs = F32([-1.0, 0.0, 1.0, 200.0]), np.int8([-128, -128, -126, 127])
    comparison = compared(ours, theirs, theirs_is={"quant": QUANT}, relu_floor=True)
    assert comparison.rails == Rails(at_qmin=2, at_qmax=1, clipped_low=1, clipped_high=1, floor=2, total=4)
    assert (comparison.stats.mismatches, comparison.stats.max_lsb) == (2, pytest.approx(145.0))


def test_the_clamp_of_a_folded_relu_is_accounted_for():
    ours, theirs = F32([-1.0, 0.0, 1.0]), np.int8([-128, -128, -126])
    clamped = compared(
        ours,
        theirs,
        theirs_is={"quant": QUANT},
        views={"reference_view": Transform(clamp_low=0.0)},
        relu_floor=True,
    )
    assert (clamped.stats.mismatches, clamped.stats.sqnr_db) == (0, math.inf)
    assert clamped.rails == Rails(at_qmin=2, at_qmax=0, clipped_low=0, clipped_high=0, floor=2, total=3)
    backwards = compared(F32([6.0]), F32([9.0]), views={"backend_view": Transform(clamp_high=6.0)})
    assert backwards.stats.mismatches == 0


def test_rails_are_summed_over_samples():
    theirs = {0: np.int8([127, 0]), 1: np.int8([127, -128])}
    ours = {sample: np.zeros(2, F32) for sample in theirs}
    comparison = compared(ours, theirs, theirs_is={"quant": QUANT})
    assert (comparison.rails.at_qmax, comparison.rails.at_qmin, comparison.rails.total) == (2, 1, 4)


def test_float_codes_have_no_rails():
    quant = QuantParams(dtype="float8_e4m3fn", scale=F32(0.5))
    codes = F32([1.0, 2.0]).astype(ml_dtypes.float8_e4m3fn)
    comparison = compared(F32([0.5, 1.0]), codes, theirs_is={"quant": quant})
    assert (comparison.rails, comparison.stats.mismatches) == (None, 0)


def test_empty_tensors_are_compared_and_equal():
    comparison = compared(np.zeros((0, 2), F32), np.zeros((0, 2), F32))
    assert (comparison.reason, comparison.stats.count, comparison.stats.max_abs) == (None, 0, None)


def test_a_tolerance_is_counted_over_all_samples():
    ours = {0: F32([1.0, 1.0]), 1: F32([1.0, 1.0])}
    theirs = {0: F32([1.0, 1.5]), 1: F32([2.0, 1.0])}
    assert compared(ours, theirs, tolerance=(0.5, 0.0)).stats.beyond_tolerance == 1
    assert compared(ours, theirs, tolerance=(0.0, 0.1)).stats.beyond_tolerance == 2


def test_each_array_is_loaded_once_and_not_written_to():
    loads = []

    class Counting(MemoryRecording):
        def load(self, tensor, sample=0, step=0):
            loads.append((tensor, sample, step))
            return super().load(tensor, sample, step)

    arrays = {("r", sample, 0): F32([-1.0, 2.0]) for sample in range(3)}
    kept = {key: array.copy() for key, array in arrays.items()}
    first = Counting(Graph(tensors=[TensorInfo(name="r")]), arrays)
    second = Counting(Graph(tensors=[TensorInfo(name="b")]), {("b", s, 0): F32([0.0, 2.0]) for s in range(3)})
    compare_pair(first, second, pair_of(reference_view=Transform(clamp_low=0.0)))
    assert sorted(loads) == sorted((name, sample, 0) for name in "rb" for sample in range(3))
    assert all(np.array_equal(array, kept[key]) for key, array in arrays.items())


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_joined_steps_give_the_index_within_the_step_and_the_sums_of_all(axis):
    rng = np.random.default_rng(3)
    scale = np.float32(0.5) if axis is None else np.linspace(0.5, 1, (3, 4)[axis]).astype(np.float32)
    quant = QuantParams(dtype="int8", scale=scale, zero_point=np.zeros_like(scale, np.int8), axis=axis)
    codes = rng.integers(-90, 90, (50, 3, 4)).astype(np.int8)
    wrong = codes + rng.integers(0, 3, codes.shape).astype(np.int8)
    wrong[37, 2, 1] += 20
    runs = [{(0, step): array[step] for step in range(50)} for array in (codes, wrong)]
    stats = compared(*runs, ours_is={"quant": quant}, theirs_is={"quant": quant}).stats
    assert stats.worst_index == (2, 1)
    assert (stats.count, stats.mismatches) == (600, int(np.count_nonzero(codes != wrong)))
    shape = [-1 if at == axis else 1 for at in range(2)]
    error = (wrong.astype(float) - codes) * np.reshape(scale, shape)
    assert stats.rmse == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=1e-6)
    assert stats.max_abs == pytest.approx(float(np.abs(error).max()))
