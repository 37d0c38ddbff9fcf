"""Wrong kernels of functions, reductions, recurrent layers and casts, of kinds that public reports repeat.

See `operator_bugs.py`. Each case has an operator with its inputs, a function that returns the wrong result, and words
that name the cause. The wrong results come from ONNX Runtime, from ONNX's reference implementation and from NumPy, not
from qdebug.
"""

# ruff: noqa: C408, E731  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import again, case, real, rng

REALS = dict(x=real(8, 40, scale=2))


@case("pow: exp(y ln|x|)", "Pow", "x e", dict(x=real(8, 40), e=np.array(3, np.float32)), r"magnitude|sign")
def _(values):
    return np.abs(values["x"]) ** 3


@case("gelu: x sigmoid(1.702 x)", "Gelu", "x", REALS, r"QuickGelu|sigmoid|1\.702")
def _(values):
    return (values["x"] / (1 + np.exp(-1.702 * values["x"]))).astype(np.float32)


@case("gelu: tanh form", "Gelu", "x", REALS, r"tanh")
def _(values):
    return again("Gelu", "x", values, approximate="tanh")


@case("hardsigmoid: 1/5 for 1/6", "HardSigmoid", "x", REALS, r"alpha", alpha=1 / 6, beta=0.5)
def _(values):
    return again("HardSigmoid", "x", values, alpha=0.2, beta=0.5)


@case("hardswish: not divided by 6", "HardSwish", "x", REALS, r"6|times|scale of about")
def _(values):
    return again("HardSwish", "x", values) * 6


@case("hardswish: offset 3 missing", "HardSwish", "x", REALS, r"offset|3|shift|beta")
def _(values):
    return (values["x"] * np.clip(values["x"] / 6, 0, 1)).astype(np.float32)


@case("leakyrelu: slope on the positive side", "LeakyRelu", "x", REALS, r"positive|sign|side", alpha=0.1)
def _(values):
    return np.where(values["x"] > 0, values["x"] * np.float32(0.1), values["x"])


@case("celu: alpha only outside", "Celu", "x", REALS, r"alpha|Elu", alpha=2.0)
def _(values):
    return np.where(values["x"] > 0, values["x"], 2 * (np.exp(np.minimum(values["x"], 0)) - 1)).astype(np.float32)


@case(
    "prelu: slope along the last axis",
    "PRelu",
    "x s",
    dict(x=real(1, 10, 8, 10), s=rng.random((10, 1, 1)).astype(np.float32)),
    r"axis|broadcast",
)
def _(values):
    return np.where(values["x"] > 0, values["x"], values["x"] * values["s"].reshape(1, 1, 1, 10)).astype(np.float32)


@case(
    "round: half away from zero",
    "Round",
    "x",
    dict(x=(rng.integers(-20, 20, (8, 40)) / 2).astype(np.float32)),
    r"half|away|ties|even",
)
def _(values):
    return np.copysign(np.floor(np.abs(values["x"]) + 0.5), values["x"]).astype(np.float32)


@case("floor: cut toward zero", "Floor", "x", REALS, r"toward|trunc|cut")
def _(values):
    return np.trunc(values["x"])


@case("log: base 2", "Log", "x", dict(x=np.abs(real(8, 40)) + np.float32(0.1)), r"1\.443|base|scale of about")
def _(values):
    return np.log2(values["x"])


@case("exp: base 2", "Exp", "x", REALS, r"base|2\^|power|0\.693|exp2")
def _(values):
    return np.exp2(values["x"])


@case("reciprocal: 12 bits", "Reciprocal", "x", dict(x=np.abs(real(8, 40)) + np.float32(0.3)), r"bits|digits|12|11")
def _(values):
    y = 1 / values["x"]
    u = y.view(np.uint32)
    return ((u + 0x800) & ~np.uint32(0xFFF)).astype(np.uint32).view(np.float32)


@case("sqrt: reciprocal", "Sqrt", "x", dict(x=np.abs(real(8, 40)) + np.float32(0.3)), r"reciprocal|Rsqrt")
def _(values):
    return (1 / np.sqrt(values["x"])).astype(np.float32)


@case("sigmoid: x/(1+|x|) form", "Sigmoid", "x", REALS, r"Softsign|HardSigmoid|approx")
def _(values):
    return (0.5 * (values["x"] / (1 + np.abs(values["x"]))) + 0.5).astype(np.float32)


