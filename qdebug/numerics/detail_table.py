"""Definitions of what is said beside the metrics: of one node in full detail, and of a whole comparison."""

from __future__ import annotations

from qdebug.numerics.metric_spec import Better, MetricGroup, MetricSpec

__all__ = ["DETAILS"]

_LOWER, _HIGHER, _NEITHER = Better.LOWER, Better.HIGHER, Better.NEITHER


def _rows(group: MetricGroup, *rows: tuple[str, str, Better, str]) -> tuple[MetricSpec, ...]:
    return tuple(
        MetricSpec(name=name, unit=unit, better=better, definition=definition, group=group)
        for name, unit, better, definition in rows
    )


_DETAIL = _rows(
    MetricGroup.DETAIL,
    ("tensors", "arrays", _NEITHER, "arrays of each side that were compared: one for each sample and step"),
    ("shape", "", _NEITHER, "the backend's shape, in the reference's order of dimensions"),
    (
        "errors_by_exponent",
        "elements",
        _NEITHER,
        (
            "elements by the power of two that abs(difference) reaches; differences of 0, and elements that are not "
            "finite, apart"
        ),
    ),
    (
        "relative_by_exponent",
        "elements",
        _NEITHER,
        (
            "elements by the power of two that abs(difference)/abs(reference) reaches, where the reference is not 0 "
            "and both sides are finite; equal elements apart; a quotient beyond float64 counts as 2**1024"
        ),
    ),
    ("zero_refs_hit", "elements", _HIGHER, "elements whose reference is 0 and whose backend is 0 too"),
    (
        "max_ulp",
        "ULP",
        _LOWER,
        (
            "most floats between reference and backend, in the coarser of their types, +0 and -0 being one; "
            "unquantized float16, bfloat16, float32 and float64, finite elements alone"
        ),
    ),
    ("ulp_type", "", _NEITHER, "the type that max_ulp and ulp_counts count in"),
    (
        "ulp_counts",
        "elements",
        _NEITHER,
        "elements by distance in ULP: entry 0 counts distance 0, entry k those from 2**(k-1) to 2**k - 1",
    ),
    (
        "reference_values",
        "elements",
        _NEITHER,
        (
            "values of the reference in equal bins from the smallest to the largest finite value of either side; a bin "
            "holds its lower end, the last one both; NaN and infinities apart"
        ),
    ),
    ("backend_values", "elements", _NEITHER, "values of the backend in the same bins"),
    ("channel_axis", "", _NEITHER, "the axis along which channels lie, in the backend's shape"),
    ("channel_max_abs", "real", _LOWER, "max_abs of each channel; NaN where no element is finite on both sides"),
    ("channel_rmse", "real", _LOWER, "rmse of each channel; NaN where no element is finite on both sides"),
    ("channel_sqnr_db", "dB", _HIGHER, "sqnr_db of each channel; NaN where no element is finite on both sides"),
    ("channel_nonfinite", "elements", _LOWER, "elements of each channel that are NaN or infinite on a side"),
)

_ELEMENT = _rows(
    MetricGroup.ELEMENT,
    ("reference", "real", _NEITHER, "real value of the reference's element"),
    ("backend", "real", _NEITHER, "real value of the backend's element"),
    ("difference", "real", _NEITHER, "backend - reference"),
    ("lsb", "LSB", _NEITHER, "difference in steps of the backend's scale; None if it has none"),
    ("reference_code", "", _NEITHER, "stored integer of the reference; None if it is not quantized to integers"),
    ("backend_code", "", _NEITHER, "stored integer of the backend; None if it is not quantized to integers"),
)

_COMPOUNDING = _rows(
    MetricGroup.COMPOUNDING,
    ("usual", "", _NEITHER, "median gain of the nodes with the same operator"),
    ("nodes", "nodes", _NEITHER, "nodes with the same operator and a gain"),
)

_RANKING = _rows(
    MetricGroup.RANKING,
    ("entries", "elements", _NEITHER, "scores in a vector: the output of one sample and step"),
    ("samples", "vectors", _NEITHER, "score vectors that were ranked"),
    ("unranked", "vectors", _NEITHER, "vectors without a winner in the reference: a NaN, or all entries equal"),
    ("top1_agreement", "", _HIGHER, "share of the ranked vectors in which the reference's winner is the backend's"),
    ("top5_agreement", "", _HIGHER, "share in which it is among the first five; None with five entries or fewer"),
    ("tied", "vectors", _LOWER, "ranked vectors in which another entry has the winner's score in the backend"),
    ("worst_rank", "elements", _LOWER, "most entries of the backend that are not behind the reference's winner"),
)

_AGREEMENT = _rows(
    MetricGroup.AGREEMENT,
    ("elements", "elements", _NEITHER, "elements of a tensor that several backends hold"),
    ("differ", "elements", _LOWER, "elements in which every backend that holds it differs from the reference"),
    ("same", "elements", _NEITHER, "of these, the ones in which all these backends have the same value"),
)

DETAILS = (*_DETAIL, *_ELEMENT, *_COMPOUNDING, *_RANKING, *_AGREEMENT)
"""Every quantity that is no property of one tensor's error, saturation or attribution."""
