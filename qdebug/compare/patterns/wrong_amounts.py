"""By which constant the wrong elements of a tensor are off, all of them or those of a channel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.compare.patterns.wrong_evidence import Evidence, Trait, by_channel, free_elements
from qdebug.compare.patterns.wrong_places import chance
from qdebug.model.thresholds.patterns import (
    CONSTANT_ERROR_MAX_SPREAD,
    CONSTANT_ERROR_MIN_ELEMENTS,
    CONSTANT_ERROR_MIN_FLATNESS,
    CONSTANT_ERROR_MIN_WRONG_SHARE,
    FLOAT64_COMPARISON_SLACK,
    INTERIOR_MIN_EXTENT,
)

__all__ = ["constants"]


def constants(evidence: Evidence) -> Iterator[Trait]:
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
        if hit == len(shifts) and affected.max() - affected.min() < CONSTANT_ERROR_MAX_SPREAD:
            yield Trait(pattern="constant", detail=f"every element{where} is off by {_codes(affected)}")
            return
        span = f"{affected.min():.3g} to {affected.max():.3g} codes"
        if affected.max() - affected.min() < CONSTANT_ERROR_MAX_SPREAD:
            span = _codes(affected)
        which = "each channel" if hit == len(shifts) else f"{hit} of {len(shifts)} channels"
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


def _is_shift(evidence: Evidence, part: slice | tuple[slice, ...], shifts: np.ndarray, share: float) -> bool:
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


def _mean_errors(evidence: Evidence, part: slice | tuple[slice, ...]) -> tuple[float, float]:
    """Give the mean magnitude of the error in the half of the elements next to the zero point, and in the other."""
    free = free_elements(evidence)[part]
    size = np.abs(evidence.expected[part].astype(np.int64) - evidence.zero_point)[free]
    error = np.abs(evidence.error[part])[free]
    near = size <= np.median(size) if size.size else np.zeros(0, bool)
    if not near.any() or near.all():
        return 1.0, 1.0
    return float(error[near].mean()), float(error[~near].mean())


def _inside(evidence: Evidence) -> tuple[slice, ...] | None:
    """Give the elements away from the spatial borders, as an index; None if there are hardly any."""
    axes = [axis + 1 for axis in evidence.layout.spatial]
    shape = evidence.expected.shape
    if not axes or any(shape[axis] < INTERIOR_MIN_EXTENT for axis in axes):
        return None
    return tuple(slice(1, -1) if axis in axes else slice(None) for axis in range(len(shape)))


def _shifts(evidence: Evidence, part: slice | tuple[slice, ...]) -> list[float] | None:
    """Give the mean error of each channel; None if the errors of a channel are no constant."""
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
        if seen.max() - seen.min() > 1 or not (seen.min() >= 0 or seen.max() <= 0):
            return None
        if (
            np.count_nonzero(seen) < CONSTANT_ERROR_MIN_WRONG_SHARE * seen.size
        ):  # a few off by one: a tiny shift, or none
            slight += 1
        else:
            shifts.append(float(seen.mean()))
    return shifts if slight <= np.count_nonzero(shifts) else None
