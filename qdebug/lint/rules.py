"""Rules for faults that a single model reveals by itself.

Examples: codes are read with a different scale than they were written with; integer kernels cannot represent a zero
point or a bias; one tensor is quantized in two different ways.

Each rule builds the intended form of a small part of the model, and searches for an input on which the part and its
intended form differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from qdebug.errors import KernelError
from qdebug.lint.chip_rules import ChipRules, find_codes_of_input
from qdebug.lint.finding import LintFinding
from qdebug.lint.replay import LintModel, Span, is_coded, nodes_between, span_of
from qdebug.lint.search import LintPart, Witness, find_witness, largest_step
from qdebug.model import Graph, Node, QuantParams, TensorInfo, operators
from qdebug.model.dtypes import code_limits, logical_dtype
from qdebug.model.tensor import Role
from qdebug.model.thresholds.explanation import BIAS_SCALE_MAX_REL_DIFFERENCE
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["find_own_faults"]

_MAX_NODES = 60
_QUANTIZE, _DEQUANTIZE = (operators.named(word).name for word in ("quantize", "dequantize"))


_TensorCheck = tuple[str, Callable[[], LintFinding | None]]
"""A tensor, and the check to run for it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TensorFacts:
    """Known values of the tensors of a model.

    Args:
        values: Values that were computed from inputs of the network.
        spans: The interval of values that each tensor can have.
    """

    values: Mapping[str, np.ndarray]
    spans: Mapping[str, Span]


def find_own_faults(
    model: LintModel, values: Mapping[str, np.ndarray], chip: ChipRules | None, undecided: dict[str, str]
) -> tuple[list[LintFinding], int]:
    """Search for faults that a model reveals by itself.

    Args:
        model: The model.
        values: Values of the model's tensors, computed from network inputs.
        chip: The rules of a chip or runtime, or None.
        undecided: Collects why parts could not be decided, by the tensor that they compute.

    Returns:
        The findings, and the number of tensors in codes.
    """
    inputs = {name: model.span(name, {}) for name in model.graph.inputs}
    facts = _TensorFacts(values=values, spans=model.spans(model.graph.nodes, inputs))
    rules: list[Iterator[_TensorCheck]] = [
        _check_scales(model, facts), _check_zero_points(model), _check_duplicates(model, facts),
        _check_biases(model, facts),
        iter(()) if chip is None else _check_zero_point_rules(model, facts, chip),
    ]  # fmt: skip
    findings, count = [], sum(is_coded(info.quant) for info in model.graph.tensors.values())
    for rule in rules:
        for tensor, check in rule:
            checkpoint()
            try:
                finding = check()
            except KernelError as error:
                undecided[tensor] = error.message
                continue
            findings += [] if finding is None else [finding]
    return findings, count


def _find_difference(
    kind: str, before: LintPart, after: LintPart, facts: _TensorFacts, detail: str
) -> LintFinding | None:
    """Return a finding if an input reveals that two parts differ."""
    model = after.model
    spans = [model.span(name, facts.spans) for name in after.leaves]
    values = [model.real(name, facts.values[name]) if name in facts.values else None for name in after.leaves]
    found_witness = find_witness(before, after, spans, values, checkpoint)
    if found_witness is None:
        return None
    return LintFinding(
        kind=kind,
        model=model.title,
        before=tuple(node.name for node in before.nodes),
        after=tuple(node.name for node in after.nodes),
        tensor=after.output,
        span_before=before.span(spans),
        span_after=after.span(spans),
        step=max(largest_step(before), largest_step(after)),
        witness=found_witness,
        detail=detail,
    )


def _quant_text(quant: QuantParams) -> str:
    scale, zero = float(quant.scale.ravel()[0]), int(quant.zero_point.ravel()[0])
    return f"scale {scale:.6g} / zero point {zero}"


def _have_same_codes(first: QuantParams, second: QuantParams) -> bool:
    """Return whether equal codes represent equal values, whatever their range."""
    return first.has_same_codes(second)


