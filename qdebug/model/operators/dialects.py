"""Nodes in the words of TensorFlow Lite, PyTorch and OpenVINO, said as ONNX says them, attributes included.

A node is translated only if everything that its result depends on was recorded: what a harness leaves out is not
assumed. Sources of the definitions: tensorflow/lite/schema/schema.fbs, the documentation of torch.nn.functional, and
OpenVINO's operation set 15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.operators.operator import Sums
from qdebug.model.operators.queries import of
from qdebug.model.operators.words import in_words_of_onnx, is_foreign

__all__ = ["Translated", "translated"]

_CONTRIBUTED = "com.microsoft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A node as ONNX says it.

    Args:
        node: The node.
        turns: Constants whose dimensions ONNX has in another order: the order that they are turned into.
        merged: Constants whose first two dimensions ONNX has as one.
    """

    node: Node
    turns: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    merged: frozenset[str] = frozenset()


Constants = Callable[[str], np.ndarray | None]
"""Returns the values of a constant by its name; None if it is none, or not kept."""


def _no_constants(name: str) -> None:
    """Know no constant."""


class _Unsaid(Exception):  # noqa: N818  it is no error: the node stays as it is
    """Something that the result depends on was not recorded, or has no equal in ONNX."""


def translated(node: Node, graph: Graph, constants: Constants = _no_constants) -> Translated | None:
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
    rules = _TFLITE if node.op.isupper() else _OPENVINO if open_vino else _TORCH
    rule = rules.get(plain.op)
    if rule is None:
        return None
    try:
        return rule(_Said(node=node, plain=plain, graph=graph, constants=constants))
    except (_Unsaid, IndexError, TypeError, ValueError):  # a harness may say anything
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What was said of a node."""

    node: Node
    plain: Node
    graph: Graph
    constants: Constants

    def stated(self, *names: str) -> Any:
        """Return the first attribute of some names that is stated."""
        for name in names:
            if name in self.node.attrs:
                return self.node.attrs[name]
        raise _Unsaid

    def optional(self, default: Any, *names: str) -> Any:
        """Return the first attribute of some names that is stated, or the default that the framework defines."""
        return next((self.node.attrs[name] for name in names if name in self.node.attrs), default)

    def sizes(self, count: int, *names: str, default: Any = None) -> tuple[int, ...]:
        """Return an attribute of one number, or of one for each dimension, as one for each."""
        value = self.stated(*names) if default is None else self.optional(default, *names)
        numbers = tuple(int(each) for each in value) if isinstance(value, tuple | list) else (int(value),)
        if len(numbers) not in (1, count):
            raise _Unsaid
        return numbers * count if len(numbers) == 1 else numbers

    def extents(self, tensor: str) -> tuple[int, ...]:
        """Return the extents of a tensor."""
        info = self.graph.tensors.get(tensor)
        shape = None if info is None else info.shape
        if shape is None or None in shape:
            raise _Unsaid
        return tuple(extent for extent in shape if extent is not None)

    def known(self, position: int) -> tuple[int, ...] | None:
        """Return the whole numbers of a constant input, in a row; None if they are not known."""
        values = self.constants(self.node.inputs[position])
        return None if values is None else tuple(int(each) for each in values.reshape(-1))

    def numbers(self, position: int) -> tuple[int, ...]:
        """Return the whole numbers of a constant input, in a row."""
        found = self.known(position)
        if found is None:
            raise _Unsaid
        return found

    def as_onnx(
        self,
        op: str = "",
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        domain: str = "",
        inputs: tuple[str, ...] | None = None,
        turns: Mapping[str, tuple[int, ...]] | None = None,
        merged: frozenset[str] = frozenset(),
    ) -> Translated:
        """Return the node with an operator and attributes of ONNX."""
        kept = {name: self.node.attrs[name] for name in ("channels_last",) if name in self.node.attrs}
        node = replace(
            self.node,
            op=op or self.plain.op,
            domain=domain,
            attrs={**kept, **(attrs or {})},
            inputs=self.node.inputs if inputs is None else inputs,
        )
        return Translated(node=node, turns=MappingProxyType(dict(turns or {})), merged=merged)


_Rule = Callable[[_Said], Translated]


def _flag(value: object) -> int:
    """Return 1 for what is true, as a truth value, a number or a word."""
    return int(str(value).lower() in ("true", "1"))


_NO_ACTIVATION = ("NONE", "none", "", 0, None)


def _activation(said: _Said) -> dict[str, AttrValue]:
    """Return the activation that TensorFlow Lite fuses, as ONNX Runtime's fused operators state it."""
    name = said.stated("fused_activation_function", "fused_activation")
    if name in _NO_ACTIVATION:
        return {}
    plain = said.plain.attrs
    if "activation" not in plain:
        raise _Unsaid
    return {"activation": plain["activation"], "activation_params": plain.get("activation_params", ())}


