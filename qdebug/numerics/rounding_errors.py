"""Errors of rounded results in units in the last place: whether they have one sign, so that they add up.

Errors are measured against the right result rounded to nearest. Errors against the unrounded result may have one sign
although every result is right, as for the quotients of whole numbers by 255.
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
_MOST = 2.0
"""Largest error of an element that counts, in units in the last place."""


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
            factor of a normalization does. They then count as one.
        elements: Number of elements with a finite right result of full precision.
        unequal: Number of these whose value is not the right one rounded to nearest.
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
            recorded: The rounded ones, in the same shape.
        """
        last = tuple(range(-len(self.joint_axes), 0))
        length = math.prod(unrounded.shape[axis] for axis in self.joint_axes)
        right, actual = (
            np.moveaxis(array, self.joint_axes, last).reshape(-1, max(length, 1)) for array in (unrounded, recorded)
        )
        rows = max(_BLOCK // max(length, 1), 1)
        for start in range(0, len(right), rows):
            checkpoint()
            self._add_rows(*(array[start : start + rows].astype(np.float64) for array in (right, actual)))

    def merge(self, other: RoundingErrors) -> None:
        """Add the errors of other results in the same format."""
        self.elements += other.elements
        self.unequal += other.unequal
        for errors, added_errors in ((self.upward, other.upward), (self.outward, other.outward)):
            errors.total += added_errors.total
            errors.squares += added_errors.squares

    def _add_rows(self, right: np.ndarray, actual: np.ndarray) -> None:
        size = np.abs(right)
        with np.errstate(invalid="ignore"):
            is_counted = np.isfinite(right) & np.isfinite(actual) & (size >= self.short.normal)
            is_counted &= size < self.short.largest
        right, actual = np.where(is_counted, right, 1.0), np.where(is_counted, actual, 1.0)
        errors = (actual - round_float(right, self.short, "even")) / unit_in_last_place(right, self.short)
        self.elements += int(np.count_nonzero(is_counted))
        self.unequal += int(np.count_nonzero(errors))
        # Where terms cancel, a few errors of many units would outweigh all others.
        errors = np.clip(errors, -_MOST, _MOST)
        self.upward.add(errors.sum(axis=1))
        self.outward.add((errors * np.sign(right)).sum(axis=1))

    @property
    def _main(self) -> _Direction:
        return max(self.outward, self.upward, key=lambda each: abs(each.total))

    @property
    def mean(self) -> float:
        """Mean error in units in the last place, each at most 2, in the direction in which it is larger."""
        return self._main.total / self.elements if self.elements else 0.0

    @property
    def direction(self) -> str:
        """That direction in words."""
        if self._main is self.outward:
            return "away from zero" if self.mean > 0 else "toward zero"
        return "upward" if self.mean > 0 else "downward"

    @property
    def deviations(self) -> float:
        """Magnitude of the mean error in its own standard deviations."""
        return self._main.deviations

    @property
    def one_sided(self) -> bool:
        """Whether the errors have one sign by more than chance, and by enough to add up."""
        return self.deviations > ONE_SIDED_MIN_DEVIATIONS and abs(self.mean) >= ONE_SIDED_MIN_MEAN
