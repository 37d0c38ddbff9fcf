"""Replays recorded nodes on their own recorded inputs, in real-valued reference arithmetic."""

from __future__ import annotations

from functools import partial

import numpy as np

from qdebug.compare.align.layouts import in_reference_order
from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.integer_tensors import holds_few_bits
from qdebug.compare.attribute.segments import Segment
from qdebug.errors import KernelError, NoScaleError, NotRecordedError
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.dtypes import is_float
from qdebug.model.thresholds.attribution import COMPUTED_CONSTANT_MAX_NODES
from qdebug.numerics.affine import dequantize
from qdebug.replay.extents import recorded_limits
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel, run_node
from qdebug.replay.segment import Run, run_form, run_real, run_segment

__all__ = [
    "describe_missing_kernel",
    "inputs_of",
    "is_undefined",
    "load_input",
    "quant_shared_with_data",
    "real_values",
    "replay",
    "replay_own",
]


def replay(recording: Recording, node: Node, tensor: str, place: tuple[int, int]) -> np.ndarray:
    """Compute one output of a recorded node in real-valued reference arithmetic on its recorded inputs.

    Raises:
        KernelError: There is no kernel, or the inputs do not fit it.
        RecordingError: An input was not recorded.
    """
    form, opset = real_form(node, recording.graph.opset)
    with recorded_limits(recording, place):
        return run_form(node, form, opset, inputs_of(recording, form, place))[tensor]


def replay_own(
    recording: Recording,
    pair: Pair,
    segment: Segment,
    shape: tuple[int, ...],
    place: tuple[int, int],
    *,
    run: Run = run_real,
) -> np.ndarray:
    """Compute the backend's own nodes of a segment on real numbers.

    Args:
        recording: The backend run.
        pair: The pair whose backend tensor the segment ends in.
        segment: The segment.
        shape: The shape of the reference tensor, in the dimension order of the comparison.
        place: Sample and step.
        run: Computes one node.

    Returns:
        Real values in that order.

    Raises:
        KernelError: A node cannot be replayed.
        RecordingError: A constant or an input was not recorded.
    """
    with recorded_limits(recording, place):
        result = run_segment(
            segment.own, pair.backend, recording.graph.opset, partial(load_input, recording, place), run
        )
    if result is None:
        raise KernelError(f"the replay does not produce {pair.backend!r}")
    return in_reference_order(result, pair.backend_view, shape)


def inputs_of(recording: Recording, form: Node, place: tuple[int, int]) -> dict[str, np.ndarray]:
    """Load a node's inputs as real values.

    Args:
        recording: The run that contains the node.
        form: The node's real form.
        place: Sample and step.

    Raises:
        RecordingError: An input was not recorded.
    """
    return {name: load_input(recording, place, form, name) for name in form.inputs if name}


def load_input(recording: Recording, place: tuple[int, int], form: Node, name: str) -> np.ndarray:
    """Load an input of a node as real values, or as stored if the node takes codes or casts codes to plain numbers.

    An unrecorded input that depends on recorded constants alone, such as a dequantized weight, is computed.

    Args:
        recording: The run that contains the node.
        place: Sample and step.
        form: The node's real form.
        name: The input.

    Raises:
        RecordingError: It was not recorded and does not follow from constants.
    """
    if not recording.has(name, *place):
        computed = _compute_from_constants(recording, name)
        if computed is None:
            raise NotRecordedError(f"Its input {name!r} was not recorded.")
        return computed
    quant = recording.graph.tensors[name].quant or quant_shared_with_data(recording, form, name)
    if quant is None and _needs_scale(recording, form, name):
        raise NoScaleError(f"No scale was recorded for its input {name!r}.")
    row, output_info = operators.of(form.op), recording.graph.tensors.get(form.outputs[0])
    keeps_codes = row.takes_codes or (row.casts and output_info is not None and output_info.quant is None)
    return dequantize(recording.load(name, *place), None if keeps_codes else quant)


def _compute_from_constants(recording: Recording, name: str, depth: int = 0) -> np.ndarray | None:
    """Compute a tensor of real values from recorded constants, or return None if it does not depend on these alone."""
    graph = recording.graph
    node = graph.producer(name)
    if node is None or not any(node.inputs) or depth >= COMPUTED_CONSTANT_MAX_NODES or graph.tensors[name].quant:
        return None
    values: dict[str, np.ndarray] = {}
    for each in filter(None, node.inputs):
        is_recorded = graph.is_constant(each) and recording.has(each)
        array = recording.load(each) if is_recorded else _compute_from_constants(recording, each, depth + 1)
        if array is None:
            return None
        values[each] = array
    try:
        return run_node(node, values, graph.opset)[name]
    except KernelError:
        return None


def _needs_scale(recording: Recording, form: Node, name: str) -> bool:
    """Return whether an input lacks the scale that its node needs to compute real values, or codes of a known scale."""
    graph, row = recording.graph, operators.of(form.op)
    if graph.is_constant(name) or not holds_few_bits(graph, name) or row.takes_codes or row.sums_codes or row.casts:
        return False
    output_info = graph.tensors.get(form.outputs[0])
    if output_info is None:  # a node of the other run is replayed in place of this one
        return True
    return output_info.quant is not None or (output_info.dtype is not None and is_float(output_info.dtype))


def real_values(recording: Recording, name: str, place: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Load a tensor as real values.

    Raises:
        RecordingError: It was not recorded.
    """
    if not recording.has(name, *place):
        raise NotRecordedError(f"Tensor {name!r} was not recorded.")
    return dequantize(recording.load(name, *place), recording.graph.tensors[name].quant)


def quant_shared_with_data(recording: Recording, form: Node, name: str) -> QuantParams | None:
    """Return the quantization that a constant input shares with the data of its node, or None if it shares none.

    The fill value of a Pad and the bounds of a Clip are codes if the data are.

    Args:
        recording: The run that contains the node.
        form: The node.
        name: One of its inputs.
    """
    if form.inputs.index(name) not in operators.of(form.op).in_codes or not recording.graph.is_constant(name):
        return None
    data = recording.graph.tensors[form.inputs[0]]
    return None if data.quant is None or data.quant.per_channel else data.quant


def is_undefined(node: Node) -> bool:
    """Return whether the operation of a node is unknown: its operator is neither in the table nor has a kernel."""
    return operators.is_unknown(node) and not has_kernel(node.op, node.domain)


def describe_missing_kernel(node: Node) -> str:
    """Return why a node cannot be replayed if its operator has no kernel."""
    if operators.of(node.op).holds_nodes and not node.domain:
        return f"the nodes inside this {node.op} were not recorded"
    if node.op == operators.UNKNOWN_OP:
        return "the recording does not state its operator"
    return f"no kernel is known for {node.op}"
