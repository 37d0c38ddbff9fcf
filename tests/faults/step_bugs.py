"""Wrong kernels with one wrong step: attention, normalizations, recurrent layers, functions, reductions, indices.

See `operator_bugs.py` for the format. The mechanisms were collected from public reports before any was tried. The wrong
results come from NumPy and ONNX's implementations, not from qdebug.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import again, case, real, rng

MS = "com.microsoft"
F32 = np.float32
F64 = np.float64


def soft(a, axis=-1):
    """Return the softmax."""
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def sig(a):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-a))


# --------------------------------------------------------------------------- normalizations

ROWS = dict(x=real(6, 9, 40) * F32(0.02) + F32(0.01), g=real(40) * F32(0.3) + 1, b=real(40) * F32(0.2))


# https://github.com/xlite-dev/LeetCUDA/pull/317
@case("layernorm: epsilon added to the count", "LayerNormalization", "x g b", ROWS, r"epsilon", epsilon=1e-3)
def _(v):
    x = v["x"].astype(F64)
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).sum(-1, keepdims=True) / (40 + 1e-3)) * v["g"] + v["b"]


# https://github.com/microsoft/onnxruntime/issues/25855 a lower bound for epsilon
@case("layernorm: epsilon at least 1e-2", "LayerNormalization", "x g b", ROWS, r"epsilon.*0\.01", epsilon=1e-4)
def _(v):
    return again("LayerNormalization", "x g b", v, epsilon=1e-2)


# https://github.com/stanford-cs336/assignment1-basics/issues/93
@case(
    "rmsnorm: epsilon added to the deviation under the root",
    "RMSNormalization",
    "x g",
    dict(x=real(6, 9, 40) + F32(0.4), g=ROWS["g"]),
    r"deviation|root|sqrt",
    opset=23,
    epsilon=1e-2,
)
def _(v):
    x = v["x"].astype(F64)
    return x / np.sqrt(np.sqrt((x * x).mean(-1, keepdims=True)) + 1e-2) * v["g"]


# https://github.com/kyegomez/zeta/issues/180
@case(
    "rmsnorm: multiplied by the root mean square",
    "RMSNormalization",
    "x g",
    dict(x=real(6, 9, 40) + F32(0.4), g=ROWS["g"]),
    r"multipl|\*|divid",
    opset=23,
)
def _(v):
    x = v["x"].astype(F64)
    return x * np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * v["g"]


CHANNELS = dict(
    x=real(2, 6, 5, 7) + 0.5,
    g=real(6) * F32(0.3) + 1,
    b=real(6),
    m=real(6),
    s=(rng.random(6) * 2 + 0.3).astype(F32),
)


# folded parameters: bias - mean, without the factor
@case("batchnorm: mean subtracted after scaling", "BatchNormalization", "x g b m s", CHANNELS, r"mean|average|'m'")
def _(v):
    g, b, m, s = (v[n].astype(F64)[:, None, None] for n in "gbms")
    return v["x"] * (g / np.sqrt(s + 1e-5)) + (b - m)


# https://github.com/pyg-team/pytorch_geometric/pull/2917
@case("batchnorm: epsilon outside the root", "BatchNormalization", "x g b m s", CHANNELS, r"epsilon", epsilon=0.05)
def _(v):
    g, b, m, s = (v[n].astype(F64)[:, None, None] for n in "gbms")
    return (v["x"] - m) / (np.sqrt(s) + 0.05) * g + b


@case("batchnorm: variance under the bias too", "BatchNormalization", "x g b m s", CHANNELS, r"bias|'b'")
def _(v):
    g, b, m, s = (v[n].astype(F64)[:, None, None] for n in "gbms")
    return ((v["x"] - m) * g + b) / np.sqrt(s + 1e-5)


@case("lpnorm: squares not rooted", "LpNormalization", "x", dict(x=real(7, 9, 13)), r"root|sqrt|square", axis=1, p=2)
def _(v):
    x = v["x"].astype(F64)
    return x / (x * x).sum(1, keepdims=True)


@case("lpnorm: 1-norm without magnitudes", "LpNormalization", "x", dict(x=real(7, 9, 13) + 1), r"abs|magnitude", p=1)
def _(v):
    x = v["x"].astype(F64)
    return x / x.sum(-1, keepdims=True)


@case(
    "mvn: variance not rooted", "MeanVarianceNormalization", "x", dict(x=real(3, 5, 6, 7) * 2 + 1), r"root|sqrt|varian"
)
def _(v):
    x = v["x"].astype(F64)
    return (x - x.mean((0, 2, 3), keepdims=True)) / (x.var((0, 2, 3), keepdims=True) + 1e-9)


LRN = dict(x=real(2, 9, 5, 7, scale=3))


@case("lrn: bias outside the power", "LRN", "x", LRN, r"bias", size=5, alpha=0.4, beta=0.6, bias=1.7)
def _(v):
    x = v["x"].astype(F64)
    q = np.pad(x * x, ((0, 0), (2, 2), (0, 0), (0, 0)))
    t = sum(q[:, i : i + 9] for i in range(5))
    return x / (1.7 + (0.4 / 5 * t) ** 0.6)


@case(
    "groupnorm: normalized before the mean of the next group",
    "GroupNormalization",
    "x g b",
    dict(x=real(2, 8, 5, 7) + 1.5, g=real(8) * F32(0.3) + 1, b=real(8)),
    r"mean|centered",
    num_groups=4,
)
def _(v):
    x = v["x"].astype(F64).reshape(2, 4, -1)
    d = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    y = ((x - x.mean(-1, keepdims=True)) / d).reshape(2, 8, 5, 7)
    return y * v["g"][:, None, None] + v["b"][:, None, None]


# --------------------------------------------------------------------------- softmax

DEEP = dict(x=real(9, 33, scale=2) - 30)


# https://github.com/FluxML/NNlib.jl/pull/43
@case(
    "softmax: maximum starts at 0",
    "Softmax",
    "x",
    dict(x=real(9, 33, scale=20) - np.linspace(0, 300, 9).astype(F32)[:, None]),
    r"start|init|max.*0|NaN|nan",
)
def _(v):
    x = v["x"]
    with np.errstate(all="ignore"):
        e = np.exp(x - np.maximum(x.max(-1, keepdims=True), F32(0)), dtype=F32)
        return e / e.sum(-1, keepdims=True)


# https://github.com/Infatoshi/cuda-course/issues/10
@case(
    "softmax: each element takes itself for the maximum in the numerator",
    "Softmax",
    "x",
    dict(x=real(9, 33)),
    r"exp|max|shift|sum",
)
def _(v):
    x = v["x"].astype(F64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.broadcast_to(1 / e.sum(-1, keepdims=True), x.shape)


# flash attention kernels compute powers of 2 and forget log2(e)
@case("softmax: powers of 2", "Softmax", "x", dict(x=real(9, 33)), r"exp2|2 \*\*|power.* of (2|two)|base|0\.693")
def _(v):
    x = v["x"].astype(F64)
    e = 2.0 ** (x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# https://github.com/tensorflow/tensorflow/issues/2315
@case("softmax: logarithm returned", "Softmax", "x", dict(x=real(9, 33)), r"LogSoftmax|log")
def _(v):
    return np.log(soft(v["x"].astype(F64)))


@case("logsoftmax: logarithm to base 2", "LogSoftmax", "x", dict(x=real(9, 33)), r"log2|base 2|base")
def _(v):
    x = v["x"].astype(F64)
    s = x - x.max(-1, keepdims=True)
    return s - np.log2(np.exp(s).sum(-1, keepdims=True))


@case("logsoftmax: sum without the last element", "LogSoftmax", "x", dict(x=real(9, 33)), r"last|first 32")
def _(v):
    x = v["x"].astype(F64)
    s = x - x.max(-1, keepdims=True)
    return s - np.log(np.exp(s)[:, :-1].sum(-1, keepdims=True))


# https://github.com/mit-han-lab/tinyengine/issues/107
@case(
    "reducelogsumexp: maximum not added back",
    "ReduceLogSumExp",
    "x a",
    dict(x=real(9, 13, 21) * 2, a=np.array([2], np.int64)),
    r"max|largest|added|top",
)
def _(v):
    x = v["x"].astype(F64)
    return np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


# --------------------------------------------------------------------------- attention

HEADS = dict(x=real(2, 6, 9, 8), x2=real(2, 2, 13, 8), x3=real(2, 2, 13, 8))


def attend(v, mask=0.0, scale=8**-0.5, after=lambda s: s, norm=soft):
    """Return the attention of six heads over two."""
    k, w = (np.repeat(v[n].astype(F64), 3, 1) for n in ("x2", "x3"))
    return norm(after(v["x"] @ k.swapaxes(2, 3) * scale) + mask) @ w


# https://github.com/InternLM/lmdeploy/pull/2842
@case("attention: softcap without the factor after", "Attention", "x x2 x3", HEADS, r"cap|tanh", opset=23, softcap=1.5)
def _(v):
    return attend(v, after=lambda s: np.tanh(s / 1.5))


@case("attention: softcap ahead of the scale", "Attention", "x x2 x3", HEADS, r"cap|tanh|scale", opset=23, softcap=3.0)
def _(v):
    return attend(v, scale=1, after=lambda s: np.tanh(s / 3) * 3 * 8**-0.5)


@case(
    "attention: scale applied to the queries and the scores",
    "Attention",
    "x x2 x3",
    HEADS,
    r"scale|root|0\.35",
    opset=23,
)
def _(v):
    return attend(v, scale=8**-1.0)


@case("attention: softmax over the queries", "Attention", "x x2 x3", HEADS, r"ax[ie]s|quer", opset=23)
def _(v):
    return attend(v, norm=lambda s: soft(s, -2))


@case("attention: softmax to base 2", "Attention", "x x2 x3", HEADS, r"exp2|base|0\.693|2 \*\*|scale", opset=23)
def _(v):
    return attend(v, norm=lambda s: soft(s * np.log(2)))


@case("attention: not divided by the sum", "Attention", "x x2 x3", HEADS, r"sum|total|normaliz|divid", opset=23)
def _(v):
    return attend(v, norm=lambda s: np.exp(s - s.max(-1, keepdims=True)))


# a sink: one more term of the sum, with score 0
@case("attention: a sink of score 0 in the sum", "Attention", "x x2 x3", HEADS, r"sink|empty|1 is added|\+ 1", opset=23)
def _(v):
    return attend(v, norm=lambda s: np.exp(s) / (np.exp(s).sum(-1, keepdims=True) + 1))


MASKED = {**HEADS, "m": np.where(np.arange(9)[:, None] % 4 == 2, False, rng.random((9, 13)) > 0.3)}


# https://github.com/microsoft/onnxruntime/pull/28958
@case(
    "attention: fully masked rows average the values",
    "Attention",
    "x x2 x3 m",
    MASKED,
    r"mask|hidden|visible|mean|average|row",
    opset=23,
)
def _(v):
    return attend(v, np.where(v["m"], 0, -1e30))


PAST = dict(x=real(2, 4, 3, 8), x2=real(2, 2, 3, 8), x3=real(2, 2, 3, 8), xk=real(2, 2, 5, 8), xv=real(2, 2, 5, 8))


# https://github.com/onnx/onnx/pull/8068
@case(
    "attention: causal from the first key in spite of the cache",
    "Attention",
    ["x", "x2", "x3", "", "xk", "xv"],
    PAST,
    r"past|causal|mask|align",
    outs=3,
    opset=23,
    is_causal=1,
)
def _(v):
    k = np.concatenate([v["xk"], v["x2"]], 2)
    w = np.concatenate([v["xv"], v["x3"]], 2)
    kk, ww = np.repeat(k.astype(F64), 2, 1), np.repeat(w.astype(F64), 2, 1)
    s = v["x"] @ kk.swapaxes(2, 3) * 8**-0.5
    return [soft(np.where(np.tril(np.ones((3, 8))) > 0, s, -np.inf)) @ ww, k, w]


# https://github.com/sgl-project/sglang/pull/34273
@case(
    "attention: cache placed after the new keys",
    "Attention",
    ["x", "x2", "x3", "", "xk", "xv"],
    PAST,
    r"past|cache|order|'xk'",
    outs=3,
    opset=23,
    is_causal=1,
)
def _(v):
    k = np.concatenate([v["xk"], v["x2"]], 2)
    w = np.concatenate([v["xv"], v["x3"]], 2)
    kk = np.repeat(np.concatenate([v["x2"], v["xk"]], 2).astype(F64), 2, 1)
    ww = np.repeat(np.concatenate([v["x3"], v["xv"]], 2).astype(F64), 2, 1)
    s = v["x"] @ kk.swapaxes(2, 3) * 8**-0.5
    return [soft(np.where(np.tril(np.ones((3, 8)), 5) > 0, s, -np.inf)) @ ww, k, w]


ROTARY = dict(
    x=real(2, 3, 7, 16),
    p=np.stack([np.arange(7) * 2 + 1, np.arange(7) + 3]).astype(np.int64),
    cc=np.cos(np.arange(20)[:, None] / 100 ** (np.arange(8) / 8)).astype(F32),
    ss=np.sin(np.arange(20)[:, None] / 100 ** (np.arange(8) / 8)).astype(F32),
)


def rotated(v, c, s, a=None, b=None):
    """Rotate the halves of each head."""
    a, b = v["x"][..., :8] if a is None else a, v["x"][..., 8:] if b is None else b
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def angles(v):
    """Return cosine and sine by token."""
    return v["cc"].astype(F64)[v["p"]][:, None], v["ss"].astype(F64)[v["p"]][:, None]


@case(
    "rotary: sum where the difference belongs", "RotaryEmbedding", "x p cc ss", ROTARY, r"\+|sign|sum|minus", domain=MS
)
def _(v):
    c, s = angles(v)
    a, b = v["x"][..., :8], v["x"][..., 8:]
    return np.concatenate([a * c + b * s, b * c + a * s], -1)


# https://github.com/facebookresearch/xformers/issues/779
@case(
    "rotary: angles repeated pairwise beside rotated halves",
    "RotaryEmbedding",
    "x p cc ss",
    ROTARY,
    r"interleav|repeat|pair|// 2|table|index|mode",
    domain=MS,
)
def _(v):
    c, s = (np.repeat(t, 2, -1) for t in angles(v))
    a, b = v["x"][..., :8], v["x"][..., 8:]
    return np.concatenate([a * c[..., :8] - b * s[..., :8], b * c[..., 8:] + a * s[..., 8:]], -1)


# --------------------------------------------------------------------------- recurrent layers

STEPS = dict(
    x=real(6, 2, 5),
    w=real(1, 32, 5, scale=0.5),
    r=real(1, 32, 8, scale=0.4),
    b=real(1, 64, scale=0.3),
    sl=np.array([6, 4], np.int32),
    h=real(1, 2, 8),
    c=real(1, 2, 8),
    p=real(1, 24, scale=0.5),
)
LSTM_IN = ["x", "w", "r", "b", "", "h", "c", "p"]


def lstm(v, cell, x=None, clip=lambda a: a):
    """Run an LSTM; `cell` computes a step from the gates."""
    h, c, out = v["h"][0].astype(F64), v["c"][0].astype(F64), []
    w, r = v["w"][0].astype(F64), v["r"][0].astype(F64)
    b = (v["b"][0, :32] + v["b"][0, 32:]).astype(F64)
    for t in v["x"] if x is None else x:
        h, c = cell([clip(g) for g in np.split(t @ w.T + h @ r.T + b, 4, 1)], h, c, *np.split(v["p"][0].astype(F64), 3))
        out.append(h)
    return np.stack(out)[:, None]


@case(
    "lstm: old cell not read by the input gate's peephole",
    "LSTM",
    LSTM_IN,
    STEPS,
    r"peep|hole|'p'|input",
    hidden_size=8,
)
def _(v):
    def cell(g, h, c, pi, po, pf):
        c2 = sig(g[2] + pf * c) * c + sig(g[0]) * np.tanh(g[3])
        return sig(g[1] + po * c2) * np.tanh(c2), c2

    return lstm(v, cell)


@case("lstm: peepholes in the order of the gates", "LSTM", LSTM_IN, STEPS, r"peep|hole|'p'", hidden_size=8)
def _(v):
    def cell(g, h, c, pi, pf, po):
        c2 = sig(g[2] + pf * c) * c + sig(g[0] + pi * c) * np.tanh(g[3])
        return sig(g[1] + po * c2) * np.tanh(c2), c2

    return lstm(v, cell)


@case(
    "lstm: output gate multiplies before the cell is updated", "LSTM", LSTM_IN, STEPS, r"cell|old|before", hidden_size=8
)
def _(v):
    def cell(g, h, c, pi, po, pf):
        c2 = sig(g[2] + pf * c) * c + sig(g[0] + pi * c) * np.tanh(g[3])
        return sig(g[1] + po * c2) * np.tanh(c), c2

    return lstm(v, cell)


@case("lstm: clip applied to the new cell", "LSTM", LSTM_IN, STEPS, r"clip", hidden_size=8, clip=0.6)
def _(v):
    def cell(g, h, c, pi, po, pf):
        c2 = np.clip(sig(g[2] + pf * c) * c + sig(g[0] + pi * c) * np.tanh(g[3]), -0.6, 0.6)
        return sig(g[1] + po * c2) * np.tanh(c2), c2

    return lstm(v, cell)


@case("lstm: forget gate has 1 added", "LSTM", LSTM_IN, STEPS, r"forget|\+ 1|1 is added", hidden_size=8)
def _(v):
    def cell(g, h, c, pi, po, pf):
        c2 = sig(g[2] + pf * c + 1) * c + sig(g[0] + pi * c) * np.tanh(g[3])
        return sig(g[1] + po * c2) * np.tanh(c2), c2

    return lstm(v, cell)


# https://github.com/microsoft/onnxruntime/issues/4187
@case(
    "lstm: reverse layer left in the order of its steps",
    "LSTM",
    LSTM_IN,
    STEPS,
    r"revers|order",
    hidden_size=8,
    direction="reverse",
)
def _(v):
    def cell(g, h, c, pi, po, pf):
        c2 = sig(g[2] + pf * c) * c + sig(g[0] + pi * c) * np.tanh(g[3])
        return sig(g[1] + po * c2) * np.tanh(c2), c2

    return lstm(v, cell, v["x"][::-1])


# https://github.com/microsoft/onnxruntime/issues/1400
@case(
    "lstm: lengths of the sequences ignored",
    "LSTM",
    ["x", "w", "r", "b", "sl", "h", "c", "p"],
    STEPS,
    r"'sl'|length",
    hidden_size=8,
)
def _(v):
    return again("LSTM", LSTM_IN, v, hidden_size=8)


GRU = dict(
    x=real(6, 2, 5),
    w=real(1, 24, 5, scale=0.5),
    r=real(1, 24, 8, scale=0.4),
    b=real(1, 48, scale=0.3),
    h=real(1, 2, 8),
)
GRU_IN = ["x", "w", "r", "b", "", "h"]


def gru(v, cell):
    """Run a GRU; `cell` computes a step from both parts of its gates."""
    h, out = v["h"][0].astype(F64), []
    for t in v["x"]:
        a = np.split(t @ v["w"][0].T.astype(F64) + v["b"][0, :24], 3, 1)
        u = np.split(h @ v["r"][0].T.astype(F64) + v["b"][0, 24:], 3, 1)
        h = cell(a, u, h)
        out.append(h)
    return np.stack(out)[:, None]


# https://github.com/zhiyongc/GRU-D/issues/2
@case(
    "gru: candidate reads the reset gate before its sigmoid",
    "GRU",
    GRU_IN,
    GRU,
    r"reset|sigmoid",
    hidden_size=8,
    linear_before_reset=1,
)
def _(v):
    def cell(a, u, h):
        z, r = sig(a[0] + u[0]), a[1] + u[1]
        return (1 - z) * np.tanh(a[2] + r * u[2]) + z * h

    return gru(v, cell)


@case(
    "gru: update gate resets the candidate",
    "GRU",
    GRU_IN,
    GRU,
    r"reset|update",
    hidden_size=8,
    linear_before_reset=1,
)
def _(v):
    def cell(a, u, h):
        z = sig(a[0] + u[0])
        return (1 - z) * np.tanh(a[2] + z * u[2]) + z * h

    return gru(v, cell)


@case(
    "gru: state not weighted by the update gate",
    "GRU",
    GRU_IN,
    GRU,
    r"update|hidden|state",
    hidden_size=8,
    linear_before_reset=1,
)
def _(v):
    def cell(a, u, h):
        z, r = sig(a[0] + u[0]), sig(a[1] + u[1])
        return (1 - z) * np.tanh(a[2] + r * u[2]) + h

    return gru(v, cell)


RNN = dict(x=real(6, 2, 5), w=real(1, 8, 5, scale=0.5), r=real(1, 8, 8, scale=0.4), b=real(1, 16, scale=0.3))


@case("rnn: activation left out of the state", "RNN", ["x", "w", "r", "b"], RNN, r"[Tt]anh|total_h", hidden_size=8)
def _(v):
    h, out = np.zeros((2, 8)), []
    for t in v["x"]:
        h = t @ v["w"][0].T.astype(F64) + h @ v["r"][0].T + v["b"][0, :8] + v["b"][0, 8:]
        out.append(np.tanh(h))
    return np.stack(out)[:, None]


# --------------------------------------------------------------------------- functions

WIDE = dict(x=real(19, 28, scale=2))


@case("elu: 1 subtracted outside alpha", "Elu", "x", WIDE, r"alpha", alpha=0.35)
def _(v):
    x = v["x"].astype(F64)
    return np.where(x > 0, x, 0.35 * np.exp(x) - 1)


@case("celu: argument not divided by alpha", "Celu", "x", WIDE, r"alpha|Elu", alpha=0.6)
def _(v):
    x = v["x"].astype(F64)
    return np.maximum(x, 0) + np.minimum(0, 0.6 * np.expm1(x))


@case("selu: gamma for positive numbers alone", "Selu", "x", WIDE, r"gamma|scale", alpha=1.2, gamma=1.5)
def _(v):
    x = v["x"].astype(F64)
    return np.where(x > 0, 1.5 * x, 1.2 * np.expm1(x))


# https://github.com/tensorflow/tensorflow/issues/24566
@case("leakyrelu: maximum of x and alpha x", "LeakyRelu", "x", WIDE, r"max|larger|greater|branch", alpha=1.7)
def _(v):
    return np.maximum(v["x"], F32(1.7) * v["x"])


# https://github.com/tenstorrent/tt-metal/pull/41558
@case("hardswish: x plus 2.8, up to 5", "HardSwish", "x", WIDE, r"5|2\.8|constant|beta|alpha|0\.2|0\.56")
def _(v):
    x = v["x"].astype(F64)
    return x * np.clip(x + 2.8, 0, 5) / 5


@case(
    "hardsigmoid: clamped before beta is added", "HardSigmoid", "x", WIDE, r"beta|clamp|clip|min", alpha=0.3, beta=0.4
)
def _(v):
    x = v["x"].astype(F64)
    return np.clip(0.3 * x, 0, 1) + 0.4


@case("mish: softplus replaced by the exponential", "Mish", "x", dict(x=real(19, 28)), r"exp|softplus|log")
def _(v):
    x = v["x"].astype(F64)
    return x * np.tanh(np.exp(x))


@case("softplus: logarithm to base 2", "Softplus", "x", WIDE, r"log2|base 2|1\.443|1\.442")
def _(v):
    return np.log2(1 + np.exp(v["x"].astype(F64)))


# a threshold of frameworks
@case("softplus: linear from 1.5 on", "Softplus", "x", WIDE, r"1\.[345]|linear|threshold|returns 'x'|unchanged|'x'")
def _(v):
    x = v["x"].astype(F64)
    return np.where(x > 1.5, x, np.log1p(np.exp(x)))


@case("softsign: magnitude left out", "Softsign", "x", dict(x=np.abs(real(19, 28)) - F32(0.4)), r"abs|magnitude")
def _(v):
    x = v["x"].astype(F64)
    return x / (1 + x)


@case("gelu: argument divided by 2, not by its root", "Gelu", "x", WIDE, r"sqrt|root|/ 2|0\.5")
def _(v):
    import math

    x = v["x"].astype(F64)
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / 2))


@case("gelu: square in place of the cube", "Gelu", "x", WIDE, r"x \*\* 2|square|cub|\*\*", approximate="tanh")
def _(v):
    x = v["x"].astype(F64)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**2)))


@case("shrink: bias added on the positive side", "Shrink", "x", WIDE, r"bias", lambd=0.8, bias=0.45)
def _(v):
    x = v["x"]
    return np.where(x < -0.8, x + F32(0.45), np.where(x > 0.8, x + F32(0.45), 0))


@case("shrink: one side alone", "Shrink", "x", WIDE, r"lambd|side|< ?-|left out|negative|branch", lambd=0.8, bias=0.45)
def _(v):
    x = v["x"]
    return np.where(x > 0.8, x - F32(0.45), 0)


@case(
    "thresholdedrelu: magnitude compared", "ThresholdedRelu", "x", WIDE, r"magnitude|abs|< |\|x|below -0.6", alpha=0.6
)
def _(v):
    return np.where(np.abs(v["x"]) > 0.6, v["x"], 0)


# https://github.com/kaltinril/ShadowDusk/issues/215
@case(
    "sin: period truncated to 6.283",
    "Sin",
    "x",
    dict(x=real(19, 28, scale=90)),
    r"period|6\.28|pi|range|reduc|\brange\b",
)
def _(v):
    x = v["x"].astype(F64)
    return np.sin((x * 0.159155 + 0.5) % 1 * 6.283185 - 3.141593)


# https://github.com/halide/Halide/issues/3909
@case(
    "pow: exponential of the logarithm",
    "Pow",
    "x w",
    dict(x=real(19, 28), w=np.full(28, 3, F32)),
    r"NaN|nan|log|negative",
)
def _(v):
    with np.errstate(all="ignore"):
        return np.exp(v["w"] * np.log(v["x"]))


@case("pow: sign of the base dropped", "Pow", "x w", dict(x=real(19, 28), w=np.full(28, 3, F32)), r"abs|magnitude|sign")
def _(v):
    return np.abs(v["x"].astype(F64)) ** 3


@case(
    "tanh: logistic function of x instead of 2 x",
    "Tanh",
    "x",
    WIDE,
    r"2 \* x|sigmoid|Sigmoid|'x' is multiplied by 0\.5",
)
def _(v):
    return 2 * sig(v["x"].astype(F64)) - 1


@case(
    "clip: lower bound applied last",
    "Clip",
    "x l u",
    dict(x=real(19, 28), l=np.array(0.7, F32), u=np.array(0.2, F32)),
    r"min|max|last|order|'l'|first|0\.7",
)
def _(v):
    return np.maximum(np.minimum(v["x"], v["u"]), v["l"])


WHOLE = dict(
    x=rng.integers(-90, 90, (17, 29)).astype(np.int32),
    w=(rng.integers(2, 9, 29) * rng.choice([-1, 1], 29)).astype(np.int32),
)


# https://github.com/openvinotoolkit/openvino/pull/5173
@case("mod: integers by a truncated quotient", "Mod", "x w", WHOLE, r"fmod|trunc|sign of the dividend|toward")
def _(v):
    return np.fmod(v["x"], v["w"])


@case("mod: result of the dividend's magnitude", "Mod", "x w", WHOLE, r"abs|magnitude|sign")
def _(v):
    return np.abs(v["x"]) % v["w"]


@case("div: quotient rounded to nearest", "Div", "x w", WHOLE, r"round|nearest")
def _(v):
    return np.rint(v["x"] / v["w"]).astype(np.int32)


# https://github.com/tenstorrent/tt-metal/pull/53639
@case(
    "cast: rounded, halves away from zero",
    "Cast",
    "x",
    dict(x=np.abs(real(19, 28, scale=40)) + F32(0.25)),
    r"round|nearest",
    to=4,
)
def _(v):
    return np.floor(v["x"] + 0.5).astype(np.uint16)


# --------------------------------------------------------------------------- reductions and indices


# https://github.com/tensorflow/tensorflow/issues/125978
@case(
    "reducemean: int32 sums wrap",
    "ReduceMean",
    "x a",
    dict(x=rng.integers(2**28, 2**31 - 1, (13, 9)).astype(np.int32), a=np.array([1], np.int64)),
    r"wrap|overflow|32|int32",
    keepdims=0,
)
def _(v):
    total = v["x"].sum(1, dtype=np.int32)
    return np.trunc(total / 9).astype(np.int32)


@case(
    "reducesum: first element counted twice",
    "ReduceSum",
    "x a",
    dict(x=real(13, 9, 21), a=np.array([2], np.int64)),
    r"first|twice|index 0|counts 2",
    keepdims=0,
)
def _(v):
    return v["x"].astype(F64).sum(2) + v["x"][..., 0]


@case(
    "reducemax: last element not read",
    "ReduceMax",
    "x a",
    dict(x=real(40, 9, 5), a=np.array([2], np.int64)),
    r"last|first 4",
    keepdims=0,
)
def _(v):
    return v["x"][..., :-1].max(2)


@case(
    "reducel2: root of the mean",
    "ReduceL2",
    "x a",
    dict(x=real(13, 9, 21), a=np.array([2], np.int64)),
    r"mean|0\.218|21",
    keepdims=0,
)
def _(v):
    return np.sqrt((v["x"].astype(F64) ** 2).mean(2))


# https://github.com/apple/coremltools/pull/2794
@case(
    "gathernd: negative indices counted from the end of the batch axis",
    "GatherND",
    "x i",
    dict(
        x=real(7, 11, 3), i=np.where(rng.random((7, 20, 1)) > 0.5, rng.integers(-7, 0, (7, 20, 1)), 2).astype(np.int64)
    ),
    r"negative|end|extent|\+ 7|axis 0",
    batch_dims=1,
)
def _(v):
    i = np.where(v["i"] < 0, v["i"] + 7, v["i"])
    return again("GatherND", "x i", {**v, "i": i}, batch_dims=1)


@case(
    "gather: negative indices counted from the last but one",
    "Gather",
    "x i",
    dict(x=real(15, 9), i=rng.integers(-14, 15, 60)),
    r"negative",
)
def _(v):
    return v["x"][np.where(v["i"] < 0, v["i"] + 14, v["i"])]


# https://github.com/ROCm/AMDMIGraphX/pull/1074
@case(
    "scatternd: updates taken by the first index alone",
    "ScatterND",
    "x i u",
    dict(
        x=real(6, 9, 4),
        i=np.stack(np.unravel_index(rng.permutation(54)[:24], (6, 9)), 1).reshape(4, 6, 2).astype(np.int64),
        u=real(4, 6, 4, scale=3),
    ),
    r"'u'|update",
)
def _(v):
    return again("ScatterND", "x i u", {**v, "u": np.repeat(v["u"][:, :1], 6, 1)})


@case(
    "gatherelements: indices beyond the half clamped",
    "GatherElements",
    "x i",
    dict(x=real(13, 21), i=rng.integers(0, 21, (13, 17))),
    r"clamp|clip|at most|saturat|beyond|limit|min\(",
    axis=1,
)
def _(v):
    return np.take_along_axis(v["x"], np.minimum(v["i"], 15), 1)


@case(
    "onehot: first position is 1",
    "OneHot",
    "x d v",
    dict(x=rng.integers(0, 11, (6, 13)), d=np.array(11, np.int64), v=np.array([0.25, 3], F32)),
    r"one too (small|large)|- ?1|\+ ?1|off by|shift",
)
def _(v):
    return np.where(v["x"][..., None] - 1 == np.arange(11), F32(3), F32(0.25))


@case(
    "onehot: values in the other order",
    "OneHot",
    "x d v",
    dict(x=rng.integers(0, 11, (6, 13)), d=np.array(11, np.int64), v=np.array([0.25, 3], F32)),
    r"'v'|off|swap|revers|on ",
)
def _(v):
    return np.where(v["x"][..., None] == np.arange(11), F32(0.25), F32(3))


# https://github.com/pytorch/pytorch/issues/38922
@case(
    "argmax: index counted from the start of the memory",
    "ArgMax",
    "x",
    dict(x=real(20, 31)),
    r"row|memory|flat|offset|31|start",
    axis=1,
    keepdims=0,
)
def _(v):
    return np.argmax(v["x"], 1) + np.arange(20) * 31


@case(
    "reversesequence: axes of time and batch exchanged",
    "ReverseSequence",
    "x l",
    dict(x=real(9, 9, 4), l=rng.integers(2, 10, 9)),
    r"axis|axes|time|batch|transpos|swap",
    time_axis=0,
    batch_axis=1,
)
def _(v):
    return again("ReverseSequence", "x l", v, time_axis=1, batch_axis=0)


@case(
    "einsum: operands' common label not summed over its last entry",
    "Einsum",
    "x w",
    dict(x=real(5, 7, 13), w=real(13, 6)),
    r"last|left out|12",
    equation="abc,cd->abd",
)
def _(v):
    return v["x"][..., :-1].astype(F64) @ v["w"][:-1]


@case(
    "cumsum: starts at the second element",
    "CumSum",
    "x a",
    dict(x=real(14, 33), a=np.array(1, np.int64)),
    r"first|skip|start|index 0|exclusive|left out|less",
)
def _(v):
    return np.cumsum(v["x"].astype(F64), 1) - v["x"][:, :1]
