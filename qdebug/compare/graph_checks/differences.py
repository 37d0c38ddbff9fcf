"""Compares what the two graphs say of a tensor's nodes: other weights, another bias, stride or activation.

What the graphs say tells what is different where replays show that something is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.compare.align.clamps import bounds_of, code_span, codes_clamp
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair, block_of, clamp_of
from qdebug.compare.attribute.backend_replay import inputs_of, real_values
from qdebug.compare.attribute.band import finite_norm, minus, segment_share, unit_roundoff
from qdebug.compare.attribute.declared_format import declared_unit
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.attribute.rounding import scales_by_constants
from qdebug.compare.attribute.segments import Segment
from qdebug.compare.graph_checks.casts import changed_by_cast
from qdebug.compare.graph_checks.constants import (
    different_beside,
    different_constant,
    different_folded,
    different_weight,
    unrepresentable_constant,
)
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding, FindingKind, graph_difference
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import AttrValue, Node, Recording, operators
from qdebug.model.thresholds.alignment import CLEARER_CANDIDATE_MAX_ERROR_RATIO
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["declared_difference", "has_codes", "missing_before", "says_the_same", "stated_difference"]

_ORDERED = frozenset({"axis", "axes", "perm"})
"""Attributes that number dimensions."""
_SHAPING = _ORDERED | {"kernel_shape", "strides", "pads", "dilations", "group", "transA", "transB", "alpha"}
_BESIDE = frozenset(("channels_last", "activation", "activation_params"))
"""Attributes that say how a node is laid out and what is fused into it."""


def says_the_same(facts: TensorFacts, places: Sequence[tuple[int, int]] = ()) -> bool:
    """Tell whether a backend node is declared exactly as its one reference node, operands included.

    Args:
        facts: What the node makes; never so of several nodes that are judged together.
        places: Samples and steps at which an attribute that one side leaves out is tried.
    """
    pair, node, segment = facts.entry.pair, facts.node, facts.segment
    if segment.wide:
        return False
    if not segment.nodes:
        return facts.be.handed_on(node) is not None or _is_clamped_before(facts)
    theirs = segment.nodes[0]
    if len(segment.nodes) != 1 or pair.reference not in theirs.outputs:
        return False
    forms = facts.our_form(node), facts.their_form(theirs)
    return (
        forms[0].op == forms[1].op
        and node.outputs.index(pair.backend) == theirs.outputs.index(pair.reference)
        and len(forms[0].inputs) == len(forms[1].inputs)
        and all(_is_same_operand(facts, *names) for names in zip(forms[0].inputs, forms[1].inputs, strict=True))
        and _same_attributes(facts, theirs, places)
    )


def _is_clamped_before(facts: TensorFacts) -> bool:
    """Tell whether a backend's Relu or Clip does what the reference's codes, or its node before, have done."""
    node = facts.node
    bounds = bounds_of(facts.be, node)
    before = facts.replays.pairs.get(node.inputs[0]) if node.inputs else None
    if bounds is None or before is None:
        return False
    members = facts.ref.members(facts.entry.pair.reference)
    return clamp_of(before.backend_view) == bounds or any(codes_clamp(facts.ref, m, bounds) for m in members)


def _is_same_operand(facts: TensorFacts, ours: str, theirs: str) -> bool:
    """Tell whether two operands are partners, or constants with equal real values."""
    if not ours or not theirs:
        return ours == theirs
    if facts.be.folds(ours) and facts.ref.folds(theirs):
        recorded = facts.backend.has(ours) and facts.reference.has(theirs)
        return not recorded or np.array_equal(real_values(facts.backend, ours), real_values(facts.reference, theirs))
    partner = facts.replays.pairs.get(ours)
    return partner is not None and facts.ref.root(partner.reference) == facts.ref.root(theirs)


def has_codes(facts: TensorFacts) -> bool:
    """Tell whether the backend's nodes compute with codes, or with constants that are rounded to them."""
    tensors, own = facts.backend.graph.tensors, facts.segment.own
    names = {name for node in own for name in (*node.inputs, *node.outputs) if name}
    return any(operators.of(node.op).takes_codes for node in own) or any(
        tensors[form].quant is not None for name in names for form in facts.be.members(name)
    )


