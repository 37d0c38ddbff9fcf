"""Checks state reads of networks that run in steps: a read returns the value written in the previous step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.model import Node, Recording, operators

__all__ = ["explain_state_read"]


def explain_state_read(recording: Recording, node: Node, tensor: str) -> NodeExplanation:
    """Compare the value that a node reads from a state with the value written in the previous step of the sample.

    States start at zero, so the value read in the first step is right if it is all zero. If it is not, it is not
    counted, because the initial value is unknown.

    Args:
        recording: The run.
        node: A node that reads a state.
        tensor: Its output.
    """
    answer = NodeExplanation(node=node.name, op=node.op, tensor=tensor, status=ExplainStatus.NO_INPUT)
    written = _tensor_written_to_state(recording, node)
    if written is None:
        return replace(answer, reason="no node of the graph writes the state that it reads")
    equal = total = 0
    for sample, step in recording.places(tensor):
        read = recording.load(tensor, sample, step)
        if step == 0:
            same = _is_zero(recording, tensor, read)
            equal, total = (equal + read.size, total + read.size) if same else (equal, total)
        elif recording.has(written, sample, step - 1):
            before = recording.load(written, sample, step - 1)
            same_shape = before.shape == read.shape
            equal += int(np.count_nonzero(before == read)) if same_shape else 0
            total += read.size
    if not total:
        return replace(answer, reason=f"the value of {written!r} before the first step was not recorded")
    difference_text = (
        None if equal == total else f"{total - equal} of {total} elements differ from {written!r} at the previous step"
    )
    return replace(
        answer,
        status=ExplainStatus.EXPLAINED if difference_text is None else ExplainStatus.UNEXPLAINED,
        reason=difference_text,
        kind="moved",
        words="the state written at the previous step",
        match=equal / total,
        elements=total,
        tried=1,
    )


def _tensor_written_to_state(recording: Recording, node: Node) -> str | None:
    """Return the tensor that another node writes to the state that a node reads, or None if no node does."""
    state = _state_identity(node)
    for other in recording.graph.nodes:
        if (
            operators.named(other.op).writes_state
            and state is not None
            and _state_identity(other) == state
            and other.inputs
        ):
            return other.inputs[-1]
    return None


def _state_identity(node: Node) -> object:
    """Return the name of the state that a node uses, or else its first input, which is the state's handle."""
    named = node.attrs.get("variable_id")
    return named if named is not None else next(iter(node.inputs), None)


def _is_zero(recording: Recording, tensor: str, values: np.ndarray) -> bool:
    quant = recording.graph.tensors[tensor].quant
    zero = 0 if quant is None or quant.zero_point.size > 1 else quant.zero_point.reshape(())
    return bool(np.all(values == zero))
