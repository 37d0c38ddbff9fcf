"""A comparison as JSON of bounded size: the requested rows, and only the beginning of every list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.result import RunComparison
from qdebug.present.rows import RowChoice, rank_rows

__all__ = ["brief_dict"]

_INNER_ENTRIES = 4
"""Maximum number of entries of a list inside a node."""
_OUTER_ENTRIES = 10
"""Maximum number of entries of a list outside the nodes."""
_DIGITS = 6
_TEXT_LIMIT = 400
"""Maximum number of characters of a text. The middle of a longer text is left out."""


def brief_dict(result: RunComparison, choice: RowChoice) -> dict[str, Any]:
    """Return a comparison as plain values that validate against the schema of the full one.

    Tensors without a partner are listed only if they are lost. Lists outside the nodes keep their first 10 entries,
    lists inside a node their first 4, with the worst samples first. Numbers have 6 digits. `left_out` gives the number
    of dropped entries for each list that was cut, by its path.

    Args:
        result: The comparison.
        choice: The nodes to include.
    """
    positions = sorted(rank_rows(result.nodes, choice))
    plain = result.to_dict()
    nodes = [plain["nodes"][at] for at in positions]
    for node in nodes:
        node["samples"].sort(key=_sample_level)
    unmatched = plain["coverage"]["unmatched"]
    lost = [entry for entry in unmatched if entry["kind"] == UnmatchedKind.LOST]
    plain["coverage"]["unmatched"] = lost
    dropped_counts = {"nodes": len(plain["nodes"]) - len(nodes), "coverage.unmatched": len(unmatched) - len(lost)}
    left_out = {path: count for path, count in dropped_counts.items() if count}
    brief: dict[str, Any] = {
        key: _shorten_lists(value, key, _OUTER_ENTRIES, left_out) for key, value in plain.items() if key != "nodes"
    }
    inner: dict[str, int] = {}
    brief["nodes"] = [_shorten_lists(node, "nodes", _INNER_ENTRIES, inner) for node in nodes]
    return {**brief, "left_out": {**left_out, **inner}}


def _sample_level(sample: Mapping[str, Any]) -> float:
    level = sample["sqnr_db"]
    return level if isinstance(level, int | float) else float(level) if level in ("Infinity", "-Infinity") else -1e9


def _shorten_lists(value: Any, path: str, limit: int, left_out: dict[str, int]) -> Any:
    """Return a value with shortened lists and texts. Add the numbers of dropped entries to `left_out`."""
    if isinstance(value, Mapping):
        entries = list(value.items())
        if path.endswith(("skipped", "doubts")):
            entries = _first_entries(entries, path, limit, left_out)
        return {key: _shorten_lists(entry, f"{path}.{key}", limit, left_out) for key, entry in entries}
    if isinstance(value, list | tuple):
        return [
            _shorten_lists(entry, path, limit, left_out) for entry in _first_entries(list(value), path, limit, left_out)
        ]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, str) and len(value) > _TEXT_LIMIT:
        return f"{value[: _TEXT_LIMIT // 2]}...{value[len(value) - _TEXT_LIMIT // 2 :]}"
    return value


def _first_entries(entries: list[Any], path: str, limit: int, left_out: dict[str, int]) -> list[Any]:
    if len(entries) > limit:
        left_out[path] = left_out.get(path, 0) + len(entries) - limit
    return entries[:limit]
