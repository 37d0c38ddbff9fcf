"""All results of a comparison as a table, with a numpy column for each property that a verdict needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from qdebug.compare.result.finding import Status
from qdebug.compare.result.node_result import NodeResult, breaks_limit, is_beyond, is_excused

__all__ = ["ResultTable"]

_CODES = {status: code for code, status in enumerate(Status)}


class ResultTable:
    """Results of a comparison. A row is the number of a result, and each column is computed once.

    Args:
        nodes: The results, in the backend's topological order.

    Attributes:
        nodes: The results.
    """

    def __init__(self, nodes: Sequence[NodeResult]) -> None:
        self.nodes = nodes
        self._statuses = np.array([_CODES[node.status] for node in nodes], np.uint8)

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, row: int | np.integer) -> NodeResult:
        return self.nodes[int(row)]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each backend tensor."""
        return {node.tensor: row for row, node in enumerate(self.nodes)}

    def replacing(self, node: NodeResult) -> ResultTable:
        """Return the table with the result for one tensor replaced."""
        row = self.rows[node.tensor]
        return ResultTable((*self.nodes[:row], node, *self.nodes[row + 1 :]))

    def rows_of(self, tensors: Iterable[str]) -> list[int]:
        """Return the rows of the given tensors that have one, in order."""
        return sorted({self.rows[tensor] for tensor in tensors if tensor in self.rows})

    def test_rows(self, test: Callable[[NodeResult], bool]) -> np.ndarray:
        """Return for each result whether it passes a test."""
        return np.fromiter(map(test, self.nodes), bool, len(self))

    def has_status(self, status: Status) -> np.ndarray:
        """Return for each result whether it has a given status."""
        mask: np.ndarray = self._statuses == _CODES[status]
        return mask

    def has_basis(self, basis: str) -> np.ndarray:
        """Return for each result whether it was judged on a given basis."""
        return self.test_rows(lambda node: node.basis == basis)

    @cached_property
    def breaking(self) -> np.ndarray:
        """Which results break their limit, see `breaks_limit`."""
        return self.test_rows(breaks_limit)

    @cached_property
    def excused(self) -> np.ndarray:
        """Which results the user accepted, if the acceptance has not expired."""
        return self.test_rows(is_excused)

    @cached_property
    def accepted(self) -> np.ndarray:
        """Which results the user accepted, even if the acceptance has expired."""
        return self.test_rows(lambda node: node.acknowledged is not None)

    @cached_property
    def beyond(self) -> np.ndarray:
        """Which results break their limit and are not excused."""
        return self.test_rows(is_beyond)

    @cached_property
    def declared(self) -> np.ndarray:
        """At which nodes the two graphs declare something differently."""
        return self.test_rows(lambda node: node.declared is not None)

    @cached_property
    def partial(self) -> np.ndarray:
        """Which comparisons leave out elements of a tensor compared in full, or samples that one side lacks."""
        return self.test_rows(lambda node: bool(node.note) and (node.basis == "full" or node.lacking))

    # Errors of the results

    @cached_property
    def gains(self) -> np.ndarray:
        """The relative gain of each node, or NaN if unknown."""
        relative_gains = (node.relative_gain for node in self.nodes)
        return np.array([math.nan if gain is None else gain for gain in relative_gains], np.float64)

    @cached_property
    def carried(self) -> np.ndarray:
        """The error of each tensor relative to its signal. A tensor of a different shape counts as infinitely wrong."""
        return np.where(self.has_status(Status.INCOMPARABLE), np.inf, self.relative("metrics"))

    def relative(self, part: str) -> np.ndarray:
        """Return the size of an error relative to the signal, for ranking: 0 if unknown, infinite if undefined.

        Args:
            part: "metrics", "introduced" or "propagated".
        """
        errors = (getattr(node, part) for node in self.nodes)
        sizes = [0.0 if error is None or error.rel_l2 is None else error.rel_l2 for error in errors]
        size = np.array(sizes, np.float64)
        return np.where(np.isnan(size), np.inf, size)

    @cached_property
    def passing_on(self) -> np.ndarray:
        """Which nodes pass on more error than they add. Nodes that cannot be replayed are included."""
        added, passed, unknown = self._parts
        return unknown | (passed > added)

    @cached_property
    def introducing(self) -> np.ndarray:
        """Which nodes add at least as much error as reaches them. Nodes that cannot be replayed are included."""
        added, passed, unknown = self._parts
        return unknown | (added >= passed)

    @cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """RMS of the error that each node adds, RMS of the error that reaches it, and whether either is unknown."""
        pairs = ((node.introduced, node.propagated) for node in self.nodes)
        parts = [tuple(None if error is None else error.rmse for error in pair) for pair in pairs]
        rms = np.array(parts, np.float64).reshape(-1, 2)  # None becomes NaN
        return rms[:, 0], rms[:, 1], np.fromiter((None in pair for pair in parts), bool, len(parts))
