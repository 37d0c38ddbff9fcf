"""The error budget of an output: how much of its error each node's own error causes, in all samples or the worst one.

A node's own error is added to the reference's tensor, and the reference's downstream nodes are replayed with it. Its
share is the power of the resulting output error divided by the power of the real output error, so the shares of
independent errors add up to 1. Two combined replays follow: one with all own errors, and one with the nodes that were
not replayed individually. With all own errors added, each reference tensor becomes the backend's, so that the first
combined replay reproduces the backend's output if nothing was missed.
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
    "budget_of_output",
    "budget_powers",
    "estimate_reaching_shares",
    "list_tensors_upstream",
]

LEAST_SHARE = 0.01
"""Default share of an output's error below which nodes are summed up."""
_PRUNING_FRACTION = 0.1
"""Fraction of the least share below which a node is not replayed individually, judging by an estimate."""
_NODES_PER_TASK = 8
"""Nodes per task: enough to be replayed efficiently together, few enough to keep all workers busy to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare(JsonObject):
    """A node's share of an output's error.

    Args:
        node: The backend node.
        op: Its operator.
        tensor: Its output.
        reference_tensor: The reference tensor that its error is added to.
        share: Error power at the output caused by this node alone, divided by the power of the output's error.
        sqnr_db: SQNR of the output in dB if all other nodes were as in the reference. Infinite if there is no error.
        together: Combined share of this node and all nodes with a larger share. None if unknown.
        parts: Share of each part of the own error, by a name of `PARTS`. Empty if the parts are unknown.
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
    """The error budget of one output.

    Args:
        output: The backend output.
        reference_tensor: The reference output.
        sqnr_db: SQNR of the output in dB. Infinite without an error. NaN if the error is not finite, in which case
            there is no budget.
        samples: Number of samples.
        steps: Total number of steps in all samples. Equals `samples` for a network without states.
        nodes: Nodes with at least the least share, largest first.
        least: The least share.
        below: Number of nodes with a smaller share.
        pruned: Number of those that were not replayed individually because their estimate is far below the least share.
        below_share: Combined share of all nodes below the least share, from one replay. None if unknown.
        shares: Sum of the shares in `nodes` plus `below_share`.
        left: Error power that remains at the output when all known own errors are replayed together, divided by the
            power of the output's error. None if that cannot be replayed.
        unknown: Nodes whose own error is unknown, with the reason.
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
    """Error budgets of a backend's outputs.

    Args:
        reference: The reference run.
        backend: The backend run.
        outputs: The budget of each compared output.
        remark: An introductory sentence on the two runs, or "".
    """

    json_format = "budget"
    json_keys = "reference backend remark outputs"

    reference: RunInfo
    backend: RunInfo
    outputs: tuple[OutputBudget, ...]
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTask:
    """Replays to one output in one sample that are independent of other replays.

    Args:
        output: The output.
        place: Sample and step.
        sizes: Tensors whose own error is measured at the tensor itself.
        alone: Tensors whose own error is replayed to the output individually.
        parts: Tensors for which each part of the own error is replayed individually.
        groups: Groups of tensors whose own errors are replayed together. A group is identified by its last tensor.
        small: Tensors whose own errors are replayed together, or None to skip that replay.
        every: All tensors, replayed together, or None to skip that replay.
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
        """Identifies the task within a comparison."""
        node_lists = (self.sizes, self.alone, self.parts, self.small, self.every)
        names = (None if nodes is None else tuple(entry.tensor for entry in nodes) for nodes in node_lists)
        groups = tuple(tuple(entry.tensor for entry in nodes) for nodes in self.groups)
        return self.output.tensor, self.place, groups, *names


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPowers:
    """The results of a task.

    Args:
        sizes: Norm of each own error divided by the norm of its tensor, or 0 without an error.
        powers: Error power at the output by tensor and part, or NaN if unknown.
        unknown: Nodes whose own error is unknown, with the reason.
        stopped: Nodes whose error could not be replayed to the output, with the reason.
    """

    sizes: Mapping[str, float]
    powers: Mapping[tuple[str, str], float]
    unknown: Mapping[str, str]
    stopped: Mapping[str, str] = field(default_factory=dict)


KeptPowers = MutableMapping[Hashable, BudgetPowers]
"""Results of tasks by key."""

