"""The comparison of one backend, from opening to results: filled by worker threads, read by the screen."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qdebug.tui.garbage import garbage_collection_paused
from qdebug.tui.nodes.rows import NodeTable
from qdebug.tui.reading.messages import Computed, Event, NamesLoaded, Opening
from qdebug.tui.reading.plan_rows import constant_rows, describe_comparison, named_rows

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult
    from qdebug.model import Recording
    from qdebug.session import DiffSession
    from qdebug.tui.nodes.rows import PlannedRow

__all__ = ["ComparisonInProgress"]

_MIN_ROWS_TO_FREEZE = 2000
"""Number of rows from which garbage collection would block the screen for too long."""
_RESULTS_TO_FREEZE = 20_000
"""Number of results after which they are frozen too: a collection among as many takes 10 ms."""


class ComparisonInProgress:
    """A comparison in progress, and the table that receives its results.

    Args:
        number: Its index among the comparisons.
        opening: How to open it.
        post: Receives each event; called on worker threads, must not block.
        load: Called once the graphs are aligned, to import modules that the screen will soon need.

    Attributes:
        is_done: Whether nothing is left to compare, or the comparison has failed.
        pending: Yields the remaining results; None before the recordings are open, or if all
            results were handed over at once.
    """

    def __init__(
        self,
        number: int,
        opening: Opening,
        *,
        post: Callable[[Event], object],
        load: Callable[[], object] = lambda: None,
    ) -> None:
        self.number = number
        self.opening = opening
        self.has_names = self.was_opened = False
        self.is_done = False
        self.restart_reason = ""
        self.begun_at, self.seconds = time.monotonic(), 0.0
        self._post, self._load = post, load
        self._forget()

    def _forget(self) -> None:
        self.source: DiffSession | None = None
        self.table: NodeTable | None = None
        self.results: dict[str, NodeResult] = {}
        self._frozen_result_count = 0
        self._constants: dict[str, NodeResult] = {}
        self._row_count = 0
        self.pending: Iterator[NodeResult] | None = None

    @property
    def is_all_compared(self) -> bool:
        """Whether the session already has the results of all rows."""
        source, table = self.source, self.table
        return source is not None and table is not None and len(source.compared) == table.comparable

    def restart(self, *, reason: str = "") -> None:
        """Discard the results, because there is more to compare.

        Args:
            reason: How the recordings were replaced; "" if they grew.
        """
        self._forget()
        self.restart_reason = reason
        self.is_done = False
        self.begun_at = time.monotonic()

    def show_names(self, read_names: Callable[[], Sequence[str]]) -> None:
        """Show the names of the tensors before the comparison is open.

        Args:
            read_names: Opens the backend's recording and returns the names.
        """
        self.has_names = True
        with garbage_collection_paused():
            table = named_rows(read_names())
        self._post(NamesLoaded(backend_at=self.number, table=table))

    def open(self, load_notes: Callable[[Opening], Mapping[str, str]]) -> None:
        """Open and align both recordings, create the rows of the list, and show them.

        Args:
            load_notes: Returns the notes of earlier sessions by node.
        """
        opening = self.opening
        with garbage_collection_paused():
            source = self.source = opening.compare()
            event = describe_comparison(
                source, self.number, is_writing=opening.is_writing is not None and opening.is_writing()
            )
            event = replace(event, notes=load_notes(opening))
            event.table.prepare()
            self._load()
            # Each collection would stall the screen. This also excludes garbage of the moment, which is then never
            # freed: not done for a small recording, which may be growing and be opened again and again.
            if event.table.size > _MIN_ROWS_TO_FREEZE:
                gc.freeze()
        self._frozen_result_count = 0
        self.table, self.pending = event.table, source.results()
        self.results = {}
        self.was_opened = True
        self._post(event)

    def next_result(self) -> NodeResult | None:
        """Compare the next pair; None if there are none left.

        The first call also loads all results that the session has cached.
        """
        if self.pending is None:
            return None
        if self.results:
            return next(self.pending, None)
        with garbage_collection_paused():
            return next(self.pending, None)

    def result_of(self, tensor: str) -> NodeResult | None:
        """Return the result of a tensor or of a compared constant; None if there is none yet."""
        return self.results.get(tensor) or self._constants.get(tensor)

    def constants(self, source: DiffSession, tensor: str, *, side: str = "") -> NodeTable:
        """Compare the constants that the node of a tensor reads.

        Args:
            source: The session.
            tensor: The backend's tensor, or the reference's if only the reference has it.
            side: "reference" if only the reference has it.

        Raises:
            QdebugError: Values cannot be read.
        """
        if side == "reference":
            rows = constant_rows(source.reference.graph, (), _constants_of(source.reference, tensor), side=side)
            return self._number_rows(rows)
        results, unpaired_names = source.constants(tensor)
        self._constants |= {result.tensor: result for result in results}
        results_with_folds = [(result, source.folded_in(result.tensor)) for result in results]
        table = self._number_rows(constant_rows(source.backend.graph, results_with_folds, unpaired_names))
        table.put(*results)
        return table

    def _number_rows(self, rows: Sequence[PlannedRow]) -> NodeTable:
        """Return a table of constants whose row numbers are unique."""
        if self.table is not None:
            self._row_count = max(self._row_count, self.table.size)
        table = NodeTable(rows, first_number=max(self._row_count, 1))
        self._row_count = table.first_number + table.size
        return table

    def hand_over(self, *results: NodeResult) -> None:
        """Add results to the table, and post an event unless the last one is still on its way to the screen."""
        for result in results:
            self.results[result.tensor] = result
        if len(self.results) - self._frozen_result_count >= _RESULTS_TO_FREEZE:
            gc.freeze()
            self._frozen_result_count = len(self.results)
        table = self.table
        if table is None:
            return
        table.put(*results)
        if not table.is_announced:
            table.is_announced = True
            self._post(Computed(backend_at=self.number))


def _constants_of(recording: Recording, tensor: str) -> list[str]:
    """Return the recorded constants that a tensor's node reads."""
    graph = recording.graph
    node = graph.producer(tensor)
    input_names = dict.fromkeys(() if node is None else node.inputs)
    return [name for name in input_names if graph.is_constant(name) and recording.has(name)]
