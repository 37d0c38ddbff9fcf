"""Derive quantization parameters from the structure of a graph: which tensors hold codes, and their scales.

Facts come from the inputs of quantizing operators and from stated parameters of other tensors, never from names. If the
scale of the data is computed at run time (DynamicQuantizeLinear, ConvInteger, MatMulInteger), the graph states only the
scale of the weight: the sums are multiplied by the data's scale, which is chosen together with the codes, times the
weight's scale, which is a constant. Begin at `quant_facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.model.dtypes import is_float, is_integer
from qdebug.model.graph import Graph, Node
from qdebug.model.operators import queries as operators
from qdebug.model.operators.operator import Sums
from qdebug.model.quant import QuantParams

__all__ = ["Facts", "WeightScale", "quant_facts", "scale_of_codes", "states_scale", "weight_scales"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightScale:
    """The scale of a weight.

    Args:
        tensor: The weight's codes.
        zero_point: Name of its zero point; "" for 0.
        scale: One scale, or one per channel.
        axis: Channel dimension; a negative one counts from the end.
    """

    tensor: str
    zero_point: str
    scale: np.ndarray
    axis: int


def weight_scales(nodes: Sequence[Node], constant: Callable[[str], np.ndarray | None]) -> tuple[WeightScale, ...]:
    """Find weights whose scale can be derived from the factors that multiply the integer sums.

    Args:
        nodes: In topological order.
        constant: Returns the elements of a small constant by name; None for other tensors.
    """
    producers = {name: node for node in nodes for name in node.outputs if name}
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    weights = []
    for node in nodes:
        if operators.of(node.op).sums_codes and len(node.inputs) > 1:
            scale = _weight_scale(node, producers, readers, constant)
            if scale is not None:
                zero = node.inputs[3] if len(node.inputs) > 3 else ""
                axis = -1 if operators.plain(node).sums is Sums.MATRIX else 0
                weights.append(WeightScale(tensor=node.inputs[1], zero_point=zero, scale=scale, axis=axis))
    return tuple(weights)


def _weight_scale(
    node: Node,
    producers: Mapping[str, Node],
    readers: Mapping[str, Sequence[Node]],
    constant: Callable[[str], np.ndarray | None],
) -> np.ndarray | None:
    """Return the constant that multiplies a node's sums together with the scale of the data; None without one."""
    for _, name in _factors(node, producers, readers):
        factor = constant(name)
        if factor is not None:
            return factor.astype(np.float32).ravel()
    return None


def _factors(
    node: Node, producers: Mapping[str, Node], readers: Mapping[str, Sequence[Node]]
) -> Iterator[tuple[Node, str]]:
    """Yield the nodes that multiply the data's scale by another scale to scale a node's sums, and that other scale.

    Args:
        node: A node that outputs integer sums.
        producers: The producer of each tensor.
        readers: The consumers of each tensor.
    """
    data = _runtime_scale(node.inputs[0], producers)
    if data is None:
        return
    for cast_node in readers.get(node.outputs[0], ()):
        for product in readers.get(cast_node.outputs[0], ()) if operators.of(cast_node.op).casts else ():
            if product.op != "Mul":
                continue
            for name in product.inputs:
                scales = producers.get(name)
                if name == cast_node.outputs[0] or scales is None or scales.op != "Mul" or data not in scales.inputs:
                    continue
                factors = [factor for factor in scales.inputs if factor != data]
                if len(factors) == 1:
                    yield scales, factors[0]


def scale_of_codes(graph: Graph, codes: str) -> tuple[Node, str] | None:
    """Find the node that reads the scale of codes, and the name of that scale; None if there is none.

    Args:
        graph: The graph.
        codes: The tensor of codes.
    """
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    for node in graph.consumers(codes):
        for slot in _slots(node):
            if not slot.output and _name_at(node.inputs, slot.tensor) == codes and _name_at(node.inputs, slot.scale):
                return node, _name_at(node.inputs, slot.scale)
        if operators.of(node.op).sums_codes and codes in node.inputs[1:2]:
            readers = {name: graph.consumers(name) for name in producers}
            return next(_factors(node, producers, readers), None)
    return None


