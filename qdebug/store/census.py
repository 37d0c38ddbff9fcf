"""Counts and extremes of an array while it is in memory anyway: what `info` and the index show."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from qdebug.store.layout import Flag

__all__ = ["Census", "take_census"]

_BLOCK = 1 << 15


class Census(NamedTuple):
    """Statistics of one payload; `flags` says which of them are valid.

    Args:
        flags: Valid fields, and HAS_NAN and HAS_INF.
        nan: NaN elements.
        inf: Infinite elements.
        zero: Elements equal to 0.
        low: Smallest element that is not NaN.
        high: Largest element that is not NaN.
    """

    flags: Flag = Flag(0)
    nan: int = 0
    inf: int = 0
    zero: int = 0
    low: float = float("nan")
    high: float = float("nan")


def take_census(array: np.ndarray) -> Census:
    """Count and bound the elements of an array of a plain numpy dtype; nothing is valid for any other.

    The common case, all elements finite, takes two passes over cache-sized blocks. Zeros are
    counted only where there are NaN or infinities, since counting costs as much as writing.

    Args:
        array: Any array.
    """
    if array.dtype.kind not in "iuf" or not array.dtype.isnative or array.size == 0:
        return Census()
    with np.errstate(invalid="ignore"):  # signalling NaN
        return _bound(array.reshape(-1))


def _bound(flat: np.ndarray) -> Census:
    low: Any = np.minimum.reduce(flat[:_BLOCK])
    high: Any = np.maximum.reduce(flat[:_BLOCK])
    for start in range(_BLOCK, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        low = np.minimum(low, np.minimum.reduce(block))
        high = np.maximum(high, np.maximum.reduce(block))
    if flat.dtype.kind != "f" or (np.isfinite(low) and np.isfinite(high)):
        return Census(flags=Flag.EXTREMES, low=float(low), high=float(high))
    return _count(flat)


def _count(flat: np.ndarray) -> Census:
    """Count NaN, infinities and zeros, and bound the rest, block by block."""
    nan = inf = zero = 0
    low, high = float("inf"), float("-inf")
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        known = block[~np.isnan(block)]  # fmin and fmax would let a signalling NaN win
        nan += block.size - known.size
        inf += int(np.count_nonzero(np.isinf(known)))
        zero += int(known.size - np.count_nonzero(known))
        if known.size:
            low = min(low, float(np.minimum.reduce(known)))
            high = max(high, float(np.maximum.reduce(known)))
    flags = Flag.EXTREMES | Flag.COUNTS | (Flag.HAS_NAN if nan else Flag(0)) | (Flag.HAS_INF if inf else Flag(0))
    if nan == flat.size:
        return Census(flags & ~Flag.EXTREMES, nan, inf, zero)
    return Census(flags, nan, inf, zero, low, high)
