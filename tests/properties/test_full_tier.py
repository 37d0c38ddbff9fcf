"""The full tier of metrics against exact arithmetic, element by element, on every dtype."""

from __future__ import annotations

import math
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from draws import DTYPES, equal_nonfinite, finite, listed, pairs, to_float
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.numerics import accumulate, channels
from qdebug.numerics import profile as profiler
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.histogram import ExponentHistogram
from qdebug.numerics.profile import Profiler, TensorProfile, profile_tensor

EXAMPLES = drawn(120)
WITH_ULP = ["float16", "bfloat16", "float32", "float64"]
BLOCKS = st.sampled_from([1, 3, 8, accumulate.BLOCK])


def profiled(a: np.ndarray, b: np.ndarray, *, block: int = accumulate.BLOCK, **options: object) -> TensorProfile:
    """Profile a pair as a short stretch and, which must give the same, as a long one is."""
    with patch.object(accumulate, "BLOCK", block), patch.object(channels, "BLOCK", block):
        short = profile_tensor(a, b, **options)
        with patch.object(profiler, "_FEW", 0):
            long = profile_tensor(a, b, **options)
    assert plain(short) == plain(long)
    return short


def rounded_once(pair: tuple[np.ndarray, np.ndarray]) -> bool:
    """Tell whether differences are the float64 nearest to the exact ones: not where a 64-bit integer meets a float."""
    wide, real = (any(kind(side.dtype) for side in pair) for kind in (is_wide, is_real))
    return not (wide and real)


