"""Pairs of a run that keeps channels last in all of its tensors, and of one that keeps them second.

Frameworks have an order of their own: TensorFlow Lite computes N, H, W, C from the first tensor to the last; no node
turns anything. What a recording says of a tensor's layout holds; else the extents of what convolutions and pools give
tell which side has channels last, and in all other tensors it is followed wherever it makes extents equal. Where both
orders fit, the values tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.model import Node, operators
from qdebug.model.operators import kinds_of
from qdebug.model.outline import outline_of, shape_of
from qdebug.model.thresholds.alignment import (
    CHANNEL_AXIS_MAX_RANK,
    CHANNEL_AXIS_MIN_RANK,
    CLEARER_CANDIDATE_MAX_ERROR_RATIO,
    VALUES_READ_MAX_ELEMENTS,
)
from qdebug.numerics.affine import dequantize

__all__ = ["moved_shape", "with_channels_second"]


def moved_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the extents of a tensor whose last dimension is put second."""
    return shape[:1] + shape[-1:] + shape[1:-1]


def with_channels_second(pairs: Iterable[Pair], ref: IndexedRecording, be: IndexedRecording) -> tuple[Pair, ...]:
    """Add to pairs how the side that keeps channels last is brought into the other's order.

    Args:
        pairs: Pairs in topological order, with the views that the graphs tell.
        ref: The reference run.
        be: The backend run.
    """
    pairs = tuple(pairs)
    lasts = {"reference": 0, "backend": 0}
    says = any(_is_last(layout) for run in (ref, be) for layout in {info.layout for info in run.graph.tensors.values()})
    for pair in pairs:
        if side := (says and _said(pair, ref, be)) or _told(pair, ref, be):
            lasts[side] += 1
    last = max(lasts, key=lambda side: lasts[side]) if any(lasts.values()) else None
    unsaid = any(_is_turn_unsaid(node) for run in (be, ref) for node in kinds_of(run.graph.nodes))
    if not (last or unsaid or any(pair.match is Match.DATA for pair in pairs)):
        return pairs
    turned: dict[str, tuple[int, ...]] = {}
    result = []
    for pair in pairs:
        order = None
        node = be.graph.producer(pair.backend)
        if node is not None and operators.of(node.op).gives_extents and any(name in turned for name in node.inputs):
            continue  # the extents of a tensor that is turned are others
        if _plain(pair) and (last or pair.match is Match.DATA or _turns_unsaid(pair, ref, be)):
            order = _order(pair, last or "backend", turned, ref, be)
        if order is None:
            result.append(pair)
        else:
            turned[pair.backend] = order
            result.append(_turned(pair, last or "backend", order))
    return tuple(result)


def _said(pair: Pair, ref: IndexedRecording, be: IndexedRecording) -> str | None:
    """Give the side whose tensor is said to have channels last while the other is not."""
    theirs, ours = (_is_last(run.graph.tensors[n].layout) for run, n in ((ref, pair.reference), (be, pair.backend)))
    if theirs == ours:
        return None
    return "backend" if ours else "reference"


def _is_last(layout: str | None) -> bool:
    return layout in ("NHWC", "NDHWC", "NWC", "NLC", "NTC")


def _told(pair: Pair, ref: IndexedRecording, be: IndexedRecording) -> str | None:
    """Give the side whose tensor has channels last, as far as the extents of a convolution's or pool's result tell."""
    node = be.graph.producer(pair.backend)
    fed = pair.backend in be.graph.inputs and pair.reference in ref.graph.inputs
    if not (fed or (node is not None and operators.plain(node).spatial)) or not _plain(pair):
        return None
    theirs, ours = _shape(ref, pair.reference), _shape(be, pair.backend)
    if (
        theirs is None
        or ours is None
        or theirs == ours
        or len(ours) < CHANNEL_AXIS_MIN_RANK
        or len(theirs) != len(ours)
    ):
        return None
    if moved_shape(ours) == theirs:
        return "backend"
    return "reference" if moved_shape(theirs) == ours else None


