"""A run with channels last throughout is compared with one that has them second: extents and values tell."""

from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.compare.align import channels_last as channels_last_module
from qdebug.compare.align.channels_last import (
    _choose_order_by_values,
    _is_permuted,
    _is_unstated_transpose,
    _order_with_channels_second,
    _side_by_extents,
    _side_by_layout,
    moved_shape,
)
from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair, Side, Transform
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(8)
WEIGHTS = {
    "w0": RNG.normal(size=(6, 3, 3, 3)).astype(np.float32) / 4,
    "w1": RNG.normal(size=(6, 6, 3, 3)).astype(np.float32) / 6,
}
WORDS = {"Conv": "CONV_2D", "Relu": "RELU", "MaxPool": "MAX_POOL_2D", "Sigmoid": "LOGISTIC"}


def net(size, weights=WEIGHTS):
    """Record Conv, Relu, Conv, Relu, MaxPool, Sigmoid on an image."""
    x = RNG.normal(size=(1, 3, *size)).astype(np.float32)
    nodes = [
        Node(name="c0", op="Conv", inputs=("x", "w0"), outputs=("a",), attrs={"pads": (1, 1, 1, 1)}),
        Node(name="r0", op="Relu", inputs=("a",), outputs=("b",)),
        Node(name="c1", op="Conv", inputs=("b", "w1"), outputs=("c",), attrs={"pads": (1, 1, 1, 1)}),
        Node(name="r1", op="Relu", inputs=("c",), outputs=("d",)),
        Node(name="p", op="MaxPool", inputs=("d",), outputs=("e",), attrs={"kernel_shape": (2, 2), "strides": (2, 2)}),
        Node(name="s", op="Sigmoid", inputs=("e",), outputs=("y",)),
    ]
    values = {"x": x, **weights}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    tensors = [TensorInfo(name="x", role=Role.INPUT), *(TensorInfo(name=n, role=Role.CONSTANT) for n in weights)]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 18}), values)


def channels_last(full, *, fused=True, weights=True, wrong=None, second=None):
    """Hand over a run with channels last, in words of TensorFlow Lite; Relus inside the convolutions, unsaid.

    Args:
        full: The run with channels second.
        fused: Whether Relus are inside the convolutions.
        weights: Whether it tells the convolutions' weights.
        wrong: A tensor of which two channels are exchanged.
        second: A tensor that is handed over with channels second all the same.
    """
    with qdebug.Recorder(None, backend="harness") as rec:
        renamed = {}
        for name in ("x", *(node.outputs[0] for node in full.graph.nodes)):
            node = full.graph.producer(name)
            values = full.load(name) if name == second else np.ascontiguousarray(np.moveaxis(full.load(name), 1, -1))
            if name == wrong:
                values[..., 1:3] = values[..., 2:0:-1].copy()
            if node is None:
                rec.put("image", values)
                renamed[name] = "image"
            elif fused and node.op == "Conv":
                relu = full.graph.consumers(name)[0].outputs[0]
                renamed[relu] = f"layer {name}"
                read = [renamed[node.inputs[0]]]
                if weights:
                    weight = full.load(node.inputs[1]).transpose(0, 2, 3, 1)
                    rec.constant(f"filter {name}", np.ascontiguousarray(weight))
                    read.append(f"filter {name}")
                values = np.ascontiguousarray(np.moveaxis(full.load(relu), 1, -1))
                if relu == wrong:
                    values[..., 1:3] = values[..., 2:0:-1].copy()
                rec.put(renamed[relu], values, node=f"CONV_2D {name}", op="CONV_2D", inputs=read)
            elif not fused or node.op != "Relu":
                renamed[name] = f"layer {name}"
                rec.put(renamed[name], values, node=f"node {name}", op=WORDS[node.op], inputs=[renamed[node.inputs[0]]])
        rec.outputs(renamed["y"])
    return rec.recording


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("size", [(8, 12), (8, 8), (6, 6)])
def test_a_run_with_channels_last_is_compared_as_it_is(size, fused, weights):
    full = net(size)
    other = channels_last(full, fused=fused, weights=weights)
    for pair in ((full, other), (other, full)):
        result = qdebug.diff(*pair)
        assert result.exit_code == 0
        assert {node.metrics.mismatches for node in result.nodes} == {0}
    assert qdebug.diff(full, other).coverage.compared == (5 if fused else 7)


