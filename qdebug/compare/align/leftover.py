"""Explains why tensors have no partner, and whether the comparison loses anything by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from qdebug.compare.align.bare_run import is_bare
from qdebug.compare.align.context import Context, add_partner
from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair, Side, Unmatched, UnmatchedKind
from qdebug.compare.align.region import between, why_unchecked
from qdebug.model import Recording, operators
from qdebug.model.recording import Outline, RunInfo, SkipCause
from qdebug.model.thresholds.alignment import NEAREST_ASKED_MAX

__all__ = ["as_unchecked", "list_unmatched"]


class _CoveredTensor(NamedTuple):
    """A tensor inside a region whose result is compared: why it is covered, by which result, and with what doubt."""

    reason: str
    result: str
    unchecked: bool


CoveredTensors = Mapping[str, _CoveredTensor]
"""Tensors inside a region that a compared result covers, by name."""


@dataclass(kw_only=True)
class _SideFacts:
    """Facts about the tensors of one side.

    Args:
        side: The side.
        run: Its run.
        paired: Its compared tensors.
        omitted: Its tensors whose partner the other side omits on purpose, with the reason.
        unpartnered: Its tensors whose partner was not recorded on the other side.
        inside: Its tensors inside a region that a compared result covers.
        missing: Tensors of the other side's graph without values in its recording.
        notes: Why a tensor has no partner, if the search noted it.
        never: Tensors that the other side never computes, with the reason.
        other: Facts of the other side's run.
        dumped_bare: Whether the other side is a dump of selected tensors without a graph.
        twins: For each unpaired tensor, the compared tensors that may hold the same values; for the reference only.
    """

    side: Side
    run: IndexedRecording
    paired: set[str]
    omitted: Mapping[str, str]
    unpartnered: set[str]
    inside: CoveredTensors
    missing: set[str]
    notes: Mapping[str, str]
    never: Mapping[str, str]
    other: RunInfo
    dumped_bare: bool
    twins: Sequence[str]

    @cached_property
    def outlines(self) -> Mapping[Outline, str]:
        """The first compared tensor with each outline (dtype, shape and hash)."""
        entries = [(self.run.recording.outline(name), name) for name in self.run.recording.names if name in self.paired]
        return {outline: name for outline, name in reversed(entries) if outline is not None}

    @cached_property
    def roots(self) -> Mapping[str, str]:
        """The first compared tensor of each class, by the root of the class."""
        return {self.run.root(tensor): tensor for tensor in reversed(self.twins)}

    @cached_property
    def same_computations(self) -> Mapping[int, str]:
        """The first compared tensor of each computation, by value number."""
        return {self.run.number(tensor): tensor for tensor in reversed(self.twins)}


def list_unmatched(context: Context, pairs: Sequence[Pair]) -> tuple[Unmatched, ...]:
    """List every tensor of two recordings that is not in any pair.

    Args:
        context: The final state of the alignment.
        pairs: The pairs that are compared.
    """
    side_facts = [
        _side_facts(context, pairs, side, inside)
        for side, inside in zip(Side, _find_rewritten_regions(context, pairs), strict=True)
    ]
    unmatched_tensors = [
        _explain_unmatched(facts, name)
        for facts in side_facts
        for name in facts.run.recording.names
        if name not in facts.paired
    ]
    unmatched_tensors = [
        replace(entry, kind=UnmatchedKind.BENIGN, reason="the map leaves it unmatched")
        if entry.side is Side.BACKEND and entry.tensor in context.given.alone
        else entry
        for entry in unmatched_tensors
    ]
    return (
        *_add_nearest(context, unmatched_tensors),
        *(entry for facts in side_facts for entry in _unrecorded_tensors(facts)),
    )


def _add_nearest(context: Context, unmatched_tensors: Sequence[Unmatched]) -> Iterator[Unmatched]:
    """Add the nearest tensor of the other side to each lost tensor."""
    lost_tensors = [entry for entry in unmatched_tensors if entry.kind is UnmatchedKind.LOST][:NEAREST_ASKED_MAX]
    for entry in unmatched_tensors:
        nearest = _find_nearest(context, entry) if entry in lost_tensors else None
        yield entry if nearest is None else replace(entry, nearest=nearest[0], distance=nearest[1])


def _find_nearest(context: Context, entry: Unmatched) -> tuple[str, float] | None:
    run, other_run = context.run(entry.side), context.run(entry.side.other)
    if not run.has(entry.tensor):
        return None
    size = run.size(entry.tensor)
    names = [name for name in other_run.recording.names if name in other_run.recorded and other_run.has(name)]
    names = [name for name in names if other_run.size(name) == size and not other_run.depends_on_shapes(name)]
    partners = {pair.of(entry.side.other) for pair in context.pair_map.values()}
    names = [name for name in names if name not in partners] or names
    candidates = [entry.tensor]
    sides = (names, candidates) if entry.side is Side.BACKEND else (candidates, names)
    distances = context.sampler.distance_table(*sides).reshape(-1)
    at = int(np.argmin(distances)) if distances.size else 0
    return (names[at], float(distances[at])) if distances.size and np.isfinite(distances[at]) else None


def _side_facts(context: Context, pairs: Sequence[Pair], side: Side, inside: CoveredTensors) -> _SideFacts:
    run, other_recording, is_backend = context.run(side), context.run(side.other).recording, side is Side.BACKEND
    valueless_tensors = (
        other_recording.graph.tensors.keys() - other_recording.names - other_recording.info.never_made().keys()
    )
    tensors = run.recording.graph.tensors
    return _SideFacts(
        side=side,
        run=run,
        paired={pair.of(side) for pair in pairs},
        omitted={
            p.of(side): other_recording.info.skipped.get(p.of(side.other), _NOT_DUMPED)
            for p in context.pair_map.values()
            if p.of(side.other) in valueless_tensors and other_recording.info.not_dumped(p.of(side.other))
        },
        unpartnered={
            p.of(side)
            for p in context.pair_map.values()
            if p.of(side.other) in valueless_tensors and p.of(side) in tensors
        },
        inside=inside,
        missing=valueless_tensors,
        notes=context.notes if is_backend else {},
        never=_uncomputed_tensors(other_recording.info),
        other=other_recording.info,
        dumped_bare=_is_bare_dump(other_recording, {pair.of(side.other) for pair in pairs}),
        twins=() if is_backend else [pair.reference for pair in pairs],
    )


def _is_bare_dump(recording: Recording, paired: AbstractSet[str]) -> bool:
    """Return whether a run without a graph is a dump of selected tensors, so that missing tensors were not lost.

    If some of its own tensors have no partner, it may instead be a harness that records only names, and other names.
    """
    is_selection = not recording.info.skipped and paired >= set(recording.names)
    return is_bare(recording) and (recording.info.taps == "import" or is_selection)


def _explain_unmatched(facts: _SideFacts, tensor: str) -> Unmatched:
    """Return why a recorded tensor has no partner."""
    run, region = facts.run, facts.inside.get(tensor)
    graph = run.recording.graph

    def entry(kind: UnmatchedKind, reason: str) -> Unmatched:
        return Unmatched(side=facts.side, tensor=tensor, kind=kind, reason=reason)

    if run.folds(tensor) and graph.is_constant(tensor):
        return replace(entry(UnmatchedKind.BENIGN, "constant"), constant=True)
    if run.folds(tensor):
        return replace(entry(UnmatchedKind.BENIGN, "computed from constants only"), of_constants=True)
    node = graph.producer(tensor)
    outline = run.recording.outline(tensor) if node is not None and has_unknown_inputs(node) else None
    if outline is not None and outline in facts.outlines:  # a block's output repeats the last tensor inside the block
        return entry(UnmatchedKind.BENIGN, f"the same values as {facts.outlines[outline]!r}, which is compared")
    twin = facts.roots.get(run.root(tensor))
    if twin is not None:
        return entry(UnmatchedKind.BENIGN, f"equivalent to {twin!r}, which is compared")
    if tensor not in graph.outputs and (facts.dumped_bare or facts.other.not_dumped(tensor)):
        return entry(UnmatchedKind.BENIGN, _NOT_DUMPED)
    if tensor in facts.unpartnered:
        return entry(*_kind_without_partner_values(facts, tensor))
    if region is not None and tensor not in graph.outputs:
        unmatched = entry(UnmatchedKind.BENIGN, region.reason)
        return replace(unmatched, inside=region.result, unchecked=region.unchecked)
    double = facts.same_computations.get(run.number(tensor)) if facts.twins else None
    if double is not None:
        return entry(UnmatchedKind.BENIGN, f"the same computation as {double!r}, which is compared")
    harmless = _harmless_reason(tensor, run, facts.paired)
    if harmless:
        return entry(UnmatchedKind.BENIGN, harmless)
    if tensor in facts.never:
        return entry(UnmatchedKind.BENIGN, facts.never[tensor])
    return entry(UnmatchedKind.LOST, _lost_reason(facts, tensor))


def _lost_reason(facts: _SideFacts, tensor: str) -> str:
    """Return why the comparison cannot cover a tensor."""
    if tensor in facts.missing:
        return f"the {facts.side.other} recording has no values for it"
    return facts.notes.get(tensor, f"no tensor of the {facts.side.other} corresponds to it")


_NOT_DUMPED = "the dump has no values for it"


def as_unchecked(entry: Unmatched, why: str) -> Unmatched:
    """Return an entry marked as lying in an unchecked part of the network, with a remark in its reason.

    Args:
        entry: The entry.
        why: One clause.
    """
    if entry.unchecked:
        return entry
    return replace(entry, reason=_with_unchecked_remark(entry.reason, why), unchecked=True)


def _with_unchecked_remark(reason: str, why: str) -> str:
    return f"{reason}; whether both runs compute the same result there was not checked, because {why}"


def _harmless_reason(tensor: str, run: IndexedRecording, compared_tensors: set[str]) -> str:
    """Return why nothing is lost by leaving a tensor unpaired, or "" if something may be lost."""
    graph = run.graph
    node = graph.producer(tensor)
    if not graph.consumers(tensor) and tensor not in graph.outputs and not (node and has_unknown_inputs(node)):
        return "no node reads it"
    if tensor in run.unused_tensors:
        return "no graph output depends on it"
    if run.depends_on_shapes(tensor):
        return "shape computation"
    source = _source_of_reshape(tensor, run, compared_tensors)
    if source is not None:
        return f"a reshape of {source!r}, which is compared"
    if tensor not in graph.outputs and _only_moves(tensor, run, compared_tensors):
        return "only rearranges values; the tensors computed from it are compared"
    return ""


def _kind_without_partner_values(facts: _SideFacts, tensor: str) -> tuple[UnmatchedKind, str]:
    """Classify a tensor whose partner has no values. It is harmless if the partner was left out on purpose."""
    if tensor in facts.omitted and tensor not in facts.run.recording.graph.outputs:
        return UnmatchedKind.BENIGN, f"not recorded by the {facts.side.other}: {facts.omitted[tensor]}"
    return UnmatchedKind.LOST, f"the {facts.side.other} recording has no values for it"


def _source_of_reshape(tensor: str, run: IndexedRecording, compared_tensors: set[str]) -> str | None:
    """Return the compared tensor with the same elements in a different shape, or None if there is none.

    Their first values must be equal: a Reshape that changes values is a defect.
    """
    node = run.graph.producer(tensor)
    while node is not None and operators.of(node.op).reshapes and node.inputs and node.inputs[0]:
        source = next((form for form in run.members(node.inputs[0]) if form in compared_tensors), None)
        if source is not None and not (run.has(source) and run.has(tensor)):
            return None
        if source is not None:
            first, second = run.recording.load(source), run.recording.load(tensor)
            return source if first.dtype == second.dtype and first.tobytes() == second.tobytes() else None
        node = run.graph.producer(run.root(node.inputs[0]))
    return None


def _only_moves(tensor: str, run: IndexedRecording, compared_tensors: set[str]) -> bool:
    """Return whether a tensor is a rearrangement, and leads to compared tensors through rearrangements only."""
    graph = run.graph

    def is_rearranged(name: str) -> bool:
        node = graph.producer(name)
        return node is not None and (operators.of(node.op).moves is not None or run.passed_on_input(node) is not None)

    return is_rearranged(tensor) and all(
        run.depends_on_shapes(output)
        or any(form in compared_tensors for form in run.members(output))
        or (is_rearranged(output) and _only_moves(output, run, compared_tensors))
        for reader in graph.consumers(tensor)
        for output in reader.outputs
        if output
    )


def _unrecorded_tensors(facts: _SideFacts) -> Iterator[Unmatched]:
    """Yield the tensors that were never recorded.

    Nothing is lost if the runtime never computes a tensor, or if all tensors computed from it are compared.
    """
    graph, info = facts.run.graph, facts.run.recording.info
    for tensor, why in info.skipped.items():
        kind, reason, cause = UnmatchedKind.LOST, f"not recorded: {why}", info.skip_causes.get(tensor)
        if cause is not None and cause.is_benign:
            kind, reason = UnmatchedKind.BENIGN, _uncomputed_tensors(info)[tensor]
        elif cause is SkipCause.NOT_DUMPED and tensor not in graph.outputs:
            kind = UnmatchedKind.BENIGN
        elif tensor in graph.tensors and tensor not in graph.outputs and _leads_to_compared(tensor, facts):
            kind, reason = UnmatchedKind.BENIGN, f"{reason}; the tensors computed from it are compared"
        yield Unmatched(side=facts.side, tensor=tensor, kind=kind, reason=reason)


_CAUSES = {
    SkipCause.FUSED: "computed inside a fused node",
    SkipCause.FOLDED: "folded into a constant",
    SkipCause.VIEW: "another shape of a recorded tensor",
}


def _uncomputed_tensors(info: RunInfo) -> dict[str, str]:
    """Return the tensors that were fused, folded or are only views in a run, each with the reason."""
    return {name: f"{_CAUSES[info.skip_causes[name]]}: {why}" for name, why in info.never_made().items()}


def _leads_to_compared(tensor: str, facts: _SideFacts) -> bool:
    """Return whether a tensor has results and all of them are compared."""
    results = [name for node in facts.run.graph.consumers(tensor) for name in node.outputs if name]
    return bool(results) and all(any(form in facts.paired for form in facts.run.members(name)) for name in results)


def _root_of_arrangements(run: IndexedRecording, tensor: str) -> str:
    """Return the root of a chain of reshapes and transposes, or the tensor's own root if there is no chain."""
    node = run.graph.producer(tensor)
    while node is not None and operators.of(node.op).arranges:
        tensor = run.root(node.inputs[0])
        node = run.graph.producer(tensor)
    return run.root(tensor)


