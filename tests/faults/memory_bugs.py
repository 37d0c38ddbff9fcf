"""Wrong kernels that err in a tile or its tail, or in the width of what they read, as public reports describe.

They are part of `operator_bugs.py --further`. The wrong results come from NumPy and ONNX Runtime, not from qdebug.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import again, case, real, rng

F32, F64 = np.float32, np.float64

IMAGE = dict(x=real(2, 6, 14, 12), w=real(16, 6, 3, 3, scale=0.3), b=real(16))
GEMM = dict(x=real(19, 24), w=real(24, 20, scale=0.4), c=real(20))


def mixed(right, wrong, *part):
    """Return a right result of which a part is wrong."""
    result = right.copy()
    result[part] = wrong[part]
    return result


@case("conv: no bias in the last rows", "Conv", "x w b", IMAGE, r"last 4 rows.*bias", pads=[1] * 4)
def _(values):
    right, bare = again("Conv", "x w b", values, pads=[1] * 4), again("Conv", "x w", values, pads=[1] * 4)
    return mixed(right, bare, Ellipsis, slice(-4, None), slice(None))


@case(
    "conv: no bias in a block of channels",
    "Conv",
    "x w b",
    IMAGE,
    r"(channels? 4 to 7|elements 4 to 7 of 'b').*|bias.*4 to 7",
    pads=[1] * 4,
)
def _(values):
    right, bare = again("Conv", "x w b", values, pads=[1] * 4), again("Conv", "x w", values, pads=[1] * 4)
    return mixed(right, bare, slice(None), slice(4, 8))


@case("conv: no bias from position 128 on", "Conv", "x w b", IMAGE, r"bias", pads=[1] * 4)
def _(values):
    right, bare = again("Conv", "x w b", values, pads=[1] * 4), again("Conv", "x w", values, pads=[1] * 4)
    result = right.reshape(2, 16, -1).copy()
    result[..., 128:] = bare.reshape(2, 16, -1)[..., 128:]
    return result.reshape(right.shape)


@case("conv: no bias in a tile of channels and rows", "Conv", "x w b", IMAGE, r"bias", pads=[1] * 4)
def _(values):
    right, bare = again("Conv", "x w b", values, pads=[1] * 4), again("Conv", "x w", values, pads=[1] * 4)
    return mixed(right, bare, slice(None), slice(8, 16), slice(8, None))


@case("gemm: no bias in the rows of the last tile", "Gemm", "x w c", GEMM, r"last 3 rows.*('c'|bias)")
def _(values):
    return mixed(again("Gemm", "x w c", values), again("Gemm", "x w", values), slice(16, None))


@case("gemm: bias twice in every fourth row", "Gemm", "x w c", GEMM, r"every 4.*('c'|bias)")
def _(values):
    twice = again("Gemm", "x w c", {**values, "c": 2 * values["c"]})
    return mixed(again("Gemm", "x w c", values), twice, slice(3, None, 4))


TRANSPOSED = dict(x=real(1, 5, 7, 6), w=real(5, 6, 3, 3, scale=0.4), b=real(6))
DOUBLE = dict(strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])


@case(
    "convtranspose: rows of the output padding hold the bias",
    "ConvTranspose",
    "x w b",
    TRANSPOSED,
    r"bias|output_padding",
    **DOUBLE,
)
def _(values):
    result = again("ConvTranspose", "x w b", values, **DOUBLE)
    result[:, :, -1], result[..., -1] = values["b"][:, None], values["b"][:, None]
    return result


@case(
    "convtranspose: rows of the output padding hold 0",
    "ConvTranspose",
    "x w b",
    TRANSPOSED,
    r"output_padding|never written",
    **DOUBLE,
)
def _(values):
    result = again("ConvTranspose", "x w b", values, **DOUBLE)
    result[:, :, -1], result[..., -1] = 0, 0
    return result


ODD = dict(x=real(9, 29), w=real(14, 29, scale=0.3))


def with_tail(array, count):
    """Return rows with the elements behind them in memory."""
    memory = np.append(array.reshape(-1), np.zeros(count, array.dtype))
    length = array.shape[-1]
    return np.stack([memory[at * length : at * length + length + count] for at in range(array.size // length)])


TAIL = r"(next row|behind|beyond|following).*|tail.*(row|memory)"


@case("gemm: tail of K not zeroed in both operands", "Gemm", "x w", ODD, TAIL, transB=1)
def _(values):
    return with_tail(values["x"], 3).astype(F64) @ with_tail(values["w"], 3).T


@case("gemm: tail of K not zeroed, columns of the last tile", "Gemm", "x w", ODD, TAIL, transB=1)
def _(values):
    wrong = with_tail(values["x"], 3).astype(F64) @ with_tail(values["w"], 3).T
    return mixed(again("Gemm", "x w", values, transB=1), wrong, slice(None), slice(8, None))


HEADS = dict(x=real(2, 3, 7, 21), x2=real(2, 3, 21, 10, scale=0.4))


@case("matmul: tail of K runs into the next matrix", "MatMul", "x x2", HEADS, TAIL)
def _(values):
    left = with_tail(values["x"], 3).reshape(2, 3, 7, 24)
    memory = np.append(values["x2"].reshape(-1, 10), np.zeros((3, 10), F32), 0)
    right = np.stack([memory[at * 21 : at * 21 + 24] for at in range(6)]).reshape(2, 3, 24, 10)
    return left.astype(F64) @ right


@case(
    "matmul: tail of K counted twice",
    "MatMul",
    "x w",
    dict(x=real(9, 29), w=real(29, 14, scale=0.3)),
    r"elements? 21 to 23|21 to 23|twice|count 2",
)
def _(values):
    return values["x"].astype(F64) @ values["w"] + values["x"][:, 21:24].astype(F64) @ values["w"][21:24]


@case(
    "matmul: tail of K counted twice in the last rows",
    "MatMul",
    "x w",
    dict(x=real(19, 29), w=real(29, 14, scale=0.3)),
    r"last 3 rows.*(21 to 23.*count 2|twice)",
)
def _(values):
    right = again("MatMul", "x w", values)
    return mixed(right, right + values["x"][:, 21:24] @ values["w"][21:24], slice(16, None))


@case(
    "matmul: tail of K left out in the last columns",
    "MatMul",
    "x w",
    dict(x=real(19, 29), w=real(29, 14, scale=0.3)),
    r"last.*(left out|count)",
)
def _(values):
    right = again("MatMul", "x w", values)
    return mixed(right, values["x"][:, :24] @ values["w"][:24], slice(None), slice(8, None))


@case(
    "reducesum: lanes of the tail read the next row",
    "ReduceSum",
    "x a",
    dict(x=real(6, 12, 21), a=np.array([2])),
    TAIL,
    keepdims=0,
)
def _(values):
    return with_tail(values["x"], 3).sum(-1).reshape(6, 12)


@case(
    "reducemean: lanes of the tail read the next row",
    "ReduceMean",
    "x a",
    dict(x=real(40, 21), a=np.array([1])),
    TAIL,
    opset=18,
)
def _(values):
    return with_tail(values["x"], 3).sum(-1, keepdims=True) / 21


@case(
    "reducemax: lanes of the tail read the next row",
    "ReduceMax",
    "x a",
    dict(x=real(30, 21), a=np.array([1])),
    TAIL,
    opset=18,
)
def _(values):
    return with_tail(values["x"], 3).max(-1, keepdims=True)


@case("softmax: sum over lanes of the next row", "Softmax", "x", dict(x=real(30, 21)), TAIL, axis=-1)
def _(values):
    rows = np.exp(with_tail(values["x"], 3).astype(F64))
    rows[-1, 21:] = 0
    return rows[:, :21] / rows.sum(-1, keepdims=True)


ZEROS = rng.integers(-60, 60, 16).astype(np.int32)
CODED = dict(x=rng.integers(-900, 900, (16, 30)).astype(np.int32), s=(rng.random(16) * 0.1 + 0.01).astype(F32), z=ZEROS)
WIDTH = r"second element of 'z'"


@case("dequantize: int32 zero points read 8 bytes apart", "DequantizeLinear", "x s z", CODED, WIDTH, axis=0)
def _(values):
    zeros = np.append(values["z"][::2], np.zeros(8, np.int32))
    return (values["x"].astype(F64) - zeros[:, None]) * values["s"][:, None]


@case(
    "gather: int64 indices read as int32",
    "Gather",
    "x i",
    dict(x=real(30, 12), i=rng.integers(0, 30, 24)),
    r"'i'.*(int32|32.bit)|stride",
    axis=0,
)
def _(values):
    return values["x"][values["i"].view(np.int32)[:24]]


@case(
    "gather: int32 indices read as int64",
    "Gather",
    "x i",
    dict(x=real(30, 12), i=rng.integers(0, 30, 24).astype(np.int32)),
    r"'i'.*(int64|64.bit|second)|second.*'i'",
    axis=0,
)
def _(values):
    low = values["i"][::2]
    return values["x"][np.append(low, np.zeros(12, np.int64))]


@case(
    "add: float operand read 8 bytes apart",
    "Add",
    "x w",
    dict(x=real(10, 24), w=real(24)),
    r"second.*'w'",
)
def _(values):
    return values["x"] + np.append(values["w"][::2], np.zeros(12, F32))


CHOICE = dict(c=rng.random((20, 12)) < 0.4, x=real(20, 12), x2=real(20, 12))


@case("where: condition read as int32", "Where", "c x x2", CHOICE, r"'c'.*(int32|4 bytes|32)")
def _(values):
    wide = np.append(values["c"].reshape(-1).view(np.int32) != 0, np.zeros(180, bool)).reshape(20, 12)
    return np.where(wide, values["x"], values["x2"])


@case("where: every fourth condition", "Where", "c x x2", CHOICE, r"'c'.*(4|fourth)")
def _(values):
    flat = values["c"].reshape(-1)
    wide = np.append(flat[::4], np.zeros(180, bool)).reshape(20, 12)
    return np.where(wide, values["x"], values["x2"])


@case("where: only the first elements written", "Where", "c x x2", CHOICE, r"memory order|last|element")
def _(values):
    result = np.where(values["c"], values["x"], values["x2"])
    result.reshape(-1)[64:] = 0
    return result


@case(
    "where: only the first elements written, the rest of the other branch",
    "Where",
    "c x x2",
    CHOICE,
    r"last 15 rows.*(is left out|.x2.)",
)
def _(values):
    result = np.where(values["c"], values["x"], values["x2"])
    result.reshape(-1)[64:] = values["x2"].reshape(-1)[64:]
    return result


@case(
    "where: condition of rows not broadcast",
    "Where",
    "c x x2",
    {**CHOICE, "c": CHOICE["c"][:, :1]},
    r"'c'.*(broadcast|memory order|repeat)",
)
def _(values):
    return np.where(np.resize(values["c"].reshape(-1), (20, 12)), values["x"], values["x2"])


@case(
    "where: condition of rows read on without broadcast, 0 behind",
    "Where",
    "c x x2",
    {**CHOICE, "c": CHOICE["c"][:, :1]},
    r"'c'.*(broadcast|memory order)",
)
def _(values):
    flat = np.append(values["c"].reshape(-1), np.zeros(220, bool)).reshape(20, 12)
    return np.where(flat, values["x"], values["x2"])


def padded_on(data, before, after):
    """Pad rows and columns at the end with what lies behind in memory, and at the begin with 0."""
    n, c, h, w = data.shape
    memory = np.append(data.reshape(-1), np.zeros(after * (w + 1), data.dtype))
    result = np.zeros((n, c, h + before + after, w + before + after), data.dtype)
    for at in np.ndindex(n, c, h + after, w + after):
        offset = ((at[0] * c + at[1]) * h + at[2]) * w + at[3]
        result[at[0], at[1], at[2] + before, at[3] + before] = memory[min(offset, memory.size - 1)]
    return result


ON = r"padding.*(memory|next)|(next (row|channel)).*"


@case("conv: the end of rows and columns reads on", "Conv", "x w b", IMAGE, ON, pads=[1] * 4)
def _(values):
    data = padded_on(values["x"], 1, 1)
    return again("Conv", "x w b", {**values, "x": data})


@case("conv: the last column reads the next row", "Conv", "x w b", IMAGE, ON, pads=[1] * 4)
def _(values):
    data = padded_on(values["x"], 1, 1)
    data[:, :, -1] = 0
    return again("Conv", "x w b", {**values, "x": data})


@case("conv: the last row reads the next channel", "Conv", "x w b", IMAGE, ON, pads=[1] * 4)
def _(values):
    data = padded_on(values["x"], 1, 1)
    data[..., -1] = 0
    return again("Conv", "x w b", {**values, "x": data})


EVEN = dict(x=real(1, 8, 12, 12))
ENDS = dict(kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])


@case("maxpool: the end of rows and planes reads on", "MaxPool", "x", EVEN, ON, **ENDS)
def _(values):
    return again("MaxPool", "x", {"x": padded_on(values["x"], 0, 1)}, kernel_shape=[3, 3], strides=[2, 2])


@case("averagepool: the last row reads the next channel", "AveragePool", "x", EVEN, ON, count_include_pad=1, **ENDS)
def _(values):
    data = padded_on(values["x"], 0, 1)
    data[..., -1] = 0
    return again("AveragePool", "x", {"x": data}, kernel_shape=[3, 3], strides=[2, 2])


@case(
    "conv: stride 2, garbage behind the last row",
    "Conv",
    "x w",
    dict(x=real(2, 5, 12, 10), w=real(6, 5, 3, 3)),
    ON,
    strides=[2, 2],
    pads=[0, 0, 1, 1],
)
def _(values):
    data = padded_on(values["x"], 0, 1)
    data[-1, -1, -1] = 7.5
    return again("Conv", "x w", {**values, "x": data}, strides=[2, 2])


GAP = r"rows of each window.*apart"


def gapped(values, pitch, padded):
    """Convolve with rows of the filter that are read a pitch apart in memory."""
    data, w = values["x"], values["w"]
    data = np.pad(data, ((0, 0), (0, 0), (padded, padded), (padded, padded)))
    n, c, h, width = data.shape
    out = np.zeros((n, w.shape[0], h - 2, width - 2))
    planes = np.append(data.reshape(n, -1), np.zeros((n, 999)), 1)
    for ch, r, s in np.ndindex(c, 3, 3):
        start = ch * h * width + r * pitch + s
        rows = np.stack([planes[:, start + y * width : start + y * width + width - 2] for y in range(h - 2)], 1)
        out += np.einsum("o,nyx->noyx", w[:, ch, r, s].astype(F64), rows)
    return out + values["b"][:, None, None]


@case("conv: rows of the kernel one element too near", "Conv", "x w b", IMAGE, GAP)
def _(values):
    return gapped(values, 11, 0)


@case("conv: rows of the padded input read as if it had no padding", "Conv", "x w b", IMAGE, GAP, pads=[1] * 4)
def _(values):
    return gapped(values, 12, 1)


DEEP = dict(x=real(2, 5, 9, 8), w=real(10, 5, 3, 3, scale=0.3), b=real(10))


def patches(x, order):
    """Return the patches of 3 x 3 elements as rows, with the axes of a patch in an order."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))  # n c y x i j
    return windows.transpose(0, 2, 3, *(each for each in order)).reshape(-1, 9 * x.shape[1])


