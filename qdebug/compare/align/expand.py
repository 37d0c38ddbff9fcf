"""Splits nodes that compute more than their operator: a fused activation, sum or count becomes a separate node.

Two graphs of one network fuse different nodes. Once each node does one thing, the graphs can be walked together,
whichever is more optimized. The tensors between the parts of a node were never computed, so they were never recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qdebug.model import AttrValue, Graph, Node, Role, TensorInfo, operators
from qdebug.model.operators import fused_activation, is_foreign, kinds_of, with_onnx_op

__all__ = [
    "clamps_at_zero",
    "expand_fused_nodes",
    "goes_into_weights",
    "has_unknown_inputs",
    "have_same_kind",
    "kind",
    "parts_of",
]


def goes_into_weights(reader: Node, node: Node) -> bool:
    """Return whether a reader of a node, with its own constants, can be folded into the node's constants.

    A product without a bias can be scaled by its weights, but nothing can be added to it. Factors can be merged with
    factors, and terms with terms.
    """
    row, neutral = operators.of(reader.op), operators.plain(node).neutral
    if not row.goes_into_weights:
        return False
    if neutral is not None:
        return row.neutral == neutral
    return row.neutral == 1 or _takes_bias(node)


def _takes_bias(node: Node) -> bool:
    """Return whether a node reads a bias. A plain product may have one that was not recorded."""
    row = operators.of(node.op)
    if row.bias is None:
        return not operators.plain(node).product
    return row.product or any(node.inputs[row.bias : row.bias + 1])


def has_unknown_inputs(node: Node) -> bool:
    """Return whether the inputs of a node are unknown: a harness may record values without a graph."""
    return not any(node.inputs) and not operators.of(node.op).reads_nothing


def have_same_kind(first: Node, second: Node) -> bool:
    """Return whether two nodes may compute the same; False if only one of them outputs sums of codes.

    Such sums have no scale. The node that multiplies them by a scale corresponds to the node with a real output.
    """
    return kind(first) == kind(second)


def kind(node: Node) -> tuple[str, bool]:
    """Return the operator family of a node, and whether the node outputs sums of codes."""
    return operators.plain(node).family, operators.of(node.op).sums_codes


_POOLS = frozenset({"max_pool", "average_pool", "global_average_pool", "reduce_mean"})
"""Operators whose result is never negative for non-negative inputs, by `Operator.unit`."""


def clamps_at_zero(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor is the output of a Relu, looking through nodes that keep, select or average values."""
    for _ in range(len(graph.nodes)):
        node = graph.producer(tensor)
        if node is None:
            return False
        row = operators.of(node.op)
        if row.least == 0 or operators.of(operators.fused_activation(node) or "").least == 0:
            return True
        if row.bounded and node.attrs.get("min") == 0.0:
            return True
        if not (row.keeps_values or row.arranges or operators.plain(node).unit in _POOLS) or not node.inputs:
            return False
        tensor = node.inputs[0]
    return False


def expand_fused_nodes(graph: Graph) -> Graph:
    """Return a graph in ONNX operators in which every fused activation, sum or count is a separate node.

    Every tensor of the given graph is in the new graph; the last of the nodes that replace a node keeps the output
    name.
    """
    if not (
        any(_computes_more_than_operator(node) or is_foreign(node) for node in kinds_of(graph.nodes))
        or any(map(_has_extra_inputs, graph.nodes))
    ):
        return graph
    used_names = {*graph.tensors}
    names = {node.name for node in graph.nodes}
    infos, nodes = dict(graph.tensors), list[Node]()
    for node in graph.nodes:
        parts = list(_split_node(with_onnx_op(node), used_names, names))
        # one kernel writes all its outputs in the same layout
        layout = next((infos[name].layout for name in node.outputs if name in infos), None)
        for name in (name for part in parts for name in part.outputs):
            if name and name not in infos:
                infos[name] = TensorInfo(name=name, layout=layout)
        nodes += parts
    for name in (name for node in nodes for name in node.inputs):
        if name and name not in infos:  # this input was an attribute before the expansion
            infos[name] = TensorInfo(name=name, role=Role.CONSTANT)
    return Graph(
        nodes,
        tensors=infos.values(),
        inputs=graph.inputs,
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )


def parts_of(node: Node) -> tuple[Node, ...]:
    """Return the nodes that replace a node, or the node itself if it computes only its operator."""
    return tuple(_split_node(node, set(), {node.name}))


def _computes_more_than_operator(node: Node) -> bool:
    """Return whether the operator and attributes of a node show that it computes more than its operator."""
    return fused_activation(node) is not None or operators.of(node.op).gate is not None


