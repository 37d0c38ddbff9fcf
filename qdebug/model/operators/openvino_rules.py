"""Translate nodes of OpenVINO to ONNX. Source: OpenVINO's operation sets 1 to 16.

If ONNX has an operator with the same name, an attribute, the number of inputs, or the rest of the graph decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.operators.foreign_node import (
    CONTRIBUTED,
    REDUCTIONS,
    SIMPLE,
    ForeignNode,
    Rule,
    Translated,
    UntranslatableError,
    binary,
    flag,
    pad_dimensions,
    prelu_by_channel,
    reduce_by_input,
    reshape,
    slice_axes,
    transpose_by_input,
    unary,
)
from qdebug.model.operators.operator import Move, Sums
from qdebug.model.operators.queries import of
from qdebug.model.operators.words import in_words_of_onnx

__all__ = ["OPENVINO", "is_openvino"]

_AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _window(foreign: ForeignNode) -> dict[str, AttrValue]:
    mode = str(foreign.optional("explicit", "auto_pad")).lower()
    if mode in _AUTO_PAD:
        return {"auto_pad": _AUTO_PAD[mode]}
    pads_begin, pads_end = (
        tuple(int(number) for number in foreign.stated(name)) for name in ("pads_begin", "pads_end")
    )
    return {"pads": (*pads_begin, *pads_end)}


def _conv(foreign: ForeignNode) -> Translated:
    is_grouped = "Group" in foreign.node.op
    extents = foreign.extents(foreign.node.inputs[1])
    attrs: dict[str, AttrValue] = {
        **_window(foreign),
        "strides": tuple(int(number) for number in foreign.stated("strides")),
        "dilations": tuple(int(number) for number in foreign.stated("dilations")),
        "kernel_shape": extents[3 if is_grouped else 2 :],
        "group": extents[0] if is_grouped else 1,
    }
    if of(foreign.plain.op).sums is Sums.SCATTER:
        if len(foreign.node.inputs) > 2:
            raise UntranslatableError  # the extents of its result decide the padding
        attrs["output_padding"] = tuple(
            int(number) for number in foreign.optional((0,) * len(extents[2:]), "output_padding")
        )
    fused_attrs = _activation(foreign)
    op, domain = ("FusedConv", CONTRIBUTED) if fused_attrs else ("", "")
    attrs |= fused_attrs
    if not is_grouped:
        return foreign.as_onnx(op, attrs, domain=domain)
    weight, has_group_dimension = _without_groups(foreign, foreign.node.inputs[1])
    inputs = (foreign.node.inputs[0], weight, *foreign.node.inputs[2:])
    return foreign.as_onnx(
        op, attrs, domain=domain, inputs=inputs, merged=frozenset((weight,) if has_group_dimension else ())
    )


def _activation(foreign: ForeignNode) -> dict[str, AttrValue]:
    """Return the fused activation of a runtime in ONNX Runtime's form."""
    fused_attrs = {
        name: foreign.node.attrs[name] for name in ("activation", "activation_params") if name in foreign.node.attrs
    }
    if fused_attrs and of(foreign.plain.op).sums is Sums.SCATTER:
        raise UntranslatableError  # ONNX has no fused activation here
    return fused_attrs


def _without_groups(foreign: ForeignNode, weight: str) -> tuple[str, bool]:
    """Return the constant weight of a grouped convolution, and whether it has a separate group dimension.

    OpenVINO's weight is (groups, out, in, ...), or (groups, in, out, ...) for a transposed one. If it is a reshape of a
    constant with merged first dimensions, that constant is ONNX's weight.
    """
    extents = foreign.extents(weight)
    producer = foreign.graph.producer(weight)
    if producer is not None and of(in_words_of_onnx(producer).op).moves is Move.RESHAPE:
        source = producer.inputs[0]
        if foreign.graph.is_constant(source) and foreign.extents(source) == (extents[0] * extents[1], *extents[2:]):
            return source, False
    quant = foreign.graph.tensors[weight].quant
    has_part_scales = quant is not None and quant.axis is not None and quant.axis % len(extents) < 2
    if has_part_scales and 1 not in extents[:2]:
        raise UntranslatableError  # scales along one of two merged dimensions do not fit the merged one
    return weight, True


