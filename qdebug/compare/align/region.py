"""Regions of the two graphs between compared tensors, which may be computed differently."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model.thresholds.alignment import SEGMENT_MAX_NODES
from qdebug.replay.real_form import real_form
from qdebug.replay.registry import has_kernel

__all__ = ["between", "why_unchecked"]


def between(run: IndexedRecording, tensor: str, ends: Collection[str]) -> tuple[set[str], set[str]] | None:
    """Find the region between a tensor and the nearest of the given tensors upstream.

    Args:
        run: The run.
        tensor: The end of the region.
        ends: Roots of the classes where the region may begin.

    Returns:
        The tensors in between, and the roots where the region begins. None if another network input leads into it, or
            if the region is too large.
    """
    inside: set[str] = set()
    reached: set[str] = set()
    producer, data_inputs, root_of = run.graph.producer, run.data_inputs, run.root
    own_root = root_of(tensor)
    waiting = [tensor]
    while waiting:
        node = producer(waiting.pop())
        if node is None or len(inside) > SEGMENT_MAX_NODES:
            return None
        for name in data_inputs(node):
            root = root_of(name)
            if root in ends and root != own_root:
                reached.add(root)
            elif name not in inside:
                inside.add(name)
                waiting.append(name)
    return inside, reached


def why_unchecked(run: IndexedRecording, tensor: str, inside: Iterable[str]) -> str:
    """Return why a region of a graph cannot be replayed, which leaves its counterpart unchecked.

    Args:
        run: The run.
        tensor: The end of the region.
        inside: The tensors in it.

    Returns:
        A clause; "" if it can be replayed.
    """
    graph = run.recording.graph
    for name in (tensor, *sorted(inside)):
        node = graph.producer(name)
        if node is None:
            continue
        form, _ = real_form(node, graph.opset)
        if not has_kernel(form.op, form.domain):
            return f"no kernel is known for {node.op}"
        for input_name in form.inputs:
            if input_name and run.folds(input_name) and not any(map(run.has, run.members(input_name))):
                return f"the constant {input_name!r} was not recorded"
    return ""
