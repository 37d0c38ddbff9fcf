"""Pairs of a run that keeps channels last in all of its tensors, and of one that keeps them second.

Frameworks have an order of their own: TensorFlow Lite computes N, H, W, C from the first tensor to the last; no node
turns anything. What a recording says of a tensor's layout holds; else the extents of what convolutions and pools give
tell which side has channels last, and in all other tensors it is followed wherever it makes extents equal. Where both
orders fit, the values tell. So they do where one tensor alone has its partner's extents in another order: an optimizer
may have moved a Transpose past its node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Side, Transform
from qdebug.model import Node, operators
from qdebug.model.layouts import is_channels_last
from qdebug.model.operators import kinds_of
from qdebug.model.outline import outline_of
from qdebug.model.thresholds.alignment import (
    CHANNEL_AXIS_MAX_RANK,
    CHANNEL_AXIS_MIN_RANK,
    CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    VALUES_READ_MAX_ELEMENTS,
)

__all__ = ["moved_shape", "with_channels_second"]


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
    outline = outline_of(run.recording, tensor)
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
