"""An explanation as a terminal shows it, and as Markdown: first how many, then by what, then what is left."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from qdebug.compare.explaining.explanation import ExplainedRun, ExplainStatus, NodeExplanation
from qdebug.present import explained, sentences
from qdebug.present.reports.markdown import code, markdown_table, markdown_text
from qdebug.present.reports.table import fact_table, figure_lines, indented, plain_grid

__all__ = ["explain_markdown", "explain_report", "explained_node_markdown", "explained_node_report"]

_STYLE = {0: "bold green", 1: "bold red", 3: "bold yellow"}
_LISTED = 40
_MOST_ROWS = 500
"""Rows of Markdown, so that a job summary stays below what it may be."""
_RIGHT = frozenset({0, 1, 2, 3})
"""Columns of figures, and those aligned to the right."""


def explain_report(explanation: ExplainedRun, *, everything: bool = False) -> RenderableType:
    """Make the report of an explanation.

    Args:
        explanation: What to show.
        everything: List every node, not only those that nothing explains.
    """
    blank = Text("")
    word = explained.verdict_word(explanation)
    parts: list[RenderableType] = [
        Text.assemble(
            (word, _STYLE[explanation.exit_code]),
            "  ",
            explained.headline(explanation),
        ),
        blank,
        fact_table([("backend", Text(sentences.run_facts(explanation.run)))]),
        fact_table([("fidelity", Text(sentences.fidelity_sentence(explanation.run)))]),
        *[fact_table([("preset", Text(said))]) for said in explained.preset_sentences(explanation)],
        blank,
    ]
    parts += _groups(explanation)
    if everything:
        rows = [explained.node_row(node) for node in explanation.nodes]
        parts += [plain_grid(explained.NODE_TITLES, rows, right=(4,)), blank]
    left = explanation.of(ExplainStatus.UNEXPLAINED)
    for node in left[:_LISTED]:
        first, *others = explained.left_lines(node)
        parts.append(Text.assemble(("unexplained", "dim" if node.accepted else "bold red"), f"  {first}"))
        parts += [indented(line) for line in others]
    if len(left) > _LISTED:
        parts.append(Text(f"{len(left) - _LISTED} more unexplained; --all lists every node", style="dim"))
    parts += [Text(said, style="dim") for said in explained.rest_sentences(explanation)]
    return Group(*parts)


def _groups(explanation: ExplainedRun) -> list[RenderableType]:
    """Show each group in a line of figures and, below it, by what it is explained and who else computes so."""
    rows = explained.group_rows(explanation)
    if not rows:
        return []
    lines: list[RenderableType] = []
    table = [_figures(explained.GROUP_TITLES), *(_figures(row) for row in rows)]
    for position, line in enumerate(figure_lines(table, right=_RIGHT)):
        lines.append(Text(line, style="bold" if position == 0 else ""))
        if position:
            by, known = rows[position - 1][-2:]
            lines.append(indented(by))
            lines += [indented(f"as {known}", "dim")] if known else []
    return [*lines, Text("")]


def _figures(row: Sequence[str]) -> tuple[str, ...]:
    """Put operator and types last, so that the lines fit a narrow terminal."""
    nodes, op, types, size, witnesses, runner = row[:6]
    return nodes, size, witnesses, runner, f"{op} {types}".strip()


def explained_node_report(node: NodeExplanation) -> RenderableType:
    """Make the report of one node."""
    return fact_table([(label, Text(text)) for label, text in explained.node_facts(node)])


def explain_markdown(explanation: ExplainedRun, *, everything: bool = False) -> str:
    """Return an explanation as Markdown.

    Args:
        explanation: What to show.
        everything: List every node, not only those that nothing explains.
    """
    lines = [
        f"## {markdown_text(explained.headline(explanation), limit=500)}",
        "",
        f"Backend: {markdown_text(sentences.run_facts(explanation.run), limit=500)}",
        "",
    ]
    rows = explained.group_rows(explanation)
    if rows:
        lines += [*markdown_table(explained.GROUP_TITLES, [tuple(map(markdown_text, row)) for row in rows]), ""]
    listed = explanation.nodes if everything else explanation.of(ExplainStatus.UNEXPLAINED)
    if listed:
        cells = [explained.node_row(node) for node in listed[:_MOST_ROWS]]
        lines += markdown_table(
            explained.NODE_TITLES,
            [(row[0], code(row[1]), *(markdown_text(text, limit=500) for text in row[2:])) for row in cells],
        )
        lines.append("")
    if len(listed) > _MOST_ROWS:
        lines += [f"**{len(listed) - _MOST_ROWS} more nodes are cut; the JSON has them all**", ""]
    lines += [f"- {markdown_text(said)}" for said in explained.rest_sentences(explanation)]
    return "\n".join(lines) + "\n"


def explained_node_markdown(node: NodeExplanation) -> str:
    """Return one node as Markdown."""
    rows = [(label, markdown_text(text, limit=800)) for label, text in explained.node_facts(node)]
    return "\n".join(markdown_table(("", "value"), rows)) + "\n"
