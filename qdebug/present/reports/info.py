"""What a recording holds, as a terminal or a pull request shows it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from qdebug.present.contents import TENSOR_TITLES, Contents, contents_facts, tensor_rows
from qdebug.present.reports.markdown import code, markdown_table, markdown_text
from qdebug.present.reports.table import fact_table, plain_grid

__all__ = ["info_markdown", "info_report"]


def info_report(contents: Contents, *, tensors: bool = False) -> RenderableType:
    """Make the report of what a recording holds.

    Args:
        contents: What to show.
        tensors: List every tensor too.
    """
    facts = fact_table([(label, Text(text)) for label, text in contents_facts(contents)])
    if not tensors:
        return facts
    return Group(facts, Text(""), plain_grid(TENSOR_TITLES, tensor_rows(contents.recording)))


def info_markdown(contents: Contents, *, tensors: bool = False) -> str:
    """Return what a recording holds as Markdown.

    Args:
        contents: What to show.
        tensors: List every tensor too.
    """
    lines = [f"- **{label or '...'}**: {markdown_text(text, limit=1000)}" for label, text in contents_facts(contents)]
    if tensors:
        rows = [
            (code(row[0]), *map(markdown_text, row[1:-1]), code(row[-1])) for row in tensor_rows(contents.recording)
        ]
        lines += ["", *markdown_table(TENSOR_TITLES, rows)]
    return "\n".join(lines) + "\n"
