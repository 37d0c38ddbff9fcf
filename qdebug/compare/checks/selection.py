"""Reports how close the decision was when an index, a boolean or a rounded number differs from the reference.

Integers that are not codes have no rounding step: they are either equal or different. If a node's inputs account for
its result, the difference came with the inputs, and it may be as small as rounding.
"""

from __future__ import annotations

from qdebug.compare.checks.arithmetic import describe_mismatches
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["selection"]


def selection(evidence: Evidence) -> Finding | None:
    """Find which input difference flips the result of a node that is consistent with its own inputs."""
    node, stats, attribution = evidence.node, evidence.stats, evidence.attribution
    if node is None or stats is None or not stats.mismatches or not evidence.entry.whole:
        return None
    own_error = None if attribution is None else attribution.introduced
    if own_error is None or own_error.mismatches:
        return None
    margins = evidence.selection_margins
    if not margins:
        return None
    largest_margin, source = max(margins), node.inputs[0]
    most = "" if len(margins) == 1 else "up to "
    reason = (
        f"a difference of {most}{largest_margin:.3g} in {source!r} changes the selection"
        if largest_margin
        else f"they select equal values of {source!r}"
    )
    return Finding(
        kind=FindingKind.SELECTION,
        role=FindingRole.NOTE,
        node=evidence.name,
        sentence=f"{describe_mismatches(stats)}; {reason}",
        amount=largest_margin,
        evidence=source,
    )
