"""Compares the graphs around a tensor to find a different weight, bias, stride, activation or operator.

Replays show that a tensor differs; this comparison finds the cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qdebug.compare.align.clamps import bounds_of, code_span, is_clamped_by_codes
from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair, block_of, clamp_of
from qdebug.compare.attribute.backend_replay import inputs_of, real_values
from qdebug.compare.attribute.band import finite_norm, minus, segment_share, unit_roundoff
from qdebug.compare.attribute.code_spans import own_values
from qdebug.compare.attribute.declared_format import declared_unit
from qdebug.compare.attribute.reference_replay import exceeds
from qdebug.compare.attribute.rounding import scales_by_constants
from qdebug.compare.attribute.segments import Segment
from qdebug.compare.graph_checks.casts import changed_by_cast
from qdebug.compare.graph_checks.constants import (
    find_different_constant,
    find_different_folded_constant,
    find_different_side_constant,
    find_different_weight,
    unrepresentable_constant,
)
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding, FindingKind, graph_difference
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import AttrValue, Node, Recording, operators
from qdebug.model.thresholds.alignment import CLEARER_CANDIDATE_MAX_ERROR_RATIO
from qdebug.model.thresholds.verdict import DEFAULT_MIN_SQNR, DERIVED_LSB
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = [
    "declared_difference",
    "find_activation_missing_before",
    "has_codes",
    "is_declared_equally",
    "stated_difference",
]

_DIMENSION_ATTRIBUTES = frozenset({"axis", "axes", "perm"})
"""Attributes that hold dimension indices."""
_SHAPE_ATTRIBUTES = _DIMENSION_ATTRIBUTES | {
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "group",
    "transA",
    "transB",
    "alpha",
}
_LAYOUT_ATTRIBUTES = frozenset(("channels_last", "activation", "activation_params"))
"""Attributes of a node's layout and fused activation."""


def is_declared_equally(facts: TensorFacts, places: Sequence[tuple[int, int]] = ()) -> bool:
    """Return whether a backend node is declared exactly like its only reference node, operands included.

    Args:
        facts: The node's tensor. The result is False if several nodes are judged together.
        places: Samples and steps for trying an attribute that one side omits.
    """
    pair, node, segment = facts.entry.pair, facts.node, facts.segment
    if segment.has_several_nodes:
        return False
    if not segment.nodes:
        return facts.be.passed_on_input(node) is not None or _repeats_clamp(facts)
    reference_node = segment.nodes[0]
    if len(segment.nodes) != 1 or pair.reference not in reference_node.outputs:
        return False
    forms = facts.backend_form(node), facts.reference_form(reference_node)
    return (
        forms[0].op == forms[1].op
        and node.outputs.index(pair.backend) == reference_node.outputs.index(pair.reference)
        and len(forms[0].inputs) == len(forms[1].inputs)
        and all(_is_same_operand(facts, *names) for names in zip(forms[0].inputs, forms[1].inputs, strict=True))
        and _has_same_attributes(facts, reference_node, places)
    )


def _repeats_clamp(facts: TensorFacts) -> bool:
    """Return whether a backend's Relu or Clip repeats a clamp that reference codes or the preceding node apply."""
    node = facts.node
    bounds = bounds_of(facts.be, node)
    input_pair = facts.replays.pairs.get(node.inputs[0]) if node.inputs else None
    if bounds is None or input_pair is None:
        return False
    members = facts.ref.members(facts.entry.pair.reference)
    return clamp_of(input_pair.backend_view) == bounds or any(
        is_clamped_by_codes(facts.ref, m, bounds) for m in members
    )


