"""The elements that count for a Softmax: those that a mask does not hide."""

from __future__ import annotations

import numpy as np

from qdebug.model import Graph, operators
from qdebug.model.thresholds.attribution import SOFTMAX_NEGLIGIBLE_DISTANCE, SOFTMAX_UNDERFLOW_DISTANCE

__all__ = ["softmax_axes", "which_count"]

_ALONG_ONE = 13
"""First operator set in which Softmax works along one axis, instead of along all from one on."""


def softmax_axes(graph: Graph, tensor: str, rank: int) -> tuple[int, ...] | None:
    """Return the axes along which a tensor's readers compare its elements, all of them Softmax; None if others read it.

    Args:
        graph: A graph.
        tensor: One of its tensors.
        rank: Number of its dimensions.
    """
    readers = graph.consumers(tensor)
    if not readers or tensor in graph.outputs or not rank:
        return None
    if not all(operators.of(node.op).hides_low for node in readers):
        return None
    version = graph.opset.get("", graph.opset.get("ai.onnx", _ALONG_ONE))
    axes = {node.attrs.get("axis", -1 if version >= _ALONG_ONE else 1) for node in readers}
    axis = axes.pop()
    if axes or not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    return (axis % rank,) if version >= _ALONG_ONE else tuple(range(axis % rank, rank))


def which_count(reference: np.ndarray, codes: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Tell which elements count for a Softmax: not those far below the largest of their row, which become 0.

    Nor do those of a row whose elements are equal on both sides, for example because a mask hides all: Softmax gives
    the same for any number.

    Args:
        reference: Real values.
        codes: The same values rounded to codes, as real values: a hidden element has to stay hidden there.
        axes: The axes of a row.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        hidden = reference.max(axis=axes, keepdims=True) - reference > SOFTMAX_UNDERFLOW_DISTANCE
        hidden &= codes.max(axis=axes, keepdims=True) - codes > SOFTMAX_NEGLIGIBLE_DISTANCE
        ends = ((side.max(axis=axes, keepdims=True), side.min(axis=axes, keepdims=True)) for side in (reference, codes))
        hidden |= np.logical_and(*(high == low for high, low in ends))
    return np.asarray(~hidden)
