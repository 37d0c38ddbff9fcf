"""Kernels of single operators that compute wrongly, of kinds that public reports repeat; see `operator_bugs.py`.

Each case has an operator with its inputs, a function that returns the wrong result, and words that name the cause. The
wrong results come from ONNX Runtime, from ONNX's reference implementation and from NumPy, not from qdebug.
"""

# ruff: noqa: C408, E731  inputs read best as names with values
from __future__ import annotations

import ml_dtypes
import numpy as np
from operator_bugs import again, case, real, rng

IMAGE = dict(x=real(1, 6, 12, 12), w=real(8, 6, 3, 3, scale=0.3), b=real(8))


@case("conv: dilation ignored", "Conv", "x w b", IMAGE, r"dilation", pads=[2, 2, 2, 2], dilations=[2, 2])
def _(values):
    return again("Conv", "x w b", values, pads=[1, 1, 1, 1])


GROUPED = dict(x=real(1, 8, 10, 10), w=real(8, 4, 3, 3, scale=0.3), b=real(8))


@case("conv: all groups read the first group", "Conv", "x w b", GROUPED, r"group|first", group=2, pads=[1] * 4)
def _(values):
    return again("Conv", "x w b", {**values, "x": np.concatenate([values["x"][:, :4]] * 2, 1)}, group=2, pads=[1] * 4)


DEPTHWISE = dict(x=real(1, 6, 10, 10), w=real(12, 1, 3, 3, scale=0.4))


@case(
    "conv: depthwise multiplier, channels in turn",
    "Conv",
    "x w",
    DEPTHWISE,
    r"group|interleav|in turn",
    group=6,
    pads=[1] * 4,
)
def _(values):
    x = np.concatenate([values["x"], values["x"]], 1)
    return again("Conv", "x w", {**values, "x": x}, group=12, pads=[1] * 4)


@case(
    "conv: filters stored HWIO",
    "Conv",
    "x w",
    dict(x=real(1, 8, 10, 10), w=real(8, 8, 3, 3, scale=0.3)),
    r"order",
    pads=[1] * 4,
)
def _(values):
    w = values["w"].reshape(3, 3, 8, 8).transpose(3, 2, 0, 1)
    return again("Conv", "x w", {**values, "w": np.ascontiguousarray(w)}, pads=[1] * 4)


@case(
    "conv: stride ignored in a 1x1 fast path",
    "Conv",
    "x w",
    dict(x=real(1, 8, 12, 12), w=real(10, 8, 1, 1, scale=0.3)),
    r"stride",
    strides=[2, 2],
)
def _(values):
    return again("Conv", "x w", values)[:, :, :6, :6].copy()


@case(
    "conv3d: depth padding shifted to the end",
    "Conv",
    "x w",
    dict(x=real(1, 3, 6, 7, 7), w=real(4, 3, 3, 3, 3, scale=0.3)),
    r"pad",
    pads=[1] * 6,
)
def _(values):
    return again("Conv", "x w", values, pads=[0, 1, 1, 2, 1, 1])


@case("conv: bias index modulo 4", "Conv", "x w b", IMAGE, r"bias|'b'", pads=[1] * 4)
def _(values):
    return again("Conv", "x w b", {**values, "b": np.resize(values["b"][:4], 8)}, pads=[1] * 4)


@case("conv: input clamped at 0", "Conv", "x w b", IMAGE, r"Relu|negative|clamp|clip", pads=[1] * 4)
def _(values):
    return again("Conv", "x w b", {**values, "x": np.maximum(values["x"], 0)}, pads=[1] * 4)


LONG_SUMS = dict(x=real(1, 70, 8, 8), w=real(8, 70, 1, 1, scale=0.2))


@case("conv: input channels after 64 left out", "Conv", "x w", LONG_SUMS, r"64")
def _(values):
    return again("Conv", "x w", {"x": values["x"][:, :64].copy(), "w": values["w"][:, :64].copy()})


@case("conv: sums in float16", "Conv", "x w", LONG_SUMS, r"float16")
def _(values):
    s = np.zeros((1, 8, 8, 8), np.float16)
    for k in range(70):
        s = (s + (values["x"][:, k : k + 1] * values["w"][:, k].reshape(1, 8, 1, 1)).astype(np.float16)).astype(
            np.float16
        )
    return s.astype(np.float32)


