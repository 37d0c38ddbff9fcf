"""Statistics of a tensor that is not kept in full, and the choice of the elements that are."""

from __future__ import annotations

import math

import numpy as np

from qdebug.model import QuantParams
from qdebug.model.dtypes import is_float, is_integer, logical_name
from qdebug.model.kept import EXPONENT_BINS, LOWEST_EXPONENT, Kept, Statistics
from qdebug.numerics.affine import dequantize
from qdebug.store.payload import payload_hash, to_bytes

__all__ = ["choose_positions", "keep_partly", "take_statistics"]

_BLOCK = 1 << 16
_SHARE_OF_LARGEST = 8
_SEED = 20


def keep_partly(array: np.ndarray, quant: QuantParams | None, *, elements: int = 0, truncated: bool = False) -> Kept:
    """Give statistics of a tensor, and some of its elements.

    Args:
        array: Its elements.
        quant: How they stand for real numbers; None if they are the numbers.
        elements: How many elements to keep, besides the largest ones; 0 for none.
        truncated: Whether less is kept than was asked for.
    """
    dtype = logical_name(array.dtype)
    flat = array.reshape(-1)
    positions = choose_positions(flat, quant, elements) if elements else None
    return Kept(
        dtype=dtype,
        shape=array.shape,
        digest=payload_hash(to_bytes(array, dtype)),
        statistics=take_statistics(array, quant),
        positions=positions,
        values=None if positions is None else flat[positions],
        truncated=truncated,
    )


def choose_positions(flat: np.ndarray, quant: QuantParams | None, elements: int) -> np.ndarray:
    """Choose elements: one at a fixed random place in each of `elements` equal stretches, and the largest ones.

    The places depend on the number of elements alone, so that two runs keep the same ones, whatever they call the
    tensor. An eighth as many again are those of the largest magnitude.

    Args:
        flat: All elements, 1-D.
        quant: How they stand for real numbers.
        elements: How many.

    Returns:
        Positions, ascending, int64.
    """
    if elements >= flat.size:
        return np.arange(flat.size, dtype=np.int64)
    within = np.random.default_rng(_SEED).random(elements)
    spread = ((np.arange(elements) + within) * (flat.size / elements)).astype(np.int64)
    spread = np.minimum(spread, flat.size - 1)
    largest = max(1, elements // _SHARE_OF_LARGEST)
    size = _magnitudes(flat, quant)
    top = np.argpartition(size, flat.size - largest)[flat.size - largest :]
    return np.unique(np.concatenate([spread, top]))


def _magnitudes(flat: np.ndarray, quant: QuantParams | None) -> np.ndarray:
    """Give magnitudes to sort by: NaN first of all; of codes their distance from the code of 0."""
    middle = 0
    if quant is not None and quant.zero_point.size == 1:
        middle = int(quant.zero_point.reshape(-1)[0])
    with np.errstate(all="ignore"):
        wide = flat if flat.dtype.kind == "c" else flat.astype(np.float64)
        size: np.ndarray = np.abs(wide - middle)
    size[np.isnan(size)] = math.inf
    return size


def take_statistics(array: np.ndarray, quant: QuantParams | None) -> Statistics:
    """Give statistics of all elements.

    Args:
        array: Stored elements; of complex ones only their number is told.
        quant: How they stand for real numbers; None if they are the numbers.
    """
    dtype = logical_name(array.dtype)
    if not (is_float(dtype) or is_integer(dtype) or dtype == "bool"):
        return _statistics(array.size, _Sums())
    flat = array.reshape(-1)
    whole = dequantize(array, quant).reshape(-1) if quant is not None and quant.scale.size > 1 else None
    sums = _Sums()
    for start in range(0, flat.size, _BLOCK):
        stored = flat[start : start + _BLOCK]
        real = whole[start : start + _BLOCK] if whole is not None else dequantize(stored, quant)
        sums.add(stored, np.asarray(real, dtype=np.float64), quant)
    return _statistics(array.size, sums)


class _Sums:
    """Statistics under way; mean and spread are merged block by block (Chan, Golub and LeVeque 1983)."""

    def __init__(self) -> None:
        self.nan = self.inf = self.zero = self.at_qmin = self.at_qmax = self.finite = 0
        self.low = self.high = math.nan
        self.absmax = self.mean = self.spread = self.square = 0.0
        self.bins = np.zeros((2, EXPONENT_BINS), np.uint64)

    def add(self, stored: np.ndarray, real: np.ndarray, quant: QuantParams | None) -> None:
        """Add a block: its stored elements, and the real values as float64."""
        plain = stored.astype(np.float64)
        known = plain[~np.isnan(plain)]
        self.nan += plain.size - known.size
        self.inf += int(np.count_nonzero(np.isinf(known)))
        self.zero += int(known.size - np.count_nonzero(known))
        if known.size:
            self.low, self.high = (
                float(np.fmin(self.low, known.min())),
                float(np.fmax(self.high, known.max())),
            )
        if quant is not None and quant.qmin is not None and quant.qmax is not None:
            self.at_qmin += int(np.count_nonzero(plain == quant.qmin))
            self.at_qmax += int(np.count_nonzero(plain == quant.qmax))
        values = real[np.isfinite(real)]
        if values.size:
            self._add_finite(values)

    def _add_finite(self, values: np.ndarray) -> None:
        with np.errstate(over="ignore"):
            mean = float(values.mean())
            spread = float(np.square(values - mean).sum())
            total = self.finite + values.size
            apart = mean - self.mean
            self.spread += spread + apart * apart * self.finite * values.size / total
            self.mean += apart * values.size / total
            self.square += float(np.square(values).sum())
        self.finite = total
        self.absmax = max(self.absmax, float(np.abs(values).max()))
        exponents = np.frexp(values)[1] - 1 - LOWEST_EXPONENT
        places = np.clip(exponents, 0, EXPONENT_BINS - 1)
        for row, chosen in enumerate((values < 0, values > 0)):
            self.bins[row] += np.bincount(places[chosen], minlength=EXPONENT_BINS).astype(np.uint64)


def _statistics(count: int, sums: _Sums) -> Statistics:
    some = sums.finite > 0
    return Statistics(
        count=count,
        nan=sums.nan,
        inf=sums.inf,
        zero=sums.zero,
        low=sums.low,
        high=sums.high,
        at_qmin=sums.at_qmin,
        at_qmax=sums.at_qmax,
        absmax=sums.absmax if some else math.nan,
        mean=sums.mean if some else math.nan,
        std=math.sqrt(sums.spread / sums.finite) if some else math.nan,
        l2=math.sqrt(sums.square) if some else math.nan,
        negative=sums.bins[0],
        positive=sums.bins[1],
    )
