"""Tries sets of edits by replay, and looks for the smallest that reaches a goal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.session import DiffSession
from qdebug.workflow.edited_replay import Change, EditedReplay
from qdebug.workflow.repair_edits import KINDS, Edit, EditCatalog
from qdebug.workflow.repair_metric import Metric, Outputs, confidence, measured

__all__ = ["Clock", "EditCost", "EditTrials", "Score", "Search"]

_LEAST = (1e-3, 1e-7, 0.0)
"""Shares of an output's error from which on nodes are looked at: smaller ones once the others are repaired."""
_AT_ONCE = 6
"""Nodes, those with the largest shares, whose edits are tried before one is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A metric over some samples.

    Args:
        samples: How many.
        before: As the backend recorded it.
        after: With the edits, replayed.
        reference: The reference's own.
        interval: Where `after` lies with 95 % confidence; None of fewer than two samples.
    """

    samples: int
    before: float
    after: float
    reference: float
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the score as plain values."""
        return {
            "samples": self.samples,
            "before": self.before,
            "after": self.after,
            "reference": self.reference,
            "interval": None if self.interval is None else list(self.interval),
        }


@dataclass(slots=True)
class Clock:
    """Tells whether there is time left, and whether somebody stopped the search.

    Args:
        ends: When it is over, by the monotonic clock.
        stopped: Why the search ended before it was done; "" if it was done.
    """

    ends: float
    stopped: str = ""

    def over(self) -> bool:
        """Tell whether the search has to end."""
        if not self.stopped and time.monotonic() > self.ends:
            self.stopped = "the time that was given is over"
        return bool(self.stopped)


class EditTrials:
    """Replays sets of edits on some samples and measures them; each set once.

    Args:
        session: The two runs.
        catalog: The edits.
        replay: Replays the backend.
        metric: The metric.
        labels: Labels by place; None without.
    """

    def __init__(
        self,
        session: DiffSession,
        catalog: EditCatalog,
        replay: EditedReplay,
        metric: Metric,
        labels: Mapping[tuple[int, int], Any] | None,
    ) -> None:
        self._session, self._catalog, self.replay = session, catalog, replay
        self.metric, self._labels = metric, labels
        names = session.backend.graph.outputs
        self._pairs = {name: session.entry(name) for name in names if _is_compared(session, name)}
        self._known: dict[tuple[frozenset[str], tuple[tuple[int, int], ...]], float] = {}
        self.count = 0

    def reference(self, place: tuple[int, int]) -> Outputs:
        """Return the reference's outputs of one sample."""
        run = self._session.reference
        return {
            entry.reference_tensor: real_values(run, entry.reference_tensor, place) for entry in self._pairs.values()
        }

    def recorded(self, place: tuple[int, int]) -> Outputs:
        """Return the backend's outputs of one sample, as recorded."""
        return self.named({name: real_values(self._session.backend, name, place) for name in self._pairs}, place)

    def replayed(self, edits: Sequence[Edit], place: tuple[int, int]) -> Outputs:
        """Return the backend's outputs of one sample with some edits."""
        change = self._catalog.change(edits) if edits else Change()
        return self.named(self.replay.outputs(change, place), place)

    def score(self, edits: Sequence[Edit], places: Sequence[tuple[int, int]]) -> float:
        """Return the metric with some edits."""
        key = frozenset(edit.name for edit in edits), tuple(places)
        if key not in self._known:
            self.count += 1
            made = [self.replayed(edits, place) if edits else self.recorded(place) for place in places]
            self._known[key] = measured(self.metric, made, list(map(self.reference, places)), self._of(places))
        return self._known[key]

    def own(self, places: Sequence[tuple[int, int]]) -> float:
        """Return the metric of the reference itself."""
        theirs = list(map(self.reference, places))
        return measured(self.metric, theirs, theirs, self._of(places))

    def named(self, outputs: Mapping[str, np.ndarray], place: tuple[int, int]) -> Outputs:
        """Return outputs of the backend by the names, and in the shapes, of the reference's."""
        reference = self.reference(place)
        return {
            entry.reference_tensor: outputs[name].reshape(reference[entry.reference_tensor].shape)
            for name, entry in self._pairs.items()
        }

    def of_outputs(self, made: Sequence[Outputs], places: Sequence[tuple[int, int]]) -> Score:
        """Return the metric of outputs that were made in another way."""
        theirs = list(map(self.reference, places))
        return Score(
            samples=len(places),
            before=self.score([], places),
            after=measured(self.metric, made, theirs, self._of(places)),
            reference=self.own(places),
            interval=confidence(self.metric, made, theirs, self._of(places)),
        )

    def scored(self, edits: Sequence[Edit], places: Sequence[tuple[int, int]]) -> Score:
        """Return the metric before and after some edits, and the reference's."""
        made = [self.replayed(edits, place) if edits else self.recorded(place) for place in places]
        return self.of_outputs(made, places)

    def _of(self, places: Sequence[tuple[int, int]]) -> list[Any] | None:
        return None if self._labels is None else [self._labels[place] for place in places]


def _is_compared(session: DiffSession, name: str) -> bool:
    return any(entry.tensor == name for entry in session.entries())


