"""Detect whether real values lie on a grid with few levels, as dequantized codes do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from qdebug.model.thresholds.rounding import (
    GRID_MAX_DISTANCE,
    GRID_MAX_LEVELS,
    GRID_MAX_WIDE_LEVELS,
    GRID_MIN_VALUES,
    GRID_MIN_WIDE_VALUES,
)
from qdebug.numerics.blocks import stretches

__all__ = ["Grid", "grid_name", "grid_of", "grid_of_all", "grid_step", "is_off_grid"]

_SAMPLE = 4096
"""Elements searched for a step. All elements must then confirm it."""
_ENOUGH_VALUES = 512
"""Number of distinct values that suffice to determine the step."""
_ROUNDING = 2.0**-22
"""Maximum error of a float32 difference of two values, relative to the larger one."""
_MAX_CERTAIN_LEVEL = 16
"""Maximum number of steps for which a first estimate of the step identifies the level."""
_MAX_ERROR_SHARE = 0.125
"""Maximum rounding error of a distance, as a share of a step, for its remainder to be meaningful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Multiples of a step.

    Args:
        step: The distance between neighbouring levels.
        low: The smallest value.
        high: The largest value.
    """

    step: float
    low: float
    high: float

    @property
    def levels(self) -> int:
        """Number of levels from the smallest value to the largest value."""
        return int(np.rint((self.high - self.low) / self.step)) + 1

    @property
    def whole(self) -> bool:
        """Whether all its levels are integers, as for counts and indices."""
        return float(self.step).is_integer()


_NAMES = {GRID_MAX_LEVELS: "8-bit codes", GRID_MAX_WIDE_LEVELS: "16-bit codes"}


def grid_name(grid: Grid) -> str:
    """Return what kind of data a grid of this size suggests."""
    return next(name for max_levels, name in _NAMES.items() if grid.levels <= max_levels)


def grid_step(values: np.ndarray) -> float | None:
    """Return the step of a grid of at most 256 levels, including 0, that real values lie on; None if there is none."""
    grid = grid_of(values)
    return None if grid is None or grid.levels > GRID_MAX_LEVELS else grid.step


def is_off_grid(values: np.ndarray) -> bool:
    """Return whether the values of one sample prove that a tensor does not lie on a grid."""
    flat = values.reshape(-1)
    distinct_sample = np.unique(flat[:: max(flat.size // _SAMPLE, 1)].astype(np.float64))
    if distinct_sample.size and not np.isfinite(distinct_sample).all():
        return True
    return (
        distinct_sample.size >= GRID_MIN_WIDE_VALUES
        and _common_divisor(np.diff(distinct_sample), float(np.max(np.abs(distinct_sample)))) is None
    )


def grid_of(values: np.ndarray) -> Grid | None:
    """Return the grid of at most 65,536 levels that real values lie on. See `grid_of_all`."""
    return grid_of_all(lambda: iter((values,)))


def grid_of_all(arrays: Callable[[], Iterator[np.ndarray]]) -> Grid | None:
    """Return the grid of at most 65,536 levels, including 0, that all real values of several arrays lie on.

    The step is the greatest common divisor of distances between values, found by Euclid's algorithm with allowance for
    float32 rounding.

    Args:
        arrays: Yields the arrays, of any shapes; called at most twice.

    Returns:
        The grid; None if the values do not lie on such a grid, are too few to decide, or are not all finite.
    """
    distinct_sample = np.zeros(0)
    for values in arrays():
        flat = values.reshape(-1)
        distinct_sample = np.union1d(distinct_sample, flat[:: max(flat.size // _SAMPLE, 1)].astype(np.float64))
        if distinct_sample.size and not np.isfinite(distinct_sample).all():
            return None
        if distinct_sample.size >= _ENOUGH_VALUES:
            break
    if distinct_sample.size < GRID_MIN_VALUES:
        return None
    step = _common_divisor(np.diff(distinct_sample), float(np.max(np.abs(distinct_sample))))
    return (
        None
        if step is None
        else _verified_grid(_refine_step(step, np.abs(distinct_sample)), distinct_sample.size, arrays())
    )


def _refine_step(step: float, sizes: np.ndarray) -> float:
    """Return the step that fits the values best, refined from small values, whose levels are certain, to large ones.

    Args:
        step: A first estimate.
        sizes: Magnitudes of values on the grid.
    """
    sizes = np.sort(sizes[sizes > step / 2])
    if not sizes.size:
        return step
    reach = max(2 * float(sizes[0]), _MAX_CERTAIN_LEVEL * step)
    while True:
        part = sizes[: np.searchsorted(sizes, reach, side="right")]
        levels = np.rint(part / step)
        step = float(part @ levels / (levels @ levels))
        if part.size == sizes.size:
            return step
        reach *= 2


def _verified_grid(step: float, distinct_count: int, arrays: Iterator[np.ndarray]) -> Grid | None:
    """Return the grid with a given step, if all values lie on it."""
    low, high = np.inf, -np.inf
    for values in arrays:
        if not values.size:
            continue
        low, high = min(low, float(np.min(values))), max(high, float(np.max(values)))
        if not (np.isfinite(low) and np.isfinite(high)):
            return None
        grid = Grid(step=step, low=low, high=high)
        if grid.levels > (GRID_MAX_LEVELS if distinct_count < GRID_MIN_WIDE_VALUES else GRID_MAX_WIDE_LEVELS):
            return None
        for (part,) in stretches(values):
            levels = part.astype(np.float64) / step
            if not np.max(np.abs(levels - np.rint(levels)), initial=0.0) < GRID_MAX_DISTANCE:
                return None
    return Grid(step=step, low=low, high=high)


def _common_divisor(distances: np.ndarray, largest: float) -> float | None:
    """Return the number that divides all distances; None if it is too small for a grid.

    Distances of many steps are ignored, because they multiply the rounding error of the step.
    """
    error, step = _ROUNDING * largest, float(np.min(distances))
    step_error = error
    min_step = largest / GRID_MAX_WIDE_LEVELS
    while step + step_error > min_step:
        count = np.rint(distances / step)
        tolerance = error + step_error * count
        rest = np.abs(distances - step * count)
        undecided = np.flatnonzero((rest > tolerance) & (tolerance < _MAX_ERROR_SHARE * step))
        if not undecided.size:
            is_clear = tolerance < _MAX_ERROR_SHARE * step
            # Each distance is rounded, so average over all.
            return float(np.sum(distances[is_clear]) / np.sum(count[is_clear])) if is_clear.any() else step
        position = undecided[np.argmin(rest[undecided])]
        step, step_error = float(rest[position]), float(tolerance[position])
    return None
