"""Build a graph from the facts stated with tensors. Facts that contradict each other are rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from qdebug.errors import GraphError, RecordingError
from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.frozen import same_value
from qdebug.model.operators import UNKNOWN_OP
from qdebug.recording.format.facts import decode_attrs, encode_attrs

__all__ = [
    "NO_FACTS",
    "GraphBuilder",
    "NodeFacts",
    "apply_put_note",
    "check_texts",
    "encode_put_note",
    "format_short",
    "node_facts",
]

_NODE_FACT_NAMES = ("op", "domain", "inputs", "attrs", "origin", "placement")


@dataclass(slots=True, kw_only=True)
class NodeFacts:
    """The facts that a caller stated about a tensor's node. A fact that was not stated is empty.

    Args:
        name: Its name; None if the node is known only through its tensor.
        op: Its operator.
        domain: The operator's domain.
        inputs: Its input tensors.
        attrs: The operator's attributes.
        origin: Nodes of the source model folded into it.
        placement: Where it ran.
        outputs: Tensors that were put as its outputs, in order.
    """

    name: str | None = None
    op: str = ""
    domain: str = ""
    inputs: tuple[str, ...] = ()
    attrs: dict[str, AttrValue] = field(default_factory=dict)
    origin: tuple[str, ...] = ()
    placement: str = ""
    outputs: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.outputs)  # stated facts always belong to an output


_NO_ATTRS: dict[str, AttrValue] = {}
NO_FACTS = NodeFacts()
"""No facts."""


def node_facts(
    tensor: str,
    *,
    node: str | None,
    op: str | None,
    inputs: Sequence[str] | str,
    attrs: Mapping[str, Any] | None,
    domain: str,
    origin: Sequence[str] | str,
    placement: str,
) -> NodeFacts:
    """Check and return the facts that a caller states about a tensor's node; `NO_FACTS` if there are none.

    Raises:
        RecordingError: A fact has a wrong type, or an attribute cannot be stored.
    """
    input_names, sources = _to_names(tensor, "inputs", inputs), _to_names(tensor, "origin", origin)
    if attrs is not None and not isinstance(attrs, Mapping):
        raise RecordingError(
            f"Tensor {tensor!r} was put with attrs of type {type(attrs).__name__}; expected a dict.",
            hint="Give a dict, such as attrs={'pads': [1, 1, 1, 1]}.",
        )
    if node is None and not (op or input_names or attrs or domain or sources or placement):
        return NO_FACTS
    for title, text in (("node", node), ("op", op), ("domain", domain), ("placement", placement)):
        if type(text) is not str:
            check_texts(tensor, title, (text,))
    attributes = _NO_ATTRS
    if attrs:
        attributes = {str(key): _to_attribute(value, f"{key!r} of {tensor!r}") for key, value in attrs.items()}
        encode_attrs(attributes, node or tensor)  # rejects what a file cannot hold now rather than after the run
    return NodeFacts(
        name=node,
        op=op or "",
        domain=domain or "",
        inputs=input_names,
        attrs=attributes,
        origin=sources,
        placement=placement or "",
        outputs=(tensor,),
    )


def check_texts(tensor: str, title: str, values: Iterable[Any]) -> None:
    """Refuse facts that are not strings, now rather than at the end of the run.

    Raises:
        RecordingError: A fact is neither text nor None.
    """
    for value in values:
        if value is not None and not isinstance(value, str):
            raise RecordingError(
                f"Tensor {tensor!r} was put with {title} {format_short(value)}; expected a string.",
                hint="Use the names of the framework.",
            )


def _merge_facts(known_facts: NodeFacts, new_facts: NodeFacts, title: str) -> NodeFacts:
    """Return a node's facts with new ones added; the same object if nothing is new.

    Raises:
        RecordingError: A new fact contradicts a known one.
    """
    changes = {}
    for fact in _NODE_FACT_NAMES:
        old_value, value = getattr(known_facts, fact), getattr(new_facts, fact)
        if value and old_value and not _is_same(old_value, value):
            raise RecordingError(
                f"Node {title!r} was first recorded with {fact} {format_short(old_value)}, and now with "
                f"{format_short(value)}.",
                hint="Give each node a unique name.",
            )
        if value and not old_value:
            changes[fact] = value
    return replace(known_facts, **changes) if changes else known_facts


def _to_names(tensor: str, title: str, value: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    if type(value) is tuple and not value:
        return value
    try:
        names = () if value is None else tuple(value)
    except TypeError:
        raise RecordingError(
            f"Tensor {tensor!r} was put with {title} {format_short(value)}; expected names.",
            hint="Give a list of names, such as inputs=['x', 'w'].",
        ) from None
    check_texts(tensor, title, names)
    return names


def _to_attribute(value: Any, title: str) -> AttrValue:
    """Return an attribute as a value that a node may hold."""
    if isinstance(value, np.generic):
        return _to_attribute(value.item(), title)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list | tuple):
        return tuple(_to_attribute(item, title) for item in value)  # type: ignore[return-value]  # frameworks do not mix types in a list
    if isinstance(value, int | float | str | bool | np.ndarray):
        return value
    raise RecordingError(
        f"Attribute {title} is a {type(value).__name__}; expected a number, a string, a list or an array.",
        hint="Leave it out, or put it as a string.",
    )


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_value(first[key], second[key]) for key in first)
    return bool(first == second)


def format_short(value: Any) -> str:
    """Return a value as text for a message, at most one line long."""
    if isinstance(value, QuantParams):
        return (
            f"{value.dtype} scale {value.scale.ravel()[:3].tolist()} zero point {value.zero_point.ravel()[:3].tolist()}"
        )
    return repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."


_Key = tuple[bool, str]
"""Identifies a node: whether it has a name, and its name or its first tensor's name. A plain tuple for speed."""