def _is_same_operand(facts: TensorFacts, backend_name: str, reference_name: str) -> bool:
    """Return whether two operands are partners, or constants with equal real values."""
    if not backend_name or not reference_name:
        return backend_name == reference_name
    if facts.be.folds(backend_name) and facts.ref.folds(reference_name):
        recorded = facts.backend.has(backend_name) and facts.reference.has(reference_name)
        return not recorded or np.array_equal(
            real_values(facts.backend, backend_name), real_values(facts.reference, reference_name)
        )
    partner = facts.replays.pairs.get(backend_name)
    return partner is not None and facts.ref.root(partner.reference) == facts.ref.root(reference_name)


def has_codes(facts: TensorFacts) -> bool:
    """Return whether the backend's nodes compute with codes, or with constants rounded to codes."""
    tensors, backend_nodes = facts.backend.graph.tensors, facts.segment.own
    names = {name for node in backend_nodes for name in (*node.inputs, *node.outputs) if name}
    return any(operators.of(node.op).takes_codes for node in backend_nodes) or any(
        tensors[form].quant is not None for name in names for form in facts.be.members(name)
    )


def declared_difference(facts: TensorFacts) -> Finding:
    """Return the difference between the two graphs, given that the results differ."""
    segment, node = facts.segment, facts.node
    reference_text = " + ".join(node.op for node in segment.nodes)
    if not segment.has_several_nodes:
        sentence = (
            f"its operator does not compute what the reference's {reference_text} computes"
            if reference_text
            else _CHANGES_VALUES
        )
        return (
            stated_difference(facts)
            or _find_extra_attribute(facts, reference_text)
            or graph_difference(FindingKind.OPERATOR, node, sentence)
        )
    inputs_text = ", ".join(repr(tensor) for tensor in segment.feeds.values())
    backend_text = " + ".join(node.op for node in segment.own)
    computing_ops, reference_ops = (
        [node.op for node in nodes if not operators.of(node.op).converts_codes]
        for nodes in (segment.own, segment.nodes)
    )
    same_operators = Counter(computing_ops) == Counter(reference_ops) or _do_replays_agree(facts)
    sentence = f"{backend_text} on {inputs_text} does not compute what the reference's {reference_text} computes"
    if not reference_text:
        sentence = f"{backend_text} on {inputs_text} {_CHANGES_VALUES}"
    if same_operators:
        computation = " + ".join(computing_ops) or backend_text
        sentence = (
            f"nothing between {inputs_text} and this tensor was recorded; computing {computation} exactly has a "
            "different result"
        )
    finding = (
        find_different_weight(facts)
        or _find_lossy_cast(facts)
        or _find_other_operator(segment)
        or _find_different_attribute_inside(facts)
        or find_different_side_constant(facts)
    )
    if finding is None:  # the graphs agree, so the cause is what the backend computes
        kind = FindingKind.ARITHMETIC if same_operators else FindingKind.OPERATOR
        return graph_difference(kind, node, sentence)
    return replace(finding, sentence=f"{finding.sentence}; {sentence}")


_CHANGES_VALUES = "changes values that the reference passes on unchanged"


def _do_replays_agree(facts: TensorFacts) -> bool:
    """Return whether the nodes of both graphs compute the same, such as a Softmax and the nodes that it stands for."""
    if not facts.segment.nodes or not facts.places:
        return False
    place = facts.places[0]
    try:
        reference_values = facts.reference_replay(place)
        own_result = own_values(facts.be, facts.entry.pair, facts.segment, reference_values.shape, place)
    except (KernelError, NotRecordedError):
        return False
    share = 10 ** (-DEFAULT_MIN_SQNR / 20)
    return finite_norm(minus(own_result, reference_values)) <= share * finite_norm(reference_values)


def _find_lossy_cast(facts: TensorFacts) -> Finding | None:
    """Find a cast to integers that changes numbers, in a segment where the reference has no casts."""
    if any(operators.of(node.op).casts for node in facts.segment.nodes):
        return None
    for node in facts.segment.own:
        changed = changed_by_cast(facts.backend, node) if operators.of(node.op).casts else None
        if changed is not None and changed.count:
            sentence = f"{node.op} {node.name!r}: the {changed.sentence}"
            return graph_difference(FindingKind.PRECISION, node, sentence, evidence=changed.dtype)
    return None


