"""What a program starts from: each form turns what the columns hold into the first value of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from qdebug.replay.columns import Columns
from qdebug.replay.form_codes import leaky, tabled
from qdebug.replay.form_pairs import common, dequantized, each, fixed_point_15, folded, ratios, shifted
from qdebug.replay.operations import Start, load, number_type
from qdebug.replay.scaling import scales_of
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["start_of"]


def _loaded(unit: Unit, columns: Columns, variant: Variant) -> Start:
    """Take the numbers themselves."""
    dtype = number_type(variant.multiplier)
    return Start(operation=load(dtype), dtype=dtype, scales=scales_of(unit, columns.count, columns.member))


_FORMS: Mapping[str, Callable[[Unit, Columns, Variant], Start]] = MappingProxyType(
    dict.fromkeys(("sum", "raw", "real", "taps", "ort", "exp32", "exp64"), _loaded)
    | dict.fromkeys(("fold", "fold-fma"), folded)
    | dict.fromkeys(("deq", "deq-fma"), dequantized)
    | dict.fromkeys(("common20", "common21"), common)
    | dict.fromkeys(("table", "table-fma", "stepped", "mlas"), tabled)
    | {"ratio": ratios, "ls": shifted, "fixed15": fixed_point_15, "each": each, "leaky": leaky}
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
