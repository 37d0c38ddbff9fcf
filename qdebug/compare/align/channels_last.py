"""Pairs of a run that keeps channels last in all of its tensors, and of one that keeps them second.

Frameworks have an order of their own: TensorFlow Lite computes N, H, W, C from the first tensor to the last; no node
turns anything. What a recording says of a tensor's layout holds; else the extents of what convolutions and pools give
tell which side has channels last, and in all other tensors it is followed wherever it makes extents equal. Where both
orders fit, the values tell. So they do where one tensor alone has its partner's extents in another order: an optimizer
may have moved a Transpose past its node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from qdebug.compare.align.arrangements import merges
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
from qdebug.numerics.accumulate import same_elements

__all__ = ["as_values_tell", "moved_shape", "with_channels_second"]


def moved_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of a tensor whose last dimension is put second."""
    return shape[:1] + shape[-1:] + shape[1:-1]


def with_channels_second(context: Context) -> Iterator[Pair]:
    """Add to pairs how the side that keeps channels last is brought into the other's order."""
    ref, be, pairs = context.ref, context.be, context.pairs
    said = {is_channels_last(info.layout) for run in (ref, be) for info in run.graph.tensors.values()}
    sides = [(True in said and _said(context, pair)) or _told(context, pair) for pair in pairs]
    ahead = sides.count(Side.BACKEND) > sides.count(Side.REFERENCE)
    last = Side.BACKEND if ahead else Side.REFERENCE if any(sides) else None
    unsaid = any(_is_turn_unsaid(node) for run in (be, ref) for node in kinds_of(run.graph.nodes))
    other = {pair.backend for pair in pairs if _is_turned(context, pair)}
    if not (last or unsaid or other or any(pair.match is Match.DATA for pair in pairs)):
        return
    side, turned = last or Side.BACKEND, dict[str, tuple[int, ...]]()
    for pair in pairs:
        node = be.graph.producer(pair.backend)
        made = node, ref.graph.producer(pair.reference)
        asked = last or pair.match is Match.DATA or pair.backend in other
        asked = asked or any(each is not None and _is_turn_unsaid(each) for each in made)
        order = _order(context, pair, side, turned) if asked and _plain(pair) else None
        if order is not None:
            turned[pair.backend] = order
            view = replace(pair.view_of(side) or Transform(), transpose=order)
            yield pair.with_view(side, view, f"dimensions read as {order}")


def as_values_tell(context: Context) -> Iterator[Pair]:
    """Add to pairs the order of dimensions in which their values are plainly nearest, where a run has odd extents.

    A run has if tensors have their partner's elements in other extents than the graphs account for: a harness may hand
    over each tensor in an order of its own. Where extents fit as they are, a node that arranges its input is left out:
    an order of its own would hide that it does it wrongly. A pair made by hand gets the order in which it is nearest.
    """
    pairs = [pair for pair in context.pairs if _plain(pair) and not _is_turn_said(context, pair)]
    odd = {pair.backend for pair in pairs if _is_odd(context, pair)}
    others = any(pair.backend in odd and not _arranges(context, pair) for pair in pairs)
    for pair in pairs:
        is_odd, by_hand = pair.backend in odd, pair.match is Match.MANUAL
        if not (is_odd or by_hand or (others and not _arranges(context, pair))):
            continue
        wrong = is_odd and not _same_but_ones(context, pair)  # may be: it has other extents than the model's
        told = context.sampler.order(pair.reference, pair.backend, as_stored=wrong)
        least = 0.0 if by_hand else DATA_PAIR_MIN_CONFIDENCE if is_odd else PAIR_SURE_MIN_CONFIDENCE
        if told is not None and told[1] >= least:
            for side, turn in ((Side.REFERENCE, told[0].reference), (Side.BACKEND, told[0].backend)):
                if turn is not None:
                    view = replace(pair.view_of(side) or Transform(), transpose=turn)
                    yield pair.with_view(side, view, f"dimensions read as {turn}, as the values tell")


def _is_odd(context: Context, pair: Pair) -> bool:
    """Tell whether a tensor has as many elements as its partner in other extents than nodes account for."""
    theirs, ours = _shape(context.ref, pair.reference), _shape(context.be, pair.backend)
    if theirs is None or ours is None or math.prod(theirs) != math.prod(ours):
        return False
    return theirs != ours if len(theirs) == len(ours) else not (merges(theirs, ours) or merges(ours, theirs))


def _same_but_ones(context: Context, pair: Pair) -> bool:
    """Tell whether only dimensions of one element stand elsewhere in a pair's extents."""
    theirs, ours = _shape(context.ref, pair.reference), _shape(context.be, pair.backend)
    return theirs is not None and ours is not None and same_elements(theirs, ours)


def _arranges(context: Context, pair: Pair) -> bool:
    """Tell whether the node of either side only moves values."""
    makers = context.ref.graph.producer(pair.reference), context.be.graph.producer(pair.backend)
    return any(node is not None and operators.plain(node).moves for node in makers)


