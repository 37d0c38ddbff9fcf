"""The answer of `explain`: for each node the arithmetic that reproduces it, and what nothing reproduces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from qdebug.arithmetic.patterns.residual import Residual
from qdebug.compare.align.pairs import Side, Unmatched, UnmatchedKind
from qdebug.compare.result.limits import Limits
from qdebug.model import Fidelity, RunInfo
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.model.thresholds.verdict import UNJUDGED_MAX_SHARE

__all__ = ["Band", "ExplainStatus", "ExplainedRun", "NodeExplanation", "PresetMatch", "Recorded", "RunnerUp"]


class ExplainStatus(StrEnum):
    """How the output of one node can be accounted for."""

    EXPLAINED = "explained"
    UNEXPLAINED = "unexplained"
    IN_BAND = "in_band"
    NO_KERNEL = "no_kernel"
    NO_INPUT = "no_input"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best arithmetic that does not reproduce a node, and the share of elements that it does reproduce."""

    variant: str
    match: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetMatch:
    """A known backend whose arithmetic for a kind of node is among the variants.

    Args:
        name: Its name.
        provenance: How it is known: "measured", "source" or "memory".
        detail: What was measured or read.
    """

    name: str
    provenance: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The integer multiplier and shift that a backend recorded with a node's output.

    Args:
        reproduces: Whether a program with them reproduces every element.
        ratio: What they stand for over the quotient of the recorded scales, of the channel where it is furthest from 1.
    """

    reproduces: bool
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far a float node's output is from its replay.

    Args:
        precision: The finest precision that accounts for the error: "exact", "fp32", "tf32 inputs", "fp16 inputs",
            "bf16 inputs" (each also "and bias"), "fp16 accumulator" or "bf16 accumulator"; "fp32" if none does. Where
            what it gives was rounded to a shorter format, "fp16 output", "bf16 output" or "tf32 output" for "fp32";
            "codes output" where it lies on the grid of codes whose scale nobody stated.
        ratio: Norm of the error over the norm that this precision allows; None if the node has no bound.
        spread: Norm of the error over the largest difference between sampled orders of the sums; None if the node has
            none that can be sampled.
        exact: Whether the output equals the replay bit for bit.
    """

    precision: str
    ratio: float | None = None
    spread: float | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation(JsonObject):
    """What accounts for one output of one node.

    Args:
        node: Name of the node.
        op: Its operator.
        tensor: The output.
        status: The answer.
        reason: Why there is no better one, or what the answer leaves open; None if nothing.
        kind: What the node computes, such as "conv"; None if it is no quantized unit.
        dtypes: Types of its operands and output, such as "uint8 x int8 -> uint8".
        elements: Recorded elements of the output, of all samples.
        variants: Texts of the variants that reproduce the node and its siblings, the simplest first, one for each
            function: what is proven to give the same codes whatever the operands are is one. If none does, the one
            that wrong elements are counted with: its siblings', or the simplest or the best.
        members: All of them, those that are one function included; not in the JSON.
        words: The first of them in plain words.
        alone: How many variants reproduce this node, were it looked at without its siblings; several names of one
            function count several times.
        siblings: Nodes of the same kind, types and backend whose evidence is pooled, this one included.
        presets: Known backends with one of these variants.
        match: Share of the elements that the first variant reproduces.
        witnesses: Different numbers (sums with their channel, or codes) that the runner-up gets wrong: what the answer
            rests on.
        witness_elements: Elements that hold them.
        runner_up: The best variant that does not reproduce it.
        residual: What the best variant leaves; None if nothing.
        tried: Number of variants tried.
        recorded: The multiplier and shift that were recorded with it; None without.
        band: How far a float node is from its replay; None for a quantized one.
        accepted: Why an unexplained node is no failure; None if it is one.
        on_codes: Whether its output holds codes, or is computed with codes.
        assumed: What the answer assumes beyond the types that were recorded, in a clause; None if nothing.
    """

    json_keys = (
        "node op tensor reason kind dtypes elements words alone siblings match witnesses witness_elements "
        "tried accepted on_codes status variants presets=preset_names provenance runner_up residual recorded "
        "band assumed"
    )

    node: str
    op: str
    tensor: str
    status: ExplainStatus
    reason: str | None = None
    kind: str | None = None
    dtypes: str | None = None
    elements: int = 0
    variants: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    words: str | None = None
    alone: int = 0
    siblings: int = 1
    presets: tuple[PresetMatch, ...] = ()
    match: float | None = None
    witnesses: int = 0
    witness_elements: int = 0
    runner_up: RunnerUp | None = None
    residual: Residual | None = None
    tried: int = 0
    recorded: Recorded | None = None
    band: Band | None = None
    accepted: str | None = None
    on_codes: bool = False
    assumed: str | None = None

    @property
    def preset_names(self) -> tuple[str, ...]:
        """Names of the presets."""
        return tuple(preset.name for preset in self.presets)

    @property
    def provenance(self) -> Mapping[str, str]:
        """How each preset is known, by its name."""
        return {preset.name: f"{preset.provenance}: {preset.detail}" for preset in self.presets}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRun(JsonObject):
    """The explanation of a whole recording.

    Args:
        run: Facts of the run.
        nodes: One entry for each output of each node, in topological order.
        arithmetic: Text of the variant that stands for each kind of node and types, or for a branch of the kind
            ("lookup.Sigmoid") where one variant does not do for all; what an arithmetic file holds.
        exceptions: By the same keys, how many explained nodes that variant does not reproduce, in words.
        limits: What may be missing.
    """

    json_format = "explain"
    json_keys = "backend=run summary arithmetic nodes"

    run: RunInfo
    nodes: Sequence[NodeExplanation]
    arithmetic: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    exceptions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    limits: Limits = field(default_factory=Limits)

    @property
    def summary(self) -> Annotated[Mapping[str, Any], SchemaPart(required=[*ExplainStatus, "by_op"])]:
        """How many nodes have each status, as a whole and by operator."""
        by_op: dict[str, Counter[str]] = {}
        for node in self.nodes:
            by_op.setdefault(node.op, Counter())[str(node.status)] += 1
        totals = Counter(str(node.status) for node in self.nodes)
        counts: dict[str, Any] = {str(status): totals[str(status)] for status in ExplainStatus}
        known = self.presets
        return counts | {
            "by_op": {op: dict(sorted(count.items())) for op, count in sorted(by_op.items())},
            "preset": None if not known else {"name": known[0][0], "but_for": known[0][1]},
            "on_codes": sum(node.on_codes for node in self.nodes),
            "not_looked_at": len(self.not_looked_at),
            "assumed": dict(self.assumptions),
        }

    @property
    def assumptions(self) -> Mapping[str, int]:
        """The number of nodes by assumption beyond the recorded types."""
        return Counter(node.assumed for node in self.nodes if node.assumed is not None)

    @property
    def not_looked_at(self) -> tuple[NodeExplanation, ...]:
        """The nodes on codes that could not be looked at: without kernel, or without their inputs."""
        left_out = (ExplainStatus.NO_KERNEL, ExplainStatus.NO_INPUT)
        return tuple(node for node in self.nodes if node.on_codes and node.status in left_out)

    @property
    def presets(self) -> tuple[tuple[str, int], ...]:
        """The presets that fit most nodes, each with how many it does not fit, the best first; none if half do not.

        Nodes that only move codes, or that were not looked at, count for nothing.
        """
        asked = [node for node in self.nodes if node.variants or node.status is ExplainStatus.UNEXPLAINED]
        fits = Counter(name for node in asked for name in {match.name for match in node.presets})
        measured = {match.name for node in asked for match in node.presets if match.provenance == "measured"}
        # the first preset is the run's own backend, if that matches
        own = {match.name for node in asked for match in node.presets[:1]}
        misses = sorted((len(asked) - many, name not in measured, name not in own, name) for name, many in fits.items())
        best = [(name, missed) for missed, _, _, name in misses if 2 * missed < len(asked)]
        return tuple(each for each in best if each[1] == best[0][1])

    def of(self, status: ExplainStatus) -> tuple[NodeExplanation, ...]:
        """Return the nodes of one status."""
        return tuple(node for node in self.nodes if node.status is status)

    @property
    def answered(self) -> bool:
        """Whether anything that was computed has an answer: nodes that only move codes give none for the others."""
        if self.of(ExplainStatus.UNEXPLAINED) or self.of(ExplainStatus.IN_BAND):
            return True
        explained = self.of(ExplainStatus.EXPLAINED)
        left_out = self.of(ExplainStatus.NO_INPUT) or self.of(ExplainStatus.NO_KERNEL)
        return any(node.variants for node in explained) or bool(explained and not left_out)

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """A clause for all that is missing from the answer and was not accepted."""
        found = []
        if not self.run.complete and not self.limits.allow_partial:
            found.append("the recording is incomplete")
        if self.run.fidelity is Fidelity.DIFFERS and not self.limits.allow_unfaithful:
            found.append("recording changed the result")
        if not self.answered:
            found.append("no computed tensor could be examined")
        lost = tuple(
            Unmatched(side=Side.BACKEND, tensor=node.tensor, kind=UnmatchedKind.LOST, reason=node.reason or "")
            for node in self.not_looked_at
        )
        left, count = self.limits.not_allowed(lost), sum(node.on_codes for node in self.nodes)
        if len(left) > UNJUDGED_MAX_SHARE * count:
            found.append(f"{len(left)} of {count} quantized nodes were not examined{_first(left)}")
            return tuple(found)
        found += [f"no {op} was examined{_first(missed)}" for op, missed in self._unseen_operators(left).items()]
        return tuple(found)

    def _unseen_operators(self, left: Sequence[Unmatched]) -> dict[str, list[Unmatched]]:
        """Group what was not looked at by its operator, for operators on codes that have no kernel and no answer."""
        left_out, no_kernel = {node.tensor for node in self.not_looked_at}, ExplainStatus.NO_KERNEL
        answered = {node.op for node in self.nodes if node.on_codes and node.tensor not in left_out}
        unseen = {node.tensor: node.op for node in self.not_looked_at if node.status is no_kernel}
        found: dict[str, list[Unmatched]] = {}
        for each in left:
            op = unseen.get(each.tensor)
            if op is not None and op not in answered:
                found.setdefault(op, []).append(each)
        return found

    @property
    def exit_code(self) -> int:
        """What `qdebug explain` exits with.

        3 if the recording cannot be relied on, nothing in it has an answer, or too many nodes on codes were not looked
        at, or all of an operator; 1 if a node is unexplained; else 0.
        """
        if self.shortcomings:
            return 3
        return 1 if any(node.accepted is None for node in self.of(ExplainStatus.UNEXPLAINED)) else 0

    def accepting(self, limits: Limits) -> ExplainedRun:
        """Return the explanation with unexplained nodes accepted that limits allow.

        Args:
            limits: Acknowledged nodes, the largest error in steps that no one has to explain, and what may be missing.
        """
        nodes = tuple(
            replace(node, accepted=_allowed(node, limits)) if node.status is ExplainStatus.UNEXPLAINED else node
            for node in self.nodes
        )
        return replace(self, nodes=nodes, limits=limits)


def _first(left: Sequence[Unmatched]) -> str:
    """Name the first of some tensors, and why it was not looked at."""
    reason = f": {left[0].reason}" if left[0].reason else ""
    return f" (the first: {left[0].tensor!r}{reason})"


def _allowed(node: NodeExplanation, limits: Limits) -> str | None:
    """Say why a node need not be explained; None if it must."""
    known = limits.acknowledgement(node.node)
    if known is not None and not known.expired:
        return f"acknowledged: {known.reason}"
    bound = limits.max_lsb
    if bound is not None and node.residual is not None and node.residual.max_lsb <= bound:
        return f"its error is at most {bound:g} LSB"
    return None
