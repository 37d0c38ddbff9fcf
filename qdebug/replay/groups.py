"""Groups of a QDQ graph that a backend computes as one node: DequantizeLinear, an operator, QuantizeLinear.

A QDQ graph describes real arithmetic between quantized tensors. An integer backend folds each operator with the
dequantization before it and the quantization after it into one kernel on codes. `fuse` returns the graph of such a
backend: each group is one node with the operator's own name and codes as inputs and output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from qdebug.model import AttrValue, Graph, Node, operators
from qdebug.model.dtypes import is_integer
from qdebug.replay.registry import has_kernel

__all__ = ["Group", "find_groups", "fuse"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Nodes that are computed as one unit.

    Args:
        node: The node that replaces them: operator, name and attributes of the middle node, with codes as inputs and
            output. A fused activation is stored in the attribute `activation`, and the bounds of a Clip in
            `activation_params`.
        interior: Tensors between the nodes that no other node reads.
        members: The nodes, in topological order.
    """

    node: Node
    interior: frozenset[str]
    members: tuple[Node, ...]


def find_groups(graph: Graph, constants: Mapping[str, AttrValue] | None = None) -> tuple[Group, ...]:
    """Find the groups that a backend may fold, in topological order.

    All operands of a group have per-tensor or per-channel quantization, and no other node reads its interior results.
    Operators that only move codes need equal quantization at input and output.

    Args:
        graph: The graph.
        constants: Values of scalar constants by name, for the bounds of a Clip.
    """
    return tuple(_iterate_groups(graph, constants or {}))


def fuse(graph: Graph, constants: Mapping[str, AttrValue] | None = None, *, unfused: Collection[str] = ()) -> Graph:
    """Return a graph with each group fused into one node. A graph without groups is returned unchanged.

    Nodes and tensors that are read only inside groups are dropped.

    Args:
        graph: The graph.
        constants: Values of scalar constants by name, for the bounds of a Clip.
        unfused: Tensors that are computed separately; a group with such a tensor in its interior is not fused.
    """
    groups = [group for group in find_groups(graph, constants) if group.interior.isdisjoint(unfused)]
    if not groups:
        return graph
    node_of_last = {group.members[-1].name: group.node for group in groups}
    members = [node for group in groups for node in group.members]
    folded = {node.name for node in members if not operators.of(node.op).dequantizes}
    nodes = [
        node_of_last.get(node.name, node)
        for node in graph.nodes
        if node.name in node_of_last or node.name not in folded
    ]
    nodes = _without_unread(nodes, graph.outputs)
    used_tensors = {name for node in nodes for name in (*node.inputs, *node.outputs)} | {*graph.inputs, *graph.outputs}
    return Graph(
        nodes,
        tensors=[info for name, info in graph.tensors.items() if name in used_tensors],
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def _without_unread(nodes: list[Node], outputs: tuple[str, ...]) -> list[Node]:
    """Drop dequantizations that no node reads."""
    reader_counts = Counter(name for node in nodes for name in node.inputs)
    reader_counts.update(outputs)
    return [
        node
        for node in nodes
        if not operators.of(node.op).dequantizes or any(map(reader_counts.__getitem__, node.outputs))
    ]


def _iterate_groups(graph: Graph, constants: Mapping[str, AttrValue]) -> Iterator[Group]:
    for node in graph.nodes:
        row = operators.of(node.op)
        if not row.folds or not node.outputs or not has_kernel(node.op, node.domain):
            continue
        # DequantizeLinear, operator, an optional activation and QuantizeLinear compute from codes to codes, like one
        # quantized operator.
        inputs, before = _replace_dequantized_inputs(graph, node)
        if inputs is None:
            continue
        after = _find_nodes_to_quantization(graph, node)
        moves = row.moves and not row.keeps_values and row.data == (0,)
        if after is None or (moves and not _has_same_quant(graph, inputs[0], after[-1].outputs[0])):
            continue
        attrs = _activation_attributes(after[0], constants) if len(after) > 1 else {}
        if attrs is None:
            continue
        members = (*before, node, *after)
        yield Group(
            node=Node(
                name=node.name,
                op=node.op,
                domain=node.domain,
                inputs=inputs,
                outputs=after[-1].outputs[:1],
                attrs={**node.attrs, **attrs},
                origin=tuple(member.name for member in members),
            ),
            interior=frozenset(name for member in (node, *after[:-1]) for name in member.outputs if name),
            members=members,
        )


def _replace_dequantized_inputs(graph: Graph, node: Node) -> tuple[tuple[str, ...] | None, list[Node]]:
    """Return a node's inputs with dequantized tensors replaced by their codes, and the nodes that dequantize them."""
    row = operators.of(node.op)
    data = row.data or tuple(range(len(node.inputs)))
    if max(data, default=0) >= len(node.inputs):
        return None, []
    inputs, dequantizers = list(node.inputs), []
    for position, name in enumerate(node.inputs):
        optional = position == row.bias
        source = graph.producer(name) if name and (position in data or optional) else None
        is_dequantized = source is not None and operators.of(source.op).dequantizes
        codes_name = source.inputs[0] if source is not None and is_dequantized and source.inputs else ""
        if source is not None and codes_name and _has_codes(graph, codes_name, wide=optional):
            inputs[position] = codes_name
            dequantizers.append(source)
        elif position in data or (optional and name and not graph.is_constant(name)):
            return None, []
    return tuple(inputs), list({source.name: source for source in dequantizers}.values())


def _find_nodes_to_quantization(graph: Graph, node: Node) -> list[Node] | None:
    """Return the nodes that follow a node up to its QuantizeLinear, with at most one activation in between."""
    following = _only_reader(graph, node)
    chain = [] if following is None else [following]
    if following is not None and operators.of(node.op).takes_clamp and operators.of(following.op).clamps:
        following = _only_reader(graph, following)
        chain += [] if following is None else [following]
    if following is None or not operators.of(following.op).quantizes or not _has_codes(graph, following.outputs[0]):
        return None
    return chain


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the only reader of a node's only output, if it reads that output as its first input."""
    results = [name for name in node.outputs if name]
    if len(results) != 1 or results[0] in graph.outputs:
        return None
    readers = graph.consumers(results[0])
    is_only_first_input = (
        len(readers) == 1 and readers[0].inputs.count(results[0]) == 1 and readers[0].inputs[0] == results[0]
    )
    return readers[0] if is_only_first_input else None


def _has_codes(graph: Graph, name: str, *, wide: bool = False) -> bool:
    """Return whether a tensor holds integer codes, of at most 16 bits unless `wide`, with known scales."""
    quant = graph.tensors[name].quant
    if quant is None or quant.block_size is not None or not is_integer(quant.dtype):
        return False
    return wide or not quant.dtype.endswith(("32", "64"))


def _has_same_quant(graph: Graph, first: str, second: str) -> bool:
    quant = graph.tensors[first].quant
    return quant is not None and not quant.per_channel and quant == graph.tensors[second].quant


def _activation_attributes(node: Node, constants: Mapping[str, AttrValue]) -> dict[str, AttrValue] | None:
    """Return the attributes of a fused activation; None if its bounds are unknown."""
    bounds = operators.clamp_bounds(node, constants)
    if bounds is None:
        return None
    params: dict[str, AttrValue] = {"activation_params": bounds} if operators.of(node.op).bounded else {}
    return {"activation": node.op, **params}
