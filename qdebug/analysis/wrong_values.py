"""What the wrong elements of a tensor hold: a constant too much, a factor, a clamp's bound, somebody else's values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qdebug.analysis.wrong_places import Layout, chance

__all__ = ["Evidence", "Trait", "traits"]

_NEAR_TIE = 1 / 32
"""Distance from a tie, in steps, within which another rounding may decide otherwise."""
_SLIGHT = 1
_LARGER = 0.75
_LEAST_FACTOR = 0.02
"""Factor below which nothing is left of the values: they are not scaled but missing."""
_MOST = 0.9
"""Share of the wrong elements that must have a trait."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """The codes of one tensor in all samples, as they were recorded and as the best replay has them.

    Args:
        expected: Codes of the replay; axis 0 counts samples (and steps).
        recorded: Codes of the recording, of the same shape.
        layout: What the other axes mean.
        zero_point: The code of real 0.
        span: Lowest and highest code.
        distance: Each element's distance from the nearest tie before rounding, in steps; None if unknown.
        magnitude: What each element's sum is made of: the sum of the products' magnitudes; None if unknown.
        sums: Magnitude of each element's sum itself; None if unknown.
    """

    expected: np.ndarray
    recorded: np.ndarray
    layout: Layout
    zero_point: int = 0
    span: tuple[int, int] = (-128, 127)
    distance: np.ndarray | None = None
    magnitude: np.ndarray | None = None
    sums: np.ndarray | None = None

    @property
    def error(self) -> np.ndarray:
        """Recorded less expected codes, in int64."""
        return np.asarray(self.recorded.astype(np.int64) - self.expected.astype(np.int64))

    @property
    def wrong(self) -> np.ndarray:
        """Which elements are wrong."""
        return np.asarray(self.recorded != self.expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """What wrong elements have in common.

    Args:
        pattern: Its kind, such as "constant_per_channel".
        detail: In words.
    """

    pattern: str
    detail: str


def traits(evidence: Evidence) -> tuple[Trait, ...]:
    """Find what the wrong elements have in common, the most telling first."""
    if not evidence.wrong.any():
        return ()
    finders = (_clamp, _stale, _ties, _constant, _factor, _growing, _slight)
    return tuple(trait for finder in finders for trait in finder(evidence))


def _clamp(evidence: Evidence) -> Iterator[Trait]:
    """Find a clamp that is missing, or too many: one side is the other, held to an interval."""
    wrong = evidence.wrong
    expected, recorded = evidence.expected.astype(np.int64), evidence.recorded.astype(np.int64)
    for inner, outer, said in ((recorded, expected, "too narrow"), (expected, recorded, "not applied")):
        low, high = int(inner.min()), int(inner.max())
        cut_low, cut_high = wrong & (outer < low), wrong & (outer > high)
        if not np.array_equal(wrong, cut_low | cut_high):
            continue
        bounds = [f"below {low}"] * bool(cut_low.any()) + [f"above {high}"] * bool(cut_high.any())
        if np.array_equal(np.clip(outer, low, high), inner) and not chance(0.5, int(np.count_nonzero(wrong))):
            yield Trait(pattern="clamp", detail=f"a clamp of the codes {' and '.join(bounds)} is {said}")


def _stale(evidence: Evidence) -> Iterator[Trait]:
    """Find wrong elements that hold one fixed code, or what a neighbour should hold or holds."""
    wrong = evidence.wrong
    recorded, expected = evidence.recorded, evidence.expected
    held = recorded[wrong]
    values, counts = np.unique(held, return_counts=True)
    common = int(values[np.argmax(counts)])
    share = float(np.mean(recorded == common))
    if counts.max() == held.size and np.unique(expected[wrong]).size > 1 and not chance(max(share, 0.1), held.size):
        zero = " (the zero point)" if common == evidence.zero_point else ""
        yield Trait(pattern="unwritten", detail=f"the wrong elements all hold {common}{zero}")
        return
    for axis, name in _neighbours(evidence.layout, recorded.ndim):
        length = recorded.shape[axis]
        for distance in [d for d in (1, 2, 4, 8, 16, -1) if abs(d) < length]:
            where = wrong.copy()
            where[_part(axis, distance, recorded.ndim)] = False
            same = np.roll(expected, distance, axis)[where] == recorded[where]
            usual = float(np.mean(np.roll(expected, distance, axis) == expected))
            if (
                np.count_nonzero(where) >= _MOST * held.size
                and same.mean() >= _MOST
                and not chance(max(usual, 0.1), int(same.sum()), 64)
            ):
                way = "before" if distance > 0 else "after"
                far = f"{abs(distance)} {name}{'s' if abs(distance) > 1 else ''} {way}"
                yield Trait(pattern="stale", detail=f"the wrong elements hold the values of {far}")
                return


def _part(axis: int, distance: int, rank: int) -> tuple[slice, ...]:
    """Give the indices that rolling by a distance fills from the other end."""
    ends = slice(0, distance) if distance > 0 else slice(distance, None)
    return tuple(ends if other == axis else slice(None) for other in range(rank))


def _neighbours(layout: Layout, rank: int) -> Iterator[tuple[int, str]]:
    titles = ("row", "column") if len(layout.spatial) == 2 else ("position",) * len(layout.spatial)
    for axis, name in zip(layout.spatial, titles, strict=True):
        yield axis + 1, name
    if layout.channel is not None:
        yield layout.channel + 1, "channel"
    if rank:
        yield 0, "sample"


def _free(evidence: Evidence) -> np.ndarray:
    """Give the elements whose error is not cut off by the ends of the code range on either side."""
    low, high = evidence.span
    codes = evidence.expected, evidence.recorded
    return np.asarray(np.logical_and.reduce([(code > low) & (code < high) for code in codes]))


def _by_channel(array: np.ndarray, layout: Layout) -> np.ndarray:
    if layout.channel is None:
        return array.reshape(1, -1)
    return np.moveaxis(array, layout.channel + 1, 0).reshape(array.shape[layout.channel + 1], -1)


def _constant(evidence: Evidence) -> Iterator[Trait]:
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
        where = "" if part == slice(None) else " away from the borders"
        if hit == len(shifts) and affected.max() - affected.min() < 0.1:
            yield Trait(pattern="constant", detail=f"every element{where} is off by {affected.mean():.3g} codes")
            return
        span = f"{affected.min():.3g} to {affected.max():.3g}"
        which = "each channel" if hit == len(shifts) else f"each of {hit} of {len(shifts)} channels"
        yield Trait(pattern="constant_per_channel", detail=f"a constant in {which}{where}, of {span} codes")
        return


def _inside(evidence: Evidence) -> tuple[slice, ...] | None:
    """Give the elements away from the spatial borders, as an index; None if there are hardly any."""
    axes = [axis + 1 for axis in evidence.layout.spatial]
    shape = evidence.expected.shape
    if not axes or any(shape[axis] < 5 for axis in axes):
        return None
    return tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(len(shape)))


def _shifts(evidence: Evidence, part: slice | tuple[slice, ...]) -> list[float] | None:
    """Give the mean error of each channel; None if the errors of a channel are no constant."""
    errors = _by_channel(evidence.error[part], evidence.layout)
    shifts: list[float] = []
    slight = 0
    for own, usable in zip(errors, _by_channel(_free(evidence)[part], evidence.layout), strict=True):
        seen = own[usable]
        if not own.any():
            shifts.append(0.0)
            continue
        if seen.size < 4:  # all saturated: no evidence either way
            continue
        if seen.max() - seen.min() > 1 or not (seen.min() >= 0 or seen.max() <= 0):
            return None
        if np.count_nonzero(seen) < 0.03 * seen.size:  # a few off by one: a tiny shift, or none
            slight += 1
        else:
            shifts.append(float(seen.mean()))
    return shifts if slight <= np.count_nonzero(shifts) else None


def _factor(evidence: Evidence) -> Iterator[Trait]:
    """Find recorded = zero point + factor * (expected - zero point), with one factor or one for each channel."""
    free = _by_channel(_free(evidence), evidence.layout)
    expected = _by_channel(evidence.expected.astype(np.int64) - evidence.zero_point, evidence.layout)
    recorded = _by_channel(evidence.recorded.astype(np.int64) - evidence.zero_point, evidence.layout)
    factors = []
    for own, theirs, usable in zip(expected, recorded, free, strict=True):
        x, y = own[usable].astype(np.float64), theirs[usable].astype(np.float64)
        power = float(x @ x)
        if x.size < 4 or power == 0 or np.abs(x).max() < 4:
            continue
        factor = float(x @ y) / power
        if factor < _LEAST_FACTOR or np.abs(y - factor * x).max() > 0.5 + 0.5 * factor + 0.01:
            return
        factors.append(factor)
    if not factors or max(abs(factor - 1) for factor in factors) < 0.01:
        return
    if max(factors) - min(factors) < 0.02 * max(abs(factor) for factor in factors):
        yield Trait(pattern="factor", detail=f"every element is {np.mean(factors):.3g} times what it should be")
        return
    span = f"{min(factors):.3g} to {max(factors):.3g}"
    yield Trait(pattern="factor_per_channel", detail=f"each channel is a constant times what it should be, {span}")


def _ties(evidence: Evidence) -> Iterator[Trait]:
    wrong = evidence.wrong
    if evidence.distance is None or np.abs(evidence.error).max() > _SLIGHT:
        return
    near = evidence.distance < _NEAR_TIE
    hit = int(np.count_nonzero(wrong))
    if not (wrong & ~near).any() and not chance(max(float(near.mean()), 2 * _NEAR_TIE), hit):
        yield Trait(pattern="ties_only", detail="off by one, and only where the value lies close to a tie")


def _growing(evidence: Evidence) -> Iterator[Trait]:
    """Find errors where sums or their summands are large, by how often a wrong element outranks a right one."""
    error, wrong = evidence.error, evidence.wrong
    if wrong.all() or np.abs(error).max() <= _SLIGHT:
        return
    sizes = [size for size in (evidence.magnitude, evidence.sums) if size is not None]
    above = max((_outranks(size[wrong], size[~wrong]) for size in sizes), default=0.0)
    hit = min(int(np.count_nonzero(wrong)), int(np.count_nonzero(~wrong)))
    if above < _LARGER or hit < 8:
        return
    # Saturating sums lose magnitude, so that what is wrong lies closer to the zero point; wrapped sums jump.
    expected = evidence.expected.astype(np.int64)[wrong] - evidence.zero_point
    recorded = evidence.recorded.astype(np.int64)[wrong] - evidence.zero_point
    jumps = float(np.mean((np.sign(expected) * np.sign(recorded) < 0) & (np.abs(error[wrong]) > 16)))
    way = ", and often of the other sign" if jumps > 0.3 else ""
    detail = f"wrong where the sums or their products are large ({above:.0%} of wrong ones outrank right ones){way}"
    yield Trait(pattern="growing", detail=detail)


def _outranks(high: np.ndarray, low: np.ndarray) -> float:
    """Give the probability that a value of `high` exceeds one of `low` (Mann and Whitney 1947); ties count half."""
    ordered = np.sort(low.reshape(-1))
    flat = high.reshape(-1)
    below = np.searchsorted(ordered, flat, side="left") + np.searchsorted(ordered, flat, side="right")
    return float(below.mean() / 2 / ordered.size)


def _slight(evidence: Evidence) -> Iterator[Trait]:
    if np.abs(evidence.error).max() <= _SLIGHT:
        yield Trait(pattern="off_by_one", detail="off by one code, at no particular place")
