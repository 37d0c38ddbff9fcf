"""The table of all metrics: one row each, from which CLI choices, TUI columns, docs and JSON keys come.

Rules for every row
- Real values are compared: codes are dequantized first (`affine.dequantize`), then clamped to the bounds of a view.
  Real values that fit float32 are float32. difference = backend - reference is rounded to float64 once (twice between
  a 64-bit integer and a float, and between 64-bit codes that are far apart).
- Integers of any width are compared exactly. Codes of 32 and 64 bits are dequantized exactly if the scale is a
  float32, else to 2**-24 of a step (`wide_codes`); `max_lsb` between such codes with the same scale is exact up to
  2**50 steps. Compared with a float tensor, they are rounded to its precision, but at least float32. Extremes of 64-bit
  integers are rounded to float64.
- An element is *finite* if it is finite on both sides. NaN on both sides, or the same infinity, is a match
  (`matched_nonfinite`). Any other NaN or infinity is a disagreement (`nonfinite`), also a mismatch, and is left out of
  every sum, mean and maximum. If there is one, `max_abs` is infinite and `rel_l2`, `sqnr_db` and `cosine` are NaN, so
  that metrics of the other elements are not mistaken for metrics of all.
- -0.0 equals 0.0 and is a zero reference. Denormal numbers are numbers. A 0-d tensor has one element, with index ().
- Without elements, or without finite ones, every metric that needs one is None. Counts are 0.
- Two tensors that are 0 everywhere are identical: `sqnr_db` infinite, `rel_l2` 0, `cosine` 1, `max_rel` None.
- No epsilon is added anywhere. A maximum, mean or ratio whose true value exceeds float64 is infinite.
- Counts are exact. `max_abs` is the float64 nearest to the largest difference; `max_rel` is a correctly rounded
  difference divided once. Sums are within 4 ULP of float32 of the exact sum, whatever the size of the tensor;
  the signed sum of `lsb_bias` within 4 ULP of float32 of the sum of its absolute terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["DETAILS", "METRICS", "Better", "MetricGroup", "MetricSpec", "metric"]


class Better(StrEnum):
    """The direction in which a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class MetricGroup(StrEnum):
    """Where a metric appears in the diff JSON.

    `COUNTS` and `ERROR` are in every "metrics", "introduced" and "propagated". `DETAIL` and `ELEMENT` describe a single
    node on request, `ELEMENT` in its "worst_elements". The others describe the whole comparison.
    """

    ERROR = "metrics"
    COUNTS = "counts"
    SATURATION = "saturation"
    ATTRIBUTION = "attribution"
    DETAIL = "detail"
    ELEMENT = "worst_elements"
    COMPOUNDING = "compounding"
    RANKING = "outputs"
    AGREEMENT = "agreement"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric.

    Args:
        name: Its key in the diff JSON, and its name on the command line.
        unit: Unit of its values; "real" for the tensor's own unit, "" for a pure number.
        better: The direction of improvement.
        definition: Its one-line definition, including special values.
        group: Where it appears in the diff JSON.
    """

    name: str
    unit: str
    better: Better
    definition: str
    group: MetricGroup = MetricGroup.ERROR


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
            "elements by the power of two that abs(difference) reaches; differences of 0 and elements that are not "
            "finite are counted separately"
        ),
    ),
    (
        "relative_by_exponent",
        "elements",
        _NEITHER,
        (
            "elements by the power of two that abs(difference)/abs(reference) reaches, where the reference is not 0 "
            "and both sides are finite; equal elements are counted separately; a quotient beyond float64 counts as "
            "2**1024"
        ),
    ),
    ("zero_refs_hit", "elements", _HIGHER, "elements that are 0 in both reference and backend"),
    (
        "max_ulp",
        "ULP",
        _LOWER,
        (
            "largest number of floats between reference and backend, in the coarser of their types; +0 equals -0; "
            "only for finite elements of unquantized float16, bfloat16, float32 and float64"
        ),
    ),
    ("ulp_type", "", _NEITHER, "the float type whose ULPs max_ulp and ulp_counts count"),
    (
        "ulp_counts",
        "elements",
        _NEITHER,
        "elements by distance in ULP: entry 0 counts distance 0, entry k distances from 2**(k-1) to 2**k - 1",
    ),
    (
        "reference_values",
        "elements",
        _NEITHER,
        (
            "values of the reference in equal bins from the smallest to the largest finite value of either side; a bin "
            "includes its lower end, the last one both; NaN and infinities are counted separately"
        ),
    ),
    ("backend_values", "elements", _NEITHER, "values of the backend in the same bins"),
    ("channel_axis", "", _NEITHER, "the channel axis of the backend's shape"),
    ("channel_max_abs", "real", _LOWER, "max_abs of each channel; NaN where no element is finite on both sides"),
    ("channel_rmse", "real", _LOWER, "rmse of each channel; NaN where no element is finite on both sides"),
    ("channel_sqnr_db", "dB", _HIGHER, "sqnr_db of each channel; NaN where no element is finite on both sides"),
    (
        "channel_nonfinite",
        "elements",
        _LOWER,
        "elements of each channel that are NaN or infinite on either side and do not agree",
    ),
)

_ELEMENT = _rows(
    MetricGroup.ELEMENT,
    ("reference", "real", _NEITHER, "real value of the reference's element"),
    ("backend", "real", _NEITHER, "real value of the backend's element"),
    ("difference", "real", _NEITHER, "backend - reference"),
    ("lsb", "LSB", _NEITHER, "difference in steps of the backend's scale; None without a scale"),
    ("reference_code", "", _NEITHER, "stored integer of the reference; None if it is not quantized to integers"),
    ("backend_code", "", _NEITHER, "stored integer of the backend; None if it is not quantized to integers"),
)

_COMPOUNDING = _rows(
    MetricGroup.COMPOUNDING,
    ("usual", "", _NEITHER, "median gain of the nodes with the same operator"),
    ("nodes", "nodes", _NEITHER, "nodes with the same operator and a known gain"),
)

_RANKING = _rows(
    MetricGroup.RANKING,
    ("entries", "elements", _NEITHER, "scores in a vector: the output of one sample and step"),
    ("samples", "vectors", _NEITHER, "score vectors that were ranked"),
    ("unranked", "vectors", _NEITHER, "vectors without a winner in the reference: a NaN, or all entries equal"),
    ("top1_agreement", "", _HIGHER, "share of the ranked vectors in which the reference's winner is the backend's"),
    (
        "top5_agreement",
        "",
        _HIGHER,
        "share in which the reference's winner is among the backend's first five; None with five entries or fewer",
    ),
    (
        "tied",
        "vectors",
        _LOWER,
        "ranked vectors in which another entry ties with the reference's winner in the backend",
    ),
    (
        "worst_rank",
        "elements",
        _LOWER,
        "largest number of other backend entries that score at least as high as the reference's winner",
    ),
    (
        "logprob_rms",
        "nats",
        _LOWER,
        "sqrt(mean over vectors of sum p (log p - log q)^2), p and q the softmax of both sides' scores",
    ),
    (
        "kl",
        "nats",
        _LOWER,
        "mean over vectors of sum p log(p/q); infinite if q is 0 where p is not, NaN if the backend has a NaN",
    ),
    ("worst_kl", "nats", _LOWER, "the largest of these over vectors"),
    ("worst_kl_sample", "", _NEITHER, "the first sample with that divergence"),
    (
        "top5_overlap",
        "",
        _HIGHER,
        "mean share of the reference's five highest scores that are among the backend's five highest",
    ),
)

_AGREEMENT = _rows(
    MetricGroup.AGREEMENT,
    ("elements", "elements", _NEITHER, "elements of a tensor that several backends recorded"),
    (
        "differ",
        "elements",
        _LOWER,
        "elements in which every backend that recorded the tensor differs from the reference",
    ),
    ("same", "elements", _NEITHER, "of these, the elements in which all these backends have the same value"),
)

DETAILS = (*_DETAIL, *_ELEMENT, *_COMPOUNDING, *_RANKING, *_AGREEMENT)
"""Every quantity that is not a property of a tensor's error, saturation or attribution."""


