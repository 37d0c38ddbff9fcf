"""Compute a unit by a variant: the heavy part first, then the program on all or some of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay.blockwise import elementwise
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.fixed_forms import fixed_probabilities
from qdebug.replay.interpolate import interpolate_codes
from qdebug.replay.kernels.pool import pool_window, sum_by_nines, window_counts, window_sums
from qdebug.replay.pair_tables import look_up_pairs, pair_table
from qdebug.replay.program import run_program, run_programs
from qdebug.replay.qsum import convolve_codes, multiply_matrices
from qdebug.replay.registry import Call, find_kernel
from qdebug.replay.unit import PAIRS, Unit
from qdebug.replay.variant import Variant

__all__ = [
    "accumulate",
    "average_codes",
    "compute",
    "compute_softmax",
    "finish",
    "finish_many",
    "join_codes",
    "move_codes",
    "pair_codes",
    "reduce_codes",
    "select_codes",
    "take_codes",
]


def average_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Compute the window sums of an average pool, or the averages in float32, as the columns require."""
    operand = unit.operands[0]
    call = Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op)
    window = pool_window(call, operand.codes.shape[2:])
    include = bool(call.integer("count_include_pad"))
    count = window_counts(window, include_pad=include)
    if sums.columns == "raw" and np.any(operand.zero_point) and include and any((*window.begin, *window.end)):
        raise ValueError("padding included in the average would be code 0, not the zero point")
    if sums.columns == "taps" and include:
        count = np.full_like(count, np.prod(window.kernel))
    if sums.columns in ("real", "taps", "nines"):
        real = np.asarray(operand.centred.astype(np.float32) * operand.scale.astype(np.float32))
        if sums.columns == "nines":
            value = np.asarray(sum_by_nines(real, window) * (np.float32(1) / count), dtype=np.float32)
        else:
            value = np.asarray(window_sums(real, window) / count, dtype=np.float32)
    else:
        value = _limit_to_16_bits(window_sums(_integers_to_sum(unit, sums), window), unit, sums)
    return Columns(sums=sums, values=(value,), shape=value.shape, count=count)


def reduce_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Sum over axes: all spatial axes for a global pool, the axes of the attribute for a mean."""
    operand = unit.operands[0]
    shape = operand.codes.shape
    call = Call(inputs=(), attrs=unit.attrs)
    axes_attribute = call.integers("axes")
    if unit.kind == "global_average_pool":
        axes_attribute = tuple(range(2, len(shape)))
    axes = tuple(axis % len(shape) for axis in axes_attribute) if axes_attribute else tuple(range(len(shape)))
    keep = unit.kind == "global_average_pool" or bool(call.integer("keepdims", 1))
    number = int(np.prod([shape[axis] for axis in axes], dtype=np.int64))
    count = np.asarray(np.float32(number))
    if sums.columns == "real":
        real = np.asarray(operand.centred.astype(np.float32) * operand.scale.astype(np.float32))
        value = np.asarray(real.sum(axis=axes, keepdims=keep, dtype=np.float32) / np.float32(number))
    else:
        value = _limit_to_16_bits(
            _integers_to_sum(unit, sums).sum(axis=axes, keepdims=keep, dtype=np.int64), unit, sums
        )
    return Columns(sums=sums, values=(value,), shape=value.shape, count=count)


def _integers_to_sum(unit: Unit, sums: HeavyPart) -> np.ndarray:
    if sums.columns == "sum":
        return unit.operands[0].centred
    if sums.columns == "raw":
        return unit.operands[0].codes.astype(np.int32)
    raise ValueError(f"{unit.kind} has no columns {sums.columns!r}")


def _limit_to_16_bits(total: np.ndarray, unit: Unit, sums: HeavyPart) -> np.ndarray:
    """Wrap or saturate sums of codes to 16 bits if `sums.accumulate` says so. Sums of unsigned codes are unsigned."""
    if sums.accumulate not in ("wrap16", "sat16"):
        return total
    is_unsigned = sums.columns == "raw" and unit.operands[0].codes.dtype.kind == "u"
    dtype = np.dtype(np.uint16 if is_unsigned else np.int16)
    if sums.accumulate == "wrap16":
        return np.asarray(total.astype(np.int64).astype(dtype).astype(np.int64))
    return np.asarray(np.clip(total, np.iinfo(dtype).min, np.iinfo(dtype).max))


def pair_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Return both operands' codes, or the products of their centered codes."""
    left, right = unit.operands
    if sums.columns == "codes":
        values = tuple(np.broadcast_arrays(left.codes, right.codes))
        return Columns(sums=sums, values=values, shape=values[0].shape)
    if sums.columns != "sum" or unit.kind != "mul":
        raise ValueError(f"{unit.kind} has no columns {sums.columns!r}")
    narrow = max(left.codes.dtype.itemsize, right.codes.dtype.itemsize) == 1
    product = np.asarray(left.centred * right.centred.astype(np.int32 if narrow else np.int64, copy=False))
    bound = float(np.abs(product).max(initial=0))
    return Columns(sums=sums, values=(product,), shape=product.shape, bound=bound)


