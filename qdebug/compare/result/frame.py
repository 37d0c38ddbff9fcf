"""Rows of a dataclass as columns that give back any of them: made into objects when they are looked at.

The columns are those of `qdebug.compare.result.columns`. A thousand rows at most are a frame, in which each column
is as narrow as its values allow: one entry where all are equal, otherwise the smallest dtype that gives back every bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

__all__ = ["NUMBERS", "TEXTS", "Columns", "Frame", "entry_of", "hints_of", "optional", "split"]

Columns = dict[str, np.ndarray]
"""One-dimensional arrays of float64, int64 or uint8, by name."""

TEXTS = "texts"
"""The column of all texts; the others hold their numbers in it."""

NUMBERS: Mapping[type, type] = {float: np.float64, int: np.int64, bool: np.uint8}
"""How numbers are kept, by their declared type."""


@cache
def hints_of(kind: type) -> Mapping[str, Any]:
    """Give the declared types of the fields of a dataclass."""
    known = get_type_hints(kind)
    return {entry.name: known[entry.name] for entry in fields(kind)}


@cache
def optional(hint: Any) -> Any:
    """Give X for X | None; None for any other hint."""
    if get_origin(hint) is not UnionType:
        return None
    inner = [part for part in get_args(hint) if part is not NoneType]
    return inner[0] if len(inner) == 1 and len(get_args(hint)) == 2 else None


@cache
def entry_of(hint: Any) -> Any:
    """Give X for tuple[X, ...]; None for any other hint."""
    parts = get_args(hint)
    return parts[0] if get_origin(hint) is tuple and len(parts) == 2 and parts[1] is Ellipsis else None


class Frame:
    """Columns of some rows.

    Args:
        columns: The columns, checked.
        texts: What they name by number.
        kind: The dataclass of the rows.
        omit: Fields that have no column.
    """

    def __init__(
        self, columns: Mapping[str, np.ndarray], texts: Sequence[str], kind: type, omit: frozenset[str]
    ) -> None:
        self._columns = columns
        self._texts = texts
        self._kind, self._omit = kind, omit
        self._wide = {name: (column.dtype, column.size) for name, column in columns.items()}

    def narrowed(self) -> Frame:
        """Give the same rows in less memory."""
        made = Frame({}, self._texts, self._kind, self._omit)
        made._columns = {name: _narrow(column) for name, column in self._columns.items()}
        made._wide = self._wide
        return made

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return tuple(self._columns)

    def wide(self, name: str) -> np.ndarray:
        """Give a column as it was."""
        dtype, size = self._wide[name]
        column = self._columns[name]
        return np.full(size, column[0], dtype) if column.size == 1 else column.astype(dtype, copy=False)

    def rows(self, start: int, stop: int, *, given: Mapping[str, Sequence[Any]] | None = None) -> list[Any]:
        """Make the objects of some rows.

        Args:
            start: The first row.
            stop: The row after the last.
            given: Values of fields that were omitted; the others have their defaults.
        """
        return self._rows(self._kind, "", (start, stop), None, given or {})

    def field(self, name: str, start: int, stop: int, *, only: frozenset[str] | None = None) -> list[Any]:
        """Give one field of some rows.

        Args:
            name: The field.
            start: The first row.
            stop: The row after the last.
            only: Fields of its parts to fill in, by their paths ("samples.status"); the others have no value at all, so
                that reading one fails. None for all.
        """
        return self._values(hints_of(self._kind)[name], name, (start, stop), only)

    def numbers(self, path: str, count: int) -> np.ndarray:
        """Give a numeric field of the first rows as float64, NaN where there is none.

        Args:
            path: The field; that of a part that is no tuple by its path ("metrics.rmse").
            count: How many rows.
        """
        rows = self._rows_with(path, count)
        found = np.full(count, np.nan)
        found[rows] = self._expanded(path, rows.size)
        return found

    def known(self, path: str, count: int) -> np.ndarray:
        """Tell which of the first rows have a value in a field; `path` as for `numbers`."""
        found = np.zeros(count, bool)
        found[self._rows_with(path, count)] = True
        return found

    def codes(self, path: str, meant: Callable[[str], int], count: int) -> np.ndarray:
        """Give what a text of the first rows stands for, as uint8, 0 where there is none; `path` as for `numbers`."""
        rows = self._rows_with(path, count)
        numbers, places = np.unique(self._expanded(path, rows.size), return_inverse=True)
        found = np.zeros(count, np.uint8)
        found[rows] = np.array([meant(self._texts[number]) for number in numbers.tolist()], np.uint8)[places]
        return found

    def _rows_with(self, path: str, count: int) -> np.ndarray:
        """Give those of the first rows in which a field, and every part that it is of, has a value."""
        rows, name = np.arange(count), ""
        hint: Any = self._kind
        for part in path.split("."):
            name = f"{name}.{part}" if name else part
            hint = hints_of(hint)[part]
            if optional(hint) is not None:
                hint = optional(hint)
                rows = rows[self._expanded(f"{name}?", rows.size).astype(bool)]
        return rows

    def _expanded(self, name: str, count: int) -> np.ndarray:
        column = self._columns[name]
        return np.broadcast_to(column, (count,)) if column.size == 1 else column[:count]

    def _rows(
        self,
        kind: type,
        name: str,
        span: tuple[int, int],
        only: frozenset[str] | None,
        given: Mapping[str, Sequence[Any]],
    ) -> list[Any]:
        count = span[1] - span[0]
        if count <= 0:
            return []
        columns: dict[str, Sequence[Any]] = {}
        for field, hint in hints_of(kind).items():
            path = f"{name}.{field}" if name else field
            if not name and field in given:
                columns[field] = given[field]
            elif (only is None or path in only) and (name or field not in self._omit):
                columns[field] = self._values(hint, path, span, only)
            elif not name:
                columns[field] = [_default(kind, field)] * count
        return _made(kind, columns, count, whole=only is None)

    def _values(self, hint: Any, name: str, span: tuple[int, int], only: frozenset[str] | None) -> list[Any]:
        inner, entry = optional(hint), entry_of(hint)
        if inner is not None:
            first, inside = self._rank(f"{name}?", *span)
            many = sum(inside)
            values = self._values(inner, name, (first, first + many), only)
            if many == len(inside):
                return values
            found = iter(values)
            return [next(found) if there else None for there in inside]
        if entry is not None:
            first, lengths = self._rank(f"{name}#", *span)
            items = iter(self._values(entry, name, (first, first + sum(lengths)), only))
            return [tuple(next(items) for _ in range(length)) for length in lengths]
        if hint is bool:
            return list(map(bool, self._part(name, *span)))
        if hint in NUMBERS:
            return self._part(name, *span)
        if isinstance(hint, type) and issubclass(hint, str):
            numbers = self._part(name, *span)
            texts: Mapping[int, Any] | Sequence[Any] = self._texts
            if issubclass(hint, StrEnum):
                texts = {number: hint(self._texts[number]) for number in set(numbers)}
            return [texts[number] for number in numbers]
        return self._rows(hint, name, span, only, {})

    def _part(self, name: str, start: int, stop: int) -> list[Any]:
        column = self._columns[name]
        if column.size == 1:  # one row, or all equal
            return [column.item()] * (stop - start)
        return list(column[start:stop].tolist())

    def _rank(self, name: str, start: int, stop: int) -> tuple[int, list[int]]:
        column = self._columns[name]
        before = start * column.item() if column.size == 1 else int(column[:start].sum(dtype=np.int64))
        return before, self._part(name, start, stop)


def _narrow(column: np.ndarray) -> np.ndarray:
    """Give a column in the smallest dtype that loses nothing; one entry, if all are equal."""
    if not column.size:
        return column.copy()
    bits = column.view(np.int64) if column.dtype == np.float64 else column
    if (bits == bits[0]).all():
        return column[:1].copy()
    if column.dtype == np.float64:
        with np.errstate(all="ignore"):
            single = column.astype(np.float32)
        return single if np.array_equal(single.astype(np.float64).view(np.int64), bits) else column.copy()
    least, most = int(column.min()), int(column.max())
    return column.astype(np.result_type(np.min_scalar_type(least), np.min_scalar_type(most)))


def _default(kind: type, name: str) -> Any:
    entry = next(entry for entry in fields(kind) if entry.name == name)
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


@cache
def _setters(kind: type) -> Mapping[str, Callable[[Any, Any], None]] | None:
    """Give what fills the slots of a dataclass; None if it has none, or does more when it is made."""
    if hasattr(kind, "__post_init__") or "__slots__" not in vars(kind):
        return None
    return {entry.name: getattr(kind, entry.name).__set__ for entry in fields(kind)}


def _made(kind: type, columns: Mapping[str, Sequence[Any]], count: int, *, whole: bool) -> list[Any]:
    """Make objects; slot by slot, which takes a fifth of the time of calling a frozen class for each."""
    setters = _setters(kind)
    if setters is None:
        if not whole:
            raise TypeError(f"{kind.__name__} cannot be made in part")
        return [kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
    made: list[Any] = [object.__new__(kind) for _ in range(count)]
    for name, values in columns.items():
        deque(map(setters[name], made, values), maxlen=0)
    return made


def split(
    columns: Mapping[str, np.ndarray], kind: type, count: int, *, rows: int, omit: frozenset[str]
) -> Iterator[Columns]:
    """Give checked columns in parts, `rows` rows each, the last one maybe fewer."""
    taken = dict.fromkeys(columns, 0)

    def take(name: str, many: int) -> np.ndarray:
        start = taken[name]
        taken[name] = start + many
        part[name] = columns[name][start : start + many]
        return part[name]

    def walk(hint: Any, name: str, many: int) -> None:
        inner, entry = optional(hint), entry_of(hint)
        if inner is not None:
            walk(inner, name, int(take(f"{name}?", many).sum(dtype=np.int64)))
        elif entry is not None:
            walk(entry, name, int(take(f"{name}#", many).sum()))
        elif hint in NUMBERS or (isinstance(hint, type) and issubclass(hint, str)):
            take(name, many)
        else:
            for field, declared in hints_of(hint).items():
                if name or field not in omit:
                    walk(declared, f"{name}.{field}" if name else field, many)

    for start in range(0, count, rows):
        part: Columns = {}
        walk(kind, "", min(rows, count - start))
        yield part
