"""The legitimate ways of computing each kind of unit, simplest first: what a search goes through.

Every entry is what some backend does or may do by design (rounding, order, precision of the multiplier, width of sums);
nothing in here is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from qdebug.replay.unit import Unit
from qdebug.replay.variant import EXPRESSIONS, Multiplier, Variant, steps_of

__all__ = ["candidates", "requantizations"]

_REAL_ROUNDINGS = ("even", "away", "up", "down", "plus", "floor", "trunc")
_SINGLE = ("up", "away", "even", "tosa", "floor", "down", "trunc")
_PAIRS = ("pairsat16:hwc", "pairsat16:chw", "pairwrap16:hwc", "pairwrap16:chw", "pairwrap16:hwc:8", "pairwrap16:chw:8")


def candidates(unit: Unit) -> tuple[Variant, ...]:
    """Give all variants that a unit may legitimately be computed by, simplest first.

    Args:
        unit: The unit; its kind, dtypes and bias decide.
    """
    return tuple(dict.fromkeys(_FAMILIES[unit.kind](unit)))


def requantizations(*, orders: tuple[str, ...], unfused: bool = True) -> Iterator[Variant]:
    """Give the ways of turning integer sums into codes.

    Args:
        orders: Expressions of the multiplier to go through.
        unfused: Whether to include scaling to real units and dividing by the output's scale after.
    """
    first = orders[0]
    for rounding in _REAL_ROUNDINGS:
        yield _real(f"mul,{rounding},zp,sat", first)
        yield _real(f"mul,zp,{rounding},sat", first)
    for order in orders[1:]:
        for rounding in ("even", "away", "up"):
            yield _real(f"mul,{rounding},zp,sat", order)
            yield _real(f"mul,zp,{rounding},sat", order)
    for rounding in ("even", "away", "up"):
        yield _real(f"mul,{rounding},zp,sat", _double(orders), "f64")
        yield _real(f"mul,zp,{rounding},sat", _double(orders), "f64")
    if unfused:
        for last in ("div", "inv"):
            for rounding in ("even", "away"):
                yield _real(f"scale,{last},{rounding},zp,sat", first)
                yield _real(f"scale,{last},zp,{rounding},sat", first)
    yield from _fixed_point(orders)


def _fixed_point(orders: tuple[str, ...]) -> Iterator[Variant]:
    """Give the ways with an integer multiplier: one or two roundings, several widths."""
    precise = [order for order in orders if order.startswith("d:")] or [orders[0]]
    for order in dict.fromkeys((*precise, orders[0])):
        for rounding in _SINGLE:
            yield _whole(f"mul,shr.{rounding},zp,sat", "q31", order)
        for high in ("up", "trunc", "away"):
            for rounding in ("away", "up", "even", "floor"):
                yield _whole(f"shl,mulhi.{high},shr.{rounding},zp,sat", "q31", order)
    for number in ("q31t", "q31e"):
        yield _whole("shl,mulhi.up,shr.away,zp,sat", number, precise[0])
        yield _whole("mul,shr.up,zp,sat", number, precise[0])
    for rounding in ("up", "away", "even"):
        yield _whole(f"mul,shr.{rounding},zp,sat", "m24", orders[0])
        yield _whole(f"mul,shr.{rounding},zp,sat", "q24", precise[0])
    for rounding in ("away", "up"):
        yield _whole(f"mulhi.up,shr.{rounding},zp,sat", "m24s7", orders[0])
    for number in ("q16", "q15"):
        for rounding in ("up", "away", "floor"):
            yield _whole(f"mul,shr.{rounding},zp,sat", number, precise[0])
    yield _whole("pre.floor,mul,wrap32,shr.up,wrap32,zp,sat", "glow", orders[0])
    for rounding in ("up", "away", "even", "floor"):
        yield _whole(f"shr.{rounding},zp,sat", "pow2", orders[0])


def _double(orders: tuple[str, ...]) -> str:
    return next((order for order in orders if order.startswith("d:")), orders[0])


def _real(steps: str, expression: str, number: str = "f32") -> Variant:
    return Variant(multiplier=Multiplier(number=number, expression=expression), requantize=steps_of(steps))


def _whole(steps: str, number: str, expression: str) -> Variant:
    return _real(steps, expression, number)


_PRODUCT_ORDERS = EXPRESSIONS[:6]


def _sum_of_products(unit: Unit) -> Iterator[Variant]:
    """Convolutions and matrix products: all requantizations on exact sums."""
    del unit
    yield from requantizations(orders=_PRODUCT_ORDERS)


_FAMILIES: Mapping[str, Callable[[Unit], Iterator[Variant]]] = MappingProxyType(
    {
        "conv": _sum_of_products,
        "linear": _sum_of_products,
    }
)