def declared_difference(facts: TensorFacts) -> Finding:
    """Return what the graphs declare differently, where the results are known to differ."""
    segment, node = facts.segment, facts.node
    known = " + ".join(each.op for each in segment.nodes)
    if not segment.wide:
        said = f"its operator computes something else than {known}" if known else _NOT_HANDED_ON
        return (
            stated_difference(facts)
            or _attribute_beyond(facts, known)
            or graph_difference(FindingKind.OPERATOR, node, said)
        )
    read = ", ".join(repr(tensor) for tensor in segment.feeds.values())
    own = " + ".join(each.op for each in segment.own)
    alike = Counter(each.op for each in segment.own) == Counter(each.op for each in segment.nodes)
    said = f"{own} on {read} computes something else than {known} of the reference"
    if not known:
        said = f"{own} on {read} {_NOT_HANDED_ON}"
    if alike:
        said = f"what lies between {read} and this was not recorded; {own}, computed exactly, give other values"
    inside = (
        different_weight(facts)
        or _lossy_cast(facts)
        or _other_operator(segment)
        or _other_attribute_inside(facts)
        or different_beside(facts)
    )
    if inside is None:
        return graph_difference(FindingKind.OPERATOR, node, said)
    return replace(inside, sentence=f"{inside.sentence}; {said}")


_NOT_HANDED_ON = "changes values that the reference hands on as they are"


def _lossy_cast(facts: TensorFacts) -> Finding | None:
    """Find a cast to integers that changes numbers, in a part where the reference casts nothing."""
    if any(operators.of(node.op).casts for node in facts.segment.nodes):
        return None
    for node in facts.segment.own:
        changed = changed_by_cast(facts.backend, node) if operators.of(node.op).casts else None
        if changed is not None and changed.count:
            said = f"{node.op} {node.name!r}: the {changed.sentence}"
            return graph_difference(FindingKind.PRECISION, node, said, evidence=changed.dtype)
    return None


def stated_difference(facts: TensorFacts) -> Finding | None:
    """Return what the graphs state differently of one node: operator, attributes, constants, operands, if any."""
    node, main, segment = facts.node, facts.main, facts.segment
    if main is None:
        known = " + ".join(n.op for n in segment.nodes)
        said = f"{node.op} stands where the reference has {known or 'no node'}"
        return graph_difference(FindingKind.OPERATOR, node, said)
    ours, theirs = facts.our_form(node), facts.their_form(main)
    others = segment.beside(main)

    def is_same(name: str) -> bool:
        return _is_same_in_its_order(facts, ours, theirs, name)

    return (
        _other_attribute(facts, node, ours, theirs, is_same=is_same)
        or unrepresentable_constant(facts.replays, main, node)
        or (  # into the weights: then they are other ones by right
            different_folded(facts, ours, theirs, others)
            if scales_by_constants(facts.ref, others)
            else different_constant(facts, ours, theirs)
        )
        or (_different_operands(facts, ours, theirs) if segment.elsewhere else None)
        or _missing_beside(facts, main)
    )


def _different_operands(facts: TensorFacts, ours: Node, theirs: Node) -> Finding | None:
    root, pairs = facts.ref.root, facts.replays.pairs
    mine = [pairs[name].reference for name in facts.be.data_inputs(ours) if name in pairs]
    missing = [n for n in facts.ref.data_inputs(theirs) if root(n) not in set(map(root, mine))]
    if not missing or not mine:
        return None
    read = " and ".join(map(repr, dict.fromkeys(mine)))
    said = f"it reads {read}, and not {missing[0]!r} as the reference does"
    return graph_difference(FindingKind.OPERAND, ours, said, evidence=missing[0])


def _other_attribute_inside(facts: TensorFacts) -> Finding | None:
    """Find an attribute of one node of a part that is not that of the reference's one node of the same operator."""
    segment = facts.segment
    turns = any(operators.of(each.op).transposes for each in (*segment.own, *segment.nodes))
    theirs = _by_family(segment.nodes)

    def is_same(name: str) -> bool:
        return turns and name in _ORDERED  # of another order of dimensions

    for family, nodes in _by_family(segment.own).items():
        other = theirs.get(family, [])
        if len(nodes) != 1 or len(other) != 1:
            continue
        ours_form, their_form = facts.our_form(nodes[0]), facts.their_form(other[0])
        if ours_form.op != their_form.op:
            continue
        found = _other_attribute(facts, nodes[0], ours_form, their_form, is_same=is_same)
        if found is not None:
            return replace(found, sentence=f"of {nodes[0].op} {nodes[0].name!r}, {found.sentence}")
    return None


