"""What a recording keeps of values that it does not keep in full: statistics, and perhaps some of the elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["EXPONENT_BINS", "LOWEST_EXPONENT", "Kept", "Statistics"]

LOWEST_EXPONENT = -40
EXPONENT_BINS = 64
"""Bin k of a histogram counts magnitudes from 2**(LOWEST_EXPONENT + k) up to below twice that; the first also smaller
ones but 0, the last also larger ones but infinity."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Statistics of all elements of a tensor at one sample and step.

    Args:
        count: Elements.
        nan: Elements that are NaN.
        inf: Elements that are infinite.
        zero: Elements that are 0.
        low: Smallest stored element that is not NaN; NaN if there is none.
        high: Largest one.
        at_qmin: Codes equal to qmin; 0 if it is not quantized to integers.
        at_qmax: Codes equal to qmax; the same.
        absmax: Largest magnitude of the finite real values; NaN if there are none, as of the following.
        mean: Their mean.
        std: Their standard deviation.
        l2: Root of the sum of their squares.
        negative: Histogram of the negative real values by binary exponent, uint64.
        positive: Histogram of the positive ones.
    """

    count: int
    nan: int
    inf: int
    zero: int
    low: float
    high: float
    at_qmin: int
    at_qmax: int
    absmax: float
    mean: float
    std: float
    l2: float
    negative: np.ndarray
    positive: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """What was kept of a tensor at one sample and step.

    Args:
        dtype: Logical dtype of the elements.
        shape: The tensor's shape.
        digest: Hash of all elements: equal ones are equal bit for bit.
        statistics: Statistics of all elements.
        positions: Positions in C order of the elements that were kept, ascending, int64; None if none were.
        values: Those elements.
        truncated: Whether less was kept than was asked for, since the recording was full.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: bytes
    statistics: Statistics
    positions: np.ndarray | None = None
    values: np.ndarray | None = None
    truncated: bool = False
