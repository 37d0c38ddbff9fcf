"""Tells how much of a node's error each of its inputs brings, by replaying the node.

The error of an input says little about that. An index that is off by one is off by little, and what it picks may be
wrong altogether; a large error of a small term counts for nothing beside a large one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from qdebug.compare.align.layouts import in_one_order, into_stored_order
from qdebug.compare.attribute.backend_replay import read, real_values
from qdebug.compare.attribute.band import minus, norm
from qdebug.compare.attribute.graph_walk import between
from qdebug.compare.attribute.reference_replay import ReferenceReplay
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node
from qdebug.replay.extents import recorded_room
from qdebug.replay.segment import run_segment

__all__ = ["errors_by_input", "partner_values", "replayed_with"]


def partner_values(replays: ReferenceReplay, tensor: str, place: tuple[int, int]) -> np.ndarray:
    """Return the reference's real values of a compared backend tensor, arranged as the backend stores it.

    Args:
        replays: Both runs and their pairs.
        tensor: The backend tensor.
        place: Sample and step.

    Returns:
        The reference's elements in the backend's dimensions; in the reference's own where the shapes differ.

    Raises:
        KernelError: The backend keeps the tensor in blocks of channels.
        RecordingError: One side was not recorded.
    """
    pair = replays.pairs[tensor]
    theirs = real_values(replays.ref.recording, pair.reference, place)
    ours = real_values(replays.be.recording, tensor, place)
    turned, _ = in_one_order(theirs, pair.reference_view, ours, pair.backend_view)
    stored = into_stored_order(turned, pair.backend_view)
    return stored.reshape(ours.shape) if stored.size == ours.size else stored


def errors_by_input(
    replays: ReferenceReplay, tensor: str, names: Sequence[str], place: tuple[int, int]
) -> Mapping[str, float] | None:
    """Return the error that each of some inputs alone makes of a compared tensor.

    The node is replayed with the reference's values of everything it reads, then with the backend's values of one
    input: the norm of the difference is that input's. It is infinite where the shape differs.

    Args:
        replays: Both runs and their pairs.
        tensor: A compared backend tensor.
        names: The compared backend tensors that its node reads, directly or through tensors without a partner.
        place: Sample and step.

    Returns:
        None if the node cannot be replayed.
    """
    nodes, entries = between(replays.be.recording.graph, tensor, replays.pairs)
    try:
        theirs = {name: partner_values(replays, name, place) for name in entries}
        plain = replayed_with(replays, nodes, tensor, theirs, place)
        found = {}
        for name in names:
            others = {each: values for each, values in theirs.items() if each != name}
            found[name] = _distance(plain, replayed_with(replays, nodes, tensor, others, place))
        return found
    except (KernelError, NotRecordedError, UsageError):
        return None


def replayed_with(
    replays: ReferenceReplay,
    nodes: Sequence[Node],
    tensor: str,
    instead: Mapping[str, np.ndarray],
    place: tuple[int, int],
) -> np.ndarray:
    """Replay nodes of the backend on what it recorded, but for some inputs.

    Args:
        replays: Both runs and their pairs.
        nodes: The nodes, in order.
        tensor: The backend tensor that is asked for.
        instead: Values that take the place of recorded ones, by backend tensor.
        place: Sample and step.

    Raises:
        KernelError: A node cannot be replayed, or none of them makes the tensor.
        RecordingError: An input was not recorded.
    """
    recording = replays.be.recording

    def load(form: Node, name: str) -> np.ndarray:
        ours = read(recording, place, form, name)
        return instead[name].astype(ours.dtype) if name in instead else ours

    with recorded_room(recording, place):
        made = run_segment(nodes, tensor, recording.graph.opset, load)
    if made is None:
        raise KernelError(f"A replay does not give {tensor!r}.")
    return made


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the norm of a difference; infinite where the shapes differ or one side alone is not finite."""
    if one.shape != other.shape:
        return math.inf
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    apart = np.where(same, 0.0, minus(one, other))
    return norm(apart) if np.all(np.isfinite(apart)) else math.inf
