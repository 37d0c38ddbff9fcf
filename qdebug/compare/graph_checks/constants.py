"""Compares the constants of a backend's nodes with the reference's: rounded, different, or out of range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile
from typing import NamedTuple

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.weights import in_plain_order, without_padding
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.attribute.rounding import float32_slack, scales_by_constants
from qdebug.compare.graph_checks.folded_constants import FoldedProduct, fold
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, graph_difference
from qdebug.model import Node, Recording, operators
from qdebug.model.dtypes import is_float, logical_name
from qdebug.model.operators.known_scales import scale_of_codes
from qdebug.model.thresholds.checks import COARSE_CONSTANT_SLACK, FLOAT_FORMAT_MAX_REL_DIFFERENCE
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, LSB_SLACK
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.blockwise_weight import blockwise_weight, max_rounding_errors, packed_inputs
from qdebug.replay.precision import is_real
from qdebug.replay.real_form import real_form

__all__ = [
    "coarse_constant",
    "find_different_bias",
    "find_different_constant",
    "find_different_folded_constant",
    "find_different_side_constant",
    "find_different_weight",
    "has_other_constant",
    "has_other_weight",
    "unrepresentable_constant",
]

_BIAS_SLOT = 2
"""Position of the bias in the titles of a product, see `Operator.titles`."""
_KIND_BY_TITLE = {"weight": FindingKind.WEIGHT, "recurrent weight": FindingKind.WEIGHT, "bias": FindingKind.BIAS}
"""Kind of a finding by the constant's title, `FindingKind.CONSTANT` for other titles."""


class _Operand(NamedTuple):
    """A constant operand of a backend node, in the node's real-valued form."""

    node: Node
    title: str
    name: str


class _RoundedValues(NamedTuple):
    """Real values of a constant, and half the rounding step of each."""

    values: np.ndarray
    half: np.ndarray

    def transposed(self) -> _RoundedValues:
        """Return both with rows and columns swapped."""
        return _RoundedValues(*(np.swapaxes(array, -1, -2) for array in self))

    def unpadded(self, shape: tuple[int, ...]) -> _RoundedValues:
        """Return a weight without the padding channels of a block."""
        values = without_padding(self.values, shape)
        return (
            self if values is self.values else _RoundedValues(values, self.half[: values.shape[0], : values.shape[1]])
        )


def has_other_constant(facts: TensorFacts) -> bool:
    """Return whether a constant of a node provably differs from the reference's, by more than its rounding.

    False if nodes of the reference may be folded into the constant, or if the constant is computed from others: its
    precision may then differ.
    """
    main = facts.main
    if (
        main is None
        or _are_computed(facts.ref, [main])
        or scales_by_constants(facts.ref, facts.segment.nodes_except(main))
    ):
        return False
    return find_different_constant(facts, facts.backend_form(facts.node), facts.reference_form(main)) is not None


def has_other_weight(facts: TensorFacts) -> bool:
    """Return whether the weight of the only product of a segment provably differs from the reference's."""
    products = [node for node in facts.segment.nodes if operators.plain(node).product]
    other_nodes = [node for node in facts.segment.nodes if node not in products]
    if _are_computed(facts.ref, products) or scales_by_constants(facts.ref, other_nodes):
        return False
    return find_different_weight(facts) is not None


