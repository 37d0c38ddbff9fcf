"""More wrong kernels of kinds that public reports describe, one operator each.

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
F64 = np.float64


def soft(a, axis=-1):
    """Return the softmax."""
    e = np.exp(a - a.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def coded(a, scale, zero, kind=np.uint8):
    """Round to codes."""
    info = np.iinfo(kind)
    return np.clip(np.rint(np.asarray(a, F64) / scale) + int(zero), info.min, info.max).astype(kind)


def u8(low, high, *shape):
    """Draw unsigned codes."""
    return rng.integers(low, high, shape).astype(np.uint8)


def i8(low, high, *shape):
    """Draw signed codes."""
    return rng.integers(low, high, shape).astype(np.int8)


def f(value):
    """Return a scalar."""
    return np.array(value, F32)


# --------------------------------------------------------------------------- quantized operators and integers

QMM_INPUTS = "x sx zx w sw zw sy zy"
QMM = dict(
    x=u8(20, 250, 17, 46),
    sx=f(0.031),
    zx=np.array(117, np.uint8),
    w=u8(0, 256, 46, 23),
    sw=f(0.0127),
    zw=np.array(139, np.uint8),
    sy=f(0.21),
    zy=np.array(98, np.uint8),
)


def qmm(v, zx=None, zw=None, sw=None):
    """Return the real product of codes."""
    zx = int(v["zx"]) if zx is None else zx
    zw = v["zw"].astype(int) if zw is None else zw
    sw = v["sw"] if sw is None else sw
    return ((v["x"].astype(int) - zx) @ (v["w"].astype(int) - zw)) * float(v["sx"]) * sw


@case(
    "qlinearmatmul: result's zero point left out",
    "QLinearMatMul",
    QMM_INPUTS,
    QMM,
    r"'zy'|zero.point.*(result|output)|(result|output).s? zero.point|y_zero_point",
)
def _(values):
    return again("QLinearMatMul", QMM_INPUTS, {**values, "zy": np.array(0, np.uint8)})


@case(
    "qlinearmatmul: codes below the zero point cut off",
    "QLinearMatMul",
    QMM_INPUTS,
    QMM,
    r"[Rr]elu|ReLU|rectif|clamp|clip|cut off|below (the )?zero|lower bound|at least|never (below|less)"
    r"|max\(",
)
def _(values):
    return np.maximum(again("QLinearMatMul", QMM_INPUTS, values), values["zy"])


# zero points of the other operand, as when a kernel exchanges A and B for column-major products
@case(
    "qlinearmatmul: zero points of A and B exchanged",
    "QLinearMatMul",
    QMM_INPUTS,
    QMM,
    r"zero.points?.*(swap|exchang|other|each other)|(swap|exchang).*zero.point"
    r"|zero.point of (the )?(other|'w'|'x'|A|B)|'zw' (for|instead of|in place of) 'zx'|'zx' (for"
    r"|instead of|in place of) 'zw'",
)
def _(values):
    return again("QLinearMatMul", QMM_INPUTS, {**values, "zx": values["zw"], "zw": values["zx"]})


# https://github.com/Tencent/ncnn/issues/717 sums kept in int16
@case(
    "matmulinteger: sums wrap at 16 bits",
    "MatMulInteger",
    "x w za",
    dict(x=u8(0, 256, 17, 70), w=i8(-128, 128, 70, 23), za=np.array(87, np.uint8)),
    r"\bint16|16.bits?|32767|32768|65536|wrap|overflow|modul",
)
def _(values):
    return again("MatMulInteger", "x w za", values).astype(np.int16).astype(np.int32)


# scales of a vector register that is not reloaded
@case(
    "qlinearmatmul: column scales taken modulo 4",
    "QLinearMatMul",
    QMM_INPUTS,
    {**QMM, "sw": (rng.random(23) * 0.02 + 0.004).astype(F32), "w": i8(-127, 128, 46, 23), "zw": np.zeros(23, np.int8)},
    r"modul|\bmod\b|every (4|four)|repeat|period|% ?4|first (4|four)|wrap|'sw'|wrong scale|scales? of (an)?other",
)
def _(values):
    return again("QLinearMatMul", QMM_INPUTS, {**values, "sw": values["sw"][np.arange(23) % 4]})


QCONV_INPUTS = "x sx zx w sw zw sy zy b"
QCONV = dict(
    x=u8(0, 256, 1, 5, 13, 11),
    sx=f(0.023),
    zx=np.array(109, np.uint8),
    w=i8(-90, 91, 9, 5, 3, 3),
    sw=(rng.random(9) * 0.02 + 0.003).astype(F32),
    zw=np.zeros(9, np.int8),
    sy=f(0.12),
    zy=np.array(131, np.uint8),
    b=(rng.integers(4000, 15000, 9) * rng.choice([-1, 1], 9)).astype(np.int32),
)


# a bias quantized with one scale for the whole tensor beside weights with one for each channel
@case(
    "qlinearconv: bias at the scale of the first channel",
    "QLinearConv",
    QCONV_INPUTS,
    QCONV,
    r"bias.*scale|scale.*bias|'b'.*('sw'|scale)|('sw'|scale).*'b'|bias.*first channel",
    pads=[1, 0, 2, 1],
)
def _(values):
    b = np.rint(values["b"] * (values["sw"][0] / values["sw"])).astype(np.int32)
    return again("QLinearConv", QCONV_INPUTS, {**values, "b": b}, pads=[1, 0, 2, 1])


# depthwise kernels without the term of the weights' zero point
@case(
    "qlinearconv: zero point of depthwise weights ignored",
    "QLinearConv",
    QCONV_INPUTS,
    {
        **QCONV,
        "x": u8(0, 256, 1, 9, 13, 11),
        "w": u8(40, 256, 9, 1, 3, 3),
        "sw": f(0.009),
        "zw": np.array(121, np.uint8),
        "b": QCONV["b"] // 4,
    },
    r"zero point is dropped|"
    r"'zw'|zero.point.*(weight|filter|kernel|'w')|(weight|filter|kernel|'w').*zero.point",
    group=9,
    pads=[1, 0, 2, 1],
)
def _(values):
    return again("QLinearConv", QCONV_INPUTS, {**values, "zw": np.array(0, np.uint8)}, group=9, pads=[1, 0, 2, 1])


@case(
    "qlinearconv: every channel takes the scale of the next",
    "QLinearConv",
    QCONV_INPUTS,
    QCONV,
    r"(scale|'sw').*(next|one (later|on|late|further|off)|off by one|shift|neighbou?r|another channel|adjacent)"
    r"|(next|neighbou?r\w*|adjacent|another|shifted).*(scale|'sw')",
)
def _(values):
    return again("QLinearConv", QCONV_INPUTS, {**values, "sw": np.roll(values["sw"], -1)})


# compare https://github.com/uxlfoundation/oneDNN/issues/476: the compensation of unsigned data has the wrong sign
@case(
    "convinteger: zero point added and not subtracted",
    "ConvInteger",
    "x w za",
    dict(x=u8(0, 256, 2, 5, 11, 9), w=i8(-100, 128, 7, 5, 3, 3), za=np.array(113, np.uint8)),
    r"acts as -113|"
    r"zero.point.*(add|sign|negat|plus)|'za'.*(add|sign|negat|plus)|(add|negat)\w* .*(zero.point|'za')|opposite sign",
)
def _(values):
    x = values["x"].astype(F64) + 113
    return np.rint(again("Conv", "x w", {"x": x.astype(F64), "w": values["w"].astype(F64)})).astype(np.int32)


@case(
    "matmulinteger: codes of A above 127 read as negative",
    "MatMulInteger",
    "x w za",
    dict(x=u8(0, 256, 17, 46), w=i8(-128, 128, 46, 23), za=np.array(91, np.uint8)),
    r"\bsign|int8|two.s complement|negative|above 127|minus 256|- ?256",
)
def _(values):
    x = values["x"].view(np.int8).astype(int) - 91
    return (x @ values["w"].astype(int)).astype(np.int32)


QADD_INPUTS = "x sx zx x2 s2 z2 sy zy"
QADD = dict(
    x=u8(0, 256, 3, 14, 19),
    sx=f(0.031),
    zx=np.array(71, np.uint8),
    x2=u8(0, 256, 3, 14, 19),
    s2=f(0.0113),
    z2=np.array(152, np.uint8),
    sy=f(0.037),
    zy=np.array(101, np.uint8),
)


# multipliers of the operands
@case(
    "qlinearadd: scales of the operands exchanged",
    "QLinearAdd",
    QADD_INPUTS,
    QADD,
    r"scales?.*(swap|exchang|other)|(swap|exchang).*scales?|'s2' (for|instead of|in place of) 'sx'"
    r"|'sx' (for|instead of|in place of) 's2'|scale of the other",
    domain=MS,
)
def _(values):
    return again("QLinearAdd", QADD_INPUTS, {**values, "sx": values["s2"], "s2": values["sx"]}, domain=MS)


@case(
    "qlinearadd: both operands take the zero point of the first",
    "QLinearAdd",
    QADD_INPUTS,
    QADD,
    r"zero.point of (the )?(first|other|'x'|A)|'zx' (for|instead of|in place of) 'z2'|'z2'"
    r"|zero.point.*(both|second|'x2'|B)",
    domain=MS,
)
def _(values):
    return again("QLinearAdd", QADD_INPUTS, {**values, "z2": values["zx"]}, domain=MS)


# the cross terms of (a - za)(b - zb) left out
@case(
    "qlinearmul: only the product of the zero points subtracted",
    "QLinearMul",
    QADD_INPUTS,
    {**QADD, "sy": f(0.11), "sx": f(0.011), "x": u8(0, 60, 3, 14, 19), "x2": u8(120, 256, 3, 14, 19)},
    r"zero.points?|cross terms?|'zx'|'z2'",
    domain=MS,
)
def _(values):
    product = values["x"].astype(int) * values["x2"].astype(int) - 71 * 152
    return coded(product * float(values["sx"]) * float(values["s2"]), float(values["sy"]), 101)


# a table for unsigned codes indexed with signed ones
@case(
    "qlinearsigmoid: table indexed 128 off",
    "QLinearSigmoid",
    "x sx zx sy zy",
    dict(
        x=i8(-128, 128, 14, 37),
        sx=f(0.047),
        zx=np.array(-17, np.int8),
        sy=f(1 / 256),
        zy=np.array(-128, np.int8),
    ),
    r"128|table|sign|top bit|highest bit|most significant|two.s complement|unsigned|uint8|wrap",
    domain=MS,
)
def _(values):
    x = (values["x"].view(np.uint8) ^ 128).view(np.int8)
    return again("QLinearSigmoid", "x sx zx sy zy", {**values, "x": x}, domain=MS)


@case(
    "qlinearglobalaveragepool: zero point of the input not subtracted",
    "QLinearGlobalAveragePool",
    "x sx zx sy zy",
    dict(
        x=u8(20, 110, 4, 75, 7, 9) + u8(0, 60, 4, 75, 1, 1),
        sx=f(0.05),
        zx=np.array(77, np.uint8),
        sy=f(0.041),
        zy=np.array(62, np.uint8),
    ),
    r"zero.point|'zx'",
    domain=MS,
)
def _(values):
    return again("QLinearGlobalAveragePool", "x sx zx sy zy", {**values, "zx": np.array(0, np.uint8)}, domain=MS)


# concatenation copies codes of other scales
@case(
    "qlinearconcat: codes of the second input copied without rescaling",
    "QLinearConcat",
    "sy zy x sx zx x2 s2 z2",
    dict(
        sy=f(0.031),
        zy=np.array(71, np.uint8),
        x=u8(0, 256, 2, 7, 15),
        sx=f(0.0227),
        zx=np.array(93, np.uint8),
        x2=u8(0, 256, 2, 11, 15),
        s2=f(0.0113),
        z2=np.array(152, np.uint8),
    ),
    r"rescal|requanti[sz]|cop(y|ied)|scale|'s2'|as (it is|they are)|unchanged|raw codes",
    domain=MS,
    axis=1,
)
def _(values):
    y = again("QLinearConcat", "sy zy x sx zx x2 s2 z2", values, domain=MS, axis=1).copy()
    y[:, 7:] = values["x2"]
    return y


@case(
    "qlinearleakyrelu: sign taken from the code",
    "QLinearLeakyRelu",
    "x sx zx sy zy",
    dict(
        x=i8(-128, 128, 19, 28),
        sx=f(0.043),
        zx=np.array(-37, np.int8),
        sy=f(0.037),
        zy=np.array(-90, np.int8),
    ),
    r"\bsign|zero.point|threshold|compar|branch|where the code|\bslope",
    domain=MS,
    alpha=0.1,
)
def _(values):
    x = values["x"].astype(F64)
    y = (x + 37) * float(values["sx"])
    return coded(np.where(x < 0, y * 0.1, y), float(values["sy"]), -90, np.int8)


# limits applied ahead of the zero point
@case(
    "quantizelinear: clamped before the zero point is added",
    "QuantizeLinear",
    "x s z",
    dict(x=real(19, 28, scale=6), s=f(0.043), z=np.array(45, np.int8)),
    r"clamp|clip|satur|limit|\brange\b|before (the )?zero.point",
)
def _(values):
    y = np.clip(np.rint(values["x"] / values["s"]), -128, 127) + 45
    return np.clip(y, -128, 127).astype(np.int8)


# codes beyond the range wrap around
@case(
    "quantizelinear: codes beyond the range wrap",
    "QuantizeLinear",
    "x s z",
    dict(x=real(19, 28, scale=6), s=f(0.047), z=np.array(119, np.uint8)),
    r"wrap|modul|\b256\b|overflow|not (saturat|clamp|clip)|without (saturat|clamp|clip)|satur|low(er"
    r"|est)? (8|eight) bits",
)
def _(values):
    return ((np.rint(values["x"] / values["s"]).astype(int) + 119) & 255).astype(np.uint8)


@case(
    "dequantizelinear: zero point subtracted after the scale",
    "DequantizeLinear",
    "x s z",
    dict(x=i8(-128, 128, 19, 28), s=(rng.random(28) * 0.05 + 0.01).astype(F32), z=i8(-40, 60, 28)),
    r"zero.point.*(after|not (scal|multipl)|without|un-?scaled)|(after|not (scal|multipl)|un-?scaled).*zero.point"
    r"|scaled? (before|first)|before (the )?zero.point|'z'.*(after|not (scal|multipl))",
    axis=1,
)
def _(values):
    return values["x"] * values["s"] - values["z"]


@case(
    "dequantizelinear: int32 codes narrowed to 16 bits",
    "DequantizeLinear",
    "x s",
    dict(x=rng.integers(-150000, 150000, (19, 28)).astype(np.int32), s=f(0.00031)),
    r"int16|16.bits?|32767|32768|65536|wrap|narrow|truncat|overflow",
)
def _(values):
    return values["x"].astype(np.int16) * values["s"]


# https://github.com/microsoft/onnxruntime/issues/25823 symmetric unsigned ranges
@case(
    "dynamicquantizelinear: symmetric range",
    "DynamicQuantizeLinear",
    "x",
    dict(x=(real(19, 28) + 1.3).astype(F32)),
    r"symmetric|128|127|magnitude|absolute|largest magnitude|\bmax\w*\(?\|",
    outs=3,
)
def _(values):
    x = values["x"]
    scale = np.abs(x).max() / F32(127)
    return [np.clip(np.rint(x / scale) + 128, 0, 255).astype(np.uint8), scale, np.uint8(128)]


NIBBLES = rng.integers(0, 16, (22, 96))
ZEROS = rng.integers(0, 4, (22, 3))


def packed(codes):
    """Pack nibbles, the low one first."""
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)))
    return (codes[:, ::2] | (codes[:, 1::2] << 4)).astype(np.uint8)


NBITS = dict(
    x=real(13, 96),
    b=packed(NIBBLES).reshape(22, 3, 16),
    s=(rng.random((22, 3)) * 0.1 + 0.02).astype(F32),
    z=packed(ZEROS).reshape(-1),
    g=rng.permutation(np.arange(96) // 32).astype(np.int32),
)


def nbits(v, zeros, groups):
    """Multiply with dequantized nibbles."""
    w = (NIBBLES - zeros[:, groups]) * v["s"].reshape(22, 3)[:, groups]
    return (v["x"] @ w.T).astype(F32)


# https://github.com/ModelCloud/GPTQModel/issues/2350
@case(
    "matmulnbits: zero points 0 become 15",
    "MatMulNBits",
    "x b s z",
    NBITS,
    r"zero.points?.*(15|wrap|underflow|borrow|0)|\b15\b|wrap|underflow",
    domain=MS,
    K=96,
    N=22,
    bits=4,
    block_size=32,
)
def _(values):
    return nbits(values, np.where(ZEROS == 0, 15, ZEROS), np.arange(96) // 32)


# act-order checkpoints whose g_idx a kernel leaves out (AutoGPTQ, ExLlama)
@case(
    "matmulnbits: blocks in sequence where g_idx permutes them",
    "MatMulNBits",
    ["x", "b", "s", "", "g"],
    {**NBITS, "s": (rng.random(66) * 0.3 + 0.01).astype(F32)},
    r"g_idx|'g'|act.?order|group ind|in (sequence|order)|permut|scale of (an)?other|\bblocks?\b.*(order|sequence)",
    domain=MS,
    K=96,
    N=22,
    bits=4,
    block_size=32,
)
def _(values):
    return nbits(values, np.full((22, 3), 8), np.arange(96) // 32)


# https://github.com/openvinotoolkit/openvino/issues/35837
@case(
    "cumsum: int64 summed in 32 bits",
    "CumSum",
    "x a",
    dict(x=rng.integers(2**28, 2**31, (13, 41)), a=np.array(1, np.int64)),
    r"int32|32.bits?|2147483647|2147483648|4294967296|2\*\*3[12]|wrap|overflow|truncat|narrow",
)
def _(values):
    return np.cumsum(values["x"].astype(np.int32), 1, dtype=np.int32).astype(np.int64)


# multipliers of 24 bits, as GPUs' mul24 has them
@case(
    "mul: int32 operands cut to 24 bits",
    "Mul",
    "x x2",
    dict(
        x=rng.integers(-(2**25), 2**25, (17, 29)).astype(np.int32),
        x2=rng.integers(-60, 60, (17, 29)).astype(np.int32),
    ),
    r"24.bits?|mul24|int24|16777216|8388608|2\*\*2[34]|high(er|est)? (8|eight)|low(er|est)? 24|wrap|truncat",
)
def _(values):
    return ((values["x"] << 8) >> 8) * values["x2"]


@case(
    "qgemm: bias not scaled",
    "QGemm",
    "x sx zx w sw zw c",
    {**QMM, "c": rng.integers(-9, 10, 23).astype(np.int32) * 1171},
    r"'c' counts 2540|"
    r"('c'|\bC\b|[Bb]ias).*(scal|raw|as (it is|real|float)|factor|multipl|integer)|(un-?scaled|raw|without"
    r"|not scaled).*(bias|'c'|\bC\b)",
    domain=MS,
)
def _(values):
    return (qmm(values) + values["c"]).astype(F32)


@case(
    "matmulintegertofloat: bias scaled with the product",
    "MatMulIntegerToFloat",
    "x w sx sw zx zw b",
    {**QMM, "sx": f(0.31), "sw": f(0.14), "b": real(23, scale=300)},
    r"'b' counts 0\.0434|"
    r"([Bb]ias|'b').*(scal|factor|multipl)|(scal|multipl|factor).*(bias|'b')",
    domain=MS,
)
def _(values):
    scale = float(values["sx"] * values["sw"])
    return (qmm(values) + values["b"] * scale).astype(F32)


FLOAT8 = rng.integers(0, 0x70, (19, 28)).astype(np.uint8) | (rng.integers(0, 2, (19, 28)) << 7).astype(np.uint8)


@case(
    "dequantizelinear: float8 e5m2 read as e4m3",
    "DequantizeLinear",
    "x s",
    dict(x=FLOAT8.view(ml_dtypes.float8_e5m2), s=f(0.07)),
    r"e4m3|E4M3|exponent|mantissa|float8 (format|kind|type)|(another|other|different) float8",
)
def _(values):
    return values["x"].view(ml_dtypes.float8_e4m3fn).astype(F32) * values["s"]


# --------------------------------------------------------------------------- convolution, pooling, resizing

IMAGE = dict(x=real(2, 5, 13, 19), w=real(9, 5, 3, 3, scale=0.3), b=real(9))
WIDE = dict(x=real(1, 12, 11, 21), w=real(7, 12, 3, 3, scale=0.3), b=real(7))


# pads in the order of other formats
@case(
    "conv: left padding taken from the place of the lower one",
    "Conv",
    "x w b",
    IMAGE,
    r"\bpad|shift|offset|one column|to the (left|right)|columns? (earlier|later|too)",
    pads=[2, 0, 1, 3],
)
def _(values):
    return again("Conv", "x w b", values, pads=[2, 1, 1, 2])


# compare https://github.com/ggml-org/ggml/issues/1532: conditions that look at one side alone
@case(
    "conv: 1x3 filter taken for 1x1",
    "Conv",
    "x w b",
    {**IMAGE, "w": real(9, 5, 1, 3, scale=0.4)},
    r"along axis 3 count 0|"
    r"1x1|first (tap|column)|one tap|\btaps?\b|only (the )?(first|one)|columns? (1|2)\b|point.?wise",
    pads=[0, 0, 0, 2],
)
def _(values):
    return again("Conv", "x w b", {**values, "w": values["w"][..., :1].copy()})


# sums of a second pass over input channels stored and not accumulated
@case(
    "conv: sums of the first 8 input channels overwritten",
    "Conv",
    "x w b",
    WIDE,
    r"counts as 0 before index 8|"
    r"overwrit|not (accumulat|add)|(first|only|last) (8|4|eight|four)|channels? (0|below|before|from 8|8)|left out|lost"
    r"|partial sum",
    pads=[1, 0, 1, 2],
)
def _(values):
    w = values["w"].copy()
    w[:, :8] = 0
    return again("Conv", "x w b", {**values, "w": w}, pads=[1, 0, 1, 2])


# https://github.com/pytorch/executorch/pull/22952
@case(
    "conv: depthwise filters read channels last",
    "Conv",
    "x w b",
    dict(x=real(1, 12, 11, 15), w=real(12, 1, 3, 3, scale=0.5), b=real(12)),
    r"channels?.last|HWC|NHWC|layout|transpos|\border|permut|interleav|stride",
    group=12,
)
def _(values):
    w = np.ascontiguousarray(values["w"].reshape(9, 12).T).reshape(12, 1, 3, 3)
    return again("Conv", "x w b", {**values, "w": w}, group=12)


@case(
    "conv: results clamped to 0..6",
    "Conv",
    "x w b",
    {**IMAGE, "w": IMAGE["w"] * 3},
    r"[Rr]elu ?6|ReLU ?6|\b6\b|clamp|clip|bound",
)
def _(values):
    return np.clip(again("Conv", "x w b", values), 0, 6)


# a bias that broadcasts along the last axis
@case(
    "conv: bias taken by the column",
    "Conv",
    "x w b",
    IMAGE,
    r"bias.*(column|width|last axis|axis|broadcast|channel)|'b'.*(column|width|last axis|axis|broadcast|channel)"
    r"|(column|width|broadcast).*(bias|'b')",
    pads=[1, 0, 2, 1],
)
def _(values):
    y = again("Conv", "x w", values, pads=[1, 0, 2, 1])
    return y + values["b"][np.arange(y.shape[3]) % 9]


# results of the tile before, as when the store of the last tile comes too early
@case(
    "conv: last tile of columns repeats the tile before",
    "Conv",
    "x w b",
    WIDE,
    r"repeat|\btiles?\b|(tile|block) (before|earlier)|8 (columns )?(earlier|before|back)|columns (from|after|beyond) 16"
    r"|\blast 3|previous|stale",
)
def _(values):
    y = again("Conv", "x w b", values).copy()
    y[..., 16:] = y[..., 8:11]
    return y


# SAME without regard to dilations
@case(
    "conv: SAME padding of the undilated filter",
    "Conv",
    "x w b",
    IMAGE,
    r"\bpad|SAME|auto_pad|shift|offset|dilat",
    dilations=[2, 3],
    auto_pad="SAME_UPPER",
)
def _(values):
    return again("Conv", "x w b", values, dilations=[2, 3], pads=[1, 1, 3, 5])


UP = dict(x=real(2, 6, 7, 9), w=real(6, 5, 3, 4, scale=0.3), b=real(5))


@case(
    "convtranspose: cropped at the other end",
    "ConvTranspose",
    "x w b",
    UP,
    r"\bpad|crop|shift|offset|other end|\bend\b",
    strides=[2, 3],
    pads=[2, 0, 0, 1],
)
def _(values):
    return again("ConvTranspose", "x w b", values, strides=[2, 3], pads=[0, 1, 2, 0])


@case(
    "convtranspose: all groups take the filters of the first",
    "ConvTranspose",
    "x w b",
    {**UP, "w": real(6, 4, 3, 4, scale=0.3), "b": real(12)},
    r"along axis 0 are read repeatedly|"
    r"first (group|filters|half|third)|filters? of|group.*(same|first|another|filter|weight)|(same|first"
    r"|another).*group",
    group=3,
    strides=[2, 2],
)
def _(values):
    w = np.concatenate([values["w"][:2]] * 3)
    return again("ConvTranspose", "x w b", {**values, "w": w}, group=3, strides=[2, 2])


# a bias for every term of the sum
@case(
    "convtranspose: bias added with every tap",
    "ConvTranspose",
    "x w b",
    UP,
    r"([Bb]ias|'b').*(times|several|each|every|count|again|multipl|overlap|once|repeat|tap|term)|(times"
    r"|several|each|every|count|again|overlap|tap|term).*(bias|'b')",
    strides=[2, 3],
)
def _(values):
    y = again("ConvTranspose", "x w", values, strides=[2, 3])
    ones = dict(x=np.ones((1, 1, 7, 9), F32), w=np.ones((1, 1, 3, 4), F32))
    return y + again("ConvTranspose", "x w", ones, strides=[2, 3]) * values["b"][:, None, None]


def windows(x, size, strides, pads, shape, take, start=lambda at: at):
    """Pool windows."""
    y = np.zeros((*x.shape[:2], *shape), F32)
    for i in range(shape[0]):
        for j in range(shape[1]):
            top, left = start(i * strides[0] - pads[0]), start(j * strides[1] - pads[1])
            part = x[:, :, max(top, 0) : top + size[0], max(left, 0) : left + size[1]]
            y[:, :, i, j] = take(part)
    return y


# compare https://github.com/ggml-org/llama.cpp/pull/9763
@case(
    "maxpool: windows in the padding moved inside",
    "MaxPool",
    "x",
    dict(x=real(2, 6, 13, 17)),
    r"\bpad|window|shift|clamp|moved|\bstart",
    kernel_shape=[4, 5],
    strides=[2, 3],
    pads=[3, 4, 1, 2],
)
def _(values):
    return windows(values["x"], (4, 5), (2, 3), (3, 4), (7, 7), lambda p: p.max((2, 3)), lambda at: max(at, 0))


@case(
    "maxpool: int8 codes compared without sign",
    "MaxPool",
    "x",
    dict(x=i8(-128, 128, 2, 6, 13, 17)),
    r"sign|uint8|two.s complement|128|negative",
    kernel_shape=[2, 3],
    strides=[2, 1],
)
def _(values):
    x = values["x"].view(np.uint8)
    return again("MaxPool", "x", {"x": x}, kernel_shape=[2, 3], strides=[2, 1]).view(np.int8)


@case(
    "averagepool: divided by the square of the height",
    "AveragePool",
    "x",
    dict(x=real(2, 6, 13, 17) + 0.5),
    r"divid|divisor|factor|\btimes\b|scale|5/3|1\.66|1\.67|count",
    kernel_shape=[3, 5],
    strides=[2, 2],
)
def _(values):
    return again("AveragePool", "x", values, kernel_shape=[3, 5], strides=[2, 2]) * F32(5 / 3)


def linear(x, scales, weight=lambda t: t, outside=None, steps=None):
    """Resize linearly with half pixels."""
    y = x.astype(F64)
    for axis, scale, step in zip((2, 3), scales, steps or scales, strict=True):
        size = y.shape[axis]
        at = (np.arange(int(size * scale)) + 0.5) / step - 0.5
        low = np.floor(at).astype(int)
        t = weight(at - low).reshape(-1, *[1] * (3 - axis))
        parts = []
        for index in (low, low + 1):
            part = np.take(y, np.clip(index, 0, size - 1), axis)
            if outside is not None:
                inside = ((index >= 0) & (index < size)).reshape(-1, *[1] * (3 - axis))
                part = np.where(inside, part, outside)
            parts.append(part)
        y = parts[0] * (1 - t) + parts[1] * t
    return y.astype(F32)


RESIZED = dict(x=real(1, 4, 7, 9) + 0.4, s=np.array([1, 1, 2, 3], F32))
RESIZE = ["x", "", "s"]


@case(
    "resize: weights of the two neighbours exchanged",
    "Resize",
    RESIZE,
    RESIZED,
    r"weight|fraction|neighbou?rs?|swap|exchang|1 - t",
    mode="linear",
)
def _(values):
    return linear(values["x"], (2, 3), weight=lambda t: 1 - t)


@case(
    "resize: nearest with halves rounded up",
    "Resize",
    RESIZE,
    dict(x=real(2, 5, 22, 34), s=np.array([1, 1, 0.5, 0.5], F32)),
    r"round|ceil|half|\bties?\b|nearest|one (pixel|later|further)|shift|offset",
    mode="nearest",
)
def _(values):
    return again("Resize", RESIZE, values, mode="nearest", nearest_mode="ceil")


@case(
    "resize: neighbours outside the image read as 0",
    "Resize",
    RESIZE,
    RESIZED,
    r"zeros?\b|padd|constant|(as|reads?|with|by|is|are) 0\b|not clamp",
    mode="linear",
)
def _(values):
    return linear(values["x"], (2, 3), outside=0.0)


@case(
    "resize: cubic computed as linear",
    "Resize",
    RESIZE,
    RESIZED,
    r"linear",
    mode="cubic",
)
def _(values):
    return again("Resize", RESIZE, values, mode="linear")


# one scale for both axes
@case(
    "resize: scale of the height used for the width",
    "Resize",
    RESIZE,
    RESIZED,
    r"scale|factor|both axes|coordinate|same step|step of",
    mode="linear",
)
def _(values):
    return linear(values["x"], (2, 3), steps=(2, 2))


SAMPLED = dict(x=real(2, 4, 9, 11), x2=real(2, 7, 12, 2, scale=0.9))


@case(
    "gridsample: reflection computed as border",
    "GridSample",
    "x x2",
    SAMPLED,
    r"border|clamp|edge|padding_mode|reflect",
    padding_mode="reflection",
)
def _(values):
    return again("GridSample", "x x2", values, padding_mode="border")


# https://github.com/pytorch/pytorch/issues/171602
@case(
    "gridsample: grid read with its coordinates first",
    "GridSample",
    "x x2",
    SAMPLED,
    r"stride|layout|transpos|contiguous|coordinates? first|permut|planar|channels?.first|\border",
)
def _(values):
    grid = np.ascontiguousarray(np.moveaxis(values["x2"].reshape(2, 2, 7, 12), 1, 3))
    return again("GridSample", "x x2", {**values, "x2": grid})


# modulation left out
@case(
    "deformconv: mask ignored",
    "DeformConv",
    ["x", "w", "x2", "b", "x3"],
    dict(
        x=real(1, 4, 9, 11),
        w=real(6, 4, 3, 3, scale=0.4),
        x2=real(1, 18, 7, 9, scale=0.7),
        b=real(6),
        x3=rng.random((1, 9, 7, 9)).astype(F32),
    ),
    r"mask|modulat|'x3'",
)
def _(values):
    return again("DeformConv", ["x", "w", "x2", "b"], values)


# --------------------------------------------------------------------------- attention, normalization, rotation

HEADS = dict(x=real(2, 6, 11, 12), x2=real(2, 2, 17, 12, scale=1.5), x3=real(2, 2, 17, 12))
QKV = "x x2 x3"
GROUPS = np.arange(6) // 3


def scores(v, scale=12**-0.5, heads=GROUPS):
    """Return the scores of six heads over two."""
    return v["x"].astype(F64) @ v["x2"][:, heads].astype(F64).swapaxes(2, 3) * scale


def attend(v, mask=0.0, scale=12**-0.5, heads=GROUPS, values_heads=GROUPS):
    """Return the attention of six heads over two."""
    return soft(scores(v, scale, heads) + mask) @ v["x3"][:, values_heads]


def flash(v, rescale=True, width=4):
    """Return the attention, computed over blocks of keys."""
    s, value = scores(v), v["x3"][:, GROUPS].astype(F64)
    top = np.full((*s.shape[:3], 1), -np.inf)
    total, y = np.zeros_like(top), np.zeros((*s.shape[:3], value.shape[3]))
    for at in range(0, s.shape[3], width):
        part = s[..., at : at + width]
        new = np.maximum(top, part.max(-1, keepdims=True))
        p, factor = np.exp(part - new), np.exp(top - new)
        total = total * factor + p.sum(-1, keepdims=True)
        y = y * (factor if rescale else 1) + p @ value[:, :, at : at + width]
        top = new
    return y / total


@case(
    "attention: result so far not rescaled to the new maximum",
    "Attention",
    QKV,
    HEADS,
    r"rescal|online|running (max|sum)|maximum|flash|blocks? of keys|correction|accumulat",
    opset=23,
)
def _(values):
    return flash(values, rescale=False)


# compare https://github.com/tenstorrent/tt-metal/issues/20715: keys that pad the last tile
@case(
    "attention: padded keys take part in the softmax",
    "Attention",
    QKV,
    HEADS,
    r"\bpad|(extra|additional|more|15) (keys?|columns?|terms?|scores?|zeros?)|tile|denominator"
    r"|sum of (the )?exp|normali[sz]",
    opset=23,
)
def _(values):
    s = np.pad(scores(values), ((0, 0), (0, 0), (0, 0), (0, 15)))
    return soft(s)[..., :17] @ values["x3"][:, GROUPS]


@case(
    "attention: causal mask hides the query's own key",
    "Attention",
    QKV,
    HEADS,
    r"causal|diagonal|mask|strict|offset|own key|itself",
    opset=23,
    is_causal=1,
)
def _(values):
    mask = np.where(np.tril(np.ones((11, 17)), -1) > 0, 0, -1e30)
    y = attend(values, mask)
    y[:, :, 0] = 0
    return y


# https://github.com/vllm-project/vllm-ascend/issues/15503
@case(
    "attention: mask beyond the eighth key ignored",
    "Attention",
    "x x2 x3 m",
    {**HEADS, "m": rng.random((11, 17)) > 0.5},
    r"(mask|'m').*(8|eight|beyond|first|after|ignor|\bend|part|rest|tail|left)|(ignor|not appl"
    r"|without).*(mask|'m')",
    opset=23,
)
def _(values):
    mask = values["m"].copy()
    mask[:, 8:] = True
    return again("Attention", "x x2 x3 m", {**values, "m": mask}, opset=23)


# compare https://github.com/tenstorrent/tt-metal/issues/39910: offsets of the mask by the batch
@case(
    "attention: every batch takes the mask of the first",
    "Attention",
    "x x2 x3 m",
    {**HEADS, "m": real(2, 1, 11, 17, scale=3)},
    r"mask.*(batch|first|broadcast|index 0)|'m'.*(batch|first|broadcast|index 0)|(batch|first|broadcast).*(mask|'m')",
    opset=23,
)
def _(values):
    return again("Attention", "x x2 x3 m", {**values, "m": values["m"][[0, 0]]}, opset=23)


# https://github.com/BobMcDear/attorch/issues/14
@case(
    "attention: every query head takes the first key head",
    "Attention",
    QKV,
    HEADS,
    r"head.*(first|same|group|broadcast|map|another|other|\b0\b)|(first|same|another|other|wrong) (key "
    r"|value )?head|broadcast|group",
    opset=23,
)
def _(values):
    return attend(values, heads=np.zeros(6, int), values_heads=np.zeros(6, int))


@case(
    "attention: values of other heads than the keys",
    "Attention",
    QKV,
    HEADS,
    r"head.*(another|other|order|map|interleav|turn|modul|permut|group)"
    r"|(another|other|wrong|different|order of( the)?) (key |value )?heads?|interleav|'x3'.*(order|permut)",
    opset=23,
)
def _(values):
    return attend(values, values_heads=np.arange(6) % 2)


# the cap turns the -inf of hidden keys into a finite score
@case(
    "attention: softcap applied after the mask",
    "Attention",
    "x x2 x3 m",
    {**HEADS, "m": rng.random((11, 17)) > 0.5},
    r"softcap|\bcap|mask|\border|tanh|'m'",
    opset=23,
    softcap=1.5,
)
def _(values):
    s = np.where(values["m"], scores(values), -np.inf)
    return soft(1.5 * np.tanh(s / 1.5)) @ values["x3"][:, GROUPS]


@case(
    "attention: given scale ignored",
    "Attention",
    QKV,
    HEADS,
    r"scale|sqrt|root|factor|temperature|divid",
    opset=23,
    scale=0.9,
)
def _(values):
    return attend(values)


# heads padded to a power of two, and the scale with them
@case(
    "attention: scale of the padded head size",
    "Attention",
    QKV,
    {**HEADS, "x": HEADS["x"] * 4},
    r"multiplied by 0\.866|"
    r"scale|sqrt|root|factor|temperature|divid|\b16\b|0\.25|head size",
    opset=23,
)
def _(values):
    return attend(values, scale=0.25)


PAST = ["x", "x2", "x3", "", "x4", "x5"]


@case(
    "attention: keys of the past not attended to",
    "Attention",
    PAST,
    {**HEADS, "x4": real(2, 2, 9, 12), "x5": real(2, 2, 9, 12)},
    r"\bpast\b|cache|'x4'|'x5'|earlier keys|KV length|first 9",
    outs=3,
    opset=23,
)
def _(values):
    _, key, value = computed("Attention", PAST, 3, values, opset=23, domain="")
    return [again("Attention", QKV, values, opset=23), key, value]


PACKED = dict(x=real(2, 13, 20), w=real(20, 72, scale=0.4), b=real(72, scale=0.5), l=np.array([8, 11], np.int32))


# projections stored head by head (compare the query_key_value of GPT-NeoX)
@case(
    "attention: projections taken head by head",
    "Attention",
    "x w b",
    PACKED,
    r"interleav|\border|layout|permut|pack|reshape|head by head|head.first|per head",
    domain=MS,
    num_heads=3,
)
def _(values):
    at = np.arange(72).reshape(3, 3, 8).swapaxes(0, 1).ravel()
    moved = {"x": values["x"], "w": np.ascontiguousarray(values["w"][:, at]), "b": values["b"][at]}
    return again("Attention", "x w b", moved, domain=MS, num_heads=3)


@case(
    "attention: lengths of the keys ignored",
    "Attention",
    "x w b l",
    PACKED,
    r"length|mask|'l'|\bpad|KV",
    domain=MS,
    num_heads=3,
)
def _(values):
    return again("Attention", "x w b", values, domain=MS, num_heads=3)


BIASED = ["x", "x2", "x3", "", "", "m"]


@case(
    "multiheadattention: bias of the first head for all",
    "MultiHeadAttention",
    BIASED,
    dict(x=real(2, 9, 24), x2=real(2, 13, 24), x3=real(2, 13, 24), m=real(1, 3, 9, 13, scale=2)),
    r"(bias|mask|'m').*(head|first|broadcast)|(head|first|broadcast).*(bias|mask|'m')",
    domain=MS,
    num_heads=3,
)
def _(values):
    return again("MultiHeadAttention", BIASED, {**values, "m": values["m"][:, [0, 0, 0]]}, domain=MS, num_heads=3)


# compare https://github.com/tenstorrent/tt-metal/issues/52040: sums of a part of the row
@case(
    "softmax: each block of 16 normalized by itself",
    "Softmax",
    "x",
    dict(x=real(19, 48, scale=2)),
    r"\bblocks?\b|\btiles?\b|16 (elements|columns|values)|in parts|segment|chunk|groups? of",
    axis=-1,
)
def _(values):
    return soft(values["x"].reshape(19, 3, 16)).reshape(19, 48)


@case(
    "softmax: padding of the row to 64 counted",
    "Softmax",
    "x",
    dict(x=real(19, 43, scale=0.7)),
    r"\bpad|denominator|\b64\b|\b21\b|extra|additional|sum (over|of)|normali[sz]|do(es)? not (sum|add up)"
    r"|too (small|large)",
    axis=-1,
)
def _(values):
    return soft(np.pad(values["x"], ((0, 0), (0, 21))))[:, :43]


PLANES = dict(x=real(9, 5, 26) + real(9, 5, 1), g=real(5, 26), b=real(5, 26))


# axes other than the last left out
@case(
    "layernorm: statistics over the last axis alone",
    "LayerNormalization",
    "x g b",
    PLANES,
    r"\baxis\b|\baxes\b|(each|every) (row|of the 5)|last (axis|dimension)|dimension",
    axis=1,
)
def _(values):
    x = values["x"].astype(F64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * values["g"] + values["b"]


ROWS = dict(
    x=real(21, 48) * np.exp(real(21, 1)) + real(21, 48, scale=0.2) + real(21, 1, scale=2), g=real(48), b=real(48)
)


@case(
    "layernorm: statistics of the first 32 of 48",
    "LayerNormalization",
    "x g b",
    ROWS,
    r"\b32\b|first part|only (a |the first )?part|tail|last 16|subset|two thirds",
)
def _(values):
    x = values["x"].astype(F64)
    part = x[:, :32]
    return (x - part.mean(-1, keepdims=True)) / np.sqrt(part.var(-1, keepdims=True) + 1e-5) * values["g"] + values["b"]


# compare https://github.com/sonots/cumo/pull/423: without the barrier between two rows of a block
@case(
    "layernorm: statistics of the row before",
    "LayerNormalization",
    "x g b",
    ROWS,
    r"(row|line|position|token) (before|above)|previous|preceding|neighbou?r|(an)?other row|one row|shift"
    r"|stale|earlier",
)
def _(values):
    x = values["x"].astype(F64)
    mean, var = np.roll(x.mean(-1, keepdims=True), 1, 0), np.roll(x.var(-1, keepdims=True), 1, 0)
    return (x - mean) / np.sqrt(var + 1e-5) * values["g"] + values["b"]


@case(
    "rmsnorm: epsilon at its default",
    "RMSNormalization",
    "x g",
    {"x": ROWS["x"] * F32(0.3), "g": ROWS["g"]},
    r"epsilon|\beps\b|1e-0?5",
    opset=23,
    epsilon=0.15,
)
def _(values):
    return again("RMSNormalization", "x g", values, opset=23)


GROUPED = dict(x=real(3, 12, 6, 5) + real(3, 12, 1, 1), g=real(12), b=real(12))


@case(
    "groupnorm: scale taken by the group",
    "GroupNormalization",
    "x g b",
    GROUPED,
    r"'g' along axis 0 is read 4 times|"
    r"(scale|'g').*(group|channel|index)|(group|channel).*(scale|'g')|first scales",
    num_groups=3,
)
def _(values):
    return again("GroupNormalization", "x g b", {**values, "g": values["g"][np.arange(12) // 4]}, num_groups=3)


# compare https://github.com/microsoft/onnxruntime/issues/22994: kernels for NHWC
@case(
    "batchnorm: parameters taken by the column",
    "BatchNormalization",
    "x g b m r",
    dict(
        x=real(2, 8, 6, 13),
        g=real(8),
        b=real(8),
        m=real(8),
        r=np.geomspace(0.1, 4, 8).astype(F32),
    ),
    r"(parameter|'[gbmr]'|scale|mean|variance|statistic).*(column|width|last axis|axis)|channels?.last"
    r"|NHWC|another (axis|dimension)|last axis",
)
def _(values):
    g, b, m, r = (values[name][np.arange(13) % 8] for name in "gbmr")
    return (values["x"] - m) / np.sqrt(r + F32(1e-5)) * g + b


@case(
    "lrn: window begins at the channel itself",
    "LRN",
    "x",
    dict(x=real(2, 14, 5, 7, scale=3)),
    r"window|cent|shift|one.sided|neighbou?rs?|following|next channels|offset|begin|start",
    size=5,
    alpha=0.4,
    beta=0.75,
    bias=1.0,
)
def _(values):
    x = values["x"].astype(F64)
    squares = np.pad(x**2, ((0, 0), (0, 4), (0, 0), (0, 0)))
    return x / (1 + 0.08 * sum(squares[:, k : k + 14] for k in range(5))) ** 0.75


ANGLES = np.arange(48)[:, None] / 30 ** (np.arange(8) / 8)
ROTARY = dict(
    x=real(2, 3, 9, 16),
    p=np.stack([np.arange(9) + 5, np.arange(9) + 13]).astype(np.int64),
    cc=np.cos(ANGLES).astype(F32),
    ss=np.sin(ANGLES).astype(F32),
)
ROTARY_INPUTS = "x cc ss p"


# https://github.com/NVIDIA/Megatron-LM/issues/453
@case(
    "rotary: positions counted from 0",
    "RotaryEmbedding",
    ROTARY_INPUTS,
    ROTARY,
    r"position|offset|'p'|from 0|start",
    opset=23,
)
def _(values):
    return again("RotaryEmbedding", ROTARY_INPUTS, {**values, "p": np.stack([np.arange(9)] * 2)}, opset=23)


@case(
    "rotary: rows of the caches taken with twice the stride",
    "RotaryEmbedding",
    ROTARY_INPUTS,
    ROTARY,
    r"stride|twice|doubl|every (other|second)|two apart|\b2 \*|\* 2\b|position|angle|row of the cache",
    opset=23,
)
def _(values):
    return again("RotaryEmbedding", ROTARY_INPUTS, {**values, "p": values["p"] * 2}, opset=23)


# https://github.com/flagos-ai/FlagGems/issues/5142
@case(
    "rotary: second half computed from the rotated first",
    "RotaryEmbedding",
    ROTARY_INPUTS,
    ROTARY,
    r"in.?place|overwrit|already|rotated (first|values|half)|new (first|value)|aliasing|hazard|second half",
    opset=23,
)
def _(values):
    c, s = values["cc"][values["p"]][:, None], values["ss"][values["p"]][:, None]
    a = values["x"][..., :8] * c - values["x"][..., 8:] * s
    return np.concatenate([a, values["x"][..., 8:] * c + a * s], -1)


# --------------------------------------------------------------------------- products

GEMM = dict(x=real(17, 46), w=real(46, 23), c=real(23, scale=5))


@case(
    "gemm: alpha and beta exchanged",
    "Gemm",
    "x w c",
    GEMM,
    r"alpha|beta",
    alpha=0.4,
    beta=1.7,
)
def _(values):
    return again("Gemm", "x w c", values, alpha=1.7, beta=0.4)


@case(
    "gemm: C added by each of three parts of K",
    "Gemm",
    "x w c",
    GEMM,
    r"('c'|\bC\b|[Bb]ias).*(\b3\b|three|times|multipl|again|repeated|factor|scale)|three times|3 times"
    r"|times 3|tripl|thrice|(\b3\b|three).*('c'|\bC\b|bias)",
)
def _(values):
    return again("Gemm", "x w c", {**values, "c": 3 * values["c"]})


@case(
    "gemm: result rectified",
    "Gemm",
    "x w c",
    GEMM,
    r"[Rr]elu|ReLU|rectif|clamp|clip|max\(|at least 0|cut off|negative.*(0|zero)",
)
def _(values):
    return np.maximum(again("Gemm", "x w c", values), 0)


# compare https://github.com/huggingface/candle/pull/3960: broadcast batches folded wrongly
@case(
    "matmul: broadcast batches of A taken in turn",
    "MatMul",
    "x x2",
    dict(x=real(3, 1, 11, 22), x2=real(1, 4, 22, 9)),
    r"batch.*(order|turn|modul|another|other)|broadcast|modul|in turn|matri(x|ces) of (an)?other|stack",
)
def _(values):
    at = np.arange(12)
    return (values["x"][at % 3, 0] @ values["x2"][0, at % 4]).reshape(3, 4, 11, 9)


# compare https://github.com/modular/modular/pull/5701: the last tile is loaded in part
@case(
    "matmul: rest of the last tile of K from the tile before",
    "MatMul",
    "x w",
    dict(x=real(17, 70), w=real(70, 23)),
    r"stale|tail|tile|(left ?over|old|previous|earlier) |not (cleared|zeroed|masked)|twice|again|counted",
)
def _(values):
    x, w = values["x"], values["w"]
    return x @ w + x[:, 38:64] @ w[38:64]


@case(
    "matmul: tiles of B one step late",
    "MatMul",
    "x w",
    dict(x=real(17, 64), w=real(64, 23)),
    r"(tile|block|row)s?.*(late|before|behind|previous|shift|earlier|off by one|one step|rotat|cycl)"
    r"|(late|previous|shifted|earlier|rotated).*(tile|block|row)|16 rows",
)
def _(values):
    return values["x"] @ np.roll(values["w"], 16, 0)


@case(
    "matmul: result stored by columns",
    "MatMul",
    "x w",
    dict(x=real(17, 46), w=real(46, 23)),
    r"column.major|transpos|\border|stride|layout|reshape|by columns|Fortran",
)
def _(values):
    return (values["x"] @ values["w"]).T.reshape(17, 23)


@case(
    "fusedmatmul: alpha applied twice",
    "FusedMatMul",
    "x w",
    dict(x=real(3, 17, 46), w=real(46, 23)),
    r"alpha|twice|squared|factor|\btimes\b|scale",
    domain=MS,
    alpha=0.37,
)
def _(values):
    return again("FusedMatMul", "x w", values, domain=MS, alpha=0.37**2)


@case(
    "einsum: second operand read with heads ahead of positions",
    "Einsum",
    "x x2",
    dict(x=real(2, 9, 3, 14), x2=real(2, 11, 3, 14)),
    r"\border|layout|transpos|stride|permut|reshape|memory|axes",
    equation="bqhd,bkhd->bhqk",
)
def _(values):
    k = values["x2"].reshape(2, 3, 11, 14).swapaxes(1, 2)
    return np.einsum("bqhd,bkhd->bhqk", values["x"], k)


@case(
    "einsum: one row of the second operand for all",
    "Einsum",
    "x w",
    dict(x=real(2, 7, 9, 12), w=real(7, 5, 12)),
    r"of 'w' along axis 0 is read for all|"
    r"broadcast|stride 0|first (row|matrix|slice|entry|one)|index 0|\[0\]|always 0|same (row|matrix|slice)",
    equation="bhwc,hkc->bhwk",
)
def _(values):
    return np.einsum("bhwc,kc->bhwk", values["x"], values["w"][0])


@case(
    "matmul: A rounded to float8",
    "MatMul",
    "x w",
    dict(x=real(17, 46), w=real(46, 23)),
    r"float8|fp8|FP8|e4m3|E4M3|8.bits?|3 bits|(3|4) (mantissa|significant) bits|round|precision",
)
def _(values):
    return values["x"].astype(ml_dtypes.float8_e4m3fn).astype(F32) @ values["w"]


# https://github.com/NVIDIA/warp/issues/1667
@case(
    "matmul: rows of A taken 48 elements apart",
    "MatMul",
    "x w",
    dict(x=real(17, 46), w=real(46, 23)),
    r"stride|leading dimension|apart|pitch|\b48\b|padded|row length|pad|offset",
)
def _(values):
    at = np.arange(17)[:, None] * 48 + np.arange(46)
    return values["x"].ravel()[at % (17 * 46)] @ values["w"]


@case(
    "matmul: neighbouring rows of B exchanged",
    "MatMul",
    "x w",
    dict(x=real(17, 46), w=real(46, 23)),
    r"(swap|exchang|permut|revers|\border|pair|interleav|neighbou?ring)",
)
def _(values):
    return values["x"] @ values["w"][np.arange(46) ^ 1]


# compare https://github.com/NVIDIA/Fuser/issues/3963: the last rows of a size that 16 does not divide
@case(
    "matmul: last columns not written",
    "MatMul",
    "x w",
    dict(x=real(17, 46), w=real(46, 23)),
    r"never written|"
    r"not written|zeros?\b|left out|not (stored|computed)|missing|unwritten|remainder|multiple of 16",
)
def _(values):
    y = values["x"] @ values["w"]
    y[:, 16:] = 0
    return y


# https://github.com/Mojo-Numerics-and-Algorithms-group/NuMojo/pull/382
@case(
    "matmul: consecutive elements of A where one belongs to all columns",
    "MatMul",
    "x w",
    dict(x=real(17, 46), w=real(46, 16)),
    r"broadcast|consecutive|vector (load|width)|shift|following|next (element|lane|column)|diagonal|lanes?|offset",
)
def _(values):
    a = np.pad(values["x"].ravel(), (0, 16))
    at = np.arange(17)[:, None, None] * 46 + np.arange(46)[:, None] + np.arange(16)
    return np.einsum("mkn,kn->mn", a[at], values["w"])


# --------------------------------------------------------------------------- movement


@case(
    "gather: every batch reads the first",
    "Gather",
    "x i",
    dict(x=real(4, 15, 9), i=rng.permutation(15)[:11].astype(np.int64)),
    r"along axis 0 is read for all|"
    r"batch.*(first|same|\b0\b|stride|offset|another)|(first|same) (batch|image|slice|matrix)|index 0"
    r"|broadcast|stride|outer (offset|axis|stride)",
    axis=1,
)
def _(values):
    return np.repeat(values["x"][:1, values["i"]], 4, 0)


@case(
    "gatherelements: indices taken as offsets into the memory",
    "GatherElements",
    "x i",
    dict(x=real(13, 21), i=rng.integers(0, 21, (13, 17))),
    r"of 'x' along axis 0 is read for all|"
    r"flat|offset|memory|first row|row 0|linear|base|stride",
    axis=1,
)
def _(values):
    return values["x"].ravel()[values["i"]]


PLACES = np.stack(np.unravel_index(rng.permutation(13 * 14)[:120], (13, 14)), 1)


# https://github.com/ROCm/AMDMIGraphX/pull/4919
@case(
    "scatternd: indices read with exchanged strides",
    "ScatterND",
    "x i u",
    dict(x=real(14, 14, 3), i=PLACES.astype(np.int64), u=real(120, 3, scale=3)),
    r"stride|transpos|layout|column.major|contiguous|\border|memory|planar|(wrong|other|different) (place"
    r"|position|cell|row|ind)",
)
def _(values):
    i = np.ascontiguousarray(values["i"].reshape(2, 120).T)
    return again("ScatterND", "x i u", {**values, "i": i})


@case(
    "scatterelements: product without the value that was there",
    "ScatterElements",
    "x i u",
    dict(x=real(13, 21) + 3, i=rng.integers(0, 13, (9, 21)), u=real(9, 21) + 2),
    r"initial|original|'x'|(old|existing|previous|own|first) (value|data|element)|starts? (at|from"
    r"|with) (1|one)|overwrit|"
    r"data (is|are)? ?(ignored|left out)|not included",
    axis=0,
    reduction="mul",
)
def _(values):
    x, touched = values["x"].copy(), np.zeros((13, 21), bool)
    np.put_along_axis(touched, values["i"], True, 0)
    x[touched] = 1
    return again("ScatterElements", "x i u", {**values, "x": x}, axis=0, reduction="mul")


# https://github.com/tenstorrent/tt-metal/pull/56875
@case(
    "scatterelements: leading axes of data and indices fused",
    "ScatterElements",
    "x i u",
    dict(
        x=real(4, 6, 13),
        i=np.argsort(rng.random((3, 5, 13)), -1)[..., :7].astype(np.int64),
        u=real(3, 5, 7, scale=3),
    ),
    r"fus|flatten|collaps|leading|stride|extent|linear|merg|rows? (in sequence|one after)|shape of|contiguous",
    axis=2,
)
def _(values):
    y = values["x"].reshape(24, 13).copy()
    np.put_along_axis(y[:15], values["i"].reshape(15, 7), values["u"].reshape(15, 7), 1)
    return y.reshape(4, 6, 13)


@case(
    "gathernd: offsets from the size of the wrong axis",
    "GatherND",
    "x i",
    dict(x=real(13, 21), i=np.stack([rng.integers(0, 13, 230), rng.integers(0, 21, 230)], 1)),
    r"stride|offset|size of (the )?(other|wrong|first)|linear|flat|pitch|times 13|\* 13|13 \*|address",
)
def _(values):
    return values["x"].ravel()[values["i"] @ [13, 1]]


@case(
    "topk: largest magnitudes",
    "TopK",
    "x k",
    dict(x=real(23, 31), k=np.array([9], np.int64)),
    r"magnitude|absolute|\babs|regardless of (the )?sign|without (the )?sign|\|x",
    outs=2,
    axis=-1,
)
def _(values):
    at = np.argsort(-np.abs(values["x"]), -1, kind="stable")[:, :9]
    return [np.take_along_axis(values["x"], at, -1), at.astype(np.int64)]


# compare https://github.com/tenstorrent/tt-metal/issues/53466: places merged from several cores
@case(
    "topk: indices within blocks of 16",
    "TopK",
    "x k",
    dict(x=real(23, 61), k=np.array([9], np.int64)),
    r"modul|\bblocks?\b|\btiles?\b|local|within|relative|chunk|multiples? of 16|\b16 (less|apart)|% ?16"
    r"|offset",
    outs=2,
    axis=-1,
)
def _(values):
    y, at = computed("TopK", ["x", "k"], 2, values, opset=21, domain="", axis=-1)
    return [y, at % 16]


@case(
    "transpose: permutation inverted",
    "Transpose",
    "x",
    dict(x=real(7, 11, 13)),
    r"invers|invert|permut|\border|\bperm\b|transpos",
    perm=[1, 2, 0],
)
def _(values):
    return values["x"].transpose(2, 0, 1).reshape(11, 13, 7)


@case(
    "slice: step ignored",
    "Slice",
    "x s e a t",
    dict(
        x=real(13, 47),
        s=np.array([2], np.int64),
        e=np.array([44], np.int64),
        a=np.array([1], np.int64),
        t=np.array([3], np.int64),
    ),
    r"\bsteps?\b|'t'|consecutive|every (third|3)|stride|contiguous",
)
def _(values):
    return values["x"][:, 2:16]


@case(
    "pad: widths before and after exchanged",
    "Pad",
    "x p v",
    dict(x=real(11, 17), p=np.array([1, 5, 3, 2], np.int64), v=np.array(0.7, F32)),
    r"before|after|begin|\bend\b|\bends\b|other (end|side)|swap|exchang|shift|offset|start",
)
def _(values):
    return np.pad(values["x"], ((3, 1), (2, 5)), constant_values=0.7)


@case(
    "pad: wrap computed as reflect",
    "Pad",
    "x p",
    dict(x=real(11, 17), p=np.array([4, 6, 3, 7], np.int64)),
    r"reflect|mirror|wrap",
    mode="wrap",
)
def _(values):
    return again("Pad", "x p", values, mode="reflect")


# compare https://github.com/alibaba/MNN/issues/473: channels that are aligned to 4
@case(
    "concat: each part begins at a multiple of 4 channels",
    "Concat",
    "x x2 x3",
    dict(x=real(2, 6, 5, 7), x2=real(2, 7, 5, 7), x3=real(2, 9, 5, 7)),
    r"align|multiple|\bpad|offset|shift|\bgap|(begin|start)s? (at|too|later)|places? (late|on)",
    axis=1,
)
def _(values):
    y = np.zeros((2, 22, 5, 7), F32)
    y[:, :6], y[:, 8:15], y[:, 16:] = values["x"], values["x2"], values["x3"][:, :6]
    return y


@case(
    "depthtospace: rows and columns within the block exchanged",
    "DepthToSpace",
    "x",
    dict(x=real(2, 27, 4, 5)),
    r"interleaved in 3 blocks by 3|"
    r"swap|exchang|transpos|\border|rows and columns|within|permut|column.major",
    blocksize=3,
)
def _(values):
    x = values["x"].reshape(2, 3, 3, 3, 4, 5)
    return x.transpose(0, 3, 4, 2, 5, 1).reshape(2, 3, 12, 15)


@case(
    "expand: the whole memory repeated",
    "Expand",
    "x s",
    dict(x=real(9, 1, 13), s=np.array([9, 4, 13], np.int64)),
    r"memory|whole|repeat|modul|flat|stride|axis|broadcast|tiled?|period|cycl",
)
def _(values):
    return np.resize(values["x"], (9, 4, 13))


@case(
    "reversesequence: one element too few reversed",
    "ReverseSequence",
    "x l",
    dict(x=real(14, 6, 9), l=np.array([14, 9, 11, 6, 13, 8], np.int64)),
    r"'l' is one too small|"
    r"one (element|step|less|short|too few|fewer)|off by one|length|- ?1\b|minus (1|one)|too short",
    time_axis=0,
    batch_axis=1,
)
def _(values):
    return again("ReverseSequence", "x l", {**values, "l": values["l"] - 1}, time_axis=0, batch_axis=1)


@case(
    "onehot: negative indices give no place",
    "OneHot",
    "x d v",
    dict(x=rng.integers(-11, 11, (6, 13)), d=np.array(11, np.int64), v=np.array([0.25, 3], F32)),
    r"negative|from the end|below (0|zero)|wrap|sign",
)
def _(values):
    return np.where(values["x"][..., None] == np.arange(11), F32(3), F32(0.25))


# indices that pass a float16 tensor of a device
@case(
    "gather: indices rounded to float16",
    "Gather",
    "x i",
    dict(x=real(6000, 2), i=rng.integers(0, 6000, 190)),
    r"float16|half.precision|fp16|11 bits|2048|round|precision|even ind|multiples? of",
)
def _(values):
    return values["x"][values["i"].astype(np.float16).astype(int)]


# --------------------------------------------------------------------------- element-wise operators, reductions


@case(
    "cumsum: along the other axis",
    "CumSum",
    "x a",
    dict(x=real(14, 33), a=np.array(0, np.int64)),
    r"\baxis\b|\baxes\b|dimension|along (the )?(rows?|columns?)|across",
)
def _(values):
    return np.cumsum(values["x"], 1)


# https://github.com/tenstorrent/tt-metal/issues/7571
@case(
    "argmax: zeros of the padding win",
    "ArgMax",
    "x",
    dict(x=(real(180, 43) - 2.2).astype(F32)),
    r"\bpad|zeros?\b|index 43|beyond|out of range|past the end|at least 43",
    axis=1,
    keepdims=0,
)
def _(values):
    return np.argmax(np.pad(values["x"], ((0, 0), (0, 21))), 1)


# an identity of another operator in the generic reduction
@case(
    "reducemin: starts at 1",
    "ReduceMin",
    "x a",
    dict(x=real(17, 23, 5) + 1.5, a=np.array([2], np.int64)),
    r"start|initial|at most 1|clamp|clip|bound|\bcap|never (above|exceed)|(with|and|of) 1\b",
    keepdims=0,
)
def _(values):
    return np.minimum(values["x"].min(2), 1)


@case(
    "reducemean: mean of the means of unequal blocks",
    "ReduceMean",
    "x a",
    dict(x=real(17, 13, 41), a=np.array([2], np.int64)),
    r"\bblocks?\b|means? of|weight|unequal|last 9|\b32\b|tail|\bparts?\b|chunk|tile",
    keepdims=0,
)
def _(values):
    return (values["x"][..., :32].mean(-1) + values["x"][..., 32:].mean(-1)) / 2


@case(
    "reducel1: magnitudes not taken",
    "ReduceL1",
    "x a",
    dict(x=real(17, 13, 21) + 0.3, a=np.array([1], np.int64)),
    r"magnitude|absolute|\babs|\bsum\b|ReduceSum|sign",
)
def _(values):
    return values["x"].sum(1, keepdims=True)


@case(
    "reducelogsum: sum of the logarithms",
    "ReduceLogSum",
    "x a",
    dict(x=(rng.random((17, 13, 6)) + 0.4).astype(F32), a=np.array([2], np.int64)),
    r"sum of (the )?log|log\w* (of each|before|first|inside)|\border|product|exchang|swap|each (element|value)",
    keepdims=0,
)
def _(values):
    return np.log(values["x"]).sum(2)


# operands exchanged to broadcast the smaller one
# compare https://github.com/ggml-org/llama.cpp/pull/14817
@case(
    "mul: broadcast factor read on through its memory",
    "Mul",
    "x w",
    dict(x=real(4, 9, 13), w=real(4, 1, 13)),
    r"broadcast|memory|modul|flat|stride|\bcycl|wrap|repeat|axis|linear",
)
def _(values):
    return values["x"] * np.resize(values["w"], (4, 9, 13))


SELECTED = dict(x=rng.random((19, 28)) > 0.5, x2=real(19, 28), x3=real(19, 28))


@case(
    "elu: alpha ignored",
    "Elu",
    "x",
    dict(x=real(19, 28, scale=2)),
    r"alpha|\b1 (for|instead of|in place of|rather than)|default|slope|factor",
    alpha=0.35,
)
def _(values):
    return again("Elu", "x", values)


@case(
    "selu: gamma left out",
    "Selu",
    "x",
    dict(x=real(19, 28, scale=2)),
    r"gamma|1\.05|1\.5|0\.66|\bElu\b|factor|scale",
    gamma=1.5,
    alpha=1.2,
)
def _(values):
    return again("Elu", "x", values, alpha=1.2)


@case(
    "thresholdedrelu: threshold subtracted",
    "ThresholdedRelu",
    "x",
    dict(x=real(19, 28, scale=2)),
    r"0\.6 less|"
    r"subtract|minus|shift|- ?alpha|alpha is|- ?0\.6|less alpha|offset",
    alpha=0.6,
)
def _(values):
    return np.maximum(values["x"] - F32(0.6), 0)


@case(
    "shrink: bias ignored",
    "Shrink",
    "x",
    dict(x=real(19, 28, scale=2)),
    r"bias|0\.45|hard|unchanged|offset|shift",
    lambd=0.8,
    bias=0.45,
)
def _(values):
    return again("Shrink", "x", values, lambd=0.8)


@case(
    "atan: series taken beyond 1",
    "Atan",
    "x",
    dict(x=real(19, 28, scale=1.2)),
    r"series|polynom|Taylor|\brange\b|terms|approximat|beyond 1|\|x\| ?>|outside",
)
def _(values):
    x = values["x"].astype(F64)
    return sum((-1) ** k * x ** (2 * k + 1) / (2 * k + 1) for k in range(5))


@case(
    "log: 0.01 added to the argument",
    "Log",
    "x",
    dict(x=np.exp(real(19, 28, scale=2) - 2.5).astype(F32)),
    r"epsilon|0\.01|1e-0?2|added|offset|x \+|floor|plus|small constant",
)
def _(values):
    return np.log(values["x"] + F32(0.01))


@case(
    "pow: first exponent for all",
    "Pow",
    "x w",
    dict(x=(rng.random((19, 28)) * 2 + 0.3).astype(F32), w=(rng.random(28) * 3 - 1).astype(F32)),
    r"exponent|broadcast|scalar|'w'|index 0|\[0\]",
)
def _(values):
    return values["x"] ** values["w"][0]


@case(
    "mod: fmod computed with the floor",
    "Mod",
    "x w",
    dict(x=real(19, 28, scale=6), w=(real(28) + np.sign(real(28)) * 2).astype(F32)),
    r"fmod|floor|sign of (the )?(divisor|second|'w'|dividend|first)|trunc|Python|toward",
    fmod=1,
)
def _(values):
    return np.mod(values["x"], values["w"])


@case(
    "cast: to bool by way of an integer",
    "Cast",
    "x",
    dict(x=real(19, 28)),
    r"integer|truncat|\bint|magnitudes? (below|less|under)|below 1|less than 1|fraction|round|\|x\| ?[<>]",
    to=9,
)
def _(values):
    return values["x"].astype(np.int32) != 0


@case(
    "min: third input left out",
    "Min",
    "x x2 x3",
    dict(x=real(19, 28), x2=real(19, 28), x3=real(28)),
    r"'x3'|third|last input|first two|only two|two inputs|left out|ignored",
)
def _(values):
    return np.minimum(values["x"], values["x2"])


@case(
    "gelu: erf of the magnitude",
    "Gelu",
    "x",
    dict(x=real(19, 28, scale=1.5)),
    r"magnitude|absolute|\babs|\bsign|even|\bodd\b|\|x",
)
def _(values):
    x = values["x"].astype(F64)
    return 0.5 * x * (1 + np.vectorize(math.erf)(np.abs(x) / math.sqrt(2)))


@case(
    "biasgelu: bias added after the function",
    "BiasGelu",
    "x b",
    dict(x=real(19, 28), b=real(28)),
    r"([Bb]ias|'b').*(after|outside|not (inside|in|part)|result)|after (the )?(function|[Gg]elu|GELU"
    r"|activation)|outside",
    domain=MS,
)
def _(values):
    return again("Gelu", "x", values) + values["b"]


@case(
    "prelu: slope of the first channel for all",
    "PRelu",
    "x w",
    dict(x=real(2, 9, 6, 7), w=(rng.random((9, 1, 1)) + 0.05).astype(F32)),
    r"first (slope|channel)|slope|'w'|broadcast|scalar|index 0",
)
def _(values):
    return again("PRelu", "x w", {**values, "w": values["w"][:1]})


# 0 times infinity is not a number
@case(
    "where: selection by products, with infinities",
    "Where",
    "x x2 x3",
    {**SELECTED, "x2": np.where(rng.random((19, 28)) > 0.6, F32(-np.inf), SELECTED["x2"])},
    r"NaN|nan|not a number|infinit|\binf\b|arithmetic|0 ?[*·] ?inf|product|multipl",
)
def _(values):
    with np.errstate(all="ignore"):
        c = values["x"].astype(F32)
        return c * values["x2"] + (1 - c) * values["x3"]