def _find_rewritten_regions(context: Context, pairs: Sequence[Pair]) -> tuple[CoveredTensors, CoveredTensors]:
    """Find the tensors of either side inside a region that the two graphs compute differently.

    From each compared tensor both graphs are searched backwards to other compared tensors. If all tensors that the
    reference result depends on are partners of tensors that the backend result depends on, the result covers everything
    in between.

    Returns:
        The covered tensors of the reference and of the backend.
    """
    ref, be = context.ref, context.be
    roots: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        add_partner(roots, be.root(pair.backend), ref.root(pair.reference))

    def value_numbers(names: Iterable[str]) -> set[int]:
        return {ref.number(name) for name in names}

    same_computations: dict[int, set[str]] = {}
    inside_reference: dict[str, _CoveredTensor] = {}
    inside_backend: dict[str, _CoveredTensor] = {}
    producer = be.recording.graph.producer
    for pair in pairs:
        node = producer(pair.backend)
        backend_part = None if node is None else between(be, pair.backend, roots)
        if node is None or backend_part is None:
            continue
        fed_tensors = {name for root in backend_part[1] for name in roots[root]}
        if (
            be.recorded.isdisjoint(backend_part[0])
            and (direct_part := between(ref, pair.reference, fed_tensors))
            and not direct_part[0]
        ):
            continue  # the region is a single node on either side, which is no rewrite
        same_computations = same_computations or _roots_by_value_number(ref)
        arranged_roots = {_root_of_arrangements(ref, name) for name in fed_tensors}
        fed_tensors |= {twin for name in fed_tensors for twin in same_computations[ref.number(name)]}
        reference_part = between(ref, pair.reference, fed_tensors) or between(
            ref, pair.reference, fed_tensors | arranged_roots
        )
        if reference_part is None or not backend_part[0].isdisjoint(context.undecided):
            continue
        recorded_tensors = [name for name in backend_part[0] if name in be.recorded]
        if not recorded_tensors and not reference_part[0]:
            continue
        node_reason = f"computed inside {node.op} {node.name!r}"
        part_reason = (
            f"inside a part that the backend computes differently; the result {pair.backend!r} of this part is compared"
        )
        unchecked = why_unchecked(ref, pair.reference, reference_part[0])
        if unchecked:
            node_reason, part_reason = (_with_unchecked_remark(text, unchecked) for text in (node_reason, part_reason))
        for name in reference_part[0]:
            inside_reference.setdefault(
                name, _CoveredTensor(part_reason if recorded_tensors else node_reason, pair.backend, bool(unchecked))
            )
        if value_numbers(_root_of_arrangements(ref, name) for name in reference_part[1]) == value_numbers(
            arranged_roots
        ):
            for name in recorded_tensors:
                inside_backend.setdefault(name, _CoveredTensor(part_reason, pair.backend, bool(unchecked)))
    return inside_reference, inside_backend


def _roots_by_value_number(run: IndexedRecording) -> dict[int, set[str]]:
    """Return the roots of tensors with the same value number, by number."""
    same_computations: dict[int, set[str]] = {}
    for name in run.graph.tensors:
        same_computations.setdefault(run.number(name), set()).add(run.root(name))
    return same_computations
