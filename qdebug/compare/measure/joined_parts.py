"""Parts of a tensor that were joined to it: each is a result of its own, however small it is beside the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qdebug.compare.measure.channel_axis import taken_along
from qdebug.model import Node, Recording, operators
from qdebug.replay.real_form import real_form

__all__ = ["JoinedPart", "joined_parts", "joining_axis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPart:
    """One part of a tensor that a Concat has joined.

    Args:
        tensor: What the Concat reads.
        axis: The dimension of the joined tensor along which the parts lie.
        first: Where the part begins there.
        stop: Where it ends; not included.
        way: Tensors from `tensor` to the joined one, both included, in the order of computation.
    """

    tensor: str
    axis: int
    first: int
    stop: int
    way: tuple[str, ...]

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the part of an array with the dimensions of the joined tensor."""
        return values[(slice(None),) * self.axis + (slice(self.first, self.stop),)]

    def words(self) -> str:
        """Return the places of the part: "places 4..83 along axis 1"."""
        places = f"place {self.first}" if self.stop - self.first == 1 else f"places {self.first}..{self.stop - 1}"
        return f"{places} along axis {self.axis}"


def joined_parts(recording: Recording, tensor: str) -> tuple[JoinedPart, ...]:
    """Return the parts that a Concat has joined to a tensor, if only its format or its dimensions changed since.

    Args:
        recording: The run.
        tensor: One of its tensors.

    Returns:
        The parts in their order; none where nothing was joined, or an extent is not known.
    """
    node, shape = recording.graph.producer(tensor), _shape(recording, tensor)
    if node is None or shape is None:
        return ()
    node, _ = real_form(node, recording.graph.opset)
    row = operators.of(node.op)
    if row.joins:
        return _joined(recording, node, tensor, shape)
    source = next(iter(operators.operands(node)), "")
    before = _shape(recording, source) if source else None
    if before is None or not (row.arranges or row.keeps_values):
        return ()
    found = []
    for part in joined_parts(recording, source):
        axis = taken_along(node, part.axis, before, shape)
        if axis is None or shape[axis] != before[part.axis]:
            return ()
        found.append(replace(part, axis=axis, way=(*part.way, tensor)))
    return tuple(found)


def joining_axis(recording: Recording, node: Node, rank: int) -> int | None:
    """Return the dimension, not negative, along which a node joins what it reads; None if it joins nothing.

    Args:
        recording: The run that the node is of.
        node: The node.
        rank: Number of dimensions of its result.
    """
    form, _ = real_form(node, recording.graph.opset)
    axis = form.attrs.get("axis", 0)
    if not operators.of(form.op).joins or not isinstance(axis, int) or not -rank <= axis < rank:
        return None
    return axis % rank


def _joined(recording: Recording, node: Node, tensor: str, shape: tuple[int, ...]) -> tuple[JoinedPart, ...]:
    axis, first = joining_axis(recording, node, len(shape)), 0
    if axis is None:
        return ()
    found = []
    for name in operators.operands(node):
        own = _shape(recording, name)
        if own is None or len(own) != len(shape):
            return ()
        found.append(JoinedPart(tensor=name, axis=axis, first=first, stop=first + own[axis], way=(name, tensor)))
        first += own[axis]
    return tuple(found) if first == shape[axis] else ()


def _shape(recording: Recording, tensor: str) -> tuple[int, ...] | None:
    """Return the extents of a tensor, as they are declared or else as they were recorded; None if not known."""
    declared = recording.graph.tensors[tensor].shape
    if declared is not None and None not in declared:
        return tuple(extent for extent in declared if extent is not None)
    return recording.load(tensor).shape if recording.has(tensor) else None
