"""Compares what the two graphs say: other weights, another bias, stride or activation.

What the graphs say tells what is different where replays show that something is.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.compare.align.clamps import bounds_of, code_span, codes_clamp
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair, block_of, clamp_of
from qdebug.compare.attribute.backend_replay import inputs_of, real_values
from qdebug.compare.attribute.band import finite_norm, minus
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import ReferenceReplay, exceeds
from qdebug.compare.attribute.rounding import scales_by_constants
from qdebug.compare.attribute.segments import Segment, main_node
from qdebug.compare.graph_checks.casts import changed_by_cast
from qdebug.compare.graph_checks.constants import ConstantCheck, unrepresentable_constant
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import AttrValue, Node, Recording, operators
from qdebug.model.thresholds.alignment import CLEARER_CANDIDATE_MAX_ERROR_RATIO
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.replay.extents import recorded_room
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node
from qdebug.replay.segment import run_form

__all__ = ["GraphDifferences"]

_SHAPING = (
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "group",
    "axis",
    "axes",
    "perm",
    "transA",
    "transB",
    "alpha",
)
_BESIDE = frozenset(("channels_last", "activation", "activation_params"))
"""Attributes that say how a node is laid out and what is fused into it."""


class GraphDifferences:
    """Compares what two graphs declare, node by node.

    Args:
        replays: Knows both runs and their pairs.

    Attributes:
        constants: Holds the constants of both sides against each other.
    """

    def __init__(self, replays: ReferenceReplay) -> None:
        self._ref, self._be, self._pairs = replays.ref, replays.be, replays.pairs
        self._replays, self._rounding = replays, replays.backend
        self._reference, self._backend = replays.ref.recording, replays.be.recording
        self.constants = ConstantCheck(replays)

    def same(self, pair: Pair, node: Node, segment: Segment, places: Sequence[tuple[int, int]] = ()) -> bool:
        """Tell whether a backend node is declared exactly as its one reference node, operands included.

        Args:
            pair: What is compared.
            node: The backend node.
            segment: What leads to the tensor in either graph.
            places: Samples and steps at which an attribute that one side leaves out is tried.
        """
        if segment.wide:
            return False
        if not segment.nodes:
            return self._be.handed_on(node) is not None or self._clamped_before(node, pair)
        theirs = segment.nodes[0]
        if len(segment.nodes) != 1 or pair.reference not in theirs.outputs:
            return False
        ours_form, _ = real_form(node, self._backend.graph.opset)
        theirs_form, _ = real_form(theirs, self._reference.graph.opset)
        return (
            ours_form.op == theirs_form.op
            and node.outputs.index(pair.backend) == theirs.outputs.index(pair.reference)
            and len(ours_form.inputs) == len(theirs_form.inputs)
            and all(map(self._same_operand, ours_form.inputs, theirs_form.inputs))
            and (_attrs_key(ours_form) == _attrs_key(theirs_form) or self._same_result(node, theirs, places))
        )

    def _same_result(self, node: Node, theirs: Node, places: Sequence[tuple[int, int]]) -> bool:
        """Tell whether attributes that one side alone states are the defaults: both compute the same with them."""
        ours_form, opset = real_form(node, self._backend.graph.opset)
        theirs_form, their_opset = real_form(theirs, self._reference.graph.opset)
        if _differing_attrs(ours_form, theirs_form):
            return False
        kept = {name: value for name, value in ours_form.attrs.items() if name in _BESIDE}
        said = {name: value for name, value in theirs_form.attrs.items() if name not in _BESIDE}
        other = replace(ours_form, attrs={**said, **kept})
        try:
            for place in places:
                values = inputs_of(self._backend, ours_form, place)
                one, two = run_form(node, ours_form, opset, values), run_form(node, other, their_opset, values)
                if not all(np.array_equal(one[name], two[name], equal_nan=one[name].dtype.kind == "f") for name in one):
                    return False
        except (KernelError, NotRecordedError):
            return False
        return bool(places)

    def _clamped_before(self, node: Node, pair: Pair) -> bool:
        """Tell whether a backend's Relu or Clip does what the reference's codes, or its node before, have done."""
        bounds = bounds_of(self._be, node)
        before = self._pairs.get(node.inputs[0]) if node.inputs else None
        if bounds is None or before is None:
            return False
        members = self._ref.members(pair.reference)
        return clamp_of(before.backend_view) == bounds or any(codes_clamp(self._ref, m, bounds) for m in members)

    def _same_operand(self, ours: str, theirs: str) -> bool:
        """Tell whether two operands are partners, or constants with equal real values."""
        if not ours or not theirs:
            return ours == theirs
        if self._be.folds(ours) and self._ref.folds(theirs):
            held = self._backend.has(ours) and self._reference.has(theirs)
            return not held or np.array_equal(real_values(self._backend, ours), real_values(self._reference, theirs))
        partner = self._pairs.get(ours)
        return partner is not None and self._ref.root(partner.reference) == self._ref.root(theirs)

    def coded(self, segment: Segment) -> bool:
        """Tell whether the backend's nodes compute with codes, or with constants that are rounded to them."""
        tensors = self._backend.graph.tensors
        names = {name for node in segment.own for name in (*node.inputs, *node.outputs) if name}
        return any(operators.of(node.op).takes_codes for node in segment.own) or any(
            tensors[form].quant is not None for name in names for form in self._be.members(name)
        )

    def multiplies_codes(self, node: Node) -> bool:
        """Tell whether a backend node multiplies with a constant of integer codes."""
        form, _ = real_form(node, self._backend.graph.opset)
        if not operators.of(form.op).product:
            return False
        weights = [name for name in form.inputs[1:2] if name and self._be.folds(name)]
        return any(self._rounding.levels(name) is not None for name in weights)

    def difference(self, entry: PlannedNode, node: Node, segment: Segment) -> Finding:
        """Return what the graphs declare differently, where the results are known to differ."""
        if segment.wide:
            return self._difference_wide(node, segment)
        known = " + ".join(each.op for each in segment.nodes)
        return self.stated(entry, node, segment) or _difference(
            FindingKind.OPERATOR, node, f"its operator computes something else than {known}"
        )

    def stated(self, entry: PlannedNode, node: Node, segment: Segment) -> Finding | None:
        """Return what the graphs state differently of one node: operator, attributes, constants, operands, if any.

        Args:
            entry: The compared tensor.
            node: The backend node.
            segment: What leads to its result in either graph.
        """
        form, _ = real_form(node, self._backend.graph.opset)
        main = main_node(node, segment)
        if main is None:
            known = " + ".join(n.op for n in segment.nodes)
            said = f"{node.op} stands where the reference has {known or 'no node'}"
            return _difference(FindingKind.OPERATOR, node, said)
        theirs, _ = real_form(main, self._reference.graph.opset)
        alike = self._in_its_order
        attrs = [name for name in _differing_attrs(form, theirs) if not alike(node, form, theirs, name)]
        if attrs:
            name = attrs[0]
            said = f"its {name} is {_written(form.attrs[name])}, the reference's is {_written(theirs.attrs[name])}"
            return _difference(FindingKind.ATTRIBUTE, node, said, evidence=name)
        others = segment.beside(main)
        left_out = self._left_out(node, form, theirs)
        if left_out is not None:
            return left_out
        scaled = scales_by_constants(self._ref, others)  # into the weights: then they are other ones by right
        found = unrepresentable_constant(self._replays, main, node) or (
            self.constants.different_folded(form, theirs, others)
            if scaled
            else self.constants.different(form, theirs, segment)
        )
        if found is None and segment.elsewhere:
            found = self._different_operands(form, theirs)
        if found is not None:
            return found
        activations = [each for each in _not_fused(node, segment, others) if operators.of(each.op).activation]
        for missing in dict.fromkeys((*((each,) for each in activations), tuple(activations))):
            if missing and self._lacks(entry, segment, missing):
                names = " + ".join(each.op for each in missing)
                before = " before it" if segment.nodes.index(missing[-1]) < segment.nodes.index(main) else ""
                said = f"the reference's {names}{before} is missing here: "
                said += f"without {names}, the reference's nodes give what is recorded"
                return _difference(FindingKind.MISSING_NODE, node, said, evidence=missing[0].name)
        return None

    def _in_its_order(self, node: Node, form: Node, theirs: Node, name: str) -> bool:
        """Tell whether an attribute says the same of a tensor that is kept in another order of dimensions.

        A group counts the channels that fill up a block too, and an axis is where its dimension has gone.
        """
        mine, other = form.attrs.get(name), theirs.attrs.get(name)
        if not isinstance(mine, int) or not isinstance(other, int):
            return False
        if name == "transB":
            return self._is_kept_turned(form, theirs)
        block = block_of(self._backend.graph.tensors[node.outputs[0]].layout)
        if name == "group" and block is not None:
            return mine == -(-other // block) * block
        pair = self._pairs.get(node.outputs[0])
        turned = None if pair is None or pair.backend_view is None else pair.backend_view.transpose
        return (
            name == "axis"
            and turned is not None
            and -len(turned) <= other < len(turned)
            and (turned[other] == mine % len(turned))
        )

    def _is_kept_turned(self, ours: Node, theirs: Node) -> bool:
        """Tell whether a weight is kept in the other order of rows and columns: a square one, if not as it is.

        Where a node does not say its weight nothing tells how it is kept, and it is taken to be.
        """
        if min(len(ours.inputs), len(theirs.inputs)) < 2:
            return True
        one, other = ours.inputs[1], theirs.inputs[1]
        if not (self._backend.has(one) and self._reference.has(other)):
            return False
        mine, kept = self._backend.load(one), self._reference.load(other)
        return mine.shape == kept.shape[::-1] and not np.array_equal(mine, kept)

    def _left_out(self, node: Node, ours: Node, theirs: Node) -> Finding | None:
        """Find an attribute that one side states, and the other leaves at another default, as its values show.

        A harness may leave out what it does not know: then the default is not what the node computes by.
        """
        mine, other = ({k: v for k, v in form.attrs.items() if k not in _BESIDE} for form in (ours, theirs))
        for name in sorted(mine.keys() ^ other.keys(), key=lambda each: (each not in _SHAPING, each)):
            if name in mine:
                default = _default_in_force(self._reference, theirs, name, mine[name])
            else:
                default = _default_in_force(self._backend, ours, name, other[name])
            if default is None or (name == "transB" and self._is_kept_turned(ours, theirs)):
                continue
            stated = _written((mine if name in mine else other)[name])
            pair = (stated, default) if name in mine else (default, stated)
            said = f"its {name} is {pair[0]}, the reference's is {pair[1]}"
            return _difference(FindingKind.ATTRIBUTE, node, said, evidence=name)
        return None

    def _lacks(self, entry: PlannedNode, segment: Segment, missing: Collection[Node]) -> bool:
        """Tell whether a tensor is what the reference's nodes make of the backend's inputs without some activations."""
        pair, bare = segment.without(missing, entry.pair)
        place = next(recorded_places(self._reference, self._backend, entry), None)
        if place is None:
            return False
        try:
            theirs = self._replays.values(pair, bare, place)
            noise = self._replays.rounding_noise(pair, bare, place)
            ours = in_reference_order(real_values(self._backend, pair.backend, place), pair.backend_view, theirs.shape)
        except (KernelError, NotRecordedError):
            return False
        if ours.shape != theirs.shape:
            return False
        span, quant = code_span(self._be, pair.backend), entry.quant
        off = np.abs(minus(theirs if span is None else np.clip(theirs, *span), ours))
        if quant is not None:
            off = np.maximum(off - DERIVED_LSB * float(np.max(quant.scale)), 0)
        return not exceeds(off, noise)

    def missing_before(self, node: Node, tensor: str, missing: Sequence[Node]) -> Finding:
        """Return that a backend node reads a tensor as it is, and the reference's node what some others make of it."""
        said = (
            f"it reads {tensor!r}, and the reference's {' + '.join(each.op for each in missing)} before it is missing"
        )
        return _difference(FindingKind.MISSING_NODE, node, said, evidence=missing[0].name)

    def _difference_wide(self, node: Node, segment: Segment) -> Finding:
        known, own = (" + ".join(n.op for n in nodes) for nodes in (segment.nodes, segment.own))
        read = ", ".join(repr(tensor) for tensor in segment.feeds.values())
        said = f"{own} on {read} computes something else than {known or 'no node'} of the reference"
        inside = (
            self.constants.different_weight(segment)
            or _other_operator(segment)
            or self._lossy_cast(segment)
            or self._other_attribute(segment)
            or self.constants.different_beside(segment)
        )
        if inside is None:
            return _difference(FindingKind.OPERATOR, node, said)
        return replace(inside, sentence=f"{said}; {inside.sentence}")

    def _lossy_cast(self, segment: Segment) -> Finding | None:
        """Find a cast to integers that changes numbers, in a part where the reference casts nothing."""
        if any(operators.of(node.op).casts for node in segment.nodes):
            return None
        for node in segment.own:
            changed = changed_by_cast(self._backend, node) if operators.of(node.op).casts else None
            if changed is not None and changed.count:
                said = f"{node.op} {node.name!r}: the {changed.sentence}"
                return _difference(FindingKind.PRECISION, node, said, evidence=changed.dtype)
        return None

    def _other_attribute(self, segment: Segment) -> Finding | None:
        """Find an attribute of one node of a part that is not that of the reference's one node of the same operator."""
        ours, theirs = (_telling(nodes) for nodes in (segment.own, segment.nodes))
        for family, nodes in ours.items():
            other = theirs.get(family, [])
            if len(nodes) != 1 or len(other) != 1:
                continue
            form, _ = real_form(nodes[0], self._backend.graph.opset)
            their_form, _ = real_form(other[0], self._reference.graph.opset)
            if form.op != their_form.op:
                continue
            names = _differing_attrs(form, their_form)
            if any(operators.of(each.op).transposes for each in (*segment.own, *segment.nodes)):
                names = [name for name in names if name not in _ORDERED]  # of another order of dimensions
            if not names:
                found = self._left_out(nodes[0], form, their_form)
            else:
                mine, right = _written(form.attrs[names[0]]), _written(their_form.attrs[names[0]])
                said = f"its {names[0]} is {mine}, the reference's is {right}"
                found = _difference(FindingKind.ATTRIBUTE, nodes[0], said, evidence=names[0])
            if found is not None:
                return replace(found, sentence=f"of {nodes[0].op} {nodes[0].name!r}, {found.sentence}")
        return None

    def _different_operands(self, ours: Node, theirs: Node) -> Finding | None:
        root = self._ref.root
        mine = [self._pairs[name].reference for name in self._be.data_inputs(ours) if name in self._pairs]
        missing = [n for n in self._ref.data_inputs(theirs) if root(n) not in set(map(root, mine))]
        if not missing or not mine:
            return None
        read = " and ".join(map(repr, dict.fromkeys(mine)))
        said = f"it reads {read}, and not {missing[0]!r} as the reference does"
        return _difference(FindingKind.OPERAND, ours, said, evidence=missing[0])


_ORDERED = ("axis", "axes", "perm")
"""Attributes that number dimensions."""


def _other_operator(segment: Segment) -> Finding | None:
    """Find the one node of a part that is of another operator than the reference's, or that it lacks or has beside."""
    ours, theirs = (_telling(nodes) for nodes in (segment.own, segment.nodes))
    extra, missing = (
        [node for family, nodes in one.items() for node in nodes[len(other.get(family, ())) :]]
        for one, other in ((ours, theirs), (theirs, ours))
    )
    if len(extra) > 1 or len(missing) > 1 or not (extra or missing):
        return None
    if not missing:
        said = f"{extra[0].op} {extra[0].name!r} is none of the reference's nodes"
        return _difference(FindingKind.OPERATOR, extra[0], said)
    if not extra:
        said = f"the reference's {missing[0].op} {missing[0].name!r} is missing"
        return _difference(FindingKind.MISSING_NODE, segment.own[-1], said, evidence=missing[0].name)
    said = f"{extra[0].op} {extra[0].name!r} stands where the reference has {missing[0].op}"
    return _difference(FindingKind.OPERATOR, extra[0], said)


def _telling(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Group nodes by what they compute, without those that change the form of values or are folded into constants."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        row = operators.plain(node)
        formal = row.changes_format or row.keeps_values or row.arranges or row.goes_into_weights
        for family in [*([] if formal else [row.family]), *_fused(node)]:
            found.setdefault(family, []).append(node)
    return found


def _not_fused(node: Node, segment: Segment, others: list[Node]) -> list[Node]:
    """Return the reference's nodes beside one, but for the last if it is the activation fused into the backend's."""
    fused = operators.fused_activation(node)
    if fused is None or not others:
        return others
    return others[:-1] if others[-1] is segment.nodes[-1] and others[-1].op == fused else []


def _fused(node: Node) -> list[str]:
    """Return the activation that is fused into a node, if there is one."""
    activation = operators.fused_activation(node)
    return [] if activation is None else [operators.of(activation).family]


def _difference(kind: FindingKind, node: Node, sentence: str, *, evidence: str | None = None) -> Finding:
    return Finding(kind=kind, role=FindingRole.DIFFERENCE, node=node.name, sentence=sentence, evidence=evidence)


def _differing_attrs(one: Node, other: Node) -> Sequence[str]:
    ours, theirs = (dict(_attrs_key(node)) for node in (one, other))
    common = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    shaping = [name for name in common if name in _SHAPING]
    return shaping or common


def _default_in_force(recording: Recording, form: Node, name: str, stated: AttrValue) -> str | None:
    """Say in words the default of an attribute that a node leaves out, if its values are those of the default.

    Args:
        recording: The run that has the node.
        form: The node's real form.
        name: The attribute.
        stated: The value that the other run states.

    Returns:
        None where the kernel does not ask for it, or the values are no nearer to the default's.
    """
    tensor, asked = form.outputs[0], dict[str, AttrValue | None]()
    try:
        values = inputs_of(recording, form, (0, 0))
        recorded = real_values(recording, tensor)
    except NotRecordedError:
        return None

    def off(attrs: Mapping[str, AttrValue]) -> float:
        try:
            with recorded_room(recording, (0, 0)):
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


def _attrs_key(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the attributes that say what a node computes, in a form that compares."""
    return tuple(sorted((name, _key(value)) for name, value in node.attrs.items() if name not in _BESIDE))


def _key(value: AttrValue) -> str:
    """Return what tells an attribute from another: ONNX keeps numbers in 32 bits, other formats in 64."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return repr([_key(each) for each in value])
    if not isinstance(value, float):
        return repr(value)
    with np.errstate(over="ignore"):
        number = float(np.float32(value))
    return repr(int(number) if number.is_integer() else number)
