"""Checks graph differences at a node, and causes of its error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.compare.align.expand import says_nothing
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.attribute.segments import main_node
from qdebug.compare.checks.bias_correction import compensates
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.error import nonfinite
from qdebug.compare.checks.precision import float32_overflow
from qdebug.compare.explaining.claims import EVERY
from qdebug.compare.explaining.code_cause import CodeCause, cause_of_codes
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.layer_cause import cause_inside, is_far_off
from qdebug.compare.explaining.mistaken import mistake_of
from qdebug.compare.graph_checks.casts import changed_by_cast
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import NotRecordedError
from qdebug.model import Graph, Node, operators
from qdebug.model.dtypes import is_float
from qdebug.plural import agreeing
from qdebug.replay.real_form import real_form

__all__ = [
    "born",
    "cast_otherwise",
    "difference",
    "disturbed",
    "float_weights",
    "harmless",
    "lossy_cast",
    "mistaken",
    "mistaken_as_in_reference",
    "otherwise_said",
    "out_of_range",
    "overflow",
    "placement",
    "precision",
    "read_otherwise",
    "unholdable",
    "zero_divisor",
]


def difference(context: NodeContext) -> Finding | None:
    """Find a graph difference at the node: weight, bias, attributes, operator, scales or operands."""
    finding = context.difference[0]
    if finding is None:
        return None
    if finding.kind is FindingKind.BIAS and compensates(context, finding.evidence):
        sentence = f"{finding.sentence}; it compensates the mean error that the other constants cause"
        return replace(finding, role=FindingRole.NOTE, sentence=sentence)
    return _mistake_inside_layer(context, finding) or finding


def _mistake_inside_layer(context: NodeContext, difference: Finding) -> Finding | None:
    """Find the known mistake inside a fused layer that explains an apparent difference of operators."""
    entry, node, runs = context.entry, context.node, context.runs
    if node is None or difference.kind not in (FindingKind.OPERATOR, FindingKind.ARITHMETIC):
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    mistake = cause_inside(WithFused(runs.backend), node, entry.tensor, places)
    return None if mistake is None else replace(difference, kind=FindingKind.ARITHMETIC, sentence=mistake)


def lossy_cast(context: NodeContext) -> Finding | None:
    """Find a cast to integers that changes numbers which the reference's cast preserves: out of range, or not whole.

    If the reference has the same cast, only the cast's input is wrong.
    """
    node, stats, entry = context.node, context.stats, context.entry
    if node is None or stats is None or not stats.mismatches or entry.quant is not None or context.graph is None:
        return None
    if not operators.of(node.op).casts:
        return None
    runs, main = context.runs, main_node(node, context.graph.segment)
    own_changes = changed_by_cast(runs.backend, node)
    if own_changes is None or not own_changes.count:
        return None
    reference_changes = None if main is None else changed_by_cast(runs.reference, main)
    if reference_changes is not None and (
        own_changes.count <= reference_changes.count or own_changes.dtype == reference_changes.dtype
    ):
        return None
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.DIFFERENCE if context.difference[0] is None else FindingRole.NOTE,
        node=context.name,
        sentence=f"its {own_changes.sentence}",
        amount=float(own_changes.count),
        limit=float(0 if reference_changes is None else reference_changes.count),
        unit="elements",
        evidence=own_changes.dtype,
    )


def unholdable(context: NodeContext) -> Finding | None:
    """Find a constant that its format cannot represent: the cause if a node is wrong, a remark if not."""
    finding = context.unholdable
    if finding is None:
        return None
    failed = nonfinite(context) is not None or context.comparison.nonfinite or context.diverges
    return replace(finding, role=FindingRole.CAUSE if failed else FindingRole.NOTE)


def read_otherwise(context: NodeContext) -> Finding | None:
    """Find why an error exceeds its limit: codes read with parameters other than their own, or rounded factors."""
    return context.cause if context.diverges else None


def cast_otherwise(context: NodeContext) -> Finding | None:
    """Find that the two runs cast numbers outside an integer type's range in two known but different ways."""
    node, entry, runs, stats = context.node, context.entry, context.runs, context.stats
    reference_node = runs.reference.graph.producer(entry.reference_tensor)
    if node is None or reference_node is None or stats is None or not stats.mismatches:
        return None
    if not (operators.of(node.op).casts and operators.of(reference_node.op).casts):
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    backend_mistake = mistake_of(runs.backend, node, entry.tensor, places, or_right=True)
    reference_mistake = mistake_of(runs.reference, reference_node, entry.reference_tensor, places, or_right=True)
    if backend_mistake is None or reference_mistake is None or backend_mistake == reference_mistake:
        return None
    found = f"in the backend, {backend_mistake}; in the reference, {reference_mistake}"
    sentence = f"{found}. This reproduces every element. No standard defines the right result"
    return Finding(kind=FindingKind.PRECISION, role=FindingRole.DIFFERENCE, node=context.name, sentence=sentence)


