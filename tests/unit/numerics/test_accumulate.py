"""Error metrics on chosen tensors: special values, large tensors, unusual memory, clamps, steps and merging."""

import math
import tracemalloc
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator, has_same_elements
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import Scratch

INF, NAN = math.inf, math.nan
F32 = np.float32
ULP = 2.0**-23


def stats_of(a, b, **options):
    accumulator = ErrorAccumulator(**options)
    accumulator.update(np.asarray(a), np.asarray(b), sample=0)
    return accumulator.stats()


def noisy(size, *, seed=0, noise=1e-3):
    generator = np.random.default_rng(seed)
    a = generator.standard_normal(size).astype(F32)
    return a, a + generator.standard_normal(size).astype(F32) * F32(noise)


def test_the_plain_case_by_hand():
    stats = stats_of(F32([3.0, 4.0, 0.0]), F32([3.0, 2.0, 1.0]))
    assert (stats.count, stats.mismatches, stats.zero_refs) == (3, 2, 1)
    assert (stats.max_abs, stats.mean_abs, stats.max_rel) == (2.0, 1.0, 0.5)
    assert stats.rmse == pytest.approx(math.sqrt(5 / 3))
    assert stats.rel_l2 == pytest.approx(math.sqrt(5) / 5)
    assert stats.sqnr_db == pytest.approx(10 * math.log10(25 / 5))
    assert stats.cosine == pytest.approx(17 / math.sqrt(25 * 14))
    assert (stats.worst_index, stats.worst_sample, stats.max_lsb) == ((1,), 0, None)
    assert (stats.reference_min, stats.reference_max, stats.backend_min, stats.backend_max) == (0.0, 4.0, 1.0, 3.0)


@pytest.mark.parametrize("dtype", [F32, np.float64, np.int64])
def test_no_elements_have_no_metrics(dtype):
    stats = stats_of(np.zeros((0, 3), dtype), np.zeros((0, 3), dtype))
    assert (stats.count, stats.mismatches, stats.zero_refs, stats.nonfinite) == (0, 0, 0, 0)
    numbers = ("max_abs", "mean_abs", "rmse", "max_rel", "rel_l2", "sqnr_db", "cosine", "worst_index", "worst_sample")
    assert all(getattr(stats, name) is None for name in (*numbers, "reference_min", "backend_max"))


@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_two_zero_tensors_are_identical_and_negative_zero_is_zero(dtype):
    stats = stats_of(np.zeros(3, dtype), -np.zeros(3, dtype))
    assert (stats.mismatches, stats.zero_refs, stats.max_rel) == (0, 3, None)
    assert (stats.sqnr_db, stats.rel_l2, stats.cosine, stats.max_abs) == (INF, 0.0, 1.0, 0.0)
    assert stats.worst_index == (0,)


@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_a_zero_reference_with_error_is_the_worst_ratio_there_is(dtype):
    stats = stats_of(np.zeros(2, dtype), np.array([0.0, 1.0], dtype))
    assert (stats.sqnr_db, stats.rel_l2, stats.max_rel) == (-INF, INF, None)
    assert math.isnan(stats.cosine)


@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_a_backend_of_zeros_has_no_angle(dtype):
    stats = stats_of(np.array([1.0, 2.0], dtype), np.zeros(2, dtype))
    assert (stats.sqnr_db, stats.rel_l2, stats.max_rel) == (0.0, 1.0, 1.0)
    assert math.isnan(stats.cosine)


def test_a_scalar_has_the_empty_index():
    stats = stats_of(F32(1.0), F32(1.5))
    assert (stats.count, stats.worst_index, stats.max_abs) == (1, (), 0.5)