def test_values_of_huge_tensors_are_not_looked_at(monkeypatch):
    """Both sides as real numbers would take more memory than there is; what tensors are made of tells the order too."""
    monkeypatch.setattr(channels_last_module, "VALUES_READ_MAX_ELEMENTS", 0)
    monkeypatch.setattr(channels_last_module, "np", None)
    full = net((8, 12))
    result = qdebug.diff(full, channels_last(full, fused=False))
    assert result.exit_code == 0
    assert {node.metrics.mismatches for node in result.nodes} == {0}


@pytest.mark.parametrize("size", [(8, 12), (6, 6)])
def test_channels_that_are_swapped_are_a_finding(size):
    full = net(size)
    result = qdebug.diff(full, channels_last(full, wrong="d"))
    assert result.first_divergence == "CONV_2D c"


def test_a_transpose_that_is_missing_is_no_layout():
    """Nothing but a dense net: another order of dimensions is a fault, whatever the values are."""
    x = RNG.normal(size=(1, 5, 7)).astype(np.float32)
    nodes = [
        Node(name="r", op="Relu", inputs=("x",), outputs=("a",)),
        Node(name="t", op="Transpose", inputs=("a",), outputs=("b",), attrs={"perm": (0, 2, 1)}),
        Node(name="s", op="Sigmoid", inputs=("b",), outputs=("y",)),
    ]
    values = {"x": x}
    for node in nodes:
        values.update(run_node(node, values, {"": 18}))
    graph = Graph(nodes, inputs=("x",), outputs=("y",), opset={"": 18})
    good = MemoryRecording.single(graph, values)
    turned = {name: array.transpose(0, 2, 1) if name in ("b", "y") else array for name, array in values.items()}
    result = qdebug.diff(good, MemoryRecording.single(graph, turned))
    assert result.exit_code != 0
    assert any(node.status == "incomparable" for node in result.nodes)


@pytest.mark.parametrize("second", ["a", "b", "c", "d"])
def test_a_tensor_with_channels_second_among_others_is_told_by_its_values(second):
    """Its extents are equal, so that both orders fit; a harness may turn some tensors and hand over others."""
    full = net((6, 6))
    other = channels_last(full, fused=False, second=second)
    for pair in ((full, other), (other, full)):
        result = qdebug.diff(*pair)
        assert result.exit_code == 0
        assert {node.metrics.mismatches for node in result.nodes} == {0}


@pytest.mark.parametrize("perm", [(0, 1, 3, 2), (0, 2, 1, 3), (0, 3, 1, 2), (3, 2, 1, 0)])
def test_a_turn_whose_order_nobody_says_is_told_by_the_extents(perm):
    """It may be any order, not that of channels last alone; a second turn, unsaid as well, undoes it."""
    x = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    positive = np.maximum(x, 0)
    runs = []
    for turns in (False, True):
        with qdebug.Recorder(None, backend="harness") as rec:
            rec.put("x", x)
            rec.put("a", positive, node="relu", op="Relu", inputs=["x"])
            if turns:
                rec.put("turned", positive.transpose(perm), node="there", op="Transpose", inputs=["a"])
                rec.put("back", positive, node="back", op="Transpose", inputs=["turned"])
            rec.put("y", np.tanh(positive), node="tanh", op="Tanh", inputs=["back" if turns else "a"])
            rec.outputs("y")
        runs.append(rec.recording)
    result = qdebug.diff(*runs)
    assert result.exit_code == 0
    assert {node.tensor: node.metrics.mismatches for node in result.nodes} == dict.fromkeys(
        ("x", "a", "turned", "back", "y"), 0
    )


def one_tensor(shape, *, op="Relu", layout=None, values=True, attrs=None, given="x"):
    """Index a run of one node whose input and output have some extents."""
    node = Node(name="n", op=op, inputs=(given,), outputs=("y",), attrs=attrs or {})
    infos = [TensorInfo(name=name, shape=shape, layout=layout) for name in (given, "y")]
    held = {} if values is False else dict.fromkeys((given, "y"), np.zeros(shape) if values is True else values)
    return IndexedRecording.of(
        MemoryRecording.single(Graph([node], tensors=infos, inputs=(given,), outputs=("y",)), held)
    )


