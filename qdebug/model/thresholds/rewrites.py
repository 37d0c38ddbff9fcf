"""Thresholds of `qdebug lint`: the difference from which a rewrite changes numerics."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Rewrites: what changes numerics", decides="flag")

REWRITE_FLOAT_MAX_REL = threshold(
    "REWRITE_FLOAT_MAX_REL",
    1e-5,
    unit="share of the largest value",
    why="Two forms of a part of a network that differ by more do not compute the same result. Values that "
    "such a small difference moves to another code are ties.",
    source="derived: constants that a rewrite folds are rounded to float32, 6e-8, and errors of a sum's terms may be a "
    "hundred times the result's",
)
