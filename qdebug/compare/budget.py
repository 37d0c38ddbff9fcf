"""The budget of an output's error: how much of it each node's own error makes, in all samples or in the worst one.

A node's own error is added to the reference's tensor, and the reference's nodes below are replayed with it. Its share
is the power of what that makes of the output, over the power of the output's real error; so errors that are independent
of each other have shares that add up to 1. What all own errors make at once, and what the nodes that were not replayed
one by one make together, is replayed too. With all own errors in place each tensor of the reference becomes the
backend's, so that the first replay gives the backend's output again if nothing was missed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Annotated, TypeVar

import numpy as np

from qdebug.compare.attribute.band import difference, finite_norm, norm
from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.own_error import PARTS, ErrorReplay, Replayed
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, RunInfo
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.numerics.checkpoint import checkpoint

__all__ = [
    "LEAST_SHARE",
    "BudgetPowers",
    "BudgetTask",
    "ErrorBudget",
    "KeptPowers",
    "NodeShare",
    "OutputBudget",
    "ShareOut",
    "above_output",
    "budget_of_output",
    "budget_powers",
    "share_reaching",
]

LEAST_SHARE = 0.01
"""Share of an output's error below which nodes are summed, if nothing else is asked for."""
_PRUNED = 0.1
"""Part of the least share below which an estimate lets a node go without a replay of its own."""
_CHUNK = 8
"""Nodes of a task: many enough to be replayed together, few enough to keep all workers busy to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare(JsonObject):
    """What a node's own error alone makes of an output.

    Args:
        node: The backend node.
        op: Its operator.
        tensor: Its output.
        reference_tensor: Where its error is added.
        share: Power of what it makes of the output, over that of the output's error.
        sqnr_db: SQNR in dB of the output if all other nodes were as in the reference; infinite if it makes nothing.
        together: Share of what it makes with all nodes of a larger share; None if that is not known.
        parts: Share of each part of the error alone, by a name of `PARTS`; empty where the parts are not known.
    """

    node: str
    op: str
    tensor: str
    reference_tensor: str
    share: float
    sqnr_db: float
    together: float | None = None
    parts: Annotated[Mapping[str, float], SchemaPart(propertyNames={"enum": [*PARTS]})] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBudget(JsonObject):
    """What the error of one output is made of.

    Args:
        output: The backend's output.
        reference_tensor: The reference's.
        sqnr_db: SQNR in dB of the output; infinite if nothing is wrong, NaN if its error is not finite: then it has
            no budget.
        samples: How many samples were looked at.
        steps: How many steps of all of these: as many, of a net without states.
        nodes: Nodes with at least the least share, the largest first.
        least: That share.
        below: Number of nodes with a smaller share.
        pruned: How many of those were not replayed one by one, since their estimated share is far below the least.
        below_share: What the nodes below the least share make together, replayed at once; None if not known.
        shares: Sum of the shares of `nodes`, and of `below_share`.
        left: Power of the output's error that is left when all known own errors are replayed at once, over that of the
            error; None if that cannot be replayed.
        unknown: Nodes whose own error is not known, each with the reason.
    """

    output: str
    reference_tensor: str
    sqnr_db: float
    samples: int
    steps: int
    nodes: tuple[NodeShare, ...] = ()
    least: float = 0.0
    below: int = 0
    pruned: int = 0
    below_share: float | None = None
    shares: float = 0.0
    left: float | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget(JsonObject):
    """What the errors of a backend's outputs are made of.

    Args:
        reference: The reference run.
        backend: The backend run.
        outputs: The budget of each compared output.
        remark: A sentence on the two runs, to be said first; "" for none.
    """

    json_format = "budget"
    json_keys = "reference backend remark outputs"

    reference: RunInfo
    backend: RunInfo
    outputs: tuple[OutputBudget, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTask:
    """Replays to one output in one sample that can be made apart from others.

    Args:
        output: The output.
        place: Sample and step.
        sizes: Tensors whose own error is measured where it comes about.
        alone: Tensors whose own error is replayed to the output, each alone.
        parts: Tensors of which each part of the own error is replayed to the output alone.
        groups: Tensors whose own errors are replayed together, group by group; a group is called by its last tensor.
        small: Tensors whose own errors are replayed together; None for no such replay.
        every: The same of all tensors.
    """

    output: PlannedNode
    place: tuple[int, int]
    sizes: Sequence[PlannedNode] = ()
    alone: Sequence[PlannedNode] = ()
    parts: Sequence[PlannedNode] = ()
    groups: Sequence[Sequence[PlannedNode]] = ()
    small: Sequence[PlannedNode] | None = None
    every: Sequence[PlannedNode] | None = None

    @property
    def key(self) -> Hashable:
        """Tells it from other tasks of the same comparison."""
        asked = (self.sizes, self.alone, self.parts, self.small, self.every)
        names = (None if each is None else tuple(entry.tensor for entry in each) for each in asked)
        groups = tuple(tuple(entry.tensor for entry in each) for each in self.groups)
        return self.output.tensor, self.place, groups, *names


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPowers:
    """What a task found.

    Args:
        sizes: Norm of each own error over that of its tensor; 0 for no error.
        powers: Power of what was made of the output, by tensor and part; NaN where it is not known.
        unknown: Nodes whose own error is not known, each with the reason.
        stopped: Nodes whose error could not be replayed to the output, each with the reason.
    """

    sizes: Mapping[str, float]
    powers: Mapping[tuple[str, str], float]
    unknown: Mapping[str, str]
    stopped: Mapping[str, str] = field(default_factory=dict)


KeptPowers = MutableMapping[Hashable, BudgetPowers]
"""What tasks found, by their keys."""

ShareOut = Callable[[Sequence[BudgetTask]], Iterator[BudgetPowers]]
"""Has tasks done by others, and gives what they found in their order."""

_Item = TypeVar("_Item")
_TOGETHER = "together"
_ALL, _SMALL, _LEFT = ("", "error"), ("", "below"), ("", "left")


def budget_powers(graphs: GraphCheck, task: BudgetTask, replay: ErrorReplay | None = None) -> BudgetPowers:
    """Make the replays of a task.

    Args:
        graphs: Holds the two graphs against each other.
        task: What is to be replayed.
        replay: Replays errors to the task's output in its place, and knows those that it has met; a new one if None.
    """
    replay = replay or ErrorReplay(graphs, task.output, task.place)
    signal, sizes, unknown, stopped = replay.signal, dict[str, float](), dict[str, str](), dict[str, str]()
    powers = (
        {("", ""): finite_norm(signal) ** 2, _ALL: _power(difference(replay.recorded, signal))} if task.sizes else {}
    )
    for entry in task.sizes:
        checkpoint()
        size = replay.size(entry)
        if isinstance(size, str):
            unknown[entry.node] = size
        else:
            sizes[entry.tensor] = size
    for entry, made in zip(task.alone, replay.outputs([[(entry, None)] for entry in task.alone]), strict=True):
        powers[entry.tensor, ""] = _power_of(made, signal)
        if math.isnan(powers[entry.tensor, ""]):
            stopped[entry.node] = made.reason or "its error makes the output not finite"
    for entry in task.parts:
        parts = {part: error for part, error in replay.own_parts(entry).items() if np.any(error)}
        for part, made in zip(parts, replay.outputs([[(entry, error)] for error in parts.values()]), strict=True):
            powers[entry.tensor, part] = _power_of(made, signal)
    errors = [[(entry, None) for entry in group] for group in task.groups]
    for group, made in zip(task.groups, replay.outputs(errors), strict=True):
        powers[group[-1].tensor, _TOGETHER] = _power_of(made, signal)
    if task.small is not None:
        powers[_SMALL] = _power_of(replay.output(task.small) if task.small else Replayed(signal), signal)
    if task.every is not None:
        powers[_LEFT] = _power_of(replay.output(task.every), replay.recorded)
    return BudgetPowers(sizes=sizes, powers=powers, unknown=unknown, stopped=stopped)


def _power_of(made: Replayed, against: np.ndarray) -> float:
    checkpoint()
    return math.nan if made.values is None else _power(difference(made.values, against))


class _Sums:
    """Powers over all samples."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], float] = {}

    def add(self, powers: Mapping[tuple[str, str], float]) -> None:
        """Add what was found in one sample; NaN stays NaN."""
        for key, power in powers.items():
            self._of[key] = self._of.get(key, 0.0) + power

    @property
    def error(self) -> float:
        """Power of the output's error."""
        return self._of.get(_ALL, 0.0)

    def share(self, tensor: str, part: str) -> float | None:
        """Return a power over that of the output's error; None if not known."""
        power = self._of.get((tensor, part), math.nan)
        return power / self.error if math.isfinite(power) and self.error else None

    def sqnr_db(self, power: float) -> float:
        """Return the SQNR of an error of some power; NaN of one that is not finite."""
        if not power or not math.isfinite(power):
            return math.nan if power else math.inf
        signal = self._of.get(("", ""), 0.0)
        return 10 * math.log10(signal / power) if signal else -math.inf