ShareOut = Callable[[Sequence[BudgetTask]], Iterator[BudgetPowers]]
"""Distributes tasks to workers and yields their results in task order."""

_Item = TypeVar("_Item")
_TOGETHER = "together"
_ALL, _SMALL, _LEFT = ("", "error"), ("", "below"), ("", "left")


def budget_powers(graphs: GraphCheck, task: BudgetTask, replay: ErrorReplay | None = None) -> BudgetPowers:
    """Run the replays of a task.

    Args:
        graphs: Compares the two graphs.
        task: The task.
        replay: A replay to the same output in the same place whose cache is reused, or None for a new one.
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
    for entry, replayed in zip(task.alone, replay.outputs([[(entry, None)] for entry in task.alone]), strict=True):
        powers[entry.tensor, ""] = _error_power(replayed, signal)
        if math.isnan(powers[entry.tensor, ""]):
            stopped[entry.node] = replayed.reason or "its error makes the output NaN or infinite"
    for entry in task.parts:
        parts = {part: error for part, error in replay.own_parts(entry).items() if np.any(error)}
        for part, replayed in zip(parts, replay.outputs([[(entry, error)] for error in parts.values()]), strict=True):
            powers[entry.tensor, part] = _error_power(replayed, signal)
    # Errors may cancel or amplify each other, so the power of a group is replayed, not summed from its members.
    errors = [[(entry, None) for entry in group] for group in task.groups]
    for group, replayed in zip(task.groups, replay.outputs(errors), strict=True):
        powers[group[-1].tensor, _TOGETHER] = _error_power(replayed, signal)
    if task.small is not None:
        powers[_SMALL] = _error_power(replay.output(task.small) if task.small else Replayed(signal), signal)
    if task.every is not None:
        powers[_LEFT] = _error_power(replay.output(task.every), replay.recorded)
    return BudgetPowers(sizes=sizes, powers=powers, unknown=unknown, stopped=stopped)


def _error_power(replayed: Replayed, expected: np.ndarray) -> float:
    checkpoint()
    return math.nan if replayed.values is None else _power(difference(replayed.values, expected))


class _Sums:
    """Powers over all samples."""

    def __init__(self) -> None:
        self._powers: dict[tuple[str, str], float] = {}

    def add(self, powers: Mapping[tuple[str, str], float]) -> None:
        """Add the powers of one sample. NaN stays NaN."""
        for key, power in powers.items():
            self._powers[key] = self._powers.get(key, 0.0) + power

    @property
    def error(self) -> float:
        """Power of the output's error."""
        return self._powers.get(_ALL, 0.0)

    def share(self, tensor: str, part: str) -> float | None:
        """Return a power divided by the power of the output's error, or None if unknown."""
        power = self._powers.get((tensor, part), math.nan)
        return power / self.error if math.isfinite(power) and self.error else None

    def sqnr_db(self, power: float) -> float:
        """Return the SQNR for an error power, or NaN if the power is not finite."""
        if not power or not math.isfinite(power):
            return math.nan if power else math.inf
        signal = self._powers.get(("", ""), 0.0)
        return 10 * math.log10(signal / power) if signal else -math.inf


def _power(values: np.ndarray) -> float:
    return norm(values) ** 2 if np.isfinite(values).all() else math.nan


class _SequentialReplays:
    """Replays the tasks of an output one after another in this process.

    Args:
        graphs: Compares the two graphs.
        output: The output.
    """

    def __init__(self, graphs: GraphCheck, output: PlannedNode) -> None:
        self._graphs = graphs
        # Consecutive tasks mostly belong to the same sample and step, so one cached replay is enough.
        self._replay_at = lru_cache(maxsize=1)(partial(ErrorReplay, graphs, output))

    def __call__(self, tasks: Sequence[BudgetTask]) -> Iterator[BudgetPowers]:
        return (budget_powers(self._graphs, task, self._replay_at(task.place)) for task in tasks)


