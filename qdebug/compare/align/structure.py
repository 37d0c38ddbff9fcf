"""Finds the reference node of a backend node: same operator on the same inputs, or same weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from qdebug.compare.align.arrangements import arrangements
from qdebug.compare.align.clamps import match_code_form
from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.expand import goes_into_weights, has_unknown_inputs, have_same_kind, kind
from qdebug.compare.align.fused import follow_folded_nodes, is_applied_later, output_of_next_transpose, reads_only
from qdebug.compare.align.indexed_recording import IndexedRecording, has_same_shape
from qdebug.compare.align.names import find_namesake, is_claimed, is_fused_with_next, outweighs_name
from qdebug.compare.align.nearness import find_matching_stage, tensors_after_folded_nodes
from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.align.weights import near_weights
from qdebug.model import Node, operators
from qdebug.model.operators import Sums, operands
from qdebug.model.thresholds.alignment import (
    CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    FUSED_CHAIN_MAX_NODES,
    WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS,
    WEIGHT_MAX_REL_DISTANCE,
)
from qdebug.numerics.accumulate import has_same_elements

__all__ = [
    "find_by_weights",
    "pair_by_structure",
    "pair_by_structure_over_name",
    "pair_by_weights",
    "pair_inputs_by_values",
    "pair_only_input",
]

_SHAPING_ATTRS = ("kernel_shape", "strides", "pads", "dilations", "group", "axis", "axes", "perm", "transA", "transB")


# -- strategies ------------------------------------------------------------------------------------------------------


def pair_only_input(context: Context) -> Iterator[Pair]:
    """Pair the only unpaired input of each side, if shape and dtype match."""
    backend_inputs = [name for name in context.be.graph.inputs if name not in context.pair_map]
    reference_inputs = [name for name in context.ref.graph.inputs if name not in context.pair_map.taken]
    if len(backend_inputs) != 1 or len(reference_inputs) != 1:
        return
    if has_same_shape(context.ref, reference_inputs[0], context.be, backend_inputs[0]):
        yield make_pair(
            backend_inputs[0],
            reference_inputs[0],
            Match.SIGNATURE,
            "the only unpaired input of each run, with equal shape and dtype",
        )
    elif _has_same_extents(context, reference_inputs[0], backend_inputs[0]):
        reason = "the only unpaired input of each run, with the same dimensions in another order"
        yield make_pair(backend_inputs[0], reference_inputs[0], Match.SIGNATURE, reason)


def pair_inputs_by_values(context: Context) -> Iterator[Pair]:
    """Pair unpaired inputs by the values fed to both runs, if these identify the inputs."""
    reference_inputs = [
        name for name in context.ref.graph.inputs if name not in context.pair_map.taken and context.ref.has(name)
    ]
    backend_inputs = [name for name in context.be.graph.inputs if name not in context.pair_map and context.be.has(name)]
    sizes = {name: context.ref.size(name) for name in reference_inputs}
    for name in backend_inputs:
        equal_inputs = [
            candidate
            for candidate in reference_inputs
            if sizes[candidate] == context.be.size(name) and _have_same_elements(context, candidate, name)
        ]
        twins = (
            [
                backend_input
                for candidate in equal_inputs
                for backend_input in backend_inputs
                if _have_same_elements(context, candidate, backend_input)
            ]
            if len(equal_inputs) == 1
            else []
        )
        if twins == [name]:
            reason = "both runs were given the same values for it, and for no other input"
            yield make_pair(name, equal_inputs[0], Match.DATA, reason)


def _have_same_elements(context: Context, reference: str, backend: str) -> bool:
    """Return whether two inputs hold the same elements in all samples read, in any order."""
    if context.ref.size(reference) != context.be.size(backend):
        return False
    for at in context.sampler.runs:
        sides = ((context.ref, reference), (context.be, backend))
        if not all(run.recording.has(name, *at) for run, name in sides):
            return False
        first, second = (np.sort(run.recording.load(name, *at), axis=None) for run, name in sides)
        if first.dtype != second.dtype or first.tobytes() != second.tobytes():
            return False
    return bool(context.sampler.runs)


def pair_by_structure_over_name(context: Context, tensor: str, node: Node) -> Pair | None:
    """Pair a node's output as `pair_by_structure` does, if its readers confirm it. This outweighs a weak name."""
    pair = context.by_structure[tensor] = _find_by_structure(context, tensor, node)
    if pair is None or not outweighs_name(context, tensor, pair.reference):
        return None
    return _move_to_confirmed_stage(context, pair)


