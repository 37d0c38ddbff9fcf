"""Whether a name that two graphs share names the same tensor in both: exporters number tensors, and numbers shift."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np

from qdebug.compare.align.clamps import (
    after_codes,
    bounds_of,
    clamp_left_to_codes,
    is_clamped_later,
    note_clamp_after,
)
from qdebug.compare.align.context import Context, only_result, paired
from qdebug.compare.align.expand import alike, says_nothing
from qdebug.compare.align.folded import folded_distance
from qdebug.compare.align.fused import done_later, has_bias, reads_only, through_folded
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.nearness import enters_clamp
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.align.region import between
from qdebug.compare.align.weights import weight_distance
from qdebug.model import Node, operators
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES, WEAK_NAME_CONFIDENCE, WEIGHT_MAX_REL_DISTANCE

__all__ = [
    "form_of_another",
    "inputs_of_a_name",
    "is_claimed",
    "made_with_what_follows",
    "namesake",
    "outweighs_name",
    "spellings",
    "strong_name",
    "weak_name",
]


_FIRST_OUTPUT = ":0"


class NameSupport(IntEnum):
    """How well two graphs bear out that a name means one tensor."""

    NONE = 0
    WEAK = 1
    STRONG = 2


# -- strategies ------------------------------------------------------------------------------------------------------


def inputs_of_a_name(context: Context) -> Iterator[Pair]:
    """Pair what no node makes by its name."""
    for tensor in context.order:
        if context.be.graph.producer(tensor) is None and not context.be.folds(tensor):
            pair = weak_name(context, tensor)
            if pair is not None:
                yield pair


def strong_name(context: Context, tensor: str, _: Node) -> Pair | None:
    """Pair a tensor by its name if the graphs bear that out strongly; less will do where the model states the name."""
    said = context.be.graph.tensors[tensor].stands_for is not None
    return _by_name(context, tensor, NameSupport.WEAK if said else NameSupport.STRONG)


def weak_name(context: Context, tensor: str, _: Node | None = None) -> Pair | None:
    """Pair a tensor by its name if the graphs bear that out at all."""
    pair = _by_name(context, tensor, NameSupport.WEAK)
    return None if pair is None else replace(pair, confidence=WEAK_NAME_CONFIDENCE)


def form_of_another(context: Context, tensor: str, node: Node) -> Pair | None:
    """Pair a tensor with the partner of the tensor it is another form of."""
    source = context.be.handed_on(node) or node.inputs[0]
    pair = context.found.get(source)
    row = operators.plain(node)
    # what changes nothing here may change something in the reference
    own = (
        pair is None
        or row.neutral is not None
        or row.moves is operators.Move.SLICE
        or _is_turned_output(context, tensor, pair.reference)
    )
    named = weak_name(context, tensor) if own else None
    if named is not None:
        return named
    if pair is None:
        context.unpaired(tensor, f"it is another form of {source!r}, which has no partner")
        return None
    reference = context.clamped_later.get(source, pair.reference)
    context.clamped_later[tensor] = reference
    said = "codes of" if row.quantizes else "real values of the codes" if row.dequantizes else "same values as"
    return _form(context, tensor, reference, f"{said} {source!r}")


def _is_turned_output(context: Context, tensor: str, reference: str) -> bool:
    """Tell whether an output of both networks is a reference tensor turned: the backend turned it further up."""
    ref = context.ref
    if tensor not in context.be.graph.outputs or tensor not in ref.graph.outputs:
        return False
    turn = ref.graph.producer(ref.root(tensor))
    return turn is not None and operators.of(turn.op).transposes and ref.root(turn.inputs[0]) == ref.root(reference)


def _form(context: Context, tensor: str, reference: str, reason: str, match: Match = Match.QUANTIZATION) -> Pair:
    """Pair a tensor with the form of a reference tensor that is most like it."""
    ref, after = context.ref, context.be.is_after_codes(tensor)
    form = after_codes(context, tensor, reference) if after else reference
    if not after and ref.root(tensor) == ref.root(reference) and not ref.is_after_codes(tensor):
        form = tensor
    if form in spellings(tensor):
        return paired(tensor, form, Match.EXACT, "same name" if form == tensor else "same name but for ':0'")
    return paired(tensor, form, Match.QUANTIZATION if after else match, reason)


def _by_name(context: Context, tensor: str, needed: NameSupport) -> Pair | None:
    """Pair a tensor by its name, or by the name it is said to stand for, if the graphs bear that out."""
    reference = namesake(context, tensor)
    if reference is None:
        return None
    earlier = enters_clamp(context, tensor, reference)
    if earlier is not None:
        reason = f"named after {reference!r}, and its values are nearer to those that enter that"
        return paired(tensor, earlier, Match.FUSED, reason)
    clamp = clamp_left_to_codes(context, tensor, reference)
    meant = [reference] if clamp is None else [clamp.inputs[0], reference]
    if all(_judged(context, tensor, name) < needed for name in meant):
        return None
    if clamp is not None:
        context.clamped_later[tensor] = reference
        return _around_clamp(context, tensor, reference, clamp)
    pair = _named(context, tensor, reference)
    note_clamp_after(context, pair)
    return pair


def _named(context: Context, tensor: str, reference: str) -> Pair:
    said = context.be.graph.tensors[tensor].stands_for
    if said == reference:
        reason = f"the model says that it is another form of {said!r}"
        return _form(context, tensor, reference, reason, Match.ORIGIN)
    if said is not None:
        return _form(context, tensor, reference, f"both are forms of {said!r}")
    if reference in spellings(tensor):
        return _of_same_name(context, tensor, reference)
    other = tensor in context.ref.graph.tensors or tensor in context.forms
    return _form(context, tensor, reference, "another form of it" if other else "the node that makes it has this name")


def _of_same_name(context: Context, tensor: str, reference: str) -> Pair:
    """Pair two tensors of one name; a runtime that folds what follows into a node may keep the earlier name."""
    node = context.be.graph.producer(tensor)
    if node is not None and is_clamped_later(context, tensor, reference, node):
        reason = f"the reference leaves {node.op} to its codes: compared with what they stand for"
        return paired(tensor, after_codes(context, tensor, reference), Match.QUANTIZATION, reason)
    last, folded = (reference, []) if node is None else through_folded(context, tensor, reference)
    if not folded and node is not None:
        last, folded = _with_its_bias(context, tensor, reference, node)
    if not folded and node is not None:
        last, folded = _in_its_weights(context, tensor, reference, node)
    if not folded:
        return _form(context, tensor, reference, "another form of it")
    extra = " + ".join(n.op for n in folded)
    return paired(tensor, last, Match.FUSED, f"the node that makes {tensor!r} also does {extra}")


def _with_its_bias(context: Context, tensor: str, reference: str, node: Node) -> tuple[str, list[Node]]:
    """Follow the reference through the sum that adds the bias which a product of one name has in the backend alone."""
    theirs = context.ref.graph.producer(reference)
    readers = context.ref.consumers(reference)
    if theirs is None or len(readers) != 1 or not has_bias(node) or has_bias(theirs) or not alike(node, theirs):
        return reference, []
    adds = operators.plain(readers[0]).adds_term and reads_only(context.ref, readers[0], reference)
    if not adds or not operators.plain(theirs).product or done_later(context, tensor, readers[0]):
        return reference, []
    return readers[0].outputs[0], [readers[0]]


def _in_its_weights(context: Context, tensor: str, reference: str, node: Node) -> tuple[str, list[Node]]:
    """Follow the reference through nodes that went into the weights of a convolution of one name, if these show it."""
    theirs = context.ref.graph.producer(reference)
    if theirs is None or operators.plain(node).sums is not operators.Sums.FILTER:
        return reference, []
    last, folded = through_folded(context, tensor, reference, into_weights=True)
    if not folded or not all(operators.plain(each).goes_into_weights for each in folded):
        return reference, []
    return (reference, []) if folded_distance(context, node, theirs, folded) is None else (last, folded)


def _around_clamp(context: Context, tensor: str, reference: str, clamp: Node) -> Pair:
    """Pair a tensor with what enters the Relu or Clip of its name; if that was not recorded, with what comes out."""
    before = clamp.inputs[0]
    if before in context.ref.recorded:
        reason = f"the codes behind it do the {clamp.op}: it is compared with what enters {clamp.name!r}"
        return paired(tensor, before, Match.FUSED, reason)
    bounds = bounds_of(context.ref, clamp)
    view = Transform(clamp_low=bounds[0], clamp_high=bounds[1]) if bounds else None
    said = "same name" if reference in spellings(tensor) else "the same tensor"
    return paired(tensor, reference, Match.EXACT, f"{said}; {clamp.op} applied to the backend's values first", view)


# -- what a name leads to, and what it is worth ----------------------------------------------------------------------


def spellings(name: str) -> tuple[str, str]:
    """Return a tensor's name, and the same with or without ":0", TensorFlow's mark of a node's first output."""
    return name, name.removesuffix(_FIRST_OUTPUT) if name.endswith(_FIRST_OUTPUT) else name + _FIRST_OUTPUT