def sides_of(theirs, ours, **facts):
    """Return a context of two runs of one node, and the pair of their results."""
    context = Context(ref=one_tensor(theirs, **facts), be=one_tensor(ours, **facts))
    return context, Pair(reference="y", backend="y", match=Match.EXACT, reason="same name")


@pytest.mark.parametrize(
    ("shape", "moved"), [((1, 2, 3, 4), (1, 4, 2, 3)), ((1, 2, 3), (1, 3, 2)), ((1, 2), (1, 2)), ((5,), (5, 5))]
)
def test_the_last_extent_is_put_second(shape, moved):
    assert moved_shape(shape) == moved


@pytest.mark.parametrize(
    ("theirs", "ours", "side"),
    [
        ((1, 3, 8, 9), (1, 8, 9, 3), Side.BACKEND),
        ((1, 8, 9, 3), (1, 3, 8, 9), Side.REFERENCE),
        ((1, 3, 8), (1, 8, 3), Side.BACKEND),
        ((1, 3, 8, 9), (1, 3, 8, 9), None),
        ((1, 3, 8, 9), (1, 9, 8, 3), None),
        ((3, 8), (8, 3), None),  # too few dimensions to have channels last
        ((1, 3, 8, 9), (1, 8, 3), None),
    ],
)
@pytest.mark.parametrize("values", [True, False])
def test_what_a_convolution_gives_tells_which_side_has_channels_last(theirs, ours, side, values):
    for op in ("Conv", "MaxPool"):
        context, pair = sides_of(theirs, ours, op=op, values=values)
        assert _side_by_extents(context, pair) == side
        turned = replace(pair, backend_view=Transform(transpose=(0, 1, 2, 3)))
        assert _side_by_extents(context, turned) is None
    context, pair = sides_of(theirs, ours, values=values)
    assert _side_by_extents(context, pair) is None  # a Relu may read anything
    fed = replace(pair, reference="x", backend="x")
    assert _side_by_extents(context, fed) == side
    half = Context(ref=one_tensor(theirs), be=one_tensor(ours, given="z"))
    assert _side_by_extents(half, replace(pair, reference="y", backend="z")) is None


def test_a_declared_layout_of_one_side_tells_it():
    for theirs, ours, side in (
        ("NCHW", "NHWC", Side.BACKEND),
        ("NHWC", "NCHW", Side.REFERENCE),
        (None, "NHWC", Side.BACKEND),
        ("NHWC", "NHWC", None),
        ("NCHW", None, None),
    ):
        context = Context(ref=one_tensor((1, 2, 3, 4), layout=theirs), be=one_tensor((1, 2, 3, 4), layout=ours))
        assert _side_by_layout(context, Pair(reference="y", backend="y", match=Match.EXACT, reason="")) == side


@pytest.mark.parametrize(
    ("op", "theirs", "ours", "turned"),
    [
        ("Relu", (1, 2, 3, 4), (1, 4, 3, 2), True),
        ("Relu", (2, 3), (3, 2), True),
        ("Relu", (1, 2, 3, 4), (1, 2, 3, 4), False),
        ("Relu", (1, 2, 3, 4), (1, 2, 3, 5), False),
        ("Transpose", (1, 2, 3, 4), (1, 4, 3, 2), False),
        ("Reshape", (1, 2, 3, 4), (1, 4, 3, 2), False),
    ],
)
def test_extents_in_another_order_are_a_turn_unless_the_node_makes_it(op, theirs, ours, turned):
    context, pair = sides_of(theirs, ours, op=op)
    assert _is_permuted(context, pair) == turned
    assert not _is_permuted(context, replace(pair, backend="x", reference="x"))  # nothing makes it
    assert not _is_permuted(context, replace(pair, reference_view=Transform(channel_block=8)))