def pair_by_structure(context: Context, tensor: str, _: Node) -> Pair | None:
    """Pair a node's output with the output of the reference node with the same operator and its inputs' partners."""
    pair = context.by_structure[tensor]
    return None if pair is None else _move_to_confirmed_stage(context, pair)


def pair_by_weights(context: Context, tensor: str, node: Node) -> Pair | None:
    """Pair a node's output with that of the only reference node with equal weights, or note why there is none."""
    pair = find_by_weights(context, node, tensor)
    if pair is not None:
        pair = _drop_if_later_tensor_fits(context, pair)
        return None if pair is None else _move_to_confirmed_stage(context, pair)
    if has_unknown_inputs(node):
        reason = "only its name is known, and the reference has no tensor of this name"
    else:
        reason = context.notes.get(tensor, f"an input of {node.op} {node.name!r} has no partner either")
    same_name = find_namesake(context, tensor)
    if same_name is not None:
        reason += f"; the reference computes {same_name!r} from other tensors by another operator"
    context.notes[tensor] = reason
    return None


def _move_to_confirmed_stage(context: Context, pair: Pair) -> Pair | None:
    """Return the pair, moved to the later reference tensor that the name or values confirm, if there is one.

    One side may fuse two nodes of the other. None if the values show that a later backend tensor is the partner.
    """
    pair = _move_to_namesake(context, pair)
    confirmed = find_matching_stage(context, pair.backend, pair.reference) if context.uses_values else pair.reference
    if confirmed is None:
        reason = f"by its values, the reference fuses this node with the nodes up to {pair.reference!r}"
        context.note_unpaired(pair.backend, reason)
        context.withdrawn.add(pair.backend)
        return None
    if confirmed != pair.reference:
        reason = f"{pair.reason}; by its values it includes the reference nodes up to {confirmed!r}"
        pair = make_pair(pair.backend, confirmed, Match.FUSED, reason)
    return match_code_form(context, pair)


def _move_to_namesake(context: Context, pair: Pair) -> Pair:
    """Return the pair, moved to a later reference tensor of the same name unless later backend nodes do the rest.

    Values are weaker evidence than the name, because wrong values may be close to neither tensor.
    """
    same_name = find_namesake(context, pair.backend) if context.uses_values else None
    stages = [] if same_name is None else list(tensors_after_folded_nodes(context.ref, pair.reference))
    if same_name is None or same_name not in stages:
        return pair
    producers = (context.ref.graph.producer(name) for name in stages[: stages.index(same_name) + 1])
    if any(node is not None and is_applied_later(context, pair.backend, node) for node in producers):
        return pair
    reason = f"{pair.reason}; by its name it includes the reference nodes up to {same_name!r}"
    return make_pair(pair.backend, same_name, Match.FUSED, reason)


def _drop_if_later_tensor_fits(context: Context, pair: Pair) -> Pair | None:
    """Return the pair, or None if a later backend tensor matches the reference tensor better."""
    if not is_fused_with_next(context, pair.backend, pair.reference):
        return pair
    context.note_unpaired(pair.backend, f"the reference fuses this node with the nodes up to {pair.reference!r}")
    return None


def _find_by_structure(context: Context, tensor: str, node: Node) -> Pair | None:
    if operators.of(node.op).transposes and _is_inserted_transpose(context, node):
        reason = f"{node.inputs[0]!r} transposed"
        return make_pair(tensor, context.pair_map[node.inputs[0]].reference, Match.SIGNATURE, reason)
    found_sources = [_reference_source(context, name) for name in context.be.data_inputs(node)]
    sources = [name for name in found_sources if name is not None]
    if not sources or len(sources) != len(found_sources):
        return None
    pair = _find_partner(context, tensor, node, sources)
    if pair is None and tensor not in context.undecided and len(sources) == 1:
        pair = _find_after_transposes(context, tensor, node, sources[0]) or _find_after_unit_dimensions(
            context, tensor, node, sources[0]
        )
    return None if pair is None else _drop_if_later_tensor_fits(context, pair)


def _reference_source(context: Context, tensor: str) -> str | None:
    """Return the reference tensor of a backend tensor, ignoring dimensions of extent 1, or None if there is none.

    A backend may remove such dimensions in a separate node, while the reference's preceding node never has them.
    """
    be, at = context.be, tensor
    for _ in range(FUSED_CHAIN_MAX_NODES):
        if at in context.pair_map:
            return context.pair_map[at].reference
        node = be.graph.producer(at)
        if node is None or not operators.of(node.op).reshapes or not (be.has(at) and be.has(node.inputs[0])):
            return None
        if not has_same_elements(be.shape(at), be.shape(node.inputs[0])):
            return None
        at = node.inputs[0]
    return None


