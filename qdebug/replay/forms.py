"""Forms: functions that compute the first value of a program from the columns.

The columns hold integer sums, averages or interpolated codes, which most forms use unchanged. Forms of element-wise
operators combine codes, as stored and in the output's shape. Sources of their formulas: ONNX Runtime
(onnxruntime/core/mlas/lib/qladd.cpp) for fold, TensorFlow Lite (kernels/internal/reference/integer_ops/add.h) for ls,
XNNPACK (src/microparams-init.c) for common20, QNNPACK (src/qnnpack/requantization.h) for common21, Glow
(lib/Backends/Interpreter and lib/Backends/CPU/libjit) for fixed15, ratio and each. Begin at `make_start`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.numerics.fixedpoint import round_values
from qdebug.replay.columns import Columns, Operation, Start, compose_operations, convert_to
from qdebug.replay.fixed_forms import hard_swish, inverse_root, sigmoid_or_tanh
from qdebug.replay.form_codes import apply_slope, look_up_real, requantize_by_sign
from qdebug.replay.interpolate import FRACTION_BITS
from qdebug.replay.precision import fused_multiply_add
from qdebug.replay.scaling import Fixed, Scales, fixed_multiplier, real_multiplier, scales_of, sum_scale
from qdebug.replay.steps import compile_steps, plan_program
from qdebug.replay.unit import Operand, Unit
from qdebug.replay.variant import FORMS, Variant

__all__ = [
    "combine_common",
    "combine_dequantized",
    "combine_folded",
    "combine_ratios",
    "combine_shifted",
    "fixed_point_15",
    "make_start",
    "rescale_each",
    "rescale_to_one_operand",
]

_ONE = np.ones((), np.float32)
_LARGE_SCALE = np.float32(2.0**-15)
_COMBINE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "prelu": lambda x, slope: np.where(x < 0, x * slope, x),
    "squared_difference": lambda a, b: np.square(a - b),
}


def _float32_parameters(operand: Operand) -> tuple[np.ndarray, np.ndarray]:
    return operand.scale.astype(np.float32), operand.zero_point.astype(np.float32)


def _two_operands(unit: Unit) -> tuple[Operand, Operand]:
    if len(unit.operands) != 2:
        raise ValueError("the form needs two operands")
    return unit.operands[0], unit.operands[1]


def _combine_function(unit: Unit) -> Callable[..., Any]:
    combine = _COMBINE.get(unit.kind)
    if combine is None:
        raise ValueError("the form needs two operands")
    return combine


def combine_folded(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute a ra + (b rb + (zc - (ra za + rb zb))) with ra = sa / sc and rb = sb / sc.

    For a single operand, compute x s - z s with s = sx (1 / sc), or s = sx in a dequantization, which has no scale sc.
    Source of the formula for concatenated codes: TensorFlow Lite (kernels/internal/reference/concatenation.h).
    """
    fma = variant.form == "fold-fma"
    if unit.kind == "dequantize":
        return _fold_one_operand(unit, *_float32_parameters(unit.operands[0]), fma=fma)
    if unit.kind == "concat":
        scales, zeros = (
            np.stack(values).reshape(-1)[columns.member]
            for values in zip(*map(_float32_parameters, unit.operands), strict=True)
        )
        return _fold_one_operand(unit, scales * (1 / unit.out.scale.astype(np.float32)), zeros, fma=fma)
    if unit.kind not in ("add", "sub"):
        raise ValueError("a constant can be folded only into sums")
    (scale_a, zero_a), (scale_b, zero_b) = map(_float32_parameters, _two_operands(unit))
    ratio_a, ratio_b = (scale / unit.out.scale.astype(np.float32) for scale in (scale_a, scale_b))
    if unit.kind == "sub":
        ratio_b = -ratio_b
    constant = unit.out.zero_point.astype(np.float32) - (ratio_a * zero_a + ratio_b * zero_b)

    def apply(numbers: Any, out: Any, ra: np.ndarray, rb: np.ndarray, offset: np.ndarray) -> np.ndarray:
        del out
        if fma:
            return fused_multiply_add(numbers[0], ra, fused_multiply_add(numbers[1], rb, offset))
        a, b = (array.astype(np.float32) for array in numbers)
        return np.asarray(a * ra + (b * rb + offset), dtype=np.float32)

    operation = Operation(apply=apply, parameters=(ratio_a, ratio_b, np.asarray(constant)))
    return Start(operation=operation, dtype=np.float32, scales=scales_of(unit))


