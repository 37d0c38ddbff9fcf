"""Nodes in the words of PyTorch, said as ONNX says them. Source: the documentation of torch.nn.functional and aten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.model.dtypes import is_integer, logical_dtype
from qdebug.model.graph import AttrValue
from qdebug.model.operators.operator import Sums
from qdebug.model.operators.queries import of
from qdebug.model.operators.said import (
    CONTRIBUTED,
    REDUCTIONS,
    SIMPLE,
    Rule,
    Said,
    Translated,
    Unsaid,
    by_channel,
    flag,
    one,
    padded,
    reduced,
    reshape,
    sliced,
    two,
)

__all__ = ["TORCH"]


def _window(said: Said, count: int) -> dict[str, AttrValue]:
    padding = said.optional(0, "padding")
    if isinstance(padding, str):
        raise Unsaid
    pads = said.sizes(count, "padding", default=0)
    return {"pads": (*pads, *pads), "dilations": said.sizes(count, "dilation", default=1)}


def _conv(said: Said) -> Translated:
    """What any convolution may be states whether it is a transposed one."""
    kernel = said.extents(said.node.inputs[1])[2:]
    attrs: dict[str, AttrValue] = {
        **_window(said, len(kernel)),
        "strides": said.sizes(len(kernel), "stride", default=1),
        "group": int(said.optional(1, "groups")),
        "kernel_shape": kernel,
    }
    if of(said.plain.op).sums is Sums.FILTER and not flag(said.optional(0, "transposed")):
        return said.as_onnx("Conv", attrs)
    attrs["output_padding"] = said.sizes(len(kernel), "output_padding", default=0)
    return said.as_onnx("ConvTranspose", attrs)


def _linear(said: Said) -> Translated:
    """The weight is (out, in); the data may have any number of dimensions, as a Gemm is computed here."""
    if "addmm" in said.node.op:  # the bias stands first, and the weight is (in, out)
        bias, data, weight = said.node.inputs
        factors: dict[str, AttrValue] = {name: float(said.optional(1, name)) for name in ("alpha", "beta")}
        return said.as_onnx("Gemm", factors, inputs=(data, weight, bias))
    if len(said.extents(said.node.inputs[0])) < 2:
        raise Unsaid
    return said.as_onnx("Gemm", {"transB": 1})


def _pool(said: Said) -> Translated:
    count = len(said.extents(said.node.outputs[0])) - 2
    if said.optional(None, "divisor_override") is not None:
        raise Unsaid
    kernel = said.sizes(count, "kernel_size")
    strides = said.sizes(count, "stride") if said.optional((), "stride") else kernel
    attrs: dict[str, AttrValue] = {
        **_window(said, count),
        "kernel_shape": kernel,
        "strides": strides,
        "ceil_mode": flag(said.optional(0, "ceil_mode")),
    }
    if not of(said.plain.op).selects:
        del attrs["dilations"]
        attrs["count_include_pad"] = flag(said.optional(1, "count_include_pad"))
    return said.as_onnx(attrs=attrs)


def _axis(said: Said) -> Translated:
    if said.optional(None, "dtype") is not None or flag(said.optional(0, "half_to_float")):
        raise Unsaid  # the data is made another type first
    return said.as_onnx(attrs={"axis": int(said.stated("dim", "axis"))})


def _sum(said: Said) -> Translated:
    """The second operand may have a factor, which a sum is computed with here."""
    factor = float(said.optional(1, "alpha"))
    if len(said.node.inputs) != 2:
        raise Unsaid
    return said.as_onnx(attrs={} if factor == 1 else {"alpha": factor})


_TURNING = ("aten.t.default", "aten.numpy_T.default")
"""Operators that turn all dimensions, or the two of a matrix."""


def _permute(said: Said) -> Translated:
    rank = len(said.extents(said.node.inputs[0]))
    order = list(range(rank))
    if said.node.op in _TURNING:
        order.reverse()
    elif "dims" in said.node.attrs:
        order = [int(each) % rank for each in said.stated("dims")]
    else:
        one, other = (int(said.stated(f"dim{at}", f"axis{at}")) for at in (0, 1))
        order[one], order[other] = order[other], order[one]
    return said.as_onnx("Transpose", {"perm": tuple(order)})


def _reduced(said: Said) -> Translated:
    """Without dimensions all are reduced; a dtype to sum in has no equal in ONNX."""
    if len(said.node.inputs) != 1 or said.optional(None, "dtype") is not None:
        raise Unsaid
    axes = said.optional((), "dim", "axis")
    return reduced(said, tuple(int(each) for each in axes) if isinstance(axes, tuple | list) else (int(axes),))


def _pad(said: Said) -> Translated:
    """The widths are pairs, of the last dimension first; dimensions without a pair are not padded."""
    widths = [int(each) for each in said.stated("pad")]
    rank = len(said.extents(said.node.inputs[0]))
    widths += [0] * (2 * rank - len(widths))
    filling = said.node.inputs[1] if len(said.node.inputs) > 1 else ""
    found = padded(said, (*widths[-2::-2], *widths[::-2]), said.optional("constant", "mode"), value=filling)
    value = float(said.optional(0.0, "value") or 0.0)
    return found if value == 0 else replace(found, node=replace(found.node, attrs={**found.node.attrs, "value": value}))


def _leaky(said: Said) -> Translated:
    return said.as_onnx("LeakyRelu", {"alpha": float(said.optional(0.01, "negative_slope"))})


def _norm(said: Said) -> Translated:
    if flag(said.optional(0, "training")) or len(said.node.inputs) != 5 or "" in said.node.inputs:
        raise Unsaid
    return said.as_onnx("BatchNormalization", {"epsilon": float(said.optional(1e-5, "eps"))})


def _axes_at_the_end(said: Said) -> int:
    """Return the first of the axes that a normalization runs over: as many as it states extents."""
    return -len(tuple(said.stated("normalized_shape")))


def _layer_norm(said: Said) -> Translated:
    if len(said.node.inputs) < 2 or not said.node.inputs[1]:
        raise Unsaid  # ONNX has a scale in any case
    return said.as_onnx(attrs={"axis": _axes_at_the_end(said), "epsilon": float(said.optional(1e-5, "eps"))})


def _rms_norm(said: Said) -> Translated:
    if len(said.node.inputs) < 2:
        raise Unsaid
    return said.as_onnx(attrs={"axis": _axes_at_the_end(said), "epsilon": float(said.stated("eps"))})


def _attention(said: Said) -> Translated:
    """ONNX has queries, keys and values of four dimensions in the same order: samples, heads, places, elements."""
    if float(said.optional(0.0, "dropout_p")) or any(len(said.extents(name)) != 4 for name in said.node.inputs[:3]):
        raise Unsaid
    attrs: dict[str, AttrValue] = {"is_causal": flag(said.optional(0, "is_causal"))}
    heads = [said.extents(name)[1] for name in said.node.inputs[:2]]
    if heads[0] != heads[1] and not flag(said.optional(0, "enable_gqa")):
        raise Unsaid
    if said.optional(None, "scale") is not None:
        attrs["scale"] = float(said.stated("scale"))
    return said.as_onnx("Attention", attrs)


def _gelu(said: Said) -> Translated:
    return said.as_onnx("Gelu", {"approximate": str(said.optional("none", "approximate"))})


def _silu(said: Said) -> Translated:
    return said.as_onnx("QuickGelu", {"alpha": 1.0}, domain=CONTRIBUTED)


def _clip(said: Said) -> Translated:
    """A clamp states its bounds, a hardtanh has them by default, a relu6 has them in its name."""
    if len(said.node.inputs) != 1:
        raise Unsaid
    if "hardtanh" in said.node.op:
        return said.as_onnx(
            attrs={end: float(said.optional(at, f"{end}_val")) for end, at in (("min", -1), ("max", 1))}
        )
    bounds = {end: float(said.plain.attrs[end]) for end in ("min", "max") if end in said.plain.attrs}  # type: ignore[arg-type]
    return said.as_onnx(attrs=dict(bounds))


def _gather(said: Said) -> Translated:
    """An embedding picks rows, a select one place, whose dimension is dropped; a gather picks element by element."""
    word = said.node.op.split(".")[-2] if said.node.op.count(".") > 1 else said.node.op
    if "embedding" in word:
        return said.as_onnx("Gather", {"axis": 0}, inputs=said.node.inputs[:2])
    if word == "index":
        return _indexed(said)
    if len(said.node.inputs) != 2:
        raise Unsaid
    named = "GatherElements" if word.endswith("gather") else "Gather"
    return said.as_onnx(named, {"axis": int(said.stated("dim", "axis"))})


def _indexed(said: Said) -> Translated:
    """Places along one dimension, whose position among the indices says which; more than one has no equal in ONNX."""
    data, *indices = said.node.inputs
    given = [axis for axis, name in enumerate(indices) if name]
    if len(given) != 1:
        raise Unsaid
    index = indices[given[0]]
    if not is_integer(said.graph.tensors[index].dtype or ""):
        raise Unsaid  # truth values pick as many places as are true
    return said.as_onnx("Gather", {"axis": given[0]}, inputs=(data, index))


def _largest(said: Said) -> Translated:
    attrs: dict[str, AttrValue] = {name: flag(said.optional(1, name)) for name in ("largest", "sorted")}
    attrs["axis"] = int(said.optional(-1, "dim"))
    count = np.array([int(said.stated("k"))])
    return said.as_onnx(attrs=attrs, inputs=(said.node.inputs[0], said.new("k")), constants={"k": count})


def _triangle(said: Said) -> Translated:
    upper, diagonal = int("triu" in said.node.op), np.array(int(said.optional(0, "diagonal")))
    return said.as_onnx(attrs={"upper": upper}, inputs=(said.node.inputs[0], said.new("k")), constants={"k": diagonal})


def _summed(said: Said) -> Translated:
    return said.as_onnx(attrs={"equation": str(said.stated("equation"))})


def _logical(said: Said) -> Translated:
    """Of truth values, or bit by bit of integers."""
    dtypes = {said.graph.tensors[name].dtype for name in said.node.inputs}
    if len(said.node.inputs) != 2 or None in dtypes:
        raise Unsaid
    if dtypes == {"bool"}:
        return said.as_onnx()
    if "logical" in said.node.op or "bool" in dtypes:
        raise Unsaid
    return said.as_onnx(f"Bitwise{said.plain.op}")


def _dtype(said: Said) -> np.dtype:
    """Return the element type of the result."""
    dtype = said.graph.tensors[said.node.outputs[0]].dtype
    if dtype is None:
        raise Unsaid
    return logical_dtype(dtype)


def _filled(said: Said) -> Translated:
    """The result says extents and element type; the word, or an argument, the number."""
    number = said.stated("fill_value") if "full" in said.node.op else int("ones" in said.node.op)
    extents = np.array(said.extents(said.node.outputs[0]), np.int64)
    value = np.full(1, number).astype(_dtype(said))
    return said.as_onnx(attrs={"value": value}, inputs=(said.new("extents"),), constants={"extents": extents})


def _range(said: Said) -> Translated:
    dtype = _dtype(said)
    numbers = {name: said.optional(usual, name) for name, usual in (("start", 0), ("end", None), ("step", 1))}
    if numbers["end"] is None:
        raise Unsaid
    constants = {name: np.array(number, dtype) for name, number in numbers.items()}
    return said.as_onnx(inputs=tuple(map(said.new, constants)), constants=constants)


def _slice(said: Said) -> Translated:
    """Of one dimension, places from `start` to `end`; both may be left out."""
    extents = said.extents(said.node.inputs[0])
    axis = int(said.optional(0, "dim")) % len(extents)
    start, end = (int(said.optional(usual, name)) for name, usual in (("start", 0), ("end", extents[axis])))
    return sliced(said, (start,), (end,), (int(said.optional(1, "step")),), axes=(axis,))


def _split(said: Said) -> Translated:
    """The extents of the results say how large each part is."""
    axis = int(said.optional(0, "dim")) % len(said.extents(said.node.inputs[0]))
    return said.as_onnx("Split", {"axis": axis, "split": tuple(said.extents(name)[axis] for name in said.node.outputs)})


def _unbind(said: Said) -> Translated:
    return said.as_onnx(attrs={"axis": int(said.optional(0, "dim"))})


def _where(said: Said) -> Translated:
    """A masked_fill has the data first, then where it is replaced, then by what."""
    first, second, third = said.node.inputs
    filled = "masked" in said.node.op
    return said.as_onnx("Where", inputs=(second, third, first) if filled else (first, second, third))


def _adaptive_pool(said: Said) -> Translated:
    """The extents of the result say how large the windows are, where they all are of one size."""
    before, after = (said.extents(name)[2:] for name in (said.node.inputs[0], said.node.outputs[0]))
    if set(after) == {1}:
        return said.as_onnx("GlobalAveragePool")
    if any(n % parts for n, parts in zip(before, after, strict=True)):
        raise Unsaid
    window = tuple(n // parts for n, parts in zip(before, after, strict=True))
    return said.as_onnx("AveragePool", {"kernel_shape": window, "strides": window})


def _resize(said: Said) -> Translated:
    """The extents of the result say how far it is enlarged, unless factors are stated: places then lie by these."""
    extents = said.extents(said.node.outputs[0])[2:]
    axes = tuple(range(2, 2 + len(extents)))
    attrs: dict[str, AttrValue] = {"mode": "linear", "axes": axes, "coordinate_transformation_mode": "half_pixel"}
    if "nearest" in said.node.op:
        attrs |= {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    elif flag(said.stated("align_corners")):
        attrs["coordinate_transformation_mode"] = "align_corners"
    named = [said.optional(None, name) for name in ("scales_h", "scales_w")]
    factors = said.optional(None, "scale_factors") or (None if None in named else named)
    if factors is None or attrs["coordinate_transformation_mode"] == "align_corners":
        return _resized(said, attrs, ("", said.new("sizes")), {"sizes": np.array(extents)})
    return _resized(said, attrs, (said.new("factors"),), {"factors": np.array(factors, np.float32)})


def _resized(
    said: Said, attrs: Mapping[str, AttrValue], given: tuple[str, ...], constants: Mapping[str, np.ndarray]
) -> Translated:
    return said.as_onnx(attrs=attrs, inputs=(said.node.inputs[0], "", *given), constants=constants)


def _gate(said: Said) -> Translated:
    return said.as_onnx(attrs={"alpha": 1 / 6, "beta": 0.5})


def _elu(said: Said) -> Translated:
    if any(float(said.optional(1, name)) != 1 for name in ("scale", "input_scale")):
        raise Unsaid
    return said.as_onnx(attrs={"alpha": float(said.optional(1, "alpha"))})


def _softplus(said: Said) -> Translated:
    if float(said.optional(1, "beta")) != 1:
        raise Unsaid
    return one(said)


def _shuffle(said: Said) -> Translated:
    return said.as_onnx(attrs={"blocksize": int(said.stated("upscale_factor")), "mode": "CRD"})


def _expand(said: Said) -> Translated:
    extents = np.array(said.extents(said.node.outputs[0]))
    return said.as_onnx(inputs=(said.node.inputs[0], said.new("extents")), constants={"extents": extents})


def _same(said: Said) -> Translated:
    if flag(said.optional(0, "train", "training")):
        raise Unsaid
    return said.as_onnx("Identity", inputs=said.node.inputs[:1])


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
"""ONNX's number of an element type (TensorProto.DataType)."""
_SATURATING = "float8_e4m3fn"
"""The format of 8 bits in which PyTorch 2.14 makes the largest number of one that is too large.

In the others it makes an infinity or a NaN of it, as it did in this one before.
"""


