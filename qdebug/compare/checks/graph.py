"""Checks graph differences at a node, and causes of its error."""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.checks.error import nonfinite
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model import Graph, operators
from qdebug.model.dtypes import is_float
from qdebug.plural import agreeing, plural

__all__ = [
    "difference",
    "different_cast_rules",
    "disturbed_tensor",
    "float_weights",
    "harmless_nonfinite",
    "irreproducible_operator",
    "kernel_mistake",
    "known_cause",
    "lossy_cast",
    "mistake_in_reference",
    "nonfinite_birth",
    "out_of_range",
    "overflow",
    "short_format",
    "unrepresentable_constant",
    "unrequested_device",
    "zero_divisor",
]


def difference(evidence: Evidence) -> Finding | None:
    """Find a graph difference at the node: weight, bias, attributes, operator, scales or operands."""
    finding = evidence.difference[0]
    if finding is None:
        return None
    if evidence.has_compensating_bias:
        sentence = f"{finding.sentence}; it compensates for the mean error that the other constants cause"
        return replace(finding, role=FindingRole.NOTE, sentence=sentence)
    # A known mistake inside a fused layer may explain an apparent difference of operators.
    is_of_node = evidence.node is not None and finding.kind in (FindingKind.OPERATOR, FindingKind.ARITHMETIC)
    mistake = evidence.mistake_inside_layer if is_of_node else None
    return finding if mistake is None else replace(finding, kind=FindingKind.ARITHMETIC, sentence=mistake)


def lossy_cast(evidence: Evidence) -> Finding | None:
    """Find a cast to integers that changes fractions, or numbers out of range, that the reference's cast preserves.

    If the reference casts to the same type, only the input of the cast is wrong.
    """
    stats = evidence.stats
    is_real = stats is not None and bool(stats.mismatches) and evidence.entry.quant is None
    changes = evidence.changes_by_casts if is_real else None
    if changes is None:
        return None
    own_changes, reference_changes = changes
    if reference_changes is not None and (
        own_changes.count <= reference_changes.count or own_changes.dtype == reference_changes.dtype
    ):
        return None
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.DIFFERENCE if evidence.difference[0] is None else FindingRole.NOTE,
        node=evidence.name,
        sentence=f"its {own_changes.sentence}",
        amount=float(own_changes.count),
        limit=float(0 if reference_changes is None else reference_changes.count),
        unit="elements",
        evidence=own_changes.dtype,
    )


def unrepresentable_constant(evidence: Evidence) -> Finding | None:
    """Find a constant that its format cannot represent: a cause if the node is wrong, otherwise a note."""
    finding = evidence.unrepresentable_constant
    if finding is None:
        return None
    failed = evidence.is_nonfinite or evidence.diverges
    return replace(finding, role=FindingRole.CAUSE if failed else FindingRole.NOTE)


def known_cause(evidence: Evidence) -> Finding | None:
    """Report a known cause of an error: codes read with a wrong scale or zero point, or rounded factors."""
    return evidence.cause if evidence.diverges else None


def different_cast_rules(evidence: Evidence) -> Finding | None:
    """Report that the two runs cast numbers outside an integer type's range in two known but different ways."""
    backend_mistake, reference_mistake = evidence.cast_mistakes
    if backend_mistake is None or reference_mistake is None or backend_mistake == reference_mistake:
        return None
    rules = f"in the backend, {backend_mistake}; in the reference, {reference_mistake}"
    sentence = f"{rules}. This reproduces every element. No standard defines the right result"
    return Finding(kind=FindingKind.PRECISION, role=FindingRole.DIFFERENCE, node=evidence.name, sentence=sentence)


def kernel_mistake(evidence: Evidence) -> Finding | None:
    """Find the known kernel mistake that reproduces a wrong node without another known cause."""
    node = evidence.node
    is_wrong = evidence.diverges or evidence.is_nonfinite
    if node is None or evidence.entry.quant is not None or not is_wrong or evidence.cause is not None:
        return None
    mistake = evidence.mistake
    if mistake is None:
        return None
    sentence = f"{mistake} (reproduces every element)"
    return Finding(kind=FindingKind.ARITHMETIC, role=FindingRole.CAUSE, node=node.name, sentence=sentence)


def mistake_in_reference(evidence: Evidence) -> Finding | None:
    """Find the mistake in the reference's node that reproduces the values of a run without a graph."""
    node, mistake = evidence.node, evidence.mistake_in_reference
    if node is None or mistake is None:
        return None
    op, cause = mistake
    sentence = f"{cause.sentence}, if the node computes what the reference specifies"
    if cause.sentence is None:
        sentence = f"the reference's {op}, computed from this run's tensors, has a different result"
    role = FindingRole.CAUSE if evidence.diverges else FindingRole.DIFFERENCE
    return Finding(kind=FindingKind.ARITHMETIC, role=role, node=node.name, sentence=sentence)


def irreproducible_operator(evidence: Evidence) -> Finding | None:
    """Report that the recorded operator does not reproduce the values but the reference's nodes do."""
    if not evidence.by_reference:
        return None
    sentence = "the recorded operator does not reproduce this tensor; the reference's does"
    return Finding(kind=FindingKind.OPERATOR, role=FindingRole.NOTE, node=evidence.name, sentence=sentence)


