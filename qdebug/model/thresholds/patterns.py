"""Thresholds of patterns: what the wrong elements of a tensor have in common, and its likely cause."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Patterns: what the wrong elements have in common", decides="cause")

PATTERN_MAX_ELEMENTS = threshold(
    "PATTERN_MAX_ELEMENTS",
    1 << 24,
    unit="elements",
    why="Samples beyond this many elements are not used for the pattern.",
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
    why="Within this distance from a tie, a different rounding may choose the other code.",
)
SLIGHT_ERROR_CODES = threshold(
    "SLIGHT_ERROR_CODES",
    1,
    unit="codes",
    why="Errors of up to this many codes may come from rounding.",
    source="derived: the code beside the right one",
)
TRAIT_MIN_SHARE = threshold(
    "TRAIT_MIN_SHARE",
    0.9,
    unit="share of the wrong elements",
    why="Minimum share of the wrong elements that must have a trait for it to be reported, such as the sign "
    "resulting from a factor.",
)
PLACE_MAX_PROBABILITY = threshold(
    "PLACE_MAX_PROBABILITY",
    1e-4,
    unit="probability",
    why="If the probability that wrong elements share a location or trait by chance is larger, it is "
    "considered chance.",
)
BLOCK_PART_MAX_PROBABILITY = threshold(
    "BLOCK_PART_MAX_PROBABILITY",
    0.1,
    unit="probability",
    why="If the probability that indices lie in the same part of each block by chance is larger, it is "
    "considered chance.",
)
SMOOTH_MAX_CHANGE = threshold(
    "SMOOTH_MAX_CHANGE",
    0.25,
    unit="of the errors' sum",
    why="An error changes by less than this from one input to the next larger one if it is a smooth function of it. "
    "Independent errors change by more than their own size.",
)
TABLE_MAX_ENTRY_SHARE = threshold(
    "TABLE_MAX_ENTRY_SHARE",
    0.25,
    unit="of the right results' ranges",
    why="A function of real numbers takes nearly as many values as it has inputs. One that takes this few repeats "
    "more often than it changes from one input to the next larger one, so it is read from a table.",
)
CONFINED_MAX_OTHER_SHARE = threshold(
    "CONFINED_MAX_OTHER_SHARE",
    0.125,
    unit="of the wrong elements",
    why="Maximum number of right elements in the place of the wrong ones that a mistake made there would change. Such "
    "elements contradict the mistake, unless its place has another shape.",
)
KERNEL_BLOCKS = threshold(
    "KERNEL_BLOCKS",
    (4, 8, 16, 32, 64, 128),
    unit="elements",
    why="Block sizes that kernels work with, whose parts are examined.",
)
FEW_ARE_ONE_IN = threshold(
    "FEW_ARE_ONE_IN",
    4,
    unit="samples, or indices of a block",
    why="Samples, or parts of a block, count as few if they are at most one in this many.",
)
MEMORY_PART_MAX_SHARE = threshold(
    "MEMORY_PART_MAX_SHARE",
    0.75,
    unit="times the smallest part along an axis",
    why="The first or last part of a tensor in memory is reported only if it is clearly smaller than any "
    "other part that contains all wrong elements.",
)
OTHER_ROUNDING_LEAST = threshold(
    "OTHER_ROUNDING_LEAST",
    0.25,
    unit="share of the codes that do not saturate",
    why="Rounding down, up or to zero changes half of the codes by one. Ties and the last bits of a float sum "
    "change few.",
)
BORDER_MAX_WIDTH = threshold(
    "BORDER_MAX_WIDTH",
    3,
    unit="elements",
    why="Maximum width of a border that is examined.",
)
FLOAT64_COMPARISON_SLACK = threshold(
    "FLOAT64_COMPARISON_SLACK",
    1e-9,
    unit="codes, or share of the tensor",
    why="Two mean errors, or two shares, that differ by less are equal except for rounding in float64.",
)
INTERIOR_MIN_EXTENT = threshold(
    "INTERIOR_MIN_EXTENT",
    5,
    unit="elements",
    why="With a smaller extent, hardly any elements are away from the borders.",
)
CONSTANT_ERROR_MIN_FLATNESS = threshold(
    "CONSTANT_ERROR_MIN_FLATNESS",
    0.75,
    unit="ratio of errors",
    why="Mean error of small numbers relative to that of large numbers. A higher ratio indicates a constant, "
    "a lower one a factor.",
)
CONSTANT_ERROR_MAX_SPREAD = threshold(
    "CONSTANT_ERROR_MAX_SPREAD",
    0.1,
    unit="codes",
    why="Errors of all channels within this range are a single constant.",
)
CONSTANT_ERROR_MIN_ELEMENTS = threshold(
    "CONSTANT_ERROR_MIN_ELEMENTS",
    4,
    unit="elements",
    why="A channel with fewer unsaturated elements is not evidence of a constant.",
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
    why="With a smaller factor, almost nothing is left of the values. They are missing rather than scaled.",
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
    why="Added to the half codes of rounding before an element is considered not scaled.",
)
SCALED_MIN_FITTING_SHARE = threshold(
    "SCALED_MIN_FITTING_SHARE",
    0.99,
    unit="share of the elements",
    why="Minimum share of elements that a factor must explain. Elements that saturate may differ.",
)
SCALED_MIN_CODES = threshold(
    "SCALED_MIN_CODES",
    4,
    unit="elements, and codes",
    why="A factor cannot be determined from fewer elements, or only from smaller codes.",
)
SCALED_CHANNEL_MIN_WRONG = threshold(
    "SCALED_CHANNEL_MIN_WRONG",
    3,
    unit="elements",
    why="Average number of wrong elements per channel from which channels may be scaled. A single wrong code "
    "can always be described by a factor.",
)
ONE_CODE_MIN_EXPECTED = threshold(
    "ONE_CODE_MIN_EXPECTED",
    3,
    unit="codes",
    why="An output with a single code is remarkable if at least this many codes were expected.",
)
COINCIDENCE_MIN_SHARE = threshold(
    "COINCIDENCE_MIN_SHARE",
    0.1,
    unit="share of the tensor",
    why="Minimum probability with which an element is assumed to hold a value by chance.",
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
    why="Wrong elements are associated with large sums if their sums outrank the sums of correct elements this often.",
)
LARGE_SUMS_MIN_ELEMENTS = threshold(
    "LARGE_SUMS_MIN_ELEMENTS",
    8,
    unit="elements",
    why="With fewer wrong or correct elements, it cannot be decided whether errors grow with the sums.",
)
RIGHT_BY_CHANCE_MAX_FACTOR = threshold(
    "RIGHT_BY_CHANCE_MAX_FACTOR",
    2.0,
    unit="ratio",
    why="Maximum ratio of right elements to those that exchanged elements would give. Below it, they tell nothing.",
)
RANKED_MAX_ELEMENTS = threshold(
    "RANKED_MAX_ELEMENTS",
    1 << 18,
    unit="elements",
    why="Maximum number of elements on each side that are ranked. Sorting 16 million takes many seconds, and "
    "this number determines a share to 0.2 %.",
    source="derived: 1 / sqrt(2^18) is 0.002",
)
JUMP_MIN_CODES = threshold(
    "JUMP_MIN_CODES",
    16,
    unit="codes",
    why="An error of more codes that changes the sign is a jump, as caused by wrapped sums.",
)
JUMP_MIN_SHARE = threshold(
    "JUMP_MIN_SHARE",
    0.3,
    unit="share of the wrong elements",
    why="With more jumps, the sums are reported to have the opposite sign often.",
)
NO_ROUNDING_SPARED_RATIO = threshold(
    "NO_ROUNDING_SPARED_RATIO",
    20,
    unit="right elements for each wrong one",
    why="A different rounding would have changed elements closer to a tie first. If this many of them are "
    "correct, rounding is not the cause.",
)
REFIT_MIN_DEVIATIONS = threshold(
    "REFIT_MIN_DEVIATIONS",
    6,
    unit="standard deviations",
    why="An operand acts with a different scale if the fitted scale is further than this from the recorded one.",
)
REFIT_MIN_SHARE = threshold(
    "REFIT_MIN_SHARE",
    0.98,
    unit="share of the elements",
    why="A scale that is fitted to the elements must reproduce this share of them, and the others within one code.",
)
UNBROADCAST_MIN_WRONG_SHARE = threshold(
    "UNBROADCAST_MIN_WRONG_SHARE",
    0.5,
    unit="share of the elements",
    decides="cause",
    why="An operand is not broadcast if the first slice of a result is right and this share of each other slice is "
    "wrong. Memory that was never written is right only by chance.",
    source="chosen: most elements",
)
