"""The result of `explain`: the arithmetic that reproduces each node, and what is known about unexplained nodes."""

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
    """Whether the output of a node has an explanation, and if not, why."""

    EXPLAINED = "explained"
    UNEXPLAINED = "unexplained"
    IN_BAND = "in_band"
    NO_KERNEL = "no_kernel"
    NO_INPUT = "no_input"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerUp:
    """The best arithmetic among those that do not reproduce every element of a node.

    Args:
        variant: Its text.
        match: Share of elements that it reproduces.
    """

    variant: str
    match: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetMatch:
    """A known backend that uses one of the variants for this kind of node.

    Args:
        name: Name of its preset.
        provenance: How its arithmetic is known: "measured", "source" or "memory".
        detail: The measurement or the source.
    """

    name: str
    provenance: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The integer multiplier and shift that a backend recorded with a node's output.

    Args:
        reproduces: Whether a program with them reproduces every element.
        ratio: The multiplier that they represent, divided by the quotient of the recorded scales, in the channel where
            this ratio is furthest from 1.
    """

    reproduces: bool
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far a float node's output is from its replay.

    Args:
        precision: The finest precision that accounts for the error: "exact", "fp32", "tf32 inputs", "fp16 inputs",
            "bf16 inputs" (each also "and bias"), "fp16 accumulator" or "bf16 accumulator"; "fp32" if none does. If the
            output was rounded to a shorter format, "fp16 output", "bf16 output" or "tf32 output" replaces "fp32".
            "codes output" means that it lies on the grid of codes with an undeclared scale.
        ratio: Error norm divided by the norm that this precision allows. None if the node has no bound.
        spread: Error norm divided by the largest difference between sampled summation orders. None if the order of the
            node's sums cannot be sampled.
        exact: Whether the output equals the replay bit for bit.
    """

    precision: str
    ratio: float | None = None
    spread: float | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation(JsonObject):
    """The explanation of one output of one node.

    Args:
        node: Name of the node.
        op: Its operator.
        tensor: The output.
        status: Whether it is explained, and if not, why.
        reason: Why it is not explained, or a remark on the explanation. None if there is nothing to add.
        kind: What the node computes, such as "conv". None if it is not a quantized unit.
        dtypes: Types of its operands and output, such as "uint8 x int8 -> uint8".
        elements: Number of recorded elements of the output, in all samples.
        variants: Texts of the variants that reproduce the node and its siblings, simplest first, one for each function.
            Variants proven to give the same codes for all operands are the same function. If no variant reproduces
            them, the variant that wrong elements are counted against: that of the siblings, the simplest or the best.
        members: All these variants, including several per function. Not in the JSON.
        words: The first variant in plain words.
        alone: How many variants reproduce this node, whether or not they reproduce its siblings. Several variants of
            one function count separately.
        siblings: Number of nodes of the same kind, types and backend whose evidence is pooled, including this node.
        presets: Known backends that use one of these variants.
        match: Share of the elements that the first variant reproduces.
        witnesses: Number of distinct values (sums with their channel, or codes) that the runner-up gets wrong: the
            evidence for the answer.
        witness_elements: Number of elements with these values.
        runner_up: The best variant that does not reproduce it.
        residual: The error that remains with the best variant. None if there is none.
        tried: Number of variants tried.
        recorded: The recorded multiplier and shift, or None.
        band: How far a float node's output is from its replay. None for a quantized node.
        accepted: Why an unexplained node does not count as a failure. None if it does.
        on_codes: Whether its output holds codes or is computed from codes.
        assumed: An assumption of the explanation that the recorded types do not state, as a clause, or None.
        placements: Texts of the placements of roundings that reproduce a float node, simplest first. The first one is
            in `words`.
    """

    json_keys = (
        "node op tensor reason kind dtypes elements words alone siblings match witnesses witness_elements "
        "tried accepted on_codes status variants presets=preset_names provenance runner_up residual recorded "
        "band assumed placements"
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
    placements: tuple[str, ...] = ()

    @property
    def preset_names(self) -> tuple[str, ...]:
        """Names of the presets."""
        return tuple(preset.name for preset in self.presets)

    @property
    def provenance(self) -> Mapping[str, str]:
        """Provenance and detail of each preset's arithmetic, by preset name."""
        return {preset.name: f"{preset.provenance}: {preset.detail}" for preset in self.presets}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRun(JsonObject):
    """The explanation of a whole recording.

    Args:
        run: Facts of the run.
        nodes: One entry for each output of each node, in topological order.
        arithmetic: Text of the variant for each kind of node and types, or for a branch of the kind ("lookup.Sigmoid")
            if no variant covers all branches. This is the content of an arithmetic file.
        roundings: Text of the placement of roundings by operator and format ("Add:bfloat16"), or by node
            ("node:bfloat16:add1").
        exceptions: By the keys of `arithmetic`, a clause on how many explained nodes that variant does not reproduce.
        limits: The user's limits, which decide what counts as a failure.
    """

    json_format = "explain"
    json_keys = "backend=run summary arithmetic roundings nodes"

    run: RunInfo
    nodes: Sequence[NodeExplanation]
    arithmetic: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    exceptions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    roundings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    limits: Limits = field(default_factory=Limits)

    @property
    def summary(self) -> Annotated[Mapping[str, Any], SchemaPart(required=[*ExplainStatus, "by_op"])]:
        """Number of nodes with each status, in total and by operator."""
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
        """Number of nodes by assumption beyond the recorded types."""
        return Counter(node.assumed for node in self.nodes if node.assumed is not None)

    @property
    def not_looked_at(self) -> tuple[NodeExplanation, ...]:
        """The quantized nodes that could not be examined, because a kernel or an input is missing."""
        left_out = (ExplainStatus.NO_KERNEL, ExplainStatus.NO_INPUT)
        return tuple(node for node in self.nodes if node.on_codes and node.status in left_out)

    @property
    def presets(self) -> tuple[tuple[str, int], ...]:
        """The presets that match most nodes, each with the number of nodes that it does not match.

        Empty if no preset matches more than half of the nodes. Nodes that only move codes, or were not examined, do not
        count.
        """
        asked = [node for node in self.nodes if node.variants or node.status is ExplainStatus.UNEXPLAINED]
        fits = Counter(name for node in asked for name in {match.name for match in node.presets})
        measured = {match.name for node in asked for match in node.presets if match.provenance == "measured"}
        # The presets of a node begin with the one of the run's own backend, if that matches.
        own = {match.name for node in asked for match in node.presets[:1]}
        misses = sorted((len(asked) - many, name not in measured, name not in own, name) for name, many in fits.items())
        best = [(name, missed) for missed, _, _, name in misses if 2 * missed < len(asked)]
        return tuple(each for each in best if each[1] == best[0][1])

    def of(self, status: ExplainStatus) -> tuple[NodeExplanation, ...]:
        """Return the nodes with a given status."""
        return tuple(node for node in self.nodes if node.status is status)

    @property
    def answered(self) -> bool:
        """Whether any node that computes could be examined.

        Nodes that only move codes count only if no node was left out.
        """
        if self.of(ExplainStatus.UNEXPLAINED) or self.of(ExplainStatus.IN_BAND):
            return True
        explained = self.of(ExplainStatus.EXPLAINED)
        left_out = self.of(ExplainStatus.NO_INPUT) or self.of(ExplainStatus.NO_KERNEL)
        return any(node.variants for node in explained) or bool(explained and not left_out)

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """Clauses on what makes the explanation incomplete or unreliable, except for what the limits allow."""
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
            found.append(f"{len(left)} of {count} quantized nodes were not examined{_first_unexamined_text(left)}")
            return tuple(found)
        found += [
            f"no {op} was examined{_first_unexamined_text(missed)}"
            for op, missed in self._unseen_operators(left).items()
        ]
        return tuple(found)

    def _unseen_operators(self, left: Sequence[Unmatched]) -> dict[str, list[Unmatched]]:
        """Group unexamined tensors by operator, for operators without a kernel of which no node was examined."""
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
        """Exit code of `qdebug explain`.

        It is 3 if the recording is unreliable, no node could be examined, or too many quantized nodes (or all of one
        operator) were not examined; 1 if a node is unexplained; 0 in all other cases.
        """
        if self.shortcomings:
            return 3
        return 1 if any(node.accepted is None for node in self.of(ExplainStatus.UNEXPLAINED)) else 0

    def accepting(self, limits: Limits) -> ExplainedRun:
        """Return the explanation with the user's limits applied: unexplained nodes that they allow are accepted.

        Args:
            limits: Acknowledged nodes, the largest error in LSB that needs no explanation, and whether a partial or
                unfaithful recording is allowed.
        """
        nodes = tuple(
            replace(node, accepted=_reason_accepted(node, limits)) if node.status is ExplainStatus.UNEXPLAINED else node
            for node in self.nodes
        )
        return replace(self, nodes=nodes, limits=limits)


def _first_unexamined_text(left: Sequence[Unmatched]) -> str:
    """Return a clause in parentheses with the first of the given tensors and why it was not examined."""
    reason = f": {left[0].reason}" if left[0].reason else ""
    return f" (the first: {left[0].tensor!r}{reason})"


def _reason_accepted(node: NodeExplanation, limits: Limits) -> str | None:
    """Return why a node needs no explanation, or None if it needs one."""
    known = limits.acknowledgement(node.node)
    if known is not None and not known.expired:
        return f"acknowledged: {known.reason}"
    bound = limits.max_lsb
    if bound is not None and node.residual is not None and node.residual.max_lsb <= bound:
        return f"its error is at most {bound:g} LSB"
    return None
