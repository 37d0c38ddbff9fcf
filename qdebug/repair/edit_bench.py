"""Edits that a person chooses: what a node offers, and what a set of them makes of the outputs, sample after sample."""

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
    """What edits make of the outputs.

    Args:
        outputs: Each output that is compared, as recorded and replayed with the edits, against the reference.
        samples: Samples that were replayed.
        seconds: How long the replay of one of them took, on average.
    """

    outputs: tuple[OutputEffect, ...]
    samples: int
    seconds: float


class EditBench:
    """Offers the edits of `qdebug repair`, fitted to the same samples and replayed in the same way.

    Args:
        session: The two runs.
        told: Called as a replay gets on with the nodes done and their number. What it raises gives the replay up.

    Raises:
        UsageError: The net is stateful, or no output was compared.
    """

    def __init__(self, session: DiffSession, told: Callable[[int, int], object] | None = None) -> None:
        self._session, self._told = session, told
        self._search = prepare_search(session, RepairOptions())
        self._replays = replays_of(session, self._search.catalog, self._search.arithmetic, told)
        self._faithful: float | None = None

    def unit_of(self, tensor: str) -> ChangeableNode | None:
        """Return the node whose edits change a tensor of the backend: the one that computes what it stands for."""
        nodes = self._search.catalog.nodes
        while True:
            holds = next((unit for unit in nodes.units.values() if tensor in unit.tensors), None)
            maker = nodes.run.graph.producer(tensor)
            found = holds or (None if maker is None else nodes.unit_of(maker.name))
            if found is not None or maker is None or not maker.inputs:
                return found
            if not (operators.of(maker.op).dequantizes or operators.of(maker.op).activation):
                return None
            tensor = maker.inputs[0]

    def edits_of(self, unit: ChangeableNode) -> tuple[Edit, ...]:
        """Return what can be done about a node, the cheapest first; to fit them takes a moment."""
        return tuple(self._search.catalog.edits_of(unit.node.name))

    def edits_everywhere(self, kind: str) -> Iterator[Edit]:
        """Yield the edits of one kind of all nodes that have one."""
        for name in self._search.catalog.units:
            yield from self._search.catalog.edits_of(name, (kind,))

    def named(self, names: Sequence[str]) -> tuple[Edit, ...]:
        """Return the edits that are called so.

        Raises:
            UsageError: There is no such edit.
        """
        return tuple(map(self._search.catalog.named, names))

    def effects(
        self, edits: Sequence[str], places: Sequence[tuple[int, int]], *, whole: bool = False
    ) -> Iterator[EditEffect]:
        """Yield what edits make of the outputs, after each sample of all so far.

        Args:
            edits: Names of edits; each tensor and each node in float stands in one of them. Without any, the whole net
                is replayed: what that changes is the replay's own.
            places: Samples and steps.
            whole: Replay what no edit reaches, too.

        Raises:
            UsageError: There is no such edit.
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        trials, known = self._search.trials, dict[str, tuple[ErrorAccumulator, ErrorAccumulator]]()
        begun = time.monotonic()
        whole = whole or not edits
        replays = self._replays([ReplayTask(edits=tuple(edits), places=tuple(places), everything=whole)])
        for count, place in enumerate(places, 1):
            now, trial = trials.recorded(place), trials.named(next(replays), place)
            for name, values in trials.reference(place).items():
                both = known.setdefault(name, (ErrorAccumulator(), ErrorAccumulator()))
                for accumulator, made in zip(both, (now, trial), strict=True):
                    accumulator.update(values, made[name], sample=place[0])
            yield EditEffect(
                outputs=tuple(
                    OutputEffect(output=trials.outputs[name], now=a.stats(), trial=b.stats(), against="reference")
                    for name, (a, b) in known.items()
                ),
                samples=count,
                seconds=(time.monotonic() - begun) / count,
            )

    def gains(
        self, edits: Sequence[str], offered: Sequence[Edit], places: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[str, float]]:
        """Yield by how many dB each of some edits raises the SQNR of the worst output, on top of those chosen.

        What a replay without edits gains is taken off, where the whole net can be replayed.

        Args:
            edits: Names of the edits that are chosen.
            offered: The edits to try; each takes the place of the chosen ones that it undoes.
            places: Samples and steps to measure over.

        Yields:
            The edit's name, and the dB; NaN if that is not known, as where the replay fails.
        """
        chosen, whole = self.named(edits), abs(self.faithful()) < math.inf
        before = _worst(self._last(edits, places, whole=whole), edited=True) if whole or edits else None
        for edit in offered:
            kept = [each.name for each in chosen if not (edit.replaces(each) or each.replaces(edit))]
            try:
                after = self._last([*kept, edit.name], places, whole=whole)
            except (KernelError, NotRecordedError):
                yield edit.name, math.nan
                continue
            base, now = _worst(after, edited=False) if before is None else before, _worst(after, edited=True)
            yield edit.name, math.nan if base == now == math.inf else now - base

    def _last(self, edits: Sequence[str], places: Sequence[tuple[int, int]], *, whole: bool) -> EditEffect:
        *_, effect = self.effects(edits, places, whole=whole)
        return effect

    def faithful(self) -> float:
        """Return how near a replay without edits comes to the recorded outputs, see `qdebug.repair.find`."""
        if self._faithful is None:
            first = next(iter(self._session.backend.places()))
            self._faithful = faithful(self._session, self._search.arithmetic, first, self._told)
        return self._faithful


def _worst(effect: EditEffect, *, edited: bool) -> float:
    """Return the least SQNR of the outputs of which one is known; NaN if none is."""
    known = [(each.trial if edited else each.now).sqnr_db for each in effect.outputs]
    return min((each for each in known if each is not None and not math.isnan(each)), default=math.nan)
