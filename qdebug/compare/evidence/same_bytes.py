"""Tensors that hold the bytes of another tensor, or of their own earlier capture, where the reference's do not.

A shared buffer may be overwritten or never written, and the hook of a captured graph may run once for all steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qdebug.compare.evidence.measured_tensor import MeasuredTensor
from qdebug.compare.evidence.runs import Runs
from qdebug.model.recording import Outline

__all__ = ["places_of_one_capture", "tensors_of_same_bytes"]

_FEWEST = 8
"""Number of distinct values that two tensors do not share by chance."""


_CAPTURES = 3
"""Number of samples or steps in which the same bytes are no coincidence of the input."""


def places_of_one_capture(measured: MeasuredTensor) -> Sequence[tuple[int, int]]:
    """Return the samples and steps in which a tensor has the same bytes although the reference's differ, or none."""
    runs, entry = measured._runs, measured.entry
    places_by_bytes: dict[bytes, list[tuple[int, int]]] = {}
    for place in measured._places:
        outline = runs.backend.outline(entry.tensor, *place)
        if outline is None:
            return ()
        places_by_bytes.setdefault(outline.digest, []).append(place)
    places = max(places_by_bytes.values(), key=len, default=[])
    if len(places) < _CAPTURES or np.unique(runs.backend.load(entry.tensor, *places[0])).size < _FEWEST:
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
        if name != entry.tensor and not _is_alike(runs, name, reference_outline, place)
    ]
    return tensors if tensors and np.unique(runs.backend.load(entry.tensor, *place)).size >= _FEWEST else ()


def _is_alike(runs: Runs, tensor: str, reference_outline: Outline | None, place: tuple[int, int]) -> bool:
    """Return whether both tensors hold the same bytes in the reference too, in any shape, or that is unknown."""
    pair = runs.pairs.get(tensor)
    if pair is None:
        return True
    partner_outline = runs.reference.outline(pair.reference, *place)
    return (
        reference_outline is None
        or partner_outline is None
        or (reference_outline.dtype, reference_outline.digest) == (partner_outline.dtype, partner_outline.digest)
    )
