"""Tries sets of edits by replay, and looks for the smallest that reaches a goal."""

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
from qdebug.running.output_metric import Metric, Outputs, confidence, find_metric, measured
from qdebug.session import DiffSession

__all__ = ["Clock", "EditCost", "EditTrials", "Score", "Search", "Tried", "half_of"]

_LEAST = (1e-3, 1e-7, 0.0)
"""Shares of an output's error from which on nodes are looked at: smaller ones once the others are repaired."""
_AT_ONCE = 6
"""Nodes, those with the largest shares, whose edits are tried before one is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(JsonObject):
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


class Tried(NamedTuple):
    """What a set of edits gives. Sets compare by the metric, and where it is the same by the outputs' SQNR.

    A share of samples that are right stands still over many edits, each of which may be needed.
    """

    value: float
    """The metric."""
    sqnr_db: float
    """SQNR in dB of the worst output."""


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
        replays: Replays the backend.
        metric: The metric.
        labels: Labels by place; None without.
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
        self._pairs = titled if len(titled) == len(pairs) else pairs  # one's name may be that of another's partner
        self._known: dict[tuple[frozenset[str], tuple[tuple[int, int], ...]], Tried] = {}
        self.count = 0

    @property
    def outputs(self) -> Mapping[str, str]:
        """The backend's outputs by what they are called here: as the reference's, if that is the partner of one."""
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
        """Return the metric with some edits."""
        return next(self.scores([edits], places)).value

    def scores(self, sets: Sequence[Sequence[Edit]], places: Sequence[tuple[int, int]]) -> Iterator[Tried]:
        """Yield what each of some sets of edits gives; whoever stops early has the rest not replayed."""
        keys = [(frozenset(edit.name for edit in edits), tuple(places)) for edits in sets]
        new = {key: edits for key, edits in zip(keys, sets, strict=True) if key not in self._known}
        made = self._outputs(list(new.values()), places)
        for key in keys:
            while key not in self._known:
                self.count += 1
                outputs = [next(made) for _ in places]
                done = next(each for each in new if each not in self._known)
                theirs = list(map(self.reference, places))
                value = measured(self.metric, outputs, theirs, self._of(places))
                self._known[done] = Tried(value, measured(find_metric("output-sqnr"), outputs, theirs, None))
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
        theirs = list(map(self.reference, places))
        return measured(self.metric, theirs, theirs, self._of(places))

    def named(self, outputs: Mapping[str, np.ndarray], place: tuple[int, int]) -> Outputs:
        """Return outputs of the backend by the names, and in the shapes, of the reference's."""
        reference = self.reference(place)
        return {title: outputs[name].reshape(reference[title].shape) for title, name in self.outputs.items()}

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
        return self.of_outputs(list(self._outputs([edits], places)), places)

    def replayed(self, places: Sequence[tuple[int, int]]) -> float:
        """Return the metric of a whole replay without edits: what it gains over the recording, no edit does.

        Raises:
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        made = self._replays([ReplayTask(edits=(), places=tuple(places), everything=True)])
        theirs = list(map(self.reference, places))
        return measured(self.metric, list(map(self.named, made, places)), theirs, self._of(places))

    def _of(self, places: Sequence[tuple[int, int]]) -> list[Any] | None:
        return None if self._labels is None else [self._labels[place] for place in places]


def half_of(session: DiffSession, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return half of some samples, or one more, so that the other half is not harder to repair.

    In the order of their outputs' error, the worst first, every second pair of neighbours goes to the other half. Of
    halves of one size that with the larger error is returned.
    """
    trials = EditTrials(session, lambda _: iter(()), find_metric("output-sqnr"), None)
    if not trials.reference(places[0]):
        return list(places)
    quality = {place: trials.score([], [place]) for place in places}
    order = sorted(places, key=lambda place: (not math.isnan(quality[place]), quality[place]))
    odd = len(order) % 2
    half = sorted(place for at, place in enumerate(order) if at % 4 in (0, 3) or (odd and at == len(order) - 1))
    other = sorted(set(places) - set(half))
    return half if odd or not trials.score([], other) < trials.score([], half) else other


