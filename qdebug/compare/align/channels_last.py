"""Finds dimension orders for pairs in which one run has channels last and the other has them second.

Frameworks have their own order: TensorFlow Lite computes N, H, W, C from the first tensor to the last, without a
Transpose. A recorded layout decides; if none is recorded, the shapes at convolutions and pools show which side has
channels last, and all other tensors follow if that makes their shapes equal. If both orders fit, the values decide.
They also decide for a single tensor that has the extents of its partner in a different order: an optimizer may have
moved a Transpose past its node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from qdebug.compare.align.arrangements import can_merge_into
from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Side, Transform
from qdebug.model import Node, operators
from qdebug.model.layouts import is_channels_last
from qdebug.model.operators import kinds_of
from qdebug.model.thresholds.alignment import (
    CHANNEL_AXIS_MAX_RANK,
    CHANNEL_AXIS_MIN_RANK,
    CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    DATA_PAIR_MIN_CONFIDENCE,
    PAIR_SURE_MIN_CONFIDENCE,
    VALUES_READ_MAX_ELEMENTS,
)
from qdebug.numerics.accumulate import has_same_elements

__all__ = ["add_channels_second_layouts", "add_layouts_by_values", "moved_shape"]


def moved_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor after moving its last dimension to second place."""
    return shape[:1] + shape[-1:] + shape[1:-1]


def add_channels_second_layouts(context: Context) -> Iterator[Pair]:
    """Add the permutation that brings the channels-last side of each pair into the other side's order."""
    ref, be, pairs = context.ref, context.be, context.pairs
    layouts = {is_channels_last(info.layout) for run in (ref, be) for info in run.graph.tensors.values()}
    sides = [(True in layouts and _side_by_layout(context, pair)) or _side_by_extents(context, pair) for pair in pairs]
    is_mostly_backend = sides.count(Side.BACKEND) > sides.count(Side.REFERENCE)
    last = Side.BACKEND if is_mostly_backend else Side.REFERENCE if any(sides) else None
    has_unstated_transpose = any(
        _is_unstated_transpose(node) for run in (be, ref) for node in kinds_of(run.graph.nodes)
    )
    permuted = {pair.backend for pair in pairs if _is_permuted(context, pair)}
    if not (last or has_unstated_transpose or permuted or any(pair.match is Match.DATA for pair in pairs)):
        return
    side, order_of_tensor = last or Side.BACKEND, dict[str, tuple[int, ...]]()
    for pair in pairs:
        node = be.graph.producer(pair.backend)
        producers = node, ref.graph.producer(pair.reference)
        values_decide = last or pair.match is Match.DATA or pair.backend in permuted
        values_decide = values_decide or any(
            producer is not None and _is_unstated_transpose(producer) for producer in producers
        )
        order = (
            _order_with_channels_second(context, pair, side, order_of_tensor)
            if values_decide and _has_no_order(pair)
            else None
        )
        if order is not None:
            order_of_tensor[pair.backend] = order
            view = replace(pair.view_of(side) or Transform(), transpose=order)
            yield pair.with_view(side, view, f"dimensions transposed by {order}")


def add_layouts_by_values(context: Context) -> Iterator[Pair]:
    """Add the dimension order in which the values of a pair agree best, for runs with unexpected shapes.

    A run has unexpected shapes if its tensors differ in shape from partners of the same size and the graphs do not
    explain it: a harness may store each tensor in its own order. If the shapes already match, a node that rearranges
    its input is skipped, because a new order would hide a wrong rearrangement. A stated pair gets the order in which
    its values agree best.
    """
    pairs = [pair for pair in context.pairs if _has_no_order(pair) and not _is_stated_transpose(context, pair)]
    odd_tensors = {pair.backend for pair in pairs if _has_unexplained_shape(context, pair)}
    has_unexpected = any(pair.backend in odd_tensors and not _only_moves_values(context, pair) for pair in pairs)
    for pair in pairs:
        is_odd, by_hand = pair.backend in odd_tensors, pair.match is Match.MANUAL
        if not (is_odd or by_hand or (has_unexpected and not _only_moves_values(context, pair))):
            continue
        # its extents may differ from the model's
        is_stored_differently = is_odd and not _differs_in_ones_only(context, pair)
        order = context.sampler.order(pair.reference, pair.backend, as_stored=is_stored_differently)
        min_confidence = 0.0 if by_hand else DATA_PAIR_MIN_CONFIDENCE if is_odd else PAIR_SURE_MIN_CONFIDENCE
        if order is not None and order[1] >= min_confidence:
            for side, permutation in ((Side.REFERENCE, order[0].reference), (Side.BACKEND, order[0].backend)):
                if permutation is not None:
                    view = replace(pair.view_of(side) or Transform(), transpose=permutation)
                    yield pair.with_view(
                        side, view, f"dimensions transposed by {permutation}, chosen by comparing values"
                    )


def _has_unexplained_shape(context: Context, pair: Pair) -> bool:
    """Return whether a tensor has the size of its partner but a shape that its nodes do not account for."""
    reference_shape, backend_shape = _shape(context.ref, pair.reference), _shape(context.be, pair.backend)
    if reference_shape is None or backend_shape is None or math.prod(reference_shape) != math.prod(backend_shape):
        return False
    return (
        reference_shape != backend_shape
        if len(reference_shape) == len(backend_shape)
        else not (can_merge_into(reference_shape, backend_shape) or can_merge_into(backend_shape, reference_shape))
    )


def _differs_in_ones_only(context: Context, pair: Pair) -> bool:
    """Return whether the shapes of a pair differ only in dimensions of extent 1."""
    reference_shape, backend_shape = _shape(context.ref, pair.reference), _shape(context.be, pair.backend)
    return (
        reference_shape is not None and backend_shape is not None and has_same_elements(reference_shape, backend_shape)
    )


