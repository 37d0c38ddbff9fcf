"""How a backend computes a quantized operator: a value made of stages, with a text form that parses back.

A unit (see `unit`) is computed in two parts. The heavy part, `Sums`, makes columns of numbers: the integer sums of a
convolution, the window sums of a pool, the codes themselves where nothing is summed. The rest is a short program of
steps that turns each number into a code, in any order that a backend takes them.

The text form lists the stages that are not the default, as `name=value`, with blanks between them:

    m=q31 steps=shl,mulhi.up,shr.away,zp,sat

The values of each stage are the tables of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.model.frozen import frozen_mapping
from qdebug.replay.unit import KINDS, Unit

__all__ = [
    "ACCUMULATES",
    "BIASES",
    "DEFAULTS",
    "EXPRESSIONS",
    "FLOAT_STEPS",
    "FORMS",
    "NUMBERS",
    "STEPS",
    "Arithmetic",
    "Multiplier",
    "Step",
    "Sums",
    "Variant",
    "keys_of",
    "kind_of",
    "parse_variant",
    "steps_of",
]

_NEAREST = ("even", "away", "up", "down")
_ROUNDINGS = (*_NEAREST, "floor", "trunc")

STEPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mul": (),
        "div": (),
        "inv": (),
        "scale": (),
        "shl": (),
        "mulhi": ("up", "away", "trunc", "floor"),
        "pre": ("floor", "up"),
        "shr": (*_ROUNDINGS, "tosa"),
        "round": (*_ROUNDINGS, "plus"),
        "avg": _ROUNDINGS,
        "bias": (),
        "zp": (),
        "sat16": (),
        "wrap32": (),
        "sat": (),
        "wrap": (),
    }
)
"""Steps of a program, each with its roundings (`shr.away`); `round` is written by its rounding alone.

mul: multiply by the multiplier, in its own kind of number. scale: multiply by the scale of the sums, div: divide by
the output's scale, inv: multiply by its reciprocal (all float32). shl: shift left where the multiplier asks for it.
mulhi: the high half of the doubled product, as vqrdmulh gives it. pre: shift right before the product. shr: shift right
by what is left to shift; tosa adds the nudge of apply_scale_32's double rounding. round: to a whole number; plus is
floor(v + 1/2) as computed. avg: divide by the number of elements. bias: add the bias. zp: add the output's zero
point. sat16: saturate to 16 bits. wrap32: keep the low 32 bits. sat: to the output's codes, within the bounds of a
fused activation. wrap: to the output's codes, losing upper bits.
"""

FLOAT_STEPS = frozenset({"mul", "div", "inv", "scale", "round", "bias", "zp", "sat", "wrap"})
"""Steps that a program in floating point may have."""

EXPRESSIONS: tuple[str, ...] = (
    "xw/y", "x*(w/y)", "(x/y)*w", "xw*(1/y)", "d:xw/y", "d:f(xw)/y", "x/(y*n)", "x/n/y",
)  # fmt: skip
"""Orders in which the real multiplier is computed from the scales of input, weight and output.

`d:` ones use float64, the second of them on a float32 product; all others round each operation to float32. An average
over n elements divides by n last, or as the two forms with n say.
"""

NUMBERS: tuple[str, ...] = (
    "f32", "f64", "f16", "bf16", "q31", "q31t", "q31e", "m24", "m24s7", "m15", "q24", "q16", "q15", "q15t", "q8", "q8t",
    "q7", "p8", "glow", "pow2", "given",
)  # fmt: skip
"""Kinds of number that a multiplier is kept as.

f32, f64: floating point. f16, bf16: a 16-bit float, multiplied in float32. q31, q24, q16, q15, q8, q7: a significand of
so many bits, rounded half away from zero (q31t, q15t, q8t: cut off, q31e: half to even). m24: the 24 bits of a
float32's significand; m24s7: the same shifted left by 7. m15: its upper 15 bits, with all of the shift before the
product. p8: a whole number of 256ths. glow: the 8 to 9 bits and two shifts that Glow's quantizeScaleOffset32To8 finds.
pow2: the nearest power of two, as a shift. given: the multiplier and shift that were recorded with the output; like q31
where none were.
"""

ACCUMULATES: tuple[str, ...] = ("wrap32", "exact", "pairsat16", "pairwrap16", "sat16", "wrap16")
"""How products are summed: in int32, without limit, with pairs of neighbours held to 16 bits first, or all in 16 bits.

