"""Checks a tensor of which values were not all kept, by the statistics that were."""

from __future__ import annotations

from qdebug.compare.checks.arithmetic import differing
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.measured import breach
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["nonfinite_at_least", "sqnr_at_most", "undecided"]


def nonfinite_at_least(context: NodeContext) -> Finding | None:
    """Find that the statistics of all values count more that are NaN or infinite on one side than on the other."""
    count = context.comparison.nonfinite
    if not count:
        return None
    what = "element is" if count == 1 else "elements are"
    said = f"by the statistics of all values at least {count} {what} NaN or infinite on one side only"
    return breach(context, FindingKind.NONFINITE, said, judged=(count, 0, "elements"), given=False)


def sqnr_at_most(context: NodeContext) -> Finding | None:
    """Find that statistics alone prove an SQNR below the least in force."""
    floor, most, reason = context.limits.sqnr_in_force, context.comparison.sqnr_at_most, context.comparison.reason
    if context.stats is not None or floor is None or most is None or not most < floor:
        return None
    given = context.limits.given
    return breach(context, FindingKind.ERROR, reason or "", judged=(most, floor, "dB"), given=given)


def undecided(context: NodeContext) -> Finding | None:
    """Excuse integers that differ where nothing tells whether what the node reads accounts for that."""
    stats, attribution = context.stats, context.attribution
    if stats is None or attribution is None or attribution.arithmetic_unsaturated is not None:
        return None
    if not context.entry.whole or not stats.mismatches:
        return None
    said = f"{differing(stats)}, for which what it reads may account"
    return Finding(
        kind=FindingKind.ARITHMETIC,
        role=FindingRole.EXCUSE,
        node=context.name,
        sentence=said,
        amount=float(stats.mismatches),
        limit=0.0,
        unit="elements",
    )
