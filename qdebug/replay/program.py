"""Run the program of one variant on columns block by block, or the programs of many variants at once.

A program is compiled to operations, each a function of the numbers and of parameters that broadcast to the output.
Intermediate values stay in cache; programs share their common prefix. Begin at `run_program`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.blockwise import parameter_block
from qdebug.replay.columns import Columns, Operation
from qdebug.replay.forms import make_start
from qdebug.replay.steps import STEPS, Program, compile_steps, plan_program, round_to_half
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["compile_variant", "run_program", "run_programs"]


def compile_variant(unit: Unit, columns: Columns, variant: Variant) -> tuple[Operation, ...]:
    """Return the operations that turn columns into codes. Equal operations of one unit are the same object.

    Raises:
        KernelError: A step cannot follow the preceding step, or the form does not fit the unit.
    """
    if columns.memo.get("unit") is not unit:
        columns.memo.clear()
        columns.memo["unit"] = unit
    program = variant.requantize
    if any(STEPS[step.op].half for step in program):
        unit, columns = _with_half_constants(unit, columns)
    try:
        start = make_start(unit, columns, variant)
        if unit.out.dtype.kind in "iu" and not (program and program[-1].op in ("sat", "wrap")):
            raise ValueError("the program must end with a sat or wrap step, which yields codes")
        return (
            start.operation,
            *compile_steps(unit, start, _plan_variant(variant, whole=start.dtype is np.int64), columns.memo),
        )
    except KernelError:
        raise
    except ValueError as error:
        raise KernelError(
            f"The variant {str(variant)!r} does not fit a unit of kind {unit.kind!r}: {error}."
        ) from error


def _with_half_constants(unit: Unit, columns: Columns) -> tuple[Unit, Columns]:
    """Return a unit with its scales and real bias rounded to float16, and separate columns for it."""
    cached = columns.memo.get("half")
    if cached is None:
        operands = tuple(replace(operand, scale=round_to_half(operand.scale)) for operand in unit.operands)
        bias = unit.bias
        if bias is not None and bias.dtype.kind in "iu":
            data, weight = (operand.scale.reshape(-1) for operand in operands)
            bias_scale = data * weight if unit.bias_scale is None else round_to_half(unit.bias_scale).reshape(-1)
            bias = bias.astype(np.float32) * bias_scale
        bias = None if bias is None else round_to_half(bias)
        halved = replace(unit, operands=operands, bias=bias, bias_scale=None)
        memo: dict[object, Any] = {"unit": halved}
        cached = columns.memo["half"] = halved, memo
    return cached[0], replace(columns, memo=cached[1])


@lru_cache(maxsize=1 << 15)
def _plan_variant(variant: Variant, *, whole: bool) -> Program:
    return plan_program(variant.requantize, variant.multiplier, whole=whole, late_bias=variant.bias == "codes")


def _spread_parameters(columns: Columns, operation: Operation) -> tuple[np.ndarray, ...]:
    parameters = columns.spreads.get(operation)
    if parameters is None:
        parameters = tuple(columns.spread(np.asarray(parameter)) for parameter in operation.parameters)
        columns.spreads[operation] = parameters
    return parameters


def run_program(unit: Unit, columns: Columns, variant: Variant) -> np.ndarray:
    """Turn columns into codes by one variant. The result has the shape of the columns' values."""
    operations = compile_variant(unit, columns, variant)
    spread = [_spread_parameters(columns, operation) for operation in operations]
    out = np.empty(columns.values[0].shape, dtype=unit.out.dtype)
    flat = columns
    if all(parameter.ndim == 0 for parameters in spread for parameter in parameters):
        flat = _flatten_columns(columns)
    target = out.reshape(flat.values[0].shape)
    with np.errstate(all="ignore"):
        for block in flat.blocks():
            checkpoint()
            numbers = tuple(array[block] for array in flat.values)
            value = operations[0].apply(numbers, None, *(parameter_block(p, block) for p in spread[0]))
            for operation, parameters in zip(operations[1:], spread[1:], strict=True):
                value = operation.apply((value,), value, *(parameter_block(p, block) for p in parameters))
            target[block] = value
    return out


def _flatten_columns(columns: Columns) -> Columns:
    """Return the columns flattened, so that any shape splits into even blocks."""
    if columns.values[0].ndim == 1 or not all(array.flags.c_contiguous for array in columns.values):
        return columns
    flat = tuple(array.reshape(-1) for array in columns.values)
    return Columns(sums=columns.sums, values=flat, shape=columns.shape, bound=columns.bound)


Spot = tuple[int, int]
"""Location of a value: the batch that computed it, and its row in that batch."""

_NOWHERE: Spot = (-1, -1)
_SIDE_BY_SIDE = 1 << 12
"""Elements per block when many programs run on it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """One operation on the values of many programs, and the programs that end with it.

    Args:
        operation: The operation.
        sources: The location of each row's input; `_NOWHERE` at the start of programs.
        ends: Row and index of each program that ends with this operation.
    """

    operation: Operation
    sources: list[Spot] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)


def _batches_of_programs(programs: Sequence[tuple[Operation, ...]]) -> list[_Batch]:
    """Merge common steps of programs. Equal steps after equal prefixes run once, and equal operations are batched."""
    batches: list[_Batch] = []
    spots: list[Spot | None] = [None] * len(programs)
    for depth in range(max(map(len, programs), default=0)):
        rows: dict[tuple[Operation, Spot | None], Spot] = {}
        open_batches: dict[Operation, int] = {}
        for position, program in enumerate(programs):
            if depth >= len(program):
                continue
            operation, source = program[depth], spots[position]
            spot = rows.get((operation, source))
            if spot is None:
                number = open_batches.get(operation)
                if number is None:
                    number = open_batches[operation] = len(batches)
                    batches.append(_Batch(operation))
                sources = batches[number].sources
                spot = rows[operation, source] = (number, len(sources))
                sources.append(source if source is not None else _NOWHERE)
            spots[position] = spot
            if depth == len(program) - 1:
                batches[spot[0]].ends.append((spot[1], position))
    return batches


def run_programs(unit: Unit, columns: Columns, variants: Sequence[Variant]) -> np.ndarray:
    """Turn columns into codes by many variants. Return codes (variants, elements)."""
    out = np.empty((len(variants), *columns.values[0].shape), dtype=unit.out.dtype)
    batches = _batches_of_programs([compile_variant(unit, columns, variant) for variant in variants])
    spreads = [_spread_parameters(columns, batch.operation) for batch in batches]
    with np.errstate(all="ignore"):
        for block in columns.blocks(_SIDE_BY_SIDE):
            numbers = tuple(array[block] for array in columns.values)
            values: list[np.ndarray] = []
            for batch, parameters in zip(batches, spreads, strict=True):
                checkpoint()
                arguments = numbers if batch.sources[0] == _NOWHERE else (_gather_rows(values, batch.sources),)
                value = batch.operation.apply(arguments, None, *(parameter_block(p, block) for p in parameters))
                value = value[None] if batch.sources[0] == _NOWHERE else value
                values.append(value)
                for row, position in batch.ends:
                    out[position][block] = value[row]
    return out.reshape(len(variants), -1)


def _gather_rows(values: list[np.ndarray], sources: list[Spot]) -> np.ndarray:
    """Return rows from several batches as one array."""
    number, row = sources[0]
    if len(sources) == 1:
        return values[number][row : row + 1]
    batch_values = values[number]
    if len(sources) == len(batch_values) and sources == [(number, row) for row in range(len(batch_values))]:
        return batch_values
    return np.stack([values[batch][row] for batch, row in sources])
