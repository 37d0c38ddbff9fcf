"""All checks of a node, in order. Among several findings with the same role, the first is reported as the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from qdebug.compare.checks import arithmetic, codes, error, graph, inputs, outputs, statistics
from qdebug.compare.checks.cache_rows import changed_row
from qdebug.compare.checks.dead_zone import dead_channels, dead_zone
from qdebug.compare.checks.one_sided import one_sided
from qdebug.compare.checks.selection import selection
from qdebug.compare.checks.stale import bytes_of_another_tensor, captured_once
from qdebug.compare.checks.two_runs import different_codes_on_equal_inputs, different_scale, wrong_reference
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["CHECKS", "ERROR_CHECKS", "Check", "run_checks"]

Check = Callable[[Evidence], Finding | None]
"""Looks for one kind of fault in a node."""

ERROR_CHECKS: tuple[Callable[[Measured], Finding | None], ...] = (
    error.nonfinite,
    arithmetic.wrong_integers,
    arithmetic.error_in_codes,
    arithmetic.error_in_sums,
    arithmetic.error_in_elements,
    codes.narrow_range,
    codes.coarse_scale,
    error.low_sqnr,
    error.large_difference,
    error.elements_beyond_tolerance,
    codes.saturation,
)
"""The checks that find an error beyond a limit, in a whole tensor or in one of its samples."""

CHECKS: tuple[Check, ...] = (
    inputs.different_input,
    inputs.nan_input,
    changed_row,
    graph.difference,
    graph.lossy_cast,
    graph.different_cast_rules,
    *ERROR_CHECKS,
    wrong_reference,
    statistics.nonfinite_in_statistics,
    statistics.low_sqnr_bound,
    statistics.worst_sample,
    graph.unrepresentable_constant,
    graph.out_of_range,
    graph.known_cause,
    captured_once,
    bytes_of_another_tensor,
    graph.kernel_mistake,
    graph.mistake_in_reference,
    dead_zone,
    dead_channels,
    graph.harmless_nonfinite,
    graph.zero_divisor,
    graph.overflow,
    graph.nonfinite_birth,
    graph.irreproducible_operator,
    outputs.joined_part,
    different_codes_on_equal_inputs,
    different_scale,
    statistics.undecided_sketch,
    statistics.undecided_integers,
    statistics.unjudged_error,
    statistics.loss_by_format,
    statistics.codes_without_scale,
    selection,
    graph.float_weights,
    one_sided,
    graph.short_format,
    graph.disturbed_tensor,
    graph.unrequested_device,
)
"""All checks."""


def run_checks(evidence: Evidence) -> tuple[Finding, ...]:
    """Return all findings about a node: deciding and explaining ones first, each group in the order of the checks."""
    findings = [finding for check in CHECKS if (finding := check(evidence)) is not None]
    if any(_is_arithmetic_error(finding) for finding in findings):
        node = evidence.node_at_fault
        findings = [
            replace(finding, node=node.name) if node is not None and _is_arithmetic_error(finding) else finding
            for finding in findings
        ]
    findings = _with_excuses(evidence, findings)
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.role)))


def _is_arithmetic_error(finding: Finding) -> bool:
    """Return whether a finding says that a node's result, or that of a node fused into it, is not due to its inputs."""
    return finding.role is FindingRole.BREACH and finding.kind is FindingKind.ARITHMETIC


def _is_error_beyond_derived_limit(finding: Finding) -> bool:
    """Return whether a finding is an arithmetic error beyond a limit that is derived, not set by the user."""
    return _is_arithmetic_error(finding) and not finding.given


_CONSTANTS = (FindingKind.WEIGHT, FindingKind.BIAS, FindingKind.CONSTANT)


def _is_constant_difference(finding: Finding) -> bool:
    """Return whether a finding is a difference between constants of the two runs."""
    return finding.role is FindingRole.DIFFERENCE and finding.kind in _CONSTANTS


def _with_excuses(evidence: Evidence, findings: Sequence[Finding]) -> list[Finding]:
    """Turn findings into notes if later layers undo or drop the difference."""
    excusable = [
        finding for finding in findings if _is_error_beyond_derived_limit(finding) or _is_constant_difference(finding)
    ]
    clause = _equalized_clause(evidence) if excusable else None
    if clause is None:
        excusable = [finding for finding in excusable if _is_error_beyond_derived_limit(finding)]
        clause = "no tensor computed from it changes" if excusable and evidence.is_without_effect else None
    if clause is None:
        return list(findings)
    return [
        replace(finding, role=FindingRole.NOTE, sentence=f"{finding.sentence}; {clause}")
        if finding in excusable
        else finding
        for finding in findings
    ]


def _equalized_clause(evidence: Evidence) -> str | None:
    """Return a clause about channel factors that later nodes or this node undo, or None if there are none."""
    if evidence.channel_factors is not None:
        smallest, largest = evidence.channel_factors
        return f"its channels have different factors ({smallest:.3g} to {largest:.3g}), which are undone later"
    return "it undoes different factors of the channels that it reads" if evidence.undoes_factors else None


_ORDER = tuple(FindingRole)
