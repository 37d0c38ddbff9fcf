"""Work on the recordings for worker threads: open and compare them, answer requests, replay, write files.

Each public method runs on its own thread, started by a Textual worker, and ends early once the worker is cancelled. All
except `read_window` take turns, see `qdebug.tui.reading.turns`.
"""

from __future__ import annotations

import datetime as dt
import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from qdebug.errors import AlignmentError, QdebugError, RecordingError
from qdebug.present.text import safe_text
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.comparing import ComparisonInProgress
from qdebug.tui.reading.glimpse import Glimpser, OpenPairs
from qdebug.tui.reading.messages import (
    AcceptRequest,
    AlignmentProgress,
    ConstantsReady,
    ConstantsRequest,
    DetailReady,
    DetailRequest,
    Event,
    ExportRequest,
    Failed,
    Finished,
    Job,
    NoteRequest,
    NoteSaved,
    Opening,
    StatusMessage,
    TrialRequest,
    WindowRequest,
)
from qdebug.tui.reading.turns import Turns, Urgency

if TYPE_CHECKING:
    from textual.worker import Worker

    from qdebug.compare.result.result import NodeResult, RunComparison
    from qdebug.session import DiffSession
    from qdebug.tui.reading.answers import Answers
    from qdebug.tui.reading.trials import Trials

__all__ = ["Reader"]

_FOLLOW_SECONDS = 0.5
"""Minimum interval between two checks of a growing recording."""
_PAINT_SECONDS = 0.3
"""Maximum time that reading graphs is delayed until the names are on the screen, since two busy threads would be
slower."""
_STAGE_SECONDS = 0.2
"""Minimum interval between two progress messages of the alignment."""
_TURN_SECONDS = 0.002
"""Seconds for which pairs are compared within one turn."""

_OUTDATED_MESSAGE = Provisional("kept results are from a different version of qdebug; computing again", Until.RESULTS)


