"""Signed errors of rounded results in units in the last place: whether they have one sign, so that they add up."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qdebug.model.thresholds.explanation import ONE_SIDED_MIN_DEVIATIONS, ONE_SIDED_MIN_MEAN
from qdebug.numerics.float_rounding import round_float, unit_in_last_place
from qdebug.numerics.short_formats import ShortFormat

__all__ = ["RoundingErrors"]


@dataclass(slots=True)
class RoundingErrors:
    """Sums over the errors of results in a short format, against unrounded results.

    Args:
        short: The format.
        elements: Number of elements with a finite unrounded result of full precision.
        unequal: Number of these whose value is not the unrounded one rounded to nearest.
        upward: Sum of the errors, in units in the last place.
        outward: The same, counting errors away from zero as positive.
        squares: Sum of the squared errors.
    """

    short: ShortFormat
    elements: int = 0
    unequal: int = 0
    upward: float = 0.0
    outward: float = 0.0
    squares: float = 0.0

    def add(self, unrounded: np.ndarray, recorded: np.ndarray) -> None:
        """Add results.

        Args:
            unrounded: The results before rounding, any float dtype.
            recorded: The rounded ones, in the same shape.
        """
        right, actual = unrounded.astype(np.float64).reshape(-1), recorded.astype(np.float64).reshape(-1)
        counted = np.isfinite(right) & np.isfinite(actual)
        counted &= (np.abs(right) >= self.short.normal) & (np.abs(right) < self.short.largest)
        right, actual = right[counted], actual[counted]
        errors = (actual - right) / unit_in_last_place(right, self.short)
        self.elements += errors.size
        self.unequal += int(np.count_nonzero(round_float(right, self.short, "even") != actual))
        self.upward += float(errors.sum())
        self.outward += float((errors * np.sign(right)).sum())
        self.squares += float(errors @ errors)

    @property
    def mean(self) -> float:
        """Mean error in units in the last place, in the direction in which it is larger."""
        return max(self.upward, self.outward, key=abs) / self.elements if self.elements else 0.0

    @property
    def direction(self) -> str:
        """That direction in words."""
        if abs(self.outward) >= abs(self.upward):
            return "away from zero" if self.outward > 0 else "toward zero"
        return "upward" if self.upward > 0 else "downward"

    @property
    def deviations(self) -> float:
        """Magnitude of the mean error in its own standard deviations, as for independent errors."""
        return abs(self.mean) * self.elements / math.sqrt(self.squares) if self.squares else 0.0

    @property
    def one_sided(self) -> bool:
        """Whether the errors have one sign by more than chance, and by enough to add up."""
        return self.deviations > ONE_SIDED_MIN_DEVIATIONS and abs(self.mean) >= ONE_SIDED_MIN_MEAN
