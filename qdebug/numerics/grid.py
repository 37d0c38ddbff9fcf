"""Detect whether real values lie on a grid of few levels, as dequantized codes do."""

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

__all__ = ["Grid", "grid_name", "grid_of", "grid_of_all", "grid_step", "lies_on_no_grid"]

_SAMPLE = 4096
"""Elements searched for a step; all elements must confirm it."""
_PLENTY = 512
"""Different values that leave no doubt."""
_ROUNDING = 2.0**-22
"""By how much a difference of two values in float32 may be off, relative to the largest."""
_SURE = 16
"""Steps up to which a first estimate tells the levels of values."""
_CLEAR = 0.125
"""Share of a step that the rounding of a distance may be, for its rest to tell anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Multiples of a step.

    Args:
        step: The distance of two neighbours.
        low: The smallest value on it.
        high: The largest value on it.
    """

    step: float
    low: float
    high: float

    @property
    def levels(self) -> int:
        """Number of levels from the smallest value to the largest one."""
        return int(np.rint((self.high - self.low) / self.step)) + 1

    @property
    def whole(self) -> bool:
        """Whether all its levels are integers, as for counts or indices."""
        return float(self.step).is_integer()


_NAMES = {GRID_MAX_LEVELS: "8-bit codes", GRID_MAX_WIDE_LEVELS: "16-bit codes"}


def grid_name(grid: Grid) -> str:
    """Return the name of the data that a grid of this size suggests."""
    return next(name for most, name in _NAMES.items() if grid.levels <= most)


def grid_step(values: np.ndarray) -> float | None:
    """Return the step of a grid of at most 256 levels, 0 included, that real values lie on; None if there is none."""
    grid = grid_of(values)
    return None if grid is None or grid.levels > GRID_MAX_LEVELS else grid.step


def lies_on_no_grid(values: np.ndarray) -> bool:
    """Return whether a sample of a tensor proves that it lies on no grid, for any other samples."""
    flat = values.reshape(-1)
    distinct_sample = np.unique(flat[:: max(flat.size // _SAMPLE, 1)].astype(np.float64))
    if distinct_sample.size and not np.isfinite(distinct_sample).all():
        return True
    return (
        distinct_sample.size >= GRID_MIN_WIDE_VALUES
        and _divisor(np.diff(distinct_sample), float(np.max(np.abs(distinct_sample)))) is None
    )


def grid_of(values: np.ndarray) -> Grid | None:
    """Return the grid of at most 65,536 levels that real values lie on, see `grid_of_all`."""
    return grid_of_all(lambda: iter((values,)))


def grid_of_all(arrays: Callable[[], Iterator[np.ndarray]]) -> Grid | None:
    """Return the grid of at most 65,536 levels, 0 included, that all real values of some arrays lie on.

    The step is the greatest common divisor of distances between some values, by Euclid's algorithm up to float32
    rounding.

    Args:
        arrays: Yields the arrays, of any shapes; called at most twice.

    Returns:
        None if they lie on no such grid, are too few to tell, or are not all finite.
    """
    distinct_sample = np.zeros(0)
    for values in arrays():
        flat = values.reshape(-1)
        distinct_sample = np.union1d(distinct_sample, flat[:: max(flat.size // _SAMPLE, 1)].astype(np.float64))
        if distinct_sample.size and not np.isfinite(distinct_sample).all():
            return None
        if distinct_sample.size >= _PLENTY:
            break
    if distinct_sample.size < GRID_MIN_VALUES:
        return None
    step = _divisor(np.diff(distinct_sample), float(np.max(np.abs(distinct_sample))))
    return (
        None
        if step is None
        else _verified_grid(_refined(step, np.abs(distinct_sample)), distinct_sample.size, arrays())
    )


def _refined(step: float, sizes: np.ndarray) -> float:
    """Return the step that fits some values best: from small values, whose levels are certain, on to large ones.

    Args:
        step: A first estimate.
        sizes: Magnitudes of values on the grid.
    """
    sizes = np.sort(sizes[sizes > step / 2])
    if not sizes.size:
        return step
    most = max(2 * float(sizes[0]), _SURE * step)
    while True:
        part = sizes[: np.searchsorted(sizes, most, side="right")]
        levels = np.rint(part / step)
        step = float(part @ levels / (levels @ levels))
        if part.size == sizes.size:
            return step
        most *= 2


def _verified_grid(step: float, different: int, arrays: Iterator[np.ndarray]) -> Grid | None:
    """Return the grid of a step, if all values lie on it."""
    low, high = np.inf, -np.inf
    for values in arrays:
        if not values.size:
            continue
        low, high = min(low, float(np.min(values))), max(high, float(np.max(values)))
        if not (np.isfinite(low) and np.isfinite(high)):
            return None
        grid = Grid(step=step, low=low, high=high)
        if grid.levels > (GRID_MAX_LEVELS if different < GRID_MIN_WIDE_VALUES else GRID_MAX_WIDE_LEVELS):
            return None
        for (part,) in stretches(values):
            places = part.astype(np.float64) / step
            if not np.max(np.abs(places - np.rint(places)), initial=0.0) < GRID_MAX_DISTANCE:
                return None
    return Grid(step=step, low=low, high=high)


def _divisor(distances: np.ndarray, largest: float) -> float | None:
    """Return the number that divides all distances; None if it is too small for a grid.

    Distances of many steps are left out: the multiplied rounding error of the step makes them useless.
    """
    error, step = _ROUNDING * largest, float(np.min(distances))
    of_step = error
    least = largest / GRID_MAX_WIDE_LEVELS
    while step + of_step > least:
        count = np.rint(distances / step)
        off = error + of_step * count
        rest = np.abs(distances - step * count)
        left = np.flatnonzero((rest > off) & (off < _CLEAR * step))
        if not left.size:
            is_clear = off < _CLEAR * step
            return (
                float(np.sum(distances[is_clear]) / np.sum(count[is_clear])) if is_clear.any() else step
            )  # each is rounded
        place = left[np.argmin(rest[left])]
        step, of_step = float(rest[place]), float(off[place])
    return None
