"""NonMaxSuppression: of boxes that overlap, the one with the highest score."""

from __future__ import annotations

import numpy as np

from qdebug.replay.extents import Cost
from qdebug.replay.precision import widen
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_PASSES = 16
"""Times that all boxes are gone through to hold them against one of them."""


def _most(call: Call) -> int:
    """Return how many boxes of a class are kept at most."""
    most = call.optional(2)
    return 0 if most is None or not most.size else max(0, int(most.reshape(-1)[0]))


def _setting(call: Call, slot: int) -> np.ndarray | None:
    given = call.optional(slot)
    return None if given is None or not given.size else given.reshape(-1)[0]


def _kept_amount(call: Call) -> Cost:
    """Return what holding each box that is kept against all others comes to."""
    batch, classes, boxes = call.shape(1)
    turns = batch * classes * min(_most(call), boxes)
    return Cost(None, turns * boxes * _PASSES, turns)


@kernel("NonMaxSuppression", extent=_kept_amount, ranks=(3, 3), kinds=("f",) * 2)
def _non_max_suppression(call: Call) -> np.ndarray:
    """Return (sample, class, box) of the boxes that are kept, those with higher scores first, int64 (kept, 3).

    A box is left out if it shares more than a threshold of its union with one that is kept, or if its score is not
    above a threshold. Of equal scores the lower index goes first.
    """
    boxes, scores = widen(call.array(0)), widen(call.array(1))
    overlap, least = _setting(call, 3), _setting(call, 4)
    corners = _corners(boxes, centred=bool(call.integer("center_point_box")))
    found = []
    for sample, one in enumerate(scores):
        for label, row in enumerate(one):
            order = np.argsort(-row, kind="stable")
            order = order if least is None else order[row[order] > least]
            limit = row.dtype.type(0) if overlap is None else overlap
            found += [(sample, label, box) for box in _kept(corners[sample], order, _most(call), limit)]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, *, centred: bool) -> np.ndarray:
    """Return (N, B, 4) boxes as y and x of their lowest, then of their highest corner."""
    if centred:
        x, y, half_width, half_height = boxes[..., 0], boxes[..., 1], boxes[..., 2] / 2, boxes[..., 3] / 2
        return np.stack([y - half_height, x - half_width, y + half_height, x + half_width], axis=-1)
    return np.concatenate(
        [np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])], axis=-1
    )


def _kept(corners: np.ndarray, order: np.ndarray, most: int, limit: np.ndarray) -> list[int]:
    """Return the boxes that are kept, of those that are left the first one each time."""
    found: list[int] = []
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    while order.size and len(found) < most:
        best, order = order[0], order[1:]
        found.append(int(best))
        shared = np.minimum(corners[order, 2:], corners[best, 2:]) - np.maximum(corners[order, :2], corners[best, :2])
        area = np.prod(shared, axis=1)
        union = areas[order] + areas[best] - area
        apart = (shared <= 0).any(axis=1) | (area <= 0) | (areas[order] <= 0) | (areas[best] <= 0) | (union <= 0)
        order = order[apart | ~(area / union > limit)]
    return found
