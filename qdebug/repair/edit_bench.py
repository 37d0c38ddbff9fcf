"""Edits for the user to choose from: the edits of a node, and their effect on the outputs, sample by sample."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from qdebug.compare.result.diagnosis import ALL_NODES
from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import operators
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.repair.edits import KINDS, Edit
from qdebug.repair.find import RepairOptions, measure_fidelity, prepare_search
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
    """Offers the same edits as `qdebug repair`, fitted to the same samples, and replays those that are chosen.

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
        self._fidelity_db: float | None = None

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

    def edits_of(self, unit: ChangeableNode, kinds: Sequence[str] = tuple(KINDS)) -> tuple[Edit, ...]:
        """Return the edits of some kinds of a node, cheapest first. Fitting them takes a moment."""
        return tuple(self._search.catalog.edits_of(unit.node.name, kinds))

    def edits_everywhere(self, kind: str) -> Iterator[Edit]:
        """Yield the edits of one kind for all nodes that have one."""
        for name in self._search.catalog.units:
            yield from self._search.catalog.edits_of(name, (kind,))

    def edits_named(self, names: Sequence[str]) -> tuple[Edit, ...]:
        """Return edits by name; a name that ends with `ALL_NODES` stands for the edits of that kind of all nodes.

        Raises:
            UsageError: There is no such edit.
        """
        edits = list[Edit]()
        for name in names:
            kind = name.removesuffix(ALL_NODES)
            edits += [self._search.catalog.edit_named(name)] if kind == name else self.edits_everywhere(kind)
        return tuple(edits)

    def effects(
        self,
        edits: Sequence[str],
        places: Sequence[tuple[int, int]],
        *,
        whole_run: bool = False,
        next_edits: Sequence[str] = (),
    ) -> Iterator[EditEffect]:
        """Yield the effect of edits on the outputs, after each sample, over all samples so far.

        Args:
            edits: Names of edits. No two of them may change the same tensor or leave the same node in float. If empty,
                the whole network is replayed, which shows the effect of the replay itself.
            places: Samples and steps.
            whole_run: Whether to also replay nodes that no edit reaches.
            next_edits: Names of edits that may be added to these next, which makes these replays faster.

        Raises:
            UsageError: There is no such edit.
            KernelError: A node cannot be computed.
            RecordingError: An input or a constant was not recorded.
        """
        trials, accumulators = self._search.trials, dict[str, tuple[ErrorAccumulator, ErrorAccumulator]]()
        start = time.monotonic()
        whole_run = whole_run or not edits
        task = ReplayTask(edits=tuple(edits), places=tuple(places), everything=whole_run, next_edits=tuple(next_edits))
        replays = self._replays([task])
        for count, place in enumerate(places, 1):
            recorded_outputs, trial = trials.recorded_outputs(place), trials.under_reference_names(next(replays), place)
            for name, values in trials.reference_outputs(place).items():
                pair = accumulators.setdefault(name, (ErrorAccumulator(), ErrorAccumulator()))
                for accumulator, run_outputs in zip(pair, (recorded_outputs, trial), strict=True):
                    accumulator.update(values, run_outputs[name], sample=place[0])
            yield EditEffect(
                outputs=tuple(
                    OutputEffect(
                        output=trials.outputs[name],
                        now=recorded_accumulator.stats(),
                        trial=trial_accumulator.stats(),
                        against="reference",
                    )
                    for name, (recorded_accumulator, trial_accumulator) in accumulators.items()
                ),
                samples=count,
                seconds=(time.monotonic() - start) / count,
            )

    def gains(
        self, edits: Sequence[str], candidates: Sequence[Edit], places: Sequence[tuple[int, int]], output: str = ""
    ) -> Iterator[tuple[str, float]]:
        """Yield by how many dB each edit raises the SQNR of an output, in addition to the chosen edits.

        The gain of a replay without edits is subtracted, if the whole network can be replayed.

        Args:
            edits: Names of the chosen edits.
            candidates: The edits to try. Each replaces the chosen edits that conflict with it. The gain of a chosen
                edit is what it adds to the other chosen ones.
            places: Samples and steps to measure over.
            output: The output; "" for the worst one.

        Yields:
            The edit's name, and the gain in dB, or NaN if unknown, for example because the replay fails.
        """
        chosen_edits, whole_run = self.edits_named(edits), abs(self.fidelity_db()) < math.inf
        measured_levels = dict[tuple[str, ...], tuple[float, float]]()

        def measure(names: Sequence[str]) -> tuple[float, float]:
            """Return the SQNR as recorded, and with the given edits."""
            if tuple(names) not in measured_levels:
                effect = self._last_effect(names, places, whole_run=whole_run)
                recorded, edited = (_output_sqnr(effect, output, of_edited=of_edited) for of_edited in (False, True))
                measured_levels[tuple(names)] = recorded, edited
            return measured_levels[tuple(names)]

        if whole_run or edits:
            measure(edits)
        for edit in candidates:
            is_chosen = edit.name in edits
            other_names = [
                chosen_edit.name
                for chosen_edit in chosen_edits
                if not (edit.replaces(chosen_edit) or chosen_edit.replaces(edit)) and chosen_edit.name != edit.name
            ]
            before, after = (other_names, edits) if is_chosen else (edits, [*other_names, edit.name])
            try:
                recorded_sqnr, sqnr_after = measure(after)
                sqnr_before = measure(before)[1] if whole_run or before else recorded_sqnr
            except (KernelError, NotRecordedError):
                yield edit.name, math.nan
                continue
            yield edit.name, math.nan if sqnr_before == sqnr_after == math.inf else sqnr_after - sqnr_before

    def _last_effect(self, edits: Sequence[str], places: Sequence[tuple[int, int]], *, whole_run: bool) -> EditEffect:
        *_, effect = self.effects(edits, places, whole_run=whole_run)
        return effect

    def fidelity_db(self) -> float:
        """Return the SQNR in dB of a replay without edits against the recorded outputs, see `measure_fidelity`."""
        if self._fidelity_db is None:
            first_place = next(iter(self._session.backend.places()))
            self._fidelity_db = measure_fidelity(self._session, self._search.arithmetic, first_place, self._on_progress)
        return self._fidelity_db


def _output_sqnr(effect: EditEffect, output: str, *, of_edited: bool) -> float:
    """Return the SQNR of an output, or for "" the smallest known one of all; NaN if unknown."""
    levels = [
        (entry.trial if of_edited else entry.now).sqnr_db for entry in effect.outputs if output in {"", entry.output}
    ]
    return min((level for level in levels if level is not None and not math.isnan(level)), default=math.nan)
