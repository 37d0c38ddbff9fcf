"""What one form of a network does wrong by itself.

Codes are read by another scale than they were made with; zero points and biases are such that kernels on codes cannot
honour them; one tensor is quantized in two ways.

Each rule makes a second form of a small part, the one that is meant, and looks for an input by which the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.lint.finding import LintFinding
from qdebug.lint.replay import LintModel, Span, between, coded, span_of
from qdebug.lint.search import LintPart, Witness, wide_step, witness
from qdebug.model import Graph, Node, QuantParams, TensorInfo, operators
from qdebug.model.dtypes import code_limits, logical_dtype
from qdebug.model.tensor import Role
from qdebug.model.thresholds.explanation import BIAS_SCALE_MAX_REL_DIFFERENCE
from qdebug.numerics.affine import dequantize, quantize
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["SYMMETRIC", "own_findings"]

SYMMETRIC: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "litert": frozenset({"weights"}),
        "tflm": frozenset({"weights"}),
        "tensorrt": frozenset({"weights", "activations"}),
    }
)
"""What must have the zero point 0 in int8 on a backend. Sources: LiteRT 8-bit quantization specification; NVIDIA
TensorRT developer guide, "Working with quantized types"."""

_MOST_NODES = 60
_QUANTIZE, _DEQUANTIZE = (operators.named(word).name for word in ("quantize", "dequantize"))


_Look = tuple[str, Callable[[], LintFinding | None]]
"""A tensor, and what looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Seen:
    """What is known of a model's tensors.

    Args:
        seen: _Seen that were computed from inputs of the network.
        spans: What values each can have.
    """

    values: Mapping[str, np.ndarray]
    spans: Mapping[str, Span]


def own_findings(
    model: LintModel, values: Mapping[str, np.ndarray], needs: str | None, undecided: dict[str, str]
) -> tuple[list[LintFinding], int]:
    """Look for what a model does wrong by itself.

    Args:
        model: The model.
        values: Values of its tensors, computed from inputs of the network.
        needs: A backend of `SYMMETRIC` whose needs are checked; None for those of the file's own kind.
        undecided: Gets why a part could not be decided, by the tensor that it makes.

    Returns:
        The findings, and how many places were looked at.
    """
    inputs = {name: model.span(name, {}) for name in model.graph.inputs}
    seen = _Seen(values=values, spans=model.spans(model.graph.nodes, inputs))
    asked = needs or ("litert" if model.copies else None)
    rules: list[Iterator[_Look]] = [
        _misread(model, seen), _zero_points(model), _duplicated(model, seen), _biases(model, seen),
        _asymmetric(model, seen, SYMMETRIC[asked] if asked else frozenset()),
    ]  # fmt: skip
    found, looked = [], sum(coded(info.quant) for info in model.graph.tensors.values())
    for rule in rules:
        for tensor, look in rule:
            checkpoint()
            try:
                finding = look()
            except KernelError as error:
                undecided[tensor] = error.message
                continue
            found += [] if finding is None else [finding]
    return found, looked


def _finding(kind: str, before: LintPart, after: LintPart, seen: _Seen, detail: str) -> LintFinding | None:
    """Return a finding if an input shows that two parts differ."""
    model = after.model
    spans = [model.span(name, seen.spans) for name in after.leaves]
    values = [model.real(name, seen.values[name]) if name in seen.values else None for name in after.leaves]
    shown = witness(before, after, spans, values, checkpoint)
    if shown is None:
        return None
    return LintFinding(
        kind=kind,
        model=model.title,
        before=tuple(node.name for node in before.nodes),
        after=tuple(node.name for node in after.nodes),
        tensor=after.output,
        span_before=before.span(spans),
        span_after=after.span(spans),
        step=max(wide_step(before), wide_step(after)),
        witness=shown,
        detail=detail,
    )


def _said(quant: QuantParams) -> str:
    scale, zero = float(quant.scale.ravel()[0]), int(quant.zero_point.ravel()[0])
    return f"scale {scale:.6g} / zero point {zero}"


