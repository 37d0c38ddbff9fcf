"""Thresholds of the alignment: which tensors are compared with each other."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Alignment: which tensors are compared with each other", decides="pair")

VALUE_MATCH_MAX_REL_ERROR = threshold(
    "VALUE_MATCH_MAX_REL_ERROR",
    0.5,
    unit="relative error",
    why="Two tensors with a larger error are not paired by their values: 10 dB are 0.32.",
)
VALUE_CANDIDATE_MAX_REL_DISTANCE = threshold(
    "VALUE_CANDIDATE_MAX_REL_DISTANCE",
    1.0,
    unit="relative distance",
    why="A tensor that is further away at the sampled elements is no candidate: zeros would be as near.",
    source="derived: norm(0 - reference) / norm(reference) is 1",
)
VALUE_MATCH_SURE_REL_ERROR = threshold(
    "VALUE_MATCH_SURE_REL_ERROR",
    1e-3,
    unit="relative error",
    why="Below this error nobody looks for a nearer tensor.",
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
    why="Tensors with fewer values in all samples are not paired by these: they could be alike by chance.",
)
COPY_MAX_DISTANCE = threshold(
    "COPY_MAX_DISTANCE",
    1e-6,
    unit="relative distance",
    why="Two tensors of the reference that are nearer to each other are copies for the search by values.",
)
VALUES_READ_MAX_ELEMENTS = threshold(
    "VALUES_READ_MAX_ELEMENTS",
    1 << 24,
    unit="elements",
    why="Larger tensors are neither paired by their values nor asked for the order of their dimensions. Both sides as "
    "real numbers could need more memory than there is.",
)
FUSED_AFTER_PRODUCT_MAX_NODES = threshold(
    "FUSED_AFTER_PRODUCT_MAX_NODES",
    3,
    unit="nodes",
    why="A backend fuses at most so many nodes into a product: a bias, a factor, an activation.",
)
FUSED_CHAIN_MAX_NODES = threshold(
    "FUSED_CHAIN_MAX_NODES",
    4,
    unit="nodes",
    why="Longest chain of nodes that a runtime may have fused, folded or moved around another one, and that is "
    "followed: a cast, a scale, a bias, an activation.",
)
CLEARER_CANDIDATE_MAX_ERROR_RATIO = threshold(
    "CLEARER_CANDIDATE_MAX_ERROR_RATIO",
    0.5,
    unit="ratio of errors",
    why="The right one of two candidates has less than this share of the other's error: two orders of dimensions, a "
    "Relu's input and its result, or two weights.",
)
CHANNEL_AXIS_MIN_RANK = threshold(
    "CHANNEL_AXIS_MIN_RANK",
    3,
    unit="dimensions",
    why="With fewer dimensions none is of channels that could come last on one side.",
)
CHANNEL_AXIS_MAX_RANK = threshold(
    "CHANNEL_AXIS_MAX_RANK",
    5,
    unit="dimensions",
    why="With more dimensions nobody looks for channels that come last on one side.",
)
WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS = threshold(
    "WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS",
    16,
    unit="elements",
    why="From so many elements a weight identifies its node. Constants of indices are compared up to this size.",
)
WEIGHT_MAX_REL_DISTANCE = threshold(
    "WEIGHT_MAX_REL_DISTANCE",
    0.5,
    unit="relative distance",
    why="Two weights that are further apart are different weights, and their nodes are not paired.",
)
WEIGHT_SKETCH_SUMS = threshold(
    "WEIGHT_SKETCH_SUMS",
    256,
    unit="sums",
    why="So many random sums of a weight's elements estimate its distance from another before both are read.",
    source="derived: the standard deviation of the squared estimate is at most sqrt(2 / sums), 9 % of it",
)
WEIGHT_SKETCH_MAX_RATIO = threshold(
    "WEIGHT_SKETCH_MAX_RATIO",
    2.0,
    unit="ratio of distances",
    why="A weight whose estimated distance is more than so many times the largest one that counts is not read.",
    source="derived: the squared estimate would be 34 standard deviations beyond the squared distance",
)
SCALAR_MAX_REL_DIFFERENCE = threshold(
    "SCALAR_MAX_REL_DIFFERENCE",
    0.01,
    unit="relative difference",
    why="Two scalars that differ by more are different. Rounding a single number to a code of its own scale stays far "
    "below.",
)
SEGMENT_MAX_NODES = threshold(
    "SEGMENT_MAX_NODES",
    64,
    unit="nodes",
    decides="status",
    why="A part of a graph with more nodes, or tensors, is not held against another part as a whole. No known fusion "
    "is that large.",
)
NORMALIZATION_LOOKAHEAD_TENSORS = threshold(
    "NORMALIZATION_LOOKAHEAD_TENSORS",
    4,
    unit="tensors",
    why="Tensors recorded next, among which the result of a normalization may be that an export folds away.",
)
NEUTRAL_CONSTANT_MAX_ELEMENTS = threshold(
    "NEUTRAL_CONSTANT_MAX_ELEMENTS",
    4096,
    unit="elements",
    why="Larger constants are not looked at for being all 1 or all 0. Neutral ones are scalars, or one value per "
    "channel.",
)
SHARED_CONSTANT_MAX_ELEMENTS = threshold(
    "SHARED_CONSTANT_MAX_ELEMENTS",
    16,
    unit="elements",
    why="Constants up to this size are taken for the same if their values are equal.",
)
DEQUANTIZED_THROUGH_MAX_NODES = threshold(
    "DEQUANTIZED_THROUGH_MAX_NODES",
    8,
    unit="nodes",
    why="Moves in a row through which ONNX Runtime takes a DequantizeLinear, and which are looked through.",
)
PAIR_SURE_MIN_CONFIDENCE = threshold(
    "PAIR_SURE_MIN_CONFIDENCE",
    0.8,
    unit="confidence",
    why="A pair with less is marked as unsure in reports. One made by values alone has 0.9 at most where the error is "
    "10 dB below the values.",
)
VALUE_TIE_MAX_RATIO = threshold(
    "VALUE_TIE_MAX_RATIO",
    4.0,
    unit="ratio of errors",
    why="A candidate with so many times the best one's error is not looked at again.",
)
VALUE_TIES_MAX = threshold(
    "VALUE_TIES_MAX",
    5,
    unit="tensors",
    why="So many candidates of one tensor are read whole.",
)
ARRANGED_MAX_RANK = threshold(
    "ARRANGED_MAX_RANK",
    5,
    unit="dimensions",
    why="Tensors with more dimensions of several elements are compared in the plain order alone: there are too many.",
)
SAMPLED_PLACES = threshold(
    "SAMPLED_PLACES",
    256,
    unit="elements",
    why="So many elements of a tensor are held against others to find its partner and its order of dimensions. Of 216 "
    "tensors at 10 dB, all were found among 504.",
)
SAMPLED_RUNS = threshold(
    "SAMPLED_RUNS",
    4,
    unit="samples",
    why="So many samples at most are looked at to find partners by values: more tell no more.",
)
DATA_PAIR_MIN_CONFIDENCE = threshold(
    "DATA_PAIR_MIN_CONFIDENCE",
    0.4,
    unit="confidence",
    why="With less no pair is made by values: the tensor may be 0.3 of the way from its partner to another tensor.",
)
WEAK_NAME_CONFIDENCE = threshold(
    "WEAK_NAME_CONFIDENCE",
    0.9,
    unit="confidence",
    why="Of a pair with one name where operator, inputs and readers agree in two of three alone.",
)
LEFT_NAME_CONFIDENCE = threshold(
    "LEFT_NAME_CONFIDENCE",
    0.6,
    unit="confidence",
    why="Of a pair with one name and shape, where the graphs say nothing for or against it.",
)
NEAREST_ASKED_MAX = threshold(
    "NEAREST_ASKED_MAX",
    100,
    unit="tensors",
    why="Of so many lost tensors the nearest of the other side is looked for: all of its size are read for each.",
)
