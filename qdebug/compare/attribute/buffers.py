"""Which tensors of a run hold the same bytes."""

from __future__ import annotations

from collections.abc import Mapping

from qdebug.model import Recording

__all__ = ["tensors_by_bytes"]


def tensors_by_bytes(recording: Recording, place: tuple[int, int]) -> Mapping[tuple[str, bytes], list[str]]:
    """Return the tensors of a sample and step by the type and hash of their elements, where these are known.

    Args:
        recording: A run.
        place: Sample and step.
    """
    found: dict[tuple[str, bytes], list[str]] = {}
    for name in recording.graph.tensors:
        known = None if recording.graph.is_constant(name) else recording.outline(name, *place)
        if known is not None:
            found.setdefault((known.dtype, known.digest), []).append(name)
    return found
