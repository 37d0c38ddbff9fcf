"""The two aligned runs, and evidence that several tensors share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.align.bare_run import OnGraphOf
from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.buffers import tensors_by_bytes
from qdebug.compare.attribute.equalized import EqualizedChannels
from qdebug.compare.attribute.error_effect import ErrorEffect
from qdebug.compare.attribute.readers import ComparedReaders
from qdebug.compare.attribute.segments import Segment
from qdebug.compare.evidence.rounded_network import FormatLoss, losses_by_rounding
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.compare import Comparison, compare_pair
from qdebug.compare.measure.inputs import InputDifference, different_inputs
from qdebug.compare.stacked_steps import StackedRuns, stack_steps
from qdebug.model import Recording
from qdebug.numerics.short_formats import format_of

__all__ = ["Runs"]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Two aligned runs, with the objects that examine them.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs, by backend tensor.
        graphs: Compares the two graphs.
        reproducer: Searches for the arithmetic of the backend's nodes.
        reference_reproducer: Searches for the arithmetic of the reference's nodes.
    """

    reference: Recording
    backend: Recording
    pairs: Mapping[str, Pair]
    graphs: GraphCheck
    reproducer: ReproductionCheck
    reference_reproducer: ReproductionCheck

    @cached_property
    def stacked(self) -> StackedRuns | None:
        """Both runs with the steps of a stateful network stacked, or None if they cannot be."""
        return stack_steps(self.graphs, self.pairs.values())

    @cached_property
    def on_reference_graph(self) -> OnGraphOf:
        """The backend run, which recorded no graph, presented on the reference's graph."""
        return OnGraphOf(self.backend, self.reference, self.pairs.values())

    @cached_property
    def error_effect(self) -> ErrorEffect:
        """Follows wrong values to the tensors that depend on them."""
        return ErrorEffect(self.graphs.replays, self.readers)

    @cached_property
    def equalized(self) -> EqualizedChannels:
        """Follows channel factors to the tensors in which they are undone."""
        return EqualizedChannels(self.graphs.replays, self.readers)

    @cached_property
    def readers(self) -> ComparedReaders:
        """Looks up the compared tensors that depend on a compared tensor."""
        return ComparedReaders(self.graphs.replays)

    @cached_property
    def _tensors_by_place(self) -> dict[tuple[int, int], Mapping[tuple[str, bytes], list[str]]]:
        return {}

    def tensors_by_bytes(self, place: tuple[int, int]) -> Mapping[tuple[str, bytes], list[str]]:
        """Return the backend's tensors of a sample and step by dtype and hash of their elements."""
        if place not in self._tensors_by_place:
            self._tensors_by_place[place] = tensors_by_bytes(self.backend, place)
        return self._tensors_by_place[place]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Comparisons made so far, by backend tensor."""
        return {}

    def error_of(self, tensor: str) -> Comparison | None:
        """Return the cached comparison of a backend tensor with its partner, or None if it has no partner."""
        if tensor not in self.pairs:
            return None
        if tensor not in self.comparisons:
            self.store_comparison(tensor, compare_pair(self.reference, self.backend, self.pairs[tensor]))
        return self.comparisons[tensor]

    def errors_of_inputs(self, segment: Segment) -> Iterator[Comparison]:
        """Yield the comparisons of a segment's inputs with their partners."""
        return filter(None, map(self.error_of, segment.feeds.values()))

    @cached_property
    def _format_losses(self) -> dict[tuple[str, tuple[int, int]], Mapping[str, FormatLoss]]:
        return {}

    def format_loss(self, backend_tensor: str, place: tuple[int, int]) -> FormatLoss | None:
        """Return the error that the short format of a backend tensor causes by itself, see `losses_by_rounding`.

        None if its values are in no short format, or if the reference cannot be replayed.
        """
        pair = self.pairs.get(backend_tensor)
        has_values = pair is not None and self.backend.has(backend_tensor, *place)
        short = format_of(self.backend.load(backend_tensor, *place)) if has_values else None
        if pair is None or short is None:
            return None
        key = short.name, place
        if key not in self._format_losses:
            self._format_losses[key] = losses_by_rounding(self.reference, self.backend, self.pairs, short, place)
        return self._format_losses[key].get(pair.reference)

    def store_comparison(self, tensor: str, comparison: Comparison) -> None:
        """Store a comparison for the nodes that read the tensor."""
        self.comparisons[tensor] = comparison
        if max(self.reference.steps, self.backend.steps) == 1:
            differing = (
                sample_comparison.sample
                for sample_comparison in comparison.samples
                if sample_comparison.stats.mismatches
            )
            self.graphs.replays.unequal.update((tensor, sample) for sample in differing)

    @cached_property
    def different_inputs(self) -> Mapping[str, InputDifference]:
        """The network inputs that differ between the two runs, by backend tensor."""
        return {
            difference.tensor: difference
            for difference in different_inputs(self.reference, self.backend, self.pairs.values())
        }
