"""Thresholds for remarks of `qdebug scales choose` about scales. They do not change the status of a comparison."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Scales: what is said of recorded scales", decides="flag")

USED_CODES_MIN_SHARE = threshold(
    "USED_CODES_MIN_SHARE",
    1 / 16,
    unit="share of the codes",
    why="A scale is too coarse if the values span less of the codes: four bits or more are never used.",
    source="chosen: half of the bits of 8-bit codes",
)
CLIPPED_MAX_SHARE = threshold(
    "CLIPPED_MAX_SHARE",
    0.01,
    unit="share of the values",
    why="A scale is too fine if more of the values are clipped. Calibrators that clip on purpose clip 0.01 to 0.1 %.",
    source="chosen: ten times what percentile calibration clips",
)
BRANCH_MIN_RANGE_RATIO = threshold(
    "BRANCH_MIN_RANGE_RATIO",
    8.0,
    unit="times",
    why="Branches that share one scale are named if the range of one is so many times that of another: the narrow one "
    "loses three bits of its codes.",
    source="chosen: 8 bits become 5",
)
BIAS_STEP_MAX_OUTPUT_STEPS = threshold(
    "BIAS_STEP_MAX_OUTPUT_STEPS",
    1.0,
    unit="steps of the output",
    why="A bias loses precision if one of its codes is worth more: rounding it moves the output by more than half a "
    "step.",
    source="derived: the rounding of the output itself is half a step",
)
WIDE_CODES_HEADROOM = threshold(
    "WIDE_CODES_HEADROOM",
    2.0,
    unit="x",
    why="Codes of 16 bits have 256 times as many steps as those of 8. A part is left for values that no sample had: a "
    "voice net that was repaired with the range of 12 samples clipped squares of the next 12.",
)
