"""Compares the error that a node introduces with the error that correct arithmetic may have."""

from __future__ import annotations

import math
from dataclasses import replace

from qdebug.compare.evidence import excess
from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart, breach
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.stats import ErrorStats

__all__ = ["describe_mismatches", "error_in_codes", "error_in_elements", "error_in_sums", "wrong_integers"]

_NEVER_ROUNDED = "booleans and unquantized integers are never rounded"


def error_in_codes(measured: Measured) -> Finding | None:
    """Find an error introduced into a quantized tensor that exceeds the error of any rounding mode.

    If a known arithmetic, such as saturating sums, gives the same bits, the error is not the node's fault, whatever it
    costs.
    """
    amount = excess.beyond_rounding(measured, "LSB")
    if amount is None:
        return None
    largest = apart(amount.amount, DERIVED_LSB, digits=4)
    sentence = f"its arithmetic error is {largest} LSB; rounding explains at most {DERIVED_LSB:g} LSB"
    finding = breach(measured.name, FindingKind.ARITHMETIC, sentence, judged=(amount.amount, DERIVED_LSB, "LSB"))
    return _as_cost(finding, measured) if measured.excused else finding


def _as_cost(finding: Finding, measured: Measured) -> Finding:
    """Return a finding about the cost of an arithmetic that gives the same bits."""
    sentence = f"every bit is reproduced by {measured.known_arithmetic or 'a known arithmetic'}; {finding.sentence}"
    return replace(finding, role=FindingRole.COST, sentence=sentence)


def error_in_sums(measured: Measured) -> Finding | None:
    """Find an error introduced into real numbers that exceeds the rounding error of the node's sums."""
    amount = excess.beyond_rounding(measured, "bound")
    if amount is None:
        return None
    sentence = f"its arithmetic error is {apart(amount.amount, 1)} times the rounding bound"
    amount_and_limit = amount.amount, 1, "times the rounding bound"
    finding = breach(measured.name, FindingKind.ARITHMETIC, sentence, judged=amount_and_limit)
    return _as_cost(finding, measured) if measured.excused else finding


def error_in_elements(measured: Measured) -> Finding | None:
    """Find elements whose error exceeds their own rounding error, even if they are small compared with the others."""
    beyond = excess.elements_beyond_rounding(measured)
    if beyond is None:
        return None
    count, total = beyond
    are = "is" if count == 1 else "are"
    sentence = f"{count} of {total} elements {are} off by more than rounding of their operands explains"
    return breach(measured.name, FindingKind.ARITHMETIC, sentence, judged=(count, 0, "elements"))


def wrong_integers(measured: Measured) -> Finding | None:
    """Find booleans, or integers that are not codes, that differ by more than the rounding of their node explains."""
    wrong = excess.wrong_integers(measured)
    if wrong is None:
        return None
    stats, attribution = wrong
    judged: tuple[float, float, str] = stats.mismatches, 0, "elements"
    if attribution is None:
        sentence = f"{describe_mismatches(stats)}; {_NEVER_ROUNDED}"
        if measured.unreplayed is not None and not measured.limits.given:
            sentence += f"; this includes the error of its inputs, because {measured.unreplayed}"
        return breach(measured.name, FindingKind.ARITHMETIC, sentence, judged=judged)
    sentence, limit = f"{describe_mismatches(stats)} from a replay of the node", attribution.max_integer_error
    if limit:
        sentence += f" by up to {stats.max_abs:g}; rounding explains at most {limit}"
        judged = math.nan if stats.max_abs is None else stats.max_abs, limit, "integers"
        return breach(measured.name, FindingKind.ARITHMETIC, sentence, judged=judged)
    ties = "all" if attribution.tied == stats.mismatches else attribution.tied
    sentence += f"; {_NEVER_ROUNDED}"
    sentence += f"; {ties} of these are ties, that is, the index of an equal value" if attribution.tied else ""
    return breach(measured.name, FindingKind.ARITHMETIC, sentence, judged=judged)


def describe_mismatches(stats: ErrorStats) -> str:
    """Return a clause with the number of elements that differ."""
    return f"{stats.mismatches} of {stats.count} elements {'differs' if stats.mismatches == 1 else 'differ'}"