def _error(name: str, unit: str, better: Better, definition: str) -> MetricSpec:
    return MetricSpec(name=name, unit=unit, better=better, definition=definition)


def _count(name: str, unit: str, better: Better, definition: str) -> MetricSpec:
    return MetricSpec(name=name, unit=unit, better=better, definition=definition, group=MetricGroup.COUNTS)


def _saturation(name: str, better: Better, definition: str) -> MetricSpec:
    return MetricSpec(name=name, unit="elements", better=better, definition=definition, group=MetricGroup.SATURATION)


METRICS: tuple[MetricSpec, ...] = (
    _error("max_abs", "real", _LOWER, "largest abs(difference)"),
    _error("mean_abs", "real", _LOWER, "mean abs(difference)"),
    _error("rmse", "real", _LOWER, "sqrt(mean(difference^2))"),
    _error(
        "max_rel",
        "",
        _LOWER,
        "largest abs(difference)/abs(reference) where the reference is not 0, without an epsilon; None if it is 0 "
        "everywhere",
    ),
    _error("zero_refs", "elements", _NEITHER, "elements whose reference is 0, which max_rel leaves out"),
    _error(
        "rel_l2", "", _LOWER, "norm(difference)/norm(reference); 0 if identical, infinite if only the reference is 0"
    ),
    _error(
        "sqnr_db",
        "dB",
        _HIGHER,
        "10 log10(sum reference^2 / sum difference^2); infinite if identical, -infinite if only the reference is 0",
    ),
    _error(
        "cosine",
        "",
        _HIGHER,
        "cosine of the angle between the tensors; 1 if identical, NaN if one of two different tensors is 0 everywhere",
    ),
    _error(
        "max_lsb",
        "LSB",
        _LOWER,
        "largest abs(difference) in steps of the backend's scale (per channel if the scale is), a whole number "
        "if both sides are codes with that scale; None if the backend has no positive finite scale",
    ),
    _error(
        "lsb_bias",
        "LSB",
        _NEITHER,
        "mean of difference/scale over the elements that differ: near 0 for honest rounding, near max_lsb or -max_lsb "
        "for an offset; 0 if none differs, None if the backend has no positive finite scale",
    ),
    _error(
        "mismatches",
        "elements",
        _LOWER,
        "elements whose real values differ, including disagreements about NaN and infinity",
    ),
    _error("nonfinite", "elements", _LOWER, "elements that are NaN or infinite on either side and do not agree"),
    _error(
        "worst_index",
        "",
        _NEITHER,
        "index, in the backend's shape, of the first element with the largest abs(difference); a disagreement about "
        "NaN or infinity is worse than any number",
    ),
    _error("worst_sample", "", _NEITHER, "the sample that worst_index is in"),
    _count("count", "elements", _NEITHER, "elements compared, over all samples and steps"),
    _count(
        "matched_nonfinite",
        "elements",
        _NEITHER,
        "elements that are NaN on both sides, or the same infinity; they are matches, counted separately",
    ),
    _count(
        "beyond_tolerance",
        "elements",
        _LOWER,
        "elements that differ by more than atol + rtol*abs(reference); None without a tolerance",
    ),
    _count("reference_min", "real", _NEITHER, "smallest finite value of the reference; None if there is none"),
    _count("reference_max", "real", _NEITHER, "largest finite value of the reference; None if there is none"),
    _count("backend_min", "real", _NEITHER, "smallest finite value of the backend; None if there is none"),
    _count("backend_max", "real", _NEITHER, "largest finite value of the backend; None if there is none"),
    _saturation("at_qmin", _NEITHER, "codes at or below qmin; not a fault unless values are clipped"),
    _saturation("at_qmax", _NEITHER, "codes at or above qmax; not a fault unless values are clipped"),
    _saturation("clipped_low", _LOWER, "reference values below scale * (qmin - zero_point); NaN is not counted"),
    _saturation("clipped_high", _LOWER, "reference values above scale * (qmax - zero_point); NaN is not counted"),
    _saturation("floor", _NEITHER, "codes at qmin that are a Relu's zero: a Relu is fused and qmin is the zero point"),
    _saturation("total", _NEITHER, "total number of codes"),
    MetricSpec(
        name="gain",
        unit="",
        better=_LOWER,
        definition="rel_l2(propagated) / rel_l2(largest error in); of the whole error if propagated is unknown",
        group=MetricGroup.ATTRIBUTION,
    ),
    MetricSpec(
        name="relative_gain",
        unit="",
        better=_LOWER,
        definition="rel_l2(propagated) / rel_l2(largest error in); from the whole error if propagated is unknown",
        group=MetricGroup.ATTRIBUTION,
    ),
    MetricSpec(
        name="propagated",
        unit="",
        better=_LOWER,
        definition="error inherited from the inputs: a replay with the reference's constants compared with the "
        "reference's output; propagated + constants + arithmetic is the whole error, element by element",
        group=MetricGroup.ATTRIBUTION,
    ),
    *DETAILS,
)
"""Every metric: first those of a node, in the order of their keys in the diff JSON, then `DETAILS`."""

_BY_NAME = {spec.name: spec for spec in METRICS}


def metric(name: str) -> MetricSpec:
    """Return the row of a metric.

    Raises:
        KeyError: The metric does not exist.
    """
    return _BY_NAME[name]