def _is_compared(session: DiffSession, name: str) -> bool:
    """Tell whether an output has a partner of as many elements."""
    entry = next((each for each in session.entries() if each.tensor == name), None)
    if entry is None:
        return False
    sides = (session.backend, name), (session.reference, entry.reference_tensor)
    places = [place for place in session.backend.places() if all(run.has(each, *place) for run, each in sides)]
    return all(len({math.prod(shape_of(run, each, *place)) for run, each in sides}) == 1 for place in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditCost:
    """What edits cost, and which are allowed.

    Args:
        macs: What multiply-adds in higher precision cost, all of the net being 1.
        size: What a megabyte costs.
        kinds: Kinds of edits that are allowed; None for all.
        most: Most edits; None for any number.
    """

    macs: float = 1.0
    size: float = 0.01
    kinds: Sequence[str] | None = None
    most: int | None = None

    def allows(self, edit: Edit) -> bool:
        """Tell whether an edit is allowed, and the exact sums or the rounding that it takes along."""
        return self.kinds is None or {edit.kind, *([edit.exact] if edit.exact else [])} <= set(self.kinds)

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
        arithmetic: How nodes on codes are replayed.
        found: The edits so far.
        beyond: Nodes that no allowed edit changes, and their shares of an output's error.
    """

    session: DiffSession
    catalog: EditCatalog
    trials: EditTrials
    cost: EditCost
    places: Sequence[tuple[int, int]]
    goal: float
    clock: Clock
    told: Callable[[str, float], None]
    arithmetic: Arithmetic
    found: list[Edit] = field(default_factory=list)
    beyond: dict[str, float] = field(default_factory=dict)

    def reached(self) -> bool:
        """Tell whether the edits so far reach the goal."""
        return self._score(self.found).value >= self.goal

    def _score(self, edits: Sequence[Edit]) -> Tried:
        return next(self._scores([edits]))

    def _scores(self, sets: Sequence[Sequence[Edit]]) -> Iterator[Tried]:
        return self.trials.scores(sets, self.places)

    def run(self) -> None:
        """Add edits until the goal is reached, or nothing is left to try: then the best that were seen are kept."""
        best, kept = self._score(self.found), list(self.found)
        try:
            for tried in self._steps(best):
                if tried > best or tried.value >= self.goal:  # of those that reach it the last one has fewest edits
                    best, kept = tried, list(self.found)
        finally:
            self.found[:] = kept

    def _steps(self, best: Tried) -> Iterator[Tried]:
        """Add edits, one at a time where few will do; yield what they give.

        Where all at once miss the goal, those that gain by themselves are added to the best that was seen.
        """
        done, waiting, shares, grown = set[str](), dict[str, float](), list(_LEAST), False
        most = math.inf if self.cost.most is None else self.cost.most
        while best.value < self.goal and len(self.found) < most and not self.clock.over():
            left = [name for name in waiting if name not in done]
            if not left:
                if not shares:
                    return
                waiting = self._ranked(shares.pop(0))
                continue
            front = left[:_AT_ONCE]
            if not grown and len(left) > len(front) and not self._enough(front):
                grown, kept = True, list(self.found)
                for tried in self._grown(left):
                    if tried > best or tried.value >= self.goal:
                        best, kept = tried, list(self.found)
                    yield tried
                self.found[:] = kept
                done.update(edit.unit.node.name for edit in kept if edit.kind == "float")
                continue
            scored = self._tried(front, best)
            if not scored:
                done.update(front)
                continue
            tried, _, edit = max(scored, key=lambda each: each[:2])
            if grown and not tried > best:
                done.update(front)
                continue
            if not tried > best:  # none helps alone: the strongest one of the worst node is kept on trial
                first = [each for each in scored if each[2].unit.node.name == front[0]] or scored
                tried, _, edit = max(first, key=lambda each: list(KINDS).index(each[2].kind))
            self.found[:] = _with(self.found, edit)
            name = edit.unit.node.name
            if edit.kind == "float" or not self._open(name):
                done.add(name)
            best = tried
            yield best

    def _enough(self, names: Sequence[str]) -> bool:
        """Tell whether the goal is reached with all that can be done about some nodes: then few edits will do."""
        edits = list(self.found)
        for name in names:
            for edit in self._strongest(name):
                edits = _with(edits, edit)
        return self._score(edits).value >= self.goal

    def _grown(self, names: Sequence[str]) -> Iterator[Tried]:
        """Change as many nodes at once as the goal takes, the worst first: without multiply-adds in float if that does.

        The number is doubled until the goal is reached, and then halved in between. What costs no multiply-adds is done
        about all nodes before one is put in float, also about those whose share was too small to be looked at.
        """
        floating = {edit.unit.node.name for edit in self.found if edit.kind == "float"}
        rest, cheap = [name for name in self.catalog.units if name not in {*names, *floating}], list[Edit]()
        for name in (*names, *rest):
            if self.clock.over():
                return
            self.told(f"edits of {name}", self._score(self.found).value)
            cheap += self._strongest(name, in_float=False)
        floats = [edit for name in names for edit in self._open(name, ("float",))]
        start, ladder = list(self.found), [*cheap, *floats]
        most = None if self.cost.most is None else self.cost.most - len(start)
        if most is not None and len(ladder) > most:  # then so many in float do more
            there = {edit.unit.node.name for edit in floats}
            ladder = [*floats, *(edit for edit in cheap if edit.unit.node.name not in there)][:most]
        low, high = 0, min(_AT_ONCE, len(ladder))
        while high > low and not self.clock.over():
            tried = self._climbed(start, ladder[:high])
            yield tried
            if tried.value >= self.goal:
                break
            low, high = high, min(2 * high, len(ladder))
        else:
            return
        while high - low > 1 and not self.clock.over():
            middle = (low + high) // 2
            if self._climbed(start, ladder[:middle]).value >= self.goal:
                high = middle
            else:
                low = middle
        yield self._climbed(start, ladder[:high])

    def _climbed(self, start: Sequence[Edit], more: Sequence[Edit]) -> Tried:
        self.found[:] = start
        for edit in more:
            self.found[:] = _with(self.found, edit)
        tried = self._score(self.found)
        self.told(f"{len(self.found)} edits", tried.value)
        return tried

    def _tried(self, names: Sequence[str], best: Tried) -> list[tuple[Tried, float, Edit]]:
        """Return what each edit of some nodes gives, its cost below zero, and the edit."""
        edits = list[Edit]()
        for name in names:
            if self.clock.over():
                return []
            self.told(f"edits of {name}", best.value)
            edits += self._open(name)
        scored = list[tuple[Tried, float, Edit]]()
        for edit, tried in zip(edits, self._scores([_with(self.found, each) for each in edits]), strict=False):
            scored.append((tried, -self.cost.of(edit), edit))
            if self.clock.over():
                break
            self.told(edit.name, best.value)
        return scored

    def _open(self, name: str, kinds: Sequence[str] = tuple(KINDS)) -> list[Edit]:
        """List the allowed edits of a node that were not taken."""
        taken = {edit.name for edit in self.found}
        allowed = [kind for kind in kinds if self.cost.kinds is None or kind in self.cost.kinds]
        made = self.catalog.edits_of(name, allowed)
        return [edit for edit in made if self.cost.allows(edit) and edit.name not in taken]

    def _strongest(self, name: str, *, in_float: bool = True) -> list[Edit]:
        """Return the edits of a node that together do most: float, or the best of its weight and of its result."""
        if in_float and (best := self._open(name, ("float",))):
            return best
        codes = self._open(name, ("16-bit",)) or self._open(name, ("range",))
        found = [*codes, *self._open(name, ("bias-unit", "wide-sum", "rounding", "per-channel"))]
        return found or self._open(name, ("bias", "equalize", "split"))[-1:]

    def _ranked(self, least: float) -> dict[str, float]:
        """Return the shares of an output's error of the nodes that can be changed, the largest first.

        Two samples tell an order; which edits help is measured on all.
        """
        shares = dict.fromkeys(self.catalog.units, 0.0)
        for output in self.session.budget(least=least, places=self.places[:2], parts=False).outputs:
            for node in output.nodes:
                unit = self.catalog.nodes.unit_of(node.node)
                if unit is not None and self._changeable(unit.node.name):
                    shares[unit.node.name] += node.share
                else:
                    self.beyond[node.node] = max(self.beyond.get(node.node, 0.0), node.share)
        return {name: shares[name] for name in sorted(shares, key=lambda name: -shares[name]) if shares[name]}

    def _changeable(self, name: str) -> bool:
        """Tell whether a node has an allowed edit; what takes longest to fit is asked for last."""
        changed = any(edit.unit.node.name == name for edit in self.found)
        return changed or any(self._open(name, (kind,)) for kind in reversed(list(KINDS)))

    def prune(self) -> bool:
        """Take edits out, and put cheaper ones in their place, as long as the goal is reached; tell if it was done.

        Half of them at once first, then a quarter, and so on: what is not needed goes in few tries.
        """
        size = len(self.found) // 2
        while size > 1:
            order = sorted(self.found, key=lambda each: -self.cost.of(each))
            for start in range(0, len(order), size):
                if self.clock.over():
                    return False
                part = order[start : start + size]
                self.told(f"without {len(part)} of {len(self.found)} edits", self._score(self.found).value)
                without = [each for each in self.found if each not in part]
                if self._score(without).value >= self.goal:
                    self.found[:] = without
            size //= 2
        changed = True
        while changed:
            changed = False
            for edit in sorted(self.found, key=lambda each: -self.cost.of(each)):
                if self.clock.over():
                    return False
                self.told(f"without {edit.name}", self._score(self.found).value)
                without = [each for each in self.found if each is not edit]
                cheaper = [each for each in self._open(edit.unit.node.name) if self.cost.of(each) < self.cost.of(edit)]
                sets = [without, *(_with(without, each) for each in cheaper)]
                pairs = zip(sets, self._scores(sets), strict=True)
                better = next((each for each, tried in pairs if tried.value >= self.goal), None)
                if better is not None:
                    self.found[:], changed = better, True
        return True


def _with(edits: Sequence[Edit], one: Edit) -> list[Edit]:
    """Return edits and one more, which takes the place of those that it undoes."""
    return [*(edit for edit in edits if not one.replaces(edit)), one]
