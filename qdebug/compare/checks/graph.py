"""Checks what the two graphs say of a node, and what stands behind its error."""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.error import nonfinite
from qdebug.compare.checks.precision import float32_overflow
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["difference", "otherwise_said", "overflow", "precision", "read_otherwise", "unholdable"]


def difference(context: NodeContext) -> Finding | None:
    """Find what the graphs say differently of the node: its weight, bias, attributes, operator, scales, operands."""
    return context.difference[0]


def unholdable(context: NodeContext) -> Finding | None:
    """Find a constant that its format cannot hold: the cause where values are not finite, else worth saying."""
    found = context.unholdable
    if found is None:
        return None
    failed = nonfinite(context) is not None or context.comparison.nonfinite
    return replace(found, role=FindingRole.CAUSE if failed else FindingRole.NOTE)


def read_otherwise(context: NodeContext) -> Finding | None:
    """Find why an error is beyond its limit: codes read by other numbers than they were written with, or rounding."""
    return context.cause if context.diverges else None


def otherwise_said(context: NodeContext) -> Finding | None:
    """Say that the reference's nodes account for the values, and the operator that was recorded does not."""
    if not context.by_reference:
        return None
    said = (
        "what its node is said to do does not give its values; what the reference's nodes make of the same inputs does"
    )
    return Finding(kind=FindingKind.OPERATOR, role=FindingRole.NOTE, node=context.name, sentence=said)


def overflow(context: NodeContext) -> Finding | None:
    """Find a code of either side that stands for more than float32 holds, where values are not finite."""
    if nonfinite(context) is None and not context.comparison.nonfinite:
        return None
    runs, entry = context.runs, context.entry
    sample = 0 if context.stats is None else context.stats.worst_sample or 0
    for recording, tensor, side in (
        (runs.backend, entry.tensor, ""),
        (runs.reference, entry.reference_tensor, " of the reference"),
    ):
        said = float32_overflow(recording, recording.graph.producer(tensor), tensor, sample)
        if said is not None:
            return Finding(
                kind=FindingKind.SCALE, role=FindingRole.CAUSE, node=entry.node, sentence=said + side, evidence=tensor
            )
    return None


def precision(context: NodeContext) -> Finding | None:
    """Find a format of few digits that the values were rounded to in this run alone."""
    name = context.short_format
    if name is None:
        return None
    said = f"its values are what {name} holds, whatever they are kept in; the reference's are not"
    return Finding(kind=FindingKind.PRECISION, role=FindingRole.NOTE, node=context.name, sentence=said, evidence=name)