@case("conv: tail of a patch not zeroed", "Conv", "x w b", DEEP, TAIL)
def _(values):
    rows, filters = patches(values["x"], (1, 4, 5)), values["w"].reshape(10, -1)
    result = with_tail(rows, 3).astype(F64) @ with_tail(filters, 3).T + values["b"]
    return result.reshape(2, 7, 6, 10).transpose(0, 3, 1, 2)


@case("conv: tail of a patch not zeroed, channels last", "Conv", "x w b", DEEP, TAIL)
def _(values):
    rows, filters = patches(values["x"], (4, 5, 1)), values["w"].transpose(0, 2, 3, 1).reshape(10, -1)
    result = with_tail(rows, 3).astype(F64) @ with_tail(filters, 3).T + values["b"]
    return result.reshape(2, 7, 6, 10).transpose(0, 3, 1, 2)


@case("gemm: tail of K not zeroed, garbage behind", "Gemm", "x w", ODD, TAIL, transB=1)
def _(values):
    left, right = with_tail(values["x"], 3), with_tail(values["w"], 3)
    left[-1, -3:], right[-1, -3:] = 3.5, -2.25
    return left.astype(F64) @ right.T


@case(
    "matmul: tail of K not zeroed, weight stored transposed", "MatMul", "x w", dict(x=real(9, 29), w=real(29, 14)), TAIL
)
def _(values):
    return with_tail(values["x"], 3).astype(F64) @ with_tail(np.ascontiguousarray(values["w"].T), 3).T


@case("where: condition read as int32, garbage behind", "Where", "c x x2", CHOICE, r"'c'.*32-bit|'c'.*int32")
def _(values):
    wide = np.append(values["c"].reshape(-1).view(np.int32) != 0, rng.random(180) < 0.5).reshape(20, 12)
    return np.where(wide, values["x"], values["x2"])


@case(
    "dequantize: int32 zero points read 8 bytes apart, garbage behind",
    "DequantizeLinear",
    "x s z",
    CODED,
    WIDTH,
    axis=0,
)
def _(values):
    zeros = np.append(values["z"][::2], rng.integers(-90000, 90000, 8))
    return (values["x"].astype(F64) - zeros[:, None]) * values["s"][:, None]


@case("conv: stride 2, rows of the kernel one element too far", "Conv", "x w b", IMAGE, GAP, strides=[2, 2])
def _(values):
    return gapped(values, 13, 0)[:, :, ::2, ::2]
