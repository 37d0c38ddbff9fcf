"""What all elements of one tensor come to, read block by block, and the elements themselves where they are few.

Done on the reader thread. Of a huge tensor nothing stays but the sums; the screen gets those so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.elements.channel_sums import ChannelFacts, ChannelSums
from qdebug.tui.elements.slab import Slab

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.model import QuantParams
    from qdebug.numerics.channels import Stretch
    from qdebug.tui.reading.source import OpenPair, PairValues

__all__ = ["Cancelled", "Summing", "Whole"]


class Cancelled(Exception):  # noqa: N818  no error: the way to stop
    """Nobody wants the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """What all elements of a tensor come to, or those read so far.

    Args:
        shape: Extents of the tensor.
        quant: The backend's quantization.
        reference_quant: The reference's.
        axis: Which dimension counts the channels.
        channels: Facts of each channel.
        largest: Largest finite difference; 0 if there is none.
        by_channel: Largest difference by channel and position in it, pooled to a size that is soon drawn.
        missing: Elements, the last ones in C order, that are not read yet.
    """

    shape: tuple[int, ...]
    quant: QuantParams | None
    reference_quant: QuantParams | None
    axis: int
    channels: ChannelFacts = field(repr=False)
    largest: float
    by_channel: np.ndarray = field(repr=False)
    missing: int = 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def so_far(self) -> str:
        """How much of the tensor all this is of; "" if all of it."""
        return f"{100 * (self.size - self.missing) // self.size}%" if self.missing else ""

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.by_channel.nbytes + self.channels.nbytes


class Summing:
    """A tensor on its way through the sums, and into memory if it has room there.

    Args:
        pair: Both sides.
        most_bytes: Memory that its elements may take.
    """

    def __init__(self, pair: OpenPair, *, most_bytes: int) -> None:
        from qdebug.numerics.channels import stretches

        self._pair = pair
        lined = pair.shape or (1,)
        self._left: Iterator[Stretch] = stretches(lined, pair.axis)
        coded = pair.read(0, 0).backend_codes is not None
        self._sums = ChannelSums(lined, pair.axis, pair.backend_quant if coded else None)
        self._kept = _Copies(pair) if pair.nbytes <= most_bytes else None
        self._read = 0

    @property
    def held(self) -> int:
        """Memory behind the pair."""
        return self._pair.held

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.held + (0 if self._kept is None else self._kept.nbytes)

    def more(self, cancelled: Callable[[], bool] = lambda: False, *, seconds: float | None = None) -> bool:
        """Read on, where it was left the last time.

        Args:
            cancelled: Asked after every block.
            seconds: For how long; None for all there is.

        Returns:
            Whether all is read.

        Raises:
            Cancelled: Nobody wants it any more.
        """
        end = None if seconds is None else time.monotonic() + seconds
        while self._read < self._pair.size:
            if cancelled():
                raise Cancelled
            stretch = next(self._left)
            part = self._pair.read(stretch.start, stretch.stop)
            if self._kept is not None:
                self._kept.put(stretch.start, part)
            self._sums.add(stretch, part.reference, part.backend, part.backend_codes)
            self._read = stretch.stop
            if end is not None and time.monotonic() > end:
                break
        return self._read == self._pair.size

    def whole(self) -> Whole:
        """Give what is read so far comes to."""
        return Whole(
            shape=self._pair.shape,
            quant=self._pair.backend_quant,
            reference_quant=self._pair.reference_quant,
            axis=self._pair.axis,
            channels=self._sums.facts(),
            largest=self._sums.largest,
            by_channel=self._sums.map(),
            missing=self._pair.size - self._read,
        )

    def slab(self) -> Slab | None:
        """Give all elements; None if they are too many, or not all read yet."""
        if self._kept is None or self._read < self._pair.size:
            return None
        reference, backend, *codes = self._kept.shaped(self._pair.shape)
        if reference is None or backend is None:
            return None
        return Slab(
            reference=reference,
            backend=backend,
            reference_codes=codes[0],
            backend_codes=codes[1],
            quant=self._pair.backend_quant,
            reference_quant=self._pair.reference_quant,
            axis=self._pair.axis,
            largest=self._sums.largest,
        )


class _Copies:
    """Copies of all elements of both sides, and of their codes, in C order.

    Args:
        pair: Both sides.
    """

    def __init__(self, pair: OpenPair) -> None:
        self._arrays = [None if part is None else np.empty(pair.size, part.dtype) for part in _parts(pair.read(0, 0))]

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return sum(array.nbytes for array in self._arrays if array is not None)

    def put(self, start: int, part: PairValues) -> None:
        """Copy a stretch."""
        for array, values in zip(self._arrays, _parts(part), strict=True):
            if array is not None and values is not None:
                array[start : start + len(values)] = values

    def shaped(self, shape: tuple[int, ...]) -> list[np.ndarray | None]:
        """Give the arrays."""
        return [None if array is None else array.reshape(shape) for array in self._arrays]


def _parts(part: PairValues) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    return part.reference, part.backend, part.reference_codes, part.backend_codes