def _same(one: QuantParams, other: QuantParams) -> bool:
    """Tell whether codes stand for the same values, whatever their range."""
    return one.has_same_codes(other)


def _misread(model: LintModel, seen: _Seen) -> Iterator[_Look]:
    """Find codes that are read by another scale than they were made with."""
    made: dict[str, dict[str, QuantParams]] = {}
    for name in model.graph.inputs:
        if (quant := model.quant(name)) is not None:
            made[name] = {name: quant}
    for node in model.graph.nodes:
        if not any(node.inputs) or not any(node.outputs[:1]):
            continue  # it only keeps a state, or says nothing
        row, out = operators.of(node.op), node.outputs[0]
        places = () if row.quantizes else (0,) if row.dequantizes else operators.coded_inputs(node.op, len(node.inputs))
        for place in places:
            read = model.stated(node, place)
            for origin, quant in made.get(node.inputs[place], {}).items():
                if read is not None and _unequal(read, quant):
                    yield out, partial(_read_wrongly, model, seen, node, origin, (quant, read))
        given, declared = _handed_on(model, node, made), model.quant(out)
        if model.copies and declared is not None:
            for quant in given.values():
                if _unequal(quant, declared):
                    yield out, partial(_copied, model, seen, node, quant, declared)
        known = _made(model, node)
        made[out] = given if given and model.raw else {} if known is None else {out: known}


def _handed_on(model: LintModel, node: Node, made: Mapping[str, Mapping[str, QuantParams]]) -> dict[str, QuantParams]:
    """Return the scales of the codes that a node hands on as they are, by the tensor that was made with each."""
    row = operators.of(node.op)
    hands = row.passes_codes and not (row.picks_index or row.clamps or row.quantizes) and row.real is None
    if not hands or not (model.raw or model.copies):
        return {}
    names = [name for name in operators.operands(node) if name][: None if row.joins else 1]
    return {origin: quant for name in names for origin, quant in made.get(name, {}).items()}


def _made(model: LintModel, node: Node) -> QuantParams | None:
    """Return the scale of the codes that a node makes; None if it makes none, or does not say so."""
    row = operators.of(node.op)
    own = row.quantizes or row.real is not None
    quant = model.stated(node, -1) if own else None if model.raw else model.quant(node.outputs[0])
    return quant if coded(quant) else None


def _unequal(one: QuantParams, other: QuantParams) -> bool:
    """Tell whether codes with one scale each stand for other values."""
    return not (one.per_channel or other.per_channel or _same(one, other))


def _read_wrongly(
    model: LintModel, seen: _Seen, node: Node, origin: str, quants: tuple[QuantParams, QuantParams]
) -> LintFinding | None:
    """Hold codes that are read by another scale against codes that are brought to that scale first."""
    stops = {origin, *(name for name in model.graph.tensors if model.quant(name) is not None)} - set(
        _path(model, node, origin)
    )
    part = between(model.graph, node.outputs[0], stops, _MOST_NODES)
    if part is None:
        raise KernelError(f"There are more than {_MOST_NODES} nodes between {origin!r} and {node.name!r}.")
    nodes, leaves = part
    after = LintPart(model=model, nodes=nodes, output=node.outputs[0], leaves=sorted(leaves))
    inserted, infos, constants = _requantized(origin, *quants)
    right = f"{origin}, rescaled"
    renamed = [replace(each, inputs=tuple(right if name == origin else name for name in each.inputs)) for each in nodes]
    infos += [replace(model.graph.tensors[name], quant=quants[1]) for name in _path(model, node, origin)]
    meant = model.with_graph(
        Graph(
            [*inserted, *renamed], tensors=[*model.graph.tensors.values(), *infos], inputs=after.leaves,
            outputs=node.outputs[:1], opset=model.graph.opset,
        ),
        constants,
    )  # fmt: skip
    before = LintPart(model=meant, nodes=meant.graph.nodes, output=after.output, leaves=after.leaves)
    moved = len(nodes) > 1 or operators.plain(node).adds
    direct = "rescale_in_dequantize" if operators.of(node.op).dequantizes else "dequantize_quantize_removed"
    kind = "moved" if moved else direct
    made, read = map(_said, quants)
    return _finding(kind, before, after, seen, f"{origin!r} has {made} and is read with {read}")


