"""Which recorded elements decide between arithmetics: mostly a few hundred, however large the tensor is.

A program turns one number into one code and never decreases where the number increases, as long as no step wraps
around. A program that gives the recorded code for the smallest and for the largest number recorded with that code
therefore gives it for all numbers between: these two elements of each code (and each channel, where parameters go along
the channels) decide for the whole tensor. They are also the elements closest to the limits between codes, where
arithmetics differ. Of functions of one or two codes, one element of each combination decides. Only where a program
reads several real numbers is a sample all there is, and everything has to be computed for those that pass it.
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

__all__ = ["Decisive", "decisive", "never_decreases", "parameters"]

_MONOTONE = frozenset(
    {"conv", "linear", "average_pool", "global_average_pool", "reduce_mean", "requantize", "quantize", "mul"}
)
_TABLE = 1 << 22
"""Different numbers up to which a table is faster than sorting."""
_BLOCK = 1 << 20
"""Elements looked at between two questions whether to go on."""
_SMALL_TABLE = 1 << 18
"""Groups that a table is made for however few numbers there are."""
_PACKED = np.iinfo(np.int64).max
"""The largest number and position that are packed into one integer."""
_SEED = 20250217


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisive:
    """Elements that decide.

    Args:
        places: Their flat positions.
        complete: Whether a program that never decreases and reproduces these reproduces all.
        every: Whether any program that reproduces these reproduces all.
        consistent: Whether any program that never decreases can reproduce these.
    """

    places: np.ndarray
    complete: bool = False
    every: bool = False
    consistent: bool = True

    def settles(self, variant: Variant) -> bool:
        """Tell whether a variant that reproduces these elements needs no further look."""
        return self.every or (self.complete and never_decreases(variant))


def never_decreases(variant: Variant) -> bool:
    """Tell whether a variant's program gives larger codes for larger numbers, and never wraps around."""
    return not any(STEPS[step.op].wraps for step in (*variant.requantize, *variant.operand))


def decisive(unit: Unit, columns: Columns, recorded: np.ndarray) -> Decisive:
    """Choose the elements of a tensor that decide between variants.

    Args:
        unit: What is computed.
        columns: The numbers that programs start from, all of them.
        recorded: Recorded codes, flat, channels first.
    """
    if recorded.size <= ALL_DECIDING_MAX_ELEMENTS:
        return Decisive(places=np.arange(recorded.size), every=True)
    key = parameters(unit, columns)
    if key is not None and len(columns.values) == 1 and unit.kind in _MONOTONE and _positive(unit):
        return _extremes(columns.values[0].reshape(-1), recorded, key)
    if key is not None and all(array.dtype.kind in "iu" for array in columns.values):
        found = _combinations([np.broadcast_to(a, columns.shape).reshape(-1) for a in columns.values], recorded, key)
        if found is not None:
            return found
    rng = np.random.default_rng(_SEED)
    if recorded.size <= DECIDING_MAX_ELEMENTS:
        return Decisive(places=np.arange(recorded.size), every=True)
    return Decisive(places=np.unique(rng.integers(0, recorded.size, DECIDING_MAX_ELEMENTS)))


def _positive(unit: Unit) -> bool:
    scales = [unit.out.scale, *(operand.scale for operand in unit.operands)]
    return all(bool(np.all(np.isfinite(scale) & (scale > 0))) for scale in scales)


def parameters(unit: Unit, columns: Columns) -> np.ndarray | None:
    """Number the sets of parameters that elements are computed with, flat; None if that takes too long to tell.

    Args:
        unit: What is computed.
        columns: Its columns, all of them.

    Returns:
        One number for all elements, or one for each.
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


def _extremes(numbers: np.ndarray, recorded: np.ndarray, key: np.ndarray) -> Decisive:
    """Choose the smallest and the largest number of each code and each set of parameters."""
    sets = None if key.size == 1 else key
    low, high = _ends(numbers, recorded, sets) if recorded.size <= _BLOCK else _ends_of_blocks(numbers, recorded, sets)
    # The largest number of a code must lie below the smallest of the next, or nothing that never decreases fits.
    together = np.ones(low.size - 1, bool) if sets is None else sets[low[1:]] == sets[low[:-1]]
    consistent = bool(np.all(numbers[high[:-1]][together] < numbers[low[1:]][together]))
    return Decisive(places=_distinct(low, high), complete=True, consistent=consistent)


def _ends_of_blocks(
    numbers: np.ndarray, recorded: np.ndarray, sets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """As `_ends`, block by block: the ends of the whole are among those of its blocks."""
    found = []
    for begin in range(0, recorded.size, _BLOCK):
        checkpoint()
        block = slice(begin, begin + _BLOCK)
        own = None if sets is None else sets[block]
        found += [places + begin for places in _ends(numbers[block], recorded[block], own)]
    few = _distinct(*found)
    low, high = _ends(numbers[few], recorded[few], None if sets is None else sets[few])
    return few[low], few[high]


def _distinct(*places: np.ndarray) -> np.ndarray:
    """Return all of some positions once, in order."""
    every = np.sort(np.concatenate(places))
    return np.asarray(every[_starts(every)])


def _ends(numbers: np.ndarray, recorded: np.ndarray, sets: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Find a smallest and a largest number of each code and each set of parameters, by set and code.

    Args:
        numbers: The numbers.
        recorded: Their codes.
        sets: Numbers of their sets of parameters, from 0 on; None for one set.
    """
    found = _ends_in_a_table(numbers, recorded, sets)
    if found is not None:
        return found
    if sets is None and recorded.nbytes == recorded.size:
        order = np.argsort(recorded, kind="stable")  # a radix sort: much faster than sorting the numbers
        starts = _starts(recorded[order])
        pieces = [order[start:end] for start, end in zip(starts, [*starts[1:], order.size], strict=True)]
        low = np.array([piece[numbers[piece].argmin()] for piece in pieces])
        return low, np.array([piece[numbers[piece].argmax()] for piece in pieces])
    groups = (recorded,) if sets is None else (recorded, sets)
    order = np.lexsort((numbers, *groups))
    starts = _starts(*(group[order] for group in groups))
    return order[starts], order[np.append(starts[1:], order.size) - 1]


