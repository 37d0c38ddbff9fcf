"""Checks whether a tensor's scale and range fit the reference's values, even if every code is correct.

Such a loss is the cost of the chosen codes rather than the fault of a node. The outputs show whether it matters.
"""

from __future__ import annotations

from dataclasses import replace

from qdebug.compare.evidence.measured import Measured
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole, apart, breach
from qdebug.model.thresholds.verdict import CODES_MIN_SQNR, DEFAULT_MIN_SQNR
from qdebug.numerics.code_loss import CodeLoss

__all__ = ["coarse_scale", "narrow_range", "saturation"]

_BY_MASK = "the mask value uses up the code range"


def narrow_range(measured: Measured) -> Finding | None:
    """Find a range so narrow that clipping loses too much of the reference's values."""
    clipped = None if measured.attribution is None else measured.attribution.saturation_error
    return _loss_finding(
        measured,
        clipped,
        DEFAULT_MIN_SQNR,
        FindingKind.SATURATION,
        ("clipping {} to its code range", "the range is too narrow"),
    )


def coarse_scale(measured: Measured) -> Finding | None:
    """Find a scale so large that rounding to codes loses too much of the reference's values."""
    coded = None if measured.attribution is None else measured.attribution.quantization_error
    return _loss_finding(
        measured, coded, CODES_MIN_SQNR, FindingKind.SCALE, ("rounding {} to its codes", "the scale is too large")
    )


def _loss_finding(
    measured: Measured, error: CodeLoss | None, floor: float, kind: FindingKind, words: tuple[str, str]
) -> Finding | None:
    """Report that quantizing the reference's values to the codes loses too much.

    A loss upstream is mentioned but does not excuse the node, whose codes lose as much on exact inputs. It excuses only
    a node that passes the loss on without rounding.
    """
    stats, attribution = measured.stats, measured.attribution
    own_error = None if attribution is None else attribution.arithmetic_unsaturated
    if attribution is None or own_error is None or own_error.nonfinite or error is None:
        return None
    if stats is None or stats.nonfinite or not stats.mismatches:
        return None
    if not error.mismatches or error.sqnr_db is None or not error.sqnr_db < floor:
        return None
    relevant_propagated = attribution.relevant_propagated or attribution.propagated
    upstream_rmse = None if relevant_propagated is None else relevant_propagated.rmse
    values = f"the reference's {'unmasked ' if attribution.hidden else ''}values"
    level_text = f"{words[0].format(values)} leaves an SQNR of {apart(error.sqnr_db, floor)} dB"
    sentence = f"{level_text}, below {floor:g} dB; {_BY_MASK if attribution.hidden else words[1]}"
    if upstream_rmse is not None and error.rmse is not None and error.rmse <= upstream_rmse:
        if not own_error.rmse:  # the node only passes codes on, so an earlier node lost the precision
            passed_on = f"{level_text}, but its inputs already have as large an error"
            return replace(
                breach(measured.name, kind, passed_on, judged=(error.sqnr_db, floor, "dB")),
                role=FindingRole.EXCUSE,
            )
        sentence += "; its inputs already have as large an error"
    return replace(breach(measured.name, kind, sentence, judged=(error.sqnr_db, floor, "dB")), role=FindingRole.COST)


def saturation(measured: Measured) -> Finding | None:
    """Find more clipped values than the user allows."""
    max_clipped, rails = measured.limits.max_saturation, measured.rails
    if max_clipped is None or rails is None or not rails.total:
        return None
    share = rails.clipped / rails.total
    if not share > max_clipped:
        return None
    clause = f"its code range clips {apart(share, max_clipped)} of the reference's values"
    sentence = f"{clause}, more than the limit of {max_clipped:g}"
    return breach(
        measured.name, FindingKind.SATURATION, sentence, judged=(share, max_clipped, "of all values"), given=True
    )
