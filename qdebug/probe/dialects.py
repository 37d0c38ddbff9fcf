"""Translate probe networks: the same codes, scales and sums with TensorFlow Lite or PyTorch operators, or as QDQ.

A network is a set of independent nodes, on codes or between DequantizeLinear and QuantizeLinear. TensorFlow Lite cannot
express operands of two types, int8 weights with a zero point, or averages at a different scale, so these are left out.
PyTorch has no bilinear resize without an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.model import AttrValue, Graph, Node, QuantParams
from qdebug.model.quant import is_same_scale
from qdebug.probe.models import NetBuilder, ProbeModel

__all__ = ["translate_floats_to_pytorch", "translate_to_pt2e", "translate_to_qdq", "translate_to_tflite"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Operand:
    """An operand of a node: values, quantization, and whether it is a constant."""

    values: np.ndarray
    scale: np.ndarray | None = None
    zero: int = 0
    constant: bool = False

    @property
    def per_channel(self) -> bool:
        """Whether the operand has several scales."""
        return self.scale is not None and self.scale.size > 1

    def quant(self, axis: int | None = None) -> QuantParams | None:
        """Return the operand's quantization, or None for real numbers."""
        return None if self.scale is None else _make_quant(self.values.dtype, self.scale, self.zero, axis)

    def has_only(self, scale: np.ndarray, zero: int) -> bool:
        """Return whether the operand has exactly this scale and zero point."""
        return self.scale is not None and is_same_scale(self.scale, scale) and self.zero == zero


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ProbeNode:
    """One node of a probe: an operator on codes, or one between DequantizeLinear and QuantizeLinear."""

    op: str
    operands: tuple[_Operand, ...]
    scale: np.ndarray
    zero: int
    dtype: np.dtype
    attrs: Mapping[str, AttrValue]
    other_values: tuple[np.ndarray, ...] = ()

    @property
    def codes(self) -> np.ndarray:
        """The codes of the first operand."""
        return self.operands[0].values


def translate_to_tflite(model: ProbeModel) -> ProbeModel | None:
    """Return a probe network with TensorFlow Lite operators, or None if none of its nodes can be expressed.

    Args:
        model: The network with ONNX operators.
    """
    net = NetBuilder(model.kind, model.title)
    for unit in _probe_nodes(model):
        if unit.op in _TFLITE_RULES:
            _TFLITE_RULES[unit.op](net, unit)
    return _make_foreign_model(net)


def translate_to_pt2e(model: ProbeModel) -> ProbeModel | None:
    """Return a probe network as quantized by PyTorch's PT2E, or None if none of its nodes can be expressed.

    It reads and returns real numbers. Each operator is an aten operator between `quantized_decomposed` nodes with
    scales and zero points. Weights are codes; a bias is real, as quantizers leave it.

    Args:
        model: The network with ONNX operators.
    """
    net = NetBuilder(model.kind, model.title)
    for unit in _probe_nodes(model):
        aten_node = _ATEN_RULES[unit.op](unit) if unit.op in _ATEN_RULES else None
        if aten_node is None:
            continue
        reals = [_add_dequantized_pt2e(net, operand) for operand in aten_node.operands]
        real = reals[0]
        if aten_node.op:
            names = (*reals, *map(net.add_constant, aten_node.other_values))
            real = net.add_node(aten_node.op, names, _REAL, **aten_node.attrs)  # type: ignore[arg-type]  # no attribute has the name of a parameter
        facts = _quant_facts(unit.dtype, unit.scale, unit.zero)
        codes = net.add_node(f"{_DECOMPOSED}.quantize_per_tensor.default", (real,), unit.dtype, **facts)
        net.add_node(f"{_DECOMPOSED}.dequantize_per_tensor.default", (codes,), _REAL, **facts)
    return _make_foreign_model(net)


def translate_floats_to_pytorch(model: ProbeModel) -> ProbeModel:
    """Return a network of float operators with PyTorch's operators. Its tensors keep their names.

    Args:
        model: The network with ONNX operators, from `rounding_model`.
    """
    return _with_foreign_nodes(model, [_to_aten_node(node, model) for node in model.graph.nodes])


