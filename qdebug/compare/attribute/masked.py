"""The elements that matter to a Softmax: those not hidden by a mask."""

from __future__ import annotations

import numpy as np

from qdebug.model import Graph, operators
from qdebug.model.thresholds.attribution import SOFTMAX_NEGLIGIBLE_DISTANCE, SOFTMAX_UNDERFLOW_DISTANCE

__all__ = ["is_relevant_to_softmax", "softmax_axes"]

_SINGLE_AXIS_OPSET = 13
"""First operator set in which Softmax normalizes along its axis alone, not along all axes from it on."""


def softmax_axes(graph: Graph, tensor: str, rank: int) -> tuple[int, ...] | None:
    """Return the axes along which a tensor's readers, all Softmax, normalize it, or None if there are other readers.

    Args:
        graph: A graph.
        tensor: One of its tensors.
        rank: Number of its dimensions.
    """
    readers = graph.consumers(tensor)
    if not readers or tensor in graph.outputs or not rank:
        return None
    if not all(operators.of(node.op).hides_small_values for node in readers):
        return None
    version = graph.opset.get("", graph.opset.get("ai.onnx", _SINGLE_AXIS_OPSET))
    axes = {node.attrs.get("axis", -1 if version >= _SINGLE_AXIS_OPSET else 1) for node in readers}
    axis = axes.pop()
    if axes or not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    return (axis % rank,) if version >= _SINGLE_AXIS_OPSET else tuple(range(axis % rank, rank))


def is_relevant_to_softmax(reference: np.ndarray, codes: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return which elements matter to a Softmax: not those so far below their row's maximum that they become 0.

    Nor do the elements of a uniform row, for example one that a mask hides completely: Softmax gives the same result
    for any value.

    Args:
        reference: Real values.
        codes: The same values rounded to codes, as real values. A hidden element must stay hidden there.
        axes: The axes of a row.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        hidden = reference.max(axis=axes, keepdims=True) - reference > SOFTMAX_UNDERFLOW_DISTANCE
        hidden &= codes.max(axis=axes, keepdims=True) - codes > SOFTMAX_NEGLIGIBLE_DISTANCE
        ends = ((side.max(axis=axes, keepdims=True), side.min(axis=axes, keepdims=True)) for side in (reference, codes))
        hidden |= np.logical_and(*(high == low for high, low in ends))
    return np.asarray(~hidden)