def _path(model: LintModel, node: Node, origin: str) -> Iterator[str]:
    """Yield the tensors that hand codes on from where they were made to a node."""
    left = [name for name in node.inputs if name]
    while left:
        name = left.pop()
        maker = model.graph.producer(name)
        if name != origin and maker is not None and operators.of(maker.op).passes_codes:
            yield name
            left += [each for each in operators.operands(maker) if each]


def _requantized(
    origin: str, made: QuantParams, wanted: QuantParams
) -> tuple[list[Node], list[TensorInfo], dict[str, np.ndarray]]:
    """Return nodes that bring codes to another scale, with what they read."""
    names = [f"{origin}, {what}" for what in ("scale", "zero point", "new scale", "new zero point")]
    arrays = [
        array
        for quant in (made, wanted)
        for array in (
            quant.scale.astype(np.float32).reshape(()),
            quant.zero_point.astype(logical_dtype(quant.dtype)).reshape(()),
        )
    ]
    real, right = f"{origin}, real", f"{origin}, rescaled"
    nodes = [
        Node(name=f"{origin}, dequantized", op=_DEQUANTIZE, inputs=(origin, *names[:2]), outputs=(real,)),
        Node(name=f"{origin}, quantized again", op=_QUANTIZE, inputs=(real, *names[2:]), outputs=(right,)),
    ]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in names]
    infos.append(TensorInfo(name=right, dtype=wanted.dtype, quant=wanted))
    return nodes, infos, dict(zip(names, arrays, strict=True))


def _copied(model: LintModel, seen: _Seen, node: Node, quant: QuantParams, declared: QuantParams) -> LintFinding | None:
    """Hold codes that are handed on as they are against what their scales say."""
    leaves = sorted({name for name in node.inputs if name and not model.graph.is_constant(name)})
    after = LintPart(model=model, nodes=[node], output=node.outputs[0], leaves=leaves)
    before = replace(after, model=replace(model, copies=False))
    return _finding("moved", before, after, seen, f"it reads {_said(quant)} and gives {_said(declared)}")


def _zero_points(model: LintModel) -> Iterator[_Look]:
    """Find codes that cannot hold 0."""
    for name, info in model.graph.tensors.items():
        quant = info.quant
        if quant is None or not coded(quant) or quant.per_channel or logical_dtype(quant.dtype).itemsize > 2:
            continue
        low, high = code_limits(quant.dtype)
        if low is not None and high is not None and not low <= int(quant.zero_point[0]) <= high:
            yield name, partial(_no_zero, model, name, quant)


def _no_zero(model: LintModel, name: str, quant: QuantParams) -> LintFinding | None:
    held = float(dequantize(quantize(np.zeros(1, np.float64), quant), quant, double=True)[0])
    maker = model.graph.producer(name)
    nodes = () if maker is None else (maker.name,)
    shown = Witness(
        leaves=(name,), values=(np.zeros(1),), index=(0,), before=0.0, after=held, largest=abs(held), reached=False
    )
    if not held:
        return None
    low, high = span_of(quant)
    return LintFinding(
        kind="zero_point", model=model.title, before=nodes, after=nodes, tensor=name,
        span_before=(min(low, 0.0), max(high, 0.0)), span_after=(low, high), step=float(quant.scale[0]),
        witness=shown, detail=f"{_said(quant)} of {quant.dtype}",
    )  # fmt: skip


def _duplicated(model: LintModel, seen: _Seen) -> Iterator[_Look]:
    """Find real values that are quantized in two ways which meet again in a sum."""
    graph = model.graph
    for name in graph.tensors:
        readers = [node for node in graph.consumers(name) if operators.of(node.op).quantizes and node.inputs[0] == name]
        quants = [model.stated(node, -1) for node in readers]
        for at, (node, quant) in enumerate(zip(readers, quants, strict=True)):
            first, wanted = readers[0], quants[0]
            if not at or wanted is None or quant is None or quant.per_channel or wanted.per_channel:
                continue
            if not _same(wanted, quant) and _meet(graph, first, node):
                yield name, partial(_two_ways, model, seen, name, (first, node), (wanted, quant))


