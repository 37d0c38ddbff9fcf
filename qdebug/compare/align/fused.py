"""Pairs across fusions: nodes folded into weights, activations inside a node, and codes that clamp."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.compare.align.clamps import bounds_of, is_clamped_by_codes, is_clamped_inside, select_code_form
from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.expand import goes_into_weights
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.align.weights import has_same_scalar, weight_distance
from qdebug.model import Node, operators
from qdebug.model.operators import operands, same_family
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES, WEIGHT_MAX_REL_DISTANCE

__all__ = [
    "follow_folded_nodes",
    "has_bias",
    "is_applied_later",
    "output_of_next_transpose",
    "pair_absorbed_node",
    "reads_only",
]


def pair_absorbed_node(context: Context, tensor: str, node: Node) -> Pair | None:
    """Pair a node's output with the partner of its input, if one reference node computes both."""
    ref, be = context.ref, context.be
    inputs = be.data_inputs(node)
    pair = context.pair_map.get(inputs[0]) if len(inputs) == 1 else None
    if pair is None or pair.backend in be.graph.inputs or pair.match is Match.MANUAL:
        return None
    clamps, is_clamped_in_node = operators.of(node.op).clamps, False
    if pair.match is Match.EXACT and not clamps and not _adds_missing_bias(context, pair, node):
        return None
    if any(same_family(reader, node) for reader in ref.consumers(pair.reference)):
        return None
    if clamps:
        bounds = bounds_of(be, node)
        is_clamped_in_node = is_clamped_inside(ref, pair.reference, be, inputs[0], bounds)
        if not is_clamped_in_node:
            return _pair_with_clamping_codes(context, tensor, node, pair, bounds)
    has_one_reader = len(be.consumers(inputs[0])) == 1  # a tensor with several readers cannot be fused away
    if not has_one_reader or not (
        is_clamped_in_node or _can_fold_into_constants(context, tensor, pair.reference, node)
    ):
        return None
    context.pair_map.drop(pair.backend)
    context.note_unpaired(pair.backend, f"the reference fuses this node with {node.op} {node.name!r}")
    reason = f"the reference fuses {node.op} {node.name!r} into the node before it"
    return make_pair(tensor, pair.reference, Match.FUSED, reason)


def _adds_missing_bias(context: Context, pair: Pair, node: Node) -> bool:
    """Return whether a node adds the bias that the product of a pair has in the reference but not in the backend.

    The two products may have the same name although their results differ.
    """
    backend_product, reference_product = (
        context.be.graph.producer(pair.backend),
        context.ref.graph.producer(pair.reference),
    )
    if (
        backend_product is None
        or reference_product is None
        or not operators.plain(node).adds_term
        or not same_family(backend_product, reference_product)
    ):
        return False
    return (
        operators.plain(backend_product).bias is not None
        and not has_bias(backend_product)
        and has_bias(reference_product)
    )


def has_bias(node: Node) -> bool:
    """Return whether a product has its own bias."""
    position = operators.plain(node).bias
    return position is not None and bool(operators.titled_input(node, position))


def _pair_with_clamping_codes(
    context: Context, tensor: str, node: Node, pair: Pair, bounds: tuple[float, float] | None
) -> Pair | None:
    """Pair a Relu or Clip output with the codes that replace it in the reference, if there are any."""
    ref = context.ref
    if bounds is None or not any(is_clamped_by_codes(ref, form, bounds) for form in ref.members(pair.reference)):
        return None
    if ref.is_after_codes(pair.reference):
        reason = f"{pair.reason}; the backend's values are clipped like {node.op}, as the reference's code range does"
        context.add(replace(pair, reason=reason, backend_view=Transform(clamp_low=bounds[0], clamp_high=bounds[1])))
    reason = f"the reference's code range replaces {node.op}; compared with the dequantized codes"
    return make_pair(tensor, select_code_form(context, tensor, pair.reference), Match.QUANTIZATION, reason)


def _can_fold_into_constants(context: Context, tensor: str, reference: str, reader: Node) -> bool:
    """Return whether a backend node's operation can be folded into the constants of a reference tensor's node.

    A runtime folds factors before or after a product into it. If the reference product after the tensor has a factor
    that the backend product lacks, that product absorbed the backend node, and the tensor's own node did not.
    """
    node = context.ref.graph.producer(reference)
    if node is None or not goes_into_weights(reader, node):
        return False
    if operators.of(reader.op).neutral == 1:
        backend_factors, reference_factors = (
            _factors_of_next_products(context.be, tensor),
            _factors_of_next_products(context.ref, reference),
        )
        if backend_factors and reference_factors and backend_factors.isdisjoint(reference_factors):
            return False
    return any(name and context.ref.folds(name) for name in operands(node))