def nonfinite_birth(evidence: Evidence) -> Finding | None:
    """Find where a NaN or an infinity first appears without one in the inputs, and why."""
    birth = evidence.birth
    if birth is None:
        return None
    where = "" if birth.tensor == evidence.entry.tensor else f"in {birth.op} {birth.node!r}, which has no partner, "
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE if evidence.harmless else FindingRole.CAUSE,
        node=birth.node,
        sentence=where + birth.sentence,
        amount=birth.exact,
        limit=birth.largest,
        evidence=birth.operands[0].tensor if birth.operands else None,
    )


def harmless_nonfinite(evidence: Evidence) -> Finding | None:
    """Report values that are non-finite on one side only and change no other tensor."""
    stats = evidence.stats
    if stats is None or not stats.nonfinite or not evidence.harmless:
        return None
    count = stats.nonfinite
    sentence = f"{count} of {stats.count} elements {agreeing(count, 'is')} NaN or infinite in one run only"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=evidence.name,
        sentence=f"{sentence}; no tensor computed from them changes",
        amount=float(count),
        limit=0.0,
        unit="elements",
    )


def zero_divisor(evidence: Evidence) -> Finding | None:
    """Find a divisor rounded to 0: a non-finite result whose divisor has more zeros than the reference's."""
    zeros = evidence.divisor_zeros if evidence.is_nonfinite else None
    if zeros is None or zeros.count <= zeros.in_reference:
        return None
    zeros_text = f"{plural(zeros.count, 'zero')} in {zeros.total} elements"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.CAUSE,
        node=evidence.name,
        sentence=f"its divisor {zeros.tensor!r} has {zeros_text}; the reference's has {zeros.in_reference}",
        amount=float(zeros.count),
        limit=float(zeros.in_reference),
        unit="elements",
        evidence=zeros.tensor,
    )


def overflow(evidence: Evidence) -> Finding | None:
    """Find a code of either side whose value overflows float32, if there are non-finite values."""
    overflow = evidence.overflow if evidence.is_nonfinite else None
    if overflow is None:
        return None
    tensor, clause = overflow
    return Finding(kind=FindingKind.SCALE, role=FindingRole.CAUSE, node=evidence.name, sentence=clause, evidence=tensor)


def out_of_range(evidence: Evidence) -> Finding | None:
    """Find results that became infinity, the largest number or zero because their format has too small a range."""
    outside = None if evidence.attribution is None else evidence.attribution.outside
    clause = None if outside is None else outside.sentence
    if outside is None or clause is None:
        return None
    fails = evidence.diverges or (nonfinite(evidence) is not None and evidence.birth is None)
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.CAUSE if fails else FindingRole.NOTE,
        node=evidence.name,
        sentence=clause,
        amount=float(sum(lost.count for lost in outside.lost.values())),
        limit=0.0,
        unit="elements",
        evidence=outside.short.name,
    )


def unrequested_device(evidence: Evidence) -> Finding | None:
    """Find a node that ran on a different device than requested."""
    asked_for = evidence.info.options.get("asked_for")
    ran = "" if evidence.node is None else evidence.node.placement.partition(": ")[0]
    if not ran or not isinstance(asked_for, str) or ran == asked_for:
        return None
    sentence = f"it ran on {ran}, although {asked_for} was requested"
    return Finding(
        kind=FindingKind.PLACEMENT, role=FindingRole.NOTE, node=evidence.name, sentence=sentence, evidence=ran
    )


def disturbed_tensor(evidence: Evidence) -> Finding | None:
    """Find a tensor that recording changed, in either run. Its error is not its node's fault."""
    entry = evidence.entry
    sides = (evidence.info, entry.tensor), (evidence.reference_info, entry.reference_tensor)
    reason = next((info.disturbed[tensor] for info, tensor in sides if tensor in info.disturbed), None)
    if reason is None:
        return None
    sentence = f"disturbed: {reason}"
    return Finding(kind=FindingKind.DISTURBED, role=FindingRole.EXCUSE, node=evidence.name, sentence=sentence)


def float_weights(evidence: Evidence) -> Finding | None:
    """Find a node that reads quantized data but float weights: its weights were left out of quantization."""
    form, graph = evidence.form, evidence.graph
    if form is None:
        return None
    data, weight = (operators.titled_input(form, slot) for slot in (0, 1))
    if operators.output_axis(form) is None or not graph.is_constant(weight) or graph.is_constant(data):
        return None
    dtype = graph.tensors[weight].dtype
    if dtype is None or not is_float(dtype) or _is_quantized(graph, weight) or not _is_quantized(graph, data):
        return None
    sentence = f"its data is quantized but its weight {weight!r} is {dtype}, so the node computes in float"
    return Finding(
        kind=FindingKind.WEIGHT, role=FindingRole.NOTE, node=evidence.name, sentence=sentence, evidence=weight
    )


def _is_quantized(graph: Graph, name: str) -> bool:
    """Return whether a tensor holds codes, or dequantized values that were only moved."""
    while name in graph.tensors and graph.tensors[name].quant is None:
        producer = graph.producer(name)
        if producer is None:
            return False
        row = operators.of(producer.op)
        if row.dequantizes or row.fake_quantizes:
            return True
        if row.moves is None and not row.selects:
            return False
        name = next(iter(producer.inputs), "")
    return name in graph.tensors


def short_format(evidence: Evidence) -> Finding | None:
    """Find a short float format that the values were rounded to in this run only."""
    name = evidence.short_format
    if name is None:
        return None
    sentence = f"all its values are exactly representable in {name}; the reference's are not"
    is_cause = evidence.diverges and not evidence.exceeds_rounding
    role = FindingRole.CAUSE if is_cause else FindingRole.NOTE
    return Finding(kind=FindingKind.PRECISION, role=role, node=evidence.name, sentence=sentence, evidence=name)
