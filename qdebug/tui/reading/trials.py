"""Answers that require a replay: the effect of a scale or of edits, and the error budget of the outputs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.budget import ErrorBudget
from qdebug.errors import QdebugError
from qdebug.numerics.calibration import parse_calibrator
from qdebug.numerics.scheme import SCHEMES, QuantScheme
from qdebug.present.text import safe_text
from qdebug.repair.edit_bench import EditBench, EditEffect
from qdebug.scales.choose import DEFAULT_CALIBRATORS, ScaleChoice, choose_range, with_codes_of
from qdebug.scales.trial import TrialBench
from qdebug.tui.elements.summing import Cancelled
from qdebug.tui.reading.answers import check_unchanged
from qdebug.tui.reading.facts import EditFacts, TrialFacts
from qdebug.tui.reading.messages import BudgetWish, EditWish, ScaleWish, TrialReady, TrialRequest, worst_first_key

if TYPE_CHECKING:
    from qdebug.compare.budget import BudgetPowers, OutputBudget
    from qdebug.session import DiffSession

__all__ = ["BROKEN_REPLAY", "Trials", "problem_of"]

BROKEN_REPLAY = (QdebugError, ValueError, TypeError, MemoryError, LookupError, ArithmeticError)
"""Exceptions that an unforeseen network may cause in a replay.

