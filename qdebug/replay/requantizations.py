"""The ways of turning integer sums into codes, simplest first: multiplier, rounding and the place of the zero point."""

from __future__ import annotations

from collections.abc import Iterator

from qdebug.replay.variant import Multiplier, Variant, steps_of

__all__ = ["real_program", "requantizations", "whole_program"]

_REAL_ROUNDINGS = ("even", "away", "up", "down", "plus", "floor", "trunc")
_SINGLE = ("up", "away", "even", "tosa", "floor", "down", "trunc")


def requantizations(*, orders: tuple[str, ...], unfused: bool = True) -> Iterator[Variant]:
    """Give the ways of turning integer sums into codes.

    Args:
        orders: Expressions of the multiplier to go through.
        unfused: Whether to include scaling to real units and dividing by the output's scale after.
    """
    first = orders[0]
    for rounding in _REAL_ROUNDINGS:
        yield real_program(f"mul,{rounding},zp,sat", first)
        yield real_program(f"mul,zp,{rounding},sat", first)
    for order in orders[1:]:
        for rounding in ("even", "away", "up"):
            yield real_program(f"mul,{rounding},zp,sat", order)
            yield real_program(f"mul,zp,{rounding},sat", order)
    for rounding in ("even", "away", "up"):
        yield real_program(f"mul,{rounding},zp,sat", _double(orders), "f64")
        yield real_program(f"mul,zp,{rounding},sat", _double(orders), "f64")
    if unfused:
        for last in ("div", "inv"):
            for rounding in ("even", "away"):
                yield real_program(f"scale,{last},{rounding},zp,sat", first)
                yield real_program(f"scale,{last},zp,{rounding},sat", first)
    yield from _fixed_point(orders)


def _fixed_point(orders: tuple[str, ...]) -> Iterator[Variant]:
    """Give the ways with an integer multiplier: one or two roundings, several widths."""
    precise = [order for order in orders if order.startswith("d:")] or [orders[0]]
    for order in dict.fromkeys((*precise, orders[0])):
        for rounding in _SINGLE:
            yield whole_program(f"mul,shr.{rounding},zp,sat", "q31", order)
        for high in ("up", "trunc", "away"):
            for rounding in ("away", "up", "even", "floor"):
                yield whole_program(f"shl,mulhi.{high},shr.{rounding},zp,sat", "q31", order)
    for number in ("q31t", "q31e"):
        yield whole_program("shl,mulhi.up,shr.away,zp,sat", number, precise[0])
        yield whole_program("mul,shr.up,zp,sat", number, precise[0])
    for rounding in ("up", "away", "even"):
        yield whole_program(f"mul,shr.{rounding},zp,sat", "m24", orders[0])
        yield whole_program(f"mul,shr.{rounding},zp,sat", "q24", precise[0])
    for rounding in ("away", "up"):
        yield whole_program(f"mulhi.up,shr.{rounding},zp,sat", "m24s7", orders[0])
    for number in ("q16", "q15"):
        for rounding in ("up", "away", "floor"):
            yield whole_program(f"mul,shr.{rounding},zp,sat", number, precise[0])
    yield whole_program("pre.up,sat16,mulhi.up,zp,sat", "m15", orders[0])
    yield whole_program("pre.floor,mul,wrap32,shr.up,wrap32,zp,sat", "glow", orders[0])
    for rounding in ("up", "away", "even", "floor"):
        yield whole_program(f"shr.{rounding},zp,sat", "pow2", orders[0])


def _double(orders: tuple[str, ...]) -> str:
    return next((order for order in orders if order.startswith("d:")), orders[0])


def real_program(steps: str, expression: str, number: str = "f32") -> Variant:
    """Give the variant of a program and its multiplier."""
    return Variant(multiplier=Multiplier(number=number, expression=expression), requantize=steps_of(steps))


def whole_program(steps: str, number: str, expression: str) -> Variant:
    """Give the variant of a program with an integer multiplier."""
    return real_program(steps, expression, number)