Pair sums are followed by the order of the depth they are taken in, `hwc` (taps, then channels) or `chw`, and by the
distance of the partners if it is not 1: `pairsat16:hwc`, `pairwrap16:hwc:8`. Where every sum saturates in 16 bits the
order counts as well: `sat16:chw`. A bias is added to what comes out.
"""

BIASES: tuple[str, ...] = ("int32", "glow", "float", "codes", "none")
"""Where a bias enters: into the integer sums, or by the step `bias`: as a real number (float), or as the whole number
that the program up to this step makes of it on its own (codes); none drops it.

A bias at a scale of its own is brought to that of the sums in float32, or (glow) with Glow's integer multiplier.
"""

FORMS: Mapping[str, str] = MappingProxyType(
    {form: form for form in ("sum", "raw", "real", "taps", "ort", "exp31", "exp32", "exp64")}
    | {form: form for form in ("grid10", "blend10", "blend11", "blend32", "rows32", "lerp", "lerp-fma")}
    | {"offset": "raw", "counted": "sum"}
    | dict.fromkeys(("fold", "fold-fma", "deq", "deq-fma", "ratio", "ls", "common20", "common21", "fixed15"), "codes")
    | dict.fromkeys(("each", "table", "table-fma", "stepped", "mlas", "leaky"), "codes")
    | dict.fromkeys(("hswish16", "fixed16", "fixed31"), "codes")
)
"""What a program starts from, and the columns that it is made of; two forms may share their columns.

sum: centred integers, summed or multiplied. raw: integers summed with their zero point inside. offset: the same, with
both zero points added by the step `zp`, that of the input in steps of the output, as a whole number beside an integer
multiplier. counted: centred integers, and a 31-bit multiplier that the count was divided out of. real: real values,
averaged or interpolated in float32. taps: averages over all taps where padding counts. ort, exp31, exp32, exp64:
probabilities of a softmax, exp31 in fixed point.

Codes interpolated between neighbours: by weights of so many bits, grid10 with outputs placed on a grid of 10 bits too,
blend10 cut off, blend11 rounded; blend32 by weights in float32, all four at once; rows32 along rows first; lerp the
same, with outputs placed by multiplication, and less the zero point.

