"""Compares the total error of a tensor with its limits, if the user set any or its node was not replayed."""

from __future__ import annotations

from qdebug.compare.evidence import excess
from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, apart, breach

__all__ = ["elements_beyond_tolerance", "large_difference", "low_sqnr", "nonfinite"]


def nonfinite(measured: Measured) -> Finding | None:
    """Find elements that are NaN or infinite on one side only, of the two runs or of the backend and its replay."""
    stats = excess.nonfinite(measured)
    if stats is None:
        return None
    sentence = f"{stats.nonfinite} of {stats.count} elements are NaN or infinite in one run only"
    return breach(measured.name, FindingKind.NONFINITE, sentence, judged=(stats.nonfinite, 0, "elements"))


def low_sqnr(measured: Measured) -> Finding | None:
    """Find an SQNR below the required minimum."""
    level_and_limit, given = excess.low_sqnr(measured), measured.limits.given
    if level_and_limit is None:
        return None
    level, floor = level_and_limit
    sentence = f"SQNR {apart(level, floor)} dB is below {floor:g} dB"
    if not given and measured.usual_rms is not None:
        text = f"its error is only {apart(level, floor)} dB below the signal of all samples"
        sentence = f"{text}; the limit is {floor:g} dB"
    elif measured.least_sqnr is not None and not given:
        sentence += f", although its inputs are equal; {measured.unreplayed}"
    elif measured.unreplayed is not None and not given:
        sentence += f"; this includes the error of its inputs, because {measured.unreplayed}"
    return breach(measured.name, FindingKind.ERROR, sentence, judged=(level, floor, "dB"), given=given)


def large_difference(measured: Measured) -> Finding | None:
    """Find a difference of more steps than the user allows."""
    error_and_limit = excess.steps_beyond_limit(measured)
    if error_and_limit is None:
        return None
    sentence = (
        f"the largest error, {apart(*error_and_limit, digits=4)} LSB, is above the limit of {error_and_limit[1]:g} LSB"
    )
    return breach(measured.name, FindingKind.ERROR, sentence, judged=(*error_and_limit, "LSB"), given=True)


def elements_beyond_tolerance(measured: Measured) -> Finding | None:
    """Find elements that differ by more than the user's absolute and relative tolerance."""
    counts, pair = excess.elements_beyond_tolerance(measured), measured.limits.tolerance
    if counts is None or pair is None:
        return None
    share = f"{counts[0]} of {counts[1]} elements"
    sentence = f"{share} differ by more than {pair[0]:g} + {pair[1]:g}*abs(reference)"
    return breach(measured.name, FindingKind.ERROR, sentence, judged=(counts[0], 0, "elements"), given=True)
