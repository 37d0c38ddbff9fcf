"""What a row of the tables of metrics is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Better", "MetricGroup", "MetricSpec"]


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


class MetricGroup(StrEnum):
    """Where in the diff JSON a metric is.

    `COUNTS` stand beside `ERROR` in every "metrics", "introduced" and "propagated"; `DETAIL` and `ELEMENT` are of one
    node on request (`full_tier`), `ELEMENT` in its "worst_elements"; the others are of the whole comparison.
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
        better: Which way it improves.
        definition: What it is, in one line, special values included.
        group: Where in the diff JSON it is.
    """

    name: str
    unit: str
    better: Better
    definition: str
    group: MetricGroup = MetricGroup.ERROR