def _cast(said: Said) -> Translated:
    info = said.graph.tensors.get(said.node.outputs[0])
    number = None if info is None or info.dtype is None else _TYPES.get(info.dtype)
    if number is None:
        raise Unsaid
    attrs: dict[str, AttrValue] = {"to": number}
    if info is not None and str(info.dtype).startswith("float8"):
        attrs["saturate"] = int(info.dtype == _SATURATING)
    return said.as_onnx("Cast", attrs, inputs=said.node.inputs[:1])


TORCH: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": _conv,
        "ConvTranspose": _conv,
        "Gemm": _linear,
        "MaxPool": _pool,
        "AveragePool": _pool,
        "Softmax": _axis,
        "LogSoftmax": _axis,
        "Concat": _axis,
        "Transpose": _permute,
        "Pad": _pad,
        **dict.fromkeys(REDUCTIONS, _reduced),
        "LeakyRelu": _leaky,
        "BatchNormalization": _norm,
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
        "Identity": _same,
        "Cast": _cast,
        **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), reshape),
        **dict.fromkeys(("Add", "Sub"), _sum),
        **dict.fromkeys(("Mul", "Div", "MatMul", "MatMulInteger", "Pow", "Max", "Min"), two),
        **dict.fromkeys((*SIMPLE, "Not"), one),
        **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), two),
        **dict.fromkeys(("And", "Or", "Xor"), _logical),
        "TopK": _largest,
        "Trilu": _triangle,
        "Einsum": _summed,
        "ConstantOfShape": _filled,
        "Range": _range,
        "Clip": _clip,
        "Softplus": _softplus,
        "HardSigmoid": _gate,
        "Elu": _elu,
        "PRelu": by_channel,
        "Resize": _resize,
        "DepthToSpace": _shuffle,
        "Expand": _expand,
    }
)
"""The rule for each operator, as ONNX names it."""