def _lite_window(said: _Said) -> dict[str, AttrValue]:
    """Return strides, dilations and padding of a window over two dimensions."""
    padding = said.stated("padding")
    mode = {"SAME": "SAME_UPPER", "VALID": "VALID", 0: "SAME_UPPER", 1: "VALID"}.get(padding)
    if mode is None:
        raise _Unsaid
    return {
        "auto_pad": mode,
        "strides": (int(said.stated("stride_h")), int(said.stated("stride_w"))),
        "channels_last": 1,
    }


def _refuse_hybrid(said: _Said) -> None:
    """Refuse numbers times codes: TensorFlow Lite quantizes the numbers by ranges of each run, as no node says."""
    data, weight = (said.graph.tensors.get(name) for name in said.node.inputs[:2])
    if weight is not None and weight.quant is not None and (data is None or data.quant is None):
        raise _Unsaid


def _lite_conv(said: _Said) -> Translated:
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
    domain = _CONTRIBUTED if fused else ""
    return said.as_onnx("FusedConv" if fused else "Conv", {**attrs, **fused}, domain=domain, turns=turns)


def _lite_fully_connected(said: _Said) -> Translated:
    _refuse_hybrid(said)
    if len(said.extents(said.node.inputs[0])) != 2 or len(said.extents(said.node.outputs[0])) != 2:
        raise _Unsaid
    if said.optional(0, "weights_format"):  # the weight is not in rows
        raise _Unsaid
    fused = _activation(said)
    domain = _CONTRIBUTED if fused else ""
    return said.as_onnx("FusedGemm" if fused else "Gemm", {"transB": 1, **fused}, domain=domain)


def _lite_pool(said: _Said) -> Translated:
    if _activation(said):
        raise _Unsaid
    kernel = (int(said.stated("filter_height")), int(said.stated("filter_width")))
    return said.as_onnx(attrs={**_lite_window(said), "kernel_shape": kernel})


def _lite_pair(said: _Said) -> Translated:
    if _activation(said):
        raise _Unsaid
    return said.as_onnx()


def _lite_softmax(said: _Said) -> Translated:
    if float(said.stated("beta")) != 1.0:
        raise _Unsaid
    return said.as_onnx(attrs={"axis": -1})


def _lite_concat(said: _Said) -> Translated:
    if _activation(said):
        raise _Unsaid
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


def _reshape(said: _Said) -> Translated:
    """The extents of the result say all that a reshape does."""
    shape = said.extents(said.node.outputs[0])
    return said.as_onnx("Reshape", {"shape": shape, "allowzero": 1}, inputs=said.node.inputs[:1])


def _reduced(said: _Said, axes: tuple[int, ...] | None) -> Translated:
    """Return a reduction; the extents of the result say whether dimensions are kept, and must fit the axes.

    Args:
        said: What was said.
        axes: The axes; None if a second input has them and its values are not known.
    """
    before, after = (said.extents(name) for name in (said.node.inputs[0], said.node.outputs[0]))
    keepdims = int(len(before) == len(after))
    if axes is None:
        return said.as_onnx(attrs={"keepdims": keepdims})
    gone = {axis % len(before) for axis in axes} if axes else set(range(len(before)))
    left = tuple(1 if axis in gone else n for axis, n in enumerate(before) if keepdims or axis not in gone)
    if left != after:
        raise _Unsaid
    return said.as_onnx(attrs={"axes": tuple(sorted(gone)), "keepdims": keepdims}, inputs=said.node.inputs[:1])


def _reduced_by_input(said: _Said) -> Translated:
    return _reduced(said, said.known(1))


def _turned_by_input(said: _Said) -> Translated:
    rank = len(said.extents(said.node.inputs[0]))
    order = said.numbers(1) or tuple(reversed(range(rank)))
    return said.as_onnx("Transpose", {"perm": order}, inputs=said.node.inputs[:1])


