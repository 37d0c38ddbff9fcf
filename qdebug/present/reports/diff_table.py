"""The comparison as shown in a terminal: its document, with the table of nodes in the columns that fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from qdebug.compare.align.pairs import Match
from qdebug.compare.result.node_result import breaks_limit, is_beyond
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.present import numbers
from qdebug.present.reports.comparison import comparison_facts, coverage, remarks, verdict_blocks
from qdebug.present.reports.document import Item, Items
from qdebug.present.reports.terminal import GAP, terminal
from qdebug.present.rows import STYLES, Cell, Column, Gap, NodeRow, RowChoice, columns, node_row, select_rows
from qdebug.present.text import safe_text, shorten

__all__ = ["ORDER", "PlacedColumn", "diff_report", "fitting_width", "natural_width", "place_columns"]

ORDER = (
    "index",
    "status",
    "node",
    "op",
    "sqnr_db",
    "arithmetic",
    "clipping",
    "constants",
    "introduced",
    "gain",
    "max_lsb",
    "rel_l2",
    "max_abs",
    "mismatches",
    "cosine",
    "clipped",
    "quant",
    "match",
    "why",
)
"""Keys of the columns of a table of nodes, in order."""
_ALWAYS = ("index", "status", "node", "op", "sqnr_db")
_MORE_COLUMNS = ("why", "arithmetic", "clipping", "constants", "introduced", "max_lsb", "rel_l2")
_LAST_COLUMNS = ("clipped", "gain", "max_abs", "match", "quant", "cosine", "mismatches")
_MAX_WIDTHS = {"op": 24, "quant": 30}
_TIGHT_OP = 14
_DROPPED_FIRST = ("op", "status", "index")
_MIN_NODE_WIDTH = 8
_NODE_WIDTH_FOR_MORE = 18
_NODE_WIDTH_FOR_LAST = 32
"""Width of node names: the least possible, and the least that leaves room for `_MORE_COLUMNS` and `_LAST_COLUMNS`."""


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column of the table and its width in characters."""

    column: Column
    width: int


def place_columns(rows: Sequence[NodeRow], width: int) -> list[PlacedColumn]:
    """Choose columns that fit the available width.

    Number, status, node, operator and SQNR are included unless the width is very small. The others are added in order
    of usefulness as long as node names have enough room. A column without values, or with exact matches only, is left
    out. The remaining width goes to the names.

    Args:
        rows: The rows to show.
        width: Characters available on a line.
    """
    widths = {key: _column_width(key, rows) for key in ORDER}
    natural = widths["node"]
    if width < 110:
        widths["op"] = min(widths["op"], _TIGHT_OP)
    chosen_keys = list(_ALWAYS)
    for key in _DROPPED_FIRST:
        if _occupied_width(chosen_keys, widths) + min(natural, _MIN_NODE_WIDTH) > width:
            chosen_keys.remove(key)
    for keys, node_width in ((_MORE_COLUMNS, _NODE_WIDTH_FOR_MORE), (_LAST_COLUMNS, _NODE_WIDTH_FOR_LAST)):
        for key in keys:
            if widths[key] and _occupied_width([*chosen_keys, key], widths) + min(natural, node_width) <= width:
                chosen_keys.append(key)
    widths["node"] = max(min(natural, _MIN_NODE_WIDTH), min(natural, width - _occupied_width(chosen_keys, widths)))
    all_columns = columns()
    return [PlacedColumn(all_columns[key], widths[key]) for key in ORDER if key in chosen_keys]


def natural_width(rows: Sequence[NodeRow]) -> int:
    """Return the width in characters at which all columns fit and no name is shortened."""
    widths = [_column_width(key, rows) for key in ORDER]
    return sum(widths) + GAP * (sum(1 for width in widths if width) - 1)


def _occupied_width(chosen_keys: Sequence[str], widths: dict[str, int]) -> int:
    return sum(widths[key] for key in chosen_keys if key != "node") + GAP * (len(chosen_keys) - 1)


def _column_width(key: str, rows: Sequence[NodeRow]) -> int:
    texts = [row.cells[key].text for row in rows]
    if key not in _ALWAYS and set(texts) <= {numbers.MISSING, str(Match.EXACT)}:
        return 0
    widest = max(map(len, [columns()[key].title, *texts]))
    if key == "index":
        widest += 1  # leaves room for the mark of the first divergence
    return min(widest, _MAX_WIDTHS.get(key, widest))


_REASONS_SHOWN = 20
_MAX_REPORT_WIDTH = 400