def namesake(context: Context, tensor: str) -> str | None:
    """Return the reference tensor that a name leads to: a runtime may use old names anew, for other values.

    Where nothing is known of a tensor but its name, that may be the name of the node that makes it.
    """
    source = context.be.graph.tensors[tensor].stands_for or tensor
    spelt = (_of_spelling(context, tensor, name) for name in spellings(source))
    return next(filter(None, spelt), None) or _of_node(context, source)


def _of_spelling(context: Context, tensor: str, source: str) -> str | None:
    """Return the reference tensor of exactly a name, or one that stands for that."""
    tensors, forms = context.ref.graph.tensors, context.forms
    own = tensors.get(source)
    if own is not None and own.stands_for in (None, source) and not context.ref.folds(source):
        return source
    twin = tensors.get(tensor)
    return tensor if source in forms and twin is not None and twin.stands_for == source else forms.get(source)


def _of_node(context: Context, tensor: str) -> str | None:
    """Return what a node of a name makes, if that is one tensor, where either side says nothing else."""
    ours = context.be.graph.producer(tensor)
    if ours is None:
        return None
    if says_nothing(ours):
        known = (context.results.get(name) for name in (*spellings(tensor), ours.name))
        return next(filter(None, known), None)
    theirs = context.ref.graph.producer(ours.name)
    single = only_result(ours) is not None and theirs is not None and says_nothing(theirs)
    return ours.name if single else None


