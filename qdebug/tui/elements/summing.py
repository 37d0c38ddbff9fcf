"""Statistics of all elements of a pair or plane: totals per channel, and a map of the differences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from qdebug.tui.elements.slab import plane_size, zero_matches

if TYPE_CHECKING:
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.model import QuantParams
    from qdebug.numerics.channels import Stretch
    from qdebug.numerics.rails import CodeRange

__all__ = [
    "MAX_CHANNELS",
    "MAX_CLIPPED_POSITIONS",
    "MAX_MAP_SIZE",
    "UNREAD",
    "Cancelled",
    "ChannelFacts",
    "ChannelSums",
    "PooledMap",
    "StatisticsReader",
    "TensorStatistics",
]


class Cancelled(Exception):  # noqa: N818  stops a computation; not an error
    """The computation was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorStatistics:
    """Statistics of all elements of a tensor or plane, or of the elements read so far.

    Args:
        shape: Extents of the tensor, or rows and columns of the plane.
        quant: The backend's quantization.
        reference_quant: The reference's quantization.
        axis: The channel axis.
        channels: Statistics of each channel.
        largest: Largest finite difference; 0 without one.
        clipped: The first clipped elements, whose reference the backend's codes cannot represent, at most
            `MAX_CLIPPED_POSITIONS`, by index in C order; None without codes.
        difference_map: Largest difference by channel and position in the channel, or by row and column of a plane, in
            at most `MAX_MAP_SIZE` rows and columns; `UNREAD` where no difference is known yet.
        unread_count: Number of elements, at the end in C order, that are not read yet.
        plane_index: Leading indices of the plane of the last two dimensions; None for the whole tensor.
    """

    shape: tuple[int, ...]
    quant: QuantParams | None
    reference_quant: QuantParams | None
    axis: int
    channels: ChannelFacts = field(repr=False)
    largest: float
    clipped: tuple[int, ...] | None
    difference_map: np.ndarray = field(repr=False)
    unread_count: int = 0
    plane_index: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def percent_read(self) -> str:
        """The percentage of the elements that was read; "" if all were."""
        return f"{100 * (self.size - self.unread_count) // self.size}%" if self.unread_count else ""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return self.difference_map.nbytes + self.channels.nbytes


class StatisticsReader:
    """Reads a tensor, or one plane of it, step by step, and computes its statistics.

    Args:
        pair: Both sides.
        plane_index: Leading indices of the plane of the last two dimensions; None for the whole tensor. The rows of a
            plane are treated as channels, without statistics of their own.
    """

    def __init__(self, pair: OpenPair, plane_index: tuple[int, ...] | None = None) -> None:
        from qdebug.numerics.channels import channel_stretches
        from qdebug.numerics.rails import CodeRange

        self._pair: OpenPair | None = pair  # None once everything is read
        self._plane_index = plane_index
        self._shape = pair.shape if plane_index is None else plane_size(pair.shape)
        self._axis = pair.axis if plane_index is None else 0
        self._quants = pair.backend_quant, pair.reference_quant
        self._size, array_shape = prod(self._shape), self._shape or (1,)
        self._first_position = (
            int(np.ravel_multi_index(plane_index, pair.shape[: len(plane_index)])) * self._size if plane_index else 0
        )
        self._stretches: Iterator[Stretch] = channel_stretches(array_shape, self._axis)
        window, quant = pair.read(0, 0), pair.backend_quant
        codes = None
        if window.backend_codes is not None and quant is not None and quant.qmin is not None and plane_index is None:
            codes = CodeRange(quant, array_shape, double=window.backend.dtype == np.float64)
        self._sums = ChannelSums(array_shape, self._axis, codes, is_detailed=plane_index is None)
        self._read_count = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that the open pair holds in memory."""
        return 0 if self._pair is None else self._pair.held

    def read_more(self, is_cancelled: Callable[[], bool] = lambda: False, *, seconds: float | None = None) -> bool:
        """Continue reading where the last call stopped.

        Args:
            is_cancelled: Called after every block; returns whether to stop.
            seconds: Time limit; None reads everything.

        Returns:
            Whether everything is read.

        Raises:
            Cancelled: `is_cancelled` returned True.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._pair is not None and self._read_count < self._size:
            if is_cancelled():
                raise Cancelled
            stretch = next(self._stretches)
            window = self._pair.read(self._first_position + stretch.start, self._first_position + stretch.stop)
            self._sums.add(stretch, window.reference, window.backend)
            self._read_count = stretch.stop
            if deadline is not None and time.monotonic() > deadline:
                break
        if self._read_count == self._size:
            self._pair = None
        return self._pair is None

    def statistics(self) -> TensorStatistics:
        """Return the statistics of the elements read so far."""
        return TensorStatistics(
            shape=self._shape,
            quant=self._quants[0],
            reference_quant=self._quants[1],
            axis=self._axis,
            channels=self._sums.facts(),
            largest=self._sums.largest,
            clipped=self._sums.clipped_positions,
            difference_map=self._sums.map(),
            unread_count=self._size - self._read_count,
            plane_index=self._plane_index,
        )


