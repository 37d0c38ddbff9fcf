"""Wrong kernels of kinds that public reports describe, one operator each.

See `operator_bugs.py` for the format. The wrong results come from ONNX Runtime, from ONNX's reference implementation
and from NumPy, not from qdebug, and were written down without knowledge of what qdebug can name.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from operator_bugs import again, case, computed, real, rng

MS = "com.microsoft"
F32 = np.float32


def bf16(a):
    """Round to bfloat16."""
    return np.asarray(a, F32).astype(ml_dtypes.bfloat16).astype(F32)


def sigmoid(a):
    """Return the logistic function."""
    return 1 / (1 + np.exp(-np.asarray(a, np.float64)))


def soft(a, axis=-1):
    """Return the softmax."""
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


# --------------------------------------------------------------------------- convolutions

IMAGE = dict(x=real(1, 5, 13, 11), w=real(7, 5, 3, 3, scale=0.3), b=real(7))


# HWIO -> OIHW conversions that leave the two filter axes exchanged
@case(
    "conv: filter rows and columns exchanged",
    "Conv",
    "x w b",
    IMAGE,
    r"transpos|swap|exchang|axes 2|\border|rows and columns|height and width",
    pads=[1] * 4,
)
def _(values):
    return again("Conv", "x w b", {**values, "w": np.ascontiguousarray(values["w"].swapaxes(2, 3))}, pads=[1] * 4)


# https://github.com/microsoft/nnfusion/issues/192
@case(
    "conv: SAME_UPPER of a strided depthwise padded evenly",
    "Conv",
    "x w",
    dict(x=real(1, 8, 14, 18), w=real(8, 1, 5, 5, scale=0.3)),
    r"\bpad|auto_pad|SAME",
    group=8,
    strides=[2, 2],
    auto_pad="SAME_UPPER",
)
def _(values):
    return again("Conv", "x w", values, group=8, strides=[2, 2], pads=[2] * 4)


# bias given to the matrix product and to the epilogue too
@case("conv: bias added twice", "Conv", "x w b", IMAGE, r"bias|'b'|twice", pads=[1] * 4)
def _(values):
    return again("Conv", "x w b", {**values, "b": 2 * values["b"]}, pads=[1] * 4)


# grouped layers whose outputs stay in the order of a kernel that takes the groups together
@case(
    "conv: outputs of the groups interleaved",
    "Conv",
    "x w b",
    dict(x=real(1, 9, 9, 10), w=real(12, 3, 3, 3, scale=0.3), b=real(12)),
    r"interleav|shuffl|permut|\border|group|transpos",
    group=3,
    pads=[1] * 4,
)
def _(values):
    y = again("Conv", "x w b", values, group=3, pads=[1] * 4)
    return y.reshape(1, 3, 4, 9, 10).swapaxes(1, 2).reshape(1, 12, 9, 10)


# https://github.com/pytorch/pytorch/issues/188335
@case(
    "conv1d: taps beyond 256 left out",
    "Conv",
    "x w",
    dict(x=real(1, 4, 420), w=real(6, 4, 300, scale=0.1)),
    r"256|last 44|\btaps?\b",
)
def _(values):
    w = values["w"].copy()
    w[:, :, 256:] = 0
    return again("Conv", "x w", {**values, "w": w})


# causal padding that a converter makes symmetric
@case(
    "conv1d: causal padding made symmetric",
    "Conv",
    "x w b",
    dict(x=real(2, 6, 50), w=real(8, 6, 3, scale=0.4), b=real(8)),
    r"\bpad|causal|symmetric",
    dilations=[4],
    pads=[8, 0],
)
def _(values):
    return again("Conv", "x w b", values, dilations=[4], pads=[4, 4])


def winograd(x, w, bt, g, at, kind=np.float64):
    """Convolve with 3x3 filters in tiles, without padding."""
    tile, out = len(bt), len(at)
    bt, g, at = (np.asarray(m, np.float64) for m in (bt, g, at))
    u = np.einsum("ia,ocab,jb->ocij", g, w.astype(np.float64), g).astype(kind)
    rows, cols = x.shape[2] - 2, x.shape[3] - 2
    y = np.zeros((x.shape[0], w.shape[0], rows, cols), kind)
    for i in range(0, rows, out):
        for j in range(0, cols, out):
            d = x[:, :, i : i + tile, j : j + tile].astype(kind)
            v = np.einsum("ia,ncab->ncib", bt.astype(kind), d).astype(kind)
            v = np.einsum("ncib,jb->ncij", v, bt.astype(kind)).astype(kind)
            m = np.zeros((x.shape[0], w.shape[0], tile, tile), kind)
            for c in range(w.shape[1]):
                m = (m + u[None, :, c] * v[:, c : c + 1]).astype(kind)
            t = np.einsum("ia,noab->noib", at.astype(kind), m).astype(kind)
            y[:, :, i : i + out, j : j + out] = np.einsum("noib,jb->noij", t, at.astype(kind)).astype(kind)
    return y.astype(F32)


G2 = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
TILED = dict(x=real(1, 4, 14, 18), w=real(6, 4, 3, 3, scale=0.4))


# https://github.com/andravin/wincnn/issues/3
@case(
    "conv: Winograd input transform with a wrong sign",
    "Conv",
    "x w",
    TILED,
    r"[Ww]inograd|\btiles?\b|blocks? of 2|\b2x2\b|transform",
)
def _(values):
    bt = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]]
    return winograd(values["x"], values["w"], bt, G2, [[1, 1, 1, 0], [0, 1, -1, -1]])


BT4 = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
G4 = [
    [1 / 4, 0, 0],
    [-1 / 6] * 3,
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
AT4 = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


# F(4x4, 3x3), whose transforms amplify the rounding of half precision
@case(
    "conv: Winograd F(4x4) in float16",
    "Conv",
    "x w",
    dict(x=real(1, 16, 18, 14), w=real(6, 16, 3, 3, scale=0.3)),
    r"float16|half precision|[Ww]inograd|fp16",
)
def _(values):
    return winograd(values["x"], values["w"], BT4, G4, AT4, np.float16)


# im2col that checks the flat index, and not the column
@case(
    "conv: columns outside read the next row",
    "Conv",
    "x w",
    dict(x=real(1, 6, 16, 5), w=real(8, 6, 3, 3, scale=0.3)),
    r"\bpad|wrap|neighbou?r|(previous|next|adjacent) row|out of bounds|beyond the",
    pads=[1] * 4,
)
def _(values):
    x = values["x"]
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    p[:, :, 2:-1, 0] = x[:, :, :-1, -1]
    p[:, :, 1:-2, -1] = x[:, :, 1:, 0]
    return again("Conv", "x w", {**values, "x": p})


# clamped texture reads instead of zeros
@case(
    "conv: padding repeats the edge",
    "Conv",
    "x w",
    dict(x=real(1, 6, 7, 6), w=real(10, 6, 5, 5, scale=0.2)),
    r"\bpad|replicat|clamp|repeats? the",
    pads=[2] * 4,
)
def _(values):
    x = np.pad(values["x"], ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    return again("Conv", "x w", {**values, "x": x})


# https://github.com/Tencent/ncnn/issues/1494 (non-symmetric dilation)
@case(
    "conv: dilations of height and width exchanged",
    "Conv",
    "x w b",
    IMAGE,
    r"dilat",
    dilations=[1, 3],
    pads=[1, 3, 1, 3],
)
def _(values):
    return again("Conv", "x w b", values, dilations=[3, 1], pads=[3, 1, 3, 1])


# https://github.com/modular/modular/issues/6248
@case(
    "conv: input channels from 8 on wrap to 0",
    "Conv",
    "x w",
    dict(x=real(1, 13, 9, 8), w=real(6, 13, 3, 3, scale=0.3)),
    r"modul|wrap|from 8|after 8|first 8|8 on|repeat|channel 0",
    pads=[1] * 4,
)
def _(values):
    return again("Conv", "x w", {**values, "x": values["x"][:, np.arange(13) % 8]}, pads=[1] * 4)


# https://github.com/Tencent/ncnn/issues/1384 kinds: packs of channels; the remainder keeps the first filter pointer
@case(
    "conv: depthwise tail of a pack of 8 uses the first filters",
    "Conv",
    "x w",
    dict(x=real(1, 13, 8, 9), w=real(13, 1, 3, 3, scale=0.4)),
    r"filter|weight|'w'|lane|modul|wrap",
    group=13,
    pads=[1] * 4,
)
def _(values):
    return again("Conv", "x w", {**values, "w": values["w"][np.arange(13) % 8]}, group=13, pads=[1] * 4)


# an activation of another layer fused into the kernel
@case("conv: LeakyRelu fused", "Conv", "x w b", IMAGE, r"LeakyRelu|[Ll]eaky|slope|negative", pads=[1] * 4)
def _(values):
    y = again("Conv", "x w b", values, pads=[1] * 4)
    return np.where(y > 0, y, F32(0.1) * y)


# 3-D layers lowered to 2-D ones
@case(
    "conv3d: only the middle of the depth taps",
    "Conv",
    "x w b",
    dict(x=real(1, 3, 6, 7, 8), w=real(4, 3, 3, 3, 3, scale=0.3), b=real(4)),
    r"'w' along axis 2 count|depth|slice|cent(er|re)|middle|\btaps?\b|2-?D",
    pads=[1] * 6,
)
def _(values):
    w = values["w"].copy()
    w[:, :, [0, 2]] = 0
    return again("Conv", "x w b", {**values, "w": w}, pads=[1] * 6)


# bias lost when a transposed convolution is rewritten
@case(
    "convtranspose: bias left out",
    "ConvTranspose",
    "x w b",
    dict(x=real(1, 5, 8, 7), w=real(5, 6, 3, 3, scale=0.4), b=real(6)),
    r"bias|'b'",
    strides=[2, 2],
    pads=[1] * 4,
)
def _(values):
    return again("ConvTranspose", "x w", values, strides=[2, 2], pads=[1] * 4)


# https://github.com/apache/mxnet/issues/11203
@case(
    "convtranspose: dilation ignored beside a stride",
    "ConvTranspose",
    "x w",
    dict(x=real(1, 5, 8, 7), w=real(5, 6, 3, 3, scale=0.4)),
    r"dilat",
    strides=[2, 2],
    dilations=[2, 2],
    pads=[2] * 4,
)
def _(values):
    return again("ConvTranspose", "x w", values, strides=[2, 2], pads=[1] * 4)


# lowered to an upsampling and a convolution
@case(
    "convtranspose: input repeated where zeros belong",
    "ConvTranspose",
    "x w",
    dict(x=real(1, 5, 8, 7), w=real(5, 6, 4, 4, scale=0.3)),
    r"zeros?\b|repeat|nearest|insert|[Uu]psampl|stride",
    strides=[2, 2],
    pads=[1] * 4,
)
def _(values):
    x = values["x"].repeat(2, 2).repeat(2, 3)[:, :, :-1, :-1]
    w = np.ascontiguousarray(values["w"].swapaxes(0, 1)[:, :, ::-1, ::-1])
    return again("Conv", "x w", {"x": np.ascontiguousarray(x), "w": w}, pads=[2] * 4)


# col2im without an addition
@case(
    "convtranspose1d: overlaps overwritten",
    "ConvTranspose",
    "x w",
    dict(x=real(1, 6, 40), w=real(6, 8, 4, scale=0.4)),
    r"overlap|accumulat|overwrit|col2im|last (tap|write)|instead of (add|summ)|not (added|summed)|only (the )?last",
    strides=[2],
)
def _(values):
    each = np.einsum("nci,cok->noik", values["x"], values["w"])
    y = np.zeros((1, 8, 82), F32)
    for i in range(40):
        y[:, :, 2 * i : 2 * i + 4] = each[:, :, i]
    return y


# sub-pixel implementations that exchange the phases
@case(
    "convtranspose: phases of rows and columns exchanged",
    "ConvTranspose",
    "x w",
    dict(x=real(1, 5, 8, 7), w=real(5, 6, 4, 4, scale=0.3)),
    r"phase|sub-?pixel|swap|exchang|transpos|interleav|shuffl|\border\b|\b2x2\b|parity",
    strides=[2, 2],
    pads=[1] * 4,
)
def _(values):
    y = again("ConvTranspose", "x w", values, strides=[2, 2], pads=[1] * 4)
    return y.reshape(1, 6, 8, 2, 7, 2).transpose(0, 1, 2, 5, 4, 3).reshape(y.shape)


# --------------------------------------------------------------------------- pools and samplings

POOLED = dict(x=real(1, 12, 12, 10) + F32(0.5))


# https://github.com/VeriSilicon/TIM-VX/issues/423
@case(
    "averagepool: padding counted",
    "AveragePool",
    "x",
    dict(x=real(1, 30, 6, 5) + F32(1)),
    r"count_include_pad|\bpad|divisor|divid|count",
    kernel_shape=[3, 3],
    pads=[1] * 4,
)
def _(values):
    return again("AveragePool", "x", values, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)


# https://github.com/sonos/tract/pull/2851 https://github.com/apple/coremltools/pull/2844
@case(
    "averagepool: overhang of ceil_mode counted",
    "AveragePool",
    "x",
    dict(x=real(1, 30, 6, 8) + F32(1)),
    r"ceil|overhang|divisor|divid|count|\bpad|beyond",
    kernel_shape=[3, 3],
    strides=[2, 2],
    ceil_mode=1,
)
def _(values):
    x = np.pad(values["x"], ((0, 0), (0, 0), (0, 1), (0, 1)))
    return again("AveragePool", "x", {"x": x}, kernel_shape=[3, 3], strides=[2, 2])


# explicit zero padding before a maximum
@case(
    "maxpool: padded with zeros",
    "MaxPool",
    "x",
    dict(x=real(1, 30, 6, 5) - F32(2)),
    r"\bpad|zeros?\b|Relu|-inf",
    kernel_shape=[3, 3],
    pads=[1] * 4,
)
def _(values):
    x = np.pad(values["x"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    return again("MaxPool", "x", {"x": x}, kernel_shape=[3, 3])


# PyTorch's indices count within a channel, ONNX's within the tensor
@case(
    "maxpool: indices within the channel",
    "MaxPool",
    "x",
    dict(x=real(2, 6, 12, 10)),
    r"plane|flatten|offset|within|relative|per.channel|each channel|modul|restart",
    outs=2,
    kernel_shape=[2, 2],
    strides=[2, 2],
)
def _(values):
    y, at = computed("MaxPool", ["x"], 2, values, opset=21, domain="", kernel_shape=[2, 2], strides=[2, 2])
    return [y, at % 120]


# https://github.com/llvm/torch-mlir/issues/3420
@case(
    "resize: nearest takes the floor",
    "Resize",
    ["x", "", "s"],
    dict(x=real(1, 6, 8, 10), s=np.array([1, 1, 2.5, 1.3], F32)),
    r"nearest_mode|floor|round|ceil|rounds? down",
    mode="nearest",
)
def _(values):
    return again("Resize", ["x", "", "s"], values, mode="nearest", nearest_mode="floor")


# https://github.com/onnx/onnx/pull/2057
@case(
    "resize: exclude_outside ignored",
    "Resize",
    ["x", "", "s"],
    dict(x=real(1, 8, 6, 5), s=np.array([1, 1, 2, 2], F32)),
    r"exclude_outside|outside|clamp|border weights|renormal",
    mode="cubic",
    cubic_coeff_a=-0.5,
    exclude_outside=1,
)
def _(values):
    return again("Resize", ["x", "", "s"], values, mode="cubic", cubic_coeff_a=-0.5)


# recompute_scale_factor of PyTorch
@case(
    "resize: scale taken from the rounded sizes",
    "Resize",
    ["x", "", "s"],
    dict(x=real(1, 8, 7, 9), s=np.array([1, 1, 1.5, 1.4], F32)),
    r"'s'|ratio|\bscales\b|scale factor|sizes|coordinate",
    mode="linear",
    coordinate_transformation_mode="asymmetric",
)
def _(values):
    return again(
        "Resize",
        ["x", "", "", "z"],
        {**values, "z": np.array([1, 8, 10, 12])},
        mode="linear",
        coordinate_transformation_mode="asymmetric",
    )


# mode strings that no delegate knows
@case(
    "gridsample: cubic computed as linear",
    "GridSample",
    "x g",
    dict(x=real(2, 4, 9, 8), g=(rng.random((2, 10, 9, 2)) * 1.6 - 0.8).astype(F32)),
    r"cubic|linear|mode|interpolat",
    mode="cubic",
)
def _(values):
    return again("GridSample", "x g", values, mode="linear")


ROIS = dict(
    x=real(3, 5, 14, 16),
    rois=(np.array([[1, 2, 9, 11], [0, 3, 12, 8], [4, 1, 14, 12], [2, 2, 7, 13]]) + rng.random((4, 4))).astype(F32),
    bi=np.array([2, 0, 1, 2]),
)


# https://github.com/microsoft/onnxruntime/issues/6146
@case(
    "roialign: maximum after the interpolation",
    "RoiAlign",
    "x rois bi",
    ROIS,
    r"interpolat|bilinear|weighted",
    mode="max",
    output_height=4,
    output_width=5,
    sampling_ratio=2,
)
def _(values):
    y = again("RoiAlign", "x rois bi", values, mode="avg", output_height=8, output_width=10, sampling_ratio=1)
    return y.reshape(4, 5, 4, 2, 5, 2).max((3, 5))


@case(
    "roialign: every region from image 0",
    "RoiAlign",
    "x rois bi",
    ROIS,
    r"batch|'bi'|image|first",
    output_height=4,
    output_width=5,
    sampling_ratio=2,
)
def _(values):
    values = {**values, "bi": values["bi"] * 0}
    return again("RoiAlign", "x rois bi", values, output_height=4, output_width=5, sampling_ratio=2)


# sums of half precision before the division
@case(
    "globalaveragepool: sum overflows float16",
    "GlobalAveragePool",
    "x",
    dict(x=np.abs(real(4, 80, 16, 18, scale=120)) * np.linspace(0.5, 5, 80, dtype=F32)[:, None, None]),
    r"overflow|65504|float16|fp16",
)
def _(values):
    with np.errstate(all="ignore"):
        total = values["x"].sum((2, 3), keepdims=True, dtype=np.float64).astype(np.float16)
        return total.astype(F32) / F32(288)


# --------------------------------------------------------------------------- products


# split-K workspaces of low precision
@case(
    "matmul: partial sums of split K in bfloat16",
    "MatMul",
    "x w",
    dict(x=real(24, 256), w=real(256, 20, scale=0.3)),
    r"bfloat16|bf16",
)
def _(values):
    y = np.zeros((24, 20), F32)
    for k in range(0, 256, 32):
        y = bf16(y + bf16(values["x"][:, k : k + 32] @ values["w"][k : k + 32]))
    return y


# https://github.com/microsoft/onnxruntime/pull/3893 kinds: an accumulator that is not cleared
@case(
    "matmul: accumulator of a row tile not cleared",
    "MatMul",
    "x w",
    dict(x=real(48, 30), w=real(30, 20, scale=0.4)),
    r"accumulat|clear|reset|previous|carr|rows? before|earlier|leftover|stale",
)
def _(values):
    y = values["x"] @ values["w"]
    return y.reshape(3, 16, 20).cumsum(0).reshape(48, 20)


GEMM = dict(x=real(18, 30), w=real(22, 30, scale=0.3), c=real(22))


@case("gemm: beta ignored", "Gemm", "x w c", GEMM, r"beta|'c'|bias", alpha=0.7, beta=0.25, transB=1)
def _(values):
    return again("Gemm", "x w c", values, alpha=0.7, beta=1.0, transB=1)


@case(
    "einsum: result in the order of the other labels",
    "Einsum",
    "x x2",
    dict(x=real(3, 14, 10), x2=real(3, 9, 10)),
    r"transpos|\border|axes|layout|swap|exchang",
    equation="bij,bkj->bik",
)
def _(values):
    return np.einsum("bij,bkj->bki", values["x"], values["x2"]).reshape(3, 14, 9)


# https://github.com/tinygrad/tinygrad/issues/18207
@case(
    "einsum: another axis summed after a diagonal",
    "Einsum",
    "x",
    dict(x=real(40, 9, 9, 9)),
    r"axes|(other|another|wrong|different) axis"
    r"|axis \d (instead|rather|for|where|in place)|along axis \d|diagonal|label|swap",
    equation="biij->bi",
)
def _(values):
    return np.einsum("biij->bj", values["x"])


INTEGERS = dict(
    x=rng.integers(0, 256, (20, 48)).astype(np.uint8),
    w=rng.integers(-60, 61, (48, 18)).astype(np.int8),
    za=np.array(131, np.uint8),
    zb=rng.integers(-30, 31, 18).astype(np.int8),
)


def exact(values, za=None, zb=None):
    """Return the integer product."""
    za = values["za"].astype(np.int64) if za is None else za
    zb = values["zb"].astype(np.int64) if zb is None else zb
    return ((values["x"].astype(np.int64) - za) @ (values["w"].astype(np.int64) - zb)).astype(np.int32)


# https://github.com/iree-org/iree/issues/24583
@case("matmulinteger: zero point of A ignored", "MatMulInteger", "x w za zb", INTEGERS, r"zero.point|'za'")
def _(values):
    return exact(values, za=0)


@case(
    "matmulinteger: first zero point for all columns",
    "MatMulInteger",
    "x w za zb",
    INTEGERS,
    r"zero.point|'zb'|first",
)
def _(values):
    return exact(values, zb=int(values["zb"][0]))


# https://github.com/ROCm/AMDMIGraphX/pull/2903
@case(
    "matmulinteger: zero point subtracted in uint8",
    "MatMulInteger",
    "x w za zb",
    INTEGERS,
    r"wrap|overflow|unsigned|\b256\b|modul|uint8|borrow",
)
def _(values):
    x = (values["x"] - values["za"]).astype(np.int64)
    return exact({**values, "x": x}, za=0)


# https://github.com/microsoft/onnxruntime/issues/16105 https://github.com/uxlfoundation/oneDNN/issues/476
@case(
    "matmulinteger: pairs of products saturate at int16",
    "MatMulInteger",
    "x w",
    dict(
        x=rng.integers(100, 256, (20, 32)).astype(np.uint8),
        w=(rng.integers(70, 128, (32, 18)) * rng.choice([-1, 1], (32, 18))).astype(np.int8),
    ),
    r"satur|int16|32767|clip|16.bit",
)
def _(values):
    each = values["x"].astype(np.int64)[:, :, None] * values["w"].astype(np.int64)
    return np.clip(each.reshape(20, 16, 2, 18).sum(2), -32768, 32767).sum(1)


QMATMUL_INPUTS = "x sx zx w sw zw sy zy"
QMATMUL = dict(
    x=rng.integers(-128, 128, (20, 40)).astype(np.int8),
    sx=np.array(0.021, F32),
    zx=np.array(9, np.int8),
    w=rng.integers(-60, 61, (40, 18)).astype(np.int8),
    sw=np.array(0.013, F32),
    zw=np.array(-3, np.int8),
    sy=np.array(0.11, F32),
    zy=np.array(17, np.int8),
)


def qmatmul(v, rounding=np.rint, zy=None):
    """Return the quantized product."""
    total = (v["x"].astype(np.int64) - int(v["zx"])) @ (v["w"].astype(np.int64) - int(v["zw"]))
    codes = rounding(total * (float(v["sx"]) * float(v["sw"]) / float(v["sy"])))
    return np.clip(codes + (int(v["zy"]) if zy is None else zy), -128, 127).astype(np.int8)


# https://github.com/google/ruy/pull/227 kinds: a shift without the rounding term
@case(
    "qlinearmatmul: requantized with a plain shift",
    "QLinearMatMul",
    QMATMUL_INPUTS,
    QMATMUL,
    r"floor|trunc|\bround|shift|toward",
)
def _(values):
    return qmatmul(values, np.floor)


QCONV_INPUTS = "x sx zx w sw zw sy zy b"
QCONV = dict(
    x=rng.integers(0, 256, (1, 5, 9, 8)).astype(np.uint8),
    sx=np.array(0.02, F32),
    zx=np.array(140, np.uint8),
    w=rng.integers(-60, 61, (8, 5, 3, 3)).astype(np.int8),
    sw=(rng.random(8) * 0.02 + 0.004).astype(F32),
    zw=np.zeros(8, np.int8),
    sy=np.array(0.09, F32),
    zy=np.array(121, np.uint8),
    b=rng.integers(-9000, 9000, 8).astype(np.int32),
)


@case(
    "qlinearconv: first weight scale for all channels",
    "QLinearConv",
    QCONV_INPUTS,
    QCONV,
    r"per.channel|first scale|\bscales?\b|'sw'",
    pads=[1] * 4,
)
def _(values):
    values = {**values, "sw": np.full_like(values["sw"], values["sw"][0])}
    return again("QLinearConv", QCONV_INPUTS, values, pads=[1] * 4)


# https://github.com/apache/tvm/pull/4807 https://github.com/pytorch/executorch/pull/13576
@case(
    "qlinearconv: padded with code 0",
    "QLinearConv",
    QCONV_INPUTS,
    QCONV,
    r"\bpad|zero.point",
    pads=[1] * 4,
)
def _(values):
    x = np.pad(values["x"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    return again("QLinearConv", QCONV_INPUTS, {**values, "x": x})


# https://github.com/robertknight/rten/pull/1193
@case(
    "convinteger: second group takes the zero points of the first",
    "ConvInteger",
    "x w za zb",
    dict(
        x=rng.integers(0, 256, (1, 6, 9, 8)).astype(np.uint8),
        w=rng.integers(0, 110, (8, 3, 3, 3)).astype(np.uint8),
        za=np.array(120, np.uint8),
        zb=np.array([40, 55, 61, 48, 90, 71, 33, 80], np.uint8),
    ),
    r"zero.point|'zb'|group|first",
    group=2,
)
def _(values):
    zb = values["zb"][[0, 1, 2, 3, 0, 1, 2, 3]].astype(F32).reshape(8, 1, 1, 1)
    x, w = values["x"].astype(F32) - 120, values["w"].astype(F32) - zb
    return np.rint(again("Conv", "x w", {"x": x, "w": w}, group=2)).astype(np.int32)


@case(
    "dynamicquantizelinear: range without zero",
    "DynamicQuantizeLinear",
    "x",
    dict(x=(rng.random((20, 30)) * 3 + 2).astype(F32)),
    r"zero|range|include|minimum|\bmin\b",
    outs=3,
)
def _(values):
    x = values["x"]
    scale = (x.max() - x.min()) / F32(255)
    return [np.clip(np.rint((x - x.min()) / scale), 0, 255).astype(np.uint8), scale, np.uint8(0)]


# https://github.com/tenstorrent/tt-metal/issues/56525
@case(
    "quantizelinear: ties away from zero",
    "QuantizeLinear",
    "x s z",
    dict(x=(rng.integers(-200, 200, (20, 30)) / 8).astype(F32), s=np.array(0.25, F32), z=np.array(3, np.int8)),
    r"\bties?\b|halfway|half (away|up|to)|away from|to even|nearest even|\bround",
)
def _(values):
    r = values["x"] / values["s"]
    return np.clip(np.sign(r) * np.floor(np.abs(r) + 0.5) + 3, -128, 127).astype(np.int8)


@case(
    "dequantizelinear: blocks twice as long",
    "DequantizeLinear",
    "x s z",
    dict(
        x=rng.integers(-128, 128, (32, 24)).astype(np.int8),
        s=(rng.random((4, 24)) * 0.2 + 0.02).astype(F32),
        z=rng.integers(-20, 20, (4, 24)).astype(np.int8),
    ),
    r"\bblock",
    axis=0,
    block_size=8,
)
def _(values):
    at = np.arange(32) // 16
    return (values["x"].astype(F32) - values["z"][at]) * values["s"][at]


# https://github.com/onnxruntime/onnxruntime-qnn/pull/728
@case(
    "dequantizelinear: int4 without sign",
    "DequantizeLinear",
    "x s",
    dict(x=rng.integers(-8, 8, (20, 30)).astype(ml_dtypes.int4), s=(rng.random(30) * 0.2 + 0.02).astype(F32)),
    r"sign|uint4|\b16\b|two.s complement",
    axis=1,
)
def _(values):
    return (values["x"].astype(np.int8) & 15).astype(F32) * values["s"]


FLOAT8 = rng.integers(0, 127, (20, 30)).astype(np.uint8) | (rng.integers(0, 2, (20, 30)) << 7).astype(np.uint8)


# https://github.com/causalflow-ai/petit-kernel/pull/3
@case(
    "dequantizelinear: float8 e4m3fn read as e4m3fnuz",
    "DequantizeLinear",
    "x s",
    dict(x=np.where(FLOAT8 == 128, 0, FLOAT8).astype(np.uint8).view(ml_dtypes.float8_e4m3fn), s=np.array(0.07, F32)),
    r"fnuz|FNUZ|exponent|0\.5 times|times 0\.5|factor|halved|half (the|as)|scale of",
)
def _(values):
    return values["x"].view(ml_dtypes.float8_e4m3fnuz).astype(F32) * values["s"]


# https://github.com/tile-ai/tilelang/issues/2702
@case(
    "dequantizelinear: float8 subnormals with the implicit one",
    "DequantizeLinear",
    "x s",
    dict(x=(FLOAT8 & 0x97).astype(np.uint8).view(ml_dtypes.float8_e4m3fn), s=np.array(30, F32)),
    r"subnormal|denormal|implicit|leading (one|1|bit)",
)
def _(values):
    code = values["x"].view(np.uint8)
    size = (1 + (code & 7) / 8) * 2.0 ** (((code >> 3) & 15).astype(int) - 7)
    return (np.where(code >> 7, -size, size) * 30).astype(F32)


NIBBLES = rng.integers(0, 16, (20, 96)).astype(np.int64)
NBITS = dict(
    x=real(12, 96),
    b=(NIBBLES[:, ::2] | (NIBBLES[:, 1::2] << 4)).astype(np.uint8).reshape(20, 3, 16),
    s=(rng.random((20, 3)) * 0.1 + 0.02).astype(F32),
)


# https://github.com/gittensor-ai-lab/sparkinfer/pull/761
@case(
    "matmulnbits: negative codes borrow from the next byte",
    "MatMulNBits",
    "x b s",
    NBITS,
    r"borrow|carry|neighbou?r|adjacent|next (byte|code|lane)|byte lane|one (code|step) (less|low|too)|off by one",
    domain=MS,
    K=96,
    N=20,
    bits=4,
    block_size=32,
)
def _(values):
    codes = NIBBLES.reshape(20, 12, 4, 2) - 8
    for lane in range(1, 4):
        codes[:, :, lane] -= codes[:, :, lane - 1] < 0
    w = codes.reshape(20, 96) * np.repeat(values["s"].reshape(20, 3), 32, 1)
    return (values["x"] @ w.T).astype(F32)


# --------------------------------------------------------------------------- attention and normalizations

HEADS = dict(x=real(2, 6, 9, 8), x2=real(2, 2, 13, 8), x3=real(2, 2, 13, 8))


def attend(values, mask=0.0, scale=8**-0.5, heads=None, after=lambda s: s):
    """Return the attention of six heads over two."""
    heads = np.arange(6) // 3 if heads is None else heads
    k, v = values["x2"][:, heads].astype(np.float64), values["x3"][:, heads]
    return (soft(after(values["x"] @ k.swapaxes(2, 3) * scale) + mask) @ v).astype(F32)


# flash-attention changed this alignment in version 2.1
@case(
    "attention: causal mask aligned to the end",
    "Attention",
    "x x2 x3",
    HEADS,
    r"causal|diagonal|align|mask|offset",
    opset=23,
    is_causal=1,
)
def _(values):
    return attend(values, np.where(np.tril(np.ones((9, 13)), 4) > 0, 0, -np.inf))


@case("attention: softcap ignored", "Attention", "x x2 x3", HEADS, r"softcap|\bcap|tanh", opset=23, softcap=0.8)
def _(values):
    return attend(values)


@case(
    "attention: query heads take the key heads in turn",
    "Attention",
    "x x2 x3",
    HEADS,
    r"\bheads?\b|group|interleav|in turn|modul",
    opset=23,
)
def _(values):
    return attend(values, heads=np.arange(6) % 2)


@case(
    "attention: scores divided by the size and not its root",
    "Attention",
    "x x2 x3",
    HEADS,
    r"scale|sqrt|root|temperature|divid|0\.125|0\.35|factor",
    opset=23,
)
def _(values):
    return attend(values, scale=1 / 8)


@case(
    "attention: mask inverted",
    "Attention",
    "x x2 x3 m",
    {**HEADS, "m": rng.random((9, 13)) > 0.4},
    r"mask|invert|opposite|'m'|negat|cases are swapped",
    opset=23,
)
def _(values):
    return attend(values, np.where(values["m"], -np.inf, 0))


# ALiBi biases inside the scaled product
@case(
    "attention: mask scaled with the scores",
    "Attention",
    "x x2 x3 m",
    {**HEADS, "m": real(9, 13, scale=2)},
    r"mask|'m'|scale|bias",
    opset=23,
)
def _(values):
    return attend(values, values["m"] * 8**-0.5)


@case(
    "multiheadattention: heads interleaved in the columns",
    "MultiHeadAttention",
    "x x2 x3",
    dict(x=real(2, 9, 24), x2=real(2, 11, 24), x3=real(2, 11, 24)),
    r"\bheads?\b|interleav|\border|transpos|layout|reshape|stride",
    domain=MS,
    num_heads=3,
)
def _(values):
    order = np.arange(24).reshape(8, 3).T.ravel()
    moved = {name: np.ascontiguousarray(array[..., order]) for name, array in values.items()}
    y = again("MultiHeadAttention", "x x2 x3", moved, domain=MS, num_heads=3)
    return y[..., np.argsort(order)]


GQA_INPUTS = ["x", "x2", "x3", "", "", "sl", "tl"]
GQA = dict(
    x=real(1, 14, 64),
    x2=real(1, 14, 32),
    x3=real(1, 14, 32),
    sl=np.array([13], np.int32),
    tl=np.array(14, np.int32),
)


# https://github.com/ml-explore/mlx-lm/pull/390
@case(
    "groupqueryattention: window one too long",
    "GroupQueryAttention",
    GQA_INPUTS,
    GQA,
    r"window|mask|local",
    outs=3,
    domain=MS,
    num_heads=4,
    kv_num_heads=2,
    local_window_size=4,
)
def _(values):
    attrs = dict(num_heads=4, kv_num_heads=2, local_window_size=5)
    return computed("GroupQueryAttention", GQA_INPUTS, 3, values, opset=21, domain=MS, **attrs)


# https://github.com/vllm-project/vllm-ascend/pull/12820
@case(
    "rotary: interleaved ignored",
    "RotaryEmbedding",
    "x p cc ss",
    dict(
        x=real(2, 3, 7, 16),
        p=np.stack([np.arange(7), np.arange(7) + 3]).astype(np.int64),
        cc=np.cos(np.arange(20)[:, None] / 100 ** (np.arange(8) / 8)).astype(F32),
        ss=np.sin(np.arange(20)[:, None] / 100 ** (np.arange(8) / 8)).astype(F32),
    ),
    r"interleav|halves|\bpair|adjacent|neighbou?r",
    domain=MS,
    interleaved=1,
)
def _(values):
    return again("RotaryEmbedding", "x p cc ss", values, domain=MS)


PARTIAL = dict(
    x=real(2, 3, 9, 16),
    cc=np.cos(np.arange(9)[None, :, None] / 100 ** (np.arange(4) / 4)).astype(F32).repeat(2, 0),
    ss=np.sin(np.arange(9)[None, :, None] / 100 ** (np.arange(4) / 4)).astype(F32).repeat(2, 0),
)


# https://github.com/pie-project/pie/pull/603 https://github.com/apple/coreai-models/issues/66
@case(
    "rotary: partial rotation pairs across the whole head",
    "RotaryEmbedding",
    "x cc ss",
    PARTIAL,
    r"rotary_embedding_dim|partial|\bpair|halves|rotary (width|dim)|head (size|dim)",
    opset=23,
    rotary_embedding_dim=8,
)
def _(values):
    y = values["x"].copy()
    a, b = values["x"][..., :4], values["x"][..., 8:12]
    c, s = values["cc"][:, None], values["ss"][:, None]
    y[..., :4], y[..., 8:12] = a * c - b * s, a * s + b * c
    return y


# the coerced shape of Softmax below opset 13
@case(
    "softmax: one axis where all later ones count",
    "Softmax",
    "x",
    dict(x=real(6, 7, 9, scale=2)),
    r"axes|(other|another|wrong|different) axis"
    r"|axis \d (instead|rather|for|where|in place)|along axis \d|flatten|2-?D|coerc",
    opset=11,
    axis=1,
)
def _(values):
    return soft(values["x"], 1)


@case(
    "softmax: maximum not subtracted",
    "Softmax",
    "x",
    dict(x=real(20, 30, scale=10) + np.linspace(-20, 120, 20, dtype=F32)[:, None]),
    r"exp of 'x'|overflow|maximum|subtract|\bmax\b|\b88",
    axis=-1,
)
def _(values):
    with np.errstate(all="ignore"):
        e = np.exp(values["x"])
        return e / e.sum(-1, keepdims=True, dtype=F32)


@case(
    "logsoftmax: logarithm of the softmax plus 1e-4",
    "LogSoftmax",
    "x",
    dict(x=real(20, 30, scale=5)),
    r"epsilon|1e-0?4|0\.0001|-9\.2|floor|clip|clamp|lower (bound|limit)|satur|underflow",
    axis=-1,
)
def _(values):
    return np.log(soft(values["x"]) + F32(1e-4))


# partial statistics merged without the spread of their means (compare pytorch/pytorch#191976)
@case(
    "layernorm: variances of blocks averaged",
    "LayerNormalization",
    "x g b",
    dict(x=real(12, 48) + np.repeat(real(12, 3, scale=2), 16, 1), g=real(48), b=real(48)),
    r"varianc|merg|Welford|standard deviation",
)
def _(values):
    x = values["x"].astype(np.float64)
    var = x.reshape(12, 3, 16).var(-1).mean(-1)[:, None]
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(var + 1e-5) * values["g"] + values["b"]


# Gemma's weights are stored less 1
@case(
    "rmsnorm: one added to the scale",
    "RMSNormalization",
    "x g",
    dict(x=real(12, 48), g=real(48, scale=0.6)),
    r"1 is added|1 \+|\+ ?1|plus (1|one)|one (is )?added|offset|adds? (1|one)|'g'",
    opset=23,
)
def _(values):
    return again("RMSNormalization", "x g", {**values, "g": values["g"] + 1}, opset=23)


GROUPED = dict(x=real(2, 12, 6, 5) + real(2, 12, 1, 1), g=real(12), b=real(12))


@case(
    "groupnorm: groups of every third channel",
    "GroupNormalization",
    "x g b",
    GROUPED,
    r"interleav|in turn|strided|every (3|third)|\border|group",
    num_groups=3,
)
def _(values):
    order = np.arange(12).reshape(4, 3).T.ravel()
    back = np.argsort(order)
    moved = {
        "x": np.ascontiguousarray(values["x"][:, order]),
        "g": values["g"][order],
        "b": values["b"][order],
    }
    return again("GroupNormalization", "x g b", moved, num_groups=3)[:, back]


@case(
    "batchnorm: epsilon left out",
    "BatchNormalization",
    "x g b m r",
    dict(
        x=real(2, 8, 6, 5, scale=0.05),
        g=real(8),
        b=real(8),
        m=real(8, scale=0.02),
        r=np.geomspace(1e-4, 1e-2, 8).astype(F32),
    ),
    r"epsilon|\beps\b",
    epsilon=1e-3,
)
def _(values):
    m, r = values["m"][:, None, None], values["r"][:, None, None]
    return (values["x"] - m) / np.sqrt(r) * values["g"][:, None, None] + values["b"][:, None, None]


# --------------------------------------------------------------------------- recurrent

LSTM = dict(
    x=real(9, 3, 6),
    w=real(1, 40, 6, scale=0.5),
    r=real(1, 40, 10, scale=0.4),
    b=real(1, 80, scale=0.3),
    l=np.array([9, 5, 7], np.int32),
    h=real(1, 3, 10, scale=0.5),
    c=real(1, 3, 10, scale=0.5),
    p=real(1, 30, scale=0.8),
)
TWO = dict(
    x=real(9, 3, 6),
    w=real(2, 40, 6, scale=0.5),
    r=real(2, 40, 10, scale=0.4),
    b=real(2, 80, scale=0.3),
    l=np.array([9, 5, 7], np.int32),
    h=real(2, 3, 10),
    c=real(2, 3, 10),
)


# the order of the gates is i, o, f, c in ONNX and i, f, c, o elsewhere
@case("lstm: gates in another order", "LSTM", "x w r b", LSTM, r"gate|\border|permut|swap|exchang", hidden_size=10)
def _(values):
    at = np.concatenate([np.arange(10) + 10 * k for k in (0, 3, 1, 2)])
    b = np.concatenate([values["b"][:, at], values["b"][:, at + 40]], 1)
    return again(
        "LSTM", "x w r b", {**values, "w": values["w"][:, at], "r": values["r"][:, at], "b": b}, hidden_size=10
    )


# https://github.com/webmachinelearning/webnn-baseline/pull/123
@case(
    "lstm: backward results left in processing order",
    "LSTM",
    "x w r b",
    TWO,
    r"revers|flip|\border\b|backwards in time",
    hidden_size=10,
    direction="bidirectional",
)
def _(values):
    y = again("LSTM", "x w r b", values, hidden_size=10, direction="bidirectional").copy()
    y[:, 1] = y[::-1, 1]
    return y


# https://github.com/deeplearning4j/deeplearning4j/issues/1030
@case(
    "lstm: backward pass starts in the padding",
    "LSTM",
    "x w r b l",
    TWO,
    r"length|padding|'l'|sequence_lens|starts? (at|in|from)",
    hidden_size=10,
    direction="bidirectional",
)
def _(values):
    y = again("LSTM", "x w r b", values, hidden_size=10, direction="bidirectional")
    return y * (np.arange(9)[:, None] < values["l"])[:, None, :, None]


# https://github.com/onnx/onnx-tensorflow/issues/409
@case(
    "lstm: both directions start from the forward states",
    "LSTM",
    ["x", "w", "r", "b", "", "h", "c"],
    TWO,
    r"initial|\bstates?\b|forward (state|direction)|'h'|'c'",
    hidden_size=10,
    direction="bidirectional",
)
def _(values):
    values = {**values, "h": values["h"][[0, 0]], "c": values["c"][[0, 0]]}
    return again("LSTM", ["x", "w", "r", "b", "", "h", "c"], values, hidden_size=10, direction="bidirectional")


PEEP = ["x", "w", "r", "b", "", "h", "c", "p"]


@case("lstm: peepholes ignored", "LSTM", PEEP, LSTM, r"peephole|'p'", hidden_size=10)
def _(values):
    return again("LSTM", PEEP[:-1], values, hidden_size=10)


@case("lstm: clip ignored", "LSTM", "x w r b", LSTM, r"clip|clamp|bound", hidden_size=10, clip=0.3)
def _(values):
    return again("LSTM", "x w r b", values, hidden_size=10)


@case(
    "lstm: input and forget gates not coupled",
    "LSTM",
    "x w r b",
    LSTM,
    r"input_forget|coupl|forget",
    hidden_size=10,
    input_forget=1,
)
def _(values):
    return again("LSTM", "x w r b", values, hidden_size=10)


GRU = dict(
    x=real(9, 3, 6),
    w=real(1, 30, 6, scale=0.5),
    r=real(1, 30, 10, scale=0.6),
    b=real(1, 60, scale=0.5),
    l=np.array([9, 5, 7], np.int32),
)


# https://github.com/onnx/keras-onnx/pull/33
@case(
    "gru: reset applied before the product",
    "GRU",
    "x w r b",
    GRU,
    r"linear_before_reset|reset",
    hidden_size=10,
    linear_before_reset=1,
)
def _(values):
    return again("GRU", "x w r b", values, hidden_size=10)


@case(
    "gru: last state read at the last step",
    "GRU",
    "x w r b l",
    {**GRU, "x": real(9, 24, 6), "l": rng.integers(3, 10, 24).astype(np.int32)},
    r"length|last (step|state|time)|final|Y_h|'l'|sequence_lens",
    outs=2,
    hidden_size=10,
)
def _(values):
    y = again("GRU", "x w r b l", values, hidden_size=10)
    return [y, y[-1]]


RNN = dict(
    x=real(12, 3, 6),
    w=real(1, 10, 6, scale=0.4),
    r=real(1, 10, 10, scale=0.3),
    b=real(1, 20, scale=0.4),
    h=real(1, 3, 10),
)


@case(
    "rnn: reverse run forward", "RNN", "x w r b", RNN, r"revers|direction|forward", hidden_size=10, direction="reverse"
)
def _(values):
    return again("RNN", "x w r b", values, hidden_size=10)


# --------------------------------------------------------------------------- movements


@case(
    "gatherelements: along the other axis",
    "GatherElements",
    "x i",
    dict(x=real(14, 30), i=rng.integers(0, 14, (14, 30))),
    r"axes|(other|another|wrong|different) axis|axis \d (instead|rather|for|where|in place)|along axis \d",
    axis=1,
)
def _(values):
    return np.take_along_axis(values["x"], values["i"], 0)


@case(
    "gathernd: every batch reads the first",
    "GatherND",
    "x i",
    dict(x=real(6, 9, 8, 4), i=rng.integers(0, 9, (6, 12, 1))),
    r"batch_dims|first|batch 0|same batch|ignor",
    batch_dims=1,
)
def _(values):
    return values["x"][0][values["i"][..., 0]]


@case(
    "gather: negative indices read 0",
    "Gather",
    "x i",
    dict(x=real(20, 15), i=rng.integers(-20, 20, 40)),
    r"negative|clamp|clip",
    axis=0,
)
def _(values):
    return values["x"][np.maximum(values["i"], 0)]


DUPLICATES = dict(x=real(10, 30), i=rng.integers(-10, 10, (25, 30)), u=real(25, 30))


# https://github.com/ROCm/AMDMIGraphX/pull/2239
@case(
    "scatterelements: repeated indices keep the last",
    "ScatterElements",
    "x i u",
    {**DUPLICATES, "i": DUPLICATES["i"] % 10},
    r"reduction|accumulat|duplicat|repeated|last (update|write|one)|not added|overwrit",
    axis=0,
    reduction="add",
)
def _(values):
    y = values["x"].copy()
    for row, at in zip(values["u"], values["i"], strict=True):
        y[at, np.arange(30)] = values["x"][at, np.arange(30)] + row
    return y


# https://github.com/tracel-ai/burn-onnx/pull/487
@case(
    "scatterelements: negative indices skipped",
    "ScatterElements",
    "x i u",
    DUPLICATES,
    r"negative|skip|below 0|out of range",
    axis=0,
    reduction="add",
)
def _(values):
    u = np.where(values["i"] < 0, 0, values["u"]).astype(F32)
    return again("ScatterElements", "x i u", {**values, "u": u}, axis=0, reduction="add")


def places():
    """Draw places that are written once."""
    flat = rng.permutation(16 * 16)[:90]
    return np.stack([flat // 16, flat % 16], 1)


# https://github.com/onnx/onnx-mlir/pull/3611 kinds: coordinates of tuples
@case(
    "scatternd: coordinates in reverse",
    "ScatterND",
    "x i u",
    dict(x=real(16, 19, 5), i=places(), u=real(90, 5)),
    r"swap|revers|exchang|\border|transpos|'i'",
)
def _(values):
    return again("ScatterND", "x i u", {**values, "i": np.ascontiguousarray(values["i"][:, ::-1])})


@case(
    "slice: negative step not reversed",
    "Slice",
    "x st en ax sp",
    dict(x=real(18, 25), st=np.array([23]), en=np.array([2]), ax=np.array([1]), sp=np.array([-1])),
    r"forward instead of backward|revers|step|flip|'sp'|opposite",
)
def _(values):
    return values["x"][:, 3:24]


@case(
    "split: parts start at i times their length",
    "Split",
    "x s",
    dict(x=real(15, 20), s=np.array([6, 8, 6])),
    r"begins at|offset|starts?\b|'s'|shift|late\b",
    outs=3,
    axis=1,
)
def _(values):
    x = values["x"]
    return [x[:, :6], x[:, 8:16], x[:, 12:18]]


@case(
    "expand: aligned at the first axis",
    "Expand",
    "x s",
    dict(x=real(9, 7), s=np.array([9, 9, 7])),
    r"broadcast|align|transpos|leading|left|swap|exchang",
)
def _(values):
    return np.broadcast_to(values["x"][:, None], (9, 9, 7))


# https://github.com/tensorflow/tensorflow/issues/22383
@case(
    "topk: in the order of the indices",
    "TopK",
    "x k",
    dict(x=real(40, 30), k=np.array([6])),
    r"sort|\border|permut",
    outs=2,
    axis=1,
)
def _(values):
    at = np.sort(np.argsort(-values["x"], 1)[:, :6], 1)
    return [np.take_along_axis(values["x"], at, 1), at]


@case(
    "argmax: first of equal ones where the last is asked for",
    "ArgMax",
    "x",
    dict(x=rng.integers(0, 5, (25, 30, 12)).astype(F32)),
    r"select_last_index|\bties?\b|equal|(first|last) (of|occurrence|maxim|index|one)|instead of the last",
    axis=1,
    keepdims=0,
    select_last_index=1,
)
def _(values):
    return values["x"].argmax(1)


@case(
    "nonzero: one row for each place",
    "NonZero",
    "x",
    dict(x=(real(20, 31) * (rng.random((20, 31)) > 0.6)).astype(F32)),
    r"transpos|\border|layout|interleav|argwhere|\bpairs",
)
def _(values):
    return np.argwhere(values["x"]).reshape(2, -1)


@case(
    "unique: in order of appearance",
    "Unique",
    "x",
    dict(x=rng.integers(0, 900, 700)),
    r"sort|\border|appear|permut",
)
def _(values):
    return np.array(list(dict.fromkeys(values["x"].tolist())))


# https://github.com/apache/tvm/pull/7391
@case(
    "cumsum: exclusive ignored",
    "CumSum",
    "x a",
    dict(x=real(14, 30), a=np.array(1)),
    r"exclusive|inclusive|own element|one (position|element)",
    exclusive=1,
)
def _(values):
    return np.cumsum(values["x"], 1)


@case(
    "cumsum: results of reverse left reversed",
    "CumSum",
    "x a",
    dict(x=real(14, 30), a=np.array(1)),
    r"revers|flip|\border|backward",
    reverse=1,
)
def _(values):
    return np.cumsum(values["x"][:, ::-1], 1)


# --------------------------------------------------------------------------- element-wise and reductions

REALS = dict(x=real(12, 40, scale=3))


# https://github.com/pytorch/executorch/issues/22323
@case(
    "gelu: tanh overflows",
    "Gelu",
    "x",
    dict(x=real(12, 40, scale=12)),
    r"overflow|exponential|\bexp\(|not clamped|unclamped|\b88",
    opset=20,
    approximate="tanh",
)
def _(values):
    x = values["x"]
    with np.errstate(all="ignore"):
        z = np.sqrt(F32(2 / np.pi)) * (x + F32(0.044715) * x**3)
        a, b = np.exp(z), np.exp(-z)
        return F32(0.5) * x * (1 + (a - b) / (a + b))


# https://github.com/Tencent/ncnn/issues/6978 kinds: a rational form without its clamp
@case(
    "tanh: rational form not clamped",
    "Tanh",
    "x",
    REALS,
    r"rational|Pad[eé]|approx|polynomial|series|clamp|satur|\bgrows|unbounded|slope",
)
def _(values):
    x = values["x"]
    return x * (27 + x * x) / (27 + 9 * x * x)


@case(
    "sigmoid: table of 64 entries",
    "Sigmoid",
    "x",
    REALS,
    r"\btable|look-?up|LUT|\bsteps?\b|levels|quantiz|\bgrid|bits|distinct",
)
def _(values):
    at = np.clip(np.floor((values["x"] + 8) * 4), 0, 63)
    return sigmoid(at / 4 - 8 + 0.125)


@case(
    "exp: mantissa interpolated linearly",
    "Exp",
    "x",
    dict(x=real(12, 40, scale=2)),
    r"linear|approx|mantissa|interpolat|fast|Schraudolph|bits",
)
def _(values):
    bits = np.floor(values["x"].astype(np.float64) * (2**23 / math.log(2)) + 127 * 2**23)
    return bits.astype(np.int32).view(F32)


@case(
    "pow: exponent cut to an integer",
    "Pow",
    "x e",
    dict(x=np.abs(real(12, 40)) + F32(0.2), e=rng.choice(np.array([0.5, 1.5, 2.5, 1.75, 2.25], F32), 40)),
    r"exponent|integer|trunc|whole|floor|'e'",
)
def _(values):
    return values["x"] ** np.trunc(values["e"])


# https://github.com/microsoft/onnxruntime/issues/26997 https://github.com/onnx/onnx/issues/7570
@case(
    "div: integers divided with the floor",
    "Div",
    "x y",
    dict(x=rng.integers(-200, 200, (12, 40)).astype(np.int32), y=rng.choice(np.array([-7, -3, 2, 5, 9], np.int32), 40)),
    r"rounded down|floor|trunc|toward|rounds? down",
)
def _(values):
    return values["x"] // values["y"]


@case(
    "bitshift: sign kept",
    "BitShift",
    "x y",
    dict(x=rng.integers(0, 2**32, (12, 40)).astype(np.uint32), y=np.array(5, np.uint32)),
    r"arithmetic|sign|logical|top bits?|high bits?",
    direction="RIGHT",
)
def _(values):
    return (values["x"].view(np.int32) >> 5).view(np.uint32)


# https://github.com/facebookresearch/CrypTen/issues/495
@case(
    "erf: five terms of the series",
    "Erf",
    "x",
    dict(x=real(12, 40, scale=1.2)),
    r"series|Taylor|approx|polynomial|diverg|\bterms",
)
def _(values):
    x = values["x"].astype(np.float64)
    terms = [(-1) ** n * x ** (2 * n + 1) / (math.factorial(n) * (2 * n + 1)) for n in range(5)]
    return 2 / math.sqrt(math.pi) * sum(terms)


@case(
    "sin: no reduction of the range",
    "Sin",
    "x",
    dict(x=real(12, 40, scale=2.5)),
    r"period|2 ?(pi|π)|series|Taylor|polynomial|approx|range reduc|reduc(ed|tion)|diverg",
)
def _(values):
    x = values["x"].astype(np.float64)
    return x - x**3 / 6 + x**5 / 120 - x**7 / 5040


@case(
    "softplus: exponential overflows",
    "Softplus",
    "x",
    dict(x=real(12, 40, scale=90)),
    r"exp of 'x'|overflow|\b8[89]\b|exponential|\bexp\(|65504",
)
def _(values):
    with np.errstate(all="ignore"):
        return np.log(1 + np.exp(values["x"]))


@case(
    "cast: int32 to int8 saturates",
    "Cast",
    "x",
    dict(x=rng.integers(-500, 500, (12, 40)).astype(np.int32)),
    r"satur|clip|clamp|wrap|modul",
    to=3,
)
def _(values):
    return np.clip(values["x"], -128, 127).astype(np.int8)


@case(
    "cast: float16 toward zero",
    "Cast",
    "x",
    dict(x=real(12, 40, scale=9)),
    r"toward|trunc|\bround|cut",
    to=10,
)
def _(values):
    x = values["x"]
    h = x.astype(np.float16)
    over = np.abs(h.astype(F32)) > np.abs(x)
    return np.where(over, (h.view(np.uint16) - over).astype(np.uint16).view(np.float16), h)


@case(
    "max: NaN ignored",
    "Max",
    "x x2",
    dict(x=np.where(rng.random((12, 40)) < 0.25, np.nan, real(12, 40)).astype(F32), x2=real(12, 40)),
    r"(ignor|propagat|drop|skip|lose|lost|left out|missing).*NaN"
    r"|NaN.*(ignor|propagat|drop|skip|lost|left out|missing)|fmax",
)
def _(values):
    return np.fmax(values["x"], values["x2"])


# averages of averages
@case(
    "mean: in pairs",
    "Mean",
    "x x2 x3",
    dict(x=real(12, 40), x2=real(12, 40), x3=real(12, 40)),
    r"pair|running|unequal|weight|0\.25|x3|average of",
)
def _(values):
    return ((values["x"] + values["x2"]) / 2 + values["x3"]) / 2


@case(
    "reducelogsumexp: exponential left out",
    "ReduceLogSumExp",
    "x a",
    dict(x=(rng.random((30, 12, 10)) * 2 + 0.2).astype(F32), a=np.array([1])),
    r"exp|ReduceLogSum\b|logarithm of the sum",
    keepdims=0,
)
def _(values):
    return np.log(values["x"].sum(1))


@case(
    "reducemean: divided by the last axis alone",
    "ReduceMean",
    "x a",
    dict(x=real(20, 5, 15, 7) + F32(1), a=np.array([1, 3])),
    r"divid|divisor|count|times|factor|scale of",
    keepdims=0,
)
def _(values):
    return values["x"].sum((1, 3)) / F32(7)


@case(
    "reducesum: int32 summed in int16",
    "ReduceSum",
    "x a",
    dict(x=rng.integers(-4000, 6000, (30, 25, 12)).astype(np.int32), a=np.array([1])),
    r"int16|wrap|overflow|65536|modul|16.bit",
    keepdims=0,
)
def _(values):
    return values["x"].sum(1).astype(np.int16).astype(np.int32)


@case(
    "reduceprod: by logarithms of magnitudes",
    "ReduceProd",
    "x a",
    dict(x=real(40, 5, 9), a=np.array([1])),
    r"\bsigns?\b|magnitude|\babs|logarithm",
    keepdims=0,
)
def _(values):
    return np.exp(np.log(np.abs(values["x"])).sum(1))


# statistics of each image where the batch is asked for
@case(
    "meanvariancenormalization: each image by itself",
    "MeanVarianceNormalization",
    "x",
    dict(x=real(4, 5, 6, 7) * (1 + np.arange(4, dtype=F32))[:, None, None, None] + real(4, 5, 1, 1)),
    r"axes|(other|another|wrong|different) axis"
    r"|axis \d (instead|rather|for|where|in place)|along axis \d|batch|each image|instance|InstanceNorm",
    axes=[0, 2, 3],
)
def _(values):
    return again("MeanVarianceNormalization", "x", values, axes=[2, 3])
