"""The result of comparing two recordings: one entry per backend tensor, a verdict, and what was left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from qdebug.analysis.alignment import Match, Unmatched
from qdebug.analysis.limit_rules import Acknowledgement
from qdebug.model import Fidelity, QuantParams, RunInfo
from qdebug.numerics.stats import ErrorStats, Rails

__all__ = [
    "NUMERICS_VERSION",
    "Coverage",
    "DiffResult",
    "NodeResult",
    "OutputRanking",
    "SampleResult",
    "Status",
    "Verdict",
]

NUMERICS_VERSION = 1
"""Raised whenever the same two recordings may give other numbers than before."""

_METRICS = (
    "max_abs",
    "mean_abs",
    "rmse",
    "max_rel",
    "zero_refs",
    "rel_l2",
    "sqnr_db",
    "cosine",
    "max_lsb",
    "lsb_bias",
    "mismatches",
    "nonfinite",
)


class Status(StrEnum):
    """How one tensor, or a whole comparison, came out."""

    IDENTICAL = "identical"
    WITHIN = "within"
    DIVERGED = "diverged"
    NONFINITE = "nonfinite"
    INCOMPARABLE = "incomparable"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult:
    """The comparison of one tensor for one sample, all its steps together."""

    sample: int
    max_abs: float | None
    sqnr_db: float | None
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult:
    """The comparison of one backend tensor with its reference.

    Args:
        index: Position in the backend's topological order of tensors.
        node: Backend node that produces the tensor; the tensor's own name for a graph input.
        op: Its operator; "Input" for a graph input.
        tensor: The backend tensor.
        reference_tensor: The reference tensor.
        match: The ground for the pair.
        match_reason: One clause a person can check.
        status: How it came out.
        reason: Why it is diverged, nonfinite or incomparable; None otherwise.
        note: What was left out of the comparison; None if nothing.
        basis: "full" if every element was compared.
        metrics: The error over all samples; None if incomparable.
        introduced: Error this node adds; None until it is known.
        propagated: Error that reaches it through its inputs; None until it is known.
        declared: What the two graphs declare differently of this node, with an effect beyond rounding, or a constant
            that its format cannot hold; None if nothing.
        attribution_note: Why `introduced` is not known; None if it is.
        gain: rms(error out) / rms(largest error in); None until it is known.
        explained: Arithmetic that reproduces it exactly; None if not asked or unknown.
        saturation: Codes at the ends of their range; None if the tensor is not quantized.
        quant: The backend tensor's quantization.
        samples: The comparison sample by sample.
        acknowledged: Why it may be beyond its limit; None if nobody said so.
    """

    index: int
    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: Match
    match_reason: str
    status: Status
    reason: str | None = None
    note: str | None = None
    basis: str = "full"
    metrics: ErrorStats | None = None
    introduced: ErrorStats | None = None
    propagated: ErrorStats | None = None
    declared: str | None = None
    attribution_note: str | None = None
    gain: float | None = None
    explained: str | None = None
    saturation: Rails | None = None
    quant: QuantParams | None = None
    samples: tuple[SampleResult, ...] = ()
    acknowledged: Acknowledgement | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give the entry as plain values, with the keys of the diff JSON."""
        return {
            "index": self.index,
            "node": self.node,
            "op": self.op,
            "tensor": self.tensor,
            "reference_tensor": self.reference_tensor,
            "match": str(self.match),
            "match_reason": self.match_reason,
            "status": str(self.status),
            "reason": self.reason,
            "note": self.note,
            "basis": self.basis,
            "metrics": _metrics_dict(self.metrics),
            "introduced": _metrics_dict(self.introduced),
            "propagated": _metrics_dict(self.propagated),
            "declared": self.declared,
            "attribution_note": self.attribution_note,
            "gain": self.gain,
            "explained": self.explained,
            "saturation": _rails_dict(self.saturation),
            "quant": None if self.quant is None else self.quant.to_dict(),
            "samples": [
                {"sample": s.sample, "max_abs": s.max_abs, "sqnr_db": s.sqnr_db, "status": str(s.status)}
                for s in self.samples
            ],
            "acknowledged": None if self.acknowledged is None else self.acknowledged.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRanking:
    """Where the reference's winners stand in the backend, for a network output that may hold scores.

    A score vector is the output for one sample and step. See `qdebug.numerics.ranking` for winners, ranks and ties.

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

    def to_dict(self) -> dict[str, Any]:
        """Give the entry as plain values, with the keys of the diff JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was compared, and what was not, with reasons."""

    compared: int
    unmatched: tuple[Unmatched, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give the coverage as plain values, with the keys of the diff JSON."""
        return {
            "compared": self.compared,
            "unmatched": [
                {"side": str(u.side), "tensor": u.tensor, "kind": str(u.kind), "reason": u.reason}
                for u in self.unmatched
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer in one word, one place and one sentence."""

    status: Status
    first_divergence: str | None
    origin: str | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffResult:
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
    """

    reference: RunInfo
    backend: RunInfo
    verdict: Verdict
    coverage: Coverage
    nodes: Sequence[NodeResult]
    limits: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    shortcomings: tuple[str, ...] = ()
    outputs: tuple[OutputRanking, ...] = ()

    @property
    def exit_code(self) -> int:
        """What `qdebug diff` exits with: 3 incomplete beyond what is allowed, 1 beyond a limit, 0 within."""
        if self.shortcomings or self.status is Status.INCOMPLETE:
            return 3
        return 1 if self.status in (Status.DIVERGED, Status.NONFINITE) else 0

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
    def fidelity(self) -> Mapping[str, Fidelity]:
        """Whether recording changed the result, for each side."""
        return {"reference": self.reference.fidelity, "backend": self.backend.fidelity}

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain values; non-finite numbers are the strings "NaN", "Infinity", "-Infinity"."""
        plain: dict[str, Any] = json_safe(
            {
                "format": "qdebug.diff",
                "version": 1,
                "numerics_version": NUMERICS_VERSION,
                "reference": self.reference.to_dict(),
                "backend": self.backend.to_dict(),
                "fidelity": {side: str(fidelity) for side, fidelity in self.fidelity.items()},
                "limits": dict(self.limits),
                "verdict": {
                    "status": str(self.verdict.status),
                    "first_divergence": self.verdict.first_divergence,
                    "origin": self.verdict.origin,
                    "sentence": self.verdict.sentence,
                },
                "coverage": self.coverage.to_dict(),
                "outputs": [output.to_dict() for output in self.outputs],
                "nodes": [node.to_dict() for node in self.nodes],
            }
        )
        return plain

    def to_json(self, *, indent: int | None = 2) -> str:
        """Give the result as JSON text that validates against the committed schema."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


def json_safe(value: Any) -> Any:
    """Replace non-finite numbers, at any depth, by the strings that the JSON formats use for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value


def _metrics_dict(stats: ErrorStats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    plain: dict[str, Any] = {name: getattr(stats, name) for name in _METRICS}
    plain["worst_index"] = None if stats.worst_index is None else list(stats.worst_index)
    plain["worst_sample"] = stats.worst_sample
    return plain


def _rails_dict(rails: Rails | None) -> dict[str, int] | None:
    if rails is None:
        return None
    names = ("at_qmin", "at_qmax", "clipped_low", "clipped_high", "floor", "total")
    return {name: getattr(rails, name) for name in names}
