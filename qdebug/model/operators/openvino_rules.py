"""Nodes in the words of OpenVINO, said as ONNX says them. Source: OpenVINO's operation sets 1 to 16.

Of a name that ONNX has too, an attribute tells whose it is, the number of inputs, or what else the graph is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.operators.operator import Move, Sums
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
    reduced_by_input,
    reshape,
    sliced,
    turned_by_input,
    two,
)
from qdebug.model.operators.words import in_words_of_onnx

__all__ = ["OPENVINO", "is_openvino"]

_AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _window(said: Said) -> dict[str, AttrValue]:
    mode = str(said.optional("explicit", "auto_pad")).lower()
    if mode in _AUTO_PAD:
        return {"auto_pad": _AUTO_PAD[mode]}
    begin, end = (tuple(int(each) for each in said.stated(name)) for name in ("pads_begin", "pads_end"))
    return {"pads": (*begin, *end)}


def _conv(said: Said) -> Translated:
    grouped = "Group" in said.node.op
    extents = said.extents(said.node.inputs[1])
    attrs: dict[str, AttrValue] = {
        **_window(said),
        "strides": tuple(int(each) for each in said.stated("strides")),
        "dilations": tuple(int(each) for each in said.stated("dilations")),
        "kernel_shape": extents[3 if grouped else 2 :],
        "group": extents[0] if grouped else 1,
    }
    if of(said.plain.op).sums is Sums.SCATTER:
        if len(said.node.inputs) > 2:
            raise Unsaid  # the extents of its result decide the padding
        attrs["output_padding"] = tuple(int(each) for each in said.optional((0,) * len(extents[2:]), "output_padding"))
    fused = _activation(said)
    op, domain = ("FusedConv", CONTRIBUTED) if fused else ("", "")
    attrs |= fused
    if not grouped:
        return said.as_onnx(op, attrs, domain=domain)
    weight, split = _without_groups(said, said.node.inputs[1])
    inputs = (said.node.inputs[0], weight, *said.node.inputs[2:])
    return said.as_onnx(op, attrs, domain=domain, inputs=inputs, merged=frozenset((weight,) if split else ()))


def _activation(said: Said) -> dict[str, AttrValue]:
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
    if maker is not None and of(in_words_of_onnx(maker).op).moves is Move.RESHAPE:
        source = maker.inputs[0]
        if said.graph.is_constant(source) and said.extents(source) == (extents[0] * extents[1], *extents[2:]):
            return source, False
    quant = said.graph.tensors[weight].quant
    by_part = quant is not None and quant.axis is not None and quant.axis % len(extents) < 2
    if by_part and 1 not in extents[:2]:
        raise Unsaid  # scales along one of two dimensions are none along both
    return weight, True


def _pool(said: Said) -> Translated:
    attrs: dict[str, AttrValue] = {
        **_window(said),
        "kernel_shape": tuple(int(each) for each in said.stated("kernel")),
        "strides": tuple(int(each) for each in said.stated("strides")),
        "ceil_mode": int(str(said.optional("floor", "rounding_type")).lower().startswith("ceil")),
    }
    if of(said.plain.op).selects:
        attrs["dilations"] = tuple(int(each) for each in said.optional((), "dilations")) or (1,) * len(
            tuple(said.stated("kernel"))
        )
    else:
        attrs["count_include_pad"] = 1 - flag(said.stated("exclude-pad", "exclude_pad"))
    return said.as_onnx(attrs=attrs, inputs=said.node.inputs[:1])


def _matmul(said: Said) -> Translated:
    turned = [flag(said.optional(0, name)) for name in ("transpose_a", "transpose_b")]
    fused = _activation(said)
    if fused or len(said.node.inputs) > 2:
        if len(said.extents(said.node.inputs[0])) != 2 or len(said.node.inputs) < 3:
            raise Unsaid
        attrs = {"transA": turned[0], "transB": turned[1], **fused}
        return said.as_onnx("FusedGemm" if fused else "Gemm", attrs, domain=CONTRIBUTED if fused else "")
    if not any(turned):
        return said.as_onnx("MatMul")
    return said.as_onnx("FusedMatMul", {"transA": turned[0], "transB": turned[1]}, domain=CONTRIBUTED)


def _axis(said: Said) -> Translated:
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


def _pad(said: Said) -> Translated:
    value = said.node.inputs[3] if len(said.node.inputs) > 3 else ""
    return padded(said, (*said.numbers(1), *said.numbers(2)), said.stated("pad_mode"), value=value)


def _bounded_slope(said: Said) -> Translated:
    """Gates that are straight between two ends; HSigmoid is (x + 3) / 6, the parameters of another are inputs."""
    if len(said.node.inputs) == 1:
        return said.as_onnx(attrs={"alpha": 1 / 6, "beta": 0.5})
    alpha, beta = (float(said.values(name).reshape(())) for name in said.node.inputs[1:])
    return said.as_onnx(attrs={"alpha": alpha, "beta": beta}, inputs=said.node.inputs[:1])


def _swish(said: Said) -> Translated:
    factor = 1.0 if len(said.node.inputs) < 2 else float(said.values(said.node.inputs[1]).reshape(()))
    return said.as_onnx("Swish", {"alpha": factor}, inputs=said.node.inputs[:1])


def _gelu(said: Said) -> Translated:
    mode = str(said.stated("approximation_mode")).lower()
    if mode not in ("erf", "tanh"):
        raise Unsaid
    return said.as_onnx(attrs={"approximate": "none" if mode == "erf" else mode})


def _elu(said: Said) -> Translated:
    return said.as_onnx(attrs={"alpha": float(said.stated("alpha"))})


_TYPES: Mapping[str, int] = MappingProxyType(
    {"f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "boolean": 9, "f16": 10, "f64": 11}
    | {"u32": 12, "u64": 13, "bf16": 16}
)
"""ONNX's number of an element type (TensorProto.DataType)."""


