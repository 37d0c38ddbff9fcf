"""Thresholds for remarks of `qdebug scales choose` about scales. They do not change the status of a comparison."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Scales: what is reported about recorded scales", decides="flag")

USED_CODES_MIN_SHARE = threshold(
    "USED_CODES_MIN_SHARE",
    1 / 16,
    unit="share of the codes",
    why="A scale is too coarse if the values span a smaller share of the codes, so that four or more bits are "
    "never used.",
    source="chosen: half of the bits of 8-bit codes",
)
CLIPPED_MAX_SHARE = threshold(
    "CLIPPED_MAX_SHARE",
    0.01,
    unit="share of the values",
    why="A scale is too fine if a larger share of the values is clipped. Calibrators that clip deliberately "
    "clip 0.01 to 0.1 %.",
    source="chosen: ten times what percentile calibration clips",
)
BRANCH_MIN_RANGE_RATIO = threshold(
    "BRANCH_MIN_RANGE_RATIO",
    8.0,
    unit="times",
    why="Branches that share a scale are reported if the range of one is this many times the range of "
    "another. The narrow branch then loses three bits of its codes.",
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
    why="16-bit codes have 256 times as many steps as 8-bit codes. Some of them are reserved for values "
    "outside the range of the samples: a voice network repaired with the range of 12 samples clipped "
    "squares in the next 12.",
)
