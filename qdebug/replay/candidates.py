"""The legitimate ways of computing each kind of unit, simplest first: what a search goes through.

Every entry is what some backend does or may do by design (rounding, order, precision of the multiplier, width of sums);
nothing in here is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

import numpy as np

from qdebug.model import operators
from qdebug.model.thresholds.explanation import FIXED_POINT_MIN_SCALE
from qdebug.replay.interpolate import is_bilinear
from qdebug.replay.scaling import EXPRESSIONS, Multiplier
from qdebug.replay.steps import steps_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["candidates", "real_program", "requantizations", "whole_program"]

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


_ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType({"conv": ("hwc", "chw"), "linear": ("hwc",)})


def candidates(unit: Unit) -> tuple[Variant, ...]:
    """Give all variants that a unit may legitimately be computed by, simplest first.

    Args:
        unit: The unit; its kind, dtypes and bias decide.
    """
    traits = _Traits(
        kind=unit.kind,
        function=unit.function,
        types=tuple(operand.codes.dtype for operand in unit.operands[:2]),
        bias=unit.bias is not None,
        own_bias_scale=unit.bias_scale is not None,
        whole_bias=unit.bias is not None and unit.bias.dtype.kind in "iu" and unit.bias_scale is None,
        transposed=unit.transposed,
        nearest=unit.attrs.get("mode", "nearest") == "nearest",
        linear=unit.kind == "resize" and is_bilinear(unit),
        same_quantization=_same_quantization(unit),
        beyond_padding=bool(unit.attrs.get("ceil_mode") and unit.attrs.get("count_include_pad")),
        powers_of_two=_powers_of_two(unit),
    )
    return _listed(traits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traits:
    """What of a unit decides about its candidates."""

    kind: str
    function: str
    types: tuple[np.dtype, ...]
    bias: bool
    own_bias_scale: bool
    whole_bias: bool
    transposed: bool
    nearest: bool
    linear: bool
    same_quantization: bool
    beyond_padding: bool
    powers_of_two: bool


def _same_quantization(unit: Unit) -> bool:
    """Tell whether all operands stand for real numbers as the output does."""
    return all(
        np.array_equal(operand.scale, unit.out.scale) and np.array_equal(operand.zero_point, unit.out.zero_point)
        for operand in unit.operands
    )


def _powers_of_two(unit: Unit) -> bool:
    """Tell whether a function of one code, or a softmax, has scales that fixed point can do with."""
    if unit.kind == "softmax":
        return bool(np.all(unit.out.scale == 2.0**-8))
    if unit.kind != "lookup":
        return False
    needed = [unit.out.scale]
    if unit.operands[0].codes.dtype.itemsize > 1:
        needed.append(unit.operands[0].scale)
        if np.any(unit.operands[0].scale < FIXED_POINT_MIN_SCALE):
            return False
    return all(scale.size == 1 and bool(np.all(np.frexp(scale)[0] == 0.5)) for scale in needed)


@cache
def _listed(traits: _Traits) -> tuple[Variant, ...]:
    return tuple(dict.fromkeys(_FAMILIES[traits.kind](traits)))


_PRODUCT_ORDERS = tuple(EXPRESSIONS)[:6]
_MEAN_ORDERS = ("x/(y*n)", "x/n/y", "xw/y", "d:xw/y")
_ONE_ORDERS = ("xw/y", "xw*(1/y)", "d:xw/y")
_REAL_ENDS = tuple(
    f"{last},{order}"
    for last in ("div", "inv")
    for order in ("even,zp,sat", "zp,even,sat", "away,zp,sat", "zp,away,sat", "plus,zp,sat")
)
_WHOLE_PROGRAMS = ("shl,mulhi.up,shr.away", "shl,mulhi.up,shr.up", "mul,shr.up", "mul,shr.away")
_GLOW = "pre.floor,mul,wrap32,shr.up"


_BLENDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "blend32": ("trunc,sat", "even,sat", "away,sat"),
        "rows32": ("trunc,sat",),
        "blend10": ("shr.trunc,sat", "shr.away,sat"),
        "blend11": ("shr.up,sat", "shr.away,sat"),
        "grid10": ("shr.away,sat", "shr.up,sat"),
        "lerp": ("mul,zp,even,sat", "mul,even,zp,sat", "mul,away,zp,sat"),
        "lerp-fma": ("mul,zp,even,sat", "mul,even,zp,sat"),
    }
)


def _sum_of_products(traits: _Traits) -> Iterator[Variant]:
    """Convolutions and matrix products: all requantizations on exact sums, real biases, and the sums of pairs."""
    plain = tuple(requantizations(orders=_PRODUCT_ORDERS))
    yield from plain
    if traits.bias:
        yield from _with_real_bias()
    if traits.whole_bias:
        yield from _with_late_bias()
    if traits.own_bias_scale:
        for variant in plain:
            if variant.multiplier.number in ("f32", "glow"):
                yield replace(variant, bias="glow")
    for pairs in _pairs(traits):
        for variant in plain[:2]:
            yield replace(variant, accumulate=pairs)


def _pairs(traits: _Traits) -> Iterator[str]:
    """Give the sums of pairs that processors without an 8-bit dot product make of the operands' types."""
    x, weight = traits.types
    if weight != np.int8 or x.itemsize != 1 or traits.transposed:
        return
    for order in _ORDERS[traits.kind]:
        yield f"pairsat16:{order}"
    for order in _ORDERS[traits.kind] if x == np.int8 else ():
        yield f"pairwrap16:{order}:8"


