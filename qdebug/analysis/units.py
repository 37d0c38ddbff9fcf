"""Quantized nodes of a recording as units: operands and output as they were recorded, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qdebug.errors import KernelError, QdebugError, RecordingError
from qdebug.model import Node, Recording
from qdebug.model.dtypes import is_integer
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit
from qdebug.replay.unit_calls import unit_of_call

__all__ = ["Place", "UnitSource", "is_quantized", "missing_values", "recorded_outputs"]

Place = tuple[int, int]
"""A sample and a step."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitSource:
    """A quantized node of a recording.

    Args:
        recording: The backend's recording.
        node: The node.
        tensor: The output that is looked at.
        places: Samples and steps for which all that is needed was recorded.
    """

    recording: Recording
    node: Node
    tensor: str
    places: tuple[Place, ...]

    def unit(self, place: Place) -> Unit:
        """Make the unit of one sample and step.

        Raises:
            KernelError: The node is no quantized unit, or its operands do not fit it.
            RecordingError: An operand cannot be read.
        """
        values = {name: self.recording.load(name, *place) for name in dict.fromkeys(self.node.inputs) if name}
        unit = _unit(self.recording, self.node, values)
        if unit is None:
            raise KernelError(f"{self.node.op} is computed in no known quantized way.")
        return unit

    def codes(self, place: Place) -> np.ndarray:
        """Load the recorded output of one sample and step, in the node's own layout."""
        return self.recording.load(self.tensor, *place)


def is_quantized(recording: Recording, node: Node, tensor: str) -> bool:
    """Tell whether a node computes on codes: whether it can only be a unit or has no explanation."""
    info = recording.graph.tensors[tensor]
    if node.op in ("QuantizeLinear", "DequantizeLinear") or node.op.startswith("QLinear") or node.op == "QGemm":
        return True
    return info.quant is not None and is_integer(info.quant.dtype) and (info.dtype is None or is_integer(info.dtype))


def missing_values(recording: Recording, node: Node, tensor: str) -> str | None:
    """Say which values of a node were recorded for no sample; None if nothing is missing."""
    for name in node.inputs:
        if name and not _anywhere(recording, name):
            return f"its input {name!r} was not recorded"
    return None if _anywhere(recording, tensor) else f"its output {tensor!r} was not recorded"


def recorded_outputs(recording: Recording, node: Node, tensor: str) -> tuple[Place, ...]:
    """List the samples and steps of which a node's inputs and output were recorded."""
    needed = [tensor, *(name for name in node.inputs if name)]
    return tuple(place for place in _places(recording) if all(recording.has(name, *place) for name in needed))


def find_unit(recording: Recording, node: Node, tensor: str) -> UnitSource | str:
    """Find the unit that a node computes, or say why there is none.

    Args:
        recording: The backend's recording.
        node: A node.
        tensor: One of its outputs.
    """
    places = recorded_outputs(recording, node, tensor)
    if not places:
        return (
            missing_values(recording, node, tensor) or "its inputs and output were never recorded for the same sample"
        )
    source = UnitSource(recording=recording, node=node, tensor=tensor, places=places)
    try:
        source.unit(places[0])
    except (KernelError, RecordingError, QdebugError) as error:
        return error.message
    return source


def _unit(recording: Recording, node: Node, values: dict[str, np.ndarray]) -> Unit | None:
    opset = recording.graph.opset
    call = Call(
        inputs=tuple(values[name] if name else None for name in node.inputs),
        attrs=node.attrs,
        opset=opset.get(node.domain, 1000),
        outputs=len(node.outputs),
        op=node.op,
        node=node.name,
    )
    return unit_of_call(call)


def _anywhere(recording: Recording, name: str) -> bool:
    return any(recording.has(name, *place) for place in _places(recording))


def _places(recording: Recording) -> Sequence[Place]:
    return [(sample, step) for sample in range(recording.samples) for step in range(recording.steps)]
