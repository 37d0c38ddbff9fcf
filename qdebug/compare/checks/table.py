"""All checks of a node, in order. Among several findings with the same role, the first is reported as the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from qdebug.compare.checks import arithmetic, codes, error, graph, inputs, outputs, statistics
from qdebug.compare.checks.cache_rows import changed_row
from qdebug.compare.checks.dead_zone import dead_channels, dead_zone
from qdebug.compare.checks.one_sided import one_sided
from qdebug.compare.checks.selection import selection
from qdebug.compare.checks.stale import captured_once, with_bytes_of_another
from qdebug.compare.checks.two_runs import apart_on_equal_inputs, other_scale, wrong_reference
from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole

__all__ = ["CHECKS", "ERROR_CHECKS", "Check", "findings_of"]

Check = Callable[[Evidence], Finding | None]
"""Looks for one kind of fault in a node."""

ERROR_CHECKS: tuple[Callable[[Measured], Finding | None], ...] = (
    error.nonfinite,
    arithmetic.integers,
    arithmetic.steps,
    arithmetic.sums,
    arithmetic.elements,
    codes.range_fits,
    codes.scale_fits,
    error.sqnr,
    error.largest_step,
    error.tolerance,
    codes.saturation,
)
"""These find an error beyond a limit. They apply to a whole tensor, and to one of its samples."""

CHECKS: tuple[Check, ...] = (
    inputs.different_input,
    inputs.nan_input,
    changed_row,
    graph.difference,
    graph.lossy_cast,
    graph.cast_otherwise,
    *ERROR_CHECKS,
    wrong_reference,
    statistics.nonfinite_at_least,
    statistics.sqnr_at_most,
    statistics.worst_sample,
    graph.unholdable,
    graph.out_of_range,
    graph.read_otherwise,
    captured_once,
    with_bytes_of_another,
    graph.mistaken,
    graph.mistaken_as_in_reference,
    dead_zone,
    dead_channels,
    graph.harmless,
    graph.zero_divisor,
    graph.overflow,
    graph.born,
    graph.otherwise_said,
    outputs.joined_part,
    apart_on_equal_inputs,
    other_scale,
    statistics.sketch_undecided,
    statistics.undecided,
    statistics.unjudged,
    statistics.bare_codes,
    selection,
    graph.float_weights,
    one_sided,
    graph.precision,
    graph.disturbed,
    graph.placement,
)
"""All checks."""


def findings_of(evidence: Evidence) -> tuple[Finding, ...]:
    """Return all findings about a node: deciding and explaining ones first, each group in the order of the checks."""
    found = [each for check in CHECKS if (each := check(evidence)) is not None]
    if any(_is_arithmetic(each) for each in found):
        node = evidence.node_at_fault
        found = [replace(each, node=node.name) if node is not None and _is_arithmetic(each) else each for each in found]
    found = _with_excuses(evidence, found)
    return tuple(sorted(found, key=lambda each: _ORDER.index(each.role)))


def _is_arithmetic(found: Finding) -> bool:
    """Return whether a finding says that a node, or one fused into it, gives a result its inputs do not explain."""
    return found.role is FindingRole.BREACH and found.kind is FindingKind.ARITHMETIC


def _is_derived(found: Finding) -> bool:
    """Return whether a finding says so by a limit that is derived, not given by the user."""
    return _is_arithmetic(found) and not found.given


_CONSTANTS = (FindingKind.WEIGHT, FindingKind.BIAS, FindingKind.CONSTANT)


def _is_of_constants(found: Finding) -> bool:
    """Return whether a finding says that the constants of the two runs differ."""
    return found.role is FindingRole.DIFFERENCE and found.kind in _CONSTANTS


def _with_excuses(evidence: Evidence, found: Sequence[Finding]) -> list[Finding]:
    """Turn findings into notes if later layers undo or drop the difference."""
    excusable = [each for each in found if _is_derived(each) or _is_of_constants(each)]
    clause = _equalized_clause(evidence) if excusable else None
    if clause is None:
        excusable = [each for each in excusable if _is_derived(each)]
        clause = "no tensor computed from it changes" if excusable and evidence.is_without_effect else None
    if clause is None:
        return list(found)
    return [
        replace(each, role=FindingRole.NOTE, sentence=f"{each.sentence}; {clause}") if each in excusable else each
        for each in found
    ]


def _equalized_clause(evidence: Evidence) -> str | None:
    """Return a clause on factors of channels that explain other constants and are undone by later nodes, or None."""
    if evidence.channel_factors is not None:
        least, most = evidence.channel_factors
        return f"its channels have other factors ({least:.3g} to {most:.3g}), which are undone later"
    return "it undoes other factors of the channels that it reads" if evidence.undoes_factors else None


_ORDER = tuple(FindingRole)