def _meet(graph: Graph, one: Node, other: Node) -> bool:
    """Tell whether what two nodes make meets in a sum."""
    below = []
    for node in (one, other):
        seen, left = set[str](), [node]
        while left:
            for reader in (each for name in left.pop().outputs for each in graph.consumers(name)):
                if reader.name not in seen:
                    seen.add(reader.name)
                    left.append(reader)
        below.append(seen)
    both = below[0] & below[1]
    return any(operators.plain(node).adds for node in graph.nodes if node.name in both)


def _two_ways(
    model: LintModel, seen: _Seen, name: str, pair: tuple[Node, Node], quants: tuple[QuantParams, QuantParams]
) -> LintFinding | None:
    parts = []
    for node in pair:
        real = f"{name}, real"
        back = Node(
            name=f"{node.name}, dequantized",
            op=_DEQUANTIZE,
            inputs=(node.outputs[0], *node.inputs[1:3]),
            outputs=(real,),
        )
        graph = Graph(
            [node, back], tensors=model.graph.tensors.values(), inputs=(name,), outputs=(real,), opset=model.graph.opset
        )
        parts.append(LintPart(model=model.with_graph(graph, {}), nodes=graph.nodes, output=real, leaves=[name]))
    found = _finding("duplicated", parts[0], parts[1], seen, " and ".join(map(_said, quants)))
    if found is None:
        return None
    return replace(found, tensor=name, before=(pair[0].name,), after=(pair[1].name,))


def _biases(model: LintModel, seen: _Seen) -> Iterator[_Look]:
    """Find biases in codes whose scale is not that of the sums that they are added to."""
    for node in model.graph.nodes:
        row = operators.of(node.op)
        place = row.bias
        if row.real is not None or not row.product or place is None or place >= len(node.inputs):
            continue
        quants = [_source(model, node.inputs[at]) for at in (0, 1, place)]
        (x, sx), (_, sw), (name, sb) = quants
        if sx is None or sw is None or sb is None or sx.per_channel or not name or model.constant(name) is None:
            continue
        wanted = sx.scale.astype(np.float64) * sw.scale
        if wanted.size not in (1, sb.scale.size) and sb.scale.size != 1:
            continue
        ratio = np.max(np.abs(sb.scale.astype(np.float64) / np.where(wanted == 0, np.nan, wanted) - 1))
        if ratio > BIAS_SCALE_MAX_REL_DIFFERENCE and x:
            yield node.outputs[0], partial(_bias, model, seen, node, name, wanted)


def _source(model: LintModel, name: str) -> tuple[str, QuantParams | None]:
    """Return the codes that a tensor is, or was dequantized from, and their quantization."""
    maker = model.graph.producer(name)
    if maker is not None and operators.of(maker.op).dequantizes:
        return maker.inputs[0], model.stated(maker, 0)
    return (name, model.quant(name)) if not model.raw else ("", None)


def _bias(model: LintModel, seen: _Seen, node: Node, name: str, wanted: np.ndarray) -> LintFinding | None:
    """Hold a bias by its own scale against the same codes by the scale of the sums."""
    maker = model.graph.producer(node.inputs[operators.of(node.op).bias or 0])
    old = model.graph.tensors[name].quant
    if old is None:
        return None
    scale = wanted.astype(np.float32) if wanted.size > 1 else wanted.astype(np.float32).reshape(-1)
    quant = QuantParams(dtype=old.dtype, scale=scale, axis=0 if scale.size > 1 else None)
    infos = {**model.graph.tensors, name: replace(model.graph.tensors[name], quant=quant)}
    constants = {}
    if maker is not None:
        constants[maker.inputs[1]] = scale if scale.size > 1 else scale.reshape(())
    said = "its scale is not the product of the operands' scales"
    return _beside(model, seen, node, (infos, constants), ("bias", said))


