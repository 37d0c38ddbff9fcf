"""Checks what the two graphs say of a node, and what stands behind its error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.attribute.segments import main_node
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.error import nonfinite
from qdebug.compare.checks.precision import float32_overflow
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.mistaken import mistake_inside, mistake_of
from qdebug.compare.graph_checks.casts import changed_by_cast
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import NotRecordedError
from qdebug.model import Node, operators
from qdebug.plural import agreeing
from qdebug.replay.real_form import real_form

__all__ = [
    "born",
    "cast_otherwise",
    "difference",
    "disturbed",
    "harmless",
    "lossy_cast",
    "mistaken",
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
    """Find what the graphs say differently of the node: its weight, bias, attributes, operator, scales, operands."""
    found = context.difference[0]
    return found if found is None else _mistaken_inside(context, found) or found


def _mistaken_inside(context: NodeContext, found: Finding) -> Finding | None:
    """Find the known mistake inside a layer that gives all its values, where other operators seem to compute them."""
    entry, node, runs = context.entry, context.node, context.runs
    if node is None or entry.quant is not None or found.kind is not FindingKind.OPERATOR:
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    likely = mistake_inside(WithFused(runs.backend), node, entry.tensor, places)
    return None if likely is None else replace(found, kind=FindingKind.ARITHMETIC, sentence=likely)


def lossy_cast(context: NodeContext) -> Finding | None:
    """Find a cast to integers that changes numbers which the reference's does not: out of range, or no whole numbers.

    A cast that the reference has as well, to the same type, only says that its input is off.
    """
    node, stats, entry = context.node, context.stats, context.entry
    if node is None or stats is None or not stats.mismatches or entry.quant is not None or context.graph is None:
        return None
    if not operators.of(node.op).casts:
        return None
    runs, main = context.runs, main_node(node, context.graph.segment)
    own = changed_by_cast(runs.backend, node)
    if own is None or not own.count:
        return None
    theirs = None if main is None else changed_by_cast(runs.reference, main)
    if theirs is not None and (own.count <= theirs.count or own.dtype == theirs.dtype):
        return None
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.DIFFERENCE if context.difference[0] is None else FindingRole.NOTE,
        node=context.name,
        sentence=f"its {own.sentence}",
        amount=float(own.count),
        limit=float(0 if theirs is None else theirs.count),
        unit="elements",
        evidence=own.dtype,
    )


def unholdable(context: NodeContext) -> Finding | None:
    """Find a constant that its format cannot hold: the cause where a node goes wrong, else worth saying."""
    found = context.unholdable
    if found is None:
        return None
    failed = nonfinite(context) is not None or context.comparison.nonfinite or context.diverges
    return replace(found, role=FindingRole.CAUSE if failed else FindingRole.NOTE)


def read_otherwise(context: NodeContext) -> Finding | None:
    """Find why an error is beyond its limit: codes read by other numbers than they were written with, or rounding."""
    return context.cause if context.diverges else None


def cast_otherwise(context: NodeContext) -> Finding | None:
    """Find that the two runs cast numbers that an integer type does not hold in two known ways."""
    node, entry, runs, stats = context.node, context.entry, context.runs, context.stats
    theirs = runs.reference.graph.producer(entry.reference_tensor)
    if node is None or theirs is None or stats is None or not stats.mismatches:
        return None
    if not (operators.of(node.op).casts and operators.of(theirs.op).casts):
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    ours = mistake_of(runs.backend, node, entry.tensor, places)
    other = mistake_of(runs.reference, theirs, entry.reference_tensor, places)
    if ours is None or other is None or ours == other:
        return None
    said = f"{ours}, and in the reference {other}: that reproduces every element, and no standard says what is right"
    return Finding(kind=FindingKind.PRECISION, role=FindingRole.DIFFERENCE, node=context.name, sentence=said)


def mistaken(context: NodeContext) -> Finding | None:
    """Find the known mistake of a kernel that gives all values of a node that diverges for no other known reason."""
    entry, node, runs = context.entry, context.node, context.runs
    if node is None or entry.quant is not None or not context.diverges or context.cause is not None:
        return None
    places = [*recorded_places(runs.reference, runs.backend, entry)]
    likely = mistake_of(runs.backend, node, entry.tensor, places)
    if likely is None:
        return None
    said = f"{likely}: that reproduces every element"
    return Finding(kind=FindingKind.ARITHMETIC, role=FindingRole.CAUSE, node=node.name, sentence=said)


def otherwise_said(context: NodeContext) -> Finding | None:
    """Say that the reference's nodes account for the values, and the operator that was recorded does not."""
    if not context.by_reference:
        return None
    said = "the recorded operator does not reproduce this tensor; the reference's does"
    return Finding(kind=FindingKind.OPERATOR, role=FindingRole.NOTE, node=context.name, sentence=said)


def born(context: NodeContext) -> Finding | None:
    """Find where a NaN or an infinity that no input accounts for is born, and by which rule."""
    found = context.birth
    if found is None:
        return None
    where = "" if found.tensor == context.entry.tensor else f"in {found.op} {found.node!r}, which has no partner, "
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE if context.harmless else FindingRole.CAUSE,
        node=found.node,
        sentence=where + found.sentence,
        amount=found.exact,
        limit=found.largest,
        evidence=found.operands[0].tensor if found.operands else None,
    )


