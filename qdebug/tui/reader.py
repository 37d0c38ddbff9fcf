"""The one thread that owns the recordings: it opens them, computes results in order and answers questions in between.

The screen never touches a recording. It posts a request; the newest one for a tensor wins, older ones are
dropped unanswered, and an answer carries the number of its request so that a late one is ignored.
"""

from __future__ import annotations

import datetime as dt
import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from qdebug.errors import AlignmentError, QdebugError, RecordingError
from qdebug.tui.plan_rows import describe, named_rows
from qdebug.tui.row_results import Holding, KnownResults
from qdebug.tui.rows import Batch, NodeTable
from qdebug.tui.slab import Cancelled
from qdebug.tui.source import (
    AcceptRequest,
    Computed,
    DetailRequest,
    DiffSource,
    Event,
    ExportRequest,
    Failed,
    Finished,
    Job,
    Named,
    Noted,
    NoteRequest,
    Opened,
    Opening,
    Request,
    Said,
    Withdraw,
)
from qdebug.tui.turns import short_turns
from qdebug.view.text import safe_text

if TYPE_CHECKING:
    from qdebug.analysis.held import HeldNodes
    from qdebug.analysis.result import NodeResult
    from qdebug.tui.answers import AnswerCache

__all__ = ["Reader"]

_FOLLOW_SECONDS = 0.5
"""A recording that grows is looked at no more often."""

_PAINT_SECONDS = 0.3
"""How long the graphs wait at most until the names are on the screen: two threads at once would only delay them."""

_IN_A_BATCH = 500
"""Results that the screen may have to put into columns itself; more are put there by the reader, who has the time."""

_TOGETHER_SECONDS = 0.002
"""Pairs are compared without looking for questions in between for as long as this."""

_MANY = 2000
"""Rows from which a look for garbage among all that belongs to them takes longer than a screen should wait."""

_OUTDATED = "kept results are of another version of qdebug: computing again"


class _Comparison:
    """One backend on its way from closed to compared."""

    def __init__(self, at: int, opening: Opening) -> None:
        self.at = at
        self.opening = opening
        self.named = False
        self.source: DiffSource | None = None
        self.holding: Holding | None = None
        self.table: NodeTable | None = None
        self.results = KnownResults()
        self.left: Iterator[NodeResult] | None = None
        self.loose: list[NodeResult] = []
        self.batches: list[Batch] = []
        self.announced = False
        self.done = False
        self.begun, self.took = time.monotonic(), 0.0

    @property
    def held(self) -> HeldNodes | None:
        """What holds the results of this comparison; None if it keeps none."""
        return None if self.holding is None else self.holding.held

    def restart(self) -> None:
        """Forget what was compared: there is more to compare now."""
        self.source = self.holding = self.table = self.left = None
        self.results, self.loose, self.batches = KnownResults(), [], []
        self.announced = self.done = False
        self.begun = time.monotonic()


