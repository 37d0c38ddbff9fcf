"""Checks whether a tensor holds the bytes of another tensor, or of its own earlier capture.

A shared buffer may be overwritten or never written, and the hook of a captured graph may run once for all steps.
"""

from __future__ import annotations

import numpy as np

from qdebug.compare.attribute.plan import recorded_places
from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model.recording import Outline
from qdebug.plural import plural

__all__ = ["captured_once", "with_bytes_of_another"]

_FEWEST = 8
"""Number of distinct values that two tensors do not share by chance."""


_CAPTURES = 3
"""Number of samples or steps in which the same bytes are no coincidence of the input."""


def captured_once(context: NodeContext) -> Finding | None:
    """Find that a wrong tensor has the same bytes in several samples or steps although the reference's differ."""
    entry, runs = context.entry, context.runs
    if context.node is None or not context.diverges or context.stats is None:
        return None
    places_by_bytes: dict[bytes, list[tuple[int, int]]] = {}
    for place in recorded_places(runs.reference, runs.backend, entry):
        outline = runs.backend.outline(entry.tensor, *place)
        if outline is None:
            return None
        places_by_bytes.setdefault(outline.digest, []).append(place)
    places = max(places_by_bytes.values(), key=len, default=[])
    if len(places) < _CAPTURES or np.unique(runs.backend.load(entry.tensor, *places[0])).size < _FEWEST:
        return None
    outlines = [runs.reference.outline(entry.reference_tensor, *place) for place in places]
    if len({outline.digest for outline in outlines if outline is not None}) < len(places):
        return None
    title = "steps" if len({step for _, step in places}) == len(places) else "samples"
    clause = f"its bytes are the same in {len(places)} {title}, where the reference's differ; it was captured only once"
    return Finding(kind=FindingKind.STALE, role=FindingRole.CAUSE, node=context.node.name, sentence=clause)


def with_bytes_of_another(context: NodeContext) -> Finding | None:
    """Find that a wrong tensor has the bytes of another tensor although their reference partners differ."""
    entry, runs = context.entry, context.runs
    if context.node is None or not context.diverges or context.stats is None:
        return None
    place = (context.stats.worst_sample or 0, 0)
    outline = runs.backend.outline(entry.tensor, *place)
    if outline is None:
        return None
    reference_outline = runs.reference.outline(entry.reference_tensor, *place)
    tensors_with_same_bytes = [
        name
        for name in runs.tensors_by_bytes(place).get((outline.dtype, outline.digest), ())
        if name != entry.tensor and not _is_alike(context, name, reference_outline, place)
    ]
    if not tensors_with_same_bytes or np.unique(runs.backend.load(entry.tensor, *place)).size < _FEWEST:
        return None
    rest_text = (
        f" and of {plural(len(tensors_with_same_bytes) - 1, 'more tensor')}" if len(tensors_with_same_bytes) > 1 else ""
    )
    source = f"{tensors_with_same_bytes[0]!r}{rest_text}"
    clause = f"its bytes equal those of {source}; its buffer was overwritten, or never written"
    return Finding(
        kind=FindingKind.STALE,
        role=FindingRole.CAUSE,
        node=context.node.name,
        sentence=clause,
        evidence=tensors_with_same_bytes[0],
    )


def _is_alike(context: NodeContext, tensor: str, reference_outline: Outline | None, place: tuple[int, int]) -> bool:
    """Return whether both tensors hold the same bytes in the reference too, in any shape, or that is unknown."""
    pair = context.runs.pairs.get(tensor)
    if pair is None:
        return True
    partner_outline = context.runs.reference.outline(pair.reference, *place)
    return (
        reference_outline is None
        or partner_outline is None
        or (reference_outline.dtype, reference_outline.digest) == (partner_outline.dtype, partner_outline.digest)
    )
