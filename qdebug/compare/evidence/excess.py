"""Decides which limits an error exceeds, and by how much. Used to choose a replay, and by checks to judge errors."""

from __future__ import annotations

import math
from dataclasses import replace

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Judged
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR, DERIVED_LSB
from qdebug.numerics.stats import ErrorStats

__all__ = [
    "beyond_rounding",
    "elements_beyond_rounding",
    "elements_beyond_tolerance",
    "exceeds_derived_limit",
    "exceeds_total_limit",
    "judged",
    "level_of_sample",
    "low_sqnr",
    "min_total_sqnr",
    "nonfinite",
    "steps_beyond_limit",
    "wrong_integers",
]


def exceeds_derived_limit(measured: Measured) -> bool:
    """Return whether an error is finite and exceeds a derived limit, or the default limit for unreplayed nodes."""
    if nonfinite(measured) is not None:
        return False
    if not measured.excused and (beyond_rounding(measured, "LSB") or beyond_rounding(measured, "bound")):
        return True
    return any(find(measured) is not None for find in (wrong_integers, elements_beyond_rounding, low_sqnr))


def exceeds_total_limit(measured: Measured) -> bool:
    """Return whether the total error exceeds a limit set by the user, or the default limit for unreplayed nodes."""
    return any(find(measured) is not None for find in (low_sqnr, steps_beyond_limit, elements_beyond_tolerance))


def nonfinite(measured: Measured) -> ErrorStats | None:
    """Return the error of a tensor with elements that are NaN or infinite on one side only, or None.

    It is the total error or, if only the replay shows such elements, the error against the replay. None if there are no
    such elements, or if they change no other tensor.
    """
    stats, attribution = measured.stats, measured.attribution
    if stats is None:
        return None
    if not stats.nonfinite and stats.mismatches and attribution is not None and not measured.limits.judge_whole(stats):
        stats = attribution.arithmetic_unsaturated or stats
    return None if not stats.nonfinite or measured.harmless else stats


def judged(measured: Measured) -> Judged | None:
    """Return the amount that a node's derived limit applies to, or None if there is none.

    Codes are judged by the largest error in LSB, excluding saturation. Reals are judged by the error norm divided by
    the norm of correct rounding. Other integers are judged by the number of wrong elements, or by the largest
    difference if they may differ slightly. The amount is 0 for a tensor equal to the reference.
    """
    amount = _judged_difference(measured)
    is_equal = measured.stats is not None and not measured.stats.mismatches
    return replace(amount, amount=0.0) if amount is not None and is_equal else amount


def _judged_difference(measured: Measured) -> Judged | None:
    """Return the result of `judged` for a tensor that differs from the reference."""
    attribution = measured.attribution
    own_error = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own_error is None or own_error.nonfinite:
        return None
    if attribution.max_integer_error:
        largest = math.nan if own_error.max_abs is None else own_error.max_abs
        return Judged(amount=largest, limit=float(attribution.max_integer_error), unit="integers")
    if attribution.max_integer_error is not None:
        return Judged(amount=float(own_error.mismatches), limit=0.0, unit="elements")
    if attribution.allowed is None:
        return None if own_error.max_lsb is None else Judged(amount=own_error.max_lsb, limit=DERIVED_LSB, unit="LSB")
    if own_error.rmse is None:
        return None
    norm = own_error.rmse * math.sqrt(own_error.count)
    times = norm / attribution.allowed if attribution.allowed else math.inf
    return Judged(amount=times if norm else 0.0, limit=1.0, unit="bound")


def beyond_rounding(measured: Measured, unit: str) -> Judged | None:
    """Return a node's own error if it exceeds rounding: in "LSB" for codes, as a multiple of the "bound" for reals."""
    amount, slack = judged(measured), LSB_SLACK if unit == "LSB" else 0.0
    if amount is None or amount.unit != unit or _introduced_error(measured) is None:
        return None
    return None if amount.amount <= amount.limit + slack else amount


def elements_beyond_rounding(measured: Measured) -> tuple[int, int] | None:
    """Return the number of elements beyond their own rounding error and of all elements, or None.

    None unless the norm over all elements is within its bound: `beyond_rounding` covers the other case.
    """
    introduced, amount = _introduced_error(measured), judged(measured)
    if introduced is None or amount is None or amount.unit != "bound" or not amount.amount <= amount.limit:
        return None
    stats, attribution = introduced
    return (
        None
        if not attribution.unexplained_elements or measured.excused
        else (attribution.unexplained_elements, stats.count)
    )


