"""Nodes in the words of TensorFlow Lite, PyTorch and OpenVINO, said as ONNX says them, attributes included.

A node is translated only if everything that its result depends on was recorded: what a harness leaves out is not
assumed. The rules for PyTorch stand in `torch_rules`. Sources of the definitions: tensorflow/lite/schema/schema.fbs,
and OpenVINO's operation set 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.operators.operator import Sums
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
    reduced,
    reshape,
    two,
)
from qdebug.model.operators.torch_rules import TORCH
from qdebug.model.operators.words import in_words_of_onnx, is_foreign

__all__ = ["Translated", "translated"]


def translated(node: Node, graph: Graph, constants: Constants = no_constants) -> Translated | None:
    """Return a node of another framework as ONNX says it; None if it is ONNX's, or not all is known of it.

    Args:
        node: The node.
        graph: Its graph: ranks and extents of tensors are asked for.
        constants: Values of its constants: axes and widths may be inputs where ONNX has attributes.
    """
    open_vino = (
        node.op in _OPENVINO_NAMES
        or not _OPENVINO_ATTRS.isdisjoint(node.attrs)
        or (of(node.op).transposes and len(node.inputs) == 2)  # ONNX has the order as an attribute
    )
    if not (open_vino or is_foreign(node)) or not node.outputs:
        return None
    plain = in_words_of_onnx(node)
    rules = _TFLITE if node.op.isupper() else _OPENVINO if open_vino else TORCH
    rule = rules.get(plain.op)
    if rule is None:
        return None
    said = Said(node=node, plain=plain, graph=graph, constants=constants)
    try:
        return _with_activation(said, rule(said)) if rules is TORCH else rule(said)
    except (Unsaid, IndexError, TypeError, ValueError):  # a harness may say anything
        return None


_NO_ACTIVATION = ("NONE", "none", "", 0, None)


def _activation(said: Said) -> dict[str, AttrValue]:
    """Return the activation that TensorFlow Lite fuses, as ONNX Runtime's fused operators state it."""
    name = said.stated("fused_activation_function", "fused_activation")
    if name in _NO_ACTIVATION:
        return {}
    plain = said.plain.attrs
    if "activation" not in plain:
        raise Unsaid
    return {"activation": plain["activation"], "activation_params": plain.get("activation_params", ())}


def _with_activation(said: Said, made: Translated) -> Translated:
    """Return a node of PyTorch with the activation that a delegate fuses into it."""
    if not any(name in said.node.attrs for name in ("fused_activation_function", "fused_activation")):
        return made
    fused, op = _activation(said), {"Conv": "FusedConv", "Gemm": "FusedGemm"}.get(made.node.op)
    if not fused:
        return made
    if op is None:
        raise Unsaid
    return replace(made, node=replace(made.node, op=op, domain=CONTRIBUTED, attrs={**made.node.attrs, **fused}))


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


def _refuse_hybrid(said: Said) -> None:
    """Refuse numbers times codes: TensorFlow Lite quantizes the numbers by ranges of each run, as no node says."""
    data, weight = (said.graph.tensors.get(name) for name in said.node.inputs[:2])
    if weight is not None and weight.quant is not None and (data is None or data.quant is None):
        raise Unsaid


def _lite_conv(said: Said) -> Translated:
    _refuse_hybrid(said)
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
    domain = CONTRIBUTED if fused else ""
    return said.as_onnx("FusedConv" if fused else "Conv", {**attrs, **fused}, domain=domain, turns=turns)


def _lite_fully_connected(said: Said) -> Translated:
    _refuse_hybrid(said)
    if len(said.extents(said.node.inputs[0])) != 2 or len(said.extents(said.node.outputs[0])) != 2:
        raise Unsaid
    if said.optional(0, "weights_format"):  # the weight is not in rows
        raise Unsaid
    fused = _activation(said)
    domain = CONTRIBUTED if fused else ""
    return said.as_onnx("FusedGemm" if fused else "Gemm", {"transB": 1, **fused}, domain=domain)