def _power(values: np.ndarray) -> float:
    return norm(values) ** 2 if np.isfinite(values).all() else math.nan


def budget_of_output(
    graphs: GraphCheck,
    plan: Sequence[PlannedNode],
    of: ResultTable,
    output: PlannedNode,
    *,
    least: float,
    places: Sequence[tuple[int, int]] | None = None,
    parts: bool = True,
    progress: Callable[[int, int], None] | None = None,
    share_out: ShareOut | None = None,
    kept: KeptPowers | None = None,
) -> OutputBudget:
    """Tell how much of an output's error each node's own error makes.

    Nodes whose share is estimated to be far below the least one are replayed together alone. The estimate is of first
    order: the node's own part of its tensor's error, of the part of the output's error that comes in by that tensor.

    Args:
        graphs: Holds the two graphs against each other.
        plan: What was compared.
        of: How it came out.
        output: The output.
        least: Smallest share that a node has an entry of its own for.
        places: Samples and steps that are looked at; None for all.
        parts: Whether the parts of each node's error are replayed, too.
        progress: Called with the number of tasks done and their total.
        share_out: Has the replays made by others; None makes them here.
        kept: What was found before, which is not replayed again; what is found now comes to it. None for nothing.
    """
    recorded = recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output)
    places = [place for place in recorded if places is None or place in places]
    entries = above_output(graphs, plan, output)
    sums, task, done, total = _Sums(), partial(BudgetTask, output=output), 0, 0
    replay_in = lru_cache(maxsize=1)(partial(ErrorReplay, graphs, output))  # the next task is mostly in the same place

    def made_here(tasks: Sequence[BudgetTask]) -> Iterator[BudgetPowers]:
        return (budget_powers(graphs, each, replay_in(each.place)) for each in tasks)

    def made(tasks: Sequence[BudgetTask]) -> Iterator[BudgetPowers]:
        nonlocal done, total
        total += len(tasks)
        keys = [each.key for each in tasks] if kept is not None else []
        left = [each for at, each in enumerate(tasks) if kept is None or keys[at] not in kept]
        found = iter((share_out or made_here)(left))
        for at in range(len(tasks)):
            known = None if kept is None else kept.get(keys[at])
            powers = next(found) if known is None else known
            if kept is not None:
                kept[keys[at]] = powers
            sums.add(powers.powers)
            yield powers
            done += 1
            if progress is not None:
                progress(done, total)

    measured = list(made([task(place=place, sizes=entries) for place in places]))
    base = OutputBudget(
        output=output.tensor,
        reference_tensor=output.reference_tensor,
        sqnr_db=sums.sqnr_db(sums.error),
        samples=len({sample for sample, _ in places}),
        steps=len(places),
        least=least,
    )
    if not sums.error or not math.isfinite(sums.error):
        return base
    found = _sorted_out(
        entries, measured, of, share_reaching(graphs.replays.be.recording.graph, output.tensor, of), least
    )
    replays = list(made([task(place=place, alone=each) for place in places for each in _in_chunks(found.alone)]))
    stopped = {node: reason for each in reversed(replays) for node, reason in each.stopped.items()}
    shares = {entry.tensor: sums.share(entry.tensor, "") for entry in found.alone}
    large = [entry for entry in found.alone if (share := shares[entry.tensor]) is not None and share >= least]
    small = [entry for entry in found.known if entry not in large and shares.get(entry.tensor, 0.0) is not None]
    tasks = [task(place=place, small=small, every=[*large, *small]) for place in places]
    if parts:
        ranked = sorted(large, key=lambda entry: -(shares[entry.tensor] or 0.0))
        tasks += _detail_tasks(task, ranked, places)
    for _ in made(tasks):
        pass
    return _given(base, sums, replace(found, stopped=stopped), large, small)