def _is_inserted_transpose(context: Context, node: Node) -> bool:
    """Return whether a node is a Transpose that the backend inserted and the reference lacks."""
    ref, pair = context.ref, context.pair_map.get(node.inputs[0]) if node.inputs else None
    if pair is None:
        return False
    same_name = find_namesake(context, node.outputs[0])
    if same_name is not None and ref.root(same_name) == ref.root(pair.reference):
        return True
    return not any(
        operators.plain(reader).transposes and not is_claimed(context, reader.outputs[0], node.outputs[0])
        for reader in ref.consumers(pair.reference)
    )


# -- candidate nodes ---------------------------------------------------------------------------------------------------


def _find_partner(
    context: Context, tensor: str, node: Node, sources: Sequence[str], transposed_sources: Sequence[str] = ()
) -> Pair | None:
    """Find the reference tensor for an output of a backend node, or note why there is none.

    Args:
        context: The state of the alignment.
        tensor: The output.
        node: The backend node.
        sources: Reference tensors of the node's data inputs, in order.
        transposed_sources: Transposed forms of the only source in the reference. If given, the node is searched among
            the readers of these.
    """
    ref, be, slot = context.ref, context.be, node.outputs.index(tensor)
    starts: list[Sequence[str]] = [[name] for name in transposed_sources] or [sources]
    candidates = [
        reader
        for start in starts
        for reader in ref.consumers(start[0])
        if _reads_same_inputs(ref, node, reader, start) and any(reader.outputs[slot : slot + 1])
    ]
    if operators.of(node.op).reshapes:
        candidates = [_follow_reshapes_to_shape(context, tensor, candidate) for candidate in candidates]
    if be.depends_on_shapes(tensor):  # extents of a permuted tensor may be in another order
        candidates = [c for c in candidates if has_same_shape(context.ref, c.outputs[slot], context.be, tensor)]
    unclaimed = [c for c in candidates if not is_claimed(context, c.outputs[slot], tensor)]
    partner = _choose_candidate(context, node, unclaimed or _keep_same_attributes(context, node, candidates))
    if partner is None and not candidates:
        context.note_unpaired(tensor, f"no {operators.plain(node).name} in the reference reads the same tensors")
        return None
    if partner is None:
        names = ", ".join(repr(c.name) for c in candidates[:4])
        reason = f"{len(candidates)} reference nodes fit equally well: {names}"
        context.note_unpaired(tensor, reason, undecided=True)
        return None
    rival = _find_better_rival(context, node, slot, partner)
    if rival is not None:
        context.note_unpaired(
            tensor, f"its shape differs from {partner.op} {partner.name!r}; the shape of {rival.op} {rival.name!r} fits"
        )
        return None
    weighted = any(name and be.folds(name) for name in operands(node))
    output, folded = follow_folded_nodes(context, tensor, partner.outputs[slot], into_weights=weighted)
    quantized = node.op != operators.plain(node).name and be.graph.tensors[tensor].quant is not None
    ops_text = " + ".join([partner.op, *(n.op for n in folded)])
    match = Match.FUSED if folded else Match.QUANTIZATION if quantized else Match.SIGNATURE
    return make_pair(
        tensor,
        output,
        match,
        f"{node.op} has the same inputs and operation as {ops_text} {partner.name!r} in the reference",
    )


def _find_better_rival(context: Context, node: Node, slot: int, partner: Node) -> Node | None:
    """Return a different backend node of the same kind and input that has the expected shape, or None if there is none.

    A backend may split one operator into several, some of a kind that the model also uses separately.
    """
    ref, be, expected, output = context.ref, context.be, partner.outputs[slot], node.outputs[slot]
    if not (ref.has(expected) and be.has(output)) or arrangements(ref.shape(expected), be.shape(output)):
        return None  # the output has the partner's shape, in some dimension order
    input_names = be.data_inputs(node)
    rivals = (
        [rival for rival in be.consumers(input_names[0]) if rival is not node and have_same_kind(node, rival)]
        if input_names
        else []
    )
    fitting = (
        rival for rival in rivals if be.data_inputs(rival) == input_names and any(rival.outputs[slot : slot + 1])
    )
    return next((rival for rival in fitting if has_same_shape(ref, expected, be, rival.outputs[slot])), None)


