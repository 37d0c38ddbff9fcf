"""Replays tensors inside fused layers from the tensors recorded around them.

A runtime that fuses nodes outputs only the last result of a layer. The tensors inside are computed here as the graph
states, one operation at a time in float32, so that the last result can be compared with the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from qdebug.errors import KernelError, NotRecordedError
from qdebug.model import Graph, Node, Recording, operators
from qdebug.model.operators import Sums
from qdebug.model.recording import Outline
from qdebug.model.thresholds.explanation import FUSED_MAX_NODES
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.model.view import View
from qdebug.numerics.affine import dequantize
from qdebug.numerics.short_formats import ShortFormat
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node
from qdebug.replay.run import computes_on_codes, run_as_recorded, run_nodes
from qdebug.replay.variant import Arithmetic

__all__ = ["Chain", "WithFused", "makes_codes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The nodes that compute an unrecorded tensor from recorded ones.

    Args:
        nodes: The nodes, in topological order.
        reads: The recorded tensors that they read: inputs, results of other layers, constants.
        unquantized_inputs: The tensor before quantization, by the dequantized tensor that it replaces. Empty if numbers
            are rounded to codes inside the layer.
    """

    nodes: tuple[Node, ...]
    reads: tuple[str, ...]
    unquantized_inputs: Mapping[str, str]

    @property
    def makes_codes(self) -> bool:
        """Whether any node quantizes."""
        return any(map(makes_codes, self.nodes))

    @property
    def has_real_sums(self) -> bool:
        """Whether any node sums many numbers, which backends may do in a different order."""
        rows = [operators.plain(node) for node in self.nodes]
        return any(row.sums is not None and row.sums is not Sums.OPERANDS for row in rows)


def makes_codes(node: Node) -> bool:
    """Return whether a node rounds its input to codes."""
    row = operators.plain(node)
    return row.quantizes or row.unit == "quantize"


