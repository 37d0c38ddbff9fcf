"""Run the program of a variant on columns, block by block, or the programs of many variants at once.

A program is compiled to operations, each a function of the numbers and of parameters that broadcast to the output.
What is between two operations stays in cache; programs that begin alike share what they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from qdebug.errors import KernelError
from qdebug.replay.columns import Columns, part_of
from qdebug.replay.forms import start_of
from qdebug.replay.operations import Operation
from qdebug.replay.steps import compile_steps
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["compile_variant", "run_program", "run_programs"]


def compile_variant(unit: Unit, columns: Columns, variant: Variant) -> tuple[Operation, ...]:
    """Give the operations that turn columns into codes.

    Raises:
        KernelError: A step cannot follow the one before it, or the form is not one of the unit's.
    """
    try:
        start = start_of(unit, columns, variant)
        program = variant.requantize
        if unit.out.dtype.kind in "iu" and not any(step.op in ("sat", "wrap") for step in program[-1:]):
            raise ValueError("the program does not end in codes, by the step sat or wrap")
        return (start.operation, *compile_steps(unit, start, program, variant.multiplier))
    except KernelError:
        raise
    except (ValueError, KeyError) as error:
        raise KernelError(
            f"The variant {str(variant)!r} does not fit a unit of kind {unit.kind!r}: {error}."
        ) from error


def _spread(columns: Columns, operation: Operation) -> tuple[np.ndarray, ...]:
    return tuple(columns.spread(np.asarray(parameter)) for parameter in operation.parameters)


def run_program(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray:
    """Turn columns into codes by one variant; the shape is that of the columns' values."""
    operations = compile_variant(unit, columns, variant)
    spread = [_spread(columns, operation) for operation in operations]
    out = np.empty(columns.values[0].shape, dtype=unit.out.dtype)
    flat = columns
    if all(parameter.ndim == 0 for parameters in spread for parameter in parameters):
        flat = _flattened(columns)
    target = out.reshape(flat.values[0].shape)
    with np.errstate(all="ignore"):
        for block in flat.blocks():
            numbers = tuple(array[block] for array in flat.values)
            value = operations[0].apply(numbers, None, *(part_of(p, block) for p in spread[0]))
            for operation, parameters in zip(operations[1:], spread[1:], strict=True):
                value = operation.apply((value,), value, *(part_of(p, block) for p in parameters))
            target[block] = value
    return out


def _flattened(columns: Columns) -> Columns:
    """Give the columns flat: cut into even blocks whatever the shape is."""
    if columns.values[0].ndim == 1 or not all(array.flags.c_contiguous for array in columns.values):
        return columns
    flat = tuple(array.reshape(-1) for array in columns.values)
    return Columns(sums=columns.sums, values=flat, shape=columns.shape, bound=columns.bound)


@dataclass(slots=True, eq=False)
class _Branch:
    """A point where programs part: the operation that leads to it, and what follows."""

    operation: Operation
    ends: list[int] = field(default_factory=list)
    branches: dict[tuple[object, ...], _Branch] = field(default_factory=dict)


def run_programs(unit: Unit, columns: Columns, variants: Sequence[Variant]) -> np.ndarray:
    """Turn columns into codes by many variants: codes (variants, elements)."""
    out = np.empty((len(variants), columns.size), dtype=unit.out.dtype)
    roots: dict[tuple[object, ...], _Branch] = {}
    for position, variant in enumerate(variants):
        branches = roots
        last: _Branch | None = None
        for operation in compile_variant(unit, columns, variant):
            last = branches.setdefault(operation.key, _Branch(operation))
            branches = last.branches
        if last is not None:
            last.ends.append(position)
    with np.errstate(all="ignore"):
        for root in roots.values():
            _follow(root, columns.values, columns, out)
    return out


def _follow(branch: _Branch, numbers: tuple[np.ndarray, ...], columns: Columns, out: np.ndarray) -> None:
    """Compute a branch out of place, since its neighbours read the same numbers, and then what follows it."""
    value = branch.operation.apply(numbers, None, *_spread(columns, branch.operation))
    for position in branch.ends:
        out[position] = value.reshape(-1)
    for following in branch.branches.values():
        _follow(following, (value,), columns, out)