def mistaken(context: NodeContext) -> Finding | None:
    """Find the known kernel mistake that reproduces a diverging node without another known cause."""
    entry, node, runs = context.entry, context.node, context.runs
    if node is None or entry.quant is not None or not context.diverges or context.cause is not None:
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    likely = mistake_of(runs.backend, node, entry.tensor, places)
    if likely is None:
        return None
    sentence = f"{likely} (reproduces every element)"
    return Finding(kind=FindingKind.ARITHMETIC, role=FindingRole.CAUSE, node=node.name, sentence=sentence)


def mistaken_as_in_reference(context: NodeContext) -> Finding | None:
    """Find the mistake in the reference's node that gives the values of a run that states no graph.

    Such a run may compute another graph, or with other weights or fewer digits. So its values must be beyond their
    limit, or a mistake must give each of them from the inputs that the reference reads as well.
    """
    entry, node, runs = context.entry, context.node, context.runs
    if node is None or not says_nothing(node) or context.stats is None or not context.stats.mismatches:
        return None
    run = runs.on_reference_graph
    reference_node = run.graph.producer(entry.tensor)
    if reference_node is None or not (context.diverges or _reads_equal_values(context, reference_node)):
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    known = mistake_of(run, reference_node, entry.tensor, places, roundings=context.diverges)
    if known is not None:
        found = CodeCause(sentence=f"{known} ({EVERY})", explains_all=True)
    elif is_far_off(run, reference_node, entry.tensor, places):
        found = cause_of_codes(run, entry.tensor, roundings=context.diverges)
    else:
        return None
    if not context.diverges and not found.explains_all:
        return None
    sentence = f"{found.sentence}, if the node computes what the reference states"
    if found.sentence is None:
        sentence = f"the reference's {reference_node.op}, computed from this run's tensors, gives other values"
    role = FindingRole.CAUSE if context.diverges else FindingRole.DIFFERENCE
    return Finding(kind=FindingKind.ARITHMETIC, role=role, node=node.name, sentence=sentence)


def _reads_equal_values(context: NodeContext, reference_node: Node) -> bool:
    """Return whether all recorded tensors from which a node's output follows are equal in both runs."""
    runs = context.runs
    layers, names = WithFused(runs.on_reference_graph), [name for name in reference_node.inputs if name]
    chains = {name: layers.chain(name) for name in names}
    reads = {read for name, chain in chains.items() for read in ((name,) if chain is None else chain.reads)}
    errors = [runs.error_of(name) for name in reads if not layers.graph.is_constant(name)]
    stats = [None if comparison is None else comparison.stats for comparison in errors]
    return bool(stats) and all(each is not None and not each.mismatches for each in stats)


def otherwise_said(context: NodeContext) -> Finding | None:
    """Report that the reference's nodes reproduce the values but the recorded operator does not."""
    if not context.by_reference:
        return None
    sentence = "the recorded operator does not reproduce this tensor; the reference's does"
    return Finding(kind=FindingKind.OPERATOR, role=FindingRole.NOTE, node=context.name, sentence=sentence)


def born(context: NodeContext) -> Finding | None:
    """Find where a NaN or an infinity first appears without one in the inputs, and by which rule."""
    birth = context.birth
    if birth is None:
        return None
    where = "" if birth.tensor == context.entry.tensor else f"in {birth.op} {birth.node!r}, which has no partner, "
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE if context.harmless else FindingRole.CAUSE,
        node=birth.node,
        sentence=where + birth.sentence,
        amount=birth.exact,
        limit=birth.largest,
        evidence=birth.operands[0].tensor if birth.operands else None,
    )


def harmless(context: NodeContext) -> Finding | None:
    """Report values that are non-finite on one side only and change no other tensor."""
    stats = context.stats
    if stats is None or not stats.nonfinite or not context.harmless:
        return None
    count = stats.nonfinite
    sentence = f"{count} of {stats.count} elements {agreeing(count, 'is')} NaN or infinite in one run only"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"{sentence}; no tensor computed from them changes",
        amount=float(count),
        limit=0.0,
        unit="elements",
    )


def zero_divisor(context: NodeContext) -> Finding | None:
    """Find a divisor with more zeros than the reference's next to non-finite values: rounding has made it 0."""
    if context.node is None or (nonfinite(context) is None and not context.comparison.nonfinite):
        return None
    name, reference_name = _divisors(context, context.node)
    if not name or not reference_name:
        return None
    runs, zeros, total = context.runs, [0, 0], 0
    for place in recorded_places(runs.reference, runs.backend, context.entry):
        try:
            backend_values, reference_values = (
                real_values(runs.backend, name, place),
                real_values(runs.reference, reference_name, place),
            )
        except NotRecordedError:
            continue
        zeros = [
            count + int(np.count_nonzero(side == 0))
            for count, side in zip(zeros, (backend_values, reference_values), strict=True)
        ]
        total += backend_values.size
    if zeros[0] <= zeros[1]:
        return None
    zeros_text = "1 zero" if zeros[0] == 1 else f"{zeros[0]} zeros"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.CAUSE,
        node=context.name,
        sentence=f"its divisor {name!r} has {zeros_text} in {total} elements; the reference's has {zeros[1]}",
        amount=float(zeros[0]),
        limit=float(zeros[1]),
        unit="elements",
        evidence=name,
    )


