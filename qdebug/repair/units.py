"""The nodes of a quantized run that can be changed, and what is known of each: weights, results and their cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qdebug.compare.attribute.backend_replay import real_values
from qdebug.compare.attribute.band import sum_terms
from qdebug.compare.attribute.code_spans import folded_clamp, held
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
from qdebug.scales.rescaled import handed_on, hands_on

__all__ = ["ChangeableNode", "ChangeableNodes", "Constants"]

Constants = Mapping[tuple[str, str], np.ndarray]
"""Real values of constants, by the node that reads them and their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeableNode:
    """A node that can be changed.

    Args:
        node: The backend node.
        tensor: The codes that its result is rounded to, by itself or by a quantizer behind it; "" for none.
        rounder: The node that makes them.
        tensors: They, and what nodes that do not compute hand them on as.
        readers: Names of the nodes that compute with these codes.
    """

    node: Node
    tensor: str
    rounder: str
    tensors: frozenset[str]
    readers: frozenset[str]


class ChangeableNodes:
    """Knows the nodes of a run that can be changed.

    Args:
        graphs: Holds the two graphs against each other.
        plan: What is compared.
        places: Samples and steps that are looked at.
    """

    def __init__(self, graphs: GraphCheck, plan: Sequence[PlannedNode], places: Sequence[tuple[int, int]]) -> None:
        self.graphs, self.places = graphs, places
        self._ref, self._be = graphs.replays.ref, graphs.replays.be
        self._by_tensor = {entry.tensor: entry for entry in plan}

    @property
    def run(self) -> Recording:
        """The backend run."""
        return self._be.recording

    @cached_property
    def units(self) -> Mapping[str, ChangeableNode]:
        """The nodes that can be changed, by name."""
        found = {}
        for node in self.run.graph.nodes:
            row = operators.of(node.op)
            result = next(iter(node.outputs), "")
            if row.dequantizes or hands_on(node) or not result or self._be.folds(result):
                continue
            unit = self._unit(node)
            quantizes_result = row.quantizes and self._maker(node) is not None
            if unit is not None and not quantizes_result:
                found[node.name] = unit
        return found

    def unit_of(self, name: str) -> ChangeableNode | None:
        """Return what a node belongs to: itself, or the node whose result it quantizes; None if that is nothing."""
        if name in self.units:
            return self.units[name]
        return next((unit for unit in self.units.values() if unit.rounder == name), None)

    def _maker(self, quantizer: Node) -> Node | None:
        """Return the node whose result a quantizer makes codes of; None where it stands for itself.

        What is only moved before it is its own business, unless it has the codes already that it makes.
        """
        graph, maker = self.run.graph, self.run.graph.producer(quantizer.inputs[0])
        moved = maker if maker is not None and hands_on(maker) else None
        while maker is not None and hands_on(maker):
            maker = graph.producer(maker.inputs[0])
        if maker is not None and operators.of(maker.op).dequantizes:
            same = graph.tensors[maker.inputs[0]].quant == graph.tensors[quantizer.outputs[0]].quant
            return moved if same else None
        return maker if moved is None else None

    def _unit(self, node: Node) -> ChangeableNode | None:
        graph, tensor = self.run.graph, node.outputs[0]
        rounder = node
        for _ in range(3):  # an activation and a quantizer behind it
            quant = graph.tensors[tensor].quant
            if quant is not None and is_integer(quant.dtype):
                tensors = handed_on(graph, tensor)
                return ChangeableNode(
                    node=node, tensor=tensor, rounder=rounder.name, tensors=tensors, readers=self._readers(tensors)
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

    def _readers(self, tensors: frozenset[str]) -> frozenset[str]:
        """Return the nodes that compute with codes, be they dequantized or handed on first."""
        graph, found = self.run.graph, set[str]()
        for codes in tensors:
            for node in graph.consumers(codes):
                behind = graph.consumers(node.outputs[0]) if operators.of(node.op).dequantizes else (node,)
                found.update(each.name for each in behind if not hands_on(each))
        return frozenset(found)

    def weight(self, node: Node) -> str:
        """Return the constant that a product multiplies with; "" if it is no product of one."""
        form, _ = real_form(node, self.run.graph.opset)
        if not operators.plain(form).product:
            return ""
        name = operators.titled_input(form, 1)
        return name if name and self._be.folds(name) and self.run.has(name) else ""

    def bias(self, node: Node) -> str | None:
        """Return the constant that a product adds to each channel; "" if it adds nothing.

        None if it adds what is no constant, or has not one value for each channel.
        """
        form, _ = real_form(node, self.run.graph.opset)
        name = operators.titled_input(form, 2) if operators.of(form.op).bias is not None else ""
        if not name:
            return ""
        if not self._be.folds(name) or not self.run.has(name) or not self.weight(node):
            return None
        shape, weight = shape_of(self.run, name), shape_of(self.run, self.weight(node))
        axis, size = operators.output_axis(form), math.prod(shape)
        fits = size == max(shape, default=0) and (axis is None or size == weight[axis])
        return name if fits else None

    def is_float(self, name: str) -> bool:
        """Tell whether a node computes on real numbers by itself: with a weight in no codes, and a result in none."""
        node = next((each for each in self.run.graph.nodes if each.name == name), None)
        unit = self.units.get(name)
        if node is None or operators.of(node.op).real is not None or (unit is not None and unit.tensor):
            return False
        return not any(name and self.quant_of(name) for name in node.inputs if self._be.folds(name))

    def entry(self, unit: ChangeableNode) -> PlannedNode | None:
        """Return what is compared of a node: its result, or the codes of that; None for nothing."""
        return self._by_tensor.get(unit.node.outputs[0]) or self._by_tensor.get(unit.tensor)

    def reference_node(self, entry: PlannedNode) -> Node | None:
        """Return the reference's node that does what the backend's does; None if that is not known."""
        check = self.graphs.of(entry)
        if check is None:
            return None
        return main_node(check.node, check.segment) or (check.segment.nodes[-1] if check.segment.nodes else None)

    def reference_constants(self, node: Node) -> Constants:
        """Return the reference's weight and bias for a backend node, with what is folded into them; none if unlike."""
        weight = self.weight(node)
        entry = next((self._by_tensor[name] for name in self._behind(node) if name in self._by_tensor), None)
        check = None if entry is None or not weight else self.graphs.of(entry)
        if check is None:
            return {}
        form, _ = real_form(node, self.run.graph.opset)
        main = next((each for each in check.segment.nodes if operators.same_family(each, node)), None)
        if main is None or sum(operators.plain(each).product for each in check.segment.nodes) != 1:
            return {}
        theirs, _ = real_form(main, self._ref.recording.graph.opset)
        try:
            found = self._constants_of(theirs, check.segment.beside(main))
        except NotRecordedError:
            return {}
        if found is None:
            return {}
        values, bias = found
        if bool(form.attrs.get("transB")) != bool(theirs.attrs.get("transB")):
            values = np.swapaxes(values, -1, -2)
        mine = real_values(self.run, weight)
        if mine.shape != values.shape:
            return {}
        made = {(node.name, weight): values}
        name = self.bias(node)
        if name and bias is not None and self.run.load(name).size == bias.size:
            made[node.name, name] = bias.reshape(self.run.load(name).shape)
        return made

    def _constants_of(self, theirs: Node, others: Sequence[Node]) -> tuple[np.ndarray, np.ndarray | None] | None:
        if scales_by_constants(self._ref, others):
            folded = fold(self._ref, theirs, others)
            return None if folded is None else (folded.weight, folded.bias)
        name = operators.titled_input(theirs, 1)
        if not name or not self._ref.folds(name):
            return None
        bias = operators.titled_input(theirs, 2)
        known = real_values(self._ref.recording, bias) if bias and self._ref.recording.has(bias) else None
        return real_values(self._ref.recording, name), known

    def _behind(self, node: Node) -> Iterator[str]:
        yield node.outputs[0]
        unit = self.units.get(node.name)
        if unit is not None and unit.tensor:
            yield unit.tensor

    def codes_behind(self, name: str) -> str:
        """Return the tensor that a node dequantizes to make this one, or this one."""
        maker = self.run.graph.producer(name)
        return maker.inputs[0] if maker is not None and operators.of(maker.op).dequantizes else name

    def quant_of(self, name: str) -> QuantParams | None:
        """Return the quantization of a tensor, be it dequantized by a node of its own; None if it has none."""
        table = self.run.graph.tensors
        return next((table[each].quant for each in (name, self.codes_behind(name)) if each and table[each].quant), None)

    def compared(self, tensor: str) -> PlannedNode | None:
        """Return what a backend tensor is compared with; None if it is not."""
        return self._by_tensor.get(tensor)

    def has_one_scale(self, weight: str) -> bool:
        """Tell whether a weight is in integer codes of one scale."""
        quant = self.quant_of(weight)
        return quant is not None and not quant.per_channel and is_integer(quant.dtype)

    def result_quant(self, unit: ChangeableNode) -> QuantParams | None:
        """Return the codes of a node's result; None if it has none."""
        return self.run.graph.tensors[unit.tensor].quant if unit.tensor else None

    def values(self, unit: ChangeableNode) -> Iterator[np.ndarray]:
        """Yield what the reference has of a result, sample by sample, as far as the codes are to hold it.

        Nothing is yielded of one that is not compared.
        """
        entry = self._by_tensor.get(unit.tensor)
        if entry is None:
            return
        reference = self._ref.recording
        span = folded_clamp(reference, self.run, entry)
        for place in self.places:
            if reference.has(entry.reference_tensor, *place):
                yield held(real_values(reference, entry.reference_tensor, place), span)

    def float_span(self, unit: ChangeableNode) -> tuple[float | None, float | None]:
        """Return the bounds that a result has without its codes: those of a clamp that was left to them."""
        entry = self._by_tensor.get(unit.tensor)
        span = None if entry is None else folded_clamp(self._ref.recording, self.run, entry)
        return span or (None, None)

    @cached_property
    def all_macs(self) -> float:
        """Multiply-adds of all nodes that can be changed, for one sample."""
        return sum(self.macs(unit.node) for unit in self.units.values())

    def macs(self, node: Node) -> float:
        """Return the multiply-adds of a node for one sample, or the elements of what is no product."""
        form, _ = real_form(node, self.run.graph.opset)
        if not operators.plain(form).product or not any(form.outputs[:1]):
            return float(self.elements(node))
        try:
            shapes = {name: shape_of(self.run, name, *self._at(name)) for name in form.inputs if name}
            made = shape_of(self.run, form.outputs[0], *self._at(form.outputs[0]))
        except NotRecordedError:
            return float(self.elements(node))
        return math.prod(made) * max(sum_terms(form, shapes, made) - 1, 1)

    def elements(self, node: Node) -> int:
        """Return the elements of a node's result for one sample; 0 if they are not known."""
        if not any(node.outputs[:1]):
            return 0
        try:
            return math.prod(shape_of(self.run, node.outputs[0], *self._at(node.outputs[0])))
        except NotRecordedError:
            return 0

    def _at(self, name: str) -> tuple[int, int]:
        return (0, 0) if self._be.folds(name) or not self.places else self.places[0]
