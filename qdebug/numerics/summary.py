"""Statistics of one tensor: counts, extremes, moments, and a histogram by binary exponent."""

from __future__ import annotations

import math

import numpy as np

from qdebug.model.dtypes import is_float, is_integer, logical_name
from qdebug.model.kept import EXPONENT_BINS, LOWEST_EXPONENT, Statistics
from qdebug.model.quant import QuantParams
from qdebug.numerics.affine import dequantize, is_wide_code

__all__ = ["take_statistics"]

_BLOCK = 1 << 16


def take_statistics(array: np.ndarray, quant: QuantParams | None) -> Statistics:
    """Return statistics of all elements.

    Args:
        array: Stored elements; complex elements are only counted.
        quant: Their quantization; None for real numbers.
    """
    dtype = logical_name(array.dtype)
    if not (is_float(dtype) or is_integer(dtype) or dtype == "bool"):
        return _make_statistics(array.size, _Sums())
    flat = array.reshape(-1)
    double = is_wide_code(array.dtype)
    real_values = (
        dequantize(array, quant, double=double).reshape(-1) if quant is not None and quant.scale.size > 1 else None
    )
    sums = _Sums()
    for start in range(0, flat.size, _BLOCK):
        stored = flat[start : start + _BLOCK]
        real = (
            real_values[start : start + _BLOCK] if real_values is not None else dequantize(stored, quant, double=double)
        )
        sums.add(stored, np.asarray(real, dtype=np.float64), quant)
    return _make_statistics(array.size, sums)


class _Sums:
    """Statistics in progress. Mean and deviation are merged block by block (Chan, Golub and LeVeque 1983)."""

    def __init__(self) -> None:
        self.nan = self.inf = self.zero = self.at_qmin = self.at_qmax = self.finite = 0
        self.low = self.high = math.nan
        self.absmax = self.mean = self.spread = self.square = 0.0
        self.bins = np.zeros((2, EXPONENT_BINS), np.uint64)

    def add(self, stored: np.ndarray, real: np.ndarray, quant: QuantParams | None) -> None:
        """Add a block: its stored elements, and their real values as float64."""
        plain = stored.astype(np.float64)
        numbers = plain[~np.isnan(plain)]
        self.nan += plain.size - numbers.size
        self.inf += int(np.count_nonzero(np.isinf(numbers)))
        self.zero += int(numbers.size - np.count_nonzero(numbers))
        if numbers.size:
            self.low, self.high = (
                float(np.fmin(self.low, numbers.min())),
                float(np.fmax(self.high, numbers.max())),
            )
        if quant is not None and quant.qmin is not None and quant.qmax is not None:
            codes = plain if stored.dtype.kind == "V" else stored  # int4 and similar types
            self.at_qmin += int(np.count_nonzero(codes == quant.qmin))
            self.at_qmax += int(np.count_nonzero(codes == quant.qmax))
        values = real[np.isfinite(real)]
        if values.size:
            self._add_finite(values)

    def _add_finite(self, values: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            mean = float(values.mean())
            spread = float(np.square(values - mean).sum())
            total = self.finite + values.size
            mean_difference = mean - self.mean
            self.spread += spread + mean_difference * mean_difference * self.finite * values.size / total
            self.mean += mean_difference * values.size / total
            self.square += float(np.square(values).sum())
        self.finite = total
        self.absmax = max(self.absmax, float(np.abs(values).max()))
        exponents = np.frexp(values)[1] - 1 - LOWEST_EXPONENT
        bin_indices = np.clip(exponents, 0, EXPONENT_BINS - 1)
        for row, chosen in enumerate((values < 0, values > 0)):
            self.bins[row] += np.bincount(bin_indices[chosen], minlength=EXPONENT_BINS).astype(np.uint64)


def _make_statistics(count: int, sums: _Sums) -> Statistics:
    has_finite = sums.finite > 0
    return Statistics(
        count=count,
        nan=sums.nan,
        inf=sums.inf,
        zero=sums.zero,
        low=sums.low,
        high=sums.high,
        at_qmin=sums.at_qmin,
        at_qmax=sums.at_qmax,
        absmax=sums.absmax if has_finite else math.nan,
        mean=sums.mean if has_finite else math.nan,
        std=math.sqrt(sums.spread / sums.finite) if has_finite else math.nan,
        l2=math.sqrt(sums.square) if has_finite else math.nan,
        negative=sums.bins[0],
        positive=sums.bins[1],
    )
