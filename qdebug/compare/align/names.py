"""Decides whether a name shared by two graphs means the same tensor. Exporters number tensors, and numbers shift."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np

from qdebug.compare.align.clamps import (
    bounds_of,
    find_clamp_replaced_by_codes,
    is_clamped_later,
    note_clamp_after,
    select_code_form,
)
from qdebug.compare.align.context import Context, make_pair, only_result
from qdebug.compare.align.expand import has_unknown_inputs, have_same_kind
from qdebug.compare.align.folded import folded_distance
from qdebug.compare.align.fused import follow_folded_nodes, has_bias, is_applied_later, reads_only
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.nearness import find_clamp_input
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.align.region import between
from qdebug.compare.align.weights import weight_distance
from qdebug.model import Node, operators
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES, WEAK_NAME_CONFIDENCE, WEIGHT_MAX_REL_DISTANCE

__all__ = [
    "find_namesake",
    "is_claimed",
    "is_fused_with_next",
    "outweighs_name",
    "pair_by_strong_name",
    "pair_by_weak_name",
    "pair_inputs_by_name",
    "pair_other_form",
    "spell_tensor_name",
]


_FIRST_OUTPUT = ":0"


class NameSupport(IntEnum):
    """How strongly two graphs confirm that a name means the same tensor."""

    NONE = 0
    WEAK = 1
    STRONG = 2


# -- strategies ------------------------------------------------------------------------------------------------------


def pair_inputs_by_name(context: Context) -> Iterator[Pair]:
    """Pair inputs by name."""
    for tensor in context.order:
        if context.be.graph.producer(tensor) is None and not context.be.folds(tensor):
            pair = pair_by_weak_name(context, tensor)
            if pair is not None:
                yield pair


def pair_by_strong_name(context: Context, tensor: str, _: Node) -> Pair | None:
    """Pair a tensor by name if the graphs strongly confirm it. A name from the model needs less support."""
    is_stated = context.be.graph.tensors[tensor].stands_for is not None
    return _by_name(context, tensor, NameSupport.WEAK if is_stated else NameSupport.STRONG)


def pair_by_weak_name(context: Context, tensor: str, _: Node | None = None) -> Pair | None:
    """Pair a tensor by name if the graphs confirm it at all."""
    pair = _by_name(context, tensor, NameSupport.WEAK)
    return None if pair is None else replace(pair, confidence=WEAK_NAME_CONFIDENCE)


def pair_other_form(context: Context, tensor: str, node: Node) -> Pair | None:
    """Pair a tensor with the partner of the tensor that its node passes on."""
    source = context.be.passed_on_input(node) or node.inputs[0]
    pair = context.pair_map.get(source)
    row = operators.plain(node)
    # The node may be an identity in the backend but not in the reference.
    is_own_form = (
        pair is None
        or row.neutral is not None
        or row.moves is operators.Move.SLICE
        or _is_transposed_output(context, tensor, pair.reference)
    )
    same_name = pair_by_weak_name(context, tensor) if is_own_form else None
    if same_name is not None:
        return same_name
    if pair is None:
        context.note_unpaired(tensor, f"it is equivalent to {source!r}, which has no partner")
        return None
    clamped = context.clamped_later.get(source, pair.reference)  # codes hold the values after the clamp
    reference = clamped if context.be.is_after_codes(tensor) else pair.reference
    context.clamped_later[tensor] = clamped
    relation = "codes of" if row.quantizes else "dequantized values of" if row.dequantizes else "same values as"
    return _pair_with_nearest_form(context, tensor, reference, f"{relation} {source!r}")


def _is_transposed_output(context: Context, tensor: str, reference: str) -> bool:
    """Return whether a tensor is an output of both networks that the reference computes by a last Transpose."""
    ref = context.ref
    if tensor not in context.be.graph.outputs or tensor not in ref.graph.outputs:
        return False
    transpose = ref.graph.producer(ref.root(tensor))
    return (
        transpose is not None
        and operators.of(transpose.op).transposes
        and ref.root(transpose.inputs[0]) == ref.root(reference)
    )


def _pair_with_nearest_form(
    context: Context, tensor: str, reference: str, reason: str, match: Match = Match.QUANTIZATION
) -> Pair:
    """Pair a tensor with the form of a reference tensor that resembles it most."""
    ref, is_after_codes = context.ref, context.be.is_after_codes(tensor)
    form = select_code_form(context, tensor, reference) if is_after_codes else reference
    if not is_after_codes and ref.root(tensor) == ref.root(reference) and not ref.is_after_codes(tensor):
        form = tensor
    if form in spell_tensor_name(tensor):
        return make_pair(tensor, form, Match.EXACT, "same name" if form == tensor else "same name except for ':0'")
    return make_pair(tensor, form, Match.QUANTIZATION if is_after_codes else match, reason)


def _by_name(context: Context, tensor: str, needed: NameSupport) -> Pair | None:
    """Pair a tensor by its own name or the name of its source tensor, if the graphs confirm it."""
    reference = find_namesake(context, tensor)
    if reference is None:
        return None
    earlier = find_clamp_input(context, tensor, reference)
    if earlier is not None:
        reason = f"named after {reference!r}, but its values fit the input of that node better"
        return make_pair(tensor, earlier, Match.FUSED, reason)
    clamp = find_clamp_replaced_by_codes(context, tensor, reference)
    possible_partners = [reference] if clamp is None else [clamp.inputs[0], reference]
    if all(_measure_support(context, tensor, name) < needed for name in possible_partners):
        return None
    if clamp is not None:
        context.clamped_later[tensor] = reference
        return _pair_with_clamp(context, tensor, reference, clamp)
    pair = _pair_by_name(context, tensor, reference)
    note_clamp_after(context, pair)
    return pair


def _pair_by_name(context: Context, tensor: str, reference: str) -> Pair:
    stated_name = context.be.graph.tensors[tensor].stands_for
    if stated_name == reference:
        reason = f"the model declares it equivalent to {stated_name!r}"
        return _pair_with_nearest_form(context, tensor, reference, reason, Match.ORIGIN)
    if stated_name is not None:
        return _pair_with_nearest_form(context, tensor, reference, f"both are equivalent to {stated_name!r}")
    if reference in spell_tensor_name(tensor):
        return _pair_same_name(context, tensor, reference)
    is_other_name = tensor in context.ref.graph.tensors or tensor in context.forms
    return _pair_with_nearest_form(
        context, tensor, reference, "equivalent tensor" if is_other_name else "the node that computes it has this name"
    )


def _pair_same_name(context: Context, tensor: str, reference: str) -> Pair:
    """Pair two tensors of the same name. A runtime that fuses nodes may keep the name of an earlier tensor."""
    node = context.be.graph.producer(tensor)
    if node is not None and is_clamped_later(context, tensor, reference, node):
        reason = f"the reference's code range replaces {node.op}; compared with the dequantized codes"
        return make_pair(tensor, select_code_form(context, tensor, reference), Match.QUANTIZATION, reason)
    last, folded = (reference, []) if node is None else follow_folded_nodes(context, tensor, reference)
    if not folded and node is not None:
        last, folded = _follow_added_bias(context, tensor, reference, node)
    if not folded and node is not None:
        last, folded = _follow_nodes_folded_into_weights(context, tensor, reference, node)
    if not folded:
        return _pair_with_nearest_form(context, tensor, reference, "equivalent tensor")
    extra = " + ".join(n.op for n in folded)
    return make_pair(tensor, last, Match.FUSED, f"the node that computes {tensor!r} also applies {extra}")


def _follow_added_bias(context: Context, tensor: str, reference: str, node: Node) -> tuple[str, list[Node]]:
    """Follow the reference through the addition of a bias that the backend's product already includes."""
    reference_node = context.ref.graph.producer(reference)
    readers = context.ref.consumers(reference)
    if (
        reference_node is None
        or len(readers) != 1
        or not has_bias(node)
        or has_bias(reference_node)
        or not have_same_kind(node, reference_node)
    ):
        return reference, []
    adds = operators.plain(readers[0]).adds_term and reads_only(context.ref, readers[0], reference)
    if not adds or not operators.plain(reference_node).product or is_applied_later(context, tensor, readers[0]):
        return reference, []
    return readers[0].outputs[0], [readers[0]]


