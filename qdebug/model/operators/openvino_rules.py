"""Translate nodes of OpenVINO to ONNX. Source: OpenVINO's operation sets 1 to 16.

If ONNX has an operator with the same name, an attribute, the number of inputs, or the rest of the graph decides whether
a node is OpenVINO's.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from qdebug.model.graph import AttrValue, Graph, Node
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
    reduce_by_input,
    reshape,
    slice_axes,
    to_flag,
    transpose_by_input,
    unary,
)
from qdebug.model.operators.operator import Move, Sums
from qdebug.model.operators.queries import of
from qdebug.model.operators.words import with_onnx_op

__all__ = ["OPENVINO", "is_openvino"]

_AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _window(foreign: ForeignNode) -> dict[str, AttrValue]:
    mode = str(foreign.optional("explicit", "auto_pad")).lower()
    if mode in _AUTO_PAD:
        return {"auto_pad": _AUTO_PAD[mode]}
    pads_begin, pads_end = (
        tuple(int(number) for number in foreign.required(name)) for name in ("pads_begin", "pads_end")
    )
    return {"pads": (*pads_begin, *pads_end)}


def _conv(foreign: ForeignNode) -> Translated:
    is_grouped = "Group" in foreign.node.op
    extents = foreign.extents(foreign.node.inputs[1])
    attrs: dict[str, AttrValue] = {
        **_window(foreign),
        "strides": tuple(int(number) for number in foreign.required("strides")),
        "dilations": tuple(int(number) for number in foreign.required("dilations")),
        "kernel_shape": extents[3 if is_grouped else 2 :],
        "group": extents[0] if is_grouped else 1,
    }
    if of(foreign.plain.op).sums is Sums.SCATTER:
        if len(foreign.node.inputs) > 2:
            raise UntranslatableError  # a third input states the output extents, which determine the padding
        attrs["output_padding"] = tuple(
            int(number) for number in foreign.optional((0,) * len(extents[2:]), "output_padding")
        )
    fused_attrs = _fused_activation_attrs(foreign)
    op, domain = ("FusedConv", CONTRIBUTED) if fused_attrs else ("", "")
    attrs |= fused_attrs
    if not is_grouped:
        return foreign.as_onnx(op, attrs, domain=domain)
    weight, has_group_dimension = _find_merged_weight(foreign, foreign.node.inputs[1])
    inputs = (foreign.node.inputs[0], weight, *foreign.node.inputs[2:])
    return foreign.as_onnx(
        op, attrs, domain=domain, inputs=inputs, merged_constants=frozenset((weight,) if has_group_dimension else ())
    )


def _fused_activation_attrs(foreign: ForeignNode) -> dict[str, AttrValue]:
    """Return the attributes of a fused activation, which have the names of ONNX Runtime."""
    fused_attrs = {
        name: foreign.node.attrs[name] for name in ("activation", "activation_params") if name in foreign.node.attrs
    }
    if fused_attrs and of(foreign.plain.op).sums is Sums.SCATTER:
        raise UntranslatableError  # ONNX Runtime has no ConvTranspose with a fused activation
    return fused_attrs


def _find_merged_weight(foreign: ForeignNode, weight: str) -> tuple[str, bool]:
    """Return the constant weight of a grouped convolution, and whether it has a separate group dimension.

    OpenVINO's weight is (groups, out, in, ...), or (groups, in, out, ...) for a transposed convolution. ONNX merges the
    first two dimensions. If the weight is a reshape of a constant in which they are merged, that constant is returned.
    """
    extents = foreign.extents(weight)
    producer = foreign.graph.producer(weight)
    if producer is not None and of(with_onnx_op(producer).op).moves is Move.RESHAPE:
        source = producer.inputs[0]
        if foreign.graph.is_constant(source) and foreign.extents(source) == (extents[0] * extents[1], *extents[2:]):
            return source, False
    quant = foreign.graph.tensors[weight].quant
    has_part_scales = quant is not None and quant.axis is not None and quant.axis % len(extents) < 2
    if has_part_scales and 1 not in extents[:2]:
        raise UntranslatableError  # the scales of one dimension do not fit the merged dimension
    return weight, True


def _pool(foreign: ForeignNode) -> Translated:
    attrs: dict[str, AttrValue] = {
        **_window(foreign),
        "kernel_shape": tuple(int(number) for number in foreign.required("kernel")),
        "strides": tuple(int(number) for number in foreign.required("strides")),
        "ceil_mode": int(str(foreign.optional("floor", "rounding_type")).lower().startswith("ceil")),
    }
    if of(foreign.plain.op).selects:
        attrs["dilations"] = tuple(int(number) for number in foreign.optional((), "dilations")) or (1,) * len(
            tuple(foreign.required("kernel"))
        )
    else:
        attrs["count_include_pad"] = 1 - to_flag(foreign.required("exclude-pad", "exclude_pad"))
    return foreign.as_onnx(attrs=attrs, inputs=foreign.node.inputs[:1])


def _matmul(foreign: ForeignNode) -> Translated:
    is_transposed = [to_flag(foreign.optional(0, name)) for name in ("transpose_a", "transpose_b")]
    fused_attrs = _fused_activation_attrs(foreign)
    if fused_attrs or len(foreign.node.inputs) > 2:
        if len(foreign.extents(foreign.node.inputs[0])) != 2 or len(foreign.node.inputs) < 3:
            raise UntranslatableError
        attrs = {"transA": is_transposed[0], "transB": is_transposed[1], **fused_attrs}
        return foreign.as_onnx("FusedGemm" if fused_attrs else "Gemm", attrs, domain=CONTRIBUTED if fused_attrs else "")
    if not any(is_transposed):
        return foreign.as_onnx("MatMul")
    return foreign.as_onnx("FusedMatMul", {"transA": is_transposed[0], "transB": is_transposed[1]}, domain=CONTRIBUTED)


def _axis_function(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"axis": int(foreign.required("axis"))})


def _pad(foreign: ForeignNode) -> Translated:
    value = foreign.node.inputs[3] if len(foreign.node.inputs) > 3 else ""
    return pad_dimensions(
        foreign, (*foreign.integers(1), *foreign.integers(2)), foreign.required("pad_mode"), value=value
    )


def _hard_sigmoid(foreign: ForeignNode) -> Translated:
    """Translate HSigmoid, which is (x + 3) / 6 between 0 and 1, or HardSigmoid, whose parameters are inputs."""
    if len(foreign.node.inputs) == 1:
        return foreign.as_onnx(attrs={"alpha": 1 / 6, "beta": 0.5})
    alpha, beta = (float(foreign.constant_values(name).reshape(())) for name in foreign.node.inputs[1:])
    return foreign.as_onnx(attrs={"alpha": alpha, "beta": beta}, inputs=foreign.node.inputs[:1])


def _swish(foreign: ForeignNode) -> Translated:
    factor = 1.0 if len(foreign.node.inputs) < 2 else float(foreign.constant_values(foreign.node.inputs[1]).reshape(()))
    return foreign.as_onnx("Swish", {"alpha": factor}, inputs=foreign.node.inputs[:1])


def _gelu(foreign: ForeignNode) -> Translated:
    mode = str(foreign.required("approximation_mode")).lower()
    if mode not in ("erf", "tanh"):
        raise UntranslatableError
    return foreign.as_onnx(attrs={"approximate": "none" if mode == "erf" else mode})


def _elu(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"alpha": float(foreign.required("alpha"))})


_TYPES: Mapping[str, int] = MappingProxyType(
    {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "boolean": 9, "f16": 10, "f64": 11}
    | {"u32": 12, "u64": 13, "bf16": 16}
)
"""ONNX's numbers of element types (TensorProto.DataType)."""


