"""Compute a unit by a variant: the heavy part once, then programs on all of its columns or on a few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.columns import Columns
from qdebug.replay.program import run_program, run_programs
from qdebug.replay.qsum import convolved, multiplied
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Sums, Variant

__all__ = ["accumulate", "compute", "finish", "finish_many"]

_HEAVY: Mapping[str, Callable[[Unit, Sums], Columns]] = MappingProxyType(
    {
        "conv": convolved,
        "linear": multiplied,
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
    heavy = _HEAVY.get(unit.kind)
    if heavy is None:
        raise KernelError(f"A unit of kind {unit.kind!r} ({unit.op}) cannot be computed in integers yet.")
    return heavy(unit, sums)


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
    return run_program(unit, columns, variant).reshape(-1)


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
    codes = run_program(unit, columns, variant).reshape(columns.shape)
    return np.moveaxis(codes, 1, -1) if unit.channels_last else codes


def _check(columns: Columns, variant: Variant) -> None:
    if columns.sums != variant.sums:
        raise KernelError(f"Columns of {columns.sums} do not fit the variant {str(variant)!r}.")
