"""Translate nodes of PyTorch to ONNX. Source: the documentation of torch.nn.functional and aten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.model.dtypes import is_integer, logical_dtype
from qdebug.model.graph import AttrValue
from qdebug.model.operators.foreign_node import (
    CONTRIBUTED,
    REDUCTIONS,
    UNARY_FUNCTIONS,
    ForeignNode,
    Rule,
    Translated,
    UntranslatableError,
    binary,
    pad_dimensions,
    prelu_by_channel,
    reduce_axes,
    reshape,
    slice_axes,
    to_flag,
    unary,
)
from qdebug.model.operators.operator import Sums
from qdebug.model.operators.queries import of

__all__ = ["TORCH"]


def _window(foreign: ForeignNode, count: int) -> dict[str, AttrValue]:
    padding = foreign.optional(0, "padding")
    if isinstance(padding, str):
        raise UntranslatableError
    pads = foreign.per_dimension(count, "padding", default=0)
    return {"pads": (*pads, *pads), "dilations": foreign.per_dimension(count, "dilation", default=1)}


def _conv(foreign: ForeignNode) -> Translated:
    """Translate a convolution. An attribute may make it transposed, even if its name does not say so."""
    kernel = foreign.extents(foreign.node.inputs[1])[2:]
    attrs: dict[str, AttrValue] = {
        **_window(foreign, len(kernel)),
        "strides": foreign.per_dimension(len(kernel), "stride", default=1),
        "group": int(foreign.optional(1, "groups")),
        "kernel_shape": kernel,
    }
    if of(foreign.plain.op).sums is Sums.FILTER and not to_flag(foreign.optional(0, "transposed")):
        return foreign.as_onnx("Conv", attrs)
    attrs["output_padding"] = foreign.per_dimension(len(kernel), "output_padding", default=0)
    return foreign.as_onnx("ConvTranspose", attrs)


def _linear(foreign: ForeignNode) -> Translated:
    """Translate a linear layer with a weight (out, in). The data may have any rank, as in the Gemm kernel."""
    if "addmm" in foreign.node.op:  # the bias comes first, and the weight is (in, out)
        bias, data, weight = foreign.node.inputs
        factors: dict[str, AttrValue] = {name: float(foreign.optional(1, name)) for name in ("alpha", "beta")}
        return foreign.as_onnx("Gemm", factors, inputs=(data, weight, bias))
    if len(foreign.extents(foreign.node.inputs[0])) < 2:
        raise UntranslatableError
    return foreign.as_onnx("Gemm", {"transB": 1})


def _pool(foreign: ForeignNode) -> Translated:
    count = len(foreign.extents(foreign.node.outputs[0])) - 2
    if foreign.optional(None, "divisor_override") is not None:
        raise UntranslatableError
    kernel = foreign.per_dimension(count, "kernel_size")
    strides = foreign.per_dimension(count, "stride") if foreign.optional((), "stride") else kernel
    attrs: dict[str, AttrValue] = {
        **_window(foreign, count),
        "kernel_shape": kernel,
        "strides": strides,
        "ceil_mode": to_flag(foreign.optional(0, "ceil_mode")),
    }
    if not of(foreign.plain.op).selects:
        del attrs["dilations"]
        attrs["count_include_pad"] = to_flag(foreign.optional(1, "count_include_pad"))
    return foreign.as_onnx(attrs=attrs)


def _axis_function(foreign: ForeignNode) -> Translated:
    if foreign.optional(None, "dtype") is not None or to_flag(foreign.optional(0, "half_to_float")):
        raise UntranslatableError  # PyTorch casts the data first
    return foreign.as_onnx(attrs={"axis": int(foreign.required("dim", "axis"))})


def _add_or_subtract(foreign: ForeignNode) -> Translated:
    """Translate a sum or difference, in which `alpha` may multiply the second operand."""
    factor = float(foreign.optional(1, "alpha"))
    if len(foreign.node.inputs) != 2:
        raise UntranslatableError
    return foreign.as_onnx(attrs={} if factor == 1 else {"alpha": factor})


_REVERSING_OPS = ("aten.t.default", "aten.numpy_T.default")
"""Operators that reverse the order of all dimensions."""


def _permute(foreign: ForeignNode) -> Translated:
    rank = len(foreign.extents(foreign.node.inputs[0]))
    order = list(range(rank))
    if foreign.node.op in _REVERSING_OPS:
        order.reverse()
    elif "dims" in foreign.node.attrs:
        order = [int(dimension) % rank for dimension in foreign.required("dims")]
    else:
        first_axis, second_axis = (int(foreign.required(f"dim{number}", f"axis{number}")) for number in (0, 1))
        order[first_axis], order[second_axis] = order[second_axis], order[first_axis]
    return foreign.as_onnx("Transpose", {"perm": tuple(order)})


def _reduction(foreign: ForeignNode) -> Translated:
    """Translate a reduction, over all dimensions by default. ONNX cannot sum in another dtype."""
    if len(foreign.node.inputs) != 1 or foreign.optional(None, "dtype") is not None:
        raise UntranslatableError
    axes = foreign.optional((), "dim", "axis")
    return reduce_axes(
        foreign, tuple(int(dimension) for dimension in axes) if isinstance(axes, tuple | list) else (int(axes),)
    )


def _pad(foreign: ForeignNode) -> Translated:
    """Translate a padding. The widths are pairs, last dimension first; dimensions without a pair are not padded."""
    widths = [int(width) for width in foreign.required("pad")]
    rank = len(foreign.extents(foreign.node.inputs[0]))
    widths += [0] * (2 * rank - len(widths))
    fill_input = foreign.node.inputs[1] if len(foreign.node.inputs) > 1 else ""
    translation = pad_dimensions(
        foreign, (*widths[-2::-2], *widths[::-2]), foreign.optional("constant", "mode"), value=fill_input
    )
    value = float(foreign.optional(0.0, "value") or 0.0)
    return (
        translation
        if value == 0
        else replace(translation, node=replace(translation.node, attrs={**translation.node.attrs, "value": value}))
    )


def _leaky_relu(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx("LeakyRelu", {"alpha": float(foreign.optional(0.01, "negative_slope"))})


def _batch_norm(foreign: ForeignNode) -> Translated:
    if to_flag(foreign.optional(0, "training")) or len(foreign.node.inputs) != 5 or "" in foreign.node.inputs:
        raise UntranslatableError
    return foreign.as_onnx("BatchNormalization", {"epsilon": float(foreign.optional(1e-5, "eps"))})


def _first_normalized_axis(foreign: ForeignNode) -> int:
    """Return the first axis of a normalization, which covers one trailing axis for each stated extent."""
    return -len(tuple(foreign.required("normalized_shape")))


def _layer_norm(foreign: ForeignNode) -> Translated:
    if len(foreign.node.inputs) < 2 or not foreign.node.inputs[1]:
        raise UntranslatableError  # ONNX always has a scale
    return foreign.as_onnx(
        attrs={"axis": _first_normalized_axis(foreign), "epsilon": float(foreign.optional(1e-5, "eps"))}
    )


def _rms_norm(foreign: ForeignNode) -> Translated:
    if len(foreign.node.inputs) < 2:
        raise UntranslatableError
    epsilon = foreign.optional(None, "eps")
    # The default is the machine epsilon of the type that it computes in (aten/src/ATen/native/layer_norm.cpp).
    if epsilon is None:
        epsilon = 2.0**-52 if foreign.graph.tensors[foreign.node.inputs[0]].dtype == "float64" else 2.0**-23
    return foreign.as_onnx(attrs={"axis": _first_normalized_axis(foreign), "epsilon": float(epsilon)})


def _attention(foreign: ForeignNode) -> Translated:
    """Translate an attention. The dimensions are in the same order in ONNX: samples, heads, positions, elements."""
    if float(foreign.optional(0.0, "dropout_p")) or any(
        len(foreign.extents(name)) != 4 for name in foreign.node.inputs[:3]
    ):
        raise UntranslatableError
    attrs: dict[str, AttrValue] = {"is_causal": to_flag(foreign.optional(0, "is_causal"))}
    heads = [foreign.extents(name)[1] for name in foreign.node.inputs[:2]]
    if heads[0] != heads[1] and not to_flag(foreign.optional(0, "enable_gqa")):
        raise UntranslatableError
    if foreign.optional(None, "scale") is not None:
        attrs["scale"] = float(foreign.required("scale"))
    return foreign.as_onnx("Attention", attrs)


def _gelu(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx("Gelu", {"approximate": str(foreign.optional("none", "approximate"))})


def _silu(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx("QuickGelu", {"alpha": 1.0}, domain=CONTRIBUTED)


def _clip(foreign: ForeignNode) -> Translated:
    """Translate a clamp. `clamp` states its bounds, `hardtanh` has default bounds, and `relu6` implies them."""
    if len(foreign.node.inputs) != 1:
        raise UntranslatableError
    if "hardtanh" in foreign.node.op:
        return foreign.as_onnx(
            attrs={end: float(foreign.optional(default, f"{end}_val")) for end, default in (("min", -1), ("max", 1))}
        )
    bounds = {end: float(foreign.plain.attrs[end]) for end in ("min", "max") if end in foreign.plain.attrs}  # type: ignore[arg-type]
    return foreign.as_onnx(attrs=dict(bounds))


def _gather(foreign: ForeignNode) -> Translated:
    """Translate a gather.

    `embedding` selects rows, `select` selects one index and drops the dimension, and `gather` selects single elements.
    """
    word = foreign.node.op.split(".")[-2] if foreign.node.op.count(".") > 1 else foreign.node.op
    if "embedding" in word:
        return foreign.as_onnx("Gather", {"axis": 0}, inputs=foreign.node.inputs[:2])
    if word == "index":
        return _index_one_dimension(foreign)
    if len(foreign.node.inputs) != 2:
        raise UntranslatableError
    operator = "GatherElements" if word.endswith("gather") else "Gather"
    return foreign.as_onnx(operator, {"axis": int(foreign.required("dim", "axis"))})


def _index_one_dimension(foreign: ForeignNode) -> Translated:
    """Translate indexing along one dimension, which is the position of the index tensor. Several are not supported."""
    data, *indices = foreign.node.inputs
    indexed_axes = [axis for axis, name in enumerate(indices) if name]
    if len(indexed_axes) != 1:
        raise UntranslatableError
    index = indices[indexed_axes[0]]
    if not is_integer(foreign.graph.tensors[index].dtype or ""):
        raise UntranslatableError  # a boolean mask selects a number of elements that is known only at run time
    return foreign.as_onnx("Gather", {"axis": indexed_axes[0]}, inputs=(data, index))


def _top_k(foreign: ForeignNode) -> Translated:
    attrs: dict[str, AttrValue] = {name: to_flag(foreign.optional(1, name)) for name in ("largest", "sorted")}
    attrs |= {"axis": int(foreign.optional(-1, "dim")), "stable": 0}  # the indices of tied elements are undefined
    count = np.array([int(foreign.required("k"))])
    return foreign.as_onnx(attrs=attrs, inputs=(foreign.node.inputs[0], foreign.new_name("k")), constants={"k": count})


def _trilu(foreign: ForeignNode) -> Translated:
    upper, diagonal = int("triu" in foreign.node.op), np.array(int(foreign.optional(0, "diagonal")))
    return foreign.as_onnx(
        attrs={"upper": upper}, inputs=(foreign.node.inputs[0], foreign.new_name("k")), constants={"k": diagonal}
    )


def _einsum(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"equation": str(foreign.required("equation"))})


def _logical(foreign: ForeignNode) -> Translated:
    """Translate a logical operator: logical for booleans, bitwise for integers."""
    dtypes = {foreign.graph.tensors[name].dtype for name in foreign.node.inputs}
    if len(foreign.node.inputs) != 2 or None in dtypes:
        raise UntranslatableError
    if dtypes == {"bool"}:
        return foreign.as_onnx()
    if "logical" in foreign.node.op or "bool" in dtypes:
        raise UntranslatableError
    return foreign.as_onnx(f"Bitwise{foreign.plain.op}")


def _result_dtype(foreign: ForeignNode) -> np.dtype:
    """Return the element type of the result."""
    dtype = foreign.graph.tensors[foreign.node.outputs[0]].dtype
    if dtype is None:
        raise UntranslatableError
    return logical_dtype(dtype)


def _fill(foreign: ForeignNode) -> Translated:
    """Translate a filled tensor.

    The output determines extents and element type. The name or an attribute determines the number.
    """
    number = foreign.required("fill_value") if "full" in foreign.node.op else int("ones" in foreign.node.op)
    extents = np.array(foreign.extents(foreign.node.outputs[0]), np.int64)
    value = np.full(1, number).astype(_result_dtype(foreign))
    return foreign.as_onnx(
        attrs={"value": value}, inputs=(foreign.new_name("extents"),), constants={"extents": extents}
    )


def _range(foreign: ForeignNode) -> Translated:
    dtype = _result_dtype(foreign)
    numbers = {name: foreign.optional(default, name) for name, default in (("start", 0), ("end", None), ("step", 1))}
    if numbers["end"] is None:
        raise UntranslatableError
    constants = {name: np.array(number, dtype) for name, number in numbers.items()}
    return foreign.as_onnx(inputs=tuple(map(foreign.new_name, constants)), constants=constants)


def _slice(foreign: ForeignNode) -> Translated:
    """Translate a slice of one dimension from `start` to `end`, both optional."""
    extents = foreign.extents(foreign.node.inputs[0])
    axis = int(foreign.optional(0, "dim")) % len(extents)
    start, end = (int(foreign.optional(default, name)) for name, default in (("start", 0), ("end", extents[axis])))
    return slice_axes(foreign, (start,), (end,), (int(foreign.optional(1, "step")),), axes=(axis,))


def _split(foreign: ForeignNode) -> Translated:
    """Translate a split. The output extents are the sizes of the parts."""
    axis = int(foreign.optional(0, "dim")) % len(foreign.extents(foreign.node.inputs[0]))
    return foreign.as_onnx(
        "Split", {"axis": axis, "split": tuple(foreign.extents(name)[axis] for name in foreign.node.outputs)}
    )


def _unbind(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"axis": int(foreign.optional(0, "dim"))})


def _where(foreign: ForeignNode) -> Translated:
    """Translate a selection. The inputs of `masked_fill` are data, mask and fill value."""
    first_input, second_input, third_input = foreign.node.inputs
    is_masked_fill = "masked" in foreign.node.op
    return foreign.as_onnx(
        "Where",
        inputs=(second_input, third_input, first_input) if is_masked_fill else (first_input, second_input, third_input),
    )


def _adaptive_pool(foreign: ForeignNode) -> Translated:
    """Translate an adaptive pool. The output extents determine the windows, if all have the same size."""
    input_extents, output_extents = (
        foreign.extents(name)[2:] for name in (foreign.node.inputs[0], foreign.node.outputs[0])
    )
    if set(output_extents) == {1}:
        return foreign.as_onnx("GlobalAveragePool")
    if any(extent % parts for extent, parts in zip(input_extents, output_extents, strict=True)):
        raise UntranslatableError
    window = tuple(extent // parts for extent, parts in zip(input_extents, output_extents, strict=True))
    return foreign.as_onnx("AveragePool", {"kernel_shape": window, "strides": window})


def _resize(foreign: ForeignNode) -> Translated:
    """Translate a resize.

    The output extents determine the scale, unless factors are stated, which then determine the sampled positions.
    """
    extents = foreign.extents(foreign.node.outputs[0])[2:]
    axes = tuple(range(2, 2 + len(extents)))
    attrs: dict[str, AttrValue] = {"mode": "linear", "axes": axes, "coordinate_transformation_mode": "half_pixel"}
    if "nearest" in foreign.node.op:
        attrs |= {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    elif to_flag(foreign.required("align_corners")):
        attrs["coordinate_transformation_mode"] = "align_corners"
    stated_factors = [foreign.optional(None, name) for name in ("scales_h", "scales_w")]
    factors = foreign.optional(None, "scale_factors") or (None if None in stated_factors else stated_factors)
    if factors is None or attrs["coordinate_transformation_mode"] == "align_corners":
        return _make_resize(foreign, attrs, ("", foreign.new_name("sizes")), {"sizes": np.array(extents)})
    return _make_resize(foreign, attrs, (foreign.new_name("factors"),), {"factors": np.array(factors, np.float32)})


def _make_resize(
    foreign: ForeignNode,
    attrs: Mapping[str, AttrValue],
    size_inputs: tuple[str, ...],
    constants: Mapping[str, np.ndarray],
) -> Translated:
    return foreign.as_onnx(attrs=attrs, inputs=(foreign.node.inputs[0], "", *size_inputs), constants=constants)


def _hard_sigmoid(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"alpha": 1 / 6, "beta": 0.5})


def _elu(foreign: ForeignNode) -> Translated:
    if any(float(foreign.optional(1, name)) != 1 for name in ("scale", "input_scale")):
        raise UntranslatableError
    return foreign.as_onnx(attrs={"alpha": float(foreign.optional(1, "alpha"))})


def _softplus(foreign: ForeignNode) -> Translated:
    if float(foreign.optional(1, "beta")) != 1:
        raise UntranslatableError
    return unary(foreign)


def _pixel_shuffle(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"blocksize": int(foreign.required("upscale_factor")), "mode": "CRD"})


def _expand(foreign: ForeignNode) -> Translated:
    extents = np.array(foreign.extents(foreign.node.outputs[0]))
    return foreign.as_onnx(inputs=(foreign.node.inputs[0], foreign.new_name("extents")), constants={"extents": extents})


def _identity(foreign: ForeignNode) -> Translated:
    if to_flag(foreign.optional(0, "train", "training")):
        raise UntranslatableError
    return foreign.as_onnx("Identity", inputs=foreign.node.inputs[:1])


_TYPES = MappingProxyType(
    {
        "float32": 1,
        "uint8": 2,
        "int8": 3,
        "int16": 5,
        "int32": 6,
        "int64": 7,
        "bool": 9,
        "float16": 10,
        "float64": 11,
        "bfloat16": 16,
        "float8_e4m3fn": 17,
        "float8_e4m3fnuz": 18,
        "float8_e5m2": 19,
        "float8_e5m2fnuz": 20,
    }
)
"""ONNX's numbers of element types (TensorProto.DataType)."""
_SATURATING = "float8_e4m3fn"
"""The 8-bit float format for which PyTorch 2.14 clamps numbers that are too large to the largest finite number.

In other formats, and in this one before 2.14, such numbers become infinity or NaN.
"""