def find_different_bias(facts: TensorFacts) -> tuple[float, Finding] | None:
    """Find a real-valued product bias that differs from the reference's by more than float rounding.

    It is not quantized, so rounding of the weight cannot hide the difference.

    Returns:
        Root mean square of the difference, and the finding, or None if the bias is equal or quantized.
    """
    main, node, ref = facts.main, facts.node, facts.ref
    if main is None or not operators.plain(main).product:
        return None
    folded = [
        other_node for other_node in facts.segment.nodes_except(main) if operators.plain(other_node).goes_into_weights
    ]
    own_bias = operators.titled_input(main, _BIAS_SLOT)
    is_scaled = any(gemm.attrs.get("beta", 1.0) != 1.0 for gemm in (main, node))
    if len(folded) != (not own_bias) or is_scaled or _are_computed(ref, [main]):
        return None
    bias, reference_bias = operators.titled_input(node, _BIAS_SLOT), own_bias or _find_added_constant(ref, main, folded)
    if not (bias and reference_bias and _is_unquantized(facts, bias) and ref.recording.has(reference_bias)):
        return None
    backend_values, reference_values = (
        np.ravel(real_values(facts.backend, bias)),
        np.ravel(real_values(facts.reference, reference_bias)),
    )
    if backend_values.shape != reference_values.shape or not ref.folds(reference_bias):
        return None
    difference = np.abs(np.subtract(backend_values, reference_values, dtype=np.float64))
    if not np.linalg.norm(difference) > FLOAT_FORMAT_MAX_REL_DIFFERENCE * np.linalg.norm(reference_values):
        return None
    is_wrong = difference > FLOAT_FORMAT_MAX_REL_DIFFERENCE * np.abs(reference_values)
    return float(np.sqrt(np.mean(difference**2))), _make_elements_finding(_Operand(node, "bias", bias), is_wrong)


def _find_added_constant(ref: IndexedRecording, main: Node, other_nodes: Sequence[Node]) -> str:
    """Return the constant that a separate node adds to a reference node's output, or "" if there is none."""
    adding_nodes = [node for node in other_nodes if operators.of(node.op).adds_term and main.outputs[0] in node.inputs]
    names = [name for node in adding_nodes for name in node.inputs if ref.folds(name)]
    return names[0] if len(names) == 1 else ""


def _is_unquantized(facts: TensorFacts, name: str) -> bool:
    """Return whether a name belongs to a backend constant that is not quantized."""
    info = facts.backend.graph.tensors.get(name)
    if info is None or info.quant is not None or not _is_constant(facts.be, name):
        return False
    return is_real(facts.backend.load(name).dtype) and not np.any(facts.replays.backend.half_steps(name))


def _is_constant(run: IndexedRecording, name: str) -> bool:
    """Return whether a name belongs to a recorded constant."""
    return bool(name) and run.folds(name) and run.recording.has(name)


def _are_computed(ref: IndexedRecording, nodes: Sequence[Node]) -> bool:
    """Return whether a constant of the reference nodes is computed from others, not just moved or cast."""
    names = (name for node in nodes for name in node.inputs if name and ref.folds(name))
    makers = (ref.recording.graph.producer(ref.root(name)) for name in names)
    return any(maker is not None and not operators.of(maker.op).moves for maker in makers)


def find_different_constant(facts: TensorFacts, backend_node: Node, reference_node: Node) -> Finding | None:
    """Find a constant that differs between two nodes, or that only one of them has. Return None if there is none.

    Args:
        facts: The tensor that both nodes lead to.
        backend_node: The backend node in real-valued form.
        reference_node: The reference node in real-valued form.
    """
    titles = operators.plain(reference_node).titles or ("constant",) * max(2, len(reference_node.inputs))
    for slot, title in enumerate(titles):
        backend_name, reference_name = (operators.titled_input(n, slot) for n in (backend_node, reference_node))
        if not backend_name and not reference_name:
            continue
        if slot > 1 and title == "constant" and not (backend_name and reference_name):
            continue  # an omitted input may equal its default
        if backend_name and not reference_name and any(operators.of(n.op).adds_term for n in facts.segment.nodes):
            reference_name = _find_added_constant(facts.ref, reference_node, facts.segment.nodes)
            if not reference_name:
                continue
        if not backend_name or not reference_name:
            has, reference_has = "a" if backend_name else "no", "one" if reference_name else "none"
            sentence = f"it has {has} {title}, but the reference has {reference_has}"
            return _make_finding(backend_node, title, sentence, evidence=backend_name or None)
        transposed = slot == 1 and _have_transposed_weights(backend_node, reference_node)
        finding = _different_elements(
            facts, _Operand(backend_node, title, backend_name), reference_name, transposed=transposed
        )
        if finding is not None:
            return finding
    return None


