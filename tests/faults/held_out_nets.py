"""Nets of the bench that came after the rules of the comparison were frozen: no rule may be changed to suit them.

Whoever changes rules looks at the rates of these nets alone, not at what was said of a fault in them. Once the answers
for a net were looked at, it moves to `known_nets.py`, and a net of another kind takes its place here.
"""

from __future__ import annotations

import numpy as np
import onnx
from net_builder import Builder, packaged, smooth, tokens


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


def protein(count: int, *, atoms: int = 24, near: int = 70, residues: int = 4) -> dict[str, np.ndarray]:
    """Make atoms in space, edges between some of them and facts about residues, for the net of chemical shifts."""
    rng = np.random.default_rng(61)

    def drawn(most: int, *shape: int) -> np.ndarray:
        return rng.integers(0, most, (count, *shape)).astype(np.int64)

    def real(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (scale * rng.normal(size=(count, *shape))).astype(np.float32)

    def share(*shape: int) -> np.ndarray:
        return rng.uniform(0, 1, (count, *shape)).astype(np.float32)

    pos = real(atoms, 3, scale=2.0)
    ends = drawn(atoms, 2, near)
    ends[:, 1] = np.where(ends[:, 0] == ends[:, 1], (ends[:, 1] + 1) % atoms, ends[:, 1])
    vectors = np.stack([each[at[0]] - each[at[1]] for each, at in zip(pos, ends, strict=True)])
    normal = real(atoms, 3)
    return {
        "element": drawn(6, atoms),
        "amino_acid": drawn(20, atoms),
        "atom_role": drawn(13, atoms),
        "bfactor": share(atoms),
        "edge_index": ends,
        "edge_dist": np.linalg.norm(vectors, axis=-1).astype(np.float32),
        "seq_sep": drawn(32, near),
        "same_residue": (share(near) < 0.4).astype(np.float32),
        "target_indices": drawn(atoms, residues, 6),
        "target_mask": np.ones((count, residues, 6), bool),
        "residue_types": drawn(20, residues),
        "residue_geometry": real(residues, 52, scale=0.5),
        "target_environment": real(residues, 6, 15, scale=0.5),
        "temperature_feature": real(residues, 1, scale=0.3),
        "target_atom_rsasa": share(residues, 6),
        "pos": pos,
        "node_normal": normal / np.linalg.norm(normal, axis=-1, keepdims=True),
        "is_hbond": (share(near) < 0.1).astype(np.float32),
        "hb_cos": share(near),
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
    "shifts": (packaged("caustic-nmr==0.4.1", "caustic/data/best_v2_carbons.onnx"), protein),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
