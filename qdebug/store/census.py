"""Counts and extremes of an array while it is in memory anyway: what the index shows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from qdebug.store.layout import Flag

__all__ = ["NOTHING", "Census", "take_census"]

_BLOCK_BYTES = 1 << 18


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


NOTHING = Census()
"""The census of what nobody looked at: nothing is valid."""


def take_census(array: np.ndarray) -> Census:
    """Count and bound the elements of an array of a plain numpy dtype; nothing is valid for any other.

    The common case, all elements finite, takes two passes over cache-sized blocks. Zeros are
    counted only where there are NaN or infinities, since counting costs as much as writing.

    Args:
        array: Any array.
    """
    if array.dtype.kind not in "iuf" or not array.dtype.isnative or array.size == 0:
        return NOTHING
    if array.dtype.kind != "f":
        return _bound(array.reshape(-1))
    with np.errstate(invalid="ignore"):  # signalling NaN
        return _bound(array.reshape(-1))


def _bound(flat: np.ndarray) -> Census:
    length = _BLOCK_BYTES // flat.itemsize
    low: Any = np.minimum.reduce(flat[:length])
    high: Any = np.maximum.reduce(flat[:length])
    for start in range(length, flat.size, length):
        block = flat[start : start + length]
        low = np.minimum(low, np.minimum.reduce(block))
        high = np.maximum(high, np.maximum.reduce(block))
    lowest, highest = float(low), float(high)
    if math.isfinite(lowest) and math.isfinite(highest):
        return Census(Flag.EXTREMES, low=lowest, high=highest)
    return _count(flat)


def _count(flat: np.ndarray) -> Census:
    """Count NaN, infinities and zeros, and bound the rest, block by block."""
    nan = inf = zero = 0
    low, high = float("inf"), float("-inf")
    length = _BLOCK_BYTES // flat.itemsize
    for start in range(0, flat.size, length):
        block = flat[start : start + length]
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
