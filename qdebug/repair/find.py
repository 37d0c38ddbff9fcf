"""Find the fewest changes that restore a backend's outputs, proved on held-out samples: `find_repair`.

The error budget ranks the nodes. Their edits are tried by replay, and the edit with the largest gain for its cost is
taken, until the goal is reached. Then edits are removed one at a time as long as the goal is met. The remaining set is
minimal in the sense of delta debugging: without any single one of its edits, the goal is missed (A. Zeller and
R. Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Trans. Software Eng. 28, 2002).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from qdebug.arithmetic.arithmetic_file import complete_from_preset, find_arithmetic
from qdebug.arithmetic.presets import DEFAULT_PRESET
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.explaining.explain import find_backend_variants
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.errors import KernelError, NotRecordedError, QdebugError, UsageError
from qdebug.model import RunInfo
from qdebug.model.json_object import JsonObject
from qdebug.repair.edited_replay import Change, EditedReplay
from qdebug.repair.edits import Edit, EditCatalog
from qdebug.repair.forms import find_nameless_results, quantizer_forms
from qdebug.repair.model import score_model_run, write_repaired_model
from qdebug.repair.replays import replays_of
from qdebug.repair.search import Clock, EditCost, EditTrials, Score, Search, choose_half
from qdebug.replay import Arithmetic
from qdebug.replay.variant import parse_variant
from qdebug.running.output_metric import Metric, find_metric
from qdebug.session import DiffSession

__all__ = ["Repair", "RepairOptions", "find_repair", "measure_fidelity", "prepare_search"]


_MAX_NAMED = 5
"""Number of nodes that are named if no edit helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """Options of `qdebug repair`.

    Args:
        metric: The metric, see `find_metric`.
        within: The goal: a minimum in dB, or a maximum distance below the reference's own value. None for the metric's
            default.
        minutes: Time limit, after which the best edits so far are returned.
        arithmetic: Arithmetic of nodes on codes in replays. None for the backend's, if known or explained.
        cost: Costs of edits, and the allowed ones.
        start: Names of the edits to begin with, each a kind and a node, for example from an earlier repair.
    """

    metric: str = "output-sqnr"
    within: float | None = None
    minutes: float = 10.0
    arithmetic: str | None = None
    cost: EditCost = field(default_factory=EditCost)
    start: Sequence[str] = ()


class GoalMetric(TypedDict):
    """A metric, its unit, and the minimum value of the goal."""

    name: str
    unit: str
    goal: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repair(JsonObject):
    """The result of `qdebug repair`.

    Args:
        reference: The reference run.
        backend: The backend run.
        metric: The metric.
        goal: The minimum value of the metric.
        edits: The edits, in the order in which they were taken.
        search: The metric on the samples of the search.
        held_out: The metric on the held-out samples, or None if there are none.
        reached: Whether the goal is reached on the samples of the search.
        minimal: Whether the goal is missed if any one of the edits is removed.
        replays: Number of edit sets tried.
        faithful: SQNR in dB of a replay of the first sample without edits, compared with its recorded outputs, see
            `faithful`.
        arithmetic: Name of the arithmetic of the replay.
        replayed: The metric of a replay without edits on the samples of the search. None if it equals the recorded one,
            or is unknown.
        proof: The metric of the changed model, actually run, on all samples. None if it was not run.
        failed: Why the changed model was not written or did not run, or "" if it ran or was not requested.
        stopped: Why the search ended early, or "" if it was completed.
        notes: Remarks.
    """

    json_format = "repair"
    json_keys = (
        "reference backend metric=goal_metric reached refuted minimal edits search held_out proof replays "
        "replay_sqnr_db=faithful replayed arithmetic stopped|null hand_over notes"
    )

    reference: RunInfo
    backend: RunInfo
    metric: Metric
    goal: float
    edits: tuple[Edit, ...]
    search: Score
    held_out: Score | None
    reached: bool
    minimal: bool
    replays: int
    faithful: float
    arithmetic: str = ""
    replayed: float | None = None
    proof: Score | None = None
    failed: str = ""
    stopped: str = ""
    notes: tuple[str, ...] = ()

    @property
    def goal_metric(self) -> GoalMetric:
        """The metric with its goal, as in the JSON."""
        return {"name": self.metric.name, "unit": self.metric.unit, "goal": self.goal}

    @property
    def exit_code(self) -> int:
        """Exit code: 0 if the goal is reached, by the held-out samples and the changed model too, or 1 if it is not."""
        return 0 if self.reached and not self.refuted else 1

    @property
    def refuted(self) -> tuple[str, ...]:
        """Contradicting evidence if the samples of the search reach the goal.

        "held out" and "model run" mean that these scores miss it. "replay" means that the replay is farther from the
        backend's outputs than the goal allows, and no changed model was run.
        """
        missed_names = {name for name, score in self.proofs.items() if not score.after >= self.goal_of(score)}
        if self.failed:
            missed_names.add("model run")
        if self.edits and self.proof is None and self.metric.unit == "dB" and self.faithful < self.goal:
            missed_names.add("replay")
        return tuple(sorted(missed_names)) if self.reached else ()

    @property
    def proofs(self) -> Mapping[str, Score]:
        """Independent scores: on the held-out samples, and of the changed model's outputs."""
        scores = {"held out": self.held_out, "model run": self.proof}
        return {name: score for name, score in scores.items() if score is not None}

    def goal_of(self, score: Score) -> float:
        """Return the goal value for given samples, which may depend on the reference's own value there."""
        if self.metric.is_minimum or score.reference == self.search.reference:
            return self.goal
        return self.goal + (score.reference - self.search.reference)

    @property
    def hand_over(self) -> Mapping[str, Any]:
        """The edits in the form of quantizer settings, with names of the reference's nodes and tensors."""
        return quantizer_forms(self.edits)


