"""Checks what each run was given: its inputs, before any node is looked at."""

from __future__ import annotations

from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["different_input", "nonfinite_input"]


def different_input(context: NodeContext) -> Finding | None:
    """Find that an input of the network differs between the two runs: no error tells anything of a node then."""
    found = context.input_difference
    if found is None:
        return None
    return Finding(
        kind=FindingKind.INPUT,
        role=FindingRole.EXCUSE,
        node=context.name,
        sentence=found.sentence,
        amount=found.amount,
        limit=found.limit,
        unit=found.unit,
        evidence=context.entry.tensor,
    )


def nonfinite_input(context: NodeContext) -> Finding | None:
    """Say that an input of the network holds NaN or infinity in both runs."""
    stats = context.stats
    if context.node is not None or stats is None or not stats.matched_nonfinite:
        return None
    many = stats.matched_nonfinite
    said = f"{many} of {stats.count} elements of this input {'is' if many == 1 else 'are'} NaN or infinite in both runs"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=said,
        amount=float(many),
        limit=0.0,
        unit="elements",
        evidence=context.entry.tensor,
    )
