"""A product's weight and bias after folding in the subsequent nodes that scale its channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.replay.real_form import real_form
from qdebug.replay.segment import run_form

__all__ = ["FoldedProduct", "fold"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoldedProduct:
    """A product and the nodes after it, merged into one product.

    Args:
        weight: The weight, multiplied by the gain of each output channel.
        gain: The gain, in a shape that broadcasts over the weight.
        bias: The bias of each output channel.
        bias_size: Sum of the magnitudes of the bias's terms, to which its rounding error is relative.
        nodes: The nodes that are folded in, in order.
    """

    weight: np.ndarray
    gain: np.ndarray
    bias: np.ndarray
    bias_size: np.ndarray
    nodes: tuple[Node, ...]


def fold(run: IndexedRecording, main: Node, other_nodes: Sequence[Node]) -> FoldedProduct | None:
    """Fold the nodes after a product that scale or shift each channel by a constant into the product's constants.

    These nodes map a channel x to gain * x + offset. Gain and offset follow from their results for x = 0 and x = 1.

    Args:
        run: The run that contains the nodes.
        main: The product.
        other_nodes: The other nodes, in topological order. The first node after the product that does anything else,
            such as an activation, and all later nodes are left out.

    Returns:
        The folded product, or None if nothing is folded, if the nodes include one before the product that is not an
            activation, or if a constant was not recorded.
    """
    axis = operators.output_axis(main)
    try:
        weight = real_values(run.recording, operators.titled_input(main, 1)).astype(np.float64)
        bias_name = operators.titled_input(main, 2)
        bias = real_values(run.recording, bias_name).astype(np.float64).ravel() if bias_name else np.zeros(1)
        if axis is None or weight.ndim < 2:
            return None
        count = weight.shape[axis]
        affine_map = _fit_affine_map(
            run, main, other_nodes, (1, count) if _is_matrix(main) else (1, count, *(1,) * (weight.ndim - 2))
        )
    except (KernelError, NotRecordedError):
        return None
    if affine_map is None or bias.size not in (1, count):
        return None
    gain, offset, nodes = affine_map
    shape = [1] * weight.ndim
    shape[axis] = count
    by_channel = gain.reshape(shape)
    return FoldedProduct(
        weight=weight * by_channel,
        gain=by_channel,
        bias=bias * gain + offset,
        bias_size=np.abs(bias * gain) + np.abs(offset),
        nodes=nodes,
    )


def _is_matrix(main: Node) -> bool:
    return operators.plain(main).sums is Sums.MATRIX


def _fit_affine_map(
    run: IndexedRecording, main: Node, other_nodes: Sequence[Node], shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, tuple[Node, ...]] | None:
    """Return the gain and the offset of each channel, and the nodes that apply them."""
    data, results, nodes = main.outputs[0], [np.zeros(shape), np.ones(shape)], list[Node]()
    for node in other_nodes:
        form, opset = real_form(node, run.recording.graph.opset)
        if data not in form.inputs:  # the node lies before the product, or on another branch
            if operators.of(form.op).activation:
                continue  # no constant can be folded across an activation
            return None
        constants = [name for name in form.inputs if name and name != data]
        if not operators.of(form.op).goes_into_weights or not all(map(run.folds, constants)):
            break
        fixed = {name: real_values(run.recording, name).astype(np.float64) for name in constants}
        results = [run_form(node, form, opset, {**fixed, data: values})[node.outputs[0]] for values in results]
        data, nodes = node.outputs[0], [*nodes, node]
    if not nodes or any(result.shape != shape for result in results):
        return None
    offset = results[0].astype(np.float64).ravel()
    return results[1].astype(np.float64).ravel() - offset, offset, tuple(nodes)
