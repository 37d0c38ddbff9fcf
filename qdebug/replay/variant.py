"""The arithmetic of a quantized operator: a value made of stages, with a text form that can be parsed back.

A unit (see `unit`) is computed in two parts. The `HeavyPart` makes columns of numbers: the integer sums of a
convolution, the window sums of a pool, or the codes themselves. Then a short program turns each number into a code. Its
steps can follow the order of any backend.

The text form lists the stages that differ from the default, as `name=value`, separated by blanks:

    m=q31 steps=shl,mulhi.up,shr.away,zp,sat

Each word is one row of its table, with its description and its function: steps in `STEPS` (see `steps`), numbers and
expressions of the multiplier in `NUMBERS` (or `qN` for a significand of N bits) and `EXPRESSIONS` (see `scaling`),
roundings in `ROUNDINGS` (see `qdebug.numerics.rounding`), the others here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model.frozen import frozen_mapping, rebuild
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.columns import HeavyPart
from qdebug.replay.scaling import EXPRESSIONS, Multiplier
from qdebug.replay.steps import STEPS, Step, parse_steps
from qdebug.replay.unit import KINDS, Unit
from qdebug.replay.words import refuse, refuse_unless

__all__ = [
    "ACCUMULATES",
    "BIASES",
    "DEFAULTS",
    "FORMS",
    "Arithmetic",
    "Form",
    "Variant",
    "describe",
    "kind_of",
    "parse_variant",
    "variant_keys",
]

ACCUMULATES: Mapping[str, str] = MappingProxyType(
    {
        "wrap32": "",
        "exact": "sums without limit",
        "pairsat16": "pairs of products saturated to 16 bits",
        "pairwrap16": "pairs of products wrapped around in 16 bits",
        "sat16": "sums saturated to 16 bits",
        "wrap16": "sums wrapped around in 16 bits",
    }
)
"""Ways to sum products, with descriptions.

In int32, without limit, with pairs of neighbours limited to 16 bits first, or entirely in 16 bits. The name of a pair
sum is followed by the order of the depth, `hwc` (taps, then channels) or `chw`, and by the distance of the partners if
it is not 1: `pairsat16:hwc`, `pairwrap16:hwc:8`. `tap` is `hwc` without pairs across taps and without taps in the
padding; the last of an odd number of channels has no partner. If every partial sum saturates at 16 bits, the order
matters too: `sat16:chw`. A bias is added to the result. For `wrap16`, and for `sat16` without an order, the complete
sum including its bias is limited to 16 bits.
"""

_ORDERS: Mapping[str, str] = MappingProxyType(
    {"hwc": "taps before channels", "chw": "channels before taps", "tap": "each tap by itself"}
)

BIASES: Mapping[str, str] = MappingProxyType(
    {
        "int32": "",
        "glow": "bias brought to the scale of the sums by an 8-bit multiplier",
        "float": "real bias after scaling",
        "codes": "bias rounded on its own and added after",
        "none": "no bias",
    }
)
"""Points at which a bias is added, with descriptions.

To the integer sums, or by the step `bias`: as a real number (float), or as the whole number that results from running
the preceding steps on the bias alone (codes). none drops the bias.

