"""Thresholds of the alignment: which tensors are compared with each other."""

from __future__ import annotations

from qdebug.model.thresholds.table import UNMEASURED, Group

threshold = Group("Alignment: which tensors are compared with each other")

VALUE_MATCH_MAX_REL_ERROR = threshold(
    "VALUE_MATCH_MAX_REL_ERROR",
    0.2,
    unit="relative error",
    decides="pair",
    why="Two tensors with a larger error are not paired by their values.",
    source=UNMEASURED,
)
VALUE_MATCH_SURE_REL_ERROR = threshold(
    "VALUE_MATCH_SURE_REL_ERROR",
    1e-3,
    unit="relative error",
    decides="pair",
    why="Below this error nobody looks for a nearer tensor.",
    source=UNMEASURED,
)
VALUE_MATCH_MIN_RUNNER_UP_RATIO = threshold(
    "VALUE_MATCH_MIN_RUNNER_UP_RATIO",
    4.0,
    unit="ratio of errors",
    decides="pair",
    why="Least ratio of the runner-up's error to the best one, unless both tensors are alike themselves.",
    source=UNMEASURED,
)
VALUE_MATCH_OTHER_PARTNER_RATIO = threshold(
    "VALUE_MATCH_OTHER_PARTNER_RATIO",
    0.1,
    unit="ratio of errors",
    decides="pair",
    why="A pair is not made if another tensor has less than this share of its error.",
    source=UNMEASURED,
)
VALUE_MATCH_MAX_MOMENT_DIFFERENCE = threshold(
    "VALUE_MATCH_MAX_MOMENT_DIFFERENCE",
    0.3,
    unit="share of the rms",
    decides="pair",
    why="Two tensors whose means or root mean squares differ by more are not compared by their values.",
    source=UNMEASURED,
)
VALUE_MATCH_MIN_ELEMENTS = threshold(
    "VALUE_MATCH_MIN_ELEMENTS",
    32,
    unit="elements",
    decides="pair",
    why="Tensors with fewer elements are not paired by their values: they could be alike by chance.",
    source=UNMEASURED,
)
VALUES_READ_MAX_ELEMENTS = threshold(
    "VALUES_READ_MAX_ELEMENTS",
    1 << 24,
    unit="elements",
    decides="pair",
    why="Larger tensors are neither paired by their values nor asked for the order of their dimensions. Both sides as "
    "real numbers could need more memory than there is.",
    source=UNMEASURED,
)
FUSED_AFTER_PRODUCT_MAX_NODES = threshold(
    "FUSED_AFTER_PRODUCT_MAX_NODES",
    3,
    unit="nodes",
    decides="pair",
    why="A backend fuses at most so many nodes into a product: a bias, a factor, an activation.",
    source=UNMEASURED,
)
FUSED_CHAIN_MAX_NODES = threshold(
    "FUSED_CHAIN_MAX_NODES",
    4,
    unit="nodes",
    decides="pair",
    why="Longest chain of nodes that a runtime may have fused, folded or moved around another one, and that is "
    "followed: a cast, a scale, a bias, an activation.",
    source=UNMEASURED,
)
CLEARER_CANDIDATE_MAX_ERROR_RATIO = threshold(
    "CLEARER_CANDIDATE_MAX_ERROR_RATIO",
    0.5,
    unit="ratio of errors",
    decides="pair",
    why="The right one of two candidates has at most this share of the other's error: two orders of dimensions, or a "
    "Relu's input and its result.",
    source=UNMEASURED,
)
CHANNEL_AXIS_MIN_RANK = threshold(
    "CHANNEL_AXIS_MIN_RANK",
    3,
    unit="dimensions",
    decides="pair",
    why="With fewer dimensions none is of channels that could come last on one side.",
    source=UNMEASURED,
)
CHANNEL_AXIS_MAX_RANK = threshold(
    "CHANNEL_AXIS_MAX_RANK",
    5,
    unit="dimensions",
    decides="pair",
    why="With more dimensions nobody looks for channels that come last on one side.",
    source=UNMEASURED,
)
WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS = threshold(
    "WEIGHT_IDENTIFIES_NODE_MIN_ELEMENTS",
    16,
    unit="elements",
    decides="pair",
    why="From so many elements a weight identifies its node. Constants of indices are compared up to this size.",
    source=UNMEASURED,
)
WEIGHT_MAX_REL_DISTANCE = threshold(
    "WEIGHT_MAX_REL_DISTANCE",
    0.5,
    unit="relative distance",
    decides="pair",
    why="Two weights that are further apart are different weights, and their nodes are not paired.",
    source=UNMEASURED,
)
SCALAR_MAX_REL_DIFFERENCE = threshold(
    "SCALAR_MAX_REL_DIFFERENCE",
    0.01,
    unit="relative difference",
    decides="pair",
    why="Two scalars that differ by more are different. Rounding a single number to a code of its own scale stays far "
    "below.",
    source=UNMEASURED,
)
SEGMENT_MAX_NODES = threshold(
    "SEGMENT_MAX_NODES",
    64,
    unit="nodes",
    decides="status",
    why="A part of a graph with more nodes, or tensors, is not held against another part as a whole. No known fusion "
    "is that large.",
    source=UNMEASURED,
)
NORMALIZATION_LOOKAHEAD_TENSORS = threshold(
    "NORMALIZATION_LOOKAHEAD_TENSORS",
    4,
    unit="tensors",
    decides="pair",
    why="Tensors recorded next, among which the result of a normalization may be that an export folds away.",
    source=UNMEASURED,
)
NEUTRAL_CONSTANT_MAX_ELEMENTS = threshold(
    "NEUTRAL_CONSTANT_MAX_ELEMENTS",
    4096,
    unit="elements",
    decides="pair",
    why="Larger constants are not looked at for being all 1 or all 0. Neutral ones are scalars, or one value per "
    "channel.",
    source=UNMEASURED,
)
SHARED_CONSTANT_MAX_ELEMENTS = threshold(
    "SHARED_CONSTANT_MAX_ELEMENTS",
    16,
    unit="elements",
    decides="pair",
    why="Constants up to this size are taken for the same if their values are equal.",
    source=UNMEASURED,
)
DEQUANTIZED_THROUGH_MAX_NODES = threshold(
    "DEQUANTIZED_THROUGH_MAX_NODES",
    8,
    unit="nodes",
    decides="pair",
    why="Moves in a row through which ONNX Runtime takes a DequantizeLinear, and which are looked through.",
    source=UNMEASURED,
)