def _judged(context: Context, tensor: str, reference: str) -> NameSupport:
    """Tell how well the two graphs bear out that a backend tensor is a reference tensor.

    One node with the same operator on the same inputs is strong evidence, and so is an output of both networks.
    Short of that, two of three must hold: the operator, the inputs (perhaps with several nodes in between, on
    either side), and what reads the tensor. A node that was changed still has its inputs and readers; a node that
    was connected elsewhere still has its operator and readers. Where a recording only says what its tensors are
    called, nothing speaks against a name.
    """
    ref, be = context.ref, context.be
    ours, theirs = be.graph.producer(tensor), ref.graph.producer(reference)
    if ours is None and theirs is None:
        return NameSupport.STRONG
    if tensor in be.graph.outputs and reference in ref.graph.outputs:
        return NameSupport.STRONG
    if not be.graph.nodes or not ref.graph.nodes:
        return NameSupport.STRONG  # a graph that states nothing contradicts nothing
    if ours is None or theirs is None or says_nothing(ours) or says_nothing(theirs):
        return NameSupport.WEAK
    same = alike(ours, theirs)
    if same and _same_inputs(context, ours, theirs):
        return NameSupport.STRONG
    ours, theirs = _product(be, ours), _product(ref, theirs)
    same = alike(ours, theirs)
    reads, several = _same_entries(context, tensor, reference)
    used = _used_alike(context, tensor, reference)
    if same and used:
        distance = weight_distance(ref, theirs, be, ours)
        if distance is None or np.less(distance, WEIGHT_MAX_REL_DISTANCE):
            return NameSupport.WEAK
    return NameSupport.WEAK if reads and (used or several) else NameSupport.NONE


def _product(run: IndexedRecording, node: Node) -> Node:
    """Return the product to which a node adds no more than its bias; else the node: one side may have one for both."""
    if not operators.plain(node).adds_term:
        return node
    inputs = run.data_inputs(node)
    before = run.graph.producer(inputs[0]) if len(inputs) == 1 else None
    return node if before is None or operators.plain(before).bias is None else before


def _same_inputs(context: Context, ours: Node, theirs: Node) -> bool:
    mine = [context.found.get(name) for name in context.be.data_inputs(ours)]
    known = [pair.reference for pair in mine if pair is not None]
    return len(known) == len(mine) and context.ref.alike(known, context.ref.data_inputs(theirs), in_order=False)


def _same_entries(context: Context, tensor: str, reference: str) -> tuple[bool, bool]:
    """Tell whether what leads to two tensors begins at the same ones, and whether it is more than one node.

    A node that only moves values is never another form of one that computes, unless both sides have the two. What
    an unknown operator does is not known.
    """
    partners = context.found.partners
    ours = between(context.be, tensor, partners)
    if ours is None:
        return False, False
    fed = {name for entry in ours[1] for name in partners[entry]}
    theirs = between(context.ref, reference, fed)
    if theirs is None or theirs[1] != fed:
        return False, False
    makers = context.be.graph.producer(tensor), context.ref.graph.producer(reference)
    known = not any(node is not None and operators.is_unknown(node) for node in makers)
    mine, other = _rows(context.be, tensor, ours[0]), _rows(context.ref, reference, theirs[0])
    if (
        known
        and mine[0].moves != other[0].moves
        and sorted(row.name for row in mine) != sorted(row.name for row in other)
    ):
        return False, False
    return True, bool(ours[0] or theirs[0])


