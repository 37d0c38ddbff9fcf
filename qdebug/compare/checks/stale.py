"""Checks whether a tensor holds the bytes of another tensor, or of its own earlier capture."""

from __future__ import annotations

from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, FindingRole
from qdebug.plural import plural

__all__ = ["bytes_of_another_tensor", "captured_once"]


def captured_once(evidence: Evidence) -> Finding | None:
    """Report that a wrong tensor has the same bytes in several samples or steps although the reference's differ."""
    node, places = evidence.node, evidence.places_of_one_capture if evidence.diverges else ()
    if node is None or not places:
        return None
    title = "steps" if len({step for _, step in places}) == len(places) else "samples"
    clause = f"its bytes are the same in {len(places)} {title}, where the reference's differ; it was captured only once"
    return Finding(kind=FindingKind.STALE, role=FindingRole.CAUSE, node=node.name, sentence=clause)


def bytes_of_another_tensor(evidence: Evidence) -> Finding | None:
    """Report that a wrong tensor has the bytes of another tensor although their reference partners differ."""
    node, tensors = evidence.node, evidence.tensors_of_same_bytes if evidence.diverges else ()
    if node is None or not tensors:
        return None
    others_text = f" and of {plural(len(tensors) - 1, 'more tensor')}" if len(tensors) > 1 else ""
    clause = f"its bytes equal those of {tensors[0]!r}{others_text}; its buffer was overwritten, or never written"
    return Finding(kind=FindingKind.STALE, role=FindingRole.CAUSE, node=node.name, sentence=clause, evidence=tensors[0])
