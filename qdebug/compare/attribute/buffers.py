"""Finds tensors of a run that hold the same bytes."""

from __future__ import annotations

from collections.abc import Mapping

from qdebug.model import Recording

__all__ = ["tensors_by_bytes"]


def tensors_by_bytes(recording: Recording, place: tuple[int, int]) -> Mapping[tuple[str, bytes], list[str]]:
    """Return the tensors of a sample and step whose hashes are known, grouped by dtype and hash.

    Args:
        recording: A run.
        place: Sample and step.
    """
    names_by_bytes: dict[tuple[str, bytes], list[str]] = {}
    for name in recording.graph.tensors:
        outline = None if recording.graph.is_constant(name) else recording.outline(name, *place)
        if outline is not None:
            names_by_bytes.setdefault((outline.dtype, outline.digest), []).append(name)
    return names_by_bytes
