"""One compared node in full detail, as labelled facts for reports and the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from qdebug.compare.result.finding import Status
from qdebug.compare.result.result import NodeResult, SampleResult
from qdebug.model import QuantParams, TensorInfo
from qdebug.model.dtypes import is_whole
from qdebug.model.json_object import JsonObject
from qdebug.numerics.metric_table import metric
from qdebug.numerics.profile import TensorProfile
from qdebug.numerics.stats import ErrorStats, Rails, WorstElement
from qdebug.present import numbers
from qdebug.present.rows import (
    ERROR_METRICS,
    SCALE_TITLE,
    clipping_words,
    judged_words,
    kind_title,
    metric_title,
    position,
)
from qdebug.present.surroundings import Surroundings
from qdebug.present.text import safe_text

__all__ = [
    "WORST_TITLES",
    "MetricFact",
    "NodeDetail",
    "SideFact",
    "attribution_facts",
    "error_rows",
    "finding_facts",
    "holds_integers",
    "metric_facts",
    "precision_sentence",
    "quant_summary",
    "rail_facts",
    "sample_lines",
    "side_facts",
    "worst_rows",
]

WORST_TITLES = ("index", "sample", "reference", "backend", "difference", "LSB", "ref code", "backend code")
"""Titles of `worst_rows`."""

_SAMPLES_SHOWN = 16
_FLOAT32_DIGITS = 9
"""Number of digits that distinguishes any two float32 scales."""


class InputStatus(TypedDict):
    """An input of a node and its status, or None if it was not compared."""

    tensor: str
    status: Status | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetail(JsonObject):
    """All facts of one compared tensor.

    Args:
        result: The comparison.
        reference: Facts of the reference tensor, or None if its graph does not list it.
        backend: Facts of the backend tensor.
        inputs: Inputs of the backend node with their own results, in the operator's order. None for those not compared.
        worst: The elements with the largest differences, worst first.
        sample: The only sample examined, or None for all.
        profile: The error in full detail, or None if it was not computed.
        around: The part of the backend's graph around its node, or None if not requested.
    """

    json_keys = (
        "reference_info=reference backend_info=backend inputs=input_statuses worst_elements=worst detail=profile"
    )

    result: NodeResult
    reference: TensorInfo | None = None
    backend: TensorInfo | None = None
    inputs: Sequence[tuple[str, NodeResult | None]] = field(default=())
    worst: Sequence[WorstElement] = field(default=())
    sample: int | None = None
    profile: TensorProfile | None = None
    around: Surroundings | None = None

    @property
    def input_statuses(self) -> list[InputStatus]:
        """Status of the inputs, as in the JSON."""
        return [{"tensor": name, "status": None if node is None else node.status} for name, node in self.inputs]


@dataclass(frozen=True, slots=True)
class SideFact:
    """One fact about both sides: its label, the reference's value, the backend's value."""

    label: str
    reference: str
    backend: str


@dataclass(frozen=True, slots=True)
class MetricFact:
    """One metric: its heading, its value with unit, its definition."""

    title: str
    value: str
    definition: str


def side_facts(detail: NodeDetail) -> list[SideFact]:
    """Return the facts of the two tensors, side by side."""
    result, stats = detail.result, detail.result.metrics
    facts = [
        SideFact("tensor", safe_text(result.reference_tensor, limit=120), safe_text(result.tensor, limit=120)),
        SideFact("dtype", *_both_sides(detail, _dtype_text)),
        SideFact("shape", *_both_sides(detail, _shape_text)),
        SideFact("layout", *_both_sides(detail, _layout_text)),
        SideFact(SCALE_TITLE, *_both_sides(detail, lambda info: quant_summary(info.quant))),
        SideFact("codes", *_both_sides(detail, lambda info: _codes_text(info.quant))),
    ]
    if result.placement:
        facts.append(SideFact("ran on", "not recorded", safe_text(result.placement, limit=120)))
    if stats is not None:
        facts.append(
            SideFact(
                "values",
                _range_text(stats.reference_min, stats.reference_max, detail.reference),
                _range_text(stats.backend_min, stats.backend_max, detail.backend),
            )
        )
    return [fact for fact in facts if {fact.reference, fact.backend} != {numbers.MISSING}]


def metric_facts(stats: ErrorStats | None) -> list[MetricFact]:
    """Return every metric with its definition, or none if the pair is incomparable."""
    if stats is None:
        return []
    facts = []
    for spec in ERROR_METRICS:
        value = getattr(stats, spec.name, None)
        text = position(value) if isinstance(value, tuple) else numbers.metric(spec.name, value)
        text = numbers.mismatches(stats) if spec.name == "mismatches" else text
        unit = spec.unit if isinstance(value, float) and spec.unit not in {"real", "elements"} else ""
        facts.append(MetricFact(metric_title(spec.name), f"{text} {unit}".rstrip(), spec.definition))
    return facts


PARTS = ("introduced", "arithmetic", "constants", "propagated")
"""Parts of an error, by field name."""


def error_rows(result: NodeResult) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the metrics as a table: titles and rows.

    The total error is followed by its known parts.

    Args:
        result: The comparison. Without metrics, there are no rows.
    """
    total = metric_facts(result.metrics)
    if result.introduced is None or result.propagated is None:
        return ("error", "value", "definition"), [(fact.title, fact.value, fact.definition) for fact in total]
    parts_by_name = {name: part for name in PARTS if (part := getattr(result, name)) is not None}
    parts = zip(total, *(metric_facts(part) for part in parts_by_name.values()), strict=True)
    rows: list[tuple[str, ...]] = [
        (
            whole_metric.title,
            whole_metric.value,
            *(part_metric.value for part_metric in part_metrics),
            whole_metric.definition,
        )
        for whole_metric, *part_metrics in parts
    ]
    return ("error", "whole", *parts_by_name, "definition"), rows