_ATEN_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{op: f"aten.{op.lower()}.Tensor" for op in ("Add", "Sub", "Mul", "Div")},
        **{op: f"aten.{op.lower()}.default" for op in ("Sqrt", "Sigmoid", "Tanh", "Erf", "Gelu")},
        "Cast": "aten._to_copy.default",
        "MatMul": "aten.mm.default",
        "Gemm": "aten.addmm.default",
        "Conv": "aten.conv2d.default",
        "ReduceMean": "aten.mean.dim",
        "Softmax": "aten.softmax.int",
        "LayerNormalization": "aten.layer_norm.default",
        "RMSNormalization": "aten.rms_norm.default",
    }
)
"""PyTorch's operators by the operators of ONNX, for networks of floats."""


def _to_aten_node(node: Node, model: ProbeModel) -> Node:
    """Return a float node with PyTorch's operator, order of inputs and attributes."""
    inputs = (node.inputs[2], *node.inputs[:2]) if node.op == "Gemm" else node.inputs
    attrs: dict[str, AttrValue] = {}
    if node.op == "Cast":
        attrs = {"dtype": model.graph.tensors[node.outputs[0]].dtype or ""}
    elif node.op == "ReduceMean":
        attrs = {"dim": node.attrs["axes"], "keepdim": bool(node.attrs["keepdims"])}
    elif node.op == "Softmax":
        attrs = {"dim": node.attrs["axis"]}
    elif node.op in ("LayerNormalization", "RMSNormalization"):
        attrs = {"normalized_shape": model.constants[node.inputs[1]].shape, "eps": node.attrs["epsilon"]}
    return Node(name=node.name, op=_ATEN_NAMES[node.op], inputs=inputs, outputs=node.outputs, attrs=attrs)


def _make_foreign_model(net: NetBuilder) -> ProbeModel | None:
    """Return the finished network, without a version of ONNX's operator set; None if it has no nodes."""
    if not net.nodes:
        return None
    model = net.build()
    return _with_foreign_nodes(model, model.graph.nodes)


def _with_foreign_nodes(model: ProbeModel, nodes: Sequence[Node]) -> ProbeModel:
    """Return a network with other nodes, without a version of ONNX's operator set."""
    graph = model.graph
    foreign_graph = Graph(
        nodes, tensors=graph.tensors.values(), inputs=graph.inputs, outputs=graph.outputs, name=graph.name
    )
    return replace(model, graph=foreign_graph)


def translate_to_qdq(model: ProbeModel) -> ProbeModel:
    """Return a probe network of real operators, each between codes. It reads and returns real numbers.

    A backend that compiles quantized networks without quantized operators chooses its own form for these.

    Args:
        model: The network with ONNX operators.
    """
    net = NetBuilder(model.kind, model.title)
    for unit in _probe_nodes(model):
        reals = [_add_dequantized(net, operand) for operand in unit.operands]
        other_inputs = [net.add_constant(array) if array.size else "" for array in unit.other_values]
        if unit.op == "QLinearConv" and other_inputs:
            x, weight = unit.operands[:2]
            scale = np.asarray(np.asarray(x.scale) * np.asarray(weight.scale), np.float32)
            pair = net.add_constant(scale), net.add_constant(np.zeros(scale.shape, np.int32))
            other_inputs = [net.add_node("DequantizeLinear", (*other_inputs, *pair), _REAL, **_axis_attribute(scale))]
        real = reals[0]
        if unit.op != "QuantizeLinear":
            op = unit.op.removeprefix("QLinear")
            attrs = {name: value for name, value in unit.attrs.items() if name != "opset"}
            real = net.add_node(op, (*reals, *other_inputs), _REAL, **attrs)  # type: ignore[arg-type]  # no attribute has the name of a parameter
        out = net.add_constant(unit.scale), net.add_constant(np.full(unit.scale.shape, unit.zero, unit.dtype))
        codes = net.add_node("QuantizeLinear", (real, *out), unit.dtype)
        net.add_node("DequantizeLinear", (codes, *out), _REAL)
    return net.build()


_REAL = np.dtype(np.float32)


def _axis_attribute(scale: np.ndarray) -> dict[str, Any]:
    """Return the attribute for per-channel scales, or nothing for a single scale."""
    return {"axis": 0} if scale.size > 1 else {}


def _add_dequantized(net: NetBuilder, operand: _Operand) -> str:
    """Add an operand as dequantized codes. Real numbers are fed unchanged."""
    if operand.scale is None:
        return net.add_input(operand.values)
    dtype, scale = operand.values.dtype, operand.scale
    pair = net.add_constant(scale), net.add_constant(np.full(scale.shape, operand.zero, dtype))
    if operand.constant:
        return net.add_node(
            "DequantizeLinear", (net.add_constant(operand.values), *pair), _REAL, **_axis_attribute(scale)
        )
    real = (operand.values.astype(np.float32) - np.float32(operand.zero)) * scale
    codes = net.add_node("QuantizeLinear", (net.add_input(np.asarray(real, np.float32)), *pair), dtype)
    return net.add_node("DequantizeLinear", (codes, *pair), _REAL)


