"""Thresholds of explain: which arithmetic reproduces a node."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Explain: which arithmetic reproduces a node", decides="variant")

VARIANT_MIN_ELEMENTS = threshold(
    "VARIANT_MIN_ELEMENTS",
    64,
    unit="elements",
    why="In a node with fewer elements, one of thousands of programs may match by chance. Unknown programs "
    "are not tried.",
)
UNKNOWN_PROGRAM_MIN_ELEMENTS = threshold(
    "UNKNOWN_PROGRAM_MIN_ELEMENTS",
    20,
    unit="elements",
    why="Minimum number of elements that only an unknown program reproduces. With fewer, it may match by chance.",
    source="derived: one of 2^13 programs gets 20 elements right by chance 1 time in 100",
)
FREE_MULTIPLIER_BITS = threshold(
    "FREE_MULTIPLIER_BITS",
    8,
    unit="bits",
    decides="cause",
    why="Each bit of a multiplier beyond these halves the distance from a tie within which it changes a code. An error "
    "of another origin is as close to a tie with half the probability. So an element counts once for each bit "
    "beyond these.",
    source="derived: half a unit in the last of N bits, times 255 codes, is 2^(7-N) codes, on both sides of a tie",
)
UNKNOWN_PROGRAM_MAX_SIBLINGS = threshold(
    "UNKNOWN_PROGRAM_MAX_SIBLINGS",
    8,
    unit="nodes",
    why="Maximum number of explained siblings that an unknown program must also reproduce. If there are more, "
    "it does not replace their known variants.",
)
UNKNOWN_SEARCH_MAX_FAILURES = threshold(
    "UNKNOWN_SEARCH_MAX_FAILURES",
    6,
    unit="nodes",
    why="After this many nodes with the same operator without success, unknown programs are not tried on the others.",
)
UNKNOWN_PROGRAM_TRIAL_ELEMENTS = threshold(
    "UNKNOWN_PROGRAM_TRIAL_ELEMENTS",
    256,
    unit="elements",
    why="Number of elements on which unknown programs are first tried. Up to half of them are wrong with the "
    "best known variant.",
)
FITTED_BOUND_SLACK = threshold(
    "FITTED_BOUND_SLACK",
    1e-12,
    unit="relative",
    why="Bounds of a multiplier are widened by this much, since they are computed in float64. What passes is replayed "
    "exactly.",
    source="derived: a quotient in float64 has an error of 1.1e-16",
)
FITTED_PRE_MAX_SHIFT = threshold(
    "FITTED_PRE_MAX_SHIFT",
    16,
    unit="bits",
    why="Shifts before the product are fitted up to this many bits. A sum of 8-bit products hardly has more to lose.",
)
FITTED_MULTIPLIER_MIN_PAIRS = threshold(
    "FITTED_MULTIPLIER_MIN_PAIRS",
    8,
    unit="codes",
    decides="cause",
    why="A channel has a different multiplier only if this many different codes, none saturated, agree on it.",
    source="derived: of 8 codes with 8 possible values each, 7 agree with the first by chance 1 time in 2 million",
)
FITTED_MULTIPLIER_MIN_WRONG = threshold(
    "FITTED_MULTIPLIER_MIN_WRONG",
    4,
    unit="elements per channel",
    decides="cause",
    why="Channels with a different multiplier must have this many elements, on average, that the scales' multiplier "
    "gets wrong. A single wrong element next to a tie fits some multiplier by chance.",
)
TABLE_TIE_SLACK = threshold(
    "TABLE_TIE_SLACK",
    1e-4,
    unit="codes",
    why="An entry of a table may be this much farther than half a code from the exact function: tables are computed in "
    "float32.",
    source="derived: 256 codes times the error of a float32 function, 2 units of roundoff, is 3e-5",
)
TABLE_FIT_MAX_SCALE_RATIO = threshold(
    "TABLE_FIT_MAX_SCALE_RATIO",
    32.0,
    unit="ratio",
    why="Tables for another input scale are looked for up to this factor from the recorded scale.",
)
TABLE_FIT_MIN_CODES = threshold(
    "TABLE_FIT_MIN_CODES",
    16,
    unit="codes",
    decides="cause",
    why="A table is reported as made for a different scale only if it has this many different output codes, none of "
    "them saturated.",
    source="derived: if a code is right by chance 1 time in 8, one scale fits 16 codes 1 time in 10^13",
)
TABLE_FIT_MIN_WRONG = threshold(
    "TABLE_FIT_MIN_WRONG",
    4,
    unit="entries",
    decides="cause",
    why="A table with fewer deviating entries is not fitted: single wrong entries next to a tie fit another scale.",
)
LARGE_SIBLINGS_TRIED = threshold(
    "LARGE_SIBLINGS_TRIED",
    4,
    unit="nodes",
    why="Number of large nodes with the same operator and types whose common arithmetic is tried first in all others.",
)
OTHER_SUMS_MAX_PRODUCTS = threshold(
    "OTHER_SUMS_MAX_PRODUCTS",
    1 << 22,
    unit="products",
    why="In larger nodes, a different summation is tried only if the first one explains nothing.",
)
SEQUENTIAL_SUMS_MAX_PRODUCTS = threshold(
    "SEQUENTIAL_SUMS_MAX_PRODUCTS",
    1 << 26,
    unit="products",
    decides="cause",
    why="Sums in 16 bits must be computed term by term. They are not tried in larger nodes.",
)
RUNNER_UP_CANDIDATES = threshold(
    "RUNNER_UP_CANDIDATES",
    6,
    unit="variants",
    why="Number of failing variants whose exact share of correct elements is computed, to find the best one.",
)
CLEARLY_BETTER_MAX_WRONG_RATIO = threshold(
    "CLEARLY_BETTER_MAX_WRONG_RATIO",
    0.5,
    unit="ratio of wrong elements",
    decides="cause",
    why="A node that no variant explains is compared with the simplest variant, unless another variant leaves "
    "less than this share of its wrong elements.",
)
ALL_DECIDING_MAX_ELEMENTS = threshold(
    "ALL_DECIDING_MAX_ELEMENTS",
    64,
    unit="elements",
    why="In tensors up to this size, all elements are used to decide between variants.",
)
DECIDING_MAX_ELEMENTS = threshold(
    "DECIDING_MAX_ELEMENTS",
    4096,
    unit="elements",
    why="Number of elements drawn to decide between variants if a smaller decisive set is not known.",
)
DECIDING_MAX_COMBINATIONS = threshold(
    "DECIDING_MAX_COMBINATIONS",
    1 << 40,
    unit="combinations",
    why="With more combinations of codes, the deciding elements are drawn at random rather than enumerated.",
)
UNSATURATED_RANGE_SHARE = threshold(
    "UNSATURATED_RANGE_SHARE",
    0.9,
    unit="share of the code range",
    why="Elements in this middle part of the range are preferred as evidence, since saturation cannot hide them.",
)
EQUAL_FUNCTIONS_MAX_CODES = threshold(
    "EQUAL_FUNCTIONS_MAX_CODES",
    1 << 26,
    unit="codes",
    why="Maximum number of codes that are computed to prove that variants are the same function.",
    source="measured: about half a second",
)
RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE = threshold(
    "RECORDED_MULTIPLIER_MAX_REL_DIFFERENCE",
    2.0**-7,
    unit="relative difference",
    decides="cause",
    why="A recorded multiplier that differs by more from the quotient of the scales is reported.",
    source="derived: the precision of a multiplier of 8 bits",
)
BIAS_SCALE_MAX_REL_DIFFERENCE = threshold(
    "BIAS_SCALE_MAX_REL_DIFFERENCE",
    2.0**-18,
    unit="relative difference",
    why="A bias whose scale differs by less from the scale of the sums is added to the sums as codes.",
)
FIXED_POINT_MIN_SCALE = threshold(
    "FIXED_POINT_MIN_SCALE",
    2.0**-12,
    unit="scale",
    why="Functions in fixed point are tried only on 16-bit inputs with at least this scale.",
)
SUM_ORDERS_TRIED = threshold(
    "SUM_ORDERS_TRIED",
    3,
    unit="orders",
    why="Number of random summation orders that are tried for a float node, to see how far the results differ.",
)
ROUNDING_MIN_MEDIAN_SHARE = threshold(
    "ROUNDING_MIN_MEDIAN_SHARE",
    0.2,
    unit="median / rms",
    why="An error whose median is smaller, relative to its root mean square, comes from a few wrong elements. "
    "A normal distribution has 0.67.",
)
ROUNDED_FACTORS_MAX_ERROR_RATIO = threshold(
    "ROUNDED_FACTORS_MAX_ERROR_RATIO",
    2.0**16,
    unit="times the rounding of sums",
    decides="cause",
    why="Maximum error from rounding each factor to bfloat16, relative to the error of sums in float32.",
    source="derived: ratio of the unit roundoffs, 2^-8 / 2^-24",
)
OUTLIER_ERROR_RATIO = threshold(
    "OUTLIER_ERROR_RATIO",
    4,
    unit="times the allowed rms",
    decides="cause",
    why="Elements of a float node with a larger error are examined for a position that they have in common.",
)
CAUSE_MIN_DISTINCT_VALUES = threshold(
    "CAUSE_MIN_DISTINCT_VALUES",
    8,
    unit="values",
    decides="cause",
    why="With fewer distinct values, a result may match a suspected mistake by chance.",
)
CAUSE_MIN_UNCOMMON_ELEMENTS = threshold(
    "CAUSE_MIN_UNCOMMON_ELEMENTS",
    16,
    unit="elements",
    decides="cause",
    why="If there are few distinct values, such as truth values, this many besides the most common one also rule out "
    "chance.",
)
CAUSE_MIN_DISTINCT_REALS = threshold(
    "CAUSE_MIN_DISTINCT_REALS",
    3,
    unit="values",
    decides="cause",
    why="Real numbers have many digits, so that fewer of them are sufficient.",
)
FURTHER_CAUSE_MAX_SUMS = threshold(
    "FURTHER_CAUSE_MAX_SUMS",
    2**31,
    unit="products and elements",
    decides="cause",
    why="Other interpretations of a node's operands are tried up to this amount of work, which takes a second or two.",
)
FURTHER_CAUSE_MIN_EQUAL_CODES = threshold(
    "FURTHER_CAUSE_MIN_EQUAL_CODES",
    0.9,
    unit="share of codes",
    decides="cause",
    why="A mistake is matched in real numbers, since the exact arithmetic is unknown. It explains codes if at "
    "least this share is equal and all others differ by one.",
)
BLOCK_WEIGHTS_MAX_REMAINING_ERROR = threshold(
    "BLOCK_WEIGHTS_MAX_REMAINING_ERROR",
    0.85,
    unit="share of the error",
    decides="cause",
    why="Blocks of an operand are split into smaller ones only if their fitted weights leave at most this share of the "
    "error. Weights of 16 blocks leave more of an unrelated error.",
)
LAYOUT_SEARCH_MAX_NODES = threshold(
    "LAYOUT_SEARCH_MAX_NODES",
    32,
    unit="nodes",
    decides="cause",
    why="Maximum number of nodes before an elementwise node that are followed to find out whether its "
    "channels come last.",
)
REPRODUCER_SIBLINGS = threshold(
    "REPRODUCER_SIBLINGS",
    8,
    unit="nodes",
    why="Number of nodes of the same kind that are examined for the arithmetic or precision that a broken "
    "node should have.",
)
REPRODUCER_MAX_ELEMENTS = threshold(
    "REPRODUCER_MAX_ELEMENTS",
    1 << 15,
    unit="elements",
    why="Number of elements of a sample on which known variants are tried if siblings do not reveal a broken "
    "node's arithmetic.",
)
REPRODUCER_SAMPLES = threshold(
    "REPRODUCER_SAMPLES",
    4,
    unit="samples",
    why="Number of samples on which known variants are tried if siblings do not reveal a broken node's arithmetic.",
)
FUSED_MAX_NODES = threshold(
    "FUSED_MAX_NODES",
    24,
    unit="nodes",
    why="Maximum number of nodes inside a layer that are replayed to check its result. A layer of OpenVINO "
    "names up to a dozen.",
)
FUSED_ROUNDING_MAX_SHARE = threshold(
    "FUSED_ROUNDING_MAX_SHARE",
    0.01,
    unit="share",
    why="Maximum share of codes that may differ by one step after real sums inside a layer, since a different "
    "summation order may cross a tie. Sums of a few hundred products with a relative error of 1e-7 change "
    "1 code in 1000.",
)
PLACEMENTS_TRIED = threshold(
    "PLACEMENTS_TRIED",
    500,
    unit="placements",
    why="Maximum number of placements of roundings inside a float node that are tried.",
)
PLACEMENT_MIN_VALUES = threshold(
    "PLACEMENT_MIN_VALUES",
    16,
    unit="values",
    decides="cause",
    why="Roundings inside a float node are named only if each rounded at least this many values, times their number. "
    "Each value tells one from a rounding that picks the neighbour on either side at random, with a probability of one "
    "half. The bias of one rounding may hide the direction of another.",
    source="derived: 2**-16 is below 1 in 10**4. Of 500 normalizations of 16 rows with an unknown rounding, 2 were "
    "named wrongly with 4 roundings, none with up to 2.",
)
PLACEMENT_MIN_EVIDENCE = threshold(
    "PLACEMENT_MIN_EVIDENCE",
    40,
    unit="bits",
    decides="cause",
    why="A rounding inside a float node is named only with at least this much evidence. A wrong value fits N results "
    "that are computed from it with a probability of about 1 in N + 1, so V values give V * log2(1 + N) bits. With "
    "fewer values than this, roundings up, down and away from zero must be ruled out as well.",
    source="derived: 500 placements * 2**-40 is below 1 in 10**9",
)
PLACEMENT_MAX_PRODUCTS = threshold(
    "PLACEMENT_MAX_PRODUCTS",
    1 << 28,
    unit="products",
    decides="cause",
    why="A node that sums more products is not examined for where it rounds: computing it in float64 takes a second.",
)
PLACEMENT_MAX_PRODUCTS_BEFORE = threshold(
    "PLACEMENT_MAX_PRODUCTS_BEFORE",
    1 << 26,
    unit="products",
    decides="cause",
    why="A node that sums more products is not computed again to find out whether its readers see it unrounded.",
)
PLACEMENT_ROWS_ELEMENTS = threshold(
    "PLACEMENT_ROWS_ELEMENTS",
    1 << 13,
    unit="elements",
    why="Number of elements on which all placements are tried; those that fit are tried on all elements.",
)
ROUNDED_ELSEWHERE_MIN_SHARE = threshold(
    "ROUNDED_ELSEWHERE_MIN_SHARE",
    0.02,
    unit="share of the elements",
    decides="cause",
    why="If at least this share of results differs from the replay's rounded to nearest, a search finds where the "
    "float node rounds. Sums in a different order move fewer results across a boundary of bfloat16.",
)
ONE_SIDED_MIN_DEVIATIONS = threshold(
    "ONE_SIDED_MIN_DEVIATIONS",
    6.0,
    unit="standard deviations",
    decides="status",
    why="The mean error of a rounded result is one-sided if it is at least this many of its own standard deviations. "
    "By chance, one node in 500 million reaches that.",
    source="derived: two-sided tail of the normal distribution beyond 6",
)
ONE_SIDED_MIN_MEAN = threshold(
    "ONE_SIDED_MIN_MEAN",
    0.1,
    unit="units in the last place",
    decides="status",
    why="A smaller mean error of a rounded result is not called one-sided, however certain. Truncation has 0.5; "
    "rounding ties away from zero has up to 0.06 in sums of bfloat16.",
)
OVERFLOW_LIMIT_SLACK = threshold(
    "OVERFLOW_LIMIT_SLACK",
    2.0**-9,
    unit="relative distance from the largest number",
    decides="cause",
    why="Inside a layer, rounding decides whether results this close to the largest number of the format overflow.",
    source="derived: one step of float16 for the result, and one for its operands",
)
KNOWN_RESULTS_MIN_SHARE = threshold(
    "KNOWN_RESULTS_MIN_SHARE",
    0.2,
    unit="of the results",
    why="Minimum share of the results that a mistake must determine if it reads unknown memory. Booleans that are read "
    "as 32-bit integers determine a quarter.",
)
