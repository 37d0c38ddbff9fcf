"""Finds rows of a wrong result that hold the right result of other rows. Begin at `misplaced_rows`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_REALS,
    CAUSE_MIN_DISTINCT_VALUES,
    FURTHER_CAUSE_MIN_EQUAL_CODES,
)

__all__ = ["RowsOfResult", "misplaced_rows"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowsOfResult:
    """The right and the recorded result of a node in one sample.

    Args:
        right: The right result.
        recorded: The recorded one, in the same shape.
        slack: Largest error that counts as rounding.
        step: The scale of codes, or 0 for real numbers. Most codes must be equal.
    """

    right: np.ndarray
    recorded: np.ndarray
    slack: float
    step: float = 0.0

    def are_equal(self, right: np.ndarray, recorded: np.ndarray) -> np.ndarray:
        """Return whether rows are equal up to rounding, (rows,), given arrays of (rows, elements)."""
        errors = np.abs(recorded - right)
        equal = (errors <= self.slack).all(-1)
        if self.step:
            equal_share = (np.rint(errors / self.step) == 0).mean(-1)
            equal &= equal_share >= FURTHER_CAUSE_MIN_EQUAL_CODES
        return np.asarray(equal)


def misplaced_rows(results: Sequence[RowsOfResult], *, overwritten: bool = False) -> str | None:
    """Return which rows hold the result of which others, as a clause, or None.

    Every row must hold its own result, that of another row, or a number that all unwritten rows hold. A row is what a
    range of axes selects. The rows are the same in each index of the axes before, and in all samples.

    Args:
        results: The results of all samples.
        overwritten: Whether some rows must be unwritten, because their results were written to others.
    """
    shape = results[0].right.shape
    for first, end in _ranges_of_axes(shape):
        sources = [_sources(result, first, end) for result in results if result.right.shape == shape]
        joined = None if None in sources or len(sources) < len(results) else _joined([each for each in sources if each])
        if joined is None or (overwritten and math.isnan(joined.number)):
            continue
        if joined.by_row and joined.is_evident:
            return _sentence(joined, shape, first, end)
    return None


def _ranges_of_axes(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield the first and end of axes whose indices are rows, single axes first."""
    for width in range(1, len(shape)):
        for first in range(len(shape) - width):
            extents = shape[first : first + width]
            rows, size = math.prod(extents), math.prod(shape[first + width :])
            is_new = width == 1 or min(extents) > 1
            if is_new and rows > 1 and size > 1 and rows * math.prod(shape) <= _MAX_PRODUCTS:
                yield first, first + width


_MAX_PRODUCTS = 1 << 28
"""Maximum number of products for the distances of all rows from one another."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sources:
    """Where the wrong rows of a result come from.

    Args:
        by_row: The row whose result a row holds, or `_UNWRITTEN`.
        number: The number that unwritten rows hold, or NaN if there are none.
        values: The wrong values of the rows with another's result.
    """

    by_row: Mapping[int, int]
    number: float
    values: np.ndarray

    @property
    def is_evident(self) -> bool:
        """Whether the rows with another's result have enough wrong values to rule out chance."""
        return self.values.size >= CAUSE_MIN_DISTINCT_VALUES and np.unique(self.values).size >= CAUSE_MIN_DISTINCT_REALS


_UNWRITTEN = -1


def _sources(result: RowsOfResult, first: int, end: int) -> _Sources | None:
    """Return where the wrong rows of a result come from, or None if that is unknown for a row."""
    shape = result.right.shape
    outer, rows = math.prod(shape[:first]), math.prod(shape[first:end])
    right, recorded = (
        np.asarray(array, np.float64).reshape(outer, rows, -1) for array in (result.right, result.recorded)
    )
    if not (np.isfinite(right).all() and np.isfinite(recorded).all()):
        return None
    by_row: dict[int, int] = {}
    numbers, values = set[float](), []
    for own, made in zip(right, recorded, strict=True):
        is_own = result.are_equal(own, made)
        wrong = np.flatnonzero(~is_own)
        distance = np.square(own).sum(1) - 2 * made[wrong] @ own.T
        for row, near in zip(wrong, np.argsort(distance, axis=1)[:, :2], strict=True):
            matches = near[result.are_equal(own[near], made[row])]
            is_constant = bool((made[row] == made[row, 0]).all())
            if is_constant:
                numbers.add(float(made[row, 0]))
            elif matches.size != 1:
                return None
            source = _UNWRITTEN if is_constant else int(matches[0])
            if by_row.setdefault(int(row), source) != source or len(numbers) > 1:
                return None
            if not is_constant:
                values.append(made[row][np.abs(made[row] - own[row]) > result.slack])
        if any(is_own[row] and source != _UNWRITTEN for row, source in by_row.items()):
            return None
    return _Sources(by_row=by_row, number=max(numbers, default=math.nan), values=np.concatenate([*values, np.zeros(0)]))


def _joined(sources: Sequence[_Sources]) -> _Sources | None:
    """Return the sources in all samples, or None if they differ."""
    if any(one.by_row != other.by_row for one, other in pairwise(sources)):
        return None
    numbers = {each.number for each in sources if not math.isnan(each.number)}
    if len(numbers) > 1:
        return None
    values = np.concatenate([each.values for each in sources])
    return _Sources(by_row=sources[0].by_row, number=max(numbers, default=math.nan), values=values)


def _sentence(sources: _Sources, shape: tuple[int, ...], first: int, end: int) -> str:
    """Return the sources as a clause, with all of them if they are few or do not follow from a rule."""
    rows = math.prod(shape[first:end])
    moved = {row: source for row, source in sources.by_row.items() if source != _UNWRITTEN}
    unwritten_count = len(sources.by_row) - len(moved)
    if end == len(shape) - 1:
        noun, axes = "row", ""
    elif end == first + 1:
        noun, axes = "index", f"along axis {first}, "
    else:
        noun, axes = "index", f"along axes {first} to {end - 1} in memory, "
    shifts = {(source - row + rows // 2) % rows - rows // 2 for row, source in moved.items()}
    cyclic = " cyclically" if any(not 0 <= row + shift < rows for row in moved for shift in shifts) else ""
    if moved == {0: rows - 1} and unwritten_count == rows - 1:
        text = f"{axes}every {noun} is written to the first, which holds the last of {rows}"
    elif len(shifts) == 1 and len(moved) > _MAX_SHOWN:
        source_text = f"i{shifts.pop():+d}{cyclic}"
        text = f"{axes}{len(moved)} of {rows} hold the result of another: {noun} i holds that of {source_text}"
    else:
        shown = [f"{row} that of {source}" for row, source in list(moved.items())[:_MAX_SHOWN]]
        more = f" (and {len(moved) - _MAX_SHOWN} more)" if len(moved) > _MAX_SHOWN else ""
        text = f"{axes}{len(moved)} of {rows} hold the result of another: {noun} {', '.join(shown)}{more}"
    if unwritten_count:
        which = "the others" if unwritten_count + len(moved) == rows else f"{unwritten_count} of {rows}"
        text += f"; {which} hold {sources.number:.4g}, as if never written"
    return text


_MAX_SHOWN = 3
"""Maximum number of rows in a clause."""
