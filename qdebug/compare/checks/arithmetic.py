"""Holds the error that a node introduces against what its arithmetic accounts for, if nothing is wrong with it."""

from __future__ import annotations

import math

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.checks.measured import Measured, breach
from qdebug.compare.result.finding import Finding, FindingKind
from qdebug.model.thresholds.rounding import LSB_SLACK
from qdebug.model.thresholds.verdict import DERIVED_LSB
from qdebug.numerics.stats import ErrorStats

__all__ = ["differing", "elements", "integers", "steps", "sums"]

_WHOLE = "integers that are no codes, or booleans"


def steps(of: Measured) -> Finding | None:
    """Find more steps introduced into a tensor of codes than any rounding makes."""
    found = _introduced(of)
    if found is None or found[1].whole_off is not None or found[1].allowed is not None:
        return None
    largest = found[0].max_lsb
    if of.excused or largest is None or largest <= DERIVED_LSB + LSB_SLACK:
        return None
    said = f"its arithmetic makes {largest:.4g} LSB, more than the {DERIVED_LSB:g} of any rounding"
    return breach(of, FindingKind.ARITHMETIC, said, judged=(largest, DERIVED_LSB, "LSB"), given=False)


def sums(of: Measured) -> Finding | None:
    """Find more error introduced into real numbers than the rounding of the node's sums accounts for."""
    norms = _norms(of)
    if norms is None or norms[0] <= norms[1]:
        return None
    times = norms[0] / norms[1] if norms[1] else math.inf
    said = f"its arithmetic makes {times:.3g} times the error that rounding its sums accounts for"
    return breach(of, FindingKind.ARITHMETIC, said, judged=(times, 1, "times the rounding bound"), given=False)


def elements(of: Measured) -> Finding | None:
    """Find single elements that are off by more than rounding accounts for, however small beside the rest."""
    found, norms = _introduced(of), _norms(of)
    if found is None or norms is None or not norms[0] <= norms[1] or not found[1].unexplained_elements:
        return None
    stats, beyond = found[0], found[1].unexplained_elements
    said = f"{beyond} of {stats.count} elements are off by more than rounding what each is made of accounts for"
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
        said += f"; judged by its whole error, since {of.unreplayed}"
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


def _norms(of: Measured) -> tuple[float, float] | None:
    """Return the norm of the introduced error of real numbers, and what rounding accounts for; None of codes."""
    found = _introduced(of)
    if found is None or found[1].whole_off is not None or found[1].allowed is None or found[0].rmse is None:
        return None
    return found[0].rmse * math.sqrt(found[0].count), found[1].allowed
