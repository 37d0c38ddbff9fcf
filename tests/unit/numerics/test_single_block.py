"""What float32 does by itself and what it hands on to float64."""

import math

import numpy as np
import pytest

from qdebug.numerics.blocks import ROW, scratch
from qdebug.numerics.lsb import Steps, difference_in_steps
from qdebug.numerics.single_block import add_single, extremes, row_dots
from qdebug.numerics.tally import Block, Tally

F32 = np.float32
NO_STEPS = Steps(None, ())


def added(a, b, tally=None, steps=NO_STEPS):
    tally = Tally(shape=(len(a),)) if tally is None else tally
    with np.errstate(all="ignore"):
        done = add_single(tally, Block(reference=F32(a), backend=F32(b), start=0, steps=steps), scratch())
    return done, tally


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e20, 3e38, 1e-20, 1e-42])
def test_a_block_that_needs_float64_is_left_untouched(bad):
    for a, b in (([bad, bad], [bad, 0.0]), ([bad, 0.0], [0.0, 0.0]), ([0.0], [bad])):
        done, tally = added(a, b)
        assert not done
        assert tally == Tally(shape=(len(a),))


def test_a_small_difference_of_ordinary_values_needs_float64_too():
    done, _ = added([2.0**-20], [2.0**-20 + 2.0**-43])
    assert not done


def test_equal_blocks_and_zero_blocks_are_done_in_float32():
    assert added([1.0, 2.0], [1.0, 2.0])[0]
    done, tally = added([0.0, -0.0], [0.0, 0.0])
    assert done
    assert (tally.zero_refs, tally.max_abs, tally.max_rel) == (2, 0.0, None)


def test_the_largest_difference_is_decided_in_float64():
    # In float32 both differences round to 16777216; exactly the second is larger.
    a, b = [-1.0, -1.0], [2.0**24 - 1, 2.0**24]
    done, tally = added(a, b)
    assert done
    assert (tally.max_abs, tally.worst.flat) == (2.0**24 + 1, 1)


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


def test_a_difference_larger_only_in_float64_replaces_that_of_an_earlier_block():
    tally = Tally(shape=(4,))
    added([0.0], [2.0**24], tally)
    added([-1.0], [2.0**24], tally)
    assert tally.max_abs == 2.0**24 + 1


@pytest.mark.parametrize("seed", [*range(4), 26, 78, 86, 110])  # at the last four the float32 maximum is not the one
def test_steps_of_values_beside_the_lattice_are_told_apart(seed):
    generator = np.random.default_rng(seed)
    scale = F32(generator.uniform(0.1, 1.0))
    codes = generator.integers(-120, 120, 2500)
    a = codes.astype(F32) * scale
    beside = generator.random(2500) < 0.5
    a[beside] = np.nextafter(a[beside], F32(-99))
    b = (codes + 2).astype(F32) * scale
    done, tally = added(a, b, steps=Steps(None, (2500,), float(scale)))
    assert done
    assert tally.max_lsb == np.abs(difference_in_steps(a.astype(np.float64), b.astype(np.float64), float(scale))).max()


@pytest.mark.parametrize("size", [1, ROW - 1, ROW, ROW + 1, 3 * ROW, 5 * ROW + 17])
@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_rows_and_rest_are_summed_once(size, dtype):
    values = np.arange(1, size + 1).astype(dtype) % 7
    ones = np.ones(ROW, dtype)
    squares, total = row_dots(((values, values), (values, ones)), np.empty((2, size // ROW + 1), dtype))
    assert squares == float((values.astype(np.int64) ** 2).sum())
    assert total == float(values.astype(np.int64).sum())


def test_extremes_say_nan():
    assert extremes(F32([3.0, -1.0])) == (-1.0, 3.0)
    assert all(math.isnan(x) for x in extremes(F32([1.0, math.nan])))