TRANSPOSED = dict(x=real(1, 4, 6, 6), w=real(4, 4, 3, 3, scale=0.4))


@case(
    "convtranspose: output padding at the start",
    "ConvTranspose",
    "x w",
    TRANSPOSED,
    r"pad|shift",
    strides=[2, 2],
    pads=[1] * 4,
    output_padding=[1, 1],
)
def _(values):
    return again("ConvTranspose", "x w", values, strides=[2, 2], pads=[0, 0, 1, 1], output_padding=[0, 0])[
        :, :, :12, :12
    ].copy()


@case("convtranspose: filters flipped", "ConvTranspose", "x w", TRANSPOSED, r"flip|mirror", strides=[2, 2])
def _(values):
    return again("ConvTranspose", "x w", {**values, "w": values["w"][:, :, ::-1, ::-1].copy()}, strides=[2, 2])


@case(
    "convtranspose: in and out channels swapped",
    "ConvTranspose",
    "x w",
    TRANSPOSED,
    r"axes 0 and 1|swapped|order",
    strides=[2, 2],
)
def _(values):
    return again("ConvTranspose", "x w", {**values, "w": values["w"].swapaxes(0, 1).copy()}, strides=[2, 2])


@case(
    "conv: rows of 1d taken in blocks of 8, tail zero",
    "Conv",
    "x w",
    dict(x=real(1, 4, 37), w=real(6, 4, 3, scale=0.4)),
    r"35|index|end|tail|32|last 5",
    pads=[1, 1],
)
def _(values):
    y = again("Conv", "x w", values, pads=[1, 1])
    y[:, :, 32:] = 0
    return y


@case(
    "conv: batch 1 computed from batch 0",
    "Conv",
    "x w",
    dict(x=real(3, 4, 8, 8), w=real(6, 4, 3, 3, scale=0.4)),
    r"first|axis 0|sample|batch",
    pads=[1] * 4,
)
def _(values):
    return again("Conv", "x w", {**values, "x": np.repeat(values["x"][:1], 3, 0)}, pads=[1] * 4)


@case("conv: second operand rounded to bfloat16", "Conv", "x w", LONG_SUMS, r"bfloat16")
def _(values):
    return again("Conv", "x w", {**values, "w": values["w"].astype(ml_dtypes.bfloat16).astype(np.float32)})


@case("conv: weights quantized to int8 per channel", "Conv", "x w", LONG_SUMS, r"8 bits|quantiz|int8|grid|codes")
def _(values):
    s = np.abs(values["w"]).max((1, 2, 3), keepdims=True) / 127
    return again("Conv", "x w", {**values, "w": (np.rint(values["w"] / s) * s).astype(np.float32)})


GEMM = dict(x=real(9, 20), w=real(20, 11, scale=0.4), c=real(11))


@case("gemm: alpha applied to C too", "Gemm", "x w c", GEMM, r"'c'|alpha|bias", alpha=0.5)
def _(values):
    return again("Gemm", "x w c", {**values, "c": values["c"] * np.float32(0.5)}, alpha=0.5)


@case(
    "gemm: C broadcast along rows",
    "Gemm",
    "x w c",
    dict(x=real(12, 20), w=real(20, 12, scale=0.4), c=real(12)),
    r"broadcast|axis",
)
def _(values):
    return (again("Gemm", "x w", values) + values["c"][:, None]).astype(np.float32)


BATCHES = dict(x=real(4, 7, 16), w=real(4, 16, 9, scale=0.4))


@case("matmul: first matrix of B for all", "MatMul", "x w", BATCHES, r"first")
def _(values):
    return np.matmul(values["x"], values["w"][:1])


@case("matmul: batch i reads A[i//2]", "MatMul", "x w", BATCHES, r"batch|axis 0|repeat|interleav")
def _(values):
    return np.matmul(values["x"][[0, 0, 1, 1]], values["w"])


@case(
    "matmul: B column-major",
    "MatMul",
    "x w",
    dict(x=real(9, 16), w=real(16, 16, scale=0.4)),
    r"column|order|swapped|transposed",
)
def _(values):
    return values["x"] @ np.ascontiguousarray(values["w"].T)