def _make_quant(dtype: np.dtype, scale: np.ndarray, zero: int, axis: int | None = None) -> QuantParams:
    zeros = np.full(scale.shape, zero, np.int64)
    return QuantParams(dtype=dtype.name, scale=scale, zero_point=zeros, axis=axis if scale.size > 1 else None)


# For each operator: the first slots of its operands, of the output's scale and zero point, and of further inputs.
_INPUT_POSITIONS: Mapping[str, tuple[tuple[int, ...], int, int]] = MappingProxyType(
    {
        **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"), ((0, 3), 6, 8)),
        **dict.fromkeys(
            ("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"),
            ((0,), 3, 5),
        ),
        "QLinearConcat": ((2, 5), 0, 8),
    }
)


_MISSING = np.empty(0, np.float32)
"""Placeholder of a missing input."""


def _probe_nodes(model: ProbeModel) -> Iterator[_ProbeNode]:
    """Yield the nodes of a probe with all their operands."""
    values = {**model.feed, **model.constants}
    producers_by_tensor = {name: node for node in model.graph.nodes for name in node.outputs}
    readers = {name: node for node in model.graph.nodes for name in node.inputs}

    def operand(code: str, scale: str, zero: str) -> _Operand:
        scale_value = np.asarray(values[scale], np.float32)
        return _Operand(
            values=values[code],
            scale=scale_value,
            zero=int(values[zero].reshape(-1)[0]),
            constant=code in model.constants,
        )

    for node in model.graph.nodes:
        if node.op in _INPUT_POSITIONS:
            operand_slots, out, end = _INPUT_POSITIONS[node.op]
            operands = tuple(operand(*node.inputs[first : first + 3]) for first in operand_slots)
            scale, zero = node.inputs[out : out + 2]
            other_values = tuple(values[name] for name in node.inputs[end:])
        elif node.op == "QuantizeLinear" and node.inputs[0] in model.feed:
            operands, (scale, zero), other_values = (_Operand(values=values[node.inputs[0]]),), node.inputs[1:3], ()
        elif node.op not in ("QuantizeLinear", "DequantizeLinear"):
            producers = [producers_by_tensor[name] for name in node.inputs if name in producers_by_tensor]
            operands = tuple(operand(*producer.inputs) for producer in producers)
            scale, zero = readers[node.outputs[0]].inputs[1:3]
            other_values = tuple(values.get(name, _MISSING) for name in node.inputs if name not in producers_by_tensor)
        else:
            continue
        yield _ProbeNode(
            op=node.op,
            operands=operands,
            scale=np.asarray(values[scale], np.float32),
            zero=int(values[zero].reshape(-1)[0]),
            dtype=values[zero].dtype,
            attrs=node.attrs,
            other_values=other_values,
        )