def _cast(foreign: ForeignNode) -> Translated:
    info = foreign.graph.tensors.get(foreign.node.outputs[0])
    number = None if info is None or info.dtype is None else _TYPES.get(info.dtype)
    if number is None:
        raise UntranslatableError
    attrs: dict[str, AttrValue] = {"to": number}
    if info is not None and str(info.dtype).startswith("float8"):
        attrs["saturate"] = int(info.dtype == _SATURATING)
    return foreign.as_onnx("Cast", attrs, inputs=foreign.node.inputs[:1])


TORCH: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": _conv,
        "ConvTranspose": _conv,
        "Gemm": _linear,
        "MaxPool": _pool,
        "AveragePool": _pool,
        "Softmax": _axis_function,
        "LogSoftmax": _axis_function,
        "Concat": _axis_function,
        "Transpose": _permute,
        "Pad": _pad,
        **dict.fromkeys(REDUCTIONS, _reduction),
        "LeakyRelu": _leaky_relu,
        "BatchNormalization": _batch_norm,
        "LayerNormalization": _layer_norm,
        "RMSNormalization": _rms_norm,
        "Attention": _attention,
        "Gelu": _gelu,
        "QuickGelu": _silu,
        "Gather": _gather,
        "Slice": _slice,
        "Split": _split,
        "Unbind": _unbind,
        "Where": _where,
        "GlobalAveragePool": _adaptive_pool,
        "Identity": _identity,
        "Cast": _cast,
        **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), reshape),
        **dict.fromkeys(("Add", "Sub"), _add_or_subtract),
        **dict.fromkeys(("Mul", "Div", "MatMul", "MatMulInteger", "Pow", "Max", "Min"), binary),
        **dict.fromkeys((*UNARY_FUNCTIONS, "Not"), unary),
        **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), binary),
        **dict.fromkeys(("And", "Or", "Xor"), _logical),
        "TopK": _top_k,
        "Trilu": _trilu,
        "Einsum": _einsum,
        "ConstantOfShape": _fill,
        "Range": _range,
        "Clip": _clip,
        "Softplus": _softplus,
        "HardSigmoid": _hard_sigmoid,
        "Elu": _elu,
        "PRelu": prelu_by_channel,
        "Resize": _resize,
        "DepthToSpace": _pixel_shuffle,
        "Expand": _expand,
    }
)
"""The rule for each operator, under its ONNX name."""
