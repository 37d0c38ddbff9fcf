"""Where the time of a comparison went. It is no part of the result, which is the same whenever it is computed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Timing"]


@dataclass(slots=True)
class Timing:
    """Seconds spent on two kinds of work, added up over tensors and workers.

    Args:
        comparing: Reading and comparing the two sides.
        replaying: Replaying nodes, to split the error and to check what the graphs declare.
        tensors: How many tensors that were.
    """

    comparing: float = 0.0
    replaying: float = 0.0
    tensors: int = 0

    def add(self, other: Timing) -> None:
        """Add what another worker spent."""
        self.comparing += other.comparing
        self.replaying += other.replaying
        self.tensors += other.tensors
