"""Thresholds of explain: which arithmetic reproduces a node."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Explain: which arithmetic reproduces a node", decides="variant")

VARIANT_MIN_ELEMENTS = threshold(
    "VARIANT_MIN_ELEMENTS",
    64,
    unit="elements",
    why="In a node with fewer elements one of thousands of programs may fit by chance. Unknown ones are not tried.",
)
UNKNOWN_PROGRAM_MIN_ELEMENTS = threshold(
    "UNKNOWN_PROGRAM_MIN_ELEMENTS",
    20,
    unit="elements",
    why="Elements that only an unknown program gets right. With fewer it may fit by chance.",
    source="derived: one of 2^13 programs gets 20 elements right by chance 1 time in 100",
)
UNKNOWN_PROGRAM_MAX_SIBLINGS = threshold(
    "UNKNOWN_PROGRAM_MAX_SIBLINGS",
    8,
    unit="nodes",
    why="Explained siblings that an unknown program must reproduce too, so many at most. With more siblings it "
    "does not replace their known variants.",
)
UNKNOWN_SEARCH_MAX_FAILURES = threshold(
    "UNKNOWN_SEARCH_MAX_FAILURES",
    6,
    unit="nodes",
    why="After so many nodes of one operator without success, unknown programs are not tried on the others.",
)
UNKNOWN_PROGRAM_TRIAL_ELEMENTS = threshold(
    "UNKNOWN_PROGRAM_TRIAL_ELEMENTS",
    256,
    unit="elements",
    why="Elements that unknown programs are first tried on, up to half of them wrong by the best known variant.",
)
LARGE_SIBLINGS_TRIED = threshold(
    "LARGE_SIBLINGS_TRIED",
    4,
    unit="nodes",
    why="Nodes of one operator and types, with many elements, whose common arithmetic is tried first in all others.",
)
OTHER_SUMS_MAX_PRODUCTS = threshold(
    "OTHER_SUMS_MAX_PRODUCTS",
    1 << 22,
    unit="products",
    why="In larger nodes another way to sum is only tried if the first one explains nothing.",
)
SEQUENTIAL_SUMS_MAX_PRODUCTS = threshold(
    "SEQUENTIAL_SUMS_MAX_PRODUCTS",
    1 << 26,
    unit="products",
    decides="cause",
    why="Sums of 16 bits have to be taken one by one. In larger nodes they are not tried.",
)
RUNNER_UP_CANDIDATES = threshold(
    "RUNNER_UP_CANDIDATES",
    6,
    unit="variants",
    why="Failing variants whose exact share of right elements is computed, to find the best of them.",
)
CLEARLY_BETTER_MAX_WRONG_RATIO = threshold(
    "CLEARLY_BETTER_MAX_WRONG_RATIO",
    0.5,
    unit="ratio of wrong elements",
    decides="cause",
    why="What nothing explains is held against the simplest variant, unless another one leaves less than this share of "
    "its wrong elements.",
)
ALL_DECIDING_MAX_ELEMENTS = threshold(
    "ALL_DECIDING_MAX_ELEMENTS",
    64,
    unit="elements",
    why="In tensors up to this size all elements decide between variants.",
)
DECIDING_MAX_ELEMENTS = threshold(
    "DECIDING_MAX_ELEMENTS",
    4096,
    unit="elements",
    why="Elements drawn to decide between variants where no smaller set is known to decide.",
)
DECIDING_MAX_COMBINATIONS = threshold(
    "DECIDING_MAX_COMBINATIONS",
    1 << 40,
    unit="combinations",
    why="With more combinations of codes, the deciding elements are drawn instead of numbered.",
)
UNSATURATED_RANGE_SHARE = threshold(
    "UNSATURATED_RANGE_SHARE",
    0.9,
    unit="share of the code range",
    why="Elements in this middle part of the range are preferred as evidence, as saturation cannot hide them.",
)
EQUAL_FUNCTIONS_MAX_CODES = threshold(
    "EQUAL_FUNCTIONS_MAX_CODES",
    1 << 26,
    unit="codes",
    why="Codes that are computed at most to prove that variants are the same function.",
    source="measured: about half a second",
)
RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE = threshold(
    "RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE",
    2.0**-7,
    unit="relative difference",
    decides="cause",
    why="A recorded multiplier further from the quotient of the scales is reported.",
    source="derived: the precision of a multiplier of 8 bits",
)
BIAS_SCALE_MAX_REL_DIFFERENCE = threshold(
    "BIAS_SCALE_MAX_REL_DIFFERENCE",
    2.0**-18,
    unit="relative difference",
    why="A bias whose scale is nearer to that of the sums is added to the sums as codes.",
)
FIXED_POINT_MIN_SCALE = threshold(
    "FIXED_POINT_MIN_SCALE",
    2.0**-12,
    unit="scale",
    why="Functions in fixed point are only tried on inputs of 16 bits with at least this scale.",
)
SUM_ORDERS_TRIED = threshold(
    "SUM_ORDERS_TRIED",
    3,
    unit="orders",
    why="Random orders in which the sums of a float node are taken, to see how far they differ.",
)
ROUNDING_MIN_MEDIAN_SHARE = threshold(
    "ROUNDING_MIN_MEDIAN_SHARE",
    0.2,
    unit="median / rms",
    why="An error with a smaller median, over its root mean square, is the mistake of a few elements. A normal "
    "distribution has 0.67.",
)
ROUNDED_FACTORS_MAX_ERROR_RATIO = threshold(
    "ROUNDED_FACTORS_MAX_ERROR_RATIO",
    2.0**16,
    unit="times the rounding of sums",
    decides="cause",
    why="Largest error that rounding each factor to bfloat16 makes, over that of sums in float32.",
    source="derived: ratio of the unit roundoffs, 2^-8 / 2^-24",
)
OUTLIER_ERROR_RATIO = threshold(
    "OUTLIER_ERROR_RATIO",
    4,
    unit="times the allowed rms",
    decides="cause",
    why="Elements of a float node with a larger error are looked at for a place that they have in common.",
)
CAUSE_MIN_DISTINCT_VALUES = threshold(
    "CAUSE_MIN_DISTINCT_VALUES",
    8,
    unit="values",
    decides="cause",
    why="A result with fewer distinct values may follow from a mistake by chance.",
)
CAUSE_MIN_DISTINCT_REALS = threshold(
    "CAUSE_MIN_DISTINCT_REALS",
    3,
    unit="values",
    decides="cause",
    why="Real numbers have many digits, so that fewer of them are enough.",
)
FURTHER_CAUSE_MAX_SUMS = threshold(
    "FURTHER_CAUSE_MAX_SUMS",
    2**31,
    unit="products and elements",
    decides="cause",
    why="Other readings of a node's operands are tried up to as much work, which takes a second or two.",
)
FURTHER_CAUSE_MIN_EQUAL_CODES = threshold(
    "FURTHER_CAUSE_MIN_EQUAL_CODES",
    0.9,
    unit="share of codes",
    decides="cause",
    why="A mistake on real numbers gives codes if as many are equal and all others one off: no arithmetic is known.",
)
LAYOUT_SEARCH_MAX_NODES = threshold(
    "LAYOUT_SEARCH_MAX_NODES",
    32,
    unit="nodes",
    decides="cause",
    why="Nodes before an elementwise one that are followed to find whether its channels come last.",
)
REPRODUCER_SIBLINGS = threshold(
    "REPRODUCER_SIBLINGS",
    8,
    unit="nodes",
    why="Nodes of the same kind that are looked at for the arithmetic, or precision, that a broken node should have.",
)
REPRODUCER_MAX_ELEMENTS = threshold(
    "REPRODUCER_MAX_ELEMENTS",
    1 << 15,
    unit="elements",
    why="Elements of a sample that known variants are tried on where no sibling tells a broken node's arithmetic.",
)
REPRODUCER_SAMPLES = threshold(
    "REPRODUCER_SAMPLES",
    4,
    unit="samples",
    why="Samples that known variants are tried on where no sibling tells a broken node's arithmetic.",
)
FUSED_MAX_NODES = threshold(
    "FUSED_MAX_NODES",
    24,
    unit="nodes",
    why="Most nodes inside a layer that are replayed to look at its end: a layer of OpenVINO names up to a dozen.",
)
FUSED_ROUNDING_MAX_SHARE = threshold(
    "FUSED_ROUNDING_MAX_SHARE",
    0.01,
    unit="share",
    why="Codes behind real sums inside a layer that may be one step off, since a sum in another order may lie on the "
    "other side of a tie: sums of a few hundred products that are off by 1e-7 of their size move 1 code in 1000.",
)