@pytest.mark.parametrize("dtype", [F32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_nonfinite_values_match_or_are_counted_and_never_averaged(dtype):
    a = np.array([NAN, INF, -INF, INF, NAN, 1.0, 2.0, 4.0]).astype(dtype)
    b = np.array([NAN, INF, -INF, -INF, 1.0, INF, 2.0, 3.0]).astype(dtype)
    stats = stats_of(a, b)
    assert (stats.matched_nonfinite, stats.nonfinite, stats.mismatches) == (3, 3, 4)
    assert (stats.max_abs, stats.mean_abs, stats.max_rel) == (INF, 0.5, 0.25)
    assert all(math.isnan(value) for value in (stats.sqnr_db, stats.rel_l2, stats.cosine))
    assert stats.worst_index == (3,)
    assert (stats.reference_max, stats.backend_max, stats.backend_min) == (4.0, 3.0, 1.0)


def test_nothing_finite_leaves_counts_only():
    stats = stats_of(F32([NAN, INF]), F32([NAN, INF]))
    assert (stats.matched_nonfinite, stats.mismatches, stats.max_abs, stats.sqnr_db) == (2, 0, None, None)
    assert stats.worst_index is None


def test_a_nonfinite_disagreement_outweighs_every_number_before_and_after_it():
    accumulator = ErrorAccumulator()
    accumulator.update(F32([0.0]), F32([1e30]), sample=0)
    accumulator.update(F32([0.0, 1.0]), F32([0.0, NAN]), sample=1)
    accumulator.update(F32([0.0]), F32([2e30]), sample=2)
    stats = accumulator.stats()
    assert (stats.worst_sample, stats.worst_index, stats.max_abs) == (1, (1,), INF)


def test_nan_in_one_block_spoils_no_other():
    a, b = noisy(3 * BLOCK)
    clean = stats_of(a, b)
    b[BLOCK + 5] = NAN
    stats = stats_of(a, b)
    assert (stats.nonfinite, stats.worst_index, stats.max_abs) == (1, (BLOCK + 5,), INF)
    assert stats.rmse == pytest.approx(clean.rmse, rel=1e-4)


@pytest.mark.parametrize("size", [1e-25, 1e25, 1e-42, 3e38])
def test_float32_squares_that_leave_float32(size):
    a, b = F32([size, -size, size / 2]), F32([size / 2, size, size / 4])
    exact = [Fraction(float(y)) - Fraction(float(x)) for x, y in zip(a, b, strict=True)]
    stats = stats_of(a, b)
    assert stats.max_abs == max(float(abs(e)) for e in exact)
    assert stats.rmse == pytest.approx(float(sum((e / exact[1]) ** 2 for e in exact) / 3) ** 0.5 * abs(float(exact[1])))
    squares = sum(Fraction(float(x)) ** 2 for x in a) / sum(e * e for e in exact)
    assert stats.sqnr_db == pytest.approx(10 * math.log10(squares))


@pytest.mark.parametrize("size", [1e-300, 1e300, 5e-324])
def test_float64_squares_that_leave_float64(size):
    stats = stats_of(np.array([size, size]), np.array([size, -size]))
    assert stats.max_abs == 2 * size
    assert stats.rmse == pytest.approx(math.sqrt(2) * size, rel=1e-12) if size > 1e-320 else True
    assert stats.sqnr_db == pytest.approx(10 * math.log10(2 / 4))
    assert stats.cosine == pytest.approx(0.0, abs=1e-12)


def test_a_difference_beyond_float64_is_infinite_but_its_ratio_is_not():
    stats = stats_of(np.array([1.5e308]), np.array([-1.5e308]))
    assert (stats.max_abs, stats.nonfinite, stats.rmse) == (INF, 0, INF)
    assert stats.sqnr_db == pytest.approx(-10 * math.log10(4))
    assert stats.cosine == -1.0


def test_a_tiny_difference_beside_a_huge_value_is_not_lost():
    stats = stats_of(np.array([1e200, 1.0]), np.array([1e200, 2.0]))
    assert stats.rel_l2 == pytest.approx(1e-200, rel=1e-12)
    assert stats.sqnr_db == pytest.approx(4000.0)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1.0 + 2.0**-23, 123456.789])
