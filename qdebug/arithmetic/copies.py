"""Which elements of an operand a wrong result holds in place of the right ones. Begin at `copied_elements`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES

__all__ = ["copied_elements"]

_SEVERAL, _NOWHERE = -1, -2
"""Index of a value that an operand holds several times, and of one that it does not hold."""


def copied_elements(
    right: np.ndarray, recorded: np.ndarray, operands: Mapping[str, np.ndarray], wrong: np.ndarray
) -> Iterator[str]:
    """Yield where wrong elements come from, if they are all wrongly chosen elements of one operand.

    Args:
        right: The right result.
        recorded: The recorded result, in the same shape.
        operands: The node's inputs, by name.
        wrong: Mask of the wrong elements.
    """
    for name, operand in operands.items():
        if operand.ndim == 0 or not operand.size or operand.dtype != recorded.dtype:
            continue
        recorded_sources, right_sources = (_sources(array[wrong], operand) for array in (recorded, right))
        positions = np.flatnonzero(wrong)
        is_known = (recorded_sources >= 0) & (right_sources >= 0)
        if (
            not np.any(recorded_sources == _NOWHERE)
            and np.unique(recorded_sources[is_known]).size >= CAUSE_MIN_DISTINCT_VALUES
        ):
            starts = np.unique(recorded_sources[is_known] - positions[is_known])
            if starts.size == 1:
                yield f"wrong elements are copies of {name!r} in memory order, from element {starts[0]} on"
            else:
                yield _sentence(name, operand.shape, recorded_sources[is_known], right_sources[is_known])


def _sources(values: np.ndarray, operand: np.ndarray) -> np.ndarray:
    """Return the flat index of the operand element that equals each value, or `_SEVERAL` or `_NOWHERE`."""
    distinct, first, counts = np.unique(operand.reshape(-1), return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(distinct, values), distinct.size - 1)
    return np.where(distinct[at] == values, np.where(counts[at] == 1, first[at], _SEVERAL), _NOWHERE)


def _sentence(name: str, shape: tuple[int, ...], sources: np.ndarray, right_sources: np.ndarray) -> str:
    """Describe the sources by their constant distance from the right ones, or else by the first of them."""
    distances = np.unique(sources - right_sources)
    example = f"{name}[{_index(sources[0], shape)}] where {name}[{_index(right_sources[0], shape)}] is right"
    if distances.size > 1:
        return f"wrong elements are copies of the wrong elements of {name!r}, such as {example}"
    by_axis = np.stack(np.unravel_index(sources, shape)) - np.stack(np.unravel_index(right_sources, shape))
    moved_axes = [axis for axis in range(len(shape)) if by_axis[axis].any()]
    if len(moved_axes) == 1 and np.unique(by_axis[moved_axes[0]]).size == 1:
        distance, where = int(by_axis[moved_axes[0]][0]), f"along axis {moved_axes[0]}"
    else:
        distance, where = int(distances[0]), "in memory"
    places = "1 place" if abs(distance) == 1 else f"{abs(distance)} places"
    side = "after" if distance > 0 else "before"
    return f"wrong elements are copied from {name!r} {places} {side} the right ones {where}"


def _index(flat: int, shape: tuple[int, ...]) -> str:
    return ", ".join(str(int(position)) for position in np.unravel_index(int(flat), shape))
