"""Wrong kernels of convolutions, products and normalizations, of kinds that public reports repeat.

See `operator_bugs.py`. Each case has an operator with its inputs, a function that returns the wrong result, and words
that name the cause. The wrong results come from ONNX Runtime, from ONNX's reference implementation and from NumPy, not
from qdebug.
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
