"""Shows what a node computes along with its own operator as nodes of their own: a fused activation, a sum, a count.

Two graphs of one network differ in what their nodes do at once. Where each does one thing, they can be walked together,
whichever of them is the more optimized. The tensors in between were never made and so were never recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qdebug.analysis.alignment.ops import fused_activation
from qdebug.analysis.alignment.vocabulary import in_words_of_onnx, is_foreign, kinds_of
from qdebug.model import AttrValue, Graph, Node, Role, TensorInfo

__all__ = ["expanded", "parts_of"]

_SUMMED = {"FusedConv": 3, "Conv": 3, "DynamicQuantizeMatMul": 4, "MatMulIntegerToFloat": 6}
"""Position of the tensor that an operator of ONNX Runtime adds to its result: of its shape, or a bias."""
_COUNTED = 7
"""Position of the mask whose ones EmbedLayerNormalization counts (ONNX Runtime, ContribOperators.md)."""
_PARAMETERS = {
    "Clip": ("min", "max"),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
}
"""What the numbers in `activation_params` are, in order (ONNX Runtime, fused_activation.cc)."""
_GATED = frozenset({"HardSwish", "QuickGelu"})
"""Activations that are products of their input and a gate."""
_QUICK = 1.702
"""The factor of a QuickGelu that states none (ONNX Runtime, ContribOperators.md)."""


def expanded(graph: Graph) -> Graph:
    """Give a graph in words of ONNX, in which no node computes an activation, a sum or a count beside its own operator.

    Every tensor of the given graph is one of the new graph; the last node of several keeps the name of the output.
    """
    if not (
        any(_extends(node) or is_foreign(node) for node in kinds_of(graph.nodes)) or any(map(_reads_more, graph.nodes))
    ):
        return graph
    taken = {*graph.tensors}
    names = {node.name for node in graph.nodes}
    nodes = [part for node in graph.nodes for part in _parts(in_words_of_onnx(node), taken, names)]
    infos = dict(graph.tensors)
    for node in nodes:
        for name in node.outputs:
            if name and name not in infos:
                infos[name] = TensorInfo(name=name)
    for name in (name for node in nodes for name in node.inputs):
        if name and name not in infos:  # what was an attribute
            infos[name] = TensorInfo(name=name, role=Role.CONSTANT)
    return Graph(
        nodes,
        tensors=infos.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def parts_of(node: Node) -> tuple[Node, ...]:
    """Give the nodes that one node is shown as: itself if it does nothing beside its own operator."""
    return tuple(_parts(node, set(), {node.name}))


def _extends(node: Node) -> bool:
    """Tell whether a node computes more than its own operator as far as operator and attributes tell."""
    return fused_activation(node) is not None or node.op in _GATED


def _reads_more(node: Node) -> bool:
    """Tell whether a node computes more than its own operator as far as what it reads tells."""
    return (node.op in _SUMMED and _summed(node) is not None) or _counts(node)


def _counts(node: Node) -> bool:
    """Tell whether a node that sums embeddings also counts the ones of a mask, which its sums know nothing of."""
    if node.op != "EmbedLayerNormalization":
        return False
    with_mask = len(node.inputs) > _COUNTED and bool(node.inputs[_COUNTED])
    return with_mask and len(node.outputs) > 1 and bool(node.outputs[1])


def _summed(node: Node) -> str | None:
    """Give the tensor that a node adds to its result; standard convolutions have no such input."""
    place = _SUMMED.get(node.op)
    if place is None or (node.op == "Conv" and not node.domain) or len(node.inputs) <= place:
        return None
    return node.inputs[place] or None


def _parts(node: Node, taken: set[str], names: set[str]) -> Iterator[Node]:
    for part in _fused(node, taken, names):
        if part.op in _GATED and part.inputs:
            yield from _gated(part, taken, names)
        elif _counts(part):
            mask, count = part.inputs[_COUNTED], part.outputs[1]
            yield Node(name=_fresh(f"{part.name}/ReduceSum", names), op="ReduceSum", inputs=(mask,), outputs=(count,))
            inputs = (*part.inputs[:_COUNTED], "", *part.inputs[_COUNTED + 1 :])
            yield replace(part, inputs=inputs, outputs=(part.outputs[0], "", *part.outputs[2:]))
        else:
            yield part


def _gated(node: Node, taken: set[str], names: set[str]) -> Iterator[Node]:
    """Show an activation as a product of its input and a gate.

    HardSwish is x * HardSigmoid(x): ONNX defines it so, and runtimes may run the definition (ONNX, HardSwish).
    QuickGelu is x * Sigmoid(alpha x), made of these nodes (ONNX Runtime, quick_gelu_fusion.cc).
    """
    gate = _fresh(f"{node.outputs[0]}/before Mul", taken)
    op, source, attrs = "HardSigmoid", node.inputs[0], {"alpha": 1 / 6, "beta": 0.5}
    if node.op == "QuickGelu":
        op, attrs = "Sigmoid", {}
        if node.attrs.get("alpha", _QUICK) != 1:
            factor, scaled = (_fresh(f"{node.outputs[0]}/{end}", taken) for end in ("alpha", "before Sigmoid"))
            name = _fresh(f"{node.name}/Mul", names)
            yield Node(name=name, op="Mul", inputs=(source, factor), outputs=(scaled,), origin=node.origin)
            source = scaled
    name = _fresh(f"{node.name}/{op}", names)
    yield Node(name=name, op=op, inputs=(source,), outputs=(gate,), attrs=attrs, origin=node.origin)
    yield replace(node, op="Mul", domain="", inputs=(node.inputs[0], gate), attrs={})


def _fused(node: Node, taken: set[str], names: set[str]) -> Iterator[Node]:
    activation, summed = fused_activation(node), _summed(node)
    if activation is None and summed is None:
        yield node
        return
    output = node.outputs[0]
    extra = [*(["Add"] if summed else []), *([activation] if activation else [])]
    made = [_fresh(f"{output}/before {op}", taken) for op in extra]
    bare = {name: value for name, value in node.attrs.items() if not name.startswith("activation")}
    inputs = node.inputs[: _SUMMED[node.op]] if summed else node.inputs
    yield replace(node, inputs=inputs, outputs=(made[0], *node.outputs[1:]), attrs=bare)
    for op, source, target in zip(extra, made, (*made[1:], output), strict=True):
        yield Node(
            name=_fresh(f"{node.name}/{op}", names),
            op=op,
            inputs=(source, summed) if op == "Add" and summed else (source,),
            outputs=(target,),
            attrs={} if op == "Add" else _attributes(node, op),
            origin=node.origin,
        )


def _attributes(node: Node, activation: str) -> dict[str, AttrValue]:
    given = node.attrs.get("activation_params", ())
    values = given if isinstance(given, tuple) else ()
    known: dict[str, AttrValue] = dict(zip(_PARAMETERS.get(activation, ()), values, strict=False))
    for name, value in node.attrs.items():  # FusedGemm has them by name
        if name.startswith("activation_") and name != "activation_params":
            known[name.removeprefix("activation_")] = value
    return known


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name
