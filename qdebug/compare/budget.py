"""The budget of an output's error: how much of it each node's own error makes.

A node's own error is added to the reference's tensor, and the reference's nodes below are replayed with it. Its share
is the power of what that makes of the output, over the power of the output's real error; so errors that are independent
of each other have shares that add up to 1. What all own errors make at once, and what the nodes that were not replayed
one by one make together, is replayed too. With all own errors in place each tensor of the reference becomes the
backend's, so that the first replay gives the backend's output again if nothing was missed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from qdebug.compare.attribute.band import norm
from qdebug.compare.attribute.graph_walk import upstream
from qdebug.compare.attribute.plan import PlannedNode, recorded_places
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.output_path import OutputPath
from qdebug.compare.own_error import PARTS
from qdebug.compare.result.result import json_safe
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, RunInfo
from qdebug.numerics.checkpoint import checkpoint

__all__ = ["LEAST_SHARE", "ErrorBudget", "NodeShare", "OutputBudget", "budget_of_output"]

LEAST_SHARE = 0.01
"""Share of an output's error below which nodes are summed, if nothing else is asked for."""
_PRUNED = 0.1
"""Part of the least share below which an estimate lets a node go without a replay of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """What a node's own error alone makes of an output.

    Args:
        node: The backend node.
        op: Its operator.
        tensor: Its output.
        reference_tensor: Where its error is added.
        share: Power of what it makes of the output, over that of the output's error.
        sqnr_db: SQNR in dB of the output if all other nodes were as in the reference; infinite if it makes nothing.
        parts: Share of each part of the error alone, by a name of `PARTS`; empty where the parts are not known.
    """

    node: str
    op: str
    tensor: str
    reference_tensor: str
    share: float
    sqnr_db: float
    parts: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the share as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBudget:
    """What the error of one output is made of.

    Args:
        output: The backend's output.
        reference_tensor: The reference's.
        sqnr_db: SQNR in dB of the output; infinite if nothing is wrong, NaN if its error is not finite: then it has
            no budget.
        samples: How many samples and steps were looked at.
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
    nodes: tuple[NodeShare, ...] = ()
    least: float = 0.0
    below: int = 0
    pruned: int = 0
    below_share: float | None = None
    shares: float = 0.0
    left: float | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as plain values."""
        return {**asdict(self), "nodes": [node.to_dict() for node in self.nodes]}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget:
    """What the errors of a backend's outputs are made of.

    Args:
        reference: The reference run.
        backend: The backend run.
        outputs: The budget of each compared output.
    """

    reference: RunInfo
    backend: RunInfo
    outputs: tuple[OutputBudget, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as plain values, ready for JSON."""
        plain: dict[str, Any] = json_safe(
            {
                "format": "qdebug.budget",
                "version": 1,
                "reference": self.reference.to_dict(),
                "backend": self.backend.to_dict(),
                "outputs": [output.to_dict() for output in self.outputs],
            }
        )
        return plain

    def to_json(self) -> str:
        """Return the budget as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


class _Sums:
    """Powers over all samples."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], float] = {}
        self.error = self.signal = self.left = 0.0

    def add(self, tensor: str, part: str, made: np.ndarray | None, signal: np.ndarray) -> None:
        """Add what an error makes of the output in one sample; None is kept as not known."""
        power = math.nan if made is None else _power(made - signal)
        self._of[tensor, part] = self._of.get((tensor, part), 0.0) + power

    def share(self, tensor: str, part: str) -> float | None:
        """Return a power over that of the output's error; None if not known."""
        power = self._of.get((tensor, part), math.nan)
        return power / self.error if math.isfinite(power) and self.error else None

    def sqnr_db(self, power: float) -> float:
        """Return the SQNR of an error of some power; NaN of one that is not finite."""
        if not power or not math.isfinite(power):
            return math.nan if power else math.inf
        return 10 * math.log10(self.signal / power) if self.signal else -math.inf


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
        progress: Called with the number of replays made and their total.
    """
    recorded = recorded_places(graphs.replays.ref.recording, graphs.replays.be.recording, output)
    places = [place for place in recorded if places is None or place in places]
    above = upstream(graphs.replays.be.recording.graph, (output.tensor,))
    entries = [each for each in plan if each.tensor in above and each.op != "Input"]
    sums, paths = _Sums(), [OutputPath(graphs, output, place, None) for place in places]
    for path in paths:
        sums.signal += _power(path.signal())
        sums.error += _power(path.recorded() - path.signal())
    base = OutputBudget(
        output=output.tensor,
        reference_tensor=output.reference_tensor,
        sqnr_db=sums.sqnr_db(sums.error),
        samples=len(places),
        least=least,
    )
    if not sums.error or not math.isfinite(sums.error):
        return base
    reaches = _reaching(graphs.replays.be.recording.graph, output.tensor, of)
    found = _sorted_out(paths, entries, of, reaches, least)
    total, done = len(places) * (len(found.alone) + 2), 0

    def step() -> None:
        nonlocal done
        checkpoint()
        done += 1
        if progress is not None:
            progress(done, total)

    for path in paths:
        signal = path.signal()
        for entry in found.alone:
            sums.add(entry.tensor, "", path.output_with([entry]), signal)
            step()
    shares = {entry.tensor: sums.share(entry.tensor, "") for entry in found.alone}
    large = [entry for entry in found.alone if (shares[entry.tensor] or 0.0) >= least]
    small = [entry for entry in found.known if entry not in large and shares.get(entry.tensor, 0.0) is not None]
    total += len(places) * len(large)
    for path in paths:
        signal = path.signal()
        sums.add("", "below", path.output_with(small) if small else signal, signal)
        step()
        everything = path.output_with([*large, *small])
        sums.left += math.nan if everything is None else _power(path.recorded() - everything)
        step()
        for entry in large:
            for part, error in path.own_parts(entry).items() if parts else ():
                if np.any(error):
                    sums.add(entry.tensor, part, path.output_with([entry], {entry.tensor: error}), signal)
            step()
    return _given(base, sums, found, large, small)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortedOut:
    """Nodes above an output: those whose error is known, those of them to replay alone, and the rest with reasons."""

    known: Sequence[PlannedNode]
    alone: Sequence[PlannedNode]
    unknown: Mapping[str, str]


def _sorted_out(
    paths: Sequence[OutputPath],
    entries: Sequence[PlannedNode],
    of: ResultTable,
    reaches: Mapping[str, float],
    least: float,
) -> _SortedOut:
    """Tell whose own error is known, and whose share may be large in any sample, by a first-order estimate."""
    estimates, unknown = dict[str, float](), dict[str, str]()
    for entry in entries:
        carried = float(of.carried[of.rows[entry.tensor]])
        for path in paths:
            checkpoint()
            own = path.own_error(entry)
            if own is None or not np.isfinite(own).all():
                unknown[entry.node] = path.last_reason if own is None else "its error is not finite"
                break
            size = norm(own)
            if size:
                ratio = path.relative(own, entry.reference_tensor) / carried if carried else math.inf
                share = ratio**2 * reaches.get(entry.tensor, 1.0)
                estimates[entry.tensor] = max(estimates.get(entry.tensor, 0.0), share)
    wrong = [entry for entry in entries if entry.tensor in estimates and entry.node not in unknown]
    alone = [each for each in wrong if not estimates[each.tensor] < _PRUNED * least]
    return _SortedOut(known=wrong, alone=alone, unknown=unknown)


def _reaching(graph: Graph, output: str, of: ResultTable) -> Mapping[str, float]:
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
                parts={part: value for part, value in parts.items() if value is not None},
            )
        )
    nodes.sort(key=lambda node: -node.share)
    rest = sums.share("", "below")
    if rest is None:  # then nothing is known of those that were not replayed alone
        small = [entry for entry in small if entry in found.alone]
    known = {entry.tensor for entry in (*large, *small)}
    lost = {
        entry.node: "a node between it and the output cannot be replayed"
        for entry in found.known
        if entry.tensor not in known
    }
    return OutputBudget(
        output=base.output,
        reference_tensor=base.reference_tensor,
        sqnr_db=base.sqnr_db,
        samples=base.samples,
        least=base.least,
        nodes=tuple(nodes),
        below=len(small),
        pruned=len(small) - sum(entry in found.alone for entry in small),
        below_share=rest,
        shares=sum(node.share for node in nodes) + (rest or 0.0),
        left=sums.left / sums.error if math.isfinite(sums.left) else None,
        unknown={**found.unknown, **lost},
    )
