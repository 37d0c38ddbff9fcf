"""Multipliers of requantizations: the expressions that compute them, and the number formats that store them.

Each expression and each number format is one row of `EXPRESSIONS` or `NUMBERS`, with its description and its function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType

import ml_dtypes
import numpy as np

from qdebug.numerics.fixedpoint import (
    glow_parameters,
    mantissa_multiplier,
    power_of_two,
    quantize_multiplier,
    round_values,
    shift_right,
)
from qdebug.replay.unit import PAIRS, Unit
from qdebug.replay.within import normalize_axis
from qdebug.replay.words import refuse, refuse_unless

__all__ = [
    "EXPRESSIONS",
    "GIVEN",
    "NUMBERS",
    "WIDTHS",
    "Expression",
    "Fixed",
    "Multiplier",
    "Number",
    "Scales",
    "fixed_multiplier",
    "float_multiplier",
    "integer_multiplier",
    "multiplier_value",
    "number_format",
    "real_multiplier",
    "recorded_multiplier",
    "reshape_to_broadcast",
    "scales_of",
    "sum_scale",
]

GIVEN = "given"
"""The number format of a recorded multiplier."""


def reshape_to_broadcast(values: np.ndarray, shape: tuple[int, ...], axis: int, block: int = 0) -> np.ndarray:
    """Reshape scales or zero points to broadcast to a tensor.

    Args:
        values: One value, one per element along `axis`, or one per block.
        shape: The tensor's shape.
        axis: Axis of the values.
        block: Elements along `axis` that share a value; 0 if not block-wise.

    Raises:
        ValueError: The values do not match an axis of the tensor.
    """
    if values.ndim == 0:
        return values
    if block:
        if values.ndim != len(shape):
            raise ValueError(f"scales of shape {list(values.shape)} do not match shape {list(shape)}")
        axis = normalize_axis(axis, len(shape))
        repeated = np.repeat(values, min(block, shape[axis]), axis=axis)  # a block may be longer than the axis
        return repeated[tuple(slice(0, n) for n in shape)]
    if values.size == 1:
        return values.reshape(())
    line = [1] * len(shape)
    line[normalize_axis(axis, len(shape))] = values.size
    return values.reshape(line)


_ONE = np.ones((), np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scales:
    """The scales that a multiplier is computed from; each broadcasts to the output.

    Args:
        x: Scale of the first operand.
        w: Scale of the second operand; 1 without one.
        y: Scale of the output.
        n: Number of averaged elements; 1 without an average.
    """

    x: np.ndarray
    w: np.ndarray
    y: np.ndarray
    n: np.ndarray

    def single(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return all four in float32."""
        return tuple(a.astype(np.float32) for a in (self.x, self.w, self.y, self.n))  # type: ignore[return-value]

    def double(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return all four in float64."""
        return tuple(a.astype(np.float64) for a in (self.x, self.w, self.y, self.n))  # type: ignore[return-value]


def scales_of(unit: Unit, count: np.ndarray | None = None, member: np.ndarray | None = None) -> Scales:
    """Return the scales of a unit, broadcasting to its output with channels first.

    Args:
        unit: The unit.
        count: Number of averaged elements.
        member: Operand index of each element, for joined tensors.
    """
    operand_scales = [operand.scale for operand in unit.operands]
    n = _ONE if count is None else np.asarray(count)
    if member is not None:
        x = np.stack([scale.reshape(()) for scale in operand_scales])[member]
        return Scales(x=x, w=_ONE, y=unit.out.scale, n=n)
    x = operand_scales[0] if operand_scales else _ONE
    w = operand_scales[1] if unit.kind in ("conv", "linear", *PAIRS) else _ONE
    if unit.kind == "conv" and w.size > 1:
        groups = unit.groups if unit.transposed else 1
        w = np.tile(w.reshape(-1), groups).reshape(-1, *(1,) * (unit.operands[0].codes.ndim - 2))
    return Scales(x=x, w=w, y=unit.out.scale, n=n)


def _formula_in_float64(form: Callable[..., np.ndarray]) -> Callable[[Scales], np.ndarray]:
    return lambda s: form(*s.double())


def _formula_in_float32(form: Callable[..., np.ndarray]) -> Callable[[Scales], np.ndarray]:
    return lambda s: np.asarray(form(*s.single()), dtype=np.float32)


def _product_single(s: Scales) -> np.ndarray:
    x, w, _, _ = s.single()
    return np.asarray(np.asarray(x * w, np.float32).astype(np.float64) / s.y.astype(np.float64) / s.n)


@dataclass(frozen=True, slots=True)
class Expression:
    """An order of operations that computes the real multiplier.

    Args:
        words: Its description.
        formula: Computes x w / (y n) in float32 or float64, broadcasting to the output.
    """

    words: str
    formula: Callable[[Scales], np.ndarray]


EXPRESSIONS: Mapping[str, Expression] = MappingProxyType(
    {
        "xw/y": Expression("", _formula_in_float32(lambda x, w, y, n: x * w / y / n)),
        "x*(w/y)": Expression(
            "input scale times (weight scale / output scale)", _formula_in_float32(lambda x, w, y, n: x * (w / y) / n)
        ),
        "(x/y)*w": Expression(
            "(input scale / output scale) times weight scale", _formula_in_float32(lambda x, w, y, n: x / y * w / n)
        ),
        "xw*(1/y)": Expression(
            "product of scales times the reciprocal of the output's",
            _formula_in_float32(lambda x, w, y, n: x * w * (1 / y) / n),
        ),
        "d:xw/y": Expression("quotient of scales in float64", _formula_in_float64(lambda x, w, y, n: x * w / y / n)),
        "d:f(xw)/y": Expression("float32 product of scales divided in float64", _product_single),
        "x/(y*n)": Expression(
            "input scale / (output scale times count)", _formula_in_float32(lambda x, w, y, n: x * w / (y * n))
        ),
        "x/n/y": Expression(
            "input scale / count / output scale", _formula_in_float32(lambda x, w, y, n: x * w / n / y)
        ),
    }
)
"""Orders of operations that compute the real multiplier from the scales of input, weight and output.

Expressions that begin with `d:` use float64, the second of them on a float32 product. All others round each operation
to float32. An average over n elements divides by n last, except in the two expressions with n.
"""


def real_multiplier(scales: Scales, expression: str) -> np.ndarray:
    """Compute x w / (y n) in a given order.

    Returns:
        float32, or float64 for the expressions that begin with `d:`; broadcasts to the output.
    """
    return EXPRESSIONS[expression].formula(scales)


def sum_scale(scales: Scales) -> np.ndarray:
    """Return the scale of integer sums: the product x w, rounded to float32."""
    x, w, _, _ = scales.single()
    return np.asarray(x * w, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fixed:
    """An integer multiplier: real ~ multiplier * 2**-(pre + bits - exponent).

    Args:
        multiplier: The integers; each array broadcasts to the output.
        bits: Fractional bits.
        exponent: Its power of two.
        pre: Bits by which values are shifted right before the product.
    """

    multiplier: np.ndarray
    bits: int
    exponent: np.ndarray
    pre: np.ndarray


def _make_significand_rounding(bits: int, rounding: str = "away") -> Callable[[np.ndarray], Fixed]:
    """Return a function that rounds to a significand with the given number of bits."""

    def round_to_significand(real: np.ndarray) -> Fixed:
        multiplier, exponent = quantize_multiplier(real, bits=bits, rounding=rounding)
        return Fixed(multiplier=multiplier, bits=bits, exponent=exponent, pre=np.zeros(real.shape, np.int64))

    return round_to_significand


def _float32_mantissa(real: np.ndarray, widened: int = 0) -> Fixed:
    """Return the significand of a float32, shifted left by the given number of bits."""
    multiplier, exponent = mantissa_multiplier(real)
    zeros = np.zeros(real.shape, np.int64)
    return Fixed(multiplier=multiplier << widened, bits=24 + widened, exponent=exponent, pre=zeros)


def _upper_mantissa(real: np.ndarray) -> Fixed:
    multiplier, exponent = mantissa_multiplier(real)
    upper = np.minimum(shift_right(multiplier, 9, "up"), 2**15 - 1)
    return Fixed(multiplier=upper, bits=15, exponent=np.zeros(real.shape, np.int64), pre=-exponent)


def _in_256ths(real: np.ndarray) -> Fixed:
    whole, zeros = np.rint(real.astype(np.float64) * 256).astype(np.int64), np.zeros(real.shape, np.int64)
    return Fixed(multiplier=whole, bits=8, exponent=zeros, pre=zeros)


def _glow_multiplier(real: np.ndarray) -> Fixed:
    pre, post, multiplier = glow_parameters(real)
    return Fixed(multiplier=multiplier, bits=0, exponent=-post, pre=pre)


def _power_of_two_multiplier(real: np.ndarray) -> Fixed:
    zeros = np.zeros(real.shape, np.int64)
    return Fixed(multiplier=zeros + 1, bits=0, exponent=power_of_two(real), pre=zeros)


@dataclass(frozen=True, slots=True)
class Number:
    """A number format of multipliers.

    Args:
        words: Its description.
        integers: Computes the integers of real multipliers; None for floating point.
        search_orders: Expressions that a search for unknown programs combines with this format: "all", "one" if the
            numbers are so short that the order rarely matters, or "" to skip the format.
        equivalent_to: The format that stands for this one if both give the same integers; empty if none.
        float_dtype: Dtype of a floating-point number; None for integers.
    """

    words: str
    integers: Callable[[np.ndarray], Fixed] | None = None
    search_orders: str = ""
    equivalent_to: str = ""
    float_dtype: np.dtype | None = None


NUMBERS: Mapping[str, Number] = MappingProxyType(
    {
        "f32": Number("float32 multiplier", float_dtype=np.dtype(np.float32)),
        "f64": Number("float64 multiplier", float_dtype=np.dtype(np.float64)),
        "f16": Number("float16 multiplier", float_dtype=np.dtype(np.float16)),
        "bf16": Number("bfloat16 multiplier", float_dtype=np.dtype(ml_dtypes.bfloat16)),
        "q31": Number("31-bit multiplier", _make_significand_rounding(31), "all"),
        "q31t": Number("truncated 31-bit multiplier", _make_significand_rounding(31, "trunc"), "all", "q31"),
        "q31e": Number("31-bit multiplier rounded to even", _make_significand_rounding(31, "even"), "all", "q31"),
        "m24": Number("24-bit multiplier", _float32_mantissa, "one"),
        "m24s7": Number("24-bit multiplier widened to 31 bits", partial(_float32_mantissa, widened=7), "one"),
        "m15": Number("15-bit multiplier on 16-bit values", _upper_mantissa),
        "q24": Number("24-bit multiplier of the exact quotient", _make_significand_rounding(24), "one", "m24"),
        "q16": Number("16-bit multiplier", _make_significand_rounding(16), "one"),
        "q15": Number("15-bit multiplier", _make_significand_rounding(15), "one"),
        "q15t": Number("truncated 15-bit multiplier", _make_significand_rounding(15, "trunc"), "one"),
        "q8": Number("8-bit multiplier", _make_significand_rounding(8), "one"),
        "q8t": Number("truncated 8-bit multiplier", _make_significand_rounding(8, "trunc"), "one"),
        "q7": Number("7-bit multiplier", _make_significand_rounding(7), "one"),
        "p8": Number("multiplier in 256ths", _in_256ths),
        "glow": Number("8-bit multiplier between two shifts", _glow_multiplier, "one"),
        "pow2": Number("nearest power of two", _power_of_two_multiplier),
        GIVEN: Number("recorded multiplier and shift", _make_significand_rounding(31), "one"),
    }
)
"""Number formats of multipliers that are tried one by one; `number_format` knows significands of other widths too.

f32, f64: floating point. f16, bf16: a 16-bit float, multiplied in float32. q31, q24, q16, q15, q8, q7: a significand of
that many bits, rounded with ties away from zero (q31t, q15t, q8t: truncated, q31e: ties to even). m24: the 24 bits of a
float32's significand; m24s7: the same shifted left by 7. m15: its upper 15 bits, with the whole shift before the
product. p8: a whole number of 256ths. glow: the 8 to 9 bits and two shifts that Glow's quantizeScaleOffset32To8 finds.
pow2: the nearest power of two, as a shift. given: the multiplier and shift that were recorded with the output; q31 if
none were recorded.
"""

WIDTHS = range(2, 33)
"""Bits that a significand may have."""
_LARGEST_LIMIT = 62
_LARGEST_PRE = 30
_SIGNIFICAND = re.compile(r"q([1-9][0-9]?)([te]?)")
_SIGNIFICAND_ROUNDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "": ("away", "{}-bit multiplier"),
        "t": ("trunc", "truncated {}-bit multiplier"),
        "e": ("even", "{}-bit multiplier rounded to even"),
    }
)


def _parse_significand(name: str) -> tuple[int, str] | None:
    """Return the bits of a significand and their rounding from a word such as q12 or q12t, or None for another word."""
    word = _SIGNIFICAND.fullmatch(name)
    if word is None or int(word[1]) not in WIDTHS:
        return None
    return int(word[1]), _SIGNIFICAND_ROUNDINGS[word[2]][0]


@lru_cache(maxsize=256)
def number_format(name: str) -> Number:
    """Return the number format of a word: a row of `NUMBERS`, or a significand of 2 to 32 bits such as q12 or q12t.

    Raises:
        UsageError: The word is unknown.
    """
    row, significand = NUMBERS.get(name), _parse_significand(name)
    if row is not None:
        return row
    if significand is None:
        refuse("multiplier", name, (*NUMBERS, f"q{WIDTHS[0]} to q{WIDTHS[-1]}"))
    words = _SIGNIFICAND_ROUNDINGS[name.lstrip("q0123456789")][1].format(significand[0])
    return Number(words, _make_significand_rounding(*significand))


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Multiplier:
    """How the real multiplier is computed from scales, and the format in which it is stored.

    Args:
        number: A word of `number_format`.
        expression: One of `EXPRESSIONS`.
        shifts: Smallest and largest right shift of the product that the hardware supports; empty for any shift. Only
            for significands such as q12. A multiplier below the range loses bits; one above it saturates at all ones.
        pre: Bits by which sums are shifted right before the product, by the step `pre`. Only for significands.

    Raises:
        UsageError: A word is unknown, or a shift is out of range or not supported by the number.
    """

    number: str = "f32"
    expression: str = "xw/y"
    shifts: tuple[int, ...] = ()
    pre: int = 0

    def __post_init__(self) -> None:
        number_format(self.number)
        refuse_unless("expression", self.expression, EXPRESSIONS)
        if (self.shifts or self.pre) and _parse_significand(self.number) is None:
            refuse("multiplier with limited shifts", self.number, (f"q{WIDTHS[0]} to q{WIDTHS[-1]}",))
        if self.shifts and not (len(self.shifts) == 2 and 0 <= self.shifts[0] <= self.shifts[1] <= _LARGEST_LIMIT):
            refuse("range of shifts", "..".join(map(str, self.shifts)), (f"LO..HI from 0 to {_LARGEST_LIMIT}",))
        if not 0 <= self.pre <= _LARGEST_PRE:
            refuse("shift before the product", str(self.pre), (f"0 to {_LARGEST_PRE}",))

    def __str__(self) -> str:
        limits = f" shift={self.shifts[0]}..{self.shifts[1]}" if self.shifts else ""
        return f"{self.number}:{self.expression}{limits}{f' pre={self.pre}' if self.pre else ''}"

    @property
    def words(self) -> str:
        """A description of the number format and its shifts."""
        parts = [number_format(self.number).words]
        if self.shifts:
            parts.append(f"shifts of {self.shifts[0]} to {self.shifts[1]} bits")
        if self.pre:
            parts.append(f"sums shifted right by {self.pre} bits before the product")
        return ", ".join(parts)

    @property
    def bits(self) -> int | None:
        """Bits of its significand, or None for another number format."""
        significand = _parse_significand(self.number)
        return None if significand is None else significand[0]

    @property
    def real(self) -> bool:
        """Whether it is a floating-point number."""
        return number_format(self.number).float_dtype is not None

    @property
    def dtype(self) -> type[np.generic]:
        """The dtype of a program's numbers: float32, float64, or int64 with an integer multiplier."""
        if not self.real:
            return np.int64
        return np.float64 if self.number == "f64" else np.float32


def float_multiplier(real: np.ndarray, number: str) -> np.ndarray:
    """Round a real multiplier to its floating-point format.

    Args:
        real: Result of `real_multiplier`.
        number: A floating-point format of `NUMBERS`.

    Returns:
        float64 for the format f64, else float32, which holds the narrower formats exactly.
    """
    dtype = number_format(number).float_dtype
    return np.asarray(real.astype(dtype).astype(np.float64 if dtype == np.float64 else np.float32))


def fixed_multiplier(real: np.ndarray, number: str) -> Fixed:
    """Return the integers of a real multiplier.

    Args:
        real: Finite numbers above 0.
        number: An integer format of `NUMBERS`.

    Raises:
        ValueError: The format is floating-point.
        UsageError: A multiplier is not finite, or is not positive although the format requires it.
    """
    integers = number_format(number).integers
    if integers is None:
        raise ValueError(f"{number} is not an integer multiplier")
    return integers(real)


def integer_multiplier(unit: Unit, scales: Scales, multiplier: Multiplier) -> Fixed:
    """Return the integers of a unit's multiplier; the recorded integers if requested and known.

    Backends record an integer multiplier and its shift in several ways: as one product with a shift of all bits (TOSA,
    CMSIS), or as a fraction of 31 or 15 bits with a further shift, to the right or to the left (gemmlowp, TensorFlow
    Lite). The interpretation closest to the quotient of the recorded scales is used.

    Args:
        unit: The unit.
        scales: Its scales.
        multiplier: An integer multiplier.

    Raises:
        UsageError: A multiplier is not finite, or is not positive although the format requires it.
    """
    if multiplier.shifts or multiplier.pre:
        return _fit_to_shifts(real_multiplier(scales, multiplier.expression), multiplier)
    if multiplier.number != GIVEN:
        return fixed_multiplier(real_multiplier(scales, multiplier.expression), multiplier.number)
    recorded = recorded_multiplier(unit, scales)
    return fixed_multiplier(real_multiplier(scales, "d:xw/y"), GIVEN) if recorded is None else recorded[0]


def _fit_to_shifts(real: np.ndarray, multiplier: Multiplier) -> Fixed:
    """Return the integers of a significand for hardware with a limited shift or a shift before the product."""
    plain, significand = fixed_multiplier(real, multiplier.number), _parse_significand(multiplier.number)
    if significand is None:
        raise ValueError(f"{multiplier.number} is not a significand")
    pre = np.full(real.shape, multiplier.pre, np.int64)
    if not multiplier.shifts:
        return Fixed(multiplier=plain.multiplier, bits=plain.bits, exponent=plain.exponent + pre, pre=pre)
    bits, rounding = significand
    shift = np.clip(bits - plain.exponent - pre, multiplier.shifts[0], multiplier.shifts[1])
    whole = round_values(np.ldexp(real.astype(np.float64), (shift + pre).astype(np.int32)), rounding)
    integers = np.minimum(whole, float((1 << bits) - 1)).astype(np.int64)
    return Fixed(multiplier=integers, bits=bits, exponent=np.asarray(bits - shift), pre=pre)


def recorded_multiplier(unit: Unit, scales: Scales) -> tuple[Fixed, np.ndarray] | None:
    """Interpret the recorded multiplier and shift so that they are closest to the quotient of the scales.

    Returns:
        The integers, and the ratio of their value to the quotient; None if none were recorded, or none fit.
    """
    if unit.out.multiplier is None and unit.out.shift is None:
        return None
    real = np.asarray(real_multiplier(scales, "d:xw/y"), np.float64)
    multiplier = _reshape_by_channel(unit, np.ones(1, np.int64) if unit.out.multiplier is None else unit.out.multiplier)
    if multiplier is None or np.any(multiplier <= 0) or not np.all(np.isfinite(real) & (real > 0)):
        return None
    ratios = [(fixed, multiplier_value(fixed) / real) for fixed in _interpretations(unit, multiplier, real)]
    return min(ratios, key=lambda pair: float(np.abs(np.log2(pair[1])).max()), default=None)


def _interpretations(unit: Unit, multiplier: np.ndarray, real: np.ndarray) -> Iterator[Fixed]:
    """Yield the possible interpretations of the recorded integers."""
    zeros = np.zeros((), np.int64)
    widest = int(multiplier.max())
    fraction_bits = next((bits for bits in (0, 8, 15, 16, 24) if widest <= 1 << bits), 31)
    if unit.out.shift is None:  # the shift that the scales imply
        exponent = np.rint(np.log2(real * np.ldexp(1.0, fraction_bits) / multiplier)).astype(np.int64)
        yield Fixed(multiplier=multiplier, bits=fraction_bits, exponent=exponent, pre=zeros)
        return
    shift = _reshape_by_channel(unit, unit.out.shift)
    if shift is None:
        return
    yield Fixed(multiplier=multiplier, bits=fraction_bits, exponent=fraction_bits - shift, pre=zeros)
    for bits in (31, 15):
        if widest <= 1 << bits:
            yield Fixed(multiplier=multiplier, bits=bits, exponent=-shift, pre=zeros)
            yield Fixed(multiplier=multiplier, bits=bits, exponent=shift, pre=zeros)


def multiplier_value(integers: Fixed) -> np.ndarray:
    """Return the real numbers that integer multipliers stand for, in float64."""
    exponent = (integers.exponent - integers.bits - integers.pre).astype(np.int32)
    return np.asarray(np.ldexp(integers.multiplier.astype(np.float64), exponent))


def _reshape_by_channel(unit: Unit, values: np.ndarray) -> np.ndarray | None:
    """Reshape one value, or one value per channel, to broadcast to the output, channels first; None if it does not."""
    if values.size == 1:
        return values.reshape(()).astype(np.int64)
    flat = values.reshape(-1).astype(np.int64)
    if unit.kind == "conv" and not unit.transposed and values.size == unit.operands[1].codes.shape[0]:
        return flat.reshape(-1, *(1,) * (unit.operands[0].codes.ndim - 2))
    if unit.kind == "linear" and values.size == unit.operands[1].codes.shape[-1]:
        return flat
    return None
