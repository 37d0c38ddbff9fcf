"""Parts of two graphs between compared tensors, which each of the two may compute in its own way."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model.thresholds.alignment import SEGMENT_MAX_NODES
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel

__all__ = ["between", "why_unchecked"]


def between(run: IndexedRecording, tensor: str, ends: Collection[str]) -> tuple[set[str], set[str]] | None:
    """Find what lies between a tensor and the nearest given ones above it.

    Args:
        run: The run.
        tensor: Where the part ends.
        ends: Roots of the classes where it may begin.

    Returns:
        The tensors in between, and the roots where it begins; None if an input of the network that is not among `ends`
        leads there, or if the part is too large.
    """
    inside: set[str] = set()
    reached: set[str] = set()
    producer, data_inputs, root_of = run.graph.producer, run.data_inputs, run.root
    own = root_of(tensor)
    waiting = [tensor]
    while waiting:
        node = producer(waiting.pop())
        if node is None or len(inside) > SEGMENT_MAX_NODES:
            return None
        for name in data_inputs(node):
            root = root_of(name)
            if root in ends and root != own:
                reached.add(root)
            elif name not in inside:
                inside.add(name)
                waiting.append(name)
    return inside, reached


def why_unchecked(run: IndexedRecording, tensor: str, inside: Iterable[str]) -> str:
    """Say why a part of a graph cannot be replayed, so that what another graph does in its place is not checked.

    Args:
        run: The run.
        tensor: Where the part ends.
        inside: The tensors in it.

    Returns:
        A clause; "" if nothing is in the way.
    """
    graph = run.recording.graph
    for name in (tensor, *sorted(inside)):
        node = graph.producer(name)
        if node is None:
            continue
        form, _ = real_form(node, graph.opset)
        if not has_kernel(form.op, form.domain):
            return f"no kernel is known for {node.op}"
        for read in form.inputs:
            if read and run.folds(read) and not any(map(run.has, run.members(read))):
                return f"the constant {read!r} was not recorded"
    return ""
