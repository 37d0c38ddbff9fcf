"""Errors of rounded results in units in the last place: whether they have one sign, so that they add up.

Errors are measured against the correct result rounded to nearest. Errors against the unrounded result may have one sign
although every result is correct, as for the quotients of whole numbers by 255.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from qdebug.model.thresholds.explanation import ONE_SIDED_MIN_DEVIATIONS, ONE_SIDED_MIN_MEAN
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.float_rounding import round_float, unit_in_last_place
from qdebug.numerics.short_formats import ShortFormat

__all__ = ["RoundingErrors"]

_BLOCK = 1 << 20
"""Elements examined at once."""
_MAX_ERROR = 2.0
"""Limit to which the error of each element is clipped, in units in the last place."""


@dataclass(slots=True)
class _Direction:
    """The errors in one direction, as sums over groups of elements that may be moved together."""

    total: float = 0.0
    squares: float = 0.0

    def add(self, sums: np.ndarray) -> None:
        self.total += float(sums.sum())
        self.squares += float(sums @ sums)

    @property
    def deviations(self) -> float:
        """Magnitude of the total in its standard deviations, if the groups are independent."""
        return abs(self.total) / math.sqrt(self.squares) if self.squares else 0.0


@dataclass(slots=True)
class RoundingErrors:
    """Sums over the errors of results in a short format.

    Args:
        short: The format.
        joint_axes: Axes along which an error inside the computation may move all elements together, as the rounded
            factor of a normalization does. Such elements count as one.
        elements: Number of elements whose correct result is finite and not subnormal.
        unequal: Number of these elements that differ from the correct result rounded to nearest.
    """

    short: ShortFormat
    joint_axes: tuple[int, ...] = ()
    elements: int = 0
    unequal: int = 0
    upward: _Direction = field(default_factory=_Direction)
    outward: _Direction = field(default_factory=_Direction)

    def add(self, unrounded: np.ndarray, recorded: np.ndarray) -> None:
        """Add results.

        Args:
            unrounded: The results before rounding, any float dtype.
            recorded: The recorded results, in the same shape.
        """
        last = tuple(range(-len(self.joint_axes), 0))
        length = math.prod(unrounded.shape[axis] for axis in self.joint_axes)
        correct, actual = (
            np.moveaxis(array, self.joint_axes, last).reshape(-1, max(length, 1)) for array in (unrounded, recorded)
        )
        rows = max(_BLOCK // max(length, 1), 1)
        for start in range(0, len(correct), rows):
            checkpoint()
            self._add_rows(*(array[start : start + rows].astype(np.float64) for array in (correct, actual)))

    def merge(self, other: RoundingErrors) -> None:
        """Add the errors of other results in the same format."""
        self.elements += other.elements
        self.unequal += other.unequal
        for errors, added_errors in ((self.upward, other.upward), (self.outward, other.outward)):
            errors.total += added_errors.total
            errors.squares += added_errors.squares

    def _add_rows(self, correct: np.ndarray, actual: np.ndarray) -> None:
        size = np.abs(correct)
        with np.errstate(invalid="ignore"):
            is_counted = np.isfinite(correct) & np.isfinite(actual) & (size >= self.short.normal)
            is_counted &= size < self.short.largest
        correct, actual = np.where(is_counted, correct, 1.0), np.where(is_counted, actual, 1.0)
        errors = (actual - round_float(correct, self.short, "even")) / unit_in_last_place(correct, self.short)
        self.elements += int(np.count_nonzero(is_counted))
        self.unequal += int(np.count_nonzero(errors))
        # Where terms cancel, a few errors of many units would outweigh all others.
        errors = np.clip(errors, -_MAX_ERROR, _MAX_ERROR)
        self.upward.add(errors.sum(axis=1))
        self.outward.add((errors * np.sign(correct)).sum(axis=1))

    @property
    def _larger_direction(self) -> _Direction:
        return max(self.outward, self.upward, key=lambda direction: abs(direction.total))

    @property
    def mean(self) -> float:
        """Mean error in units in the last place, each clipped to 2 units, in the direction of the larger mean."""
        return self._larger_direction.total / self.elements if self.elements else 0.0

    @property
    def direction(self) -> str:
        """The direction of the mean error, in words."""
        if self._larger_direction is self.outward:
            return "away from zero" if self.mean > 0 else "toward zero"
        return "upward" if self.mean > 0 else "downward"

    @property
    def deviations(self) -> float:
        """Magnitude of the mean error in its own standard deviations."""
        return self._larger_direction.deviations

    @property
    def one_sided(self) -> bool:
        """Whether the errors have one sign by more than chance, and by enough to add up."""
        return self.deviations > ONE_SIDED_MIN_DEVIATIONS and abs(self.mean) >= ONE_SIDED_MIN_MEAN
