"""What belongs to some of very many names, in a few bytes a name: sets and mappings that are made once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from qdebug.model.bulk import narrowed
from qdebug.model.texts import Names

__all__ = ["NameGroups", "NameLinks", "NameSet"]


class NameSet(AbstractSet[str]):
    """Some of very many names.

    Args:
        names: All names.
        chosen: Those that are in the set; others than names may be.
    """

    def __init__(self, names: Names, chosen: Iterable[str]) -> None:
        self._names = names
        chosen = frozenset(chosen)
        rows = names.every_row()
        there = np.zeros(len(names), bool)
        there[[row for row in map(rows.__getitem__, chosen) if row >= 0]] = True
        self._there = there.tobytes()
        whole = self._there.count(1) == len(chosen)
        self._others: AbstractSet[str] = frozenset() if whole else chosen.difference(names)

    def __contains__(self, name: object) -> bool:
        row = self._names.rows[name] if isinstance(name, str) else -1
        return bool(self._there[row]) if row >= 0 else name in self._others

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, there in zip(self._names, self._there, strict=True) if there)
        yield from self._others

    def __len__(self) -> int:
        return self._there.count(1) + len(self._others)


class NameLinks(Mapping[str, str]):
    """A name for each of some names.

    Args:
        names: All names.
        given: The name that belongs to each; other texts than names may be among either.
    """

    def __init__(self, names: Names, given: Mapping[str, str]) -> None:
        self._names = names
        rows = names.every_row()
        linked = np.full(len(names), -1, np.int64)
        self._others: dict[str, str] = {}
        for name, other in given.items():
            row, to = rows[name], rows[other]
            if row < 0 or to < 0:
                self._others[name] = other
            else:
                linked[row] = to
        self._count = len(given)
        self._linked = narrowed(linked).data

    def get(self, name: str, default: Any = None) -> Any:
        """Give the name that belongs to a name; the default if none does."""
        row = self._names.rows[name]
        to = self._linked[row] if row >= 0 else -1
        if to >= 0:
            return self._names[to]
        return self._others.get(name, default) if self._others else default

    def __getitem__(self, name: str) -> str:
        found: str | None = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, to in zip(self._names, self._linked, strict=True) if to >= 0)
        yield from self._others

    def __len__(self) -> int:
        return self._count


class NameGroups(Mapping[str, tuple[str, ...]]):
    """Several names for each of some names.

    Args:
        names: All names.
        given: What belongs to names; other texts than names may be among either.
    """

    def __init__(self, names: Names, given: Mapping[str, Sequence[str]]) -> None:
        self._names = names
        rows = names.every_row()
        flat: list[int] = []
        starts, stops = (np.zeros(len(names), np.int64) for _ in range(2))
        self._others: dict[str, tuple[str, ...]] = {}
        for name, belonging in given.items():
            found = [rows[each] for each in belonging]
            row = rows[name]
            if row < 0 or -1 in found or not found:
                self._others[name] = tuple(belonging)
                continue
            starts[row] = len(flat)
            flat += found
            stops[row] = len(flat)
        self._count = len(given)
        self._starts, self._stops, self._flat = (narrowed(np.asarray(part)).data for part in (starts, stops, flat))

    def get(self, name: str, default: Any = None) -> Any:
        """Give what belongs to a name; the default if nothing does."""
        row = self._names.rows[name]
        if row >= 0 and (stop := self._stops[row]):
            return tuple([self._names[each] for each in self._flat[self._starts[row] : stop]])
        return self._others.get(name, default) if self._others else default

    def __getitem__(self, name: str) -> tuple[str, ...]:
        found: tuple[str, ...] | None = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        yield from (name for name, stop in zip(self._names, self._stops, strict=True) if stop)
        yield from self._others

    def __len__(self) -> int:
        return self._count
