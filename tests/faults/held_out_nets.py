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
    "forecast": (lambda cache: forecast(), lambda n: {"series": smooth(n, 5, 48, seed=53)}),
    "file kind": (
        packaged("magika==1.0.3", "magika/models/standard_v3_3/model.onnx"),
        lambda n: {"bytes": bytes_of_files(n, 2048, seed=57)},
    ),
    "shifts": (packaged("caustic-nmr==0.4.1", "caustic/data/best_v2_carbons.onnx"), protein),
}
"""Builder of the model, given the cache, and maker of inputs for a number of samples, by name."""
