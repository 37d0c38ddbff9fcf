"""Booleans and integers that are not codes: indices, shapes, token ids, masks. They are never rounded.

A code stands for a rounded number, so an adjacent code may be just as good. An index that is off by one is wrong,
however large it is. Such tensors must equal the result computed from their inputs, or their node is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.compare.align.pairs import Pair
from qdebug.model import Graph, Node, operators
from qdebug.model.dtypes import is_float, is_integer, is_whole
from qdebug.model.operators import operands
from qdebug.model.thresholds.attribution import (
    INTEGER_ORIGIN_MAX_TENSORS,
    UNDECLARED_CODE_MAX_BITS,
    UNDECLARED_SUM_MAX_BITS,
)

__all__ = [
    "break_ties_as_recorded",
    "count_reordered_ties",
    "find_tensor_without_scale",
    "holds_few_bits",
    "holds_whole_numbers",
    "picked_values",
    "rounds_nothing",
    "rounds_to_integers",
]


def holds_whole_numbers(reference: Graph, backend: Graph, pair: Pair) -> bool:
    """Return whether a compared tensor holds booleans, or integers that are not codes.

    The reference decides, because the backend may store an index as a float.

    Args:
        reference: The reference's graph.
        backend: The backend's.
        pair: The two tensors.
    """
    sides = (reference, pair.reference), (backend, pair.backend)
    dtypes = [graph.tensors[name].dtype or "" for graph, name in sides]
    if any(graph.tensors[name].quant is not None for graph, name in sides) or not is_whole(dtypes[0]):
        return False
    return not any(is_integer(dtype) and _may_be_codes(*side) for dtype, side in zip(dtypes, sides, strict=True))


def find_tensor_without_scale(reference: Graph, backend: Graph, pair: Pair) -> str | None:
    """Return the tensor of a pair that holds codes without a known scale while the other holds reals, or None.

    Args:
        reference: The reference's graph.
        backend: The backend's.
        pair: The two tensors.
    """
    sides = (reference, pair.reference), (backend, pair.backend)
    bare = [_may_hold_codes_without_scale(*side) for side in sides]
    if bare[0] == bare[1]:
        return None  # codes are compared with codes, and reals with reals
    info = backend.tensors[pair.backend] if bare[0] else reference.tensors[pair.reference]
    if info.quant is None and not is_float(info.dtype or ""):
        return None
    return pair.reference if bare[0] else pair.backend


def _may_hold_codes_without_scale(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor holds integers without a scale that may be codes."""
    if graph.tensors[tensor].quant is not None or not is_integer(graph.tensors[tensor].dtype or ""):
        return False
    return holds_few_bits(graph, tensor) or _may_be_codes(graph, tensor)


def holds_few_bits(graph: Graph, tensor: str) -> bool:
    """Return whether a tensor holds integers of a bit width used for codes.

    Args:
        graph: The graph.
        tensor: One of its tensors.
    """
    dtype = graph.tensors[tensor].dtype or ""
    return is_integer(dtype) and int(dtype.removeprefix("u").removeprefix("int")) <= UNDECLARED_CODE_MAX_BITS


def _may_be_codes(graph: Graph, tensor: str) -> bool:
    """Return whether an integer tensor can hold codes or sums of codes, judging by its operator or inputs."""
    waiting, visited = [tensor], {tensor}
    while waiting and len(visited) <= INTEGER_ORIGIN_MAX_TENSORS:
        name = waiting.pop()
        deciding = _deciding_inputs(graph, name)
        if deciding is None:
            return True
        waiting += [name_upstream for name_upstream in deciding if name_upstream not in visited]
        visited.update(deciding)
    return bool(waiting)


