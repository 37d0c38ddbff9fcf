"""Wrong kernels: statistics in float16, softmax in tiles, reverse steps, tiled convolutions, batches, casts, functions.

See `operator_bugs.py` for the format. The kinds come from public reports; each is a net of its own. The wrong results
come from NumPy and ONNX's implementations, not from qdebug.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import again, case, real, rng

MS = "com.microsoft"
F16, F32, F64 = np.float16, np.float32, np.float64


def sig(a):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-a))


def soft(a, axis=-1):
    """Return the softmax."""
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def integers(*values):
    """Return 64-bit integers."""
    return np.array(values, np.int64)


def one_by_one(terms, kind):
    """Add terms along the last axis in a type, and round after each addition."""
    total = np.zeros(terms.shape[:-1], kind)
    with np.errstate(all="ignore"):
        for at in range(terms.shape[-1]):
            total = (total + terms[..., at].astype(kind)).astype(kind)
    return total[..., None]


# --------------------------------------------------------------------------- statistics in float16

LARGE = (real(6, 48) * np.geomspace(0.5, 300, 6)[:, None]).astype(F32)
ROWS = dict(x=LARGE, g=real(48) * F32(0.3) + 1, b=real(48) * F32(0.2))
IN_FLOAT16 = r"(square|varian|sum)[^;]*float16|float16[^;]*(square|varian|sum)"


def rms_by(total):
    """Return a RMS normalization whose mean of squares is computed by a function."""

    def norm(v):
        x = v["x"].astype(F32)
        with np.errstate(all="ignore"):
            return x / np.sqrt(total(x).astype(F32) + F32(1e-5)) * v["g"].astype(F32)

    return norm


def squares(x):
    """Return squares, rounded to float16."""
    with np.errstate(all="ignore"):
        return np.square(x.astype(F16))


WAYS = {
    "squares in float16, summed in float32": lambda x: squares(x).astype(F32).mean(-1, keepdims=True),
    "squares summed in float16": lambda x: one_by_one(squares(x), F16) / F16(x.shape[-1]),
    "sum of squares stored in float16": lambda x: np.square(x).sum(-1, keepdims=True).astype(F16) / F32(x.shape[-1]),
    "mean of squares stored in float16": lambda x: np.square(x).mean(-1, keepdims=True).astype(F16),
}
for title, way in WAYS.items():
    case(
        f"rmsnorm: {title}",
        "RMSNormalization",
        "x g",
        {"x": LARGE, "g": ROWS["g"]},
        IN_FLOAT16,
        opset=23,
        epsilon=1e-5,
    )(rms_by(way))
    case(
        f"simplified norm of 16 bits: {title}",
        "SimplifiedLayerNormalization",
        "x g",
        {"x": LARGE.astype(F16), "g": ROWS["g"].astype(F16)},
        IN_FLOAT16,
        opset=17,
        epsilon=1e-5,
    )(rms_by(way))


@case("layernorm: squares of distances in float16", "LayerNormalization", "x g b", ROWS, IN_FLOAT16, epsilon=1e-5)
def _(v):
    x = v["x"].astype(F32)
    c = x - x.mean(-1, keepdims=True)
    with np.errstate(all="ignore"):
        return c / np.sqrt(squares(c).astype(F32).mean(-1, keepdims=True) + F32(1e-5)) * v["g"] + v["b"]


SKIP = dict(x=LARGE[None], x2=(LARGE[None, ::-1] * F32(0.3)).copy(), g=ROWS["g"])


@case(
    "skip norm: squares summed in float16",
    "SkipSimplifiedLayerNormalization",
    "x x2 g",
    SKIP,
    IN_FLOAT16,
    domain=MS,
    epsilon=1e-5,
)
def _(v):
    return rms_by(WAYS["squares summed in float16"])({"x": v["x"] + v["x2"], "g": v["g"]})


@case(
    "skip norm: skip not in the statistics",
    "SkipSimplifiedLayerNormalization",
    "x x2 g",
    SKIP,
    r"without_skip",
    domain=MS,
    epsilon=1e-5,
)
def _(v):
    s = v["x"] + v["x2"]
    return s / np.sqrt(np.square(v["x"]).mean(-1, keepdims=True) + 1e-5) * v["g"]


# --------------------------------------------------------------------------- softmax in tiles

SCORES = dict(x=real(7, 40, scale=4))


def tiled(x, tile, *, rescale=True, last_max=True, last_sum=True):
    """Return a softmax that runs over tiles with a running maximum and sum."""
    top, total = np.full((*x.shape[:-1], 1), -np.inf), np.zeros((*x.shape[:-1], 1))
    starts = range(0, x.shape[-1], tile)
    for start in starts:
        part = x[..., start : start + tile]
        is_last = start == starts[-1]
        new = np.maximum(top, part.max(-1, keepdims=True)) if last_max or not is_last else top
        if rescale:
            total = total * np.exp(top - new)
        if last_sum or not is_last:
            total = total + np.exp(part - new).sum(-1, keepdims=True)
        top = new
    return np.exp(x - top) / total


@case("softmax: running sum not rescaled", "Softmax", "x", SCORES, r"rescal|running (sum|max)")
def _(v):
    return tiled(v["x"].astype(F64), 16, rescale=False)


@case("softmax: sum without the last tile", "Softmax", "x", SCORES, r"sum.*(first 32|last 8)|(first 32|last 8).*sum")
def _(v):
    return tiled(v["x"].astype(F64), 16, last_sum=False)


@case(
    "softmax: sum over whole tiles only",
    "Softmax",
    "x",
    dict(x=real(2, 3, 5, 21, scale=2)),
    r"sum.*(first 16|last 5)|(first 16|last 5).*sum",
)
def _(v):
    x = v["x"].astype(F64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e[..., :16].sum(-1, keepdims=True)


@case(
    "softmax: maximum of the last tile not subtracted",
    "Softmax",
    "x",
    SCORES,
    r"max.*not subtracted|not subtracted.*max|max",
)
def _(v):
    x = v["x"].astype(F64)
    top = np.where(np.arange(40) < 32, x.max(-1, keepdims=True), 0)
    e = np.exp(x - top)
    return e / e.sum(-1, keepdims=True)


@case(
    "softmax: each tile shifted by its own maximum",
    "Softmax",
    "x",
    SCORES,
    r"own max|max.*(tile|block)|(tile|block).*max",
)
def _(v):
    x = v["x"].astype(F64)
    e = np.concatenate([np.exp(t - t.max(-1, keepdims=True)) for t in np.split(x, [16, 32], -1)], -1)
    return e / e.sum(-1, keepdims=True)


@case("softmax: empty lanes of the last tile", "Softmax", "x", SCORES, r"empty|zeros|beyond|lanes|pad")
def _(v):
    x = v["x"].astype(F64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / (e.sum(-1, keepdims=True) + 8 * np.exp(-x.max(-1, keepdims=True)))


MASK = np.where(rng.random((1, 1, 6, 21)) < 0.3, -np.inf, 0).astype(F32)
MASK[0, 0, 2] = -np.inf
HEADS = dict(q=real(2, 3, 6, 8), k=real(2, 3, 21, 8), v=real(2, 3, 21, 8))
NAMED_X = dict(x=HEADS["q"], x2=HEADS["k"], x3=HEADS["v"])


def attend(v, *, norm=soft, mask=0.0, end=None, shares=None):
    """Return the attention of queries x, keys x2 and values x3."""
    scores = v["x"].astype(F64) @ v["x2"].astype(F64).swapaxes(2, 3) * 8**-0.5 + mask
    return norm(scores) @ v["x3"].astype(F64)


@case("attention: running sum not rescaled", "Attention", "x x2 x3", NAMED_X, r"rescal|running (sum|max)", opset=23)
def _(v):
    return attend(v, norm=lambda s: tiled(s * 1.0, 8, rescale=False))


def flash(v, tile, *, rescale_output=True, rescale_sum=True, mask=0.0, skip_last=False):
    """Return the attention in tiles of keys, with a running maximum, sum and result."""
    scores = v["x"].astype(F64) @ v["x2"].astype(F64).swapaxes(2, 3) * 8**-0.5 + mask
    top, total = np.full((*scores.shape[:-1], 1), -np.inf), 0.0
    out = np.zeros((*scores.shape[:-1], v["x3"].shape[-1]))
    for start in range(0, scores.shape[-1], tile):
        part = scores[..., start : start + tile]
        if skip_last and part.shape[-1] < tile:
            continue
        new = np.maximum(top, part.max(-1, keepdims=True))
        factor, p = np.exp(top - new), np.exp(part - new)
        total = total * (factor if rescale_sum else 1) + p.sum(-1, keepdims=True)
        out = out * (factor if rescale_output else 1) + p @ v["x3"][:, :, start : start + tile].astype(F64)
        top = new
    return out / total


@case("attention: running result not rescaled", "Attention", "x x2 x3", NAMED_X, r"rescal|running", opset=23)
def _(v):
    return flash(v, 8, rescale_output=False)


@case("attention: neither sum nor result rescaled", "Attention", "x x2 x3", NAMED_X, r"rescal|running", opset=23)
def _(v):
    return flash(v, 8, rescale_output=False, rescale_sum=False)


@case(
    "attention: last tile of keys skipped",
    "Attention",
    "x x2 x3",
    NAMED_X,
    r"keys?.*(5|16|last)|(5|16|last).*keys?|'x2'.*(16|5)",
    opset=23,
)
def _(v):
    return flash(v, 8, skip_last=True)


@case("attention: sum without the last tile", "Attention", "x x2 x3", NAMED_X, r"sum|total", opset=23)
def _(v):
    def norm(s):
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e[..., :16].sum(-1, keepdims=True)

    return attend(v, norm=norm)


MASKED = {**NAMED_X, "m": MASK}


@case(
    "attention: mask of finite numbers",
    "Attention",
    "x x2 x3 m",
    MASKED,
    r"no key see all keys|act as finite",
    opset=23,
)
def _(v):
    return attend(v, mask=np.where(np.isinf(MASK), -1e9, 0))


@case("attention: mask is the lowest number", "Attention", "x x2 x3 m", MASKED, r"average of all values", opset=23)
def _(v):
    return attend(v, mask=np.where(np.isinf(MASK), np.finfo(F32).min, 0))


@case("attention: fully masked row is NaN", "Attention", "x x2 x3 m", MASKED, r"no key get NaN", opset=23)
def _(v):
    with np.errstate(all="ignore"):
        return attend(v, mask=MASK)


@case("attention: mask of the first tile for each tile", "Attention", "x x2 x3 m", MASKED, r"'m'|mask", opset=23)
def _(v):
    m = np.where(np.isinf(MASK), -np.inf, 0)
    m = np.concatenate([m[..., :8], m[..., :8], m[..., :5]], -1)
    with np.errstate(all="ignore"):
        return np.nan_to_num(attend(v, mask=m))


@case("attention: mask ignored in the last tile", "Attention", "x x2 x3 m", MASKED, r"'m'|mask", opset=23)
def _(v):
    m = MASK.copy()
    m[..., 16:] = 0
    return np.nan_to_num(attend(v, mask=m))


SAMPLE_MASK = np.where(rng.random((2, 1, 6, 21)) < 0.4, -np.inf, 0).astype(F32)


@case(
    "attention: mask of sample 0 for all",
    "Attention",
    "x x2 x3 m",
    {**NAMED_X, "m": SAMPLE_MASK},
    r"'m'.*(first|index 0|axis 0|sample)",
    opset=23,
)
def _(v):
    return attend(v, mask=SAMPLE_MASK[:1])


# --------------------------------------------------------------------------- recurrent layers

STEPS, BATCH, WIDTH, HIDDEN = 6, 6, 5, 6
LENGTHS = np.array([6, 3, 4, 6, 6, 2], np.int32)


def weights(gates, directions=1, states=1):
    """Return inputs of a recurrent layer."""
    return dict(
        x=real(STEPS, BATCH, WIDTH),
        w=real(directions, gates * HIDDEN, WIDTH, scale=0.6),
        r=real(directions, gates * HIDDEN, HIDDEN, scale=0.6),
        b=real(directions, 2 * gates * HIDDEN, scale=0.5),
        n=LENGTHS,
        h=real(directions, BATCH, HIDDEN),
        c=real(directions, BATCH, HIDDEN),
    )


LSTM_BI, LSTM_REV, GRU_REV, RNN_REV = weights(4, 2), weights(4), weights(3), weights(1)


def part(v, at, names="wrbhc"):
    """Return the inputs of one direction."""
    return {k: a[at : at + 1] if k in names else a for k, a in v.items()}


def recurrent(op, names, v, *, outs=1, **attrs):
    """Return all results of a recurrent layer."""
    from operator_bugs import computed

    return computed(op, names.split(), outs, v, opset=21, domain="", hidden_size=HIDDEN, **attrs)


@case(
    "lstm: reverse direction reversed along the batch",
    "LSTM",
    "x w r b",
    LSTM_BI,
    r"runs forward.*another axis",
    hidden_size=HIDDEN,
    direction="bidirectional",
)
def _(v):
    first = recurrent("LSTM", "x w r b", part(v, 0))[0]
    other = recurrent("LSTM", "x w r b", {**part(v, 1), "x": v["x"][:, ::-1]})[0]
    return np.concatenate([first, other[:, :, ::-1]], 1)


@case(
    "lstm: reverse direction reversed along the batch, not undone",
    "LSTM",
    "x w r b",
    LSTM_BI,
    r"batch|sample|axis 1",
    hidden_size=HIDDEN,
    direction="bidirectional",
)
def _(v):
    first = recurrent("LSTM", "x w r b", part(v, 0))[0]
    other = recurrent("LSTM", "x w r b", {**part(v, 1), "x": v["x"][:, ::-1]})[0]
    return np.concatenate([first, other], 1)


@case(
    "gru: reverse of one direction reversed along the batch",
    "GRU",
    "x w r b",
    GRU_REV,
    r"forward, not reverse",
    hidden_size=HIDDEN,
    direction="reverse",
)
def _(v):
    return recurrent("GRU", "x w r b", {**v, "x": v["x"][:, ::-1]})[0][:, :, ::-1]


@case(
    "lstm: reverse direction runs forward",
    "LSTM",
    "x w r b",
    LSTM_BI,
    r"(second|reverse|both).*(forward|order|direction)",
    hidden_size=HIDDEN,
    direction="bidirectional",
)
def _(v):
    first = recurrent("LSTM", "x w r b", part(v, 0))[0]
    return np.concatenate([first, recurrent("LSTM", "x w r b", part(v, 1))[0]], 1)


def padded_reverse(op):
    """Return a reverse layer that reverses all steps, padding included."""

    def run(v):
        turned = {**v, "x": v["x"][::-1].copy()}
        y = recurrent(op, "x w r b n", turned)[0]
        result = y[::-1].copy()
        for at, length in enumerate(LENGTHS):
            result[length:, :, at] = 0
        return result

    return run


@case(
    "gru: all of the padded steps reversed",
    "GRU",
    "x w r b n",
    GRU_REV,
    r"padd|length",
    hidden_size=HIDDEN,
    direction="reverse",
)
def _(v):
    y = recurrent("GRU", "x w r b", {**v, "x": v["x"]}, direction="reverse")[0].copy()
    for at, length in enumerate(LENGTHS):
        y[length:, :, at] = 0
    return y


@case(
    "gru: padded steps reversed, then as many as are valid",
    "GRU",
    "x w r b n",
    GRU_REV,
    r"padd|length",
    hidden_size=HIDDEN,
    direction="reverse",
)
def _(v):
    y = recurrent("GRU", "x w r b n", {**v, "x": v["x"][::-1].copy()})[0]
    return y[::-1].copy()


@case(
    "rnn: lengths ignored in the reverse direction",
    "RNN",
    "x w r b n",
    RNN_REV,
    r"length",
    hidden_size=HIDDEN,
    direction="reverse",
)
def _(v):
    return recurrent("RNN", "x w r b", v, direction="reverse")[0]


def final_of_last_step(op, gates):
    v = weights(gates)

    @case(
        f"{op.lower()}: final state of the last padded step",
        op,
        "x w r b n",
        v,
        r"last (padded )?step|padded|length",
        outs=2,
        hidden_size=HIDDEN,
    )
    def _(v):
        y = recurrent(op, "x w r b n", v)[0]
        _, last = recurrent(op, "x w r b", v, outs=2)
        return [y, last]

    @case(
        f"{op.lower()}: final state of the last padded step, which is 0",
        op,
        "x w r b n",
        v,
        r"final state is read from the last step",
        outs=2,
        hidden_size=HIDDEN,
    )
    def _(v):
        y = recurrent(op, "x w r b n", v)[0]
        return [y, y[-1]]


final_of_last_step("LSTM", 4)
final_of_last_step("GRU", 3)


@case(
    "lstm: initial state not used in the reverse direction",
    "LSTM",
    ["x", "w", "r", "b", "", "h", "c"],
    LSTM_BI,
    r"initial state.*(reverse|second)|(reverse|second).*initial state",
    hidden_size=HIDDEN,
    direction="bidirectional",
)
def _(v):
    h, c = (np.stack([v[k][0], 0 * v[k][1]]) for k in "hc")
    return again(
        "LSTM", ["x", "w", "r", "b", "", "h", "c"], {**v, "h": h, "c": c}, hidden_size=HIDDEN, direction="bidirectional"
    )


@case(
    "gru: initial state not used in the reverse direction",
    "GRU",
    ["x", "w", "r", "b", "", "h"],
    GRU_REV,
    r"initial state|'h'",
    hidden_size=HIDDEN,
    direction="reverse",
)
def _(v):
    return again("GRU", "x w r b", v, hidden_size=HIDDEN, direction="reverse")


@case(
    "lstm: initial cell not used",
    "LSTM",
    ["x", "w", "r", "b", "", "h", "c"],
    LSTM_REV,
    r"initial cell",
    hidden_size=HIDDEN,
)
def _(v):
    return again("LSTM", ["x", "w", "r", "b", "", "h"], v, hidden_size=HIDDEN)


def gates_in_order(v, order, names="wrb"):
    """Return the inputs with gates in another order."""
    out = dict(v)
    for k in names:
        a = v[k].reshape(v[k].shape[0], -1, 4, HIDDEN, *v[k].shape[2:])
        out[k] = a[:, :, order].reshape(v[k].shape)
    return out


@case("lstm: gates read as input, forget, cell, output", "LSTM", "x w r b", LSTM_REV, r"gate order", hidden_size=HIDDEN)
def _(v):
    return again("LSTM", "x w r b", gates_in_order(v, [0, 3, 1, 2]), hidden_size=HIDDEN)


@case(
    "lstm: gates of the recurrent weight alone in another order",
    "LSTM",
    "x w r b",
    LSTM_REV,
    r"gate",
    hidden_size=HIDDEN,
)
def _(v):
    return again("LSTM", "x w r b", gates_in_order(v, [0, 3, 1, 2], "r"), hidden_size=HIDDEN)


@case("lstm: gates of the bias alone in another order", "LSTM", "x w r b", LSTM_REV, r"gate", hidden_size=HIDDEN)
def _(v):
    return again("LSTM", "x w r b", gates_in_order(v, [0, 2, 3, 1], "b"), hidden_size=HIDDEN)


@case(
    "gru: recurrent bias outside the reset product",
    "GRU",
    "x w r b",
    GRU_REV,
    r"reset|linear_before_reset",
    hidden_size=HIDDEN,
    linear_before_reset=1,
)
def _(v):
    b = v["b"].copy()
    n = HIDDEN
    b[:, 2 * n : 3 * n] += b[:, 5 * n :]
    b[:, 5 * n :] = 0
    return again("GRU", "x w r b", {**v, "b": b}, hidden_size=HIDDEN, linear_before_reset=1)


# --------------------------------------------------------------------------- convolutions in tiles

IMAGES = dict(x=real(2, 3, 14, 13), w=real(4, 3, 3, 3, scale=0.4), b=real(4))
PADS = [1, 1, 1, 1]
TILE = r"tile|block|every [24]"


def conv_rows(v, source, **attrs):
    """Return a convolution whose output rows are those of other rows."""
    right = again("Conv", "x w b", v, pads=PADS)
    wide = again("Conv", "x w b", v, pads=[1, 1, 5, 1])
    rows = np.array([source(row) for row in range(right.shape[2])])
    return wide[:, :, rows]


def tile_case(title, words=TILE):
    return case(f"conv: {title}", "Conv", "x w b", IMAGES, words, pads=PADS)


@tile_case("each second tile of rows repeats the one before")
def _(v):
    return conv_rows(v, lambda row: row - 2 if row // 2 % 2 else row)


@tile_case("each second tile of 4 rows repeats the one before")
def _(v):
    return conv_rows(v, lambda row: row - 4 if row // 4 % 2 else row)


@tile_case("each first tile of rows is that of the next tile", r"tile after")
def _(v):
    return conv_rows(v, lambda row: row if row // 2 % 2 else row + 2)


@tile_case("tiles step by 4 rows of input for 2 of output", r"tile|block|step|stride")
def _(v):
    return (
        conv_rows(
            {**v, "x": np.pad(v["x"], ((0, 0), (0, 0), (0, 20), (0, 0)))}, lambda row: row // 2 * 4 % 16 + row % 2
        )
        if False
        else _double_step(v)
    )


def _double_step(v):
    wide = again("Conv", "x w b", {**v, "x": np.pad(v["x"], ((0, 0), (0, 0), (0, 20), (0, 0)))}, pads=PADS)
    return wide[:, :, [row // 2 * 4 + row % 2 for row in range(14)]]


@tile_case("4x4 tiles step by 6 rows of input", r"tile|block|step|stride")
def _(v):
    wide = again("Conv", "x w b", {**v, "x": np.pad(v["x"], ((0, 0), (0, 0), (0, 20), (0, 0)))}, pads=PADS)
    return wide[:, :, [row // 4 * 6 + row % 4 for row in range(14)]]


@tile_case("2x2 tiles transposed", r"tile.*transpos|transpos.*tile|swapped within")
def _(v):
    right = again("Conv", "x w b", v, pads=PADS)
    padded = np.pad(right, ((0, 0), (0, 0), (0, 0), (0, 1)))
    tiles = padded.reshape(2, 4, 7, 2, 7, 2).transpose(0, 1, 2, 5, 4, 3)
    result = tiles.reshape(2, 4, 14, 14)[..., :13].copy()
    result[..., 12] = right[..., 12]
    return result


@case(
    "conv: 4x4 tiles transposed",
    "Conv",
    "x w b",
    {**IMAGES, "x": real(1, 3, 12, 16)},
    r"tile.*transpos|transpos.*tile|swapped within",
    pads=PADS,
)
def _(v):
    right = again("Conv", "x w b", v, pads=PADS)
    tiles = right.reshape(1, 4, 3, 4, 4, 4).transpose(0, 1, 2, 5, 4, 3)
    return np.ascontiguousarray(tiles).reshape(right.shape)


@tile_case("rows swapped within tiles of 2", r"tile|block|each 2 elements")
def _(v):
    return conv_rows(v, lambda row: row ^ 1)


@tile_case("last, incomplete tile of columns from the tile before", r"last tile")
def _(v):
    right = again("Conv", "x w b", v, pads=PADS).copy()
    right[..., 12] = right[..., 10]
    return right


@tile_case("last, incomplete tile of rows reads the rows before", r"last tile")
def _(v):
    right = again("Conv", "x w b", v, pads=PADS).copy()
    right[:, :, 12:] = right[:, :, 8:10]
    return right


@tile_case("padding of the tile at the right border repeated from the row", r"border|pad|column")
def _(v):
    x = np.pad(v["x"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    x[..., -1] = x[..., -2]
    return again("Conv", "x w b", {**v, "x": x})


@case(
    "conv: each second tile of a 1-D convolution repeats",
    "Conv",
    "x w b",
    dict(x=real(2, 3, 40), w=real(5, 3, 3), b=real(5)),
    TILE,
    pads=[1, 1],
)
def _(v):
    right = again("Conv", "x w b", v, pads=[1, 1])
    return right[:, :, [p - 4 if p // 4 % 2 else p for p in range(40)]]


@case(
    "conv: each second tile of columns repeats, depthwise",
    "Conv",
    "x w",
    dict(x=real(1, 6, 9, 16), w=real(6, 1, 3, 3)),
    TILE,
    pads=PADS,
    group=6,
)
def _(v):
    right = again("Conv", "x w", v, pads=PADS, group=6)
    return right[..., [p - 2 if p // 2 % 2 else p for p in range(16)]]


@case(
    "matmul: each second tile of rows repeats the one before",
    "MatMul",
    "x w",
    dict(x=real(3, 32, 24), w=real(24, 16)),
    TILE,
)
def _(v):
    right = v["x"].astype(F64) @ v["w"]
    return right[:, [p - 4 if p // 4 % 2 else p for p in range(32)]]


# --------------------------------------------------------------------------- reductions

REDUCED = dict(x=real(5, 9, 40) + F32(0.5), a=integers(2))


def reduction(title, op, words, values=None, **attrs):
    return case(f"{op.lower()}: {title}", op, "x a", values or REDUCED, words, **attrs)


FIRST_32 = r"first 32|last 8|from index 32 on"


@reduction("only the first 32 summed", "ReduceSum", FIRST_32)
def _(v):
    return v["x"][..., :32].sum(-1, keepdims=True)


@reduction("mean of the first 32, divided by 40", "ReduceMean", FIRST_32)
def _(v):
    return v["x"][..., :32].sum(-1, keepdims=True) / F32(40)


@reduction("mean of the first 32", "ReduceMean", FIRST_32)
def _(v):
    return v["x"][..., :32].mean(-1, keepdims=True)


@reduction("divided by the padded length", "ReduceMean", r"48|divi|0\.83")
def _(v):
    return v["x"].sum(-1, keepdims=True) / F32(48)


@reduction("only the first 32 compared", "ReduceMax", FIRST_32)
def _(v):
    return v["x"][..., :32].max(-1, keepdims=True)


@reduction("only the first 32", "ReduceL2", FIRST_32)
def _(v):
    return np.sqrt(np.square(v["x"][..., :32]).sum(-1, keepdims=True))


@reduction("only the first 32", "ReduceLogSumExp", FIRST_32)
def _(v):
    return np.log(np.exp(v["x"].astype(F64)[..., :32]).sum(-1, keepdims=True))


@reduction(
    "without the maximum",
    "ReduceLogSumExp",
    r"exp of.*beyond",
    dict(x=(real(5, 9, 40) * np.linspace(1, 60, 9)[:, None]).astype(F32), a=integers(2)),
)
def _(v):
    with np.errstate(all="ignore"):
        return np.log(np.exp(v["x"]).sum(-1, keepdims=True))


@reduction("epsilon in the root", "ReduceL2", r"epsilon|1e-|root", dict(x=real(5, 9, 40) * F32(1e-3), a=integers(2)))
def _(v):
    return np.sqrt(np.square(v["x"]).sum(-1, keepdims=True) + 1e-5)


@reduction("not rooted", "ReduceL2", r"root|ReduceSumSquare|square")
def _(v):
    return np.square(v["x"]).sum(-1, keepdims=True)


TIED = dict(x=rng.integers(0, 6, (7, 40)).astype(F32))


@case("argmax: last of ties", "ArgMax", "x", TIED, r"last|select_last_index|tie", axis=1)
def _(v):
    return 39 - np.argmax(v["x"][:, ::-1], 1, keepdims=True)


@case("argmax: only the first 32", "ArgMax", "x", dict(x=real(60, 40)), FIRST_32, axis=1)
def _(v):
    return np.argmax(v["x"][:, :32], 1, keepdims=True)


@case("argmax: index within the tile", "ArgMax", "x", dict(x=real(60, 40)), r"tile|block|16|modulo", axis=1)
def _(v):
    return np.argmax(v["x"], 1, keepdims=True) % 16


@case("cumsum: restarts at each 16", "CumSum", "x a", dict(x=real(5, 40), a=integers(1)), r"restart")
def _(v):
    return np.concatenate([np.cumsum(t, 1) for t in np.split(v["x"], [16, 32], 1)], 1)


@case(
    "cumsum: carry of the tile before the last is lost",
    "CumSum",
    "x a",
    dict(x=real(5, 40), a=integers(1)),
    r"carry|tile|block|restart|before",
)
def _(v):
    sums = [np.cumsum(t, 1) for t in np.split(v["x"], [16, 32], 1)]
    return np.concatenate([sums[0], sums[1] + sums[0][:, -1:], sums[2] + sums[1][:, -1:]], 1)


@case("cumsum: reverse restarts at each 16", "CumSum", "x a", dict(x=real(5, 40), a=integers(1)), r"restart", reverse=1)
def _(v):
    return np.concatenate([np.cumsum(t[:, ::-1], 1)[:, ::-1] for t in np.split(v["x"], [16, 32], 1)], 1)


TOP = dict(x=real(30, 40), k=integers(5))


@case("topk: ascending order", "TopK", "x k", TOP, r"order|ascend|revers|flip", outs=2, axis=1)
def _(v):
    order = np.argsort(-v["x"], 1, kind="stable")[:, :5][:, ::-1]
    return [np.take_along_axis(v["x"], order, 1), order]


@case("topk: smallest", "TopK", "x k", TOP, r"largest|smallest", outs=2, axis=1)
def _(v):
    order = np.argsort(v["x"], 1, kind="stable")[:, :5]
    return [np.take_along_axis(v["x"], order, 1), order]


@case("topk: not sorted, but in order of the index", "TopK", "x k", TOP, r"sort|order", outs=2, axis=1)
def _(v):
    order = np.sort(np.argsort(-v["x"], 1, kind="stable")[:, :5], 1)
    return [np.take_along_axis(v["x"], order, 1), order]


@case("topk: only the first 32", "TopK", "x k", TOP, FIRST_32, outs=2, axis=1)
def _(v):
    order = np.argsort(-v["x"][:, :32], 1, kind="stable")[:, :5]
    return [np.take_along_axis(v["x"], order, 1), order]


@case(
    "lpnorm: epsilon under the root",
    "LpNormalization",
    "x",
    dict(x=real(7, 9, 13, scale=1e-3)),
    r"epsilon|1e-|adds",
    axis=1,
    p=2,
)
def _(v):
    return v["x"] / np.sqrt(np.square(v["x"]).sum(1, keepdims=True) + 1e-6)


@case(
    "globalaveragepool: divided by the padded size",
    "GlobalAveragePool",
    "x",
    dict(x=real(2, 6, 7, 7) + 1),
    r"64|0\.76|divi",
)
def _(v):
    return v["x"].sum((2, 3), keepdims=True) / F32(64)


@case(
    "mvn: variance over n-1",
    "MeanVarianceNormalization",
    "x",
    dict(x=real(3, 4, 3, 4) + 1),
    r"35|n ?- ?1|variance",
    axes=[0, 2, 3],
)
def _(v):
    x = v["x"].astype(F64)
    return (x - x.mean((0, 2, 3), keepdims=True)) / x.std((0, 2, 3), keepdims=True, ddof=1)


@case(
    "instancenorm: variance over n-1",
    "InstanceNormalization",
    "x g b",
    dict(x=real(2, 4, 3, 4) + 1, g=real(4), b=real(4)),
    r"11|n ?- ?1",
)
def _(v):
    x = v["x"].astype(F64)
    g, b = v["g"][:, None, None], v["b"][:, None, None]
    return (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True, ddof=1) + 1e-5) * g + b


# --------------------------------------------------------------------------- batches

SAMPLE_0 = r"(first|index 0|sample 0|element 0).*(axis 0|sample|batch|repeat)|sample 0|axis 0.*(first|index 0|repeat)"
PAIRS = dict(x=real(4, 5, 6), x2=real(4, 5, 6))


@case("add: second operand of sample 0 for all", "Add", "x x2", PAIRS, SAMPLE_0)
def _(v):
    return v["x"] + v["x2"][:1]


@case("mul: second operand of sample 0 for all", "Mul", "x x2", dict(x=real(4, 5, 6), x2=real(4, 1, 6)), SAMPLE_0)
def _(v):
    return v["x"] * v["x2"][:1]


@case("matmul: second operand of sample 0 for all", "MatMul", "x x2", dict(x=real(4, 5, 6), x2=real(4, 6, 7)), SAMPLE_0)
def _(v):
    return v["x"].astype(F64) @ v["x2"][:1]


@case(
    "matmul: second operand of head 0 for all",
    "MatMul",
    "x x2",
    dict(x=real(2, 4, 5, 6), x2=real(2, 4, 6, 7)),
    r"axis 1|head",
)
def _(v):
    return v["x"].astype(F64) @ v["x2"][:, :1]


@case(
    "matmul: sample stride of the other operand",
    "MatMul",
    "x x2",
    dict(x=real(3, 5, 6), x2=real(3, 6, 7)),
    r"'x2'.*(stride|step|apart)|stride.*'x2'",
)
def _(v):
    memory = np.concatenate([v["x2"].reshape(-1), np.zeros(200, F32)])
    taken = np.stack([memory[30 * at : 30 * at + 42].reshape(6, 7) for at in range(3)])
    return v["x"].astype(F64) @ taken


@case(
    "gather: indices of sample 0 for all",
    "GatherElements",
    "x i",
    dict(x=real(3, 9, 5), i=rng.integers(0, 9, (3, 4, 5))),
    r"'i'.*(first|axis 0|index 0)",
    axis=1,
)
def _(v):
    return np.take_along_axis(v["x"], np.repeat(v["i"][:1], 3, 0), 1)


TABLES = dict(
    c=np.cos(np.arange(64)[:, None] * 0.3 ** np.arange(4)).astype(F32),
    s=np.sin(np.arange(64)[:, None] * 0.3 ** np.arange(4)).astype(F32),
)
ROTATED = dict(x=real(3, 2, 7, 8), p=np.stack([np.arange(7) + start for start in (0, 5, 20)]), **TABLES)


@case(
    "rotary: positions of sample 0 for all",
    "RotaryEmbedding",
    "x p c s",
    ROTATED,
    r"position|'p'.*(first|axis 0|index 0)",
    domain=MS,
)
def _(v):
    return again("RotaryEmbedding", "x p c s", {**v, "p": np.repeat(v["p"][:1], 3, 0)}, domain=MS)


@case(
    "where: mask of sample 0 for all",
    "Where",
    "x2 x x3",
    dict(x=real(3, 5, 6), x2=rng.random((3, 5, 6)) < 0.5, x3=real(3, 5, 6)),
    SAMPLE_0,
)
def _(v):
    return np.where(v["x2"][:1], v["x"], v["x3"])


@case(
    "gemm: bias matrix of row 0 for all",
    "Gemm",
    "x w x3",
    dict(x=real(6, 5), w=real(5, 7), x3=real(6, 7)),
    r"'x3'.*(first|axis 0|index 0|row 0)",
)
def _(v):
    return v["x"].astype(F64) @ v["w"] + v["x3"][:1]


# --------------------------------------------------------------------------- casts

NUMBERS = real(30, 40, scale=20)


def cast_case(title, source, to, words):
    from onnx import helper

    target = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    return case(f"cast: {title}", "Cast", "x", dict(x=source), words, to=target)


@cast_case("rounded to integers", NUMBERS, np.int32, r"round|nearest")
def _(v):
    return np.rint(v["x"]).astype(np.int32)


@cast_case("rounded down to integers", NUMBERS, np.int32, r"floor|down")
def _(v):
    return np.floor(v["x"]).astype(np.int32)


@cast_case("halves away from 0", NUMBERS, np.int64, r"round|half|away|nearest")
def _(v):
    return (np.floor(np.abs(v["x"]) + 0.5) * np.sign(v["x"])).astype(np.int64)


@cast_case("rounded up", NUMBERS, np.int8, r"round|up|ceil")
def _(v):
    return np.ceil(np.clip(v["x"], -100, 100)).astype(np.int8)


@cast_case("saturates in 8 bits", real(30, 40, scale=200), np.uint8, r"saturat")
def _(v):
    return np.clip(np.trunc(v["x"]), 0, 255).astype(np.uint8)


@cast_case("integers saturate in 8 bits", rng.integers(-1000, 1000, (30, 40)).astype(np.int32), np.int8, r"saturat")
def _(v):
    return np.clip(v["x"], -128, 127).astype(np.int8)


SMALL = real(30, 40, scale=2e-5)


@cast_case("subnormal float16 flushed", SMALL, F16, r"subnormal|denormal|flush|tiny|smallest")
def _(v):
    y = v["x"].astype(F16)
    return np.where(np.abs(y) < np.finfo(F16).tiny, F16(0), y)


@cast_case(
    "subnormal float16 read as 0",
    (real(30, 40, scale=5e-5)).astype(F16),
    F32,
    r"subnormal|denormal|flush|tiny|smallest",
)
def _(v):
    return np.where(np.abs(v["x"]) < np.finfo(F16).tiny, F16(0), v["x"]).astype(F32)


@case(
    "mul: subnormal float16 flushed",
    "Mul",
    "x x2",
    dict(x=real(30, 40, scale=0.01).astype(F16), x2=real(30, 40, scale=0.01).astype(F16)),
    r"subnormal|denormal|flush|tiny|smallest",
)
def _(v):
    y = (v["x"] * v["x2"]).astype(F16)
    return np.where(np.abs(y) < np.finfo(F16).tiny, F16(0), y)


@cast_case("overflow saturates in float16", real(30, 40, scale=60000), F16, r"65504|saturat|largest")
def _(v):
    return np.clip(v["x"], -65504, 65504).astype(F16)


BIG = rng.integers(-(2**40), 2**40, (30, 40))


@cast_case("64-bit integers cut to 32 bits", BIG, F32, r"int32|32 bits|wrap")
def _(v):
    return v["x"].astype(np.int32).astype(F32)


@case("add: 64-bit integers cut to 32 bits", "Add", "x x2", dict(x=BIG, x2=BIG[::-1].copy()), r"int32|32 bits|wrap")
def _(v):
    return (v["x"] + v["x2"]).astype(np.int32).astype(np.int64)


@case("add: 64-bit integers as float32", "Add", "x x2", dict(x=BIG, x2=BIG[::-1].copy()), r"float32")
def _(v):
    return (v["x"].astype(F32) + v["x2"].astype(F32)).astype(np.int64)


@case(
    "mul: 32-bit integers as float32",
    "Mul",
    "x x2",
    dict(
        x=rng.integers(-20000, 20000, (30, 40)).astype(np.int32),
        x2=rng.integers(-20000, 20000, (30, 40)).astype(np.int32),
    ),
    r"float32",
)
def _(v):
    return (v["x"].astype(F32) * v["x2"].astype(F32)).astype(np.int32)


@case(
    "add: 64-bit integers saturate in 32 bits",
    "Add",
    "x x2",
    dict(x=BIG, x2=BIG[::-1].copy()),
    r"int32|32 bits|saturat",
)
def _(v):
    return np.clip(v["x"] + v["x2"], -(2**31), 2**31 - 1)


@case("reducesum: 64-bit integers in float32", "ReduceSum", "x a", dict(x=BIG, a=integers(1)), r"float32", keepdims=1)
def _(v):
    return v["x"].astype(F32).sum(1, keepdims=True).astype(np.int64)


FLAGS = rng.integers(0, 4, (30, 40)).astype(np.uint8)


@cast_case("bool from the byte 1 alone", FLAGS, bool, r"== 1|equal to 1|only 1|lowest bit|bit 0|1 alone|1 is")
def _(v):
    return v["x"] == 1


@cast_case("bool from the lowest bit", FLAGS, bool, r"lowest bit|bit 0|odd")
def _(v):
    return (v["x"] & 1).astype(bool)


@cast_case("bool from positive numbers", NUMBERS, bool, r"positive|sign|greater|> 0")
def _(v):
    return v["x"] > 0


@cast_case("bool from truncated numbers", real(30, 40), bool, r"trunc|integer|rounded")
def _(v):
    return v["x"].astype(np.int32) != 0


# --------------------------------------------------------------------------- element by element

NORMAL = dict(x=real(30, 40, scale=2))


@case("gelu: tanh form for the exact one", "Gelu", "x", NORMAL, r"tanh", opset=20)
def _(v):
    return again("Gelu", "x", v, opset=20, approximate="tanh")


@case(
    "gelu: exact form for the tanh one",
    "Gelu",
    "x",
    NORMAL,
    r"erf|none|exact|not tanh|approximate",
    opset=20,
    approximate="tanh",
)
def _(v):
    return again("Gelu", "x", v, opset=20)


@case("gelu: cubic constant 0.0044715", "Gelu", "x", NORMAL, r"0\.00447|cubic|constant", opset=20, approximate="tanh")
def _(v):
    x = v["x"].astype(F64)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.0044715 * x**3)))


@case("gelu: sigmoid form", "Gelu", "x", NORMAL, r"QuickGelu|1\.702|sigmoid", opset=20)
def _(v):
    return v["x"] * sig(1.702 * v["x"].astype(F64))


@case(
    "mish: threshold 2",
    "Mish",
    "x",
    dict(x=real(30, 40, scale=4)),
    r"threshold|beyond|above|> ?\d|from .* on",
    opset=18,
)
def _(v):
    x = v["x"].astype(F64)
    return np.where(x > 2, x, x * np.tanh(np.log1p(np.exp(x))))


@case(
    "softplus: threshold 3", "Softplus", "x", dict(x=real(30, 40, scale=4)), r"threshold|beyond|above|> ?\d|from .* on"
)
def _(v):
    x = v["x"].astype(F64)
    return np.where(x > 3, x, np.log1p(np.exp(x)))


@case("softplus: overflows", "Softplus", "x", dict(x=real(30, 40, scale=60)), r"overflow|inf")
def _(v):
    with np.errstate(all="ignore"):
        return np.log(1 + np.exp(v["x"]))


@case("softplus: base 2", "Softplus", "x", NORMAL, r"log2|base|exp2|2")
def _(v):
    return np.log2(1 + np.exp(v["x"].astype(F64)))


SQUARE = dict(x=real(30, 40, scale=2), e=np.array(3, F32))


@case("pow: magnitude of a negative base", "Pow", "x e", SQUARE, r"magnitude|absolute|abs|sign")
def _(v):
    return np.abs(v["x"]) ** 3


@case("pow: NaN for a negative base", "Pow", "x e", SQUARE, r"log|negative|exp")
def _(v):
    with np.errstate(all="ignore"):
        return np.exp(3 * np.log(v["x"]))


@case("pow: 0 for a negative base", "Pow", "x e", SQUARE, r"negative|0|Relu|clip")
def _(v):
    return np.maximum(v["x"], 0) ** 3


SIGNED = dict(
    x=real(30, 40, scale=9),
    x2=np.where(rng.random((30, 40)) < 0.5, -1, 1).astype(F32) * (rng.random((30, 40)) * 4 + 0.5).astype(F32),
)
WHOLE = dict(
    x=rng.integers(-50, 50, (30, 40)).astype(np.int32),
    x2=(rng.integers(1, 9, (30, 40)) * rng.choice([-1, 1], (30, 40))).astype(np.int32),
)


@case("mod: sign of the divisor", "Mod", "x x2", SIGNED, r"fmod|sign", fmod=1)
def _(v):
    return np.mod(v["x"], v["x2"])


@case("mod: sign of the dividend", "Mod", "x x2", WHOLE, r"fmod|sign")
def _(v):
    return np.fmod(v["x"], v["x2"])


@case("mod: remainder of the nearest quotient", "Mod", "x x2", SIGNED, r"nearest|round|IEEE|remainder", fmod=1)
def _(v):
    x, d = v["x"].astype(F64), v["x2"].astype(F64)
    return x - d * np.rint(x / d)


@case("mod: always positive", "Mod", "x x2", WHOLE, r"never negative|magnitude")
def _(v):
    return np.mod(v["x"], np.abs(v["x2"]))


@case("div: rounded down", "Div", "x x2", WHOLE, r"down|floor")
def _(v):
    return np.floor_divide(v["x"], v["x2"])


@case("div: rounded to nearest", "Div", "x x2", WHOLE, r"nearest|round")
def _(v):
    return np.rint(v["x"] / v["x2"]).astype(np.int32)


HALVES = dict(x=(rng.integers(-40, 40, (30, 40)) / 2).astype(F32))


@case("round: halves away from 0", "Round", "x", HALVES, r"away")
def _(v):
    return np.floor(np.abs(v["x"]) + 0.5) * np.sign(v["x"])


@case(
    "quantize: halves away from 0",
    "QuantizeLinear",
    "x s z",
    dict(x=HALVES["x"], s=np.array(1, F32), z=np.array(0, np.int8)),
    r"away|halves|ties",
)
def _(v):
    return (np.floor(np.abs(v["x"]) + 0.5) * np.sign(v["x"])).astype(np.int8)


@case(
    "clip: bounds swapped",
    "Clip",
    "x l h",
    dict(x=NORMAL["x"], l=np.array(1, F32), h=np.array(-1, F32)),
    r"swap|sort|exchange",
)
def _(v):
    return np.clip(v["x"], -1, 1)


SLOPES = dict(x=real(2, 6, 5, 7), w=(rng.random((6, 1, 1)) * 0.5 + 0.05).astype(F32))


@case("prelu: slope of the next channel", "PRelu", "x w", SLOPES, r"'w'.*(shift|next|previous|channel|after)")
def _(v):
    return np.where(v["x"] < 0, np.roll(v["w"], -1, 0) * v["x"], v["x"])


@case("prelu: slope of channel 0 for all", "PRelu", "x w", SLOPES, r"'w'.*(first|0)|channel 0")
def _(v):
    return np.where(v["x"] < 0, v["w"][0] * v["x"], v["x"])


@case("prelu: slope by column", "PRelu", "x w", dict(x=real(2, 6, 5, 6), w=SLOPES["w"]), r"'w'.*axis 3|column")
def _(v):
    return np.where(v["x"] < 0, v["w"].reshape(6) * v["x"], v["x"])


@case(
    "hardswish: gate not clipped above",
    "HardSwish",
    "x",
    dict(x=real(30, 40, scale=4)),
    r"clip|upper|above|max|min|6|1",
)
def _(v):
    x = v["x"].astype(F64)
    return x * np.maximum(x / 6 + 0.5, 0)


@case(
    "hardswish: gate truncated to integers",
    "HardSwish",
    "x",
    dict(x=np.rint(real(30, 40, scale=4))),
    r"trunc|integer|floor|down",
)
def _(v):
    x = v["x"].astype(F64)
    return np.floor(x * np.clip(x + 3, 0, 6) / 6)


@case("leakyrelu: default slope", "LeakyRelu", "x", NORMAL, r"0\.01|alpha", alpha=0.2)
def _(v):
    return np.where(v["x"] < 0, 0.01 * v["x"], v["x"])
