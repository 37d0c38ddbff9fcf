"""The elements of one tensor on both sides, in memory, and the summaries that the screens draw of them.

Made on the reader thread: what the screen gets is no view of a file, so that drawing never reads one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.draw import pool_plane

if TYPE_CHECKING:
    from qdebug.model import QuantParams

__all__ = ["PLANE_MOST", "POOLED", "Cancelled", "ChannelFacts", "Slab", "channel_facts", "make_slab", "plane"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelFacts:
    """Facts of each channel, one array element a channel.

    Args:
        rmse: Root mean square of the difference.
        max_abs: Largest difference; NaN counts as infinite.
        share: Share of the squared error of the tensor; NaN if that is not finite.
        low, high: Smallest and largest backend value.
        saturated: Codes at qmin or qmax; empty if there are no codes.
    """

    rmse: np.ndarray
    max_abs: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    saturated: np.ndarray


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

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return self.whole or self.backend.shape

    def local(self, index: tuple[int, ...]) -> tuple[int, ...] | None:
        """Give the index in the arrays of an element of the tensor; None if a part does not have it."""
        if not self.whole:
            return index
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
            return np.asarray(np.subtract(self.backend[index], self.reference[index], dtype=np.float64))

    def steps(self, index: tuple[int, ...]) -> float | None:
        """Give the difference of one element in steps of the backend's scale; None if it is not quantized."""
        scale = self.scale_at(index)
        return None if scale is None else float(self.difference(index)) / scale

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
    if reference.shape != backend.shape:
        raise ValueError(f"shape {reference.shape} against {backend.shape}")
    sides = [np.array(side, copy=True) if not side.flags.owndata else side for side in (reference, backend)]
    kept = [None if side is None else np.array(side).reshape(backend.shape) for side in codes]
    axis = _channel_axis(backend.shape, quant)
    channels, pooled = channel_facts(sides[0], sides[1], axis=axis, codes=kept[1], quant=quant, cancelled=cancelled)
    return Slab(
        reference=sides[0],
        backend=sides[1],
        reference_codes=kept[0],
        backend_codes=kept[1],
        quant=quant,
        reference_quant=reference_quant,
        axis=axis,
        channels=channels,
        largest=_largest(sides[0], sides[1], cancelled),
        by_channel=pooled,
        start=place[0],
        whole=place[1],
    )


def _channel_axis(shape: tuple[int, ...], quant: QuantParams | None) -> int:
    """Give the dimension that counts channels: the one quantized by channel, else the second."""
    if quant is not None and quant.axis is not None and quant.scale.size > 1 and -len(shape) <= quant.axis < len(shape):
        return quant.axis % len(shape)
    return 1 if len(shape) > 1 else 0


def _largest(reference: np.ndarray, backend: np.ndarray, cancelled: Callable[[], bool]) -> float:
    """Give the largest finite difference."""
    most = 0.0
    flat = reference.ravel(), backend.ravel()
    for start in range(0, flat[0].size, _BLOCK):
        _check(cancelled)
        with np.errstate(invalid="ignore"):
            error = np.abs(np.subtract(*(side[start : start + _BLOCK] for side in flat), dtype=np.float64))
        most = max(most, float(np.max(error, initial=0.0, where=np.isfinite(error))))
    return most


_BLOCK = 1 << 18
POOLED = (512, 1024)
"""Most channels and positions that a map of all channels is kept with."""
PLANE_MOST = 1 << 22
"""Elements of a plane that are drawn without keeping the screen waiting."""


class Cancelled(Exception):  # noqa: N818  no error: the way to stop
    """Nobody wants the answer any more."""


def channel_facts(
    reference: np.ndarray,
    backend: np.ndarray,
    *,
    axis: int,
    codes: np.ndarray | None = None,
    quant: QuantParams | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[ChannelFacts, np.ndarray]:
    """Sum up each channel.

    Args:
        reference: Real values.
        backend: Real values of the same shape.
        axis: The dimension that counts channels.
        codes: The backend's codes, if quantized.
        quant: Its quantization.
        cancelled: Asked after every block.

    Returns:
        The facts; and the largest difference by channel and position, both pooled to at most `POOLED` entries.

    Raises:
        Cancelled: Nobody wants it any more.
    """
    sides = [side.reshape(1) if not side.ndim else side for side in (reference, backend)]
    many = sides[1].shape[axis]
    rmse, most, low, high = (np.full(many, np.nan) for _ in range(4))
    railed = codes is not None and quant is not None
    saturated = np.zeros(many if railed else 0, dtype=np.int64)
    chunk = max(_BLOCK * many // max(backend.size, 1), 1)
    drawn: list[np.ndarray] = []
    for start in range(0, many if backend.size else 0, chunk):
        at = slice(start, start + chunk)
        _check(cancelled)
        theirs, ours = (_by_channel(side, axis, at) for side in sides)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.subtract(ours, theirs, dtype=np.float64)
            rmse[at] = np.sqrt(np.mean(np.square(error), axis=1))
            most[at] = np.max(np.where(np.isnan(error), np.inf, np.abs(error)), axis=1)
            low[at], high[at] = np.min(ours, axis=1), np.max(ours, axis=1)
            drawn.append(pool_plane(np.abs(error), POOLED[0], POOLED[1]).astype(np.float32))
        if codes is not None and quant is not None:
            own = _by_channel(codes.reshape(sides[1].shape), axis, at)
            saturated[at] = np.count_nonzero((own == quant.qmin) | (own == quant.qmax), axis=1)
    squares = np.square(rmse)
    total = squares.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        share = squares / total if np.isfinite(total) and total else np.where(np.isfinite(squares), 0.0, np.nan)
    pooled = np.concatenate(drawn) if drawn else np.zeros((0, 0), dtype=np.float32)
    facts = ChannelFacts(rmse=rmse, max_abs=most, share=share, low=low, high=high, saturated=saturated)
    return facts, pool_plane(pooled, *POOLED) if pooled.size else pooled


def _check(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise Cancelled


def _by_channel(values: np.ndarray, axis: int, channels: slice) -> np.ndarray:
    """Give some channels as rows."""
    chosen = np.moveaxis(values, axis, 0)[channels]
    return chosen.reshape(len(chosen), -1)


def plane(slab: Slab, element: tuple[int, ...]) -> np.ndarray:
    """Give the size of the difference on the last two dimensions, through an element.

    Args:
        slab: The tensor.
        element: Which plane: all but its last two numbers count.

    Returns:
        Array of two dimensions; a tensor with fewer is one row.
    """
    error = np.abs(slab.difference((*element[:-2], ...)))
    return np.asarray(error).reshape((1,) * max(2 - error.ndim, 0) + error.shape)