def _pool(foreign: ForeignNode) -> Translated:
    attrs: dict[str, AttrValue] = {
        **_window(foreign),
        "kernel_shape": tuple(int(number) for number in foreign.stated("kernel")),
        "strides": tuple(int(number) for number in foreign.stated("strides")),
        "ceil_mode": int(str(foreign.optional("floor", "rounding_type")).lower().startswith("ceil")),
    }
    if of(foreign.plain.op).selects:
        attrs["dilations"] = tuple(int(number) for number in foreign.optional((), "dilations")) or (1,) * len(
            tuple(foreign.stated("kernel"))
        )
    else:
        attrs["count_include_pad"] = 1 - flag(foreign.stated("exclude-pad", "exclude_pad"))
    return foreign.as_onnx(attrs=attrs, inputs=foreign.node.inputs[:1])


def _matmul(foreign: ForeignNode) -> Translated:
    is_transposed = [flag(foreign.optional(0, name)) for name in ("transpose_a", "transpose_b")]
    fused_attrs = _activation(foreign)
    if fused_attrs or len(foreign.node.inputs) > 2:
        if len(foreign.extents(foreign.node.inputs[0])) != 2 or len(foreign.node.inputs) < 3:
            raise UntranslatableError
        attrs = {"transA": is_transposed[0], "transB": is_transposed[1], **fused_attrs}
        return foreign.as_onnx("FusedGemm" if fused_attrs else "Gemm", attrs, domain=CONTRIBUTED if fused_attrs else "")
    if not any(is_transposed):
        return foreign.as_onnx("MatMul")
    return foreign.as_onnx("FusedMatMul", {"transA": is_transposed[0], "transB": is_transposed[1]}, domain=CONTRIBUTED)


def _axis(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"axis": int(foreign.stated("axis"))})


def _pad(foreign: ForeignNode) -> Translated:
    value = foreign.node.inputs[3] if len(foreign.node.inputs) > 3 else ""
    return pad_dimensions(foreign, (*foreign.numbers(1), *foreign.numbers(2)), foreign.stated("pad_mode"), value=value)


def _bounded_slope(foreign: ForeignNode) -> Translated:
    """Translate gates that are linear between two bounds. HSigmoid is (x + 3) / 6; other parameters are inputs."""
    if len(foreign.node.inputs) == 1:
        return foreign.as_onnx(attrs={"alpha": 1 / 6, "beta": 0.5})
    alpha, beta = (float(foreign.values(name).reshape(())) for name in foreign.node.inputs[1:])
    return foreign.as_onnx(attrs={"alpha": alpha, "beta": beta}, inputs=foreign.node.inputs[:1])


def _swish(foreign: ForeignNode) -> Translated:
    factor = 1.0 if len(foreign.node.inputs) < 2 else float(foreign.values(foreign.node.inputs[1]).reshape(()))
    return foreign.as_onnx("Swish", {"alpha": factor}, inputs=foreign.node.inputs[:1])


def _gelu(foreign: ForeignNode) -> Translated:
    mode = str(foreign.stated("approximation_mode")).lower()
    if mode not in ("erf", "tanh"):
        raise UntranslatableError
    return foreign.as_onnx(attrs={"approximate": "none" if mode == "erf" else mode})


def _elu(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"alpha": float(foreign.stated("alpha"))})


_TYPES: Mapping[str, int] = MappingProxyType(
    {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "boolean": 9, "f16": 10, "f64": 11}
    | {"u32": 12, "u64": 13, "bf16": 16}
)
"""ONNX's numbers of element types (TensorProto.DataType)."""


def _cast(foreign: ForeignNode) -> Translated:
    number = _TYPES.get(str(foreign.stated("destination_type")))
    if number is None:
        raise UntranslatableError
    return foreign.as_onnx("Cast", {"to": number})