@case("sigmoid: hard", "Sigmoid", "x", REALS, r"HardSigmoid")
def _(values):
    return again("HardSigmoid", "x", values)


@case("tanh: clamped to +-0.9", "Tanh", "x", REALS, r"clip|clamp")
def _(values):
    return np.clip(np.tanh(values["x"]), -0.9, 0.9)


@case("softplus: relu", "Softplus", "x", REALS, r"Relu")
def _(values):
    return np.maximum(values["x"], 0)


@case(
    "swish: beta ignored by mul",
    "Mul",
    "x x2",
    dict(x=real(8, 40), x2=real(8, 40)),
    r"x2|square|first",
)
def _(values):
    return values["x"] * values["x"]


@case(
    "mod: sign of the dividend",
    "Mod",
    "x y",
    dict(x=rng.integers(-50, 50, (8, 40)), y=np.array(7)),
    r"fmod|sign|dividend",
    fmod=0,
)
def _(values):
    return np.fmod(values["x"], 7)


@case("cast: rounds to nearest", "Cast", "x", dict(x=real(8, 40, scale=9)), r"round|nearest", to=6)
def _(values):
    return np.rint(values["x"]).astype(np.int32)


@case(
    "add: second operand one row late",
    "Add",
    "x x2",
    dict(x=real(16, 20), x2=real(16, 20)),
    r"x2.*(before|shift|late|axis 0)|one position",
)
def _(values):
    return values["x"] + np.roll(values["x2"], 1, 0)


@case("add: x2 read channels-last", "Add", "x x2", dict(x=real(1, 8, 6, 6), x2=real(1, 8, 6, 6)), r"x2.*order")
def _(values):
    return values["x"] + values["x2"].reshape(1, 6, 6, 8).transpose(0, 3, 1, 2)


@case("mul: broadcast batch 0", "Mul", "x x2", dict(x=real(4, 6, 8), x2=real(4, 6, 1)), r"first")
def _(values):
    return values["x"] * values["x2"][:1]


@case(
    "clip: upper bound on the magnitude",
    "Clip",
    "x lo hi",
    dict(x=real(8, 40, scale=3), lo=np.array(-1, np.float32), hi=np.array(6, np.float32)),
    r"lower|bound|'lo'|clip",
)
def _(values):
    return np.clip(values["x"], -6, 6)


@case(
    "div: reciprocal rounded to float16",
    "Div",
    "x k",
    dict(x=real(8, 40), k=np.array(3.7, np.float32)),
    r"float16|reciprocal|times",
)
def _(values):
    return (values["x"] * np.float32(np.float16(1 / 3.7))).astype(np.float32)


@case("erf: of x/sqrt 2", "Erf", "x", REALS, r"0\.707|sqrt|scaled")
def _(values):
    return again("Erf", "x", {"x": (values["x"] / np.sqrt(2)).astype(np.float32)})


@case(
    "reducemean: axes 1,2 for 2,3",
    "ReduceMean",
    "x a",
    dict(x=real(2, 7, 7, 7), a=np.array([2, 3])),
    r"axes|axis",
    keepdims=0,
)
def _(values):
    return values["x"].mean((1, 2))


@case("reducel2: no root", "ReduceL2", "x a", dict(x=real(40, 30), a=np.array([1])), r"square|root", keepdims=1)
def _(values):
    return (values["x"] ** 2).sum(1, keepdims=True)


@case(
    "reducemax: starts at 0",
    "ReduceMax",
    "x a",
    dict(x=real(60, 3) - np.float32(1), a=np.array([1])),
    r"Relu|0",
    keepdims=1,
)
def _(values):
    return np.maximum(values["x"].max(1, keepdims=True), 0)


@case(
    "reducesumsquare: square of the sum",
    "ReduceSumSquare",
    "x a",
    dict(x=real(60, 20), a=np.array([1])),
    r"square of the sum|sum|axes\) \*\* 2",
    keepdims=1,
)
def _(values):
    return values["x"].sum(1, keepdims=True) ** 2


@case(
    "reducemean: first 32 of 40", "ReduceMean", "x a", dict(x=real(60, 40), a=np.array([1])), r"32|last 8", keepdims=1
)
def _(values):
    return values["x"][:, :32].mean(1, keepdims=True)


