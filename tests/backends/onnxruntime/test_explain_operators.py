"""Nets of every quantized operator, made and quantized here, on ONNX Runtime: no node on codes stays unexplained."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from qdebug.api import explain
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.running.record import record_run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

BLOCKED = "com.microsoft.nchwc"
"""Float operators in a layout of blocks, which nothing here replays."""


class Net:
    """A float net in the making, of one input and random weights."""

    def __init__(self, *shape):
        self.shape, self.rng = shape, np.random.default_rng(5)
        self.nodes, self.constants = [], []

    def const(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, op, *inputs, **attrs):
        name = f"t{len(self.nodes)}_{op}"
        node = onnx.helper.make_node(op, list(inputs), [name], name=f"n{len(self.nodes)}_{op}", **attrs)
        self.nodes.append(node)
        return name

    def normal(self, *shape, deviation=1.0):
        return self.const((self.rng.normal(size=shape) * deviation).astype(np.float32))

    def conv(self, x, channels, filters, size=3, op="Conv", group=1, **attrs):
        shape = (filters, channels // group) if op == "Conv" else (channels, filters // group)
        weight = self.normal(*shape, size, size, deviation=(channels // group * size * size) ** -0.5)
        attrs.setdefault("pads", [size // 2] * 4)
        # The quantizer fails on the bias of a transposed convolution in groups.
        bias = [] if op != "Conv" and group > 1 else [self.normal(filters, deviation=0.3)]
        return self.add(op, x, weight, *bias, kernel_shape=[size, size], group=group, **attrs)

    def linear(self, x, depth, width):
        product = self.add("MatMul", x, self.normal(depth, width, deviation=depth**-0.5))
        return self.add("Add", product, self.normal(width, deviation=0.2))

    def save(self, path, *outputs):
        info, real = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            self.nodes, "net", [info("x", real, self.shape)], [info(o, real, None) for o in outputs], self.constants
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def convolutions(path):
    net = Net(1, 3, 32, 32)
    a = net.add("Relu", net.conv("x", 3, 16))
    b = net.add("Clip", net.conv(a, 16, 16, group=4), net.const(np.float32(0)), net.const(np.float32(6)))
    c = net.conv(net.conv(b, 16, 16, group=16, strides=[2, 2]), 16, 24, 1)
    d = net.conv(c, 24, 16, op="ConvTranspose", strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    e = net.conv(d, 16, 16, 2, op="ConvTranspose", group=4, strides=[2, 2], pads=[0] * 4)
    net.save(path, net.conv(e, 16, 8, dilations=[2, 2], pads=[2] * 4))


def activations(path):
    net = Net(1, 8, 24, 24)
    x = net.conv("x", 8, 16)
    x = net.conv(net.add("Mul", x, net.add("Sigmoid", x)), 16, 16)
    for op, attrs in (
        ("LeakyRelu", {"alpha": 0.1}),
        ("HardSigmoid", {"alpha": 1 / 6}),
        ("HardSwish", {}),
        ("Tanh", {}),
        ("Elu", {}),
        ("Gelu", {}),
    ):
        x = net.conv(net.add(op, x, **attrs), 16, 16)
    net.save(path, net.add("Softmax", x, axis=1))


def pairs(path):
    net = Net(1, 8, 24, 24)
    a, b = net.conv("x", 8, 16), net.conv("x", 8, 16, 1)
    total = net.add("Add", a, b)
    less = net.add("Sub", total, net.conv(total, 16, 16))
    scaled = net.add("Mul", less, net.const(np.linspace(0.5, 1.5, 16, dtype=np.float32).reshape(16, 1, 1)))
    below = net.add("Add", net.add("Sigmoid", net.conv(scaled, 16, 16)), net.const(np.float32(0.5)))
    joined = net.add("Concat", net.add("Div", scaled, below), total, less, axis=1)
    net.save(path, net.add("Min", net.add("Max", net.conv(joined, 48, 16), a), b))


def pools(path):
    net = Net(1, 8, 40, 40)
    x = net.add("AveragePool", net.conv("x", 8, 16), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = net.add("AveragePool", net.conv(x, 16, 16), kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    x = net.add("MaxPool", net.conv(x, 16, 16), kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("Pad", x, net.const(np.array([0, 0, 1, 2, 0, 0, 3, 0])), mode="constant")
    x = net.add("Pad", x, net.const(np.array([0, 0, 1, 1, 0, 0, 1, 1])), mode="reflect")
    x = net.add("AveragePool", net.conv(x, 16, 16), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    mean = net.add("ReduceMean", x, net.const(np.array([2, 3])), keepdims=1)
    x = net.add("Add", net.add("Add", net.add("GlobalAveragePool", x), mean), net.add("GlobalMaxPool", x))
    weight, bias = net.normal(10, 16, deviation=0.3), net.normal(10)
    net.save(path, net.add("Softmax", net.add("Gemm", net.add("Flatten", x), weight, bias, transB=1), axis=-1))


def resizes(path):
    net = Net(1, 8, 20, 20)
    x = net.conv("x", 8, 16)
    for size, placing in (
        ((40, 40), "half_pixel"),
        ((31, 27), "align_corners"),
        ((50, 45), "asymmetric"),
        ((13, 17), "pytorch_half_pixel"),
    ):
        sizes = net.const(np.array((1, 16, *size)))
        x = net.add("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode=placing)
        x = net.conv(x, 16, 16)
    sizes, placing = net.const(np.array((1, 16, 26, 34))), "asymmetric"
    x = net.add("Resize", x, "", "", sizes, coordinate_transformation_mode=placing, nearest_mode="floor")
    net.save(path, net.conv(x, 16, 4))


def attention(path):
    net = Net(2, 24, 32)
    query, key, value = (net.linear("x", 32, 32) for _ in range(3))
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 2, 1]))
    weights = net.add("Softmax", net.add("Mul", scores, net.const(np.float32(32**-0.5))), axis=-1)
    x = net.add("Add", net.linear(net.add("MatMul", weights, value), 32, 32), "x")
    x = net.add("LayerNormalization", x, net.const(np.linspace(0.5, 1.5, 32, dtype=np.float32)), axis=-1)
    net.save(path, net.add("Add", net.linear(net.add("Gelu", net.linear(x, 32, 64)), 64, 32), x))


NETS = {net.__name__: net for net in (convolutions, activations, pairs, pools, resizes, attention)}
TYPES = {
    "uint8 x int8": ("QUInt8", "QInt8", False),
    "int8 x int8 per channel": ("QInt8", "QInt8", True),
    "uint8 x uint8": ("QUInt8", "QUInt8", False),
    "uint16 x int8": ("QUInt16", "QInt8", False),
    "int16 x int8 per channel": ("QInt16", "QInt8", True),
    "uint8 x int4": ("QUInt8", "QInt4", False),
    "uint16 x uint4": ("QUInt16", "QUInt4", False),
}


def quantized(folder, name, form, types):
    path, out = folder / "float.onnx", folder / "quantized.onnx"
    NETS[name](path)
    shape = [size.dim_value for size in onnx.load(path).graph.input[0].type.tensor_type.shape.dim]
    feeds = [{"x": np.random.default_rng(seed).normal(size=shape).astype(np.float32)} for seed in range(4)]

    class Reader(quantization.CalibrationDataReader):
        left = iter(feeds)

        def get_next(self):
            return next(self.left, None)

    activation, weight, per_channel = TYPES[types]
    kinds = quantization.QuantType
    options = {"UseQDQContribOps": True} if "16" in types or "4" in types else {}
    quantization.quantize_static(
        str(path), str(out), Reader(), quant_format=quantization.QuantFormat[form],
        activation_type=kinds[activation], weight_type=kinds[weight], per_channel=per_channel, extra_options=options,
    )  # fmt: skip
    return out, np.random.default_rng(99).normal(size=(2, *shape)).astype(np.float32)


def check(folder, name, form, types, level):
    """Record and explain one net at one level of optimization; give its statuses by operator."""
    model, x = quantized(folder, name, form, types)
    out = folder / "run.h5"
    record_run(model, backend="onnxruntime", options={"opt": level}, inputs={"x": x}, samples=2, out=out)
    found = explain(out)
    blocked = {node.name for node in found_graph(out).nodes if node.domain == BLOCKED}
    left = [node for node in found.nodes if node.status not in (ExplainStatus.EXPLAINED, ExplainStatus.IN_BAND)]
    assert not [(node.node, node.op, node.reason) for node in left if node.node not in blocked]
    return Counter((node.op, node.status) for node in found.nodes)


def found_graph(path):
    from qdebug.session import open_recording

    return open_recording(path).graph


SWEEP = list(itertools.product(NETS, ("QDQ", "QOperator"), ("none", "all")))
QUICK = [(name, ("QDQ", "QOperator")[at % 2], "all") for at, name in enumerate(NETS)]
"""Each net once, in one form or the other, as the runtime optimizes it."""


@pytest.mark.parametrize(
    ("name", "form", "level"),
    [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in SWEEP],
)
def test_operators_are_explained(tmp_path, name, form, level):
    found = check(tmp_path, name, form, "uint8 x int8", level)
    assert sum(count for (_, status), count in found.items() if status is ExplainStatus.EXPLAINED) >= 8
    if name == "resizes" and form == "QOperator":
        assert found["Resize", ExplainStatus.EXPLAINED] == 5


@pytest.mark.slow
@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", NETS)
def test_operators_of_all_types_are_explained(tmp_path, name, form, types, level):
    if form == "QOperator" and ("16" in types or "4" in types):
        pytest.skip("the quantizer makes no operators on codes of these types")
    if name == "attention" and form == "QOperator" and types.startswith("int8") and level in ("extended", "all"):
        pytest.skip("ONNX Runtime refuses the model that the quantizer makes")
    assert check(tmp_path, name, form, types, level)
