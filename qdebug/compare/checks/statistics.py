"""Checks tensors about which too little is known: not all values were kept, or the node or scale is unknown."""

from __future__ import annotations

import math

from qdebug.compare.checks.arithmetic import describe_mismatches
from qdebug.compare.evidence import excess
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart, breach
from qdebug.model.thresholds.verdict import DEFAULT_MIN_SQNR, GROWTH_MIN_EXCESS

__all__ = [
    "codes_without_scale",
    "loss_by_format",
    "low_sqnr_bound",
    "nonfinite_in_statistics",
    "undecided_integers",
    "undecided_sketch",
    "unjudged_error",
    "worst_sample",
]


def nonfinite_in_statistics(evidence: Evidence) -> Finding | None:
    """Report that the full statistics count more NaN or infinite values on one side than on the other."""
    count = evidence.comparison.nonfinite
    if not count:
        return None
    noun_and_verb = "element is" if count == 1 else "elements are"
    sentence = f"according to the statistics, at least {count} {noun_and_verb} NaN or infinite in one run only"
    return breach(evidence.name, FindingKind.NONFINITE, sentence, judged=(count, 0, "elements"))


def low_sqnr_bound(evidence: Evidence) -> Finding | None:
    """Report that the statistics or sketches alone prove an SQNR below the required minimum."""
    stats, bound, limits = evidence.stats, evidence.comparison.sqnr_at_most, evidence.limits
    floor = limits.sqnr_in_force if stats is None else excess.min_total_sqnr(evidence)
    if (stats is not None and not stats.estimated) or floor is None or bound is None or not bound < floor:
        return None
    sentence = evidence.comparison.reason or ""
    if stats is not None:
        if evidence.excused and not limits.given:
            return None
        sentence = f"{evidence.comparison.note}; the limit is {floor:g} dB"
    return breach(evidence.name, FindingKind.ERROR, sentence, judged=(bound, floor, "dB"), given=limits.given)


def undecided_sketch(evidence: Evidence) -> Finding | None:
    """Excuse an error that is known from sketches only, if they cannot show whether it is within the limits."""
    stats, comparison, limits = evidence.stats, evidence.comparison, evidence.limits
    bounds = comparison.sqnr_at_least, comparison.sqnr_at_most
    if stats is None or not stats.estimated or bounds[0] is None or bounds[1] is None:
        return None
    floor = excess.min_total_sqnr(evidence)
    if limits.max_lsb is not None or limits.tolerance is not None:
        return _doubt_finding(
            evidence, stats.sqnr_db or 0.0, floor or DEFAULT_MIN_SQNR, "sketches do not show the largest error"
        )
    if floor is None or not bounds[0] < floor <= bounds[1]:
        return None
    why = f"by its sketches, its SQNR is between {bounds[0]:.3g} and {bounds[1]:.3g} dB; the limit is {floor:g} dB"
    return _doubt_finding(evidence, stats.sqnr_db or 0.0, floor, why)


def codes_without_scale(evidence: Evidence) -> Finding | None:
    """Report that the scale is missing for codes that could not be compared with real values."""
    name = evidence.unscaled if evidence.stats is None else None
    if name is None:
        return None
    advice = f"record {name!r} with scale= and zero_point="
    return Finding(kind=FindingKind.SCALE, role=FindingRole.NOTE, node=evidence.name, sentence=advice, evidence=name)


def worst_sample(evidence: Evidence) -> Finding | None:
    """Find a sample whose error exceeds the limit although the error of all samples together does not."""
    stats, attribution = evidence.stats, evidence.attribution
    if stats is None or stats.nonfinite or evidence.limits.given or evidence.excused or evidence.entry.whole:
        return None
    if evidence.unreplayed is None or attribution is None or excess.low_sqnr(evidence) is not None:
        return None
    levels = [
        (excess.level_of_sample(sample_comparison.stats, evidence.reference_rms), sample_comparison.sample)
        for sample_comparison in evidence.comparison.samples
    ]
    samples_beyond = [(level, sample) for level, sample in levels if level is not None and level < DEFAULT_MIN_SQNR]
    if len(levels) < 2 or not samples_beyond:
        return None
    level, sample = min(samples_beyond)
    others_text = f" (and of {len(samples_beyond) - 1} more)" if len(samples_beyond) > 1 else ""
    sentence = (
        f"the error of sample {sample}{others_text} is only {apart(level, DEFAULT_MIN_SQNR)} dB below the signal "
        "of all samples"
    )
    sentence += f"; the limit is {DEFAULT_MIN_SQNR:g} dB; {evidence.unreplayed}"
    return breach(evidence.name, FindingKind.ERROR, sentence, judged=(level, DEFAULT_MIN_SQNR, "dB"))


