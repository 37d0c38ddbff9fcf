"""Looks for the fewest changes that bring a backend's outputs back, and proves them on samples that it did not look at.

The budget says which nodes make the output's error; their edits are tried by replay, the one that gains most for its
cost is taken, and so on until the goal is reached. What is left of them when each is taken out again, one at a time, is
minimal in the sense of delta debugging: without any one of them the goal is missed (A. Zeller and R. Hildebrandt,
"Simplifying and isolating failure-inducing input", IEEE Trans. Software Eng. 28, 2002).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from qdebug.arithmetic.arithmetic_file import find_arithmetic, over
from qdebug.arithmetic.presets import DEFAULT_PRESET
from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.explaining.explain import find_backend_variants
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.errors import KernelError, NotRecordedError, QdebugError, UsageError
from qdebug.model import RunInfo
from qdebug.model.json_object import JsonObject
from qdebug.repair.edited_replay import Change, EditedReplay
from qdebug.repair.edits import Edit, EditCatalog
from qdebug.repair.forms import nameless, quantizer_forms
from qdebug.repair.model import run_score, write_repaired
from qdebug.repair.replays import replays_of
from qdebug.repair.search import Clock, EditCost, EditTrials, Score, Search, half_of
from qdebug.replay import Arithmetic
from qdebug.replay.variant import parse_variant
from qdebug.running.output_metric import Metric, find_metric
from qdebug.session import DiffSession

__all__ = ["Repair", "RepairOptions", "faithful", "find_repair", "prepare_search"]


_NAMED = 5
"""Nodes that are named where no edit helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """What is asked for.

    Args:
        metric: The metric, see `find_metric`.
        within: The goal: at least so many dB, or at most so far below the reference's own value; None for the metric's.
        minutes: Most time; what was found until then is given.
        arithmetic: How nodes on codes are replayed; None for the backend's, as far as it is known or explained.
        cost: What edits cost, and which are allowed.
        start: Names of the edits to begin with, each a kind and a node, as an earlier repair found them.
    """

    metric: str = "output-sqnr"
    within: float | None = None
    minutes: float = 10.0
    arithmetic: str | None = None
    cost: EditCost = field(default_factory=EditCost)
    start: Sequence[str] = ()


class GoalMetric(TypedDict):
    """A metric, its unit, and the least value that is good."""

    name: str
    unit: str
    goal: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repair(JsonObject):
    """What was found.

    Args:
        reference: The reference run.
        backend: The backend run.
        metric: The metric.
        goal: The least value that is good.
        edits: The edits, in the order in which they were taken.
        search: The metric on the samples that the edits were looked for with.
        held_out: The metric on the others; None if there are none.
        reached: Whether the goal is reached on the samples that the edits were looked for with.
        minimal: Whether the goal is missed without any one of the edits.
        replays: How many sets of edits were tried.
        faithful: SQNR in dB of a replay of the first sample without edits against its recorded outputs, see `faithful`.
        arithmetic: What the arithmetic of the replay is called.
        replayed: The metric of a replay without edits on the samples that were searched; None if it is as recorded, or
            not known.
        proof: The metric of the changed model, really run, on all samples; None if none ran.
        failed: Why the changed model was not written or did not run; "" if it ran, or was not asked for.
        stopped: Why the search ended before it was done; "" if it was done.
        notes: What is to be known of it.
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
        """The metric with its goal, as the JSON has them."""
        return {"name": self.metric.name, "unit": self.metric.unit, "goal": self.goal}

    @property
    def exit_code(self) -> int:
        """0 if the goal is reached, on the samples that were held out and by the changed model too; 1 if not."""
        return 0 if self.reached and not self.refuted else 1

    @property
    def refuted(self) -> tuple[str, ...]:
        """What speaks against it, though the samples that were searched reach the goal.

        "held out" and "model run" miss it; "replay" is farther from the backend's outputs than the goal allows, and no
        changed model was run.
        """
        missed = {name for name, score in self.proofs.items() if not score.after >= self.goal_of(score)}
        if self.failed:
            missed.add("model run")
        if self.edits and self.proof is None and self.metric.unit == "dB" and self.faithful < self.goal:
            missed.add("replay")
        return tuple(sorted(missed)) if self.reached else ()

    @property
    def proofs(self) -> Mapping[str, Score]:
        """What the edits were not looked for with: the samples that were held out, and the changed model's outputs."""
        scores = {"held out": self.held_out, "model run": self.proof}
        return {name: score for name, score in scores.items() if score is not None}

    def goal_of(self, score: Score) -> float:
        """Return the least good value on some samples: where it hangs on the reference's own, on that of these."""
        if self.metric.floor or score.reference == self.search.reference:
            return self.goal
        return self.goal + (score.reference - self.search.reference)

    @property
    def hand_over(self) -> Mapping[str, Any]:
        """The edits as quantizers take them: names are those of the reference's nodes and tensors."""
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
    """Look for the fewest changes that bring the outputs back.

    Half of the samples are held out: edits are looked for with the others, and the answer is measured on both. Ctrl-C
    ends the search; what was found until then is given.

    Args:
        session: The two runs.
        options: What is asked for.
        labels: One for each sample, for metrics that take them.
        model: The quantized model that the backend ran, to be changed likewise; None for no model.
        out: Where the changed model is written. It is then run by the backend, on the recorded inputs.
        progress: Called with what was done of the time, all of it, and what the metric is.

    Raises:
        UsageError: The net is stateful, has no compared output, or the labels or edits to begin with do not fit.
        KernelError: The net cannot be replayed.
    """
    looked = prepare_search(session, options, labels=labels, progress=progress)
    trials, places = looked.trials, list(session.backend.places())
    held_out = [place for place in places if place not in looked.places]
    minimal = False
    if not options.minutes:  # whoever gives edits and no time wants them measured
        looked.clock.stopped = "no time was given to it"
    try:
        looked.run()
        minimal = looked.reached() and looked.prune()
    except KeyboardInterrupt:
        looked.clock.stopped = "interrupted"
    proof, failed, notes = None, "", list[str]()
    if model is not None and out is not None and looked.found:
        doing = "was not written"
        try:
            write_repaired(model, looked.catalog, looked.found, out)
            doing = "was written, and did not run"
            changed = looked.catalog.change(looked.found).quants
            proof = run_score(session, trials, out, places, changed)
        except QdebugError as error:  # what was found is not lost by it
            failed = f"the model with these edits {doing}: {error.message} {error.hint or ''}".rstrip()
            notes.append(failed)
    notes += _notes(looked, options, alone=not held_out)
    notes += _of_all_weights(looked, places)
    near = faithful(session, looked.arithmetic, places[0])
    return Repair(
        reference=session.reference.info,
        backend=session.backend.info,
        metric=trials.metric,
        goal=looked.goal,
        edits=tuple(looked.found),
        search=trials.scored(looked.found, looked.places),
        held_out=trials.scored(looked.found, held_out) if held_out else None,
        reached=looked.reached(),
        minimal=minimal,
        replays=trials.count,
        faithful=near,
        arithmetic=looked.arithmetic.name,
        replayed=None if math.isnan(near) or near == math.inf else _replayed(looked),
        proof=proof,
        failed=failed,
        stopped=looked.clock.stopped,
        notes=tuple(notes),
    )


