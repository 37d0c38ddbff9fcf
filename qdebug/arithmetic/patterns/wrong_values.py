"""Finds patterns in the values of wrong elements: a constant, a factor, a clamp, stale values. Begin at `traits`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor, Trait, by_channel, stretches, unclipped_elements
from qdebug.arithmetic.patterns.wrong_places import Layout, may_be_chance
from qdebug.model.thresholds.patterns import (
    COINCIDENCE_MIN_SHARE,
    CONSTANT_ERROR_MAX_SPREAD,
    CONSTANT_ERROR_MIN_ELEMENTS,
    CONSTANT_ERROR_MIN_FLATNESS,
    CONSTANT_ERROR_MIN_WRONG_SHARE,
    FLOAT64_COMPARISON_SLACK,
    INTERIOR_MIN_EXTENT,
    JUMP_MIN_CODES,
    JUMP_MIN_SHARE,
    LARGE_SUMS_MIN_ELEMENTS,
    LARGE_SUMS_MIN_RANK_SHARE,
    NO_ROUNDING_SPARED_RATIO,
    ONE_CODE_MIN_EXPECTED,
    RANKED_MAX_ELEMENTS,
    RIGHT_BY_CHANCE_MAX_FACTOR,
    SCALED_CHANNEL_MIN_WRONG,
    SCALED_MIN_CODES,
    SCALED_MIN_DEVIATION,
    SCALED_MIN_FACTOR,
    SCALED_MIN_FITTING_SHARE,
    SCALED_ROUNDING_SLACK,
    SLIGHT_ERROR_CODES,
    STALE_CHOICES,
    STALE_DISTANCES,
    TIE_MAX_DISTANCE,
    TRAIT_MIN_SHARE,
)
from qdebug.numerics.checkpoint import checkpoint
from qdebug.plural import plural

__all__ = ["constants", "factors", "traits"]


def constants(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find channels with a constant error. A shift by a fraction of an LSB causes errors of two adjacent values.

    If the errors near the borders differ, because sums there include padding, the elements away from the borders
    decide.
    """
    interior = _index_away_from_borders(evidence)
    for element_index in (slice(None), *((interior,) if interior is not None else ())):
        shifts = _mean_error_of_channels(evidence, element_index)
        affected = np.array([shift for shift in shifts or () if shift])
        if shifts is None or not affected.size:
            continue
        affected_count = affected.size
        if not _is_shift(evidence, element_index, affected, affected_count / len(shifts)):
            continue
        place_clause = "" if element_index == slice(None) else " away from the borders"
        is_even = affected.max() - affected.min() < CONSTANT_ERROR_MAX_SPREAD
        if affected_count == len(shifts) and is_even:
            yield Trait(pattern="constant", detail=f"every element{place_clause} is off by {_shift_text(affected)}")
            return
        span = _shift_text(affected) if is_even else f"{affected.min():.3g} to {affected.max():.3g} codes"
        name = evidence.layout.channel_name
        channels_text = (
            f"each {name}" if affected_count == len(shifts) else f"{affected_count} of {len(shifts)} {name}s"
        )
        yield Trait(pattern="constant_per_channel", detail=f"a constant in {channels_text}{place_clause}, of {span}")
        return


def _shift_text(shifts: np.ndarray) -> str:
    """Format the mean of shifts in codes. A fractional shift moves only some of the elements, by one code."""
    mean = float(shifts.mean())
    return (
        "1 code"
        if abs(abs(mean) - 1) < FLOAT64_COMPARISON_SLACK
        else f"{mean:.3g} codes{' on average' if mean % 1 else ''}"
    )


def _is_shift(
    evidence: CodesOfTensor, element_index: slice | tuple[slice, ...], shifts: np.ndarray, share: float
) -> bool:
    """Return whether per-channel mean errors are shifts, and not due to chance or to a factor.

    Args:
        evidence: The codes.
        element_index: Index of the elements considered.
        shifts: Mean errors of the affected channels.
        share: Their share of all channels.
    """
    wrong_count = int(np.count_nonzero(evidence.error[element_index]))
    if share < 1 and may_be_chance(share, wrong_count, round(1 / share)):
        return False
    if np.all(np.abs(shifts - np.rint(shifts)) < FLOAT64_COMPARISON_SLACK):
        return True
    if np.abs(evidence.error[element_index]).max() > 1:
        return True
    # A constant shift by a fraction of an LSB is as frequent among small values as among large ones, unlike a factor.
    small, large = _mean_errors(evidence, element_index)
    return not may_be_chance(0.5, wrong_count) and min(small, large) >= CONSTANT_ERROR_MIN_FLATNESS * max(small, large)