def _channels_moved_last(array: np.ndarray) -> np.ndarray:
    """Move channels to the end, as in TensorFlow Lite."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def _add_node(
    net: NetBuilder, op: str, inputs: tuple[str, ...], unit: _ProbeNode, shape: tuple[int, ...], **attrs: AttrValue
) -> None:
    net.add_node(op, inputs, unit.dtype, quant=_make_quant(unit.dtype, unit.scale, unit.zero), shape=shape, **attrs)  # type: ignore[arg-type]  # no attribute has the name of a parameter


def _feed_operand(net: NetBuilder, operand: _Operand, values: np.ndarray | None = None) -> str:
    return net.add_input(operand.values if values is None else values, operand.quant())


def _can_multiply(unit: _ProbeNode) -> bool:
    """Return whether TensorFlow Lite can multiply the operands: equal types, and int8 weights without zero point."""
    x, weight = unit.operands[:2]
    return x.values.dtype == weight.values.dtype and (weight.values.dtype == np.uint8 or weight.zero == 0)


def _add_bias(net: NetBuilder, unit: _ProbeNode, count: int) -> str:
    x, weight = unit.operands[:2]
    values = unit.other_values[0] if unit.other_values else np.zeros(count, np.int32)
    scale = np.asarray(np.asarray(x.scale) * np.asarray(weight.scale), np.float32)
    return net.add_constant(values, _make_quant(values.dtype, scale, 0, axis=0))


def _add_convolution(net: NetBuilder, unit: _ProbeNode) -> None:
    x, weight = unit.operands[:2]
    if not _can_multiply(unit) or (weight.values.dtype == np.uint8 and weight.per_channel):
        return
    filters = np.ascontiguousarray(np.moveaxis(weight.values, 1, -1))
    codes = _channels_moved_last(x.values)
    padded = bool(np.any(unit.attrs.get("pads", 0)))
    unit_steps = {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    shape = (*codes.shape[:3], len(filters))
    if unit.attrs.get("group", 1) == 1:
        names = (
            _feed_operand(net, x, codes),
            net.add_constant(filters, weight.quant(axis=0)),
            _add_bias(net, unit, len(filters)),
        )
        _add_node(net, "CONV_2D", names, unit, shape, padding="SAME" if padded else "VALID", **unit_steps)
        return
    taps = np.ascontiguousarray(np.moveaxis(weight.values, 0, -1).reshape(1, *weight.values.shape[2:], -1))
    names = (
        _feed_operand(net, x, codes),
        net.add_constant(taps, weight.quant(axis=3)),
        _add_bias(net, unit, len(filters)),
    )
    _add_node(
        net, "DEPTHWISE_CONV_2D", names, unit, shape,
        padding="SAME" if padded else "VALID", depth_multiplier=1, **unit_steps,
    )  # fmt: skip


def _add_fully_connected(net: NetBuilder, unit: _ProbeNode) -> None:
    x, weight = unit.operands[:2]
    if not _can_multiply(unit):
        return
    transposed = np.ascontiguousarray(weight.values.T)
    names = (_feed_operand(net, x), net.add_constant(transposed, weight.quant()), _add_bias(net, unit, len(transposed)))
    _add_node(net, "FULLY_CONNECTED", names, unit, (len(x.values), len(transposed)))


def _make_binary_rule(op: str) -> Callable[[NetBuilder, _ProbeNode], None]:
    def add(net: NetBuilder, unit: _ProbeNode) -> None:
        names = tuple(_feed_operand(net, operand) for operand in unit.operands)
        _add_node(net, op, names, unit, unit.codes.shape)

    return add


def _add_prelu(net: NetBuilder, unit: _ProbeNode) -> None:
    x, slope = unit.operands
    names = _feed_operand(net, x), net.add_constant(slope.values, slope.quant())
    _add_node(net, "PRELU", names, unit, unit.codes.shape)


def _add_pool(net: NetBuilder, unit: _ProbeNode) -> None:
    if not unit.operands[0].has_only(unit.scale, unit.zero):
        return
    rows, columns = np.asarray(unit.attrs["kernel_shape"]).tolist()
    codes = _channels_moved_last(unit.codes)
    count, high, wide, channels = codes.shape
    _add_node(
        net, "AVERAGE_POOL_2D", (_feed_operand(net, unit.operands[0], codes),), unit,
        (count, high - rows + 1, wide - columns + 1, channels),
        padding="VALID", stride_w=1, stride_h=1, filter_width=columns, filter_height=rows,
    )  # fmt: skip


def _make_function_rule(op: str, *names: str) -> Callable[[NetBuilder, _ProbeNode], None]:
    def add(net: NetBuilder, unit: _ProbeNode) -> None:
        _add_node(
            net,
            op,
            (_feed_operand(net, unit.operands[0]),),
            unit,
            unit.codes.shape,
            **{name: unit.attrs[name] for name in names},
        )

    return add


def _add_softmax(net: NetBuilder, unit: _ProbeNode) -> None:
    if unit.scale == np.float32(1 / 256):  # the kernels support only this output scale
        _add_node(net, "SOFTMAX", (_feed_operand(net, unit.operands[0]),), unit, unit.codes.shape, beta=1.0)


def _add_concat(net: NetBuilder, unit: _ProbeNode) -> None:
    if unit.dtype == np.uint8 or all(operand.has_only(unit.scale, unit.zero) for operand in unit.operands):
        names = tuple(_feed_operand(net, operand) for operand in unit.operands)
        shape = (1, sum(operand.values.shape[1] for operand in unit.operands))
        _add_node(net, "CONCATENATION", names, unit, shape, axis=1)


def _add_mean(net: NetBuilder, unit: _ProbeNode) -> None:
    axes = np.array(np.asarray(unit.attrs["axes"]) % unit.codes.ndim, np.int32)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(unit.codes.shape))
    _add_node(net, "MEAN", (_feed_operand(net, unit.operands[0]), net.add_constant(axes)), unit, shape, keep_dims=True)


def _add_resize(net: NetBuilder, unit: _ProbeNode) -> None:
    sizes = unit.other_values[-1]
    if sizes[-1] == unit.codes.shape[-1]:  # channels are last: the net with channels second has the same node
        return
    codes = _channels_moved_last(unit.codes)
    coordinate_mode = unit.attrs["coordinate_transformation_mode"]
    inputs = _feed_operand(net, unit.operands[0], codes), net.add_constant(sizes[2:].astype(np.int32))
    _add_node(
        net, "RESIZE_BILINEAR", inputs, unit,
        (codes.shape[0], *sizes[2:].tolist(), codes.shape[-1]),
        align_corners=coordinate_mode == "align_corners", half_pixel_centers=coordinate_mode == "half_pixel",
    )  # fmt: skip


_TFLITE_RULES: Mapping[str, Callable[[NetBuilder, _ProbeNode], None]] = MappingProxyType(
    {
        "QLinearConv": _add_convolution,
        "QLinearMatMul": _add_fully_connected,
        "QLinearAdd": _make_binary_rule("ADD"),
        "Sub": _make_binary_rule("SUB"),
        "QLinearMul": _make_binary_rule("MUL"),
        "PRelu": _add_prelu,
        "QLinearAveragePool": _add_pool,
        "QLinearSigmoid": _make_function_rule("LOGISTIC"),
        "QLinearLeakyRelu": _make_function_rule("LEAKY_RELU", "alpha"),
        "HardSwish": _make_function_rule("HARD_SWISH"),
        "Tanh": _make_function_rule("TANH"),
        "QLinearSoftmax": _add_softmax,
        "QLinearConcat": _add_concat,
        "QuantizeLinear": _make_function_rule("QUANTIZE"),
        "Clip": _make_function_rule("QUANTIZE"),
        "ReduceMean": _add_mean,
        "Resize": _add_resize,
    }
)
"""Translations of probe operators into TensorFlow Lite."""


# -- PyTorch's words -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _AtenNode:
    """A node with a PyTorch operator ("" for the identity): quantized operands, real constants, attributes."""

    op: str
    operands: tuple[_Operand, ...]
    other_values: tuple[np.ndarray, ...] = ()
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


_DECOMPOSED = "quantized_decomposed"
"""The operator set of PT2E quantization."""


def _quant_facts(dtype: np.dtype, scale: np.ndarray, zero: int) -> dict[str, Any]:
    """Return the attributes of a node that quantizes or dequantizes with one scale."""
    limits = np.iinfo(dtype)
    facts = {"quant_min": int(limits.min), "quant_max": int(limits.max), "dtype": dtype.name}
    return {"scale": float(scale), "zero_point": zero, **facts} if scale.size == 1 else facts


def _add_dequantized_pt2e(net: NetBuilder, operand: _Operand) -> str:
    """Add an operand as dequantized codes. Real numbers are fed unchanged."""
    if operand.scale is None:
        return net.add_input(operand.values)
    dtype, scale = operand.values.dtype, operand.scale
    facts = _quant_facts(dtype, scale, operand.zero)
    if operand.per_channel:
        zeros = net.add_constant(np.full(scale.shape, operand.zero, np.int64))
        names = net.add_constant(operand.values), net.add_constant(scale), zeros
        return net.add_node(f"{_DECOMPOSED}.dequantize_per_channel.default", names, _REAL, axis=0, **facts)
    if operand.constant:
        codes = net.add_constant(operand.values)
    else:
        real = (operand.values.astype(np.float32) - np.float32(operand.zero)) * scale
        fed = net.add_input(np.asarray(real, np.float32))
        codes = net.add_node(f"{_DECOMPOSED}.quantize_per_tensor.default", (fed,), dtype, **facts)
    return net.add_node(f"{_DECOMPOSED}.dequantize_per_tensor.default", (codes,), _REAL, **facts)


def _with_scale_per_filter(weight: _Operand) -> _Operand:
    """Return a weight with a scale for each filter, as PT2E quantizers write it and compilers expect it."""
    scale = np.asarray(weight.scale, np.float32)
    return replace(weight, scale=np.ascontiguousarray(np.broadcast_to(scale, weight.values.shape[:1])))


def _real_bias(unit: _ProbeNode) -> tuple[np.ndarray, ...]:
    """Return the bias of a convolution as real numbers, or nothing if it has none."""
    x, weight = unit.operands[:2]
    scale = np.asarray(np.asarray(x.scale) * np.asarray(weight.scale), np.float32)
    return tuple(np.asarray(bias * scale, np.float32) for bias in unit.other_values)


def _aten_convolution(unit: _ProbeNode) -> _AtenNode:
    pads = np.asarray(unit.attrs.get("pads", (0, 0, 0, 0))).tolist()
    attrs: dict[str, AttrValue] = {"padding": tuple(pads[:2]), "groups": unit.attrs.get("group", 1)}
    operands = unit.operands[0], _with_scale_per_filter(unit.operands[1])
    return _AtenNode(op="aten.conv2d.default", operands=operands, other_values=_real_bias(unit), attrs=attrs)


def _aten_matrix(unit: _ProbeNode) -> _AtenNode:
    x, weight = unit.operands[:2]
    transposed = replace(weight, values=np.ascontiguousarray(weight.values.T))
    return _AtenNode(op="aten.linear.default", operands=(x, _with_scale_per_filter(transposed)))


def _make_aten_rule(op: str, **attrs: AttrValue) -> Callable[[_ProbeNode], _AtenNode]:
    """Return a rule that translates to a PyTorch operator with the same operands."""
    return lambda unit: _AtenNode(op=op, operands=unit.operands, attrs=attrs)


def _aten_pool(unit: _ProbeNode) -> _AtenNode:
    window = tuple(np.asarray(unit.attrs["kernel_shape"]).tolist())
    return _AtenNode(
        op="aten.avg_pool2d.default", operands=unit.operands, attrs={"kernel_size": window, "stride": (1, 1)}
    )


def _aten_leaky(unit: _ProbeNode) -> _AtenNode:
    attrs: dict[str, AttrValue] = {"negative_slope": unit.attrs["alpha"]}
    return _AtenNode(op="aten.leaky_relu.default", operands=unit.operands, attrs=attrs)


def _aten_average(unit: _ProbeNode) -> _AtenNode:
    axes = tuple(np.asarray(unit.attrs["axes"]).tolist())
    return _AtenNode(op="aten.mean.dim", operands=unit.operands, attrs={"dim": axes, "keepdim": True})


def _aten_resize(unit: _ProbeNode) -> _AtenNode | None:
    sizes, coordinate_mode = unit.other_values[-1], unit.attrs["coordinate_transformation_mode"]
    if (
        coordinate_mode == "asymmetric" or sizes[1] != unit.codes.shape[1]
    ):  # channels are last: there is no operator for it
        return None
    attrs: dict[str, AttrValue] = {
        "output_size": tuple(sizes[2:].tolist()),
        "align_corners": coordinate_mode == "align_corners",
    }
    return _AtenNode(op="aten.upsample_bilinear2d.vec", operands=unit.operands, attrs=attrs)


_ATEN_RULES: Mapping[str, Callable[[_ProbeNode], _AtenNode | None]] = MappingProxyType(
    {
        "QLinearConv": _aten_convolution,
        "QLinearMatMul": _aten_matrix,
        "QLinearAdd": _make_aten_rule("aten.add.Tensor"),
        "Sub": _make_aten_rule("aten.sub.Tensor"),
        "QLinearMul": _make_aten_rule("aten.mul.Tensor"),
        "QLinearAveragePool": _aten_pool,
        "QLinearGlobalAveragePool": _make_aten_rule("aten.adaptive_avg_pool2d.default", output_size=(1, 1)),
        "QLinearSigmoid": _make_aten_rule("aten.sigmoid.default"),
        "QLinearLeakyRelu": _aten_leaky,
        "HardSwish": _make_aten_rule("aten.hardswish.default"),
        "Tanh": _make_aten_rule("aten.tanh.default"),
        "PRelu": _make_aten_rule("aten.prelu.default"),
        "QLinearSoftmax": _make_aten_rule("aten.softmax.int", dim=-1),
        "QLinearConcat": _make_aten_rule("aten.cat.default", dim=1),
        "QuantizeLinear": _make_aten_rule(""),
        "Clip": _make_aten_rule(""),
        "Relu": _make_aten_rule("aten.relu.default"),
        "ReduceMean": _aten_average,
        "Resize": _aten_resize,
    }
)
"""Translations of probe operators into PyTorch."""
