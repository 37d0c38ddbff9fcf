"""Nodes in the words of other frameworks compute what these frameworks define, or are left as they are."""

import numpy as np
import pytest

from qdebug.api import explain
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.compare.result.finding import Status
from qdebug.errors import KernelError
from qdebug.model import Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.operators import openvino_rules
from qdebug.model.operators.dialects import translate_to_onnx
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


def computed(op, attrs, values, shape, unknown=()):
    """Return what a translated node computes; None if it is not translated."""
    node = Node(name="n", op=op, inputs=tuple(values), outputs=("y",), attrs=attrs)
    kept = {name: array for name, array in values.items() if name != "x" and name not in unknown}
    found = translate_to_onnx(node, graph_of(node, values, shape), kept.get)
    if found is None:
        return None
    given = {
        name: array.transpose(found.permutations[name]) if name in found.permutations else array
        for name, array in values.items()
    }
    given |= {name: values[name].reshape(-1, *values[name].shape[2:]) for name in found.merged_constants}
    given |= found.constants
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


@pytest.mark.parametrize(
    ("given", "made"), [((2, 3, 6), (2, 3, 4)), ((2, 3, 6), (6, 4)), ((2, 2, 3), (2, 4)), ((1, 1, 1, 6), (1, 4))]
)
def test_data_of_a_fully_connected_are_rows_of_the_weight_s_width(given, made):
    x, w, b = (RNG.normal(size=size).astype(np.float32) for size in (given, (4, 6), (4,)))
    right = (x.reshape(-1, 6) @ w.T + b).reshape(made)
    attrs = {"fused_activation_function": "NONE"}
    assert computed("FULLY_CONNECTED", attrs, {"x": x, "w": w, "b": b}, made) == pytest.approx(right, abs=1e-5)
    assert computed("FULLY_CONNECTED", attrs, {"x": x, "w": w, "b": b}, (*made, 1)) is None


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


def test_an_activation_that_a_delegate_fuses_is_computed():
    x, w = RNG.standard_normal((1, 3, 6, 6)), RNG.standard_normal((4, 3, 3, 3))
    plain = computed("aten.conv2d.default", {}, {"x": x, "w": w}, (1, 4, 4, 4))
    fused = {"fused_activation_function": "RELU6"}
    assert np.array_equal(computed("aten.conv2d.default", fused, {"x": x, "w": w}, (1, 4, 4, 4)), np.clip(plain, 0, 6))
    assert np.array_equal(computed("aten.add.Tensor", fused, {"x": x, "y0": x}, x.shape), np.clip(x + x, 0, 6))
    assert computed("aten.sigmoid.default", fused, {"x": x}, x.shape) is None
    assert computed("aten.add.Tensor", {"fused_activation_function": "NONE"}, {"x": x, "y0": x}, x.shape) is not None


def test_a_transposed_convolution_is_not_taken_for_a_plain_one():
    x, w = RNG.standard_normal((1, 3, 6, 6)), RNG.standard_normal((3, 3, 3, 3))
    for turned, op, shape in ((False, "Conv", (1, 3, 4, 4)), (True, "ConvTranspose", (1, 3, 8, 8))):
        onnx = Node(name="n", op=op, inputs=("x", "w"), outputs=("y",))
        found = computed("aten::convolution", {"transposed": turned}, {"x": x, "w": w}, shape)
        assert np.array_equal(found, run_node(onnx, {"x": x, "w": w})["y"])


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
    c, stated = RNG.normal(size=5).astype(np.float32), {"transpose_a": False, "transpose_b": False}
    for shape in ((2, 5), None):  # of what is never made, no extents are known
        assert computed("MatMul", stated, {"x": a, "o": b, "c": c}, shape) == pytest.approx(a @ b + c, abs=1e-6)
    with pytest.raises(KernelError, match="third input"):
        run_node(Node(name="n", op="MatMul", inputs=("x", "o", "c"), outputs=("y",)), {"x": a, "o": b, "c": c})


