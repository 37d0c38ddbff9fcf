"""Thresholds of the alignment: which tensors are compared with each other."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Alignment: which tensors are compared with each other", decides="pair")

VALUE_MATCH_MAX_REL_ERROR = threshold(
    "VALUE_MATCH_MAX_REL_ERROR",
    0.2,
    unit="relative error",
    why="Two tensors with a larger error are not paired by their values.",
)
VALUE_MATCH_SURE_REL_ERROR = threshold(
    "VALUE_MATCH_SURE_REL_ERROR",
    1e-3,
    unit="relative error",
    why="Below this error nobody looks for a nearer tensor.",
)
VALUE_MATCH_MIN_RUNNER_UP_RATIO = threshold(
    "VALUE_MATCH_MIN_RUNNER_UP_RATIO",
    4.0,
    unit="ratio of errors",
    why="Least ratio of the runner-up's error to the best one, unless both tensors are alike themselves.",
)
VALUE_MATCH_OTHER_PARTNER_RATIO = threshold(
    "VALUE_MATCH_OTHER_PARTNER_RATIO",
    0.1,
    unit="ratio of errors",
    why="A pair is not made if another tensor has less than this share of its error.",
)
VALUE_MATCH_MAX_MOMENT_DIFFERENCE = threshold(
    "VALUE_MATCH_MAX_MOMENT_DIFFERENCE",
    0.3,
    unit="share of the rms",
    why="Two tensors whose means or root mean squares differ by more are not compared by their values.",
)
VALUE_MATCH_MIN_ELEMENTS = threshold(
    "VALUE_MATCH_MIN_ELEMENTS",
    32,
    unit="elements",
    why="Tensors with fewer elements are not paired by their values: they could be alike by chance.",
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
    why="The right one of two candidates has at most this share of the other's error: two orders of dimensions, or a "
    "Relu's input and its result.",
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
