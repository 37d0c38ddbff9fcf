"""Determines which tensors of a graph hold the same real numbers, and which depend only on constants."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np

from qdebug.compare.align.expand import expand_fused_nodes, has_unknown_inputs
from qdebug.compare.align.undeclared_quantization import computes_with_codes, has_loosely_described_nodes
from qdebug.model import Graph, Node, Recording, Role, operators
from qdebug.model.dtypes import is_float
from qdebug.model.operators import is_block_transpose, with_onnx_op
from qdebug.model.recording import shape_of
from qdebug.model.thresholds.alignment import NEUTRAL_CONSTANT_MAX_ELEMENTS, SHARED_CONSTANT_MAX_ELEMENTS
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form

__all__ = ["IndexedRecording", "has_same_shape", "tensor_order"]


class IndexedRecording:
    """A recording with facts about each tensor that follow from its graph.

    Tensors are grouped by the real numbers they stand for: a tensor, its codes and the dequantized codes form one
    class. Its root is the member nearest to the graph's input. Quantization does not split a class, because codes
    represent the same numbers.

    Args:
        recording: The recording.
        graph: Its graph, possibly with fused activations and sums as separate nodes.
        neutral: Nodes whose constants have no effect (times 1, plus 0, full slices), with the tensor they pass on.

    Attributes:
        recording: The recording.
        graph: The graph.
        recorded: Names of recorded tensors that do not depend on constants alone.
    """

    def __init__(self, recording: Recording, graph: Graph, neutral: Mapping[str, str]) -> None:
        self.recording, self.graph, self._neutral = recording, graph, neutral
        self._root: dict[str, str] = {}  # root by tensor, for all members but the root
        self._classes: dict[str, list[str]] = {}  # classes of more than one tensor, by root
        self._readers: dict[str, tuple[Node, ...]] = {}  # readers of such classes, filled on demand
        self._coded_forms: dict[str, tuple[str, ...]] = {}  # filled on demand
        # for each transposed tensor, the tensor before the Transposes and the combined permutation
        self._transposed: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._restored: dict[str, str] = {}  # by Transpose: the tensor whose order it restores
        folded = {name for name, info in graph.tensors.items() if info.role is Role.CONSTANT}
        folded -= {name for name in folded if graph.producer(name) is not None}
        self._folded, self._shapes = folded, set[str]()
        self._through_codes = {name for name, info in graph.tensors.items() if info.quant is not None}
        for node in graph.nodes:
            self._classify_outputs(node)
            self._group(node)
        self._members = {root: tuple(members) for root, members in self._classes.items()}
        self.recorded = frozenset([name for name in recording.names if name not in folded])

    @classmethod
    def of(cls, recording: Recording) -> IndexedRecording:
        """Index a recording by its graph."""
        return cls(recording, recording.graph, _neutral_nodes(recording))

    def expanded(self) -> IndexedRecording:
        """Return the index of the graph with fused nodes expanded, or itself if there are none."""
        graph = expand_fused_nodes(self.graph)
        return self if graph is self.graph else IndexedRecording(self.recording, graph, self._neutral)

    def read_through(self, recording: Recording) -> IndexedRecording:
        """Return the same index that reads its values from another recording, which wraps this one."""
        duplicate = copy(self)
        duplicate.recording = recording
        return duplicate

    @cached_property
    def unused_tensors(self) -> frozenset[str]:
        """Tensors that no graph output depends on; empty if the inputs of any node are unknown."""
        graph = self.recording.graph
        if not graph.outputs or any(map(has_unknown_inputs, graph.nodes)):
            return frozenset()
        used = set(graph.outputs)
        for node in reversed(graph.nodes):
            if not any(node.outputs) or not used.isdisjoint(node.outputs):
                used.update(filter(None, node.inputs))
        return frozenset(name for node in graph.nodes for name in node.outputs if name and name not in used)

    @cached_property
    def reads_undeclared_codes(self) -> bool:
        """Whether nodes may read codes that were not declared."""
        return has_loosely_described_nodes(self.recording.graph) and computes_with_codes(self.recording)

    def values(self, tensor: str) -> np.ndarray:
        """Return the real values of a recorded tensor as float64, or the codes if their scale is unknown."""
        return np.asarray(dequantize(self.recording.load(tensor), self.graph.tensors[tensor].quant), np.float64)

    def has(self, tensor: str) -> bool:
        """Return whether the values of a tensor were recorded."""
        return self.recording.has(tensor)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Return the shape of a recorded tensor."""
        return shape_of(self.recording, tensor)

    def size(self, tensor: str) -> int:
        """Return how many elements a recorded tensor has."""
        return math.prod(self.shape(tensor))

    def _classify_outputs(self, node: Node) -> None:
        """Record whether a node's outputs depend only on constants, or only on shapes."""
        folded, shapes = self._folded, self._shapes
        fed = [tensor for tensor in node.inputs if tensor]
        outputs = [tensor for tensor in node.outputs if tensor]
        row = operators.named(node.op)
        if (fed or row.constant) and folded.issuperset(fed):
            folded.update(outputs)
        elif row.counts is operators.Count.EXTENTS or (
            not shapes.isdisjoint(fed) and all(t in shapes or t in folded for t in fed)
        ):
            shapes.update(outputs)

    def _group(self, node: Node) -> None:
        """Add an output that is only passed on to the class of its input."""
        row = operators.of(node.op)
        if row.transposes:
            self._follow_transpose(node)
        source = self.passed_on_input(node)
        if source in self._transposed and (row.keeps_values or row.casts):
            self._transposed[node.outputs[0]] = self._transposed[source]
        if source and node.outputs and node.outputs[0]:
            first = self._root.get(source, source)
            self._root[node.outputs[0]] = first
            self._classes.setdefault(first, [first]).append(node.outputs[0])
        if row.dequantizes or source in self._through_codes:
            self._through_codes.update(filter(None, node.outputs))

    def _follow_transpose(self, node: Node) -> None:
        """Combine a Transpose with the Transposes before it, which may cancel out."""
        perm = node.attrs.get("perm")
        if not isinstance(perm, tuple) or not (node.inputs and node.inputs[0] and node.outputs[0]):
            return
        permutation = tuple(axis for axis in perm if isinstance(axis, int))
        start, earlier = self._transposed.get(node.inputs[0], (node.inputs[0], tuple(range(len(permutation)))))
        if len(earlier) != len(permutation):
            return
        order = tuple(earlier[axis] for axis in permutation)
        if order == tuple(range(len(order))):
            self._restored[node.name] = start
        else:
            self._transposed[node.outputs[0]] = start, order

    def is_after_codes(self, tensor: str) -> bool:
        """Return whether a tensor was quantized: it depends on codes or was dequantized from them."""
        return tensor in self._through_codes

    def forms_after_codes(self, tensor: str) -> tuple[str, ...]:
        """Return the first codes and the first dequantized tensor of a class.

        Recorded tensors are preferred. If the class has only one of the two, it is returned twice; if it has neither,
        the result is empty.
        """
        root = self.root(tensor)
        if root not in self._coded_forms:
            after = [name for name in self.members(root) if name in self._through_codes]
            candidates = [name for name in after if name in self.recorded] or after
            coded = [self.graph.tensors[name].quant is not None for name in candidates]
            forms = (candidates[coded.index(kind) if kind in coded else 0] for kind in (True, False) if candidates)
            self._coded_forms[root] = tuple(forms)
        return self._coded_forms[root]

    def passed_on_input(self, node: Node) -> str | None:
        """Return the tensor whose real numbers a node passes on as its first output, or None if there is none."""
        row = operators.of(node.op)
        if row.keeps_values or row.arranges or row.casts:
            if node.name in self._restored:
                return self._restored[node.name]
            if is_block_transpose(node):
                return None
            source = node.inputs[0] if node.inputs else ""
            if source and (row.keeps_values or self._changes_format(node) or self.changes_layout(node)):
                return source
        return self._neutral.get(node.name)

    def changes_layout(self, node: Node) -> bool:
        """Return whether a node, inserted by a runtime, only changes the layout of a tensor of the source model."""
        if not operators.of(node.op).arranges or not (
            node.inputs and node.inputs[0] and node.outputs and node.outputs[0]
        ):
            return False
        before, after = (self.graph.tensors[name] for name in (node.inputs[0], node.outputs[0]))
        if before.stands_for is None and after.stands_for is None:
            return False
        return (before.stands_for or before.name) == (after.stands_for or after.name)

    def _changes_format(self, node: Node) -> bool:
        """Return whether a node only casts between float formats, or to the format its input already has."""
        if not operators.of(node.op).casts or not (node.outputs and node.outputs[0]):
            return False
        before, after = (self.graph.tensors[name].dtype for name in (node.inputs[0], node.outputs[0]))
        if before is None or after is None:
            return False
        return before == after or (is_float(before) and is_float(after))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Value numbers of all tensors."""
        number_of: dict[Hashable, int] = {}
        numbers: dict[str, int] = {}
        for name in self.graph.tensors:
            if self.graph.producer(name) is None:
                value = _constant_key(self.recording, name) if name in self._folded else None
                numbers[name] = number_of.setdefault(name if value is None else ("constant", value), len(number_of))
        for node in self.graph.nodes:
            input_numbers = tuple(numbers.get(self.root(name), -1) for name in node.inputs)
            computation = (
                node.op,
                node.domain,
                _attrs_key(node),
                node.name if has_unknown_inputs(node) else input_numbers,
            )
            for slot, tensor in enumerate(node.outputs):
                if tensor:
                    numbers[tensor] = number_of.setdefault((*computation, slot), len(number_of))
        return numbers

    def number(self, tensor: str) -> int:
        """Return a number shared by tensors that the same operators compute from the same inputs (value numbering).

        All members of a class share the number, and so do small constants with equal values.
        """
        return self._numbers.get(self.root(tensor), -1)

    def forget_numbers(self) -> None:
        """Free the value numbers. `number` computes them again."""
        self.__dict__.pop("_numbers", None)

    def hold_same_numbers(self, first: Sequence[str], second: Sequence[str], *, in_order: bool = True) -> bool:
        """Return whether two lists of tensors hold the same real numbers, in the same order or in any order.

        Repeated computations of the same inputs count as one: an optimizer keeps only one.
        """
        if len(first) != len(second):
            return False
        arranged = list if in_order else sorted
        first_roots, second_roots = ([self.root(name) for name in names] for names in (first, second))
        if first_roots == second_roots or (not in_order and arranged(first_roots) == arranged(second_roots)):
            return True
        numbers = ([self.number(name) for name in names] for names in (first_roots, second_roots))
        return arranged(next(numbers)) == arranged(next(numbers))

    def root(self, tensor: str) -> str:
        """Return the first tensor that holds the same real numbers, possibly the tensor itself."""
        return self._root.get(tensor, tensor)

    def members(self, tensor: str) -> tuple[str, ...]:
        """Return all members of a tensor's class, in topological order."""
        root = self._root.get(tensor, tensor)
        return self._members.get(root, (root,))

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """Return the nodes that read any member of a tensor's class and do more than pass it on."""
        root = self._root.get(tensor, tensor)
        if root not in self._members:
            return tuple([node for node in self.graph.consumers(root) if self.passed_on_input(node) is None])
        if root not in self._readers:
            readers = (node for member in self._members[root] for node in self.graph.consumers(member))
            self._readers[root] = tuple(
                {node.name: node for node in readers if self.passed_on_input(node) is None}.values()
            )
        return self._readers[root]

    def folds(self, tensor: str) -> bool:
        """Return whether a tensor depends only on constants."""
        return tensor in self._folded

    def depends_on_shapes(self, tensor: str) -> bool:
        """Return whether a tensor depends on the shapes of other tensors, but not on their values."""
        return tensor in self._shapes

    def data_inputs(self, node: Node) -> tuple[str, ...]:
        """Return a node's inputs that depend on the network's input, or its shape inputs if there are no others."""
        free, folded = node.inputs, self._folded
        if "" in free or not folded.isdisjoint(free):
            free = tuple([tensor for tensor in free if tensor and tensor not in folded])
        if not self._shapes:
            return free
        return tuple([tensor for tensor in free if tensor not in self._shapes]) or free


