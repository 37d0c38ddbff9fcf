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
        layers_read: Indices of the layers whose results it reads.
        results: Its tappable results and outputs.
        form: Its kind of computation. Layers with equal forms give equal results for equal inputs.
    """

    layers_read: frozenset[int]
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
        proven_digests: Hash of the plain run's values, by tensor.
        refused_taps: Tensors whose tapping, even alone, changes their inputs.
    """

    def __init__(self, layers: Sequence[PlainLayer], taps: Sequence[str], outputs: Mapping[str, bytes]) -> None:
        self._layers = layers
        self._layer_of = {name: place for place, layer in enumerate(layers) for name in layer.results}
        self._taps = tuple(taps)
        self._is_steady = bool(outputs)
        self.proven_digests: dict[str, bytes] = dict(outputs)
        self.refused_taps: list[str] = []
        self._equal_forms: list[set[Hashable]] = [{layer.form} for layer in layers]
        self._runs: list[TappedRun] = []
        self._sets_tried: set[frozenset[str]] = set()
        self._taps_disturbing: dict[int, set[str]] = {}
        self._suspects: set[str] = set()

    @property
    def open_taps(self) -> list[str]:
        """The tensors that are not yet proven or refused, in topological order."""
        return [name for name in self._taps if name not in self.proven_digests and name not in self.refused_taps]

    def choose_taps(self) -> tuple[str, ...]:
        """Return the taps of the next run; empty if nothing is left to tap.

        Tensors that are not disturbed by a known tap come first. A proven tensor is tapped again together with the taps
        that disturb it, to show how far their effect reaches.
        """
        while open_taps := self.open_taps:
            unsuspected = [name for name in open_taps if name not in self._suspects]
            taps = unsuspected or self._independent_taps(open_taps)
            shield_taps = [] if unsuspected else [name for name in self._taps if self._is_shield(name)]
            while frozenset((*taps, *shield_taps)) in self._sets_tried and len(taps) > 1:
                taps = taps[: (len(taps) + 1) // 2]
            if frozenset((*taps, *shield_taps)) not in self._sets_tried:
                self._sets_tried.add(frozenset((*taps, *shield_taps)))
                return tuple(sorted((*taps, *shield_taps), key=self._taps.index))
            self.refused_taps.append(taps[0])
        return ()

    def _is_shield(self, name: str) -> bool:
        return name in self.proven_digests and name not in self._suspects

    def _independent_taps(self, names: Sequence[str]) -> list[str]:
        """Return taps that are not known to disturb each other's layers.

        Results of disturbed layers come first. Once proven, they show in which runs the disturbance was harmless.
        """
        disturbers = {name: self._taps_disturbing.get(self._layer_of.get(name, -1), set()) for name in names}
        taps: list[str] = []
        blocked_taps: set[str] = set()
        for name in sorted(names, key=lambda name: not disturbers[name]):
            if name not in blocked_taps and disturbers[name].isdisjoint(taps):
                taps.append(name)
                blocked_taps |= disturbers[name]
        return taps

    def expected_equal(self, run: TappedRun) -> list[str]:
        """Return the taps and outputs of a run that should equal the plain run's, judging by the layers."""
        is_trusted = self._trusted_layers(run)
        return [name for name in (*run.taps, *self.proven_digests) if self._is_in_trusted_layer(name, is_trusted)]

    def trusted_layers(self, run: TappedRun) -> list[bool]:
        """Return for each layer whether its results in a run are known to equal the plain run's."""
        return self._trusted_layers(run)

    def add_run(self, run: TappedRun) -> None:
        """Learn from a run in which all expected outputs equal the plain ones."""
        blamed_again = {name for name in run.taps if name in self._suspects}
        disturbed_layers = [
            layer for layer in range(len(self._layers)) if run.forms[layer] not in self._equal_forms[layer]
        ]
        for layer in disturbed_layers:
            tapped_inputs = self._results_of(self._layers[layer].layers_read).intersection(run.taps)
            self._taps_disturbing.setdefault(layer, set()).update(tapped_inputs)
            tapped_nearby = tapped_inputs | self._results_of([layer]).intersection(run.taps)
            self._suspects.update(tapped_nearby or self._nearest_results_after(layer).intersection(run.taps))
        self._runs.append(run)
        while self._draw_conclusions():
            pass
        # A tensor is disturbed by its own tap or by a later one, unless a tap that is known to disturb is close.
        for layer in disturbed_layers:
            suspect_taps = self._results_of([layer]).intersection(run.taps) or self._nearest_results_after(
                layer
            ).intersection(run.taps)
            if self._suspects.isdisjoint(self._results_of(self._layers[layer].layers_read).intersection(run.taps)):
                self.refused_taps += [
                    name for name in self._taps if name in suspect_taps & blamed_again and name in self.open_taps
                ]

    def _nearest_results_after(self, layer: int) -> set[str]:
        """Return the nearest results downstream of a layer, where taps may prevent its fusion."""
        layers_reached, results = {layer}, set[str]()
        for later_layer in range(layer + 1, len(self._layers)):
            if not layers_reached.isdisjoint(self._layers[later_layer].layers_read):
                results |= self._results_of([later_layer])
                if not self._layers[later_layer].results:
                    layers_reached.add(later_layer)
        return results

    def _results_of(self, layers: Iterable[int]) -> set[str]:
        return {name for layer in layers for name in self._layers[layer].results}

    def best_run(self, names: Sequence[str]) -> tuple[TappedRun, list[str]] | None:
        """Return the run that contains the most of the given proven tensors, and these tensors; None without one."""
        candidates = [
            (run, [name for name in names if name in run.taps and run.digests.get(name) == self.proven_digests[name]])
            for run in self._runs
        ]
        best_candidate = max(candidates, key=lambda candidate: len(candidate[1]), default=None)
        return best_candidate if best_candidate is not None and best_candidate[1] else None

    def _is_in_trusted_layer(self, name: str, is_trusted: Sequence[bool]) -> bool:
        layer = self._layer_of.get(name)
        return layer is not None and is_trusted[layer]

    def _trusted_layers(self, run: TappedRun) -> list[bool]:
        """Return for each layer whether its results in a run equal the plain run's.

        They do until one fails. A state is correct at a step if everything was correct at the steps before.
        """
        is_shown = [self._is_shown(place, run) for place in range(len(self._layers))]
        is_trusted = [True] * len(self._layers)
        has_changed = True
        while has_changed:
            has_changed = False
            for place, layer in enumerate(self._layers):
                if not is_trusted[place] or is_shown[place]:
                    continue
                if run.forms[place] not in self._equal_forms[place] or not all(
                    is_trusted[layer_before] for layer_before in layer.layers_read
                ):
                    is_trusted[place], has_changed = False, True
        return is_trusted

    def _is_shown(self, place: int, run: TappedRun) -> bool:
        """Return whether all results of a layer were tapped in a run and equal the plain run's."""
        results = self._layers[place].results
        return (
            self._is_steady
            and bool(results)
            and all(name in run.digests and run.digests[name] == self.proven_digests.get(name) for name in results)
        )

    def _draw_conclusions(self) -> bool:
        """Draw conclusions from all runs once. Return whether there were any."""
        has_news = False
        for run in self._runs:
            is_trusted = self._trusted_layers(run)
            for place, layer in enumerate(self._layers):
                if not is_trusted[place]:
                    continue
                for name in layer.results:
                    if name in run.taps and name not in self.proven_digests:
                        self.proven_digests[name], has_news = run.digests[name], True
                if run.forms[place] not in self._equal_forms[place] and all(
                    is_trusted[layer_before] for layer_before in layer.layers_read
                ):
                    self._equal_forms[place].add(run.forms[place])
                    has_news = True
        return has_news
