"""Sums of float64 values with an exponent of their own, so that squares neither overflow nor vanish."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ScaledSum"]


@dataclass(slots=True)
class ScaledSum:
    """A sum mantissa * 2**exponent of non-negative or signed terms.

    Nearly every tensor is summed at exponent 0, where adding is one float addition; terms whose
    squares leave the float64 range come with an exponent.
    """

    mantissa: float = 0.0
    exponent: int = 0

    def add(self, mantissa: float, exponent: int = 0) -> None:
        """Add mantissa * 2**exponent."""
        if exponent == self.exponent:
            self.mantissa += mantissa
        elif mantissa != 0.0:
            if self.mantissa == 0.0:
                self.mantissa, self.exponent = mantissa, exponent
            elif exponent > self.exponent:
                self.mantissa = math.ldexp(self.mantissa, self.exponent - exponent) + mantissa
                self.exponent = exponent
            else:
                self.mantissa += math.ldexp(mantissa, exponent - self.exponent)

    def merge(self, other: ScaledSum) -> None:
        """Add another sum."""
        self.add(other.mantissa, other.exponent)

    def mean(self, count: int) -> float:
        """Divide by a count; infinite if the quotient exceeds float64."""
        return _ldexp(self.mantissa / count, self.exponent)

    def root_mean(self, count: int) -> float:
        """Take the square root of the mean of `count` non-negative terms."""
        mantissa, exponent = self.normalized()
        odd = exponent & 1
        return _ldexp(math.sqrt(math.ldexp(mantissa, odd) / count), (exponent - odd) // 2)

    def normalized(self) -> tuple[float, int]:
        """Give the sum as a mantissa in [0.5, 1) and an exponent; (0.0, 0) if it is 0."""
        mantissa, exponent = math.frexp(self.mantissa)
        return (mantissa, exponent + self.exponent) if mantissa else (0.0, 0)

    def log10_ratio(self, other: ScaledSum) -> float:
        """Give log10(self / other) of two positive sums."""
        (above, above_exponent), (below, below_exponent) = self.normalized(), other.normalized()
        return math.log10(above / below) + (above_exponent - below_exponent) * math.log10(2.0)

    def root_ratio(self, other: ScaledSum) -> float:
        """Give sqrt(self / other) of a non-negative and a positive sum."""
        (above, above_exponent), (below, below_exponent) = self.normalized(), other.normalized()
        shift = above_exponent - below_exponent
        odd = shift & 1
        return _ldexp(math.sqrt(math.ldexp(above / below, odd)), (shift - odd) // 2)

    def at_exponent(self, exponent: int) -> float:
        """Give self / 2**exponent as a float."""
        return _ldexp(self.mantissa, self.exponent - exponent)


def _ldexp(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)
