"""Puts a graph together from what is said of tensors as they are put."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo

__all__ = ["GraphBuilder"]

UNKNOWN_OP = "Unknown"
"""Operator of a tensor that was put without saying what made it."""


@dataclass(slots=True, kw_only=True)
class _NodeFacts:
    op: str = ""
    domain: str = ""
    inputs: tuple[str, ...] = ()
    outputs: list[str] = field(default_factory=list)
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    origin: tuple[str, ...] = ()


class GraphBuilder:
    """Collects facts of nodes and tensors; what is said twice must agree.

    Args:
        graph: The graph, if it is known beforehand; then facts only add to its tensors.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self._graph = graph
        self._tensors: dict[str, TensorInfo] = dict(graph.tensors) if graph else {}
        self._nodes: dict[str, _NodeFacts] = {}
        self._outputs: tuple[str, ...] = graph.outputs if graph else ()

    def is_constant(self, tensor: str) -> bool:
        """Tell whether a tensor is known as a constant."""
        info = self._tensors.get(tensor)
        return info is not None and info.role is Role.CONSTANT

    def tensor(self, name: str, **facts: Any) -> None:
        """Note facts of a tensor: fields of `TensorInfo`, None for what is not said.

        Raises:
            RecordingError: A fact contradicts what was said before.
        """
        known = self._tensors.get(name, TensorInfo(name=name))
        said = {key: value for key, value in facts.items() if value is not None}
        for key, value in said.items():
            before = getattr(known, key)
            if before is not None and before != value and key in ("quant", "dtype", "layout", "stands_for"):
                raise RecordingError(
                    f"Tensor {name!r} was first put with {key} {_short(before)} and now with {_short(value)}.",
                    hint="Say each fact once, or the same each time.",
                )
        self._tensors[name] = replace(known, **said)

    def node(  # noqa: PLR0917  the facts of a node
        self,
        tensor: str,
        node: str | None,
        op: str | None,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None,
        domain: str,
        origin: Sequence[str],
    ) -> None:
        """Note the node that makes a tensor.

        Raises:
            RecordingError: A fact contradicts what was said before.
        """
        if self._graph is not None or not (node or op or inputs or attrs):
            return
        facts = self._nodes.setdefault(node or tensor, _NodeFacts())
        if tensor not in facts.outputs:
            facts.outputs.append(tensor)
        said = {
            "op": op or "",
            "domain": domain,
            "inputs": tuple(inputs),
            "attrs": {key: _plain(value) for key, value in (attrs or {}).items()},
            "origin": tuple(origin),
        }
        for key, value in said.items():
            before = getattr(facts, key)
            if value and before and not _same(before, value):
                title = repr(node or tensor)
                raise RecordingError(
                    f"Node {title} was first put with {key} {_short(before)} and now with {_short(value)}.",
                    hint="Give each node a name of its own.",
                )
            if value:
                setattr(facts, key, value)

    def outputs(self, names: Iterable[str]) -> None:
        """Note the graph's outputs."""
        self._outputs = tuple(names)

    def build(self, recorded: Iterable[str], name: str = "") -> Graph:
        """Make the graph.

        A tensor that nothing is known of is an input of the graph if some node reads it, else the output of a node
        of its own.

        Args:
            recorded: Tensors that were put, in order.
            name: The model's name.

        Raises:
            GraphError: The nodes form no graph.
        """
        if self._graph is not None:
            given = self._graph
            return Graph(
                given.nodes,
                tensors=self._tensors.values(),
                inputs=given.inputs,
                outputs=self._outputs,
                name=given.name,
                opset=given.opset,
            )
        produced = {output for facts in self._nodes.values() for output in facts.outputs}
        read = {tensor for facts in self._nodes.values() for tensor in facts.inputs if tensor}
        loose = [t for t in recorded if t not in produced and not self.is_constant(t)]
        inputs = [t for t in loose if t in read]
        bare = [Node(name=t, op=UNKNOWN_OP, outputs=(t,)) for t in loose if t not in read and t not in self._nodes]
        nodes = [
            Node(
                name=node,
                op=facts.op or UNKNOWN_OP,
                domain=facts.domain,
                inputs=facts.inputs,
                outputs=tuple(facts.outputs),
                attrs=facts.attrs,
                origin=facts.origin,
            )
            for node, facts in self._nodes.items()
        ]
        roles = {**dict.fromkeys(inputs, Role.INPUT), **dict.fromkeys(self._outputs, Role.OUTPUT)}
        tensors = [
            replace(info, role=roles.get(info.name, info.role)) if info.role is Role.ACTIVATION else info
            for info in self._tensors.values()
        ]
        return Graph([*nodes, *bare], tensors=tensors, inputs=inputs, outputs=self._outputs, name=name)


def _plain(value: Any) -> AttrValue:
    """Give an attribute as a value that a node may hold."""
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)  # type: ignore[return-value]  # of one kind, as frameworks have it
    if isinstance(value, int | float | str | bool | np.ndarray):
        return value
    raise RecordingError(f"An attribute is a {type(value).__name__}; expected a number, a text, a list or an array.")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
    return bool(one == other)


def _short(value: Any) -> str:
    if isinstance(value, QuantParams):
        return (
            f"{value.dtype} scale {value.scale.ravel()[:3].tolist()} zero point {value.zero_point.ravel()[:3].tolist()}"
        )
    return repr(value)
