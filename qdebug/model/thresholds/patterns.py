"""Thresholds of patterns: what the wrong elements of a tensor have in common, and its likely cause."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Patterns: what the wrong elements have in common", decides="cause")

PATTERN_MAX_ELEMENTS = threshold(
    "PATTERN_MAX_ELEMENTS",
    1 << 24,
    unit="elements",
    why="Samples beyond this many elements are left out of the pattern.",
)
TIE_DISTANCE_PARTS = threshold(
    "TIE_DISTANCE_PARTS",
    1 << 12,
    unit="parts of a code",
    why="Resolution of the distance from a tie at which a code was rounded.",
)
TIE_MAX_DISTANCE = threshold(
    "TIE_MAX_DISTANCE",
    1 / 32,
    unit="LSB",
    why="Within this distance from a tie another rounding may choose the other code.",
)
SLIGHT_ERROR_CODES = threshold(
    "SLIGHT_ERROR_CODES",
    1,
    unit="codes",
    why="Errors up to this many codes may come from rounding.",
    source="derived: the code beside the right one",
)
TRAIT_MIN_SHARE = threshold(
    "TRAIT_MIN_SHARE",
    0.9,
    unit="share of the wrong elements",
    why="This share of the wrong elements must have a trait for it to be named, as the sign that a factor gives them.",
)
PLACE_MAX_PROBABILITY = threshold(
    "PLACE_MAX_PROBABILITY",
    1e-4,
    unit="probability",
    why="Wrong elements that would lie in one place, or share a trait, with a larger probability do so by chance.",
)
BLOCK_PART_MAX_PROBABILITY = threshold(
    "BLOCK_PART_MAX_PROBABILITY",
    0.1,
    unit="probability",
    why="Indices that would lie in the same part of each block with a larger probability do so by chance.",
)
KERNEL_BLOCKS = threshold(
    "KERNEL_BLOCKS",
    (4, 8, 16, 32, 64, 128),
    unit="elements",
    why="Sizes of the blocks that kernels work in, and whose parts are looked at.",
)
FEW_ARE_ONE_IN = threshold(
    "FEW_ARE_ONE_IN",
    4,
    unit="samples, or indices of a block",
    why="Few samples, or a part of a block, are at most one in so many.",
)
MEMORY_PART_MAX_SHARE = threshold(
    "MEMORY_PART_MAX_SHARE",
    0.75,
    unit="times the smallest part along an axis",
    why="The first or the last part of a tensor in memory is named only where it is clearly smaller than any other "
    "part with all wrong elements.",
)
OTHER_ROUNDING_LEAST = threshold(
    "OTHER_ROUNDING_LEAST",
    0.25,
    unit="share of the codes that do not saturate",
    why="Rounding down, up or to zero moves half of the codes by one; ties and last bits of a float sum move few.",
)
BORDER_MAX_WIDTH = threshold(
    "BORDER_MAX_WIDTH",
    3,
    unit="elements",
    why="Widest border that is looked at.",
)
FLOAT64_COMPARISON_SLACK = threshold(
    "FLOAT64_COMPARISON_SLACK",
    1e-9,
    unit="codes, or share of the tensor",
    why="Two mean errors, or two shares, that differ by less are equal but for rounding in float64.",
)
INTERIOR_MIN_EXTENT = threshold(
    "INTERIOR_MIN_EXTENT",
    5,
    unit="elements",
    why="With a smaller extent there are hardly any elements away from the borders.",
)
CONSTANT_ERROR_MIN_FLATNESS = threshold(
    "CONSTANT_ERROR_MIN_FLATNESS",
    0.75,
    unit="ratio of errors",
    why="Mean error of small numbers over that of large ones: above it for a constant, below it for a factor.",
)
CONSTANT_ERROR_MAX_SPREAD = threshold(
    "CONSTANT_ERROR_MAX_SPREAD",
    0.1,
    unit="codes",
    why="Errors of all channels within this spread are one constant.",
)
CONSTANT_ERROR_MIN_ELEMENTS = threshold(
    "CONSTANT_ERROR_MIN_ELEMENTS",
    4,
    unit="elements",
    why="A channel with fewer elements that are not saturated is no evidence of a constant.",
)
CONSTANT_ERROR_MIN_WRONG_SHARE = threshold(
    "CONSTANT_ERROR_MIN_WRONG_SHARE",
    0.03,
    unit="share of a channel",
    why="A channel with fewer wrong elements has a tiny shift, or none.",
)
SCALED_MIN_FACTOR = threshold(
    "SCALED_MIN_FACTOR",
    0.02,
    unit="factor",
    why="Below this factor nothing is left of the values: they are not scaled but missing.",
)
SCALED_MIN_DEVIATION = threshold(
    "SCALED_MIN_DEVIATION",
    0.01,
    unit="factor",
    why="At least one channel's factor must differ from 1 by this much.",
)
SCALED_ROUNDING_SLACK = threshold(
    "SCALED_ROUNDING_SLACK",
    0.01,
    unit="codes",
    why="Added to the half codes that rounding makes before an element counts as not scaled.",
)
SCALED_MIN_FITTING_SHARE = threshold(
    "SCALED_MIN_FITTING_SHARE",
    0.99,
    unit="share of the elements",
    why="A factor must account for this share. What saturates on the way may differ.",
)
SCALED_MIN_CODES = threshold(
    "SCALED_MIN_CODES",
    4,
    unit="elements, and codes",
    why="A factor cannot be determined from fewer elements, or from smaller codes alone.",
)
SCALED_CHANNEL_MIN_WRONG = threshold(
    "SCALED_CHANNEL_MIN_WRONG",
    3,
    unit="elements",
    why="Average number of wrong elements in a channel from which channels may be scaled. One wrong code is a factor "
    "too.",
)
ONE_CODE_MIN_EXPECTED = threshold(
    "ONE_CODE_MIN_EXPECTED",
    3,
    unit="codes",
    why="An output of one code is remarkable if at least so many were expected.",
)
COINCIDENCE_MIN_SHARE = threshold(
    "COINCIDENCE_MIN_SHARE",
    0.1,
    unit="share of the tensor",
    why="Least share with which an element is assumed to hold a value by chance.",
)
STALE_DISTANCES = threshold(
    "STALE_DISTANCES",
    (1, 2, 4, 8, 16, -1),
    unit="elements",
    why="Distances along an axis at which wrong elements may hold a neighbour's value.",
)
STALE_CHOICES = threshold(
    "STALE_CHOICES",
    64,
    unit="places",
    why="Number of neighbours to choose from, for the probability that one holds the value by chance.",
)
LARGE_SUMS_MIN_RANK_SHARE = threshold(
    "LARGE_SUMS_MIN_RANK_SHARE",
    0.75,
    unit="share of the pairs",
    why="Wrong elements lie where sums are large if their sums outrank those of right elements this often.",
)
LARGE_SUMS_MIN_ELEMENTS = threshold(
    "LARGE_SUMS_MIN_ELEMENTS",
    8,
    unit="elements",
    why="Fewer wrong, or right, elements do not tell whether errors grow with the sums.",
)
RANKED_MAX_ELEMENTS = threshold(
    "RANKED_MAX_ELEMENTS",
    1 << 18,
    unit="elements",
    why="Elements on either side that are ranked. To sort 16 million takes many seconds, and these tell a share to "
    "0.2 %.",
    source="derived: 1 / sqrt(2^18) is 0.002",
)
JUMP_MIN_CODES = threshold(
    "JUMP_MIN_CODES",
    16,
    unit="codes",
    why="An error of more codes that changes the sign is a jump, as wrapped sums make it.",
)
JUMP_MIN_SHARE = threshold(
    "JUMP_MIN_SHARE",
    0.3,
    unit="share of the wrong elements",
    why="With more jumps the sums are said to be often of the other sign.",
)
NO_ROUNDING_SPARED_RATIO = threshold(
    "NO_ROUNDING_SPARED_RATIO",
    20,
    unit="right elements for each wrong one",
    why="A rounding would have changed elements nearer to a tie first. With so many of them right it was no rounding.",
)
REFIT_MIN_DEVIATIONS = threshold(
    "REFIT_MIN_DEVIATIONS",
    6,
    unit="standard deviations",
    why="An operand acts by another scale where the fitted one is further than this from the recorded one.",
)
REFIT_MIN_SHARE = threshold(
    "REFIT_MIN_SHARE",
    0.98,
    unit="share of the elements",
    why="A scale that is fitted to the elements must reproduce this share of them, the others within one code.",
)
