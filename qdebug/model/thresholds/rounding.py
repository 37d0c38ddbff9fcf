"""Thresholds of number formats: how much rounding alone can change a value."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Rounding: how much a number format alone can change a value", decides="status")

FLOAT32_UNIT_ROUNDOFF = threshold(
    "FLOAT32_UNIT_ROUNDOFF",
    2.0**-24,
    unit="relative error",
    why="Largest relative error of rounding to float32. All bounds for float nodes are multiples of a unit roundoff.",
    source="derived: half of 2^-23, the distance from 1 to the next float32 (IEEE 754)",
)
FLOAT32_STORED_REL_ERROR = threshold(
    "FLOAT32_STORED_REL_ERROR",
    1e-6,
    unit="relative error",
    why="Relative error of a real constant, or of a scale, that was kept in float32. Such an error says nothing of it.",
)
LSB_SLACK = threshold(
    "LSB_SLACK",
    1e-3,
    unit="LSB",
    why="Differences of whole and half steps may be off by this much through rounding in float32. Beside another limit "
    "it is a share of that limit, so that 0 stays 0.",
)
ROUNDING_SUM_FACTOR = threshold(
    "ROUNDING_SUM_FACTOR",
    8.0,
    unit="times sqrt(terms)",
    why="Factor on the root of the sum of squared rounding errors. With this factor the bound fails with a probability "
    "below exp(-32).",
    source="cited: Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, "
    "2019",
)
ELEMENTWISE_ROUNDOFFS = threshold(
    "ELEMENTWISE_ROUNDOFFS",
    16.0,
    unit="unit roundoffs",
    why="Error that an element may have by rounding its own few terms. A product of three may be taken in any order, "
    "and a division may multiply by a reciprocal.",
)
FUNCTION_ROUNDOFFS = threshold(
    "FUNCTION_ROUNDOFFS",
    256.0,
    unit="unit roundoffs",
    why="Error that an operator without a known sum may have: approximated functions, normalizations.",
)
SIGMOID_OFFSET_ROUNDOFFS = threshold(
    "SIGMOID_OFFSET_ROUNDOFFS",
    4.0,
    unit="unit roundoffs of 1",
    why="Absolute error that a Sigmoid may have near 0. It is computed as 1/2 plus something.",
    source="cited: MLAS, logistic.cpp",
)
SEGMENT_ROUNDOFFS = threshold(
    "SEGMENT_ROUNDOFFS",
    1024.0,
    unit="unit roundoffs",
    why="Error that one or several float nodes may have against the reference's nodes for the same result. Constants "
    "may be folded on either side.",
)
ROUNDING_MAX_SIGNAL_SHARE = threshold(
    "ROUNDING_MAX_SIGNAL_SHARE",
    0.1,
    unit="share of the norm",
    why="However coarse the format: rounding alone never explains an error of a tenth of the signal.",
)
CANCELLING_SUM_ROUNDOFFS = threshold(
    "CANCELLING_SUM_ROUNDOFFS",
    16,
    unit="unit roundoffs",
    why="Error, relative to the magnitudes of its terms, that a sum may have though its terms cancel and the error is "
    "more than a tenth of the result.",
)
NARROW_SUM_TERMS_FACTOR = threshold(
    "NARROW_SUM_TERMS_FACTOR",
    1.5,
    unit="unit roundoffs",
    decides="variant",
    why="Estimated error of sums in a narrow format, relative to the magnitudes of their terms. It holds where signs "
    "are mixed.",
)
NARROW_SUM_RESULT_FACTOR = threshold(
    "NARROW_SUM_RESULT_FACTOR",
    0.5,
    unit="unit roundoffs times sqrt(terms)",
    decides="variant",
    why="Estimated error of sums in a narrow format, relative to the result. It holds where all terms have one sign.",
)
SHORT_FORMAT_MIN_ELEMENTS = threshold(
    "SHORT_FORMAT_MIN_ELEMENTS",
    4,
    unit="elements",
    why="With fewer elements, the digits do not tell which short float format a tensor was rounded to.",
)
SHORT_FORMAT_MIN_LAST_DIGITS = threshold(
    "SHORT_FORMAT_MIN_LAST_DIGITS",
    2,
    unit="elements",
    why="Elements that must use the last digit of a short float format. Otherwise the values fit it by chance.",
)
SHORT_FORMAT_MIN_LAST_DIGIT_SHARE = threshold(
    "SHORT_FORMAT_MIN_LAST_DIGIT_SHARE",
    0.25,
    unit="share of the elements",
    why="Share of the smaller elements that must use the last digit. Of values rounded to that format half do.",
)
GRID_MAX_LEVELS = threshold(
    "GRID_MAX_LEVELS",
    256,
    unit="levels",
    decides="status",
    why="Real values on a grid of at most so many levels are taken for codes of which nobody said the scale: half a "
    "step is then rounding.",
    source="derived: the codes of 8 bits",
)
GRID_MAX_WIDE_LEVELS = threshold(
    "GRID_MAX_WIDE_LEVELS",
    65536,
    unit="levels",
    decides="status",
    why="Real values on a grid of more levels are not taken for codes.",
    source="derived: the codes of 16 bits",
)
GRID_MIN_WIDE_VALUES = threshold(
    "GRID_MIN_WIDE_VALUES",
    16,
    unit="different values",
    decides="status",
    why="Fewer different values lie on some grid of more than 256 levels by chance.",
    source="derived: 14 values beside two neighbours are all within 0.05 steps of a level of one of 65536 grids once "
    "in 10**9 times by chance",
)
GRID_MAX_DISTANCE = threshold(
    "GRID_MAX_DISTANCE",
    0.05,
    unit="steps",
    decides="status",
    why="How far such values may be from their level.",
    source="derived: 256 levels of a scale in float32 are off by 2**-16 of a step, those of one in bfloat16 by more",
)
GRID_MIN_VALUES = threshold(
    "GRID_MIN_VALUES",
    8,
    unit="different values",
    decides="status",
    why="Fewer different values lie on some grid by chance.",
    source="derived: 6 values beside two neighbours are all so near a level once in a million times by chance",
)
UNSTEADY_MAX_RATIO = threshold(
    "UNSTEADY_MAX_RATIO",
    10.0,
    unit="times the largest difference of two plain runs",
    decides="status",
    why="Where a recorded output is no further from a plain run, the backend itself differs from run to run. What is "
    "further off is the work of recording, however little plain runs differ.",
    source="chosen: the largest of a few differences is seldom ten times that of another few",
)
