"""Renders a document in a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qdebug.present import numbers
from qdebug.present.reports.document import (
    Block,
    Code,
    Document,
    Fact,
    FactList,
    Grid,
    Item,
    Items,
    Paragraph,
    Section,
    Title,
)
from qdebug.present.text import shorten

__all__ = ["GAP", "figure_lines", "terminal", "widest_row"]

GAP = 2
"""Number of blank cells between two columns."""

_UNLIMITED_WIDTH = 10_000
_MIN_NAME = 8
"""Minimum number of characters of a name, even in a narrow terminal."""


def terminal(document: Document, *, width: int = _UNLIMITED_WIDTH) -> RenderableType:
    """Lay a document out for a terminal, with an empty line between two blocks but none below a heading.

    Args:
        document: The document to show.
        width: Characters available on a line.
    """
    parts: list[RenderableType] = []
    previous_block: Block | None = None
    for block in document:
        drawn = _render_block(block, width)
        are_title_facts = isinstance(previous_block, Title) and isinstance(block, FactList)
        needs_no_gap = (
            previous_block is None
            or are_title_facts
            or isinstance(previous_block, Section)
            or isinstance(block, Paragraph)
        )
        if drawn:
            parts += drawn if needs_no_gap else [Text(""), *drawn]
            previous_block = block
    return Group(*parts)


def _render_block(block: Block, width: int) -> list[RenderableType]:
    if isinstance(block, Title):
        line = Table.grid(padding=(0, GAP, 0, 0))  # continuation lines align with the text, not with the label
        line.add_column(no_wrap=True)
        line.add_column(overflow="fold")
        line.add_row(Text(block.word, style=block.style), Text(block.text))
        return [line]
    if isinstance(block, Section):
        return [Text(block.text, style="bold")]
    if isinstance(block, Paragraph):
        return [Text(block.text, style=block.style)]
    if isinstance(block, Code):
        return [Padding(Text(block.text), (0, 0, 0, 4))]
    if isinstance(block, FactList):
        return [_facts_table(block.facts)] if block.facts else []
    if isinstance(block, Items):
        return [line for item in block.items for line in _item_lines(item)]
    if not block.rows:
        return []
    return _stack_rows(block, width) if block.below else _grid_table(block, width)


def _facts_table(facts: Iterable[Fact]) -> Table:
    """Lay out labelled facts, one per line, with long ones wrapped and aligned."""
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for fact in facts:
        table.add_row(Text(fact.label), Text(fact.text, style=fact.style))
    return table


def _item_lines(item: Item) -> list[RenderableType]:
    if not item.kind:
        return [Text(item.text, style=item.style), *map(_indent, item.more)]
    return [Text.assemble((item.kind, item.style), f" {item.text}"), *map(_indent, item.more)]


def _indent(text: str, style: str = "") -> RenderableType:
    """Indent a paragraph below a line, even if it is wrapped."""
    return Padding(Text(text, style=style), (0, 0, 0, 4))


def _grid_table(grid: Grid, width: int) -> list[RenderableType]:
    """Lay out rows under headings, without lines."""
    shown = len(grid.titles) - (width < grid.wide)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for at, title in enumerate(grid.titles[:shown]):
        table.add_column(
            Text(title),
            justify="right" if at in grid.right else "left",
            style="dim" if at in grid.dim else "",
            overflow="fold",
        )
    for row in grid.rows:
        table.add_row(*map(Text, row[:shown]))
    return [table] if shown == len(grid.titles) else [table, Text(grid.instead, style="dim")]


def widest_row(document: Document) -> int:
    """Return the width of the widest line of figures if no name is shortened, or 0 without figures."""
    grids = [block for block in document if isinstance(block, Grid) and block.below and block.rows]
    lines = (
        figure_lines([[row[at] for at in _columns_in_row(grid)] for row in (grid.titles, *grid.rows)]) for grid in grids
    )
    return max((len(line) for group in lines for line in group), default=0)


def _columns_in_row(grid: Grid) -> list[int]:
    """Return the columns that are side by side in a row, rather than below it."""
    return [at for at in range(len(grid.titles)) if at not in grid.below]


def _stack_rows(grid: Grid, width: int) -> list[RenderableType]:
    """Lay out each row as a line of figures, followed by the texts that are too long for a column."""
    columns = _columns_in_row(grid)
    right = {column_number for column_number, at in enumerate(columns) if at in grid.right}
    names = [column_number for column_number, at in enumerate(columns) if at in grid.names]
    lines: list[RenderableType] = []
    rows = _fit_names([[row[column] for column in columns] for row in (grid.titles, *grid.rows)], names, width)
    styles = ["bold", *(grid.styles or [""] * len(grid.rows))]
    for at, line in enumerate(figure_lines(rows, right=right)):
        lines.append(Text(line, style=styles[at]))
        for column, before in grid.below.items() if at else ():
            text = grid.rows[at - 1][column]
            if text not in ("", numbers.MISSING):
                lines.append(_indent(before + text, "dim" if before else ""))
    return lines


def _fit_names(rows: list[list[str]], names: Sequence[int], width: int) -> list[list[str]]:
    """Shorten names until each row fits a line, the column with the longest names first."""
    for name_column in sorted(names, key=lambda column: -max(len(row[column]) for row in rows)):
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        excess = sum(widths) + GAP * (len(widths) - 1) - width
        if excess > 0:
            name_width = max(_MIN_NAME, widths[name_column] - excess)
            rows = [
                [shorten(text, name_width) if at == name_column else text for at, text in enumerate(row)]
                for row in rows
            ]
    return rows


def figure_lines(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> list[str]:
    """Lay out rows of safe text as lines below a row of headings. The last column is not padded.

    Args:
        rows: Headings, then rows with one text per column.
        right: Right-aligned columns.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