def _follow_nodes_folded_into_weights(
    context: Context, tensor: str, reference: str, node: Node
) -> tuple[str, list[Node]]:
    """Follow the reference through nodes that, by its weights, are folded into the backend's convolution."""
    reference_node = context.ref.graph.producer(reference)
    if reference_node is None or operators.plain(node).sums is not operators.Sums.FILTER:
        return reference, []
    last, folded = follow_folded_nodes(context, tensor, reference, into_weights=True)
    if not folded or not all(operators.plain(folded_node).goes_into_weights for folded_node in folded):
        return reference, []
    return (reference, []) if folded_distance(context, node, reference_node, folded) is None else (last, folded)


def _pair_with_clamp(context: Context, tensor: str, reference: str, clamp: Node) -> Pair:
    """Pair a tensor with the input of its namesake's Relu or Clip, or with the output if the input was not recorded."""
    clamp_input = clamp.inputs[0]
    if clamp_input in context.ref.recorded:
        reason = f"its code range replaces the {clamp.op}; compared with the input of {clamp.name!r}"
        return make_pair(tensor, clamp_input, Match.FUSED, reason)
    bounds = bounds_of(context.ref, clamp)
    view = Transform(clamp_low=bounds[0], clamp_high=bounds[1]) if bounds else None
    relation = "same name" if reference in spell_tensor_name(tensor) else "the same tensor"
    return make_pair(
        tensor,
        reference,
        Match.EXACT,
        f"{relation}; {clamp.op} is applied to the backend's values before the comparison",
        view,
    )


