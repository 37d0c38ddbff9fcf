"""What follows from findings: the status of a node, and of one sample of it."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.compare.checks.context import NodeContext
from qdebug.compare.checks.measured import Error, Measured
from qdebug.compare.checks.table import ERROR_CHECKS
from qdebug.compare.result.finding import Finding, FindingKind, Role
from qdebug.compare.result.status import Status
from qdebug.numerics.stats import ErrorStats

__all__ = ["judge", "judge_error", "judge_sample"]


def judge(context: NodeContext, findings: Sequence[Finding]) -> tuple[Status, str | None]:
    """Return the status of a compared tensor, and the reason for it, or what else is to be said of it, if anything.

    Values that are not finite come first, then what the graphs say differently, then an error beyond its limit. Where
    the user gave limits that apply to the tensor, no derived limit decides: what it found stays on the row.

    Args:
        context: The tensor.
        findings: What the checks found, in their order.
    """
    status, reason = _decided(context, findings)
    if context.stats is None:
        said = [context.comparison.reason, *(f.sentence for f in findings if f.role is Role.DIFFERENCE)]
        if status is Status.NONFINITE:
            return status, reason
        proved = any(found.role is Role.BREACH for found in findings)
        return (Status.DIVERGED if proved else Status.INCOMPARABLE), "; ".join(filter(None, said)) or None
    if status is Status.IDENTICAL and not context.comparison.known_equal:
        return Status.WITHIN, None
    return status, reason


def judge_error(of: Measured) -> tuple[Status, str | None]:
    """Return the status of an error by itself, and the reason: nothing is known of the graphs."""
    findings = [found for check in ERROR_CHECKS if (found := check(of)) is not None]
    return _decided(of, findings)


def judge_sample(
    context: NodeContext, sample: int, stats: ErrorStats, whole: Status, findings: Sequence[Finding]
) -> Status:
    """Return the status of one sample: a graph that differs does so in all, and shows wherever anything is unequal.

    Args:
        context: The tensor.
        sample: The sample.
        stats: Its error.
        whole: The status of the tensor.
        findings: What was found of the tensor.
    """
    known = context.attribution is not None and context.attribution.introduced_unsaturated is not None
    firm = context.reproduced is not None and context.reproduced.firm
    case: Error = context.sample(sample, stats, excused=whole is Status.WITHIN and (firm or not known))
    status = judge_error(case)[0]
    differs = any(found.role is Role.DIFFERENCE and _counts(context, found) for found in findings)
    return Status.DIVERGED if differs and status is Status.WITHIN else status


def _decided(of: Measured, findings: Sequence[Finding]) -> tuple[Status, str | None]:
    stats = of.stats
    causes = [found.sentence for found in findings if found.role is Role.CAUSE]
    differences = [found.sentence for found in findings if found.role is Role.DIFFERENCE]
    for found in findings:
        if found.kind is FindingKind.NONFINITE and found.role is Role.BREACH:
            return Status.NONFINITE, ": ".join([found.sentence, *[*differences, *causes][:1]])
    if stats is not None and not stats.mismatches:
        return Status.IDENTICAL, None
    for found in findings:
        if found.role is Role.DIFFERENCE and _counts(of, found):
            return Status.DIVERGED, found.sentence
    for found in findings:
        if found.role is Role.BREACH and _counts(of, found):
            return Status.DIVERGED, ": ".join([found.sentence, *causes[:1]])
    held = [found.sentence for found in findings if found.role is Role.NOTE and found.limit is not None]
    return Status.WITHIN, held[0] if held and not (stats and of.limits.judge_whole(stats)) else None


def _counts(of: Measured, found: Finding) -> bool:
    """Tell whether a finding decides under the limits in force."""
    return found.given or of.stats is None or not of.limits.judge_whole(of.stats)
