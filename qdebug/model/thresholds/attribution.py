"""Thresholds of the attribution: the error that a node introduces itself, and the error that its constants add."""

from __future__ import annotations

from qdebug.model.thresholds.table import ThresholdGroup

threshold = ThresholdGroup("Attribution: what a node introduces itself, and what its constants add", decides="status")

DISTURBED_REPLAYS = threshold(
    "DISTURBED_REPLAYS",
    2,
    unit="replays",
    why="A root mean square over so many disturbed replays estimates the error that rounding makes.",
)
DISTURBED_REPLAYS_OF_SMALL = threshold(
    "DISTURBED_REPLAYS_OF_SMALL",
    16,
    unit="replays",
    why="The same for small tensors, whose few elements would leave the estimate to chance.",
)
DISTURBED_SMALL_MAX_ELEMENTS = threshold(
    "DISTURBED_SMALL_MAX_ELEMENTS",
    64,
    unit="elements",
    why="Up to this size a root mean square over two replays is a matter of chance.",
)
DISTURBANCE_HALF_STEPS = threshold(
    "DISTURBANCE_HALF_STEPS",
    3.0,
    unit="half steps",
    why="A disturbed replay moves a rounded value by at most this much. The root mean square is then three times that "
    "of one rounding.",
)
DYNAMIC_WRONG_MAX_SHARE = threshold(
    "DYNAMIC_WRONG_MAX_SHARE",
    0.5,
    unit="share of the elements",
    why="Where a scale is chosen at run time, a node is named for elements that its inputs do not account for if they "
    "are no more than this share. With more, what is known of the node does not give its values.",
)
DYNAMIC_TIE_REL_DISTANCE = threshold(
    "DYNAMIC_TIE_REL_DISTANCE",
    2.0**-18,
    unit="share of the value in steps",
    why="A value this near to a tie may be rounded either way by a scale chosen at run time. Some backends multiply by "
    "a reciprocal.",
)
SLICE_MIN_ELEMENTS = threshold(
    "SLICE_MIN_ELEMENTS",
    16,
    unit="elements",
    why="Slices of a tensor with fewer elements are not judged by themselves.",
)
SLICE_MAX_SQUARE_RATIO = threshold(
    "SLICE_MAX_SQUARE_RATIO",
    4.0,
    unit="ratio of squared errors",
    why="A slice may have this many times its expected squared error. The error may hang on one constant alone, and "
    "there are many slices.",
)
COMPUTED_CONSTANT_MAX_NODES = threshold(
    "COMPUTED_CONSTANT_MAX_NODES",
    32,
    unit="nodes",
    why="Nodes in a row that make a constant. Further up, the constant is taken as it was recorded.",
)
COARSE_SCALE_RATIO = threshold(
    "COARSE_SCALE_RATIO",
    8.0,
    unit="ratio of steps",
    why="A constant whose step is this many times the one that its range needs is rounded too coarsely.",
    source="derived: three bits, or 18 dB, are thrown away",
)
FREE_SCALE_MAX_CODES = threshold(
    "FREE_SCALE_MAX_CODES",
    1 << 16,
    unit="codes",
    why="Types with more codes have a prescribed scale, as that of a bias. Their range does not tell their step.",
    source="derived: the codes of 16 bits",
)
CONSTANT_EVIDENCE_MIN_ELEMENTS = threshold(
    "CONSTANT_EVIDENCE_MIN_ELEMENTS",
    16,
    unit="elements",
    why="Constants with fewer elements tell neither the step that their range needs nor the format of the network.",
)
FORMAT_VOTE_CONSTANTS = threshold(
    "FORMAT_VOTE_CONSTANTS",
    8,
    unit="constants",
    why="The median over so many of the largest constants tells the float format in which a network was kept.",
)
FLOAT16_FLOOR = threshold(
    "FLOAT16_FLOOR",
    2.0**-23,
    unit="absolute error",
    why="Converters to float16 keep what would become 0 at 1e-7. A small constant may be moved by that.",
    source="cited: onnxconverter-common; derived: two of float16's smallest subnormals, 2^-24 each",
)
SOFTMAX_UNDERFLOW_DISTANCE = threshold(
    "SOFTMAX_UNDERFLOW_DISTANCE",
    104.0,
    unit="difference of logits",
    why="Values this far below the largest of their row are hidden by a mask: exp gives 0 in float32.",
    source="derived: exp(-104) is below half of float32's smallest subnormal, 2^-149",
)
SOFTMAX_NEGLIGIBLE_DISTANCE = threshold(
    "SOFTMAX_NEGLIGIBLE_DISTANCE",
    8.0,
    unit="difference of logits",
    why="Values this far below the largest of their row give less than a tenth of a code of 8 bits. What a mask hides "
    "has to stay that far below as codes.",
    source="derived: 256 * exp(-8) is 0.09",
)
UNDECLARED_CODE_MAX_BITS = threshold(
    "UNDECLARED_CODE_MAX_BITS",
    16,
    unit="bits",
    why="Integers up to this width that an operator computes may be codes without a recorded scale. Wider ones must be "
    "exact.",
)
UNDECLARED_SUM_MAX_BITS = threshold(
    "UNDECLARED_SUM_MAX_BITS",
    32,
    unit="bits",
    why="Integers up to this width of unknown origin may be codes, or sums of codes. Wider ones must be exact.",
)
INTEGER_ORIGIN_MAX_TENSORS = threshold(
    "INTEGER_ORIGIN_MAX_TENSORS",
    64,
    unit="tensors",
    why="Tensors that are followed to find whether integers are codes. If more lead there, they may be codes.",
)
CHANNEL_AXIS_MAX_NODES = threshold(
    "CHANNEL_AXIS_MAX_NODES",
    64,
    unit="nodes",
    decides="cause",
    why="Nodes that are followed to find the axis of a tensor's channels.",
)
MOMENTS_MIN_REL_ERROR = threshold(
    "MOMENTS_MIN_REL_ERROR",
    1e-6,
    unit="share of the norm",
    why="Smaller differences of recorded means and deviations prove no error: rounding the statistics makes as much.",
)
SUBSTITUTE_REPLAY_MAX_ERROR_RATIO = threshold(
    "SUBSTITUTE_REPLAY_MAX_ERROR_RATIO",
    0.1,
    unit="ratio of errors",
    why="The reference's nodes account for a tensor if their error is below this share of that of the tensor's own "
    "node.",
)
SELF_CHECK_MIN_ERROR_RATIO = threshold(
    "SELF_CHECK_MIN_ERROR_RATIO",
    0.8,
    unit="ratio of errors",
    why="Where both runs are off their own replays alike, by this ratio or nearer to 1, something was not recorded of "
    "both nodes.",
)
PASSED_ON_MAX_ERROR_RATIO = threshold(
    "PASSED_ON_MAX_ERROR_RATIO",
    2.0,
    unit="ratio of relative errors",
    why="A node that cannot be replayed is not blamed if its error is at most this many times that of an input.",
)
REPLAY_MIN_ELEMENTS = threshold(
    "REPLAY_MIN_ELEMENTS",
    1 << 24,
    unit="elements",
    why="A replay may make a tensor of this size whatever it reads. A larger one needs larger inputs, or a recorded "
    "output of that size.",
)
GRAPH_MIN_ELEMENTS = threshold(
    "GRAPH_MIN_ELEMENTS",
    1 << 27,
    unit="elements",
    why="The same where a whole graph is run, whose tensors were not recorded before.",
)
REPLAY_MAX_GROWTH = threshold(
    "REPLAY_MAX_GROWTH",
    64,
    unit="times the elements of the largest recorded input",
    why="A replay makes no larger tensor where nothing says how large the recorded one was. Attributes of a damaged "
    "or hostile recording could ask for any size.",
)
REPLAY_MIN_WORK = threshold(
    "REPLAY_MIN_WORK",
    1 << 28,
    unit="elements",
    why="A node may go through this many elements whatever it reads: less than a second of work.",
)
REPLAY_MAX_WORK = threshold(
    "REPLAY_MAX_WORK",
    1024,
    unit="times the elements of the largest tensor of the node",
    why="A node that goes through more elements is not replayed. The largest windows in use have a few hundred taps.",
)
REPLAY_TURN_WORK = threshold(
    "REPLAY_TURN_WORK",
    1000,
    unit="elements",
    why="A turn of a kernel's own loop counts as this many elements.",
)