def whole(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "right"),
    [
        ("PAD", {}, [whole([0, 0], [1, 2], [0, 3])], lambda x: np.pad(x, ((0, 0), (1, 2), (0, 3)))),
        (
            "PADV2",
            {},
            [whole([0, 0], [1, 0], [0, 3]), np.float32(-2.5)],
            lambda x: np.pad(x, ((0, 0), (1, 0), (0, 3)), constant_values=-2.5),
        ),
        (
            "MIRROR_PAD",
            {"mode": "REFLECT"},
            [whole([0, 0], [1, 2], [2, 1])],
            lambda x: np.pad(x, ((0, 0), (1, 2), (2, 1)), "reflect"),
        ),
        ("TRANSPOSE", {}, [whole(2, 0, 1)], lambda x: x.transpose(2, 0, 1)),
        ("MEAN", {"keep_dims": False}, [whole(1, -1)], lambda x: x.mean((1, 2))),
        ("MEAN", {}, [whole(1)], lambda x: x.mean(1, keepdims=True)),
        ("SUM", {}, [np.int32(0)], lambda x: x.sum(0)),
        ("REDUCE_MAX", {}, [whole(0, 2)], lambda x: x.max((0, 2))),
        ("REDUCE_MIN", {}, [whole(0, 2)], lambda x: x.min((0, 2), keepdims=True)),
        ("Transpose", {}, [whole(1, 2, 0)], lambda x: x.transpose(1, 2, 0)),
        ("Transpose", {}, [np.zeros(0, np.int64)], lambda x: x.transpose()),
        ("ReduceMean", {"keep_dims": False}, [whole(1, 2)], lambda x: x.mean((1, 2))),
        ("ReduceSum", {"keep_dims": True}, [whole(2)], lambda x: x.sum(2, keepdims=True)),
        (
            "Pad",
            {"pad_mode": "constant"},
            [whole(0, 1, 0), whole(2, 0, 1), np.float32(1.5)],
            lambda x: np.pad(x, ((0, 2), (1, 0), (0, 1)), constant_values=1.5),
        ),
        (
            "Pad",
            {"pad_mode": "edge"},
            [whole(0, 1, 0), whole(2, 0, 1)],
            lambda x: np.pad(x, ((0, 2), (1, 0), (0, 1)), "edge"),
        ),
        ("aten::permute", {"dims": (2, 0, -2)}, [], lambda x: x.transpose(2, 0, 1)),
        ("aten::transpose.int", {"dim0": 0, "dim1": -1}, [], lambda x: x.swapaxes(0, -1)),
        ("aten::mean.dim", {"dim": (0, -1), "keepdim": True}, [], lambda x: x.mean((0, 2), keepdims=True)),
        ("aten::mean", {}, [], lambda x: x.mean()),
        ("aten::sum.dim_IntList", {"dim": (1,)}, [], lambda x: x.sum(1)),
        ("amax", {"dim": 1}, [], lambda x: x.max(1)),
        ("aten::pad", {"pad": (1, 2), "value": None}, [], lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)))),
        (
            "aten::constant_pad_nd",
            {"pad": (1, 2)},
            [np.float32([2.5])],
            lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), constant_values=2.5),
        ),
        (
            "aten::constant_pad_nd",
            {"pad": (1, 2, 3, 0), "value": -1.5},
            [],
            lambda x: np.pad(x, ((0, 0), (3, 0), (1, 2)), constant_values=-1.5),
        ),
        (
            "aten::pad",
            {"pad": (1, 2, 3, 0), "mode": "replicate"},
            [],
            lambda x: np.pad(x, ((0, 0), (3, 0), (1, 2)), "edge"),
        ),
        ("aten::pad", {"pad": (1, 2), "mode": "circular"}, [], lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), "wrap")),
    ],
)
def test_axes_orders_and_widths_are_read_where_each_framework_has_them(op, attrs, inputs, right):
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    right = np.asarray(right(x))
    values = {"x": x} | {f"c{at}": np.asarray(array) for at, array in enumerate(inputs)}
    made = computed(op, attrs, values, right.shape)
    assert made.shape == right.shape
    assert made == pytest.approx(right, abs=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs", "slope"),
    [("LEAKY_RELU", {"alpha": 0.2}, 0.2), ("PRELU", {}, np.float32([0.1, 0.2, 0.3, 0.4, 0.5]))],
)
def test_slopes_of_negative_numbers(op, attrs, slope):
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    values = {"x": x} | ({"slope": slope} if op == "PRELU" else {})
    assert computed(op, attrs, values, x.shape) == pytest.approx(np.where(x < 0, x * slope, x), abs=1e-6)