@dataclass(frozen=True, slots=True, kw_only=True)
class EditCost:
    """What edits cost, and which are allowed.

    Args:
        macs: What multiply-adds in higher precision cost, all of the net being 1.
        size: What a megabyte costs.
        kinds: Kinds of edits that are allowed; None for all.
        most: Most edits.
    """

    macs: float = 1.0
    size: float = 0.01
    kinds: Sequence[str] | None = None
    most: int = 32

    def of(self, edit: Edit) -> float:
        """Return what an edit costs."""
        return self.macs * edit.macs + self.size * edit.size / 2**20


@dataclass(slots=True, kw_only=True)
class Search:
    """A search for edits.

    Args:
        session: The two runs.
        catalog: What can be changed.
        trials: Tries it.
        cost: What it costs.
        places: Samples and steps to look at.
        goal: The least value of the metric that is good.
        clock: Tells when to stop.
        told: Called with what is tried, and the metric so far.
        found: The edits so far.
    """

    session: DiffSession
    catalog: EditCatalog
    trials: EditTrials
    cost: EditCost
    places: Sequence[tuple[int, int]]
    goal: float
    clock: Clock
    told: Callable[[str, float], None]
    found: list[Edit] = field(default_factory=list)

    def reached(self) -> bool:
        """Tell whether the edits so far reach the goal."""
        return self._score(self.found) >= self.goal

    def _score(self, edits: Sequence[Edit]) -> float:
        return self.trials.score(edits, self.places)

    def run(self) -> None:
        """Add edits until the goal is reached, or nothing is left to try: then the best that were seen are kept."""
        best, kept = self._score(self.found), list(self.found)
        try:
            for value in self._steps(best):
                if value > best:
                    best, kept = value, list(self.found)
        finally:
            self.found[:] = kept

    def _steps(self, best: float) -> Iterator[float]:
        """Add one edit after the other; yield what the metric is with each."""
        done, waiting, shares = set[str](), list[str](), list(_LEAST)
        while best < self.goal and len(self.found) < self.cost.most and not self.clock.over():
            front = [name for name in waiting if name not in done][:_AT_ONCE]
            if not front:
                if not shares:
                    return
                waiting = self._ranked(shares.pop(0))
                continue
            scored = self._tried(front, best)
            if not scored:
                done.update(front)
                continue
            value, _, edit = max(scored, key=lambda each: each[:2])
            if not value > best:  # none helps alone: the strongest one of the worst node is kept on trial
                first = [each for each in scored if each[2].unit.node.name == front[0]] or scored
                value, _, edit = max(first, key=lambda each: list(KINDS).index(each[2].kind))
            self.found[:] = _with(self.found, edit)
            name = edit.unit.node.name
            if edit.kind == "float" or not self._open(name):
                done.add(name)
            best = value
            yield best

    def _tried(self, names: Sequence[str], best: float) -> list[tuple[float, float, Edit]]:
        """Return what each edit of some nodes gives, its cost below zero, and the edit."""
        scored: list[tuple[float, float, Edit]] = []
        for name in names:
            for edit in self._open(name):
                if self.clock.over():
                    return scored
                self.told(f"{edit.kind} of {name}", best)
                scored.append((self._score(_with(self.found, edit)), -self.cost.of(edit), edit))
        return scored

    def _open(self, name: str) -> list[Edit]:
        """List the allowed edits of a node that were not taken."""
        taken = {edit.name for edit in self.found}
        return [
            edit
            for edit in self.catalog.edits_of(name)
            if (self.cost.kinds is None or edit.kind in self.cost.kinds) and edit.name not in taken
        ]

    def _ranked(self, least: float) -> list[str]:
        """Return the nodes that can be changed, those with the largest share of an output's error first.

        Two samples tell an order; which edits help is measured on all.
        """
        shares = dict.fromkeys(self.catalog.units, 0.0)
        for output in self.session.budget(least=least, places=self.places[:2], parts=False).outputs:
            for node in output.nodes:
                unit = self.catalog.nodes.unit_of(node.node)
                if unit is not None:
                    shares[unit.node.name] += node.share
        return sorted((name for name, share in shares.items() if share), key=lambda name: -shares[name])

    def prune(self) -> bool:
        """Take edits out, and put cheaper ones in their place, as long as the goal is reached; tell if it was done."""
        changed = True
        while changed:
            changed = False
            for edit in sorted(self.found, key=lambda each: -self.cost.of(each)):
                if self.clock.over():
                    return False
                self.told(f"without {edit.name}", self._score(self.found))
                without = [each for each in self.found if each is not edit]
                cheaper = [each for each in self._open(edit.unit.node.name) if self.cost.of(each) < self.cost.of(edit)]
                tried = [without, *(_with(without, each) for each in cheaper)]
                better = next((each for each in tried if self._score(each) >= self.goal), None)
                if better is not None:
                    self.found[:], changed = better, True
        return True


def _with(edits: Sequence[Edit], one: Edit) -> list[Edit]:
    """Return edits and one more, which takes the place of those that it undoes."""
    return [*(edit for edit in edits if not one.replaces(edit)), one]