def _fold_one_operand(unit: Unit, scale: np.ndarray, zero: np.ndarray, *, fma: bool) -> Start:
    def apply(numbers: Any, out: Any, factor: np.ndarray, offset: np.ndarray) -> np.ndarray:
        del out
        codes = numbers[0].astype(np.float32)
        return (
            fused_multiply_add(codes, factor, offset) if fma else np.asarray(codes * factor + offset, dtype=np.float32)
        )

    with np.errstate(over="ignore"):  # the scale of an attention mask may be the lowest float32
        constant = -(zero * scale)
    operation = Operation(apply=apply, parameters=(scale, np.asarray(constant)))
    return Start(operation=operation, dtype=np.float32, scales=scales_of(unit))


def combine_dequantized(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Dequantize both codes, as (a - za) sa or as the fused a sa - za sa, and combine them."""
    del columns
    fma = variant.form == "deq-fma"
    dtype = np.float64 if variant.multiplier.number == "f64" else np.float32
    combine = _combine_function(unit)
    (scale_a, zero_a), (scale_b, zero_b) = map(_float32_parameters, _two_operands(unit))

    def real(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
        if fma:
            return fused_multiply_add(codes, scale, np.asarray(-zero * scale, dtype=np.float32))
        return np.asarray((codes.astype(dtype) - zero) * scale, dtype=dtype)

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        return np.asarray(combine(real(numbers[0], *arguments[:2]), real(numbers[1], *arguments[2:])), dtype=dtype)

    parameters = (scale_a, zero_a, scale_b, zero_b)
    operation = Operation(apply=apply, parameters=parameters)
    return Start(operation=operation, dtype=dtype, scales=scales_of(unit))


def rescale_to_one_operand(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute (a - (za + zb sb / sa)) (sa / sb) + b in units of sb: a is rescaled to the scale of b.

    Source: AddTransformation of OpenVINO (common/low_precision_transformations/src/add.cpp); measured.
    """
    del columns
    if unit.kind not in ("add", "sub"):
        raise ValueError("only the operands of sums can be brought to one scale")
    sides, moved = _two_operands(unit), 1 if variant.form == "onto-first" else 0
    (scale, zero), (target, target_zero) = (_float32_parameters(sides[side]) for side in (moved, 1 - moved))
    signs = [np.float32(1), np.float32(-1 if unit.kind == "sub" else 1)]
    inner = np.asarray(zero + target_zero * target / scale * signs[1], dtype=np.float32)
    ratio = np.asarray(scale / target, dtype=np.float32)

    def apply(numbers: Any, out: Any, inner_zero: np.ndarray, factor: np.ndarray) -> np.ndarray:
        del out
        rescaled = (numbers[moved].astype(np.float32) - inner_zero) * factor
        return np.asarray(rescaled * signs[moved] + numbers[1 - moved].astype(np.float32) * signs[1 - moved])

    operation = Operation(apply=apply, parameters=(inner, ratio))
    return Start(operation=operation, dtype=np.float32, scales=scales_of(unit), tag=variant.form, one=target)


def combine_ratios(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Combine (a - za) (sa / sc) and (b - zb) (sb / sc). A quotient is scaled by sa / (sb sc) afterwards."""
    del columns, variant
    combine = _combine_function(unit)
    (scale_a, zero_a), (scale_b, zero_b) = map(_float32_parameters, _two_operands(unit))
    out_scale = unit.out.scale.astype(np.float32)
    quotient = unit.kind == "div"
    ratio_a = scale_a / (scale_b * out_scale) if quotient else scale_a / out_scale
    ratio_b = _ONE if quotient or unit.kind == "mul" else scale_b / out_scale
    if unit.kind == "mul":
        ratio_a = np.asarray(ratio_a * scale_b, dtype=np.float32)

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        ra, za, rb, zb = arguments
        a, b = numbers[0].astype(np.float32) - za, numbers[1].astype(np.float32) - zb
        return np.asarray(combine(a, b) * ra if quotient else combine(a * ra, b * rb), dtype=np.float32)

    parameters = (np.asarray(ratio_a), zero_a, np.asarray(ratio_b), zero_b)
    return Start(
        operation=Operation(apply=apply, parameters=parameters),
        dtype=np.float32,
        scales=scales_of(unit),
    )


def _run_operand_programs(
    unit: Unit, columns: Columns, variant: Variant, scales: tuple[Scales, Scales], ahead: int = 0
) -> Operation:
    """Run the operand program on both centered codes, shifted left by `ahead`, and combine the results."""
    if unit.kind not in ("add", "sub", "squared_difference"):
        raise ValueError("only the operands of sums can be brought to one scale")
    combine = _COMBINE[unit.kind]
    dtype = variant.multiplier.dtype
    runs, parameters = [], []
    for side, (operand, operand_scales) in enumerate(zip(_two_operands(unit), scales, strict=True)):
        start = Start(operation=convert_to(dtype, side), dtype=dtype, scales=operand_scales, tag=variant.form)
        program = plan_program(variant.operand, variant.multiplier, whole=dtype is np.int64, operand=f"operand {side}")
        steps = compile_steps(unit, start, program, columns.memo)
        runs.append((compose_operations(steps), sum(len(step.parameters) for step in steps)))
        parameters += [operand.zero_point.astype(np.int64), *(p for step in steps for p in step.parameters)]

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        values, used = [], 0
        for array, (run, count) in zip(numbers, runs, strict=True):
            centred = (array.astype(np.int64) - arguments[used]) << ahead
            values.append(run((centred.astype(dtype),), arguments[used + 1 : used + 1 + count]))
            used += 1 + count
        return np.asarray(combine(*values))

    return Operation(apply=apply, parameters=tuple(parameters))


def combine_shifted(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Shift both codes left, rescale them to twice the larger scale, and combine them at that scale.

    Source for squared differences: TensorFlow Lite (kernels/squared_difference.cc).
    """
    a, b = (operand.scale.astype(np.float64) for operand in _two_operands(unit))
    twice = 2 * np.maximum(a, b)
    unit_scale = np.ones(())
    operand_scales = tuple(Scales(x=scale, w=unit_scale, y=twice, n=unit_scale) for scale in (a, b))
    operation = _run_operand_programs(unit, columns, variant, (operand_scales[0], operand_scales[1]), variant.shift)
    squared = unit.kind == "squared_difference"
    y = unit.out.scale.astype(np.float64) * 2.0 ** (variant.shift * (2 if squared else 1))
    scales = Scales(x=twice, w=twice if squared else unit_scale, y=y, n=unit_scale)
    return Start(operation=operation, dtype=np.int64, scales=scales, tag=("ls", variant.shift))


def rescale_each(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Rescale each code to the output's scale with its own rounding, then combine the results."""
    if unit.kind == "squared_difference":
        raise ValueError("squares have a different scale from their operands")
    operand_scales = tuple(Scales(x=o.scale, w=_ONE, y=unit.out.scale, n=_ONE) for o in _two_operands(unit))
    operation = _run_operand_programs(unit, columns, variant, (operand_scales[0], operand_scales[1]))
    to_integers = Operation(
        apply=lambda numbers, out, *arguments: operation.apply(numbers, out, *arguments).astype(np.int64),
        parameters=operation.parameters,
    )
    return Start(operation=to_integers, dtype=np.int64, scales=scales_of(unit))


def combine_common(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Compute a ma + b mb - (za ma + zb mb), where the larger of the integers ma and mb has 21 or 22 bits."""
    del columns
    if unit.kind not in ("add", "sub"):
        raise ValueError("multipliers can share a shift only in sums")
    bits = int(variant.form[-2:])
    sides = _two_operands(unit)
    out_scale = unit.out.scale.astype(np.float32)
    ratios = [np.asarray(operand.scale.astype(np.float32) / out_scale, dtype=np.float32) for operand in sides]
    shift = bits + 1 - np.frexp(np.maximum(np.abs(ratios[0]), np.abs(ratios[1])))[1].astype(np.int64)
    factors = [np.rint(np.ldexp(r.astype(np.float64), shift)).astype(np.int64) for r in ratios]
    if unit.kind == "sub":
        factors[1] = -factors[1]
    zero = sum(m * o.zero_point.astype(np.int64) for m, o in zip(factors, sides, strict=True))

    def apply(numbers: Any, out: Any, ma: np.ndarray, mb: np.ndarray, offset: np.ndarray) -> np.ndarray:
        del out
        return np.asarray(numbers[0].astype(np.int64) * ma + numbers[1].astype(np.int64) * mb - offset)

    operation = Operation(apply=apply, parameters=(*factors, np.asarray(zero)))
    zeros = np.zeros_like(shift)
    fixed = Fixed(multiplier=zeros + 1, bits=0, exponent=-shift, pre=zeros)
    return Start(operation=operation, dtype=np.int64, scales=scales_of(unit), whole=fixed, tag=variant.form)


def fixed_point_15(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Round both real values to multiples of 2**-15, half away from zero, and combine them as integers."""
    del columns, variant
    if unit.kind not in ("add", "sub"):
        raise ValueError("only the operands of sums can be brought to one scale")
    combine = _COMBINE[unit.kind]
    parameters = []
    for operand in _two_operands(unit):
        scale, zero = _float32_parameters(operand)
        parameters += [zero, np.asarray(scale / _LARGE_SCALE)]

    def apply(numbers: Any, out: Any, *arguments: np.ndarray) -> np.ndarray:
        del out
        sides = ((numbers[0], *arguments[:2]), (numbers[1], *arguments[2:]))
        rounded = [_round_half_away((codes.astype(np.float32) - zero) * ratio) for codes, zero, ratio in sides]
        return np.asarray(combine(*rounded)).astype(np.float32)

    scales = Scales(x=np.asarray(_LARGE_SCALE), w=_ONE, y=unit.out.scale, n=_ONE)
    operation = Operation(apply=apply, parameters=tuple(parameters))
    return Start(operation=operation, dtype=np.float32, scales=scales, tag="fixed15")


def _round_half_away(values: np.ndarray) -> np.ndarray:
    truncated = np.trunc(values)
    return np.asarray((truncated + np.copysign(np.abs(values - truncated) >= 0.5, values)).astype(np.int64))


def _start_unchanged(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Start from the columns unchanged."""
    dtype = variant.multiplier.dtype
    return Start(operation=convert_to(dtype), dtype=dtype, scales=scales_of(unit, columns.count, columns.member))


def _interpolated_codes(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Start from interpolated codes: integers with fractional bits, or float32."""
    bits = FRACTION_BITS.get(variant.form)
    dtype = np.float32 if bits is None else np.int64
    ones = np.ones((), np.int64)
    fixed = None if bits is None else Fixed(multiplier=ones, bits=bits, exponent=0 * ones, pre=0 * ones)
    return Start(
        operation=convert_to(dtype), dtype=dtype, scales=scales_of(unit, columns.count), whole=fixed, tag=variant.form
    )


def _start_uncentered(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Start from sums of uncentered codes. The step `zp` subtracts z s / sc, as an integer for integer multipliers."""
    start = _start_unchanged(unit, columns, variant)
    x = unit.operands[0]
    zero_share = x.zero_point.astype(np.float32) * x.scale.astype(np.float32) / unit.out.scale.astype(np.float32)
    if not variant.multiplier.real:
        zero_share = round_values(zero_share, "away")
    return replace(start, zero=np.asarray(unit.out.zero_point.astype(np.float32) - zero_share), tag="offset")


def _count_levels(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Convert numbers v to steps above the low end of the output's range, as v f + c in float32.

    The factor is f = steps / width, and the offset is c = -low end * steps / width. The range is in units of the
    input: real numbers, or sums with the scale sx sw. Source: FakeQuantize of OpenVINO, whose passes divide its input
    range by the scale of the sums (low_precision/fuse_multiply_to_fake_quantize.cpp) and whose x86 plugin turns it into
    a factor and a shift (intel_cpu/src/nodes/fake_quantize.cpp); measured.

    `levels-raw` converts averages of uncentered codes, v = sum (1 / n), so c also subtracts z f.
    """
    is_uncentered, scales = variant.form == "levels-raw", scales_of(unit, columns.count)
    is_fused = variant.form == "levels-fma"
    low, high = (np.float32(end) for end in unit.out.limits)
    scale, zero = (np.asarray(parameter).astype(np.float32) for parameter in (unit.out.scale, unit.out.zero_point))
    unit_of_sums = np.ones((), np.float32) if unit.kind == "quantize" else sum_scale(scales)
    with np.errstate(all="ignore"):  # a scale of 0 leaves no range
        low_end, high_end = (low - zero) * scale / unit_of_sums, (high - zero) * scale / unit_of_sums
        width, steps = high_end - low_end, high - low
        factor, shift = np.asarray(steps / width), np.asarray(-low_end * steps / width)
    if is_fused:  # the offset c also includes the lowest code
        shift = np.asarray(shift + low)
    reciprocal = np.ones((), np.float32)
    if is_uncentered:
        reciprocal = np.asarray(np.float32(1) / np.asarray(scales.n).astype(np.float32))
        shift = np.asarray(shift - unit.operands[0].zero_point.astype(np.float32) * factor)

    def apply(numbers: Any, out: Any, multiplier: np.ndarray, addend: np.ndarray, weight: np.ndarray) -> np.ndarray:
        del out
        values = numbers[0].astype(np.float32)
        if is_uncentered:
            values = values * weight
        return (
            fused_multiply_add(values, multiplier, addend)
            if is_uncentered or is_fused
            else np.asarray(values * multiplier + addend, dtype=np.float32)
        )

    zero_point = np.asarray(np.float32(0) if is_fused else low)
    operation = Operation(apply=apply, parameters=(factor, shift, reciprocal))
    return Start(operation=operation, dtype=np.float32, scales=scales, zero=zero_point, tag=variant.form)


def _divide_multiplier_by_count(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Start from sums, with the 31-bit multiplier divided by the count (kernels/internal/reference/reduce.h)."""
    del variant
    scales = scales_of(unit, columns.count)
    undivided = fixed_multiplier(real_multiplier(replace(scales, n=np.ones((), np.float32)), "d:xw/y"), "q31")
    count = scales.n.astype(np.int64)
    # Shift left by the bits of the count, unless the remaining shift would exceed 31.
    spare_bits = np.minimum(np.frexp(count.astype(np.float64))[1] - 1, undivided.bits + undivided.exponent)
    divided = replace(
        undivided, multiplier=(undivided.multiplier << spare_bits) // count, exponent=undivided.exponent - spare_bits
    )
    return Start(operation=convert_to(np.int64), dtype=np.int64, scales=scales, whole=divided, tag="counted")


_FORMS: Mapping[str, Callable[[Unit, Columns, Variant], Start]] = MappingProxyType(
    dict.fromkeys(
        ("sum", "raw", "real", "real-lerp", "taps", "nines", "ort", "exp31", "exp32", "exp64"), _start_unchanged
    )
    | dict.fromkeys(
        ("grid10", "blend10", "blend11", "blend32", "rows32", "lerp", "lerp-fma", "corners32", "weights32"),
        _interpolated_codes,
    )
    | dict.fromkeys(("fold", "fold-fma"), combine_folded)
    | dict.fromkeys(("deq", "deq-fma"), combine_dequantized)
    | dict.fromkeys(("onto-first", "onto-second"), rescale_to_one_operand)
    | dict.fromkeys(("common20", "common21"), combine_common)
    | dict.fromkeys(("table", "table-fma", "stepped", "mlas"), look_up_real)
    | {
        "ratio": combine_ratios,
        "ls": combine_shifted,
        "fixed15": fixed_point_15,
        "each": rescale_each,
        "offset": _start_uncentered,
        "counted": _divide_multiplier_by_count,
    }
    | dict.fromkeys(("levels", "levels-fma", "levels-raw"), _count_levels)
    | {
        "leaky": requantize_by_sign,
        "slopes": apply_slope,
        "hswish16": hard_swish,
        "fixed16": sigmoid_or_tanh,
        "fixed31": sigmoid_or_tanh,
    }
    | {"root31": inverse_root}
)


def make_start(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Return the start of a program; equal starts are the same object.

    Raises:
        ValueError: The form does not fit the kind of the unit.
    """
    multiplier_key = variant.multiplier if variant.operand else variant.multiplier.number
    key = (variant.form, variant.shift, variant.operand, multiplier_key)
    start = columns.memo.get(key)
    if start is None:
        start = _FORMS[variant.form](unit, columns, variant)
        if start.one is None and (FORMS[variant.form].real or unit.kind == "quantize"):
            start = replace(start, one=_ONE, tag=(start.tag, "real"))
        columns.memo[key] = start
    return start
