"""Exact integer sums through floating-point BLAS.

Sums of products of integers are exact in any order and with any fused operation as long as every partial
sum stays within the integers that the float type represents, so a float32 or float64 matrix product
gives the integer accumulator bit for bit, many times faster than numpy's integer product.
"""

from __future__ import annotations

import numpy as np

from qdebug.replay.precision import limits

__all__ = ["as_int32", "centred", "exact_dtype", "saturate", "sum_bound"]


def exact_dtype(bound: float) -> np.dtype:
    """Give the fastest dtype in which integer sums up to `bound` in magnitude are exact."""
    return np.dtype(np.float32 if bound < 2.0**24 else np.float64 if bound < 2.0**53 else np.int64)


def centred(codes: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
    """Subtract a zero point that broadcasts to the codes, in int32: nothing wraps for codes of 16 bits or less."""
    wide = codes.astype(np.int32)
    if zero_point is not None and np.any(zero_point):
        wide -= zero_point.astype(np.int32)
    return wide


def sum_bound(left: np.ndarray, right: np.ndarray, axes: tuple[int, ...], extra: np.ndarray | None = None) -> float:
    """Bound the magnitude of every partial sum of products.

    Args:
        left: One factor; its largest magnitude counts.
        right: The other; the sums of its magnitudes over `axes`, those that are summed over, count.
        axes: Axes of `right`.
        extra: What is added to the sums, such as a bias.
    """
    largest = max(abs(int(left.max(initial=0))), abs(int(left.min(initial=0))))
    weights = float(np.abs(right).sum(axis=axes, dtype=np.int64).max(initial=0))
    added = 0.0 if extra is None else float(np.abs(extra.astype(np.int64)).max(initial=0))
    return weights * largest + added


def as_int32(sums: np.ndarray) -> np.ndarray:
    """Give exact integer sums as int32, wrapped around where they do not fit, as the hardware does."""
    return sums.astype(np.int64).astype(np.int32)


def saturate(rounded: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """Add a zero point to whole numbers and clamp them to its dtype; NaN gives the lowest code.

    Args:
        rounded: Whole numbers in a float dtype; overwritten.
        zero_point: A scalar, or an array that broadcasts.
    """
    low, high = limits(zero_point.dtype)
    if np.any(zero_point):
        offset = zero_point.astype(rounded.dtype)
        # Clamped before the zero point is added: beyond 2**24 the sum would not be exact.
        np.fmin(np.fmax(rounded, low - offset, out=rounded), high - offset, out=rounded)
        rounded += offset
    else:
        np.fmin(np.fmax(rounded, low, out=rounded), high, out=rounded)
    return rounded.astype(zero_point.dtype)