def _have_transposed_weights(backend_node: Node, reference_node: Node) -> bool:
    """Return whether the weights of two products have rows and columns swapped."""
    return bool(backend_node.attrs.get("transB")) != bool(reference_node.attrs.get("transB"))


def _different_elements(
    facts: TensorFacts, operand: _Operand, reference_name: str, *, transposed: bool = False
) -> Finding | None:
    """Find elements of a backend constant that differ from the reference's by more than rounding."""
    if not (_is_constant(facts.be, operand.name) and _is_constant(facts.ref, reference_name)):
        return None
    backend_values, reference_reals = (
        _rounded_constant(facts, operand.name),
        real_values(facts.reference, reference_name),
    )
    if (backend_values.values.dtype.kind in "iu") != (reference_reals.dtype.kind in "iu"):
        return None  # integers without a scale cannot be compared with reals
    reference_values = _RoundedValues(reference_reals, facts.replays.reference.half_steps(reference_name))
    reference_values = reference_values.transposed() if transposed else reference_values
    backend_values = backend_values.unpadded(reference_values.values.shape)
    if operand.title in ("bias", "constant") and backend_values.values.shape != reference_values.values.shape:
        backend_values, reference_values = _in_common_shape(backend_values, reference_values)
    reference_levels = facts.replays.reference.levels(reference_name)
    return _find_wrong_elements(facts, operand, backend_values, reference_values, reference_levels=reference_levels)


def _find_wrong_elements(
    facts: TensorFacts,
    operand: _Operand,
    backend_values: _RoundedValues,
    reference_values: _RoundedValues,
    *,
    reference_levels: tuple[int, int] | None = None,
    slack: np.ndarray | float = 0.0,
    suffix: str = "",
) -> Finding | None:
    """Find elements of a constant that differ from the reference's, or a wrong scale that changes all of them.

    Args:
        facts: The tensor that the constant leads to.
        operand: The constant.
        backend_values: Its real values.
        reference_values: The reference's real values.
        reference_levels: How many codes the reference's constant uses, and how many exist. None if it has none.
        slack: Additional allowed error of each element.
        suffix: Text to append to the finding.
    """
    if backend_values.values.shape != reference_values.values.shape:
        return None
    # Subtract in float64, because masks are booleans.
    difference = np.abs(np.subtract(backend_values.values, reference_values.values, dtype=np.float64))
    allowed_errors = (
        (1 + LSB_SLACK) * (backend_values.half + reference_values.half) + float32_slack(reference_values.values) + slack
    )
    is_beyond = difference > allowed_errors
    if not is_beyond.any():
        return None
    levels = facts.replays.backend.levels(operand.name)
    is_as_coarse = levels is not None and reference_levels is not None and levels[0] >= reference_levels[0]
    if levels is not None and not is_as_coarse:
        half_steps_of_codes = facts.replays.backend.half_steps(operand.name, any_scale=True)
        if not np.any(difference > (1 + LSB_SLACK) * half_steps_of_codes + COARSE_CONSTANT_SLACK):
            return coarse_constant(operand.node, operand.title, operand.name, *levels)
    return _find_wrong_scale(facts, operand, backend_values, reference_values) or _make_elements_finding(
        operand, is_beyond, suffix
    )


