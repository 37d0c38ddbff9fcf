"""Multipliers that a backend recorded with a tensor: what they stand for, and the programs that may use them.

Backends write an integer multiplier and its shift in several ways: as one product with a shift of all bits (TOSA,
CMSIS), or as a fraction of 31 or 15 bits with a further shift, to the right or to the left (gemmlowp, TensorFlow Lite).
The recorded scales tell which is meant: it is the one that comes closest to their quotient.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.replay.scaling import Fixed, Scales, fixed, real_multiplier, scales_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Multiplier, Variant, steps_of

__all__ = ["GIVEN", "given_ratio", "given_variants", "whole_of"]

GIVEN = "given"
"""The number of a multiplier that is the recorded one."""

_KINDS = frozenset(
    {"conv", "linear", "mul", "requantize", "average_pool", "global_average_pool", "reduce_mean", "max_pool"}
)
_EXPRESSION = "d:xw/y"
_SINGLE = ("up", "away", "even", "floor", "trunc", "down", "tosa")
_DOUBLE = tuple(f"{high},shr.{last}" for high in ("up", "trunc", "away") for last in ("away", "up", "even", "floor"))


def whole_of(unit: Unit, scales: Scales, multiplier: Multiplier) -> Fixed:
    """Give the integers that stand for a unit's multiplier; the recorded ones where they are asked for and known.

    Args:
        unit: The unit.
        scales: Its scales.
        multiplier: One that is no floating-point number.

    Raises:
        UsageError: A multiplier is not finite, or not above 0 where that is needed.
    """
    if multiplier.number != GIVEN:
        return fixed(real_multiplier(scales, multiplier.expression), multiplier.number)
    found = _recorded(unit, scales)
    return fixed(real_multiplier(scales, _EXPRESSION), "q31") if found is None else found


def given_variants(unit: Unit) -> Iterator[Variant]:
    """Give the programs that may compute a unit by the multiplier that was recorded with its output; none without."""
    if unit.kind not in _KINDS or _recorded(unit, scales_of(unit)) is None:
        return
    multiplier = Multiplier(number=GIVEN)
    for text in (*(f"mul,shr.{rounding}" for rounding in _SINGLE), *(f"shl,mulhi.{steps}" for steps in _DOUBLE)):
        yield Variant(multiplier=multiplier, requantize=steps_of(f"{text},zp,sat"))


def given_ratio(unit: Unit) -> float | None:
    """Give the recorded multiplier over the quotient of the scales, where it is furthest from 1; None without one."""
    scales = scales_of(unit)
    found = _recorded(unit, scales) if unit.kind in _KINDS else None
    if found is None:
        return None
    ratio = _real(found) / real_multiplier(scales, _EXPRESSION)
    return float(ratio.reshape(-1)[np.argmax(np.abs(np.log2(ratio)))])


def _recorded(unit: Unit, scales: Scales) -> Fixed | None:
    """Read the recorded multiplier and shift in the way that comes closest to the quotient of the scales."""
    if unit.out.multiplier is None and unit.out.shift is None:
        return None
    real = np.asarray(real_multiplier(scales, _EXPRESSION), np.float64)
    multiplier = _spread(unit, np.ones(1, np.int64) if unit.out.multiplier is None else unit.out.multiplier)
    if multiplier is None or np.any(multiplier <= 0) or not np.all(np.isfinite(real) & (real > 0)):
        return None
    readings = list(_readings(unit, multiplier, real))
    if not readings:
        return None
    return min(readings, key=lambda found: float(np.abs(np.log2(_real(found) / real)).max()))


def _readings(unit: Unit, multiplier: np.ndarray, real: np.ndarray) -> Iterator[Fixed]:
    """Give what the recorded integers may mean."""
    none = np.zeros((), np.int64)
    widest = int(multiplier.max())
    own = next((bits for bits in (0, 8, 15, 16, 24) if widest <= 1 << bits), 31)
    if unit.out.shift is None:  # the shift that the scales ask for
        exponent = np.rint(np.log2(real * np.ldexp(1.0, own) / multiplier)).astype(np.int64)
        yield Fixed(multiplier=multiplier, bits=own, exponent=exponent, pre=none)
        return
    shift = _spread(unit, unit.out.shift)
    if shift is None:
        return
    yield Fixed(multiplier=multiplier, bits=own, exponent=own - shift, pre=none)
    for bits in (31, 15):
        if widest <= 1 << bits:
            yield Fixed(multiplier=multiplier, bits=bits, exponent=-shift, pre=none)
            yield Fixed(multiplier=multiplier, bits=bits, exponent=shift, pre=none)


def _real(found: Fixed) -> np.ndarray:
    return np.asarray(np.ldexp(found.multiplier.astype(np.float64), (found.exponent - found.bits).astype(np.int32)))


def _spread(unit: Unit, values: np.ndarray) -> np.ndarray | None:
    """Shape one value, or one per channel, to broadcast to the output, channels first; None if it does not."""
    if values.size == 1:
        return values.reshape(()).astype(np.int64)
    flat = values.reshape(-1).astype(np.int64)
    if unit.kind == "conv" and not unit.transposed and values.size == unit.operands[1].codes.shape[0]:
        return flat.reshape(-1, *(1,) * (unit.operands[0].codes.ndim - 2))
    if unit.kind == "linear" and values.size == unit.operands[1].codes.shape[-1]:
        return flat
    return None