@case("matmul: tail of K dropped", "MatMul", "x w", dict(x=real(9, 131), w=real(131, 12, scale=0.2)), r"128|last 3")
def _(values):
    return values["x"][:, :128] @ values["w"][:128]


@case(
    "matmul: second half of K counted twice",
    "MatMul",
    "x w",
    dict(x=real(9, 64), w=real(64, 12, scale=0.2)),
    r"twice|2 times",
)
def _(values):
    return values["x"] @ values["w"] + values["x"][:, 32:] @ values["w"][32:]


@case("matmul: last rows repeat row 63", "MatMul", "x w", dict(x=real(70, 16), w=real(16, 12, scale=0.4)), r"row|64|63")
def _(values):
    y = values["x"] @ values["w"]
    y[64:] = y[63]
    return y


@case(
    "matmul: 4x4 blocks transposed",
    "MatMul",
    "x w",
    dict(x=real(16, 16), w=real(16, 16, scale=0.4)),
    r"block|transpos|swapped",
)
def _(values):
    y = values["x"] @ values["w"]
    return np.ascontiguousarray(y.reshape(4, 4, 4, 4).transpose(0, 3, 2, 1).reshape(16, 16))


@case(
    "matmul: 2:4 sparsity in B",
    "MatMul",
    "x w",
    dict(x=real(40, 32), w=real(32, 24, scale=0.4)),
    r"sparse|2 of (each|every) 4|smallest",
)
def _(values):
    w = values["w"].reshape(8, 4, 24).copy()
    k = np.argsort(np.abs(w), 1)[:, :2]
    np.put_along_axis(w, k, 0, 1)
    return values["x"] @ w.reshape(32, 24)


@case(
    "matmul: operands in TF32", "MatMul", "x w", dict(x=real(20, 64), w=real(64, 24, scale=0.4)), r"TF32|tf32|10 bits"
)
def _(values):
    def r(a):
        u = a.view(np.uint32).astype(np.uint64)
        u = (u + 0xFFF + ((u >> 13) & 1)) & ~np.uint64(0x1FFF)
        return u.astype(np.uint32).view(np.float32)

    return r(values["x"]) @ r(values["w"])


@case(
    "matmul: dynamic int8 inside",
    "MatMul",
    "x w",
    dict(x=real(20, 64), w=real(64, 24, scale=0.4)),
    r"8 bits|quantiz|int8|grid|codes",
)
def _(values):
    s = np.abs(values["w"]).max() / 127
    t = np.abs(values["x"]).max() / 127
    return ((np.rint(values["x"] / t) @ np.rint(values["w"] / s)) * (s * t)).astype(np.float32)


@case(
    "matmul: B one column late",
    "MatMul",
    "x w",
    dict(x=real(20, 64), w=real(64, 24, scale=0.4)),
    r"before|shift|late|one column",
)
def _(values):
    return values["x"] @ np.roll(values["w"], 1, 1)


@case(
    "matmul: products beyond 65504 overflow",
    "MatMul",
    "x w",
    dict(x=real(20, 64, scale=300), w=real(64, 24, scale=300)),
    r"65504|overflow|float16|Inf",
)
def _(values):
    with np.errstate(all="ignore"):
        return (values["x"] @ values["w"]).astype(np.float16).astype(np.float32)


def q4():
    q = rng.integers(0, 16, (24, 4, 16)).astype(np.uint8)
    s = (rng.random((24, 4)) * 0.1 + 0.02).astype(np.float32)
    z = rng.integers(4, 12, (24, 4)).astype(np.uint8)
    return q, s, z


q, s, z = q4()


def packed(q):
    q = q.reshape(24, 4, 8, 2)
    return (q[..., 0] | (q[..., 1] << 4)).astype(np.uint8)


def zp(z):
    z = z.reshape(24, 2, 2)
    return (z[..., 0] | (z[..., 1] << 4)).astype(np.uint8).reshape(-1)


NBITS = dict(x=real(10, 64), b=packed(q), s=s.reshape(-1), z=zp(z))


def real4(q, s, z):
    return ((q.astype(np.float32) - z[..., None].astype(np.float32)) * s[..., None]).reshape(24, 64)


NBITS_ATTRS = dict(K=64, N=24, bits=4, block_size=16)


