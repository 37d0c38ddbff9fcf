"""Nets of the bench that came after the rules of the comparison were frozen: no rule may be changed to suit them.

Whoever changes rules looks at the rates of these nets alone, not at what was said of a fault in them.
"""

from __future__ import annotations

import numpy as np
import onnx
from net_builder import Builder, packaged, smooth, tokens


def causal() -> onnx.ModelProto:
    """Build a decoder: rotated positions, masked attention, root mean square norms, a gated layer."""
    b, width, heads, length = Builder(21, "causal"), 32, 2, 16
    size = width // heads
    ids = b.input("ids", [1, length], "i")
    x = b.scope("embed").op("Gather", b.random(120, width, scale=0.8, title="table"), ids, axis=0)
    angle = np.arange(length)[:, None] / 100.0 ** (np.arange(size // 2) / (size // 2))
    angle = np.concatenate([angle, angle], -1)[None, None]
    cosine, sine = b.constant(np.cos(angle), "cosine"), b.constant(np.sin(angle), "sine")
    past = b.constant(np.tril(np.ones((1, 1, length, length))), "past", np.bool_)
    none = b.constant(-1e9, "none")

    def norm(x: str) -> str:
        square = b.op("ReduceMean", b.op("Pow", x, b.constant(2.0, "two")), axes=[-1], keepdims=1)
        root = b.op("Sqrt", b.op("Add", square, b.constant(1e-5, "epsilon")))
        return b.op("Mul", b.op("Div", x, root), b.random(width, scale=0.15, shift=1, title="gain"))

    def rotated(x: str) -> str:
        ends = [b.integers([n], "bound") for n in (0, size // 2, size)]
        axis = b.integers([3], "axis")
        low, high = b.op("Slice", x, ends[0], ends[1], axis), b.op("Slice", x, ends[1], ends[2], axis)
        turned = b.op("Concat", b.op("Neg", high), low, axis=3)
        return b.op("Add", b.op("Mul", x, cosine), b.op("Mul", turned, sine))

    for number in range(2):
        b.scope(f"layer{number}")
        y = norm(x)
        q, k, v = (
            b.op(
                "Transpose",
                b.reshape(b.op("MatMul", y, b.random(width, width)), 1, length, heads, size),
                perm=[0, 2, 1, 3],
            )
            for _ in range(3)
        )
        scores = b.op("MatMul", rotated(q), b.op("Transpose", rotated(k), perm=[0, 1, 3, 2]))
        scores = b.op("Where", past, b.op("Div", scores, b.constant(np.sqrt(size), "root")), none)
        mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = b.op("Add", x, b.op("MatMul", b.reshape(mixed, 1, length, width), b.random(width, width)))
        y = norm(x)
        gate = b.op("MatMul", y, b.random(width, 3 * width, scale=0.2))
        gate = b.op("Mul", gate, b.op("Sigmoid", gate))
        y = b.op("Mul", gate, b.op("MatMul", y, b.random(width, 3 * width, scale=0.2)))
        x = b.op("Add", x, b.op("MatMul", y, b.random(3 * width, width, scale=0.1)))
    return b.build(b.scope("head").op("MatMul", norm(x), b.random(width, 40, scale=0.2)))


def grouped() -> onnx.ModelProto:
    """Build a classifier of grouped convolutions with exponential units and a projection on each shortcut."""
    b = Builder(22, "grouped")
    x = b.input("image", [1, 1, 28, 28])
    x = b.scope("stem").op("Elu", b.norm(b.conv(x, 1, 16, 5), 16), alpha=0.7)
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for number, (inside, out) in enumerate([(16, 32), (32, 48)]):
        b.scope(f"block{number}")
        y = b.op("Elu", b.norm(b.conv(x, inside, inside, 1), inside), alpha=0.7)
        y = b.op("Elu", b.norm(b.conv(y, inside, inside, group=4, strides=[2, 2]), inside), alpha=0.7)
        y = b.norm(b.conv(y, inside, out, 1), out)
        short = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        x = b.op("Elu", b.op("Add", b.conv(short, inside, out, 1), y), alpha=0.7)
    x = b.scope("head").op("ReduceMean", x, axes=[2, 3], keepdims=0)
    return b.build(b.gemm(b.op("Relu", b.gemm(x, 48, 32)), 32, 10))


def generator() -> onnx.ModelProto:
    """Build a generator of pictures: from a vector, by transposed convolutions, an instance norm, reflected borders."""
    b = Builder(23, "generator")
    x = b.input("vector", [1, 24])
    x = b.scope("project").op("LeakyRelu", b.gemm(x, 24, 32 * 4 * 4), alpha=0.2)
    x = b.reshape(x, 1, 32, 4, 4)
    for number, (inside, out) in enumerate([(32, 24), (24, 16)]):
        b.scope(f"up{number}")
        weight = b.constant(b.rng.normal(0, np.sqrt(1.6 / (4 * inside)), (inside, out, 4, 4)), "weight")
        bias = b.random(out, scale=0.1, title="bias")
        x = b.op("ConvTranspose", x, weight, bias, strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[4, 4])
        if number:
            parts = [b.random(out, scale=0.15, shift=1, title="gamma"), b.random(out, scale=0.1, title="beta")]
            x = b.op("InstanceNormalization", x, *parts, epsilon=1e-5)
        else:
            x = b.norm(x, out)
        x = b.op("LeakyRelu", x, alpha=0.2)
    x = b.scope("up2").op(
        "Resize",
        x,
        "",
        b.constant([1, 1, 2, 2], "scales"),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    x = b.op("Pad", x, b.integers([0, 0, 1, 1, 0, 0, 1, 1], "amounts"), mode="reflect")
    return b.build(b.op("Tanh", b.conv(x, 16, 3, pads=[0, 0, 0, 0])))


def keyword() -> onnx.ModelProto:
    """Build a keyword spotter: a spectrum in decibels, dilated and depthwise convolutions in time, a backward GRU."""
    b, bands, length = Builder(24, "keyword"), 20, 32
    x = b.input("spectrum", [1, length, 33])
    b.scope("bands")
    power = b.op("Mul", x, x)
    filters = b.constant(np.abs(b.rng.normal(0, 0.3, (33, bands))), "filters")
    x = b.op("MatMul", power, filters)
    x = b.op("Log", b.op("Max", x, b.constant(1e-3, "floor")))
    x = b.op(
        "Div",
        b.op("Sub", x, b.random(bands, scale=0.5, title="mean")),
        b.constant(b.rng.uniform(1, 2, bands), "spread"),
    )
    x = b.op("Transpose", x, perm=[0, 2, 1])
    for number, dilation in enumerate((1, 2, 4)):
        b.scope(f"block{number}")
        y = b.norm(b.conv(x, bands, bands, 5, rank=1, group=bands, dilations=[dilation]), bands)
        y = b.op("PRelu", b.conv(y, bands, bands, 1, rank=1), b.constant(b.rng.uniform(0.1, 0.4, (bands, 1)), "slope"))
        x = b.op("Add", x, y)
    b.scope("recurrent")
    parts = [b.random(1, 3 * bands, bands, scale=0.25) for _ in range(2)]
    x = b.op("GRU", b.op("Transpose", x, perm=[2, 0, 1]), *parts, hidden_size=bands, direction="reverse")
    x = b.op("Squeeze", x, b.integers([1], "axes"))
    loud = b.scope("head").op("ReduceMax", x, axes=[0], keepdims=0)
    usual = b.op("ReduceMean", x, axes=[0], keepdims=0)
    return b.build(b.op("Softmax", b.gemm(b.op("Concat", loud, usual, axis=1), 2 * bands, 8), axis=1))


_NAMES = "arabic-name-romanizer==0.2.0"
NETS = {
    "causal": (lambda cache: causal(), lambda n: {"ids": tokens(n, 16, most=120, seed=21)}),
    "grouped": (lambda cache: grouped(), lambda n: {"image": smooth(n, 1, 28, 28, seed=22)}),
    "generator": (lambda cache: generator(), lambda n: {"vector": smooth(n, 24, seed=23)}),
    "keyword": (lambda cache: keyword(), lambda n: {"spectrum": smooth(n, 32, 33, seed=24)}),
    "name decoder": (
        packaged(_NAMES, "arabic_name_romanizer/resources/decoder.onnx"),
        lambda n: {
            "prefix": tokens(n, 4, most=150, seed=32),
            "memory": smooth(n, 9, 256, seed=33, scale=0.4),
            "src_mask": np.ones((n, 1, 9), bool),
            "hidden": smooth(n, 2, 256, seed=34, scale=0.4),
        },
    ),
    "seizure": (
        packaged("brainmaze-eeg-models==0.1.0", "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx"),
        lambda n: {"x": smooth(n, 100, 24, seed=35)},
    ),
    "voice 16k": (
        packaged("silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx"),
        lambda n: {
            "input": smooth(n, 576, seed=36, scale=0.2),
            "state": smooth(n, 2, 128, seed=37, scale=0.3).reshape(n, 2, 1, 128),
        },
    ),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