def _rounded_constant(facts: TensorFacts, name: str) -> _RoundedValues:
    """Return a constant of the backend as real values, with half a step for each."""
    readers = facts.backend.graph.consumers(name)
    packed = (node for node in readers if operators.of(node.op).packed)
    node = next((node for node in packed if packed_inputs(node)[:1] == (name,)), None)
    if node is None:
        rounded = _RoundedValues(real_values(facts.backend, name), facts.replays.backend.half_steps(name))
        reader = next((reader for reader in readers if name in reader.inputs[1:2]), None)
        if reader is None:
            return rounded
        return _RoundedValues(*(in_plain_order(facts.be, reader, array) for array in rounded))
    parts = [part for part in packed_inputs(node) if facts.backend.has(part)]
    codes, scales = blockwise_weight(node, {part: facts.backend.load(part) for part in parts})
    return _RoundedValues(codes * scales, max_rounding_errors(node, codes, scales))


def find_different_folded_constant(
    facts: TensorFacts, backend_node: Node, main: Node, other_nodes: Sequence[Node], *, bias: bool = True
) -> Finding | None:
    """Find a weight or bias that differs from the reference's after the reference's later nodes are folded into it.

    Args:
        facts: The tensor that both sides' nodes lead to.
        backend_node: The backend node in real-valued form.
        main: The reference's product.
        other_nodes: The reference's other nodes.
        bias: Whether to check the bias. False if another backend node may add it.
    """
    if not operators.plain(main).product:
        return None
    folded = fold(facts.ref, main, other_nodes)
    weight = operators.titled_input(backend_node, 1)
    if folded is None or not _is_constant(facts.be, weight):
        return None
    steps = facts.replays.reference.half_steps(operators.titled_input(main, 1)) * np.abs(folded.gain)
    reference_values = _RoundedValues(folded.weight, steps)
    reference_values = (
        reference_values.transposed() if _have_transposed_weights(backend_node, main) else reference_values
    )
    backend_values = _rounded_constant(facts, weight).unpadded(reference_values.values.shape)
    if backend_values.values.shape != reference_values.values.shape:
        return None
    suffix = f" (its {' and '.join(dict.fromkeys(node.op for node in folded.nodes))} folded in)"
    slack = _folding_error(np.abs(reference_values.values))
    finding = _find_wrong_elements(
        facts, _Operand(backend_node, "weight", weight), backend_values, reference_values, slack=slack, suffix=suffix
    )
    return finding or (_find_different_folded_bias(facts, backend_node, folded, suffix) if bias else None)


def _find_different_folded_bias(
    facts: TensorFacts, backend_node: Node, folded: FoldedProduct, suffix: str
) -> Finding | None:
    bias = operators.titled_input(backend_node, _BIAS_SLOT)
    if not bias:
        is_missing = bool((np.abs(folded.bias) > _folding_error(folded.bias_size)).any())
        sentence = f"it has no bias, but the reference has one{suffix}"
        return _make_finding(backend_node, "bias", sentence, evidence=None) if is_missing else None
    if not _is_constant(facts.be, bias):
        return None
    bias_values, half = map(np.ravel, _rounded_constant(facts, bias))
    count = folded.bias.size
    if bias_values.size > count and not bias_values[count:].any():  # padding channels of a block
        bias_values, half = bias_values[:count], half[:count]
    if bias_values.shape != folded.bias.shape:
        return None
    allowed_errors = (1 + LSB_SLACK) * half + float32_slack(folded.bias) + _folding_error(folded.bias_size)
    is_beyond = np.abs(bias_values - folded.bias) > allowed_errors
    return _make_elements_finding(_Operand(backend_node, "bias", bias), is_beyond, suffix) if is_beyond.any() else None


def _find_wrong_scale(
    facts: TensorFacts, operand: _Operand, backend_values: _RoundedValues, reference_values: _RoundedValues
) -> Finding | None:
    """Find a wrong scale: the codes of a constant are right except for one common factor."""
    graph = facts.backend.graph
    codes = next((form for form in facts.be.members(operand.name) if graph.tensors[form].quant is not None), None)
    reader_and_scale = None if codes is None else scale_of_codes(graph, codes)
    factor = None if reader_and_scale is None else _common_factor(backend_values, reference_values)
    if reader_and_scale is None or factor is None:
        return None
    reader, scale = reader_and_scale
    sentence = f"the scale {scale!r} of its {operand.title} {operand.name!r} is {1 / factor:.4g} times the reference's"
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.DIFFERENCE,
        node=operand.node.name if codes in reader.inputs else reader.name,
        sentence=sentence,
        amount=1 / factor,
        limit=1.0,
        unit="times the reference's",
        evidence=scale,
    )


