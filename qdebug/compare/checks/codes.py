"""Checks whether a tensor's scale and range fit the reference's values, even if every code is correct.

Such a loss is the cost of the chosen codes rather than the fault of a node. The outputs show whether it matters.
"""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart, breach
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR
from qdebug.numerics.code_loss import CodeLoss

__all__ = ["range_fits", "saturation", "scale_fits"]

_BY_MASK = "the mask value uses up the code range"


def range_fits(of: Measured) -> Finding | None:
    """Find a range so narrow that clipping loses too much of the reference's values."""
    clipped = None if of.attribution is None else of.attribution.saturation_error
    return _loss_finding(
        of,
        clipped,
        DEFAULT_MIN_SQNR,
        FindingKind.SATURATION,
        ("clipping {} to its code range", "the range is too narrow"),
    )


def scale_fits(of: Measured) -> Finding | None:
    """Find a scale so large that rounding to codes loses too much of the reference's values."""
    coded = None if of.attribution is None else of.attribution.quantization_error
    return _loss_finding(
        of, coded, CODES_MIN_SQNR, FindingKind.SCALE, ("rounding {} to its codes", "the scale is too large")
    )


def _loss_finding(
    measured: Measured, error: CodeLoss | None, floor: float, kind: FindingKind, words: tuple[str, str]
) -> Finding | None:
    """Find that quantizing the reference's values to the codes loses too much.

    An earlier loss is mentioned but is no excuse: these codes lose as much whatever reaches them. It does excuse a node
    that passes the loss on without rounding.
    """
    stats, attribution = measured.stats, measured.attribution
    own_error = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own_error is None or own_error.nonfinite or error is None:
        return None
    if stats is None or stats.nonfinite or not stats.mismatches:
        return None
    if not error.mismatches or error.sqnr_db is None or not error.sqnr_db < floor:
        return None
    arriving = attribution.arriving or attribution.propagated
    before = None if arriving is None else arriving.rmse
    values = f"the reference's {'unmasked ' if attribution.hidden else ''}values"
    level_text = f"{words[0].format(values)} leaves an SQNR of {apart(error.sqnr_db, floor)} dB"
    sentence = f"{level_text}, below {floor:g} dB; {_BY_MASK if attribution.hidden else words[1]}"
    if before is not None and error.rmse is not None and error.rmse <= before:
        if not own_error.rmse:  # the node only passes codes on, so an earlier node lost the precision
            handed_on = f"{level_text}, but its inputs already have as large an error"
            return replace(
                breach(measured.name, kind, handed_on, judged=(error.sqnr_db, floor, "dB")),
                role=FindingRole.EXCUSE,
            )
        sentence += "; its inputs already have as large an error"
    return replace(breach(measured.name, kind, sentence, judged=(error.sqnr_db, floor, "dB")), role=FindingRole.COST)


def saturation(measured: Measured) -> Finding | None:
    """Find more clipped values than the user allows."""
    most, rails = measured.limits.max_saturation, measured.rails
    if most is None or rails is None or not rails.total:
        return None
    share = rails.clipped / rails.total
    if not share > most:
        return None
    sentence = f"its code range clips {apart(share, most)} of the reference's values, more than the limit of {most:g}"
    return breach(measured.name, FindingKind.SATURATION, sentence, judged=(share, most, "of all values"), given=True)
