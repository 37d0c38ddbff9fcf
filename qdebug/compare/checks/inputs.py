"""Checks the inputs of both runs, before any node."""

from __future__ import annotations

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["different_input", "nan_input"]


def different_input(context: NodeContext) -> Finding | None:
    """Find a network input that differs between the two runs, which makes every error inconclusive."""
    input_difference = context.input_difference
    if input_difference is None:
        return None
    return Finding(
        kind=FindingKind.INPUT,
        role=FindingRole.EXCUSE,
        node=context.name,
        sentence=input_difference.sentence,
        amount=input_difference.amount,
        limit=input_difference.limit,
        unit=input_difference.unit,
        evidence=context.entry.tensor,
    )


def nan_input(context: NodeContext) -> Finding | None:
    """Report a network input that holds NaN in both runs. An infinity may be intended, as in a mask."""
    stats, runs, entry = context.stats, context.runs, context.entry
    if context.node is not None or stats is None or not stats.matched_nonfinite or entry.quant is not None:
        return None
    places = recorded_places(runs.reference, runs.backend, entry)
    arrays = (real_values(runs.backend, entry.tensor, place) for place in places)
    count = sum(int(np.count_nonzero(np.isnan(array))) for array in arrays if array.dtype.kind == "f")
    if not count:
        return None
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"{count} of {stats.count} elements of this input {'is' if count == 1 else 'are'} NaN in both runs",
        amount=float(count),
        limit=0.0,
        unit="elements",
        evidence=entry.tensor,
    )
