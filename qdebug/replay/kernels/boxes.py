"""NonMaxSuppression: keep the highest-scoring box of each set of overlapping boxes."""

from __future__ import annotations

import numpy as np

from qdebug.replay.extents import Cost
from qdebug.replay.precision import widen
from qdebug.replay.registry import Call, kernel

__all__: list[str] = []

_PASSES = 16
"""Passes over all boxes needed to compare them with a kept box."""


def _max_boxes(call: Call) -> int:
    """Return the maximum number of boxes kept per class."""
    max_boxes_input = call.optional(2)
    return 0 if max_boxes_input is None or not max_boxes_input.size else max(0, int(max_boxes_input.reshape(-1)[0]))


def _read_setting(call: Call, slot: int) -> np.ndarray | None:
    value = call.optional(slot)
    return None if value is None or not value.size else value.reshape(-1)[0]


def _suppression_cost(call: Call) -> Cost:
    """Estimate the cost of comparing each kept box with all others."""
    batch, classes, boxes = call.shape(1)
    turns = batch * classes * min(_max_boxes(call), boxes)
    return Cost(None, turns * boxes * _PASSES, turns)


@kernel("NonMaxSuppression", cost=_suppression_cost, ranks=(3, 3), kinds=("f",) * 2)
def _non_max_suppression(call: Call) -> np.ndarray:
    """Return (sample, class, box) of the kept boxes, highest scores first, int64 (kept, 3).

    A box is dropped if its intersection over union with a kept box exceeds a threshold, or if its score does not exceed
    a threshold. Equal scores are ordered by index.
    """
    boxes, scores = widen(call.array(0)), widen(call.array(1))
    overlap, min_score = _read_setting(call, 3), _read_setting(call, 4)
    corners = _corners(boxes, centred=bool(call.integer("center_point_box")))
    kept_boxes = []
    for sample, class_scores in enumerate(scores):
        for label, row in enumerate(class_scores):
            order = np.argsort(-row, kind="stable")
            order = order if min_score is None else order[row[order] > min_score]
            limit = row.dtype.type(0) if overlap is None else overlap
            kept_boxes += [
                (sample, label, box) for box in _suppress_overlaps(corners[sample], order, _max_boxes(call), limit)
            ]
    return np.array(kept_boxes, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, *, centred: bool) -> np.ndarray:
    """Return boxes (N, B, 4) as y and x of their lowest corner, then of their highest corner."""
    if centred:
        x, y, half_width, half_height = boxes[..., 0], boxes[..., 1], boxes[..., 2] / 2, boxes[..., 3] / 2
        return np.stack([y - half_height, x - half_width, y + half_height, x + half_width], axis=-1)
    return np.concatenate(
        [np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])], axis=-1
    )


def _suppress_overlaps(corners: np.ndarray, order: np.ndarray, limit_count: int, limit: np.ndarray) -> list[int]:
    """Repeatedly keep the first box that is not yet suppressed. Return the kept boxes."""
    kept_boxes: list[int] = []
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    while order.size and len(kept_boxes) < limit_count:
        kept_box, order = order[0], order[1:]
        kept_boxes.append(int(kept_box))
        shared = np.minimum(corners[order, 2:], corners[kept_box, 2:]) - np.maximum(
            corners[order, :2], corners[kept_box, :2]
        )
        area = np.prod(shared, axis=1)
        union = areas[order] + areas[kept_box] - area
        is_disjoint = (
            (shared <= 0).any(axis=1) | (area <= 0) | (areas[order] <= 0) | (areas[kept_box] <= 0) | (union <= 0)
        )
        order = order[is_disjoint | ~(area / union > limit)]
    return kept_boxes
