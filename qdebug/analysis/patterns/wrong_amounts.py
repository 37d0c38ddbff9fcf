"""By how much the wrong elements of a tensor are off: by a constant, by a factor, in each channel by another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.analysis.patterns.wrong_evidence import Evidence, Trait, by_channel, free_elements
from qdebug.analysis.patterns.wrong_places import chance

__all__ = ["constants", "factors"]

_LEAST_FACTOR = 0.02
"""Factor below which nothing is left of the values: they are not scaled but missing."""
_PER_CHANNEL = 3
"""Wrong elements in each channel that has any, on average, that are needed to call them scaled."""
_NEARLY_ALL = 0.99
"""Share of the elements that a factor must account for: what saturates on the way to them may differ."""
_FLAT = 0.75
"""Errors of small numbers to those of large ones: above it for a constant, below it for a factor."""
_SAME_WAY = 0.9
"""Share of the errors that must go a factor's way."""


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
        if hit == len(shifts) and affected.max() - affected.min() < 0.1:
            yield Trait(pattern="constant", detail=f"every element{where} is off by {_codes(affected)}")
            return
        span = f"{affected.min():.3g} to {affected.max():.3g} codes"
        if affected.max() - affected.min() < 0.1:
            span = _codes(affected)
        which = "each channel" if hit == len(shifts) else f"{hit} of {len(shifts)} channels"
        yield Trait(pattern="constant_per_channel", detail=f"a constant in {which}{where}, of {span}")
        return


def _codes(shifts: np.ndarray) -> str:
    """Say how many codes a shift is; what is no whole number shows as one code in some of the elements."""
    mean = float(shifts.mean())
    return "1 code" if abs(abs(mean) - 1) < 1e-9 else f"{mean:.3g} codes{' on average' if mean % 1 else ''}"


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
    if np.all(np.abs(shifts - np.rint(shifts)) < 1e-9):
        return True
    if np.abs(evidence.error[part]).max() > 1:
        return True
    # Part of a step makes errors of one sign, as often in small numbers as in large ones.
    small, large = _mean_errors(evidence, part)
    return not chance(0.5, wrong) and min(small, large) >= _FLAT * max(small, large)


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
    if not axes or any(shape[axis] < 5 for axis in axes):
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
        if seen.size < 4:  # all saturated: no evidence either way
            continue
        if seen.max() - seen.min() > 1 or not (seen.min() >= 0 or seen.max() <= 0):
            return None
        if np.count_nonzero(seen) < 0.03 * seen.size:  # a few off by one: a tiny shift, or none
            slight += 1
        else:
            shifts.append(float(seen.mean()))
    return shifts if slight <= np.count_nonzero(shifts) else None


def factors(evidence: Evidence) -> Iterator[Trait]:
    """Find recorded = zero point + factor * (expected - zero point), with one factor or one for each channel."""
    free = by_channel(free_elements(evidence), evidence.layout)
    expected = by_channel(evidence.expected.astype(np.int64) - evidence.zero_point, evidence.layout)
    recorded = by_channel(evidence.recorded.astype(np.int64) - evidence.zero_point, evidence.layout)
    whole = _fitted(expected[free], recorded[free])
    if whole is not None and _grows(expected[free], recorded[free], whole):
        digits = 4 if abs(whole - 1) >= 0.001 else 7
        yield Trait(pattern="factor", detail=f"the elements are {whole:.{digits}g} times what they should be")
        return
    wrong = expected != recorded
    if np.count_nonzero(wrong) < _PER_CHANNEL * np.count_nonzero(wrong.any(axis=1)):
        return  # a single wrong code is a factor too
    found = []
    for own, theirs, usable in zip(expected, recorded, free, strict=True):
        x, y = own[usable], theirs[usable]
        if x.size < 4 or np.abs(x).max() < 4:
            continue
        factor = _fitted(x, y)
        if factor is None:
            return
        found.append(factor)
    if found and max(abs(factor - 1) for factor in found) >= 0.01:
        span = f"{min(found):.3g} to {max(found):.3g}"
        yield Trait(pattern="factor_per_channel", detail=f"each channel is a constant times what it should be, {span}")


def _fitted(expected: np.ndarray, recorded: np.ndarray) -> float | None:
    """Give the factor between centred codes; None if there is none that accounts for all but their rounding."""
    x, y = expected.astype(np.float64), recorded.astype(np.float64)
    power = float(x @ x)
    if x.size < 4 or power == 0 or np.abs(x).max() < 4:
        return None
    factor = float(x @ y) / power
    if factor < _LEAST_FACTOR:
        return None
    fitting = np.abs(y - factor * x) <= 0.5 + 0.5 * factor + 0.01
    return factor if fitting.mean() >= _NEARLY_ALL else None


def _grows(expected: np.ndarray, recorded: np.ndarray, factor: float) -> bool:
    """Tell whether a factor that few codes show is one: errors go its way, and grow with the codes."""
    error = recorded - expected
    wrong = error != 0
    many = int(np.count_nonzero(wrong))
    way = np.sign(error[wrong]) == np.sign((factor - 1) * expected[wrong])
    if not many or way.mean() < _SAME_WAY or chance(0.5, many):
        return False
    size = np.abs(expected)
    far = size > np.median(size)
    near = ~far
    return bool(far.any() and np.abs(error[near]).mean() < _FLAT * np.abs(error[far]).mean())
