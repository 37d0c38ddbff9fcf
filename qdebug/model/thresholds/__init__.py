"""Every number that can change a status, a pair, a cause or a variant, in one table.

Sizes of blocks and caches, timings, seeds and display limits are defined next to their code, since they do not change
results.
"""

from __future__ import annotations

from qdebug.model.thresholds import (
    accuracy,
    alignment,
    attribution,
    checks,
    explanation,
    patterns,
    rewrites,
    rounding,
    scales,
    verdict,
)
from qdebug.model.thresholds.table import Threshold

__all__ = ["TABLE"]

TABLE: tuple[Threshold, ...] = tuple(
    row
    for part in (verdict, rounding, attribution, checks, alignment, explanation, patterns, scales, accuracy, rewrites)
    for row in part.threshold.rows
)
"""All thresholds, group by group."""
