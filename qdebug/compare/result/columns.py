"""Rows of frozen dataclasses as numpy columns and back, value for value: what results look like when they are kept.

The type hints of a dataclass say which columns it takes, so a field that is added to it is kept without a change here.
A column is named after its field; "field?" tells which rows have a value, "field#" how many entries a tuple has, and
"texts" holds every different text once. Nothing is trusted on the way back: each column is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeVar

import numpy as np

from qdebug.compare.result.frame import NUMBERS, TEXTS, Columns, Frame, entry_of, hints_of, optional
from qdebug.compare.result.frame_check import checked

__all__ = ["Columns", "columns_of", "from_columns", "text_columns", "to_columns"]

T = TypeVar("T")


def to_columns(rows: Sequence[Any], kind: type, *, omit: frozenset[str] = frozenset()) -> Columns:
    """Give rows as columns.

    Args:
        rows: Objects of one dataclass.
        kind: That dataclass. Its fields are numbers, texts, StrEnums, dataclasses, tuples of any length of one of
            these, or None.
        omit: Fields of `kind` that are left out; they need a default.

    Raises:
        TypeError: A field is declared as something else.
        ValueError: A value is not of its declared type, or too large to be kept exactly.
    """
    texts: dict[str, int] = {}
    return columns_of(rows, kind, texts, omit=omit) | text_columns(texts)


def columns_of(rows: Sequence[Any], kind: type, texts: dict[str, int], *, omit: frozenset[str]) -> Columns:
    """Give rows as columns without their texts; `texts` numbers those, and takes in the new ones."""
    writer = _Writer(texts)
    writer.rows(rows, kind, "", omit)
    return writer.columns


def text_columns(texts: Mapping[str, int]) -> Columns:
    """Give the texts that columns name by their numbers."""
    coded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.array([len(text) for text in coded], np.int64)
    return {f"{TEXTS}#": lengths, TEXTS: np.frombuffer(b"".join(coded), np.uint8)}


def from_columns(columns: Mapping[str, np.ndarray], kind: type[T], count: int, *, omit: frozenset[str]) -> list[T]:
    """Give back the rows that `to_columns` was given; what was left out has its default.

    Args:
        columns: The columns, from whatever source.
        kind: The dataclass.
        count: How many rows there must be.
        omit: As given to `to_columns`.

    Raises:
        ValueError: The columns are not those of `count` rows of this dataclass.
    """
    texts = checked(columns, kind, count, omit=omit)
    return Frame(columns, texts, kind, omit).rows(0, count)


class _Writer:
    """Fills columns."""

    def __init__(self, texts: dict[str, int]) -> None:
        self.columns: Columns = {}
        self._texts = texts

    def rows(self, rows: Sequence[Any], kind: type, name: str, omit: frozenset[str]) -> None:
        """Take in dataclass objects, field by field."""
        for field, hint in hints_of(kind).items():
            if field not in omit:
                self.values([getattr(row, field) for row in rows], hint, f"{name}.{field}" if name else field)

    def values(self, values: Sequence[Any], hint: Any, name: str) -> None:
        """Take in values of one declared type."""
        inner, entry = optional(hint), entry_of(hint)
        if inner is not None:
            self.columns[f"{name}?"] = np.array([value is not None for value in values], np.uint8)
            self.values([value for value in values if value is not None], inner, name)
        elif entry is not None:
            self.columns[f"{name}#"] = np.array([len(value) for value in values], np.int64)
            self.values([item for value in values for item in value], entry, name)
        elif hint in NUMBERS:
            self.columns[name] = _numbers(values, hint, name)
        elif isinstance(hint, type) and issubclass(hint, str):
            self.columns[name] = self._indices(values, name)
        elif is_dataclass(hint):
            self.rows(values, hint, name, frozenset())  # type: ignore[arg-type]  # a hint is a class
        else:
            raise TypeError(f"field {name!r} is declared as {hint}, which has no columns")

    def _indices(self, values: Sequence[Any], name: str) -> np.ndarray:
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name!r} holds something that is no text")
        texts = self._texts
        return np.array([texts.setdefault(str(value), len(texts)) for value in values], np.int64)


def _numbers(values: Sequence[Any], hint: type, name: str) -> np.ndarray:
    # An int where a float is declared would come back as a float, and read differently in JSON.
    if not all(isinstance(value, hint) and (hint is not int or not isinstance(value, bool)) for value in values):
        raise ValueError(f"{name!r} holds something that is no {hint.__name__}")
    try:
        return np.array(values, NUMBERS[hint])
    except OverflowError as error:
        raise ValueError(f"{name!r} holds an integer beyond 64 bits") from error
