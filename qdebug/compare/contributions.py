"""What nodes contribute to the error of an output: the costliest ones, replayed in all samples, the others bounded.

This is the part of the budget that a verdict needs. A first-order estimate from the measured errors puts the nodes in
order; only the first of them are replayed, so that it takes a fraction of the time of the comparison itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qdebug.compare.attribute.band import difference, finite_norm, norm
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.budget import above_output, share_reaching
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.measure.joined_parts import JoinedPart
from qdebug.compare.own_error import NOT_FINITE, ErrorReplay, Replayed
from qdebug.compare.result.result import Contributions, Contributor, Together
from qdebug.compare.result.result_table import ResultTable
from qdebug.model.thresholds.verdict import CONTRIBUTION_MIN_SHARE, CONTRIBUTORS_NAMED, CONTRIBUTORS_REPLAYED
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["contributions"]

_TOO_MUCH = "replaying all would take too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """A node's contribution before it is replayed.

    Args:
        entry: The compared tensor.
        share: Part of the output's error power, of first order.
        ratio: Its own error over its whole error, both relative to the signal.
    """

    entry: PlannedNode
    share: float
    ratio: float


@dataclass(slots=True)
class _Powers:
    """Powers at the output, over all samples.

    Args:
        signal: Of the reference's output.
        error: Of the backend's error there.
        made: Of what each tensor's own error makes of it; NaN where a replay failed.
    """

    signal: float = 0.0
    error: float = 0.0
    made: dict[str, float] = field(default_factory=dict)

    def sqnr_db(self, power: float) -> float:
        """Return the SQNR in dB of an error of some power."""
        if not power:
            return math.inf
        return 10 * math.log10(self.signal / power) if self.signal else -math.inf


def contributions(
    graphs: GraphCheck,
    plan: Sequence[PlannedNode],
    of: ResultTable,
    output: PlannedNode,
    *,
    always: Collection[str] = (),
    most: float | None = None,
    replayed: int | None = CONTRIBUTORS_REPLAYED,
    part: JoinedPart | None = None,
) -> Contributions:
    """Rank nodes by what their own errors make of an output, over all samples.

    Args:
        graphs: Holds the two graphs against each other.
        plan: What was compared.
        of: How it came out.
        output: The output.
        always: Backend tensors that are replayed before all others.
        most: Work after which no more is replayed, in multiplications; if None, as much as the thresholds say.
        replayed: Nodes that are replayed at most; None for all.
        part: The part of the output that is looked at; None for all of it.
    """
    places = list(recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output))
    if not places:
        return Contributions(nodes=(), why=(f"no sample of {output.tensor!r} was recorded in both runs",))
    why = dict[str, None]()
    probe = ErrorReplay(graphs, output, places[0])
    reaches = share_reaching(graphs.replays.be.recording.graph, output.tensor, of)
    estimates, unknown = _estimates(above_output(graphs, plan, output), of, reaches, probe, why)
    estimates.sort(key=lambda each: (each.entry.tensor not in always, -each.share))
    wanted = _wanted(estimates, always, replayed)
    work = ((each, len(places) * probe.work(each)) for each in wanted)
    chosen = _affordable(work, probe.allowed if most is None else most)
    if len(chosen) < len(estimates):
        why[_TOO_MUCH] = None
    replays = _OutputReplays(graphs=graphs, output=output, places=places, part=part, why=why)
    powers = replays.alone(chosen)
    at_output = math.sqrt(powers.error / powers.signal) if powers.signal else math.inf
    nodes = [_contributor(each, output, powers, at_output) for each in estimates]
    ordered = tuple(sorted(nodes, key=lambda each: (each.how != "exact", each.sqnr_db)))
    entries = {each.entry.tensor: each.entry for each in estimates}
    first = [entries[each.tensor] for each in ordered if each.how == "exact"][:CONTRIBUTORS_NAMED]
    together = replays.together(first, powers)
    return Contributions(nodes=ordered, unknown=unknown, why=tuple(why), together=together)


def _estimates(
    entries: Sequence[PlannedNode],
    of: ResultTable,
    reaches: Mapping[str, float],
    probe: ErrorReplay,
    why: dict[str, None],
) -> tuple[list[_Estimate], int]:
    """Estimate what each node contributes, and count those of which nothing is known."""
    own = of.relative("introduced")
    found, unknown = list[_Estimate](), 0
    for entry in entries:
        checkpoint()
        row = of.rows[entry.tensor]
        carried, introduced = float(of.carried[row]), of[row].introduced
        finite: float | str = NOT_FINITE if introduced is not None and introduced.nonfinite else float(own[row])
        size = probe.size(entry) if introduced is None else finite
        if isinstance(size, str) or not math.isfinite(carried):
            unknown += 1
            told = isinstance(size, str) and size != NOT_FINITE
            why[str(size) if told else f"the error of {entry.node!r} is not finite"] = None
        elif size and carried:
            ratio = size / carried
            found.append(_Estimate(entry=entry, share=ratio**2 * reaches.get(entry.tensor, 1.0), ratio=ratio))
    return found, unknown


def _wanted(estimates: Sequence[_Estimate], always: Collection[str], most: int | None) -> list[PlannedNode]:
    """Return what is worth a replay: what is always wanted, and estimates that are not negligible."""
    counting = sum(each.entry.tensor in always or each.share >= CONTRIBUTION_MIN_SHARE for each in estimates)
    first = len(estimates) if most is None else min(most, max(counting, CONTRIBUTORS_NAMED))
    return [each.entry for each in estimates[:first]]


def _affordable(work: Iterable[tuple[PlannedNode, float]], most: float) -> list[PlannedNode]:
    """Return the entries whose work together is no more than allowed: of those that are left, the first that fits."""
    chosen = list[PlannedNode]()
    for entry, cost in work:
        checkpoint()
        if cost <= most:
            most -= cost
            chosen.append(entry)
    return chosen


@dataclass(slots=True, kw_only=True)
class _OutputReplays:
    """Replays own errors to an output, in all samples.

    Args:
        graphs: Holds the two graphs against each other.
        output: The output.
        places: Samples and steps.
        part: The part of the output that is looked at; None for all of it.
        why: Gets the reasons why a replay could not be made.
    """

    graphs: GraphCheck
    output: PlannedNode
    places: Sequence[tuple[int, int]]
    part: JoinedPart | None
    why: dict[str, None]

    def alone(self, chosen: Sequence[PlannedNode]) -> _Powers:
        """Replay the own error of each of some tensors alone."""
        powers = _Powers()
        for place in self.places:
            checkpoint()
            replay = ErrorReplay(self.graphs, self.output, place)
            theirs = replay.signal
            powers.signal += finite_norm(theirs if self.part is None else self.part.of(theirs)) ** 2
            powers.error += self._between(theirs, replay.recorded)
            for entry, made in zip(chosen, replay.outputs([[(entry, None)] for entry in chosen]), strict=True):
                powers.made[entry.tensor] = powers.made.get(entry.tensor, 0.0) + self._power(made, theirs)
        if not powers.signal and chosen:
            self.why["the reference's output has no signal to measure an error against"] = None
            powers.made = dict.fromkeys(powers.made, math.nan)
        return powers

    def together(self, first: Sequence[PlannedNode], powers: _Powers) -> Together | None:
        """Replay the own errors of some tensors at once; None if that cannot be."""
        if not first:
            return None
        made = left = 0.0
        for place in self.places:
            checkpoint()
            replay = ErrorReplay(self.graphs, self.output, place)
            result = replay.output(first)
            made += self._power(result, replay.signal)
            if result.values is not None:
                left += self._between(replay.recorded, result.values)
        if not (math.isfinite(made) and math.isfinite(left)):
            return None
        return Together(
            nodes=tuple(each.node for each in first),
            sqnr_db=powers.sqnr_db(made),
            without_db=powers.sqnr_db(left),
            left=left / powers.error if powers.error else None,
        )

    def _between(self, one: np.ndarray, other: np.ndarray) -> float:
        """Return the power of the difference of two outputs, or of the part that is looked at."""
        off = difference(one, other.reshape(one.shape))
        return norm(off if self.part is None else self.part.of(off)) ** 2

    def _power(self, made: Replayed, theirs: np.ndarray) -> float:
        """Return the power that a replay makes of an output; NaN, with the reason, if it is no finite number."""
        power = math.nan if made.values is None else self._between(theirs, made.values)
        if made.values is not None and not math.isfinite(power):
            self.why["an error makes the output not finite"] = None
        elif made.reason:
            self.why[made.reason] = None
        return power if math.isfinite(power) else math.nan


def _contributor(each: _Estimate, output: PlannedNode, powers: _Powers, at_output: float) -> Contributor:
    power = powers.made.get(each.entry.tensor, math.nan)
    exact = math.isfinite(power)
    bound = each.ratio * at_output
    level = powers.sqnr_db(power) if exact else -20 * math.log10(bound) if bound else math.inf
    share = (power / powers.error if powers.error else None) if exact else None
    return Contributor(
        node=each.entry.node,
        tensor=each.entry.tensor,
        output=output.tensor,
        sqnr_db=level,
        how="exact" if exact else "bounded",
        share=share if share is None or math.isfinite(share) else None,
    )
