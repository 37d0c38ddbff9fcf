"""Results as text in the requested format, fitted to the width of the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qdebug.cli.output import natural_width, render, terminal_height, terminal_width

if TYPE_CHECKING:
    from qdebug.compare.result.result import RunComparison
    from qdebug.numerics.agreement import Agreement
    from qdebug.present.contents import Contents
    from qdebug.present.detail import NodeDetail
    from qdebug.present.reports.document import Document
    from qdebug.present.rows import RowChoice

__all__ = [
    "ReportExtent",
    "contents_text",
    "definitions_text",
    "diff_text",
    "document_text",
    "exchange_text",
    "matrix_text",
    "node_text",
]


_UNBOUNDED = 10_000
_MIN_ROWS = 5
"""Number of rows that a short report keeps as long as other parts can be left out."""
_DEFAULT_WIDTH = 100
"""Width of a report without a terminal, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportExtent:
    """Extent of the report on a comparison.

    Args:
        verbose: Add runs, limits, the neighbours of the first divergence, the worst nodes and all remarks.
        everything: Add every node and every tensor that was left out.
        quiet: Show only the verdict.
        choice: Requested rows; None for the default ones.
    """

    verbose: bool = False
    everything: bool = False
    quiet: bool = False
    choice: RowChoice | None = None


def diff_text(
    result: RunComparison,
    form: str,
    *,
    extent: ReportExtent | None = None,
    plain: bool = False,
    lines_below: int = 0,
    repeat_command: str = "",
) -> str:
    """Return a comparison as text that fits on the screen, unless more was requested.

    Args:
        result: The comparison.
        form: Any format except JSON.
        extent: Extent of the report; None for as much as fits on the screen.
        plain: Whether it is for a file: without colours, and as wide as the names require.
        lines_below: Number of lines on the screen to leave free.
        repeat_command: The command that creates this report, for Markdown; "" without one.
    """
    from qdebug.present.reports.comparison import diff_markdown, title
    from qdebug.present.reports.short import MOST_ROWS, short_document

    extent = extent or ReportExtent()
    if extent.quiet:
        return document_text([title(result)], form, plain=plain)
    is_long = extent.verbose or extent.everything
    if form == "markdown":
        if is_long:
            return diff_markdown(result)
        from qdebug.present.reports.markdown import fold_away

        return fold_away(short_document(result, choice=extent.choice, max_reasons=MOST_ROWS), command=repeat_command)
    if is_long:
        from qdebug.present.reports.diff_table import diff_report, fitting_width

        width = None if plain else terminal_width()
        width = width or fitting_width(result, everything=extent.everything)
        report = diff_report(result, width=width, everything=extent.everything, choice=extent.choice)
        text = render(report, width=width, is_plain=plain)
    else:
        text = _fitting_text(result, extent, plain=plain, lines=terminal_height() - lines_below)
    if text.count("\n") > terminal_height():
        text = f"{text.rstrip()}\n\n{document_text([title(result)], form, plain=plain)}"
    return text


def _fitting_text(result: RunComparison, extent: ReportExtent, *, plain: bool, lines: int) -> str:
    """Return the short report with as many of the default rows as fit in `lines`, but at least one."""
    from qdebug.present.reports.short import MOST_ROWS, short_document

    max_rows, max_reasons, remarks, is_terse = MOST_ROWS, 3, 3, False
    while True:
        document = short_document(
            result, choice=extent.choice, max_rows=max_rows, max_reasons=max_reasons, remarks=remarks, terse=is_terse
        )
        text = document_text(document, "table", plain=plain, narrow=True)
        if (max_rows, max_reasons) == (1, 1) or extent.choice is not None or text.rstrip("\n").count("\n") < lines:
            return text
        if max_rows > _MIN_ROWS:
            max_rows -= 1
        elif remarks:
            remarks -= 1
        elif max_reasons > 1:
            max_reasons -= 1
        elif not is_terse:
            is_terse = True
        else:
            max_rows -= 1


def exchange_text(
    results: Mapping[str, RunComparison],
    form: str,
    details: Mapping[str, Sequence[NodeDetail]] | None = None,
    agreement: Mapping[str, Agreement] | None = None,
    budgets: Mapping[str, Document] | None = None,
) -> str:
    """Return comparisons in a format for other programs.

    Args:
        results: One comparison per backend, by display name.
        form: "html", "junit" or "csv".
        details: Nodes that a page shows in full, by the same names.
        agreement: Agreement of several backends' errors, by reference tensor, for a page.
        budgets: The error budget of each backend, by the same names, for a page.
    """
    if form == "csv":
        from qdebug.present.reports.exports import diff_csv

        return diff_csv(results)
    if form == "junit":
        from qdebug.present.reports.junit import diff_junit

        return diff_junit(results)
    from qdebug.present.reports.html import diff_html

    return diff_html(results, details, agreement, budgets)


def matrix_text(
    results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement], form: str, *, plain: bool = False
) -> str:
    """Return several backends side by side as text.

    Args:
        results: One comparison per backend, by display name.
        agreement: Agreement of the backends' errors, by reference tensor.
        form: "table" or "markdown".
        plain: Whether it is for a file, without colours.
    """
    from qdebug.present.reports.matrix import matrix_document

    return document_text(matrix_document(results, agreement), form, plain=plain)


def node_text(detail: NodeDetail, form: str, *, plain: bool = False) -> str:
    """Return a compared node in full as text.

    Args:
        detail: The node.
        form: "table" or "markdown".
        plain: Whether it is for a file, without colours.
    """
    from qdebug.present.reports.node import node_document

    return document_text(node_document(detail), form, plain=plain)


def contents_text(contents: Contents, form: str, *, tensors: bool = False, plain: bool = False) -> str:
    """Return the contents of a recording as text.

    Args:
        contents: The contents.
        form: One of the formats.
        tensors: Whether to list every tensor.
        plain: Whether it is for a file, without colours.
    """
    if form == "json":
        return replace(contents, listed=tensors).to_json()
    from qdebug.present.reports.info import info_document

    return document_text(info_document(contents, tensors=tensors), form, plain=plain)


def definitions_text(form: str) -> str:
    """Return the definitions of all metrics as text."""
    from qdebug.present.reports.definitions import definitions_document, definitions_json

    return json.dumps(definitions_json(), indent=2) if form == "json" else document_text(definitions_document(), form)


def document_text(document: Document, form: str, *, plain: bool = False, narrow: bool = False) -> str:
    """Return a document as text.

    Args:
        document: The document.
        form: "markdown", or any other value for a terminal.
        plain: Whether it is for a file: without colours, and as wide as its lines.
        narrow: Whether to wrap text without a terminal.
    """
    if form == "markdown":
        from qdebug.present.reports.markdown import markdown

        return markdown(document)
    from qdebug.present.reports.terminal import terminal, widest_row

    width = None if plain else terminal_width()
    if width is None and narrow:
        width = max(_DEFAULT_WIDTH, widest_row(document))  # wide enough that only sentences are wrapped, never names
    report = terminal(document, width=width or _UNBOUNDED)
    return render(report, width=width or natural_width(report), is_plain=plain)