@case(
    "nbits: nibbles swapped",
    "MatMulNBits",
    "x b s z",
    NBITS,
    r"nibble|halves|pair|swapped|adjacent",
    domain="com.microsoft",
    **NBITS_ATTRS,
)
def _(values):
    return values["x"] @ real4(q.reshape(24, 4, 8, 2)[..., ::-1].reshape(24, 4, 16), s, z).T


@case(
    "nbits: zero point plus one", "MatMulNBits", "x b s z", NBITS, r"zero point", domain="com.microsoft", **NBITS_ATTRS
)
def _(values):
    return values["x"] @ real4(q, s, z + 1).T


@case(
    "nbits: zero point always 8", "MatMulNBits", "x b s z", NBITS, r"zero point", domain="com.microsoft", **NBITS_ATTRS
)
def _(values):
    return values["x"] @ real4(q, s, np.full_like(z, 8)).T


@case("nbits: scales transposed", "MatMulNBits", "x b s z", NBITS, r"'s'", domain="com.microsoft", **NBITS_ATTRS)
def _(values):
    return values["x"] @ real4(q, np.ascontiguousarray(s.reshape(4, 24).T), z).T


@case(
    "nbits: scales rounded to bfloat16",
    "MatMulNBits",
    "x b s z",
    NBITS,
    r"bfloat16",
    domain="com.microsoft",
    **NBITS_ATTRS,
)
def _(values):
    return values["x"] @ real4(q, s.astype(ml_dtypes.bfloat16).astype(np.float32), z).T


@case(
    "nbits: last block reads the scale before",
    "MatMulNBits",
    "x b s z",
    NBITS,
    r"scale|block",
    domain="com.microsoft",
    **NBITS_ATTRS,
)
def _(values):
    t = s.copy()
    t[:, 3] = t[:, 2]
    return values["x"] @ real4(q, t, z).T


LAYER = dict(x=real(6, 40) + np.float32(0.7), g=real(40) * np.float32(0.2) + 1, b=real(40))


def ln(x, g, b, ddof=0, eps=1e-5, mean=True, out=False):
    x = x.astype(np.float64)
    m = x.mean(-1, keepdims=True) if mean else 0
    var = ((x - m) ** 2).sum(-1, keepdims=True) / (x.shape[-1] - ddof)
    den = np.sqrt(var) + eps if out else np.sqrt(var + eps)
    return ((x - m) / den * g + b).astype(np.float32)


@case("layernorm: divided by n - 1", "LayerNormalization", "x g b", LAYER, r"variance|n ?- ?1|39|divid")
def _(values):
    return ln(values["x"], values["g"], values["b"], ddof=1)


@case("layernorm: mean not subtracted", "LayerNormalization", "x g b", LAYER, r"mean|RMS")
def _(values):
    return ln(values["x"], values["g"], values["b"], mean=False)


@case(
    "layernorm: epsilon outside the root",
    "LayerNormalization",
    "x g b",
    {**LAYER, "x": LAYER["x"] * np.float32(0.05)},
    r"epsilon",
    epsilon=1e-3,
)
def _(values):
    return ln(values["x"], values["g"], values["b"], eps=1e-3, out=True)


@case(
    "layernorm: variance as E[x^2]-E[x]^2 in float16",
    "LayerNormalization",
    "x g b",
    {**LAYER, "x": real(6, 40) + np.float32(30)},
    r"float16|cancel",
)
def _(values):
    x = values["x"].astype(np.float16)
    m = x.mean(-1, keepdims=True, dtype=np.float16)
    q = (x * x).mean(-1, keepdims=True, dtype=np.float16)
    var = np.maximum(q - m * m, 0)
    return ((x - m) / np.sqrt(var.astype(np.float32) + 1e-5) * values["g"] + values["b"]).astype(np.float32)


@case("layernorm: scale and bias swapped", "LayerNormalization", "x g b", LAYER, r"swapped")
def _(values):
    return ln(values["x"], values["b"], values["g"])


@case("layernorm: bias before scale", "LayerNormalization", "x g b", LAYER, r"bias|before|scaled|'b'")
def _(values):
    return ((ln(values["x"], 1, 0) + values["b"]) * values["g"]).astype(np.float32)