def _check_scales(model: LintModel, facts: _TensorFacts) -> Iterator[_TensorCheck]:
    """Find codes that are read with a different scale than they were written with."""
    scales: dict[str, dict[str, QuantParams]] = {}
    for name in model.graph.inputs:
        if (quant := model.quant(name)) is not None:
            scales[name] = {name: quant}
    for node in model.graph.nodes:
        if not any(node.inputs) or not any(node.outputs[:1]):
            continue  # the node only stores a state, or has no data input
        row, output = operators.of(node.op), node.outputs[0]
        slots = () if row.quantizes else (0,) if row.dequantizes else operators.coded_inputs(node.op, len(node.inputs))
        for slot in slots:
            read_quant = model.declared_quant(node, slot)
            for origin, quant in scales.get(node.inputs[slot], {}).items():
                if read_quant is not None and _scales_differ(read_quant, quant):
                    yield output, partial(_misread_finding, model, facts, node, origin, (quant, read_quant))
        passed_scales, declared = _scales_passed_on(model, node, scales), model.quant(output)
        if model.copies_codes and declared is not None:
            for quant in passed_scales.values():
                if _scales_differ(quant, declared):
                    yield output, partial(_copied_finding, model, facts, node, quant, declared)
        result_quant = _scale_of_result(model, node)
        scales[output] = (
            passed_scales if passed_scales and model.raw else {} if result_quant is None else {output: result_quant}
        )


def _scales_passed_on(
    model: LintModel, node: Node, scales: Mapping[str, Mapping[str, QuantParams]]
) -> dict[str, QuantParams]:
    """Return the scales of codes that a node passes on unchanged, by the tensor whose node computed these codes."""
    row = operators.of(node.op)
    passes_on = row.passes_codes and not (row.picks_index or row.clamps or row.quantizes) and row.real is None
    if not passes_on or not (model.raw or model.copies_codes):
        return {}
    names = [name for name in operators.operands(node) if name][: None if row.joins else 1]
    return {origin: quant for name in names for origin, quant in scales.get(name, {}).items()}


def _scale_of_result(model: LintModel, node: Node) -> QuantParams | None:
    """Return the scale of the codes that a node computes, or None if it computes no codes or declares no scale."""
    row = operators.of(node.op)
    declares_scale = row.quantizes or row.real is not None
    quant = model.declared_quant(node, -1) if declares_scale else None if model.raw else model.quant(node.outputs[0])
    return quant if is_coded(quant) else None


def _scales_differ(first: QuantParams, second: QuantParams) -> bool:
    """Return whether two per-tensor scales give equal codes different values."""
    return not (first.per_channel or second.per_channel or _have_same_codes(first, second))


def _misread_finding(
    model: LintModel, facts: _TensorFacts, node: Node, origin: str, quants: tuple[QuantParams, QuantParams]
) -> LintFinding | None:
    """Compare reading codes with a different scale with rescaling them first."""
    stops = {origin, *(name for name in model.graph.tensors if model.quant(name) is not None)} - set(
        _tensors_between(model, node, origin)
    )
    part = nodes_between(model.graph, node.outputs[0], stops, _MAX_NODES)
    if part is None:
        raise KernelError(f"There are more than {_MAX_NODES} nodes between {origin!r} and {node.name!r}.")
    nodes, leaves = part
    after = LintPart(model=model, nodes=nodes, output=node.outputs[0], leaves=sorted(leaves))
    inserted_nodes, infos, constants = _requantizing_nodes(origin, *quants)
    rescaled_tensor = f"{origin}, rescaled"
    renamed_nodes = [
        replace(part_node, inputs=tuple(rescaled_tensor if name == origin else name for name in part_node.inputs))
        for part_node in nodes
    ]
    infos += [replace(model.graph.tensors[name], quant=quants[1]) for name in _tensors_between(model, node, origin)]
    correct_model = model.with_graph(
        Graph(
            [*inserted_nodes, *renamed_nodes], tensors=[*model.graph.tensors.values(), *infos], inputs=after.leaves,
            outputs=node.outputs[:1], opset=model.graph.opset,
        ),
        constants,
    )  # fmt: skip
    before = LintPart(model=correct_model, nodes=correct_model.graph.nodes, output=after.output, leaves=after.leaves)
    is_moved = len(nodes) > 1 or operators.plain(node).adds
    direct_kind = "rescale_in_dequantize" if operators.of(node.op).dequantizes else "dequantize_quantize_removed"
    kind = "moved" if is_moved else direct_kind
    made_text, read_text = map(_quant_text, quants)
    detail = f"{origin!r} has {made_text}, but is read with {read_text}"
    finding = _find_difference(kind, before, after, facts, detail)
    return None if finding is None else replace(finding, right=before, actual=after)


def _tensors_between(model: LintModel, node: Node, origin: str) -> Iterator[str]:
    """Yield the tensors through which codes are passed on from their origin to a node."""
    pending = [name for name in node.inputs if name]
    while pending:
        name = pending.pop()
        producer = model.graph.producer(name)
        if name != origin and producer is not None and operators.of(producer.op).passes_codes:
            yield name
            pending += [operand for operand in operators.operands(producer) if operand]


