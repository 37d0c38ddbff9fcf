"""Columns of the node list: which ones fit, how wide, and the text of each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.numerics.metric_table import metric
from qdebug.present import numbers
from qdebug.present.rows import judged_cell, metric_title, part_cell, quant_text
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import METRIC_CHOICES, NodeTable, State

__all__ = ["ColumnLayout", "ListColumn", "header_cells", "lay_out", "mark", "row_cells"]

_NAME_LEAST = 24
_NAME_AMPLE = 40
"""Cells of a name that only the first column beside the important ones may take from it."""
_NAME_FLOOR = 8
_NAME_MOST = 72
_INTRODUCED_FROM = 60


@dataclass(frozen=True, slots=True)
class ListColumn:
    """One column.

    Args:
        key: Identifies it.
        title: Its heading.
        width: Cells it takes.
        right: Whether it is aligned to the right.
        sort: The order of `navigator.SORTS` that its heading marks; "" for none.
    """

    key: str
    title: str
    width: int
    right: bool = False
    sort: str = ""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Columns that fit into a width.

    Args:
        columns: From left to right.
        before: How many optional columns are left out on the left.
        after: How many on the right.
    """

    columns: tuple[ListColumn, ...]
    before: int
    after: int

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the layout in caches."""
        return tuple(f"{column.key}:{column.width}" for column in self.columns)


def _optional(navigator: Navigator) -> list[ListColumn]:
    """Return the columns beside the ones always shown, most important first."""
    shown = {navigator.metric, "introduced"}
    other = [name for name in METRIC_CHOICES if name not in shown] if navigator.sample is None else []
    parts = [
        ListColumn("constants", "constants", 10, right=True),
        ListColumn("gain", "gain", 7, right=True),
        ListColumn("propagated", "propagated", 10, right=True),
    ]
    return [
        ListColumn("op", "op", 15, sort="op"),
        ListColumn("state_word", "status", 12, sort="state"),
        ListColumn("quant", "scale / zero point", 20),
        ListColumn("dtype", "dtype", 8),
        ListColumn("shape", "shape", 16),
        *(parts if navigator.sample is None else []),  # of all samples together
        ListColumn("explained", "explained", 18),
        *(ListColumn(name, metric_title(name), 10, right=True) for name in other),
        ListColumn("match", "match", 12),
        ListColumn("placement", "ran on", 24),
        ListColumn("reference_tensor", "reference tensor", 28),
    ]


def lay_out(navigator: Navigator, width: int, *, offset: int = 0) -> ColumnLayout:
    """Choose the columns for a width: the important ones always, the others as far as they fit.

    Args:
        navigator: Metric and sample that are shown.
        width: Cells for a line.
        offset: How many optional columns to leave out on the left.
    """
    digits = max(3, len(str(max(navigator.table.size - 1, 0))))
    name_wanted = min(max(navigator.table.usual_name, 4), _NAME_MOST)
    name_most = min(max(navigator.table.longest_name, 4), _NAME_MOST)
    fixed = [
        ListColumn("mark", "", 3),
        ListColumn("number", "#", digits, right=True, sort="order"),
        ListColumn(navigator.metric, metric_title(navigator.metric), 11, right=True, sort="metric"),
    ]
    if navigator.sample is None and navigator.metric != "introduced" and width >= _INTRODUCED_FROM:
        fixed.append(ListColumn("arithmetic", "arithmetic", 12, right=True, sort="introduced"))
    of_all = "sat" if navigator.sample is None else "sat all"  # the one number here that no single sample has
    fixed.append(ListColumn("saturated", of_all, 7, right=True, sort="saturated"))
    room = width - sum(column.width + 1 for column in fixed) - 1
    optional = _optional(navigator)[offset:]
    name_least = max(min(_NAME_LEAST, name_wanted), _NAME_FLOOR)
    chosen: list[ListColumn] = []
    if offset and optional and (squeezed := min(optional[0].width, room - _NAME_FLOOR - 1)) > _NAME_FLOOR:
        chosen.append(replace(optional[0], width=squeezed))  # the column that was asked for, at the name's cost
    for column in optional[len(chosen) :]:
        least = max(min(name_wanted, _NAME_AMPLE), name_least) if chosen else name_least
        if room - sum(c.width + 1 for c in chosen) - column.width - 1 < least:
            break
        chosen.append(column)
    name_width = max(min(room - sum(c.width + 1 for c in chosen), max(name_most, name_least)), 4)
    name = ListColumn("name", "node", name_width, sort="name")
    columns = (*fixed[:2], name, *fixed[2:], *chosen)
    return ColumnLayout(columns, offset, len(optional) - len(chosen))


def mark(table: NodeTable, row: int, state: int, first: int | None, *, marked: bool = False) -> str:
    """Return the two characters before a row: first divergence or the user's mark, then the state."""
    kind = "*" if state in (State.DIVERGED, State.NONFINITE) else "?" if state == State.INCOMPARABLE else " "
    if state == State.PENDING and table.rows[row].missing is None:
        kind = "."
    if table.acknowledged[row]:
        kind = "~"
    return ("!" if row == first else "'" if marked else " ") + kind


