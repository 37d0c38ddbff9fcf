"""Translate nodes of TensorFlow Lite, PyTorch and OpenVINO to ONNX, including attributes. Begin at `translate_to_onnx`.

A node is translated only if everything that its result depends on was recorded; nothing is assumed. The rules for
PyTorch are in `torch_rules`, the rules for OpenVINO in `openvino_rules`. Source of TensorFlow Lite's definitions:
tensorflow/lite/schema/schema.fbs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.operators.foreign_node import (
    CONTRIBUTED,
    REDUCTIONS,
    UNARY_FUNCTIONS,
    Constants,
    ForeignNode,
    Rule,
    Translated,
    UntranslatableError,
    binary,
    no_constants,
    pad_dimensions,
    reduce_by_input,
    reshape,
    slice_axes,
    to_flag,
    transpose_by_input,
    unary,
)
from qdebug.model.operators.openvino_rules import OPENVINO, is_openvino
from qdebug.model.operators.queries import of
from qdebug.model.operators.torch_rules import TORCH
from qdebug.model.operators.words import is_foreign, with_onnx_op
from qdebug.model.quant import QuantParams

__all__ = ["Translated", "translate_to_onnx"]


def translate_to_onnx(node: Node, graph: Graph, constants: Constants = no_constants) -> Translated | None:
    """Translate a node of another framework to ONNX; None for an ONNX node, or if a required fact was not recorded.

    Args:
        node: The node.
        graph: Its graph, for the ranks and extents of tensors.
        constants: Values of its constants. Some inputs, such as axes and widths, are attributes in ONNX.
    """
    is_from_openvino = is_openvino(node, graph)
    if not (is_from_openvino or is_foreign(node)) or not node.outputs:
        return None
    plain = with_onnx_op(node)
    rules = _TFLITE if node.op.isupper() else OPENVINO if is_from_openvino else TORCH
    rule = rules.get(plain.op)
    if rule is None:
        return None
    foreign = ForeignNode(node=node, plain=plain, graph=graph, constants=constants)
    try:
        return _with_activation(foreign, rule(foreign)) if rules is TORCH else rule(foreign)
    except (UntranslatableError, IndexError, TypeError, ValueError):  # a harness may record any attributes
        return None


_ACTIVATION = ("activation", "activation_params")
"""Attributes of a fused activation, as in ONNX Runtime."""
_NO_ACTIVATION = ("NONE", "none", "", 0, None)


def _fused_activation_attrs(foreign: ForeignNode) -> dict[str, AttrValue]:
    """Return TensorFlow Lite's fused activation as attributes of ONNX Runtime."""
    name = foreign.required("fused_activation_function", "fused_activation")
    if name in _NO_ACTIVATION:
        return {}
    onnx_attrs = foreign.plain.attrs
    if "activation" not in onnx_attrs:
        raise UntranslatableError
    return {name: onnx_attrs[name] for name in _ACTIVATION}


def _with_activation(foreign: ForeignNode, translation: Translated) -> Translated:
    """Add the fused activation of a PyTorch node, which a delegate's attribute or the operator's name states."""
    is_stated = any(name in foreign.node.attrs for name in ("fused_activation_function", "fused_activation"))
    onnx_attrs = foreign.plain.attrs
    fused_attrs = (
        _fused_activation_attrs(foreign)
        if is_stated
        else {name: onnx_attrs[name] for name in _ACTIVATION if name in onnx_attrs}
    )
    op = {"Conv": "FusedConv", "Gemm": "FusedGemm"}.get(translation.node.op, "")
    if not fused_attrs:
        return translation
    attrs = {**translation.node.attrs, **fused_attrs}
    if op:
        return replace(translation, node=replace(translation.node, op=op, domain=CONTRIBUTED, attrs=attrs))
    if not of(translation.node.op).takes_clamp:
        raise UntranslatableError
    return replace(translation, node=replace(translation.node, attrs=attrs))


def _lite_window(foreign: ForeignNode) -> dict[str, AttrValue]:
    """Return strides, padding and layout of a window over two dimensions."""
    padding = foreign.required("padding")
    mode = {"SAME": "SAME_UPPER", "VALID": "VALID", 0: "SAME_UPPER", 1: "VALID"}.get(padding)
    if mode is None:
        raise UntranslatableError
    return {
        "auto_pad": mode,
        "strides": (int(foreign.required("stride_h")), int(foreign.required("stride_w"))),
        "channels_last": 1,
    }