def _is_turn_said(context: Context, pair: Pair) -> bool:
    """Tell whether a pair's backend tensor is made by a Transpose that says its order."""
    node = context.be.graph.producer(pair.backend)
    return node is not None and operators.plain(node).transposes and not _is_turn_unsaid(node)


def _said(context: Context, pair: Pair) -> Side | None:
    """Return the side whose tensor is said to have channels last while the other is not."""
    last = [side for side in Side if is_channels_last(context.run(side).graph.tensors[pair.of(side)].layout)]
    return last[0] if len(last) == 1 else None


def _told(context: Context, pair: Pair) -> Side | None:
    """Return the side whose tensor has channels last, as the extents of a convolution's or pool's result tell."""
    ref, be = context.ref, context.be
    node = be.graph.producer(pair.backend)
    fed = pair.backend in be.graph.inputs and pair.reference in ref.graph.inputs
    if not (fed or (node is not None and operators.plain(node).spatial)) or not _plain(pair):
        return None
    theirs, ours = _shape(ref, pair.reference), _shape(be, pair.backend)
    if theirs is None or ours is None or theirs == ours:
        return None
    if len(ours) < CHANNEL_AXIS_MIN_RANK or len(theirs) != len(ours):
        return None
    if moved_shape(ours) == theirs:
        return Side.BACKEND
    return Side.REFERENCE if moved_shape(theirs) == ours else None


def _is_turned(context: Context, pair: Pair) -> bool:
    """Tell whether a tensor has the extents of its partner in another order, and its node is none that turns them.

    An optimizer may have moved a Transpose from before some nodes to after them.
    """
    node = context.be.graph.producer(pair.backend)
    if node is None or operators.plain(node).arranges or not _plain(pair):
        return False
    theirs, ours = _shape(context.ref, pair.reference), _shape(context.be, pair.backend)
    return theirs is not None and ours is not None and theirs != ours and sorted(theirs) == sorted(ours)


def _is_turn_unsaid(node: Node) -> bool:
    """Tell whether a node turns a tensor in an order that its recording does not say."""
    return operators.plain(node).transposes and "perm" not in node.attrs


def _plain(pair: Pair) -> bool:
    """Tell whether nothing is known of the order of a pair's dimensions."""
    views = [view for view in (pair.reference_view, pair.backend_view) if view is not None]
    return all(view.transpose is None and view.channel_block is None for view in views)


def _shape(run: IndexedRecording, tensor: str) -> tuple[int, ...] | None:
    outline = run.recording.outline(tensor)
    if outline is not None:
        return outline.shape
    if run.has(tensor):
        return run.shape(tensor)
    known = run.graph.tensors[tensor].shape
    return None if known is None or None in known else tuple(int(extent or 0) for extent in known)


def _order(context: Context, pair: Pair, last: Side, turned: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the order in which one side of a pair has the other's dimensions; None if that is its own.

    Channels are put second where that alone gives the other's extents. Where several orders do, the values tell, and
    where they do not, what the tensor is made of.
    """
    be = context.be
    mine, other = (_shape(context.run(side), pair.of(side)) for side in (last, last.other))
    if mine is None or other is None or sorted(mine) != sorted(other):
        return None
    if not CHANNEL_AXIS_MIN_RANK <= len(mine) <= CHANNEL_AXIS_MAX_RANK:
        return None
    second = (0, len(mine) - 1, *range(1, len(mine) - 1))
    orders = [o for o in permutations(range(len(mine))) if tuple(mine[axis] for axis in o) == other]
    plain = tuple(range(len(mine)))
    if second in orders and plain not in orders:
        return second
    likely = [order for order in (plain, second) if order in orders] or orders
    best = _by_values(context, pair, last, likely)
    if best is None and plain in orders:
        node = be.graph.producer(pair.backend)
        best = next((turned[n] for n in (be.data_inputs(node) if node else ()) if n in turned), plain)
        best = best if best in orders else plain
    return None if best == plain else best


def _by_values(context: Context, pair: Pair, last: Side, orders: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the order in which two tensors are plainly more alike than in any other; None if there is none."""
    sides = [(context.run(side), pair.of(side)) for side in (last, last.other)]
    if not all(run.has(tensor) for run, tensor in sides) or context.be.size(pair.backend) > VALUES_READ_MAX_ELEMENTS:
        return None
    mine, other = (run.values(tensor) for run, tensor in sides)
    errors = sorted((float(np.linalg.norm(mine.transpose(order) - other)), order) for order in orders)
    clear = len(errors) == 1 or errors[0][0] < CLEARER_CANDIDATE_MAX_ERROR_RATIO * errors[1][0]
    near = errors[0][0] < float(np.linalg.norm(other))
    if not any(error for error, _ in errors):
        return errors[0][1]
    return errors[0][1] if clear and near else None