def stated_difference(facts: TensorFacts) -> Finding | None:
    """Return the declared difference between two nodes in operator, attributes, constants or operands, or None."""
    node, main, segment = facts.node, facts.main, facts.segment
    if main is None:
        reference_text = " + ".join(n.op for n in segment.nodes)
        sentence = f"{node.op} stands where the reference has {reference_text or 'no node'}"
        return graph_difference(FindingKind.OPERATOR, node, sentence)
    backend_form, reference_form = facts.backend_form(node), facts.reference_form(main)
    other_nodes = segment.nodes_except(main)

    def is_same(name: str) -> bool:
        return _is_equal_in_its_layout(facts, backend_form, reference_form, name)

    return (
        _find_different_attribute(facts, node, backend_form, reference_form, is_same=is_same)
        or unrepresentable_constant(facts.replays, main, node)
        or (  # a constant with scales folded into it may differ without being wrong
            find_different_folded_constant(facts, backend_form, reference_form, other_nodes)
            if scales_by_constants(facts.ref, other_nodes)
            else find_different_constant(facts, backend_form, reference_form)
        )
        or (_find_different_operand(facts, backend_form, reference_form) if segment.has_extra_inputs else None)
        or _find_missing_activations(facts, main)
    )


def _find_different_operand(facts: TensorFacts, backend_form: Node, reference_form: Node) -> Finding | None:
    root, pairs = facts.ref.root, facts.replays.pairs
    backend_inputs = [pairs[name].reference for name in facts.be.data_inputs(backend_form) if name in pairs]
    missing = [n for n in facts.ref.data_inputs(reference_form) if root(n) not in set(map(root, backend_inputs))]
    if not missing or not backend_inputs:
        return None
    inputs_text = " and ".join(map(repr, dict.fromkeys(backend_inputs)))
    sentence = f"it reads {inputs_text}, but the reference reads {missing[0]!r}"
    return graph_difference(FindingKind.OPERAND, backend_form, sentence, evidence=missing[0])


def _find_different_attribute_inside(facts: TensorFacts) -> Finding | None:
    """Find a different attribute in a segment, at a node whose operator occurs only once on either side."""
    segment = facts.segment
    has_transposes = any(operators.of(node.op).transposes for node in (*segment.own, *segment.nodes))
    reference_nodes = _by_family(segment.nodes)

    def is_same(name: str) -> bool:
        return has_transposes and name in _DIMENSION_ATTRIBUTES  # the order of dimensions differs

    for family, nodes in _by_family(segment.own).items():
        counterparts = reference_nodes.get(family, [])
        if len(nodes) != 1 or len(counterparts) != 1:
            continue
        backend_form, reference_form = facts.backend_form(nodes[0]), facts.reference_form(counterparts[0])
        if backend_form.op != reference_form.op:
            continue
        finding = _find_different_attribute(facts, nodes[0], backend_form, reference_form, is_same=is_same)
        if finding is not None:
            return replace(finding, sentence=f"of {nodes[0].op} {nodes[0].name!r}, {finding.sentence}")
    return None