def find_different_weight(facts: TensorFacts) -> Finding | None:
    """Find a weight that differs from the reference's, if each side's nodes include only one product."""
    segment = facts.segment
    if segment.products is None:
        return None
    product, backend_product = segment.products
    reference_form, backend_form = facts.reference_form(product), facts.backend_form(backend_product)
    reference_scalings, backend_scalings = (
        sum(scales_by_constants(run, [node]) for node in nodes if node not in (product, backend_product))
        for run, nodes in ((facts.ref, segment.nodes), (facts.be, segment.own))
    )
    if reference_scalings and backend_scalings and reference_scalings != backend_scalings:
        return None  # some factors are folded into other constants, but which ones is unknown
    if reference_scalings and not backend_scalings:
        finding = find_different_folded_constant(
            facts, backend_form, reference_form, segment.nodes_except(product), bias=False
        )
    else:
        backend_name, reference_name = (operators.titled_input(form, 1) for form in (backend_form, reference_form))
        finding = _different_elements(
            facts,
            _Operand(backend_form, "weight", backend_name),
            reference_name,
            transposed=_have_transposed_weights(backend_form, reference_form),
        )
    if finding is None:
        return None
    return replace(finding, sentence=f"of {backend_form.op} {backend_form.name!r}, {finding.sentence}")


def find_different_side_constant(facts: TensorFacts) -> Finding | None:
    """Find a different table, summand or factor among several nodes, if each side has only one of its kind."""
    backend_constants = _constants_by_role(facts.be, facts.segment.own)
    reference_constants = _constants_by_role(facts.ref, facts.segment.nodes)
    factor_counts = [len(constants.get("factor", ())) for constants in (backend_constants, reference_constants)]
    if reference_constants.get("weight") and factor_counts[0] != factor_counts[1]:
        return None  # a factor and a summand may have been folded into the weight
    for kind, backend_entries in backend_constants.items():
        reference_entries = reference_constants.get(kind, [])
        if kind == "weight" or len(backend_entries) != 1 or len(reference_entries) != 1:
            continue
        (node, name), (reference_node, reference_name) = backend_entries[0], reference_entries[0]
        if kind == "factor" and (node.op != reference_node.op or backend_constants.get("weight")):
            continue
        operand = _Operand(node, "constant" if kind == "factor" else kind, name)
        finding = _different_elements(facts, operand, reference_name)
        if finding is not None:
            return replace(finding, sentence=f"of {node.op} {node.name!r}, {finding.sentence}")
    return None


def _constants_by_role(run: IndexedRecording, nodes: Sequence[Node]) -> dict[str, list[tuple[Node, str]]]:
    """Return the constants of the nodes' real-valued forms, by role: weight, bias, table or factor."""
    constants_by_role: dict[str, list[tuple[Node, str]]] = {}

    def add(kind: str, node: Node, name: str) -> None:
        if _is_constant(run, name):
            constants_by_role.setdefault(kind, []).append((node, name))

    for recorded_node in nodes:
        node, _ = real_form(recorded_node, run.recording.graph.opset)
        row = operators.plain(node)
        if row.product:
            add("weight", node, operators.titled_input(node, 1))
            if not operators.of(node.op).sums_codes:  # QLinear products have zero points there
                add("bias", node, operators.titled_input(node, _BIAS_SLOT))
        elif row.index_inputs:
            add("table", node, node.inputs[0])
        elif row.adds_term or row.neutral is not None or row.scales_channels:
            for name in node.inputs:
                add("bias" if row.adds_term else "factor", node, name)
    return constants_by_role


