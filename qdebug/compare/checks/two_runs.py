"""Checks which of the two runs is wrong, and whether equal inputs give different codes."""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.checks.arithmetic import describe_mismatches
from qdebug.compare.evidence import excess
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.measured import Error
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart, breach
from qdebug.compare.result.limits import Limits

__all__ = ["different_codes_on_equal_inputs", "different_scale", "wrong_reference"]


def wrong_reference(evidence: Evidence) -> Finding | None:
    """Report that the reference's tensor does not match a replay of its own node, while the backend's does."""
    reference_error, stats = evidence.reference_own_error, evidence.stats
    if reference_error is not None and stats is not None and stats.nonfinite:
        nonfinite_count = (
            0 if reference_error.arithmetic_unsaturated is None else reference_error.arithmetic_unsaturated.nonfinite
        )
        clause = "a replay of the reference's node produces finite values that the backend has and the reference lacks"
        finding = breach(evidence.name, FindingKind.REFERENCE, clause, judged=(nonfinite_count, 0, "elements"))
        return replace(finding, role=FindingRole.CAUSE)
    own_difference = (
        None
        if reference_error is None
        else excess.judged(Error(stats=evidence.stats, attribution=reference_error, limits=Limits()))
    )
    if own_difference is None:
        return None
    own_limit = own_difference.limit
    amount_text = (
        f"{apart(own_difference.amount, own_limit, digits=4)} LSB; rounding explains at most {own_limit:g} LSB"
    )
    if own_difference.unit != "LSB":
        amount_text = f"{apart(own_difference.amount, own_limit)} times the rounding bound"
    clause = "a replay of its node does not reproduce the reference's tensor, but it reproduces the backend's"
    return breach(
        evidence.name,
        FindingKind.REFERENCE,
        f"{clause}. The reference is off by {amount_text}",
        judged=(own_difference.amount, own_difference.limit, own_difference.unit),
    )


def different_scale(evidence: Evidence) -> Finding | None:
    """Report that the two runs quantize the tensor with different scales, if neither is chosen at run time."""
    backend_quant, reference_quant, stats = evidence.entry.quant, evidence.reference_quant, evidence.stats
    if (
        backend_quant is None
        or reference_quant is None
        or backend_quant.per_channel
        or reference_quant.per_channel
        or stats is None
    ):
        return None
    if not stats.mismatches or backend_quant.has_same_scale(reference_quant):
        return None
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.NOTE,
        node=evidence.name,
        sentence=f"scale {backend_quant.scale[0]:.3g}, the reference's is {reference_quant.scale[0]:.3g}",
        amount=float(backend_quant.scale[0]),
        limit=float(reference_quant.scale[0]),
        unit="per code",
        evidence=evidence.entry.tensor,
    )


def different_codes_on_equal_inputs(evidence: Evidence) -> Finding | None:
    """Report that two quantized runs give different codes for equal inputs, and which arithmetic each uses."""
    pair, quant, stats = evidence.arithmetics, evidence.entry.quant, evidence.stats
    if pair is None or pair.same or quant is None or stats is None or not evidence.has_equal_inputs:
        return None
    largest_difference = stats.max_lsb or 0.0
    codes = "1 code" if largest_difference == 1 else f"{largest_difference:g} codes"
    backend_text = "an unknown arithmetic" if pair.backend is None else pair.backend
    arithmetics_text = f"the reference uses {pair.reference}, the backend {backend_text}"
    sentence = f"{describe_mismatches(stats)} on equal inputs, by up to {codes}; {arithmetics_text}"
    return Finding(
        kind=FindingKind.ARITHMETIC,
        role=FindingRole.NOTE,
        node=evidence.name,
        sentence=sentence,
        amount=largest_difference,
        limit=0.0,
        unit="LSB",
    )
