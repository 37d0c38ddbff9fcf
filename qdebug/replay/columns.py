"""Columns: the numbers that a variant's program turns into codes, and the operations and steps it is compiled to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.numerics.fixedpoint import ROUNDINGS, divide, multiply_high, shift_left, shift_right, wrap_to
from qdebug.replay.blockwise import cut
from qdebug.replay.given import whole_of
from qdebug.replay.scaling import Fixed, Scales, float_multiplier, real_multiplier, sum_scale
from qdebug.replay.unit import Unit
from qdebug.replay.variant import FLOAT_STEPS, Multiplier, Step, Sums

__all__ = ["BLOCK", "Columns", "Operation", "Start", "compile_steps", "load", "nested", "number_type"]

BLOCK = 1 << 15
"""Elements that are worked on at a time, so that what is between two steps stays in a core's cache."""


_COORDINATES = "coordinates"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """The numbers that programs start from.

    Args:
        sums: The heavy part that made them.
        values: One array of numbers per operand of the form: integers in a dtype that holds them exactly, or real
            numbers. In the output's shape with channels first, or flat if `places` is given.
        shape: Shape of the whole output, channels first.
        count: Elements that each average is over, broadcasting to `shape`; None where nothing is averaged.
        places: Flat positions in `shape` of the elements; None if all are there.
        member: Which operand each element comes from, broadcasting to `shape`; None but where tensors are joined.
        bound: Largest magnitude that integers may have; 0 if it is not known.
        memo: What was worked out for the programs of one unit; shared with selections.
        spreads: Parameters as they broadcast to these values.
    """

    sums: Sums
    values: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    count: np.ndarray | None = None
    places: np.ndarray | None = None
    member: np.ndarray | None = None
    bound: float = 0.0
    memo: dict[object, Any] = field(default_factory=dict, repr=False)
    spreads: dict[object, tuple[np.ndarray, ...]] = field(default_factory=dict, repr=False)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.values[0].size)

    def take(self, places: np.ndarray) -> Columns:
        """Select elements.

        Args:
            places: Flat positions in C order of the whole output, channels first.

        Raises:
            ValueError: The columns are a selection already.
        """
        if self.places is not None:
            raise ValueError("a selection is taken of whole columns")
        places = np.asarray(places, dtype=np.int64).reshape(-1)
        values = tuple(array.reshape(-1)[places] for array in self.values)
        return replace(self, values=values, places=places, spreads={})

    def spread(self, parameter: np.ndarray) -> np.ndarray:
        """Give a parameter that broadcasts to the whole output so that it broadcasts to the values."""
        if parameter.size == 1:
            return parameter.reshape(())
        if self.places is None:
            return parameter.reshape((1,) * (len(self.shape) - parameter.ndim) + parameter.shape)
        if _COORDINATES not in self.spreads:
            self.spreads[_COORDINATES] = np.unravel_index(self.places, self.shape)
        return np.asarray(np.broadcast_to(parameter, self.shape)[self.spreads[_COORDINATES]])

    def blocks(self, limit: int = BLOCK) -> Iterator[tuple[slice, ...]]:
        """Cut the values into blocks of about `limit` elements at most, as indices into arrays that broadcast."""
        yield from cut(self.values[0].shape, limit)