def take_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Return the operand's codes or centered codes. Real values are returned unchanged."""
    if unit.function and unit.kind == "requantize":
        return move_codes(unit, sums)
    operand = unit.operands[0]
    if sums.columns not in ("codes", "sum"):
        raise ValueError(f"{unit.kind} has no columns {sums.columns!r}")
    is_uncentered = sums.columns == "codes" or operand.codes.dtype.kind == "f"
    values = operand.codes if is_uncentered else operand.centred
    return Columns(sums=sums, values=(values,), shape=values.shape)


def join_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Join the codes or centered codes of all operands along an axis."""
    is_uncentered = sums.columns == "codes"
    if not is_uncentered:
        _require_sums(unit, sums)
    call = Call(inputs=(), attrs=unit.attrs)
    arrays = [operand.codes if is_uncentered else operand.centred for operand in unit.operands]
    axis = call.integer("axis") % max(arrays[0].ndim, 1)
    total = np.concatenate(arrays, axis=axis)
    member = np.repeat(np.arange(len(arrays)), [array.shape[axis] for array in arrays])
    member_shape = [1] * total.ndim
    member_shape[axis] = -1
    return Columns(sums=sums, values=(total,), shape=total.shape, member=member.reshape(member_shape))


def select_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Select between the centered codes of two operands (Where)."""
    _require_sums(unit, sums)
    if unit.condition is None:
        raise ValueError("the Where node has no condition")
    left, right = (operand.centred for operand in unit.operands)
    total = np.where(unit.condition, left, right)
    member = np.broadcast_to(np.where(unit.condition, 0, 1), total.shape)
    return Columns(sums=sums, values=(total,), shape=total.shape, member=member)


def move_codes(unit: Unit, sums: HeavyPart) -> Columns:
    """Run an operator that moves or selects elements (max pool, pad, resize) on the centered codes.

    With the columns `real`, a resize interpolates between real values in float32 instead.
    """
    operand = unit.operands[0]
    if unit.kind == "resize" and sums.columns not in ("sum", "real"):
        return interpolate_codes(unit, sums)
    if sums.columns == "real" and unit.kind == "resize":
        data = np.asarray(operand.centred.astype(np.float32) * operand.scale.astype(np.float32))
    else:
        _require_sums(unit, sums)
        # Centered codes are integers below 2**24, exact in float32. Kernels pad with -infinity.
        data = operand.centred.astype(np.float32)
    other_inputs = tuple(
        extra.centred.astype(np.float32) if unit.kind == "pad" else extra.codes for extra in unit.operands[1:]
    )
    compute: Callable[..., Any] = find_kernel(Node(name=unit.op, op=unit.function))
    result = compute(
        Call(
            inputs=(data, *_inputs_after_data(unit, other_inputs)), attrs=unit.attrs, opset=unit.opset, op=unit.function
        )
    )
    value = np.asarray(result[0] if isinstance(result, tuple) else result)
    return Columns(sums=sums, values=(value,), shape=value.shape)


