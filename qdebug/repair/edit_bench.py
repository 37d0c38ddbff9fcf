"""Edits chosen by the user: those available for a node, and their effect on the outputs, sample by sample."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import operators
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.repair.edits import Edit
from qdebug.repair.find import RepairOptions, faithful, prepare_search
from qdebug.repair.replays import ReplayTask, replays_of
from qdebug.repair.units import ChangeableNode
from qdebug.scales.trial import OutputEffect
from qdebug.session import DiffSession

__all__ = ["EditBench", "EditEffect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditEffect:
    """The effect of edits on the outputs.

    Args:
        outputs: Each compared output, as recorded and as replayed with the edits, compared with the reference.
        samples: Number of replayed samples.
        seconds: Average time of the replay of one sample.
    """

    outputs: tuple[OutputEffect, ...]
    samples: int
    seconds: float


class EditBench:
    """Offers the edits of `qdebug repair`, fitted to the same samples and replayed identically.

    Args:
        session: The two runs.
        on_progress: Progress callback with the number of finished nodes and the total. It may raise to cancel a replay.

    Raises:
        UsageError: The network is stateful, or no output was compared.
    """

    def __init__(self, session: DiffSession, on_progress: Callable[[int, int], object] | None = None) -> None:
        self._session, self._on_progress = session, on_progress
        self._search = prepare_search(session, RepairOptions())
        self._replays = replays_of(session, self._search.catalog, self._search.arithmetic, on_progress)
        self._faithful: float | None = None

    def unit_of(self, tensor: str) -> ChangeableNode | None:
        """Return the node whose edits change a tensor of the backend."""
        nodes = self._search.catalog.nodes
        while True:
            holding_unit = next((unit for unit in nodes.units.values() if tensor in unit.tensors), None)
            producer = nodes.run.graph.producer(tensor)
            target = holding_unit or (None if producer is None else nodes.unit_of(producer.name))
            if target is not None or producer is None or not producer.inputs:
                return target
            if not (operators.of(producer.op).dequantizes or operators.of(producer.op).activation):
                return None
            tensor = producer.inputs[0]

    def edits_of(self, unit: ChangeableNode) -> tuple[Edit, ...]:
        """Return the edits of a node, cheapest first. Fitting them takes a moment."""
        return tuple(self._search.catalog.edits_of(unit.node.name))

    def edits_everywhere(self, kind: str) -> Iterator[Edit]:
        """Yield the edits of one kind for all nodes that have one."""
        for name in self._search.catalog.units:
            yield from self._search.catalog.edits_of(name, (kind,))

    def named(self, names: Sequence[str]) -> tuple[Edit, ...]:
        """Return edits by name.

        Raises:
            UsageError: There is no such edit.
        """
        return tuple(map(self._search.catalog.named, names))

    def effects(
        self, edits: Sequence[str], places: Sequence[tuple[int, int]], *, whole: bool = False
    ) -> Iterator[EditEffect]:
        """Yield the effect of edits on the outputs, after each sample, over all samples so far.

        Args:
            edits: Names of edits. Each tensor and each node in float may occur in only one of them. Without any, the
                whole network is replayed, which shows the effect of the replay itself.
            places: Samples and steps.
            whole: Also replay nodes that no edit reaches.

        Raises:
            UsageError: There is no such edit.
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        trials, accumulators = self._search.trials, dict[str, tuple[ErrorAccumulator, ErrorAccumulator]]()
        start = time.monotonic()
        whole = whole or not edits
        replays = self._replays([ReplayTask(edits=tuple(edits), places=tuple(places), everything=whole)])
        for count, place in enumerate(places, 1):
            recorded_outputs, trial = trials.recorded(place), trials.named(next(replays), place)
            for name, values in trials.reference(place).items():
                pair = accumulators.setdefault(name, (ErrorAccumulator(), ErrorAccumulator()))
                for accumulator, run_outputs in zip(pair, (recorded_outputs, trial), strict=True):
                    accumulator.update(values, run_outputs[name], sample=place[0])
            yield EditEffect(
                outputs=tuple(
                    OutputEffect(output=trials.outputs[name], now=a.stats(), trial=b.stats(), against="reference")
                    for name, (a, b) in accumulators.items()
                ),
                samples=count,
                seconds=(time.monotonic() - start) / count,
            )

    def gains(
        self, edits: Sequence[str], offered: Sequence[Edit], places: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[str, float]]:
        """Yield by how many dB each edit raises the SQNR of the worst output, in addition to the chosen edits.

        The gain of a replay without edits is subtracted, if the whole network can be replayed.

        Args:
            edits: Names of the chosen edits.
            offered: The edits to try. Each replaces the chosen ones that it undoes.
            places: Samples and steps to measure over.

        Yields:
            The edit's name, and the gain in dB, or NaN if unknown, for example because the replay fails.
        """
        chosen, whole = self.named(edits), abs(self.faithful()) < math.inf
        before = _worst(self._last(edits, places, whole=whole), edited=True) if whole or edits else None
        for edit in offered:
            kept_edits = [other.name for other in chosen if not (edit.replaces(other) or other.replaces(edit))]
            try:
                after = self._last([*kept_edits, edit.name], places, whole=whole)
            except (KernelError, NotRecordedError):
                yield edit.name, math.nan
                continue
            base, edited_sqnr = _worst(after, edited=False) if before is None else before, _worst(after, edited=True)
            yield edit.name, math.nan if base == edited_sqnr == math.inf else edited_sqnr - base

    def _last(self, edits: Sequence[str], places: Sequence[tuple[int, int]], *, whole: bool) -> EditEffect:
        *_, effect = self.effects(edits, places, whole=whole)
        return effect

    def faithful(self) -> float:
        """Return how close a replay without edits is to the recorded outputs, see `qdebug.repair.find`."""
        if self._faithful is None:
            first = next(iter(self._session.backend.places()))
            self._faithful = faithful(self._session, self._search.arithmetic, first, self._on_progress)
        return self._faithful


def _worst(effect: EditEffect, *, edited: bool) -> float:
    """Return the smallest known SQNR of the outputs, or NaN if none is known."""
    levels = [(each.trial if edited else each.now).sqnr_db for each in effect.outputs]
    return min((each for each in levels if each is not None and not math.isnan(each)), default=math.nan)