@case(
    "rmsnorm: mean subtracted", "RMSNormalization", "x g", dict(x=LAYER["x"], g=LAYER["g"]), r"mean|LayerNorm", opset=23
)
def _(values):
    return ln(values["x"], values["g"], 0)


@case(
    "rmsnorm: sum instead of mean",
    "RMSNormalization",
    "x g",
    dict(x=LAYER["x"], g=LAYER["g"]),
    r"sum|times|40|factor",
    opset=23,
)
def _(values):
    x = values["x"].astype(np.float64)
    return (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-5) * values["g"]).astype(np.float32)


BATCH_NORM = dict(
    x=real(2, 6, 8, 8),
    g=real(6) * np.float32(0.2) + 1,
    b=real(6),
    m=real(6, scale=0.3),
    r=(rng.random(6) + 0.5).astype(np.float32),
)


@case("batchnorm: statistics of the batch", "BatchNormalization", "x g b m r", BATCH_NORM, r"statistic|training|batch")
def _(values):
    x = values["x"]
    m = x.mean((0, 2, 3), keepdims=True)
    r = x.var((0, 2, 3), keepdims=True)
    c = lambda a: a.reshape(1, 6, 1, 1)
    return ((x - m) / np.sqrt(r + 1e-5) * c(values["g"]) + c(values["b"])).astype(np.float32)


@case(
    "batchnorm: mean and variance swapped",
    "BatchNormalization",
    "x g b m r",
    {**BATCH_NORM, "m": np.abs(BATCH_NORM["m"]) + np.float32(0.2)},
    r"swapped",
)
def _(values):
    return again("BatchNormalization", "x g b r m", values)


@case(
    "batchnorm: variance taken for the deviation",
    "BatchNormalization",
    "x g b m r",
    BATCH_NORM,
    r"variance|root|deviation|square",
)
def _(values):
    c = lambda a: a.reshape(1, 6, 1, 1)
    return ((values["x"] - c(values["m"])) / c(values["r"]) * c(values["g"]) + c(values["b"])).astype(np.float32)


@case(
    "groupnorm: groups ignored",
    "GroupNormalization",
    "x g b",
    dict(x=real(2, 8, 6, 6), g=real(8), b=real(8)),
    r"group|channel|axes 2, 3",
    num_groups=2,
)
def _(values):
    return again("GroupNormalization", "x g b", values, num_groups=8)


@case(
    "instancenorm: statistics over the batch",
    "InstanceNormalization",
    "x g b",
    dict(x=real(3, 5, 6, 6), g=real(5), b=real(5)),
    r"statistic|batch|axis 0|axes",
)
def _(values):
    x = values["x"].astype(np.float64)
    m = x.mean((0, 2, 3), keepdims=True)
    r = x.var((0, 2, 3), keepdims=True)
    c = lambda a: a.reshape(1, 5, 1, 1)
    return ((x - m) / np.sqrt(r + 1e-5) * c(values["g"]) + c(values["b"])).astype(np.float32)


@case(
    "instancenorm: n - 1",
    "InstanceNormalization",
    "x g b",
    dict(x=real(3, 5, 6, 6), g=real(5), b=real(5)),
    r"variance|n ?- ?1|35|divid",
)
def _(values):
    x = values["x"].astype(np.float64)
    m = x.mean((2, 3), keepdims=True)
    r = x.var((2, 3), keepdims=True, ddof=1)
    c = lambda a: a.reshape(1, 5, 1, 1)
    return ((x - m) / np.sqrt(r + 1e-5) * c(values["g"]) + c(values["b"])).astype(np.float32)


@case(
    "lrn: alpha not divided by size", "LRN", "x", dict(x=real(1, 8, 6, 6)), r"alpha|size", size=5, alpha=0.1, beta=0.75
)
def _(values):
    return again("LRN", "x", values, size=5, alpha=0.5, beta=0.75)


@case("lpnorm: p = 1", "LpNormalization", "x", dict(x=real(5, 30)), r"\bp\b", axis=-1, p=2)
def _(values):
    return again("LpNormalization", "x", values, axis=-1, p=1)


@case("softmax: base 2", "Softmax", "x", dict(x=real(6, 30, scale=2)), r"base|2\^|0\.69|power", axis=-1)
def _(values):
    x = values["x"] * np.float32(np.log(2))
    return again("Softmax", "x", {"x": x}, axis=-1)


