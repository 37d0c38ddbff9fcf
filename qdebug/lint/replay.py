"""The model as seen by lint: graph, constants, intervals of tensors, and exact evaluation of its nodes.

Two forms of one network are compared in exact arithmetic: in float64, with quantized tensors rounded to their codes,
ties to even. A different rounding of ties does not count as a difference: values close to a tie are rounded both ways,
and only differences beyond both results count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.align.expand import parts_of
from qdebug.errors import KernelError, QdebugError
from qdebug.model import Graph, Node, QuantParams, Recording, TensorInfo, operators
from qdebug.model.dtypes import is_float, is_integer, logical_name
from qdebug.model.recording import MemoryRecording
from qdebug.model.thresholds.rewrites import REWRITE_FLOAT_MAX_REL
from qdebug.numerics.affine import dequantize, quantize
from qdebug.replay import Arithmetic
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node
from qdebug.replay.run import computes_on_codes, one_thread, run_as_recorded, run_graph

__all__ = [
    "LintModel",
    "Span",
    "clamp_bounds",
    "covers",
    "difference_beyond_rounding",
    "is_coded",
    "nodes_between",
    "span_of",
]

Span = tuple[float, float]
"""The smallest and the largest real value that a tensor can have."""

_UNBOUNDED: Span = (-math.inf, math.inf)
_GRID_SIZE = 4097
"""Number of points at which an elementwise function is sampled to find its extremes."""
_MAX_SAMPLED = 1e4
"""Largest magnitude at which the function is sampled if its input is unbounded."""


def is_coded(quant: QuantParams | None) -> bool:
    """Return whether a quantization represents values by integer codes."""
    return quant is not None and is_integer(quant.dtype)


def span_of(quant: QuantParams) -> Span:
    """Return the smallest and the largest real value of a quantization's codes."""
    low, high = (float("nan") if end is None else float(end) for end in (quant.qmin, quant.qmax))
    real_ends = [quant.scale.astype(np.float64) * (end - quant.zero_point) for end in (low, high)]
    return float(np.min(real_ends)), float(np.max(real_ends))


def covers(outer: Span, inner: Span, slack: float = 0.0) -> bool:
    """Return whether the span `outer` contains `inner`, up to `slack` at each end."""
    return outer[0] <= inner[0] + slack and outer[1] >= inner[1] - slack


