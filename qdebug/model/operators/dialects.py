"""Nodes in the words of TensorFlow Lite, PyTorch and OpenVINO, said as ONNX says them, attributes included.

A node is translated only if everything that its result depends on was recorded: what a harness leaves out is not
assumed. The rules for PyTorch stand in `torch_rules`, those for OpenVINO in `openvino_rules`. Source of TensorFlow
Lite's definitions: tensorflow/lite/schema/schema.fbs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.operators.openvino_rules import OPENVINO, is_openvino
from qdebug.model.operators.queries import of
from qdebug.model.operators.said import (
    CONTRIBUTED,
    REDUCTIONS,
    SIMPLE,
    Constants,
    Rule,
    Said,
    Translated,
    Unsaid,
    flag,
    no_constants,
    one,
    padded,
    reduced_by_input,
    reshape,
    sliced,
    turned_by_input,
    two,
)
from qdebug.model.operators.torch_rules import TORCH
from qdebug.model.operators.words import in_words_of_onnx, is_foreign
from qdebug.model.quant import QuantParams

__all__ = ["Translated", "translated"]


def translated(node: Node, graph: Graph, constants: Constants = no_constants) -> Translated | None:
    """Return a node of another framework as ONNX says it; None if it is ONNX's, or not all is known of it.

    Args:
        node: The node.
        graph: Its graph: ranks and extents of tensors are asked for.
        constants: Values of its constants: axes and widths may be inputs where ONNX has attributes.
    """
    open_vino = is_openvino(node, graph)
    if not (open_vino or is_foreign(node)) or not node.outputs:
        return None
    plain = in_words_of_onnx(node)
    rules = _TFLITE if node.op.isupper() else OPENVINO if open_vino else TORCH
    rule = rules.get(plain.op)
    if rule is None:
        return None
    said = Said(node=node, plain=plain, graph=graph, constants=constants)
    try:
        return _with_activation(said, rule(said)) if rules is TORCH else rule(said)
    except (Unsaid, IndexError, TypeError, ValueError):  # a harness may say anything
        return None


_ACTIVATION = ("activation", "activation_params")
"""Attributes by which ONNX Runtime's fused operators state an activation."""
_NO_ACTIVATION = ("NONE", "none", "", 0, None)


def _activation(said: Said) -> dict[str, AttrValue]:
    """Return the activation that TensorFlow Lite fuses, as ONNX Runtime's fused operators state it."""
    name = said.stated("fused_activation_function", "fused_activation")
    if name in _NO_ACTIVATION:
        return {}
    plain = said.plain.attrs
    if "activation" not in plain:
        raise Unsaid
    return {name: plain[name] for name in _ACTIVATION}


def _with_activation(said: Said, made: Translated) -> Translated:
    """Return a node of PyTorch with the activation that is fused into it: by a delegate, or as its name says."""
    named = any(name in said.node.attrs for name in ("fused_activation_function", "fused_activation"))
    plain = said.plain.attrs
    fused = _activation(said) if named else {name: plain[name] for name in _ACTIVATION if name in plain}
    op = {"Conv": "FusedConv", "Gemm": "FusedGemm"}.get(made.node.op, "")
    if not fused:
        return made
    attrs = {**made.node.attrs, **fused}
    if op:
        return replace(made, node=replace(made.node, op=op, domain=CONTRIBUTED, attrs=attrs))
    if not of(made.node.op).takes_clamp:
        raise Unsaid
    return replace(made, node=replace(made.node, attrs=attrs))


def _lite_window(said: Said) -> dict[str, AttrValue]:
    """Return strides, dilations and padding of a window over two dimensions."""
    padding = said.stated("padding")
    mode = {"SAME": "SAME_UPPER", "VALID": "VALID", 0: "SAME_UPPER", 1: "VALID"}.get(padding)
    if mode is None:
        raise Unsaid
    return {
        "auto_pad": mode,
        "strides": (int(said.stated("stride_h")), int(said.stated("stride_w"))),
        "channels_last": 1,
    }


def _is_hybrid(said: Said) -> bool:
    """Tell whether numbers are multiplied by codes: TensorFlow Lite quantizes the numbers by ranges of each run."""
    data, weight = (said.graph.tensors.get(name) for name in said.node.inputs[:2])
    return weight is not None and weight.quant is not None and (data is None or data.quant is None)


