"""Thresholds of the status of a tensor, of the verdict, and of suggested limits."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Status and verdict: the limits where the user gives none", decides="cause")

DERIVED_LSB = threshold(
    "DERIVED_LSB",
    1.5,
    unit="LSB",
    decides="status",
    why="Error that a quantized node may introduce where no limit is given. The nearest code is half a step away at "
    "most. The code beside it comes from requantizers of few bits and from rounding twice.",
    source="derived: half a step and one code",
)
DEFAULT_MIN_SQNR = threshold(
    "DEFAULT_MIN_SQNR",
    20.0,
    unit="dB",
    decides="status",
    why="Least SQNR of a tensor where no limit is given and its node cannot be replayed. Where clipping leaves less, "
    "it is said, and the outputs decide.",
    source="derived: a tenth of the signal is error",
)
EQUAL_INPUTS_MIN_SQNR = threshold(
    "EQUAL_INPUTS_MIN_SQNR",
    60.0,
    unit="dB",
    decides="status",
    why="Least SQNR of a float32 tensor whose node has no kernel and reads what the reference's reads, bit for bit. "
    "Its error is its own, so the limit for errors that may have come with the inputs says nothing.",
    source="derived: a thousandth, or 2**14 roundings of float32; a product of 19 bits (TF32) leaves about 66 dB",
)
EQUAL_INPUTS_MIN_SQNR_OF_16_BITS = threshold(
    "EQUAL_INPUTS_MIN_SQNR_OF_16_BITS",
    30.0,
    unit="dB",
    decides="status",
    why="The same where values or constants of either run were rounded to a float format of 16 bits, or are too few to "
    "tell.",
    source="derived: 3 %, or 8 roundings of bfloat16",
)
CODES_MIN_SQNR = threshold(
    "CODES_MIN_SQNR",
    10.0,
    unit="dB",
    decides="status",
    why="Where rounding to a tensor's codes leaves less SQNR of the reference's values, its scale is too large. It is "
    "said, and the outputs decide.",
)
OUTPUT_MIN_SQNR = threshold(
    "OUTPUT_MIN_SQNR",
    20.0,
    unit="dB",
    decides="status",
    why="Least SQNR of a network output where no limit is given. Below, the comparison fails even if every node is "
    "within its limit.",
    source="derived: a tenth of the signal is error",
)
UNJUDGED_MAX_SHARE = threshold(
    "UNJUDGED_MAX_SHARE",
    0.1,
    unit="share of the compared tensors",
    decides="status",
    why="Where no node is beyond its limit, the comparison is incomplete if more tensors were not judged.",
)
FAILED_REPLAYS_MAX_SHARE = threshold(
    "FAILED_REPLAYS_MAX_SHARE",
    0.1,
    unit="share of the tensors that could be replayed",
    decides="status",
    why="If more replays failed though a kernel and recorded inputs are there, the comparison is incomplete.",
    source="chosen: a few odd nodes are no reason to doubt the rest, a tenth is",
)
CONTRIBUTORS_NAMED = threshold(
    "CONTRIBUTORS_NAMED",
    3,
    unit="nodes",
    why="The verdict names as many nodes that contribute most to an output. The JSON has all.",
)
CONTRIBUTORS_REPLAYED = threshold(
    "CONTRIBUTORS_REPLAYED",
    16,
    unit="nodes",
    why="As many nodes are replayed to an output, those with the largest estimated shares; --thorough replays all.",
    source="measured: of a text classifier with 8 samples the three costliest are those of the whole budget",
)
CONTRIBUTION_MIN_SHARE = threshold(
    "CONTRIBUTION_MIN_SHARE",
    1e-3,
    unit="share of power",
    why="A node with a smaller estimated share of an output's error is not replayed to it, unless few others are.",
    source="derived: a thousandth of the power moves the SQNR by 0.004 dB",
)
CAUSES_SOUGHT = threshold(
    "CAUSES_SOUGHT",
    3,
    unit="nodes",
    why="The diagnosis looks for the cause of wrong codes at as many nodes; `qdebug explain` does so at all.",
)
DIAGNOSED_NODES = threshold(
    "DIAGNOSED_NODES",
    10,
    unit="nodes",
    why="Where no node is beyond its limit, the diagnosis names as many of the nodes that cost an output most.",
)
WEIGHTS_MIN_SHARE = threshold(
    "WEIGHTS_MIN_SHARE",
    0.5,
    unit="share of power",
    why="Where weights in codes make this share of a node's own error, the diagnosis says what is wrong with them.",
    source="derived: nothing else makes as much",
)
REMEDY_NODES = threshold(
    "REMEDY_NODES",
    2,
    unit="nodes",
    why="Edits are tried on as many nodes of the diagnosis; --thorough tries them on all.",
)
REMEDY_SAMPLES = threshold(
    "REMEDY_SAMPLES",
    16,
    unit="samples",
    why="What an edit gains is measured in as many samples, the worst among them; --thorough takes all.",
)
REMEDY_MIN_GAIN = threshold(
    "REMEDY_MIN_GAIN",
    0.5,
    unit="dB",
    why="An edit that raises no output by this much more than a cheaper one does is not offered.",
)
CONTRIBUTOR_MAX_DISTANCE = threshold(
    "CONTRIBUTOR_MAX_DISTANCE",
    20.0,
    unit="dB",
    why="The verdict names no node whose error alone leaves the output this much more SQNR than that of the costliest "
    "one: it makes a hundredth of the power.",
    source="derived: a hundredth of the power",
)
SOLE_CONTRIBUTOR_MIN_SHARE = threshold(
    "SOLE_CONTRIBUTOR_MIN_SHARE",
    0.9,
    unit="share of power",
    why="The verdict is about a node that makes nearly all of an output's loss: its error alone makes this share of "
    "the power that all nodes' errors make one by one, and leaves the output the SQNR it has, to within a decibel.",
    source="chosen: without the node, a tenth of the power is left, and the output has 10 dB more",
)
SOLE_CONTRIBUTOR_MAX_DISTANCE = threshold(
    "SOLE_CONTRIBUTOR_MAX_DISTANCE",
    1.0,
    unit="dB",
    why="How far the SQNR that a node's error alone leaves may be from the output's, if it makes nearly all the loss.",
    source="derived: a tenth of the power, and half of what its correlation with the rest may add",
)
NONFINITE_PATH_ENDS = threshold(
    "NONFINITE_PATH_ENDS",
    4,
    unit="nodes",
    why="Of a long path of a NaN or an infinity, as many nodes are named at either end.",
)
COMPOUNDING_MIN_NODES = threshold(
    "COMPOUNDING_MIN_NODES",
    5,
    unit="nodes",
    why="With fewer nodes of one operator, their usual gain is not known well enough to call one unusual.",
)
COMPOUNDING_SPREADS = threshold(
    "COMPOUNDING_SPREADS",
    3.0,
    unit="spreads above the median",
    why="A gain this far above the median of its operator is unusual.",
    source='cited: Hampel, "The influence curve and its role in robust estimation", 1974',
)
MEDIAN_DISTANCE_TO_SPREAD = threshold(
    "MEDIAN_DISTANCE_TO_SPREAD",
    1.4826,
    unit="ratio",
    why="Times the median distance from the median, it is the standard deviation of normally distributed gains.",
    source='cited: Hampel, "The influence curve and its role in robust estimation", 1974',
)
COMPOUNDING_MIN_GAIN = threshold(
    "COMPOUNDING_MIN_GAIN",
    2.0,
    unit="ratio of errors",
    why="An unusual gain is at least this large, and this many times the median. Less is no compounding, however "
    "little the other nodes amplify.",
)
COMPOUNDING_MIN_ERROR_SHARE = threshold(
    "COMPOUNDING_MIN_ERROR_SHARE",
    0.01,
    unit="share of the output's error",
    why="A node whose relative error is below this share of the worst output's does not matter there.",
)
CONTRIBUTION_MAX_WORK = threshold(
    "CONTRIBUTION_MAX_WORK",
    2e11,
    unit="multiplications",
    why="Work of the replays that find what nodes contribute to an output, where the net is not so large that "
    "CONTRIBUTION_REPLAYS allow more. It is counted and not timed: results do not depend on the machine's load.",
    source="measured: about ten seconds of one core",
)
CONTRIBUTION_REPLAYS = threshold(
    "CONTRIBUTION_REPLAYS",
    10,
    unit="times the work of the whole net",
    why="Work of these replays in nets that take longer, for each sample: a third of what the comparison itself takes.",
    source="measured: a text net of 464 tensors and 8 samples is compared in 70 s, and replayed once in 2 s",
)
CONTRIBUTION_ELEMENT_WORK = threshold(
    "CONTRIBUTION_ELEMENT_WORK",
    256,
    unit="multiplications",
    why="What an element of a replayed tensor costs beside the terms of its sum.",
    source="measured: ten nanoseconds, where a multiplication of a matrix product takes 0.04",
)
CONTRIBUTION_NODE_WORK = threshold(
    "CONTRIBUTION_NODE_WORK",
    2e6,
    unit="multiplications",
    why="What the replay of a node costs however small its tensors are.",
    source="measured: a tenth of a millisecond",
)
SUGGESTED_SQNR_MARGIN = threshold(
    "SUGGESTED_SQNR_MARGIN",
    3.0,
    unit="dB",
    decides="limit",
    why="A suggested limit lies this far below the worst SQNR of the good runs.",
)
SUGGESTED_ERROR_RATIO = threshold(
    "SUGGESTED_ERROR_RATIO",
    1.5,
    unit="times the worst error",
    decides="limit",
    why="A suggested limit allows this many times the largest difference of the good runs.",
)
SUGGESTED_LSB_MARGIN = threshold(
    "SUGGESTED_LSB_MARGIN",
    1.0,
    unit="LSB",
    decides="limit",
    why="A suggested limit allows at least this much more than the largest difference of the good runs.",
)
