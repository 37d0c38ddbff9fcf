"""Find runs that tap tensors without changing them, where a runtime computes otherwise what is looked at.

A tap may keep a layer behind it from being fused. What was computed before that layer is still what the plain run
computes, and what is computed behind it is so as well if the layer gave the same bits. So a value is accepted if its
layer and all layers before it ran as in the plain run, or were shown to give what the plain run gives.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["PlainLayer", "TapSearch", "TappedRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLayer:
    """One layer of the run without taps.

    Args:
        reads: Places, in the sequence of layers, of those whose results it reads.
        results: Tensors that it makes, of those that can be tapped and the outputs.
        form: How it is computed: layers with equal forms give equal results for equal inputs.
    """

    reads: frozenset[int]
    results: tuple[str, ...]
    form: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class TappedRun:
    """What was seen of a run with taps.

    Args:
        taps: Tensors that were tapped.
        forms: How each layer of the plain run was computed.
        digests: Hash of the values of each tap and output, over all samples.
    """

    taps: tuple[str, ...]
    forms: Sequence[Hashable]
    digests: Mapping[str, bytes] = field(default_factory=dict)


class TapSearch:
    """Chooses what is tapped next, and knows which values are those of the plain run.

    Args:
        layers: The layers of the plain run, in topological order.
        taps: Tensors to tap, in topological order.
        outputs: Hash of each output of the plain run over all samples; none where plain runs differ from each other,
            whose values prove nothing.

    Attributes:
        proven: Hash of what the plain run gives, by tensor.
        refused: Tensors that cannot be tapped, not even alone, without changing what they are computed from.
    """

    def __init__(self, layers: Sequence[PlainLayer], taps: Sequence[str], outputs: Mapping[str, bytes]) -> None:
        self._layers = layers
        self._maker = {name: place for place, layer in enumerate(layers) for name in layer.results}
        self._taps = tuple(taps)
        self._steady = bool(outputs)
        self.proven: dict[str, bytes] = dict(outputs)
        self.refused: list[str] = []
        self._sound: list[set[Hashable]] = [{layer.form} for layer in layers]
        self._runs: list[TappedRun] = []
        self._tried: set[frozenset[str]] = set()
        self._blocks: dict[int, set[str]] = {}
        self._blamed: set[str] = set()

    @property
    def open(self) -> list[str]:
        """The tensors that are neither proven nor refused, in topological order."""
        return [name for name in self._taps if name not in self.proven and name not in self.refused]

    def choose(self) -> tuple[str, ...]:
        """Return the taps of the next run; none if nothing is left to be tapped.

        What no layer is known to be disturbed by comes first. Once it is known, it is tapped again together with what
        disturbs: it shows how far that reaches.
        """
        while left := self.open:
            harmless = [name for name in left if name not in self._blamed]
            chosen = harmless or self._independent(left)
            shields = [] if harmless else [name for name in self._taps if self._is_shield(name)]
            while frozenset((*chosen, *shields)) in self._tried and len(chosen) > 1:
                chosen = chosen[: (len(chosen) + 1) // 2]
            if frozenset((*chosen, *shields)) not in self._tried:
                self._tried.add(frozenset((*chosen, *shields)))
                return tuple(sorted((*chosen, *shields), key=self._taps.index))
            self.refused.append(chosen[0])
        return ()

    def _is_shield(self, name: str) -> bool:
        return name in self.proven and name not in self._blamed

    def _independent(self, names: Sequence[str]) -> list[str]:
        """Return taps none of which is known to disturb the layer that makes another one.

        Results of layers that taps disturb come first: once they are known, they show in which runs that was harmless.
        """
        blocks = {name: self._blocks.get(self._maker.get(name, -1), set()) for name in names}
        chosen: list[str] = []
        blocked: set[str] = set()
        for name in sorted(names, key=lambda name: not blocks[name]):
            if name not in blocked and blocks[name].isdisjoint(chosen):
                chosen.append(name)
                blocked |= blocks[name]
        return chosen

    def expected(self, run: TappedRun) -> list[str]:
        """Return the taps and outputs that a run computes as the plain one does, as far as its layers tell."""
        good = self._good(run)
        return [name for name in (*run.taps, *self.proven) if self._is_good(name, good)]

    def trusted(self, run: TappedRun) -> list[bool]:
        """Tell of each layer whether its results in a run are those of the plain run, as far as is known."""
        return self._good(run)

    def take(self, run: TappedRun) -> None:
        """Learn from a run all of whose expected outputs were those of the plain one."""
        again = {name for name in run.taps if name in self._blamed}
        disturbed = [place for place in range(len(self._layers)) if run.forms[place] not in self._sound[place]]
        for place in disturbed:
            read = self._results(self._layers[place].reads).intersection(run.taps)
            self._blocks.setdefault(place, set()).update(read)
            near = read | self._results([place]).intersection(run.taps)
            self._blamed.update(near or self._behind(place).intersection(run.taps))
        self._runs.append(run)
        while self._settle():
            pass
        for place in disturbed:  # by its own tap, or one behind it, if no other that is known to disturb is near
            guilty = self._results([place]).intersection(run.taps) or self._behind(place).intersection(run.taps)
            if self._blamed.isdisjoint(self._results(self._layers[place].reads).intersection(run.taps)):
                self.refused += [name for name in self._taps if name in guilty & again and name in self.open]

    def _behind(self, place: int) -> set[str]:
        """Return the nearest results downstream of a layer: a tap there may keep the runtime from fusing the layer."""
        reached, found = {place}, set[str]()
        for other in range(place + 1, len(self._layers)):
            if not reached.isdisjoint(self._layers[other].reads):
                found |= self._results([other])
                if not self._layers[other].results:
                    reached.add(other)
        return found

    def _results(self, places: Iterable[int]) -> set[str]:
        return {name for place in places for name in self._layers[place].results}

    def best_run(self, names: Sequence[str]) -> tuple[TappedRun, list[str]] | None:
        """Return the run that gave most of some proven tensors as the plain run does, and which; None if none did."""
        found = [
            (run, [name for name in names if name in run.taps and run.digests.get(name) == self.proven[name]])
            for run in self._runs
        ]
        best = max(found, key=lambda each: len(each[1]), default=None)
        return best if best is not None and best[1] else None

    def _is_good(self, name: str, good: Sequence[bool]) -> bool:
        place = self._maker.get(name)
        return place is not None and good[place]

    def _good(self, run: TappedRun) -> list[bool]:
        """Tell of each layer whether its results in a run are those of the plain run.

        All are taken to be until one is not: a state is right at a step if all was right at the steps before.
        """
        shown = [self._is_shown(place, run) for place in range(len(self._layers))]
        good = [True] * len(self._layers)
        changed = True
        while changed:
            changed = False
            for place, layer in enumerate(self._layers):
                if not good[place] or shown[place]:
                    continue
                if run.forms[place] not in self._sound[place] or not all(good[before] for before in layer.reads):
                    good[place], changed = False, True
        return good

    def _is_shown(self, place: int, run: TappedRun) -> bool:
        """Tell whether all results of a layer were seen in a run and are those of the plain run."""
        results = self._layers[place].results
        return (
            self._steady
            and bool(results)
            and all(name in run.digests and run.digests[name] == self.proven.get(name) for name in results)
        )

    def _settle(self) -> bool:
        """Draw conclusions from all runs once; tell whether there were any."""
        new = False
        for run in self._runs:
            good = self._good(run)
            for place, layer in enumerate(self._layers):
                if not good[place]:
                    continue
                for name in layer.results:
                    if name in run.taps and name not in self.proven:
                        self.proven[name], new = run.digests[name], True
                if run.forms[place] not in self._sound[place] and all(good[before] for before in layer.reads):
                    self._sound[place].add(run.forms[place])
                    new = True
        return new