def _detail_tasks(
    task: Callable[..., BudgetTask], ranked: Sequence[PlannedNode], places: Sequence[tuple[int, int]]
) -> list[BudgetTask]:
    """Return the replays of each node together with all of a larger share, and of the parts of each error."""
    groups = [ranked[: count + 1] for count in range(len(ranked))]
    together = [task(place=place, groups=each) for place in places for each in _in_chunks(groups)]
    return [*together, *(task(place=place, parts=each) for place in places for each in _in_chunks(ranked))]


def _in_chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortedOut:
    """Nodes above an output.

    Args:
        known: Those whose own error is known.
        alone: Those of them that are replayed alone.
        unknown: The others, each with the reason.
        stopped: Those whose error could not be replayed to the output, each with the reason.
    """

    known: Sequence[PlannedNode]
    alone: Sequence[PlannedNode]
    unknown: Mapping[str, str]
    stopped: Mapping[str, str] = field(default_factory=dict)


def _sorted_out(
    entries: Sequence[PlannedNode],
    measured: Sequence[BudgetPowers],
    of: ResultTable,
    reaches: Mapping[str, float],
    least: float,
) -> _SortedOut:
    """Tell whose own error is known, and whose share may be large in any sample, by a first-order estimate."""
    unknown = {node: reason for each in reversed(measured) for node, reason in each.unknown.items()}
    estimates = dict[str, float]()
    for entry in entries:
        carried = float(of.carried[of.rows[entry.tensor]])
        size = max((each.sizes.get(entry.tensor, 0.0) for each in measured), default=0.0)
        if size:
            ratio = size / carried if carried else math.inf
            estimates[entry.tensor] = ratio**2 * reaches.get(entry.tensor, 1.0)
    wrong = [entry for entry in entries if entry.tensor in estimates and entry.node not in unknown]
    alone = [each for each in wrong if not estimates[each.tensor] < _PRUNED * least]
    return _SortedOut(known=wrong, alone=alone, unknown=unknown)


