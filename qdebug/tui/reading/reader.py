"""The one thread that owns the recordings: it opens them, computes results in order and answers in between."""

from __future__ import annotations

import datetime as dt
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from qdebug.errors import AlignmentError, QdebugError, RecordingError
from qdebug.present.text import safe_text
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.comparing import ComparisonInProgress
from qdebug.tui.reading.glimpse import Glimpser, OpenPairs
from qdebug.tui.reading.messages import (
    AcceptRequest,
    AlignmentProgress,
    BudgetWish,
    ConstantsReady,
    ConstantsRequest,
    DetailRequest,
    Event,
    ExportRequest,
    Failed,
    Finished,
    Job,
    LookAway,
    LookRequest,
    NoteKept,
    NoteRequest,
    Opening,
    Request,
    StatusMessage,
    TrialAway,
    TrialRequest,
    Withdraw,
)

if TYPE_CHECKING:
    from qdebug.compare.result.result import NodeResult, RunComparison
    from qdebug.session import DiffSession
    from qdebug.tui.reading.answers import Answers
    from qdebug.tui.reading.trials import Trials

__all__ = ["Reader", "short_turns"]

_SECONDS = 0.0002


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns of a fraction of a millisecond inside the block; turns that are shorter stay so."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


_FOLLOW_SECONDS = 0.5
"""A recording that grows is looked at no more often."""

_PAINT_SECONDS = 0.3
"""How long the graphs wait at most until the names are on the screen: two threads at once would only delay them."""

_LOAD_SECONDS = 5.0
"""What replays a network is loaded after this, be there a verdict or not."""

_STAGE_SECONDS = 0.2
"""How often it is told at most how far the alignment is."""

_TOGETHER_SECONDS = 0.002
"""Pairs are compared without looking for questions in between for as long as this."""

_OUTDATED = Provisional("kept results are of another version of qdebug: computing again", Until.RESULTS)


class _BrokenError(Exception):
    """A request failed between two blocks; the comparison did not."""


