"""The float operator that a quantized operator implements: its data inputs and its kernel.

A quantized operator reads scales and zero points besides its data. Its real form is an ordinary operator on the data
alone. A replay in reference arithmetic runs the real form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from qdebug.model import AttrValue, Graph, Node, TensorInfo, operators
from qdebug.model.dtypes import is_float

__all__ = ["describe_real_tensor", "real_form"]

_STANDARD_OPSET = 13
"""Standard operator version that contributed operators follow."""


def real_form(node: Node, opset: Mapping[str, int]) -> tuple[Node, Mapping[str, int]]:
    """Return the node that computes on real numbers what a quantized node computes on codes.

    Args:
        node: Any node; one without scales is its own real form.
        opset: Version of each operator set by domain.

    Returns:
        The node, with the same name and outputs, and the operator set versions that apply to it.
    """
    real = operators.of(node.op).real
    if real is None:
        return node, opset
    inputs = tuple(node.inputs[p] if p < len(node.inputs) else "" for p in real.positions(len(node.inputs)))
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    return _standard_node(node, real.op, inputs, node.attrs), _with_standard_opset(opset)


def _standard_node(node: Node, op: str, inputs: tuple[str, ...], attrs: Mapping[str, AttrValue]) -> Node:
    return Node(name=node.name, op=op, inputs=inputs, outputs=node.outputs[:1], attrs=attrs)


def _with_standard_opset(opset: Mapping[str, int]) -> Mapping[str, int]:
    return {**opset, "": max(opset.get("", _STANDARD_OPSET), _STANDARD_OPSET)}


def describe_real_tensor(node: Node, graph: Graph) -> str | None:
    """Return a clause about a tensor that holds real values although the operator expects codes; None if there is none.

    How such a node rounds and clamps is unknown, so it cannot be replayed.

    Args:
        node: A node.
        graph: Its graph, as recorded.
    """
    real_tensor = next(
        (name for name in filter(None, _tensors_of_codes(node)) if _has_real_values(graph.tensors[name])), None
    )
    return (
        None
        if real_tensor is None
        else f"its tensor {real_tensor!r} was recorded as real values, and {node.op} is on codes"
    )


def _tensors_of_codes(node: Node) -> Iterator[str]:
    """Yield the tensors that hold codes by the operator's definition."""
    row = operators.of(node.op)
    if row.dequantizes:
        yield from node.inputs[:1]
    elif row.quantizes:
        yield from node.outputs[:1]
    elif row.real is not None:
        positions = operators.coded_inputs(node.op, len(node.inputs))
        yield from (node.inputs[position] for position in positions if position < len(node.inputs))
        if row.real.out is not None and any(node.inputs[row.real.out :]):
            yield from node.outputs[:1]


def _has_real_values(info: TensorInfo) -> bool:
    return info.quant is None and is_float(info.dtype or "") and not str(info.dtype).startswith("float8")
