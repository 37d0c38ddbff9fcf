"""Holds the error that a node introduces against what its arithmetic accounts for, if nothing is wrong with it."""

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

_WHOLE = "integers that are not quantized codes, or booleans"


def judged(of: Measured) -> Judged | None:
    """Return the part of a node's arithmetic that its derived limit is held against; None if there is none.

    Codes are judged by the largest error in LSB beside saturation, real numbers by the norm of the error over what
    rounding accounts for, and integers that are no codes by how many are off, or by how much where they may be. Of a
    tensor that equals the reference's it is 0: no error is there to be judged.
    """
    found = _held(of)
    same = of.stats is not None and not of.stats.mismatches
    return replace(found, amount=0.0) if found is not None and same else found


def _held(of: Measured) -> Judged | None:
    """Return what `judged` does of a tensor that differs."""
    attribution = of.attribution
    own = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own is None or own.nonfinite:
        return None
    if attribution.whole_off:
        largest = math.nan if own.max_abs is None else own.max_abs
        return Judged(amount=largest, limit=float(attribution.whole_off), unit="integers")
    if attribution.whole_off is not None:
        return Judged(amount=float(own.mismatches), limit=0.0, unit="elements")
    if attribution.allowed is None:
        return None if own.max_lsb is None else Judged(amount=own.max_lsb, limit=DERIVED_LSB, unit="LSB")
    if own.rmse is None:
        return None
    norm = own.rmse * math.sqrt(own.count)
    times = norm / attribution.allowed if attribution.allowed else math.inf
    return Judged(amount=times if norm else 0.0, limit=1.0, unit="bound")


def steps(of: Measured) -> Finding | None:
    """Find more steps introduced into a tensor of codes than any rounding makes.

    An arithmetic that gives the same bits is no fault of the node, and costs what it costs: sums that saturate, say.
    """
    found = _differing(of, "LSB")
    if found is None or found.amount <= DERIVED_LSB + LSB_SLACK:
        return None
    largest = apart(found.amount, DERIVED_LSB, digits=4)
    said = f"the error of its arithmetic is {largest} LSB, and rounding explains {DERIVED_LSB:g} at most"
    case = breach(of, FindingKind.ARITHMETIC, said, judged=(found.amount, DERIVED_LSB, "LSB"), given=False)
    return _as_cost(case, of) if of.excused else case


def _as_cost(case: Finding, of: Measured) -> Finding:
    """Return what an arithmetic that gives the same bits costs."""
    known = "" if of.known_arithmetic is None else f"{of.known_arithmetic}: "
    said = f"{known}a known arithmetic gives the same bits; {case.sentence}"
    return replace(case, role=FindingRole.COST, sentence=said)


def sums(of: Measured) -> Finding | None:
    """Find more error introduced into real numbers than the rounding of the node's sums accounts for."""
    found = _differing(of, "bound")
    if found is None or found.amount <= 1:  # codes made real numbers may be rounded once
        return None
    said = f"the error of its arithmetic is {apart(found.amount, 1)} times what rounding explains"
    judged = found.amount, 1, "times the rounding bound"
    case = breach(of, FindingKind.ARITHMETIC, said, judged=judged, given=False)
    return _as_cost(case, of) if of.excused else case


def elements(of: Measured) -> Finding | None:
    """Find single elements that are off by more than rounding accounts for, however small beside the rest."""
    found, whole = _introduced(of), _differing(of, "bound")
    if found is None or whole is None or not whole.amount <= 1 or not found[1].unexplained_elements or of.excused:
        return None
    stats, beyond = found[0], found[1].unexplained_elements
    are = "is" if beyond == 1 else "are"
    said = f"{beyond} of {stats.count} elements {are} off by more than rounding their operands explains"
    return breach(of, FindingKind.ARITHMETIC, said, judged=(beyond, 0, "elements"), given=False)


def integers(of: Measured) -> Finding | None:
    """Find integers that are no codes, or booleans, that are not what the node's inputs give."""
    found = _introduced(of)
    if found is None:
        return _unequal(of)
    stats, attribution = found
    most = attribution.whole_off
    if most is None or not stats.mismatches or (stats.max_abs is not None and stats.max_abs <= most):
        return None
    said = f"{stats.mismatches} of {stats.count} elements {'is' if stats.mismatches == 1 else 'are'} not what its"
    if most:
        said += f" inputs give, by up to {stats.max_abs:g}; {most} is rounding"
        amount = math.nan if stats.max_abs is None else stats.max_abs
        return breach(of, FindingKind.ARITHMETIC, said, judged=(amount, most, "integers"), given=False)
    ties = "all" if attribution.tied == stats.mismatches else attribution.tied
    said += f" inputs give, and nothing rounds {_WHOLE}"
    said += f"; a tie: {ties} of these are the index of an equal value" if attribution.tied else ""
    return breach(of, FindingKind.ARITHMETIC, said, judged=(stats.mismatches, 0, "elements"), given=False)


def _unequal(of: Measured) -> Finding | None:
    """Find integers that differ though all that a node without replay reads is equal, and nothing rounds them."""
    stats = of.stats
    if stats is None or stats.nonfinite or not stats.mismatches or not of.exact or of.limits.judge_whole(stats):
        return None
    if of.excused and not of.limits.given:
        return None
    said = f"{differing(stats)}, and nothing rounds {_WHOLE}"
    if of.unreplayed is not None and not of.limits.given:
        said += f"; judged with the error of its inputs included, since {of.unreplayed}"
    return breach(of, FindingKind.ARITHMETIC, said, judged=(stats.mismatches, 0, "elements"), given=False)


def differing(stats: ErrorStats) -> str:
    """Return a clause with the number of elements that differ."""
    return f"{stats.mismatches} of {stats.count} elements {'differs' if stats.mismatches == 1 else 'differ'}"


def _introduced(of: Measured) -> tuple[ErrorStats, Attribution] | None:
    """Return the finite error that a node introduces, and how it splits; None if that is not known, or there is none.

    What saturation accounts for is no part of it.
    """
    stats, attribution = of.stats, of.attribution
    if stats is None or stats.nonfinite or not stats.mismatches or attribution is None:
        return None
    own = attribution.arithmetic_unsaturated
    return None if own is None or own.nonfinite else (own, attribution)


def _differing(of: Measured, unit: str) -> Judged | None:
    """Return what is judged in a unit, of a tensor with a finite error; None if there is none."""
    found = judged(of)
    return found if found is not None and found.unit == unit and _introduced(of) is not None else None
