"""Short float formats, and detection of values that were rounded to one before being stored in a longer format.

Kernels may compute in bfloat16, float16, TF32 or 8-bit floats and return the result as float32. The digits reveal the
format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from qdebug.model.thresholds.rounding import (
    SHORT_FORMAT_MIN_ELEMENTS,
    SHORT_FORMAT_MIN_LAST_DIGIT_SHARE,
    SHORT_FORMAT_MIN_LAST_DIGITS,
)
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["SHORT_FORMATS", "SINGLE", "ShortFormat", "detect_rounded_format", "format_of", "is_exact_in", "to_tf32"]

_STRETCH = 1 << 20
"""Elements examined at a time: 4 MB in float32, and a few milliseconds."""
_FIRST = 4096
"""Elements that suffice to show that most tensors do not fit a short format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortFormat:
    """A float format with a shorter significand than float32.

    Args:
        name: Its usual name.
        bits: Bits of its significand, including the leading one.
        largest: Its largest finite number.
        normal: Its smallest number with full precision.
        rounded: Rounds values to it, ties to even, and returns float32.
    """

    name: str
    bits: int
    largest: float
    normal: float
    rounded: Callable[[np.ndarray], np.ndarray]

    @property
    def unit(self) -> float:
        """Unit roundoff: half the distance from 1 to the next larger number."""
        return float(2.0**-self.bits)

    @property
    def subnormal(self) -> float:
        """Its smallest number: the distance between neighbours below `normal`."""
        return float(self.normal * 2.0 ** (1 - self.bits))

    @property
    def vanishing(self) -> float:
        """The largest magnitude that is rounded to 0: half the smallest number, since ties go to even."""
        return self.subnormal / 2

    @property
    def beyond(self) -> float:
        """The smallest magnitude beyond its range: half a step above the largest number."""
        return float(self.largest * (1 + self.unit / 2))


def to_tf32(values: np.ndarray) -> np.ndarray:
    """Round float32 values to the 11 digits of TF32's significand, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values).astype(np.float32)


def _round_through(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that rounds to a dtype and back to float32."""
    return lambda values: np.asarray(values.astype(dtype).astype(np.float32))


SHORT_FORMATS = (
    ShortFormat(
        name="float8_e5m2",
        bits=3,
        largest=57344.0,
        normal=2.0**-14,
        rounded=_round_through(ml_dtypes.float8_e5m2),
    ),
    ShortFormat(
        name="float8_e4m3fn",
        bits=4,
        largest=448.0,
        normal=2.0**-6,
        rounded=_round_through(ml_dtypes.float8_e4m3fn),
    ),
    ShortFormat(
        name="bfloat16",
        bits=8,
        largest=(2 - 2.0**-7) * 2.0**127,
        normal=2.0**-126,
        rounded=_round_through(ml_dtypes.bfloat16),
    ),
    ShortFormat(
        name="float16",
        bits=11,
        largest=65504.0,
        normal=2.0**-14,
        rounded=_round_through(np.float16),
    ),
    ShortFormat(name="TF32", bits=11, largest=(2 - 2.0**-10) * 2.0**127, normal=2.0**-126, rounded=to_tf32),
)
"""Short formats, ordered by precision, then by range."""
SINGLE = ShortFormat(
    name="float32",
    bits=24,
    largest=(2 - 2.0**-23) * 2.0**127,
    normal=2.0**-126,
    rounded=_round_through(np.float32),
)
"""The default format of values."""


def is_exact_in(values: np.ndarray, short: ShortFormat) -> bool:
    """Return whether a format holds all of the values exactly. NaN fits any format."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _STRETCH):
            checkpoint()
            part = flat[start : start + _STRETCH]
            if not np.array_equal(short.rounded(part), part, equal_nan=True):
                return False
    return True


def format_of(values: np.ndarray, *, read: Iterable[np.ndarray] = ()) -> ShortFormat | None:
    """Return the short format that values have, or were rounded to before storage in a longer one; None if neither.

    Args:
        values: Elements of any dtype.
        read: The inputs of their computation. If the values have too few digits to decide, such as subnormal numbers
            or zeros, they get the coarsest of these inputs' formats that they fit.
    """
    stored_format = next(
        (short for short in SHORT_FORMATS if short.name == values.dtype.name), None
    ) or detect_rounded_format(values)
    if stored_format is not None or values.dtype not in (np.float32, np.float64) or not _may_fit(values):
        return stored_format
    units = [short.unit for short in map(format_of, read) if short is not None]
    return detect_rounded_format(values, known_unit=max(units)) if units else None


def _may_fit(values: np.ndarray) -> bool:
    """Return whether the first elements fit a short format.

    Only the last format is tested, since it includes all others.
    """
    return is_exact_in(values.reshape(-1)[:_FIRST], SHORT_FORMATS[-1])


def detect_rounded_format(values: np.ndarray, *, known_unit: float | None = None) -> ShortFormat | None:
    """Return the shortest format that values in a longer format were rounded to; None if there is none.

    It is not sufficient that all elements fit a format, since whole numbers and codes times a power of two do as well.
    In a float format, small elements have the same relative precision as large ones.

    Args:
        values: Elements; None is returned for dtypes other than float32 and float64.
        known_unit: Unit roundoff of a format that the values are known to have been rounded to, provided that they fit
            it.
    """
    if values.dtype not in (np.float32, np.float64) or (values.size < SHORT_FORMAT_MIN_ELEMENTS and known_unit is None):
        return None
    if not _may_fit(values):
        return None
    for short in SHORT_FORMATS:
        if not (is_exact_in(values.reshape(-1)[:_FIRST], short) and is_exact_in(values, short)):
            continue
        if short.unit == known_unit or _uses_all_digits(values, short):
            return short
    return None


def _uses_all_digits(values: np.ndarray, short: ShortFormat) -> bool:
    """Return whether values below the largest power of two use the last digit, too. Those of whole numbers do not."""
    first_values = values.reshape(-1)[:_STRETCH]
    significand, exponent = np.frexp(first_values[np.isfinite(first_values) & (first_values != 0)])
    last = np.mod(np.abs(significand) * 2.0**short.bits, 2) != 0
    small = exponent < np.max(exponent[last], initial=-1000)
    min_count = max(SHORT_FORMAT_MIN_LAST_DIGITS, SHORT_FORMAT_MIN_LAST_DIGIT_SHARE * np.count_nonzero(small))
    return bool(np.count_nonzero(last & small) >= min_count)