def _turns_unsaid(pair: Pair, ref: IndexedRecording, be: IndexedRecording) -> bool:
    """Tell whether a tensor of either side is turned in an order that its recording does not say."""
    nodes = be.graph.producer(pair.backend), ref.graph.producer(pair.reference)
    return any(node is not None and _is_turn_unsaid(node) for node in nodes)


def _is_turn_unsaid(node: Node) -> bool:
    return operators.plain(node).transposes and "perm" not in node.attrs


def _plain(pair: Pair) -> bool:
    """Tell whether nothing is known of the order of a pair's dimensions."""
    views = [view for view in (pair.reference_view, pair.backend_view) if view is not None]
    return all(view.transpose is None and view.channel_block is None for view in views)


def _shape(run: IndexedRecording, tensor: str) -> tuple[int, ...] | None:
    outline = outline_of(run.recording, tensor)
    if outline is not None:
        return outline.shape
    if run.recording.has(tensor):
        return shape_of(run.recording, tensor)
    known = run.graph.tensors[tensor].shape
    return None if known is None or None in known else tuple(int(extent or 0) for extent in known)


def _order(
    pair: Pair, last: str, turned: Mapping[str, tuple[int, ...]], ref: IndexedRecording, be: IndexedRecording
) -> tuple[int, ...] | None:
    """Give the order in which one side of a pair has the other's dimensions; None if that is its own.

    Channels are put second where that alone gives the other's extents. Where several orders do, the values tell, and
    where they do not, what the tensor is made of.
    """
    theirs, ours = _shape(ref, pair.reference), _shape(be, pair.backend)
    if (
        theirs is None
        or ours is None
        or len(ours) != len(theirs)
        or not CHANNEL_AXIS_MIN_RANK <= len(ours) <= CHANNEL_AXIS_MAX_RANK
    ):
        return None
    mine, other = (ours, theirs) if last == "backend" else (theirs, ours)
    if sorted(mine) != sorted(other):
        return None
    second = (0, len(mine) - 1, *range(1, len(mine) - 1))
    orders = [o for o in permutations(range(len(mine))) if tuple(mine[axis] for axis in o) == other]
    plain = tuple(range(len(mine)))
    if second in orders and plain not in orders:
        return second
    likely = [order for order in (plain, second) if order in orders] or orders
    best = _by_values(pair, last, likely, ref, be)
    if best is None and plain in orders:
        node = be.graph.producer(pair.backend)
        best = next((turned[n] for n in (be.data_inputs(node) if node else ()) if n in turned), plain)
        best = best if best in orders else plain
    return None if best == plain else best


def _by_values(
    pair: Pair, last: str, orders: Sequence[tuple[int, ...]], ref: IndexedRecording, be: IndexedRecording
) -> tuple[int, ...] | None:
    """Give the order in which two tensors are plainly more alike than in any other; None if there is none."""
    if not (ref.recording.has(pair.reference) and be.recording.has(pair.backend)):
        return None
    if math.prod(shape_of(be.recording, pair.backend)) > VALUES_READ_MAX_ELEMENTS:
        return None
    theirs, ours = (
        np.asarray(dequantize(run.recording.load(name), run.graph.tensors[name].quant), np.float64)
        for run, name in ((ref, pair.reference), (be, pair.backend))
    )
    mine, other = (ours, theirs) if last == "backend" else (theirs, ours)
    errors = sorted((float(np.linalg.norm(mine.transpose(order) - other)), order) for order in orders)
    clear = len(errors) == 1 or errors[0][0] < CLEARER_CANDIDATE_MAX_ERROR_RATIO * errors[1][0]
    near = errors[0][0] < float(np.linalg.norm(other))
    if not any(error for error, _ in errors):
        return errors[0][1]
    return errors[0][1] if clear and near else None


def _turned(pair: Pair, last: str, order: tuple[int, ...]) -> Pair:
    if last == "backend":
        view = replace(pair.backend_view or Transform(), transpose=order)
        return replace(pair, backend_view=view, reason=f"{pair.reason}; dimensions read as {order}")
    view = replace(pair.reference_view or Transform(), transpose=order)
    return replace(pair, reference_view=view, reason=f"{pair.reason}; reference dimensions read as {order}")
