"""Steps of a program: names, their effect on real numbers and on integers, and their text in numpy.

A step is one row of `STEPS`. A program is compiled to operations. Programs of one unit share equal operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.numerics.fixedpoint import divide, multiply_high, shift_left, shift_right, wrap_to
from qdebug.numerics.rounding import ROUNDINGS, roundings_of, unknown_rounding
from qdebug.replay.columns import Operation, Start
from qdebug.replay.precision import fused_multiply_add, plain_dtype
from qdebug.replay.scaling import Fixed, Multiplier, float_multiplier, integer_multiplier, real_multiplier, sum_scale
from qdebug.replay.unit import Unit
from qdebug.replay.words import refuse

__all__ = ["STEPS", "Program", "Step", "StepWord", "compile_steps", "parse_steps", "plan_program", "round_to_half"]

Numbers = tuple[np.ndarray, ...]
Out = np.ndarray | None
_WHOLE_KINDS = frozenset(
    {"conv", "linear", "add", "sub", "mul", "average_pool", "global_average_pool", "requantize", "concat", "where"}
)
_ONE = np.ones((), np.float32)
_SPLITTING = frozenset({"shl", "mulhi", "avg"})
"""Steps that perform a part of the integer multiplication."""
_DEPENDS_ON_UNITS = frozenset({"bias", "lev", "lev-fma", "lev16", "lev16-fma"})
"""Steps that act differently on numbers in real units."""
_MAX_SHIFT = 62
_MAX_LEFT_SHIFT = 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _StepContext:
    """A step of a program, with everything needed to compile it.

    Args:
        unit: The unit.
        start: The start of the program.
        ops: The steps of the program.
        rounding: The step's rounding.
        real_units: Whether the numbers are in real units: scaled, and not yet divided by the output's scale.
        multiplier: The program's multiplier; None for a step that does not multiply.
    """

    unit: Unit
    start: Start
    ops: frozenset[str]
    rounding: str
    real_units: bool
    multiplier: np.ndarray | Fixed | None

    @property
    def single(self) -> np.ndarray:
        """The output's scale in float32."""
        return self.start.scales.y.astype(np.float32)

    @property
    def whole(self) -> Fixed:
        """The integers of the multiplier."""
        if not isinstance(self.multiplier, Fixed):
            raise TypeError("the multiplier has no integer form")
        return self.multiplier

    @property
    def real(self) -> np.ndarray:
        """The multiplier in its floating-point format."""
        if not isinstance(self.multiplier, np.ndarray):
            raise TypeError("the multiplier has no floating-point form")
        return self.multiplier

    def combine_with(self, function: Callable[..., Any], parameter: np.ndarray, text: str | None = None) -> Operation:
        """Return the operation that combines the numbers with a parameter, in the program's dtype."""
        return _binary_operation(function, parameter.astype(self.start.dtype), text)


def _binary_operation(function: Callable[..., Any], parameter: np.ndarray, text: str | None = None) -> Operation:
    def apply(numbers: Numbers, out: Out, operand: np.ndarray) -> np.ndarray:
        return np.asarray(function(numbers[0], operand, out=out))

    return Operation(apply=apply, parameters=(parameter,), text=text)


def _multiply(context: _StepContext) -> Operation:
    return context.combine_with(np.multiply, context.real, "v * {}  # input scale * weight scale / output scale")


def _add_zero_point(context: _StepContext) -> Operation:
    zero = context.unit.out.zero_point if context.start.zero is None else context.start.zero
    return context.combine_with(np.add, zero, "v + {}  # zero point")


