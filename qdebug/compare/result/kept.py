"""Stores results between two comparisons of the same recordings, as columns, and restores them.

Objects of a dataclass are stored as NumPy columns, value for value. The type hints of a dataclass define its columns,
so a new field needs no change here. A column is named after its field; "field?" marks the rows that have a value,
"field#" counts the entries of a tuple, and "texts" holds every distinct string once. Columns are checked before objects
are made from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from itertools import accumulate, islice, pairwise, repeat
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import NodeResult, OutputRanking

__all__ = ["Columns", "from_columns", "kept_columns", "kept_results", "result_facts", "to_columns"]

T = TypeVar("T")

Columns = dict[str, np.ndarray]
"""One-dimensional arrays of float64, int64 or uint8, by name."""

_TEXTS = "texts"
_NUMBERS: Mapping[type, type] = {float: np.float64, int: np.int64, bool: np.uint8}
"""Stored type of numbers, by their declared type."""


def to_columns(rows: Sequence[Any], kind: type, *, omit: frozenset[str] = frozenset()) -> Columns:
    """Return rows as columns.

    Args:
        rows: Objects of one dataclass.
        kind: The dataclass. Its fields are numbers, strings, StrEnums, dataclasses, tuples of any length of one of
            these, or None.
        omit: Fields of `kind` to leave out.

    Raises:
        TypeError: A field has an unsupported declared type.
        ValueError: A value is not of its declared type, or too large to be stored exactly.
    """
    writer = _Writer()
    writer.rows(rows, kind, "", omit)
    coded = [text.encode("utf-8", "surrogatepass") for text in writer.texts]
    lengths = np.array([len(text) for text in coded], np.int64)
    return writer.columns | {f"{_TEXTS}#": lengths, _TEXTS: np.frombuffer(b"".join(coded), np.uint8)}


def from_columns(
    columns: Mapping[str, np.ndarray],
    kind: type[T],
    count: int,
    *,
    omit: frozenset[str] = frozenset(),
    known_columns: Mapping[str, Sequence[Any]] | None = None,
) -> list[T]:
    """Return the rows that were passed to `to_columns`.

    Args:
        columns: The columns, from any source.
        kind: The dataclass.
        count: Expected number of rows.
        omit: As passed to `to_columns`.
        known_columns: Values of omitted fields. Other omitted fields get their defaults.

    Raises:
        ValueError: The columns do not contain `count` rows of this dataclass.
    """
    reader = _Reader(columns)
    rows: list[T] = reader.rows(kind, "", count, omit, known_columns or {})
    if reader.unused_columns:
        raise ValueError(f"unexpected column {min(reader.unused_columns)!r}")
    return rows


@cache
def _hints_of(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}


@cache
def _unwrap_optional(hint: Any) -> Any:
    """Return X for the type hint X | None, or None for any other hint."""
    if get_origin(hint) is not UnionType:
        return None
    inner = [part for part in get_args(hint) if part is not NoneType]
    return inner[0] if len(inner) == 1 and len(get_args(hint)) == 2 else None


@cache
def _unwrap_tuple(hint: Any) -> Any:
    """Return X for the type hint tuple[X, ...], or None for any other hint."""
    parts = get_args(hint)
    return parts[0] if get_origin(hint) is tuple and len(parts) == 2 and parts[1] is Ellipsis else None


class _Writer:
    """Fills columns, and numbers the strings that they refer to."""

    def __init__(self) -> None:
        self.columns: Columns = {}
        self.texts: dict[str, int] = {}

    def rows(self, rows: Sequence[Any], kind: type, name: str, omit: frozenset[str]) -> None:
        """Add dataclass objects, field by field."""
        for field, hint in _hints_of(kind).items():
            if field not in omit:
                self._values([getattr(row, field) for row in rows], hint, f"{name}.{field}" if name else field)

    def _values(self, values: Sequence[Any], hint: Any, name: str) -> None:
        """Add values of one declared type."""
        inner, entry = _unwrap_optional(hint), _unwrap_tuple(hint)
        if inner is not None:
            self.columns[f"{name}?"] = np.array([value is not None for value in values], np.uint8)
            self._values([value for value in values if value is not None], inner, name)
        elif entry is not None:
            self.columns[f"{name}#"] = np.array([len(value) for value in values], np.int64)
            self._values([item for value in values for item in value], entry, name)
        elif hint in _NUMBERS:
            self.columns[name] = _numbers(values, hint, name)
        elif isinstance(hint, type) and issubclass(hint, str):
            self.columns[name] = self._indices(values, name)
        elif is_dataclass(hint):
            self.rows(values, hint, name, frozenset())  # type: ignore[arg-type]  # a hint is a class
        else:
            raise TypeError(f"field {name!r} is declared as {hint}, which has no columns")

    def _indices(self, values: Sequence[Any], name: str) -> np.ndarray:
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name!r} holds a value that is not text")
        texts = self.texts
        return np.array([texts.setdefault(str(value), len(texts)) for value in values], np.int64)


def _numbers(values: Sequence[Any], hint: type, name: str) -> np.ndarray:
    # An int where a float is declared would come back as a float, and read differently in JSON.
    if not all(isinstance(value, hint) and (hint is not int or not isinstance(value, bool)) for value in values):
        raise ValueError(f"{name!r} holds a value that is not {hint.__name__}")
    try:
        return np.array(values, _NUMBERS[hint])
    except OverflowError as error:
        raise ValueError(f"{name!r} holds an integer beyond 64 bits") from error


class _Reader:
    """Makes objects from columns, each of which is checked and used once.

    Attributes:
        unused_columns: Columns that have not been used yet.
    """

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self.unused_columns = dict(columns)
        lengths = self._lengths(_TEXTS, None)
        raw = self._column(_TEXTS, np.uint8, sum(lengths)).tobytes()
        ends = [0, *accumulate(lengths)]
        self._texts = [raw[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]

    def rows(
        self, kind: type, name: str, count: int, omit: frozenset[str], known_columns: Mapping[str, Sequence[Any]]
    ) -> list[Any]:
        """Make `count` objects of a dataclass without `__post_init__`, field by field."""
        columns: dict[str, Any] = {}  # check every column before the first object is made
        for field, hint in _hints_of(kind).items():
            if field in known_columns:
                columns[field] = known_columns[field]
            elif field in omit:
                columns[field] = repeat(_default(kind, field))
            else:
                columns[field] = self._values(hint, f"{name}.{field}" if name else field, count)
        objects: list[Any] = [object.__new__(kind) for _ in range(count)]
        for field, values in columns.items():
            deque(map(object.__setattr__, objects, repeat(field), values), maxlen=0)  # much faster than `kind()`
        return objects

    def _values(self, hint: Any, name: str, count: int) -> list[Any]:
        inner, entry = _unwrap_optional(hint), _unwrap_tuple(hint)
        if inner is not None:
            flags = self._flags(f"{name}?", count)
            present = iter(self._values(inner, name, sum(flags)))
            return [next(present) if is_present else None for is_present in flags]
        if entry is not None:
            lengths = self._lengths(name, count)
            items = iter(self._values(entry, name, sum(lengths)))
            return [tuple(islice(items, length)) for length in lengths]
        if hint is bool:
            return list(map(bool, self._flags(name, count)))
        if hint in _NUMBERS:
            return list(self._column(name, _NUMBERS[hint], count).tolist())
        if isinstance(hint, type) and issubclass(hint, str):
            return self._text(hint, name, count)
        return self.rows(hint, name, count, frozenset(), {})

    def _text(self, hint: type[str], name: str, count: int) -> list[str]:
        indices = self._column(name, np.int64, count)
        if count and not 0 <= int(indices.min()) <= int(indices.max()) < len(self._texts):
            raise ValueError(f"column {name!r} refers to a missing text")
        texts: Any = self._texts
        if issubclass(hint, StrEnum):
            texts = {index: hint(self._texts[index]) for index in np.unique(indices).tolist()}
        return [texts[index] for index in indices.tolist()]

    def _flags(self, name: str, count: int) -> list[int]:
        column = self._column(name, np.uint8, count)
        if count and int(column.max()) > 1:
            raise ValueError(f"column {name!r} holds a value other than 0 and 1")
        return list(column.tolist())

    def _lengths(self, name: str, count: int | None) -> list[int]:
        column = self._column(f"{name}#", np.int64, count)
        if column.size and int(column.min()) < 0:
            raise ValueError(f"column {name!r} has entries of negative length")
        return list(column.tolist())

    def _column(self, name: str, dtype: type, count: int | None) -> np.ndarray:
        column = self.unused_columns.pop(name, None)
        if column is None:
            raise ValueError(f"column {name!r} is missing")
        if column.ndim != 1 or column.dtype != dtype or (count is not None and column.size != count):
            raise ValueError(f"column {name!r} is {column.dtype} {column.shape}, not {count} values")
        return column


def _default(kind: type, name: str) -> Any:
    entry = next(entry for entry in fields(kind) if entry.name == name)
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


_LIMITS_OF_WHOLE_RUN = frozenset(
    {"acknowledged", "file", "allow_partial", "allow_unfaithful", "allow_different_inputs", "allow_uncompared"}
)
"""Limits that apply to the whole comparison when it is summarized, rather than to a tensor."""

_FROM_PLAN = ("index", "node", "op", "tensor", "reference_tensor", "match", "match_reason", "confidence", "quant")
_OMIT = frozenset({*_FROM_PLAN, "acknowledged"})
"""Fields that follow from the plan, or from the current limits."""


def result_facts(pairs: Sequence[Pair], limits: Limits) -> Iterator[str]:
    """Yield everything that results depend on besides recordings and code: the pairs and the limits."""
    judging = [entry.name for entry in fields(limits) if entry.name not in _LIMITS_OF_WHOLE_RUN]
    judged = [f"{name}={getattr(limits, name)!r}" for name in judging]
    yield from judged
    yield from (repr((pair.reference, pair.backend, pair.reference_view, pair.backend_view)) for pair in pairs)


def kept_columns(nodes: Sequence[NodeResult], outputs: Sequence[OutputRanking]) -> Columns:
    """Return results as columns.

    Raises:
        ValueError: A value would not be restored exactly.
    """
    parts = {"nodes": to_columns(nodes, NodeResult, omit=_OMIT), "outputs": to_columns(outputs, OutputRanking)}
    columns_by_name = {f"{part}/{name}": column for part, columns in parts.items() for name, column in columns.items()}
    return columns_by_name | {"outputs": np.array([len(outputs)], np.int64)}


def kept_results(
    columns: Mapping[str, np.ndarray], planned: Sequence[PlannedNode]
) -> tuple[list[NodeResult], tuple[OutputRanking, ...]]:
    """Return stored results, without acknowledgements.

    Args:
        columns: Columns from any source.
        planned: The compared tensors, the same as when they were stored.

    Raises:
        ValueError: The columns do not contain one result for each planned entry.
    """
    remaining = dict(columns)
    output_count = remaining.pop("outputs", np.empty(0, np.int64))
    if output_count.dtype != np.int64 or output_count.size != 1 or not 0 <= int(output_count[0]) <= len(planned):
        raise ValueError("the number of outputs is missing")
    parts: dict[str, Columns] = {"nodes": {}, "outputs": {}}
    for name, column in remaining.items():
        part, _, column_name = name.partition("/")
        if part not in parts:
            raise ValueError(f"unexpected column {name!r}")
        parts[part][column_name] = column
    outputs = from_columns(parts["outputs"], OutputRanking, int(output_count[0]))
    plan_columns = {name: [getattr(entry, name) for entry in planned] for name in _FROM_PLAN}
    nodes = from_columns(parts["nodes"], NodeResult, len(planned), omit=_OMIT, known_columns=plan_columns)
    return nodes, tuple(outputs)
