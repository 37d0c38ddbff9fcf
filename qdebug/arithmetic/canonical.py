"""One variant for all that are the same function of a unit, as far as that follows from how they are made.

Two rules do most of it. What a program never uses (a multiplier, an operand's program, a bias that is not there)
takes its default. And multipliers that come out as the same numbers for a unit's scales are the same multiplier, in
whatever order they were computed: the first in the order of the tables in `variant` stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

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
    if unit is None:
        return _without_unused(variant)
    found = _read_stages(variant, _traits(unit, columns))
    return _same_multiplier(found, unit, columns, _Multipliers(unit, columns))


def functions(variants: Iterable[Variant], unit: Unit, columns: Mapping[HeavyPart, Columns]) -> tuple[int, ...]:
    """Number variants by the function that they are of a unit: the same number, the same codes whatever its operands.

    Args:
        variants: Any variants that fit the unit.
        unit: What is computed.
        columns: The unit's columns, by what variants start from.

    Returns:
        A number for each variant, from 0 on in order of appearance.
    """
    made: dict[HeavyPart, tuple[_Traits, _Multipliers]] = {}
    plain = _Multipliers(unit, None)
    numbers: dict[Variant, int] = {}
    found = []
    for variant in variants:
        own = columns.get(variant.sums)
        if variant.sums not in made:
            bare = own is None or (own.count is None and own.member is None)
            made[variant.sums] = _traits(unit, own), plain if bare else _Multipliers(unit, own)
        traits, multipliers = made[variant.sums]
        same = _same_multiplier(_read_stages(variant, traits), unit, own, multipliers)
        found.append(numbers.setdefault(same, len(numbers)))
    return tuple(found)


class _Multipliers:
    """The multipliers that a unit's scales give, each computed once, and the first of equal ones."""

    def __init__(self, unit: Unit, columns: Columns | None) -> None:
        self._unit = unit
        self._scales: Scales = scales_of(unit, *(() if columns is None else (columns.count, columns.member)))
        self._real: dict[str, np.ndarray] = {}
        self._fixed: dict[tuple[str, str], Fixed] = {}
        self._first: dict[tuple[str, str], Multiplier] = {}
        self._traits: dict[tuple[str, str], _Integers] = {}

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

    def first(self, multiplier: Multiplier) -> Multiplier:
        """Return the first multiplier that comes out as the same numbers."""
        key = multiplier.number, multiplier.expression
        if key not in self._first:
            self._first[key] = (_first_real if multiplier.real else _first_whole)(multiplier, self)
        return self._first[key]

    def integers(self, multiplier: Multiplier) -> _Integers:
        """Return what is true of the integers that stand for a multiplier."""
        key = multiplier.number, multiplier.expression
        if key not in self._traits:
            self._traits[key] = _integers(self.fixed(*key), self)
        return self._traits[key]


class _Integers(NamedTuple):
    """What is true of the integers that stand for a multiplier.

    Args:
        stays: Whether nothing is shifted left.
        late: Whether nothing is shifted right before the product.
        short: Whether the shift has at most 31 bits.
        power: Whether they are the power of two that the scales give.
    """

    stays: bool
    late: bool
    short: bool
    power: bool


class _Traits(NamedTuple):
    """What decides which stages of a variant a unit reads.

    Args:
        narrow: Whether sums are known to fit 32 bits.
        sums: Whether it sums products.
        biased: Whether it has a bias.
        zero: Whether its output's zero point is 0.
        approximated: Whether its function has ONNX Runtime's approximation.
        counted: Whether a pool counts padding that a window covers beyond it.
    """

    narrow: bool
    sums: bool
    biased: bool
    zero: bool
    approximated: bool
    counted: bool


def _traits(unit: Unit, columns: Columns | None) -> _Traits:
    return _Traits(
        narrow=columns is not None and columns.bound < _INT32_END,
        sums=unit.kind in ("conv", "linear"),
        biased=unit.bias is not None,
        zero=not np.any(unit.out.zero_point),
        approximated="mlas" in operators.of(unit.function).forms,
        counted=bool(unit.attrs.get("ceil_mode") and unit.attrs.get("count_include_pad")),
    )


