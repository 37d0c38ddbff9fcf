"""Find runs that tap tensors without changing them, for runtimes that compute tapped tensors differently.

A tap may prevent a later layer from being fused. Layers before that layer still compute the plain run's values, and so
do later layers if that layer gave equal bits. So a value is accepted if its layer and all layers before it ran as in
the plain run, or are proven to have given equal results.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["PlainLayer", "TapSearch", "TappedRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLayer:
    """One layer of the run without taps.

    Args:
        reads: Indices of the layers whose results it reads.
        results: Its tappable results and outputs.
        form: Its kind of computation. Layers with equal forms give equal results for equal inputs.
    """

    reads: frozenset[int]
    results: tuple[str, ...]
    form: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class TappedRun:
    """Observations of a run with taps.

    Args:
        taps: The tapped tensors.
        forms: The computation of each layer of the plain run.
        digests: Hash of the values of each tap and output, over all samples.
    """

    taps: tuple[str, ...]
    forms: Sequence[Hashable]
    digests: Mapping[str, bytes] = field(default_factory=dict)


class TapSearch:
    """Chooses the next taps, and tracks which values equal the plain run's.

    Args:
        layers: The layers of the plain run, in topological order.
        taps: Tensors to tap, in topological order.
        outputs: Hash of each output of the plain run over all samples; nondeterministic outputs are left out, since
            they prove nothing.

    Attributes:
        proven: Hash of the plain run's values, by tensor.
        refused: Tensors whose tapping, even alone, changes their inputs.
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
        """The tensors that are not yet proven or refused, in topological order."""
        return [name for name in self._taps if name not in self.proven and name not in self.refused]

    def choose(self) -> tuple[str, ...]:
        """Return the taps of the next run; empty if nothing is left to tap.

        Tensors that are not disturbed by a known tap come first. A proven tensor is tapped again together with the taps
        that disturb it, to show how far their effect reaches.
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
        """Return taps that are not known to disturb each other's layers.

        Results of disturbed layers come first. Once proven, they show in which runs the disturbance was harmless.
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
        """Return the taps and outputs of a run that should equal the plain run's, judging by the layers."""
        good = self._trusted_layers(run)
        return [name for name in (*run.taps, *self.proven) if self._is_good(name, good)]

    def trusted(self, run: TappedRun) -> list[bool]:
        """Return for each layer whether its results in a run are known to equal the plain run's."""
        return self._trusted_layers(run)

    def take(self, run: TappedRun) -> None:
        """Learn from a run in which all expected outputs equal the plain ones."""
        blamed_again = {name for name in run.taps if name in self._blamed}
        disturbed = [place for place in range(len(self._layers)) if run.forms[place] not in self._sound[place]]
        for place in disturbed:
            tapped_inputs = self._results(self._layers[place].reads).intersection(run.taps)
            self._blocks.setdefault(place, set()).update(tapped_inputs)
            tapped_nearby = tapped_inputs | self._results([place]).intersection(run.taps)
            self._blamed.update(tapped_nearby or self._nearest_results_after(place).intersection(run.taps))
        self._runs.append(run)
        while self._settle():
            pass
        # a tensor is disturbed by its own tap or a later one, unless a known disturber is close
        for place in disturbed:
            guilty = self._results([place]).intersection(run.taps) or self._nearest_results_after(place).intersection(
                run.taps
            )
            if self._blamed.isdisjoint(self._results(self._layers[place].reads).intersection(run.taps)):
                self.refused += [name for name in self._taps if name in guilty & blamed_again and name in self.open]

    def _nearest_results_after(self, place: int) -> set[str]:
        """Return the nearest results downstream of a layer, where taps may prevent its fusion."""
        reached, results = {place}, set[str]()
        for later in range(place + 1, len(self._layers)):
            if not reached.isdisjoint(self._layers[later].reads):
                results |= self._results([later])
                if not self._layers[later].results:
                    reached.add(later)
        return results

    def _results(self, places: Iterable[int]) -> set[str]:
        return {name for place in places for name in self._layers[place].results}

    def best_run(self, names: Sequence[str]) -> tuple[TappedRun, list[str]] | None:
        """Return the run that contains the most of the given proven tensors, and these tensors; None without one."""
        candidates = [
            (run, [name for name in names if name in run.taps and run.digests.get(name) == self.proven[name]])
            for run in self._runs
        ]
        best = max(candidates, key=lambda each: len(each[1]), default=None)
        return best if best is not None and best[1] else None

    def _is_good(self, name: str, good: Sequence[bool]) -> bool:
        place = self._maker.get(name)
        return place is not None and good[place]

    def _trusted_layers(self, run: TappedRun) -> list[bool]:
        """Return for each layer whether its results in a run equal the plain run's.

        They do until one fails. A state is correct at a step if everything was correct at the steps before.
        """
        is_shown = [self._is_shown(place, run) for place in range(len(self._layers))]
        good = [True] * len(self._layers)
        changed = True
        while changed:
            changed = False
            for place, layer in enumerate(self._layers):
                if not good[place] or is_shown[place]:
                    continue
                if run.forms[place] not in self._sound[place] or not all(good[before] for before in layer.reads):
                    good[place], changed = False, True
        return good

    def _is_shown(self, place: int, run: TappedRun) -> bool:
        """Return whether all results of a layer were tapped in a run and equal the plain run's."""
        results = self._layers[place].results
        return (
            self._steady
            and bool(results)
            and all(name in run.digests and run.digests[name] == self.proven.get(name) for name in results)
        )

    def _settle(self) -> bool:
        """Draw conclusions from all runs once. Return whether there were any."""
        new = False
        for run in self._runs:
            good = self._trusted_layers(run)
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