def _add_bias(context: _StepContext) -> Operation:
    """Add the bias as real numbers, in real units or in units of the output."""
    unit = context.unit
    if unit.bias is None:
        return context.combine_with(np.add, np.zeros((), np.float32))
    own_scale = None if unit.bias_scale is None else unit.bias_scale.astype(np.float32)
    bias = unit.bias.astype(np.float32)
    if unit.kind == "conv":
        filters = (-1, *(1,) * (unit.operands[0].codes.ndim - 2))
        bias, own_scale = bias.reshape(filters), None if own_scale is None else own_scale.reshape(filters)
    if unit.bias.dtype.kind in "iu":
        bias = bias * (sum_scale(context.start.scales) if own_scale is None else own_scale)
    return context.combine_with(
        np.add, np.asarray(bias if context.real_units else bias / context.single, dtype=np.float32)
    )


def _count_levels(context: _StepContext, *, fma: bool = False, half: bool = False) -> Operation:
    """Convert numbers to steps above the low end of the output's range: times steps / width, plus the low end's offset.

    Args:
        context: The step's context.
        fma: Whether product and sum are rounded only once.
        half: Whether the ends of the range are stored in float16; with `fma`, also the factor and offset.

    Source: FakeQuantize of OpenVINO (common/snippets/src/pass/fq_decomposition.cpp); measured.
    """
    low, high = (np.float32(end) for end in context.unit.out.limits)
    one = np.ones((), np.float32) if context.real_units else context.start.one
    zero, unit = context.unit.out.zero_point.astype(np.float32), sum_scale(context.start.scales) if one is None else one
    with np.errstate(all="ignore"):  # a scale of 0 leaves no range
        ends = [np.asarray((end - zero) * context.single) for end in (low, high)]
        range_start, range_end = (np.asarray((round_to_half(end) if half else end) / unit) for end in ends)
        factor = np.asarray((high - low) / (range_end - range_start))
        rest = np.asarray(-range_start * factor)
    if half and fma:
        factor, rest = round_to_half(factor), round_to_half(rest)

    def apply(numbers: Numbers, out: Out, multiplier: np.ndarray, addend: np.ndarray) -> np.ndarray:
        if fma:
            return fused_multiply_add(numbers[0], multiplier, addend)
        return np.asarray(np.add(np.multiply(numbers[0], multiplier, out=out), addend, out=out))

    text = "v * {} + {}  # steps of the output's range over its width, and where it begins"
    return Operation(apply=apply, parameters=(factor, rest), text=None if fma else text)