def _requantizing_nodes(
    origin: str, old_quant: QuantParams, new_quant: QuantParams
) -> tuple[list[Node], list[TensorInfo], dict[str, np.ndarray]]:
    """Return nodes that convert codes to a different scale, with their constants."""
    names = [f"{origin}, {suffix}" for suffix in ("scale", "zero point", "new scale", "new zero point")]
    arrays = [
        array
        for quant in (old_quant, new_quant)
        for array in (
            quant.scale.astype(np.float32).reshape(()),
            quant.zero_point.astype(logical_dtype(quant.dtype)).reshape(()),
        )
    ]
    real_tensor, rescaled_tensor = f"{origin}, real", f"{origin}, rescaled"
    nodes = [
        Node(name=f"{origin}, dequantized", op=_DEQUANTIZE, inputs=(origin, *names[:2]), outputs=(real_tensor,)),
        Node(
            name=f"{origin}, quantized again",
            op=_QUANTIZE,
            inputs=(real_tensor, *names[2:]),
            outputs=(rescaled_tensor,),
        ),
    ]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in names]
    infos.append(TensorInfo(name=rescaled_tensor, dtype=new_quant.dtype, quant=new_quant))
    return nodes, infos, dict(zip(names, arrays, strict=True))


def _copied_finding(
    model: LintModel, facts: _TensorFacts, node: Node, quant: QuantParams, declared: QuantParams
) -> LintFinding | None:
    """Compare passing codes on unchanged with converting them to the declared scale."""
    leaves = sorted({name for name in node.inputs if name and not model.graph.is_constant(name)})
    after = LintPart(model=model, nodes=[node], output=node.outputs[0], leaves=leaves)
    before = replace(after, model=replace(model, copies_codes=False))
    return _find_difference(
        "moved", before, after, facts, f"it reads {_quant_text(quant)}, but returns {_quant_text(declared)}"
    )


def _check_zero_points(model: LintModel) -> Iterator[_TensorCheck]:
    """Find codes that cannot represent 0."""
    for name, info in model.graph.tensors.items():
        quant = info.quant
        if quant is None or not is_coded(quant) or quant.per_channel or logical_dtype(quant.dtype).itemsize > 2:
            continue
        low, high = code_limits(quant.dtype)
        if low is not None and high is not None and not low <= int(quant.zero_point[0]) <= high:
            yield name, partial(_zero_point_finding, model, name, quant)


def _zero_point_finding(model: LintModel, name: str, quant: QuantParams) -> LintFinding | None:
    zero_value = float(dequantize(quantize(np.zeros(1, np.float64), quant), quant, double=True)[0])
    producer = model.graph.producer(name)
    nodes = () if producer is None else (producer.name,)
    found_witness = Witness(
        leaves=(name,),
        values=(np.zeros(1),),
        index=(0,),
        before=0.0,
        after=zero_value,
        largest=abs(zero_value),
        reached=False,
    )
    if not zero_value:
        return None
    low, high = span_of(quant)
    return LintFinding(
        kind="zero_point", model=model.title, before=nodes, after=nodes, tensor=name,
        span_before=(min(low, 0.0), max(high, 0.0)), span_after=(low, high), step=float(quant.scale[0]),
        witness=found_witness, detail=f"{_quant_text(quant)} of {quant.dtype}",
    )  # fmt: skip


def _check_duplicates(model: LintModel, facts: _TensorFacts) -> Iterator[_TensorCheck]:
    """Find real values that are quantized in two ways and meet again in a sum."""
    graph = model.graph
    for name in graph.tensors:
        readers = [node for node in graph.consumers(name) if operators.of(node.op).quantizes and node.inputs[0] == name]
        quants = [model.declared_quant(node, -1) for node in readers]
        for index, (node, quant) in enumerate(zip(readers, quants, strict=True)):
            first_reader, first_quant = readers[0], quants[0]
            if not index or first_quant is None or quant is None or quant.per_channel or first_quant.per_channel:
                continue
            if not _have_same_codes(first_quant, quant) and _meet_in_sum(graph, first_reader, node):
                yield name, partial(_duplicate_finding, model, facts, name, (first_reader, node), (first_quant, quant))


def _meet_in_sum(graph: Graph, first: Node, second: Node) -> bool:
    """Return whether the results of two nodes meet in a sum."""
    nodes_below = []
    for node in (first, second):
        visited_nodes, pending = set[str](), [node]
        while pending:
            for reader in (consumer for name in pending.pop().outputs for consumer in graph.consumers(name)):
                if reader.name not in visited_nodes:
                    visited_nodes.add(reader.name)
                    pending.append(reader)
        nodes_below.append(visited_nodes)
    common_nodes = nodes_below[0] & nodes_below[1]
    return any(operators.plain(node).adds for node in graph.nodes if node.name in common_nodes)