A bias with its own scale is rescaled to the scale of the sums in float32, or (glow) with Glow's integer multiplier.
"""


@dataclass(frozen=True, slots=True)
class Form:
    """A way to compute the first values of a program; `qdebug.replay.forms` has the functions.

    Args:
        columns: The columns that it reads. Forms may share columns.
        words: Its description, with `{shift}` and `{operand}` for the variant's values.
        interpolates: Whether it is used only to interpolate a bilinear resize.
        own_scales: Whether it first runs operand programs, whose multipliers are not the unit's.
        multiplier: Whether the program uses the variant's multiplier instead of the form's own.
        double: Whether float64 makes a difference to a variant whose program has no multiplier.
        real: Whether it gives real values instead of codes or scaled sums.
    """

    columns: str
    words: str
    interpolates: bool = False
    own_scales: bool = False
    multiplier: bool = True
    double: bool = False
    real: bool = False


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "sum": Form("sum", "", double=True),
        "raw": Form("raw", "sums of codes with their zero point inside", double=True),
        "real": Form("real", "averages of real values in float32", double=True, real=True),
        "taps": Form("taps", "averages of real values in float32 over all taps", double=True, real=True),
        "nines": Form(
            "nines", "averages of real values in float32, nine taps at a time in pairs", double=True, real=True
        ),
        "ort": Form("ort", "scaled exponentials from a table, summed in order", double=True),
        "exp31": Form("exp31", "softmax in fixed point of 31 bits"),
        "exp32": Form("exp32", "softmax in float32", double=True, real=True),
        "exp64": Form("exp64", "softmax in float64", double=True, real=True),
        "grid10": Form("grid10", "codes interpolated on a grid of 10 bits", interpolates=True, multiplier=False),
        "blend10": Form(
            "blend10", "codes interpolated by weights cut off after 10 bits", interpolates=True, multiplier=False
        ),
        "blend11": Form("blend11", "codes interpolated by weights of 11 bits", interpolates=True, multiplier=False),
        "blend32": Form("blend32", "codes interpolated in float32", interpolates=True),
        "rows32": Form("rows32", "codes interpolated in float32, along rows first", interpolates=True),
        "corners32": Form(
            "corners32", "codes interpolated in float32, by one weight after the other", interpolates=True
        ),
        "weights32": Form("weights32", "codes interpolated in float32, by products of weights", interpolates=True),
        "real-lerp": Form(
            "real-lerp",
            "real values interpolated in float32 along rows first, by differences",
            interpolates=True,
            real=True,
        ),
        "lerp": Form("lerp", "codes interpolated in float32, placed by multiplication", interpolates=True),
        "lerp-fma": Form(
            "lerp-fma", "codes interpolated in float32, placed by multiplication, fused", interpolates=True
        ),
        "offset": Form("raw", "sums of codes with their zero point inside, taken off in output steps"),
        "counted": Form("sum", "31-bit multiplier with the count divided out of it", multiplier=False),
        "fold": Form("codes", "both codes times their ratio to the output scale, zero points folded into one constant"),
        "fold-fma": Form(
            "codes", "both codes times their ratio to the output scale, zero points folded into one constant, fused"
        ),
        "deq": Form("codes", "operands made real in float32", double=True, real=True),
        "deq-fma": Form("codes", "operands made real in float32 by fused multiply-adds", real=True),
        "onto-first": Form(
            "codes", "the second operand brought to the scale of the first in float32", multiplier=False
        ),
        "onto-second": Form(
            "codes", "the first operand brought to the scale of the second in float32", multiplier=False
        ),
        "levels": Form("sum", "steps of the output's range counted from its low end", multiplier=False),
        "levels-fma": Form("sum", "steps of the output's range counted from its low end, fused", multiplier=False),
        "levels-raw": Form(
            "raw",
            "averages of codes as steps of the output's range counted from its low end, fused",
            multiplier=False,
        ),
        "ratio": Form("codes", "centred codes times their ratio to the output scale"),
        "ls": Form(
            "codes",
            "operands shifted left by {shift} bits and brought to twice the larger scale ({operand})",
            own_scales=True,
        ),
        "common20": Form("codes", "20-bit multipliers with one shift", multiplier=False),
        "common21": Form("codes", "21-bit multipliers with one shift", multiplier=False),
        "fixed15": Form("codes", "operands rounded to multiples of 2**-15"),
        "each": Form("codes", "each operand brought to the output scale ({operand})", own_scales=True),
        "table": Form("codes", "function of the real value in float32", double=True, real=True),
        "table-fma": Form("codes", "function of the real value in float32, found by fused multiply-adds", real=True),
        "stepped": Form("codes", "function of real values found by repeated addition", real=True),
        "mlas": Form("codes", "sigmoid as a quotient of polynomials in float32", real=True),
        "leaky": Form("codes", "one multiplier above zero and one below ({operand})", own_scales=True),
        "slopes": Form(
            "codes",
            "one multiplier above zero, below it another of products with the slope ({operand})",
            own_scales=True,
        ),
        "hswish16": Form("codes", "hard swish in fixed point of 16 bits", multiplier=False),
        "fixed16": Form("codes", "fixed point of 16 bits", multiplier=False),
        "fixed31": Form("codes", "fixed point of 31 bits", multiplier=False),
        "root31": Form("codes", "reciprocal root in fixed point of 31 bits", multiplier=False),
    }
)
"""The first values of a program.

sum: centered integers, summed or multiplied. raw: integers summed with their zero point inside. offset: the same, with
both zero points added by the step `zp`. The zero point of the input is converted to steps of the output, and rounded to
a whole number with an integer multiplier. counted: centered integers, and a 31-bit multiplier divided by the count.
real: real values, averaged or interpolated in float32. taps: averages over all taps including padding. nines: sums of
nine taps per pass in pairs, columns first, times the reciprocal of the count. ort, exp31, exp32, exp64: probabilities
of a softmax, exp31 in fixed point.

