"""Measure the outputs with more and more of the first or last layers in float, by replay.

Some quantizers leave the first convolutions of a network in float, for example `skip_conv_layers` of TVM. The sweep
shows how many such layers are worth their cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import RunInfo, operators
from qdebug.model.json_object import Count, JsonObject, SchemaPart
from qdebug.repair.edits import Edit, EditCatalog
from qdebug.repair.find import GoalMetric, RepairOptions, measure_fidelity, prepare_search
from qdebug.repair.search import Score
from qdebug.running.output_metric import Metric
from qdebug.session import DiffSession

__all__ = ["ENDS", "FloatCount", "FloatSweep", "sweep_layers"]

ENDS = ("first", "last")
"""Ends of the network from which layers are left in float."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatCount(JsonObject):
    """The outputs with a number of layers in float.

    Args:
        layers: Number of layers in float.
        node: The layer that is in float in addition to those of the previous count, or "" if no layer is in float.
        op: Operator of this layer.
        score: The metric.
        macs: Multiply-adds in float, as a share of all.
        size: Additional bytes of weights.
    """

    json_keys = "layers node|null op|null value=score.after interval=score.interval macs bytes=size"

    layers: Count
    node: str
    op: str
    score: Score
    macs: float
    size: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FloatSweep(JsonObject):
    """The result of `qdebug repair --sweep`.

    Args:
        reference: The reference run.
        backend: The backend run.
        metric: The metric.
        goal: The minimum value of the metric.
        end: Whether the first or the last layers are left in float.
        layers: Number of layers that compute on codes.
        counts: The outputs for each number of layers, from 0.
        stuck: Nodes on codes that cannot be computed in float, because the reference's constants for them are unknown.
        fidelity_db: SQNR in dB of a replay without edits, compared with the recorded outputs.
        arithmetic: Name of the arithmetic of nodes on codes.
        stopped: Why the sweep ended early, or "" if it was completed.
    """

    json_format = "sweep"
    json_keys = (
        "reference backend metric=goal_metric end layers enough proved counts stuck replay_sqnr_db=fidelity_db "
        "arithmetic stopped|null"
    )

    reference: RunInfo
    backend: RunInfo
    metric: Metric
    goal: float
    end: Annotated[str, SchemaPart(enum=[*ENDS])]
    layers: Count
    counts: tuple[FloatCount, ...]
    stuck: tuple[str, ...]
    fidelity_db: float
    arithmetic: str
    stopped: str = ""

    @property
    def goal_metric(self) -> GoalMetric:
        """The metric with its goal, as in the JSON."""
        return {"name": self.metric.name, "unit": self.metric.unit, "goal": self.goal}

    @property
    def enough(self) -> int | None:
        """The smallest number of layers in float that reaches the goal, or None if none of the measured ones does."""
        return next((count.layers for count in self.counts if count.score.after >= self.goal), None)

    @property
    def proved(self) -> bool:
        """Whether the replay is close enough to the backend to trust the numbers.

        It is not if it is farther from the backend's outputs than the goal allows, or reaches a goal by itself that the
        recorded outputs miss.
        """
        score = self.counts[0].score
        is_far = self.metric.unit == "dB" and self.fidelity_db < self.goal
        return not is_far and not score.before < self.goal <= score.after

    @property
    def exit_code(self) -> int:
        """Exit code: 0 if one of the numbers reaches the goal and the replay can be trusted, or 1."""
        return 0 if self.enough is not None and self.proved else 1


def sweep_layers(
    session: DiffSession,
    options: RepairOptions,
    *,
    end: str,
    most: int,
    labels: np.ndarray | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> FloatSweep:
    """Measure the outputs with 0 to `most` of the first or last layers in float, over all samples.

    A layer is a node that computes on codes. The quantizer of an input or of a branch goes to float with its readers.
    Ctrl-C and the time limit end the sweep with the numbers so far.

    Args:
        session: The two runs.
        options: The options; edits and costs are not used.
        end: One of `ENDS`.
        most: The largest number of layers.
        labels: One label per sample, for metrics that need them.
        progress: Called with the number of measured counts, the total, and a note.

    Raises:
        UsageError: The network is stateful, has no compared output or no layer on codes, or the labels do not fit.
        KernelError: A node cannot be computed.
    """
    search = prepare_search(session, options, labels=labels)
    trials, places = search.trials, list(session.backend.places())
    layers, stuck = _find_layers(search.catalog)
    if not layers:
        raise UsageError(
            "No node of the backend computes on codes and can be left in float.",
            hint="Give the float network first and the quantized one second.",
        )
    ordered = layers if end == "first" else layers[::-1]
    fidelity_db = measure_fidelity(session, search.arithmetic, places[0])
    whole_run, stopped = abs(fidelity_db) < math.inf, ""
    distance = trials.metric.default_goal if options.within is None else options.within
    counts: list[FloatCount] = []
    try:
        for count in range(min(most, len(ordered)) + 1):
            edits = _add_quantizers(search.catalog, ordered[:count])
            if counts and search.clock.is_over():
                stopped = search.clock.stopped
                break
            if progress is not None:
                progress(count, min(most, len(ordered)) + 1, f"{count} {end} layers in float")
            counts.append(
                FloatCount(
                    layers=count,
                    node=ordered[count - 1].unit.node.name if count else "",
                    op=ordered[count - 1].unit.node.op if count else "",
                    score=trials.score_edits(edits, places, whole_run=whole_run),
                    macs=sum(edit.macs for edit in edits),
                    size=sum(edit.size for edit in edits),
                )
            )
    except KeyboardInterrupt:
        if not counts:
            raise
        stopped = "interrupted"
    return FloatSweep(
        reference=session.reference.info,
        backend=session.backend.info,
        metric=trials.metric,
        goal=search.goal if trials.metric.is_minimum else counts[0].score.reference - distance,
        end=end,
        layers=len(layers),
        counts=tuple(counts),
        stuck=tuple(stuck),
        fidelity_db=fidelity_db,
        arithmetic=search.arithmetic.name,
        stopped=stopped,
    )


def _find_layers(catalog: EditCatalog) -> tuple[list[Edit], list[str]]:
    """Return the edits that leave a layer in float, in the order of the graph, and the layers without such an edit."""
    edits, stuck = list[Edit](), list[str]()
    for name, unit in catalog.units.items():
        if operators.of(unit.node.op).quantizes or catalog.nodes.is_float(name):
            continue
        float_edits = catalog.edits_of(name, ("float",))
        edits += float_edits
        stuck += [] if float_edits else [name]
    return edits, stuck


def _add_quantizers(catalog: EditCatalog, layers: Sequence[Edit]) -> list[Edit]:
    """Return edits that leave layers in float, and those of the quantizers that only nodes in float then read."""
    names = {edit.unit.node.name for edit in layers}
    quantizers = (
        name
        for name, unit in catalog.units.items()
        if operators.of(unit.node.op).quantizes
        and not unit.readers.isdisjoint(names)
        and all(reader in names or catalog.nodes.is_float(reader) for reader in unit.readers)
    )
    return [*layers, *(edit for name in quantizers for edit in catalog.edits_of(name, ("float",)))]
