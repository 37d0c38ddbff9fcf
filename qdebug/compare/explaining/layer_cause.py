"""The cause of a wrong result of a fused layer, whose inner tensors were not recorded. Begin at `cause_inside`.

Three kinds of causes are tried in order: one node that is left out, applied twice or swapped with the next; a mistake
of a single node; one misreading that several operands share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np

from qdebug.arithmetic.mistakes.readings import misreadings
from qdebug.arithmetic.mistakes.repeats import other_repeats
from qdebug.compare.explaining.claims import LIKELY, MAX_REPORTED_MISTAKES, ONE_OFF
from qdebug.compare.explaining.fused import WithFused
from qdebug.compare.explaining.wrong_node import WrongNode
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording, operators
from qdebug.numerics.affine import dequantize

__all__ = ["cause_inside", "is_far_off"]

Place = tuple[int, int]


def is_far_off(recording: Recording, node: Node, tensor: str, places: Sequence[Place]) -> bool:
    """Return whether a node's output is far from its replay. If the node ends a fused layer, the layer is replayed.

    Args:
        recording: The run.
        node: The node.
        tensor: Its output.
        places: Samples and steps. Only the first is compared.
    """
    try:
        return WrongNode(WithFused(recording), node, tensor, places).is_far_off
    except (KernelError, NotRecordedError, UsageError):
        return False


def cause_inside(layers: WithFused, node: Node, tensor: str, places: Sequence[Place]) -> str | None:
    """Return a clause with the mistakes inside a fused layer that reproduce its output, and the nodes that make them.

    Args:
        layers: The run with tensors inside its layers computed.
        node: The last node of the layer.
        tensor: Its output.
        places: Samples and steps to examine.

    Returns:
        The clause. None if no mistake fits, if more than two fit, or if the error is too small to tell mistakes apart.
    """
    chains = [chain for name in node.inputs if name and (chain := layers.chain(name)) is not None]
    # Codes that the last node only passes on are rounded once; elsewhere, a second rounding hides the first.
    ends_in_codes = layers.graph.tensors[tensor].quant is not None and not operators.of(node.op).passes_codes
    if not chains or not places or (ends_in_codes and any(chain.makes_codes for chain in chains)):
        return None
    names = {inner.name for chain in chains for inner in chain.nodes}
    nodes = [*(inner for inner in layers.graph.nodes if inner.name in names), node]
    rearranged = _rearrangement_clause(layers, nodes, tensor, places)
    if rearranged is not None:
        return rearranged
    clauses = _mistakes_of_nodes(layers, nodes, tensor, places, WrongNode.cause_inside)
    clauses = clauses or _mistakes_of_nodes(layers, nodes, tensor, places, WrongNode.relation_inside)
    if not clauses:
        shared = _shared_misreading_clause(layers, node, tensor, places)
        if shared is not None:
            return shared
        clauses = _mistakes_of_nodes(layers, nodes, tensor, places, WrongNode.cause_in_part)
    exact_clauses = [(clause, claim) for clause, claim in clauses if not claim.startswith(ONE_OFF)]
    clauses = exact_clauses or clauses
    if not 0 < len(clauses) <= MAX_REPORTED_MISTAKES:
        return None
    claim = next((claim for _, claim in clauses if claim.startswith(ONE_OFF)), clauses[0][1])
    return f"{', or '.join(clause for clause, _ in clauses)}, inside the layer ({claim}"


def _mistakes_of_nodes(
    layers: WithFused,
    nodes: Sequence[Node],
    tensor: str,
    places: Sequence[Place],
    cause_of: Callable[[WrongNode], str | None],
) -> list[tuple[str, str]]:
    """Return the mistakes of single nodes that reproduce a layer's output.

    Args:
        layers: The run with tensors inside its layers computed.
        nodes: The nodes of the layer, in order.
        tensor: The output of the layer.
        places: Samples and steps to examine.
        cause_of: Returns the mistake of a node as a clause, or None.

    Returns:
        For each node with a mistake, a clause on it, and how exactly it reproduces the output.
    """
    clauses: list[tuple[str, str]] = []
    for at, node in enumerate(nodes[: None if len(nodes[-1].outputs) == 1 else -1]):
        later = _dependent_nodes(nodes[at + 1 :], node)
        if node is not nodes[-1] and not later:
            continue
        with suppress(KernelError, NotRecordedError, UsageError):
            case = WrongNode(layers, node, tensor, places, later)
            cause = cause_of(case) if case.is_far_off else None
            if cause is not None:
                mistake, _, claim = cause.removeprefix(LIKELY).rpartition(" (")
                clauses.append((f"{mistake} in {node.name!r} ({node.op})", claim))
    return clauses


def _rearrangement_clause(layers: WithFused, nodes: Sequence[Node], tensor: str, places: Sequence[Place]) -> str | None:
    """Return a clause if a layer with one node left out, applied twice or moved reproduces the output, or None."""
    with suppress(KernelError, NotRecordedError, UsageError):
        case = WrongNode(layers, nodes[-1], tensor, places)
        if not case.is_far_off:
            return None
        clauses = []
        repeated = _with_other_repeats(layers, nodes, places[0])
        for clause, changed in itertools.chain(_rearranged_layers(layers, nodes), repeated):
            last = changed.graph.producer(tensor)
            with suppress(KernelError, NotRecordedError, UsageError):
                if last is not None and all(
                    case.is_reproduced(_real_result(changed, last, place), place) for place in places
                ):
                    clauses.append(clause)
        if 0 < len(clauses) <= MAX_REPORTED_MISTAKES:
            return f"{', or '.join(clauses)}, inside the layer ({case.claim})"
    return None


def _rearranged_layers(layers: WithFused, nodes: Sequence[Node]) -> Iterator[tuple[str, WithFused]]:
    """Yield layers with one node left out, applied twice or moved, each with a clause on the change."""
    for first, second in _successive_nodes(layers, nodes):
        clause = f"{second.op} {second.name!r} is applied before {first.op} {first.name!r}"
        yield clause, _in_other_order(layers, first, second)
        yield from _with_misfolded_normalization(layers, first, second)
    for node in nodes:
        data = _data_input(layers, node)
        if data is not None and len(node.outputs) == 1:
            identity = Node(name=node.name, op="Identity", inputs=(data,), outputs=node.outputs)
            yield f"{node.op} {node.name!r} is left out", layers.with_nodes({node.name: [identity]})
            once = f"{node.outputs[0]} once"
            twice = [
                replace(node, name=f"{node.name} once", outputs=(once,)),
                replace(node, inputs=tuple(once if name == data else name for name in node.inputs)),
            ]
            yield f"{node.op} {node.name!r} is applied twice", layers.with_nodes({node.name: twice})


def _with_other_repeats(layers: WithFused, nodes: Sequence[Node], place: Place) -> Iterator[tuple[str, WithFused]]:
    """Yield layers in which tensors that repeat entries repeat them in another order: one of them, or all."""
    found = []
    for node in nodes:
        readers = layers.graph.consumers(node.outputs[0])
        is_moved_on = any(reader in nodes and operators.of(reader.op).rounds_nothing for reader in readers)
        if operators.of(node.op).rounds_nothing and len(node.outputs) == 1 and not is_moved_on:
            data = layers.run(node, {name: layers.load(name, *place) for name in filter(None, node.inputs)})
            for repeat in islice(other_repeats(data[node.outputs[0]]), 1):
                clause = f"{repeat.clause.format(repr(node.outputs[0]))} in {node.name!r} ({node.op})"
                found.append((clause, {node.outputs[0]: (repeat.axis, repeat.order)}))
    for clause, orders in found:
        yield clause, _with_reordered_tensors(layers, orders)
    if len(found) > 1:
        all_orders = {name: order for _, orders in found for name, order in orders.items()}
        yield " and ".join(clause for clause, _ in found), _with_reordered_tensors(layers, all_orders)


def _with_reordered_tensors(layers: WithFused, orders: Mapping[str, tuple[int, np.ndarray]]) -> WithFused:
    """Return a run with inner tensors in another order.

    Args:
        layers: The run with tensors inside its layers computed.
        orders: By name of a tensor, one of its axes and the index that is read for each index of the axis.
    """
    nodes: dict[str, list[Node]] = {}
    indices: dict[str, np.ndarray] = {}
    for tensor, (axis, order) in orders.items():
        maker, right, name = layers.graph.producer(tensor), f"{tensor} in order", f"{tensor} order"
        if maker is not None:
            gather = Node(name=name, op="Gather", inputs=(right, name), outputs=(tensor,), attrs={"axis": axis})
            nodes[maker.name], indices[name] = [replace(maker, outputs=(right,)), gather], order
    return layers.with_nodes(nodes, indices)


def _with_misfolded_normalization(layers: WithFused, first: Node, second: Node) -> Iterator[tuple[str, WithFused]]:
    """Yield layers whose BatchNormalization is folded into the weight of the node before along a wrong axis."""
    row, weight_name = operators.plain(first), operators.titled_input(first, 1)
    if second.op != "BatchNormalization" or not row.product or not layers.graph.is_constant(weight_name):
        return
    names, epsilon = second.inputs[1:], second.attrs.get("epsilon", 1e-5)
    if len(names) != len(_NORMALIZATION_INPUTS) or not all(map(layers.graph.is_constant, names)):
        return
    numbers = dict(zip(_NORMALIZATION_INPUTS, (layers.load(name).astype(np.float64) for name in names), strict=True))
    deviation = np.sqrt(numbers["variance"] + (epsilon if isinstance(epsilon, float) else 1e-5))
    factors, weight = numbers["scale"] / deviation, layers.load(weight_name).astype(np.float64)
    bias_name = first.inputs[row.bias] if row.bias is not None and row.bias < len(first.inputs) else ""
    bias = layers.load(bias_name).astype(np.float64) if bias_name else 0.0
    shift = numbers["bias"] + (bias - numbers["mean"]) * factors - bias
    without_scale = {"scale": deviation, "bias": shift, "mean": np.zeros_like(shift), "variance": numbers["variance"]}
    rest = {
        name: without_scale[title].astype(np.float32) for title, name in zip(_NORMALIZATION_INPUTS, names, strict=True)
    }
    scaled = {
        f"along axis {axis} of {weight_name!r}": weight
        * factors.reshape([-1 if at == axis else 1 for at in range(weight.ndim)])
        for axis, extent in enumerate(weight.shape)
        if extent == factors.size
    }
    if weight.size % factors.size == 0:
        rows = weight.reshape(factors.size, -1) * factors[:, None]
        scaled[f"into {factors.size} rows of the memory of {weight_name!r}"] = rows.reshape(weight.shape)
    for place, other_weight in scaled.items():
        clause = f"the scale of {second.op} {second.name!r} is folded {place}, which are not its channels"
        yield clause, layers.with_values({weight_name: other_weight.astype(np.float32), **rest})


_NORMALIZATION_INPUTS = ("scale", "bias", "mean", "variance")
"""Inputs of a BatchNormalization after its data, in order."""


def _successive_nodes(layers: WithFused, nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of nodes in a layer, of which the second is the only reader of the first one's result."""
    for first in nodes[:-1]:
        readers = layers.graph.consumers(first.outputs[0])
        if len(readers) == 1 and readers[0] in nodes and _data_input(layers, first) is not None:
            yield first, readers[0]