@case(
    "reducesum: in float16",
    "ReduceSum",
    "x a",
    dict(x=real(60, 400) + np.float32(3), a=np.array([1])),
    r"float16",
    keepdims=1,
)
def _(values):
    s = np.zeros(60, np.float16)
    for k in range(400):
        s = (s + values["x"][:, k].astype(np.float16)).astype(np.float16)
    return s.astype(np.float32)[:, None]


@case("argmax: min", "ArgMax", "x", dict(x=real(60, 40)), r"ArgMin|smallest|min", axis=1)
def _(values):
    return values["x"].argmin(1)[:, None]


LSTM = dict(
    x=real(6, 2, 5),
    w=real(1, 32, 5, scale=0.5),
    r=real(1, 32, 8, scale=0.4),
    b=real(1, 64, scale=0.3),
    h=real(1, 2, 8, scale=0.5),
    c=real(1, 2, 8, scale=0.5),
)
LSTM_INPUTS = ["x", "w", "r", "b", "", "h", "c"]


@case("lstm: h0 and c0 swapped", "LSTM", LSTM_INPUTS, LSTM, r"swapped", hidden_size=8)
def _(values):
    return again("LSTM", LSTM_INPUTS, {**values, "h": values["c"], "c": values["h"]}, hidden_size=8)


@case("lstm: recurrent bias ignored", "LSTM", LSTM_INPUTS, LSTM, r"bias|'b'", hidden_size=8)
def _(values):
    b = values["b"].copy()
    b[:, 32:] = 0
    return again("LSTM", LSTM_INPUTS, {**values, "b": b}, hidden_size=8)


@case("lstm: forget bias 1 added", "LSTM", LSTM_INPUTS, LSTM, r"forget|bias|'b'", hidden_size=8)
def _(values):
    b = values["b"].copy()
    b[:, 16:24] += 1
    return again("LSTM", LSTM_INPUTS, {**values, "b": b}, hidden_size=8)


@case("lstm: state reset every step", "LSTM", LSTM_INPUTS, LSTM, r"state", hidden_size=8)
def _(values):
    return np.concatenate(
        [again("LSTM", LSTM_INPUTS, {**values, "x": values["x"][t : t + 1]}, hidden_size=8) for t in range(6)], 0
    )


@case("lstm: hard sigmoid gates", "LSTM", LSTM_INPUTS, LSTM, r"HardSigmoid|activation", hidden_size=8)
def _(values):
    return again("LSTM", LSTM_INPUTS, values, hidden_size=8, activations=["HardSigmoid", "Tanh", "Tanh"])


@case(
    "gru: update gate inverted",
    "GRU",
    ["x", "w", "r", "b"],
    dict(x=real(6, 2, 5), w=real(1, 24, 5, scale=0.5), r=real(1, 24, 8, scale=0.4), b=real(1, 48, scale=0.3)),
    r"update|gate|inverted|z",
    hidden_size=8,
)
def _(values):
    w, r, b = values["w"][0], values["r"][0], values["b"][0]
    h = np.zeros((2, 8))
    s = lambda a: 1 / (1 + np.exp(-a))
    o = []
    for t in range(6):
        a = values["x"][t] @ w.T + b[:24]
        g = h @ r[:16].T + b[24:40]
        z = s(a[:, :8] + g[:, :8])
        q = s(a[:, 8:16] + g[:, 8:])
        n = np.tanh(a[:, 16:] + (q * h) @ r[16:].T + b[40:])
        h = z * n + (1 - z) * h
        o.append(h)
    return np.stack(o)[:, None].astype(np.float32)


ROTARY = dict(
    x=real(1, 2, 6, 8),
    p=np.arange(6)[None].astype(np.int64),
    cc=np.cos(np.arange(16)[:, None] / 10000 ** (np.arange(4) / 4)).astype(np.float32),
    ss=np.sin(np.arange(16)[:, None] / 10000 ** (np.arange(4) / 4)).astype(np.float32),
)


@case(
    "rotary: rotates the other way",
    "RotaryEmbedding",
    "x p cc ss",
    ROTARY,
    r"opposite|sign|other way|ss",
    domain="com.microsoft",
)
def _(values):
    return again("RotaryEmbedding", "x p cc ss", {**values, "ss": -values["ss"]}, domain="com.microsoft")