MAX_CLIPPED_POSITIONS = 1000
"""Maximum number of clipped elements to keep: more than anyone visits."""

MAX_CHANNELS = 1 << 18
"""Maximum number of channels with individual statistics: longer lists are not useful to anyone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelFacts:
    """Statistics of each channel, one array element per channel; empty arrays beyond `MAX_CHANNELS` channels.

    Args:
        rmse: Root mean square of the difference.
        max_abs: Largest difference; NaN counts as infinite.
        share: Share of the tensor's squared error; NaN if that is not finite.
        low, high: Smallest and largest backend value.
        clipped: Number of elements whose reference the backend's codes cannot represent; empty without codes.
        element_counts: Number of elements read. Statistics of a channel without any are NaN, or 0.
    """

    rmse: np.ndarray
    max_abs: np.ndarray
    share: np.ndarray
    low: np.ndarray
    high: np.ndarray
    clipped: np.ndarray
    element_counts: np.ndarray

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return 5 * self.rmse.nbytes + self.clipped.nbytes + self.element_counts.nbytes


class ChannelSums:
    """Sums up blocks of both sides of a tensor.

    Args:
        shape: Extents, at least one.
        axis: The channel axis.
        code_range: The range of the backend's codes; None without codes.
        is_detailed: Whether each channel gets its own statistics, and the first clipped elements are kept.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        axis: int,
        code_range: CodeRange | None,
        *,
        is_detailed: bool = True,
    ) -> None:
        self._code_range, self._pooled = code_range, PooledMap(shape, axis)
        channels = shape[axis] if is_detailed and shape[axis] <= MAX_CHANNELS else 0
        self._has_channels = bool(channels)
        self._squares, self._maxima = np.zeros(channels), np.zeros(channels)
        self._low, self._high = np.full(channels, np.inf), np.full(channels, -np.inf)
        self._element_counts = np.zeros(channels, np.int64)
        self._clipped_counts = np.zeros(0 if code_range is None else channels, np.int64)
        self._clipped_positions: list[int] = []
        self._is_detailed = is_detailed
        self.largest = 0.0

    @property
    def clipped_positions(self) -> tuple[int, ...] | None:
        """The first clipped elements, by index in C order; None without codes."""
        return None if self._code_range is None else tuple(self._clipped_positions)

    @property
    def _wants_positions(self) -> bool:
        return self._is_detailed and len(self._clipped_positions) < MAX_CLIPPED_POSITIONS

    def add(self, stretch: Stretch, reference: np.ndarray, backend: np.ndarray) -> None:
        """Add a block.

        Args:
            stretch: The position of the block.
            reference: Real values, 1-D, of any type.
            backend: Real values of the backend.
        """
        from qdebug.numerics.affine import dequantize
        from qdebug.numerics.block_error import real_differences

        block = stretch.rows, stretch.channels, stretch.inner
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.abs(real_differences(reference, backend))
            channel_maxima = error.reshape(block).max(axis=2).max(axis=0)
            largest = float(channel_maxima.max())
            if not np.isfinite(largest):
                error = zero_matches(error, reference, backend)
                channel_maxima = error.reshape(block).max(axis=2).max(axis=0)
                largest = float(np.max(error, initial=0.0, where=np.isfinite(error)))
            self.largest = max(self.largest, largest)
            self._pooled.add(stretch, error.reshape(block))
            if self._has_channels:
                wide_backend = dequantize(backend, None)  # numpy cannot compare some small floats
                self._sum_channels(stretch, error.reshape(block), channel_maxima, wide_backend.reshape(block))
        if self._code_range is not None and (self._has_channels or self._wants_positions):
            is_clipped = self._code_range.excludes(dequantize(reference, None), stretch.start)
            self._count_clipped(stretch, is_clipped.reshape(block))

    def _count_clipped(self, stretch: Stretch, is_clipped: np.ndarray) -> None:
        """Count the clipped elements of a block, and keep the positions of the first ones."""
        channels = slice(stretch.first, stretch.first + stretch.channels)
        if self._has_channels:
            self._clipped_counts[channels] += np.count_nonzero(is_clipped, axis=(0, 2))
        if self._wants_positions:
            clipped_positions = np.flatnonzero(is_clipped)[: MAX_CLIPPED_POSITIONS - len(self._clipped_positions)]
            self._clipped_positions += (stretch.start + clipped_positions).tolist()

    def _sum_channels(
        self, stretch: Stretch, error: np.ndarray, channel_maxima: np.ndarray, backend: np.ndarray
    ) -> None:
        channels = slice(stretch.first, stretch.first + stretch.channels)
        self._squares[channels] += np.einsum("rci,rci->c", error, error)
        self._maxima[channels] = np.maximum(
            self._maxima[channels], np.where(np.isnan(channel_maxima), np.inf, channel_maxima)
        )
        self._low[channels] = np.minimum(self._low[channels], backend.min(axis=2).min(axis=0))
        self._high[channels] = np.maximum(self._high[channels], backend.max(axis=2).max(axis=0))
        self._element_counts[channels] += stretch.rows * stretch.inner

    def facts(self) -> ChannelFacts:
        """Return the statistics of each channel so far."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            total = self._squares.sum()
            has_total = np.isfinite(total) and total
            share = self._squares / total if has_total else np.where(np.isfinite(self._squares), 0.0, np.nan)
            facts = {
                "rmse": np.sqrt(self._squares / self._element_counts),
                "max_abs": self._maxima,
                "share": share,
                "low": self._low,
                "high": self._high,
            }
        has_elements = self._element_counts > 0
        return ChannelFacts(
            **{name: np.where(has_elements, values, np.nan) for name, values in facts.items()},
            clipped=self._clipped_counts.copy(),
            element_counts=self._element_counts.copy(),
        )

    def map(self) -> np.ndarray:
        """Return the pooled map of the largest difference by channel and position so far."""
        return self._pooled.map()


MAX_MAP_SIZE = (512, 1024)
"""Maximum rows and columns of a map: more than any terminal has cells."""

UNREAD = -1.0
"""Marks positions whose difference is not known yet. Differences are never negative."""


class PooledMap:
    """The largest difference by row (an index along one dimension) and by position in the row; NaN propagates.

    Args:
        shape: Extents, at least one.
        axis: The dimension of the rows.
    """

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self._extent, self._inner = shape[axis], prod(shape[axis + 1 :])
        sizes = self._extent, prod(shape[:axis]) * self._inner
        rows, columns = (min(size, most) for size, most in zip(sizes, MAX_MAP_SIZE, strict=True))
        self._starts = tuple(
            np.arange(count) * size // max(count, 1) for count, size in zip((rows, columns), sizes, strict=True)
        )
        self._map = np.full((rows, columns) if prod(sizes) else (0, 0), UNREAD)

    def add(self, stretch: Stretch, error: np.ndarray) -> None:
        """Add a block.

        Args:
            stretch: The position of the block, with rows as its channels.
            error: Absolute differences with the stretch's rows, channels and inner elements.
        """
        outer_index, inner_offset = divmod(stretch.start, self._extent * self._inner)
        first_column = outer_index * self._inner + inner_offset % self._inner
        tile = error.transpose(1, 0, 2).reshape(stretch.channels, -1)
        spans = []
        for axis, begin in ((0, stretch.first), (1, first_column)):
            starts, count = self._starts[axis], tile.shape[axis]
            low, high = (int(np.searchsorted(starts, at, "right")) - 1 for at in (begin, begin + count - 1))
            if high - low + 1 < count:
                edges = starts[low : high + 1] - begin
                edges[0] = 0
                tile = np.maximum.reduceat(tile, edges, axis=axis)
            spans.append(slice(low, high + 1))
        cells = self._map[spans[0], spans[1]]
        np.maximum(cells, tile, out=cells)

    def map(self) -> np.ndarray:
        """Return the map so far, in at most `MAX_MAP_SIZE` rows and columns."""
        return self._map.copy()