_BORDERS: Mapping[object, str] = MappingProxyType(
    {
        "constant": "constant",
        "reflect": "reflect",
        "REFLECT": "reflect",
        0: "reflect",
        "edge": "edge",
        "replicate": "edge",
        "circular": "wrap",
    }
)
"""What is put around an array, in the words of each framework; what repeats the border too has no equal in ONNX."""


def _padded(said: _Said, pads: tuple[int, ...], mode: object, *, value: str = "") -> Translated:
    """Return a Pad by widths before and after all dimensions, one after the other.

    Args:
        said: What was said.
        pads: The widths.
        mode: What is put there, in the framework's word.
        value: The input that is put there, if there is one.
    """
    if mode not in _BORDERS or len(pads) != 2 * len(said.extents(said.node.inputs[0])):
        raise _Unsaid
    inputs = (said.node.inputs[0], "", value) if value else said.node.inputs[:1]
    return said.as_onnx("Pad", {"pads": pads, "mode": _BORDERS[mode]}, inputs=inputs)


def _one(said: _Said) -> Translated:
    """Return a node that computes a function of one input; what the word itself says beyond that is kept."""
    if len(said.node.inputs) != 1:
        raise _Unsaid
    return said.as_onnx(
        attrs={name: said.plain.attrs[name] for name in ("min", "max", "alpha") if name in said.plain.attrs}
    )


def _two(said: _Said) -> Translated:
    if len(said.node.inputs) != 2:
        raise _Unsaid
    return said.as_onnx()


def _lite_pad(said: _Said) -> Translated:
    """The widths are a constant (dimensions, 2)."""
    pairs = said.numbers(1)
    mode = said.stated("mode") if "MIRROR" in said.node.op else "constant"
    value = said.node.inputs[2] if len(said.node.inputs) > 2 else ""
    return _padded(said, (*pairs[::2], *pairs[1::2]), mode, value=value)


def _lite_slice(said: _Said) -> Translated:
    """A SLICE has begins and sizes, a STRIDED_SLICE begins and ends, with masks for those that are not meant."""
    extents = said.extents(said.node.inputs[0])
    begins, others = said.numbers(1), said.numbers(2)
    if "STRIDED" in said.node.op:
        if any(said.stated(f"{name}_mask") for name in ("ellipsis", "new_axis", "shrink_axis")):
            raise _Unsaid
        if set(said.numbers(3)) != {1} or said.optional(0, "offset"):
            raise _Unsaid
        begin_mask, end_mask = int(said.stated("begin_mask")), int(said.stated("end_mask"))
        begins = tuple(0 if begin_mask >> axis & 1 else begin for axis, begin in enumerate(begins))
        ends = tuple(extents[axis] if end_mask >> axis & 1 else end for axis, end in enumerate(others))
    else:
        sized = zip(begins, others, extents, strict=True)
        ends = tuple(extent if size < 0 else begin + size for begin, size, extent in sized)
    axes = tuple(range(len(begins)))
    return said.as_onnx("Slice", {"starts": begins, "ends": ends, "axes": axes}, inputs=said.node.inputs[:1])


def _lite_quantize(said: _Said) -> Translated:
    """A QUANTIZE of codes gives them another scale; one of numbers is ONNX's but for its inputs, and stays."""
    info = said.graph.tensors.get(said.node.inputs[0])
    if info is None or info.quant is None:
        raise _Unsaid
    return said.as_onnx("Identity")


def _lite_leaky(said: _Said) -> Translated:
    return said.as_onnx(attrs={"alpha": float(said.stated("alpha"))})


_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
_SIMPLE = (
    "Relu",
    "Clip",
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "Abs",
    "Neg",
    "Exp",
    "Log",
    "Sqrt",
    "Floor",
    "Ceil",
    "Sin",
    "Cos",
)

_TFLITE: Mapping[str, _Rule] = MappingProxyType(
    {
        "Conv": _lite_conv,
        "Gemm": _lite_fully_connected,
        "MaxPool": _lite_pool,
        "AveragePool": _lite_pool,
        "Softmax": _lite_softmax,
        "Concat": _lite_concat,
        "Reshape": _reshape,
        "Squeeze": _reshape,
        "Unsqueeze": _reshape,
        "Pad": _lite_pad,
        "Transpose": _turned_by_input,
        "Slice": _lite_slice,
        "QuantizeLinear": _lite_quantize,
        "LeakyRelu": _lite_leaky,
        **dict.fromkeys(_REDUCTIONS, _reduced_by_input),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _lite_pair),
        **dict.fromkeys(("Max", "Min", "Pow", "PRelu"), _two),
        **dict.fromkeys(_SIMPLE, _one),
    }
)


