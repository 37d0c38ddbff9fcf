"""The result for one tensor: its status, its error, and each sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from qdebug.compare.align.pairs import Match
from qdebug.compare.attribute.birth import Birth
from qdebug.compare.attribute.error_parts import ErrorParts
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, Judged, JudgedBy, Status
from qdebug.compare.result.limits import Acknowledgement
from qdebug.model import QuantParams
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.numerics.stats import ErrorStats, Rails

__all__ = [
    "Finding",
    "JudgedBy",
    "NodeResult",
    "SampleError",
    "SampleResult",
    "Status",
    "breaks_limit",
    "compares_values",
    "cost_of",
    "is_beyond",
    "is_doubt",
    "is_excused",
    "node_to_blame",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleError:
    """A short form of a tensor's error in one sample, see `qdebug.numerics.metric_table` for each metric."""

    max_abs: float | None
    rmse: float | None
    sqnr_db: float | None
    max_lsb: float | None

    @classmethod
    def of(cls, stats: ErrorStats | None) -> SampleError | None:
        """Return the short form of an error, or None if it is unknown."""
        if stats is None:
            return None
        return cls(max_abs=stats.max_abs, rmse=stats.rmse, sqnr_db=stats.sqnr_db, max_lsb=stats.max_lsb)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult(JsonObject):
    """The comparison of one tensor in one sample, over all its steps.

    Args:
        sample: Its number.
        max_abs: Largest absolute difference.
        sqnr_db: 10 log10(sum reference^2 / sum difference^2).
        status: Its status.
        introduced: Error that the node adds in this sample, or None if unknown.
        propagated: Error that reaches it through its inputs, or None if unknown.
    """

    json_keys = "sample max_abs sqnr_db status introduced propagated"

    sample: int
    max_abs: float | None
    sqnr_db: float | None
    status: Status
    introduced: SampleError | None = None
    propagated: SampleError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult(JsonObject, ErrorParts):
    """The comparison of one backend tensor with its reference.

    Its `ErrorParts` show where the error comes from.

    Args:
        index: Position in the backend's topological order of tensors.
        node: Backend node that computes the tensor, or the tensor's own name for a graph input.
        op: Its operator, or "Input" for a graph input.
        tensor: The backend tensor.
        reference_tensor: The reference tensor.
        match: The kind of evidence for the pair.
        match_reason: A clause that the user can check.
        status: Its status.
        confidence: Confidence of the pair, from 0 to 1.
        reason: Why it is diverged, nonfinite or incomparable. None for other statuses.
        note: What was left out of the comparison, or None.
        basis: "full" if every element was compared.
        lacking: Whether one side kept more of some samples than the other, so that they were not compared.
        metrics: The error over all samples, or None if incomparable.
        judged: The amount that the derived limit applies to: `arithmetic` without clipping. None if there is none.
        findings: Findings about the node, whatever limits are in force.
        born: Where a NaN or an infinity that no input of the node explains first appears, or None.
        declared: A graph difference at this node with an effect beyond rounding, or a constant that its format cannot
            represent. None if there is neither.
        attribution_note: Why `introduced` is unknown, or None if it is known.
        judged_by: The evidence for the status.
        failed_replay: Whether the replay failed or was rejected although the node has a kernel and all its inputs were
            recorded.
        unchecked: Why nothing checked that both graphs compute the same between compared tensors. None if it was
            checked, or the tensor equals the reference's.
        gain: RMS of the error divided by the largest RMS of an input's error. None until known.
        relative_gain: rel_l2(propagated) / rel_l2(largest error in), using the total error if the propagated part is
            unknown. None until known.
        explained: Arithmetic that reproduces it exactly, in words. None if there is none or none was searched.
        reproduced: Whether a known arithmetic reproduces it exactly. None if none was searched, as for float nodes.
        precision: 16-bit or 8-bit float format that fits all of its values but not all of the reference's, although
            they are stored in a longer format. None if there is none.
        saturation: Reference values that the codes clip, and codes at the ends of the range. None if the tensor is not
            quantized.
        quant: The backend tensor's quantization.
        samples: The comparison of each sample.
        placement: Where the backend's node ran, or None if unknown.
        acknowledged: Why it may exceed its limit, or None if it is not acknowledged.

    Examples:
        >>> node = qdebug.diff("float.h5", "int8.h5")["conv1_quant"]
        >>> node.op, node.status, round(node.metrics.sqnr_db)
        ('QLinearConv', <Status.WITHIN: 'within'>, 45)
    """

    json_keys = (
        "index node op tensor reference_tensor match match_reason confidence status reason note basis metrics "
        "introduced propagated constants arithmetic clipping judged findings born declared attribution_note "
        "judged_by failed_replay gain relative_gain explained reproduced precision saturation quant samples "
        "placement acknowledged"
    )

    index: int
    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: Match
    match_reason: str
    status: Status
    confidence: float = 1.0
    reason: str | None = None
    note: str | None = None
    basis: Annotated[str, SchemaPart(enum=["full", "elements", "sketch", "stats"])] = "full"
    lacking: bool = False
    metrics: ErrorStats | None = None
    judged: Judged | None = None
    findings: tuple[Finding, ...] = ()
    born: Birth | None = None
    declared: str | None = None
    attribution_note: str | None = None
    judged_by: JudgedBy = JudgedBy.WHOLE_ERROR
    failed_replay: bool = False
    unchecked: str | None = None
    gain: float | None = None
    relative_gain: float | None = None
    explained: str | None = None
    reproduced: bool | None = None
    precision: str | None = None
    saturation: Rails | None = None
    quant: QuantParams | None = None
    samples: tuple[SampleResult, ...] = ()
    placement: str | None = None
    acknowledged: Acknowledgement | None = None


def compares_values(node: NodeResult) -> bool:
    """Return whether elements of a tensor were compared, rather than hashes, statistics or sketches alone."""
    return node.status is not Status.INCOMPARABLE and node.basis not in ("sketch", "stats")


_BEYOND = (Status.DIVERGED, Status.NONFINITE)


def breaks_limit(node: NodeResult) -> bool:
    """Return whether a tensor exceeds its limit, or is declared so differently that its shape differs."""
    return node.status in _BEYOND or (node.status is Status.INCOMPARABLE and node.declared is not None)


def node_to_blame(node: NodeResult) -> str:
    """Return the backend node to blame for a tensor: that of its first finding, or else the node that computes it.

    Nodes between two compared tensors are judged with the later one. A finding may name a node in between.

    Args:
        node: The result of the tensor.
    """
    if breaks_limit(node):
        return node.findings[0].node if node.findings else node.node
    cost = cost_of(node)
    return node.node if cost is None else cost.node


def cost_of(node: NodeResult) -> Finding | None:
    """Return the finding about what a tensor's codes cost within its limit, or None if that is little or accepted."""
    if node.status is not Status.WITHIN or is_excused(node):
        return None
    return next((finding for finding in node.findings if finding.role is FindingRole.COST), None)


def is_doubt(finding: Finding) -> bool:
    """Return whether a finding says that it is unknown whether a node is right."""
    return finding.role is FindingRole.EXCUSE and finding.kind in (FindingKind.ERROR, FindingKind.ARITHMETIC)


def is_excused(node: NodeResult) -> bool:
    """Return whether the user accepted what is wrong with a tensor, and the acceptance has not expired."""
    return node.acknowledged is not None and not node.acknowledged.expired


def is_beyond(node: NodeResult) -> bool:
    """Return whether a tensor breaks its limit and is not excused. Verdicts and exit codes are based on this."""
    return breaks_limit(node) and not is_excused(node)