_DTYPE = {"dtype"}
_FIELDS = tuple(entry.name for entry in fields(TensorInfo) if entry.name != "name")


class NoteResult(NamedTuple):
    """The result of adding facts.

    Args:
        new: Whether any fact is new.
        quant: The quantization of these values if it differs from their tensor's; None otherwise.
    """

    new: bool
    quant: QuantParams | None


class GraphBuilder:
    """Collects facts of nodes and tensors; repeated facts must agree.

    Args:
        graph: The graph, if known beforehand; more tensors can be added to it.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self._given_graph = Graph() if graph is None else graph
        self._name = None if graph is None else graph.name
        self._given_nodes = frozenset(node.name for node in self._given_graph.nodes)
        self._tensors: dict[str, dict[str, Any]] = {}
        """Known fields of `TensorInfo`.

        The mappings are never modified; tensors with only a dtype share one mapping.
        """
        self._dtype_facts: dict[str, dict[str, Any]] = {}
        for name, info in self._given_graph.tensors.items():
            facts = ((key, getattr(info, key)) for key in _FIELDS)
            self._tensors[name] = {key: value for key, value in facts if value is not None}
        self._shapes: dict[str, tuple[int | None, ...] | None] = {}
        self._nodes: dict[_Key, NodeFacts] = {}
        self._node_of_tensor: dict[str, _Key] = {}
        self._readers: dict[str, list[_Key]] = {}
        self.output_names: tuple[str, ...] = ()

    def is_constant(self, tensor: str) -> bool:
        """Return whether a tensor is known to be a constant."""
        tensor_facts = self._tensors.get(tensor)
        return tensor_facts is not None and tensor_facts.get("role") is Role.CONSTANT

    def quant(self, tensor: str) -> QuantParams | None:
        """Return the known quantization of a tensor."""
        tensor_facts = self._tensors.get(tensor)
        return None if tensor_facts is None else tensor_facts.get("quant")

    def note(self, name: str, shape: tuple[int, ...], facts: NodeFacts, **tensor_facts: Any) -> NoteResult:
        """Add the facts that are stated along with a tensor's values.

        Args:
            name: The tensor.
            shape: Shape of these values.
            facts: Facts of its node.
            **tensor_facts: Fields of `TensorInfo`, None for missing ones. A quantization that differs from the tensor's
                applies only to these values.

        Raises:
            RecordingError: A fact contradicts an earlier one. In that case nothing is noted.
            GraphError: The node would read its own output. In that case nothing is noted.
        """
        known_facts = self._tensors.get(name)
        stated_facts = {key: value for key, value in tensor_facts.items() if value is not None}
        quant = None
        if (
            known_facts is not None
            and "quant" in stated_facts
            and known_facts.get("quant", stated_facts["quant"]) != stated_facts["quant"]
        ):
            quant = stated_facts.pop("quant")
        new_facts = stated_facts if known_facts is None else _select_new_facts(name, known_facts, stated_facts)
        is_new = known_facts is None or bool(new_facts)
        if facts:
            is_new = self._note_node(name, facts) or is_new
        if known_facts is None:
            self._tensors[name] = (
                self._dtype_facts.setdefault(new_facts["dtype"], new_facts) if new_facts.keys() == _DTYPE else new_facts
            )
        elif new_facts:
            self._tensors[name] = known_facts | new_facts
        self._shapes[name] = _common_shape(self._shapes[name], shape) if name in self._shapes else shape
        return NoteResult(is_new or quant is not None, quant)

    def _note_node(self, tensor: str, facts: NodeFacts) -> bool:
        """Add the facts of a node. Return whether any of them is new."""
        if tensor in self._given_graph.tensors or facts.name in self._given_nodes:
            self._check_against_given(tensor, facts)
            return False
        key = self._node_key(tensor, facts)
        known_facts = self._nodes.get(key)
        if known_facts is None:
            merged_facts = facts if facts.outputs == (tensor,) else replace(facts, outputs=(tensor,))
        else:
            merged_facts = _merge_facts(known_facts, facts, facts.name or tensor)
            if tensor in known_facts.outputs and merged_facts.inputs == known_facts.inputs:
                self._nodes[key] = merged_facts
                return merged_facts is not known_facts
            merged_facts = replace(merged_facts, outputs=tuple(dict.fromkeys((*known_facts.outputs, tensor))))
        self._check_order(merged_facts, key[1])
        if known_facts is None or merged_facts.inputs != known_facts.inputs:
            for name in dict.fromkeys(merged_facts.inputs):
                if name:
                    self._readers.setdefault(name, []).append(key)
        self._nodes[key] = merged_facts
        self._node_of_tensor[tensor] = key
        return True

    def _node_key(self, tensor: str, facts: NodeFacts) -> _Key:
        owner = self._node_of_tensor.get(tensor)
        key = (owner or (False, tensor)) if facts.name is None else (True, facts.name)
        if owner is not None and owner != key:
            raise RecordingError(
                f"Tensor {tensor!r} was first put as an output of node {owner[1]!r}, and now as an "
                f"output of {key[1]!r}.",
                hint="Give each tensor a unique name.",
            )
        return key

    def _check_order(self, facts: NodeFacts, title: str) -> None:
        """Reject a node whose inputs depend on its own outputs."""
        if not any(name in self._readers or name in facts.inputs for name in facts.outputs):
            return  # always the case if tensors are put in topological order
        tensors_reached, tensors_to_visit = set(facts.outputs), list(facts.outputs)
        while tensors_to_visit:
            for key in self._readers.get(tensors_to_visit.pop(), ()):
                unreached = [name for name in self._nodes[key].outputs if name not in tensors_reached]
                tensors_reached.update(unreached)
                tensors_to_visit.extend(unreached)
        for name in facts.inputs:
            if name in tensors_reached:
                raise GraphError(
                    f"Node {title!r} reads {name!r}, which is computed from its own output.",
                    hint="Give the state before and after a step different names, such as 'h_in' and 'h_out'.",
                )

    def _check_against_given(self, tensor: str, facts: NodeFacts) -> None:
        """Compare the facts of a node with the graph given beforehand."""
        node = self._given_graph.producer(tensor)
        if node is None:
            raise RecordingError(
                f"Tensor {tensor!r} was put as an output of node {facts.name or facts.op!r}, but no node of the graph "
                "computes it.",
                hint="Leave out node, op and inputs if the recorder has a graph.",
            )
        for fact in ("name", "op", "inputs"):
            value = getattr(facts, fact)
            if value and value != getattr(node, fact):
                raise RecordingError(
                    f"Tensor {tensor!r} was put with {'node' if fact == 'name' else fact} {value!r}, but the graph has "
                    f"{getattr(node, fact)!r}.",
                    hint="Leave out node, op and inputs if the recorder has a graph.",
                )

    def add_outputs(self, names: Iterable[str]) -> None:
        """Add outputs of the graph."""
        self.output_names = tuple(dict.fromkeys((*self.output_names, *names)))

    def build(self, recorded_tensors: Iterable[str], name: str = "") -> Graph:
        """Return the graph.

        A tensor without facts becomes an input of the graph if a node reads it. Otherwise, it becomes the output of an
        added node with an unknown operator.

        Args:
            recorded_tensors: Tensors that were put, in order.
            name: The model's name.

        Raises:
            GraphError: The nodes do not form a valid graph.
        """
        given_graph = self._given_graph
        unowned_tensors = [
            tensor
            for tensor in recorded_tensors
            if tensor not in self._node_of_tensor and not self.is_constant(tensor) and tensor not in given_graph.tensors
        ]
        bare_nodes = {
            tensor: NodeFacts(op=UNKNOWN_OP, outputs=(tensor,))
            for tensor in unowned_tensors
            if tensor not in self._readers
        }
        inputs = [*given_graph.inputs, *(tensor for tensor in unowned_tensors if tensor in self._readers)]
        outputs = self.output_names or given_graph.outputs
        return Graph(
            [*given_graph.nodes, *self._build_nodes(recorded_tensors, bare_nodes)],
            tensors=self._build_tensors(inputs, outputs),
            inputs=inputs,
            outputs=outputs,
            name=name if self._name is None else self._name,
            opset=given_graph.opset,
        )

    def _build_nodes(self, recorded_tensors: Iterable[str], bare_nodes: Mapping[str, NodeFacts]) -> list[Node]:
        """Return the nodes in the order of their first tensor. Nameless nodes get unique names."""
        nodes: dict[_Key, NodeFacts] = {}
        for tensor in recorded_tensors:
            if (key := self._node_of_tensor.get(tensor)) is not None:
                nodes[key] = self._nodes[key]
            elif tensor in bare_nodes:
                nodes[False, tensor] = bare_nodes[tensor]
        used_names = {name for has_name, name in nodes if has_name}
        used_names |= self._given_nodes
        result = []
        for (has_name, name), facts in nodes.items():
            title, number = name, 1
            while not has_name and title in used_names:
                number += 1
                title = f"{name}#{number}"
            used_names.add(title)
            node = Node(
                name=title,
                op=facts.op or UNKNOWN_OP,
                inputs=facts.inputs,
                outputs=facts.outputs,
                attrs=facts.attrs,
                domain=facts.domain,
                origin=facts.origin,
                placement=facts.placement,
            )
            result.append(node)
        return result

    def _build_tensors(self, inputs: Sequence[str], outputs: Sequence[str]) -> list[TensorInfo]:
        roles = {**dict.fromkeys(outputs, Role.OUTPUT), **dict.fromkeys(inputs, Role.INPUT)}
        result = []
        for name, tensor_facts in self._tensors.items():
            role, shape = tensor_facts.get("role", Role.ACTIVATION), tensor_facts.get("shape")
            if role is Role.ACTIVATION:
                role = roles.get(name, role)
            if name in self._shapes and not _is_compatible(shape, self._shapes[name]):
                shape = self._shapes[name]
            result.append(TensorInfo(name=name, **(tensor_facts | {"role": role, "shape": shape})))
        return result


def _select_new_facts(name: str, known_facts: Mapping[str, Any], stated_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a tensor that are new.

    Raises:
        RecordingError: A fact contradicts a known one.
    """
    new_facts = {}
    for key, value in stated_facts.items():
        old_value = known_facts.get(key, Role.ACTIVATION if key == "role" else None)
        if old_value is value or old_value == value:
            continue
        if old_value is not None and key != "role":
            raise RecordingError(
                f"Tensor {name!r} was first put with {key} {format_short(old_value)}, and now with "
                f"{format_short(value)}.",
                hint="Give each fact once, or the same value each time.",
            )
        new_facts[key] = value
    return new_facts


