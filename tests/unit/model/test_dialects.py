"""Nodes in the words of other frameworks compute what these frameworks define, or are left as they are."""

import numpy as np
import pytest

from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.compare.result.finding import Status
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.operators.dialects import translated
from qdebug.numerics.affine import quantize
from qdebug.recording.recorder import Recorder
from qdebug.replay.registry import run_node
from qdebug.session import DiffSession

RNG = np.random.default_rng(12)
WINDOW = {"padding": "SAME", "stride_h": 2, "stride_w": 1, "fused_activation_function": "NONE"}


def graph_of(node, values, shape):
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT, shape=array.shape) for name, array in values.items() if name != "x"
    ]
    infos += [TensorInfo(name="x", shape=values["x"].shape), TensorInfo(name="y", shape=shape)]
    return Graph([node], tensors=infos, inputs=("x",), outputs=("y",))


def computed(op, attrs, values, shape):
    """Return what a translated node computes; None if it is not translated."""
    node = Node(name="n", op=op, inputs=tuple(values), outputs=("y",), attrs=attrs)
    found = translated(node, graph_of(node, values, shape))
    if found is None:
        return None
    given = {
        name: array.transpose(found.turns[name]) if name in found.turns else array for name, array in values.items()
    }
    return run_node(found.node, given)["y"]


