"""Facts of each channel of a tensor, and a map of all of them, out of blocks in the order they are read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.model import QuantParams
    from qdebug.numerics.channels import Stretch

__all__ = ["MOST_CHANNELS", "POOLED", "UNREAD", "ChannelFacts", "ChannelSums"]

POOLED = (512, 1024)
"""Most channels and positions that a map of all channels is kept with."""

MOST_CHANNELS = 1 << 18
"""Channels up to which each has facts of its own: nobody reads longer lists."""

UNREAD = -1.0
"""Stands in a map where no difference is known yet; no difference is negative."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelFacts:
    """Facts of each channel, one array element a channel; no elements at all beyond `MOST_CHANNELS`.

    Args:
        rmse: Root mean square of the difference.
        max_abs: Largest difference; NaN counts as infinite.
        share: Share of the squared error of the tensor; NaN if that is not finite.
        low, high: Smallest and largest backend value.
        saturated: Codes at qmin or qmax; empty if there are no codes.
        read: Elements that all this is of. The other facts of a channel of which none is read are NaN, or 0.
    """

    rmse: np.ndarray
    max_abs: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    saturated: np.ndarray
    read: np.ndarray


class ChannelSums:
    """Takes the blocks of both sides of a tensor.

    Args:
        shape: Extents, one at least.
        axis: The dimension that counts channels.
        quant: Quantization of the codes; None where there are none.
    """

    def __init__(self, shape: tuple[int, ...], axis: int, quant: QuantParams | None) -> None:
        self._quant, self._extent = quant, shape[axis]
        self._inner = prod(shape[axis + 1 :])
        self._places = prod(shape[:axis]) * self._inner
        self._size = prod(shape)
        kept = self._extent if self._extent <= MOST_CHANNELS else 0
        self._kept = bool(kept)
        self._squares, self._most = np.zeros(kept), np.zeros(kept)
        self._low, self._high = np.full(kept, np.inf), np.full(kept, -np.inf)
        self._read = np.zeros(kept, np.int64)
        self._saturated = np.zeros(0 if quant is None else kept, np.int64)
        rows, columns = min(self._extent, POOLED[0]), min(self._places, POOLED[1])
        self._starts = tuple(
            np.arange(many) * size // max(many, 1) for many, size in ((rows, self._extent), (columns, self._places))
        )
        self._map = np.full((rows, columns) if self._size else (0, 0), UNREAD, np.float32)
        self.largest = 0.0

    def add(self, stretch: Stretch, reference: np.ndarray, backend: np.ndarray, codes: np.ndarray | None) -> None:
        """Add a block.

        Args:
            stretch: Where it is.
            reference: Real values, 1-D.
            backend: The other side's.
            codes: The backend's codes, 1-D; None if it is not quantized.
        """
        from qdebug.numerics.double_block import real_differences

        block = stretch.rows, stretch.channels, stretch.inner
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(real_differences(reference, backend))
            most = error.reshape(block).max(axis=2).max(axis=0)
            top = float(most.max())
            if not np.isfinite(top):
                top = float(np.max(error, initial=0.0, where=np.isfinite(error)))
            self.largest = max(self.largest, top)
            self._pool(stretch, error.reshape(block))
            if self._kept:
                self._sum(stretch, error.reshape(block), most, backend.reshape(block))
        if self._kept and codes is not None and self._quant is not None:
            own = codes.reshape(block)
            railed = (own == self._quant.qmin) | (own == self._quant.qmax)
            where = slice(stretch.first, stretch.first + stretch.channels)
            self._saturated[where] += np.count_nonzero(railed, axis=(0, 2))

    def _sum(self, stretch: Stretch, error: np.ndarray, most: np.ndarray, backend: np.ndarray) -> None:
        where = slice(stretch.first, stretch.first + stretch.channels)
        self._squares[where] += np.einsum("rci,rci->c", error, error)
        self._most[where] = np.maximum(self._most[where], np.where(np.isnan(most), np.inf, most))
        self._low[where] = np.minimum(self._low[where], backend.min(axis=2).min(axis=0))
        self._high[where] = np.maximum(self._high[where], backend.max(axis=2).max(axis=0))
        self._read[where] += stretch.rows * stretch.inner

    def _pool(self, stretch: Stretch, error: np.ndarray) -> None:
        """Put the largest difference of each tile into the map."""
        row = self._extent * self._inner
        outer, within = divmod(stretch.start, row)
        first = outer * self._inner + within % self._inner
        channels = error.transpose(1, 0, 2).reshape(stretch.channels, -1)
        spans = []
        for axis, begin in ((0, stretch.first), (1, first)):
            starts, count = self._starts[axis], channels.shape[axis]
            low, high = (int(np.searchsorted(starts, at, "right")) - 1 for at in (begin, begin + count - 1))
            if high - low + 1 < count:
                edges = starts[low : high + 1] - begin
                edges[0] = 0
                channels = np.maximum.reduceat(channels, edges, axis=axis)
            spans.append(slice(low, high + 1))
        tile = self._map[spans[0], spans[1]]
        np.maximum(tile, channels.astype(np.float32), out=tile)

    def facts(self) -> ChannelFacts:
        """Give what is known of each channel so far."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            total = self._squares.sum()
            known = np.isfinite(total) and total
            share = self._squares / total if known else np.where(np.isfinite(self._squares), 0.0, np.nan)
            facts = {
                "rmse": np.sqrt(self._squares / self._read),
                "max_abs": self._most,
                "share": share,
                "low": self._low,
                "high": self._high,
            }
        of_any = self._read > 0
        return ChannelFacts(
            **{name: np.where(of_any, values, np.nan) for name, values in facts.items()},
            saturated=self._saturated.copy(),
            read=self._read.copy(),
        )

    def map(self) -> np.ndarray:
        """Give the largest difference by channel and position so far, pooled to at most `POOLED`."""
        return self._map.copy()