def _torch_window(said: _Said, count: int) -> dict[str, AttrValue]:
    padding = said.optional(0, "padding")
    if isinstance(padding, str):
        raise _Unsaid
    pads = said.sizes(count, "padding", default=0)
    return {"pads": (*pads, *pads), "dilations": said.sizes(count, "dilation", default=1)}


def _torch_conv(said: _Said) -> Translated:
    kernel = said.extents(said.node.inputs[1])[2:]
    attrs = _torch_window(said, len(kernel))
    strides = said.sizes(len(kernel), "stride", default=1)
    group = int(said.optional(1, "groups"))
    return said.as_onnx("Conv", {**attrs, "strides": strides, "group": group, "kernel_shape": kernel})


def _torch_linear(said: _Said) -> Translated:
    if len(said.extents(said.node.inputs[0])) != 2:
        raise _Unsaid
    return said.as_onnx("Gemm", {"transB": 1})


def _torch_pool(said: _Said) -> Translated:
    count = len(said.extents(said.node.outputs[0])) - 2
    kernel = said.sizes(count, "kernel_size")
    strides = said.sizes(count, "stride") if said.optional((), "stride") else kernel
    attrs: dict[str, AttrValue] = {
        **_torch_window(said, count),
        "kernel_shape": kernel,
        "strides": strides,
        "ceil_mode": _flag(said.optional(0, "ceil_mode")),
    }
    if not of(said.plain.op).selects:
        del attrs["dilations"]
        attrs["count_include_pad"] = _flag(said.optional(1, "count_include_pad"))
    return said.as_onnx(attrs=attrs)


def _torch_axis(said: _Said) -> Translated:
    return said.as_onnx(attrs={"axis": int(said.stated("dim", "axis"))})


def _torch_sum(said: _Said) -> Translated:
    if float(said.optional(1, "alpha")) != 1.0:
        raise _Unsaid
    return said.as_onnx()


def _torch_permute(said: _Said) -> Translated:
    rank = len(said.extents(said.node.inputs[0]))
    order = list(range(rank))
    if "dims" in said.node.attrs:
        order = [int(each) % rank for each in said.stated("dims")]
    else:
        one, other = (int(said.stated(f"dim{at}", f"axis{at}")) for at in (0, 1))
        order[one], order[other] = order[other], order[one]
    return said.as_onnx("Transpose", {"perm": tuple(order)})


def _torch_reduced(said: _Said) -> Translated:
    """Without dimensions all are reduced; a dtype to sum in has no equal in ONNX."""
    if len(said.node.inputs) != 1 or said.optional(None, "dtype") is not None:
        raise _Unsaid
    axes = said.optional((), "dim", "axis")
    return _reduced(said, tuple(int(each) for each in axes) if isinstance(axes, tuple | list) else (int(axes),))


def _torch_pad(said: _Said) -> Translated:
    """The widths are pairs, of the last dimension first; dimensions without a pair are not padded."""
    widths = [int(each) for each in said.stated("pad")]
    rank = len(said.extents(said.node.inputs[0]))
    widths += [0] * (2 * rank - len(widths))
    found = _padded(said, (*widths[-2::-2], *widths[::-2]), said.optional("constant", "mode"))
    value = float(said.optional(0.0, "value") or 0.0)
    return found if value == 0 else replace(found, node=replace(found.node, attrs={**found.node.attrs, "value": value}))


def _torch_leaky(said: _Said) -> Translated:
    return said.as_onnx("LeakyRelu", {"alpha": float(said.optional(0.01, "negative_slope"))})


def _torch_norm(said: _Said) -> Translated:
    return said.as_onnx("BatchNormalization", {"epsilon": float(said.optional(1e-5, "eps"))})


