"""One variant for all that are the same function of a unit, as far as that follows from how they are made.

Two rules do most of it. What a program never uses (a multiplier, an operand's program, a bias that is not there)
takes its default. And multipliers that come out as the same numbers for a unit's scales are the same multiplier, in
whatever order they were computed: the first in the order of the tables in `variant` stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import operators
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.scaling import (
    EXPRESSIONS,
    NUMBERS,
    Fixed,
    Multiplier,
    Scales,
    float_multiplier,
    real_multiplier,
    scales_of,
    whole_of,
)
from qdebug.replay.steps import STEPS, Step
from qdebug.replay.unit import Unit
from qdebug.replay.variant import FORMS, Variant

__all__ = ["canonical", "functions"]

_WHOLE = Multiplier(number="q31")
_INT32_END = 2.0**31


def canonical(variant: Variant, unit: Unit | None = None, columns: Columns | None = None) -> Variant:
    """Return the variant that stands for all that are known to compute the same.

    Args:
        variant: Any variant.
        unit: What is computed; without it only what holds for every unit is used.
        columns: The unit's columns, whose bound tells whether sums can overflow.

    Returns:
        A variant that gives the same codes as the one given, for this unit.
    """
    return _without_unused(variant) if unit is None else _of_unit(variant, unit, columns, _Multipliers(unit, columns))


def functions(variants: Iterable[Variant], unit: Unit, columns: Mapping[HeavyPart, Columns]) -> tuple[int, ...]:
    """Number variants by the function that they are of a unit: the same number, the same codes whatever its operands.

    Args:
        variants: Any variants that fit the unit.
        unit: What is computed.
        columns: The unit's columns, by what variants start from.

    Returns:
        A number for each variant, from 0 on in order of appearance.
    """
    made: dict[HeavyPart, _Multipliers] = {}
    numbers: dict[Variant, int] = {}
    found = []
    for variant in variants:
        own = columns.get(variant.sums)
        multipliers = made.setdefault(variant.sums, _Multipliers(unit, own))
        found.append(numbers.setdefault(_of_unit(variant, unit, own, multipliers), len(numbers)))
    return tuple(found)


class _Multipliers:
    """The multipliers that a unit's scales give, each computed once."""

    def __init__(self, unit: Unit, columns: Columns | None) -> None:
        self._unit = unit
        self._scales: Scales = scales_of(unit, *(() if columns is None else (columns.count, columns.member)))
        self._real: dict[str, np.ndarray] = {}
        self._fixed: dict[tuple[str, str], Fixed] = {}

    def real(self, expression: str) -> np.ndarray:
        """Return the quotient of the scales in an order."""
        if expression not in self._real:
            self._real[expression] = real_multiplier(self._scales, expression)
        return self._real[expression]

    def fixed(self, number: str, expression: str) -> Fixed:
        """Return the integers that stand for it."""
        key = number, expression
        if key not in self._fixed:
            multiplier = Multiplier(number=number, expression=expression)
            self._fixed[key] = whole_of(self._unit, self._scales, multiplier)
        return self._fixed[key]


def _of_unit(variant: Variant, unit: Unit, columns: Columns | None, multipliers: _Multipliers) -> Variant:
    found = _without_unused(variant)
    if columns is not None and found.accumulate in ("wrap32", "exact") and columns.bound < _INT32_END:
        found = replace(found, accumulate="wrap32")
    if unit.kind not in ("conv", "linear"):
        found = replace(found, accumulate="wrap32", bias="int32")
    elif unit.bias is None:
        found = replace(found, bias="int32", requantize=_without(found.requantize, "bias"))
    if not np.any(unit.out.zero_point) and found.form != "offset":  # which adds more by the step
        found = replace(found, requantize=_without(found.requantize, "zp"))
    if found.form == "mlas" and "mlas" not in operators.of(unit.function).forms:
        found = replace(found, form="table")
    if found.form == "taps" and not (unit.attrs.get("ceil_mode") and unit.attrs.get("count_include_pad")):
        found = replace(found, form="real")
    return _same_multiplier(found, unit, columns, multipliers)


