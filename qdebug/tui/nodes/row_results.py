"""The results that the list shows: where a session holds them in columns, made from there when they are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, overload, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # the first rows are drawn before there are results
    from qdebug.compare.result.held import HeldNodes
    from qdebug.compare.result.result import NodeResult, SampleResult

__all__ = ["Holding", "KnownResults", "RowResults"]


@runtime_checkable
class Holding(Protocol):
    """A session that holds its results, so that nobody else need keep them."""

    @property
    def outdated(self) -> bool:
        """Whether results that were kept are of another version of qdebug."""

    @property
    def held(self) -> HeldNodes:
        """Results so far, by the index of their entry."""

    def found(self, tensor: str) -> NodeResult | None:
        """Give the result of a backend tensor; None if there is none yet."""


class KnownResults(Mapping[str, "NodeResult"]):
    """Results by backend tensor.

    Args:
        found: Gives the result of a tensor; None to keep those that are added.
    """

    def __init__(self, found: Callable[[str], NodeResult | None] | None = None) -> None:
        self._found = found
        self._kept: dict[str, NodeResult] = {}
        self._count = 0

    def add(self, result: NodeResult) -> None:
        """Take in a result."""
        self._count += 1
        if self._found is None:
            self._kept[result.tensor] = result

    def __getitem__(self, tensor: str) -> NodeResult:
        result = self._kept.get(tensor) if self._found is None else self._found(tensor)
        if result is None:
            raise KeyError(tensor)
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return self._count


class RowResults(Sequence["NodeResult | None"]):
    """The result of each row, None where there is none yet.

    Args:
        size: How many rows.
    """

    def __init__(self, size: int) -> None:
        self._index = np.full(size, -1, np.int32)
        self._held: HeldNodes | None = None
        self._kept: list[NodeResult | None] = []

    def __len__(self) -> int:
        return len(self._index)

    @property
    def held(self) -> HeldNodes | None:
        """What holds the results; None if nothing does, or there are none yet."""
        return self._held

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self._held is not None or bool(self._kept)

    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Give the rows that have a result, and the numbers of their results among all."""
        rows = np.flatnonzero(self._index >= 0)
        return rows, self._index[rows]

    @overload
    def __getitem__(self, row: int) -> NodeResult | None: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[NodeResult | None]: ...
    def __getitem__(self, row: int | slice) -> NodeResult | Sequence[NodeResult | None] | None:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(len(self)))]
        index = int(self._index[row])
        if index < 0:
            return None
        return self._kept[row] if self._held is None else self._held[index]

    def put(self, rows: np.ndarray, indices: np.ndarray, results: Sequence[NodeResult], held: HeldNodes | None) -> int:
        """Take in the results of some rows; tell how many had none.

        Args:
            rows: The rows.
            indices: Numbers of the results among all.
            results: Their results; not looked at if something holds them.
            held: What holds them, these and all before; None if nobody does.
        """
        fresh = int((self._index[rows] < 0).sum())
        self._held = held
        self._index[rows] = indices
        if held is None:
            self._kept = self._kept or [None] * len(self)
            for row, result in zip(rows.tolist(), results, strict=True):
                self._kept[row] = result
        return fresh

    def samples(self) -> Iterator[tuple[int, Sequence[SampleResult]]]:
        """Give the samples of each row that has a result; their errors' parts may be left out."""
        if self._held is None:
            return ((row, result.samples) for row, result in enumerate(self._kept) if result is not None)
        samples = self._held.samples()
        return ((row, samples[self._index[row]]) for row in np.flatnonzero(self._index >= 0).tolist())

    def explained(self) -> list[str | None]:
        """Give for each row the arithmetic that reproduces it, "" where none is known; None where no result is."""
        texts: list[str | None] = [None] * len(self)
        if self._held is None:
            return [None if result is None else result.explained or "" for result in self._kept] or texts
        of_held = self._held.texts("explained")
        for row in np.flatnonzero(self._index >= 0).tolist():
            texts[row] = of_held[self._index[row]] or ""
        return texts
