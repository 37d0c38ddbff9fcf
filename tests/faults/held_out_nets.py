"""Nets of the bench that came after the rules of the comparison were frozen: no rule may be changed to suit them.

Whoever changes rules looks at the rates of these nets alone, not at what was said of a fault in them. Once the answers
for a net were looked at, it moves to `known_nets.py`, and a net of another kind takes its place here.
"""

from __future__ import annotations

import numpy as np
import onnx
from net_builder import Builder, packaged, smooth, tokens


def matcher() -> onnx.ModelProto:
    """Build a matcher of pictures and words: two towers, each brought to length 1, and their products."""
    b, width = Builder(81, "matcher"), 24
    x, words = b.input("picture", [1, 3, 20, 20]), b.input("words", [1, 8], "i")
    for number, (inside, out) in enumerate([(3, 16), (16, 32)]):
        b.scope(f"picture{number}")
        x = b.op(
            "PRelu", b.norm(b.conv(x, inside, out, strides=[2, 2]), out), b.random(out, 1, 1, scale=0.1, shift=0.2)
        )
    x = b.reshape(b.op("Transpose", x, perm=[0, 2, 3, 1]), 25, 32)
    x = b.scope("picture").dense(b.layer_norm(x, 32), 32, width)
    y = b.scope("words").op("Gather", b.random(60, 28, scale=0.8, title="table"), words, axis=0)
    y = b.gelu(b.dense(b.layer_norm(y, 28), 28, 40))
    y = b.reshape(b.dense(y, 40, width), 8, width)
    sides = [b.op("LpNormalization", x, axis=1, p=2)]
    size = b.op("Sqrt", b.op("ReduceSum", b.op("Mul", y, y), b.integers([1], "axes"), keepdims=1))
    sides.append(b.op("Div", y, b.op("Max", size, b.constant(1e-6, "least"))))
    score = b.scope("match").op("MatMul", sides[0], b.op("Transpose", sides[1], perm=[1, 0]))
    score = b.op("Mul", score, b.constant(4.0, "gain"))
    best = b.op("ReduceMax", score, axes=[0], keepdims=0)
    return b.build(score, b.op("ReduceLogSumExp", score, axes=[1], keepdims=0), best)


def drums() -> onnx.ModelProto:
    """Build a listener for beats: convolutions over time, a gated recurrence, peaks picked by their neighbours."""
    b, width = Builder(82, "drums"), 18
    x = b.input("bands", [1, 12, 40])
    for number, (inside, out) in enumerate([(12, 20), (20, 24)]):
        b.scope(f"in{number}")
        x = b.op("Relu", b.norm(b.conv(x, inside, out, 5, rank=1), out))
    x = b.op("AveragePool", x, kernel_shape=[2], strides=[2], count_include_pad=0)
    x = b.scope("time").op("Transpose", x, perm=[2, 0, 1])
    parts = [b.random(1, 3 * width, size, scale=0.25) for size in (24, width)]
    x = b.op(
        "GRU", x, *parts, b.random(1, 6 * width, scale=0.1, title="bias"), hidden_size=width, linear_before_reset=1
    )
    x = b.op("Squeeze", x, b.integers([1], "axes"))
    x = b.scope("out").dense(b.op("Transpose", x, perm=[1, 0, 2]), width, 5)
    score = b.op("Transpose", b.op("Sigmoid", x), perm=[0, 2, 1])
    wide = b.op("MaxPool", score, kernel_shape=[3], strides=[1], pads=[1, 1])
    kept = b.op("Where", b.op("GreaterOrEqual", score, wide), score, b.constant(0.0, "nothing"))
    return b.build(score, kept)