def _has_same_attributes(facts: TensorFacts, reference_node: Node, places: Sequence[tuple[int, int]]) -> bool:
    """Return whether the backend's node has the attributes of a reference node.

    An attribute that only one side declares may be the default, in which case both compute the same.

    Args:
        facts: The backend node's tensor.
        reference_node: The reference's node.
        places: Samples and steps for trying an attribute that one side omits.
    """
    opset = real_form(facts.node, facts.backend.graph.opset)[1]
    reference_opset = real_form(reference_node, facts.reference.graph.opset)[1]
    backend_form, reference_node = facts.backend_form(facts.node), facts.reference_form(reference_node)
    keys = _attribute_keys(backend_form), _attribute_keys(reference_node)
    if keys[0] == keys[1]:
        return True
    if any(keys[0][name] != keys[1][name] for name in keys[0].keys() & keys[1].keys()):
        return False
    layout_attributes = {name: value for name, value in backend_form.attrs.items() if name in _LAYOUT_ATTRIBUTES}
    with_reference_attributes = replace(
        backend_form, attrs={**_computing_attributes(reference_node), **layout_attributes}
    )
    try:
        for place in places:
            values = inputs_of(facts.backend, backend_form, place)
            own_outputs, other_outputs = (
                run_node(backend_form, values, opset),
                run_node(with_reference_attributes, values, reference_opset),
            )
            if not all(
                np.array_equal(own_outputs[name], other_outputs[name], equal_nan=own_outputs[name].dtype.kind == "f")
                for name in own_outputs
            ):
                return False
    except (KernelError, NotRecordedError):
        return False
    return bool(places)


def _find_different_attribute(
    facts: TensorFacts, node: Node, backend_form: Node, reference_form: Node, *, is_same: Callable[[str], bool]
) -> Finding | None:
    """Find an attribute of a backend node that differs from the reference's, or return None.

    A harness may omit attributes that it does not support, so a default counts only if the values confirm it.

    Args:
        facts: The node's tensor.
        node: The backend's node.
        backend_form: The backend node in real-valued form.
        reference_form: The reference node in real-valued form.
        is_same: Returns whether two stated values of an attribute are equivalent.
    """
    keys = _attribute_keys(backend_form), _attribute_keys(reference_form)
    names = [name for name in keys[0] if name in keys[1] and keys[0][name] != keys[1][name]]
    names = [name for name in names if name in _SHAPE_ATTRIBUTES] or names
    names = [name for name in names if not is_same(name)]
    if names:
        return _attribute_finding(
            node,
            names[0],
            _attribute_text(backend_form.attrs[names[0]]),
            _attribute_text(reference_form.attrs[names[0]]),
        )
    backend_attributes, reference_attributes = (
        _computing_attributes(backend_form),
        _computing_attributes(reference_form),
    )
    for name in sorted(
        backend_attributes.keys() ^ reference_attributes.keys(), key=lambda name: (name not in _SHAPE_ATTRIBUTES, name)
    ):
        is_backends = name in backend_attributes
        run, form = (facts.reference, reference_form) if is_backends else (facts.backend, backend_form)
        stated = (backend_attributes if is_backends else reference_attributes)[name]
        default = _find_confirmed_default(run, form, name, stated)
        if default is None or (name == "transB" and _has_transposed_weight(facts, backend_form, reference_form)):
            continue
        return _attribute_finding(
            node, name, *((_attribute_text(stated), default) if is_backends else (default, _attribute_text(stated)))
        )
    return None


def _find_extra_attribute(facts: TensorFacts, reference_text: str) -> Finding | None:
    """Find the only attribute of a backend node without which it computes the same as the reference's nodes.

    The reference's operators lack that attribute: a MatMul, for example, cannot transpose an operand.

    Args:
        facts: The backend node's tensor.
        reference_text: The reference's operators.
    """
    backend_form, opset = real_form(facts.node, facts.backend.graph.opset)
    places = facts.places
    names = [
        name
        for name in _computing_attributes(backend_form)
        if places and all(_is_equal_without(facts, backend_form, opset, name, place) for place in places)
    ]
    if len(names) != 1:
        return None
    value = _attribute_text(backend_form.attrs[names[0]])
    sentence = (
        f"its {names[0]} is {value}; without this attribute it computes the same as {reference_text} in the reference"
    )
    return graph_difference(FindingKind.ATTRIBUTE, facts.node, sentence, evidence=names[0])