# -- evidence for a name -----------------------------------------------------------------------------------------------


def spell_tensor_name(name: str) -> tuple[str, str]:
    """Return a tensor's name with and without ":0", TensorFlow's mark of a node's first output."""
    return name, name.removesuffix(_FIRST_OUTPUT) if name.endswith(_FIRST_OUTPUT) else name + _FIRST_OUTPUT


def find_namesake(context: Context, tensor: str) -> str | None:
    """Return the reference tensor that a backend tensor's name refers to, or None. Runtimes may reuse names.

    If only the name of a tensor is known, it may be the name of the node that computes it.
    """
    source = context.be.graph.tensors[tensor].stands_for or tensor
    spelt = (_find_by_spelling(context, tensor, name) for name in spell_tensor_name(source))
    return next(filter(None, spelt), None) or _find_by_node_name(context, source)


def _find_by_spelling(context: Context, tensor: str, source: str) -> str | None:
    """Return the reference tensor of exactly this name, or one that stands in for it."""
    tensors, forms = context.ref.graph.tensors, context.forms
    info, node = tensors.get(source), context.be.graph.producer(tensor)
    is_all_known = node is not None and has_unknown_inputs(node) and source == tensor
    if info is not None and not context.ref.folds(source) and (is_all_known or info.stands_for in (None, source)):
        return source
    twin = tensors.get(tensor)
    return tensor if source in forms and twin is not None and twin.stands_for == source else forms.get(source)


def _find_by_node_name(context: Context, tensor: str) -> str | None:
    """Return the only output of the reference node of this name, or None."""
    backend_node = context.be.graph.producer(tensor)
    if backend_node is None:
        return None
    if has_unknown_inputs(backend_node):
        candidates = (context.results.get(name) for name in (*spell_tensor_name(tensor), backend_node.name))
        return next(filter(None, candidates), None)
    reference_node = context.ref.graph.producer(backend_node.name)
    single = only_result(backend_node) is not None and reference_node is not None and has_unknown_inputs(reference_node)
    return backend_node.name if single else None