def round_to_half(values: np.ndarray) -> np.ndarray:
    """Round numbers to float16, but return them as float32."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).astype(np.float16).astype(np.float32)


def _add_lowest_code(context: _StepContext) -> Operation:
    return context.combine_with(np.add, np.asarray(context.unit.out.limits[0]), "v + {}  # lowest code")


def _round(context: _StepContext) -> Operation:
    row = ROUNDINGS[context.rounding]
    real = row.real
    if real is None:
        raise unknown_rounding(context.rounding, "real")
    return Operation(apply=lambda numbers, out: real(numbers[0], out), text=row.real_text)


def _saturate(context: _StepContext) -> Operation:
    low, high = context.unit.out.limits
    lowest_code, highest_code = context.unit.out.clamp or (low, high)
    scales = (context.unit.out.scale, *(operand.scale for operand in context.unit.operands))
    # No number is NaN if the inputs are whole numbers and all scales are finite and above 0.
    never_nan = context.unit.kind in _WHOLE_KINDS and all(bool(np.all((s > 0) & np.isfinite(s))) for s in scales)
    return _clip(max(low, lowest_code), min(high, highest_code), never_nan=never_nan, dtype=context.unit.out.dtype)


def _clip(low: int, high: int, *, never_nan: bool, dtype: np.dtype | None = None) -> Operation:
    def apply(numbers: Numbers, out: Out) -> np.ndarray:
        values = numbers[0]
        lowest, highest = values.dtype.type(low), values.dtype.type(high)
        if never_nan or values.dtype.kind == "i" or not np.isnan(values.min(initial=0)):
            bounded = np.clip(values, lowest, highest, out=out)
        else:  # NaN becomes the lowest code, as on x86
            bounded = np.fmin(np.fmax(values, lowest, out=out), highest, out=out)
        return np.asarray(bounded if dtype is None else bounded.astype(dtype))

    return Operation(apply=apply, text=f"np.clip(v, {low}, {high})" + ("" if dtype is None else _cast_text(dtype)))


@cache
def _cast_text(dtype: np.dtype) -> str:
    return f".astype(np.{plain_dtype(dtype).name})"


def _wrap(context: _StepContext) -> Operation:
    dtype = context.unit.out.dtype

    def apply(numbers: Numbers, out: Out) -> np.ndarray:
        del out
        return numbers[0].astype(np.int64).astype(dtype)

    return Operation(apply=apply, text=f"v.astype(np.int64){_cast_text(dtype)}")


def _average(context: _StepContext) -> Operation:
    rounding = context.rounding

    def apply(numbers: Numbers, out: Out, counts: np.ndarray) -> np.ndarray:
        del out
        return divide(numbers[0], counts, rounding)

    return Operation(apply=apply, parameters=(context.start.scales.n.astype(np.int64),))


def _multiply_high(context: _StepContext) -> Operation:
    bits, rounding = context.whole.bits, context.rounding

    def apply(numbers: Numbers, out: Out, multiplier: np.ndarray) -> np.ndarray:
        return multiply_high(numbers[0], multiplier, rounding, bits=bits, out=out)

    text = f'shifted(v * {{}}, {bits}, "{rounding}")'
    return Operation(apply=apply, parameters=(context.whole.multiplier,), text=text)


def _left_shift_bits(context: _StepContext) -> np.ndarray:
    """Return the number of bits that the step `shl` shifts by."""
    exponent = context.whole.exponent
    return np.maximum(exponent, 0) if "shl" in context.ops else np.zeros_like(exponent)


def _shift_left(context: _StepContext) -> Operation:
    text = "np.clip(v << {}, -(2**31), 2**31 - 1)"
    return _shift_unless_zero(lambda numbers, _, bits: shift_left(numbers[0], bits), _left_shift_bits(context), text)


def _shift_by_remaining_bits(context: _StepContext) -> Operation:
    """Shift right by the remaining bits."""
    rest = np.asarray(
        _left_shift_bits(context) - context.whole.exponent + (0 if "mulhi" in context.ops else context.whole.bits)
    )
    return _make_right_shift(rest, context.rounding)


def _make_right_shift(amount: np.ndarray, rounding: str) -> Operation:
    """Return a right shift. Negative amounts shift left."""
    if int(amount.min(initial=0)) < 0:

        def apply(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
            del out
            larger = np.left_shift(numbers[0], np.minimum(np.maximum(-bits, 0), _MAX_LEFT_SHIFT))
            return shift_right(larger, np.maximum(bits, 0), rounding)

        return _shift_unless_zero(apply, amount, None)

    def shifted(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
        return shift_right(numbers[0], bits, rounding, out=out)

    has_text = int(amount.max(initial=0)) <= _MAX_SHIFT
    return _shift_unless_zero(shifted, amount, f'shifted(v, {{}}, "{rounding}")' if has_text else None)


def _shift_unless_zero(apply: Callable[..., np.ndarray], amount: np.ndarray, text: str | None) -> Operation:
    """Return a shift, or the identity for a shift by 0."""
    if not np.any(amount):
        return Operation(apply=lambda numbers, _: numbers[0], text="v")
    return Operation(apply=apply, parameters=(amount,), text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWord:
    """A word of a program.

    Args:
        roundings: Its possible roundings; empty if it does not round.
        words: Its description, with `{}` for the rounding's description; empty if none is needed.
        real: Makes its operation on real numbers; None if it needs an integer multiplier.
        whole: Makes its operation on integers; None if it needs a real multiplier.
        multiplies: Whether it depends on the multiplier.
        wraps: Whether overflow wraps around.
        half: Whether it stores scales of operands and a real bias in float16.
    """

    roundings: tuple[str, ...] = ()
    words: str = ""
    real: Callable[[_StepContext], Operation] | None = None
    whole: Callable[[_StepContext], Operation] | None = None
    multiplies: bool = False
    wraps: bool = False
    half: bool = False

    @property
    def rounds(self) -> bool:
        """Whether it rounds the result and its description names the rounding."""
        return "{}" in self.words


STEPS: Mapping[str, StepWord] = MappingProxyType(
    {
        "mul": StepWord(
            real=_multiply,
            whole=lambda context: context.combine_with(np.multiply, context.whole.multiplier, "v * {}"),
            multiplies=True,
        ),
        "div": StepWord(
            words="divided by the output scale",
            real=lambda context: context.combine_with(np.divide, context.single, "v / {}  # output scale"),
        ),
        "inv": StepWord(
            words="times the reciprocal of the output scale",
            real=lambda context: context.combine_with(
                np.multiply, np.asarray(1 / context.single), "v * {}  # 1 / output scale"
            ),
        ),
        "lev": StepWord(words="counted in steps of the output's range from its low end", real=_count_levels),
        "lev-fma": StepWord(
            words="counted in steps of the output's range from its low end, fused",
            real=partial(_count_levels, fma=True),
        ),
        "lev16": StepWord(
            words="scales and the ends of the output's range in float16, in whose steps it is counted from its low end",
            real=partial(_count_levels, half=True),
            half=True,
        ),
        "lev16-fma": StepWord(
            words="scales and the steps of the output's range in float16, counted from its low end, fused",
            real=partial(_count_levels, fma=True, half=True),
            half=True,
        ),
        "half": StepWord(
            words="rounded to float16",
            real=lambda _: Operation(
                apply=lambda numbers, _: round_to_half(numbers[0]), text="v.astype(np.float16).astype(np.float32)"
            ),
        ),
        "low": StepWord(real=_add_lowest_code),
        "scale": StepWord(
            words="scaled to real units",
            real=lambda context: context.combine_with(
                np.multiply, sum_scale(context.start.scales), "v * {}  # input scale * weight scale"
            ),
        ),
        "shl": StepWord(whole=_shift_left, multiplies=True),
        "mulhi": StepWord(
            roundings=roundings_of("mulhi", "up", "away", "trunc"),
            words="high product, {}",
            whole=_multiply_high,
            multiplies=True,
        ),
        "pre": StepWord(
            roundings=roundings_of("pre"),
            whole=lambda context: _make_right_shift(context.whole.pre, context.rounding),
            multiplies=True,
        ),
        "shr": StepWord(roundings=roundings_of("shr"), words="{}", whole=_shift_by_remaining_bits, multiplies=True),
        "round": StepWord(roundings=roundings_of("round"), words="{}", real=_round),
        "avg": StepWord(roundings=roundings_of("avg"), words="divided by the count, {}", whole=_average),
        "bias": StepWord(real=_add_bias),
        "zp": StepWord(real=_add_zero_point, whole=_add_zero_point),
        "sat16": StepWord(words="saturated to 16 bits", whole=lambda _: _clip(-(2**15), 2**15 - 1, never_nan=True)),
        "wrap32": StepWord(
            whole=lambda _: Operation(
                apply=lambda numbers, _: wrap_to(numbers[0], 32), text="v.astype(np.int32).astype(np.int64)"
            ),
            wraps=True,
        ),
        "sat": StepWord(real=_saturate, whole=_saturate),
        "wrap": StepWord(words="codes that wrap around", real=_wrap, whole=_wrap, wraps=True),
    }
)
"""Steps of a program, each with its roundings (`shr.away`, see `qdebug.numerics.rounding`); `round` is written as its
rounding alone.