def fitting_width(result: RunComparison, *, everything: bool = False) -> int:
    """Return the width in characters at which names in the node table are not shortened, from 100 to 400."""
    rows = list(_rows_by_position(result, select_rows(result.nodes, everything=everything)).values())
    return min(_MAX_REPORT_WIDTH, max(100, natural_width(rows))) if rows else 100


def diff_report(
    result: RunComparison, *, width: int, everything: bool = False, choice: RowChoice | None = None
) -> RenderableType:
    """Make the full report on a comparison.

    Args:
        result: The comparison to show.
        width: Characters available on a line.
        everything: Show every node and every tensor left out, however many.
        choice: The requested rows, or None for those of `select_rows`.
    """
    blank = Text("")
    return Group(
        terminal([*verdict_blocks(result), comparison_facts(result)]),
        blank,
        *_node_section(result, width, select_rows(result.nodes, everything=everything, choice=choice)),
        blank,
        terminal([coverage(result, everything=everything)]),
    )


def _rows_by_position(result: RunComparison, positions: Sequence[int | Gap]) -> dict[int, NodeRow]:
    """Make the rows to show, by position. Rows of a node with several outputs show the tensor too."""
    repeated_names = {name for name, count in Counter(node.node for node in result.nodes).items() if count > 1}
    rows: dict[int, NodeRow] = {}
    for position in positions:
        if isinstance(position, Gap):
            continue
        row = node_row(result.nodes[position])
        if row.node in repeated_names:
            cell = replace(row.cells["node"], text=f"{row.cells['node'].text} > {row.cells['tensor'].text}")
            row = replace(row, cells={**row.cells, "node": cell})
        rows[position] = row
    return rows


def _node_section(result: RunComparison, width: int, positions: Sequence[int | Gap]) -> list[RenderableType]:
    rows = _rows_by_position(result, positions)
    if not rows:
        return [Text("No node was compared.", style="yellow")]
    placed_columns = place_columns(list(rows.values()), width)
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for entry in placed_columns:
        table.add_column(
            Text(entry.column.title),
            justify="right" if entry.column.numeric else "left",
            width=entry.width,
            no_wrap=True,
        )
    for position in positions:
        if isinstance(position, Gap):
            table.add_row(*_gap_cells(position, placed_columns))
        else:
            is_first = rows[position].index == first
            table.add_row(
                *_row_cells(rows[position], placed_columns, marked=is_first), style="bold" if is_first else ""
            )
    section: list[RenderableType] = [table]
    hidden = len(result.nodes) - len(rows)
    if hidden:
        note = f"{numbers.grouped(hidden)} of {numbers.grouped(len(result.nodes))} nodes hidden; --all shows every one"
        section.append(Text(note, style="dim"))
    return [*section, *_reason_section(result.nodes)]


def _row_cells(row: NodeRow, placed_columns: Sequence[PlacedColumn], *, marked: bool) -> list[Text]:
    cells = []
    for entry in placed_columns:
        cell = row.cells[entry.column.key]
        if entry.column.key == "index" and marked:
            cell = Cell(text=f">{cell.text}")
        cells.append(Text(shorten(cell.text, entry.width), style=STYLES[cell.state]))
    return cells


def _gap_cells(gap: Gap, placed_columns: Sequence[PlacedColumn]) -> list[Text]:
    node_width = next(entry.width for entry in placed_columns if entry.column.key == "node")
    words = shorten(f"{numbers.grouped(gap.hidden)} hidden", node_width)
    return [Text(words if entry.column.key == "node" else "", style="dim italic") for entry in placed_columns]


def _reason_section(nodes: Sequence[NodeResult]) -> list[RenderableType]:
    """List the reasons why nodes fail or were not compared, and the remarks."""
    unusual = [node for node in nodes if node.reason and (breaks_limit(node) or node.status is Status.INCOMPARABLE)]
    items = [
        Item(
            f"#{node.index} {safe_text(node.node, limit=120)}: {safe_text(node.reason, limit=400)}",
            str(node.status),
            STYLES[node.status],
        )
        for node in unusual[:_REASONS_SHOWN]
    ]
    if len(unusual) > _REASONS_SHOWN:
        hidden_count = len(unusual) - _REASONS_SHOWN
        items.append(Item(f"{hidden_count} more with a reason; --node NAME or -f json shows it", style="dim"))
    all_items = [*items, *remarks(nodes).items]
    return [Text(""), terminal([Items(all_items)])] if all_items else []