class WithFused(View):
    """A recording that also provides tensors inside fused layers, computed from recorded ones.

    Args:
        recording: The recording.
        arithmetic: The arithmetic of quantized nodes inside layers.
        rounded: Whether a quantization inside a layer rounds to codes. If not, real numbers pass through it unchanged.
    """

    def __init__(self, recording: Recording, arithmetic: Arithmetic | None = None, *, rounded: bool = True) -> None:
        super().__init__(recording)
        self._rounded = rounded
        self._arithmetic = arithmetic or Arithmetic()
        self._chains: dict[str, Chain | None] = {}
        self._node_order = {node.name: place for place, node in enumerate(recording.graph.nodes)}
        self._last: tuple[tuple[str, int, int], np.ndarray] | None = None

    def with_values(self, values: Mapping[str, np.ndarray]) -> WithFused:
        """Return this recording with the values of some recorded tensors replaced, the same in all samples."""
        return WithFused(View(self._recording, constants=values), self._arithmetic, rounded=self._rounded)

    def with_nodes(
        self, nodes: Mapping[str, Sequence[Node]], constants: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> WithFused:
        """Return this recording with some nodes of its graph replaced.

        Args:
            nodes: By name of a node, the nodes that replace it and compute its outputs.
            constants: Values of further tensors that these read.
        """
        graph = self.graph
        changed = Graph(
            [each for node in graph.nodes for each in nodes.get(node.name, (node,))],
            tensors=graph.tensors.values(),
            inputs=graph.inputs,
            outputs=graph.outputs,
            opset=graph.opset,
        )
        return WithFused(
            View(self._recording, graph=changed, constants=constants), self._arithmetic, rounded=self._rounded
        )

    def chain(self, tensor: str) -> Chain | None:
        """Return the nodes that compute an unrecorded tensor, or None if it was recorded or cannot be computed."""
        if tensor not in self._chains:
            self._chains[tensor] = self._find_chain(tensor)
        return self._chains[tensor]

    def _find_chain(self, tensor: str) -> Chain | None:
        graph, nodes = self.graph, dict[str, Node]()
        reads, unquantized_inputs = dict[str, None](), dict[str, str]()
        waiting = [tensor]
        while waiting:
            name = waiting.pop()
            if name in reads or name in unquantized_inputs:
                continue
            if self._is_recorded(name):
                reads[name] = None
                continue
            unquantized = None if self._rounded else self._tensor_before_codes(name)
            if unquantized is not None:
                unquantized_inputs[name] = unquantized
                waiting.append(unquantized)
                continue
            node = graph.producer(name)
            if node is None or len(nodes) >= FUSED_MAX_NODES or not has_kernel(node.op, node.domain):
                return None
            if node.name not in nodes:
                nodes[node.name] = node
                waiting += [each for each in node.inputs if each]
        if not nodes:
            return None
        order = sorted(nodes.values(), key=lambda node: self._node_order[node.name])
        return Chain(nodes=tuple(order), reads=tuple(reads), unquantized_inputs=unquantized_inputs)

    def _tensor_before_codes(self, tensor: str) -> str | None:
        """Return the unquantized tensor that was quantized inside a layer and dequantized to a given tensor, or None.

        A dequantization is one operator, or a cast, a subtraction of the zero point and a product with the scale.
        """
        node, passed_kinds = self.graph.producer(tensor), list[str]()
        while node is not None and not self._is_recorded(node.outputs[0]) and any(node.inputs[:1]):
            row = operators.plain(node)
            if makes_codes(node):
                return node.inputs[0] if passed_kinds and passed_kinds[-1] in ("cast", "dequantize") else None
            has_constant = len(node.inputs) == 2 and self.graph.is_constant(node.inputs[1])
            if row.dequantizes and not passed_kinds:
                passed_kinds.append("dequantize")
            elif row.casts:
                passed_kinds.append("cast")
            elif has_constant and row.neutral == 1 and not passed_kinds:
                passed_kinds.append("product")
            elif has_constant and row.adds and passed_kinds == ["product"]:
                passed_kinds.append("difference")
            else:
                return None
            node = self.graph.producer(node.inputs[0])
        return None

    def _is_recorded(self, name: str) -> bool:
        return any(self._recording.has(name, *place) for place in self._recording.places(name))

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with values of a tensor, or of any tensor, in order."""
        chain = None if tensor is None else self.chain(tensor)
        if chain is None or tensor is None:
            return super().places(tensor)
        varying = next((name for name in chain.reads if not self.graph.is_constant(name)), None)
        return tuple(place for place in super().places(varying) if self.has(tensor, *place))

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether there are values of a tensor for a sample and step."""
        chain = self.chain(tensor)
        if chain is None:
            return super().has(tensor, sample, step)
        return all(super(WithFused, self).has(name, sample, step) for name in chain.reads)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the elements, read-only.

        Raises:
            KernelError: A node inside a layer cannot be replayed.
            RecordingError: No values are kept under this name, sample and step.
        """
        chain = self.chain(tensor)
        if chain is None:
            return super().load(tensor, sample, step)
        key = tensor, sample, step
        if self._last is None or self._last[0] != key:
            self._last = key, self._compute(chain, tensor, sample, step)
        return self._last[1]

    def rounding_norm(self, node: Node, sample: int, step: int) -> float:
        """Return a bound for the norm of the float32 rounding error of a node and the nodes before it in its layer."""
        largest, count = 0.0, 1
        for name in node.inputs:
            chain = self.chain(name) if name else None
            if chain is not None:
                count += len(chain.nodes)
                inner_tensors = [
                    each for inner in chain.nodes for each in inner.outputs if each and self.chain(each) is not None
                ]
                values = [
                    dequantize(self.load(each, sample, step), self.graph.tensors[each].quant) for each in inner_tensors
                ]
                largest = max([largest, *(float(np.linalg.norm(each.astype(np.float64))) for each in values)])
        return count * FLOAT32_UNIT_ROUNDOFF * largest

    def change_by_rounding(self, node: Node, sample: int, step: int, short: ShortFormat) -> float:
        """Return the norm by which a node's result changes if all tensors inside its layer are rounded to a format."""
        names, output = dict.fromkeys(filter(None, node.inputs)), node.outputs[0]
        values = {name: self.load(name, sample, step) for name in names}
        rounded_values = dict(values)
        for name in names:
            chain = self.chain(name)
            if chain is not None:
                rounded_values[name] = self._compute(chain, name, sample, step, short)
        exact, rounded = (self.run(node, each)[output].astype(np.float64) for each in (values, rounded_values))
        return float(np.linalg.norm(exact - rounded))

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and hash of recorded values, or None for values that were not recorded."""
        return None if self.chain(tensor) is not None else self._recording.outline(tensor, sample, step)

    def _compute(
        self, chain: Chain, tensor: str, sample: int, step: int, short: ShortFormat | None = None
    ) -> np.ndarray:
        """Compute a tensor inside a layer. With a short format, each node's real result is rounded to it."""
        nodes = [self._with_unquantized_inputs(node, chain.unquantized_inputs) for node in chain.nodes]
        target = chain.unquantized_inputs.get(tensor, tensor)

        def run(node: Node, computed_tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            names = dict.fromkeys(filter(None, node.inputs))
            values = {
                name: computed_tensors[name] if name in computed_tensors else self._recording.load(name, sample, step)
                for name in names
            }
            outputs = self.run(node, values)
            if short is None:
                return outputs
            return {name: short.rounded(each) if each.dtype == np.float32 else each for name, each in outputs.items()}

        with recorded_limits(self._recording, (sample, step)):
            result = run_nodes(nodes, (target,), run).get(target)
        if result is None:
            raise NotRecordedError(f"Tensor {tensor!r} was not recorded, and no node computes it.")
        result.flags.writeable = False
        return result

    @staticmethod
    def _with_unquantized_inputs(node: Node, unquantized_inputs: Mapping[str, str]) -> Node:
        """Return a node that reads tensors as they were before quantization inside the layer."""
        return replace(node, inputs=tuple(unquantized_inputs.get(name, name) for name in node.inputs))

    def run(self, node: Node, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Compute a node: on codes if it is quantized, else on real numbers.

        Sums over dequantized inputs are computed in float64 and then rounded to float32.

        Args:
            node: The node.
            values: Its inputs as stored.

        Returns:
            Its outputs by name.

        Raises:
            KernelError: It cannot be replayed.
        """
        graph, row = self.graph, operators.plain(node)
        if row.converts_codes or computes_on_codes(graph, node, self._arithmetic):
            return run_as_recorded(graph, node, values, self._arithmetic)
        out = graph.tensors.get(node.outputs[0])
        output_quant = None if out is None else out.quant
        first = graph.tensors.get(next(iter(node.inputs), ""))
        passes_codes_on = output_quant is not None and first is not None and output_quant == first.quant
        if output_quant is not None and not passes_codes_on:
            raise KernelError(f"Node {node.name!r} ({node.op}) returns codes, but its input is not quantized.")
        keeps_codes = row.takes_codes or row.casts or passes_codes_on
        quants = {name: None if keeps_codes else graph.tensors[name].quant for name in values}
        needs_float64 = row.sums not in (None, Sums.OPERANDS) and any(quant is not None for quant in quants.values())
        real_inputs = {name: dequantize(array, quants[name]) for name, array in values.items()}
        if needs_float64:
            real_inputs = {
                name: array.astype(np.float64) if array.dtype == np.float32 else array
                for name, array in real_inputs.items()
            }
        form, opset = real_form(node, graph.opset)
        outputs = run_node(form, {name: real_inputs[name] for name in form.inputs if name}, opset)
        return {
            name: array.astype(np.float32) if needs_float64 and array.dtype == np.float64 else array
            for name, array in outputs.items()
        }