def _same_attributes(facts: TensorFacts, theirs: Node, places: Sequence[tuple[int, int]]) -> bool:
    """Tell whether the backend's node has the attributes of a reference node.

    What one side alone states may be the default: then both compute the same with it.

    Args:
        facts: What the backend's node makes.
        theirs: The reference's node.
        places: Samples and steps at which an attribute that one side leaves out is tried.
    """
    opset = real_form(facts.node, facts.backend.graph.opset)[1]
    their_opset = real_form(theirs, facts.reference.graph.opset)[1]
    ours, theirs = facts.our_form(facts.node), facts.their_form(theirs)
    keys = _keys(ours), _keys(theirs)
    if keys[0] == keys[1]:
        return True
    if any(keys[0][name] != keys[1][name] for name in keys[0].keys() & keys[1].keys()):
        return False
    kept = {name: value for name, value in ours.attrs.items() if name in _BESIDE}
    other = replace(ours, attrs={**_stated(theirs), **kept})
    try:
        for place in places:
            values = inputs_of(facts.backend, ours, place)
            one, two = run_node(ours, values, opset), run_node(other, values, their_opset)
            if not all(np.array_equal(one[name], two[name], equal_nan=one[name].dtype.kind == "f") for name in one):
                return False
    except (KernelError, NotRecordedError):
        return False
    return bool(places)


def _other_attribute(
    facts: TensorFacts, node: Node, ours: Node, theirs: Node, *, is_same: Callable[[str], bool]
) -> Finding | None:
    """Find an attribute of a backend node that is not the reference's; None if there is none.

    A harness may leave out what it does not know. Then the default is not what the node computes by, and counts only
    where the values show it.

    Args:
        facts: What the node leads to.
        node: The backend's node.
        ours: The same on real numbers.
        theirs: The reference's node on real numbers.
        is_same: Tells of an attribute that both state whether its two values mean the same.
    """
    keys = _keys(ours), _keys(theirs)
    names = [name for name in keys[0] if name in keys[1] and keys[0][name] != keys[1][name]]
    names = [name for name in names if name in _SHAPING] or names
    names = [name for name in names if not is_same(name)]
    if names:
        return _other(node, names[0], _written(ours.attrs[names[0]]), _written(theirs.attrs[names[0]]))
    mine, other = _stated(ours), _stated(theirs)
    for name in sorted(mine.keys() ^ other.keys(), key=lambda each: (each not in _SHAPING, each)):
        is_mine = name in mine
        run, form = (facts.reference, theirs) if is_mine else (facts.backend, ours)
        stated = (mine if is_mine else other)[name]
        default = _default_in_force(run, form, name, stated)
        if default is None or (name == "transB" and _is_kept_turned(facts, ours, theirs)):
            continue
        return _other(node, name, *((_written(stated), default) if is_mine else (default, _written(stated))))
    return None


def _attribute_beyond(facts: TensorFacts, known: str) -> Finding | None:
    """Find the one attribute of a backend node without which it computes what the reference's nodes do.

    These have no attribute of that name, as MatMul has none that turns an operand.

    Args:
        facts: What the backend's node makes.
        known: The reference's operators.
    """
    ours, opset = real_form(facts.node, facts.backend.graph.opset)
    places = facts.places
    found = [
        name for name in _stated(ours) if places and all(_is_alike(facts, ours, opset, name, place) for place in places)
    ]
    if len(found) != 1:
        return None
    name = found[0]
    said = f"its {name} is {_written(ours.attrs[name])}, and without it it computes what {known} of the reference does"
    return graph_difference(FindingKind.ATTRIBUTE, facts.node, said, evidence=name)


def _is_alike(facts: TensorFacts, ours: Node, opset: Mapping[str, int], name: str, place: tuple[int, int]) -> bool:
    """Tell whether a backend node without an attribute gives what the reference's nodes make of the same inputs."""
    rest = {key: value for key, value in ours.attrs.items() if key != name}
    try:
        theirs = facts.theirs(place)
        made = run_node(replace(ours, attrs=rest), inputs_of(facts.backend, ours, place), opset)[ours.outputs[0]]
    except (KernelError, NotRecordedError):
        return False
    share = segment_share(max(unit_roundoff(made.dtype), declared_unit(facts.backend)))
    return made.shape == theirs.shape and finite_norm(minus(made, theirs)) <= share * finite_norm(theirs)


def _other(node: Node, name: str, mine: str, other: str) -> Finding:
    said = f"its {name} is {mine}, the reference's is {other}"
    return graph_difference(FindingKind.ATTRIBUTE, node, said, evidence=name)