def _lite_pool(said: Said) -> Translated:
    if _activation(said):
        raise Unsaid
    kernel = (int(said.stated("filter_height")), int(said.stated("filter_width")))
    return said.as_onnx(attrs={**_lite_window(said), "kernel_shape": kernel})


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
    _refuse_hybrid(said)
    turned = [flag(said.optional(0, name)) for name in ("adj_x", "adj_y")]
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
    if _activation(said):
        raise Unsaid
    return said.as_onnx()


def _lite_softmax(said: Said) -> Translated:
    if float(said.stated("beta")) != 1.0:
        raise Unsaid
    return said.as_onnx(attrs={"axis": -1})


def _lite_concat(said: Said) -> Translated:
    if _activation(said):
        raise Unsaid
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


def _reduced_by_input(said: Said) -> Translated:
    return reduced(said, said.known(1))


def _turned_by_input(said: Said) -> Translated:
    rank = len(said.extents(said.node.inputs[0]))
    order = said.numbers(1) or tuple(reversed(range(rank)))
    return said.as_onnx("Transpose", {"perm": order}, inputs=said.node.inputs[:1])


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
        if set(said.numbers(3)) != {1} or said.optional(0, "offset"):
            raise Unsaid
        begin_mask, end_mask = int(said.stated("begin_mask")), int(said.stated("end_mask"))
        begins = tuple(0 if begin_mask >> axis & 1 else begin for axis, begin in enumerate(begins))
        ends = tuple(extents[axis] if end_mask >> axis & 1 else end for axis, end in enumerate(others))
    else:
        sized = zip(begins, others, extents, strict=True)
        ends = tuple(extent if size < 0 else begin + size for begin, size, extent in sized)
    axes = tuple(range(len(begins)))
    return said.as_onnx("Slice", {"starts": begins, "ends": ends, "axes": axes}, inputs=said.node.inputs[:1])


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
        "Transpose": _turned_by_input,
        "Slice": _lite_slice,
        "QuantizeLinear": _lite_quantize,
        "LeakyRelu": _lite_leaky,
        **dict.fromkeys(REDUCTIONS, _reduced_by_input),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _lite_pair),
        **dict.fromkeys(("Max", "Min", "Pow", "PRelu"), two),
        **dict.fromkeys(SIMPLE, one),
    }
)


_AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _open_window(said: Said) -> dict[str, AttrValue]:
    mode = str(said.optional("explicit", "auto_pad")).lower()
    if mode in _AUTO_PAD:
        return {"auto_pad": _AUTO_PAD[mode]}
    begin, end = (tuple(int(each) for each in said.stated(name)) for name in ("pads_begin", "pads_end"))
    return {"pads": (*begin, *end)}


def _open_conv(said: Said) -> Translated:
    grouped = "Group" in said.node.op
    extents = said.extents(said.node.inputs[1])
    attrs: dict[str, AttrValue] = {
        **_open_window(said),
        "strides": tuple(int(each) for each in said.stated("strides")),
        "dilations": tuple(int(each) for each in said.stated("dilations")),
        "kernel_shape": extents[3 if grouped else 2 :],
        "group": extents[0] if grouped else 1,
    }
    if of(said.plain.op).sums is Sums.SCATTER:
        if len(said.node.inputs) > 2:
            raise Unsaid  # the extents of its result decide the padding
        attrs["output_padding"] = tuple(int(each) for each in said.optional((0,) * len(extents[2:]), "output_padding"))
    fused = _open_activation(said)
    op, domain = ("FusedConv", CONTRIBUTED) if fused else ("", "")
    attrs |= fused
    if not grouped:
        return said.as_onnx(op, attrs, domain=domain)
    weight, split = _without_groups(said, said.node.inputs[1])
    inputs = (said.node.inputs[0], weight, *said.node.inputs[2:])
    return said.as_onnx(op, attrs, domain=domain, inputs=inputs, merged=frozenset((weight,) if split else ()))


