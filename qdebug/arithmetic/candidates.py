"""Lists the legitimate variants of each kind of unit, simplest first. Begin at `candidates`.

Every variant is an arithmetic that a backend uses or may use by design (rounding, order of operations, precision of the
multiplier, width of sums), not a bug. They are written as texts with alternatives, `<one|other>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import product
from types import MappingProxyType

import numpy as np

from qdebug.model import operators
from qdebug.model.quant import is_same_scale
from qdebug.model.thresholds.explanation import FIXED_POINT_MIN_SCALE
from qdebug.numerics.rounding import roundings_of
from qdebug.replay.interpolate import is_bilinear
from qdebug.replay.scaling import EXPRESSIONS, recorded_multiplier, scales_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant, parse_variant

__all__ = ["any_of", "candidates", "given_ratio", "given_variants", "parse_alternatives"]


def _expand_choices(text: str) -> Iterator[str]:
    """Yield a text with every combination of its alternatives, varying the last alternatives fastest."""
    parts = [part.split("|") for piece in text.split("<") for part in piece.split(">")]
    yield from map("".join, product(*parts))


def any_of(*texts: str) -> str:
    """Combine several texts, which may have alternatives, into the alternatives of a single text."""
    return f"<{'|'.join(choice for text in texts for choice in _expand_choices(text))}>"


@cache
def parse_alternatives(text: str) -> tuple[Variant, ...]:
    """Parse a text with alternatives, `<one|other>`, into the variants of all combinations of them.

    Raises:
        UsageError: A combination is not a variant.
    """
    return tuple(map(parse_variant, _expand_choices(text)))


_REAL_ROUNDINGS = roundings_of("round", "even", "away", "up", "down", "plus")
_EVEN_OR_AWAY = "<even,zp|zp,even|away,zp|zp,away>"
_NEAREST = "<even,zp|zp,even|away,zp|zp,away|up,zp|zp,up>"
_REAL_ENDS = "<div|inv>,<even,zp|zp,even|away,zp|zp,away|plus,zp>,sat"
_LEVELS = "steps=<lev|lev-fma>,even,low,sat"
_HALF = "<lev16,even|lev16-fma,half,trunc>,low,sat"
"""Endings for networks in float16: results are rounded to codes, or first to float16 and then truncated."""
_WHOLE_PROGRAMS = "<shl,mulhi.up,shr.away|shl,mulhi.up,shr.up|mul,shr.up|mul,shr.away>"
_DOUBLE_ROUNDING = "shl,mulhi.<up|trunc|away>,shr.<away|up|even|floor>"
_GLOW = "pre.floor,mul,wrap32,shr.up"
_PRODUCT_ORDERS = tuple(EXPRESSIONS)[:6]
_MEAN_ORDERS = ("x/(y*n)", "x/n/y", "xw/y", "d:xw/y")
_ONE_ORDERS = ("xw/y", "xw*(1/y)", "d:xw/y")
_PAIR_ORDERS: Mapping[str, tuple[str, ...]] = MappingProxyType({"conv": ("hwc", "chw"), "linear": ("hwc",)})


def _requantization_texts(orders: tuple[str, ...], *, unfused: bool = True) -> Iterator[str]:
    """Yield texts of the variants that convert integer sums to codes.

    Args:
        orders: Expressions of the multiplier, at least one of them in float64.
        unfused: Whether to include the conversion to real numbers, followed by a division by the output's scale.
    """
    first_order, *other_orders = orders
    precise = [order for order in orders if order.startswith("d:")]
    first_precise = precise[0]
    all_roundings = any_of(*(f"<{rounding},zp|zp,{rounding}>" for rounding in _REAL_ROUNDINGS))
    yield f"m=f32:{first_order} steps=mul,{all_roundings},sat"
    yield f"m=f32:<{'|'.join(other_orders)}> steps=mul,{_NEAREST},sat"
    yield f"m=f64:{first_precise} steps=mul,{_NEAREST},sat"
    if unfused:
        yield f"m=f32:{first_order} steps=scale,<div|inv>,{_EVEN_OR_AWAY},sat"
    single = "|".join(roundings_of("shr", "up", "away", "even", "tosa", "floor", "down"))
    single_or_double = any_of(f"mul,shr.<{single}>", _DOUBLE_ROUNDING)
    yield f"m=q31:<{'|'.join(dict.fromkeys((*precise, first_order)))}> steps={single_or_double},zp,sat"
    yield f"m=<q31t|q31e>:{first_precise} steps=<shl,mulhi.up,shr.away|mul,shr.up>,zp,sat"
    yield f"steps=mul,shr.<up|away|even>,zp,sat m=<m24:{first_order}|q24:{first_precise}>"
    yield f"m=m24s7:{first_order} steps=mulhi.up,shr.<away|up>,zp,sat"
    yield f"m=<q16|q15>:{first_precise} steps=mul,shr.<up|away|floor>,zp,sat"
    yield f"m=m15:{first_order} steps=pre.up,sat16,mulhi.up,zp,sat"
    yield f"m=glow:{first_order} steps={_GLOW},wrap32,zp,sat"
    yield f"m=pow2:{first_order} steps=shr.<up|away|even|floor>,zp,sat"


def candidates(unit: Unit) -> tuple[Variant, ...]:
    """Return all legitimate variants of a unit, simplest first."""
    return _parse_all(tuple(_TEXTS_BY_KIND[unit.kind](unit)))


@lru_cache(maxsize=256)
def _parse_all(texts: tuple[str, ...]) -> tuple[Variant, ...]:
    return tuple(dict.fromkeys(variant for text in texts for variant in parse_alternatives(text)))


def _has_one_quantization(unit: Unit) -> bool:
    """Return whether all operands have the scale and zero point of the output."""
    return all(
        is_same_scale(operand.scale, unit.out.scale) and np.array_equal(operand.zero_point, unit.out.zero_point)
        for operand in unit.operands
    )


def _has_fixed_point_scales(unit: Unit) -> bool:
    """Return whether the scales of a function of one code are powers of two that its fixed-point variants support."""
    needed = [unit.out.scale]
    if unit.operands[0].codes.dtype.itemsize > 1:
        needed.append(unit.operands[0].scale)
        if np.any(unit.operands[0].scale < FIXED_POINT_MIN_SCALE):
            return False
    return all(scale.size == 1 and bool(np.all(np.frexp(scale)[0] == 0.5)) for scale in needed)


def _product_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for convolutions and matrix products: every requantization, real biases, sums of pairs."""
    requantizations = tuple(_requantization_texts(_PRODUCT_ORDERS))
    yield from requantizations
    if unit.bias is not None:  # the bias is added as a real number, in real units or in units of the output's scale
        yield f"bias=float steps=scale,bias,{_REAL_ENDS}"
        yield "bias=float steps=scale,bias,<lev|lev-fma>,even,low,sat"
        yield f"bias=float m=f32:<{'|'.join(_PRODUCT_ORDERS[:4])}> steps=mul,bias,<even,zp|zp,even|away,zp>,sat"
    if unit.bias is not None and unit.bias.dtype.kind in "iu" and unit.bias_scale is None:
        # The bias is rounded to codes of the output, and then added to the rounded sum.
        yield "bias=codes steps=mul,<even|away|up>,bias,zp,sat"
        yield "bias=codes m=<q31|q15>:d:xw/y steps=mul,shr.<up|away|floor>,bias,zp,sat"
        yield "bias=codes m=q31:d:xw/y steps=shl,mulhi.up,shr.<away|up>,bias,zp,sat"
        yield "bias=codes m=pow2 steps=shr.up,bias,zp,sat"
    if unit.bias_scale is not None:
        yield from (
            f"bias=glow {text}"
            for text in requantizations
            if parse_alternatives(text)[0].multiplier.number in ("f32", "glow")
        )
    yield from ("form=levels-fma steps=even,sat", _LEVELS, "steps=scale,<lev|lev-fma>,even,low,sat")
    yield f"steps=scale,{_HALF}"
    if unit.bias is not None:
        yield f"bias=float steps=scale,bias,{_HALF}"
    for pairs in _pair_sums(unit):
        yield f"acc={pairs} steps=mul,<even,zp|zp,even>,sat"
        yield f"acc={pairs} form=levels-fma steps=even,sat"
    for pairs in (pairs for pairs in _pair_sums(unit) if pairs.startswith("pairsat")):
        yield f"acc={pairs} steps=scale,<div|inv>,<even,zp|zp,even>,sat"
        if unit.bias is not None:
            yield f"acc={pairs} bias=float steps=scale,bias,<div|inv>,<even,zp|zp,even>,sat"