def _duplicate_finding(
    model: LintModel, facts: _TensorFacts, name: str, pair: tuple[Node, Node], quants: tuple[QuantParams, QuantParams]
) -> LintFinding | None:
    parts = []
    for node in pair:
        real_tensor = f"{name}, real"
        dequantize_node = Node(
            name=f"{node.name}, dequantized",
            op=_DEQUANTIZE,
            inputs=(node.outputs[0], *node.inputs[1:3]),
            outputs=(real_tensor,),
        )
        graph = Graph(
            [node, dequantize_node],
            tensors=model.graph.tensors.values(),
            inputs=(name,),
            outputs=(real_tensor,),
            opset=model.graph.opset,
        )
        parts.append(LintPart(model=model.with_graph(graph, {}), nodes=graph.nodes, output=real_tensor, leaves=[name]))
    finding = _find_difference("duplicated", parts[0], parts[1], facts, " and ".join(map(_quant_text, quants)))
    if finding is None:
        return None
    return replace(finding, tensor=name, before=(pair[0].name,), after=(pair[1].name,))


def _check_biases(model: LintModel, facts: _TensorFacts) -> Iterator[_TensorCheck]:
    """Find quantized biases whose scale is not that of the sums they are added to."""
    for node in model.graph.nodes:
        row = operators.of(node.op)
        bias_slot = row.bias
        if row.real is not None or not row.product or bias_slot is None or bias_slot >= len(node.inputs):
            continue
        quants = [_codes_behind(model, node.inputs[position]) for position in (0, 1, bias_slot)]
        (input_name, input_quant), (_, weight_quant), (name, bias_quant) = quants
        if (
            input_quant is None
            or weight_quant is None
            or bias_quant is None
            or input_quant.per_channel
            or not name
            or model.constant(name) is None
        ):
            continue
        sum_scale = input_quant.scale.astype(np.float64) * weight_quant.scale
        if sum_scale.size not in (1, bias_quant.scale.size) and bias_quant.scale.size != 1:
            continue
        ratio = np.max(np.abs(bias_quant.scale.astype(np.float64) / np.where(sum_scale == 0, np.nan, sum_scale) - 1))
        if ratio > BIAS_SCALE_MAX_REL_DIFFERENCE and input_name:
            yield node.outputs[0], partial(_bias_finding, model, facts, node, name, sum_scale)


def _codes_behind(model: LintModel, name: str) -> tuple[str, QuantParams | None]:
    """Return the codes of a tensor, or those that it was dequantized from, and their quantization."""
    producer = model.graph.producer(name)
    if producer is not None and operators.of(producer.op).dequantizes:
        return producer.inputs[0], model.declared_quant(producer, 0)
    return (name, model.quant(name)) if not model.raw else ("", None)


def _bias_finding(
    model: LintModel, facts: _TensorFacts, node: Node, name: str, sum_scale: np.ndarray
) -> LintFinding | None:
    """Compare a bias at its own scale with the same codes at the scale of the sums, as integer kernels add them."""
    producer = model.graph.producer(node.inputs[operators.of(node.op).bias or 0])
    recorded_quant = model.graph.tensors[name].quant
    if recorded_quant is None:
        return None
    scale = sum_scale.astype(np.float32) if sum_scale.size > 1 else sum_scale.astype(np.float32).reshape(-1)
    quant = QuantParams(dtype=recorded_quant.dtype, scale=scale, axis=0 if scale.size > 1 else None)
    infos = {**model.graph.tensors, name: replace(model.graph.tensors[name], quant=quant)}
    constants, reader = {}, producer
    if producer is not None:
        constants[producer.inputs[1]] = scale if scale.size > 1 else scale.reshape(())
        reader = replace(producer, inputs=producer.inputs[:2], attrs={**producer.attrs, "axis": 0})
    is_shared = scale.size > 1 and recorded_quant.scale.size == 1
    right = "the product of the operands' scales"
    detail = f"it has one scale for all channels, not {right} for each" if is_shared else f"its scale is not {right}"
    return _changed_constant_finding(model, facts, node, (infos, constants), ("bias", detail), reader=reader)


