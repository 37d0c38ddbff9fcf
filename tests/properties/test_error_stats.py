"""Every error metric against an exact oracle in rational arithmetic, and the laws that metrics obey."""

from __future__ import annotations

import math
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from draws import (
    DTYPES,
    FLOATS,
    INTEGERS,
    RARE_FLOATS,
    arrays_of,
    dtype_of,
    equal_nonfinite,
    finite,
    listed,
    pairs,
    real,
    to_float,
)
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.model import QuantParams
from qdebug.numerics import accumulate
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.worst import worst_elements

EXAMPLES = drawn(80)
ULP = 2.0**-23


def stats_of(a: np.ndarray, b: np.ndarray, *, block: int = accumulate.BLOCK, **options: object) -> ErrorStats:
    with patch.object(accumulate, "BLOCK", block):
        accumulator = ErrorAccumulator(**options)
        accumulator.update(a, b, sample=0)
    return accumulator.stats()


# ---------------------------------------------------------------- the oracle: one element at a time, exact


def position(x: float, step: float) -> Fraction | float:
    nearest = round(Fraction(x) / Fraction(step)) if step else 0
    lattice = nearest * step
    with np.errstate(all="ignore"):
        return nearest if x in (lattice, float(np.float32(lattice))) else x / step


def check(stats: ErrorStats, a: list[float | int], b: list[float | int]) -> None:
    """Compare metrics with their definitions."""
    pairs = list(zip(a, b, strict=True))
    good = [(x, y) for x, y in pairs if finite(x) and finite(y)]
    odd = [(x, y) for x, y in pairs if not (finite(x) and finite(y))]
    matched = sum(equal_nonfinite(x, y) for x, y in odd)
    errors = [abs(Fraction(y) - Fraction(x)) for x, y in good]
    assert stats.count == len(pairs)
    assert stats.matched_nonfinite == matched
    assert stats.nonfinite == len(odd) - matched
    assert stats.mismatches == sum(e != 0 for e in errors) + stats.nonfinite
    assert stats.zero_refs == sum(x == 0 for x in a)
    for name, side in (("reference", a), ("backend", b)):
        values = [float(x) for x in side if finite(x)]
        assert getattr(stats, f"{name}_min") == (min(values) if values else None)
        assert getattr(stats, f"{name}_max") == (max(values) if values else None)
    spoilt = ("max_abs", "rel_l2", "sqnr_db", "cosine") if stats.nonfinite else ()
    if spoilt:
        assert stats.max_abs == math.inf
        assert all(math.isnan(getattr(stats, name)) for name in spoilt[1:])
    if not good:
        none = ("max_abs", "mean_abs", "rmse", "max_rel", "rel_l2", "sqnr_db", "cosine", "max_lsb")
        assert all(getattr(stats, name) is None for name in none if name not in spoilt)
        return
    assert spoilt or stats.max_abs == max(map(to_float, errors))
    quotients = [to_float(e) / abs(float(x)) for e, (x, _) in zip(errors, good, strict=True) if x != 0]
    assert stats.max_rel == (max(quotients) if quotients else None)
    check_sums(stats, [Fraction(x) for x, _ in good], [Fraction(y) for _, y in good], errors)


def check_sums(stats: ErrorStats, a: list[Fraction], b: list[Fraction], errors: list[Fraction]) -> None:
    close(stats.mean_abs, sum(errors) / len(errors))
    error2, a2, b2 = (sum(x * x for x in xs) for xs in (errors, a, b))
    close_root(stats.rmse, error2 / len(errors))
    if stats.nonfinite:
        return
    if error2 == 0:
        assert (stats.rel_l2, stats.sqnr_db, stats.cosine) == (0.0, math.inf, 1.0)
        return
    if a2 == 0:
        assert (stats.rel_l2, stats.sqnr_db) == (math.inf, -math.inf)
    else:
        close_root(stats.rel_l2, error2 / a2)
        assert stats.sqnr_db == pytest.approx(10 * log10(a2 / error2), abs=10 * math.log10(1 + 4 * ULP), rel=1e-13)
    if a2 == 0 or b2 == 0:
        assert math.isnan(stats.cosine)
    else:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        cosine = (1 if dot > 0 else -1) * math.exp(log10(dot * dot / (a2 * b2)) * math.log(10) / 2) if dot else 0.0
        assert stats.cosine == pytest.approx(cosine, abs=4 * ULP)
        assert -1.0 <= stats.cosine <= 1.0


