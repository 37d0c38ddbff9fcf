"""Which limits an error exceeds, and by how much: by these, evidence chooses a replay, and checks judge errors."""

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
    "least_level",
    "level_of_sample",
    "low_sqnr",
    "nonfinite",
    "steps_beyond_limit",
    "wrong_integers",
]


def exceeds_derived_limit(of: Measured) -> bool:
    """Return whether an error is finite and exceeds a limit that is derived, or the default of unreplayed nodes."""
    if nonfinite(of) is not None:
        return False
    if not of.excused and (beyond_rounding(of, "LSB") or beyond_rounding(of, "bound")):
        return True
    return any(find(of) is not None for find in (wrong_integers, elements_beyond_rounding, low_sqnr))


def exceeds_total_limit(of: Measured) -> bool:
    """Return whether the total error exceeds a limit, of the user or of nodes that were not replayed."""
    return any(find(of) is not None for find in (low_sqnr, steps_beyond_limit, elements_beyond_tolerance))


def nonfinite(of: Measured) -> ErrorStats | None:
    """Return the error with elements that are NaN or infinite on one side only, of the tensors or against the replay.

    None if there are no such elements, or if they change no other tensor.
    """
    stats, attribution = of.stats, of.attribution
    if stats is None:
        return None
    if not stats.nonfinite and stats.mismatches and attribution is not None and not of.limits.judge_whole(stats):
        stats = attribution.arithmetic_unsaturated or stats
    return None if not stats.nonfinite or of.harmless else stats


def judged(of: Measured) -> Judged | None:
    """Return the amount that a node's derived limit applies to, or None if there is none.

    Codes are judged by the largest error in LSB, excluding saturation. Reals are judged by the error norm divided by
    the norm of correct rounding. Other integers are judged by the number of wrong elements, or by their distance if
    they may differ. The amount is 0 for a tensor equal to the reference.
    """
    amount = _judged_difference(of)
    is_equal = of.stats is not None and not of.stats.mismatches
    return replace(amount, amount=0.0) if amount is not None and is_equal else amount


def _judged_difference(of: Measured) -> Judged | None:
    """Return the result of `judged` for a tensor that differs from the reference."""
    attribution = of.attribution
    own_error = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own_error is None or own_error.nonfinite:
        return None
    if attribution.whole_off:
        largest = math.nan if own_error.max_abs is None else own_error.max_abs
        return Judged(amount=largest, limit=float(attribution.whole_off), unit="integers")
    if attribution.whole_off is not None:
        return Judged(amount=float(own_error.mismatches), limit=0.0, unit="elements")
    if attribution.allowed is None:
        return None if own_error.max_lsb is None else Judged(amount=own_error.max_lsb, limit=DERIVED_LSB, unit="LSB")
    if own_error.rmse is None:
        return None
    norm = own_error.rmse * math.sqrt(own_error.count)
    times = norm / attribution.allowed if attribution.allowed else math.inf
    return Judged(amount=times if norm else 0.0, limit=1.0, unit="bound")


def beyond_rounding(of: Measured, unit: str) -> Judged | None:
    """Return a node's own error if it exceeds rounding: in "LSB" for codes, as a multiple of the "bound" for reals."""
    amount, slack = judged(of), LSB_SLACK if unit == "LSB" else 0.0
    if amount is None or amount.unit != unit or _introduced_error(of) is None:
        return None
    return None if amount.amount <= amount.limit + slack else amount


def elements_beyond_rounding(of: Measured) -> tuple[int, int] | None:
    """Return how many single elements exceed their rounding error, of how many, if all together do not; or None."""
    introduced, amount = _introduced_error(of), judged(of)
    if introduced is None or amount is None or amount.unit != "bound" or not amount.amount <= amount.limit:
        return None
    stats, attribution = introduced
    return (
        None if not attribution.unexplained_elements or of.excused else (attribution.unexplained_elements, stats.count)
    )


