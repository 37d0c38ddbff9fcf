"""Thresholds of the checks of constants, scales and declared operators."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Checks: constants, scales and operators that differ between the graphs", decides="status")

FLOAT_FORMAT_MAX_REL_DIFFERENCE = threshold(
    "FLOAT_FORMAT_MAX_REL_DIFFERENCE",
    2.0**-4,
    unit="relative difference",
    why="Rounding to a float format with at least three digits does not cause a larger difference. A bias "
    "that differs by more is a different bias.",
    source="derived: unit roundoff of a significand with three fraction bits, as fp8 e4m3 has",
)
COARSE_CONSTANT_SLACK = threshold(
    "COARSE_CONSTANT_SLACK",
    1e-6,
    unit="absolute error",
    decides="cause",
    why="Added to half a step of a coarse scale before a constant is considered wrong for another reason.",
)
SCALE_MAX_REL_DIFFERENCE = threshold(
    "SCALE_MAX_REL_DIFFERENCE",
    2.0**-22,
    unit="relative difference",
    why="Scales that differ by more are different scales. Storing a scale as float32 on one side changes it by less.",
    source="derived: four times 2^-24, the unit roundoff of float32",
)
FOLDING_MAX_ERROR_RATIO = threshold(
    "FOLDING_MAX_ERROR_RATIO",
    4.0,
    unit="times the rounding of sums",
    why="Maximum error of a float node relative to the reference's node. Constants may be folded on either side.",
)
LIKELY_ROUNDING_BOUND_SHARE = threshold(
    "LIKELY_ROUNDING_BOUND_SHARE",
    0.2,
    unit="share of the bound",
    why="Rounding hardly ever exceeds this share of its bound. If an error exceeds it and a constant differs "
    "by more than rounding, the error is not attributed to rounding.",
    source="derived: the bound is 8 half steps, or 14 times their error of 1/sqrt(3)",
)
MOVED_CODES_MAX_LSB = threshold(
    "MOVED_CODES_MAX_LSB",
    0.5,
    unit="LSB",
    why="Maximum difference of codes that a node only moves, besides the rounding of its constants. Such a "
    "node does not requantize.",
    source="derived: half a step",
)
DEAD_ZONE_MIN_ELEMENTS = threshold(
    "DEAD_ZONE_MIN_ELEMENTS",
    8,
    unit="elements",
    decides="cause",
    why="A dead zone is reported if at least this many elements inside it are zero, and at least as many "
    "outside it are not.",
    source="derived: 8 and 8 elements separate by size once in 12,870 times by chance",
)
