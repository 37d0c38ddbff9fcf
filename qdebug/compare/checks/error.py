"""Compares the total error of a tensor with its limits, if the user gave any or nothing else judges it."""

from __future__ import annotations

import math

from qdebug.compare.checks.measured import Measured, breach
from qdebug.compare.result.finding import Finding, FindingKind, apart
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR, DERIVED_LSB
from qdebug.numerics.stats import ErrorStats

__all__ = ["largest_step", "least_level", "level_of_sample", "nonfinite", "sqnr", "tolerance"]


def nonfinite(of: Measured) -> Finding | None:
    """Find elements that are NaN or infinite on one side only, comparing the recorded tensors or the replay."""
    stats, attribution = of.stats, of.attribution
    if stats is None:
        return None
    count = stats.nonfinite
    if not count and stats.mismatches and attribution is not None and not of.limits.judge_whole(stats):
        stats = attribution.arithmetic_unsaturated or stats
        count = stats.nonfinite
    if not count or of.harmless:
        return None
    sentence = f"{count} of {stats.count} elements are NaN or infinite in one run only"
    return breach(of, FindingKind.NONFINITE, sentence, judged=(count, 0, "elements"), given=False)


def sqnr(of: Measured) -> Finding | None:
    """Find an SQNR below the required minimum."""
    stats, limits = _whole(of), of.limits
    if stats is None or stats.estimated:
        return None
    floor = least_level(of)
    if not limits.given and of.usual_rms is not None:
        return _sqnr_of_sample(of, stats)
    if not limits.given and stats.max_lsb is not None and stats.max_lsb <= DERIVED_LSB + LSB_SLACK:
        floor = CODES_MIN_SQNR  # every code is within the error that one quantized node may introduce
    if floor is None or stats.sqnr_db is None or stats.sqnr_db >= floor or (not limits.given and of.excused):
        return None
    sentence = f"SQNR {apart(stats.sqnr_db, floor)} dB is below {floor:g} dB"
    if of.least_sqnr is not None and not limits.given:
        sentence += f", although its inputs are equal; {of.unreplayed}"
    elif of.unreplayed is not None and not limits.given:
        sentence += f"; this includes the error of its inputs, because {of.unreplayed}"
    return breach(of, FindingKind.ERROR, sentence, judged=(stats.sqnr_db, floor, "dB"), given=limits.given)


def least_level(of: Measured) -> float | None:
    """Return the minimum SQNR in dB of the total error, or None if the user's other limits judge it."""
    return of.limits.sqnr_in_force if of.limits.given or of.least_sqnr is None else of.least_sqnr


def _sqnr_of_sample(of: Measured, stats: ErrorStats) -> Finding | None:
    """Find an error of one sample that is too large for the signal of all samples.

    A sample that is zero or has the wrong sign in one run would be hidden among many others. The limit is no stricter
    for a nearly silent sample.
    """
    floor, level = DEFAULT_MIN_SQNR, level_of_sample(stats, of.usual_rms)
    if level is None or level >= floor or of.excused:
        return None
    sentence = f"its error is only {apart(level, floor)} dB below the signal of all samples; the limit is {floor:g} dB"
    return breach(of, FindingKind.ERROR, sentence, judged=(level, floor, "dB"), given=False)


def level_of_sample(stats: ErrorStats, usual_rms: float | None) -> float | None:
    """Return by how many dB the error of a sample is below the root mean square of its tensor over all samples."""
    if stats.rmse is None or not stats.rmse or not usual_rms or not math.isfinite(stats.rmse):
        return None
    return 20 * math.log10(usual_rms / stats.rmse)


def largest_step(of: Measured) -> Finding | None:
    """Find a difference of more steps than the user allows."""
    stats, most = _whole(of), of.limits.max_lsb
    if stats is None or stats.max_lsb is None or most is None:
        return None
    # Limits and differences are multiples of half a step, except for float32 rounding of real values.
    if stats.max_lsb <= most * (1 + LSB_SLACK):
        return None
    sentence = f"the largest error, {apart(stats.max_lsb, most, digits=4)} LSB, is above the limit of {most:g} LSB"
    return breach(of, FindingKind.ERROR, sentence, judged=(stats.max_lsb, most, "LSB"), given=True)


def tolerance(of: Measured) -> Finding | None:
    """Find elements that differ by more than the user's absolute and relative tolerance."""
    stats, pair = _whole(of), of.limits.tolerance
    if stats is None or pair is None or not stats.beyond_tolerance:
        return None
    share = f"{stats.beyond_tolerance} of {stats.count} elements"
    sentence = f"{share} differ by more than {pair[0]:g} + {pair[1]:g}*abs(reference)"
    return breach(of, FindingKind.ERROR, sentence, judged=(stats.beyond_tolerance, 0, "elements"), given=True)


def _whole(of: Measured) -> ErrorStats | None:
    """Return the total error if it judges the tensor: the user gave limits, or its node was not replayed."""
    stats, attribution = of.stats, of.attribution
    if stats is None or stats.nonfinite or not stats.mismatches:
        return None
    if of.limits.judge_whole(stats):
        return stats
    replayed = attribution is not None and attribution.arithmetic_unsaturated is not None
    return None if replayed or of.exact else stats