MASKS = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "right"),
    [
        ("SLICE", {}, [whole(1, 0, 2), whole(2, -1, 3)], lambda x: x[1:3, :, 2:5]),
        ("STRIDED_SLICE", MASKS, [whole(0, 1, -2), whole(2, 9, 5), whole(1, 1, 1)], lambda x: x[:2, 1:, -2:]),
        (
            "STRIDED_SLICE",
            {**MASKS, "begin_mask": 0b101, "end_mask": 0b110},
            [whole(2, 1, 2), whole(2, 1, 1), whole(1, 1, 1)],
            lambda x: x[:2, 1:],
        ),
        ("STRIDED_SLICE", MASKS, [whole(0, 0, 0), whole(3, 4, 5), whole(1, 2, 3)], lambda x: x[:, ::2, ::3]),
        (
            "STRIDED_SLICE",
            {**MASKS, "begin_mask": 0b10, "end_mask": 0b110},
            [whole(0, 1, 3), whole(3, 1, 0), whole(2, -1, -2)],
            lambda x: x[::2, ::-1, 3::-2],
        ),
        (
            "StridedSlice",
            {"begin_mask": (0, 1), "end_mask": (1, 0)},
            [whole(1, 2), whole(0, -1), whole(1, 2)],
            lambda x: x[1:, :-1:2],
        ),
    ],
)
def test_slices(op, attrs, inputs, right):
    x = RNG.normal(size=(3, 4, 5)).astype(np.float32)
    values = {"x": x} | {f"c{at}": array for at, array in enumerate(inputs)}
    assert np.array_equal(computed(op, attrs, values, right(x).shape), right(x))


@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("codes", [False, True])
def test_numbers_times_codes_are_convolved_as_codes_by_the_range_of_each_sample(op, codes):
    shape = (1, 1, 1, 3)
    weight = TensorInfo(
        name="w", role=Role.CONSTANT, shape=shape, quant=QuantParams(dtype="int8", scale=0.1) if codes else None
    )
    infos = [weight, TensorInfo(name="x", shape=(1, 2, 2, 3))]
    infos.append(TensorInfo(name="y", shape=(1, 4)))
    node = Node(
        name="n", op=op, inputs=("x", "w"), outputs=("y",), attrs={**WINDOW, "fused_activation_function": "NONE"}
    )
    made = translate_to_onnx(node, Graph([node], tensors=infos, inputs=("x",), outputs=("y",)))
    assert made.node.op == ("DynamicQuantizeConv" if codes else "Conv")
    how = None if not codes else "asymmetric" if "DEPTHWISE" in op else "symmetric"
    assert made.node.attrs.get("data_codes") == how


def test_quantize_of_codes_gives_them_another_scale():
    codes = np.arange(-128, 128).astype(np.int8)
    with Recorder(None, backend="npu") as rec:
        rec.put("x", codes, scale=1 / 256, zero_point=-128)
        rec.put("y", (codes.astype(int) + 128).astype(np.uint8), node="q", op="QUANTIZE", inputs="x", scale=1 / 256)
        rec.outputs("y")
    (node,) = explain(rec.recording).nodes
    assert node.status == "explained"
    assert DiffSession(rec.recording, rec.recording).result().status == "identical"


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "shape"),
    [
        ("LEAKY_RELU", {}, [], (3, 4, 5)),
        ("STRIDED_SLICE", {}, [whole(0, 0, 0), whole(1, 1, 1), whole(1, 1, 1)], (1, 1, 1)),
        ("STRIDED_SLICE", {**MASKS, "shrink_axis_mask": 1}, [whole(0, 0, 0), whole(1, 4, 5), whole(1, 1, 1)], (4, 5)),
        ("MIRROR_PAD", {"mode": "SYMMETRIC"}, [whole([0, 0], [1, 1], [0, 0])], (3, 6, 5)),  # ONNX has no such border
        ("Pad", {"pad_mode": "symmetric"}, [whole(0, 1, 0), whole(0, 1, 0)], (3, 6, 5)),
        ("Pad", {"keep_dims": True}, [whole(0, 1, 0), whole(0, 1, 0)], (3, 6, 5)),  # what is put there is not said
        ("aten::transpose.int", {"dim0": 0}, [], (5, 4, 3)),
        ("aten::mean", {}, [], (3, 4)),  # the axis is not said, and the result is not that of all of them
        ("MEAN", {}, [whole(1)], (3, 4)),
        ("aten::sum.dim_IntList", {"dim": (1,), "dtype": "float64"}, [], (3, 5)),
    ],
)
def test_what_onnx_cannot_say_or_nobody_said_stays_as_it_is(op, attrs, inputs, shape):
    values = {"x": np.zeros((3, 4, 5), np.float32)} | {f"c{at}": array for at, array in enumerate(inputs)}
    assert computed(op, attrs, values, shape) is None