def _attrs_key(node: Node) -> Hashable:
    return tuple((name, value if isinstance(value, Hashable) else repr(value)) for name, value in node.attrs.items())


def _constant_key(recording: Recording, name: str) -> Hashable:
    """Return a key that is equal for small constants of equal values, or None for other tensors."""
    info = recording.graph.tensors.get(name)
    if info is None:  # the tensors between the parts of an expanded node were not recorded
        return None
    shape = info.shape or ()
    if math.prod(extent or 1 for extent in shape) > SHARED_CONSTANT_MAX_ELEMENTS or not recording.has(name):
        return None
    outline = recording.outline(name)
    if outline is not None:
        return outline if math.prod(outline.shape) <= SHARED_CONSTANT_MAX_ELEMENTS else None
    values = recording.load(name)
    return (str(values.dtype), values.shape, values.tobytes()) if values.size <= SHARED_CONSTANT_MAX_ELEMENTS else None


_ENDLESS = 2**31 - 1
"""Smallest end of a Slice that means "to the end". Exporters write the largest 32-bit or 64-bit integer."""


def _returns_whole_input(recording: Recording, node: Node, loaded: dict[Hashable, np.ndarray]) -> bool:
    """Return whether a Slice returns its whole input: from 0 to the end, whatever the shape.

    Args:
        recording: The run.
        node: The Slice.
        loaded: Cache of constants, by key.
    """
    for slot, name in ((1, "starts"), (4, "steps"), (2, "ends")):
        tensor = node.inputs[slot] if len(node.inputs) > slot else ""
        if tensor and (recording.graph.tensors[tensor].role is not Role.CONSTANT or not recording.has(tensor)):
            return False
        if tensor:
            key = recording.outline(tensor) or tensor
            values = loaded.get(key)
            if values is None:
                values = loaded[key] = recording.load(tensor)
        else:
            values = np.asarray(node.attrs.get(name, 1 if name == "steps" else ()))
        fits = values >= _ENDLESS if name == "ends" else values == (name == "steps")
        if not (values.size and fits.all()):
            return False
    return True


