"""Try edit sets by replay, and search for the smallest set that reaches a goal."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.model.json_object import JsonObject
from qdebug.model.recording import shape_of
from qdebug.repair.edits import KINDS, Edit, EditCatalog
from qdebug.repair.replays import Replays, ReplayTask
from qdebug.replay import Arithmetic
from qdebug.running.output_metric import Metric, Outputs, confidence_interval, evaluate_metric, find_metric
from qdebug.session import DiffSession

__all__ = ["Clock", "EditCost", "EditSetScore", "EditTrials", "Score", "Search", "choose_half"]

_MIN_SHARES = (1e-3, 1e-7, 0.0)
"""Minimum share of an output's error in each round. Nodes with smaller shares follow once larger ones are repaired."""
_NODES_PER_STEP = 6
"""Number of nodes with the largest shares whose edits are tried before one is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(JsonObject):
    """A metric over several samples.

    Args:
        samples: Number of samples.
        before: The value recorded by the backend.
        after: The value replayed with the edits.
        reference: The reference's own value.
        interval: 95 % confidence interval of `after`, or None for fewer than two samples.
    """

    samples: int
    before: float
    after: float
    reference: float
    interval: tuple[float, float] | None


class EditSetScore(NamedTuple):
    """The score of an edit set. Sets are compared by the metric, and at equal values by the outputs' SQNR.

    A share of correct samples may stay constant over many edits, each of which may be needed.
    """

    value: float
    """The metric."""
    sqnr_db: float
    """SQNR in dB of the worst output."""


@dataclass(slots=True)
class Clock:
    """The time limit of a search, and its interruption.

    Args:
        end_time: When the search must end, by the monotonic clock.
        stopped: Why the search ended early, or "" if it was completed.
    """

    end_time: float
    stopped: str = ""

    def is_over(self) -> bool:
        """Return whether the search must end."""
        if not self.stopped and time.monotonic() > self.end_time:
            self.stopped = "the time limit was reached"
        return bool(self.stopped)


class EditTrials:
    """Replays edit sets on given samples and measures each set once.

    Args:
        session: The two runs.
        replays: Replays the backend.
        metric: The metric.
        labels: The label of each place, or None.
    """

    def __init__(
        self,
        session: DiffSession,
        replays: Replays,
        metric: Metric,
        labels: Mapping[tuple[int, int], Any] | None,
    ) -> None:
        self._session, self._replays = session, replays
        self.metric, self._labels = metric, labels
        names = session.backend.graph.outputs
        pairs = {name: session.entry(name) for name in names if _has_partner(session, name)}
        partner_counts = Counter(entry.reference_tensor for entry in pairs.values())
        pairs_by_partner = {
            name if partner_counts[entry.reference_tensor] > 1 else entry.reference_tensor: entry
            for name, entry in pairs.items()
        }
        # The names clash if an output is named like the partner of another one. Then use the backend's names.
        self._pairs = pairs_by_partner if len(pairs_by_partner) == len(pairs) else pairs
        self._scores: dict[tuple[frozenset[str], tuple[tuple[int, int], ...]], EditSetScore] = {}
        self.count = 0

    @property
    def outputs(self) -> Mapping[str, str]:
        """The backend's outputs, by the name of their partner in the reference if that is unique."""
        return {title: entry.tensor for title, entry in self._pairs.items()}

    def reference_outputs(self, place: tuple[int, int]) -> Outputs:
        """Return the reference's outputs of one sample."""
        run = self._session.reference
        return {title: real_values(run, entry.reference_tensor, place) for title, entry in self._pairs.items()}

    def recorded_outputs(self, place: tuple[int, int]) -> Outputs:
        """Return the backend's outputs of one sample, as recorded."""
        run = self._session.backend
        return self.under_reference_names(
            {name: real_values(run, name, place) for name in self.outputs.values()}, place
        )

    def score(self, edits: Sequence[Edit], places: Sequence[tuple[int, int]]) -> float:
        """Return the metric with the given edits."""
        return next(self.scores([edits], places)).value

    def scores(self, sets: Sequence[Sequence[Edit]], places: Sequence[tuple[int, int]]) -> Iterator[EditSetScore]:
        """Yield the score of each edit set. Replays run on demand, so a caller that stops early saves the rest."""
        keys = [(frozenset(edit.name for edit in edits), tuple(places)) for edits in sets]
        new_sets = {key: edits for key, edits in zip(keys, sets, strict=True) if key not in self._scores}
        replayed_outputs = self._outputs(list(new_sets.values()), places)
        for key in keys:
            while key not in self._scores:
                self.count += 1
                outputs = [next(replayed_outputs) for _ in places]
                finished_key = next(key_of_set for key_of_set in new_sets if key_of_set not in self._scores)
                reference_outputs = list(map(self.reference_outputs, places))
                value = evaluate_metric(self.metric, outputs, reference_outputs, self._labels_of(places))
                self._scores[finished_key] = EditSetScore(
                    value, evaluate_metric(find_metric("output-sqnr"), outputs, reference_outputs, None)
                )
            yield self._scores[key]

    def _outputs(
        self, sets: Sequence[Sequence[Edit]], places: Sequence[tuple[int, int]], *, whole_run: bool = False
    ) -> Iterator[Outputs]:
        """Yield the outputs of each set in each sample. The empty set is only replayed if `whole_run` is set."""
        names = (tuple(edit.name for edit in edits) for edits in sets if edits or whole_run)
        tasks = [ReplayTask(edits=edits, places=tuple(places), everything=whole_run) for edits in names]
        replays = self._replays(tasks)
        for edits in sets:
            for place in places:
                is_replayed = edits or whole_run
                yield self.under_reference_names(next(replays), place) if is_replayed else self.recorded_outputs(place)

    def reference_metric(self, places: Sequence[tuple[int, int]]) -> float:
        """Return the metric of the reference itself."""
        reference_outputs = list(map(self.reference_outputs, places))
        return evaluate_metric(self.metric, reference_outputs, reference_outputs, self._labels_of(places))

    def under_reference_names(self, outputs: Mapping[str, np.ndarray], place: tuple[int, int]) -> Outputs:
        """Return outputs of the backend under the names, and in the shapes, of the reference's."""
        reference = self.reference_outputs(place)
        return {title: outputs[name].reshape(reference[title].shape) for title, name in self.outputs.items()}

    def score_outputs(self, run_outputs: Sequence[Outputs], places: Sequence[tuple[int, int]]) -> Score:
        """Return the metric of given outputs."""
        reference_outputs = list(map(self.reference_outputs, places))
        return Score(
            samples=len(places),
            before=self.score([], places),
            after=evaluate_metric(self.metric, run_outputs, reference_outputs, self._labels_of(places)),
            reference=self.reference_metric(places),
            interval=confidence_interval(self.metric, run_outputs, reference_outputs, self._labels_of(places)),
        )

    def score_edits(
        self, edits: Sequence[Edit], places: Sequence[tuple[int, int]], *, whole_run: bool = False
    ) -> Score:
        """Return the metric before and after the given edits, and the reference's.

        Args:
            edits: The edits.
            places: Samples and steps.
            whole_run: Whether to also replay nodes that no edit reaches.
        """
        return self.score_outputs(list(self._outputs([edits], places, whole_run=whole_run)), places)

    def replayed_metric(self, places: Sequence[tuple[int, int]]) -> float:
        """Return the metric of a whole replay without edits, whose gain over the recording is not due to any edit.

        Raises:
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        outputs = self._replays([ReplayTask(edits=(), places=tuple(places), everything=True)])
        reference_outputs = list(map(self.reference_outputs, places))
        return evaluate_metric(
            self.metric,
            list(map(self.under_reference_names, outputs, places)),
            reference_outputs,
            self._labels_of(places),
        )

    def _labels_of(self, places: Sequence[tuple[int, int]]) -> list[Any] | None:
        return None if self._labels is None else [self._labels[place] for place in places]


def choose_half(session: DiffSession, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return half of the given samples, rounded up, such that the other half is not harder to repair.

    Samples are sorted by the error of their outputs, worst first, and every second pair of neighbours goes to the other
    half. If the halves have equal size, the one with the larger error is returned.
    """
    trials = EditTrials(session, lambda _: iter(()), find_metric("output-sqnr"), None)
    if not trials.reference_outputs(places[0]):
        return list(places)
    score_by_place = {place: trials.score([], [place]) for place in places}
    order = sorted(places, key=lambda place: (not math.isnan(score_by_place[place]), score_by_place[place]))
    is_odd = len(order) % 2
    half = sorted(
        place for index, place in enumerate(order) if index % 4 in (0, 3) or (is_odd and index == len(order) - 1)
    )
    other_half = sorted(set(places) - set(half))
    return half if is_odd or not trials.score([], other_half) < trials.score([], half) else other_half