def _split(foreign: ForeignNode) -> Translated:
    """Translate a split. Its axis is an input, and the output extents are the sizes of the parts."""
    axis = foreign.numbers(1)[0] % len(foreign.extents(foreign.node.inputs[0]))
    parts = tuple(foreign.extents(name)[axis] for name in foreign.node.outputs)
    return foreign.as_onnx(attrs={"axis": axis, "split": parts}, inputs=foreign.node.inputs[:1])


def _slice(foreign: ForeignNode) -> Translated:
    """Translate a slice.

    StridedSlice has masks with one number per dimension, and Slice has its steps before its axes.
    """
    if "Strided" not in foreign.node.op:
        data, start, stop, step, *axes = foreign.node.inputs
        return foreign.as_onnx(inputs=(data, start, stop, *(axes or ("",)), step))
    mask_names = ("new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    if any(flag(mask) for name in mask_names for mask in foreign.optional((), name)):
        raise UntranslatableError
    starts, ends = foreign.numbers(1), foreign.numbers(2)
    steps = foreign.numbers(3) if len(foreign.node.inputs) > 3 else (1,) * len(starts)
    begin_flags, end_flags = (tuple(flag(mask) for mask in foreign.stated(name)) for name in ("begin_mask", "end_mask"))
    return slice_axes(foreign, starts, ends, steps, free=(begin_flags, end_flags))


def _gather(foreign: ForeignNode) -> Translated:
    """Translate a gather, whose axis is an input."""
    if flag(foreign.optional(0, "batch_dims")):
        raise UntranslatableError
    return foreign.as_onnx(attrs={"axis": foreign.numbers(2)[0]}, inputs=foreign.node.inputs[:2])


def _select(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(inputs=foreign.node.inputs[:3])


def _broadcast(foreign: ForeignNode) -> Translated:
    if str(foreign.optional("numpy", "mode")).lower() not in ("numpy", "bidirectional"):
        raise UntranslatableError
    return foreign.as_onnx("Expand", inputs=foreign.node.inputs[:2])


_BLOCKS = MappingProxyType({"blocks_first": "DCR", "depth_first": "CRD"})


def _blocks(foreign: ForeignNode) -> Translated:
    mode = _BLOCKS.get(str(foreign.stated("mode")).lower())
    if mode is None or len(foreign.extents(foreign.node.inputs[0])) != 4:
        raise UntranslatableError
    return foreign.as_onnx(attrs={"blocksize": int(foreign.optional(1, "block_size")), "mode": mode})


def _norm(foreign: ForeignNode) -> Translated:
    epsilon = float(foreign.stated("epsilon", "eps"))
    return foreign.as_onnx(attrs={"epsilon": epsilon})


def _top(foreign: ForeignNode) -> Translated:
    mode = str(foreign.stated("mode")).lower()
    attrs: dict[str, AttrValue] = {"axis": int(foreign.stated("axis")), "largest": int(mode == "max")}
    attrs["sorted"] = int(str(foreign.stated("sort")).lower() == "value")
    attrs["stable"] = flag(foreign.optional(0, "stable"))  # otherwise the order of equal elements is undefined
    return foreign.as_onnx(attrs=attrs)


_COORDINATE_MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn")
_NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MODES = MappingProxyType({"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"})


def _interpolate(foreign: ForeignNode) -> Translated:
    """Translate extents or scales for some axes. The older operation has both as inputs, the newer only one."""
    mode, coordinate_mode = (str(foreign.stated(name)).lower() for name in ("mode", "coordinate_transformation_mode"))
    is_padded_first = any(int(width) for name in ("pads_begin", "pads_end") for width in foreign.optional((), name))
    if (
        mode not in _MODES
        or coordinate_mode not in _COORDINATE_MODES
        or is_padded_first
        or flag(foreign.optional(0, "antialias"))
    ):
        raise UntranslatableError
    attrs: dict[str, AttrValue] = {"mode": _MODES[mode], "coordinate_transformation_mode": coordinate_mode}
    if attrs["mode"] == "nearest":
        nearest_mode = str(foreign.optional(_NEAREST_MODES[0], "nearest_mode")).lower()
        if nearest_mode not in _NEAREST_MODES:
            raise UntranslatableError
        attrs["nearest_mode"] = nearest_mode
    elif attrs["mode"] == "cubic":
        attrs["cubic_coeff_a"] = float(foreign.optional(-0.75, "cube_coeff"))
    data, *sizes_inputs = foreign.node.inputs
    if len(sizes_inputs) == 3 or (len(sizes_inputs) == 2 and foreign.values(sizes_inputs[1]).dtype.kind in "iu"):
        attrs["axes"] = foreign.numbers(len(sizes_inputs))
        del sizes_inputs[-1]
    if str(foreign.stated("shape_calculation_mode")).lower() == "sizes":
        return foreign.as_onnx(attrs=attrs, inputs=(data, "", "", sizes_inputs[0]))
    return foreign.as_onnx(attrs=attrs, inputs=(data, "", sizes_inputs[-1]))


_NAMES = frozenset(
    (
        *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "Clamp"),
        *("Multiply", "Subtract", "Divide", "Power", "Maximum", "Minimum", "Negative", "Ceiling", "Select"),
        *("ReLU", "SoftMax", "HSwish", "HSigmoid", "SoftPlus", "SoftSign", "AvgPool", "Broadcast"),
        *("Interpolate", "StridedSlice", "VariadicSplit", "BatchNormInference", "FakeQuantize"),
    )
)
"""Operator names whose spelling is unique to OpenVINO."""
_ATTRS = frozenset(
    (
        *("transpose_a", "transpose_b", "pads_begin", "pads_end", "exclude-pad", "exclude_pad", "rounding_type"),
        *(
            "special_zero",
            "keep_dims",
            "pad_mode",
            "num_splits",
            "approximation_mode",
            "index_element_type",
            "destination_type",
        ),
    )
)
"""Attributes that only OpenVINO uses, which distinguish operators with equal names."""
_INPUTS: Mapping[str, int] = MappingProxyType({"Transpose": 2, "Gather": 3, "HardSigmoid": 3, "Swish": 2})
"""Operators and their number of inputs in OpenVINO, for which ONNX has fewer inputs and uses attributes."""
_EITHER = frozenset(("PRelu", "Slice"))
"""Operators with the same name whose inputs have a different meaning."""


def is_openvino(node: Node, graph: Graph) -> bool:
    """Return whether a node is OpenVINO's, if ONNX has a different operator with its name, or none.

    Args:
        node: The node.
        graph: Its graph. In ambiguous cases, its other nodes decide.
    """
    if _is_plainly(node) or len(node.inputs) == _INPUTS.get(node.op):
        return True
    if of(node.op).moves_channels and "block_size" in node.attrs:
        return True
    return node.op in _EITHER and _speaks_openvino(graph)


def _is_plainly(node: Node) -> bool:
    return node.op in _NAMES or not _ATTRS.isdisjoint(node.attrs)


@lru_cache(maxsize=1)
def _speaks_openvino(graph: Graph) -> bool:
    return any(map(_is_plainly, graph.nodes))


OPENVINO: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": _conv,
        "ConvTranspose": _conv,
        "MaxPool": _pool,
        "AveragePool": _pool,
        "MatMul": _matmul,
        "Softmax": _axis,
        "LogSoftmax": _axis,
        "Concat": _axis,
        "Pad": _pad,
        "PRelu": prelu_by_channel,
        "Cast": _cast,
        "HardSigmoid": _bounded_slope,
        "Swish": _swish,
        "Gelu": _gelu,
        "Elu": _elu,
        "Split": _split,
        "Slice": _slice,
        "Gather": _gather,
        "Where": _select,
        "Expand": _broadcast,
        "DepthToSpace": _blocks,
        "SpaceToDepth": _blocks,
        "BatchNormalization": _norm,
        "TopK": _top,
        "Resize": _interpolate,
        "Transpose": transpose_by_input,
        **dict.fromkeys(REDUCTIONS, reduce_by_input),
        **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), reshape),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "SquaredDifference"), binary),
        **dict.fromkeys(SIMPLE, unary),
    }
)
"""The rule for each operator, under its ONNX name."""