def test_axes_that_were_not_kept_are_read_when_the_node_is_replayed_and_orders_are_not_guessed():
    x = RNG.normal(size=(3, 4, 4)).astype(np.float32)
    made = computed("MEAN", {}, {"x": x, "axes": whole(1)}, (3, 4), unknown=("axes",))
    assert made == pytest.approx(x.mean(1), abs=1e-6)
    assert computed("TRANSPOSE", {}, {"x": x, "order": whole(0, 2, 1)}, (3, 4, 4), unknown=("order",)) is None
    assert computed("PAD", {}, {"x": x, "widths": whole([0, 0])}, (3, 4, 4), unknown=("widths",)) is None


STATED = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1), "auto_pad": "explicit"}


def grouped(x, w):
    """Convolve by groups, by the definition: each group reads its own channels."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = np.split(x, len(w), axis=1)
    windows = [np.lib.stride_tricks.sliding_window_view(part, (3, 3), axis=(2, 3)) for part in parts]
    return np.concatenate([np.einsum("nchwij,ocij->nohw", v, k) for v, k in zip(windows, w, strict=True)], axis=1)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_of_openvino(groups):
    """Spread each input over its window, group by group: the definition of ConvolutionBackpropData."""
    x, w = RNG.normal(size=(1, 4, 3, 5)), RNG.normal(size=(groups, 4 // groups, 3, 2, 2))
    right = np.zeros((1, 3 * groups, 6, 10))
    for i in range(3):
        for j in range(5):
            parts = x[0, :, i, j].reshape(groups, -1)
            right[0, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += np.einsum("gi,giohw->gohw", parts, w).reshape(-1, 2, 2)
    attrs = {"strides": (2, 2), "pads_begin": (0, 0), "pads_end": (0, 0), "dilations": (1, 1), "output_padding": (0, 0)}
    op, w = ("ConvolutionBackpropData", w[0]) if groups == 1 else ("GroupConvolutionBackpropData", w)
    assert computed(op, attrs, {"x": x, "w": w}, right.shape) == pytest.approx(right, abs=1e-5)
    given = {"x": x, "w": w, "extents": np.array([6, 10])}
    assert computed(op, attrs, given, right.shape) is None  # the extents decide the padding


def test_a_grouped_convolution_of_openvino():
    x = RNG.normal(size=(1, 6, 5, 5)).astype(np.float32)
    w = RNG.normal(size=(3, 4, 2, 3, 3)).astype(np.float32)
    right = grouped(x, w)
    assert computed("GroupConvolution", STATED, {"x": x, "w": w}, right.shape) == pytest.approx(right, abs=1e-5)


def open_vino(*, reshaped, wrong=False):
    """Record a grouped convolution as OpenVINO has it: its weight by groups, at once or by a Reshape."""
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(1, 6, 5, 5)).astype(np.float32), rng.normal(size=(3, 4, 2, 3, 3)).astype(np.float32)
    y = grouped(x, np.roll(w, 1, 1) if wrong else w).astype(np.float32)
    with Recorder(None, backend="openvino") as rec:
        if reshaped:
            rec.constant("w", w.reshape(12, 2, 3, 3))
            rec.constant("extents", np.array([3, 4, 2, 3, 3]))
            rec.put("by groups", w, node="r", op="Reshape", inputs=("w", "extents"), attrs={"special_zero": False})
        else:
            rec.constant("by groups", w)
        rec.put("x", x)
        rec.put("y", y, node="c", op="GroupConvolution", inputs=("x", "by groups"), attrs=STATED)
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("reshaped", [False, True])
def test_a_grouped_convolution_is_judged_by_its_replay(reshaped):
    healthy, faulty = open_vino(reshaped=reshaped), open_vino(reshaped=reshaped, wrong=True)
    shown = with_understood_graph(healthy)
    node = shown.graph.nodes[-1]
    assert (node.op, node.attrs["group"]) == ("Conv", 3)
    assert shown.load(node.inputs[1]).shape == shown.graph.tensors[node.inputs[1]].shape == (12, 2, 3, 3)
    result = DiffSession(healthy, faulty).result()
    assert (result.origin, result.nodes[-1].op) == ("c", "GroupConvolution")
    assert result.nodes[-1].arithmetic is not None


def test_scales_by_group_leave_a_grouped_convolution_as_it_is():
    quant = QuantParams(dtype="int8", scale=np.float32([0.1, 0.2, 0.3]), zero_point=np.zeros(3, np.int8), axis=0)
    node = Node(name="n", op="GroupConvolution", inputs=("x", "w"), outputs=("y",), attrs=STATED)
    for parts, known in ((1, True), (4, False)):
        info = TensorInfo(name="w", role=Role.CONSTANT, shape=(3, parts, 2, 3, 3), dtype="int8", quant=quant)
        found = translate_to_onnx(
            node, Graph([node], tensors=[info, TensorInfo(name="x", shape=(1, 6, 5, 5))], inputs=("x",))
        )
        assert (found is not None) == known


def padded(op, inputs, right):
    codes = np.random.default_rng(5).integers(-100, 100, size=(2, 6)).astype(np.int8)
    with Recorder(None, backend="npu") as rec:
        for name, array in inputs.items():
            rec.constant(name, array)
        rec.put("x", codes, scale=0.05, zero_point=3)
        rec.put("y", right(codes), node="n", op=op, inputs=("x", *inputs), scale=0.05, zero_point=3)
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("value", [None, 7])
def test_codes_are_padded_with_the_code_of_zero_or_the_one_that_is_said(value):
    inputs = {"widths": whole([0, 0], [2, 1])} | ({} if value is None else {"value": np.array(value, np.int8)})
    op, code = ("PAD", 3) if value is None else ("PADV2", value)

    def right(codes):
        return np.pad(codes, ((0, 0), (2, 1)), constant_values=code)

    def wrong(codes):
        return np.pad(codes, ((0, 0), (2, 1)), constant_values=code + 5)

    healthy, faulty = (padded(op, inputs, each) for each in (right, wrong))
    assert DiffSession(healthy, healthy).result().nodes[-1].status is Status.IDENTICAL
    assert explain(healthy).nodes[-1].status == "explained"
    node = DiffSession(healthy, faulty).result().nodes[-1]
    assert (node.status, node.judged.amount) == (Status.DIVERGED, pytest.approx(5, abs=0.01))


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


def test_a_bias_and_an_activation_that_openvino_fuses_are_computed():
    x = RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)
    w, b = RNG.normal(size=(3, 4, 3, 3)).astype(np.float32), RNG.normal(size=3).astype(np.float32)
    onnx = Node(name="n", op="Conv", inputs=("x", "w", "b"), outputs=("y",), attrs={"pads": (1, 1, 1, 1)})
    right = run_node(onnx, {"x": x, "w": w, "b": b})["y"]
    fused = {**STATED, "activation": "Clip", "activation_params": (0.0, 1.0)}
    found = computed("Convolution", fused, {"x": x, "w": w, "b": b}, right.shape)
    assert found == pytest.approx(np.clip(right, 0, 1), abs=1e-5)
    assert computed("Convolution", STATED, {"x": x, "w": w, "b": b}, right.shape) == pytest.approx(right, abs=1e-5)
    parts, bias = RNG.normal(size=(2, 3, 2, 3, 3)).astype(np.float32), RNG.normal(size=6).astype(np.float32)
    right = np.maximum(grouped(x, parts) + bias[:, None, None], 0)
    fused = {**STATED, "activation": "Relu", "activation_params": ()}
    found = computed("GroupConvolution", fused, {"x": x, "w": parts, "b": bias}, right.shape)
    assert found == pytest.approx(right, abs=1e-5)
    turned = {"transpose_a": False, "transpose_b": True}
    rows, m = RNG.normal(size=(2, 4)).astype(np.float32), RNG.normal(size=(3, 4)).astype(np.float32)
    given = {"x": rows, "w": m, "b": b}
    assert computed("MatMul", turned, given, (2, 3)) == pytest.approx(rows @ m.T + b, abs=1e-5)
    relu = computed("MatMul", turned | {"activation": "Relu"}, given, (2, 3))
    assert relu == pytest.approx(np.maximum(rows @ m.T + b, 0), abs=1e-5)
    assert computed("ConvolutionBackpropData", fused, {"x": x, "w": w[:, :3]}, (1, 3, 6, 6)) is None


def test_words_that_mark_a_graph_as_openvinos_are_no_operators_of_onnx():
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    for op in sorted({schema.name for schema in onnx.defs.get_all_schemas()}):
        node = Node(name="n", op=op, inputs=("x",), outputs=("y",), attrs={"axis": -1})
        cut = Node(name="m", op="Slice", inputs=("y", "starts", "ends", "axes"), outputs=("z",))
        graph = Graph([node, cut], inputs=("x",), outputs=("z",))
        assert not openvino_rules.is_openvino(cut, graph), op
