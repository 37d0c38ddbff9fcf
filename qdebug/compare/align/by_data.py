"""Finds partners by values, for backend tensors that neither names nor graphs can pair.

This is the last evidence, used only if a harness described its graph in its own terms, or not at all: qdebug's own
recordings are paired by their operators. Every tensor without a partner is compared with all tensors of equal size, at
sampled elements, in every order of dimensions (`sampling`). Near ties are decided over all elements, then by the graph:
if a depends on b, then partner(a) must not be upstream of partner(b). A remaining tie has no partner. After a
large error, no tensors are similar any more, so none are paired.

The confidence of a pair is the smallest of three numbers: 1 - distance^2, the share of the partner's energy that is not
error; 1 - 2 w for each rival, where w is how far the tensor may lie from the partner towards the rival, as a fraction
of their distance (`sampling.shifts_between`), 0 at the midpoint; and 1 - 2/n, as n values can agree by chance. Copies
do not count as rivals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from qdebug.compare.align.clamps import match_code_form
from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.expand import has_unknown_inputs
from qdebug.compare.align.indexed_recording import IndexedRecording, has_same_shape
from qdebug.compare.align.names import find_namesake, is_claimed, spell_tensor_name
from qdebug.compare.align.nearness import find_matching_stage, tensors_after_folded_nodes
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.align.sampling import Candidate, relative_norm, shifts_between
from qdebug.compare.align.undeclared_quantization import is_loosely_described
from qdebug.model.operators import is_unknown
from qdebug.model.thresholds.alignment import (
    COPY_MAX_DISTANCE,
    DATA_PAIR_MIN_CONFIDENCE,
    LEFT_NAME_CONFIDENCE,
    PAIR_SURE_MIN_CONFIDENCE,
    SAMPLED_PLACES,
    VALUE_CANDIDATE_MAX_REL_DISTANCE,
    VALUE_MATCH_MAX_REL_ERROR,
    VALUE_MATCH_MIN_VALUES,
    VALUE_MATCH_OTHER_PARTNER_RATIO,
    VALUE_TIE_MAX_RATIO,
    VALUE_TIES_MAX,
)

__all__ = ["pair_by_data", "pair_by_unconfirmed_name"]


def pair_by_data(context: Context) -> Iterator[Pair]:
    """Pair tensors without a partner with tensors of equal values, most certain pairs first."""
    if not context.uses_values:
        return
    open_tensors = [name for name in context.order if _is_open(context, name)]
    for group in _group_by_size(context, [name for name in open_tensors if name not in context.candidates]):
        context.candidates.update(_rank_candidates(context, *group))
    candidates = {name: context.candidates[name] for name in open_tensors if context.candidates.get(name)}
    for min_confidence in (PAIR_SURE_MIN_CONFIDENCE, DATA_PAIR_MIN_CONFIDENCE):
        lineage = _Lineage.of(
            context, [name for options in candidates.values() for candidate in options for name in candidate.names]
        )
        for name in [name for name in open_tensors if name in candidates and name not in context.pair_map]:
            pair = _choose_partner(
                context, name, candidates[name], lineage if min_confidence < PAIR_SURE_MIN_CONFIDENCE else None
            )
            if pair is not None and pair.confidence >= min_confidence:
                yield pair
    unpaired = [name for name in open_tensors if name in candidates and name not in context.pair_map]
    yield from _pair_by_graph_order(context, unpaired, candidates)


def pair_by_unconfirmed_name(context: Context) -> Iterator[Pair]:
    """Pair tensors by a name that no graph confirms, if a harness describes their node in its own terms."""
    for tensor in context.order:
        partner = (
            None if tensor in context.pair_map or tensor in context.given.alone else _unconfirmed_name(context, tensor)
        )
        if partner is not None:
            reason = "same name and shape; nothing points to another tensor"
            pair = match_code_form(context, make_pair(tensor, partner, Match.EXACT, reason))
            yield replace(pair, confidence=LEFT_NAME_CONFIDENCE)


def _unconfirmed_name(context: Context, tensor: str) -> str | None:
    """Return the reference tensor with the name and shape of a tensor, if no other tensor claims it."""
    node = context.be.graph.producer(tensor)
    if node is None or not (is_loosely_described(node) or is_unknown(node)):
        return None
    if tensor in context.withdrawn or tensor in context.undecided or context.be.root(tensor) != tensor:
        return None
    partner = find_namesake(context, tensor)
    if partner is None or is_claimed(context, partner, tensor):
        return None
    return partner if has_same_shape(context.ref, partner, context.be, tensor) else None


def _is_open(context: Context, tensor: str) -> bool:
    """Return whether a node's output in the backend has no partner yet, but has values that may identify one."""
    be = context.be
    if (
        tensor in context.pair_map
        or tensor in context.given.alone
        or be.folds(tensor)
        or be.depends_on_shapes(tensor)
        or be.graph.producer(tensor) is None
    ):
        return False
    return tensor in be.recorded and be.root(tensor) == tensor


