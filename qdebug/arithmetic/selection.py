"""Chooses the recorded elements that decide between arithmetics: usually a few hundred, for a tensor of any size.

A program maps a number to a code and never decreases, as long as no step wraps around. So if it gives a code for the
smallest and for the largest number recorded with that code, it gives that code for all numbers between them. These two
elements of each code (and of each channel, if parameters vary along the channels) decide for the whole tensor. They are
also the elements closest to the limits between codes, where arithmetics differ. For functions of one or two codes, one
element of each combination of codes decides. For programs that read several real numbers, a random sample is used
instead, and variants that pass on it are computed in full. Begin at `choose_deciding_elements`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.model.thresholds.explanation import (
    ALL_DECIDING_MAX_ELEMENTS,
    DECIDING_MAX_COMBINATIONS,
    DECIDING_MAX_ELEMENTS,
)
from qdebug.numerics.checkpoint import checkpoint
from qdebug.replay.columns import Columns
from qdebug.replay.steps import STEPS
from qdebug.replay.unit import PAIRS, Unit
from qdebug.replay.variant import Variant

__all__ = ["Decisive", "choose_deciding_elements", "is_non_decreasing", "number_parameter_sets"]

_MONOTONE_KINDS = frozenset(
    {"conv", "linear", "average_pool", "global_average_pool", "reduce_mean", "requantize", "quantize", "mul"}
)
_MAX_TABLE = 1 << 22
"""Number of distinct values up to which a table is faster than sorting."""
_BLOCK = 1 << 20
"""Number of elements between two checkpoints."""
_MIN_TABLE = 1 << 18
"""Number of groups up to which a table is used even for few numbers."""
_MAX_PACKED = np.iinfo(np.int64).max
"""Largest integer that a number and its position can be packed into."""
_SEED = 20250217


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisive:
    """The elements of a tensor that decide between variants.

    Args:
        places: Their flat positions.
        complete: Whether a non-decreasing program that reproduces them reproduces the whole tensor.
        every: Whether any program that reproduces them reproduces the whole tensor.
        consistent: Whether a non-decreasing program can reproduce them at all.
    """

    places: np.ndarray
    complete: bool = False
    every: bool = False
    consistent: bool = True

    def settles(self, variant: Variant) -> bool:
        """Return whether a variant reproduces the whole tensor if it reproduces these elements."""
        return self.every or (self.complete and is_non_decreasing(variant))


def is_non_decreasing(variant: Variant) -> bool:
    """Return whether a variant's program is non-decreasing, because none of its steps wraps around."""
    return not any(STEPS[step.op].wraps for step in (*variant.requantize, *variant.operand))


def choose_deciding_elements(unit: Unit, columns: Columns, recorded: np.ndarray) -> Decisive:
    """Choose the elements of a tensor that decide between variants.

    Args:
        unit: The unit.
        columns: The inputs of programs, for all elements.
        recorded: Recorded codes, flat, channels first.
    """
    if recorded.size <= ALL_DECIDING_MAX_ELEMENTS:
        return Decisive(places=np.arange(recorded.size), every=True)
    key = number_parameter_sets(unit, columns)
    if key is not None and len(columns.values) == 1 and unit.kind in _MONOTONE_KINDS and _has_positive_scales(unit):
        return _extremes_of_codes(columns.values[0].reshape(-1), recorded, key)
    if key is not None and all(array.dtype.kind in "iu" for array in columns.values):
        combinations = _one_per_combination(
            [np.broadcast_to(a, columns.shape).reshape(-1) for a in columns.values], recorded, key
        )
        if combinations is not None:
            return combinations
    rng = np.random.default_rng(_SEED)
    if recorded.size <= DECIDING_MAX_ELEMENTS:
        return Decisive(places=np.arange(recorded.size), every=True)
    return Decisive(places=np.unique(rng.integers(0, recorded.size, DECIDING_MAX_ELEMENTS)))


def _has_positive_scales(unit: Unit) -> bool:
    scales = [unit.out.scale, *(operand.scale for operand in unit.operands)]
    return all(bool(np.all(np.isfinite(scale) & (scale > 0))) for scale in scales)