_TORCH: Mapping[str, _Rule] = MappingProxyType(
    {
        "Conv": _torch_conv,
        "Gemm": _torch_linear,
        "MaxPool": _torch_pool,
        "AveragePool": _torch_pool,
        "Softmax": _torch_axis,
        "LogSoftmax": _torch_axis,
        "Concat": _torch_axis,
        "Transpose": _torch_permute,
        "Pad": _torch_pad,
        **dict.fromkeys(_REDUCTIONS, _torch_reduced),
        "LeakyRelu": _torch_leaky,
        "BatchNormalization": _torch_norm,
        **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
        **dict.fromkeys(("Add", "Sub"), _torch_sum),
        **dict.fromkeys(("Mul", "Div", "MatMul"), _two),
        **dict.fromkeys(_SIMPLE, _one),
    }
)

_AUTO_PAD = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}


def _open_window(said: _Said) -> dict[str, AttrValue]:
    mode = str(said.optional("explicit", "auto_pad")).lower()
    if mode in _AUTO_PAD:
        return {"auto_pad": _AUTO_PAD[mode]}
    begin, end = (tuple(int(each) for each in said.stated(name)) for name in ("pads_begin", "pads_end"))
    return {"pads": (*begin, *end)}


def _open_conv(said: _Said) -> Translated:
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
            raise _Unsaid  # the extents of its result decide the padding
        attrs["output_padding"] = tuple(int(each) for each in said.optional((0,) * len(extents[2:]), "output_padding"))
    fused = _open_activation(said)
    op, domain = ("FusedConv", _CONTRIBUTED) if fused else ("", "")
    attrs |= fused
    if not grouped:
        return said.as_onnx(op, attrs, domain=domain)
    weight, split = _without_groups(said, said.node.inputs[1])
    inputs = (said.node.inputs[0], weight, *said.node.inputs[2:])
    return said.as_onnx(op, attrs, domain=domain, inputs=inputs, merged=frozenset((weight,) if split else ()))


def _open_activation(said: _Said) -> dict[str, AttrValue]:
    """Return the activation that a runtime fused, as it is recorded: in ONNX Runtime's words."""
    known = {name: said.node.attrs[name] for name in ("activation", "activation_params") if name in said.node.attrs}
    if known and of(said.plain.op).sums is Sums.SCATTER:
        raise _Unsaid  # ONNX has no such operator with an activation
    return known


def _without_groups(said: _Said, weight: str) -> tuple[str, bool]:
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
        raise _Unsaid  # scales along one of two dimensions are none along both
    return weight, True


def _open_pool(said: _Said) -> Translated:
    attrs: dict[str, AttrValue] = {
        **_open_window(said),
        "kernel_shape": tuple(int(each) for each in said.stated("kernel")),
        "strides": tuple(int(each) for each in said.stated("strides")),
        "ceil_mode": int(str(said.optional("floor", "rounding_type")).lower().startswith("ceil")),
    }
    if not of(said.plain.op).selects:
        excluded = said.stated("exclude-pad", "exclude_pad")
        attrs["count_include_pad"] = 1 - _flag(excluded)
    return said.as_onnx(attrs=attrs, inputs=said.node.inputs[:1])


def _open_matmul(said: _Said) -> Translated:
    turned = [_flag(said.optional(0, name)) for name in ("transpose_a", "transpose_b")]
    fused = _open_activation(said)
    if fused or len(said.node.inputs) > 2:
        if len(said.extents(said.node.outputs[0])) != 2 or len(said.node.inputs) < 3:
            raise _Unsaid
        attrs = {"transA": turned[0], "transB": turned[1], **fused}
        return said.as_onnx("FusedGemm" if fused else "Gemm", attrs, domain=_CONTRIBUTED if fused else "")
    if not any(turned):
        return said.as_onnx("MatMul")
    return said.as_onnx("FusedMatMul", {"transA": turned[0], "transB": turned[1]}, domain=_CONTRIBUTED)


def _open_axis(said: _Said) -> Translated:
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


def _open_pad(said: _Said) -> Translated:
    value = said.node.inputs[3] if len(said.node.inputs) > 3 else ""
    return _padded(said, (*said.numbers(1), *said.numbers(2)), said.stated("pad_mode"), value=value)


_OPENVINO: Mapping[str, _Rule] = MappingProxyType(
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
        **dict.fromkeys(_REDUCTIONS, _reduced_by_input),
        **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), _reshape),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"), _two),
        **dict.fromkeys(_SIMPLE, _one),
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
