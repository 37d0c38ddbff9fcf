"""Parts of a concatenated tensor, each judged as a separate result, however small it is among the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.measure.channel_axis import follow_axis
from qdebug.model import Node, Recording, operators
from qdebug.replay.real_form import real_form

__all__ = ["JoinedPart", "joined_parts", "joining_axis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPart:
    """One part of a concatenated tensor.

    Args:
        tensor: The input of the Concat.
        axis: The dimension of the concatenated tensor along which the parts lie.
        first: Start of the part there.
        stop: End of the part, exclusive.
        path: Tensors from `tensor` to the concatenated one, including both, in topological order.
    """

    tensor: str
    axis: int
    first: int
    stop: int
    path: tuple[str, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the part's slice of an array that has the dimensions of the joined tensor."""
        return values[(slice(None),) * self.axis + (slice(self.first, self.stop),)]

    def describe_position(self) -> str:
        """Return the position of the part: "places 4..83 along axis 1"."""
        places = f"place {self.first}" if self.stop - self.first == 1 else f"indices {self.first}..{self.stop - 1}"
        return f"{places} along axis {self.axis}"


def joined_parts(recording: Recording, tensor: str) -> tuple[JoinedPart, ...]:
    """Return the parts that a tensor was concatenated from, if only its format or shape changed afterwards.

    Args:
        recording: The run.
        tensor: One of its tensors.

    Returns:
        The parts in order, empty if nothing was concatenated or an extent is unknown.
    """
    node, shape = recording.graph.producer(tensor), _shape(recording, tensor)
    if node is None or shape is None:
        return ()
    node, _ = real_form(node, recording.graph.opset)
    row = operators.of(node.op)
    if row.joins:
        return _find_joined(recording, node, tensor, shape)
    source = next(iter(operators.operands(node)), "")
    source_shape = _shape(recording, source) if source else None
    if source_shape is None or not (row.arranges or row.keeps_values):
        return ()
    parts = []
    for part in joined_parts(recording, source):
        axis = follow_axis(node, part.axis, source_shape, shape)
        if axis is None or shape[axis] != source_shape[part.axis]:
            return ()
        parts.append(replace(part, axis=axis, path=(*part.path, tensor)))
    return tuple(parts)


def joining_axis(recording: Recording, node: Node, rank: int) -> int | None:
    """Return the non-negative dimension along which a node concatenates, or None for other nodes.

    Args:
        recording: The run that contains the node.
        node: The node.
        rank: Number of dimensions of its result.
    """
    form, _ = real_form(node, recording.graph.opset)
    axis = form.attrs.get("axis", 0)
    if not operators.of(form.op).joins or not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    return axis % rank


def _find_joined(recording: Recording, node: Node, tensor: str, shape: tuple[int, ...]) -> tuple[JoinedPart, ...]:
    axis, first = joining_axis(recording, node, len(shape)), 0
    if axis is None:
        return ()
    parts = []
    for name in operators.operands(node):
        extents = _shape(recording, name)
        if extents is None or len(extents) != len(shape):
            return ()
        parts.append(JoinedPart(tensor=name, axis=axis, first=first, stop=first + extents[axis], path=(name, tensor)))
        first += extents[axis]
    return tuple(parts) if first == shape[axis] else ()


def _shape(recording: Recording, tensor: str) -> tuple[int, ...] | None:
    """Return the declared or recorded shape of a tensor, or None if unknown."""
    declared = recording.graph.tensors[tensor].shape
    if declared is not None and None not in declared:
        return tuple(extent for extent in declared if extent is not None)
    return recording.load(tensor).shape if recording.has(tensor) else None