def _pair_sums(unit: Unit) -> Iterator[str]:
    """Yield the accumulations of processors without an 8-bit dot product, which sum pairs of products in 16 bits."""
    x, weight = (operand.codes.dtype for operand in unit.operands)
    if weight != np.int8 or x.itemsize != 1 or unit.transposed:
        return
    for order in _PAIR_ORDERS[unit.kind]:
        yield f"pairsat16:{order}"
    channels = unit.operands[1].codes.shape[1]
    has_padding = np.any(unit.attrs.get("pads", 0)) or "SAME" in str(unit.attrs.get("auto_pad", ""))
    if unit.kind == "conv" and channels > 1 and (channels % 2 or has_padding):
        yield "pairsat16:tap"
    for order in _PAIR_ORDERS[unit.kind] if x == np.int8 else ():
        yield f"pairwrap16:{order}:8"


_DEQUANTIZED = f"form=<deq|deq-fma> steps={_REAL_ENDS}"
_DEQUANTIZED_LEVELS = f"form=<deq|deq-fma> {_LEVELS}"
_DEQUANTIZED_HALF = f"form=deq steps={_HALF}"
_RATIO = f"form=ratio steps={_EVEN_OR_AWAY},sat"
_DEQUANTIZED_IN_DOUBLE = f"form=deq m=f64 steps=div,{_EVEN_OR_AWAY},sat"