def finding_facts(result: NodeResult) -> list[tuple[str, str]]:
    """Return the findings that the reason for the status does not contain, as (kind, text).

    Args:
        result: The comparison.
    """
    reason = result.reason or ""
    return [
        (kind_title(finding.kind), safe_text(finding.sentence, limit=400))
        for finding in result.findings
        if finding.sentence not in reason and (finding.evidence is None or finding.evidence != result.precision)
    ]


def attribution_facts(result: NodeResult) -> list[tuple[str, str]]:
    """Return what is known about the origin of the error, as (label, text)."""
    facts = finding_facts(result)
    if result.attribution_note:
        facts.append(("introduced", f"not known: {safe_text(result.attribution_note)}"))
    verdict_text = judged_words(result)
    if verdict_text is not None:
        facts.append(("arithmetic part", verdict_text))
    clipping_text = clipping_words(result)
    if clipping_text is not None:
        facts.append(("clipping", clipping_text))
    if result.precision is not None:
        facts.append(("digits", precision_sentence(result.precision)))
    if result.relative_gain is not None:
        facts.append(("gain", f"{numbers.number(result.relative_gain)} ({metric('relative_gain').definition})"))
    if result.reproduced is not None:
        arithmetic_text = (
            "no known arithmetic reproduces these codes" if result.explained is None else safe_text(result.explained)
        )
        facts.append(
            ("arithmetic", f"reproduced bit for bit by: {arithmetic_text}" if result.reproduced else arithmetic_text)
        )
    return facts


def precision_sentence(name: str) -> str:
    """Return a sentence saying that only the backend's values are rounded to a short float format."""
    return f"all its values are exactly representable in {safe_text(name, limit=20)}; the reference's are not"


def rail_facts(rails: Rails | None) -> list[tuple[str, str]]:
    """Return the numbers of clipped values and of codes at the ends of the range, or none without quantization."""
    if rails is None:
        return []

    def share_text(count: int) -> str:
        return f"{numbers.grouped(count)} ({numbers.percent(count, rails.total)})" if count else "0"

    return [
        ("clipped", share_text(rails.clipped)),
        ("reference below range", share_text(rails.clipped_low)),
        ("reference above range", share_text(rails.clipped_high)),
        ("codes at qmin", share_text(rails.at_qmin)),
        ("of these, zeros of a Relu", share_text(rails.floor)),
        ("codes at qmax", share_text(rails.at_qmax)),
        ("codes in total", numbers.grouped(rails.total)),
    ]


def sample_lines(result: NodeResult, *, max_lines: int = _SAMPLES_SHOWN) -> list[str]:
    """Return one line per sample. If there are too many, return lines for the worst samples only, worst first.

    Args:
        result: The comparison.
        max_lines: Maximum number of lines.
    """
    samples = list(result.samples)
    if len(samples) > max_lines:
        samples.sort(key=_sort_level)
    lines = [
        f"sample {sample.sample}: {sample.status}, SQNR {_db(sample.sqnr_db)}, max abs {numbers.number(sample.max_abs)}"
        f"{_introduced_text(sample)}"
        for sample in samples[:max_lines]
    ]
    if len(samples) > max_lines:
        lines.append(f"{len(samples) - max_lines} better samples not shown")
    return lines


