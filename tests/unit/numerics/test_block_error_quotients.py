"""The largest relative error, found in float32 and decided in float64."""

import numpy as np
import pytest

from qdebug.numerics.block_error import add_single, smallest_element
from qdebug.numerics.blocks import scratch
from qdebug.numerics.lsb import LsbSizes
from qdebug.numerics.tally import Block, Tally

F32 = np.float32


def added(a, b, tally=None, step=None):
    tally = Tally(shape=(len(a),)) if tally is None else tally
    lsb = LsbSizes(None, (len(a),), step)
    with np.errstate(all="ignore"):
        done = add_single(tally, Block(reference=F32(a), backend=F32(b), start=0, lsb=lsb), scratch())
    return done, tally


def largest(a, b):
    x, y = a.astype(np.float64), b.astype(np.float64)
    known = x != 0
    return (np.abs(y - x)[known] / np.abs(x[known])).max()


def test_the_largest_quotient_is_decided_in_float64():
    generator = np.random.default_rng(0)
    a = generator.uniform(1.0, 2.0, 20_000).astype(F32)
    b = a * F32(1.5)
    _, tally = added(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert tally.max_rel == (np.abs(y - x) / x).max()
    _, tally = added(b, a, tally)
    assert tally.max_rel == (np.abs(y - x) / x).max()


def test_a_quotient_of_denormal_references_is_not_lost_behind_a_larger_one():
    tally = Tally(shape=(4,))
    added([1.0, 1.0], [1.5, 1.0], tally)
    added([1.0, 2.0**-149], [1.25, 2.0**-148 + 2.0**-149], tally)
    assert tally.max_rel == 2.0


def test_a_quotient_whose_bound_rounds_up_to_the_error_is_not_lost():
    tally = Tally(shape=(4,))
    added([1.0], [2.2], tally)  # 1.2 * 3 denormal units rounds to 4, the error below
    added([1.0, 3 * 2.0**-149], [1.25, 7 * 2.0**-149], tally)
    assert tally.max_rel == 4 / 3


@pytest.mark.parametrize("seed", range(5))
def test_nearly_equal_quotients_of_many_blocks_are_told_apart(seed):
    generator = np.random.default_rng(seed)
    tally, best = Tally(shape=(10_000,)), 0.0
    for _ in range(8):
        a = generator.uniform(1.0, 2.0, 10_000).astype(F32)
        b = a * F32(-1.7)  # not near a, so the float32 difference is rounded
        added(a, b, tally)
        x, y = a.astype(np.float64), b.astype(np.float64)
        best = max(best, (np.abs(y - x) / x).max())
    assert tally.max_rel == best


@pytest.mark.parametrize("step", [None, 0.125])
@pytest.mark.parametrize("seed", range(8))
def test_the_largest_of_many_blocks_is_exact_with_zeros_of_both_signs(seed, step):
    generator = np.random.default_rng(seed)
    tally, best, zeros = Tally(shape=(500,)), 0.0, 0
    for _ in range(20):
        a = (generator.standard_normal(500) * 10.0 ** generator.integers(-6, 1, 500)).astype(F32)
        if generator.random() < 0.7:
            a = np.maximum(a, F32(0.0)) * F32(generator.choice([1.0, -1.0]))
        b = a + (generator.standard_normal(500) * generator.choice([1e-3, 1e-6])).astype(F32)
        added(a, b, tally, step)
        best, zeros = max(best, largest(a, b)), zeros + np.count_nonzero(a == 0)
        assert (tally.max_rel, tally.zero_refs) == (best, zeros)


def test_among_codes_the_largest_of_many_blocks_is_exact():
    generator = np.random.default_rng(0)
    tally, best = Tally(shape=(4096,)), 0.0
    for spread in (1, 2, 1, 3, 1):
        codes = generator.integers(-128, 128, 4096)
        a, b = (k.astype(F32) * F32(0.1) for k in (codes, codes + generator.integers(-spread, spread + 1, 4096)))
        added(a, b, tally, float(F32(0.1)))
        best = max(best, largest(a, b))
        assert tally.max_rel == best


def test_many_candidates_are_told_apart_by_division():
    # The least reference has a small quotient, so nearly every other one is larger than it.
    a = np.full(5000, 2.0, F32)
    a[0] = 1.0
    b = a * np.linspace(1.0, 1.5, 5000).astype(F32)
    b[0] = np.nextafter(F32(1.0), F32(2.0))
    assert added(a, b)[1].max_rel == largest(a, b)


def test_references_that_are_all_0_have_no_quotient():
    _, tally = added([0.0, -0.0], [1.0, 0.0])
    assert (tally.max_rel, tally.zero_refs) == (None, 2)


def test_the_lowest_of_values_with_a_nan_is_nan():
    assert np.isnan(smallest_element(F32([1.0, np.nan, -1.0])))
    assert smallest_element(F32([1.0, -1.0])) == -1.0