def _is_same_in_its_order(facts: TensorFacts, ours: Node, theirs: Node, name: str) -> bool:
    """Tell whether an attribute says the same of a tensor that is kept in another order of dimensions.

    A group counts the channels that fill up a block too, and an axis is where its dimension has gone.
    """
    mine, other = ours.attrs.get(name), theirs.attrs.get(name)
    if not isinstance(mine, int) or not isinstance(other, int):
        return False
    if name == "transB":
        return _is_kept_turned(facts, ours, theirs)
    output = facts.node.outputs[0]
    block = block_of(facts.backend.graph.tensors[output].layout)
    if name == "group" and block is not None:
        return mine == -(-other // block) * block
    pair = facts.replays.pairs.get(output)
    turned = None if pair is None or pair.backend_view is None else pair.backend_view.transpose
    return (
        name == "axis"
        and turned is not None
        and -len(turned) <= other < len(turned)
        and (turned[other] == mine % len(turned))
    )


def _is_kept_turned(facts: TensorFacts, ours: Node, theirs: Node) -> bool:
    """Tell whether a weight is kept in the other order of rows and columns: a square one, if not as it is.

    Where a node does not say its weight nothing tells how it is kept, and it is taken to be.
    """
    if min(len(ours.inputs), len(theirs.inputs)) < 2:
        return True
    one, other = ours.inputs[1], theirs.inputs[1]
    if not (facts.backend.has(one) and facts.reference.has(other)):
        return False
    mine, kept = facts.backend.load(one), facts.reference.load(other)
    return mine.shape == kept.shape[::-1] and not np.array_equal(mine, kept)


def _default_in_force(recording: Recording, form: Node, name: str, stated: AttrValue) -> str | None:
    """Say in words the default of an attribute that a node leaves out, if its values are those of the default.

    None where the kernel does not ask for it, or the values are no nearer to the default's than to what the other run
    states.
    """
    tensor, asked = form.outputs[0], dict[str, AttrValue | None]()
    try:
        values = inputs_of(recording, form, (0, 0))
        recorded = real_values(recording, tensor)
    except NotRecordedError:
        return None

    def off(attrs: Mapping[str, AttrValue]) -> float:
        try:
            with recorded_limits(recording, (0, 0)):
                made = run_node(replace(form, attrs=attrs), values, recording.graph.opset, asked=asked)[tensor]
        except KernelError:
            return math.inf
        return finite_norm(minus(made, recorded)) if made.shape == recorded.shape else math.inf

    own = off(form.attrs)
    default = asked.get(name)
    if name not in asked or not own < CLEARER_CANDIDATE_MAX_ERROR_RATIO * off({**form.attrs, name: stated}):
        return None
    return "the default" if default is None else f"the default {_written(default)}"


def _written(value: AttrValue | None) -> str:
    """Write an attribute; a number without the digits that a float of 32 bits adds to it."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _stated(node: Node) -> dict[str, AttrValue]:
    """Return the attributes that say what a node computes."""
    return {name: value for name, value in node.attrs.items() if name not in _BESIDE}


def _keys(node: Node) -> dict[str, str]:
    """Return the attributes that say what a node computes, by name, in a form that compares."""
    return {name: _key(value) for name, value in sorted(_stated(node).items())}


def _key(value: AttrValue) -> str:
    """Return what tells an attribute from another: ONNX keeps numbers in 32 bits, other formats in 64."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return repr([_key(each) for each in value])
    if not isinstance(value, float):
        return repr(value)
    with np.errstate(over="ignore"):
        number = float(np.float32(value))
    return repr(int(number) if number.is_integer() else number)


def _other_operator(segment: Segment) -> Finding | None:
    """Find the one node of a part that is of another operator than the reference's, or that it lacks or has beside."""
    ours, theirs = (_by_family(nodes) for nodes in (segment.own, segment.nodes))
    extra, missing = (
        [
            node
            for family, nodes in one.items()
            for node in [each for each in nodes if each not in segment.scaling][len(other.get(family, ())) :]
        ]
        for one, other in ((ours, theirs), (theirs, ours))
    )
    if len(extra) > 1 or len(missing) > 1 or not (extra or missing):
        return None
    if not missing:
        said = f"{extra[0].op} {extra[0].name!r} is none of the reference's nodes"
        return graph_difference(FindingKind.OPERATOR, extra[0], said)
    if not extra:
        said = f"the reference's {missing[0].op} {missing[0].name!r} is missing"
        return graph_difference(FindingKind.MISSING_NODE, segment.own[-1], said, evidence=missing[0].name)
    said = f"{extra[0].op} {extra[0].name!r} stands where the reference has {missing[0].op}"
    return graph_difference(FindingKind.OPERATOR, extra[0], said)


def _by_family(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Group nodes by what they compute, without those that change the form of values or are folded into constants."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        row, fused = operators.plain(node), operators.fused_activation(node)
        formal = row.changes_format or row.keeps_values or row.arranges or row.goes_into_weights
        families = [*([] if formal else [row.family]), *([] if fused is None else [operators.of(fused).family])]
        for family in families:
            found.setdefault(family, []).append(node)
    return found


def _missing_beside(facts: TensorFacts, main: Node) -> Finding | None:
    """Find the activations beside a reference node without which the reference gives what is recorded.

    Args:
        facts: What the backend's node makes.
        main: The reference's node of the same operator.
    """
    segment = facts.segment
    others = segment.beside(main)
    fused = operators.fused_activation(facts.node)
    if fused is not None and others:  # none but the last may be the one that is fused into the backend's node
        others = others[:-1] if others[-1] is segment.nodes[-1] and others[-1].op == fused else []
    activations = [each for each in others if operators.of(each.op).activation]
    for missing in dict.fromkeys((*((each,) for each in activations), tuple(activations))):
        if missing and _lacks(facts, missing):
            names = _names(missing)
            before = " before it" if segment.nodes.index(missing[-1]) < segment.nodes.index(main) else ""
            said = f"the reference's {names}{before} is missing here: "
            said += f"without {names}, the reference's nodes give what is recorded"
            return graph_difference(FindingKind.MISSING_NODE, facts.node, said, evidence=missing[0].name)
    return None


def _lacks(facts: TensorFacts, missing: Sequence[Node]) -> bool:
    """Tell whether a tensor is what the reference's nodes make of the backend's inputs without some activations."""
    pair, bare = facts.segment.without(missing, facts.entry.pair)
    if not facts.places:
        return False
    place = facts.places[0]
    try:
        theirs = facts.replays.values(pair, bare, place)
        noise = facts.replays.rounding_noise(pair, bare, place)
        ours = in_reference_order(real_values(facts.backend, pair.backend, place), pair.backend_view, theirs.shape)
    except (KernelError, NotRecordedError):
        return False
    if ours.shape != theirs.shape:
        return False
    span, quant = code_span(facts.be, pair.backend), facts.entry.quant
    off = np.abs(minus(theirs if span is None else np.clip(theirs, *span), ours))
    if quant is not None:
        off = np.maximum(off - DERIVED_LSB * float(np.max(quant.scale)), 0)
    return not exceeds(off, noise)


def missing_before(facts: TensorFacts) -> Finding | None:
    """Find an activation of the reference that is missing before a node that cannot be replayed, as an If.

    Its own operator is the same, and what it reads is not what the activation gives.

    Returns:
        None if nothing is missing, or that is not known.
    """
    node, main = facts.node, facts.main
    if main is None:
        return None
    names = facts.be.data_inputs(node), facts.ref.data_inputs(main)
    if len(names[0]) != len(names[1]):
        return None
    for ours, theirs in zip(*names, strict=True):
        pair = facts.replays.pairs.get(ours)
        nodes = () if pair is None else _activations(facts, pair.reference, theirs)
        if pair is not None and nodes and _change(facts, pair, nodes):
            said = f"it reads {ours!r}, and the reference's {_names(nodes)} before it is missing"
            return graph_difference(FindingKind.MISSING_NODE, node, said, evidence=nodes[0].name)
    return None


def _names(nodes: Sequence[Node]) -> str:
    return " + ".join(node.op for node in nodes)


def _activations(facts: TensorFacts, start: str, end: str) -> tuple[Node, ...]:
    """Return the activations by which the reference makes one tensor of another; none if it does otherwise."""
    ref, found = facts.ref, list[Node]()
    while ref.root(end) != ref.root(start):
        node = ref.graph.producer(ref.root(end))
        if node is None or not operators.plain(node).activation or len(ref.data_inputs(node)) != 1:
            return ()
        found.append(node)
        end = ref.data_inputs(node)[0]
    return tuple(reversed(found))


def _change(facts: TensorFacts, pair: Pair, nodes: tuple[Node, ...]) -> bool:
    """Tell whether nodes of the reference change what a backend tensor has been recorded with."""
    segment = Segment(nodes=nodes, feeds={pair.reference: pair.backend})
    wanted = replace(pair, reference=nodes[-1].outputs[0])
    try:
        for place in facts.places:
            theirs = facts.replays.values(wanted, segment, place)
            ours = real_values(facts.backend, pair.backend, place)
            ours = in_reference_order(ours, pair.backend_view, theirs.shape)
            share = segment_share(max(unit_roundoff(ours.dtype), declared_unit(facts.backend)))
            if ours.shape == theirs.shape and finite_norm(minus(theirs, ours)) > share * finite_norm(ours):
                return True
    except (KernelError, NotRecordedError):
        return False
    return False
