"""Channels lie where the operators of a net put them, not in the second dimension of everything."""

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.measure.channel_axis import channel_axis
from qdebug.compare.measure.pair_values import PairReader
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

F32 = np.float32


def graph_of(steps, shapes, *, constants=(), layouts=None):
    """Make a graph of steps (op, inputs, output, attributes)."""
    nodes = [
        Node(name=f"n{at}", op=op, inputs=inputs, outputs=(output,), attrs=attrs)
        for at, (op, inputs, output, attrs) in enumerate(steps)
    ]
    names = dict.fromkeys([*shapes, *(name for node in nodes for name in (*node.inputs, *node.outputs))])
    tensors = [
        TensorInfo(
            name=name,
            shape=shapes.get(name),
            role=Role.CONSTANT if name in constants else Role.ACTIVATION,
            layout=(layouts or {}).get(name),
        )
        for name in names
    ]
    return Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",))


def axis_of(graph, shape, *, quant=None, backend=None, **views):
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="named alike", **views)
    runs = (MemoryRecording.single(each, {}) for each in (graph, backend or graph))
    return channel_axis(*runs, pair, shape, quant=quant)


@pytest.mark.parametrize(
    ("shape", "op", "layout", "axis", "expected"),
    [
        ((3,), "Relu", None, None, None),
        ((), "Relu", None, None, None),
        ((2, 5), "Gemm", None, None, 1),
        ((2, 7, 5), "MatMul", None, None, 2),
        ((2, 3, 7, 5), "MatMul", None, None, 3),
        ((2, 7, 5), "LayerNormalization", None, None, 2),
        ((2, 7, 5), "QLinearConv", None, None, 1),
        ((2, 7, 5), "GroupNormalization", None, None, 1),
        ((2, 7, 5), "Unknown", None, None, 2),
        ((2, 7, 5, 5), "Relu", None, None, 1),
        ((2, 5, 5, 7), "Relu", "NHWC", None, 3),
        ((2, 5, 5, 7), "NhwcFusedConv", None, None, 3),
        ((2, 1, 5, 5, 8), "Conv", "NCHW8c", None, 1),
        ((2, 2, 2), "MatMul", None, 0, 0),
        ((2, 2, 2), "MatMul", None, -2, 1),
    ],
)
def test_the_operator_the_layout_or_the_scales_say_it(shape, op, layout, axis, expected):
    quant = None if axis is None else QuantParams(dtype="int8", scale=F32([0.5, 1.0]), axis=axis)
    graph = graph_of([(op, ("x",), "y", {})], {"y": shape}, layouts={"y": layout})
    assert axis_of(graph, shape, quant=quant) == expected


TOKENS = (2, 7, 12)


@pytest.mark.parametrize(
    ("steps", "shapes", "shape", "expected"),
    [
        # what is computed element by element has the channels of what it reads
        (
            [("MatMul", ("x", "w"), "a", {}), ("Add", ("b", "a"), "c", {}), ("Gelu", ("c",), "y", {})],
            {"a": TOKENS, "c": TOKENS, "b": (12,)},
            TOKENS,
            2,
        ),
        ([("Conv", ("x", "w"), "a", {}), ("QuantizeLinear", ("a", "b"), "y", {})], {"a": TOKENS}, TOKENS, 1),
        ([("Gather", ("w", "x"), "y", {"axis": 0})], {"w": (100, 12)}, TOKENS, 2),
        # heads: 12 features of a token are 3 x 4, and the last dimension of these is one of features
        (
            [("MatMul", ("x", "w"), "a", {}), ("Reshape", ("a", "b"), "y", {})],
            {"a": TOKENS, "y": (2, 7, 3, 4)},
            (2, 7, 3, 4),
            3,
        ),
        (
            [
                ("MatMul", ("x", "w"), "a", {}),
                ("Reshape", ("a", "b"), "c", {}),
                ("Transpose", ("c",), "y", {"perm": (0, 2, 3, 1)}),
            ],
            {"a": TOKENS, "c": (2, 7, 3, 4)},
            (2, 3, 4, 7),
            2,
        ),
        # patches of an image: the channels of the convolution become the features of tokens
        (
            [
                ("Conv", ("x", "w"), "a", {}),
                ("Reshape", ("a", "b"), "c", {}),
                ("Transpose", ("c",), "y", {"perm": (0, 2, 1)}),
            ],
            {"a": (2, 12, 4, 4), "c": (2, 12, 16)},
            (2, 16, 12),
            2,
        ),
        (
            [("Conv", ("x", "w"), "a", {}), ("Transpose", ("a",), "y", {"perm": (0, 2, 3, 1)})],
            {"a": (1, 5, 4, 4)},
            (1, 4, 4, 5),
            3,
        ),
        # the first token of each sample
        (
            [("MatMul", ("x", "w"), "a", {}), ("Gather", ("a", "b"), "y", {"axis": 1})],
            {"a": (2, 7, 3, 12), "b": ()},
            (2, 3, 12),
            2,
        ),
        ([("Conv", ("x", "w"), "a", {}), ("Flatten", ("a",), "y", {})], {"a": (2, 5, 3, 3)}, (2, 45), 1),
    ],
)
def test_channels_are_followed_through_what_arranges_them(steps, shapes, shape, expected):
    graph = graph_of(steps, {**shapes, "y": shape}, constants=("w", "b"))
    assert axis_of(graph, shape) == expected