def _beside(
    model: LintModel,
    seen: _Seen,
    node: Node,
    changed: tuple[Mapping[str, TensorInfo], Mapping[str, np.ndarray]],
    told: tuple[str, str],
) -> LintFinding | None:
    """Hold a node against the same node with other constants."""
    stops = {
        name for name in model.graph.tensors if model.quant(name) is not None and not model.graph.is_constant(name)
    }
    stops |= {name for name in node.inputs if name and not _of_constants(model, name)}
    part = between(model.graph, node.outputs[0], stops, _MOST_NODES)
    if part is None:
        raise KernelError(f"More than {_MOST_NODES} nodes make the inputs of {node.name!r}.")
    nodes, leaves = part
    graph = Graph(
        nodes, tensors=changed[0].values(), inputs=sorted(leaves), outputs=node.outputs[:1], opset=model.graph.opset
    )
    before = LintPart(model=model, nodes=nodes, output=node.outputs[0], leaves=sorted(leaves))
    after = replace(before, model=model.with_graph(graph, changed[1]))
    return _finding(told[0], before, after, seen, told[1])


def _of_constants(model: LintModel, name: str) -> bool:
    maker = model.graph.producer(name)
    return model.graph.is_constant(name) or (
        maker is not None and all(model.graph.is_constant(each) for each in maker.inputs if each)
    )


def _asymmetric(model: LintModel, seen: _Seen, needs: frozenset[str]) -> Iterator[_Look]:
    """Find zero points that a backend takes for 0."""
    for node in model.graph.nodes if "weights" in needs else ():
        if operators.plain(node).product and len(node.inputs) > 1:
            yield node.outputs[0], partial(_weight, model, seen, node)
    for node in model.graph.nodes if "activations" in needs else ():
        quant = model.stated(node, -1) if operators.of(node.op).quantizes else None
        if quant is not None and quant.zero_point.any():
            yield node.outputs[0], partial(_activation, model, seen, node, quant)


def _weight(model: LintModel, seen: _Seen, node: Node) -> LintFinding | None:
    places = operators.coded_inputs(node.op, len(node.inputs))
    place = places[1] if len(places) > 1 else 1
    maker = model.graph.producer(node.inputs[place])
    reader, at = (maker, 0) if maker is not None and operators.of(maker.op).dequantizes else (node, place)
    name = reader.inputs[at]
    quant = model.stated(reader, at) or model.quant(name)
    if model.constant(name) is None or quant is None or not quant.zero_point.any() or quant.dtype != "int8":
        return None
    flat = replace(quant, zero_point=np.zeros_like(quant.zero_point))
    infos = {**model.graph.tensors, name: replace(model.graph.tensors[name], quant=flat)}
    zero = reader.inputs[at + 2] if len(reader.inputs) > at + 2 and model.stated(reader, at) is not None else ""
    known = model.constant(zero)
    constants = {} if known is None else {zero: np.zeros_like(known)}
    return _beside(model, seen, node, (infos, constants), ("asymmetric", f"weight {name!r} has {_said(quant)}"))


def _activation(model: LintModel, seen: _Seen, node: Node, quant: QuantParams) -> LintFinding | None:
    flat = replace(quant, zero_point=np.zeros_like(quant.zero_point))
    parts = []
    for each in (quant, flat):
        graph = Graph(
            [Node(name=node.name, op=_QUANTIZE, inputs=node.inputs[:1], outputs=node.outputs)],
            tensors=[
                *(info for name, info in model.graph.tensors.items() if name != node.outputs[0]),
                TensorInfo(name=node.outputs[0], dtype=quant.dtype, quant=each),
            ],
            inputs=node.inputs[:1], outputs=node.outputs, opset=model.graph.opset,
        )  # fmt: skip
        parts.append(
            LintPart(
                model=model.with_graph(graph, {}), nodes=graph.nodes, output=node.outputs[0], leaves=node.inputs[:1]
            )
        )
    return _finding("asymmetric", parts[0], parts[1], seen, _said(quant))