def harmless(context: NodeContext) -> Finding | None:
    """Say that values are not finite on one side alone, and change nothing that is made of them."""
    stats = context.stats
    if stats is None or not stats.nonfinite or not context.harmless:
        return None
    many = stats.nonfinite
    said = f"{many} of {stats.count} elements {agreeing(many, 'is')} NaN or infinite on one side only"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.NOTE,
        node=context.name,
        sentence=f"{said}, and nothing that is made of them changes",
        amount=float(many),
        limit=0.0,
        unit="elements",
    )


def zero_divisor(context: NodeContext) -> Finding | None:
    """Find a divisor with more zeros than the reference's, where values are not finite: rounding has made it 0."""
    if context.node is None or (nonfinite(context) is None and not context.comparison.nonfinite):
        return None
    name, theirs = _divisors(context, context.node)
    if not name or not theirs:
        return None
    runs, zeros, total = context.runs, [0, 0], 0
    for place in recorded_places(runs.reference, runs.backend, context.entry):
        try:
            ours, other = real_values(runs.backend, name, place), real_values(runs.reference, theirs, place)
        except NotRecordedError:
            continue
        zeros = [count + int(np.count_nonzero(side == 0)) for count, side in zip(zeros, (ours, other), strict=True)]
        total += ours.size
    if zeros[0] <= zeros[1]:
        return None
    said = "1 zero" if zeros[0] == 1 else f"{zeros[0]} zeros"
    return Finding(
        kind=FindingKind.NONFINITE,
        role=FindingRole.CAUSE,
        node=context.name,
        sentence=f"its divisor {name!r} has {said} in {total} elements, the reference's has {zeros[1]}",
        amount=float(zeros[0]),
        limit=float(zeros[1]),
        unit="elements",
        evidence=name,
    )


def _divisors(context: NodeContext, node: Node) -> tuple[str, str]:
    """Return what a node divides by and its partner in the reference; empty where there is none or it has none."""
    slot = operators.plain(node).divisor
    form, _ = real_form(node, context.runs.backend.graph.opset)
    if slot is None or slot >= len(form.inputs):
        return "", ""
    name, ours = form.inputs[slot], context.runs.graphs.replays.be
    pair = next((context.runs.pairs[each] for each in (name, *ours.members(name)) if each in context.runs.pairs), None)
    if pair is not None:
        return name if context.runs.backend.has(name) else pair.backend, pair.reference
    main = None if context.segment is None else main_node(node, context.segment)
    theirs = () if main is None else real_form(main, context.runs.reference.graph.opset)[0].inputs
    return name, theirs[slot] if slot < len(theirs) and ours.folds(name) else ""


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


def out_of_range(context: NodeContext) -> Finding | None:
    """Find results that the range of their format has made infinite, the largest number, or zero."""
    found = None if context.attribution is None else context.attribution.outside
    said = None if found is None else found.sentence
    if found is None or said is None:
        return None
    fails = context.diverges or (nonfinite(context) is not None and context.birth is None)
    return Finding(
        kind=FindingKind.PRECISION,
        role=FindingRole.CAUSE if fails else FindingRole.NOTE,
        node=context.name,
        sentence=said,
        amount=float(sum(lost.count for lost in found.lost.values())),
        limit=0.0,
        unit="elements",
        evidence=found.short.name,
    )


def placement(context: NodeContext) -> Finding | None:
    """Find a node that ran elsewhere than the run was asked for."""
    asked = context.runs.backend.info.options.get("asked_for")
    ran = "" if context.node is None else context.node.placement.partition(": ")[0]
    if not ran or not isinstance(asked, str) or ran == asked:
        return None
    said = f"it ran on {ran}, asked for was {asked}"
    return Finding(kind=FindingKind.PLACEMENT, role=FindingRole.NOTE, node=context.name, sentence=said, evidence=ran)


def disturbed(context: NodeContext) -> Finding | None:
    """Find a tensor that recording changed, in either run: its error is not its node's."""
    entry, runs = context.entry, context.runs
    sides = (runs.backend.info, entry.tensor), (runs.reference.info, entry.reference_tensor)
    reason = next((info.disturbed[tensor] for info, tensor in sides if tensor in info.disturbed), None)
    if reason is None:
        return None
    said = f"disturbed: {reason}"
    return Finding(kind=FindingKind.DISTURBED, role=FindingRole.EXCUSE, node=context.name, sentence=said)


def precision(context: NodeContext) -> Finding | None:
    """Find a format of few digits that the values were rounded to in this run alone."""
    name = context.short_format
    if name is None:
        return None
    said = f"all its values are exactly representable in {name}; the reference's are not"
    role = FindingRole.CAUSE if context.diverges else FindingRole.NOTE
    return Finding(kind=FindingKind.PRECISION, role=role, node=context.name, sentence=said, evidence=name)