def _lite_conv(said: Said) -> Translated:
    weight = said.node.inputs[1]
    extents = said.extents(weight)
    depthwise = "DEPTHWISE" in said.node.op
    dilations = (int(said.optional(1, "dilation_h_factor")), int(said.optional(1, "dilation_w_factor")))
    attrs = {**_lite_window(said), "dilations": dilations, "kernel_shape": tuple(extents[1:3])}
    channels = said.extents(said.node.inputs[0])[-1]
    attrs["group"] = channels if depthwise else channels // extents[3]
    fused = _activation(said)
    # weights are (out, height, width, in), or (1, height, width, out) where each channel has its own
    turns = {weight: (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)}
    if _is_hybrid(said):  # all filters with one scale take the way of a matrix, which rounds data symmetrically
        one = _hybrid_weight(said, 3 if depthwise else 0).scale.size == 1
        return _lite_hybrid(said, "DynamicQuantizeConv", {**attrs, **fused}, turns, symmetric=one and not depthwise)
    domain = CONTRIBUTED if fused else ""
    return said.as_onnx("FusedConv" if fused else "Conv", {**attrs, **fused}, domain=domain, turns=turns)


def _lite_fully_connected(said: Said) -> Translated:
    """Data of any rank are rows of the weight's width; the result has their dimensions, or is a matrix."""
    if said.optional(0, "weights_format"):  # the weight is not in rows
        raise Unsaid
    given, weight, made = (said.extents(name) for name in (*said.node.inputs[:2], said.node.outputs[0]))
    rows = math.prod(given) // max(weight[1], 1)
    kept = given[-1:] == weight[1:] and made == (*given[:-1], weight[0])
    if not kept and (made != (rows, weight[0]) or rows * weight[1] != math.prod(given)):
        raise Unsaid
    attrs, fused = {} if kept else {"flatten": 1}, _activation(said)
    if _is_hybrid(said):
        _hybrid_weight(said, 0)
        symmetric = not flag(said.optional(0, "asymmetric_quantize_inputs"))
        turns = {said.node.inputs[1]: (1, 0)}
        return _lite_hybrid(said, "DynamicQuantizeMatMul", {**attrs, **fused}, turns, symmetric=symmetric)
    attrs, domain = {"transB": 1, **attrs}, CONTRIBUTED if fused else ""
    return said.as_onnx("FusedGemm" if fused else "Gemm", {**attrs, **fused}, domain=domain)


def _hybrid_weight(said: Said, axis: int | None) -> QuantParams:
    """Return the scales of a weight of codes, one or one along an axis, with a zero point of 0."""
    quant = said.graph.tensors[said.node.inputs[1]].quant
    if quant is None or np.any(quant.zero_point) or (quant.per_channel and quant.axis != axis):
        raise Unsaid
    return quant


def _lite_hybrid(
    said: Said, op: str, attrs: dict[str, AttrValue], turns: Mapping[str, tuple[int, ...]], *, symmetric: bool
) -> Translated:
    """Real data times a weight of codes: the data are rounded to codes by the range of each row, or sample."""
    data, weight, *bias = said.node.inputs
    quant = said.graph.tensors[weight].quant
    if quant is None:
        raise Unsaid
    attrs["data_codes"] = "symmetric" if symmetric else "asymmetric"
    return said.as_onnx(
        op,
        attrs,
        domain=CONTRIBUTED,
        inputs=(data, weight, said.new("scale"), "", *bias),
        turns=turns,
        constants={"scale": quant.scale.astype(np.float32)},
    )


def _lite_pool(said: Said) -> Translated:
    fused, info = _activation(said), said.graph.tensors.get(said.node.outputs[0])
    if fused and of(said.plain.op).selects and (info is None or info.quant is None):
        raise Unsaid  # on codes it moves the ends of the range; ONNX has no such pool of real numbers
    kernel = (int(said.stated("filter_height")), int(said.stated("filter_width")))
    return said.as_onnx(attrs={**_lite_window(said), "kernel_shape": kernel, **fused})