def _deciding_inputs(graph: Graph, tensor: str) -> tuple[str, ...] | None:
    """Return the inputs that decide whether a tensor holds codes.

    Returns () if it holds none, and None if it holds codes or may hold them whatever its inputs are.
    """
    info = graph.tensors[tensor]
    dtype = info.dtype or ""
    if info.quant is not None:
        return None
    if not is_integer(dtype) or graph.is_constant(tensor):
        return ()
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    node = graph.producer(tensor)
    if node is None:
        return None if bits <= UNDECLARED_SUM_MAX_BITS and tensor not in graph.inputs else ()
    row = operators.of(node.op)
    if row.gives_codes:
        return None
    if row.counts or (row.indices_beside and tensor != node.outputs[0]):
        return ()
    integer_inputs = tuple(name for name in operands(node) if name and is_whole(graph.tensors[name].dtype or ""))
    if row.moves or row.keeps_values or row.selects or row.casts:
        return integer_inputs
    return (
        None
        if not integer_inputs and bits <= (UNDECLARED_CODE_MAX_BITS if node.inputs else UNDECLARED_SUM_MAX_BITS)
        else integer_inputs
    )


def rounds_to_integers(node: Node) -> bool:
    """Return whether an operator rounds real numbers to integers, so that a result off by one may be just as right."""
    return operators.of(node.op).real_inside and node.attrs.get("mode", "linear") != "nearest"


def rounds_nothing(node: Node) -> bool:
    """Return whether an operator gives the same result on every machine."""
    row = operators.of(node.op)
    return row.rounds_nothing or row.casts or row.counts is not None


def count_reordered_ties(
    node: Node, values: Mapping[str, np.ndarray], replayed: np.ndarray, recorded: np.ndarray
) -> int:
    """Count the indices that differ from the replay but point to an equal value: ties that were broken differently.

    Args:
        node: The node. A node that does not return indices counts 0.
        values: Its inputs.
        replayed: The replayed indices.
        recorded: The recorded indices, of the same rank.
    """
    data = values.get(node.inputs[0])
    values_picked = None if data is None else picked_values(node, data, replayed, recorded)
    if values_picked is None:
        return 0
    return int(
        np.count_nonzero(
            (values_picked[0] == values_picked[1]) & (replayed != recorded).reshape(values_picked[0].shape)
        )
    )


def break_ties_as_recorded(
    node: Node, values: Mapping[str, np.ndarray], indices: np.ndarray, recorded: np.ndarray
) -> np.ndarray:
    """Return indices with ties broken as recorded, if the node does not specify the order of equal values.

    ONNX defines the order. PyTorch and OpenVINO do not, unless an attribute asks for it. Slices in which a
    recorded index occurs twice are left unchanged, because no order of ties repeats an index.

    Args:
        node: The node.
        values: Its inputs.
        indices: Indices computed by a replay of the node, with ties in any order.
        recorded: The recorded indices.
    """
    data = values.get(node.inputs[0]) if node.attrs.get("stable", 1) == 0 else None
    picked = None if data is None else picked_values(node, data, indices, recorded)
    axis = node.attrs.get("axis", operators.of(node.op).default_axis)
    if picked is None or not isinstance(axis, int) or recorded.shape != picked[0].shape:
        return indices
    ordered = np.sort(recorded, axis=axis)
    repeats = np.any(np.diff(ordered, axis=axis) == 0, axis=axis, keepdims=True)
    return np.asarray(np.where((picked[0] == picked[1]) & ~repeats, recorded, indices))


def picked_values(
    node: Node, data: np.ndarray, first_indices: np.ndarray, second_indices: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the values that two sets of indices from one node point to.

    Args:
        node: The node.
        data: The data that the node selects from.
        first_indices: Indices.
        second_indices: Other indices of the same rank.

    Returns:
        Both sets of values, or None if the node does not return indices or an index is out of range.
    """
    indices = [np.asarray(side, np.int64) for side in (first_indices, second_indices)]
    axis = node.attrs.get("axis", operators.of(node.op).default_axis)
    if not operators.of(node.op).picks_index or not data.ndim or indices[0].shape != indices[1].shape:
        return None
    if not isinstance(axis, int) or not -data.ndim <= axis < data.ndim:
        return None
    if indices[0].ndim == data.ndim - 1:  # an ArgMax without keepdims
        indices = [np.expand_dims(side, axis % data.ndim) for side in indices]
    extent = data.shape[axis]
    if indices[0].ndim != data.ndim or any(np.any((side < 0) | (side >= extent)) for side in indices):
        return None
    first_values, second_values = (np.take_along_axis(data, side, axis) for side in indices)
    return first_values, second_values