def _with_real_bias() -> Iterator[Variant]:
    """A bias that is added to real numbers, in real units or in units of the output."""
    for end in _REAL_ENDS:
        yield replace(real_program(f"scale,bias,{end}", "xw/y"), bias="float")
    for order in _PRODUCT_ORDERS[:4]:
        for end in ("even,zp,sat", "zp,even,sat", "away,zp,sat"):
            yield replace(real_program(f"mul,bias,{end}", order), bias="float")


def _with_late_bias() -> Iterator[Variant]:
    """A bias that is rounded to codes on its own, and added to what the sums were rounded to."""
    for rounding in ("even", "away", "up"):
        yield replace(real_program(f"mul,{rounding},bias,zp,sat", "xw/y"), bias="codes")
    for number in ("q31", "q15"):
        for rounding in ("up", "away", "floor"):
            yield replace(whole_program(f"mul,shr.{rounding},bias,zp,sat", number, "d:xw/y"), bias="codes")
    for rounding in ("away", "up"):
        yield replace(whole_program(f"shl,mulhi.up,shr.{rounding},bias,zp,sat", "q31", "d:xw/y"), bias="codes")
    yield replace(whole_program("shr.up,bias,zp,sat", "pow2", "xw/y"), bias="codes")


def _sums_of_two(traits: _Traits) -> Iterator[Variant]:
    """Sums and differences of two codes."""
    del traits
    for form in ("fold-fma", "fold"):
        for rounding in ("even", "away", "up"):
            yield Variant(form=form, requantize=steps_of(f"{rounding},sat"))
    yield from _madereal_program()
    for end in ("even,zp,sat", "zp,even,sat", "away,zp,sat", "zp,away,sat"):
        yield Variant(form="ratio", requantize=steps_of(end))
    yield from _made_real_in_double()
    yield Variant(form="common20", requantize=steps_of("shr.up,zp,sat"))
    yield Variant(form="common21", requantize=steps_of("shr.away,zp,sat"))
    yield Variant(form="common20", requantize=steps_of("shr.away,zp,sat"))
    yield Variant(form="common21", requantize=steps_of("shr.up,zp,sat"))
    yield Variant(form="fixed15", requantize=steps_of("mul,zp,away,sat"))
    yield Variant(form="fixed15", requantize=steps_of("mul,away,zp,sat"))
    whole = Multiplier(number="q31", expression="d:xw/y")
    for shift in (20, 15):
        for first in _WHOLE_PROGRAMS:
            for last in _WHOLE_PROGRAMS:
                yield Variant(
                    form="ls",
                    shift=shift,
                    multiplier=whole,
                    operand=steps_of(first),
                    requantize=steps_of(f"{last},zp,sat"),
                )
    yield Variant(
        form="each", multiplier=Multiplier(number="glow"), operand=steps_of(_GLOW), requantize=steps_of("zp,sat")
    )
    for first in _WHOLE_PROGRAMS:
        yield Variant(form="each", multiplier=whole, operand=steps_of(first), requantize=steps_of("zp,sat"))
    for rounding in ("even", "away"):
        yield Variant(form="each", operand=steps_of(f"mul,{rounding}"), requantize=steps_of("zp,sat"))