def _neutral_nodes(recording: Recording) -> dict[str, str]:
    """Find the nodes that multiply by 1, add 0 or slice off nothing, which runtimes remove."""
    graph = recording.graph
    passed_on: dict[str, str] = {}
    constants = {name: name for name, info in graph.tensors.items() if info.role is Role.CONSTANT}
    loaded: dict[Hashable, np.ndarray] = {}
    for node in graph.nodes:
        row = operators.of(node.op)
        if row.arranges and node.inputs and node.inputs[0] in constants:
            constants[node.outputs[0]] = constants[node.inputs[0]]  # the new shape may be known only at run time
        if row.moves is operators.Move.SLICE:
            if _returns_whole_input(recording, node, loaded):
                passed_on[node.name] = node.inputs[0]
            continue
        if constants.keys().isdisjoint(node.inputs):
            continue
        form, _ = real_form(with_onnx_op(node), graph.opset)
        operator = operators.of(form.op)
        if operator.neutral is None or len(form.inputs) != 2 or "activation" in form.attrs:
            continue
        constant_inputs = {slot: constants[name] for slot, name in enumerate(form.inputs) if name in constants}
        slots = [slot for slot, name in constant_inputs.items() if recording.has(name)]
        if len(slots) != 1 or (slots == [0] and not operator.commutes):
            continue
        name = constant_inputs[slots[0]]
        if math.prod(shape_of(recording, name)) > NEUTRAL_CONSTANT_MAX_ELEMENTS:
            continue
        constant = recording.load(name)
        if constant.size:
            quant = graph.tensors[name].quant
            values = np.asarray(dequantize(constant, quant), np.float64)
            tolerance = 0.0 if quant is None else FLOAT32_STORED_REL_ERROR
            if bool(np.all(np.abs(values - operator.neutral) <= tolerance)):
                passed_on[node.name] = form.inputs[1 - slots[0]]
    return passed_on


def tensor_order(graph: Graph) -> tuple[str, ...]:
    """Return the tensors of a graph without constants: first the inputs, then the outputs node by node."""
    produced = [tensor for node in graph.nodes for tensor in node.outputs if tensor]
    produced_names = set(produced)
    free = [
        name for name, info in graph.tensors.items() if name not in produced_names and info.role is not Role.CONSTANT
    ]
    return tuple(dict.fromkeys([*graph.inputs, *free, *produced]))


def has_same_shape(ref: IndexedRecording, reference: str, be: IndexedRecording, backend: str) -> bool:
    """Return whether two tensors were recorded with the same shape, or declared with the same shape and dtype."""
    if ref.has(reference) and be.has(backend):
        return ref.shape(reference) == be.shape(backend)
    reference_info, backend_info = ref.graph.tensors[reference], be.graph.tensors[backend]
    return reference_info.shape is not None and (reference_info.shape, reference_info.dtype) == (
        backend_info.shape,
        backend_info.dtype,
    )