def number_type(multiplier: Multiplier) -> type[np.generic]:
    """Give the kind of number that a program computes in: float32, float64, or int64 with an integer multiplier."""
    if not multiplier.real:
        return np.int64
    return np.float64 if multiplier.number == "f64" else np.float32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation on blocks of numbers.

    Args:
        apply: Takes the numbers (a tuple of arrays), the array to put the result in or None for a new one, and the
            parameters; gives the result, which is in another array where the dtype changes.
        parameters: Arrays that broadcast to the whole output.
    """

    apply: Callable[..., np.ndarray]
    parameters: tuple[np.ndarray, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """How a program starts.

    Args:
        operation: Makes the first value of what the columns hold.
        dtype: The kind of number that the program computes in: np.float32, np.float64 or np.int64.
        scales: What the multiplier of the program is made of.
        whole: The integers that stand for it, where they are no function of `scales`.
        tag: What the scales are of; equal for starts with equal scales.
        zero: What the step `zp` adds, where that is not the output's zero point.
    """

    operation: Operation
    dtype: type[np.generic]
    scales: Scales
    whole: Fixed | None = None
    tag: object = None
    zero: np.ndarray | None = None


def load(dtype: type[np.generic], place: int = 0) -> Operation:
    """Give the operation that takes numbers as they are, in a dtype, without ever changing them."""

    def apply(numbers: tuple[np.ndarray, ...], out: np.ndarray | None) -> np.ndarray:
        del out
        return numbers[place].astype(dtype)

    return Operation(apply=apply)


def nested(operations: Sequence[Operation]) -> Callable[[tuple[np.ndarray, ...], Sequence[np.ndarray]], np.ndarray]:
    """Give one function that applies operations in order; it takes their parameters one after the other."""

    def run(numbers: tuple[np.ndarray, ...], parameters: Sequence[np.ndarray]) -> np.ndarray:
        used = 0
        value = numbers
        for operation in operations:
            count = len(operation.parameters)
            value = (operation.apply(value, None, *parameters[used : used + count]),)
            used += count
        return value[0]

    return run


Numbers = tuple[np.ndarray, ...]
Out = np.ndarray | None
_WHOLE_KINDS = frozenset(
    {"conv", "linear", "add", "sub", "mul", "average_pool", "global_average_pool", "requantize", "concat", "where"}
)
_ONE = np.ones((), np.float32)
_MULTIPLYING = frozenset({"mul", "shl", "mulhi", "pre", "shr"})


def compile_steps(
    unit: Unit,
    start: Start,
    program: tuple[Step, ...],
    multiplier: Multiplier,
    memo: dict[object, Any],
    *,
    operand: str = "",
    late_bias: bool = False,
) -> list[Operation]:
    """Give the operations of a program; equal ones are the same object.

    Args:
        unit: What is computed.
        start: What the program runs on.
        program: The steps.
        multiplier: What stands for the quotient of the scales.
        memo: Operations that were made before for this unit.
        operand: Which operand's program this is, where each has its own scales.
        late_bias: Whether the step `bias` adds what the steps before it make of the bias.

    Raises:
        ValueError: A step is not one for this kind of number, or has no parameters here.
    """
    whole = start.dtype is np.int64
    make = _integer_operation if whole else _real_operation
    ops = tuple(step.op for step in program)
    split = ("shl" in ops, "mulhi" in ops, "avg" in ops) if whole else None
    found: list[Operation] = []
    real_units = False
    for step in program:
        if step.op == "bias" and late_bias:
            before = ("late bias", start.dtype, start.tag, multiplier, split, program[: len(found)])
            if before not in memo:
                memo[before] = _binary(np.add, _through(unit, start, found))
            found.append(memo[before])
            continue
        context = (multiplier, split) if step.op in _MULTIPLYING else real_units if step.op == "bias" else None
        key = (start.dtype, start.tag, operand, step.op, step.rounding, context)
        operation = memo.get(key)
        if operation is None:
            operation = memo[key] = make(unit, start, step, multiplier, (context, memo, operand))
        found.append(operation)
        real_units = step.op == "scale" or (real_units and step.op == "bias")
    return found


def _real_operation(unit: Unit, start: Start, step: Step, multiplier: Multiplier, context: Any) -> Operation:
    scales, dtype = start.scales, start.dtype
    if step.op not in FLOAT_STEPS:
        raise ValueError(f"the step {step} needs an integer multiplier")
    if step.op == "mul":
        real = real_multiplier(scales, multiplier.expression)
        return _binary(np.multiply, float_multiplier(real, multiplier.number))
    if step.op == "scale":
        return _binary(np.multiply, sum_scale(scales).astype(dtype))
    if step.op == "div":
        return _binary(np.divide, scales.y.astype(np.float32).astype(dtype))
    if step.op == "inv":
        return _binary(np.multiply, (1 / scales.y.astype(np.float32)).astype(dtype))
    if step.op == "bias":
        return _binary(np.add, _real_bias(unit, scales, real_units=bool(context[0])).astype(dtype))
    if step.op == "zp":
        return _binary(np.add, _zero(unit, start).astype(dtype))
    return _rounded(step.rounding) if step.op == "round" else _ending(unit, step)


def _zero(unit: Unit, start: Start) -> np.ndarray:
    return unit.out.zero_point if start.zero is None else start.zero


def _real_bias(unit: Unit, scales: Scales, *, real_units: bool) -> np.ndarray:
    """Give the bias as real numbers, in real units or in units of the output."""
    if unit.bias is None:
        return np.zeros((), np.float32)
    own = None if unit.bias_scale is None else unit.bias_scale.astype(np.float32)
    bias = unit.bias.astype(np.float32)
    if unit.kind == "conv":
        filters = (-1, *(1,) * (unit.operands[0].codes.ndim - 2))
        bias, own = bias.reshape(filters), None if own is None else own.reshape(filters)
    if unit.bias.dtype.kind in "iu":
        bias = bias * (sum_scale(scales) if own is None else own)
    return np.asarray(bias if real_units else bias / scales.y.astype(np.float32), dtype=np.float32)


def _through(unit: Unit, start: Start, operations: Sequence[Operation]) -> np.ndarray:
    """Give what operations make of the integer bias."""
    if unit.bias is None:
        return np.zeros((), start.dtype)
    if unit.bias.dtype.kind not in "iu" or unit.bias_scale is not None:
        raise ValueError("a bias that is rounded on its own is one of whole numbers at the scale of the sums")
    axes = (1,) * (unit.operands[0].codes.ndim - 2) if unit.kind == "conv" else ()
    value = (unit.bias.reshape(-1, *axes) if axes else unit.bias).astype(start.dtype)
    for operation in operations:
        parameters = operation.parameters
        wide = np.broadcast_shapes(value.shape, *(np.shape(parameter) for parameter in parameters))
        value = operation.apply((np.broadcast_to(value, wide).copy(),), None, *parameters)
    return value


def _binary(function: Callable[..., Any], parameter: np.ndarray) -> Operation:
    def apply(numbers: Numbers, out: Out, operand: np.ndarray) -> np.ndarray:
        return np.asarray(function(numbers[0], operand, out=out))

    return Operation(apply=apply, parameters=(parameter,))


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

    return Operation(apply=apply)


def _ending(unit: Unit, step: Step) -> Operation:
    """Give a step that bounds codes or makes them, for any kind of number."""
    if step.op == "sat":
        low, high = unit.out.limits
        least, most = unit.out.clamp or (low, high)
        return _clipped(max(low, least), min(high, most), unit.out.dtype, never_nan=_never_nan(unit))
    if step.op == "sat16":
        return _clipped(-(2**15), 2**15 - 1, None, never_nan=True)
    if step.op == "wrap32":
        return Operation(apply=lambda numbers, _: wrap_to(numbers[0], 32))
    dtype = unit.out.dtype

    def wrapped(numbers: Numbers, out: Out) -> np.ndarray:
        del out
        return numbers[0].astype(np.int64).astype(dtype)

    return Operation(apply=wrapped)


def _never_nan(unit: Unit) -> bool:
    """Tell whether no number of a program can be NaN: whole numbers come in, and all scales are above 0 and finite."""
    scales = (unit.out.scale, *(operand.scale for operand in unit.operands))
    return unit.kind in _WHOLE_KINDS and all(bool(np.all((scale > 0) & np.isfinite(scale))) for scale in scales)


def _clipped(low: int, high: int, dtype: np.dtype | None, *, never_nan: bool) -> Operation:
    def apply(numbers: Numbers, out: Out) -> np.ndarray:
        values = numbers[0]
        lowest, highest = values.dtype.type(low), values.dtype.type(high)
        if never_nan or values.dtype.kind == "i":
            bounded = np.clip(values, lowest, highest, out=out)
        else:  # several times slower; NaN becomes the lowest code, as on x86
            bounded = np.fmin(np.fmax(values, lowest, out=out), highest, out=out)
        return np.asarray(bounded if dtype is None else bounded.astype(dtype))

    return Operation(apply=apply)


def _integer_operation(unit: Unit, start: Start, step: Step, multiplier: Multiplier, context: Any) -> Operation:
    if step.op == "avg":
        return _averaged(step.rounding, start.scales.n)
    if step.op == "zp":
        return _binary(np.add, _zero(unit, start).astype(np.int64))
    if step.op in ("sat", "sat16", "wrap32", "wrap"):
        return _ending(unit, step)
    if step.op not in _MULTIPLYING:
        raise ValueError(f"the step {step} needs a real multiplier")
    (_, (shl, mulhi, averages)), memo, operand = context
    key = ("fixed", start.tag, operand, multiplier, averages)
    whole = memo.get(key) if start.whole is None else start.whole
    if whole is None:
        scales = replace(start.scales, n=_ONE) if averages else start.scales  # the step avg divides by the count
        whole = memo[key] = whole_of(unit, scales, multiplier)
    left = np.maximum(whole.exponent, 0) if shl else np.zeros_like(whole.exponent)
    rest = left - whole.exponent + (0 if mulhi else whole.bits)
    return _shifting(step, whole, left, rest)


def _averaged(rounding: str, count: np.ndarray) -> Operation:
    def apply(numbers: Numbers, out: Out, by: np.ndarray) -> np.ndarray:
        del out
        return divide(numbers[0], by, rounding)

    return Operation(apply=apply, parameters=(count.astype(np.int64),))


def _shifting(step: Step, whole: Fixed, left: np.ndarray, rest: np.ndarray) -> Operation:
    """Give a step that multiplies or shifts; one that shifts by nothing gives what it is given."""
    rounding = step.rounding
    if step.op == "mul":
        return _binary(np.multiply, whole.multiplier)
    if step.op == "mulhi":
        bits = whole.bits

        def high(numbers: Numbers, out: Out, multiplier: np.ndarray) -> np.ndarray:
            return multiply_high(numbers[0], multiplier, rounding, bits=bits, out=out)

        return Operation(apply=high, parameters=(whole.multiplier,))
    amount = {"shl": left, "pre": whole.pre}.get(step.op, rest)
    if not np.any(amount):
        return Operation(apply=lambda numbers, _: numbers[0])
    if step.op == "shl":
        return Operation(apply=lambda numbers, _, bits: shift_left(numbers[0], bits), parameters=(amount,))
    if rounding == "tosa":
        return Operation(apply=_tosa, parameters=(amount,))
    if int(amount.min()) < 0:
        return Operation(apply=_either_way(rounding), parameters=(amount,))

    def shifted(numbers: Numbers, out: Out, bits: np.ndarray) -> np.ndarray:
        return shift_right(numbers[0], bits, rounding, out=out)

    return Operation(apply=shifted, parameters=(amount,))


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
