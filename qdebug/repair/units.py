"""The nodes of a quantized run that can be changed, with their weights, results and costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import sum_terms
from qdebug.compare.attribute.code_spans import clip_in_turn, folded_clamp
from qdebug.compare.attribute.plan import PlannedNode
from qdebug.compare.attribute.rounding import scales_by_constants
from qdebug.compare.attribute.segments import main_node
from qdebug.compare.graph_checks.folded_constants import fold
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.errors import NotRecordedError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_integer
from qdebug.model.recording import shape_of
from qdebug.replay.real_form import real_form
from qdebug.scales.rescaled import passes_codes_on, tensors_with_same_codes

__all__ = ["ChangeableNode", "ChangeableNodes", "Constants"]

Constants = Mapping[tuple[str, str], np.ndarray]
"""Real values of constants, by the node that reads them and their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeableNode:
    """A node that can be changed.

    Args:
        node: The backend node.
        tensor: Tensor with the codes of the node's result, produced by the node itself or by a quantizer after it; ""
            if there are none.
        rounder: Name of the node that produces these codes.
        tensors: All tensors with these codes, including those behind nodes that only move them.
        readers: Names of the nodes that compute with these codes.
    """

    node: Node
    tensor: str
    rounder: str
    tensors: frozenset[str]
    readers: frozenset[str]