def number_parameter_sets(unit: Unit, columns: Columns) -> np.ndarray | None:
    """Return the number of each element's set of parameters, flat, or None for units with many different sets.

    Elements with the same set, such as those of a channel, have the same scales and bias. If all elements have the same
    set, the result has a single element.

    Args:
        unit: The unit.
        columns: Its columns.
    """
    shape = columns.shape
    parts = [part for part in (columns.member, columns.count) if part is not None and np.size(part) > 1]
    if len(parts) > 1 or unit.out.scale.size > 1 or any(operand.scale.size > 1 for operand in unit.operands[:1]):
        return None
    if unit.kind in PAIRS and unit.per_channel:
        return None
    if parts:
        _, key = np.unique(np.broadcast_to(parts[0], shape).reshape(-1), return_inverse=True)
        return np.asarray(key)
    if unit.kind not in ("conv", "linear") or not (unit.per_channel or columns.sums.bias == "float"):
        return np.zeros(1, np.int64)
    axis = 1 if unit.kind == "conv" else len(shape) - 1
    line = np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - axis - 1))
    return np.broadcast_to(line, shape).reshape(-1)


def _extremes_of_codes(numbers: np.ndarray, recorded: np.ndarray, key: np.ndarray) -> Decisive:
    """Choose the elements with the smallest and the largest number for each code and set of parameters."""
    sets = None if key.size == 1 else key
    low, high = (
        _extreme_numbers(numbers, recorded, sets)
        if recorded.size <= _BLOCK
        else _extreme_numbers_by_blocks(numbers, recorded, sets)
    )
    # A non-decreasing program exists only if the largest number of each code lies below the smallest of the next code.
    together = np.ones(low.size - 1, bool) if sets is None else sets[low[1:]] == sets[low[:-1]]
    consistent = bool(np.all(numbers[high[:-1]][together] < numbers[low[1:]][together]))
    return Decisive(places=_sorted_union(low, high), complete=True, consistent=consistent)