Codes interpolated between neighbours. With weights of that many bits: grid10 (outputs also placed on a 10-bit grid),
blend10 (truncated), blend11 (rounded). With float32 weights: blend32 (all four neighbours at once), rows32 (along rows
first), lerp (like rows32, but outputs placed by multiplication and the zero point subtracted), corners32 (all four at
once, outputs placed by multiplication, one weight after the other), weights32 (like corners32, with products of
weights). real-lerp: real values, along rows first, each as the lower neighbour plus a share of the difference.

levels: real numbers or sums, converted to steps from the low end of the output's range. The step `zp` then adds the
lowest code, unless it is fused. levels-raw: averages of uncentered codes, converted likewise, fused.

The others start from codes. Of two codes: fold: a (sa/sc) + (b (sb/sc) + constant), or a s + constant for a single
code. deq: both dequantized, then combined. onto-first, onto-second: one code is centered and rescaled to the scale of
the other, both zero points are subtracted from it, and it is combined with the other code. ratio: (a - za) (sa/sc) + (b
- zb) (sb/sc). ls: both shifted left by `shift`, rescaled to one scale by the program `operand`, and combined. common20,
common21: integer multipliers of that many bits with one shift. fixed15: both rounded to multiples of 2**-15. each: both
rescaled to the output's scale by `operand`. Of one code: table: a function of its real value. stepped: the same, with
real values found by repeated addition. mlas: with ONNX Runtime's approximation of Sigmoid, and like table for other
functions. leaky: `operand` with one multiplier per sign. slopes: the same for two codes, applied to their product below
zero. hswish16: HardSwish in fixed point of 16 bits. fixed16, fixed31: Sigmoid and Tanh in fixed point. root31: 1 /
sqrt(x) in fixed point. Forms with `-fma` fuse each product with the addition that follows it.
"""


_DEFAULT_MULTIPLIER, _DEFAULT_STEPS = Multiplier(), parse_steps("mul,even,zp,sat")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Variant:
    """The arithmetic of one kind of unit. The default is float32 multiplication with ties to even.

    Args:
        form: The start of the program; one of `FORMS`.
        accumulate: How products are summed; see `ACCUMULATES`.
        bias: Where the bias enters; one of `BIASES`.
        multiplier: The multiplier.
        requantize: The program that turns numbers into codes.
        operand: The program that runs on each operand first, if the form has one.
        shift: Bits by which operands are shifted left, if the form has a shift.

    Raises:
        UsageError: A stage has an unknown value.
    """

    form: str = "sum"
    accumulate: str = "wrap32"
    bias: str = "int32"
    multiplier: Multiplier = _DEFAULT_MULTIPLIER
    requantize: tuple[Step, ...] = _DEFAULT_STEPS
    operand: tuple[Step, ...] = ()
    shift: int = 0
    _hash: int | None = field(default=None, init=False, repr=False, compare=False)
    _sums: HeavyPart | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_unless("form", self.form, FORMS)
        refuse_unless("bias", self.bias, BIASES)
        _check_accumulate(self.accumulate)
        if not 0 <= self.shift <= 30:
            refuse("shift", str(self.shift), ["0 to 30"])
        if self.multiplier.pre and not any(step.op == "pre" for step in (*self.requantize, *self.operand)):
            refuse("program without the step pre", f"pre={self.multiplier.pre}", ["pre.floor", "pre.up"])

    def __hash__(self) -> int:
        # The hash is cached because a search looks up variants a million times. It is not pickled, since the hashes of
        # strings differ between processes.
        if self._hash is None:
            stages = self.form, self.accumulate, self.bias, self.multiplier, self.requantize, self.operand, self.shift
            object.__setattr__(self, "_hash", hash(stages))
        return self._hash  # type: ignore[return-value]

    def __reduce__(self) -> tuple[object, ...]:
        return rebuild, (Variant, {name: getattr(self, name) for name in _TEXT})

    @property
    def sums(self) -> HeavyPart:
        """The heavy part of this variant."""
        if self._sums is None:
            late_bias = "float" if self.bias == "codes" else self.bias  # both add the bias after the sums
            part = HeavyPart(columns=FORMS[self.form].columns, accumulate=self.accumulate, bias=late_bias)
            object.__setattr__(self, "_sums", part)
        return self._sums  # type: ignore[return-value]

    @property
    def limited_sums(self) -> str | None:
        """A description of sums limited to fewer than 32 bits; None for full sums."""
        kind = self.accumulate.split(":")[0]
        return None if kind in ("wrap32", "exact") else ACCUMULATES[kind]

    def __str__(self) -> str:
        return _format_variant(self)


@lru_cache(maxsize=1 << 12)
def _format_variant(variant: Variant) -> str:
    """Return the text form of a variant, cached because nodes of a kind share variants."""
    words = []
    for name, (key, default) in _TEXT.items():
        value = getattr(variant, name)
        if value != default:
            words.append(f"{key}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return " ".join(words) or f"m={variant.multiplier}"


_TEXT: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        entry.name: (key, entry.default)
        for entry, key in zip(
            (entry for entry in fields(Variant) if entry.init),
            ("form", "acc", "bias", "m", "steps", "operand", "shift"),
            strict=True,
        )
    }
)


def parse_variant(text: str) -> Variant:
    """Parse the text form of a variant. Missing stages take their defaults.

    Raises:
        UsageError: A stage or its value is unknown, or a stage is given twice.
    """
    names = {key: name for name, (key, _) in _TEXT.items()}
    stages: dict[str, Any] = {}
    shifts: dict[str, Any] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if (key == "shift" and ".." in value) or key == "pre":
            shifts[key] = refuse("stage", word, sorted(names)) if key in shifts else _read_shifts(key, value)
            continue
        name = names.get(key)
        if name is None or not equals or name in stages:
            refuse("stage", word, (*sorted(names), "pre"))
        stages[str(name)] = _read_stage(str(name), value)
    if shifts:
        multiplier = stages.get("multiplier", _DEFAULT_MULTIPLIER)
        stages["multiplier"] = replace(multiplier, shifts=shifts.get("shift", ()), pre=shifts.get("pre", 0))
    return Variant(**stages)


def _read_shifts(key: str, value: str) -> Any:
    """Read the range of right shifts of a multiplier, or the shift before its product."""
    numbers = value.split("..") if key == "shift" else [value]
    if not all(number.isdecimal() and len(number) < 3 for number in numbers):
        refuse(key, value, ["LO..HI" if key == "shift" else "0 to 30"])
    return tuple(map(int, numbers)) if key == "shift" else int(value)


def _read_stage(name: str, value: str) -> Any:
    if name in ("requantize", "operand"):
        return parse_steps(value)
    if name == "multiplier":
        number, colon, expression = value.partition(":")
        return Multiplier(number=number, expression=expression) if colon else Multiplier(number=number)
    if name == "shift":
        return int(value) if value.isdecimal() else refuse("shift", value, ["0 to 30"])
    return value


def _check_accumulate(text: str) -> None:
    kind, *order_fields = text.split(":")
    refuse_unless("accumulate", kind, ACCUMULATES)
    paired = kind.startswith("pair")
    max_fields = 2 if paired else int(kind == "sat16")
    if (
        len(order_fields) > max_fields
        or (paired and not order_fields)
        or (order_fields and order_fields[0] not in _ORDERS)
    ):
        refuse("accumulate", text, ACCUMULATES)
    if len(order_fields) == 2 and not (order_fields[1].isdecimal() and int(order_fields[1]) > 1):
        refuse("distance of a pair", order_fields[1], ["2", "4", "8"])


def describe(variant: Variant) -> str:
    """Describe a variant in one line for an engineer who does not know the text form."""
    form = FORMS[variant.form].words.format(shift=variant.shift, operand=", ".join(_step_texts(variant.operand)))
    multiplies = any(STEPS[step.op].multiplies for step in (*variant.requantize, *variant.operand))
    kind, *order = variant.accumulate.split(":")
    parts = [ACCUMULATES[kind], *(_ORDERS.get(word, f"{word} apart") for word in order)]
    if multiplies and not variant.form.startswith("common"):
        parts += [form, variant.multiplier.words, EXPRESSIONS[variant.multiplier.expression].words]
    elif variant.multiplier.number == "f64":
        parts += [form.replace("float32", "float64")] if "float32" in form else [form, "in float64"]
    else:
        parts.append(form)
    parts += _step_texts(variant.requantize)
    parts.append(BIASES[variant.bias])
    return ", ".join(part for part in parts if part)


def _step_texts(steps: tuple[Step, ...]) -> list[str]:
    """Describe a program step by step."""
    words: list[str] = []
    rounds = any(STEPS[step.op].rounds for step in steps)
    high = any(step.op == "mulhi" for step in steps)
    rounded = False
    for step in steps:
        phrase = STEPS[step.op].words
        if step.op == "zp" and rounds:
            phrase = "zero point after rounding" if rounded else "zero point before rounding"
        elif step.op == "shr" and high:
            phrase = "then a shift, {}"
        words.append(phrase.format(ROUNDINGS[step.rounding].words if step.rounding else ""))
        rounded = rounded or STEPS[step.op].rounds
    return [word for word in words if word]


_ZERO_POINT_BEFORE_ROUNDING = parse_variant("steps=mul,zp,even,sat")
_WIDE_SOFTMAX = parse_variant("form=exp32 steps=div,even,zp,sat")
_RESCALED = parse_variant("steps=scale,div,even,zp,sat")
_QUOTIENT = parse_variant("steps=div,even,zp,sat")

DEFAULTS: Mapping[str, Variant] = MappingProxyType(
    dict.fromkeys(KINDS, Variant())
    | {
        "add": parse_variant("form=fold-fma steps=even,sat"),
        "sub": parse_variant("form=fold-fma steps=even,sat"),
        "mul": _ZERO_POINT_BEFORE_ROUNDING,
        "div": parse_variant("form=deq steps=div,even,zp,sat"),
        **dict.fromkeys(("prelu", "squared_difference"), parse_variant("form=deq steps=div,even,zp,sat")),
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
"""Variants of ONNX Runtime's x86 kernels, by kind of unit, or by kind and branch (see `Unit.branch`)."""