def _arithmetic(session: DiffSession, name: str | None, place: tuple[int, int]) -> Arithmetic:
    """Return how nodes on codes are replayed: as asked for, or else in the default way if that is the backend's.

    If it is not, the backend's own is looked for; of the two the one whose replay comes nearer is returned.
    """
    usual, run = find_arithmetic(name or DEFAULT_PRESET), session.backend
    table = run.graph.tensors
    on_codes = [node for node in run.graph.nodes if any(table[each].quant for each in node.outputs if each in table)]
    alone = EditedReplay(run, usual.arithmetic)
    others = [node for node in on_codes if name is None and not alone.reproduces(node, place)]
    if not others:
        return usual.arithmetic
    near = faithful(session, usual.arithmetic, place)
    outputs = {output for node in others for output in node.outputs}
    found = {} if near == math.inf else find_backend_variants(run, tensors=outputs)
    if not found:
        return usual.arithmetic
    variants = over(usual, {key: parse_variant(text) for key, text in found.items()})
    own = Arithmetic(variants=variants, name="as explained")
    return own if math.isnan(near) or faithful(session, own, place) > near else usual.arithmetic


def _of_all_weights(looked: Search, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield what weights per channel in the whole net give: most quantizers have one option for it."""
    each = (looked.catalog.edits_of(name, ("per-channel",)) for name in looked.catalog.units)
    edits = [edit for found in each for edit in found if looked.cost.allows(edit)]
    if len(edits) > 1 and looked.found and not looked.clock.stopped:
        metric, value = looked.trials.metric, looked.trials.score(edits, places)
        size = sum(edit.size for edit in edits)
        given = f"{metric.name} {value:.2f} {metric.unit}".rstrip()
        yield f"with weights per channel in all {len(edits)} nodes instead: {given} over all samples, {size} bytes"


def _notes(looked: Search, options: RepairOptions, *, alone: bool) -> Iterator[str]:
    """Yield what is to be known of a search that ended; alone: it looked at the only sample."""
    beyond = sorted(looked.beyond, key=lambda name: -looked.beyond[name])[:_NAMED]
    if beyond and not looked.reached():
        said = ", ".join(f"{name!r} ({looked.beyond[name]:.1%} of an output's error)" for name in beyond)
        yield f"no allowed edit changes {said}"
    gone = [name for name in options.start if name not in {edit.name for edit in looked.found}]
    if gone:
        yield f"edits that the search began with, and did not keep: {', '.join(map(repr, gone))}"
    without = nameless(looked.found) if (looked.session.reference.info.model or "").endswith(".onnx") else []
    if without:
        nodes = "1 node in float has" if len(without) == 1 else f"{len(without)} nodes in float have"
        yield (
            f"{nodes} no name in the reference's model, by which ONNX Runtime's quantizer and NNCF could leave it out: "
            f"{', '.join(map(repr, without[:_NAMED]))}"
        )
    if alone:
        yield "there is one sample: nothing is left to prove the edits on"


def _replayed(looked: Search) -> float | None:
    try:
        return looked.trials.replayed(looked.places)
    except (KernelError, NotRecordedError):  # of a sample that was not recorded as the first was
        return None


def prepare_search(
    session: DiffSession,
    options: RepairOptions,
    *,
    labels: np.ndarray | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Search:
    """Return a search that was not begun.

    Args:
        session: The two runs.
        options: What is asked for.
        labels: One for each sample, for metrics that take them.
        progress: Called with what was done of the time, all of it, and what the metric is.

    Raises:
        UsageError: The net is stateful, has no compared output, or the labels or edits to begin with do not fit.
    """
    if session.backend.steps > 1:
        raise UsageError("A stateful network is not repaired.", hint="Record a run of one step.")
    places = list(session.backend.places())
    if labels is not None and len(labels) != len(places):
        raise UsageError(
            f"There are {len(labels)} labels and {len(places)} samples.", hint="Give one label for each sample."
        )
    known = None if labels is None else dict(zip(places, labels, strict=True))
    metric, clock = find_metric(options.metric), Clock(time.monotonic() + 60 * options.minutes)
    search = half_of(session, places)
    graphs = GraphCheck(session.reference, session.backend, session.alignment.pairs)
    catalog = EditCatalog(graphs, session.entries(), search)
    arithmetic = _arithmetic(session, options.arithmetic, places[0])
    trials = EditTrials(session, replays_of(session, catalog, arithmetic), metric, known)
    if not trials.reference(places[0]):
        raise UsageError("No output of the network was compared.", hint="See why: qdebug diff REF BACKEND.")
    within = metric.within if options.within is None else options.within
    goal = within if metric.floor else trials.own(search) - within

    def told(what: str, value: float) -> None:
        if progress is not None:
            whole = int(60 * options.minutes)
            progress(min(whole - int(clock.ends - time.monotonic()), whole), whole, f"{value:.4g} {what}")

    begun = [catalog.named(name) for name in options.start]
    refused = [edit.name for edit in begun if not options.cost.allows(edit)]
    if refused or len(begun) > (options.cost.most or len(begun)):
        raise UsageError(
            f"The search would begin with {refused[0]!r}, which is not allowed."
            if refused
            else f"The search would begin with {len(begun)} edits, and {options.cost.most} are allowed.",
            hint="Allow more, or begin without them.",
        )
    return Search(
        found=begun,
        session=session,
        catalog=catalog,
        trials=trials,
        cost=options.cost,
        places=search,
        goal=goal,
        clock=clock,
        told=told,
        arithmetic=arithmetic,
    )


def faithful(
    session: DiffSession,
    arithmetic: Arithmetic,
    place: tuple[int, int],
    told: Callable[[int, int], object] | None = None,
) -> float:
    """Return the SQNR in dB of the whole run, replayed without edits, against the recorded outputs.

    Args:
        session: The two runs.
        arithmetic: How nodes on codes are computed.
        place: Sample and step.
        told: Called as the replay gets on, see `EditedReplay`.

    Returns:
        Infinite if it is the same; NaN if not every node can be replayed, or no output was recorded; minus infinity
        if they differ and have no SQNR: the recorded ones are zero, or one of them is not finite.
    """
    run = session.backend
    names = [name for name in run.graph.outputs if run.has(name, *place)]
    try:
        (made,) = EditedReplay(run, arithmetic, told).outputs(Change(), [place], everything=True)
    except (KernelError, NotRecordedError):  # of a node that no edit reached
        return math.nan
    if not names:
        return math.nan
    pairs = [
        tuple(np.asarray(values, np.float64) for values in (real_values(run, name, place), made[name]))
        for name in names
    ]
    if all(np.array_equal(recorded, ours, equal_nan=True) for recorded, ours in pairs):
        return math.inf
    with np.errstate(all="ignore"):
        signal = sum(float(np.sum(recorded**2)) for recorded, _ in pairs)
        noise = sum(float(np.sum((ours.reshape(recorded.shape) - recorded) ** 2)) for recorded, ours in pairs)
    return 10 * math.log10(signal / noise) if 0 < signal < math.inf and 0 < noise < math.inf else -math.inf