def _data_input(layers: WithFused, node: Node) -> str | None:
    """Return the only input of a node that does not follow from constants alone, or None if it has none or several."""
    names = [
        name
        for name in dict.fromkeys(filter(None, node.inputs))
        if not all(map(layers.graph.is_constant, chain.reads if (chain := layers.chain(name)) else (name,)))
    ]
    return names[0] if len(names) == 1 else None


def _in_other_order(layers: WithFused, first: Node, second: Node) -> WithFused:
    """Return a run in which two successive nodes are swapped."""
    between, data = first.outputs[0], _data_input(layers, first) or ""
    earlier = replace(second, inputs=tuple(data if name == between else name for name in second.inputs))
    later = replace(first, inputs=tuple(between if name == data else name for name in first.inputs))
    exchanged = replace(earlier, outputs=(between,)), replace(later, outputs=second.outputs)
    return layers.with_nodes({first.name: exchanged[:1], second.name: exchanged[1:]})


def _real_result(layers: WithFused, node: Node, place: Place) -> np.ndarray:
    """Return the dequantized result of the last node of a layer."""
    values = {name: layers.load(name, *place) for name in dict.fromkeys(filter(None, node.inputs))}
    output = node.outputs[0]
    return dequantize(layers.run(node, values)[output], layers.graph.tensors[output].quant)


