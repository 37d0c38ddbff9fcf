"""Tables of element-wise operators on two 8-bit operands: the result for each pair of codes, computed once.

With one scale for each tensor, an element of the result depends on two codes alone. A replay computes the same node for
every sample and every set of edits, so looking up a pair is several times faster than computing it. Begin at
`pair_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np

from qdebug.replay.blockwise import elementwise
from qdebug.replay.unit import PAIRS, Operand, Unit
from qdebug.replay.variant import Variant

__all__ = ["Compute", "look_up_pairs", "pair_table"]

Compute = Callable[[Unit, Variant], np.ndarray]
"""Computes a unit by a variant, in channels-first order."""

_CODES = 256
_MIN_ELEMENTS = 1 << 13
"""Number of elements of a result from which a table is worth its 65,536 entries over a few replays."""
_TABLES = 256
"""Maximum number of tables, of 64 KiB each for 8-bit results."""


@dataclass(frozen=True, slots=True)
class _PairOperator:
    """An operator on pairs of codes, identified by everything but its codes."""

    identity: tuple[object, ...]
    unit: Unit = field(compare=False, repr=False)
    variant: Variant = field(compare=False, repr=False)
    compute: Compute = field(compare=False, repr=False)


def pair_table(unit: Unit, variant: Variant, compute: Compute) -> np.ndarray | None:
    """Return the result of a unit for each pair of codes; None if a table is impossible or not worth its cost.

    Args:
        unit: The unit.
        variant: How it is computed.
        compute: Computes a unit of the same operator on other codes.

    Returns:
        (65536,) in the unit's output dtype, indexed by the bits of the first code, then those of the second.
    """
    if unit.kind not in PAIRS or len(unit.operands) != 2 or unit.bias is not None:
        return None
    left, right = unit.operands
    if max(left.codes.size, right.codes.size) < _MIN_ELEMENTS:
        return None
    if any(operand.codes.dtype not in (np.uint8, np.int8) for operand in unit.operands):
        return None
    arrays = (left.scale, left.zero_point, right.scale, right.zero_point, unit.out.scale, unit.out.zero_point)
    optional = (unit.out.multiplier, unit.out.shift)
    if any(array is not None and array.size != 1 for array in (*arrays, *optional)):
        return None
    identity = (
        variant,
        (unit.kind, unit.op, unit.domain, unit.function, unit.opset, repr(dict(unit.attrs))),
        (left.codes.dtype, right.codes.dtype, unit.out.dtype, unit.out.limits, unit.out.clamp),
        tuple(None if array is None else (array.dtype, array.tobytes()) for array in (*arrays, *optional)),
    )
    return _compute_table(_PairOperator(identity, unit, variant, compute))


@lru_cache(maxsize=_TABLES)
def _compute_table(operator: _PairOperator) -> np.ndarray:
    unit = operator.unit
    first, second = (_with_all_codes(operand) for operand in unit.operands)
    axes = (
        replace(first, codes=first.codes.reshape(-1, 1)),
        replace(second, codes=second.codes.reshape(1, -1)),
    )
    table = operator.compute(replace(unit, operands=axes, channels_last=False), operator.variant).reshape(-1)
    table.flags.writeable = False
    return table


def _with_all_codes(operand: Operand) -> Operand:
    """Return an operand with each code once, in the order of the codes' bits, and a scalar scale."""
    codes = np.arange(_CODES, dtype=np.uint8).view(operand.codes.dtype)
    return replace(operand, codes=codes, scale=operand.scale.reshape(()), zero_point=operand.zero_point.reshape(()))


def look_up_pairs(table: np.ndarray, unit: Unit) -> np.ndarray:
    """Return the result of a unit, in channels-first order, from its table."""
    left, right = (operand.codes.view(np.uint8) for operand in unit.operands)
    return elementwise(partial(_look_up, table), left, right)


def _look_up(table: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    index = (first.astype(np.uint16) << 8) | second
    return np.asarray(np.take(table, index, mode="clip"))  # "clip" skips the check of bounds