def _has_partner(session: DiffSession, name: str) -> bool:
    """Return whether an output has a partner of the same size."""
    entry = next((planned_node for planned_node in session.entries() if planned_node.tensor == name), None)
    if entry is None:
        return False
    sides = (session.backend, name), (session.reference, entry.reference_tensor)
    places = [place for place in session.backend.places() if all(run.has(tensor, *place) for run, tensor in sides)]
    return all(len({math.prod(shape_of(run, tensor, *place)) for run, tensor in sides}) == 1 for place in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditCost:
    """Costs of edits, and the allowed ones.

    Args:
        macs: Cost of computing all multiply-adds of the network in float.
        size: Cost of a megabyte.
        kinds: Allowed kinds of edits, or None for all.
        max_edits: Maximum number of edits, or None for no limit.
    """

    macs: float = 1.0
    size: float = 0.01
    kinds: Sequence[str] | None = None
    max_edits: int | None = None

    def allows(self, edit: Edit) -> bool:
        """Return whether the kind of an edit is allowed, and that of the edit for exact sums that it includes."""
        return self.kinds is None or {edit.kind, *([edit.exact] if edit.exact else [])} <= set(self.kinds)

    def of(self, edit: Edit) -> float:
        """Return the cost of an edit."""
        return self.macs * edit.macs + self.size * edit.size / 1e6


@dataclass(slots=True, kw_only=True)
class Search:
    """A search for edits.

    Args:
        session: The two runs.
        catalog: The possible edits.
        trials: Measures edit sets.
        cost: Costs of edits.
        places: Samples and steps to use.
        goal: The minimum value of the metric.
        clock: The time limit.
        on_trial: Progress callback with the current trial and the metric so far.
        arithmetic: The arithmetic of nodes on codes.
        edits: The edits so far.
        unchangeable_shares: Nodes without an allowed edit, and their shares of an output's error.
    """

    session: DiffSession
    catalog: EditCatalog
    trials: EditTrials
    cost: EditCost
    places: Sequence[tuple[int, int]]
    goal: float
    clock: Clock
    on_trial: Callable[[str, float], None]
    arithmetic: Arithmetic
    edits: list[Edit] = field(default_factory=list)
    unchangeable_shares: dict[str, float] = field(default_factory=dict)

    def is_reached(self) -> bool:
        """Return whether the edits so far reach the goal."""
        return self._score(self.edits).value >= self.goal

    def _score(self, edits: Sequence[Edit]) -> EditSetScore:
        return next(self._scores([edits]))

    def _scores(self, sets: Sequence[Sequence[Edit]]) -> Iterator[EditSetScore]:
        return self.trials.scores(sets, self.places)

    def run(self) -> None:
        """Add edits until the goal is reached or none is left, then restore the best set."""
        best_score, best_edits = self._score(self.edits), list(self.edits)
        try:
            for score in self._add_edits(best_score):
                # The last set that reaches the goal has the fewest edits.
                if score > best_score or score.value >= self.goal:
                    best_score, best_edits = score, list(self.edits)
        finally:
            self.edits[:] = best_edits

    def _add_edits(self, best_score: EditSetScore) -> Iterator[EditSetScore]:
        """Add edits, one at a time if few suffice, else many at once, and yield the scores.

        If even many edits miss the goal, single edits that gain something are added to the best set.
        """
        done_names, shares_by_node, min_shares, many_tried = set[str](), dict[str, float](), list(_MIN_SHARES), False
        max_edits = math.inf if self.cost.max_edits is None else self.cost.max_edits
        while best_score.value < self.goal and len(self.edits) < max_edits and not self.clock.is_over():
            untried_names = [name for name in shares_by_node if name not in done_names]
            if not untried_names:
                if not min_shares:
                    return
                shares_by_node = self._shares_by_node(min_shares.pop(0))
                continue
            front_names = untried_names[:_NODES_PER_STEP]
            if not many_tried and len(untried_names) > len(front_names) and not self._do_few_suffice(front_names):
                many_tried, best_edits = True, list(self.edits)
                for score in self._add_many(untried_names):
                    if score > best_score or score.value >= self.goal:
                        best_score, best_edits = score, list(self.edits)
                    yield score
                self.edits[:] = best_edits
                done_names.update(edit.unit.node.name for edit in best_edits if edit.kind == "float")
                continue
            scored_edits = self._score_edits(front_names, best_score)
            if not scored_edits:
                done_names.update(front_names)
                continue
            score, _, edit = max(scored_edits, key=lambda entry: entry[:2])
            if many_tried and not score > best_score:
                done_names.update(front_names)
                continue
            if not score > best_score:  # no edit helps by itself, so take the strongest edit of the worst node
                candidates = [
                    entry for entry in scored_edits if entry[2].unit.node.name == front_names[0]
                ] or scored_edits
                score, _, edit = max(candidates, key=lambda entry: list(KINDS).index(entry[2].kind))
            self.edits[:] = _add_edit(self.edits, edit)
            name = edit.unit.node.name
            if edit.kind == "float" or not self._allowed_edits(name):
                done_names.add(name)
            best_score = score
            yield best_score

    def _do_few_suffice(self, names: Sequence[str]) -> bool:
        """Return whether the strongest edits of a few nodes reach the goal together."""
        edits = list(self.edits)
        for name in names:
            for edit in self._strongest_edits(name):
                edits = _add_edit(edits, edit)
        return self._score(edits).value >= self.goal

    def _add_many(self, names: Sequence[str]) -> Iterator[EditSetScore]:
        """Change as many nodes at once as the goal requires, worst first, with as few nodes in float as possible.

        The number is doubled until the goal is reached, and then bisected. Edits without extra multiply-adds are
        applied to all nodes, including those with small shares, before any node is put in float. Nodes without weights
        are put in float before those with weights, and nodes with small shares last: a small share of a large error may
        still exceed the goal.
        """
        float_names = {edit.unit.node.name for edit in self.edits if edit.kind == "float"}
        other_names, cheap_edits = (
            [name for name in self.catalog.units if name not in {*names, *float_names}],
            list[Edit](),
        )
        for name in (*names, *other_names):
            if self.clock.is_over():
                return
            self.on_trial(f"edits of {name}", self._score(self.edits).value)
            cheap_edits += self._strongest_edits(name, in_float=False)
        float_edits = [edit for name in (*names, *other_names) for edit in self._allowed_edits(name, ("float",))]
        float_edits.sort(key=lambda edit: bool(self.catalog.nodes.weight(edit.unit.node)))
        start_edits, ordered_edits = list(self.edits), [*cheap_edits, *float_edits]
        max_added = None if self.cost.max_edits is None else self.cost.max_edits - len(start_edits)
        # If only some of the edits are allowed, prefer nodes in float, which gain more than cheap edits.
        if max_added is not None and len(ordered_edits) > max_added:
            float_nodes = {edit.unit.node.name for edit in float_edits}
            ordered_edits = [*float_edits, *(edit for edit in cheap_edits if edit.unit.node.name not in float_nodes)][
                :max_added
            ]
        too_few, enough = 0, min(_NODES_PER_STEP, len(ordered_edits))
        while enough > too_few and not self.clock.is_over():
            score = self._score_with(start_edits, ordered_edits[:enough])
            yield score
            if score.value >= self.goal:
                break
            too_few, enough = enough, min(2 * enough, len(ordered_edits))
        else:
            return
        while enough - too_few > 1 and not self.clock.is_over():
            middle = (too_few + enough) // 2
            if self._score_with(start_edits, ordered_edits[:middle]).value >= self.goal:
                enough = middle
            else:
                too_few = middle
        yield self._score_with(start_edits, ordered_edits[:enough])

    def _score_with(self, start_edits: Sequence[Edit], added_edits: Sequence[Edit]) -> EditSetScore:
        self.edits[:] = start_edits
        for edit in added_edits:
            self.edits[:] = _add_edit(self.edits, edit)
        score = self._score(self.edits)
        self.on_trial(f"{len(self.edits)} edits", score.value)
        return score

    def _score_edits(self, names: Sequence[str], best_score: EditSetScore) -> list[tuple[EditSetScore, float, Edit]]:
        """Return, for each edit of the given nodes, its score, its negative cost, and the edit."""
        edits = list[Edit]()
        for name in names:
            if self.clock.is_over():
                return []
            self.on_trial(f"edits of {name}", best_score.value)
            edits += self._allowed_edits(name)
        scored_edits = list[tuple[EditSetScore, float, Edit]]()
        for edit, score in zip(edits, self._scores([_add_edit(self.edits, edit) for edit in edits]), strict=False):
            scored_edits.append((score, -self.cost.of(edit), edit))
            if self.clock.is_over():
                break
            self.on_trial(edit.name, best_score.value)
        return scored_edits

    def _allowed_edits(self, name: str, kinds: Sequence[str] = tuple(KINDS)) -> list[Edit]:
        """Return the allowed edits of a node that have not been taken."""
        taken_names = {edit.name for edit in self.edits}
        allowed_kinds = [kind for kind in kinds if self.cost.kinds is None or kind in self.cost.kinds]
        edits = self.catalog.edits_of(name, allowed_kinds)
        return [edit for edit in edits if self.cost.allows(edit) and edit.name not in taken_names]

    def _strongest_edits(self, name: str, *, in_float: bool = True) -> list[Edit]:
        """Return the strongest edits of a node: float, or the best for its weight and for its result."""
        if in_float and (float_edits := self._allowed_edits(name, ("float",))):
            return float_edits
        codes = self._allowed_edits(name, ("16-bit",)) or self._allowed_edits(name, ("range",))
        edits = [*codes, *self._allowed_edits(name, ("bias-unit", "wide-sum", "rounding", "per-channel"))]
        return edits or self._allowed_edits(name, ("bias", "equalize", "split"))[-1:]

    def _shares_by_node(self, min_share: float) -> dict[str, float]:
        """Return the changeable nodes' shares of an output's error, largest first."""
        shares = dict.fromkeys(self.catalog.units, 0.0)
        for output in self.session.budget(least=min_share, places=self.places[:2], parts=False).outputs:
            for node in output.nodes:
                unit = self.catalog.nodes.unit_of(node.node)
                if unit is not None and self._is_changeable(unit.node.name):
                    shares[unit.node.name] += node.share
                else:
                    self.unchangeable_shares[node.node] = max(self.unchangeable_shares.get(node.node, 0.0), node.share)
        return {name: shares[name] for name in sorted(shares, key=lambda name: -shares[name]) if shares[name]}

    def _is_changeable(self, name: str) -> bool:
        """Return whether a node has an allowed edit, trying the kind that is slowest to fit last."""
        has_edit = any(edit.unit.node.name == name for edit in self.edits)
        return has_edit or any(self._allowed_edits(name, (kind,)) for kind in reversed(list(KINDS)))

    def prune(self) -> bool:
        """Remove edits, or replace them by cheaper ones, while the goal is reached. Return whether this was completed.

        First half of the edits are removed at once, then a quarter, and so on, so that few trials remove all
        superfluous edits.
        """
        size = len(self.edits) // 2
        while size > 1:
            order = sorted(self.edits, key=lambda edit: -self.cost.of(edit))
            for start in range(0, len(order), size):
                if self.clock.is_over():
                    return False
                edits_to_remove = order[start : start + size]
                self.on_trial(
                    f"without {len(edits_to_remove)} of {len(self.edits)} edits", self._score(self.edits).value
                )
                remaining_edits = [edit for edit in self.edits if edit not in edits_to_remove]
                if self._score(remaining_edits).value >= self.goal:
                    self.edits[:] = remaining_edits
            size //= 2
        has_changed = True
        while has_changed:
            has_changed = False
            for edit in sorted(self.edits, key=lambda candidate: -self.cost.of(candidate)):
                if self.clock.is_over():
                    return False
                self.on_trial(f"without {edit.name}", self._score(self.edits).value)
                remaining_edits = [other_edit for other_edit in self.edits if other_edit is not edit]
                cost = self.cost.of(edit)
                cheaper_edits = [
                    other_edit
                    for other_edit in self._allowed_edits(edit.unit.node.name)
                    if self.cost.of(other_edit) < cost
                ]
                sets = [remaining_edits, *(_add_edit(remaining_edits, other_edit) for other_edit in cheaper_edits)]
                pairs = zip(sets, self._scores(sets), strict=True)
                cheaper_set = next((edits for edits, score in pairs if score.value >= self.goal), None)
                if cheaper_set is not None:
                    self.edits[:], has_changed = cheaper_set, True
        return True


def _add_edit(edits: Sequence[Edit], new_edit: Edit) -> list[Edit]:
    """Return edits plus a new one, without those that it replaces."""
    return [*(edit for edit in edits if not new_edit.replaces(edit)), new_edit]