def _addition_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for sums and differences of two codes."""
    del unit
    yield "form=<fold-fma|fold> steps=<even|away|up>,sat"
    yield from (_DEQUANTIZED, _RATIO, _DEQUANTIZED_IN_DOUBLE, _DEQUANTIZED_LEVELS, _DEQUANTIZED_HALF)
    yield f"form=<onto-second|onto-first> {_LEVELS}"
    yield from ("form=common20 steps=shr.up,zp,sat", "form=common21 steps=shr.away,zp,sat")
    yield from ("form=common20 steps=shr.away,zp,sat", "form=common21 steps=shr.up,zp,sat")
    yield "form=fixed15 steps=mul,<zp,away|away,zp>,sat"
    yield f"form=ls shift=<20|15> m=q31:d:xw/y operand={_WHOLE_PROGRAMS} steps={_WHOLE_PROGRAMS},zp,sat"
    yield f"form=each m=glow operand={_GLOW} steps=zp,sat"
    yield f"form=each m=q31:d:xw/y operand={_WHOLE_PROGRAMS} steps=zp,sat"
    yield "form=each operand=mul,<even|away> steps=zp,sat"


def _multiplication_texts(unit: Unit) -> Iterator[str]:
    del unit
    yield from _requantization_texts(_PRODUCT_ORDERS)
    yield from (_DEQUANTIZED, _DEQUANTIZED_IN_DOUBLE, _DEQUANTIZED_LEVELS, _DEQUANTIZED_HALF)


def _division_texts(unit: Unit) -> Iterator[str]:
    del unit
    yield from (_DEQUANTIZED, _RATIO, _DEQUANTIZED_IN_DOUBLE, _DEQUANTIZED_LEVELS, _DEQUANTIZED_HALF)


def _prelu_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for PRelu, which multiplies negative numbers by a quantized slope."""
    del unit
    yield from (_DEQUANTIZED, _DEQUANTIZED_LEVELS)
    yield f"form=slopes operand={_WHOLE_PROGRAMS} m=q31:<d:xw/y|xw/y> steps=zp,sat"


def _squared_difference_texts(unit: Unit) -> Iterator[str]:
    del unit
    yield from (_DEQUANTIZED, _DEQUANTIZED_IN_DOUBLE, _DEQUANTIZED_LEVELS, _DEQUANTIZED_HALF)
    yield f"form=ls shift=7 m=q31:d:xw/y operand={_WHOLE_PROGRAMS} steps={_WHOLE_PROGRAMS},zp,sat"