def same_conv(x, w, b, *, strides, depthwise):
    """Convolve (N, H, W, C) by the definition of TensorFlow's SAME padding."""
    rows, columns = (-(-size // stride) for size, stride in zip(x.shape[1:3], strides, strict=True))
    high, wide = w.shape[1:3]
    pads = [
        max((out - 1) * stride + k - size, 0)
        for out, stride, k, size in zip((rows, columns), strides, (high, wide), x.shape[1:3], strict=True)
    ]
    x = np.pad(x, ((0, 0), (pads[0] // 2, pads[0] - pads[0] // 2), (pads[1] // 2, pads[1] - pads[1] // 2), (0, 0)))
    out = np.zeros((x.shape[0], rows, columns, len(b)))
    for i in range(rows):
        for j in range(columns):
            part = x[:, i * strides[0] : i * strides[0] + high, j * strides[1] : j * strides[1] + wide]
            out[:, i, j] = np.einsum("nhwc,hwc->nc", part, w[0]) if depthwise else np.einsum("nhwc,ohwc->no", part, w)
    return out + b


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_a_convolution_of_tensorflow_lite(depthwise, activation):
    x = RNG.normal(size=(1, 7, 6, 3)).astype(np.float32) * 3
    w = RNG.normal(size=(1, 3, 2, 3) if depthwise else (5, 3, 2, 3)).astype(np.float32)
    b = RNG.normal(size=3 if depthwise else 5).astype(np.float32)
    right = same_conv(x, w, b, strides=(2, 1), depthwise=depthwise)
    right = {"NONE": right, "RELU": np.maximum(right, 0), "RELU6": np.clip(right, 0, 6)}[activation]
    op = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    made = computed(op, {**WINDOW, "fused_activation_function": activation}, {"x": x, "w": w, "b": b}, right.shape)
    assert made == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("left_out", ["padding", "stride_w", "fused_activation_function"])
def test_what_is_not_stated_is_not_assumed(left_out):
    attrs = {name: value for name, value in WINDOW.items() if name != left_out}
    values = {"x": np.zeros((1, 4, 4, 1), np.float32), "w": np.zeros((1, 1, 1, 1), np.float32)}
    assert computed("CONV_2D", attrs, values, (1, 2, 4, 1)) is None


def test_fully_connected_and_linear_have_their_weight_by_row():
    x, w, b = (RNG.normal(size=size).astype(np.float32) for size in ((2, 6), (4, 6), (4,)))
    for op, attrs in (("FULLY_CONNECTED", {"fused_activation_function": "NONE"}), ("linear", {})):
        assert computed(op, attrs, {"x": x, "w": w, "b": b}, (2, 4)) == pytest.approx(x @ w.T + b, abs=1e-5)


def test_pools_reshapes_and_joins():
    x = RNG.normal(size=(1, 4, 6, 2)).astype(np.float32)
    window = {**WINDOW, "padding": "VALID", "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    blocks = x.reshape(1, 2, 2, 3, 2, 2)
    assert computed("MAX_POOL_2D", window, {"x": x}, (1, 2, 3, 2)) == pytest.approx(blocks.max(axis=(2, 4)))
    mean = computed("AVERAGE_POOL_2D", window, {"x": x}, (1, 2, 3, 2))
    assert mean == pytest.approx(blocks.mean(axis=(2, 4)), abs=1e-6)
    assert computed("RESHAPE", {}, {"x": x}, (4, 12)).shape == (4, 12)
    joined = computed("CONCATENATION", {"axis": 3, "fused_activation_function": "NONE"}, {"x": x, "o": x}, (1, 4, 6, 4))
    assert np.array_equal(joined, np.concatenate([x, x], 3))


def test_words_of_pytorch_and_openvino():
    x = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
    w = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
    onnx = Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs={"pads": (1, 1, 1, 1), "strides": (2, 2)})
    right = run_node(onnx, {"x": x, "w": w})["y"]
    torch = computed("aten::conv2d", {"stride": 2, "padding": 1}, {"x": x, "w": w}, right.shape)
    stated = {"strides": (2, 2), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1), "auto_pad": "explicit"}
    assert np.array_equal(torch, right)
    assert np.array_equal(computed("Convolution", stated, {"x": x, "w": w}, right.shape), right)
    a, b = RNG.normal(size=(2, 5)).astype(np.float32), RNG.normal(size=(5, 5)).astype(np.float32)
    turned = computed("MatMul", {"transpose_a": False, "transpose_b": True}, {"x": a, "o": b}, (2, 5))
    assert turned == pytest.approx(a @ b.T, abs=1e-6)


def run(words, *, wrong=False, axis=None):
    """Return an int8 convolution in the words of a framework, its weight in one scale or one for each filter."""
    x = QuantParams(dtype="int8", scale=0.05, zero_point=2)
    y = QuantParams(dtype="int8", scale=0.1, zero_point=-10)
    rng = np.random.default_rng(3)
    codes = rng.integers(-100, 100, size=(1, 6, 6, 3)).astype(np.int8)
    weight = rng.integers(-100, 100, size=(4, 3, 3, 3)).astype(np.int8)
    scale = np.float32([0.01, 0.02, 0.03, 0.04]) if axis is not None else np.float32(0.02)
    sums = same_conv(
        codes.astype(np.float64) - 2, weight.astype(np.float64), np.zeros(4), strides=(1, 1), depthwise=False
    )
    out = quantize(sums * 0.05 * scale, y)
    if wrong:
        out = out.copy()
        out[..., 2] = np.clip(out[..., 2].astype(int) + 7, -128, 127)
    attrs = {**WINDOW, "stride_h": 1}
    with Recorder(None, backend="npu") as rec:
        rec.constant("w", weight, scale=scale, zero_point=0, axis=axis)
        rec.put("x", codes, scale=0.05, zero_point=2)
        rec.put("y", out, node="c", op=words, inputs=("x", "w"), attrs=attrs, scale=0.1, zero_point=-10)
        rec.outputs("y")
    del x
    return rec.recording


@pytest.mark.parametrize("axis", [None, 0])
def test_a_run_in_other_words_is_replayed_judged_and_shown_in_its_own(axis):
    healthy, faulty = run("CONV_2D", axis=axis), run("CONV_2D", axis=axis, wrong=True)
    shown = with_understood_graph(healthy)
    assert shown.graph.nodes[0].op == "Conv"
    assert shown.graph.tensors["w"].shape == shown.load("w").shape == (4, 3, 3, 3)
    result = DiffSession(healthy, faulty).result()
    node = result.nodes[-1]
    assert (node.status, node.op, result.origin) == (Status.DIVERGED, "CONV_2D", "c")
    assert node.judged.amount > 5
    assert node.findings[0].kind == "arithmetic"
