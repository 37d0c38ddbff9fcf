"""Steps of a stateful network stacked along the first axis, so that a node is replayed once for many steps.

A recording has the states of every step, so the replay of a step depends on no other step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.compare.align.layouts import in_one_order
from qdebug.compare.align.pairs import Pair, Transform
from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.attribute.backend_replay import replay
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.graph_checks.chosen_scale import chooses_scale
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.graph_checks.tensor_check import TensorCheck
from qdebug.compare.measure.recordings import RecentTensors
from qdebug.compare.own_error import ErrorReplay, Stack, own_error
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Recording
from qdebug.model.kept import Kept
from qdebug.model.recording import Outline
from qdebug.model.view import View
from qdebug.numerics.checkpoint import checkpoint
from qdebug.numerics.stats import ErrorStats
from qdebug.replay.stacked import is_stack

__all__ = ["StackedRuns", "StackedSteps", "stack_steps"]

_MAX_ELEMENTS = 1 << 16
"""Largest number of elements of a stacked tensor. More elements gain little, since each call then takes longer."""
_MAX_BYTES = 1 << 26
"""Size of the stacked tensors that are kept of each run, since several nodes read them."""


class StackedSteps(View):
    """A recording in which consecutive steps of a sample are one step, stacked along the first axis.

    Args:
        recording: The recording. Its steps have the same shapes.
        block: Number of steps to stack; the last step of the view may have fewer.
    """

    def __init__(self, recording: Recording, block: int) -> None:
        super().__init__(recording)
        self._block = block
        self._outlines: dict[tuple[str, int, int], Outline | None] = {}

    @property
    def steps(self) -> int:
        """Number of stacks in a sample."""
        return math.ceil(super().steps / self._block)

    def steps_at(self, step: int) -> range:
        """Return the recorded steps of a stack."""
        return range(step * self._block, min((step + 1) * self._block, super().steps))

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and stacks with a record of the tensor (by default of any tensor), in order."""
        places = super().places(tensor)
        return tuple(dict.fromkeys((sample, step // self._block) for sample, step in places))

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether a tensor has values for all steps of a stack."""
        if self.graph.is_constant(tensor):
            return super().has(tensor, sample, step)
        steps = self.steps_at(step)
        return bool(steps) and all(super(StackedSteps, self).has(tensor, sample, at) for at in steps)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the elements of all steps of a stack, read-only.

        Raises:
            KernelError: The tensor has no axis to stack along, or its shape varies.
            RecordingError: No values are recorded under this name, sample and step.
        """
        if self.graph.is_constant(tensor):
            return super().load(tensor, sample, step)
        arrays = [super(StackedSteps, self).load(tensor, sample, at) for at in self.steps_at(step)]
        if not arrays[0].ndim or any(
            (array.shape, array.dtype) != (arrays[0].shape, arrays[0].dtype) for array in arrays
        ):
            raise KernelError(f"The steps of {tensor!r} cannot be stacked.")
        stacked = np.concatenate(arrays)
        stacked.flags.writeable = False
        return stacked

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of the first step of a stack, or None."""
        return super().kept(tensor, sample, step if self.graph.is_constant(tensor) else step * self._block)

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype and shape of a stack, or None if unknown."""
        if self.graph.is_constant(tensor):
            return self._recording.outline(tensor, sample, step)
        key = tensor, sample, step
        if key not in self._outlines:
            self._outlines[key] = _join_outlines(
                [self._recording.outline(tensor, sample, at) for at in self.steps_at(step)]
            )
        return self._outlines[key]


class StackedRuns:
    """Two runs with stacked steps. Each node is checked to give the same results for a stack as for its steps.

    Args:
        graphs: Compares the two graphs, step by step.
        pairs: All pairs of the alignment.
        block: Number of steps to stack.
    """

    def __init__(self, graphs: GraphCheck, pairs: Sequence[Pair], block: int) -> None:
        self._steps = graphs
        indexes = graphs.replays.ref, graphs.replays.be
        views = [
            RecentTensors(StackedSteps(index.recording, block), max_bytes=_MAX_BYTES, max_tensor_bytes=_MAX_BYTES // 8)
            for index in indexes
        ]
        self._view = StackedSteps(indexes[0].recording, block)
        self.graphs = GraphCheck(
            views[0], views[1], pairs, runs=indexes, count_steps=lambda place: len(self._view.steps_at(place[1]))
        )
        self._checks: dict[str, TensorCheck | None] = {}
        self._extents: dict[str, int] = {}  # first extent of a step, in the dimension order of the comparison
        self._mixing_nodes: dict[str, bool] = {}

    @property
    def places(self) -> Iterator[tuple[int, int]]:
        """Samples and stacks."""
        return ((sample, step) for sample in range(self._view.samples) for step in range(self._view.steps))

    def attribution(self, entry: PlannedNode) -> Attribution | None:
        """Split a tensor's error as `TensorCheck.attribution` does, or return None if its steps cannot be stacked."""
        check = self._check_of(entry)
        attribution = None if check is None else check.attribution()
        if check is None or attribution is None or attribution.introduced is None:
            return None
        return _with_index_in_step(attribution, self._extents[entry.tensor])

    def of(self, entry: PlannedNode) -> tuple[Recording, Recording, Sequence[tuple[int, int]]] | None:
        """Return the stacked runs and the places of a tensor, or None if its steps cannot be stacked."""
        check = self._check_of(entry)
        return None if check is None else (check.facts.reference, check.facts.backend, check.facts.places)

    def own_error(self, entry: PlannedNode, place: tuple[int, int]) -> np.ndarray:
        """Return a tensor's own error in all steps of a stack. Raises the same exceptions as `own_error`."""
        if self._check_of(entry) is not None:
            return own_error(self.graphs, entry, place)
        steps = self._view.steps_at(place[1])
        return np.concatenate([own_error(self._steps, entry, (place[0], step)) for step in steps])

    def replays(self, output: PlannedNode, places: Sequence[tuple[int, int]]) -> Iterator[ErrorReplay] | None:
        """Return the replays of errors to an output in stacked steps, or None if some step was not recorded.

        Args:
            output: The output.
            places: Samples and steps that were recorded of it.
        """
        if len(places) < self._view.samples * self._steps.replays.ref.recording.steps:
            return None
        return (self._replay(output, place) for place in self.places)

    def _replay(self, output: PlannedNode, place: tuple[int, int]) -> ErrorReplay:
        checkpoint()
        steps = self._view.steps_at(place[1])
        if len(steps) == 1:  # the rest of the steps: its node may not have been tried
            return ErrorReplay(self._steps, output, (place[0], steps[0]))
        stack = Stack(count=len(steps), own_error=self.own_error, mixing_nodes=self._mixing_nodes)
        return ErrorReplay(self.graphs, output, place, stack=stack)

    def _check_of(self, entry: PlannedNode) -> TensorCheck | None:
        """Return the check of the stacked tensor, or None if stacking changes a replay or a step is missing."""
        if entry.tensor not in self._checks:
            self._checks[entry.tensor] = self._find_check(entry)
        return self._checks[entry.tensor]

    def _find_check(self, entry: PlannedNode) -> TensorCheck | None:
        stacked, alone = self.graphs.of(entry), self._steps.of(entry)
        if stacked is None or alone is None or chooses_scale(alone.facts) or [*stacked.facts.places] != [*self.places]:
            return None
        sample, step = stacked.facts.places[0]
        steps = self._view.steps_at(step)
        try:
            first, last = ([*_compute(alone, (sample, at))] for at in (steps[0], steps[-1]))
            together = [*_compute(stacked, (sample, step))]
        except (KernelError, NotRecordedError, UsageError):
            return None
        results = zip(together, first, last, strict=True)
        if not all(is_stack(*arrays, between=len(steps) - 2) for arrays in results):
            return None
        self._extents[entry.tensor] = len(first[1])
        return stacked


def stack_steps(graphs: GraphCheck, pairs: Collection[Pair]) -> StackedRuns | None:
    """Return the runs with stacked steps, or None if nothing is gained or the first axis does not hold samples.

    Args:
        graphs: Compares the two graphs.
        pairs: All pairs of the alignment.
    """
    runs = [graphs.replays.ref.recording, graphs.replays.be.recording]
    steps = runs[0].steps
    if steps != runs[1].steps or runs[0].samples != runs[1].samples or steps == 1:
        return None
    largest = 1
    for run in runs:
        for name, info in run.graph.tensors.items():
            if run.graph.is_constant(name):
                continue
            outline = run.outline(name)
            largest = max(largest, 1 if outline is None else math.prod(outline.shape))
            if info.quant is not None and info.quant.axis == 0:
                return None
    views = (view for pair in pairs for view in (pair.reference_view, pair.backend_view))
    block = min(steps, _MAX_ELEMENTS // largest)
    if block < 2 or any(map(_moves_first_axis, views)):
        return None
    return StackedRuns(graphs, [*pairs], block)


def _join_outlines(outlines: Sequence[Outline | None]) -> Outline | None:
    """Return the outline of stacked values, or None if one is unknown or they cannot be stacked."""
    known = [outline for outline in outlines if outline is not None]
    if not known or len(known) < len(outlines) or len({(outline.dtype, outline.shape) for outline in known}) > 1:
        return None
    dtype, shape, _ = known[0]
    if not shape:
        return None
    digest = b"".join(outline.digest for outline in known)
    return Outline(dtype=dtype, shape=(len(known) * shape[0], *shape[1:]), digest=digest)


def _moves_first_axis(view: Transform | None) -> bool:
    return view is not None and (view.channel_block is not None or bool(view.transpose and view.transpose[0]))


def _compute(check: TensorCheck, place: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yield the compared values of a tensor at a place, and its replays by the nodes of either side."""
    facts, pair = check.facts, check.facts.entry.pair
    values = facts.reference.load(pair.reference, *place), facts.backend.load(pair.backend, *place)
    yield from in_one_order(values[0], pair.reference_view, values[1], pair.backend_view)
    yield replay(facts.backend, check.node, pair.backend, place)
    if check.segment.nodes:
        yield facts.reference_replay(place)


def _with_index_in_step(attribution: Attribution, extent: int) -> Attribution:
    """Return an attribution in which the worst elements are given by their index in their step.

    Args:
        attribution: The attribution of stacked steps.
        extent: First extent of a step.
    """
    changes: dict[str, Any] = {}
    for name in (field.name for field in fields(attribution)):
        stats = getattr(attribution, name)
        if isinstance(stats, ErrorStats) and stats.worst_index:
            index = (stats.worst_index[0] % extent, *stats.worst_index[1:])
            changes[name] = replace(stats, worst_index=index)
    samples = {at: _with_index_in_step(part, extent) for at, part in attribution.samples.items()}
    return replace(attribution, samples=MappingProxyType(samples), **changes)