def check_bias(stats: ErrorStats, signed: list[Fraction]) -> None:
    """Compare the bias with the mean of the signed differences, in steps, of the elements that differ."""
    signed = [term for term in signed if term]
    if not signed:
        assert stats.lsb_bias == 0.0
        return
    bound = sum(map(abs, signed)) / len(signed) * Fraction(4 * ULP)
    exact = sum(signed) / len(signed)
    if math.isinf(stats.lsb_bias):
        assert abs(exact) > Fraction(2) ** 1023
    else:
        assert abs(Fraction(stats.lsb_bias) - exact) <= bound + Fraction(2) ** -1073


def log10(value: Fraction) -> float:
    return math.log10(value.numerator) - math.log10(value.denominator)


def close(found: float, exact: Fraction) -> None:
    if math.isinf(found):
        assert exact > Fraction(2) ** 1023
    else:
        assert abs(Fraction(found) - exact) <= exact * Fraction(4 * ULP) + Fraction(2) ** -1074


def close_root(found: float, exact_square: Fraction) -> None:
    if math.isinf(found):
        assert exact_square > Fraction(2) ** 2046
    else:
        low, high = ((Fraction(found) * (1 + sign * Fraction(4 * ULP))) for sign in (-1, 1))
        slack = Fraction(2) ** -1073
        assert max(low - slack, 0) ** 2 <= exact_square <= (high + slack) ** 2


BLOCKS = st.sampled_from([1, 3, 8, accumulate.BLOCK])


# ---------------------------------------------------------------- properties