@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_sums_over_a_constant_tensor_do_not_drift(value, dtype):
    size = 16 * BLOCK + 77
    a, b = np.full(size, value, dtype), np.full(size, value * 1.25, dtype)
    x, y = Fraction(float(a[0])), Fraction(float(b[0]))
    stats = stats_of(a, b)
    assert stats.mean_abs == pytest.approx(float(y - x), rel=4 * ULP)
    assert stats.rmse == pytest.approx(float(y - x), rel=4 * ULP)
    assert stats.rel_l2 == pytest.approx(float((y - x) / x), rel=4 * ULP)
    assert stats.cosine == pytest.approx(1.0, abs=4 * ULP)


@pytest.mark.parametrize("seed", range(4))
def test_sums_over_a_large_tensor_are_within_four_ulp(seed):
    generator = np.random.default_rng(seed)
    a = (generator.standard_t(2, 20 * BLOCK + 1000) * 10).astype(F32)
    b = (a + generator.laplace(size=a.size) * 0.1).astype(F32)
    x, y = a.astype(np.float64), b.astype(np.float64)
    d = y - x
    stats = stats_of(a, b)
    assert stats.mean_abs == pytest.approx(math.fsum(np.abs(d)) / d.size, rel=4 * ULP)
    assert stats.rmse == pytest.approx(math.sqrt(math.fsum(d * d) / d.size), rel=4 * ULP)
    assert stats.rel_l2 == pytest.approx(math.sqrt(math.fsum(d * d) / math.fsum(x * x)), rel=4 * ULP)
    cosine = math.fsum(x * y) / math.sqrt(math.fsum(x * x) * math.fsum(y * y))
    assert stats.cosine == pytest.approx(cosine, abs=4 * ULP)
    assert stats.max_abs == np.abs(d).max()
    assert stats.worst_index == (int(np.abs(d).argmax()),)
    assert stats.max_rel == (np.abs(d[x != 0]) / np.abs(x[x != 0])).max()
    assert stats.mismatches == np.count_nonzero(x != y)


def test_unrelated_tensors_have_a_right_angle():
    a, b = noisy(4 * BLOCK, seed=1)[0], noisy(4 * BLOCK, seed=2)[0]
    x, y = a.astype(np.float64), b.astype(np.float64)
    stats = stats_of(a, b * F32(1000))
    assert stats.cosine == pytest.approx(x @ y / math.sqrt((x @ x) * (y @ y)), abs=4 * ULP)


def test_the_cosine_of_nearly_equal_tensors_keeps_its_digits():
    a, b = noisy(2 * BLOCK, noise=1e-4)
    with mpmath.workdps(40):
        x, y = ([mpmath.mpf(float(v)) for v in side] for side in (a, b))
        exact = 1 - mpmath.fdot(x, y) / mpmath.sqrt(mpmath.fdot(x, x) * mpmath.fdot(y, y))
    assert 1.0 - stats_of(a, b).cosine == pytest.approx(float(exact), rel=1e-5)


def test_wrapping_subtraction_is_not_used():
    assert stats_of(np.int8([-128]), np.int8([127])).max_abs == 255.0
    assert stats_of(np.uint8([250]), np.uint8([3])).max_abs == 247.0
    extremes = stats_of(np.int64([-(2**63)]), np.int64([2**63 - 1]))
    assert extremes.max_abs == float(2**64 - 1)
    assert stats_of(np.uint64([2**64 - 1]), np.int64([-(2**63)])).max_abs == float(2**64 + 2**63 - 1)


def test_integers_that_are_equal_as_floats_are_still_told_apart():
    a = np.int64([2**53, 2**62, 7])
    stats = stats_of(a, a + 1)
    assert (stats.mismatches, stats.max_abs, stats.mean_abs) == (3, 1.0, 1.0)
    assert stats_of(a, a.astype(np.float64)).mismatches == 0
    assert stats_of(a + 1, a.astype(np.float64)).mismatches == 3


def test_a_clamp_reaches_every_width():
    for dtype in (F32, np.float64, np.int64, np.int8):
        a, b = np.array([-5, 3, 9], dtype), np.array([0, 3, 6], dtype)
        kept = a.copy()
        stats = stats_of(a, b, reference_clamp=(0.0, 6.0))
        assert (stats.mismatches, stats.reference_min, stats.reference_max) == (0, 0.0, 6.0), dtype
        assert stats_of(a, b).mismatches == 2
        assert np.array_equal(a, kept)