def variant_keys(kind: str, branch: str, dtypes: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of `Arithmetic.variants` that apply to units, the most specific first.

    Args:
        kind: Kind of the units.
        branch: Branch of the units; empty if the kind has none.
        dtypes: Logical dtypes of operands and output.
    """
    names = (f"{kind}.{branch}", kind) if branch else (kind,)
    return tuple(key for name in names for key in (f"{name}:{','.join(dtypes)}", name))


def kind_of(key: str) -> str:
    """Return the kind of unit that a key of `Arithmetic.variants` names."""
    return key.partition(":")[0].partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The arithmetic of quantized kernels for operators whose definition allows several.

    Float kernels ignore it.

    Args:
        variants: Variants by kind of unit ("conv"), or by kind and branch ("lookup.HardSwish", see `Unit.branch`),
            optionally followed by the dtypes of operands and output ("conv:uint8,int8,uint8"). The most specific key
            wins, and a branch ranks before dtypes. Missing kinds take `DEFAULTS`.
        name: Its name.

    Raises:
        ValueError: A key does not name a kind.
    """

    variants: Mapping[str, Variant] = field(default_factory=lambda: MappingProxyType({}))
    name: str = "onnxruntime"

    def __post_init__(self) -> None:
        for key in self.variants:
            if kind_of(key) not in KINDS:
                raise ValueError(f"{key!r} is not a kind of unit; expected one of {KINDS}")
        object.__setattr__(self, "variants", frozen_mapping(self.variants))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_arithmetic, (dict(self.variants), self.name)

    @property
    def interpolates(self) -> bool:
        """Whether it defines how codes are interpolated."""
        return any(
            kind_of(key) == "resize" and FORMS[variant.form].interpolates for key, variant in self.variants.items()
        )

    def variant(self, unit: Unit) -> Variant:
        """Return the variant of a unit.

        Variants on stored codes ignore scales. If input and output scales differ, the default variant is used instead.
        """
        keys = variant_keys(unit.kind, unit.branch, unit.dtypes)
        for key in keys:
            if key in self.variants and _can_compute(self.variants[key], unit):
                return self.variants[key]
        # The default softmax uses a table of exponentials of 8-bit codes.
        wide = unit.kind == "softmax" and unit.operands[0].codes.dtype.itemsize > 1
        if wide:
            return _WIDE_SOFTMAX
        # The default of a resize interpolates codes, which needs equal scales. Otherwise codes are moved and rescaled.
        default = next(DEFAULTS[key] for key in keys if key in DEFAULTS)
        return default if _can_compute(default, unit) else _RESCALED


def _can_compute(variant: Variant, unit: Unit) -> bool:
    """Return whether a variant of the unit's kind can compute this unit."""
    if unit.transposed and ":" in variant.accumulate:
        return False  # the order of its products is unknown
    if FORMS[variant.form].interpolates:
        return unit.branch in ("linear", "linear-channels-last") and unit.keeps_scale
    if variant.form == "exp31":
        return bool(np.all(unit.out.scale == 2.0 ** (-8 * unit.out.dtype.itemsize)))
    return variant.form != "raw" or unit.keeps_scale


def _rebuild_arithmetic(variants: Mapping[str, Variant], name: str) -> Arithmetic:
    return Arithmetic(variants=variants, name=name)
