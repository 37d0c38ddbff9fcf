"""Tensors with the bytes of another tensor, or of their own earlier capture, although the reference's differ.

A shared buffer may be overwritten or never written, and the hook of a captured graph may run once for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.evidence.runs import Runs
from qdebug.model.recording import Outline

__all__ = ["places_of_one_capture", "tensors_of_same_bytes"]

_MIN_DISTINCT_VALUES = 8
"""Minimum number of distinct values in a tensor. Fewer may be equal by chance."""


_MIN_CAPTURES = 3
"""Minimum number of samples or steps with the same bytes. Fewer may have equal inputs by coincidence."""


def places_of_one_capture(measured: MeasuredTensor) -> Sequence[tuple[int, int]]:
    """Return the samples and steps in which a tensor has the same bytes although the reference's differ."""
    runs, entry = measured._runs, measured.entry
    places_by_bytes: dict[bytes, list[tuple[int, int]]] = {}
    for place in measured._places:
        outline = runs.backend.outline(entry.tensor, *place)
        if outline is None:
            return ()
        places_by_bytes.setdefault(outline.digest, []).append(place)
    places = max(places_by_bytes.values(), key=len, default=[])
    if (
        len(places) < _MIN_CAPTURES
        or np.unique(runs.backend.load(entry.tensor, *places[0])).size < _MIN_DISTINCT_VALUES
    ):
        return ()
    outlines = [runs.reference.outline(entry.reference_tensor, *place) for place in places]
    return places if len({outline.digest for outline in outlines if outline is not None}) == len(places) else ()


def tensors_of_same_bytes(measured: MeasuredTensor) -> Sequence[str]:
    """Return other tensors with the same bytes in the worst sample although their reference partners differ."""
    runs, entry, place = measured._runs, measured.entry, (measured._worst_sample, 0)
    outline = runs.backend.outline(entry.tensor, *place)
    if outline is None:
        return ()
    reference_outline = runs.reference.outline(entry.reference_tensor, *place)
    tensors = [
        name
        for name in runs.tensors_by_bytes(place).get((outline.dtype, outline.digest), ())
        if name != entry.tensor and not _has_same_bytes_in_reference(runs, name, reference_outline, place)
    ]
    return (
        tensors if tensors and np.unique(runs.backend.load(entry.tensor, *place)).size >= _MIN_DISTINCT_VALUES else ()
    )


def _has_same_bytes_in_reference(
    runs: Runs, tensor: str, reference_outline: Outline | None, place: tuple[int, int]
) -> bool:
    """Return whether both tensors have the same bytes in the reference too, in any shape. True if unknown."""
    pair = runs.pairs.get(tensor)
    if pair is None:
        return True
    partner_outline = runs.reference.outline(pair.reference, *place)
    return (
        reference_outline is None
        or partner_outline is None
        or (reference_outline.dtype, reference_outline.digest) == (partner_outline.dtype, partner_outline.digest)
    )