def _may_count_padding(unit: Unit) -> bool:
    """Return whether the divisor of a pool may count padding."""
    has_padding = np.any(unit.attrs.get("pads", 0)) or unit.attrs.get("ceil_mode")
    has_own_pads = str(unit.attrs.get("auto_pad", "NOTSET")) in ("NOTSET", "VALID")
    return bool(unit.attrs.get("count_include_pad")) and not (has_own_pads and not has_padding)


def _mean_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for average pools and means: the count is part of the multiplier, or an integer division."""
    pool = unit.kind == "average_pool"
    yield from (f"form=real steps={_REAL_ENDS}", f"form=real {_LEVELS}")
    if pool and unit.attrs.get("ceil_mode") and unit.attrs.get("count_include_pad"):
        yield f"form=taps steps={_REAL_ENDS}"
    if pool:
        yield "form=nines steps=<div|inv>,<even,zp|zp,even>,sat"
    if pool and not _may_count_padding(unit):
        yield "form=levels-raw steps=even,zp,sat"
    yield from _requantization_texts(_MEAN_ORDERS, unfused=False)
    if not pool:
        yield f"form=offset m=q31:<x/(y*n)|d:xw/y> steps={_WHOLE_PROGRAMS},zp,sat"
        yield f"form=offset m=f32:<{'|'.join(_MEAN_ORDERS[:3])}> steps=mul,zp,even,sat"
        yield f"form=counted steps={_WHOLE_PROGRAMS},zp,sat"
    yield f"m=glow steps={_GLOW},avg.<away|up>,zp,sat"
    for rounding in ("away", "even", "up", "floor", "trunc") if _has_one_quantization(unit) else ():
        yield f"form=raw m=q31 steps=avg.{rounding},sat"
        yield f"m=q31 steps=avg.{rounding},zp,sat"


def _rescaling_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for requantizations and moved elements: codes minus zero point, times one multiplier."""
    del unit
    yield f"steps=scale,<div|inv>,{_EVEN_OR_AWAY},sat"
    yield from _requantization_texts(_ONE_ORDERS, unfused=False)
    yield from ("m=p8 steps=mul,shr.up,zp,sat", _LEVELS, f"steps=scale,{_HALF}")


def _concatenation_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for concatenations: codes minus zero point times a multiplier, or codes with a folded constant."""
    yield from _rescaling_texts(unit)
    yield "form=<fold|fold-fma> steps=<away|even>,zp,sat"


def _resize_texts(unit: Unit) -> Iterator[str]:
    if is_bilinear(unit) and _has_one_quantization(unit):
        yield "form=blend32 steps=<trunc|even|away>,sat"
        yield "form=rows32 steps=trunc,sat"
        yield "form=blend10 steps=shr.<trunc|away>,sat"
        yield "form=blend11 steps=shr.<up|away>,sat"
        yield "form=grid10 steps=shr.<away|up>,sat"
        yield "form=lerp steps=mul,<zp,even|even,zp|away,zp>,sat"
        yield "form=lerp-fma steps=mul,<zp,even|even,zp>,sat"
        if unit.out.dtype.kind == "u":
            yield "form=<corners32|weights32> steps=plus,sat"
    if is_bilinear(unit):
        yield from (f"form=real-lerp steps={_REAL_ENDS}", f"form=real-lerp {_LEVELS}")
    yield from (f"form=real steps={_REAL_ENDS}", f"form=real {_LEVELS}")
    nearest = unit.attrs.get("mode", "nearest") == "nearest"  # interpolated codes are fractions: no integer multiplier
    yield from (text for text in _rescaling_texts(unit) if nearest or parse_alternatives(text)[0].multiplier.real)


def _function_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for functions of one code: computed in float32, float64 or fixed point, or read from a table."""
    forms, is_8_bit = operators.of(unit.function).forms, unit.operands[0].codes.dtype.itemsize == 1
    yield f"form=<{'mlas|' * ('mlas' in forms)}table|table-fma|stepped> steps={_REAL_ENDS}"
    yield from (f"form=table {_LEVELS}", f"form=table steps={_HALF}")
    yield from (f"form=table m=f64 steps={_REAL_ENDS}", "form=table m=f64 steps=div,<trunc|floor>,zp,sat")
    if "fixed" in forms and _has_fixed_point_scales(unit):
        yield f"form={'fixed31' if is_8_bit else 'fixed16'} steps=shr.away,zp,sat"
    if "root31" in forms:
        yield "form=root31 steps=shl,mulhi.up,shr.<away|up>,zp,sat"
    if "hswish16" in forms and is_8_bit:
        yield "form=hswish16 steps=shr.<away|up>,zp,sat"
    if "leaky" in forms:
        yield f"form=leaky operand={_WHOLE_PROGRAMS} m=q31:<xw/y|d:xw/y> steps=zp,sat"
        yield f"form=leaky operand={_GLOW} m=glow:<xw/y|d:xw/y> steps=zp,sat"
        yield "form=leaky m=p8:<xw/y|(x/y)*w> operand=mul,shr.up steps=zp,sat"
        yield "form=leaky operand=mul,<even|away> steps=zp,sat"


