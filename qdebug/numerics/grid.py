"""Whether real values lie on a grid of few levels, as codes do that were turned back into real numbers."""

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
"""Elements among which a step is looked for; all elements have to bear it out."""
_PLENTY = 512
"""Different values that leave no doubt."""
_ROUNDING = 2.0**-22
"""By how much a difference of two values in float32 may be off, relative to the largest."""
_CLEAR = 0.125
"""Share of a step that the rounding of a distance may be, for its rest to tell anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Multiples of a step.

    Args:
        step: The distance of two neighbours.
        low: The smallest value on it.
        high: The largest one.
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
        """Whether all its levels are whole numbers, as those of a count or an index are."""
        return float(self.step).is_integer()


_NAMES = {GRID_MAX_LEVELS: "8-bit codes", GRID_MAX_WIDE_LEVELS: "16-bit codes"}


def grid_name(grid: Grid) -> str:
    """Return what a grid of so many levels holds."""
    return next(name for most, name in _NAMES.items() if grid.levels <= most)


def grid_step(values: np.ndarray) -> float | None:
    """Return the step of a grid of at most 256 levels that real values lie on, zero among its levels; None if none."""
    found = grid_of(values)
    return None if found is None or found.levels > GRID_MAX_LEVELS else found.step


def lies_on_no_grid(values: np.ndarray) -> bool:
    """Tell, by some of its values, whether a tensor lies on no grid, whatever its other samples hold."""
    flat = values.reshape(-1)
    some = np.unique(flat[:: max(flat.size // _SAMPLE, 1)].astype(np.float64))
    if some.size and not np.isfinite(some).all():
        return True
    return some.size >= GRID_MIN_WIDE_VALUES and _divisor(np.diff(some), float(np.max(np.abs(some)))) is None


def grid_of(values: np.ndarray) -> Grid | None:
    """Return the grid of at most 65,536 levels that real values lie on, see `grid_of_all`."""
    return grid_of_all(lambda: iter((values,)))


def grid_of_all(arrays: Callable[[], Iterator[np.ndarray]]) -> Grid | None:
    """Return the grid of at most 65,536 levels that all real values of some arrays lie on, zero among its levels.

    The step is the greatest common divisor of the distances between some of the values, by Euclid's algorithm up to
    what float32 rounds.

    Args:
        arrays: Yields the arrays, of any shapes; called twice at the most.

    Returns:
        None if they lie on no such grid, are too few to tell, or are not all finite.
    """
    some = np.zeros(0)
    for values in arrays():
        flat = values.reshape(-1)
        some = np.union1d(some, flat[:: max(flat.size // _SAMPLE, 1)].astype(np.float64))
        if some.size and not np.isfinite(some).all():
            return None
        if some.size >= _PLENTY:
            break
    if some.size < GRID_MIN_VALUES:
        return None
    step = _divisor(np.diff(some), float(np.max(np.abs(some))))
    return None if step is None else _borne_out(step, some.size, arrays())


def _borne_out(step: float, different: int, arrays: Iterator[np.ndarray]) -> Grid | None:
    """Return the grid of a step, if all values lie on it."""
    low, high = np.inf, -np.inf
    for values in arrays:
        if not values.size:
            continue
        low, high = min(low, float(np.min(values))), max(high, float(np.max(values)))
        if not (np.isfinite(low) and np.isfinite(high)):
            return None
        found = Grid(step=step, low=low, high=high)
        if found.levels > (GRID_MAX_LEVELS if different < GRID_MIN_WIDE_VALUES else GRID_MAX_WIDE_LEVELS):
            return None
        for (part,) in stretches(values):
            places = part.astype(np.float64) / step
            if not np.max(np.abs(places - np.rint(places)), initial=0.0) < GRID_MAX_DISTANCE:
                return None
    return Grid(step=step, low=low, high=high)


def _divisor(distances: np.ndarray, largest: float) -> float | None:
    """Return the number of which all distances are multiples; None if it is too small for a grid.

    Distances of many steps are left out: the rounding of the step, so many times over, leaves nothing to be told.
    """
    error, step = _ROUNDING * largest, float(np.min(distances))
    of_step = error
    while step > largest / GRID_MAX_WIDE_LEVELS:
        count = np.rint(distances / step)
        off = error + of_step * count
        rest = np.abs(distances - step * count)
        left = np.flatnonzero((rest > off) & (off < _CLEAR * step))
        if not left.size:
            return float(np.sum(distances) / np.sum(count))  # an average: each distance is rounded
        place = left[np.argmin(rest[left])]
        step, of_step = float(rest[place]), float(off[place])
    return None