def _follow_reshapes_to_shape(context: Context, tensor: str, node: Node) -> Node:
    """Follow reference nodes that only reshape, to the one with a backend tensor's shape.

    Backends merge several such nodes into one.
    """
    reshaping_node = node
    for _ in range(FUSED_CHAIN_MAX_NODES):
        if has_same_shape(context.ref, reshaping_node.outputs[0], context.be, tensor):
            return reshaping_node
        readers = [r for r in context.ref.consumers(reshaping_node.outputs[0]) if operators.of(r.op).reshapes]
        if len(readers) != 1:
            break
        reshaping_node = readers[0]
    return node


def _find_after_transposes(context: Context, tensor: str, node: Node, source: str) -> Pair | None:
    """Find a node as `_find_partner` does, after Transposes of its only source in the reference.

    A Conv always works in its operator's own dimension order, so it is searched after every Transpose. An elementwise
    node may have been moved before a Transpose, but only if nothing else reads the source.
    """
    row = operators.plain(node)
    if row.sums is Sums.FILTER:
        readers = context.ref.consumers(source)
        transposed_names = [reader.outputs[0] for reader in readers if operators.of(reader.op).transposes]
        return _find_partner(context, tensor, node, [source], transposed_names) if transposed_names else None
    transposed_name = (
        output_of_next_transpose(context.ref, source) if row.activation or row.neutral is not None else None
    )
    return (
        None
        if transposed_name is None or is_claimed(context, transposed_name, tensor)
        else _find_partner(context, tensor, node, [transposed_name])
    )


def _find_after_unit_dimensions(context: Context, tensor: str, node: Node, source: str) -> Pair | None:
    """Find a node as `_find_partner` does, after reference nodes that remove or insert dimensions of extent 1."""
    ref = context.ref
    for reader in ref.consumers(source):
        result = reader.outputs[0]
        if operators.of(reader.op).reshapes and ref.has(result) and ref.has(source):
            pair = None
            if has_same_elements(ref.shape(result), ref.shape(source)) and not is_claimed(context, result, tensor):
                pair = _find_partner(context, tensor, node, [result])
            if pair is not None:
                return pair
    return None


def _reads_same_inputs(ref: IndexedRecording, node: Node, candidate: Node, sources: Sequence[str]) -> bool:
    in_order = not operators.plain(node).commutes
    return have_same_kind(node, candidate) and ref.hold_same_numbers(
        sources, ref.data_inputs(candidate), in_order=in_order
    )


def find_by_weights(context: Context, node: Node, tensor: str) -> Pair | None:
    """Return the only reference node with a backend node's operator and weights, or None if none stands out.

    Args:
        context: The state of the alignment.
        node: The backend node.
        tensor: Its output.
    """
    outline = context.be_weights.outline(node)
    slot = node.outputs.index(tensor)
    if outline is None or math.prod(outline[0]) < WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS:
        return None
    candidates = context.kinds.get(kind(node), [])
    free = [c for c in candidates if any(c.outputs[slot : slot + 1]) and c.outputs[slot] not in context.pair_map.taken]
    best = _keep_nearest_weight(context, node, free)
    if not best:
        return None
    output, _ = follow_folded_nodes(context, tensor, best[0].outputs[slot], into_weights=True)
    return make_pair(
        tensor, output, Match.SIGNATURE, f"{node.op} has the same weights as {best[0].op} {best[0].name!r}"
    )


# -- several candidates ----------------------------------------------------------------------------------------------


def _choose_candidate(context: Context, node: Node, candidates: Sequence[Node]) -> Node | None:
    """Return the best candidate, or None if there is none or the best two are too close."""
    for narrow in (
        _keep_same_attributes,
        _keep_nearest_weight,
        _keep_same_indices,
        _keep_longest_name_match,
        _keep_same_size,
    ):
        if len(candidates) <= 1:
            break
        candidates = narrow(context, node, candidates) or candidates
    return candidates[0] if len(candidates) == 1 else None


def _keep_same_attributes(_: Context, node: Node, candidates: Sequence[Node]) -> list[Node]:
    def agrees(candidate: Node) -> bool:
        common = [a for a in _SHAPING_ATTRS if a in node.attrs and a in candidate.attrs]
        return all(node.attrs[a] == candidate.attrs[a] for a in common)

    return [candidate for candidate in candidates if agrees(candidate)]


