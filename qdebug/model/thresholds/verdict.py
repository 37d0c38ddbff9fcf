"""Thresholds of the status of a tensor, of the verdict, and of suggested limits."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Status and verdict: the limits if the user gives none", decides="cause")

DERIVED_LSB = threshold(
    "DERIVED_LSB",
    1.5,
    unit="LSB",
    decides="status",
    why="Maximum error that a quantized node may introduce without a given limit. The nearest code is at most "
    "half a step away. Requantizers with few bits and double rounding may choose the code next to it.",
    source="derived: half a step and one code",
)
DEFAULT_MIN_SQNR = threshold(
    "DEFAULT_MIN_SQNR",
    20.0,
    unit="dB",
    decides="status",
    why="Minimum SQNR of a tensor without a given limit whose node cannot be replayed. If clipping leaves "
    "less, that is reported, and the outputs decide.",
    source="derived: a tenth of the signal is error",
)
EQUAL_INPUTS_MIN_SQNR = threshold(
    "EQUAL_INPUTS_MIN_SQNR",
    60.0,
    unit="dB",
    decides="status",
    why="Minimum SQNR of a float32 tensor whose node does not have a kernel and reads the same inputs as the "
    "reference, bit for bit. All its error is its own, so the limit for errors that may be inherited does "
    "not apply.",
    source="derived: a thousandth, or 2**14 roundings of float32; a product of 19 bits (TF32) leaves about 66 dB",
)
EQUAL_INPUTS_MIN_SQNR_OF_16_BITS = threshold(
    "EQUAL_INPUTS_MIN_SQNR_OF_16_BITS",
    30.0,
    unit="dB",
    decides="status",
    why="The same limit if values or constants of either run were rounded to a 16-bit float format, or are "
    "too few to decide.",
    source="derived: 3 %, or 8 roundings of bfloat16",
)
CODES_MIN_SQNR = threshold(
    "CODES_MIN_SQNR",
    10.0,
    unit="dB",
    decides="status",
    why="If rounding the reference's values to a tensor's codes leaves a lower SQNR, the tensor's scale is "
    "too large. That is reported, and the outputs decide.",
)
OUTPUT_MIN_SQNR = threshold(
    "OUTPUT_MIN_SQNR",
    20.0,
    unit="dB",
    decides="status",
    why="Minimum SQNR of a network output without a given limit. Below it, the comparison fails even if every "
    "node is within its limit.",
    source="derived: a tenth of the signal is error",
)
UNJUDGED_MAX_SHARE = threshold(
    "UNJUDGED_MAX_SHARE",
    0.1,
    unit="share of the compared tensors",
    decides="status",
    why="If no node exceeds its limit, the comparison is incomplete if a larger share of the tensors was not judged.",
)
FAILED_REPLAYS_MAX_SHARE = threshold(
    "FAILED_REPLAYS_MAX_SHARE",
    0.1,
    unit="share of the tensors that could be replayed",
    decides="status",
    why="If a larger share of replays failed although kernels and recorded inputs exist, the comparison is incomplete.",
    source="chosen: a few odd nodes are no reason to doubt the rest, a tenth is",
)
CONTRIBUTORS_NAMED = threshold(
    "CONTRIBUTORS_NAMED",
    3,
    unit="nodes",
    why="Number of nodes that the verdict names as the largest contributors to an output. The JSON contains all.",
)
CONTRIBUTORS_REPLAYED = threshold(
    "CONTRIBUTORS_REPLAYED",
    16,
    unit="nodes",
    why="Number of nodes that are replayed to an output, chosen by their estimated shares; --thorough replays all.",
    source="measured: in a text classifier with 8 samples, the three costliest nodes match the whole budget",
)
CONTRIBUTION_MIN_SHARE = threshold(
    "CONTRIBUTION_MIN_SHARE",
    1e-3,
    unit="share of power",
    why="A node with a smaller estimated share of an output's error is not replayed to the output, unless "
    "there are few others.",
    source="derived: a thousandth of the power moves the SQNR by 0.004 dB",
)
CAUSES_SOUGHT = threshold(
    "CAUSES_SOUGHT",
    3,
    unit="nodes",
    why="Number of nodes for which the diagnosis searches for the cause of wrong codes; `qdebug explain` "
    "examines all nodes.",
)
DIAGNOSED_NODES = threshold(
    "DIAGNOSED_NODES",
    10,
    unit="nodes",
    why="If no node exceeds its limit, the diagnosis names this many of the nodes that cost an output most.",
)
WEIGHTS_MIN_SHARE = threshold(
    "WEIGHTS_MIN_SHARE",
    0.5,
    unit="share of power",
    why="If quantized weights cause this share of a node's own error, the diagnosis describes what is wrong with them.",
    source="derived: nothing else causes as much",
)
REMEDY_NODES = threshold(
    "REMEDY_NODES",
    2,
    unit="nodes",
    why="Number of nodes of the diagnosis on which edits are tried; --thorough tries them on all.",
)
REMEDY_SAMPLES = threshold(
    "REMEDY_SAMPLES",
    16,
    unit="samples",
    why="Number of samples, including the worst, in which the gain of an edit is measured; --thorough uses all.",
)
REMEDY_MIN_GAIN = threshold(
    "REMEDY_MIN_GAIN",
    0.5,
    unit="dB",
    why="An edit is not suggested unless it improves an output by at least this much more than a cheaper edit.",
)
CONTRIBUTOR_MAX_DISTANCE = threshold(
    "CONTRIBUTOR_MAX_DISTANCE",
    20.0,
    unit="dB",
    why="The verdict does not name a node whose error alone leaves the output an SQNR this much higher than "
    "the costliest node's does. Such a node causes a hundredth of the power.",
    source="derived: a hundredth of the power",
)
SOLE_CONTRIBUTOR_MIN_SHARE = threshold(
    "SOLE_CONTRIBUTOR_MIN_SHARE",
    0.9,
    unit="share of power",
    why="The verdict focuses on one node if it causes nearly all of an output's loss. Its error alone then "
    "causes this share of the summed power of all nodes' individual errors, and leaves the output with "
    "its actual SQNR to within a decibel.",
    source="chosen: without the node, a tenth of the power is left, and the output has 10 dB more",
)
SOLE_CONTRIBUTOR_MAX_DISTANCE = threshold(
    "SOLE_CONTRIBUTOR_MAX_DISTANCE",
    1.0,
    unit="dB",
    why="Maximum difference between the SQNR that a node's error alone leaves and the output's actual SQNR, "
    "if the node causes nearly all of the loss.",
    source="derived: a tenth of the power, and half of what its correlation with the rest may add",
)
NONFINITE_PATH_ENDS = threshold(
    "NONFINITE_PATH_ENDS",
    4,
    unit="nodes",
    why="Number of nodes that are named at each end of a long path of a NaN or an infinity.",
)
COMPOUNDING_MIN_NODES = threshold(
    "COMPOUNDING_MIN_NODES",
    5,
    unit="nodes",
    why="With fewer nodes of an operator, their usual gain is not known well enough to call a gain unusual.",
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
    why="Factor that converts the median distance from the median to the standard deviation of normally "
    "distributed gains.",
    source='cited: Hampel, "The influence curve and its role in robust estimation", 1974',
)
COMPOUNDING_MIN_GAIN = threshold(
    "COMPOUNDING_MIN_GAIN",
    2.0,
    unit="ratio of errors",
    why="An unusual gain is at least this large, and at least this many times the median. A smaller gain does "
    "not compound, however little the other nodes amplify.",
)
COMPOUNDING_MIN_ERROR_SHARE = threshold(
    "COMPOUNDING_MIN_ERROR_SHARE",
    0.01,
    unit="share of the output's error",
    why="A node whose relative error is below this share of the worst output's error is irrelevant to that output.",
)
CONTRIBUTION_MAX_WORK = threshold(
    "CONTRIBUTION_MAX_WORK",
    2e11,
    unit="multiplications",
    why="Maximum work of the replays that determine how much nodes contribute to an output, unless "
    "CONTRIBUTION_REPLAYS allows more for a large network. Work is counted rather than timed, so that "
    "results do not depend on the machine's load.",
    source="measured: about ten seconds of one core",
)
CONTRIBUTION_REPLAYS = threshold(
    "CONTRIBUTION_REPLAYS",
    10,
    unit="times the work of the whole net",
    why="Maximum work of these replays per sample in networks that take longer. It takes a third as long as "
    "the comparison itself.",
    source="measured: a text net of 464 tensors and 8 samples is compared in 70 s, and replayed once in 2 s",
)
CONTRIBUTION_ELEMENT_WORK = threshold(
    "CONTRIBUTION_ELEMENT_WORK",
    256,
    unit="multiplications",
    why="Cost of an element of a replayed tensor, in addition to the terms of its sum.",
    source="measured: ten nanoseconds, where a multiplication of a matrix product takes 0.04",
)
CONTRIBUTION_NODE_WORK = threshold(
    "CONTRIBUTION_NODE_WORK",
    2e6,
    unit="multiplications",
    why="Cost of replaying a node, however small its tensors are.",
    source="measured: a tenth of a millisecond",
)
GROWTH_MIN_NODES = threshold(
    "GROWTH_MIN_NODES",
    4,
    unit="nodes",
    decides="status",
    why="Whether rounding errors add up is examined for this many nodes of an operator or more. Fewer cannot be told "
    "from chance.",
)
GROWTH_MIN_RATIO = threshold(
    "GROWTH_MIN_RATIO",
    3.0,
    unit="times independent errors",
    decides="status",
    why="Rounding errors of an operator's nodes add up if they are this many times larger at the output than the same "
    "errors with random signs. An output of a single number reaches that by chance in 1 of 400 runs.",
    source="derived: two-sided tail of the normal distribution beyond 3",
)
GROWTH_MIN_EXCESS = threshold(
    "GROWTH_MIN_EXCESS",
    6.0,
    unit="dB",
    decides="status",
    why="An output fails if errors that add up leave an SQNR this far below that of a backend that rounds every result "
    "once to nearest. A 16-bit tensor that can only be judged together with its inputs may be this far below it.",
    source="measured: a correct runtime that also rounds its sums is up to 4.7 dB below",
)
SUGGESTED_SQNR_MARGIN = threshold(
    "SUGGESTED_SQNR_MARGIN",
    3.0,
    unit="dB",
    decides="limit",
    why="A suggested limit is this far below the lowest SQNR of the good runs.",
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
    why="A suggested limit exceeds the largest difference of the good runs by at least this much.",
)
EQUALIZED_MIN_RANGE = threshold(
    "EQUALIZED_MIN_RANGE",
    0.01,
    unit="relative difference",
    why="Minimum difference of the largest factor of a channel from the smallest. One factor for all is a wrong scale.",
)
EQUALIZED_MIN_VALUES = threshold(
    "EQUALIZED_MIN_VALUES",
    8,
    unit="elements",
    why="Minimum number of elements of each channel from which its factor is known. One factor fits a few by chance.",
)
SKETCH_SIGMAS = threshold(
    "SKETCH_SIGMAS",
    3.29,
    unit="standard deviations",
    decides="status",
    why="Half the width of the interval of an error that is estimated from sketches. A tensor is judged only if the "
    "whole interval is on one side of its limit.",
    source="derived: 99.9 % of a normal distribution; measured: tests/benchmarks/sketch_intervals.py",
)
VOCABULARY_MIN_ENTRIES = threshold(
    "VOCABULARY_MIN_ENTRIES",
    256,
    unit="entries",
    decides="flag",
    why="Minimum number of entries of an output named logits to be treated as that of a language model, one vector per "
    "token. Classifiers have fewer classes, or one vector per sample.",
    source="cited: Xue et al., 'ByT5' (2022): tokens of bytes are the smallest vocabulary",
)