def _measure_support(context: Context, tensor: str, reference: str) -> NameSupport:
    """Return how strongly the two graphs confirm that a backend tensor is a reference tensor.

    One node with the same operator on the same inputs is strong evidence, and so is an output of both networks. If
    there is no strong evidence, two of three must agree: the operator, the inputs (possibly with several nodes in
    between, on either side), and the readers. A changed node keeps its inputs and readers; a rewired node keeps its
    operator and readers. In a recording that states only tensor names, nothing contradicts a name.
    """
    ref, be = context.ref, context.be
    backend_node, reference_node = be.graph.producer(tensor), ref.graph.producer(reference)
    if backend_node is None and reference_node is None:
        return NameSupport.STRONG
    if tensor in be.graph.outputs and reference in ref.graph.outputs:
        return NameSupport.STRONG
    if not be.graph.nodes or not ref.graph.nodes:
        return NameSupport.STRONG  # an empty graph contradicts nothing
    if (
        backend_node is None
        or reference_node is None
        or has_unknown_inputs(backend_node)
        or has_unknown_inputs(reference_node)
    ):
        return NameSupport.WEAK
    is_same_kind = have_same_kind(backend_node, reference_node)
    if is_same_kind and _has_same_inputs(context, backend_node, reference_node):
        return NameSupport.STRONG
    backend_node, reference_node = _find_biased_product(be, backend_node), _find_biased_product(ref, reference_node)
    is_same_kind = have_same_kind(backend_node, reference_node)
    has_same_entries, has_several_nodes = _compare_entries(context, tensor, reference)
    has_same_readers = _have_same_readers(context, tensor, reference)
    if is_same_kind and has_same_readers:
        distance = weight_distance(ref, reference_node, be, backend_node)
        if distance is None or np.less(distance, WEIGHT_MAX_REL_DISTANCE):
            return NameSupport.WEAK
    return NameSupport.WEAK if has_same_entries and (has_same_readers or has_several_nodes) else NameSupport.NONE


def _find_biased_product(run: IndexedRecording, node: Node) -> Node:
    """Return the product whose bias a node adds, or the node itself if it adds none."""
    if not operators.plain(node).adds_term:
        return node
    inputs = run.data_inputs(node)
    summed_node = run.graph.producer(inputs[0]) if len(inputs) == 1 else None
    return node if summed_node is None or operators.plain(summed_node).bias is None else summed_node


def _has_same_inputs(context: Context, backend_node: Node, reference_node: Node) -> bool:
    pairs = [context.pair_map.get(name) for name in context.be.data_inputs(backend_node)]
    sources = [pair.reference for pair in pairs if pair is not None]
    return len(sources) == len(pairs) and context.ref.hold_same_numbers(
        sources, context.ref.data_inputs(reference_node), in_order=False
    )


def _compare_entries(context: Context, tensor: str, reference: str) -> tuple[bool, bool]:
    """Return whether two tensors are computed from the same inputs, and whether several nodes are involved.

    A node that only moves values never corresponds to a node that computes, unless both sides have both nodes. Nothing
    is assumed about an unknown operator.
    """
    partners = context.pair_map.partners
    backend_part = between(context.be, tensor, partners)
    if backend_part is None:
        return False, False
    fed = {name for entry in backend_part[1] for name in partners[entry]}
    reference_part = between(context.ref, reference, fed)
    if reference_part is None or reference_part[1] != fed:
        return False, False
    makers = _source_node(context.be, tensor), _source_node(context.ref, reference)
    all_known = not any(node is not None and operators.is_unknown(node) for node in makers)
    moves = [None if node is None else operators.plain(node).moves for node in makers]
    backend_rows, reference_rows = (
        _plain_operators(context.be, tensor, backend_part[0]),
        _plain_operators(context.ref, reference, reference_part[0]),
    )
    if (
        all_known
        and moves[0] != moves[1]
        and sorted(row.name for row in backend_rows) != sorted(row.name for row in reference_rows)
    ):
        return False, False
    return True, bool(backend_part[0] or reference_part[0])


def _source_node(run: IndexedRecording, tensor: str) -> Node | None:
    """Return the node that computes a tensor's values, possibly in a different shape, or None for an input."""
    node = run.graph.producer(tensor)
    while node is not None and operators.plain(node).moves is operators.Move.RESHAPE:
        preceding_node = run.graph.producer(run.data_inputs(node)[0])
        if preceding_node is None:
            break
        node = preceding_node
    return node


