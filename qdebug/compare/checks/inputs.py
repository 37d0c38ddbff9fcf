"""Checks what each run was given: its inputs, before any node is looked at."""

from __future__ import annotations

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["different_input", "nan_input"]


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


def nan_input(context: NodeContext) -> Finding | None:
    """Say that an input of the network holds NaN in both runs; an infinity may well be meant, as in a mask."""
    stats, runs, entry = context.stats, context.runs, context.entry
    if context.node is not None or stats is None or not stats.matched_nonfinite or entry.quant is not None:
        return None
    places = recorded_places(runs.reference, runs.backend, entry)
    arrays = (real_values(runs.backend, entry.tensor, place) for place in places)
    many = sum(int(np.count_nonzero(np.isnan(array))) for array in arrays if array.dtype.kind == "f")
    if not many:
        return None
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"{many} of {stats.count} elements of this input {'is' if many == 1 else 'are'} NaN in both runs",
        amount=float(many),
        limit=0.0,
        unit="elements",
        evidence=entry.tensor,
    )
