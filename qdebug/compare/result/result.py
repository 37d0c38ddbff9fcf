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
    "CachedGrowth",
    "CachedShare",
    "Compounding",
    "Contributions",
    "Contributor",
    "Coverage",
    "Growth",
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

NUMERICS_VERSION = 6
"""Increased whenever the same two recordings may give different numbers than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRanking(JsonObject):
    """Where the reference's winners rank in the backend, for a network output that may hold scores.

    A score vector is the output for one sample and step. See `qdebug.compare.result.scores` for the definitions.

    Args:
        tensor: The backend's output.
        entries: Number of scores in a vector.
        samples: Number of score vectors that were ranked.
        unranked: Number of vectors not ranked: the reference has no winner there (a NaN, or all entries equal).
        top1_agreement: Share of the ranked vectors in which the reference's winner is the backend's. None if none was
            ranked.
        top5_agreement: Share in which the reference's winner is among the backend's top five. None with five entries or
            fewer, where it always is.
        tied: Number of ranked vectors in which an entry that is not a winner shares the winner's score in the backend.
        worst_rank: Largest number of entries ahead of the winner. None if nothing was ranked.
        worst_sample: The first sample with that rank.
        logprob_rms: Root mean square of log p - log q over entries drawn by the reference, in nats. None, like the
            following, unless the output is taken for logits.
        kl: Mean Kullback-Leibler divergence of the backend from the reference over vectors, in nats.
        worst_kl: Largest divergence of a vector, in nats.
        worst_kl_sample: The first sample with that divergence.
        top5_overlap: Mean share of the reference's five highest scores that are among the backend's five highest.
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
    logprob_rms: float | None = None
    kl: float | None = None
    worst_kl: float | None = None
    worst_kl_sample: int | None = None
    top5_overlap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgements(JsonObject):
    """How the compared tensors were judged, as counts.

    Args:
        by_replay: By a replay of their node, or by an arithmetic that reproduces them.
        by_whole_error: By their total error alone, including equal tensors.
        not_judged: Nothing shows whether their node is right.
        failed_replays: Number of these tensors whose replay failed although their node has a kernel and recorded
            inputs.
    """

    by_replay: int = 0
    by_whole_error: int = 0
    not_judged: int = 0
    failed_replays: int = 0

    @classmethod
    def of(cls, nodes: Sequence[NodeResult]) -> Judgements:
        """Count results, leaving out those that could not be compared."""
        counts = Counter(node.judged_by for node in nodes if node.status is not Status.INCOMPARABLE)
        return cls(
            by_replay=counts[JudgedBy.REPLAY],
            by_whole_error=counts[JudgedBy.WHOLE_ERROR],
            not_judged=counts[JudgedBy.NONE],
            failed_replays=sum(node.failed_replay for node in nodes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(JsonObject):
    """What was compared and how it was judged, and what was not compared, with reasons."""

    json_keys = "compared samples unmatched"

    compared: int
    unmatched: Sequence[Unmatched]
    samples: int = 0
    judged: Judgements = field(default_factory=Judgements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compounding(JsonObject):
    """A node that amplifies the error that reaches it far more than other nodes of its kind.

    Args:
        node: The backend node.
        op: Its operator, without variants that only affect how it is computed.
        tensor: Its output.
        gain: rel_l2(error out) / rel_l2(largest error in).
        usual: Median gain of the nodes with this operator.
        nodes: Number of them with a known gain.
    """

    node: str
    op: str
    tensor: str
    gain: float
    usual: float
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor(JsonObject):
    """A node whose own error, propagated to a network output, is known or bounded.

    Args:
        node: The backend node.
        tensor: Its output.
        output: The network output, as a backend tensor.
        sqnr_db: SQNR in dB of that output if all other nodes were as in the reference.
        how: "exact" if the reference was replayed with that error from the node to the output, "bounded" if it is the
            node's own relative error times the growth of the whole relative error from there to the output.
        share: Power of the output error that this error alone causes, divided by the power of the output's error, over
            all samples. None if it is bounded. Errors that cancel each other have shares above 1.
    """

    node: str
    tensor: str
    output: str
    sqnr_db: float
    how: Annotated[str, SchemaPart(enum=["exact", "bounded"])]
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Together(JsonObject):
    """The combined effect of the nodes that contribute most to a network output's error.

    Args:
        nodes: The backend nodes.
        sqnr_db: SQNR of the output in dB with only the errors of these nodes.
        without_db: SQNR of the output in dB after subtracting from its error the error that these nodes cause alone. If
            errors amplify or hide each other, leaving the nodes in float gives another SQNR; see `try` of a diagnosis.
        left: Power of the remaining output error, divided by the power of the whole error. None for an output without
            error.
    """

    nodes: tuple[str, ...]
    sqnr_db: float
    without_db: float
    left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth(JsonObject):
    """Whether rounding errors in a short float format add up on their way to a network output.

    Args:
        output: The network output, as a backend tensor.
        op: The operator of the nodes whose errors add up. None if all errors cancel about as independent ones do.
        nodes: These nodes, or all nodes with results in a short format.
        ratio: RMS of the output error that their errors make together, divided by that of the same errors with random
            signs. About 1 for independent errors, and up to the square root of their number for errors of one sign.
        sqnr_db: SQNR of the output in dB.
        ideal_db: SQNR in dB if every such result were rounded once, to nearest, in its own format.
        formats: The short formats.
        samples: Number of samples that were replayed.
    """

    output: str
    op: str | None
    nodes: tuple[str, ...]
    ratio: float
    sqnr_db: float
    ideal_db: float
    formats: tuple[str, ...]
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedGrowth:
    """A cache entry: a growth, or None if errors do not add up."""

    growth: Growth | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedShare:
    """A cache entry: the share of an output's error that several tensors cause together, or None if unknown."""

    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributions:
    """Contributions of nodes to the error of an output.

    Args:
        nodes: The nodes: first those replayed to the output, largest contributions first.
        unknown: Number of tensors upstream of the output whose own error is unknown.
        why: Why not all were replayed, each reason once.
        together: Combined effect of the largest contributors that were replayed, or None if that could not be replayed.
    """

    nodes: tuple[Contributor, ...]
    unknown: int = 0
    why: tuple[str, ...] = ()
    together: Together | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(JsonObject):
    """The answer in one word, one location and one sentence.

    Args:
        status: The outcome of the whole comparison.
        first_divergence: The first node beyond its limit, in the backend's topological order, or None.
        origin: The node whose own error feeds the worst output error, or None.
        sentence: The whole verdict, in one paragraph.
        cause: A clause on why the codes of the first divergence are wrong, or "" if nothing more is known.
        way_on: Where non-finite values propagate to, or "" if all values are finite.
        remarks: Parts of the verdict that are independent of the diagnosis, each in one or two sentences.
        worst_sample: The worst sample of the output that `contributors` refers to, or else of the worst output; None if
            nothing was compared.
        compounding: Nodes that amplify error far more than other nodes of their kind, largest excess first.
        contributors: Contributions of nodes to the error of the worst output over all samples, largest first. Empty if
            the outputs are within their limits.
        together: Combined effect of the largest contributors, and what remains without them. None if unknown.
        growth: How rounding errors in short float formats add up at the worst output. None if there are none, or if
            that is unknown.
        nonfinite: Where a NaN or an infinity originates and how it reaches the outputs. None if there is none or it is
            unknown.
        way: Backend tensors from the worst output to the one where the origin was found, with that one last. The last
            tensor is computed by the node `origin`, or ends the region that contains this node.
        short: Backend tensors that are outputs beyond the limit of outputs while no node exceeds its own limit.
    """

    json_keys = (
        "status first_divergence origin worst_sample compounding contributors together growth nonfinite sentence"
    )

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
    growth: Growth | None = None
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
        shortcomings: What is missing and not allowed to be, one clause each. Any entry makes the exit code 3.
        outputs: For each network output that may hold scores, whether its winner is still the same.
        network_outputs: Backend tensors that are network outputs and were compared.
        diagnosis: What is wrong, largest share of the outputs' error first. Empty if nothing is wrong.
        ruled_out: What was searched for and not found.
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
        """Exit code of `qdebug diff`: 3 if more is missing than allowed, 1 beyond a limit, 0 within limits."""
        if self.shortcomings or self.status is Status.INCOMPLETE:
            return 3
        return 1 if self.status in (Status.ACCUMULATED, Status.DIVERGED, Status.NONFINITE) else 0

    @property
    def different_inputs(self) -> tuple[NodeResult, ...]:
        """The network inputs that differ between the two runs."""
        return tuple(node for node in self.nodes if input_finding(node) is not None)

    @property
    def status(self) -> Status:
        """The outcome of the comparison."""
        return self.verdict.status

    @property
    def first_divergence(self) -> str | None:
        """Name of the first backend node beyond its limit, in topological order."""
        return self.verdict.first_divergence

    @property
    def origin(self) -> str | None:
        """Name of the node whose own error feeds the worst output error, or None until known."""
        return self.verdict.origin

    @property
    def numerics_version(self) -> int:
        """`NUMERICS_VERSION`. A change means that the same recordings may give different numbers."""
        return NUMERICS_VERSION

    @property
    def fidelity(self) -> Annotated[Mapping[str, Fidelity], SchemaPart(required=["reference", "backend"])]:
        """Whether recording changed the result, for each side."""
        return {"reference": self.reference.fidelity, "backend": self.backend.fidelity}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one flat dictionary per tensor, for pandas.DataFrame(rows) and the like.

        Unknown values are None, so polars must see all rows: polars.DataFrame(rows, infer_schema_length=None).
        """
        return [flat_row(node) for node in self.nodes]