They lead to an empty answer, not to the program's end.
"""

_INTERVAL_SECONDS = 0.1
"""Seconds after which the progress of a replay is reported."""
_FIRST_SAMPLES = 2
"""Number of samples or steps in the first budget that is shown, before the budget of all is known."""


class Trials:
    """Answers requests for trials on a worker thread, and caches the latest results.

    Args:
        post: Receives each part of an answer.
    """

    def __init__(self, post: Callable[[TrialReady], object]) -> None:
        self._post = post
        self._key: tuple[DiffSession, str] | None = None
        self._facts: TrialFacts | None = None
        self._ready: TrialReady | None = None
        self._is_cancelled: Callable[[], bool] = lambda: False
        self._reported_at = 0.0
        self._bench: tuple[DiffSession, EditBench] | None = None
        self._effect: tuple[EditWish, EditEffect] | None = None
        self._unedited_effects: dict[int | None, EditEffect] = {}
        self._gains: tuple[tuple[DiffSession, EditWish, str], dict[str, float]] | None = None
        self._budgets: dict[DiffSession, dict[str, tuple[int, OutputBudget]]] = {}
        self._replays: dict[tuple[DiffSession, str], dict[Hashable, BudgetPowers]] = {}

    def answer(
        self,
        source: DiffSession,
        request: TrialRequest,
        is_cancelled: Callable[[], bool],
        *,
        describe_change: Callable[[], str] | None = None,
    ) -> None:
        """Answer a request step by step, fastest parts first.

        Args:
            source: The comparison.
            request: The tensor, and the requested result.
            is_cancelled: Returns whether the request was cancelled.
            describe_change: Returns which file was replaced since it was opened, "" for none; None if files are allowed
                to change.

        Raises:
            Cancelled: The request was cancelled.
        """
        ready = self._ready = TrialReady(request=request)
        self._is_cancelled, self._reported_at = is_cancelled, 0.0
        try:
            check_unchanged(describe_change)
            if isinstance(request.wish, BudgetWish):
                self._answer_budget(source, ready)
            elif isinstance(request.wish, EditWish):
                self._answer_edits(source, ready, request.wish)
            else:
                self._answer_scale(source, ready, request.wish)
        except BROKEN_REPLAY as error:
            self._post(replace(self._ready, activity="", problem=problem_of(error)))

    def _report(self, ready: TrialReady) -> TrialReady:
        """Post a part of an answer. `_report_progress` posts it again with the progress of the replay."""
        self._ready = ready
        self._post(ready)
        return ready

    def _report_progress(self, done: int, total: int, *_: object) -> None:
        """Report the progress of a replay at intervals. Cancel the replay if there is a newer request."""
        if self._is_cancelled():
            raise Cancelled
        if self._ready is not None and time.monotonic() - self._reported_at > _INTERVAL_SECONDS:
            self._reported_at = time.monotonic()
            self._post(replace(self._ready, replay_progress=(done, total)))

    def _answer_scale(self, source: DiffSession, ready: TrialReady, wish: ScaleWish) -> None:
        facts = self._facts_of(source, ready.request)
        if wish.quant is None:
            return
        (error,) = facts.bench.values.errors([wish.quant])
        ready = self._report(replace(ready, facts=facts, error=error))
        if wish.wants_replay:
            self._post(replace(ready, replay=facts.bench.replay(wish.quant, self._report_progress)))

    def _answer_edits(self, source: DiffSession, ready: TrialReady, wish: EditWish) -> None:
        if self._bench is None or self._bench[0] is not source:
            self._bench, self._effect = (source, EditBench(source, self._report_progress)), None
            self._unedited_effects = {}
        bench, tensor = self._bench[1], ready.request.tensor
        unit = bench.unit_of(tensor) if tensor else None
        facts = EditFacts(marked_edits=bench.edits_named(wish.edits))
        names = [edit.name for edit in facts.marked_edits]
        if unit is not None:
            facts = replace(facts, node=unit.node.name, edits=bench.edits_of(unit))
        places = [place for place in source.backend.places() if wish.sample in {None, place[0]}]
        key = (source, wish, facts.node)
        gains = self._gains[1] if self._gains is not None and self._gains[0] == key else {}
        all_edits = {edit.name: edit for edit in (*facts.edits, *facts.marked_edits)}
        untried_edits = [edit for name, edit in all_edits.items() if name not in gains] if places else []
        gains_text = "each edit, for its gain" if untried_edits else ""
        ready = self._report(replace(ready, edits=facts, activity="the whole net without edits"))
        facts = replace(facts, fidelity_db=bench.fidelity_db())
        if places and abs(bench.fidelity_db()) < math.inf and wish.sample not in self._unedited_effects:
            # Before any gain, which must not include the deviation of the replay itself.
            for unedited_effect in bench.effects((), places):
                if unedited_effect.samples < len(places):
                    activity = f"without edits {_sample_text(unedited_effect.samples, places)}"
                    ready = self._report(replace(ready, edits=facts, activity=activity))
            self._unedited_effects[wish.sample] = unedited_effect
        facts = replace(facts, unedited_effect=self._unedited_effects.get(wish.sample))
        if self._effect is not None and self._effect[0] == wish:
            facts = replace(facts, effect=self._effect[1])
        elif wish.edits:
            ready = self._report(replace(ready, edits=facts, activity=_sample_text(0, places)))
            for effect in bench.effects(names, places):
                facts = replace(facts, effect=effect)
                ready = self._report(
                    replace(ready, edits=facts, activity=_sample_text(effect.samples, places) or gains_text)
                )
                self._effect = (wish, effect) if effect.samples == len(places) else None
        if untried_edits:
            ready = self._report(replace(ready, edits=replace(facts, gains=gains), activity=gains_text))
            for name, gain in bench.gains(names, untried_edits, places, wish.output):
                gains = {**gains, name: gain}
                # Stored after each gain, so that a cancelled search continues where it stopped.
                self._gains = key, gains
                ready = self._report(replace(ready, edits=replace(facts, gains=gains)))
        self._report(replace(ready, edits=replace(facts, gains=gains), activity=""))

    def _answer_budget(self, source: DiffSession, ready: TrialReady) -> None:
        """Compute the budget of the worst samples, starting with the worst output, then that of all samples."""
        budgets, entries = self._budgets.setdefault(source, {}), {entry.tensor: entry for entry in source.entries()}
        errors = {node.tensor: node.metrics.sqnr_db for node in source.compared if node.metrics is not None}
        names = [name for name in source.backend.graph.outputs if name in errors]
        names.sort(key=lambda name: worst_first_key(errors[name]))
        samples = {
            node.tensor: {sample_result.sample: sample_result.sqnr_db for sample_result in node.samples}
            for node in source.compared
        }

        def worst_places(name: str) -> list[tuple[int, int]]:
            """Return the samples and steps in which an output was recorded, worst sample first."""
            recorded = recorded_places(source.reference, source.backend, entries[name])
            return sorted(recorded, key=lambda place: worst_first_key(samples[name].get(place[0])))

        places = {name: worst_places(name) for name in names}

        def report(activity: str) -> None:
            budget = ErrorBudget(
                reference=source.reference.info,
                backend=source.backend.info,
                outputs=tuple(budgets[name][1] for name in names if name in budgets),
            )
            self._report(replace(ready, budget=budget, activity=activity))

        for max_places in (_FIRST_SAMPLES, None):
            for name in names:
                chosen_places = places[name][:max_places]
                if name not in budgets or budgets[name][0] < len(chosen_places):
                    output = "" if len(names) == 1 else f"output {safe_text(name, limit=40)}, "
                    scope_text = f"the worst {len(chosen_places)} of {_count_text(places[name])} first"
                    report(
                        output
                        + (scope_text if len(chosen_places) < len(places[name]) else f"all {_count_text(places[name])}")
                    )
                    replays = self._replays.setdefault((source, name), {})
                    budget = source.budget(
                        places=chosen_places, only=[name], progress=self._report_progress, kept=replays
                    )
                    budgets |= {
                        output_budget.output: (len(chosen_places), output_budget) for output_budget in budget.outputs
                    }
                    if max_places is None:  # complete: its replays are not needed any more
                        del self._replays[source, name]
        report("")

    def _facts_of(self, source: DiffSession, request: TrialRequest) -> TrialFacts:
        """Return the facts about a tensor, and post each part as it is computed.

        Raises:
            UsageError: Nothing can be tried on it.
        """
        key, facts = (source, request.tensor), self._facts
        if facts is None or self._key != key:
            self._facts = None
            bench = TrialBench.of_tensor(
                source.backend, request.tensor, reference=source.reference, pairs=source.alignment.pairs
            )
            facts = TrialFacts(bench=bench, values=bench.values.name, histogram=bench.values.histogram)
            self._key, self._facts = key, facts
        if not facts.choices:
            self._post(TrialReady(request=request, facts=facts))
            (now_error,) = facts.bench.values.errors([facts.current_quant])
            facts = self._facts = replace(facts, current_error=now_error, choices=_choose_scales(facts))
        self._post(TrialReady(request=request, facts=facts))
        return facts


def problem_of(error: BaseException) -> str:
    """Return the message of an error; never empty."""
    if isinstance(error, QdebugError):
        return error.message
    kind = type(error).__name__
    return f"{kind}: {error}" if isinstance(error, LookupError) else str(error) or kind


def _sample_text(done: int, places: Sequence[tuple[int, int]]) -> str:
    """Return which sample is being replayed."""
    return f"sample {places[done][0]}, {done + 1} of {len(places)}" if done < len(places) else ""


def _count_text(places: Sequence[tuple[int, int]]) -> str:
    """Return the number of samples or steps as text."""
    steps = len({sample for sample, _ in places}) < len(places)
    return f"{len(places)} {'steps' if steps else 'sample' if len(places) == 1 else 'samples'}"


def _choose_scales(facts: TrialFacts) -> Mapping[str, tuple[ScaleChoice, ...]]:
    calibrators = [parse_calibrator(name) for name in DEFAULT_CALIBRATORS]
    choices = {}
    for kind in SCHEMES:
        scheme = with_codes_of(facts.current_quant, QuantScheme(kind=kind))
        choices[kind] = tuple(choose_range(calibrator, facts.histogram, scheme) for calibrator in calibrators)
    return MappingProxyType(choices)
