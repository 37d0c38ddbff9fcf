"""Checks the inputs of both runs, before any node."""

from __future__ import annotations

from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["different_input", "nan_input"]


def different_input(evidence: Evidence) -> Finding | None:
    """Find a network input that differs between the two runs, which makes every error inconclusive."""
    input_difference = evidence.input_difference
    if input_difference is None:
        return None
    return Finding(
        kind=FindingKind.INPUT,
        role=FindingRole.EXCUSE,
        node=evidence.name,
        sentence=input_difference.sentence,
        amount=input_difference.amount,
        limit=input_difference.limit,
        unit=input_difference.unit,
        evidence=evidence.entry.tensor,
    )


def nan_input(evidence: Evidence) -> Finding | None:
    """Report a network input that holds NaN in both runs. An infinity may be intended, as in a mask."""
    stats, entry = evidence.stats, evidence.entry
    if evidence.node is not None or stats is None or not stats.matched_nonfinite or entry.quant is not None:
        return None
    count = evidence.nan_count
    if not count:
        return None
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=evidence.name,
        sentence=f"{count} of {stats.count} elements of this input {'is' if count == 1 else 'are'} NaN in both runs",
        amount=float(count),
        limit=0.0,
        unit="elements",
        evidence=entry.tensor,
    )