@EXAMPLES
@given(pair=pairs([*FLOATS, *RARE_FLOATS, "int8", "uint16", "int32", "bool", "int4"]), block=BLOCKS)
def test_metrics_match_exact_arithmetic(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    a, b = pair
    check(stats_of(a, b, block=block), listed(a), listed(b))


@EXAMPLES
@given(pair=pairs(INTEGERS), block=BLOCKS)
def test_integers_of_any_width_are_subtracted_exactly(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    a, b = pair
    check(stats_of(a, b, block=block), listed(a), listed(b))


@EXAMPLES
@given(pair=pairs(DTYPES), block=BLOCKS)
def test_a_tensor_is_identical_to_itself(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    a, _ = pair
    stats = stats_of(a, a.copy(), block=block)
    assert stats.mismatches == stats.nonfinite == 0
    assert stats.max_abs in (0.0, None)
    assert stats.sqnr_db in (math.inf, None)
    assert stats.matched_nonfinite == sum(not finite(x) for x in listed(a))


@EXAMPLES
@given(pair=pairs(DTYPES))
def test_inputs_are_never_written_to(pair: tuple[np.ndarray, np.ndarray]) -> None:
    kept = [side.tobytes() for side in pair]
    quant = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=1)
    clamp = (0.0, 1.0)
    stats_of(*pair, reference_clamp=clamp, backend_clamp=clamp, tolerance=(1.0, 0.0))
    stats_of(*pair, reference_quant=quant, backend_quant=quant)
    worst_elements(*pair)
    assert [side.tobytes() for side in pair] == kept


@EXAMPLES
@given(pair=pairs(["float32", "float64", "int64"], same_dtype=True), block=st.sampled_from([1, 3, 8]), data=st.data())
def test_merging_equals_feeding_on(pair: tuple[np.ndarray, np.ndarray], block: int, data: st.DataObject) -> None:
    a, b = (side.reshape(-1) for side in pair)
    cut = data.draw(st.integers(0, a.size // block)) * block
    with patch.object(accumulate, "BLOCK", block):
        whole, first, second = ErrorAccumulator(), ErrorAccumulator(), ErrorAccumulator()
        for accumulator, part in ((whole, slice(0, cut)), (whole, slice(cut, None)), (first, slice(0, cut))):
            accumulator.update(a[part], b[part], sample=int(part.start > 0))
        second.update(a[cut:], b[cut:], sample=int(cut > 0))
        first.merge(second)
        merged, fed, once = first.stats(), whole.stats(), stats_of(a, b, block=block)
    exact = ("count", "max_abs", "max_rel", "mismatches", "nonfinite", "matched_nonfinite", "zero_refs")
    assert [getattr(merged, name) for name in exact] == [getattr(once, name) for name in exact]
    assert (merged.worst_index, merged.worst_sample) == (fed.worst_index, fed.worst_sample)
    check(merged, listed(a), listed(b))


@EXAMPLES
@given(pair=pairs(["float32", "float64"]), block=BLOCKS)
def test_swapping_sides_keeps_what_is_symmetric(pair: tuple[np.ndarray, np.ndarray], block: int) -> None:
    there, back = stats_of(*pair, block=block), stats_of(*pair[::-1], block=block)
    for name in ("max_abs", "mean_abs", "rmse", "mismatches", "nonfinite", "matched_nonfinite", "worst_index"):
        assert getattr(there, name) == getattr(back, name), name
    assert there.reference_min == back.backend_min
    assert there.cosine == pytest.approx(back.cosine, abs=ULP, nan_ok=True) if there.cosine is not None else True


@EXAMPLES
@given(pair=pairs(["float32", "float16", "int32"]), seed=st.integers(0, 9))
def test_order_of_elements_does_not_matter(pair: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(pair[0].size)
    straight, shuffled = stats_of(*pair), stats_of(*(side.reshape(-1)[order] for side in pair))
    for name in ("max_abs", "max_rel", "mismatches", "nonfinite", "zero_refs", "reference_max", "backend_min"):
        assert getattr(straight, name) == getattr(shuffled, name), name
    if straight.rmse is not None and math.isfinite(straight.rmse):
        assert shuffled.rmse == pytest.approx(straight.rmse, rel=4 * ULP)


@EXAMPLES
@given(power=st.integers(-60, 60), seed=st.integers(0, 9), scale_type=st.sampled_from(["float32", "float64"]))
def test_scaling_by_a_power_of_two_scales_or_keeps_every_metric(power: int, seed: int, scale_type: str) -> None:
    generator = np.random.default_rng(seed)
    a = generator.standard_normal(600).astype(np.float32)
    b = a + generator.standard_normal(600).astype(np.float32) * np.float32(1e-2)
    factor = np.dtype(scale_type).type(2.0**power)
    plain, scaled = stats_of(a, b), stats_of(a * factor, b * factor)
    assert scaled.max_abs == plain.max_abs * 2.0**power
    assert scaled.max_rel == plain.max_rel
    assert scaled.rmse == pytest.approx(plain.rmse * 2.0**power, rel=4 * ULP)
    assert scaled.sqnr_db == pytest.approx(plain.sqnr_db, abs=1e-5)
    assert scaled.worst_index == plain.worst_index


@EXAMPLES
@given(data=st.data(), dtype=st.sampled_from(["int4", "int8", "uint8", "int16", "uint16"]), block=BLOCKS)
def test_quantized_pairs_match_exact_arithmetic(data: st.DataObject, dtype: str, block: int) -> None:
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 7)))
    per_channel = data.draw(st.booleans())
    positive = st.floats(2.0**-12, 2.0**6)
    if data.draw(st.booleans()):
        positive = positive.map(lambda x: float(np.float32(x)))
    scales = data.draw(st.lists(positive, min_size=shape[0], max_size=shape[0]))
    first, second = (
        QuantParams(
            dtype=dtype,
            scale=np.array(scales if per_channel else scales[:1]),
            zero_point=data.draw(st.integers(-5, 5)),
            axis=0 if per_channel else None,
        )
        for _ in range(2)
    )
    a, b = (data.draw(arrays_of(dtype_of(dtype), shape)) for _ in range(2))
    stats = stats_of(a, b, reference_quant=first, backend_quant=second, block=block)
    ours, theirs = (
        [real(x, quant, place // shape[1]) for place, x in enumerate(side.reshape(-1))]
        for side, quant in ((a, first), (b, second))
    )
    check(stats, ours, theirs)
    steps = [float(first.real_scale[place // shape[1] if per_channel else 0]) for place in range(a.size)]
    expected = [abs(float(position(y, s)) - float(position(x, s))) for x, y, s in zip(ours, theirs, steps, strict=True)]
    assert stats.max_lsb == pytest.approx(max(expected), rel=1e-14)
    shift = [int(q.zero_point[0]) for q in (first, second)]
    codes = [abs((int(y) - shift[1]) - (int(x) - shift[0])) for x, y in zip(a.flat, b.flat, strict=True)]
    assert stats.max_lsb == max(codes)
    check_bias(stats, [(Fraction(y) - Fraction(x)) / Fraction(s) for x, y, s in zip(ours, theirs, steps, strict=True)])


@EXAMPLES
@given(
    pair=pairs([*FLOATS, "int32", "int64"]),
    steps=st.lists(st.one_of(st.floats(2.0**-40, 2.0**40), st.sampled_from([5e-324, 1e-300, 1e300, 0.0, math.nan]))),
    block=BLOCKS,
)
def test_the_bias_is_the_mean_signed_difference_in_steps(
    pair: tuple[np.ndarray, np.ndarray], steps: list[float], block: int
) -> None:
    a, b = (side.reshape(-1) for side in pair)
    scales = np.resize(steps or [0.5], a.size) if a.size > 1 else np.array([0.5])
    quant = QuantParams(dtype="int8", scale=scales, axis=0)
    scales = quant.real_scale
    b = b if b.dtype.kind == "f" and b.dtype.itemsize >= 4 else b.astype(np.float32)
    terms = []
    real_b = [real(y, quant, place) for place, y in enumerate(b)] if b.dtype != np.float64 else None
    for place, x in enumerate(listed(a)):
        with np.errstate(all="ignore"):
            y = float(b[place] * scales[place]) if real_b is None else real_b[place]
        if finite(x) and finite(y) and finite(scales[place]) and scales[place] > 0:
            terms.append((Fraction(y) - Fraction(x)) / Fraction(scales[place]))
    stats = stats_of(a, b, backend_quant=quant, block=block)
    if terms:
        check_bias(stats, terms)
    else:
        assert stats.lsb_bias is None


@EXAMPLES
@given(pair=pairs([*FLOATS, "int64"]), step=st.sampled_from([5e-324, 1e-300, 0.1, 2.0**-30, 1e300]), block=BLOCKS)
def test_the_bias_in_steps_of_one_size(pair: tuple[np.ndarray, np.ndarray], step: float, block: int) -> None:
    stats = stats_of(*pair, step=step, block=block)
    sides = [(x, y) for x, y in zip(*map(listed, pair), strict=True) if finite(x) and finite(y)]
    if sides:
        check_bias(stats, [(Fraction(y) - Fraction(x)) / Fraction(step) for x, y in sides])
    else:
        assert stats.lsb_bias is None


@EXAMPLES
@given(pair=pairs(["float32", "float64"]), tolerance=st.tuples(st.floats(0, 4), st.floats(0, 2)), block=BLOCKS)
def test_elements_beyond_a_tolerance_are_counted_exactly(
    pair: tuple[np.ndarray, np.ndarray], tolerance: tuple[float, float], block: int
) -> None:
    atol, rtol = tolerance
    with np.errstate(all="ignore"):
        a, b = (side.astype(np.float64).reshape(-1) for side in pair)
        beyond = np.abs(b - a) > atol + rtol * np.abs(a)
    good = np.isfinite(a) & np.isfinite(b)
    stats = stats_of(*pair, tolerance=tolerance, block=block)
    assert stats.beyond_tolerance == np.count_nonzero(beyond & good) + stats.nonfinite
    assert stats_of(*pair).beyond_tolerance is None


@EXAMPLES
@given(pair=pairs(DTYPES), k=st.integers(0, 12))
def test_the_worst_elements_are_sorted_and_begin_with_the_worst(pair: tuple[np.ndarray, np.ndarray], k: int) -> None:
    found = worst_elements(*pair, k=k, sample=3)
    stats = stats_of(*pair)
    assert len(found) == min(k, stats.mismatches)
    ranks = [math.inf if not math.isfinite(e.difference) else abs(e.difference) for e in found]
    assert ranks == sorted(ranks, reverse=True)
    if found:
        assert found[0].index == stats.worst_index
        assert found[0].sample == 3
    for element in found:
        assert element.reference == pytest.approx(float(pair[0][element.index]), nan_ok=True)