def _has_extra_inputs(node: Node) -> bool:
    """Return whether the inputs of a node show that it computes more than its operator."""
    return _added_tensor(node) is not None or _counting_mask_position(node) is not None


def _counting_mask_position(node: Node) -> int | None:
    """Return the position of a mask that a node only uses to count ones, or None if there is none."""
    position = operators.of(node.op).mask
    counts_ones = position is not None and any(node.inputs[position : position + 1]) and any(node.outputs[1:2])
    return position if counts_ones else None


def _added_tensor(node: Node) -> str | None:
    """Return the tensor that a node adds to its result, an input that standard operators lack."""
    position = operators.of(node.op).added
    if position is None or len(node.inputs) <= position or not (node.domain or operators.of(node.op).plain != node.op):
        return None
    return node.inputs[position] or None


def _split_node(node: Node, used_names: set[str], names: set[str]) -> Iterator[Node]:
    for fused_node in _split_fused(node, used_names, names):
        gate, mask_position = operators.of(fused_node.op).gate, _counting_mask_position(fused_node)
        if gate is not None and fused_node.inputs:
            yield from _split_gated(fused_node, gate, used_names, names)
        elif mask_position is not None:
            name, mask, count = (
                _unused_name(f"{fused_node.name}/ReduceSum", names),
                fused_node.inputs[mask_position],
                fused_node.outputs[1],
            )
            yield Node(name=name, op="ReduceSum", inputs=(mask,), outputs=(count,))
            inputs = (*fused_node.inputs[:mask_position], "", *fused_node.inputs[mask_position + 1 :])
            yield replace(fused_node, inputs=inputs, outputs=(fused_node.outputs[0], "", *fused_node.outputs[2:]))
        else:
            yield fused_node


def _split_gated(node: Node, gate: operators.Gate, used_names: set[str], names: set[str]) -> Iterator[Node]:
    """Yield an activation as the product of its input and a gate, as defined by ONNX or fused by runtimes."""
    gate_output = _unused_name(f"{node.outputs[0]}/before Mul", used_names)
    source = node.inputs[0]
    if gate.factor and node.attrs.get(gate.factor, gate.default_factor) != 1:
        factor, scaled = (
            _unused_name(f"{node.outputs[0]}/{end}", used_names) for end in (gate.factor, f"before {gate.op}")
        )
        name = _unused_name(f"{node.name}/Mul", names)
        yield Node(name=name, op="Mul", inputs=(source, factor), outputs=(scaled,), origin=node.origin)
        source = scaled
    name = _unused_name(f"{node.name}/{gate.op}", names)
    yield Node(name=name, op=gate.op, inputs=(source,), outputs=(gate_output,), attrs=gate.attrs, origin=node.origin)
    yield replace(node, op="Mul", domain="", inputs=(node.inputs[0], gate_output), attrs={})


def _split_fused(node: Node, used_names: set[str], names: set[str]) -> Iterator[Node]:
    activation, added = fused_activation(node), _added_tensor(node)
    if activation is None and added is None:
        yield node
        return
    output = node.outputs[0]
    extra = [*(["Add"] if added else []), *([activation] if activation else [])]
    names_between = [_unused_name(f"{output}/before {op}", used_names) for op in extra]
    own_attributes = {name: value for name, value in node.attrs.items() if not name.startswith("activation")}
    inputs = node.inputs[: operators.of(node.op).added] if added else node.inputs
    yield replace(node, inputs=inputs, outputs=(names_between[0], *node.outputs[1:]), attrs=own_attributes)
    for op, source, target in zip(extra, names_between, (*names_between[1:], output), strict=True):
        yield Node(
            name=_unused_name(f"{node.name}/{op}", names),
            op=op,
            inputs=(source, added) if op == "Add" and added else (source,),
            outputs=(target,),
            attrs={} if op == "Add" else _attributes(node, op),
            origin=node.origin,
        )


def _attributes(node: Node, activation: str) -> dict[str, AttrValue]:
    parameters = node.attrs.get("activation_params", ())
    values = parameters if isinstance(parameters, tuple) else ()
    attributes: dict[str, AttrValue] = dict(zip(operators.of(activation).parameters, values, strict=False))
    for name, value in node.attrs.items():  # FusedGemm states its activation parameters by name
        if name.startswith("activation_") and name != "activation_params":
            attributes[name.removeprefix("activation_")] = value
    return attributes


def _unused_name(name: str, used_names: set[str]) -> str:
    while name in used_names:
        name += "'"
    used_names.add(name)
    return name