def _inputs_after_data(unit: Unit, other_inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray | None, ...]:
    """Return the inputs that follow the data. In a Pad, the widths precede the fill value."""
    if unit.kind == "pad":
        return (*unit.settings[:1], other_inputs[0] if other_inputs else None, *unit.settings[1:])
    return (*unit.settings, *other_inputs)


def compute_softmax(unit: Unit, sums: HeavyPart) -> Columns:
    """Return probabilities, computed in float32 or float64 or from ONNX Runtime's table of exponentials."""
    x = unit.operands[0].codes
    if sums.columns == "ort" and x.dtype.itemsize > 1:
        raise ValueError("the table of exponentials is for 8-bit codes")
    call = Call(inputs=(), attrs=unit.attrs)
    axis = call.integer("axis", -1 if unit.opset >= 13 else 1) % max(x.ndim, 1)
    is_flattened = unit.opset < 13
    shape = x.shape
    rows = x.reshape(int(np.prod(shape[:axis], dtype=np.int64)), -1) if is_flattened else np.moveaxis(x, axis, -1)
    if sums.columns == "ort":
        value = _softmax_by_table(unit, rows)
    elif sums.columns == "exp31":
        bits = 8 * unit.out.dtype.itemsize
        if np.any(unit.out.scale != 2.0**-bits):
            raise ValueError(f"a fixed-point softmax always returns codes with scale 2^-{bits}")
        value = fixed_probabilities(unit.operands[0], rows, bits)
    elif sums.columns in ("exp32", "exp64"):
        value = _float_softmax(unit, rows, np.float32 if sums.columns == "exp32" else np.float64)
    else:
        raise ValueError(f"softmax does not support the columns {sums.columns!r}")
    restored = value.reshape(shape) if is_flattened else np.moveaxis(value, -1, axis)
    return Columns(sums=sums, values=(np.ascontiguousarray(restored),), shape=shape)