def _madereal_program() -> Iterator[Variant]:
    for form in ("deq", "deq-fma"):
        for end in _REAL_ENDS:
            yield Variant(form=form, requantize=steps_of(end))


def _made_real_in_double() -> Iterator[Variant]:
    for end in _REAL_ENDS[:4]:
        yield Variant(form="deq", multiplier=Multiplier(number="f64"), requantize=steps_of(end))


def _products_of_two(traits: _Traits) -> Iterator[Variant]:
    del traits
    yield from requantizations(orders=_PRODUCT_ORDERS)
    yield from _madereal_program()
    yield from _made_real_in_double()


def _quotients(traits: _Traits) -> Iterator[Variant]:
    del traits
    yield from _madereal_program()
    for end in ("even,zp,sat", "zp,even,sat", "away,zp,sat", "zp,away,sat"):
        yield Variant(form="ratio", requantize=steps_of(end))
    yield from _made_real_in_double()


def _means(traits: _Traits) -> Iterator[Variant]:
    """Average pools and means: sums requantized with the count in the multiplier, or divided as integers."""
    for end in _REAL_ENDS:
        yield Variant(form="real", requantize=steps_of(end))
    if traits.kind == "average_pool" and traits.beyond_padding:
        for end in _REAL_ENDS:
            yield Variant(form="taps", requantize=steps_of(end))
    yield from requantizations(orders=_MEAN_ORDERS, unfused=False)
    for order in ("x/(y*n)", "d:xw/y") if traits.kind != "average_pool" else ():
        for program in _WHOLE_PROGRAMS:
            multiplier = Multiplier(number="q31", expression=order)
            yield Variant(form="offset", multiplier=multiplier, requantize=steps_of(f"{program},zp,sat"))
    for order in _MEAN_ORDERS[:3] if traits.kind != "average_pool" else ():
        yield replace(real_program("mul,zp,even,sat", order), form="offset")
    for program in _WHOLE_PROGRAMS if traits.kind != "average_pool" else ():
        yield Variant(form="counted", requantize=steps_of(f"{program},zp,sat"))
    for rounding in ("away", "up"):
        yield whole_program(f"{_GLOW},avg.{rounding},zp,sat", "glow", "xw/y")
    for rounding in ("away", "even", "up", "floor", "trunc") if traits.same_quantization else ():
        yield Variant(form="raw", multiplier=Multiplier(number="q31"), requantize=steps_of(f"avg.{rounding},sat"))
        yield whole_program(f"avg.{rounding},zp,sat", "q31", "xw/y")


def _of_one_code(traits: _Traits) -> Iterator[Variant]:
    """Changes of scale, and elements that are moved: centred codes with one multiplier."""
    del traits
    ends = ("even,zp,sat", "zp,even,sat", "away,zp,sat", "zp,away,sat")
    for last in ("div", "inv"):
        for end in ends:
            yield Variant(requantize=steps_of(f"scale,{last},{end}"))
    yield from requantizations(orders=_ONE_ORDERS, unfused=False)
    yield whole_program("mul,shr.up,zp,sat", "p8", "xw/y")


def _resized(traits: _Traits) -> Iterator[Variant]:
    if traits.linear and traits.same_quantization:
        for form, ends in _BLENDS.items():
            for end in ends:
                yield Variant(form=form, requantize=steps_of(end))
    for end in _REAL_ENDS:
        yield Variant(form="real", requantize=steps_of(end))
    # Interpolated codes are no whole numbers.
    yield from (variant for variant in _of_one_code(traits) if traits.nearest or variant.multiplier.real)


