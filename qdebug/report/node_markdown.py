"""One compared node in full as Markdown."""

from __future__ import annotations

from qdebug.report.markdown import markdown_table, markdown_text
from qdebug.report.profile import profile_markdown
from qdebug.view.detail import (
    WORST_TITLES,
    NodeDetail,
    attribution_facts,
    error_rows,
    rail_facts,
    sample_lines,
    side_facts,
    worst_rows,
)

__all__ = ["node_markdown"]


def node_markdown(detail: NodeDetail) -> str:
    """Give one compared node in full as Markdown.

    Args:
        detail: What to show.
    """
    result = detail.result
    lines = [f"## {markdown_text(result.node)}: {result.status}", ""]
    if result.reason:
        lines += [markdown_text(result.reason), ""]
    if result.note:
        lines += [f"Note: {markdown_text(result.note)}", ""]
    lines += [
        f"{markdown_text(result.op)}, node {result.index}. Pair: {result.match}, {markdown_text(result.match_reason)}",
        "",
    ]
    lines += [f"- **{label}**: {markdown_text(text, limit=500)}" for label, text in attribution_facts(result)]
    lines.append("")
    lines += markdown_table(
        ("", "reference", "backend"),
        [(f.label, markdown_text(f.reference), markdown_text(f.backend)) for f in side_facts(detail)],
    )
    titles, rows = error_rows(result)
    if rows:
        lines += ["", *markdown_table(titles, [tuple(map(markdown_text, row)) for row in rows])]
    rails = rail_facts(result.saturation)
    if rails:
        lines += ["", *markdown_table(("saturation", "codes"), [(label, markdown_text(text)) for label, text in rails])]
    if len(result.samples) > 1:
        lines += ["", *(f"- {markdown_text(line)}" for line in sample_lines(result))]
    if detail.profile is not None:
        lines += profile_markdown(detail.profile)
    if detail.worst:
        lines += ["", "### Worst elements", ""]
        lines += markdown_table(WORST_TITLES, [tuple(map(markdown_text, row)) for row in worst_rows(detail.worst)])
    return "\n".join(lines) + "\n"
