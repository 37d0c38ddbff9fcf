"""Sketches are linear, the same everywhere, and estimate the squared error within their interval."""

import numpy as np
import pytest

from qdebug.model import QuantParams
from qdebug.model.kept import SKETCH_SIZE
from qdebug.numerics.sketch import squared_error, take_sketch


def error_of(reference, backend):
    return squared_error(take_sketch(reference, None), take_sketch(backend, None))


@pytest.mark.parametrize("size", [1, 63, 4096, 4097, 300_000])
def test_the_interval_holds_the_true_error(size):
    rng = np.random.default_rng(size)
    for trial in range(10):
        reference = rng.normal(size=size)
        backend = reference.copy()
        backend[:: 1 + trial * size // 10] += rng.normal() * 10.0**-trial
        true = np.sum((backend - reference) ** 2)
        error = error_of(reference, backend)
        assert error.low <= true <= error.high


def test_the_estimate_is_unbiased_with_the_stated_spread():
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(200):
        values = rng.normal(size=500)
        ratios.append(error_of(np.zeros(500), values).estimate / np.sum(values**2))
    assert np.mean(ratios) == pytest.approx(1, abs=4 * np.sqrt(2 / SKETCH_SIZE / 200))
    assert np.std(ratios) < 1.3 * np.sqrt(2 / SKETCH_SIZE)


def test_equal_tensors_have_no_error_and_rounding_is_in_the_interval():
    values = np.random.default_rng(1).normal(size=10_000)
    error = error_of(values, values)
    assert (error.estimate, error.low) == (0, 0)
    nudged = values.copy()
    nudged[5] += 1e-9  # lost in the rounding of projections
    assert error_of(values, nudged).low == 0
    assert error_of(values, nudged).high > 1e-18


def test_projections_are_linear_and_do_not_depend_on_the_shape():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=(2, 3, 5000)).astype(np.float32)
    whole = take_sketch(first.astype(np.float64) + second, None)
    np.testing.assert_allclose(whole, take_sketch(first, None) + take_sketch(second, None), rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(take_sketch(first, None), take_sketch(first.ravel(), None))


def test_projections_stay_the_same_in_all_versions():
    assert take_sketch(np.arange(5.0), None)[:8].tolist() == [2, -6, 6, 10, -8, 0, -8, 4]


def test_codes_are_sketched_as_real_values():
    codes = np.random.default_rng(3).integers(-128, 128, (4, 700), np.int8)
    quant = QuantParams(dtype="int8", scale=np.float32([0.5, 0.25, 1, 2]), zero_point=[1, 2, 3, 4], axis=0)
    real = (codes - np.array([[1], [2], [3], [4]])) * np.float32([[0.5], [0.25], [1], [2]])
    np.testing.assert_allclose(take_sketch(codes, quant), take_sketch(real, None), rtol=1e-6)


def test_special_values():
    assert take_sketch(np.zeros(3, np.complex64), None) is None
    assert (
        take_sketch(np.array([np.nan, np.inf, 1.0]), None).tolist() == take_sketch(np.array([0, 0, 1.0]), None).tolist()
    )
    assert not take_sketch(np.zeros(0), None).any()
    assert error_of(np.zeros(1), np.full(1, 1e300)) is None  # overflows float32
