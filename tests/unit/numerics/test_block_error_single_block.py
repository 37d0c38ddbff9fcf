"""What float32 does by itself and what it hands on to float64."""

import math

import numpy as np
import pytest

from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.block_error import add_single
from qdebug.numerics.blocks import scratch
from qdebug.numerics.lsb import LsbSizes, difference_in_lsb
from qdebug.numerics.tally import Block, Tally

F32 = np.float32
NO_LSB = LsbSizes(None, ())


def added(a, b, tally=None, lsb=NO_LSB):
    tally = Tally(shape=(len(a),)) if tally is None else tally
    with np.errstate(all="ignore"):
        done = add_single(tally, Block(reference=F32(a), backend=F32(b), start=0, lsb=lsb), scratch())
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
    done, tally = added(a, b, lsb=LsbSizes(None, (2500,), float(scale)))
    assert done
    assert tally.max_lsb == np.abs(difference_in_lsb(a.astype(np.float64), b.astype(np.float64), float(scale))).max()


def test_codes_too_wide_for_float32_are_still_whole_steps_apart():
    """Real values of codes this large, and their difference, are off by more than half a step in float32."""
    scale, codes = F32(2.5766313527242346e-08), (2878, -5134264)
    a, b = (F32(code) * scale for code in codes)
    assert np.rint(float(a - b) / float(scale)) == codes[0] - codes[1] - 1
    done, tally = added([a], [b], lsb=LsbSizes(None, (1,), float(scale), whole=True))
    assert done
    assert tally.max_lsb == codes[0] - codes[1]


def test_extremes_of_later_blocks_are_found_on_either_side_and_sign():
    blocks = [
        ([1.0, 2.0], [1.0, 2.5]),
        ([-3.0, 1.0], [-3.0, 1.5]),
        ([0.5, 1.0], [9.0, 1.0]),
        ([2.0, -1.0], [-8.0, -1.0]),
    ]
    tally, seen = Tally(shape=(8,)), [[], []]
    for a, b in blocks:
        assert added(a, b, tally)[0]
        seen[0] += a
        seen[1] += b
        for side, values in zip((tally.reference, tally.backend), seen, strict=True):
            assert (side.low, side.high) == (min(values), max(values))


@pytest.mark.parametrize("seed", range(6))
def test_extremes_of_many_blocks_are_exact_whatever_their_offset(seed):
    generator = np.random.default_rng(seed)
    offset = F32(generator.choice([0.0, 3.0, -3.0]))
    tally, sides = Tally(shape=(1,)), [[], []]
    for _ in range(30):
        a = (generator.standard_normal(300) + offset).astype(F32)
        b = a + (generator.standard_normal(300) * generator.choice([1e-7, 1e-3, 2.0])).astype(F32)
        added(a, b, tally)
        sides[0].append(a)
        sides[1].append(b)
    for side, blocks in zip((tally.reference, tally.backend), sides, strict=True):
        values = np.concatenate(blocks)
        assert (side.low, side.high) == (values.min(), values.max())


@pytest.mark.parametrize(("atol", "rtol"), [(0.25, 0.0), (0.24, 0.0), (0.0, 0.25), (0.0, 0.0), (0.25, -0.2), (1, 0)])
def test_elements_beyond_a_tolerance_are_counted_at_its_edge_too(atol, rtol):
    a, b = F32([1.0, 1.0, 2.0, 0.0]), F32([1.25, 1.0, 2.0, -0.25])
    _, tally = added(a, b, Tally(shape=(4,), tolerance=(atol, rtol)))
    assert tally.beyond == np.count_nonzero(np.abs(b - a) > atol + rtol * np.abs(a))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("growth", [1e-3, 1e-4, 1e-6])
def test_an_extreme_that_grows_by_little_is_taken(growth, sign, merged):
    first, rng = np.full(64, sign, np.float32), np.random.default_rng(0)
    later = (first * np.float32(1 + growth) * rng.uniform(0.5, 1, 64)).astype(np.float32)
    later[7] = sign * np.float32(1 + growth)
    one, two, alone = ErrorAccumulator(), ErrorAccumulator(), ErrorAccumulator()
    for accumulator, values in ((one, first), (one, later), (two, first), (alone, later)):
        accumulator.update(values, values + np.float32(1e-7) * (np.arange(64) == 3), sample=0)
    if merged:
        two.merge(alone)
    stats = (two if merged else one).stats()
    found = (stats.reference_max, stats.backend_max) if sign > 0 else (stats.reference_min, stats.backend_min)
    assert found == (float(later[7]), float(later[7]))
