"""Wrong kernels of products, windows, layouts and codes, of kinds that public reports describe.

They were written down before any was tried, and are part of `operator_bugs.py --further`. The link above each case is
the report.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import again, case, real, rng

F32, F64 = np.float32, np.float64


def codes(low, high, *shape, kind=np.int8):
    """Draw integers."""
    return rng.integers(low, high, shape).astype(kind)


# https://github.com/huggingface/candle/pull/3960
@case(
    "matmul: batches of the second operand folded into its columns",
    "MatMul",
    "x x2",
    dict(x=real(1, 7, 12), x2=real(5, 12, 9)),
    r"'x'.*(broadcast|batch)|batch(es)?\b|only the first (batch|matrix|slice)|(not|never) written",
)
def _(values):
    m, n, b = 7, 9, 5
    x, memory, result = values["x"][0], values["x2"].reshape(-1), np.zeros(b * m * n)
    padded = np.concatenate([memory, np.zeros(b * n)])
    columns = np.stack([padded[k * n : k * n + b * n] for k in range(12)])
    for row in range(m):
        result[row * n : row * n + b * n] = x[row] @ columns
    return result.reshape(b, m, n)


# https://github.com/gradium-ai/xn/pull/50
@case(
    "matmul: batches of a transposed view read with the stride of the heads",
    "MatMul",
    "x w",
    dict(x=real(2, 3, 7, 8), w=real(8, 6)),
    r"'x'.*(batch|sample|stride|row|position|before|after|group|block)",
)
def _(values):
    memory = np.concatenate([values["x"].transpose(0, 2, 1, 3).reshape(-1), np.zeros(99, F32)])
    strides = [4 * each for each in (3 * 8, 8, 3 * 8, 1)]
    return np.lib.stride_tricks.as_strided(memory, (2, 3, 7, 8), strides).astype(F64) @ values["w"]


# https://github.com/Mojo-Numerics-and-Algorithms-group/NuMojo/pull/382
@case(
    "matmul: a vector is loaded in place of one element",
    "MatMul",
    "x w",
    dict(x=real(9, 24), w=real(24, 16)),
    r"vector|lane|'x'.*(column|shifted|positions?|diagonal)",
)
def _(values):
    memory = np.concatenate([values["x"].reshape(-1), np.zeros(16, F32)])
    result = np.zeros((9, 16))
    for row in range(9):
        for k in range(24):
            result[row] += memory[row * 24 + k : row * 24 + k + 16] * values["w"][k]
    return result


NUMBERS = dict(x=real(30, 40, scale=3), s=F32(0.021), z=np.uint8(0))


# https://github.com/tenstorrent/tt-metal/issues/56290
@case("quantize: negative numbers keep their magnitude", "QuantizeLinear", "x s z", NUMBERS, r"magnitude|absolute|sign")
def _(values):
    return np.rint(np.abs(values["x"]) / F32(0.021)).clip(0, 255).astype(np.uint8)


# https://github.com/tenstorrent/tt-metal/pull/56327
@case("quantize: numbers beyond the codes wrap around", "QuantizeLinear", "x s z", NUMBERS, r"wrap")
def _(values):
    return np.rint(values["x"] / F32(0.021)).astype(np.int64).astype(np.uint8)


# https://github.com/NVIDIA/Fuser/issues/1551
@case(
    "pad: a broadcast row is broadcast into the padding",
    "Pad",
    "x p",
    dict(x=real(6, 1, 23), p=np.array([0, 1, 0, 0, 2, 0])),
    r"repeat|edge|broadcast",
)
def _(values):
    return np.repeat(values["x"], 4, 1)


# https://github.com/tenstorrent/tt-metal/issues/57382
@case(
    "slice: rows that are cut off are not skipped at each border of a batch",
    "Slice",
    "x b e a",
    dict(x=real(5, 13, 17), b=np.array([0, 1]), e=np.array([12, 17]), a=np.array([1, 2])),
    r"row|before|early|earlier|axis 1",
)
def _(values):
    x, result = values["x"].reshape(-1, 17), values["x"][:, :12, 1:].copy()
    for batch in range(5):
        result[batch, :batch] = x[batch * 13 - 1 : batch * 13 - 1 + batch, 1:]
    return result


# https://github.com/ROCm/aiter/pull/288
@case(
    "add: a middle axis of 1 is taken for an outer one",
    "Add",
    "x x2",
    dict(x=real(4, 6, 10), x2=real(4, 1, 10)),
    r"'x2'.*(repeat|broadcast|axis|over and over|order|row)",
)
def _(values):
    return values["x"] + np.resize(values["x2"], values["x"].shape)


# https://github.com/uxlfoundation/oneDNN/issues/352
@case(
    "convtranspose: channels of the groups interleaved in the result",
    "ConvTranspose",
    "x w",
    dict(x=real(1, 8, 6, 5), w=real(8, 4, 3, 3)),
    r"interleav|shuffl|(order|swap|transpos).*(group|channel|axis 1)|axis 1.*(order|swap|transpos)",
    group=2,
)
def _(values):
    result = again("ConvTranspose", "x w", values, group=2)
    return result.reshape(1, 2, 4, *result.shape[2:]).swapaxes(1, 2).reshape(result.shape)


# https://github.com/microsoft/onnxruntime/pull/29631
@case(
    "averagepool: padding of the begin taken for that of the end",
    "AveragePool",
    "x",
    dict(x=real(2, 4, 12, 12) + F32(0.5)),
    r"divi(ded|sor)|end.*padding|padding.*end|count_include_pad",
    kernel_shape=[4, 4],
    strides=[2, 2],
    pads=[0, 0, 2, 2],
    count_include_pad=1,
)
def _(values):
    result = np.zeros((2, 4, 6, 6))
    for row in range(6):
        for column in range(6):
            window = values["x"][:, :, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4]
            result[:, :, row, column] = window.mean((2, 3))
    return result


# https://github.com/root-project/root/issues/22436
@case(
    "maxpool: pads read as pairs of begin and end",
    "MaxPool",
    "x",
    dict(x=real(2, 4, 12, 13)),
    r"\bpads?\b|padding|windows? .*moved",
    kernel_shape=[3, 3],
    strides=[2, 2],
    pads=[1, 1, 0, 0],
)
def _(values):
    return again("MaxPool", "x", values, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 0])


# https://github.com/tile-ai/tilelang/issues/2426
@case(
    "conv: windows are numbered over the width of the input",
    "Conv",
    "x w",
    dict(x=real(1, 5, 9, 11), w=real(6, 5, 3, 3, scale=0.3)),
    r"width|rows? of the input|origin|wider|pitch|overrun|padding.*result",
)
def _(values):
    padded = np.pad(values["x"], ((0, 0), (0, 0), (0, 2), (0, 2)))
    full = again("Conv", "x w", {**values, "x": padded})
    result = full.reshape(1, 6, -1)[:, :, : 7 * 9]
    return result.reshape(1, 6, 7, 9)


# https://github.com/NVIDIA/NeMo-Speech.cpp/pull/33
@case(
    "conv: strides of batch and channel exchanged",
    "Conv",
    "x w",
    dict(x=real(3, 3, 40), w=real(6, 3, 5)),
    r"axes 0 and 1|transpos|batch.*channel|channel.*batch",
)
def _(values):
    return again("Conv", "x w", {**values, "x": np.ascontiguousarray(values["x"].swapaxes(0, 1))})


# https://github.com/pytorch/executorch/pull/21773
@case(
    "dequantize: zero points of 32 bits read as 64 bits",
    "DequantizeLinear",
    "x s z",
    dict(
        x=codes(-900, 900, 4, 30, kind=np.int32),
        s=(rng.random(4) * 0.1 + 0.01).astype(F32),
        z=np.zeros(4, np.int32),
    ),
    r"zero.point|'z'",
    axis=0,
)
def _(values):
    zeros = np.array([0, 0, 7 + (5 << 32), 60 + (90 << 32)], F64)
    return (values["x"] - zeros[:, None]) * values["s"][:, None]


BLOCKS = dict(x=codes(-128, 128, 9, 30), s=(rng.random((9, 4)) * 0.1 + 0.01).astype(F32))


# https://github.com/microsoft/onnxruntime/issues/32663
@case(
    "dequantize: number of the block from the flat index",
    "DequantizeLinear",
    "x s",
    BLOCKS,
    r"scale|'s'.*(flat|index|block|row)|block",
    axis=1,
    block_size=8,
)
def _(values):
    return values["x"] * values["s"].reshape(-1)[np.arange(270) // 8].reshape(9, 30)


# https://github.com/microsoft/onnxruntime/pull/28522
@case(
    "dequantize: scales of blocks stored with the blocks first",
    "DequantizeLinear",
    "x s",
    dict(x=codes(-128, 128, 8, 16), s=(rng.random((8, 4)) * 0.1 + 0.01).astype(F32)),
    r"'s'.*(transpos|column|order|swap)",
    axis=1,
    block_size=4,
)
def _(values):
    return values["x"] * np.repeat(np.ascontiguousarray(values["s"].T).reshape(8, 4), 4, 1)


# https://github.com/ucb-bar/gemmini-rocc-tests/issues/21
@case(
    "conv: depthwise with the first channel for all",
    "Conv",
    "x w",
    dict(x=real(1, 6, 9, 8), w=real(6, 1, 3, 3)),
    r"'x'.*first.*axis 1|first channel|channel 0|first element.*'x'.*axis 1",
    group=6,
)
def _(values):
    return again("Conv", "x w", {**values, "x": np.repeat(values["x"][:, :1], 6, 1)}, group=6)


SCALED = dict(x=real(1, 3, 7, 9), r=np.zeros(0, F32), s=np.array([1, 1, 2, 3], F32))


# https://github.com/antimora/burn-flex/pull/7
@case("resize: corners aligned in place of pixel centers", "Resize", "x r s", SCALED, r"align_corners", mode="linear")
def _(values):
    mode = "align_corners"
    return again("Resize", "x r s", values, mode="linear", coordinate_transformation_mode=mode)


# https://github.com/tensorflow/tensorflow/issues/19627
@case(
    "resize: corners not aligned",
    "Resize",
    "x r s",
    SCALED,
    r"asymmetric",
    mode="linear",
    coordinate_transformation_mode="align_corners",
)
def _(values):
    return again("Resize", "x r s", values, mode="linear", coordinate_transformation_mode="asymmetric")


# https://github.com/ml-explore/mlx/issues/3480
@case(
    "matmul: keys of a group read as if they were repeated in memory",
    "MatMul",
    "x x2",
    dict(x=real(2, 4, 5, 8), x2=real(2, 1, 8, 6)),
    r"'x2'.*(broadcast|repeat|batch|axis 0|group|matri|order|over and over)",
)
def _(values):
    matrices = np.concatenate([values["x2"][:, 0], np.zeros((6, 8, 6), F32)])
    return values["x"].astype(F64) @ matrices.reshape(2, 4, 8, 6)
