"""Whole sweeps of scales, zero points and shapes through ONNX Runtime: every code is the same, by default arithmetic.

Scales are generic in every other round and powers of two in the others, where ties are common; zero points are any
code. Where a processor adds pairs of products in 16 bits, so does the arithmetic that is held against it.
"""

import numpy as np
import pytest

from qdebug.arithmetic.presets import preset
from qdebug.model import Node
from qdebug.replay import run_node

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

MICROSOFT = "com.microsoft"
ROUNDS = 12


def both(op, inputs, *, arithmetic=None, domain=MICROSOFT, outputs=1, **attrs):
    """Run one node in ONNX Runtime and here; what has no more than one axis is a constant."""
    from onnx import helper

    names, results = [f"i{k}" for k in range(len(inputs))], [f"o{k}" for k in range(outputs)]
    values = dict(zip(names, inputs, strict=True))
    feed = {name: value for name, value in values.items() if value.ndim > 1}
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attrs)],
        "one",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feed.items()],
        [onnx.ValueInfoProto(name=name) for name in results],
        [onnx.numpy_helper.from_array(v, n) for n, v in values.items() if n not in feed],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    theirs = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feed
    )
    node = Node(name="n", op=op, domain=domain, inputs=tuple(names), outputs=tuple(results), attrs=attrs)
    ours = run_node(node, values, {"": 21, MICROSOFT: 1}, arithmetic=arithmetic)
    return theirs, [ours[name] for name in results]


class Draw:
    """Random codes, scales and zero points of one dtype; dyadic scales in odd rounds."""

    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)
        self.dyadic = bool(seed % 2)

    def codes(self, *shape, dtype=None):
        info = np.iinfo(dtype or self.dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(info.dtype)

    def scale(self, times=1.0):
        value = 2.0 ** -self.rng.integers(1, 9) if self.dyadic else np.exp(self.rng.uniform(np.log(1e-3), np.log(0.3)))
        return np.array(value * times, np.float32)

    def tensor(self, *shape):
        return [self.codes(*shape), self.scale(), self.codes()]

    def many(self, low, high, count):
        return [int(value) for value in self.rng.integers(low, high, count)]


def elementwise(draw):
    shape = (draw.many(1, 6, 1)[0], draw.many(1, 70, 1)[0])
    for op in ("QLinearAdd", "QLinearMul"):
        for first, second in ((shape, shape), (shape, (1, 1)), ((1, 1), shape)):
            yield op, [*draw.tensor(*first), *draw.tensor(*second), draw.scale(), draw.codes()], {}


def pools(draw):
    pads, strides = draw.many(0, 2, 4), draw.many(1, 3, 2)
    for include in (0, 1):
        for ceil in (0, 1):
            attrs = {"kernel_shape": [3, 2], "pads": pads, "strides": strides, "count_include_pad": include}
            inputs = [*draw.tensor(2, 5, 9, 11), draw.scale(), draw.codes()]
            yield "QLinearAveragePool", inputs, attrs | {"ceil_mode": ceil}
    last = {"kernel_shape": [3, 2], "pads": pads, "channels_last": 1}
    yield "QLinearAveragePool", [*draw.tensor(2, 9, 11, 5), draw.scale(), draw.codes()], last
    for last in (0, 1):
        x = draw.tensor(2, 7, 5, 6)
        scale = np.array(x[1] * draw.rng.uniform(0.05, 1.2), np.float32)
        yield "QLinearGlobalAveragePool", [*x, scale, draw.codes()], {"channels_last": last}


def functions(draw):
    for scale in (np.array(1 / 256, np.float32), draw.scale()):
        yield "QLinearSigmoid", [*draw.tensor(16, 32), scale, draw.codes()], {}
    yield "QLinearLeakyRelu", [*draw.tensor(16, 32), draw.scale(), draw.codes()], {"alpha": float(draw.rng.random())}


def softmaxes(draw):
    least = np.array(np.iinfo(draw.dtype).min, draw.dtype)
    length = draw.many(2, 60, 1)[0]
    for axis, opset, shape in ((-1, 13, (6, length)), (1, 13, (3, 6, 5)), (1, 12, (3, 6, 5)), (0, 13, (4, 3))):
        for scale, zero in ((1 / 256, least), (1 / 300, draw.codes()), (0.03, draw.codes())):
            inputs = [*draw.tensor(*shape), np.array(scale, np.float32), zero]
            yield "QLinearSoftmax", inputs, {"axis": axis, "opset": opset}


def moves(draw):
    parts = [value for width in (9, 20, 3) for value in draw.tensor(4, width)]
    yield "QLinearConcat", [draw.scale(), draw.codes(), *parts], {"axis": 1}
    chosen = draw.rng.random((4, 9)) > 0.5
    yield "QLinearWhere", [chosen, *draw.tensor(4, 9), *draw.tensor(4, 9), draw.scale(), draw.codes()], {}


def products(draw):
    for weight in (np.int8, np.uint8) if draw.dtype == np.uint8 else (np.int8,):
        filters, channels = draw.many(1, 20, 2)
        several = bool(draw.many(0, 2, 1)[0])
        scale = np.array([draw.scale() for _ in range(filters)], np.float32) if several else draw.scale()
        zero = draw.codes(dtype=weight) if not several else np.full(filters, 0 if weight == np.int8 else 131, weight)
        bias = draw.rng.integers(-5000, 5000, filters).astype(np.int32)
        out = [draw.scale(30), draw.codes()]
        x = draw.tensor(1, channels, 9, 8)
        w = draw.codes(filters, channels, 3, 2, dtype=weight)
        yield "QLinearConv", [*x, w, scale, zero, *out, bias], {"domain": "", "pads": draw.many(0, 2, 4)}
        a, b = draw.tensor(7, channels * 3), draw.codes(channels * 3, filters, dtype=weight)
        yield "QLinearMatMul", [*a, b, scale, zero, *out], {"domain": ""}
        yield "QGemm", [*a, b, scale, zero, bias, *out], {"alpha": float(draw.rng.choice([1, 0.5, 0.3]))}


def casts(draw):
    x = (draw.rng.normal(size=(16, 33)) * draw.rng.choice([0.1, 1, 100, 1e6])).astype(np.float32)
    for values in (x, np.round(x * 64) / 64):
        yield "QuantizeLinear", [values.astype(np.float32), draw.scale(), draw.codes()], {"domain": ""}
        yield "DynamicQuantizeLinear", [values.astype(np.float32)], {"domain": "", "outputs": 3}
        yield "DynamicQuantizeLinear", [np.abs(values).astype(np.float32)], {"domain": "", "outputs": 3}
    yield "DequantizeLinear", [*draw.tensor(16, 33)], {"domain": ""}


FAMILIES = (elementwise, pools, functions, softmaxes, moves, products, casts)


@pytest.mark.parametrize("dtype", [np.uint8, pytest.param(np.int8, marks=pytest.mark.slow)], ids=["uint8", "int8"])
@pytest.mark.parametrize("family", FAMILIES, ids=[family.__name__ for family in FAMILIES])
def test_every_code_is_the_runtime_s(family, dtype, mlas):
    arithmetic = preset(mlas).arithmetic if family is products else None
    elements = 0
    for seed in range(ROUNDS):
        for op, inputs, attrs in family(Draw(seed, dtype)):
            for theirs, ours in zip(*both(op, inputs, arithmetic=arithmetic, **attrs), strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=f"{op} {attrs} in round {seed}", strict=True)
                elements += theirs.size
    assert elements > 500
