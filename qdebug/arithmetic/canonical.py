"""Maps variants that compute the same function of a unit, by construction, to one representative.

Two rules do most of the work. A part that the program never uses (a multiplier, an operand's program, a missing bias)
is set to its default. Multipliers that evaluate to the same numbers for a unit's scales are equal, whatever the order
of their computation. The first of them in the tables of `qdebug.replay.scaling` represents all.
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
    integer_multiplier,
    number_format,
    real_multiplier,
    scales_of,
)
from qdebug.replay.steps import STEPS, Step
from qdebug.replay.unit import Unit
from qdebug.replay.variant import FORMS, Variant

__all__ = ["canonical", "number_functions"]

_DEFAULT_INTEGER_MULTIPLIER = Multiplier(number="q31")
_INT32_END = 2.0**31


def canonical(variant: Variant, unit: Unit | None = None, columns: Columns | None = None) -> Variant:
    """Return the representative of all variants that are known to compute the same function.

    Args:
        variant: Any variant.
        unit: The unit. Without it, only rules that apply to every unit are used.
        columns: The unit's columns, whose bound shows whether sums can overflow.

    Returns:
        A variant that computes the same codes of this unit.
    """
    if unit is None:
        return _reset_unused(variant)
    reset = _reset_unread(variant, _traits(unit, columns))
    return _with_first_multiplier(reset, unit, columns, _Multipliers(unit, columns))


def number_functions(variants: Iterable[Variant], unit: Unit, columns: Mapping[HeavyPart, Columns]) -> tuple[int, ...]:
    """Number variants by the function of a unit that they compute. Equal numbers mean equal codes for all operands.

    Args:
        variants: Variants that fit the unit.
        unit: The unit.
        columns: The unit's columns, by heavy part.

    Returns:
        A number for each variant, starting from 0 in order of appearance.
    """
    by_sums: dict[HeavyPart, tuple[_Traits, _Multipliers]] = {}
    scale_multipliers = _Multipliers(unit, None)
    numbers: dict[Variant, int] = {}
    result = []
    for variant in variants:
        own_columns = columns.get(variant.sums)
        if variant.sums not in by_sums:
            has_no_counts = own_columns is None or (own_columns.count is None and own_columns.member is None)
            by_sums[variant.sums] = (
                _traits(unit, own_columns),
                scale_multipliers if has_no_counts else _Multipliers(unit, own_columns),
            )
        traits, multipliers = by_sums[variant.sums]
        representative = _with_first_multiplier(_reset_unread(variant, traits), unit, own_columns, multipliers)
        result.append(numbers.setdefault(representative, len(numbers)))
    return tuple(result)


class _Multipliers:
    """Computes the multipliers of a unit's scales, each once, and finds the first of equal ones."""

    def __init__(self, unit: Unit, columns: Columns | None) -> None:
        self._unit = unit
        self._scales: Scales = scales_of(unit, *(() if columns is None else (columns.count, columns.member)))
        self._real: dict[str, np.ndarray] = {}
        self._fixed: dict[Multiplier, Fixed] = {}
        self._first_equal: dict[Multiplier, Multiplier] = {}
        self._traits: dict[Multiplier, _IntegerTraits] = {}

    def real(self, expression: str) -> np.ndarray:
        """Return the quotient of the scales, computed by an expression."""
        if expression not in self._real:
            self._real[expression] = real_multiplier(self._scales, expression)
        return self._real[expression]

    def fixed_point(self, multiplier: Multiplier) -> Fixed:
        """Return the significand and shifts of a fixed-point multiplier."""
        if multiplier not in self._fixed:
            self._fixed[multiplier] = integer_multiplier(self._unit, self._scales, multiplier)
        return self._fixed[multiplier]

    def first_equal(self, multiplier: Multiplier) -> Multiplier:
        """Return the first multiplier that evaluates to the same numbers."""
        if multiplier not in self._first_equal:
            self._first_equal[multiplier] = (_first_equal_real if multiplier.real else _first_equal_integer)(
                multiplier, self
            )
        return self._first_equal[multiplier]

    def integer_traits(self, multiplier: Multiplier) -> _IntegerTraits:
        """Return the traits of a multiplier's integers."""
        if multiplier not in self._traits:
            self._traits[multiplier] = _integer_traits(self.fixed_point(multiplier), self)
        return self._traits[multiplier]


