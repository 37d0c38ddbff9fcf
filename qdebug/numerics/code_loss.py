"""The loss from rounding values to codes: how many values change, and the energies of error and signal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qdebug.numerics.affine import BLOCK
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["CodeLoss"]


@dataclass(slots=True)
class CodeLoss:
    """The loss from rounding values, as sums that can be merged.

    An `ErrorAccumulator` has more metrics, and takes several times as long.

    Args:
        count: Number of values.
        mismatches: Number of changed values.
        error: Sum of the squared changes; not finite if any value or rounded value is not.
        signal: Sum of the squared values.
    """

    count: int = 0
    mismatches: int = 0
    error: float = 0.0
    signal: float = 0.0

    def add(self, values: np.ndarray, rounded: np.ndarray) -> None:
        """Add real values and their rounded values."""
        first, second = values.reshape(-1), rounded.reshape(-1)
        with np.errstate(all="ignore"):
            for start in range(0, first.size, BLOCK):
                checkpoint()
                real = first[start : start + BLOCK].astype(np.float64)
                change = second[start : start + BLOCK] - real
                self.mismatches += int(np.count_nonzero(change))
                self.error += float(change @ change)
                self.signal += float(real @ real)
        self.count += first.size

    def merge(self, other: CodeLoss) -> None:
        """Add the sums of another object."""
        self.count += other.count
        self.mismatches += other.mismatches
        self.error += other.error
        self.signal += other.signal

    @property
    def rmse(self) -> float | None:
        """Root of the mean squared change; None without values."""
        return math.sqrt(self.error / self.count) if self.count else None

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(signal / error); NaN if the error is not finite, None without values."""
        if not self.count:
            return None
        if not math.isfinite(self.error) or not math.isfinite(self.signal):
            return math.nan
        if not self.error:
            return math.inf
        return 10 * math.log10(self.signal / self.error) if self.signal else -math.inf
