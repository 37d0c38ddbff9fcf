"""Partial records of values that are not recorded in full: statistics, and optionally some elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["EXPONENT_BINS", "LOWEST_EXPONENT", "SKETCH_SIZE", "Kept", "Statistics"]

LOWEST_EXPONENT = -40
EXPONENT_BINS = 64
"""Number of bins of a histogram.

Bin k counts magnitudes from 2**(LOWEST_EXPONENT + k) up to but excluding twice that. The first bin also counts smaller
magnitudes except 0, and the last bin also counts larger ones except infinity.
"""


SKETCH_SIZE = 64
"""Number of projections of a sketch, see `qdebug.numerics.sketch`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Statistics of all elements of a tensor at one sample and step.

    Args:
        count: Number of elements.
        nan: Number of NaN elements.
        inf: Number of infinite elements.
        zero: Number of zeros.
        low: Smallest stored element except NaN; NaN without one.
        high: Largest stored element except NaN; NaN without one.
        at_qmin: Codes equal to qmin; 0 without integer codes.
        at_qmax: Codes equal to qmax; 0 without integer codes.
        absmax: Largest magnitude of the finite real values; NaN if there are none.
        mean: Their mean; NaN if there are none.
        std: Their standard deviation; NaN if there are none.
        l2: Root of the sum of their squares; NaN if there are none.
        negative: Histogram of the negative real values by binary exponent, uint64; all 0 if there is a sketch.
        positive: Histogram of the positive real values.
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
    """The partial record of a tensor at one sample and step.

    Args:
        dtype: Logical dtype of the elements.
        shape: The tensor's shape.
        digest: Hash of all elements. Equal hashes mean equal bits.
        statistics: Statistics of all elements.
        positions: Positions of the recorded elements in C order, ascending, int64; None without recorded elements.
        values: The recorded elements.
        sketch: Random projections of the real values, float32; None without a sketch.
        truncated: Whether fewer elements were recorded than requested, because the recording was full.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: bytes
    statistics: Statistics
    positions: np.ndarray | None = None
    values: np.ndarray | None = None
    sketch: np.ndarray | None = None
    truncated: bool = False
