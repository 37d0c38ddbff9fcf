"""Recognizes reference nodes that are folded into the weights of a backend convolution.

A node that scales each channel, such as a BatchNormalization or a product with a constant, is folded as w * gain. For
a BatchNormalization, gain = scale / sqrt(var + epsilon). The gain is measured by running the reference nodes on 0 and
on 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair
from qdebug.compare.align.weights import array_distance, weight_distance, weight_of
from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES, WEIGHT_MAX_REL_DISTANCE
from qdebug.replay.registry import run_node

__all__ = ["add_folded_nodes_to_reasons", "folded_distance"]


def add_folded_nodes_to_reasons(context: Context) -> Iterator[Pair]:
    """Extend each pair's reason with the reference nodes that are folded into the backend's weights."""
    for pair in context.pairs:
        unfolded, folded = list[Node](), list[Node]()
        backend_node = _find_product(context.be, pair.backend, unfolded)
        reference_node = (
            None if backend_node is None or unfolded else _find_product(context.ref, pair.reference, folded)
        )
        if backend_node is None or reference_node is None or not folded:
            continue
        distance = folded_distance(context, backend_node, reference_node, folded)
        if distance is not None:
            names = " and ".join(f"{node.op} {node.name!r}" for node in folded)
            note = f"{names} is folded into the weights (w x gain, relative distance {distance:.2g})"
            yield replace(pair, reason=f"{pair.reason}; {note}")


def folded_distance(context: Context, backend_node: Node, reference_node: Node, folded: Sequence[Node]) -> float | None:
    """Return the distance of weights from the folded reference weights, or None if folding does not bring them closer.

    Args:
        context: The state of the alignment.
        backend_node: The backend convolution.
        reference_node: The reference convolution.
        folded: The reference nodes that follow it, in order.
    """
    gain = _channel_gain(context.ref, reference_node, folded)
    unfolded, weights = weight_of(context.ref, reference_node), weight_of(context.be, backend_node)
    if gain is None or unfolded is None or weights is None or unfolded.shape[0] != gain.size:
        return None
    distance = array_distance(unfolded * gain.reshape(-1, *[1] * (unfolded.ndim - 1)), weights, product=True)
    unfolded_distance = weight_distance(context.ref, reference_node, context.be, backend_node)
    return (
        distance
        if distance < WEIGHT_MAX_REL_DISTANCE and unfolded_distance is not None and distance < unfolded_distance
        else None
    )


def _find_product(run: IndexedRecording, tensor: str, passed: list[Node]) -> Node | None:
    """Return the convolution that produces a tensor, looking through activations and nodes that weights can absorb.

    Args:
        run: The run.
        tensor: The tensor.
        passed: Filled with the nodes passed on the way, first node first.
    """
    for _ in range(FUSED_CHAIN_MAX_NODES):
        node = run.graph.producer(run.root(tensor))
        if node is None:
            return None
        row = operators.plain(node)
        if row.sums is Sums.FILTER:
            return node
        data = run.data_inputs(node)
        if len(data) != 1 or not (row.activation or row.goes_into_weights):
            return None
        if row.goes_into_weights:
            passed.insert(0, node)
        tensor = data[0]
    return None


def _channel_gain(run: IndexedRecording, product: Node, nodes: Sequence[Node]) -> np.ndarray | None:
    """Return how much the nodes after a convolution scale each channel, float64 [channels], or None if they do more."""
    weight = weight_of(run, product)
    if weight is None:
        return None
    ends = []
    for start in (0.0, 1.0):
        values = np.full((1, len(weight), *[1] * (weight.ndim - 2)), start, np.float32)
        for node in nodes:
            data = run.data_inputs(node)[0]
            constants = {
                name: run.values(name).astype(np.float32) for name in node.inputs if name != data and run.has(name)
            }
            try:
                values = run_node(node, {**constants, data: values}, run.recording.graph.opset)[node.outputs[0]]
            except KernelError:
                return None
        ends.append(values)
    return np.asarray(ends[1] - ends[0], np.float64).reshape(-1)
