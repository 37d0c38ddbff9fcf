"""Kernels against ONNX Runtime's on random data: the same codes, bit for bit, and floats up to rounding.

On a CPU without VNNI the runtime saturates pairs of u8 x s8 products to 16 bits unless it is told to be precise, which
it is here; signed weights stay within 7 bits besides, where nothing saturates.
"""

import numpy as np
import pytest

from qdebug.model import Node
from qdebug.model.dtypes import logical_name
from qdebug.replay import run_node

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

OPSET = 21
MICROSOFT = "com.microsoft"


def run_both(op, inputs, *, domain="", outputs=1, constant=(), **attrs):
    """Run one node in ONNX Runtime and here.

    Arrays of up to one axis, and those at the places `constant`, are made constants, as some kernels demand.
    """
    from onnx import helper

    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    out_names = [f"o{k}" for k in range(outputs)]
    values = {name: value for name, value in zip(names, inputs, strict=True) if name}
    held = {f"i{place}" for place in constant}
    feed = {name: value for name, value in values.items() if value.ndim > 1 and name not in held}
    graph = helper.make_graph(
        [helper.make_node(op, names, out_names, domain=domain, **attrs)],
        "one",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feed.items()],
        [onnx.ValueInfoProto(name=name) for name in out_names],
        [onnx.numpy_helper.from_array(v, n) for n, v in values.items() if n not in feed],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact sums without VNNI too
    options.intra_op_num_threads = 1
    theirs = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    node = Node(name="n", op=op, domain=domain, inputs=tuple(names), outputs=tuple(out_names), attrs=attrs)
    ours = run_node(node, values, {"": OPSET, MICROSOFT: 1})
    return theirs.run(None, feed), [ours[name] for name in out_names]


def check_same(op, inputs, **attrs):
    for theirs, ours in zip(*run_both(op, inputs, **attrs), strict=True):
        assert logical_name(ours.dtype) == logical_name(theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(params=[np.uint8, np.int8], ids=["uint8", "int8"])
def draw(request):
    """Return a source of random codes, scales and zero points of one dtype."""
    return Source(request.param)


class Source:
    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)
        self.rng = np.random.default_rng(20)

    def codes(self, *shape, dtype=None):
        info = np.iinfo(dtype or self.dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(info.dtype)

    def weights(self, *shape):
        return self.rng.integers(-63, 64, shape).astype(np.int8)

    def zero(self, offset=0):
        return np.array(offset + (131 if self.dtype == np.uint8 else 3), self.dtype)

    def bias(self, count):
        return self.rng.integers(-9999, 9999, count).astype(np.int32)

    def tensor(self, *shape, scale):
        return [self.codes(*shape), real(scale), self.zero()]


def real(value):
    return np.array(value, np.float32)


ZERO = np.zeros((), np.int8)


@pytest.mark.parametrize("scales", [(0.013, 0.0271, 0.0305), (0.0625, 0.125, 0.25)], ids=["generic", "dyadic"])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_elementwise(draw, op, scales):
    inputs = [*draw.tensor(64, 600, scale=scales[0]), *draw.tensor(64, 600, scale=scales[1])]
    check_same(op, [*inputs, real(scales[2]), draw.zero(-2)], domain=MICROSOFT)


@pytest.mark.parametrize("scales", [(0.013, 0.0121), (0.125, 0.0625)], ids=["generic", "dyadic"])
@pytest.mark.parametrize("pads", [None, (1, 1, 1, 1)])
def test_average_pool(draw, scales, pads):
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], **({"pads": list(pads)} if pads else {})}
    inputs = [*draw.tensor(2, 5, 21, 21, scale=scales[0]), real(scales[1]), draw.zero(-2)]
    check_same("QLinearAveragePool", inputs, domain=MICROSOFT, **attrs)


def test_global_average_pool(draw):
    inputs = [*draw.tensor(20, 32, 7, 7, scale=0.013), real(0.0023), draw.zero(-2)]
    check_same("QLinearGlobalAveragePool", inputs, domain=MICROSOFT, channels_last=0)


def test_leaky_relu(draw):
    inputs = [*draw.tensor(32, 64, scale=0.053), real(0.043), draw.zero(-2)]
    check_same("QLinearLeakyRelu", inputs, domain=MICROSOFT, alpha=0.1)


