"""Compares the declared computation of a backend's nodes with the reference's nodes on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qdebug.arithmetic.reproduce import ReproductionCheck
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.compare.attribute.segments import SegmentFinder
from qdebug.compare.graph_checks.chosen_scale import ChosenScale, chooses_scale
from qdebug.compare.graph_checks.one_node import OneNode
from qdebug.compare.graph_checks.several_nodes import SeveralNodes
from qdebug.compare.graph_checks.tensor_check import TensorCheck
from qdebug.compare.graph_checks.tensor_facts import TensorFacts
from qdebug.model import Recording

__all__ = ["GraphCheck"]


class GraphCheck:
    """Compares both graphs, and finds the nodes upstream of each compared tensor.

    Args:
        reference: The reference run.
        backend: The backend run.
        pairs: All pairs of the alignment.
        runs: Known facts about both graphs. Derived from the recordings if None.
        reproducer: Searches for the arithmetic of the backend's nodes. Created if None.
        count_steps: Returns how many steps are stacked along the first axis at a place. None if each place is one step.

    Attributes:
        replays: Replays the reference's nodes on the backend's recorded inputs.
    """

    def __init__(
        self,
        reference: Recording,
        backend: Recording,
        pairs: Sequence[Pair],
        *,
        runs: tuple[IndexedRecording, IndexedRecording] | None = None,
        reproducer: ReproductionCheck | None = None,
        count_steps: Callable[[tuple[int, int]], int] | None = None,
    ) -> None:
        self._reproducer = reproducer or ReproductionCheck(backend)
        indexed_runs = runs or (IndexedRecording.of(reference), IndexedRecording.of(backend))
        ref, be = indexed_runs[0].read_through(reference), indexed_runs[1].read_through(backend)
        self.replays = ReferenceReplay(ref, be, pairs, count_steps=count_steps)
        self._segments = SegmentFinder(ref, be, self.replays.pairs)

    def of(self, entry: PlannedNode) -> TensorCheck | None:
        """Return the check of a compared tensor against the reference's nodes, or None if its nodes are unknown."""
        replays = self.replays
        node = replays.be.recording.graph.producer(entry.tensor)
        segment = None if node is None else self._segments.of(entry.pair)
        if node is None or segment is None:
            return None
        facts = TensorFacts(
            ref=replays.ref,
            be=replays.be,
            replays=replays,
            reproducer=self._reproducer,
            entry=entry,
            node=node,
            segment=segment,
        )
        check = SeveralNodes(facts) if segment.has_several_nodes else OneNode(facts)
        return ChosenScale(facts, check) if chooses_scale(facts) else check
