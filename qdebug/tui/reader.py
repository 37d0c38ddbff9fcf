"""The one thread that owns both recordings: it opens them, computes results in order and answers questions in between.

The screen never touches a recording. It posts a request; the newest one wins, older ones are
dropped unanswered, and an answer carries the number of its request so that a late one is ignored.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from qdebug.analysis.alignment import Side
from qdebug.analysis.result import NodeResult
from qdebug.errors import QdebugError
from qdebug.model import Graph, TensorInfo
from qdebug.numerics.stats import WorstElement
from qdebug.tui.rows import NodeTable, PlannedRow
from qdebug.tui.source import (
    Computed,
    DetailReady,
    DetailRequest,
    DiffSource,
    Event,
    Failed,
    Finished,
    Opened,
)
from qdebug.tui.values import ValueFacts, value_facts
from qdebug.view.detail import NodeDetail

__all__ = ["Reader", "planned_rows"]

_WORST = 20


class Reader(threading.Thread):
    """Reads two recordings on a thread of its own.

    Args:
        open_source: Opens both recordings and aligns them; called on this thread.
        post: Takes each event; called on this thread, must not block.
    """

    def __init__(self, open_source: Callable[[], DiffSource], post: Callable[[Event], object]) -> None:
        super().__init__(name="qdebug-reader", daemon=True)
        self._open_source = open_source
        self._post = post
        self._wake = threading.Condition()
        self._request: DetailRequest | None = None
        self._stopped = False
        self._results: dict[str, NodeResult] = {}
        self._fresh: deque[NodeResult] = deque()
        self._announced = False

    def request(self, request: DetailRequest) -> None:
        """Ask for a detail; it takes the place of one that is still waiting."""
        with self._wake:
            self._request = request
            self._wake.notify()

    def stop(self) -> None:
        """End the thread as soon as the tensor at hand is done."""
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def run(self) -> None:
        """Open, compute, then wait for requests."""
        try:
            source = self._open_source()
            self._post(_opened(source))
            self._compute(source)
            while not self._stopped:
                self._answer_waiting(source)
                with self._wake:
                    self._wake.wait_for(lambda: self._stopped or self._answerable())
        except BaseException as error:  # noqa: BLE001  whatever ends this thread must be seen by the screen
            self._post(Failed(error=error))

    def _compute(self, source: DiffSource) -> None:
        for result in source.results():
            self._results[result.tensor] = result
            self._hand_over(result)
            if self._stopped:
                return
            self._answer_waiting(source)
        self._post(Finished(result=source.result()))

    def _hand_over(self, result: NodeResult) -> None:
        """Put a result where the screen takes it from; one event at a time is under way, however many results."""
        with self._wake:
            self._fresh.append(result)
            announced, self._announced = self._announced, True
        if not announced:
            self._post(Computed(take=self._take_fresh))

    def _take_fresh(self) -> Sequence[NodeResult]:
        with self._wake:
            fresh = tuple(self._fresh)
            self._fresh.clear()
            self._announced = False
        return fresh

    def _answer_waiting(self, source: DiffSource) -> None:
        with self._wake:
            request = self._request
            if request is None or self._stopped or request.tensor not in self._results:
                return  # a row that is not compared yet is answered when it is its turn
            self._request = None
        self._answer(source, request)

    def _answer(self, source: DiffSource, request: DetailRequest) -> None:
        """Answer in parts, the quick ones first; stop if a newer request waits."""
        result = self._results[request.tensor]
        sample = _shown_sample(result, request.sample)
        values: ValueFacts | None = None
        worst: tuple[WorstElement, ...] = ()
        problem = ""

        def reply(*, complete: bool) -> None:
            detail = _node_detail(source, result, self._results, worst, request.sample)
            self._post(
                DetailReady(
                    request=request,
                    detail=detail,
                    values=values,
                    values_sample=sample,
                    complete=complete,
                    problem=problem,
                )
            )

        try:
            pair = source.values(request.tensor, sample=sample)
            values = value_facts(pair.reference, pair.backend)
            del pair  # two whole tensors
            if self._outdated():
                return
            if result.metrics is not None:
                reply(complete=False)
                worst = tuple(source.worst(request.tensor, k=_WORST, sample=sample))
        except (QdebugError, ValueError, TypeError) as error:
            problem = f"values of sample {sample} cannot be shown: {error}"
        reply(complete=True)

    def _answerable(self) -> bool:
        return self._request is not None and self._request.tensor in self._results

    def _outdated(self) -> bool:
        with self._wake:
            return self._stopped or self._request is not None


def planned_rows(source: DiffSource) -> list[PlannedRow]:
    """List what is compared and what is not, in the backend's order; what only the reference has comes last.

    Args:
        source: An open session; no values are read.
    """
    reference, backend = source.reference.graph, source.backend.graph
    placed: list[tuple[int, PlannedRow]] = []
    for entry in source.entries():
        known = backend.tensors.get(entry.tensor)
        row = PlannedRow(
            node=entry.node,
            op=entry.op,
            tensor=entry.tensor,
            reference_tensor=entry.reference_tensor,
            match=str(entry.match),
            shape=entry.shape,
            dtype=_dtype(known),
            quant=entry.quant,
        )
        placed.append((_position(backend, entry.tensor), row))
    for left_out in source.alignment.unmatched:
        ours = left_out.side is Side.BACKEND
        graph = backend if ours else reference
        if graph.is_constant(left_out.tensor):
            continue
        known = graph.tensors.get(left_out.tensor)
        producer = graph.producer(left_out.tensor)
        row = PlannedRow(
            node=left_out.tensor if producer is None else producer.name,
            op="Input" if producer is None else producer.op,
            tensor=left_out.tensor if ours else "",
            reference_tensor="" if ours else left_out.tensor,
            shape=None if known is None else known.shape,
            dtype=_dtype(known),
            quant=None if known is None else known.quant,
            missing=f"{left_out.kind}, {left_out.side} only: {left_out.reason}",
        )
        placed.append((_position(backend, left_out.tensor) if ours else len(backend.nodes), row))
    placed.sort(key=lambda pair: pair[0])
    return [row for _, row in placed]


def _opened(source: DiffSource) -> Opened:
    return Opened(
        reference=source.reference.info,
        backend=source.backend.info,
        table=NodeTable(planned_rows(source)),
        samples=min(source.reference.samples, source.backend.samples),
        limits=source.limits.to_dict(),
    )


def _position(graph: Graph, tensor: str) -> int:
    position = graph.position(tensor)
    return -1 if position is None else position


def _dtype(info: TensorInfo | None) -> str | None:
    if info is None:
        return None
    return info.quant.dtype if info.quant is not None and info.dtype is None else info.dtype


def _shown_sample(result: NodeResult, asked: int | None) -> int:
    """Give the sample whose values are shown: the one asked for, else the worst one."""
    if asked is not None:
        return asked
    worst = None if result.metrics is None else result.metrics.worst_sample
    return 0 if worst is None else worst


def _node_detail(
    source: DiffSource,
    result: NodeResult,
    results: Mapping[str, NodeResult],
    worst: tuple[WorstElement, ...],
    sample: int | None,
) -> NodeDetail:
    producer = source.backend.graph.producer(result.tensor)
    names = () if producer is None else tuple(name for name in producer.inputs if name)
    return NodeDetail(
        result=result,
        reference=source.reference.graph.tensors.get(result.reference_tensor),
        backend=source.backend.graph.tensors.get(result.tensor),
        inputs=tuple((name, results.get(name)) for name in names),
        worst=worst,
        sample=sample,
    )
