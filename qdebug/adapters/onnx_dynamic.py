"""The scale of weights that are multiplied with codes of a scale chosen at run time.

ConvInteger and MatMulInteger say nothing of scales. What comes of their sums does: they are made real numbers and
multiplied with the product of two scales, of which one was chosen with the data's codes and the other is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.model import Node, operators
from qdebug.model.operators import Sums

__all__ = ["WeightScale", "weight_scales"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightScale:
    """A weight's scale.

    Args:
        tensor: The weight's codes.
        zero_point: Name of its zero point; "" for 0.
        scale: One scale, or one for each channel.
        axis: Dimension of the channels; counted from the last if negative.
    """

    tensor: str
    zero_point: str
    scale: np.ndarray
    axis: int


def weight_scales(nodes: Sequence[Node], constant: Callable[[str], np.ndarray | None]) -> tuple[WeightScale, ...]:
    """Find the weights of a graph whose scale follows from what becomes of the sums.

    Args:
        nodes: In topological order.
        constant: Gives the elements of a small constant by name; None if it is none.
    """
    made = {name: node for node in nodes for name in node.outputs if name}
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    found = []
    for node in nodes:
        if operators.of(node.op).sums_codes and len(node.inputs) > 1:
            scale = _scale(node, made, readers, constant)
            if scale is not None:
                zero = node.inputs[3] if len(node.inputs) > 3 else ""
                axis = -1 if operators.plain(node).sums is Sums.MATRIX else 0
                found.append(WeightScale(tensor=node.inputs[1], zero_point=zero, scale=scale, axis=axis))
    return tuple(found)


def _scale(
    node: Node,
    made: Mapping[str, Node],
    readers: Mapping[str, Sequence[Node]],
    constant: Callable[[str], np.ndarray | None],
) -> np.ndarray | None:
    """Give the constant factor beside the data's scale that a node's sums are multiplied with."""
    data = _chosen(node.inputs[0], made)
    if data is None:
        return None
    for cast in readers.get(node.outputs[0], ()):
        for product in readers.get(cast.outputs[0], ()) if operators.of(cast.op).casts else ():
            if product.op != "Mul":
                continue
            for name in product.inputs:
                scales = made.get(name)
                if name == cast.outputs[0] or scales is None or scales.op != "Mul" or data not in scales.inputs:
                    continue
                known = [constant(other) for other in scales.inputs if other != data]
                if len(known) == 1 and known[0] is not None:
                    return known[0].astype(np.float32).ravel()
    return None


def _chosen(codes: str, made: Mapping[str, Node]) -> str | None:
    """Give the scale that was chosen with codes; None if they are not of that kind."""
    node = made.get(codes)
    while node is not None and (operators.of(node.op).arranges or operators.of(node.op).keeps_values):
        node = made.get(node.inputs[0])
    return node.outputs[1] if node is not None and operators.of(node.op).gives_scale else None