def wrong_integers(measured: Measured) -> tuple[ErrorStats, Attribution | None] | None:
    """Return the error of wrong booleans, or of wrong integers that are not codes; None for others.

    The attribution is included if the tensor is compared with a replay of its node. It is None if the node was not
    replayed, but never rounds and has equal inputs.
    """
    introduced = _introduced_error(measured)
    if introduced is not None:
        stats, attribution = introduced
        limit = attribution.max_integer_error
        is_within = stats.max_abs is not None and limit is not None and stats.max_abs <= limit
        return None if limit is None or not stats.mismatches or is_within else (stats, attribution)
    total = measured.stats
    if (
        total is None
        or total.nonfinite
        or not total.mismatches
        or not measured.exact
        or measured.limits.judge_whole(total)
    ):
        return None
    return None if measured.excused and not measured.limits.given else (total, None)


def _introduced_error(measured: Measured) -> tuple[ErrorStats, Attribution] | None:
    """Return the finite error that a node introduces and its attribution, or None if there is none or it is unknown.

    Saturation is excluded.
    """
    stats, attribution = measured.stats, measured.attribution
    if stats is None or stats.nonfinite or not stats.mismatches or attribution is None:
        return None
    own_error = attribution.arithmetic_unsaturated
    return None if own_error is None or own_error.nonfinite else (own_error, attribution)


def low_sqnr(measured: Measured) -> tuple[float, float] | None:
    """Return the SQNR in dB and the minimum that it is below, or None.

    Samples are judged one by one as well, because a sample that is zero or has the wrong sign in one run would be
    hidden among many others. The error of one of several samples is compared with the root mean square of all samples,
    so that the limit is no stricter for a nearly silent sample.
    """
    stats, limits = _judged_total_error(measured), measured.limits
    if stats is None or stats.estimated:
        return None
    floor, level = min_total_sqnr(measured), stats.sqnr_db
    if not limits.given and measured.usual_rms is not None:
        floor, level = DEFAULT_MIN_SQNR, level_of_sample(stats, measured.usual_rms)
    elif not limits.given and stats.max_lsb is not None and stats.max_lsb <= DERIVED_LSB + LSB_SLACK:
        floor = CODES_MIN_SQNR  # every code is within the error that one quantized node may introduce
    if floor is None or level is None or level >= floor or (not limits.given and measured.excused):
        return None
    return level, floor


def min_total_sqnr(measured: Measured) -> float | None:
    """Return the minimum SQNR in dB of the total error, or None if the user set only other limits."""
    return (
        measured.limits.sqnr_in_force if measured.limits.given or measured.least_sqnr is None else measured.least_sqnr
    )


def level_of_sample(stats: ErrorStats, usual_rms: float | None) -> float | None:
    """Return by how many dB the error of a sample is below the root mean square of its tensor over all samples."""
    if stats.rmse is None or not stats.rmse or not usual_rms or not math.isfinite(stats.rmse):
        return None
    return 20 * math.log10(usual_rms / stats.rmse)


def steps_beyond_limit(measured: Measured) -> tuple[float, float] | None:
    """Return the largest difference in steps and the user's limit that it exceeds, or None."""
    stats, max_lsb = _judged_total_error(measured), measured.limits.max_lsb
    if stats is None or stats.max_lsb is None or max_lsb is None:
        return None
    # Differences are multiples of half a step, apart from the float32 rounding of real values that the slack allows.
    return None if stats.max_lsb <= max_lsb * (1 + LSB_SLACK) else (stats.max_lsb, max_lsb)


def elements_beyond_tolerance(measured: Measured) -> tuple[int, int] | None:
    """Return the number of elements beyond the user's tolerance and of all elements, or None if none is beyond it."""
    stats = _judged_total_error(measured)
    if stats is None or measured.limits.tolerance is None or not stats.beyond_tolerance:
        return None
    return stats.beyond_tolerance, stats.count


def _judged_total_error(measured: Measured) -> ErrorStats | None:
    """Return the total error if limits apply to it, because the user set them or the node was not replayed; or None."""
    stats, attribution = measured.stats, measured.attribution
    if stats is None or stats.nonfinite or not stats.mismatches:
        return None
    if measured.limits.judge_whole(stats):
        return stats
    replayed = attribution is not None and attribution.arithmetic_unsaturated is not None
    return None if replayed or measured.exact else stats