def _float_softmax(unit: Unit, codes: np.ndarray, dtype: type[np.floating[Any]]) -> np.ndarray:
    operand = unit.operands[0]
    real = (codes.astype(np.int32) - operand.zero_point.astype(np.int32)).astype(dtype) * operand.scale.astype(dtype)
    powers = np.exp(real - real.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _softmax_by_table(unit: Unit, codes: np.ndarray) -> np.ndarray:
    """Compute exponential * floor(1 / sy) / sum in float32, with exponentials from a table, summed in order.

    The exponentials are scaled so that the sum stays finite, and the largest code of each row maps to the last entry of
    the table (onnxruntime/contrib_ops/cpu/quantization/qlinear_softmax.cc).
    """
    scale = np.float32(unit.operands[0].scale.reshape(()))
    if not scale > 0:
        raise ValueError(f"the table of exponentials needs a scale above 0, found {scale:g}")
    length = codes.shape[-1]
    headroom = max(0.0, float(np.log(np.float32(np.finfo(np.float32).max) / np.float32(max(length, 1)))) - 5.0)
    shift = headroom / float(scale)
    table = np.exp((np.arange(256, dtype=np.float64) - 255 + shift) * float(scale)).astype(np.float32)
    wide = codes.astype(np.int64)
    powers = table[wide + (255 - wide.max(axis=-1, keepdims=True, initial=-(2**15)))]
    total = np.add.accumulate(powers, axis=-1)[..., -1:]
    factor = np.floor(np.float32(1) / np.float32(unit.out.scale))
    with np.errstate(over="ignore"):
        value = np.asarray(powers * np.float32(factor) / total, dtype=np.float32)
    # In short rows with a fine output scale, the product overflows. x86 converts the infinity to 0 (unsigned) or -2**31
    # (signed), and adding a negative zero point to -2**31 wraps around.
    overflow_value = 0 if codes.dtype.kind == "u" else np.inf if int(unit.out.zero_point) < 0 else -np.inf
    return np.where(np.isinf(value), np.float32(overflow_value), value)


def _require_sums(unit: Unit, sums: HeavyPart) -> None:
    if sums.columns != "sum":
        raise ValueError(f"{unit.kind} has no columns {sums.columns!r}")


_HEAVY: Mapping[str, Callable[[Unit, HeavyPart], Columns]] = MappingProxyType(
    {
        "conv": convolve_codes,
        "linear": multiply_matrices,
        **dict.fromkeys(PAIRS, pair_codes),
        **dict.fromkeys(("lookup", "requantize", "quantize", "dequantize"), take_codes),
        **dict.fromkeys(("max_pool", "resize", "pad"), move_codes),
        **dict.fromkeys(("global_average_pool", "reduce_mean"), reduce_codes),
        "average_pool": average_codes,
        "concat": join_codes,
        "where": select_codes,
        "softmax": compute_softmax,
    }
)


def accumulate(unit: Unit, sums: HeavyPart) -> Columns:
    """Compute the heavy part of a unit, which all variants with the same `sums` share.

    Args:
        unit: The unit.
        sums: The sums to compute: `Variant.sums` of any variant of the group.

    Returns:
        The columns, for every element of the output.

    Raises:
        KernelError: The unit cannot be computed this way.
    """
    try:
        return _HEAVY[unit.kind](unit, sums)
    except (ValueError, ArithmeticError) as error:
        raise KernelError(f"{unit.op or unit.kind} cannot be computed: {error}.") from error


def finish(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray:
    """Turn columns into codes.

    Args:
        unit: The unit of the columns.
        columns: All columns, or a selection from `Columns.take`.
        variant: A variant with the same `sums`.

    Returns:
        Codes in the unit's output dtype, flat, in the columns' order.

    Raises:
        KernelError: The columns belong to other sums, or the variant's program does not fit them.
    """
    _check_variant(columns, variant)
    return _run_or_look_up(unit, columns, variant).reshape(-1)


def finish_many(unit: Unit, columns: Columns, variants: Sequence[Variant]) -> np.ndarray:
    """Turn columns into codes by many variants, computing shared steps once.

    Args:
        unit: The unit of the columns.
        columns: All columns, or (better) a selection.
        variants: Variants with the same `sums`.

    Returns:
        Codes (variants, elements) in the unit's output dtype.

    Raises:
        KernelError: The columns belong to other sums, or a program does not fit them.
    """
    for variant in variants:
        _check_variant(columns, variant)
    if len(variants) == 1:
        return run_program(unit, columns, variants[0]).reshape(1, -1)
    return run_programs(unit, columns, variants)


def compute(unit: Unit, variant: Variant) -> np.ndarray:
    """Compute a unit by a variant.

    Returns:
        Codes in the node's own layout.

    Raises:
        KernelError: The unit cannot be computed this way.
    """
    table = pair_table(unit, variant, _compute_channels_first)
    codes = _compute_channels_first(unit, variant) if table is None else look_up_pairs(table, unit)
    return np.moveaxis(codes, 1, -1) if unit.channels_last and codes.ndim > 1 else codes


def _compute_channels_first(unit: Unit, variant: Variant) -> np.ndarray:
    """Compute a unit by a variant, in channels-first order."""
    columns = accumulate(unit, variant.sums)
    return _run_or_look_up(unit, columns, variant).reshape(columns.shape)


def _run_or_look_up(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray:
    """Run a program on columns. A function of a single code is computed once per possible code and looked up."""
    codes = columns.values[0]
    if unit.kind != "lookup" or unit.per_channel or codes.dtype.kind not in "iu":
        return run_program(unit, columns, variant)
    low, high = (int(bound) for bound in (np.iinfo(codes.dtype).min, np.iinfo(codes.dtype).max))
    if codes.size <= high - low:
        return run_program(unit, columns, variant)
    all_possible_codes = np.arange(low, high + 1).astype(codes.dtype)
    table = run_program(
        unit, Columns(sums=columns.sums, values=(all_possible_codes,), shape=all_possible_codes.shape), variant
    )
    return elementwise(lambda part: np.asarray(table[part.astype(np.int64) - low]), codes)


def _check_variant(columns: Columns, variant: Variant) -> None:
    if columns.sums is not variant.sums and columns.sums != variant.sums:
        raise KernelError(f"Columns of {columns.sums} do not fit the variant {str(variant)!r}.")