def _mean_errors(evidence: CodesOfTensor, element_index: slice | tuple[slice, ...]) -> tuple[float, float]:
    """Return the mean error magnitude of the half of the elements nearest the zero point, and that of the others."""
    is_usable = unclipped_elements(evidence)[element_index]
    code_distances = np.abs(evidence.expected[element_index].astype(np.int64) - evidence.zero_point)[is_usable]
    magnitudes = np.abs(evidence.error[element_index])[is_usable]
    if not code_distances.size or (is_near := code_distances <= np.median(code_distances)).all():
        return 1.0, 1.0
    return float(magnitudes[is_near].mean()), float(magnitudes[~is_near].mean())


def _index_away_from_borders(evidence: CodesOfTensor) -> tuple[slice, ...] | None:
    """Return an index of the elements away from the spatial borders, or None if there are hardly any."""
    axes = [axis + 1 for axis in evidence.layout.spatial]
    shape = evidence.expected.shape
    if not axes or any(shape[axis] < INTERIOR_MIN_EXTENT for axis in axes):
        return None
    return tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(len(shape)))


def _mean_error_of_channels(evidence: CodesOfTensor, element_index: slice | tuple[slice, ...]) -> list[float] | None:
    """Return the mean error of each channel, or None if the error within a channel varies."""
    errors = by_channel(evidence.error[element_index], evidence.layout)
    shifts: list[float] = []
    slight_channels = 0
    for channel_errors, usable in zip(
        errors, by_channel(unclipped_elements(evidence)[element_index], evidence.layout), strict=True
    ):
        usable_errors = channel_errors[usable]
        if not channel_errors.any():
            shifts.append(0.0)
            continue
        if usable_errors.size < CONSTANT_ERROR_MIN_ELEMENTS:  # nearly all are saturated, so they prove nothing
            continue
        if usable_errors.max() - usable_errors.min() > 1:
            return None
        # If only a few codes are off by one, the shift is tiny, or there is none.
        if np.count_nonzero(usable_errors) < CONSTANT_ERROR_MIN_WRONG_SHARE * usable_errors.size:
            slight_channels += 1
        else:
            shifts.append(float(usable_errors.mean()))
    return shifts if slight_channels <= np.count_nonzero(shifts) else None