def test_a_clamp_keeps_nan_and_bounds_infinity():
    stats = stats_of(F32([NAN, INF, -INF]), F32([NAN, 6.0, 0.0]), reference_clamp=(0.0, 6.0))
    assert (stats.mismatches, stats.matched_nonfinite, stats.nonfinite) == (0, 1, 0)


def test_a_clamp_holds_for_dequantized_values_of_the_backend_too():
    quant = QuantParams(dtype="int8", scale=F32(0.5), zero_point=0)
    stats = stats_of(F32([0.0, 1.0]), np.int8([-7, 2]), backend_quant=quant, backend_clamp=(0.0, None))
    assert (stats.mismatches, stats.max_lsb) == (0, 0.0)


def test_steps_between_codes_are_whole_and_between_real_values_are_not():
    quant = QuantParams(dtype="int8", scale=F32(0.1), zero_point=-3)
    a = np.arange(-120, 120, dtype=np.int8)
    stats = stats_of(a, a + np.int8(2), reference_quant=quant, backend_quant=quant)
    assert stats.max_lsb == 2.0
    real = (a.astype(F32) + F32(3)) * F32(0.1)
    assert stats_of(real, a + np.int8(2), backend_quant=quant).max_lsb == 2.0
    assert stats_of(real + F32(0.05), a, backend_quant=quant).max_lsb == pytest.approx(0.5, rel=1e-3)
    assert stats_of(a, real, reference_quant=quant).max_lsb is None
    assert stats_of(a, real, reference_quant=quant, step=0.1).max_lsb == 0.0


def test_the_bias_tells_an_offset_from_rounding():
    quant = QuantParams(dtype="int8", scale=F32(0.1), zero_point=-3)
    a = np.arange(-120, 120, dtype=np.int8)
    options = {"reference_quant": quant, "backend_quant": quant}
    shifted, noise = a.copy(), a.copy()
    shifted[::3] -= np.int8(1)
    noise[::4] += np.int8(1)
    noise[1::4] -= np.int8(1)
    assert stats_of(a, shifted, **options).lsb_bias == pytest.approx(-1.0, rel=1e-5)
    assert stats_of(a, noise, **options).lsb_bias == pytest.approx(0.0, abs=1e-5)
    assert stats_of(a, a, **options).lsb_bias == 0.0
    assert stats_of(a, shifted).lsb_bias is None


def test_the_bias_is_over_all_samples_and_survives_merging():
    quant = QuantParams(dtype="int8", scale=F32(0.5))
    parts = [ErrorAccumulator(backend_quant=quant) for _ in range(2)]
    parts[0].update(F32([0.0, 0.0, 0.0]), np.int8([0, 2, 2]), sample=0)
    parts[1].update(F32([0.0, 0.0]), np.int8([-1, 0]), sample=1)
    parts[0].merge(parts[1])
    assert parts[0].stats().lsb_bias == 1.0


def test_a_clamp_beside_the_lattice_gives_a_fraction_of_a_step():
    quant = QuantParams(dtype="int8", scale=F32(0.5))
    options = {"reference_quant": quant, "backend_quant": quant, "reference_clamp": (None, 0.75)}
    assert stats_of(np.int8([4]), np.int8([1]), **options).max_lsb == 0.5


def test_steps_of_a_channel_count_not_the_largest_difference():
    quant = QuantParams(dtype="int8", scale=F32([0.01, 1.0]), axis=1)
    a = np.zeros((3, 2), np.int8)
    b = a.copy()
    b[1, 0], b[2, 1] = 9, 1
    stats = stats_of(a, b, reference_quant=quant, backend_quant=quant)
    assert (stats.max_lsb, stats.max_abs, stats.worst_index) == (9.0, 1.0, (2, 1))


@pytest.mark.parametrize("scale", [0.0, NAN, INF, -1.0])
def test_a_scale_that_measures_nothing_gives_no_steps(scale):
    quant = QuantParams(dtype="int8", scale=F32(scale))
    stats = stats_of(F32([1.0, 2.0]), np.int8([1, 2]), backend_quant=quant)
    assert stats.max_lsb is None
    assert stats.count == 2