def _softmax_texts(unit: Unit) -> Iterator[str]:
    if unit.operands[0].codes.dtype.itemsize == 1:
        yield "form=ort steps=even,zp,<sat|wrap>"
        if np.all(unit.out.scale == 2.0**-8):
            yield "form=exp31 steps=zp,sat"
    yield from (f"form=<exp32|exp64> steps={_REAL_ENDS}", f"form=exp32 {_LEVELS}")


def _quantization_texts(unit: Unit) -> Iterator[str]:
    """Yield texts for quantizations: by quotient or reciprocal, with the zero point added before or after rounding."""
    del unit
    for rounding in roundings_of("round", "even", "away", "up", "plus", "down", "trunc"):
        yield f"steps=<div|inv>,<{rounding},zp|zp,{rounding}>,sat"
    yield f"m=f64 steps=div,{_EVEN_OR_AWAY},sat"
    yield from ("form=levels steps=even,zp,sat", "form=levels-fma steps=even,sat")


def _dequantization_texts(unit: Unit) -> Iterator[str]:
    del unit
    yield from ("steps=scale", "form=<fold-fma|fold> steps=")


_TEXTS_BY_KIND: Mapping[str, Callable[[Unit], Iterator[str]]] = MappingProxyType(
    {
        **dict.fromkeys(("conv", "linear"), _product_texts),
        **dict.fromkeys(("add", "sub"), _addition_texts),
        **dict.fromkeys(("average_pool", "global_average_pool", "reduce_mean"), _mean_texts),
        **dict.fromkeys(("requantize", "where", "max_pool", "pad"), _rescaling_texts),
        "concat": _concatenation_texts,
        "mul": _multiplication_texts,
        "div": _division_texts,
        "prelu": _prelu_texts,
        "squared_difference": _squared_difference_texts,
        "lookup": _function_texts,
        "softmax": _softmax_texts,
        "resize": _resize_texts,
        "quantize": _quantization_texts,
        "dequantize": _dequantization_texts,
    }
)
_WITH_MULTIPLIERS = frozenset(
    {"conv", "linear", "mul", "requantize", "average_pool", "global_average_pool", "reduce_mean", "max_pool"}
)
"""Kinds of unit for which a multiplier and a shift may be recorded."""
_RECORDED_MULTIPLIER_ROUNDINGS = "|".join(roundings_of("shr", "up", "away", "even", "floor", "trunc", "down"))
_RECORDED_MULTIPLIER_PROGRAMS = (
    f"m=given steps={any_of(f'mul,shr.<{_RECORDED_MULTIPLIER_ROUNDINGS}>', _DOUBLE_ROUNDING)},zp,sat"
)


def given_variants(unit: Unit) -> tuple[Variant, ...]:
    """Return the variants that use the multiplier recorded with the output. Empty if none was recorded."""
    return () if given_ratio(unit) is None else parse_alternatives(_RECORDED_MULTIPLIER_PROGRAMS)


def given_ratio(unit: Unit) -> float | None:
    """Return the recorded multiplier divided by the quotient of the scales, or None if none was recorded.

    Of several channels, the one whose ratio is furthest from 1 counts.
    """
    recorded = recorded_multiplier(unit, scales_of(unit)) if unit.kind in _WITH_MULTIPLIERS else None
    if recorded is None:
        return None
    _, ratio = recorded
    return float(ratio.reshape(-1)[np.argmax(np.abs(np.log2(ratio)))])
