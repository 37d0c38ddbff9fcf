"""The result of comparing two recordings: one entry per backend tensor, a verdict, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any

from qdebug.compare.align.pairs import Unmatched
from qdebug.compare.result.diagnosis import Diagnosis, RuledOut
from qdebug.compare.result.flat_rows import flat_row
from qdebug.compare.result.inputs import input_finding
from qdebug.compare.result.limits import LIMITS_SCHEMA
from qdebug.compare.result.node_result import JudgedBy, NodeResult, SampleError, SampleResult, Status
from qdebug.compare.result.nonfinite import Nonfinite
from qdebug.model import Fidelity, RunInfo
from qdebug.model.json_object import JsonObject, SchemaPart

__all__ = [
    "NUMERICS_VERSION",
    "Compounding",
    "Contributions",
    "Contributor",
    "Coverage",
    "JudgedBy",
    "Judgements",
    "NodeResult",
    "OutputRanking",
    "RunComparison",
    "SampleError",
    "SampleResult",
    "Status",
    "Verdict",
]

NUMERICS_VERSION = 5
"""Raised whenever the same two recordings may give other numbers than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRanking(JsonObject):
    """Where the reference's winners stand in the backend, for a network output that may hold scores.

    A score vector is the output for one sample and step. See `qdebug.compare.result.scores` for what they are.

    Args:
        tensor: The backend's output.
        entries: Scores in a vector.
        samples: Score vectors that were ranked.
        unranked: Those that were not: the reference has no winner there (a NaN, or all entries equal).
        top1_agreement: Share of the ranked ones in which the reference's winner is the backend's; None if none is.
        top5_agreement: Share in which it is among the first five; None with five entries or fewer, where it always is.
        tied: Ranked vectors in which an entry that is no winner shares the winner's score in the backend.
        worst_rank: Most entries that are ahead of the winner; None if nothing was ranked.
        worst_sample: The first sample with that rank.
    """

    tensor: str
    entries: int
    samples: int
    unranked: int
    top1_agreement: float | None
    top5_agreement: float | None
    tied: int
    worst_rank: int | None
    worst_sample: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgements(JsonObject):
    """By what how many of the compared tensors were judged.

    Args:
        by_replay: By a replay of their node, or by an arithmetic that reproduces them.
        by_whole_error: By their whole error alone, equal tensors included.
        not_judged: Nothing tells whether their node is right.
        failed_replays: Tensors of these whose node has a kernel and recorded inputs, and whose replay failed.
    """

    by_replay: int = 0
    by_whole_error: int = 0
    not_judged: int = 0
    failed_replays: int = 0

    @classmethod
    def of(cls, nodes: Sequence[NodeResult]) -> Judgements:
        """Count results; those that could not be compared are left out."""
        counts = Counter(node.judged_by for node in nodes if node.status is not Status.INCOMPARABLE)
        return cls(
            by_replay=counts[JudgedBy.REPLAY],
            by_whole_error=counts[JudgedBy.WHOLE_ERROR],
            not_judged=counts[JudgedBy.NONE],
            failed_replays=sum(node.failed_replay for node in nodes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(JsonObject):
    """What was compared, by what it was judged, and what was not compared, with reasons."""

    json_keys = "compared samples unmatched"

    compared: int
    unmatched: Sequence[Unmatched]
    samples: int = 0
    judged: Judgements = field(default_factory=Judgements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compounding(JsonObject):
    """A node that enlarges the error that reaches it far more than others of its kind.

    Args:
        node: The backend node.
        op: Its operator, without the words that only say how it is computed.
        tensor: Its output.
        gain: rel_l2(error out) / rel_l2(largest error in).
        usual: Median gain of the nodes with this operator.
        nodes: How many of them have a gain.
    """

    node: str
    op: str
    tensor: str
    gain: float
    usual: float
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor(JsonObject):
    """A node whose own error alone, brought to an output of the network, is known or bounded.

    Args:
        node: The backend node.
        tensor: Its output.
        output: The network output, a backend tensor.
        sqnr_db: SQNR in dB of that output if all other nodes were as in the reference.
        how: "exact" if the reference was replayed with that error from the node to the output, "bounded" if it is the
            node's own relative error times the growth of the whole relative error from there to the output.
        share: Power of what the error alone makes of the output, over that of the output's error, all samples together;
            None if it is bounded. Errors that cancel each other have shares above 1.
    """

    node: str
    tensor: str
    output: str
    sqnr_db: float
    how: Annotated[str, SchemaPart(enum=["exact", "bounded"])]
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Together(JsonObject):
    """What the nodes that contribute most make of an output of the network together.

    Args:
        nodes: The backend nodes.
        sqnr_db: SQNR in dB of the output with the errors of these nodes, and of no other.
        without_db: SQNR in dB of the output if what they make of it is taken off.
        left: Power of the output's error that is left then, over that of the whole; None of an output without error.
    """

    nodes: tuple[str, ...]
    sqnr_db: float
    without_db: float
    left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """What nodes contribute to the error of an output.

    Args:
        nodes: The nodes: those that were replayed to the output first, among these those that contribute most.
        unknown: How many tensors above the output have an error of their own that is not known.
        why: Why not all were replayed, each reason once.
        together: What the first few of those that were replayed make together; None if that could not be replayed.
    """

    nodes: tuple[Contributor, ...]
    unknown: int = 0
    why: tuple[str, ...] = ()
    together: Together | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JsonObject):
    """The answer in one word, one place and one sentence.

    Args:
        status: How the whole comparison came out.
        first_divergence: The first node beyond its limit, in the backend's topological order; None if there is none.
        origin: The node whose own error feeds the worst output error; None if there is none.
        sentence: All that is to be said, in one paragraph.
        cause: Why the codes of the first divergence are wrong, a clause; "" where nothing more is known.
        way_on: Where what is not finite goes on to; "" where all is finite.
        remarks: The parts of it that are true beside the diagnosis, a sentence or two each.
        worst_sample: The sample that comes out worst at the worst output; None if nothing is compared.
        compounding: Nodes that enlarge error far more than others of their kind, the largest excess first.
        contributors: What nodes contribute to the error of the worst output over all samples, the most first; empty
            where the outputs are within their limits.
        together: What the first of these make together, and what is left without them; None if that is not known.
        nonfinite: Where a NaN or an infinity is born and how it reaches the outputs; None if none is, or nobody knows.
        way: Backend tensors from the worst output to the one at which the origin was found, that one last. It is made
            by the node `origin`, or ends the part of the network that has this node inside.
        short: Backend tensors that are outputs beyond the limit of outputs while no node is beyond its own.
    """

    json_keys = "status first_divergence origin worst_sample compounding contributors together nonfinite sentence"

    status: Status
    first_divergence: str | None
    origin: str | None
    sentence: str
    cause: str = ""
    way_on: str = ""
    remarks: tuple[str, ...] = ()
    worst_sample: int | None = None
    compounding: tuple[Compounding, ...] = ()
    contributors: tuple[Contributor, ...] = ()
    together: Together | None = None
    nonfinite: Nonfinite | None = None
    way: tuple[str, ...] = ()
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison(JsonObject):
    """The comparison of a backend recording with a reference recording.

    Args:
        reference: Facts of the reference run.
        backend: Facts of the backend run.
        verdict: The answer.
        coverage: What was compared and what was not.
        nodes: One entry per compared backend tensor, in the backend's topological order.
        limits: The limits in force.
        shortcomings: What is missing and not allowed to be, a clause each; any makes the exit code 3.
        outputs: For each network output that may hold scores, whether its winner is still the same.
        network_outputs: Backend tensors that are outputs of the network and were compared.
        diagnosis: What is wrong, the largest share of the outputs' error first; empty where all is well.
        ruled_out: What was looked for and is not there.
    """

    json_format = "diff"
    json_keys = (
        "numerics_version reference backend fidelity limits verdict diagnosis ruled_out shortcomings "
        "judged=coverage.judged coverage outputs network_outputs nodes"
    )

    reference: RunInfo
    backend: RunInfo
    verdict: Verdict
    coverage: Coverage
    nodes: Sequence[NodeResult]
    limits: Annotated[Mapping[str, Any], LIMITS_SCHEMA] = field(default_factory=lambda: MappingProxyType({}))
    shortcomings: tuple[str, ...] = ()
    outputs: tuple[OutputRanking, ...] = ()
    network_outputs: tuple[str, ...] = ()
    diagnosis: tuple[Diagnosis, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()

    @property
    def exit_code(self) -> int:
        """What `qdebug diff` exits with: 3 incomplete beyond what is allowed, 1 beyond a limit, 0 within."""
        if self.shortcomings or self.status is Status.INCOMPLETE:
            return 3
        return 1 if self.status in (Status.ACCUMULATED, Status.DIVERGED, Status.NONFINITE) else 0

    @property
    def different_inputs(self) -> tuple[NodeResult, ...]:
        """The inputs of the network that differ between the two runs."""
        return tuple(node for node in self.nodes if input_finding(node) is not None)

    @property
    def status(self) -> Status:
        """How the comparison came out."""
        return self.verdict.status

    @property
    def first_divergence(self) -> str | None:
        """Name of the first backend node beyond its limit, in topological order."""
        return self.verdict.first_divergence

    @property
    def origin(self) -> str | None:
        """Name of the node whose own error feeds the worst output error; None until it is known."""
        return self.verdict.origin

    @property
    def numerics_version(self) -> int:
        """`NUMERICS_VERSION`, of which a change says that the same recordings may give other numbers."""
        return NUMERICS_VERSION

    @property
    def fidelity(self) -> Annotated[Mapping[str, Fidelity], SchemaPart(required=["reference", "backend"])]:
        """Whether recording changed the result, for each side."""
        return {"reference": self.reference.fidelity, "backend": self.backend.fidelity}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one flat dictionary a tensor, for pandas.DataFrame(rows) and the like.

        What is not known is None: polars must see all rows, polars.DataFrame(rows, infer_schema_length=None).
        """
        return [flat_row(node) for node in self.nodes]
