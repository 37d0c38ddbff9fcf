"""Checks whether a tensor holds the bytes of another tensor: a shared buffer that was overwritten or never written."""

from __future__ import annotations

import numpy as np

from qdebug.compare.checks.context import NodeContext
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.model.recording import Outline
from qdebug.plural import plural

__all__ = ["with_bytes_of_another"]

_FEWEST = 8
"""Number of distinct values that two tensors do not share by chance."""


def with_bytes_of_another(context: NodeContext) -> Finding | None:
    """Find that a wrong tensor has the bytes of another tensor although their reference partners differ."""
    entry, runs = context.entry, context.runs
    if context.node is None or not context.diverges or context.stats is None:
        return None
    place = (context.stats.worst_sample or 0, 0)
    known = runs.backend.outline(entry.tensor, *place)
    if known is None:
        return None
    own = runs.reference.outline(entry.reference_tensor, *place)
    same = [
        name
        for name in runs.tensors_by_bytes(place).get((known.dtype, known.digest), ())
        if name != entry.tensor and not _is_alike(context, name, own, place)
    ]
    if not same or np.unique(runs.backend.load(entry.tensor, *place)).size < _FEWEST:
        return None
    more = f" and of {plural(len(same) - 1, 'more tensor')}" if len(same) > 1 else ""
    said = f"its bytes equal those of {same[0]!r}{more}; its buffer was overwritten, or never written"
    return Finding(
        kind=FindingKind.STALE, role=FindingRole.CAUSE, node=context.node.name, sentence=said, evidence=same[0]
    )


def _is_alike(context: NodeContext, other: str, own: Outline | None, place: tuple[int, int]) -> bool:
    """Return whether both tensors hold the same bytes in the reference too, in any shape, or that is unknown."""
    pair = context.runs.pairs.get(other)
    if pair is None:
        return True
    theirs = context.runs.reference.outline(pair.reference, *place)
    return own is None or theirs is None or (own.dtype, own.digest) == (theirs.dtype, theirs.digest)