@pytest.mark.parametrize(
    ("steps", "shape", "expected"),
    [
        ([("Conv", ("x", "y"), "a", {})], (16, 8, 3, 3), 0),
        ([("DequantizeLinear", ("y", "s", "z"), "w", {}), ("Conv", ("x", "w"), "a", {})], (16, 8, 3, 3), 0),
        ([("ConvTranspose", ("x", "y"), "a", {})], (8, 16, 3, 3), 1),
        ([("MatMul", ("x", "y"), "a", {})], (8, 16), 1),
        ([("Gemm", ("x", "y"), "a", {"transB": 1})], (16, 8), 0),
        ([("QLinearConv", ("x", "s", "z", "y", "s", "z", "s", "z"), "a", {})], (16, 8, 3, 3), 0),
        ([("Conv", ("x", "y"), "a", {})], (1, 8, 3, 3), 1),  # one output channel is none to tell apart
    ],
)
def test_channels_of_a_weight_are_those_of_the_outputs(steps, shape, expected):
    graph = graph_of(steps, {"y": shape}, constants=("y", "s", "z"))
    assert axis_of(graph, shape) == expected


def test_a_graph_of_which_no_shape_is_known_does_no_harm():
    steps = [("Conv", ("x", "w"), "a", {}), ("Reshape", ("a", "b"), "c", {}), ("Add", ("c", "c"), "y", {})]
    assert axis_of(graph_of(steps, {}), (2, 3, 4, 5)) == 1


def test_recorded_extents_tell_where_a_graph_declares_none():
    """A detector's head: rows of boxes and scores for each place, of extents that no exporter writes down."""
    steps = [
        ("Conv", ("x", "w"), "a", {}),
        ("Reshape", ("a", "b"), "c", {}),
        ("Sigmoid", ("c",), "scores", {}),
        ("Conv", ("x", "w"), "d", {}),
        ("Reshape", ("d", "b"), "boxes", {}),
        ("Concat", ("boxes", "scores"), "y", {"axis": 1}),
    ]
    graph = graph_of(steps, {}, constants=("w", "b"))
    shapes = {
        "a": (1, 18, 30, 70),
        "c": (1, 18, 2100),
        "scores": (1, 18, 2100),
        "d": (1, 1, 4, 2100),
        "boxes": (1, 4, 2100),
        "y": (1, 22, 2100),
    }
    run = MemoryRecording.single(graph, {name: np.zeros(shape, F32) for name, shape in shapes.items()})
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="named alike")
    assert channel_axis(run, run, pair, shapes["y"]) == 1
    assert axis_of(graph_of(steps, shapes, constants=("w", "b")), shapes["y"]) == 1
    assert PairReader(run, run, pair).channel_axis(shapes["y"]) == 1


def test_the_backend_s_operator_counts_where_the_reference_has_none():
    unknown = graph_of([("Unknown", (), "y", {})], {"y": (2, 3, 4, 5)})
    backend = graph_of([("MatMul", ("x", "w"), "y", {})], {"y": (2, 3, 4, 5)})
    assert axis_of(unknown, (2, 3, 4, 5), backend=backend) == 3
    turned = Transform(transpose=(0, 2, 3, 1))  # in which order its dimensions are then is another matter
    assert axis_of(unknown, (2, 3, 4, 5), backend=backend, backend_view=turned) == 1


def test_a_profile_counts_features_of_a_net_of_tokens():
    rng = np.random.default_rng(3)
    steps = [("MatMul", ("x", "w"), "a", {}), ("Softmax", ("a",), "y", {})]
    shape = (1, 4, 6, 8)
    graph = graph_of(steps, {"a": shape, "y": shape})
    theirs = rng.normal(size=shape).astype(F32)
    ours = theirs.copy()
    ours[..., 5] += 1
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="named alike")
    reader = PairReader(*(MemoryRecording.single(graph, {"y": side}) for side in (theirs, ours)), pair)
    channels = reader.profile().channels
    assert channels.axis == 3
    assert channels.max_abs.argmax() == 5


def test_data_that_a_constant_is_multiplied_with_is_no_weight():
    """Keys scaled by a constant: whichever operand stands first, their features are not those of a weight."""

    def scaled(*operands):
        steps = [("MatMul", ("h", "w"), "k", {}), ("Transpose", ("k",), "kt", {"perm": (0, 2, 1)})]
        steps += [("Mul", operands, "y", {}), ("MatMul", ("x", "y"), "a", {})]
        shapes = {"k": (1, 7, 12), "kt": (1, 12, 7), "c": (), "y": (1, 12, 7)}
        graph = graph_of(steps, shapes, constants=("w", "c"))
        return axis_of(graph, (1, 12, 7))

    assert scaled("c", "kt") == scaled("kt", "c") == 1
