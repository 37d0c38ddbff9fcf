"""Checks the parts that a Concat joins into a network output, because a large part hides the loss of a small one."""

from __future__ import annotations

from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.joined_outputs import PartError
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.model import Graph

__all__ = ["joined_part"]


def joined_part(evidence: Evidence) -> Finding | None:
    """Find the part of an output that is farthest below the output limit, judging each part separately."""
    floor, stats = evidence.limits.output_sqnr_in_force, evidence.stats
    if floor is None or stats is None or stats.nonfinite or not stats.mismatches or evidence.entry.whole:
        return None
    worst = min(evidence.errors_of_parts, key=lambda error: error.sqnr_db, default=None)
    if worst is None or not worst.sqnr_db < floor:
        return None
    return Finding(
        kind=FindingKind.DEAD_ZONE if worst.zero else FindingKind.ERROR,
        role=FindingRole.OUTPUT,
        node=evidence.name,
        sentence=_describe_part(evidence.graph, worst, floor),
        amount=worst.sqnr_db,
        limit=floor,
        unit="dB",
        evidence=worst.part.tensor,
    )


def _describe_part(graph: Graph, error: PartError, floor: float) -> str:
    text = f"its part {error.part.tensor!r} ({error.part.describe_position()})"
    if not error.zero:
        return f"{text} has an SQNR of {apart(error.sqnr_db, floor)} dB, below {floor:g} dB"
    for name in error.part.path:
        quant = graph.tensors[name].quant
        if quant is not None and not quant.per_channel and float(quant.scale[0]) > error.largest:
            step = f"one LSB of {name!r} is {float(quant.scale[0]):.3g}"
            return f"{text} is all zero; {step}, and its values reach only {error.largest:.3g} in the reference"
    return f"{text} is all zero; its values reach {error.largest:.3g} in the reference"