def _only_moves_values(context: Context, pair: Pair) -> bool:
    """Return whether one of the two nodes that compute a pair only moves values."""
    makers = context.ref.graph.producer(pair.reference), context.be.graph.producer(pair.backend)
    return any(node is not None and operators.plain(node).moves for node in makers)


def _is_stated_transpose(context: Context, pair: Pair) -> bool:
    """Return whether a pair's backend tensor is the output of a Transpose with a declared order."""
    node = context.be.graph.producer(pair.backend)
    return node is not None and operators.plain(node).transposes and not _is_unstated_transpose(node)


def _side_by_layout(context: Context, pair: Pair) -> Side | None:
    """Return the side whose tensor is recorded as channels-last while the other tensor is not."""
    last = [side for side in Side if is_channels_last(context.run(side).graph.tensors[pair.of(side)].layout)]
    return last[0] if len(last) == 1 else None


def _side_by_extents(context: Context, pair: Pair) -> Side | None:
    """Return the side whose tensor has channels last, according to the shape of a convolution or pool output."""
    ref, be = context.ref, context.be
    node = be.graph.producer(pair.backend)
    is_input = pair.backend in be.graph.inputs and pair.reference in ref.graph.inputs
    if not (is_input or (node is not None and operators.plain(node).spatial)) or not _has_no_order(pair):
        return None
    reference_shape, backend_shape = _shape(ref, pair.reference), _shape(be, pair.backend)
    if reference_shape is None or backend_shape is None or reference_shape == backend_shape:
        return None
    if len(backend_shape) < CHANNEL_AXIS_MIN_RANK or len(reference_shape) != len(backend_shape):
        return None
    if moved_shape(backend_shape) == reference_shape:
        return Side.BACKEND
    return Side.REFERENCE if moved_shape(reference_shape) == backend_shape else None


def _is_permuted(context: Context, pair: Pair) -> bool:
    """Return whether a tensor has the extents of its partner in a different order although its node does not transpose.

    An optimizer may have moved a Transpose past some nodes.
    """
    node = context.be.graph.producer(pair.backend)
    if node is None or operators.plain(node).arranges or not _has_no_order(pair):
        return False
    reference_shape, backend_shape = _shape(context.ref, pair.reference), _shape(context.be, pair.backend)
    return (
        reference_shape is not None
        and backend_shape is not None
        and reference_shape != backend_shape
        and sorted(reference_shape) == sorted(backend_shape)
    )


def _is_unstated_transpose(node: Node) -> bool:
    """Return whether a node transposes in an order that was not recorded."""
    return operators.plain(node).transposes and "perm" not in node.attrs


def _has_no_order(pair: Pair) -> bool:
    """Return whether a pair has no dimension order or channel block yet."""
    views = [view for view in (pair.reference_view, pair.backend_view) if view is not None]
    return all(view.transpose is None and view.channel_block is None for view in views)


def _shape(run: IndexedRecording, tensor: str) -> tuple[int, ...] | None:
    outline = run.recording.outline(tensor)
    if outline is not None:
        return outline.shape
    if run.has(tensor):
        return run.shape(tensor)
    shape = run.graph.tensors[tensor].shape
    return None if shape is None or None in shape else tuple(int(extent or 0) for extent in shape)


def _order_with_channels_second(
    context: Context, pair: Pair, last: Side, order_of_tensor: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the permutation that gives one side of a pair the dimension order of the other, or None for the identity.

    Channels move to the second dimension if that alone gives the other side's shape. If several orders do, the values
    decide, then the inputs of the tensor.
    """
    be = context.be
    shape, other_shape = (_shape(context.run(side), pair.of(side)) for side in (last, last.other))
    if shape is None or other_shape is None or sorted(shape) != sorted(other_shape):
        return None
    if not CHANNEL_AXIS_MIN_RANK <= len(shape) <= CHANNEL_AXIS_MAX_RANK:
        return None
    second = (0, len(shape) - 1, *range(1, len(shape) - 1))
    orders = [o for o in permutations(range(len(shape))) if tuple(shape[axis] for axis in o) == other_shape]
    plain = tuple(range(len(shape)))
    if second in orders and plain not in orders:
        return second
    likely = [order for order in (plain, second) if order in orders] or orders
    best = _choose_order_by_values(context, pair, last, likely)
    if best is None and plain in orders:
        node = be.graph.producer(pair.backend)
        best = next((order_of_tensor[n] for n in (be.data_inputs(node) if node else ()) if n in order_of_tensor), plain)
        best = best if best in orders else plain
    return None if best == plain else best


def _choose_order_by_values(
    context: Context, pair: Pair, last: Side, orders: Sequence[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the order in which two tensors agree clearly better than in any other, or None if there is none."""
    sides = [(context.run(side), pair.of(side)) for side in (last, last.other)]
    if not all(run.has(tensor) for run, tensor in sides) or context.be.size(pair.backend) > VALUES_READ_MAX_ELEMENTS:
        return None
    values, other_values = (run.values(tensor) for run, tensor in sides)
    errors = sorted((float(np.linalg.norm(values.transpose(order) - other_values)), order) for order in orders)
    is_clear = len(errors) == 1 or errors[0][0] < CLEARER_CANDIDATE_MAX_ERROR_RATIO * errors[1][0]
    is_near = errors[0][0] < float(np.linalg.norm(other_values))
    if not any(error for error, _ in errors):
        return errors[0][1]
    return errors[0][1] if is_clear and is_near else None
