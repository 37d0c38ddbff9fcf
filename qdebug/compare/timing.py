"""Measures the time spent on a comparison. It is not part of the result."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timing"]


@dataclass(slots=True)
class Timing:
    """Seconds spent on two kinds of work, summed over tensors and workers.

    Args:
        comparing: Reading and comparing the two sides.
        replaying: Replaying nodes, to split the error and to check graph declarations.
        tensors: Number of tensors.
    """

    comparing: float = 0.0
    replaying: float = 0.0
    tensors: int = 0

    def add(self, other: Timing) -> None:
        """Add the time spent by another worker."""
        self.comparing += other.comparing
        self.replaying += other.replaying
        self.tensors += other.tensors