@lru_cache(maxsize=1 << 14)
def _read_stages(variant: Variant, traits: _Traits) -> Variant:
    """Return a variant with the defaults of all stages that a unit does not read."""
    found = _without_unused(variant)
    if traits.narrow and found.accumulate in ("wrap32", "exact"):
        found = replace(found, accumulate="wrap32")
    if not traits.sums:
        found = replace(found, accumulate="wrap32", bias="int32")
    elif not traits.biased:
        found = replace(found, bias="int32", requantize=_without(found.requantize, "bias"))
    if traits.zero and found.form != "offset":  # which adds more by the step
        found = replace(found, requantize=_without(found.requantize, "zp"))
    if found.form == "mlas" and not traits.approximated:
        found = replace(found, form="table")
    if found.form == "taps" and not traits.counted:
        found = replace(found, form="real")
    return found


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
        first = multipliers.first(variant.multiplier)
        integers = None if first.real else multipliers.integers(variant.multiplier)
    except UsageError:
        return variant  # a scale of 0, or one that is not finite, has no integers
    return _with_multiplier(variant, first, integers)


def _first_real(multiplier: Multiplier, multipliers: _Multipliers) -> Multiplier:
    number = multiplier.number
    own = float_multiplier(multipliers.real(multiplier.expression), number)
    for expression in EXPRESSIONS:
        if np.array_equal(float_multiplier(multipliers.real(expression), number), own):
            return replace(multiplier, expression=expression)
    return multiplier


def _first_whole(multiplier: Multiplier, multipliers: _Multipliers) -> Multiplier:
    own = multipliers.fixed(multiplier.number, multiplier.expression)
    first = NUMBERS[multiplier.number].like or multiplier.number
    rivals = [rival for rival, row in NUMBERS.items() if first in (rival, row.like)]
    for rival, expression in ((r, e) for r in rivals for e in EXPRESSIONS):
        if _same(multipliers.fixed(rival, expression), own):
            return Multiplier(number=rival, expression=expression)
    return multiplier


def _integers(own: Fixed, multipliers: _Multipliers) -> _Integers:
    return _Integers(
        stays=bool(np.all(own.exponent <= 0)),
        late=not np.any(own.pre),
        short=bool(np.all(own.bits - own.exponent <= 31)),
        power=_is_power(own, multipliers),
    )


def _is_power(own: Fixed, multipliers: _Multipliers) -> bool:
    if np.any(own.multiplier & (own.multiplier - 1)):
        return False
    lead = np.frexp(own.multiplier.astype(np.float64))[1] - 1
    return np.array_equal(multipliers.fixed("pow2", "xw/y").exponent, own.exponent - own.bits + lead)


@lru_cache(maxsize=1 << 14)
def _with_multiplier(variant: Variant, first: Multiplier, integers: _Integers | None) -> Variant:
    """Return a variant with the first of equal multipliers, without the steps that do nothing for its integers."""
    steps = variant.requantize
    if integers is None:
        return replace(variant, multiplier=first)
    if integers.stays:
        steps = _without(steps, "shl")
    if integers.late:
        steps = _without(steps, "pre")
    if integers.short:
        steps = tuple(
            Step(op="shr", rounding="up") if step == Step(op="shr", rounding="tosa") else step for step in steps
        )
    nudged = Step(op="shr", rounding="tosa") in steps  # by a fixed amount, whatever the multiplier
    if integers.power and not nudged and [step.op for step in steps[:2]] == ["mul", "shr"]:
        # A power of two that is rounded once is a shift alone.
        return replace(variant, multiplier=Multiplier(number="pow2"), requantize=steps[1:])
    return replace(variant, multiplier=first, requantize=steps)


def _same(first: Fixed, second: Fixed) -> bool:
    return first.bits == second.bits and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("multiplier", "exponent", "pre")
    )
