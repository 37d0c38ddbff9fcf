"""Rounding to integers, by name: the choices that quantized backends make.

Each function keeps the dtype of floating-point input, gives back integers unchanged, and keeps
NaN and infinities. All are exact: no value is shifted by adding one half to it, which misplaces
0.49999999999999994 and every odd integer above 2**52.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from qdebug.errors import UsageError

__all__ = ["ROUNDINGS", "round_values"]


def _even(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.rint(values))


def _up(values: np.ndarray) -> np.ndarray:
    low = np.floor(values)
    # low is subtracted exactly for values >= 0; for values < 0 the result may round, but never across 0.5 from below.
    return np.asarray(low + (values - low >= 0.5))


def _down(values: np.ndarray) -> np.ndarray:
    return np.asarray(-_up(-values))


def _away(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.copysign(_up(np.abs(values)), values))


def _floor(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.floor(values))


def _trunc(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.trunc(values))


ROUNDINGS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {"even": _even, "away": _away, "up": _up, "down": _down, "floor": _floor, "trunc": _trunc}
)
"""Rounding functions by name. Of two equally near integers, "even" takes the even one, "away" the one
farther from 0, "up" the larger, "down" the smaller; "floor" and "trunc" are directed."""


def round_values(values: np.ndarray, rounding: str = "even") -> np.ndarray:
    """Round real values to integers and keep their dtype.

    Args:
        values: Any shape; floating point of at least 16 bits, or integers (which come back as they are).
        rounding: A name in `ROUNDINGS`.

    Returns:
        A new array of the same shape and dtype; 0-d stays 0-d.

    Raises:
        UsageError: The rounding has no such name.
    """
    if rounding not in ROUNDINGS:
        raise UsageError(
            f"Rounding {rounding!r} is unknown; known are {', '.join(ROUNDINGS)}.", hint="Choose one of these names."
        )
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        return values.copy()
    with np.errstate(all="ignore"):
        rounded = ROUNDINGS[rounding](values)
    return rounded.astype(values.dtype, copy=False)
