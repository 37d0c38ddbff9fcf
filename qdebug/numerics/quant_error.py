"""The loss from quantizing real values with a scale and zero point: exact, or estimated from a histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.json_object import JsonObject
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import BLOCK, ScaleMap, dequantize, quantize
from qdebug.numerics.blocks import RealBlocks, scratch
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.range_histogram import RangeHistogram

__all__ = ["QuantError", "QuantErrorCounter", "estimate_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantError(JsonObject):
    """The error of quantizing and dequantizing values.

    Args:
        clipped_low: Values more than half a step below the real value of qmin, whose nearest code would be below qmin.
        clipped_high: Values whose nearest code would be above qmax.
        square_error: Sum of the squared differences.
        square_sum: Sum of the squared values.
        max_abs: Largest difference; None if unknown.
        total: Number of finite values; NaN and infinite values are ignored everywhere.
        used_codes: Number of codes from the lowest to the highest used code; 0 without values.
        exact: Whether the values were actually quantized; False if the error was estimated from a histogram.
    """

    json_keys = "clipped_low clipped_high total used_codes mse sqnr_db max_abs exact"

    clipped_low: int
    clipped_high: int
    square_error: float
    square_sum: float
    max_abs: float | None
    total: int
    used_codes: int
    exact: bool

    @property
    def clipped(self) -> float:
        """Share of clipped values, 0 to 1; 0 without values."""
        return (self.clipped_low + self.clipped_high) / self.total if self.total else 0.0

    @property
    def mse(self) -> float:
        """Mean squared error; NaN without values."""
        return self.square_error / self.total if self.total else math.nan

    @property
    def sqnr_db(self) -> float:
        """10 log10(square_sum / square_error); infinite without an error."""
        if not self.square_error:
            return math.inf
        return 10.0 * math.log10(self.square_sum / self.square_error) if self.square_sum else -math.inf


class QuantErrorCounter:
    """Sums the error of quantizing values, sample by sample.

    Args:
        quant: Scale, zero point and codes.

    Raises:
        UsageError: A scale is not positive and finite, or the codes have no lowest and highest value.
    """

    def __init__(self, quant: QuantParams) -> None:
        if quant.qmin is None or quant.qmax is None:
            raise UsageError(f"Codes of dtype {quant.dtype} have no qmin and qmax to clip at.")
        if not (np.isfinite(quant.scale).all() and (quant.scale > 0).all()):
            bad = quant.scale[~(np.isfinite(quant.scale) & (quant.scale > 0))].reshape(-1)[0]
            raise UsageError(f"A scale of {bad:g} cannot represent values.", hint="Give a scale above 0.")
        self.quant = quant
        self._low, self._high = quant.qmin, quant.qmax
        self._clipped = [0, 0]
        self._error = self._square_sum = self._max_abs = 0.0
        self._total = 0
        self._nearest = math.inf, -math.inf

    def add(self, values: np.ndarray, quant: QuantParams | None = None) -> None:
        """Quantize the values of one sample.

        Args:
            values: Stored elements of any shape.
            quant: The elements' own quantization; None for real numbers.

        Raises:
            UsageError: The elements are not real numbers, or the parameters do not match their shape.
        """
        with np.errstate(all="ignore"):
            if self.quant.scale.size > 1:
                real = np.asarray(dequantize(np.asarray(values), quant))
                scales = ScaleMap(self.quant, real.shape)
                scale, zero_point = (
                    np.broadcast_to(scales.expand(parameter, 0, real.size), real.size)
                    for parameter in (self.quant.real_scale, self.quant.zero_point)
                )
                back = dequantize(quantize(real, self.quant), self.quant).reshape(-1)
                flat = real.reshape(-1)
                self._add_errors(flat, back, np.rint(flat / scale) + zero_point)
                return
            blocks, buffers = RealBlocks(values, quant), scratch()
            for start in range(0, blocks.size, BLOCK):
                checkpoint()
                stop = min(start + BLOCK, blocks.size)
                if blocks.single:
                    self._add_range(blocks.read_single(start, stop, buffers.singles[0]), buffers.singles[1:3])
                else:
                    real = blocks.read_double(start, stop, buffers.doubles[0], buffers.singles[0])
                    self._add_range(real, buffers.doubles[1:3])

    def _add_range(self, real: np.ndarray, buffers: Sequence[np.ndarray]) -> None:
        """Quantize and dequantize a range like `quantize` and `dequantize`, for one scale and codes up to 16 bits."""
        work = real.dtype.type
        scale, zero_point = work(self.quant.real_scale.reshape(-1)[0]), int(self.quant.zero_point.reshape(-1)[0])
        low, high = self._low - zero_point, self._high - zero_point
        nearest, back = (buffer[: real.size] for buffer in buffers)
        np.divide(real, scale, out=nearest)
        np.rint(nearest, out=nearest)
        np.clip(nearest, work(low), work(high), out=back)
        np.multiply(back, scale, out=back)
        self._add_errors(real, back, nearest, zero_point)

    def _add_errors(self, real: np.ndarray, back: np.ndarray, nearest: np.ndarray, zero_point: int = 0) -> None:
        """Add the errors of a range.

        Args:
            real: The values.
            back: Their dequantized values.
            nearest: The nearest codes before clamping, minus the zero point.
            zero_point: The zero point, if it is subtracted from `nearest`.
        """
        finite = np.isfinite(real)
        if not finite.all():
            real, back, nearest = real[finite], back[finite], nearest[finite]
        if not real.size:
            return
        low, high = self._low - zero_point, self._high - zero_point
        lowest, highest = float(nearest.min()), float(nearest.max())
        self._nearest = min(self._nearest[0], lowest + zero_point), max(self._nearest[1], highest + zero_point)
        self._clipped[0] += int(np.count_nonzero(nearest < low)) if lowest < low else 0
        self._clipped[1] += int(np.count_nonzero(nearest > high)) if highest > high else 0
        difference = back.astype(np.float64) - real
        self._max_abs = max(self._max_abs, float(np.abs(difference).max()))
        self._error += float(np.square(difference).sum())
        self._square_sum += float(np.square(real.astype(np.float64, copy=False)).sum())
        self._total += real.size

    def error(self) -> QuantError:
        """Return the sums so far."""
        return QuantError(
            clipped_low=self._clipped[0],
            clipped_high=self._clipped[1],
            square_error=self._error,
            square_sum=self._square_sum,
            max_abs=self._max_abs,
            total=self._total,
            used_codes=_count_codes(self._nearest, (self._low, self._high)) if self._total else 0,
            exact=True,
        )


def _count_codes(nearest: tuple[float, float], ends: tuple[int, int]) -> int:
    """Return the number of codes between two codes, inclusive, both clamped to the range of codes."""
    low, high = (min(max(code, ends[0]), ends[1]) for code in nearest)
    return int(high - low) + 1


def _extreme_codes(histogram: RangeHistogram, scale: float, zero_point: int) -> tuple[float, float]:
    return float(np.rint(histogram.low / scale)) + zero_point, float(np.rint(histogram.high / scale)) + zero_point


def estimate_error(histogram: RangeHistogram, quant: QuantParams) -> QuantError:
    """Estimate the error from a histogram, without the values.

    A value that is not clipped adds scale**2 / 12, except for 0, which has an exact code. A clipped value adds the
    squared distance from the end of the range to the middle of its bin. A bin that contains an end is clipped
    proportionally.

    Args:
        histogram: The values.
        quant: A single scale and zero point.

    Raises:
        UsageError: There are several scales, the scale is not positive, the codes have no lowest and highest value, or
            the histogram is coarse.
    """
    if quant.scale.size != 1:
        raise UsageError(f"The error of {quant.scale.size} scales cannot be computed from one histogram.")
    if histogram.coarse:
        raise UsageError(
            "The error of a scale cannot be computed from statistics.", hint="Record the values with --keep full."
        )
    QuantErrorCounter(quant)  # raises for invalid parameters
    scale, zero_point = float(quant.real_scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
    ends = quant.qmin or 0, quant.qmax or 0
    low, high = ((end - zero_point) * scale for end in ends)
    edges, counts = histogram.edges, histogram.counts
    half = scale / 2.0
    below = np.clip((low - half - edges[:-1]) / histogram.width, 0.0, 1.0) * (low - half > histogram.low)
    above = np.clip((edges[1:] - high - half) / histogram.width, 0.0, 1.0) * (high + half < histogram.high)
    middles = histogram.centers
    distance_below, distance_above = np.maximum(low - middles, 0.0), np.maximum(middles - high, 0.0)
    lost_low, lost_high = counts * below, counts * above
    inside = max(float(counts.sum() - lost_low.sum() - lost_high.sum()) - histogram.zeros, 0.0)
    square_error = (
        float((lost_low * distance_below**2 + lost_high * distance_above**2).sum()) + inside * scale**2 / 12.0
    )
    return QuantError(
        clipped_low=round(float(lost_low.sum())),
        clipped_high=round(float(lost_high.sum())),
        square_error=square_error,
        square_sum=histogram.square_sum,
        max_abs=None,
        total=histogram.total,
        used_codes=_count_codes(_extreme_codes(histogram, scale, zero_point), ends) if histogram.total else 0,
        exact=False,
    )