def _cast(foreign: ForeignNode) -> Translated:
    number = _TYPES.get(str(foreign.required("destination_type")))
    if number is None:
        raise UntranslatableError
    return foreign.as_onnx("Cast", {"to": number})


def _split(foreign: ForeignNode) -> Translated:
    """Translate a split. Its axis is an input, and the output extents are the sizes of the parts."""
    axis = foreign.integers(1)[0] % len(foreign.extents(foreign.node.inputs[0]))
    parts = tuple(foreign.extents(name)[axis] for name in foreign.node.outputs)
    return foreign.as_onnx(attrs={"axis": axis, "split": parts}, inputs=foreign.node.inputs[:1])


def _slice(foreign: ForeignNode) -> Translated:
    """Translate a slice.

    StridedSlice has masks with one number per dimension. Slice has its steps before its axes, unlike in ONNX.
    """
    if "Strided" not in foreign.node.op:
        data, start, stop, step, *axes = foreign.node.inputs
        return foreign.as_onnx(inputs=(data, start, stop, *(axes or ("",)), step))
    mask_names = ("new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    if any(to_flag(mask) for name in mask_names for mask in foreign.optional((), name)):
        raise UntranslatableError
    starts, ends = foreign.integers(1), foreign.integers(2)
    steps = foreign.integers(3) if len(foreign.node.inputs) > 3 else (1,) * len(starts)
    begin_flags, end_flags = (
        tuple(to_flag(mask) for mask in foreign.required(name)) for name in ("begin_mask", "end_mask")
    )
    return slice_axes(foreign, starts, ends, steps, unbounded=(begin_flags, end_flags))


def _gather(foreign: ForeignNode) -> Translated:
    """Translate a gather, whose axis is an input."""
    if to_flag(foreign.optional(0, "batch_dims")):
        raise UntranslatableError
    return foreign.as_onnx(attrs={"axis": foreign.integers(2)[0]}, inputs=foreign.node.inputs[:2])


def _select(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(inputs=foreign.node.inputs[:3])


def _broadcast(foreign: ForeignNode) -> Translated:
    if str(foreign.optional("numpy", "mode")).lower() not in ("numpy", "bidirectional"):
        raise UntranslatableError
    return foreign.as_onnx("Expand", inputs=foreign.node.inputs[:2])


_BLOCK_MODES = MappingProxyType({"blocks_first": "DCR", "depth_first": "CRD"})


def _space_and_depth(foreign: ForeignNode) -> Translated:
    mode = _BLOCK_MODES.get(str(foreign.required("mode")).lower())
    if mode is None or len(foreign.extents(foreign.node.inputs[0])) != 4:
        raise UntranslatableError
    return foreign.as_onnx(attrs={"blocksize": int(foreign.optional(1, "block_size")), "mode": mode})


def _batch_norm(foreign: ForeignNode) -> Translated:
    epsilon = float(foreign.required("epsilon", "eps"))
    return foreign.as_onnx(attrs={"epsilon": epsilon})


def _top_k(foreign: ForeignNode) -> Translated:
    mode = str(foreign.required("mode")).lower()
    attrs: dict[str, AttrValue] = {"axis": int(foreign.required("axis")), "largest": int(mode == "max")}
    attrs["sorted"] = int(str(foreign.required("sort")).lower() == "value")
    attrs["stable"] = to_flag(foreign.optional(0, "stable"))  # otherwise the order of equal elements is undefined
    return foreign.as_onnx(attrs=attrs)


_COORDINATE_MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn")
_NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MODES = MappingProxyType({"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"})


def _interpolate(foreign: ForeignNode) -> Translated:
    """Translate a resize of some axes to extents or by scales.

    The older operation has both extents and scales as inputs, the newer one only one of them.
    """
    mode, coordinate_mode = (str(foreign.required(name)).lower() for name in ("mode", "coordinate_transformation_mode"))
    is_padded_first = any(int(width) for name in ("pads_begin", "pads_end") for width in foreign.optional((), name))
    if (
        mode not in _MODES
        or coordinate_mode not in _COORDINATE_MODES
        or is_padded_first
        or to_flag(foreign.optional(0, "antialias"))
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
    if len(sizes_inputs) == 3 or (
        len(sizes_inputs) == 2 and foreign.constant_values(sizes_inputs[1]).dtype.kind in "iu"
    ):
        attrs["axes"] = foreign.integers(len(sizes_inputs))
        del sizes_inputs[-1]
    if str(foreign.required("shape_calculation_mode")).lower() == "sizes":
        return foreign.as_onnx(attrs=attrs, inputs=(data, "", "", sizes_inputs[0]))
    return foreign.as_onnx(attrs=attrs, inputs=(data, "", sizes_inputs[-1]))


_UNIQUE_NAMES = frozenset(
    (
        *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "Clamp"),
        *("Multiply", "Subtract", "Divide", "Power", "Maximum", "Minimum", "Negative", "Ceiling", "Select"),
        *("ReLU", "SoftMax", "HSwish", "HSigmoid", "SoftPlus", "SoftSign", "AvgPool", "Broadcast"),
        *("Interpolate", "StridedSlice", "VariadicSplit", "BatchNormInference", "FakeQuantize"),
    )
)
"""Operator names that only OpenVINO spells like this."""
_UNIQUE_ATTRS = frozenset(
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
"""Attributes that only OpenVINO has. They distinguish operators with equal names."""
_INPUT_COUNTS: Mapping[str, int] = MappingProxyType({"Transpose": 2, "Gather": 3, "HardSigmoid": 3, "Swish": 2})
"""Number of inputs in OpenVINO, for operators that have fewer inputs in ONNX, which uses attributes instead."""
_AMBIGUOUS_OPS = frozenset(("PRelu", "Slice"))
"""Operators that have the same name and form in ONNX, but inputs with a different meaning."""


def is_openvino(node: Node, graph: Graph) -> bool:
    """Return whether a node is OpenVINO's and differs from the ONNX operator with the same name, if there is one.

    Args:
        node: The node.
        graph: Its graph. In ambiguous cases, its other nodes decide.
    """
    if _is_clearly_openvino(node) or len(node.inputs) == _INPUT_COUNTS.get(node.op):
        return True
    if of(node.op).moves_channels and "block_size" in node.attrs:
        return True
    return node.op in _AMBIGUOUS_OPS and _has_clear_openvino_nodes(graph)


def _is_clearly_openvino(node: Node) -> bool:
    return node.op in _UNIQUE_NAMES or not _UNIQUE_ATTRS.isdisjoint(node.attrs)


@lru_cache(maxsize=1)
def _has_clear_openvino_nodes(graph: Graph) -> bool:
    return any(map(_is_clearly_openvino, graph.nodes))


OPENVINO: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": _conv,
        "ConvTranspose": _conv,
        "MaxPool": _pool,
        "AveragePool": _pool,
        "MatMul": _matmul,
        "Softmax": _axis_function,
        "LogSoftmax": _axis_function,
        "Concat": _axis_function,
        "Pad": _pad,
        "PRelu": prelu_by_channel,
        "Cast": _cast,
        "HardSigmoid": _hard_sigmoid,
        "Swish": _swish,
        "Gelu": _gelu,
        "Elu": _elu,
        "Split": _split,
        "Slice": _slice,
        "Gather": _gather,
        "Where": _select,
        "Expand": _broadcast,
        "DepthToSpace": _space_and_depth,
        "SpaceToDepth": _space_and_depth,
        "BatchNormalization": _batch_norm,
        "TopK": _top_k,
        "Resize": _interpolate,
        "Transpose": transpose_by_input,
        **dict.fromkeys(REDUCTIONS, reduce_by_input),
        **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), reshape),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "SquaredDifference"), binary),
        **dict.fromkeys(UNARY_FUNCTIONS, unary),
    }
)
"""The rule for each operator, under its ONNX name."""