def _open_activation(said: Said) -> dict[str, AttrValue]:
    """Return the activation that a runtime fused, as it is recorded: in ONNX Runtime's words."""
    known = {name: said.node.attrs[name] for name in ("activation", "activation_params") if name in said.node.attrs}
    if known and of(said.plain.op).sums is Sums.SCATTER:
        raise Unsaid  # ONNX has no such operator with an activation
    return known


def _without_groups(said: Said, weight: str) -> tuple[str, bool]:
    """Return the constant that is the weight of a grouped convolution, and whether it has a dimension for groups.

    OpenVINO's weight is (groups, out, in, ...), or (groups, in, out, ...) where it is transposed. Where it is a
    reshape of a constant whose first two dimensions are one, that one is ONNX's weight.
    """
    extents = said.extents(weight)
    maker = said.graph.producer(weight)
    if maker is not None and of(in_words_of_onnx(maker).op).regroups:
        source = maker.inputs[0]
        if said.graph.is_constant(source) and said.extents(source) == (extents[0] * extents[1], *extents[2:]):
            return source, False
    quant = said.graph.tensors[weight].quant
    by_part = quant is not None and quant.axis is not None and quant.axis % len(extents) < 2
    if by_part and 1 not in extents[:2]:
        raise Unsaid  # scales along one of two dimensions are none along both
    return weight, True


def _open_pool(said: Said) -> Translated:
    attrs: dict[str, AttrValue] = {
        **_open_window(said),
        "kernel_shape": tuple(int(each) for each in said.stated("kernel")),
        "strides": tuple(int(each) for each in said.stated("strides")),
        "ceil_mode": int(str(said.optional("floor", "rounding_type")).lower().startswith("ceil")),
    }
    if not of(said.plain.op).selects:
        excluded = said.stated("exclude-pad", "exclude_pad")
        attrs["count_include_pad"] = 1 - flag(excluded)
    return said.as_onnx(attrs=attrs, inputs=said.node.inputs[:1])


def _open_matmul(said: Said) -> Translated:
    turned = [flag(said.optional(0, name)) for name in ("transpose_a", "transpose_b")]
    fused = _open_activation(said)
    if fused or len(said.node.inputs) > 2:
        if len(said.extents(said.node.inputs[0])) != 2 or len(said.node.inputs) < 3:
            raise Unsaid
        attrs = {"transA": turned[0], "transB": turned[1], **fused}
        return said.as_onnx("FusedGemm" if fused else "Gemm", attrs, domain=CONTRIBUTED if fused else "")
    if not any(turned):
        return said.as_onnx("MatMul")
    return said.as_onnx("FusedMatMul", {"transA": turned[0], "transB": turned[1]}, domain=CONTRIBUTED)


def _open_axis(said: Said) -> Translated:
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


def _open_pad(said: Said) -> Translated:
    value = said.node.inputs[3] if len(said.node.inputs) > 3 else ""
    return padded(said, (*said.numbers(1), *said.numbers(2)), said.stated("pad_mode"), value=value)


_OPENVINO: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": _open_conv,
        "ConvTranspose": _open_conv,
        "MaxPool": _open_pool,
        "AveragePool": _open_pool,
        "MatMul": _open_matmul,
        "Softmax": _open_axis,
        "Concat": _open_axis,
        "Pad": _open_pad,
        "Transpose": _turned_by_input,
        **dict.fromkeys(REDUCTIONS, _reduced_by_input),
        **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), reshape),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"), two),
        **dict.fromkeys(SIMPLE, one),
    }
)
_OPENVINO_NAMES = frozenset(
    (
        *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "Clamp"),
        *("Multiply", "Subtract", "Divide", "Power", "Maximum", "Minimum", "Negative"),
        *("ReLU", "SoftMax", "LogSoftmax", "HSwish", "AvgPool"),
    )
)
"""Names that OpenVINO alone writes so."""
_OPENVINO_ATTRS = frozenset(
    (
        "transpose_a",
        "transpose_b",
        "pads_begin",
        "pads_end",
        "exclude-pad",
        "exclude_pad",
        "rounding_type",
        "special_zero",
        "keep_dims",
        "pad_mode",
    )
)
"""Attributes of OpenVINO alone: they tell its operators from those of the same name that ONNX has."""
