"""Compares the error that a node introduces with the error that correct arithmetic may have."""

from __future__ import annotations

import math
from dataclasses import replace

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.checks.measured import Measured, breach
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, Judged, apart
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.stats import ErrorStats

__all__ = ["differing", "elements", "integers", "judged", "steps", "sums"]

_NEVER_ROUNDED = "booleans and unquantized integers are never rounded"


def judged(measured: Measured) -> Judged | None:
    """Return the amount that a node's derived limit applies to, or None if there is none.

    Codes are judged by the largest error in LSB, excluding saturation. Reals are judged by the error norm divided by
    the norm of correct rounding. Other integers are judged by the number of wrong elements, or by their distance if
    they may differ. The amount is 0 for a tensor equal to the reference.
    """
    amount = _judged_difference(measured)
    is_equal = measured.stats is not None and not measured.stats.mismatches
    return replace(amount, amount=0.0) if amount is not None and is_equal else amount


def _judged_difference(measured: Measured) -> Judged | None:
    """Return the result of `judged` for a tensor that differs from the reference."""
    attribution = measured.attribution
    own_error = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own_error is None or own_error.nonfinite:
        return None
    if attribution.whole_off:
        largest = math.nan if own_error.max_abs is None else own_error.max_abs
        return Judged(amount=largest, limit=float(attribution.whole_off), unit="integers")
    if attribution.whole_off is not None:
        return Judged(amount=float(own_error.mismatches), limit=0.0, unit="elements")
    if attribution.allowed is None:
        return None if own_error.max_lsb is None else Judged(amount=own_error.max_lsb, limit=DERIVED_LSB, unit="LSB")
    if own_error.rmse is None:
        return None
    norm = own_error.rmse * math.sqrt(own_error.count)
    times = norm / attribution.allowed if attribution.allowed else math.inf
    return Judged(amount=times if norm else 0.0, limit=1.0, unit="bound")


def steps(measured: Measured) -> Finding | None:
    """Find an error introduced into a quantized tensor that is more steps than any rounding mode explains.

    If a known arithmetic, such as saturating sums, gives the same bits, the error is not the node's fault, whatever it
    costs.
    """
    amount = _judged_in(measured, "LSB")
    if amount is None or amount.amount <= DERIVED_LSB + LSB_SLACK:
        return None
    largest = apart(amount.amount, DERIVED_LSB, digits=4)
    sentence = f"its arithmetic error is {largest} LSB; rounding explains at most {DERIVED_LSB:g} LSB"
    case = breach(measured, FindingKind.ARITHMETIC, sentence, judged=(amount.amount, DERIVED_LSB, "LSB"), given=False)
    return _as_cost(case, measured) if measured.excused else case


def _as_cost(case: Finding, measured: Measured) -> Finding:
    """Return a finding about the cost of an arithmetic that gives the same bits."""
    sentence = f"every bit is reproduced by {measured.known_arithmetic or 'a known arithmetic'}; {case.sentence}"
    return replace(case, role=FindingRole.COST, sentence=sentence)


def sums(measured: Measured) -> Finding | None:
    """Find an error introduced into real numbers that exceeds the rounding error of the node's sums."""
    amount = _judged_in(measured, "bound")
    if amount is None or amount.amount <= 1:  # dequantized codes may be rounded once
        return None
    sentence = f"its arithmetic error is {apart(amount.amount, 1)} times the rounding bound"
    amount_and_limit = amount.amount, 1, "times the rounding bound"
    case = breach(measured, FindingKind.ARITHMETIC, sentence, judged=amount_and_limit, given=False)
    return _as_cost(case, measured) if measured.excused else case


def elements(measured: Measured) -> Finding | None:
    """Find single elements whose error exceeds their rounding error, however small they are among the others."""
    introduced, share_of_bound = _introduced_error(measured), _judged_in(measured, "bound")
    if (
        introduced is None
        or share_of_bound is None
        or not share_of_bound.amount <= 1
        or not introduced[1].unexplained_elements
        or measured.excused
    ):
        return None
    stats, element_count = introduced[0], introduced[1].unexplained_elements
    are = "is" if element_count == 1 else "are"
    sentence = f"{element_count} of {stats.count} elements {are} off by more than rounding of their operands explains"
    return breach(measured, FindingKind.ARITHMETIC, sentence, judged=(element_count, 0, "elements"), given=False)


def integers(measured: Measured) -> Finding | None:
    """Find booleans, or integers that are not codes, that differ from the result computed from the node's inputs."""
    introduced = _introduced_error(measured)
    if introduced is None:
        return _unequal(measured)
    stats, attribution = introduced
    rounding_limit = attribution.whole_off
    if (
        rounding_limit is None
        or not stats.mismatches
        or (stats.max_abs is not None and stats.max_abs <= rounding_limit)
    ):
        return None
    verb = "differs" if stats.mismatches == 1 else "differ"
    sentence = f"{stats.mismatches} of {stats.count} elements {verb} from a replay of the node"
    if rounding_limit:
        sentence += f" by up to {stats.max_abs:g}; rounding explains at most {rounding_limit}"
        amount = math.nan if stats.max_abs is None else stats.max_abs
        return breach(
            measured, FindingKind.ARITHMETIC, sentence, judged=(amount, rounding_limit, "integers"), given=False
        )
    ties = "all" if attribution.tied == stats.mismatches else attribution.tied
    sentence += f"; {_NEVER_ROUNDED}"
    sentence += f"; {ties} of these are ties, that is, the index of an equal value" if attribution.tied else ""
    return breach(measured, FindingKind.ARITHMETIC, sentence, judged=(stats.mismatches, 0, "elements"), given=False)


def _unequal(measured: Measured) -> Finding | None:
    """Find integers that differ although an unreplayed node has equal inputs and never rounds."""
    stats = measured.stats
    if (
        stats is None
        or stats.nonfinite
        or not stats.mismatches
        or not measured.exact
        or measured.limits.judge_whole(stats)
    ):
        return None
    if measured.excused and not measured.limits.given:
        return None
    sentence = f"{differing(stats)}; {_NEVER_ROUNDED}"
    if measured.unreplayed is not None and not measured.limits.given:
        sentence += f"; this includes the error of its inputs, because {measured.unreplayed}"
    return breach(measured, FindingKind.ARITHMETIC, sentence, judged=(stats.mismatches, 0, "elements"), given=False)


def differing(stats: ErrorStats) -> str:
    """Return a clause with the number of elements that differ."""
    return f"{stats.mismatches} of {stats.count} elements {'differs' if stats.mismatches == 1 else 'differ'}"


def _introduced_error(measured: Measured) -> tuple[ErrorStats, Attribution] | None:
    """Return the finite error that a node introduces and its attribution, or None if there is none or it is unknown.

    Saturation is excluded.
    """
    stats, attribution = measured.stats, measured.attribution
    if stats is None or stats.nonfinite or not stats.mismatches or attribution is None:
        return None
    own_error = attribution.arithmetic_unsaturated
    return None if own_error is None or own_error.nonfinite else (own_error, attribution)


def _judged_in(measured: Measured, unit: str) -> Judged | None:
    """Return the judged amount, in a given unit, of a tensor with a finite error, or None if there is none."""
    amount = judged(measured)
    return amount if amount is not None and amount.unit == unit and _introduced_error(measured) is not None else None