def _extreme_numbers_by_blocks(
    numbers: np.ndarray, recorded: np.ndarray, sets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Like `_extreme_numbers`, but computed block by block: the extremes are among the extremes of the blocks."""
    positions = []
    for begin in range(0, recorded.size, _BLOCK):
        checkpoint()
        block = slice(begin, begin + _BLOCK)
        block_sets = None if sets is None else sets[block]
        positions += [
            block_positions + begin for block_positions in _extreme_numbers(numbers[block], recorded[block], block_sets)
        ]
    block_ends = _sorted_union(*positions)
    low, high = _extreme_numbers(numbers[block_ends], recorded[block_ends], None if sets is None else sets[block_ends])
    return block_ends[low], block_ends[high]


def _sorted_union(*positions: np.ndarray) -> np.ndarray:
    """Return the sorted union of several arrays of positions."""
    all_positions = np.sort(np.concatenate(positions))
    return np.asarray(all_positions[_change_positions(all_positions)])


def _extreme_numbers(
    numbers: np.ndarray, recorded: np.ndarray, sets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Find the smallest and the largest number of each code and set of parameters.

    Args:
        numbers: The numbers.
        recorded: Their codes.
        sets: Number of the set of parameters of each, from 0, or None for a single set.

    Returns:
        The positions of the smallest and of the largest numbers, ordered by set and code.
    """
    ends = _extreme_numbers_by_table(numbers, recorded, sets)
    if ends is not None:
        return ends
    if sets is None and recorded.nbytes == recorded.size:
        order = np.argsort(recorded, kind="stable")  # a radix sort of 8-bit codes, much faster than sorting the numbers
        starts = _change_positions(recorded[order])
        pieces = [order[start:end] for start, end in zip(starts, [*starts[1:], order.size], strict=True)]
        low = np.array([piece[numbers[piece].argmin()] for piece in pieces])
        return low, np.array([piece[numbers[piece].argmax()] for piece in pieces])
    groups = (recorded,) if sets is None else (recorded, sets)
    order = np.lexsort((numbers, *groups))
    starts = _change_positions(*(group[order] for group in groups))
    return order[starts], order[np.append(starts[1:], order.size) - 1]


def _extreme_numbers_by_table(
    numbers: np.ndarray, recorded: np.ndarray, sets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Like `_extreme_numbers`, but without sorting: numbers are packed with their positions. None if that overflows.

    Also None for fractional numbers, and if the table of codes and sets would be too large.
    """
    integers = _as_integers(numbers)
    if integers is None or recorded.dtype.kind not in "iu":
        return None
    numbers = integers
    lowest, lowest_code = int(numbers.min()), int(recorded.min())
    code_count = int(recorded.max()) - lowest_code + 1
    size = code_count * (1 if sets is None else int(sets.max()) + 1)
    if size > max(_MIN_TABLE, numbers.size) or (int(numbers.max()) - lowest + 1) * numbers.size > _MAX_PACKED:
        return None
    group = recorded.astype(np.int64) - lowest_code
    if sets is not None:
        group += sets * code_count
    packed = (numbers.astype(np.int64) - lowest) * numbers.size
    positions = np.arange(numbers.size)
    low, high = np.full(size, _MAX_PACKED), np.full(size, -1)
    np.minimum.at(low, group, packed + positions)
    # Of equal numbers, keep the last, as the sort in `_extreme_numbers` does. For a single set of 8-bit codes, keep the
    # first, as `argmax` does there.
    first_of_equals = sets is None and recorded.nbytes == recorded.size
    np.maximum.at(high, group, packed + (positions[::-1] if first_of_equals else positions))
    is_used = high >= 0
    low, high = low[is_used] % numbers.size, high[is_used] % numbers.size
    return low, numbers.size - 1 - high if first_of_equals else high


def _as_integers(numbers: np.ndarray) -> np.ndarray | None:
    """Return numbers as integers, or None if any is fractional. Exact integer sums may be stored as floats."""
    if numbers.dtype.kind in "iu":
        return numbers
    with np.errstate(invalid="ignore"):
        integers = numbers.astype(np.int64)
    return integers if np.array_equal(integers, numbers) else None


def _change_positions(*sorted_columns: np.ndarray) -> np.ndarray:
    """Return the positions at which any of several columns changes, including the first."""
    changes = np.zeros(sorted_columns[0].size, bool)
    changes[0] = True
    for column in sorted_columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def _one_per_combination(numbers: list[np.ndarray], recorded: np.ndarray, key: np.ndarray) -> Decisive | None:
    """Choose one element of each combination of numbers, or return None if there are too many combinations."""
    size = int(key.max(initial=0)) + 1
    ranges = []
    for array in numbers:
        checkpoint()
        low, high = int(array.min()), int(array.max())
        ranges.append((low, high - low + 1))
        size *= high - low + 1
        if size > DECIDING_MAX_COMBINATIONS:
            return None
    small = size <= _MAX_TABLE
    combined = np.empty(recorded.size, np.int32 if small else np.int64)
    for begin in range(0, recorded.size, _BLOCK):
        checkpoint()
        block = slice(begin, begin + _BLOCK)
        value = combined[block]
        value[:] = key if key.size == 1 else key[block]
        for array, (low, count) in zip(numbers, ranges, strict=True):
            part = array[block] if array.dtype.itemsize >= combined.dtype.itemsize else array[block].astype(value.dtype)
            np.multiply(value, count, out=value)
            np.add(value, part - low, out=value, casting="unsafe")
    positions, inconsistent = (
        _first_of_each_by_table(combined, size, recorded) if small else _first_of_each(combined, recorded)
    )
    # No function maps equal numbers to different codes. Keep elements that show this.
    return Decisive(
        places=_sorted_union(positions, inconsistent[:DECIDING_MAX_ELEMENTS]),
        complete=True,
        every=True,
        consistent=not inconsistent.size,
    )


def _first_of_each_by_table(numbers: np.ndarray, size: int, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the first element with each number, and all elements whose code differs from that of the first.

    Args:
        numbers: Numbers from 0 to size - 1.
        size: Upper bound of the numbers.
        recorded: The codes.

    Returns:
        The positions of the first elements, and those of the deviating elements.
    """
    table = np.full(size, -1, np.int64)
    for begin in reversed(range(0, numbers.size, _BLOCK)):
        checkpoint()
        block_numbers = numbers[begin : begin + _BLOCK]
        # Positions are written in reverse, so that the first of each number is written last and stays.
        table[block_numbers[::-1]] = np.arange(begin + block_numbers.size - 1, begin - 1, -1)
    inconsistent, codes = [], recorded[table]
    for begin in range(0, numbers.size, _BLOCK):
        checkpoint()
        block = slice(begin, begin + _BLOCK)
        inconsistent.append(begin + np.flatnonzero(codes[numbers[block]] != recorded[block]))
    return table[table >= 0], np.concatenate(inconsistent)


def _first_of_each(numbers: np.ndarray, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Like `_first_of_each_by_table`, but by sorting, for numbers without an upper bound."""
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first, np.flatnonzero(recorded[first[inverse]] != recorded)
