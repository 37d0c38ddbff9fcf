"""What the wrong elements of a tensor hold: a constant too much, a factor, a clamp's bound, somebody else's values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.arithmetic.patterns.wrong_evidence import CodesOfTensor, Trait, by_channel, free_elements, stretches
from qdebug.arithmetic.patterns.wrong_places import Layout, chance
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
    """Find the same error in all elements of a channel; a shift of part of a step makes two neighbouring errors.

    Where sums over padding differ from the rest, the elements that no padding reaches decide.
    """
    inside = _inside(evidence)
    for part in (slice(None), *((inside,) if inside is not None else ())):
        shifts = _shifts(evidence, part)
        affected = np.array([shift for shift in shifts or () if shift])
        if shifts is None or not affected.size:
            continue
        hit = affected.size
        if not _is_shift(evidence, part, affected, hit / len(shifts)):
            continue
        where = "" if part == slice(None) else " away from the borders"
        even = affected.max() - affected.min() < CONSTANT_ERROR_MAX_SPREAD
        if hit == len(shifts) and even:
            yield Trait(pattern="constant", detail=f"every element{where} is off by {_codes(affected)}")
            return
        span = _codes(affected) if even else f"{affected.min():.3g} to {affected.max():.3g} codes"
        name = evidence.layout.channel_name
        which = f"each {name}" if hit == len(shifts) else f"{hit} of {len(shifts)} {name}s"
        yield Trait(pattern="constant_per_channel", detail=f"a constant in {which}{where}, of {span}")
        return


def _codes(shifts: np.ndarray) -> str:
    """Say how many codes a shift is; what is no whole number shows as one code in some of the elements."""
    mean = float(shifts.mean())
    return (
        "1 code"
        if abs(abs(mean) - 1) < FLOAT64_COMPARISON_SLACK
        else f"{mean:.3g} codes{' on average' if mean % 1 else ''}"
    )


def _is_shift(evidence: CodesOfTensor, part: slice | tuple[slice, ...], shifts: np.ndarray, share: float) -> bool:
    """Tell whether what looks like constants is no accident of a few wrong elements, and no factor.

    Args:
        evidence: The codes.
        part: Where the errors are looked at.
        shifts: Mean errors of the channels that are affected.
        share: Their share of all channels.
    """
    wrong = int(np.count_nonzero(evidence.error[part]))
    if share < 1 and chance(share, wrong, round(1 / share)):
        return False
    if np.all(np.abs(shifts - np.rint(shifts)) < FLOAT64_COMPARISON_SLACK):
        return True
    if np.abs(evidence.error[part]).max() > 1:
        return True
    # Part of a step makes errors of one sign, as often in small numbers as in large ones.
    small, large = _mean_errors(evidence, part)
    return not chance(0.5, wrong) and min(small, large) >= CONSTANT_ERROR_MIN_FLATNESS * max(small, large)


def _mean_errors(evidence: CodesOfTensor, part: slice | tuple[slice, ...]) -> tuple[float, float]:
    """Return the mean magnitude of the error in the half of the elements next to the zero point, and in the other."""
    free = free_elements(evidence)[part]
    size = np.abs(evidence.expected[part].astype(np.int64) - evidence.zero_point)[free]
    error = np.abs(evidence.error[part])[free]
    if not size.size or (near := size <= np.median(size)).all():
        return 1.0, 1.0
    return float(error[near].mean()), float(error[~near].mean())


def _inside(evidence: CodesOfTensor) -> tuple[slice, ...] | None:
    """Return the elements away from the spatial borders, as an index; None if there are hardly any."""
    axes = [axis + 1 for axis in evidence.layout.spatial]
    shape = evidence.expected.shape
    if not axes or any(shape[axis] < INTERIOR_MIN_EXTENT for axis in axes):
        return None
    return tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(len(shape)))


def _shifts(evidence: CodesOfTensor, part: slice | tuple[slice, ...]) -> list[float] | None:
    """Return the mean error of each channel; None if the errors of a channel are no constant."""
    errors = by_channel(evidence.error[part], evidence.layout)
    shifts: list[float] = []
    slight = 0
    for own, usable in zip(errors, by_channel(free_elements(evidence)[part], evidence.layout), strict=True):
        seen = own[usable]
        if not own.any():
            shifts.append(0.0)
            continue
        if seen.size < CONSTANT_ERROR_MIN_ELEMENTS:  # all saturated: no evidence either way
            continue
        if seen.max() - seen.min() > 1:
            return None
        if (
            np.count_nonzero(seen) < CONSTANT_ERROR_MIN_WRONG_SHARE * seen.size
        ):  # a few off by one: a tiny shift, or none
            slight += 1
        else:
            shifts.append(float(seen.mean()))
    return shifts if slight <= np.count_nonzero(shifts) else None


def factors(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find recorded = zero point + factor * (expected - zero point), with one factor or one for each channel."""
    arrays = evidence.expected, evidence.recorded, free_elements(evidence)
    every = _Codes(arrays, evidence.zero_point)
    whole = every.factor()
    if whole is not None and every.grow(whole):
        digits = 4 if abs(whole - 1) >= 0.001 else 7
        yield Trait(pattern="factor", detail=f"the elements are {whole:.{digits}g} times what they should be")
        return
    wrong = by_channel(evidence.wrong, evidence.layout)
    if np.count_nonzero(wrong) < SCALED_CHANNEL_MIN_WRONG * np.count_nonzero(wrong.any(axis=1)):
        return  # a single wrong code is a factor too
    found = []
    for rows in zip(*(by_channel(array, evidence.layout) for array in arrays), strict=True):
        channel = _Codes(rows, evidence.zero_point)
        if not channel.telling:
            continue
        factor = channel.factor()
        if factor is None:
            return
        found.append(factor)
    if found and max(abs(factor - 1) for factor in found) >= SCALED_MIN_DEVIATION:
        span = f"{min(found):.3g} to {max(found):.3g}"
        said = f"each {evidence.layout.channel_name} is a constant times what it should be, {span}"
        yield Trait(pattern="factor_per_channel", detail=said)


