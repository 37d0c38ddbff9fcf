"""Starts workers that read data for the screen, and keeps their latest answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from textual import on, work
from textual.reactive import reactive
from textual.widget import Widget
from textual.worker import Worker, WorkerState, get_current_worker

from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import shown_sample
from qdebug.tui.reading.glimpse import VISIBLE_RADIUS
from qdebug.tui.reading.messages import (
    AnswerKey,
    BudgetWish,
    DetailReady,
    DetailRequest,
    Failed,
    Glimpsed,
    Job,
    Opening,
    ShownElement,
    TrialReady,
    TrialRequest,
    TrialWish,
    WindowRequest,
)
from qdebug.tui.reading.reader import Reader

__all__ = ["Loader"]

_MAX_ANSWERS = 64
_MAX_BYTES = 64 << 20
"""Maximum total memory of the statistics in all answers."""


class Loader(Widget):
    """An invisible widget that starts a worker for each new request and cancels the previous request of its kind.

    Events of the workers bubble to the screen, except answers to outdated requests.

    Args:
        openings: For each backend, how it and the reference are opened and aligned on a worker thread.
        load: Called on a worker thread once graphs are aligned.
    """

    DEFAULT_CSS = "Loader { display: none; }"

    detail: reactive[DetailRequest | None] = reactive(None, init=False, repaint=False)
    window: reactive[WindowRequest | None] = reactive(None, init=False, repaint=False)
    trial: reactive[TrialRequest | None] = reactive(None, init=False, repaint=False)

    def __init__(
        self,
        openings: Sequence[Opening],
        *,
        load: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()
        self.reader = Reader(openings, self.post_message, load=load)
        self._answers: dict[AnswerKey, DetailReady] = {}
        self._glimpse: Glimpsed | None = None
        self._latest_trial: TrialReady | None = None

    # Workers

    @work(thread=True, group="comparison", exit_on_error=False, description="")
    def compare(self) -> None:
        """Open and compare all backends."""
        self.reader.compare(get_current_worker())

    @work(thread=True, group="jobs", exit_on_error=False, description="")
    def submit(self, job: Job) -> None:
        """Write a file or read constants. Other requests do not cancel this."""
        self.reader.run_job(job, get_current_worker())

    @work(thread=True, exclusive=True, group="detail", exit_on_error=False, description="")
    def _read_detail(self, request: DetailRequest, known: DetailReady | None) -> None:
        self.reader.answer(request, known, get_current_worker())

    @work(thread=True, exclusive=True, group="window", exit_on_error=False, description="")
    def _read_window(self, request: WindowRequest | None) -> None:
        self.reader.read_window(request, get_current_worker())

    @work(thread=True, exclusive=True, group="trial", exit_on_error=False, description="")
    def _try_out(self, request: TrialRequest) -> None:
        self.reader.try_out(request, get_current_worker())

    def watch_detail(self, request: DetailRequest | None) -> None:
        """Read the facts for a new request; None stops reading."""
        if request is None:
            self.workers.cancel_group(self, "detail")
        else:
            self._read_detail(request, self._answers.get(request.key))

    def watch_window(self, request: WindowRequest | None) -> None:
        """Read the elements for a new request; None frees the elements of the last one."""
        self._read_window(request)

    def watch_trial(self, request: TrialRequest | None) -> None:
        """Replay for a new request; None stops replaying."""
        if request is None:
            self.workers.cancel_group(self, "trial")
        else:
            self._try_out(request)

    @on(Worker.StateChanged)
    def _report_failure(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.post_message(Failed(error=event.worker.error, fatal=True))

    # Requests

    def request_facts(
        self,
        navigator: Navigator,
        *,
        backend: int,
        wants_elements: bool,
        wants_explanation: bool,
        shown_element: ShownElement,
    ) -> None:
        """Request the missing facts of the row under the cursor.

        Args:
            navigator: The row, the sample and the step.
            backend: The comparison.
            wants_elements: Whether the view shows elements.
            wants_explanation: Whether the view shows which arithmetic reproduces the node.
            shown_element: The element and plane that the view shows.
        """
        key, table = _answer_key(navigator, backend), navigator.table
        if not table.size:
            self.cancel_requests()
            return
        planned, known_facts = table.rows[navigator.cursor], self._answers.get(key)
        _, row, sample, step = key
        tensor, side = planned.tensor or planned.reference_tensor, planned.side
        if not wants_elements:
            self.window = None
        elif not self._has_window(key, shown_element):
            self.window = WindowRequest(
                backend=backend,
                row=row,
                tensor=tensor,
                sample=sample,
                step=step,
                element=shown_element.element,
                wants_plane=shown_element.shows_plane,
                side=side,
            )
        wants_elements, wants_explanation = wants_elements and not side, wants_explanation and not side
        if not (side or table.results[navigator.cursor]) or _is_answered(
            known_facts, wants_elements=wants_elements, wants_explanation=wants_explanation
        ):
            self.detail = None
        else:
            self.detail = DetailRequest(
                backend=backend,
                row=row,
                tensor=tensor,
                sample=sample,
                step=step,
                wants_elements=wants_elements,
                wants_explanation=wants_explanation,
                side=side,
            )

    def cancel_requests(self) -> None:
        """Cancel the requests for facts and elements, since the view shows neither."""
        self.window = self.detail = None

    def request_trial(self, backend: int, row: int, tensor: str, wish: TrialWish | None) -> None:
        """Request a replay; None cancels the last one. The last answer for the same row is kept until the next arrives.

        Args:
            backend: The comparison.
            row: The row in the list.
            tensor: Its backend tensor.
            wish: The requested result.
        """
        if wish is None:
            self.trial = self._latest_trial = None
            return
        if isinstance(wish, BudgetWish):
            row, tensor = -1, ""
        previous = self.trial
        if previous is None or (previous.backend, previous.row, type(previous.wish)) != (backend, row, type(wish)):
            self._latest_trial = None
        self.trial = TrialRequest(backend=backend, row=row, tensor=tensor, wish=wish)

    def forget(self) -> None:
        """Drop all answers, because a recording was reopened."""
        self._answers.clear()
        self._glimpse = self._latest_trial = self.detail = self.window = self.trial = None

    # Answers

    @on(DetailReady)
    def _take_detail(self, event: DetailReady) -> None:
        if event.request is not self.detail:
            event.stop()
            return
        self._answers.pop(event.request.key, None)
        self._answers[event.request.key] = event
        while len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
        nbytes = 0
        for key, answer in reversed(self._answers.items()):
            nbytes += 0 if answer.statistics is None else answer.statistics.nbytes
            if nbytes > _MAX_BYTES and answer is not event:
                self._answers[key] = replace(answer, statistics=None)

    @on(Glimpsed)
    def _take_glimpse(self, event: Glimpsed) -> None:
        if event.request is self.window:
            self._glimpse = event
        else:
            event.stop()

    @on(TrialReady)
    def _take_trial(self, event: TrialReady) -> None:
        if event.request is self.trial:
            self._latest_trial = event
        else:
            event.stop()

    def detail_of(self, navigator: Navigator, *, backend: int) -> DetailReady | None:
        """Return the facts known about the row under the cursor; None if there are none."""
        return self._answers.get(_answer_key(navigator, backend))

    def glimpse(self, navigator: Navigator, *, backend: int) -> Glimpsed | None:
        """Return the last window of elements that was read, if it is of the row under the cursor; else None."""
        return self._glimpse_of(_answer_key(navigator, backend))

    def latest_trial(self, backend: int, row: int) -> TrialReady | None:
        """Return the last answer to a replay request for a row or for all rows; None if there is none."""
        request = self.trial
        is_for_row = request is not None and (request.backend, request.row) in {(backend, row), (backend, -1)}
        return self._latest_trial if is_for_row else None

    def _glimpse_of(self, key: AnswerKey) -> Glimpsed | None:
        glimpse = self._glimpse
        return glimpse if glimpse is not None and self.window is not None and glimpse.request.key == key else None

    def _has_window(self, key: AnswerKey, shown_element: ShownElement) -> bool:
        """Return whether all elements that the view shows were read, or cannot be read."""
        glimpse = self._glimpse_of(key)
        if glimpse is None or glimpse.request is not self.window:
            return False
        slab = glimpse.part
        if slab is None:
            return True
        element = shown_element.element if shown_element.element is not None else (0,) * len(slab.shape)
        has_plane = slab.has_plane(element) or (glimpse.plane is not None and glimpse.plane.plane_index == element[:-2])
        return slab.covers_surroundings(element, VISIBLE_RADIUS) and (has_plane or not shown_element.shows_plane)


def _answer_key(navigator: Navigator, backend: int) -> AnswerKey:
    """Return the key of an answer. With all samples selected, `shown_sample` chooses one."""
    row, sample, table = navigator.cursor, navigator.sample, navigator.table
    is_uncompared = not table.size or table.rows[row].missing is not None  # then the worst sample is unknown
    sample_shown = sample if is_uncompared else shown_sample(table.results[row], sample, table.worst_sample)
    return backend, navigator.number, sample_shown, navigator.step


def _is_answered(known: DetailReady | None, *, wants_elements: bool, wants_explanation: bool) -> bool:
    if known is None or not known.is_complete:
        return False
    has_elements = known.statistics is not None or bool(known.problem and known.request.wants_elements)
    return (has_elements or not wants_elements) and (known.explanations is not None or not wants_explanation)