def _is_hybrid(foreign: ForeignNode) -> bool:
    """Return whether the weight is quantized but the data is real, so that TensorFlow Lite quantizes it at run time."""
    data, weight = (foreign.graph.tensors.get(name) for name in foreign.node.inputs[:2])
    return weight is not None and weight.quant is not None and (data is None or data.quant is None)


def _lite_conv(foreign: ForeignNode) -> Translated:
    weight = foreign.node.inputs[1]
    extents = foreign.extents(weight)
    is_depthwise = "DEPTHWISE" in foreign.node.op
    dilations = (int(foreign.optional(1, "dilation_h_factor")), int(foreign.optional(1, "dilation_w_factor")))
    attrs = {**_lite_window(foreign), "dilations": dilations, "kernel_shape": tuple(extents[1:3])}
    channels = foreign.extents(foreign.node.inputs[0])[-1]
    attrs["group"] = channels if is_depthwise else channels // extents[3]
    fused_attrs = _fused_activation_attrs(foreign)
    # Weights are (out, height, width, in), or (1, height, width, out) for a depthwise convolution.
    permutations = {weight: (3, 0, 1, 2) if is_depthwise else (0, 3, 1, 2)}
    if _is_hybrid(foreign):  # if all filters share one scale, data is quantized symmetrically, as for a matrix product
        has_one_scale = _hybrid_weight_quant(foreign, 3 if is_depthwise else 0).scale.size == 1
        return _lite_hybrid(
            foreign,
            "DynamicQuantizeConv",
            {**attrs, **fused_attrs},
            permutations,
            symmetric=has_one_scale and not is_depthwise,
        )
    domain = CONTRIBUTED if fused_attrs else ""
    return foreign.as_onnx(
        "FusedConv" if fused_attrs else "Conv", {**attrs, **fused_attrs}, domain=domain, permutations=permutations
    )


def _lite_fully_connected(foreign: ForeignNode) -> Translated:
    """Translate a fully connected layer. It splits data of any rank into rows that are as wide as the weight.

    The result either keeps the leading dimensions of the data, or is a matrix.
    """
    if foreign.optional(0, "weights_format") not in (0, "DEFAULT"):  # the elements of the weight are shuffled
        raise UntranslatableError
    data_extents, weight, output_extents = (
        foreign.extents(name) for name in (*foreign.node.inputs[:2], foreign.node.outputs[0])
    )
    rows = math.prod(data_extents) // max(weight[1], 1)
    keeps_dimensions = data_extents[-1:] == weight[1:] and output_extents == (*data_extents[:-1], weight[0])
    if not keeps_dimensions and (output_extents != (rows, weight[0]) or rows * weight[1] != math.prod(data_extents)):
        raise UntranslatableError
    attrs, fused_attrs = {} if keeps_dimensions else {"flatten": 1}, _fused_activation_attrs(foreign)
    if _is_hybrid(foreign):
        _hybrid_weight_quant(foreign, 0)
        is_symmetric = not to_flag(foreign.optional(0, "asymmetric_quantize_inputs"))
        permutations = {foreign.node.inputs[1]: (1, 0)}
        return _lite_hybrid(
            foreign, "DynamicQuantizeMatMul", {**attrs, **fused_attrs}, permutations, symmetric=is_symmetric
        )
    attrs, domain = {"transB": 1, **attrs}, CONTRIBUTED if fused_attrs else ""
    return foreign.as_onnx("FusedGemm" if fused_attrs else "Gemm", {**attrs, **fused_attrs}, domain=domain)


def _hybrid_weight_quant(foreign: ForeignNode, axis: int | None) -> QuantParams:
    """Return the quantization of a hybrid node's weight. It must be symmetric, per tensor or along the given axis."""
    quant = foreign.graph.tensors[foreign.node.inputs[1]].quant
    if quant is None or np.any(quant.zero_point) or (quant.per_channel and quant.axis != axis):
        raise UntranslatableError
    return quant


def _lite_hybrid(
    foreign: ForeignNode,
    op: str,
    attrs: dict[str, AttrValue],
    permutations: Mapping[str, tuple[int, ...]],
    *,
    symmetric: bool,
) -> Translated:
    """Translate the product of real data, quantized by the range of each row or sample, and a quantized weight."""
    data, weight, *bias = foreign.node.inputs
    quant = foreign.graph.tensors[weight].quant
    if quant is None:
        raise UntranslatableError
    attrs["data_codes"] = "symmetric" if symmetric else "asymmetric"
    return foreign.as_onnx(
        op,
        attrs,
        domain=CONTRIBUTED,
        inputs=(data, weight, foreign.new_name("scale"), "", *bias),
        permutations=permutations,
        constants={"scale": quant.scale.astype(np.float32)},
    )


