"""Arrays of many samples, one after the other: small ones wait for each other, and nothing shows it."""

import math

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.profile import Profiler
from qdebug.numerics.worst import worst_elements

F32 = np.float32
CODES = QuantParams(dtype="int8", scale=F32([0.5, 2.0, 0.25]), zero_point=[1, 0, -3], axis=0)
BLOCKS_OF_SCALE = QuantParams(dtype="int8", scale=F32([[0.5, 2.0]] * 3), axis=1, block_size=4)


def samples(shape, count, dtype=F32, seed=0):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        a = generator.standard_normal(shape) * 20
        yield a.astype(dtype), (a + generator.standard_normal(shape)).astype(dtype)


def profiler_of(arrays, **options):
    quant = options.get("backend_quant")
    accumulator = ErrorAccumulator(reference_quant=options.get("reference_quant"), backend_quant=quant)
    for sample, (a, b) in enumerate(arrays):
        accumulator.update(a, b, sample=sample)
    return Profiler(accumulator.stats(), **options)


def profiled(arrays, **options):
    profiler = profiler_of(arrays, **options)
    for sample, (a, b) in enumerate(arrays):
        assert profiler.add(a, b, sample=sample, step=sample % 2)
    return profiler.profile()


def best(arrays, k, **quants):
    """Return the worst elements of every sample by itself, merged."""
    every = [e for sample, (a, b) in enumerate(arrays) for e in worst_elements(a, b, k=k, sample=sample, **quants)]
    return sorted(every, key=lambda element: -abs(element.difference))[:k]


def unlike_step(elements):
    return [(e.index, e.sample, e.reference, e.backend, e.lsb, e.reference_code, e.backend_code) for e in elements]


@pytest.mark.parametrize("quants", [{}, {"backend_quant": CODES}, {"reference_quant": CODES, "backend_quant": CODES}])
@pytest.mark.parametrize("shape", [(3, 7), (3, 8, 11)])
def test_the_worst_of_many_small_samples_have_their_own_place_and_codes(shape, quants):
    arrays = [
        (a if "reference_quant" not in quants else a.astype(np.int8), b.astype(np.int8) if quants else b)
        for a, b in samples(shape, 200)
    ]
    profile = profiled(arrays, k=30, **quants)
    assert unlike_step(profile.worst) == unlike_step(best(arrays, 30, **quants))
    assert all(element.step == element.sample % 2 for element in profile.worst)
    assert (profile.tensors, profile.shape, profile.sample) == (200, shape, None)
    assert profile.errors.total == 200 * math.prod(shape)


def test_steps_of_blocks_of_a_scale_are_those_of_each_sample():
    arrays = [(a, b.astype(np.int8)) for a, b in samples((3, 8), 50)]
    profile = profiled(arrays, k=10, backend_quant=BLOCKS_OF_SCALE)
    assert unlike_step(profile.worst) == unlike_step(best(arrays, 10, backend_quant=BLOCKS_OF_SCALE))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_channels_of_many_small_samples_are_those_of_one_tensor(axis):
    arrays = list(samples((4, 3, 5), 2 * BLOCK // 60 + 7))
    found = profiled(arrays, axis=axis).channels
    a, b = (np.stack(side).astype(np.float64) for side in zip(*arrays, strict=True))
    others = tuple(k for k in range(4) if k != (axis % 3) + 1)
    assert found.axis == axis % 3
    assert found.max_abs.tolist() == np.abs(b - a).max(axis=others).tolist()
    assert found.rmse == pytest.approx(np.sqrt(((b - a) ** 2).mean(axis=others)), rel=1e-12)


def test_shapes_and_sizes_may_change_on_the_way():
    shapes = [(2, 3), (2, 3), (3, 2), (2049,), (2, 3), (0,), (2, 3), (1,)]
    arrays = [next(samples(shape, 1, seed=k)) for k, shape in enumerate(shapes)]
    profile = profiled(arrays, k=40)
    assert unlike_step(profile.worst) == unlike_step(best(arrays, 40))
    assert profile.tensors == len(shapes)
    assert profile.errors.total == sum(math.prod(shape) for shape in shapes)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float16, ml_dtypes.bfloat16, np.bool_])
def test_other_types_are_counted_alike(dtype):
    arrays = list(samples((5, 6), 40, dtype))
    profile = profiled(arrays, k=15)
    assert unlike_step(profile.worst) == unlike_step(best(arrays, 15))
    assert profile.errors.total == 40 * 30


def test_what_is_not_finite_in_one_of_many_is_counted_apart():
    arrays = list(samples((4,), 30))
    arrays[17][1][2] = math.nan
    profile = profiled(arrays)
    assert (profile.errors.nonfinite, profile.worst[0].sample, profile.worst[0].index) == (1, 17, (2,))
    assert profile.ulp.counts.sum() == 30 * 4 - 1


def test_a_caller_may_write_to_its_arrays_afterwards():
    profiler = Profiler(profiled([(F32([0.0, 1.0]), F32([0.5, 1.0]))]).stats)
    a, b = F32([0.0, 1.0]), F32([0.5, 1.0])
    profiler.add(a, b)
    a[:], b[:] = 7.0, 9.0
    (worst,) = profiler.profile().worst
    assert (worst.reference, worst.backend) == (0.0, 0.5)


def test_asking_in_between_shows_what_has_come_so_far():
    arrays = list(samples((3,), 3))
    profiler = profiler_of(arrays)
    totals = []
    for a, b in arrays:
        profiler.add(a, b)
        totals.append(profiler.profile().errors.total)
    assert totals == [3, 6, 9]


def test_a_small_array_can_be_cancelled_after_it_too():
    ((a, b),) = samples((3,), 1)
    assert not profiler_of([(a, b)]).add(a, b, cancelled=lambda: True)


def test_what_does_not_fit_is_refused_when_it_comes():
    profiler = profiler_of(list(samples((3,), 1)))
    with pytest.raises(UsageError, match="shape"):
        profiler.add(np.zeros((2, 3)), np.zeros((3, 2)))
    with pytest.raises(UsageError, match="complex"):
        profiler.add(np.zeros(2, np.complex64), np.zeros(2, F32))