The others start from codes. Of two codes: fold: a (sa/sc) + (b (sb/sc) + constant). deq: both made real, then combined.
ratio: (a - za) (sa/sc) + (b - zb) (sb/sc). ls: shifted left by `shift`, brought to one scale by the program `operand`,
combined. common20, common21: integer multipliers of so many bits with one shift. fixed15: both rounded to multiples of
2**-15. each: both brought to the output's scale by `operand`. Of one code: table: a function of its real value.
stepped: the same, with real values found by repeated addition. mlas: with ONNX Runtime's approximation of Sigmoid, and
like table for other functions. leaky: `operand` with one multiplier for each sign. hswish16: HardSwish in fixed point
of 16 bits. fixed16, fixed31: Sigmoid and Tanh in fixed point. Forms with `-fma` fuse each product with the addition
that follows it.
"""


def _among(what: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        _refuse(what, value, allowed)


def _refuse(what: str, value: str, allowed: Iterable[str]) -> None:
    raise UsageError(
        f"The arithmetic has no {what} {value!r}; known are {', '.join(allowed)}.",
        hint="Correct it, or write a file that fits with qdebug explain --write-arithmetic FILE.",
    )


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Step:
    """One step of a program.

    Args:
        op: A name in `STEPS`.
        rounding: One of the roundings that the step has; empty if it has none.

    Raises:
        UsageError: There is no such step.
    """

    op: str
    rounding: str = ""

    def __post_init__(self) -> None:
        allowed = STEPS.get(self.op)
        if allowed is None or (self.rounding not in allowed if allowed else self.rounding):
            _refuse("step", str(self), sorted(STEPS))

    def __str__(self) -> str:
        if self.op == "round":
            return self.rounding
        return f"{self.op}.{self.rounding}" if self.rounding else self.op


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Multiplier:
    """How the real multiplier is computed from scales, and what it is kept as.

    Args:
        number: One of `NUMBERS`.
        expression: One of `EXPRESSIONS`.

    Raises:
        UsageError: Either is unknown.
    """

    number: str = "f32"
    expression: str = "xw/y"

    def __post_init__(self) -> None:
        _among("multiplier", self.number, NUMBERS)
        _among("expression", self.expression, EXPRESSIONS)

    def __str__(self) -> str:
        return f"{self.number}:{self.expression}"

    @property
    def real(self) -> bool:
        """Whether it is a floating-point number."""
        return self.number in ("f32", "f64", "f16", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Sums:
    """The heavy part of a computation: variants that share it share its columns.

    Args:
        columns: What the columns hold: one of the values of `FORMS`.
        accumulate: One of `ACCUMULATES`, with order and distance of pairs.
        bias: One of `BIASES`; "float" for any that enters later.
    """

    columns: str = "sum"
    accumulate: str = "wrap32"
    bias: str = "int32"


def steps_of(text: str) -> tuple[Step, ...]:
    """Read a program: steps with commas between them.

    Raises:
        UsageError: A step is unknown.
    """
    found = []
    for word in text.split(",") if text else ():
        op, _, rounding = word.partition(".")
        found.append(Step(op="round", rounding=op) if op in STEPS["round"] else Step(op=op, rounding=rounding))
    return tuple(found)


_DEFAULT_STEPS = steps_of("mul,even,zp,sat")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Variant:
    """How a backend computes one kind of unit; the default is float32 multiplication with ties to even.

    Args:
        form: What the numbers are that the program starts from; one of `FORMS`.
        accumulate: How products are summed; see `ACCUMULATES`.
        bias: Where the bias enters; one of `BIASES`.
        multiplier: What stands for the quotient of the scales.
        requantize: The program that makes codes of the numbers.
        operand: The program that each operand goes through first, where the form has one.
        shift: Bits that the operands are shifted left by, where the form has that.

    Raises:
        UsageError: A stage has a value that is unknown.
    """

    form: str = "sum"
    accumulate: str = "wrap32"
    bias: str = "int32"
    multiplier: Multiplier = Multiplier()
    requantize: tuple[Step, ...] = _DEFAULT_STEPS
    operand: tuple[Step, ...] = ()
    shift: int = 0

    def __post_init__(self) -> None:
        _among("form", self.form, FORMS)
        _among("bias", self.bias, BIASES)
        _check_accumulate(self.accumulate)
        if not 0 <= self.shift <= 30:
            _refuse("shift", str(self.shift), ["0 to 30"])

    @property
    def sums(self) -> Sums:
        """The heavy part that this variant starts from."""
        later = "float" if self.bias == "codes" else self.bias  # no part of the sums either way
        return Sums(columns=FORMS[self.form], accumulate=self.accumulate, bias=later)

    def __str__(self) -> str:
        words = []
        for name, (key, default) in _TEXT.items():
            value = getattr(self, name)
            if value != default:
                words.append(f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
        return " ".join(words) or f"m={self.multiplier}"


_TEXT: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        entry.name: (key, entry.default)
        for entry, key in zip(fields(Variant), ("form", "acc", "bias", "m", "steps", "operand", "shift"), strict=True)
    }
)


def parse_variant(text: str) -> Variant:
    """Read the text form of a variant; stages left out take their defaults.

    Raises:
        UsageError: A stage or its value is unknown, or a stage is given twice.
    """
    names = {key: name for name, (key, _) in _TEXT.items()}
    found: dict[str, Any] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        name = names.get(key)
        if name is None or not equals or name in found:
            _refuse("stage", word, sorted(names))
        found[str(name)] = _read_stage(str(name), value)
    return Variant(**found)


def _read_stage(name: str, value: str) -> Any:
    if name in ("requantize", "operand"):
        return steps_of(value)
    if name == "multiplier":
        number, colon, expression = value.partition(":")
        return Multiplier(number=number, expression=expression) if colon else Multiplier(number=number)
    if name == "shift":
        return int(value) if value.isdecimal() else _refuse("shift", value, ["0 to 30"])
    return value


def _check_accumulate(text: str) -> None:
    kind, *rest = text.split(":")
    _among("accumulate", kind, ACCUMULATES)
    paired = kind.startswith("pair")
    ordered = paired or kind == "sat16"
    most = 2 if paired else 1
    if (rest and not ordered) or (ordered and (not rest or rest[0] not in ("hwc", "chw") or len(rest) > most)):
        _refuse("accumulate", text, ACCUMULATES)
    if len(rest) == 2 and not (rest[1].isdecimal() and int(rest[1]) > 1):
        _refuse("distance of a pair", rest[1], ["2", "4", "8"])


_INSIDE = parse_variant("steps=mul,zp,even,sat")
_WIDE_SOFTMAX = parse_variant("form=exp32 steps=div,even,zp,sat")
_RESCALED = parse_variant("steps=scale,div,even,zp,sat")
_QUOTIENT = parse_variant("steps=div,even,zp,sat")

DEFAULTS: Mapping[str, Variant] = MappingProxyType(
    dict.fromkeys(KINDS, Variant())
    | {
        "add": parse_variant("form=fold-fma steps=even,sat"),
        "sub": parse_variant("form=fold-fma steps=even,sat"),
        "mul": _INSIDE,
        "div": parse_variant("form=deq steps=div,even,zp,sat"),
        "average_pool": parse_variant("form=taps steps=div,zp,even,sat"),
        "lookup": parse_variant("form=table steps=div,even,zp,sat"),
        "lookup.Sigmoid": parse_variant("form=mlas steps=div,even,zp,sat"),
        **dict.fromkeys(("global_average_pool", "reduce_mean"), parse_variant("m=f32:x/(y*n)")),
        "softmax": parse_variant("form=ort steps=even,zp,sat"),
        "concat": _RESCALED,
        "where": _RESCALED,
        "quantize": _QUOTIENT,
        "dequantize": parse_variant("steps=scale"),
        "requantize": _RESCALED,
        "max_pool": _RESCALED,
        "resize": parse_variant("form=blend32 steps=trunc,sat"),
        "resize.linear-channels-last": parse_variant("form=blend10 steps=shr.trunc,sat"),
        "pad": _RESCALED,
    }
)
"""What ONNX Runtime's x86 kernels compute, by kind of unit, or by kind and branch (see `Unit.branch`)."""


