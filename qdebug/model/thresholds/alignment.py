"""Thresholds of the alignment: which tensors are compared with each other."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Alignment: which tensors are compared with each other", decides="pair")

VALUE_MATCH_MAX_REL_ERROR = threshold(
    "VALUE_MATCH_MAX_REL_ERROR",
    0.5,
    unit="relative error",
    why="Two tensors with a larger error are not paired by their values. An SQNR of 10 dB is an error of 0.32.",
)
VALUE_CANDIDATE_MAX_REL_DISTANCE = threshold(
    "VALUE_CANDIDATE_MAX_REL_DISTANCE",
    1.0,
    unit="relative distance",
    why="A tensor whose distance at the sampled elements is larger is not a candidate, since a tensor of "
    "zeros would be as close.",
    source="derived: norm(0 - reference) / norm(reference) is 1",
)
VALUE_MATCH_SURE_REL_ERROR = threshold(
    "VALUE_MATCH_SURE_REL_ERROR",
    1e-3,
    unit="relative error",
    why="Below this error, the search for a closer tensor ends.",
)
VALUE_MATCH_OTHER_PARTNER_RATIO = threshold(
    "VALUE_MATCH_OTHER_PARTNER_RATIO",
    0.1,
    unit="ratio of errors",
    why="A pair is not made if another tensor has less than this share of its error.",
)
VALUE_MATCH_MIN_VALUES = threshold(
    "VALUE_MATCH_MIN_VALUES",
    8,
    unit="values",
    why="Tensors with fewer values over all samples are not paired by their values, which could agree by chance.",
)
COPY_MAX_DISTANCE = threshold(
    "COPY_MAX_DISTANCE",
    1e-6,
    unit="relative distance",
    why="Two tensors of the reference with a smaller distance are treated as copies in the search by values.",
)
VALUES_READ_MAX_ELEMENTS = threshold(
    "VALUES_READ_MAX_ELEMENTS",
    1 << 24,
    unit="elements",
    why="Larger tensors are not paired by their values, and the order of their dimensions is not examined. "
    "Both sides as real numbers could exceed the memory.",
)
FUSED_AFTER_PRODUCT_MAX_NODES = threshold(
    "FUSED_AFTER_PRODUCT_MAX_NODES",
    3,
    unit="nodes",
    why="Maximum number of nodes that a backend fuses into a product: a bias, a factor, an activation.",
)
FUSED_CHAIN_MAX_NODES = threshold(
    "FUSED_CHAIN_MAX_NODES",
    4,
    unit="nodes",
    why="Maximum length of a chain of nodes that is followed because a runtime may have fused, folded or "
    "moved it around another node: a cast, a scale, a bias, an activation.",
)
CLEARER_CANDIDATE_MAX_ERROR_RATIO = threshold(
    "CLEARER_CANDIDATE_MAX_ERROR_RATIO",
    0.5,
    unit="ratio of errors",
    why="The correct one of two candidates has less than this share of the other's error. The candidates may "
    "be two orders of dimensions, a Relu's input and its result, or two weights.",
)
CHANNEL_AXIS_MIN_RANK = threshold(
    "CHANNEL_AXIS_MIN_RANK",
    3,
    unit="dimensions",
    why="With fewer dimensions, a tensor does not have a channel dimension that could come last on only one side.",
)
CHANNEL_AXIS_MAX_RANK = threshold(
    "CHANNEL_AXIS_MAX_RANK",
    5,
    unit="dimensions",
    why="With more dimensions, channels that come last on only one side are not searched for.",
)
WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS = threshold(
    "WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS",
    16,
    unit="elements",
    why="A weight with at least this many elements identifies its node. Constants of indices are compared up "
    "to this size.",
)
WEIGHT_MAX_REL_DISTANCE = threshold(
    "WEIGHT_MAX_REL_DISTANCE",
    0.5,
    unit="relative distance",
    why="Two weights with a larger distance are different weights, and their nodes are not paired.",
)
WEIGHT_SKETCH_SUMS = threshold(
    "WEIGHT_SKETCH_SUMS",
    256,
    unit="sums",
    why="Number of random sums of a weight's elements that estimate its distance from another weight before "
    "both are read.",
    source="derived: the standard deviation of the squared estimate is at most sqrt(2 / sums), 9 % of it",
)
WEIGHT_SKETCH_MAX_RATIO = threshold(
    "WEIGHT_SKETCH_MAX_RATIO",
    2.0,
    unit="ratio of distances",
    why="A weight is not read if its estimated distance is more than this many times the largest distance "
    "that matters.",
    source="derived: the squared estimate would be 34 standard deviations beyond the squared distance",
)
SCALAR_MAX_REL_DIFFERENCE = threshold(
    "SCALAR_MAX_REL_DIFFERENCE",
    0.01,
    unit="relative difference",
    why="Two scalars that differ by more are different. Rounding a single number to a code at its own scale "
    "changes it by far less.",
)
SEGMENT_MAX_NODES = threshold(
    "SEGMENT_MAX_NODES",
    64,
    unit="nodes",
    decides="status",
    why="A part of a graph with more nodes or tensors is not compared with another part as a whole. No known "
    "fusion is that large.",
)
NORMALIZATION_LOOKAHEAD_TENSORS = threshold(
    "NORMALIZATION_LOOKAHEAD_TENSORS",
    4,
    unit="tensors",
    why="Number of subsequently recorded tensors that are searched for the result of a normalization that an "
    "export folds away.",
)
NEUTRAL_CONSTANT_MAX_ELEMENTS = threshold(
    "NEUTRAL_CONSTANT_MAX_ELEMENTS",
    4096,
    unit="elements",
    why="Larger constants are not tested for being all 1 or all 0. Neutral constants are scalars, or have one "
    "value per channel.",
)
SHARED_CONSTANT_MAX_ELEMENTS = threshold(
    "SHARED_CONSTANT_MAX_ELEMENTS",
    16,
    unit="elements",
    why="Constants up to this size are treated as the same constant if their values are equal.",
)
DEQUANTIZED_THROUGH_MAX_NODES = threshold(
    "DEQUANTIZED_THROUGH_MAX_NODES",
    8,
    unit="nodes",
    why="Maximum number of consecutive moves through which a DequantizeLinear is traced, since ONNX Runtime "
    "moves it through them.",
)
PAIR_SURE_MIN_CONFIDENCE = threshold(
    "PAIR_SURE_MIN_CONFIDENCE",
    0.8,
    unit="confidence",
    why="Reports mark a pair with a lower confidence as unsure. A pair made only by values has a confidence "
    "of at most 0.9 if its SQNR is 10 dB.",
)
VALUE_TIE_MAX_RATIO = threshold(
    "VALUE_TIE_MAX_RATIO",
    4.0,
    unit="ratio of errors",
    why="A candidate whose error exceeds the best candidate's by this factor is not considered again.",
)
VALUE_TIES_MAX = threshold(
    "VALUE_TIES_MAX",
    5,
    unit="tensors",
    why="Maximum number of candidates for one tensor that are read completely.",
)
ARRANGED_MAX_RANK = threshold(
    "ARRANGED_MAX_RANK",
    5,
    unit="dimensions",
    why="Tensors with more dimensions of several elements are compared only in their plain order, because "
    "there are too many permutations.",
)
SAMPLED_PLACES = threshold(
    "SAMPLED_PLACES",
    256,
    unit="elements",
    why="Number of elements of a tensor that are compared to find its counterpart and its order of "
    "dimensions. Of 216 tensors at 10 dB, all were found among 504.",
)
SAMPLED_RUNS = threshold(
    "SAMPLED_RUNS",
    4,
    unit="samples",
    why="Maximum number of samples that are used to find counterparts by values. More samples do not help.",
)
DATA_PAIR_MIN_CONFIDENCE = threshold(
    "DATA_PAIR_MIN_CONFIDENCE",
    0.4,
    unit="confidence",
    why="With a lower confidence, a pair is not made by values, since the tensor may be 0.3 of the way from "
    "its counterpart to another tensor.",
)
WEAK_NAME_CONFIDENCE = threshold(
    "WEAK_NAME_CONFIDENCE",
    0.9,
    unit="confidence",
    why="Confidence of a pair with equal names for which only two of operator, inputs and readers agree.",
)
LEFT_NAME_CONFIDENCE = threshold(
    "LEFT_NAME_CONFIDENCE",
    0.6,
    unit="confidence",
    why="Confidence of a pair with equal names and shapes for which the graphs neither support nor contradict "
    "the match.",
)
NEAREST_ASKED_MAX = threshold(
    "NEAREST_ASKED_MAX",
    100,
    unit="tensors",
    why="Maximum number of lost tensors for which the closest tensor of the other side is searched. Each "
    "search reads all tensors of the same size.",
)