def _functions(traits: _Traits) -> Iterator[Variant]:
    """Functions of one code: of its real value in two precisions, from a drifting or approximated table."""
    own = operators.of(traits.function).forms
    for form in (*(("mlas",) if "mlas" in own else ()), "table", "table-fma", "stepped"):
        for end in _REAL_ENDS:
            yield Variant(form=form, requantize=steps_of(end))
    for end in (*_REAL_ENDS, "div,trunc,zp,sat", "div,floor,zp,sat"):
        yield Variant(form="table", multiplier=Multiplier(number="f64"), requantize=steps_of(end))
    if "fixed" in own and traits.powers_of_two:
        form = "fixed31" if traits.types[0].itemsize == 1 else "fixed16"
        yield Variant(form=form, requantize=steps_of("shr.away,zp,sat"))
    if "hswish16" in own and traits.types[0].itemsize == 1:
        for rounding in ("away", "up"):
            yield Variant(form="hswish16", requantize=steps_of(f"shr.{rounding},zp,sat"))
    if "leaky" in own:
        for program in (*_WHOLE_PROGRAMS, _GLOW):
            number = Multiplier(number="glow" if program == _GLOW else "q31", expression="xw/y")
            for order in ("xw/y", "d:xw/y"):
                multiplier = replace(number, expression=order)
                yield Variant(
                    form="leaky", multiplier=multiplier, operand=steps_of(program), requantize=steps_of("zp,sat")
                )
        for order in ("xw/y", "(x/y)*w"):
            multiplier = Multiplier(number="p8", expression=order)
            yield Variant(
                form="leaky", multiplier=multiplier, operand=steps_of("mul,shr.up"), requantize=steps_of("zp,sat")
            )
        for rounding in ("even", "away"):
            yield Variant(form="leaky", operand=steps_of(f"mul,{rounding}"), requantize=steps_of("zp,sat"))


def _probabilities(traits: _Traits) -> Iterator[Variant]:
    for end in ("sat", "wrap") if traits.types[0].itemsize == 1 else ():
        yield Variant(form="ort", requantize=steps_of(f"even,zp,{end}"))
    if traits.types[0].itemsize == 1 and traits.powers_of_two:
        yield Variant(form="exp31", requantize=steps_of("zp,sat"))
    for form in ("exp32", "exp64"):
        for end in _REAL_ENDS:
            yield Variant(form=form, requantize=steps_of(end))


def _quantized(traits: _Traits) -> Iterator[Variant]:
    """Real numbers made codes; the zero point before or after rounding, by quotient or by reciprocal."""
    del traits
    for rounding in ("even", "away", "up", "plus", "down", "trunc", "floor"):
        for last in ("div", "inv"):
            yield Variant(requantize=steps_of(f"{last},{rounding},zp,sat"))
            yield Variant(requantize=steps_of(f"{last},zp,{rounding},sat"))
    double = Multiplier(number="f64")
    for rounding in ("even", "away"):
        yield Variant(multiplier=double, requantize=steps_of(f"div,{rounding},zp,sat"))
        yield Variant(multiplier=double, requantize=steps_of(f"div,zp,{rounding},sat"))


def _made_real_alone(traits: _Traits) -> Iterator[Variant]:
    """Codes made real numbers."""
    del traits
    yield Variant(requantize=steps_of("scale"))
    for form in ("fold-fma", "fold"):
        yield Variant(form=form, requantize=())


_FAMILIES: Mapping[str, Callable[[_Traits], Iterator[Variant]]] = MappingProxyType(
    {
        **dict.fromkeys(("conv", "linear"), _sum_of_products),
        **dict.fromkeys(("add", "sub"), _sums_of_two),
        **dict.fromkeys(("average_pool", "global_average_pool", "reduce_mean"), _means),
        **dict.fromkeys(("requantize", "concat", "where", "max_pool", "pad"), _of_one_code),
        "mul": _products_of_two,
        "div": _quotients,
        "lookup": _functions,
        "softmax": _probabilities,
        "resize": _resized,
        "quantize": _quantized,
        "dequantize": _made_real_alone,
    }
)
