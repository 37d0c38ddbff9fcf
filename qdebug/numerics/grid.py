"""Whether real values lie on a grid of few levels, as dequantized codes do."""

from __future__ import annotations

import numpy as np

from qdebug.model.thresholds.rounding import GRID_MAX_DISTANCE, GRID_MAX_LEVELS, GRID_MIN_VALUES

__all__ = ["grid_step"]


def grid_step(values: np.ndarray) -> float | None:
    """Return the step of a grid of few levels that real values lie on, zero among its levels.

    Args:
        values: Real values of any shape.

    Returns:
        None if they lie on no such grid, are too few to tell, or are not all finite.
    """
    flat, some = values.reshape(-1), 2 * GRID_MAX_LEVELS
    if flat.size > some and np.unique(flat[:: flat.size // some]).size > GRID_MAX_LEVELS:
        return None  # a part tells it in most cases, and to sort all takes long
    levels = np.unique(flat.astype(np.float64))
    if not GRID_MIN_VALUES <= levels.size <= GRID_MAX_LEVELS or not np.isfinite(levels).all():
        return None
    step = float(np.min(np.diff(levels)))
    places = levels / step
    if places[-1] - places[0] > GRID_MAX_LEVELS - 1 + GRID_MAX_DISTANCE:
        return None
    return step if np.max(np.abs(places - np.rint(places))) < GRID_MAX_DISTANCE else None