def _shared_misreading_clause(layers: WithFused, node: Node, tensor: str, places: Sequence[Place]) -> str | None:
    """Return a clause if one misreading shared by several operands, such as two tables, reproduces a layer's output."""
    with suppress(KernelError, NotRecordedError, UsageError):
        case = WrongNode(layers, node, tensor, places)
        if not case.is_far_off:
            return None
        for names in _operands_of_one_shape(layers, node, places[0]):
            for at, (clause, changes) in enumerate(
                islice(_misreadings_of_all(layers, names, places[0]), case.max_replays)
            ):
                if not case.is_reproduced(_real_result(layers.with_values(changes), node, places[0]), places[0]):
                    continue
                changes_elsewhere = [
                    next(islice(_misreadings_of_all(layers, names, place), at, None)) for place in places[1:]
                ]
                if all(
                    other_clause == clause
                    and case.is_reproduced(_real_result(layers.with_values(other), node, place), place)
                    for place, (other_clause, other) in zip(places[1:], changes_elsewhere, strict=True)
                ):
                    return f"{clause}, inside the layer ({case.claim})"
    return None


def _operands_of_one_shape(layers: WithFused, node: Node, place: Place) -> list[tuple[str, ...]]:
    """Group the recorded operands of a layer by shape and dtype, without groups of one."""
    names = dict.fromkeys(name for name in node.inputs if name and layers.chain(name) is None)
    for chain in filter(None, map(layers.chain, filter(None, node.inputs))):
        names |= dict.fromkeys(chain.reads)
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        array = layers.load(name, *place)
        if array.size > 1:
            groups.setdefault((array.shape, array.dtype), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _misreadings_of_all(
    layers: WithFused, names: Sequence[str], place: Place
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield each misreading applied to all given operands: a clause, and the values that are read, by operand."""
    for readings in zip(*(misreadings(layers.load(name, *place)) for name in names), strict=False):
        clause = readings[0][0].format(" and ".join(map(repr, names)))
        yield clause, {name: values for name, (_, values) in zip(names, readings, strict=True)}


def _dependent_nodes(nodes: Sequence[Node], first: Node) -> list[Node]:
    """Return the nodes that depend on the outputs of an earlier node.

    Args:
        nodes: Candidates, in topological order.
        first: The earlier node.
    """
    needed = set(first.outputs)
    depending = []
    for node in nodes:
        if needed & set(node.inputs):
            needed |= set(node.outputs)
            depending.append(node)
    return depending
