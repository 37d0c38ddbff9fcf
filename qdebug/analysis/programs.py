"""Step programs beyond the known ones: a bounded grammar that a search goes through before it gives up.

Real multipliers: scale, round and add the zero point in any order, cut off by saturation or by wrapping around. Integer
multipliers: an optional shift left, a product kept in part or whole, one or two roundings, and a saturation to 16 bits
or the zero point in any place. Operators on two operands combine a program for the operands with one for the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from qdebug.replay.candidates import candidates
from qdebug.replay.unit import Unit
from qdebug.replay.variant import EXPRESSIONS, Multiplier, Step, Sums, Variant, steps_of

__all__ = ["programs"]

_ROUNDINGS = ("even", "away", "up", "down", "floor", "trunc")
_REAL = ("mul", "scale,div", "scale,inv")
_WHOLE_NUMBERS = ("q31", "q31t", "q31e", "m24", "m24s7", "q24", "q16", "q15", "glow")
_HIGH = ("up", "away", "trunc", "floor")
_ENDS = ("zp,sat", "sat16,zp,sat", "zp,wrap", "sat", "sat,zp,wrap")


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
    start = replace(known[0], operand=(), shift=0) if not known[0].operand else known[0]
    if sums.columns == "sum":
        yield from _real(start)
        yield from _whole(start)
    else:
        yield from _endings(known)


def _real(start: Variant) -> Iterator[Variant]:
    """Real multipliers: where the zero point is added, how it is rounded, how it ends."""
    for number, expression in product(("f32", "f64"), EXPRESSIONS):
        multiplier = Multiplier(number=number, expression=expression)
        for scaling, rounding in product(_REAL, (*_ROUNDINGS, "plus")):
            for text in ("zp,{},sat", "{},zp,sat", "{},sat", "zp,{},wrap", "{},zp,wrap"):
                yield replace(start, multiplier=multiplier, requantize=steps_of(f"{scaling},{text.format(rounding)}"))


def _whole(start: Variant) -> Iterator[Variant]:
    """Integer multipliers: one rounding, or two."""
    for number, expression in product(_WHOLE_NUMBERS, EXPRESSIONS):
        multiplier = Multiplier(number=number, expression=expression)
        middles = [f"{left}mul,shr.{rounding}" for left in ("", "shl,") for rounding in (*_ROUNDINGS, "tosa")]
        middles += [
            f"{left}mulhi.{high},shr.{rounding}" for left, high, rounding in product(("", "shl,"), _HIGH, _ROUNDINGS)
        ]
        middles += [f"pre.{pre},mul,{wrap}shr.{rounding}" for pre, wrap, rounding in
                    product(("floor", "up"), ("", "wrap32,"), _ROUNDINGS)]  # fmt: skip
        for middle, end in product(middles, _ENDS):
            yield replace(start, multiplier=multiplier, requantize=steps_of(f"{middle},{end}"))


def _two_stages(known: list[Variant]) -> Iterator[Variant]:
    """Combine every known program for the operands, and its roundings, with every one for the result."""
    for form_shift in dict.fromkeys((variant.form, variant.shift) for variant in known):
        same = [variant for variant in known if (variant.form, variant.shift) == form_shift]
        operands = dict.fromkeys(o for variant in same for o in _roundings_of(variant.operand))
        results = dict.fromkeys(r for variant in same for r in _roundings_of(variant.requantize))
        for multiplier in dict.fromkeys(variant.multiplier for variant in same):
            for operand, result in product(operands, results):
                yield replace(same[0], multiplier=multiplier, operand=operand, requantize=result)


def _endings(known: list[Variant]) -> Iterator[Variant]:
    """Give the known programs of a form with every rounding, and with the zero point on either side of it."""
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
