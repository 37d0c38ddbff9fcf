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

from qdebug.model.graph import AttrValue, Graph, Node
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
    """

    node: Node
    turns: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))


class _Unsaid(Exception):  # noqa: N818  it is no error: the node stays as it is
    """Something that the result depends on was not recorded, or has no equal in ONNX."""


def translated(node: Node, graph: Graph) -> Translated | None:
    """Return a node of another framework as ONNX says it; None if it is ONNX's, or not all is known of it.

    Args:
        node: The node.
        graph: Its graph: ranks and extents of tensors are asked for.
    """
    open_vino = node.op in _OPENVINO_NAMES or not _OPENVINO_ATTRS.isdisjoint(node.attrs)
    if not (open_vino or is_foreign(node)) or not node.outputs:
        return None
    plain = in_words_of_onnx(node)
    rules = _TFLITE if node.op.isupper() else _OPENVINO if open_vino else _TORCH
    rule = rules.get(plain.op)
    if rule is None:
        return None
    try:
        return rule(_Said(node=node, plain=plain, graph=graph))
    except (_Unsaid, IndexError, TypeError, ValueError):  # a harness may say anything
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What was said of a node."""

    node: Node
    plain: Node
    graph: Graph

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

    def as_onnx(
        self,
        op: str = "",
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        domain: str = "",
        inputs: tuple[str, ...] | None = None,
        turns: Mapping[str, tuple[int, ...]] | None = None,
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
        return Translated(node=node, turns=MappingProxyType(dict(turns or {})))


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


def _lite_conv(said: _Said) -> Translated:
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
    if len(said.extents(said.node.inputs[0])) != 2 or len(said.extents(said.node.outputs[0])) != 2:
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
        **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _lite_pair),
        **dict.fromkeys(("Max", "Min", "Pow"), _two),
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
    return said.as_onnx("Transpose", {"perm": tuple(int(each) for each in said.stated("dims"))})


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
    extents = said.extents(said.node.inputs[1])
    if "Group" in said.node.op:
        raise _Unsaid  # its weight has a dimension more
    strides = tuple(int(each) for each in said.stated("strides"))
    dilations = tuple(int(each) for each in said.stated("dilations"))
    attrs = {**_open_window(said), "strides": strides, "dilations": dilations, "kernel_shape": extents[2:], "group": 1}
    return said.as_onnx("Conv", attrs)


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
    if not any(turned):
        return said.as_onnx("MatMul")
    return said.as_onnx("FusedMatMul", {"transA": turned[0], "transB": turned[1]}, domain=_CONTRIBUTED)


def _open_axis(said: _Said) -> Translated:
    return said.as_onnx(attrs={"axis": int(said.stated("axis"))})


_OPENVINO: Mapping[str, _Rule] = MappingProxyType(
    {
        "Conv": _open_conv,
        "MaxPool": _open_pool,
        "AveragePool": _open_pool,
        "MatMul": _open_matmul,
        "Softmax": _open_axis,
        "Concat": _open_axis,
        **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), _reshape),
        **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min"), _two),
        **dict.fromkeys(_SIMPLE, _one),
    }
)
_OPENVINO_NAMES = frozenset(
    (
        *("Convolution", "GroupConvolution", "Multiply", "Subtract", "Divide", "Power", "ReLU", "SoftMax", "Clamp"),
        *("AvgPool", "Maximum", "Minimum", "Negative", "HSwish", "LogSoftmax"),
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
    )
)
"""Attributes of OpenVINO alone: they tell its operators from those of the same name that ONNX has."""