def _rows(run: IndexedRecording, tensor: str, inside: Iterable[str]) -> list[operators.Operator]:
    """Return the plain operators that make a tensor and those in between, its own first."""
    nodes = {node.name: node for name in (tensor, *inside) if (node := run.graph.producer(name)) is not None}
    return [operators.plain(node) for node in nodes.values()]


def _used_alike(context: Context, tensor: str, reference: str) -> bool:
    """Tell whether nodes of one operator read a backend tensor and a reference tensor, or none reads either."""
    ours = {operators.plain(node).family for node in context.be.consumers(tensor)}
    theirs = {operators.plain(node).family for node in context.ref.consumers(reference)}
    return not ours.isdisjoint(theirs) or not (ours or theirs)


# -- which of two tensors has the better claim -----------------------------------------------------------------------


def is_claimed(context: Context, reference: str, tensor: str) -> bool:
    """Tell whether a reference tensor is another's partner than a given one's: found, or by a well founded name."""
    if reference in context.found.taken:
        return True
    ref, be = context.ref, context.be
    forms = ref.members(reference)
    said = (*forms, *(ref.graph.tensors[form].stands_for or form for form in forms))
    names = dict.fromkeys(spelling for name in said for spelling in spellings(name))
    own = be.root(tensor)
    holders = [name for name in names if name in be.graph.tensors and be.root(name) != own]
    return any(_has_claim(context, name, forms) for name in holders)


def _has_claim(context: Context, holder: str, forms: Sequence[str]) -> bool:
    """Tell whether a backend tensor is one of some reference tensors by its name, and the graphs bear that out."""
    named = None if holder in context.found else namesake(context, holder)
    if named is None or named not in forms:
        return False
    return any(_judged(context, holder, name) is NameSupport.STRONG for name in dict.fromkeys((named, forms[0])))


def made_with_what_follows(context: Context, tensor: str, reference: str) -> bool:
    """Tell whether a later backend tensor has the better claim, by its name: the reference folds nodes into one."""
    be, seen = context.be, tensor
    first = be.graph.producer(tensor)
    turned = first is not None and operators.plain(first).transposes
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = [node for node in be.consumers(seen) if operators.of(node.op).counts is not operators.Count.EXTENTS]
        if len(readers) != 1 or len(be.data_inputs(readers[0])) != 1:
            return False
        reader, row = readers[0], operators.plain(readers[0])
        if not (row.transposes if turned else row.folded_before):
            return False
        seen = reader.outputs[0]
        for name in be.members(seen):
            other = namesake(context, name)
            if other is not None and _arranges(context.ref, reference, other):
                given = context.ref.graph.producer(reference) is None
                if given or is_clamped_later(context, name, reference, reader):
                    return False
                if _adds_its_bias(context, tensor, reference, reader) and _judged(context, name, other):
                    return True
                return _used_alike(context, name, other)
    return False


def _adds_its_bias(context: Context, tensor: str, reference: str, reader: Node) -> bool:
    """Tell whether a node behind a product without a bias adds the one that the reference's product has."""
    ours, theirs = context.be.graph.producer(tensor), context.ref.graph.producer(reference)
    if ours is None or theirs is None or not operators.plain(reader).adds_term:
        return False
    return _has_bias(theirs) and not _has_bias(ours)


def _has_bias(node: Node) -> bool:
    row = operators.plain(node)
    return row.bias is not None and any(node.inputs[row.bias : row.bias + 1])


def _arranges(ref: IndexedRecording, reference: str, other: str) -> bool:
    """Tell whether a reference tensor holds the values of another, be it in another shape."""
    grouped = [
        node.outputs[0] for node in ref.consumers(reference) if operators.of(node.op).moves is operators.Move.RESHAPE
    ]
    return ref.root(other) in map(ref.root, (reference, *grouped))


def outweighs_name(context: Context, tensor: str, reference: str) -> bool:
    """Tell whether what a tensor is made of and what reads it both lead to another tensor than its name does."""
    return not is_claimed(context, reference, tensor) and _used_alike(context, tensor, reference)
