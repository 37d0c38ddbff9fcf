"""Finds large integers that hold no more digits than a float format does. Begin at `float_digits_of_integers`."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.relations import Result
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES
from qdebug.numerics.short_formats import SINGLE, ShortFormat

__all__ = ["float_digits_of_integers"]


def float_digits_of_integers(result: Result) -> str | None:
    """Return a clause if integers were computed in floats, which do not hold all their digits, or None.

    The order of sums in a float format is unknown, so the result is not predicted: all recorded integers are numbers of
    the format, which the right ones are not, and their error is at most that of as many roundings as there are terms.

    Args:
        result: A result of integers.
    """
    right, recorded = result.right, result.recorded
    operands = [array for array in result.operands.values() if array.dtype.kind in "iu" and array.size >= right.size]
    if recorded.dtype.kind not in "iu" or recorded.dtype.itemsize < _MIN_BYTES or not operands or not right.size:
        return None
    terms = max(array.size // right.size for array in operands)
    largest = max(float(np.abs(array.astype(np.float64)).max()) for array in operands)
    bound = SINGLE.unit * terms * max(terms * largest, float(np.abs(right.astype(np.float64)).max()))
    errors = np.abs(recorded.astype(np.float64) - right.astype(np.float64))
    is_short, is_right_short = _is_held(recorded, SINGLE), _is_held(right, SINGLE)
    if is_short.all() and np.count_nonzero(~is_right_short) >= CAUSE_MIN_DISTINCT_VALUES and errors.max() <= bound:
        return f"integers are computed in {SINGLE.name}, which does not hold all their digits"
    return None


_MIN_BYTES = 4


def _is_held(integers: np.ndarray, short_format: ShortFormat) -> np.ndarray:
    """Return which integers are numbers of a format."""
    return np.asarray(short_format.rounded(integers.astype(np.float64)).astype(np.float64) == integers)
