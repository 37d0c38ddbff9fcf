"""Everything that is found out about one compared tensor: its error, where it comes from, and what to think of it."""

from __future__ import annotations

from qdebug.analysis.attribute import Attribution, attribute
from qdebug.analysis.compare import Comparison, compare_pair
from qdebug.analysis.limits import Limits
from qdebug.analysis.plan import PlannedNode
from qdebug.analysis.result import NodeResult, SampleResult, Status
from qdebug.model import Recording

__all__ = ["examine"]


def examine(reference: Recording, backend: Recording, entry: PlannedNode, limits: Limits) -> NodeResult:
    """Compare one tensor, split its error and judge it.

    Args:
        reference: The reference run.
        backend: The backend run.
        entry: What to compare.
        limits: What counts as divergence.
    """
    comparison = compare_pair(reference, backend, entry.pair, relu_floor=entry.relu_floor, tolerance=limits.tolerance)
    if comparison.stats is None:
        return _node_result(entry, comparison, None, (Status.INCOMPARABLE, comparison.reason), limits)
    attribution = attribute(reference, backend, entry)
    judged = limits.judge(comparison.stats, attribution)
    if judged[0] is Status.DIVERGED and not limits.given and attribution.introduced is None:
        judged = judged[0], f"{judged[1]}; judged by its whole error, since {attribution.reason}"
    return _node_result(entry, comparison, attribution, judged, limits)


def _node_result(
    entry: PlannedNode,
    comparison: Comparison,
    attribution: Attribution | None,
    judged: tuple[Status, str | None],
    limits: Limits,
) -> NodeResult:
    status, reason = judged
    return NodeResult(
        index=entry.index,
        node=entry.node,
        op=entry.op,
        tensor=entry.tensor,
        reference_tensor=entry.reference_tensor,
        match=entry.match,
        match_reason=entry.match_reason,
        status=status,
        reason=reason,
        note=comparison.note,
        basis=comparison.basis,
        metrics=comparison.stats,
        introduced=None if attribution is None else attribution.introduced,
        propagated=None if attribution is None else attribution.propagated,
        attribution_note=None if attribution is None else attribution.reason,
        saturation=comparison.rails,
        quant=entry.quant,
        samples=tuple(
            SampleResult(
                sample=sample.sample,
                max_abs=sample.max_abs,
                sqnr_db=sample.sqnr_db,
                status=limits.judge(sample.stats, attribution.samples.get(sample.sample) if attribution else None)[0],
            )
            for sample in comparison.samples
        ),
    )
