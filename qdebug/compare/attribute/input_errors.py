"""Measures how much of a node's error comes from each of its inputs, by replaying the node.

The size of an input's error says little about its effect. An index that is off by one may select a completely wrong
element, and a large relative error of a small term is negligible next to a large term.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qdebug.compare.align.layouts import in_one_order, into_stored_order
from qdebug.compare.attribute.backend_replay import load_input, real_values
from qdebug.compare.attribute.band import minus, norm
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node
from qdebug.replay.extents import recorded_limits
from qdebug.replay.segment import run_segment

__all__ = ["errors_by_input", "partner_values", "replay_with"]


def partner_values(replays: ReferenceReplay, tensor: str, place: tuple[int, int]) -> np.ndarray:
    """Return the reference's real values of a compared backend tensor, arranged as the backend stores it.

    Args:
        replays: Both runs and their pairs.
        tensor: The backend tensor.
        place: Sample and step.

    Returns:
        The reference's elements in the backend's dimension order, or in the reference's own order if the shapes differ.

    Raises:
        KernelError: The backend stores the tensor in blocks of channels.
        RecordingError: One side was not recorded.
    """
    pair = replays.pairs[tensor]
    reference_values = real_values(replays.ref.recording, pair.reference, place)
    backend_values = real_values(replays.be.recording, tensor, place)
    in_backend_order, _ = in_one_order(reference_values, pair.reference_view, backend_values, pair.backend_view)
    stored = into_stored_order(in_backend_order, pair.backend_view)
    return stored.reshape(backend_values.shape) if stored.size == backend_values.size else stored


def errors_by_input(
    replays: ReferenceReplay, tensor: str, names: Sequence[str], place: tuple[int, int]
) -> Mapping[str, float] | None:
    """Return the error that each of the given inputs causes on its own in a compared tensor.

    The node is replayed with the reference's values of all inputs, then with the backend's value of one input. The norm
    of the difference is the error caused by that input. It is infinite if the shapes differ.

    Args:
        replays: Both runs and their pairs.
        tensor: A compared backend tensor.
        names: The compared backend tensors that its node reads, directly or through tensors without a partner.
        place: Sample and step.

    Returns:
        The error by input, or None if the node cannot be replayed.
    """
    nodes, entries = between(replays.be.recording.graph, tensor, replays.pairs)
    try:
        reference_values = {name: partner_values(replays, name, place) for name in entries}
        baseline = replay_with(replays, nodes, tensor, reference_values, place)
        errors = {}
        for name in names:
            other_values = {other_name: values for other_name, values in reference_values.items() if other_name != name}
            errors[name] = _distance(baseline, replay_with(replays, nodes, tensor, other_values, place))
        return errors
    except (KernelError, NotRecordedError, UsageError):
        return None


def replay_with(
    replays: ReferenceReplay,
    nodes: Sequence[Node],
    tensor: str,
    instead: Mapping[str, np.ndarray],
    place: tuple[int, int],
) -> np.ndarray:
    """Replay nodes of the backend on its recorded inputs, with some inputs replaced.

    Args:
        replays: Both runs and their pairs.
        nodes: The nodes, in order.
        tensor: The backend tensor to return.
        instead: Values that replace recorded ones, by backend tensor.
        place: Sample and step.

    Raises:
        KernelError: A node cannot be replayed, or none of them computes the tensor.
        RecordingError: An input was not recorded.
    """
    recording = replays.be.recording

    def load(form: Node, name: str) -> np.ndarray:
        values = load_input(recording, place, form, name)
        return instead[name].astype(values.dtype) if name in instead else values

    with recorded_limits(recording, place):
        results = run_segment(nodes, tensor, recording.graph.opset, load)
    if results is None:
        raise KernelError(f"The replay does not produce {tensor!r}.")
    return results


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the norm of a difference, or infinity if the shapes differ or only one side is finite."""
    if first.shape != second.shape:
        return math.inf
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    difference = np.where(same, 0.0, minus(first, second))
    return norm(difference) if np.all(np.isfinite(difference)) else math.inf
