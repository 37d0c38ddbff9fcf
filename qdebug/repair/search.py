"""Tries edit sets by replay, and searches for the smallest set that reaches a goal."""

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
from qdebug.running.output_metric import Metric, Outputs, confidence, evaluate_metric, find_metric
from qdebug.session import DiffSession

__all__ = ["Clock", "EditCost", "EditSetScore", "EditTrials", "Score", "Search", "half_of"]

_MIN_SHARES = (1e-3, 1e-7, 0.0)
"""Minimum shares of an output's error, by round: smaller ones follow once the larger ones are repaired."""
_NODES_A_STEP = 6
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
        ends: When it ends, by the monotonic clock.
        stopped: Why the search ended early, or "" if it was completed.
    """

    ends: float
    stopped: str = ""

    def over(self) -> bool:
        """Return whether the search must end."""
        if not self.stopped and time.monotonic() > self.ends:
            self.stopped = "the time limit was reached"
        return bool(self.stopped)


class EditTrials:
    """Replays edit sets on given samples and measures each set once.

    Args:
        session: The two runs.
        replays: Replays the backend.
        metric: The metric.
        labels: Labels by place, or None.
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
        pairs = {name: session.entry(name) for name in names if _is_compared(session, name)}
        partners = Counter(entry.reference_tensor for entry in pairs.values())
        titled = {
            name if partners[entry.reference_tensor] > 1 else entry.reference_tensor: entry
            for name, entry in pairs.items()
        }
        self._pairs = (
            titled if len(titled) == len(pairs) else pairs
        )  # an output may have the name of another one's partner
        self._known: dict[tuple[frozenset[str], tuple[tuple[int, int], ...]], EditSetScore] = {}
        self.count = 0

    @property
    def outputs(self) -> Mapping[str, str]:
        """The backend's outputs by the name used here: that of the reference's partner, if unique."""
        return {title: entry.tensor for title, entry in self._pairs.items()}

    def reference(self, place: tuple[int, int]) -> Outputs:
        """Return the reference's outputs of one sample."""
        run = self._session.reference
        return {title: real_values(run, entry.reference_tensor, place) for title, entry in self._pairs.items()}

    def recorded(self, place: tuple[int, int]) -> Outputs:
        """Return the backend's outputs of one sample, as recorded."""
        run = self._session.backend
        return self.named({name: real_values(run, name, place) for name in self.outputs.values()}, place)

    def score(self, edits: Sequence[Edit], places: Sequence[tuple[int, int]]) -> float:
        """Return the metric with the given edits."""
        return next(self.scores([edits], places)).value

    def scores(self, sets: Sequence[Sequence[Edit]], places: Sequence[tuple[int, int]]) -> Iterator[EditSetScore]:
        """Yield the score of each edit set lazily: a caller that stops early saves the other replays."""
        keys = [(frozenset(edit.name for edit in edits), tuple(places)) for edits in sets]
        new = {key: edits for key, edits in zip(keys, sets, strict=True) if key not in self._known}
        replayed = self._outputs(list(new.values()), places)
        for key in keys:
            while key not in self._known:
                self.count += 1
                outputs = [next(replayed) for _ in places]
                finished_set = next(each for each in new if each not in self._known)
                reference_outputs = list(map(self.reference, places))
                value = evaluate_metric(self.metric, outputs, reference_outputs, self._labels_of(places))
                self._known[finished_set] = EditSetScore(
                    value, evaluate_metric(find_metric("output-sqnr"), outputs, reference_outputs, None)
                )
            yield self._known[key]

    def _outputs(self, sets: Sequence[Sequence[Edit]], places: Sequence[tuple[int, int]]) -> Iterator[Outputs]:
        """Yield the outputs with each set in each sample."""
        names = (tuple(edit.name for edit in edits) for edits in sets if edits)
        tasks = [ReplayTask(edits=edits, places=tuple(places)) for edits in names]
        replays = self._replays(tasks)
        for edits in sets:
            for place in places:
                yield self.named(next(replays), place) if edits else self.recorded(place)

    def own(self, places: Sequence[tuple[int, int]]) -> float:
        """Return the metric of the reference itself."""
        reference_outputs = list(map(self.reference, places))
        return evaluate_metric(self.metric, reference_outputs, reference_outputs, self._labels_of(places))

    def named(self, outputs: Mapping[str, np.ndarray], place: tuple[int, int]) -> Outputs:
        """Return outputs of the backend under the names, and in the shapes, of the reference's."""
        reference = self.reference(place)
        return {title: outputs[name].reshape(reference[title].shape) for title, name in self.outputs.items()}

    def of_outputs(self, made: Sequence[Outputs], places: Sequence[tuple[int, int]]) -> Score:
        """Return the metric of given outputs."""
        reference_outputs = list(map(self.reference, places))
        return Score(
            samples=len(places),
            before=self.score([], places),
            after=evaluate_metric(self.metric, made, reference_outputs, self._labels_of(places)),
            reference=self.own(places),
            interval=confidence(self.metric, made, reference_outputs, self._labels_of(places)),
        )

    def scored(self, edits: Sequence[Edit], places: Sequence[tuple[int, int]]) -> Score:
        """Return the metric before and after the given edits, and the reference's."""
        return self.of_outputs(list(self._outputs([edits], places)), places)

    def replayed(self, places: Sequence[tuple[int, int]]) -> float:
        """Return the metric of a whole replay without edits. Its gain over the recording is not due to any edit.

        Raises:
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        outputs = self._replays([ReplayTask(edits=(), places=tuple(places), everything=True)])
        reference_outputs = list(map(self.reference, places))
        return evaluate_metric(
            self.metric, list(map(self.named, outputs, places)), reference_outputs, self._labels_of(places)
        )

    def _labels_of(self, places: Sequence[tuple[int, int]]) -> list[Any] | None:
        return None if self._labels is None else [self._labels[place] for place in places]


def half_of(session: DiffSession, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return half of the given samples, rounded up, so that the other half is not harder to repair.

    Samples are sorted by the error of their outputs, worst first, and every second pair of neighbours goes to the other
    half. If the halves have equal size, the one with the larger error is returned.
    """
    trials = EditTrials(session, lambda _: iter(()), find_metric("output-sqnr"), None)
    if not trials.reference(places[0]):
        return list(places)
    quality = {place: trials.score([], [place]) for place in places}
    order = sorted(places, key=lambda place: (not math.isnan(quality[place]), quality[place]))
    is_odd = len(order) % 2
    half = sorted(place for at, place in enumerate(order) if at % 4 in (0, 3) or (is_odd and at == len(order) - 1))
    other_half = sorted(set(places) - set(half))
    return half if is_odd or not trials.score([], other_half) < trials.score([], half) else other_half