class _Codes:
    """Expected and recorded codes that nothing cuts off, less their zero point, read piece by piece.

    Args:
        arrays: Expected codes, recorded codes, and which of them count.
        zero_point: The code of real 0.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...], zero_point: int) -> None:
        self._arrays, self._zero_point = arrays, zero_point
        self._many, self._largest, self._power, self._product = 0, 0, 0.0, 0.0
        for x, y in self._centred():
            real = x.astype(np.float64)
            self._many += x.size
            self._largest = max(self._largest, int(np.abs(x).max(initial=0)))
            self._power += float(real @ real)
            self._product += float(real @ y.astype(np.float64))

    def _centred(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for expected, recorded, free in stretches(*self._arrays):
            yield (
                expected[free].astype(np.int64) - self._zero_point,
                recorded[free].astype(np.int64) - self._zero_point,
            )

    @property
    def telling(self) -> bool:
        """Whether a factor could be told from them."""
        return self._many >= SCALED_MIN_CODES and self._largest >= SCALED_MIN_CODES

    def factor(self) -> float | None:
        """Return the factor between them; None if there is none that accounts for all but their rounding."""
        if not self.telling:
            return None
        factor = self._product / self._power
        if factor < SCALED_MIN_FACTOR:
            return None
        most = 0.5 + 0.5 * factor + SCALED_ROUNDING_SLACK
        fitting = sum(int(np.count_nonzero(np.abs(y - factor * x) <= most)) for x, y in self._centred())
        return factor if fitting >= SCALED_MIN_FITTING_SHARE * self._many else None

    def grow(self, factor: float) -> bool:
        """Tell whether a factor that few codes show is one: errors go its way, and grow with the codes."""
        many = same = 0
        for x, y in self._centred():
            wrong = x != y
            many += int(np.count_nonzero(wrong))
            same += int(np.count_nonzero(np.sign((y - x)[wrong]) == np.sign((factor - 1) * x[wrong])))
        if not many or same / many < TRAIT_MIN_SHARE or chance(0.5, many):
            return False
        middle = self._median_size()
        errors, counts = np.zeros((2, 2))  # of codes up to the median, and beyond it
        for x, y in self._centred():
            far = np.abs(x) > middle
            for at, part in enumerate((~far, far)):
                errors[at] += float(np.abs(y - x)[part].sum())
                counts[at] += int(np.count_nonzero(part))
        return bool(counts.all() and errors[0] / counts[0] < CONSTANT_ERROR_MIN_FLATNESS * errors[1] / counts[1])

    def _median_size(self) -> float:
        """Return the median of the expected codes' magnitudes."""
        if self._largest >= 1 << 17:  # wider than any quantized code
            return float(np.median(np.concatenate([np.abs(x) for x, _ in self._centred()])))
        counts = np.zeros(self._largest + 1, np.int64)
        for x, _ in self._centred():
            counts += np.bincount(np.abs(x), minlength=counts.size)
        below = np.cumsum(counts)
        low, high = (int(np.searchsorted(below, at, side="right")) for at in ((self._many - 1) // 2, self._many // 2))
        return (low + high) / 2


def traits(evidence: CodesOfTensor) -> tuple[Trait, ...]:
    """Find what the wrong elements have in common, the most telling first."""
    if not evidence.wrong.any():
        return ()
    found: list[Trait] = []
    for finder in (_one_code, _clamp, _wrapped, _overflown, _stale, _ties, constants, factors, _growing, _slight):
        checkpoint()
        amount = any(trait.pattern.startswith(("constant", "factor")) for trait in found)
        if not (amount and finder in (factors, _growing, _slight)):
            found += finder(evidence)
    return tuple(found)


def _one_code(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find an output that is one code throughout where it should not be."""
    code = int(evidence.recorded.flat[0])
    if np.any(evidence.recorded != code) or np.unique(evidence.expected).size < ONE_CODE_MIN_EXPECTED:
        return
    low, high = evidence.span
    names = {evidence.zero_point: " (the zero point)", low: " (the lowest code)", high: " (the highest code)"}
    yield Trait(pattern="one_code", detail=f"every element holds {code}{names.get(code, '')}")


def _clamp(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find a clamp that is missing, or too many: one side is the other, held to an interval."""
    wrong, expected, recorded = evidence.wrong, evidence.expected, evidence.recorded
    for inner, outer, said in ((recorded, expected, "too narrow"), (expected, recorded, "not applied")):
        low, high = int(inner.min()), int(inner.max())
        if low == high:
            continue
        parts = list(stretches(wrong, outer, inner))
        if all(_is_held(*part, span=(low, high)) for part in parts):
            count, share = int(np.count_nonzero(wrong)), 0.5
        elif all(_is_held_but_for_rounding(*part[1:], span=(low, high)) for part in parts):
            count, share = int(np.count_nonzero(np.abs(evidence.error) > SLIGHT_ERROR_CODES)), COINCIDENCE_MIN_SHARE
        else:
            continue
        bounds = [f"below {low}"] * (int(outer.min()) < low) + [f"above {high}"] * (int(outer.max()) > high)
        if count and not chance(share, count):
            yield Trait(pattern="clamp", detail=f"a clamp of the codes {' and '.join(bounds)} is {said}")


def _is_held(wrong: np.ndarray, outer: np.ndarray, inner: np.ndarray, *, span: tuple[int, int]) -> bool:
    """Tell whether codes held to a span are others, and are wrong where they lie beyond it and nowhere else."""
    codes = outer.astype(np.int64)
    beyond = (codes < span[0]) | (codes > span[1])
    return np.array_equal(wrong, beyond) and np.array_equal(np.clip(codes, *span), inner)


def _is_held_but_for_rounding(outer: np.ndarray, inner: np.ndarray, *, span: tuple[int, int]) -> bool:
    """Tell whether codes held to a span are others, or beside them."""
    off = np.clip(outer.astype(np.int64), *span) - inner.astype(np.int64)
    return bool(np.abs(off).max(initial=0) <= SLIGHT_ERROR_CODES)


def _wrapped(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find codes of the other end of the range where it should be saturated; other wrong codes are off by one."""
    low, high = evidence.span
    error = evidence.error
    far = np.abs(error) > (high - low) // 2
    many = int(np.count_nonzero(far))
    saturated = np.isin(evidence.expected, (low, high))
    if not many or np.any(np.abs(error[~far & ~saturated]) > SLIGHT_ERROR_CODES):
        return
    told = saturated[far].mean() >= TRAIT_MIN_SHARE and not chance(
        max(float(saturated.mean()), COINCIDENCE_MIN_SHARE), many
    )
    if told and np.count_nonzero(saturated & (error == 0)) <= (1 - TRAIT_MIN_SHARE) * many:
        yield Trait(pattern="wrapped", detail=f"{many} elements beyond the range hold codes of its other end")


def _overflown(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find wrong elements that hold one end of the range, where they should lie on the other side of real 0."""
    wrong, zero = np.abs(evidence.error) > SLIGHT_ERROR_CODES, evidence.zero_point  # others are rounded otherwise
    if not wrong.any():
        return
    held, expected = evidence.recorded[wrong], evidence.expected[wrong].astype(np.int64)
    code = int(held[0])
    others = (expected > zero) if code == evidence.span[0] else (expected < zero)
    if code not in evidence.span or np.any(held != code) or others.mean() < TRAIT_MIN_SHARE:
        return
    beyond = evidence.expected.astype(np.int64)
    usual = float(np.mean(beyond > zero if code == evidence.span[0] else beyond < zero))
    if chance(max(usual, COINCIDENCE_MIN_SHARE), held.size):
        return
    end = "lowest" if code == evidence.span[0] else "highest"
    detail = f"the wrong elements all hold {code} (the {end} code), where they should lie on the other side of real 0"
    yield Trait(pattern="overflow", detail=detail)


def _stale(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find wrong elements that hold one fixed code, or what a neighbour should hold or holds."""
    wrong = evidence.wrong
    recorded, expected = evidence.recorded, evidence.expected
    held = recorded[wrong]
    values, counts = np.unique(held, return_counts=True)
    common = int(values[np.argmax(counts)])
    share = float(np.mean(recorded == common))
    if share == 1:
        return
    if (
        counts.max() == held.size
        and not any(_overflown(evidence))
        and np.unique(expected[wrong]).size > 1
        and not chance(max(share, COINCIDENCE_MIN_SHARE), held.size)
    ):
        zero = " (the zero point)" if common == evidence.zero_point else ""
        yield Trait(pattern="unwritten", detail=f"the wrong elements all hold {common}{zero}")
        return
    for axis, name in _neighbours(evidence.layout, recorded.ndim):
        length = recorded.shape[axis]
        for distance in [d for d in STALE_DISTANCES if abs(d) < length]:
            checkpoint()
            shifted = np.roll(expected, distance, axis)
            usual = float(np.mean(shifted == expected))
            open_end = wrong.copy()
            open_end[_part(axis, distance, recorded.ndim)] = False
            for where in (wrong, open_end):  # what is shifted out at one end may come in at the other
                same = shifted[where] == recorded[where]
                if (
                    np.count_nonzero(where) >= TRAIT_MIN_SHARE * held.size
                    and same.mean() >= TRAIT_MIN_SHARE
                    and not chance(max(usual, COINCIDENCE_MIN_SHARE), int(same.sum()), STALE_CHOICES)
                ):
                    way = "before" if distance > 0 else "after"
                    far = f"{plural(abs(distance), name)} {way}"
                    yield Trait(pattern="stale", detail=f"the wrong elements hold the values of {far}")
                    return


def _part(axis: int, distance: int, rank: int) -> tuple[slice, ...]:
    """Return the indices that rolling by a distance fills from the other end."""
    ends = slice(0, distance) if distance > 0 else slice(distance, None)
    return tuple(ends if other == axis else slice(None) for other in range(rank))


def _neighbours(layout: Layout, rank: int) -> Iterator[tuple[int, str]]:
    for axis, (name, _) in zip(layout.spatial, layout.spatial_names, strict=True):
        yield axis + 1, name
    if layout.channel is not None:
        yield layout.channel + 1, layout.channel_name
    if rank:
        yield 0, "sample"


def _ties(evidence: CodesOfTensor) -> Iterator[Trait]:
    wrong = evidence.wrong
    if evidence.distance is None or np.abs(evidence.error).max() > SLIGHT_ERROR_CODES:
        return
    near = evidence.distance < TIE_MAX_DISTANCE
    hit = int(np.count_nonzero(wrong))
    if not (wrong & ~near).any() and not chance(max(float(near.mean()), 2 * TIE_MAX_DISTANCE), hit):
        yield Trait(pattern="ties_only", detail="off by one, and only where the value lies close to a tie")


def _growing(evidence: CodesOfTensor) -> Iterator[Trait]:
    """Find errors where sums or their summands are large, by how often a wrong element outranks a right one."""
    error, wrong = evidence.error, evidence.wrong
    if wrong.all() or np.abs(error).max() <= SLIGHT_ERROR_CODES:
        return
    sizes = [size for size in (evidence.magnitude, evidence.sums) if size is not None]
    above = max((_outranks(_spread(size[wrong]), _spread(size[~wrong])) for size in sizes), default=0.0)
    hit = min(int(np.count_nonzero(wrong)), int(np.count_nonzero(~wrong)))
    if above < LARGE_SUMS_MIN_RANK_SHARE or hit < LARGE_SUMS_MIN_ELEMENTS:
        return
    # Saturating sums lose magnitude, so that what is wrong lies closer to the zero point; wrapped sums jump.
    expected = evidence.expected.astype(np.int64)[wrong] - evidence.zero_point
    recorded = evidence.recorded.astype(np.int64)[wrong] - evidence.zero_point
    jumps = float(np.mean((np.sign(expected) * np.sign(recorded) < 0) & (np.abs(error[wrong]) > JUMP_MIN_CODES)))
    way = ", and often of the other sign" if jumps > JUMP_MIN_SHARE else ""
    looked_at = (
        f", of at most {RANKED_MAX_ELEMENTS} of either kind"
        if max(wrong.sum(), (~wrong).sum()) > RANKED_MAX_ELEMENTS
        else ""
    )
    ranked = f"({above:.0%} of wrong ones outrank right ones{looked_at})"
    detail = f"wrong where the sums or their products are large {ranked}{way}"
    yield Trait(pattern="growing", detail=detail)


def _spread(values: np.ndarray) -> np.ndarray:
    """Return the values, or as many of them as are ranked, evenly spread."""
    checkpoint()
    if values.size <= RANKED_MAX_ELEMENTS:
        return values
    return np.asarray(values[np.linspace(0, values.size - 1, RANKED_MAX_ELEMENTS).astype(np.int64)])


def _outranks(high: np.ndarray, low: np.ndarray) -> float:
    """Return the probability that a value of `high` exceeds one of `low` (Mann and Whitney 1947); ties count half."""
    ordered = np.sort(low, axis=None)
    flat = high.ravel()
    below = np.searchsorted(ordered, flat, side="left") + np.searchsorted(ordered, flat, side="right")
    return float(below.mean() / 2 / ordered.size)


def _slight(evidence: CodesOfTensor) -> Iterator[Trait]:
    if np.abs(evidence.error).max() > SLIGHT_ERROR_CODES:
        return
    spared = _spared(evidence)
    if spared > NO_ROUNDING_SPARED_RATIO * int(np.count_nonzero(evidence.wrong)):
        detail = f"off by one code, while {spared} right elements lie closer to a tie and are as large"
        yield Trait(pattern="altered", detail=detail)
    else:
        yield Trait(pattern="off_by_one", detail="off by one code")


def _spared(evidence: CodesOfTensor) -> int:
    """Count the right elements that another rounding would have changed sooner than half of the wrong ones."""
    if evidence.distance is None:
        return 0
    wrong = evidence.wrong
    size = np.abs(evidence.expected.astype(np.int64) - evidence.zero_point)
    sooner = (evidence.distance <= np.median(evidence.distance[wrong])) & (size >= np.median(size[wrong]))
    return int(np.count_nonzero(sooner & ~wrong & free_elements(evidence)))