class Reader(threading.Thread):
    """Reads recordings on a thread of its own.

    Args:
        openings: Each opens a reference and a backend and aligns them, on this thread.
        post: Takes each event; called on this thread, must not block.
        load: Called on this thread once graphs are aligned: loads what the screen will soon need.
        load_later: Called on this thread once there is a verdict, or none for a while: loads the rest, the first time.
    """

    def __init__(
        self,
        openings: Sequence[Opening],
        post: Callable[[Event], object],
        *,
        load: Callable[[], object] = lambda: None,
        load_later: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(name="qdebug-reader", daemon=True)
        self._post, self._load_later = post, load_later
        self._wake = threading.Condition()
        self._comparisons = [
            ComparisonInProgress(at, each, lock=self._wake, post=post, load=load) for at, each in enumerate(openings)
        ]
        self._detail: DetailRequest | None = None
        self._withdrawn = False
        self._trial: TrialRequest | None = None
        self._trial_withdrawn = False
        self._trials: Trials | None = None
        self._jobs: deque[Job] = deque()
        self._preferred = 0
        self._stopped = False
        self._shown = False
        self._answers: Answers | None = None
        self._staged = time.monotonic()
        for comparison in self._comparisons:
            if comparison.opening.hear is not None:
                comparison.opening.hear(partial(self._hear, comparison))
        self._serving: Callable[[], bool] | None = None
        """Tells whether what is answered at the moment is asked for no longer; None while nothing is."""
        self._working = False
        self._pairs = OpenPairs()
        self._glimpser = Glimpser(self._to_glimpse, post, self._pairs)

    def request(self, request: Request) -> None:
        """Ask for something; a question for a tensor takes the place of one that is still waiting."""
        if isinstance(request, LookRequest | LookAway):
            self._glimpser.ask(request if isinstance(request, LookRequest) else None)
            return
        with self._wake:
            if isinstance(request, DetailRequest):
                self._detail = request
            elif isinstance(request, Withdraw):
                self._detail, self._withdrawn = None, True
            elif isinstance(request, TrialRequest | TrialAway):
                self._trial = request if isinstance(request, TrialRequest) else None
                self._trial_withdrawn = self._trial is None
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
        """Stop the thread at the next block of values."""
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._glimpser.stop()

    def run(self) -> None:
        """Open, compute, then wait for requests."""
        try:
            with short_turns():
                with suppress(Cancelled):
                    self._work()
                self._do_jobs()  # the last thing that was asked for before the end is no less wanted
        except _BrokenError as error:
            self._post(Failed(error=error.__cause__ or error, fatal=True))
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
                self._wake.wait_for(self._wanted, self._patience())
            self._look_for_more()

    def _wanted(self) -> bool:
        return bool(self._stopped or self._jobs or self._answerable() or self._triable())

    def _patience(self) -> float | None:
        """Return how long to sleep: for ever, unless a recording is followed; rarer if comparing takes long."""
        followed = [each for each in self._comparisons if each.opening.refresh is not None]
        return max(_FOLLOW_SECONDS, *(2 * each.took for each in followed)) if followed else None

    def _look_for_more(self) -> None:
        """Restart comparisons of recordings that have grown."""
        for comparison in self._comparisons:
            opening = comparison.opening
            if opening.refresh is None or not comparison.done:
                continue
            grown = opening.refresh()
            said = "" if opening.news is None else opening.news()
            if grown:
                comparison.restart(why=said)
                self._answers = self._trials = None
            if said:
                self._post(StatusMessage(message=said))

    def _next(self) -> ComparisonInProgress | None:
        preferred = self._comparisons[self._preferred]
        if not preferred.done:
            return preferred
        return next((each for each in self._comparisons if not each.done), None)

    def _advance(self, comparison: ComparisonInProgress) -> None:
        """Open a comparison, or compare one more pair of it."""
        try:
            self._step(comparison)
        except (QdebugError, OSError, ValueError) as error:
            comparison.done = comparison.told = True
            unripe = isinstance(error, AlignmentError)
            if comparison.opening.refresh is not None and (unripe or comparison.opened):
                what = "more of the recording" if unripe else "another recording"  # who writes over a file may go on
                why = f"{comparison.why}; " if comparison.why else ""
                self._post(StatusMessage(message=f"{why}waiting for {what}: {safe_text(error, limit=200)}"))
            else:
                self._post(Failed(backend_at=comparison.at, error=error))

    def _step(self, comparison: ComparisonInProgress) -> None:
        source = comparison.source
        if source is None and comparison.opening.names is not None and not comparison.named:
            comparison.name(comparison.opening.names)
            with self._wake:
                self._wake.wait_for(lambda: self._stopped or self._shown, _PAINT_SECONDS)
            return
        if source is None:
            comparison.open(self._notes)
            return
        if time.monotonic() - comparison.begun > _LOAD_SECONDS:  # a verdict that is far away does not wait for it
            self._load_later()
        if self._compare_some(comparison):
            return
        comparison.done, comparison.took = True, time.monotonic() - comparison.begun
        changed = comparison.opening.changed
        if changed is not None and (why := changed()):
            raise RecordingError(f"While they were compared {why}.", hint="Wait until the file is written.")
        from qdebug.numerics.checkpoint import asking  # long loaded

        writing = comparison.opening.writing is not None and comparison.opening.writing()
        with asking(self._between_blocks):
            result = source.result(contributors=not writing)  # of a run that goes on, another one would be due at once
        self._post(Finished(backend_at=comparison.at, result=result))
        comparison.told = True
        if self._next() is None:
            self._load_later()
        if not writing and result.diagnosis and not self._stopped:
            self._look_for_remedies(comparison, source, result)

    def _look_for_remedies(self, comparison: ComparisonInProgress, source: DiffSession, result: RunComparison) -> None:
        """Try edits of the nodes in the diagnosis, and serve requests in between."""
        from qdebug.numerics.checkpoint import asking, checkpoint
        from qdebug.repair.remedies import with_remedies

        with asking(self._between_blocks):
            found = with_remedies(source, result, on_progress=lambda *_: checkpoint())
        if found is not result:
            self._post(Finished(backend_at=comparison.at, result=found))

    def _hear(self, comparison: ComparisonInProgress, stage: str) -> None:
        """Report the progress of opening a comparison at intervals; raise Cancelled once the program ends."""
        if self._stopped:
            raise Cancelled
        if time.monotonic() - self._staged > _STAGE_SECONDS:
            self._staged = time.monotonic()
            self._post(AlignmentProgress(backend_at=comparison.at, stage=stage))

    def _compare_some(self, comparison: ComparisonInProgress) -> bool:
        """Compare a pair, and others as long as that takes next to no time; tell whether there was one."""
        from qdebug.numerics.checkpoint import asking  # long loaded where there is something to compare

        first, end = not comparison.results, time.monotonic() + _TOGETHER_SECONDS
        with asking(self._between_blocks):
            result = comparison.next_result()
            if result is None:
                return False
            if first:
                self._show_first(comparison, result)
                return True
            comparison.hand_over(result)
            while time.monotonic() < end and (result := comparison.next_result()) is not None:
                comparison.hand_over(result)  # at once: the next one may take long
        return True

    def _show_first(self, comparison: ComparisonInProgress, result: NodeResult) -> None:
        """Hand over the first result, and with it all others where all were kept from an earlier time."""
        source = comparison.source
        if source is not None and comparison.all_compared:
            comparison.left = None
            comparison.hand_over(*source.compared)
            with self._wake:  # the verdict can wait until they are on the screen
                self._wake.wait_for(lambda: self._stopped, _PAINT_SECONDS)
        else:
            comparison.hand_over(result)
        if source is not None and source.outdated:
            self._post(StatusMessage(message=_OUTDATED))

    def _between_blocks(self) -> None:
        """Checkpoint of a comparison: raise Cancelled if the program ends, else serve queued jobs and requests."""
        if self._stopped:
            raise Cancelled
        if self._serving is not None:
            if self._serving():
                raise Cancelled
        elif not self._working and (self._jobs or self._detail is not None or self._trial is not None):
            try:
                self._serve()
            except Cancelled:
                raise
            except Exception as error:
                raise _BrokenError from error

    def _notes(self, opening: Opening) -> Mapping[str, str]:
        try:
            said = "" if opening.remark is None else opening.remark()
            if said:
                self._post(StatusMessage(message=safe_text(said, limit=200)))
            return {} if opening.notes is None else opening.notes()
        except QdebugError as error:  # a file with a mistake is no reason to show nothing
            self._post(StatusMessage(message=f"notes are not shown: {safe_text(error, limit=200)}"))
            return {}

    # Requests

    def _serve(self) -> None:
        self._do_jobs()
        self._answer_newest()
        self._try_newest()

    def _do_jobs(self) -> None:
        """Do all there is to do, one after the other: none gives way to anything."""
        self._working = True
        try:
            while self._jobs:
                with self._wake:
                    job = self._jobs.popleft()
                self._do(job)
        finally:
            self._working = False

    def _answer_newest(self) -> None:
        """Answer the latest request, unless its tensor is not compared yet."""
        with self._wake:
            request = self._detail if self._answerable() else None
            if request is not None:
                self._detail, self._withdrawn = None, False
        if request is None or self._stopped:
            return
        from qdebug.numerics.checkpoint import asking  # not before there is something to answer

        self._serving = self._outdated
        try:
            with asking(self._between_blocks):
                self._answer(request)
        finally:
            self._serving = None

    def _try_newest(self) -> None:
        """Serve the latest request for a replay; resume it later if it gives way to another request."""
        with self._wake:
            request = self._trial if self._triable() else None
            if request is not None:
                self._trial, self._trial_withdrawn = None, False
        comparison = None if request is None else self._comparisons[request.backend]
        if request is None or comparison is None or comparison.source is None or self._stopped:
            return
        from qdebug.numerics.checkpoint import asking  # not before there is something to try
        from qdebug.tui.reading.trials import Trials

        self._trials = self._trials or Trials(self._post)
        self._serving = self._trial_outdated
        try:
            with asking(self._between_blocks):
                self._trials.answer(
                    comparison.source, request, self._trial_outdated, changed=comparison.opening.changed
                )
        except Cancelled:
            with self._wake:
                if self._trial is None and not self._trial_withdrawn:
                    self._trial = request
        finally:
            self._serving = None

    def _answer(self, request: DetailRequest) -> None:
        """Answer one question, and take it up again later if it gave way to a job."""
        from qdebug.tui.reading.answers import Answers, answer_alone  # not before there is something to answer

        comparison, part = self._comparisons[request.backend], None
        source, changed = comparison.source, comparison.opening.changed
        self._answers = self._answers or Answers(self._pairs, self._outdated)
        if source is not None and request.side:
            part = answer_alone(source, request, changed=changed)
            self._post(part)
        elif source is not None and (result := comparison.result_of(request.tensor)) is not None:
            for part in self._answers.answer(source, request, result, changed=changed):
                self._post(part)
        with self._wake:  # what gave way to a job goes on after it
            if self._jobs and self._detail is None and not self._withdrawn and not (part and part.complete):
                self._detail = request

    def _do(self, job: Job) -> None:
        comparison = self._comparisons[job.backend]
        if comparison.source is None:
            self._post(StatusMessage(message="nothing is written: the recording is being opened again; try once more"))
            return
        try:
            if isinstance(job, ExportRequest):
                what = self._write(job, comparison.source)
                self._post(StatusMessage(message=f"wrote {safe_text(job.path, limit=60)}: {what}"))
            elif isinstance(job, AcceptRequest):
                self._accept(job)
            elif isinstance(job, ConstantsRequest):
                table = comparison.constants(comparison.source, job.tensor, side=job.side)
                self._post(ConstantsReady(request=job, table=table))
            else:
                self._note(job)
        except Cancelled:  # the program ends, and does not wait for a replay
            return
        except (QdebugError, OSError, ValueError) as error:
            self._post(StatusMessage(message=safe_text(error, limit=200)))

    def _write(self, job: ExportRequest, source: DiffSession) -> str:
        """Write a file; replays for it check at intervals whether the program ends."""
        from qdebug.numerics.checkpoint import asking  # not before something is written

        def ask() -> None:
            if self._stopped:
                raise Cancelled

        with asking(ask):
            return job.write(source, job.path)

    def _accept(self, job: AcceptRequest) -> None:
        """Write an acknowledgement, or take it back, and judge all comparisons anew by it."""
        from qdebug.limits.limits_file import acknowledge, withdraw

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
                    comparison.hand_over(*result.nodes)
                    self._post(Finished(backend_at=comparison.at, result=result))
        file = safe_text(job.path, limit=60)
        said = f"no longer acknowledged: {safe_text(job.node, limit=50)}, in {file}"
        if job.reason:
            said = f"acknowledged {safe_text(job.node, limit=50)} in {file}; diff and tui use it with --limits {file}"
        self._post(StatusMessage(message=said))

    def _note(self, job: NoteRequest) -> None:
        """Write a note, or take it out."""
        from qdebug.limits.limits_file import write_note

        write_note(job.path, job.node, job.text)
        self._post(NoteKept(node=job.node, text=job.text))
        what = "note kept on" if job.text else "no note any more on"
        self._post(StatusMessage(message=f"{what} {safe_text(job.node, limit=50)}, in {safe_text(job.path, limit=60)}"))

    def _answerable(self) -> bool:
        request = self._detail
        if request is None:
            return False
        comparison = self._comparisons[request.backend]
        known = comparison.source is not None
        return known if request.side else known and comparison.result_of(request.tensor) is not None

    def _triable(self) -> bool:
        if self._trial is None:
            return False
        comparison = self._comparisons[self._trial.backend]
        waits = isinstance(self._trial.wish, BudgetWish) and not comparison.told  # the verdict does not wait for it
        return comparison.source is not None and not waits

    def _trial_outdated(self) -> bool:
        with self._wake:
            newer = self._trial_withdrawn or self._trial is not None
            return bool(self._stopped or newer or self._jobs or self._answerable())

    def _to_glimpse(self, request: LookRequest) -> DiffSession | None:
        """Return the source of a window; called on the other thread.

        Raises:
            RecordingError: A file is no longer what was opened.
        """
        comparison = self._comparisons[request.backend]
        if comparison.source is None:
            return None
        from qdebug.tui.reading.answers import check_unchanged

        check_unchanged(comparison.opening.changed)
        return comparison.source

    def _outdated(self) -> bool:
        with self._wake:
            return bool(self._stopped or self._withdrawn or self._jobs or self._detail is not None)
