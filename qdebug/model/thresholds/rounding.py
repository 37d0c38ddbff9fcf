"""Thresholds of number formats: how much rounding alone can change a value."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Rounding: how much a number format alone can change a value", decides="status")

FLOAT32_UNIT_ROUNDOFF = threshold(
    "FLOAT32_UNIT_ROUNDOFF",
    2.0**-24,
    unit="relative error",
    why="Maximum relative error of rounding to float32. All bounds for float nodes are multiples of a unit roundoff.",
    source="derived: half of 2^-23, the distance from 1 to the next float32 (IEEE 754)",
)
FLOAT32_STORED_REL_ERROR = threshold(
    "FLOAT32_STORED_REL_ERROR",
    1e-6,
    unit="relative error",
    why="Relative error of a real constant or scale that was stored in float32. Such an error is not significant.",
)
LSB_SLACK = threshold(
    "LSB_SLACK",
    1e-3,
    unit="LSB",
    why="Differences of whole and half steps may be off by this much because of rounding in float32. Relative "
    "to another limit, it is a share of that limit, so that 0 stays 0.",
)
ROUNDING_SUM_FACTOR = threshold(
    "ROUNDING_SUM_FACTOR",
    8.0,
    unit="times sqrt(terms)",
    why="Factor applied to the root of the sum of squared rounding errors. With this factor, the bound fails "
    "with a probability below exp(-32).",
    source="cited: Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, "
    "2019",
)
ELEMENTWISE_ROUNDOFFS = threshold(
    "ELEMENTWISE_ROUNDOFFS",
    16.0,
    unit="unit roundoffs",
    why="Maximum error of an element from rounding its own few terms. A product of three may be computed in "
    "any order, and a division may multiply by a reciprocal.",
)
FUNCTION_ROUNDOFFS = threshold(
    "FUNCTION_ROUNDOFFS",
    256.0,
    unit="unit roundoffs",
    why="Maximum error of an operator without a known sum: approximated functions, normalizations.",
)
SIGMOID_OFFSET_ROUNDOFFS = threshold(
    "SIGMOID_OFFSET_ROUNDOFFS",
    4.0,
    unit="unit roundoffs of 1",
    why="Maximum absolute error of a Sigmoid near 0. It is computed as 1/2 plus a remainder.",
    source="cited: MLAS, logistic.cpp",
)
SEGMENT_ROUNDOFFS = threshold(
    "SEGMENT_ROUNDOFFS",
    1024.0,
    unit="unit roundoffs",
    why="Maximum error of one or several float nodes compared with the reference's nodes for the same result. "
    "Constants may be folded on either side.",
)
ROUNDING_MAX_SIGNAL_SHARE = threshold(
    "ROUNDING_MAX_SIGNAL_SHARE",
    0.1,
    unit="share of the norm",
    why="However coarse the format, rounding alone never explains an error of a tenth of the signal.",
)
CANCELLING_SUM_ROUNDOFFS = threshold(
    "CANCELLING_SUM_ROUNDOFFS",
    16,
    unit="unit roundoffs",
    why="Maximum error of a sum, relative to the magnitudes of its terms, if its terms cancel and the error "
    "exceeds a tenth of the result.",
)
NARROW_SUM_TERMS_FACTOR = threshold(
    "NARROW_SUM_TERMS_FACTOR",
    1.5,
    unit="unit roundoffs",
    decides="status",
    why="Estimated error of sums in a narrow format, relative to the magnitudes of their terms. It applies if "
    "signs are mixed.",
)
NARROW_SUM_RESULT_FACTOR = threshold(
    "NARROW_SUM_RESULT_FACTOR",
    0.5,
    unit="unit roundoffs times sqrt(terms)",
    decides="status",
    why="Estimated error of sums in a narrow format, relative to the result. It applies if all terms have the "
    "same sign.",
)
SHORT_FORMAT_MIN_ELEMENTS = threshold(
    "SHORT_FORMAT_MIN_ELEMENTS",
    4,
    unit="elements",
    why="With fewer elements, the digits do not show which short float format a tensor was rounded to.",
)
SHORT_FORMAT_MIN_LAST_DIGITS = threshold(
    "SHORT_FORMAT_MIN_LAST_DIGITS",
    2,
    unit="elements",
    why="Minimum number of elements that must use the last digit of a short float format. Otherwise, the "
    "values match it by chance.",
)
SHORT_FORMAT_MIN_LAST_DIGIT_SHARE = threshold(
    "SHORT_FORMAT_MIN_LAST_DIGIT_SHARE",
    0.25,
    unit="share of the elements",
    why="Minimum share of the smaller elements that must use the last digit. Half of the values rounded to "
    "that format do.",
)
GRID_MAX_LEVELS = threshold(
    "GRID_MAX_LEVELS",
    256,
    unit="levels",
    decides="status",
    why="Real values on a grid with at most this many levels are treated as codes with an unstated scale, for "
    "which half a step is rounding.",
    source="derived: the codes of 8 bits",
)
GRID_MAX_WIDE_LEVELS = threshold(
    "GRID_MAX_WIDE_LEVELS",
    65536,
    unit="levels",
    decides="status",
    why="Real values on a grid with more levels are not treated as codes.",
    source="derived: the codes of 16 bits",
)
GRID_MIN_WIDE_VALUES = threshold(
    "GRID_MIN_WIDE_VALUES",
    16,
    unit="different values",
    decides="status",
    why="Fewer distinct values may lie on some grid with more than 256 levels by chance.",
    source="derived: by chance, 14 values besides two neighbours are all within 0.05 steps of a level of one of 65536 "
    "grids once in 10**9 times",
)
GRID_TELLING_WIDE_VALUES = threshold(
    "GRID_TELLING_WIDE_VALUES",
    1024,
    unit="different values",
    decides="status",
    why="Fewer distinct values of 16-bit codes may not reveal their step, so it is unknown whether they lie on a grid.",
    source="derived: of that many of 65536 levels, a hundred pairs lie within 15 steps, which rounding does not hide",
)
GRID_MAX_DISTANCE = threshold(
    "GRID_MAX_DISTANCE",
    0.05,
    unit="steps",
    decides="status",
    why="Maximum distance of such values from their level.",
    source="derived: 256 levels of a scale in float32 are off by 2**-16 of a step, of a scale in bfloat16 by more",
)
GRID_MIN_VALUES = threshold(
    "GRID_MIN_VALUES",
    8,
    unit="different values",
    decides="status",
    why="Fewer distinct values may lie on some grid by chance.",
    source="derived: by chance, 6 values besides two neighbours are all this close to a level once in a million times",
)
UNSTEADY_MAX_RATIO = threshold(
    "UNSTEADY_MAX_RATIO",
    10.0,
    unit="times the largest difference of two plain runs",
    decides="status",
    why="If a recorded output differs from a plain run by at most this many times the difference between "
    "plain runs, the backend itself is nondeterministic. A larger difference is caused by recording, "
    "however little plain runs differ.",
    source="chosen: the largest of a few differences is seldom ten times that of another few",
)
INTERVAL_SUM_FACTOR = threshold(
    "INTERVAL_SUM_FACTOR",
    2.0,
    unit="times sqrt(terms) unit roundoffs",
    decides="cause",
    why="Maximum error of a float32 sum of unknown order, relative to the magnitudes of its terms. The error of adding "
    "one after another has a standard deviation of a sixth of sqrt(terms).",
    source="derived: independent errors of half a unit in the last place of each partial sum",
)
FUNCTION_MAX_UNITS = threshold(
    "FUNCTION_MAX_UNITS",
    8.0,
    unit="units in the last place",
    decides="cause",
    why="Maximum error of a float32 library function. Vectorized ones have up to 4.",
)