def _runtime_scale(codes: str, producers: Mapping[str, Node]) -> str | None:
    """Return the name of the scale that was chosen at run time together with codes; None without one."""
    node = producers.get(codes)
    while node is not None and (operators.of(node.op).arranges or operators.of(node.op).keeps_values):
        node = producers.get(node.inputs[0])
    return node.outputs[1] if node is not None and operators.of(node.op).gives_scale else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Functions that provide facts about the tensors of a graph.

    Args:
        constant: Returns the elements of a small constant by name; None for other tensors.
        dtype: Returns the logical dtype of a tensor; None if unknown.
        rank: Returns the number of dimensions of a tensor; None if unknown.
    """

    constant: Callable[[str], np.ndarray | None]
    dtype: Callable[[str], str | None]
    rank: Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class _Slot:
    """One quantized operand: its tensor, and the positions of its scale and zero point among the inputs."""

    tensor: int
    scale: int
    zero_point: int
    axis: int | None = None
    output: bool = False


_SLOTS: dict[str, tuple[_Slot, ...]] = {
    "MatMulIntegerToFloat": (_Slot(0, 2, 4), _Slot(1, 3, 5, axis=-1)),
    "DynamicQuantizeMatMul": (_Slot(1, 2, 3, axis=-1),),
    "DynamicQuantizeConv": (_Slot(1, 2, 3, axis=0),),
    "DynamicQuantizeLSTM": (_Slot(1, 8, 9), _Slot(2, 10, 11)),
}
"""Quantized operands of operators that scale their own sums, by operator."""


def _slots(node: Node) -> tuple[_Slot, ...]:
    """Return the quantized operands of a node, and its output if the node states the output's scale."""
    row = operators.of(node.op)
    if row.real is None:
        return _SLOTS.get(node.op, ())
    if row.real.out is None:
        axis = node.attrs.get("axis", 1)
        return (_Slot(0, 1, 2, axis=axis if isinstance(axis, int) else 1, output=row.quantizes),)
    real_row, data = operators.of(row.real.op), operators.coded_inputs(node.op, len(node.inputs))
    axes: tuple[int | None, ...] = (None,) * len(data)
    if real_row.sums is Sums.FILTER:
        axes = (None, 0)
    elif real_row.sums is Sums.MATRIX:
        matrix = (None, 0 if node.attrs.get("transB", 0) else 1)  # an operator with a bias has a 2-D weight
        axes = (-2, -1) if row.bias is None else matrix
    slots = (_Slot(position, position + 1, position + 2, axis=axis) for position, axis in zip(data, axes, strict=True))
    return (_Slot(0, row.real.out, row.real.out + 1, output=True), *slots)


def _name_at(names: Sequence[str], position: int) -> str:
    return names[position] if position < len(names) else ""


def states_scale(node: Node) -> bool:
    """Return whether a node states the scale of the codes that it writes."""
    return any(slot.output for slot in _slots(node))


def quant_facts(
    nodes: Sequence[Node], facts: Facts, known_parameters: Mapping[str, QuantParams] | None = None
) -> dict[str, QuantParams]:
    """Return the quantization parameters of every tensor that holds codes.

    Known parameters take precedence over those that a producer states, and these over those that a consumer states.
    Parameters also apply to tensors on the other side of nodes that only pass codes on.

    Args:
        nodes: In topological order.
        facts: Access to the constants and types of the graph.
        known_parameters: Known parameters, by tensor.
    """
    parameters: dict[str, QuantParams] = dict(known_parameters or {})
    for output in (True, False):
        for node in nodes:
            for slot in _slots(node):
                tensor = _name_at(node.outputs if slot.output else node.inputs, slot.tensor)
                if slot.output == output and tensor and tensor not in parameters:
                    params = _slot_parameters(node, slot, tensor, facts)
                    if params is not None:
                        parameters[tensor] = params
        for node in nodes:
            _propagate(node, parameters, operators.operands(node), node.outputs)
    for weight in weight_scales(nodes, facts.constant):
        params = _weight_parameters(weight, facts)
        if params is not None:
            parameters.setdefault(weight.tensor, params)
    for node in nodes:
        _add_bias_parameters(node, facts, parameters)
    for node in reversed(nodes):
        _propagate(node, parameters, node.outputs, operators.operands(node))
    return parameters


