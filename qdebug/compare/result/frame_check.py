"""Checks columns from whatever source, before rows are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np

from qdebug.compare.result.frame import NUMBERS, TEXTS, entry_of, hints_of, optional

__all__ = ["checked"]


def checked(columns: Mapping[str, np.ndarray], kind: type, count: int, *, omit: frozenset[str]) -> list[str]:
    """Check that columns are those of some rows, and give their texts.

    Raises:
        ValueError: They are not those of `count` rows of this dataclass.
    """
    check = _Check(columns)
    check.rows(kind, "", count, omit)
    check.finish()
    return check.texts


class _Check:
    """Looks at columns, once each."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._left = dict(columns)
        lengths = self._lengths(TEXTS, None)
        raw = self._column(TEXTS, np.uint8, int(lengths.sum())).tobytes()
        self.texts: list[str] = []
        start = 0
        for length in lengths.tolist():
            self.texts.append(raw[start : start + length].decode("utf-8", "surrogatepass"))
            start += length

    def finish(self) -> None:
        """Check that nothing is left over."""
        if self._left:
            raise ValueError(f"there is a column {min(self._left)!r} that nobody asked for")

    def rows(self, kind: type, name: str, count: int, omit: frozenset[str]) -> None:
        """Check the columns of `count` objects."""
        for field, hint in hints_of(kind).items():
            if field not in omit:
                self._values(hint, f"{name}.{field}" if name else field, count)

    def _values(self, hint: Any, name: str, count: int) -> None:
        inner, entry = optional(hint), entry_of(hint)
        if inner is not None:
            self._values(inner, name, int(self._flags(f"{name}?", count).sum(dtype=np.int64)))
        elif entry is not None:
            self._values(entry, name, _total(self._lengths(name, count)))
        elif hint is bool:
            self._flags(name, count)
        elif hint in NUMBERS:
            self._column(name, NUMBERS[hint], count)
        elif isinstance(hint, type) and issubclass(hint, str):
            self._text(hint, name, count)
        else:
            self.rows(hint, name, count, frozenset())

    def _text(self, hint: type[str], name: str, count: int) -> None:
        indices = self._column(name, np.int64, count)
        if count and not 0 <= int(indices.min()) <= int(indices.max()) < len(self.texts):
            raise ValueError(f"column {name!r} names a text that there is not")
        if issubclass(hint, StrEnum):
            for index in np.unique(indices).tolist():
                hint(self.texts[index])

    def _flags(self, name: str, count: int) -> np.ndarray:
        column = self._column(name, np.uint8, count)
        if count and int(column.max()) > 1:
            raise ValueError(f"column {name!r} holds something that is neither yes nor no")
        return column

    def _lengths(self, name: str, count: int | None) -> np.ndarray:
        column = self._column(f"{name}#", np.int64, count)
        if column.size and int(column.min()) < 0:
            raise ValueError(f"column {name!r} has entries of negative length")
        return column

    def _column(self, name: str, dtype: type, count: int | None) -> np.ndarray:
        column = self._left.pop(name, None)
        if column is None:
            raise ValueError(f"there is no column {name!r}")
        if column.ndim != 1 or column.dtype != dtype or (count is not None and column.size != count):
            raise ValueError(f"column {name!r} is {column.dtype} {column.shape}, not {count} values")
        return column


def _total(lengths: np.ndarray) -> int:
    return sum(lengths.tolist()) if lengths.size and int(lengths.max()) > 1 << 31 else int(lengths.sum())