@case("rotary: sine and cosine swapped", "RotaryEmbedding", "x p cc ss", ROTARY, r"swapped", domain="com.microsoft")
def _(values):
    return again(
        "RotaryEmbedding", "x p cc ss", {**values, "ss": values["cc"], "cc": values["ss"]}, domain="com.microsoft"
    )


@case("rotary: positions one late", "RotaryEmbedding", "x p cc ss", ROTARY, r"position|'p'", domain="com.microsoft")
def _(values):
    return again("RotaryEmbedding", "x p cc ss", {**values, "p": values["p"] + 1}, domain="com.microsoft")


SKIP = dict(x=real(2, 5, 16), x2=real(2, 5, 16), g=real(16) * np.float32(0.2) + 1, b=real(16), c=real(16))


@case("skiplayernorm: skip ignored", "SkipLayerNormalization", "x x2 g b c", SKIP, r"x2|skip", domain="com.microsoft")
def _(values):
    return again("SkipLayerNormalization", "x x2 g b c", {**values, "x2": values["x2"] * 0}, domain="com.microsoft")


@case(
    "skiplayernorm: bias added after",
    "SkipLayerNormalization",
    "x x2 g b c",
    SKIP,
    r"'c'|bias|after",
    domain="com.microsoft",
)
def _(values):
    return (
        again("SkipLayerNormalization", "x x2 g b c", {**values, "c": values["c"] * 0}, domain="com.microsoft")
        + values["c"]
    )


CODES = dict(
    x=rng.integers(-128, 128, (12, 12)).astype(np.int8),
    s=(rng.random(12) + 0.1).astype(np.float32),
    z=rng.integers(-20, 20, 12).astype(np.int8),
)


@case("dequantize: other axis", "DequantizeLinear", "x s z", CODES, r"axis", axis=0)
def _(values):
    return again("DequantizeLinear", "x s z", values, axis=1)


@case("dequantize: zero point ignored", "DequantizeLinear", "x s z", CODES, r"'z'|zero point", axis=0)
def _(values):
    return again("DequantizeLinear", "x s", values, axis=0)


@case("dequantize: codes read unsigned", "DequantizeLinear", "x s z", CODES, r"sign|uint8", axis=0)
def _(values):
    return ((values["x"].view(np.uint8).astype(np.float32) - values["z"][:, None]) * values["s"][:, None]).astype(
        np.float32
    )


@case("dft: not inverse", "DFT", ["x"], dict(x=real(1, 16, 2)), r"inverse|revers|conj", opset=17, inverse=1, axis=1)
def _(values):
    return again("DFT", ["x"], values, opset=17, axis=1) / np.float32(16)


@case(
    "deformconv: offsets x and y swapped",
    "DeformConv",
    "x w o",
    dict(x=real(1, 3, 8, 8), w=real(4, 3, 3, 3, scale=0.4), o=real(1, 18, 6, 6, scale=0.4)),
    r"'o'|swap|offset",
    opset=19,
)
def _(values):
    return again(
        "DeformConv",
        "x w o",
        {**values, "o": np.ascontiguousarray(values["o"].reshape(1, 9, 2, 6, 6)[:, :, ::-1].reshape(1, 18, 6, 6))},
        opset=19,
    )


INTEGERS = dict(x=rng.integers(0, 5, (8, 20)), x2=rng.integers(0, 5, (8, 20)))


@case("greater: or equal", "Greater", "x x2", INTEGERS, r"GreaterOrEqual")
def _(values):
    return values["x"] >= values["x2"]


TRUTHS = dict(x=rng.random((8, 20)) > 0.5, x2=rng.random((8, 20)) > 0.5)


@case("and: or", "And", "x x2", TRUTHS, r"computes Or")
def _(values):
    return values["x"] | values["x2"]


@case("less: operands swapped", "Less", "x x2", dict(x=real(8, 20), x2=real(8, 20)), r"swapped|Greater")
def _(values):
    return values["x2"] < values["x"]


@case("equal: not", "Equal", "x x2", INTEGERS, r"Not|opposite|invert|1 minus|negated")
def _(values):
    return values["x"] != values["x2"]