@pytest.mark.parametrize(
    ("theirs", "ours", "order"),
    [
        ((1, 3, 8, 9), (1, 8, 9, 3), (0, 3, 1, 2)),
        ((1, 3, 8, 9), (1, 9, 3, 8), (0, 2, 3, 1)),
        ((1, 3, 8, 9), (1, 3, 8, 9), None),
        ((3, 8), (8, 3), None),
        ((1, 3, 8, 9), (1, 3, 8, 10), None),
        ((2, 3, 4, 5, 6), (2, 4, 5, 6, 3), (0, 4, 1, 2, 3)),
        ((2, 3, 4, 5, 6, 7), (2, 4, 5, 6, 7, 3), None),
    ],
)
def test_the_order_is_the_one_that_gives_the_partners_extents(theirs, ours, order):
    for last, (ref, be) in ((Side.BACKEND, (theirs, ours)), (Side.REFERENCE, (ours, theirs))):
        context, pair = sides_of(ref, be)
        assert _order_with_channels_second(context, pair, last, {}) == order


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 3, 1, 2), (0, 2, 3, 1), (0, 1, 3, 2)])
def test_where_several_orders_fit_the_values_tell_and_else_what_it_is_made_of(order):
    """Of a cube all orders fit; the plain one and channels last are the likely ones."""
    values = RNG.normal(size=(1, 4, 4, 4))
    mine = values.transpose(np.argsort(order))
    node_of = {"op": "Relu"}
    context = Context(
        ref=one_tensor((1, 4, 4, 4), values=values, **node_of), be=one_tensor((1, 4, 4, 4), values=mine, **node_of)
    )
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="")
    likely = order in ((0, 1, 2, 3), (0, 3, 1, 2))
    told = order if likely and order != (0, 1, 2, 3) else None
    assert _order_with_channels_second(context, pair, Side.BACKEND, {}) == told
    turned = {"x": (0, 3, 1, 2)}
    assert _order_with_channels_second(context, pair, Side.BACKEND, turned) == (told if likely else (0, 3, 1, 2))
    same = Context(ref=one_tensor((1, 4, 4, 4), values=False), be=one_tensor((1, 4, 4, 4), values=False))
    assert _order_with_channels_second(same, pair, Side.BACKEND, {}) is None
    assert _order_with_channels_second(same, pair, Side.BACKEND, {"x": (0, 3, 1, 2)}) == (0, 3, 1, 2)


@pytest.mark.parametrize(("noise", "told"), [(0.0, True), (0.05, True), (3.0, False)])
def test_values_tell_an_order_if_they_are_plainly_nearer_in_it(noise, told):
    values = RNG.normal(size=(1, 4, 4, 4))
    mine = np.moveaxis(values, 1, -1) + noise * RNG.normal(size=values.shape)
    context = Context(ref=one_tensor((1, 4, 4, 4), values=values), be=one_tensor((1, 4, 4, 4), values=mine))
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="")
    orders = [(0, 1, 2, 3), (0, 3, 1, 2)]
    assert _choose_order_by_values(context, pair, Side.BACKEND, orders) == (orders[1] if told else None)
    assert _choose_order_by_values(context, pair, Side.BACKEND, orders[1:]) == (orders[1] if told else None)
    flat = Context(
        ref=one_tensor((1, 2, 2, 2), values=np.ones((1, 2, 2, 2))),
        be=one_tensor((1, 2, 2, 2), values=np.ones((1, 2, 2, 2))),
    )
    assert _choose_order_by_values(flat, pair, Side.BACKEND, orders) == orders[0]


def test_a_turn_is_unsaid_where_its_order_is_no_attribute():
    for op, attrs, unsaid in (
        ("Transpose", {}, True),
        ("Transpose", {"perm": (1, 0)}, False),
        ("Relu", {}, False),
    ):
        assert _is_unstated_transpose(Node(name="n", op=op, inputs=("x",), outputs=("y",), attrs=attrs)) == unsaid


def test_values_that_are_as_far_in_either_order_tell_none():
    """They are near to each other, and off by the same amount throughout."""
    values = 10 + 0.01 * RNG.normal(size=(1, 4, 4, 4))
    mine = np.moveaxis(values, 1, -1) + 1
    context = Context(ref=one_tensor((1, 4, 4, 4), values=values), be=one_tensor((1, 4, 4, 4), values=mine))
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="")
    assert _choose_order_by_values(context, pair, Side.BACKEND, [(0, 1, 2, 3), (0, 3, 1, 2)]) is None