def _slot_parameters(node: Node, slot: _Slot, tensor: str, facts: Facts) -> QuantParams | None:
    scale = facts.constant(_name_at(node.inputs, slot.scale))
    point_name = _name_at(node.inputs, slot.zero_point)
    zero_point = facts.constant(point_name) if point_name else None
    if scale is None or (point_name and zero_point is None):
        return None
    dtype = facts.dtype(point_name) if point_name else facts.dtype(tensor)
    if dtype is None and node.op == "QuantizeLinear":
        dtype = "uint8"
    if dtype is None or not (is_integer(dtype) or is_float(dtype)):
        return None
    block = node.attrs.get("block_size", 0)
    blocks = int(block) if isinstance(block, int) and block > 0 and scale.ndim > 1 else None
    axis = _positive_axis(slot.axis, facts.rank(tensor)) if scale.size > 1 else None
    if scale.size > 1 and (axis is None or (scale.ndim > 1 and blocks is None)):
        return None
    scale = scale if scale.dtype in (np.float32, np.float64) else scale.astype(np.float32)
    points = np.zeros(scale.shape, np.int64) if zero_point is None else zero_point.astype(np.int64)
    if blocks is None:
        scale, points = scale.ravel(), points.ravel()
    if points.size not in (1, scale.size):
        return None
    return QuantParams(dtype=dtype, scale=scale, zero_point=points, axis=axis, block_size=blocks)


def _weight_parameters(weight: WeightScale, facts: Facts) -> QuantParams | None:
    """Return the parameters of a weight that is multiplied with data whose scale is chosen at run time."""
    zero = facts.constant(weight.zero_point) if weight.zero_point else np.zeros(1, np.int64)
    dtype = facts.dtype(weight.zero_point or weight.tensor)
    axis = _positive_axis(weight.axis, facts.rank(weight.tensor)) if weight.scale.size > 1 else None
    if zero is None or dtype is None or not is_integer(dtype) or zero.size not in (1, weight.scale.size):
        return None
    if weight.scale.size > 1 and axis is None:
        return None
    return QuantParams(dtype=dtype, scale=weight.scale, zero_point=zero.astype(np.int64).ravel(), axis=axis)


def _positive_axis(axis: int | None, rank: int | None) -> int | None:
    if axis is None or axis >= 0:
        return axis
    return None if rank is None or rank + axis < 0 else rank + axis


def _add_bias_parameters(node: Node, facts: Facts, parameters: dict[str, QuantParams]) -> None:
    row = operators.of(node.op)
    bias = "" if row.bias is None else _name_at(node.inputs, row.bias)
    if not bias or bias in parameters or (row.real is None and facts.dtype(bias) != "int32"):
        return
    scales: list[np.ndarray | None]
    if row.real is None:  # a node on codes without scale inputs: its tensors have the scales
        factors = [parameters.get(name) for name in node.inputs[:2]]
        scales = [None if factor is None else factor.scale for factor in factors]
    else:
        scales = [facts.constant(_name_at(node.inputs, position + 1)) for position in row.real.data[:2]]
    if scales[0] is None or scales[1] is None:
        return
    product = scales[0].astype(np.float32).ravel() * scales[1].astype(np.float32).ravel()
    axis = None if product.size == 1 else (facts.rank(bias) or 1) - 1
    parameters[bias] = QuantParams(dtype="int32", scale=product, axis=axis)


def _propagate(node: Node, parameters: dict[str, QuantParams], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Give the parameters of the sources to the targets, if the operator moves codes without changing them."""
    row = operators.of(node.op)
    if row.resizes:
        sources = sources[:1]
    params = next((parameters[name] for name in sources if name in parameters), None)
    if not row.passes_codes or params is None:
        return
    if row.resizes and node.attrs.get("mode", "nearest") != "nearest":
        return
    if row.data != _FIRST and any(parameters.get(name, params) != params for name in operators.operands(node)):
        return
    if params.per_channel and (row.permutes_dimensions or not row.keeps_values):
        return
    for target in targets:
        if target and target not in parameters:
            parameters[target] = params


_FIRST = (0,)
"""Positions of the data of an operator that passes on the codes of its first input alone."""