def _keep_nearest_weight(context: Context, node: Node, candidates: Sequence[Node]) -> list[Node]:
    """Keep the candidate with the nearest weight, if it is near and clearly nearer than the next.

    A constant shared by several nodes is not evidence.
    """
    ranked = near_weights(
        context.ref_weights,
        candidates,
        context.be_weights,
        node,
        limit=WEIGHT_MAX_REL_DISTANCE,
        ratio=CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    )
    if not ranked or ranked[0][0] > WEIGHT_MAX_REL_DISTANCE:
        return []
    if len(ranked) > 1 and ranked[0][0] >= CLEARER_CANDIDATE_MAX_ERROR_RATIO * ranked[1][0]:
        return []
    return [ranked[0][1]]


def _keep_same_indices(context: Context, node: Node, candidates: Sequence[Node]) -> list[Node]:
    """Keep candidates that select the same indices. Axes may differ if one side permutes its tensors."""
    slots = operators.of(node.op).index_inputs
    own_indices = {slot: _selected_indices(context.be, node, slot) for slot in slots}

    def agrees(candidate: Node) -> bool:
        indices = {slot: _selected_indices(context.ref, candidate, slot) for slot in slots}
        known_indices = [(own_indices[slot], selected) for slot, selected in indices.items() if selected is not None]
        return all(own is not None and np.array_equal(own, selected) for own, selected in known_indices)

    return [candidate_node for candidate_node in candidates if agrees(candidate_node)] if slots else []


def _selected_indices(run: IndexedRecording, node: Node, slot: int) -> np.ndarray | None:
    """Return the constant with the indices that a node selects, if it was recorded."""
    name = node.inputs[slot] if len(node.inputs) > slot else ""
    recorded = [member for member in run.members(name) if run.has(member)] if name else []
    if not recorded or not run.folds(name) or run.size(recorded[0]) > WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS:
        return None
    return run.recording.load(recorded[0])


def _keep_longest_name_match(context: Context, node: Node, candidates: Sequence[Node]) -> list[Node]:
    """Keep the candidate whose name occurs within the backend's names."""
    own_names = (node.name, *node.outputs)
    lengths = [
        {
            len(name)
            for name in _names_of(context.ref, node, candidate)
            if any(_has_word(own_name, name) for own_name in own_names)
        }
        for candidate in candidates
    ]
    longest = max((length for candidate_lengths in lengths for length in candidate_lengths), default=0)
    return [
        candidate
        for candidate, candidate_lengths in zip(candidates, lengths, strict=True)
        if longest in candidate_lengths
    ]


def _keep_same_size(context: Context, node: Node, candidates: Sequence[Node]) -> list[Node]:
    """Keep candidates with the same number of elements, as far as recorded."""
    output = node.outputs[0]
    if not output or not context.be.has(output):
        return []
    size = context.be.size(output)
    return [
        candidate
        for candidate in candidates
        if candidate.outputs[0] and _element_count(context.ref, candidate.outputs[0]) in (None, size)
    ]


def _element_count(run: IndexedRecording, tensor: str) -> int | None:
    return run.size(tensor) if run.has(tensor) else None


def _names_of(ref: IndexedRecording, backend_node: Node, reference_node: Node) -> Iterator[str]:
    """Yield the names of a reference node, of its outputs, and of nodes that its constants can absorb.

    A following activation counts too, because fusion keeps the name of the last result.
    """
    yield from (reference_node.name, *reference_node.outputs)
    output = reference_node.outputs[0]
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = ref.consumers(output)
        if len(readers) != 1 or not reads_only(ref, readers[0], output):
            return
        is_activation = operators.plain(readers[0]).activation
        if not is_activation and not goes_into_weights(readers[0], backend_node):
            return
        output = readers[0].outputs[0]
        yield output
        if is_activation:
            return


def _has_word(name: str, word: str) -> bool:
    """Return whether a name contains another as a whole word: "Conv.54" does not contain "Conv.5"."""
    at = name.find(word) if word else -1
    while at >= 0:
        if not name[max(at - 1, 0) : at].isalnum() and not name[at + len(word) : at + len(word) + 1].isalnum():
            return True
        at = name.find(word, at + 1)
    return False


# -- shapes ----------------------------------------------------------------------------------------------------------


def _has_same_extents(context: Context, reference: str, backend: str) -> bool:
    """Return whether two tensors have equal extents in a different order, with the leading dimension in place."""
    if not (context.ref.has(reference) and context.be.has(backend)):
        return False
    reference_shape, backend_shape = context.ref.shape(reference), context.be.shape(backend)
    return (
        len(backend_shape) > 2
        and backend_shape[:1] == reference_shape[:1]
        and backend_shape != reference_shape
        and sorted(backend_shape) == sorted(reference_shape)
    )
