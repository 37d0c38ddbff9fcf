"""One tensor in full detail: every part against its own function or definition, on every dtype."""

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import Scratch
from qdebug.numerics.profile import profile_tensor
from qdebug.numerics.worst import worst_elements

F32 = np.float32


def noisy(shape, dtype=F32, *, seed=0):
    generator = np.random.default_rng(seed)
    a = generator.standard_normal(shape)
    return a.astype(dtype), (a + generator.standard_normal(shape) * 1e-2).astype(dtype)


def parts_of(profile):
    return profile.stats, profile.worst, profile.errors.counts.tolist(), profile.errors.lowest


@pytest.mark.parametrize("dtype", [F32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_each_part_is_what_its_definition_says(dtype):
    a, b = noisy((3, 5, 2700), dtype)
    profile = profile_tensor(a, b, axis=1, sample=4)
    accumulator = ErrorAccumulator()
    accumulator.update(a, b, sample=4)
    assert profile.stats == accumulator.stats()
    assert profile.worst == worst_elements(a, b, sample=4)
    x, y = a.astype(np.float64), b.astype(np.float64)
    difference = np.abs(y - x)
    nonzero = np.floor(np.log2(difference[difference > 0])).astype(int)
    assert profile.errors.lowest == nonzero.min()
    assert profile.errors.counts.tolist() == np.bincount(nonzero - nonzero.min()).tolist()
    assert profile.errors.zeros == np.count_nonzero(difference == 0)
    limits = min(x.min(), y.min()), max(x.max(), y.max())
    for side, found in ((x, profile.reference), (y, profile.backend)):
        assert (found.low, found.high) == limits
        assert found.counts.tolist() == np.histogram(side, 64, limits)[0].tolist()
    assert profile.channels.max_abs.tolist() == difference.max(axis=(0, 2)).tolist()
    assert profile.channels.rmse == pytest.approx(np.sqrt((difference**2).mean(axis=(0, 2))), rel=1e-12)
    assert profile.ulp.dtype == np.dtype(dtype).name
    assert profile.ulp.counts.sum() == a.size
    assert profile.ulp.max_ulp > 0


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint64, np.bool_, ml_dtypes.int4, ml_dtypes.float8_e4m3fn])
def test_other_types_have_all_but_ulp(dtype):
    a = np.array([0, 1, 1, 0, 1]).astype(dtype)
    b = np.array([1, 1, 0, 0, 1]).astype(dtype)
    profile = profile_tensor(a, b, axis=0)
    assert profile.ulp is None
    assert (profile.errors.lowest, profile.errors.counts.tolist(), profile.errors.zeros) == (0, [2], 3)
    assert profile.channels.max_abs.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]


def test_wide_integers_keep_their_difference():
    profile = profile_tensor(np.int64([2**60, 7]), np.int64([2**60 + 1, 7]), axis=0)
    assert profile.errors.counts.tolist() == [1]
    assert profile.channels.max_abs.tolist() == [1.0, 0.0]


def test_codes_are_real_values_first():
    quant = QuantParams(dtype="int8", scale=F32([0.5, 2.0]), axis=0)
    profile = profile_tensor(F32([[1.0], [2.0]]), np.int8([[2], [2]]), backend_quant=quant, axis=0)
    assert profile.channels.max_abs.tolist() == [0.0, 2.0]
    assert (profile.ulp, profile.worst[0].lsb) == (None, 1.0)


def test_clamps_are_applied_first():
    profile = profile_tensor(F32([-3.0, 1.0]), F32([0.0, 1.0]), clamps=((0.0, None), (None, None)))
    assert (profile.stats.mismatches, profile.ulp.max_ulp, profile.errors.zeros) == (0, 0, 2)
    assert profile.reference.low == 0.0