mul: multiply by the multiplier, in its number format. scale: multiply by the scale of the sums, div: divide by the
output's scale, inv: multiply by its reciprocal (all float32). lev: count steps of the output's range from its low end,
to which low adds the lowest code; lev-fma: with one rounding; lev16: with scales and ends stored in float16; lev16-fma:
with the steps in float16 too. half: round to float16. shl: shift left if the multiplier requires it. mulhi: the high
half of the doubled product, as vqrdmulh gives it. pre: shift right before the product. shr: shift right by the
remaining bits. round: to a whole number. avg: divide by the number of elements. bias: add the bias. zp: add the
output's zero point. sat16: saturate to 16 bits. wrap32: keep the low 32 bits. sat: to the output's codes, within the
bounds of a fused activation. wrap: to the output's codes, losing upper bits.
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Step:
    """One step of a program.

    Args:
        op: A name in `STEPS`.
        rounding: One of the step's roundings; empty if it does not round.

    Raises:
        UsageError: The step does not exist.
    """

    op: str
    rounding: str = ""

    def __post_init__(self) -> None:
        word = STEPS.get(self.op)
        if word is None or self.rounding not in (word.roundings or ("",)):
            refuse("step", str(self), sorted(STEPS))

    def __str__(self) -> str:
        if self.op == "round":
            return self.rounding
        return f"{self.op}.{self.rounding}" if self.rounding else self.op