@case("softmax: input scaled by 1/8", "Softmax", "x", dict(x=real(6, 30, scale=4)), r"0\.12|scaled|factor", axis=-1)
def _(values):
    return again("Softmax", "x", {"x": values["x"] * np.float32(0.125)}, axis=-1)


@case("logsoftmax: gives the softmax", "LogSoftmax", "x", dict(x=real(6, 30, scale=2)), r"Softmax|exponential", axis=-1)
def _(values):
    return again("Softmax", "x", values, axis=-1)


POOLED = dict(x=real(1, 5, 12, 12))


@case(
    "gap: divided by a padded size",
    "GlobalAveragePool",
    "x",
    dict(x=real(1, 30, 7, 7)),
    r"times|factor|divid|scale of about",
)
def _(values):
    return (values["x"].sum((2, 3), keepdims=True) / np.float32(56)).astype(np.float32)


@case("maxpool: dilation ignored", "MaxPool", "x", POOLED, r"dilation", kernel_shape=[3, 3], dilations=[2, 2])
def _(values):
    return again("MaxPool", "x", values, kernel_shape=[3, 3])[:, :, :8, :8].copy()


@case("lppool: root left out", "LpPool", "x", POOLED, r"root|square|power", kernel_shape=[3, 3], p=2, opset=18)
def _(values):
    return again("LpPool", "x", values, kernel_shape=[3, 3], p=2, opset=18) ** 2


@case("globalmaxpool: starts at 0", "GlobalMaxPool", "x", dict(x=real(1, 60, 3, 3) - np.float32(1.5)), r"Relu|0")
def _(values):
    return np.maximum(again("GlobalMaxPool", "x", values), 0)


@case("averagepool: stride 1 for 2 (crop)", "AveragePool", "x", POOLED, r"stride", kernel_shape=[2, 2], strides=[2, 2])
def _(values):
    return again("AveragePool", "x", values, kernel_shape=[2, 2])[:, :, :6, :6].copy()


@case("averagepool: sums in int8-like saturation 1.0", "AveragePool", "x", POOLED, r"clip|saturat", kernel_shape=[2, 2])
def _(values):
    return np.clip(again("AveragePool", "x", values, kernel_shape=[2, 2]), -0.5, 0.5)


@case(
    "maxpool: NaN window start at -1",
    "MaxPool",
    "x",
    dict(x=real(1, 8, 9, 9) - np.float32(2)),
    r"clip|-1|Relu",
    kernel_shape=[2, 2],
)
def _(values):
    return np.maximum(again("MaxPool", "x", values, kernel_shape=[2, 2]), -1)


@case(
    "averagepool: padding at the other end",
    "AveragePool",
    "x",
    POOLED,
    r"pad",
    kernel_shape=[3, 3],
    strides=[2, 2],
    pads=[0, 0, 1, 1],
)
def _(values):
    return again("AveragePool", "x", values, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0])


RESIZED = dict(x=real(1, 3, 8, 8), s=np.array([1, 1, 2, 2], np.float32))


@case(
    "resize: cubic coefficient -0.5",
    "Resize",
    ["x", "", "s"],
    RESIZED,
    r"cubic_coeff",
    mode="cubic",
    cubic_coeff_a=-0.75,
)
def _(values):
    return again("Resize", ["x", "", "s"], values, mode="cubic", cubic_coeff_a=-0.5)


@case(
    "resize: half_pixel for asymmetric",
    "Resize",
    ["x", "", "s"],
    RESIZED,
    r"half_pixel|coordinate",
    mode="linear",
    coordinate_transformation_mode="asymmetric",
)
def _(values):
    return again("Resize", ["x", "", "s"], values, mode="linear", coordinate_transformation_mode="half_pixel")


@case(
    "resize: antialias ignored",
    "Resize",
    ["x", "", "s"],
    dict(x=real(1, 3, 16, 16), s=np.array([1, 1, 0.5, 0.5], np.float32)),
    r"antialias",
    mode="linear",
    antialias=1,
)
def _(values):
    return again("Resize", ["x", "", "s"], values, mode="linear")