class ChangeableNodes:
    """The nodes of a run that can be changed.

    Args:
        graphs: Compares the two graphs.
        plan: The compared nodes.
        places: Samples and steps to use.
    """

    def __init__(self, graphs: GraphCheck, plan: Sequence[PlannedNode], places: Sequence[tuple[int, int]]) -> None:
        self.graphs, self.places = graphs, places
        self._reference_replay, self._backend_replay = graphs.replays.ref, graphs.replays.be
        self._by_tensor = {entry.tensor: entry for entry in plan}
        self._weights: dict[str, str] = {}
        self._biases: dict[str, str | None] = {}

    @property
    def run(self) -> Recording:
        """The backend run."""
        return self._backend_replay.recording

    @cached_property
    def units(self) -> Mapping[str, ChangeableNode]:
        """The changeable nodes, by name."""
        changeable_nodes = {}
        for node in self.run.graph.nodes:
            row = operators.of(node.op)
            result = next(iter(node.outputs), "")
            if row.dequantizes or passes_codes_on(node) or not result or self._backend_replay.folds(result):
                continue
            unit = self._make_unit(node)
            quantizes_result = row.quantizes and self._quantized_node(node) is not None
            if unit is not None and not quantizes_result:
                changeable_nodes[node.name] = unit
        return changeable_nodes

    def unit_of(self, name: str) -> ChangeableNode | None:
        """Return the changeable node with a name, or whose quantizer has this name; None if there is none."""
        if name in self.units:
            return self.units[name]
        return next((unit for unit in self.units.values() if unit.rounder == name), None)

    def _quantized_node(self, quantizer: Node) -> Node | None:
        """Return the node whose result a quantizer rounds to codes, or None if the quantizer counts as a separate node.

        It does if its input comes from a node that only moves values, such as a Reshape. But if that node moves values
        that were dequantized from the same codes, it is returned.
        """
        graph, producer = self.run.graph, self.run.graph.producer(quantizer.inputs[0])
        moving_node = producer if producer is not None and passes_codes_on(producer) else None
        while producer is not None and passes_codes_on(producer):
            producer = graph.producer(producer.inputs[0])
        if producer is not None and operators.of(producer.op).dequantizes:
            has_same_codes = graph.tensors[producer.inputs[0]].quant == graph.tensors[quantizer.outputs[0]].quant
            return moving_node if has_same_codes else None
        return producer if moving_node is None else None

    def _make_unit(self, node: Node) -> ChangeableNode | None:
        graph, tensor = self.run.graph, node.outputs[0]
        rounder = node
        for _ in range(3):  # at most the node, an activation and a quantizer
            quant = graph.tensors[tensor].quant
            if quant is not None and is_integer(quant.dtype):
                tensors = tensors_with_same_codes(graph, tensor)
                return ChangeableNode(
                    node=node,
                    tensor=tensor,
                    rounder=rounder.name,
                    tensors=tensors,
                    readers=self._computing_readers(tensors),
                )
            readers = graph.consumers(tensor)
            if len(readers) != 1 or not (
                operators.of(readers[0].op).quantizes or operators.of(readers[0].op).activation
            ):
                break
            rounder, tensor = readers[0], readers[0].outputs[0]
        if not self.weight(node):
            return None
        return ChangeableNode(node=node, tensor="", rounder="", tensors=frozenset(), readers=frozenset())

    def _computing_readers(self, tensors: frozenset[str]) -> frozenset[str]:
        """Return the names of the nodes that compute with codes, directly or after these are dequantized or moved."""
        graph, names = self.run.graph, set[str]()
        for codes in tensors:
            for node in graph.consumers(codes):
                readers = graph.consumers(node.outputs[0]) if operators.of(node.op).dequantizes else (node,)
                names.update(reader.name for reader in readers if not passes_codes_on(reader))
        return frozenset(names)

    def weight(self, node: Node) -> str:
        """Return the constant factor of a product, or "" if the node is not a product or its weight is not constant."""
        if node.name not in self._weights:
            self._weights[node.name] = self._find_weight(node)
        return self._weights[node.name]

    def _find_weight(self, node: Node) -> str:
        real_node, _ = real_form(node, self.run.graph.opset)
        if not operators.plain(real_node).product:
            return ""
        name = operators.titled_input(real_node, 1)
        return name if name and self._backend_replay.folds(name) and self.run.has(name) else ""

    def bias(self, node: Node) -> str | None:
        """Return the constant that a product adds to each channel, or "" if it adds nothing.

        Return None if it adds something that is not a constant with one value per channel.
        """
        if node.name not in self._biases:
            self._biases[node.name] = self._find_bias(node)
        return self._biases[node.name]

    def _find_bias(self, node: Node) -> str | None:
        real_node, _ = real_form(node, self.run.graph.opset)
        name = operators.titled_input(real_node, 2) if operators.of(real_node.op).bias is not None else ""
        if not name:
            return ""
        if not self._backend_replay.folds(name) or not self.run.has(name) or not self.weight(node):
            return None
        shape, weight = shape_of(self.run, name), shape_of(self.run, self.weight(node))
        axis, size = operators.output_axis(real_node), math.prod(shape)
        has_value_per_channel = size == max(shape, default=0) and (axis is None or size == weight[axis])
        return name if has_value_per_channel else None

    def is_float(self, name: str) -> bool:
        """Return whether a node computes on real numbers, with neither weight nor result in codes."""
        node = next((node for node in self.run.graph.nodes if node.name == name), None)
        unit = self.units.get(name)
        if node is None or operators.of(node.op).real is not None or (unit is not None and unit.tensor):
            return False
        return not any(name and self.quant_of(name) for name in node.inputs if self._backend_replay.folds(name))

    def entry(self, unit: ChangeableNode) -> PlannedNode | None:
        """Return the compared node for a changeable one, by its result or its codes, or None if neither is compared."""
        return self._by_tensor.get(unit.node.outputs[0]) or self._by_tensor.get(unit.tensor)

    def reference_node(self, entry: PlannedNode) -> Node | None:
        """Return the reference's counterpart of a backend node, or None if unknown."""
        check = self.graphs.of(entry)
        if check is None:
            return None
        return main_node(check.node, check.segment) or (check.segment.nodes[-1] if check.segment.nodes else None)

    def reference_constants(self, node: Node) -> Constants:
        """Return the reference's weight and bias for a backend node, with constants folded in; {} if shapes differ."""
        weight = self.weight(node)
        entry = next((self._by_tensor[name] for name in self._result_tensors(node) if name in self._by_tensor), None)
        check = None if entry is None or not weight else self.graphs.of(entry)
        if check is None:
            return {}
        real_node, _ = real_form(node, self.run.graph.opset)
        product_node = next(
            (segment_node for segment_node in check.segment.nodes if operators.same_family(segment_node, node)), None
        )
        if (
            product_node is None
            or sum(operators.plain(segment_node).product for segment_node in check.segment.nodes) != 1
        ):
            return {}
        reference_form, _ = real_form(product_node, self._reference_replay.recording.graph.opset)
        try:
            values_and_bias = self._folded_constants(reference_form, check.segment.nodes_except(product_node))
        except NotRecordedError:
            return {}
        if values_and_bias is None:
            return {}
        values, bias = values_and_bias
        if bool(real_node.attrs.get("transB")) != bool(reference_form.attrs.get("transB")):
            values = np.swapaxes(values, -1, -2)
        own_values = real_values(self.run, weight)
        if own_values.shape != values.shape:
            return {}
        constants = {(node.name, weight): values}
        name = self.bias(node)
        if name and bias is not None and self.run.load(name).size == bias.size:
            constants[node.name, name] = bias.reshape(self.run.load(name).shape)
        return constants

    def _folded_constants(
        self, reference_form: Node, other_nodes: Sequence[Node]
    ) -> tuple[np.ndarray, np.ndarray | None] | None:
        if scales_by_constants(self._reference_replay, other_nodes):
            folded_product = fold(self._reference_replay, reference_form, other_nodes)
            return None if folded_product is None else (folded_product.weight, folded_product.bias)
        name = operators.titled_input(reference_form, 1)
        if not name or not self._reference_replay.folds(name):
            return None
        bias = operators.titled_input(reference_form, 2)
        bias_values = (
            real_values(self._reference_replay.recording, bias)
            if bias and self._reference_replay.recording.has(bias)
            else None
        )
        return real_values(self._reference_replay.recording, name), bias_values

    def _result_tensors(self, node: Node) -> Iterator[str]:
        yield node.outputs[0]
        unit = self.units.get(node.name)
        if unit is not None and unit.tensor:
            yield unit.tensor

    def codes_of(self, name: str) -> str:
        """Return the codes that a tensor was dequantized from, or the tensor itself."""
        producer = self.run.graph.producer(name)
        return producer.inputs[0] if producer is not None and operators.of(producer.op).dequantizes else name

    def quant_of(self, name: str) -> QuantParams | None:
        """Return the quantization of a tensor, or of the codes it was dequantized from, or None."""
        table = self.run.graph.tensors
        return next(
            (table[tensor].quant for tensor in (name, self.codes_of(name)) if tensor and table[tensor].quant), None
        )

    def planned(self, tensor: str) -> PlannedNode | None:
        """Return the compared node of a backend tensor, or None if it is not compared."""
        return self._by_tensor.get(tensor)

    def has_one_scale(self, weight: str) -> bool:
        """Return whether a weight is in integer codes with one scale."""
        quant = self.quant_of(weight)
        return quant is not None and not quant.per_channel and is_integer(quant.dtype)

    def result_quant(self, unit: ChangeableNode) -> QuantParams | None:
        """Return the quantization of a node's result, or None if it has none."""
        return self.run.graph.tensors[unit.tensor].quant if unit.tensor else None

    def values(self, unit: ChangeableNode) -> Iterator[np.ndarray]:
        """Yield the reference's values of a result, sample by sample, or nothing if it is not compared.

        Values are clipped like the backend's if it folded a clamp into the code range.
        """
        entry = self._by_tensor.get(unit.tensor)
        if entry is None:
            return
        reference = self._reference_replay.recording
        span = folded_clamp(reference, self.run, entry)
        for place in self.places:
            if reference.has(entry.reference_tensor, *place):
                yield clip_in_turn(real_values(reference, entry.reference_tensor, place), span)

    def float_span(self, unit: ChangeableNode) -> tuple[float | None, float | None]:
        """Return the bounds of a result in float: those of the clamp that was folded into the code range, if any."""
        entry = self._by_tensor.get(unit.tensor)
        span = None if entry is None else folded_clamp(self._reference_replay.recording, self.run, entry)
        return span or (None, None)

    @cached_property
    def all_macs(self) -> float:
        """Multiply-adds of all changeable nodes, for one sample."""
        return sum(self.macs(unit.node) for unit in self.units.values())

    def macs(self, node: Node) -> float:
        """Return the multiply-adds of a node for one sample, or the number of its elements if it is not a product."""
        real_node, _ = real_form(node, self.run.graph.opset)
        if not operators.plain(real_node).product or not any(real_node.outputs[:1]):
            return float(self.elements(node))
        try:
            shapes = {name: shape_of(self.run, name, *self._first_place(name)) for name in real_node.inputs if name}
            output_shape = shape_of(self.run, real_node.outputs[0], *self._first_place(real_node.outputs[0]))
        except NotRecordedError:
            return float(self.elements(node))
        return math.prod(output_shape) * max(sum_terms(real_node, shapes, output_shape) - 1, 1)

    def elements(self, node: Node) -> int:
        """Return the number of elements of a node's result for one sample, or 0 if unknown."""
        if not any(node.outputs[:1]):
            return 0
        try:
            return math.prod(shape_of(self.run, node.outputs[0], *self._first_place(node.outputs[0])))
        except NotRecordedError:
            return 0

    def _first_place(self, name: str) -> tuple[int, int]:
        return (0, 0) if self._backend_replay.folds(name) or not self.places else self.places[0]
