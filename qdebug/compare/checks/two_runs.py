"""Compares two runs: which of them is wrong, and where equal inputs give different codes."""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.checks.arithmetic import differing, judged
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.measured import Error, breach
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.compare.result.limits import Limits

__all__ = ["apart_on_equal_inputs", "other_scale", "wrong_reference"]


def wrong_reference(context: NodeContext) -> Finding | None:
    """Find that the reference's tensor does not match a replay of its own node, while the backend's does."""
    alone, stats = context.reference_alone, context.stats
    if alone is not None and stats is not None and stats.nonfinite:
        odd = 0 if alone.arithmetic_unsaturated is None else alone.arithmetic_unsaturated.nonfinite
        said = "a replay of the reference's node gives finite values that the reference lacks and the backend has"
        found = breach(context, FindingKind.REFERENCE, said, judged=(odd, 0, "elements"), given=False)
        return replace(found, role=FindingRole.CAUSE)
    own = None if alone is None else judged(Error(stats=context.stats, attribution=alone, limits=Limits()))
    if own is None:
        return None
    off = f"{apart(own.amount, own.limit, digits=4)} LSB; rounding explains at most {own.limit:g} LSB"
    if own.unit != "LSB":
        off = f"{apart(own.amount, own.limit)} times the rounding bound"
    said = "a replay of its node does not reproduce the reference's tensor, but it reproduces the backend's"
    return breach(
        context,
        FindingKind.REFERENCE,
        f"{said}. The reference is off by {off}",
        judged=(own.amount, own.limit, own.unit),
        given=False,
    )


def other_scale(context: NodeContext) -> Finding | None:
    """Report that both runs quantize the tensor with different scales. Scales chosen at run time are left out."""
    ours, stats = context.entry.quant, context.stats
    theirs = context.runs.reference.graph.tensors[context.entry.reference_tensor].quant
    if ours is None or theirs is None or ours.per_channel or theirs.per_channel or stats is None:
        return None
    if not stats.mismatches or ours.has_same_scale(theirs):
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
    """Report that two quantized runs give different codes for equal inputs, and which arithmetic each uses."""
    pair, quant, stats = context.arithmetics, context.entry.quant, context.stats
    if pair is None or pair.same or quant is None or stats is None or not context.reads_the_same:
        return None
    most = stats.max_lsb or 0.0
    codes = "1 code" if most == 1 else f"{most:g} codes"
    ours = "an unknown arithmetic" if pair.backend is None else pair.backend
    both = f"the reference uses {pair.reference}, the backend {ours}"
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