class _TaskRunner:
    """Runs the tasks that have no stored result yet, and sums the powers of all tasks.

    Args:
        compute: Replays tasks, and yields their results in order.
        cached_powers: Results of earlier replays. New results are added.
        progress: Called with the number of finished tasks and the total.
    """

    def __init__(self, compute: ShareOut, cached_powers: KeptPowers, progress: Callable[[int, int], None]) -> None:
        self.sums = _Sums()
        self._compute, self._cached_powers, self._progress = compute, cached_powers, progress
        self._done = self._total = 0

    def run(self, tasks: Sequence[BudgetTask]) -> Iterator[BudgetPowers]:
        """Yield the result of each task, in order."""
        self._total += len(tasks)
        keys = [task.key for task in tasks]
        pending = {key: task for key, task in zip(keys, tasks, strict=True) if key not in self._cached_powers}
        computed = self._compute([*pending.values()])
        for key in keys:
            powers = self._cached_powers.get(key)
            if powers is None:
                powers = self._cached_powers[key] = next(computed)
            self.sums.add(powers.powers)
            yield powers
            self._done += 1
            self._progress(self._done, self._total)


def _ignore_progress(done: int, total: int) -> None:
    """Ignore the progress."""


def budget_of_output(
    graphs: GraphCheck,
    plan: Sequence[PlannedNode],
    table: ResultTable,
    output: PlannedNode,
    *,
    least: float,
    places: Sequence[tuple[int, int]] | None = None,
    parts: bool = True,
    progress: Callable[[int, int], None] | None = None,
    share_out: ShareOut | None = None,
    cached_powers: KeptPowers | None = None,
) -> OutputBudget:
    """Return each node's share of an output's error.

    Nodes whose estimated share is far below the least share are only replayed together. The first-order estimate is the
    node's own part of its tensor's error, times the part of the output's error that comes through that tensor.

    Args:
        graphs: Compares the two graphs.
        plan: All compared tensors.
        table: Their results.
        output: The output.
        least: Smallest share for which a node gets its own entry.
        places: Samples and steps to replay, or None for all.
        parts: Whether to replay the parts of each node's error as well.
        progress: Called with the number of finished tasks and the total.
        share_out: Distributes the replays to workers, or None to run them in this process.
        cached_powers: Results of earlier replays, which are reused and extended. None to store nothing.
    """
    common_places = recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output)
    places = [place for place in common_places if places is None or place in places]
    entries = list_tensors_upstream(graphs, plan, output)
    task = partial(BudgetTask, output=output)
    runner = _TaskRunner(
        share_out or _SequentialReplays(graphs, output),
        {} if cached_powers is None else cached_powers,
        progress or _ignore_progress,
    )
    all_powers = list(runner.run([task(place=place, sizes=entries) for place in places]))
    sums = runner.sums
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
    upstream_nodes = _split_upstream_nodes(
        entries,
        all_powers,
        table,
        estimate_reaching_shares(graphs.replays.be.recording.graph, output.tensor, table),
        least,
    )
    replays = list(
        runner.run(
            [task(place=place, alone=item) for place in places for item in _split_into_chunks(upstream_nodes.alone)]
        )
    )
    stopped = {node: reason for item in reversed(replays) for node, reason in item.stopped.items()}
    shares = {entry.tensor: sums.share(entry.tensor, "") for entry in upstream_nodes.alone}
    large = [entry for entry in upstream_nodes.alone if (share := shares[entry.tensor]) is not None and share >= least]
    small = [
        entry
        for entry in upstream_nodes.with_known_error
        if entry not in large and shares.get(entry.tensor, 0.0) is not None
    ]
    tasks = [task(place=place, small=small, every=[*large, *small]) for place in places]
    if parts:
        ranked = sorted(large, key=lambda entry: -(shares[entry.tensor] or 0.0))
        tasks += _detail_tasks(task, ranked, places)
    for _ in runner.run(tasks):
        pass
    return _add_shares(base, sums, replace(upstream_nodes, stopped=stopped), large, small)


def _detail_tasks(
    task: Callable[..., BudgetTask], ranked: Sequence[PlannedNode], places: Sequence[tuple[int, int]]
) -> list[BudgetTask]:
    """Return tasks that replay each node together with all nodes of larger share, and the parts of each error."""
    groups = [ranked[: count + 1] for count in range(len(ranked))]
    together = [task(place=place, groups=chunk) for place in places for chunk in _split_into_chunks(groups)]
    return [*together, *(task(place=place, parts=chunk) for place in places for chunk in _split_into_chunks(ranked))]