def row_cells(navigator: Navigator, row: int, layout: ColumnLayout, glyphs: GlyphSet) -> list[str]:
    """Return the text of each cell of a row, each exactly as wide as its column; the mark column is left blank."""
    cells = []
    for column in layout.columns:
        text = _TEXTS.get(column.key, _metric)(navigator, row, column.key)
        if column.right:
            cells.append(glyphs.right(text, column.width))
        else:
            cells.append(glyphs.fit(text, column.width))
    return cells


def header_cells(navigator: Navigator, layout: ColumnLayout, glyphs: GlyphSet) -> Sequence[str]:
    """Return the headings, each as wide as its column; the one that the list is sorted by carries an arrow."""
    cells = []
    for column in layout.columns:
        title = column.title
        if column.sort and column.sort == navigator.sort and (column.sort != "order" or navigator.reversed):
            arrow = ("^" if navigator.reversed else "v") if not glyphs.braille else "▴" if navigator.reversed else "▾"
            title = f"{title}{arrow}"
        cells.append(title.rjust(column.width)[-column.width :] if column.right else glyphs.fit(title, column.width))
    return cells


def _metric(navigator: Navigator, row: int, key: str) -> str:
    table = navigator.table
    value = table.number(key, row, navigator.sample)
    if np.isnan(value):
        return absent(table, row, key, navigator.sample) if table.state[row] != State.PENDING else ""
    if key in {"propagated", "gain"}:
        return numbers.number(value)
    counts = metric(key).unit == "elements"
    return numbers.metric(key, int(value) if counts else value)


def absent(table: NodeTable, row: int, key: str, sample: int | None = None) -> str:
    """Say of a metric that the columns have no number for whether it is NaN, or not known.

    Args:
        table: The rows.
        row: The row.
        key: A metric of a tensor or of a sample, by its name there.
        sample: One sample; None for all.
    """
    result = table.results[row]
    holder: object = None if result is None else result.metrics
    if result is not None and sample is not None:
        holder = next((one for one in result.samples if one.sample == sample), None)
    value = getattr(holder, key, None)
    return "NaN" if value is not None and np.isnan(value) else numbers.MISSING


def _own_error(navigator: Navigator, row: int, key: str) -> str:
    result = navigator.table.results[row]
    if result is None:
        return numbers.MISSING if navigator.table.state[row] != State.PENDING else ""
    return judged_cell(result).text if key == "arithmetic" else part_cell(result, getattr(result, key)).text


def _saturated(navigator: Navigator, row: int, _: str) -> str:
    share = navigator.table.number("saturated", row, None)
    if np.isnan(share):
        return numbers.MISSING if navigator.table.state[row] != State.PENDING else ""
    return "0" if share == 0 else numbers.percent(share, 1.0)


def _number(table: NodeTable, row: int) -> str:
    count = table.count_of(row)
    return "" if count is None else str(count)


def _explained(table: NodeTable, row: int) -> str:
    result = table.results[row]
    return numbers.MISSING if result is None or result.explained is None else result.explained


_TEXTS: dict[str, Callable[[Navigator, int, str], str]] = {
    "arithmetic": _own_error,
    "constants": _own_error,
    "introduced": _own_error,
    "explained": lambda navigator, row, _: _explained(navigator.table, row),
    "mark": lambda *_: "",
    "number": lambda navigator, row, _: _number(navigator.table, row),
    "name": lambda navigator, row, _: navigator.table.names[row],
    "saturated": _saturated,
    "state_word": lambda navigator, row, _: State(int(navigator.table.states(navigator.sample)[row])).word,
    "op": lambda navigator, row, _: navigator.table.rows[row].op,
    "quant": lambda navigator, row, _: quant_text(navigator.table.rows[row].quant),
    "dtype": lambda navigator, row, _: navigator.table.rows[row].dtype or numbers.MISSING,
    "shape": lambda navigator, row, _: numbers.shape(navigator.table.rows[row].shape),
    "placement": lambda navigator, row, _: navigator.table.rows[row].placement or numbers.MISSING,
    "match": lambda navigator, row, _: navigator.table.rows[row].match or numbers.MISSING,
    "reference_tensor": lambda navigator, row, _: navigator.table.rows[row].reference_tensor,
}