def _lite_transposed_conv(said: Said) -> Translated:
    """The extents of the result are the first input; what they leave over is padding, more of it at the end."""
    _, weight, data, *bias = said.node.inputs
    extents, given, made = (said.extents(name)[1:3] for name in (weight, data, said.node.outputs[0]))
    strides = tuple(int(said.stated(name)) for name in ("stride_h", "stride_w"))
    left = [(n - 1) * s + k - out for n, s, k, out in zip(given, strides, extents, made, strict=True)]
    if _activation(said) or min(left) < 0:
        raise Unsaid
    pads = (*(total // 2 for total in left), *(total - total // 2 for total in left))
    attrs: dict[str, AttrValue] = {"strides": strides, "pads": pads, "kernel_shape": extents, "channels_last": 1}
    return said.as_onnx(attrs=attrs, inputs=(data, weight, *bias), turns={weight: (3, 0, 1, 2)})


def _lite_matmul(said: Said) -> Translated:
    turned = [flag(said.optional(0, name)) for name in ("adj_x", "adj_y")]
    if _is_hybrid(said):
        if turned[0] or not said.graph.is_constant(said.node.inputs[1]):
            raise Unsaid
        _hybrid_weight(said, None)
        axes = len(said.extents(said.node.inputs[1]))
        order = (*range(axes - 2), axes - 1, axes - 2) if turned[1] else tuple(range(axes))
        symmetric = not flag(said.optional(0, "asymmetric_quantize_inputs"))
        turns = {said.node.inputs[1]: order}
        return _lite_hybrid(said, "DynamicQuantizeMatMul", {}, turns, symmetric=symmetric)
    if not any(turned):
        return said.as_onnx()
    return said.as_onnx("FusedMatMul", {"transA": turned[0], "transB": turned[1]}, domain=CONTRIBUTED)


def _lite_resize(said: Said) -> Translated:
    """Two of four dimensions are resized; the nearest element of centres is rounded down."""
    aligned, centred = (flag(said.optional(0, name)) for name in ("align_corners", "half_pixel_centers"))
    placing = "align_corners" if aligned else "half_pixel" if centred else "asymmetric"
    attrs: dict[str, AttrValue] = {"mode": "linear", "axes": (1, 2)}
    if "NEAREST" in said.node.op:
        placing = "tf_half_pixel_for_nn" if placing == "half_pixel" else placing
        attrs |= {"mode": "nearest", "nearest_mode": "round_prefer_ceil" if aligned else "floor"}
    data, sizes = said.node.inputs
    return said.as_onnx(attrs={**attrs, "coordinate_transformation_mode": placing}, inputs=(data, "", "", sizes))


def _lite_pair(said: Said) -> Translated:
    return said.as_onnx(attrs=_activation(said))


def _lite_softmax(said: Said) -> Translated:
    if float(said.stated("beta")) != 1.0:
        raise Unsaid
    return said.as_onnx(attrs={"axis": -1})


def _lite_concat(said: Said) -> Translated:
    if _activation(said):
        raise Unsaid
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


def _lite_pad(said: Said) -> Translated:
    """The widths are a constant (dimensions, 2)."""
    pairs = said.numbers(1)
    mode = said.stated("mode") if "MIRROR" in said.node.op else "constant"
    value = said.node.inputs[2] if len(said.node.inputs) > 2 else ""
    return padded(said, (*pairs[::2], *pairs[1::2]), mode, value=value)


def _lite_slice(said: Said) -> Translated:
    """A SLICE has begins and sizes, a STRIDED_SLICE begins and ends, with masks for those that are not meant."""
    extents = said.extents(said.node.inputs[0])
    begins, others = said.numbers(1), said.numbers(2)
    if "STRIDED" in said.node.op:
        if any(said.stated(f"{name}_mask") for name in ("ellipsis", "new_axis", "shrink_axis")):
            raise Unsaid
        if said.optional(0, "offset"):
            raise Unsaid
        masks = [int(said.stated(name)) for name in ("begin_mask", "end_mask")]
        free = [tuple(mask >> axis & 1 for axis in range(len(begins))) for mask in masks]
        return sliced(said, begins, others, said.numbers(3), free=(free[0], free[1]))
    sized = zip(begins, others, extents, strict=True)
    ends = tuple(extent if size < 0 else begin + size for begin, size, extent in sized)
    return sliced(said, begins, ends, (1,) * len(begins))


def _lite_split(said: Said) -> Translated:
    """A SPLIT reads its axis before the data, a SPLIT_V the sizes and the axis after it."""
    sized = len(said.node.inputs) == 3
    (axis,) = said.numbers(2 if sized else 0)
    data = said.node.inputs[0 if sized else 1]
    axis %= len(said.extents(data))
    parts = tuple(said.extents(name)[axis] for name in said.node.outputs)
    return said.as_onnx("Split", {"axis": axis, "split": parts}, inputs=(data,))


def _lite_select(said: Said) -> Translated:
    """The older SELECT picks rows by a condition of one dimension, which the newer one broadcasts."""
    ranks = {len(said.extents(name)) for name in said.node.inputs}
    if len(ranks) > 1 and not said.node.op.endswith("V2"):
        raise Unsaid
    return said.as_onnx()


def _lite_quantize(said: Said) -> Translated:
    """A QUANTIZE of codes gives them another scale; one of numbers is ONNX's but for its inputs, and stays."""
    info = said.graph.tensors.get(said.node.inputs[0])
    if info is None or info.quant is None:
        raise Unsaid
    return said.as_onnx("Identity")


def _lite_leaky(said: Said) -> Translated:
    return said.as_onnx(attrs={"alpha": float(said.stated("alpha"))})


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
        "Transpose": turned_by_input,
        "Slice": _lite_slice,
        "Split": _lite_split,
        "QuantizeLinear": _lite_quantize,
        "LeakyRelu": _lite_leaky,
        "Where": _lite_select,
        **dict.fromkeys(REDUCTIONS, reduced_by_input),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _lite_pair),
        **dict.fromkeys(("Max", "Min", "Pow", "PRelu", "SquaredDifference"), two),
        **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or"), two),
        "Not": one,
        **dict.fromkeys(SIMPLE, one),
    }
)