@case("resize: rows and columns swapped", "Resize", ["x", "", "s"], RESIZED, r"swap|axes|transpos", mode="linear")
def _(values):
    return np.ascontiguousarray(again("Resize", ["x", "", "s"], values, mode="linear").swapaxes(2, 3))


SAMPLED = dict(x=real(1, 3, 8, 8), g=(rng.random((1, 6, 6, 2)) * 2 - 1).astype(np.float32))


@case("gridsample: x and y swapped", "GridSample", "x g", SAMPLED, r"swap|revers|order|axis 3")
def _(values):
    return again("GridSample", "x g", {**values, "g": values["g"][..., ::-1].copy()})


@case("gridsample: corners aligned", "GridSample", "x g", SAMPLED, r"align_corners")
def _(values):
    return again("GridSample", "x g", values, align_corners=1)


@case(
    "gridsample: border for zeros",
    "GridSample",
    "x g",
    {**SAMPLED, "g": SAMPLED["g"] * np.float32(1.4)},
    r"border|padding_mode",
)
def _(values):
    return again("GridSample", "x g", values, padding_mode="border")


REGIONS = dict(
    x=real(1, 3, 16, 16), rois=np.array([[1, 1, 9, 9], [2, 3, 12, 11]], np.float32), bi=np.zeros(2, np.int64)
)


@case(
    "roialign: half pixel ignored",
    "RoiAlign",
    "x rois bi",
    REGIONS,
    r"coordinate|half_pixel",
    output_height=4,
    output_width=4,
    sampling_ratio=2,
)
def _(values):
    return again(
        "RoiAlign",
        "x rois bi",
        values,
        output_height=4,
        output_width=4,
        sampling_ratio=2,
        coordinate_transformation_mode="output_half_pixel",
    )


@case(
    "roialign: sampling ratio 1 for 2",
    "RoiAlign",
    "x rois bi",
    REGIONS,
    r"sampling_ratio",
    output_height=4,
    output_width=4,
    sampling_ratio=2,
)
def _(values):
    return again("RoiAlign", "x rois bi", values, output_height=4, output_width=4, sampling_ratio=1)


@case(
    "roialign: spatial scale ignored",
    "RoiAlign",
    "x rois bi",
    REGIONS,
    r"spatial_scale",
    output_height=4,
    output_width=4,
    sampling_ratio=2,
    spatial_scale=0.5,
)
def _(values):
    return again("RoiAlign", "x rois bi", values, output_height=4, output_width=4, sampling_ratio=2)


@case(
    "spacetodepth: channel order",
    "SpaceToDepth",
    "x",
    dict(x=real(1, 3, 8, 8)),
    r"order|axes|arrange|another|CRD",
    blocksize=2,
)
def _(values):
    y = again("SpaceToDepth", "x", values, blocksize=2)
    return np.ascontiguousarray(y.reshape(1, 4, 3, 4, 4).swapaxes(1, 2).reshape(1, 12, 4, 4))


@case("depthtospace: CRD for DCR", "DepthToSpace", "x", dict(x=real(1, 12, 4, 4)), r"CRD", blocksize=2, mode="DCR")
def _(values):
    return again("DepthToSpace", "x", values, blocksize=2, mode="CRD")


@case(
    "slice: one later",
    "Slice",
    "x st en ax",
    dict(x=real(5, 20), st=np.array([3]), en=np.array([13]), ax=np.array([1])),
    r"start|one|later|shift|1 place|4",
)
def _(values):
    return values["x"][:, 4:14].copy()


@case(
    "pad: edge for reflect", "Pad", "x p", dict(x=real(4, 12), p=np.array([0, 3, 0, 3])), r"edge|mode", mode="reflect"
)
def _(values):
    return np.pad(values["x"], ((0, 0), (3, 3)), mode="edge")


@case(
    "pad: symmetric for reflect",
    "Pad",
    "x p",
    dict(x=real(4, 12), p=np.array([0, 3, 0, 3])),
    r"mirror|symmetric|edge|outermost",
    mode="reflect",
)
def _(values):
    return np.pad(values["x"], ((0, 0), (3, 3)), mode="symmetric")


@case(
    "tile: repeats each element",
    "Tile",
    "x r",
    dict(x=real(3, 6), r=np.array([1, 4])),
    r"repeat|interleav|order|element",
)
def _(values):
    return np.repeat(values["x"], 4, 1)


