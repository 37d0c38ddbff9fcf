"""Backends that keep dimensions in another order are compared in the reference's order."""

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.layouts import in_reference_order, layouts_of
from qdebug.compare.align.pairs import Transform
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.model.view import View
from qdebug.recording.reading.opening import open_recording
from qdebug.recording.recorder import Recorder

RNG = np.random.default_rng(3)
NCHW = RNG.normal(size=(1, 5, 3, 4)).astype(np.float32)


def test_channels_last_is_turned_back():
    nhwc = NCHW.transpose(0, 2, 3, 1)
    view = Transform(transpose=(0, 3, 1, 2))
    np.testing.assert_array_equal(in_reference_order(nhwc, view, NCHW.shape), NCHW)


@pytest.mark.parametrize("block", [4, 8, 16])
def test_blocks_of_channels_are_undone_and_padding_dropped(block):
    padded = -(-5 // block) * block
    full = np.zeros((1, padded, 3, 4), np.float32)
    full[:, :5] = NCHW
    blocked = full.reshape(1, padded // block, block, 3, 4).transpose(0, 1, 3, 4, 2).reshape(full.shape)
    np.testing.assert_array_equal(in_reference_order(blocked, Transform(channel_block=block), NCHW.shape), NCHW)


def test_a_view_that_does_not_fit_leaves_the_array_so_that_the_shapes_are_seen():
    flat = np.zeros((1, 60), np.float32)
    assert in_reference_order(flat, Transform(transpose=(0, 3, 1, 2)), NCHW.shape).shape == (1, 60)
    assert in_reference_order(flat, Transform(channel_block=8), NCHW.shape).shape == (1, 60)
    assert in_reference_order(flat[:, :59], None, NCHW.shape).shape == (1, 59)
    assert in_reference_order(NCHW, None, NCHW.shape) is NCHW


def recording(nodes, arrays, *, constants=(), quants=None, layouts=None):
    quants, layouts = quants or {}, layouts or {}
    tensors = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name in constants else Role.INPUT if name == "x" else Role.ACTIVATION,
            quant=quants.get(name),
            layout=layouts.get(name),
        )
        for name in arrays
    ]
    return MemoryRecording.single(Graph(nodes, tensors=tensors, inputs=("x",), outputs=nodes[-1].outputs), arrays)


def node(op, inputs, output, *, domain="", **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs, domain=domain)


CODES = QuantParams(dtype="uint8", scale=np.float32(0.1))
SQUARE = RNG.normal(size=(1, 4, 4, 4)).astype(np.float32)
W = RNG.normal(size=(4, 4, 1, 1)).astype(np.float32)


def reference():
    return recording(
        [node("Conv", "x w", "conv1"), node("Relu", "conv1", "relu1"), node("MaxPool", "relu1", "pool1")],
        dict.fromkeys(("x", "conv1", "relu1", "pool1"), SQUARE) | {"w": W},
        constants=("w",),
    )


def test_a_channels_last_run_is_followed_even_where_its_names_mislead():
    """A runtime names its turned, clamped codes after the node: the name of a float tensor before the clamp."""
    codes = np.zeros((1, 4, 4, 4), np.uint8)
    backend = recording(
        [
            node("QuantizeLinear", "x", "x_q"),
            node("Transpose", "x_q", "turned", perm=(0, 2, 3, 1)),
            node("QLinearConv", "turned w", "conv1", channels_last=1),
            node("NhwcMaxPool", "conv1", "pool_token"),
            node("Transpose", "pool_token", "pool1_q", perm=(0, 3, 1, 2)),
            node("DequantizeLinear", "pool1_q", "pool1"),
        ],
        {"x": SQUARE, "w": W, "pool1": SQUARE}
        | dict.fromkeys(("x_q", "turned", "conv1", "pool_token", "pool1_q"), codes),
        constants=("w",),
        quants=dict.fromkeys(("x_q", "turned", "conv1", "pool_token", "pool1_q"), CODES),
    )
    pairs = {pair.backend: pair for pair in align(reference(), backend).pairs}
    assert {name: pair.reference for name, pair in pairs.items()} == {
        "x": "x",
        "x_q": "x",
        "turned": "x",
        "conv1": "relu1",
        "pool_token": "pool1",
        "pool1_q": "pool1",
        "pool1": "pool1",
    }
    turned = Transform(transpose=(0, 3, 1, 2))
    assert [name for name, pair in pairs.items() if pair.backend_view == turned] == ["turned", "conv1", "pool_token"]
    assert pairs["pool1_q"].backend_view is None