def _lite_pool(foreign: ForeignNode) -> Translated:
    fused_attrs, info = _fused_activation_attrs(foreign), foreign.graph.tensors.get(foreign.node.outputs[0])
    if fused_attrs and of(foreign.plain.op).selects and (info is None or info.quant is None):
        # ONNX has no pooling of real numbers with a fused activation. For codes, their range expresses the activation.
        raise UntranslatableError
    kernel = (int(foreign.required("filter_height")), int(foreign.required("filter_width")))
    return foreign.as_onnx(attrs={**_lite_window(foreign), "kernel_shape": kernel, **fused_attrs})


def _lite_transposed_conv(foreign: ForeignNode) -> Translated:
    """Translate a transposed convolution, whose output extents are its first input.

    If the total padding of a dimension is odd, it is larger at the end.
    """
    _, weight, data, *bias = foreign.node.inputs
    extents, data_extents, output_extents = (
        foreign.extents(name)[1:3] for name in (weight, data, foreign.node.outputs[0])
    )
    strides = tuple(int(foreign.required(name)) for name in ("stride_h", "stride_w"))
    remainders = [
        (data_extent - 1) * stride + kernel_extent - output_extent
        for data_extent, stride, kernel_extent, output_extent in zip(
            data_extents, strides, extents, output_extents, strict=True
        )
    ]
    if _fused_activation_attrs(foreign) or min(remainders) < 0:
        raise UntranslatableError
    pads = (*(remainder // 2 for remainder in remainders), *(remainder - remainder // 2 for remainder in remainders))
    attrs: dict[str, AttrValue] = {"strides": strides, "pads": pads, "kernel_shape": extents, "channels_last": 1}
    return foreign.as_onnx(attrs=attrs, inputs=(data, weight, *bias), permutations={weight: (3, 0, 1, 2)})


def _lite_matmul(foreign: ForeignNode) -> Translated:
    is_transposed = [to_flag(foreign.optional(0, name)) for name in ("adj_x", "adj_y")]
    if _is_hybrid(foreign):
        if is_transposed[0] or not foreign.graph.is_constant(foreign.node.inputs[1]):
            raise UntranslatableError
        _hybrid_weight_quant(foreign, None)
        axes = len(foreign.extents(foreign.node.inputs[1]))
        order = (*range(axes - 2), axes - 1, axes - 2) if is_transposed[1] else tuple(range(axes))
        is_symmetric = not to_flag(foreign.optional(0, "asymmetric_quantize_inputs"))
        permutations = {foreign.node.inputs[1]: order}
        return _lite_hybrid(foreign, "DynamicQuantizeMatMul", {}, permutations, symmetric=is_symmetric)
    if not any(is_transposed):
        return foreign.as_onnx()
    return foreign.as_onnx("FusedMatMul", {"transA": is_transposed[0], "transB": is_transposed[1]}, domain=CONTRIBUTED)


def _lite_resize(foreign: ForeignNode) -> Translated:
    """Translate a resize of the two middle dimensions of four.

    The position of the nearest element is rounded down, unless the corners are aligned.
    """
    aligns_corners, has_half_pixels = (
        to_flag(foreign.optional(0, name)) for name in ("align_corners", "half_pixel_centers")
    )
    coordinate_mode = "align_corners" if aligns_corners else "half_pixel" if has_half_pixels else "asymmetric"
    attrs: dict[str, AttrValue] = {"mode": "linear", "axes": (1, 2)}
    if "NEAREST" in foreign.node.op:
        coordinate_mode = "tf_half_pixel_for_nn" if coordinate_mode == "half_pixel" else coordinate_mode
        attrs |= {"mode": "nearest", "nearest_mode": "round_prefer_ceil" if aligns_corners else "floor"}
    data, sizes = foreign.node.inputs
    return foreign.as_onnx(
        attrs={**attrs, "coordinate_transformation_mode": coordinate_mode}, inputs=(data, "", "", sizes)
    )


def _lite_arithmetic(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs=_fused_activation_attrs(foreign))


def _lite_softmax(foreign: ForeignNode) -> Translated:
    if float(foreign.required("beta")) != 1.0:
        raise UntranslatableError
    return foreign.as_onnx(attrs={"axis": -1})


def _lite_concat(foreign: ForeignNode) -> Translated:
    if _fused_activation_attrs(foreign):
        raise UntranslatableError
    return foreign.as_onnx(attrs={"axis": int(foreign.required("axis"))})


def _lite_pad(foreign: ForeignNode) -> Translated:
    """Translate a padding whose widths are a constant (dimensions, 2)."""
    pairs = foreign.integers(1)
    mode = foreign.required("mode") if "MIRROR" in foreign.node.op else "constant"
    value = foreign.node.inputs[2] if len(foreign.node.inputs) > 2 else ""
    return pad_dimensions(foreign, (*pairs[::2], *pairs[1::2]), mode, value=value)


def _lite_slice(foreign: ForeignNode) -> Translated:
    """Translate SLICE, which has begins and sizes, or STRIDED_SLICE, which has begins, ends and masks.

    The masks state which begins and ends are ignored.
    """
    extents = foreign.extents(foreign.node.inputs[0])
    begins, ends_or_sizes = foreign.integers(1), foreign.integers(2)
    if "STRIDED" in foreign.node.op:
        if any(foreign.required(f"{name}_mask") for name in ("ellipsis", "new_axis", "shrink_axis")):
            raise UntranslatableError
        if foreign.optional(0, "offset"):
            raise UntranslatableError
        mask_bits = [int(foreign.required(name)) for name in ("begin_mask", "end_mask")]
        ignored_entries = [tuple(mask >> axis & 1 for axis in range(len(begins))) for mask in mask_bits]
        return slice_axes(
            foreign, begins, ends_or_sizes, foreign.integers(3), unbounded=(ignored_entries[0], ignored_entries[1])
        )
    begins_and_sizes = zip(begins, ends_or_sizes, extents, strict=True)
    ends = tuple(extent if size < 0 else begin + size for begin, size, extent in begins_and_sizes)
    return slice_axes(foreign, begins, ends, (1,) * len(begins))


def _lite_split(foreign: ForeignNode) -> Translated:
    """Translate SPLIT, whose axis precedes the data, or SPLIT_V, whose sizes and axis follow the data."""
    has_sizes = len(foreign.node.inputs) == 3
    (axis,) = foreign.integers(2 if has_sizes else 0)
    data = foreign.node.inputs[0 if has_sizes else 1]
    axis %= len(foreign.extents(data))
    parts = tuple(foreign.extents(name)[axis] for name in foreign.node.outputs)
    return foreign.as_onnx("Split", {"axis": axis, "split": parts}, inputs=(data,))


def _lite_select(foreign: ForeignNode) -> Translated:
    """Translate SELECT. The old version selects rows by a one-dimensional condition, which the new one broadcasts."""
    ranks = {len(foreign.extents(name)) for name in foreign.node.inputs}
    if len(ranks) > 1 and not foreign.node.op.endswith("V2"):
        raise UntranslatableError
    return foreign.as_onnx()


def _lite_quantize(foreign: ForeignNode) -> Translated:
    """Translate a QUANTIZE that rescales codes. A QUANTIZE of real numbers is left unchanged."""
    info = foreign.graph.tensors.get(foreign.node.inputs[0])
    if info is None or info.quant is None:
        raise UntranslatableError
    return foreign.as_onnx("Identity")


def _lite_leaky_relu(foreign: ForeignNode) -> Translated:
    return foreign.as_onnx(attrs={"alpha": float(foreign.required("alpha"))})


_TFLITE: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": _lite_conv,
        "ConvTranspose": _lite_transposed_conv,
        "Gemm": _lite_fully_connected,
        "MatMul": _lite_matmul,
        "Resize": _lite_resize,
        "MaxPool": _lite_pool,
        "AveragePool": _lite_pool,
        "Softmax": _lite_softmax,
        "Concat": _lite_concat,
        "Reshape": reshape,
        "Squeeze": reshape,
        "Unsqueeze": reshape,
        "Pad": _lite_pad,
        "Transpose": transpose_by_input,
        "Slice": _lite_slice,
        "Split": _lite_split,
        "QuantizeLinear": _lite_quantize,
        "LeakyRelu": _lite_leaky_relu,
        "Where": _lite_select,
        **dict.fromkeys(REDUCTIONS, reduce_by_input),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _lite_arithmetic),
        **dict.fromkeys(("Max", "Min", "Pow", "PRelu", "SquaredDifference"), binary),
        **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or"), binary),
        "Not": unary,
        **dict.fromkeys(UNARY_FUNCTIONS, unary),
    }
)
