"""Wrong kernels of pools, samplings and movements, of kinds that public reports repeat.

See `operator_bugs.py`. Each case has an operator with its inputs, a function that returns the wrong result, and words
that name the cause. The wrong results come from ONNX Runtime, from ONNX's reference implementation and from NumPy, not
from qdebug.
"""

# ruff: noqa: C408  inputs read best as names with values
from __future__ import annotations

import numpy as np
from operator_bugs import again, case, real, rng

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
