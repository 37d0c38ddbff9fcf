"""Real values of 32- and 64-bit codes: float32 does not tell neighbours beyond 2**24 apart, float64 none beyond 2**53.

scale * (code - zero_point) is given as an unevaluated sum of two float64. With a float32 scale that sum is exact; with
a float64 scale it is within 2**-24 of a step. So different codes never become one number, and the difference of two
codes of one scale is as many steps as the codes are apart.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from qdebug.model.dtypes import is_integer

__all__ = ["is_wide_code", "wide_parts"]

_LOW_BITS = 28
"""Bits of a code that are multiplied apart: their product with a float32 scale, and what they add to, fit float64."""
_SPLIT = 2.0**27 + 1.0


@cache
def is_wide_code(dtype: np.dtype) -> bool:
    """Tell whether float32 does not hold every integer of a dtype that is one."""
    return dtype.kind in "iu" and dtype.itemsize >= 4


def wide_parts(
    codes: np.ndarray,
    zero_point: np.ndarray,
    scale: np.ndarray,
    out: tuple[np.ndarray, np.ndarray],
    *,
    exact: bool = False,
) -> None:
    """Write the real values of codes as two float64 arrays whose sum they are.

    The error of a product of two floats is Dekker's (A floating-point technique for extending the available precision,
    Numerische Mathematik 18, 1971).

    Args:
        codes: Codes of any dtype: what wide codes are compared with is read as they are.
        zero_point: int64, one for all or one for each.
        scale: float64, likewise.
        out: Where the sums go, rounded up to the low bits of the codes, and what is to be added; as many float64.
        exact: Whether codes of up to 32 bits have zero points below 2**48 and finite scales that float32 holds: then
            float64 holds the products of both parts of a code.
    """
    high, low = out
    if exact:
        np.subtract(codes, zero_point, out=low, dtype=np.float64)
        _split(low, high)
        np.multiply(high, scale, out=high)
        np.multiply(low, scale, out=low)
        return
    upper, lower = _centred_parts(codes, zero_point)
    np.multiply(upper, scale, out=high)
    np.copyto(high, 0.0, where=upper == 0.0)  # even of an infinite scale
    np.multiply(lower, scale, out=low)
    x, x_rest = _halves(upper)
    y, y_rest = _halves(np.asarray(scale))
    rest = ((x * y - high) + x * y_rest + x_rest * y) + x_rest * y_rest
    np.add(low, np.where(np.isfinite(rest), rest, 0.0), out=low)
    np.copyto(low, 0.0, where=~np.isfinite(high))


def _centred_parts(codes: np.ndarray, zero_point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give code - zero_point as two float64 whose exact sum it is, the same two whatever type the codes have."""
    if not (is_integer(codes.dtype.name) or codes.dtype == np.bool_):
        lower = np.asarray(codes.astype(np.float64) - zero_point)
        upper = np.empty_like(lower)
        _split(lower, upper)
        return upper, lower
    if codes.dtype != np.uint64:
        codes = codes.astype(np.int64)
    mask = (1 << _LOW_BITS) - 1
    # Neither difference can overflow, and float64 holds both.
    whole = (codes >> _LOW_BITS).astype(np.int64) - (zero_point >> _LOW_BITS)
    lower = ((codes & mask).astype(np.int64) - (zero_point & mask)).astype(np.float64)
    upper = np.empty_like(lower)
    _split(lower, upper)
    upper += whole.astype(np.float64) * 2.0**_LOW_BITS
    return upper, lower


def _split(values: np.ndarray, upper: np.ndarray) -> None:
    """Take the nearest multiples of 2**28 from values, in place; of those below 2**27 this is 0.

    Args:
        values: float64.
        upper: Where the multiples go.
    """
    np.multiply(values, 2.0**-_LOW_BITS, out=upper)
    np.add(upper, 0.5, out=upper)
    np.floor(upper, out=upper)
    np.multiply(upper, 2.0**_LOW_BITS, out=upper)
    np.subtract(values, upper, out=values)


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split float64 into two of half as many bits, whose sum they are."""
    far = values * _SPLIT
    head = np.asarray(far - (far - values))
    return head, np.asarray(values - head)