def parse_steps(text: str) -> tuple[Step, ...]:
    """Parse a program: steps separated by commas.

    Raises:
        UsageError: A step is unknown.
    """
    steps = []
    for word in text.split(",") if text else ():
        op, _, rounding = word.partition(".")
        plain = op in STEPS["round"].roundings
        steps.append(Step(op="round", rounding=op) if plain else Step(op=op, rounding=rounding))
    return tuple(steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PlannedStep:
    """A step of a program, independent of the unit.

    Args:
        step: The step.
        key: Identifies its effect on numbers of one kind, except for the multiplier.
        make: Makes its operation; None if it does not support the number type, or for a late bias.
        multiplies: Whether it depends on the multiplier.
        late_bias: Whether it adds the bias after applying the preceding steps to it.
        real_units: Whether its input is in real units.
    """

    step: Step
    key: object
    make: Callable[[_StepContext], Operation] | None
    multiplies: bool
    late_bias: bool
    real_units: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Steps in order, independent of the unit.

    Args:
        steps: The steps.
        ops: Their names.
        multiplier: The multiplier.
        operand: Name of the operand if this is an operand program; empty otherwise.
    """

    steps: tuple[_PlannedStep, ...]
    ops: frozenset[str]
    multiplier: Multiplier
    operand: str


@cache
def _interned_key(*parts: object) -> object:
    """Return the same object for equal parts, so that it hashes faster."""
    del parts
    return object()


def plan_program(
    steps: tuple[Step, ...],
    multiplier: Multiplier,
    *,
    whole: bool,
    operand: str = "",
    late_bias: bool = False,
) -> Program:
    """Return a program that can be compiled for many units.

    Args:
        steps: The steps.
        multiplier: The multiplier.
        whole: Whether it runs on integers.
        operand: Name of the operand if this is an operand program; empty otherwise.
        late_bias: Whether the step `bias` adds the bias after applying the preceding steps to it.
    """
    ops = frozenset(step.op for step in steps)
    split = ops & _SPLITTING if whole else None
    planned, real = list[_PlannedStep](), False
    for at, step in enumerate(steps):
        word, late = STEPS[step.op], step.op == "bias" and late_bias
        context = split if word.multiplies else step.op in _DEPENDS_ON_UNITS and real
        made_of: tuple[object, ...] = (operand, step.op, step.rounding, context)
        planned.append(
            _PlannedStep(
                step=step,
                key=_interned_key("late bias", multiplier, split, steps[:at]) if late else _interned_key(*made_of),
                make=None if late else word.whole if whole else word.real,
                multiplies=word.multiplies,
                late_bias=late,
                real_units=real,
            )
        )
        real = step.op == "scale" or (real and step.op == "bias")
    return Program(steps=tuple(planned), ops=ops, multiplier=multiplier, operand=operand)


def compile_steps(unit: Unit, start: Start, program: Program, memo: dict[object, Any]) -> list[Operation]:
    """Return the operations of a program; equal operations are the same object.

    Args:
        unit: The unit.
        start: The start of the program.
        program: The steps.
        memo: Cache of the operations of this unit.

    Raises:
        ValueError: A step does not support this number type, or lacks its parameters.
    """
    cache = memo.setdefault(("steps", start.dtype, start.tag), {})
    multiplier: np.ndarray | Fixed | None = None
    operations: list[Operation] = []
    for planned in program.steps:
        key = planned.key
        if planned.multiplies and planned.make is not None:
            if multiplier is None:
                multiplier = _cached_multiplier(unit, start, program, memo)
            key = key, id(multiplier)  # the memo keeps the object alive, so its id is unique
        operation = cache.get(key)
        if operation is None:
            if planned.late_bias:
                operation = _binary_operation(np.add, _late_bias(unit, start, operations))
            else:
                operation = _compile_step(unit, start, program.ops, planned, multiplier)
            cache[key] = operation
        operations.append(operation)
    return operations


def _compile_step(
    unit: Unit, start: Start, ops: frozenset[str], planned: _PlannedStep, multiplier: np.ndarray | Fixed | None
) -> Operation:
    if planned.make is None:
        raise ValueError(
            f"the step {planned.step} needs {'a real' if start.dtype is np.int64 else 'an integer'} multiplier"
        )
    step_context = _StepContext(
        unit=unit,
        start=start,
        ops=ops,
        rounding=planned.step.rounding,
        real_units=planned.real_units,
        multiplier=multiplier if planned.multiplies else None,
    )
    return planned.make(step_context)


def _cached_multiplier(unit: Unit, start: Start, program: Program, memo: dict[object, Any]) -> np.ndarray | Fixed:
    """Return a program's multiplier. Equal numbers give the same object."""
    if start.whole is not None and start.dtype is np.int64:
        return start.whole
    averages = "avg" in program.ops  # this step divides by the count, so the multiplier must not
    key = ("multiplier", start.dtype, start.tag, program.operand, program.multiplier, averages)
    cached = memo.get(key)
    if cached is None:
        scales = replace(start.scales, n=_ONE) if averages and start.dtype is np.int64 else start.scales
        number, expression = program.multiplier.number, program.multiplier.expression
        if start.dtype is np.int64:
            cached = integer_multiplier(unit, scales, program.multiplier)
            arrays: tuple[np.ndarray, ...] = (cached.multiplier, cached.exponent, cached.pre)
            content: tuple[object, ...] = ("integers", cached.bits)
        else:
            cached = float_multiplier(real_multiplier(scales, expression), number)
            arrays, content = (cached,), ("real",)
        content += tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays)
        cached = memo[key] = memo.setdefault(content, cached)
    return cached  # type: ignore[no-any-return]


def _late_bias(unit: Unit, start: Start, operations: Sequence[Operation]) -> np.ndarray:
    """Return the integer bias after the operations that precede it in the program."""
    if unit.bias is None:
        return np.zeros((), start.dtype)
    if unit.bias.dtype.kind not in "iu" or unit.bias_scale is not None:
        raise ValueError("a bias that is rounded separately must be an integer at the scale of the sums")
    axes = (1,) * (unit.operands[0].codes.ndim - 2) if unit.kind == "conv" else ()
    value = (unit.bias.reshape(-1, *axes) if axes else unit.bias).astype(start.dtype)
    for operation in operations:
        parameters = operation.parameters
        wide = np.broadcast_shapes(value.shape, *(np.shape(parameter) for parameter in parameters))
        value = operation.apply((np.broadcast_to(value, wide).copy(),), None, *parameters)
    return value
