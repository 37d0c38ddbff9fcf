"""To which real values a tensor is held: by its codes, or by what the backend computes along with its node."""

from __future__ import annotations

from qdebug.compare.align.expand import parts_of
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.model import Graph, Node, QuantParams, Recording, operators
from qdebug.model.operators import clamp_bounds, fused_activation
from qdebug.numerics.blocks import Clamp

__all__ = ["folded_clamp", "span_before", "uniform_span"]


def folded_clamp(reference: Recording, backend: Recording, entry: PlannedNode) -> tuple[float, float] | None:
    """Give the interval of the reference's Relu or Clip that the backend computes along with its node."""
    theirs = _producer_of_values(reference.graph, entry.reference_tensor)
    ours = backend.graph.producer(entry.tensor)
    if theirs is None or ours is None or operators.of(ours.op).dequantizes:
        return None
    if operators.of(fused_activation(theirs) or "").clamps:
        theirs = parts_of(theirs)[-1]
    if not operators.of(theirs.op).clamps or ours.op == theirs.op:
        return None
    return clamp_bounds(theirs, {n: reference.load(n) for n in theirs.inputs[1:] if n and reference.has(n)})


def uniform_span(quant: QuantParams | None) -> Clamp:
    """Give the real values of the lowest and highest code; no bounds where channels differ or codes are no integers."""
    if quant is None or quant.per_channel or quant.qmin is None or quant.qmax is None:
        return None, None
    scale, zero = float(quant.scale[0]), int(quant.zero_point[0])
    return scale * (quant.qmin - zero), scale * (quant.qmax - zero)


def span_before(graph: Graph, tensor: str) -> Clamp:
    """Give the span of the codes that a tensor is or was made of; no bounds if there were none."""
    node = graph.producer(tensor)
    real = node is not None and operators.of(node.op).dequantizes
    coded = node.inputs[0] if node is not None and node.inputs and real else tensor
    return uniform_span(graph.tensors[coded].quant)


def _producer_of_values(graph: Graph, tensor: str) -> Node | None:
    node = graph.producer(tensor)
    while node is not None and operators.of(node.op).keeps_values:
        node = graph.producer(node.inputs[0]) if node.inputs else None
    return node
