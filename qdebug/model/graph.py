"""The graph of a run: nodes in topological order and the tensors between them. Immutable, since it is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from heapq import heapify, heappop, heappush
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import GraphError
from qdebug.model.frozen import frozen_mapping, rebuild, same_value
from qdebug.model.tensor import Role, TensorInfo

__all__ = ["AttrValue", "Graph", "Node"]

AttrValue = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | np.ndarray
"""An attribute of a node. Arrays occur only if a framework stores a small tensor as an attribute."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One operation of a graph.

    Args:
        name: Name, unique in the graph.
        op: Operator type under the framework's name, such as "Conv" or "QLinearConv".
        inputs: Tensor names in the operator's order; "" for an omitted optional input.
        outputs: Tensor names in the operator's order; "" for an output that is not produced.
        attrs: The operator's attributes.
        domain: Operator domain; "" is the ONNX standard.
        origin: Names of the source model's nodes folded into this one; empty if the node is in the source model itself.
        placement: Where it ran: a device, provider or delegate, optionally followed by ": " and facts about the kernel;
            "" if unknown.

    Examples:
        >>> qdebug.Node(name="n", op="Relu", inputs=("x",), outputs=("y",)).outputs
        ('y',)
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attrs: Mapping[str, AttrValue] = field(default_factory=lambda: frozen_mapping({}))
    domain: str = ""
    origin: tuple[str, ...] = ()
    placement: str = ""

    def __post_init__(self) -> None:
        attrs = frozen_mapping(self.attrs)
        if attrs is not self.attrs:
            object.__setattr__(self, "attrs", attrs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return (
            self._key() == other._key()
            and self.attrs.keys() == other.attrs.keys()
            and all(same_value(value, other.attrs[key]) for key, value in self.attrs.items())
        )

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        values_by_field = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return rebuild, (Node, values_by_field | {"attrs": dict(self.attrs)})

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.op, self.inputs, self.outputs, self.domain, self.origin, self.placement


class Graph:
    """Nodes in topological order, and their tensors.

    Args:
        nodes: Nodes in any order. A topological order is kept; other orders are sorted stably.
        tensors: Facts about tensors. Tensors that occur only in nodes, inputs or outputs are added without facts.
        inputs: Names of the graph's inputs, in order.
        outputs: Names of the graph's outputs, in order.
        name: The model's name.
        opset: Version of each operator set, by domain.

    Attributes:
        producer: Returns the node that produces a tensor; None for inputs, constants and unknown names.

    Raises:
        GraphError: A cycle, a tensor with two producers, or two nodes with the same name.

    Examples:
        >>> graph = qdebug.open_recording("int8.h5").graph
        >>> graph.producer("logits_quantized").op
        'QGemm'
    """

    __slots__ = ("_consumers", "_positions", "inputs", "name", "nodes", "opset", "outputs", "producer", "tensors")

    producer: Callable[[str], Node | None]  # a dict's `get` without a wrapper: called millions of times
    nodes: Sequence[Node]
    tensors: Mapping[str, TensorInfo]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        *,
        tensors: Iterable[TensorInfo] = (),
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        name: str = "",
        opset: Mapping[str, int] | None = None,
    ) -> None:
        given_nodes = tuple(nodes)
        self.name = name
        self.opset: Mapping[str, int] = MappingProxyType(dict(opset or {}))
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        producers, is_in_order = _producers(given_nodes)
        self.nodes = given_nodes if is_in_order else _sort_topologically(given_nodes)
        self.producer = producers.get
        self._positions: dict[str, int] | None = None
        self._consumers: Mapping[str, list[Node]] | None = None
        self.tensors = MappingProxyType(self._complete_infos(tensors))

    def _complete_infos(self, tensors: Iterable[TensorInfo]) -> dict[str, TensorInfo]:
        infos = {info.name: info for info in tensors}
        operands = (name for node in self.nodes for names in (node.inputs, node.outputs) for name in names)
        for name in chain(self.inputs, operands, self.outputs):
            if name not in infos and name:
                role = Role.INPUT if name in self.inputs else Role.OUTPUT if name in self.outputs else Role.ACTIVATION
                infos[name] = TensorInfo(name=name, role=role)
        return infos

    def __reduce__(self) -> tuple[Any, ...]:
        values_by_field = {name: getattr(self, name) for name in ("nodes", "inputs", "outputs", "name")}
        return rebuild, (Graph, values_by_field | {"tensors": tuple(self.tensors.values()), "opset": dict(self.opset)})

    def position(self, tensor: str) -> int | None:
        """Return the topological position of the node that produces a tensor; None without one."""
        positions = self._positions
        if positions is None:
            positions = self._positions = _positions(self.nodes)
        return positions.get(tensor)

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """Return the nodes that read a tensor, in topological order."""
        consumers = self._consumers
        if consumers is None:
            consumers = self._consumers = _consumers(self.nodes)
        return tuple(consumers.get(tensor, ()))

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is a constant of the graph."""
        info = self.tensors.get(tensor)
        return info is not None and info.role is Role.CONSTANT


def _producers(nodes: Sequence[Node]) -> tuple[dict[str, Node], bool]:
    """Return the producer of each tensor, and whether all producers come before their consumers."""
    producers: dict[str, Node] = {}
    names: set[str] = set()
    read_before_produced: set[str] = set()
    for node in nodes:
        if node.name in names:
            raise GraphError(f"Two nodes have the name {node.name!r}.", hint="Give each node a unique name.")
        names.add(node.name)
        for tensor in node.inputs:
            if tensor not in producers:
                read_before_produced.add(tensor)
        for tensor in node.outputs:
            if not tensor:
                continue
            if tensor in producers:
                first_producer = producers[tensor].name
                raise GraphError(f"Tensor {tensor!r} is produced twice, by {first_producer!r} and by {node.name!r}.")
            producers[tensor] = node
    return producers, producers.keys().isdisjoint(read_before_produced)


def _positions(nodes: Sequence[Node]) -> dict[str, int]:
    return {tensor: position for position, node in enumerate(nodes) for tensor in node.outputs if tensor}


def _consumers(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Return the nodes that read each tensor."""
    consumers: defaultdict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for tensor in set(node.inputs):
            consumers[tensor].append(node)
    consumers.pop("", None)
    return consumers


def _sort_topologically(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Sort nodes topologically and otherwise stably (Kahn 1962, with a heap)."""
    producer = _positions(nodes)
    predecessors = [{producer[tensor] for tensor in node.inputs if tensor in producer} for node in nodes]
    followers_of: dict[int, list[int]] = {}
    for position, node_predecessors in enumerate(predecessors):
        for predecessor in node_predecessors:
            followers_of.setdefault(predecessor, []).append(position)
    missing_counts = [len(node_predecessors) for node_predecessors in predecessors]
    ready_positions = [position for position, count in enumerate(missing_counts) if count == 0]
    # The heap yields the lowest position, so the given order is kept wherever the edges allow it.
    heapify(ready_positions)
    order: list[Node] = []
    while ready_positions:
        position = heappop(ready_positions)
        order.append(nodes[position])
        for follower in followers_of.get(position, ()):
            missing_counts[follower] -= 1
            if missing_counts[follower] == 0:
                heappush(ready_positions, follower)
    if len(order) < len(nodes):
        node_in_cycle = next(nodes[position].name for position, count in enumerate(missing_counts) if count > 0)
        raise GraphError(f"The graph has a cycle through node {node_in_cycle!r}.")
    return tuple(order)
