"""Holds two quantized runs against each other: where equal inputs give other codes."""

from __future__ import annotations

import numpy as np

from qdebug.compare.checks.arithmetic import differing
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["apart_on_equal_inputs", "other_scale"]


def other_scale(context: NodeContext) -> Finding | None:
    """Say that both runs have the tensor in codes, of other scales; one that is chosen at run time is left out."""
    ours, stats = context.entry.quant, context.stats
    theirs = context.runs.reference.graph.tensors[context.entry.reference_tensor].quant
    if ours is None or theirs is None or ours.per_channel or theirs.per_channel or stats is None:
        return None
    if not stats.mismatches or np.float32(ours.scale[0]) == np.float32(theirs.scale[0]):
        return None
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"scale {ours.scale[0]:.3g}, the reference's is {theirs.scale[0]:.3g}",
        amount=float(ours.scale[0]),
        limit=float(theirs.scale[0]),
        unit="per code",
        evidence=context.entry.tensor,
    )


def apart_on_equal_inputs(context: NodeContext) -> Finding | None:
    """Say that two quantized runs give other codes for equal inputs, and by which arithmetic each computes."""
    pair, quant, stats = context.arithmetics, context.entry.quant, context.stats
    if pair is None or pair.same or quant is None or stats is None or not context.reads_the_same:
        return None
    most = stats.max_lsb or 0.0
    codes = "1 code" if most == 1 else f"{most:g} codes"
    ours = "by an arithmetic that is not known" if pair.backend is None else f"by {pair.backend}"
    both = f"the reference computes by {pair.reference}, the backend {ours}"
    said = f"{differing(stats)} on equal inputs, by up to {codes}; {both}"
    return Finding(
        kind=FindingKind.ARITHMETIC,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=said,
        amount=most,
        limit=0.0,
        unit="LSB",
    )
