"""Results in the form that was asked for, at the width at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qdebug.cli.output import natural_width, rendered, terminal_height, terminal_width

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
_ROWS_KEPT = 5
"""Rows that a short report keeps as long as something else can be left out."""
_NARROW = 100
"""Characters a line of a report has that no terminal shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportExtent:
    """How much of a comparison a report says.

    Args:
        verbose: What ran, the limits, the neighbours of the first divergence and the worst nodes, all remarks.
        everything: Every node and every tensor left out as well.
        quiet: The verdict alone.
        choice: Rows that were asked for; the usual ones if None.
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
    below: int = 0,
    again: str = "",
) -> str:
    """Return a comparison as text, which fits the screen unless more was asked for.

    Args:
        result: The comparison.
        form: One of the formats but JSON.
        extent: How much is said; what fits the screen if None.
        plain: For a file: no colours, and as wide as the names need.
        below: Lines that the screen has to show besides.
        again: The command that makes this report again, for Markdown; "" for none.
    """
    from qdebug.present.reports.comparison import diff_markdown, title
    from qdebug.present.reports.short import MOST_ROWS, short_document

    extent = extent or ReportExtent()
    if extent.quiet:
        return document_text([title(result)], form, plain=plain)
    whole = extent.verbose or extent.everything
    if form == "markdown":
        if whole:
            return diff_markdown(result)
        from qdebug.present.reports.markdown import folded

        return folded(short_document(result, choice=extent.choice, whys=MOST_ROWS), command=again)
    if whole:
        from qdebug.present.reports.diff_table import diff_report, fitting_width

        width = None if plain else terminal_width()
        width = width or fitting_width(result, everything=extent.everything)
        report = diff_report(result, width=width, everything=extent.everything, choice=extent.choice)
        text = rendered(report, width=width, plain=plain)
    else:
        text = _fitting(result, extent, plain=plain, lines=terminal_height() - below)
    if text.count("\n") > terminal_height():
        text = f"{text.rstrip()}\n\n{document_text([title(result)], form, plain=plain)}"
    return text


def _fitting(result: RunComparison, extent: ReportExtent, *, plain: bool, lines: int) -> str:
    """Return the short report with as many of the usual rows as fit so many lines, and one at least."""
    from qdebug.present.reports.short import MOST_ROWS, short_document

    most, whys, remarks, terse = MOST_ROWS, 3, 3, False
    while True:
        document = short_document(result, choice=extent.choice, most=most, whys=whys, remarks=remarks, terse=terse)
        text = document_text(document, "table", plain=plain, narrow=True)
        if (most, whys) == (1, 1) or extent.choice is not None or text.rstrip("\n").count("\n") < lines:
            return text
        if most > _ROWS_KEPT:
            most -= 1
        elif remarks:
            remarks -= 1
        elif whys > 1:
            whys -= 1
        elif not terse:
            terse = True
        else:
            most -= 1


def exchange_text(
    results: Mapping[str, RunComparison],
    form: str,
    details: Mapping[str, Sequence[NodeDetail]] | None = None,
    agreement: Mapping[str, Agreement] | None = None,
    budgets: Mapping[str, Document] | None = None,
) -> str:
    """Return comparisons in a form that other programs read.

    Args:
        results: One comparison for each backend, by the name shown for it.
        form: "html", "junit" or "csv".
        details: Nodes that a page shows in full, by the same names.
        agreement: Whether several backends are wrong alike, by reference tensor, for a page.
        budgets: What each node's own error does to the outputs, by the same names, for a page.
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
    """Return several backends beside each other as text; JSON is not made here.

    Args:
        results: One comparison for each backend, by the name shown for it.
        agreement: Whether the backends are wrong alike, by reference tensor.
        form: "table" or "markdown".
        plain: For a file: no colours.
    """
    from qdebug.present.reports.matrix import matrix_document

    return document_text(matrix_document(results, agreement), form, plain=plain)


def node_text(detail: NodeDetail, form: str, *, plain: bool = False) -> str:
    """Return one compared node in full as text; JSON is not made here.

    Args:
        detail: The node.
        form: "table" or "markdown".
        plain: For a file: no colours.
    """
    from qdebug.present.reports.node import node_document

    return document_text(node_document(detail), form, plain=plain)


def contents_text(contents: Contents, form: str, *, tensors: bool = False, plain: bool = False) -> str:
    """Return what a recording holds as text.

    Args:
        contents: What to describe.
        form: One of the formats.
        tensors: List every tensor too.
        plain: For a file: no colours.
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
        document: What to show.
        form: "markdown", or any other for a terminal.
        plain: For a file: no colours, and as wide as its lines are.
        narrow: Wrap text where no terminal does.
    """
    if form == "markdown":
        from qdebug.present.reports.markdown import markdown

        return markdown(document)
    from qdebug.present.reports.terminal import terminal, widest_row

    width = None if plain else terminal_width()
    if width is None and narrow:
        width = max(_NARROW, widest_row(document))  # text is wrapped, names are whole
    report = terminal(document, width=width or _UNBOUNDED)
    return rendered(report, width=width or natural_width(report), plain=plain)
