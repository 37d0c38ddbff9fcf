"""Checks whether the rows of a cache stay as they were written, see `qdebug.compare.measure.token_rows`."""

from __future__ import annotations

from qdebug.compare.evidence.evidence import Evidence
from qdebug.compare.result.finding import Finding, FindingKind, breach
from qdebug.plural import plural

__all__ = ["changed_row"]


def changed_row(evidence: Evidence) -> Finding | None:
    """Report that a later step changed a row of the backend's cache."""
    rows = evidence.changed_rows
    if not rows:
        return None
    first = min(rows, key=lambda row: (row.changed, row.request, row.position))
    clause = (
        f"{plural(len(rows), 'row')} of the cache changed after being written, first the row of request "
        f"{first.request}, position {first.position}: step {first.written} wrote it, and it differs in step "
        f"{first.changed}"
    )
    return breach(evidence.name, FindingKind.CACHE, clause, judged=(len(rows), 0, "rows"))