def _divisors(context: NodeContext, node: Node) -> tuple[str, str]:
    """Return a node's divisor and its reference partner, or empty names if there is none."""
    slot = operators.plain(node).divisor
    form, _ = real_form(node, context.runs.backend.graph.opset)
    if slot is None or slot >= len(form.inputs):
        return "", ""
    name, backend = form.inputs[slot], context.runs.graphs.replays.be
    pair = next(
        (context.runs.pairs[member] for member in (name, *backend.members(name)) if member in context.runs.pairs), None
    )
    if pair is not None:
        return name if context.runs.backend.has(name) else pair.backend, pair.reference
    main = None if context.segment is None else main_node(node, context.segment)
    reference_inputs = () if main is None else real_form(main, context.runs.reference.graph.opset)[0].inputs
    return name, reference_inputs[slot] if slot < len(reference_inputs) and backend.folds(name) else ""


def overflow(context: NodeContext) -> Finding | None:
    """Find a code of either side whose value overflows float32, if there are non-finite values."""
    if nonfinite(context) is None and not context.comparison.nonfinite:
        return None
    runs, entry = context.runs, context.entry
    sample = 0 if context.stats is None else context.stats.worst_sample or 0
    for recording, tensor, side in (
        (runs.backend, entry.tensor, ""),
        (runs.reference, entry.reference_tensor, "in the reference, "),
    ):
        clause = float32_overflow(recording, recording.graph.producer(tensor), tensor, sample)
        if clause is not None:
            return Finding(
                kind=FindingKind.SCALE, role=FindingRole.CAUSE, node=entry.node, sentence=side + clause, evidence=tensor
            )
    return None


def out_of_range(context: NodeContext) -> Finding | None:
    """Find results that the range of their format has turned into infinity, the largest number, or zero."""
    outside = None if context.attribution is None else context.attribution.outside
    clause = None if outside is None else outside.sentence
    if outside is None or clause is None:
        return None
    fails = context.diverges or (nonfinite(context) is not None and context.birth is None)
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.CAUSE if fails else FindingRole.NOTE,
        node=context.name,
        sentence=clause,
        amount=float(sum(lost.count for lost in outside.lost.values())),
        limit=0.0,
        unit="elements",
        evidence=outside.short.name,
    )


def placement(context: NodeContext) -> Finding | None:
    """Find a node that ran on a different device than requested."""
    asked_for = context.runs.backend.info.options.get("asked_for")
    ran = "" if context.node is None else context.node.placement.partition(": ")[0]
    if not ran or not isinstance(asked_for, str) or ran == asked_for:
        return None
    sentence = f"it ran on {ran}, although {asked_for} was requested"
    return Finding(
        kind=FindingKind.PLACEMENT, role=FindingRole.NOTE, node=context.name, sentence=sentence, evidence=ran
    )


def disturbed(context: NodeContext) -> Finding | None:
    """Find a tensor that recording changed, in either run. Its error is not its node's fault."""
    entry, runs = context.entry, context.runs
    sides = (runs.backend.info, entry.tensor), (runs.reference.info, entry.reference_tensor)
    reason = next((info.disturbed[tensor] for info, tensor in sides if tensor in info.disturbed), None)
    if reason is None:
        return None
    sentence = f"disturbed: {reason}"
    return Finding(kind=FindingKind.DISTURBED, role=FindingRole.EXCUSE, node=context.name, sentence=sentence)


def float_weights(context: NodeContext) -> Finding | None:
    """Find a node that reads quantized data but float weights: its weights were left out of quantization."""
    node, graph = context.node, context.runs.backend.graph
    if node is None:
        return None
    form, _ = real_form(node, graph.opset)
    data, weight = (operators.titled_input(form, place) for place in (0, 1))
    if operators.output_axis(form) is None or not graph.is_constant(weight) or graph.is_constant(data):
        return None
    dtype = graph.tensors[weight].dtype
    if dtype is None or not is_float(dtype) or _is_quantized(graph, weight) or not _is_quantized(graph, data):
        return None
    sentence = f"its data is quantized but its weight {weight!r} is {dtype}, so the node computes in float"
    return Finding(
        kind=FindingKind.WEIGHT, role=FindingRole.NOTE, node=context.name, sentence=sentence, evidence=weight
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


def precision(context: NodeContext) -> Finding | None:
    """Find a short float format that the values were rounded to in this run only."""
    name = context.short_format
    if name is None:
        return None
    sentence = f"all its values are exactly representable in {name}; the reference's are not"
    is_cause = context.diverges and not context.exceeds_rounding
    role = FindingRole.CAUSE if is_cause else FindingRole.NOTE
    return Finding(kind=FindingKind.PRECISION, role=role, node=context.name, sentence=sentence, evidence=name)
