"""The elements of one tensor on both sides, in memory, and the summaries that the screens draw of them.

Made on the reader thread: what the screen gets is no view of a file, so that drawing never reads one. Of a huge tensor
it gets what is read so far, in the same arrays that the rest is still being read into.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.channel_sums import UNREAD, ChannelFacts, ChannelSums
from qdebug.tui.draw import pool_plane

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.model import QuantParams
    from qdebug.numerics.channels import Stretch

__all__ = ["PLANE_MOST", "Cancelled", "Filling", "Slab", "make_slab", "plane"]

PLANE_MOST = 1 << 22
"""Elements of a plane that are drawn without keeping the screen waiting."""
_COPIED = 1 << 18
"""Elements that are read from a file at once."""


class Cancelled(Exception):  # noqa: N818  no error: the way to stop
    """Nobody wants the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slab:
    """Both sides of one tensor, or of a part of it.

    Args:
        reference: Real values.
        backend: Real values; the same shape.
        reference_codes: Stored codes, if quantized.
        backend_codes: Stored codes, if quantized.
        quant: The backend's quantization, its axis that of `backend`.
        reference_quant: The reference's.
        axis: Which dimension counts the channels.
        channels: Facts of each channel.
        largest: Largest finite difference; 0 if there is none.
        by_channel: Largest difference by channel and position in it, pooled to a size that is soon drawn.
        start: Index in the tensor of a part's first element; empty for a whole tensor.
        whole: Extents of the tensor that this is a part of; empty for a whole tensor.
        missing: Elements, the last ones in C order, that are not read yet; what sums up the others does so far.
    """

    reference: np.ndarray
    backend: np.ndarray
    reference_codes: np.ndarray | None
    backend_codes: np.ndarray | None
    quant: QuantParams | None
    reference_quant: QuantParams | None
    axis: int
    channels: ChannelFacts = field(repr=False)
    largest: float
    by_channel: np.ndarray = field(repr=False)
    start: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    missing: int = 0

    @property
    def so_far(self) -> str:
        """How much of the tensor all this is of; "" if all of it."""
        return f"{100 * (self.backend.size - self.missing) // self.backend.size}%" if self.missing else ""

    def read_of(self, index: tuple[int, ...]) -> int:
        """Give how many elements of the last two dimensions through an index are read."""
        size = prod(self.backend.shape[-2:])
        if not self.missing:
            return size
        first = np.ravel_multi_index((*index[:-2], *(0,) * len(index[-2:])), self.backend.shape)
        return min(max(self.backend.size - self.missing - int(first), 0), size)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return self.whole or self.backend.shape

    def local(self, index: tuple[int, ...]) -> tuple[int, ...] | None:
        """Give the index in the arrays of an element of the tensor; None if a part does not have it, or not yet."""
        if not self.whole:
            unread = self.missing and np.ravel_multi_index(index, self.shape) >= self.backend.size - self.missing
            return None if unread else index
        here = tuple(at - first for at, first in zip(index, self.start, strict=True))
        return here if all(0 <= at < size for at, size in zip(here, self.backend.shape, strict=True)) else None

    def around(self, index: tuple[int, ...], far: int) -> bool:
        """Tell whether all elements of the last two dimensions up to `far` from one are here, or beyond the tensor."""
        if not self.whole:
            return True
        here = self.local(index)
        ends = zip(here or (), self.start, self.backend.shape, self.whole, strict=True) if here is not None else ()
        return here is not None and all(
            (at >= far or not first) and (at + far < size or first + size == extent)
            for at, first, size, extent in list(ends)[-2:]
        )

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        arrays = (self.reference, self.backend, self.reference_codes, self.backend_codes)
        return sum(array.nbytes for array in arrays if array is not None)

    def difference(self, index: tuple[int | EllipsisType, ...]) -> np.ndarray:
        """Give backend minus reference at an index."""
        with np.errstate(invalid="ignore"):
            return _differences(self.reference[index], self.backend[index])

    def steps(self, index: tuple[int, ...]) -> float | None:
        """Give the difference of one element in steps of the backend's scale; None if it is not quantized."""
        from qdebug.numerics.lsb import steps_between

        scale = self.scale_at(index)
        if scale is None:
            return None
        theirs, ours = float(self.reference[index]), float(self.backend[index])
        if scale > 0 and all(map(math.isfinite, (scale, theirs, ours))):
            return steps_between(theirs, ours, scale)
        with np.errstate(all="ignore"):
            return float(self.difference(index) / scale)

    def scale_at(self, index: tuple[int, ...]) -> float | None:
        """Give the backend's scale of one element; None if it is not quantized or quantized by blocks."""
        quant = self.quant
        if quant is None or quant.block_size is not None:
            return None
        scales = quant.scale.ravel()
        if len(scales) == 1:
            return float(scales[0])
        at = quant.axis if quant.axis is not None else self.axis
        place = tuple(one + first for one, first in zip(index, self.start, strict=True)) if self.start else index
        return float(scales[place[at]]) if at < len(place) and place[at] < len(scales) else None


def make_slab(
    reference: np.ndarray,
    backend: np.ndarray,
    *,
    codes: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
    quant: QuantParams | None = None,
    reference_quant: QuantParams | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    place: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
) -> Slab:
    """Copy both sides into memory and sum up their channels.

    Args:
        reference: Real values, any shape.
        backend: Real values of the same shape.
        codes: Stored codes of the reference and the backend.
        quant: The backend's quantization.
        reference_quant: The reference's.
        cancelled: Asked after every block.
        place: First index and extents of the tensor that these are a part of; empty for a whole tensor.

    Raises:
        ValueError: The shapes differ.
        Cancelled: Nobody wants it any more.
    """
    filling = Filling(reference, backend, codes=codes, quant=quant, reference_quant=reference_quant, place=place)
    filling.more(cancelled)
    return filling.slab()