def test_sigmoid(draw):
    # The runtime approximates the function: no value may lie close enough to a tie to tell.
    inputs = [*draw.tensor(32, 64, scale=0.053), real(1 / 256), draw.zero()]
    check_same("QLinearSigmoid", inputs, domain=MICROSOFT)


def test_concat(draw):
    inputs = [real(0.031), draw.zero(), *draw.tensor(16, 30, scale=0.053), *draw.tensor(16, 20, scale=0.031)]
    check_same("QLinearConcat", inputs, domain=MICROSOFT, axis=1)


def test_where(draw):
    condition = draw.codes(16, 30) > draw.zero()
    sides = [*draw.tensor(16, 30, scale=0.053), *draw.tensor(16, 30, scale=0.021)]
    check_same("QLinearWhere", [condition, *sides, real(0.04), draw.zero(-2)], domain=MICROSOFT)


def test_softmax(draw):
    zero = np.array(0 if draw.dtype == np.uint8 else -128, draw.dtype)
    inputs = [*draw.tensor(64, 100, scale=0.053), real(1 / 256), zero]
    check_same("QLinearSoftmax", inputs, domain=MICROSOFT, axis=1, opset=13)


@pytest.mark.parametrize(
    ("weight_shape", "attrs"),
    [
        ((24, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((24, 4, 3, 3), {"group": 4, "pads": [0, 1, 2, 1], "dilations": [2, 1]}),
        ((16, 1, 3, 3), {"group": 16, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((8, 16, 1, 1), {}),
    ],
    ids=["plain", "groups", "depthwise", "pointwise"],
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_conv(draw, weight_shape, attrs, per_channel):
    filters = weight_shape[0]
    scale = draw.rng.random(filters).astype(np.float32) * 0.02 + 0.001 if per_channel else real(0.0113)
    zero = np.zeros(filters, np.int8) if per_channel else ZERO
    inputs = [*draw.tensor(2, 16, 19, 19, scale=0.053), draw.weights(*weight_shape), scale, zero]
    check_same("QLinearConv", [*inputs, real(0.411), draw.zero(-2), draw.bias(filters)], **attrs)


def test_channels_last(draw):
    inputs = [*draw.tensor(2, 13, 15, 8, scale=0.053), draw.weights(16, 4, 3, 3), real(0.0113), ZERO]
    inputs += [real(0.411), draw.zero(-2), draw.bias(16)]
    attrs = {"group": 2, "pads": [1, 1, 0, 1], "strides": [2, 1]}
    check_same("QLinearConv", inputs, domain=MICROSOFT, channels_last=1, **attrs)
    check_same("NhwcMaxPool", inputs[:1], domain=MICROSOFT, kernel_shape=[3, 2], pads=[1, 0, 1, 1])
    pooled = [*inputs[:3], real(0.03), draw.zero(-2)]
    check_same("QLinearAveragePool", pooled, domain=MICROSOFT, channels_last=1, kernel_shape=[3, 3])
    check_same("QLinearGlobalAveragePool", pooled, domain=MICROSOFT, channels_last=1)


def test_conv_at_ties(draw):
    inputs = [*draw.tensor(2, 8, 19, 19, scale=2**-4), draw.weights(8, 8, 3, 3), real(2**-6), ZERO]
    check_same("QLinearConv", [*inputs, real(2**-3), draw.zero(-2)])


def test_matmul(draw):
    inputs = [*draw.tensor(3, 40, 100, scale=0.053), draw.weights(100, 70), real(0.0113), ZERO]
    check_same("QLinearMatMul", [*inputs, real(0.311), draw.zero(-2)])
    check_same("MatMulInteger", [inputs[0], inputs[3], inputs[2], ZERO])


@pytest.mark.parametrize("transposed", [False, True])
def test_gemm(draw, transposed):
    weights = draw.weights(70, 100) if transposed else draw.weights(100, 70)
    inputs = [*draw.tensor(40, 100, scale=0.053), weights, real(0.0113), ZERO, draw.bias(70)]
    attrs = {"domain": MICROSOFT, "transB": int(transposed)}
    check_same("QGemm", [*inputs, real(0.0911), draw.zero(-2)], **attrs)
    theirs, ours = run_both("QGemm", inputs[:6], alpha=0.5, **attrs)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


def test_conv_integer():
    draw = Source(np.uint8)
    inputs = [draw.codes(2, 16, 19, 19), draw.codes(8, 16, 3, 3), draw.zero(), np.array(120, np.uint8)]
    check_same("ConvInteger", inputs, pads=[1, 1, 1, 1])


def test_float_of_integers():
    draw = Source(np.uint8)
    codes, weights, bias = draw.codes(40, 100), draw.weights(100, 70), draw.rng.normal(size=70).astype(np.float32)
    integer = [codes, weights, real(0.025), real(0.01), draw.zero(), ZERO, bias]
    theirs, ours = run_both("MatMulIntegerToFloat", integer, domain=MICROSOFT)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    x = draw.rng.normal(size=(40, 100)).astype(np.float32)
    theirs, ours = run_both("DynamicQuantizeMatMul", [x, weights, real(0.01), ZERO, bias], domain=MICROSOFT)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)


def test_quantize_and_back(draw):
    x = draw.rng.normal(size=(64, 100)).astype(np.float32) * 3
    for scale in (0.025, 2**-5):
        check_same("QuantizeLinear", [x, real(scale), draw.zero()])
    x = np.round(x * 64) / 64  # ties at a dyadic scale
    check_same("QuantizeLinear", [x.astype(np.float32), real(2**-5), draw.zero()])
    check_same("DequantizeLinear", [draw.codes(64, 100), real(0.025), draw.zero()])


@pytest.mark.parametrize("placing", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("size", [(23, 37), (7, 9), (16, 33)])
def test_bilinear_resize_of_codes(draw, placing, size):
    attrs = {"mode": "linear", "coordinate_transformation_mode": placing}
    check_same("Resize", [draw.codes(2, 8, 16, 16), None, None, np.array([2, 8, *size])], **attrs)
    if size[0] != 16:  # otherwise the plane is that of columns and channels
        check_same("Resize", [draw.codes(2, 16, 16, 8), None, None, np.array([2, *size, 8])], **attrs)


def test_dynamic_quantize():
    x = np.random.default_rng(0).normal(size=(64, 100)).astype(np.float32)
    check_same("DynamicQuantizeLinear", [x], outputs=3)


@pytest.mark.parametrize(
    ("activation", "params"),
    [("Relu", None), ("HardSigmoid", [0.3, 0.4]), ("LeakyRelu", [0.3]), ("Clip", [-0.3, 0.5]), ("Tanh", None)],
)
def test_fused_conv(activation, params):
    rng = np.random.default_rng(1)
    x, w, b = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 8, 12, 12), (16, 8, 3, 3), (16,)))
    added = rng.normal(size=(2, 16, 12, 12)).astype(np.float32)
    attrs = {"pads": [1] * 4, "activation": activation, **({"activation_params": params} if params else {})}
    for inputs in ([x, w, b], [x, w, b, added]):
        theirs, ours = run_both("FusedConv", inputs, domain=MICROSOFT, **attrs)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)


def test_fused_float_operators():
    rng = np.random.default_rng(2)
    a, row = rng.normal(size=(2, 3, 10, 20)).astype(np.float32), rng.normal(size=20).astype(np.float32)
    short = rng.normal(size=10).astype(np.float32)
    for op, inputs, attrs in (
        ("FusedMatMul", [a, a], {"transB": 1, "alpha": 0.25}),
        ("FusedGemm", [a[0, 0], a[0, 1], short], {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2}),
        ("BiasGelu", [a, row], {}),
        ("QuickGelu", [a], {}),
        ("Gelu", [a], {}),
        ("SkipLayerNormalization", [a[0], a[1], row, row, row], {}),
    ):
        theirs, ours = run_both(op, inputs, domain=MICROSOFT, **attrs)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5, err_msg=op)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates", "states"), [("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)])
def test_recurrent_layers_of_several_lengths(op, gates, states, direction):
    rng = np.random.default_rng(6)
    ways, hidden, size, batch = 2 if direction == "bidirectional" else 1, 5, 4, 3

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    inputs = [normal(7, batch, size), normal(ways, gates * hidden, size), normal(ways, gates * hidden, hidden)]
    inputs += [normal(ways, 2 * gates * hidden), np.array([7, 3, 5], np.int32)]
    inputs += [normal(ways, batch, hidden) for _ in range(states)]
    attrs = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    if op == "LSTM":
        inputs.append(normal(ways, 3 * hidden))
    for theirs, ours in zip(*run_both(op, inputs, outputs=1 + states, **attrs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