def find_repair(
    session: DiffSession,
    options: RepairOptions,
    *,
    labels: np.ndarray | None = None,
    model: Path | None = None,
    out: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Repair:
    """Find the fewest changes that restore the outputs.

    Half of the samples are held out: edits are searched on the others, and measured on both. Ctrl-C ends the search
    with the best edits so far.

    Args:
        session: The two runs.
        options: The options.
        labels: One label per sample, for metrics that need them.
        model: The backend's quantized model, to be changed as well, or None.
        out: Path of the changed model, which the backend then runs on the recorded inputs.
        progress: Called with the elapsed time, the limit, and the metric.

    Raises:
        UsageError: The network is stateful, has no compared output, or the labels or initial edits do not fit.
        KernelError: The network cannot be replayed.
    """
    search = prepare_search(session, options, labels=labels, progress=progress)
    trials, places = search.trials, list(session.backend.places())
    held_out = [place for place in places if place not in search.places]
    is_minimal = False
    if not options.minutes:  # without time, only the initial edits are measured
        search.clock.stopped = "it had no time"
    try:
        search.run()
        is_minimal = search.is_reached() and search.prune()
    except KeyboardInterrupt:
        search.clock.stopped = "interrupted"
    model_score, failure_text, notes = None, "", list[str]()
    if model is not None and out is not None and search.edits:
        outcome_text = "was not written"
        try:
            write_repaired_model(model, search.catalog, search.edits, out)
            outcome_text = "was written, but did not run"
            changed_quants = search.catalog.change(search.edits).quants
            model_score = score_model_run(session, trials, out, places, changed_quants)
        except QdebugError as error:  # the edits are still a result
            failure_text = f"the model with these edits {outcome_text}: {error.message} {error.hint or ''}".rstrip()
            notes.append(failure_text)
    notes += _search_notes(search, options, has_one_sample=not held_out)
    notes += _whole_network_note(search, places)
    fidelity_db = measure_fidelity(session, search.arithmetic, places[0])
    return Repair(
        reference=session.reference.info,
        backend=session.backend.info,
        metric=trials.metric,
        goal=search.goal,
        edits=tuple(search.edits),
        search=trials.score_edits(search.edits, search.places),
        held_out=trials.score_edits(search.edits, held_out) if held_out else None,
        reached=search.is_reached(),
        minimal=is_minimal,
        replays=trials.count,
        faithful=fidelity_db,
        arithmetic=search.arithmetic.name,
        replayed=None if math.isnan(fidelity_db) or fidelity_db == math.inf else _replayed_metric(search),
        proof=model_score,
        failed=failure_text,
        stopped=search.clock.stopped,
        notes=tuple(notes),
    )


def _choose_arithmetic(session: DiffSession, name: str | None, place: tuple[int, int]) -> Arithmetic:
    """Return the arithmetic of replays: the requested one, or the default if it reproduces all nodes on codes.

    Otherwise the backend is explained, and whichever of the default and the explained arithmetic replays the recorded
    outputs more closely is returned.
    """
    usual_preset, run = find_arithmetic(name or DEFAULT_PRESET), session.backend
    table = run.graph.tensors
    nodes_on_codes = [
        node for node in run.graph.nodes if any(table[name_].quant for name_ in node.outputs if name_ in table)
    ]
    usual_replay = EditedReplay(run, usual_preset.arithmetic)
    other_nodes = [node for node in nodes_on_codes if name is None and not usual_replay.reproduces(node, place)]
    if not other_nodes:
        return usual_preset.arithmetic
    usual_fidelity = measure_fidelity(session, usual_preset.arithmetic, place)
    outputs = {output for node in other_nodes for output in node.outputs}
    explained_variants = {} if usual_fidelity == math.inf else find_backend_variants(run, tensors=outputs)
    if not explained_variants:
        return usual_preset.arithmetic
    variants = complete_from_preset(
        usual_preset, {key: parse_variant(text) for key, text in explained_variants.items()}
    )
    explained_arithmetic = Arithmetic(variants=variants, name="as explained")
    return (
        explained_arithmetic
        if math.isnan(usual_fidelity) or measure_fidelity(session, explained_arithmetic, place) > usual_fidelity
        else usual_preset.arithmetic
    )


def _whole_network_note(search: Search, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield a note on the effect of per-channel weights in all nodes, which most quantizers offer as one option."""
    edits_of_nodes = (search.catalog.edits_of(name, ("per-channel",)) for name in search.catalog.units)
    edits = [edit for node_edits in edits_of_nodes for edit in node_edits if search.cost.allows(edit)]
    if len(edits) > 1 and search.edits and not search.clock.stopped:
        metric, value = search.trials.metric, search.trials.score(edits, places)
        size = sum(edit.size for edit in edits)
        value_text = f"{metric.name} {value:.2f} {metric.unit}".rstrip()
        effect_text = f"{value_text} over all samples, for {size} bytes"
        yield f"per-channel weights in all {len(edits)} nodes instead give {effect_text}"


def _search_notes(search: Search, options: RepairOptions, *, has_one_sample: bool) -> Iterator[str]:
    """Yield notes on a finished search. `has_one_sample` means that no sample was left to hold out."""
    unchangeable_nodes = sorted(search.unchangeable_shares, key=lambda name: -search.unchangeable_shares[name])[
        :_MAX_NAMED
    ]
    if unchangeable_nodes and not search.is_reached():
        nodes_text = ", ".join(
            f"{name!r} ({search.unchangeable_shares[name]:.1%} of an output's error)" for name in unchangeable_nodes
        )
        yield f"no allowed edit changes {nodes_text}"
    dropped_edits = [name for name in options.start if name not in {edit.name for edit in search.edits}]
    if dropped_edits:
        yield f"initial edits that the search dropped: {', '.join(map(repr, dropped_edits))}"
    nameless_results = (
        find_nameless_results(search.edits) if (search.session.reference.info.model or "").endswith(".onnx") else []
    )
    if nameless_results:
        nodes = "1 node in float has" if len(nameless_results) == 1 else f"{len(nameless_results)} nodes in float have"
        yield (
            f"{nodes} no name in the reference's model, so ONNX Runtime's quantizer and NNCF cannot "
            "exclude it by name: "
            f"{', '.join(map(repr, nameless_results[:_MAX_NAMED]))}"
        )
    if has_one_sample:
        yield "there is only one sample, so no sample is left to prove the edits"


def _replayed_metric(search: Search) -> float | None:
    try:
        return search.trials.replayed_metric(search.places)
    except (KernelError, NotRecordedError):  # a later sample may lack values that the first one has
        return None


def prepare_search(
    session: DiffSession,
    options: RepairOptions,
    *,
    labels: np.ndarray | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Search:
    """Return a search that has not started yet.

    Args:
        session: The two runs.
        options: The options.
        labels: One label per sample, for metrics that need them.
        progress: Called with the elapsed time, the limit, and the metric.

    Raises:
        UsageError: The network is stateful, has no compared output, or the labels or initial edits do not fit.
    """
    if session.backend.steps > 1:
        raise UsageError("Stateful networks cannot be repaired.", hint="Record a run of one step.")
    places = list(session.backend.places())
    if labels is not None and len(labels) != len(places):
        raise UsageError(
            f"There are {len(labels)} labels, but {len(places)} samples.", hint="Give one label for each sample."
        )
    label_of = None if labels is None else dict(zip(places, labels, strict=True))
    metric, clock = find_metric(options.metric), Clock(time.monotonic() + 60 * options.minutes)
    search_places = choose_half(session, places)
    graphs = GraphCheck(session.reference, session.backend, session.alignment.pairs)
    catalog = EditCatalog(graphs, session.entries(), search_places)
    arithmetic = _choose_arithmetic(session, options.arithmetic, places[0])
    trials = EditTrials(session, replays_of(session, catalog, arithmetic), metric, label_of)
    if not trials.reference_outputs(places[0]):
        raise UsageError("No output of the network was compared.", hint="Find out why: qdebug diff REF BACKEND.")
    goal_distance = metric.default_goal if options.within is None else options.within
    goal = goal_distance if metric.is_minimum else trials.reference_metric(search_places) - goal_distance

    def show_trial(title: str, value: float) -> None:
        if progress is not None:
            total = int(60 * options.minutes)
            progress(min(total - int(clock.end_time - time.monotonic()), total), total, f"{value:.4g} {title}")

    initial_edits = [catalog.edit_named(name) for name in options.start]
    refused_edits = [edit.name for edit in initial_edits if not options.cost.allows(edit)]
    if refused_edits or len(initial_edits) > (options.cost.max_edits or len(initial_edits)):
        raise UsageError(
            f"The search would begin with {refused_edits[0]!r}, which is not allowed."
            if refused_edits
            else (
                f"The search would begin with {len(initial_edits)} edits, "
                f"but only {options.cost.max_edits} are allowed."
            ),
            hint="Allow more edits, or begin without them.",
        )
    return Search(
        edits=initial_edits,
        session=session,
        catalog=catalog,
        trials=trials,
        cost=options.cost,
        places=search_places,
        goal=goal,
        clock=clock,
        on_trial=show_trial,
        arithmetic=arithmetic,
    )


def measure_fidelity(
    session: DiffSession,
    arithmetic: Arithmetic,
    place: tuple[int, int],
    on_progress: Callable[[int, int], object] | None = None,
) -> float:
    """Return the SQNR in dB of a replay of the whole run without edits, compared with the recorded outputs.

    Args:
        session: The two runs.
        arithmetic: The arithmetic of nodes on codes.
        place: Sample and step.
        on_progress: Progress callback, see `EditedReplay`.

    Returns:
        Infinity if equal; NaN if a node cannot be replayed or no output was recorded; minus infinity if they differ but
            have no SQNR because the recorded outputs are zero or one is not finite.
    """
    run = session.backend
    names = [name for name in run.graph.outputs if run.has(name, *place)]
    try:
        (replayed_outputs,) = EditedReplay(run, arithmetic, on_progress).outputs(Change(), [place], everything=True)
    except (KernelError, NotRecordedError):
        return math.nan
    if not names:
        return math.nan
    pairs = [
        tuple(np.asarray(values, np.float64) for values in (real_values(run, name, place), replayed_outputs[name]))
        for name in names
    ]
    if all(
        np.array_equal(recorded_values, replayed_values, equal_nan=True) for recorded_values, replayed_values in pairs
    ):
        return math.inf
    with np.errstate(all="ignore"):
        signal_energy = sum(float(np.sum(recorded_values**2)) for recorded_values, _ in pairs)
        noise_energy = sum(
            float(np.sum((replayed_values.reshape(recorded_values.shape) - recorded_values) ** 2))
            for recorded_values, replayed_values in pairs
        )
    return (
        10 * math.log10(signal_energy / noise_energy)
        if 0 < signal_energy < math.inf and 0 < noise_energy < math.inf
        else -math.inf
    )