class _IntegerTraits(NamedTuple):
    """Traits of the integers of a fixed-point multiplier.

    Args:
        has_no_left_shift: Whether no channel shifts to the left.
        has_no_early_shift: Whether no channel shifts to the right before the product.
        fits_31_bits: Whether the right shift is at most 31 bits in all channels.
        is_implied_power: Whether the multiplier is the power of two that the scales imply.
    """

    has_no_left_shift: bool
    has_no_early_shift: bool
    fits_31_bits: bool
    is_implied_power: bool


class _Traits(NamedTuple):
    """Traits of a unit that decide which parts of a variant have an effect.

    Args:
        sums_fit_32_bits: Whether sums are known to fit in 32 bits.
        sums_products: Whether the unit sums products.
        has_bias: Whether it has a bias.
        is_zero_point_zero: Whether its output's zero point is 0.
        is_approximated: Whether ONNX Runtime approximates its function.
        counts_padding: Whether it is a pool that counts the padding inside its windows.
    """

    sums_fit_32_bits: bool
    sums_products: bool
    has_bias: bool
    is_zero_point_zero: bool
    is_approximated: bool
    counts_padding: bool


def _traits(unit: Unit, columns: Columns | None) -> _Traits:
    return _Traits(
        sums_fit_32_bits=columns is not None and columns.bound < _INT32_END,
        sums_products=unit.kind in ("conv", "linear"),
        has_bias=unit.bias is not None,
        is_zero_point_zero=not np.any(unit.out.zero_point),
        is_approximated="mlas" in operators.of(unit.function).forms,
        counts_padding=bool(unit.attrs.get("ceil_mode") and unit.attrs.get("count_include_pad")),
    )


@lru_cache(maxsize=1 << 14)
def _reset_unread(variant: Variant, traits: _Traits) -> Variant:
    """Return a variant with every part that has no effect on a unit set to its default."""
    reset = _reset_unused(variant)
    if traits.sums_fit_32_bits and reset.accumulate in ("wrap32", "exact"):
        reset = replace(reset, accumulate="wrap32")
    if not traits.sums_products:
        reset = replace(reset, accumulate="wrap32", bias="int32")
    elif not traits.has_bias:
        reset = replace(reset, bias="int32", requantize=_without_step(reset.requantize, "bias"))
    # In the "offset" form, this step adds more than the zero point.
    if traits.is_zero_point_zero and reset.form != "offset":
        reset = replace(reset, requantize=_without_step(reset.requantize, "zp"))
    if reset.form == "mlas" and not traits.is_approximated:
        reset = replace(reset, form="table")
    if reset.form == "taps" and not traits.counts_padding:
        reset = replace(reset, form="real")
    return reset


def _without_step(steps: tuple[Step, ...], op: str) -> tuple[Step, ...]:
    return tuple(step for step in steps if step.op != op)


def _multiplies(steps: tuple[Step, ...]) -> bool:
    return any(STEPS[step.op].multiplies for step in steps)


def _reset_unused(variant: Variant) -> Variant:
    """Return a variant with every part that its form or program does not use set to its default."""
    reset = variant
    if not FORMS[reset.form].own_scales:
        reset = replace(reset, operand=())
    if reset.form != "ls":
        reset = replace(reset, shift=0)
    if reset.bias in ("float", "codes") and not any(step.op == "bias" for step in reset.requantize):
        reset = replace(reset, bias="none")
    if not FORMS[reset.form].multiplier:
        return replace(reset, multiplier=Multiplier())
    if not _multiplies((*reset.requantize, *reset.operand)):
        number = reset.multiplier.number
        if not reset.multiplier.real:
            default_multiplier = _DEFAULT_INTEGER_MULTIPLIER
        else:
            default_multiplier = Multiplier(number=number if number == "f64" and FORMS[reset.form].double else "f32")
        reset = replace(reset, multiplier=default_multiplier)
    return reset