def share_reaching(graph: Graph, output: str, of: ResultTable) -> Mapping[str, float]:
    """Estimate which part of an output's error, in power, comes in by each tensor above it.

    Backwards from the output: of what a tensor's error makes there, its node passes on the part that it did not make
    itself. All of this is ascribed to each input, so that it is rather too much.
    """
    passed = np.divide(of.relative("propagated"), of.carried, out=np.ones(len(of)), where=of.carried > 0)
    unknown = ~np.isfinite(passed) | of.which(lambda node: node.propagated is None)
    passed = np.where(unknown, 1.0, np.minimum(passed, 1.0) ** 2)
    found = {output: 1.0}
    for node in reversed(graph.nodes):
        known = [
            found[name] * float(passed[of.rows[name]]) if name in of.rows else found[name]
            for name in node.outputs
            if name in found
        ]
        for name in dict.fromkeys(node.inputs) if known else ():
            found[name] = min(1.0, found.get(name, 0.0) + sum(known))
    return found


def _given(
    base: OutputBudget,
    sums: _Sums,
    found: _SortedOut,
    large: Sequence[PlannedNode],
    small: Sequence[PlannedNode],
) -> OutputBudget:
    nodes = []
    for entry in large:
        share = sums.share(entry.tensor, "") or 0.0
        parts = {part: sums.share(entry.tensor, part) for part in PARTS}
        nodes.append(
            NodeShare(
                node=entry.node,
                op=entry.op,
                tensor=entry.tensor,
                reference_tensor=entry.reference_tensor,
                share=share,
                sqnr_db=sums.sqnr_db(share * sums.error),
                together=sums.share(entry.tensor, _TOGETHER),
                parts={part: value for part, value in parts.items() if value is not None},
            )
        )
    nodes.sort(key=lambda node: -node.share)
    rest = sums.share(*_SMALL)
    if rest is None:  # then nothing is known of those that were not replayed alone
        small = [entry for entry in small if entry in found.alone]
    known = {entry.tensor for entry in (*large, *small)}
    lost = {
        entry.node: found.stopped.get(entry.node, "what the small errors make together cannot be replayed")
        for entry in found.known
        if entry.tensor not in known
    }
    return replace(
        base,
        nodes=tuple(nodes),
        below=len(small),
        pruned=len(small) - sum(entry in found.alone for entry in small),
        below_share=rest,
        shares=sum(node.share for node in nodes) + (rest or 0.0),
        left=sums.share(*_LEFT),
        unknown={**found.unknown, **lost},
    )


def above_output(graphs: GraphCheck, plan: Sequence[PlannedNode], output: PlannedNode) -> list[PlannedNode]:
    """List the compared tensors that an output depends on."""
    above = upstream(graphs.replays.be.recording.graph, (output.tensor,))
    return [each for each in plan if each.tensor in above and each.op != "Input"]
