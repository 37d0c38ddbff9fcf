"""A document as GitHub-flavoured Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from qdebug.present.numbers import MISSING
from qdebug.present.reports.document import (
    Block,
    Code,
    Document,
    FactList,
    Grid,
    Item,
    Items,
    Paragraph,
    Section,
    Title,
)
from qdebug.present.text import safe_text

__all__ = ["code", "fold_away", "markdown", "markdown_blocks", "markdown_table", "markdown_text"]

_SPECIAL = str.maketrans(
    {character: "\\" + character for character in "\\`*_{}[]<>()+!|~$&"}
    | {"@": "@<!-- -->", "#": "#<!-- -->"}  # a backslash does not prevent @mentions and #references
)
_MAX_ROWS = 500
"""Maximum number of table rows, which keeps a job summary within its limit."""
_SENTENCE_LIMIT = 1000
"""Maximum number of characters of a sentence."""


def markdown_text(value: object, *, limit: int = 300) -> str:
    """Return text that Markdown shows literally: no markup, mention or table break.

    Args:
        value: Anything, such as a name from a recording.
        limit: Maximum number of characters before escaping.
    """
    text = safe_text(value, limit=limit).translate(_SPECIAL)
    return text.replace("://", ":<!-- -->//").replace("www.", "www<!-- -->.")


def code(value: object, *, limit: int = 200) -> str:
    """Return a name as a code span for a table cell, free of markup, links and mentions.

    Args:
        value: A name from a recording.
        limit: Maximum number of its characters.
    """
    text = safe_text(value, limit=limit)
    if not text.strip():
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, whose cells must be escaped already."""
    head = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return [*head, *("| " + " | ".join(row) + " |" for row in rows)]


def markdown(document: Document) -> str:
    """Return a document as Markdown."""
    return "\n".join(markdown_blocks(document)) + "\n"


def fold_away(document: Document, *, command: str = "") -> str:
    """Return a document as Markdown for a comment or a job summary: its title, with the rest folded away.

    Args:
        document: A title and what follows it.
        command: The command that makes the document again, or "".
    """
    title, *rest = document
    word = title.word if isinstance(title, Title) else ""
    icon = ":white_check_mark:" if word == "PASS" else ":x:" if word.startswith("FAIL") else ":warning:"
    lines = markdown_blocks([title])
    lines[0] = lines[0].replace("## ", f"## {icon} ", 1)
    lines += ["", "<details><summary>where, why, what to try</summary>", "", *markdown_blocks(rest)]
    lines += ["", f"Again: {code(command, limit=1000)}"] if command else []
    return "\n".join([*lines, "", "</details>"]) + "\n"


def markdown_blocks(document: Document) -> list[str]:
    """Return the lines of a document, with an empty line between blocks."""
    lines: list[str] = []
    for drawn in filter(None, map(_block_lines, document)):
        lines += ["", *drawn] if lines else drawn
    return lines


def _block_lines(block: Block) -> list[str]:
    if isinstance(block, Title):
        return [f"## qdebug: {markdown_text(block.word)}", "", markdown_text(block.text, limit=_SENTENCE_LIMIT)]
    if isinstance(block, Section):
        return [f"### {markdown_text(block.text[:1].upper() + block.text[1:])}"]
    if isinstance(block, Paragraph):
        return [markdown_text(block.text, limit=_SENTENCE_LIMIT)]
    if isinstance(block, Code):
        return _fenced_text(block)
    if isinstance(block, FactList):
        return [_fact_line(fact.label, fact.text) for fact in block.facts]
    if isinstance(block, Items):
        return [line for item in block.items for line in _item_lines(item)]
    return _table_lines(block) if block.rows else []


def _fenced_text(block: Code) -> list[str]:
    """Return a code block with a fence longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
    return [f"{fence}{block.language}", *block.text.splitlines(), fence]


def _fact_line(label: str, text: str) -> str:
    sentence = markdown_text(text, limit=_SENTENCE_LIMIT)
    return f"- **{markdown_text(label)}**: {sentence}" if label else f"  - {sentence}"


def _item_lines(item: Item) -> list[str]:
    kind = f"**{markdown_text(item.kind)}** " if item.kind else ""
    more = [f"  - {markdown_text(line, limit=_SENTENCE_LIMIT)}" for line in item.more]
    return [f"- {kind}{markdown_text(item.text, limit=_SENTENCE_LIMIT)}", *more]


def _cell_text(text: str) -> str:
    """Return a cell. A bar of "#" is drawn with block characters, which need no escape."""
    return "\u2588" * len(text) if text and set(text) == {"#"} else markdown_text(text, limit=_SENTENCE_LIMIT)


def _table_lines(grid: Grid) -> list[str]:
    rows = [
        [code(text) if at in grid.names and text != MISSING else _cell_text(text) for at, text in enumerate(row)]
        for row in grid.rows[:_MAX_ROWS]
    ]
    lines = markdown_table([markdown_text(title) for title in grid.titles], rows)
    if len(rows) < len(grid.rows):
        lines += ["", f"**{len(grid.rows) - len(rows)} more rows are left out; the JSON has them all**"]
    return lines
