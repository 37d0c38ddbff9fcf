"""Several backends compared with one reference: one row for each reference tensor, one column for each backend."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from qdebug.analysis.result import DiffResult, NodeResult, json_safe

__all__ = ["diffs_dict", "diffs_json"]


def diffs_dict(results: Mapping[str, DiffResult]) -> dict[str, Any]:
    """Give several comparisons and the matrix of their SQNR as plain values.

    Args:
        results: One comparison for each backend, by the name shown for it.
    """
    nodes, rows = _matrix(list(results.values()))
    matrix = {"value": "sqnr_db", "backends": list(results), "nodes": nodes, "rows": rows}
    diffs = [result.to_dict() for result in results.values()]
    plain: dict[str, Any] = json_safe({"format": "qdebug.diffs", "version": 1, "diffs": diffs, "matrix": matrix})
    return plain


def diffs_json(results: Mapping[str, DiffResult], *, indent: int | None = 2) -> str:
    """Give several comparisons as JSON text."""
    return json.dumps(diffs_dict(results), indent=indent, allow_nan=False)


def _matrix(results: Sequence[DiffResult]) -> tuple[list[str], list[list[float | None]]]:
    """Line the backends up by reference tensor: it is what they share. A tensor compared twice counts at its worst."""
    found: list[dict[str, float | None]] = []
    for result in results:
        values: dict[str, float | None] = {}
        for node in result.nodes:
            values[node.reference_tensor] = _worse(values.get(node.reference_tensor), _sqnr(node))
        found.append(values)
    names = list(dict.fromkeys(name for values in found for name in values))
    return names, [[values.get(name) for values in found] for name in names]


def _sqnr(node: NodeResult) -> float | None:
    return None if node.metrics is None else node.metrics.sqnr_db


def _worse(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
