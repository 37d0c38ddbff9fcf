"""Checks whether values near zero became exactly zero: for a coarse step, or although the other values are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model.thresholds.checks import DEAD_ZONE_MIN_ELEMENTS
from qdebug.model.thresholds.verdict import DERIVED_LSB

__all__ = ["dead_channels", "dead_zone"]


def dead_zone(evidence: Evidence) -> Finding | None:
    """Report that a node outputs zero for all values within some distance of zero, and is right beyond it.

    The distance lies between the largest replayed value that became zero and the smallest that did not. There is no
    such distance if a smaller value than the first did not become zero.
    """
    attribution, coded = evidence.attribution, evidence.entry.quant is not None
    zone = evidence.dead_zone if evidence.diverges else None
    if zone is None or attribution is None:
        return None
    rest_is_right = zone.worst <= DERIVED_LSB if coded else math.sqrt(zone.squares) <= (attribution.allowed or 0.0)
    if min(zone.dropped, zone.surviving) < DEAD_ZONE_MIN_ELEMENTS or not rest_is_right:
        return None
    size_text = f"{zone.size:.4g}{' LSB' if coded else ''}"
    clause = (
        f"{zone.dropped} of {zone.total} elements are zero, although they reach {size_text} in a replay of the node"
    )
    return Finding(
        kind=FindingKind.DEAD_ZONE,
        role=FindingRole.CAUSE,
        node=evidence.name,
        sentence=f"dead zone: {clause}; all larger elements are right",
        amount=float(zone.size),
        limit=zone.floor,
        unit="LSB" if coded else "absolute value",
        evidence=evidence.entry.tensor,
    )


def dead_channels(evidence: Evidence) -> Finding | None:
    """Find channels that are rounded to zero because every value in them is smaller than the step of the tensor."""
    dead, quant = evidence.dead_channels, evidence.entry.quant
    if dead is None or quant is None:
        return None
    channels, largest, total = dead
    noun, are = ("channel", "is") if len(channels) == 1 else ("channels", "are")
    clause = f"{noun} {_format_ranges(channels)} {are} rounded to zero entirely"
    step = float(quant.scale[0])
    return Finding(
        kind=FindingKind.DEAD_ZONE,
        role=FindingRole.NOTE,
        node=evidence.name,
        sentence=f"{clause}; the largest magnitude there is {largest:.3g}, and one LSB is {step:.3g}",
        amount=float(len(channels)),
        limit=0.0,
        unit=f"of {total} channels",
        evidence=evidence.entry.tensor,
    )


def _format_ranges(positions: Sequence[int], *, limit: int = 6) -> str:
    """Write positions as ranges, such as "2..9, 12". If there are many ranges, write only the first few."""
    breaks = [at for at in range(1, len(positions)) if positions[at] != positions[at - 1] + 1]
    runs = [positions[start:stop] for start, stop in pairwise([0, *breaks, len(positions)])]
    range_texts = [str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs[:limit]]
    rest_count = sum(map(len, runs[limit:]))
    return ", ".join(range_texts) + (f" and {rest_count} more" if rest_count else "")
