"""Several backends compared with one reference: one row for each reference tensor, one column for each backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from qdebug.compare.result.result import RunComparison, json_safe
from qdebug.numerics.agreement import Agreement
from qdebug.present import numbers
from qdebug.present.matrix import Matrix, MatrixRow, agreement_sentence, matrix_of
from qdebug.present.reports.markdown import code, markdown_table, markdown_text
from qdebug.present.reports.table import GAP
from qdebug.present.rows import STYLES
from qdebug.present.text import safe_text, shorten

__all__ = ["diffs_dict", "diffs_json", "matrix_markdown", "matrix_report"]

_SHOWN = 12
"""Rows of the matrix that a report shows, the worst ones; the JSON has them all."""

_ALIKE = "wrong alike"
_BACKEND_WIDTH = 24
_NODE_WIDTH = 40


def diffs_dict(
    results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None = None
) -> dict[str, Any]:
    """Return several comparisons and the matrix of their SQNR as plain values.

    Args:
        results: One comparison for each backend, by the name shown for it.
        agreement: Whether the backends are wrong alike, by reference tensor; None if nobody asked.
    """
    known = matrix_of(results, agreement)
    matrix = {
        "value": "sqnr_db",
        "backends": list(known.backends),
        "nodes": [row.tensor for row in known.rows],
        "rows": [[cell.value for cell in row.cells] for row in known.rows],
        "agreement": [_plain(row.agreement) for row in known.rows],
    }
    diffs = [result.to_dict() for result in results.values()]
    plain: dict[str, Any] = json_safe({"format": "qdebug.diffs", "version": 1, "diffs": diffs, "matrix": matrix})
    return plain


def _plain(agreement: Agreement | None) -> dict[str, int] | None:
    if agreement is None:
        return None
    return {"elements": agreement.elements, "differ": agreement.differ, "same": agreement.same}


def diffs_json(
    results: Mapping[str, RunComparison],
    agreement: Mapping[str, Agreement] | None = None,
    *,
    indent: int | None = 2,
) -> str:
    """Return several comparisons as JSON text."""
    return json.dumps(diffs_dict(results, agreement), indent=indent, allow_nan=False)


def matrix_report(
    results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None, *, width: int
) -> RenderableType:
    """Make the table of several backends beside each other, the worst tensors first.

    Args:
        results: One comparison for each backend, by the name shown for it.
        agreement: Whether the backends are wrong alike, by reference tensor; None if nobody asked.
        width: Characters a line may take.
    """
    matrix = matrix_of(results, agreement)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("backend")
    for title in ("status", "first divergence", "origin"):
        table.add_column(title)
    for position, (name, result) in enumerate(results.items()):
        verdict = result.verdict
        table.add_row(
            f"{_letter(position)} {shorten(safe_text(name), 60)}",
            Text(str(verdict.status), style=STYLES[verdict.status]),
            _name(verdict.first_divergence),
            _name(verdict.origin),
        )
    parts: list[RenderableType] = [table, Text("")]
    shown = matrix.worst_rows(_SHOWN)
    if not shown:
        return Group(*parts, Text("Every backend equals the reference in every tensor compared."))
    parts += [_rows_table(matrix, shown, width), Text(_hidden(matrix, shown), style="dim")]
    said = agreement_sentence(matrix.rows)
    return Group(*parts, *([Text(said)] if said else []))


def _rows_table(matrix: Matrix, shown: list[MatrixRow], width: int) -> Table:
    heads = [_letter(position) for position in range(len(matrix.backends))]
    cells = [max(len(head), *(len(row.cells[at].text) for row in shown)) for at, head in enumerate(heads)]
    alike = max(len(_ALIKE), *(len(row.alike) for row in shown))
    room = width - sum(cells) - GAP * (len(cells) + 2) - alike
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold", title_justify="left")
    table.add_column("SQNR dB of node", width=max(12, min(room, _NODE_WIDTH)), no_wrap=True)
    for head, size in zip(heads, cells, strict=True):
        table.add_column(head, justify="right", min_width=size, no_wrap=True)
    if any(row.agreement for row in matrix.rows):
        table.add_column(_ALIKE, justify="right", no_wrap=True)
    for row in shown:
        texts = [Text(cell.text, style=STYLES[cell.state]) for cell in row.cells]
        more = [Text(row.alike)] if any(row.agreement for row in matrix.rows) else []
        table.add_row(Text(shorten(row.node, max(12, min(room, _NODE_WIDTH)))), *texts, *more)
    return table


def _hidden(matrix: Matrix, shown: list[MatrixRow]) -> str:
    return f"the {numbers.grouped(len(shown))} worst of {numbers.grouped(len(matrix.rows))} tensors; the JSON has all"


def _letter(position: int) -> str:
    """Return the short name of a backend in the matrix: A to Z, then A1."""
    turn, place = divmod(position, 26)
    return chr(ord("A") + place) + (str(turn) if turn else "")


def _name(name: str | None) -> Text:
    return Text(numbers.MISSING if name is None else shorten(safe_text(name), _BACKEND_WIDTH))


def matrix_markdown(results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None) -> str:
    """Return several backends beside each other as Markdown.

    Args:
        results: One comparison for each backend, by the name shown for it.
        agreement: Whether the backends are wrong alike, by reference tensor; None if nobody asked.
    """
    matrix = matrix_of(results, agreement)
    lines = ["## qdebug: several backends", ""]
    summary = [
        (
            f"{_letter(position)} {code(name)}",
            str(result.status),
            code(result.first_divergence or ""),
            code(result.origin or ""),
        )
        for position, (name, result) in enumerate(results.items())
    ]
    lines += markdown_table(("backend", "status", "first divergence", "origin"), summary)
    shown = matrix.worst_rows(_SHOWN)
    heads = [_letter(position) for position in range(len(matrix.backends))]
    rows = [
        (code(row.node), *(markdown_text(cell.text) for cell in row.cells), markdown_text(row.alike)) for row in shown
    ]
    if rows:
        lines += ["", *markdown_table(("SQNR dB of node", *heads, _ALIKE), rows)]
        lines += ["", markdown_text(_hidden(matrix, shown)), "", markdown_text(agreement_sentence(matrix.rows))]
    return "\n".join(lines) + "\n"