@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_what_is_not_finite_is_counted_apart_everywhere(dtype):
    a = np.array([[math.nan, math.inf, 1.0], [math.nan, math.inf, 2.0]], dtype)
    b = np.array([[math.nan, -math.inf, 1.5], [1.0, math.inf, 2.0]], dtype)
    profile = profile_tensor(a, b, axis=0)
    assert (profile.errors.nonfinite, profile.errors.total, profile.errors.lowest) == (4, 6, -1)
    assert profile.channels.nonfinite.tolist() == [1, 1]
    assert profile.channels.max_abs.tolist() == [math.inf, math.inf]
    assert np.isnan(profile.channels.rmse).all()
    assert profile.ulp.counts.sum() == 2
    assert (profile.reference.nan, profile.reference.above, profile.backend.below) == (2, 2, 1)
    assert profile.reference.total == 6
    assert [element.index for element in profile.worst] == [(0, 1), (1, 0), (0, 2)]


def test_what_both_sides_have_alike_is_no_error_of_a_channel():
    a = F32([[math.nan, math.inf, 1.0]])
    channels = profile_tensor(a, a + F32([[0, 0, 0.5]]), axis=0).channels
    assert (channels.nonfinite.tolist(), channels.max_abs.tolist(), channels.rmse.tolist()) == ([0], [0.5], [0.5])


def test_nothing_finite_has_no_histogram_of_values():
    profile = profile_tensor(F32([math.nan]), F32([math.nan]))
    assert (profile.reference, profile.backend, profile.ulp.max_ulp, profile.worst) == (None, None, None, ())


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (0, 3)])
def test_no_elements(shape):
    profile = profile_tensor(np.zeros(shape, F32), np.zeros(shape, F32), axis=0)
    assert (profile.errors.total, profile.worst, profile.reference) == (0, (), None)
    assert np.isnan(profile.channels.rmse).all()


@pytest.mark.parametrize("value", [0.0, 1e-310, 5e-324, -2.5, 1e308, 1.7e308, -1.7e308])
def test_a_constant_tensor_has_bins_around_its_value(value):
    profile = profile_tensor(np.full(3, value), np.full(3, value))
    found = profile.reference
    assert found.total == 3
    assert found.low < found.high
    assert found.counts.sum() == 3


def test_a_range_wider_than_float64_is_cut():
    profile = profile_tensor(np.array([-1.7e308, 0.0]), np.array([1.7e308, 0.0]), axis=0)
    assert (profile.reference.below, profile.backend.above) == (1, 1)
    assert profile.channels.max_abs[0] == math.inf
    assert profile.channels.sqnr_db[0] == pytest.approx(-10 * math.log10(4))
    assert (profile.errors.lowest, profile.errors.counts.tolist()) == (1024, [1])


def test_a_scalar_and_shapes_of_extent_one():
    assert profile_tensor(F32(1.0), F32(2.0)).worst[0].index == ()
    profile = profile_tensor(np.zeros((1, 3), F32), F32([0.0, 1.0, 0.0]), axis=0)
    assert (profile.shape, profile.worst[0].index, profile.channels.max_abs.tolist()) == ((3,), (1,), [0.0, 1.0, 0.0])


def test_what_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="no axis 1"):
        profile_tensor(F32([1.0]), F32([1.0]), axis=1)
    with pytest.raises(UsageError, match="shape"):
        profile_tensor(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(UsageError, match="Invalid bins"):
        profile_tensor(F32([1.0]), F32([2.0]), bins=0)


def test_how_blocks_are_cut_changes_no_count():
    a, b = noisy((2, 3, 4, BLOCK // 6 + 1))
    plain = profile_tensor(a, b)
    for axis in range(4):
        assert parts_of(profile_tensor(a, b, axis=axis)) == parts_of(plain)


@pytest.mark.parametrize("dtype", [F32, np.int64, np.float64])
def test_memory_stays_small_whatever_the_size(dtype):
    a, b = (np.broadcast_to(np.array(value, dtype), (16, 4, BLOCK)) for value in (1, 3))
    profile_tensor(a[:1, :1, :9], b[:1, :1, :9], axis=1)
    tracemalloc.start()
    try:
        profile_tensor(a, b, axis=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    buffers = [x for value in vars(Scratch()).values() for x in (value if isinstance(value, tuple) else (value,))]
    assert peak + sum(x.nbytes for x in buffers) < 4 * 2**20