def test_a_blocked_run_is_followed_by_its_declared_layout():
    backend = recording(
        [
            node("Conv", "x w", "token_1", domain="com.microsoft.nchwc", activation="Relu"),
            node("MaxPool", "token_1", "token_2", domain="com.microsoft.nchwc"),
            node("ReorderOutput", "token_2", "pool1", domain="com.microsoft.nchwc"),
        ],
        {"x": SQUARE, "w": W, "pool1": SQUARE}
        | dict.fromkeys(("token_1", "token_2"), np.zeros((1, 16, 4, 4), np.float32)),
        constants=("w",),
        layouts={"token_1": "NCHW16c", "token_2": "NCHW16c"},
    )
    pairs = {pair.backend: pair for pair in align(reference(), backend).pairs}
    assert {name: pair.reference for name, pair in pairs.items()} == {
        "x": "x",
        "token_1": "relu1",
        "token_2": "pool1",
        "pool1": "pool1",
    }
    assert pairs["token_1"].backend_view == Transform(channel_block=16)
    assert pairs["pool1"].backend_view is None


def test_a_transpose_of_the_network_itself_is_no_change_of_layout():
    nodes = [node("Transpose", "x", "t", perm=(0, 2, 3, 1)), node("Relu", "t", "y")]
    same = recording(nodes, {"x": SQUARE, "t": SQUARE, "y": SQUARE})
    assert [pair.backend_view for pair in align(same, same).pairs] == [None, None, None]


def test_the_order_is_known_of_a_tensor_of_which_only_statistics_were_kept():
    images = NCHW.transpose(0, 2, 3, 1)
    sides = []
    for name, values, op, attrs in (("float", NCHW, "Conv", {}), ("npu", images, "QLinearConv", {"channels_last": 1})):
        with Recorder(None, backend=name, keep="stats") as rec:
            rec.put("x", values)
            rec.put("y", values, node="conv", op=op, inputs=("x",), attrs=attrs)
        sides.append(rec.recording)
    pairs = {pair.backend: pair for pair in align(*sides).pairs}
    assert pairs["y"].backend_view == Transform(transpose=(0, 3, 1, 2))


class Watched(View):
    """A recording that notes which values are read."""

    def __init__(self, recording):
        super().__init__(recording)
        self.read = []

    def outline(self, tensor, sample=0, step=0):
        return self._recording.outline(tensor, sample, step)

    def load(self, tensor, sample=0, step=0):
        self.read.append(tensor)
        return super().load(tensor, sample, step)


def filed(path, recording):
    """Write a recording into a file."""
    with Recorder(path, backend="test", graph=recording.graph) as recorder:
        for name in recording.names:
            put = recorder.constant if recording.graph.is_constant(name) else recorder.put
            put(name, recording.load(name))
    return open_recording(path)


def test_files_are_aligned_without_reading_values_that_their_index_answers_for(tmp_path):
    """Weights tell branches apart by their values; all else is told by names, shapes and hashes."""
    nodes = [
        node("Conv", "x w", "conv1"),
        node("Transpose", "conv1", "t", perm=(0, 2, 3, 1)),
        node("Relu", "t", "relu1"),
        node("Transpose", "relu1", "back", perm=(0, 3, 1, 2)),
        node("Mul", "back small", "pool1"),
    ]
    values = dict.fromkeys(("x", "conv1", "t", "relu1", "back", "pool1"), SQUARE)
    small = np.full((1, 4, 1, 1), 3, np.float32)
    turned = recording(nodes, {**values, "w": W, "small": small}, constants=("w", "small"))
    sides = [filed(tmp_path / f"{at}.h5", each) for at, each in enumerate((reference(), turned))]
    held = align(reference(), turned)
    watched = [Watched(side) for side in sides]
    assert align(*watched) == held
    assert [set(each.read) for each in watched] == [set(), {"small"}]
    watched = [Watched(sides[1]), Watched(sides[1])]
    align(*watched)
    assert [set(each.read) for each in watched] == [{"small"}, {"small"}]


def test_a_transpose_hands_on_no_order_where_its_own_or_that_of_what_it_reads_is_unknown():
    """A turn that its recording does not say, and a tensor that lies in blocks, whose channels are in two places."""
    nodes = [
        node("QLinearConv", "x w", "last", channels_last=1),
        node("Transpose", "last", "turned", perm=(0, 3, 1, 2)),
        node("Transpose", "last", "unsaid"),
        node("ReorderInput", "x", "blocked", domain="com.microsoft.nchwc"),
        node("Transpose", "blocked", "split", perm=(0, 2, 3, 1)),
    ]
    layouts = {"blocked": "NCHW8c"}
    arrays = dict.fromkeys(("x", "last", "turned", "unsaid", "blocked", "split"), SQUARE) | {"w": W}
    run = IndexedRecording.of(recording(nodes, arrays, constants=("w",), layouts=layouts))
    assert layouts_of(run) == {"last": Transform(transpose=(0, 3, 1, 2)), "blocked": Transform(channel_block=8)}
