"""Contributions of nodes to an output's error. The largest contributions are replayed in all samples, others bounded.

This is the part of the budget that a verdict needs. A first-order estimate from the measured errors ranks the nodes.
Only the top nodes are replayed, which takes a fraction of the time of the comparison itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qdebug.compare.attribute.band import difference, finite_norm, norm
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.budget import estimate_reaching_shares, list_tensors_upstream
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.joined_parts import JoinedPart
from qdebug.compare.own_error import NOT_FINITE, ErrorReplay, Replayed
from qdebug.compare.result.result import Contributions, Contributor, Together
from qdebug.compare.result.result_table import ResultTable
from qdebug.compare.stacked_steps import StackedRuns
from qdebug.model.thresholds.verdict import CONTRIBUTION_MIN_SHARE, CONTRIBUTORS_NAMED, CONTRIBUTORS_REPLAYED
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["contributions", "joint_share"]

_TOO_MUCH_WORK = "replaying all nodes would take too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """A node's contribution before it is replayed.

    Args:
        entry: The compared tensor.
        share: First-order estimate of its part of the output's error power.
        ratio: Its own error divided by its total error, both relative to the signal.
    """

    entry: PlannedNode
    share: float
    ratio: float


@dataclass(slots=True)
class _Powers:
    """Powers at the output, over all samples.

    Args:
        signal: Power of the reference's output.
        error: Power of the backend's error at the output.
        by_tensor: Power of the output error that each tensor's own error causes, or NaN if a replay failed.
    """

    signal: float = 0.0
    error: float = 0.0
    by_tensor: dict[str, float] = field(default_factory=dict)

    def sqnr_db(self, power: float) -> float:
        """Return the SQNR in dB for an error power."""
        if not power:
            return math.inf
        return 10 * math.log10(self.signal / power) if self.signal else -math.inf


def contributions(
    graphs: GraphCheck,
    plan: Sequence[PlannedNode],
    table: ResultTable,
    output: PlannedNode,
    *,
    always: Collection[str] = (),
    max_work: float | None = None,
    replayed: int | None = CONTRIBUTORS_REPLAYED,
    part: JoinedPart | None = None,
    stacked: StackedRuns | None = None,
) -> Contributions:
    """Rank nodes by the output error that their own errors cause, over all samples.

    Args:
        graphs: Compares the two graphs.
        plan: All compared tensors.
        table: Their results.
        output: The output.
        always: Backend tensors that are replayed before all others.
        max_work: Upper limit of the work, in multiplications. None for the default threshold.
        replayed: Largest number of nodes to replay, or None for all.
        part: The part of the output to consider, or None for all of it.
        stacked: Both runs with stacked steps, or None to replay each step alone.
    """
    places = list(recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output))
    if not places:
        return Contributions(nodes=(), why=(f"no sample of {output.tensor!r} was recorded in both runs",))
    why = dict[str, None]()
    probe = ErrorReplay(graphs, output, places[0])
    reaches = estimate_reaching_shares(graphs.replays.be.recording.graph, output.tensor, table)
    estimates, unknown = _estimates(list_tensors_upstream(graphs, plan, output), table, reaches, probe, why)
    estimates.sort(key=lambda estimate: (estimate.entry.tensor not in always, -estimate.share))
    entries_to_replay = _select_worth_replaying(estimates, always, replayed)
    work = ((entry, len(places) * probe.work(entry)) for entry in entries_to_replay)
    affordable_entries = _select_affordable(work, probe.allowed if max_work is None else max_work)
    if len(affordable_entries) < len(estimates):
        why[_TOO_MUCH_WORK] = None
    is_whole = part is None or part.axis > 0
    replays = _OutputReplays(
        graphs=graphs, output=output, places=places, part=part, why=why, stacked=stacked if is_whole else None
    )
    powers = replays.replay_each(affordable_entries)
    at_output = math.sqrt(powers.error / powers.signal) if powers.signal else math.inf
    nodes = [_contributor(estimate, output, powers, at_output) for estimate in estimates]
    ordered = tuple(sorted(nodes, key=lambda node: (node.how != "exact", node.sqnr_db)))
    entries = {estimate.entry.tensor: estimate.entry for estimate in estimates}
    leading_entries = [entries[node.tensor] for node in ordered if node.how == "exact"][:CONTRIBUTORS_NAMED]
    together = replays.replay_together(leading_entries, powers)
    return Contributions(nodes=ordered, unknown=unknown, why=tuple(why), together=together)


def joint_share(graphs: GraphCheck, output: PlannedNode, entries: Sequence[PlannedNode]) -> float | None:
    """Return the share of an output's error power that the own errors of several tensors cause together.

    Args:
        graphs: Compares the two graphs.
        output: The output.
        entries: The tensors.

    Returns:
        None if they cannot be replayed.
    """
    places = list(recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output))
    replays, powers = _OutputReplays(graphs=graphs, output=output, places=places, part=None, why={}), _Powers()
    joint_power = 0.0
    for place in places:
        checkpoint()
        replay = ErrorReplay(graphs, output, place)
        replays.add_recorded(powers, replay)
        joint_power += replays.error_power(replay.output(entries), replay.signal)
    return joint_power / powers.error if powers.error and math.isfinite(joint_power) else None


def _estimates(
    entries: Sequence[PlannedNode],
    table: ResultTable,
    reaches: Mapping[str, float],
    probe: ErrorReplay,
    why: dict[str, None],
) -> tuple[list[_Estimate], int]:
    """Return the estimated contribution of each node, and the number of nodes without an estimate."""
    relative_errors = table.relative("introduced")
    estimates, unknown = list[_Estimate](), 0
    for entry in entries:
        checkpoint()
        row = table.rows[entry.tensor]
        carried, introduced = float(table.carried[row]), table[row].introduced
        known_size: float | str = (
            NOT_FINITE if introduced is not None and introduced.nonfinite else float(relative_errors[row])
        )
        size = probe.size(entry) if introduced is None else known_size
        if isinstance(size, str) or not math.isfinite(carried):
            unknown += 1
            is_other_reason = isinstance(size, str) and size != NOT_FINITE
            why[str(size) if is_other_reason else f"the error of {entry.node!r} is not finite"] = None
        elif size and carried:
            ratio = size / carried
            estimates.append(_Estimate(entry=entry, share=ratio**2 * reaches.get(entry.tensor, 1.0), ratio=ratio))
    return estimates, unknown


def _select_worth_replaying(
    estimates: Sequence[_Estimate], always: Collection[str], limit: int | None
) -> list[PlannedNode]:
    """Return the nodes to replay: those always wanted, and those with a substantial estimate."""
    considerable = sum(
        estimate.entry.tensor in always or estimate.share >= CONTRIBUTION_MIN_SHARE for estimate in estimates
    )
    count = len(estimates) if limit is None else min(limit, max(considerable, CONTRIBUTORS_NAMED))
    return [estimate.entry for estimate in estimates[:count]]


def _select_affordable(work: Iterable[tuple[PlannedNode, float]], work_left: float) -> list[PlannedNode]:
    """Return the entries that fit into the work limit, in order. An entry that does not fit is skipped."""
    entries = list[PlannedNode]()
    for entry, cost in work:
        checkpoint()
        if cost <= work_left:
            work_left -= cost
            entries.append(entry)
    return entries


@dataclass(slots=True, kw_only=True)
class _OutputReplays:
    """Replays own errors to an output, in all samples.

    Args:
        graphs: Compares the two graphs.
        output: The output.
        places: Samples and steps.
        part: The part of the output to consider, or None for all of it.
        why: Collects the reasons why replays failed.
        stacked: Both runs with stacked steps. None to replay each step alone, as is done if stacks cannot be replayed.
    """

    graphs: GraphCheck
    output: PlannedNode
    places: Sequence[tuple[int, int]]
    part: JoinedPart | None
    why: dict[str, None]
    stacked: StackedRuns | None = None

    def replays(self) -> Iterator[ErrorReplay]:
        """Yield the replay of each sample and step, or of stacked steps."""
        stacks = None if self.stacked is None else self.stacked.replays(self.output, self.places)
        if stacks is not None:
            yield from stacks
            return
        for place in self.places:
            checkpoint()
            yield ErrorReplay(self.graphs, self.output, place)

    def replay_each(self, entries: Sequence[PlannedNode]) -> _Powers:
        """Replay the own error of each tensor individually."""
        powers, reasons = _Powers(), dict(self.why)
        for replay in self.replays():
            self.add_recorded(powers, replay)
            for entry, replayed_output in zip(
                entries, replay.outputs([[(entry, None)] for entry in entries]), strict=True
            ):
                power = self.error_power(replayed_output, replay.signal)
                powers.by_tensor[entry.tensor] = powers.by_tensor.get(entry.tensor, 0.0) + power
        if self.stacked is not None and not all(map(math.isfinite, powers.by_tensor.values())):
            self.stacked = None
            self.why.clear()
            self.why.update(reasons)
            return self.replay_each(entries)
        if not powers.signal and entries:
            self.why["the reference's output is all zero, so no SQNR is defined"] = None
            powers.by_tensor = dict.fromkeys(powers.by_tensor, math.nan)
        return powers

    def replay_together(self, first: Sequence[PlannedNode], powers: _Powers) -> Together | None:
        """Replay the own errors of several tensors together, or return None if that fails."""
        if not first:
            return None
        joint_power = remaining_power = 0.0
        for replay in self.replays():
            result = replay.output(first)
            joint_power += self.error_power(result, replay.signal)
            if result.values is not None:
                remaining_power += self._difference_power(replay.recorded, result.values)
        if not (math.isfinite(joint_power) and math.isfinite(remaining_power)):
            return None
        return Together(
            nodes=tuple(contributor.node for contributor in first),
            sqnr_db=powers.sqnr_db(joint_power),
            without_db=powers.sqnr_db(remaining_power),
            left=remaining_power / powers.error if powers.error else None,
        )

    def add_recorded(self, powers: _Powers, replay: ErrorReplay) -> None:
        """Add the powers of the reference's output and of the backend's error in one sample."""
        signal = replay.signal if self.part is None else self.part.of(replay.signal)
        powers.signal += finite_norm(signal) ** 2
        powers.error += self._difference_power(replay.signal, replay.recorded)

    def _difference_power(self, first: np.ndarray, second: np.ndarray) -> float:
        """Return the power of the difference between two outputs, in the part under consideration."""
        error = difference(first, second.reshape(first.shape))
        return norm(error if self.part is None else self.part.of(error)) ** 2

    def error_power(self, replayed_output: Replayed, reference_output: np.ndarray) -> float:
        """Return the error power of a replayed output. If it is not finite, return NaN and note the reason."""
        power = (
            math.nan
            if replayed_output.values is None
            else self._difference_power(reference_output, replayed_output.values)
        )
        if replayed_output.values is not None and not math.isfinite(power):
            self.why["an error makes the output NaN or infinite"] = None
        elif replayed_output.reason:
            self.why[replayed_output.reason] = None
        return power if math.isfinite(power) else math.nan


def _contributor(estimate: _Estimate, output: PlannedNode, powers: _Powers, at_output: float) -> Contributor:
    power = powers.by_tensor.get(estimate.entry.tensor, math.nan)
    is_exact = math.isfinite(power)
    bound = estimate.ratio * at_output
    level = powers.sqnr_db(power) if is_exact else -20 * math.log10(bound) if bound else math.inf
    share = (power / powers.error if powers.error else None) if is_exact else None
    return Contributor(
        node=estimate.entry.node,
        tensor=estimate.entry.tensor,
        output=output.tensor,
        sqnr_db=level,
        how="exact" if is_exact else "bounded",
        share=share if share is None or math.isfinite(share) else None,
    )
