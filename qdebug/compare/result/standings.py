"""How all results of a comparison stand, as columns: what a verdict is made of; results are made where one is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from qdebug.compare.result.held import HeldNodes
from qdebug.compare.result.node_result import NodeResult
from qdebug.compare.result.status import Status

__all__ = ["Standings"]

_CODES = {status: code for code, status in enumerate(Status)}


class Standings:
    """Columns of the results of a comparison, each of them read once; rows are numbers of results.

    Args:
        held: The results, in the backend's topological order; none is added meanwhile.

    Attributes:
        held: The same.
        tensors: The backend tensor of each.
    """

    def __init__(self, held: HeldNodes) -> None:
        self.held = held
        self.tensors = held.tensors()
        self._statuses = held.statuses(_CODES)

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, row: int | np.integer) -> NodeResult:
        return self.held[int(row)]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each backend tensor."""
        return {tensor: row for row, tensor in enumerate(self.tensors)}

    def rows_of(self, tensors: Iterable[str]) -> list[int]:
        """Give the rows of those of these tensors that have one, in order."""
        return sorted({self.rows[tensor] for tensor in tensors if tensor in self.rows})

    # How they came out; see `qdebug.compare.result.origin` for the same of one result

    def having(self, status: Status) -> np.ndarray:
        """Tell which have a status."""
        found: np.ndarray = self._statuses == _CODES[status]
        return found

    @cached_property
    def breaking(self) -> np.ndarray:
        """Which are beyond their limit, or declared so differently that they have another shape."""
        shaped = self.having(Status.INCOMPARABLE) & self.declared
        found: np.ndarray = shaped | self.having(Status.DIVERGED) | self.having(Status.NONFINITE)
        return found

    @cached_property
    def excused(self) -> np.ndarray:
        """Which somebody accepted, where that has not expired."""
        return self.held.excused()

    @cached_property
    def accepted(self) -> np.ndarray:
        """Which somebody accepted, be it long ago."""
        return self.held.acknowledged()

    @cached_property
    def beyond(self) -> np.ndarray:
        """Which break their limit and are not excused."""
        found: np.ndarray = self.breaking & ~self.excused
        return found

    @cached_property
    def declared(self) -> np.ndarray:
        """Of which the two graphs declare something differently."""
        return self.held.known("declared")

    def on(self, basis: str) -> np.ndarray:
        """Tell which were judged on this basis."""
        return self.held.equal("basis", basis)

    @cached_property
    def partial(self) -> np.ndarray:
        """Of which something was left out, though whole tensors were compared or one side lacks samples."""
        noted = self.held.known("note") & ~self.held.equal("note", "")
        found: np.ndarray = noted & (self.on("full") | (self.held.numbers("lacking") != 0.0))
        return found

    # Their errors

    @cached_property
    def carried(self) -> np.ndarray:
        """The error of each relative to its signal; one of another shape could not be further off."""
        return np.where(self.having(Status.INCOMPARABLE), np.inf, self.relative("metrics"))

    def relative(self, part: str) -> np.ndarray:
        """Give the size of an error relative to the signal, for ranking: unknown is none, undefined is endless.

        Args:
            part: "metrics", "introduced" or "propagated".
        """
        size = self.held.numbers(f"{part}.rel_l2")
        return np.where(self.held.known(f"{part}.rel_l2"), np.where(np.isnan(size), np.inf, size), 0.0)

    @cached_property
    def handing_on(self) -> np.ndarray:
        """Which hand on more error than they add; one that cannot be replayed may."""
        own, passed, unknown = self._parts
        return unknown | (passed > own)

    @cached_property
    def introducing(self) -> np.ndarray:
        """Which add at least as much error as reaches them; one that cannot be replayed may."""
        own, passed, unknown = self._parts
        return unknown | (own >= passed)

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        paths = "introduced.rmse", "propagated.rmse"
        own, passed = map(self.held.numbers, paths)
        known = self.held.known(paths[0]) & self.held.known(paths[1])  # a number that is known may be NaN all the same
        return own, passed, ~known
