"""What a program starts from: each form turns what the columns hold into the first value of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.numerics.rounding import round_values
from qdebug.replay.columns import Columns
from qdebug.replay.fixed_forms import hard_swish, squashed
from qdebug.replay.form_codes import leaky, tabled
from qdebug.replay.form_pairs import common, dequantized, each, fixed_point_15, folded, ratios, shifted
from qdebug.replay.interpolate import FRACTION
from qdebug.replay.operations import Start, load, number_type
from qdebug.replay.scaling import Fixed, fixed, real_multiplier, scales_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["start_of"]


def _loaded(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Take the numbers themselves."""
    dtype = number_type(variant.multiplier)
    return Start(operation=load(dtype), dtype=dtype, scales=scales_of(unit, columns.count, columns.member))


def _blended(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Take interpolated codes: whole numbers with a fraction of their own, or float32."""
    bits = FRACTION.get(variant.form)
    dtype = np.float32 if bits is None else np.int64
    one = np.ones((), np.int64)
    whole = None if bits is None else Fixed(multiplier=one, bits=bits, exponent=0 * one, pre=0 * one)
    return Start(
        operation=load(dtype), dtype=dtype, scales=scales_of(unit, columns.count), whole=whole, tag=variant.form
    )


def _offset(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Take sums of codes with their zero point inside: z s / sc is left to subtract, of integers a whole number."""
    start = _loaded(unit, columns, variant)
    x = unit.operands[0]
    inside = x.zero_point.astype(np.float32) * x.scale.astype(np.float32) / unit.out.scale.astype(np.float32)
    if not variant.multiplier.real:
        inside = round_values(inside, "away")
    return replace(start, zero=np.asarray(unit.out.zero_point.astype(np.float32) - inside), tag="offset")


def _counted(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Take sums, with the count divided out of the 31-bit multiplier, cut off (kernels/internal/reference/reduce.h)."""
    del variant
    scales = scales_of(unit, columns.count)
    plain = fixed(real_multiplier(replace(scales, n=np.ones((), np.float32)), "d:xw/y"), "q31")
    count = scales.n.astype(np.int64)
    # As many bits as the count has are made room for, unless the shift that is left would go beyond 31.
    room = np.minimum(np.frexp(count.astype(np.float64))[1] - 1, plain.bits + plain.exponent)
    whole = replace(plain, multiplier=(plain.multiplier << room) // count, exponent=plain.exponent - room)
    return Start(operation=load(np.int64), dtype=np.int64, scales=scales, whole=whole, tag="counted")


_FORMS: Mapping[str, Callable[[Unit, Columns, Variant], Start]] = MappingProxyType(
    dict.fromkeys(("sum", "raw", "real", "taps", "ort", "exp31", "exp32", "exp64"), _loaded)
    | dict.fromkeys(("grid10", "blend10", "blend11", "blend32", "rows32", "lerp", "lerp-fma"), _blended)
    | dict.fromkeys(("fold", "fold-fma"), folded)
    | dict.fromkeys(("deq", "deq-fma"), dequantized)
    | dict.fromkeys(("common20", "common21"), common)
    | dict.fromkeys(("table", "table-fma", "stepped", "mlas"), tabled)
    | {"ratio": ratios, "ls": shifted, "fixed15": fixed_point_15, "each": each, "offset": _offset, "counted": _counted}
    | {"leaky": leaky, "hswish16": hard_swish, "fixed16": squashed, "fixed31": squashed}
)


def start_of(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Give what a program starts with; the same object for variants that start alike.

    Raises:
        ValueError: The form is not one of the unit's kind.
    """
    read = variant.multiplier if variant.operand else variant.multiplier.number
    key = (variant.form, variant.shift, variant.operand, read)
    start = columns.memo.get(key)
    if start is None:
        start = columns.memo[key] = _FORMS[variant.form](unit, columns, variant)
    return start
