"""Facts of each channel of a tensor, and a map of all of them, out of blocks in the order they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.elements.pooled import PooledMap
from qdebug.tui.elements.slab import matched

if TYPE_CHECKING:  # the screen is drawn before any of this is needed
    from qdebug.model import QuantParams
    from qdebug.numerics.channels import Stretch

__all__ = ["MOST_CHANNELS", "ChannelFacts", "ChannelSums"]

MOST_CHANNELS = 1 << 18
"""Channels up to which each has facts of its own: nobody reads longer lists."""


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

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return 5 * self.rmse.nbytes + self.saturated.nbytes + self.read.nbytes


class ChannelSums:
    """Takes the blocks of both sides of a tensor.

    Args:
        shape: Extents, one at least.
        axis: The dimension that counts channels.
        quant: Quantization of the codes; None where there are none.
    """

    def __init__(self, shape: tuple[int, ...], axis: int, quant: QuantParams | None) -> None:
        self._quant, self._pooled = quant, PooledMap(shape, axis)
        kept = shape[axis] if shape[axis] <= MOST_CHANNELS else 0
        self._kept = bool(kept)
        self._squares, self._most = np.zeros(kept), np.zeros(kept)
        self._low, self._high = np.full(kept, np.inf), np.full(kept, -np.inf)
        self._read = np.zeros(kept, np.int64)
        self._saturated = np.zeros(0 if quant is None else kept, np.int64)
        self.largest = 0.0

    def add(self, stretch: Stretch, reference: np.ndarray, backend: np.ndarray, codes: np.ndarray | None) -> None:
        """Add a block.

        Args:
            stretch: Where it is.
            reference: Real values, 1-D, of any type.
            backend: The other side's.
            codes: The backend's codes, 1-D; None if it is not quantized.
        """
        from qdebug.numerics.affine import dequantize
        from qdebug.numerics.double_block import real_differences

        block = stretch.rows, stretch.channels, stretch.inner
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(real_differences(reference, backend))
            most = error.reshape(block).max(axis=2).max(axis=0)
            top = float(most.max())
            if not np.isfinite(top):
                error = matched(error, reference, backend)
                most = error.reshape(block).max(axis=2).max(axis=0)
                top = float(np.max(error, initial=0.0, where=np.isfinite(error)))
            self.largest = max(self.largest, top)
            self._pooled.add(stretch, error.reshape(block))
            if self._kept:
                wide = dequantize(backend, None)  # of small floats; numpy has no extremes of some
                self._sum(stretch, error.reshape(block), most, wide.reshape(block))
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
        """Give the largest difference by channel and position so far, pooled."""
        return self._pooled.map()
