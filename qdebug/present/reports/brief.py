"""A comparison as JSON of bounded size: the requested rows, and only the beginning of every list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.result import RunComparison
from qdebug.present.rows import RowChoice, ranked

__all__ = ["brief_dict"]

_INNER = 4
"""Number of entries kept of a list inside a node."""
_OUTER = 10
"""Number of entries kept of a list outside the nodes."""
_DIGITS = 6
_TEXT = 400
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
    positions = sorted(ranked(result.nodes, choice))
    plain = result.to_dict()
    nodes = [plain["nodes"][at] for at in positions]
    for node in nodes:
        node["samples"].sort(key=_level)
    unmatched = plain["coverage"]["unmatched"]
    lost = [entry for entry in unmatched if entry["kind"] == UnmatchedKind.LOST]
    plain["coverage"]["unmatched"] = lost
    gone = {"nodes": len(plain["nodes"]) - len(nodes), "coverage.unmatched": len(unmatched) - len(lost)}
    left_out = {path: many for path, many in gone.items() if many}
    brief: dict[str, Any] = {
        key: _shorten_lists(value, key, _OUTER, left_out) for key, value in plain.items() if key != "nodes"
    }
    inner: dict[str, int] = {}
    brief["nodes"] = [_shorten_lists(node, "nodes", _INNER, inner) for node in nodes]
    return {**brief, "left_out": {**left_out, **inner}}


def _level(sample: Mapping[str, Any]) -> float:
    level = sample["sqnr_db"]
    return level if isinstance(level, int | float) else float(level) if level in ("Infinity", "-Infinity") else -1e9


def _shorten_lists(value: Any, path: str, most: int, left_out: dict[str, int]) -> Any:
    """Return a value with shortened lists and texts, and record in `left_out` how many entries are gone."""
    if isinstance(value, Mapping):
        entries = list(value.items())
        if path.endswith(("skipped", "doubts")):
            entries = _first_entries(entries, path, most, left_out)
        return {key: _shorten_lists(entry, f"{path}.{key}", most, left_out) for key, entry in entries}
    if isinstance(value, list | tuple):
        return [
            _shorten_lists(entry, path, most, left_out) for entry in _first_entries(list(value), path, most, left_out)
        ]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, str) and len(value) > _TEXT:
        return f"{value[: _TEXT // 2]}...{value[len(value) - _TEXT // 2 :]}"
    return value


def _first_entries(entries: list[Any], path: str, most: int, left_out: dict[str, int]) -> list[Any]:
    if len(entries) > most:
        left_out[path] = left_out.get(path, 0) + len(entries) - most
    return entries[:most]