def _is_compared(session: DiffSession, name: str) -> bool:
    """Return whether an output has a partner of the same size."""
    entry = next((each for each in session.entries() if each.tensor == name), None)
    if entry is None:
        return False
    sides = (session.backend, name), (session.reference, entry.reference_tensor)
    places = [place for place in session.backend.places() if all(run.has(each, *place) for run, each in sides)]
    return all(len({math.prod(shape_of(run, each, *place)) for run, each in sides}) == 1 for place in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditCost:
    """Costs of edits, and the allowed ones.

    Args:
        macs: Cost of performing all multiply-adds of the network in higher precision.
        size: Cost of a megabyte.
        kinds: Allowed kinds of edits, or None for all.
        most: Maximum number of edits, or None for no limit.
    """

    macs: float = 1.0
    size: float = 0.01
    kinds: Sequence[str] | None = None
    most: int | None = None

    def allows(self, edit: Edit) -> bool:
        """Return whether an edit's kind is allowed, along with the edit for exact sums that it implies."""
        return self.kinds is None or {edit.kind, *([edit.exact] if edit.exact else [])} <= set(self.kinds)

    def of(self, edit: Edit) -> float:
        """Return the cost of an edit."""
        return self.macs * edit.macs + self.size * edit.size / 2**20


@dataclass(slots=True, kw_only=True)
class Search:
    """A search for edits.

    Args:
        session: The two runs.
        catalog: The possible edits.
        trials: Measures them.
        cost: Their costs.
        places: Samples and steps to use.
        goal: The minimum value of the metric.
        clock: The time limit.
        on_trial: Progress callback with the current trial and the metric so far.
        arithmetic: The arithmetic of nodes on codes.
        found: The edits so far.
        beyond: Nodes without an allowed edit, and their shares of an output's error.
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
    found: list[Edit] = field(default_factory=list)
    beyond: dict[str, float] = field(default_factory=dict)

    def reached(self) -> bool:
        """Return whether the edits so far reach the goal."""
        return self._score(self.found).value >= self.goal

    def _score(self, edits: Sequence[Edit]) -> EditSetScore:
        return next(self._scores([edits]))

    def _scores(self, sets: Sequence[Sequence[Edit]]) -> Iterator[EditSetScore]:
        return self.trials.scores(sets, self.places)

    def run(self) -> None:
        """Add edits until the goal is reached or none is left, then restore the best set."""
        best, best_edits = self._score(self.found), list(self.found)
        try:
            for score in self._add_edits(best):
                if score > best or score.value >= self.goal:  # the last set that reaches the goal has the fewest edits
                    best, best_edits = score, list(self.found)
        finally:
            self.found[:] = best_edits

    def _add_edits(self, best: EditSetScore) -> Iterator[EditSetScore]:
        """Add edits, one at a time if few suffice, and yield the scores.

        If all of them together miss the goal, those with a gain of their own are added to the best set.
        """
        done, waiting, shares, many_tried = set[str](), dict[str, float](), list(_MIN_SHARES), False
        max_edits = math.inf if self.cost.most is None else self.cost.most
        while best.value < self.goal and len(self.found) < max_edits and not self.clock.over():
            untried = [name for name in waiting if name not in done]
            if not untried:
                if not shares:
                    return
                waiting = self._shares_by_node(shares.pop(0))
                continue
            front = untried[:_NODES_A_STEP]
            if not many_tried and len(untried) > len(front) and not self._few_suffice(front):
                many_tried, best_edits = True, list(self.found)
                for score in self._add_many(untried):
                    if score > best or score.value >= self.goal:
                        best, best_edits = score, list(self.found)
                    yield score
                self.found[:] = best_edits
                done.update(edit.unit.node.name for edit in best_edits if edit.kind == "float")
                continue
            scored = self._score_edits(front, best)
            if not scored:
                done.update(front)
                continue
            score, _, edit = max(scored, key=lambda entry: entry[:2])
            if many_tried and not score > best:
                done.update(front)
                continue
            if not score > best:  # none helps alone: keep the strongest one of the worst node for now
                candidates = [entry for entry in scored if entry[2].unit.node.name == front[0]] or scored
                score, _, edit = max(candidates, key=lambda entry: list(KINDS).index(entry[2].kind))
            self.found[:] = _with_edit(self.found, edit)
            name = edit.unit.node.name
            if edit.kind == "float" or not self._allowed_edits(name):
                done.add(name)
            best = score
            yield best

    def _few_suffice(self, names: Sequence[str]) -> bool:
        """Return whether all edits of the given nodes together reach the goal, so that few edits suffice."""
        edits = list(self.found)
        for name in names:
            for edit in self._strongest_edits(name):
                edits = _with_edit(edits, edit)
        return self._score(edits).value >= self.goal

    def _add_many(self, names: Sequence[str]) -> Iterator[EditSetScore]:
        """Change as many nodes at once as the goal requires, worst first, without multiply-adds in float if possible.

        The number is doubled until the goal is reached, and then bisected. Edits without extra multiply-adds are
        applied to all nodes, including those with small shares, before any node is put in float.
        """
        floating = {edit.unit.node.name for edit in self.found if edit.kind == "float"}
        other_names, cheap = [name for name in self.catalog.units if name not in {*names, *floating}], list[Edit]()
        for name in (*names, *other_names):
            if self.clock.over():
                return
            self.on_trial(f"edits of {name}", self._score(self.found).value)
            cheap += self._strongest_edits(name, in_float=False)
        floats = [edit for name in names for edit in self._allowed_edits(name, ("float",))]
        start, ordered_edits = list(self.found), [*cheap, *floats]
        most = None if self.cost.most is None else self.cost.most - len(start)
        if most is not None and len(ordered_edits) > most:  # then so many in float do more
            float_nodes = {edit.unit.node.name for edit in floats}
            ordered_edits = [*floats, *(edit for edit in cheap if edit.unit.node.name not in float_nodes)][:most]
        low, high = 0, min(_NODES_A_STEP, len(ordered_edits))
        while high > low and not self.clock.over():
            score = self._score_with(start, ordered_edits[:high])
            yield score
            if score.value >= self.goal:
                break
            low, high = high, min(2 * high, len(ordered_edits))
        else:
            return
        while high - low > 1 and not self.clock.over():
            middle = (low + high) // 2
            if self._score_with(start, ordered_edits[:middle]).value >= self.goal:
                high = middle
            else:
                low = middle
        yield self._score_with(start, ordered_edits[:high])

    def _score_with(self, start: Sequence[Edit], more: Sequence[Edit]) -> EditSetScore:
        self.found[:] = start
        for edit in more:
            self.found[:] = _with_edit(self.found, edit)
        score = self._score(self.found)
        self.on_trial(f"{len(self.found)} edits", score.value)
        return score

    def _score_edits(self, names: Sequence[str], best: EditSetScore) -> list[tuple[EditSetScore, float, Edit]]:
        """Return, for each edit of the given nodes, its score, its negative cost, and the edit."""
        edits = list[Edit]()
        for name in names:
            if self.clock.over():
                return []
            self.on_trial(f"edits of {name}", best.value)
            edits += self._allowed_edits(name)
        scored = list[tuple[EditSetScore, float, Edit]]()
        for edit, score in zip(edits, self._scores([_with_edit(self.found, edit) for edit in edits]), strict=False):
            scored.append((score, -self.cost.of(edit), edit))
            if self.clock.over():
                break
            self.on_trial(edit.name, best.value)
        return scored

    def _allowed_edits(self, name: str, kinds: Sequence[str] = tuple(KINDS)) -> list[Edit]:
        """Return the allowed edits of a node that have not been taken."""
        taken_names = {edit.name for edit in self.found}
        allowed = [kind for kind in kinds if self.cost.kinds is None or kind in self.cost.kinds]
        edits = self.catalog.edits_of(name, allowed)
        return [edit for edit in edits if self.cost.allows(edit) and edit.name not in taken_names]

    def _strongest_edits(self, name: str, *, in_float: bool = True) -> list[Edit]:
        """Return the strongest edits of a node: float, or the best for its weight and for its result."""
        if in_float and (best := self._allowed_edits(name, ("float",))):
            return best
        codes = self._allowed_edits(name, ("16-bit",)) or self._allowed_edits(name, ("range",))
        edits = [*codes, *self._allowed_edits(name, ("bias-unit", "wide-sum", "rounding", "per-channel"))]
        return edits or self._allowed_edits(name, ("bias", "equalize", "split"))[-1:]

    def _shares_by_node(self, least: float) -> dict[str, float]:
        """Return the changeable nodes' shares of an output's error, largest first."""
        shares = dict.fromkeys(self.catalog.units, 0.0)
        for output in self.session.budget(least=least, places=self.places[:2], parts=False).outputs:
            for node in output.nodes:
                unit = self.catalog.nodes.unit_of(node.node)
                if unit is not None and self._is_changeable(unit.node.name):
                    shares[unit.node.name] += node.share
                else:
                    self.beyond[node.node] = max(self.beyond.get(node.node, 0.0), node.share)
        return {name: shares[name] for name in sorted(shares, key=lambda name: -shares[name]) if shares[name]}

    def _is_changeable(self, name: str) -> bool:
        """Return whether a node has an allowed edit, trying the kind that is slowest to fit last."""
        changed = any(edit.unit.node.name == name for edit in self.found)
        return changed or any(self._allowed_edits(name, (kind,)) for kind in reversed(list(KINDS)))

    def prune(self) -> bool:
        """Remove edits, and replace them by cheaper ones, while the goal is reached. Return whether this was completed.

        Half of them are removed at once first, then a quarter, and so on, so that few trials remove all superfluous
        edits.
        """
        size = len(self.found) // 2
        while size > 1:
            order = sorted(self.found, key=lambda edit: -self.cost.of(edit))
            for start in range(0, len(order), size):
                if self.clock.over():
                    return False
                part = order[start : start + size]
                self.on_trial(f"without {len(part)} of {len(self.found)} edits", self._score(self.found).value)
                without = [edit for edit in self.found if edit not in part]
                if self._score(without).value >= self.goal:
                    self.found[:] = without
            size //= 2
        changed = True
        while changed:
            changed = False
            for edit in sorted(self.found, key=lambda candidate: -self.cost.of(candidate)):
                if self.clock.over():
                    return False
                self.on_trial(f"without {edit.name}", self._score(self.found).value)
                without = [other for other in self.found if other is not edit]
                cost = self.cost.of(edit)
                cheaper = [other for other in self._allowed_edits(edit.unit.node.name) if self.cost.of(other) < cost]
                sets = [without, *(_with_edit(without, other) for other in cheaper)]
                pairs = zip(sets, self._scores(sets), strict=True)
                better = next((edits for edits, score in pairs if score.value >= self.goal), None)
                if better is not None:
                    self.found[:], changed = better, True
        return True


def _with_edit(edits: Sequence[Edit], added: Edit) -> list[Edit]:
    """Return edits plus a new one, without those that it replaces."""
    return [*(edit for edit in edits if not added.replaces(edit)), added]
