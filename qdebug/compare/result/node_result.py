"""The result of comparing one tensor: how it came out, by how much it is off, and sample by sample."""

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
    "blamed",
    "breaks_limit",
    "cost_of",
    "is_beyond",
    "is_doubt",
    "is_excused",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleError:
    """Part of the error of one tensor for one sample, in short; see `qdebug.numerics.metric_table` for each."""

    max_abs: float | None
    rmse: float | None
    sqnr_db: float | None
    max_lsb: float | None

    @classmethod
    def of(cls, stats: ErrorStats | None) -> SampleError | None:
        """Return the short form of an error; None of one that is not known."""
        if stats is None:
            return None
        return cls(max_abs=stats.max_abs, rmse=stats.rmse, sqnr_db=stats.sqnr_db, max_lsb=stats.max_lsb)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleResult(JsonObject):
    """The comparison of one tensor for one sample, all its steps together.

    Args:
        sample: Its number.
        max_abs: Largest absolute difference.
        sqnr_db: 10 log10(sum reference^2 / sum difference^2).
        status: How it came out.
        introduced: Error that the node adds in this sample; None if that is not known.
        propagated: Error that reaches it through its inputs; None likewise.
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

    Where its error comes from is said by its `ErrorParts`.

    Args:
        index: Position in the backend's topological order of tensors.
        node: Backend node that produces the tensor; the tensor's own name for a graph input.
        op: Its operator; "Input" for a graph input.
        tensor: The backend tensor.
        reference_tensor: The reference tensor.
        match: The ground for the pair.
        match_reason: One clause a person can check.
        status: How it came out.
        confidence: How sure the pair is, from 0 to 1.
        reason: Why it is diverged, nonfinite or incomparable; None otherwise.
        note: What was left out of the comparison; None if nothing.
        basis: "full" if every element was compared.
        lacking: Whether of some samples one side has more than the other, so that they were not compared.
        metrics: The error over all samples; None if incomparable.
        judged: What the derived limit is held against: `arithmetic` without what clipping cuts off; None if there is
            no such number.
        findings: What is wrong with the node, or worth saying of it, whatever limits are in force.
        born: Where a NaN or an infinity that none of the node's inputs accounts for is born; None if none is.
        declared: What the two graphs declare differently of this node, with an effect beyond rounding, or a constant
            that its format cannot hold; None if nothing.
        attribution_note: Why `introduced` is not known; None if it is.
        judged_by: By what the status was decided.
        failed_replay: Whether the node has a kernel and all its inputs were recorded, and its replay failed or was
            refused all the same.
        unchecked: Why nothing checked that both graphs do the same between compared tensors; None if that was checked,
            or if the tensor equals the reference's.
        gain: rms(error out) / rms(largest error in); None until it is known.
        relative_gain: rel_l2(propagated) / rel_l2(largest error in), of the whole error where the propagated part is
            not known; None until it is known.
        explained: Arithmetic that reproduces it exactly, in words; None if there is none or nobody looked.
        reproduced: Whether a known arithmetic reproduces it exactly; None if nobody looked, as for float nodes.
        precision: Float format of few digits that holds all of its values, though they are kept in a longer one, and
            not all of the reference's; None if there is none.
        saturation: Reference values that the codes cut off, and codes at the ends; None if the tensor is not quantized.
        quant: The backend tensor's quantization.
        samples: The comparison sample by sample.
        placement: Where the backend's node ran; None if nobody said.
        acknowledged: Why it may be beyond its limit; None if nobody said so.

    Example:
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
    basis: Annotated[str, SchemaPart(enum=["full", "elements", "stats"])] = "full"
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


_BEYOND = (Status.DIVERGED, Status.NONFINITE)


def breaks_limit(node: NodeResult) -> bool:
    """Tell whether a tensor is beyond its limit, or is declared so differently that it has another shape."""
    return node.status in _BEYOND or (node.status is Status.INCOMPARABLE and node.declared is not None)


def blamed(node: NodeResult) -> str:
    """Return the backend node that is to blame for a tensor: the one of its first finding, else the one that made it.

    What lies between two compared tensors is judged by the later one. A finding may name a node in between.

    Args:
        node: The result of the tensor.
    """
    if breaks_limit(node):
        return node.findings[0].node if node.findings else node.node
    cost = cost_of(node)
    return node.node if cost is None else cost.node


def cost_of(node: NodeResult) -> Finding | None:
    """Return what the codes of a tensor cost that is within its limit; None if that is little, or was accepted."""
    if node.status is not Status.WITHIN or is_excused(node):
        return None
    return next((found for found in node.findings if found.role is FindingRole.COST), None)


def is_doubt(found: Finding) -> bool:
    """Tell whether a finding says that nothing tells whether a node is right."""
    return found.role is FindingRole.EXCUSE and found.kind in (FindingKind.ERROR, FindingKind.ARITHMETIC)


def is_excused(node: NodeResult) -> bool:
    """Tell whether somebody accepted what is wrong with a tensor, and that has not expired."""
    return node.acknowledged is not None and not node.acknowledged.expired


def is_beyond(node: NodeResult) -> bool:
    """Tell whether a tensor breaks its limit and is not excused: what verdicts and exit codes count."""
    return breaks_limit(node) and not is_excused(node)