def _in_common_shape(
    backend_values: _RoundedValues, reference_values: _RoundedValues
) -> tuple[_RoundedValues, _RoundedValues]:
    """Reshape two constants to a common shape if they broadcast to the same elements.

    Leading extents of 1 have no effect, a single number is broadcast, and a vector may lie along any axis.
    """
    arrays = [
        array.reshape(tuple(dropwhile(lambda extent: extent == 1, array.shape)))
        for array in (*backend_values, *reference_values)
    ]
    shapes = [arrays[0].shape, arrays[2].shape]
    sizes = backend_values.values.size, reference_values.values.size
    if shapes[0] == shapes[1] or 1 in sizes:
        arrays = list(np.broadcast_arrays(*arrays))
    elif sizes[0] == sizes[1] and all(sum(extent > 1 for extent in shape) == 1 for shape in shapes):
        arrays = list(map(np.ravel, arrays))
    else:
        return backend_values, reference_values
    return _RoundedValues(*arrays[:2]), _RoundedValues(*arrays[2:])


def _common_factor(backend_values: _RoundedValues, reference_values: _RoundedValues) -> float | None:
    """Return the one factor that turns rounded values into the reference's within half a step, or None."""
    magnitude, reference_magnitude = (
        np.abs(constant.values, dtype=np.float64) for constant in (backend_values, reference_values)
    )
    half, slack = backend_values.half, (1 + LSB_SLACK) * reference_values.half + float32_slack(reference_values.values)
    has_sign = magnitude > half  # rounding can change the sign of smaller values
    usable = has_sign & (reference_magnitude > slack)
    if np.unique(magnitude[usable]).size < 2 or np.any((backend_values.values * reference_values.values < 0) & usable):
        return None  # with equal magnitudes only, a wrong code and a wrong scale look the same
    lower_bound = np.max(
        np.divide(
            reference_magnitude - slack, magnitude + half, out=np.zeros_like(magnitude), where=magnitude + half > 0
        )
    )
    upper_bound = np.min(
        np.divide(reference_magnitude + slack, magnitude - half, out=np.full_like(magnitude, np.inf), where=has_sign)
    )
    return float((lower_bound + upper_bound) / 2) if 0 < lower_bound <= (1 + LSB_SLACK) * upper_bound else None


def _folding_error(size: np.ndarray) -> np.ndarray:
    """Return the error of folding in float32, for numbers of a given magnitude."""
    return np.asarray(FLOAT32_STORED_REL_ERROR * size)


def coarse_constant(node: Node, title: str, name: str, used: int, count: int) -> Finding:
    """Return the finding that the scale of a constant is far too large: it uses `used` of `count` codes."""
    return Finding(
        kind=FindingKind.SCALE,
        role=FindingRole.DIFFERENCE,
        node=node.name,
        sentence=f"its {title} {name!r} uses only {used} of {count} codes; its scale is far too large",
        amount=float(used),
        limit=float(count),
        unit="codes in use",
        evidence=name,
    )


def _make_elements_finding(operand: _Operand, is_wrong: np.ndarray, suffix: str = "") -> Finding:
    """Return the finding that the masked elements of a constant differ from the reference."""
    count = f"{int(is_wrong.sum())} of {is_wrong.size} elements of {operand.title} {operand.name!r}"
    finding = _make_finding(
        operand.node,
        operand.title,
        f"{count} differ from the reference{suffix} by more than rounding",
        evidence=operand.name,
    )
    return replace(finding, amount=float(is_wrong.sum()), limit=0.0, unit="elements")


def _make_finding(node: Node, title: str, sentence: str, *, evidence: str | None) -> Finding:
    return graph_difference(_KIND_BY_TITLE.get(title, FindingKind.CONSTANT), node, sentence, evidence=evidence)