@case("concat: order reversed", "Concat", "x x2", dict(x=real(4, 6), x2=real(4, 6)), r"reverse|swapped", axis=1)
def _(values):
    return np.concatenate([values["x2"], values["x"]], 1)


@case(
    "concat: along another axis in memory",
    "Concat",
    "x x2",
    dict(x=real(4, 6), x2=real(4, 6)),
    r"axis 0|order|memory",
    axis=1,
)
def _(values):
    return np.concatenate([values["x"], values["x2"]], 0).reshape(4, 12)


@case(
    "split: parts swapped",
    "Split",
    "x",
    dict(x=real(4, 24)),
    r"swap|other part|reverse|second|another part|shift",
    outs=2,
    axis=1,
    num_outputs=2,
)
def _(values):
    return [values["x"][:, 12:].copy(), values["x"][:, :12].copy()]


@case(
    "reversesequence: lengths ignored",
    "ReverseSequence",
    "x l",
    dict(x=real(10, 4, 3), l=np.array([10, 6, 3, 8])),
    r"'l'|length",
    time_axis=0,
    batch_axis=1,
)
def _(values):
    return values["x"][::-1].copy()


@case(
    "onehot: values swapped",
    "OneHot",
    "x dd vv",
    dict(x=rng.integers(0, 9, 30), dd=np.array(9), vv=np.array([0, 1], np.float32)),
    r"swap|vv|invert|1 minus|values",
)
def _(values):
    return 1 - again("OneHot", "x dd vv", values)


@case("trilu: diagonal one off", "Trilu", "x k", dict(x=real(12, 12), k=np.array(0)), r"'k'|\bk\b|diagonal", upper=0)
def _(values):
    return np.tril(values["x"], -1)


@case("trilu: upper for lower", "Trilu", "x", dict(x=real(12, 12)), r"upper", upper=0)
def _(values):
    return np.triu(values["x"])


@case(
    "gather: index one off", "Gather", "x i", dict(x=real(12, 8), i=rng.integers(0, 11, 9)), r"ind(ex|ices)|'i'", axis=0
)
def _(values):
    return values["x"][values["i"] + 1]


@case(
    "gather: indices narrowed to int8",
    "Gather",
    "x i",
    dict(x=real(300, 4), i=rng.integers(0, 300, 60)),
    r"8 bits|int8",
    axis=0,
)
def _(values):
    return values["x"][values["i"].astype(np.int8).astype(int)]


@case(
    "scatternd: adds instead of writing",
    "ScatterND",
    "x i u",
    dict(x=real(12, 6), i=np.array([[1], [4], [9]]), u=real(3, 6)),
    r"add|reduction",
)
def _(values):
    y = values["x"].copy()
    y[[1, 4, 9]] += values["u"]
    return y


@case(
    "transpose: not done (data unchanged)",
    "Transpose",
    "x",
    dict(x=real(1, 8, 6, 6)),
    r"not reordered|unchanged|order",
    perm=[0, 2, 3, 1],
)
def _(values):
    return values["x"].reshape(1, 6, 6, 8).copy()


@case(
    "cumsum: restarts at 8", "CumSum", "x a", dict(x=real(4, 20), a=np.array(1)), r"index 8|8 on|block|restart|every 8"
)
def _(values):
    y = np.cumsum(values["x"], 1)
    y[:, 8:16] -= y[:, 7:8]
    y[:, 16:] = np.cumsum(values["x"][:, 16:], 1)
    return y.astype(np.float32)


@case(
    "where: broadcast condition along rows",
    "Where",
    "c x x2",
    dict(c=rng.random(12) > 0.5, x=real(12, 12), x2=real(12, 12)),
    r"'c'|broadcast|condition",
)
def _(values):
    return np.where(values["c"][:, None], values["x"], values["x2"])


@case("reshape: column-major", "Reshape", "x s", dict(x=real(4, 6, 5), s=np.array([24, 5])), r"order|axes")
def _(values):
    return np.ascontiguousarray(values["x"].transpose(1, 0, 2).reshape(24, 5))


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


@case("exp: base 2", "Exp", "x", REALS, r"base|2\^|power|0\.693")
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
    r"square of the sum|sum",
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
