"""Checks how a quantizer, or a node with 16-bit or 8-bit float results, rounds.

A node that truncates may stay within a limit on the size of its error. But all its errors have one sign, so they add up
along the network, whereas errors of rounding to nearest cancel.
"""

from __future__ import annotations

from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.output_rounding import CutQuotients, OutputRounding
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model.thresholds.explanation import ONE_SIDED_MIN_MEAN

__all__ = ["one_sided"]

_UNIT = "units in the last place"


def one_sided(evidence: Evidence) -> Finding | None:
    """Find rounding errors that have one sign, or roundings in other positions than in the reference."""
    if evidence.cut_quotients is not None:
        return _cut_finding(evidence.name, evidence.cut_quotients)
    backend = evidence.rounding
    if backend is None:
        return None
    named = None if backend.placement is None else backend.placement.named
    if not backend.one_sided and (named is None or named.is_usual):
        return None
    reference = evidence.reference_rounding
    if backend.one_sided and not (reference is not None and reference.one_sided):
        return _one_sided_finding(evidence.name, backend, reference)
    if named is None or named.is_usual or (reference is not None and reference.clauses == backend.clauses):
        return None
    others = () if reference is None else reference.clauses
    differing = [clause for clause in backend.clauses if clause not in others] if others else backend.clauses
    sentence = ", ".join(differing) + (", unlike in the reference" if others else "")
    role = FindingRole.CAUSE if evidence.diverges else FindingRole.NOTE
    return Finding(kind=FindingKind.ROUNDING, role=role, node=evidence.name, sentence=sentence, evidence=str(named))


def _cut_finding(name: str, cut: CutQuotients) -> Finding:
    share = cut.differing / cut.elements
    sentence = (
        f"its quotients are {cut.words}, not rounded to nearest, in {cut.elements:,} of {cut.elements:,} elements; "
        f"{cut.differing:,} codes are off by one"
    )
    return Finding(
        kind=FindingKind.ONE_SIDED,
        role=FindingRole.BREACH,
        node=name,
        sentence=sentence,
        amount=share,
        limit=ONE_SIDED_MIN_MEAN,
        unit="LSB on average",
    )


def _one_sided_finding(name: str, backend: OutputRounding, reference: OutputRounding | None) -> Finding:
    errors = backend.errors
    mean_text = f"{abs(errors.mean):.2f} {_UNIT} {errors.direction} on average"
    place_text = "" if backend.sample is None else f" in sample {backend.sample}"
    if backend.clauses and backend.placement is not None:
        count = backend.placement.elements
        clauses = sorted(backend.clauses, key=lambda clause: clause in (() if reference is None else reference.clauses))
        words = ", ".join(clauses)
        sentence = (
            f"{words} in {count:,} of {count:,} elements{place_text}, an error of {mean_text}{_in_reference(reference)}"
        )
    else:
        certainty = f"{errors.deviations:.3g} standard deviations from 0"
        sentence = f"its errors are one-sided{place_text}: {mean_text}, {certainty}"
    return Finding(
        kind=FindingKind.ONE_SIDED,
        role=FindingRole.BREACH,
        node=name,
        sentence=sentence,
        amount=abs(errors.mean),
        limit=ONE_SIDED_MIN_MEAN,
        unit=_UNIT,
        evidence=None if backend.placement is None or backend.placement.named is None else str(backend.placement.named),
    )


def _in_reference(reference: OutputRounding | None) -> str:
    return "" if reference is None or not reference.words else f"; in the reference, {reference.words}"