class Reader(threading.Thread):
    """Reads recordings on a thread of its own.

    Args:
        openings: Each opens a reference and a backend and aligns them, on this thread.
        post: Takes each event; called on this thread, must not block.
    """

    def __init__(self, openings: Sequence[Opening], post: Callable[[Event], object]) -> None:
        super().__init__(name="qdebug-reader", daemon=True)
        self._comparisons = [_Comparison(at, each) for at, each in enumerate(openings)]
        self._post = post
        self._wake = threading.Condition()
        self._detail: DetailRequest | None = None
        self._withdrawn = False
        self._jobs: deque[Job] = deque()
        self._preferred = 0
        self._stopped = False
        self._shown = False
        self._cache: AnswerCache | None = None

    def request(self, request: Request) -> None:
        """Ask for something; a question for a tensor takes the place of one that is still waiting."""
        with self._wake:
            if isinstance(request, DetailRequest):
                self._detail = request
            elif isinstance(request, Withdraw):
                self._detail, self._withdrawn = None, True
            else:
                self._jobs.append(request)
            self._wake.notify()

    def prefer(self, backend: int) -> None:
        """Compare this backend before the others."""
        with self._wake:
            self._preferred = backend
            self._wake.notify()

    def shown(self) -> None:
        """Go on with the graphs: the names are on the screen."""
        with self._wake:
            self._shown = True
            self._wake.notify()

    def stop(self) -> None:
        """End the thread soon: what it compares or looks for is given up at the next block of values."""
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def run(self) -> None:
        """Open, compute, then wait for requests."""
        try:
            with short_turns():
                self._work()
        except Cancelled:
            return
        except BaseException as error:  # noqa: BLE001  whatever ends this thread must be seen by the screen
            self._post(Failed(error=error, fatal=True))

    def _work(self) -> None:
        while not self._stopped:
            self._serve()
            comparison = self._next()
            if comparison is not None:
                self._advance(comparison)
                continue
            with self._wake:
                self._wake.wait_for(lambda: self._stopped or self._jobs or self._answerable(), self._patience())
            self._look_for_more()

    def _patience(self) -> float | None:
        """Give how long to sleep: for ever, unless a recording is followed; rarer if comparing takes long."""
        followed = [each for each in self._comparisons if each.opening.refresh is not None]
        return max(_FOLLOW_SECONDS, *(2 * each.took for each in followed)) if followed else None

    def _look_for_more(self) -> None:
        """Compare anew what a recorder has added to."""
        for comparison in self._comparisons:
            refresh = comparison.opening.refresh
            if refresh is not None and comparison.done and refresh():
                comparison.restart()
                self._cache = None

    def _next(self) -> _Comparison | None:
        preferred = self._comparisons[self._preferred]
        if not preferred.done:
            return preferred
        return next((each for each in self._comparisons if not each.done), None)

    def _advance(self, comparison: _Comparison) -> None:
        """Open a comparison, or compare one more pair of it."""
        try:
            self._step(comparison)
        except (QdebugError, OSError, ValueError) as error:
            comparison.done = True
            if comparison.opening.refresh is not None and isinstance(error, AlignmentError):
                self._post(Said(message=f"waiting for more of the recording: {safe_text(error, limit=120)}"))
            else:
                self._post(Failed(backend_at=comparison.at, error=error))

    def _step(self, comparison: _Comparison) -> None:
        source = comparison.source
        if source is None and comparison.opening.names is not None and not comparison.named:
            comparison.named = True
            self._post(Named(backend_at=comparison.at, table=named_rows(comparison.opening.names())))
            with self._wake:
                self._wake.wait_for(lambda: self._stopped or self._shown, _PAINT_SECONDS)
            return
        if source is None:
            self._post(self._open(comparison))
            return
        if self._compare_some(comparison):
            return
        comparison.done, comparison.took = True, time.monotonic() - comparison.begun
        changed = comparison.opening.changed
        if changed is not None and (why := changed()):
            raise RecordingError(f"While they were compared {why}.", hint="Wait until the file is written.")
        self._post(Finished(backend_at=comparison.at, result=source.result()))

    def _compare_some(self, comparison: _Comparison) -> bool:
        """Compare a pair, and others as long as that takes next to no time; tell whether there was one."""
        from qdebug.replay.checkpoint import asking  # long loaded where there is something to compare

        first, left = not comparison.results, comparison.left or iter(())
        found, end = False, time.monotonic() + _TOGETHER_SECONDS
        with asking(self._give_up):  # between two blocks of values, once the program ends
            result = _first_of(left) if first else next(left, None)
            while result is not None:
                found = True
                comparison.results.add(result)
                if first:
                    self._show_first(comparison, result)
                    break
                self._hand_over(comparison, [result])  # the next one may take long
                result = None if time.monotonic() > end else next(left, None)
        return found

    def _show_first(self, comparison: _Comparison, result: NodeResult) -> None:
        """Hand over the first result, and with it all others where all were kept from an earlier time."""
        held, table = comparison.held, comparison.table
        if held is not None and table is not None and len(held) == table.comparable:
            comparison.left = iter(())
            self._offer(comparison, table.batch_of(held))
            with self._wake:  # the verdict can wait until they are on the screen
                self._wake.wait_for(lambda: self._stopped, _PAINT_SECONDS)
        else:
            self._hand_over(comparison, [result])
        if comparison.holding is not None and comparison.holding.outdated:
            self._post(Said(message=_OUTDATED))

    def _give_up(self) -> None:
        if self._stopped:
            raise Cancelled

    def _open(self, comparison: _Comparison) -> Opened:
        """Align two recordings and make the rows of the list."""
        from qdebug.model.bulk import garbage_left_alone

        opening = comparison.opening
        with garbage_left_alone():
            source = comparison.source = opening.compare()
            opened = describe(source, comparison.at, writing=opening.writing is not None and opening.writing())
            opened = replace(opened, notes=self._notes(opening))
            opened.table.prepare()
            _set_aside(opened.table.size)
        comparison.table, comparison.left = opened.table, source.results()
        comparison.holding = source if isinstance(source, Holding) else None  # asked once: it takes 80 microseconds
        comparison.results = KnownResults(None if comparison.holding is None else comparison.holding.found)
        return opened

    def _notes(self, opening: Opening) -> Mapping[str, str]:
        try:
            return {} if opening.notes is None else opening.notes()
        except QdebugError as error:  # a file with a mistake is no reason to show nothing
            self._post(Said(message=f"notes are not shown: {safe_text(error, limit=200)}"))
            return {}

    def _hand_over(self, comparison: _Comparison, results: Sequence[NodeResult]) -> None:
        """Put results where the screen takes them from; one event at a time is under way, however many results."""
        table = comparison.table
        if table is None:
            return
        full: Sequence[NodeResult] = ()
        with self._wake:
            comparison.loose.extend(results)
            if len(comparison.loose) >= _IN_A_BATCH:
                full, comparison.loose = comparison.loose, []
        self._offer(comparison, table.batch(full, held=comparison.held) if full else None)

    def _offer(self, comparison: _Comparison, batch: Batch | None) -> None:
        """Tell the screen that there is something to take."""
        table = comparison.table
        if table is None:
            return
        with self._wake:
            if batch is not None:
                comparison.batches.append(batch)
            announced, comparison.announced = comparison.announced, True
        if not announced:
            self._post(Computed(backend_at=comparison.at, take=partial(self._take_fresh, comparison, table)))

    def _renew(self, comparison: _Comparison, nodes: Sequence[NodeResult]) -> None:
        """Hand over all results once more, a few at a time: they are made while they are looked at."""
        comparison.results = KnownResults(None if comparison.holding is None else comparison.holding.found)
        for start in range(0, len(nodes), _IN_A_BATCH):
            some = nodes[start : start + _IN_A_BATCH]
            for node in some:
                comparison.results.add(node)
            self._hand_over(comparison, some)

    def _take_fresh(self, comparison: _Comparison, table: NodeTable) -> Sequence[Batch]:
        with self._wake:
            batches, comparison.batches = comparison.batches, []
            loose, comparison.loose = comparison.loose, []
            comparison.announced = False
        return [*batches, table.batch(loose, held=comparison.held)] if loose else batches

    # Requests

    def _serve(self) -> None:
        with self._wake:
            jobs, self._jobs = self._jobs, deque()
            request = self._detail if self._answerable() else None  # what is not compared yet waits for its turn
            if request is not None:
                self._detail, self._withdrawn = None, False
        for job in jobs:
            self._do(job)
        if request is not None and not self._stopped:
            from qdebug.tui.answers import AnswerCache, answer  # not before there is something to answer

            comparison = self._comparisons[request.backend]
            self._cache = self._cache or AnswerCache()
            part = None
            if comparison.source is not None:
                for part in answer(
                    comparison.source,
                    request,
                    comparison.results,
                    cache=self._cache,
                    outdated=self._outdated,
                    changed=comparison.opening.changed,
                ):
                    self._post(part)
            with self._wake:  # what gave way to a job goes on after it
                if self._jobs and self._detail is None and not self._withdrawn and not (part and part.complete):
                    self._detail = request

    def _do(self, job: Job) -> None:
        comparison = self._comparisons[job.backend]
        if comparison.source is None:
            return
        try:
            if isinstance(job, ExportRequest):
                what = job.write(comparison.source, job.path)
                self._post(Said(message=f"wrote {safe_text(job.path, limit=60)}: {what}"))
            elif isinstance(job, AcceptRequest):
                self._accept(job)
            else:
                self._note(job)
        except (QdebugError, OSError, ValueError) as error:
            self._post(Said(message=safe_text(error, limit=200)))

    def _accept(self, job: AcceptRequest) -> None:
        """Write an acknowledgement, or take it back, and judge all comparisons anew by it."""
        from qdebug.workflow.limits_file import acknowledge, withdraw

        if job.reason:
            expires = None if job.expires is None else dt.date.fromisoformat(job.expires)
            limits = acknowledge(job.path, job.node, reason=job.reason, expires=expires)
        else:
            limits = withdraw(job.path, job.node)
        for comparison in self._comparisons:
            source = comparison.source
            if source is None:
                continue
            source.acknowledge(limits.acknowledged)
            if comparison.done:
                with suppress(QdebugError):  # nothing comparable: said before
                    result = source.result()
                    self._renew(comparison, result.nodes)
                    self._post(Finished(backend_at=comparison.at, result=result))
        what = "accepted" if job.reason else "no longer accepted:"
        self._post(Said(message=f"{what} {safe_text(job.node, limit=50)}, in {safe_text(job.path, limit=60)}"))

    def _note(self, job: NoteRequest) -> None:
        """Write a note, or take it out."""
        from qdebug.workflow.limits_file import write_note

        write_note(job.path, job.node, job.text)
        self._post(Noted(node=job.node, text=job.text))
        what = "note kept on" if job.text else "no note any more on"
        self._post(Said(message=f"{what} {safe_text(job.node, limit=50)}, in {safe_text(job.path, limit=60)}"))

    def _answerable(self) -> bool:
        request = self._detail
        return request is not None and request.tensor in self._comparisons[request.backend].results

    def _outdated(self) -> bool:
        with self._wake:
            return bool(self._stopped or self._withdrawn or self._jobs or self._detail is not None)


def _first_of(results: Iterator[NodeResult]) -> NodeResult | None:
    """Give the first result: with it come all that were kept from an earlier time."""
    from qdebug.model.bulk import garbage_left_alone

    with garbage_left_alone():
        return next(results, None)


def _set_aside(rows: int) -> None:
    """Let nobody look for garbage among what a large net has brought, which would hold up the screen each time.

    What the screen shows at the moment is set aside with it, and never given back: not for each look at a small
    recording that grows.
    """
    if rows > _MANY:
        gc.freeze()
