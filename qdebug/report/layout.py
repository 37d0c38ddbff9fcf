"""Which columns of the node table fit a width, and how wide each becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qdebug.compare.align.pairs import Match
from qdebug.view import numbers
from qdebug.view.rows import Column, NodeRow, columns

__all__ = ["GAP", "PlacedColumn", "natural_width", "place"]

GAP = 2
"""Blank cells between two columns."""

_ORDER = (
    "index",
    "status",
    "node",
    "op",
    "sqnr_db",
    "introduced",
    "gain",
    "max_lsb",
    "rel_l2",
    "max_abs",
    "mismatches",
    "cosine",
    "saturated",
    "quant",
    "match",
)
_ALWAYS = ("index", "status", "node", "op", "sqnr_db")
_SOON = ("introduced", "max_lsb", "rel_l2")
_LATER = ("saturated", "gain", "max_abs", "match", "quant", "cosine", "mismatches")
_CAPS = {"op": 24, "quant": 30}
_TIGHT_OP = 14
_FIRST_TO_GO = ("op", "status", "index")
_NODE_LEAST = 8
_NODE_MIN = 18
_NODE_COMFORT = 32


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column of the table and its width in characters."""

    column: Column
    width: int


def place(rows: Sequence[NodeRow], width: int) -> list[PlacedColumn]:
    """Choose columns for the width at hand.

    Number, status, node, operator and SQNR are there unless it is very narrow; the rest join in order of their
    use while node names keep room. A column in which no row has a value, or only exact matches, is left out. What
    remains goes to the names.

    Args:
        rows: The rows that will be shown.
        width: Characters a line may take.
    """
    widths = {key: _width(key, rows) for key in _ORDER}
    natural = widths["node"]
    if width < 110:
        widths["op"] = min(widths["op"], _TIGHT_OP)
    chosen = list(_ALWAYS)
    for key in _FIRST_TO_GO:
        if _taken(chosen, widths) + min(natural, _NODE_LEAST) > width:
            chosen.remove(key)
    for keys, room in ((_SOON, _NODE_MIN), (_LATER, _NODE_COMFORT)):
        for key in keys:
            if widths[key] and _taken([*chosen, key], widths) + min(natural, room) <= width:
                chosen.append(key)
    widths["node"] = max(min(natural, _NODE_LEAST), min(natural, width - _taken(chosen, widths)))
    known = columns()
    return [PlacedColumn(known[key], widths[key]) for key in _ORDER if key in chosen]


def natural_width(rows: Sequence[NodeRow]) -> int:
    """Give the width at which every column fits and no name is shortened."""
    widths = [_width(key, rows) for key in _ORDER]
    return sum(widths) + GAP * (sum(1 for width in widths if width) - 1)


def _taken(chosen: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[key] for key in chosen if key != "node") + GAP * (len(chosen) - 1)


def _width(key: str, rows: Sequence[NodeRow]) -> int:
    texts = [row.cells[key].text for row in rows]
    if key not in _ALWAYS and set(texts) <= {numbers.MISSING, str(Match.EXACT)}:
        return 0
    widest = max(map(len, [columns()[key].title, *texts]))
    if key == "index":
        widest += 1  # room for the mark of the first divergence
    return min(widest, _CAPS.get(key, widest))