def factors(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find a factor, one for all elements or one per channel: recorded = zero point + factor * (expected - zero point).

    Clipped elements are ignored.
    """
    arrays = evidence.expected, evidence.recorded, unclipped_elements(evidence)
    codes = _CenteredCodes(arrays, evidence.zero_point)
    common_factor = codes.factor()
    if common_factor is not None and codes.errors_grow_with(common_factor):
        digits = 4 if abs(common_factor - 1) >= 0.001 else 7
        yield Trait(pattern="factor", detail=f"the elements are {common_factor:.{digits}g} times what they should be")
        return
    is_wrong_by_channel = by_channel(evidence.wrong, evidence.layout)
    if np.count_nonzero(is_wrong_by_channel) < SCALED_CHANNEL_MIN_WRONG * np.count_nonzero(
        is_wrong_by_channel.any(axis=1)
    ):
        return  # with one wrong code per channel, some factor always fits
    channel_factors = []
    for rows in zip(*(by_channel(array, evidence.layout) for array in arrays), strict=True):
        channel = _CenteredCodes(rows, evidence.zero_point)
        if not channel.can_tell_factor:
            continue
        factor = channel.factor()
        if factor is None:
            return
        channel_factors.append(factor)
    if channel_factors and max(abs(factor - 1) for factor in channel_factors) >= SCALED_MIN_DEVIATION:
        span = f"{min(channel_factors):.3g} to {max(channel_factors):.3g}"
        detail = f"each {evidence.layout.channel_name} is a constant times what it should be, {span}"
        yield Trait(pattern="factor_per_channel", detail=detail)


class _CenteredCodes:
    """Expected and recorded codes minus their zero point, without clipped elements, read slice by slice.

    Args:
        arrays: Expected codes, recorded codes, and a mask of the elements to use.
        zero_point: The code of real 0.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...], zero_point: int) -> None:
        self._arrays, self._zero_point = arrays, zero_point
        self._many, self._largest, self._power, self._product = 0, 0, 0.0, 0.0
        for x, y in self._pieces():
            expected_codes = x.astype(np.float64)
            self._many += x.size
            self._largest = max(self._largest, int(np.abs(x).max(initial=0)))
            self._power += float(expected_codes @ expected_codes)
            self._product += float(expected_codes @ y.astype(np.float64))

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for expected, recorded, is_usable in stretches(*self._arrays):
            yield (
                expected[is_usable].astype(np.int64) - self._zero_point,
                recorded[is_usable].astype(np.int64) - self._zero_point,
            )

    @property
    def can_tell_factor(self) -> bool:
        """Whether there are enough codes, and large enough ones, to determine a factor."""
        return self._many >= SCALED_MIN_CODES and self._largest >= SCALED_MIN_CODES

    def factor(self) -> float | None:
        """Return the factor from expected to recorded codes, or None if no factor explains them up to rounding."""
        if not self.can_tell_factor:
            return None
        factor = self._product / self._power
        if factor < SCALED_MIN_FACTOR:
            return None
        max_rounding = 0.5 + 0.5 * factor + SCALED_ROUNDING_SLACK
        fitting = sum(int(np.count_nonzero(np.abs(y - factor * x) <= max_rounding)) for x, y in self._pieces())
        return factor if fitting >= SCALED_MIN_FITTING_SHARE * self._many else None

    def errors_grow_with(self, factor: float) -> bool:
        """Return whether the errors have the sign that a factor implies, and grow with the magnitude of the codes."""
        wrong_count = same_sign = 0
        for x, y in self._pieces():
            is_wrong = x != y
            wrong_count += int(np.count_nonzero(is_wrong))
            same_sign += int(np.count_nonzero(np.sign((y - x)[is_wrong]) == np.sign((factor - 1) * x[is_wrong])))
        if not wrong_count or same_sign / wrong_count < TRAIT_MIN_SHARE or may_be_chance(0.5, wrong_count):
            return False
        middle = self._median_size()
        errors, group_sizes = np.zeros((2, 2))  # row 0 counts codes up to the median, row 1 those above it
        for x, y in self._pieces():
            is_large = np.abs(x) > middle
            for at, in_group in enumerate((~is_large, is_large)):
                errors[at] += float(np.abs(y - x)[in_group].sum())
                group_sizes[at] += int(np.count_nonzero(in_group))
        return bool(
            group_sizes.all() and errors[0] / group_sizes[0] < CONSTANT_ERROR_MIN_FLATNESS * errors[1] / group_sizes[1]
        )

    def _median_size(self) -> float:
        """Return the median of the expected codes' magnitudes."""
        if self._largest >= 1 << 17:  # wider than any quantized code
            return float(np.median(np.concatenate([np.abs(x) for x, _ in self._pieces()])))
        frequencies = np.zeros(self._largest + 1, np.int64)
        for x, _ in self._pieces():
            frequencies += np.bincount(np.abs(x), minlength=frequencies.size)
        cumulative = np.cumsum(frequencies)
        low, high = (
            int(np.searchsorted(cumulative, at, side="right")) for at in ((self._many - 1) // 2, self._many // 2)
        )
        return (low + high) / 2


def traits(evidence: CodesOfTensor) -> tuple[Trait, ...]:
    """Find the traits of the wrong elements, most specific first."""
    if not evidence.wrong.any():
        return ()
    all_traits: list[Trait] = []
    for finder in (
        _single_code,
        _clamp,
        _wrapped_codes,
        _overflowed_codes,
        _stale_codes,
        _errors_near_ties,
        constants,
        factors,
        _growing_errors,
        _errors_of_one,
    ):
        checkpoint()
        has_amount = any(trait.pattern.startswith(("constant", "factor")) for trait in all_traits)
        if not (has_amount and finder in (factors, _growing_errors, _errors_of_one)):
            all_traits += finder(evidence)
    return tuple(all_traits)


def _single_code(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find an output in which all elements hold one code, although several codes are expected."""
    code = int(evidence.recorded.flat[0])
    if np.any(evidence.recorded != code) or np.unique(evidence.expected).size < ONE_CODE_MIN_EXPECTED:
        return
    low, high = evidence.span
    names = {evidence.zero_point: " (the zero point)", low: " (the lowest code)", high: " (the highest code)"}
    yield Trait(pattern="one_code", detail=f"every element is {code}{names.get(code, '')}")


def _clamp(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find a missing or an extra clamp: the codes of one side equal those of the other, clipped to an interval."""
    is_wrong, expected, recorded = evidence.wrong, evidence.expected, evidence.recorded
    for inner, outer, verdict in ((recorded, expected, "too narrow"), (expected, recorded, "not applied")):
        low, high = int(inner.min()), int(inner.max())
        if low == high:
            continue
        parts = list(stretches(is_wrong, outer, inner))
        if all(_is_clamped(*part, span=(low, high)) for part in parts):
            count, share = int(np.count_nonzero(is_wrong)), 0.5
        elif all(_is_clamped_or_rounded(*part[1:], span=(low, high)) for part in parts):
            count, share = int(np.count_nonzero(np.abs(evidence.error) > SLIGHT_ERROR_CODES)), COINCIDENCE_MIN_SHARE
        else:
            continue
        bounds = [f"below {low}"] * (int(outer.min()) < low) + [f"above {high}"] * (int(outer.max()) > high)
        if count and not may_be_chance(share, count):
            yield Trait(pattern="clamp", detail=f"a clamp of the codes {' and '.join(bounds)} is {verdict}")


def _is_clamped(is_wrong: np.ndarray, outer: np.ndarray, inner: np.ndarray, *, span: tuple[int, int]) -> bool:
    """Return whether clipping `outer` to a span gives `inner`, and exactly the elements beyond the span are wrong."""
    codes = outer.astype(np.int64)
    outside_span = (codes < span[0]) | (codes > span[1])
    return np.array_equal(is_wrong, outside_span) and np.array_equal(np.clip(codes, *span), inner)


def _is_clamped_or_rounded(outer: np.ndarray, inner: np.ndarray, *, span: tuple[int, int]) -> bool:
    """Return whether clipping `outer` to a span gives `inner` up to one code."""
    difference = np.clip(outer.astype(np.int64), *span) - inner.astype(np.int64)
    return bool(np.abs(difference).max(initial=0) <= SLIGHT_ERROR_CODES)


def _wrapped_codes(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find codes that wrapped around to the other end of the range, if all other wrong codes are off by at most one."""
    low, high = evidence.span
    error = evidence.error
    is_far_off = np.abs(error) > (high - low) // 2
    wrapped_count = int(np.count_nonzero(is_far_off))
    is_saturated = np.isin(evidence.expected, (low, high))
    if not wrapped_count or np.any(np.abs(error[~is_far_off & ~is_saturated]) > SLIGHT_ERROR_CODES):
        return
    is_wrapped = is_saturated[is_far_off].mean() >= TRAIT_MIN_SHARE and not may_be_chance(
        max(float(is_saturated.mean()), COINCIDENCE_MIN_SHARE), wrapped_count
    )
    if is_wrapped and np.count_nonzero(is_saturated & (error == 0)) <= (1 - TRAIT_MIN_SHARE) * wrapped_count:
        yield Trait(
            pattern="wrapped", detail=f"{wrapped_count} elements beyond the range have codes of the opposite end"
        )


def _overflowed_codes(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find wrong elements at one end of the range that should lie on the other side of real 0."""
    # Smaller errors are ignored, because a different rounding causes them.
    is_wrong, zero = np.abs(evidence.error) > SLIGHT_ERROR_CODES, evidence.zero_point
    if not is_wrong.any():
        return
    wrong_codes, expected_codes = evidence.recorded[is_wrong], evidence.expected[is_wrong].astype(np.int64)
    code = int(wrong_codes[0])
    lies_opposite = (expected_codes > zero) if code == evidence.span[0] else (expected_codes < zero)
    if code not in evidence.span or np.any(wrong_codes != code) or lies_opposite.mean() < TRAIT_MIN_SHARE:
        return
    all_expected = evidence.expected.astype(np.int64)
    usual_share = float(np.mean(all_expected > zero if code == evidence.span[0] else all_expected < zero))
    if may_be_chance(max(usual_share, COINCIDENCE_MIN_SHARE), wrong_codes.size):
        return
    end = "lowest" if code == evidence.span[0] else "highest"
    detail = f"the wrong elements are all {code} (the {end} code), but belong on the other side of real 0"
    yield Trait(pattern="overflow", detail=detail)


def _stale_codes(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find wrong elements that all hold the same code, or the values of a neighbour."""
    is_wrong = evidence.wrong
    recorded, expected = evidence.recorded, evidence.expected
    wrong_codes = recorded[is_wrong]
    values, frequencies = np.unique(wrong_codes, return_counts=True)
    commonest_code = int(values[np.argmax(frequencies)])
    share = float(np.mean(recorded == commonest_code))
    if share == 1:
        return
    if (
        frequencies.max() == wrong_codes.size
        and not any(_overflowed_codes(evidence))
        and np.unique(expected[is_wrong]).size > 1
        and not may_be_chance(max(share, COINCIDENCE_MIN_SHARE), wrong_codes.size)
    ):
        zero = " (the zero point)" if commonest_code == evidence.zero_point else ""
        yield Trait(pattern="unwritten", detail=f"the wrong elements are all {commonest_code}{zero}")
        return
    for axis, name in _axes_of_neighbours(evidence.layout, recorded.ndim):
        length = recorded.shape[axis]
        for distance in [d for d in STALE_DISTANCES if abs(d) < length]:
            checkpoint()
            shifted_codes = np.roll(expected, distance, axis)
            usual_share = float(np.mean(shifted_codes == expected))
            open_end = is_wrong.copy()
            open_end[_index_of_wrapped(axis, distance, recorded.ndim)] = False
            for is_examined in (
                is_wrong,
                open_end,
            ):  # with and without the elements that np.roll fills from the far end
                is_equal = shifted_codes[is_examined] == recorded[is_examined]
                if (
                    np.count_nonzero(is_examined) >= TRAIT_MIN_SHARE * wrong_codes.size
                    and is_equal.mean() >= TRAIT_MIN_SHARE
                    and not may_be_chance(max(usual_share, COINCIDENCE_MIN_SHARE), int(is_equal.sum()), STALE_CHOICES)
                ):
                    direction = "before" if distance > 0 else "after"
                    distance_text = f"{plural(abs(distance), name)} {direction}"
                    yield Trait(pattern="stale", detail=f"the wrong elements have the values of {distance_text}")
                    return


def _index_of_wrapped(axis: int, distance: int, rank: int) -> tuple[slice, ...]:
    """Return an index of the elements that `np.roll` by a distance fills from the other end of the axis."""
    ends = slice(0, distance) if distance > 0 else slice(distance, None)
    return tuple(ends if dimension == axis else slice(None) for dimension in range(rank))


def _axes_of_neighbours(layout: Layout, rank: int) -> Iterator[tuple[int, str]]:
    for axis, (name, _) in zip(layout.spatial, layout.spatial_names, strict=True):
        yield axis + 1, name
    if layout.channel is not None:
        yield layout.channel + 1, layout.channel_name
    if rank:
        yield 0, "sample"


def _errors_near_ties(evidence: CodesOfTensor) -> Iterator[Trait]:
    is_wrong = evidence.wrong
    if evidence.distance is None or np.abs(evidence.error).max() > SLIGHT_ERROR_CODES:
        return
    is_near = evidence.distance < TIE_MAX_DISTANCE
    wrong_count = int(np.count_nonzero(is_wrong))
    if not (is_wrong & ~is_near).any() and not may_be_chance(
        max(float(is_near.mean()), 2 * TIE_MAX_DISTANCE), wrong_count
    ):
        yield Trait(pattern="ties_only", detail="off by one, and only where the value lies close to a tie")


def _growing_errors(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find errors that occur where the sums or their terms are large.

    The measure is how often a wrong element has a larger sum, or larger terms, than a right one.
    """
    error, is_wrong = evidence.error, evidence.wrong
    if is_wrong.all() or np.abs(error).max() <= SLIGHT_ERROR_CODES or _is_right_by_chance(evidence):
        return
    sizes = [size for size in (evidence.magnitude, evidence.sums) if size is not None]
    rank_share = max(
        (_probability_above(_thin_out(size[is_wrong]), _thin_out(size[~is_wrong])) for size in sizes), default=0.0
    )
    group_size = min(int(np.count_nonzero(is_wrong)), int(np.count_nonzero(~is_wrong)))
    if rank_share < LARGE_SUMS_MIN_RANK_SHARE or group_size < LARGE_SUMS_MIN_ELEMENTS:
        return
    # Saturation moves a sum towards the zero point. Wrapping around moves it far beyond, to the other sign.
    expected_codes = evidence.expected.astype(np.int64)[is_wrong] - evidence.zero_point
    recorded_codes = evidence.recorded.astype(np.int64)[is_wrong] - evidence.zero_point
    jumps = float(
        np.mean((np.sign(expected_codes) * np.sign(recorded_codes) < 0) & (np.abs(error[is_wrong]) > JUMP_MIN_CODES))
    )
    sign_text = ", and often of the other sign" if jumps > JUMP_MIN_SHARE else ""
    limit_text = (
        f", of at most {RANKED_MAX_ELEMENTS} of either kind"
        if max(is_wrong.sum(), (~is_wrong).sum()) > RANKED_MAX_ELEMENTS
        else ""
    )
    ranked = f"({rank_share:.0%} of wrong ones outrank right ones{limit_text})"
    detail = f"wrong where the sums or their products are large {ranked}{sign_text}"
    yield Trait(pattern="growing", detail=detail)


def _is_right_by_chance(evidence: CodesOfTensor) -> bool:
    """Return whether as many elements are right as would be if every element held the code of a random other one.

    Such elements have common codes, which are those of small sums.
    """
    codes, counts = np.unique(evidence.expected, return_counts=True)
    recorded_codes, recorded_counts = np.unique(evidence.recorded, return_counts=True)
    _, at, recorded_at = np.intersect1d(codes, recorded_codes, return_indices=True)
    expected_right = float(counts[at] @ recorded_counts[recorded_at]) / evidence.expected.size
    return int(np.count_nonzero(~evidence.wrong)) <= RIGHT_BY_CHANCE_MAX_FACTOR * expected_right


def _thin_out(values: np.ndarray) -> np.ndarray:
    """Return the values, or an evenly spaced sample of them if there are too many to rank."""
    checkpoint()
    if values.size <= RANKED_MAX_ELEMENTS:
        return values
    return np.asarray(values[np.linspace(0, values.size - 1, RANKED_MAX_ELEMENTS).astype(np.int64)])


def _probability_above(high: np.ndarray, low: np.ndarray) -> float:
    """Return the probability that a random value of `high` exceeds one of `low`. Ties count half.

    This is the statistic of Mann and Whitney (1947), divided by the number of pairs.
    """
    ordered = np.sort(low, axis=None)
    flat = high.ravel()
    rank_sums = np.searchsorted(ordered, flat, side="left") + np.searchsorted(ordered, flat, side="right")
    return float(rank_sums.mean() / 2 / ordered.size)


def _errors_of_one(evidence: CodesOfTensor) -> Iterator[Trait]:
    if np.abs(evidence.error).max() > SLIGHT_ERROR_CODES:
        return
    spared_count = _count_spared(evidence)
    if spared_count > NO_ROUNDING_SPARED_RATIO * int(np.count_nonzero(evidence.wrong)):
        detail = f"off by one code, while {spared_count} right elements lie closer to a tie and are as large"
        yield Trait(pattern="altered", detail=detail)
    else:
        yield Trait(pattern="off_by_one", detail="off by one code")


def _count_spared(evidence: CodesOfTensor) -> int:
    """Count right elements that a different rounding would rather have changed than half of the wrong ones.

    They lie closer to a tie than the median wrong element, and are at least as large.
    """
    if evidence.distance is None:
        return 0
    is_wrong = evidence.wrong
    code_distances = np.abs(evidence.expected.astype(np.int64) - evidence.zero_point)
    is_sooner = (evidence.distance <= np.median(evidence.distance[is_wrong])) & (
        code_distances >= np.median(code_distances[is_wrong])
    )
    return int(np.count_nonzero(is_sooner & ~is_wrong & unclipped_elements(evidence)))