def _plain_operators(run: IndexedRecording, tensor: str, inside: Iterable[str]) -> list[operators.Operator]:
    """Return the plain operators between a tensor and its sources, starting with its own."""
    nodes = {node.name: node for name in (tensor, *inside) if (node := run.graph.producer(name)) is not None}
    return [operators.plain(node) for node in nodes.values()]


def _have_same_readers(context: Context, tensor: str, reference: str) -> bool:
    """Return whether nodes with equal operators read a backend and a reference tensor, or neither has readers."""
    backend_families = {operators.plain(node).family for node in context.be.consumers(tensor)}
    reference_families = {operators.plain(node).family for node in context.ref.consumers(reference)}
    return not backend_families.isdisjoint(reference_families) or not (backend_families or reference_families)


# -- the better of two tensors -----------------------------------------------------------------------------------------


def is_claimed(context: Context, reference: str, tensor: str) -> bool:
    """Return whether a reference tensor is the partner of another tensor, by a pair or a well-supported name."""
    if reference in context.pair_map.taken:
        return True
    ref, be = context.ref, context.be
    forms = ref.members(reference)
    claimed_names = (*forms, *(ref.graph.tensors[form].stands_for or form for form in forms))
    names = dict.fromkeys(spelling for name in claimed_names for spelling in spell_tensor_name(name))
    own_root = be.root(tensor)
    holders = [name for name in names if name in be.graph.tensors and be.root(name) != own_root]
    return any(_has_claim(context, name, forms) for name in holders)


def _has_claim(context: Context, holder: str, references: Sequence[str]) -> bool:
    """Return whether a backend tensor has the name of one of the given reference tensors, confirmed by the graphs."""
    same_name = None if holder in context.pair_map else find_namesake(context, holder)
    if same_name is None or same_name not in references:
        return False
    return any(
        _measure_support(context, holder, name) is NameSupport.STRONG
        for name in dict.fromkeys((same_name, references[0]))
    )


def is_fused_with_next(context: Context, tensor: str, reference: str) -> bool:
    """Return whether a later backend tensor suits a reference tensor better, because the reference fuses the nodes."""
    be, current = context.be, tensor
    first = be.graph.producer(tensor)
    is_transpose = first is not None and operators.plain(first).transposes
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = [
            node for node in be.consumers(current) if operators.of(node.op).counts is not operators.Count.EXTENTS
        ]
        if len(readers) != 1 or len(be.data_inputs(readers[0])) != 1:
            return False
        reader, row = readers[0], operators.plain(readers[0])
        if not (row.transposes if is_transpose else row.fuses_into_predecessor):
            return False
        current = reader.outputs[0]
        for name in be.members(current):
            same_name = find_namesake(context, name)
            if same_name is not None and _holds_values_of(context.ref, reference, same_name):
                is_input = context.ref.graph.producer(reference) is None
                if is_input or is_clamped_later(context, name, reference, reader):
                    return False
                if _adds_missing_bias(context, tensor, reference, reader) and _measure_support(
                    context, name, same_name
                ):
                    return True
                return _have_same_readers(context, name, same_name)
    return False


def _adds_missing_bias(context: Context, tensor: str, reference: str, reader: Node) -> bool:
    """Return whether a node adds the bias that the reference's product has but the backend's product lacks."""
    backend_product, reference_product = context.be.graph.producer(tensor), context.ref.graph.producer(reference)
    if backend_product is None or reference_product is None or not operators.plain(reader).adds_term:
        return False
    return has_bias(reference_product) and not has_bias(backend_product)


def _holds_values_of(ref: IndexedRecording, reference: str, source: str) -> bool:
    """Return whether a reference tensor holds the values of another, possibly in a different shape."""
    grouped = [
        node.outputs[0] for node in ref.consumers(reference) if operators.of(node.op).moves is operators.Move.RESHAPE
    ]
    return ref.root(source) in map(ref.root, (reference, *grouped))


def outweighs_name(context: Context, tensor: str, reference: str) -> bool:
    """Return whether the readers of a tensor confirm an unclaimed reference tensor that its inputs lead to.

    Such a tensor outweighs the one that its name refers to.
    """
    return not is_claimed(context, reference, tensor) and _have_same_readers(context, tensor, reference)
