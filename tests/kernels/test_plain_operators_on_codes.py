"""Plain operators on codes against ONNX Runtime, which folds Q/DQ groups into kernels on codes or leaves them in float.

What it folds is what the default arithmetic gives, bit for bit. What it leaves in float is the class of some candidate.
"""

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.model import Node, QuantParams
from qdebug.replay import Arithmetic, Coded, Variant, compute, unit_of_codes

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

OPSET = 20
ROUNDS = 4


class Group:
    """One operator between DequantizeLinear and QuantizeLinear: operands, then plain inputs."""

    def __init__(self, op, operands, out, *, plain=(), relu=False, condition=None, **attrs):
        self.op, self.operands, self.out, self.plain = op, operands, out, plain
        self.relu, self.condition, self.attrs = relu, condition, attrs

    def inputs(self):
        given = [Coded(values=c, quant=quant_of(c, s, z, axis)) for c, s, z, axis in self.operands]
        given += [None if value is None else Coded(values=value) for value in self.plain]
        return given if self.condition is None else [Coded(values=self.condition), *given]

    def unit(self):
        scale, zero = self.out
        names = tuple("" if coded is None else f"i{k}" for k, coded in enumerate(self.inputs()))
        node = Node(name="n", op=self.op, inputs=names, outputs=("y",), attrs=self.attrs)
        quant = QuantParams(dtype=zero.dtype.name, scale=np.float32(scale), zero_point=int(zero))
        bounds = (0.0, None) if self.relu else (None, None)
        return unit_of_codes(node, self.inputs(), quant, opset={"": OPSET}, bounds=bounds)

    def run(self):
        """Return the runtime's codes."""
        from onnx import helper, numpy_helper

        nodes, constants, names = [], [], []
        for k, (codes, scale, zero, axis) in enumerate(self.operands):
            zeros = np.broadcast_to(np.asarray(zero, codes.dtype), np.shape(scale))
            for name, value in ((f"s{k}", np.asarray(scale, np.float32)), (f"z{k}", zeros), (f"q{k}", codes)):
                if name != "q0":
                    constants.append(numpy_helper.from_array(np.array(value), name))
            more = {} if axis is None else {"axis": axis}
            nodes.append(helper.make_node("DequantizeLinear", [f"q{k}", f"s{k}", f"z{k}"], [f"d{k}"], **more))
            names.append(f"d{k}")
        for k, value in enumerate(self.plain):
            if value is not None:
                constants.append(numpy_helper.from_array(value, f"p{k}"))
            names.append("" if value is None else f"p{k}")
        if self.condition is not None:
            constants.append(numpy_helper.from_array(self.condition, "condition"))
            names.insert(0, "condition")
        nodes.append(helper.make_node(self.op, names, ["f"], **self.attrs))
        if self.relu:
            nodes.append(helper.make_node("Relu", ["f"], ["r"]))
        scale, zero = self.out
        constants += [numpy_helper.from_array(np.asarray(scale, np.float32), "ys"), numpy_helper.from_array(zero, "yz")]
        nodes.append(helper.make_node("QuantizeLinear", ["r" if self.relu else "f", "ys", "yz"], ["y"]))
        x = self.operands[0][0]
        given = [helper.make_tensor_value_info("q0", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
        graph = helper.make_graph(nodes, "group", given, [onnx.ValueInfoProto(name="y")], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        options = ort.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, {"q0": x})[0]


def quant_of(codes, scale, zero, axis):
    zeros = np.broadcast_to(np.asarray(zero, np.int64), np.shape(scale))
    return QuantParams(dtype=codes.dtype.name, scale=np.asarray(scale, np.float32), zero_point=zeros, axis=axis)


class Draw:
    def __init__(self, seed, dtype):
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)

    def codes(self, *shape, dtype=None):
        info = np.iinfo(dtype or self.dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(info.dtype)

    def scale(self):
        return float(np.exp(self.rng.uniform(np.log(0.002), np.log(0.2))))

    def tensor(self, *shape):
        return self.codes(*shape), self.scale(), int(self.codes()), None

    def out(self, scale, zero=None):
        return scale, self.codes() if zero is None else np.array(zero, self.dtype)

    @property
    def least(self):
        return int(np.iinfo(self.dtype).min)

    def weight(self, *shape, axis):
        scale = self.rng.uniform(0.001, 0.01, shape[axis]).astype(np.float32)
        return self.rng.integers(-127, 128, shape).astype(np.int8), scale, 0, axis

    def bias(self, x, weight):
        scale = np.float32(x[1]) * weight[1]
        return self.rng.integers(-3000, 3000, scale.size).astype(np.int32), scale, 0, 0


def folded(draw):
    """Groups that the runtime folds into one kernel on codes."""
    x, other = draw.tensor(1, 4, 9, 9), draw.tensor(1, 4, 9, 9)
    yield Group("Add", [x, other], draw.out(draw.scale()))
    yield Group("Add", [x, other], draw.out(draw.scale(), draw.least), relu=True)
    yield Group("Mul", [x, other], draw.out(draw.scale()))
    yield Group("AveragePool", [x], draw.out(x[1] * 0.7), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield Group("GlobalAveragePool", [x], draw.out(x[1] * 0.2))
    yield Group("LeakyRelu", [x], draw.out(draw.scale()), alpha=0.1)
    yield Group("Sigmoid", [x], draw.out(1 / 256))
    yield Group("Softmax", [draw.tensor(6, 33)], draw.out(1 / 256, draw.least), axis=-1)
    yield Group("Concat", [x, other], draw.out(draw.scale()), axis=1)
    yield Group("Where", [x, other], draw.out(draw.scale()), condition=draw.rng.random((1, 4, 9, 9)) > 0.5)
    same = draw.out(x[1], x[2])
    yield Group("MaxPool", [x], same, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield Group("Transpose", [x], same, perm=[0, 2, 3, 1])
    yield Group("Resize", [x], same, plain=[None, np.array([1, 1, 2, 2], np.float32)], mode="nearest")
    if draw.dtype == np.uint8:
        w = draw.weight(6, 4, 3, 3, axis=0)
        yield Group("Conv", [x, w, draw.bias(x, w)], draw.out(x[1] * 0.4), pads=[1, 1, 1, 1])
        yield Group("Conv", [x, w, draw.bias(x, w)], draw.out(x[1] * 0.4, 0), pads=[1, 1, 0, 1], relu=True)
        a, b = draw.tensor(5, 30), draw.weight(30, 7, axis=1)
        yield Group("MatMul", [a, b], draw.out(a[1] * 0.3))
        yield Group("Gemm", [a, b, draw.bias(a, b)], draw.out(a[1] * 0.3))


def in_float(draw):
    """Groups that it computes in float32, operator by operator."""
    x, other = draw.tensor(1, 4, 9, 9), draw.tensor(1, 4, 9, 9)
    yield Group("Sub", [x, other], draw.out(draw.scale()))
    yield Group("Div", [x, other], draw.out(draw.scale()))
    yield Group("MaxPool", [x], draw.out(x[1] * 0.7), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield Group("Relu", [x], draw.out(x[1] * 0.7, draw.least))
    ends = [np.float32(-x[1] * 20), np.float32(x[1] * 30)]
    yield Group("Clip", [x], draw.out(x[1] * 0.3), plain=[np.asarray(end) for end in ends])
    for op in ("Tanh", "HardSigmoid", "HardSwish", "Elu", "Erf", "Softplus"):
        yield Group(op, [x], draw.out(1 / 128))
    yield Group("Pad", [x], draw.out(x[1] * 0.7), plain=[np.array([0, 0, 1, 1, 0, 0, 1, 1])])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])
def test_what_the_runtime_folds_is_the_default(dtype):
    for seed in range(ROUNDS):
        for group in folded(Draw(seed, dtype)):
            unit = group.unit()
            codes = compute(unit, Arithmetic().variant(unit))
            np.testing.assert_array_equal(codes, group.run(), err_msg=f"{group.op} in round {seed}", strict=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=["uint8", "int8"])
def test_what_it_computes_in_float_is_among_the_candidates(dtype):
    for seed in range(ROUNDS):
        for group in in_float(Draw(seed, dtype)):
            unit, codes = group.unit(), group.run()
            found = [str(variant) for variant in candidates(unit) if np.array_equal(compute(unit, variant), codes)]
            assert found, f"{group.op} in round {seed}"


def coded(codes, scale=0.1, zero=3, axis=None):
    return Coded(values=codes, quant=quant_of(codes, scale, zero, axis))


QUANT = QuantParams(dtype="int8", scale=np.float32(0.2), zero_point=5)
CODES = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)


def made(op, *inputs, quant=QUANT, **attrs):
    names = tuple("" if coded is None else "x" for coded in inputs)
    return unit_of_codes(Node(name="n", op=op, inputs=names, outputs=("y",), attrs=attrs), inputs, quant)


def test_what_is_not_computed_on_codes_makes_no_unit():
    plain = Coded(values=CODES.astype(np.float32))
    assert made("LSTM", coded(CODES)) is None
    assert made("Add", coded(CODES), plain) is None
    assert made("MatMul", coded(CODES[0]), coded(CODES)) is None
    along_depth = coded(CODES, np.full(4, 0.1, np.float32), 0, axis=0)
    assert made("MatMul", coded(CODES), along_depth) is None
    assert made("Gemm", coded(CODES), coded(CODES), coded(CODES[0]), beta=0.5) is None
    several = QuantParams(dtype="int8", scale=np.full(4, 0.1, np.float32), zero_point=np.zeros(4, int), axis=0)
    assert made("Relu", coded(CODES), quant=several) is None
    assert made("FusedConv", coded(CODES[None, None]), coded(CODES[None, None]), activation="Tanh") is None


@pytest.mark.parametrize("alpha", [1.0, 0.5, -2.0])
def test_a_gemm_s_alpha_scales_its_product(alpha):
    a, b = coded(CODES), coded(CODES.T.copy(), 0.1, 0)
    wide = QuantParams(dtype="int16", scale=np.float32(0.01), zero_point=0)
    codes = compute(made("Gemm", a, b, quant=wide, alpha=alpha), Variant())
    real = [each.values.astype(float) - int(each.quant.zero_point[0]) for each in (a, b)]
    product = alpha * (real[0] * a.quant.scale[0]) @ (real[1] * b.quant.scale[0])
    assert codes == pytest.approx(product / 0.01, abs=0.51)


def test_bounds_of_fused_activations_become_codes():
    assert made("Relu", coded(CODES)).out.clamp == (5, 127)
    relu6 = made("Clip", coded(CODES), Coded(values=np.float32(0)), Coded(values=np.float32(6)))
    assert relu6.out.clamp == (5, 35)
    x, w = coded(CODES[None, None]), coded(CODES[None, None, :2, :2], 0.1, 0)
    assert made("FusedConv", x, w, activation="Clip", activation_params=(-1.0, 1.0)).out.clamp == (0, 10)
    assert made("Conv", x, w).out.clamp is None


def test_biases_at_the_scale_of_the_sums_are_told_from_others():
    x, w = coded(CODES[None, None]), coded(CODES[None, None, :2, :2], 0.25, 0)
    values = np.array([7], np.int32)
    at_sums = made("Conv", x, w, coded(values, np.float32(0.1) * np.float32(0.25), 0))
    assert (at_sums.bias_scale, at_sums.bias.tolist()) == (None, [7])
    own = made("Conv", x, w, coded(values, 0.01, 2))
    assert (float(own.bias_scale[0]), own.bias.tolist()) == (np.float32(0.01), [5])
    assert made("Conv", x, w, Coded(values=np.array([0.5], np.float32))).bias.tolist() == [0.5]


def test_transposed_convolutions_spread_their_input():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (1, 2, 4, 5)).astype(np.int8), rng.integers(-128, 128, (2, 3, 3, 2)).astype(np.int8)
    scales = np.array([0.01, 0.02, 0.03], np.float32)
    unit = made("ConvTranspose", coded(x), coded(w, scales, 0, axis=1), strides=(2, 1), pads=(1, 0, 0, 1))
    real = np.zeros((3, 9, 6))
    for channel, row, column in np.ndindex(2, 4, 5):
        value = (int(x[0, channel, row, column]) - 3) * 0.1
        real[:, 2 * row : 2 * row + 3, column : column + 2] += value * w[channel] * scales[:, None, None]
    codes = compute(unit, Arithmetic().variant(unit))
    expected = np.clip(np.rint(real[:, 1:, :5] / 0.2) + 5, -128, 127)
    assert codes.shape == (1, 3, 8, 5)
    assert np.abs(codes[0] - expected).max() <= 1
    assert (codes[0] == expected).mean() > 0.99


def test_a_code_to_pad_with_is_one():
    codes = np.array([[200, 10]], np.uint8)
    quant = QuantParams(dtype="uint8", scale=np.float32(0.25), zero_point=7)
    widths = Coded(values=np.array([0, 1, 0, 1]))
    node = Node(name="n", op="Pad", inputs=("x", "pads", "value"), outputs=("y",), attrs={"mode": "constant"})
    for value, padded in ((np.uint8(9), 9), (np.float32(0.5), 9), (np.float32(0), 7)):
        unit = unit_of_codes(node, [Coded(values=codes, quant=quant), widths, Coded(values=np.asarray(value))], quant)
        assert compute(unit, Arithmetic().variant(unit)).tolist() == [[padded, 200, 10, padded]]