def _common_shape(first: tuple[int | None, ...] | None, second: tuple[int, ...]) -> tuple[int | None, ...] | None:
    """Return the common part of two shapes: None for an extent that varies, None altogether if ranks differ."""
    if first is None or len(first) != len(second):
        return None
    return tuple(extent if extent == other_extent else None for extent, other_extent in zip(first, second, strict=True))


def _is_compatible(
    declared_shape: tuple[int | None, ...] | None, recorded_shape: tuple[int | None, ...] | None
) -> bool:
    """Return whether a declared shape is compatible with the recorded shapes."""
    if declared_shape is None or recorded_shape is None or len(declared_shape) != len(recorded_shape):
        return False
    return all(
        extent is None or extent == other_extent
        for extent, other_extent in zip(declared_shape, recorded_shape, strict=True)
    )


def encode_put_note(
    name: str, shape: tuple[int, ...], facts: NodeFacts, tensor_facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the facts that are stated along with a tensor's values, as a JSON object.

    Args:
        name: The tensor.
        shape: Shape of the values.
        facts: Facts of its node.
        tensor_facts: Fields of `TensorInfo`, None for missing ones.
    """
    note: dict[str, Any] = {"put": name, "shape": shape}
    note |= {key: value for key, value in tensor_facts.items() if isinstance(value, str)}
    if tensor_facts.get("quant") is not None:
        note["quant"] = _encode_quant(tensor_facts["quant"])
    if facts:
        node: dict[str, Any] = {"name": facts.name, "op": facts.op, "inputs": facts.inputs}
        for fact in ("domain", "origin", "placement"):
            if value := getattr(facts, fact):
                node[fact] = value
        if facts.attrs:
            node["attrs"] = encode_attrs(facts.attrs, facts.name or name).decode("ascii")
        note["node"] = node
    return note


def apply_put_note(builder: GraphBuilder, note: Mapping[str, Any]) -> NoteResult:
    """Add the facts of a note from `encode_put_note` to a builder.

    Raises:
        RecordingError, GraphError: They contradict earlier facts.
        ValueError: It is not a note from `encode_put_note`.
    """
    try:
        stated_facts = {key: str(note[key]) for key in ("layout", "stands_for", "dtype") if key in note}
        facts = _decode_node(str(note["put"]), note["node"]) if "node" in note else NodeFacts()
        quant = _decode_quant(note["quant"]) if "quant" in note else None
        role = Role(note["role"]) if "role" in note else None
        shape = tuple(int(extent) for extent in note["shape"])
        return builder.note(str(note["put"]), shape, facts, quant=quant, role=role, **stated_facts)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"a note cannot be decoded: {exc!r}") from None


def _decode_node(tensor: str, json_object: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(
        name=None if json_object["name"] is None else str(json_object["name"]),
        op=str(json_object["op"]),
        domain=str(json_object.get("domain", "")),
        inputs=tuple(str(name) for name in json_object["inputs"]),
        origin=tuple(str(name) for name in json_object.get("origin", ())),
        placement=str(json_object.get("placement", "")),
        attrs=decode_attrs(str(json_object.get("attrs", "")).encode()),
        outputs=(tensor,),
    )


def _encode_quant(quant: QuantParams) -> str:
    field_values = {entry.name: getattr(quant, entry.name) for entry in fields(quant)}
    return encode_attrs({name: value for name, value in field_values.items() if value is not None}, "").decode("ascii")


def _decode_quant(text: Any) -> QuantParams:
    field_names = {entry.name for entry in fields(QuantParams)}
    field_values: dict[str, Any] = {
        name: value for name, value in decode_attrs(str(text).encode()).items() if name in field_names
    }
    return QuantParams(**field_values)
