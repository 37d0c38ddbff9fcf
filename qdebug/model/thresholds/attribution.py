"""Thresholds of the attribution: the error that a node introduces itself, and the error that its constants add."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Attribution: what a node introduces itself, and what its constants add", decides="status")

DISTURBED_REPLAYS = threshold(
    "DISTURBED_REPLAYS",
    2,
    unit="replays",
    why="Number of disturbed replays whose root mean square estimates the rounding error.",
)
DISTURBED_REPLAYS_OF_SMALL = threshold(
    "DISTURBED_REPLAYS_OF_SMALL",
    16,
    unit="replays",
    why="The same number for small tensors, whose few elements would make the estimate unreliable.",
)
DISTURBED_SMALL_MAX_ELEMENTS = threshold(
    "DISTURBED_SMALL_MAX_ELEMENTS",
    64,
    unit="elements",
    why="Up to this size, a root mean square over two replays is unreliable.",
)
DISTURBANCE_HALF_STEPS = threshold(
    "DISTURBANCE_HALF_STEPS",
    3.0,
    unit="half steps",
    why="Maximum distance by which a disturbed replay moves a rounded value. The root mean square is then "
    "three times that of a single rounding.",
)
DYNAMIC_WRONG_MAX_SHARE = threshold(
    "DYNAMIC_WRONG_MAX_SHARE",
    0.5,
    unit="share of the elements",
    why="If a scale is chosen at run time, a node is blamed for elements that its inputs do not explain only "
    "if they make up at most this share. With more, too little is known about the node to reproduce its "
    "values.",
)
DYNAMIC_TIE_REL_DISTANCE = threshold(
    "DYNAMIC_TIE_REL_DISTANCE",
    2.0**-18,
    unit="share of the value in steps",
    why="A value this close to a tie may be rounded either way by a scale chosen at run time, since some "
    "backends multiply by a reciprocal.",
)
SLICE_MIN_ELEMENTS = threshold(
    "SLICE_MIN_ELEMENTS",
    16,
    unit="elements",
    why="Slices of a tensor with fewer elements are not judged separately.",
)
SLICE_MAX_SQUARE_RATIO = threshold(
    "SLICE_MAX_SQUARE_RATIO",
    4.0,
    unit="ratio of squared errors",
    why="A slice may have this many times its expected squared error. The error may depend on a single "
    "constant, and there are many slices.",
)
COMPUTED_CONSTANT_MAX_NODES = threshold(
    "COMPUTED_CONSTANT_MAX_NODES",
    32,
    unit="nodes",
    why="Maximum number of consecutive nodes that compute a constant. Further upstream, the recorded constant is used.",
)
COARSE_SCALE_RATIO = threshold(
    "COARSE_SCALE_RATIO",
    8.0,
    unit="ratio of steps",
    why="A constant is rounded too coarsely if its step is this many times the step that its range requires.",
    source="derived: three bits, or 18 dB, are thrown away",
)
FREE_SCALE_MAX_CODES = threshold(
    "FREE_SCALE_MAX_CODES",
    1 << 16,
    unit="codes",
    why="Types with more codes have a prescribed scale, such as a bias. Their range does not determine their step.",
    source="derived: the codes of 16 bits",
)
CONSTANT_EVIDENCE_MIN_ELEMENTS = threshold(
    "CONSTANT_EVIDENCE_MIN_ELEMENTS",
    16,
    unit="elements",
    why="Constants with fewer elements show neither the step that their range requires nor the format of the network.",
)
FORMAT_VOTE_CONSTANTS = threshold(
    "FORMAT_VOTE_CONSTANTS",
    8,
    unit="constants",
    why="Number of largest constants whose median determines the float format in which a network was stored.",
)
FLOAT16_FLOOR = threshold(
    "FLOAT16_FLOOR",
    2.0**-23,
    unit="absolute error",
    why="Converters to float16 replace values that would become 0 by 1e-7. A small constant may be changed by "
    "that much.",
    source="cited: onnxconverter-common; derived: two of float16's smallest subnormals, 2^-24 each",
)
SOFTMAX_UNDERFLOW_DISTANCE = threshold(
    "SOFTMAX_UNDERFLOW_DISTANCE",
    104.0,
    unit="difference of logits",
    why="Values this far below the largest value of their row are hidden by a mask: exp gives 0 in float32.",
    source="derived: exp(-104) is below half of float32's smallest subnormal, 2^-149",
)
SOFTMAX_NEGLIGIBLE_DISTANCE = threshold(
    "SOFTMAX_NEGLIGIBLE_DISTANCE",
    8.0,
    unit="difference of logits",
    why="Values this far below the largest value of their row amount to less than a tenth of an 8-bit code. Values "
    "hidden by a mask must stay that far below as codes.",
    source="derived: 256 * exp(-8) is 0.09",
)
UNDECLARED_CODE_MAX_BITS = threshold(
    "UNDECLARED_CODE_MAX_BITS",
    16,
    unit="bits",
    why="Integers of up to this width that an operator computes may be codes without a recorded scale. Wider "
    "integers must be exact.",
)
UNDECLARED_SUM_MAX_BITS = threshold(
    "UNDECLARED_SUM_MAX_BITS",
    32,
    unit="bits",
    why="Integers of up to this width and unknown origin may be codes, or sums of codes. Wider integers must be exact.",
)
INTEGER_ORIGIN_MAX_TENSORS = threshold(
    "INTEGER_ORIGIN_MAX_TENSORS",
    64,
    unit="tensors",
    why="Maximum number of tensors that are followed to decide whether integers are codes. If there are more, "
    "they may be codes.",
)
CHANNEL_AXIS_MAX_NODES = threshold(
    "CHANNEL_AXIS_MAX_NODES",
    64,
    unit="nodes",
    decides="cause",
    why="Maximum number of nodes that are followed to find a tensor's channel axis.",
)
MOMENTS_MIN_REL_ERROR = threshold(
    "MOMENTS_MIN_REL_ERROR",
    1e-6,
    unit="share of the norm",
    why="Smaller differences of recorded means and deviations do not prove an error, since rounding the "
    "statistics causes as much.",
)
SUBSTITUTE_REPLAY_MAX_ERROR_RATIO = threshold(
    "SUBSTITUTE_REPLAY_MAX_ERROR_RATIO",
    0.1,
    unit="ratio of errors",
    why="The reference's nodes explain a tensor if their error is below this share of the error of the "
    "tensor's own node.",
)
SELF_CHECK_MIN_ERROR_RATIO = threshold(
    "SELF_CHECK_MIN_ERROR_RATIO",
    0.8,
    unit="ratio of errors",
    why="If both runs differ from their own replays by similar amounts, with a ratio of at least this, "
    "something about both nodes was not recorded.",
)
PASSED_ON_MAX_ERROR_RATIO = threshold(
    "PASSED_ON_MAX_ERROR_RATIO",
    2.0,
    unit="ratio of relative errors",
    why="A node that cannot be replayed is not blamed if its error is at most this many times the error of an input.",
)
REPLAY_MIN_ELEMENTS = threshold(
    "REPLAY_MIN_ELEMENTS",
    1 << 24,
    unit="elements",
    why="A replay may produce a tensor of this size regardless of its inputs. A larger tensor requires larger "
    "inputs, or a recorded output of that size.",
)
GRAPH_MIN_ELEMENTS = threshold(
    "GRAPH_MIN_ELEMENTS",
    1 << 27,
    unit="elements",
    why="The same limit for running a whole graph whose tensors were not recorded before.",
)
REPLAY_MAX_GROWTH = threshold(
    "REPLAY_MAX_GROWTH",
    64,
    unit="times the elements of the largest recorded input",
    why="Maximum growth of a tensor in a replay if the recorded size is unknown. Attributes of a damaged or "
    "hostile recording could request any size.",
)
REPLAY_MIN_WORK = threshold(
    "REPLAY_MIN_WORK",
    1 << 28,
    unit="elements",
    why="A node may process this many elements regardless of its inputs, which takes less than a second.",
)
REPLAY_MAX_WORK = threshold(
    "REPLAY_MAX_WORK",
    1024,
    unit="times the elements of the largest tensor of the node",
    why="A node that processes more elements is not replayed. The largest windows in use have a few hundred taps.",
)
REPLAY_TURN_WORK = threshold(
    "REPLAY_TURN_WORK",
    1000,
    unit="elements",
    why="An iteration of a kernel's own loop counts as this many elements.",
)
