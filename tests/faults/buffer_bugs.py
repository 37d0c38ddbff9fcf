"""Wrong kernels that mix up what a buffer holds: states, work buffers, packed parameters, rows of a result.

See `operator_bugs.py` for the format. The wrong results come from loops in NumPy, not from qdebug.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import MICROSOFT, again, case, real, rng

F32 = np.float32
STEPS, SAMPLES, UNITS = 7, 3, 12


def sig(a):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-a))


def weights(gates, *, size=10, scale=0.5):
    """Return a sequence, and the weights and biases of a recurrent layer."""
    return dict(
        x=real(STEPS, SAMPLES, size),
        w=real(1, gates * UNITS, size) * F32(scale),
        r=real(1, gates * UNITS, UNITS) * F32(scale),
        b=real(1, 2 * gates * UNITS) * F32(0.3),
    )


LSTM, GRU, RNN = weights(4), weights(3), weights(1)
QUIET = {name: array for name, array in GRU.items() if name != "b"}


def split(v, gates):
    """Return weights and biases by gate."""
    w, r = (v[name][0].astype(np.float64).reshape(gates, UNITS, -1) for name in "wr")
    return w, r, (v["b"][0].astype(np.float64) if "b" in v else np.zeros(2 * gates * UNITS)).reshape(2, gates, UNITS)


def lstm(v, *, block=UNITS, keeps=(), late=(), carry=False):
    """Return the states of an LSTM whose units change the state that others read, or whose buffers are not cleared."""
    w, r, b = split(v, 4)
    x = v["x"].astype(np.float64)
    h, c = np.zeros((SAMPLES, UNITS)), np.zeros((SAMPLES, UNITS))
    kept = np.zeros((4, SAMPLES, UNITS))
    states = []
    for step in range(STEPS):
        last = kept.copy()
        for start in range(0, UNITS, block):
            at = slice(start, start + block)
            g = []
            for gate in range(4):
                product = h @ r[gate, at].T
                if gate in keeps:
                    kept[gate, :, at] += product
                    product = kept[gate, :, at]
                if gate in late:
                    kept[gate, :, at] = product
                    product = last[gate, :, at]
                g.append(x[step] @ w[gate, at].T + b[:, gate, at].sum(0) + product)
            i, o, f, n = sig(g[0]), sig(g[1]), sig(g[2]), np.tanh(g[3])
            c[:, at] = f * c[:, at] + i * n
            if block == UNITS:
                h = np.zeros_like(h)
            h[:, at] = o * np.tanh(c[:, at])
        states.append(h.copy())
        if carry:
            h, c = np.roll(h, 1, 0), np.roll(c, 1, 0)
    return np.stack(states)[:, None]


@case("lstm: each unit overwrites the state", "LSTM", "x w r b", LSTM, r"in place.*unit", hidden_size=UNITS)
def _(v):
    return lstm(v, block=1)


@case("lstm: blocks of 4 overwrite the state", "LSTM", "x w r b", LSTM, r"in place.*4 units", hidden_size=UNITS)
def _(v):
    return lstm(v, block=4)


@case("lstm: buffer of all gates", "LSTM", "x w r b", LSTM, r"recurrent weight.*not cleared", hidden_size=UNITS)
def _(v):
    return lstm(v, keeps=(0, 1, 2, 3))


@case("lstm: buffer of the forget gate", "LSTM", "x w r b", LSTM, r"'forget' is not cleared", hidden_size=UNITS)
def _(v):
    return lstm(v, keeps=(2,))


@case("lstm: products a step late", "LSTM", "x w r b", LSTM, r"step before", hidden_size=UNITS)
def _(v):
    return lstm(v, late=(0, 1, 2, 3))


def gru(v, *, after=0, in_place="", keeps="", bias_again=False):
    """Return the states of a GRU with a wrong state or buffer."""
    w, r, b = split(v, 3)
    x = v["x"].astype(np.float64)
    h, kept, states = np.zeros((SAMPLES, UNITS)), np.zeros((SAMPLES, UNITS)), []
    for step in range(STEPS):
        z, s = (sig(x[step] @ w[at].T + h @ r[at].T + b[:, at].sum(0)) for at in (0, 1))
        own = x[step] @ w[2].T + b[0, 2] * (1 + step * bias_again)
        if in_place == "reset":
            h = s * h
            h = (1 - z) * np.tanh(own + h @ r[2].T + b[1, 2]) + z * h
        elif in_place == "unit":
            h = h.copy()
            for at in range(UNITS):
                n = np.tanh(own[:, at] + s[:, at] * (h @ r[2, at] + b[1, 2, at]))
                h[:, at] = (1 - z[:, at]) * n + z[:, at] * h[:, at]
        else:
            product = (h if after else s * h) @ r[2].T + b[1, 2]
            kept = product + (kept if keeps == "with bias" else 0)
            n = np.tanh(own + (s * kept if after else kept))
            h = (1 - z) * n + z * h
        states.append(h)
    return np.stack(states)[:, None]


@case(
    "gru: the reset state replaces the state", "GRU", "x w r b", GRU, r"reset.*(in place|replaces)", hidden_size=UNITS
)
def _(v):
    return gru(v, in_place="reset")


@case("gru: units overwrite the state", "GRU", "x w r b", GRU, r"in place", hidden_size=UNITS, linear_before_reset=1)
def _(v):
    return gru(v, in_place="unit")


@case(
    "gru: buffer with bias",
    "GRU",
    "x w r b",
    GRU,
    r"recurrent bias.*not cleared",
    hidden_size=UNITS,
    linear_before_reset=1,
)
def _(v):
    return gru(v, after=1, keeps="with bias")


@case("gru: buffer without bias", "GRU", "x w r", QUIET, r"'candidate' is not cleared", hidden_size=UNITS)
def _(v):
    return gru(v, keeps="with bias")


@case("gru: bias added once more each step", "GRU", "x w r b", GRU, r"input bias.*not cleared", hidden_size=UNITS)
def _(v):
    return gru(v, bias_again=True)


def rnn(v, order):
    """Return the states of an RNN whose samples are computed one after another, in an order of (step, sample)."""
    w, r, b = split(v, 1)
    h, states = np.zeros(UNITS), np.zeros((STEPS, 1, SAMPLES, UNITS))
    for step, sample in order:
        h = np.tanh(v["x"][step, sample] @ w[0].T + h @ r[0].T + b.sum((0, 1)))
        states[step, 0, sample] = h
    return states


@case("rnn: samples continue one another", "RNN", "x w r b", RNN, r"sample before", hidden_size=UNITS)
def _(v):
    return rnn(v, [(step, sample) for sample in range(SAMPLES) for step in range(STEPS)])


@case("rnn: samples share a state", "RNN", "x w r b", RNN, r"samples share", hidden_size=UNITS)
def _(v):
    return rnn(v, [(step, sample) for step in range(STEPS) for sample in range(SAMPLES)])


# --------------------------------------------------------------------------- rows of a result

ROWS = dict(x=real(2, 9, 20), w=real(20, 16) * F32(0.3), g=real(20), c=real(20))


def last_row(right, *, axis):
    """Return a result whose rows were all written to the first, and 0 elsewhere."""
    result = np.zeros_like(right)
    first = (slice(None),) * axis
    result[(*first, 0)] = right[(*first, -1)]
    return result


# https://github.com/ARM-software/CMSIS_5/issues/1441
@case(
    "softmax: all rows are written to the first",
    "Softmax",
    "x",
    dict(x=ROWS["x"]),
    r"every row is written to the first",
)
def _(v):
    return last_row(again("Softmax", "x", v), axis=1)


@case("product: all rows are written to the first", "MatMul", "x w", ROWS, r"every row is written to the first")
def _(v):
    return last_row(again("MatMul", "x w", v), axis=1)


@case("product: two rows are exchanged", "MatMul", "x w", ROWS, r"row 3 that of 4|3 to 4 of axis 1.*reverse")
def _(v):
    right = again("MatMul", "x w", v)
    return right[:, [0, 1, 2, 4, 3, 5, 6, 7, 8]]


@case(
    "product: pairs of rows hold the first of both",
    "MatMul",
    "x w",
    ROWS,
    r"hold the result of another|2 times in a row|one position before|one row late",
)
def _(v):
    return again("MatMul", "x w", v)[:, [0, 0, 2, 2, 4, 4, 6, 6, 8]]


@case(
    "layernorm: a batch is written to the other",
    "LayerNormalization",
    "x g c",
    ROWS,
    r"written to the first|that of 1",
    opset=17,
)
def _(v):
    return last_row(again("LayerNormalization", "x g c", v, opset=17), axis=0)


@case(
    "product: only the first row is written", "MatMul", "x w", ROWS, r"last 8|only in|index 1 on along axis 1 in .node"
)
def _(v):
    right = again("MatMul", "x w", v)
    right[:, 1:] = 0
    return right


# --------------------------------------------------------------------------- packed zero points

K, N, BLOCK = 112, 24, 32


def packed(blocks=4):
    """Return a packed weight of 4 bits with zero points, whose last block is not complete."""
    k = K if blocks == 4 else 32 * blocks - 4
    codes = rng.integers(0, 16, (N, 32 * blocks)).astype(np.uint8)
    zeros = np.zeros((N, blocks + blocks % 2), np.uint8)
    zeros[:, :blocks] = rng.integers(5, 11, (N, blocks))
    return dict(
        x=real(6, k),
        w=(codes[:, ::2] | codes[:, 1::2] << 4).reshape(N, blocks, BLOCK // 2),
        s=(rng.uniform(0.5, 1.5, (N, blocks)) * 0.02).astype(F32).reshape(-1),
        z=(zeros[:, ::2] | zeros[:, 1::2] << 4).reshape(-1),
    )


def product(v, zeros):
    """Return the product with a packed weight for zero points (N, blocks)."""
    blocks = zeros.shape[1]
    codes = np.stack([v["w"] & 15, v["w"] >> 4], axis=-1).reshape(N, blocks, BLOCK).astype(F32)
    weight = ((codes - zeros[..., None].astype(F32)) * v["s"].reshape(N, blocks, 1)).reshape(N, -1)
    return v["x"] @ weight[:, : v["x"].shape[1]].T


FOUR, THREE = packed(), packed(3)


def zero_case(title, values, words):
    """Add a case of zero points."""
    attrs = dict(K=values["x"].shape[1], N=N, bits=4, block_size=BLOCK)
    return case(title, "MatMulNBits", "x w s z", values, words, domain=MICROSOFT, **attrs)


# https://github.com/ROCm/hip-ep/pull/967
@zero_case("zero points: read as float16", FOUR, r"zero points.*float16")
def _(v):
    behind = rng.integers(0, 256, 2 * N * 4 - v["z"].size).astype(np.uint8) & 119
    return product(v, np.concatenate([v["z"], behind]).view(np.float16).reshape(N, 4))


@zero_case("zero points: one byte each", FOUR, r"zero points.*uint8")
def _(v):
    return product(v, np.concatenate([v["z"], np.zeros(N * 4 - v["z"].size, np.uint8)]).reshape(N, 4))


@zero_case("zero points: halves of a byte swapped", FOUR, r"zero points.*swapped")
def _(v):
    return product(v, np.stack([v["z"] >> 4, v["z"] & 15], axis=-1).reshape(N, 4))


@zero_case("zero points: rows of three are not padded", THREE, r"zero points.*padded")
def _(v):
    return product(v, np.stack([v["z"] & 15, v["z"] >> 4], axis=-1).reshape(-1)[: N * 3].reshape(N, 3))