def is_wide(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" and dtype.itemsize == 8


def is_real(dtype: np.dtype) -> bool:
    return "float" in dtype.name


EXACT = pairs(DTYPES).filter(rounded_once)


def good_pairs(a: np.ndarray, b: np.ndarray) -> list[tuple[float | int, float | int]]:
    return [(x, y) for x, y in zip(listed(a), listed(b), strict=True) if finite(x) and finite(y)]


def exponent(value: float) -> int:
    return 1024 if math.isinf(value) else math.frexp(value)[1] - 1


def check_exponents(found: ExponentHistogram, values: list[float]) -> None:
    """Compare a histogram with the exponents of the values it counts."""
    expected = sorted(exponent(value) for value in values if value)
    counted = [found.lowest + k for k, count in enumerate(found.counts.tolist()) for _ in range(count)]
    assert counted == expected
    assert found.zeros == sum(value == 0 for value in values)


@EXAMPLES
@given(pair=EXACT, block=BLOCKS)
def test_every_element_is_at_the_exponent_of_its_error(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    a, b = pair
    profile = profiled(a, b, block=block)
    good = good_pairs(a, b)
    errors = [to_float(abs(Fraction(y) - Fraction(x))) for x, y in good]
    check_exponents(profile.errors, errors)
    assert profile.errors.nonfinite == a.size - len(good)
    assert profile.errors.total == a.size
    relative = profile.relative
    with np.errstate(all="ignore"):
        quotients = [float(np.float64(e) / abs(np.float64(x))) for e, (x, _) in zip(errors, good, strict=True) if x]
    check_exponents(relative.quotients, quotients)
    assert relative.zero_refs == sum(x == 0 for x, _ in good)
    assert relative.zero_refs_hit == sum(x == 0 and y == 0 for x, y in good)


@EXAMPLES
@given(pair=pairs(DTYPES), block=BLOCKS, bins=st.sampled_from([1, 7, 64, 500]))
def test_every_value_is_in_its_bin(pair: tuple[np.ndarray, np.ndarray], block: int, bins: int) -> None:
    profile = profiled(*pair, block=block, bins=bins)
    sides = [np.array([float(x) for x in listed(side)]) for side in pair]
    if not any(np.isfinite(side).any() for side in sides):
        assert profile.reference is profile.backend is None
        return
    for side, found in zip(sides, (profile.reference, profile.backend), strict=True):
        assert found.total == side.size
        assert found.nan == np.count_nonzero(np.isnan(side))
        assert found.below == np.count_nonzero(side < found.low)
        assert found.above == np.count_nonzero(side > found.high)
        edges = found.edges
        for k, count in enumerate(found.counts.tolist()):
            upper = side <= edges[k + 1] if k == bins - 1 else side < edges[k + 1]
            assert count == np.count_nonzero((side >= edges[k]) & upper)


def in_order(bits: int, width: int) -> int:
    """Return the place of a float, by its bits, among all floats of its type."""
    magnitude = bits & (2 ** (width - 1) - 1)
    return -magnitude if bits >> (width - 1) else magnitude


@EXAMPLES
@given(pair=pairs(WITH_ULP, same_dtype=True), block=BLOCKS)
def test_floats_of_one_type_are_as_far_apart_as_their_bits(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    a, b = pair
    width = 8 * a.dtype.itemsize
    bits = [side.reshape(-1).view(f"u{a.dtype.itemsize}").tolist() for side in pair]
    keep = [finite(x) and finite(y) for x, y in zip(listed(a), listed(b), strict=True)]
    apart = [abs(in_order(x, width) - in_order(y, width)) for x, y, k in zip(*bits, keep, strict=True) if k]
    found = profiled(a, b, block=block).ulp
    assert found.dtype == a.dtype.name
    assert found.max_ulp == max(apart, default=None)
    counted = [0] * len(found.counts)
    for distance in apart:
        counted[distance.bit_length()] += 1
    assert found.counts.tolist() == counted


@EXAMPLES
@given(pair=pairs(DTYPES))
def test_types_without_units_in_the_last_place_have_none(pair: tuple[np.ndarray, np.ndarray]) -> None:
    known = all(side.dtype.name in WITH_ULP for side in pair)
    assert (profiled(*pair).ulp is not None) == known


@EXAMPLES
@given(pair=EXACT, k=st.integers(0, 12), block=BLOCKS)
def test_the_worst_are_the_worst_and_equals_in_order(pair: tuple[np.ndarray, np.ndarray], k: int, block: int) -> None:
    ranked = []
    for place, (x, y) in enumerate(zip(*map(listed, pair), strict=True)):
        if finite(x) and finite(y):
            difference = Fraction(y) - Fraction(x)
            rank = min(to_float(abs(difference)), float(np.finfo(np.float64).max))
        else:
            rank = 0.0 if equal_nonfinite(x, y) else math.inf
        if rank:
            ranked.append((-rank, place))
    shape = pair[1].shape
    expected = [tuple(map(int, np.unravel_index(place, shape))) for _, place in sorted(ranked)[:k]]
    found = profiled(*pair, k=k, block=block).worst
    assert [element.index for element in found] == expected
    for element in found:
        assert element.reference == pytest.approx(float(pair[0][element.index]), nan_ok=True, rel=1e-15)
        assert element.backend == pytest.approx(float(pair[1][element.index]), nan_ok=True, rel=1e-15)
        assert (element.reference_code, element.backend_code, element.lsb) == (None, None, None)


@EXAMPLES
@given(pair=EXACT, block=BLOCKS, data=st.data())
def test_each_channel_is_a_tensor_of_its_own(
    pair: tuple[np.ndarray, np.ndarray], block: int, data: st.DataObject
) -> None:
    a, b = pair
    if not a.ndim:
        return
    axis = data.draw(st.integers(0, a.ndim - 1))
    found = profiled(a, b, block=block, axis=axis).channels
    for channel in range(a.shape[axis]):
        sides = [np.take(side, channel, axis) for side in pair]
        good = good_pairs(*sides)
        with np.errstate(invalid="ignore"):  # of a signalling NaN
            theirs, ours = (np.asarray(side, np.float64) for side in sides)
        alike = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))
        alone = np.count_nonzero(~(np.isfinite(theirs) & np.isfinite(ours)) & ~alike)
        assert found.nonfinite[channel] == alone
        errors = [abs(Fraction(y) - Fraction(x)) for x, y in good]
        if alone or not good:
            assert found.max_abs[channel] == math.inf if alone else math.isnan(found.max_abs[channel])
            assert math.isnan(found.rmse[channel])
            continue
        assert found.max_abs[channel] == to_float(max(errors))
        square = sum(error * error for error in errors) / len(errors)
        root = Fraction(0) if math.isinf(found.rmse[channel]) else Fraction(float(found.rmse[channel]))
        slack = Fraction(2) ** -1073
        assert (root * (1 - Fraction(1, 2**22)) - slack) ** 2 <= square or not root
        assert square <= (root * (1 + Fraction(1, 2**22)) + slack) ** 2 or square > Fraction(2) ** 2046


@EXAMPLES
@given(pair=pairs(DTYPES), block=BLOCKS)
def test_a_tensor_is_identical_to_itself(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    a, _ = pair
    profile = profiled(a, a.copy(), block=block)
    assert profile.worst == ()
    assert not profile.errors.counts.size
    assert not profile.relative.quotients.counts.size
    assert profile.ulp is None or profile.ulp.max_ulp in (0, None)
    if profile.reference is not None:
        assert profile.reference.counts.tolist() == profile.backend.counts.tolist()


def plain(profile: TensorProfile) -> list[object]:
    """Return the counts of a profile, which hold for a tensor however it is cut."""
    histograms = profile.errors, profile.relative.quotients
    parts: list[object] = [(h.lowest, h.counts.tolist(), h.zeros, h.nonfinite) for h in histograms]
    parts += [profile.relative.zero_refs, profile.relative.zero_refs_hit]
    parts += [None if h is None else (h.counts.tolist(), h.total) for h in (profile.reference, profile.backend)]
    parts.append(None if profile.ulp is None else (profile.ulp.max_ulp, profile.ulp.counts.tolist()))
    parts.append([(e.reference, e.backend, e.difference) for e in profile.worst])
    if profile.channels is not None:
        parts += [getattr(profile.channels, name).tolist() for name in ("max_abs", "rmse", "sqnr_db", "nonfinite")]
    return [repr(part) for part in parts]


@EXAMPLES
@given(pair=pairs(DTYPES), block=BLOCKS, data=st.data())
def test_samples_one_after_the_other_are_as_one_tensor(
    pair: tuple[np.ndarray, np.ndarray], block: int, data: st.DataObject
) -> None:
    a, b = (side.reshape(-1) for side in pair)
    cut = data.draw(st.integers(0, a.size))
    accumulator = ErrorAccumulator()
    accumulator.update(a, b, sample=0)
    with patch.object(accumulate, "BLOCK", block), patch.object(channels, "BLOCK", block):
        taken = Profiler(accumulator.stats())
        for sample, part in enumerate((slice(0, cut), slice(cut, None))):
            assert taken.add(a[part], b[part], sample=sample)
    found = taken.profile()
    assert plain(found) == plain(profiled(a, b))
    places = [element.index[0] + (cut if element.sample else 0) for element in found.worst]
    assert places == [element.index[0] for element in profile_tensor(a, b).worst]
