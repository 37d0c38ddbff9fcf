"""The steps of a program as operations on blocks: floating point, or integers in 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.numerics.fixedpoint import divide, multiply_high, shift_left, shift_right, wrap_to
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.operations import Operation, Start
from qdebug.replay.scaling import Fixed, Scales, fixed, real_multiplier, sum_scale
from qdebug.replay.unit import Unit
from qdebug.replay.variant import FLOAT_STEPS, Multiplier, Step

__all__ = ["compile_steps"]

Numbers = tuple[np.ndarray, ...]
Out = np.ndarray | None
_NONE = np.zeros((), np.int64)


def compile_steps(
    unit: Unit, start: Start, program: tuple[Step, ...], multiplier: Multiplier, tag: str = ""
) -> Iterator[Operation]:
    """Give the operations of a program.

    Args:
        unit: What is computed.
        start: What the program runs on.
        program: The steps.
        multiplier: What stands for the quotient of the scales.
        tag: Tells apart programs of one variant that have different scales.

    Raises:
        ValueError: A step is not one for this kind of number, or has no parameters here.
    """
    if start.dtype is np.int64:
        yield from _integer_steps(unit, start, program, multiplier, tag)
    else:
        yield from _real_steps(unit, start, program, multiplier, tag)


def _real_steps(
    unit: Unit, start: Start, program: tuple[Step, ...], multiplier: Multiplier, tag: str
) -> Iterator[Operation]:
    scales, dtype = start.scales, start.dtype
    real_units = False
    for step in program:
        if step.op not in FLOAT_STEPS:
            raise ValueError(f"the step {step} needs an integer multiplier")
        name = dtype.__name__ + tag
        if step.op == "mul":
            factor = real_multiplier(scales, multiplier.expression).astype(dtype)
            yield _binary((step.op, name, multiplier), np.multiply, factor)
        elif step.op == "scale":
            yield _binary((step.op, name), np.multiply, sum_scale(scales).astype(dtype))
        elif step.op == "div":
            yield _binary((step.op, name), np.divide, scales.y.astype(np.float32).astype(dtype))
        elif step.op == "inv":
            yield _binary((step.op, name), np.multiply, (1 / scales.y.astype(np.float32)).astype(dtype))
        elif step.op == "bias":
            yield _binary(
                (step.op, name, real_units), np.add, _real_bias(unit, scales, real_units=real_units).astype(dtype)
            )
        elif step.op == "zp":
            yield _binary((step.op, name), np.add, unit.out.zero_point.astype(dtype))
        elif step.op == "round":
            yield _rounded(step.rounding)
        else:
            yield _ending(unit, step)
        real_units = step.op == "scale" or (real_units and step.op == "bias")


def _real_bias(unit: Unit, scales: Scales, *, real_units: bool) -> np.ndarray:
    """Give the bias as real numbers, in real units or in units of the output."""
    if unit.bias is None:
        return np.zeros((), np.float32)
    bias = unit.bias.astype(np.float32)
    if unit.kind == "conv":
        bias = bias.reshape(-1, *(1,) * (unit.operands[0].codes.ndim - 2))
    if unit.bias.dtype.kind in "iu":
        own = sum_scale(scales) if unit.bias_scale is None else unit.bias_scale.astype(np.float32)
        bias = bias * own
    return np.asarray(bias if real_units else bias / scales.y.astype(np.float32), dtype=np.float32)


def _binary(key: tuple[object, ...], function: Callable[..., Any], parameter: np.ndarray) -> Operation:
    def apply(numbers: Numbers, out: Out, operand: np.ndarray) -> np.ndarray:
        return np.asarray(function(numbers[0], operand, out=out))

    return Operation(key=key, apply=apply, parameters=(parameter,))


def _plus(values: np.ndarray, out: Out) -> np.ndarray:
    """Round by adding one half and cutting down, in the values' own precision."""
    shifted = np.add(values, values.dtype.type(0.5), out=out)
    return np.asarray(np.floor(shifted, out=shifted if isinstance(shifted, np.ndarray) else None))


_FAST: Mapping[str, Callable[..., Any]] = MappingProxyType({"even": np.rint, "floor": np.floor, "trunc": np.trunc})


def _rounded(rounding: str) -> Operation:
    def apply(numbers: Numbers, out: Out) -> np.ndarray:
        if rounding in _FAST:
            return np.asarray(_FAST[rounding](numbers[0], out=out))
        if rounding == "plus":
            return _plus(numbers[0], out)
        return ROUNDINGS[rounding](numbers[0])

    return Operation(key=("round", rounding), apply=apply)