def test_shapes_may_differ_by_extents_of_one_with_the_index_in_the_backends_shape():
    assert has_same_elements((1, 3, 1), (3,))
    assert not has_same_elements((3, 2), (2, 3))
    stats = stats_of(np.zeros((1, 3, 1), F32), F32([[0.0, 1.0, 0.0]]))
    assert stats.worst_index == (0, 1)


@pytest.mark.parametrize(("a", "b"), [(np.zeros(3), np.zeros(4)), (np.zeros((2, 3)), np.zeros((3, 2)))])
def test_other_shapes_are_refused(a, b):
    with pytest.raises(UsageError, match="shape"):
        stats_of(a, b)


@pytest.mark.parametrize("array", [np.zeros(2, np.complex64), np.array(["a"]), np.array([None])])
def test_what_is_no_real_number_is_refused(array):
    with pytest.raises(UsageError, match=r"complex|not supported"):
        stats_of(array, array)


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(array.tobytes(), np.uint8)
    return raw[1:].view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("dtype", [F32, np.float64, np.float16, np.int64])
def test_how_a_tensor_lies_in_memory_does_not_matter(dtype, tmp_path):
    a, b = ((side * 100).astype(dtype).reshape(3, -1, 8) for side in noisy(3 * BLOCK + 24))
    plain = stats_of(a, b)
    on_disk = np.memmap(tmp_path / "b", dtype, "w+", shape=b.shape)
    on_disk[:] = b
    on_disk.flags.writeable = False
    forms = [a.astype(a.dtype.newbyteorder(">")), np.asfortranarray(a), np.repeat(a, 2, axis=1)[:, ::2], unaligned(a)]
    assert not forms[3].flags.aligned or a.dtype.itemsize == 1
    for form in forms:
        assert stats_of(form, on_disk) == plain
        assert stats_of(b, form) == stats_of(b, a)


def test_memory_stays_small_whatever_the_size():
    size = 64 * BLOCK
    a, b = (np.broadcast_to(F32(value), (size,)) for value in (1.0, 1.5))
    stats_of(a[:10], b[:10])
    tracemalloc.start()
    try:
        stats = stats_of(a, b)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stats.mean_abs == 0.5
    buffers = [x for value in vars(Scratch()).values() for x in (value if isinstance(value, tuple) else (value,))]
    assert peak + sum(x.nbytes for x in buffers) < 4 * 2**20


def test_updates_of_several_samples_name_the_worst_one_and_ties_go_to_the_first():
    accumulator = ErrorAccumulator()
    for sample, error in enumerate((0.5, 2.0, 2.0)):
        accumulator.update(F32([1.0, 1.0]), F32([1.0, 1.0 + error]), sample=sample)
    stats = accumulator.stats()
    assert (stats.worst_sample, stats.worst_index, stats.count) == (1, (1,), 6)


def test_merging_at_block_boundaries_gives_the_same_bytes_in_a_fixed_order():
    a, b = noisy(4 * BLOCK)
    parts = []
    for start in range(0, a.size, BLOCK):
        parts.append(ErrorAccumulator())
        parts[-1].update(a[start : start + BLOCK], b[start : start + BLOCK], sample=0)
    merged = ErrorAccumulator()
    for part in parts:
        merged.merge(part)
    whole = stats_of(a, b)
    assert merged.stats().rmse == whole.rmse
    assert merged.stats().cosine == whole.cosine
    assert merged.stats().max_rel == whole.max_rel
    assert parts[1].stats().count == BLOCK


def test_a_tolerance_counts_what_is_beyond_it():
    a, b = F32([1.0, 2.0, 0.0, NAN]), F32([1.5, 2.5, 0.0, 1.0])
    assert stats_of(a, b, tolerance=(0.0, 0.25)).beyond_tolerance == 2
    assert stats_of(a, b, tolerance=(0.5, 0.0)).beyond_tolerance == 1
    assert stats_of(a, b, tolerance=(0.0, 0.0)).beyond_tolerance == 3