def unrepresentable_constant(replays: ReferenceReplay, reference_node: Node, backend_node: Node) -> Finding | None:
    """Find a constant of a backend node with elements outside the range of its format, whatever dtype stores it.

    An element of a weight counts only if the rounding of the sum does not hide it.

    Args:
        replays: Both runs and the formats of their constants.
        reference_node: The reference's node.
        backend_node: The backend's counterpart.

    Returns:
        The difference, or None if there is none.
    """
    reference, backend = replays.ref.recording, replays.be.recording
    form, _ = real_form(backend_node, backend.graph.opset)
    titles = operators.plain(reference_node).titles
    for slot, (reference_name, name) in enumerate(zip(reference_node.inputs, form.inputs, strict=False)):
        if not (_is_unquantized_constant(backend, name) and _is_unquantized_constant(reference, reference_name)):
            continue
        backend_values, reference_values = backend.load(name), reference.load(reference_name)
        if (
            not all(is_float(logical_name(array.dtype)) for array in (backend_values, reference_values))
            or backend_values.shape != reference_values.shape
        ):
            continue
        short_format = replays.backend.format(name)
        if short_format is None or (
            backend_values.dtype == reference_values.dtype
            and np.array_equal(backend_values, reference_values, equal_nan=True)
        ):
            continue  # not rounded to a short format, or stored exactly as in the reference
        noise = short_format.unit if slot == 1 and operators.of(form.op).product else 0.0
        title = f"{titles[slot] if slot < len(titles) else 'constant'} {name!r}"
        loss = _range_loss(
            title, backend_values.astype(np.float64), reference_values.astype(np.float64), noise, short_format
        )
        if loss is not None:
            return Finding(
                kind=FindingKind.PRECISION,
                role=FindingRole.DIFFERENCE,
                node=backend_node.name,
                sentence=loss[1],
                amount=float(loss[0]),
                limit=0.0,
                unit="elements",
                evidence=name,
            )
    return None


def _is_unquantized_constant(recording: Recording, name: str) -> bool:
    """Return whether a name belongs to a recorded constant that is not quantized."""
    is_recorded = bool(name) and recording.graph.is_constant(name) and recording.has(name)
    return is_recorded and recording.graph.tensors[name].quant is None


def _range_loss(
    title: str, backend_values: np.ndarray, reference_values: np.ndarray, noise: float, short_format: ShortFormat
) -> tuple[int, str] | None:
    """Return the number of elements lost to the range of a format, and a clause, or None if none are lost."""
    size = np.abs(reference_values)
    largest = float(np.max(size, initial=0, where=np.isfinite(reference_values)))
    is_zeroed = (backend_values == 0) & (size > noise * largest) & (size < short_format.normal)
    is_flushed = is_zeroed & (size > short_format.subnormal / 2)
    is_clamped = (
        (np.abs(backend_values) == short_format.largest)
        & (size >= short_format.beyond)
        & (np.sign(backend_values) == np.sign(reference_values))
    )
    name = short_format.name
    for is_lost, verb in (
        (np.isinf(backend_values) & np.isfinite(reference_values), f"overflow{{}} to infinity in {name}"),
        (is_clamped, f"{{}} clamped to {short_format.largest:.6g}, the largest {name}"),
        (is_flushed, f"{{}} subnormal in {name}, below {short_format.normal:.6g}, and flushed to zero"),
        (is_zeroed & ~is_flushed, f"underflow{{}} to zero in {name}"),
    ):
        count = int(is_lost.sum())
        singular, plural = ("is", "are") if verb.startswith("{") else ("s", "")
        if count and is_lost.size == 1:
            return count, f"its {title} of {reference_values.reshape(-1)[0]:g} {verb.format(singular)}"
        if count:
            clause = verb.format(singular if count == 1 else plural)
            first = f"{'' if count == 1 else 'the first is '}{reference_values[is_lost][0]:g}"
            return count, f"{count} of {is_lost.size} elements of its {title} {clause}: {first}"
    return None
