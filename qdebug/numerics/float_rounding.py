"""Rounding of real numbers to a short float format, in every direction that hardware and kernels use.

Each row of `FLOAT_ROUNDINGS` is one direction. float64 holds the sums and products of 16-bit floats exactly, so each
direction has a single correct result (IEEE 754-2019, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.numerics.short_formats import ShortFormat

__all__ = ["FLOAT_ROUNDINGS", "OVERFLOWS", "FloatRounding", "round_float", "unit_in_last_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRounding:
    """A direction of rounding.

    Args:
        words: What it does to a result.
        pick: Rounds numbers in units in the last place to whole numbers.
        biased: Whether its errors have one sign, so that they add up along a network.
        overflows_to_infinity: Whether a result beyond the largest number becomes infinite, for positive and negative
            results.
    """

    words: str
    pick: Callable[[np.ndarray], np.ndarray]
    biased: bool = False
    overflows_to_infinity: tuple[bool, bool] = (True, True)


def _round_ties_away(units: np.ndarray) -> np.ndarray:
    size = np.abs(units)
    low = np.floor(size)
    return np.asarray(np.copysign(low + (size - low >= 0.5), units))


def _round_from_zero(units: np.ndarray) -> np.ndarray:
    return np.asarray(np.copysign(np.ceil(np.abs(units)), units))


FLOAT_ROUNDINGS: Mapping[str, FloatRounding] = MappingProxyType(
    {
        "even": FloatRounding(words="rounded to nearest, ties to even", pick=np.rint),
        "away": FloatRounding(words="rounded to nearest, ties away from zero", pick=_round_ties_away),
        "zero": FloatRounding(words="truncated", pick=np.trunc, biased=True, overflows_to_infinity=(False, False)),
        "out": FloatRounding(words="rounded away from zero", pick=_round_from_zero, biased=True),
        "down": FloatRounding(words="rounded down", pick=np.floor, biased=True, overflows_to_infinity=(False, True)),
        "up": FloatRounding(words="rounded up", pick=np.ceil, biased=True, overflows_to_infinity=(True, False)),
    }
)
"""Directions by name, the usual one first."""
OVERFLOWS: Mapping[str, str] = MappingProxyType(
    {"inf": "overflow becomes infinite", "sat": "overflow saturates", "nan": "overflow becomes NaN"}
)
"""What happens to results beyond the largest number: descriptions by name."""


def _last_place_exponent(values: np.ndarray, short: ShortFormat) -> np.ndarray:
    """Return the exponent of the unit in the last place of finite values."""
    exponent = np.frexp(values)[1] - short.bits
    return np.asarray(np.maximum(exponent, round(np.log2(short.subnormal))))


def unit_in_last_place(values: np.ndarray, short: ShortFormat) -> np.ndarray:
    """Return the distance between neighbours of a format around each finite value, in float64."""
    return np.asarray(np.ldexp(1.0, _last_place_exponent(values, short)))


def round_float(
    values: np.ndarray, short: ShortFormat, rounding: str, *, flush: bool = False, overflow: str = "inf"
) -> np.ndarray:
    """Round numbers to a short format.

    Args:
        values: float64, of any shape.
        short: The format.
        rounding: A name in `FLOAT_ROUNDINGS`.
        flush: Whether results below the smallest normal number become 0, with their sign.
        overflow: A name in `OVERFLOWS`, for results that round beyond the largest number.

    Returns:
        float64. NaN and infinities stay as they are.
    """
    row = FLOAT_ROUNDINGS[rounding]
    with np.errstate(invalid="ignore", over="ignore"):
        last_place = _last_place_exponent(np.where(np.isfinite(values), values, 0.0), short)
        result = np.ldexp(row.pick(np.ldexp(values, -last_place)), last_place)
        if flush:
            result = np.where(np.abs(result) < short.normal, np.copysign(0.0, values), result)
        beyond = (np.abs(result) > short.largest) & np.isfinite(values)
    if beyond.any():
        largest = np.copysign(short.largest, values)
        overflows_to_infinity = np.where(values > 0, *row.overflows_to_infinity)
        special = {
            "inf": np.where(overflows_to_infinity, np.copysign(np.inf, values), largest),
            "sat": largest,
            "nan": np.nan,
        }
        result = np.where(beyond, special[overflow], result)
    return np.asarray(result)
