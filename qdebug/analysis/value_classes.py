"""Which tensors of one graph hold the same real numbers, and which hang on constants alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from qdebug.analysis.expand import expanded
from qdebug.analysis.ops import KEEPS_VALUES, turns_channels
from qdebug.model import Graph, Node, Recording
from qdebug.model.dtypes import is_float
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form

__all__ = ["Run", "ValueClasses", "tensor_order"]


class ValueClasses:
    """Tensors of a graph grouped by the real numbers they stand for.

    A tensor, its codes and the codes dequantized form one class; its root is the member nearest the
    graph's input. Rounding to codes is not a change of meaning, so it does not part a class.

    Args:
        graph: The graph.
        neutral: Nodes whose constant changes nothing (times 1, plus 0), with the input that they hand on.
    """

    def __init__(self, graph: Graph, neutral: Mapping[str, str] | None = None) -> None:
        self.graph = graph
        self._neutral = dict(neutral or {})
        self._root: dict[str, str] = {}
        self._folded: set[str] = set()
        self._shapes: set[str] = set()
        self._members: dict[str, list[str]] = {}
        self._number: dict[str, int] = {}
        self._seen: dict[Hashable, int] = {}
        for name in graph.tensors:
            if graph.producer(name) is None:
                self._join(name, name)
                self._number[name] = self._numbered(name)
                if graph.is_constant(name):
                    self._folded.add(name)
        for node in graph.nodes:
            fed = [tensor for tensor in node.inputs if tensor]
            folded = all(tensor in self._folded for tensor in fed)
            counts = node.op == "Shape" or any(t in self._shapes for t in fed)
            counts = counts and (node.op == "Shape" or all(t in self._shapes or t in self._folded for t in fed))
            source = self.handed_on(node)
            work = (node.op, node.domain, _attrs_key(node), tuple(self._number.get(t, -1) for t in node.inputs))
            for slot, tensor in enumerate(node.outputs):
                if tensor:
                    self._number[tensor] = self._numbered((*work, slot))
                    self._join(tensor, self._root[source] if source and slot == 0 else tensor)
                    if folded and (fed or node.op == "Constant"):
                        self._folded.add(tensor)
                    elif counts:
                        self._shapes.add(tensor)

    def handed_on(self, node: Node) -> str | None:
        """Give the input whose values a node hands on as its first output; None if it computes something else."""
        source = node.inputs[0] if node.inputs else ""
        if turns_channels(node):
            return None
        if source and (node.op in KEEPS_VALUES or self._changes_format(node) or self.changes_layout(node)):
            return source
        return self._neutral.get(node.name)

    def changes_layout(self, node: Node) -> bool:
        """Tell whether a node only arranges a tensor of the source model in another order: a runtime put it in."""
        if node.op not in _ARRANGES or not (node.inputs and node.inputs[0] and node.outputs):
            return False
        before, after = (self.graph.tensors[name] for name in (node.inputs[0], node.outputs[0]))
        if before.stands_for is None and after.stands_for is None:
            return False
        return (before.stands_for or before.name) == (after.stands_for or after.name)

    def _changes_format(self, node: Node) -> bool:
        """Tell whether a node only casts real numbers from one float format to another."""
        if node.op != "Cast":
            return False
        kinds = [self.graph.tensors[name].dtype for name in (node.inputs[0], node.outputs[0])]
        return all(kind is not None and is_float(kind) for kind in kinds)

    def _join(self, tensor: str, root: str) -> None:
        self._root[tensor] = root
        self._members.setdefault(root, []).append(tensor)

    def _numbered(self, work: Hashable) -> int:
        return self._seen.setdefault(work, len(self._seen))

    def number(self, tensor: str) -> int:
        """Give a number that tensors share if the same operators make them of the same inputs (value numbering)."""
        return self._number.get(tensor, -1)

    def root(self, tensor: str) -> str:
        """Give the first tensor that holds the same real numbers; the tensor itself if it is the first."""
        return self._root.get(tensor, tensor)

    def members(self, tensor: str) -> tuple[str, ...]:
        """Give all tensors of a tensor's class, in topological order."""
        return tuple(self._members.get(self.root(tensor), (tensor,)))

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """Give the nodes that read any member of a tensor's class and do more than hand it on."""
        found = {
            node.name: node
            for member in self.members(tensor)
            for node in self.graph.consumers(member)
            if self.handed_on(node) is None
        }
        return tuple(found.values())

    def folds(self, tensor: str) -> bool:
        """Tell whether a tensor depends on constants alone."""
        return tensor in self._folded

    def of_shape(self, tensor: str) -> bool:
        """Tell whether a tensor depends on the shapes of others alone, and on none of their values."""
        return tensor in self._shapes

    def data_inputs(self, node: Node) -> tuple[str, ...]:
        """Give a node's inputs that depend on the network's input; of shapes only if there is nothing else."""
        free = tuple(tensor for tensor in node.inputs if tensor and tensor not in self._folded)
        return tuple(tensor for tensor in free if tensor not in self._shapes) or free


def _attrs_key(node: Node) -> Hashable:
    return tuple((name, value if isinstance(value, Hashable) else repr(value)) for name, value in node.attrs.items())


_ARRANGES = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze"})

_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0}
_NEUTRAL_HAIR = 1e-6
"""How far a quantized 1 may be off through the rounding of its scale."""
_NEUTRAL_MOST = 4096
"""Elements that a constant may have to be looked at: neutral ones are scalars, or one value per channel."""


def _neutral_nodes(recording: Recording) -> dict[str, str]:
    """Find the nodes that multiply by 1 or add 0, which runtimes leave out."""
    graph = recording.graph
    found: dict[str, str] = {}
    for node in graph.nodes:
        form, _ = real_form(node, graph.opset)
        if form.op not in _NEUTRAL or len(form.inputs) != 2:
            continue
        slots = [slot for slot, name in enumerate(form.inputs) if graph.is_constant(name) and recording.has(name)]
        if len(slots) != 1 or (slots == [0] and form.op in ("Div", "Sub")):
            continue
        name = form.inputs[slots[0]]
        constant = recording.load(name)
        if 0 < constant.size <= _NEUTRAL_MOST:
            quant = graph.tensors[name].quant
            values = np.asarray(dequantize(constant, quant), np.float64)
            hair = 0.0 if quant is None else _NEUTRAL_HAIR
            if bool(np.all(np.abs(values - _NEUTRAL[form.op]) <= hair)):
                found[node.name] = form.inputs[1 - slots[0]]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recording together with the value classes of its graph and the names it has activations of."""

    recording: Recording
    classes: ValueClasses
    recorded: frozenset[str]

    @property
    def graph(self) -> Graph:
        """The graph that the classes are of."""
        return self.classes.graph

    @classmethod
    def of(cls, recording: Recording, *, expand: bool = False) -> Run:
        """Derive the classes of a recording's graph.

        Args:
            recording: The recording.
            expand: Show fused activations and sums as nodes of their own, see `expanded`.
        """
        graph = expanded(recording.graph) if expand else recording.graph
        classes = ValueClasses(graph, _neutral_nodes(recording))
        recorded = frozenset(name for name in recording.names if not classes.folds(name))
        return cls(recording=recording, classes=classes, recorded=recorded)


def tensor_order(graph: Graph) -> tuple[str, ...]:
    """Give the tensors of a graph, constants left out: inputs first, then outputs node by node."""
    produced = (tensor for node in graph.nodes for tensor in node.outputs if tensor)
    free = (name for name in graph.tensors if graph.producer(name) is None and not graph.is_constant(name))
    return tuple(dict.fromkeys((*graph.inputs, *free, *produced)))