_PLANAR = frozenset({"grid10", "blend10", "blend11", "blend32", "rows32", "lerp", "lerp-fma"})
"""Forms of a bilinear resize, which no other is computed by."""


def keys_of(kind: str, branch: str, dtypes: Sequence[str]) -> tuple[str, ...]:
    """Give the keys of `Arithmetic.variants` that name some units, those that say more first.

    Args:
        kind: Their kind.
        branch: Their branch of it; empty if the kind has none.
        dtypes: Logical dtypes of operands and output.
    """
    names = (f"{kind}.{branch}", kind) if branch else (kind,)
    return tuple(key for name in names for key in (f"{name}:{','.join(dtypes)}", name))


def kind_of(key: str) -> str:
    """Give the kind of unit that a key of `Arithmetic.variants` names."""
    return key.partition(":")[0].partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How quantized kernels compute where the operator's definition allows more than one way.

    Float kernels take no notice of it.

    Args:
        variants: Variants by kind of unit ("conv"), or by kind and branch ("lookup.HardSwish", see `Unit.branch`),
            either of them with the dtypes of operands and output ("conv:uint8,int8,uint8"). What says more goes first,
            a branch before dtypes. What is not named takes `DEFAULTS`.
        name: What it is called.

    Raises:
        ValueError: A key names no kind.
    """

    variants: Mapping[str, Variant] = field(default_factory=lambda: MappingProxyType({}))
    name: str = "onnxruntime"

    def __post_init__(self) -> None:
        for key in self.variants:
            if kind_of(key) not in KINDS:
                raise ValueError(f"{key!r} names no kind of unit; expected one of {KINDS}")
        object.__setattr__(self, "variants", frozen_mapping(self.variants))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (dict(self.variants), self.name)

    @property
    def interpolates(self) -> bool:
        """Whether it says how codes are interpolated."""
        return any(kind_of(key) == "resize" and variant.form in _PLANAR for key, variant in self.variants.items())

    def variant(self, unit: Unit) -> Variant:
        """Give the variant that computes a unit.

        What works on codes as they are stored knows no scales: where input and output differ in theirs, the default is
        taken in its place.
        """
        keys = keys_of(unit.kind, unit.branch, unit.dtypes)
        for key in keys:
            if key in self.variants and _fits(self.variants[key], unit):
                return self.variants[key]
        # The table that the default softmax looks exponentials up in is one of 8-bit codes.
        wide = unit.kind == "softmax" and unit.operands[0].codes.dtype.itemsize > 1
        if wide:
            return _WIDE_SOFTMAX
        # What is no interpolation between codes of one scale moves codes, and brings them to another.
        default = next(DEFAULTS[key] for key in keys if key in DEFAULTS)
        return default if _fits(default, unit) else _RESCALED


def _fits(variant: Variant, unit: Unit) -> bool:
    """Tell whether a variant of the unit's kind can compute this one."""
    if variant.form in _PLANAR:
        return unit.branch in ("linear", "linear-channels-last") and unit.keeps_scale
    if variant.form == "exp31":
        return bool(np.all(unit.out.scale == 2.0 ** (-8 * unit.out.dtype.itemsize)))
    return variant.form != "raw" or unit.keeps_scale


def _rebuilt(variants: Mapping[str, Variant], name: str) -> Arithmetic:
    return Arithmetic(variants=variants, name=name)