def wrong_integers(of: Measured) -> tuple[ErrorStats, Attribution | None] | None:
    """Return the error of booleans or integers, other than codes, that may not differ; or None.

    With the attribution if they are compared with a replay of the node. Without one if the node was not replayed but
    never rounds, and its inputs are equal.
    """
    introduced = _introduced_error(of)
    if introduced is not None:
        stats, attribution = introduced
        limit = attribution.whole_off
        is_within = stats.max_abs is not None and limit is not None and stats.max_abs <= limit
        return None if limit is None or not stats.mismatches or is_within else (stats, attribution)
    total = of.stats
    if total is None or total.nonfinite or not total.mismatches or not of.exact or of.limits.judge_whole(total):
        return None
    return None if of.excused and not of.limits.given else (total, None)


def _introduced_error(of: Measured) -> tuple[ErrorStats, Attribution] | None:
    """Return the finite error that a node introduces and its attribution, or None if there is none or it is unknown.

    Saturation is excluded.
    """
    stats, attribution = of.stats, of.attribution
    if stats is None or stats.nonfinite or not stats.mismatches or attribution is None:
        return None
    own_error = attribution.arithmetic_unsaturated
    return None if own_error is None or own_error.nonfinite else (own_error, attribution)


def low_sqnr(of: Measured) -> tuple[float, float] | None:
    """Return the SQNR in dB and the minimum that it is below, or None.

    In one of several samples, it is the level of the error below the signal of all samples. A sample that is zero or
    has the wrong sign in one run would be hidden among many others. The limit is no stricter for a nearly silent
    sample.
    """
    stats, limits = _judged_whole(of), of.limits
    if stats is None or stats.estimated:
        return None
    floor, level = least_level(of), stats.sqnr_db
    if not limits.given and of.usual_rms is not None:
        floor, level = DEFAULT_MIN_SQNR, level_of_sample(stats, of.usual_rms)
    elif not limits.given and stats.max_lsb is not None and stats.max_lsb <= DERIVED_LSB + LSB_SLACK:
        floor = CODES_MIN_SQNR  # every code is within the error that one quantized node may introduce
    if floor is None or level is None or level >= floor or (not limits.given and of.excused):
        return None
    return level, floor


def least_level(of: Measured) -> float | None:
    """Return the minimum SQNR in dB of the total error, or None if the user's other limits judge it."""
    return of.limits.sqnr_in_force if of.limits.given or of.least_sqnr is None else of.least_sqnr


def level_of_sample(stats: ErrorStats, usual_rms: float | None) -> float | None:
    """Return by how many dB the error of a sample is below the root mean square of its tensor over all samples."""
    if stats.rmse is None or not stats.rmse or not usual_rms or not math.isfinite(stats.rmse):
        return None
    return 20 * math.log10(usual_rms / stats.rmse)


def steps_beyond_limit(of: Measured) -> tuple[float, float] | None:
    """Return the largest difference in steps and the user's limit that it exceeds, or None."""
    stats, most = _judged_whole(of), of.limits.max_lsb
    if stats is None or stats.max_lsb is None or most is None:
        return None
    # Limits and differences are multiples of half a step, except for float32 rounding of real values.
    return None if stats.max_lsb <= most * (1 + LSB_SLACK) else (stats.max_lsb, most)


def elements_beyond_tolerance(of: Measured) -> tuple[int, int] | None:
    """Return how many elements differ by more than the user's tolerance, of how many, or None if none does."""
    stats = _judged_whole(of)
    if stats is None or of.limits.tolerance is None or not stats.beyond_tolerance:
        return None
    return stats.beyond_tolerance, stats.count


def _judged_whole(of: Measured) -> ErrorStats | None:
    """Return the total error if it judges the tensor: the user gave limits, or its node was not replayed."""
    stats, attribution = of.stats, of.attribution
    if stats is None or stats.nonfinite or not stats.mismatches:
        return None
    if of.limits.judge_whole(stats):
        return stats
    replayed = attribution is not None and attribution.arithmetic_unsaturated is not None
    return None if replayed or of.exact else stats
