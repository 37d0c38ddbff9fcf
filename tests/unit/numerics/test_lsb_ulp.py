"""Distance in units in the last place, against counting floats one by one."""

import math
from bisect import bisect_left
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.numerics.blocks import scratch
from qdebug.numerics.histogram import count_rows
from qdebug.numerics.lsb import UlpCounter, shared_type, ulp_distance

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = map(np.dtype, (np.float16, np.float32, np.float64))


def every_finite(dtype):
    """Return all finite values of a 16-bit type as sorted numbers, the two zeros as one."""
    with np.errstate(invalid="ignore"):
        values = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float64)
    return sorted(set(values[np.isfinite(values)].tolist()))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_the_distance_is_the_number_of_floats_between(dtype):
    ladder = every_finite(dtype)
    generator = np.random.default_rng(0)
    places = generator.integers(0, len(ladder), (2, 4000))
    first, second = (np.array([ladder[p] for p in side]).astype(dtype) for side in places)
    assert ulp_distance(first, second).tolist() == np.abs(places[1] - places[0]).tolist()


def ordinal(value, dtype):
    """Return the position of a float by its exact value: its magnitude in the step of its binade."""
    info = np.finfo(dtype)
    size = abs(Fraction(float(value)))
    if size < Fraction(float(info.tiny)):
        steps = size / Fraction(float(info.smallest_subnormal))
    else:
        exponent = math.frexp(float(abs(value)))[1] - 1
        first = math.frexp(float(info.tiny))[1] - 1
        steps = (exponent - first + size / Fraction(2) ** exponent) * 2**info.nmant
    assert steps.denominator == 1
    return int(steps) * (-1 if value < 0 else 1)


@drawn(100)
@given(data=st.data(), width=st.sampled_from([32, 64]))
def test_wide_floats_are_as_far_apart_as_their_positions(data, width):
    dtype = F32 if width == 32 else F64
    floats = st.floats(width=width, allow_nan=False, allow_infinity=False)
    a, b = (np.array([data.draw(floats)], dtype) for _ in range(2))
    if data.draw(st.booleans()):
        b = np.nextafter(a, b)
    exact = abs(ordinal(b[0], dtype) - ordinal(a[0], dtype))
    assert ulp_distance(a, b).tolist() == ulp_distance(b, a).tolist() == [exact]
    counter = UlpCounter(dtype)
    counter.add(a.astype(np.float64), b.astype(np.float64))
    found = counter.errors()
    assert (found.dtype, found.max_ulp) == (dtype.name, exact)
    assert found.counts.tolist() == [0] * exact.bit_length() + [1]


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_zeros_and_signs(dtype):
    info = ml_dtypes.finfo(dtype)
    zero, least, most = (np.array([float(x)]).astype(dtype) for x in (0.0, info.smallest_subnormal, info.max))
    assert ulp_distance(zero, -zero).tolist() == [0]
    assert ulp_distance(-least, least).tolist() == [2]
    assert ulp_distance(-most, most).tolist() == [2 * int(ulp_distance(zero, most)[0])]


def test_counts_are_by_power_of_two():
    counter = UlpCounter(F32)
    a = np.ones(6)
    counter.add(a, a + np.array([0, 1, 2, 3, 4, 1000]) * 2.0**-23)
    counter.add(a[:1], a[:1])
    found = counter.errors()
    assert found.counts.tolist() == [2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1]
    assert found.max_ulp == 1000
    assert not found.counts.flags.writeable
    assert UlpCounter(F32).errors().max_ulp is None


@pytest.mark.parametrize("power", range(1, 64))
def test_distances_of_float64_beside_a_power_of_two_are_in_the_right_entry(power):
    for distance, entry in ((2**power - 1, power), (2**power, power + 1)):
        if distance > 2**63 - 2**53:
            continue
        bits = np.array([distance - distance // 2], np.int64)
        counter = UlpCounter(F64)
        low = -(np.array([distance // 2], np.int64).view(np.float64))
        counter.add(low, bits.view(np.float64))
        assert counter.errors().counts.tolist() == [0] * entry + [1]


def test_two_types_are_compared_in_the_coarser():
    assert shared_type(F32, F16) == shared_type(F16, F32) == F16
    assert shared_type(F16, BF16) == BF16
    assert shared_type(F64.newbyteorder(">"), F64) == F64
    assert shared_type(F32, np.dtype(np.int8)) is None
    assert shared_type(np.dtype(ml_dtypes.float8_e5m2), F32) is None


def test_the_finer_side_is_rounded_once():
    ladder = every_finite(BF16)
    above = bisect_left(ladder, 1.0)
    middle = (ladder[above] + ladder[above + 1]) / 2
    for value, expected in ((middle + 2.0**-40, 1), (middle - 2.0**-40, 0), (middle, 0), (-middle - 2.0**-40, -1)):
        counter = UlpCounter(BF16)
        sign = math.copysign(1.0, value)
        counter.add(np.array([sign]), np.array([value]))
        assert counter.errors().max_ulp == abs(expected)


@pytest.mark.parametrize("crossing", [0.0, 0.001, 0.5])
@pytest.mark.parametrize("spread", [1e-7, 1e-3, 10.0])
def test_float32_is_counted_as_it_is_without_buffers(spread, crossing):
    generator = np.random.default_rng(0)
    a = generator.standard_normal(4000).astype(np.float32)
    a[:3] = 0.0, -0.0, -3e38
    b = (a * (1.0 + spread * generator.standard_normal(4000))).astype(np.float32)
    b *= np.where(generator.random(4000) < crossing, np.float32(-1.0), np.float32(1.0))
    b[:3] = -0.0, 1e-45, 3e38
    plain, fast = UlpCounter(F32), UlpCounter(F32)
    for part in (slice(0, 1500), slice(1500, 4000)):
        plain.add(a[part], b[part])
        fast.add(a[part], b[part], scratch())
    expected = ulp_distance(a, b).astype(np.int64)
    assert fast.errors().max_ulp == plain.errors().max_ulp == expected.max()
    assert fast.errors().counts.tolist() == plain.errors().counts.tolist()
    assert fast.errors().counts.tolist() == np.bincount([int(d).bit_length() for d in expected]).tolist()


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_few_elements_are_counted_by_their_distances(dtype):
    generator = np.random.default_rng(0)
    values = generator.standard_normal((2, 500)).astype(dtype).astype(np.float32)
    values[1, 100:] = values[0, 100:]
    values[:, :3] = [[0.0, -1.0, 3e38 if dtype != F16 else 6e4], [-0.0, 1.0, -3e38 if dtype != F16 else -6e4]]
    values = values.astype(dtype).astype(np.float32)
    plain, few, distances = UlpCounter(dtype), UlpCounter(dtype), np.empty((1, 500))
    plain.add(*values)
    few.distances(values, distances[0])
    assert distances[0].tolist() == ulp_distance(*values.astype(dtype)).tolist()
    few.add_counts(count_rows(distances)[0], distances[0])
    assert few.errors().max_ulp == plain.errors().max_ulp
    assert few.errors().counts.tolist() == plain.errors().counts.tolist()


def test_what_has_no_ulp_is_refused():
    for first, second in ((np.zeros(1), np.zeros(1, F32)), (np.zeros(1, int), np.zeros(1, int))):
        with pytest.raises(UsageError, match="ULP distance"):
            ulp_distance(first, second)