def _is_equal_without(
    facts: TensorFacts, backend_form: Node, opset: Mapping[str, int], name: str, place: tuple[int, int]
) -> bool:
    """Return whether a backend node without a given attribute gives the output of the reference's nodes."""
    other_attributes = {key: value for key, value in backend_form.attrs.items() if key != name}
    try:
        reference_values = facts.reference_replay(place)
        values = inputs_of(facts.backend, backend_form, place)
        replayed = run_node(replace(backend_form, attrs=other_attributes), values, opset)[backend_form.outputs[0]]
    except (KernelError, NotRecordedError):
        return False
    share = segment_share(max(unit_roundoff(replayed.dtype), declared_unit(facts.backend)))
    if replayed.shape != reference_values.shape:
        return False
    return finite_norm(minus(replayed, reference_values)) <= share * finite_norm(reference_values)


def _attribute_finding(node: Node, name: str, backend_text: str, reference_text: str) -> Finding:
    sentence = f"its {name} is {backend_text}; the reference's is {reference_text}"
    return graph_difference(FindingKind.ATTRIBUTE, node, sentence, evidence=name)


def _is_equal_in_its_layout(facts: TensorFacts, backend_form: Node, reference_form: Node, name: str) -> bool:
    """Return whether an attribute is equivalent for a tensor in a different dimension order.

    A group count covers the padding channels of a block, and an axis moves along with its dimension.
    """
    backend_value, reference_value = backend_form.attrs.get(name), reference_form.attrs.get(name)
    if not isinstance(backend_value, int) or not isinstance(reference_value, int):
        return False
    if name == "transB":
        return _has_transposed_weight(facts, backend_form, reference_form)
    output = facts.node.outputs[0]
    block = block_of(facts.backend.graph.tensors[output].layout)
    if name == "group" and block is not None:
        return backend_value == -(-reference_value // block) * block
    pair = facts.replays.pairs.get(output)
    transpose = None if pair is None or pair.backend_view is None else pair.backend_view.transpose
    return (
        name == "axis"
        and transpose is not None
        and -len(transpose) <= reference_value < len(transpose)
        and (transpose[reference_value] == backend_value % len(transpose))
    )


def _has_transposed_weight(facts: TensorFacts, backend_form: Node, reference_form: Node) -> bool:
    """Return whether a weight is stored transposed; for a square weight, whether it differs from the reference's.

    True if a node does not name its weight, because its order is unknown.
    """
    if min(len(backend_form.inputs), len(reference_form.inputs)) < 2:
        return True
    backend_name, reference_name = backend_form.inputs[1], reference_form.inputs[1]
    if not (facts.backend.has(backend_name) and facts.reference.has(reference_name)):
        return False
    backend_weight, reference_weight = facts.backend.load(backend_name), facts.reference.load(reference_name)
    return backend_weight.shape == reference_weight.shape[::-1] and not np.array_equal(backend_weight, reference_weight)


def _find_confirmed_default(recording: Recording, form: Node, name: str, stated: AttrValue) -> str | None:
    """Return the default of an omitted attribute as text, if the node's values confirm the default.

    None if the kernel does not read the attribute, or if the values match the other run's attribute as well.
    """
    tensor, requested = form.outputs[0], dict[str, AttrValue | None]()
    try:
        values = inputs_of(recording, form, (0, 0))
        recorded_values = real_values(recording, tensor)
    except NotRecordedError:
        return None

    def error_with(attrs: Mapping[str, AttrValue]) -> float:
        try:
            with recorded_limits(recording, (0, 0)):
                replayed_values = run_node(
                    replace(form, attrs=attrs), values, recording.graph.opset, defaults=requested
                )[tensor]
        except KernelError:
            return math.inf
        return (
            finite_norm(minus(replayed_values, recorded_values))
            if replayed_values.shape == recorded_values.shape
            else math.inf
        )

    own_error = error_with(form.attrs)
    default = requested.get(name)
    if name not in requested or not own_error < CLEARER_CANDIDATE_MAX_ERROR_RATIO * error_with(
        {**form.attrs, name: stated}
    ):
        return None
    return "the default" if default is None else f"the default {_attribute_text(default)}"


def _attribute_text(value: AttrValue | None) -> str:
    """Return an attribute as text, dropping the extra digits of float32."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)


def _computing_attributes(node: Node) -> dict[str, AttrValue]:
    """Return the attributes that affect the result of a node."""
    return {name: value for name, value in node.attrs.items() if name not in _LAYOUT_ATTRIBUTES}


def _attribute_keys(node: Node) -> dict[str, str]:
    """Return comparable forms of the attributes that affect a node's result, by name."""
    return {name: _attribute_key(value) for name, value in sorted(_computing_attributes(node).items())}


def _attribute_key(value: AttrValue) -> str:
    """Return a comparable form of an attribute: ONNX stores numbers in 32 bits, other formats in 64."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return repr([_attribute_key(element) for element in value])
    if not isinstance(value, float):
        return repr(value)
    with np.errstate(over="ignore"):
        number = float(np.float32(value))
    return repr(int(number) if number.is_integer() else number)


def _find_other_operator(segment: Segment) -> Finding | None:
    """Find the only node of a segment whose operator differs from the reference's, is extra, or is missing."""
    backend_nodes, reference_nodes = (_by_family(nodes) for nodes in (segment.own, segment.nodes))
    extra_nodes, missing_nodes = (
        [
            node
            for family, nodes in families.items()
            for node in [node for node in nodes if node not in segment.scaling][len(other_families.get(family, ())) :]
        ]
        for families, other_families in ((backend_nodes, reference_nodes), (reference_nodes, backend_nodes))
    )
    if len(extra_nodes) > 1 or len(missing_nodes) > 1 or not (extra_nodes or missing_nodes):
        return None
    if not missing_nodes:
        sentence = f"{extra_nodes[0].op} {extra_nodes[0].name!r} has no counterpart in the reference"
        return graph_difference(FindingKind.OPERATOR, extra_nodes[0], sentence)
    if not extra_nodes:
        sentence = f"the reference's {missing_nodes[0].op} {missing_nodes[0].name!r} is missing"
        return graph_difference(FindingKind.MISSING_NODE, segment.own[-1], sentence, evidence=missing_nodes[0].name)
    sentence = f"{extra_nodes[0].op} {extra_nodes[0].name!r} stands where the reference has {missing_nodes[0].op}"
    return graph_difference(FindingKind.OPERATOR, extra_nodes[0], sentence)


def _by_family(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Group nodes by family, leaving out nodes that only reformat values or fold into constants."""
    families_of_nodes: dict[str, list[Node]] = {}
    for node in nodes:
        row, fused = operators.plain(node), operators.fused_activation(node)
        formal = row.changes_format or row.keeps_values or row.arranges or row.goes_into_weights
        families = [*([] if formal else [row.family]), *([] if fused is None else [operators.of(fused).family])]
        for family in families:
            families_of_nodes.setdefault(family, []).append(node)
    return families_of_nodes


def _find_missing_activations(facts: TensorFacts, main: Node) -> Finding | None:
    """Find activations that the backend lacks: without them, the reference's nodes reproduce the recorded values.

    Args:
        facts: The backend node's tensor.
        main: The reference's node of the same operator.
    """
    segment = facts.segment
    other_nodes = segment.nodes_except(main)
    fused = operators.fused_activation(facts.node)
    if fused is not None and other_nodes:  # only the last one may be fused into the backend's node
        other_nodes = other_nodes[:-1] if other_nodes[-1] is segment.nodes[-1] and other_nodes[-1].op == fused else []
    activations = [candidate for candidate in other_nodes if operators.of(candidate.op).activation]
    for missing_activations in dict.fromkeys((*((activation,) for activation in activations), tuple(activations))):
        if missing_activations and _matches_without(facts, missing_activations):
            names = _operators_text(missing_activations)
            place_text = (
                " before it" if segment.nodes.index(missing_activations[-1]) < segment.nodes.index(main) else ""
            )
            sentence = f"the reference's {names}{place_text} is missing here; "
            sentence += f"without {names}, the reference's nodes reproduce the recorded values"
            return graph_difference(
                FindingKind.MISSING_NODE, facts.node, sentence, evidence=missing_activations[0].name
            )
    return None


def _matches_without(facts: TensorFacts, activations: Sequence[Node]) -> bool:
    """Return whether the reference's nodes without the given activations reproduce the recorded tensor."""
    pair, segment_without = facts.segment.without(activations, facts.entry.pair)
    if not facts.places:
        return False
    place = facts.places[0]
    try:
        reference_values = facts.replays.values(pair, segment_without, place)
        noise = facts.replays.rounding_noise(pair, segment_without, place)
        backend_values = in_reference_order(
            real_values(facts.backend, pair.backend, place), pair.backend_view, reference_values.shape
        )
    except (KernelError, NotRecordedError):
        return False
    if backend_values.shape != reference_values.shape:
        return False
    span, quant = code_span(facts.be, pair.backend), facts.entry.quant
    difference = np.abs(minus(reference_values if span is None else np.clip(reference_values, *span), backend_values))
    if quant is not None:
        difference = np.maximum(difference - DERIVED_LSB * float(np.max(quant.scale)), 0)
    return not exceeds(difference, noise)


def find_activation_missing_before(facts: TensorFacts) -> Finding | None:
    """Find an activation that is missing before a node that cannot be replayed, such as an If.

    The node's own operator is the same, but its input is not the activation's output.

    Returns:
        The finding, or None if nothing is missing or it is unknown.
    """
    node, main = facts.node, facts.main
    if main is None:
        return None
    names = facts.be.data_inputs(node), facts.ref.data_inputs(main)
    if len(names[0]) != len(names[1]):
        return None
    for backend_name, reference_name in zip(*names, strict=True):
        pair = facts.replays.pairs.get(backend_name)
        nodes = () if pair is None else _activations_between(facts, pair.reference, reference_name)
        if pair is not None and nodes and _changes_input(facts, pair, nodes):
            sentence = (
                f"it reads {backend_name!r} directly; the reference's {_operators_text(nodes)} before it is missing"
            )
            return graph_difference(FindingKind.MISSING_NODE, node, sentence, evidence=nodes[0].name)
    return None


def _operators_text(nodes: Sequence[Node]) -> str:
    return " + ".join(node.op for node in nodes)


def _activations_between(facts: TensorFacts, start: str, end: str) -> tuple[Node, ...]:
    """Return the activations between two tensors of the reference, or () if other nodes are between them."""
    ref, activations = facts.ref, list[Node]()
    while ref.root(end) != ref.root(start):
        node = ref.graph.producer(ref.root(end))
        if node is None or not operators.plain(node).activation or len(ref.data_inputs(node)) != 1:
            return ()
        activations.append(node)
        end = ref.data_inputs(node)[0]
    return tuple(reversed(activations))


def _changes_input(facts: TensorFacts, pair: Pair, nodes: tuple[Node, ...]) -> bool:
    """Return whether nodes of the reference change the recorded values of a backend tensor."""
    segment = Segment(nodes=nodes, feeds={pair.reference: pair.backend})
    replayed_pair = replace(pair, reference=nodes[-1].outputs[0])
    try:
        for place in facts.places:
            reference_values = facts.replays.values(replayed_pair, segment, place)
            backend_values = real_values(facts.backend, pair.backend, place)
            backend_values = in_reference_order(backend_values, pair.backend_view, reference_values.shape)
            share = segment_share(max(unit_roundoff(backend_values.dtype), declared_unit(facts.backend)))
            if backend_values.shape == reference_values.shape and finite_norm(
                minus(reference_values, backend_values)
            ) > share * finite_norm(backend_values):
                return True
    except (KernelError, NotRecordedError):
        return False
    return False
