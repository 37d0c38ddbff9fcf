"""Variants in plain words: one line that an engineer reads without knowing the text form."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from qdebug.replay.variant import Step, Variant

__all__ = ["describe"]

_NEAREST: Mapping[str, str] = MappingProxyType(
    {
        "even": "ties to even",
        "away": "ties away from zero",
        "up": "ties up",
        "down": "ties down",
        "floor": "rounded down",
        "trunc": "cut off",
        "plus": "one half added and cut off",
        "tosa": "rounded twice in one shift",
    }
)
_NUMBERS: Mapping[str, str] = MappingProxyType(
    {
        "f32": "float32 multiplier",
        "f64": "float64 multiplier",
        "f16": "float16 multiplier",
        "bf16": "bfloat16 multiplier",
        "q31": "31-bit multiplier",
        "q31t": "31-bit multiplier, itself cut off",
        "q31e": "31-bit multiplier, itself rounded to even",
        "m24": "24-bit multiplier",
        "m24s7": "24-bit multiplier widened to 31 bits",
        "m15": "15-bit multiplier on 16-bit values",
        "q24": "24-bit multiplier of the exact quotient",
        "q16": "16-bit multiplier",
        "q15": "15-bit multiplier",
        "q15t": "15-bit multiplier, itself cut off",
        "q8": "8-bit multiplier",
        "q8t": "8-bit multiplier, itself cut off",
        "q7": "7-bit multiplier",
        "p8": "multiplier in 256ths",
        "given": "recorded multiplier and shift",
        "glow": "8-bit multiplier between two shifts",
        "pow2": "nearest power of two",
    }
)
_EXPRESSIONS: Mapping[str, str] = MappingProxyType(
    {
        "xw/y": "",
        "x*(w/y)": "input scale times (weight scale / output scale)",
        "(x/y)*w": "(input scale / output scale) times weight scale",
        "xw*(1/y)": "product of scales times the reciprocal of the output's",
        "d:xw/y": "quotient of scales in float64",
        "d:f(xw)/y": "float32 product of scales divided in float64",
        "x/(y*n)": "input scale / (output scale times count)",
        "x/n/y": "input scale / count / output scale",
    }
)
_FORMS: Mapping[str, str] = MappingProxyType(
    {
        "sum": "",
        "raw": "sums of codes with their zero point inside",
        "counted": "31-bit multiplier with the count divided out of it",
        "offset": "sums of codes with their zero point inside, taken off in output steps",
        "real": "averages of real values in float32",
        "taps": "averages of real values in float32 over all taps",
        "ort": "scaled exponentials from a table, summed in order",
        "exp31": "softmax in fixed point of 31 bits",
        "exp32": "softmax in float32",
        "exp64": "softmax in float64",
        "grid10": "codes interpolated on a grid of 10 bits",
        "blend10": "codes interpolated by weights cut off after 10 bits",
        "blend11": "codes interpolated by weights of 11 bits",
        "blend32": "codes interpolated in float32",
        "rows32": "codes interpolated in float32, along rows first",
        "lerp": "codes interpolated in float32, placed by multiplication",
        "lerp-fma": "codes interpolated in float32, placed by multiplication, fused",
        "fold": "both codes times their ratio to the output scale, zero points folded into one constant",
        "fold-fma": "both codes times their ratio to the output scale, zero points folded into one constant, fused",
        "deq": "operands made real in float32",
        "deq-fma": "operands made real in float32 by fused multiply-adds",
        "ratio": "centred codes times their ratio to the output scale",
        "ls": "operands shifted left by {shift} bits and brought to twice the larger scale ({operand})",
        "common20": "20-bit multipliers with one shift",
        "common21": "21-bit multipliers with one shift",
        "fixed15": "operands rounded to multiples of 2**-15",
        "each": "each operand brought to the output scale ({operand})",
        "table": "function of the real value in float32",
        "table-fma": "function of the real value in float32, found by fused multiply-adds",
        "stepped": "function of real values found by repeated addition",
        "mlas": "sigmoid as a quotient of polynomials in float32",
        "hswish16": "hard swish in fixed point of 16 bits",
        "fixed16": "fixed point of 16 bits",
        "fixed31": "fixed point of 31 bits",
        "leaky": "one multiplier above zero and one below ({operand})",
    }
)
_ACCUMULATES: Mapping[str, str] = MappingProxyType(
    {
        "wrap32": "",
        "exact": "sums without limit",
        "pairsat16": "pairs of products saturated to 16 bits",
        "pairwrap16": "pairs of products wrapped around in 16 bits",
        "sat16": "sums saturated to 16 bits",
        "wrap16": "sums wrapped around in 16 bits",
    }
)
_ORDERS: Mapping[str, str] = MappingProxyType({"hwc": "taps before channels", "chw": "channels before taps"})
_BIASES: Mapping[str, str] = MappingProxyType(
    {
        "int32": "",
        "glow": "bias brought to the scale of the sums by an 8-bit multiplier",
        "float": "real bias after scaling",
        "codes": "bias rounded on its own and added after",
        "none": "no bias",
    }
)
_PLAIN_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "scale": "scaled to real units",
        "div": "divided by the output scale",
        "inv": "times the reciprocal of the output scale",
        "sat16": "saturated to 16 bits",
        "wrap": "codes that wrap around",
    }
)


def describe(variant: Variant) -> str:
    """Say in one line how a variant computes."""
    multiplies = _multiplies((*variant.requantize, *variant.operand)) and not variant.form.startswith("common")
    form = _form(variant)
    parts = [_summed(variant.accumulate), form]
    if multiplies:
        parts += [_NUMBERS[variant.multiplier.number], _EXPRESSIONS[variant.multiplier.expression]]
    elif variant.multiplier.number == "f64":
        parts[1:] = [form.replace("float32", "float64")] if "float32" in form else [form, "in float64"]
    parts += _steps(variant.requantize)
    parts.append(_BIASES[variant.bias])
    return ", ".join(part for part in parts if part)


def _multiplies(steps: tuple[Step, ...]) -> bool:
    return any(step.op in ("mul", "mulhi", "shr") for step in steps)


def _summed(accumulate: str) -> str:
    kind, *rest = accumulate.split(":")
    words = [_ACCUMULATES[kind], *(_ORDERS.get(word, f"{word} apart") for word in rest)]
    return ", ".join(word for word in words if word)


def _form(variant: Variant) -> str:
    return _FORMS[variant.form].format(shift=variant.shift, operand=", ".join(_steps(variant.operand)))


def _steps(steps: tuple[Step, ...]) -> list[str]:
    words: list[str] = []
    rounded = False
    rounds = any(_rounds(step) for step in steps)
    high = any(step.op == "mulhi" for step in steps)
    for step in steps:
        if step.op == "mulhi":
            words.append(f"high product, {_NEAREST[step.rounding]}")
        elif step.op == "shr":
            words.append(f"then a shift, {_NEAREST[step.rounding]}" if high else _NEAREST[step.rounding])
        elif step.op == "avg":
            words.append(f"divided by the count, {_NEAREST[step.rounding]}")
        elif step.op == "round":
            words.append(_NEAREST[step.rounding])
        elif step.op == "zp" and rounds:
            words.append("zero point after rounding" if rounded else "zero point before rounding")
        else:
            words.append(_PLAIN_STEPS.get(step.op, ""))
        rounded = rounded or _rounds(step)
    return [word for word in words if word]


def _rounds(step: Step) -> bool:
    return step.op in ("round", "shr", "mulhi", "avg")
