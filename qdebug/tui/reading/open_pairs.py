"""Opens the pair that is looked at, for each thread that reads it; what had to be decoded is decoded once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.session import DiffSession

__all__ = ["OpenPairs"]


class OpenPairs:
    """Opens pairs. A large one of which a side is no view of a file, but decoded, is kept until another is opened.

    To read one element of such a tensor all of it has to be decoded, or put into another order, which may take seconds;
    what is large is then in a temporary file, see `qdebug.numerics.large_arrays`.

    Args:
        least: Bytes from which on one is kept.
    """

    def __init__(self, least: int = 1 << 22) -> None:
        self._least = least
        self._lock = threading.Lock()
        self._kept: tuple[DiffSession, tuple[str, int, int], OpenPair] | None = None

    @property
    def nbytes(self) -> int:
        """Memory that the one that is kept takes."""
        kept = self._kept
        return 0 if kept is None else kept[2].held

    def open(self, source: DiffSession, tensor: str, *, sample: int, step: int) -> OpenPair:
        """Open both sides of a tensor, for the thread that calls.

        Args:
            source: The comparison.
            tensor: Backend tensor.
            sample: Which sample.
            step: Which step.

        Raises:
            QdebugError: The values cannot be read.
        """
        key = tensor, sample, step
        with self._lock:
            if self._kept is not None and (self._kept[0] is not source or self._kept[1] != key):
                self._kept = None  # before the next one is decoded
            if self._kept is not None:
                return self._kept[2].again()
            pair = source.pair(tensor, sample=sample, step=step)
            if pair.made >= self._least:
                self._kept = source, key, pair
                pair = pair.again()
            return pair

    def forget(self) -> None:
        """Keep none: nobody looks at one."""
        with self._lock:
            self._kept = None
