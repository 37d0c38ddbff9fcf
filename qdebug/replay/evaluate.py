"""Compute a unit by a variant: the heavy part once, then programs on all of its columns or on a few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.blockwise import elementwise
from qdebug.replay.columns import Columns
from qdebug.replay.program import run_program, run_programs
from qdebug.replay.qcodes import chosen, coded, joined, moved, paired, softmaxed
from qdebug.replay.qpool import averaged, reduced
from qdebug.replay.qsum import convolved, multiplied
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Sums, Variant

__all__ = ["accumulate", "compute", "finish", "finish_many"]

_HEAVY: Mapping[str, Callable[[Unit, Sums], Columns]] = MappingProxyType(
    {
        "conv": convolved,
        "linear": multiplied,
        **dict.fromkeys(("add", "sub", "mul", "div"), paired),
        **dict.fromkeys(("lookup", "requantize", "quantize", "dequantize"), coded),
        **dict.fromkeys(("max_pool", "resize", "pad"), moved),
        **dict.fromkeys(("global_average_pool", "reduce_mean"), reduced),
        "average_pool": averaged,
        "concat": joined,
        "where": chosen,
        "softmax": softmaxed,
    }
)


def accumulate(unit: Unit, sums: Sums) -> Columns:
    """Compute the heavy part of a unit, which all variants with the same `sums` share.

    Args:
        unit: The unit.
        sums: What is computed; `Variant.sums` of any variant of the group.

    Returns:
        The columns of every element of the output.

    Raises:
        KernelError: The unit cannot be computed so.
    """
    try:
        return _HEAVY[unit.kind](unit, sums)
    except (ValueError, IndexError, TypeError) as error:
        raise KernelError(f"{unit.op or unit.kind} cannot be computed: {error}.") from error


def finish(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray:
    """Turn columns into codes.

    Args:
        unit: The unit that the columns are of.
        columns: All of them, or those that `Columns.take` selected.
        variant: A variant with the same `sums`.

    Returns:
        Codes in the unit's output dtype, flat, in the columns' order.

    Raises:
        KernelError: The columns belong to other sums, or the variant's program does not fit them.
    """
    _check(columns, variant)
    return _run(unit, columns, variant).reshape(-1)


def finish_many(unit: Unit, columns: Columns, variants: Sequence[Variant]) -> np.ndarray:
    """Turn columns into codes by many variants, computing what their programs share once.

    Args:
        unit: The unit that the columns are of.
        columns: All of them, or (better) a selection.
        variants: Variants with the same `sums`.

    Returns:
        Codes (variants, elements) in the unit's output dtype.

    Raises:
        KernelError: The columns belong to other sums, or a program does not fit them.
    """
    for variant in variants:
        _check(columns, variant)
    return run_programs(unit, columns, variants)


def compute(unit: Unit, variant: Variant) -> np.ndarray:
    """Compute a unit by a variant.

    Returns:
        Codes in the node's own layout.

    Raises:
        KernelError: The unit cannot be computed so.
    """
    columns = accumulate(unit, variant.sums)
    codes = _run(unit, columns, variant).reshape(columns.shape)
    return np.moveaxis(codes, 1, -1) if unit.channels_last else codes


def _run(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray:
    """Run a program on columns; a function of one code is computed once for each code there is and looked up."""
    codes = columns.values[0]
    if unit.kind != "lookup" or unit.per_channel or codes.dtype.kind not in "iu":
        return run_program(unit, columns, variant)
    low, high = (int(bound) for bound in (np.iinfo(codes.dtype).min, np.iinfo(codes.dtype).max))
    if codes.size <= high - low:
        return run_program(unit, columns, variant)
    every = np.arange(low, high + 1).astype(codes.dtype)
    table = run_program(unit, Columns(sums=columns.sums, values=(every,), shape=every.shape), variant)
    return elementwise(lambda part: np.asarray(table[part.astype(np.int64) - low]), codes)


def _check(columns: Columns, variant: Variant) -> None:
    if columns.sums != variant.sums:
        raise KernelError(f"Columns of {columns.sums} do not fit the variant {str(variant)!r}.")
