"""Compares the total error of a tensor with its limits, if the user gave any or nothing else judges it."""

from __future__ import annotations

from qdebug.compare.evidence import excess
from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, apart, breach

__all__ = ["largest_step", "nonfinite", "sqnr", "tolerance"]


def nonfinite(of: Measured) -> Finding | None:
    """Find elements that are NaN or infinite on one side only, comparing the recorded tensors or the replay."""
    stats = excess.nonfinite(of)
    if stats is None:
        return None
    sentence = f"{stats.nonfinite} of {stats.count} elements are NaN or infinite in one run only"
    return breach(of.name, FindingKind.NONFINITE, sentence, judged=(stats.nonfinite, 0, "elements"))


def sqnr(of: Measured) -> Finding | None:
    """Find an SQNR below the required minimum."""
    beyond, given = excess.low_sqnr(of), of.limits.given
    if beyond is None:
        return None
    level, floor = beyond
    sentence = f"SQNR {apart(level, floor)} dB is below {floor:g} dB"
    if not given and of.usual_rms is not None:
        text = f"its error is only {apart(level, floor)} dB below the signal of all samples"
        sentence = f"{text}; the limit is {floor:g} dB"
    elif of.least_sqnr is not None and not given:
        sentence += f", although its inputs are equal; {of.unreplayed}"
    elif of.unreplayed is not None and not given:
        sentence += f"; this includes the error of its inputs, because {of.unreplayed}"
    return breach(of.name, FindingKind.ERROR, sentence, judged=(level, floor, "dB"), given=given)


def largest_step(of: Measured) -> Finding | None:
    """Find a difference of more steps than the user allows."""
    beyond = excess.steps_beyond_limit(of)
    if beyond is None:
        return None
    sentence = f"the largest error, {apart(*beyond, digits=4)} LSB, is above the limit of {beyond[1]:g} LSB"
    return breach(of.name, FindingKind.ERROR, sentence, judged=(*beyond, "LSB"), given=True)


def tolerance(of: Measured) -> Finding | None:
    """Find elements that differ by more than the user's absolute and relative tolerance."""
    beyond, pair = excess.elements_beyond_tolerance(of), of.limits.tolerance
    if beyond is None or pair is None:
        return None
    share = f"{beyond[0]} of {beyond[1]} elements"
    sentence = f"{share} differ by more than {pair[0]:g} + {pair[1]:g}*abs(reference)"
    return breach(of.name, FindingKind.ERROR, sentence, judged=(beyond[0], 0, "elements"), given=True)