def _group_by_size(context: Context, open_tensors: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield groups of tensors without a partner by number of elements, each with the reference tensors of that size."""
    ref, be = context.ref, context.be
    sizes: dict[int, list[str]] = {}
    for name in open_tensors:
        if be.has(name) and be.size(name) * len(context.sampler.runs) >= VALUE_MATCH_MIN_VALUES:
            sizes.setdefault(be.size(name), []).append(name)
    references: dict[int, list[str]] = {}
    for name in ref.recording.names if sizes else ():
        if name in ref.recorded and not (ref.folds(name) or ref.depends_on_shapes(name)) and ref.has(name):
            references.setdefault(ref.size(name), []).append(name)
    return ((rows, references[size]) for size, rows in sizes.items() if size in references)


def _rank_candidates(context: Context, rows: Sequence[str], columns: Sequence[str]) -> dict[str, list[Candidate]]:
    """Return the candidates for each backend tensor (row) among the reference tensors (columns), nearest first."""
    sampler = context.sampler
    distances = sampler.distance_table(columns, rows)
    ranking: dict[str, list[Candidate]] = {name: [] for name in rows}
    for row, name in enumerate(rows):
        smallest_distance = float(np.min(distances[row], initial=np.inf))
        if smallest_distance >= VALUE_CANDIDATE_MAX_REL_DISTANCE:  # a few samples say little about rare large elements
            continue
        max_distance = min(
            VALUE_TIE_MAX_RATIO * smallest_distance + COPY_MAX_DISTANCE, VALUE_CANDIDATE_MAX_REL_DISTANCE
        )
        columns_near = np.flatnonzero(distances[row] <= max_distance)
        order = columns_near[np.argsort(distances[row, columns_near], kind="stable")]
        ranked = _decide_ties(context, name, [columns[at] for at in order])
        ranking[name] = ranked if ranked and ranked[0].distance <= VALUE_MATCH_MAX_REL_ERROR else []
    return ranking


def _decide_ties(context: Context, tensor: str, nearest_names: Sequence[str]) -> list[Candidate]:
    """Return the nearest candidates with copies merged. All elements are read if the samples do not decide."""
    sampler, classes = context.sampler, list[list[str]]()
    for name in nearest_names:
        copies = next((group for group in classes if _is_copy(context, group[0], name)), None)
        if copies is not None:
            copies.append(name)
        elif len(classes) < VALUE_TIES_MAX:
            classes.append([name])
        else:
            break
    values = sampler.of_backend(tensor)
    reference_values = [sampler.nearest(group[0], tensor)[0].reference for group in classes]
    if values is None:
        return []
    candidates = _candidates_of_classes(classes, reference_values, values)
    # Sampled elements decide clear cases. Near ties are measured again over all elements, which costs a full read.
    unsure_positions = [
        at for at, entry in enumerate(candidates) if at and 1 - 2 * candidates[0].shifts[at] < PAIR_SURE_MIN_CONFIDENCE
    ]
    is_doubtful = candidates[0].distance > VALUE_MATCH_MAX_REL_ERROR
    if (unsure_positions or is_doubtful) and context.be.size(tensor) > SAMPLED_PLACES:
        classes = [classes[at] for at in (0, *unsure_positions)]
        candidates = _candidates_of_classes(
            classes,
            [sampler.reference_values_in_order(tensor, entry[0]) for entry in classes],
            sampler.all_backend_values(tensor),
        )
    at = context.recorded_at.__getitem__
    return [replace(entry, names=tuple(sorted(entry.names, key=at))) for entry in candidates]


def _candidates_of_classes(
    classes: Sequence[Sequence[str]], references: Sequence[np.ndarray], tensor_values: np.ndarray
) -> list[Candidate]:
    """Return candidates, nearest first, with their values in the order of the backend tensor."""
    distances = [relative_norm(tensor_values - values, values) for values in references]
    order = sorted(range(len(classes)), key=distances.__getitem__)
    shifts = shifts_between(np.array([references[at] for at in order]), tensor_values)
    return [
        Candidate(
            names=tuple(classes[at]), distance=distances[at], values=len(tensor_values), shifts=tuple(shifts[rank])
        )
        for rank, at in enumerate(order)
    ]


def _is_copy(context: Context, first: str, second: str) -> bool:
    ref = context.ref
    return (
        ref.root(first) == ref.root(second)
        or context.sampler.distance_within_reference(first, second) <= COPY_MAX_DISTANCE
    )


def _choose_partner(
    context: Context, tensor: str, ranked: Sequence[Candidate], lineage: _Lineage | None
) -> Pair | None:
    """Return the pair of a tensor with its best candidate, or None with a note if no candidate is good enough.

    Args:
        context: The state of the alignment.
        tensor: The backend tensor.
        ranked: Its candidates.
        lineage: Restrictions from the pairs before and after the tensor, or None to ignore them.
    """
    allowed_positions = [
        at for at, candidate in enumerate(ranked) if lineage is None or lineage.can_be_partner(tensor, candidate.names)
    ]
    if not allowed_positions:
        return None
    # Three things must agree: the nearest values, a clear distance to the next candidate, and the order of both graphs
    # (`lineage`). An equal name on another tensor wins unless the values disprove it.
    best_position = min(allowed_positions, key=lambda at: ranked[at].distance)
    best, distance_text = ranked[best_position], f"relative distance {ranked[best_position].distance:.2g}"
    confidence = best.confidence(at for at in allowed_positions if at != best_position)
    free_names = [
        name
        for name in best.names
        if not (_has_other_namesake(context, name, tensor) or is_claimed(context, name, tensor))
    ]
    if not free_names:
        context.note_unpaired(
            tensor, f"its values fit {best.names[0]!r} ({distance_text}), which already has another partner"
        )
        return None
    if confidence < DATA_PAIR_MIN_CONFIDENCE:
        rivals = ", ".join(repr(ranked[at].names[0]) for at in allowed_positions)
        context.note_unpaired(tensor, f"its values fit several tensors about equally: {rivals} ({distance_text})")
        return None
    if find_matching_stage(context, tensor, free_names[0]) != free_names[0]:
        return None
    reason = f"paired by values, since no name or node matches; {free_names[0]!r} is closest, {distance_text}"
    same_name = find_namesake(context, tensor)
    if same_name is not None and same_name not in best.names:
        if not _is_name_disproved(context, same_name, free_names[0], best.distance, tensor):
            return None
        reason = f"its values fit {free_names[0]!r}, and do not fit the tensor of the same name"
    if len(best.names) > 1:
        reason += f"; copies: {', '.join(map(repr, [name for name in best.names if name != free_names[0]][:3]))}"
    return _make_data_pair(context, tensor, free_names[0], reason, confidence)


def _pair_by_graph_order(
    context: Context, unpaired_tensors: Sequence[str], candidates: Mapping[str, Sequence[Candidate]]
) -> Iterator[Pair]:
    """Pair tensors that near ties left without a partner, if the order of the graphs leaves only one assignment.

    A chain of tensors, each computed from its predecessor, corresponds to an equally long chain of candidates.
    """
    lineage = _Lineage.of(
        context,
        [name for tensor_name in unpaired_tensors for candidate in candidates[tensor_name] for name in candidate.names],
    )
    contenders = (
        {name: _remaining_candidates(context, name, candidates[name], lineage) for name in unpaired_tensors}
        if lineage
        else {}
    )
    bits = {name: 1 << at for at, name in enumerate(unpaired_tensors)}
    ancestors = _transitive_marks(context.be, bits, graph=_has_graph(context.be), is_reversed=False)
    while contenders:
        group, partners = {next(iter(contenders))}, set[str]()
        while len(partners) < len(partners := {tensor_name for name in group for tensor_name in contenders[name]}):
            group |= {name for name, tensor_name in contenders.items() if not partners.isdisjoint(tensor_name)}
        chain = _order_by_dependency(
            sorted(group, key=unpaired_tensors.index),
            {name: ancestors.get(name, 0) for name in group},
            unpaired_tensors.index,
        )
        reference_chain = _order_by_dependency(sorted(partners), lineage.ups, lineage.bit_number) if lineage else []
        for name, partner in (
            zip(chain, reference_chain, strict=True) if len(chain) == len(reference_chain) == len(group) else ()
        ):
            if partner in contenders[name] and find_matching_stage(context, name, partner) == partner:
                reason = f"several tensors have similar values; by graph order its partner is {partner!r}"
                yield _make_data_pair(context, name, partner, reason, DATA_PAIR_MIN_CONFIDENCE)
        contenders = {name: tensor_name for name, tensor_name in contenders.items() if name not in group}


def _remaining_candidates(
    context: Context, tensor: str, ranked: Sequence[Candidate], lineage: _Lineage | None
) -> list[str]:
    """Return the candidates of a tensor that neither its values nor another pair rules out."""
    best, names = ranked[0], list[str]()
    for at, candidate in enumerate(ranked):
        free_names = [name for name in candidate.names if not is_claimed(context, name, tensor)]
        is_possible = at == 0 or 1 - 2 * best.shifts[at] < DATA_PAIR_MIN_CONFIDENCE
        if free_names and is_possible and (lineage is None or lineage.can_be_partner(tensor, free_names[:1])):
            names.append(free_names[0])
    return names


def _order_by_dependency(
    names: Sequence[str], ancestors_of: Mapping[str, int], bit_of: Callable[[str], int]
) -> list[str]:
    """Return tensors in an order in which each depends on all earlier ones, or an empty list if there is none.

    Args:
        names: The tensors.
        ancestors_of: The bits of the tensors that each tensor depends on.
        bit_of: Returns the bit number of a tensor.
    """
    ordered = sorted(
        names, key=lambda name: sum(ancestors_of.get(name, 0) >> bit_of(candidate) & 1 for candidate in names)
    )
    is_linked = all(ancestors_of.get(later, 0) >> bit_of(earlier) & 1 for earlier, later in pairwise(ordered))
    return ordered if is_linked else []


def _make_data_pair(context: Context, tensor: str, reference: str, reason: str, confidence: float) -> Pair:
    order = context.sampler.nearest(reference, tensor)[0].arrangement
    pair = make_pair(tensor, reference, Match.DATA, reason)
    views = [
        None if permutation is None else Transform(transpose=permutation)
        for permutation in (order.reference, order.backend)
    ]
    pair = replace(pair, confidence=confidence, reference_view=views[0], backend_view=views[1])
    context.undecided.discard(tensor)
    return match_code_form(context, pair)


def _has_other_namesake(context: Context, reference: str, tensor: str) -> bool:
    """Return whether another backend tensor has the name of a reference tensor."""
    return any(name in context.be.graph.tensors and name != tensor for name in spell_tensor_name(reference))


def _is_name_disproved(context: Context, namesake_tensor: str, nearest: str, distance: float, tensor: str) -> bool:
    """Return whether values disprove a name: another tensor is far nearer, and the named one does not depend on it."""
    ref = context.ref
    if (
        not ref.has(namesake_tensor)
        or nearest in tensors_after_folded_nodes(ref, namesake_tensor)
        or namesake_tensor in tensors_after_folded_nodes(ref, nearest)
    ):
        return False
    nearest_orders = context.sampler.nearest(namesake_tensor, tensor)
    return not nearest_orders or distance < VALUE_MATCH_OTHER_PARTNER_RATIO * nearest_orders[0].distance


class _Lineage:
    """Reference tensors that cannot be a backend tensor's partner, because of the pairs before and after it.

    If a tensor depends on a second one, or was recorded after it, its partner must not be upstream of the second one's
    partner.

    Args:
        bits: One bit for each reference tensor of interest.
        ups: For each reference tensor, the bits of the tensors that it depends on.
        before: For each backend tensor, references already ruled out because they lie upstream of a predecessor's
            partner.
        after: The same for successors.
    """

    def __init__(
        self, bits: Mapping[str, int], ups: Mapping[str, int], before: Mapping[str, int], after: Mapping[str, int]
    ) -> None:
        self._bits, self.ups, self._before, self._after = bits, ups, before, after

    @classmethod
    def of(cls, context: Context, names: Iterable[str]) -> _Lineage | None:
        """Return the restrictions that existing pairs imply, or None if no graph is known or pairs contradict it."""
        ref, be = context.ref, context.be
        bits = {name: 1 << number for number, name in enumerate(dict.fromkeys(names))}
        graphs_known = [_has_graph(run) for run in (ref, be)]
        if not bits or not any(graphs_known):
            return None
        ups, downs = (_transitive_marks(ref, bits, graph=graphs_known[0], is_reversed=back) for back in (False, True))
        copied = {name for name, ranked in context.candidates.items() if ranked and len(ranked[0].names) > 1}
        partners = {name: pair.reference for name, pair in context.pair_map.items() if name not in copied}
        partner_marks = [
            {name: marks_of_partner[partner] for name, partner in partners.items() if partner in marks_of_partner}
            for marks_of_partner in (ups, downs)
        ]
        marks_before, marks_after = (
            _transitive_marks(be, marks, graph=graphs_known[1], is_reversed=back)
            for marks, back in zip(partner_marks, (False, True), strict=True)
        )
        lineage = cls(bits, ups, marks_before, marks_after)
        known_pairs = [(name, partner) for name, partner in partners.items() if partner in bits]
        # If known pairs already contradict the recording order, the order is not evidence.
        return lineage if all(lineage.can_be_partner(name, [partner]) for name, partner in known_pairs) else None

    def bit_number(self, name: str) -> int:
        """Return the bit number of a reference tensor."""
        return self._bits[name].bit_length() - 1

    def can_be_partner(self, tensor: str, names: Sequence[str]) -> bool:
        """Return whether any of the given reference tensors can be the partner of a backend tensor."""
        excluded = self._before.get(tensor, 0) | self._after.get(tensor, 0)
        return any(not excluded & self._bits.get(name, 0) for name in names)


def _has_graph(run: IndexedRecording) -> bool:
    return not all(map(has_unknown_inputs, run.graph.nodes))


def _transitive_marks(
    run: IndexedRecording, marks: Mapping[str, int], *, graph: bool, is_reversed: bool
) -> dict[str, int]:
    """Return, for each tensor, the marks of all tensors it depends on (or that depend on it), excluding its own.

    In a run without a graph, a tensor depends on everything recorded earlier.
    """
    marks_of: dict[str, int] = {}
    if not graph:
        earlier = 0
        for name in reversed(run.recording.names) if is_reversed else run.recording.names:
            marks_of[name] = earlier
            earlier |= marks.get(name, 0)
        return marks_of
    for node in reversed(run.graph.nodes) if is_reversed else run.graph.nodes:
        start, end = (node.outputs, node.inputs) if is_reversed else (node.inputs, node.outputs)
        earlier = 0
        for name in start:
            earlier |= marks_of.get(name, 0) | marks.get(name, 0)
        for name in end:
            if name:
                marks_of[name] = marks_of.get(name, 0) | earlier
    return marks_of
