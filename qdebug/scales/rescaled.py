"""A recording in whose graph one tensor has a different scale, in all nodes that write, read or pass on its codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from qdebug.model import Graph, Node, QuantParams, Recording, Role, TensorInfo, operators
from qdebug.model.view import View
from qdebug.scales.flags import coded_quant

__all__ = ["RescaledRecording", "passes_codes_on", "tensors_with_same_codes"]


class RescaledRecording(View):
    """A recording in whose graph one tensor has a different scale. A bias that depends on it is requantized.

    Args:
        recording: The recording, with its constants.
        tensor: A quantized tensor with one scale. Tensors to or from which nodes only pass its codes change with it.
        quant: The new scale and zero point.
    """

    def __init__(self, recording: Recording, tensor: str, quant: QuantParams) -> None:
        new_constants: dict[str, np.ndarray] = {}
        graph = _rescale_graph(recording, tensors_with_same_codes(recording.graph, tensor), quant, new_constants)
        super().__init__(recording, graph=graph, constants=new_constants)

    @property
    def names(self) -> list[str]:
        """Names of the tensors, including new constants."""
        return [*super().names, *self._constants]


def tensors_with_same_codes(graph: Graph, tensor: str) -> frozenset[str]:
    """Return a tensor, and all tensors with the same scale to or from which nodes only pass its codes."""
    quant, tensors = coded_quant(graph, tensor), {tensor}
    pending = [tensor]
    while pending:
        name = pending.pop()
        for neighbour in (*_codes_passed_to(graph, name), *_codes_passed_from(graph, name)):
            if neighbour not in tensors and coded_quant(graph, neighbour) == quant:
                tensors.add(neighbour)
                pending.append(neighbour)
    return frozenset(tensors)


def _codes_passed_to(graph: Graph, codes: str) -> Iterator[str]:
    """Yield the tensors to which readers pass codes on, directly or between DequantizeLinear and QuantizeLinear."""
    for node in graph.consumers(codes):
        if passes_codes_on(node) and node.inputs[0] == codes:
            yield from node.outputs[:1]
        if not operators.of(node.op).dequantizes:
            continue
        for moving_node in graph.consumers(node.outputs[0]):
            if passes_codes_on(moving_node):
                next_nodes = graph.consumers(moving_node.outputs[0])
                yield from (
                    quantize_node.outputs[0] for quantize_node in next_nodes if operators.of(quantize_node.op).quantizes
                )


def _codes_passed_from(graph: Graph, codes: str) -> Iterator[str]:
    """Yield the tensor from which codes were passed on, directly or between DequantizeLinear and QuantizeLinear."""
    node = graph.producer(codes)
    if node is None:
        return
    if passes_codes_on(node):
        yield from node.inputs[:1]
    if not operators.of(node.op).quantizes:
        return
    moving_node = graph.producer(node.inputs[0])
    dequantize_node = (
        graph.producer(moving_node.inputs[0]) if moving_node is not None and passes_codes_on(moving_node) else None
    )
    if dequantize_node is not None and operators.of(dequantize_node.op).dequantizes:
        yield dequantize_node.inputs[0]


def passes_codes_on(node: Node) -> bool:
    """Return whether a node only moves or selects codes, like Reshape or MaxPool."""
    row = operators.of(node.op)
    return (row.moves or row.selects) and row.real is None and not row.converts_codes and not row.joins


def _rescale_graph(
    recording: Recording, tensors: frozenset[str], quant: QuantParams, new_constants: dict[str, np.ndarray]
) -> Graph:
    """Return the graph with a different scale of some tensors. The new constants are added to `new_constants`."""
    graph = recording.graph
    first_tensor = min(tensors)
    names = f"{first_tensor} trial scale", f"{first_tensor} trial zero point"
    infos = dict(graph.tensors)
    nodes = []
    for node in graph.nodes:
        inputs = list(node.inputs)
        for slot in dict.fromkeys(_scale_slots(node, tensors)):
            zero_point = inputs[slot + 1] if slot + 1 < len(inputs) else ""
            dtype = recording.load(zero_point).dtype if zero_point else np.dtype(quant.dtype)
            old_scale = recording.load(inputs[slot])
            new_constants.setdefault(names[0], np.full(old_scale.shape, quant.scale.reshape(-1)[0], old_scale.dtype))
            new_constants.setdefault(names[1], np.full(old_scale.shape, quant.zero_point.reshape(-1)[0]).astype(dtype))
            if slot + 1 == len(inputs):
                inputs.append("")
            inputs[slot], inputs[slot + 1] = names
            if node.inputs[0] in tensors and slot == 1:
                _requantize_bias(recording, node, inputs, quant, new_constants)
        nodes.append(node if tuple(inputs) == node.inputs else replace(node, inputs=tuple(inputs)))
    for name in tensors:
        infos[name] = replace(infos[name], quant=quant)
    for name in new_constants:
        infos[name] = TensorInfo(name=name, role=Role.CONSTANT)
    return Graph(
        nodes,
        tensors=infos.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def _scale_slots(node: Node, tensors: frozenset[str]) -> Iterator[int]:
    """Yield the slots of a node's inputs that are scales of the given tensors. A zero point follows each scale."""
    row = operators.of(node.op)
    count = len(node.inputs)
    if row.quantizes and node.outputs[0] in tensors and count > 1:
        yield 1
    if row.dequantizes and node.inputs[0] in tensors and count > 1:
        yield 1
    if row.real is None:
        return
    for position in operators.coded_inputs(node.op, count):
        if position != row.bias and node.inputs[position] in tensors:
            yield position + 1
    if row.real.out is not None and node.outputs[0] in tensors and row.real.out < count:
        yield row.real.out


def _requantize_bias(
    recording: Recording, node: Node, inputs: list[str], quant: QuantParams, new_constants: dict[str, np.ndarray]
) -> None:
    """Requantize the bias of a node to the new scale of the sums, input scale x weight scale."""
    row = operators.of(node.op)
    if row.bias is None or row.real is None or row.bias >= len(node.inputs) or not node.inputs[row.bias]:
        return
    codes = recording.load(node.inputs[row.bias])
    if codes.dtype.kind not in "iu":
        return
    old_scale = recording.load(node.inputs[1]).astype(np.float64).reshape(-1)[0]
    ratio = old_scale / float(quant.scale.reshape(-1)[0])
    info = np.iinfo(codes.dtype)
    name = f"{node.inputs[row.bias]} of {node.name} trial"
    new_constants[name] = np.clip(np.rint(codes.astype(np.float64) * ratio), info.min, info.max).astype(codes.dtype)
    inputs[row.bias] = name
