"""What the wrong elements of a tensor hold: a constant too much, a factor, a clamp's bound, somebody else's values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.compare.patterns.wrong_amounts import constants
from qdebug.compare.patterns.wrong_evidence import Evidence, Trait, free_elements, stretches
from qdebug.compare.patterns.wrong_factors import factors
from qdebug.compare.patterns.wrong_places import Layout, chance
from qdebug.model.thresholds.patterns import (
    COINCIDENCE_MIN_SHARE,
    JUMP_MIN_CODES,
    JUMP_MIN_SHARE,
    LARGE_SUMS_MIN_ELEMENTS,
    LARGE_SUMS_MIN_RANK_SHARE,
    NO_ROUNDING_SPARED_RATIO,
    ONE_CODE_MIN_EXPECTED,
    RANKED_MAX_ELEMENTS,
    SLIGHT_ERROR_CODES,
    STALE_CHOICES,
    STALE_DISTANCES,
    TIE_MAX_DISTANCE,
    TRAIT_MIN_SHARE,
)
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["traits"]


def traits(evidence: Evidence) -> tuple[Trait, ...]:
    """Find what the wrong elements have in common, the most telling first."""
    if not evidence.wrong.any():
        return ()
    found: list[Trait] = []
    for finder in (_one_code, _clamp, _wrapped, _stale, _ties, constants, factors, _growing, _slight):
        checkpoint()
        amount = any(trait.pattern.startswith(("constant", "factor")) for trait in found)
        if not (amount and finder in (factors, _growing, _slight)):
            found += finder(evidence)
    return tuple(found)


def _one_code(evidence: Evidence) -> Iterator[Trait]:
    """Find an output that is one code throughout where it should not be."""
    code = int(evidence.recorded.reshape(-1)[0])
    if np.any(evidence.recorded != code) or np.unique(evidence.expected).size < ONE_CODE_MIN_EXPECTED:
        return
    low, high = evidence.span
    names = {evidence.zero_point: " (the zero point)", low: " (the lowest code)", high: " (the highest code)"}
    yield Trait(pattern="one_code", detail=f"every element holds {code}{names.get(code, '')}")


def _clamp(evidence: Evidence) -> Iterator[Trait]:
    """Find a clamp that is missing, or too many: one side is the other, held to an interval."""
    wrong, expected, recorded = evidence.wrong, evidence.expected, evidence.recorded
    for inner, outer, said in ((recorded, expected, "too narrow"), (expected, recorded, "not applied")):
        low, high = int(inner.min()), int(inner.max())
        if low == high:
            continue
        if not all(_is_held(*part, span=(low, high)) for part in stretches(wrong, outer, inner)):
            continue
        bounds = [f"below {low}"] * (int(outer.min()) < low) + [f"above {high}"] * (int(outer.max()) > high)
        if not chance(0.5, int(np.count_nonzero(wrong))):
            yield Trait(pattern="clamp", detail=f"a clamp of the codes {' and '.join(bounds)} is {said}")


def _is_held(wrong: np.ndarray, outer: np.ndarray, inner: np.ndarray, *, span: tuple[int, int]) -> bool:
    """Tell whether codes held to a span are others, and are wrong where they lie beyond it and nowhere else."""
    codes = outer.astype(np.int64)
    beyond = (codes < span[0]) | (codes > span[1])
    return np.array_equal(wrong, beyond) and np.array_equal(np.clip(codes, *span), inner)


def _wrapped(evidence: Evidence) -> Iterator[Trait]:
    """Find codes of the other end of the range where it should be saturated; other wrong codes are off by one."""
    low, high = evidence.span
    error = evidence.error
    far = np.abs(error) > (high - low) // 2
    many = int(np.count_nonzero(far))
    saturated = np.isin(evidence.expected, (low, high))
    if not many or np.abs(error[~far & ~saturated]).max(initial=0) > SLIGHT_ERROR_CODES:
        return
    told = saturated[far].mean() >= TRAIT_MIN_SHARE and not chance(
        max(float(saturated.mean()), COINCIDENCE_MIN_SHARE), many
    )
    if told and np.count_nonzero(saturated & (error == 0)) <= (1 - TRAIT_MIN_SHARE) * many:
        yield Trait(pattern="wrapped", detail=f"{many} elements beyond the range hold codes of its other end")


def _stale(evidence: Evidence) -> Iterator[Trait]:
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


def _ties(evidence: Evidence) -> Iterator[Trait]:
    wrong = evidence.wrong
    if evidence.distance is None or np.abs(evidence.error).max() > SLIGHT_ERROR_CODES:
        return
    near = evidence.distance < TIE_MAX_DISTANCE
    hit = int(np.count_nonzero(wrong))
    if not (wrong & ~near).any() and not chance(max(float(near.mean()), 2 * TIE_MAX_DISTANCE), hit):
        yield Trait(pattern="ties_only", detail="off by one, and only where the value lies close to a tie")


def _growing(evidence: Evidence) -> Iterator[Trait]:
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
    """Give the values, or as many of them as are ranked, evenly spread."""
    checkpoint()
    if values.size <= RANKED_MAX_ELEMENTS:
        return values
    return np.asarray(values[np.linspace(0, values.size - 1, RANKED_MAX_ELEMENTS).astype(np.int64)])


def _outranks(high: np.ndarray, low: np.ndarray) -> float:
    """Give the probability that a value of `high` exceeds one of `low` (Mann and Whitney 1947); ties count half."""
    ordered = np.sort(low.reshape(-1))
    flat = high.reshape(-1)
    below = np.searchsorted(ordered, flat, side="left") + np.searchsorted(ordered, flat, side="right")
    return float(below.mean() / 2 / ordered.size)


def _slight(evidence: Evidence) -> Iterator[Trait]:
    if np.abs(evidence.error).max() > SLIGHT_ERROR_CODES:
        return
    spared = _spared(evidence)
    if spared > NO_ROUNDING_SPARED_RATIO * int(np.count_nonzero(evidence.wrong)):
        detail = f"off by one code, while {spared} right elements lie closer to a tie and are as large"
        yield Trait(pattern="altered", detail=detail)
    else:
        yield Trait(pattern="off_by_one", detail="off by one code")


def _spared(evidence: Evidence) -> int:
    """Count the right elements that another rounding would have changed sooner than half of the wrong ones."""
    if evidence.distance is None:
        return 0
    wrong = evidence.wrong
    size = np.abs(evidence.expected.astype(np.int64) - evidence.zero_point)
    sooner = (evidence.distance <= np.median(evidence.distance[wrong])) & (size >= np.median(size[wrong]))
    return int(np.count_nonzero(sooner & ~wrong & free_elements(evidence)))