def _factors_of_next_products(run: IndexedRecording, tensor: str) -> set[float]:
    """Return the factors of the products that read a tensor, directly or rearranged."""
    all_factors: set[float] = set()
    frontier = [tensor]
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = [reader for name in frontier for reader in run.consumers(name)]
        rows = [(operators.plain(reader), reader) for reader in readers]
        factors = [reader.attrs.get("alpha", 1.0) for row, reader in rows if row.product]
        all_factors |= {float(factor) for factor in factors if isinstance(factor, int | float)}
        frontier = [name for row, reader in rows if row.moves for name in reader.outputs if name]
    return all_factors


def follow_folded_nodes(
    context: Context, tensor: str, output: str, *, into_weights: bool = False
) -> tuple[str, list[Node]]:
    """Follow the reference from a tensor through the nodes that the backend fuses into its own node.

    Args:
        context: The state of the alignment.
        tensor: The backend tensor.
        output: The reference tensor to start from.
        into_weights: Also follow nodes that may be folded into the backend node's weights.
    """
    ref, folded = context.ref, list[Node]()
    maker = context.be.graph.producer(tensor) if into_weights else None
    while True:
        readers = ref.consumers(output)
        if len(readers) != 1 or not (into_weights or operators.of(readers[0].op).clamps):
            return output, folded
        reader = readers[0]
        if not reads_only(ref, reader, output):
            return output, folded
        # The backend may have removed a Transpose before a node that it folds. Both are then folded together.
        source_of_transpose = None if maker is None else output_of_next_transpose(ref, output)
        if source_of_transpose is not None and maker is not None:
            next_readers = ref.consumers(source_of_transpose)
            if len(next_readers) != 1 or not goes_into_weights(next_readers[0], maker):
                return output, folded
            if not reads_only(ref, next_readers[0], source_of_transpose) or is_applied_later(
                context, tensor, next_readers[0]
            ):
                return ref.data_inputs(reader)[0], folded
            folded.append(reader)
            reader = next_readers[0]
        can_fold = maker is not None and goes_into_weights(reader, maker)
        if not (can_fold or _is_clamped(context, tensor, reader)) or is_applied_later(context, tensor, reader):
            return output, folded
        folded.append(reader)
        output = reader.outputs[0]


def reads_only(ref: IndexedRecording, reader: Node, tensor: str) -> bool:
    """Return whether a given tensor is the only input of a reference node that is not a constant or shape."""
    return [ref.root(name) for name in ref.data_inputs(reader)] == [ref.root(tensor)]


def output_of_next_transpose(ref: IndexedRecording, output: str) -> str | None:
    """Return the output of a reference tensor's only reader if it is a Transpose, which a backend may apply later."""
    readers = ref.consumers(output)
    return readers[0].outputs[0] if len(readers) == 1 and operators.of(readers[0].op).transposes else None


def is_applied_later(context: Context, tensor: str, node: Node) -> bool:
    """Return whether a node right after a backend tensor performs the operation of a reference node.

    The search looks through activations and nodes that only move values, or that add or multiply by a constant, because
    a bias may be a separate node. After such a node, operations count as the same only if their constants are equal.
    """
    waiting, was_moved = [tensor], False
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = [reader for name in waiting for reader in context.be.consumers(name)]
        if any(_is_same_operation(context, reader, node, by_constants=was_moved) for reader in readers):
            return True
        rows = [(operators.plain(reader), reader) for reader in readers]
        constant_nodes = [
            reader for row, reader in rows if row.goes_into_weights and len(context.be.data_inputs(reader)) == 1
        ]
        was_moved = was_moved or bool(constant_nodes) or any(operators.of(reader.op).moves for reader in readers)
        waiting = [reader.outputs[0] for row, reader in rows if row.activation or row.moves or reader in constant_nodes]
    return False


def _is_same_operation(context: Context, backend_node: Node, reference_node: Node, *, by_constants: bool) -> bool:
    """Return whether two nodes may apply the same operation to one tensor with equal constants.

    A sum of two tensors adds no constant, and adding a different constant is a different operation.
    """
    if not same_family(backend_node, reference_node) or len(context.be.data_inputs(backend_node)) != 1:
        return False
    sides = context.ref, reference_node, context.be, backend_node
    distance = weight_distance(*sides)
    if distance is None:
        return not by_constants or has_same_scalar(*sides)
    return bool(np.less(distance, WEIGHT_MAX_REL_DISTANCE))


def _is_clamped(context: Context, tensor: str, activation: Node) -> bool:
    """Return whether the code range of a backend tensor shows that a Relu or Clip was applied to it."""
    if not operators.of(activation.op).clamps:
        return False
    bounds = bounds_of(context.ref, activation)
    if is_clamped_by_codes(context.be, tensor, bounds):
        return True
    inside = is_clamped_inside(context.be, tensor, context.ref, activation.inputs[0], bounds)
    return inside and not is_applied_later(context, tensor, activation)