def _ending(unit: Unit, step: Step) -> Operation:
    """Give a step that bounds codes or makes them, for any kind of number."""
    if step.op == "sat":
        low, high = unit.out.limits
        least, most = unit.out.clamp or (low, high)
        return _clipped(("sat",), max(low, least), min(high, most), unit.out.dtype)
    if step.op == "sat16":
        return _clipped(("sat16",), -(2**15), 2**15 - 1, None)
    if step.op == "wrap32":
        return Operation(key=("wrap32",), apply=lambda numbers, _: wrap_to(numbers[0], 32))
    dtype = unit.out.dtype

    def wrapped(numbers: Numbers, out: Out) -> np.ndarray:
        del out
        return numbers[0].astype(np.int64).astype(dtype)

    return Operation(key=("wrap",), apply=wrapped)


def _clipped(key: tuple[object, ...], low: int, high: int, dtype: np.dtype | None) -> Operation:
    def apply(numbers: Numbers, out: Out) -> np.ndarray:
        values = numbers[0]
        lowest, highest = values.dtype.type(low), values.dtype.type(high)
        # fmax and fmin, since NaN, from a scale that is none, becomes the lowest code as on x86.
        bounded = np.fmin(np.fmax(values, lowest, out=out), highest, out=out)
        return np.asarray(bounded if dtype is None else bounded.astype(dtype))

    return Operation(key=key, apply=apply)


def _integer_steps(
    unit: Unit, start: Start, program: tuple[Step, ...], multiplier: Multiplier, tag: str
) -> Iterator[Operation]:
    whole, ops = start.whole, [step.op for step in program]
    if whole is None and {"shl", "mul", "mulhi", "pre", "shr"} & set(ops):
        whole = fixed(real_multiplier(start.scales, multiplier.expression), multiplier.number)
    if whole is None:
        whole = Fixed(multiplier=_NONE + 1, bits=0, exponent=_NONE, pre=_NONE)
    left = np.maximum(whole.exponent, 0) if "shl" in ops else np.zeros_like(whole.exponent)
    rest = left - whole.exponent + (0 if "mulhi" in ops else whole.bits)
    for step in program:
        key = (step.op, step.rounding, multiplier, "shl" in ops, "mulhi" in ops, tag)
        if step.op in ("shl", "mul", "mulhi", "pre", "shr"):
            yield _integer_step(step, key, whole, left, rest)
        elif step.op == "avg":
            yield _averaged(step.rounding, start.scales.n)
        elif step.op == "zp":
            yield _binary(("zp", "int64"), np.add, unit.out.zero_point.astype(np.int64))
        elif step.op in ("sat", "sat16", "wrap32", "wrap"):
            yield _ending(unit, step)
        else:
            raise ValueError(f"the step {step} needs a real multiplier")


def _averaged(rounding: str, count: np.ndarray) -> Operation:
    def apply(numbers: Numbers, out: Out, by: np.ndarray) -> np.ndarray:
        del out
        return divide(numbers[0], by, rounding)

    return Operation(key=("avg", rounding), apply=apply, parameters=(count.astype(np.int64),))


def _integer_step(step: Step, key: tuple[object, ...], whole: Fixed, left: np.ndarray, rest: np.ndarray) -> Operation:
    """Give a step that multiplies or shifts."""
    rounding = step.rounding
    if step.op == "mul":
        return _binary(key, np.multiply, whole.multiplier)
    if step.op == "shl":

        def shifted_left(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
            del out
            return shift_left(numbers[0], bits)

        return Operation(key=key, apply=shifted_left, parameters=(left,))
    if step.op == "mulhi":
        bits = whole.bits

        def high(numbers: Numbers, out: Out, multiplier: np.ndarray) -> np.ndarray:
            return multiply_high(numbers[0], multiplier, rounding, bits=bits, out=out)

        return Operation(key=key, apply=high, parameters=(whole.multiplier,))
    if rounding == "tosa":
        return Operation(key=key, apply=_tosa, parameters=(rest,))

    def shifted(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
        return shift_right(numbers[0], bits, rounding, out=out)

    if step.op == "pre":
        return Operation(key=key, apply=shifted, parameters=(whole.pre,))
    if rest.size and int(rest.min()) < 0:
        return Operation(key=key, apply=_either_way(rounding), parameters=(rest,))
    return Operation(key=key, apply=shifted, parameters=(rest,))


def _either_way(rounding: str) -> Callable[..., np.ndarray]:
    def apply(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
        del out
        larger = np.left_shift(numbers[0], np.minimum(np.maximum(-bits, 0), 30))
        return shift_right(larger, np.maximum(bits, 0), rounding)

    return apply


def _tosa(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
    """Shift right half up, nudged by 2**30 away from 0 beyond 31 bits: double_round of TOSA's apply_scale_32."""
    del out
    values = numbers[0]
    nudge = np.where(bits > 31, np.where(values >= 0, 1 << 30, -(1 << 30)), 0)
    return shift_right(values + nudge, bits, "up")
