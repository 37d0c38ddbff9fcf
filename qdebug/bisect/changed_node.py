"""Find the first node at which two runs of one model are not bit-identical: `find_changed_node`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.model import Node, Recording
from qdebug.model.json_object import Count, JsonObject

__all__ = ["ChangedNode", "find_changed_node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedNode(JsonObject):
    """The first tensor that differs between two runs.

    Args:
        node: Node that computes the tensor in the second run.
        op: Operator of this node.
        op_before: Operator of the node that computes the tensor in the first run.
        tensor: The tensor.
        equal: Number of tensors of both runs that are computed before the tensor. All of them are equal.
        has_equal_inputs: Whether the node's recorded inputs are in both runs and equal. If not, the change may be in a
            node that only one run has, before this node.
        elements: Number of the tensor's elements in all samples and steps.
        different: Number of these elements that differ.
        max_abs: Largest absolute difference of finite values: in codes for a tensor of integers, else in real values.
        is_integer: Whether the tensor holds integers.
        nodes: Nodes of the second run that compute the tensor from tensors that are equal, in order and with `node`
            last.
        other_inputs: Inputs and constants of these nodes that are not known to be equal.
        placed_node: The first of `nodes` that ran elsewhere than in the first run; `node` if none did.
        placement: Where that node ran in the second run: a device, kernel or delegate, or "".
        placement_before: Where it ran in the first run.
    """

    node: str
    op: str
    op_before: str
    tensor: str
    equal: Count
    has_equal_inputs: bool
    elements: Count
    different: Count
    max_abs: float
    is_integer: bool
    nodes: Sequence[str] = ()
    other_inputs: Sequence[str] = ()
    placed_node: str = ""
    placement: str = ""
    placement_before: str = ""


def find_changed_node(before: Recording, after: Recording) -> ChangedNode | None:
    """Return the first tensor, in the order of the second run, that both runs recorded and that differs.

    Args:
        before: One run.
        after: Another run of the same model on the same inputs.
    """
    equal: set[str] = set()
    names = set(before.names)
    for node in after.graph.nodes:
        for tensor in node.outputs:
            if tensor not in names or not after.places(tensor):
                continue
            elements, different, max_abs = _count_differences(before, after, tensor)
            if not elements:
                continue
            if not different:
                equal.add(tensor)
                continue
            producer = before.graph.producer(tensor)
            nodes, other_inputs = _nodes_from_equal_tensors(before, after, node, equal)
            is_single = len(nodes) == 1 and not other_inputs
            placed_node = next((entry for entry in nodes if _placement(before, entry) != entry.placement), node)
            return ChangedNode(
                node=node.name,
                op=node.op,
                op_before="" if producer is None else producer.op,
                tensor=tensor,
                equal=len(equal),
                has_equal_inputs=is_single and producer is not None and _have_same_inputs(producer.inputs, node.inputs),
                elements=elements,
                different=different,
                max_abs=max_abs,
                is_integer=bool(after.load(tensor, *after.places(tensor)[0]).dtype.kind in "iu"),
                nodes=[entry.name for entry in nodes],
                other_inputs=other_inputs,
                placed_node=placed_node.name,
                placement=placed_node.placement,
                placement_before=_placement(before, placed_node),
            )
    return None


def _count_differences(before: Recording, after: Recording, tensor: str) -> tuple[int, int, float]:
    """Return the number of common elements of a tensor, how many differ, and the largest difference."""
    elements = different = 0
    max_abs = 0.0
    for place in after.places(tensor):
        if not (before.has(tensor, *place) and after.has(tensor, *place)):
            continue
        first, second = before.load(tensor, *place), after.load(tensor, *place)
        if first.shape != second.shape or first.dtype != second.dtype:
            return 0, 0, 0.0
        elements += first.size
        if first.tobytes() == second.tobytes():
            continue
        unequal = _bits(first) != _bits(second)
        different += int(np.count_nonzero(unequal))
        with np.errstate(invalid="ignore", over="ignore"):
            distances = np.abs(np.asarray(first, np.float64).ravel() - np.asarray(second, np.float64).ravel())
        finite = distances[np.isfinite(distances)]
        max_abs = max(max_abs, float(finite.max(initial=0.0)))
    return elements, different, max_abs


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the bit patterns of the elements, as unsigned integers of their size."""
    flat = np.ascontiguousarray(array).ravel()
    return flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.itemsize in (1, 2, 4, 8) else flat


def _nodes_from_equal_tensors(
    before: Recording, after: Recording, last: Node, equal: set[str]
) -> tuple[list[Node], list[str]]:
    """Return the nodes of the second run that compute a tensor from equal tensors, and their other inputs."""
    nodes: dict[str, Node] = {}
    other_inputs: dict[str, None] = {}
    pending = [last]
    while pending:
        node = pending.pop()
        nodes[node.outputs[0]] = node
        for name in filter(None, node.inputs):
            if name in equal or name in nodes or _is_equal(before, after, name):
                continue
            producer = after.graph.producer(name)
            if producer is None:
                other_inputs[name] = None
            else:
                pending.append(producer)
    return [node for node in after.graph.nodes if node.outputs[0] in nodes], list(other_inputs)


def _placement(recording: Recording, node: Node) -> str:
    """Return where the node that computes the same tensor ran."""
    producer = recording.graph.producer(node.outputs[0])
    return "" if producer is None else producer.placement


def _is_equal(before: Recording, after: Recording, name: str) -> bool:
    if name not in before.names or name not in after.names:
        return False
    elements, different, _ = _count_differences(before, after, name)
    return elements > 0 and not different


def _have_same_inputs(first: Sequence[str], second: Sequence[str]) -> bool:
    return set(filter(None, first)) == set(filter(None, second))
