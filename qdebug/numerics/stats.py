"""Results of comparing two tensors: plain numbers, each with a single definition (see `metric_table`)."""

from __future__ import annotations

from dataclasses import dataclass

from qdebug.model.json_object import JsonObject
from qdebug.numerics.metric_table import METRICS, MetricGroup

__all__ = ["ErrorStats", "Rails", "WorstElement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorStats(JsonObject):
    """How far a backend tensor is from its reference, over all elements of one or more samples.

    Means and relative errors are over the elements that are finite on both sides. A metric without a value (no
    elements, no scale) is None. An undefined quotient is NaN or infinite as defined in `metric_table`. If the sides
    disagree about a NaN or an infinity, `max_abs` is infinite, and `rel_l2`, `sqnr_db` and `cosine` are NaN.

    Args:
        count: Elements compared.
        max_abs: Largest absolute difference.
        mean_abs: Mean absolute difference.
        rmse: Root of the mean squared difference.
        max_rel: Largest abs(difference)/abs(reference) where the reference is not 0; None if it is 0 everywhere.
        zero_refs: Elements whose reference is 0.
        rel_l2: norm(difference) / norm(reference).
        sqnr_db: 10 log10(sum reference^2 / sum difference^2); infinite if identical.
        cosine: Cosine of the angle between the two tensors.
        max_lsb: Largest absolute difference in steps of the backend's scale; None without a scale.
        mismatches: Elements unequal after dequantization.
        nonfinite: Elements that are NaN or infinite on either side and do not agree.
        matched_nonfinite: Elements that are NaN or the same infinity on both sides.
        worst_index: Index of the largest difference within its sample; None if there are no elements.
        worst_sample: The sample that contains it.
        reference_min, reference_max, backend_min, backend_max: Extremes of the finite values.
        beyond_tolerance: Elements that differ by more than atol + rtol*abs(reference); None without a tolerance.
        lsb_bias: Mean signed difference of the elements that differ, in steps of the backend's scale; None without a
            scale.
        estimated: Whether `rmse`, `rel_l2` and `sqnr_db` are estimates from sketches. Then `mismatches` is 1, because
            all that is known is that some elements differ.
    """

    json_keys = " ".join(spec.name for spec in METRICS if spec.group in (MetricGroup.ERROR, MetricGroup.COUNTS))

    count: int
    max_abs: float | None
    mean_abs: float | None
    rmse: float | None
    max_rel: float | None
    zero_refs: int
    rel_l2: float | None
    sqnr_db: float | None
    cosine: float | None
    max_lsb: float | None
    mismatches: int
    nonfinite: int
    matched_nonfinite: int
    worst_index: tuple[int, ...] | None
    worst_sample: int | None
    reference_min: float | None
    reference_max: float | None
    backend_min: float | None
    backend_max: float | None
    beyond_tolerance: int | None = None
    lsb_bias: float | None = None
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rails(JsonObject):
    """Values clipped by the range of the codes, and codes at the ends of the range.

    A code at an end is not proof of clipping. It may be a small value that was rounded to 0, the zero of a Relu, or
    exactly the largest value that can be represented.

    Args:
        at_qmin: Codes equal to qmin.
        at_qmax: Codes equal to qmax.
        clipped_low: Reference values below the range of the codes.
        clipped_high: Reference values above the range of the codes.
        floor: Codes at qmin that are a Relu's zero: real(qmin) is 0 and the clamp is part of the network.
        total: Number of codes.
    """

    at_qmin: int
    at_qmax: int
    clipped_low: int
    clipped_high: int
    floor: int
    total: int

    @property
    def clipped(self) -> int:
        """Reference values outside the range of the codes."""
        return self.clipped_low + self.clipped_high

    @property
    def at_ends(self) -> int:
        """Codes at either end of their range."""
        return self.at_qmin + self.at_qmax


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstElement(JsonObject):
    """One element with a large difference.

    Values of integer tensors are int, and codes are None without quantization.
    """

    json_keys = "index sample step reference backend difference lsb reference_code backend_code"

    index: tuple[int, ...]
    sample: int
    reference: float
    backend: float
    difference: float
    lsb: float | None
    reference_code: int | None
    backend_code: int | None
    step: int = 0
