"""The input of a check of the two graphs: a compared tensor and its upstream nodes in either graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.attribute.segments import Segment, main_node
from qdebug.compare.graph_checks.spelling import normalize_attributes
from qdebug.model import Node, Recording
from qdebug.numerics.accumulate import has_same_elements
from qdebug.replay.real_form import real_form

__all__ = ["TensorFacts", "is_same_shape_but_ones"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorFacts:
    """A compared tensor and its upstream nodes in either graph.

    Args:
        ref: The reference run.
        be: The backend run.
        replays: Replays the reference's nodes on the backend's recorded inputs.
        reproducer: Searches for the arithmetic of the backend's nodes.
        entry: The compared tensor.
        node: The backend node that computes it.
        segment: The nodes upstream of it in either graph.
    """

    ref: IndexedRecording
    be: IndexedRecording
    replays: ReferenceReplay
    reproducer: ReproductionCheck
    entry: PlannedNode
    node: Node
    segment: Segment

    @property
    def reference(self) -> Recording:
        """The recording of the reference run."""
        return self.ref.recording

    @property
    def backend(self) -> Recording:
        """The recording of the backend run."""
        return self.be.recording

    @cached_property
    def places(self) -> Sequence[tuple[int, int]]:
        """The samples and steps recorded on both sides."""
        return tuple(recorded_places(self.reference, self.backend, self.entry))

    @cached_property
    def main(self) -> Node | None:
        """The reference node with the same operator, or None if there is none or several backend nodes are judged."""
        return None if self.segment.has_several_nodes else main_node(self.node, self.segment)

    def backend_form(self, node: Node) -> Node:
        """Return the real-valued form of a backend node, with normalized attributes."""
        return normalize_attributes(self.backend, real_form(node, self.backend.graph.opset)[0])

    def reference_form(self, node: Node) -> Node:
        """Return the real-valued form of a reference node, with normalized attributes."""
        return normalize_attributes(self.reference, real_form(node, self.reference.graph.opset)[0])

    def reference_replay(
        self,
        place: tuple[int, int],
        *,
        rounded: Callable[[np.ndarray], np.ndarray] | None = None,
        after: Callable[[str, np.ndarray], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Replay the reference's nodes on the backend's inputs, see `ReferenceReplay.values`."""
        return self.replays.values(self.entry.pair, self.segment, place, rounded=rounded, after=after)

    def rounding_noise(self, place: tuple[int, int], *, on_codes: bool = False) -> np.ndarray:
        """Estimate the rounding error of each element, see `ReferenceReplay.rounding_noise`."""
        return self.replays.rounding_noise(self.entry.pair, self.segment, place, on_codes=on_codes)

    def with_rounded_weight(self, place: tuple[int, int]) -> np.ndarray | None:
        """Replay the reference's nodes with the backend's weight, see `ReferenceReplay.with_rounded_weight`."""
        return self.replays.with_rounded_weight(self.entry.pair, self.segment, place)


def is_same_shape_but_ones(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether two shapes are equal except for extra dimensions of extent 1 in one of them.

    If neither has extra dimensions, a dimension of extent 1 in a different position means a reduction along a different
    axis.
    """
    return has_same_elements(first, second) and (len(first) != len(second) or first == second)