def _cast(said: Said) -> Translated:
    number = _TYPES.get(str(said.stated("destination_type")))
    if number is None:
        raise Unsaid
    return said.as_onnx("Cast", {"to": number})


def _split(said: Said) -> Translated:
    """The axis is an input; the extents of the results say how large each part is."""
    axis = said.numbers(1)[0] % len(said.extents(said.node.inputs[0]))
    parts = tuple(said.extents(name)[axis] for name in said.node.outputs)
    return said.as_onnx(attrs={"axis": axis, "split": parts}, inputs=said.node.inputs[:1])


def _slice(said: Said) -> Translated:
    """A StridedSlice has masks, a number for each dimension; a Slice has its steps before its axes."""
    if "Strided" not in said.node.op:
        data, start, stop, step, *axes = said.node.inputs
        return said.as_onnx(inputs=(data, start, stop, *(axes or ("",)), step))
    others = ("new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    if any(flag(each) for name in others for each in said.optional((), name)):
        raise Unsaid
    starts, ends = said.numbers(1), said.numbers(2)
    steps = said.numbers(3) if len(said.node.inputs) > 3 else (1,) * len(starts)
    begin, end = (tuple(flag(each) for each in said.stated(name)) for name in ("begin_mask", "end_mask"))
    return sliced(said, starts, ends, steps, free=(begin, end))


def _gather(said: Said) -> Translated:
    """The axis is an input."""
    if flag(said.optional(0, "batch_dims")):
        raise Unsaid
    return said.as_onnx(attrs={"axis": said.numbers(2)[0]}, inputs=said.node.inputs[:2])


def _select(said: Said) -> Translated:
    return said.as_onnx(inputs=said.node.inputs[:3])


def _broadcast(said: Said) -> Translated:
    if str(said.optional("numpy", "mode")).lower() not in ("numpy", "bidirectional"):
        raise Unsaid
    return said.as_onnx("Expand", inputs=said.node.inputs[:2])


_BLOCKS = MappingProxyType({"blocks_first": "DCR", "depth_first": "CRD"})


def _blocks(said: Said) -> Translated:
    mode = _BLOCKS.get(str(said.stated("mode")).lower())
    if mode is None or len(said.extents(said.node.inputs[0])) != 4:
        raise Unsaid
    return said.as_onnx(attrs={"blocksize": int(said.optional(1, "block_size")), "mode": mode})


def _norm(said: Said) -> Translated:
    epsilon = float(said.stated("epsilon", "eps"))
    return said.as_onnx(attrs={"epsilon": epsilon})


def _top(said: Said) -> Translated:
    mode = str(said.stated("mode")).lower()
    attrs: dict[str, AttrValue] = {"axis": int(said.stated("axis")), "largest": int(mode == "max")}
    attrs["sorted"] = int(str(said.stated("sort")).lower() == "value")
    return said.as_onnx(attrs=attrs)


_PLACINGS = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MODES = MappingProxyType({"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"})


def _interpolate(said: Said) -> Translated:
    """Extents or scales of the axes that an input names; both are inputs in the older operation, one in the newer."""
    mode, placing = (str(said.stated(name)).lower() for name in ("mode", "coordinate_transformation_mode"))
    padded_first = any(int(each) for name in ("pads_begin", "pads_end") for each in said.optional((), name))
    if mode not in _MODES or placing not in _PLACINGS or padded_first or flag(said.optional(0, "antialias")):
        raise Unsaid
    known: dict[str, AttrValue] = {"mode": _MODES[mode], "coordinate_transformation_mode": placing}
    if known["mode"] == "nearest":
        chosen = str(said.optional(_NEAREST[0], "nearest_mode")).lower()
        if chosen not in _NEAREST:
            raise Unsaid
        known["nearest_mode"] = chosen
    elif known["mode"] == "cubic":
        known["cubic_coeff_a"] = float(said.optional(-0.75, "cube_coeff"))
    data, *given = said.node.inputs
    if len(given) == 3 or (len(given) == 2 and said.values(given[1]).dtype.kind in "iu"):
        known["axes"] = said.numbers(len(given))
        del given[-1]
    if str(said.stated("shape_calculation_mode")).lower() == "sizes":
        return said.as_onnx(attrs=known, inputs=(data, "", "", given[0]))
    return said.as_onnx(attrs=known, inputs=(data, "", given[-1]))


_NAMES = frozenset(
    (
        *("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "Clamp"),
        *("Multiply", "Subtract", "Divide", "Power", "Maximum", "Minimum", "Negative", "Ceiling", "Select"),
        *("ReLU", "SoftMax", "HSwish", "HSigmoid", "SoftPlus", "SoftSign", "AvgPool", "Broadcast"),
        *("Interpolate", "StridedSlice", "VariadicSplit", "BatchNormInference", "FakeQuantize"),
    )
)
"""Names that OpenVINO alone writes so."""
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
"""Attributes of OpenVINO alone: they tell its operators from those of the same name that ONNX has."""
_INPUTS: Mapping[str, int] = MappingProxyType({"Transpose": 2, "Gather": 3, "HardSigmoid": 3, "Swish": 2})
"""Operators of which OpenVINO has so many inputs, and ONNX fewer and attributes."""
_EITHER = frozenset(("PRelu", "Slice"))
"""Operators that read their inputs in another way under the same name."""


def is_openvino(node: Node, graph: Graph) -> bool:
    """Tell whether a node is said in OpenVINO's words, where ONNX has another meaning for them or none.

    Args:
        node: The node.
        graph: Its graph; what else it is made of decides where the node could be either's.
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
        "PRelu": by_channel,
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
        "Transpose": turned_by_input,
        **dict.fromkeys(REDUCTIONS, reduced_by_input),
        **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), reshape),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "SquaredDifference"), two),
        **dict.fromkeys(SIMPLE, one),
    }
)
"""The rule for each operator, as ONNX names it."""
