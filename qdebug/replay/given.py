"""Multipliers that a backend recorded with a tensor: the programs that may use them, and what they stand for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from qdebug.replay.scaling import GIVEN, Multiplier, recorded_multiplier, scales_of
from qdebug.replay.steps import steps_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["given_ratio", "given_variants"]

_KINDS = frozenset(
    {"conv", "linear", "mul", "requantize", "average_pool", "global_average_pool", "reduce_mean", "max_pool"}
)
_SINGLE = ("up", "away", "even", "floor", "trunc", "down", "tosa")
_DOUBLE = tuple(f"{high},shr.{last}" for high in ("up", "trunc", "away") for last in ("away", "up", "even", "floor"))


def given_variants(unit: Unit) -> Iterator[Variant]:
    """Give the programs that may compute a unit by the multiplier that was recorded with its output; none without."""
    if unit.kind not in _KINDS or recorded_multiplier(unit, scales_of(unit)) is None:
        return
    multiplier = Multiplier(number=GIVEN)
    for text in (*(f"mul,shr.{rounding}" for rounding in _SINGLE), *(f"shl,mulhi.{steps}" for steps in _DOUBLE)):
        yield Variant(multiplier=multiplier, requantize=steps_of(f"{text},zp,sat"))


def given_ratio(unit: Unit) -> float | None:
    """Give the recorded multiplier over the quotient of the scales, where it is furthest from 1; None without one."""
    found = recorded_multiplier(unit, scales_of(unit)) if unit.kind in _KINDS else None
    if found is None:
        return None
    _, ratio = found
    return float(ratio.reshape(-1)[np.argmax(np.abs(np.log2(ratio)))])
