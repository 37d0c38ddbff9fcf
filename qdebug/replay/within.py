"""Check axes and indices of a recording against their valid ranges."""

from __future__ import annotations

import numpy as np

__all__ = ["normalize_axis", "normalize_indices"]


def normalize_axis(axis: int, rank: int) -> int:
    """Return an axis counted from the first of `rank` axes. A negative axis counts from the end.

    Raises:
        ValueError: The axis does not exist.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for {rank} axes")
    return axis % rank


def normalize_indices(indices: np.ndarray, extent: int) -> np.ndarray:
    """Return indices as int64, counted from the first of `extent` elements. Negative indices count from the end.

    Raises:
        ValueError: An index is out of range.
    """
    whole = indices.astype(np.int64, copy=False)
    if whole.size and (int(whole.min()) < -extent or int(whole.max()) >= extent):
        raise ValueError(f"indices from {whole.min()} to {whole.max()} are out of range for {extent} elements")
    return np.where(whole < 0, whole + extent, whole)
