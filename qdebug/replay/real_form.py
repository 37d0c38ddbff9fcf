"""The real-valued operator behind a quantized one: which of its inputs are data, and what computes on them.

A quantized operator carries scales and zero points beside its data. On real numbers it is an ordinary operator
that reads the data alone, which is what a replay in reference arithmetic runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from qdebug.model import AttrValue, Node, operators

__all__ = ["real_form"]

_STANDARD_OPSET = 13
"""Version of the standard operators that contributed operators are defined after."""


def real_form(node: Node, opset: Mapping[str, int]) -> tuple[Node, Mapping[str, int]]:
    """Return the node that computes on real numbers what a quantized node computes on codes.

    Args:
        node: Any node; one that carries no scales is its own real form.
        opset: Version of each operator set by domain.

    Returns:
        The node, with the same name and outputs, and the operator sets that it is to be read by.
    """
    real = operators.of(node.op).real
    if real is None:
        return node, opset
    inputs = tuple(node.inputs[p] if p < len(node.inputs) else "" for p in real.positions(len(node.inputs)))
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    return _standard(node, real.op, inputs, node.attrs), _at_least(opset)


def _standard(node: Node, op: str, inputs: tuple[str, ...], attrs: Mapping[str, AttrValue]) -> Node:
    return Node(name=node.name, op=op, inputs=inputs, outputs=node.outputs[:1], attrs=attrs)


def _at_least(opset: Mapping[str, int]) -> Mapping[str, int]:
    return {**opset, "": max(opset.get("", _STANDARD_OPSET), _STANDARD_OPSET)}
