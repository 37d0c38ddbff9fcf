"""The error of each channel of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from qdebug.errors import UsageError
from qdebug.numerics.affine import BLOCK

__all__ = ["ChannelCounter", "ChannelErrors", "Stretch", "channel_stretches"]

_SAFE_EXPONENT = 400
"""Squares of magnitudes from 2**-400 to 2**400 are summed directly, others relative to the largest magnitude."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChannelErrors:
    """The error of each channel along one axis. All arrays are read-only, with one entry per channel.

    Args:
        axis: The axis, in the backend's shape, not negative.
        max_abs: Largest absolute difference, float64; infinite if `nonfinite` is not 0; NaN if no element is finite on
            both sides.
        rmse: Root of the mean squared difference, float64; NaN if `nonfinite` is not 0, or if no element is finite on
            both sides.
        sqnr_db: 10 log10(sum reference^2 / sum difference^2), float64; infinite if identical, -infinite if only the
            reference is 0, NaN if `rmse` is.
        nonfinite: Elements that are NaN or infinite on one side and do not agree with the other side, int64. NaN on
            both sides, or the same infinity, is not counted.
    """

    axis: int
    max_abs: np.ndarray
    rmse: np.ndarray
    sqnr_db: np.ndarray
    nonfinite: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive elements: `rows` rows of `channels` channels from channel `first` on, with `inner` elements each."""

    start: int
    rows: int
    first: int
    channels: int
    inner: int

    @property
    def stop(self) -> int:
        """One past the last flat element."""
        return self.start + self.rows * self.channels * self.inner


def channel_stretches(shape: tuple[int, ...], axis: int | None) -> Iterator[Stretch]:
    """Split a tensor in C order into ranges with whole rows of channels, at most one block each.

    Args:
        shape: Its shape.
        axis: The channel axis; None for a single channel.

    Raises:
        UsageError: The shape does not have that axis.
    """
    if axis is None:
        outer, extent, inner = 1, 1, prod(shape)
    elif not -len(shape) <= axis < len(shape):
        raise UsageError(f"A tensor of shape {shape} has no axis {axis}.")
    else:
        axis %= len(shape)
        outer, extent, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    row = extent * inner
    if 0 < row <= BLOCK:
        max_rows = BLOCK // row
        for first in range(0, outer, max_rows):
            yield Stretch(first * row, min(max_rows, outer - first), 0, extent, inner)
    elif row:
        channels_at_once = max(1, BLOCK // inner)
        for start in range(0, outer * row, row):
            for channel in range(0, extent, channels_at_once):
                count = min(channels_at_once, extent - channel)
                for offset in range(0, inner, BLOCK):
                    yield Stretch(start + channel * inner + offset, 1, channel, count, min(BLOCK, inner - offset))


class _SquareSums:
    """Sums of squares per channel, each scaled by its own power of four."""

    def __init__(self, extent: int) -> None:
        self.sums = np.zeros(extent)
        self.exponents = np.zeros(extent, np.int64)

    def add(self, values: np.ndarray, max_abs: np.ndarray, halves: np.ndarray, channel_slice: slice) -> None:
        """Add the squares of a stretch.

        Args:
            values: Values of shape (rows, channels, inner); for infinite values, `halves` holds half the value.
            max_abs: Largest magnitude of each channel.
            halves: Half the values; read only if a value is infinite.
            channel_slice: The channels.
        """
        exponents = np.frexp(max_abs)[1].astype(np.int64)
        safe = (max_abs == 0.0) | (np.isfinite(max_abs) & (np.abs(exponents) < _SAFE_EXPONENT))
        if safe.all() and not self.exponents[channel_slice].any():
            self.sums[channel_slice] += np.einsum("rci,rci->c", values, values)
            return
        mantissa, shift = np.frexp(values)
        is_infinite = np.isinf(values)
        if is_infinite.any():
            half, half_shift = np.frexp(halves)
            mantissa, shift = np.where(is_infinite, half, mantissa), np.where(is_infinite, half_shift + 1, shift)
            exponents = np.where(np.isinf(max_abs), 1025, exponents)
        old = self.exponents[channel_slice]
        empty = self.sums[channel_slice] == 0.0
        exponents = np.where(safe, 0, exponents)
        new = np.where(empty, exponents, np.where(max_abs == 0.0, old, np.maximum(exponents, old)))
        scaled = np.ldexp(mantissa, shift - new[:, np.newaxis])
        self.sums[channel_slice] = np.ldexp(self.sums[channel_slice], 2 * (old - new)) + np.einsum(
            "rci,rci->c", scaled, scaled
        )
        self.exponents[channel_slice] = new

    def roots(self, count: np.ndarray) -> np.ndarray:
        """Return the roots of the means over `count` elements."""
        return np.asarray(np.ldexp(np.sqrt(self.sums / count), self.exponents))

    def decibels_over(self, other: _SquareSums) -> np.ndarray:
        """Return 10 log10(self / other); infinite if the other is 0."""
        ratio = np.log10(self.sums) - np.log10(other.sums)
        ratio += 2.0 * np.log10(2.0) * (self.exponents - other.exponents)
        return np.where(other.sums == 0.0, np.inf, 10.0 * ratio)


class ChannelCounter:
    """Sums the error of each channel, range by range.

    Args:
        shape: Shape of the tensor.
        axis: The channel axis.

    Raises:
        UsageError: The shape does not have that axis.
    """

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        if not -len(shape) <= axis < len(shape):
            raise UsageError(f"A tensor of shape {shape} has no axis {axis}.")
        self._axis = axis % len(shape)
        extent = shape[self._axis]
        self._max = np.zeros(extent)
        self._count = np.zeros(extent, np.int64)
        self._left_out = np.zeros(extent, np.int64)
        self._unmatched = np.zeros(extent, np.int64)
        self._errors = _SquareSums(extent)
        self._references = _SquareSums(extent)

    def has_same_channels(self, shape: tuple[int, ...]) -> bool:
        """Return whether another tensor has the same channels."""
        return self._axis < len(shape) and shape[self._axis] == self._max.size

    def add(
        self,
        stretch: Stretch,
        sides: tuple[np.ndarray, np.ndarray],
        magnitudes: np.ndarray,
        finite: np.ndarray | None,
    ) -> None:
        """Add a range from `channel_stretches`."""
        block = stretch.rows, stretch.channels, stretch.inner
        channel_slice = slice(stretch.first, stretch.first + stretch.channels)
        reference, backend = sides
        if finite is not None:
            matched = (reference == backend) | (np.isnan(reference) & np.isnan(backend))
            self._unmatched[channel_slice] += (~finite & ~matched).reshape(block).sum(axis=(0, 2))
            reference, backend = np.where(finite, reference, 0.0), np.where(finite, backend, 0.0)
            magnitudes = np.where(finite, magnitudes, 0.0)
            self._left_out[channel_slice] += (~finite).reshape(block).sum(axis=(0, 2))
        self._count[channel_slice] += stretch.rows * stretch.inner
        a, d = reference.reshape(block), magnitudes.reshape(block)
        max_abs = d.max(axis=2).max(axis=0)
        np.maximum(self._max[channel_slice], max_abs, out=self._max[channel_slice])
        halves = d if np.isfinite(max_abs).all() else (backend * 0.5 - reference * 0.5).reshape(block)
        self._errors.add(d, max_abs, halves, channel_slice)
        largest = np.maximum(a.max(axis=2).max(axis=0), -(a.min(axis=2).min(axis=0)))
        self._references.add(a, largest, a, channel_slice)

    def errors(self) -> ChannelErrors:
        """Return the metrics of each channel."""
        count = self._count - self._left_out
        with np.errstate(all="ignore"):
            metrics = {
                "max_abs": self._max,
                "rmse": self._errors.roots(count),
                "sqnr_db": self._references.decibels_over(self._errors),
            }
        results = {name: np.where(count > 0, values, np.nan) for name, values in metrics.items()}
        for name, values in results.items():
            values[self._unmatched > 0] = np.inf if name == "max_abs" else np.nan
        results["nonfinite"] = self._unmatched.copy()
        for values in results.values():
            values.flags.writeable = False
        return ChannelErrors(axis=self._axis, **results)
