"""Replays a recorded node by itself: on real numbers, in reference arithmetic, on its own recorded inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.numerics.affine import dequantize
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import run_node

__all__ = ["codes_shared", "compute", "inputs_of", "replay", "without_kernel"]


def replay(recording: Recording, node: Node, tensor: str, *, sample: int = 0, step: int = 0) -> np.ndarray:
    """Compute one output of a recorded node in real-valued reference arithmetic on its recorded inputs.

    Raises:
        KernelError: There is no kernel, or the inputs do not fit it.
        RecordingError: An input was not recorded.
    """
    form, opset = real_form(node, recording.graph.opset)
    return compute(node, form, opset, inputs_of(recording, form, sample, step))[tensor]


def inputs_of(recording: Recording, form: Node, sample: int, step: int) -> dict[str, np.ndarray]:
    """Load a node's inputs as real values.

    Args:
        recording: The run that the node is of.
        form: The node's real form.
        sample: Which sample.
        step: Which step.

    Raises:
        RecordingError: An input was not recorded.
    """
    values = {}
    for name in form.inputs:
        if name:
            if not recording.has(name, sample, step):
                raise RecordingError(f"Its input {name!r} was not recorded.")
            quant = recording.graph.tensors[name].quant or codes_shared(recording, form, name)
            quant = None if operators.of(form.op).takes_codes else quant
            values[name] = dequantize(recording.load(name, sample, step), quant)
    return values


def codes_shared(recording: Recording, form: Node, name: str) -> QuantParams | None:
    """Give the quantization of what a node reads with a constant in the same codes; None if it is in no codes.

    What a Pad fills in among codes, or a Clip holds them to, is a code as well.

    Args:
        recording: The run that the node is of.
        form: The node.
        name: One of its inputs.
    """
    if form.inputs.index(name) not in operators.of(form.op).in_codes or not recording.graph.is_constant(name):
        return None
    data = recording.graph.tensors[form.inputs[0]]
    return None if data.quant is None or data.quant.per_channel else data.quant


def compute(
    node: Node, form: Node, opset: Mapping[str, int], values: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Run a node's real form; kernels of real numbers want channels second.

    Args:
        node: The node.
        form: Its real form.
        opset: Version of each operator set that the form is to be read by.
        values: Its inputs.

    Raises:
        KernelError: There is no kernel, or the inputs do not fit it.
    """
    if form.op != node.op and node.attrs.get("channels_last"):
        turned = {**values, form.inputs[0]: np.moveaxis(values[form.inputs[0]], -1, 1)}
        return {name: np.moveaxis(array, 1, -1) for name, array in run_node(form, turned, opset).items()}
    return run_node(form, values, opset)


def without_kernel(node: Node) -> str:
    """Say why a node of an operator without kernel cannot be replayed."""
    if operators.of(node.op).holds_nodes and not node.domain:
        return f"the nodes inside this {node.op} were not recorded"
    return f"no kernel is known for {node.op}"