def _split_into_chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _NODES_PER_TASK):
        yield items[start : start + _NODES_PER_TASK]


@dataclass(frozen=True, slots=True, kw_only=True)
class _UpstreamNodes:
    """The nodes upstream of an output.

    Args:
        with_known_error: Nodes whose own error is known.
        alone: The known nodes that are replayed individually.
        unknown: All other nodes, with the reason.
        stopped: Nodes whose error could not be replayed to the output, with the reason.
    """

    with_known_error: Sequence[PlannedNode]
    alone: Sequence[PlannedNode]
    unknown: Mapping[str, str]
    stopped: Mapping[str, str] = field(default_factory=dict)


def _split_upstream_nodes(
    entries: Sequence[PlannedNode],
    all_powers: Sequence[BudgetPowers],
    table: ResultTable,
    reaches: Mapping[str, float],
    min_share: float,
) -> _UpstreamNodes:
    """Separate nodes whose own error is known from others, and select those whose estimated share may be large."""
    unknown = {node: reason for powers in reversed(all_powers) for node, reason in powers.unknown.items()}
    estimates = dict[str, float]()
    for entry in entries:
        carried = float(table.carried[table.rows[entry.tensor]])
        size = max((powers.sizes.get(entry.tensor, 0.0) for powers in all_powers), default=0.0)
        if size:
            ratio = size / carried if carried else math.inf
            estimates[entry.tensor] = ratio**2 * reaches.get(entry.tensor, 1.0)
    known_entries = [entry for entry in entries if entry.tensor in estimates and entry.node not in unknown]
    entries_to_replay = [
        entry for entry in known_entries if not estimates[entry.tensor] < _PRUNING_FRACTION * min_share
    ]
    return _UpstreamNodes(with_known_error=known_entries, alone=entries_to_replay, unknown=unknown)


def estimate_reaching_shares(graph: Graph, output: str, table: ResultTable) -> Mapping[str, float]:
    """Estimate the fraction of an output's error power that comes through each upstream tensor.

    Works backwards from the output: a node passes on the part of its tensor's error that it did not cause itself. That
    whole part is attributed to each input, so the estimate is an upper bound.
    """
    passed_on = np.divide(table.relative("propagated"), table.carried, out=np.ones(len(table)), where=table.carried > 0)
    unknown = ~np.isfinite(passed_on) | table.test_rows(lambda node: node.propagated is None)
    passed_on = np.where(unknown, 1.0, np.minimum(passed_on, 1.0) ** 2)
    shares = {output: 1.0}
    for node in reversed(graph.nodes):
        shares_of_outputs = [
            shares[name] * float(passed_on[table.rows[name]]) if name in table.rows else shares[name]
            for name in node.outputs
            if name in shares
        ]
        for name in dict.fromkeys(node.inputs) if shares_of_outputs else ():
            shares[name] = min(1.0, shares.get(name, 0.0) + sum(shares_of_outputs))
    return shares


def _add_shares(
    base: OutputBudget,
    sums: _Sums,
    upstream_nodes: _UpstreamNodes,
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
    below_share = sums.share(*_SMALL)
    if below_share is None:  # the shares of nodes that were not replayed alone stay unknown
        small = [entry for entry in small if entry in upstream_nodes.alone]
    listed_tensors = {entry.tensor for entry in (*large, *small)}
    unreplayed = {
        entry.node: upstream_nodes.stopped.get(entry.node, "the combined effect of the small errors cannot be replayed")
        for entry in upstream_nodes.with_known_error
        if entry.tensor not in listed_tensors
    }
    return replace(
        base,
        nodes=tuple(nodes),
        below=len(small),
        pruned=len(small) - sum(entry in upstream_nodes.alone for entry in small),
        below_share=below_share,
        shares=sum(node.share for node in nodes) + (below_share or 0.0),
        left=sums.share(*_LEFT),
        unknown={**upstream_nodes.unknown, **unreplayed},
    )


def list_tensors_upstream(graphs: GraphCheck, plan: Sequence[PlannedNode], output: PlannedNode) -> list[PlannedNode]:
    """List the compared tensors that an output depends on."""
    upstream_tensors = upstream(graphs.replays.be.recording.graph, (output.tensor,))
    return [entry for entry in plan if entry.tensor in upstream_tensors and entry.op != "Input"]