class Reader:
    """Reads recordings on worker threads.

    Args:
        openings: For each backend, how it and the reference are opened and aligned.
        post: Receives each event; called on worker threads, must not block.
        load: Called on a worker thread once graphs are aligned, to import modules that the screen will soon need.

    Attributes:
        names_shown: Set once the names are on the screen.
        preferred_backend: The backend that is compared before the others.
    """

    def __init__(
        self,
        openings: Sequence[Opening],
        post: Callable[[Event], object],
        *,
        load: Callable[[], object] = lambda: None,
    ) -> None:
        self.names_shown = threading.Event()
        self.preferred_backend = 0
        self._post = post
        self._comparisons = [
            ComparisonInProgress(at, opening, post=post, load=load) for at, opening in enumerate(openings)
        ]
        self._turns, self._pairs = Turns(), OpenPairs()
        self._glimpser = Glimpser(self._source_of, post, self._pairs)
        self._answers: Answers | None = None
        self._trials: Trials | None = None
        self._stage_reported_at = time.monotonic()

    # Comparing

    def compare(self, worker: Worker[Any]) -> None:
        """Open and compare all backends. If a recording is followed, continue until the program ends."""
        for opened_comparison in self._comparisons:
            if opened_comparison.opening.add_listener is not None:
                opened_comparison.opening.add_listener(partial(self._report_stage, opened_comparison, worker))
        with suppress(Cancelled):
            while not worker.is_cancelled:
                comparison = self._next_comparison()
                if comparison is not None:
                    self._advance(comparison, worker)
                elif not self._refresh_seconds:
                    return
                else:
                    worker.cancelled_event.wait(self._refresh_seconds)
                    with self._turns.turn(Urgency.COMPARISON, worker):
                        self._refresh()

    @property
    def _refresh_seconds(self) -> float:
        """How long to wait for new data of a followed recording: longer if comparing is slow; 0 if none is followed."""
        followed_comparisons = [
            comparison for comparison in self._comparisons if comparison.opening.refresh is not None
        ]
        return (
            max(_FOLLOW_SECONDS, *(2 * comparison.seconds for comparison in followed_comparisons))
            if followed_comparisons
            else 0
        )

    def _refresh(self) -> None:
        """Restart comparisons of recordings that have grown."""
        for comparison in self._comparisons:
            opening = comparison.opening
            if opening.refresh is None or not comparison.is_done:
                continue
            has_grown = opening.refresh()
            news = "" if opening.take_news is None else opening.take_news()
            if has_grown:
                comparison.restart(reason=news)
                self._answers = self._trials = None
            if news:
                self._post(StatusMessage(message=news))

    def _next_comparison(self) -> ComparisonInProgress | None:
        preferred = self._comparisons[self.preferred_backend]
        return next((comparison for comparison in (preferred, *self._comparisons) if not comparison.is_done), None)

    def _advance(self, comparison: ComparisonInProgress, worker: Worker[Any]) -> None:
        """Open a comparison, or compare more of its pairs."""
        try:
            names = comparison.opening.read_names
            if comparison.source is None and names is not None and not comparison.has_names:
                comparison.show_names(names)
                self.names_shown.wait(_PAINT_SECONDS)
                return
            with self._turns.turn(Urgency.COMPARISON, worker):
                self._open_or_compare(comparison, worker)
        except (QdebugError, OSError, ValueError) as error:
            comparison.is_done = True
            is_too_early = isinstance(error, AlignmentError)
            # The recorder may still add what is missing, so a followed recording is not given up.
            if comparison.opening.refresh is not None and (is_too_early or comparison.was_opened):
                expected_text = "more of the recording" if is_too_early else "another recording"
                prefix = f"{comparison.restart_reason}; " if comparison.restart_reason else ""
                self._post(StatusMessage(message=f"{prefix}waiting for {expected_text}: {safe_text(error, limit=200)}"))
            else:
                self._post(Failed(backend_at=comparison.number, error=error))

    def _open_or_compare(self, comparison: ComparisonInProgress, worker: Worker[Any]) -> None:
        source = comparison.source
        if source is None:
            comparison.open(self._load_notes)
            return
        if self._compare_pairs(comparison, worker):
            return
        comparison.is_done, comparison.seconds = True, time.monotonic() - comparison.begun_at
        describe_change = comparison.opening.describe_change
        if describe_change is not None and (why := describe_change()):
            raise RecordingError(f"During the comparison, {why}.", hint="Wait until the file is written.")
        is_writing = comparison.opening.is_writing is not None and comparison.opening.is_writing()
        # Contributors take long to compute, and those of a growing run would soon be outdated.
        result = source.result(contributors=not is_writing)
        self._post(Finished(backend_at=comparison.number, result=result))
        if not is_writing and result.diagnosis:
            self._find_remedies(comparison, source, result)

    def _find_remedies(self, comparison: ComparisonInProgress, source: DiffSession, result: RunComparison) -> None:
        """Try edits for the nodes in the diagnosis."""
        from qdebug.numerics.checkpoint import checkpoint
        from qdebug.repair.remedies import with_remedies

        _load_replays()
        completed_result = with_remedies(source, result, on_progress=lambda *_: checkpoint())
        if completed_result is not result:
            self._post(Finished(backend_at=comparison.number, result=completed_result))

    def _report_stage(self, comparison: ComparisonInProgress, worker: Worker[Any], stage: str) -> None:
        """Report the progress of the alignment at intervals. Raise Cancelled once the program is ending."""
        if worker.is_cancelled:
            raise Cancelled
        if time.monotonic() - self._stage_reported_at > _STAGE_SECONDS:
            self._stage_reported_at = time.monotonic()
            self._post(AlignmentProgress(backend_at=comparison.number, stage=stage))

    def _compare_pairs(self, comparison: ComparisonInProgress, worker: Worker[Any]) -> bool:
        """Compare one pair, or several if they are fast. Return whether there was one."""
        is_first, deadline = not comparison.results, time.monotonic() + _TURN_SECONDS
        result = comparison.next_result()
        if result is None:
            return False
        if is_first:
            self._show_first(comparison, result, worker)
            return True
        comparison.hand_over(result)
        while time.monotonic() < deadline and (result := comparison.next_result()) is not None:
            comparison.hand_over(result)  # not all together: the next pair may take long
        return True

    def _show_first(self, comparison: ComparisonInProgress, result: NodeResult, worker: Worker[Any]) -> None:
        """Hand over the first result, or all results at once if the session has cached them."""
        source = comparison.source
        if source is not None and comparison.is_all_compared:
            comparison.pending = None
            comparison.hand_over(*source.compared)
            worker.cancelled_event.wait(_PAINT_SECONDS)  # let the screen paint before the verdict is computed
        else:
            comparison.hand_over(result)
        if source is not None and source.outdated:
            self._post(StatusMessage(message=_OUTDATED_MESSAGE))

    def _load_notes(self, opening: Opening) -> Mapping[str, str]:
        try:
            remark = "" if opening.make_remark is None else opening.make_remark()
            if remark:
                self._post(StatusMessage(message=safe_text(remark, limit=200)))
            return {} if opening.load_notes is None else opening.load_notes()
        except QdebugError as error:  # the comparison is shown even if the file is invalid
            self._post(StatusMessage(message=f"notes are not shown: {safe_text(error, limit=200)}"))
            return {}

    # Answering

    def answer(self, request: DetailRequest, known: DetailReady | None, worker: Worker[Any]) -> None:
        """Read the facts about one tensor, step by step.

        Args:
            request: The tensor and the requested facts.
            known: Facts that need not be read again; None without any.
            worker: The requesting worker.
        """
        from qdebug.tui.reading.answers import Answers, answer_one_side  # imported on first use, to start sooner

        comparison = self._comparisons[request.backend]
        with suppress(Cancelled), self._turns.turn(Urgency.ANSWER, worker) as is_cancelled:
            source, describe_change = comparison.source, comparison.opening.describe_change
            if source is None:  # it is being reopened; the screen repeats the request afterwards
                return
            if request.side:
                self._post(answer_one_side(source, request, describe_change=describe_change))
                return
            result = comparison.result_of(request.tensor)
            self._answers = self._answers or Answers(self._pairs)
            if result is not None:
                for part in self._answers.answer(
                    source, request, result, is_cancelled, known=known, describe_change=describe_change
                ):
                    self._post(part)

    def try_out(self, request: TrialRequest, worker: Worker[Any]) -> None:
        """Replay the network for a request, step by step."""
        comparison = self._comparisons[request.backend]
        with suppress(Cancelled), self._turns.turn(Urgency.TRIAL, worker) as is_cancelled:
            self._trials = self._trials or _load_replays()(self._post)
            if comparison.source is not None:
                self._trials.answer(
                    comparison.source, request, is_cancelled, describe_change=comparison.opening.describe_change
                )

    def read_window(self, request: WindowRequest | None, worker: Worker[Any]) -> None:
        """Read the elements around a given one, independent of other computations.

        None frees the last request's elements.
        """
        self._glimpser.read_window(request, worker)

    def _source_of(self, request: WindowRequest) -> DiffSession | None:
        """Return the open comparison that a request is for.

        Raises:
            RecordingError: A file was replaced since it was opened.
        """
        comparison = self._comparisons[request.backend]
        if comparison.source is None:
            return None
        from qdebug.tui.reading.answers import check_unchanged

        check_unchanged(comparison.opening.describe_change)
        return comparison.source

    # Writing

    def run_job(self, job: Job, worker: Worker[Any]) -> None:
        """Run a job to its end, even if the program is exiting. Only a replay is cancelled then."""
        try:
            if isinstance(job, NoteRequest):
                self._save_note(job)
                return
            with self._turns.turn(Urgency.JOB, worker, must_run=True):
                self._do_job(job)
        except Cancelled:
            return
        except (QdebugError, OSError, ValueError) as error:
            self._post(StatusMessage(message=safe_text(error, limit=200)))

    def _do_job(self, job: ExportRequest | AcceptRequest | ConstantsRequest) -> None:
        comparison = self._comparisons[job.backend]
        source = comparison.source
        if source is None:
            self._post(StatusMessage(message="nothing was written: the recording is being opened again; try once more"))
        elif isinstance(job, ExportRequest):
            summary = job.write(source, job.path)
            self._post(StatusMessage(message=f"wrote {safe_text(job.path, limit=60)}: {summary}"))
        elif isinstance(job, AcceptRequest):
            self._accept(job)
        else:
            self._post(ConstantsReady(request=job, table=comparison.constants(source, job.tensor, side=job.side)))

    def _accept(self, job: AcceptRequest) -> None:
        """Write or remove an acknowledgement, and judge all comparisons again."""
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
            if comparison.is_done:
                with suppress(QdebugError):  # nothing is comparable, as already reported
                    result = source.result()
                    comparison.hand_over(*result.nodes)
                    self._post(Finished(backend_at=comparison.number, result=result))
        file, node = safe_text(job.path, limit=60), safe_text(job.node, limit=50)
        message = f"no longer acknowledged: {node}, in {file}"
        if job.reason:
            message = f"acknowledged {node} in {file}; diff and tui use it with --limits {file}"
        self._post(StatusMessage(message=message))

    def _save_note(self, job: NoteRequest) -> None:
        """Write or remove a note, without waiting for a turn."""
        from qdebug.limits.limits_file import write_note

        write_note(job.path, job.node, job.text)
        self._post(NoteSaved(node=job.node, text=job.text))
        action = "note kept on" if job.text else "no note any more on"
        node, file = safe_text(job.node, limit=50), safe_text(job.path, limit=60)
        self._post(StatusMessage(message=f"{action} {node}, in {file}"))


@cache
def _load_replays() -> type[Trials]:
    """Import the modules of replays and of their reports, on the worker that needs them first."""
    from qdebug.tui.reading.trials import Trials

    for name in ("budget", "repair", "scales"):
        import_module(f"qdebug.present.reports.{name}")
    # Loaded modules stay in use, and garbage collections that scan them would delay keys. The application unfreezes.
    gc.freeze()
    return Trials