def _sort_level(sample: SampleResult) -> float:
    """Return the SQNR to sort by. A missing SQNR or a NaN counts as worst."""
    is_known = sample.sqnr_db is not None and not math.isnan(sample.sqnr_db)
    return sample.sqnr_db if is_known and sample.sqnr_db is not None else -math.inf


def _introduced_text(sample: SampleResult) -> str:
    """Return a clause with the error that the node introduces in one sample, or "" if unknown."""
    introduced = sample.introduced
    if introduced is None:
        return ""
    if introduced.max_lsb is not None:
        return f", introduced {numbers.number(introduced.max_lsb)} LSB"
    return f", introduced max abs {numbers.number(introduced.max_abs)}"


def worst_rows(worst: Sequence[WorstElement]) -> list[tuple[str, ...]]:
    """Return the worst elements: index, sample, reference, backend, difference, LSB, both codes."""
    return [
        (
            position(element.index),
            str(element.sample),
            _value_text(element.reference),
            _value_text(element.backend),
            _difference_text(element),
            numbers.number(element.lsb),
            numbers.MISSING if element.reference_code is None else str(element.reference_code),
            numbers.MISSING if element.backend_code is None else str(element.backend_code),
        )
        for element in worst
    ]


def _value_text(value: float) -> str:
    """Return a value as text, with integers in full so that neighbours differ."""
    return str(value) if isinstance(value, int) else numbers.number(value, digits=5)


def _difference_text(element: WorstElement) -> str:
    """Return backend minus reference, exact for integers."""
    actual, expected = element.backend, element.reference
    if isinstance(actual, int) and isinstance(expected, int):
        return str(actual - expected)
    return numbers.number(element.difference, digits=4)


def _db(value: float | None) -> str:
    return f"{numbers.number(value)} dB" if value is not None else numbers.MISSING


def _both_sides(detail: NodeDetail, show: Callable[[TensorInfo], str]) -> tuple[str, str]:
    return (
        numbers.MISSING if detail.reference is None else show(detail.reference),
        numbers.MISSING if detail.backend is None else show(detail.backend),
    )


def _dtype_text(info: TensorInfo) -> str:
    return safe_text(info.dtype or numbers.MISSING, limit=40)


def _shape_text(info: TensorInfo) -> str:
    return numbers.shape(info.shape)


def _layout_text(info: TensorInfo) -> str:
    return safe_text(info.layout or numbers.MISSING, limit=40)


def quant_summary(quant: QuantParams | None) -> str:
    """Return scale / zero point of a tensor. If there are many channels, return the extremes and their channels."""
    if quant is None:
        return numbers.MISSING
    scales, zeros = quant.scale.ravel(), quant.zero_point.ravel()
    if scales.size <= 1:
        return f"{numbers.values(scales.tolist())} / {numbers.values(zeros.tolist())}"
    blocks = f" in blocks of {quant.block_size}" if quant.block_size else ""
    low, high = int(scales.argmin()), int(scales.argmax())
    extremes = f"{numbers.number(float(scales[low]), digits=4)} in each"
    for digits in (4, _FLOAT32_DIGITS) if scales[low] != scales[high] else ():
        lowest_text, highest_text = (numbers.number(float(scales[channel]), digits=digits) for channel in (low, high))
        extremes = f"{lowest_text} (#{low}) to {highest_text} (#{high})"
        if lowest_text != highest_text:
            break
    return (
        f"{scales.size} along axis {quant.axis}{blocks}: scale {extremes}"
        f" / zero point {numbers.values(zeros.tolist(), max_listed=1)}"
    )


def _codes_text(quant: QuantParams | None) -> str:
    if quant is None or quant.qmin is None or quant.qmax is None:
        return numbers.MISSING
    text = f"{quant.qmin}..{quant.qmax}"
    if quant.per_channel or not quant.scale.size:
        return text
    scale, zero = float(quant.scale.ravel()[0]), int(quant.zero_point.ravel()[0])
    return f"{text} for {numbers.number(scale * (quant.qmin - zero))}..{numbers.number(scale * (quant.qmax - zero))}"


def _range_text(low: float | None, high: float | None, info: TensorInfo | None) -> str:
    if low is None:
        return numbers.MISSING
    if holds_integers(info):
        return f"{numbers.whole(low)}..{numbers.whole(high)}"
    return f"{numbers.number(low, digits=4)}..{numbers.number(high, digits=4)}"


def holds_integers(info: TensorInfo | None) -> bool:
    """Return whether a tensor's values are integers or booleans, but not codes for other numbers.

    Args:
        info: The tensor's facts, or None if unknown.
    """
    return info is not None and info.quant is None and is_whole(info.dtype or "")
