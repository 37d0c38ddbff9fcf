"""The alignment of very large graphs as it stays: columns, from which a pair is made when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from qdebug.compare.align.pairs import Alignment, Match, Pair, Side, Unmatched, View
from qdebug.model import Graph
from qdebug.model.bulk import Picked, narrowed
from qdebug.model.large_graph import LargeGraph
from qdebug.model.texts import Names, Texts

__all__ = ["PairColumns", "as_columns", "by_backend", "first_by_root", "reference_views"]

T = TypeVar("T")

_FEW_REASONS = 1000


def as_columns(alignment: Alignment, reference: Graph, backend: Graph) -> Alignment:
    """Give an alignment in as little memory as it can do with, if both graphs are kept so.

    Args:
        alignment: The alignment.
        reference: The graph of the reference run.
        backend: The graph of the backend run.
    """
    if not (isinstance(reference, LargeGraph) and isinstance(backend, LargeGraph)):
        return alignment
    return Alignment(
        pairs=PairColumns(alignment.pairs, reference, backend),
        unmatched=_UnmatchedColumns(alignment.unmatched, reference, backend),
    )


def by_backend(pairs: Sequence[Pair]) -> Mapping[str, Pair]:
    """Give pairs by their backend tensors."""
    return _ByBackend(pairs) if isinstance(pairs, PairColumns) else {pair.backend: pair for pair in pairs}


def reference_views(pairs: Sequence[Pair]) -> Mapping[str, View]:
    """Give what is done to reference tensors before they are compared; of most that is nothing."""
    if isinstance(pairs, PairColumns) and not pairs.turns_references:
        return {}
    return {pair.reference: pair.reference_view for pair in pairs if pair.reference_view}


class _Columns(Sequence[T]):
    """Rows that are made when they are looked at."""

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, slice):
            return tuple(map(self._make, range(*at.indices(self._count))))
        row = at + self._count if at < 0 else at
        if not 0 <= row < self._count:
            raise IndexError(f"there are {self._count}, none has number {at}")
        return self._make(row)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._count))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Columns | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # nobody needs it

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


class PairColumns(_Columns[Pair]):
    """Pairs of tensors of two large graphs.

    Args:
        pairs: The pairs.
        reference: The graph of the reference run.
        backend: The graph of the backend run.

    Attributes:
        names: Names of the tensors of both graphs.
        backends: The backend tensor of each, by its row in its graph.
        references: The reference tensor of each, by its row.
        matches: The ground of each.
        reasons: The reason of each.
    """

    def __init__(self, pairs: Sequence[Pair], reference: LargeGraph, backend: LargeGraph) -> None:
        super().__init__(len(pairs), self._pair)
        self.names = reference.rows.names, backend.rows.names
        self.references = _rows_of((pair.reference for pair in pairs), self.names[0])
        self.backends = _rows_of((pair.backend for pair in pairs), self.names[1])
        self._reference, self._backend = self.references.data, self.backends.data
        self.matches: Sequence[Match] = Picked.of(pair.match for pair in pairs)
        self.reasons = _reasons(pair.reason for pair in pairs)
        self._views = Picked.of((pair.reference_view, pair.backend_view) for pair in pairs)
        at = np.full(len(self.names[1]), -1, np.int32)
        at[self.backends] = np.arange(len(pairs))
        self._at = at.data

    @property
    def turns_references(self) -> bool:
        """Whether anything is done to a reference tensor before it is compared."""
        return any(view is not None for view, _ in self._views.things)

    def _pair(self, row: int) -> Pair:
        reference_view, backend_view = self._views[row]
        return Pair(
            reference=self.names[0].text(self._reference[row]),
            backend=self.names[1].text(self._backend[row]),
            match=self.matches[row],
            reason=self.reasons[row],
            reference_view=reference_view,
            backend_view=backend_view,
        )

    def find(self, backend: str) -> int:
        """Give the number of the pair of a backend tensor; -1 if it has none."""
        row = self.names[1].rows[backend]
        return self._at[row] if row >= 0 else -1


def first_by_root(pairs: Sequence[Pair], root: Callable[[str], str]) -> Mapping[str, str]:
    """Give the first backend tensor whose reference tensor is of a class, by the root of the class.

    Args:
        pairs: The pairs.
        root: Gives the root of the class of a reference tensor.
    """
    if isinstance(pairs, PairColumns):
        return _FirstByRoot(pairs, root)
    found: dict[str, str] = {}
    for pair in pairs:
        found.setdefault(root(pair.reference), pair.backend)
    return found


class _FirstByRoot(Mapping[str, str]):
    """The first backend tensor of each class of reference tensors, by the root of the class."""

    def __init__(self, pairs: PairColumns, root: Callable[[str], str]) -> None:
        self._pairs = pairs
        self._names = names = pairs.names[0]
        roots = _rows_of((root(names[row]) for row in pairs.references), names)
        at = np.full(len(names), -1, np.int32)
        at[roots[::-1]] = np.arange(len(pairs))[::-1]  # of several the first
        self._at = at.data

    def __getitem__(self, root: str) -> str:
        row = self._names.rows[root]
        at = self._at[row] if row >= 0 else -1
        if at < 0:
            raise KeyError(root)
        return self._pairs.names[1][int(self._pairs.backends[at])]

    def __iter__(self) -> Iterator[str]:
        return (name for name, at in zip(self._names, self._at, strict=True) if at >= 0)

    def __len__(self) -> int:
        return int(np.count_nonzero(np.asarray(self._at) >= 0))


class _ByBackend(Mapping[str, Pair]):
    """Pairs by their backend tensors."""

    def __init__(self, pairs: PairColumns) -> None:
        self._pairs = pairs

    def __getitem__(self, backend: str) -> Pair:
        at = self._pairs.find(backend)
        if at < 0:
            raise KeyError(backend)
        return self._pairs[at]

    def __contains__(self, backend: object) -> bool:
        return isinstance(backend, str) and self._pairs.find(backend) >= 0

    def __iter__(self) -> Iterator[str]:
        return (pair.backend for pair in self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


class _UnmatchedColumns(_Columns[Unmatched]):
    """Tensors of two large graphs that have no partner."""

    def __init__(self, unmatched: Sequence[Unmatched], reference: LargeGraph, backend: LargeGraph) -> None:
        super().__init__(len(unmatched), self._unmatched)
        self._names = {Side.REFERENCE: reference.rows.names, Side.BACKEND: backend.rows.names}
        self._facts = Picked.of((entry.side, entry.kind) for entry in unmatched)
        self._reasons = _reasons(entry.reason for entry in unmatched)
        rows = {side: _rows_of((entry.tensor for entry in unmatched), names) for side, names in self._names.items()}
        ours = np.array([entry.side is Side.BACKEND for entry in unmatched], bool)
        tensors = np.where(ours, rows[Side.BACKEND], rows[Side.REFERENCE])
        inside = _rows_of((entry.inside for entry in unmatched), self._names[Side.BACKEND])
        lone = np.array([entry.inside is None for entry in unmatched], bool)
        # what a run says that it skipped may be in no graph
        odd = np.flatnonzero((tensors < 0) | ((inside < 0) & ~lone)).tolist()
        self._odd = {at: unmatched[at] for at in odd}
        self._tensors, self._inside = tensors.data, narrowed(inside).data

    def _unmatched(self, row: int) -> Unmatched:
        if row in self._odd:
            return self._odd[row]
        side, kind = self._facts[row]
        inside = self._inside[row]
        return Unmatched(
            side=side,
            tensor=self._names[side].text(self._tensors[row]),
            kind=kind,
            reason=self._reasons[row],
            inside=None if inside < 0 else self._names[Side.BACKEND][inside],
        )


def _rows_of(names: Iterable[str | None], table: Names) -> np.ndarray:
    """Give the rows of very many names, -1 for what is none."""
    rows: Mapping[str | None, int] = table.every_row()  # type: ignore[assignment]  # None has no row either
    return np.fromiter((rows[name] for name in names), np.int32)


def _reasons(reasons: Iterable[str]) -> Sequence[str]:
    """Keep reasons, of which most may be the same, or each may name its nodes."""
    kept = Picked.of(reasons)
    if len(kept.things) > _FEW_REASONS:
        kept.things = Texts.of(kept.things)
    return kept