def _without(steps: tuple[Step, ...], op: str) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.op != op)


def _multiplies(steps: tuple[Step, ...]) -> bool:
    return any(STEPS[step.op].multiplies for step in steps)


def _without_unused(variant: Variant) -> Variant:
    """Return stages that the form or the program never reads their defaults."""
    found = variant
    if not FORMS[found.form].own_scales:
        found = replace(found, operand=())
    if found.form != "ls":
        found = replace(found, shift=0)
    if found.bias in ("float", "codes") and not any(step.op == "bias" for step in found.requantize):
        found = replace(found, bias="none")
    if not FORMS[found.form].multiplier:
        return replace(found, multiplier=Multiplier())
    if not _multiplies((*found.requantize, *found.operand)):
        number = found.multiplier.number
        if not found.multiplier.real:
            kept = _WHOLE
        else:
            kept = Multiplier(number=number if number == "f64" and FORMS[found.form].double else "f32")
        found = replace(found, multiplier=kept)
    return found


def _same_multiplier(variant: Variant, unit: Unit, columns: Columns | None, multipliers: _Multipliers) -> Variant:
    """Return the first multiplier that comes out as the same numbers, and drop shifts by nothing."""
    form, averages = FORMS[variant.form], any(step.op == "avg" for step in variant.requantize)
    if averages or form.own_scales or not form.multiplier or not _multiplies(variant.requantize):
        return variant
    if unit.kind in ("average_pool", "global_average_pool", "reduce_mean") and columns is None:
        return variant  # the count is not known
    try:
        if variant.multiplier.real:
            return replace(variant, multiplier=_first_real(variant.multiplier, multipliers))
        return _first_whole(variant, multipliers)
    except UsageError:
        return variant  # a scale of 0, or one that is not finite, has no integers


def _first_real(multiplier: Multiplier, multipliers: _Multipliers) -> Multiplier:
    number = multiplier.number
    own = float_multiplier(multipliers.real(multiplier.expression), number)
    for expression in EXPRESSIONS:
        if np.array_equal(float_multiplier(multipliers.real(expression), number), own):
            return replace(multiplier, expression=expression)
    return multiplier


def _first_whole(variant: Variant, multipliers: _Multipliers) -> Variant:
    number = variant.multiplier.number
    own = multipliers.fixed(number, variant.multiplier.expression)
    first = NUMBERS[number].like or number
    rivals = [rival for rival, row in NUMBERS.items() if first in (rival, row.like)]
    chosen = variant.multiplier
    for rival, expression in ((r, e) for r in rivals for e in EXPRESSIONS):
        if _same(multipliers.fixed(rival, expression), own):
            chosen = Multiplier(number=rival, expression=expression)
            break
    steps = variant.requantize
    if np.all(own.exponent <= 0):
        steps = _without(steps, "shl")
    if not np.any(own.pre):
        steps = _without(steps, "pre")
    if np.all(own.bits - own.exponent <= 31):
        steps = tuple(
            Step(op="shr", rounding="up") if step == Step(op="shr", rounding="tosa") else step for step in steps
        )
    found = replace(variant, multiplier=chosen, requantize=steps)
    return _as_power(found, own, multipliers)


def _as_power(variant: Variant, own: Fixed, multipliers: _Multipliers) -> Variant:
    """Return a multiplier that is a power of two as a shift alone, if it is rounded once."""
    ops = [step.op for step in variant.requantize]
    nudged = Step(op="shr", rounding="tosa") in variant.requantize  # by a fixed amount, whatever the multiplier
    if ops[:2] != ["mul", "shr"] or nudged or np.any(own.multiplier & (own.multiplier - 1)):
        return variant
    power = multipliers.fixed("pow2", "xw/y")
    lead = np.frexp(own.multiplier.astype(np.float64))[1] - 1
    if not np.array_equal(power.exponent, own.exponent - own.bits + lead):
        return variant
    return replace(variant, multiplier=Multiplier(number="pow2"), requantize=variant.requantize[1:])


def _same(first: Fixed, second: Fixed) -> bool:
    return first.bits == second.bits and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("multiplier", "exponent", "pre")
    )
