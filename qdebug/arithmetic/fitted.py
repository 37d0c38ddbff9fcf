"""Solves for the multiplier of a requantization instead of trying candidates one after another.

Each recorded pair of an exact sum and a code bounds the real multiplier. With one rounding to nearest, the code 5 of
the sum 100 shows that the multiplier lies between 0.045 and 0.055. All pairs of a channel together leave a narrow
interval. A significand of N bits is possible if its value lies in the intervals of all channels. Intervals include both
ends, so the rounding of ties does not matter here. An exact replay of every element decides afterwards.

Three kinds of programs are solved: one rounding, the two roundings of gemmlowp (their first rounding widens the
intervals), and a shift before the product (the sums are shifted first). Hardware may limit the right shift. Then the
multipliers of channels with a small scale have fewer bits. Begin at `fitted_variants` and `fit_multiplier`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.selection import number_parameter_sets
from qdebug.model.thresholds.explanation import (
    FITTED_BOUND_SLACK,
    FITTED_MULTIPLIER_MIN_PAIRS,
    FITTED_MULTIPLIER_MIN_WRONG,
    FITTED_PRE_MAX_SHIFT,
)
from qdebug.numerics.fixedpoint import shift_right
from qdebug.replay.columns import Columns
from qdebug.replay.scaling import (
    EXPRESSIONS,
    GIVEN,
    WIDTHS,
    Fixed,
    Multiplier,
    integer_multiplier,
    multiplier_value,
    real_multiplier,
    recorded_multiplier,
    scales_of,
)
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant, parse_variant

__all__ = [
    "PRODUCTS",
    "FittedMultiplier",
    "fit_multiplier",
    "fitted_variants",
    "limited_variants",
    "other_widths",
    "shifted_variants",
]

PRODUCTS = ("conv", "linear")
"""Kinds of units in which one multiplier per channel converts exact sums to codes."""
_NEAREST_ROUNDINGS = ("up", "away", "even", "down")
_FIRST_ROUNDINGS = ("up", "away", "trunc")
_MAX_SHIFT = 62
"""Largest right shift that is tried as the limit of a device."""
_CODE_MARGINS = {"nearest": (0.5, 0.5), "floor": (0.0, 1.0), "trunc": (0.0, 0.0)}
"""How far a scaled sum may lie below and above its code. For truncation, this depends on the sign of the code."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """Sums with their recorded codes, and the bounds of their multipliers.

    Args:
        unit: The unit.
        columns: Its columns at the chosen elements.
        sums: The exact sums.
        codes: Their codes without the zero point.
        channel: Number of each element's channel, or other set of parameters, from 0.
        first: Position of one element of each channel.
        low, high: Codes without the zero point at which results saturate.
    """

    unit: Unit
    columns: Columns
    sums: np.ndarray
    codes: np.ndarray
    channel: np.ndarray
    first: np.ndarray
    low: float
    high: float

    def by_channel(self, parameter: np.ndarray) -> np.ndarray:
        """Return one value of a parameter for each channel."""
        return np.asarray(np.broadcast_to(self.columns.spread(np.asarray(parameter)), self.sums.shape)[self.first])

    def sum_bounds(self, rounding: str, slack: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest scaled sum that each code allows.

        Args:
            rounding: A key of `_CODE_MARGINS`.
            slack: How much further a scaled sum may lie from its code.
        """
        below, above = _CODE_MARGINS[rounding]
        down, up = self.codes - below, self.codes + above
        if rounding == "trunc":
            down, up = self.codes - (self.codes <= 0), self.codes + (self.codes >= 0)
        down = np.where(self.codes <= self.low, -np.inf, down - slack)
        return down, np.where(self.codes >= self.high, np.inf, up + slack)

    def count_wrong(self, multipliers: np.ndarray, rounding: str) -> np.ndarray:
        """Count the elements of each channel that given multipliers get wrong."""
        down, up = self.sum_bounds(rounding)
        scaled = self.sums * multipliers[self.channel]
        return np.bincount(self.channel[(scaled < down) | (scaled > up)], minlength=self.first.size)

    def bounds(self, rounding: str, *, slack: np.ndarray | float = 0.0, pre: tuple[int, str] | None = None) -> _Bounds:
        """Bound the multiplier of each channel.

        Args:
            rounding: A key of `_CODE_MARGINS`.
            slack: How much further a scaled sum may lie from its code, for each channel.
            pre: Bits by which sums are shifted right before the product, and the rounding of this shift.
        """
        sums = (self.sums if pre is None else shift_right(self.sums, *pre)).astype(np.float64)
        down, up = self.sum_bounds(
            rounding, np.broadcast_to(np.asarray(slack, np.float64), self.first.shape)[self.channel]
        )
        low, high = np.zeros(self.first.size), np.full(self.first.size, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.where(sums > 0, down / sums, up / sums), np.where(sums > 0, up / sums, down / sums)
        scaled = sums != 0
        np.maximum.at(low, self.channel[scaled], ends[0][scaled])
        np.minimum.at(high, self.channel[scaled], ends[1][scaled])
        consistent = bool(np.all((down[~scaled] <= 0) & (up[~scaled] >= 0)))  # scaled sums of 0 are 0
        return _Bounds(low=low, high=high, consistent=consistent)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bounds:
    """The interval of the multiplier of each channel.

    Args:
        low, high: Its ends.
        consistent: Whether sums of 0 have the codes that they must have.
    """

    low: np.ndarray
    high: np.ndarray
    consistent: bool

    @property
    def has_fit(self) -> bool:
        """Whether every channel has a multiplier that fits."""
        return self.consistent and bool(np.all(self.low <= self.high * (1 + FITTED_BOUND_SLACK)))

    def nearly_contain(self, values: np.ndarray, pairs: _Pairs, integers: Fixed) -> bool:
        """Return whether the given multipliers, one for each channel, fit or miss by at most one in the last place."""
        last_place = values / np.maximum(pairs.by_channel(integers.multiplier), 1)
        return bool(np.all((values + last_place >= self.low) & (values - last_place <= self.high)))

    def contain(self, values: np.ndarray) -> bool:
        """Return whether the given multipliers fit, one for each channel."""
        return bool(
            np.all((values >= self.low * (1 - FITTED_BOUND_SLACK)) & (values <= self.high * (1 + FITTED_BOUND_SLACK)))
        )


def _pair_sums_with_codes(unit: Unit, columns: Columns, recorded: np.ndarray, positions: np.ndarray) -> _Pairs | None:
    """Pair sums with codes, or return None if the unit does not scale exact sums by one multiplier per channel."""
    key = number_parameter_sets(unit, columns)
    if key is None or columns.count is not None or columns.member is not None or len(columns.values) != 1:
        return None
    sums = columns.take(positions)
    zero = unit.out.zero_point
    if unit.out.dtype.kind not in "iu" or zero.size != 1 or not positions.size:
        return None
    values = sums.values[0].astype(np.int64)
    if columns.sums.columns != "sum" or not np.array_equal(values, sums.values[0]):
        return None
    _, first, channel = np.unique(
        np.broadcast_to(key, (columns.size,))[positions], return_index=True, return_inverse=True
    )
    (low, high), offset = unit.out.limits, int(zero.reshape(-1)[0])
    lowest_code, highest_code = unit.out.clamp or (low, high)
    return _Pairs(
        unit=unit,
        columns=sums,
        sums=values,
        codes=recorded[positions].astype(np.float64) - offset,
        channel=channel.reshape(-1),
        first=first,
        low=max(low, lowest_code) - offset,
        high=min(high, highest_code) - offset,
    )


def other_widths(variants: Sequence[Variant]) -> str:
    """Return a clause with the range of widths of the multiplier that fit equally, or "" if only one fits."""
    first = variants[0]
    widths = {
        int(number.strip("qte"))
        for variant in variants
        if (number := variant.multiplier.number).startswith("q")
        and (variant.requantize, variant.multiplier.pre) == (first.requantize, first.multiplier.pre)
        and bool(variant.multiplier.shifts) == bool(first.multiplier.shifts)
    }
    if len(widths) < 2 or not first.multiplier.number.startswith("q"):
        return ""
    return f"widths from {min(widths)} to {max(widths)} bits fit equally"


def fitted_variants(unit: Unit, columns: Columns, recorded: np.ndarray, positions: np.ndarray) -> list[Variant]:
    """Return variants with one or two roundings whose multiplier lies in the intervals of all channels.

    Args:
        unit: The unit.
        columns: Its sums, for all elements.
        recorded: Recorded codes, flat, channels first.
        positions: The elements to bound the multiplier by.
    """
    pairs = _pair_sums_with_codes(unit, columns, recorded, positions)
    if pairs is None:
        return []
    exponent = np.frexp(pairs.by_channel(real_multiplier(scales_of(unit), "d:xw/y")))[1]
    first_rounding = np.exp2(np.minimum(exponent, 0).astype(np.float64))
    variants: list[Variant] = []
    for rounding in _CODE_MARGINS:
        final = _NEAREST_ROUNDINGS if rounding == "nearest" else (rounding,)
        texts = [f"mul,shr.{shift_rounding},zp,sat" for shift_rounding in final]
        variants += _programs_within(pairs, pairs.bounds(rounding), Multiplier(number="q31"), texts)
        texts = [
            f"shl,mulhi.{high},shr.{shift_rounding},zp,sat" for high in _FIRST_ROUNDINGS for shift_rounding in final
        ]
        variants += _programs_within(
            pairs, pairs.bounds(rounding, slack=first_rounding), Multiplier(number="q31"), texts
        )
    return variants


def with_equal_orders(unit: Unit, variants: Sequence[Variant]) -> list[Variant]:
    """Add the variants that compute the same integer multipliers for a unit by another order of operations.

    For a sibling node, the order may make a difference.
    """
    scales, orders = scales_of(unit), list[Variant]()
    for variant in variants:
        if variant.multiplier.bits is None or variant.multiplier.number == GIVEN:
            continue
        key = _bytes_of_integers(integer_multiplier(unit, scales, variant.multiplier))
        for expression in EXPRESSIONS:
            multiplier = replace(variant.multiplier, expression=expression)
            if (
                multiplier != variant.multiplier
                and _bytes_of_integers(integer_multiplier(unit, scales, multiplier)) == key
            ):
                orders.append(replace(variant, multiplier=multiplier))
    return [*dict.fromkeys((*variants, *orders))]


def limited_variants(unit: Unit, columns: Columns, recorded: np.ndarray, positions: np.ndarray) -> list[Variant]:
    """Like `fitted_variants`, for devices whose right shift is too short for some channels."""
    pairs = _pair_sums_with_codes(unit, columns, recorded, positions)
    if pairs is None:
        return []
    exponent = np.frexp(pairs.by_channel(real_multiplier(scales_of(unit), "d:xw/y")))[1]
    limits = [
        (0, limit)
        for limit in range(max(WIDTHS[0] - int(exponent.max()), 0), WIDTHS[-1] - int(exponent.min()))
        if limit <= _MAX_SHIFT
    ]
    variants: list[Variant] = []
    for rounding in _CODE_MARGINS:
        final = _NEAREST_ROUNDINGS if rounding == "nearest" else (rounding,)
        texts = [f"mul,shr.{shift_rounding},zp,sat" for shift_rounding in final]
        bounds = pairs.bounds(rounding)
        for shifts in limits if bounds.has_fit else ():
            min_width = max(
                shifts[1] + int(exponent.min()) + 1, WIDTHS[0]
            )  # with fewer bits, no channel exceeds the limit
            multiplier = Multiplier(number="q31", shifts=shifts)
            variants += _programs_within(pairs, bounds, multiplier, texts, range(min_width, WIDTHS[-1] + 1))
    return variants


def shifted_variants(unit: Unit, columns: Columns, recorded: np.ndarray, positions: np.ndarray) -> list[Variant]:
    """Like `fitted_variants`, for programs that shift the sums to the right before the product."""
    pairs = _pair_sums_with_codes(unit, columns, recorded, positions)
    if pairs is None:
        return []
    variants: list[Variant] = []
    for bits in range(1, FITTED_PRE_MAX_SHIFT + 1):
        for first in ("floor", "up"):
            for rounding in _CODE_MARGINS:
                final = _NEAREST_ROUNDINGS if rounding == "nearest" else (rounding,)
                bounds = pairs.bounds(rounding, pre=(bits, first))
                texts = [f"pre.{first},mul,shr.{shift_rounding},zp,sat" for shift_rounding in final]
                variants += _programs_within(pairs, bounds, Multiplier(number="q31", pre=bits), texts)
    return variants


def _programs_within(
    pairs: _Pairs, bounds: _Bounds, multiplier: Multiplier, programs: Sequence[str], widths: Sequence[int] = WIDTHS
) -> Iterator[Variant]:
    """Yield variants whose multipliers lie within bounds, one for each set of integers.

    Args:
        pairs: The sums and codes.
        bounds: The bounds of the multipliers.
        multiplier: A multiplier with the shifts to use. Its significand and expression are varied.
        programs: Texts of the programs to combine with each multiplier.
        widths: Numbers of bits of the significand.
    """
    if not bounds.has_fit:
        return
    seen_keys: set[bytes] = set()
    scales = scales_of(pairs.unit)
    for width in widths:
        for suffix in ("", "t"):
            for expression in EXPRESSIONS:
                trial_multiplier = replace(multiplier, number=f"q{width}{suffix}", expression=expression)
                integers = integer_multiplier(pairs.unit, scales, trial_multiplier)
                if not bounds.nearly_contain(
                    pairs.by_channel(multiplier_value(integers)) * 2.0**multiplier.pre, pairs, integers
                ):
                    break  # other orders of operations differ by less than the last place, so they miss as well
                key = _bytes_of_integers(integers)
                if key in seen_keys:
                    continue
                seen_keys.add(key)
                if bounds.contain(pairs.by_channel(multiplier_value(integers)) * 2.0**multiplier.pre):
                    yield from (parse_variant(f"m={trial_multiplier} steps={steps}") for steps in programs)


def _bytes_of_integers(integers: Fixed) -> bytes:
    parts = integers.multiplier, integers.exponent, integers.pre
    return b"".join(part.tobytes() for part in parts) + bytes([integers.bits])


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMultiplier:
    """Real multipliers that reproduce every element of a node, although those of the scales do not.

    Args:
        channels: Channels whose multiplier differs, in order.
        channel_count: Number of channels.
        min_ratio, max_ratio: Smallest and largest quotient of the fitted multiplier and that of the scales, among these
            channels.
        recorded: Whether a recorded multiplier and shift lie in the intervals of all channels; None without them.
    """

    channels: tuple[int, ...]
    channel_count: int
    min_ratio: float
    max_ratio: float
    recorded: bool | None

    def __str__(self) -> str:
        """Return a clause that states the difference."""
        where_text = "" if self.channel_count == 1 else f" in {_channels_text(self.channels, self.channel_count)}"
        agrees = "agree" if self.recorded else "do not agree"
        recorded_clause = "" if self.recorded is None else f"; the recorded multiplier and shift {agrees} with this"
        deviation = _deviation_text(self.min_ratio, self.max_ratio)
        return (
            f"the codes imply a multiplier that is {deviation}{where_text}: it was computed from scales other than the "
            f"recorded ones, or rounded{recorded_clause} (reproduces every element)"
        )


def _deviation_text(min_ratio: float, max_ratio: float) -> str:
    """Describe how far ratios are from 1, given the smallest and the largest."""
    percents = [
        f"{abs(factor - 1) * 100:.2g} %" for factor in sorted((min_ratio, max_ratio), key=lambda each: abs(each - 1))
    ]
    directions = ["small" if factor < 1 else "large" for factor in (min_ratio, max_ratio)]
    if directions[0] == directions[1]:
        return f"{' to '.join(dict.fromkeys(percents))} too {directions[0]}"
    return f"between {abs(min_ratio - 1) * 100:.2g} % too small and {abs(max_ratio - 1) * 100:.2g} % too large"


def _channels_text(channels: Sequence[int], channel_count: int) -> str:
    if len(channels) == 1:
        return f"channel {channels[0]}"
    if len(channels) > _MAX_LISTED_CHANNELS:
        return "all channels" if len(channels) == channel_count else f"{len(channels)} of {channel_count} channels"
    return f"channels {', '.join(map(str, channels[:-1]))} and {channels[-1]}"


_MAX_LISTED_CHANNELS = 6


def fit_multiplier(parts: Sequence[tuple[Unit, Columns, np.ndarray]]) -> FittedMultiplier | None:
    """Fit the multiplier of each channel to a node that no width explains.

    Args:
        parts: Unit, complete sums and recorded codes (flat, channels first) of each sample.

    Returns:
        The multipliers. None if the node has one scale for all channels, no multipliers reproduce every element, those
            of the scales may do so as well, or too few elements show the difference.
    """
    samples = [_pair_sums_with_codes(*part, np.arange(part[2].size)) for part in parts]
    pairs = [sample for sample in samples if sample is not None]
    if not pairs or pairs[0].first.size == 1 or len(pairs) < len(samples):
        return None
    if any(not np.array_equal(sample.first, pairs[0].first) for sample in pairs):
        return None
    nominal = pairs[0].by_channel(real_multiplier(scales_of(pairs[0].unit), "d:xw/y"))
    for rounding in _CODE_MARGINS:
        bounds = [sample.bounds(rounding) for sample in pairs]
        # A multiplier must lie within the bounds of every sample, so the bounds are intersected.
        low, high = (
            np.max([sample_bounds.low for sample_bounds in bounds], axis=0),
            np.min([sample_bounds.high for sample_bounds in bounds], axis=0),
        )
        if not all(sample_bounds.consistent for sample_bounds in bounds) or not np.all(low < high):
            continue
        # Channels whose bounds contain the nominal multiplier are right. The others need many pairs of a sum and a
        # code, because some multiplier fits a few pairs by chance.
        differs = (nominal < low * (1 - FITTED_BOUND_SLACK)) | (nominal > high * (1 + FITTED_BOUND_SLACK))
        if not differs.any() or not np.all(_count_bounding_codes(pairs)[differs] >= FITTED_MULTIPLIER_MIN_PAIRS):
            return None
        wrong = np.sum([sample.count_wrong(nominal, rounding) for sample in pairs], axis=0)
        if wrong[differs].sum() < FITTED_MULTIPLIER_MIN_WRONG * np.count_nonzero(differs):
            return None
        factors = (low + high)[differs] / (2 * nominal[differs])
        if not np.isfinite(factors).all():
            return None
        return FittedMultiplier(
            channels=tuple(np.flatnonzero(differs).tolist()),
            channel_count=nominal.size,
            min_ratio=float(factors.min()),
            max_ratio=float(factors.max()),
            recorded=_is_recorded_multiplier_within(pairs[0], low, high),
        )
    return None


def _count_bounding_codes(pairs: Sequence[_Pairs]) -> np.ndarray:
    """Count the distinct codes of each channel that bound its multiplier on both sides, to within a factor of 2."""
    codes = []
    for sample in pairs:
        inside = (sample.codes > sample.low) & (sample.codes < sample.high) & (np.abs(sample.codes) > 1)
        codes.append(np.stack([sample.channel[inside], sample.codes[inside].astype(np.int64)]))
    distinct = np.unique(np.concatenate(codes, axis=1), axis=1)
    return np.bincount(distinct[0], minlength=pairs[0].first.size)


def _is_recorded_multiplier_within(pairs: _Pairs, low: np.ndarray, high: np.ndarray) -> bool | None:
    recorded = recorded_multiplier(pairs.unit, scales_of(pairs.unit))
    if recorded is None:
        return None
    return _Bounds(low=low, high=high, consistent=True).contain(pairs.by_channel(multiplier_value(recorded[0])))