class Filling:
    """Both sides of a tensor on their way into memory, summed up as they come.

    Args:
        reference: Real values, any shape.
        backend: Real values of the same shape.
        codes: Stored codes of the reference and the backend.
        quant: The backend's quantization.
        reference_quant: The reference's.
        place: First index and extents of the tensor that these are a part of; empty for a whole tensor.

    Raises:
        ValueError: The shapes differ.
    """

    def __init__(
        self,
        reference: np.ndarray,
        backend: np.ndarray,
        *,
        codes: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
        quant: QuantParams | None = None,
        reference_quant: QuantParams | None = None,
        place: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    ) -> None:
        from qdebug.numerics.channels import stretches

        if reference.shape != backend.shape:
            raise ValueError(f"shape {reference.shape} against {backend.shape}")
        shape = backend.shape
        self._quants, self._place = (quant, reference_quant), place
        self._axis = _channel_axis(shape, quant)
        self._sides = [_Copy(side, keep=side.flags.owndata) for side in (reference, backend)]
        self._codes = [None if side is None else _Copy(np.asarray(side), shape=shape) for side in codes]
        lined = shape or (1,)
        self._left: Iterator[Stretch] = stretches(lined, self._axis)
        self._sums = ChannelSums(lined, self._axis, None if codes[1] is None else quant)
        self._read, self._size = 0, backend.size

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return sum(copy.array.nbytes for copy in (*self._sides, *self._codes) if copy is not None)

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
        while self._read < self._size:
            if cancelled():
                raise Cancelled
            stretch = next(self._left)
            reference, backend = (side.part(stretch) for side in self._sides)
            codes = [None if side is None else side.part(stretch) for side in self._codes]
            self._sums.add(stretch, reference, backend, codes[1])
            self._read = stretch.stop
            if end is not None and time.monotonic() > end:
                break
        return self._read == self._size

    def slab(self) -> Slab:
        """Give what is read so far; the arrays go on being filled."""
        shape = self._sides[1].array.shape
        codes = [None if side is None else side.array.reshape(shape) for side in self._codes]
        return Slab(
            reference=self._sides[0].array,
            backend=self._sides[1].array,
            reference_codes=codes[0],
            backend_codes=codes[1],
            quant=self._quants[0],
            reference_quant=self._quants[1],
            axis=self._axis,
            channels=self._sums.facts(),
            largest=self._sums.largest,
            by_channel=self._sums.map(),
            start=self._place[0],
            whole=self._place[1],
            missing=self._size - self._read,
        )


class _Copy:
    """A copy in C order that is made as far as it is asked for.

    Args:
        source: What is copied.
        shape: The shape that it is asked for in, of as many elements; its own if left out.
        keep: Use it as it is where it is in C order.

    Raises:
        ValueError: The shape has another number of elements.
    """

    def __init__(self, source: np.ndarray, *, shape: tuple[int, ...] | None = None, keep: bool = False) -> None:
        from qdebug.replay.blockwise import cut

        kept = keep and source.flags.c_contiguous
        target = source if kept else np.empty(source.shape, source.dtype)
        self.array = target if shape is None else target.reshape(shape)
        self._flat = target.reshape(-1)
        self._source: np.ndarray | None = None if kept else source
        self._target: np.ndarray | None = None if kept else target
        self._blocks = cut(source.shape, _COPIED)  # each lies in one piece, behind the one before
        self._until = source.size if kept else 0

    def part(self, stretch: Stretch) -> np.ndarray:
        """Give the elements of a stretch."""
        while self._until < stretch.stop and self._source is not None and self._target is not None:
            block = next(self._blocks)
            part = self._source[block]
            self._target[block] = part
            self._until += part.size
        if self._until == self._flat.size:
            self._source = self._target = None
        return self._flat[stretch.start : stretch.stop]


def _channel_axis(shape: tuple[int, ...], quant: QuantParams | None) -> int:
    """Give the dimension that counts channels: the one quantized by channel, else the second."""
    if quant is not None and quant.axis is not None and quant.scale.size > 1 and -len(shape) <= quant.axis < len(shape):
        return quant.axis % len(shape)
    return 1 if len(shape) > 1 else 0


def _differences(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    from qdebug.numerics.double_block import real_differences

    return real_differences(theirs, ours)


def plane(slab: Slab, element: tuple[int, ...], most: tuple[int, int] | None = None) -> np.ndarray:
    """Give the size of the difference on the last two dimensions, through an element.

    Args:
        slab: The tensor.
        element: Which plane, in the arrays that there are: all but its last two numbers count.
        most: Rows and columns that it is pooled to, by its largest values; all of them if left out.

    Returns:
        Array of two dimensions; a tensor with fewer is one row. `UNREAD` stands where nothing is read yet.
    """
    index: tuple[int | EllipsisType, ...] = (*element[:-2], ...)
    theirs, ours = (np.atleast_2d(side[index]) for side in (slab.reference, slab.backend))
    high, wide = ours.shape
    rows, columns = (high, wide) if most is None else (min(high, most[0]), min(wide, most[1]))
    edges = [*(np.arange(rows) * high // max(rows, 1)).tolist(), high]
    read, lines = slab.read_of(element), []
    for first, last in pairwise(edges):  # so that what is between two steps stays in cache
        with np.errstate(invalid="ignore"):
            error = np.abs(_differences(theirs[first:last], ours[first:last]))
        error.reshape(-1)[max(read - first * wide, 0) :] = UNREAD
        lines.append(pool_plane(error, 1, columns) if most is not None else error)
    return np.concatenate(lines) if lines else np.zeros((0, wide))
