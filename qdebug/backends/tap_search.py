"""Find taps that do not change the values they record, for runtimes in which a tap may change a layer's kernel.

A tap may prevent the fusion of a layer downstream. Layers upstream of that layer still compute the plain run's values,
and so do layers downstream of it if its own results are bitwise equal. So a value is accepted if its layer and all
layers upstream ran as in the plain run, or are proven to have given equal results.
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
        forms: How this run computed each layer of the plain run.
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
        self._layer_of = {name: index for index, layer in enumerate(layers) for name in layer.results}
        self._taps = tuple(taps)
        self._has_deterministic_outputs = bool(outputs)
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
            confirming_taps = [] if unsuspected else [name for name in self._taps if self._can_confirm(name)]
            while frozenset((*taps, *confirming_taps)) in self._sets_tried and len(taps) > 1:
                taps = taps[: (len(taps) + 1) // 2]
            if frozenset((*taps, *confirming_taps)) not in self._sets_tried:
                self._sets_tried.add(frozenset((*taps, *confirming_taps)))
                return tuple(sorted((*taps, *confirming_taps), key=self._taps.index))
            self.refused_taps.append(taps[0])
        return ()

    def _can_confirm(self, name: str) -> bool:
        """Return whether a tap can confirm a layer: its plain values are known, and it is not a suspect."""
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

    def names_expected_equal(self, run: TappedRun) -> list[str]:
        """Return the taps and outputs of a run that should equal the plain run's, judging by the layers."""
        is_trusted = self._trusted_layers(run)
        return [name for name in (*run.taps, *self.proven_digests) if self._is_in_trusted_layer(name, is_trusted)]

    def trusted_layers(self, run: TappedRun) -> list[bool]:
        """Return for each layer whether its results in a run are known to equal the plain run's."""
        return self._trusted_layers(run)

    def add_run(self, run: TappedRun) -> None:
        """Add a run whose trusted outputs all equal the plain run's, and draw conclusions from it."""
        repeated_suspects = {name for name in run.taps if name in self._suspects}
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
        # A layer is disturbed by a tap on its own results or, without one, by a tap downstream. Such a tap is refused
        # when it is suspected a second time, unless a tapped input of the layer is a suspect too.
        for layer in disturbed_layers:
            suspect_taps = self._results_of([layer]).intersection(run.taps) or self._nearest_results_after(
                layer
            ).intersection(run.taps)
            if self._suspects.isdisjoint(self._results_of(self._layers[layer].layers_read).intersection(run.taps)):
                self.refused_taps += [
                    name for name in self._taps if name in suspect_taps & repeated_suspects and name in self.open_taps
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
        """Return the run that tapped the most of the given proven tensors, and those; None if no run tapped any."""
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

        All layers are trusted at first. A layer loses trust if its form is not known to give equal results, or if it
        reads a layer without trust. This also holds for cycles through a state, since a state is correct at a step if
        everything was correct at the steps before.
        """
        is_confirmed = [self._is_confirmed(index, run) for index in range(len(self._layers))]
        is_trusted = [True] * len(self._layers)
        has_changed = True
        while has_changed:
            has_changed = False
            for index, layer in enumerate(self._layers):
                if not is_trusted[index] or is_confirmed[index]:
                    continue
                if run.forms[index] not in self._equal_forms[index] or not all(
                    is_trusted[layer_before] for layer_before in layer.layers_read
                ):
                    is_trusted[index], has_changed = False, True
        return is_trusted

    def _is_confirmed(self, index: int, run: TappedRun) -> bool:
        """Return whether a run has digests of all results of a layer, and all equal the plain run's."""
        results = self._layers[index].results
        return (
            self._has_deterministic_outputs
            and bool(results)
            and all(name in run.digests and run.digests[name] == self.proven_digests.get(name) for name in results)
        )

    def _draw_conclusions(self) -> bool:
        """Pass over all runs once, and add proven values and forms. Return whether any were added."""
        has_progress = False
        for run in self._runs:
            is_trusted = self._trusted_layers(run)
            for index, layer in enumerate(self._layers):
                if not is_trusted[index]:
                    continue
                for name in layer.results:
                    if name in run.taps and name not in self.proven_digests:
                        self.proven_digests[name], has_progress = run.digests[name], True
                if run.forms[index] not in self._equal_forms[index] and all(
                    is_trusted[layer_before] for layer_before in layer.layers_read
                ):
                    self._equal_forms[index].add(run.forms[index])
                    has_progress = True
        return has_progress
