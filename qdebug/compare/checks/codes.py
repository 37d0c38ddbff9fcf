"""Checks whether a tensor's scale and range fit the reference's values, though every code is the right one.

Whoever chose the codes pays for them, and no node is at fault: whether it matters shows at the outputs.
"""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.checks.measured import Measured, breach
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR
from qdebug.numerics.code_loss import CodeLoss

__all__ = ["range_fits", "saturation", "scale_fits"]

_BY_MASK = "the mask takes up its codes"


def range_fits(of: Measured) -> Finding | None:
    """Find a range so narrow that clipping leaves too little of the reference's values."""
    clipped = None if of.attribution is None else of.attribution.saturation_error
    return _fits(
        of,
        clipped,
        DEFAULT_MIN_SQNR,
        FindingKind.SATURATION,
        ("cut off at the range of its codes", "that range is too narrow"),
    )


def scale_fits(of: Measured) -> Finding | None:
    """Find a scale so large that rounding to the codes leaves too little of the reference's values."""
    coded = None if of.attribution is None else of.attribution.quantization_error
    return _fits(of, coded, CODES_MIN_SQNR, FindingKind.SCALE, ("rounded to its codes", "its scale is too large"))


def _fits(
    of: Measured, error: CodeLoss | None, floor: float, kind: FindingKind, words: tuple[str, str]
) -> Finding | None:
    """Find what holding the reference's values to the codes loses, if too much.

    That something else was lost before is said, and excuses nothing: these codes lose as much whatever reaches them. It
    does where the node rounds nothing, and hands on what was lost.
    """
    stats, attribution = of.stats, of.attribution
    own = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own is None or own.nonfinite or error is None:
        return None
    if stats is None or stats.nonfinite or not stats.mismatches:
        return None
    if not error.mismatches or error.sqnr_db is None or not error.sqnr_db < floor:
        return None
    arriving = attribution.arriving or attribution.propagated
    before = None if arriving is None else arriving.rmse
    values = "the reference's values" + (" that no mask hides" if attribution.hidden else "")
    left = f"{values}, {words[0]}, have an SQNR of {apart(error.sqnr_db, floor)} dB"
    said = f"{left}, below {floor:g} dB: {_BY_MASK if attribution.hidden else words[1]}"
    if before is not None and error.rmse is not None and error.rmse <= before:
        if not own.rmse:  # it hands codes on: they were lost where they were made
            handed_on = f"{left}, but what reaches the node is as far off already"
            return replace(
                breach(of, kind, handed_on, judged=(error.sqnr_db, floor, "dB"), given=False), role=FindingRole.EXCUSE
            )
        said += "; what reaches the node is as far off already"
    return replace(breach(of, kind, said, judged=(error.sqnr_db, floor, "dB"), given=False), role=FindingRole.COST)


def saturation(of: Measured) -> Finding | None:
    """Find more clipped values than the user allows."""
    most, rails = of.limits.max_saturation, of.rails
    if most is None or rails is None or not rails.total:
        return None
    share = rails.clipped / rails.total
    if not share > most:
        return None
    said = f"{apart(share, most)} of the reference's values are clipped by its codes, more than {most:g}"
    return breach(of, FindingKind.SATURATION, said, judged=(share, most, "of all values"), given=True)