def _ends_in_a_table(
    numbers: np.ndarray, recorded: np.ndarray, sets: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Find the ends without sorting: each number is packed with its position; None if a table of them is too large."""
    whole = _integers(numbers)
    if whole is None or recorded.dtype.kind not in "iu":
        return None
    numbers = whole
    least, first = int(numbers.min()), int(recorded.min())
    many = int(recorded.max()) - first + 1
    size = many * (1 if sets is None else int(sets.max()) + 1)
    if size > max(_SMALL_TABLE, numbers.size) or (int(numbers.max()) - least + 1) * numbers.size > _PACKED:
        return None
    group = recorded.astype(np.int64) - first
    if sets is not None:
        group += sets * many
    packed = (numbers.astype(np.int64) - least) * numbers.size
    places = np.arange(numbers.size)
    low, high = np.full(size, _PACKED), np.full(size, -1)
    np.minimum.at(low, group, packed + places)
    # Of equal numbers the last, as in sorted order; of one set of codes of 8 bits the first.
    first_of_equals = sets is None and recorded.nbytes == recorded.size
    np.maximum.at(high, group, packed + (places[::-1] if first_of_equals else places))
    used = high >= 0
    low, high = low[used] % numbers.size, high[used] % numbers.size
    return low, numbers.size - 1 - high if first_of_equals else high


def _integers(numbers: np.ndarray) -> np.ndarray | None:
    """Return numbers as integers; None if some are none. Exact sums are kept in floating point, too."""
    if numbers.dtype.kind in "iu":
        return numbers
    with np.errstate(invalid="ignore"):
        whole = numbers.astype(np.int64)
    return whole if np.array_equal(whole, numbers) else None


def _starts(*sorted_columns: np.ndarray) -> np.ndarray:
    """Return the positions at which any of several columns changes, the first included."""
    changes = np.zeros(sorted_columns[0].size, bool)
    changes[0] = True
    for column in sorted_columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def _combinations(numbers: list[np.ndarray], recorded: np.ndarray, key: np.ndarray) -> Decisive | None:
    """Choose one element of each combination of numbers; None if they are too many to number."""
    size = int(key.max(initial=0)) + 1
    ranges = []
    for array in numbers:
        checkpoint()
        low, high = int(array.min()), int(array.max())
        ranges.append((low, high - low + 1))
        size *= high - low + 1
        if size > DECIDING_MAX_COMBINATIONS:
            return None
    small = size <= _TABLE
    combined = np.empty(recorded.size, np.int32 if small else np.int64)
    for begin in range(0, recorded.size, _BLOCK):
        checkpoint()
        block = slice(begin, begin + _BLOCK)
        value = combined[block]
        value[:] = key if key.size == 1 else key[block]
        for array, (low, many) in zip(numbers, ranges, strict=True):
            part = array[block] if array.dtype.itemsize >= combined.dtype.itemsize else array[block].astype(value.dtype)
            np.multiply(value, many, out=value)
            np.add(value, part - low, out=value, casting="unsafe")
    places, odd = _first_in_a_table(combined, size, recorded) if small else _first_of_each(combined, recorded)
    # where equal numbers were recorded with unequal codes, nothing fits, and the element that shows it must be chosen
    return Decisive(
        places=_distinct(places, odd[:DECIDING_MAX_ELEMENTS]), complete=True, every=True, consistent=not odd.size
    )


def _first_in_a_table(numbers: np.ndarray, size: int, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the first element with each number, and those with another code than the first with their number.

    Args:
        numbers: At least 0 and below `size`.
        size: How many different numbers there can be.
        recorded: The codes.
    """
    table = np.full(size, -1, np.int64)
    for begin in reversed(range(0, numbers.size, _BLOCK)):
        checkpoint()
        some = numbers[begin : begin + _BLOCK]
        table[some[::-1]] = np.arange(begin + some.size - 1, begin - 1, -1)  # what is written last is the first
    odd, codes = [], recorded[table]
    for begin in range(0, numbers.size, _BLOCK):
        checkpoint()
        block = slice(begin, begin + _BLOCK)
        odd.append(begin + np.flatnonzero(codes[numbers[block]] != recorded[block]))
    return table[table >= 0], np.concatenate(odd)


def _first_of_each(numbers: np.ndarray, recorded: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `_first_in_a_table`, for any numbers."""
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    return first, np.flatnonzero(recorded[first[which]] != recorded)