def _with_first_multiplier(variant: Variant, unit: Unit, columns: Columns | None, multipliers: _Multipliers) -> Variant:
    """Return a variant with the first of the multipliers that are equal for a unit, without steps that do nothing."""
    form, averages = FORMS[variant.form], any(step.op == "avg" for step in variant.requantize)
    if averages or form.own_scales or not form.multiplier or not _multiplies(variant.requantize):
        return variant
    if unit.kind in ("average_pool", "global_average_pool", "reduce_mean") and columns is None:
        return variant  # without columns, the number of averaged elements is unknown
    try:
        first_multiplier = multipliers.first_equal(variant.multiplier)
        integers = None if first_multiplier.real else multipliers.integer_traits(variant.multiplier)
    except UsageError:
        return variant  # a scale that is 0 or not finite has no integer multiplier
    return _with_multiplier(variant, first_multiplier, integers)


def _first_equal_real(multiplier: Multiplier, multipliers: _Multipliers) -> Multiplier:
    number = multiplier.number
    value = float_multiplier(multipliers.real(multiplier.expression), number)
    for expression in EXPRESSIONS:
        if np.array_equal(float_multiplier(multipliers.real(expression), number), value):
            return replace(multiplier, expression=expression)
    return multiplier


def _first_equal_integer(multiplier: Multiplier, multipliers: _Multipliers) -> Multiplier:
    value = multipliers.fixed_point(multiplier)
    family = number_format(multiplier.number).equivalent_to or multiplier.number
    numbers = [number for number, row in NUMBERS.items() if family in (number, row.equivalent_to)] or [
        multiplier.number
    ]
    rivals = (replace(multiplier, number=n, expression=e) for n in numbers for e in EXPRESSIONS)
    return next((rival for rival in rivals if _is_equal(multipliers.fixed_point(rival), value)), multiplier)


def _integer_traits(value: Fixed, multipliers: _Multipliers) -> _IntegerTraits:
    return _IntegerTraits(
        has_no_left_shift=bool(np.all(value.exponent <= 0)),
        has_no_early_shift=not np.any(value.pre),
        fits_31_bits=bool(np.all(value.bits - value.exponent <= 31)),
        is_implied_power=_is_power(value, multipliers),
    )


def _is_power(value: Fixed, multipliers: _Multipliers) -> bool:
    if np.any(value.multiplier & (value.multiplier - 1)):
        return False
    lead = np.frexp(value.multiplier.astype(np.float64))[1] - 1
    return np.array_equal(
        multipliers.fixed_point(Multiplier(number="pow2")).exponent, value.exponent - value.bits + lead
    )


@lru_cache(maxsize=1 << 14)
def _with_multiplier(variant: Variant, first: Multiplier, integers: _IntegerTraits | None) -> Variant:
    """Return a variant with the given multiplier, without the steps that do nothing for its integers."""
    steps = variant.requantize
    if integers is None:
        return replace(variant, multiplier=first)
    if integers.has_no_left_shift:
        steps = _without_step(steps, "shl")
    if integers.has_no_early_shift:
        steps = _without_step(steps, "pre")
    if integers.fits_31_bits:
        steps = tuple(
            Step(op="shr", rounding="up") if step == Step(op="shr", rounding="tosa") else step for step in steps
        )
    # TOSA's rounding adds an amount that does not depend on the multiplier, so a shift alone would differ.
    nudged = Step(op="shr", rounding="tosa") in steps
    if integers.is_implied_power and not nudged and [step.op for step in steps[:2]] == ["mul", "shr"]:
        # A product with a power of two, rounded once, is only a shift.
        return replace(variant, multiplier=Multiplier(number="pow2"), requantize=steps[1:])
    return replace(variant, multiplier=first, requantize=steps)


def _is_equal(first: Fixed, second: Fixed) -> bool:
    return first.bits == second.bits and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in ("multiplier", "exponent", "pre")
    )