def _changed_constant_finding(
    model: LintModel,
    facts: _TensorFacts,
    node: Node,
    changed_facts: tuple[Mapping[str, TensorInfo], Mapping[str, np.ndarray]],
    kind_and_detail: tuple[str, str],
    *,
    reader: Node | None = None,
) -> LintFinding | None:
    """Compare a node with a copy that has different constants, and `reader` in place of the node that reads these."""
    stops = {
        name for name in model.graph.tensors if model.quant(name) is not None and not model.graph.is_constant(name)
    }
    stops |= {name for name in node.inputs if name and not _is_computed_from_constants(model, name)}
    part = nodes_between(model.graph, node.outputs[0], stops, _MAX_NODES)
    if part is None:
        raise KernelError(f"More than {_MAX_NODES} nodes are needed to compute the inputs of {node.name!r}.")
    nodes, leaves = part
    changed_nodes = [reader if reader is not None and reader.name == node.name else node for node in nodes]
    graph = Graph(
        changed_nodes,
        tensors=changed_facts[0].values(),
        inputs=sorted(leaves),
        outputs=node.outputs[:1],
        opset=model.graph.opset,
    )
    before = LintPart(model=model, nodes=nodes, output=node.outputs[0], leaves=sorted(leaves))
    after = replace(before, model=model.with_graph(graph, changed_facts[1]), nodes=graph.nodes)
    return _find_difference(kind_and_detail[0], before, after, facts, kind_and_detail[1])


def _is_computed_from_constants(model: LintModel, name: str) -> bool:
    producer = model.graph.producer(name)
    return model.graph.is_constant(name) or (
        producer is not None and all(model.graph.is_constant(operand) for operand in producer.inputs if operand)
    )


def _check_zero_point_rules(model: LintModel, facts: _TensorFacts, chip: ChipRules) -> Iterator[_TensorCheck]:
    """Find zero points other than those that a backend assumes."""
    for node in model.graph.nodes:
        if operators.plain(node).product and len(node.inputs) > 1:
            yield node.outputs[0], partial(_weight_zero_point_finding, model, facts, node, chip)
        quant = model.declared_quant(node, -1) if operators.of(node.op).quantizes else None
        zero_point = None if quant is None else chip.activations.zero_point(quant.dtype)
        if quant is not None and zero_point is not None and (quant.zero_point != zero_point).any():
            expected_quant = replace(quant, zero_point=np.full_like(quant.zero_point, zero_point))
            yield node.outputs[0], partial(_result_zero_point_finding, model, facts, node, (quant, expected_quant))


def _weight_zero_point_finding(
    model: LintModel, facts: _TensorFacts, node: Node, chip: ChipRules
) -> LintFinding | None:
    slots = operators.coded_inputs(node.op, len(node.inputs))
    weight_slot = slots[1] if len(slots) > 1 else 1
    name, quant = find_codes_of_input(model, node, weight_slot)
    zero_point = None if quant is None else chip.weights.zero_point(quant.dtype)
    if (
        model.constant(name) is None
        or quant is None
        or zero_point is None
        or not (quant.zero_point != zero_point).any()
    ):
        return None
    expected_quant = replace(quant, zero_point=np.full_like(quant.zero_point, zero_point))
    infos = {**model.graph.tensors, name: replace(model.graph.tensors[name], quant=expected_quant)}
    reader = node if name == node.inputs[weight_slot] else model.graph.producer(node.inputs[weight_slot]) or node
    position = weight_slot if reader is node else 0
    is_declared = len(reader.inputs) > position + 2 and model.declared_quant(reader, position) is not None
    zero_point_name = reader.inputs[position + 2] if is_declared else ""
    zero_values = model.constant(zero_point_name)
    constants = {} if zero_values is None else {zero_point_name: np.full_like(zero_values, zero_point)}
    detail = f"weight {name!r} has {_quant_text(quant)}, not zero point {zero_point}"
    return _changed_constant_finding(model, facts, node, (infos, constants), ("asymmetric", detail))


def _result_zero_point_finding(
    model: LintModel, facts: _TensorFacts, node: Node, quants: tuple[QuantParams, QuantParams]
) -> LintFinding | None:
    parts = []
    for used_quant in quants:
        graph = Graph(
            [Node(name=node.name, op=_QUANTIZE, inputs=node.inputs[:1], outputs=node.outputs)],
            tensors=[
                *(info for name, info in model.graph.tensors.items() if name != node.outputs[0]),
                TensorInfo(name=node.outputs[0], dtype=used_quant.dtype, quant=used_quant),
            ],
            inputs=node.inputs[:1], outputs=node.outputs, opset=model.graph.opset,
        )  # fmt: skip
        parts.append(
            LintPart(
                model=model.with_graph(graph, {}), nodes=graph.nodes, output=node.outputs[0], leaves=node.inputs[:1]
            )
        )
    declared, expected = quants
    detail = f"{_quant_text(declared)}, not zero point {int(expected.zero_point.ravel()[0])}"
    return _find_difference("asymmetric", parts[0], parts[1], facts, detail)