def upscaler() -> onnx.ModelProto:
    """Build an upscaler of pictures: dense blocks, attention over channels, pixels out of channels, a skip around."""
    b, width = Builder(83, "upscaler"), 16
    start = b.input("picture", [1, 3, 12, 12])
    first = x = b.scope("in").conv(start, 3, width)
    for number in range(2):
        b.scope(f"block{number}")
        kept = [x]
        for _ in range(2):
            joined = kept[0] if len(kept) == 1 else b.op("Concat", *kept, axis=1)
            kept.append(b.op("LeakyRelu", b.conv(joined, width * len(kept), width), alpha=0.2))
        y = b.conv(b.op("Concat", *kept, axis=1), 3 * width, width, 1)
        gate = b.op("Relu", b.conv(b.op("GlobalAveragePool", y), width, 6, 1))
        y = b.op("Mul", y, b.op("HardSigmoid", b.conv(gate, 6, width, 1), alpha=0.2, beta=0.5))
        x = b.op("Add", x, b.op("Mul", y, b.constant(0.5, "share")))
    x = b.scope("out").op("Add", x, first)
    x = b.op("DepthToSpace", b.conv(x, width, 12), blocksize=2, mode="CRD")
    scales = b.constant([1, 1, 2, 2], "scales")
    plain = b.op("Resize", start, "", scales, mode="cubic", coordinate_transformation_mode="half_pixel")
    return b.build(b.op("Clip", b.op("Add", x, plain), b.constant(-3.0, "low"), b.constant(3.0, "high")))


def patches_of_sound() -> onnx.ModelProto:
    """Build a classifier of sound: patches of a spectrum, a token for the whole, two blocks with rotated positions."""
    b, width, heads, count = Builder(84, "patches_of_sound"), 24, 3, 13
    each = width // heads
    x = b.scope("in").conv(b.input("spectrum", [1, 1, 16, 12]), 1, width, 4, strides=[4, 4], pads=[0, 0, 0, 0])
    x = b.op("Transpose", b.reshape(x, 1, width, 12), perm=[0, 2, 1])
    x = b.op("Concat", b.random(1, 1, width, scale=0.5, title="whole"), x, axis=1)
    turn = np.arange(count)[:, None] / 10.0 ** np.arange(each // 2)
    for number in range(2):
        b.scope(f"block{number}")
        normal, sides = b.layer_norm(x, width), []
        parts = b.outputs_of(
            b.op("Split", b.dense(normal, width, 3 * width), b.integers([width] * 3, "sizes"), outputs=3, axis=2), 3
        )
        for place, given in enumerate(parts):
            side = b.op("Transpose", b.reshape(given, 1, count, heads, each), perm=[0, 2, 1, 3])
            if place < 2:
                halves = b.outputs_of(b.op("Split", side, b.integers([each // 2] * 2, "sizes"), outputs=2, axis=3), 2)
                across = b.op("Concat", b.op("Neg", halves[1]), halves[0], axis=3)
                waves = [b.constant(np.tile(wave(turn), 2), name) for wave, name in ((np.cos, "cos"), (np.sin, "sin"))]
                side = b.op("Add", b.op("Mul", side, waves[0]), b.op("Mul", across, waves[1]))
            sides.append(side)
        score = b.op("MatMul", sides[0], b.op("Transpose", sides[1], perm=[0, 1, 3, 2]))
        share = b.op("Softmax", b.op("Mul", score, b.constant(each**-0.5, "scale")), axis=-1)
        seen = b.reshape(b.op("Transpose", b.op("MatMul", share, sides[2]), perm=[0, 2, 1, 3]), 1, count, width)
        x = b.op("Add", x, b.dense(seen, width, width))
        gate, value = (b.dense(b.layer_norm(x, width), width, 40) for _ in range(2))
        x = b.op("Add", x, b.dense(b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), value), 40, width))
    x = b.scope("head").op("Gather", b.layer_norm(x, width), b.integers(0, "first"), axis=1)
    return b.build(b.gemm(x, width, 8))


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


NETS = {
    "matcher": (
        lambda cache: matcher(),
        lambda n: {"picture": smooth(n, 3, 20, 20, seed=81), "words": tokens(n, 8, most=60, seed=82)},
    ),
    "drums": (lambda cache: drums(), lambda n: {"bands": smooth(n, 12, 40, seed=83)}),
    "upscaler": (lambda cache: upscaler(), lambda n: {"picture": smooth(n, 3, 12, 12, seed=84)}),
    "patches of sound": (lambda cache: patches_of_sound(), lambda n: {"spectrum": smooth(n, 1, 16, 12, seed=85)}),
    "shifts": (packaged("caustic-nmr==0.4.1", "caustic/data/best_v2_carbons.onnx"), protein),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