def unjudged_error(evidence: Evidence) -> Finding | None:
    """Excuse an error beyond the limit of an unreplayed node whose inputs are just as far off.

    A node whose replay failed is not blamed for its total error either: a replay can fail for lack of memory, which
    must not change the verdict.
    """
    floor, stats = evidence.limits.sqnr_in_force, evidence.stats
    if evidence.limits.given or floor is None or stats is None or stats.sqnr_db is None or stats.nonfinite:
        return None
    if evidence.node is None or evidence.input_difference is not None:
        return None
    if evidence.failed and evidence.excused and stats.mismatches:
        return _doubt_finding(evidence, stats.sqnr_db, floor, f"its replay failed: {evidence.unreplayed}")
    if evidence.unreplayed is None or evidence.exact:
        return None
    if evidence.is_undefined and stats.mismatches and not stats.sqnr_db < floor:
        return _doubt_finding(evidence, stats.sqnr_db, floor, evidence.unreplayed)
    if not evidence.excused or not stats.sqnr_db < floor:
        return None
    if (evidence.reproduced is not None and evidence.reproduced.firm) or evidence.format_loss is not None:
        return None
    why = "the inputs of the two runs differ" if evidence.have_different_inputs else "its inputs have as large an error"
    return _doubt_finding(evidence, stats.sqnr_db, floor, f"{evidence.unreplayed}, and {why}")


def loss_by_format(evidence: Evidence) -> Finding | None:
    """Excuse an error of an unreplayed node that rounding every result to the tensor's short format would cause too."""
    sample_and_loss = evidence.format_loss
    if sample_and_loss is None:
        return None
    sample, loss = sample_and_loss
    where = f" of sample {sample.sample}" if len(evidence.comparison.samples) > 1 else ""
    level = -math.inf if sample.sqnr_db is None else sample.sqnr_db
    sentence = (
        f"SQNR{where} {level:.1f} dB, judged with its inputs, because {evidence.unreplayed}; the reference with all "
        f"inputs, constants and results rounded to {loss.short} has {loss.sqnr_db:.1f} dB"
    )
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.EXCUSE,
        node=evidence.name,
        sentence=sentence,
        amount=level,
        limit=loss.sqnr_db - GROWTH_MIN_EXCESS,
        unit="dB",
        evidence=loss.short,
    )


def _doubt_finding(evidence: Evidence, level: float, floor: float, why: str) -> Finding:
    """Return an excuse: it is unknown whether the node is right."""
    return Finding(
        kind=FindingKind.ERROR,
        role=FindingRole.EXCUSE,
        node=evidence.name,
        sentence=f"not judged, SQNR {apart(level, floor)} dB: {why}",
        amount=level,
        limit=floor,
        unit="dB",
    )


def undecided_integers(evidence: Evidence) -> Finding | None:
    """Excuse integers that differ if it is unknown whether the node's inputs account for that."""
    stats, attribution = evidence.stats, evidence.attribution
    if stats is None or attribution is None or attribution.arithmetic_unsaturated is not None:
        return None
    if not evidence.entry.whole or not stats.mismatches or evidence.limits.judge_whole(stats):
        return None
    sentence = f"{describe_mismatches(stats)}, possibly because of its inputs"
    return Finding(
        kind=FindingKind.ARITHMETIC,
        role=FindingRole.EXCUSE,
        node=evidence.name,
        sentence=sentence,
        amount=float(stats.mismatches),
        limit=0.0,
        unit="elements",
    )
