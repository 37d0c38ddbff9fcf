"""Nets of the bench whose answers may be looked at while rules change: made here, or out of packages.

A net is a model and a function that makes inputs for a number of samples. No unit test uses them.
"""

from __future__ import annotations

import numpy as np
import onnx
from net_builder import Builder, packaged, smooth, tokens


def mobile() -> onnx.ModelProto:
    """Build a picture classifier of separable convolutions, with squeeze and excitation."""
    b = Builder(11, "mobile")
    x = b.input("image", [1, 3, 48, 48])
    x = b.scope("stem").op("Relu", b.norm(b.conv(x, 3, 16, strides=[2, 2]), 16))
    for number, (inside, out, stride) in enumerate([(16, 24, 2), (24, 24, 1), (24, 40, 2)]):
        b.scope(f"block{number}")
        wide = inside * 3
        y = b.op("Clip", b.norm(b.conv(x, inside, wide, 1), wide), b.constant(0.0, "low"), b.constant(6.0, "high"))
        y = b.op("HardSwish", b.norm(b.conv(y, wide, wide, group=wide, strides=[stride, stride]), wide))
        if number == 1:
            gate = b.op("Relu", b.conv(b.op("GlobalAveragePool", y), wide, wide // 4, 1))
            y = b.op("Mul", y, b.op("HardSigmoid", b.conv(gate, wide // 4, wide, 1)))
        y = b.norm(b.conv(y, wide, out, 1), out)
        x = b.op("Add", x, y) if inside == out and stride == 1 else y
    b.scope("head")
    x = b.op("Relu", b.norm(b.conv(x, 40, 64, 1), 64))
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    return b.build(b.op("Softmax", b.gemm(x, 64, 10), axis=-1))


def encoder() -> onnx.ModelProto:
    """Build two transformer layers over tokens."""
    b, width, heads, length = Builder(12, "encoder"), 48, 4, 24
    ids = b.input("ids", [1, length], "i")
    b.scope("embed")
    x = b.op("Gather", b.random(200, width, scale=0.7, title="table"), ids, axis=0)
    x = b.layer_norm(b.op("Add", x, b.random(1, length, width, scale=0.3, title="positions")), width)
    for number in range(2):
        b.scope(f"layer{number}")
        parts = b.op("Split", b.dense(x, width, 3 * width), b.integers([width] * 3, "sizes"), outputs=3, axis=-1)
        q, k, v = (
            b.op("Transpose", b.reshape(part, 1, length, heads, width // heads), perm=perm)
            for part, perm in zip(b.outputs_of(parts, 3), ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = b.op("Mul", b.op("MatMul", q, k), b.constant(1 / np.sqrt(width // heads), "scale"))
        mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
        joined = b.reshape(b.op("Transpose", mixed, perm=[0, 2, 1, 3]), 1, length, width)
        x = b.layer_norm(b.op("Add", x, b.dense(joined, width, width)), width)
        y = b.dense(b.gelu(b.dense(x, width, 2 * width)), 2 * width, width)
        x = b.layer_norm(b.op("Add", x, y), width)
    b.scope("head")
    first = b.op("Squeeze", b.op("Slice", x, *(b.integers([n], "bound") for n in (0, 1, 1))), b.integers([1], "axes"))
    pooled = b.op("Tanh", b.gemm(first, width, width))
    return b.build(b.gemm(pooled, width, 6))


def unet() -> onnx.ModelProto:
    """Build a small U-Net."""
    b = Builder(13, "unet")
    x = b.input("image", [1, 3, 32, 32])
    kept = []
    for number, (inside, out) in enumerate([(3, 12), (12, 24)]):
        b.scope(f"down{number}")
        x = b.op("LeakyRelu", b.conv(x, inside, out), alpha=0.1)
        x = b.op("Relu", b.conv(x, out, out))
        kept.append(x)
        x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.scope("middle").op("Relu", b.conv(x, 24, 32, dilations=[2, 2]))
    for number, (inside, out) in enumerate([(32, 24), (24, 12)]):
        b.scope(f"up{number}")
        if number:
            weight = b.constant(b.rng.normal(0, np.sqrt(1.6 / inside), (inside, inside, 2, 2)), "weight")
            x = b.op("ConvTranspose", x, weight, b.random(inside, scale=0.1, title="bias"), strides=[2, 2])
        else:
            scales = b.constant([1, 1, 2, 2], "scales")
            x = b.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
        x = b.op("Concat", x, kept[1 - number], axis=1)
        x = b.op("Relu", b.conv(x, inside + out, out))
    return b.build(b.scope("head").op("Sigmoid", b.conv(x, 12, 2, 1)))


def speech() -> onnx.ModelProto:
    """Build a recurrent acoustic model: convolutions in time, an LSTM, a GRU."""
    b, width, length = Builder(14, "speech"), 24, 30
    x = b.input("frames", [1, 20, length])
    x = b.scope("front").op("Relu", b.norm(b.conv(x, 20, width, 5, rank=1), width))
    x = b.op("Relu", b.norm(b.conv(x, width, width, 3, rank=1), width))
    x = b.op("Transpose", x, perm=[2, 0, 1])
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        b.scope(kind.lower())
        parts = [b.random(1, gates * width, width, scale=0.25) for _ in range(2)]
        parts.append(b.random(1, 2 * gates * width, scale=0.1, title="bias"))
        more = {"linear_before_reset": 1} if kind == "GRU" else {}
        x = b.op("Squeeze", b.op(kind, x, *parts, hidden_size=width, **more), b.integers([1], "axes"))
    x = b.scope("head").dense(x, width, 16)
    return b.build(b.op("LogSoftmax", x, axis=-1))


def detector() -> onnx.ModelProto:
    """Build a detector: two heads, boxes from exponentials, the best of them picked."""
    b = Builder(15, "detector")
    x = b.input("image", [1, 3, 40, 40])
    for number, (inside, out) in enumerate([(3, 16), (16, 32), (32, 48)]):
        x = b.scope(f"stage{number}").op("Relu", b.norm(b.conv(x, inside, out, strides=[2, 2]), out))
    raw = b.scope("head").conv(x, 48, 2 * 8, 1)
    flat = b.op("Transpose", b.reshape(raw, 1, 2, 8, 25), perm=[0, 1, 3, 2])
    flat = b.reshape(flat, 1, 50, 8)
    first = b.op("Split", flat, b.integers([2, 2, 4], "sizes"), outputs=3, axis=-1)
    centre, size, scores = b.outputs_of(first, 3)
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), -1).reshape(1, 25, 2)
    centre = b.op("Add", b.op("Sigmoid", centre), b.constant(np.tile(grid, (1, 2, 1)), "grid"))
    centre = b.op("Mul", centre, b.constant(8.0, "stride"))
    size = b.op("Mul", b.op("Exp", size), b.constant(b.rng.uniform(6, 20, (1, 50, 2)), "anchors"))
    half = b.op("Mul", size, b.constant(0.5, "half"))
    boxes = b.op("Concat", b.op("Sub", centre, half), b.op("Add", centre, half), axis=-1)
    scores = b.op("Softmax", scores, axis=-1)
    best = b.op("ReduceMax", scores, axes=[2], keepdims=0)
    top = b.op("TopK", best, b.integers([8], "count"), outputs=2, axis=-1)
    values, at = b.outputs_of(top, 2)
    picked = b.op("Gather", boxes, b.op("Squeeze", at, b.integers([0], "axes")), axis=1)
    return b.build(boxes, scores, values, picked)


def ranking() -> onnx.ModelProto:
    """Build a recommender: embeddings, their dot products, a deep part."""
    b, width = Builder(16, "ranking"), 16
    dense = b.input("numbers", [8, 13])
    fields = [b.input(name, [8], "i") for name in ("user", "item", "place")]
    b.scope("bottom")
    centred = b.op("Sub", dense, b.random(13, scale=0.3, title="mean"))
    scaled = b.op("Div", centred, b.constant(b.rng.uniform(0.8, 1.5, 13), "spread"))
    x = b.op("Relu", b.gemm(scaled, 13, 32))
    x = b.op("Relu", b.gemm(x, 32, width))
    b.scope("tables")
    rows = [b.op("Gather", b.random(50, width, scale=0.5, title="table"), field, axis=0) for field in fields]
    stacked = b.op("Concat", *(b.op("Unsqueeze", row, b.integers([1], "axes")) for row in (x, *rows)), axis=1)
    b.scope("cross")
    dots = b.op("MatMul", stacked, b.op("Transpose", stacked, perm=[0, 2, 1]))
    picked = b.op("Gather", b.reshape(dots, 8, 16), b.integers([4, 8, 9, 12, 13, 14], "pairs"), axis=1)
    b.scope("top")
    x = b.op("Concat", x, picked, axis=1)
    x = b.op("PRelu", b.gemm(x, width + 6, 24), b.constant(b.rng.uniform(0.1, 0.4, 24), "slope"))
    wide = b.op("ReduceSum", scaled, b.integers([1], "axes"), keepdims=1)
    x = b.op("Add", b.gemm(x, 24, 1), b.op("Mul", wide, b.constant(0.1, "share")))
    return b.build(b.op("Sigmoid", x))


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


def patches() -> onnx.ModelProto:
    """Build a vision transformer: patches by a convolution, a class token, norms before each part, scaled branches."""
    b, width, heads, count = Builder(42, "patches"), 40, 2, 16
    size = width // heads
    x = b.scope("patch").conv(b.input("image", [1, 3, 32, 32]), 3, width, 8, strides=[8, 8], pads=[0, 0, 0, 0])
    x = b.op("Transpose", b.reshape(x, 1, width, count), perm=[0, 2, 1])
    x = b.op("Concat", b.random(1, 1, width, scale=0.8, title="class"), x, axis=1)
    x = b.op("Add", x, b.random(1, count + 1, width, scale=0.3, title="positions"))
    for number in range(2):
        b.scope(f"layer{number}")
        both = b.reshape(b.dense(b.layer_norm(x, width), width, 3 * width), 1, count + 1, 3, heads, size)
        both = b.op("Transpose", both, perm=[2, 0, 3, 1, 4])
        q, k, v = (b.op("Gather", both, b.constant(at, "part", np.int64), axis=0) for at in range(3))
        scores = b.op(
            "MatMul", b.op("Mul", q, b.constant(size**-0.5, "scale")), b.op("Transpose", k, perm=[0, 1, 3, 2])
        )
        mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        mixed = b.dense(b.reshape(mixed, 1, count + 1, width), width, width)
        x = b.op("Add", x, b.op("Mul", mixed, b.random(width, scale=0.1, shift=0.7, title="share")))
        y = b.dense(b.layer_norm(x, width), width, 2 * width)
        y = b.op("Mul", y, b.op("Sigmoid", b.op("Mul", y, b.constant(1.702, "steep"))))
        y = b.dense(y, 2 * width, width)
        x = b.op("Add", x, b.op("Mul", y, b.random(width, scale=0.1, shift=0.7, title="share")))
    x = b.op("Gather", b.scope("head").layer_norm(x, width), b.constant(0, "first", np.int64), axis=1)
    return b.build(b.gemm(x, width, 12))


def enlarger() -> onnx.ModelProto:
    """Build a super-resolution net: dense blocks, channels turned into pixels, the picture itself enlarged below."""
    b, width = Builder(45, "enlarger"), 16
    picture = b.input("picture", [1, 3, 20, 20])
    first = x = b.scope("head").conv(picture, 3, width, 3)
    for number in range(2):
        b.scope(f"dense{number}")
        grown = [x]
        for _ in range(2):
            joined = grown[0] if len(grown) == 1 else b.op("Concat", *grown, axis=1)
            slope = b.constant(b.rng.uniform(0.1, 0.3, (8, 1, 1)), "slope")
            grown.append(b.op("PRelu", b.conv(joined, width + 8 * (len(grown) - 1), 8, 3), slope))
        fused = b.conv(b.op("Concat", *grown, axis=1), width + 16, width, 1)
        x = b.op("Add", x, b.op("Mul", fused, b.constant(0.5, "share")))
    x = b.scope("up").op("Add", x, first)
    x = b.op("DepthToSpace", b.conv(x, width, 12, 3), blocksize=2, mode="CRD")
    scales = b.constant([1, 1, 2, 2], "scales")
    below = b.op("Resize", picture, "", scales, mode="cubic", coordinate_transformation_mode="half_pixel")
    x = b.op("Add", b.op("Mul", x, b.constant(0.1, "share")), below)
    return b.build(b.op("Clip", x, b.constant(-2.0, "low"), b.constant(2.0, "high")))


def mixer() -> onnx.ModelProto:
    """Build a mixer: pixels turned into channels, products along tokens and along channels, a vector of length one."""
    b, count, width = Builder(46, "mixer"), 25, 36
    x = b.scope("patch").op("SpaceToDepth", b.input("image", [1, 1, 30, 30]), blocksize=6)
    x = b.op("Transpose", b.reshape(x, 1, 36, count), perm=[0, 2, 1])
    x = b.dense(x, 36, width)

    def gelu(x: str) -> str:
        cube = b.op("Pow", x, b.constant(3.0, "three"))
        inner = b.op("Add", x, b.op("Mul", cube, b.constant(0.044715, "share")))
        tanh = b.op("Tanh", b.op("Mul", inner, b.constant(np.sqrt(2 / np.pi), "factor")))
        return b.op("Mul", b.op("Mul", x, b.constant(0.5, "half")), b.op("Add", tanh, b.constant(1.0, "one")))

    for number in range(2):
        b.scope(f"layer{number}")
        y = b.op("Transpose", b.layer_norm(x, width), perm=[0, 2, 1])
        y = b.dense(gelu(b.dense(y, count, 30)), 30, count)
        x = b.op("Add", x, b.op("Transpose", y, perm=[0, 2, 1]))
        x = b.op("Add", x, b.dense(gelu(b.dense(b.layer_norm(x, width), width, 60)), 60, width))
    x = b.op("ReduceMean", b.scope("head").layer_norm(x, width), axes=[1], keepdims=0)
    x = b.gemm(x, width, 24)
    return b.build(b.op("Div", x, b.op("ReduceL2", x, axes=[1], keepdims=1)))


def shuffle() -> onnx.ModelProto:
    """Build a classifier that halves and shuffles channels, with a net of its own for the halves that grow smaller."""
    b = Builder(47, "shuffle")
    x = b.scope("stem").op("Relu", b.norm(b.conv(b.input("image", [1, 3, 40, 40]), 3, 16, strides=[2, 2]), 16))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)

    def branch(x: str, inside: int, out: int, stride: int) -> str:
        y = b.op("Relu", b.norm(b.conv(x, inside, out, 1), out))
        y = b.norm(b.conv(y, out, out, 5 - 2 * (stride == 1), group=out, strides=[stride, stride]), out)
        return b.op("Relu", b.norm(b.conv(y, out, out, 1), out))

    def shuffled(x: str, channels: int, side: int) -> str:
        y = b.op("Transpose", b.reshape(x, 1, 2, channels // 2, side, side), perm=[0, 2, 1, 3, 4])
        return b.reshape(y, 1, channels, side, side)

    channels, side = 16, 10
    for number in range(2):
        b.scope(f"stage{number}/down")
        short = b.norm(b.conv(x, channels, channels, 3, group=channels, strides=[2, 2]), channels)
        short = b.op("Relu", b.norm(b.conv(short, channels, channels, 1), channels))
        side = (side + 1) // 2
        x = shuffled(b.op("Concat", short, branch(x, channels, channels, 2), axis=1), 2 * channels, side)
        b.scope(f"stage{number}/keep")
        halves = b.op("Split", x, b.integers([channels, channels], "sizes"), outputs=2, axis=1)
        left, right = b.outputs_of(halves, 2)
        x = shuffled(b.op("Concat", left, branch(right, channels, channels, 1), axis=1), 2 * channels, side)
        channels *= 2
    x = b.scope("head").op("Relu", b.norm(b.conv(x, channels, 48, 1), 48))
    return b.build(b.gemm(b.op("Flatten", b.op("GlobalMaxPool", x)), 48, 10))


def pyramid() -> onnx.ModelProto:
    """Build a detector on three scales: features go from small to large pictures, and one head serves all of them."""
    b, width = Builder(49, "pyramid"), 16
    x = b.scope("stem").op("Relu", b.norm(b.conv(b.input("image", [1, 3, 48, 48]), 3, 12, strides=[2, 2]), 12))
    levels = []
    for number, (inside, out) in enumerate([(12, 20), (20, 28), (28, 36)]):
        b.scope(f"stage{number}")
        x = b.op("Relu", b.norm(b.conv(x, inside, out, strides=[2, 2]), out))
        levels.append((b.conv(x, out, width, 1), 12 >> number))
    for at in (1, 0):
        scales = b.scope(f"down{at}").constant([1, 1, 2, 2], "scales")
        above = b.op(
            "Resize",
            levels[at + 1][0],
            "",
            scales,
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
        levels[at] = (b.op("Add", levels[at][0], above), levels[at][1])
    b.scope("head")
    tower = [b.random(width, width, 3, 3), b.random(width, scale=0.2, title="bias")]
    ends = [[b.random(out, width, 1, 1), b.random(out, scale=0.2, title="bias")] for out in (4, 5)]
    corners, marks = [], []
    for number, (level, side) in enumerate(levels):
        b.scope(f"head{number}")
        x = b.op("Relu", b.op("Conv", level, *tower, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        found = [b.op("Conv", x, *end, kernel_shape=[1, 1]) for end in ends]
        found = [
            b.op("Transpose", b.reshape(each, 1, size, side * side), perm=[0, 2, 1])
            for each, size in zip(found, (4, 5), strict=True)
        ]
        away = b.op(
            "Mul", b.op("Exp", b.op("Mul", found[0], b.constant(0.3, "steep"))), b.constant(4.0 * 2**number, "step")
        )
        corners.append(away)
        marks.append(b.op("Sigmoid", found[1]))
    away, marks = b.scope("boxes").op("Concat", *corners, axis=1), b.op("Concat", *marks, axis=1)
    spots = [
        np.stack(np.meshgrid(np.arange(side), np.arange(side)), -1).reshape(-1, 2) * 48 / side for _, side in levels
    ]
    centre = b.constant(np.concatenate(spots)[None] + 2, "centres")
    parts = b.outputs_of(b.op("Split", away, b.integers([2, 2], "sizes"), outputs=2, axis=2), 2)
    boxes = b.op("Concat", b.op("Sub", centre, parts[0]), b.op("Add", centre, parts[1]), axis=2)
    return b.build(boxes, marks)


def writing(count: int, *shape: int, seed: int) -> np.ndarray:
    """Make float32 [count, 1, *shape, 3] of dark spots on bright ground, in 0..1, of another colour in each sample."""
    rng = np.random.default_rng(seed)
    ground = np.clip(0.8 - 0.4 * (smooth(count, *shape, 1, seed=seed) > 1), 0, 1)
    light = np.linspace(0.7, 0.3, count).reshape(count, 1, 1, 1, 1)
    return (light * ground * rng.uniform(0.5, 1, (count, 1, 1, 1, 3))).astype(np.float32)


NETS = {
    "mobile": (lambda cache: mobile(), lambda n: {"image": smooth(n, 3, 48, 48, seed=1)}),
    "encoder": (lambda cache: encoder(), lambda n: {"ids": tokens(n, 24, most=200, seed=2)}),
    "unet": (lambda cache: unet(), lambda n: {"image": smooth(n, 3, 32, 32, seed=3)}),
    "speech": (lambda cache: speech(), lambda n: {"frames": smooth(n, 20, 30, seed=4)}),
    "detector": (lambda cache: detector(), lambda n: {"image": smooth(n, 3, 40, 40, seed=5)}),
    "ranking": (
        lambda cache: ranking(),
        lambda n: {
            "numbers": smooth(n, 8, 13, seed=6)[:, 0],
            **{name: tokens(n, 8, most=50, seed=7 + i)[:, 0] for i, name in enumerate(("user", "item", "place"))},
        },
    ),
    "wake word": (
        packaged("openwakeword==0.4.0", "openwakeword/resources/models/alexa_v0.1.onnx"),
        lambda n: {"onnx::Flatten_0": smooth(n, 16, 96, seed=17, scale=5)},
    ),
    "causal": (lambda cache: causal(), lambda n: {"ids": tokens(n, 16, most=120, seed=21)}),
    "grouped": (lambda cache: grouped(), lambda n: {"image": smooth(n, 1, 28, 28, seed=22)}),
    "generator": (lambda cache: generator(), lambda n: {"vector": smooth(n, 24, seed=23)}),
    "keyword": (lambda cache: keyword(), lambda n: {"spectrum": smooth(n, 32, 33, seed=24)}),
    "name decoder": (
        packaged("arabic-name-romanizer==0.2.0", "arabic_name_romanizer/resources/decoder.onnx"),
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
    "patches": (lambda cache: patches(), lambda n: {"image": smooth(n, 3, 32, 32, seed=42)}),
    "enlarger": (lambda cache: enlarger(), lambda n: {"picture": smooth(n, 3, 20, 20, seed=48)}),
    "mixer": (lambda cache: mixer(), lambda n: {"image": smooth(n, 1, 30, 30, seed=49)}),
    "shuffle": (lambda cache: shuffle(), lambda n: {"image": smooth(n, 3, 40, 40, seed=50)}),
    "pyramid": (lambda cache: pyramid(), lambda n: {"image": smooth(n, 3, 48, 48, seed=52)}),
    "morphemes": (
        packaged("slovorez==0.1.0", "slovorez/models/slovorez-test/slovorez-test.onnx"),
        lambda n: {"input_layer": tokens(n, 14, most=30, seed=54).astype(np.int32)},
    ),
    "captcha": (
        packaged("vietcombank-captcha==0.1.0", "vietcombank_captcha/models/vietcombank_captcha.onnx"),
        lambda n: {"input": writing(n, 50, 155, seed=1)},
    ),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