def _clamp_span(span: Span, bounds: Span) -> Span:
    """Return a span after clamping its values."""
    low, high = (min(max(end, bounds[0]), bounds[1]) for end in span)
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LintModel:
    """A graph with its constants.

    Args:
        title: Name of the model in messages.
        graph: The graph, with ONNX operators as far as possible.
        recording: Provides the constants, and recorded values if it is a recording.
        raw: Whether nodes without their own scales compute directly on codes, as ONNX defines it.
        copies_codes: Whether nodes that move codes pass them on unchanged, whatever scales are declared, as in
            TensorFlow Lite.
    """

    title: str
    graph: Graph
    recording: Recording
    raw: bool
    copies_codes: bool

    def constant(self, name: str) -> np.ndarray | None:
        """Return the values of a constant, or None if it is not a constant or its values were not kept."""
        is_known = name and self.graph.is_constant(name) and self.recording.has(name)
        return self.recording.load(name) if is_known else None

    def with_graph(self, graph: Graph, constants: Mapping[str, np.ndarray]) -> LintModel:
        """Return the model with a different graph and additional constants."""
        known_constants = {name: array for name in graph.tensors if (array := self.constant(name)) is not None}
        arrays = {(name, 0, 0): array for name, array in {**known_constants, **constants}.items()}
        return replace(self, graph=graph, recording=MemoryRecording(graph, arrays))

    def quant(self, name: str) -> QuantParams | None:
        """Return the quantization of a quantized tensor, or None for other tensors."""
        info = self.graph.tensors.get(name)
        if info is None or info.quant is None or not is_coded(info.quant):
            return None
        return None if info.dtype is not None and is_float(info.dtype) else info.quant

    def grid(self, name: str) -> QuantParams | None:
        """Return the quantization of a tensor, or of the codes that it was dequantized from, or None."""
        for _ in self.graph.nodes:
            quant, node = self.quant(name), self.graph.producer(name)
            if quant is not None or node is None:
                return quant
            row = operators.of(node.op)
            if row.dequantizes:
                return self.declared_quant(node, 0)
            if not (row.arranges or row.keeps_values or (row.passes_codes and not row.clamps)):
                return None
            name = node.inputs[0]
        return None

    def declared_quant(self, node: Node, slot: int) -> QuantParams | None:
        """Return the quantization that a node declares for an operand by the scale among its inputs.

        Args:
            node: A node.
            slot: Position of the operand, or -1 for the output.
        """
        row, graph = operators.of(node.op), self.graph
        if row.converts_codes:
            name, position = (node.outputs[0] if row.quantizes else node.inputs[0]), 1
            is_declared = (slot == -1) == row.quantizes
        elif row.real is not None:
            position = (row.real.out if slot == -1 else slot + 1) or 0
            name = node.outputs[0] if slot == -1 else node.inputs[slot]
            is_declared = position > 0 and (slot == -1 or slot in operators.coded_inputs(node.op, len(node.inputs)))
            is_declared = is_declared and slot != row.bias
        else:
            return None
        scale = self.constant(node.inputs[position]) if is_declared and position < len(node.inputs) else None
        quant = graph.tensors[name].quant if name in graph.tensors else None
        if scale is None:
            return quant if is_declared else None
        zero = self.constant(node.inputs[position + 1]) if position + 1 < len(node.inputs) else None
        dtype = logical_name(zero.dtype) if zero is not None else quant.dtype if quant is not None else "uint8"
        axis = quant.axis if quant is not None and quant.axis is not None else node.attrs.get("axis", 1)
        block = node.attrs.get("block_size") or None
        try:
            return QuantParams(
                dtype=dtype,
                scale=scale,
                zero_point=np.zeros((), np.int64) if zero is None else zero,
                axis=int(str(axis)) if scale.size > 1 else None,
                block_size=None if block is None else int(str(block)),
            )
        except ValueError:
            return quant

    def real(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return the real values of a tensor's stored elements, in float64 unless they are plain integers."""
        quant = self.quant(name)
        if quant is not None and array.dtype.kind in "iu":
            return dequantize(array, quant, double=True)
        return _to_float64(array)

    def run(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Replay all nodes with the interpreter, and return all tensors that could be computed."""
        tensors, known_graph = dict(feed), self.graph
        graph = Graph(
            known_graph.nodes, tensors=self._interpreter_tensors(known_graph.nodes).values(), inputs=known_graph.inputs,
            outputs=known_graph.outputs, opset=known_graph.opset,
        )  # fmt: skip
        with one_thread(), np.errstate(all="ignore"):
            for node in graph.nodes:
                values = {name: self._value(name, tensors) for name in node.inputs if name}
                known_inputs = {name: array for name, array in values.items() if array is not None}
                if len(known_inputs) < len(values):
                    continue
                try:
                    tensors.update(run_as_recorded(graph, node, known_inputs, Arithmetic()))
                except (QdebugError, ValueError, TypeError):
                    continue
        return tensors

    def replay(self, nodes: Sequence[Node], feed: Mapping[str, np.ndarray], output: str) -> np.ndarray:
        """Replay a part of the graph with the interpreter and return one tensor as real values.

        Raises:
            KernelError: A node cannot be computed.
        """
        if output in feed:
            return self.real(output, feed[output])
        part_graph = Graph(
            nodes,
            tensors=self._interpreter_tensors(nodes).values(),
            inputs=tuple(feed),
            outputs=(output,),
            opset=self.graph.opset,
        )
        read_names = {name for node in nodes for name in node.inputs if name}
        constants = {name: array for name in read_names - {*feed} if (array := self.constant(name)) is not None}
        return self.real(output, run_graph(part_graph, feed, constants)[output])

    def _interpreter_tensors(self, nodes: Sequence[Node]) -> dict[str, TensorInfo]:
        """Return tensor facts for the interpreter, without quantization if nodes compute directly on codes.

        The result of a node that passes codes on gets the scale of its input, so that the interpreter passes them on
        too.
        """
        infos = dict(self.graph.tensors)
        converting_nodes = [node for node in nodes if operators.of(node.op).converts_codes]
        if self.raw and all(any(node.inputs[1:]) for node in converting_nodes):
            return {name: replace(info, quant=None) for name, info in infos.items()}
        for node in nodes:
            if self._passes_codes(node) and node.inputs[0] in infos:
                infos[node.outputs[0]] = replace(infos[node.outputs[0]], quant=infos[node.inputs[0]].quant)
        return infos

    def _value(self, name: str, tensors: Mapping[str, np.ndarray]) -> np.ndarray | None:
        return tensors[name] if name in tensors else self.constant(name)

    def compute_exact(
        self, nodes: Sequence[Node], feed: Mapping[str, np.ndarray], output: str, nudge: float = 0.0
    ) -> np.ndarray:
        """Compute a part of the graph in float64 and return one tensor as real values.

        Args:
            nodes: The nodes, in topological order.
            feed: Inputs of the part: codes, or real values.
            output: The tensor to return.
            nudge: Amount added to each value before rounding to codes, as a share of the largest magnitude.

        Raises:
            KernelError: A node cannot be computed.
        """
        tensors = {name: _to_float64(array) for name, array in feed.items()}
        with one_thread(), np.errstate(all="ignore"):
            for node in nodes:
                tensors.update(self._compute_node(node, tensors, nudge))
        return self.real(output, tensors[output])

    def _compute_node(self, node: Node, tensors: Mapping[str, np.ndarray], nudge: float) -> dict[str, np.ndarray]:
        values: dict[str, np.ndarray] = {}
        for name in filter(None, node.inputs):
            array = self._value(name, tensors)
            if array is None:
                raise KernelError(f"{name!r} has no values.")
            values[name] = array
        row, output = operators.of(node.op), node.outputs[0]
        if row.dequantizes:
            quant = self.declared_quant(node, 0)
            return {output: dequantize(values[node.inputs[0]], quant, double=True)}
        if row.quantizes:
            return {
                output: self._round_to_codes(self._read_operand(node, 0, values), self.declared_quant(node, -1), nudge)
            }
        if row.real is not None:
            real_node, opset = real_form(node, self.graph.opset)
            real_operands = {}
            for slot in row.real.positions(len(node.inputs)):
                if slot < len(node.inputs) and node.inputs[slot]:
                    real_operands[node.inputs[slot]] = self._read_operand(node, slot, values)
            result = _run_parts(real_node, real_operands, opset)
            return {output: self._round_to_codes(result[output], self.declared_quant(node, -1), nudge)}
        if not self.raw and not self._passes_codes(node) and computes_on_codes(self.graph, node):
            result = _run_parts(
                node, {name: self.real(name, array) for name, array in values.items()}, self.graph.opset
            )
            return {output: self._round_to_codes(result[output], self.quant(output), nudge)}
        return dict(_run_parts(node, {name: _to_float64(array) for name, array in values.items()}, self.graph.opset))

    def _passes_codes(self, node: Node) -> bool:
        row = operators.of(node.op)
        return self.copies_codes and row.passes_codes and not row.clamps

    def _read_operand(self, node: Node, slot: int, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return an operand as real values, using the scale that the node declares, or else its tensor's."""
        name = node.inputs[slot]
        array, quant = values[name], self.declared_quant(node, slot)
        if array.dtype.kind not in "iu" or operators.of(node.op).quantizes:
            return self.real(name, array)
        if slot == operators.of(node.op).bias:
            quant = self._bias_quant(node, slot) or self.graph.tensors[name].quant
        return dequantize(array, quant, double=True)

    def _bias_quant(self, node: Node, slot: int) -> QuantParams | None:
        """Return the quantization of a bias at the scale of the sums, the product of the operands' scales."""
        first_quant, second_quant = (
            self.declared_quant(node, slot_of_operand)
            for slot_of_operand in operators.coded_inputs(node.op, len(node.inputs))[:2]
        )
        if first_quant is None or second_quant is None:
            return None
        scale = (first_quant.scale.astype(np.float64) * second_quant.scale).ravel() * float(
            str(node.attrs.get("alpha", 1.0))
        )
        return QuantParams(dtype="int32", scale=scale, axis=0 if scale.size > 1 else None) if slot else None

    def _round_to_codes(self, values: np.ndarray, quant: QuantParams | None, nudge: float) -> np.ndarray:
        if quant is None or not is_coded(quant):
            return values
        if nudge and values.size:
            finite_magnitudes = np.abs(values[np.isfinite(values)])
            values = values + nudge * (float(finite_magnitudes.max()) if finite_magnitudes.size else 0.0)
        return quantize(values.astype(np.float64), quant)

    def spans(self, nodes: Iterable[Node], known_spans: Mapping[str, Span]) -> dict[str, Span]:
        """Return the intervals of the tensors that the given nodes compute.

        Args:
            nodes: The nodes, in topological order.
            known_spans: Known intervals of their inputs.
        """
        intervals = dict(known_spans)
        for node in nodes:
            span = self._span_of_result(node, intervals)
            for name in filter(None, node.outputs):
                quant = self.quant(name)
                intervals[name] = span if quant is None or self.copies_codes else _clamp_span(span, span_of(quant))
        return intervals

    def span(self, name: str, known_spans: Mapping[str, Span]) -> Span:
        """Return the interval of a tensor, unbounded if unknown."""
        if name in known_spans:
            return known_spans[name]
        array = self.constant(name)
        if array is not None and array.size and array.dtype.kind in "iuf":
            real_values = self.real(name, array)
            return float(np.min(real_values)), float(np.max(real_values))
        quant = self.quant(name)
        return _UNBOUNDED if quant is None else span_of(quant)

    def _span_of_result(self, node: Node, known_spans: Mapping[str, Span]) -> Span:
        # Interval arithmetic over the parts of a fused node. The result of each part is the input of the next one.
        span: Span = _UNBOUNDED
        for position, part in enumerate(parts_of(node)):
            row = operators.of(part.op)
            data = [name for name in operators.operands(part) if name]
            inputs = [self.span(name, known_spans) for name in data] if not position else [span]
            if (bounds := self.bounds(part)) is not None and inputs:
                span = _clamp_span(inputs[0], bounds)
            elif row.quantizes or row.dequantizes or row.moves or row.keeps_values or row.passes_codes:
                inputs = inputs if row.joins else inputs[:1]
                span = (
                    min((low for low, _ in inputs), default=-math.inf),
                    max((high for _, high in inputs), default=math.inf),
                )
                declared = (
                    self.declared_quant(part, -1)
                    if row.quantizes
                    else self.declared_quant(part, 0)
                    if row.dequantizes
                    else None
                )
                span = span if declared is None or not is_coded(declared) else _clamp_span(span, span_of(declared))
            elif row.elementwise and len(inputs) == 1 and inputs:
                span = _function_span(part, inputs[0], self.graph.opset)
            elif (
                row.real is not None
                and (output_quant := self.declared_quant(part, -1)) is not None
                and is_coded(output_quant)
            ):
                span = span_of(output_quant)
            else:
                span = _UNBOUNDED
        return span

    def bounds(self, node: Node) -> Span | None:
        """Return the interval that a node clamps to, or None if it does not clamp."""
        constants = {name: array for name in node.inputs[1:] if (array := self.constant(name)) is not None}
        quant = self.quant(node.inputs[0]) if node.inputs else None
        if not operators.of(node.op).clamps or (quant is not None and self.raw):
            return None
        return operators.clamp_bounds(node, constants)


def _to_float64(array: np.ndarray) -> np.ndarray:
    """Convert floats to float64, and leave integers and booleans unchanged."""
    if array.dtype.kind in "iub" or not is_float(logical_name(array.dtype)):
        return array
    return np.asarray(array.astype(np.float64))


def _run_parts(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Run a node and its fused activation on real values, in float32 if its kernel does not support float64."""
    tensors = dict(values)
    for part in parts_of(node):
        part_inputs = {name: tensors[name] for name in part.inputs if name and name in tensors}
        try:
            tensors.update(run_node(part, part_inputs, opset))
        except KernelError:
            float32_values = {
                name: value.astype(np.float32) if value.dtype == np.float64 else value
                for name, value in part_inputs.items()
            }
            tensors.update({name: _to_float64(array) for name, array in run_node(part, float32_values, opset).items()})
    return {name: tensors[name] for name in node.outputs if name in tensors}


def _function_span(node: Node, span: Span, opset: Mapping[str, int]) -> Span:
    """Return the interval of an elementwise function's results, by sampling it densely."""
    sampled_ends = [max(span[0], -_MAX_SAMPLED), min(span[1], _MAX_SAMPLED)]
    # Activations are curved within -8..8, which a grid over a long interval may step over.
    grid = np.concatenate(
        [
            np.linspace(sampled_ends[0], sampled_ends[1], _GRID_SIZE),
            np.linspace(max(sampled_ends[0], -8), min(sampled_ends[1], 8), _GRID_SIZE),
        ]
    )
    try:
        values = run_node(replace(node, inputs=node.inputs[:1]), {node.inputs[0]: grid}, opset)[node.outputs[0]]
    except KernelError:
        return _UNBOUNDED
    if not np.all(np.isfinite(values)):
        return _UNBOUNDED
    low, high = float(values.min()), float(values.max())
    is_flat = [values[0] == values[1], values[_GRID_SIZE - 2] == values[_GRID_SIZE - 1]]
    # The function still rises or falls at the end of the interval, so its range may be unbounded.
    if span[0] < -_MAX_SAMPLED and not is_flat[0] and values[0] in (low, high):
        low, high = (-math.inf, high) if values[0] == low else (low, math.inf)
    if span[1] > _MAX_SAMPLED and not is_flat[1] and values[_GRID_SIZE - 1] in (low, high):
        low, high = (-math.inf, high) if values[_GRID_SIZE - 1] == low else (low, math.inf)
    return low, high


def nodes_between(
    graph: Graph, tensor: str, given_tensors: Collection[str], max_nodes: int
) -> tuple[list[Node], set[str]] | None:
    """Return the nodes that compute a tensor from given tensors, and the given tensors that they read.

    Args:
        graph: The graph.
        tensor: The tensor.
        given_tensors: Tensors that are taken as given.
        max_nodes: Maximum number of nodes.

    Returns:
        The nodes in topological order, and the given tensors that they read, including graph inputs. None if there are
            too many nodes.
    """
    nodes: dict[str, Node] = {}
    leaves: set[str] = set()
    pending = [tensor]
    while pending:
        name = pending.pop()
        node = graph.producer(name)
        if (name in given_tensors and name != tensor) or node is None:
            if not graph.is_constant(name):
                leaves.add(name)
            continue
        if node.name not in nodes:
            nodes[node.name] = node
            if len(nodes) > max_nodes:
                return None
            pending += [input_name for input_name in node.inputs if input_name]
    return sorted(nodes.values(), key=lambda node: graph.position(next(filter(None, node.outputs))) or 0), leaves


def difference_beyond_rounding(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return by how much each element differs beyond the rounding of ties, or None if the numbers of elements differ.

    The difference is infinite for an element that is finite on one side only.

    Args:
        before: The result, and the results with values nudged up and down before each rounding.
        after: The same results of the other form.
    """
    shape = before[0].shape
    if any(array.size != before[0].size for array in (*before, *after)):
        return None
    bounds = []
    for results in (before, after):
        stacked_results = np.stack([np.asarray(array, np.float64).reshape(shape) for array in results])
        bounds.append((stacked_results.min(axis=0), stacked_results.max(axis=0)))
    (low_before, high_before), (low_after, high_after) = bounds
    with np.errstate(invalid="ignore"):
        # Positive only where the intervals of nudged results do not overlap.
        distance = np.maximum(low_after - high_before, low_before - high_after)
    finite_magnitudes = np.abs(before[0][np.isfinite(before[0])])
    float_slack = REWRITE_FLOAT_MAX_REL * (float(finite_magnitudes.max()) if finite_magnitudes.size else 0.0)
    excess = np.where(np.isfinite(distance), np.maximum(distance - float_slack, 0.0), 0.0)
    nonfinite_masks = [
        ~np.isfinite(np.stack([np.asarray(array, np.float64).reshape(shape) for array in results]))
        for results in (before, after)
    ]
    is_finite_on_one_side = (nonfinite_masks[0].all(axis=0) & ~nonfinite_masks[1].any(axis=0)) | (
        nonfinite_masks[1].all(axis=0) & ~nonfinite_masks[0].any(axis=0)
    )
    return np.asarray(np.where(is_finite_on_one_side, np.inf, excess))


def clamp_bounds(model: LintModel, nodes: Sequence[Node]) -> Iterator[float]:
    """Yield the real values at which nodes clamp or leave the code range."""
    for node in (part for fused_node in nodes for part in parts_of(fused_node)):
        row = operators.of(node.op)
        declared = model.declared_quant(node, -1) if row.quantizes or row.real is not None else None
        declared = declared or (model.quant(node.outputs[0]) if not row.moves else None)
        for span in (model.bounds(node), None if declared is None or not is_coded(declared) else span_of(declared)):
            yield from (end for end in span or () if math.isfinite(end))
