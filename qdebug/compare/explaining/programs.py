"""Step programs beyond the known ones: a bounded grammar that a search goes through before it gives up.

Real multipliers: scale, round and add the zero point in any order. Integer multipliers: an optional shift left, a
product kept in part or whole, one or two roundings. Operators on two operands combine a program for the operands with
one for the result. How a program ends makes no difference well inside the range of the codes, so that `endings` is only
asked for programs that fit there. None wraps around where it should saturate: that is no arithmetic but a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from qdebug.replay.candidates import candidates
from qdebug.replay.scaling import real_multiplier, scales_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import EXPRESSIONS, Multiplier, Step, Sums, Variant, steps_of

__all__ = ["endings", "programs"]

_ROUNDINGS = ("even", "away", "up", "down", "floor", "trunc")
_REAL = ("mul", "scale,div", "scale,inv")
_WHOLE_NUMBERS = (
    "given", "q31", "q31t", "q31e", "m24", "m24s7", "q24", "q16", "q15", "q15t", "q8", "q8t", "q7", "glow",
)  # fmt: skip
_HIGH = ("up", "away", "trunc", "floor")
_ENDS = ("sat",)
_WHOLE_ENDS = ("sat16,zp,sat",)
_SHORT = ("given", "m24", "m24s7", "q24", "q16", "q15", "q15t", "q8", "q8t", "q7", "glow")
"""Multipliers too short for the order of the expression to matter often."""


def programs(unit: Unit, sums: Sums) -> Iterator[Variant]:
    """Give variants with the given heavy part, the simplest first; some of them may not fit the unit.

    Args:
        unit: What is computed.
        sums: The heavy part.
    """
    known = [variant for variant in candidates(unit) if variant.sums == sums]
    if not known:
        return
    if any(variant.operand for variant in known):
        yield from _two_stages(known)
    if sums.columns == "sum" and known[0].form == "sum" and not any(s.op == "bias" for s in known[0].requantize):
        yield from _real(unit, known[0])
        yield from _whole(unit, known[0])
    else:
        yield from _rerounded(known)


def endings(variant: Variant) -> Iterator[Variant]:
    """Give a program with each other way to end.

    Args:
        variant: A variant whose program ends with `zp,sat`.
    """
    if steps_of("zp,sat") == variant.requantize[-2:]:
        for end in (*_ENDS, *(() if variant.multiplier.real else _WHOLE_ENDS)):
            yield replace(variant, requantize=(*variant.requantize[:-2], *steps_of(end)))


def _expressions(unit: Unit, *, most: int = len(EXPRESSIONS)) -> list[str]:
    """List the expressions that give different multipliers for a unit, those in float64 with one representative."""
    scales = scales_of(unit)
    found: dict[bytes, str] = {}
    for expression in EXPRESSIONS:
        found.setdefault(real_multiplier(scales, expression).astype(np.float64).tobytes(), expression)
    return list(found.values())[:most]


def _real(unit: Unit, start: Variant) -> Iterator[Variant]:
    """Real multipliers: where the zero point is added and how it is rounded."""
    numbers = [*product(("f32", "f64"), _expressions(unit)), *product(("f16", "bf16"), _expressions(unit, most=1))]
    for number, expression in numbers:
        multiplier = Multiplier(number=number, expression=expression)
        for scaling, rounding in product(_REAL, (*_ROUNDINGS, "plus")):
            for text in ("zp,{},sat", "{},zp,sat"):
                steps = steps_of(f"{scaling},{text.format(rounding)}")
                yield replace(start, multiplier=multiplier, requantize=steps)


def _whole(unit: Unit, start: Variant) -> Iterator[Variant]:
    """Integer multipliers: one rounding, or two."""
    middles = [f"{left}mul,shr.{last}" for left, last in product(("", "shl,"), (*_ROUNDINGS, "tosa"))]
    middles += [f"{left}mulhi.{high},shr.{last}" for left, high, last in product(("", "shl,"), _HIGH, _ROUNDINGS)]
    middles += [f"pre.{pre},mul,shr.{last}" for pre, last in product(("floor", "up"), _ROUNDINGS)]
    recorded = unit.out.multiplier is not None or unit.out.shift is not None
    for number in _WHOLE_NUMBERS if recorded else _WHOLE_NUMBERS[1:]:
        for expression in _expressions(unit, most=1 if number in _SHORT else len(EXPRESSIONS)):
            multiplier = Multiplier(number=number, expression=expression)
            for middle in middles:
                yield replace(start, multiplier=multiplier, requantize=steps_of(f"{middle},zp,sat"))


def _two_stages(known: list[Variant]) -> Iterator[Variant]:
    """Combine every known program for the operands, and its roundings, with every one for the result."""
    for form_shift in dict.fromkeys((variant.form, variant.shift) for variant in known):
        same = [variant for variant in known if (variant.form, variant.shift) == form_shift]
        operands = dict.fromkeys(o for variant in same for o in _roundings_of(variant.operand))
        results = dict.fromkeys(r for variant in same for r in _roundings_of(variant.requantize))
        for multiplier in dict.fromkeys(variant.multiplier for variant in same):
            for operand, result in product(operands, results):
                yield replace(same[0], multiplier=multiplier, operand=operand, requantize=result)


def _rerounded(known: list[Variant]) -> Iterator[Variant]:
    """Give the known programs with every rounding, and with the zero point on either side of it."""
    for variant in known:
        for steps in _roundings_of(variant.requantize):
            yield replace(variant, requantize=steps)
            yield replace(variant, requantize=_swapped(steps))


def _roundings_of(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Give a program with each of its roundings replaced by every other, in all combinations."""
    ways = []
    for step in steps:
        if step.op in ("round", "shr"):
            ways.append([replace(step, rounding=rounding) for rounding in _ROUNDINGS])
        elif step.op == "mulhi":
            ways.append([replace(step, rounding=rounding) for rounding in _HIGH])
        else:
            ways.append([step])
    yield from product(*ways)


def _swapped(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Exchange a rounding and the zero point beside it."""
    out = list(steps)
    for at in range(len(out) - 1):
        if {out[at].op, out[at + 1].op} == {"round", "zp"}:
            out[at], out[at + 1] = out[at + 1], out[at]
            break
    return tuple(out)
