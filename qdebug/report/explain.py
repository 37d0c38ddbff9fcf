"""An explanation as a terminal shows it, and as Markdown: first how many, then by what, then what is left."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from qdebug.analysis.explanation import ExplainStatus, Explanation, NodeExplanation
from qdebug.report.markdown import code, markdown_table, markdown_text
from qdebug.report.table import fact_table, plain_grid
from qdebug.view import explained, sentences

__all__ = ["explain_markdown", "explain_report", "explained_node_markdown", "explained_node_report"]

_STYLE = {0: "bold green", 1: "bold red", 3: "bold yellow"}
_LISTED = 40


def explain_report(explanation: Explanation, *, everything: bool = False) -> RenderableType:
    """Make the report of an explanation.

    Args:
        explanation: What to show.
        everything: List every node, not only those that nothing explains.
    """
    blank = Text("")
    word = explained.verdict_word(explanation)
    parts: list[RenderableType] = [
        Text.assemble(
            (word, "bold yellow" if word == "NO ANSWER" else _STYLE[explanation.exit_code]),
            "  ",
            explained.headline(explanation),
        ),
        blank,
        fact_table([("backend", Text(sentences.run_facts(explanation.run)))]),
        fact_table([("fidelity", Text(sentences.fidelity_sentence(explanation.run)))]),
        blank,
    ]
    rows = explained.group_rows(explanation)
    if rows:
        parts += [plain_grid(explained.GROUP_TITLES, rows, right=(0, 4, 5)), blank]
    listed = _listed(explanation, everything=everything)
    if listed:
        parts += [plain_grid(explained.NODE_TITLES, [explained.node_row(node) for node in listed], right=(4,)), blank]
    hidden = len(explanation.of(ExplainStatus.UNEXPLAINED)) - len(listed)
    if hidden > 0:
        parts.append(Text(f"{hidden} more unexplained; --all lists every node", style="dim"))
    parts += [Text(said, style="dim") for said in explained.rest_sentences(explanation)]
    return Group(*parts)


def _listed(explanation: Explanation, *, everything: bool) -> list[NodeExplanation]:
    if everything:
        return list(explanation.nodes)
    return list(explanation.of(ExplainStatus.UNEXPLAINED)[:_LISTED])


def explained_node_report(node: NodeExplanation) -> RenderableType:
    """Make the report of one node."""
    return fact_table([(label, Text(text)) for label, text in explained.node_facts(node)])


def explain_markdown(explanation: Explanation, *, everything: bool = False) -> str:
    """Give an explanation as Markdown.

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
    listed = _listed(explanation, everything=everything)
    if listed:
        cells = [explained.node_row(node) for node in listed]
        lines += markdown_table(
            explained.NODE_TITLES,
            [(row[0], code(row[1]), *(markdown_text(text, limit=500) for text in row[2:])) for row in cells],
        )
        lines.append("")
    lines += [f"- {markdown_text(said)}" for said in explained.rest_sentences(explanation)]
    return "\n".join(lines) + "\n"


def explained_node_markdown(node: NodeExplanation) -> str:
    """Give one node as Markdown."""
    rows = [(label, markdown_text(text, limit=800)) for label, text in explained.node_facts(node)]
    return "\n".join(markdown_table(("", "value"), rows)) + "\n"
